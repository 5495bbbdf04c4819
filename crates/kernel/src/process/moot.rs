//! Leaving a state. Gates that wait there can no longer matter: pending ones are withdrawn and leave
//! the in-trays, approved ones are moot. What is left of a decided chain is withdrawn too. The gate that
//! was just fired is spent, not moot.

use super::{
    Context, Decision, Event, EventBody, Fate, Gate, GateKind, GateStatus, LEFT_WITHDRAWAL_REASON,
    MOOT_WITHDRAWAL_REASON, MootKind, Process, Settled, Step,
};
use crate::id::ChainId;
use crate::machine::ChainState;

pub fn leave_state(process: &Process, fired: Option<&Gate>, ctx: &Context<'_>) -> Vec<Event> {
    let fired = fired.map(Gate::gate_ref);
    let here = |gate: &Gate| gate.from_state == process.current_state;
    moot_unless(process, here, |gate| Some(gate.gate_ref()) == fired, ctx)
}

/// These gates can no longer matter, though nothing was fired: what waited behind them has ended otherwise.
pub fn moot_gates(process: &Process, which: impl Fn(&Gate) -> bool, ctx: &Context<'_>) -> Vec<Event> {
    moot_unless(process, which, |_| false, ctx)
}

fn moot_unless(
    process: &Process,
    which: impl Fn(&Gate) -> bool,
    spent: impl Fn(&Gate) -> bool,
    ctx: &Context<'_>,
) -> Vec<Event> {
    let mut events = Vec::new();
    for gate in process.gates.iter().filter(|gate| which(gate)) {
        match (gate.current && gate.fate == Fate::Unspent && !spent(gate), gate.status()) {
            (true, GateStatus::Pending) => moot_pending(process, gate, ctx, &mut events),
            (true, GateStatus::Approved) => {
                withdraw_rest(process, gate, ctx, &mut events);
                events.push(recalled(gate, MootKind::ApprovedUnconsumed, None, ctx));
            }
            (true, GateStatus::Rejected | GateStatus::Withdrawn) | (false, _) => {
                withdraw_rest(process, gate, ctx, &mut events);
            }
        }
    }
    events
}

fn moot_pending(process: &Process, gate: &Gate, ctx: &Context<'_>, events: &mut Vec<Event>) {
    match &gate.kind {
        GateKind::Single => {
            let settled = gate.pending_steps().next().map(Settled::of);
            events.push(recalled(gate, MootKind::PendingWithdrawn, settled, ctx));
        }
        GateKind::Quorum { chain_id, .. } => {
            let rest: Vec<&Step> = gate.pending_steps().collect();
            events.push(ctx.by_application(EventBody::ChainResolved {
                action: gate.action.clone(),
                chain_id: *chain_id,
                outcome: ChainState::Withdrawn,
                recalled: rest.iter().copied().map(Settled::of).collect(),
            }));
            let bodies = withdrawn_with(gate, *chain_id, &rest, &process.initiator_ref, MOOT_WITHDRAWAL_REASON);
            events.extend(bodies.map(|body| ctx.by_application(body)));
            events.push(recalled(gate, MootKind::PendingWithdrawn, None, ctx));
        }
    }
}

/// A record for each step that a chain's end withdraws.
pub fn withdrawn_with(
    gate: &Gate,
    chain_id: ChainId,
    steps: &[&Step],
    initiator_ref: &str,
    reason: &str,
) -> impl Iterator<Item = EventBody> {
    steps.iter().map(move |step| EventBody::StepWithdrawnWithChain {
        action: gate.action.clone(),
        chain_id,
        step_id: step.step_id,
        decided_by: initiator_ref.to_owned(),
        reason: reason.to_owned(),
    })
}

fn recalled(gate: &Gate, kind: MootKind, settled: Option<Settled>, ctx: &Context<'_>) -> Event {
    ctx.by_application(EventBody::MootGateRecalled {
        moot_action: gate.action.clone(),
        from_state: gate.from_state.clone(),
        gate: gate.gate_ref(),
        kind,
        settled,
    })
}

/// The undecided steps of a chain that has its outcome: nobody needs to decide them any more.
fn withdraw_rest(process: &Process, gate: &Gate, ctx: &Context<'_>, events: &mut Vec<Event>) {
    let GateKind::Quorum { chain_id, .. } = &gate.kind else { return };
    events.extend(gate.pending_steps().map(|step| {
        ctx.by_application(EventBody::StepDecided {
            action: gate.action.clone(),
            chain_id: *chain_id,
            decision: Decision::Withdraw,
            decided_by: process.initiator_ref.clone(),
            reason: Some(LEFT_WITHDRAWAL_REASON.to_owned()),
            trailing: true,
            settled: Settled::of(step),
            on_behalf: None,
        })
    }));
}
