//! The bare limits of a store: single durable transactions, and the very batches that an engine caused, written again
//! with nothing but their statements.

use crate::report::quantile_ms;
use crate::story::Story;
use crate::target::{Place, Target};
use anyhow::Context;
use async_trait::async_trait;
use countersign_engine::port::{
    Batch, Committed, Due, Loaded, LogParts, Outbox, Reader, RegistryDelta, StepsOf, Store, StoreError, Unit, Writer,
};
use countersign_engine::rows::{HoldRow, IdempotencyRow, RecordRow, StepRow};
use countersign_engine::{Config, Engine};
use countersign_kernel::{EventId, HoldId, InstanceId, StepId, Time};
use countersign_store::raw::{Raw, row_count};
use std::sync::{Arc, Mutex, PoisonError};
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

/// A store to write single rows to, each in a transaction of its own.
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
            captured.forget();
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
    F: AsyncFnOnce(Arc<Engine>, &Captured) -> anyhow::Result<usize>,
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

/// The batches of an engine, as they were committed.
#[derive(Clone, Default)]
pub struct Captured(Arc<Mutex<Vec<Vec<Unit>>>>);

impl Captured {
    /// What went before does not count.
    pub fn forget(&self) {
        self.take();
    }

    fn take(&self) -> Vec<Vec<Unit>> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, units: Vec<Unit>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(units);
    }
}

async fn capture<F>(store: &str, config: Config, drive: F) -> anyhow::Result<(Vec<Vec<Unit>>, usize)>
where
    F: AsyncFnOnce(Arc<Engine>, &Captured) -> anyhow::Result<usize>,
{
    let captured = Captured::default();
    let keep = captured.clone();
    let wrap = |inner| -> Box<dyn Store> { Box::new(CapturingStore { inner, captured: keep }) };
    let target = Target::on(Place::new(store).await?, config, wrap).await?;
    let count = drive(target.engine.clone().context("no engine")?, &captured).await?;
    target.close().await?;
    Ok((captured.take(), count))
}

struct CapturingStore {
    inner: Box<dyn Store>,
    captured: Captured,
}

impl Store for CapturingStore {
    fn into_parts(self: Box<Self>) -> (Box<dyn Writer>, Arc<dyn Reader>) {
        let (inner, reader) = self.inner.into_parts();
        (Box::new(CapturingWriter { inner, captured: self.captured }), reader)
    }

    fn log(&self) -> Result<LogParts, StoreError> {
        self.inner.log()
    }

    fn outbox(&self) -> Result<Box<dyn Outbox>, StoreError> {
        self.inner.outbox()
    }

    fn is_exclusive(&self) -> bool {
        self.inner.is_exclusive()
    }

    fn kind(&self) -> &'static str {
        self.inner.kind()
    }
}

struct CapturingWriter {
    inner: Box<dyn Writer>,
    captured: Captured,
}

#[async_trait]
impl Writer for CapturingWriter {
    async fn load(&mut self, ids: &[InstanceId]) -> Result<Vec<Loaded>, StoreError> {
        self.inner.load(ids).await
    }
    async fn registry_since(&mut self, sequence: u64) -> Result<RegistryDelta, StoreError> {
        self.inner.registry_since(sequence).await
    }
    async fn recall(&mut self, keys: &[(String, String)], now: Time) -> Result<Vec<IdempotencyRow>, StoreError> {
        self.inner.recall(keys, now).await
    }
    async fn commit(&mut self, batch: &Batch) -> Result<Committed, StoreError> {
        let committed = self.inner.commit(batch).await?;
        self.captured.add(batch.units.clone());
        Ok(committed)
    }
    async fn step_ended(&mut self, instance_id: InstanceId, action: &str, step_id: StepId) -> Result<bool, StoreError> {
        self.inner.step_ended(instance_id, action, step_id).await
    }
    async fn find_record(&mut self, event_id: EventId) -> Result<Option<RecordRow>, StoreError> {
        self.inner.find_record(event_id).await
    }
    async fn find_hold(&mut self, hold_id: HoldId) -> Result<Option<HoldRow>, StoreError> {
        self.inner.find_hold(hold_id).await
    }
    async fn steps(&mut self, of: StepsOf) -> Result<Vec<StepRow>, StoreError> {
        self.inner.steps(of).await
    }
    async fn received(&mut self, events: &[(InstanceId, Arc<str>)]) -> Result<Vec<bool>, StoreError> {
        self.inner.received(events).await
    }

    async fn due(&mut self, from: Time, until: Time, limit: usize) -> Result<Vec<Due>, StoreError> {
        self.inner.due(from, until, limit).await
    }

    async fn scrub(&mut self) -> Result<bool, StoreError> {
        self.inner.scrub().await
    }
    async fn forget_expired(&mut self, now: Time) -> Result<u64, StoreError> {
        self.inner.forget_expired(now).await
    }
    async fn clock_offset_us(&mut self) -> Result<i64, StoreError> {
        self.inner.clock_offset_us().await
    }
}
