//! What operators do to a run: pause, resume, cancel, stop, void.

use super::flow::{By, Flow};
use super::guard::{Approval, Given};
use super::stop::{RESUME, VOID};
use super::{Action, Context, Event, Role, Run, alive, permitted};
use crate::lifecycle::{ActorClass, Outcome, RunState, StepCode};
use crate::process::Process;
use crate::refusal::{Code, Refusal, require_optional_text, require_present, require_ref};
use crate::registry::scopes;

/// What a compensation is called: this, and the step that it undoes.
pub const UNDO: &str = "undo:";

type Target<'r> = Option<(&'r Process, &'r Run)>;

/// Holding a run up or ending it needs a reason.
fn begin<'r>(target: Target<'r>, reason: Option<&str>, ctx: &Context<'_>) -> Result<(&'r Process, &'r Run), Refusal> {
    require_present("reason", reason)?;
    permitted(target, scopes::RUNS_CONTROL, ctx)
}

/// What is undone half-way stays undone half-way only where an operator says so, undo by undo.
fn not_undoing(run: &Run) -> Result<(), Refusal> {
    if run.head.undoing && run.head.outcome != Some(Outcome::EffectUnknown) {
        let detail = "the run is undoing its work, which cannot be called off half-way: pause or stop it, or declare `undo:<step>`";
        return Err(Refusal::new(Code::InvalidTransition, detail));
    }
    Ok(())
}

/// A run that was called off may still be undoing its work. It is not called off twice.
fn not_called_off(run: &Run) -> Result<(), Refusal> {
    if run.head.called_off {
        let detail =
            "the run was cancelled already and is undoing its work: pause or stop it, or declare `undo:<step>`";
        return Err(Refusal::new(Code::AlreadyTerminal, detail));
    }
    Ok(())
}

/// Ends the run, with what it completed undone first (`compensate`) or left as it is.
pub fn cancel(
    target: Target<'_>,
    reason: Option<&str>,
    approval_id: Option<&str>,
    compensate: bool,
    ctx: &mut Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    let (shell, run) = begin(target, reason, ctx)?;
    alive(run)?;
    not_called_off(run)?;
    if compensate && run.plan.compensation.is_empty() {
        let detail = "the definition declares no compensation, so nothing would be undone: cancel without `compensate`";
        return Err(Refusal::new(Code::InvalidRequest, detail).at("compensate"));
    }
    not_undoing(run)?;
    let actor_ref = ctx.base.actor_ref.to_owned();
    let mut flow = Flow::new(shell, run, ctx);
    let approval = flow.cancel_approval(approval_id);
    match compensate {
        true => {
            flow.move_approved(RunState::Compensating, "workflow_cancel", approval)?;
            flow.call_off()?;
        }
        false => {
            flow.move_approved(RunState::Cancelled, "workflow_cancel", approval)?;
            flow.revoke_all(By(ActorClass::Reviewer, "workflow_cancel"))?;
        }
    }
    Ok(flow.finish(Action::RunCancelled, &actor_ref, reason))
}

pub fn pause(target: Target<'_>, reason: Option<&str>, ctx: &mut Context<'_>) -> Result<Vec<Event>, Refusal> {
    let (shell, run) = begin(target, reason, ctx)?;
    alive(run)?;
    if run.head.state == RunState::Paused {
        return Ok(vec![]);
    }
    let actor_ref = ctx.base.actor_ref.to_owned();
    let mut flow = Flow::new(shell, run, ctx);
    flow.move_run(RunState::Paused, "workflow_pause")?;
    Ok(flow.finish(Action::RunPaused, &actor_ref, reason))
}

/// What was stopped and needs an approval to go on goes on with that of this stop, and with no other; then its pins are
/// looked at before anything begins.
pub fn resume(
    target: Target<'_>,
    approval_id: Option<&str>,
    reason: Option<&str>,
    ctx: &mut Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    approval_id.map_or(Ok(()), |id| require_ref("approval_id", id))?;
    require_optional_text("reason", reason)?;
    let (shell, run) = permitted(target, scopes::RUNS_CONTROL, ctx)?;
    match run.head.state {
        // Resuming what runs, or has run to its end, changes nothing.
        RunState::Executing | RunState::Blocked | RunState::Queued | RunState::Completed => return Ok(vec![]),
        RunState::Paused | RunState::Stopped => {}
        _ => {
            alive(run)?;
            let detail = format!("the run is {}; there is nothing to resume", run.head.state);
            return Err(Refusal::new(Code::InvalidTransition, detail));
        }
    }
    let actor_ref = ctx.base.actor_ref.to_owned();
    let mut flow = Flow::new(shell, run, ctx);
    let stopped = run.head.state == RunState::Stopped;
    let to = match (flow.head.executing_since, flow.head.blocked) {
        _ if flow.head.undoing => RunState::Compensating,
        (None, _) => RunState::Queued,
        (Some(_), 0) => RunState::Executing,
        (Some(_), _) => RunState::Blocked,
    };
    let gated = stopped && run.guards(RESUME);
    let approval = gated.then_some(Approval { gate: RESUME, id: approval_id, is_named: true });
    let fired = flow.fire_run(to, "workflow_resume", &Given { approval, ..Given::default() })?;
    if let Some(approval) = approval {
        flow.notes.approval_id = Some(flow.spend(&approval)?);
        flow.renew_budget();
    }
    if stopped && run.runbook().is_some() {
        flow.pin_anew();
    }
    flow.make_run(fired)?;
    flow.take_up(stopped)?;
    flow.advance()?;
    Ok(flow.finish(Action::RunResumed, &actor_ref, reason))
}

