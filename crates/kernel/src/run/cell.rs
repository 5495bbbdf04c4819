//! One step of a run. A step that has not begun, or has ended, is a few bytes; what is under way carries its details.

use super::severity::{Severity, turns_red_at};
use super::{Head, Run, TaskType};
use crate::Time;
use crate::id::InstanceId;
use crate::lifecycle::{FailureCategory, Outcome, RunState, StepCode};
use crate::plan::{ErrorResponse, Micros, OnFailure, Plan, RetryPolicy, StepSeq, StepSpec, WaitWork};
use crate::rollup::Colour;
use std::sync::Arc;
use uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    pub state: StepCode,
    /// Dependencies that have not ended.
    pub open_deps: u32,
    /// At least one dependency completed (and was not skipped).
    pub fed: bool,
    /// The last lease it had: who repeats a result with it is answered as before.
    pub token: Option<Uuid>,
    pub role: Role,
    pub completed_at: Option<Time>,
    /// What its worker was handed with the answer: who repeats the completion is handed it again.
    pub handed: Option<Box<Handed>>,
    pub live: Option<Box<Live>>,
    /// Absent where nobody is in charge, nothing is promised and nothing was corrected.
    pub docket: Option<Box<Docket>>,
}

/// What is kept of a step whatever becomes of it: who is in charge, what was promised, and what was missed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Docket {
    /// The person in charge.
    pub pic: Option<Arc<str>>,
    /// Beyond it the step is overdue.
    pub deadline: Option<Time>,
    /// By when it is to be claimed, while it is ready, or overdue because nobody has claimed it.
    pub start_by: Option<Time>,
    /// Never taken back, and never moved.
    pub overdue_first_at: Option<Time>,
    /// How late it was completed. Never taken back.
    pub sla_breach: Option<Micros>,
    /// How often it was reopened.
    pub cycle: u32,
    /// When somebody declared that it cannot be completed.
    pub declared_at: Option<Time>,
    /// When its failure was escalated (T11), while it is `cannot_complete` by that.
    pub escalated_at: Option<Time>,
    /// The derived state that lies over its state.
    pub derived: Option<Arc<str>>,
}

/// A task that was handed out with the answer to a completion, of this run or of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handed {
    pub run_id: InstanceId,
    pub step_seq: StepSeq,
    pub lease_token: Uuid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Step,
    /// A part of this step.
    Task(StepSeq),
    /// Undoes this step.
    Compensation(StepSeq),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    pub attempts: u32,
    /// When it may be claimed.
    pub next_run_at: Option<Time>,
    pub lease: Option<Lease>,
    pub waiting: Option<Waiting>,
    pub last_error: Option<Arc<str>>,
    pub category: Option<FailureCategory>,
    /// Data of the event that woke it.
    pub event: Option<Arc<str>>,
    /// First in_progress or blocked.
    pub started_at: Option<Time>,
    /// An attempt ended without a verdict, and its effect may have happened.
    pub effect_unknown: bool,
    pub child: Option<InstanceId>,
    /// The roll-up of that run when it was last heard of.
    pub child_colour: Option<Colour>,
    /// How badly it is blocked, where it is.
    pub severity: Severity,
    /// How it was claimed.
    pub task_type: Option<TaskType>,
    pub block: Option<Block>,
}

/// Since when and why a step is blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub since: Time,
    /// What somebody said; a gate says it by itself.
    pub reason: Option<BlockReason>,
    /// When an operator made it urgent.
    pub escalated_at: Option<Time>,
}

/// The block-reason vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockReason {
    MissingInput,
    MissingApproval,
    ConfigError,
}

impl BlockReason {
    pub const ALL: &'static [BlockReason] =
        &[BlockReason::MissingInput, BlockReason::MissingApproval, BlockReason::ConfigError];

    pub const fn as_str(self) -> &'static str {
        match self {
            BlockReason::MissingInput => "missing_input",
            BlockReason::MissingApproval => "missing_approval",
            BlockReason::ConfigError => "config_error",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.as_str() == text)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub worker_id: Arc<str>,
    pub until: Time,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub event_type: Option<Arc<str>>,
    /// The one that is shown first.
    pub facet: Facet,
    /// The others, in their order.
    pub secondary: Vec<Facet>,
    pub deadline_at: Option<Time>,
}

