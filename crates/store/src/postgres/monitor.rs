//! What a node has seen of workers and of lag, on PostgreSQL, on the connections that reads use.

use super::connect::failed;
use super::read::{connection, parameters};
use crate::monitor::{self, MonitorSql};
use crate::select::Dialect;
use crate::value::{Columns, Value};
use async_trait::async_trait;
use countersign_engine::port::StoreError;
use countersign_engine::port::monitor::{ClassRow, HeartbeatRow, LagMinute, MonitorStore, WorkMinute};
use countersign_kernel::Time;
use deadpool_postgres::{Pool, Transaction};
use std::sync::Arc;
use uuid::Uuid;

pub struct PostgresMonitor {
    pool: Pool,
    sql: MonitorSql,
}

impl PostgresMonitor {
    pub fn new(pool: Pool) -> Self {
        PostgresMonitor { pool, sql: MonitorSql::new(Dialect::Postgres) }
    }

    async fn rows<T>(
        &self,
        sql: &str,
        values: &[Value<'_>],
        read: impl Fn(&dyn Columns) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let client = connection(&self.pool).await?;
        let statement = client.prepare_cached(sql).await.map_err(failed)?;
        let found = client.query(&statement, &parameters(values)).await.map_err(failed)?;
        found.iter().map(|row| read(row)).collect()
    }
}

async fn execute(transaction: &Transaction<'_>, sql: &str, values: &[Value<'_>]) -> Result<(), StoreError> {
    let statement = transaction.prepare_cached(sql).await.map_err(failed)?;
    transaction.execute(&statement, &parameters(values)).await.map(|_| ()).map_err(failed)
}

/// None of it has to be on the disk.
async fn relax(transaction: &Transaction<'_>) -> Result<(), StoreError> {
    transaction.batch_execute("SET LOCAL synchronous_commit = off").await.map_err(failed)
}

#[async_trait]
impl MonitorStore for PostgresMonitor {
    async fn write_heartbeats(&self, rows: &[HeartbeatRow], gone: &[(Arc<str>, Arc<str>)]) -> Result<(), StoreError> {
        let mut client = connection(&self.pool).await?;
        let transaction = client.transaction().await.map_err(failed)?;
        relax(&transaction).await?;
        if !gone.is_empty() {
            let classes: Vec<&str> = gone.iter().map(|(class, _)| &**class).collect();
            let ids: Vec<&str> = gone.iter().map(|(_, id)| &**id).collect();
            let statement = transaction.prepare_cached(&self.sql.goodbye).await.map_err(failed)?;
            transaction.execute(&statement, &[&classes, &ids]).await.map_err(failed)?;
        }
        // In one order, so that two nodes never wait for each other.
        let mut rows: Vec<&HeartbeatRow> = rows.iter().collect();
        rows.sort_unstable_by_key(|row| (&row.worker_class, &row.worker_id));
        if !rows.is_empty() {
            let classes: Vec<&str> = rows.iter().map(|row| &*row.worker_class).collect();
            let ids: Vec<&str> = rows.iter().map(|row| &*row.worker_id).collect();
            let ticks: Vec<i64> = rows.iter().map(|row| row.last_tick.0).collect();
            let oks: Vec<i64> = rows.iter().map(|row| row.last_ok.0).collect();
            let leases: Vec<i64> = rows.iter().map(|row| row.lease_until.0).collect();
            let statement = transaction.prepare_cached(&self.sql.heartbeat).await.map_err(failed)?;
            let written = transaction.execute(&statement, &[&classes, &ids, &ticks, &oks, &leases]).await;
            written.map_err(failed)?;
        }
        transaction.commit().await.map_err(failed)
    }

    async fn write_minutes(&self, node_id: Uuid, work: &[WorkMinute], lag: &[LagMinute]) -> Result<(), StoreError> {
        let mut client = connection(&self.pool).await?;
        let transaction = client.transaction().await.map_err(failed)?;
        relax(&transaction).await?;
        for row in work {
            let events = monitor::events_text(&row.events);
            execute(&transaction, &self.sql.work, &monitor::work_values(node_id, row, &events)).await?;
        }
        for row in lag {
            let histogram = row.histogram.to_text();
            execute(&transaction, &self.sql.lag, &monitor::lag_values(node_id, row, &histogram)).await?;
        }
        transaction.commit().await.map_err(failed)
    }

    async fn forget(&self, heard_before: Time, kept: &[String], minute: i64) -> Result<(), StoreError> {
        let mut client = connection(&self.pool).await?;
        let transaction = client.transaction().await.map_err(failed)?;
        let statement = transaction.prepare_cached(&self.sql.forget_heartbeats).await.map_err(failed)?;
        transaction.execute(&statement, &[&heard_before.0, &kept]).await.map_err(failed)?;
        for sql in &self.sql.forget_minutes {
            execute(&transaction, sql, &[Value::Int(minute)]).await?;
        }
        transaction.commit().await.map_err(failed)
    }

    async fn worker_classes(&self) -> Result<Vec<ClassRow>, StoreError> {
        self.rows(self.sql.classes, &[], monitor::class_row).await
    }

    async fn workers_of(&self, worker_class: &str, limit: usize) -> Result<Vec<HeartbeatRow>, StoreError> {
        let values = [Value::Text(worker_class), Value::count(limit as u64)];
        self.rows(&self.sql.workers, &values, monitor::heartbeat_row).await
    }

    async fn work_since(&self, minute: i64) -> Result<Vec<WorkMinute>, StoreError> {
        self.rows(&self.sql.work_since, &[Value::Int(minute)], monitor::work_row).await
    }

    async fn lag_since(&self, minute: i64) -> Result<Vec<LagMinute>, StoreError> {
        self.rows(&self.sql.lag_since, &[Value::Int(minute)], monitor::lag_row).await
    }
}
