//! The rows of the stores against the records: whoever edits a table beside the ledger is found here. A process is told
//! again from its records alone, and must be what its rows say; the registry's rows must lead to the very payloads that
//! were recorded.

use super::finding::Finding;
use crate::payload::{self, Digests};
use crate::port::{ProcessView, RegistryDelta};
use crate::rows::{AssignmentRow, GateRow, RecordRow, StepEnd, StepRow, TransitionRow};
use countersign_kernel::machine::{AssignmentStatus, ChainState, StepState};
use countersign_kernel::process::{Fate, MOOT_WITHDRAWAL_REASON, QUORUM_WITHDRAWAL_REASON};
use countersign_kernel::registry::{Definition, EventBody};
use countersign_kernel::{AssignmentId, EventId, InstanceId, StepId, Time, TransitionId};
use countersign_ledger::document::{declaration_document, parse_rule, published_gates_document};
use countersign_ledger::{parse_hex_digest, sha256};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use uuid::Uuid;

fn of_registry(code: &'static str, event_id: Option<EventId>, detail: String) -> Finding {
    Finding { code, event_id, instance_id: Some(InstanceId::REGISTRY), detail }
}

/// A record's payload, member by member.
struct Said<'a> {
    row: &'a RecordRow,
    payload: Value,
}

impl Said<'_> {
    fn text(&self, name: &str) -> Option<&str> {
        self.payload.get(name).and_then(Value::as_str)
    }

    fn owned(&self, name: &str) -> String {
        self.text(name).unwrap_or_default().to_owned()
    }

    fn id(&self, name: &str) -> Option<Uuid> {
        self.text(name).and_then(|text| text.parse().ok())
    }

    /// The step or chain that it is about.
    fn gate(&self) -> Option<Uuid> {
        self.id("chain_id").or_else(|| self.id("step_id"))
    }

    fn ids(&self, name: &str) -> Vec<Uuid> {
        let texts = self.payload.get(name).and_then(Value::as_array).into_iter().flatten();
        texts.filter_map(|text| text.as_str()?.parse().ok()).collect()
    }
}

/// What the rows must be.
#[derive(Default)]
struct Told {
    subject_ref: String,
    initiator_ref: String,
    started: Option<(Option<String>, String, String, Time)>,
    state: String,
    transitions: Vec<TransitionRow>,
    gates: BTreeMap<Uuid, GateRow>,
    steps: BTreeMap<Uuid, StepRow>,
    assignments: BTreeMap<Uuid, AssignmentRow>,
    /// Rules of chains that were initiated and whose gate is about to be opened.
    rules: BTreeMap<Uuid, (String, Option<u32>)>,
    /// Chains that are recalled as moot, and when.
    moot: HashSet<(Uuid, Time)>,
}

impl Told {
    fn follow(&mut self, said: &Said<'_>) {
        let (at, by) = (said.row.recorded_at, said.row.actor_ref.as_str());
        match said.row.action_ref.as_str() {
            "workflow_started" | "run_started" => {
                self.subject_ref = said.owned("subject_ref");
                self.initiator_ref = by.to_owned();
                self.state = said.text("initial_state").unwrap_or("run").to_owned();
                let definition = said.text("definition").map(str::to_owned);
                self.started = Some((definition, said.owned("declaration_digest"), said.owned("gate_spec_digest"), at));
            }
            "chain_initiated" => {
                let m = said.payload.get("m").and_then(Value::as_u64).and_then(|m| u32::try_from(m).ok());
                self.rules.extend(said.id("chain_id").map(|id| (id, (said.owned("quorum_rule"), m))));
            }
            "gate_opened" => self.opened(said),
            "gate_decided" if said.id("chain_id").is_none() => {
                let state = ended_state(said.text("decision").unwrap_or_default());
                let reason = said.text("reason").map(str::to_owned);
                self.transfer(said);
                self.settle(said.id("step_id"), state, by, reason, at);
            }
            "step_approved" | "step_rejected" | "step_withdrawn" => {
                let state = match said.row.action_ref.as_str() {
                    "step_approved" => StepState::Approved,
                    "step_rejected" => StepState::Rejected,
                    _ => StepState::Withdrawn,
                };
                let reason = said.text("reason").map(str::to_owned);
                self.transfer(said);
                self.settle(said.id("step_id"), state, said.text("decided_by").unwrap_or_default(), reason, at);
            }
            "chain_resolved" => {
                let outcome = said.text("outcome").and_then(ChainState::parse).unwrap_or(ChainState::Pending);
                let moot = said.id("chain_id").is_some_and(|chain| self.moot.contains(&(chain, at)));
                let reason = if moot { MOOT_WITHDRAWAL_REASON } else { QUORUM_WITHDRAWAL_REASON };
                let initiator = self.initiator_ref.clone();
                self.end_chain(said, outcome, &initiator, reason, at);
            }
            "chain_withdrawn" => {
                let reason = said.owned("reason");
                self.end_chain(said, ChainState::Withdrawn, by, &reason, at);
            }
            "transition_fired" => self.fired(said),
            "moot_gate_recalled" => {
                if said.text("moot_kind") == Some("pending-withdrawn") && said.id("chain_id").is_none() {
                    let (by, reason) = (self.initiator_ref.clone(), Some(MOOT_WITHDRAWAL_REASON.to_owned()));
                    self.settle(said.id("step_id"), StepState::Withdrawn, &by, reason, at);
                }
                self.spend(said.gate(), Fate::Mooted);
            }
            _ => {}
        }
    }

