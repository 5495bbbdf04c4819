//! Workflows in the long run: a store with many finished ones, a database that cannot clean up because of an open old
//! snapshot, and an idle server.

use crate::report::{Report, Row};
use crate::target::Target;
use crate::workflows::{Place, STEPS, config, rate};
use anyhow::Context;
use std::time::{Duration, Instant};

pub struct Sizes {
    pub runs: usize,
    pub workers: usize,
    /// Runs that have ended before it is measured again.
    pub finished: usize,
    /// How long an old snapshot is held.
    pub pinned: Duration,
}

/// How long a server is watched doing nothing.
const IDLE: Duration = Duration::from_secs(20);

pub async fn measure(store: &str, sizes: &Sizes, report: &mut Report) -> anyhow::Result<()> {
    finished_runs(store, sizes, report).await?;
    if store == "postgres" {
        pinned_snapshot(sizes, report).await?;
        idle(report).await?;
    }
    Ok(())
}

/// Runs per second on a store that is empty, and on one that holds many finished ones.
async fn finished_runs(store: &str, sizes: &Sizes, report: &mut Report) -> anyhow::Result<()> {
    if sizes.finished == 0 {
        return Ok(());
    }
    let target = Target::in_process_with(store, config()).await?;
    let place = Place::of(target.engine.clone().context("no engine")?).await?;
    place.w1(sizes.runs.min(200), sizes.workers, STEPS).await?;
    let empty = rate(sizes.runs, place.w1(sizes.runs, sizes.workers, STEPS).await?);
    eprintln!("{store}: {} runs to be finished first …", sizes.finished);
    place.w3(sizes.finished, sizes.workers).await?;
    let full = rate(sizes.runs, place.w1(sizes.runs, sizes.workers, STEPS).await?);
    let work = format!("W1 with {} finished runs stored", sizes.finished);
    let mut row = Row::rate(&work, store, "in process", sizes.workers, full);
    row.ratio_to_limit = Some(full / empty);
    report.add(row);
    drop(place);
    target.close().await
}

/// Runs per second in the last fifth of the time that a snapshot from before is held, beside the first fifth.
async fn pinned_snapshot(sizes: &Sizes, report: &mut Report) -> anyhow::Result<()> {
    if sizes.pinned.is_zero() {
        return Ok(());
    }
    let target = Target::in_process_with("postgres", config()).await?;
    let place = Place::of(target.engine.clone().context("no engine")?).await?;
    place.w1(sizes.runs.min(200), sizes.workers, STEPS).await?;
    let (old, connection) = tokio_postgres::connect(target.url(), tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    old.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM runs").await?;
    eprintln!("postgres: {} s with an old snapshot …", sizes.pinned.as_secs());
    let (start, mut rates) = (Instant::now(), Vec::new());
    while start.elapsed() < sizes.pinned {
        rates.push((start.elapsed(), rate(sizes.runs, place.w1(sizes.runs, sizes.workers, STEPS).await?)));
    }
    let mean = |from: Duration, until: Duration| {
        let some: Vec<f64> = rates.iter().filter(|(at, _)| (from..until).contains(at)).map(|(_, rate)| *rate).collect();
        #[expect(clippy::cast_precision_loss, reason = "a few rates")]
        let count = some.len().max(1) as f64;
        some.iter().sum::<f64>() / count
    };
    let (first, last) = (mean(Duration::ZERO, sizes.pinned / 5), mean(sizes.pinned * 4 / 5, Duration::MAX));
    let work = format!("W1 after {} s with an old snapshot", sizes.pinned.as_secs());
    let mut row = Row::rate(&work, "postgres", "in process", sizes.workers, last);
    row.ratio_to_limit = Some(last / first);
    report.add(row);
    old.batch_execute("COMMIT").await?;
    drop((place, old));
    target.close().await
}

/// Transactions per second of an idle server.
async fn idle(report: &mut Report) -> anyhow::Result<()> {
    eprintln!("postgres: an idle server …");
    let target = Target::http("postgres").await?;
    let before = target.written().await?.context("counters")?;
    let start = Instant::now();
    tokio::time::sleep(IDLE).await;
    let after = target.written().await?.context("counters")?;
    // Until the counters were read, and that includes the time until they are reported.
    let transactions = after.transactions_since(&before) / start.elapsed().as_secs_f64();
    report.add(Row::rate("transactions of an idle server", "postgres", "http", 0, transactions));
    target.close().await
}
