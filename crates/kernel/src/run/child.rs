//! A step that is a run of its own (seed 003 §5.3). While the child lives, the step is `in_progress`, or
//! `waiting(waiting_dependency)` where the child waits, and shows the child's colour; it ends when the child has.

use super::flow::{By, Flow, SYSTEM, WORKER};
use super::guard::Given;
use super::result::{Target, failed, held};
use super::{Action, Cell, Context, Event, Facet, Run, TaskRef, Waiting, permitted};
use crate::Time;
use crate::id::InstanceId;
use crate::lifecycle::{FailureCategory, RunState, StepCode};
use crate::plan::{Micros, StepSeq, StepSpec};
use crate::process::Process;
use crate::refusal::Refusal;
use crate::registry::scopes;
use crate::rollup::Colour;
use std::sync::Arc;

/// After this long somebody asks after a child whose end went unnoticed.
const CHILD_CHECK: Micros = 30_000_000;

impl Cell {
    /// The run that it waits for, under nobody's lease.
    pub fn awaited(&self) -> Option<InstanceId> {
        let live = self.live.as_deref().filter(|live| live.lease.is_none())?;
        live.child.filter(|_| self.is_held() || self.state == StepCode::Waiting)
    }
}

/// Whether a step in this state will wait for no child any more.
pub fn is_over(state: StepCode, retry_scheduled: bool) -> bool {
    state.is_terminal() || state == StepCode::CannotComplete || state == StepCode::Failed && !retry_scheduled
}

impl Run {
    /// When somebody has to look at the run itself. Who opens the store asks at once whether anybody still waits for a child.
    pub fn head_due_at(&self) -> Option<Time> {
        let begun = self.head.parent.as_ref().filter(|_| !self.head.state.is_ended()).and(self.head.executing_since);
        begun.into_iter().chain(self.due_at()).min()
    }

    /// Nothing in it is at work or could be begun: whatever it has left waits for somebody or something. Only whoever waits
    /// for this run asks.
    pub fn waits(&self) -> bool {
        let begins = match self.head.state {
            RunState::Executing | RunState::Blocked | RunState::Compensating => true,
            // Work under way may finish; none begins.
            RunState::Paused | RunState::Stopped => false,
            _ => return false,
        };
        // What has only tasks is at work where they are.
        let at_work = |seq: StepSeq, cell: &Cell| {
            cell.is_held() && !self.plan.step(seq).is_some_and(StepSpec::is_frame)
                || begins && (cell.is_offered() || cell.retry_scheduled())
        };
        !self.live.iter().any(|seq| self.cell(*seq).is_some_and(|cell| at_work(*seq, cell)))
    }
}

/// The child run exists: from here on its end ends the step, not a lease.
pub fn started(
    target: Target<'_>,
    task: &TaskRef,
    child: InstanceId,
    ctx: &mut Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    let (shell, run) = permitted(target, scopes::TASKS_WORK, ctx)?;
    if run.cell(task.step_seq).is_some_and(|cell| cell.awaited() == Some(child)) {
        return Ok(vec![]);
    }
    held(run, task, ctx)?;
    let actor_ref = ctx.base.actor_ref.to_owned();
    let mut flow = Flow::new(shell, run, ctx);
    let again = flow.now().after(CHILD_CHECK);
    let live = flow.edit(task.step_seq)?.live.get_or_insert_default();
    live.child = Some(child);
    live.child_colour = None;
    live.lease = None;
    live.next_run_at = Some(again);
    Ok(flow.finish(Action::ChildStarted, &actor_ref, None))
}

/// The child goes on: its colour drives that of the step, and where it waits, the step does.
pub fn coloured(
    (shell, run): (&Process, &Run),
    seq: StepSeq,
    child: InstanceId,
    (colour, waits): (Colour, bool),
    ctx: &mut Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    let Some(cell) = run.cell(seq).filter(|cell| cell.awaited() == Some(child)) else { return Ok(vec![]) };
    // In a run that was stopped nothing moves; it is heard of again when the run goes on.
    let stands = run.head.state == RunState::Stopped || waits == (cell.state == StepCode::Waiting);
    if stands && cell.live.as_ref().is_some_and(|live| live.child_colour == Some(colour)) {
        return Ok(vec![]);
    }
    let actor_ref = ctx.base.application_actor_ref.to_owned();
    let mut flow = Flow::new(shell, run, ctx);
    flow.edit(seq)?.live.get_or_insert_default().child_colour = Some(colour);
    let action = match (stands, waits) {
        (true, _) => Action::ChildColoured,
        (false, true) => {
            let given = Given { facets: &[Facet::Dependency.as_str()], ..Given::default() };
            flow.move_given(seq, StepCode::Waiting, By(WORKER, "step_wait"), &given)?;
            let waiting = Waiting { event_type: None, facet: Facet::Dependency, secondary: vec![], deadline_at: None };
            flow.edit(seq)?.live.get_or_insert_default().waiting = Some(waiting);
            Action::ChildWaiting
        }
        (false, false) => {
            flow.go_on_with_child(seq, child)?;
            Action::ChildResumed
        }
    };
    Ok(flow.finish(action, &actor_ref, None))
}

/// The child has ended: so has the step that waits for it. In a run that was stopped it is heard of when the run goes on.
pub fn ended(
    (shell, run): (&Process, &Run),
    seq: StepSeq,
    child: InstanceId,
    completed: bool,
    output: &Arc<str>,
    ctx: &mut Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    if run.cell(seq).and_then(Cell::awaited) != Some(child) || run.head.state == RunState::Stopped {
        return Ok(vec![]);
    }
    let actor_ref = ctx.base.application_actor_ref.to_owned();
    let mut flow = Flow::new(shell, run, ctx);
    flow.go_on_with_child(seq, child)?;
    if completed {
        flow.completed(seq, output.clone())?;
    } else {
        failed(&mut flow, seq, &format!("CHILD_FAILED: {output}"), None, Some(FailureCategory::External))?;
    }
    flow.advance()?;
    Ok(flow.finish(Action::ChildEnded, &actor_ref, None))
}

impl Flow<'_, '_, '_> {
    /// T3r, where it was waiting. That the child goes on is the proof.
    fn go_on_with_child(&mut self, seq: StepSeq, child: InstanceId) -> Result<(), Refusal> {
        if self.state(seq) == Some(StepCode::Waiting) {
            let child = child.to_string();
            let given = Given { evidence: Some(&child), ..Given::default() };
            self.move_given(seq, StepCode::InProgress, By(SYSTEM, "facet_resolved"), &given)?;
            self.edit(seq)?.live.get_or_insert_default().waiting = None;
        }
        Ok(())
    }
}
