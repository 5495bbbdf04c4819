//! The rows of a process against the picture that its records give.

use super::Notes;
use super::chain::Entry;
use super::fold::{Gate, Picture, Step};
use countersign_engine::port::ProcessView;
use countersign_engine::rows::{AssignmentRow, GateRow, StepRow, TransitionRow};
use countersign_kernel::StepId;
use countersign_kernel::machine::AssignmentStatus;
use countersign_kernel::process::Fate;
use std::collections::HashMap;

pub fn compare(
    view: &ProcessView,
    picture: &Picture,
    entries: &[Entry],
    assignments: &HashMap<StepId, Vec<AssignmentRow>>,
    notes: &mut Notes<'_>,
) {
    notes.require(view.current_state == picture.state, || {
        format!("is in {}, but its history ends in {}", view.current_state, picture.state)
    });
    compare_history(&view.history, picture, entries, notes);
    notes.require(view.gates.len() == picture.gates.len(), || {
        format!("has {} gates, and {} were recorded", view.gates.len(), picture.gates.len())
    });
    for (row, steps) in &view.gates {
        match picture.gates.get(&row.gate_id.to_string()) {
            None => notes.note(format!("gate {} was never recorded", row.gate_id)),
            Some(gate) => {
                compare_gate(row, gate, notes);
                compare_steps(view, row, steps, gate, assignments, notes);
            }
        }
    }
}

/// Every entry of the history is one `transition_fired` record, and the other way round.
fn compare_history(history: &[TransitionRow], picture: &Picture, entries: &[Entry], notes: &mut Notes<'_>) {
    notes.require(history.len() == picture.fired.len(), || {
        format!("{} transitions fired, {} are recorded", history.len(), picture.fired.len())
    });
    for (number, (row, fired)) in (1..).zip(history.iter().zip(&picture.fired)) {
        let entry = entries.iter().find(|entry| entry.event_id == row.event_id);
        let agrees = row.sequence_number == number
            && row.transition_id.to_string() == fired.transition_id
            && row.event_id.to_string() == fired.event_id
            && (&row.from_state, &row.action, &row.to_state) == (&fired.from_state, &fired.action, &fired.to_state)
            && row.guard_satisfied == fired.gate_id.is_some()
            && row.gate_id.map(|id| id.to_string()) == fired.gate_id
            && entry.is_some_and(|entry| {
                entry.at == row.fired_at.0
                    && entry.actor_ref == row.actor_ref
                    && entry.text("chain_id").is_some() == row.gate_is_chain
            });
        notes.require(agrees, || format!("transition {} is not as it was recorded", row.sequence_number));
    }
}

fn compare_gate(row: &GateRow, gate: &Gate, notes: &mut Notes<'_>) {
    let fate = match row.fate {
        Fate::Unspent => "unspent",
        Fate::Consumed => "consumed",
        Fate::Mooted => "mooted",
    };
    let agrees = (&row.from_state, &row.action, &row.guard) == (&gate.from_state, &gate.action, &gate.guard)
        && row.chain_state.map(|state| state.as_str()) == gate.chain.as_deref()
        && row.rule.is_some() == gate.chain.is_some()
        && row.chain_terminal_at.is_some() == gate.chain.as_deref().is_some_and(|state| state != "Pending")
        && fate == gate.fate
        && row.current == gate.current
        && (row.opened_by.as_str(), row.opened_at.0) == (gate.opened_by.as_str(), gate.opened_at);
    notes.require(agrees, || {
        format!("gate {} is {row:?}, but was recorded as {:?} {}", row.gate_id, gate.chain, gate.fate)
    });
}

fn compare_steps(
    view: &ProcessView,
    row: &GateRow,
    steps: &[(StepRow, AssignmentRow)],
    gate: &Gate,
    assignments: &HashMap<StepId, Vec<AssignmentRow>>,
    notes: &mut Notes<'_>,
) {
    let left = row.from_state != view.current_state;
    notes.require(steps.len() == gate.steps.len(), || format!("gate {} lacks steps", row.gate_id));
    for (slot, ((row, _), step)) in (0..).zip(steps.iter().zip(&gate.steps)) {
        let ended = row.ended.as_ref().map(|end| (end.by.clone(), end.at.0));
        let agrees = row.step_id.to_string() == step.step_id
            && row.slot == slot
            && row.approver_ref == step.approver_ref
            && row.submitter_ref == view.row.initiator_ref
            && row.subject_ref == format!("{}:{}", view.row.subject_ref, gate.action)
            && row.submitted_at.0 == gate.opened_at
            && row.state.as_str() == step.state
            && ended == step.ended;
        notes.require(agrees, || format!("step {} is {row:?}, but was recorded as {}", row.step_id, step.state));
        notes.require(!left || step.state != "Pending", || {
            format!("step {} is pending in a state that was left", row.step_id)
        });
        let none = Vec::new();
        compare_in_tray(row, step, gate, assignments.get(&row.step_id).unwrap_or(&none), left, notes);
    }
}

/// One Active assignment for a step that waits, none for any other.
fn compare_in_tray(
    row: &StepRow,
    step: &Step,
    gate: &Gate,
    assignments: &[AssignmentRow],
    left: bool,
    notes: &mut Notes<'_>,
) {
    let active = assignments.iter().filter(|row| row.status == AssignmentStatus::Active).count();
    let waits = step.state == "Pending" && gate.status() == "Pending" && gate.fate == "unspent" && !left;
    notes.require(waits == step.in_tray, || format!("step {} should not be in an in-tray, or should", row.step_id));
    notes.require(active == usize::from(waits), || format!("step {} has {active} active assignments", row.step_id));
    let theirs = assignments.iter().all(|assignment| {
        assignment.assignee_ref == step.approver_ref
            && (assignment.ended_at.is_some() == (assignment.status != AssignmentStatus::Active))
    });
    let recorded = assignments.iter().any(|assignment| assignment.assignment_id.to_string() == step.assignment_id);
    notes.require(theirs && recorded, || format!("step {} is assigned otherwise than recorded", row.step_id));
}
