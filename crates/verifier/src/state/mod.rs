//! The stores against the records (`spec/bundle.md`, section 2): each row has its record, each record its row, and
//! they say the same.

mod gates;
mod grants;
mod rows;
mod run;

pub use grants::{Seen as GrantsSeen, compare as compare_grants, finish as finish_grants};

use crate::bytes::Id;
use crate::finding::{Claim, Code, Findings, PARTIALLY_PURGED, Place};
use crate::form::Kind::{Any, Bool, Hex, Int, List, Text};
use crate::form::{self, Form, maybe, must, or_null};
use crate::json::{self, Fault, Value};
use crate::process::{Fired, Kinds, Process};
use crate::record::require_text;
use crate::run::Run;
use rows::Row;
use std::collections::{HashMap, HashSet};

const LINE: Form = &[
    must("instance_id", Text),
    must("subject_ref", Text),
    must("initiator_ref", Text),
    or_null("definition", Text),
    must("declaration_digest", Hex),
    must("gate_spec_digest", Hex),
    must("started_at_us", Int),
    must("current_state", Text),
    must("sequence", Int),
    must("transitions", List),
    must("gates", List),
    must("approval_steps", List),
    must("assignments", List),
    maybe("run", Any),
];

const TRANSITION: Form = &[
    must("transition_id", Text),
    must("sequence_number", Int),
    must("from_state", Text),
    must("action", Text),
    must("to_state", Text),
    must("fired_at_us", Int),
    must("actor_ref", Text),
    must("guard_satisfied", Bool),
    or_null("step_id", Text),
    or_null("chain_id", Text),
    must("event_id", Text),
];

/// A line of `state.jsonl`, which has its form.
pub struct StateLine {
    pub instance_id: Id,
    value: Value,
}

pub fn parse(line: &[u8]) -> Result<StateLine, Fault> {
    let value = json::parse_integers(line)?;
    form::check_exactly(&value, LINE)?;
    let syntax = |detail: &str| Fault { kind: json::FaultKind::Syntax, detail: detail.to_owned() };
    let instance_id =
        Id::parse(require_text(&value, "instance_id")?).ok_or_else(|| syntax("`instance_id` is no id"))?;
    for (name, members) in [
        ("transitions", TRANSITION),
        ("gates", gates::GATE),
        ("approval_steps", gates::STEP),
        ("assignments", gates::ASSIGNMENT),
    ] {
        let rows = value.get(name).and_then(Value::as_list).unwrap_or_default();
        for row in rows {
            let within = |fault: Fault| Fault { detail: format!("{instance_id}, {name}: {fault}"), ..fault };
            form::check_exactly(row, members).map_err(within)?;
        }
    }
    if let Some(run) = value.get("run") {
        let within = |fault: Fault| Fault { detail: format!("{instance_id}, run: {fault}"), ..fault };
        form::check_exactly(run, run::RUN).map_err(within)?;
        for step in run.get("steps").and_then(Value::as_list).unwrap_or_default() {
            form::check_exactly(step, run::STEP).map_err(within)?;
        }
    }
    Ok(StateLine { instance_id, value })
}

impl StateLine {
    fn rows(&self, name: &str) -> &[Value] {
        self.value.get(name).and_then(Value::as_list).unwrap_or_default()
    }
}

/// Where a comparison reports to, and what may excuse a difference.
struct Compare<'a> {
    process: &'a Process,
    findings: &'a mut Findings,
}

impl Compare<'_> {
    fn find(&mut self, code: Code, detail: impl Into<String>) {
        self.findings.find(code, Place::instance(self.process.instance_id), detail);
    }

    /// A fault, unless purged records could explain it.
    fn find_unless(&mut self, depends: Kinds, code: Code, detail: impl Into<String>) {
        if !self.process.purged.meets(depends) {
            return self.find(code, detail);
        }
        self.findings.unverifiable(code.claim());
        let detail = format!("`{}` cannot be told, for records were purged: {}", code.as_str(), detail.into());
        self.findings.note(PARTIALLY_PURGED, None, detail);
    }

    /// Reports how a row differs from what the records say.
    fn row(&mut self, row: Row<'_>, what: &str) {
        self.findings.checked(Claim::Completeness);
        if let Some(difference) = row.difference() {
            self.find(Code::RowMissing, format!("{what}: {difference}"));
        }
    }
}

