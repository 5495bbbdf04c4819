//! The expected content of a store after its commits: the rows as plain collections, and the queries as plain filters
//! over them.

use countersign_engine::port::{
    AssignmentQuery, HoldQuery, ProcessQuery, ProcessView, Range, RecordQuery, StepQuery, Unit,
};
use countersign_engine::rows::{AssignmentRow, GateRow, HoldRow, ProcessRow, RecordRow, StepRow, TransitionRow, Write};
use countersign_kernel::machine::{AssignmentStatus, StepState};
use countersign_kernel::{Digest, InstanceId, Time};
use std::collections::BTreeMap;
use uuid::Uuid;

#[derive(Clone, Default)]
pub struct Model {
    pub instances: BTreeMap<InstanceId, Unit>,
    pub processes: BTreeMap<Uuid, ProcessRow>,
    pub gates: BTreeMap<Uuid, GateRow>,
    pub steps: BTreeMap<Uuid, StepRow>,
    pub assignments: BTreeMap<Uuid, AssignmentRow>,
    pub transitions: BTreeMap<(InstanceId, u64), TransitionRow>,
    pub records: BTreeMap<Uuid, RecordRow>,
    pub holds: BTreeMap<Uuid, HoldRow>,
    documents: BTreeMap<Digest, Vec<u8>>,
}

impl Model {
    pub fn write(&mut self, unit: &Unit) {
        let last = Unit { writes: vec![], records: vec![], idempotency: vec![], ..unit.clone() };
        self.instances.insert(unit.instance_id, last);
        self.records.extend(unit.records.iter().map(|row| (row.event_id.0, row.clone())));
        unit.writes.iter().for_each(|write| self.apply(write));
    }

    fn apply(&mut self, write: &Write) {
        match write {
            Write::Document { digest, bytes } => drop(self.documents.insert(*digest, bytes.clone())),
            Write::Process(row) => drop(self.processes.insert(row.instance_id.0, row.clone())),
            Write::Gate(row) => drop(self.gates.insert(row.gate_id, row.clone())),
            Write::Step(row) => drop(self.steps.insert(row.step_id.0, row.clone())),
            Write::Assignment(row) => drop(self.assignments.insert(row.assignment_id.0, row.clone())),
            Write::Transition(row) => {
                drop(self.transitions.insert((row.instance_id, row.sequence_number), row.clone()));
            }
            Write::SupersedeGate { gate_id } => self.gate(gate_id, |row| row.current = false),
            Write::SpendGate { gate_id, fate } => self.gate(gate_id, |row| row.fate = *fate),
            Write::EndChain { gate_id, state, at } => self.gate(gate_id, |row| {
                row.chain_state = Some(*state);
                row.chain_terminal_at = Some(*at);
            }),
            Write::EndStep { step_id, state, end } => {
                if let Some(row) = self.steps.get_mut(&step_id.0) {
                    row.state = *state;
                    row.ended = Some(end.clone());
                }
            }
            Write::EndAssignment { assignment_id, status, at, .. } => {
                if let Some(row) = self.assignments.get_mut(&assignment_id.0) {
                    row.status = *status;
                    row.ended_at = Some(*at);
                }
            }
            Write::Hold(row) => drop(self.holds.insert(row.hold_id.0, row.clone())),
            Write::ReleaseHold { hold_id, release } => {
                self.hold(&hold_id.0, |row| row.released = Some(release.clone()));
            }
            Write::PurgeRecord { event_id } => {
                if let Some(row) = self.records.get_mut(&event_id.0) {
                    row.record.content = None;
                    row.purgeable_from = None;
                }
            }
            Write::RedactSubject { instance_id, text } => {
                if let Some(row) = self.processes.get_mut(&instance_id.0) {
                    row.subject_ref.clone_from(text);
                }
            }
            Write::RedactStepSubject { step_id, text } => {
                if let Some(row) = self.steps.get_mut(&step_id.0) {
                    row.subject_ref.clone_from(text);
                }
            }
            Write::RedactStepRequest { step_id, text } => {
                if let Some(row) = self.steps.get_mut(&step_id.0) {
                    row.request = Some(serde_json::Value::from(text.as_str()).to_string().into());
                }
            }
            Write::RedactStepReason { step_id, text } => {
                if let Some(end) = self.steps.get_mut(&step_id.0).and_then(|row| row.ended.as_mut()) {
                    end.reason = Some(text.clone());
                }
            }
            Write::RedactHold { hold_id, text } => self.hold(&hold_id.0, |row| {
                row.reason.clone_from(text);
                row.case_ref = None;
            }),
            Write::RedactRelease { hold_id, text } => self.hold(&hold_id.0, |row| {
                if let Some(release) = &mut row.released {
                    release.reason.clone_from(text);
                }
            }),
            // Runs have a suite of their own, in the store.
            Write::Run(_)
            | Write::NewRunHead(_)
            | Write::RunHead(_)
            | Write::RunEvent(_)
            | Write::Outbox(_)
            | Write::Delivery { .. }
            | Write::Governance(_)
            | Write::TakeRunEvent { .. }
            | Write::RedactRunInput { .. }
            | Write::RedactRunKeys { .. }
            | Write::RedactRunHeadKeys { .. }
            | Write::RedactRunStep { .. }
            | Write::RedactRunHead { .. }
            | Write::RedactRunEvent { .. }
            | Write::RedactOutbox { .. } => {}
            // Keys are recalled, not read; the suite asks for them apart.
            Write::ForgetKeys { .. } | Write::PassKey { .. } => {}
            // The registry is read as events; the suite compares those.
            Write::Actor { .. }
            | Write::Credential { .. }
            | Write::Key { .. }
            | Write::RevokeCredential { .. }
            | Write::RevokeKey { .. }
            | Write::Grant { .. }
            | Write::Definition { .. }
            | Write::Delegation { .. }
            | Write::RevokeDelegation { .. }
            | Write::DefinitionMark { .. }
            | Write::WorkerClassMark { .. }
            | Write::Configuration { .. }
            | Write::RevokeGrant { .. }
            | Write::Correction(_)
            | Write::StepError { .. }
            | Write::AssignmentDue { .. }
            | Write::Visits { .. }
            | Write::RedactCorrection { .. } => {}
        }
    }

