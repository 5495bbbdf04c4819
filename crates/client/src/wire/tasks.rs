//! The worker protocol (`spec/worker-protocol.md`): claiming steps of a queue, and reporting what became of them.

use super::Preview;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub const DEFAULT_LEASE_MS: i64 = 30_000;
/// The longest that a claim waits for work.
pub const MAX_WAIT_MS: u64 = 60_000;

/// Ask for steps of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ClaimTasks {
    /// Who works: a readable name, unique among the workers.
    pub worker_id: String,
    /// At most this many; 1 where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// How long the steps are the worker's; 30000 where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<i64>,
    /// How long to wait where there is nothing to do, at most 60000; 0 where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TasksClaimed {
    pub tasks: Vec<Task>,
    /// The worker's class is frozen: until it is thawed, it claims nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub frozen: bool,
}

/// A step that is the worker's until `locked_until`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Task {
    pub task_id: String,
    pub run_id: String,
    /// The step's name; for a compensation, that of the step to be undone.
    pub step: String,
    pub step_seq: u32,
    /// Counted from 1.
    pub attempt: u32,
    pub max_attempts: u32,
    /// READY_STEP, WAITING_TIMEOUT or COMPENSATION.
    pub task_type: String,
    pub input: Value,
    /// The data of the event that woke the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<Value>,
    /// The same for every attempt at this step: pass it on to whatever must not be done twice.
    pub idempotency_key: String,
    /// Proof of the lease: every report needs it.
    pub lease_token: String,
    pub locked_until: String,
}

/// The lease is prolonged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HeartbeatTask {
    pub lease_token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<i64>,
}

/// The step is done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CompleteTask {
    pub lease_token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outbound_events: Option<Vec<OutboundEvent>>,
    /// Hand me my next task in the same answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_next: Option<bool>,
    /// Of the next task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<i64>,
}

/// The step waits for an event, for a time, or for both.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct WaitTask {
    pub lease_token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_event_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_facet: Option<String>,
    /// Several facets; the first in their order is shown first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_facets: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outbound_events: Option<Vec<OutboundEvent>>,
}

/// The step failed and should be tried again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RetryTask {
    pub lease_token: String,
    pub last_error: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_category: Option<String>,
}

/// The step failed for good.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DeadTask {
    pub lease_token: String,
    pub last_error: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_category: Option<String>,
}

/// The step cannot be completed by anybody as things are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CannotCompleteTask {
    pub lease_token: String,
    /// What shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence_ref: Option<String>,
}

/// Something that the step needs from its own side is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BlockTask {
    pub lease_token: String,
    /// missing_input, missing_approval or config_error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_reason: Option<String>,
}

/// An outgoing event, sent with the step's result or not at all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct OutboundEvent {
    #[serde(rename = "type")]
    pub event_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

/// The result of the step, or, with `?preview=true`, the result that would follow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum TaskAnswer {
    Preview(Preview),
    Reported(Box<TaskReported>),
}

/// The result of the step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskReported {
    pub state_code: String,
    pub run_state: String,
    /// Where `claim_next` was asked for and there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Task>,
}
