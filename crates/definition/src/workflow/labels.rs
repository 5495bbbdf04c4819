//! `gate_spec` and the labels that use it: each step's `gate`, and those that every run may need.

use super::Reader;
use super::step::Step;
use super::work::refuse_expression;
use crate::fields::Mapping;
use crate::gates::{Unused, gate_spec, report_unused};
use crate::problem::{ProblemCode, Problems, quoted, segment};
use crate::tree::{Node, Value};
use countersign_kernel::GateSpec;
use countersign_kernel::plan::Work;
use countersign_kernel::run::{RESUME, SOVEREIGN, VOID};
use std::collections::HashSet;

/// Labels that a run needs without a step naming them.
const OF_THE_RUN: &[&str] = &["reopen", CANCEL, "escalate", RESUME, VOID, SOVEREIGN];

/// Each names both who must approve of it and the gate that does.
const CANCEL: &str = "cancel";
const OWN_GATES: &[&str] = &[CANCEL, RESUME, VOID];

const UNUSED: Unused =
    Unused { complaint: "no step has the gate", advice: "name it as the `gate` of a step, or remove the entry" };

pub(super) fn read(fields: &Mapping<'_>, steps: &[Step<'_>], reader: &mut Reader<'_>) -> GateSpec {
    let node = fields.get("gate_spec");
    let gates_known = !steps.is_empty() && steps.iter().all(|step| !step.gate_unknown);
    let spec = node.map_or_else(GateSpec::default, |node| {
        if let Value::Map(entries) = &node.value {
            for (label, entry) in entries {
                for field in ["approver_ref", "scope"] {
                    let path = format!("gate_spec.{}.{field}", label.text);
                    entry.field(field).into_iter().for_each(|node| refuse_expression(node, &path, reader));
                }
            }
        }
        if gates_known && !reader.trusted {
            let named = steps.iter().filter_map(|step| step.gate.map(|(label, _)| label));
            let used: Vec<&str> = named.chain(OF_THE_RUN.iter().copied()).collect();
            report_unused(node, "gate_spec", &used, &UNUSED, reader.problems);
        }
        gate_spec(node, "gate_spec", reader.problems)
    });
    // An entry that is at fault itself is there all the same.
    let written: HashSet<&str> = match node.map(|node| &node.value) {
        Some(Value::Map(entries)) => entries.iter().map(|(label, _)| label.text.as_str()).collect(),
        _ => HashSet::new(),
    };
    for (seq, step) in steps.iter().enumerate() {
        let Some((label, at)) = step.gate.filter(|(label, _)| !written.contains(label)) else { continue };
        let advice = match reader.problems.guess(label, written.iter().copied()) {
            Some(meant) => format!("did you mean {}?", quoted(meant)),
            None => "add it, with who approves".to_owned(),
        };
        let message = format!("gate_spec has no entry {}; {advice}", quoted(label));
        reader.problems.add(at, format!("steps[{seq}].gate"), ProblemCode::UnknownGate, message);
    }
    if let (Some(node), false) = (node, reader.trusted) {
        report_taken(node, steps, reader.problems);
    }
    spec
}

/// A run's gates have their names from its steps and their approvers from the labels. Where two of them would share either,
/// nobody could tell whom to ask.
fn report_taken(node: &Node, steps: &[Step<'_>], problems: &mut Problems) {
    let Value::Map(entries) = &node.value else { return };
    let is_approval = |step: &Step<'_>| step.spec.as_ref().is_some_and(|spec| matches!(spec.work, Work::Approval(_)));
    let approvals: HashSet<&str> = steps.iter().filter(|step| is_approval(step)).filter_map(|step| step.name).collect();
    for (label, _) in entries {
        let Some(step) = label.text.strip_prefix("approval:").filter(|step| approvals.contains(step)) else { continue };
        let message =
            format!("{} is the label of the approval {} itself; choose another", quoted(&label.text), quoted(step));
        problems.add(label.at, format!("gate_spec.{}", segment(&label.text)), ProblemCode::BadValue, message);
    }
    for (seq, step) in steps.iter().enumerate() {
        let own = step.name.filter(|name| OWN_GATES.contains(name));
        let named = entries.iter().any(|(label, _)| Some(label.text.as_str()) == own);
        if named && (step.gate.is_some() || is_approval(step)) {
            let message = "the gate of this step would be the run's own; give the step another name";
            problems.add(step.name_at, format!("steps[{seq}].name"), ProblemCode::BadValue, message);
        }
    }
}
