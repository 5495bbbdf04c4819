//! `failurePolicy: fail-closed`: a runbook, in which the engine retries, skips and undoes nothing, and which only the
//! sovereign resumes. Fields that only a runbook enforces are refused elsewhere.

use super::Reader;
use super::retry::Written;
use super::step::Step;
use crate::fields::Mapping;
use crate::problem::{Position, ProblemCode, Problems, quoted};
use crate::tree::{Node, Value};
use countersign_kernel::plan::{OnFailure, Order, Work};
use countersign_kernel::run::{RESUME, SOVEREIGN, VOID};

pub(super) fn check(
    fields: &Mapping<'_>,
    steps: &[Step<'_>],
    retry: Option<Written>,
    order: Option<Order>,
    reader: &mut Reader<'_>,
) {
    let open_children = open_children(steps, reader);
    let problems = &mut *reader.problems;
    check_top(fields, retry, order, problems);
    for (seq, step) in steps.iter().enumerate() {
        let mut report = |at: Position, field: &str, what: &str| {
            let message = format!("a fail-closed definition {what}");
            problems.add(at, format!("steps[{seq}].{field}"), ProblemCode::FailClosedViolation, message);
        };
        let field = |name: &str| step.node.field(name);
        if let (Some(written), Some(node)) = (step.retry, field("retryPolicy"))
            && written.retries()
        {
            report(node.at, "retryPolicy", NO_RETRY);
        }
        match step.on_failure {
            Some((OnFailure::Skip, at)) => report(at, "onFailure", NO_SKIP),
            Some((OnFailure::Compensate, at)) => report(at, "onFailure", NO_COMPENSATION),
            Some((OnFailure::Hold, at)) => report(at, "onFailure", "holds nothing: what fails ends the run; remove it"),
            Some((OnFailure::Abort, _)) | None => {}
        }
        if let Some(Node { at, value: Value::Bool(true) }) = field("optional") {
            report(*at, "optional", "has no optional steps; remove it");
        }
        if let Some(node) = field("when") {
            report(node.at, "when", NO_SKIP);
        }
        for category in ["agent_error", "external"] {
            let Some(node) = field("errors").and_then(|errors| errors.field(category)) else { continue };
            match &node.value {
                Value::String(word) if word == "retry" => report(node.at, &format!("errors.{category}"), NO_RETRY),
                Value::String(word) if word == "skip" => report(node.at, &format!("errors.{category}"), NO_SKIP),
                _ => {}
            }
        }
        if let (true, Some(node)) = (open_children.contains(&seq), field("workflow")) {
            report(node.at, "workflow", "runs only workflows that are fail-closed too; this one is not");
        }
        if let Some(name) = step.name.filter(|name| [RESUME, VOID].contains(name)) {
            let message = format!("{} is the name of the run's own gate; give the step another", quoted(name));
            problems.add(step.name_at, format!("steps[{seq}].name"), ProblemCode::BadValue, message);
        }
    }
}

fn check_top(fields: &Mapping<'_>, retry: Option<Written>, order: Option<Order>, problems: &mut Problems) {
    let mut report = |at: Position, path: &str, what: &str| {
        let message = format!("a fail-closed definition {what}");
        problems.add(at, path, ProblemCode::FailClosedViolation, message);
    };
    if let (Some(written), Some(node)) = (retry, fields.get("retryPolicy"))
        && written.retries()
    {
        report(node.at, "retryPolicy", NO_RETRY);
    }
    if let Some(node) = fields.get("compensation")
        && matches!(&node.value, Value::Seq(items) if !items.is_empty())
    {
        report(node.at, "compensation", NO_COMPENSATION);
    }
    let Some(policy) = fields.get("failurePolicy") else { return };
    match (order, fields.get("order")) {
        (Some(Order::Dag), Some(node)) => report(node.at, "order", ONE_BY_ONE),
        (Some(Order::Dag), None) => report(policy.at, "failurePolicy", ONE_BY_ONE),
        (Some(Order::Linear) | None, _) => {}
    }
    if fields.get("gate_spec").and_then(|spec| spec.field(SOVEREIGN)).is_none() {
        report(policy.at, "failurePolicy", "needs somebody to resume it; add `sovereign` to gate_spec");
    }
}

/// The steps that run a workflow which is published and not fail-closed.
fn open_children(steps: &[Step<'_>], reader: &Reader<'_>) -> Vec<usize> {
    let Some(deployment) = &reader.resolver else { return Vec::new() };
    let is_open = |step: &Step<'_>| match step.spec.as_ref().map(|spec| &spec.work) {
        Some(Work::Workflow { name, version: Some(version) }) => !deployment.is_fail_closed(name, *version),
        _ => false,
    };
    steps.iter().enumerate().filter(|(_, step)| is_open(step)).map(|(seq, _)| seq).collect()
}

/// What nothing but a runbook enforces.
pub(super) fn keep_out(fields: &Mapping<'_>, steps: &[Step<'_>], problems: &mut Problems) {
    let mut report = |node: &Node, path: String, field: &str| {
        let message = format!(
            "`{field}` is enforced in a runbook only; write `failurePolicy: fail-closed` and `order: linear`, or remove it"
        );
        problems.add(node.at, path, ProblemCode::FailClosedViolation, message);
    };
    if let Some(node) = fields.get("hardCap") {
        report(node, "hardCap".to_owned(), "hardCap");
    }
    for (seq, step) in steps.iter().enumerate() {
        for field in ["pins", "softCap", "artifacts", "state"] {
            if let Some(node) = step.node.field(field) {
                report(node, format!("steps[{seq}].{field}"), field);
            }
        }
    }
}

const NO_RETRY: &str = "retries nothing; remove this, or write `maxRetries: 0`";
const NO_SKIP: &str = "skips nothing; remove it";
const NO_COMPENSATION: &str = "compensates nothing; remove it";
const ONE_BY_ONE: &str = "carries out one step after the other; write `order: linear`";