    fn opened(&mut self, said: &Said<'_>) {
        let (at, Some(gate_id)) = (said.row.recorded_at, said.gate()) else { return };
        if let Some(old) = said.id("supersedes").and_then(|old| self.gates.get_mut(&old)) {
            old.current = false;
        }
        let rule = self.rules.remove(&gate_id).and_then(|(rule, m)| parse_rule(&rule, m));
        let (action, scope) = (said.owned("action"), said.owned("scope"));
        self.gates.insert(
            gate_id,
            GateRow {
                gate_id,
                instance_id: said.row.instance_id,
                from_state: said.owned("from_state"),
                action: action.clone(),
                guard: said.owned("guard"),
                scope: scope.clone(),
                opened_at: at,
                opened_by: said.row.actor_ref.clone(),
                chain_state: rule.map(|_| ChainState::Pending),
                rule,
                chain_terminal_at: None,
                fate: Fate::Unspent,
                current: true,
            },
        );
        let one = [said.payload.clone()];
        let steps = said.payload.get("steps").and_then(Value::as_array).map_or(&one[..], Vec::as_slice);
        for (slot, step) in (0..).zip(steps) {
            let text = |name: &str| step.get(name).and_then(Value::as_str).unwrap_or_default();
            let (Ok(step_id), Ok(assignment_id)) = (text("step_id").parse(), text("assignment_id").parse()) else {
                continue;
            };
            let approver_ref = text("approver_ref").to_owned();
            self.assignments.insert(
                assignment_id,
                AssignmentRow {
                    assignment_id: AssignmentId(assignment_id),
                    task_ref: StepId(step_id),
                    assignee_ref: approver_ref.clone(),
                    assigned_at: at,
                    status: AssignmentStatus::Active,
                    ended_at: None,
                    taken_over: None,
                },
            );
            self.steps.insert(
                step_id,
                StepRow {
                    step_id: StepId(step_id),
                    gate_id,
                    instance_id: said.row.instance_id,
                    slot,
                    action: action.clone(),
                    subject_ref: format!("{}:{action}", self.subject_ref),
                    approver_ref,
                    submitter_ref: self.initiator_ref.clone(),
                    scope: scope.clone(),
                    submitted_at: at,
                    state: StepState::Pending,
                    ended: None,
                    request: said.payload.get("request_digest").and_then(Value::as_str).map(Into::into),
                },
            );
        }
    }

    /// A substitute decides: what lies in the approver's in-tray becomes theirs first.
    fn transfer(&mut self, said: &Said<'_>) {
        let (Some(step_id), Some(assignment_id)) = (said.id("step_id"), said.id("assignment_id")) else { return };
        let (at, task_ref) = (said.row.recorded_at, StepId(step_id));
        let active = |row: &&mut AssignmentRow| row.task_ref == task_ref && row.status == AssignmentStatus::Active;
        if let Some(row) = self.assignments.values_mut().find(active) {
            row.status = AssignmentStatus::Transferred;
            row.ended_at = Some(at);
        }
        let row = AssignmentRow {
            assignment_id: AssignmentId(assignment_id),
            task_ref,
            assignee_ref: said.row.actor_ref.clone(),
            assigned_at: at,
            status: AssignmentStatus::Active,
            ended_at: None,
            taken_over: None,
        };
        self.assignments.insert(assignment_id, row);
    }

