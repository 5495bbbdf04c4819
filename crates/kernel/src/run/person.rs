//! What a person in charge does to a step: claim, release, wait, block, unblock, complete, and declare that it cannot be
//! completed. Whoever else acts on one step comes through here too; see [`super::operator`] and [`super::correct`].
//!
//! The order of checks: shape, permission, existence, who is in charge, whether the transition is declared, its guards.

use super::claim::input_of;
use super::control::{named, undo_named};
use super::flow::{By, Flow, SYSTEM, broken};
use super::guard::{Given, Judged};
use super::result::{Repeated, check_outbound, completed_by_person};
use super::{
    Act, Acted, Action, BlockReason, Cell, Context, Event, Facet, Role, Run, StepAct, Survey, Waiting, alive, known,
    permitted,
};
use super::{correct, deadline, operator, own};
use crate::lifecycle::{ActorClass, FailureCategory, StepCode};
use crate::plan::{Micros, StepSeq, Work};
use crate::process::Process;
use crate::refusal::{Code, Refusal, require_optional_text, require_ref};
use crate::registry::scopes;
use std::sync::Arc;

type Target<'r> = Option<(&'r Process, &'r Run)>;

const PIC: ActorClass = ActorClass::PicHuman;

pub fn decide(target: Target<'_>, command: &StepAct, ctx: &mut Context<'_>) -> Result<Vec<Event>, Refusal> {
    check_shape(command)?;
    let (shell, run) = admit(target, &command.act, ctx)?;
    let undo = if matches!(command.act, Act::Retry | Act::Replay(_)) { undo_named(run, &command.step) } else { None };
    let seq = undo.map_or_else(|| named(run, &command.step), Ok)?;
    if let Act::Complete { output, .. } = &command.act
        && repeats(run, seq, output, ctx)?
    {
        return Ok(vec![]);
    }
    alive(run)?;
    let actor_ref = ctx.base.actor_ref.to_owned();
    let mut flow = Flow::new(shell, run, ctx);
    flow.acted = Some(Box::new(Acted {
        step_seq: seq,
        evidence_ref: None,
        approval_id: None,
        correction: None,
        own: None,
        input: None,
        escalated_to: None,
        replay: None,
    }));
    let action = match &command.act {
        Act::Claim => claim(&mut flow, seq)?,
        Act::Release => release(&mut flow, seq)?,
        Act::Wait { event_type, timeout, facets } => wait(&mut flow, seq, event_type.as_deref(), *timeout, facets)?,
        Act::Block { block_reason } => block(&mut flow, seq, block_reason.as_deref())?,
        Act::Unblock { evidence_ref } => unblock(&mut flow, command, seq, evidence_ref.as_deref())?,
        Act::Complete { output, outbound } => {
            flow.outbound.extend_from_slice(outbound);
            complete(&mut flow, seq, output)?
        }
        Act::CannotComplete { evidence_ref } => cannot_complete(&mut flow, seq, evidence_ref.as_deref())?,
        Act::Escalate => operator::escalate(&mut flow, seq)?,
        Act::Retry => operator::retry(&mut flow, command, seq)?,
        Act::Replay(replay) => operator::replay(&mut flow, command, seq, *replay)?,
        Act::BlockEscalate { approval_id } => {
            operator::block_escalate(&mut flow, command, seq, approval_id.as_deref())?
        }
        Act::Reopen { approval_id, correction_reason, prior } => {
            let wish = correct::Wish {
                approval_id: approval_id.as_deref(),
                reason: correction_reason.as_deref(),
                prior: prior.as_deref(),
            };
            correct::reopen(&mut flow, seq, &wish)?
        }
        Act::ExtendDeadline { deadline: until } => deadline::extend(&mut flow, command, seq, *until)?,
        Act::Reengage => deadline::reengage(&mut flow, seq)?,
        Act::Transition(wish) => own::transition(&mut flow, command, seq, wish)?,
    };
    flow.advance()?;
    Ok(flow.finish(action, &actor_ref, command.reason.as_deref()))
}

