//! The rows of the stores as the lines of a bundle's files (`spec/bundle.md`): what an export writes, and what verifying
//! compares with the records.

use crate::port::ProcessView;
use crate::rows::{AssignmentRow, GateRow, StepRow, TransitionRow};
use countersign_kernel::Time;
use countersign_kernel::process::Fate;
use countersign_kernel::registry::Grant;
use serde_json::{Map, Value};

/// An object with its members in this order.
pub fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>())
}

pub fn line(value: &Value) -> String {
    format!("{value}\n")
}

pub fn us(time: Option<Time>) -> Value {
    time.map_or(Value::Null, |Time(us)| us.into())
}

pub fn grant(grant: &Grant) -> String {
    let (revoked_at, revoked_seq) = grant.revoked.unzip();
    line(&object([
        ("grant_id", grant.grant_id.to_string().into()),
        ("subject_ref", grant.subject_ref.as_str().into()),
        ("action_scope", grant.action_scope.as_str().into()),
        ("granted_at_us", grant.granted_at.0.into()),
        ("granted_seq", grant.granted_sequence.into()),
        ("revoked_at_us", us(revoked_at)),
        ("revoked_seq", revoked_seq.into()),
    ]))
}

/// What the stores say of an instance.
pub fn state(view: &ProcessView) -> String {
    line(&members(view))
}

/// What the stores say of a process, or of the gates of a run.
pub(super) fn members(view: &ProcessView) -> Value {
    let row = &view.row;
    let definition = row.definition.as_ref().map(|(name, version)| format!("{name}@{version}"));
    let mut gates: Vec<&GateRow> = view.gates.iter().map(|(gate, _)| gate).collect();
    gates.sort_by_key(|gate| gate.gate_id);
    let mut steps: Vec<&StepRow> = view.gates.iter().flat_map(|(_, steps)| steps).map(|(step, _)| step).collect();
    steps.sort_by_key(|step| step.step_id.0);
    let mut assignments: Vec<AssignmentRow> =
        view.gates.iter().flat_map(|(_, steps)| steps).flat_map(|(_, assignment)| assignment.chain()).collect();
    assignments.sort_by_key(|assignment| assignment.assignment_id.0);
    object([
        ("instance_id", row.instance_id.to_string().into()),
        ("subject_ref", row.subject_ref.as_str().into()),
        ("initiator_ref", row.initiator_ref.as_str().into()),
        ("definition", definition.into()),
        ("declaration_digest", row.declaration_digest.to_string().into()),
        ("gate_spec_digest", row.gate_spec_digest.to_string().into()),
        ("started_at_us", row.started_at.0.into()),
        ("current_state", view.current_state.as_str().into()),
        ("sequence", view.head.sequence.into()),
        ("transitions", view.history.iter().map(transition).collect()),
        ("gates", gates.into_iter().map(gate).collect()),
        ("approval_steps", steps.into_iter().map(step).collect()),
        ("assignments", assignments.iter().map(assignment).collect()),
    ])
}

fn transition(row: &TransitionRow) -> Value {
    let gate = row.gate_id.map(|id| id.to_string());
    let (step_id, chain_id) = if row.gate_is_chain { (None, gate) } else { (gate, None) };
    object([
        ("transition_id", row.transition_id.to_string().into()),
        ("sequence_number", row.sequence_number.into()),
        ("from_state", row.from_state.as_str().into()),
        ("action", row.action.as_str().into()),
        ("to_state", row.to_state.as_str().into()),
        ("fired_at_us", row.fired_at.0.into()),
        ("actor_ref", row.actor_ref.as_str().into()),
        ("guard_satisfied", row.guard_satisfied.into()),
        ("step_id", step_id.into()),
        ("chain_id", chain_id.into()),
        ("event_id", row.event_id.to_string().into()),
    ])
}

fn gate(row: &GateRow) -> Value {
    let fate = match row.fate {
        Fate::Unspent => "unspent",
        Fate::Consumed => "consumed",
        Fate::Mooted => "mooted",
    };
    object([
        ("gate_id", row.gate_id.to_string().into()),
        ("from_state", row.from_state.as_str().into()),
        ("action", row.action.as_str().into()),
        ("guard", row.guard.as_str().into()),
        ("scope", row.scope.as_str().into()),
        ("opened_at_us", row.opened_at.0.into()),
        ("opened_by", row.opened_by.as_str().into()),
        ("rule", row.rule.map(|rule| rule.as_str()).into()),
        ("m", row.rule.and_then(|rule| rule.m()).into()),
        ("chain_state", row.chain_state.map(|state| state.as_str()).into()),
        ("fate", fate.into()),
        ("current", row.current.into()),
    ])
}

fn step(row: &StepRow) -> Value {
    let ended = row.ended.as_ref();
    object([
        ("step_id", row.step_id.to_string().into()),
        ("gate_id", row.gate_id.to_string().into()),
        ("action", row.action.as_str().into()),
        ("subject_ref", row.subject_ref.as_str().into()),
        ("approver_ref", row.approver_ref.as_str().into()),
        ("submitter_ref", row.submitter_ref.as_str().into()),
        ("scope", row.scope.as_str().into()),
        ("submitted_at_us", row.submitted_at.0.into()),
        ("state", row.state.as_str().into()),
        ("ended_by", ended.map(|end| end.by.as_str()).into()),
        ("ended_at_us", us(ended.map(|end| end.at))),
        ("ended_reason", ended.and_then(|end| end.reason.as_deref()).into()),
    ])
}

fn assignment(row: &AssignmentRow) -> Value {
    object([
        ("assignment_id", row.assignment_id.to_string().into()),
        ("task_ref", row.task_ref.to_string().into()),
        ("assignee_ref", row.assignee_ref.as_str().into()),
        ("assigned_at_us", row.assigned_at.0.into()),
        ("status", row.status.as_str().into()),
        ("ended_at_us", us(row.ended_at)),
    ])
}
