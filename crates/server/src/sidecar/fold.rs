//! A runbook's run as its records tell it, up to one of them. Nothing else is read, so the same records always give the same
//! files, and an edited file is found.

use countersign_engine::purge::{places, ranges};
use countersign_engine::run::records::RunRecord;
use countersign_kernel::lifecycle::{RunState, StepCode};
use countersign_kernel::plan::Plan;
use countersign_kernel::{Digest, EventId, Time};
use serde_json::Value;

/// Records of gates, holds and exports. All others are a run's own.
const OTHERS: &[&str] = &[
    "chain_initiated",
    "gate_opened",
    "gate_decided",
    "step_approved",
    "step_rejected",
    "step_withdrawn",
    "chain_resolved",
    "chain_withdrawn",
    "transition_fired",
    "moot_gate_recalled",
    "hold_placed",
    "hold_released",
    "record_purged",
    "evidence_exported",
    "attempt_refused",
];

#[derive(Debug)]
pub struct Fold {
    pub sequence: u64,
    pub record_hash: Digest,
    /// Of the last record.
    pub at: Time,
    pub subject_ref: Option<String>,
    pub input: Value,
    /// Nothing where the record of its start was purged.
    pub is_dry: Option<bool>,
    pub state: RunState,
    pub outcome: Option<String>,
    /// What an operator said last, stopping or ending the run.
    pub reason: Option<String>,
    pub steps: Vec<Step>,
    pub gates: Vec<Gate>,
    pub pins: Vec<Pin>,
    /// What differed when the run last stopped by drift; nothing once it was resumed.
    pub drift: Vec<Drift>,
    pub error: Option<Error>,
    /// Records whose content was purged.
    pub purged: Vec<u64>,
}

#[derive(Debug)]
pub struct Step {
    pub code: StepCode,
    pub begun: Option<Time>,
    pub finished: Option<Time>,
    pub cycle: u32,
    /// It ended in the run that this one continues.
    pub is_taken_over: bool,
    pub failed_attempts: u64,
    pub worker: Option<String>,
    pub is_effect_unknown: bool,
    pub checks: Vec<(String, bool)>,
    pub artifacts: Vec<Value>,
    pub captured: Vec<Pin>,
    pub surveys: Vec<Survey>,
    /// As the record tells it: in full, or by digest.
    pub output: Option<Value>,
    pub error: Option<String>,
}

impl Default for Step {
    fn default() -> Self {
        Step {
            code: StepCode::NotStarted,
            begun: None,
            finished: None,
            cycle: 0,
            is_taken_over: false,
            failed_attempts: 0,
            worker: None,
            is_effect_unknown: false,
            checks: vec![],
            artifacts: vec![],
            captured: vec![],
            surveys: vec![],
            output: None,
            error: None,
        }
    }
}

#[derive(Debug)]
pub struct Survey {
    pub at: Time,
    pub pins: usize,
    pub drift: Vec<Drift>,
}

#[derive(Clone, Debug)]
pub struct Pin {
    pub name: String,
    /// As records show it.
    pub value: Value,
    pub digest: String,
    /// Until the next survey: what it was before it was pinned anew.
    before: Option<(Value, String)>,
}

#[derive(Clone, Debug)]
pub struct Drift {
    /// As the record has it: `pin`, `pinned`, `live`.
    pub entry: Value,
    /// Of what was found.
    digest: String,
}

#[derive(Debug)]
pub struct Gate {
    pub action: String,
    pub guard: String,
    pub requested: Time,
    pub request: Option<Value>,
    pub request_digest: Option<String>,
    chain_id: Option<String>,
    pub asked: Vec<Asked>,
    /// When its approval was spent.
    pub spent: Option<Time>,
    pub is_moot: bool,
}

#[derive(Debug)]
pub struct Asked {
    pub step_id: String,
    pub approver_ref: String,
    pub decision: Option<Decision>,
}

#[derive(Debug)]
pub struct Decision {
    pub is_approval: bool,
    pub by: String,
    pub at: Time,
    pub reason: Option<String>,
    pub event_id: EventId,
}

/// What last went wrong.
#[derive(Debug)]
pub struct Error {
    pub at: Time,
    pub step: Option<usize>,
    pub code: String,
    pub message: String,
    pub drift: Vec<Value>,
}

fn text(value: &Value, name: &str) -> Option<String> {
    value.get(name).and_then(Value::as_str).map(str::to_owned)
}

fn list<'v>(value: &'v Value, name: &str) -> impl Iterator<Item = &'v Value> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn index(value: &Value) -> Option<usize> {
    value.get("step_seq").and_then(Value::as_u64).and_then(|seq| usize::try_from(seq).ok())
}