fn check_shape(command: &StepAct) -> Result<(), Refusal> {
    require_ref("step", &command.step)?;
    require_optional_text("reason", command.reason.as_deref())?;
    match &command.act {
        Act::Wait { event_type, timeout, .. } => {
            require_optional_text("waiting_event_type", event_type.as_deref())?;
            if timeout.is_some_and(|timeout| timeout < 0) {
                return Err(Refusal::new(Code::InvalidRequest, "`timeout_ms` must not be negative").at("timeout_ms"));
            }
            Ok(())
        }
        Act::Transition(wish) => {
            require_ref("to", &wish.to)?;
            require_optional_text("trigger_ref", wish.trigger_ref.as_deref())?;
            require_optional_text("waiting_event_type", wish.event_type.as_deref())?;
            if wish.timeout.is_some_and(|timeout| timeout < 0) {
                return Err(Refusal::new(Code::InvalidRequest, "`timeout_ms` must not be negative").at("timeout_ms"));
            }
            check_outbound(&wish.outbound)?;
            wish.evidence_ref.as_deref().map_or(Ok(()), |text| require_ref("evidence_ref", text))
        }
        Act::Unblock { evidence_ref } | Act::CannotComplete { evidence_ref } => {
            evidence_ref.as_deref().map_or(Ok(()), |text| require_ref("evidence_ref", text))
        }
        Act::BlockEscalate { approval_id } | Act::Reopen { approval_id, .. } => {
            approval_id.as_deref().map_or(Ok(()), |text| require_ref("approval_id", text))
        }
        Act::Complete { outbound, .. } => check_outbound(outbound),
        Act::Claim
        | Act::Release
        | Act::Block { .. }
        | Act::Escalate
        | Act::Retry
        | Act::Replay(_)
        | Act::ExtendDeadline { .. }
        | Act::Reengage => Ok(()),
    }
}

/// Permission before existence.
fn admit<'r>(target: Target<'r>, act: &Act, ctx: &Context<'_>) -> Result<(&'r Process, &'r Run), Refusal> {
    // With none of the scopes, the refusal names the first. With one of them, a run that is not known is `not-known`.
    let any = |first: &str, others: &[&str]| {
        let denied = |known: &Result<_, Refusal>| matches!(known, Err(no) if no.code == Code::PermissionDenied);
        let first = permitted(target, first, ctx);
        if !denied(&first) {
            return first;
        }
        others.iter().map(|scope| permitted(target, scope, ctx)).find(|known| !denied(known)).unwrap_or(first)
    };
    match act {
        Act::Claim
        | Act::Release
        | Act::Wait { .. }
        | Act::Block { .. }
        | Act::Complete { .. }
        | Act::Reengage
        | Act::CannotComplete { .. } => permitted(target, scopes::TASKS_WORK, ctx),
        Act::Unblock { .. } => any(scopes::RUNS_CONTROL, &[scopes::TASKS_WORK]),
        Act::Escalate => permitted(target, scopes::GOVERNANCE_ACT, ctx),
        Act::BlockEscalate { .. } => any(scopes::RUNS_CONTROL, &[scopes::GOVERNANCE_ACT]),
        Act::Retry | Act::Reopen { .. } | Act::ExtendDeadline { .. } => permitted(target, scopes::RUNS_CONTROL, ctx),
        Act::Replay(_) => {
            if !ctx.is_application() {
                let detail = "only the engine replays, when a request for that is approved";
                return Err(Refusal::new(Code::PermissionDenied, detail));
            }
            known(target)
        }
        // Which of them it takes, the transition says.
        Act::Transition(_) => any(scopes::TASKS_WORK, &[scopes::RUNS_CONTROL, scopes::GOVERNANCE_ACT]),
    }
}

/// The person that a filled-in `pic` names; nobody, where it is null or blank.
pub fn named_person(filled: &str) -> Result<Option<Arc<str>>, String> {
    if filled == "null" {
        return Ok(None);
    }
    match crate::text::from_json_string(filled) {
        Some(name) if crate::text::is_blank(&name) => Ok(None),
        Some(name) => match require_ref("pic", &name) {
            Ok(()) => Ok(Some(Arc::from(name))),
            Err(refusal) => Err(refusal.detail),
        },
        None => Err(format!("{} does not name a person", crate::text::shortened(filled))),
    }
}

