//! What the records say happened: a process followed record by record, with rules of its own. Every record
//! must be possible where it stands; the picture at the end is what the rows must show.

use super::Notes;
use super::chain::Entry;
use super::documents::{Declaration, GateSpec, Transition};
use countersign_engine::port::ProcessView;
use countersign_ledger::sha256;
use serde_json::Value;
use std::collections::BTreeMap;

/// A process as its records tell it.
pub struct Picture {
    pub state: String,
    /// The firings, in order.
    pub fired: Vec<Fired>,
    /// By the id of the step or chain, in the order of opening.
    pub gates: BTreeMap<String, Gate>,
}

pub struct Fired {
    pub transition_id: String,
    pub event_id: String,
    pub from_state: String,
    pub action: String,
    pub to_state: String,
    pub gate_id: Option<String>,
}

pub struct Gate {
    pub from_state: String,
    pub action: String,
    pub guard: String,
    /// The state of a quorum; nothing for a single gate.
    pub chain: Option<String>,
    pub steps: Vec<Step>,
    pub fate: &'static str,
    pub current: bool,
    pub opened_by: String,
    pub opened_at: i64,
}

pub struct Step {
    pub step_id: String,
    pub approver_ref: String,
    pub assignment_id: String,
    pub state: &'static str,
    /// By whom and when it ended.
    pub ended: Option<(String, i64)>,
    /// Whether it is in its approver's in-tray.
    pub in_tray: bool,
}

impl Gate {
    pub fn status(&self) -> &str {
        self.chain.as_deref().unwrap_or_else(|| self.steps.first().map_or("Withdrawn", |step| step.state))
    }

    fn waits(&self) -> bool {
        self.fate == "unspent" && self.current && matches!(self.status(), "Pending" | "Approved")
    }

    fn count(&self, state: &str) -> usize {
        self.steps.iter().filter(|step| step.state == state).count()
    }

    fn pending(&self) -> Vec<&str> {
        self.steps.iter().filter(|step| step.state == "Pending").map(|step| step.step_id.as_str()).collect()
    }
}

/// `None` where the records or documents cannot be followed at all.
pub fn fold(view: &ProcessView, entries: &[Entry], application: &str, notes: &mut Notes<'_>) -> Option<Picture> {
    for (digest, bytes, what) in [
        (view.row.declaration_digest, &view.declaration, "declaration"),
        (view.row.gate_spec_digest, &view.gate_spec, "gate_spec"),
    ] {
        notes.require(digest == sha256(&[bytes]), || format!("the {what} is not the one that was recorded"));
    }
    let parsed = (serde_json::from_slice(&view.declaration), serde_json::from_slice(&view.gate_spec));
    let (Ok(declaration), Ok(spec)): (Result<Declaration, _>, Result<GateSpec, _>) = parsed else {
        notes.note("its documents cannot be read".to_owned());
        return None;
    };
    let picture = Picture { state: declaration.initial_state.clone(), fired: vec![], gates: BTreeMap::new() };
    let mut follower = Follower { view, declaration, spec, application, notes, picture, left: None };
    for (i, command) in entries.chunk_by(|a, b| a.at == b.at).enumerate() {
        follower.left = None;
        for (j, entry) in command.iter().enumerate() {
            follower.follow(entry, j.checked_sub(1).map(|before| &command[before]), i == 0 && j == 0);
        }
        follower.after_command(command);
    }
    Some(follower.picture)
}

struct Follower<'a, 'n, 'f> {
    view: &'a ProcessView,
    declaration: Declaration,
    spec: GateSpec,
    application: &'a str,
    notes: &'n mut Notes<'f>,
    picture: Picture,
    /// The state that this command left.
    left: Option<String>,
}

