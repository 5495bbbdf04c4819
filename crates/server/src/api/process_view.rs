//! The workflow view: a process with its declaration, its history, and one gate item per approval step.

use super::approval_steps::{self, End};
use super::{Problem, assignments, time};
use countersign_client::wire;
use countersign_engine::port::{ProcessView, StoreError};
use countersign_engine::rows::{AssignmentRow, GateRow, StepRow, TransitionRow};
use countersign_engine::store_failure;
use countersign_kernel::machine::ChainState;
use countersign_kernel::process::Fate;
use countersign_kernel::{InstanceId, QuorumRule};
use serde::de::DeserializeOwned;

pub fn to_wire(view: ProcessView) -> Result<wire::WorkflowView, Problem> {
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
        subject_ref: row.subject_ref,
        initiator_ref: row.initiator_ref,
        started_at: time::format(row.started_at),
        current_state,
        transition_history: history.into_iter().map(firing).collect(),
        gates: gates
            .into_iter()
            .flat_map(|(row, steps)| steps.into_iter().map(move |(step, assignment)| gate(&row, step, &assignment)))
            .collect(),
    })
}

/// Stored documents have the form of the wire: `spec/record.md`, section 6.
fn document<T: DeserializeOwned>(instance_id: InstanceId, bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|error| {
        Problem::from(store_failure(&StoreError::Corrupt(format!("a document of process {instance_id}: {error}"))))
    })
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

pub fn gate(row: &GateRow, step: StepRow, assignment: &AssignmentRow) -> wire::Gate {
    let End { decided_by, decided_at, decision_reason, withdrawn_by, withdrawn_at, withdrawal_reason } =
        End::of(step.state, step.ended);
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
        chain: row.rule.map(|rule| chain(row, rule)),
    }
}

fn chain(row: &GateRow, rule: QuorumRule) -> wire::ChainSummary {
    wire::ChainSummary {
        chain_id: row.gate_id.to_string(),
        state: match row.chain_state.unwrap_or(ChainState::Pending) {
            ChainState::Pending => wire::ApprovalState::Pending,
            ChainState::Approved => wire::ApprovalState::Approved,
            ChainState::Rejected => wire::ApprovalState::Rejected,
            ChainState::Withdrawn => wire::ApprovalState::Withdrawn,
        },
        rule: match rule {
            QuorumRule::AllOfN => wire::QuorumRule::AllOfN,
            QuorumRule::MOfN { .. } => wire::QuorumRule::MOfN,
            QuorumRule::OneOfN => wire::QuorumRule::OneOfN,
        },
        m: rule.m(),
    }
}
