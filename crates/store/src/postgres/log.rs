//! The log on PostgreSQL. Its order is (xact, instance_id, sequence), see `migrations/postgres/V2__log.sql`.
//!
//! A record gets its place only when its transaction is older than every running one (`pg_snapshot_xmin`): every
//! transaction with a smaller number is then committed and visible, or never will be. So a transaction that stays
//! open, in any database of this server, delays the log, but the log skips nothing.
//!
//! Entries are committed without waiting for the disk. A checkpoint waits, and so for everything before it.

use super::connect::{Settings, failed};
use super::read::{PostgresReader, parameters};
use super::values::RowSet;
use super::{BEGIN, PLANS, join_in_order};
use crate::log::{self, LogSql};
use crate::select::{Dialect, RECORD};
use crate::statement::Statement;
use crate::value::{Columns, Value};
use async_trait::async_trait;
use countersign_engine::port::log::{
    Append, CheckpointRow, EntryRow, LeaseToken, LogIdentity, LogReader, LogWriter, RotationRow, Span, Unsealed,
    VerifiedRow, Written,
};
use countersign_engine::port::{Head, StoreError};
use countersign_kernel::{Digest, EventId, InstanceId};
use std::collections::HashMap;
use std::time::Duration;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, GenericClient, Row, Statement as Prepared};
use uuid::Uuid;

const NOW_US: &str = "(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::int8";
/// The position of the log's last entry in the order.
const CURSOR: &str = "SELECT r.xact::text, r.instance_id, r.sequence FROM log_entries e \
    LEFT JOIN records r ON r.event_id = e.event_id ORDER BY e.log_index DESC LIMIT 1";
/// Everything after the cursor, with its parameters 1 to 3.
const AFTER: &str =
    "xact >= $1::text::xid8 AND xact > '0' AND (xact, instance_id, sequence) > ($1::text::xid8, $2, $3)";

type Cursor = (String, Uuid, i64);

/// `sql`: [`CURSOR`], as text or prepared.
async fn cursor<C: GenericClient>(
    client: &C,
    sql: &(impl tokio_postgres::ToStatement + Sync + Send + ?Sized),
) -> Result<Cursor, StoreError> {
    let Some(row) = client.query_opt(sql, &[]).await.map_err(failed)? else {
        return Ok(("0".to_owned(), Uuid::nil(), 0));
    };
    let xact = row.optional_text(0)?.ok_or_else(log::record_of_last_entry_is_missing)?;
    Ok((xact, row.id(1)?, row.int(2)?))
}

/// Records that came from another server bear its transaction numbers, and ours may be smaller. They are numbered 0;
/// those that are not in the log yet wait in the backlog, in their order.
pub async fn adopt(client: &mut Client) -> Result<(), StoreError> {
    let foreign = "SELECT COALESCE((SELECT xact FROM records ORDER BY xact DESC LIMIT 1) \
                   >= pg_snapshot_xmax(pg_current_snapshot()), false)";
    let foreign: bool = client.query_one(foreign, &[]).await.and_then(|row| row.try_get(0)).map_err(failed)?;
    if !foreign {
        return Ok(());
    }
    tracing::warn!("this database was moved here from another server: its records are being renumbered");
    let transaction = client.transaction().await.map_err(failed)?;
    transaction
        .batch_execute(
            "INSERT INTO log_backlog (position, event_id) \
             SELECT (SELECT COALESCE(MAX(position), 0) FROM log_backlog) + row_number() OVER (ORDER BY xact, instance_id, sequence), event_id \
             FROM records r WHERE xact > '0' AND NOT EXISTS (SELECT 1 FROM log_entries e WHERE e.event_id = r.event_id); \
             UPDATE records SET xact = '0' WHERE xact > '0'",
        )
        .await
        .map_err(failed)?;
    transaction.commit().await.map_err(failed)
}

pub struct PostgresLogWriter {
    settings: Settings,
    client: Option<Client>,
    /// What is asked all the time, prepared on the connection.
    asked: Option<Asked>,
    sql: LogSql,
    /// The backlog is filled when a store is opened, and at no other time.
    backlog_is_empty: bool,
}

struct Asked {
    cursor: Prepared,
    unsealed: Prepared,
    renew: Prepared,
}

