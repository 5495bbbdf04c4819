//! The graph of `dependsOn`: its names exist, no step waits for itself, and every step can be reached. Everything is
//! iterative: a graph may be as deep as it is large.

use super::Reader;
use super::step::{Names, Step, no_such_step};
use crate::fields::Mapping;
use crate::problem::{ProblemCode, Problems, quoted};
use countersign_kernel::plan::{Order, StepSeq};
use std::collections::HashMap;

/// How many names of a cycle a message shows.
const MAX_SHOWN: usize = 8;

/// For each step, those it waits for, ascending; in a chain, the one before.
pub(super) fn dependencies(
    fields: &Mapping<'_>,
    order: Option<Order>,
    steps: &[Step<'_>],
    names: &Names<'_>,
    reader: &mut Reader<'_>,
) -> Vec<Vec<StepSeq>> {
    match order {
        Some(Order::Linear) => {
            report_linear(steps, reader.problems);
            (0..).zip(steps).map(|(seq, _)| StepSeq::checked_sub(seq, 1).into_iter().collect()).collect()
        }
        Some(Order::Dag) => {
            let (edges, sound) = edges(steps, names, reader.problems);
            if sound && !reader.trusted {
                check(fields, steps, &edges, reader.problems);
            }
            edges
        }
        None => vec![Vec::new(); steps.len()],
    }
}

/// Several steps without `order` and without any `dependsOn` would all begin at once, which an author has to ask for.
pub(super) fn require_order(fields: &Mapping<'_>, steps: &[Step<'_>], problems: &mut Problems) {
    let said = |step: &Step<'_>| step.depends_at.is_some() || step.depends_unknown;
    if fields.get("order").is_some() || steps.len() < 2 || steps.iter().any(said) {
        return;
    }
    let at = fields.entries.iter().find(|(key, _)| key.text == "steps").map_or(fields.at, |(key, _)| key.at);
    let message = "nothing says in which order these steps go; say `order: linear`, or `order: dag` for steps that run side by side";
    problems.add(at, "order", ProblemCode::MissingOrder, message);
}

