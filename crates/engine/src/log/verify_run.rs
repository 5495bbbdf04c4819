//! The rows of a run against its records: where every step stands, how often it was tried, what it yielded, and how the run
//! ended. Whoever edits a run beside the ledger is found here. Its gates are compared as those of a process.

use super::finding::Finding;
use super::verify_book::Book;
use super::verify_rollup::{self, Frozen};
use super::{verify_columns, verify_rows};
use crate::evidence::{RunState, run_lines};
use crate::purge::{place, places, ranges, told};
use crate::rows::{ChargeRow, CorrectionRow, RecordRow, StepState};
use countersign_kernel::lifecycle::{RUN_TRANSITIONS, RunState as RunCode, STEP_TRANSITIONS, StepCode};
use countersign_kernel::plan::Plan;
use countersign_kernel::{EventId, Time};
use countersign_ledger::sha256;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// The rows of one run against its records, in order. Where content was purged, what depends on it cannot be told.
pub fn run(state: &RunState, plan: Option<&Arc<Plan>>, records: &[RecordRow]) -> Vec<Finding> {
    let run = plan.and_then(|plan| verify_rollup::assembled(state, plan));
    let mut found = verify_columns::copies(state);
    found.extend(run.iter().flat_map(|run| verify_columns::planned(run, state)));
    let mut findings = vec![];
    let ended = RunCode::parse(&state.view.head.state).is_some_and(RunCode::is_ended);
    match Replay::of(state, plan, records) {
        Some(mut replay) => {
            findings = verify_rows::process(&run_lines::shell(state), records);
            replay.compare(state);
            found.extend(replay.findings);
            found.extend(run.iter().flat_map(|run| verify_rollup::check(state, run, replay.frozen.as_ref())));
        }
        // Only a run that has ended is purged, and its roll-up follows from its steps alone.
        None if ended => found.extend(run.iter().flat_map(|run| verify_rollup::check(state, run, None))),
        None => {}
    }
    let run_id = state.view.row.instance_id;
    findings.extend(found.into_iter().map(|(code, detail)| Finding {
        code,
        event_id: None,
        instance_id: Some(run_id),
        detail: format!("{run_id}: {detail}"),
    }));
    findings
}

#[derive(Clone, Default)]
pub(super) struct Step {
    pub state: String,
    pub compensates: Option<u64>,
    attempts: u64,
    last_error: Option<String>,
    category: Option<String>,
    effect_unknown: bool,
    pub child: Option<String>,
    started_at: Option<Time>,
    completed_at: Option<Time>,
    /// What the record says of the output, member and all.
    output: Option<Value>,
    taken_over: bool,
    /// What it waits for, while it does, and why its block is red, where it is.
    facet: Option<String>,
    wait: Option<Value>,
    block_reason: Option<String>,
    pub cause: Option<String>,
    pic: Option<String>,
    deadline: Option<Time>,
    start_by: Option<Time>,
    overdue_first_at: Option<Time>,
    sla_breach: Option<i64>,
    cycle: u32,
    corrections: Vec<Corrected>,
    /// Whose lease it is, while it is one.
    locked_by: Option<String>,
    /// When it may be claimed, while it is ready or failed.
    next_run_at: Option<Time>,
    blocked_since: Option<Time>,
    escalated_at: Option<Time>,
    declared_at: Option<Time>,
    /// What lies over its state, in a machine of one's own.
    derived: Option<String>,
}

/// A reopening: what its record says, and how the step was before it.
#[derive(Clone)]
struct Corrected {
    said: Value,
    approval_id: Option<String>,
    from: String,
    overdue_first_at: Option<Time>,
    sla_breach: Option<i64>,
    by: String,
    at: Time,
    event_id: EventId,
    /// Who closed it before, and when.
    prior: Option<(String, Time)>,
}

#[derive(Default)]
struct Replay<'r> {
    records: &'r [RecordRow],
    plan: Option<&'r Plan>,
    /// What a runbook keeps.
    book: Book,
    steps: Vec<Step>,
    /// The tasks of each step that has some.
    tasks: HashMap<usize, Vec<usize>>,
    start: Value,
    state: String,
    outcome: Option<String>,
    last_error: Option<String>,
    output: Option<Value>,
    executing_since: Option<Time>,
    completed_at: Option<Time>,
    failed_at: Option<Time>,
    /// It has begun to undo its work.
    undoing: bool,
    /// It was cancelled, and is once its work is undone.
    called_off: bool,
    /// While it is paused.
    frozen: Option<Frozen>,
    findings: Vec<(&'static str, String)>,
}

