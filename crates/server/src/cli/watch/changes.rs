//! What has changed in a run since it was last looked at.

use crate::cli::output::printable;
use crate::cli::run_view::{attempts, details, drift_lines, error_text, label, named, state_text, step_tint};
use crate::cli::table::tint;
use countersign_client::Answer;
use countersign_client::wire::{DriftView, RunView, StepView};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::HashMap;

/// What a line about the run tells.
#[derive(PartialEq)]
struct Known {
    state: String,
    outcome: Option<String>,
    phase: Option<String>,
    drift: Vec<DriftView>,
}

/// What was seen last.
#[derive(Default)]
pub struct Changes {
    run: Option<Known>,
    steps: HashMap<u32, Value>,
}

pub enum Change<'a> {
    Run {
        /// Nothing was known of it before.
        is_first: bool,
    },
    Step(&'a StepView, &'a Value),
}

impl Changes {
    /// Everything that is new in this answer, in the order in which it happened. A step that has not begun is no news.
    pub fn take<'a>(
        &mut self,
        answer: &'a Answer<RunView>,
        now: Timestamp,
    ) -> impl Iterator<Item = Change<'a>> + use<'a> {
        let mut changes = vec![];
        let RunView { state, outcome, phase, drift, .. } = answer.body.clone();
        let run = Known { state, outcome, phase, drift };
        let run_changed = self.run.as_ref() != Some(&run);
        let ended = crate::cli::run_view::is_ended(&run.state);
        let is_first = self.run.is_none();
        if run_changed {
            self.run = Some(run);
        }
        let raw = answer.json.get("steps").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for (step, raw) in answer.body.steps.iter().zip(raw) {
            let essence = essence(raw);
            let known = self.steps.insert(step.step_seq, essence.clone());
            let news = known.map_or(step.state_code != "not_started", |known| known != essence);
            if news {
                changes.push(Change::Step(step, raw));
            }
        }
        changes.sort_by_key(|change| change.at(&answer.body, now));
        // The end of the run is the last thing to say, any other state the first.
        if run_changed {
            changes.insert(if ended { changes.len() } else { 0 }, Change::Run { is_first });
        }
        changes.into_iter()
    }
}

/// The step without what changes by itself: a heartbeat moves `locked_until` and nothing else.
fn essence(step: &Value) -> Value {
    let mut step = step.clone();
    if let Some(fields) = step.as_object_mut() {
        fields.remove("locked_until");
    }
    step
}

impl Change<'_> {
    /// When it happened, as far as that is known; else when it was seen.
    fn at(&self, run: &RunView, now: Timestamp) -> Timestamp {
        let at = match self {
            Change::Run { is_first } => match run.state.as_str() {
                "idle" | "queued" => Some(&run.started_at),
                // Since its start or, where it had to wait, since its first step at the latest.
                "executing" if *is_first && run.start_at.is_none() && run.concurrency_key.is_none() => {
                    Some(&run.started_at)
                }
                "executing" if *is_first => run.steps.iter().filter_map(|step| step.started_at.as_ref()).min(),
                _ => run.ended_at.as_ref().or(run.halted_at.as_ref()),
            },
            Change::Step(step, _) => match step.state_code.as_str() {
                "completed" => step.completed_at.as_ref(),
                "in_progress" => step.started_at.as_ref(),
                "overdue" => step.overdue_first_at.as_ref(),
                "blocked" => step.blocked_since.as_ref(),
                _ => None,
            },
        };
        at.and_then(|at| at.parse().ok()).unwrap_or(now)
    }

    /// One line, with tints.
    pub fn line(&self, run: &RunView, now: Timestamp) -> String {
        let at = self.at(run, now).strftime("%H:%M:%SZ");
        match self {
            Change::Run { .. } => {
                let why = run.last_error.as_deref().map(|error| error_text(run, error)).or_else(|| run.reason.clone());
                let error = why.map_or_else(String::new, |why| format!(": {}", printable(&why)));
                let phase =
                    run.phase.as_ref().map_or_else(String::new, |phase| format!(", phase {}", printable(phase)));
                let drift = drift_lines(&run.drift, &run.pin_errors);
                let drift: String = drift.iter().map(|line| format!("\n           {line}")).collect();
                format!("{at}  run is {}{phase}{error}{drift}", state_text(&run.state, run.outcome.as_deref()))
            }
            Change::Step(step, _) => {
                let state = tint(step_tint(step), &format!("{} {}", step.appearance.icon, label(step)));
                let attempt = attempts(step);
                let attempt = if attempt.is_empty() { attempt } else { format!(" (attempt {attempt})") };
                let details = details(run, step, now);
                let details = if details.is_empty() { details } else { format!(", {details}") };
                format!("{at}  {} {state}{attempt}{details}", named(step))
            }
        }
    }

    pub fn json(&self, run: &RunView, now: Timestamp) -> Value {
        let at = format!("{:.6}", self.at(run, now));
        match self {
            Change::Run { .. } => json!({
                "at": at, "change": "run", "run_id": run.run_id, "state": run.state, "outcome": run.outcome,
                "rollup": run.rollup, "last_error": run.last_error, "output": run.output, "phase": run.phase,
                "drift": run.drift,
            }),
            Change::Step(_, raw) => json!({"at": at, "change": "step", "run_id": run.run_id, "step": raw}),
        }
    }
}
