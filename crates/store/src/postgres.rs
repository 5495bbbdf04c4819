//! PostgreSQL: many nodes share one database. The writer owns one connection on the committer's thread and
//! writes a batch in one statement where it can ([`at_once`]), else in two round trips: fence, then rows and COMMIT.
//!
//! The registry lock is an advisory lock: batches hold it shared, a registry change holds it alone, so no
//! action commits on a grant whose revocation came first. Instance rows are locked in the order of their
//! ids, so two nodes cannot wait for each other.

mod at_once;
mod bell;
mod connect;
mod governance;
mod load;
mod log;
mod lost;
mod monitor;
mod outbox;
pub(crate) mod read;
mod run;
mod scrub;
mod sessions;
mod values;

use crate::decode;
use crate::select::{ByInstance, Dialect, RegistrySince};
use crate::statement::{self, Name, STATEMENTS, Statement};
use crate::value::{Columns, Value};
use async_trait::async_trait;
use at_once::{AtOnce, Shapes};
use connect::{Settings, failed};
use countersign_engine::port::{
    Batch, Bell, Committed, Due, Loaded, LogParts, MonitorStore, Outbox, Reader, RegistryDelta, Sessions, StepsOf,
    Store, StoreError, Unit, Verdict, Writer,
};
use countersign_engine::rows::{HoldRow, IdempotencyRow, RecordRow, StepRow};
use countersign_kernel::{Declaration, Digest, EventId, GateSpec, HoldId, InstanceId, StepId, Time};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tokio_postgres::error::{Severity, SqlState};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement as Prepared};
use uuid::Uuid;
use values::RowSet;

/// Key of the advisory lock that guards the registry ("countrsn").
const REGISTRY_LOCK: i64 = 0x636f_756e_7472_736e;
const CACHED_DOCUMENTS: usize = 4096;
/// Clocks that differ by less are taken for one.
const CLOCK_SLACK_US: i64 = 2000;
/// Whatever the database's defaults are: each statement sees what was committed before it, so that what is
/// read behind a lock is current.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";
/// The writer finds rows by key and by nothing else. A plan made while a table was small must not scan it
/// when it has grown, and planning again for each batch would cost more than running it.
pub(crate) const PLANS: &str = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_hashjoin = off; \
    SET enable_mergejoin = off; SET jit = off";

pub struct PostgresStore {
    settings: Settings,
    reader: read::PostgresReader,
}

impl PostgresStore {
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        let settings = Settings::parse(url)?;
        settings.migrate(REGISTRY_LOCK).await?;
        let reader = read::PostgresReader::new(&settings)?;
        Ok(PostgresStore { settings, reader })
    }
}

impl Store for PostgresStore {
    fn into_parts(self: Box<Self>) -> (Box<dyn Writer>, Arc<dyn Reader>) {
        (Box::new(PostgresWriter::new(self.settings)), Arc::new(self.reader))
    }

    fn log(&self) -> Result<LogParts, StoreError> {
        let writer = log::PostgresLogWriter::new(self.settings.clone());
        Ok((Box::new(writer), Arc::new(log::PostgresLogReader::new(&self.settings)?)))
    }

    fn outbox(&self) -> Result<Box<dyn Outbox>, StoreError> {
        Ok(Box::new(outbox::PostgresOutbox::new(self.settings.clone())))
    }

    fn monitor(&self) -> Box<dyn MonitorStore> {
        Box::new(monitor::PostgresMonitor::new(self.reader.pool()))
    }

    fn sessions(&self) -> Box<dyn Sessions> {
        Box::new(sessions::PostgresSessions::new(self.reader.pool()))
    }

    fn bell(&self) -> Option<Box<dyn Bell>> {
        Some(Box::new(bell::PostgresBell::new(self.settings.clone())))
    }

    fn is_exclusive(&self) -> bool {
        false
    }

    fn kind(&self) -> &'static str {
        "postgres"
    }
}