/// The caller is the step's person in charge, or nobody is: then its guard says so.
pub fn in_charge(flow: &Flow<'_, '_, '_>, seq: StepSeq) -> Result<(), Refusal> {
    let caller = flow.ctx.base.actor_ref;
    let name = flow.run.step_name(seq);
    if !flow.spec(seq).is_some_and(|spec| matches!(spec.work, Work::Human { .. })) {
        let detail = format!("`{name}` is no person's step: whoever works on it reports under its lease");
        return Err(Refusal::new(Code::Unauthorized, detail).at("step"));
    }
    match flow.cell(seq).and_then(|cell| cell.pic()) {
        Some(pic) if **pic != *caller && flow.ctx.base.registry.actor(pic).is_some() => {
            let detail = format!("`{caller}` is not in charge of `{name}`: `{pic}` is");
            Err(Refusal::new(Code::Unauthorized, detail).at("step"))
        }
        _ => Ok(()),
    }
}

fn claim(flow: &mut Flow<'_, '_, '_>, seq: StepSeq) -> Result<Action, Refusal> {
    in_charge(flow, seq)?;
    let fired = flow.fire(seq, StepCode::InProgress, By(PIC, "step_claim"), &Given::default())?;
    let input = match input_of(flow, seq, Role::Step, None) {
        Ok(input) => input,
        Err((error, trigger)) => {
            flow.fail(seq, &error, FailureCategory::Validation, By(SYSTEM, trigger))?;
            return Ok(Action::StepClaimed);
        }
    };
    if let Some(acted) = &mut flow.acted {
        acted.input = Some(input);
    }
    flow.make(fired)?;
    flow.clear_hold(seq)?;
    let now = flow.now();
    if flow.cell(seq).is_some_and(|cell| cell.is_late(now)) {
        flow.pass_deadline(seq)?;
    }
    Ok(Action::StepClaimed)
}

pub fn release(flow: &mut Flow<'_, '_, '_>, seq: StepSeq) -> Result<Action, Refusal> {
    in_charge(flow, seq)?;
    flow.move_step(seq, StepCode::Ready, By(PIC, "step_release"))?;
    flow.clear_hold(seq)?;
    let now = flow.now();
    flow.edit(seq)?.live.get_or_insert_default().next_run_at = Some(now);
    Ok(Action::StepReleased)
}

pub fn wait(
    flow: &mut Flow<'_, '_, '_>,
    seq: StepSeq,
    event_type: Option<&str>,
    timeout: Option<Micros>,
    facets: &[String],
) -> Result<Action, Refusal> {
    in_charge(flow, seq)?;
    let said = event_type.map(|_| Facet::External).or(timeout.map(|_| Facet::TimeGate));
    let mut words: Vec<&str> = facets.iter().map(String::as_str).collect();
    if words.is_empty() {
        words.extend(said.map(Facet::as_str));
    }
    let given = Given { facets: &words, ..Given::default() };
    flow.fire(seq, StepCode::Waiting, By(PIC, "step_wait"), &given)?;
    let mut known: Vec<Facet> = words.into_iter().filter_map(Facet::parse).collect();
    known.sort_unstable();
    known.dedup();
    let (primary, secondary) = known.split_first().ok_or_else(broken)?;
    let waiting = Waiting {
        event_type: event_type.map(Arc::from),
        facet: *primary,
        secondary: secondary.to_vec(),
        deadline_at: timeout.map(|timeout| flow.now().after(timeout)),
    };
    flow.put_down(seq, waiting, PIC)?;
    Ok(Action::StepWaiting)
}

pub fn block(flow: &mut Flow<'_, '_, '_>, seq: StepSeq, reason: Option<&str>) -> Result<Action, Refusal> {
    in_charge(flow, seq)?;
    block_for(flow, seq, reason, PIC)?;
    Ok(Action::StepBlocked)
}

/// T4, for a reason of the vocabulary.
pub fn block_for(
    flow: &mut Flow<'_, '_, '_>,
    seq: StepSeq,
    reason: Option<&str>,
    actor: ActorClass,
) -> Result<(), Refusal> {
    let given = Given { block_reason: reason, ..Given::default() };
    flow.move_given(seq, StepCode::Blocked, By(actor, "step_block"), &given)?;
    flow.clear_hold(seq)?;
    if let Some(block) = &mut flow.edit(seq)?.live.get_or_insert_default().block {
        block.reason = reason.and_then(BlockReason::parse);
    }
    Ok(())
}

