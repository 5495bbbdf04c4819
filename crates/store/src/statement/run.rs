//! The parameters of what runs write, columns in the order of the table of statements.

use super::Name;
use crate::value::Value;
use countersign_engine::port::Unit;
use countersign_engine::rows::{
    CorrectionRow, HeadText, OutboxRow, RunEventRow, RunHeadRow, RunRow, StepText, StepWrite, Write,
};
use countersign_kernel::InstanceId;
use countersign_kernel::plan::StepSeq;

/// The states of a run that has begun and not ended; the index of concurrency keys holds no other. Spelt as there.
pub const UNDER_WAY: &str = "state IN ('executing', 'blocked', 'paused', 'stopped', 'compensating')";

fn optional_int(int: Option<u32>) -> Value<'static> {
    int.map_or(Value::Null, |int| Value::Int(i64::from(int)))
}

/// The writes of a unit. A run's head may change several times in one unit; only the last of these is written, because
/// one statement of PostgreSQL must not find two values for one row.
pub fn latest_writes(unit: &Unit) -> impl Iterator<Item = &Write> {
    let last = unit.writes.iter().rposition(|write| matches!(write, Write::RunHead(_)));
    let is_latest = move |i: usize, write: &Write| !matches!(write, Write::RunHead(_)) || Some(i) == last;
    unit.writes.iter().enumerate().filter(move |(i, write)| is_latest(*i, write)).map(|(_, write)| write)
}

pub fn run_values(row: &RunRow) -> Vec<Value<'_>> {
    vec![
        Value::Id(row.instance_id.0),
        Value::Text(&row.definition_name),
        Value::Int(i64::from(row.definition_version)),
        Value::digest(&row.document_digest),
        Value::Text(&row.subject_ref),
        Value::Text(&row.initiator_ref),
        Value::text(row.correlation_key.as_deref()),
        Value::text(row.concurrency_key.as_deref()),
        Value::optional_id(row.corrects.map(|id| id.0)),
        Value::optional_id(row.continues.map(|id| id.0)),
        Value::optional_id(row.parent.map(|(id, _)| id.0)),
        optional_int(row.parent.map(|(_, step_seq)| step_seq)),
        Value::time(row.started_at),
        Value::Text(&row.input),
        Value::text(row.trace_id.as_deref()),
        Value::text(row.machine.as_ref().map(|machine| machine.named.as_str())),
        row.machine.as_ref().map_or(Value::Null, |machine| Value::digest(&machine.digest)),
    ]
}

pub fn head_values(row: &RunHeadRow) -> Vec<Value<'_>> {
    vec![
        Value::Id(row.instance_id.0),
        Value::Text(row.state),
        Value::text(row.outcome),
        Value::text(row.last_error.as_deref()),
        Value::Int(i64::from(row.priority)),
        Value::optional_time(row.start_at),
        Value::optional_time(row.executing_since),
        Value::optional_time(row.completed_at),
        Value::optional_time(row.failed_at),
        Value::text(row.output.as_deref()),
        Value::optional_time(row.due_at),
        Value::Bool(row.is_live),
        Value::text(row.runbook.as_deref()),
        Value::Bool(row.undoing),
        Value::Bool(row.called_off),
    ]
}

/// The first head of a run repeats what it is searched by, which its run row says in the same unit. Without one the
/// database refuses it.
pub fn new_head_values<'a>(unit: &'a Unit, row: &'a RunHeadRow) -> Vec<Value<'a>> {
    let run = unit.writes.iter().find_map(|write| match write {
        Write::Run(run) => Some(run),
        _ => None,
    });
    let mut values = head_values(row);
    values.extend([
        Value::text(run.map(|run| run.definition_name.as_str())),
        Value::text(run.and_then(|run| run.correlation_key.as_deref())),
        Value::text(run.and_then(|run| run.concurrency_key.as_deref())),
    ]);
    values
}