impl Asked {
    async fn prepare(client: &Client) -> Result<Asked, StoreError> {
        let unsealed = format!(
            "SELECT event_id, header, recorded_at_us FROM records WHERE {AFTER} \
             AND xact < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY xact, instance_id, sequence LIMIT $4"
        );
        let renew =
            format!("UPDATE log_lease SET expires_at_us = {NOW_US} + $2 WHERE token = $1 AND expires_at_us > {NOW_US}");
        Ok(Asked {
            renew: client.prepare(&renew).await.map_err(failed)?,
            cursor: client.prepare(CURSOR).await.map_err(failed)?,
            unsealed: client.prepare(&unsealed).await.map_err(failed)?,
        })
    }
}

impl PostgresLogWriter {
    pub fn new(settings: Settings) -> Self {
        PostgresLogWriter {
            settings,
            client: None,
            asked: None,
            sql: LogSql::new(Dialect::Postgres),
            backlog_is_empty: false,
        }
    }

    async fn client(&mut self) -> Result<&mut Client, StoreError> {
        if self.client.as_ref().is_none_or(Client::is_closed) {
            self.client = None;
            let client = self.settings.connect().await?;
            client.batch_execute(PLANS).await.map_err(failed)?;
            client.batch_execute("SET idle_in_transaction_session_timeout = '10s'").await.map_err(failed)?;
            self.asked = Some(Asked::prepare(&client).await?);
            self.client = Some(client);
        }
        self.client.as_mut().ok_or_else(|| StoreError::Transient("no connection".to_owned()))
    }

    async fn asked(&mut self) -> Result<(&Client, &Asked), StoreError> {
        self.client().await?;
        let both = self.client.as_ref().zip(self.asked.as_ref());
        both.ok_or_else(|| StoreError::Transient("no connection".to_owned()))
    }

    async fn backlog(&mut self, limit: i64) -> Result<Vec<Unsealed>, StoreError> {
        if self.backlog_is_empty {
            return Ok(vec![]);
        }
        let sql = "SELECT b.event_id, r.header, r.recorded_at_us FROM log_backlog b \
                   LEFT JOIN records r ON r.event_id = b.event_id ORDER BY b.position LIMIT $1";
        let rows = self.client().await?.query(sql, &[&limit]).await.map_err(failed)?;
        self.backlog_is_empty = rows.is_empty();
        rows.iter().map(|row| log::unsealed_row(row)).collect()
    }

    /// Everything of a write that may fail in between: the transaction is ended, whatever became of it.
    async fn in_transaction(&mut self, setting: &str, work: Work<'_>) -> Result<Written, StoreError> {
        let client = self.client().await?;
        let done = async {
            client.batch_execute(&format!("{BEGIN}; {setting}")).await.map_err(failed)?;
            let written = work.run(client).await?;
            let end = if written == Written::Done { "COMMIT" } else { "ROLLBACK" };
            client.batch_execute(end).await.map_err(failed)?;
            Ok(written)
        }
        .await;
        if done.is_err() && client.batch_execute("ROLLBACK").await.is_err() {
            self.client = None;
        }
        match done {
            // Another node has inserted the same rows.
            Err(StoreError::Rejected(_) | StoreError::Conflict(_)) => Ok(Written::Overtaken),
            done => done,
        }
    }
}

/// What is written under the lease.
enum Work<'a> {
    Entries(&'a Append, &'a LogSql),
    Checkpoint(LeaseToken, &'a CheckpointRow),
    Rotation { lease: LeaseToken, from: &'a LogIdentity, to: &'a str, row: &'a RotationRow, sql: &'a LogSql },
}

impl Work<'_> {
    async fn run(&self, client: &Client) -> Result<Written, StoreError> {
        let lease = match self {
            Work::Entries(append, _) => append.lease,
            Work::Checkpoint(lease, _) | Work::Rotation { lease, .. } => *lease,
        };
        // Locked until the transaction ends, so that no other node takes it meanwhile.
        let held = format!("SELECT 1 FROM log_lease WHERE token = $1 AND expires_at_us > {NOW_US} FOR SHARE");
        if client.query_opt(&held, &[&Value::count(lease.0)]).await.map_err(failed)?.is_none() {
            return Ok(Written::LeaseLost);
        }
        match self {
            Work::Entries(append, sql) => append_entries(client, sql, append).await,
            Work::Checkpoint(_, row) => {
                let stored = insert(client, &log::CHECKPOINT, vec![log::checkpoint_values(row)]).await?;
                Ok(if stored == 1 { Written::Done } else { Written::Overtaken })
            }
            Work::Rotation { from, to, row, sql, .. } => {
                let kept = insert(client, &log::ROTATION, vec![log::rotation_values(row)]).await?;
                let key: [&(dyn ToSql + Sync); 3] = [to, &from.origin, &from.verifier_key];
                let given = client.execute(&sql.rekey, &key).await.map_err(failed)?;
                Ok(if kept == 1 && given == 1 { Written::Done } else { Written::Overtaken })
            }
        }
    }
}

