//! A command under way: the steps it has changed so far, laid over the run. Nothing is copied but what changes.

use super::guard::{Fired, Given, RunFired};
use super::{
    Acted, Action, Block, Cell, Claimed, Command, Context, Event, Head, KeptEvent, Move, Notes, Outbound, Role, Run,
    RunEvent, RunMove, Severity, TaskType,
};
use crate::Time;
use crate::lifecycle::{ActorClass, RunState, StepCode, StepTransition, fire_step, fits_overdue};
use crate::plan::{Scope, StepSeq, StepSpec, Steps};
use crate::process::{self, GateStatus, Process};
use crate::refusal::{Code, Refusal};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Compensations that one record lists beside whatever else it says.
const LISTED_FIRST: usize = 256;
/// And one that says nothing else.
const LISTED: usize = 2048;

pub struct Flow<'r, 'c, 'x> {
    pub run: &'r Run,
    pub shell: &'r Process,
    pub ctx: &'c mut Context<'x>,
    pub head: Head,
    cells: BTreeMap<StepSeq, Cell>,
    /// Compensations that this command adds behind the run's cells.
    pub moves: Vec<Move>,
    pub run_moves: Vec<RunMove>,
    pub outputs: Vec<(StepSeq, Arc<str>)>,
    pub claimed: Vec<Claimed>,
    pub outbound: Vec<Outbound>,
    pub kept: Option<KeptEvent>,
    pub taken: Vec<Arc<str>>,
    pub gate_events: Vec<process::Event>,
    pub acted: Option<Box<Acted>>,
    pub effect: Option<(StepSeq, bool)>,
    pub notes: Notes,
    /// Steps whose dependencies have all ended, to be looked at.
    pub to_resolve: VecDeque<StepSeq>,
}

