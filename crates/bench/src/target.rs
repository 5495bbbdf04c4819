//! What is measured: an engine or a server on a fresh store, and the bare limits of that store.

use crate::report::{Written, quantile_ms};
use crate::story::Story;
use anyhow::{Context, anyhow};
use async_trait::async_trait;
use countersign_engine::port::{
    Batch, Committed, Due, Loaded, LogParts, Outbox, Reader, RegistryDelta, StepsOf, Store, StoreError, Unit, Writer,
};
use countersign_engine::rows::{HoldRow, IdempotencyRow, RecordRow, StepRow};
use countersign_engine::{Config, Engine};
use countersign_kernel::{EventId, HoldId, InstanceId, StepId, Time};
use countersign_server::serve::{Running, ServeOptions};
use countersign_store::raw::{Raw, row_count};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Batches replayed for the raw limit.
const CAPTURED_COMMANDS: usize = 60_000;
const SINGLE_COMMANDS: usize = 4_000;

pub struct Target {
    pub engine: Option<Arc<Engine>>,
    pub server: Option<Running>,
    place: Place,
}

/// A fresh store: a temporary directory, or a database of its own on the test server.
pub struct Place {
    pub url: String,
    directory: tempfile::TempDir,
    database: Option<(String, String)>,
}

impl Place {
    pub async fn new(store: &str) -> anyhow::Result<Place> {
        let directory = tempfile::tempdir_in(std::env::var_os("BENCH_DIR").unwrap_or_else(|| "target".into()))?;
        match store {
            "sqlite" => {
                let url = format!("sqlite:{}", directory.path().join("bench.sqlite").display());
                Ok(Place { url, directory, database: None })
            }
            "postgres" => {
                let server = std::env::var("COUNTERSIGN_TEST_POSTGRES")
                    .context("run through `make bench`: it starts a PostgreSQL")?;
                let name = format!("countersign_bench_{}", uuid::Uuid::from_u128(random()?).simple());
                admin(&server, &format!("CREATE DATABASE {name}")).await?;
                let base = server
                    .rsplit_once('/')
                    .map(|(base, _)| base)
                    .ok_or_else(|| anyhow!("COUNTERSIGN_TEST_POSTGRES is no URL"))?;
                Ok(Place { url: format!("{base}/{name}"), directory, database: Some((server.clone(), name)) })
            }
            other => Err(anyhow!("unknown store `{other}`: sqlite or postgres")),
        }
    }

    async fn remove(self) -> anyhow::Result<()> {
        match &self.database {
            Some((server, name)) => admin(server, &format!("DROP DATABASE {name} WITH (FORCE)")).await,
            None => Ok(()),
        }
    }
}

fn random() -> anyhow::Result<u128> {
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_nanos();
    Ok(seed ^ (u128::from(std::process::id()) << 96))
}