/// What a waiting step waits for; the first of several in this order is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Facet {
    Dependency,
    Human,
    External,
    TimeGate,
}

impl Facet {
    pub const ALL: &'static [Facet] = &[Facet::Dependency, Facet::Human, Facet::External, Facet::TimeGate];

    pub const fn as_str(self) -> &'static str {
        match self {
            Facet::Dependency => "waiting_dependency",
            Facet::Human => "waiting_human",
            Facet::External => "waiting_external",
            Facet::TimeGate => "waiting_time_gate",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|facet| facet.as_str() == text)
    }
}

/// When something is to happen with a step: it may be claimed, or the clock moves it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agenda {
    pub claim: Option<Claim>,
    pub timer: Option<Time>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub at: Time,
    pub queue: Arc<str>,
    pub priority: u8,
}

impl Agenda {
    pub fn due_at(&self) -> Option<Time> {
        match (&self.claim, self.timer) {
            (Some(claim), Some(timer)) => Some(claim.at.min(timer)),
            (Some(claim), None) => Some(claim.at),
            (None, timer) => timer,
        }
    }
}

impl Cell {
    pub fn new(open_deps: usize) -> Self {
        Cell {
            state: StepCode::NotStarted,
            open_deps: u32::try_from(open_deps).unwrap_or(u32::MAX),
            fed: false,
            token: None,
            role: Role::Step,
            completed_at: None,
            handed: None,
            live: None,
            docket: None,
        }
    }

    /// Who is in charge of it.
    pub fn pic(&self) -> Option<&Arc<str>> {
        self.docket.as_ref()?.pic.as_ref()
    }

    pub fn deadline(&self) -> Option<Time> {
        self.docket.as_ref()?.deadline
    }

    /// When its block, or its failure, was escalated.
    pub fn escalated_at(&self) -> Option<Time> {
        let block = self.live.as_ref().and_then(|live| live.block);
        block.and_then(|block| block.escalated_at).or(self.docket.as_ref()?.escalated_at)
    }

    /// How often it was reopened.
    pub fn cycle(&self) -> u32 {
        self.docket.as_ref().map_or(0, |docket| docket.cycle)
    }

    /// Its deadline lies behind.
    pub fn is_late(&self, now: Time) -> bool {
        self.deadline().is_some_and(|deadline| deadline < now)
    }

    /// Its details, as they are or as they would begin.
    pub fn details(&self) -> Live {
        self.live.as_deref().cloned().unwrap_or_default()
    }

    pub fn lease(&self) -> Option<&Lease> {
        self.live.as_ref().and_then(|live| live.lease.as_ref())
    }

    /// A failed step that will be tried again.
    pub fn retry_scheduled(&self) -> bool {
        self.state == StepCode::Failed && self.live.as_ref().is_some_and(|live| live.next_run_at.is_some())
    }

    /// Somebody is at work on it.
    pub fn is_held(&self) -> bool {
        matches!(self.state, StepCode::InProgress | StepCode::Overdue) && !self.is_unclaimed()
    }

    /// Overdue, and nobody has claimed it yet.
    pub fn is_unclaimed(&self) -> bool {
        self.state == StepCode::Overdue && self.docket.as_ref().is_some_and(|docket| docket.start_by.is_some())
    }

    /// It waits for somebody to claim it, in time or not.
    pub fn is_offered(&self) -> bool {
        self.state == StepCode::Ready || self.is_unclaimed()
    }

    /// By when somebody must have claimed it: in its time to be started, and before it is to be done.
    pub fn claim_by(&self) -> Option<Time> {
        let docket = self.docket.as_ref()?;
        docket.start_by.into_iter().chain(docket.deadline).min()
    }

    /// It will not move again by itself, nor hold its followers up.
    pub fn is_ended(&self) -> bool {
        self.state.is_terminal()
    }
}

