//! The statements of the log that both databases share, and how its rows are read. The order of commits and the lease
//! differ, so each store has its own.

use crate::decode;
use crate::select::{Dialect, RECORD};
use crate::statement::{Kind, Statement};
use crate::value::{Columns, Type, Value};
use countersign_engine::port::log::{
    CheckpointRow, EntryRow, LogIdentity, Node, RotationRow, Span, Unsealed, VerifiedRow,
};
use countersign_engine::port::{Head, StoreError};
use countersign_engine::rows::RecordRow;
use countersign_kernel::{Digest, EventId, InstanceId};
use countersign_ledger::record_hash;

pub const ENTRY: Statement = Statement {
    table: "log_entries",
    columns: &[("log_index", Type::Int), ("event_id", Type::Id), ("record_hash", Type::Bytes)],
    kind: Kind::Insert,
    keys: 1,
};
pub const NODE: Statement = Statement {
    table: "log_nodes",
    columns: &[("level", Type::Int), ("node_index", Type::Int), ("hash", Type::Bytes)],
    kind: Kind::Insert,
    keys: 1,
};
pub const CHECKPOINT: Statement = Statement {
    table: "log_checkpoints",
    columns: &[("size", Type::Int), ("root", Type::Bytes), ("note", Type::Text), ("signed_at_us", Type::Int)],
    kind: Kind::InsertIfAbsent,
    keys: 1,
};

pub const ROTATION: Statement = Statement {
    table: "log_rotations",
    columns: &[("size", Type::Int), ("note", Type::Text), ("rotated_at_us", Type::Int)],
    kind: Kind::InsertIfAbsent,
    keys: 1,
};

pub fn rotation_values(row: &RotationRow) -> Vec<Value<'_>> {
    vec![Value::count(row.size), Value::Text(&row.note), Value::time(row.rotated_at)]
}

pub fn rotation_row(row: &dyn Columns) -> Result<RotationRow, StoreError> {
    Ok(RotationRow { size: row.count(0)?, note: row.text(1)?, rotated_at: row.time(2)? })
}

pub fn verified_values(row: &VerifiedRow) -> [Value<'_>; 5] {
    let VerifiedRow { at, by, records, size, findings } = row;
    [Value::time(*at), Value::Text(by), Value::count(*records), Value::count(*size), Value::count(*findings)]
}

pub fn verified_row(row: &dyn Columns) -> Result<VerifiedRow, StoreError> {
    Ok(VerifiedRow {
        at: row.time(0)?,
        by: row.text(1)?,
        records: row.count(2)?,
        size: row.count(3)?,
        findings: row.count(4)?,
    })
}

pub fn entry_values(log_index: u64, entry: &Unsealed) -> Vec<Value<'_>> {
    vec![Value::count(log_index), Value::Id(entry.event_id.0), Value::digest(&entry.record_hash)]
}

pub fn node_values(node: &Node) -> Vec<Value<'_>> {
    vec![Value::Int(i64::from(node.level)), Value::count(node.index), Value::digest(&node.hash)]
}

pub fn checkpoint_values(row: &CheckpointRow) -> Vec<Value<'_>> {
    vec![Value::count(row.size), Value::digest(&row.root), Value::Text(&row.note), Value::time(row.signed_at)]
}

/// Reads and small writes, the same text but for the form of a parameter.
pub struct LogSql {
    pub begin: String,
    pub identity: &'static str,
    pub size: &'static str,
    pub extend_note: String,
    /// The next key, where the log still has the one that was meant.
    pub rekey: String,
    pub rotations: &'static str,
    pub leaves: String,
    pub nodes: String,
    pub entries: String,
    /// An entry is taken from its record where the record is found by its id.
    pub record: String,
    pub heads: String,
    pub latest: String,
    pub checkpoints: String,
    pub put_verified: String,
    pub verified: &'static str,
}

