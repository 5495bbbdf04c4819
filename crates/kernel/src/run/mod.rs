//! A run: the steps of a plan on their way. Workers claim steps under a lease and report what became of them; events,
//! timers, gates and operators move the rest. Every change of a step or of the run goes through a declared transition
//! ([`crate::lifecycle`]).
//!
//! [`decide`] answers a command with events; [`Run::apply`] installs what they say. A command leaves one event, which
//! lists all the transitions it caused, and those of the gates it touched. Deciding costs what changes, not what the run
//! holds: a [`flow::Flow`] lays the changed steps over the run.
//!
//! Gates are those of [`crate::process`]: a run has a process beside it (its *shell*), whose only state is `run` and
//! whose guarded self-loops are the gates that the plan declares.

mod advance;
mod cell;
mod child;
mod claim;
mod command;
mod compensate;
mod control;
mod correct;
mod deadline;
mod due;
mod evolve;
mod flow;
mod gate;
mod guard;
mod operator;
mod own;
mod person;
mod result;
mod runbook;
mod secrets;
mod severity;
mod start;
mod stop;
mod survey;
mod task;
mod wake;

pub use cell::{Agenda, Block, BlockReason, Cell, Claim, Docket, Facet, Handed, Lease, Live, Role, Waiting, is_passed};
pub use child::is_over;
pub use claim::{handed_out, input_of_step};
pub use command::*;
pub use compensate::Reach;
pub use control::{UNDO, undo_named};
pub use correct::{Correction, CorrectionReason, Prior};
pub use gate::shell_declaration;
pub use operator::ESCALATE;
pub use own::{OwnMove, PinnedMachine, TransitionWish};
pub use result::{ESCALATED, Repeated, Verb, check_lease};
pub use runbook::*;
pub use severity::{Cause, Severity, severity_of};
pub use stop::{RESUME, SOVEREIGN, VOID, label_of};

use crate::id::{InstanceId, StepId, TransitionId};
use crate::lifecycle::{Outcome, RunState, RunTransition, StepCode, StepTransition, event_type};
use crate::plan::{Language, Plan, Secrets, StepSeq, Work};
use crate::process::{self, DefinitionRef, Process};
use crate::refusal::{Code, Refusal};
use crate::rollup::{Rollup, Tally};
use crate::{Time, lifecycle::ActorClass};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use uuid::Uuid;

/// What must be known of a run to decide about it, besides its shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub run_id: InstanceId,
    pub plan: Arc<Plan>,
    /// What its steps move by, where it is not the engine's own.
    pub machine: Option<Arc<PinnedMachine>>,
    pub input: Arc<str>,
    /// The trace of whoever started it, where it was told one. See [`Run::trace`].
    pub trace_id: Option<Arc<str>>,
    pub correlation_key: Option<Arc<str>>,
    /// The run that it corrects or continues.
    pub follows: Option<InstanceId>,
    pub head: Head,
    /// The plan's steps, then their tasks, then compensations in the order in which they run.
    pub cells: Vec<Cell>,
    /// Steps that are under way: begun and not ended.
    pub live: BTreeSet<StepSeq>,
    /// What every step counts as in the roll-up, kept in step with the cells.
    pub tally: Tally,
    /// Outputs that are still needed.
    pub outputs: BTreeMap<StepSeq, Arc<str>>,
    /// Events that arrived and that no step has waited for yet, oldest first.
    pub kept: Vec<KeptEvent>,
}

/// Where the run as a whole stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub state: RunState,
    pub outcome: Option<Outcome>,
    pub last_error: Option<Arc<str>>,
    pub priority: u8,
    /// Not before this.
    pub start_at: Option<Time>,
    /// Since the first `executing`.
    pub executing_since: Option<Time>,
    pub completed_at: Option<Time>,
    pub failed_at: Option<Time>,
    /// Steps of the plan that have not ended.
    pub open: u32,
    pub blocked: u32,
    /// Steps that somebody holds.
    pub held: u32,
    /// Where a chain stands: the first step that has not ended.
    pub current: StepSeq,
    /// Where the critical path of a DAG leads: the rank of the earliest mandatory step that has not ended.
    pub critical: StepSeq,
    pub rollup: Rollup,
    /// The run's own output.
    pub output: Option<Arc<str>>,
    pub concurrency_key: Option<Arc<str>>,
    /// It belongs to this step of another run.
    pub parent: Option<Parent>,
    /// Only of a runbook's run.
    pub runbook: Option<Box<Runbook>>,
    /// It has begun to undo its work. Nothing takes that back.
    pub undoing: bool,
    /// It was called off, and is cancelled once its work is undone.
    pub called_off: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Parent {
    pub run_id: InstanceId,
    pub step_seq: StepSeq,
}