/// Who moves a step, and by what.
#[derive(Clone, Copy)]
pub struct By(pub ActorClass, pub &'static str);

impl<'r, 'c, 'x> Flow<'r, 'c, 'x> {
    pub fn new(shell: &'r Process, run: &'r Run, ctx: &'c mut Context<'x>) -> Self {
        Flow {
            head: run.head.clone(),
            run,
            shell,
            ctx,
            cells: BTreeMap::new(),
            moves: vec![],
            run_moves: vec![],
            outputs: vec![],
            claimed: vec![],
            outbound: vec![],
            kept: None,
            taken: vec![],
            gate_events: vec![],
            acted: None,
            effect: None,
            notes: Notes::default(),
            to_resolve: VecDeque::new(),
        }
    }

    pub fn now(&self) -> Time {
        self.ctx.base.now
    }

    pub fn cell(&self, seq: StepSeq) -> Option<&Cell> {
        self.cells.get(&seq).or_else(|| self.run.cell(seq))
    }

    pub fn state(&self, seq: StepSeq) -> Option<StepCode> {
        self.cell(seq).map(|cell| cell.state)
    }

    /// How many cells there are, new ones included.
    pub fn count(&self) -> StepSeq {
        let known = StepSeq::try_from(self.run.cells.len()).unwrap_or(StepSeq::MAX);
        self.cells.last_key_value().map_or(known, |(seq, _)| known.max(seq + 1))
    }

    pub fn spec(&self, seq: StepSeq) -> Option<&'r StepSpec> {
        match self.cell(seq)?.role {
            Role::Step | Role::Task(_) => self.run.plan.step(seq),
            Role::Compensation(_) => None,
        }
    }

    pub fn edit(&mut self, seq: StepSeq) -> Result<&mut Cell, Refusal> {
        match self.cells.entry(seq) {
            std::collections::btree_map::Entry::Occupied(cell) => Ok(cell.into_mut()),
            std::collections::btree_map::Entry::Vacant(place) => {
                Ok(place.insert(self.run.cell(seq).cloned().ok_or_else(broken)?))
            }
        }
    }

    pub fn add(&mut self, cell: Cell) -> StepSeq {
        let seq = self.count();
        self.cells.insert(seq, cell);
        seq
    }

    /// The declared transition that would take the step there.
    pub fn declared(&self, seq: StepSeq, to: StepCode, by: By) -> Result<&'static StepTransition, Refusal> {
        let from = self.state(seq).ok_or_else(broken)?;
        let By(actor, trigger) = by;
        let unclaimed = self.cell(seq).is_some_and(Cell::is_unclaimed);
        let fits = |t: &&StepTransition| from != StepCode::Overdue || fits_overdue(t, unclaimed, actor, trigger);
        fire_step(from, to, actor, trigger).filter(fits).ok_or_else(|| {
            let name = self.run.step_name(seq);
            let detail = match advice(if unclaimed { StepCode::Ready } else { from }, actor) {
                Some(advice) => format!("`{name}` {advice}"),
                None => format!("`{name}` is {from}: no declared transition leads from there to {to}"),
            };
            Refusal::new(Code::InvalidTransition, detail)
        })
    }

    /// Fires a transition with nothing given, and makes it.
    pub fn move_step(&mut self, seq: StepSeq, to: StepCode, by: By) -> Result<(), Refusal> {
        self.move_given(seq, to, by, &Given::default())
    }

    pub fn move_given(&mut self, seq: StepSeq, to: StepCode, by: By, given: &Given<'_>) -> Result<(), Refusal> {
        let fired = self.fire(seq, to, by, given)?;
        self.make(fired)
    }

    /// The one way in which a step changes its state.
    pub fn make(&mut self, fired: Fired) -> Result<(), Refusal> {
        let (seq, from, transition) = (fired.seq, fired.from, fired.transition());
        let (to, By(actor, trigger)) = (transition.to, fired.by);
        if self.state(seq) != Some(from) {
            return Err(broken());
        }
        let role = self.cell(seq).map_or(Role::Step, |cell| cell.role);
        let (is_step, is_task) = (role == Role::Step, matches!(role, Role::Task(_)));
        let actor = if is_task && actor == ActorClass::PicHuman { ActorClass::TaskPicHuman } else { actor };
        self.moves.push(Move { step_seq: seq, transition, from, to, actor, trigger });
        let (now, may_wait) = (self.now(), self.spec(seq).and_then(|spec| spec.schedule_to_start));
        let cell = self.edit(seq)?;
        let (was_held, was_offered) = (cell.is_held(), cell.is_offered());
        cell.state = to;
        cell.set_derived(None);
        if let Some(docket) = &mut cell.docket {
            docket.escalated_at = None;
        }
        cell.note_start(was_offered, may_wait.map(|length| now.after(length)));
        let is_held = cell.is_held();
        if is_held || to == StepCode::Blocked {
            cell.live.get_or_insert_default().started_at.get_or_insert(now);
        }
        if to == StepCode::Completed {
            cell.completed_at = Some(now);
        }
        if to == StepCode::Blocked || from == StepCode::Blocked {
            let live = cell.live.get_or_insert_default();
            live.block = (to == StepCode::Blocked).then_some(Block { since: now, reason: None, escalated_at: None });
            live.severity = Severity::default();
        }
        self.note_claim(seq, if was_offered { StepCode::Ready } else { from }, to);
        self.head.held = self.head.held + u32::from(is_held) - u32::from(was_held).min(self.head.held);
        // A task holds its step up, not the run.
        let blocked = |code| u32::from(code == StepCode::Blocked && !is_task);
        self.head.blocked = self.head.blocked + blocked(to) - blocked(from).min(self.head.blocked);
        if is_step && to.is_terminal() && !from.is_terminal() {
            self.head.open = self.head.open.saturating_sub(1);
        }
        if is_step && from.is_terminal() && !to.is_terminal() {
            self.head.open += 1;
        }
        Ok(())
    }

    /// The cap of a step counts from its claim.
    fn note_claim(&mut self, seq: StepSeq, from: StepCode, to: StepCode) {
        let (now, step) = (self.now(), self.cell(seq).is_some_and(|cell| cell.role == Role::Step));
        let Some(book) = self.head.runbook.as_deref_mut().filter(|_| step) else { return };
        match (from, to) {
            (StepCode::Ready | StepCode::Failed, StepCode::InProgress) => book.claimed = Some((seq, now)),
            (_, StepCode::InProgress | StepCode::Overdue | StepCode::Waiting) => {}
            // Woken, it is the same piece of work.
            (StepCode::Waiting, StepCode::Ready) => {}
            _ => book.claimed = book.claimed.filter(|(claimed, _)| *claimed != seq),
        }
    }

    pub fn move_run(&mut self, to: RunState, trigger: &'static str) -> Result<(), Refusal> {
        let fired = self.fire_run(to, trigger, &Given::default())?;
        self.make_run(fired)
    }

    /// The one way in which the run changes its state.
    pub fn make_run(&mut self, fired: RunFired) -> Result<(), Refusal> {
        let transition = fired.transition();
        let (from, to) = (transition.from, transition.to);
        if self.head.state != from {
            return Err(broken());
        }
        self.run_moves.push(RunMove { transition });
        self.head.state = to;
        self.head.undoing |= to == RunState::Compensating;
        // Why it stood still says nothing about how it ended.
        if from == RunState::Stopped {
            self.head.outcome = None;
        }
        let now = self.ctx.base.now;
        if let Some(book) = self.head.runbook.as_deref_mut() {
            book.used = book.used_at(now);
            book.since = (to == RunState::Executing).then_some(now);
        }
        if to.is_ended() {
            self.drop_survey()?;
        } else if let Some(seq) = self.book().and_then(|book| book.survey.as_ref()).map(|survey| survey.step_seq) {
            // Whether it is offered depends on the run's state.
            self.edit(seq)?;
        }
        match to {
            RunState::Executing => drop(self.head.executing_since.get_or_insert(self.ctx.base.now)),
            RunState::Completed => self.head.completed_at = Some(self.ctx.base.now),
            RunState::Failed => self.head.failed_at = Some(self.ctx.base.now),
            _ => {}
        }
        Ok(())
    }

    /// The steps that this command has changed, and that are such now.
    pub fn changed_where(&self, which: impl Fn(&Cell) -> bool) -> Vec<StepSeq> {
        self.cells.iter().filter(|(_, cell)| which(cell)).map(|(seq, _)| *seq).collect()
    }

    /// Whether this command changes anything at all.
    pub fn changes(&self) -> bool {
        !self.moves.is_empty()
            || !self.run_moves.is_empty()
            || !self.cells.is_empty()
            || self.kept.is_some()
            || !self.outbound.is_empty()
    }

    /// Steps that are under way, as they stand now.
    pub fn live(&self) -> Vec<StepSeq> {
        let touched = self.cells.keys().copied().filter(|seq| !self.run.live.contains(seq));
        let mut all: Vec<StepSeq> = self.run.live.iter().copied().chain(touched).collect();
        all.retain(|seq| self.cell(*seq).is_some_and(is_under_way));
        all.sort_unstable();
        all
    }

    /// The output of a step, if it is at hand.
    pub fn output(&self, seq: StepSeq) -> Option<&Arc<str>> {
        let fresh = self.outputs.iter().rev().find(|(of, _)| *of == seq).map(|(_, output)| output);
        fresh.or_else(|| self.run.outputs.get(&seq))
    }

    /// Calls with what expressions of this run may see.
    pub fn with_scope<T>(&self, event: Option<&str>, output: Option<&str>, call: impl FnOnce(&Scope<'_>) -> T) -> T {
        let about = about(self.run, self.shell);
        let pins = self.book().map(|book| book.pins_json(|value| value.into()));
        call(&Scope {
            pins: pins.as_deref(),
            input: Some(&self.run.input),
            steps: Some(self),
            run: Some(&about),
            event,
            output,
            ..Scope::default()
        })
    }

    /// The event of this command, by whoever calls.
    pub fn finish(mut self, action: Action, actor_ref: &str, reason: Option<&str>) -> Vec<Event> {
        self.weigh_blocks();
        // A step that failed as it was claimed may have ended the run: what was claimed before it is nobody's again.
        let mut claimed = std::mem::take(&mut self.claimed);
        let surveyed = self.book().and_then(|book| book.survey.as_ref()?.lease).map(|(token, _)| token);
        claimed.retain(|task| match task.task_type {
            TaskType::Survey => surveyed == Some(task.lease_token),
            _ => self.cell(task.step_seq).is_some_and(|cell| cell.is_held() && cell.token == Some(task.lease_token)),
        });
        let changes = self.changes();
        let mut events: Vec<Event> = self.gate_events.into_iter().map(Event::Gate).collect();
        if changes {
            let known_cells = StepSeq::try_from(self.run.cells.len()).unwrap_or(StepSeq::MAX);
            let mut cells: Vec<(StepSeq, Cell)> = self.cells.into_iter().collect();
            let listed = cells.partition_point(|(seq, _)| *seq < known_cells) + LISTED_FIRST;
            let unlisted = if cells.len() > listed { cells.split_off(listed) } else { vec![] };
            let captured = self.notes.captured.take();
            if let Some(captured) = captured {
                let notes = Notes { captured: Some(captured), ..Notes::default() };
                let event = RunEvent::bare(self.run, Action::PinsCaptured, actor_ref, self.ctx.base.now);
                events.push(Event::Run(Box::new(RunEvent { notes: Some(Box::new(notes)), ..event })));
            }
            let first = RunEvent {
                actor_ref: actor_ref.to_owned(),
                at: self.ctx.base.now,
                action,
                moves: self.moves,
                run_moves: self.run_moves,
                head: self.head,
                cells,
                outputs: self.outputs,
                claimed,
                outbound: self.outbound,
                kept: self.kept,
                taken: self.taken,
                reason: reason.map(str::to_owned),
                acted: self.acted,
                effect: self.effect,
                notes: (self.notes != Notes::default()).then(|| Box::new(self.notes)),
                started: None,
                known_cells,
            };
            let rest =
                unlisted.chunks(LISTED).map(|cells| first.lists(cells, self.ctx.base.application_actor_ref, self.run));
            let rest: Vec<Event> = rest.map(|event| Event::Run(Box::new(event))).collect();
            events.push(Event::Run(Box::new(first)));
            events.extend(rest);
        }
        events
    }
}