impl Follower<'_, '_, '_> {
    fn require(&mut self, entry: &Entry, holds: bool, otherwise: &str) {
        self.notes.require(holds, || format!("record {} ({}): {otherwise}", entry.sequence, entry.action_ref));
    }

    fn follow(&mut self, entry: &Entry, before: Option<&Entry>, first: bool) {
        let own = entry.text("instance_id") == Some(&self.view.row.instance_id.to_string());
        self.require(entry, own, "names another instance");
        self.require(entry, first == (entry.action_ref == "workflow_started"), "is not in its place");
        match entry.action_ref.as_str() {
            "workflow_started" => self.started(entry),
            "chain_initiated" => {}
            "gate_opened" => self.opened(entry, before),
            "gate_decided" => self.decided(entry, before),
            "step_approved" => self.step_decided(entry, "Approved"),
            "step_rejected" => self.step_decided(entry, "Rejected"),
            "step_withdrawn" => self.step_decided(entry, "Withdrawn"),
            "chain_resolved" => self.resolved(entry),
            "chain_withdrawn" => self.chain_withdrawn(entry),
            "transition_fired" => self.fired(entry),
            "moot_gate_recalled" => self.mooted(entry),
            // What they say is checked apart.
            "hold_placed" | "hold_released" | "record_purged" => {}
            "evidence_exported" => {
                let through = entry.payload.get("through_sequence").and_then(Value::as_u64);
                self.require(entry, through == Some(entry.sequence - 1), "does not end at itself");
            }
            "attempt_refused" => {}
            _ => self.require(entry, false, "nobody knows this action"),
        }
    }

    fn started(&mut self, entry: &Entry) {
        let row = &self.view.row;
        let says = entry.actor_ref == row.initiator_ref
            && entry.at == row.started_at.0
            && entry.text("subject_ref") == Some(&row.subject_ref)
            && entry.text("initial_state") == Some(&self.declaration.initial_state)
            && entry.text("declaration_digest") == Some(&row.declaration_digest.to_string())
            && entry.text("gate_spec_digest") == Some(&row.gate_spec_digest.to_string())
            && entry.text("definition").map(str::to_owned)
                == row.definition.as_ref().map(|(name, version)| format!("{name}@{version}"));
        self.require(entry, says, "does not say what the row says");
        let known = self.declaration.states.contains(&self.declaration.initial_state);
        self.require(entry, known, "begins in a state that is not declared");
    }

    fn opened(&mut self, entry: &Entry, before: Option<&Entry>) {
        let text = |name: &str| entry.text(name).unwrap_or_default().to_owned();
        let (from_state, action, guard) = (text("from_state"), text("action"), text("guard"));
        let is_chain = entry.text("chain_id").is_some();
        self.require(entry, from_state == self.picture.state, "opens a gate out of another state");
        let declared = self.declaration.transition(&from_state, &action).and_then(|t| t.guard.clone());
        self.require(entry, declared.as_deref() == Some(&guard), "opens a gate that is not declared");
        let chain = before.filter(|before| before.action_ref == "chain_initiated");
        let paired = chain.map(|before| before.text("chain_id")) == is_chain.then(|| entry.text("chain_id"));
        self.require(entry, paired, "and its chain_initiated do not belong together");

        let mut steps = steps_of(entry);
        if !is_chain {
            let (step_id, assignment_id) = (text("step_id"), text("assignment_id"));
            steps = vec![pending(step_id, text("approver_ref"), assignment_id)];
        }
        let named: Vec<&str> = self.spec.get(&guard).map(super::documents::Entry::approvers).unwrap_or_default();
        let asked: Vec<&str> = steps.iter().map(|step| step.approver_ref.as_str()).collect();
        let as_specified = named == asked
            && is_chain == self.spec.get(&guard).is_some_and(|spec| spec.quorum.is_some())
            && entry.text("scope") == self.spec.get(&guard).map(|spec| spec.scope.as_str())
            && entry.text("submitter_ref") == Some(&self.view.row.initiator_ref);
        self.require(entry, as_specified, "asks others than the gate_spec names");

        let mut supersedes = None;
        let mut unresolved = false;
        for (gate_id, gate) in &mut self.picture.gates {
            if gate.current && gate.from_state == from_state && gate.action == action {
                supersedes = Some(gate_id.clone());
                unresolved |= gate.waits();
                gate.current = false;
            }
        }
        self.require(entry, !unresolved, "opens a gate beside one that is open");
        self.require(entry, entry.text("supersedes") == supersedes.as_deref(), "names another predecessor");
        let gate = Gate {
            from_state,
            action,
            guard,
            chain: is_chain.then(|| "Pending".to_owned()),
            steps,
            fate: "unspent",
            current: true,
            opened_by: entry.actor_ref.clone(),
            opened_at: entry.at,
        };
        let gate_id = entry.gate_id().unwrap_or_default().to_owned();
        let again = self.picture.gates.insert(gate_id, gate).is_some();
        self.require(entry, !again, "opens a gate for the second time");
    }

    /// The gate's own record of a decision; a chain's effect is told by the record before it.
    fn decided(&mut self, entry: &Entry, before: Option<&Entry>) {
        let state = match entry.text("decision") {
            Some("approve") => "Approved",
            Some("reject") => "Rejected",
            Some("withdraw") => "Withdrawn",
            _ => return self.require(entry, false, "is no decision"),
        };
        match (entry.text("chain_id"), entry.text("step_id")) {
            (None, Some(step_id)) => self.settle(entry, step_id, step_id, state, &entry.actor_ref),
            (Some(_), step_id) => {
                let told = before.is_some_and(|before| {
                    let action = match (step_id, state) {
                        (None, _) => "chain_withdrawn",
                        (Some(_), "Approved") => "step_approved",
                        (Some(_), "Rejected") => "step_rejected",
                        (Some(_), _) => "step_withdrawn",
                    };
                    before.action_ref == action
                        && before.text("chain_id") == entry.text("chain_id")
                        && before.text("step_id") == step_id
                        && before.actor_ref == entry.actor_ref
                });
                self.require(entry, told, "is not what its chain recorded");
            }
            (None, None) => self.require(entry, false, "decides nothing"),
        }
    }

    fn step_decided(&mut self, entry: &Entry, state: &'static str) {
        let (Some(chain_id), Some(step_id)) = (entry.text("chain_id"), entry.text("step_id")) else {
            return self.require(entry, false, "names no step of a chain");
        };
        let trailing = self.picture.gates.get(chain_id).is_some_and(|gate| gate.status() != "Pending");
        self.require(entry, entry.payload.get("trailing") == Some(&Value::Bool(trailing)), "is trailing, or is not");
        let by = entry.text("decided_by").unwrap_or_default();
        // The chain's end has withdrawn it in this very command.
        let steps = self.picture.gates.get(chain_id).map_or(&[][..], |gate| &gate.steps);
        let ended = steps.iter().find(|step| step.step_id == step_id).and_then(|step| step.ended.as_ref());
        if state == "Withdrawn" && trailing && ended.is_some_and(|(_, at)| *at == entry.at) {
            let initiator = &self.view.row.initiator_ref;
            let own = entry.actor_ref == self.application || entry.actor_ref == *initiator;
            let fits = own && by == initiator;
            return self.require(entry, fits, "does not say who withdrew its chain");
        }
        if entry.actor_ref == self.application && by != self.application {
            // What is left of a decided chain goes when its state is left.
            let from = self.picture.gates.get(chain_id).map(|gate| &gate.from_state);
            let leaves = state == "Withdrawn" && trailing && from == self.left.as_ref() && from.is_some();
            self.require(entry, leaves && by == self.view.row.initiator_ref, "was not the application's to decide");
        } else {
            self.require(entry, by == entry.actor_ref, "is told in somebody else's name");
        }
        self.settle(entry, chain_id, step_id, state, by);
    }

    /// A person ends a step: the one whom it names, or the initiator who withdraws it.
    fn settle(&mut self, entry: &Entry, gate_id: &str, step_id: &str, state: &'static str, by: &str) {
        let initiator = self.view.row.initiator_ref.clone();
        let gate = self.picture.gates.get_mut(gate_id);
        let Some(step) = gate.and_then(|gate| gate.steps.iter_mut().find(|step| step.step_id == step_id)) else {
            return self.require(entry, false, "decides a step that is none");
        };
        let was_pending = step.state == "Pending";
        let authorised = by == if state == "Withdrawn" { initiator } else { step.approver_ref.clone() };
        (step.state, step.ended, step.in_tray) = (state, Some((by.to_owned(), entry.at)), false);
        self.require(entry, was_pending, "decides what was decided");
        self.require(entry, authorised, "was not theirs to decide");
    }

    fn resolved(&mut self, entry: &Entry) {
        let outcome = entry.text("outcome").unwrap_or_default().to_owned();
        self.require(entry, entry.actor_ref == self.application, "is the application's to record");
        let Some(gate) = entry.text("chain_id").and_then(|id| self.picture.gates.get_mut(id)) else {
            return self.require(entry, false, "resolves a chain that is none");
        };
        let counted = self
            .spec
            .get(&gate.guard)
            .map(|spec| spec.outcome(gate.count("Approved"), gate.count("Rejected"), gate.count("Withdrawn")));
        let right = match &self.left {
            // Moot: withdrawn as it stands.
            Some(left) => outcome == "Withdrawn" && *left == gate.from_state,
            None => counted == Some(outcome.as_str()) && outcome != "Pending",
        };
        let (was_pending, recalled) = (gate.status() == "Pending", gate.pending() == entry.texts("recalled_step_ids"));
        gate.chain = Some(outcome.clone());
        end_chain(gate, &outcome, &self.view.row.initiator_ref, entry.at);
        self.require(entry, was_pending, "resolves a chain that is resolved");
        self.require(entry, right, "is not what the decisions come to");
        self.require(entry, recalled, "does not recall exactly the undecided steps");
    }

    fn chain_withdrawn(&mut self, entry: &Entry) {
        let initiator = self.view.row.initiator_ref.clone();
        let Some(gate) = entry.text("chain_id").and_then(|id| self.picture.gates.get_mut(id)) else {
            return self.require(entry, false, "withdraws a chain that is none");
        };
        let (was_pending, recalled) = (gate.status() == "Pending", gate.pending() == entry.texts("recalled_step_ids"));
        gate.chain = Some("Withdrawn".to_owned());
        end_chain(gate, "Withdrawn", &initiator, entry.at);
        self.require(entry, was_pending, "withdraws a chain that is resolved");
        self.require(entry, recalled, "does not recall exactly the undecided steps");
        self.require(entry, entry.actor_ref == initiator, "is the initiator's to do");
    }

    fn fired(&mut self, entry: &Entry) {
        let text = |name: &str| entry.text(name).unwrap_or_default().to_owned();
        let (from_state, action, to_state) = (text("from_state"), text("action"), text("new_state"));
        let number = entry.payload.get("sequence_number").and_then(Value::as_u64);
        let next = self.picture.fired.len() as u64 + 1;
        self.require(entry, number == Some(next), "does not bear the next sequence_number");
        self.require(entry, from_state == self.picture.state, "fires out of another state");
        let ended = self.declaration.terminal_states.contains(&from_state);
        self.require(entry, !ended, "fires on a process that has ended");
        let declared = self.declaration.transition(&from_state, &action);
        let (moves, guard) = (declared.map(|t: &Transition| t.to.clone()), declared.and_then(|t| t.guard.clone()));
        self.require(entry, moves.as_deref() == Some(&to_state), "fires what is not declared");

        let gate_id = entry.gate_id().map(str::to_owned);
        let guarded = entry.payload.get("guarded") == Some(&Value::Bool(guard.is_some()));
        self.require(entry, guarded && gate_id.is_some() == guard.is_some(), "is guarded, or is not");
        if let Some(gate_id) = &gate_id {
            let needed = guard.as_ref().and_then(|guard| self.spec.get(guard)).map_or(usize::MAX, |spec| spec.needed());
            let gate = self.picture.gates.get_mut(gate_id);
            let approved = gate.as_ref().is_some_and(|gate| {
                let own = |step: &&Step| {
                    step.state == "Approved" && step.ended.as_ref().is_some_and(|(by, _)| *by == step.approver_ref)
                };
                gate.from_state == from_state
                    && gate.action == action
                    && gate.current
                    && gate.status() == "Approved"
                    && gate.steps.iter().filter(own).count() >= needed
            });
            let unspent = gate.as_ref().is_some_and(|gate| gate.fate == "unspent");
            if let Some(gate) = gate {
                gate.fate = "consumed";
            }
            self.require(entry, approved, "fires without the approval that its gate needs");
            self.require(entry, unspent, "fires on an approval that is spent");
        }
        if from_state != to_state {
            self.left = Some(from_state.clone());
        }
        self.picture.state.clone_from(&to_state);
        let (transition_id, event_id) = (text("transition_id"), entry.event_id.to_string());
        self.picture.fired.push(Fired { transition_id, event_id, from_state, action, to_state, gate_id });
    }

    fn mooted(&mut self, entry: &Entry) {
        self.require(entry, entry.actor_ref == self.application, "is the application's to record");
        let left = self.left.clone();
        let initiator = self.view.row.initiator_ref.clone();
        let Some(gate) = entry.gate_id().and_then(|id| self.picture.gates.get_mut(id)) else {
            return self.require(entry, false, "recalls a gate that is none");
        };
        // The chain's own record has withdrawn it already.
        let withdrawn = gate.chain.as_deref() == Some("Withdrawn");
        let kind = match gate.status() {
            "Pending" => "pending-withdrawn",
            "Withdrawn" if withdrawn => "pending-withdrawn",
            "Approved" => "approved-unconsumed",
            _ => "",
        };
        let fits = Some(&gate.from_state) == left.as_ref()
            && gate.current
            && gate.fate == "unspent"
            && entry.text("from_state") == Some(&gate.from_state)
            && entry.text("moot_action") == Some(&gate.action)
            && entry.text("moot_kind") == Some(kind);
        gate.fate = "mooted";
        if gate.chain.is_none() && gate.status() == "Pending" {
            end_chain(gate, "Withdrawn", &initiator, entry.at);
        }
        self.require(entry, fits, "recalls what was not moot");
    }

    /// Nothing may wait in a state that was left, and no quorum may have an outcome that nobody recorded.
    fn after_command(&mut self, command: &[Entry]) {
        let Some(entry) = command.first() else { return };
        let (mut lingers, mut unresolved) = (false, false);
        for gate in self.picture.gates.values() {
            if self.left.as_ref() == Some(&gate.from_state) {
                lingers |= gate.waits() || gate.steps.iter().any(|step| step.state == "Pending" || step.in_tray);
            }
            if gate.chain.as_deref() == Some("Pending") {
                let outcome = self
                    .spec
                    .get(&gate.guard)
                    .map(|spec| spec.outcome(gate.count("Approved"), gate.count("Rejected"), gate.count("Withdrawn")));
                unresolved |= outcome != Some("Pending");
            }
        }
        self.require(entry, !lingers, "left a state in which something still waits");
        self.require(entry, !unresolved, "decided a quorum without saying so");
    }
}

fn pending(step_id: String, approver_ref: String, assignment_id: String) -> Step {
    Step { step_id, approver_ref, assignment_id, state: "Pending", ended: None, in_tray: true }
}

fn steps_of(entry: &Entry) -> Vec<Step> {
    let text = |step: &Value, name: &str| step.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let steps = entry.payload.get("steps").and_then(Value::as_array).into_iter().flatten();
    steps.map(|step| pending(text(step, "step_id"), text(step, "approver_ref"), text(step, "assignment_id"))).collect()
}

/// Undecided steps leave the in-trays; of a withdrawn chain they are withdrawn in the initiator's name.
fn end_chain(gate: &mut Gate, outcome: &str, initiator: &str, at: i64) {
    for step in gate.steps.iter_mut().filter(|step| step.state == "Pending") {
        step.in_tray = false;
        if outcome == "Withdrawn" {
            step.state = "Withdrawn";
            step.ended = Some((initiator.to_owned(), at));
        }
    }
}