    fn hold(&mut self, hold_id: &Uuid, change: impl FnOnce(&mut HoldRow)) {
        if let Some(row) = self.holds.get_mut(hold_id) {
            change(row);
        }
    }

    fn gate(&mut self, gate_id: &Uuid, change: impl FnOnce(&mut GateRow)) {
        if let Some(row) = self.gates.get_mut(gate_id) {
            change(row);
        }
    }

    pub fn view(&self, row: &ProcessRow) -> ProcessView {
        let instance_id = row.instance_id;
        let document = |digest: &Digest| self.documents.get(digest).cloned().unwrap_or_default().into();
        let steps = |gate_id: Uuid| {
            let mut steps: Vec<_> = self.steps.values().filter(|step| step.gate_id == gate_id).cloned().collect();
            steps.sort_by_key(|step| step.slot);
            steps.into_iter().filter_map(|step| Some((step.clone(), self.assignment_of(&step)?))).collect()
        };
        ProcessView {
            row: row.clone(),
            head: self.instances[&instance_id].head.clone(),
            current_state: self.instances.get(&instance_id).map(|unit| unit.state.clone()).unwrap_or_default(),
            declaration: document(&row.declaration_digest),
            gate_spec: document(&row.gate_spec_digest),
            history: self
                .transitions
                .range((instance_id, 0)..=(instance_id, u64::MAX))
                .map(|(_, t)| t.clone())
                .collect(),
            gates: self
                .gates
                .values()
                .filter(|gate| gate.instance_id == instance_id)
                .map(|gate| (gate.clone(), steps(gate.gate_id)))
                .collect(),
        }
    }

    fn assignment_of(&self, step: &StepRow) -> Option<AssignmentRow> {
        let mut all = self.assignments.values().filter(|assignment| assignment.task_ref == step.step_id);
        let newest = all.clone().next_back()?.clone();
        let before =
            all.rfind(|one| one.status == AssignmentStatus::Transferred && one.assignment_id != newest.assignment_id);
        Some(AssignmentRow { taken_over: before.cloned().map(Box::new), ..newest })
    }