/// Expired keys may be used again. Returns those that were free.
const INSERT_KEYS: &str = "INSERT INTO idempotency (actor_ref, key, request_digest, answer, expires_at_us, instance_id) \
     SELECT * FROM UNNEST($1::text[], $2::text[], $3::bytea[], $4::text[], $5::int8[], $7::uuid[]) \
     ON CONFLICT (actor_ref, key) DO UPDATE SET request_digest = excluded.request_digest, answer = excluded.answer, \
     expires_at_us = excluded.expires_at_us, instance_id = excluded.instance_id \
     WHERE idempotency.expires_at_us <= $6 RETURNING actor_ref, key";
const RECALL: &str = "SELECT i.actor_ref, i.key, i.request_digest, i.answer, i.expires_at_us, i.instance_id FROM idempotency i \
     JOIN UNNEST($1::text[], $2::text[]) AS u(actor_ref, key) ON i.actor_ref = u.actor_ref AND i.key = u.key \
     WHERE i.expires_at_us > $3";

struct PostgresWriter {
    settings: Settings,
    session: Option<Session>,
    declarations: HashMap<Digest, Arc<Declaration>>,
    gate_specs: HashMap<Digest, Arc<GateSpec>>,
    run_documents: HashMap<Digest, Arc<[u8]>>,
    known_documents: HashSet<Digest>,
    scrubber: scrub::Scrubber,
}

/// A connection with everything prepared on it.
struct Session {
    client: Client,
    lock_shared: Prepared,
    lock_alone: Prepared,
    fence: Prepared,
    sequences: Prepared,
    last_headers: Prepared,
    insert_keys: Prepared,
    recall: Prepared,
    /// In the order of [`Name`].
    statements: Vec<Prepared>,
    by_instance: ByInstance,
    runs: run::RunStatements,
    registry_since: RegistrySince,
    registry_head: Prepared,
    shapes: Shapes,
    /// Who works for this connection in the database.
    backend: Backend,
}

/// A process of the database server, and when it began, in microseconds: numbers of processes come again.
#[derive(Clone, Copy, Debug)]
struct Backend {
    pid: i32,
    since: i64,
}

/// An instance's sequence and beats: what the fence compares.
type Version = (u64, u64);

impl Session {
    async fn open(settings: &Settings) -> Result<Session, StoreError> {
        let client = settings.connect().await?;
        client.batch_execute(PLANS).await.map_err(failed)?;
        // What is due is read outside of a transaction, see BEGIN.
        client.batch_execute("SET default_transaction_isolation = 'read committed'").await.map_err(failed)?;
        // A node that vanishes in the middle of a transaction must not hold its locks for long.
        client.batch_execute("SET idle_in_transaction_session_timeout = '10s'").await.map_err(failed)?;
        let sql = "SELECT pid, (EXTRACT(EPOCH FROM backend_start) * 1000000)::int8 FROM pg_stat_activity \
                   WHERE pid = pg_backend_pid()";
        let row = client.query_one(sql, &[]).await.map_err(failed)?;
        let backend = Backend { pid: row.try_get(0).map_err(failed)?, since: row.int(1)? };
        let prepare = async |sql: &str| client.prepare(sql).await.map_err(failed);
        let registry_since = RegistrySince::new(Dialect::Postgres);
        let mut statements = Vec::with_capacity(STATEMENTS.len());
        for statement in STATEMENTS {
            statements.push(prepare(&Statement::postgres(statement)).await?);
        }
        Ok(Session {
            lock_shared: prepare("SELECT pg_advisory_xact_lock_shared($1)").await?,
            lock_alone: prepare("SELECT pg_advisory_xact_lock($1)").await?,
            fence: prepare(
                "SELECT instance_id, sequence, beats FROM instances WHERE instance_id = ANY($1) ORDER BY instance_id FOR UPDATE",
            )
            .await?,
            sequences: prepare("SELECT instance_id, sequence, beats FROM instances WHERE instance_id = ANY($1)").await?,
            last_headers: prepare(load::LAST_HEADERS).await?,
            insert_keys: prepare(INSERT_KEYS).await?,
            recall: prepare(RECALL).await?,
            statements,
            by_instance: ByInstance::new(Dialect::Postgres),
            runs: run::RunStatements::prepare(&client).await?,
            registry_head: prepare(&registry_since.head).await?,
            registry_since,
            shapes: Shapes::default(),
            backend,
            client,
        })
    }

