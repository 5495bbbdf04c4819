//! SQLite: one writer connection on the committer's thread, readers in parallel on a small pool. WAL with
//! `synchronous=FULL`, so a commit that returned survives the loss of power. The file belongs to one
//! process (the server locks its data directory), so nobody else can move an instance.

use crate::decode::{self, InstanceRow};
use crate::select::{self, ByInstance, Dialect, RegistrySince, Select};
use crate::statement::{self, STATEMENTS, Statement};
use crate::value::{Columns, Value};
use crate::{SCHEMA_VERSION, newer_schema};
use async_trait::async_trait;
use countersign_engine::port::{
    AssignmentQuery, Batch, Committed, Loaded, Page, ProcessQuery, ProcessView, Reader, RecordQuery, RegistryDelta,
    StepQuery, Store, StoreError, Unit, Verdict, Writer,
};
use countersign_engine::rows::{AssignmentRow, IdempotencyRow, RecordRow, StepRow, Write};
use countersign_kernel::{Declaration, Digest, GateSpec, InstanceId, StepId, Time};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, TransactionBehavior, params_from_iter};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use uuid::Uuid;

mod migrations {
    refinery::embed_migrations!("migrations/sqlite");
}

/// Documents kept in memory: a handful of definitions serve millions of instances.
const CACHED_DOCUMENTS: usize = 4096;
const READERS: usize = 4;

pub struct SqliteStore {
    writer: Connection,
    readers: Pool,
}

impl SqliteStore {
    pub fn open(path: &str) -> Result<Self, StoreError> {
        let location = Location::parse(path)?;
        let mut writer = location.connect(false)?;
        migrate(&mut writer)?;
        let readers = (0..READERS).map(|_| location.connect(true)).collect::<Result<_, _>>()?;
        Ok(SqliteStore { writer, readers: Pool { idle: Mutex::new(readers), location } })
    }
}

impl Store for SqliteStore {
    fn into_parts(self: Box<Self>) -> (Box<dyn Writer>, Arc<dyn Reader>) {
        let writer = SqliteWriter {
            connection: self.writer,
            by_instance: ByInstance::new(Dialect::Sqlite),
            registry_since: RegistrySince::new(Dialect::Sqlite),
            statements: STATEMENTS.iter().map(Statement::sqlite).collect(),
            declarations: HashMap::new(),
            gate_specs: HashMap::new(),
            known_documents: HashSet::new(),
        };
        (Box::new(writer), Arc::new(SqliteReader { pool: Arc::new(self.readers) }))
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn kind(&self) -> &'static str {
        "sqlite"
    }
}

/// Where the database is; readers are opened like the writer.
struct Location {
    uri: String,
    in_memory: bool,
}

impl Location {
    fn parse(path: &str) -> Result<Self, StoreError> {
        if path == ":memory:" {
            // Shared by the connections of this process, gone with the last of them.
            let mut name = [0u8; 8];
            getrandom::fill(&mut name).map_err(|e| StoreError::Transient(e.to_string()))?;
            return Ok(Location {
                uri: format!("file:/countersign-{:016x}?vfs=memdb", u64::from_le_bytes(name)),
                in_memory: true,
            });
        }
        let path = path.trim_start_matches("//");
        if path.is_empty() {
            return Err(StoreError::Unusable("`sqlite:` needs a path after the colon".to_owned()));
        }
        if let Some(parent) =
            Path::new(path).parent().filter(|parent| !parent.as_os_str().is_empty() && !parent.is_dir())
        {
            return Err(StoreError::Unusable(format!("the directory `{}` does not exist", parent.display())));
        }
        Ok(Location { uri: path.to_owned(), in_memory: false })
    }