/// An output as a record tells it.
fn output(holder: &Value) -> Option<Value> {
    let digest = || Some(Value::String(format!("sha256:{}", text(holder, "output_digest")?)));
    holder.get("output").cloned().or_else(digest)
}

impl Fold {
    /// `None` where there is no record.
    pub fn of(plan: &Plan, records: &[RunRecord]) -> Option<Fold> {
        let last = records.last()?;
        let mut fold = Fold {
            sequence: last.sequence,
            record_hash: last.record_hash,
            at: last.at,
            subject_ref: None,
            input: Value::Null,
            is_dry: None,
            state: RunState::Idle,
            outcome: None,
            reason: None,
            steps: std::iter::repeat_with(Step::default).take(plan.steps.len()).collect(),
            gates: vec![],
            pins: vec![],
            drift: vec![],
            error: None,
            purged: records.iter().filter(|record| record.is_purged).map(|record| record.sequence).collect(),
        };
        for record in records {
            if OTHERS.contains(&&*record.action_ref) {
                fold.gate_record(record);
            } else {
                fold.run_record(record, plan);
            }
        }
        Some(fold)
    }

    /// The step that the run is at, or comes next.
    pub fn current(&self) -> Option<usize> {
        self.steps.iter().position(|step| step.code != StepCode::Completed)
    }

    /// The gate for this action that was opened last, unless it is moot.
    pub fn gate(&self, action: &str) -> Option<&Gate> {
        self.gates.iter().rfind(|gate| gate.action == action).filter(|gate| !gate.is_moot)
    }

    pub fn codes(&self) -> Vec<StepCode> {
        self.steps.iter().map(|step| step.code).collect()
    }

    fn gate_record(&mut self, record: &RunRecord) {
        let said = &record.said;
        match record.action_ref.as_str() {
            "gate_opened" => {
                let one = |step: &Value| {
                    let (step_id, approver_ref) = (text(step, "step_id")?, text(step, "approver_ref")?);
                    Some(Asked { step_id, approver_ref, decision: None })
                };
                self.gates.push(Gate {
                    action: text(said, "action").unwrap_or_default(),
                    guard: text(said, "guard").unwrap_or_default(),
                    requested: record.at,
                    request: said.get("request").cloned(),
                    request_digest: text(said, "request_digest"),
                    chain_id: text(said, "chain_id"),
                    asked: one(said).into_iter().chain(list(said, "steps").filter_map(one)).collect(),
                    spent: None,
                    is_moot: false,
                });
            }
            "gate_decided" | "step_approved" | "step_rejected" | "step_withdrawn" => self.decided(record),
            "transition_fired" => {
                if let Some(gate) = self.gate_named(said) {
                    gate.spent = Some(record.at);
                }
            }
            "moot_gate_recalled" => {
                if let Some(gate) = self.gate_named(said) {
                    gate.is_moot = true;
                }
            }
            _ => {}
        }
    }

    /// The gate that a record names by its step or chain.
    fn gate_named(&mut self, said: &Value) -> Option<&mut Gate> {
        let (step_id, chain_id) = (text(said, "step_id"), text(said, "chain_id"));
        let named = |gate: &&mut Gate| {
            let by_step = || step_id.as_ref().is_some_and(|id| gate.asked.iter().any(|asked| asked.step_id == *id));
            (chain_id.is_some() && gate.chain_id == chain_id) || by_step()
        };
        self.gates.iter_mut().rev().find(named)
    }

    fn decided(&mut self, record: &RunRecord) {
        let said = &record.said;
        let is_approval = match record.action_ref.as_str() {
            "gate_decided" => said.get("decision").and_then(Value::as_str) == Some("approve"),
            action => action == "step_approved",
        };
        let Some(step_id) = text(said, "step_id") else { return };
        let asked = self.gates.iter_mut().rev().flat_map(|gate| &mut gate.asked).find(|asked| asked.step_id == step_id);
        // Of a quorum two records tell it; the first is the decision itself.
        if let Some(asked) = asked.filter(|asked| asked.decision.is_none()) {
            asked.decision = Some(Decision {
                is_approval,
                by: text(said, "decided_by").unwrap_or_else(|| record.actor_ref.clone()),
                at: record.at,
                reason: text(said, "reason"),
                event_id: record.event_id,
            });
        }
    }

