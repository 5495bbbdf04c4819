//! `due`: the clock reached something. What the engine thinks is due is only a hint; each thing is judged by what the
//! run holds now.

use super::flow::{By, Flow, SYSTEM};
use super::result::lease_expired;
use super::{Action, Cell, Context, Event, Run, cell};
use crate::lifecycle::{FailureCategory, Outcome, RunState, StepCode};
use crate::plan::{FailurePolicy, StepSeq, Work};
use crate::process::Process;
use crate::refusal::Refusal;
use std::sync::Arc;

pub fn decide(
    (shell, run): (&Process, &Run),
    steps: &[StepSeq],
    whole: bool,
    ctx: &mut Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    if run.head.state.is_ended() {
        return Ok(vec![]);
    }
    let actor_ref = ctx.base.application_actor_ref.to_owned();
    let mut flow = Flow::new(shell, run, ctx);
    if whole {
        run_due(&mut flow)?;
        if !flow.head.state.is_ended() {
            flow.hard_cap_due()?;
        }
    }
    let mut asked = false;
    for seq in steps {
        if flow.head.state.is_ended() {
            break;
        }
        if flow.survey_due(*seq)? {
            asked = true;
            continue;
        }
        if !flow.soft_cap_due(*seq)? {
            step_due(&mut flow, *seq)?;
        }
    }
    let lost = flow.moves.iter().any(|m| m.trigger == "lease_expired");
    if lost && run.plan.failure_policy == FailurePolicy::FailClosed && !flow.head.state.is_ended() {
        flow.stand_still(Outcome::LeaseExpired, "lease_expired", None)?;
    }
    flow.weigh(steps.to_vec());
    if !flow.changes() {
        return Ok(vec![]);
    }
    flow.advance()?;
    let action = if asked { flow.survey_action(Action::TimePassed) } else { Action::TimePassed };
    Ok(flow.finish(action, &actor_ref, None))
}

/// The run's own limit. It overrides the limits of steps.
fn run_due(flow: &mut Flow<'_, '_, '_>) -> Result<(), Refusal> {
    let limit = flow.run.plan.timeout.zip(flow.head.executing_since).map(|(timeout, since)| since.after(timeout));
    if flow.head.outcome == Some(Outcome::EffectUnknown) {
        return Ok(());
    }
    if limit.is_none_or(|limit| limit > flow.now()) {
        return Ok(());
    }
    if flow.head.undoing || !matches!(flow.head.state, RunState::Executing | RunState::Blocked | RunState::Paused) {
        return Ok(());
    }
    flow.head.outcome = Some(Outcome::Timeout);
    match flow.run.plan.failure_policy {
        FailurePolicy::Compensate => {
            flow.begin_compensation("WORKFLOW_TIMEOUT", "workflow_timeout")?;
            flow.revoke_work("WORKFLOW_TIMEOUT", Some(FailureCategory::Timeout))
        }
        FailurePolicy::Abort | FailurePolicy::FailClosed => flow.fail_run("WORKFLOW_TIMEOUT", "workflow_timeout"),
    }
}

fn step_due(flow: &mut Flow<'_, '_, '_>, seq: StepSeq) -> Result<(), Refusal> {
    let now = flow.now();
    let Some(found) = flow.cell(seq) else { return Ok(()) };
    let (state, live) = (found.state, found.details());
    let spec = flow.spec(seq).cloned();
    let limit = flow.run.timeout_of(seq).zip(live.started_at).map(|(t, started)| started.after(t));
    let under_way = matches!(
        state,
        StepCode::Ready | StepCode::InProgress | StepCode::Overdue | StepCode::Waiting | StepCode::Blocked
    ) || (state == StepCode::Failed && live.next_run_at.is_some());
    if under_way && limit.is_some_and(|limit| limit <= now) {
        let unverdicted = found.is_held() || found.awaited().is_some();
        if unverdicted {
            flow.lose_verdict(seq)?;
        }
        flow.take_away(seq)?;
        let trigger = if state == StepCode::Blocked { "blocked_timeout" } else { "step_timeout" };
        return flow.fail(seq, "STEP_TIMEOUT", FailureCategory::Timeout, By(SYSTEM, trigger));
    }
    if matches!(state, StepCode::InProgress | StepCode::Overdue)
        && live.lease.as_ref().is_some_and(|lease| lease.until < now)
    {
        return lease_expired(flow, seq);
    }
    if state == StepCode::InProgress && flow.cell(seq).is_some_and(|cell| cell.is_late(now)) {
        return flow.pass_deadline(seq);
    }
    if state == StepCode::Ready && flow.cell(seq).and_then(Cell::claim_by).is_some_and(|by| by < now) {
        return flow.pass_start(seq);
    }
    let over = live.waiting.as_ref().and_then(|waiting| waiting.deadline_at).is_some_and(|at| at <= now);
    match spec.map(|spec| spec.work) {
        Some(Work::Wait(wait)) if state == StepCode::Waiting && over => {
            if !cell::is_timer(&wait) {
                return flow.fail(seq, "WAITING_TIMEOUT", FailureCategory::Timeout, By(SYSTEM, "waiting_timeout"));
            }
            flow.woken(seq, &Arc::from("null"))
        }
        // The time that a person gave it is over: it is that person's again.
        Some(Work::Human { .. }) if state == StepCode::Waiting && over => flow.woken(seq, &Arc::from("null")),
        _ => Ok(()),
    }
}
