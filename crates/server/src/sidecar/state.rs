//! `state.json`: every member of the sidecar's schema, and the chain's `sequence` and `record_hash` that it was made at.

use super::fold::{Asked, Decision, Error, Fold, Gate, Step};
use crate::api::format_time;
use countersign_engine::port::RunView;
use countersign_engine::run::runbook;
use countersign_kernel::lifecycle::{RunState, StepCode};
use countersign_kernel::plan::{Plan, StepSpec};
use countersign_kernel::run::{idempotency_key, phase};
use countersign_kernel::{InstanceId, Time};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

const SCHEMA_VERSION: u32 = 1;
/// Of the reason in `voided_<reason>`.
const LONGEST_REASON: usize = 48;

/// `<name>-<YYYYMMDDTHHMMSSZ>-<uuid7>`: sorts by definition and time, and is a name for a directory.
pub fn run_name(run: &RunView) -> String {
    let started = Timestamp::from_microsecond(run.row.started_at.0).unwrap_or_default();
    format!("{}-{}-{}", run.row.definition_name, started.strftime("%Y%m%dT%H%M%SZ"), run.row.instance_id)
}

/// `phase-01.md` for the first step.
pub fn phase_file(seq: usize) -> String {
    format!("phase-{:02}.md", seq + 1)
}

pub fn state(run: &RunView, plan: &Plan, fold: &Fold) -> Value {
    let input = |name: &str| fold.input.get(name).filter(|value| value.is_string()).cloned().unwrap_or(Value::Null);
    let begun = || plan.steps.iter().zip(&fold.steps).enumerate().filter(|(_, (_, step))| step.begun.is_some());
    let phases: Map<String, Value> =
        begun().map(|(seq, (spec, step))| (spec.name.to_string(), phase_record(seq, spec, step))).collect();
    let keys: Map<String, Value> = begun()
        .map(|(seq, (spec, step))| (spec.name.to_string(), key(run.row.instance_id, seq, step.cycle).into()))
        .collect();
    let pins: Map<String, Value> = fold.pins.iter().map(|pin| (pin.name.clone(), pin.value.clone())).collect();
    let digests: Map<String, Value> =
        fold.pins.iter().map(|pin| (pin.name.clone(), pin.digest.clone().into())).collect();
    let mut state = json!({
        "run_id": run_name(run),
        "created_utc": format_time(run.row.started_at),
        "created_by": run.row.initiator_ref,
        "definition": format!("{}@{}", run.row.definition_name, run.row.definition_version),
        "document_id": fold.subject_ref,
        "source_document_id": input("source_document_id"),
        "source_version_id": input("source_version_id"),
        "mode": fold.is_dry.map(mode),
        "status": status(fold),
        "state": state_name(plan, fold),
        "phases": phases,
        "sovereign_approvals": approvals(fold),
        "idempotency_keys": keys,
        "context_pins": pins,
        "context_pin_digests": digests,
        "last_error": fold.error.as_ref().map(|error| error_record(plan, error)),
        "schema_version": SCHEMA_VERSION,
        "sequence": fold.sequence,
        "record_hash": fold.record_hash.to_string(),
    });
    if let Some(members) = state.as_object_mut().filter(|_| !fold.purged.is_empty()) {
        members.insert("purged".to_owned(), json!(fold.purged));
    }
    state
}

/// The run's line in `runs.jsonl`: what never changes.
pub fn index_line(run: &RunView) -> String {
    let book = run.head.runbook.as_deref().and_then(runbook::parse);
    let line = json!({
        "run_id": run_name(run),
        "created_utc": format_time(run.row.started_at),
        "created_by": run.row.initiator_ref,
        "definition": format!("{}@{}", run.row.definition_name, run.row.definition_version),
        "mode": book.map(|book| mode(book.dry_run)),
    });
    format!("{line}\n")
}

fn mode(is_dry: bool) -> &'static str {
    if is_dry { "dryrun" } else { "live" }
}

fn key(run_id: InstanceId, seq: usize, cycle: u32) -> String {
    idempotency_key(&format!("{run_id}.{seq}"), cycle)
}

