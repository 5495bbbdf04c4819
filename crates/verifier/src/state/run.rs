//! What the stores say of a run against what its records tell (`spec/run.md`, section 7).

use super::rows::Row;
use super::{Compare, StateLine};
use crate::bytes::{Digest, sha256};
use crate::finding::{Claim, Code};
use crate::form::Kind::{self, Bool, Hex, Int, List, Text};
use crate::form::{Form, maybe, must, or_null};
use crate::json::{self, Value};
use crate::run::read::Told;
use crate::run::{Run, Step};

pub const RUN: Form = &[
    must("document_digest", Hex),
    must("state", Text),
    or_null("outcome", Text),
    must("priority", Int),
    or_null("start_at_us", Int),
    or_null("executing_since_us", Int),
    or_null("completed_at_us", Int),
    or_null("failed_at_us", Int),
    or_null("last_error", Text),
    or_null("input", Text),
    must("input_digest", Hex),
    or_null("output", Text),
    or_null("output_digest", Hex),
    or_null("correlation_key", Text),
    or_null("concurrency_key", Text),
    or_null("corrects", Text),
    or_null("continues", Text),
    or_null("parent_run_id", Text),
    or_null("parent_step_seq", Int),
    maybe("machine_digest", Hex),
    must("steps", List),
];

pub const STEP: Form = &[
    must("step_seq", Int),
    must("name", Text),
    or_null("compensates", Int),
    must(
        "state",
        Kind::OneOf(&[
            "not_started",
            "ready",
            "in_progress",
            "waiting",
            "blocked",
            "overdue",
            "failed",
            "cannot_complete",
            "completed",
            "skipped",
            "cancelled",
        ]),
    ),
    must("attempts", Int),
    or_null("started_at_us", Int),
    or_null("completed_at_us", Int),
    or_null("last_error", Text),
    or_null("error_category", Text),
    must("effect_unknown", Bool),
    or_null("child_run_id", Text),
    or_null("output", Text),
    or_null("output_digest", Hex),
    maybe("charge", Kind::Any),
    maybe("derived_state", Kind::Text),
];

const TEXTS: [&str; 5] = ["correlation_key", "concurrency_key", "corrects", "continues", "parent_run_id"];

