//! The steps of a run as a table: in which state each is, at which attempt, who holds it and what it waits for.

use super::{book, error_text, rollup_tint, step_ended};
use crate::cli::output::printable;
use crate::cli::table::{Table, Tint, tint};
use crate::cli::terminal::{columns, wrapped};
use crate::cli::time::{is_past, lasting, left, until, when};
use countersign_client::wire::{RunView, StepView};
use jiff::Timestamp;
use std::collections::HashMap;

/// Of those that stand in the way, so many are shown however little room there is.
const TROUBLED_AT_LEAST: usize = 3;
/// With less room than this beside the other columns, what there is to say stands below them.
const NARROWEST: usize = 24;
const INDENT: usize = 4;

/// At most about `rows` steps, in lines of `width` columns.
pub fn table(run: &RunView, rows: usize, width: Option<usize>, now: Timestamp) -> String {
    let folded = run.steps.len() > rows;
    let shown = if folded { most_telling(run, rows) } else { with_tasks(run) };
    let drawn = drawn(run, &shown, width, now);
    if !folded {
        return drawn;
    }
    let rest = run.steps.iter().filter(|step| !shown.iter().any(|shown| shown.step_seq == step.step_seq));
    let rest = format!("{} (runs show --all-steps lists them)", counted(rest));
    let rest = if shown.is_empty() { rest } else { format!("… and {rest}") };
    let rest =
        wrapped(&tint(Tint::Dim, &rest), width.map_or(usize::MAX, |width| width.saturating_sub(1).max(NARROWEST)));
    let rest = format!(" {}", rest.join("\n "));
    if shown.is_empty() { rest } else { format!("{drawn}\n{rest}") }
}

/// What stands in the way comes first, then what lives; the rest is counted.
fn most_telling(run: &RunView, rows: usize) -> Vec<&StepView> {
    let all = with_tasks(run);
    let (troubled, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|step| is_trouble(step));
    let lives = |step: &&StepView| !step_ended(step) && step.state_code != "not_started";
    let room = rows.max(TROUBLED_AT_LEAST.min(troubled.len()));
    troubled.into_iter().chain(others.into_iter().filter(lives)).take(room).collect()
}

fn is_trouble(step: &StepView) -> bool {
    match step.state_code.as_str() {
        "blocked" | "cannot_complete" => true,
        "failed" => !is_retrying(step),
        _ => false,
    }
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
        let label = label(step);
        match counts.iter_mut().find(|(known, _)| *known == label) {
            Some((_, count)) => *count += 1,
            None => counts.push((label, 1)),
        }
    }
    let counts: Vec<String> = counts.iter().map(|(label, count)| format!("{count} {}", label.to_lowercase())).collect();
    counts.join(", ")
}

fn drawn(run: &RunView, steps: &[&StepView], width: Option<usize>, now: Timestamp) -> String {
    let heads: Vec<[String; 4]> = steps.iter().map(|step| head(step)).collect();
    let room = width.map(|width| width.saturating_sub(beside(&heads)));
    let mut table = Table::new(["", "step", "state", "attempt", "what"]);
    let mut below = Vec::with_capacity(steps.len());
    for (step, [icon, name, state, attempt]) in steps.iter().zip(heads) {
        let (cell, lines) = placed(&facts(run, step, now), trouble(run, step), room, width);
        below.push((cell.lines().count().max(1), lines));
        table.row([icon, name, state, attempt, cell]);
    }
    // What found no room in a row stands below it, as wide as the terminal.
    let text = table.to_string();
    let mut lines = text.lines();
    let mut out: Vec<String> = lines.by_ref().take(2).map(str::to_owned).collect();
    for (height, more) in below {
        out.extend(lines.by_ref().take(height).map(str::to_owned));
        out.extend(more.into_iter().map(|line| format!("{}{line}", " ".repeat(INDENT))));
    }
    out.join("\n")
}

fn head(step: &StepView) -> [String; 4] {
    let colour = step_tint(step);
    [tint(colour, &step.appearance.icon), named(step), tint(colour, label(step)), attempts(step)]
}

/// Columns that the others take from the last: each has a space on either side.
fn beside(heads: &[[String; 4]]) -> usize {
    let names = ["", "step", "state", "attempt"];
    let widest = |i: usize| heads.iter().map(|head| columns(&head[i])).chain([columns(names[i])]).max().unwrap_or(0);
    (0..names.len()).map(|i| widest(i) + 2).sum::<usize>() + 2
}

/// What stands in the last column, and the lines that stand below the row. Nothing is cut off.
fn placed(facts: &str, trouble: Option<String>, room: Option<usize>, width: Option<usize>) -> (String, Vec<String>) {
    let all = match &trouble {
        Some(trouble) if facts.is_empty() => trouble.clone(),
        Some(trouble) => format!("{facts}, {trouble}"),
        None => facts.to_owned(),
    };
    let (Some(room), Some(width)) = (room, width) else { return (all, vec![]) };
    let whole = width.saturating_sub(INDENT).max(NARROWEST);
    if columns(&all) <= room {
        (all, vec![])
    } else if room < NARROWEST {
        (String::new(), wrapped(&all, whole))
    } else {
        let beside = wrapped(facts, room).join("\n");
        (beside, trouble.map_or(vec![], |trouble| wrapped(&trouble, whole)))
    }
}

