//! `failurePolicy: fail-closed`: a runbook, in which nothing is retried, skipped or undone, and which a sovereign
//! alone resumes.

use super::retry::Written;
use super::step::Step;
use crate::fields::Mapping;
use crate::problem::{Position, ProblemCode, Problems};
use crate::tree::{Node, Value};
use countersign_kernel::plan::OnFailure;

pub(super) fn check(fields: &Mapping<'_>, steps: &[Step<'_>], retry: Option<Written>, problems: &mut Problems) {
    let mut report = |at: Position, path: String, what: &str| {
        let message = format!("a fail-closed definition {what}");
        problems.add(at, path, ProblemCode::FailClosedViolation, message);
    };
    if let (Some(written), Some(node)) = (retry, fields.get("retryPolicy"))
        && written.retries()
    {
        report(node.at, "retryPolicy".to_owned(), NO_RETRY);
    }
    if let Some(node) = fields.get("compensation")
        && matches!(&node.value, Value::Seq(items) if !items.is_empty())
    {
        report(node.at, "compensation".to_owned(), NO_COMPENSATION);
    }
    for (seq, step) in steps.iter().enumerate() {
        let path = |field: &str| format!("steps[{seq}].{field}");
        let field = |name: &str| step.node.field(name);
        if let (Some(written), Some(node)) = (step.retry, field("retryPolicy"))
            && written.retries()
        {
            report(node.at, path("retryPolicy"), NO_RETRY);
        }
        match step.on_failure {
            Some((OnFailure::Skip, at)) => report(at, path("onFailure"), NO_SKIP),
            Some((OnFailure::Compensate, at)) => report(at, path("onFailure"), NO_COMPENSATION),
            Some((OnFailure::Abort | OnFailure::Hold, _)) | None => {}
        }
        if let Some(Node { at, value: Value::Bool(true) }) = field("optional") {
            report(*at, path("optional"), "has no optional steps; remove it");
        }
        for category in ["agent_error", "external"] {
            let Some(node) = field("errors").and_then(|errors| errors.field(category)) else { continue };
            match &node.value {
                Value::String(word) if word == "retry" => {
                    report(node.at, path(&format!("errors.{category}")), NO_RETRY)
                }
                Value::String(word) if word == "skip" => report(node.at, path(&format!("errors.{category}")), NO_SKIP),
                _ => {}
            }
        }
    }
    let sovereign = fields.get("gate_spec").and_then(|spec| spec.field("sovereign"));
    if let (None, Some(node)) = (sovereign, fields.get("failurePolicy")) {
        report(node.at, "failurePolicy".to_owned(), "needs somebody to resume it; add `sovereign` to gate_spec");
    }
}

const NO_RETRY: &str = "retries nothing; remove this, or write `maxRetries: 0`";
const NO_SKIP: &str = "skips nothing; remove it";
const NO_COMPENSATION: &str = "compensates nothing; remove it";
