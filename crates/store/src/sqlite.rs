//! SQLite: one writer connection on the committer's thread, and a small pool of readers in parallel. WAL with
//! `synchronous=FULL`, so a commit that returned survives a loss of power. The file belongs to one process (the
//! server locks its data directory), so no other process can move an instance.

mod connect;
mod file;
mod governance;
pub mod listing;
mod log;
mod monitor;
mod outbox;
mod read;
mod run;
mod scrub;
mod sessions;
mod side;

use crate::decode::{self, InstanceRow};
use crate::select::{ByInstance, Dialect, RegistrySince};
use crate::statement::{self, STATEMENTS, Statement};
use crate::value::Value;
use async_trait::async_trait;
use connect::{Checkpointer, Location, cut_off, failed, migrate};
use countersign_engine::port::{
    Batch, Committed, Due, Loaded, LogParts, MonitorStore, Outbox, Reader, RegistryDelta, Sessions, StepsOf, Store,
    StoreError, Unit, Verdict, Writer,
};
use countersign_engine::rows::{HoldRow, IdempotencyRow, RecordRow, StepRow, Write};
use countersign_kernel::process::Gate;
use countersign_kernel::{Declaration, Digest, EventId, GateSpec, HoldId, InstanceId, StepId, Time};
use file::Files;
use listing::Unlisted;
use read::{Pool, SqliteReader, document, registry_since, rows};
use rusqlite::{Connection, OptionalExtension, params_from_iter};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

/// Documents kept in memory: a handful of definitions serve millions of instances.
const CACHED_DOCUMENTS: usize = 4096;

/// Who writes takes it first. SQLite itself would let the second one sleep and try again; this wakes it at once.
type Turn = Arc<Mutex<()>>;

pub struct SqliteStore {
    writer: Connection,
    readers: Arc<Pool>,
    location: Location,
    turn: Turn,
    lease: Arc<Mutex<log::Lease>>,
    checkpointer: Checkpointer,
}

impl SqliteStore {
    pub fn open(path: &str) -> Result<Self, StoreError> {
        let location = Location::parse(path)?;
        let mut writer = location.connect(false)?;
        migrate(&mut writer)?;
        let checkpointer = connect::checkpoint_beside(&location)?;
        Ok(SqliteStore {
            writer,
            readers: Arc::new(Pool::new(location.clone())?),
            location,
            turn: Turn::default(),
            lease: Arc::default(),
            checkpointer,
        })
    }
}

impl Store for SqliteStore {
    fn into_parts(self: Box<Self>) -> (Box<dyn Writer>, Arc<dyn Reader>) {
        let writer = SqliteWriter {
            connection: self.writer,
            files: self.location.files.clone(),
            turn: self.turn,
            checkpointer: self.checkpointer,
            by_instance: ByInstance::new(Dialect::Sqlite),
            waiting_header: listing::waiting_header(),
            registry_since: RegistrySince::new(Dialect::Sqlite),
            statements: STATEMENTS.iter().map(Statement::sqlite).collect(),
            declarations: HashMap::new(),
            gate_specs: HashMap::new(),
            runs: run::Runs::new(),
            known_documents: HashSet::new(),
            purged_lately: false,
            unlisted: Unlisted::unknown(),
        };
        (Box::new(writer), Arc::new(SqliteReader { pool: self.readers }))
    }

    fn log(&self) -> Result<LogParts, StoreError> {
        let writer = log::SqliteLogWriter::new(self.location.clone(), self.turn.clone(), self.lease.clone());
        Ok((Box::new(writer), Arc::new(log::SqliteLogReader::new(self.readers.clone()))))
    }

    fn outbox(&self) -> Result<Box<dyn Outbox>, StoreError> {
        Ok(Box::new(outbox::SqliteOutbox::new(self.location.clone(), self.turn.clone())))
    }

    fn monitor(&self) -> Box<dyn MonitorStore> {
        Box::new(monitor::SqliteMonitor::new(self.readers.clone(), self.location.clone(), self.turn.clone()))
    }

