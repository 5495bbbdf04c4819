//! Idempotency keys: one commit each, until they expire.

use super::Bench;
use crate::place::Place;
use anyhow::{Context, ensure};
use countersign_engine::port::{Committed, Unit, Verdict};
use countersign_engine::rows::{IdempotencyRow, Write};
use countersign_kernel::Time;
use countersign_ledger::sha256;

fn key(actor_ref: &str, key: &str, expires_at: Time) -> IdempotencyRow {
    let answer = format!("{{\"answer of\": \"{key}\"}}");
    let request_digest = sha256(&[key.as_bytes()]);
    let instance_id = countersign_kernel::InstanceId::REGISTRY;
    IdempotencyRow {
        actor_ref: actor_ref.to_owned(),
        key: key.to_owned(),
        instance_id,
        request_digest,
        answer,
        expires_at,
    }
}

/// A unit that begins a process and uses these keys.
fn with_keys(unit: &Unit, idempotency: Vec<IdempotencyRow>) -> Unit {
    Unit { idempotency, ..unit.clone() }
}

fn asked(row: &IdempotencyRow) -> (String, String) {
    (row.actor_ref.clone(), row.key.clone())
}

pub async fn keys_are_recalled_until_they_expire(place: &Place) -> anyhow::Result<()> {
    let mut bench = Bench::with_registry(place).await?;
    let starts = bench.story.starts();
    let end = Time(starts[0].head.last_time.0 + 1000);
    let rows = [key("ines", "one", end), key("ines", super::story::HARD[0], end), key("bea", "one", Time(end.0 + 5))];
    bench.write_units(vec![with_keys(&starts[0], rows.to_vec())]).await?;
    let all: Vec<_> = rows.iter().map(asked).chain([("bea".to_owned(), "two".to_owned())]).collect();
    // At its exact end a key is gone.
    for (now, expected) in
        [(Time(0), &rows[..]), (Time(end.0 - 1), &rows[..]), (end, &rows[2..]), (Time(end.0 + 5), &[])]
    {
        let mut recalled = bench.writer.recall(&all, now).await?;
        let order = |row: &IdempotencyRow| rows.iter().position(|known| asked(known) == asked(row));
        recalled.sort_by_key(order);
        ensure!(recalled == expected, "at {now:?}: {recalled:?}");
    }
    // They are in the store, not in the writer.
    drop(bench);
    let (mut writer, _) = place.store().await?.into_parts();
    ensure!(writer.recall(&all, Time(end.0 - 1)).await?.len() == 3);
    Ok(())
}

/// A key that is passed on is found, and forgotten, as its new holder's.
pub async fn a_key_passes_on(place: &Place) -> anyhow::Result<()> {
    let mut bench = Bench::with_registry(place).await?;
    let starts = bench.story.starts();
    let (end, later) = (Time(starts[0].head.last_time.0 + 1000), Time(starts[0].head.last_time.0 + 2000));
    let rows = [key("ines", "one", end), key("ines", "two", end), key("bea", "one", end)];
    let held: Vec<IdempotencyRow> =
        rows.into_iter().map(|row| IdempotencyRow { instance_id: starts[0].instance_id, ..row }).collect();
    bench.write_units(vec![with_keys(&starts[0], held.clone())]).await?;
    let pass = |row: &IdempotencyRow, holder: usize| Write::PassKey {
        actor_ref: row.actor_ref.clone(),
        key: row.key.clone(),
        instance_id: starts[holder].instance_id,
        expires_at: later,
    };
    let mut passing = starts[1].clone();
    passing.writes.extend([pass(&held[0], 1), pass(&held[1], 2)]);
    bench.write_units(vec![passing]).await?;
    let all: Vec<_> = held.iter().map(asked).collect();
    let mut found = bench.writer.recall(&all, Time(0)).await?;
    found.sort_by_key(|row| held.iter().position(|known| asked(known) == asked(row)));
    let now = |n: usize, holder: usize| IdempotencyRow {
        instance_id: starts[holder].instance_id,
        expires_at: later,
        ..held[n].clone()
    };
    ensure!(found == [now(0, 1), now(1, 2), held[2].clone()], "{found:?}");
    // In one unit it is passed on before it is forgotten.
    let mut forgetting = starts[3].clone();
    let forget = |holder: usize| Write::ForgetKeys { instance_id: starts[holder].instance_id, expires_at: later };
    forgetting.writes.extend([pass(&held[2], 3), forget(3), forget(1)]);
    bench.write_units(vec![forgetting]).await?;
    let left = bench.writer.recall(&all, Time(0)).await?;
    ensure!(left == [now(1, 2)], "{left:?}");
    Ok(())
}

