//! Committing: a unit that was decided on an old state is rejected without its neighbours, and an error writes
//! nothing.

use super::Bench;
use crate::place::Place;
use anyhow::{Context, bail, ensure};
use countersign_engine::port::{Batch, Check, Committed, StoreError, Unit, Verdict};
use countersign_kernel::InstanceId;

/// The units of the process that has the most of them, in order.
fn longest(bench: &Bench) -> anyhow::Result<Vec<Unit>> {
    let starts = bench.story.starts();
    let all = starts.iter().map(|unit| bench.story.of(unit.instance_id));
    all.max_by_key(Vec::len).context("the story has no processes")
}

/// The first units of the other processes.
fn others(bench: &Bench, not: InstanceId) -> Vec<Unit> {
    bench.story.starts().into_iter().filter(|unit| unit.instance_id != not).collect()
}

pub async fn a_stale_unit_is_lost_alone(place: &Place) -> anyhow::Result<()> {
    let mut bench = Bench::with_registry(place).await?;
    let units = longest(&bench)?;
    let mut fresh = others(&bench, units[0].instance_id).into_iter();
    for unit in &units[..3] {
        bench.write_units(vec![unit.clone()]).await?;
    }
    // Decided on a sequence that has passed, or that has not come yet.
    for stale in [&units[1], &units[4]] {
        let neighbours: Vec<Unit> = fresh.by_ref().take(2).collect();
        let batch = bench.batch(vec![neighbours[0].clone(), stale.clone(), neighbours[1].clone()]);
        let committed = bench.commit(&batch).await?;
        let expected = Committed::Done(vec![Verdict::Won, Verdict::Lost, Verdict::Won]);
        ensure!(committed == expected, "{committed:?}");
        neighbours.iter().for_each(|unit| bench.model.write(unit));
        bench.require_model().await?;
    }
    // All of them stale: nothing to write.
    let batch = bench.batch(vec![units[1].clone()]);
    ensure!(bench.commit(&batch).await? == Committed::Done(vec![Verdict::Lost]));
    bench.require_model().await?;
    // And it goes on from where it stands.
    for unit in &units[3..] {
        bench.write_units(vec![unit.clone()]).await?;
    }
    bench.require_model().await
}

/// Ids are never given twice; were one, the second must not pass for the first.
pub async fn an_instance_is_begun_once(place: &Place) -> anyhow::Result<()> {
    let mut bench = Bench::with_registry(place).await?;
    let first = bench.story.starts()[0].clone();
    bench.write_units(vec![first.clone()]).await?;
    let again = bench.batch(vec![first]);
    match bench.commit(&again).await {
        Ok(Committed::Done(verdicts)) if verdicts == [Verdict::Lost] => {}
        Err(StoreError::Rejected(_)) => {}
        other => bail!("begun for the second time: {other:?}"),
    }
    bench.require_model().await
}

pub async fn a_batch_under_another_registry_writes_nothing(place: &Place) -> anyhow::Result<()> {
    let mut bench = Bench::with_registry(place).await?;
    let units = longest(&bench)?;
    bench.write_units(vec![units[0].clone()]).await?;
    let keyed = bench.story.processes.iter().flat_map(|batch| &batch.units).find(|unit| !unit.idempotency.is_empty());
    let keyed = keyed.context("the story uses no keys")?.clone();
    let now = bench.registry_sequence();
    for registry_sequence in [now - 1, now + 1, 0] {
        let start = others(&bench, units[0].instance_id).remove(0);
        let keys = Unit { idempotency: keyed.idempotency.clone(), ..start };
        let batch = Batch { registry_sequence, ..bench.batch(vec![units[1].clone(), keys]) };
        ensure!(bench.commit(&batch).await? == Committed::RegistryMoved, "under {registry_sequence}");
        // A refusal is not confirmed under another registry either.
        let checks = vec![Check { instance_id: units[0].instance_id, expected_sequence: units[0].head.sequence }];
        let batch = Batch { registry_sequence, checks, ..bench.batch(vec![]) };
        ensure!(bench.commit(&batch).await? == Committed::RegistryMoved, "check under {registry_sequence}");
        bench.require_model().await?;
    }
    let key = &keyed.idempotency[0];
    let recalled = bench.writer.recall(&[(key.actor_ref.clone(), key.key.clone())], keyed.head.last_time).await?;
    ensure!(recalled.is_empty(), "a key of a batch that was not written: {recalled:?}");
    Ok(())
}