    /// Opens the transaction, takes the registry lock, and reads what the batch was decided on. One round trip.
    async fn fence(&self, batch: &Batch) -> Result<(u64, HashMap<Uuid, Version>), StoreError> {
        let existing: Vec<Uuid> =
            batch.units.iter().filter(|unit| !unit.is_new()).map(|unit| unit.instance_id.0).collect();
        let mut watched: Vec<Uuid> = batch.checks.iter().map(|check| check.instance_id.0).collect();
        watched.push(InstanceId::REGISTRY.0);
        let lock = if batch.changes_registry { &self.lock_alone } else { &self.lock_shared };
        let lock_key: [&(dyn ToSql + Sync); 1] = [&REGISTRY_LOCK];
        let existing_ids: [&(dyn ToSql + Sync); 1] = [&existing];
        let watched_ids: [&(dyn ToSql + Sync); 1] = [&watched];
        let (begin, locked, fenced, seen) = tokio::join!(
            self.client.batch_execute(BEGIN),
            self.client.query(lock, &lock_key),
            self.client.query(&self.fence, &existing_ids),
            self.client.query(&self.sequences, &watched_ids),
        );
        begin.map_err(failed)?;
        locked.map_err(failed)?;
        let mut current = versions(&fenced.map_err(failed)?)?;
        let seen = versions(&seen.map_err(failed)?)?;
        let registry = seen.get(&InstanceId::REGISTRY.0).map_or(0, |(sequence, _)| *sequence);
        current.extend(seen);
        Ok((registry, current))
    }

    /// True when every key of these units was free.
    async fn insert_keys(&self, units: &[&Unit]) -> Result<HashSet<(String, String)>, StoreError> {
        let mut keys: Vec<&IdempotencyRow> = units.iter().flat_map(|unit| &unit.idempotency).collect();
        // In one order on every node, or two of them could wait for each other.
        keys.sort_unstable_by_key(|row| (&row.actor_ref, &row.key));
        let now = units.iter().map(|unit| unit.head.last_time.0).min().unwrap_or(0);
        let actors: Vec<&str> = keys.iter().map(|row| row.actor_ref.as_str()).collect();
        let names: Vec<&str> = keys.iter().map(|row| row.key.as_str()).collect();
        let digests: Vec<&[u8]> = keys.iter().map(|row| row.request_digest.0.as_slice()).collect();
        let answers: Vec<&str> = keys.iter().map(|row| row.answer.as_str()).collect();
        let expiries: Vec<i64> = keys.iter().map(|row| row.expires_at.0).collect();
        let instances: Vec<Uuid> = keys.iter().map(|row| row.instance_id.0).collect();
        let rows = self
            .client
            .query(&self.insert_keys, &[&actors, &names, &digests, &answers, &expiries, &now, &instances])
            .await
            .map_err(failed)?;
        rows.iter().map(|row| Ok((row.text(0)?, row.text(1)?))).collect()
    }