    fn run_record(&mut self, record: &RunRecord, plan: &Plan) {
        let said = &record.said;
        if record.action_ref == "run_started" {
            self.subject_ref = text(said, "subject_ref");
            self.input = said.get("input").cloned().unwrap_or(Value::Null);
            self.is_dry = (!record.is_purged).then(|| said.get("dry_run").and_then(Value::as_bool).unwrap_or(false));
            let taken = said.get("taken_over").and_then(|taken| text(taken, "completed")).unwrap_or_default();
            for seq in ranges(&taken, self.steps.len()) {
                if let Some(step) = self.steps.get_mut(seq) {
                    (step.code, step.is_taken_over) = (StepCode::Completed, true);
                    (step.begun, step.finished) = (Some(record.at), Some(record.at));
                }
            }
        }
        self.moved(record);
        self.worked(record);
        self.looked(record);
        if record.is_purged {
            return;
        }
        self.outcome = text(said, "outcome");
        self.reason = text(said, "reason").or(self.reason.take());
        let to = list(said, "run_transitions").last().and_then(|moved| text(moved, "to"));
        if let Some(state) = to.as_deref().and_then(RunState::parse) {
            self.state = state;
            match state {
                RunState::Stopped => self.error = Some(self.stop(record, plan)),
                RunState::Failed => self.error = Some(self.failure(record)),
                _ => self.drift.clear(),
            }
        }
    }

    fn moved(&mut self, record: &RunRecord) {
        let count = self.steps.len();
        for (seq, made) in list(&record.said, "transitions").flat_map(|made| places(made, count)) {
            let Some(step) = self.steps.get_mut(seq) else { continue };
            let Some(code) = text(made, "to").as_deref().and_then(StepCode::parse) else { continue };
            step.code = code;
            match code {
                StepCode::InProgress | StepCode::Overdue => {
                    step.begun.get_or_insert(record.at);
                    step.finished = None;
                }
                StepCode::Completed | StepCode::Failed | StepCode::Skipped | StepCode::Cancelled => {
                    step.finished = Some(record.at);
                    step.begun = step.begun.or((code == StepCode::Completed).then_some(record.at));
                    step.is_effect_unknown &= code != StepCode::Completed;
                }
                _ => {}
            }
            if matches!(text(made, "id").as_deref(), Some("T8r" | "T12r")) {
                step.cycle += 1;
                step.begun = Some(record.at);
            }
        }
    }

    fn worked(&mut self, record: &RunRecord) {
        let (said, count) = (&record.said, self.steps.len());
        for (seq, lease) in list(said, "leases").flat_map(|lease| places(lease, count)) {
            if let Some(step) = self.steps.get_mut(seq) {
                step.worker = text(lease, "worker_id").or_else(|| Some(record.actor_ref.clone()));
            }
        }
        for member in ["outputs", "refused"] {
            for (seq, entry) in list(said, member).flat_map(|entry| places(entry, count)) {
                if let Some(step) = self.steps.get_mut(seq) {
                    step.output = output(entry);
                }
            }
        }
        for (seq, entry) in list(said, "errors").flat_map(|entry| places(entry, count)) {
            if let Some(step) = self.steps.get_mut(seq) {
                step.failed_attempts = entry.get("attempts").and_then(Value::as_u64).unwrap_or(0);
                step.error = text(entry, "last_error");
                step.is_effect_unknown = entry.get("effect_unknown").and_then(Value::as_bool).unwrap_or(false);
            }
        }
        if let Some(step) = said.get("effect").and_then(index).and_then(|seq| self.steps.get_mut(seq)) {
            step.is_effect_unknown = false;
        }
        // Every record that judges a step lists all its checks.
        let mut judged: Vec<usize> = vec![];
        for (seq, check) in list(said, "checks").flat_map(|check| places(check, count)) {
            let (Some(step), Some(name)) = (self.steps.get_mut(seq), text(check, "name")) else { continue };
            if !judged.contains(&seq) {
                judged.push(seq);
                step.checks.clear();
            }
            step.checks.push((name, check.get("held").and_then(Value::as_bool).unwrap_or(false)));
        }
        let mut left: Vec<usize> = vec![];
        for (seq, artifact) in list(said, "artifacts").flat_map(|artifact| places(artifact, count)) {
            let Some(step) = self.steps.get_mut(seq) else { continue };
            if !left.contains(&seq) {
                left.push(seq);
                step.artifacts.clear();
            }
            let mut artifact = artifact.clone();
            if let Some(members) = artifact.as_object_mut() {
                members.shift_remove("step_seq");
            }
            step.artifacts.push(artifact);
        }
    }

