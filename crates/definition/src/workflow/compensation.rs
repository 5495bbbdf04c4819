//! `compensation`: how the steps that were completed are undone. Any order; the run undoes the last one first.

use super::Reader;
use super::step::{Names, Step, no_such_step};
use super::values::literal;
use crate::fields::{FieldList, Mapping, list};
use crate::names::name;
use crate::problem::{ProblemCode, Problems, quoted};
use crate::tree::Node;
use countersign_kernel::plan::{CompensationSpec, FailurePolicy, OnFailure};
use std::collections::HashSet;

pub const COMPENSATION_FIELDS: FieldList = FieldList { required: &["step", "action", "agent"], optional: &[] };

pub(super) fn read(
    fields: &Mapping<'_>,
    steps: &[Step<'_>],
    names: &Names<'_>,
    policy: Option<FailurePolicy>,
    reader: &mut Reader<'_>,
) -> Vec<CompensationSpec> {
    let problems = &mut *reader.problems;
    let node = fields.get("compensation");
    let items =
        node.and_then(|node| list(node, "compensation", "a list such as `[{step: …, action: …, agent: …}]`", problems));
    if items.map_or(node.is_none(), <[Node]>::is_empty) {
        report_none(fields, steps, policy, problems);
        return Vec::new();
    }
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for (i, item) in items.unwrap_or_default().iter().enumerate() {
        let path = format!("compensation[{i}]");
        let Some(entry) = Mapping::of(item, path, "a mapping with `step`, `action` and `agent`", problems) else {
            continue;
        };
        entry.check_fields(&COMPENSATION_FIELDS, problems);
        let action = entry.get("action").and_then(|node| literal(node, &entry.path_to("action"), problems));
        let agent = entry.get("agent").and_then(|node| name(node, &entry.path_to("agent"), problems));
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
        if let (Some(action), Some(agent)) = (action, agent) {
            found.push(CompensationSpec { step: seq, action: action.to_owned(), agent: agent.into() });
        }
    }
    found
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