/// What inside this server started a run: an event that a run or a process sent, or the firing of a transition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub instance_id: InstanceId,
    pub cause: OriginCause,
    /// How many starts of this kind led here, one from the other; the first has 1.
    pub depth: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginCause {
    /// The event's id in the outbox.
    Event(Uuid),
    /// A transition's firing, and the place of the effect among its effects.
    Effect { transition_id: TransitionId, effect: u32 },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptEvent {
    pub id: Arc<str>,
    pub event_type: Arc<str>,
    pub data: Arc<str>,
}

pub struct Context<'a> {
    pub base: process::Context<'a>,
    pub language: &'a dyn Language,
    /// For `${secrets…}`. What is filled in with them is handed to executors and never recorded.
    pub secrets: Option<&'a dyn Secrets>,
    /// SHA-256 of a text. The kernel compares digests and computes none.
    pub digest: fn(&str) -> crate::Digest,
}

impl Context<'_> {
    /// The engine itself needs nobody's grant.
    fn is_application(&self) -> bool {
        self.base.actor_ref == self.base.application_actor_ref
    }
}

/// What happened: one record of the run's chain, or one of its gates' records.
#[expect(clippy::large_enum_variant, reason = "a gate's event is what processes hold by value; there are few")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Gate(process::Event),
    Run(Box<RunEvent>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunEvent {
    pub actor_ref: String,
    pub at: Time,
    pub action: Action,
    pub moves: Vec<Move>,
    pub run_moves: Vec<RunMove>,
    /// The run afterwards.
    pub head: Head,
    /// The steps afterwards that changed, ascending; new ones at the end.
    pub cells: Vec<(StepSeq, Cell)>,
    /// Outputs that came with it: all for the record and the row, the referenced ones to be kept.
    pub outputs: Vec<(StepSeq, Arc<str>)>,
    pub claimed: Vec<Claimed>,
    pub outbound: Vec<Outbound>,
    pub kept: Option<KeptEvent>,
    /// The event that a step took, by id.
    pub taken: Vec<Arc<str>>,
    pub reason: Option<String>,
    /// What somebody declared of an attempt: the step, and whether it was done.
    pub effect: Option<(StepSeq, bool)>,
    /// Only where somebody acted on one step.
    pub acted: Option<Box<Acted>>,
    /// Checks, pins and approvals that the record tells of.
    pub notes: Option<Box<Notes>>,
    /// Only for the first event of a run.
    pub started: Option<Box<Started>>,
    /// How many cells the run had before: those from here on are new.
    pub known_cells: StepSeq,
}

/// What somebody who acted on a step gave with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acted {
    pub step_seq: StepSeq,
    pub evidence_ref: Option<String>,
    pub approval_id: Option<StepId>,
    pub correction: Option<Correction>,
    /// The transition of one's own that it was.
    pub own: Option<OwnMove>,
    /// What a person who claims the step works on.
    pub input: Option<Arc<str>>,
    /// It escalates the step, to these.
    pub escalated_to: Option<Vec<String>>,
    /// The approved request of a replay.
    pub replay: Option<Replay>,
}

impl RunEvent {
    /// Whether this event brings the step into being.
    pub fn adds(&self, seq: StepSeq) -> bool {
        self.started.is_some() || seq >= self.known_cells
    }

    /// The type of the event that goes out for this move. What a task emits is a task's.
    pub fn emits(&self, made: &Move) -> &'static str {
        let emits = made.transition.emits;
        let cell = self.cells.binary_search_by_key(&made.step_seq, |(seq, _)| *seq).ok().map(|at| &self.cells[at].1);
        match cell.map(|cell| cell.role) {
            Some(Role::Task(_)) => event_type(&emits.replacen("step.", "task.", 1)).map_or(emits, |row| row.name),
            _ => emits,
        }
    }
}