fn text(value: &Value, name: &str) -> Option<String> {
    value.get(name).and_then(Value::as_str).map(str::to_owned)
}

fn items<'v>(value: &'v Value, name: &str) -> impl Iterator<Item = &'v Value> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

impl<'r> Replay<'r> {
    /// `None`: a record is purged, or cannot be read, which was found before.
    fn of(state: &RunState, plan: Option<&'r Arc<Plan>>, records: &'r [RecordRow]) -> Option<Replay<'r>> {
        let mut replay = Replay { records, plan: plan.map(|plan| &**plan), ..Replay::new(state) };
        for row in records {
            // One at a time: a run may have hundreds of thousands.
            let payload = serde_json::from_slice::<Value>(row.record.payload()?).ok()?;
            replay.follow(row, &payload);
        }
        Some(replay)
    }

    fn new(state: &RunState) -> Replay<'r> {
        let planned = state.steps.iter().filter(|step| step.new.compensates.is_none()).count();
        let first = Step { state: "not_started".to_owned(), ..Step::default() };
        // A task is called `step/task`, and no step's name has a `/`.
        let by_name: HashMap<&str, usize> = (0..).zip(&state.steps).map(|(seq, step)| (&*step.new.name, seq)).collect();
        let mut tasks: HashMap<usize, Vec<usize>> = HashMap::new();
        for (seq, step) in (0..planned).zip(&state.steps) {
            let of = step.new.name.split_once('/').and_then(|(step, _)| by_name.get(step));
            if let Some(of) = of {
                tasks.entry(*of).or_default().push(seq);
            }
        }
        Replay { steps: vec![first; planned], tasks, state: "idle".to_owned(), ..Replay::default() }
    }

    /// A step is completed over none of its tasks, and none is left behind where it is passed over.
    fn check_tasks(&mut self, payload: &Value) {
        if self.tasks.is_empty() {
            return;
        }
        let moved = items(payload, "transitions").flat_map(|made| places(made, self.steps.len()));
        let ended: Vec<(usize, bool)> = moved
            .filter_map(|(seq, made)| match made.get("to").and_then(Value::as_str) {
                Some("completed") => Some((seq, true)),
                Some("skipped") => Some((seq, false)),
                _ => None,
            })
            .collect();
        for (seq, completed) in ended {
            let state = |task: &usize| self.steps.get(*task).map_or("", |task| task.state.as_str());
            let done = |task: &usize| match state(task) {
                "completed" | "skipped" => true,
                "cancelled" | "failed" | "cannot_complete" => !completed,
                _ => false,
            };
            let open = self.tasks.get(&seq).and_then(|tasks| tasks.iter().find(|task| !done(task)));
            if let Some(task) = open {
                let detail = format!("step {seq} has ended, and its task {task} is {}", state(task));
                self.findings.push(("undeclared-transition", detail));
            }
        }
    }

    fn follow(&mut self, row: &RecordRow, payload: &Value) {
        let at = row.recorded_at;
        if row.action_ref == "run_started" {
            self.start = payload.clone();
            let count = |name: &str| payload.get(name).and_then(Value::as_u64).unwrap_or_default();
            if usize::try_from(count("steps") + count("tasks")).ok() != Some(self.steps.len()) {
                self.findings
                    .push(("row-missing", "the stores hold another number of steps than were started".to_owned()));
            }
            for state in ["completed", "skipped"] {
                let seqs = payload.get("taken_over").and_then(|taken| text(taken, state)).unwrap_or_default();
                for seq in ranges(&seqs, self.steps.len()) {
                    if let Some(step) = self.steps.get_mut(seq) {
                        *step = Step { state: state.to_owned(), taken_over: true, ..Step::default() };
                    }
                }
            }
        }
        self.freeze(payload, at);
        for pair in items(payload, "compensations") {
            let compensates = pair.get(1).and_then(Value::as_u64);
            self.steps.push(Step { state: "not_started".to_owned(), compensates, ..Step::default() });
        }
        if let Some(effect) = payload.get("effect")
            && let Some(step) = place(effect).and_then(|seq| self.steps.get_mut(seq))
        {
            step.effect_unknown = false;
            // In a runbook its checks may not hold, or its pins may still be looked at: then it has yielded nothing yet.
            let yields = items(payload, "outputs").any(|entry| place(entry) == place(effect));
            if effect.get("done") == Some(&Value::Bool(true)) && yields {
                step.completed_at = Some(at);
            }
        }
        for charge in items(payload, "charges") {
            for seq in ranges(&text(charge, "step_seqs").unwrap_or_default(), self.steps.len()) {
                if let Some(step) = self.steps.get_mut(seq) {
                    step.pic = text(charge, "pic");
                    step.deadline = charge.get("deadline_us").and_then(Value::as_i64).map(Time);
                    step.start_by = charge.get("start_by_us").and_then(Value::as_i64).map(Time);
                }
            }
        }
        let before = place(payload).and_then(|seq| self.steps.get(seq)).cloned();
        for step_move in items(payload, "transitions") {
            self.move_steps(step_move, at);
        }
        self.check_tasks(payload);
        if let Some(plan) = self.plan {
            self.book.follow(at, payload, self.steps.len(), plan);
        }
        let corrected =
            payload.get("correction").zip(before).map(|(said, before)| self.corrected(row, payload, said, before));
        if let Some(step) = place(payload).and_then(|seq| self.steps.get_mut(seq)) {
            match row.action_ref.as_str() {
                "step_retry_ordered" => (step.started_at, step.next_run_at) = (None, Some(at)),
                "block_escalated" => drop(step.escalated_at.get_or_insert(at)),
                // Older records tell of no chain, and their steps have no such time.
                _ if payload.get("escalation").is_some() => step.escalated_at = Some(at),
                _ => {}
            }
            step.block_reason = text(payload, "block_reason").or(step.block_reason.take());
            step.corrections.extend(corrected);
            if let Some(own) = payload.get("own_transition") {
                step.derived = text(own, "to").filter(|to| *to != step.state);
            }
        }
        let limit = self.steps.len();
        for (seq, entry) in items(payload, "waits").flat_map(|entry| places(entry, limit)) {
            if let Some(step) = self.steps.get_mut(seq) {
                step.facet = text(entry, "facet").filter(|_| step.state == "waiting");
                step.wait = Some(entry.clone()).filter(|_| step.state == "waiting");
            }
        }
        for (seq, entry) in items(payload, "leases").flat_map(|entry| places(entry, limit)) {
            if let Some(step) = self.steps.get_mut(seq) {
                step.locked_by = text(entry, "worker_id");
            }
        }
        for (seq, entry) in items(payload, "severities").flat_map(|entry| places(entry, limit)) {
            if let Some(step) = self.steps.get_mut(seq) {
                step.cause = text(entry, "cause");
            }
        }
        for (seq, entry) in items(payload, "outputs").flat_map(|entry| places(entry, limit)) {
            if let Some(step) = self.steps.get_mut(seq) {
                step.output = Some(entry.clone());
            }
        }
        for (seq, entry) in items(payload, "errors").flat_map(|entry| places(entry, limit)) {
            if let Some(step) = self.steps.get_mut(seq) {
                step.attempts = entry.get("attempts").and_then(Value::as_u64).unwrap_or_default();
                step.last_error = text(entry, "last_error");
                if step.state == "failed" {
                    step.next_run_at = entry.get("next_run_at_us").and_then(Value::as_i64).map(Time);
                }
                step.category = text(entry, "error_category");
                step.effect_unknown = entry.get("effect_unknown") == Some(&Value::Bool(true));
            }
        }
        for entry in items(payload, "children") {
            if let Some(step) = place(entry).and_then(|seq| self.steps.get_mut(seq)) {
                step.child = text(entry, "run_id");
                step.locked_by = None;
            }
        }
        self.move_run(payload, at);
    }

    fn corrected(&self, row: &RecordRow, payload: &Value, said: &Value, before: Step) -> Corrected {
        let prior = text(said, "prior_event_id");
        let prior = self.records.iter().find(|row| Some(row.event_id.to_string()) == prior);
        Corrected {
            said: said.clone(),
            approval_id: text(payload, "approval_id"),
            from: before.state,
            overdue_first_at: before.overdue_first_at,
            sla_breach: before.sla_breach,
            by: row.actor_ref.clone(),
            at: row.recorded_at,
            event_id: row.event_id,
            prior: prior.map(|row| (row.actor_ref.clone(), row.recorded_at)),
        }
    }

    /// The colour of a paused run stands still, as it was before the pause.
    fn freeze(&mut self, payload: &Value, at: Time) {
        for run_move in items(payload, "run_transitions") {
            self.frozen = match run_move.get("to").and_then(Value::as_str) {
                Some("paused") => Some(Frozen { at, steps: self.steps.clone() }),
                _ => None,
            };
        }
    }

    fn move_steps(&mut self, step_move: &Value, at: Time) {
        let (id, from, to) = (text(step_move, "id"), text(step_move, "from"), text(step_move, "to"));
        let (id, from, to) = (id.unwrap_or_default(), from.unwrap_or_default(), to.unwrap_or_default());
        let declared = STEP_TRANSITIONS
            .iter()
            .any(|row| row.id == id && row.to.as_str() == to && row.from.iter().any(|state| state.as_str() == from));
        for (seq, _) in places(step_move, self.steps.len()) {
            let Some(step) = self.steps.get_mut(seq) else { continue };
            if !declared || step.state != from {
                let detail = format!("{id} of step {seq} from {from} to {to}, but it was {}", step.state);
                self.findings.push(("undeclared-transition", detail));
            }
            step.state.clone_from(&to);
            (step.facet, step.cause, step.derived) = (None, None, None);
            (step.wait, step.block_reason, step.escalated_at) = (None, None, None);
            step.blocked_since = (to == "blocked").then_some(at);
            // Nobody has claimed it in time: it can be claimed as before.
            let unclaimed = id == "X14";
            if !unclaimed {
                step.next_run_at = (to == "ready").then_some(at);
            }
            if !matches!(to.as_str(), "in_progress" | "overdue") {
                step.locked_by = None;
            }
            if to == "cannot_complete" {
                step.declared_at = Some(at);
            }
            match id.as_str() {
                "T5" | "X14" => drop(step.overdue_first_at.get_or_insert(at)),
                "T7" => step.sla_breach = step.deadline.map(|deadline| at.0 - deadline.0),
                "T8r" | "T12r" => {
                    step.cycle += 1;
                    step.declared_at = None;
                    (step.attempts, step.last_error, step.category, step.started_at) = (0, None, None, None);
                }
                _ => {}
            }
            if matches!(to.as_str(), "in_progress" | "overdue" | "blocked") && !unclaimed {
                step.started_at.get_or_insert(at);
            }
            if to == "completed" {
                step.completed_at = Some(at);
                step.effect_unknown = false;
            }
        }
    }

    fn move_run(&mut self, payload: &Value, at: Time) {
        for run_move in items(payload, "run_transitions") {
            let (id, from, to) = (text(run_move, "id"), text(run_move, "from"), text(run_move, "to"));
            let declared = RUN_TRANSITIONS.iter().any(|row| {
                (Some(row.id), Some(row.from.as_str()), Some(row.to.as_str()))
                    == (id.as_deref(), from.as_deref(), to.as_deref())
            });
            if !declared || from.as_deref() != Some(&self.state) {
                let detail = format!("the run goes from {from:?} to {to:?}, but it was {}", self.state);
                self.findings.push(("undeclared-transition", detail));
            }
            self.state = to.unwrap_or_default();
            match self.state.as_str() {
                "executing" => drop(self.executing_since.get_or_insert(at)),
                "completed" => self.completed_at = Some(at),
                "failed" => self.failed_at = Some(at),
                "compensating" => {
                    self.undoing = true;
                    self.called_off |= payload.get("compensate").and_then(Value::as_bool) == Some(true);
                }
                _ => {}
            }
        }
        if payload.get("output").is_some() || payload.get("output_digest").is_some() {
            self.output = Some(payload.clone());
        }
        self.last_error = text(payload, "last_error").or(self.last_error.take());
        // Only a record of the run itself says how it stands.
        if payload.get("run_transitions").is_some() || payload.get("outcome").is_some() {
            self.outcome = text(payload, "outcome");
        }
    }

    fn require(&mut self, holds: bool, code: &'static str, detail: impl FnOnce() -> String) {
        if !holds {
            self.findings.push((code, detail()));
        }
    }

    fn compare(&mut self, stored: &RunState) {
        let (row, head) = (&stored.view.row, &stored.view.head);
        let start = std::mem::take(&mut self.start);
        let said = |name: &str| text(&start, name);
        let id = |id: Option<countersign_kernel::InstanceId>| id.map(|id| id.to_string());
        let same = said("document_digest") == Some(row.document_digest.to_string())
            && told(&start, "input").is_some_and(|input| input.is(&row.input))
            && said("trace_id").as_deref() == row.trace_id.as_deref()
            && said("correlation_key").as_deref() == row.correlation_key.as_deref()
            && said("concurrency_key").as_deref() == row.concurrency_key.as_deref()
            && pinned(&start) == row.machine.as_ref().map(|machine| machine.named.clone())
            && said("corrects") == id(row.corrects)
            && said("continues") == id(row.continues)
            && said("parent_run_id") == id(row.parent.map(|(run_id, _)| run_id))
            && start.get("parent_step_seq").and_then(Value::as_u64) == row.parent.map(|(_, seq)| u64::from(seq))
            && start.get("priority").and_then(Value::as_u64) == Some(u64::from(head.priority))
            && start.get("start_at_us").and_then(Value::as_i64).map(Time) == head.start_at;
        self.require(same, "row-missing", || "the run's row is not what was recorded at its start".to_owned());
        let machine = stored.machine.as_ref().map(|document| sha256(&[document]));
        let whole = sha256(&[&stored.document]) == row.document_digest
            && machine == row.machine.as_ref().map(|machine| machine.digest);
        self.require(whole, "document-mismatch", || "its definition is another document".to_owned());

        let state = self.state.clone();
        self.require(state == head.state, "replay-mismatch", || {
            format!("the row says `{}`, the records lead to `{state}`", head.state)
        });
        let output = same_value(self.output.as_ref(), head.output.as_deref());
        let same = self.outcome == head.outcome
            && self.last_error.as_deref() == head.last_error.as_deref()
            && (self.executing_since, self.completed_at, self.failed_at)
                == (head.executing_since, head.completed_at, head.failed_at)
            && output;
        self.require(same, "row-missing", || "how the run stands is not as it was recorded".to_owned());
        // Of a run that has ended, or waits to be told of an effect, schema version 23 did not know it.
        let is_live = RunCode::parse(&head.state).is_some_and(|state| !state.is_ended());
        let is_known = is_live && head.outcome.as_deref() != Some("effect_unknown");
        let undoing = self.undoing;
        self.require(!is_known || undoing == head.undoing, "replay-mismatch", || {
            format!("the row says {} of whether the run is undone, the records {undoing}", head.undoing)
        });
        let called_off = self.called_off;
        self.require(!is_live || called_off == head.called_off, "replay-mismatch", || {
            format!("the row says {} of whether the run was called off, the records {called_off}", head.called_off)
        });
        if let Some(plan) = self.plan {
            self.findings.extend(self.book.compare(head.runbook.as_deref(), plan));
        }
        self.compare_steps(stored, &start);
    }

    fn compare_steps(&mut self, stored: &RunState, start: &Value) {
        let (rows, told) = (stored.steps.len(), self.steps.len());
        self.require(rows == told, "row-missing", || format!("{rows} steps in the stores, {told} by the records"));
        let mut lines = String::new();
        for (step, view) in self.steps.clone().into_iter().zip(&stored.steps) {
            let (seq, row) = (view.step_seq, &view.state);
            self.require(step.state == row.state.as_str(), "replay-mismatch", || {
                format!("step {seq} is {} in the stores, {} by the records", row.state, step.state)
            });
            let faceted = row.state != StepCode::Waiting || row.waiting_facet.is_some();
            self.require(faceted, "replay-mismatch", || format!("step {seq} waits, and nothing says for what"));
            if step.taken_over {
                lines.extend(row.output.as_ref().map(|output| format!("{seq} {}\n", sha256(&[output.as_bytes()]))));
            }
            let same = step.compensates == view.new.compensates.map(u64::from)
                && step.attempts == u64::from(row.attempts)
                && step.last_error.as_deref() == row.last_error.as_deref()
                && step.category.as_deref() == row.error_category
                && step.effect_unknown == row.effect_unknown
                && step.child == row.child_run_id.map(|id| id.to_string())
                && (step.started_at, step.completed_at) == (row.started_at, row.completed_at)
                && step.facet.as_deref() == row.waiting_facet
                && step.cause.as_deref() == row.blocked_cause
                && same_wait(&step, row)
                && same_times(&step, row)
                && same_charge(&step, &row.charge)
                && same_corrections(&step, stored.corrections.iter().filter(|c| c.step_seq == seq))
                && (step.taken_over || same_value(step.output.as_ref(), row.output.as_deref()));
            self.require(same, "row-missing", || format!("step {seq} (`{}`) is not as it was recorded", view.new.name));
        }
        if let Some(taken) = start.get("taken_over") {
            let same = text(taken, "outputs_digest") == Some(sha256(&[lines.as_bytes()]).to_string());
            self.require(same, "row-missing", || "the outputs that were taken over are others".to_owned());
        }
    }
}