    fn sessions(&self) -> Box<dyn Sessions> {
        Box::new(sessions::SqliteSessions::new(self.readers.clone(), self.location.clone(), self.turn.clone()))
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn commits_in_place(&self) -> bool {
        true
    }

    fn kind(&self) -> &'static str {
        "sqlite"
    }
}

struct SqliteWriter {
    connection: Connection,
    files: Files,
    turn: Turn,
    checkpointer: Checkpointer,
    by_instance: ByInstance,
    /// Of a record that is not listed yet.
    waiting_header: String,
    registry_since: RegistrySince,
    /// In the order of [`statement::Name`].
    statements: Vec<String>,
    declarations: HashMap<Digest, Arc<Declaration>>,
    gate_specs: HashMap<Digest, Arc<GateSpec>>,
    runs: run::Runs,
    known_documents: HashSet<Digest>,
    /// Since the last call of `scrub`.
    purged_lately: bool,
    unlisted: Unlisted,
}

impl SqliteWriter {
    fn load_one(&mut self, instance_id: InstanceId) -> Result<Option<Loaded>, StoreError> {
        let Some(loaded) = self.read_one(instance_id)? else { return Ok(None) };
        let place = [Value::Id(instance_id.0), Value::count(loaded.head.sequence)];
        let header = |sql: &str| rows(&self.connection, sql, &place, |row| row.bytes(0));
        // Most are listed; the others are among the few that wait.
        let mut last = header(listing::LISTED_HEADER)?.pop();
        if last.is_none() {
            last = header(&self.waiting_header)?.pop();
        }
        decode::require_last_record(&loaded, last.as_deref())?;
        Ok(Some(loaded))
    }

    fn read_one(&mut self, instance_id: InstanceId) -> Result<Option<Loaded>, StoreError> {
        let id = [Value::Id(instance_id.0)];
        let Some(row) = rows(&self.connection, &self.by_instance.processes, &id, decode::instance_row)?.pop() else {
            let bindings = || bindings(&self.connection, &self.by_instance, instance_id);
            return self.runs.load(&self.connection, &self.by_instance, instance_id, bindings);
        };
        let (declaration, gate_spec) = self.documents(&row)?;
        let (gates, holds) = bindings(&self.connection, &self.by_instance, instance_id)?;
        decode::loaded(row, declaration, gate_spec, gates, holds).map(Some)
    }

    fn documents(&mut self, row: &InstanceRow) -> Result<(Arc<Declaration>, Arc<GateSpec>), StoreError> {
        let (d, g) = (row.process.declaration_digest, row.process.gate_spec_digest);
        if self.declarations.len() + self.gate_specs.len() > CACHED_DOCUMENTS {
            self.declarations.clear();
            self.gate_specs.clear();
        }
        let declaration = match self.declarations.get(&d) {
            Some(declaration) => declaration.clone(),
            None => {
                let parsed = decode::declaration(&d, &document(&self.connection, self.by_instance.document, &d)?)?;
                self.declarations.insert(d, parsed.clone());
                parsed
            }
        };
        let gate_spec = match self.gate_specs.get(&g) {
            Some(gate_spec) => gate_spec.clone(),
            None => {
                let parsed = decode::gate_spec(&g, &document(&self.connection, self.by_instance.document, &g)?)?;
                self.gate_specs.insert(g, parsed.clone());
                parsed
            }
        };
        Ok((declaration, gate_spec))
    }

