//! Compensation: what was completed is undone in reverse order, one after the other, each as a step of its own. It
//! begins when nobody is at work any more, and never over an attempt whose effect is unknown.

use super::control::{named, undo_named};
use super::flow::{By, Flow, SYSTEM, broken};
use super::guard::Given;
use super::person::give_up;
use super::{Action, Cell, Context, Event, Live, Role, Run, alive, permitted};
use crate::lifecycle::{ActorClass, FailureCategory, Outcome, RunState, StepCode};
use crate::plan::{Plan, StepSeq, StepSpec, Work};
use crate::process::Process;
use crate::refusal::{Refusal, require_text};
use crate::registry::scopes;
use std::sync::Arc;

impl Flow<'_, '_, '_> {
    /// No new step begins; those at work may finish.
    pub fn begin_compensation(&mut self, error: &str, trigger: &'static str) -> Result<(), Refusal> {
        self.head.last_error = Some(error.into());
        self.move_run(RunState::Compensating, trigger)?;
        self.end_idle_steps()?;
        self.moot_all_gates();
        Ok(())
    }

    /// A cancelled run undoes its work. Who works on a step loses its lease, as by any cancellation.
    pub fn call_off(&mut self) -> Result<(), Refusal> {
        self.head.called_off = true;
        self.notes.compensate = true;
        self.end_idle_steps()?;
        self.moot_all_gates();
        self.revoke_work("RUN_CANCELLED", None)?;
        self.advance()
    }

    /// Steps that nobody is at work on end here. One of which an earlier attempt left no verdict has failed: it must still be
    /// declared what became of it.
    fn end_idle_steps(&mut self) -> Result<(), Refusal> {
        // Tasks come first: a step of which none is under way any more ends with them.
        let (tasks, steps): (Vec<_>, Vec<_>) =
            self.live().into_iter().partition(|seq| self.run.plan.step_of_task(*seq).is_some());
        for seq in tasks.into_iter().chain(steps) {
            let abandoned = self.is_abandoned(seq);
            let Some(cell) = self.cell(seq).filter(|cell| !matches!(cell.role, Role::Compensation(_))) else {
                continue;
            };
            // Its child may finish, waiting or not.
            if cell.awaited().is_some() {
                continue;
            }
            let unknown = cell.live.as_ref().is_some_and(|live| live.effect_unknown);
            let state = if cell.is_unclaimed() { StepCode::Ready } else { cell.state };
            match state {
                StepCode::Failed if !cell.retry_scheduled() => continue,
                StepCode::Failed if unknown => {}
                StepCode::Ready | StepCode::Waiting | StepCode::Blocked if unknown => {
                    self.move_step(seq, StepCode::Failed, By(SYSTEM, "lease_exhausted"))?;
                }
                StepCode::Ready | StepCode::Waiting | StepCode::Blocked | StepCode::Failed => {
                    self.move_step(seq, StepCode::Cancelled, By(SYSTEM, "run_aborted"))?;
                }
                StepCode::InProgress | StepCode::Overdue if abandoned => {
                    self.move_step(seq, StepCode::Cancelled, By(SYSTEM, "run_aborted"))?;
                }
                _ => continue,
            }
            self.revoke(seq)?;
        }
        Ok(())
    }

    /// The run's time is over, or it was called off: those at work lose their leases. What a lost attempt did is unknown,
    /// unless it may simply be made again.
    pub fn revoke_work(&mut self, error: &str, category: Option<FailureCategory>) -> Result<(), Refusal> {
        // Tasks come first: a step of which none is under way any more ends with them.
        let (tasks, steps): (Vec<_>, Vec<_>) =
            self.live().into_iter().partition(|seq| self.run.plan.step_of_task(*seq).is_some());
        for seq in tasks.into_iter().chain(steps) {
            let at_work = self.cell(seq).is_some_and(|cell| {
                !matches!(cell.role, Role::Compensation(_)) && (cell.is_held() || cell.awaited().is_some())
            });
            if !at_work || self.spec(seq).is_some_and(StepSpec::is_frame) {
                continue;
            }
            self.lose_verdict(seq)?;
            let live = self.edit(seq)?.live.get_or_insert_default();
            if live.effect_unknown {
                live.last_error = Some(error.into());
                live.category = category;
                self.move_step(seq, StepCode::Failed, By(SYSTEM, "lease_exhausted"))?;
            } else {
                self.move_step(seq, StepCode::Cancelled, By(SYSTEM, "run_aborted"))?;
            }
            self.revoke(seq)?;
        }
        Ok(())
    }

    /// The next thing to undo, or the end of it.
    pub fn compensate(&mut self) -> Result<(), Refusal> {
        self.end_idle_steps()?;
        if self.head.held > 0 || self.live().iter().any(|seq| self.cell(*seq).is_some_and(|c| c.awaited().is_some())) {
            return Ok(());
        }
        if let Some(seq) = self.unknown_effect() {
            self.head.outcome = Some(Outcome::EffectUnknown);
            let name = self.run.step_name(seq).to_owned();
            self.head.last_error = Some(format!("EFFECT_UNKNOWN: {name}").into());
            return self.move_run(RunState::Blocked, "effect_unknown");
        }
        if !self.has_compensations() {
            self.plan_compensations();
        }
        match self.next_to_undo() {
            Some(seq) if self.state(seq) == Some(StepCode::NotStarted) => {
                self.move_step(seq, StepCode::Ready, By(ActorClass::MowOrchestrator, "precondition"))?;
                let now = self.now();
                self.edit(seq)?.live.get_or_insert_default().next_run_at = Some(now);
                Ok(())
            }
            Some(_) => Ok(()),
            None => {
                if let Some(seq) = self.not_undone() {
                    let error = format!("NOT_UNDONE: {}", self.run.step_name(seq));
                    return self.compensation_failed(&error);
                }
                self.head.outcome = Some(Outcome::RolledBack);
                let to = if self.head.called_off { RunState::Cancelled } else { RunState::Completed };
                self.move_run(to, "all_compensated")?;
                self.moot_open_gates();
                Ok(())
            }
        }
    }

    /// What an operator declared not undone, and the run went on without.
    fn not_undone(&self) -> Option<StepSeq> {
        let behind = StepSeq::try_from(self.run.plan.cell_count()).ok()?;
        (behind..self.count()).find(|seq| self.state(*seq) == Some(StepCode::CannotComplete))
    }

    /// They end one after the other, so the first that has not is found by halving.
    fn next_to_undo(&self) -> Option<StepSeq> {
        let (mut ended, mut end) = (StepSeq::try_from(self.run.plan.cell_count()).ok()?, self.count());
        let past = end;
        while ended < end {
            let middle = ended + (end - ended) / 2;
            let passed = |cell: &Cell| cell.is_ended() || cell.state == StepCode::CannotComplete;
            if self.cell(middle).is_some_and(passed) {
                ended = middle + 1;
            } else {
                end = middle;
            }
        }
        (ended < past).then_some(ended)
    }

    fn has_compensations(&self) -> bool {
        self.count() as usize > self.run.plan.cell_count()
    }

    /// The last one completed is undone first, and before it what was declared done; last what was taken over from another run,
    /// whose effects are this one's now. Of several at one time, what builds on another is undone before it. Steps without an
    /// entry are passed over.
    fn plan_compensations(&mut self) {
        for step in self.run.plan.undone(|step| self.cell(step)) {
            self.add(Cell { role: Role::Compensation(step), live: Some(Box::new(Live::default())), ..Cell::new(0) });
        }
    }

    /// A step of which nobody knows whether it happened, or still happens. Nothing is undone around it, whether or not it could
    /// itself be undone.
    fn unknown_effect(&self) -> Option<StepSeq> {
        let unknown = |cell: &Cell| cell.live.as_ref().is_some_and(|live| live.effect_unknown);
        self.live().into_iter().find(|seq| self.cell(*seq).is_some_and(unknown))
    }

    /// An attempt ends without a verdict: what it did is unknown, unless it may simply be made again.
    pub fn lose_verdict(&mut self, seq: StepSeq) -> Result<(), Refusal> {
        if self.spec(seq).is_some_and(|spec| !spec.is_repeatable()) {
            self.edit(seq)?.live.get_or_insert_default().effect_unknown = true;
        }
        Ok(())
    }

    /// Why the work is undone, once it is known what became of this step: another one that failed, or else its own error.
    fn what_failed(&self, declared: StepSeq) -> Option<Arc<str>> {
        let error = |seq: StepSeq| {
            let live = self.cell(seq).filter(|cell| cell.state == StepCode::Failed)?.live.as_ref()?;
            live.last_error.clone().filter(|_| !live.effect_unknown)
        };
        let planned = StepSeq::try_from(self.run.plan.steps.len()).unwrap_or(StepSeq::MAX);
        // The last one: those before it were gone on without.
        (0..planned).rev().filter(|seq| *seq != declared).find_map(error).or_else(|| error(declared))
    }

    /// What undoes this step has failed for good: it waits for an operator where its entry says `onFailure: hold`, and ends
    /// the run otherwise.
    pub fn undo_failed(&mut self, step: StepSeq, error: &str) -> Result<(), Refusal> {
        match self.run.plan.compensation_of(step) {
            Some(entry) if entry.hold => Ok(()),
            _ => self.compensation_failed(error),
        }
    }

    /// It triggers nothing further.
    pub fn compensation_failed(&mut self, error: &str) -> Result<(), Refusal> {
        self.head.last_error = Some(error.into());
        self.move_run(RunState::Failed, "compensation_failed")?;
        self.head.outcome = Some(Outcome::Partial);
        self.revoke_all(By(SYSTEM, "run_aborted"))
    }
}