impl Head {
    /// Whether steps of this kind may be claimed now.
    pub fn hands_out(&self, role: Role) -> bool {
        match role {
            Role::Step | Role::Task(_) => matches!(self.state, RunState::Executing | RunState::Blocked),
            Role::Compensation(_) => self.state == RunState::Compensating,
        }
    }
}

impl Run {
    pub fn cell(&self, seq: StepSeq) -> Option<&Cell> {
        self.cells.get(seq as usize)
    }

    /// The step of that name, the task that is called `step/task`, or the compensation that is called `undo:step`.
    pub fn cell_named(&self, name: &str) -> Option<StepSeq> {
        self.plan.cell_named(name).or_else(|| super::undo_named(self, name))
    }

    /// The step's name, `step/task` for a task; for a compensation, that of the step it undoes.
    pub fn step_name(&self, seq: StepSeq) -> &str {
        let named = match self.cell(seq).map(|cell| cell.role) {
            Some(Role::Compensation(step)) => step,
            _ => seq,
        };
        self.plan.step(named).map_or("", |step| &step.name)
    }

    /// Ended, or failed where the plan goes on as behind a skipped step.
    pub fn is_passed(&self, seq: StepSeq, cell: &Cell) -> bool {
        is_passed(&self.plan, seq, cell)
    }

    /// What undoes a step is tried as often as the step.
    pub fn retry_policy(&self, seq: StepSeq) -> RetryPolicy {
        let tried = match self.cell(seq).map(|cell| cell.role) {
            Some(Role::Compensation(step)) => step,
            Some(Role::Step | Role::Task(_)) | None => seq,
        };
        self.plan.step(tried).map_or(RetryPolicy::DEFAULT, |step| step.retry)
    }

    /// From the first in_progress or blocked, over all attempts.
    pub fn timeout_of(&self, seq: StepSeq) -> Option<Micros> {
        match self.cell(seq).map(|cell| cell.role) {
            Some(Role::Compensation(step)) => self.plan.compensation_of(step)?.timeout,
            Some(Role::Step | Role::Task(_)) | None => self.plan.step(seq)?.timeout,
        }
    }

    pub fn max_attempts(&self, seq: StepSeq) -> u32 {
        self.retry_policy(seq).max_attempts()
    }

    /// What the clock or a worker will do with this step next.
    pub fn agenda(&self, seq: StepSeq) -> Agenda {
        let hands_out = self.cell(seq).is_some_and(|cell| self.head.hands_out(cell.role));
        self.agenda_where(seq, hands_out)
    }

    /// When somebody has to look at this step, even if the run hands out nothing at present: it may be resumed without the
    /// step being touched.
    pub fn step_due_at(&self, seq: StepSeq) -> Option<Time> {
        let due_at = self.agenda_where(seq, true).due_at()?;
        // Who opens the store asks at once what has become of a child meanwhile.
        let begun = self.cell(seq).filter(|cell| cell.awaited().is_some()).and_then(|cell| cell.details().started_at);
        Some(begun.map_or(due_at, |begun| begun.min(due_at)))
    }

    fn agenda_where(&self, seq: StepSeq, hands_out: bool) -> Agenda {
        if self.head.state.is_ended() {
            return Agenda::default();
        }
        let captures = self.survey_of(seq).is_some_and(super::Survey::captures);
        let survey = self.survey_agenda(seq).filter(|_| hands_out || captures);
        let Agenda { claim, timer } = self.step_agenda(seq, hands_out && !self.is_surveyed());
        match survey {
            Some((asked, until)) => Agenda { claim: asked, timer: Some(timer.map_or(until, |timer| timer.min(until))) },
            None => Agenda { claim, timer },
        }
    }