impl LogSql {
    pub fn new(dialect: Dialect) -> Self {
        let [a, b, c, d, e] = [1, 2, 3, 4, 5].map(|n| dialect.hole(n));
        let checkpoint = "SELECT size, root, note, signed_at_us FROM log_checkpoints";
        LogSql {
            begin: format!(
                "INSERT INTO log_state (id, origin, verifier_key) VALUES (1, {a}, {b}) ON CONFLICT DO NOTHING"
            ),
            identity: "SELECT origin, verifier_key FROM log_state",
            size: "SELECT COALESCE(MAX(log_index) + 1, 0) FROM log_entries",
            extend_note: format!("UPDATE log_checkpoints SET note = {b} WHERE size = {a}"),
            rekey: format!("UPDATE log_state SET verifier_key = {a} WHERE origin = {b} AND verifier_key = {c}"),
            rotations: "SELECT size, note, rotated_at_us FROM log_rotations ORDER BY size",
            leaves: format!(
                "SELECT record_hash FROM log_entries WHERE log_index >= {a} AND log_index < {b} ORDER BY log_index"
            ),
            nodes: format!(
                "SELECT hash FROM log_nodes WHERE level = {a} AND node_index >= {b} AND node_index < {c} ORDER BY node_index"
            ),
            entries: format!(
                "SELECT log_index, event_id, record_hash FROM log_entries WHERE log_index >= {a} ORDER BY log_index LIMIT {b}"
            ),
            record: format!("SELECT {RECORD} FROM records WHERE event_id = {a}"),
            heads: format!(
                "SELECT sequence, head, last_time_us, instance_id FROM instances WHERE instance_id > {a} ORDER BY instance_id LIMIT {b}"
            ),
            latest: format!("{checkpoint} ORDER BY size DESC LIMIT 1"),
            checkpoints: format!("{checkpoint} WHERE size >= {a} ORDER BY size LIMIT {b}"),
            put_verified: format!(
                "INSERT INTO log_verified (id, verified_at_us, verified_by, records, size, findings) VALUES (1, {a}, {b}, {c}, {d}, {e}) \
                 ON CONFLICT (id) DO UPDATE SET verified_at_us = excluded.verified_at_us, verified_by = excluded.verified_by, \
                 records = excluded.records, size = excluded.size, findings = excluded.findings"
            ),
            verified: "SELECT verified_at_us, verified_by, records, size, findings FROM log_verified",
        }
    }

    /// The query of a span and its parameters.
    pub fn span(&self, span: Span) -> (&str, Vec<Value<'static>>) {
        let (from, to) = (Value::count(span.from), Value::count(span.to));
        if span.level == 0 {
            (&self.leaves, vec![from, to])
        } else {
            (&self.nodes, vec![Value::Int(i64::from(span.level)), from, to])
        }
    }
}

/// A span that has holes is worth nothing.
pub fn require_whole(span: Span, hashes: Vec<Digest>) -> Result<Vec<Digest>, StoreError> {
    let expected = span.to.saturating_sub(span.from);
    if hashes.len() as u64 == expected {
        return Ok(hashes);
    }
    let Span { level, from, to } = span;
    let found = hashes.len();
    Err(StoreError::Corrupt(format!("the log has {found} of the hashes {from} to {to} of level {level}")))
}

pub fn record_of_last_entry_is_missing() -> StoreError {
    StoreError::Corrupt("the record of the log's last entry is missing".to_owned())
}

pub fn identity_row(row: &dyn Columns) -> Result<LogIdentity, StoreError> {
    Ok(LogIdentity { origin: row.text(0)?, verifier_key: row.text(1)? })
}

/// event_id, header, recorded_at_us
pub fn unsealed_row(row: &dyn Columns) -> Result<Unsealed, StoreError> {
    Ok(Unsealed { event_id: EventId(row.id(0)?), record_hash: record_hash(&row.bytes(1)?), recorded_at: row.time(2)? })
}

pub fn checkpoint_row(row: &dyn Columns) -> Result<CheckpointRow, StoreError> {
    Ok(CheckpointRow { size: row.count(0)?, root: row.digest(1)?, note: row.text(2)?, signed_at: row.time(3)? })
}

pub fn head_row(row: &dyn Columns) -> Result<(InstanceId, Head), StoreError> {
    Ok((InstanceId(row.id(3)?), decode::head_row(row)?))
}

/// An entry whose record is still to be found.
pub fn entry_row(row: &dyn Columns) -> Result<EntryRow, StoreError> {
    Ok(EntryRow { log_index: row.count(0)?, event_id: EventId(row.id(1)?), record_hash: row.digest(2)?, record: None })
}

/// An unreadable record counts as missing: verification reports it.
pub fn record_row(row: &dyn Columns) -> Result<Option<RecordRow>, StoreError> {
    match decode::record_row(row) {
        Err(StoreError::Corrupt(_)) => Ok(None),
        decoded => decoded.map(Some),
    }
}