impl Plan {
    /// The steps that would be undone, the first to be undone first.
    fn undone<'c>(&self, cell: impl Fn(StepSeq) -> Option<&'c Cell>) -> Vec<StepSeq> {
        let due = self.compensation.iter().filter_map(|entry| {
            let cell = cell(entry.step)?;
            let taken_over = (cell.state == StepCode::Completed).then_some(crate::Time(0));
            Some((cell.completed_at.or(taken_over)?, self.depth(entry.step), entry.step))
        });
        let mut due: Vec<(crate::Time, u32, StepSeq)> = due.collect();
        due.sort_unstable_by(|a, b| b.cmp(a));
        due.into_iter().map(|(.., step)| step).collect()
    }
}

/// What a cancellation does to the steps that completed, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// Undone, in this order.
    pub undoes: Vec<Arc<str>>,
    /// Left as they are.
    pub leaves: Vec<Arc<str>>,
}

impl Run {
    /// What a cancellation undoes and what it leaves as it is, as the run stands now.
    pub fn reach_of_cancel(&self, compensate: bool) -> Reach {
        let undone = if compensate { self.plan.undone(|step| self.cell(step)) } else { vec![] };
        let name = |seq: StepSeq| Arc::from(self.step_name(seq));
        let steps = StepSeq::try_from(self.plan.steps.len()).unwrap_or(StepSeq::MAX);
        let left = |seq: &StepSeq| {
            self.cell(*seq).is_some_and(|cell| cell.state == StepCode::Completed) && !undone.contains(seq)
        };
        Reach {
            leaves: (0..steps).filter(left).map(name).collect(),
            undoes: undone.iter().copied().map(name).collect(),
        }
    }
}

