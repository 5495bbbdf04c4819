//! Rows of gates, approval steps and assignments against the gates that replay knows.

use super::rows::Row;
use super::{Compare, StateLine};
use crate::bytes::Id;
use crate::finding::{Claim, Code};
use crate::form::Kind::{self, Bool, Int, Text};
use crate::form::{Form, must, or_null};
use crate::json::Value;
use crate::process::Kinds;
use crate::process::gate::{Fate, Gate, Reason, Step};
use crate::process::quorum::{Rule, State};
use std::collections::{HashMap, HashSet};

const STATES: Kind = Kind::OneOf(&["Pending", "Approved", "Rejected", "Withdrawn"]);

pub const GATE: Form = &[
    must("gate_id", Text),
    must("from_state", Text),
    must("action", Text),
    must("guard", Text),
    must("scope", Text),
    must("opened_at_us", Int),
    must("opened_by", Text),
    or_null("rule", Kind::OneOf(&["all-of-n", "one-of-n", "m-of-n"])),
    or_null("m", Int),
    or_null("chain_state", STATES),
    must("fate", Kind::OneOf(&["unspent", "consumed", "mooted"])),
    must("current", Bool),
];

pub const STEP: Form = &[
    must("step_id", Text),
    must("gate_id", Text),
    must("action", Text),
    must("subject_ref", Text),
    must("approver_ref", Text),
    must("submitter_ref", Text),
    must("scope", Text),
    must("submitted_at_us", Int),
    must("state", STATES),
    or_null("ended_by", Text),
    or_null("ended_at_us", Int),
    or_null("ended_reason", Text),
];

pub const ASSIGNMENT: Form = &[
    must("assignment_id", Text),
    must("task_ref", Text),
    must("assignee_ref", Text),
    must("assigned_at_us", Int),
    must("status", Kind::OneOf(&["Active", "Recalled", "Transferred"])),
    or_null("ended_at_us", Int),
];

/// An entry of an in-tray, as the records tell it.
struct Entry<'a> {
    assignment_id: Id,
    task_ref: Id,
    assignee: &'a str,
    assigned_at_us: i64,
    status: &'static str,
    ended_at_us: Option<i64>,
    is_sure: bool,
}

/// Those of a step: its approver's, and its substitute's where one decided.
fn entries<'a>(gate: &Gate, step: &'a Step) -> impl Iterator<Item = (Id, Entry<'a>)> {
    let ended_at_us = step.recalled_at_us;
    let left = if ended_at_us.is_some() { "Recalled" } else { "Active" };
    let own = Entry {
        assignment_id: step.assignment_id,
        task_ref: step.step_id,
        assignee: &step.approver,
        assigned_at_us: gate.opened_at_us,
        status: if step.transfer.is_some() { "Transferred" } else { left },
        ended_at_us,
        is_sure: !step.recall_unknown,
    };
    let taken = step.transfer.as_ref().map(|transfer| Entry {
        assignment_id: transfer.assignment_id,
        task_ref: step.step_id,
        assignee: &transfer.to,
        assigned_at_us: transfer.at_us,
        status: left,
        ended_at_us,
        is_sure: !step.recall_unknown,
    });
    [Some(own), taken].into_iter().flatten().map(|entry| (entry.assignment_id, entry))
}

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
        let mut row = Row::new(value);
        row.text("from_state", Some(&gate.from_state));
        row.text("action", Some(&gate.action));
        row.text("guard", Some(&gate.guard));
        row.text("scope", Some(&gate.scope));
        row.int("opened_at_us", Some(gate.opened_at_us));
        row.text("opened_by", Some(&gate.opened_by));
        if gate.rule != Some(Rule::Unknown) {
            row.text("rule", gate.rule.map(|rule| rule.as_str()));
            row.natural("m", gate.rule.and_then(|rule| rule.m()));
        }
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
        let mut row = Row::new(value);
        row.id("gate_id", Some(gate.id));
        row.text("action", Some(&gate.action));
        row.text("approver_ref", Some(&step.approver));
        row.text("scope", Some(&gate.scope));
        row.int("submitted_at_us", Some(gate.opened_at_us));
        if let Some(begun) = &process.begun {
            row.text("submitter_ref", Some(&begun.initiator));
            let purged = format!("purged:{}", begun.event_id);
            let subject = process.started.as_ref().map_or(purged.as_str(), |started| &started.subject_ref);
            row.text("subject_ref", Some(&format!("{subject}:{}", gate.action)));
        }
        let what = format!("step {}", step.step_id);
        let stated = value.text("state").and_then(State::parse);
        if step.assumed {
            // A record that was purged may have ended it: nothing is known of that.
            self.findings.unverifiable(Claim::Completeness);
        } else if stated != Some(step.state) {
            let stated = value.text("state").unwrap_or("nothing");
            let detail = format!("{what} is `{stated}` in the stores, `{}` by its records", step.state.as_str());
            // A decision in the stores that no record tells, or the other way round.
            let code = if step.state == State::Pending { Code::RecordMissing } else { Code::RowMissing };
            self.find(code, detail);
        } else if let Some(end) = &step.end {
            row.text("ended_by", Some(&end.by));
            row.int("ended_at_us", Some(end.at_us));
            let reason = value.text("ended_reason");
            if end.reason != Reason::of(reason) && !self.is_purged_reason(reason) {
                row.differs("ended_reason", None);
            }
        } else {
            row.text("ended_by", None);
            row.int("ended_at_us", None);
            row.text("ended_reason", None);
        }
        self.row(row, &what);
    }

    /// With a record that gave it, a reason goes: in its place stands which one, or nothing.
    fn is_purged_reason(&self, reason: Option<&str>) -> bool {
        let Some(reason) = reason else { return self.process.purged.meets(Kinds::DECIDED) };
        let event_id = reason.strip_prefix("purged:").and_then(Id::parse);
        event_id.and_then(|id| self.process.purged_events.get(&id)) == Some(&Kinds::DECIDED)
    }

    fn assignments(&mut self, line: &StateLine) {
        let gates = self.process.gates.iter();
        let mut known: HashMap<Id, Entry<'_>> =
            gates.flat_map(|gate| gate.steps.iter().flat_map(move |step| entries(gate, step))).collect();
        for value in line.rows("assignments") {
            let found = value.text("assignment_id").and_then(Id::parse).and_then(|id| known.remove(&id));
            let Some(entry) = found else {
                let detail = "the stores hold an assignment that no `gate_opened` tells, or hold one twice";
                // One that was purged may have made it a substitute's.
                self.find_unless(Kinds::OPENED.and(Kinds::DECIDED), Code::AssignmentCoverage, detail);
                continue;
            };
            let mut row = Row::new(value);
            row.id("task_ref", Some(entry.task_ref));
            row.int("assigned_at_us", Some(entry.assigned_at_us));
            row.text("assignee_ref", Some(entry.assignee));
            if entry.is_sure {
                row.text("status", Some(entry.status));
                row.int("ended_at_us", entry.ended_at_us);
            }
            self.row(row, &format!("assignment {}", entry.assignment_id));
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
        let detail = match (waits, active) {
            (_, []) if step.assumed || step.recall_unknown => return,
            (_, [one]) if step.assumed && *one == &*step.approver => return,
            (true, [one]) if *one == &*step.approver => return,
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
        self.find(Code::AssignmentCoverage, detail);
    }
}
