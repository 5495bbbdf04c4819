//! The workflow view: a process with its declaration, its history, and one gate item per approval step.

use super::approval_steps::{self, End};
use super::{Problem, assignments, time};
use countersign_client::wire;
use countersign_engine::port::{GateWithSteps, ProcessView, StoreError};
use countersign_engine::rows::{AssignmentRow, GateRow, StepRow, TransitionRow};
use countersign_engine::store_failure;
use countersign_kernel::machine::{ChainState, StepState};
use countersign_kernel::process::Fate;
use countersign_kernel::registry::Registry;
use countersign_kernel::{InstanceId, QuorumRule};
use countersign_ledger::document::parse_gate_spec;
use countersign_ledger::sha256;
use serde::de::DeserializeOwned;

pub fn to_wire(view: ProcessView, registry: &Registry) -> Result<wire::WorkflowView, Problem> {
    let replaced = replaced(&view, registry)?;
    let ProcessView { row, head: _, current_state, declaration, gate_spec, history, gates } = view;
    let declaration_ref = match &row.definition {
        Some((name, version)) => format!("{name}@{version}"),
        None => row.declaration_digest.to_string(),
    };
    Ok(wire::WorkflowView {
        instance_id: row.instance_id.to_string(),
        declaration_ref,
        declaration: document(row.instance_id, &declaration)?,
        gate_spec: document(row.instance_id, &gate_spec)?,
        replaced,
        subject_ref: row.subject_ref,
        initiator_ref: row.initiator_ref,
        started_at: time::format(row.started_at),
        current_state,
        transition_history: history.into_iter().map(firing).collect(),
        history_next: None,
        gates: gates_of(gates),
    })
}

/// Where the process runs under other approvers than its definition publishes.
fn replaced(view: &ProcessView, registry: &Registry) -> Result<Vec<String>, Problem> {
    let named = view.row.definition.as_ref();
    let Some(definition) = named.and_then(|(name, version)| registry.definition(name, Some(*version))) else {
        return Ok(vec![]);
    };
    let spec = parse_gate_spec(&view.gate_spec).map_err(|error| broken(view.row.instance_id, &error))?;
    Ok(definition.gate_spec.replaced_in(&spec))
}

fn broken(instance_id: InstanceId, error: &dyn std::fmt::Display) -> Problem {
    Problem::from(store_failure(&StoreError::Corrupt(format!("a document of process {instance_id}: {error}"))))
}

/// Stored documents have the form of the wire: `spec/record.md`, section 6.
fn document<T: DeserializeOwned>(instance_id: InstanceId, bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|error| broken(instance_id, &error))
}

fn firing(row: TransitionRow) -> wire::HistoryEntry {
    let gate = |chain: bool| row.gate_id.filter(|_| row.gate_is_chain == chain).map(|id| id.to_string());
    wire::HistoryEntry {
        transition_id: row.transition_id.to_string(),
        sequence_number: row.sequence_number,
        guard_satisfied: row.gate_id.map(|_| row.guard_satisfied),
        step_id: gate(false),
        chain_id: gate(true),
        fired_at: time::format(row.fired_at),
        event_id: row.event_id.to_string(),
        from_state: row.from_state,
        action: row.action,
        to_state: row.to_state,
        actor_ref: row.actor_ref,
    }
}

/// One item for every approval step.
pub fn gates_of(gates: Vec<GateWithSteps>) -> Vec<wire::Gate> {
    let of_gate = |(row, steps): GateWithSteps| {
        let chain = row.rule.map(|rule| chain(&row, rule, &steps));
        steps.into_iter().map(move |(step, assignment)| gate(&row, step, &assignment, chain.clone()))
    };
    gates.into_iter().flat_map(of_gate).collect()
}

fn gate(row: &GateRow, step: StepRow, assignment: &AssignmentRow, chain: Option<wire::ChainSummary>) -> wire::Gate {
    let trailing = is_trailing(row, &step);
    let End { decided_by, decided_at, decision_reason, withdrawn_by, withdrawn_at, withdrawal_reason } =
        End::of(step.state, step.ended);
    let on_behalf_of = on_behalf_of(decided_by.as_ref(), &step.approver_ref);
    wire::Gate {
        action: row.action.clone(),
        from_state: row.from_state.clone(),
        guard: row.guard.clone(),
        step_id: step.step_id.to_string(),
        state: approval_steps::state(step.state),
        approver_ref: step.approver_ref,
        submitter_ref: step.submitter_ref,
        scope: step.scope,
        submitted_at: time::format(step.submitted_at),
        decided_by,
        on_behalf_of,
        decided_at,
        decision_reason,
        withdrawn_by,
        withdrawn_at,
        withdrawal_reason,
        assignment: wire::GateAssignment {
            assignment_id: assignment.assignment_id.to_string(),
            status: assignments::status(assignment.status),
        },
        binding: if row.current { wire::Binding::Current } else { wire::Binding::Superseded },
        fate: match row.fate {
            Fate::Unspent => wire::GateFate::Unspent,
            Fate::Consumed => wire::GateFate::Consumed,
            Fate::Mooted => wire::GateFate::Mooted,
        },
        chain,
        trailing,
        request_digest: step.request.as_deref().map(digest),
        request: step.request.as_deref().map(json),
    }
}

/// Any other person who decides is the approver's substitute.
pub fn on_behalf_of(decided_by: Option<&String>, approver_ref: &str) -> Option<String> {
    decided_by.filter(|by| *by != approver_ref).map(|_| approver_ref.to_owned())
}

/// The digest that binds a decision to its request.
pub fn digest(text: &str) -> String {
    sha256(&[text.as_bytes()]).to_string()
}

pub fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or(serde_json::Value::Null)
}

fn is_trailing(row: &GateRow, step: &StepRow) -> bool {
    row.chain_terminal_at.zip(step.ended.as_ref()).is_some_and(|(settled_at, end)| end.at > settled_at)
}

fn chain(row: &GateRow, rule: QuorumRule, steps: &[(StepRow, AssignmentRow)]) -> wire::ChainSummary {
    let counted = |step: &StepRow| step.state == StepState::Approved && !is_trailing(row, step);
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    wire::ChainSummary {
        chain_id: row.gate_id.to_string(),
        state: match row.chain_state.unwrap_or(ChainState::Pending) {
            ChainState::Pending => wire::ApprovalState::Pending,
            ChainState::Approved => wire::ApprovalState::Approved,
            ChainState::Rejected => wire::ApprovalState::Rejected,
            ChainState::Withdrawn => wire::ApprovalState::Withdrawn,
        },
        m: rule.m(),
        rule: self::rule(rule),
        approved: count(steps.iter().filter(|(step, _)| counted(step)).count()),
        needed: rule.needed(count(steps.len())),
        approvers: count(steps.len()),
    }
}

pub fn rule(rule: QuorumRule) -> wire::QuorumRule {
    match rule {
        QuorumRule::AllOfN => wire::QuorumRule::AllOfN,
        QuorumRule::MOfN { .. } => wire::QuorumRule::MOfN,
        QuorumRule::OneOfN => wire::QuorumRule::OneOfN,
    }
}