impl Compare<'_> {
    pub(super) fn run(&mut self, line: &StateLine, run: Option<&Run>) {
        let value = line.value.get("run");
        let (run, value) = match (run, value) {
            (None, None) => return,
            (Some(run), Some(value)) => (run, value),
            (None, Some(_)) => {
                return self.find(Code::RecordMissing, "the stores call it a run, its records are those of a process");
            }
            (Some(_), None) => {
                return self.find(Code::RowMissing, "its records are those of a run, the stores call it a process");
            }
        };
        self.digests(value, "input");
        self.digests(value, "output");
        if run.lost {
            return self.findings.unverifiable(Claim::Completeness);
        }
        let mut row = Row::new(value);
        if let Some(begin) = &run.begin {
            row.text("document_digest", Some(&begin.document_digest.to_string()));
            row.int("priority", Some(begin.priority));
            row.int("start_at_us", begin.start_at_us);
            row.int("parent_step_seq", begin.parent_step_seq);
            for name in TEXTS {
                row.text(name, begin.texts.get(name).map(String::as_str));
            }
            same_value(&mut row, value, "input", Some(&begin.input));
        }
        row.text("outcome", run.outcome.as_deref());
        row.text("last_error", run.last_error.as_deref());
        row.int("executing_since_us", run.executing_since_us);
        row.int("completed_at_us", run.completed_at_us);
        row.int("failed_at_us", run.failed_at_us);
        same_value(&mut row, value, "output", run.output.as_ref());
        self.row(row, "the run");
        if value.given("machine_digest").map(Value::as_text)
            != run.machine_digest.map(|d| d.to_string()).as_deref().map(Some)
        {
            self.find(
                Code::RowMissing,
                "the run: the document of its own machine is another one than it was started under",
            );
        }
        self.findings.checked(Claim::DeclaredPath);
        if value.text("state") != Some(run.state) {
            let stated = value.text("state").unwrap_or("nothing");
            let detail = format!("the stores say `{}`, the records lead to `{}`", json::shortened(stated), run.state);
            self.find(Code::ReplayMismatch, detail);
        }
        self.run_steps(value.get("steps").and_then(Value::as_list).unwrap_or_default(), run);
    }

    fn run_steps(&mut self, rows: &[Value], run: &Run) {
        if rows.len() != run.steps.len() {
            let code = if rows.len() < run.steps.len() { Code::RowMissing } else { Code::RecordMissing };
            self.find(code, format!("{} steps in the stores, {} by the records", rows.len(), run.steps.len()));
        }
        for ((seq, step), value) in run.steps.iter().enumerate().zip(rows) {
            self.digests(value, "output");
            let mut row = Row::new(value);
            row.natural("step_seq", Some(seq as u64));
            row.text("name", Some(&step.name));
            row.natural("compensates", step.compensates.map(|seq| seq as u64));
            self.step_row(row, value, seq, step);
        }
        self.taken_over(rows, run);
    }

    fn step_row(&mut self, mut row: Row<'_>, value: &Value, seq: usize, step: &Step) {
        if value.text("state") != Some(step.state) {
            let stated = value.text("state").unwrap_or("nothing");
            let detail = format!("step {seq} is {stated} in the stores, {} by the records", step.state);
            self.find(Code::ReplayMismatch, detail);
        }
        row.int("attempts", Some(step.attempts));
        row.int("started_at_us", step.started_at_us);
        row.int("completed_at_us", step.completed_at_us);
        row.text("last_error", step.last_error.as_deref());
        row.text("error_category", step.category.as_deref());
        row.flag("effect_unknown", step.effect_unknown);
        row.id("child_run_id", step.child);
        if !step.taken_over {
            same_value(&mut row, value, "output", step.output.as_ref());
        }
        self.row(row, &format!("step {seq}"));
        if !step.charge.is(value.given("charge")) {
            let detail = format!("step {seq}: who is in charge, and what was promised or missed, is not as recorded");
            self.find(Code::RowMissing, detail);
        }
        if value.given("derived_state").map(Value::as_text) != step.derived.as_deref().map(Some) {
            let stated = value.text("derived_state").unwrap_or("nothing");
            let told = step.derived.as_deref().unwrap_or("nothing");
            let detail = format!("over the state of step {seq} lies {stated} in the stores, {told} by the records");
            self.find(Code::ReplayMismatch, detail);
        }
    }

    /// The outputs that came from another run, as one digest.
    fn taken_over(&mut self, rows: &[Value], run: &Run) {
        let Some(expected) = run.begin.as_ref().and_then(|begin| begin.outputs_digest) else { return };
        let lines: String = rows
            .iter()
            .enumerate()
            .filter(|(seq, _)| run.steps.get(*seq).is_some_and(|step| step.taken_over))
            .filter_map(|(seq, row)| Some(format!("{seq} {}\n", row.text("output_digest")?)))
            .collect();
        if sha256(&[lines.as_bytes()]) != expected {
            self.find(Code::RowMissing, "the outputs that were taken over are not those that the start recorded");
        }
    }

    /// A text that stands there is the one whose digest does.
    fn digests(&mut self, value: &Value, name: &str) {
        let digest = value.text(&format!("{name}_digest")).and_then(Digest::parse);
        if value.text(name).is_some_and(|text| digest != Some(sha256(&[text.as_bytes()]))) {
            self.find(Code::RowMissing, format!("`{name}_digest` is not that of `{name}`"));
        }
    }
}

/// Equal as values where the record has it in full, and by digest where it has that.
fn same_value(row: &mut Row<'_>, value: &Value, name: &str, told: Option<&Told>) {
    let digest_name = format!("{name}_digest");
    match told {
        None => row.text(&digest_name, None),
        Some(Told::Digest(digest)) => row.text(&digest_name, Some(&digest.to_string())),
        Some(Told::Value(expected)) => {
            let stored = value.text(name).and_then(|text| json::parse(text.as_bytes()).ok());
            if stored.as_ref() != Some(expected) {
                row.differs(name, Some("another value".to_owned()));
            }
        }
    }
}
