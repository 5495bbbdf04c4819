//! Runs: starting and steering them, their steps, and the events that wake them.

use super::{Gate, IdleRun, Preview};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Start a run of a published workflow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StartRun {
    /// `name` for the newest version, `name@2` for that one.
    pub definition: String,
    /// What the run works on; null where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// What the run is about: an order, a customer, a document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject_ref: Option<String>,
    /// 0 to 9; 9 goes first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// Not before this time (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_at: Option<String>,
    /// The run that this one corrects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrects: Option<String>,
    /// Starts behind the finished steps of another run, with their outputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_step: Option<FromStep>,
    /// Of a runbook: only surveys, checks and `readOnly` steps are carried out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FromStep {
    /// A run of the same definition, in whichever version.
    pub run_id: String,
    /// The first step to run again, with all steps behind it and all that the old run did not finish or undid.
    /// What comes before it must have ended there.
    pub step: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunStarted {
    pub run_id: String,
}

/// An event that starts every definition whose `on` names it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TriggerRuns {
    /// The same id twice, here or at `/v1/events`, does nothing twice. Needed with `run_id` or `correlation_key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(rename = "type")]
    pub event_type: String,
    /// The run whose waits it wakes as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// The runs whose waits it wakes as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunsTriggered {
    pub run_ids: Vec<String>,
    /// The steps that it woke, where it was for runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub woken: Vec<WokenStep>,
}

/// A run and its steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunView {
    pub run_id: String,
    /// `name@version`
    pub definition: String,
    /// The custom state machine that it was started under (`name@version`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    pub subject_ref: String,
    pub initiator_ref: String,
    /// idle, queued, executing, blocked, paused, stopped, compensating, completed, failed, cancelled or voided.
    pub state: String,
    /// How it ended or why it has stopped, if the state alone does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// `linear`: RUNNING, COMPLETED, FAILED or CANCELED.
    pub views: RunViews,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_step_seq: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_step_type: Option<String>,
    pub priority: u8,
    pub started_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_at: Option<String>,
    /// When it ended, however it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// Who cancelled or voided it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<String>,
    /// Since when it is paused, or stopped by an operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halted_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halted_by: Option<String>,
    /// What was said when it was cancelled, voided, paused or stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_key: Option<String>,
    /// Only so many runs of its definition with this key are under way at a time; the others are queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrects: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<String>,
    /// Of a runbook: the `state` of the last completed step, or `awaiting_<gate label>` while a gate waits; `pending` before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Of a runbook: what the world looked like when a step pinned it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<PinView>,
    /// Why it stopped, where that was drift.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drift: Vec<DriftView>,
    /// Why pins had no value when they were last looked at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pin_errors: Vec<PinError>,
    /// The step before which, or for which, pins are being looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surveying: Option<String>,
    /// Of a runbook: executing time that is used, and how much there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executing_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hard_cap_ms: Option<i64>,
    pub rollup: Rollup,
    /// Of a DAG: the longest chain of dependencies that reaches the earliest mandatory step that has not ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub critical_path: Vec<String>,
    /// At most 500; `steps_next` is the `steps_cursor` of the rest.
    pub steps: Vec<StepView>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps_next: Option<String>,
    pub gates: Vec<Gate>,
}

/// The files of a runbook's run, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Sidecar {
    pub files: std::collections::BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PinView {
    pub pin: String,
    /// The step that captured it last.
    pub step: String,
    /// As it is; beyond 256 bytes `sha256:<hex>`.
    pub value: Value,
    /// SHA-256 of the value's text.
    pub digest: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DriftView {
    pub pin: String,
    /// Beyond 256 bytes `sha256:<hex>`.
    pub pinned: Value,
    /// Null where the probe gave nothing; `pin_errors` says why.
    pub live: Value,
}

/// A pin that could not be looked at. Secrets are masked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PinError {
    pub pin: String,
    pub error: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CheckView {
    pub name: String,
    pub held: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ArtifactView {
    /// Relative to the step's working directory.
    pub path: String,
    pub sha256: String,
    pub size_bytes: u64,
}

/// The verdict of a check of a step of the run, for the approver of another step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StepCheck {
    pub step: String,
    pub name: String,
    pub held: bool,
}

/// A file that a step of the run has left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StepArtifact {
    pub step: String,
    pub path: String,
    pub sha256: String,
    pub size_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunViews {
    pub linear: String,
}

/// The colour of the run as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Rollup {
    /// gray, green, yellow or red.
    pub state_code: String,
    /// The step that decides it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decisive_step: Option<String>,
    /// The state of that step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decisive_state_code: Option<String>,
    pub counts: RollupCounts,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub computed_at: Option<String>,
    /// Since when it does not change: the run is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen_at: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RollupCounts {
    pub red: u64,
    pub yellow: u64,
    pub green: u64,
    pub skipped: u64,
    pub optional_excluded: u64,
}