/// The machine of one's own that a start names beside the engine's.
fn pinned(start: &Value) -> Option<String> {
    let named = items(start, "machines").filter_map(Value::as_str);
    let engines = |name: &str| countersign_kernel::lifecycle::machine(name).is_some();
    named.filter(|named| !engines(named.split('@').next().unwrap_or_default())).map(str::to_owned).next()
}

/// What a waiting step waits for, and why a person blocked one.
fn same_wait(step: &Step, row: &StepState) -> bool {
    let said = |name: &str| step.wait.as_ref().and_then(|wait| text(wait, name));
    let secondary: Vec<&str> =
        step.wait.iter().flat_map(|wait| items(wait, "secondary_facets")).filter_map(Value::as_str).collect();
    said("event_type").as_deref() == row.waiting_event_type.as_deref()
        && secondary.join(",") == row.charge.secondary_facets.as_deref().unwrap_or_default()
        && step.block_reason.as_deref() == row.charge.block_reason
}

/// Who holds the step, and when it is to be taken up. How long a lease was prolonged no record says.
fn same_times(step: &Step, row: &StepState) -> bool {
    let wait_ends = step.wait.as_ref().and_then(|wait| wait.get("deadline_at_us")).and_then(Value::as_i64).map(Time);
    let to_be_claimed = matches!(row.as_offered(), StepCode::Ready | StepCode::Failed);
    let charge = &row.charge;
    step.locked_by.as_deref() == row.locked_by.as_deref()
        && wait_ends == row.deadline_at
        && (!to_be_claimed || step.next_run_at == row.next_run_at)
        && (step.blocked_since, step.escalated_at, step.declared_at)
            == (row.blocked_since, charge.escalated_at, charge.declared_at)
}

