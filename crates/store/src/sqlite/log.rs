//! The log on SQLite. Its order is `records.position`: there is one writer, so the order of commits is the order of
//! rows.
//!
//! Entries are written without waiting for the disk: the next commit flushes them. If the power fails before that,
//! the sealer finds the records again in the same order. A checkpoint waits for the disk.

use super::Turn;
use super::connect::{Location, cut_off, failed};
use super::read::{Pool, read_on, rows};
use crate::log::{self, LogSql};
use crate::select::{Dialect, RECORD};
use crate::value::{Columns, Value};
use async_trait::async_trait;
use countersign_engine::port::log::{
    Append, CheckpointRow, EntryRow, LeaseToken, LogIdentity, LogReader, LogWriter, RotationRow, Span, Unsealed,
    VerifiedRow, Written,
};
use countersign_engine::port::{Head, StoreError};
use countersign_kernel::{Digest, EventId, InstanceId};
use rusqlite::{Connection, Transaction, TransactionBehavior, params_from_iter};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const LAST_POSITION: &str = "SELECT r.position FROM log_entries e LEFT JOIN records r ON r.event_id = e.event_id ORDER BY e.log_index DESC LIMIT 1";

/// The position of the log's last entry; 0 where there is none.
fn last_position(connection: &Connection) -> Result<i64, StoreError> {
    match rows(connection, LAST_POSITION, &[], |row| row.optional_int(0))?.pop() {
        None => Ok(0),
        Some(position) => position.ok_or_else(log::record_of_last_entry_is_missing),
    }
}

/// Who may write to the log. In memory, because the file belongs to one process: it ends with the process at the latest.
#[derive(Default)]
pub struct Lease {
    token: u64,
    until: Option<Instant>,
}

impl Lease {
    fn held(&self, lease: LeaseToken) -> bool {
        self.token == lease.0 && self.until.is_some_and(|until| Instant::now() < until)
    }
}

pub struct SqliteLogWriter {
    location: Location,
    connection: Option<Connection>,
    turn: Turn,
    lease: Arc<Mutex<Lease>>,
    sql: LogSql,
    entry: String,
    node: String,
    checkpoint: String,
}

impl SqliteLogWriter {
    pub fn new(location: Location, turn: Turn, lease: Arc<Mutex<Lease>>) -> Self {
        SqliteLogWriter {
            location,
            connection: None,
            turn,
            lease,
            sql: LogSql::new(Dialect::Sqlite),
            entry: log::ENTRY.sqlite(),
            node: log::NODE.sqlite(),
            checkpoint: log::CHECKPOINT.sqlite(),
        }
    }

    fn lease(&self) -> MutexGuard<'_, Lease> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(&mut self) -> Result<&mut Connection, StoreError> {
        match &mut self.connection {
            Some(connection) => Ok(connection),
            none => {
                let connection = self.location.connect(false)?;
                connection.pragma_update(None, "synchronous", "NORMAL").map_err(failed)?;
                Ok(none.insert(connection))
            }
        }
    }

    /// One transaction, in turn with the committer's. It does not wait for the disk, because no other write is possible meanwhile.
    fn write<T>(&mut self, work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let turn = self.turn.clone();
        self.location.files.require()?;
        let connection = self.connect()?;
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        let result = work(&transaction)?;
        transaction.commit().map_err(failed)?;
        Ok(result)
    }

    /// As [`Self::write`], and then waits for the disk. Committed data is in the write-ahead log, which is
    /// flushed here, or in the database, which was flushed when it was moved there.
    fn write_durably<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let result = self.write(work)?;
        if let Some(wal) = self.location.wal() {
            let synced = std::fs::File::open(wal).and_then(|file| file.sync_data());
            synced.map_err(|error| StoreError::Transient(format!("the write-ahead log cannot be flushed: {error}")))?;
        }
        Ok(result)
    }
}