async fn append_entries(client: &Client, sql: &LogSql, append: &Append) -> Result<Written, StoreError> {
    let size = client.query_one(sql.size, &[]).await.map_err(failed)?.count(0)?;
    if size != append.from_index {
        return Ok(Written::Overtaken);
    }
    let entries = (append.from_index..).zip(&append.entries).map(|(i, entry)| log::entry_values(i, entry)).collect();
    insert(client, &log::ENTRY, entries).await?;
    if !append.nodes.is_empty() {
        insert(client, &log::NODE, append.nodes.iter().map(log::node_values).collect()).await?;
    }
    let ids: Vec<Uuid> = append.entries.iter().map(|entry| entry.event_id.0).collect();
    client.execute("DELETE FROM log_backlog WHERE event_id = ANY($1)", &[&ids]).await.map_err(failed)?;
    Ok(Written::Done)
}

async fn insert(client: &Client, statement: &'static Statement, rows: Vec<Vec<Value<'_>>>) -> Result<u64, StoreError> {
    let set = RowSet::of(statement, rows);
    client.execute(&statement.postgres(), &[&set]).await.map_err(failed)
}

#[async_trait]
impl LogWriter for PostgresLogWriter {
    async fn begin(&mut self, wanted: &LogIdentity) -> Result<LogIdentity, StoreError> {
        let (begin, identity) = (self.sql.begin.clone(), self.sql.identity);
        let client = self.client().await?;
        client.execute(&begin, &[&wanted.origin, &wanted.verifier_key]).await.map_err(failed)?;
        log::identity_row(&client.query_one(identity, &[]).await.map_err(failed)?)
    }

    async fn take_lease(&mut self, holder: &str, ttl: Duration) -> Result<Option<LeaseToken>, StoreError> {
        let sql = format!(
            "UPDATE log_lease SET holder = $1, expires_at_us = {NOW_US} + $2, token = token + 1 \
             WHERE expires_at_us <= {NOW_US} RETURNING token"
        );
        let row = self.client().await?.query_opt(&sql, &[&holder, &micros(ttl)]).await.map_err(failed)?;
        row.map(|row| row.count(0).map(LeaseToken)).transpose()
    }

    async fn renew_lease(&mut self, lease: LeaseToken, ttl: Duration) -> Result<bool, StoreError> {
        let (client, asked) = self.asked().await?;
        let params: [&(dyn ToSql + Sync); 2] = [&Value::count(lease.0), &micros(ttl)];
        Ok(client.execute(&asked.renew, &params).await.map_err(failed)? == 1)
    }

    async fn release_lease(&mut self, lease: LeaseToken) -> Result<bool, StoreError> {
        let sql = format!("UPDATE log_lease SET expires_at_us = 0 WHERE token = $1 AND expires_at_us > {NOW_US}");
        Ok(self.client().await?.execute(&sql, &[&Value::count(lease.0)]).await.map_err(failed)? == 1)
    }

