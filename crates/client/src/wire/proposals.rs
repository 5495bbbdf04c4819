//! Proposals: a change that takes effect with its approval, and not before.

use super::definitions::DefinitionProblem;
use super::graph::DefinitionDiff;
use super::processes::Gate;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Propose a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewProposal {
    /// `workflow`, `process` or `machine`, whose merge publishes the document; or a kind of your own, which you apply.
    pub proposal_kind: String,
    /// What is to change: a definition's name, or what your kind is about.
    pub target: String,
    /// The version that it changes; 0 where there is none yet.
    pub base_version: u32,
    /// The whole document of the next version, byte for byte. Needed for a definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<String>,
    /// What is to be done, in terms of your kind. Needed for a kind of your own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub proposed_action: Option<Map<String, Value>>,
    /// Where the evidence for it is. Needed for `kg_feedback` and `ai_agent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence_ref: Option<String>,
    /// What else it concerns.
    pub affected: Vec<String>,
    pub reason: String,
    /// `kg_feedback` or `ai_agent`, where it is one; otherwise the kind of your actor, `human` or `service`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposer_class: Option<String>,
}

/// Replace what is proposed. The proposal is a draft again, and approvals of what it was count no more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct EditProposal {
    pub base_version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub proposed_action: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence_ref: Option<String>,
    pub affected: Vec<String>,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProposalMade {
    pub proposal_id: String,
    pub state: String,
}

/// Submit, review or withdraw a proposal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MoveProposal {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CommentOnProposal {
    pub text: String,
}

/// Merge an approved proposal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MergeProposal {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Where the evidence is that it was applied. Needed for a kind of your own, and for no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence_ref: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProposalMoved {
    pub state: String,
    /// The record that says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
}

/// What a merge published; nothing for a kind of your own. Merged again, a proposal gives the same answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProposalMerged {
    pub state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProposalSummary {
    pub proposal_id: String,
    pub proposal_kind: String,
    pub target: String,
    /// `draft`, `submitted`, `review`, `approved`, `rejected`, `merged` or `withdrawn`.
    pub state: String,
    pub proposer_ref: String,
    pub created_at: String,
}

/// What was proposed at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProposalVersion {
    pub base_version: u32,
    /// SHA-256 of the document, in hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    pub at: String,
    /// The record that says it.
    pub event_id: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProposalComment {
    pub by: String,
    pub at: String,
    pub text: String,
    pub event_id: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProposalView {
    pub proposal_id: String,
    pub proposal_kind: String,
    pub target: String,
    pub state: String,
    pub proposer_ref: String,
    /// `human`, `service`, `kg_feedback` or `ai_agent`. This and what follows is missing where the record was purged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposer_class: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_version: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// What is proposed now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub proposed_action: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence_ref: Option<String>,
    pub affected: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub created_at: String,
    /// The newest version of the definition; 0 where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest_version: Option<u32>,
    /// Who approves it.
    pub approvers: Vec<String>,
    /// What was proposed before and is proposed now, oldest first.
    pub versions: Vec<ProposalVersion>,
    pub comments: Vec<ProposalComment>,
    /// One for each approver who was asked.
    pub gates: Vec<Gate>,
    /// What the merge published, or the evidence that it was applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub merged: Option<Map<String, Value>>,
}

/// What the proposed document changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProposalDiff {
    pub base_version: u32,
    pub newest_version: u32,
    /// From the base; nothing where it is the first version, or where the document has problems.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<DefinitionDiff>,
    /// From the newest version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<DefinitionDiff>,
    pub problems: Vec<DefinitionProblem>,
    /// The base is not the newest version any more: before the merge, change the proposal to that.
    pub needs_rebase: bool,
}

/// Which proposals to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct ProposalQuery {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// At most this many items (default 50, at most 500).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The `next` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// `asc` (default) or `desc`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
}