fn same_charge(step: &Step, row: &ChargeRow) -> bool {
    step.pic.as_deref() == row.pic.as_deref()
        && (step.deadline, step.start_by, step.overdue_first_at) == (row.deadline, row.start_by, row.overdue_first_at)
        && step.sla_breach == row.sla_breach
        && step.cycle == row.cycle
        && step.derived.as_deref() == row.derived_state.as_deref()
}

/// Each reopening stands beside what it reopened, with the output that the step had then.
fn same_corrections<'r>(step: &Step, rows: impl Iterator<Item = &'r CorrectionRow>) -> bool {
    let rows: Vec<&CorrectionRow> = rows.collect();
    rows.len() == step.corrections.len()
        && rows.iter().zip(&step.corrections).all(|(row, corrected)| {
            let said = &corrected.said;
            said.get("cycle").and_then(Value::as_u64) == Some(u64::from(row.cycle))
                && text(said, "correction_reason").as_deref() == Some(row.correction_reason)
                && text(said, "prior_event_id") == Some(row.prior_event_id.to_string())
                && corrected.approval_id == Some(row.approval_id.to_string())
                && corrected.from == row.from_state.as_str()
                && (corrected.overdue_first_at, corrected.sla_breach) == (row.overdue_first_at, row.sla_breach)
                && (corrected.by.as_str(), corrected.at, corrected.event_id)
                    == (row.reopened_by.as_str(), row.reopened_at, row.event_id)
                && corrected.prior.as_ref().map(|(by, at)| (by.as_str(), *at))
                    == Some((row.prior_actor_ref.as_str(), row.prior_at))
                && same_value(Some(said), row.output.as_deref())
        })
}

/// Whether the stored text is what the record says, in full or by digest.
fn same_value(said: Option<&Value>, stored: Option<&str>) -> bool {
    match (said.and_then(|said| told(said, "output")), stored) {
        (None, None) => true,
        (Some(told), Some(text)) => told.is(text),
        _ => false,
    }
}