/// An operator declares what became of an attempt that left no verdict; the run goes on undoing. A person who is at work when
/// the run begins to undo may finish, and has no lease that would end: what became of their step can be declared at any time.
pub fn declare_effect(
    target: Option<(&Process, &Run)>,
    step: &str,
    done: bool,
    output: Option<&Arc<str>>,
    reason: &str,
    ctx: &mut Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    require_text("reason", reason)?;
    let (shell, run) = permitted(target, scopes::RUNS_CONTROL, ctx)?;
    alive(run)?;
    if let Some(seq) = undo_named(run, step) {
        return declare_undo((shell, run), seq, done, output, reason, ctx);
    }
    let seq = named(run, step)?;
    Flow::new(shell, run, ctx).allow(seq, "effect_declare", &Given::default())?;
    let unknown = run.cell(seq).and_then(|cell| cell.live.as_ref()).is_some_and(|live| live.effect_unknown);
    if unknown && run.runbook().is_some() && run.head.state == RunState::Stopped {
        return declare_in_runbook((shell, run), seq, done, output, reason, ctx);
    }
    let persons = run.plan.step(seq).is_some_and(|spec| matches!(spec.work, Work::Human { .. }));
    let at_work = run.head.undoing && persons && run.cell(seq).is_some_and(Cell::is_held);
    let actor_ref = ctx.base.actor_ref.to_owned();
    let mut flow = Flow::new(shell, run, ctx);
    let now = flow.now();
    if at_work {
        flow.move_step(seq, StepCode::Failed, By(SYSTEM, "lease_exhausted"))?;
        flow.revoke(seq)?;
        flow.edit(seq)?.live.get_or_insert_default().last_error = Some("EFFECT_DECLARED".into());
    }
    let cell = flow.edit(seq)?;
    cell.live.get_or_insert_default().effect_unknown = false;
    if done {
        // Its effect stands and is to be undone with the rest. The step itself has failed and stays so.
        cell.completed_at = Some(now);
        flow.outputs.push((seq, output.cloned().unwrap_or_else(|| Arc::from("null"))));
    }
    flow.effect = Some((seq, done));
    if !at_work {
        flow.head.outcome = None;
        if let Some(error) = flow.what_failed(seq) {
            flow.head.last_error = Some(error);
        }
        flow.move_run(RunState::Compensating, "effect_declared")?;
    }
    flow.advance()?;
    Ok(flow.finish(Action::EffectDeclared, &actor_ref, Some(reason)))
}