    async fn unsealed(&mut self, limit: usize) -> Result<Vec<Unsealed>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let waiting = self.backlog(limit).await?;
        if !waiting.is_empty() {
            return Ok(waiting);
        }
        let (client, asked) = self.asked().await?;
        let (xact, instance_id, sequence) = cursor(client, &asked.cursor).await?;
        let rows = client.query(&asked.unsealed, &[&xact, &instance_id, &sequence, &limit]).await.map_err(failed)?;
        rows.iter().map(|row| log::unsealed_row(row)).collect()
    }

    async fn append(&mut self, append: &Append) -> Result<Written, StoreError> {
        let sql = LogSql::new(Dialect::Postgres);
        self.in_transaction("SET LOCAL synchronous_commit = off", Work::Entries(append, &sql)).await
    }

    async fn put_checkpoint(&mut self, lease: LeaseToken, row: &CheckpointRow) -> Result<Written, StoreError> {
        self.in_transaction("", Work::Checkpoint(lease, row)).await
    }

    async fn extend_note(&mut self, size: u64, note: &str) -> Result<bool, StoreError> {
        let sql = self.sql.extend_note.clone();
        Ok(self.client().await?.execute(&sql, &[&Value::count(size), &note]).await.map_err(failed)? == 1)
    }

    async fn put_verified(&mut self, row: &VerifiedRow) -> Result<(), StoreError> {
        let sql = self.sql.put_verified.clone();
        let values = log::verified_values(row);
        self.client().await?.execute(&sql, &parameters(&values)).await.map_err(failed)?;
        Ok(())
    }

    async fn rotate(
        &mut self,
        lease: LeaseToken,
        from: &LogIdentity,
        to: &str,
        row: &RotationRow,
    ) -> Result<Written, StoreError> {
        let sql = LogSql::new(Dialect::Postgres);
        self.in_transaction("", Work::Rotation { lease, from, to, row, sql: &sql }).await
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// Reads on separate connections: verifying the whole log does not delay other reads.
pub struct PostgresLogReader {
    reader: PostgresReader,
    sql: LogSql,
}

impl PostgresLogReader {
    pub fn new(settings: &Settings) -> Result<Self, StoreError> {
        Ok(PostgresLogReader { reader: PostgresReader::new(settings)?, sql: LogSql::new(Dialect::Postgres) })
    }

    async fn rows(&self, sql: &str, values: &[Value<'_>]) -> Result<Vec<Row>, StoreError> {
        let client = self.reader.connection().await?;
        let statement = client.prepare_cached(sql).await.map_err(failed)?;
        client.query(&statement, &parameters(values)).await.map_err(failed)
    }

    async fn one<T>(
        &self,
        sql: &str,
        values: &[Value<'_>],
        decode: impl Fn(&dyn Columns) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        self.rows(sql, values).await?.first().map(|row| decode(row)).transpose()
    }
}

#[async_trait]
impl LogReader for PostgresLogReader {
    async fn identity(&self) -> Result<Option<LogIdentity>, StoreError> {
        self.one(self.sql.identity, &[], log::identity_row).await
    }

    async fn size(&self) -> Result<u64, StoreError> {
        Ok(self.one(self.sql.size, &[], |row| row.count(0)).await?.unwrap_or(0))
    }

    async fn newest(&self) -> Result<Option<EventId>, StoreError> {
        let candidates = [
            "SELECT event_id FROM records WHERE xact > '0' ORDER BY xact DESC, instance_id DESC, sequence DESC LIMIT 1",
            "SELECT event_id FROM log_backlog ORDER BY position DESC LIMIT 1",
            "SELECT event_id FROM log_entries ORDER BY log_index DESC LIMIT 1",
        ];
        for sql in candidates {
            if let Some(id) = self.one(sql, &[], |row| row.id(0)).await? {
                return Ok(Some(EventId(id)));
            }
        }
        Ok(None)
    }

    async fn count_unsealed(&self, limit: u64) -> Result<u64, StoreError> {
        let client = self.reader.connection().await?;
        let (xact, instance_id, sequence) = cursor(&**client, CURSOR).await?;
        let sql = format!(
            "SELECT COUNT(*) FROM (SELECT 1 FROM log_backlog UNION ALL SELECT 1 FROM records WHERE {AFTER} LIMIT $4) AS waiting"
        );
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        client.query_one(&sql, &[&xact, &instance_id, &sequence, &limit]).await.map_err(failed)?.count(0)
    }

    async fn hashes(&self, spans: &[Span]) -> Result<Vec<Vec<Digest>>, StoreError> {
        let client = self.reader.connection().await?;
        let leaves = client.prepare_cached(&self.sql.leaves).await.map_err(failed)?;
        let nodes = client.prepare_cached(&self.sql.nodes).await.map_err(failed)?;
        let values: Vec<Vec<Value<'_>>> = spans.iter().map(|span| self.sql.span(*span).1).collect();
        let params: Vec<Vec<&(dyn ToSql + Sync)>> = values.iter().map(|values| parameters(values)).collect();
        let queries = spans.iter().zip(&params).map(|(span, params)| {
            let statement = if span.level == 0 { &leaves } else { &nodes };
            client.query(statement, params)
        });
        let mut all = Vec::with_capacity(spans.len());
        for (span, found) in spans.iter().zip(join_in_order(queries).await) {
            let hashes = found.map_err(failed)?.iter().map(|row| row.digest(0)).collect::<Result<_, _>>()?;
            all.push(log::require_whole(*span, hashes)?);
        }
        Ok(all)
    }

    async fn index_of(&self, event_ids: &[EventId]) -> Result<Vec<Option<u64>>, StoreError> {
        let ids: Vec<Uuid> = event_ids.iter().map(|id| id.0).collect();
        let client = self.reader.connection().await?;
        let sql = "SELECT event_id, log_index FROM log_entries WHERE event_id = ANY($1)";
        let rows = client.query(sql, &[&ids]).await.map_err(failed)?;
        let found: HashMap<Uuid, u64> =
            rows.iter().map(|row| Ok((row.id(0)?, row.count(1)?))).collect::<Result<_, StoreError>>()?;
        Ok(ids.iter().map(|id| found.get(id).copied()).collect())
    }

    async fn entries(&self, from: u64, limit: usize) -> Result<Vec<EntryRow>, StoreError> {
        let rows = self.rows(&self.sql.entries, &[Value::count(from), Value::count(limit as u64)]).await?;
        let mut entries: Vec<EntryRow> = rows.iter().map(|row| log::entry_row(row)).collect::<Result<_, _>>()?;
        let ids: Vec<Uuid> = entries.iter().map(|entry| entry.event_id.0).collect();
        let client = self.reader.connection().await?;
        let sql = format!("SELECT {RECORD} FROM records WHERE event_id = ANY($1)");
        let of_entries = client.prepare_cached(&sql).await.map_err(failed)?;
        let rows = client.query(&of_entries, &[&ids]).await.map_err(failed)?;
        let mut records = HashMap::with_capacity(rows.len());
        for row in &rows {
            if let Some(record) = log::record_row(row)? {
                records.insert(record.event_id, record);
            }
        }
        for entry in &mut entries {
            entry.record = records.remove(&entry.event_id);
        }
        Ok(entries)
    }

    async fn skipped(&self, limit: usize) -> Result<Vec<EventId>, StoreError> {
        let client = self.reader.connection().await?;
        let (xact, instance_id, sequence) = cursor(&**client, CURSOR).await?;
        let sql = "SELECT r.event_id FROM records r WHERE NOT EXISTS (SELECT 1 FROM log_entries e WHERE e.event_id = r.event_id) \
                   AND NOT EXISTS (SELECT 1 FROM log_backlog b WHERE b.event_id = r.event_id) \
                   AND (r.xact, r.instance_id, r.sequence) <= ($1::text::xid8, $2, $3) ORDER BY r.event_id LIMIT $4";
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = client.query(sql, &[&xact, &instance_id, &sequence, &limit]).await.map_err(failed)?;
        rows.iter().map(|row| row.id(0).map(EventId)).collect()
    }

    async fn heads(&self, after: Option<InstanceId>, limit: usize) -> Result<Vec<(InstanceId, Head)>, StoreError> {
        let limit = Value::count(limit as u64);
        let rows = match after {
            Some(id) => self.rows(&self.sql.heads, &[Value::Id(id.0), limit]).await?,
            None => {
                let from_the_first = self.sql.heads.replace("instance_id > ", "instance_id >= ");
                self.rows(&from_the_first, &[Value::Id(Uuid::nil()), limit]).await?
            }
        };
        rows.iter().map(|row| log::head_row(row)).collect()
    }

    async fn latest_checkpoint(&self) -> Result<Option<CheckpointRow>, StoreError> {
        self.one(&self.sql.latest, &[], log::checkpoint_row).await
    }

    async fn checkpoints(&self, size: u64, limit: usize) -> Result<Vec<CheckpointRow>, StoreError> {
        let rows = self.rows(&self.sql.checkpoints, &[Value::count(size), Value::count(limit as u64)]).await?;
        rows.iter().map(|row| log::checkpoint_row(row)).collect()
    }

    async fn verified(&self) -> Result<Option<VerifiedRow>, StoreError> {
        self.one(self.sql.verified, &[], log::verified_row).await
    }

    async fn rotations(&self) -> Result<Vec<RotationRow>, StoreError> {
        self.rows(self.sql.rotations, &[]).await?.iter().map(|row| log::rotation_row(row)).collect()
    }
}
