//! What somebody may do now, and why not.

use serde::{Deserialize, Serialize};

/// Something that the caller could ask for. What would be accepted and change nothing is not listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OfferedAction {
    /// The action of a process's transition; else the last part of the route that asks for it, or the decision on a gate:
    /// `open-gate`, `approve`, `reject`, `withdraw`.
    pub action: String,
    /// The command: `fire_transition`, `open_gate`, `decide_gate`, `claim_step` and so on.
    pub command: String,
    /// The transition that it would make (`T2`), where it would be accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transition_id: Option<String>,
    /// The state afterwards of the process, of the run, or of the step.
    pub to_state: String,
    /// It would be accepted, given what it `needs`.
    pub ok: bool,
    /// Why not.
    pub problems: Vec<ActionProblem>,
    /// What the caller has to give with it.
    pub needs: Vec<String>,
    /// The gate that it is about, or that it needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<String>,
    /// The approval that it would spend: to be sent as `approval_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<String>,
    /// Its name, by key in the texts of `GET /v1/registry`, and what is filled into it.
    #[serde(default)]
    pub label_key: String,
    #[serde(default)]
    pub args: serde_json::Map<String, serde_json::Value>,
    #[serde(default)]
    pub severity: ActionSeverity,
}

/// How much weight an action has for who looks at it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ActionSeverity {
    /// It takes the work forward.
    Primary,
    #[default]
    Plain,
    /// It ends or undoes work.
    Danger,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ActionProblem {
    /// The guard that refuses it; where none is named, the code of the refusal.
    pub guard: String,
    pub message: String,
}
