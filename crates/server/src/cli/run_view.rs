//! A run drawn for people: its state, how far it is, every step with who holds it and what it waits for, and what can be
//! done next. `runs show` prints the picture once, `watch` again and again.

use super::output::{printable, shell_word};
use super::table::{Table, Tint, tint};
use super::time::when;
use super::view::gates_table;
use countersign_client::wire::{ApprovalState, RunView, StepView};
use countersign_client::{Answer, Client, Error};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::HashMap;

/// More steps than this are folded: those that live are shown, the others are counted.
pub const MAX_ROWS: usize = 40;
const BAR: usize = 24;
const LONGEST_ERROR: usize = 80;
const MAX_HINTS: usize = 4;

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

/// The whole picture, with tints; at most `rows` steps in it.
pub fn render(run: &RunView, rows: usize, now: Timestamp) -> String {
    let mut sections = vec![header(run, now), steps(run, rows, now)];
    if !run.gates.is_empty() {
        sections.push(format!("{}\n{}", tint(Tint::Strong, "Gates"), gates_table(&run.gates, now)));
    }
    let next = next(run);
    if !next.is_empty() {
        let lines: Vec<String> =
            next.iter().map(|(why, command)| format!("  {why}\n      {}", tint(Tint::Dim, command))).collect();
        sections.push(format!("{}\n{}", tint(Tint::Strong, "Next"), lines.join("\n")));
    }
    sections.join("\n\n")
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
        "failed" => step.next_run_at.is_none(),
        _ => false,
    }
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