/// By the token's name: `ui.traffic_light.green_pale`.
pub fn step_tint(step: &StepView) -> Tint {
    let colour = step.appearance.color_token.rsplit('.').next().unwrap_or_default();
    rollup_tint(colour.split('_').next().unwrap_or_default())
}

/// The text of its state. Which attempt it is has a column of its own.
pub fn label(step: &StepView) -> &str {
    step.appearance.label.split(" (attempt ").next().unwrap_or_default()
}

/// It failed and will be tried again by itself.
pub fn is_retrying(step: &StepView) -> bool {
    step.state_code == "failed" && step.next_run_at.is_some()
}

/// It waits for somebody to claim it, in time or not.
pub fn is_offered(step: &StepView) -> bool {
    step.state_code == "ready" || (step.state_code == "overdue" && step.start_by.is_some())
}

/// Whoever is to carry it out may take it now.
pub fn is_claimable(step: &StepView, now: Timestamp) -> bool {
    let due = step.next_run_at.as_deref().is_none_or(|at| is_past(at, now));
    due && step.run != "human" && (is_offered(step) || is_retrying(step))
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

/// `2/5`: the attempt that is under way, comes next or was the last; nothing for a step that has not been tried, or that
/// is no work of a machine.
pub fn attempts(step: &StepView) -> String {
    let counts = matches!(step.run.as_str(), "worker" | "shell" | "http" | "workflow");
    let under_way = matches!(step.state_code.as_str(), "in_progress" | "overdue" | "completed") && !is_offered(step)
        || is_retrying(step)
        || is_awaiting(step);
    let attempt = if under_way { step.attempts.saturating_add(1) } else { step.attempts };
    let tried = counts && (under_way || step.attempts > 0);
    if tried { format!("{}/{}", attempt.min(step.max_attempts), step.max_attempts) } else { String::new() }
}

/// It waits for the run that it has started.
fn is_awaiting(step: &StepView) -> bool {
    step.state_code == "waiting" && step.child_run_id.is_some()
}

/// Who holds it, what it waits for, what went wrong and when it goes on: all in one line.
pub fn details(run: &RunView, step: &StepView, now: Timestamp) -> String {
    placed(&facts(run, step, now), trouble(run, step), None, None).0
}

fn facts(run: &RunView, step: &StepView, now: Timestamp) -> String {
    let mut parts = vec![];
    if let Some(pic) = &step.pic {
        parts.push(format!("{} in charge", tint(Tint::Strong, pic)));
    }
    if let Some(deadline) = &step.deadline {
        parts.push(promised(step, deadline, now));
    }
    if let Some(by) = step.start_by.as_deref().map(|by| when(by, now)) {
        let late = step.state_code == "overdue";
        parts.push(if late { tint(Tint::Bad, &format!("unclaimed since {by}")) } else { format!("claim by {by}") });
    }
    if let Some(reason) = &step.block_reason {
        parts.push(printable(&reason.replace('_', " ")));
    }
    if let Some(severity) = step.blocked_severity.as_deref().filter(|severity| *severity == "red") {
        parts.push(tint(Tint::Bad, &format!("{severity} block")));
    }
    if let Some(worker) = &step.locked_by {
        let lease = step.locked_until.as_deref().map_or_else(String::new, |at| format!(", {}", left(at, now)));
        parts.push(format!("held by {}{lease}", printable(worker)));
    }
    if let Some(event) = &step.waiting_event_type {
        parts.push(format!("waits for the event {}", tint(Tint::Strong, event)));
    } else if let Some(facet) = &step.waiting_facet {
        parts.push(printable(&facet.replace('_', " ")));
    }
    for facet in &step.secondary_facets {
        parts.push(tint(Tint::Dim, &format!("also {}", facet.replace('_', " "))));
    }
    if let Some(at) = &step.deadline_at {
        parts.push(format!("until {}", until(at, now)));
    }
    for gate in run.gates.iter().filter(|gate| gate.action == step.name && gate.waits()) {
        parts.push(format!("for the approval of {}", tint(Tint::Strong, &gate.approver_ref)));
    }
    if let Some(at) = step.next_run_at.as_deref().filter(|at| is_retrying(step) && !is_past(at, now)) {
        parts.push(when(at, now));
    }
    if is_claimable(step, now) {
        // No worker can claim from a queue of the server's own executors.
        let executor = step.queue.strip_prefix('@');
        parts.push(executor.map_or_else(
            || format!("in queue {}", printable(&step.queue)),
            |executor| format!("for the server's executor of {}", printable(executor)),
        ));
    }
    parts.extend(book::facts(step, now));
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
    parts.extend(took(step));
    parts.join(", ")
}

/// From its first claim to its end, over all attempts.
fn took(step: &StepView) -> Option<String> {
    let time = |text: &Option<String>| text.as_ref()?.parse::<Timestamp>().ok();
    let (from, to) = (time(&step.started_at)?, time(&step.completed_at)?);
    (step.state_code == "completed").then(|| format!("took {}", lasting(to.duration_since(from))))
}

/// What went wrong, or last did.
fn trouble(run: &RunView, step: &StepView) -> Option<String> {
    let error = error_text(run, step.last_error.as_deref().filter(|_| step.state_code != "completed")?);
    let before = if matches!(step.state_code.as_str(), "failed" | "blocked") { "" } else { "last error: " };
    Some(tint(Tint::Bad, &format!("{before}{error}")))
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
