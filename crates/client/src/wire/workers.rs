//! Workers and lag: who is there, what they do, and how long things wait.

use super::{ProblemState, Summary, TimeWindow, TrafficLight};
use serde::{Deserialize, Serialize};

/// Freeze or thaw a worker class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ControlWorkers {
    /// For the record.
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkersMoved {
    pub worker_class: String,
    /// Whether the class is frozen now.
    pub frozen: bool,
}

/// A worker stops working on a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LeaveQueue {
    /// The one it claimed with.
    pub worker_id: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QueueLeft {
    pub worker_class: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum WorkerStatus {
    Ok,
    Silent,
    Frozen,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkerClasses {
    pub items: Vec<WorkerClass>,
}

/// The workers of one queue and one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkerClass {
    /// `<queue>:<kind>`.
    pub worker_class: String,
    pub queue: String,
    pub kind: String,
    pub status: WorkerStatus,
    pub light: TrafficLight,
    /// What they did within the last hour, with the records that show it. Absent where they did nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_tick_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_ok_at: Option<String>,
    /// A class is silent if no worker of it ticked successfully for so long.
    pub threshold_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen: Option<FreezeView>,
    pub worker_count: u64,
    /// Those that were heard of last, at most 100.
    pub workers: Vec<WorkerView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FreezeView {
    pub by: String,
    pub at: String,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkerView {
    pub worker_id: String,
    pub status: WorkerStatus,
    pub last_tick_at: String,
    /// When it last had an answer that was no refusal, while its class was not frozen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_ok_at: Option<String>,
}

/// How long things waited, by producer and consumer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LagReport {
    pub window: TimeWindow,
    /// Pairs of which something arrived in the window.
    pub items: Vec<LagPair>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LagPair {
    /// `outbox`, `ready`, `due` or `committed`.
    pub producer: String,
    /// The sink of `outbox`, the queue of `ready`; `fired` of `due`, `sealed` of `committed`.
    pub consumer: String,
    pub light: TrafficLight,
    /// Whether a problem of `event_lag` is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<ProblemState>,
    /// How many things arrived.
    pub count: u64,
    pub lag: LagPercentiles,
    pub thresholds: LagThresholds,
    /// At most 61, oldest first; parts in which nothing arrived are left out.
    pub points: Vec<LagPoint>,
}

/// At most an eighth too high.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LagPercentiles {
    pub p50_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LagThresholds {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LagPoint {
    /// When this part of the window begins.
    pub at: String,
    pub count: u64,
    pub lag: LagPercentiles,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct LagQuery {
    /// Such as `1h`; an hour where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<String>,
}
