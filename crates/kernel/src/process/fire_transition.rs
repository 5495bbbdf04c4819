//! `fire_transition`: the load-bearing action. For a guarded transition the gate's own state is read
//! here, and `guard_satisfied` is asserted to the machine only on a cleared gate. No caller can assert
//! it: there is no argument for it.

use super::{Context, Event, EventBody, Fate, FireTransition, Gate, GateStatus, Process, moot};
use crate::machine::{MachineRefusal, fire};
use crate::refusal::{Code, Refusal, require_optional_text, require_ref};
use crate::registry::scopes;

pub fn decide(
    process: Option<&Process>,
    command: &FireTransition,
    ctx: &mut Context<'_>,
) -> Result<Vec<Event>, Refusal> {
    require_ref("action", &command.action)?;
    require_optional_text("reason", command.reason.as_deref())?;
    let process = ctx.known(process, scopes::WORKFLOWS_FIRE)?;
    refuse_built_in(process)?;

    let gate = process.gate(&process.current_state, &command.action);
    let cleared = gate.filter(|gate| gate.is_cleared());
    let guard_satisfied = cleared.map(|_| true);
    let transition = fire(&process.declaration, &process.current_state, &command.action, guard_satisfied)
        .map_err(|refusal| explain(refusal, process, gate, &command.action))?;
    let fired = transition.guard.as_ref().and(cleared);

    let transition_id = ctx.ids.make();
    let mut events = vec![ctx.by_caller(EventBody::TransitionFired {
        transition_id,
        sequence_number: process.next_sequence_number,
        from_state: transition.from_state.clone(),
        action: command.action.clone(),
        to_state: transition.to_state.clone(),
        gate: fired.map(Gate::gate_ref),
        reason: command.reason.clone(),
        effects: transition.effects.clone(),
        attachment: None,
    })];
    if transition.from_state != transition.to_state {
        events.extend(moot::leave_state(process, fired, ctx));
    }
    Ok(events)
}

/// A proposal and a request move by their own commands, which know what may follow from what.
pub(super) fn refuse_built_in(process: &Process) -> Result<(), Refusal> {
    let detail = if process.is_proposal() {
        format!("this is a proposal: it moves under /v1/proposals/{}", process.instance_id)
    } else if process.is_replay() {
        "this is a request to replay a dead letter: it moves with the decision on its gate".to_owned()
    } else {
        return Ok(());
    };
    Err(Refusal::new(Code::InvalidTransition, detail))
}

pub(super) fn explain(refusal: MachineRefusal, process: &Process, gate: Option<&Gate>, action: &str) -> Refusal {
    match refusal {
        MachineRefusal::Terminal => Refusal::new(
            Code::Terminal,
            format!("the process has ended in `{}`; nothing can be fired any more", process.current_state),
        ),
        MachineRefusal::InvalidTransition => invalid_transition(process, action),
        MachineRefusal::GuardNotSatisfied => {
            let why = match gate.map(|gate| (gate.fate, gate.status())) {
                None => "no gate has been opened for it: open the gate and wait for the decision",
                Some((Fate::Consumed, _)) => "its approval was spent on an earlier firing: open a new gate",
                Some((Fate::Mooted, _)) => "its approval became moot when the process left this state: open a new gate",
                Some((Fate::Unspent, GateStatus::Pending)) => "its gate waits for the decision of the named approver",
                Some((Fate::Unspent, GateStatus::Rejected)) => "its gate was rejected: open a new one",
                Some((Fate::Unspent, GateStatus::Withdrawn)) => "its gate was withdrawn: open a new one",
                Some((Fate::Unspent, GateStatus::Approved)) => "its gate is not cleared",
            };
            Refusal::new(Code::GateNotCleared, format!("`{action}` needs an approval, but {why}")).at("action")
        }
    }
}

pub(super) fn invalid_transition(process: &Process, action: &str) -> Refusal {
    let from_here: Vec<&str> = process
        .declaration
        .transitions
        .iter()
        .filter(|t| t.from_state == process.current_state)
        .map(|t| t.action.as_str())
        .collect();
    let possible = if from_here.is_empty() {
        "nothing is declared from here".to_owned()
    } else {
        format!("declared from here: {}", from_here.join(", "))
    };
    let detail = format!("`{action}` is not declared from the current state `{}` ({possible})", process.current_state);
    Refusal::new(Code::InvalidTransition, detail).at("action")
}
