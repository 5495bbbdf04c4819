//! Holds and purges: every hold is found by every filter, the records that may be purged are listed in order, and
//! nothing of a purged record is left.

use super::model::Model;
use super::{Bench, require_found};
use crate::place::Place;
use anyhow::ensure;
use countersign_engine::port::{HoldQuery, Page, PurgeableQuery, Reader, StepsOf};
use countersign_engine::rows::{IdempotencyRow, Write};
use countersign_kernel::{EventId, HoldId, Time};
use uuid::Uuid;

pub async fn require_holds(reader: &dyn Reader, model: &Model, query: &HoldQuery) -> anyhow::Result<()> {
    let read = async |page: &Page| reader.holds(query, page).await;
    require_found(&format!("{query:?}"), model.find_holds(query), read, |row| (row.hold_id.0, format!("{row:?}"))).await
}

pub async fn holds_are_found_by_every_axis(place: &Place) -> anyhow::Result<()> {
    let mut bench = Bench::with_everything(place).await?;
    let holds: Vec<_> = bench.model.holds.values().cloned().collect();
    ensure!(holds.len() == 3 && holds.iter().any(|hold| hold.released.is_none()), "{holds:?}");
    let mut queries = vec![
        HoldQuery { released: Some(true), ..HoldQuery::default() },
        HoldQuery { released: Some(false), ..HoldQuery::default() },
        HoldQuery { case_ref: Some("nobody's".to_owned()), ..HoldQuery::default() },
        HoldQuery { hold_id: Some(HoldId(Uuid::max())), ..HoldQuery::default() },
    ];
    for hold in &holds {
        let record_ref = Some(hold.record_ref);
        queries.push(HoldQuery { hold_id: Some(hold.hold_id), ..HoldQuery::default() });
        queries.push(HoldQuery { record_ref, ..HoldQuery::default() });
        queries.push(HoldQuery { record_ref, released: Some(hold.released.is_none()), ..HoldQuery::default() });
        queries.push(HoldQuery { case_ref: hold.case_ref.clone(), ..HoldQuery::default() });
        ensure!(bench.writer.find_hold(hold.hold_id).await?.as_ref() == Some(hold), "{hold:?}");
    }
    for query in queries {
        require_holds(&*bench.reader, &bench.model, &query).await?;
    }
    ensure!(bench.writer.find_hold(HoldId(Uuid::max())).await?.is_none());
    ensure!(bench.writer.find_record(EventId(Uuid::max())).await?.is_none());
    Ok(())
}

pub async fn what_may_be_purged_is_listed_in_order(place: &Place) -> anyhow::Result<()> {
    let mut bench = Bench::with_everything(place).await?;
    let mut expected: Vec<(Time, EventId)> =
        (bench.model.records.values()).filter_map(|row| Some((row.purgeable_from?, row.event_id))).collect();
    expected.sort();
    let purged = bench.model.records.values().filter(|row| row.record.is_purged()).count();
    ensure!(purged == 7 && expected.len() > 40, "{purged} purged, {} to come", expected.len());
    // At the very instant a record may go, it may; before the first, none.
    let middle = expected[expected.len() / 2].0;
    for now in [Time(expected[0].0.0 - 1), expected[0].0, Time(middle.0 - 1), middle, Time(i64::MAX)] {
        for (limit, descending) in [(1000, false), (7, false), (7, true)] {
            let mut wanted: Vec<_> = expected.iter().copied().filter(|(from, _)| *from <= now).collect();
            if descending {
                wanted.reverse();
            }
            let mut found: Vec<(Time, EventId)> = vec![];
            loop {
                let query = PurgeableQuery { now, after: found.last().copied(), limit, descending };
                let rows = bench.reader.purgeable(&query).await?;
                let more = rows.len() == limit;
                for (row, holds) in rows {
                    let standing = |hold: &&countersign_engine::rows::HoldRow| {
                        let own = row.action_ref == "hold_placed" && row.recorded_at == hold.placed_at;
                        (hold.record_ref == row.event_id || (own && hold.instance_id == row.instance_id))
                            && hold.released.is_none()
                    };
                    let expected: Vec<_> = bench.model.holds.values().filter(standing).cloned().collect();
                    ensure!(holds == expected, "{holds:?}");
                    ensure!(bench.writer.find_record(row.event_id).await?.as_ref() == Some(&row), "{row:?}");
                    found.push((row.purgeable_from.unwrap_or_default(), row.event_id));
                }
                if !more {
                    break;
                }
            }
            ensure!(found == wanted, "at {now:?}, {limit} at a time: {found:?}");
        }
    }
    // The steps of a process and of a gate are its own.
    for row in bench.model.processes.clone().values() {
        let mut found = bench.writer.steps(StepsOf::Instance(row.instance_id)).await?;
        found.sort_by_key(|step| step.step_id);
        let wanted: Vec<_> =
            bench.model.steps.values().filter(|step| step.instance_id == row.instance_id).cloned().collect();
        ensure!(found == wanted, "{found:?}");
    }
    Ok(())
}

/// The answer that was kept for the command of a purged record is forgotten; its neighbours' are not.
pub async fn a_purge_takes_its_answer_along(place: &Place) -> anyhow::Result<()> {
    let mut bench = Bench::with_registry(place).await?;
    let starts = bench.story.starts();
    let end = Time(starts[0].head.last_time.0 + 1_000_000);
    let key = |n: usize, expires_at| IdempotencyRow {
        actor_ref: "ines".to_owned(),
        key: format!("key {n}"),
        instance_id: starts[n].instance_id,
        request_digest: starts[n].head.record_hash,
        answer: "{}".to_owned(),
        expires_at,
    };
    // Two that expire at the same instant, and one of the same process that does not.
    for (n, expires_at) in [(0, end), (1, end), (2, Time(end.0 + 1))] {
        let mut unit = starts[n].clone();
        unit.idempotency = vec![key(n, expires_at)];
        bench.write_units(vec![unit]).await?;
    }
    let mut purge = starts[3].clone();
    let (event_id, instance_id) = (starts[0].records[0].event_id, starts[0].instance_id);
    purge.writes.extend([
        Write::PurgeRecord { event_id },
        Write::ForgetKeys { instance_id, expires_at: end },
        Write::ForgetKeys { instance_id: starts[2].instance_id, expires_at: end },
    ]);
    bench.write_units(vec![purge]).await?;
    bench.require_model().await?;
    let asked: Vec<_> = (0..3).map(|n| ("ines".to_owned(), format!("key {n}"))).collect();
    let mut left: Vec<String> = bench.writer.recall(&asked, Time(0)).await?.into_iter().map(|row| row.key).collect();
    left.sort();
    ensure!(left == ["key 1", "key 2"], "{left:?}");
    let row = bench.writer.find_record(event_id).await?;
    ensure!(row.is_some_and(|row| row.record.is_purged() && row.purgeable_from.is_none()));
    while !bench.writer.scrub().await? {
        tokio::task::yield_now().await;
    }
    Ok(())
}