impl RunEvent {
    /// More compensations of the same command, which this event has no room for.
    fn lists(&self, cells: &[(StepSeq, Cell)], application_actor_ref: &str, run: &Run) -> RunEvent {
        RunEvent {
            head: self.head.clone(),
            cells: cells.to_vec(),
            known_cells: cells.first().map_or(self.known_cells, |(seq, _)| *seq),
            ..RunEvent::bare(run, Action::CompensationsListed, application_actor_ref, self.at)
        }
    }

    /// One that changes nothing yet.
    fn bare(run: &Run, action: Action, actor_ref: &str, at: Time) -> RunEvent {
        RunEvent {
            actor_ref: actor_ref.to_owned(),
            at,
            action,
            moves: vec![],
            run_moves: vec![],
            head: run.head.clone(),
            cells: vec![],
            outputs: vec![],
            claimed: vec![],
            outbound: vec![],
            kept: None,
            taken: vec![],
            reason: None,
            acted: None,
            effect: None,
            notes: None,
            started: None,
            known_cells: StepSeq::try_from(run.cells.len()).unwrap_or(StepSeq::MAX),
        }
    }
}

impl Steps for Flow<'_, '_, '_> {
    fn step(&self, name: &str) -> Option<(&str, Option<&str>)> {
        let seq = self.run.plan.step_named(name).filter(|seq| self.run.plan.is_referenced(*seq))?;
        Some((self.state(seq)?.as_str(), self.output(seq).map(|output| &**output)))
    }
}

