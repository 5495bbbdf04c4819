//! Delegations: a substitute whom an approver names ahead, for a period and a scope.

use serde::{Deserialize, Serialize};

/// Name a substitute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MakeDelegation {
    /// The substitute: a registered actor.
    pub delegate_ref: String,
    /// The scope of the gates, matched exactly: `pharma:batch-release:qp-sign-off`.
    pub scope: String,
    /// From when on the substitute decides.
    pub from: String,
    /// From when on they do not any more. Later than `from`, and in the future.
    pub until: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DelegationMade {
    pub delegation_id: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum DelegationStatus {
    /// Its period has not begun.
    Pending,
    Active,
    /// Its period is over.
    Expired,
    Revoked,
}

/// A delegation, ended or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Delegation {
    pub delegation_id: String,
    /// The approver.
    pub delegator_ref: String,
    /// The substitute.
    pub delegate_ref: String,
    pub scope: String,
    pub from: String,
    pub until: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub status: DelegationStatus,
    pub made_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<String>,
}

/// Which part of the list to read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct DelegationQuery {
    /// At most this many items (default 50, at most 500).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The `next` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