    fn commit_batch(&mut self, batch: &Batch) -> Result<Committed, StoreError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.files.require()?;
        self.checkpointer.finish(&self.connection);
        let transaction = Transaction::begin(&self.connection)?;
        // Sequence and beats.
        let current = |instance_id: InstanceId| -> Result<(u64, u64), StoreError> {
            let sql = "SELECT sequence, beats FROM instances WHERE instance_id = ?1";
            let mut statement = transaction.prepare_cached(sql).map_err(failed)?;
            let found = statement
                .query_row([Value::Id(instance_id.0)], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))
                .optional()
                .map_err(failed)?;
            Ok(found.map_or((0, 0), |(sequence, beats)| (sequence.unsigned_abs(), beats.unsigned_abs())))
        };
        if current(InstanceId::REGISTRY)?.0 != batch.registry_sequence {
            return Ok(Committed::RegistryMoved);
        }
        let holds = |unit: &Unit| Ok(current(unit.instance_id)? == (unit.expected_sequence, unit.expected_beats));
        let wins = batch.winners(batch.units.iter().map(holds).collect::<Result<_, StoreError>>()?);
        let mut verdicts = Vec::with_capacity(batch.units.len() + batch.checks.len());
        for (unit, wins) in batch.units.iter().zip(wins) {
            let verdict = if wins { insert_keys(&transaction, unit)? } else { Verdict::Lost };
            if verdict == Verdict::KeyTaken {
                // Nothing is written; every unit is decided again, this one from the stored answer.
                return Ok(Committed::Done(key_taken(batch, unit.instance_id)));
            }
            verdicts.push(verdict);
        }
        for check in &batch.checks {
            verdicts.push(if current(check.instance_id)?.0 == check.expected_sequence {
                Verdict::Won
            } else {
                Verdict::Lost
            });
        }
        let mut documents = Vec::new();
        let won = || {
            let won = batch.units.iter().zip(&verdicts).filter(|(_, verdict)| **verdict == Verdict::Won);
            won.map(|(unit, _)| unit)
        };
        for unit in won() {
            write_unit(&transaction, &self.statements, &self.known_documents, unit, &mut documents)?;
        }
        self.unlisted.wrote(&transaction, won())?;
        if purges(batch) {
            scrub::mark(&transaction)?;
        }
        transaction.commit()?;
        // What went into a file that is no longer there is not durable.
        self.files.require()?;
        if self.known_documents.len() > CACHED_DOCUMENTS {
            self.known_documents.clear();
        }
        self.known_documents.extend(documents);
        Ok(Committed::Done(verdicts))
    }
}

/// Begins and commits with statements that are prepared once; what was not committed is rolled back.
struct Transaction<'c>(&'c Connection);

impl<'c> Transaction<'c> {
    fn begin(connection: &'c Connection) -> Result<Self, StoreError> {
        connection.prepare_cached("BEGIN IMMEDIATE").and_then(|mut begin| begin.execute([])).map_err(failed)?;
        Ok(Transaction(connection))
    }

    fn commit(self) -> Result<(), StoreError> {
        self.0.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([])).map(|_| ()).map_err(failed)
    }
}

impl Deref for Transaction<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.0
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if !self.0.is_autocommit()
            && let Err(error) = self.0.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "a transaction could not be rolled back");
        }
    }
}

/// The gates that can still matter, and the active holds.
fn bindings(
    connection: &Connection,
    sql: &ByInstance,
    instance_id: InstanceId,
) -> Result<(Vec<Gate>, BTreeMap<HoldId, EventId>), StoreError> {
    let id = [Value::Id(instance_id.0)];
    let mut gates = Vec::new();
    for gate in rows(connection, &sql.live_gates, &id, decode::gate_row)? {
        let steps = rows(connection, &sql.steps, &[Value::Id(gate.gate_id)], decode::gate_step_row)?;
        gates.push(decode::kernel_gate(&gate, &steps)?);
    }
    let holds = rows(connection, &sql.holds, &id, decode::active_hold)?;
    Ok((gates, holds.into_iter().map(|(_, hold_id, record_ref)| (hold_id, record_ref)).collect()))
}

fn purges(batch: &Batch) -> bool {
    batch.units.iter().flat_map(|unit| &unit.writes).any(|write| matches!(write, Write::PurgeRecord { .. }))
}

fn key_taken(batch: &Batch, instance_id: InstanceId) -> Vec<Verdict> {
    let verdict = |id| if id == instance_id { Verdict::KeyTaken } else { Verdict::Lost };
    let units = batch.units.iter().map(|unit| verdict(unit.instance_id));
    units.chain(batch.checks.iter().map(|_| Verdict::Lost)).collect()
}

fn insert_keys(connection: &Connection, unit: &Unit) -> Result<Verdict, StoreError> {
    for row in &unit.idempotency {
        if !insert_key(connection, row, unit.head.last_time)? {
            return Ok(Verdict::KeyTaken);
        }
    }
    Ok(Verdict::Won)
}