    pub fn find_processes(&self, query: &ProcessQuery) -> Vec<(Uuid, String)> {
        let fits = |row: &&ProcessRow| {
            is(&query.instance_id, &row.instance_id)
                && is(&query.subject_ref, &row.subject_ref)
                && is(&query.initiator_ref, &row.initiator_ref)
                && within(&query.started, Some(row.started_at))
                && query
                    .definitions
                    .as_ref()
                    .is_none_or(|names| row.definition.as_ref().is_some_and(|(name, _)| names.contains(name)))
        };
        let found = self.processes.values().filter(fits);
        found.map(|row| (row.instance_id.0, format!("{:?}", self.view(row)))).collect()
    }

    pub fn find_steps(&self, query: &StepQuery) -> Vec<(Uuid, String)> {
        let fits = |row: &&StepRow| {
            let ended = |withdrawn: bool| {
                let so = (row.state == StepState::Withdrawn) == withdrawn;
                row.ended.as_ref().filter(|_| so).map(|end| end.at)
            };
            is(&query.step_id, &row.step_id)
                && is(&query.instance_id, &row.instance_id)
                && is(&query.subject_ref, &row.subject_ref)
                && is(&query.approver_ref, &row.approver_ref)
                && is(&query.submitter_ref, &row.submitter_ref)
                && is(&query.scope, &row.scope)
                && is(&query.state, &row.state.as_str().to_owned())
                && within(&query.submitted, Some(row.submitted_at))
                && within(&query.decided, ended(false))
                && within(&query.withdrawn, ended(true))
        };
        self.steps.values().filter(fits).map(|row| (row.step_id.0, format!("{row:?}"))).collect()
    }

    pub fn find_assignments(&self, query: &AssignmentQuery) -> Vec<(Uuid, String)> {
        let fits = |row: &&AssignmentRow| {
            is(&query.assignment_id, &row.assignment_id)
                && is(&query.task_ref, &row.task_ref)
                && is(&query.assignee_ref, &row.assignee_ref)
                && is(&query.status, &row.status.as_str().to_owned())
        };
        let with_step = |row: &AssignmentRow| format!("{:?}", (row, self.steps.get(&row.task_ref.0)));
        self.assignments.values().filter(fits).map(|row| (row.assignment_id.0, with_step(row))).collect()
    }

    pub fn find_holds(&self, query: &HoldQuery) -> Vec<(Uuid, String)> {
        let fits = |row: &&HoldRow| {
            is(&query.hold_id, &row.hold_id)
                && is(&query.record_ref, &row.record_ref)
                && query.case_ref.as_ref().is_none_or(|case_ref| row.case_ref.as_ref() == Some(case_ref))
                && is(&query.released, &row.released.is_some())
        };
        self.holds.values().filter(fits).map(|row| (row.hold_id.0, format!("{row:?}"))).collect()
    }

    pub fn find_records(&self, query: &RecordQuery) -> Vec<(Uuid, String)> {
        let fits = |row: &&RecordRow| {
            is(&query.event_id, &row.event_id)
                && is(&query.instance_id, &row.instance_id)
                && is(&query.action_ref, &row.action_ref)
                && is(&query.actor_ref, &row.actor_ref)
                && within(&query.recorded, Some(row.recorded_at))
        };
        self.records.values().filter(fits).map(|row| (row.event_id.0, format!("{row:?}"))).collect()
    }
}

fn is<T: PartialEq>(asked: &Option<T>, value: &T) -> bool {
    asked.as_ref().is_none_or(|asked| asked == value)
}

/// Both ends belong to the range; what has no time is in no range but the open one.
fn within(range: &Range, time: Option<Time>) -> bool {
    if *range == Range::default() {
        return true;
    }
    time.is_some_and(|time| {
        range.after.is_none_or(|after| after <= time) && range.before.is_none_or(|before| time <= before)
    })
}