pub fn is_under_way(cell: &Cell) -> bool {
    !cell.is_ended() && cell.state != StepCode::NotStarted
}

fn about(run: &Run, shell: &Process) -> String {
    let definition = shell.definition.as_ref().map_or(String::new(), |d| format!("{}@{}", d.name, d.version));
    let subject = crate::text::json_string(&shell.subject_ref);
    format!(
        r#"{{"run_id":"{}","definition":"{definition}","subject_ref":{subject},"started_at_us":{}}}"#,
        run.run_id, shell.started_at.0
    )
}

/// What the run holds and what the plan says contradict each other.
pub fn broken() -> Refusal {
    Refusal::new(Code::RecordingFailure, "the stored run does not fit its plan; nothing was written")
}

/// How the gate of this action stands.
pub fn shell_gate(flow: &Flow<'_, '_, '_>, action: &str) -> Option<GateStatus> {
    let shell = super::advance::shell_after(flow.shell, &flow.gate_events);
    shell.gate(super::gate::SHELL_STATE, action).map(process::Gate::status)
}

/// The caller's class for what a worker does.
pub const WORKER: ActorClass = ActorClass::ExecutorWorker;
pub const SYSTEM: ActorClass = ActorClass::System;

impl Command {
    /// Whether it names a task, whose lease the store must confirm.
    pub const fn task(&self) -> Option<&super::TaskRef> {
        match self {
            Command::Complete { task, .. }
            | Command::Survey { task, .. }
            | Command::Wait { task, .. }
            | Command::Retry { task, .. }
            | Command::Dead { task, .. }
            | Command::CannotComplete { task, .. }
            | Command::Block { task, .. }
            | Command::Heartbeat { task, .. }
            | Command::ChildStarted { task, .. } => Some(task),
            _ => None,
        }
    }
}

/// What a person who asked for a transition that is not declared should know, and do first.
fn advice(from: StepCode, actor: ActorClass) -> Option<&'static str> {
    if !matches!(actor, ActorClass::PicHuman | ActorClass::TaskPicHuman) {
        return None;
    }
    Some(match from {
        StepCode::NotStarted => "has not begun: the steps before it come first",
        StepCode::Ready => "is not claimed: claim it first",
        StepCode::InProgress | StepCode::Overdue => "is claimed already",
        StepCode::Waiting => "waits: unblock it first",
        StepCode::Blocked => "is blocked: clear the block first",
        StepCode::Failed => "has failed: a retry or a new run comes first",
        StepCode::CannotComplete => "was declared impossible to complete: reopen it first",
        StepCode::Completed => "is completed already: only a reopening changes that",
        StepCode::Skipped => "was skipped",
        StepCode::Cancelled => "was cancelled",
    })
}
