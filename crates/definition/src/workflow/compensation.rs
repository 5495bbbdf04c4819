//! `compensation`: how the steps that were completed are undone. Any order; the run undoes the last one first.

use super::Reader;
use super::expressions::Place;
use super::step::{Names, Step, no_such_step};
use super::values::{boolean, literal, some_time, word};
use super::work::{Run, check_fields, work};
use crate::fields::{FieldList, Mapping, list};
use crate::names::name;
use crate::problem::{ProblemCode, Problems, quoted};
use crate::tree::{Node, Value};
use countersign_kernel::plan::{CompensationSpec, FailurePolicy, Micros, OnFailure, StepSeq, Work};
use std::collections::HashSet;
use std::sync::Arc;

pub const COMPENSATION_FIELDS: FieldList = FieldList {
    required: &["step", "action"],
    optional: &[
        "agent",
        "queue",
        "run",
        "timeout",
        "onFailure",
        "idempotent",
        "command",
        "env",
        "success",
        "retry",
        "method",
        "url",
        "headers",
        "body",
    ],
};
/// Who or what undoes a step.
pub(super) const COMPENSATION_RUNS: &[(&str, Run)] =
    &[("worker", Run::Worker), ("shell", Run::Shell), ("http", Run::Http)];
/// What the failure of an undo leads to: the run ends, or it waits for an operator.
pub(super) const COMPENSATION_FAILURES: &[(&str, bool)] = &[("abort", false), ("hold", true)];

pub(super) fn read(
    fields: &Mapping<'_>,
    steps: &[Step<'_>],
    names: &Names<'_>,
    policy: Option<FailurePolicy>,
    reader: &mut Reader<'_>,
) -> Vec<CompensationSpec> {
    let node = fields.get("compensation");
    let form = "a list such as `[{step: …, action: …, agent: …}]`";
    let items = node.and_then(|node| list(node, "compensation", form, reader.problems));
    if items.map_or(node.is_none(), <[Node]>::is_empty) {
        report_none(fields, steps, policy, reader.problems);
        return Vec::new();
    }
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for (i, item) in items.unwrap_or_default().iter().enumerate() {
        let path = format!("compensation[{i}]");
        let Some(entry) = Mapping::of(item, path, "a mapping with `step`, `action` and `agent`", reader.problems)
        else {
            continue;
        };
        let misspelt = entry.check_fields(&COMPENSATION_FIELDS, reader.problems);
        let action = entry.get("action").and_then(|node| literal(node, &entry.path_to("action"), reader.problems));
        // Its author's word alone: every compensation is repeated after a lost lease (`advice`).
        entry.get("idempotent").and_then(|node| boolean(node, &entry.path_to("idempotent"), reader.problems));
        let undone = entry.get("step").and_then(|node| match &node.value {
            Value::String(written) => names.get(written),
            _ => None,
        });
        let how = read_work(&entry, &misspelt, undone, reader);
        let problems = &mut *reader.problems;
        let Some(node) = entry.get("step") else { continue };
        let path = entry.path_to("step");
        let Some(written) = literal(node, &path, problems) else { continue };
        let Some(seq) = names.get(written) else {
            if names.complete {
                let message = no_such_step(written, steps, problems);
                problems.add(node.at, path, ProblemCode::UnknownCompensation, message);
            }
            continue;
        };
        if !seen.insert(seq) {
            let message = format!("{} is compensated already; keep one of the two", quoted(written));
            problems.add(node.at, path, ProblemCode::DuplicateCompensation, message);
        } else if steps[seq as usize].read_only {
            let message =
                format!("{} is read-only, so that there is nothing to undo; remove the entry", quoted(written));
            problems.add(node.at, path, ProblemCode::ReadOnlyCompensation, message);
        }
        if let (Some(action), Some((work, agent, timeout, hold))) = (action, how) {
            let action = action.to_owned();
            found.push(CompensationSpec { step: seq, action, agent, work, timeout, hold });
        }
    }
    found
}

/// Who or what undoes the step, within which time, and what its failure leads to. `agent` is the queue of its workers, unless
/// `queue` names another; where the server undoes it, `agent` only says who answers for that.
fn read_work(
    entry: &Mapping<'_>,
    misspelt: &HashSet<&'static str>,
    undone: Option<StepSeq>,
    reader: &mut Reader<'_>,
) -> Option<(Work, Arc<str>, Option<Micros>, bool)> {
    let run = match entry.get("run") {
        Some(node) => word(node, &entry.path_to("run"), COMPENSATION_RUNS, reader.problems)?,
        None if misspelt.contains("run") => return None,
        None => Run::Worker,
    };
    check_fields(entry, run, reader);
    let mut queue = None;
    for field in ["agent", "queue"] {
        if let Some(node) = entry.get(field) {
            queue = Some(name(node, &entry.path_to(field), reader.problems)?);
        }
    }
    if queue.is_none() && run == Run::Worker {
        entry.require(&["agent"], misspelt, reader.problems);
        return None;
    }
    let agent = Arc::from(queue.unwrap_or_default());
    let timeout = match entry.get("timeout") {
        Some(node) => Some(some_time(node, &entry.path_to("timeout"), ProblemCode::BadValue, reader.problems)?),
        None => None,
    };
    let hold = match entry.get("onFailure") {
        Some(node) => word(node, &entry.path_to("onFailure"), COMPENSATION_FAILURES, reader.problems)?,
        None => false,
    };
    // What is undone is not known: that is reported, and nothing can be said of what its expressions name.
    let place = Place::Undo(undone.unwrap_or_default());
    let work = match undone {
        Some(_) => work(entry, run, misspelt, place, reader),
        None => None,
    };
    Some((work?, agent, timeout, hold))
}

/// Reported once, where compensation is first asked for.
fn report_none(fields: &Mapping<'_>, steps: &[Step<'_>], policy: Option<FailurePolicy>, problems: &mut Problems) {
    let message = "nothing says how to compensate; add `compensation` with an entry for each step that can be undone";
    if let (Some(FailurePolicy::Compensate), Some(node)) = (policy, fields.get("failurePolicy")) {
        problems.add(node.at, "failurePolicy", ProblemCode::NoCompensation, message);
        return;
    }
    let first = steps.iter().enumerate().find_map(|(seq, step)| match step.on_failure {
        Some((OnFailure::Compensate, at)) => Some((seq, at)),
        _ => None,
    });
    // Where nothing may be compensated at all, that is what is reported.
    if let (Some((seq, at)), false) = (first, policy == Some(FailurePolicy::FailClosed)) {
        problems.add(at, format!("steps[{seq}].onFailure"), ProblemCode::NoCompensation, message);
    }
}
