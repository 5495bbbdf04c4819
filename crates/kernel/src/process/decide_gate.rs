//! `decide_gate`: the named approver approves or rejects, or the substitute whom they named ahead; the initiator
//! withdraws. No grant is asked for: being the one whom the gate names is the authority.

use super::moot::withdrawn_with;
use super::quorum::{self, Counts};
use super::{
    Context, DecideGate, Decision, Event, EventBody, Gate, GateKind, OnBehalf, Process, QUORUM_WITHDRAWAL_REASON,
    Settled, Step, StepChoice, not_known, proposal, replay, substitute,
};
use crate::gate_spec::QuorumRule;
use crate::id::ChainId;
use crate::lifecycle::Guard;
use crate::machine::{APPROVAL_STEP, ChainState, StepState};
use crate::refusal::{Code, Refusal, require_optional_text, require_ref};

pub fn decide(process: Option<&Process>, command: &DecideGate, ctx: &mut Context<'_>) -> Result<Vec<Event>, Refusal> {
    require_ref("action", &command.action)?;
    match (command.decision, &command.reason) {
        (Decision::Reject | Decision::Withdraw, None) => {
            let detail = format!("a reason is needed to {} a gate", command.decision.as_str());
            return Err(Refusal::new(Code::InvalidRequest, detail).at("reason"));
        }
        (_, reason) => require_optional_text("reason", reason.as_deref())?,
    }
    let process = process.ok_or_else(not_known)?;
    if command.step == Some(StepChoice::Ended) {
        return Err(Refusal::new(Code::NotPending, "this step has been decided already").at("step_id"));
    }
    let named = command.step.and_then(|choice| gate_of_step(process, &command.action, choice));
    let gate = named.or_else(|| bound_gate(process, &command.action)).ok_or_else(|| {
        let detail = format!("no gate has been opened for `{}`: open it first", command.action);
        Refusal::new(Code::GateNotOpen, detail).at("action")
    })?;

    if command.request_digest.is_some_and(|seen| gate.digest() != Some(seen)) {
        let detail =
            "the gate asks for something else than what `request_digest` names: read it again and decide on that";
        return Err(Refusal::new(Code::Conflict, detail).at("request_digest"));
    }

    let mut events = match &gate.kind {
        GateKind::Single => decide_single(process, gate, command, ctx),
        GateKind::Quorum { .. } => decide_quorum(process, gate, command, ctx),
    }?;
    if process.is_proposal() {
        events.extend(proposal::follow(process, &events, ctx));
    }
    if process.is_replay() {
        events.extend(replay::follow(process, &events, ctx));
    }
    Ok(events)
}

/// The gate of the current state. Where the current state does not even declare the action, the last gate that
/// the action had: its step has ended, and `not-pending` says more than "never opened".
fn bound_gate<'p>(process: &'p Process, action: &str) -> Option<&'p Gate> {
    if process.declaration.transition(&process.current_state, action).is_some() {
        return process.gate(&process.current_state, action);
    }
    process.gates.iter().filter(|gate| gate.current && gate.action == action).max_by_key(|gate| gate.opened_at)
}

/// A caller who names a step means its gate, whichever state that gate belongs to. A superseded chain keeps its
/// undecided steps: each is still its approver's to decide.
fn gate_of_step<'p>(process: &'p Process, action: &str, choice: StepChoice) -> Option<&'p Gate> {
    let StepChoice::Id(step_id) = choice else { return None };
    let holds = |gate: &&Gate| gate.action == action && gate.steps.iter().any(|step| step.step_id == step_id);
    process.gates.iter().find(holds)
}

fn decide_single(
    process: &Process,
    gate: &Gate,
    command: &DecideGate,
    ctx: &mut Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    let step = match command.step {
        None => gate.steps.first(),
        Some(choice) => chosen_step(gate, choice)?,
    };
    let step = step.ok_or_else(no_such_step)?;
    let on_behalf = check_step(process, gate, step, command.decision, ctx)?;
    Ok(vec![ctx.by_caller(EventBody::GateDecided {
        action: command.action.clone(),
        step_id: Some(step.step_id),
        chain_id: None,
        decision: command.decision,
        reason: command.reason.clone(),
        settled: Some(Settled::of(step)),
        request_digest: gate.digest(),
        on_behalf,
    })])
}

fn decide_quorum(
    process: &Process,
    gate: &Gate,
    command: &DecideGate,
    ctx: &mut Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    let step = match (command.step, command.decision) {
        // The initiator withdraws the whole chain. For an approver even here their own step is meant, which is not
        // theirs to withdraw: only the refusal differs.
        (None, Decision::Withdraw) if ctx.actor_ref == process.initiator_ref => {
            return withdraw_chain(process, gate, command, ctx);
        }
        (None, Decision::Withdraw) if !gate.steps.iter().any(|step| step.approver_ref == ctx.actor_ref) => {
            return withdraw_chain(process, gate, command, ctx);
        }
        (None, _) => own_step(process, gate, ctx)?,
        (Some(choice), _) => chosen_step(gate, choice)?.ok_or_else(no_such_step)?,
    };
    let GateKind::Quorum { chain_id, rule, state } = &gate.kind else { return Err(no_such_step()) };
    let on_behalf = check_step(process, gate, step, command.decision, ctx)?;

    let mut events = vec![
        ctx.by_caller(EventBody::StepDecided {
            action: command.action.clone(),
            chain_id: *chain_id,
            decision: command.decision,
            decided_by: ctx.actor_ref.to_owned(),
            reason: command.reason.clone(),
            trailing: *state != ChainState::Pending,
            settled: Settled::of(step),
            on_behalf: on_behalf.clone(),
        }),
        ctx.by_caller(EventBody::GateDecided {
            action: command.action.clone(),
            step_id: Some(step.step_id),
            chain_id: Some(*chain_id),
            decision: command.decision,
            reason: command.reason.clone(),
            settled: None,
            request_digest: gate.digest(),
            on_behalf,
        }),
    ];
    if *state == ChainState::Pending {
        events.extend(resolve(process, gate, *chain_id, *rule, step, command.decision, ctx));
    }
    Ok(events)
}