    fn settle(&mut self, step_id: Option<Uuid>, state: StepState, by: &str, reason: Option<String>, at: Time) {
        let Some(step) = step_id.and_then(|id| self.steps.get_mut(&id)) else { return };
        step.state = state;
        step.ended = Some(StepEnd { by: by.to_owned(), at, reason });
        let step_id = step.step_id;
        self.recall(step_id, at);
    }

    /// Takes a step out of its approver's in-tray, where it is there.
    fn recall(&mut self, step_id: StepId, at: Time) {
        let active = |row: &&mut AssignmentRow| row.task_ref == step_id && row.status == AssignmentStatus::Active;
        if let Some(row) = self.assignments.values_mut().find(active) {
            row.status = AssignmentStatus::Recalled;
            row.ended_at = Some(at);
        }
    }

    fn end_chain(&mut self, said: &Said<'_>, outcome: ChainState, by: &str, reason: &str, at: Time) {
        if let Some(gate) = said.id("chain_id").and_then(|id| self.gates.get_mut(&id)) {
            gate.chain_state = Some(outcome);
            gate.chain_terminal_at = Some(at);
        }
        for step_id in said.ids("recalled_step_ids") {
            if outcome == ChainState::Withdrawn {
                self.settle(Some(step_id), StepState::Withdrawn, by, Some(reason.to_owned()), at);
            } else {
                self.recall(StepId(step_id), at);
            }
        }
    }

    fn fired(&mut self, said: &Said<'_>) {
        let gate_id = said.gate();
        self.state = said.owned("new_state");
        self.transitions.push(TransitionRow {
            instance_id: said.row.instance_id,
            sequence_number: said.payload.get("sequence_number").and_then(Value::as_u64).unwrap_or_default(),
            transition_id: TransitionId(said.id("transition_id").unwrap_or_default()),
            from_state: said.owned("from_state"),
            action: said.owned("action"),
            to_state: said.owned("new_state"),
            fired_at: said.row.recorded_at,
            actor_ref: said.row.actor_ref.clone(),
            guard_satisfied: gate_id.is_some(),
            gate_id,
            gate_is_chain: said.id("chain_id").is_some(),
            event_id: said.row.event_id,
        });
        self.spend(gate_id, Fate::Consumed);
    }

    fn spend(&mut self, gate_id: Option<Uuid>, fate: Fate) {
        if let Some(gate) = gate_id.and_then(|id| self.gates.get_mut(&id)) {
            gate.fate = fate;
        }
    }
}

fn ended_state(decision: &str) -> StepState {
    StepState::Pending.after(decision).unwrap_or(StepState::Pending)
}

/// The rows of one process against its records, in order. Where content was purged, what depends on it cannot be told.
pub fn process(view: &ProcessView, records: &[RecordRow]) -> Vec<Finding> {
    let mut told = Told::default();
    let mut said = Vec::with_capacity(records.len());
    for row in records {
        let Some(payload) = row.record.payload() else { return vec![] };
        // A payload that cannot be read was found before.
        let Ok(payload) = serde_json::from_slice(payload) else { return vec![] };
        said.push(Said { row, payload });
    }
    let moot = said.iter().filter(|said| said.row.action_ref == "moot_gate_recalled");
    told.moot = moot.filter_map(|said| Some((said.id("chain_id")?, said.row.recorded_at))).collect();
    said.iter().for_each(|said| told.follow(said));
    let mut findings = vec![];
    let id = view.row.instance_id;
    let mut require = |holds: bool, code, detail: String| {
        if !holds {
            findings.push(Finding { code, event_id: None, instance_id: Some(id), detail: format!("{id}: {detail}") });
        }
    };
    let definition = view.row.definition.as_ref().map(|(name, version)| format!("{name}@{version}"));
    let row = (
        definition,
        view.row.declaration_digest.to_string(),
        view.row.gate_spec_digest.to_string(),
        view.row.started_at,
    );
    let same = told.started.as_ref() == Some(&row)
        && (told.subject_ref.as_str(), told.initiator_ref.as_str())
            == (view.row.subject_ref.as_str(), view.row.initiator_ref.as_str());
    require(same, "row-missing", "the process's row is not what was recorded at its start".to_owned());
    for (what, digest, body) in [
        ("declaration", &view.row.declaration_digest, &view.declaration),
        ("gate_spec", &view.row.gate_spec_digest, &view.gate_spec),
    ] {
        require(sha256(&[body]) == *digest, "document-mismatch", format!("its {what} is another document"));
    }
    let last = records.last().map(|row| row.recorded_at);
    require(last == Some(view.head.last_time), "row-missing", "its last record has another time".to_owned());
    let state = format!("the row says `{}`, the records lead to `{}`", view.current_state, told.state);
    require(view.current_state == told.state, "replay-mismatch", state);
    let history = format!("{} firings in the stores, {} recorded", view.history.len(), told.transitions.len());
    require(view.history == told.transitions, "row-missing", format!("the history is not as recorded: {history}"));

    let mut gates: BTreeMap<Uuid, GateRow> = BTreeMap::new();
    let (mut steps, mut assignments) = (BTreeMap::new(), BTreeMap::new());
    for (gate, parts) in &view.gates {
        gates.insert(gate.gate_id, gate.clone());
        for (step, assignment) in parts {
            // Records tell of a request, however large, by its digest.
            let request = step.request.as_ref().map(|text| sha256(&[text.as_bytes()]).to_string().into());
            steps.insert(step.step_id.0, StepRow { request, ..step.clone() });
            assignments.extend(assignment.chain().map(|row| (row.assignment_id.0, row)));
        }
    }
    for (what, differing) in [
        ("gate", differing(&gates, &told.gates)),
        ("approval step", differing(&steps, &told.steps)),
        ("assignment", differing(&assignments, &told.assignments)),
    ] {
        for (key, code) in differing {
            require(false, code, format!("{what} {key} is not as it was recorded"));
        }
    }
    findings
}