/// One step of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StepView {
    pub name: String,
    pub step_seq: u32,
    /// `step`; `task` for a part of one, called `step/task`; or `compensation` for what undoes a step.
    pub role: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensates: Option<String>,
    /// The step that this is a task of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_of: Option<String>,
    /// worker, shell, http, approval, wait, workflow or human.
    pub run: String,
    pub queue: String,
    /// The definition says how it is undone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub compensable: bool,
    pub state_code: String,
    /// The derived state of the run's custom machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derived_state: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_facet: Option<String>,
    /// What it waits for besides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secondary_facets: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_event_type: Option<String>,
    /// The person in charge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pic: Option<String>,
    /// By when it is to be done; beyond it the step is overdue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// By when somebody is to claim it, while nobody has; beyond it the step is overdue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_by: Option<String>,
    /// Stays for ever, like the two that follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overdue_first_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_after_deadline: Option<bool>,
    /// How late it was completed, such as `1h30m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sla_breach_duration: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_reason: Option<String>,
    /// When an operator made the block urgent.
    /// When its block, or its failure, was escalated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalated_at: Option<String>,
    /// What is attached to its state: `retrying`, `escalated`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub facets: Vec<String>,
    /// What was reopened, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub corrections: Vec<super::StepCorrection>,
    pub attempts: u32,
    pub max_attempts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_run_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_until: Option<String>,
    /// End of a wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_category: Option<String>,
    /// An attempt ended without a verdict, and its effect may have happened.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub effect_unknown: bool,
    /// How the step's checks held when its output was last judged. Of a runbook's step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckView>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<ArtifactView>,
    /// When it will have been under way for as long as it may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft_cap_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_run_id: Option<String>,
    /// The roll-up of that run when it was last heard of: gray, green, yellow or red.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_rollup: Option<String>,
    /// Of a blocked step: `yellow_dark` or `red`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_severity: Option<String>,
    /// Why it is red: threshold, critical_path, deadline or escalated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_cause: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_since: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    pub optional: bool,
    pub depends_on: Vec<String>,
    /// The colour, icon and text that every view of this step shows.
    pub appearance: Appearance,
    pub views: StepViews,
}

/// One step whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StepDetail {
    pub run_id: String,
    #[serde(flatten)]
    pub step: StepView,
    /// What it works on. Absent before its turn, and where it cannot be worked out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// The attempts that failed, oldest first.
    pub attempt_log: Vec<FailedAttempt>,
    /// What its escalations are found by. Absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalation_chain_id: Option<String>,
    /// Who escalated it to whom, and when; oldest first.
    #[serde(default)]
    pub escalation_chain: Vec<Escalation>,
    /// What it pinned.
    pub pins: Vec<PinView>,
    /// Its own gate, and those of reopening it and of a late escalation, with what they ask.
    pub gates: Vec<Gate>,
    pub tasks: Vec<StepView>,
}

/// One escalation of a step, as its record tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Escalation {
    pub event_id: String,
    /// `step_escalated` (its failure) or `block_escalated` (its block).
    pub action_ref: String,
    pub at: String,
    /// Who escalated it.
    pub actor_ref: String,
    /// The approvers who decide from there on: of its gate `reopen`, or of its gate `escalate`.
    pub to: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// An attempt that failed, as its record tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FailedAttempt {
    pub event_id: String,
    pub at: String,
    /// Who reported it; the engine itself if no actor did.
    pub actor_ref: String,
    /// How many attempts had been made then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_category: Option<String>,
    /// When it was to be tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_run_at: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub effect_unknown: bool,
    /// The record's content was purged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub purged: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Appearance {
    pub color_token: String,
    pub icon: String,
    /// In English.
    pub label: String,
    /// The key of that text among the texts of `GET /v1/registry`, and what is filled into it.
    #[serde(default)]
    pub label_key: String,
    #[serde(default)]
    pub args: serde_json::Map<String, Value>,
}

/// The step's state in the words of a chain and of a DAG.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StepViews {
    pub linear: String,
    pub dag: String,
}

/// A run in a list: without its steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunSummary {
    pub run_id: String,
    pub definition: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<String>,
    pub subject_ref: String,
    pub initiator_ref: String,
    pub state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    pub priority: u8,
    pub started_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_at: Option<String>,
    /// When it ended, however it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    pub rollup: Rollup,
    #[serde(default)]
    pub progress: super::RunProgress,
    /// Of a run that has not ended: the step that decides its colour, else the one that it has come to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_step: Option<String>,
    /// Who is in charge of that step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pic: Option<String>,
}

/// How many runs have each colour.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunCounts {
    pub gray: ColourCount,
    pub green: ColourCount,
    pub yellow: ColourCount,
    pub red: ColourCount,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ColourCount {
    /// Counted up to 1,000.
    pub count: u64,
    /// There are more than were counted.
    pub more: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunQuery {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject_ref: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollup: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pic: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initiator_ref: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub q: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_after: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_before: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Cancel, pause, resume, stop or void a run. Only a resume may leave the reason out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ControlRun {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The `step_id` of the approval to spend, where there is a gate for it: to cancel, to resume or to void a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<String>,
    /// Only of a cancel: completed steps are undone by their compensations, and then the run is cancelled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub compensate: bool,
}

/// The state of the run, or, with `?preview=true`, the result that would follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum RunAnswer {
    Preview(Preview),
    Moved(RunMoved),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunMoved {
    pub state: String,
}

/// The effect of an attempt that left no verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DeclareEffect {
    pub result: DeclaredResult,
    /// What the step would have yielded; it is handed to the compensation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum DeclaredResult {
    /// It happened: it is undone with the rest.
    Completed,
    /// It did not happen: there is nothing to undo.
    NotDone,
}

/// An event from outside, for one run or for all runs with a correlation key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SendEvent {
    /// The same id twice, here or at `/v1/runs/trigger`, does nothing twice.
    pub id: String,
    #[serde(rename = "type")]
    pub event_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventSent {
    /// Its receivers had it before.
    pub duplicate: bool,
    pub woken: Vec<WokenStep>,
    /// How many live runs have it: woken by it, or keeping it for their next wait of its type.
    #[serde(default)]
    pub reached: u32,
    /// The runs that it started (`on:`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub run_ids: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WokenStep {
    pub run_id: String,
    pub step: String,
}

/// One page of runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunPage {
    pub items: Vec<RunSummary>,
    /// The cursor of the next page; null when this is the last one.
    pub next: Option<String>,
    /// With `state=idle`: what waits for its next tick or event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Vec<IdleRun>>,
}