/// The chain's outcome after this decision, if it has one now.
fn resolve(
    process: &Process,
    gate: &Gate,
    chain_id: ChainId,
    rule: QuorumRule,
    decided: &Step,
    decision: Decision,
    ctx: &Context<'_>,
) -> Vec<Event> {
    let after = |step: &Step| {
        if step.step_id == decided.step_id {
            step.state.after(decision.as_str()).unwrap_or(step.state)
        } else {
            step.state
        }
    };
    let outcome = quorum::evaluate(rule, Counts::of(gate.steps.iter().map(after)));
    if outcome == ChainState::Pending {
        return vec![];
    }
    let rest: Vec<&Step> = gate.pending_steps().filter(|step| step.step_id != decided.step_id).collect();
    let mut events = vec![ctx.by_application(EventBody::ChainResolved {
        action: gate.action.clone(),
        chain_id,
        outcome,
        recalled: rest.iter().copied().map(Settled::of).collect(),
    })];
    if outcome == ChainState::Withdrawn {
        let bodies = withdrawn_with(gate, chain_id, &rest, &process.initiator_ref, QUORUM_WITHDRAWAL_REASON);
        events.extend(bodies.map(|body| ctx.by_application(body)));
    }
    events
}

fn withdraw_chain(
    process: &Process,
    gate: &Gate,
    command: &DecideGate,
    ctx: &Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    let GateKind::Quorum { chain_id, state, .. } = &gate.kind else { return Err(no_such_step()) };
    if *state != ChainState::Pending {
        return Err(Refusal::new(Code::NotPending, format!("the quorum for `{}` is {state} already", gate.action)));
    }
    require_submitter(process, ctx.actor_ref)?;
    let reason = command.reason.clone().unwrap_or_default();
    let rest: Vec<&Step> = gate.pending_steps().collect();
    let mut events = vec![ctx.by_caller(EventBody::ChainWithdrawn {
        action: gate.action.clone(),
        chain_id: *chain_id,
        reason: reason.clone(),
        recalled: rest.iter().copied().map(Settled::of).collect(),
    })];
    events.push(ctx.by_caller(EventBody::GateDecided {
        action: command.action.clone(),
        step_id: None,
        chain_id: Some(*chain_id),
        decision: Decision::Withdraw,
        reason: command.reason.clone(),
        settled: None,
        request_digest: gate.digest(),
        on_behalf: None,
    }));
    let bodies = withdrawn_with(gate, *chain_id, &rest, &process.initiator_ref, &reason);
    events.extend(bodies.map(|body| ctx.by_caller(body)));
    Ok(events)
}

/// The caller's own step, or that of the approver whose substitute they are.
fn own_step<'g>(process: &Process, gate: &'g Gate, ctx: &Context<'_>) -> Result<&'g Step, Refusal> {
    let actor_ref = ctx.actor_ref;
    if let Some(own) = gate.steps.iter().find(|step| step.approver_ref == actor_ref) {
        return Ok(own);
    }
    substitute::step_for(process, gate, ctx)?.ok_or_else(|| {
        if gate.pending_steps().next().is_none() {
            return Refusal::new(
                Code::NotPending,
                format!("the quorum for `{}` has been decided already", gate.action),
            );
        }
        Refusal::new(Code::Unauthorized, format!("`{actor_ref}` is not one of the approvers of `{}`", gate.action))
    })
}

fn chosen_step(gate: &Gate, choice: StepChoice) -> Result<Option<&Step>, Refusal> {
    match choice {
        StepChoice::Id(step_id) => Ok(gate.steps.iter().find(|step| step.step_id == step_id)),
        StepChoice::Ended | StepChoice::Unknown => Err(no_such_step()),
    }
}

fn no_such_step() -> Refusal {
    Refusal::new(Code::NotKnown, "no step of this gate bears that step_id").at("step_id")
}

/// Approval Step's own order: not-pending before unauthorized. Answers on whose behalf a substitute decides.
fn check_step(
    process: &Process,
    gate: &Gate,
    step: &Step,
    decision: Decision,
    ctx: &mut Context<'_>,
) -> Result<Option<OnBehalf>, Refusal> {
    if step.state.after(decision.as_str()).is_none() {
        return Err(Refusal::new(Code::NotPending, format!("the step is {} already", step.state)));
    }
    debug_assert_eq!(step.state, StepState::Pending);
    let mut on_behalf = None;
    for guard in APPROVAL_STEP.guards(decision.as_str()) {
        match guard {
            Guard::ActorIsSubmitter => require_submitter(process, ctx.actor_ref)?,
            Guard::ActorIsApprover => {
                on_behalf = substitute::authority(process, gate, step, decision.as_str(), ctx)?;
            }
            _ => return Err(Refusal::new(Code::RecordingFailure, "a gate knows nothing of this guard")),
        }
    }
    Ok(on_behalf)
}

/// A gate is submitted in the initiator's name, whoever opened it; only the submitter withdraws.
fn require_submitter(process: &Process, actor_ref: &str) -> Result<(), Refusal> {
    if process.initiator_ref == actor_ref {
        return Ok(());
    }
    let detail = format!("only the initiator `{}` may withdraw a gate; you are `{actor_ref}`", process.initiator_ref);
    Err(Refusal::new(Code::Unauthorized, detail))
}