fn report_linear(steps: &[Step<'_>], problems: &mut Problems) {
    for (seq, step) in steps.iter().enumerate() {
        if let Some(at) = step.depends_at {
            let message =
                "in a linear workflow each step follows the one before; remove `dependsOn`, or `order: linear`";
            problems.add(at, format!("steps[{seq}].dependsOn"), ProblemCode::LinearDependsOn, message);
        }
    }
}

/// The edges, and whether all of them are known.
fn edges(steps: &[Step<'_>], names: &Names<'_>, problems: &mut Problems) -> (Vec<Vec<StepSeq>>, bool) {
    let mut sound = names.complete && names.unique;
    let mut edges = Vec::with_capacity(steps.len());
    for (seq, step) in steps.iter().enumerate() {
        let mut found = Vec::with_capacity(step.depends_on.len());
        for (i, name, at) in &step.depends_on {
            match names.get(name) {
                Some(dependency) => found.push(dependency),
                None if names.complete => {
                    let message = no_such_step(name, steps, problems);
                    let path = format!("steps[{seq}].dependsOn[{i}]");
                    problems.add(*at, path, ProblemCode::UnknownDependency, message);
                    sound = false;
                }
                None => {}
            }
        }
        sound &= !step.depends_unknown;
        found.sort_unstable();
        found.dedup();
        edges.push(found);
    }
    (edges, sound)
}

fn check(fields: &Mapping<'_>, steps: &[Step<'_>], edges: &[Vec<StepSeq>], problems: &mut Problems) {
    let in_order = topological(edges);
    if in_order.len() == steps.len() {
        return;
    }
    let component = components(edges);
    report_cycles(steps, edges, &component, problems);
    if edges.iter().all(|dependencies| !dependencies.is_empty()) {
        let message = "every step waits for another, so that none can begin; let one step depend on none";
        problems.add(fields.get("steps").map_or(fields.at, |node| node.at), "steps", ProblemCode::NoRoot, message);
        return;
    }
    report_unreachable(steps, edges, &component, problems);
}

/// The steps, each after those it depends on; those in a cycle or behind one are missing.
pub(super) fn topological(edges: &[Vec<StepSeq>]) -> Vec<StepSeq> {
    let dependents = dependents(edges);
    let mut open: Vec<usize> = edges.iter().map(Vec::len).collect();
    let mut order: Vec<StepSeq> = (0..).zip(&open).filter(|(_, open)| **open == 0).map(|(seq, _)| seq).collect();
    let mut next = 0;
    while let Some(&step) = order.get(next) {
        next += 1;
        for &dependent in &dependents[step as usize] {
            open[dependent as usize] -= 1;
            if open[dependent as usize] == 0 {
                order.push(dependent);
            }
        }
    }
    order
}

fn dependents(edges: &[Vec<StepSeq>]) -> Vec<Vec<StepSeq>> {
    let mut dependents = vec![Vec::new(); edges.len()];
    for (seq, dependencies) in (0..).zip(edges) {
        for &dependency in dependencies {
            dependents[dependency as usize].push(seq);
        }
    }
    dependents
}

/// For each step the cycle it is part of, as a number; `None` when it is part of none. Tarjan's algorithm with a
/// stack of its own.
fn components(edges: &[Vec<StepSeq>]) -> Vec<Option<usize>> {
    const UNSEEN: usize = usize::MAX;
    let count = edges.len();
    let (mut index, mut low) = (vec![UNSEEN; count], vec![0; count]);
    let mut on_stack = vec![false; count];
    let mut component = vec![None; count];
    let (mut stack, mut seen, mut found) = (Vec::new(), 0, 0);
    for root in 0..count {
        if index[root] != UNSEEN {
            continue;
        }
        let mut calls: Vec<(usize, usize)> = vec![(root, 0)];
        while let Some((step, edge)) = calls.pop() {
            if edge == 0 {
                (index[step], low[step]) = (seen, seen);
                seen += 1;
                stack.push(step);
                on_stack[step] = true;
            } else {
                let before = edges[step][edge - 1] as usize;
                if on_stack[before] {
                    low[step] = low[step].min(low[before]);
                }
            }
            let mut edge = edge;
            let mut descend = None;
            while let Some(&next) = edges[step].get(edge) {
                let next = next as usize;
                edge += 1;
                if index[next] == UNSEEN {
                    descend = Some(next);
                    break;
                }
                if on_stack[next] {
                    low[step] = low[step].min(index[next]);
                }
            }
            if let Some(next) = descend {
                calls.push((step, edge));
                calls.push((next, 0));
                continue;
            }
            if low[step] == index[step] {
                let start = stack.iter().rposition(|member| *member == step).unwrap_or(0);
                let members = stack.split_off(start);
                let cyclic = members.len() > 1 || edges[step].iter().any(|next| *next as usize == step);
                for member in members {
                    on_stack[member] = false;
                    component[member] = cyclic.then_some(found);
                }
                found += 1;
            }
        }
    }
    component
}

/// One problem for each knot of cycles, at the first of its steps.
fn report_cycles(steps: &[Step<'_>], edges: &[Vec<StepSeq>], component: &[Option<usize>], problems: &mut Problems) {
    let mut reported = std::collections::HashSet::new();
    for (seq, own) in component.iter().enumerate() {
        let Some(own) = own else { continue };
        if !reported.insert(*own) {
            continue;
        }
        let cycle = shortest_cycle(seq, edges, component);
        let name = |seq: usize| quoted(steps[seq].name.unwrap_or_default());
        let mut shown: Vec<String> = cycle.iter().take(MAX_SHOWN).map(|seq| name(*seq)).collect();
        if cycle.len() > MAX_SHOWN {
            shown.push("…".to_owned());
        }
        shown.push(name(seq));
        let message =
            format!("these steps wait for one another: {}; remove one of the dependencies", shown.join(" → "));
        let next = cycle.get(1).copied().unwrap_or(seq);
        let entry = steps[seq].depends_on.iter().find(|(_, name, _)| Some(*name) == steps[next].name);
        let (i, at) = entry.map_or((0, steps[seq].name_at), |(i, _, at)| (*i, *at));
        problems.add(at, format!("steps[{seq}].dependsOn[{i}]"), ProblemCode::DagCycle, message);
    }
}

/// The steps of a shortest cycle through `start`, from `start` on.
fn shortest_cycle(start: usize, edges: &[Vec<StepSeq>], component: &[Option<usize>]) -> Vec<usize> {
    let mut from: HashMap<usize, usize> = HashMap::new();
    let mut queue = std::collections::VecDeque::from([start]);
    while let Some(step) = queue.pop_front() {
        for next in edges[step].iter().map(|next| *next as usize) {
            if next == start {
                let mut cycle = vec![step];
                let mut at = step;
                while at != start {
                    let Some(&before) = from.get(&at) else { break };
                    cycle.push(before);
                    at = before;
                }
                cycle.reverse();
                return cycle;
            }
            if component[next] == component[start] && !from.contains_key(&next) {
                from.insert(next, step);
                queue.push_back(next);
            }
        }
    }
    vec![start]
}

/// Steps to which no way leads from a root, without those of the cycles themselves.
fn report_unreachable(
    steps: &[Step<'_>],
    edges: &[Vec<StepSeq>],
    component: &[Option<usize>],
    problems: &mut Problems,
) {
    let dependents = dependents(edges);
    let mut reached: Vec<bool> = edges.iter().map(Vec::is_empty).collect();
    let mut open: Vec<usize> = (0..edges.len()).filter(|seq| reached[*seq]).collect();
    while let Some(step) = open.pop() {
        for &dependent in &dependents[step] {
            if !std::mem::replace(&mut reached[dependent as usize], true) {
                open.push(dependent as usize);
            }
        }
    }
    for (seq, step) in steps.iter().enumerate() {
        if !reached[seq] && component[seq].is_none() {
            let message = format!(
                "no way leads to {} from a step that can begin; it waits for a cycle",
                quoted(step.name.unwrap_or_default())
            );
            problems.add(step.name_at, format!("steps[{seq}].name"), ProblemCode::UnreachableStep, message);
        }
    }
}