/// Why a run's record was written: its `action_ref`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    RunStarted,
    RunDispatched,
    StepsClaimed,
    StepCompleted,
    /// The work of a step is done, and its pins are to be captured.
    StepYielded,
    PinsCaptured,
    PinsSurveyed,
    /// A survey was asked for, claimed, or answered in part.
    SurveyMoved,
    StepWaiting,
    StepRetried,
    StepFailed,
    StepProlonged,
    /// A child's colour has changed. The child's own records say why.
    ChildColoured,
    ChildStarted,
    /// The child waits, and so does the step.
    ChildWaiting,
    /// The child goes on, and so does the step.
    ChildResumed,
    ChildEnded,
    EventReceived,
    TimePassed,
    GateFollowed,
    RunCancelled,
    RunPaused,
    RunResumed,
    RunStopped,
    RunVoided,
    StepUnblocked,
    EffectDeclared,
    /// The rest of the compensations that the record before it begins to list.
    CompensationsListed,
    StepClaimed,
    StepReleased,
    StepBlocked,
    StepCannotComplete,
    StepEscalated,
    StepRetryOrdered,
    BlockEscalated,
    StepReopened,
    DeadlineExtended,
    StepReengaged,
    StepTransitioned,
}

impl Action {
    pub const fn as_str(self) -> &'static str {
        match self {
            Action::RunStarted => "run_started",
            Action::RunDispatched => "run_dispatched",
            Action::StepsClaimed => "steps_claimed",
            Action::StepCompleted => "step_completed",
            Action::StepYielded => "step_yielded",
            Action::PinsCaptured => "pins_captured",
            Action::PinsSurveyed => "pins_surveyed",
            Action::SurveyMoved => "survey_moved",
            Action::StepWaiting => "step_waiting",
            Action::StepRetried => "step_retried",
            Action::StepFailed => "step_failed",
            Action::StepProlonged => "lease_prolonged",
            Action::ChildColoured => "child_coloured",
            Action::ChildStarted => "child_started",
            Action::ChildWaiting => "child_waiting",
            Action::ChildResumed => "child_resumed",
            Action::ChildEnded => "child_ended",
            Action::EventReceived => "event_received",
            Action::TimePassed => "time_passed",
            Action::GateFollowed => "gate_followed",
            Action::RunCancelled => "run_cancelled",
            Action::RunPaused => "run_paused",
            Action::RunResumed => "run_resumed",
            Action::RunStopped => "run_stopped",
            Action::RunVoided => "run_voided",
            Action::StepUnblocked => "step_unblocked",
            Action::EffectDeclared => "effect_declared",
            Action::CompensationsListed => "compensations_listed",
            Action::StepClaimed => "step_claimed",
            Action::StepReleased => "step_released",
            Action::StepBlocked => "step_blocked",
            Action::StepCannotComplete => "step_cannot_complete",
            Action::StepEscalated => "step_escalated",
            Action::StepRetryOrdered => "step_retry_ordered",
            Action::BlockEscalated => "block_escalated",
            Action::StepReopened => "step_reopened",
            Action::DeadlineExtended => "deadline_extended",
            Action::StepReengaged => "step_reengaged",
            Action::StepTransitioned => "step_transitioned",
        }
    }

    /// What changes no state leaves no record: a heartbeat, the colour of a child, a survey that is under way.
    pub const fn is_recorded(self) -> bool {
        !matches!(self, Action::StepProlonged | Action::ChildColoured | Action::SurveyMoved)
    }
}

/// One step made one declared transition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    pub step_seq: StepSeq,
    pub transition: &'static StepTransition,
    pub from: StepCode,
    pub to: StepCode,
    pub actor: ActorClass,
    pub trigger: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunMove {
    pub transition: &'static RunTransition,
}

impl PartialEq for StepTransition {
    fn eq(&self, other: &StepTransition) -> bool {
        self.id == other.id
    }
}

impl Eq for StepTransition {}

