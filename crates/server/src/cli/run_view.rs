//! A run drawn for people: its state, how far it is, every step with who holds it and what it waits for, and what can be
//! done next. `runs show` prints the picture once, `watch` again and again.

mod book;
mod next;
mod steps;
pub mod why;

use super::output::printable;
use super::table::{Tint, tint};
use super::terminal::{self, wrapped};
use super::time::{is_past, when};
use super::view::gates_table;
pub use book::{drift_lines, plain, short};
use countersign_client::wire::{ApprovalState, RunView, StepView};
use countersign_client::{Answer, Client, Error};
use jiff::Timestamp;
pub use next::next;
use serde_json::Value;
use std::collections::HashSet;
pub use steps::{attempts, details, is_retrying, label, named, step_tint};

/// More steps than this are folded: those that live are shown, the others are counted.
pub const MAX_ROWS: usize = 40;
const BAR: usize = 24;
/// What stands before a value of the header.
const NAMES: usize = 13;

/// The run with all its steps, from as many pages as it takes.
pub async fn whole(client: &Client, run_id: &str) -> Result<Answer<RunView>, Error> {
    let mut answer = client.run(run_id).await?;
    while let Some(cursor) = answer.body.steps_next.take() {
        let mut more = client.run_steps(run_id, &cursor).await?;
        answer.body.steps.append(&mut more.body.steps);
        answer.body.steps_next = more.body.steps_next.filter(|next| *next != cursor);
        if let (Some(Value::Array(steps)), Some(Value::Array(rest))) =
            (answer.json.get_mut("steps"), more.json.get_mut("steps"))
        {
            steps.append(rest);
        }
    }
    if let Some(json) = answer.json.as_object_mut() {
        json.remove("steps_next");
    }
    Ok(answer)
}

/// The whole picture, with tints, for the terminal that there is; at most `rows` steps in it.
pub fn render(run: &RunView, rows: usize, now: Timestamp) -> String {
    drawn(run, rows, terminal::width(), now)
}

fn drawn(run: &RunView, rows: usize, width: Option<usize>, now: Timestamp) -> String {
    let mut sections = vec![header(run, width, now), steps::table(run, rows, width, now)];
    sections.extend(book::sections(run));
    if !run.gates.is_empty() {
        sections.push(format!("{}\n{}", tint(Tint::Strong, "Gates"), gates_table(&run.gates, now)));
    }
    let next = next(run, now);
    if !next.is_empty() {
        let lines: Vec<String> =
            next.iter().map(|(why, command)| format!("  {why}\n{}", pasteable(command, width))).collect();
        sections.push(format!("{}\n{}", tint(Tint::Strong, "Next"), lines.join("\n")));
    }
    sections.join("\n\n")
}

/// A command that is too long for a line goes on in the next as a shell takes it.
fn pasteable(command: &str, width: Option<usize>) -> String {
    const INDENT: &str = "      ";
    let room = width.map_or(usize::MAX, |width| width.saturating_sub(INDENT.len() + 2).max(BAR));
    let lines: Vec<String> = wrapped(command, room).iter().map(|line| tint(Tint::Dim, line)).collect();
    format!("{INDENT}{}", lines.join(&format!(" \\\n{INDENT}  ")))
}

pub fn is_ended(state: &str) -> bool {
    matches!(state, "completed" | "failed" | "cancelled" | "voided")
}

/// Done as it was meant: not failed, not cancelled, and not undone either.
pub fn succeeded(run: &RunView) -> bool {
    run.state == "completed" && run.outcome.as_deref() != Some("rolled_back")
}

/// Nothing more comes of this step. A failed one may be tried again.
fn step_ended(step: &StepView) -> bool {
    match step.state_code.as_str() {
        "completed" | "skipped" | "cancelled" => true,
        "failed" => !is_retrying(step),
        _ => false,
    }
}

fn is_done(step: &StepView) -> bool {
    matches!(step.state_code.as_str(), "completed" | "skipped")
}

/// An error as it was reported; of a refused approval, with who refused it and why.
pub fn error_text(run: &RunView, error: &str) -> String {
    let state = match error {
        "REJECTED" => ApprovalState::Rejected,
        "WITHDRAWN" => ApprovalState::Withdrawn,
        _ => return error.to_owned(),
    };
    let Some(gate) = run.gates.iter().rev().find(|gate| gate.state == state) else { return error.to_owned() };
    let (by, why) = match state {
        ApprovalState::Withdrawn => (&gate.withdrawn_by, &gate.withdrawal_reason),
        _ => (&gate.decided_by, &gate.decision_reason),
    };
    format!("{error}{}", by_and_why(by.as_deref(), why.as_deref()))
}

/// ` by admin: wrong customer`, as far as it is known.
fn by_and_why(by: Option<&str>, why: Option<&str>) -> String {
    let by = by.map_or_else(String::new, |by| format!(" by {by}"));
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    by + &why
}

pub fn run_tint(state: &str, outcome: Option<&str>) -> Tint {
    match state {
        "completed" if outcome == Some("rolled_back") => Tint::Wait,
        "completed" | "executing" => Tint::Good,
        "idle" | "queued" | "cancelled" | "voided" => Tint::Dim,
        "failed" => Tint::Bad,
        _ => Tint::Wait,
    }
}

