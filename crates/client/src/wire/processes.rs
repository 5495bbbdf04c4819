//! Processes: starting one, opening and deciding its gates, firing its transitions, and the view of
//! everything that happened to it.

use super::{ApprovalState, AssignmentStatus, ChainSummary};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The finite map that a process moves on. Kept and returned in the order its author wrote it. What is absent or null in a
/// request is blank, and refused as `invalid-declaration`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Declaration {
    #[serde(default, deserialize_with = "texts")]
    pub states: Vec<String>,
    #[serde(default, deserialize_with = "blank_where_null")]
    pub transitions: Vec<Transition>,
    #[serde(default, deserialize_with = "blank_where_null")]
    pub initial_state: String,
    #[serde(default, deserialize_with = "texts")]
    pub terminal_states: Vec<String>,
}

/// One move that the declaration allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Transition {
    #[serde(default, deserialize_with = "blank_where_null")]
    pub from: String,
    #[serde(default, deserialize_with = "blank_where_null")]
    pub action: String,
    #[serde(default, deserialize_with = "blank_where_null")]
    pub to: String,
    /// The label of the approval that this move needs; absent for a free move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<String>,
    /// What its firing causes: runs that it starts, events that it sends. Only a published definition has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<Value>,
}

fn blank_where_null<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(given: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(given)?.unwrap_or_default())
}

fn texts<'de, D: Deserializer<'de>>(given: D) -> Result<Vec<String>, D::Error> {
    let given: Option<Vec<Option<String>>> = Option::deserialize(given)?;
    Ok(given.unwrap_or_default().into_iter().map(Option::unwrap_or_default).collect())
}

/// Guard label → who must approve.
pub type GateSpec = BTreeMap<String, GateEntry>;

/// Who clears a guard: one person (`approver_ref`) or several under a rule (`approvers` and `quorum`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct GateEntry {
    /// The one approver. Not together with `approvers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approver_ref: Option<String>,
    /// The approvers of a quorum, each named once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvers: Option<Vec<String>>,
    /// How many of `approvers` must approve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quorum: Option<Quorum>,
    /// What the approval is for: `pharma:batch-release:qp-sign-off`.
    pub scope: String,
    /// The approver may name a substitute ahead, for a period and this scope. Of a definition, the definition says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegable: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Quorum {
    pub rule: QuorumRule,
    /// For `m-of-n`: how many approvals are needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub m: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum QuorumRule {
    AllOfN,
    MOfN,
    OneOfN,
}

/// Start a process from a declaration or from a published definition, not both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StartProcess {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declaration: Option<Declaration>,
    /// `name` for the newest version, `name@2` for that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<String>,
    /// What the process is about: a batch, an order, a document.
    pub subject_ref: String,
    /// An entry for every guard label. With a definition, only what its entries leave to the start with `replaceable: true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate_spec: Option<GateSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProcessStarted {
    pub instance_id: String,
}

/// Ask for the approval that a guarded transition needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct OpenGate {
    pub action: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the approver is to decide on: an object, shown to the approver and bound to the decision. A run's own steps ask
    /// what the definition says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<serde_json::Value>,
}

/// The gate that was opened: `step_id` and `assignment_id`, or for a quorum `chain_id` and `steps`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GateOpened {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignment_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<Vec<GateOpenedStep>>,
}

/// One approver's step of a quorum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GateOpenedStep {
    pub step_id: String,
    pub assignment_id: String,
    pub approver_ref: String,
}

/// Decide an open gate. Rejecting and withdrawing need a reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DecideGate {
    pub decision: Decision,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Which step of a quorum. Absent: the approver's own; the initiator's withdrawal then withdraws
    /// the whole chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_id: Option<String>,
    /// The `request_digest` of the request that was read. Another one is 409 `conflict`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_digest: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    Approve,
    Reject,
    Withdraw,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GateDecided {
    pub outcome: Outcome,
    /// In a quorum gate: the chain after this decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain_state: Option<ApprovalState>,
    /// The record of the decision; absent where an answer of an older version is repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
    /// Its place within its process or run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    /// The hash of its header, in hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_hash: Option<String>,
    /// How the caller is known by it: `passkey_signed`, `actor_signed` or `server_attested`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assurance: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Approved,
    RejectedOutcome,
    Withdrawn,
}

/// Fire a transition from the current state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FireTransition {
    pub action: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TransitionFired {
    pub new_state: String,
    pub transition_id: String,
    pub sequence_number: u64,
    /// The ledger record that the same commit wrote.
    pub event_id: String,
}

