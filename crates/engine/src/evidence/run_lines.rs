//! The line of a run in `state.jsonl` (`spec/run.md`, section 7): its gates as those of a process, and beside them `run`.

use super::RunState;
use super::lines::{line, members, object, us};
use crate::port::{ProcessView, RunStepView};
use crate::rows::ProcessRow;
use countersign_ledger::sha256;
use serde_json::Value;

/// A value up to this size stands in the line; of a larger one only its digest does.
const MAX_INLINE: usize = 16 * 1024;

pub fn state(run: &RunState) -> String {
    let mut whole = members(&shell(run));
    if let Some(members) = whole.as_object_mut() {
        members.insert("run".to_owned(), of_run(run));
    }
    line(&whole)
}

/// Its gates, as a process has them.
pub fn shell(run: &RunState) -> ProcessView {
    let row = &run.view.row;
    ProcessView {
        row: ProcessRow {
            instance_id: row.instance_id,
            definition: Some((row.definition_name.clone(), row.definition_version)),
            subject_ref: row.subject_ref.clone(),
            initiator_ref: row.initiator_ref.clone(),
            declaration_digest: run.declaration.digest,
            gate_spec_digest: run.gate_spec.digest,
            started_at: row.started_at,
        },
        head: run.view.chain.clone(),
        current_state: "run".to_owned(),
        declaration: run.declaration.bytes.as_slice().into(),
        gate_spec: run.gate_spec.bytes.as_slice().into(),
        history: run.history.clone(),
        gates: run.gates.clone(),
    }
}

/// The exact text of a value, where it is short.
fn text(json: Option<&str>) -> Value {
    json.filter(|json| json.len() <= MAX_INLINE).into()
}

fn digest(json: Option<&str>) -> Value {
    json.map(|json| sha256(&[json.as_bytes()]).to_string()).into()
}

fn of_run(run: &RunState) -> Value {
    let (row, head) = (&run.view.row, &run.view.head);
    let id = |id: Option<countersign_kernel::InstanceId>| Value::from(id.map(|id| id.to_string()));
    let mut line = object([
        ("document_digest", row.document_digest.to_string().into()),
        ("state", head.state.as_str().into()),
        ("outcome", head.outcome.as_deref().into()),
        ("priority", head.priority.into()),
        ("start_at_us", us(head.start_at)),
        ("executing_since_us", us(head.executing_since)),
        ("completed_at_us", us(head.completed_at)),
        ("failed_at_us", us(head.failed_at)),
        ("last_error", head.last_error.as_deref().into()),
        ("input", text(Some(&row.input))),
        ("input_digest", digest(Some(&row.input))),
        ("output", text(head.output.as_deref())),
        ("output_digest", digest(head.output.as_deref())),
        ("correlation_key", row.correlation_key.as_deref().into()),
        ("concurrency_key", row.concurrency_key.as_deref().into()),
        ("corrects", id(row.corrects)),
        ("continues", id(row.continues)),
        ("parent_run_id", id(row.parent.map(|(run_id, _)| run_id))),
        ("parent_step_seq", row.parent.map(|(_, step_seq)| step_seq).into()),
        ("steps", run.steps.iter().map(of_step).collect()),
    ]);
    if let (Some(line), Some(machine)) = (line.as_object_mut(), &row.machine) {
        line.insert("machine_digest".to_owned(), machine.digest.to_string().into());
    }
    line
}

fn of_step(step: &RunStepView) -> Value {
    let state = &step.state;
    let mut line = object([
        ("step_seq", step.step_seq.into()),
        ("name", (*step.new.name).into()),
        ("compensates", step.new.compensates.into()),
        ("state", state.state.as_str().into()),
        ("attempts", state.attempts.into()),
        ("started_at_us", us(state.started_at)),
        ("completed_at_us", us(state.completed_at)),
        ("last_error", state.last_error.as_deref().into()),
        ("error_category", state.error_category.into()),
        ("effect_unknown", state.effect_unknown.into()),
        ("child_run_id", state.child_run_id.map(|id| id.to_string()).into()),
        ("output", text(state.output.as_deref())),
        ("output_digest", digest(state.output.as_deref())),
    ]);
    let charge = &state.charge;
    let members = object([
        ("pic", charge.pic.as_deref().into()),
        ("deadline_us", us(charge.deadline)),
        ("start_by_us", us(charge.start_by)),
        ("overdue_first_at_us", us(charge.overdue_first_at)),
        ("sla_breach_us", charge.sla_breach.into()),
        ("cycle", (charge.cycle > 0).then_some(charge.cycle).into()),
    ]);
    // A line says of whom a step is in charge only where it is in somebody's, or where something was promised.
    if let (Some(line), Some(said)) = (line.as_object_mut(), members.as_object())
        && said.values().any(|value| !value.is_null())
    {
        line.insert("charge".to_owned(), members);
    }
    if let (Some(line), Some(derived)) = (line.as_object_mut(), &charge.derived_state) {
        line.insert("derived_state".to_owned(), (**derived).into());
    }
    line
}