    fn connect(&self, read_only: bool) -> Result<Connection, StoreError> {
        let mut flags = OpenFlags::SQLITE_OPEN_NO_MUTEX;
        flags |= if read_only && !self.in_memory {
            OpenFlags::SQLITE_OPEN_READ_ONLY
        } else {
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE
        };
        if self.in_memory {
            flags |= OpenFlags::SQLITE_OPEN_URI;
        }
        let connection = Connection::open_with_flags(&self.uri, flags)
            .map_err(|e| StoreError::Unusable(format!("`{}` cannot be opened as an SQLite database: {e}", self.uri)))?;
        connection.busy_timeout(std::time::Duration::from_secs(30)).map_err(failed)?;
        if !read_only {
            let mode: String =
                connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(not_a_store)?;
            if !self.in_memory && mode != "wal" {
                return Err(StoreError::Unusable(format!(
                    "`{}` cannot use a write-ahead log (journal mode is `{mode}`)",
                    self.uri
                )));
            }
            connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 8000;").map_err(failed)?;
        }
        connection.execute_batch("PRAGMA cache_size = -65536; PRAGMA temp_store = MEMORY;").map_err(failed)?;
        connection.set_prepared_statement_cache_capacity(128);
        Ok(connection)
    }
}

fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    let known: bool = connection
        .query_row("SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'refinery_schema_history')", [], |row| {
            row.get(0)
        })
        .map_err(not_a_store)?;
    if known {
        let found: Option<u32> = connection
            .query_row("SELECT MAX(version) FROM refinery_schema_history", [], |row| row.get(0))
            .map_err(failed)?;
        if let Some(found) = found.filter(|found| *found > SCHEMA_VERSION) {
            return Err(newer_schema(found));
        }
    } else {
        let tables: i64 = connection
            .query_row("SELECT COUNT(*) FROM sqlite_master WHERE type = 'table'", [], |row| row.get(0))
            .map_err(failed)?;
        if tables > 0 {
            return Err(StoreError::Unusable(
                "this SQLite file holds tables that are not Countersign's; name another file".to_owned(),
            ));
        }
    }
    migrations::migrations::runner()
        .run(connection)
        .map(|_| ())
        .map_err(|e| StoreError::Unusable(format!("the schema could not be brought up to date: {e}")))
}

fn failed(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase) => {
            StoreError::Corrupt(error.to_string())
        }
        Some(
            rusqlite::ErrorCode::ConstraintViolation | rusqlite::ErrorCode::TooBig | rusqlite::ErrorCode::TypeMismatch,
        ) => StoreError::Rejected(error.to_string()),
        _ => StoreError::Transient(error.to_string()),
    }
}

fn not_a_store(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase) => {
            StoreError::Unusable("the file is not an SQLite database".to_owned())
        }
        _ => failed(error),
    }
}

impl rusqlite::ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Value::Null => ValueRef::Null,
            Value::Int(int) => ValueRef::Integer(*int),
            Value::Bool(bool) => ValueRef::Integer(i64::from(*bool)),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Bytes(bytes) => ValueRef::Blob(bytes),
            Value::Id(id) => ValueRef::Blob(id.as_bytes()),
        }))
    }
}

fn column<T: rusqlite::types::FromSql>(row: &Row<'_>, i: usize) -> Result<T, StoreError> {
    row.get(i).map_err(|e| StoreError::Corrupt(format!("column {i}: {e}")))
}

impl Columns for Row<'_> {
    fn int(&self, i: usize) -> Result<i64, StoreError> {
        column(self, i)
    }
    fn optional_int(&self, i: usize) -> Result<Option<i64>, StoreError> {
        column(self, i)
    }
    fn bool(&self, i: usize) -> Result<bool, StoreError> {
        column(self, i)
    }
    fn text(&self, i: usize) -> Result<String, StoreError> {
        column(self, i)
    }
    fn optional_text(&self, i: usize) -> Result<Option<String>, StoreError> {
        column(self, i)
    }
    fn bytes(&self, i: usize) -> Result<Vec<u8>, StoreError> {
        column(self, i)
    }
    fn optional_bytes(&self, i: usize) -> Result<Option<Vec<u8>>, StoreError> {
        column(self, i)
    }
    fn id(&self, i: usize) -> Result<Uuid, StoreError> {
        column(self, i).map(Uuid::from_bytes)
    }
    fn optional_id(&self, i: usize) -> Result<Option<Uuid>, StoreError> {
        Ok(column::<Option<[u8; 16]>>(self, i)?.map(Uuid::from_bytes))
    }
}

