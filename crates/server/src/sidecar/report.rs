//! What people read of a runbook: `phase-NN.md` per step that began, and `stop-route-report.md` while the run is stopped or has
//! failed. Foreign text stands in code spans and fences, where Markdown has no meaning.

use super::fold::{Fold, Gate, Step};
use super::state::{result, run_name, state_name};
use crate::api::format_time;
use countersign_engine::port::RunView;
use countersign_kernel::lifecycle::RunState;
use countersign_kernel::plan::{Plan, StepSpec};
use countersign_kernel::text::is_invisible;
use serde_json::Value;
use std::fmt::Write as _;

/// A code span of one line: nothing in it ends the span, the line or the cell of a table.
fn span(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    for c in text.chars() {
        match c {
            '`' => out.push('\''),
            '|' => out.push_str("\\|"),
            c if is_invisible(c) => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    if out.is_empty() { out } else { format!("`{out}`") }
}

/// A block of code, in a fence that is longer than any in it.
fn fence(kind: &str, text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}{kind}\n{}\n{fence}\n", text.trim_end_matches('\n'))
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// Rows of a table under these names; nothing where there is none.
fn table<const N: usize>(title: &str, names: [&str; N], rows: &[[String; N]]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut out = format!("## {title}\n\n| {} |\n|{}\n", names.join(" | "), " --- |".repeat(N));
    for row in rows {
        let _ = writeln!(out, "| {} |", row.join(" | "));
    }
    out.push('\n');
    out
}

pub fn phase(run: &RunView, seq: usize, spec: &StepSpec, step: &Step, fold: &Fold) -> String {
    let mut out = format!("# Phase {:02}: {}\n\n", seq + 1, span(&spec.name));
    let mut line = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = writeln!(out, "- {name}: {value}");
        }
    };
    line("run", Some(span(&run_name(run))));
    line("result", Some(result(step).to_owned()));
    line("step state", Some(step.code.as_str().to_owned()));
    line("phase once it is complete", spec.phase.as_deref().map(span));
    line("started", step.begun.map(format_time));
    line("finished", step.finished.map(format_time));
    line("carried out by", step.worker.as_deref().map(span));
    line("failed attempts", Some(step.failed_attempts).filter(|count| *count > 0).map(|count| count.to_string()));
    line("effect", step.is_effect_unknown.then(|| "unknown: nobody reported what became of the attempt".to_owned()));
    line("taken over", step.is_taken_over.then(|| "it completed in the run that this one continues".to_owned()));
    line("error", step.error.as_deref().filter(|_| result(step) != "passed").map(span));
    out.push('\n');
    for gate in fold.gates.iter().filter(|gate| gate.action == *spec.name) {
        out.push_str(&decided(gate));
    }
    let surveys = step.surveys.iter().map(|survey| {
        let found = if survey.drift.is_empty() { "equal".to_owned() } else { format!("{} differ", survey.drift.len()) };
        [format_time(survey.at), survey.pins.to_string(), found]
    });
    out.push_str(&table("Surveys before it", ["at", "pins", "found"], &surveys.collect::<Vec<_>>()));
    let checks = step.checks.iter().map(|(name, held)| [span(name), if *held { "yes" } else { "no" }.to_owned()]);
    out.push_str(&table("Checks", ["check", "held"], &checks.collect::<Vec<_>>()));
    let pins = step.captured.iter().map(|pin| [span(&pin.name), span(&pin.value.to_string()), span(&pin.digest)]);
    out.push_str(&table("Pins", ["pin", "value", "sha256"], &pins.collect::<Vec<_>>()));
    let text = |artifact: &Value, name: &str| match artifact.get(name) {
        Some(Value::String(text)) => span(text),
        Some(other) => other.to_string(),
        None => String::new(),
    };
    let artifacts = step.artifacts.iter().map(|left| ["path", "sha256", "size_bytes"].map(|name| text(left, name)));
    out.push_str(&table("Artifacts", ["path", "sha256", "bytes"], &artifacts.collect::<Vec<_>>()));
    if let Some(output) = step.output.as_ref().filter(|output| !output.is_null()) {
        let _ = write!(out, "## Output\n\n{}\n", fence("json", &pretty(output)));
    }
    format!("{}\n", out.trim_end())
}

fn decided(gate: &Gate) -> String {
    let title = format!("Gate {}", span(&gate.guard));
    let rows = gate.asked.iter().map(|asked| {
        let (what, at, why) = match &asked.decision {
            None => ("waits", String::new(), String::new()),
            Some(decision) => {
                let what = if decision.is_approval { "approved" } else { "refused" };
                (what, format_time(decision.at), decision.reason.as_deref().map(span).unwrap_or_default())
            }
        };
        [span(&asked.approver_ref), what.to_owned(), at, why, span(&asked.step_id)]
    });
    let mut out = table(&title, ["approver", "decision", "at", "reason", "approval id"], &rows.collect::<Vec<_>>());
    if let Some(request) = &gate.request {
        let digest = gate.request_digest.as_deref().map(span).unwrap_or_default();
        let _ = write!(out, "What was asked, sha256 {digest}:\n\n{}\n", fence("json", &pretty(request)));
    }
    out
}