    /// Rows of one statement, within the transaction.
    async fn write(&self, (name, set): (Name, RowSet<'_>)) -> Result<(), StoreError> {
        self.client.execute(&self.statements[name as usize], &[&set]).await.map(|_| ()).map_err(failed)
    }

    /// Rows of all winners, one statement per kind, all in flight at once, with COMMIT behind them.
    async fn write_and_commit(&self, sets: &[(Name, RowSet<'_>)]) -> Result<(), CommitError> {
        let params: Vec<(Name, [&(dyn ToSql + Sync); 1])> =
            sets.iter().map(|(name, set)| (*name, [set as _])).collect();
        let writes = params.iter().map(|(name, params)| self.client.execute(&self.statements[*name as usize], params));
        let (written, committed) = tokio::join!(join_in_order(writes), self.client.batch_execute("COMMIT"));
        written.into_iter().collect::<Result<Vec<_>, _>>().map_err(unconfirmed)?;
        committed.map_err(unconfirmed)
    }
}

/// What an error means once COMMIT is on its way behind the writes. Only if the server itself says that a
/// statement failed, nothing was written; a connection that ends may have carried the COMMIT before it did.
fn unconfirmed(error: tokio_postgres::Error) -> CommitError {
    match error.as_db_error().and_then(|db| db.parsed_severity()) {
        Some(Severity::Error) if error.code() == Some(&SqlState::DATATYPE_MISMATCH) => CommitError::TableChanged,
        Some(Severity::Error) => CommitError::NotWritten(failed(error)),
        _ => CommitError::AnswerLost(error.to_string()),
    }
}

enum CommitError {
    NotWritten(StoreError),
    /// A newer node has given a table another column: its rows are not what this connection knows them as.
    TableChanged,
    AnswerLost(String),
}

/// Polls all futures from the start, in order, so that their requests are sent in that order.
async fn join_in_order<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut pending: Vec<std::pin::Pin<Box<F>>> = futures.map(Box::pin).collect();
    let mut results: Vec<Option<F::Output>> = pending.iter().map(|_| None).collect();
    std::future::poll_fn(move |cx| {
        let mut all = true;
        for (future, result) in pending.iter_mut().zip(&mut results) {
            if result.is_none() {
                match future.as_mut().poll(cx) {
                    std::task::Poll::Ready(output) => *result = Some(output),
                    std::task::Poll::Pending => all = false,
                }
            }
        }
        if all {
            std::task::Poll::Ready(std::mem::take(&mut results).into_iter().flatten().collect())
        } else {
            std::task::Poll::Pending
        }
    })
    .await
}

fn versions(rows: &[Row]) -> Result<HashMap<Uuid, Version>, StoreError> {
    rows.iter().map(|row| Ok((row.id(0)?, (row.count(1)?, row.count(2)?)))).collect()
}

/// Groups what the winners write by statement, inserts before updates. Steps of runs go their own way.
fn row_sets<'a>(winners: &[&'a Unit], known: &HashSet<Digest>) -> (Vec<(Name, RowSet<'a>)>, Vec<Digest>) {
    let mut by_name: Vec<Vec<Vec<Value<'a>>>> = STATEMENTS.iter().map(|_| vec![]).collect();
    let mut documents = Vec::new();
    let mut add = |(name, values): (Name, Vec<Value<'a>>)| by_name[name as usize].push(values);
    for unit in winners {
        add(statement::instance_values(unit));
        for write in statement::latest_writes(unit) {
            if let countersign_engine::rows::Write::Document { digest, .. } = write {
                if known.contains(digest) || documents.contains(digest) {
                    continue;
                }
                documents.push(*digest);
            }
            add(statement::write_values(unit, write));
        }
        unit.records.iter().for_each(|record| add(statement::record_values(record)));
    }
    // Documents are shared between nodes: in one order on all of them, or two could wait for each other.
    by_name[Name::Document as usize].sort_unstable_by(|a, b| match (&a[0], &b[0]) {
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        _ => std::cmp::Ordering::Equal,
    });
    let names = STATEMENTS.iter().enumerate().filter(|(i, _)| !by_name[*i].is_empty());
    let order: Vec<usize> = names.map(|(i, _)| i).collect();
    debug_assert!(order.iter().map(|i| !STATEMENTS[*i].kind.adds()).is_sorted());
    let set = |i: usize| (Name::ALL[i], RowSet::of(&STATEMENTS[i], std::mem::take(&mut by_name[i])));
    let sets = order.into_iter().map(set).collect();
    (sets, documents)
}

impl PostgresWriter {
    fn new(settings: Settings) -> Self {
        PostgresWriter {
            settings,
            session: None,
            declarations: HashMap::new(),
            gate_specs: HashMap::new(),
            run_documents: HashMap::new(),
            known_documents: HashSet::new(),
            scrubber: scrub::Scrubber::default(),
        }
    }

    async fn session(&mut self) -> Result<&Session, StoreError> {
        if self.session.as_ref().is_none_or(|session| session.client.is_closed()) {
            self.session = None;
            let session = Session::open(&self.settings).await?;
            return Ok(self.session.insert(session));
        }
        self.session.as_ref().ok_or_else(|| StoreError::Transient("no connection".to_owned()))
    }

    /// After an error in the middle of a transaction: end it, or drop the connection.
    async fn abandon(&mut self) {
        let rolled_back = match &self.session {
            Some(session) => session.client.batch_execute("ROLLBACK").await.is_ok(),
            None => true,
        };
        if !rolled_back {
            self.session = None;
        }
    }

    async fn check_only(&mut self, batch: &Batch) -> Result<Committed, StoreError> {
        let session = self.session().await?;
        let mut ids: Vec<Uuid> = batch.checks.iter().map(|check| check.instance_id.0).collect();
        ids.push(InstanceId::REGISTRY.0);
        let rows = session.client.query(&session.sequences, &[&ids]).await.map_err(failed)?;
        let current = versions(&rows)?;
        if current.get(&InstanceId::REGISTRY.0).map_or(0, |(sequence, _)| *sequence) != batch.registry_sequence {
            return Ok(Committed::RegistryMoved);
        }
        Ok(Committed::Done(check_verdicts(batch, &current).collect()))
    }

    async fn try_commit(&mut self, batch: &Batch) -> Result<Committed, CommitError> {
        let refused = CommitError::NotWritten;
        self.session().await.map_err(refused)?;
        let Some(session) = &mut self.session else {
            return Err(refused(StoreError::Transient("no connection".to_owned())));
        };
        if let AtOnce::Committed(documents) = session.commit_at_once(batch, &self.known_documents).await? {
            self.now_known(documents);
            return Ok(Committed::Done(vec![Verdict::Won; batch.units.len()]));
        }
        let (registry, current) = session.fence(batch).await.map_err(refused)?;
        if registry != batch.registry_sequence {
            session.client.batch_execute("ROLLBACK").await.map_err(|e| refused(failed(e)))?;
            return Ok(Committed::RegistryMoved);
        }
        let holds = |unit: &Unit| {
            current.get(&unit.instance_id.0).copied().unwrap_or_default()
                == (unit.expected_sequence, unit.expected_beats)
        };
        let wins = batch.winners(batch.units.iter().map(holds).collect());
        let winners: Vec<&Unit> = batch.units.iter().zip(&wins).filter(|(_, wins)| **wins).map(|(u, _)| u).collect();
        let mut verdicts: Vec<Verdict> =
            wins.iter().map(|wins| if *wins { Verdict::Won } else { Verdict::Lost }).collect();
        verdicts.extend(check_verdicts(batch, &current));
        if winners.is_empty() {
            session.client.batch_execute("ROLLBACK").await.map_err(|e| refused(failed(e)))?;
            return Ok(Committed::Done(verdicts));
        }
        if winners.iter().any(|unit| !unit.idempotency.is_empty()) {
            let free = session.insert_keys(&winners).await.map_err(refused)?;
            let is_free = |unit: &Unit| {
                unit.idempotency.iter().all(|row| free.contains(&(row.actor_ref.clone(), row.key.clone())))
            };
            if !winners.iter().all(|unit| is_free(unit)) {
                session.client.batch_execute("ROLLBACK").await.map_err(|e| refused(failed(e)))?;
                let verdict = |unit: &Unit| if is_free(unit) { Verdict::Lost } else { Verdict::KeyTaken };
                let units = batch.units.iter().map(verdict);
                return Ok(Committed::Done(units.chain(batch.checks.iter().map(|_| Verdict::Lost)).collect()));
            }
        }
        let (rows, documents) = row_sets(&winners, &self.known_documents);
        let steps = run::Steps::of(&winners);
        for set in steps.ahead() {
            session.write(set).await.map_err(refused)?;
        }
        // Steps before the redactions among the other rows.
        let sets: Vec<_> = steps.at_last().chain(rows).collect();
        session.write_and_commit(&sets).await?;
        self.now_known(documents);
        Ok(Committed::Done(verdicts))
    }

    fn now_known(&mut self, documents: Vec<Digest>) {
        if self.known_documents.len() > CACHED_DOCUMENTS {
            self.known_documents.clear();
        }
        self.known_documents.extend(documents);
    }
}

fn check_verdicts<'b>(batch: &'b Batch, current: &'b HashMap<Uuid, Version>) -> impl Iterator<Item = Verdict> + 'b {
    batch.checks.iter().map(|check| {
        let sequence = current.get(&check.instance_id.0).map_or(0, |(sequence, _)| *sequence);
        let holds = sequence == check.expected_sequence;
        if holds { Verdict::Won } else { Verdict::Lost }
    })
}

#[async_trait]
impl Writer for PostgresWriter {
    async fn load(&mut self, ids: &[InstanceId]) -> Result<Vec<Loaded>, StoreError> {
        self.load_all(ids).await
    }

    async fn registry_since(&mut self, sequence: u64) -> Result<RegistryDelta, StoreError> {
        let session = self.session().await?;
        read::registry_since(&session.client, &session.registry_head, &session.registry_since, sequence).await
    }

    async fn recall(&mut self, keys: &[(String, String)], now: Time) -> Result<Vec<IdempotencyRow>, StoreError> {
        let session = self.session().await?;
        let actors: Vec<&str> = keys.iter().map(|(actor_ref, _)| actor_ref.as_str()).collect();
        let names: Vec<&str> = keys.iter().map(|(_, key)| key.as_str()).collect();
        let rows = session.client.query(&session.recall, &[&actors, &names, &now.0]).await.map_err(failed)?;
        rows.iter().map(|row| decode::idempotency_row(row)).collect()
    }

    async fn commit(&mut self, batch: &Batch) -> Result<Committed, StoreError> {
        if batch.units.is_empty() {
            return self.check_only(batch).await;
        }
        match self.try_commit(batch).await {
            Ok(committed) => Ok(committed),
            Err(CommitError::NotWritten(error)) => {
                self.abandon().await;
                Err(error)
            }
            Err(CommitError::TableChanged) => {
                self.session = None;
                Err(StoreError::Conflict("a table has got another column".to_owned()))
            }
            Err(CommitError::AnswerLost(cause)) => self.find_out(batch, &cause).await,
        }
    }

    async fn step_ended(&mut self, instance_id: InstanceId, action: &str, step_id: StepId) -> Result<bool, StoreError> {
        let session = self.session().await?;
        let sql = "SELECT 1 FROM approval_steps WHERE step_id = $1 AND instance_id = $2 AND action = $3";
        let found = session.client.query_opt(sql, &[&step_id.0, &instance_id.0, &action]).await.map_err(failed)?;
        Ok(found.is_some())
    }

    async fn find_record(&mut self, event_id: EventId) -> Result<Option<RecordRow>, StoreError> {
        let session = self.session().await?;
        let found = session.client.query_opt(session.by_instance.record.as_str(), &[&event_id.0]).await;
        found.map_err(failed)?.map(|row| decode::record_row(&row)).transpose()
    }

    async fn find_hold(&mut self, hold_id: HoldId) -> Result<Option<HoldRow>, StoreError> {
        let session = self.session().await?;
        let found = session.client.query_opt(session.by_instance.hold.as_str(), &[&hold_id.0]).await;
        found.map_err(failed)?.map(|row| decode::hold_row(&row)).transpose()
    }

    async fn steps(&mut self, of: StepsOf) -> Result<Vec<StepRow>, StoreError> {
        let session = self.session().await?;
        let (sql, id) = match of {
            StepsOf::Instance(instance_id) => (&session.by_instance.own_steps, instance_id.0),
            StepsOf::Gate(gate_id) => (&session.by_instance.gate_steps, gate_id),
        };
        let rows = session.client.query(sql.as_str(), &[&id]).await.map_err(failed)?;
        rows.iter().map(|row| decode::step_row(row)).collect()
    }

    async fn received(&mut self, events: &[(InstanceId, Arc<str>)]) -> Result<Vec<bool>, StoreError> {
        let session = self.session().await?;
        session.runs.received(&session.client, events).await
    }

    async fn due(&mut self, after: &Due, until: Time, limit: usize) -> Result<Vec<Due>, StoreError> {
        let session = self.session().await?;
        session.runs.due(&session.client, after, until, limit).await
    }

    async fn scrub(&mut self) -> Result<bool, StoreError> {
        Ok(self.scrubber.begin(&self.settings))
    }

    async fn forget_expired(&mut self, now: Time) -> Result<u64, StoreError> {
        let session = self.session().await?;
        let sql = "DELETE FROM idempotency WHERE (actor_ref, key) IN (SELECT actor_ref, key FROM idempotency \
                   WHERE expires_at_us <= $1 ORDER BY expires_at_us LIMIT 1000 FOR UPDATE SKIP LOCKED)";
        session.client.execute(sql, &[&now.0]).await.map_err(failed)
    }

    async fn clock_offset_us(&mut self) -> Result<i64, StoreError> {
        let session = self.session().await?;
        let local = || {
            let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
        };
        let before = local();
        let sql = "SELECT (EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::int8";
        let row = session.client.query_one(sql, &[]).await.map_err(failed)?;
        let (there, after) = (row.int(0)?, local());
        // Within the time that asking took, however long, the clocks agree.
        let agree = (before - CLOCK_SLACK_US..=after + CLOCK_SLACK_US).contains(&there);
        Ok(if agree { 0 } else { there - i64::midpoint(before, after) })
    }
}

/// See [`crate::raw`].
#[cfg(feature = "raw")]
pub struct RawPostgres {
    session: Session,
    bare: Prepared,
}

#[cfg(feature = "raw")]
impl RawPostgres {
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        let settings = Settings::parse(url)?;
        settings.migrate(REGISTRY_LOCK).await?;
        let session = Session::open(&settings).await?;
        let create = "CREATE TABLE bare (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body BYTEA NOT NULL)";
        session.client.batch_execute(create).await.map_err(failed)?;
        let bare = session.client.prepare("INSERT INTO bare (body) VALUES ($1)").await.map_err(failed)?;
        Ok(RawPostgres { session, bare })
    }

    pub async fn write(&mut self, units: &[Unit]) -> Result<(), StoreError> {
        let units: Vec<&Unit> = units.iter().collect();
        let steps = run::Steps::of(&units);
        let sets: Vec<_> = steps.ahead().chain(steps.at_last()).chain(row_sets(&units, &HashSet::new()).0).collect();
        let (begin, written) =
            tokio::join!(self.session.client.batch_execute("BEGIN"), self.session.write_and_commit(&sets));
        begin.map_err(failed)?;
        written.map_err(|e| match e {
            CommitError::NotWritten(error) => error,
            CommitError::TableChanged => StoreError::Conflict("a table has got another column".to_owned()),
            CommitError::AnswerLost(cause) => StoreError::Unknown(cause),
        })
    }

    /// As an application would write it: BEGIN, INSERT, COMMIT, each awaited.
    pub async fn bare_transaction(&mut self, body: &[u8]) -> Result<(), StoreError> {
        self.session.client.batch_execute("BEGIN").await.map_err(failed)?;
        self.session.client.execute(&self.bare, &[&body]).await.map_err(failed)?;
        self.session.client.batch_execute("COMMIT").await.map_err(failed)
    }
}