/// What undoes a step is done, or is not, whatever has become of it here. Whoever is at work on it loses the lease. Done: the
/// undos behind it go on. Not done: they go on only where a failure is held; otherwise the run has failed.
fn declare_undo(
    (shell, run): (&Process, &Run),
    seq: StepSeq,
    done: bool,
    output: Option<&Arc<str>>,
    reason: &str,
    ctx: &mut Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    let actor_ref = ctx.base.actor_ref.to_owned();
    let mut flow = Flow::new(shell, run, ctx);
    let to = if done { StepCode::Completed } else { StepCode::CannotComplete };
    let by = By(ActorClass::Reviewer, "undo_declared");
    flow.allow(seq, "undo_declare", &Given::default())?;
    flow.declared(seq, to, by)?;
    let Some(Role::Compensation(undone)) = flow.cell(seq).map(|cell| cell.role) else { return Err(broken()) };
    flow.effect = Some((seq, done));
    match done {
        true => {
            flow.close(seq, output.cloned().unwrap_or_else(|| Arc::from("null")), by)?;
            flow.take_away(seq)?;
        }
        false => {
            give_up(&mut flow, seq, by, None)?;
            flow.undo_failed(undone, &format!("NOT_UNDONE: {}", run.step_name(seq)))?;
        }
    }
    flow.advance()?;
    Ok(flow.finish(Action::EffectDeclared, &actor_ref, Some(reason)))
}

/// In a runbook that stopped: what was not done may be done after the resume; what was done is held against the step's checks
/// at once.
fn declare_in_runbook(
    (shell, run): (&Process, &Run),
    seq: StepSeq,
    done: bool,
    output: Option<&Arc<str>>,
    reason: &str,
    ctx: &mut Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    let actor_ref = ctx.base.actor_ref.to_owned();
    let mut flow = Flow::new(shell, run, ctx);
    flow.edit(seq)?.live.get_or_insert_default().effect_unknown = false;
    flow.effect = Some((seq, done));
    if done {
        match flow.judge(seq, output.cloned().unwrap_or_else(|| Arc::from("null"))) {
            Ok(output) => {
                let by = By(ActorClass::Reviewer, "effect_declared");
                flow.yield_or_close(seq, output, vec![], by)?;
            }
            Err((error, trigger)) => flow.fail(seq, &error, FailureCategory::Validation, By(SYSTEM, trigger))?,
        }
    }
    flow.advance()?;
    Ok(flow.finish(Action::EffectDeclared, &actor_ref, Some(reason)))
}