fn execute(connection: &Connection, sql: &str, values: &[Value<'_>]) -> Result<usize, StoreError> {
    connection.prepare_cached(sql).map_err(failed)?.execute(params_from_iter(values)).map_err(failed)
}

fn identity(connection: &Connection, sql: &LogSql) -> Result<Option<LogIdentity>, StoreError> {
    Ok(rows(connection, sql.identity, &[], log::identity_row)?.pop())
}

fn count(connection: &Connection, sql: &str, values: &[Value<'_>]) -> Result<u64, StoreError> {
    Ok(rows(connection, sql, values, |row| row.count(0))?.pop().unwrap_or(0))
}

#[async_trait]
impl LogWriter for SqliteLogWriter {
    async fn begin(&mut self, wanted: &LogIdentity) -> Result<LogIdentity, StoreError> {
        let sql = LogSql::new(Dialect::Sqlite);
        self.write_durably(|transaction| {
            execute(transaction, &sql.begin, &[Value::Text(&wanted.origin), Value::Text(&wanted.verifier_key)])?;
            identity(transaction, &sql)?.ok_or_else(|| StoreError::Corrupt("the log has no name".to_owned()))
        })
    }

    async fn take_lease(&mut self, _holder: &str, ttl: Duration) -> Result<Option<LeaseToken>, StoreError> {
        let mut lease = self.lease();
        if lease.until.is_some_and(|until| Instant::now() < until) {
            return Ok(None);
        }
        lease.token += 1;
        lease.until = Some(Instant::now() + ttl);
        Ok(Some(LeaseToken(lease.token)))
    }

    async fn renew_lease(&mut self, token: LeaseToken, ttl: Duration) -> Result<bool, StoreError> {
        let mut lease = self.lease();
        let held = lease.held(token);
        if held {
            lease.until = Some(Instant::now() + ttl);
        }
        Ok(held)
    }

    async fn release_lease(&mut self, token: LeaseToken) -> Result<bool, StoreError> {
        let mut lease = self.lease();
        let held = lease.held(token);
        if held {
            lease.until = None;
        }
        Ok(held)
    }

    async fn unsealed(&mut self, limit: usize) -> Result<Vec<Unsealed>, StoreError> {
        let connection = self.connect()?;
        let sql = "SELECT event_id, header, recorded_at_us FROM records WHERE position > ?1 ORDER BY position LIMIT ?2";
        let values = [Value::Int(last_position(connection)?), Value::count(limit as u64)];
        rows(connection, sql, &values, log::unsealed_row)
    }

    async fn append(&mut self, append: &Append) -> Result<Written, StoreError> {
        let (entry, node, size) = (self.entry.clone(), self.node.clone(), self.sql.size);
        let lease = self.lease.clone();
        let written = self.write(|transaction| {
            // Held until the transaction ends, so that no other caller takes it meanwhile.
            let lease = lease.lock().unwrap_or_else(PoisonError::into_inner);
            if !lease.held(append.lease) {
                return Ok(Written::LeaseLost);
            }
            if count(transaction, size, &[])? != append.from_index {
                return Ok(Written::Overtaken);
            }
            for (log_index, row) in (append.from_index..).zip(&append.entries) {
                execute(transaction, &entry, &log::entry_values(log_index, row))?;
            }
            for row in &append.nodes {
                execute(transaction, &node, &log::node_values(row))?;
            }
            Ok(Written::Done)
        });
        match written {
            // The entry exists: the log has another size than the caller expects.
            Err(StoreError::Rejected(_)) => Ok(Written::Overtaken),
            written => written,
        }
    }

    async fn put_checkpoint(&mut self, token: LeaseToken, row: &CheckpointRow) -> Result<Written, StoreError> {
        let (checkpoint, lease) = (self.checkpoint.clone(), self.lease.clone());
        self.write_durably(|transaction| {
            let lease = lease.lock().unwrap_or_else(PoisonError::into_inner);
            if !lease.held(token) {
                return Ok(Written::LeaseLost);
            }
            let stored = execute(transaction, &checkpoint, &log::checkpoint_values(row))?;
            Ok(if stored == 1 { Written::Done } else { Written::Overtaken })
        })
    }

    async fn extend_note(&mut self, size: u64, note: &str) -> Result<bool, StoreError> {
        let sql = self.sql.extend_note.clone();
        self.write_durably(|transaction| Ok(execute(transaction, &sql, &[Value::count(size), Value::Text(note)])? == 1))
    }

    async fn put_verified(&mut self, row: &VerifiedRow) -> Result<(), StoreError> {
        let sql = self.sql.put_verified.clone();
        self.write(|transaction| execute(transaction, &sql, &log::verified_values(row)))?;
        Ok(())
    }

    async fn rotate(
        &mut self,
        token: LeaseToken,
        from: &LogIdentity,
        to: &str,
        row: &RotationRow,
    ) -> Result<Written, StoreError> {
        let (rekey, rotation, lease) = (self.sql.rekey.clone(), log::ROTATION.sqlite(), self.lease.clone());
        let key = [Value::Text(to), Value::Text(&from.origin), Value::Text(&from.verifier_key)];
        let written = self.write_durably(|transaction| {
            let lease = lease.lock().unwrap_or_else(PoisonError::into_inner);
            if !lease.held(token) {
                return Ok(Written::LeaseLost);
            }
            let kept = execute(transaction, &rotation, &log::rotation_values(row))?;
            if kept == 1 && execute(transaction, &rekey, &key)? == 1 {
                return Ok(Written::Done);
            }
            // Takes back what was written.
            Err(StoreError::Rejected("another key".to_owned()))
        });
        match written {
            Err(StoreError::Rejected(_)) => Ok(Written::Overtaken),
            written => written,
        }
    }
}

impl Drop for SqliteLogWriter {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            cut_off(connection);
        }
    }
}

