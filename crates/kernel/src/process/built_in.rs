//! What the built-in declarations (`proposal`, `replay`) have in common: how one is made from its table, and how the engine fires a
//! transition of one once its gate is decided.

use super::{Context, Event, EventBody, Gate, Process, moot};
use crate::declaration::{Declaration, Transition};
use std::sync::Arc;

/// from, action, to, guard
pub type Row = (&'static str, &'static str, &'static str, Option<&'static str>);

/// The first state is the initial one.
pub(super) fn declaration(states: &[&str], transitions: &[Row], terminal: &[&str]) -> Arc<Declaration> {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let transition = |(from, action, to, guard): &Row| Transition {
        from_state: (*from).to_owned(),
        action: (*action).to_owned(),
        to_state: (*to).to_owned(),
        guard: guard.map(str::to_owned),
        effects: vec![],
    };
    Arc::new(Declaration {
        states: owned(states),
        transitions: transitions.iter().map(transition).collect(),
        initial_state: states.first().copied().unwrap_or_default().to_owned(),
        terminal_states: owned(terminal),
    })
}

/// The application actor fires this action of the state that the process is in; `spent` is the gate that cleared it.
pub(super) fn fire(process: &Process, action: &str, spent: Option<&Gate>, ctx: &mut Context<'_>) -> Vec<Event> {
    let Some(transition) = process.declaration.transition(&process.current_state, action) else { return vec![] };
    let transition_id = ctx.ids.make();
    let mut events = vec![ctx.by_application(EventBody::TransitionFired {
        transition_id,
        sequence_number: process.next_sequence_number,
        from_state: transition.from_state.clone(),
        action: action.to_owned(),
        to_state: transition.to_state.clone(),
        gate: spent.map(Gate::gate_ref),
        reason: None,
        effects: vec![],
        attachment: None,
    })];
    events.extend(moot::leave_state(process, spent, ctx));
    events
}
