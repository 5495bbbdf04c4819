//! What operators do to one step: escalate a failure that is held, order another attempt, make a block urgent.

use super::correct::REOPEN;
use super::flow::{By, Flow};
use super::guard::{Approval, Given};
use super::person::give_up;
use super::{Action, Replay, Role, StepAct};
use crate::lifecycle::{ActorClass, StepCode};
use crate::plan::{Micros, Plan, StepSeq, StepSpec};
use crate::refusal::{Code, Refusal};

/// The gate that the escalation of a block needs that has lasted.
pub const ESCALATE: &str = "escalate";

/// T11: nobody will try again.
pub fn escalate(flow: &mut Flow<'_, '_, '_>, seq: StepSeq) -> Result<Action, Refusal> {
    give_up(flow, seq, By(ActorClass::EscalationHandler, "escalate"), None)?;
    let now = flow.now();
    flow.edit(seq)?.docket.get_or_insert_default().escalated_at = Some(now);
    // Who could have it taken up again decides from here on.
    note_escalation(flow, seq, REOPEN);
    Ok(Action::StepEscalated)
}

/// To whom the step is escalated: the approvers of this gate of it; nobody, where the definition names none.
fn note_escalation(flow: &mut Flow<'_, '_, '_>, seq: StepSeq, label: &str) {
    let approvers = flow.shell.gate_spec.0.get(label).map(|entry| entry.approvers().to_vec());
    if let Some(acted) = flow.acted.as_mut().filter(|acted| acted.step_seq == seq) {
        acted.escalated_to = Some(approvers.unwrap_or_default());
    }
}

/// The step failed for good and is held: it may be claimed once more (T10 at the claim), with its time counted anew.
pub fn retry(flow: &mut Flow<'_, '_, '_>, command: &StepAct, seq: StepSeq) -> Result<Action, Refusal> {
    let undoes = flow.cell(seq).is_some_and(|cell| matches!(cell.role, Role::Compensation(_)));
    let claimed = undoes || flow.spec(seq).is_some_and(StepSpec::is_claimed);
    if flow.state(seq) != Some(StepCode::Failed) || !claimed {
        let state = flow.state(seq).unwrap_or(StepCode::NotStarted);
        let detail = format!("`{}` is {state}: only a worker's step that failed can be tried again", command.step);
        return Err(Refusal::new(Code::InvalidTransition, detail).at("step"));
    }
    // Without `onFailure: hold` its failure has ended the run.
    flow.allow(seq, if undoes { "undo_retry" } else { "step_retry" }, &Given::default())?;
    let now = flow.now();
    let live = flow.edit(seq)?.live.get_or_insert_default();
    live.next_run_at = Some(now);
    live.started_at = None;
    Ok(Action::StepRetryOrdered)
}

/// What was approved: the step as it was when its letter was made. If somebody has retried it meanwhile, nothing is left to replay.
pub fn replay(flow: &mut Flow<'_, '_, '_>, command: &StepAct, seq: StepSeq, replay: Replay) -> Result<Action, Refusal> {
    let dead = flow.cell(seq).is_some_and(|cell| cell.cycle() == replay.cycle && !cell.retry_scheduled());
    if !dead {
        let detail =
            format!("`{}` is no dead letter any more: it was reopened, or is tried again already", command.step);
        return Err(Refusal::new(Code::InvalidTransition, detail).at("step"));
    }
    let action = retry(flow, command, seq)?;
    if let Some(acted) = &mut flow.acted {
        acted.replay = Some(replay);
    }
    Ok(action)
}

/// How long a block may have lasted that is escalated without an approval. It ends before the threshold makes the block red by
/// itself: what the approval decides is still open then. Where the definition names nobody who could approve, it is the threshold.
fn review_after(plan: &Plan) -> Micros {
    let escalation = &plan.blocked_escalation;
    let reviewed = plan.gate_spec.0.contains_key(ESCALATE);
    let unsaid = if reviewed { escalation.after / 2 } else { escalation.after };
    escalation.review_after.unwrap_or(unsaid)
}

/// MP-D4: the block is red from now on. One that has lasted is made so only with an approval.
pub fn block_escalate(
    flow: &mut Flow<'_, '_, '_>,
    command: &StepAct,
    seq: StepSeq,
    approval_id: Option<&str>,
) -> Result<Action, Refusal> {
    let block = flow.cell(seq).and_then(|cell| cell.live.as_ref()).and_then(|live| live.block);
    let Some(block) = block else {
        let detail = format!("`{}` is not blocked", command.step);
        return Err(Refusal::new(Code::InvalidTransition, detail).at("step"));
    };
    if block.escalated_at.is_some() {
        return Ok(Action::BlockEscalated);
    }
    let now = flow.now();
    if now > block.since.after(review_after(&flow.run.plan)) {
        let gate = format!("{ESCALATE}:{}", command.step);
        let approval = Approval { gate: &gate, id: approval_id, is_named: true };
        flow.allow(seq, "step_block_escalate", &Given { approval: Some(approval), ..Given::default() })?;
        let approval_id = flow.spend(&approval)?;
        if let Some(acted) = &mut flow.acted {
            acted.approval_id = Some(approval_id);
        }
    }
    if let Some(block) = &mut flow.edit(seq)?.live.get_or_insert_default().block {
        block.escalated_at = Some(now);
    }
    note_escalation(flow, seq, ESCALATE);
    Ok(Action::BlockEscalated)
}