/// A step that is added, with all that never changes, or a step that has changed.
pub fn step_values(instance_id: InstanceId, step_seq: StepSeq, step: &StepWrite) -> (Name, Vec<Value<'_>>) {
    let StepWrite { new, state } = step;
    let mut values = Vec::with_capacity(40);
    values.extend([
        Value::Id(instance_id.0),
        Value::Int(i64::from(step_seq)),
        Value::Text(state.state.as_str()),
        Value::Int(i64::from(state.attempts)),
        Value::optional_time(state.next_run_at),
        Value::text(state.locked_by.as_deref()),
        Value::optional_time(state.locked_until),
        Value::optional_id(state.lease_token),
        Value::text(state.waiting_event_type.as_deref()),
        Value::text(state.waiting_facet),
        Value::optional_time(state.deadline_at),
        Value::text(state.last_error.as_deref()),
        Value::text(state.error_category),
        Value::text(state.event_data.as_deref()),
        Value::optional_time(state.started_at),
        Value::optional_time(state.completed_at),
        Value::Bool(state.effect_unknown),
        Value::optional_id(state.child_run_id.map(|id| id.0)),
        Value::text(state.task_type),
        Value::text(state.output.as_deref()),
        Value::Bool(state.output_needed),
        Value::optional_time(state.due_at),
        Value::text(state.handed.as_deref()),
        Value::optional_time(state.blocked_since),
        Value::text(state.blocked_cause),
        Value::text(state.child_colour),
    ]);
    let charge = &state.charge;
    values.extend([
        Value::text(charge.pic.as_deref()),
        Value::optional_time(charge.deadline),
        Value::optional_time(charge.overdue_first_at),
        charge.sla_breach.map_or(Value::Null, Value::Int),
        optional_int((charge.cycle > 0).then_some(charge.cycle)),
        Value::optional_time(charge.declared_at),
        Value::text(charge.secondary_facets.as_deref()),
        Value::text(charge.block_reason),
        Value::optional_time(charge.escalated_at),
        Value::text(charge.derived_state.as_deref()),
        Value::optional_time(charge.start_by),
    ]);
    let Some(new) = new else { return (Name::RunStep, values) };
    values.extend([
        Value::Text(&new.name),
        optional_int(new.compensates),
        Value::Text(&new.queue),
        Value::Int(i64::from(new.max_attempts)),
    ]);
    (Name::NewRunStep, values)
}

pub fn event_values(row: &RunEventRow) -> Vec<Value<'_>> {
    vec![
        Value::Id(row.instance_id.0),
        Value::Text(&row.event_id),
        Value::Text(&row.event_type),
        Value::Text(&row.data),
        Value::time(row.received_at),
        Value::Bool(row.taken),
    ]
}

pub fn correction_values(row: &CorrectionRow) -> Vec<Value<'_>> {
    vec![
        Value::Id(row.instance_id.0),
        Value::Int(i64::from(row.step_seq)),
        Value::Int(i64::from(row.cycle)),
        Value::Text(row.from_state.as_str()),
        Value::Id(row.prior_event_id.0),
        Value::Text(&row.prior_actor_ref),
        Value::time(row.prior_at),
        Value::text(row.output.as_deref()),
        Value::optional_time(row.overdue_first_at),
        row.sla_breach.map_or(Value::Null, Value::Int),
        Value::Id(row.approval_id.0),
        Value::Text(row.correction_reason),
        Value::Text(&row.reopened_by),
        Value::time(row.reopened_at),
        Value::Id(row.event_id.0),
    ]
}

/// It may be delivered at once. One for this server itself has its delivery already: no webhook is looked for.
pub fn outbox_values(row: &OutboxRow) -> Vec<Value<'_>> {
    vec![
        Value::Id(row.outbox_id),
        Value::Id(row.instance_id.0),
        Value::Text(&row.event_type),
        Value::Text(&row.data),
        Value::time(row.created_at),
        if row.inside { Value::Int(i64::MAX) } else { Value::time(row.created_at) },
        Value::text(row.step.as_deref()),
    ]
}

/// Outputs and what came with events are JSON; an error is not.
pub fn redacted_step(instance_id: InstanceId, step_seq: StepSeq, what: StepText, text: &str) -> (Name, Vec<Value<'_>>) {
    let mut values = vec![Value::Id(instance_id.0), Value::Int(i64::from(step_seq))];
    let name = match what {
        StepText::Output => {
            // A spent token is marked with the output.
            values.extend([Value::json(text), Value::Null]);
            Name::RedactRunStepOutput
        }
        StepText::Error => {
            values.push(Value::Text(text));
            Name::RedactRunStepError
        }
        StepText::Event => {
            values.push(Value::json(text));
            Name::RedactRunStepEvent
        }
    };
    (name, values)
}

pub fn redacted_head(instance_id: InstanceId, what: HeadText, text: &str) -> (Name, Vec<Value<'_>>) {
    let (name, value) = match what {
        HeadText::Output => (Name::RedactRunOutput, Value::json(text)),
        HeadText::Error => (Name::RedactRunError, Value::Text(text)),
        HeadText::Runbook => (Name::RedactRunbook, Value::Null),
    };
    (name, vec![Value::Id(instance_id.0), value])
}