fn header(run: &RunView, now: Timestamp) -> String {
    // A run that was started without a subject is about itself.
    let about = if run.subject_ref == format!("run:{}", run.run_id) { &run.definition } else { &run.subject_ref };
    let mut lines =
        vec![format!("{} is {}", tint(Tint::Strong, about), state_text(&run.state, run.outcome.as_deref()))];
    let mut line = |name: &str, value: String| {
        lines.push(format!("  {} {value}", tint(Tint::Dim, &format!("{name:<10}"))));
    };
    line("run", printable(&run.run_id));
    line("definition", printable(&run.definition));
    line("started", format!("{} by {}", when(&run.started_at, now), printable(&run.initiator_ref)));
    if let Some(at) = run.start_at.as_deref().filter(|_| matches!(run.state.as_str(), "idle" | "queued")) {
        line("not before", when(at, now));
    }
    if let Some(at) = run.completed_at.as_deref().or(run.failed_at.as_deref()) {
        line("ended", when(at, now));
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
    if let Some(error) = &run.last_error {
        line("error", tint(Tint::Bad, error));
    }
    if let Some(output) = run.output.as_ref().filter(|output| !output.is_null()) {
        line("output", printable(&output.to_string()));
    }
    line("progress", progress(run, now));
    lines.join("\n")
}

/// `████████░░░░ 2/3, green`; what is undone is counted apart.
fn progress(run: &RunView, now: Timestamp) -> String {
    let planned = run.steps.iter().filter(|step| step.role != "task");
    let (steps, undone): (Vec<_>, Vec<_>) = planned.partition(|step| step.role != "compensation");
    let count = |steps: &[&StepView]| (steps.iter().filter(|step| step_ended(step)).count(), steps.len());
    let ((ended, total), colour) = (count(&steps), rollup_tint(&run.rollup.state_code));
    let filled = (ended * BAR).checked_div(total).unwrap_or(0);
    let mut text = format!(
        "{}{} {ended}/{total}, {}",
        tint(colour, &"█".repeat(filled)),
        tint(Tint::Dim, &"░".repeat(BAR - filled)),
        tint(colour, &run.rollup.state_code)
    );
    if let Some(step) = &run.rollup.decisive_step {
        text.push_str(&format!(" because of {}", printable(step)));
        if let Some(state) = &run.rollup.decisive_state_code {
            text.push_str(&format!(" ({})", printable(&state.replace('_', " "))));
        }
    }
    if let Some(at) = &run.rollup.frozen_at {
        text.push_str(&tint(Tint::Dim, &format!(", as it was when the run was paused, {}", when(at, now))));
    }
    if !undone.is_empty() {
        let (ended, total) = count(&undone);
        text.push_str(&format!(", undone {ended}/{total}"));
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

/// By the token's name: `ui.traffic_light.green_pale`.
pub fn step_tint(step: &StepView) -> Tint {
    let colour = step.appearance.color_token.rsplit('.').next().unwrap_or_default();
    rollup_tint(colour.split('_').next().unwrap_or_default())
}

fn steps(run: &RunView, rows: usize, now: Timestamp) -> String {
    let mut table = Table::new(["", "step", "state", "attempt", "what"]);
    let folded = run.steps.len() > rows;
    let lives = |step: &&StepView| !folded || !(step_ended(step) || step.state_code == "not_started");
    let shown: Vec<&StepView> = with_tasks(run).into_iter().filter(lives).take(rows).collect();
    for step in &shown {
        table.row([
            tint(step_tint(step), &step.appearance.icon),
            named(step),
            tint(step_tint(step), &step.appearance.label),
            attempts(step),
            details(run, step, now),
        ]);
    }
    if !folded {
        return table.to_string();
    }
    let rest = counted(run.steps.iter().filter(|step| !shown.iter().any(|shown| shown.step_seq == step.step_seq)));
    let rest = tint(Tint::Dim, &format!(" … and {rest}"));
    if shown.is_empty() { rest } else { format!("{table}\n{rest}") }
}

/// Tasks stand below their step.
fn with_tasks(run: &RunView) -> Vec<&StepView> {
    let mut tasks: HashMap<&str, Vec<&StepView>> = HashMap::new();
    for step in &run.steps {
        if let Some(of) = &step.task_of {
            tasks.entry(of).or_default().push(step);
        }
    }
    let mut ordered = Vec::with_capacity(run.steps.len());
    for step in run.steps.iter().filter(|step| step.role != "task") {
        ordered.push(step);
        ordered.extend(tasks.remove(step.name.as_str()).filter(|_| step.role == "step").into_iter().flatten());
    }
    ordered
}

/// `37 completed, 2 skipped`, in the order in which the states come up.
fn counted<'s>(steps: impl Iterator<Item = &'s StepView>) -> String {
    let mut counts: Vec<(&str, usize)> = vec![];
    for step in steps {
        let label = step.appearance.label.as_str();
        match counts.iter_mut().find(|(known, _)| *known == label) {
            Some((_, count)) => *count += 1,
            None => counts.push((label, 1)),
        }
    }
    let counts: Vec<String> = counts.iter().map(|(label, count)| format!("{count} {}", label.to_lowercase())).collect();
    counts.join(", ")
}

/// The step's name, or what it undoes.
pub fn named(step: &StepView) -> String {
    let name = match &step.compensates {
        Some(undone) => tint(Tint::Wait, &format!("↩ undo {undone}")),
        None if step.task_of.is_some() => format!("  {}", printable(&step.name)),
        None => tint(Tint::Strong, &step.name),
    };
    if step.optional { format!("{name}{}", tint(Tint::Dim, " (optional)")) } else { name }
}

/// `2/5`: the attempt that is under way or was the last; nothing for a step that has not been tried.
pub fn attempts(step: &StepView) -> String {
    let under_way = matches!(step.state_code.as_str(), "in_progress" | "overdue" | "completed");
    let attempt = if under_way { step.attempts.saturating_add(1) } else { step.attempts };
    let tried = step.run == "worker" && (under_way || step.attempts > 0);
    if tried { format!("{}/{}", attempt.min(step.max_attempts), step.max_attempts) } else { String::new() }
}

/// Who holds it, what it waits for, what went wrong and when it goes on.
pub fn details(run: &RunView, step: &StepView, now: Timestamp) -> String {
    let mut parts = vec![];
    if let Some(pic) = &step.pic {
        parts.push(format!("{} in charge", tint(Tint::Strong, pic)));
    }
    if let Some(deadline) = &step.deadline {
        parts.push(promised(step, deadline, now));
    }
    if let Some(reason) = &step.block_reason {
        parts.push(printable(&reason.replace('_', " ")));
    }
    if let Some(severity) = step.blocked_severity.as_deref().filter(|severity| *severity == "red") {
        parts.push(tint(Tint::Bad, &format!("{severity} block")));
    }
    if let Some(worker) = &step.locked_by {
        let until = step.locked_until.as_deref().map_or_else(String::new, |at| format!(" until {}", when(at, now)));
        parts.push(format!("held by {}{until}", printable(worker)));
    }
    if let Some(facet) = &step.waiting_facet {
        parts.push(printable(&facet.replace('_', " ")));
    }
    for facet in &step.secondary_facets {
        parts.push(tint(Tint::Dim, &format!("also {}", facet.replace('_', " "))));
    }
    if let Some(event) = &step.waiting_event_type {
        parts.push(format!("for {}", tint(Tint::Strong, event)));
    }
    if let Some(at) = &step.deadline_at {
        parts.push(format!("until {}", when(at, now)));
    }
    for gate in run.gates.iter().filter(|gate| gate.action == step.name && gate.state == ApprovalState::Pending) {
        parts.push(format!("for the approval of {}", tint(Tint::Strong, &gate.approver_ref)));
    }
    if step.state_code == "ready" && step.run != "human" {
        // No worker can claim from a queue of the server's own executors.
        let executor = step.queue.strip_prefix('@');
        parts.push(executor.map_or_else(
            || format!("in queue {}", printable(&step.queue)),
            |executor| format!("for the server's executor of {}", printable(executor)),
        ));
    }
    if let Some(last) = step.corrections.last() {
        let why = printable(&last.correction_reason.replace('_', " "));
        parts.push(format!("correction {} for {why}, by {}", last.cycle, printable(&last.reopened_by)));
    }
    if let Some(child) = &step.child_run_id {
        parts.push(format!("run {}", printable(child)));
    }
    if step.effect_unknown {
        parts.push(tint(Tint::Bad, "effect unknown"));
    }
    if let Some(at) = step.next_run_at.as_deref().filter(|_| step.state_code == "failed") {
        parts.push(format!("again {}", when(at, now)));
    }
    if let Some(error) = step.last_error.as_deref().filter(|_| step.state_code != "completed") {
        let before = if step.state_code == "failed" { "" } else { "last error: " };
        parts.push(tint(Tint::Bad, &format!("{before}{}", shortened(error))));
    }
    parts.join(", ")
}

/// When it is to be done, or by how much that was missed.
fn promised(step: &StepView, deadline: &str, now: Timestamp) -> String {
    let deadline = when(deadline, now);
    match (step.state_code.as_str(), step.sla_breach_duration.as_deref()) {
        (_, Some(late)) => tint(Tint::Bad, &format!("completed {late} late")),
        ("overdue", None) => tint(Tint::Bad, &format!("was due {deadline}")),
        ("completed", None) => "in time".to_owned(),
        (_, None) => format!("due {deadline}"),
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST_ERROR) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Why, and the command that takes the run further.
pub fn next(run: &RunView) -> Vec<(String, String)> {
    let id = shell_word(&run.run_id);
    let mut next: Vec<(String, String)> = vec![];
    let mut hint = |why: String, command: String| {
        if next.len() < MAX_HINTS && !next.iter().any(|(_, known)| *known == command) {
            next.push((why, command));
        }
    };
    match run.state.as_str() {
        "paused" | "stopped" => {
            hint(format!("it is {}", printable(&run.state)), format!("countersign runs resume {id}"));
        }
        "failed" | "cancelled" => {
            let failed = run.steps.iter().find(|step| step.role == "step" && step_ended(step) && !is_done(step));
            if let Some(step) = failed {
                let command = format!("countersign runs retry {id} --from {}", shell_word(&step.name));
                hint(format!("try again from {} in a new run", tint(Tint::Strong, &step.name)), command);
            }
        }
        _ => {}
    }
    if is_ended(&run.state) {
        return next;
    }
    for gate in run.gates.iter().filter(|gate| gate.state == ApprovalState::Pending) {
        let command = format!("countersign gate decide {id} {} approve", shell_word(&gate.action));
        hint(format!("{} decides", tint(Tint::Strong, &gate.approver_ref)), command);
    }
    for step in &run.steps {
        let name = shell_word(&step.name);
        if step.effect_unknown && step.state_code != "completed" {
            let command = format!("countersign runs declare-effect {id} {name} completed|not-done --reason …");
            hint(format!("say what became of {}", tint(Tint::Strong, &step.name)), command);
        }
        match (step.state_code.as_str(), &step.waiting_event_type) {
            ("waiting", Some(event)) => {
                let command = format!("countersign events send {} --run {id} --data …", shell_word(event));
                hint(format!("{} waits for an event", tint(Tint::Strong, &step.name)), command);
            }
            ("ready", _) if step.run == "human" => {
                let who = step.pic.as_deref().map_or("whoever is in charge", |pic| pic);
                let command = format!("countersign step claim {id} {name}");
                hint(format!("{} begins with {}", tint(Tint::Strong, who), printable(&step.name)), command);
            }
            ("in_progress" | "overdue", _) if step.run == "human" => {
                let who = step.pic.as_deref().map_or("whoever is in charge", |pic| pic);
                let command = format!("countersign step complete {id} {name} --output …");
                hint(format!("{} is at work on {}", tint(Tint::Strong, who), printable(&step.name)), command);
            }
            ("blocked", _) if step.block_reason.is_some() => {
                let command = format!("countersign step unblock {id} {name} --evidence …");
                hint(format!("clear what blocks {}", tint(Tint::Strong, &step.name)), command);
            }
            ("cannot_complete", _) => {
                let command = format!("countersign gate open {id} {}", shell_word(&format!("reopen:{}", step.name)));
                hint(format!("ask to reopen {}", tint(Tint::Strong, &step.name)), command);
            }
            ("ready", _) if step.run == "worker" => {
                let command = format!("countersign work {}", shell_word(&step.queue));
                hint(format!("{} waits for a worker", tint(Tint::Strong, &step.name)), command);
            }
            _ => {}
        }
    }
    next
}

fn is_done(step: &StepView) -> bool {
    matches!(step.state_code.as_str(), "completed" | "skipped")
}

#[cfg(test)]
mod tests;
