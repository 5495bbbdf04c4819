//! `open_gate`: binds a guarded transition out of the current state to the approval it needs, and puts
//! the decision into the named approver's in-tray.

use super::{Context, Event, EventBody, Fate, Gate, GateKind, GateStatus, OpenGate, Process, Request, Step};
use crate::gate_spec::GateEntry;
use crate::machine::{ChainState, StepState};
use crate::refusal::{Code, Refusal, require_optional_text, require_ref};
use crate::registry::scopes;

pub fn decide(process: Option<&Process>, command: &OpenGate, ctx: &mut Context<'_>) -> Result<Vec<Event>, Refusal> {
    require_ref("action", &command.action)?;
    require_optional_text("reason", command.reason.as_deref())?;
    let process = ctx.known(process, scopes::WORKFLOWS_OPEN_GATE)?;
    super::fire_transition::refuse_built_in(process)?;
    open(process, command, command.request.clone(), ctx)
}

/// For whoever may: a caller with the scope, or the engine on a step's turn.
pub fn open(
    process: &Process,
    command: &OpenGate,
    request: Option<Request>,
    ctx: &mut Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    if process.is_terminal() {
        let detail = format!("the process has ended in `{}`; no gate can be opened any more", process.current_state);
        return Err(Refusal::new(Code::GateNotAvailable, detail));
    }
    let transition = process
        .declaration
        .transition(&process.current_state, &command.action)
        .ok_or_else(|| super::fire_transition::invalid_transition(process, &command.action))?;
    let Some(guard) = &transition.guard else {
        let detail = format!("`{}` carries no guard: fire it directly", command.action);
        return Err(Refusal::new(Code::NotGuarded, detail).at("action"));
    };
    let existing = process.gate(&process.current_state, &command.action);
    if let Some(gate) = existing {
        refuse_unresolved(gate)?;
    }
    let Some(entry) = process.gate_spec.0.get(guard) else {
        // start_workflow refuses a gate_spec that does not cover every guard.
        return Err(Refusal::new(
            Code::RecordingFailure,
            format!("the stored gate_spec has no entry for the guard `{guard}`"),
        ));
    };

    let gate = Gate { request, ..new_gate(process, guard, entry, ctx, &command.action) };
    let supersedes = existing.map(Gate::gate_ref);
    let mut events = Vec::with_capacity(2);
    if matches!(gate.kind, GateKind::Quorum { .. }) {
        events.push(ctx.by_caller(EventBody::ChainInitiated { gate: gate.clone(), supersedes }));
    }
    events.push(ctx.by_caller(EventBody::GateOpened { gate, supersedes, reason: command.reason.clone() }));
    Ok(events)
}

/// A gate may be opened again once its approval was refused, withdrawn, spent or made moot.
fn refuse_unresolved(gate: &Gate) -> Result<(), Refusal> {
    let why = match (gate.fate, gate.status()) {
        (Fate::Unspent, GateStatus::Pending) => "and waits for a decision (pending)",
        (Fate::Unspent, GateStatus::Approved) => "and is approved: fire the transition (cleared-unconsumed)",
        (Fate::Unspent, GateStatus::Rejected | GateStatus::Withdrawn) | (Fate::Consumed | Fate::Mooted, _) => {
            return Ok(());
        }
    };
    Err(Refusal::new(Code::AlreadyOpen, format!("a gate for `{}` is open {why}", gate.action)).at("action"))
}

fn new_gate(process: &Process, guard: &str, entry: &GateEntry, ctx: &mut Context<'_>, action: &str) -> Gate {
    let kind = match entry {
        GateEntry::Single { .. } => GateKind::Single,
        GateEntry::Quorum { rule, .. } => {
            GateKind::Quorum { chain_id: ctx.ids.make(), rule: *rule, state: ChainState::Pending }
        }
    };
    let steps = entry
        .approvers()
        .iter()
        .map(|approver_ref| Step {
            step_id: ctx.ids.make(),
            approver_ref: approver_ref.clone(),
            submitted_at: ctx.now,
            state: StepState::Pending,
            assignment: Some(ctx.ids.make()),
            decided: None,
        })
        .collect();
    Gate {
        from_state: process.current_state.clone(),
        action: action.to_owned(),
        guard: guard.to_owned(),
        scope: entry.scope().to_owned(),
        opened_at: ctx.now,
        kind,
        steps,
        request: None,
        fate: Fate::Unspent,
        current: true,
    }
}