/// `executing`, `completed (rolled_back)`.
pub fn state_text(state: &str, outcome: Option<&str>) -> String {
    let text = match outcome.filter(|outcome| *outcome != state) {
        Some(outcome) => format!("{state} ({outcome})"),
        None => state.to_owned(),
    };
    tint(run_tint(state, outcome), &text)
}

fn header(run: &RunView, width: Option<usize>, now: Timestamp) -> String {
    // A run that was started without a subject is about itself.
    let about = if run.subject_ref == format!("run:{}", run.run_id) { &run.definition } else { &run.subject_ref };
    let mut lines =
        vec![format!("{} is {}", tint(Tint::Strong, about), state_text(&run.state, run.outcome.as_deref()))];
    let room = width.map_or(usize::MAX, |width| width.saturating_sub(NAMES).max(BAR));
    let mut line = |name: &str, value: String| {
        // However large an output is, it takes no room from the steps.
        let room = if name == "output" { usize::MAX } else { room };
        let value = wrapped(&value, room).join(&format!("\n{}", " ".repeat(NAMES)));
        lines.push(format!("  {} {value}", tint(Tint::Dim, &format!("{name:<10}"))));
    };
    line("run", printable(&run.run_id));
    line("definition", printable(&run.definition));
    line("started", format!("{} by {}", when(&run.started_at, now), printable(&run.initiator_ref)));
    let not_begun = matches!(run.state.as_str(), "idle" | "queued");
    let start_at = run.start_at.as_deref().filter(|at| not_begun && !is_past(at, now));
    if let Some(at) = start_at {
        line("not before", when(at, now));
    } else if let Some(key) = run.concurrency_key.as_ref().filter(|_| run.state == "queued") {
        line("waits", format!("for a slot: key {}", tint(Tint::Strong, key)));
    }
    for (at, by) in [(&run.ended_at, &run.ended_by), (&run.halted_at, &run.halted_by)] {
        if let Some(at) = at {
            let by_and_why = by_and_why(by.as_deref(), run.reason.as_deref());
            line(&run.state, format!("{}{}", when(at, now), printable(&by_and_why)));
        }
    }
    for (name, other) in [("corrects", &run.corrects), ("continues", &run.continues), ("child of", &run.parent_run_id)]
    {
        if let Some(other) = other {
            line(name, printable(other));
        }
    }
    if let Some(key) = &run.correlation_key {
        line("key", printable(key));
    }
    for (name, value) in book::header(run) {
        line(name, value);
    }
    if let Some(error) = &run.last_error {
        line("error", tint(Tint::Bad, &error_text(run, error)));
    }
    if let Some(cause) = why::root_cause(run) {
        line("root cause", cause);
    }
    if let Some(output) = run.output.as_ref().filter(|output| !output.is_null()) {
        line("output", printable(&output.to_string()));
    }
    line("progress", progress(run, now));
    lines.join("\n")
}

/// `████████░░░░ 2/4, 1 failed, 1 cancelled, red because of …`: what was done and was not undone again.
fn progress(run: &RunView, now: Timestamp) -> String {
    let planned = run.steps.iter().filter(|step| step.role != "task");
    let (steps, undoing): (Vec<_>, Vec<_>) = planned.partition(|step| step.role != "compensation");
    let undone = undoing.iter().filter(|step| step.state_code == "completed");
    let undone: HashSet<&str> = undone.filter_map(|step| step.compensates.as_deref()).collect();
    let stands = |step: &&&StepView| is_done(step) && !undone.contains(step.name.as_str());
    let (done, total) = (steps.iter().filter(stands).count(), steps.len());
    let colour = rollup_tint(&run.rollup.state_code);
    let filled = (done * BAR).checked_div(total).unwrap_or(0);
    let mut text =
        format!("{}{} {done}/{total}", tint(colour, &"█".repeat(filled)), tint(Tint::Dim, &"░".repeat(BAR - filled)));
    for state in ["failed", "cannot_complete", "cancelled"] {
        let count = steps.iter().filter(|step| step.state_code == state && !is_retrying(step)).count();
        if count > 0 {
            text.push_str(&format!(", {count} {}", state.replace('_', " ")));
        }
    }
    if !undoing.is_empty() {
        text.push_str(&format!(", {} of {} undone", undone.len(), undoing.len()));
    }
    text.push_str(&format!(", {}", tint(colour, &run.rollup.state_code)));
    if let Some(name) = &run.rollup.decisive_step {
        let retrying = run.steps.iter().any(|step| step.name == *name && is_retrying(step));
        let state = run.rollup.decisive_state_code.as_deref().unwrap_or_default().replace('_', " ");
        let state = if retrying { "retrying".to_owned() } else { state };
        text.push_str(&format!(" because of {} ({})", printable(name), printable(&state)));
    }
    if let Some(at) = &run.rollup.frozen_at {
        text.push_str(&tint(Tint::Dim, &format!(", as it was when the run was paused, {}", when(at, now))));
    }
    text
}

pub fn rollup_tint(state_code: &str) -> Tint {
    match state_code {
        "green" => Tint::Good,
        "yellow" => Tint::Wait,
        "red" => Tint::Bad,
        _ => Tint::Dim,
    }
}

#[cfg(test)]
mod tests;
