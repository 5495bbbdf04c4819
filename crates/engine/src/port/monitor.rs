//! What a node has seen of its workers and of how long things took. It is no evidence: rows are written now and then, many at
//! a time, need not be durable, and are deleted when they are old.

use super::StoreError;
use crate::monitor::histogram::Histogram;
use async_trait::async_trait;
use countersign_kernel::{EventId, Time};
use std::sync::Arc;
use uuid::Uuid;

/// When a worker was last heard of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeartbeatRow {
    pub worker_class: Arc<str>,
    pub worker_id: Arc<str>,
    pub last_tick: Time,
    /// When it last had an answer that was no refusal, while its class was not frozen.
    pub last_ok: Time,
    /// When the last of its leases ends: until then it need not say anything.
    pub lease_until: Time,
}

/// The same of all workers of a class together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassRow {
    pub worker_class: Arc<str>,
    pub workers: u64,
    pub last_tick: Time,
    pub last_ok: Time,
    pub lease_until: Time,
}

/// What the workers of a class have done in a minute, as one node has seen it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkMinute {
    /// Since 1970.
    pub minute: i64,
    pub worker_class: Arc<str>,
    pub jobs: u64,
    pub errors: u64,
    /// The records of the last of them.
    pub events: Vec<EventId>,
}

/// How long things waited in a minute on their way from a producer to a consumer, as one node has seen it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LagMinute {
    pub minute: i64,
    pub producer: Arc<str>,
    pub consumer: Arc<str>,
    pub histogram: Histogram,
}

/// Reads see what other nodes have written.
#[async_trait]
pub trait MonitorStore: Send + Sync {
    /// Writes all of it in one transaction. A row never goes back in time. `gone` are the workers that said goodbye, by class and
    /// id: their rows are deleted first.
    async fn write_heartbeats(&self, rows: &[HeartbeatRow], gone: &[(Arc<str>, Arc<str>)]) -> Result<(), StoreError>;
    /// Writes all of it in one transaction, in place of what this node has said of the same minutes.
    async fn write_minutes(&self, node_id: Uuid, work: &[WorkMinute], lag: &[LagMinute]) -> Result<(), StoreError>;
    /// Deletes workers that were last heard of before this time, but for those of `kept` classes; and what is known of
    /// earlier minutes.
    async fn forget(&self, heard_before: Time, kept: &[String], minute: i64) -> Result<(), StoreError>;
    /// All classes that have workers, by name.
    async fn worker_classes(&self) -> Result<Vec<ClassRow>, StoreError>;
    /// The workers of a class that were heard of last, at most `limit`.
    async fn workers_of(&self, worker_class: &str, limit: usize) -> Result<Vec<HeartbeatRow>, StoreError>;
    /// From this minute on, by minute.
    async fn work_since(&self, minute: i64) -> Result<Vec<WorkMinute>, StoreError>;
    async fn lag_since(&self, minute: i64) -> Result<Vec<LagMinute>, StoreError>;
}
