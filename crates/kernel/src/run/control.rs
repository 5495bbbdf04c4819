//! What operators do to a run: pause, resume, cancel, stop, void.

use super::flow::{By, Flow, SYSTEM};
use super::{Action, Context, Event, Run, alive, permitted};
use crate::lifecycle::{ActorClass, Outcome, RunState, StepCode};
use crate::process::Process;
use crate::refusal::{Code, Refusal, require_optional_text};
use crate::registry::scopes;

type Target<'r> = Option<(&'r Process, &'r Run)>;

fn begin<'r>(target: Target<'r>, reason: Option<&str>, ctx: &Context<'_>) -> Result<(&'r Process, &'r Run), Refusal> {
    require_optional_text("reason", reason)?;
    permitted(target, scopes::RUNS_CONTROL, ctx)
}

/// A run that began to undo its work, and waits to be told what became of an attempt, never executes again: there is nothing
/// that a resume could go back to. Nor is it cancelled half-way.
fn effects_known(run: &Run) -> Result<(), Refusal> {
    if run.head.outcome == Some(Outcome::EffectUnknown) {
        let detail = "the run is undoing its work and waits to be told what became of an attempt: declare its effect";
        return Err(Refusal::new(Code::TransitionRefusedByGuard, detail));
    }
    Ok(())
}

pub fn cancel(target: Target<'_>, reason: Option<&str>, ctx: &mut Context<'_>) -> Result<Vec<Event>, Refusal> {
    let (shell, run) = begin(target, reason, ctx)?;
    if run.head.state == RunState::Cancelled {
        return Ok(vec![]);
    }
    alive(run)?;
    if run.head.state == RunState::Compensating {
        let detail = "the run is undoing its work; it ends by itself and cannot be cancelled half-way";
        return Err(Refusal::new(Code::InvalidTransition, detail));
    }
    effects_known(run)?;
    let actor_ref = ctx.base.actor_ref.to_owned();
    let mut flow = Flow::new(shell, run, ctx);
    flow.require_cancel_gate()?;
    flow.move_run(RunState::Cancelled, "workflow_cancel")?;
    flow.revoke_all(By(ActorClass::Reviewer, "workflow_cancel"))?;
    Ok(flow.finish(Action::RunCancelled, &actor_ref, reason))
}

pub fn pause(target: Target<'_>, reason: Option<&str>, ctx: &mut Context<'_>) -> Result<Vec<Event>, Refusal> {
    let (shell, run) = begin(target, reason, ctx)?;
    alive(run)?;
    if run.head.state == RunState::Paused {
        return Ok(vec![]);
    }
    effects_known(run)?;
    let actor_ref = ctx.base.actor_ref.to_owned();
    let mut flow = Flow::new(shell, run, ctx);
    flow.move_run(RunState::Paused, "workflow_pause")?;
    Ok(flow.finish(Action::RunPaused, &actor_ref, reason))
}

pub fn resume(target: Target<'_>, reason: Option<&str>, ctx: &mut Context<'_>) -> Result<Vec<Event>, Refusal> {
    let (shell, run) = begin(target, reason, ctx)?;
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
    let to = match (flow.head.executing_since, flow.head.blocked) {
        (None, _) => RunState::Queued,
        (Some(_), 0) => RunState::Executing,
        (Some(_), _) => RunState::Blocked,
    };
    flow.move_run(to, "workflow_resume")?;
    flow.advance()?;
    Ok(flow.finish(Action::RunResumed, &actor_ref, reason))
}

/// Leases are revoked and steps go back to ready; only a resume goes on.
pub fn stop(target: Target<'_>, reason: Option<&str>, ctx: &mut Context<'_>) -> Result<Vec<Event>, Refusal> {
    let (shell, run) = begin(target, reason, ctx)?;
    alive(run)?;
    if run.head.state == RunState::Stopped {
        return Ok(vec![]);
    }
    effects_known(run)?;
    let actor_ref = ctx.base.actor_ref.to_owned();
    let mut flow = Flow::new(shell, run, ctx);
    flow.stand_still(Outcome::Operator, "workflow_stop")?;
    Ok(flow.finish(Action::RunStopped, &actor_ref, reason))
}

impl Flow<'_, '_, '_> {
    /// The run stands still. Whoever is at work loses their lease, and what they did under it is unknown.
    pub fn stand_still(&mut self, outcome: Outcome, trigger: &'static str) -> Result<(), Refusal> {
        self.move_run(RunState::Stopped, trigger)?;
        self.head.outcome = Some(outcome);
        let now = self.now();
        for seq in self.live() {
            // What has only tasks, or waits for a child, nobody holds.
            let frame = self.spec(seq).is_some_and(crate::plan::StepSpec::is_frame);
            if self.cell(seq).is_some_and(|cell| cell.is_held() && cell.awaited().is_none()) && !frame {
                if self.cell(seq).is_some_and(|cell| cell.lease().is_some()) {
                    self.lose_verdict(seq)?;
                }
                self.move_step(seq, StepCode::Ready, By(SYSTEM, "unclaimed"))?;
                self.revoke(seq)?;
                self.edit(seq)?.live.get_or_insert_default().next_run_at = Some(now);
            }
        }
        Ok(())
    }
}

/// Its steps are cancelled as by a cancellation, and where that needs an approval, so does this.
pub fn void(target: Target<'_>, reason: Option<&str>, ctx: &mut Context<'_>) -> Result<Vec<Event>, Refusal> {
    let (shell, run) = begin(target, reason, ctx)?;
    alive(run)?;
    let actor_ref = ctx.base.actor_ref.to_owned();
    let mut flow = Flow::new(shell, run, ctx);
    flow.move_run(RunState::Voided, "workflow_void")?;
    flow.require_cancel_gate()?;
    flow.revoke_all(By(ActorClass::Reviewer, "workflow_cancel"))?;
    Ok(flow.finish(Action::RunVoided, &actor_ref, reason))
}

/// The step of that name in the run's plan, or the task.
pub fn named(run: &Run, step: &str) -> Result<crate::plan::StepSeq, Refusal> {
    run.plan
        .cell_named(step)
        .ok_or_else(|| Refusal::new(Code::NotKnown, format!("the run has no step named `{step}`")).at("step"))
}