fn rows<T>(
    connection: &Connection,
    sql: &str,
    values: &[Value<'_>],
    decode: impl Fn(&dyn Columns) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    let mut found = statement.query(params_from_iter(values)).map_err(failed)?;
    let mut all = Vec::new();
    while let Some(row) = found.next().map_err(failed)? {
        all.push(decode(row)?);
    }
    Ok(all)
}

fn run<T>(
    connection: &Connection,
    select: &Select<'_>,
    decode: impl Fn(&dyn Columns) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    rows(connection, &select.sql, &select.values, decode)
}

fn document(connection: &Connection, sql: &str, digest: &Digest) -> Result<Vec<u8>, StoreError> {
    let body = rows(connection, sql, &[Value::digest(digest)], |row| row.bytes(0))?.pop();
    body.ok_or_else(|| StoreError::Corrupt(format!("document {digest} is missing")))
}

fn registry_since(connection: &Connection, sql: &RegistrySince, sequence: u64) -> Result<RegistryDelta, StoreError> {
    let since = [Value::count(sequence)];
    let head = rows(connection, &sql.head, &[Value::Id(InstanceId::REGISTRY.0)], decode::head_row)?
        .pop()
        .ok_or_else(|| StoreError::Corrupt("the registry has no row".to_owned()))?;
    if head.sequence <= sequence {
        return Ok(RegistryDelta { events: vec![], head });
    }
    let mut events = rows(connection, &sql.actors, &since, decode::actor_event)?;
    events.extend(rows(connection, &sql.granted, &since, |row| decode::grant_event(row, false))?);
    events.extend(rows(connection, &sql.revoked, &since, |row| decode::grant_event(row, true))?);
    events.extend(rows(connection, &sql.definitions, &since, decode::definition_event)?);
    events.extend(rows(connection, &sql.configurations, &since, decode::configuration_event)?);
    events.sort_by_key(|(sequence, _)| *sequence);
    Ok(RegistryDelta { events, head })
}

struct SqliteWriter {
    connection: Connection,
    by_instance: ByInstance,
    registry_since: RegistrySince,
    /// In the order of [`statement::Name`].
    statements: Vec<String>,
    declarations: HashMap<Digest, Arc<Declaration>>,
    gate_specs: HashMap<Digest, Arc<GateSpec>>,
    known_documents: HashSet<Digest>,
}

impl SqliteWriter {
    fn load_one(&mut self, instance_id: InstanceId) -> Result<Option<Loaded>, StoreError> {
        let id = [Value::Id(instance_id.0)];
        let Some(row) = rows(&self.connection, &self.by_instance.processes, &id, decode::instance_row)?.pop() else {
            return Ok(None);
        };
        let (declaration, gate_spec) = self.documents(&row)?;
        let mut gates = Vec::new();
        for gate in rows(&self.connection, &self.by_instance.live_gates, &id, decode::gate_row)? {
            let steps =
                rows(&self.connection, &self.by_instance.steps, &[Value::Id(gate.gate_id)], decode::assigned_step_row)?;
            gates.push(decode::kernel_gate(&gate, &steps)?);
        }
        decode::loaded(row, declaration, gate_spec, gates).map(Some)
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
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        let current = |instance_id: InstanceId| -> Result<u64, StoreError> {
            let mut statement =
                transaction.prepare_cached("SELECT sequence FROM instances WHERE instance_id = ?1").map_err(failed)?;
            let found = statement
                .query_row([Value::Id(instance_id.0)], |row| row.get::<_, i64>(0))
                .optional()
                .map_err(failed)?;
            Ok(found.map_or(0, i64::unsigned_abs))
        };
        if current(InstanceId::REGISTRY)? != batch.registry_sequence {
            return Ok(Committed::RegistryMoved);
        }
        let mut verdicts = Vec::with_capacity(batch.units.len() + batch.checks.len());
        for unit in &batch.units {
            let verdict = if current(unit.instance_id)? == unit.expected_sequence {
                insert_keys(&transaction, unit)?
            } else {
                Verdict::Lost
            };
            if verdict == Verdict::KeyTaken {
                // Nothing is written; every unit is decided again, this one from the stored answer.
                return Ok(Committed::Done(key_taken(batch, unit.instance_id)));
            }
            verdicts.push(verdict);
        }
        for check in &batch.checks {
            verdicts.push(if current(check.instance_id)? == check.expected_sequence {
                Verdict::Won
            } else {
                Verdict::Lost
            });
        }
        let mut documents = Vec::new();
        for (unit, _) in batch.units.iter().zip(&verdicts).filter(|(_, verdict)| **verdict == Verdict::Won) {
            write_unit(&transaction, &self.statements, &self.known_documents, unit, &mut documents)?;
        }
        transaction.commit().map_err(failed)?;
        if self.known_documents.len() > CACHED_DOCUMENTS {
            self.known_documents.clear();
        }
        self.known_documents.extend(documents);
        Ok(Committed::Done(verdicts))
    }
}

fn key_taken(batch: &Batch, instance_id: InstanceId) -> Vec<Verdict> {
    let verdict = |id| if id == instance_id { Verdict::KeyTaken } else { Verdict::Lost };
    let units = batch.units.iter().map(|unit| verdict(unit.instance_id));
    units.chain(batch.checks.iter().map(|_| Verdict::Lost)).collect()
}

/// Keys whose time is over may be used anew.
fn insert_keys(connection: &Connection, unit: &Unit) -> Result<Verdict, StoreError> {
    for row in &unit.idempotency {
        let sql = "INSERT INTO idempotency (actor_ref, key, request_digest, answer, expires_at_us) VALUES (?1, ?2, ?3, ?4, ?5) \
                   ON CONFLICT (actor_ref, key) DO UPDATE SET request_digest = excluded.request_digest, answer = excluded.answer, \
                   expires_at_us = excluded.expires_at_us WHERE idempotency.expires_at_us <= ?6";
        let values = [
            Value::Text(&row.actor_ref),
            Value::Text(&row.key),
            Value::digest(&row.request_digest),
            Value::Text(&row.answer),
            Value::time(row.expires_at),
            Value::time(unit.head.last_time),
        ];
        let inserted =
            connection.prepare_cached(sql).map_err(failed)?.execute(params_from_iter(&values)).map_err(failed)?;
        if inserted == 0 {
            return Ok(Verdict::KeyTaken);
        }
    }
    Ok(Verdict::Won)
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
    for write in &unit.writes {
        if let Write::Document { digest, .. } = write {
            if known.contains(digest) {
                continue;
            }
            documents.push(*digest);
        }
        execute(statement::write_values(write))?;
    }
    unit.records.iter().try_for_each(|record| execute(statement::record_values(record)))
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
        let sql = "SELECT actor_ref, key, request_digest, answer, expires_at_us FROM idempotency \
                   WHERE actor_ref = ?1 AND key = ?2 AND expires_at_us > ?3";
        let mut all = Vec::new();
        for (actor_ref, key) in keys {
            let values = [Value::Text(actor_ref), Value::Text(key), Value::time(now)];
            all.extend(rows(&self.connection, sql, &values, decode::idempotency_row)?);
        }
        Ok(all)
    }

    async fn commit(&mut self, batch: &Batch) -> Result<Committed, StoreError> {
        self.commit_batch(batch)
    }

    async fn step_ended(&mut self, instance_id: InstanceId, action: &str, step_id: StepId) -> Result<bool, StoreError> {
        let sql = "SELECT 1 FROM approval_steps WHERE step_id = ?1 AND instance_id = ?2 AND action = ?3";
        let values = [Value::Id(step_id.0), Value::Id(instance_id.0), Value::Text(action)];
        Ok(!rows(&self.connection, sql, &values, |row| row.int(0))?.is_empty())
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
        let gone = self.connection.prepare_cached(sql).map_err(failed)?.execute([Value::time(now)]).map_err(failed)?;
        Ok(gone as u64)
    }

    async fn clock_offset_us(&mut self) -> Result<i64, StoreError> {
        Ok(0)
    }
}