    /// Captures, surveys, and what was pinned anew (`spec/run.md`, section 9).
    fn looked(&mut self, record: &RunRecord) {
        let said = &record.said;
        let found: Vec<(String, String, Value)> = list(said, "pins")
            .filter_map(|pin| {
                let value = pin.get("value").cloned().unwrap_or(Value::Null);
                Some((text(pin, "pin")?, text(pin, "digest").unwrap_or_default(), value))
            })
            .collect();
        match record.action_ref.as_str() {
            "pins_captured" => {
                for (name, digest, value) in found {
                    let pin = Pin { name, value, digest, before: None };
                    if let Some(step) = index(said).and_then(|seq| self.steps.get_mut(seq)) {
                        step.captured.retain(|known| known.name != pin.name);
                        step.captured.push(pin.clone());
                    }
                    match self.pins.iter_mut().find(|known| known.name == pin.name) {
                        Some(known) => *known = pin,
                        None => self.pins.push(pin),
                    }
                }
            }
            "pins_surveyed" => {
                for pin in &mut self.pins {
                    let now = found.iter().find(|(name, ..)| *name == pin.name).map(|(_, digest, _)| digest);
                    if let Some((value, digest)) = pin.before.take()
                        && now == Some(&digest)
                    {
                        (pin.value, pin.digest) = (value, digest);
                    }
                }
                let differs = list(said, "drift").map(|entry| {
                    let now = text(entry, "pin").and_then(|pin| found.iter().find(|(name, ..)| *name == pin));
                    Drift { entry: entry.clone(), digest: now.map(|(_, digest, _)| digest.clone()).unwrap_or_default() }
                });
                self.drift = differs.collect();
                let survey = Survey { at: record.at, pins: found.len(), drift: self.drift.clone() };
                if let Some(step) = index(said).and_then(|seq| self.steps.get_mut(seq)) {
                    step.surveys.push(survey);
                }
            }
            _ => {}
        }
        for entry in list(said, "repinned") {
            let drift = self.drift.iter().find(|drift| drift.entry.get("pin") == entry.get("pin"));
            let pin = self.pins.iter_mut().find(|pin| entry.get("pin").and_then(Value::as_str) == Some(&pin.name));
            if let (Some(pin), Some(drift), Some(live)) = (pin, drift, entry.get("live")) {
                let value = std::mem::replace(&mut pin.value, live.clone());
                let digest = std::mem::replace(&mut pin.digest, drift.digest.clone());
                pin.before = Some((value, digest));
            }
        }
    }

    fn stop(&self, record: &RunRecord, plan: &Plan) -> Error {
        let outcome = self.outcome.as_deref().unwrap_or("operator");
        let step = index(&record.said).or_else(|| self.current());
        let name = step.and_then(|step| plan.steps.get(step)).map_or("its end", |spec| &*spec.name);
        let pins: Vec<String> = self.drift.iter().filter_map(|drift| text(&drift.entry, "pin")).collect();
        let (code, message) = match outcome {
            "drift" => {
                let code = format!("STOP_DRIFT_{}", pins.first().map_or("", String::as_str));
                (code, format!("{} changed before {name}", pins.join(", ")))
            }
            "soft_cap" => ("STOP_SOFT_CAP".to_owned(), format!("{name} took longer than its softCap")),
            "hard_cap" => ("STOP_HARD_CAP".to_owned(), "the run took longer than its hardCap".to_owned()),
            "lease_expired" => {
                ("STOP_LEASE_EXPIRED".to_owned(), format!("whoever carried out {name} no longer answers"))
            }
            other => {
                let why = text(&record.said, "reason").map_or_else(String::new, |reason| format!(": {reason}"));
                (format!("STOP_{}", other.to_uppercase()), format!("stopped by {}{why}", record.actor_ref))
            }
        };
        let drift =
            if outcome == "drift" { self.drift.iter().map(|drift| drift.entry.clone()).collect() } else { vec![] };
        Error { at: record.at, step, code, message, drift }
    }

    fn failure(&self, record: &RunRecord) -> Error {
        let step = self.steps.iter().position(|step| step.code == StepCode::Failed);
        let of_step = step.and_then(|step| self.steps.get(step)?.error.clone());
        let message = of_step.or_else(|| text(&record.said, "last_error")).unwrap_or_else(|| "failed".to_owned());
        let first = message.split([' ', ':']).next().unwrap_or_default();
        let is_code = !first.is_empty() && first.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
        let code = if is_code { first } else { "STEP_FAILED" }.to_owned();
        let drift = self.drift.iter().map(|drift| drift.entry.clone()).collect();
        Error { at: record.at, step, code, message, drift }
    }
}
