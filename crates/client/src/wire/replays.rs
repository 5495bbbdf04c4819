//! Requests to replay a dead letter.

use serde::{Deserialize, Serialize};

/// Why a dead letter should be tried again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RequestReplay {
    pub reason: String,
}

/// The request, and the gate that its approvers decide on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReplayRequested {
    /// The process of the request.
    pub dlq_replay_request_id: String,
    pub dead_letter_id: String,
    pub state: ReplayRequestState,
    pub gate: ReplayGate,
}

/// The gate of a request. It is decided at `POST /v1/processes/{dlq_replay_request_id}/gates/{action}/decision`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReplayGate {
    pub action: String,
    /// Where one person decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_id: Option<String>,
    /// Where several do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain_id: Option<String>,
    pub approvers: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReplayRequestState {
    /// It waits for its approval.
    Requested,
    /// The replay is scheduled; its outcome is not known yet.
    Approved,
    Rejected,
    Withdrawn,
    /// The outcome is known.
    Completed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReplayOutcome {
    /// The delivery arrived.
    Delivered,
    /// The step may be claimed once more; its run says what becomes of it.
    Resumed,
    /// It was given up again, or there was nothing to be tried again.
    Failed,
}

/// A request to replay a dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReplayRequest {
    pub dlq_replay_request_id: String,
    pub dead_letter_id: String,
    pub state: ReplayRequestState,
    pub requested_by: String,
    pub requested_at: String,
    /// The step, or the chain, that approved it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<ReplayOutcome>,
    /// The record that says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome_event_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayRequestFilter {
    Open,
    Closed,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct ReplayRequestsQuery {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<ReplayRequestFilter>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
