//! Races for the content of a record: holds against purges, purges against each other and against the running
//! process.

use super::{Arena, counted};
use crate::load::calls;
use crate::load::client::{held, let_do, purge, records, started};
use crate::load::shapes::{shape, single};
use crate::place::ADMIN;
use anyhow::{Context, ensure};
use countersign_engine::rows::RecordRow;
use countersign_engine::{Config, Engine, retention};
use countersign_kernel::{EventId, InstanceId};
use std::sync::Arc;

const AT_ONCE: usize = 25;

/// Everything may be purged a moment after it was recorded.
pub fn keep_for_a_moment(config: Config) -> Config {
    let mut policies = config.policies.clone();
    policies.insert("moment", retention::Policy { duration_us: Some(1), max_purge_delay_us: 0 });
    Config { policies, audit_trail_retention_policy: Some("moment".to_owned()), ..config }
}

async fn start_record(engine: &Engine, process: InstanceId) -> anyhow::Result<RecordRow> {
    records(engine, process, "workflow_started").await?.pop().context("no start")
}

/// Somebody holds a record while somebody else purges it: whoever is first, nothing is destroyed under a hold whose
/// placing had been answered.
pub async fn no_purge_under_a_hold(arena: &Arena, rounds: usize) -> anyhow::Result<()> {
    let_do(arena.engine(0), &["ines"]).await?;
    let design = shape("turn", &["a turn a"], &[]);
    let (mut held_first, mut purged_first) = (0, 0);
    for round in (0..rounds).step_by(AT_ONCE) {
        let mut races = vec![];
        for n in 0..AT_ONCE.min(rounds - round) {
            let process = started(arena.engine(n), "ines", &design).await?;
            let record = start_record(arena.engine(n), process).await?.event_id;
            let (holder, purger) = (arena.engine(n).clone(), arena.engine(n + 1).clone());
            let hold = tokio::spawn(hold_and_try(holder, purger.clone(), record));
            let purge = tokio::spawn(async move { purge(&purger, ADMIN, record).await });
            races.push((process, hold, purge));
        }
        for (process, hold, purge) in races {
            hold.await??;
            let purge = purge.await?;
            let row = start_record(arena.engine(0), process).await?;
            ensure!(row.record.is_purged() == purge.is_ok(), "{purge:?}, but purged: {}", row.record.is_purged());
            let at = async |action: &str| -> anyhow::Result<Option<u64>> {
                Ok(records(arena.engine(0), process, action).await?.first().map(|row| row.sequence))
            };
            match (purge, at("record_purged").await?, at("hold_placed").await?) {
                (Ok(()), Some(purged), Some(placed)) if purged < placed => purged_first += 1,
                (Err(refusal), None, Some(_)) if refusal.code.as_str() == "under-legal-hold" => held_first += 1,
                told => anyhow::bail!("{told:?}"),
            }
        }
    }
    ensure!(rounds < 100 || (held_first > 0 && purged_first > 0), "no race: {held_first} to {purged_first}");
    Ok(())
}

/// After the answer to its placing, a hold is active on every engine.
async fn hold_and_try(holder: Arc<Engine>, purger: Arc<Engine>, record: EventId) -> anyhow::Result<()> {
    held(&holder, ADMIN, record, "a race", Some("case")).await?;
    let late = purge(&purger, ADMIN, record).await.err().map(|refusal| refusal.code.as_str());
    ensure!(matches!(late, Some("under-legal-hold" | "not-eligible")), "purged under a hold: {late:?}");
    Ok(())
}

/// Many purge one record: one of them does.
pub async fn a_record_is_purged_once(arena: &Arena, rounds: usize) -> anyhow::Result<()> {
    let_do(arena.engine(0), &["ines"]).await?;
    let design = shape("turn", &["a turn a"], &[]);
    for _ in 0..rounds {
        let process = started(arena.engine(0), "ines", &design).await?;
        let record = start_record(arena.engine(0), process).await?.event_id;
        let mut purges = vec![];
        for n in 0..AT_ONCE {
            let command = arena.engine(n).purge_record(&record.to_string()).await?;
            purges.push(calls::by(ADMIN, command));
        }
        let answers = counted(&arena.at_once(purges).await?);
        let others = answers.get("not-eligible").copied().unwrap_or(0);
        ensure!(answers.get("ok") == Some(&1) && others == AT_ONCE - 1, "{answers:?}");
    }
    Ok(())
}

/// The start is purged while gates are opened, which repeat its subject: none of them may keep it. The whole store is
/// checked for that at the end.
pub async fn no_subject_outlives_its_purge(arena: &Arena, rounds: usize) -> anyhow::Result<()> {
    let_do(arena.engine(0), &["ines"]).await?;
    let design = shape("many", &["a one b sign", "a two b sign", "a three b sign"], &[("sign", single("bea"))]);
    for round in 0..rounds {
        let process = started(arena.engine(0), "ines", &design).await?;
        let record = start_record(arena.engine(0), process).await?.event_id;
        let command = arena.engine(0).purge_record(&record.to_string()).await?;
        let mut race: Vec<_> = ["one", "two", "three"].map(|action| calls::open("ines", process, action, None)).into();
        race.insert(round % 4, calls::by(ADMIN, command));
        let answers = arena.at_once(race).await?;
        ensure!(answers == ["ok"; 4], "{answers:?}");
    }
    Ok(())
}
