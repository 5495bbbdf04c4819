//! The story's part of the report: timeline, gates, declared machines.

use super::html::escape;
use crate::story::{Entry, GateSummary, Machine, StepSummary, Story};
use crate::time::utc;

pub fn write(story: &Story) -> String {
    let mut out = timeline(story);
    out.push_str(&gates(&story.gates));
    out.push_str("<h2>Declared machine</h2>\n");
    story.machines.values().for_each(|machine| out.push_str(&machine_table(machine)));
    out
}

/// A table of plain texts; every cell is escaped.
pub(super) fn table(headings: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let head: String = headings.iter().map(|heading| format!("<th>{}</th>", escape(heading))).collect();
    let body: String = rows
        .map(|row| {
            let cells: String = row.iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect();
            format!("<tr>{cells}</tr>\n")
        })
        .collect();
    format!("<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>\n")
}

fn timeline(story: &Story) -> String {
    let several = story.timeline.first().map(|entry| entry.instance_id) != story.timeline.last().map(|e| e.instance_id);
    let row = |entry: &Entry| {
        let optional = |label: &str, text: &Option<String>| text.as_ref().map(|text| format!("{label}: {text}"));
        let said = [optional("means", &entry.meaning), optional("reason", &entry.reason)];
        let process = if several { format!(" of {}", entry.instance_id) } else { String::new() };
        vec![
            utc(entry.at_us),
            format!("{}{process} (log {})", entry.sequence, entry.log_index),
            entry.who.clone(),
            entry.action.to_owned(),
            entry.what.clone(),
            entry.assurance.to_owned(),
            said.into_iter().flatten().collect::<Vec<_>>().join("; "),
        ]
    };
    let headings = ["time", "sequence", "who", "record", "what", "assurance", "signature’s meaning, reason"];
    let mut out = format!("<h2>Timeline</h2>\n{}", table(&headings, story.timeline.iter().map(row)));
    if story.left_out > 0 {
        out.push_str(&format!("<p>{} more records are verified and not listed.</p>\n", story.left_out));
    }
    out
}

fn gates(gates: &[GateSummary]) -> String {
    let row = |gate: &GateSummary| {
        let steps: Vec<String> = gate
            .steps
            .iter()
            .map(|StepSummary { approver, state, end }| match end {
                None => format!("{approver}: {state}"),
                Some((by, at)) if by == approver => format!("{approver}: {state}, {}", utc(*at)),
                Some((by, at)) => format!("{approver}: {state} by {by}, {}", utc(*at)),
            })
            .collect();
        vec![
            format!("{} in {}", gate.action, gate.from_state),
            format!("{} ({}), scope {}", gate.guard, gate.rule, gate.scope),
            steps.join("; "),
            format!("{}, {}", gate.state, gate.fate),
        ]
    };
    let headings = ["gate for", "guard", "approvers and decisions", "outcome"];
    format!("<h2>Gates</h2>\n{}", table(&headings, gates.iter().map(row)))
}

fn machine_table(machine: &Machine) -> String {
    let declaration = &machine.declaration;
    let row = |t: &crate::process::document::Transition| {
        vec![t.from.clone(), t.action.clone(), t.to.clone(), t.guard.clone().unwrap_or_default()]
    };
    format!(
        "<h3>{}</h3>\n<p class=\"soft\">begins in <b>{}</b>; ends in {}; digest <code>{}</code></p>\n{}",
        escape(machine.definition.as_deref().unwrap_or("inline declaration")),
        escape(&declaration.initial_state),
        escape(&declaration.terminal_states.join(", ")),
        escape(&machine.digest),
        table(&["from", "action", "to", "guard: approval needed"], declaration.transitions.iter().map(row))
    )
}