impl PartialEq for RunTransition {
    fn eq(&self, other: &RunTransition) -> bool {
        self.id == other.id
    }
}

impl Eq for RunTransition {}

impl std::fmt::Debug for RunTransition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} → {}", self.id, self.from, self.to)
    }
}

/// What a worker is handed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    pub step_seq: StepSeq,
    /// The step's name; for a compensation, that of the step it undoes.
    pub step: Arc<str>,
    pub task_type: TaskType,
    pub attempt: u32,
    pub max_attempts: u32,
    /// How often the step was reopened.
    pub cycle: u32,
    pub input: Arc<str>,
    /// The data of the event that woke it.
    pub event: Option<Arc<str>>,
    pub lease_token: Uuid,
    pub locked_until: Time,
    /// For the engine's own executors.
    pub job: Option<Box<Job>>,
    /// Of a survey that the engine's own executor claimed.
    pub probes: Vec<Probe>,
}

/// Work of an executor, with every `${…}` filled in.
#[derive(Clone, PartialEq, Eq)]
pub struct Job {
    pub work: Work,
    /// JSON texts: `command` and `env` of a shell step; `url`, `headers` and `body` of an http step.
    pub filled: Vec<Option<Arc<str>>>,
    pub timeout_at: Option<Time>,
    /// Whether an attempt without a verdict may simply be made again.
    pub repeatable: bool,
    /// Files that it must leave.
    pub artifacts: Vec<Arc<str>>,
    /// The run that this step waited for before, where it is to wait for another.
    pub last_child: Option<InstanceId>,
    /// The values of the secrets that were filled in: the executor masks them in whatever comes of the job.
    pub secrets: Vec<Arc<str>>,
}

impl fmt::Debug for Job {
    /// What was filled in may hold secrets and is not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("work", &self.work).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskType {
    ReadyStep,
    WaitingTimeout,
    Compensation,
    Survey,
}

impl TaskType {
    pub const ALL: &'static [TaskType] =
        &[TaskType::ReadyStep, TaskType::WaitingTimeout, TaskType::Compensation, TaskType::Survey];

    pub const fn as_str(self) -> &'static str {
        match self {
            TaskType::ReadyStep => "READY_STEP",
            TaskType::WaitingTimeout => "WAITING_TIMEOUT",
            TaskType::Compensation => "COMPENSATION",
            TaskType::Survey => "SURVEY",
        }
    }
}

/// What a run begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    pub run_id: InstanceId,
    pub definition: DefinitionRef,
    pub plan: Arc<Plan>,
    pub machine: Option<Arc<PinnedMachine>>,
    pub input: Arc<str>,
    pub subject_ref: String,
    pub correlation_key: Option<Arc<str>>,
    pub corrects: Option<InstanceId>,
    /// The run whose finished steps it took over.
    pub continues: Option<InstanceId>,
    pub trace_id: Option<Arc<str>>,
    pub origin: Option<Origin>,
}

