//! The lines of a bundle's files, member by member as `spec/bundle.md` lists them.

use anyhow::Context;
use countersign_engine::evidence::{Placed, Scope, Sealed};
use countersign_engine::port::ProcessView;
use countersign_engine::rows::{AssignmentRow, GateRow, StepRow, TransitionRow};
use countersign_kernel::process::Fate;
use countersign_kernel::registry::Grant;
use countersign_kernel::{Digest, Time};
use serde_json::{Map, Value, json};

/// An object with its members in this order.
pub(super) fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>())
}

pub(super) fn line(value: &Value) -> String {
    format!("{value}\n")
}

pub(super) fn us(time: Option<Time>) -> Value {
    time.map_or(Value::Null, |Time(us)| us.into())
}

/// The exact bytes, as the text that they are.
fn text(bytes: &[u8]) -> anyhow::Result<Value> {
    Ok(std::str::from_utf8(bytes).context("a stored part is not UTF-8")?.into())
}

pub fn record(placed: &Placed) -> anyhow::Result<String> {
    let record = &placed.row.record;
    let (payload, attestation, salt) = match &record.content {
        Some(content) => {
            (text(&content.payload)?, text(&content.attestation)?, Digest(content.salt).to_string().into())
        }
        None => (Value::Null, Value::Null, Value::Null),
    };
    Ok(line(&object([
        ("log_index", placed.log_index.into()),
        ("header", text(&record.header)?),
        ("payload", payload),
        ("attestation", attestation),
        ("salt", salt),
        ("proof", placed.inclusion.iter().map(Digest::to_string).collect::<Vec<_>>().into()),
    ])))
}

pub fn document(digest: &Digest, body: &[u8]) -> String {
    line(&object([("digest", digest.to_string().into()), ("body", String::from_utf8_lossy(body).into())]))
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

/// Who made the bundle, and how much is in it.
pub struct Made<'a> {
    pub by: &'a str,
    pub at: Time,
    pub instances: u64,
    pub records: u64,
}

pub fn manifest(scope: &Scope, sealed: &Sealed, made: &Made<'_>) -> String {
    let scope = match scope {
        Scope::Instance(instance_id) => json!({"instance_id": instance_id.to_string()}),
        Scope::Window(window) => object([("after_us", us(window.after)), ("before_us", us(window.before))]),
    };
    line(&object([
        ("v", 1.into()),
        ("kind", "countersign-evidence".into()),
        ("scope", scope),
        ("origin", sealed.origin.as_str().into()),
        ("tree_size", sealed.checkpoint.size.into()),
        ("registry_sequence", sealed.registry_sequence.into()),
        ("instances", made.instances.into()),
        ("records", made.records.into()),
        ("made_at_us", made.at.0.into()),
        ("made_by", made.by.into()),
        ("software", concat!("countersign ", env!("CARGO_PKG_VERSION")).into()),
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
    let mut assignments: Vec<&AssignmentRow> =
        view.gates.iter().flat_map(|(_, steps)| steps).map(|(_, assignment)| assignment).collect();
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
        ("assignments", assignments.into_iter().map(assignment).collect()),
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
