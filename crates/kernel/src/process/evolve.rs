//! Applying events. Total and mechanical: everything worth deciding was decided before.

use super::{Decided, Decision, Event, EventBody, Fate, Gate, GateKind, GateRef, Process, Settled, Step};
use crate::id::{ChainId, StepId};
use crate::machine::ChainState;
use crate::retention;
use std::collections::BTreeMap;

impl Process {
    /// The process that a `workflow_started` event begins; `None` for any other event.
    pub fn begin(event: &Event) -> Option<Process> {
        let EventBody::WorkflowStarted { instance_id, definition, subject_ref, declaration, gate_spec, .. } =
            &event.body
        else {
            return None;
        };
        Some(Process {
            instance_id: *instance_id,
            definition: definition.clone(),
            subject_ref: subject_ref.clone(),
            initiator_ref: event.actor_ref.clone(),
            current_state: declaration.initial_state.clone(),
            declaration: declaration.clone(),
            gate_spec: gate_spec.clone(),
            started_at: event.at,
            next_sequence_number: 1,
            gates: vec![],
            holds: BTreeMap::new(),
        })
    }

    pub fn evolve(mut self, event: &Event) -> Process {
        self.apply(event);
        self
    }

    pub fn apply(&mut self, event: &Event) {
        match &event.body {
            EventBody::WorkflowStarted { .. }
            | EventBody::StepWithdrawnWithChain { .. }
            | EventBody::EvidenceExported
            | EventBody::AttemptRefused { .. } => {}
            EventBody::HoldPlaced { hold_id, record_ref, .. } => {
                self.holds.insert(*hold_id, *record_ref);
            }
            EventBody::HoldReleased { hold_id, .. } => {
                self.holds.remove(hold_id);
            }
            // What the purged record said must not live on in memory.
            EventBody::RecordPurged { record } => {
                let steps = self.gates.iter_mut().flat_map(|gate| &mut gate.steps);
                steps.filter_map(|step| step.decided.as_mut()).for_each(|decided| decided.reason = None);
                if matches!(record.action_ref.as_str(), retention::START | retention::RUN_START) {
                    self.subject_ref = retention::purged_text(record.event_id);
                }
            }
            EventBody::ChainInitiated { gate, supersedes } | EventBody::GateOpened { gate, supersedes, .. } => {
                self.bind(gate, *supersedes);
            }
            EventBody::GateDecided { decision, settled: Some(settled), reason, .. } => {
                self.settle(settled, *decision);
                self.note_decided(event, settled, *decision, reason.as_deref());
            }
            EventBody::GateDecided { settled: None, .. } => {}
            EventBody::StepDecided { decision, settled, reason, .. } => {
                self.settle(settled, *decision);
                self.note_decided(event, settled, *decision, reason.as_deref());
            }
            EventBody::ChainResolved { chain_id, outcome, recalled, .. } => {
                self.end_chain(*chain_id, *outcome, recalled)
            }
            EventBody::ChainWithdrawn { chain_id, recalled, .. } => {
                self.end_chain(*chain_id, ChainState::Withdrawn, recalled)
            }
            EventBody::TransitionFired { to_state, gate, .. } => {
                self.current_state.clone_from(to_state);
                self.next_sequence_number += 1;
                self.spend(*gate, Fate::Consumed);
            }
            EventBody::MootGateRecalled { gate, settled, .. } => {
                if let Some(settled) = settled {
                    self.settle(settled, Decision::Withdraw);
                }
                self.spend(Some(*gate), Fate::Mooted);
            }
        }
        self.gates.retain(|gate| gate.current || gate.pending_steps().next().is_some());
    }

    fn bind(&mut self, gate: &Gate, supersedes: Option<GateRef>) {
        if self.gates.iter().any(|existing| existing.gate_ref() == gate.gate_ref()) {
            return;
        }
        if let Some(old) = self.gates.iter_mut().find(|existing| Some(existing.gate_ref()) == supersedes) {
            old.current = false;
        }
        self.gates.push(gate.clone());
    }

    fn settle(&mut self, settled: &Settled, decision: Decision) {
        if let Some(step) = self.step_mut(settled.step_id) {
            step.state = step.state.after(decision.as_str()).unwrap_or(step.state);
            step.assignment = None;
        }
    }

    fn note_decided(&mut self, event: &Event, settled: &Settled, decision: Decision, reason: Option<&str>) {
        if decision != Decision::Withdraw
            && let Some(step) = self.step_mut(settled.step_id)
        {
            let (by, at) = (event.actor_ref.clone(), event.at);
            step.decided = Some(Decided { by, at, reason: reason.map(str::to_owned) });
        }
    }

    /// Approved and rejected chains leave their undecided steps Pending, out of every in-tray; a
    /// withdrawn chain takes its steps with it.
    fn end_chain(&mut self, chain: ChainId, outcome: ChainState, recalled: &[Settled]) {
        for gate in &mut self.gates {
            match &mut gate.kind {
                GateKind::Quorum { chain_id, state, .. } if *chain_id == chain => *state = outcome,
                GateKind::Quorum { .. } | GateKind::Single => {}
            }
        }
        for settled in recalled {
            if outcome == ChainState::Withdrawn {
                self.settle(settled, Decision::Withdraw);
            } else if let Some(step) = self.step_mut(settled.step_id) {
                step.assignment = None;
            }
        }
    }

    fn spend(&mut self, gate_ref: Option<GateRef>, fate: Fate) {
        if let Some(gate) = self.gates.iter_mut().find(|gate| Some(gate.gate_ref()) == gate_ref) {
            gate.fate = fate;
        }
    }

    fn step_mut(&mut self, step_id: StepId) -> Option<&mut Step> {
        self.gates.iter_mut().flat_map(|gate| gate.steps.iter_mut()).find(|step| step.step_id == step_id)
    }
}