pub fn status(fold: &Fold) -> &'static str {
    match fold.state {
        RunState::Completed => "success",
        RunState::Failed => "failed",
        RunState::Stopped => "stopped",
        RunState::Cancelled => "cancelled",
        RunState::Voided => "voided",
        _ => "running",
    }
}

/// The run's phase, or `failed_<step>`, `stopped_<reason>`, `voided_<reason>`.
pub fn state_name(plan: &Plan, fold: &Fold) -> String {
    let failed = || fold.error.as_ref().and_then(|error| plan.steps.get(error.step?)).map(|spec| spec.name.to_string());
    let named =
        |state: &str, what: Option<String>| what.map_or_else(|| state.to_owned(), |what| format!("{state}_{what}"));
    match fold.state {
        RunState::Failed => named("failed", failed().or_else(|| fold.outcome.clone())),
        RunState::Stopped => named("stopped", fold.outcome.clone()),
        RunState::Voided => named("voided", fold.reason.as_deref().map(slug).filter(|reason| !reason.is_empty())),
        RunState::Cancelled => "cancelled".to_owned(),
        _ => phase(plan, &fold.codes()).to_string(),
    }
}

/// A reason as a part of a name: `Wrong database!` is `wrong_database`.
fn slug(reason: &str) -> String {
    let words = reason.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("_").to_lowercase().chars().take(LONGEST_REASON).collect()
}

pub fn result(step: &Step) -> &'static str {
    match step.code {
        StepCode::Completed => "passed",
        StepCode::Failed | StepCode::CannotComplete | StepCode::Skipped | StepCode::Cancelled => "failed",
        _ => "running",
    }
}

fn utc(time: Option<Time>) -> Value {
    time.map_or(Value::Null, |time| format_time(time).into())
}

fn phase_record(seq: usize, spec: &StepSpec, step: &Step) -> Value {
    let invariants: Map<String, Value> =
        step.checks.iter().map(|(name, held)| (name.clone(), (*held).into())).collect();
    let mut record = json!({
        "phase": &*spec.name,
        "started_utc": utc(step.begun),
        "finished_utc": utc(step.finished),
        "result": result(step),
        "step_state": step.code.as_str(),
        "gate_invariants": invariants,
        "kb_doc_id": phase_file(seq),
        "artifacts": step.artifacts,
    });
    if let Some(members) = record.as_object_mut() {
        if step.is_effect_unknown {
            members.insert("effect_unknown".to_owned(), true.into());
        }
        if step.is_taken_over {
            members.insert("taken_over".to_owned(), true.into());
        }
    }
    record
}

/// Every approval that was given, in the order of the gates.
fn approvals(fold: &Fold) -> Vec<Value> {
    let given = |gate: &Gate| {
        let one = |asked: &Asked| {
            let decision = asked.decision.as_ref().filter(|decision| decision.is_approval)?;
            Some(approval(gate, asked, decision))
        };
        gate.asked.iter().filter_map(one).collect::<Vec<_>>()
    };
    fold.gates.iter().flat_map(given).collect()
}

fn approval(gate: &Gate, asked: &Asked, decision: &Decision) -> Value {
    json!({
        "gate": gate.guard,
        "action": gate.action,
        "requested_utc": format_time(gate.requested),
        "approval_kb_id": asked.step_id,
        "review_decision_id": decision.event_id.to_string(),
        "decided_by": decision.by,
        "decided_utc": format_time(decision.at),
        "request_digest": gate.request_digest,
        "validated_utc": utc(gate.spent),
    })
}

fn error_record(plan: &Plan, error: &Error) -> Value {
    json!({
        "phase": error.step.and_then(|step| plan.steps.get(step)).map(|spec| spec.name.to_string()),
        "at_utc": format_time(error.at),
        "code": error.code,
        "message": error.message,
        "drift": error.drift,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_becomes_a_part_of_a_name() {
        for (reason, named) in [("Wrong database!", "wrong_database"), ("  ", ""), ("../x", "x"), ("Đỗ 7", "đỗ_7")]
        {
            assert_eq!(slug(reason), named);
        }
        assert_eq!(slug(&"ab ".repeat(40)).chars().count(), LONGEST_REASON);
    }
}
