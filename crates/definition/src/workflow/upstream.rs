//! The steps and pins that expressions name: each exists by then, and the outputs that a run must keep available.

use super::Reader;
use super::expressions::{Use, bracketed};
use super::graph::topological;
use super::step::{Names, Step, no_such_step};
use crate::problem::{Problems, quoted};
use crate::tree::Value;
use countersign_kernel::plan::{CompensationSpec, FailurePolicy, Order, StepSeq, StepSpec, Work};
use std::collections::BTreeSet;

/// How many steps' descendants are followed at once: the bits of a word.
const AT_ONCE: usize = 64;

/// The steps that something needs later on, and for each step those whose outputs it uses; ascending.
pub(super) struct Referenced {
    pub all: Vec<StepSeq>,
    pub by_step: Vec<Vec<StepSeq>>,
}

pub(super) fn referenced(
    order: Option<Order>,
    steps: &[Step<'_>],
    names: &Names<'_>,
    edges: &[Vec<StepSeq>],
    compensation: &[CompensationSpec],
    reader: &mut Reader<'_>,
) -> Referenced {
    let mut by_step = vec![BTreeSet::new(); steps.len()];
    let uses = std::mem::take(&mut reader.expressions.steps);
    let mut named: BTreeSet<StepSeq> = compensation.iter().map(|entry| entry.step).collect();
    let mut distant = Vec::new();
    for found in &uses {
        let Some(target) = names.get(&found.name) else {
            if names.complete {
                let meant = found.dashed().filter(|name| names.get(name).is_some());
                let message = match meant {
                    Some(name) => format!("there is no step {}; {}", quoted(&found.name), bracketed("steps", &name)),
                    None => no_such_step(&found.name, steps, reader.problems),
                };
                found.report(message, reader.problems);
            }
            continue;
        };
        named.insert(target);
        let Some(from) = found.place.step() else { continue };
        if let Some(used) = by_step.get_mut(from as usize) {
            used.insert(target);
        }
        let upstream = match order {
            _ if target == from && found.place.undoes() => true,
            Some(Order::Linear) => target < from,
            Some(Order::Dag) if edges[from as usize].binary_search(&target).is_ok() => true,
            Some(Order::Dag) if target != from => {
                distant.push((found, from, target));
                true
            }
            Some(Order::Dag) => false,
            None => true,
        };
        if !upstream {
            report_not_upstream(found, steps, from, reader.problems);
        }
    }
    if !reader.trusted {
        check_distant(&distant, steps, edges, reader.problems);
    }
    // An approval works on nothing; its approver is shown what the steps before it have made.
    for ((step, before), used) in steps.iter().zip(edges).zip(&mut by_step) {
        let shows = |spec: &StepSpec| matches!(spec.work, Work::Approval(_)) && spec.request.is_none();
        if step.spec.as_ref().is_some_and(shows) {
            used.extend(before);
            named.extend(before);
        }
    }
    let by_step = by_step.into_iter().map(|used| used.into_iter().collect()).collect();
    Referenced { all: named.into_iter().collect(), by_step }
}

/// Whether a step before pins what an expression names.
pub(super) fn check_pins(policy: Option<FailurePolicy>, steps: &[Step<'_>], reader: &mut Reader<'_>) {
    let pinned = |seq: usize| match steps.get(seq).and_then(|step| step.node.field("pins")).map(|node| &node.value) {
        Some(Value::Map(entries)) => entries.iter().map(|(key, _)| key.text.as_str()).collect(),
        _ => Vec::new(),
    };
    for found in std::mem::take(&mut reader.expressions.pins) {
        let (name, until) = (quoted(&found.name), found.place.step().map_or(steps.len(), |seq| seq as usize));
        let before = || (0..until).flat_map(pinned);
        if policy.is_none() || before().any(|pin| pin == found.name) {
            continue;
        }
        let later = (until..steps.len()).find(|&seq| pinned(seq).contains(&found.name.as_str()));
        let later = later.and_then(|seq| steps[seq].name);
        let message = match (policy, later, reader.problems.guess(&found.name, before())) {
            (Some(FailurePolicy::FailClosed), Some(step), _) => {
                format!("{name} is pinned when {} completes, and this is needed before", quoted(step))
            }
            (Some(FailurePolicy::FailClosed), None, Some(meant)) => {
                format!("no step before pins {name}; did you mean `{meant}`?")
            }
            (Some(FailurePolicy::FailClosed), None, None) => {
                format!("no step before pins {name}; add it to the `pins` of one")
            }
            (_, _, _) => format!("there is no pin {name}: only a runbook (`failurePolicy: fail-closed`) has pins"),
        };
        found.report(message, reader.problems);
    }
}

fn report_not_upstream(found: &Use, steps: &[Step<'_>], from: StepSeq, problems: &mut Problems) {
    let own = steps.get(from as usize).and_then(|step| step.name).unwrap_or_default();
    let message = if own == found.name {
        format!("{} cannot name itself before it has ended; its own yield is `output`", quoted(own))
    } else {
        format!("{} is not upstream of {}, and may not have ended by then", quoted(&found.name), quoted(own))
    };
    found.report(message, problems);
}

/// Whether each named step is an ancestor of the step that names it: the descendants of as many steps as a word has
/// bits are marked in one pass over the graph.
fn check_distant(
    distant: &[(&Use, StepSeq, StepSeq)],
    steps: &[Step<'_>],
    edges: &[Vec<StepSeq>],
    problems: &mut Problems,
) {
    let order = topological(edges);
    // With a cycle in it, up and down mean nothing, and the cycle is reported.
    if distant.is_empty() || order.len() != edges.len() {
        return;
    }
    let targets: Vec<StepSeq> =
        distant.iter().map(|(_, _, target)| *target).collect::<BTreeSet<_>>().into_iter().collect();
    let mut by_block: Vec<Vec<usize>> = vec![Vec::new(); targets.len().div_ceil(AT_ONCE)];
    for (i, (_, _, target)) in distant.iter().enumerate() {
        let place = targets.binary_search(target).unwrap_or_default();
        by_block[place / AT_ONCE].push(i);
    }
    let mut marks = vec![0_u64; edges.len()];
    for (block, members) in targets.chunks(AT_ONCE).zip(by_block) {
        marks.fill(0);
        for &step in &order {
            marks[step as usize] = edges[step as usize].iter().fold(0, |marked, &dependency| {
                let own = block.binary_search(&dependency).map_or(0, |bit| 1 << bit);
                marked | own | marks[dependency as usize]
            });
        }
        for i in members {
            let (found, from, target) = distant[i];
            let bit = block.binary_search(&target).unwrap_or_default();
            if marks[from as usize] & (1 << bit) == 0 {
                report_not_upstream(found, steps, from, problems);
            }
        }
    }
}
