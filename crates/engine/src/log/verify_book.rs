//! What a runbook keeps on its run's row (pins, drift, verdicts, artifacts, time used), told again from its records. A survey
//! that is under way, its lease, and why a probe gave nothing are in no record and are not compared.

use crate::purge::{place, places};
use crate::run::runbook::{self, shown};
use countersign_kernel::Time;
use countersign_kernel::plan::{Plan, StepSeq};
use countersign_kernel::run::Runbook;
use countersign_ledger::sha256;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};

/// Values are known by their digests.
#[derive(Default)]
pub struct Book {
    dry_run: bool,
    /// In the order of their first capture: name, step, value, and the value before it was pinned anew.
    pins: Vec<(String, u64, String, Option<String>)>,
    /// What the last survey found.
    found: HashMap<String, String>,
    /// Pin, pinned value and live value, as records show them.
    drift: Vec<(String, Value, Value)>,
    used: i64,
    since: Option<Time>,
    claimed: Option<(usize, Time)>,
    checks: BTreeMap<usize, Vec<(String, bool)>>,
    artifacts: BTreeMap<usize, Vec<(String, String, u64)>>,
}

fn text(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn items<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Entries by the step that they are of.
fn by_step<T>(payload: &Value, name: &str, of: impl Fn(&Value) -> T) -> BTreeMap<usize, Vec<T>> {
    let mut all: BTreeMap<usize, Vec<T>> = BTreeMap::new();
    for entry in items(payload, name) {
        if let Some(seq) = place(entry) {
            all.entry(seq).or_default().push(of(entry));
        }
    }
    all
}

impl Book {
    pub fn follow(&mut self, at: Time, payload: &Value, steps: usize, plan: &Plan) {
        self.dry_run |= payload.get("dry_run") == Some(&Value::Bool(true));
        for step_move in items(payload, "transitions") {
            let (mut from, to) = (text(step_move, "from"), text(step_move, "to"));
            // It was overdue because nobody had claimed it.
            if text(step_move, "id") == "X15" {
                "ready".clone_into(&mut from);
            }
            for (seq, _) in places(step_move, steps) {
                self.note_claim(seq, &from, &to, at, plan);
            }
        }
        if payload.get("yielded").is_some() {
            self.claimed = None;
        }
        let entry = |line: &Value| (text(line, "name"), line.get("held") == Some(&Value::Bool(true)));
        self.checks.extend(by_step(payload, "checks", entry));
        let size = |line: &Value| line.get("size_bytes").and_then(Value::as_u64).unwrap_or_default();
        let entry = |line: &Value| (text(line, "path"), text(line, "sha256"), size(line));
        self.artifacts.extend(by_step(payload, "artifacts", entry));
        self.follow_pins(payload);
        for run_move in items(payload, "run_transitions") {
            let (from, to) = (text(run_move, "from"), text(run_move, "to"));
            self.used += self.since.map_or(0, |since| (at.0 - since.0).max(0));
            self.since = (to == "executing").then_some(at);
            let goes_on = from == "stopped" && matches!(to.as_str(), "queued" | "executing" | "blocked");
            let otherwise = to == "stopped" && text(payload, "outcome") != "drift";
            if goes_on || otherwise {
                self.drift.clear();
            }
        }
        if payload.get("budget_us").is_some() {
            self.used = 0;
        }
    }

    /// The soft cap of a step counts from its claim.
    fn note_claim(&mut self, seq: usize, from: &str, to: &str, at: Time, plan: &Plan) {
        let step = StepSeq::try_from(seq).ok();
        if step.is_none_or(|step| plan.step(step).is_none() || plan.step_of_task(step).is_some()) {
            return;
        }
        match (from, to) {
            ("ready" | "failed", "in_progress") => self.claimed = Some((seq, at)),
            (_, "in_progress" | "overdue" | "waiting") | ("waiting", "ready") => {}
            _ => self.claimed = self.claimed.filter(|(claimed, _)| *claimed != seq),
        }
    }

    fn follow_pins(&mut self, payload: &Value) {
        let lines = items(payload, "pins");
        let captures = lines.iter().any(|line| line.get("value").is_some());
        let seq = payload.get("step_seq").and_then(Value::as_u64).unwrap_or_default();
        if !captures && !lines.is_empty() {
            let found = lines.iter().filter(|line| line.get("digest").is_some());
            self.found = found.map(|line| (text(line, "pin"), text(line, "digest"))).collect();
            for (name, _, value, before) in &mut self.pins {
                let before = before.take();
                if let Some(live) = self.found.get(name).filter(|live| Some(*live) == before.as_ref()) {
                    value.clone_from(live);
                }
            }
        }
        for line in lines.iter().filter(|_| captures) {
            let pin = (text(line, "pin"), seq, text(line, "digest"), None);
            match self.pins.iter_mut().find(|(name, ..)| *name == pin.0) {
                Some(known) => *known = pin,
                None => self.pins.push(pin),
            }
        }
        let drift = items(payload, "drift");
        if !drift.is_empty() {
            let value = |line: &Value, name: &str| line.get(name).cloned().unwrap_or_default();
            let line = |line: &Value| (text(line, "pin"), value(line, "pinned"), value(line, "live"));
            self.drift = drift.iter().map(line).collect();
        }
        for line in items(payload, "repinned") {
            let name = text(line, "pin");
            if let (Some((_, _, value, before)), Some(live)) =
                (self.pins.iter_mut().find(|(pin, ..)| *pin == name), self.found.get(&name))
            {
                *before = Some(std::mem::replace(value, live.clone()));
            }
        }
    }

    /// What of the stored text is not what the records lead to.
    pub fn compare(&self, stored: Option<&str>, plan: &Plan) -> Vec<(&'static str, String)> {
        let Some(stored) = stored else {
            // A run that was started before there were runbooks keeps none.
            return vec![];
        };
        let Some(book) = runbook::parse(stored) else {
            return vec![("row-missing", "what its runbook keeps cannot be read".to_owned())];
        };
        let wrong = [
            ("whether it is a dry run", book.dry_run != self.dry_run),
            ("its pins", !self.same_pins(&book)),
            ("its drift", !self.same_drift(&book)),
            ("its verdicts", !self.same_checks(&book)),
            ("its artifacts", !self.same_artifacts(&book)),
            // Without a cap, a renewed budget leaves no record.
            ("the time that it used", plan.hard_cap.is_some() && book.used != self.used || book.since != self.since),
            ("when its step was claimed", book.claimed.map(|(seq, at)| (seq as usize, at)) != self.claimed),
        ];
        let wrong = wrong.into_iter().filter(|(_, differs)| *differs);
        wrong.map(|(what, _)| ("row-missing", format!("its runbook: {what} is not as it was recorded"))).collect()
    }

    fn same_pins(&self, book: &Runbook) -> bool {
        let digest = |value: &str| sha256(&[value.as_bytes()]).to_string();
        let pins = book.pins.iter().map(|pin| {
            (pin.name.to_string(), u64::from(pin.step_seq), digest(&pin.value), pin.before.as_deref().map(digest))
        });
        pins.eq(self.pins.iter().cloned())
    }

    fn same_drift(&self, book: &Runbook) -> bool {
        let value = |text: &str| serde_json::from_str::<Value>(&shown(text)).unwrap_or_default();
        let drift = book.drift.iter().map(|drift| {
            (drift.pin.to_string(), value(&drift.pinned), drift.live.as_deref().map_or(Value::Null, value))
        });
        drift.eq(self.drift.iter().cloned())
    }

    fn same_checks(&self, book: &Runbook) -> bool {
        let mut stored: BTreeMap<usize, Vec<(String, bool)>> = BTreeMap::new();
        for (seq, verdicts) in &book.checks {
            let verdicts = verdicts.iter().map(|verdict| (verdict.name.to_string(), verdict.held));
            stored.entry(*seq as usize).or_default().extend(verdicts);
        }
        stored.retain(|_, verdicts| !verdicts.is_empty());
        stored == self.checks
    }

    fn same_artifacts(&self, book: &Runbook) -> bool {
        let mut stored: BTreeMap<usize, Vec<(String, String, u64)>> = BTreeMap::new();
        for (seq, artifact) in &book.artifacts {
            let line = (artifact.path.to_string(), artifact.sha256.to_string(), artifact.size_bytes);
            stored.entry(*seq as usize).or_default().push(line);
        }
        stored == self.artifacts
    }
}
