//! Governance: the board of problems, and the problems of a category.

use super::{FailedAttempt, ReplayRequest};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What kind of problem it is. The board shows all eight, always.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProblemCategory {
    /// Deliveries that were given up, and dead steps of held runs.
    Dlq,
    SilentWorkers,
    OverdueSteps,
    SchemaViolations,
    EventLag,
    IntegrityWarnings,
    FailedRuns,
    OrphanRuns,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum TrafficLight {
    Green,
    Yellow,
    Red,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProblemBoard {
    /// One row for each category, in this order.
    pub items: Vec<ProblemCount>,
}

/// A row of the board.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProblemCount {
    pub category: ProblemCategory,
    pub light: TrafficLight,
    /// How many are open.
    pub count: u64,
    /// Since when the oldest one that is open is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_at: Option<String>,
    /// Absent where there never was a problem: without an event there is nothing to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
}

/// A sentence with the evidence behind it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Summary {
    pub text: String,
    pub text_key: String,
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub args: Map<String, Value>,
    /// How many events it sums up; at least 1.
    pub source_event_count: u64,
    /// How many there are, whether they are all named or not.
    pub source_event_total: u64,
    pub time_window: TimeWindow,
    pub generated_by: GeneratedBy,
    /// From 0 to 1; null for a deterministic rule.
    pub confidence: Option<f64>,
    /// The events, at most 100.
    pub source_event_refs: Vec<String>,
    /// Where what happened can be read.
    pub timeline: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TimeWindow {
    pub start_at: String,
    pub end_at: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct GeneratedBy {
    pub summarizer_kind: SummarizerKind,
    pub summarizer_ref: String,
    pub summarizer_version: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SummarizerKind {
    SqlFn,
    AiAgent,
    DeterministicRule,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProblemState {
    Open,
    Resolved,
}

/// A problem. It opened with one event, and is resolved by another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProblemItem {
    pub problem_id: String,
    pub state: ProblemState,
    /// The record, or the outgoing event, that opened it.
    pub opened_event_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_event_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_class: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    pub since: String,
    pub detail: String,
    /// Where what happened can be read.
    pub timeline: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum DeadLetterKind {
    /// An event that a webhook or a stream did not take.
    Delivery,
    /// A step that failed for good, in a run that waits for what becomes of it.
    Step,
}

/// A delivery that was given up, or a dead step of a held run: a problem of the category `dlq`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeadLetter {
    /// The id of the problem.
    pub dead_letter_id: String,
    pub kind: DeadLetterKind,
    pub state: ProblemState,
    pub run_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Of a delivery: the event, and who did not take it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outbox_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<String>,
    pub since: String,
    pub detail: String,
    /// Where what happened can be read.
    pub timeline: String,
}

/// A dead letter with what it holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeadLetterView {
    #[serde(flatten)]
    pub letter: DeadLetter,
    /// What the step works on, or what the event says; null once it is delivered to all.
    pub payload: Option<Value>,
    /// `transient`, `validation` and so on, of a step whose failure has a class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_class: Option<String>,
    /// How often it was tried.
    pub attempts: u64,
    /// Of a delivery: why the last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Of a step: every attempt that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempt_log: Vec<FailedAttempt>,
    /// Requests to replay it, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replay_requests: Vec<ReplayRequest>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct ProblemsQuery {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<ProblemState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