pub struct SqliteLogReader {
    pool: Arc<Pool>,
    sql: Arc<LogSql>,
}

impl SqliteLogReader {
    pub fn new(pool: Arc<Pool>) -> Self {
        SqliteLogReader { pool, sql: Arc::new(LogSql::new(Dialect::Sqlite)) }
    }

    async fn read<T, F>(&self, read: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection, &LogSql) -> Result<T, StoreError> + Send + 'static,
    {
        let sql = self.sql.clone();
        read_on(&self.pool, move |connection| read(connection, &sql)).await
    }
}

/// Entries with their records. In an unaltered log the records are in the table in the log's order, so
/// both are read one after the other; where they do not, each record is looked for by its id.
fn entries(connection: &Connection, sql: &LogSql, from: u64, limit: usize) -> Result<Vec<EntryRow>, StoreError> {
    let limit = Value::count(limit as u64);
    let mut entries = rows(connection, &sql.entries, &[Value::count(from), limit.clone()], log::entry_row)?;
    let Some(first) = entries.first().map(|entry| entry.event_id) else { return Ok(entries) };
    let position = "SELECT position FROM records WHERE event_id = ?1";
    let position = rows(connection, position, &[Value::Id(first.0)], |row| row.int(0))?.pop().unwrap_or(0);
    let in_order = format!("SELECT {RECORD} FROM records WHERE position >= ?1 ORDER BY position LIMIT ?2");
    let mut records = rows(connection, &in_order, &[Value::Int(position), limit], log::record_row)?.into_iter();
    for entry in &mut entries {
        entry.record = match records.next() {
            Some(Some(record)) if record.event_id == entry.event_id => Some(record),
            _ => rows(connection, &sql.record, &[Value::Id(entry.event_id.0)], log::record_row)?.pop().flatten(),
        };
    }
    Ok(entries)
}

/// Both indexes are in the order of ids, so they are read side by side: to look for each record's entry takes twice as long.
fn skipped(connection: &Connection, limit: usize) -> Result<Vec<EventId>, StoreError> {
    let records = "SELECT event_id FROM records INDEXED BY records_by_event WHERE position <= ?1 ORDER BY event_id";
    let entries = "SELECT event_id FROM log_entries INDEXED BY log_entries_by_event ORDER BY event_id";
    let (mut records, mut entries) =
        (connection.prepare_cached(records).map_err(failed)?, connection.prepare_cached(entries).map_err(failed)?);
    let mut records = records.query([Value::Int(last_position(connection)?)]).map_err(failed)?;
    let mut entries = entries.query([]).map_err(failed)?;
    let (mut entry, mut missing) = (entries.next().map_err(failed)?.map(|row| row.id(0)).transpose()?, vec![]);
    while let Some(record) = records.next().map_err(failed)? {
        let record = record.id(0)?;
        while entry.is_some_and(|entry| entry < record) {
            entry = entries.next().map_err(failed)?.map(|row| row.id(0)).transpose()?;
        }
        if entry != Some(record) {
            missing.push(EventId(record));
            if missing.len() >= limit {
                break;
            }
        }
    }
    Ok(missing)
}

