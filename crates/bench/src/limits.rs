//! The raw limits of a store: single durable transactions, and the batches of an engine, written again with only
//! their statements.

use crate::report::quantile_ms;
use crate::story::Story;
use crate::target::{Place, Target};
use anyhow::Context;
use countersign_engine::port::{Store, Unit};
use countersign_engine::{Config, Engine};
use countersign_store::raw::{Raw, row_count};
use countersign_store::tap::{Copies, Tapped};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Batches replayed for the raw limit.
const CAPTURED_COMMANDS: usize = 60_000;
const SINGLE_COMMANDS: usize = 4_000;

/// Durable transactions one after the other.
#[derive(Default)]
pub struct Bare {
    pub samples: Vec<u32>,
    pub elapsed: Duration,
}

impl Bare {
    pub fn p50_ms(&self) -> f64 {
        let mut sorted = self.samples.clone();
        sorted.sort_unstable();
        quantile_ms(&sorted, 0.5)
    }
}

/// A store to write single rows to, each in a separate transaction.
pub struct BareStore {
    place: Place,
    raw: Raw,
    body: Vec<u8>,
}

impl BareStore {
    pub async fn run(&mut self, time: Duration, into: &mut Bare) -> anyhow::Result<()> {
        let start = Instant::now();
        while start.elapsed() < time {
            let before = Instant::now();
            self.raw.bare_transaction(&self.body).await?;
            into.samples.push(u32::try_from(before.elapsed().as_micros())?);
        }
        into.elapsed += start.elapsed();
        Ok(())
    }

    pub async fn remove(self) -> anyhow::Result<()> {
        drop(self.raw);
        self.place.remove().await
    }
}

pub struct RawRows {
    /// One durable transaction with the rows of one command, as a single client causes them.
    pub one_command: Bare,
    pub rows_per_s: f64,
    pub rows_per_command: f64,
}

/// The batches of `clients` clients, and those of one, written again; and a store for bare transactions.
pub async fn raw_limits(store: &str, clients: usize) -> anyhow::Result<(BareStore, RawRows)> {
    let commands = async |clients: usize, count: usize| {
        capture(store, Config::default(), async |engine, captured| {
            let story = Story::of(engine).await?;
            captured.take();
            story.run_count(clients, count).await
        })
        .await
    };
    let (batches, count) = commands(clients, CAPTURED_COMMANDS).await?;
    let place = Place::new(store).await?;
    let mut raw = Raw::open(&place.url).await?;
    let (rows_per_s, rows) = write(&mut raw, &batches).await?;
    let (singles, _) = commands(1, SINGLE_COMMANDS).await?;
    let (start, mut samples) = (Instant::now(), Vec::new());
    for units in &singles {
        let before = Instant::now();
        raw.write(units).await?;
        samples.push(u32::try_from(before.elapsed().as_micros())?);
    }
    let one_command = Bare { samples, elapsed: start.elapsed() };
    let body = batches.iter().flatten().flat_map(|unit| &unit.records).map(|row| row.record.header.clone()).next();
    let limits = RawRows { one_command, rows_per_s, rows_per_command: each(rows, count) };
    Ok((BareStore { place, raw, body: body.unwrap_or_default() }, limits))
}

/// Rows a second at the most for batches such as `drive` causes, and rows for each piece of work that it says it did.
pub async fn limit_of<F>(store: &str, config: Config, drive: F) -> anyhow::Result<(f64, f64)>
where
    F: AsyncFnOnce(Arc<Engine>, &Copies) -> anyhow::Result<usize>,
{
    let (batches, count) = capture(store, config, drive).await?;
    let place = Place::new(store).await?;
    let mut raw = Raw::open(&place.url).await?;
    let (rows_per_s, rows) = write(&mut raw, &batches).await?;
    drop(raw);
    place.remove().await?;
    Ok((rows_per_s, each(rows, count)))
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn each(rows: usize, count: usize) -> f64 {
    rows as f64 / count as f64
}

async fn write(raw: &mut Raw, batches: &[Vec<Unit>]) -> anyhow::Result<(f64, usize)> {
    let rows: usize = batches.iter().flatten().map(row_count).sum();
    let start = Instant::now();
    for units in batches {
        raw.write(units).await?;
    }
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let rows_per_s = rows as f64 / start.elapsed().as_secs_f64();
    Ok((rows_per_s, rows))
}

async fn capture<F>(store: &str, config: Config, drive: F) -> anyhow::Result<(Vec<Vec<Unit>>, usize)>
where
    F: AsyncFnOnce(Arc<Engine>, &Copies) -> anyhow::Result<usize>,
{
    let captured = Arc::new(Copies::default());
    let tap = captured.clone();
    let wrap = |inner| -> Box<dyn Store> { Box::new(Tapped { inner, tap }) };
    let target = Target::on(Place::new(store).await?, config, wrap).await?;
    let count = drive(target.engine.clone().context("no engine")?, &captured).await?;
    target.close().await?;
    Ok((captured.take().into_iter().map(|batch| batch.units).collect(), count))
}
