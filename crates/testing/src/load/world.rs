//! Random processes: small declarations of any legal shape (loops, self-loops, dead ends) whose guards name
//! one person or a quorum.

use super::Rng;
use countersign_kernel::{Declaration, GateEntry, GateSpec, QuorumRule, Transition};
use std::collections::BTreeMap;
use std::sync::Arc;

pub const PEOPLE: [&str; 4] = ["ines", "axel", "bea", "cleo"];
/// The last one is never declared.
pub const ACTIONS: [&str; 5] = ["go", "stop", "turn", "hold", "vanish"];
const LABELS: [&str; 3] = ["first", "second", "third"];

/// Something that can be started: published as a definition, and given inline.
#[derive(Clone, Debug)]
pub struct Design {
    pub name: String,
    pub declaration: Arc<Declaration>,
    pub gate_spec: Arc<GateSpec>,
}

pub fn design(rng: &mut Rng, number: usize) -> Design {
    let states: Vec<String> = (0..2 + rng.below(4)).map(|i| format!("s{i}")).collect();
    let terminal_states: Vec<String> = states.iter().skip(1).take(rng.below(2)).cloned().collect();
    let mut transitions: Vec<Transition> = vec![];
    for _ in 0..6 + rng.below(12) {
        let from_state = states[rng.below(states.len())].clone();
        let action = ACTIONS[rng.below(ACTIONS.len() - 1)].to_owned();
        let to_state = states[rng.below(states.len())].clone();
        let guard = rng.percent(65).then(|| LABELS[rng.below(LABELS.len())].to_owned());
        let taken = transitions.iter().any(|t| t.from_state == from_state && t.action == action);
        if !taken && !terminal_states.contains(&from_state) {
            transitions.push(Transition { from_state, action, to_state, guard, effects: vec![] });
        }
    }
    let entries: BTreeMap<String, GateEntry> = LABELS
        .iter()
        .map(|label| ((*label).to_owned(), entry(rng)))
        .filter(|(label, _)| transitions.iter().any(|t| t.guard.as_ref() == Some(label)))
        .collect();
    let initial_state = states[0].clone();
    Design {
        name: format!("design-{number}"),
        declaration: Arc::new(Declaration { states, transitions, initial_state, terminal_states }),
        gate_spec: Arc::new(GateSpec(entries)),
    }
}

fn entry(rng: &mut Rng) -> GateEntry {
    let scope = "quality".to_owned();
    let mut people = PEOPLE.map(str::to_owned).to_vec();
    rng.shuffle(&mut people);
    if rng.percent(50) {
        return GateEntry::Single { approver_ref: people.swap_remove(0), scope, delegable: false };
    }
    people.truncate(1 + rng.below(PEOPLE.len()));
    let m = u32::try_from(1 + rng.below(people.len())).unwrap_or(1);
    let rule = [QuorumRule::AllOfN, QuorumRule::OneOfN, QuorumRule::MOfN { m }][rng.below(3)];
    GateEntry::Quorum { approvers: people, rule, scope, delegable: false }
}