/// What blocked the step, or what it waited for, is there: its person goes on with it, a worker's goes back to its queue.
pub fn unblock(
    flow: &mut Flow<'_, '_, '_>,
    command: &StepAct,
    seq: StepSeq,
    evidence_ref: Option<&str>,
) -> Result<Action, Refusal> {
    let caller = flow.ctx.base.actor_ref;
    let pic = flow.cell(seq).and_then(|cell| cell.pic()).is_some_and(|pic| **pic == *caller);
    let definition = flow.shell.definition.as_ref().map(|d| d.name.as_str());
    let operator = flow.ctx.is_application() || flow.ctx.base.require_scope(scopes::RUNS_CONTROL, definition).is_ok();
    if !pic && !operator {
        let detail = format!("`{caller}` is neither in charge of `{}` nor controls the run", command.step);
        return Err(Refusal::new(Code::Unauthorized, detail).at("step"));
    }
    let persons = flow.spec(seq).is_some_and(|spec| matches!(spec.work, Work::Human { .. }));
    let by = match flow.state(seq) {
        Some(StepCode::Waiting) if persons => By(SYSTEM, "facet_resolved"),
        _ => By(if pic { PIC } else { SYSTEM }, "blocker_resolved"),
    };
    let given = Given { evidence: evidence_ref, ..Given::default() };
    flow.move_given(seq, StepCode::InProgress, by, &given)?;
    flow.clear_hold(seq)?;
    if !persons {
        flow.move_step(seq, StepCode::Ready, By(SYSTEM, "unclaimed"))?;
        let now = flow.now();
        flow.edit(seq)?.live.get_or_insert_default().next_run_at = Some(now);
    }
    note_evidence(flow, evidence_ref);
    Ok(Action::StepUnblocked)
}

/// Whether the person who completed the step says so again. The answer to the first time may have been lost, even where the run
/// has ended since; another output contradicts the one that counts.
fn repeats(run: &Run, seq: StepSeq, output: &str, ctx: &Context<'_>) -> Result<bool, Refusal> {
    let done = |cell: &&Cell| cell.state == StepCode::Completed || run.survey_of(seq).is_some_and(Survey::captures);
    let by_caller = |cell: &&Cell| cell.pic().is_some_and(|pic| **pic == *ctx.base.actor_ref);
    let completed = run.cell(seq).filter(done).filter(by_caller);
    match completed.and_then(|cell| cell.was_completed_by_person(output)) {
        None => Ok(false),
        Some(Repeated::Same) => Ok(true),
        Some(Repeated::OtherOutput) => {
            let detail = "you have completed the step with another output, which counts; nothing was changed";
            Err(Refusal::new(Code::Conflict, detail).at("output"))
        }
    }
}

/// A person's output that misses its contract is refused, and the step stays as it was.
pub fn complete(flow: &mut Flow<'_, '_, '_>, seq: StepSeq, output: &Arc<str>) -> Result<Action, Refusal> {
    in_charge(flow, seq)?;
    let by = By(PIC, "step_complete");
    flow.declared(seq, StepCode::Completed, by)?;
    let judged = flow.judge(seq, output.clone());
    let verdict = Judged::of(&judged);
    let given = Given { judged: Some(&verdict), ..Given::default() };
    flow.fire(seq, StepCode::Completed, by, &given)?;
    flow.yield_or_close(seq, judged.map_err(|_| broken())?, vec![], by)?;
    let id = flow.ctx.base.ids.make();
    flow.edit(seq)?.token = Some(completed_by_person(id, output));
    Ok(if flow.has_yielded(seq) { Action::StepYielded } else { Action::StepCompleted })
}

pub fn cannot_complete(
    flow: &mut Flow<'_, '_, '_>,
    seq: StepSeq,
    evidence_ref: Option<&str>,
) -> Result<Action, Refusal> {
    in_charge(flow, seq)?;
    give_up(flow, seq, By(PIC, "declare_cannot_complete"), evidence_ref)?;
    note_evidence(flow, evidence_ref);
    Ok(Action::StepCannotComplete)
}

/// The run goes on, red, until the step is reopened or the run is cancelled.
pub fn give_up(flow: &mut Flow<'_, '_, '_>, seq: StepSeq, by: By, evidence: Option<&str>) -> Result<(), Refusal> {
    let now = flow.now();
    flow.move_given(seq, StepCode::CannotComplete, by, &Given { evidence, ..Given::default() })?;
    flow.revoke(seq)?;
    flow.edit(seq)?.docket.get_or_insert_default().declared_at = Some(now);
    Ok(())
}

pub fn note_evidence(flow: &mut Flow<'_, '_, '_>, evidence_ref: Option<&str>) {
    if let Some(acted) = &mut flow.acted {
        acted.evidence_ref = evidence_ref.map(str::to_owned);
    }
}