#[async_trait]
impl LogReader for SqliteLogReader {
    async fn identity(&self) -> Result<Option<LogIdentity>, StoreError> {
        self.read(identity).await
    }

    async fn size(&self) -> Result<u64, StoreError> {
        self.read(|connection, sql| count(connection, sql.size, &[])).await
    }

    async fn newest(&self) -> Result<Option<EventId>, StoreError> {
        let newest = "SELECT event_id FROM records ORDER BY position DESC LIMIT 1";
        let found = self.read(move |connection, _| rows(connection, newest, &[], |row| row.id(0))).await?;
        Ok(found.into_iter().next().map(EventId))
    }

    async fn count_unsealed(&self, limit: u64) -> Result<u64, StoreError> {
        self.read(move |connection, _| {
            let sql = "SELECT COUNT(*) FROM (SELECT 1 FROM records WHERE position > ?1 LIMIT ?2)";
            count(connection, sql, &[Value::Int(last_position(connection)?), Value::count(limit)])
        })
        .await
    }

    async fn hashes(&self, spans: &[Span]) -> Result<Vec<Vec<Digest>>, StoreError> {
        let spans = spans.to_vec();
        self.read(move |connection, sql| {
            let read = |span: &Span| {
                let (sql, values) = sql.span(*span);
                log::require_whole(*span, rows(connection, sql, &values, |row| row.digest(0))?)
            };
            spans.iter().map(read).collect()
        })
        .await
    }

    async fn index_of(&self, event_ids: &[EventId]) -> Result<Vec<Option<u64>>, StoreError> {
        let event_ids = event_ids.to_vec();
        self.read(move |connection, _| {
            let sql = "SELECT log_index FROM log_entries WHERE event_id = ?1";
            let find =
                |id: &EventId| Ok(rows(connection, sql, &[Value::Id(id.0)], |row| row.count(0))?.into_iter().next());
            event_ids.iter().map(find).collect()
        })
        .await
    }

    async fn entries(&self, from: u64, limit: usize) -> Result<Vec<EntryRow>, StoreError> {
        self.read(move |connection, sql| entries(connection, sql, from, limit)).await
    }

    async fn skipped(&self, limit: usize) -> Result<Vec<EventId>, StoreError> {
        self.read(move |connection, _| skipped(connection, limit)).await
    }

    async fn heads(&self, after: Option<InstanceId>, limit: usize) -> Result<Vec<(InstanceId, Head)>, StoreError> {
        self.read(move |connection, sql| {
            let after = after.map_or(Value::Bytes(&[]), |id| Value::Id(id.0));
            rows(connection, &sql.heads, &[after, Value::count(limit as u64)], log::head_row)
        })
        .await
    }

    async fn latest_checkpoint(&self) -> Result<Option<CheckpointRow>, StoreError> {
        self.read(|connection, sql| Ok(rows(connection, &sql.latest, &[], log::checkpoint_row)?.pop())).await
    }

    async fn checkpoints(&self, size: u64, limit: usize) -> Result<Vec<CheckpointRow>, StoreError> {
        self.read(move |connection, sql| {
            let values = [Value::count(size), Value::count(limit as u64)];
            rows(connection, &sql.checkpoints, &values, log::checkpoint_row)
        })
        .await
    }

    async fn verified(&self) -> Result<Option<VerifiedRow>, StoreError> {
        self.read(|connection, sql| Ok(rows(connection, sql.verified, &[], log::verified_row)?.pop())).await
    }

    async fn rotations(&self) -> Result<Vec<RotationRow>, StoreError> {
        self.read(|connection, sql| rows(connection, sql.rotations, &[], log::rotation_row)).await
    }
}