async fn admin(server: &str, sql: &str) -> anyhow::Result<()> {
    let (client, connection) = tokio_postgres::connect(server, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute(sql).await?;
    Ok(())
}

impl Target {
    pub async fn in_process(store: &str) -> anyhow::Result<Target> {
        Target::in_process_with(store, Config::default()).await
    }

    pub async fn in_process_with(store: &str, config: Config) -> anyhow::Result<Target> {
        let place = Place::new(store).await?;
        let engine = Engine::open(countersign_store::open(&place.url).await?, config).await?;
        Ok(Target { engine: Some(Arc::new(engine)), server: None, place })
    }

    /// The log of this store, beside the engine.
    pub async fn log(&self) -> anyhow::Result<LogParts> {
        Ok(countersign_store::open(&self.place.url).await?.log()?)
    }

    /// Every command on an old instance reads it from the store.
    pub async fn in_process_without_cache(store: &str) -> anyhow::Result<Target> {
        Target::in_process_with(store, Config { cached_instances: 0, ..Config::default() }).await
    }

    pub async fn http(store: &str) -> anyhow::Result<Target> {
        let place = Place::new(store).await?;
        let mut options = ServeOptions::new(place.directory.path());
        options.listen = "127.0.0.1:0".to_owned();
        options.store = Some(place.url.clone());
        let server = countersign_server::serve::start(options).await?;
        Ok(Target { engine: None, server: Some(server), place })
    }

    /// The administrator's token of a served target.
    pub fn admin_token(&self) -> anyhow::Result<String> {
        Ok(std::fs::read_to_string(self.place.directory.path().join("admin.token"))?.trim().to_owned())
    }

    /// What PostgreSQL has written up to now; nothing for other stores.
    pub async fn written(&self) -> anyhow::Result<Option<Counters>> {
        match &self.place.database {
            Some((server, name)) => Ok(Some(Counters::read(server, name).await?)),
            None => Ok(None),
        }
    }

    pub async fn close(self) -> anyhow::Result<()> {
        if let Some(server) = self.server {
            server.shutdown().await?;
        }
        if let Some(engine) = self.engine.and_then(Arc::into_inner) {
            tokio::task::spawn_blocking(|| engine.close()).await?;
        }
        self.place.remove().await
    }
}

/// A backend of PostgreSQL reports what it counted at the latest when it has been idle for ten seconds.
const REPORTED: Duration = Duration::from_secs(11);

/// Counters of PostgreSQL: WAL of the whole server, commits of one database.
pub struct Counters {
    wal_syncs: i64,
    wal_bytes: i64,
    commits: i64,
}

impl Counters {
    async fn read(server: &str, database: &str) -> anyhow::Result<Counters> {
        tokio::time::sleep(REPORTED).await;
        let (client, connection) = tokio_postgres::connect(server, tokio_postgres::NoTls).await?;
        tokio::spawn(connection);
        let version: i32 =
            client.query_one("SELECT current_setting('server_version_num')::int", &[]).await?.try_get(0)?;
        let syncs = match version {
            ..180_000 => "wal_sync",
            _ => "(SELECT sum(fsyncs)::bigint FROM pg_stat_io WHERE object = 'wal')",
        };
        let sql = format!(
            "SELECT {syncs}, wal_bytes::bigint, xact_commit FROM pg_stat_wal, pg_stat_database WHERE datname = $1"
        );
        let row = client.query_one(&sql, &[&database]).await?;
        Ok(Counters { wal_syncs: row.try_get(0)?, wal_bytes: row.try_get(1)?, commits: row.try_get(2)? })
    }

    /// Of each of `count`, since `earlier`.
    pub fn since(&self, earlier: &Counters, count: usize) -> Written {
        #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
        let each = |now: i64, then: i64| (now - then) as f64 / count as f64;
        Written {
            wal_syncs: each(self.wal_syncs, earlier.wal_syncs),
            wal_kib: each(self.wal_bytes, earlier.wal_bytes) / 1024.0,
            commits: each(self.commits, earlier.commits),
        }
    }
}

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

pub struct RawRows {
    /// One durable transaction with the rows of one command, as a single client causes them.
    pub one_command: Bare,
    pub rows_per_s: f64,
    pub rows_per_command: f64,
}

/// Bare transactions one after the other; then the very batches that `clients` clients caused, written again
/// to an empty store with nothing but their statements.
pub async fn raw_limits(store: &str, clients: usize, time: Duration) -> anyhow::Result<(Bare, RawRows)> {
    let (batches, commands) = capture(store, clients, CAPTURED_COMMANDS).await?;
    let place = Place::new(store).await?;
    let mut raw = Raw::open(&place.url).await?;
    let body = batches
        .iter()
        .flatten()
        .flat_map(|unit| &unit.records)
        .map(|row| row.record.header.clone())
        .next()
        .unwrap_or_default();
    let (start, mut samples) = (Instant::now(), Vec::new());
    while start.elapsed() < time / 2 {
        let before = Instant::now();
        raw.bare_transaction(&body).await?;
        samples.push(u32::try_from(before.elapsed().as_micros())?);
    }
    let bare = Bare { samples, elapsed: start.elapsed() };

    let rows: usize = batches.iter().flatten().map(row_count).sum();
    let start = Instant::now();
    for units in &batches {
        raw.write(units).await?;
    }
    let rows_time = start.elapsed().as_secs_f64();
    let (singles, _) = capture(store, 1, SINGLE_COMMANDS).await?;
    let (start, mut samples) = (Instant::now(), Vec::new());
    for units in &singles {
        let before = Instant::now();
        raw.write(units).await?;
        samples.push(u32::try_from(before.elapsed().as_micros())?);
    }
    let one_command = Bare { samples, elapsed: start.elapsed() };
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let (rows, commands) = (rows as f64, commands as f64);
    let limits = RawRows { one_command, rows_per_s: rows / rows_time, rows_per_command: rows / commands };
    drop(raw);
    place.remove().await?;
    Ok((bare, limits))
}

async fn capture(store: &str, clients: usize, commands: usize) -> anyhow::Result<(Vec<Vec<Unit>>, usize)> {
    let place = Place::new(store).await?;
    let captured = Arc::new(Mutex::new(Vec::new()));
    let capturing = CapturingStore { inner: countersign_store::open(&place.url).await?, captured: captured.clone() };
    let engine = Arc::new(Engine::open(Box::new(capturing), Config::default()).await?);
    let target = Target { engine: Some(engine), server: None, place };
    let story = Story::in_process(&target).await?;
    captured.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let commands = story.run_count(clients, commands).await?;
    drop(story);
    target.close().await?;
    let batches = std::mem::take(&mut *captured.lock().unwrap_or_else(PoisonError::into_inner));
    Ok((batches, commands))
}

struct CapturingStore {
    inner: Box<dyn Store>,
    captured: Arc<Mutex<Vec<Vec<Unit>>>>,
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
    captured: Arc<Mutex<Vec<Vec<Unit>>>>,
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
        self.captured.lock().unwrap_or_else(PoisonError::into_inner).push(batch.units.clone());
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
