//! What people and operators do to one step of a run, and what a person has to do.

use super::{ActionProblem, OutboundEvent};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Claim, release, escalate or retry a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ActOnStep {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The step waits: for an event, for a time, or for what its facets say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct WaitStep {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_event_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<i64>,
    /// waiting_dependency, waiting_human, waiting_external or waiting_time_gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_facet: Option<String>,
    /// Where it waits for several things at once; the first in the order above is shown first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_facets: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BlockStep {
    /// missing_input, missing_approval or config_error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What the step waited for, or what blocked it, is there; or: it cannot be completed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct EvidencedStep {
    /// Where it can be looked up: a document, a ticket, a record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence_ref: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CompleteStep {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outbound_events: Option<Vec<OutboundEvent>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A transition that the run's own machine declares. Where the engine's state changes too, what its own act asks for comes
/// along: `waiting_facet` of a wait, `output` of a completion, and so on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TransitionStep {
    /// The state it is to be in.
    pub to: String,
    /// Which transition, where several lead there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger_ref: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence_ref: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_event_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_facet: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_facets: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outbound_events: Option<Vec<OutboundEvent>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct EscalateBlock {
    /// Of the gate `escalate:<step>`, where the block has lasted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ReopenStep {
    /// Of the gate `reopen:<step>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<String>,
    /// data_error, policy_change, downstream_dependency_failed or regulatory_recall.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correction_reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ExtendDeadline {
    /// The new deadline (RFC 3339).
    pub deadline: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The result for the step, or, with `?preview=true`, the result that would follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum StepAnswer {
    Preview(Preview),
    Acted(StepActed),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StepActed {
    pub state_code: String,
    /// The derived state of the run's custom machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derived_state: Option<String>,
    /// The run's.
    pub state: String,
    /// Absent where no state changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transition_id: Option<String>,
    /// After a claim: what the step works on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
}

/// Every visit of a step to a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StepHistory {
    pub run_id: String,
    pub step: String,
    /// In order. A step that has not begun has none.
    pub visits: Vec<StepVisit>,
    /// Records of the run were purged before visits were kept: what they said of the step is missing here.
    #[serde(default)]
    pub purged: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StepVisit {
    /// The state that was visited; `to_state` says the same.
    pub state_code: String,
    pub from_state: String,
    pub to_state: String,
    pub transition_id: String,
    pub actor_class: String,
    pub trigger_ref: String,
    /// The process or run of its record.
    pub actor_ref: String,
    pub at: String,
    /// Absent where it is there still.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_at: Option<String>,
    pub event_id: String,
    /// How often the step had been reopened by then.
    pub cycle: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The record whose completion or declaration this reopens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reopens: Option<String>,
    /// The record that reopened it. What it closed stays on record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reopened_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correction_reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<String>,
}

/// What a command on a run, a step or a task would come to. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Preview {
    pub ok: bool,
    /// The first transition that would be made.
    pub transition_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emitted_event_type: Option<String>,
    /// Every guard that refuses.
    pub problems: Vec<ActionProblem>,
    /// Of a cancel: the completed steps that would be undone, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undoes: Vec<String>,
    /// Of a cancel: the completed steps that would stay as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaves: Vec<String>,
}

/// One reopening of a step, with what it reopened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StepCorrection {
    /// Counted from 1.
    pub cycle: u32,
    /// `completed` or `cannot_complete`.
    pub prior_state_code: String,
    /// The record that closed the step.
    pub prior_event_id: String,
    pub prior_actor_ref: String,
    pub prior_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_output: Option<Value>,
    pub correction_reason: String,
    pub approval_id: String,
    pub reopened_by: String,
    pub reopened_at: String,
    pub event_id: String,
}

/// A step that the caller is in charge of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorklistItem {
    pub run_id: String,
    pub definition: String,
    pub subject_ref: String,
    pub run_state: String,
    pub step: String,
    pub step_seq: u32,
    pub state_code: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derived_state: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_facet: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overdue_first_at: Option<String>,
}