const RECALL: &str = "SELECT actor_ref, key, request_digest, answer, expires_at_us, instance_id FROM idempotency \
                      WHERE actor_ref = ?1 AND key = ?2 AND expires_at_us > ?3";

/// `false`: the key is taken. An expired key may be used again.
fn insert_key(connection: &Connection, row: &IdempotencyRow, now: Time) -> Result<bool, StoreError> {
    let sql = "INSERT INTO idempotency (actor_ref, key, request_digest, answer, expires_at_us, instance_id) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?7) ON CONFLICT (actor_ref, key) DO UPDATE SET \
                   request_digest = excluded.request_digest, answer = excluded.answer, \
                   expires_at_us = excluded.expires_at_us, instance_id = excluded.instance_id WHERE idempotency.expires_at_us <= ?6";
    let values = [
        Value::Text(&row.actor_ref),
        Value::Text(&row.key),
        Value::digest(&row.request_digest),
        Value::Text(&row.answer),
        Value::time(row.expires_at),
        Value::time(now),
        Value::Id(row.instance_id.0),
    ];
    let inserted =
        connection.prepare_cached(sql).map_err(failed)?.execute(params_from_iter(&values)).map_err(failed)?;
    Ok(inserted > 0)
}

fn write_unit(
    connection: &Connection,
    statements: &[String],
    known: &HashSet<Digest>,
    unit: &Unit,
    documents: &mut Vec<Digest>,
) -> Result<(), StoreError> {
    let execute = |(name, values): (statement::Name, Vec<Value<'_>>)| -> Result<(), StoreError> {
        let mut prepared = connection.prepare_cached(&statements[name as usize]).map_err(failed)?;
        prepared.execute(params_from_iter(&values)).map(|_| ()).map_err(failed)
    };
    execute(statement::instance_values(unit))?;
    // Before the redactions among the other writes.
    run::write_steps(connection, statements, unit)?;
    for write in statement::latest_writes(unit) {
        if let Write::Document { digest, .. } = write {
            if known.contains(digest) {
                continue;
            }
            documents.push(*digest);
        }
        execute(statement::write_values(unit, write))?;
    }
    unit.records.iter().try_for_each(|record| execute(statement::record_values(record)))
}

impl Drop for SqliteWriter {
    fn drop(&mut self) {
        scrub::at_the_end(&self.connection);
        self.checkpointer.end();
        cut_off(&self.connection);
    }
}

#[async_trait]
impl Writer for SqliteWriter {
    async fn load(&mut self, ids: &[InstanceId]) -> Result<Vec<Loaded>, StoreError> {
        let mut all = Vec::with_capacity(ids.len());
        for id in ids {
            all.extend(self.load_one(*id)?);
        }
        Ok(all)
    }

    async fn registry_since(&mut self, sequence: u64) -> Result<RegistryDelta, StoreError> {
        registry_since(&self.connection, &self.registry_since, sequence)
    }

    async fn recall(&mut self, keys: &[(String, String)], now: Time) -> Result<Vec<IdempotencyRow>, StoreError> {
        let mut all = Vec::new();
        for (actor_ref, key) in keys {
            let values = [Value::Text(actor_ref), Value::Text(key), Value::time(now)];
            all.extend(rows(&self.connection, RECALL, &values, decode::idempotency_row)?);
        }
        Ok(all)
    }

    async fn commit(&mut self, batch: &Batch) -> Result<Committed, StoreError> {
        if !purges(batch) {
            return self.commit_batch(batch);
        }
        scrub::overwrite(&self.connection, true)?;
        let committed = self.commit_batch(batch);
        scrub::overwrite(&self.connection, false)?;
        self.purged_lately = true;
        committed
    }

    async fn step_ended(&mut self, instance_id: InstanceId, action: &str, step_id: StepId) -> Result<bool, StoreError> {
        let sql = "SELECT 1 FROM approval_steps WHERE step_id = ?1 AND instance_id = ?2 AND action = ?3";
        let values = [Value::Id(step_id.0), Value::Id(instance_id.0), Value::Text(action)];
        Ok(!rows(&self.connection, sql, &values, |row| row.int(0))?.is_empty())
    }

