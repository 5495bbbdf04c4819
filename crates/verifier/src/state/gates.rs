//! Rows of gates, approval steps and assignments against the gates that replay knows.

use super::rows::is_purged_text;
use super::{Compare, StateLine};
use crate::bytes::Id;
use crate::finding::{Claim, Code};
use crate::json::Value;
use crate::process::Kinds;
use crate::process::gate::{Fate, Gate, Reason, Step};
use crate::process::quorum::State;
use std::collections::{HashMap, HashSet};

pub const GATE: [&str; 12] = [
    "gate_id",
    "from_state",
    "action",
    "guard",
    "scope",
    "opened_at_us",
    "opened_by",
    "rule",
    "m",
    "chain_state",
    "fate",
    "current",
];

pub const STEP: [&str; 12] = [
    "step_id",
    "gate_id",
    "action",
    "subject_ref",
    "approver_ref",
    "submitter_ref",
    "scope",
    "submitted_at_us",
    "state",
    "ended_by",
    "ended_at_us",
    "ended_reason",
];

pub const ASSIGNMENT: [&str; 6] =
    ["assignment_id", "task_ref", "assignee_ref", "assigned_at_us", "status", "ended_at_us"];

impl Compare<'_> {
    pub(super) fn gates(&mut self, line: &StateLine) {
        let purged = self.process.purged_events.values().filter(|kind| kind.meets(Kinds::OPENED)).count();
        let mut known: HashMap<Id, &Gate> = self.process.gates.iter().map(|gate| (gate.id, gate)).collect();
        let mut unknown = 0;
        for value in line.rows("gates") {
            match value.text("gate_id").and_then(Id::parse).and_then(|id| known.remove(&id)) {
                Some(gate) => self.gate(value, gate),
                None => unknown += 1,
            }
        }
        for _ in purged..unknown {
            self.find(Code::RecordMissing, "the stores hold a gate that no `gate_opened` tells, or hold one twice");
        }
        for gate in known.into_keys() {
            self.find(Code::RowMissing, format!("the gate {gate} was opened, and the stores do not hold it"));
        }
        self.steps(line);
        self.assignments(line);
        self.coverage(line);
    }

    fn gate(&mut self, value: &Value, gate: &Gate) {
        let process = self.process;
        let mut row = self.new_row(value).purged(process);
        row.text("from_state", Some(&gate.from_state));
        row.text("action", Some(&gate.action));
        row.text("guard", Some(&gate.guard));
        row.text("scope", Some(&gate.scope));
        row.int("opened_at_us", Some(gate.opened_at_us));
        row.text("opened_by", Some(&gate.opened_by));
        row.text("rule", gate.rule.map(|rule| rule.as_str()));
        row.natural("m", gate.rule.and_then(|rule| rule.m()));
        // What has happened for sure is compared; what purged records could have changed since is not.
        if gate.chain_state != State::Pending || !gate.is_chain() || !process.purged.meets(Kinds::DECIDED) {
            row.text("chain_state", gate.rule.map(|_| gate.chain_state.as_str()));
        }
        if gate.fate != Fate::Unspent || !process.purged.meets(Kinds::FIRED.and(Kinds::MOOTED)) {
            row.text("fate", Some(gate.fate.as_str()));
        }
        if !gate.current || !process.purged.meets(Kinds::OPENED) {
            row.flag("current", gate.current);
        }
        self.row(row, &format!("gate {}", gate.id));
    }

    fn steps(&mut self, line: &StateLine) {
        let gates = self.process.gates.iter();
        let mut known: HashMap<Id, (&Gate, &Step)> =
            gates.flat_map(|gate| gate.steps.iter().map(move |step| (step.step_id, (gate, step)))).collect();
        for value in line.rows("approval_steps") {
            match value.text("step_id").and_then(Id::parse).and_then(|id| known.remove(&id)) {
                Some((gate, step)) => self.step(value, gate, step),
                None => {
                    let detail = "the stores hold an approval step that no `gate_opened` tells, or hold one twice";
                    self.find_unless(Kinds::OPENED, Code::RecordMissing, detail);
                }
            }
        }
        for step in known.into_keys() {
            self.find(Code::RowMissing, format!("the step {step} was opened, and the stores do not hold it"));
        }
    }

    fn step(&mut self, value: &Value, gate: &Gate, step: &Step) {
        let process = self.process;
        let mut row = self.new_row(value).purged(process);
        row.id("gate_id", Some(gate.id));
        row.text("action", Some(&gate.action));
        row.text("approver_ref", Some(&step.approver));
        row.text("scope", Some(&gate.scope));
        row.int("submitted_at_us", Some(gate.opened_at_us));
        if let Some(started) = &process.started {
            row.text("submitter_ref", Some(&started.initiator));
            let subject = value.text("subject_ref").unwrap_or_default();
            let qualified = format!("{}:{}", started.subject_ref, gate.action);
            if subject != &*started.subject_ref && subject != qualified && !is_purged_text(subject, process) {
                row.differs("subject_ref", Some(qualified));
            }
        }
        let what = format!("step {}", step.step_id);
        let stated = value.text("state").and_then(State::parse);
        if stated != Some(step.state) {
            let stated = value.text("state").unwrap_or("nothing");
            let detail = format!("{what} is `{stated}` in the stores, `{}` by its records", step.state.as_str());
            // A decision in the stores that no record tells, or the other way round.
            if step.state == State::Pending {
                self.find_unless(Kinds::DECIDED.and(Kinds::MOOTED), Code::RecordMissing, detail);
            } else {
                self.find(Code::RowMissing, detail);
            }
        } else if step.assumed {
            // Only that it ended is known.
        } else if let Some(end) = &step.end {
            row.text("ended_by", Some(&end.by));
            row.int("ended_at_us", Some(end.at_us));
            let reason = value.text("ended_reason");
            let same = end.reason == Reason::Unstated || end.reason == Reason::of(reason);
            if !same && !reason.is_some_and(|text| is_purged_text(text, process)) {
                row.differs("ended_reason", None);
            }
        } else {
            row.text("ended_by", None);
            row.int("ended_at_us", None);
            row.text("ended_reason", None);
        }
        self.row(row, &what);
    }

    fn assignments(&mut self, line: &StateLine) {
        let gates = self.process.gates.iter();
        let mut known: HashMap<Id, (&Gate, &Step)> =
            gates.flat_map(|gate| gate.steps.iter().map(move |step| (step.assignment_id, (gate, step)))).collect();
        for value in line.rows("assignments") {
            let found = value.text("assignment_id").and_then(Id::parse).and_then(|id| known.remove(&id));
            let Some((gate, step)) = found else {
                let detail = "the stores hold an assignment that no `gate_opened` tells, or hold one twice";
                self.find_unless(Kinds::OPENED, Code::AssignmentCoverage, detail);
                continue;
            };
            let process = self.process;
            let mut row = self.new_row(value).purged(process);
            row.id("task_ref", Some(step.step_id));
            row.int("assigned_at_us", Some(gate.opened_at_us));
            row.text("assignee_ref", Some(&step.approver));
            let blind = step.recalled_at_us.is_none() && process.purged.meets(Kinds::DECIDED.and(Kinds::MOOTED));
            if !blind {
                row.text("status", Some(if step.recalled_at_us.is_some() { "Recalled" } else { "Active" }));
                row.int("ended_at_us", step.recalled_at_us);
            }
            self.row(row, &format!("assignment {}", step.assignment_id));
        }
        for assignment in known.into_keys() {
            self.find(
                Code::AssignmentCoverage,
                format!("the assignment {assignment} was made, and the stores do not hold it"),
            );
        }
    }

    /// A waiting step lies in exactly one in-tray, its approver's; an ended one in none.
    fn coverage(&mut self, line: &StateLine) {
        let mut active: HashMap<&str, Vec<&str>> = HashMap::new();
        for row in line.rows("assignments").iter().filter(|row| row.text("status") == Some("Active")) {
            let assignee = row.text("assignee_ref").unwrap_or_default();
            active.entry(row.text("task_ref").unwrap_or_default()).or_default().push(assignee);
        }
        let mut known = HashSet::new();
        for gate in self.process.gates.iter() {
            for step in &gate.steps {
                self.findings.checked(Claim::Coverage);
                let step_id = step.step_id.to_string();
                let found = active.get(step_id.as_str()).map(Vec::as_slice).unwrap_or_default();
                self.cover(gate, step, found);
                known.insert(step_id);
            }
        }
        for task in active.keys().filter(|task| !known.contains(**task)) {
            let detail =
                format!("an Active assignment for {}, which is no step of this process", crate::json::shortened(task));
            self.find_unless(Kinds::OPENED, Code::AssignmentCoverage, detail);
        }
    }

    fn cover(&mut self, gate: &Gate, step: &Step, active: &[&str]) {
        let waits = step.state == State::Pending && gate.fate != Fate::Mooted && gate.status() == State::Pending;
        let step_id = step.step_id;
        // That nobody is asked any more may come of a decision that was purged; nothing else may.
        let depends = if waits && active.is_empty() { Kinds::DECIDED.and(Kinds::MOOTED) } else { Kinds::NONE };
        let detail = match (waits, active) {
            (true, [one]) if *one == &*step.approver || is_purged_text(one, self.process) => return,
            (false, []) => return,
            (true, [one]) => {
                format!("the pending step {step_id} is assigned to `{one}`, its approver is `{}`", step.approver)
            }
            (true, others) => format!("the pending step {step_id} has {} Active assignments, not one", others.len()),
            (false, others) => format!(
                "the step {step_id} ({}) of a settled gate or decision has {} Active assignments",
                step.state.as_str(),
                others.len()
            ),
        };
        self.find_unless(depends, Code::AssignmentCoverage, detail);
    }
}