/// Idle read connections. One more is opened when all are busy.
struct Pool {
    idle: Mutex<Vec<Connection>>,
    location: Location,
}

impl Pool {
    fn with<T>(&self, read: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = idle().pop();
        let mut connection = match taken {
            Some(connection) => connection,
            None => self.location.connect(true)?,
        };
        // One snapshot for all queries of a read.
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Deferred).map_err(failed)?;
        let result = read(&transaction);
        transaction.finish().map_err(failed)?;
        let mut idle = idle();
        if idle.len() < READERS {
            idle.push(connection);
        }
        result
    }
}

struct SqliteReader {
    pool: Arc<Pool>,
}

impl SqliteReader {
    async fn read<T, F>(&self, read: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let pool = self.pool.clone();
        tokio::task::spawn_blocking(move || pool.with(read))
            .await
            .unwrap_or_else(|e| Err(StoreError::Transient(format!("a read was interrupted: {e}"))))
    }
}

fn process_view(connection: &Connection, sql: &ByInstance, row: InstanceRow) -> Result<ProcessView, StoreError> {
    let id = [Value::Id(row.process.instance_id.0)];
    let mut gates = Vec::new();
    for gate in rows(connection, &sql.gates, &id, decode::gate_row)? {
        let steps = rows(connection, &sql.steps, &[Value::Id(gate.gate_id)], decode::assigned_step_row)?;
        gates.push((gate, steps));
    }
    Ok(ProcessView {
        declaration: document(connection, sql.document, &row.process.declaration_digest)?.into(),
        gate_spec: document(connection, sql.document, &row.process.gate_spec_digest)?.into(),
        history: rows(connection, &sql.history, &id, decode::transition_row)?,
        gates,
        current_state: row.state,
        row: row.process,
    })
}

