//! The rows of runs. A step's row is written whole whenever the step changes: what it says is what the engine holds.

use countersign_kernel::lifecycle::StepCode;
use countersign_kernel::plan::{Micros, StepSeq};
use countersign_kernel::{Digest, EventId, InstanceId, StepId, Time};
use std::sync::Arc;
use uuid::Uuid;

/// What a run was started with. Written once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRow {
    pub instance_id: InstanceId,
    pub definition_name: String,
    pub definition_version: u32,
    /// Of the normalised definition document, in `documents`.
    pub document_digest: Digest,
    pub subject_ref: String,
    pub initiator_ref: String,
    /// JSON text.
    pub input: Arc<str>,
    pub correlation_key: Option<Arc<str>>,
    pub concurrency_key: Option<Arc<str>>,
    pub corrects: Option<InstanceId>,
    pub continues: Option<InstanceId>,
    pub parent: Option<(InstanceId, StepSeq)>,
    pub started_at: Time,
    /// The trace it was started in.
    pub trace_id: Option<Arc<str>>,
    /// The state machine of one's own that it was started under.
    pub machine: Option<MachineRow>,
}

/// A published machine, and its document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineRow {
    /// `name@version`
    pub named: String,
    /// Of the normalised document, in `documents`.
    pub digest: Digest,
}

/// What changes about a run besides its state, which its instance row holds. Written when the run's state changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunHeadRow {
    pub instance_id: InstanceId,
    /// The run's state again, so that lists need no join.
    pub state: &'static str,
    pub outcome: Option<&'static str>,
    pub last_error: Option<Arc<str>>,
    pub priority: u8,
    pub start_at: Option<Time>,
    pub executing_since: Option<Time>,
    pub completed_at: Option<Time>,
    pub failed_at: Option<Time>,
    pub output: Option<Arc<str>>,
    /// When the clock has to look at the run itself.
    pub due_at: Option<Time>,
    /// Neither ended nor idle: what is found again after a restart.
    pub is_live: bool,
    /// What a runbook keeps, see [`crate::run::runbook`].
    pub runbook: Option<Arc<str>>,
    /// It has begun to undo its work.
    pub undoing: bool,
    pub called_off: bool,
}

/// One step of a run: what never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewStep {
    pub name: Arc<str>,
    /// The step that this one undoes.
    pub compensates: Option<StepSeq>,
    pub queue: Arc<str>,
    pub max_attempts: u32,
}

/// One step of a run: all the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepState {
    pub state: StepCode,
    pub attempts: u32,
    pub next_run_at: Option<Time>,
    pub locked_by: Option<Arc<str>>,
    pub locked_until: Option<Time>,
    pub lease_token: Option<Uuid>,
    pub waiting_event_type: Option<Arc<str>>,
    pub waiting_facet: Option<&'static str>,
    /// End of a wait.
    pub deadline_at: Option<Time>,
    pub last_error: Option<Arc<str>>,
    pub error_category: Option<&'static str>,
    /// Data of the event that woke it, JSON text.
    pub event_data: Option<Arc<str>>,
    pub started_at: Option<Time>,
    pub completed_at: Option<Time>,
    pub effect_unknown: bool,
    pub child_run_id: Option<InstanceId>,
    /// The colour of that run when it was last heard of.
    pub child_colour: Option<&'static str>,
    pub blocked_since: Option<Time>,
    /// Why the block is red; `None`: it is not.
    pub blocked_cause: Option<&'static str>,
    pub task_type: Option<&'static str>,
    /// JSON text.
    pub output: Option<Arc<str>>,
    /// The output is needed by later steps: it is loaded with the run.
    pub output_needed: bool,
    /// When it may be claimed, or the clock has to look at it.
    pub due_at: Option<Time>,
    /// What was handed out with the answer to its completion: run, step and lease token.
    pub handed: Option<Arc<str>>,
    pub charge: ChargeRow,
}

impl StepState {
    /// The state, but that what is overdue because nobody has claimed it is ready still.
    pub fn as_offered(&self) -> StepCode {
        let unclaimed = self.state == StepCode::Overdue && self.charge.start_by.is_some();
        if unclaimed { StepCode::Ready } else { self.state }
    }
}

/// Who is in charge of a step, what was promised, what was missed, and why it is blocked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChargeRow {
    pub pic: Option<Arc<str>>,
    pub deadline: Option<Time>,
    /// By when it is to be claimed, while nobody has.
    pub start_by: Option<Time>,
    pub overdue_first_at: Option<Time>,
    pub sla_breach: Option<Micros>,
    pub cycle: u32,
    pub declared_at: Option<Time>,
    /// What a waiting step waits for besides its facet, with commas between.
    pub secondary_facets: Option<Arc<str>>,
    pub block_reason: Option<&'static str>,
    pub escalated_at: Option<Time>,
    /// The derived state that lies over its state.
    pub derived_state: Option<Arc<str>>,
}

/// A step that was reopened, with what closed it. Written once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorrectionRow {
    pub instance_id: InstanceId,
    pub step_seq: StepSeq,
    pub cycle: u32,
    pub from_state: StepCode,
    pub prior_event_id: EventId,
    pub prior_actor_ref: String,
    pub prior_at: Time,
    /// JSON text: what the step had yielded.
    pub output: Option<Arc<str>>,
    pub overdue_first_at: Option<Time>,
    pub sla_breach: Option<Micros>,
    pub approval_id: StepId,
    pub correction_reason: &'static str,
    pub reopened_by: String,
    pub reopened_at: Time,
    /// The record of the reopening.
    pub event_id: EventId,
}

/// A step that a batch adds (`new`) or changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepWrite {
    pub new: Option<NewStep>,
    pub state: StepState,
}

/// An event that a run received; `taken` once a step has been woken by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunEventRow {
    pub instance_id: InstanceId,
    pub event_id: Arc<str>,
    pub event_type: Arc<str>,
    /// JSON text.
    pub data: Arc<str>,
    pub received_at: Time,
    pub taken: bool,
}

/// An event that is committed with what sends it: for the world outside, or for this server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxRow {
    pub outbox_id: Uuid,
    pub instance_id: InstanceId,
    pub event_type: String,
    /// The step that sent it.
    pub step: Option<Arc<str>>,
    /// JSON text.
    pub data: Arc<str>,
    pub created_at: Time,
    /// The sink of this server that it is for, and no webhook: its delivery is a [`super::Write::Delivery`] of the same commit.
    pub inside: bool,
}

/// A text of a step's row that a record gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepText {
    Output,
    Error,
    Event,
}

/// A text of a run's head that a record gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadText {
    Output,
    Error,
    /// All that a runbook keeps goes.
    Runbook,
}