/// Keys whose rows are not those that were told, each with its code.
fn differing<T: PartialEq>(rows: &BTreeMap<Uuid, T>, told: &BTreeMap<Uuid, T>) -> Vec<(Uuid, &'static str)> {
    let changed = rows.iter().filter(|(key, row)| told.get(key) != Some(row));
    let changed = changed.map(|(key, _)| (*key, if told.contains_key(key) { "row-missing" } else { "record-missing" }));
    let gone = told.keys().filter(|key| !rows.contains_key(key)).map(|key| (*key, "row-missing"));
    changed.chain(gone).collect()
}

/// The registry's rows against its records: each row, written out again, is the payload that was recorded.
pub fn registry(stored: &RegistryDelta, records: &[RecordRow]) -> Vec<Finding> {
    let (mut events, mut findings) = (BTreeMap::new(), vec![]);
    for (sequence, event) in &stored.events {
        if events.insert(*sequence, event).is_some() {
            let detail = format!("two rows of the registry name record {sequence}");
            findings.push(of_registry("record-missing", None, detail));
        }
    }
    for row in records {
        let event = events.remove(&row.sequence);
        if matches!(row.action_ref.as_str(), "attempt_refused" | "evidence_exported" | "hold_placed" | "hold_released")
        {
            continue;
        }
        let Some(event) = event else {
            let detail = format!("registry record {} ({}) has no row", row.sequence, row.action_ref);
            findings.push(of_registry("row-missing", Some(row.event_id), detail));
            continue;
        };
        let digests = match &event.body {
            EventBody::DefinitionPublished(definition) => digests_of(definition, row.sequence, stored),
            _ => None,
        };
        let same = payload::registry_action(&event.body) == row.action_ref
            && event.actor_ref == row.actor_ref
            && event.at == row.recorded_at
            && row.record.payload().is_some_and(|said| said == payload::registry_payload(event, digests.as_ref()))
            && source_is_whole(&event.body);
        if !same {
            let detail = format!("the row of registry record {} ({}) says otherwise", row.sequence, row.action_ref);
            findings.push(of_registry("row-missing", Some(row.event_id), detail));
        }
    }
    for sequence in events.keys() {
        findings.push(of_registry(
            "record-missing",
            None,
            format!("a row of the registry names record {sequence}, which is none"),
        ));
    }
    findings
}

fn digests_of(definition: &Definition, sequence: u64, stored: &RegistryDelta) -> Option<Digests> {
    Some(Digests {
        declaration: declaration_document(&definition.declaration).ok()?.digest,
        gate_spec: published_gates_document(&definition.gate_spec).ok()?.digest,
        document: stored.workflows.iter().find(|(at, _)| *at == sequence).map(|(_, body)| sha256(&[body])),
        publish: payload::publish_text(definition.publish.as_ref()).ok()?,
    })
}

/// A published document is the one whose digest was recorded.
fn source_is_whole(body: &EventBody) -> bool {
    match body {
        EventBody::DefinitionPublished(definition) => {
            let source = definition.source.as_deref().unwrap_or_default();
            let digest = sha256(&[source.as_bytes()]);
            parse_hex_digest(&definition.digest.to_string()) == Some(digest)
        }
        _ => true,
    }
}