/// Nothing unless the run is stopped or has failed.
pub fn stop_route(run: &RunView, plan: &Plan, fold: &Fold, state: &str) -> Option<String> {
    if !matches!(fold.state, RunState::Stopped | RunState::Failed) {
        return None;
    }
    let error = fold.error.as_ref();
    let mut out = format!("# Stop route: {}\n\n", span(&run_name(run)));
    let name = error.and_then(|error| plan.steps.get(error.step?)).map(|spec| spec.name.to_string());
    let lines = [
        ("state", Some(state_name(plan, fold))),
        ("step", name),
        ("code", error.map(|error| error.code.clone())),
        ("why", error.map(|error| error.message.clone())),
        ("at", error.map(|error| format_time(error.at))),
    ];
    for (name, value) in lines {
        if let Some(value) = value {
            let _ = writeln!(out, "- {name}: {}", span(&value));
        }
    }
    out.push('\n');
    let drift = error.map_or(&[][..], |error| &error.drift);
    let rows = drift.iter().map(|entry| {
        let text = |name: &str| entry.get(name).map(|value| span(&plain(value))).unwrap_or_default();
        let live = if entry.get("live").is_some_and(Value::is_null) { "no value".to_owned() } else { text("live") };
        [text("pin"), text("pinned"), live]
    });
    out.push_str(&table("What changed", ["pin", "pinned", "live"], &rows.collect::<Vec<_>>()));
    out.push_str("## How it goes on\n\n");
    for (why, command) in route(run, plan, fold) {
        let _ = write!(out, "{why}\n\n{}\n", fence("sh", &command));
    }
    let _ = write!(out, "## state.json\n\n{}", fence("json", state));
    Some(out)
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Why, and the command: in the order in which they are to be run.
fn route(run: &RunView, plan: &Plan, fold: &Fold) -> Vec<(String, String)> {
    let id = run.row.instance_id;
    let mut route = vec![];
    if fold.state == RunState::Failed {
        let void = fold.gate("void").filter(|gate| gate.spent.is_none());
        route.push(("A failed run is not resumed. Put right what failed, and start anew:".to_owned(), again(run)));
        if void.is_none() {
            let why = "If the run is not to count, and its Idempotency-Key is to be free again: ask for its voiding.";
            route.push((why.to_owned(), format!("countersign gate open {id} void --reason …")));
        }
        route.extend(approved(id, "void", void, "--reason …"));
        return route;
    }
    for (spec, _) in plan.steps.iter().zip(&fold.steps).filter(|(_, step)| step.is_effect_unknown) {
        let why = format!("Nobody knows what became of {}. Find out, and declare it:", span(&spec.name));
        route.push((why, format!("countersign runs declare-effect {id} {} completed|not-done --reason …", spec.name)));
    }
    let gate = fold.gate("resume").filter(|gate| gate.spent.is_none());
    let refused = gate.is_some_and(|gate| {
        gate.asked.iter().any(|asked| asked.decision.as_ref().is_some_and(|decision| !decision.is_approval))
    });
    if gate.is_none() || refused {
        route.push(("Ask for an approval:".to_owned(), format!("countersign gate open {id} resume")));
    }
    route.extend(approved(id, "resume", gate.filter(|_| !refused), ""));
    route
}

/// Who decides, and what their approval is good for.
fn approved(
    id: countersign_kernel::InstanceId,
    action: &str,
    gate: Option<&Gate>,
    rest: &str,
) -> Vec<(String, String)> {
    let mut route = vec![];
    let waits: Vec<String> = gate.map_or(vec![], |gate| {
        gate.asked.iter().filter(|asked| asked.decision.is_none()).map(|asked| span(&asked.approver_ref)).collect()
    });
    if !waits.is_empty() {
        let why = format!("{} decides:", waits.join(" or "));
        route.push((why, format!("countersign gate decide {id} {action} approve")));
    }
    let approval = gate.and_then(|gate| gate.asked.first()).map_or("APPROVAL", |asked| &asked.step_id);
    let approved = gate.and_then(|gate| {
        gate.asked.iter().find(|asked| asked.decision.as_ref().is_some_and(|decision| decision.is_approval))
    });
    let approval = approved.map_or(approval, |asked| &asked.step_id);
    let why = if waits.is_empty() && approved.is_some() { "It is approved:" } else { "Once it is approved:" };
    let command = format!("countersign runs {action} {id} --approval {approval} {rest}");
    route.push((why.to_owned(), command.trim_end().to_owned()));
    route
}

/// The same run anew.
fn again(run: &RunView) -> String {
    let name = &run.row.definition_name;
    format!("countersign run {name} --input-file …")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_ends_neither_span_nor_fence() {
        assert_eq!(span("a|b`c\nd\u{1b}"), "`a\\|b'c\\nd\\u{1b}`");
        assert_eq!(fence("json", "x```y"), "````json\nx```y\n````\n");
        assert_eq!(fence("", "plain\n"), "```\nplain\n```\n");
    }
}