/// Compares what the stores said of a process with what its records tell.
pub fn compare(line: &StateLine, process: &Process, run: Option<&Run>, head: u64, findings: &mut Findings) {
    let mut compare = Compare { process, findings };
    compare.orders(line);
    compare.process_row(line, head);
    compare.transitions(line.rows("transitions"));
    compare.gates(line);
    compare.run(line, run);
}

impl Compare<'_> {
    fn orders(&mut self, line: &StateLine) {
        let numbers = line.rows("transitions").iter().map(|row| row.int("sequence_number")).is_sorted();
        let by = |name: &str, key: &str| line.rows(name).iter().map(|row| row.text(key)).is_sorted();
        let ordered = [
            ("transitions", numbers),
            ("gates", by("gates", "gate_id")),
            ("approval_steps", by("approval_steps", "step_id")),
            ("assignments", by("assignments", "assignment_id")),
        ];
        for (name, _) in ordered.into_iter().filter(|(_, sorted)| !sorted) {
            self.find(Code::BundleForm, format!("the rows of `{name}` are not in their order"));
        }
    }

    fn process_row(&mut self, line: &StateLine, head: u64) {
        let process = self.process;
        let mut row = Row::new(&line.value);
        row.natural("sequence", Some(head));
        if let Some(begun) = &process.begun {
            row.text("initiator_ref", Some(&begun.initiator));
            row.int("started_at_us", Some(begun.at_us));
        }
        match (&process.started, &process.begun) {
            (Some(started), _) => {
                row.text("subject_ref", Some(&started.subject_ref));
                row.text("definition", started.definition.as_deref());
                row.text("declaration_digest", Some(&started.declaration_digest.to_string()));
                row.text("gate_spec_digest", Some(&started.gate_spec_digest.to_string()));
            }
            (None, Some(begun)) if process.is_start_purged() => {
                row.text("subject_ref", Some(&format!("purged:{}", begun.event_id)));
                self.findings.unverifiable(Claim::Completeness);
            }
            _ => self.find(Code::RecordMissing, "the stores hold a process whose start no record tells"),
        }
        self.row(row, "the process");
        let stated = line.value.text("current_state");
        self.findings.checked(Claim::DeclaredPath);
        if let Some(state) = process.state.as_ref().filter(|state| stated != Some(&***state)) {
            let stated = stated.unwrap_or("nothing");
            let detail =
                format!("the stores say `{}`, replay of the records ends in `{state}`", json::shortened(stated));
            self.find(Code::ReplayMismatch, detail);
        }
    }

    fn transitions(&mut self, rows: &[Value]) {
        let process = self.process;
        let known: HashMap<Id, &Fired> = process.fired.iter().map(|fired| (fired.event_id, fired)).collect();
        let mut seen = HashSet::new();
        for value in rows {
            let event_id = value.text("event_id").and_then(Id::parse);
            let what = format!("transition {}", value.int("sequence_number").unwrap_or_default());
            if event_id.is_none_or(|id| !seen.insert(id)) {
                self.find(Code::RecordMissing, format!("{what} names no event of its own"));
                continue;
            }
            let fired = event_id.and_then(|id| known.get(&id));
            let Some(fired) = fired else {
                let purged = event_id.and_then(|id| process.purged_events.get(&id));
                if purged != Some(&Kinds::FIRED) {
                    self.find(Code::RecordMissing, format!("{what} has no `transition_fired`"));
                }
                continue;
            };
            let mut row = Row::new(value);
            row.id("transition_id", Some(fired.transition_id));
            row.natural("sequence_number", Some(fired.sequence_number));
            row.text("from_state", Some(&fired.from_state));
            row.text("action", Some(&fired.action));
            row.text("to_state", Some(&fired.to_state));
            row.int("fired_at_us", Some(fired.at_us));
            row.text("actor_ref", Some(&fired.by));
            row.flag("guard_satisfied", fired.guarded);
            row.id("step_id", fired.step_id);
            row.id("chain_id", fired.chain_id);
            self.row(row, &what);
        }
        let purged = process.purged_events.iter().filter(|(_, kind)| **kind == Kinds::FIRED).map(|(id, _)| *id);
        let recorded = process.fired.iter().map(|fired| fired.event_id).chain(purged);
        for event_id in recorded.filter(|id| !seen.contains(id)).collect::<Vec<_>>() {
            self.find(Code::RowMissing, format!("the firing {event_id} has no row among the transitions"));
        }
    }
}
