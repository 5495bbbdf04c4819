//! What to draw of a definition: its graph, and what differs between two versions.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One version of a definition as a graph: `nodes` and `edges` of a workflow; `states` and `transitions` of a process or
/// of a state machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Graph {
    /// SHA-256 of the document's exact bytes, in hex.
    pub digest: String,
    /// `process`, `workflow` or `machine`.
    pub kind: String,
    /// Of a workflow: `linear` or `dag`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<GraphNode>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edges: Option<Vec<GraphEdge>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub states: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_state: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal_states: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transitions: Option<Vec<GraphTransition>>,
}

/// One step of a workflow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GraphNode {
    pub step_seq: u32,
    pub name: String,
    /// worker, shell, http, approval, wait, workflow or human.
    pub run: String,
    pub queue: String,
    /// The person in charge, as the definition says it: a name, or an expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pic: Option<String>,
    /// The label of the approval that comes before the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<String>,
    /// Who decides that gate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvers: Vec<String>,
    /// The condition under which the step is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// The workflow that the step runs: `name@version`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    pub optional: bool,
    /// The group that the console shows the step in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    pub depends_on: Vec<u32>,
    /// Its tasks. Their `step_seq` comes behind those of all steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<GraphTask>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GraphTask {
    pub step_seq: u32,
    /// `step/task`
    pub name: String,
    pub run: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pic: Option<String>,
}

/// `to` waits for `from`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GraphEdge {
    pub from: u32,
    pub to: u32,
    /// The condition under which `to` is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GraphTransition {
    pub from: String,
    pub action: String,
    pub to: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<String>,
    /// Who decides that guard's gate, where the definition names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvers: Vec<String>,
}

/// What changes from one version of a definition to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DefinitionDiff {
    /// Steps of a workflow, states of a process or machine, by name.
    pub added: Vec<String>,
    pub removed: Vec<String>,
    pub changed: Vec<DefinitionChange>,
    pub edges: DefinitionEdges,
}

/// One value that differs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DefinitionChange {
    /// `steps.SHIP.retryPolicy.maxRetries`, `gate_spec.go.approver_ref`
    pub path: String,
    /// Null where the first version has no such value.
    pub from: Value,
    /// Null where the second version has no such value.
    pub to: Value,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DefinitionEdges {
    pub added: Vec<NamedEdge>,
    pub removed: Vec<NamedEdge>,
}

/// A dependency between two steps, or a transition between two states.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NamedEdge {
    pub from: String,
    pub to: String,
    /// The action of a transition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}