    async fn find_record(&mut self, event_id: EventId) -> Result<Option<RecordRow>, StoreError> {
        let found = rows(&self.connection, &self.by_instance.record, &[Value::Id(event_id.0)], decode::record_row)?;
        Ok(found.into_iter().next())
    }

    async fn find_hold(&mut self, hold_id: HoldId) -> Result<Option<HoldRow>, StoreError> {
        let found = rows(&self.connection, &self.by_instance.hold, &[Value::Id(hold_id.0)], decode::hold_row)?;
        Ok(found.into_iter().next())
    }

    async fn steps(&mut self, of: StepsOf) -> Result<Vec<StepRow>, StoreError> {
        let (sql, id) = match of {
            StepsOf::Instance(instance_id) => (&self.by_instance.own_steps, instance_id.0),
            StepsOf::Gate(gate_id) => (&self.by_instance.gate_steps, gate_id),
        };
        rows(&self.connection, sql, &[Value::Id(id)], decode::step_row)
    }

    async fn received(&mut self, events: &[(InstanceId, Arc<str>)]) -> Result<Vec<bool>, StoreError> {
        run::received(&self.connection, events)
    }

    async fn due(&mut self, after: &Due, until: Time, limit: usize) -> Result<Vec<Due>, StoreError> {
        self.runs.due(&self.connection, after, until, limit)
    }

    async fn scrub(&mut self) -> Result<bool, StoreError> {
        let lately = std::mem::take(&mut self.purged_lately);
        scrub::scrub(&self.connection, lately)
    }

    async fn forget_expired(&mut self, now: Time) -> Result<u64, StoreError> {
        let sql = "DELETE FROM idempotency WHERE (actor_ref, key) IN \
                   (SELECT actor_ref, key FROM idempotency WHERE expires_at_us <= ?1 ORDER BY expires_at_us LIMIT 1000)";
        let found = rows(
            &self.connection,
            "SELECT 1 FROM idempotency WHERE expires_at_us <= ?1 LIMIT 1",
            &[Value::time(now)],
            |row| row.int(0),
        )?;
        if found.is_empty() {
            return Ok(0);
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = self.connection.prepare_cached(sql).map_err(failed)?.execute([Value::time(now)]).map_err(failed)?;
        Ok(gone as u64)
    }

    async fn clock_offset_us(&mut self) -> Result<i64, StoreError> {
        Ok(0)
    }
}

/// See [`crate::raw`].
#[cfg(feature = "raw")]
pub struct RawSqlite {
    connection: Connection,
    checkpointer: Checkpointer,
    statements: Vec<String>,
    unlisted: Unlisted,
}

#[cfg(feature = "raw")]
impl RawSqlite {
    pub fn open(path: &str) -> Result<Self, StoreError> {
        let SqliteStore { writer: connection, checkpointer, .. } = SqliteStore::open(path)?;
        connection.execute_batch("CREATE TABLE bare (id INTEGER PRIMARY KEY, body BLOB NOT NULL)").map_err(failed)?;
        let statements = STATEMENTS.iter().map(Statement::sqlite).collect();
        Ok(RawSqlite { connection, checkpointer, statements, unlisted: Unlisted::unknown() })
    }

    pub fn write(&mut self, units: &[Unit]) -> Result<(), StoreError> {
        self.checkpointer.finish(&self.connection);
        let transaction = Transaction::begin(&self.connection)?;
        let known = HashSet::new();
        for unit in units {
            write_unit(&transaction, &self.statements, &known, unit, &mut vec![])?;
        }
        self.unlisted.wrote(&transaction, units.iter())?;
        transaction.commit()
    }

    pub fn bare_transaction(&mut self, body: &[u8]) -> Result<(), StoreError> {
        self.checkpointer.finish(&self.connection);
        let transaction = Transaction::begin(&self.connection)?;
        transaction
            .prepare_cached("INSERT INTO bare (body) VALUES (?1)")
            .map_err(failed)?
            .execute([Value::Bytes(body)])
            .map_err(failed)?;
        transaction.commit()
    }
}