/// Decides a command on a run, or on no run yet. An empty list is a success that changes nothing.
pub fn decide(run: Option<(&Process, &Run)>, command: &Command, ctx: &mut Context<'_>) -> Result<Vec<Event>, Refusal> {
    crate::refusal::require_ref("actor_ref", ctx.base.actor_ref)?;
    match command {
        Command::Start(command) => start::decide(command, ctx),
        Command::Dispatch { in_slot } => start::dispatch(known(run)?, *in_slot, ctx),
        Command::Claim(command) => claim::decide(run, command, ctx),
        Command::Complete { task, output, outbound, claim_next, artifacts } => {
            result::complete(run, task, (output, artifacts), outbound, claim_next.as_ref(), ctx)
        }
        Command::Survey { task, values, errors } => survey::answer(run, task, values, errors, ctx),
        Command::Wait { task, event_type, timeout, facets, outbound } => {
            let wish = result::Wish { event_type: event_type.as_deref(), timeout: *timeout, facets };
            result::wait(run, task, &wish, outbound, ctx)
        }
        Command::Retry { task, error, backoff, category } => {
            result::fail(run, task, error, Some(*backoff), *category, ctx)
        }
        Command::Dead { task, error, category } => result::fail(run, task, error, None, *category, ctx),
        Command::CannotComplete { task, evidence_ref } => {
            result::cannot_complete(run, task, evidence_ref.as_deref(), ctx)
        }
        Command::Block { task, block_reason } => result::block(run, task, block_reason.as_deref(), ctx),
        Command::Heartbeat { task, lease } => result::heartbeat(run, task, *lease, ctx),
        Command::ChildStarted { task, child } => child::started(run, task, *child, ctx),
        Command::ChildEnded { step_seq, child, completed, output } => {
            child::ended(known(run)?, *step_seq, *child, *completed, output, ctx)
        }
        Command::ChildColoured { step_seq, child, colour, waits } => {
            child::coloured(known(run)?, *step_seq, *child, (*colour, *waits), ctx)
        }
        Command::Receive { event, seen } => wake::decide(run, event, *seen, ctx),
        Command::Due { steps, run: whole } => due::decide(known(run)?, steps, *whole, ctx),
        Command::OpenGate(command) => gate::open(run, command, ctx),
        Command::DecideGate(command) => gate::decide(run, command, ctx),
        Command::Cancel { reason, approval_id, compensate } => {
            control::cancel(run, reason.as_deref(), approval_id.as_deref(), *compensate, ctx)
        }
        Command::Pause { reason } => control::pause(run, reason.as_deref(), ctx),
        Command::Resume { approval_id, reason } => control::resume(run, approval_id.as_deref(), reason.as_deref(), ctx),
        Command::Stop { reason } => control::stop(run, reason.as_deref(), ctx),
        Command::Void { approval_id, reason } => control::void(run, approval_id.as_deref(), reason.as_deref(), ctx),
        Command::Act(command) => person::decide(run, command, ctx),
        Command::DeclareEffect { step, done, output, reason } => {
            compensate::declare_effect(run, step, *done, output.as_ref(), reason, ctx)
        }
    }
}

fn known<'r>(run: Option<(&'r Process, &'r Run)>) -> Result<(&'r Process, &'r Run), Refusal> {
    run.ok_or_else(not_known)
}

fn not_known() -> Refusal {
    Refusal::new(Code::NotKnown, "there is no run with this run_id").at("run_id")
}

/// Permission comes before existence: somebody who may nothing learns nothing about what exists.
fn permitted<'r>(
    run: Option<(&'r Process, &'r Run)>,
    scope: &str,
    ctx: &Context<'_>,
) -> Result<(&'r Process, &'r Run), Refusal> {
    if !ctx.is_application() {
        let definition = run.and_then(|(shell, _)| shell.definition.as_ref()).map(|d| d.name.as_str());
        ctx.base.require_scope(scope, definition)?;
    }
    known(run)
}

/// Refuses what cannot be done to a run that has ended.
fn alive(run: &Run) -> Result<(), Refusal> {
    if run.head.state.is_ended() {
        let detail = format!("the run has ended ({}); nothing can change it any more", run.head.state);
        return Err(Refusal::new(Code::AlreadyTerminal, detail));
    }
    Ok(())
}

/// The id of a trace as W3C has it: 32 hexadecimal digits, not all of them zero.
pub fn is_trace_id(text: &str) -> bool {
    text.len() == 32
        && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        && text.bytes().any(|byte| byte != b'0')
}

impl Run {
    /// The trace that everything of this run belongs to: the one it was started in, or its own.
    pub fn trace(&self) -> Arc<str> {
        self.trace_id.clone().unwrap_or_else(|| own_trace(self.run_id))
    }

    /// What relates this run to others of the same matter.
    pub fn correlation(&self) -> Arc<str> {
        self.correlation_key.clone().unwrap_or_else(|| self.run_id.to_string().into())
    }
}

/// The trace of a run that was started in none: its own id.
pub fn own_trace(run_id: InstanceId) -> Arc<str> {
    run_id.0.simple().to_string().into()
}

/// The id under which the effects of a step are carried out: the same for every attempt. A correction has one of its own:
/// it is meant to happen again.
pub fn idempotency_key(task_id: &str, cycle: u32) -> String {
    if cycle == 0 { task_id.to_owned() } else { format!("{task_id}.{cycle}") }
}
