//! Whoever draws a run sees one state of it, and whoever follows it hears what changed, at the price of what changed.

use anyhow::{Context, ensure};
use countersign_definition::Cel;
use countersign_engine::run::cells::Cells;
use countersign_engine::run::rollup::Basis;
use countersign_engine::{Config, Engine};
use countersign_kernel::InstanceId;
use countersign_kernel::lifecycle::StepCode;
use countersign_kernel::plan::StepSeq;
use countersign_kernel::run::{self, Act, StepAct};
use countersign_testing::hands::{LEASE, claim, complete, on_run, publish, start, state};
use countersign_testing::place::{ADMIN, Kind, Place, close};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

countersign_testing::on_both! {
    nobody_sees_half_a_commit,
    what_an_older_version_did_not_count_is_counted_in_the_same_snapshot,
    a_delta_costs_what_changed,
    a_plan_that_is_not_in_memory_is_read_for_the_changes,
    what_is_held_up_is_told_with_what_holds_it,
    who_missed_much_is_given_all,
}

/// The states of the steps, as somebody knows them.
type Picture = BTreeMap<StepSeq, StepCode>;

fn config() -> Config {
    Config { language: Arc::new(Cel::default()), ..Config::default() }
}

async fn cells(engine: &Engine, run_id: InstanceId, since: Option<u64>) -> anyhow::Result<Cells> {
    Ok(engine.read_cells(ADMIN, run_id, since).await?)
}

fn take(picture: &mut Picture, seen: &Cells) {
    if seen.full {
        picture.clear();
    }
    picture.extend(seen.steps.iter().map(|step| (step.step_seq, step.state.state)));
}

/// The colour stands on one row, each step on another: they are of one state or they contradict each other.
fn agree(picture: &Picture, seen: &Cells) -> anyhow::Result<()> {
    let basis = seen.run.head.rollup.as_deref().and_then(Basis::parse).context("a roll-up")?;
    let completed = picture.values().filter(|state| **state == StepCode::Completed).count();
    let begun = picture.values().filter(|state| **state != StepCode::NotStarted).count();
    let progress = basis.progress.context("progress")?;
    ensure!(progress.completed as usize == completed, "{progress:?} with {completed} completed steps");
    ensure!(basis.rollup.counts.green as usize == begun, "{:?} with {begun} begun steps", basis.rollup.counts);
    Ok(())
}