/// Two writers, one ground: one of them wins, and the other learns that the registry moved.
pub async fn one_registry_change_at_a_time(place: &Place) -> anyhow::Result<()> {
    let mut bench = Bench::with_registry(place).await?;
    let (mut second, _) = place.store().await?.into_parts();
    let change = bench.story.afterwards[0].clone();
    ensure!(change.changes_registry && change.units.len() == 1, "not a registry change");
    let process = bench.batch(vec![bench.story.starts()[0].clone()]);
    bench.write(&change).await?;
    let late = second.commit(&change).await?;
    ensure!(late == Committed::RegistryMoved || late == Committed::Done(vec![Verdict::Lost]), "{late:?}");
    // What was decided before the change does not commit after it.
    ensure!(second.commit(&process).await? == Committed::RegistryMoved);
    bench.require_model().await?;
    let process = Batch { registry_sequence: change.units[0].head.sequence, ..process };
    ensure!(second.commit(&process).await? == Committed::Done(vec![Verdict::Won]));
    process.units.iter().for_each(|unit| bench.model.write(unit));
    bench.require_model().await
}

pub async fn checks_tell_what_is_current(place: &Place) -> anyhow::Result<()> {
    let mut bench = Bench::with_registry(place).await?;
    let units = longest(&bench)?;
    bench.write_units(vec![units[0].clone()]).await?;
    let instance_id = units[0].instance_id;
    let registry_sequence = bench.registry_sequence();
    let check = |instance_id, expected_sequence| Check { instance_id, expected_sequence };
    let checks = vec![
        check(instance_id, units[0].head.sequence),
        check(instance_id, units[0].head.sequence + 1),
        check(instance_id, 0),
        check(InstanceId(uuid::Uuid::from_u128(7)), 0),
        check(InstanceId(uuid::Uuid::from_u128(7)), 1),
        check(InstanceId::REGISTRY, registry_sequence),
    ];
    let expected = [Verdict::Won, Verdict::Lost, Verdict::Lost, Verdict::Won, Verdict::Lost, Verdict::Won];
    let alone = Batch { checks: checks.clone(), ..bench.batch(vec![]) };
    ensure!(bench.commit(&alone).await? == Committed::Done(expected.to_vec()));
    // Beside units: the verdicts of the units come first.
    let start = others(&bench, instance_id).remove(0);
    let beside = Batch { checks, ..bench.batch(vec![start.clone()]) };
    let committed = bench.commit(&beside).await?;
    let expected: Vec<Verdict> = std::iter::once(Verdict::Won).chain(expected).collect();
    ensure!(committed == Committed::Done(expected), "{committed:?}");
    bench.model.write(&start);
    bench.require_model().await
}

pub async fn a_batch_with_data_the_store_cannot_take_writes_nothing(place: &Place) -> anyhow::Result<()> {
    let mut bench = Bench::with_registry(place).await?;
    let starts = bench.story.starts();
    bench.write_units(vec![starts[0].clone()]).await?;
    // A record that is there already, of another instance.
    let mut bad = starts[1].clone();
    bad.records.extend(starts[0].records.clone());
    let batch = bench.batch(vec![starts[2].clone(), bad, starts[3].clone()]);
    match bench.commit(&batch).await {
        Err(StoreError::Rejected(_)) => {}
        other => bail!("taken, or blamed on something else: {other:?}"),
    }
    bench.require_model().await?;
    // The writer is as good as before.
    bench.write_units(vec![starts[2].clone(), starts[3].clone()]).await?;
    bench.require_model().await
}
