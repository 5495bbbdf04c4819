//! Races for a move: the same firing many times, leaving against opening, revoking against firing.

use super::{Arena, counted};
use crate::load::client::{granted, let_do, opened, records, started, told, view};
use crate::load::shapes::{quorum, shape, single};
use crate::load::{Rng, calls};
use crate::place::ADMIN;
use anyhow::{Context, ensure};
use countersign_engine::Outcome;
use countersign_engine::port::{AssignmentQuery, Page, StepQuery};
use countersign_kernel::registry::scopes;
use countersign_kernel::{InstanceId, QuorumRule};
use countersign_ledger::record::Header;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const AT_ONCE: usize = 50;

/// Fifty fire one approved transition: one succeeds, and history and ledger know of one.
pub async fn one_approval_one_firing(arena: &Arena, rounds: usize) -> anyhow::Result<()> {
    let_do(arena.engine(0), &["ines"]).await?;
    let design = shape("move", &["a leave b sign", "a again a sign"], &[("sign", single("bea"))]);
    for round in 0..rounds {
        let (action, loser) = if round % 2 == 0 { ("leave", "terminal") } else { ("again", "gate-not-cleared") };
        let process = started(arena.engine(round), "ines", &design).await?;
        opened(arena.engine(round), "ines", process, action).await?;
        arena.engine(round + 1).execute(calls::approve("bea", process, action)).await?;
        let fire = || calls::fire("ines", process, action, None);
        let answers = counted(&arena.at_once((0..AT_ONCE).map(|_| fire()).collect()).await?);
        ensure!(answers.get("ok") == Some(&1) && answers.get(loser) == Some(&(AT_ONCE - 1)), "{answers:?}");
        let history = view(arena.engine(0), process).await?.history.len();
        let recorded = records(arena.engine(0), process, "transition_fired").await?.len();
        ensure!((history, recorded) == (1, 1), "{history} moves, {recorded} records");
    }
    Ok(())
}

/// Everybody turns the same wheel: losers are decided again, and no turn is lost or refused.
pub async fn every_turn_of_a_loop_counts(arena: &Arena, rounds: usize) -> anyhow::Result<()> {
    let_do(arena.engine(0), &["ines"]).await?;
    let process = started(arena.engine(0), "ines", &shape("turn", &["a turn a"], &[])).await?;
    for _ in 0..rounds {
        let turn = || calls::fire("ines", process, "turn", None);
        let answers = counted(&arena.at_once((0..AT_ONCE).map(|_| turn()).collect()).await?);
        ensure!(answers.get("ok") == Some(&AT_ONCE), "{answers:?}");
    }
    let turns = view(arena.engine(0), process).await?.history.len();
    ensure!(turns == rounds * AT_ONCE, "{turns} turns of {}", rounds * AT_ONCE);
    Ok(())
}

/// One caller opens a gate while another leaves the state: in either order, no gate waits there.
pub async fn nothing_waits_in_a_state_that_was_left(arena: &Arena, rounds: usize) -> anyhow::Result<()> {
    let_do(arena.engine(0), &["ines"]).await?;
    let gates = [("sign", single("bea")), ("two", quorum(QuorumRule::AllOfN, &["bea", "cleo"]))];
    let design = shape("leave", &["a one b sign", "a both b two", "a skip b", "b back a"], &gates);
    let mut opened_first = 0;
    for start in (0..rounds).step_by(AT_ONCE) {
        let some = AT_ONCE.min(rounds - start);
        let mut race = vec![];
        for n in 0..some {
            let process = started(arena.engine(n), "ines", &design).await?;
            let open = calls::open("ines", process, if n % 3 == 0 { "both" } else { "one" }, None);
            let leave = calls::fire("ines", process, "skip", None);
            // With two engines each side has its own; which of them is asked first alternates too.
            race.extend(if n % 2 == 0 { [open, leave] } else { [leave, open] });
            race.rotate_left((n / 2) % 2);
        }
        let answers = arena.at_once(race).await?;
        let refused = counted(&answers);
        let known = ["ok", "invalid-transition"].iter().filter_map(|answer| refused.get(answer)).sum::<usize>();
        ensure!(known == 2 * some, "{refused:?}");
        opened_first += refused.get("ok").copied().unwrap_or(0) - some;
    }
    let page = Page { after: None, limit: 10, descending: false };
    let pending = StepQuery { state: Some("Pending".to_owned()), ..StepQuery::default() };
    let waiting = arena.engine(0).read_approval_steps(ADMIN, &pending, &page).await?;
    ensure!(waiting.is_empty(), "still pending after the state was left: {waiting:?}");
    let active = AssignmentQuery { status: Some("Active".to_owned()), ..AssignmentQuery::default() };
    let trays = arena.engine(0).read_assignments(ADMIN, &active, &page).await?;
    ensure!(trays.is_empty(), "still in an in-tray after the state was left: {trays:?}");
    ensure!(rounds < 100 || (opened_first > 0 && opened_first < rounds), "no race: {opened_first} of {rounds}");
    Ok(())
}

