//! The stores behind the gates: approval steps, assignments, and the caller's in-tray.

use super::QuorumRule;
use serde::{Deserialize, Serialize};

/// The state of an approval step or a quorum chain. Only `Pending` can still change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ApprovalState {
    Pending,
    Approved,
    Rejected,
    Withdrawn,
}

/// The quorum that an approval step belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChainSummary {
    pub chain_id: String,
    pub state: ApprovalState,
    pub rule: QuorumRule,
    /// For `m-of-n`: how many approvals are needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub m: Option<u32>,
    /// How many approved before the quorum had its outcome.
    #[serde(default)]
    pub approved: u32,
    /// How many approvals clear it, under any rule.
    #[serde(default)]
    pub needed: u32,
    /// How many are asked.
    #[serde(default)]
    pub approvers: u32,
}

/// One approval asked of one person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ApprovalStep {
    pub step_id: String,
    /// What is to be approved: the process's subject and the action, `br-2026-0412:release`.
    pub subject_ref: String,
    pub approver_ref: String,
    pub submitter_ref: String,
    pub scope: String,
    pub submitted_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub state: ApprovalState,
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
    /// The process that waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<String>,
    /// The transition that it guards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The quorum that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain_id: Option<String>,
}

/// Which approval steps to list. Both ends of a time range are inclusive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct ApprovalStepQuery {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_id: Option<String>,
    /// Only those that this process waits for, or once waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_ref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approver_ref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submitter_ref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<ApprovalState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submitted_after: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submitted_before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_after: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withdrawn_after: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withdrawn_before: Option<String>,
    /// At most this many items (default 50, at most 500).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The `next` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum AssignmentStatus {
    Active,
    Recalled,
    Transferred,
}

/// An entry of an actor's in-tray, active or ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Assignment {
    pub assignment_id: String,
    /// The task: the id of an approval step.
    pub task_ref: String,
    pub assignee_ref: String,
    pub assigned_at: String,
    pub status: AssignmentStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recalled_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transferred_at: Option<String>,
}

/// Which assignments to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct AssignmentQuery {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assignment_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_ref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assignee_ref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<AssignmentStatus>,
    /// At most this many items (default 50, at most 500).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The `next` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// How far the quorum has come that an approval belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QuorumProgress {
    pub rule: QuorumRule,
    pub approvers: u64,
    /// How many approvals it needs.
    pub needed: u64,
    pub approved: u64,
    pub rejected: u64,
}

/// Something that waits for the caller's decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InboxItem {
    /// What the gate belongs to: `process` or `run`.
    #[serde(default)]
    pub kind: String,
    /// `name@version`; absent for a process that was started with an inline declaration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<String>,
    /// Who asks: the actor who opened the gate; if it opened by itself, the actor who started the process or run.
    #[serde(default)]
    pub requested_by: String,
    /// The approver in whose place the caller may decide, as the substitute whom they named. Absent where the caller is the
    /// approver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<String>,
    pub assignment_id: String,
    /// The task: the id of the approval step to decide.
    pub task_ref: String,
    pub instance_id: String,
    pub action: String,
    pub scope: String,
    pub subject_ref: String,
    /// What was said when the gate was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Of a process: the state that the approved transition leads to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_state: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quorum: Option<QuorumProgress>,
    pub assigned_at: String,
    /// By when to decide, where the definition says so (`gate_spec.<label>.due`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<String>,
    /// What is asked, and the digest that binds the decision to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<serde_json::Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_digest: Option<String>,
    /// Of a runbook: how the checks of its steps held so far, and which files they left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<super::StepCheck>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<super::StepArtifact>,
}

/// Which part of the caller's in-tray to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct InboxQuery {
    /// At most this many items (default 50, at most 500).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The `next` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// How much waits for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InboxCount {
    pub count: u64,
}
