//! Random worlds and random histories: small declarations of any legal shape, people with and without
//! grants, and commands of which most are sensible at the moment they are given.

use crate::oracle::{Ask, Oracle, StepAt};
use countersign_kernel::gate_spec::{GateEntry, GateSpec, QuorumRule};
use countersign_kernel::process::Decision;
use countersign_kernel::{Declaration, Transition};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, subsequence};
use std::collections::{BTreeMap, BTreeSet};

pub const PEOPLE: [&str; 4] = ["ines", "axel", "bea", "cleo"];
const SCOPES: [&str; 2] = ["workflows:open-gate", "workflows:fire"];
/// The last one is never declared.
const ACTIONS: [&str; 5] = ["go", "stop", "turn", "hold", "vanish"];
const LABELS: [&str; 3] = ["first", "second", "third"];

#[derive(Clone, Debug)]
pub struct World {
    pub declaration: Declaration,
    pub gate_spec: GateSpec,
    pub grants: BTreeSet<(String, &'static str)>,
}

pub fn world() -> impl Strategy<Value = World> {
    let transition = (any::<Index>(), 0..4usize, any::<Index>(), proptest::option::weighted(0.7, 0..3usize));
    let labels = proptest::array::uniform3(gate_entry());
    let grants = proptest::array::uniform4(subsequence(SCOPES.to_vec(), 0..=2));
    (2..=4usize, 0..=1usize, vec(transition, 2..14), labels, grants).prop_map(
        |(states, terminal, transitions, entries, grants)| {
            let states: Vec<String> = (0..states).map(|i| format!("s{i}")).collect();
            let terminal_states: Vec<String> = states.iter().skip(1).take(terminal).cloned().collect();
            let mut declared: Vec<Transition> = vec![];
            for (from, action, to, guard) in transitions {
                let from_state = from.get(&states).clone();
                let action = ACTIONS[action].to_owned();
                let taken = declared.iter().any(|t| t.from_state == from_state && t.action == action);
                if !taken && !terminal_states.contains(&from_state) {
                    let guard = guard.map(|i| LABELS[i].to_owned());
                    declared.push(Transition {
                        from_state,
                        action,
                        to_state: to.get(&states).clone(),
                        guard,
                        effects: vec![],
                    });
                }
            }
            let used: BTreeSet<&str> = declared.iter().filter_map(|t| t.guard.as_deref()).collect();
            let entries: BTreeMap<String, GateEntry> = LABELS
                .iter()
                .zip(entries)
                .filter(|(label, _)| used.contains(**label))
                .map(|(label, entry)| ((*label).to_owned(), entry))
                .collect();
            let mut held: BTreeSet<(String, &'static str)> = PEOPLE
                .iter()
                .zip(grants)
                .flat_map(|(name, scopes)| scopes.into_iter().map(|scope| ((*name).to_owned(), scope)))
                .collect();
            // Somebody can always move it, or most histories would be refusals.
            held.extend(SCOPES.map(|scope| (PEOPLE[0].to_owned(), scope)));
            let initial_state = states[0].clone();
            let declaration = Declaration { states, transitions: declared, initial_state, terminal_states };
            World { declaration, gate_spec: GateSpec(entries), grants: held }
        },
    )
}

pub fn gate_entry() -> impl Strategy<Value = GateEntry> {
    let people: Vec<String> = PEOPLE.iter().map(|name| (*name).to_owned()).collect();
    let single = proptest::sample::select(people.clone()).prop_map(|approver_ref| GateEntry::Single {
        approver_ref,
        scope: "s".to_owned(),
        delegable: false,
    });
    let quorum = (subsequence(people, 1..=4), 0..3usize, any::<Index>()).prop_map(|(approvers, rule, m)| {
        let m = u32::try_from(m.index(approvers.len()) + 1).unwrap_or(1);
        let rule = [QuorumRule::AllOfN, QuorumRule::OneOfN, QuorumRule::MOfN { m }][rule];
        GateEntry::Quorum { approvers, rule, scope: "s".to_owned(), delegable: false }
    });
    prop_oneof![single, quorum]
}

/// One draw; what it becomes depends on what is possible when its turn comes.
#[derive(Clone, Debug)]
pub enum Draw {
    /// One of the commands that would be accepted now.
    Sensible(Index),
    /// Anything at all, by anybody.
    Wild { actor: usize, action: usize, kind: usize, reason: usize, step: Option<Index>, exists: bool },
}

pub fn draws() -> impl Strategy<Value = Vec<Draw>> {
    let wild = (0..4usize, 0..6usize, 0..5usize, 0..4usize, proptest::option::of(any::<Index>()), 0..12u8).prop_map(
        |(actor, action, kind, reason, step, exists)| Draw::Wild {
            actor,
            action,
            kind,
            reason,
            step,
            exists: exists > 0,
        },
    );
    vec(prop_oneof![2 => any::<Index>().prop_map(Draw::Sensible), 1 => wild], 1..40)
}

/// (who, what, whether the process they name exists)
pub fn command(oracle: &Oracle, draw: &Draw) -> (String, Ask, bool) {
    match draw {
        Draw::Sensible(index) => {
            let sensible = sensible(oracle);
            if sensible.is_empty() {
                return (PEOPLE[0].to_owned(), Ask::Fire { action: ACTIONS[0].to_owned() }, true);
            }
            let (actor, ask) = index.get(&sensible).clone();
            (actor, ask, true)
        }
        Draw::Wild { actor, action, kind, reason, step, exists } => {
            let action = ACTIONS.get(*action).copied().unwrap_or(" ").to_owned();
            let ask = match Decision::ALL.get(*kind) {
                Some(decision) => Ask::Decide {
                    action,
                    decision: *decision,
                    reason: [None, Some(" "), Some("because"), Some("so")][*reason].map(str::to_owned),
                    step: step.as_ref().map(|index| {
                        let steps = all_steps(oracle);
                        // Beyond the steps that ever were: an id that nobody gave out.
                        steps.get(index.index(steps.len() + 1)).copied()
                    }),
                },
                None if *kind == 3 => Ask::Open { action },
                None => Ask::Fire { action },
            };
            (PEOPLE[*actor].to_owned(), ask, *exists)
        }
    }
}

fn all_steps(oracle: &Oracle) -> Vec<StepAt> {
    let gates = oracle.gates.iter().enumerate();
    gates.flat_map(|(gate, seen)| (0..seen.steps.len()).map(move |slot| (gate, slot))).collect()
}

/// Every command that the oracle would accept now.
fn sensible(oracle: &Oracle) -> Vec<(String, Ask)> {
    let mut asks: Vec<Ask> = vec![];
    for action in ACTIONS.map(str::to_owned) {
        let reason = Some("because".to_owned());
        asks.extend(Decision::ALL.iter().map(|decision| Ask::Decide {
            action: action.clone(),
            decision: *decision,
            reason: reason.clone(),
            step: None,
        }));
        for at in all_steps(oracle).into_iter().filter(|(gate, _)| oracle.gates[*gate].action == action) {
            asks.extend(Decision::ALL.iter().map(|decision| Ask::Decide {
                action: action.clone(),
                decision: *decision,
                reason: reason.clone(),
                step: Some(Some(at)),
            }));
        }
        asks.push(Ask::Open { action: action.clone() });
        asks.push(Ask::Fire { action });
    }
    let accepted = |actor: &str, ask: &Ask| oracle.clone().answer(actor, ask, true).is_ok();
    PEOPLE
        .iter()
        .flat_map(|actor| asks.iter().map(move |ask| ((*actor).to_owned(), ask.clone())))
        .filter(|(actor, ask)| accepted(actor, ask))
        .collect()
}