/// A grant is revoked at one engine while its holder fires at the other: what came after does not count.
pub async fn no_firing_after_a_revocation(arena: &Arena, seed: u64, rounds: usize) -> anyhow::Result<()> {
    let mut rng = Rng::new(seed);
    let_do(arena.engine(0), &["ines"]).await?;
    let design = shape("turn", &["a turn a"], &[]);
    let mut processes = vec![];
    for n in 0..3 {
        processes.push(started(arena.engine(n), "ines", &design).await?);
    }
    for _ in 0..rounds {
        let grant = granted(arena.engine(0), "tom", scopes::WORKFLOWS_FIRE).await?;
        let over = Arc::new(AtomicBool::new(false));
        let tasks: Vec<_> = (processes.iter().enumerate())
            .map(|(n, process)| tokio::spawn(fire_until_refused(arena.engine(n + 1).clone(), *process, over.clone())))
            .collect();
        for _ in 0..rng.below(200) {
            tokio::task::yield_now().await;
        }
        arena.engine(0).execute(calls::revoke(Some(grant))).await?;
        // From here on every caller is refused, at every engine.
        over.store(true, Ordering::SeqCst);
        for task in tasks {
            task.await??;
        }
        for (n, process) in processes.iter().enumerate() {
            let late = told(arena.engine(n), calls::fire("tom", *process, "turn", None)).await;
            ensure!(late == "permission-denied", "fired after the revocation: {late}");
        }
    }
    require_within_grants(arena, &processes).await
}

async fn fire_until_refused(
    engine: Arc<countersign_engine::Engine>,
    process: InstanceId,
    over: Arc<AtomicBool>,
) -> anyhow::Result<usize> {
    for fired in 0.. {
        let revoked = over.load(Ordering::SeqCst);
        match engine.execute(calls::fire("tom", process, "turn", None)).await {
            Ok(Outcome::Fired { .. }) => ensure!(!revoked, "fired after the revocation was answered"),
            Ok(other) => anyhow::bail!("{other:?}"),
            Err(refusal) if refusal.code.as_str() == "permission-denied" => return Ok(fired),
            Err(refusal) => anyhow::bail!("{refusal}"),
        }
    }
    Ok(0)
}

/// No firing names a registry at or after the revocation that came before the next grant.
async fn require_within_grants(arena: &Arena, processes: &[InstanceId]) -> anyhow::Result<()> {
    let spans = spans_of_grants(arena, "tom");
    for process in processes {
        for row in records(arena.engine(0), *process, "transition_fired").await? {
            let under = Header::parse(&row.record.header).context("a header")?.registry_seq;
            let held = spans.iter().any(|(from, to)| *from <= under && under < *to);
            ensure!(held, "record {} was fired under {under}, outside of {spans:?}", row.event_id);
        }
    }
    Ok(())
}

/// From which registry record to which each grant was in force.
fn spans_of_grants(arena: &Arena, subject_ref: &str) -> Vec<(u64, u64)> {
    let registry = arena.engine(0).registry();
    let grants = registry.grants().of_subject(subject_ref);
    grants.map(|grant| (grant.granted_sequence, grant.revoked.map_or(u64::MAX, |(_, by)| by))).collect()
}