pub async fn a_key_is_good_for_one_commit(place: &Place) -> anyhow::Result<()> {
    let mut bench = Bench::with_registry(place).await?;
    let starts = bench.story.starts();
    let end = Time(i64::MAX);
    bench.write_units(vec![with_keys(&starts[0], vec![key("ines", "one", end)])]).await?;
    // The second use writes nothing, and nothing beside it either: all of it is decided again.
    let again = with_keys(&starts[2], vec![key("ines", "two", end), key("ines", "one", end)]);
    let batch = bench.batch(vec![starts[1].clone(), again, starts[3].clone()]);
    let committed = bench.commit(&batch).await?;
    let Committed::Done(verdicts) = &committed else { anyhow::bail!("{committed:?}") };
    ensure!(verdicts[1] == Verdict::KeyTaken && !verdicts.contains(&Verdict::Won), "{verdicts:?}");
    bench.require_model().await?;
    let two = bench.writer.recall(&[("ines".to_owned(), "two".to_owned())], Time(0)).await?;
    ensure!(two.is_empty(), "a key of a unit that was not written");
    let one = bench.writer.recall(&[("ines".to_owned(), "one".to_owned())], Time(0)).await?;
    ensure!(one == [key("ines", "one", end)], "the first answer is gone: {one:?}");
    // Another actor's key is another key.
    bench.write_units(vec![with_keys(&starts[1], vec![key("bea", "one", end)]), starts[3].clone()]).await?;
    bench.require_model().await
}

pub async fn a_key_may_be_used_again_when_its_time_is_over(place: &Place) -> anyhow::Result<()> {
    let mut bench = Bench::with_registry(place).await?;
    let starts = bench.story.starts();
    let end = starts[1].head.last_time;
    bench.write_units(vec![with_keys(&starts[0], vec![key("ines", "one", end)])]).await?;
    let mut later = key("ines", "one", Time(i64::MAX));
    later.answer = "\"another answer\"".to_owned();
    bench.write_units(vec![with_keys(&starts[1], vec![later.clone()])]).await?;
    let recalled = bench.writer.recall(&[asked(&later)], end).await?;
    ensure!(recalled == [later], "{recalled:?}");
    bench.require_model().await
}

pub async fn expired_keys_are_forgotten_in_portions(place: &Place) -> anyhow::Result<()> {
    const EXPIRED: u64 = 2_300;
    let mut bench = Bench::with_registry(place).await?;
    let start = bench.story.starts().into_iter().next().context("no processes")?;
    let now = Time(start.head.last_time.0 + 1000);
    let mut rows: Vec<_> = (0..EXPIRED).map(|n| key("ines", &format!("old {n}"), now)).collect();
    let kept = key("ines", "kept", Time(now.0 + 1));
    rows.push(kept.clone());
    bench.write_units(vec![with_keys(&start, rows)]).await?;
    let mut forgotten = 0;
    let mut calls = 0;
    loop {
        let gone = bench.writer.forget_expired(now).await?;
        (forgotten, calls) = (forgotten + gone, calls + 1);
        ensure!(gone < EXPIRED && calls < 100, "{gone} at once, after {calls} calls");
        if gone == 0 {
            break;
        }
    }
    ensure!(forgotten == EXPIRED, "{forgotten} were forgotten");
    ensure!(bench.writer.recall(&[asked(&kept)], now).await? == [kept]);
    Ok(())
}
