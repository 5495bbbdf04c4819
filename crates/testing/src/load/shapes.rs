//! Processes in one line each, for tests that need a certain shape.

use super::Design;
use countersign_kernel::{Declaration, GateEntry, GateSpec, QuorumRule, Transition};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Transitions as text: `from action to` or `from action to guard`. The first one begins in the initial
/// state; a state that nothing leaves is terminal.
pub fn shape(name: &str, transitions: &[&str], gates: &[(&str, GateEntry)]) -> Design {
    let transitions: Vec<Transition> = transitions.iter().filter_map(|line| transition(line)).collect();
    let mut states: Vec<String> = vec![];
    for state in transitions.iter().flat_map(|t| [&t.from_state, &t.to_state]) {
        if !states.contains(state) {
            states.push(state.clone());
        }
    }
    let leaves = |state: &String| transitions.iter().any(|t| t.from_state == *state);
    let terminal_states = states.iter().filter(|state| !leaves(state)).cloned().collect();
    let initial_state = states.first().cloned().unwrap_or_default();
    let gates: BTreeMap<String, GateEntry> =
        gates.iter().map(|(label, entry)| ((*label).to_owned(), entry.clone())).collect();
    Design {
        name: name.to_owned(),
        declaration: Arc::new(Declaration { states, transitions, initial_state, terminal_states }),
        gate_spec: Arc::new(GateSpec(gates)),
    }
}

fn transition(line: &str) -> Option<Transition> {
    let mut words = line.split_whitespace().map(str::to_owned);
    let (from_state, action, to_state) = (words.next()?, words.next()?, words.next()?);
    Some(Transition { from_state, action, to_state, guard: words.next(), effects: vec![] })
}

pub fn single(approver_ref: &str) -> GateEntry {
    GateEntry::Single { approver_ref: approver_ref.to_owned(), scope: "quality".to_owned(), delegable: false }
}

pub fn quorum(rule: QuorumRule, approvers: &[&str]) -> GateEntry {
    let approvers = approvers.iter().map(|name| (*name).to_owned()).collect();
    GateEntry::Quorum { approvers, rule, scope: "quality".to_owned(), delegable: false }
}
