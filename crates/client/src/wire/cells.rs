//! A run in short, for whoever draws it: one small cell per step, and no outputs.

use super::Rollup;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A run as of one of its records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunCells {
    /// The number of the run's last record: everything here is as of that record. Give it as `since` to hear what changed.
    pub sequence: u64,
    /// All cells are here. Where false, only those that changed.
    pub full: bool,
    pub state: String,
    /// Of a runbook's run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    pub appearance: Looks,
    pub rollup: Rollup,
    pub progress: RunProgress,
    /// Of a DAG: the steps of the longest chain of dependencies that reaches the earliest mandatory step that has not ended.
    pub critical_path: Vec<u32>,
    pub cells: Vec<Cell>,
}

/// Completed mandatory steps. A step that was skipped is not counted in the total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunProgress {
    pub mandatory_completed: u32,
    pub mandatory_total: u32,
}

/// How something looks: a colour token, an icon, and the key of its text in the registry, with what is filled into it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Looks {
    pub color_token: String,
    pub icon: String,
    pub label_key: String,
    pub args: Map<String, Value>,
}

/// One step, task or compensation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Cell {
    pub step_seq: u32,
    pub state_code: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derived_state: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_facet: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secondary_facets: Vec<String>,
    /// Of a blocked step: `yellow_dark` or `red`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_severity: Option<String>,
    /// It has not started, and a step before it waits or is blocked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub downstream_of_blocker: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pic: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    pub attempts: u32,
    pub max_attempts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_run_id: Option<String>,
    /// The step that this one undoes. Only of a compensation, which no definition's graph shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensates: Option<u32>,
    pub color_token: String,
    pub icon: String,
    pub label_key: String,
    pub args: Map<String, Value>,
}
