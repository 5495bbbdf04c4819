//! The statements of what a node has seen of workers and of lag, which both databases share.

use crate::select::Dialect;
use crate::value::{Columns, Value};
use countersign_engine::monitor::histogram::Histogram;
use countersign_engine::port::StoreError;
use countersign_engine::port::monitor::{ClassRow, HeartbeatRow, LagMinute, WorkMinute};
use countersign_kernel::EventId;
use uuid::Uuid;

pub struct MonitorSql {
    /// PostgreSQL takes arrays, SQLite one row at a time.
    pub heartbeat: String,
    /// Parameters: class, id; arrays on PostgreSQL.
    pub goodbye: String,
    pub work: String,
    pub lag: String,
    /// Parameters: time, classes (an array; on SQLite JSON).
    pub forget_heartbeats: String,
    /// Parameter: minute.
    pub forget_minutes: [String; 2],
    pub classes: &'static str,
    /// Parameters: class, limit.
    pub workers: String,
    /// Parameter: minute.
    pub work_since: String,
    pub lag_since: String,
}

const HEARTBEAT: &str = "worker_class, worker_id, last_tick_at_us, last_ok_at_us, lease_until_us";

impl MonitorSql {
    pub fn new(dialect: Dialect) -> Self {
        let [a, b, c, d, e, f] = [1, 2, 3, 4, 5, 6].map(|n| dialect.hole(n));
        let (rows, gone, kept, latest) = match dialect {
            // Without `WHERE` SQLite reads ON as that of a join.
            Dialect::Sqlite => (
                format!("VALUES ({a}, {b}, {c}, {d}, {e})"),
                format!("worker_class = {a} AND worker_id = {b}"),
                format!("worker_class NOT IN (SELECT value FROM json_each({b}))"),
                "MAX",
            ),
            Dialect::Postgres => (
                format!("SELECT * FROM UNNEST({a}::text[], {b}::text[], {c}::bigint[], {d}::bigint[], {e}::bigint[])"),
                format!("(worker_class, worker_id) IN (SELECT * FROM UNNEST({a}::text[], {b}::text[]))"),
                format!("NOT (worker_class = ANY({b}::text[]))"),
                "GREATEST",
            ),
        };
        let newer = |column: &str| format!("{column} = {latest}(worker_heartbeats.{column}, excluded.{column})");
        let newer = ["last_tick_at_us", "last_ok_at_us", "lease_until_us"].map(newer).join(", ");
        MonitorSql {
            heartbeat: format!(
                "INSERT INTO worker_heartbeats ({HEARTBEAT}) {rows} ON CONFLICT (worker_class, worker_id) DO UPDATE SET {newer}"
            ),
            goodbye: format!("DELETE FROM worker_heartbeats WHERE {gone}"),
            work: format!(
                "INSERT INTO worker_minutes (minute, worker_class, node_id, jobs, errors, events) \
                 VALUES ({a}, {b}, {c}, {d}, {e}, {f}) ON CONFLICT (minute, worker_class, node_id) \
                 DO UPDATE SET jobs = excluded.jobs, errors = excluded.errors, events = excluded.events"
            ),
            lag: format!(
                "INSERT INTO lag_minutes (minute, producer, consumer, node_id, histogram) VALUES ({a}, {b}, {c}, {d}, {e}) \
                 ON CONFLICT (minute, producer, consumer, node_id) DO UPDATE SET histogram = excluded.histogram"
            ),
            forget_heartbeats: format!("DELETE FROM worker_heartbeats WHERE last_tick_at_us < {a} AND {kept}"),
            forget_minutes: ["worker_minutes", "lag_minutes"]
                .map(|table| format!("DELETE FROM {table} WHERE minute < {a}")),
            classes: "SELECT worker_class, COUNT(*), MAX(last_tick_at_us), MAX(last_ok_at_us), MAX(lease_until_us) \
                      FROM worker_heartbeats GROUP BY worker_class ORDER BY worker_class",
            workers: format!(
                "SELECT {HEARTBEAT} FROM worker_heartbeats WHERE worker_class = {a} \
                 ORDER BY last_tick_at_us DESC, worker_id LIMIT {b}"
            ),
            work_since: format!(
                "SELECT minute, worker_class, jobs, errors, events FROM worker_minutes WHERE minute >= {a} ORDER BY minute"
            ),
            lag_since: format!(
                "SELECT minute, producer, consumer, histogram FROM lag_minutes WHERE minute >= {a} ORDER BY minute"
            ),
        }
    }
}

pub fn heartbeat_values(row: &HeartbeatRow) -> [Value<'_>; 5] {
    [
        Value::Text(&row.worker_class),
        Value::Text(&row.worker_id),
        Value::time(row.last_tick),
        Value::time(row.last_ok),
        Value::time(row.lease_until),
    ]
}

/// The ids with a blank between them.
pub fn events_text(events: &[EventId]) -> String {
    let texts: Vec<String> = events.iter().map(ToString::to_string).collect();
    texts.join(" ")
}

pub fn work_values<'v>(node_id: Uuid, row: &'v WorkMinute, events: &'v str) -> [Value<'v>; 6] {
    [
        Value::Int(row.minute),
        Value::Text(&row.worker_class),
        Value::Id(node_id),
        Value::count(row.jobs),
        Value::count(row.errors),
        Value::Text(events),
    ]
}

pub fn lag_values<'v>(node_id: Uuid, row: &'v LagMinute, histogram: &'v str) -> [Value<'v>; 5] {
    [
        Value::Int(row.minute),
        Value::Text(&row.producer),
        Value::Text(&row.consumer),
        Value::Id(node_id),
        Value::Text(histogram),
    ]
}

pub fn class_row(row: &dyn Columns) -> Result<ClassRow, StoreError> {
    Ok(ClassRow {
        worker_class: row.text(0)?.into(),
        workers: row.count(1)?,
        last_tick: row.time(2)?,
        last_ok: row.time(3)?,
        lease_until: row.time(4)?,
    })
}

pub fn heartbeat_row(row: &dyn Columns) -> Result<HeartbeatRow, StoreError> {
    Ok(HeartbeatRow {
        worker_class: row.text(0)?.into(),
        worker_id: row.text(1)?.into(),
        last_tick: row.time(2)?,
        last_ok: row.time(3)?,
        lease_until: row.time(4)?,
    })
}

pub fn work_row(row: &dyn Columns) -> Result<WorkMinute, StoreError> {
    let events = row.text(4)?;
    let corrupt = || StoreError::Corrupt(format!("`{events}` are no ids of records"));
    Ok(WorkMinute {
        minute: row.int(0)?,
        worker_class: row.text(1)?.into(),
        jobs: row.count(2)?,
        errors: row.count(3)?,
        events: events.split_whitespace().map(EventId::parse).collect::<Option<_>>().ok_or_else(corrupt)?,
    })
}

pub fn lag_row(row: &dyn Columns) -> Result<LagMinute, StoreError> {
    let text = row.text(3)?;
    let corrupt = || StoreError::Corrupt(format!("`{text}` is no histogram"));
    Ok(LagMinute {
        minute: row.int(0)?,
        producer: row.text(1)?.into(),
        consumer: row.text(2)?.into(),
        histogram: Histogram::parse(&text).ok_or_else(corrupt)?,
    })
}
