//! What a node has seen of workers and of lag, on SQLite: read by the pool of readers, written beside the committer and
//! without waiting for the disk.

use super::Turn;
use super::connect::Location;
use super::read::{Pool, read_on, rows};
use super::side::{Side, execute, on_its_thread};
use crate::monitor::{self, MonitorSql};
use crate::select::Dialect;
use crate::value::Value;
use async_trait::async_trait;
use countersign_engine::port::StoreError;
use countersign_engine::port::monitor::{ClassRow, HeartbeatRow, LagMinute, MonitorStore, WorkMinute};
use countersign_kernel::Time;
use rusqlite::Transaction;
use std::sync::Arc;
use uuid::Uuid;

pub struct SqliteMonitor {
    readers: Arc<Pool>,
    desk: Arc<Desk>,
}

struct Desk {
    side: Side,
    sql: MonitorSql,
}

impl Desk {
    fn write(&self, work: impl FnOnce(&Transaction<'_>) -> Result<(), StoreError>) -> Result<(), StoreError> {
        self.side.with(|connection| self.side.write(connection, work))
    }
}

impl SqliteMonitor {
    pub fn new(readers: Arc<Pool>, location: Location, turn: Turn) -> Self {
        let desk = Desk { side: Side::new(location, turn), sql: MonitorSql::new(Dialect::Sqlite) };
        SqliteMonitor { readers, desk: Arc::new(desk) }
    }
}

#[async_trait]
impl MonitorStore for SqliteMonitor {
    async fn write_heartbeats(&self, rows: &[HeartbeatRow], gone: &[(Arc<str>, Arc<str>)]) -> Result<(), StoreError> {
        let (rows, gone) = (rows.to_vec(), gone.to_vec());
        on_its_thread(&self.desk, move |desk| {
            desk.write(|transaction| {
                for (class, worker_id) in &gone {
                    execute(transaction, &desk.sql.goodbye, &[Value::Text(class), Value::Text(worker_id)])?;
                }
                for row in &rows {
                    execute(transaction, &desk.sql.heartbeat, &monitor::heartbeat_values(row))?;
                }
                Ok(())
            })
        })
        .await
    }

    async fn write_minutes(&self, node_id: Uuid, work: &[WorkMinute], lag: &[LagMinute]) -> Result<(), StoreError> {
        let (work, lag) = (work.to_vec(), lag.to_vec());
        on_its_thread(&self.desk, move |desk| {
            desk.write(|transaction| {
                for row in &work {
                    let events = monitor::events_text(&row.events);
                    execute(transaction, &desk.sql.work, &monitor::work_values(node_id, row, &events))?;
                }
                for row in &lag {
                    let histogram = row.histogram.to_text();
                    execute(transaction, &desk.sql.lag, &monitor::lag_values(node_id, row, &histogram))?;
                }
                Ok(())
            })
        })
        .await
    }

    async fn forget(&self, heard_before: Time, kept: &[String], minute: i64) -> Result<(), StoreError> {
        let kept = serde_json::to_string(kept).map_err(|error| StoreError::Rejected(error.to_string()))?;
        on_its_thread(&self.desk, move |desk| {
            desk.write(|transaction| {
                let values = [Value::time(heard_before), Value::Text(&kept)];
                execute(transaction, &desk.sql.forget_heartbeats, &values)?;
                for sql in &desk.sql.forget_minutes {
                    execute(transaction, sql, &[Value::Int(minute)])?;
                }
                Ok(())
            })
        })
        .await
    }

    async fn worker_classes(&self) -> Result<Vec<ClassRow>, StoreError> {
        let desk = self.desk.clone();
        read_on(&self.readers, move |connection| rows(connection, desk.sql.classes, &[], monitor::class_row)).await
    }

    async fn workers_of(&self, worker_class: &str, limit: usize) -> Result<Vec<HeartbeatRow>, StoreError> {
        let (worker_class, desk) = (worker_class.to_owned(), self.desk.clone());
        read_on(&self.readers, move |connection| {
            let values = [Value::Text(&worker_class), Value::count(limit as u64)];
            rows(connection, &desk.sql.workers, &values, monitor::heartbeat_row)
        })
        .await
    }

    async fn work_since(&self, minute: i64) -> Result<Vec<WorkMinute>, StoreError> {
        let desk = self.desk.clone();
        read_on(&self.readers, move |connection| {
            rows(connection, &desk.sql.work_since, &[Value::Int(minute)], monitor::work_row)
        })
        .await
    }

    async fn lag_since(&self, minute: i64) -> Result<Vec<LagMinute>, StoreError> {
        let desk = self.desk.clone();
        read_on(&self.readers, move |connection| {
            rows(connection, &desk.sql.lag_since, &[Value::Int(minute)], monitor::lag_row)
        })
        .await
    }
}
