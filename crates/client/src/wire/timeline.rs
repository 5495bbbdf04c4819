//! The audit event timeline: every record of a trace, a run or an instance, in order.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One record, with what it did and what it belongs to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TimelineEntry {
    pub event_id: String,
    pub recorded_at: String,
    pub instance_id: String,
    pub sequence: u64,
    pub action_ref: String,
    pub actor_ref: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// The moves of steps; steps with the same move are grouped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transitions: Vec<TimelineMove>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub run_transitions: Vec<TimelineMove>,
    /// `VALIDATE: attempt 2/5`, `VALIDATE: retrying (attempt 3/5)`, `PAY: waiting_external`, `SIGN: blocked red (threshold)`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub facets: Vec<String>,
    /// Attempts that ended without success, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<TimelineError>,
    /// Why the run moved, where it was an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The gate that was opened, decided or passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<TimelineGate>,
    /// The record that closed what this one reopens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reopens: Option<TimelineLink>,
    /// The record that reopened what this one closed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reopened_by: Vec<TimelineLink>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its content was destroyed; the record itself is kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub purged: bool,
    /// All that the record says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TimelineMove {
    pub transition_id: String,
    /// The step's name; of several, their names: `A, B, C`, and how many more there are. Absent for the run itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The step is what undoes this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensates: Option<String>,
    pub from_state: String,
    pub to_state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor_class: Option<String>,
    pub trigger_ref: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emitted_event_type: Option<String>,
}

/// One attempt that ended without success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TimelineError {
    /// The step's name, or those of several.
    pub step: String,
    /// Which attempt it was.
    pub attempt: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_category: Option<String>,
    /// It is tried again by itself.
    pub retried: bool,
}

/// What a record says of a gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TimelineGate {
    /// The transition's action; in a run the step's name, or the run's own gate.
    pub action: String,
    /// Of a gate that was opened: who decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvers: Vec<String>,
    /// Of a decision: `approve`, `reject` or `withdraw`; of a quorum that is settled, what came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
}

/// Another record that belongs beside this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TimelineLink {
    pub event_id: String,
    pub action_ref: String,
    pub actor_ref: String,
    pub recorded_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correction_reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimelineQuery {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