/// A process with its history and its gates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkflowView {
    pub instance_id: String,
    pub subject_ref: String,
    pub initiator_ref: String,
    /// Where the declaration came from: `name@version`, or the digest of one given at start.
    pub declaration_ref: String,
    pub declaration: Declaration,
    pub gate_spec: GateSpec,
    /// The guards whose approvers the initiator named in place of the definition's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<String>,
    pub started_at: String,
    pub current_state: String,
    /// Firings, ascending by `sequence_number`, which is dense from 1. At most 500; `history_next` is the `history_cursor` of
    /// the rest.
    #[serde(default)]
    pub transition_history: Vec<HistoryEntry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history_next: Option<String>,
    /// Every approval step ever bound to a transition of this process; one item per step of a quorum.
    #[serde(default)]
    pub gates: Vec<Gate>,
}

/// A process in a list: without its history and its gates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkflowSummary {
    pub instance_id: String,
    pub subject_ref: String,
    pub initiator_ref: String,
    /// Where the declaration came from: `name@version`, or the digest of one given at start.
    pub declaration_ref: String,
    pub declaration: Declaration,
    pub gate_spec: GateSpec,
    /// The guards whose approvers the initiator named in place of the definition's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<String>,
    pub started_at: String,
    pub current_state: String,
}

impl From<WorkflowView> for WorkflowSummary {
    fn from(view: WorkflowView) -> WorkflowSummary {
        WorkflowSummary {
            instance_id: view.instance_id,
            subject_ref: view.subject_ref,
            initiator_ref: view.initiator_ref,
            declaration_ref: view.declaration_ref,
            declaration: view.declaration,
            gate_spec: view.gate_spec,
            replaced: view.replaced,
            started_at: view.started_at,
            current_state: view.current_state,
        }
    }
}

/// Which part of a process's history to read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryQuery {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history_cursor: Option<String>,
}

/// One firing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HistoryEntry {
    pub transition_id: String,
    pub sequence_number: u64,
    pub from_state: String,
    pub action: String,
    pub to_state: String,
    pub fired_at: String,
    pub actor_ref: String,
    /// Only on guarded moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard_satisfied: Option<bool>,
    /// The approval step that cleared the guard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_id: Option<String>,
    /// The quorum that cleared the guard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain_id: Option<String>,
    /// The ledger record of this firing.
    pub event_id: String,
}

/// One approval step bound to a transition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Gate {
    pub action: String,
    pub from_state: String,
    /// The guard's label.
    pub guard: String,
    pub step_id: String,
    pub state: ApprovalState,
    pub approver_ref: String,
    pub submitter_ref: String,
    pub scope: String,
    pub submitted_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// The approver in whose place a substitute decided. Absent where the approver decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision_reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawn_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawn_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawal_reason: Option<String>,
    pub assignment: GateAssignment,
    pub binding: Binding,
    pub fate: GateFate,
    /// The quorum that this step belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<ChainSummary>,
    /// It ended after its quorum had an outcome, and changed nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trailing: bool,
    /// What the approver is asked, and the digest that binds the decision to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<serde_json::Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_digest: Option<String>,
}

impl Gate {
    /// Whether the gate waits for this approver. A step that is left undecided when its quorum has an outcome waits
    /// for nobody.
    pub fn waits(&self) -> bool {
        self.state == ApprovalState::Pending && self.assignment.status == AssignmentStatus::Active
    }

    /// The state of the whole gate: the quorum's outcome, or that of the one approver.
    pub fn outcome(&self) -> ApprovalState {
        self.chain.as_ref().map_or(self.state, |chain| chain.state)
    }
}

/// The entry in the approver's in-tray.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GateAssignment {
    pub assignment_id: String,
    pub status: AssignmentStatus,
}

/// Whether this is the gate that a firing would look at, or an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Binding {
    Current,
    Superseded,
}

/// The use of the gate's approval: it is good for one firing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum GateFate {
    /// Nothing yet.
    Unspent,
    /// A firing used it.
    Consumed,
    /// The process left the state without it.
    Mooted,
}

/// Which processes to list. Both ends of a time range are inclusive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct ProcessQuery {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_ref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initiator_ref: Option<String>,
    /// `name` or `name@version`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub definition: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_state: Option<String>,
    /// How a subject or an id begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub q: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_after: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_before: Option<String>,
    /// At most this many items (default 50, at most 500).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The `next` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