impl Flow<'_, '_, '_> {
    /// Moves the run with the approval that this takes, and spends it.
    fn move_approved(
        &mut self,
        to: RunState,
        trigger: &'static str,
        approval: Option<Approval<'_>>,
    ) -> Result<(), Refusal> {
        let fired = self.fire_run(to, trigger, &Given { approval, ..Given::default() })?;
        if let Some(approval) = approval {
            self.notes.approval_id = Some(self.spend(&approval)?);
        }
        self.make_run(fired)
    }

    /// A runbook goes on: its pins are looked at once more. A gate that drift has mooted is opened again when they were: they
    /// may be at the value from before, and nobody is asked about a world that nobody has looked at.
    fn take_up(&mut self, stopped: bool) -> Result<(), Refusal> {
        let Some(seq) = self.resumes_at().filter(|seq| self.book().is_some() && !self.has_yielded(*seq)) else {
            return Ok(());
        };
        if !self.notes.repinned.is_empty() {
            self.moot_gate_of(seq);
        }
        // Nobody claims a step anew that waits for its child: its cap counts from here.
        let (now, awaits) = (self.now(), stopped && self.cell(seq).is_some_and(|cell| cell.awaited().is_some()));
        if let Some(book) = self.book_mut().filter(|_| awaits) {
            book.claimed = Some((seq, now));
        }
        let cleared = self.spec(seq).is_some_and(|spec| self.is_cleared(&spec.name));
        let begins = match self.state(seq) {
            Some(StepCode::NotStarted) => self.cell(seq).is_some_and(|cell| cell.open_deps == 0),
            Some(StepCode::Blocked) => cleared,
            Some(StepCode::Ready | StepCode::Overdue) => self.cell(seq).is_some_and(super::Cell::is_offered),
            _ => false,
        };
        if self.has_pins() && (stopped || begins) { self.ask_survey(seq) } else { Ok(()) }
    }
}

/// Leases are revoked and steps go back to ready; only a resume goes on.
pub fn stop(target: Target<'_>, reason: Option<&str>, ctx: &mut Context<'_>) -> Result<Vec<Event>, Refusal> {
    let (shell, run) = begin(target, reason, ctx)?;
    alive(run)?;
    if run.head.state == RunState::Stopped {
        return Ok(vec![]);
    }
    let actor_ref = ctx.base.actor_ref.to_owned();
    let mut flow = Flow::new(shell, run, ctx);
    flow.stand_still(Outcome::Operator, "workflow_stop", reason)?;
    Ok(flow.finish(Action::RunStopped, &actor_ref, reason))
}

/// Its steps are cancelled as by a cancellation, and where that needs an approval, so does this. A runbook's is voided with the
/// sovereign's, and also where it has failed or was cancelled.
pub fn void(
    target: Target<'_>,
    approval_id: Option<&str>,
    reason: Option<&str>,
    ctx: &mut Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    approval_id.map_or(Ok(()), |id| require_ref("approval_id", id))?;
    let (shell, run) = begin(target, reason, ctx)?;
    if !run.head.state.is_ended() {
        not_undoing(run)?;
    }
    let guarded = run.guards(VOID);
    let voidable = guarded && matches!(run.head.state, RunState::Failed | RunState::Cancelled);
    if !voidable {
        alive(run)?;
    }
    let actor_ref = ctx.base.actor_ref.to_owned();
    let mut flow = Flow::new(shell, run, ctx);
    let approval = match guarded {
        true => Some(Approval { gate: VOID, id: approval_id, is_named: true }),
        false => flow.cancel_approval(approval_id),
    };
    flow.move_approved(RunState::Voided, "workflow_void", approval)?;
    match voidable {
        true => flow.moot_all_gates(),
        false => flow.revoke_all(By(ActorClass::Reviewer, "workflow_cancel"))?,
    }
    Ok(flow.finish(Action::RunVoided, &actor_ref, reason))
}

/// What undoes the step of that name, called `undo:<step>`.
pub fn undo_named(run: &Run, name: &str) -> Option<crate::plan::StepSeq> {
    let undone = run.plan.step_named(name.strip_prefix(UNDO)?)?;
    let behind = crate::plan::StepSeq::try_from(run.plan.cell_count()).ok()?;
    (behind..).zip(run.cells.get(behind as usize..)?).find_map(|(seq, cell)| match cell.role {
        Role::Compensation(step) if step == undone => Some(seq),
        _ => None,
    })
}

/// The step of that name in the run's plan, or the task.
pub fn named(run: &Run, step: &str) -> Result<crate::plan::StepSeq, Refusal> {
    run.plan
        .cell_named(step)
        .ok_or_else(|| Refusal::new(Code::NotKnown, format!("the run has no step named `{step}`")).at("step"))
}