/// Chains side by side in one run, each with a worker: several commands come to the committer at once.
async fn nobody_sees_half_a_commit(kind: Kind) -> anyhow::Result<()> {
    const CHAINS: usize = 4;
    const STEPS: usize = 160;
    let place = Place::new(kind).await?;
    let engine = place.engine(config()).await?;
    let mut text = String::from("kind: workflow\nname: chains\nqueue: q\nsteps:\n");
    (0..CHAINS).try_for_each(|n| writeln!(text, "  - {{name: s{n}}}"))?;
    (CHAINS..STEPS).try_for_each(|n| writeln!(text, "  - {{name: s{n}, dependsOn: [s{}]}}", n - CHAINS))?;
    publish(&engine, &text).await?;
    let run_id = start(&engine, "chains", "{}").await?;
    let done = Arc::new(AtomicBool::new(false));
    let watch = |deltas: bool| {
        let (engine, done) = (engine.clone(), done.clone());
        tokio::spawn(async move {
            let (mut picture, mut since, mut looks) = (Picture::new(), None, 0_usize);
            loop {
                let ends = done.load(Ordering::SeqCst);
                let seen = cells(&engine, run_id, since).await?;
                take(&mut picture, &seen);
                agree(&picture, &seen)?;
                since = deltas.then_some(seen.run.chain.sequence);
                looks += 1;
                if ends {
                    return anyhow::Ok((picture, looks));
                }
            }
        })
    };
    let watchers = [watch(false), watch(true), watch(true)];
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..CHAINS {
        let engine = engine.clone();
        workers.spawn(async move {
            let mut task = claim(&engine, 1, LEASE, Duration::ZERO).await?.pop();
            while let Some(current) = task {
                task = complete(&engine, &current, true).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    // A worker whose chain was taken over by another one ended early; what is left is worked off.
    while let Some(task) = claim(&engine, 1, LEASE, Duration::ZERO).await?.pop() {
        complete(&engine, &task, false).await?;
    }
    ensure!(state(&engine, run_id).await? == "completed");
    done.store(true, Ordering::SeqCst);
    for watcher in watchers {
        let (picture, looks) = watcher.await??;
        ensure!(picture.len() == STEPS && picture.values().all(|state| *state == StepCode::Completed), "{looks} looks");
    }
    close(engine).await?;
    place.remove().await
}

/// Its row says no progress, or nothing at all: the answer counts the steps that it read.
async fn what_an_older_version_did_not_count_is_counted_in_the_same_snapshot(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let engine = place.engine(config()).await?;
    publish(&engine, "kind: workflow\nname: few\norder: linear\nqueue: q\nsteps: [{name: a}, {name: b}, {name: c}]\n")
        .await?;
    let run_id = start(&engine, "few", "{}").await?;
    let first = claim(&engine, 1, LEASE, Duration::ZERO).await?.pop().context("a task")?;
    complete(&engine, &first, false).await?;
    let new = cells(&engine, run_id, None).await?;
    let since = Some(new.run.chain.sequence - 1);
    let stored = new.run.head.rollup.as_deref().context("a roll-up")?;
    let (without, _) = stored.split_once(",\"progress\"").context("progress")?;
    for older in [format!("'{without}}}'"), "NULL".to_owned()] {
        place.sql(&format!("UPDATE instances SET rollup = {older}")).await?;
        for since in [None, since] {
            let seen = cells(&engine, run_id, since).await?;
            ensure!(seen.basis.progress == new.basis.progress && seen.basis.progress.is_some(), "{:?}", seen.basis);
            ensure!(seen.basis.rollup.counts == new.basis.rollup.counts, "{:?}", seen.basis);
        }
    }
    close(engine).await?;
    place.remove().await
}

async fn a_delta_costs_what_changed(kind: Kind) -> anyhow::Result<()> {
    const STEPS: usize = 10_000;
    let place = Place::new(kind).await?;
    let engine = place.engine(config()).await?;
    let mut text = String::from("kind: workflow\nname: wide\nqueue: q\nsteps:\n  - {name: s0}\n");
    (1..STEPS).try_for_each(|n| writeln!(text, "  - {{name: s{n}, dependsOn: [s0]}}"))?;
    publish(&engine, &text).await?;
    let run_id = start(&engine, "wide", "{}").await?;
    let first = claim(&engine, 1, LEASE, Duration::ZERO).await?.pop().context("a task")?;
    complete(&engine, &first, false).await?;
    let whole = cells(&engine, run_id, None).await?;
    ensure!(whole.full && whole.steps.len() == STEPS && whole.rows_read == STEPS, "{}", whole.rows_read);
    let since = whole.run.chain.sequence;

    let task = claim(&engine, 1, LEASE, Duration::ZERO).await?.pop().context("a task")?;
    complete(&engine, &task, false).await?;
    let delta = cells(&engine, run_id, Some(since)).await?;
    let changed: Vec<_> = delta.steps.iter().map(|step| (step.step_seq, step.state.state)).collect();
    ensure!(!delta.full && changed == [(task.step_seq, StepCode::Completed)], "{changed:?}");
    // A record of the claim, one of the completion, and the row of the step.
    ensure!(delta.rows_read == 3, "{} rows", delta.rows_read);

    // Nothing happened since.
    let nothing = cells(&engine, run_id, Some(delta.run.chain.sequence)).await?;
    ensure!(!nothing.full && nothing.steps.is_empty() && nothing.rows_read == 0, "{}", nothing.rows_read);

    // Who starts the server again loses nothing.
    close(engine).await?;
    let engine = place.engine(config()).await?;
    let again = cells(&engine, run_id, Some(since)).await?;
    ensure!(!again.full && again.rows_read == 3 && again.steps.len() == 1);
    close(engine).await?;
    place.remove().await
}

/// The plans of other definitions have taken its place.
async fn a_plan_that_is_not_in_memory_is_read_for_the_changes(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let engine = place.engine(Config { definition_cache_bytes: 1, ..config() }).await?;
    let document = |name: &str, queue: &str| {
        format!(
            "kind: workflow\nname: {name}\norder: linear\nqueue: {queue}\nsteps: [{{name: a}}, {{name: b}}, {{name: c}}]\n"
        )
    };
    publish(&engine, &document("first", "q")).await?;
    let run_id = start(&engine, "first", "{}").await?;
    let since = cells(&engine, run_id, None).await?.run.chain.sequence;
    let task = claim(&engine, 1, LEASE, Duration::ZERO).await?.pop().context("a task")?;
    complete(&engine, &task, false).await?;
    publish(&engine, &document("second", "other")).await?;
    start(&engine, "second", "{}").await?;
    let delta = cells(&engine, run_id, Some(since)).await?;
    let seqs: Vec<StepSeq> = delta.steps.iter().map(|step| step.step_seq).collect();
    ensure!(!delta.full && seqs == [0, 1], "{seqs:?}");
    ensure!(delta.basis.progress.is_some_and(|progress| progress.completed == 1), "{:?}", delta.basis);
    close(engine).await?;
    place.remove().await
}

const HELD: &str = "kind: workflow\nname: held\nqueue: q\nsteps:
  - {name: a, run: human, pic: admin}
  - {name: b, dependsOn: [a]}
  - {name: c, dependsOn: [b]}
  - {name: side}
  - {name: d, dependsOn: [side]}
";

async fn what_is_held_up_is_told_with_what_holds_it(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let engine = place.engine(config()).await?;
    publish(&engine, HELD).await?;
    let run_id = start(&engine, "held", "{}").await?;
    let act = async |act: Act, reason: Option<&str>| {
        let reason = reason.map(str::to_owned);
        let command = run::Command::Act(StepAct { step: "a".to_owned(), act, reason, preview: false });
        engine.execute(on_run(run_id, command)).await
    };
    act(Act::Claim, None).await?;
    let since = cells(&engine, run_id, None).await?.run.chain.sequence;
    act(Act::Block { block_reason: Some("missing_input".to_owned()) }, None).await?;
    let blocked = cells(&engine, run_id, Some(since)).await?;
    let seqs: Vec<StepSeq> = blocked.steps.iter().map(|step| step.step_seq).collect();
    ensure!(!blocked.full && seqs == [0, 1, 2], "{seqs:?}");
    ensure!(blocked.downstream.iter().copied().eq([1, 2]), "{:?}", blocked.downstream);
    ensure!(cells(&engine, run_id, None).await?.downstream.iter().copied().eq([1, 2]));

    act(Act::Unblock { evidence_ref: Some("it came".to_owned()) }, None).await?;
    let freed = cells(&engine, run_id, Some(blocked.run.chain.sequence)).await?;
    let seqs: Vec<StepSeq> = freed.steps.iter().map(|step| step.step_seq).collect();
    ensure!(seqs == [0, 1, 2] && freed.downstream.is_empty(), "{seqs:?} {:?}", freed.downstream);
    close(engine).await?;
    place.remove().await
}

async fn who_missed_much_is_given_all(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let engine = place.engine(config()).await?;
    let mut text = String::from("kind: workflow\nname: chain\norder: linear\nqueue: q\nsteps:\n");
    (0..250).try_for_each(|n| writeln!(text, "  - {{name: s{n}}}"))?;
    publish(&engine, &text).await?;
    let run_id = start(&engine, "chain", "{}").await?;
    let since = cells(&engine, run_id, None).await?.run.chain.sequence;
    let mut task = claim(&engine, 1, LEASE, Duration::ZERO).await?.pop();
    while let Some(current) = task {
        task = complete(&engine, &current, true).await?;
    }
    let late = cells(&engine, run_id, Some(since)).await?;
    ensure!(late.full && late.steps.len() == 250);
    // A number from a future that is not.
    ensure!(cells(&engine, run_id, Some(1_000_000)).await?.full);
    close(engine).await?;
    place.remove().await
}