#[async_trait]
impl Reader for SqliteReader {
    async fn processes(&self, query: &ProcessQuery, page: &Page) -> Result<Vec<ProcessView>, StoreError> {
        let (query, page) = (query.clone(), page.clone());
        self.read(move |connection| {
            let sql = ByInstance::new(Dialect::Sqlite);
            let found = run(connection, &select::processes(Dialect::Sqlite, &query, &page), decode::instance_row)?;
            found.into_iter().map(|row| process_view(connection, &sql, row)).collect()
        })
        .await
    }

    async fn approval_steps(&self, query: &StepQuery, page: &Page) -> Result<Vec<StepRow>, StoreError> {
        let (query, page) = (query.clone(), page.clone());
        self.read(move |connection| {
            run(connection, &select::approval_steps(Dialect::Sqlite, &query, &page), decode::step_row)
        })
        .await
    }

    async fn assignments(
        &self,
        query: &AssignmentQuery,
        page: &Page,
    ) -> Result<Vec<(AssignmentRow, StepRow)>, StoreError> {
        let (query, page) = (query.clone(), page.clone());
        self.read(move |connection| {
            let found =
                run(connection, &select::assignments(Dialect::Sqlite, &query, &page), decode::assigned_step_row)?;
            Ok(found.into_iter().map(|(step, assignment)| (assignment, step)).collect())
        })
        .await
    }

    async fn records(&self, query: &RecordQuery, page: &Page) -> Result<Vec<RecordRow>, StoreError> {
        let (query, page) = (query.clone(), page.clone());
        self.read(move |connection| {
            run(connection, &select::records(Dialect::Sqlite, &query, &page), decode::record_row)
        })
        .await
    }

    async fn registry_since(&self, sequence: u64) -> Result<RegistryDelta, StoreError> {
        self.read(move |connection| registry_since(connection, &RegistrySince::new(Dialect::Sqlite), sequence)).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.read(|connection| rows(connection, "SELECT 1", &[], |row| row.int(0)).map(|_| ())).await
    }
}

/// See [`crate::raw`].
#[cfg(feature = "raw")]
pub struct RawSqlite {
    connection: Connection,
    statements: Vec<String>,
}

#[cfg(feature = "raw")]
impl RawSqlite {
    pub fn open(path: &str) -> Result<Self, StoreError> {
        let connection = SqliteStore::open(path)?.writer;
        connection.execute_batch("CREATE TABLE bare (id INTEGER PRIMARY KEY, body BLOB NOT NULL)").map_err(failed)?;
        Ok(RawSqlite { connection, statements: STATEMENTS.iter().map(Statement::sqlite).collect() })
    }

    pub fn write(&mut self, units: &[Unit]) -> Result<(), StoreError> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        let known = HashSet::new();
        for unit in units {
            write_unit(&transaction, &self.statements, &known, unit, &mut vec![])?;
        }
        transaction.commit().map_err(failed)
    }

    pub fn bare_transaction(&mut self, body: &[u8]) -> Result<(), StoreError> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        transaction
            .prepare_cached("INSERT INTO bare (body) VALUES (?1)")
            .map_err(failed)?
            .execute([Value::Bytes(body)])
            .map_err(failed)?;
        transaction.commit().map_err(failed)
    }
}