    fn step_agenda(&self, seq: StepSeq, hands_out: bool) -> Agenda {
        let Some(cell) = self.cell(seq) else { return Agenda::default() };
        let Some(live) = cell.live.as_deref() else { return Agenda::default() };
        let spec = self.plan.step(seq);
        let claims = spec.is_none_or(StepSpec::is_claimed);
        let waiting = live.waiting.as_ref().and_then(|waiting| waiting.deadline_at);
        let claim_at = match cell.state {
            StepCode::Ready | StepCode::Failed => live.next_run_at,
            StepCode::Overdue if cell.is_unclaimed() => live.next_run_at,
            StepCode::Waiting if claims => waiting,
            _ => None,
        };
        let lease = live.lease.as_ref().map(|lease| lease.until.after(1));
        let own = match cell.state {
            StepCode::Waiting if !claims => waiting,
            // Whatever its child has done before it was known here.
            _ if cell.awaited().is_some() && live.child_colour.is_none() => live.started_at,
            _ if cell.awaited().is_some() => live.next_run_at,
            StepCode::InProgress | StepCode::Overdue if cell.is_held() && live.lease.is_none() => live.next_run_at,
            _ => None,
        };
        // Overdue is what comes after the deadline, not at it.
        let late = match cell.state {
            StepCode::InProgress => cell.deadline(),
            StepCode::Ready => cell.claim_by(),
            _ => None,
        };
        let late = late.map(|deadline| deadline.after(1));
        let limit = match (self.timeout_of(seq), live.started_at) {
            (Some(timeout), Some(started)) if !cell.is_ended() && !is_dead(cell) => Some(started.after(timeout)),
            _ => None,
        };
        let worse = turns_red_at(&self.plan, cell);
        let cap = self.soft_cap_at(seq, cell);
        let timer = [lease, own, limit, late, worse, cap].into_iter().flatten().min();
        let claim = claim_at.filter(|_| claims && hands_out).map(|at| Claim {
            at,
            queue: self.queue(seq, cell.role),
            priority: spec.and_then(|spec| spec.priority).unwrap_or(self.head.priority),
        });
        Agenda { claim, timer }
    }

    pub fn queue(&self, seq: StepSeq, role: Role) -> Arc<str> {
        match role {
            Role::Compensation(step) => self.plan.compensation_of(step).map_or_else(
                || Arc::from(""),
                |entry| match entry.work.queue() {
                    Some(queue) => Arc::from(queue),
                    None => entry.agent.clone(),
                },
            ),
            Role::Step | Role::Task(_) => match self.plan.step(seq) {
                Some(spec) => spec.work.queue().map_or_else(|| spec.queue.clone(), Arc::from),
                None => Arc::from(""),
            },
        }
    }

    /// When the run itself has to be looked at: a delayed start, or its time limit.
    pub fn due_at(&self) -> Option<Time> {
        match self.head.state {
            // It has failed already, and only waits to be told what became of an attempt.
            _ if self.head.outcome == Some(Outcome::EffectUnknown) || self.head.undoing => None,
            RunState::Queued => self.head.start_at,
            RunState::Executing | RunState::Blocked | RunState::Paused => {
                let since = self.head.executing_since?;
                self.plan.timeout.map(|timeout| since.after(timeout)).into_iter().chain(self.hard_cap_at()).min()
            }
            _ => None,
        }
    }
}

/// Ended, or failed where the plan goes on as behind a skipped step: what an attempt of it did is unknown.
pub fn is_passed(plan: &Plan, seq: StepSeq, cell: &Cell) -> bool {
    let live = cell.live.as_deref();
    let skipped = |spec: &StepSpec| {
        let unknown = live.is_some_and(|live| live.effect_unknown);
        let by_category = live.and_then(|live| spec.errors.of(live.category?)) == Some(ErrorResponse::Skip);
        spec.on_failure == OnFailure::Skip || (unknown && by_category)
    };
    cell.is_ended() || (is_dead(cell) && plan.step(seq).is_some_and(skipped))
}

/// Failed for good.
fn is_dead(cell: &Cell) -> bool {
    cell.state == StepCode::Failed && !cell.retry_scheduled()
}

impl Time {
    pub fn after(self, length: Micros) -> Time {
        Time(self.0.saturating_add(length))
    }
}

/// Whether a built-in wait ends by the clock alone.
pub(super) fn is_timer(wait: &WaitWork) -> bool {
    matches!(wait, WaitWork::For(_) | WaitWork::Until(_))
}
