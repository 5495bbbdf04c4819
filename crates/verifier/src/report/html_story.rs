//! The story's part of the report: what happened, the gates, the processes of a window, the declared machines.

use super::html::escape;
use super::{html_run, svg};
use crate::story::{Entry, GateSummary, Machine, ProcessSummary, StepSummary, Story};
use crate::time::{day, time_of_day, utc};

pub fn write(story: &Story) -> String {
    let mut out = if story.whole {
        story.run.as_ref().map(html_run::write).unwrap_or_default() + &gates(&story.gates) + &timeline(story)
    } else {
        processes(story)
    };
    if story.run.is_some() {
        // Its machine is that of every run; what it declares are gates, which stand above.
        return out;
    }
    if !story.machines.is_empty() {
        out.push_str(if story.machines.len() == 1 {
            "<h2>Declared machine</h2>\n"
        } else {
            "<h2>Declared machines</h2>\n"
        });
    }
    story.machines.values().for_each(|machine| out.push_str(&machine_part(machine)));
    out
}

/// A table; the cells are HTML already. A row of one cell is as wide as the table.
pub(super) fn table(class: &str, headings: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let head: String = headings.iter().map(|heading| format!("<th>{}</th>", escape(heading))).collect();
    let body: String = rows
        .map(|row| {
            if let [cell] = row.as_slice() {
                return format!("<tr><td colspan=\"{}\">{cell}</td></tr>\n", headings.len());
            }
            let cells: String = row.iter().map(|cell| format!("<td>{cell}</td>")).collect();
            format!("<tr>{cells}</tr>\n")
        })
        .collect();
    format!("<table class=\"{class}\"><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>\n")
}

pub(super) fn badge(class: &str, text: &str) -> String {
    format!("<span class=\"badge {class}\">{}</span>", escape(text))
}

/// How a state of a gate or step is coloured.
fn state_badge(state: &str) -> String {
    let class = match state {
        "Approved" => "ok",
        "Rejected" => "bad",
        "Pending" => "open",
        _ => "plain",
    };
    badge(class, state)
}

fn timeline(story: &Story) -> String {
    let mut out = "<h2>What happened</h2>\n<ol class=\"time\">\n".to_owned();
    let mut before = String::new();
    for entry in &story.timeline {
        let today = day(entry.at_us);
        if today != before {
            out.push_str(&format!("<li><div class=\"day\">{}</div></li>\n", escape(&today)));
            before = today;
        }
        out.push_str(&event(entry));
    }
    out.push_str("</ol>\n");
    if story.left_out > 0 {
        out.push_str(&format!("<p>{} more records are verified and not listed.</p>\n", story.left_out));
    }
    out
}

/// What shows that the actor did it, in a word.
pub(super) fn backed(assurance: &str) -> &str {
    match assurance {
        "server_attested" => "by token",
        "actor_signed" => "signed",
        "passkey_signed" => "signed with a passkey",
        other => other,
    }
}

fn event(entry: &Entry) -> String {
    let class = match (entry.action, entry.what.as_str()) {
        ("transition_fired" | "step_completed", _) => "move",
        ("gate_decided", what) if what.ends_with("approve") => "decide",
        ("gate_decided" | "step_failed" | "run_cancelled" | "run_voided", _) => "refuse",
        ("workflow_started" | "run_started" | "gate_opened", _) => "",
        _ => "engine",
    };
    let assurance = backed(entry.assurance);
    let quote = |label: &str, text: &Option<String>| {
        let text = text.as_ref().filter(|text| !text.is_empty());
        text.map(|text| format!("<p class=\"quote\"><i>{label}</i>“{}”</p>", escape(text))).unwrap_or_default()
    };
    format!(
        "<li class=\"{class}\"><div class=\"when\">{}<br>{}</div><div class=\"what\"><b>{}</b> <span class=\"soft\">{}</span><br>{} \
         <span class=\"badge plain\">{}</span>{}{}</div></li>\n",
        escape(&time_of_day(entry.at_us)),
        format_args!("#{}, log {}", entry.sequence, entry.log_index),
        escape(&entry.what),
        escape(entry.action),
        escape(&entry.who),
        escape(assurance),
        quote("signed as", &entry.meaning),
        quote("reason", &entry.reason),
    )
}

fn gates(gates: &[GateSummary]) -> String {
    if gates.is_empty() {
        return String::new();
    }
    let row = |gate: &GateSummary| {
        let steps: Vec<String> = gate
            .steps
            .iter()
            .map(|StepSummary { approver, state, trailing, end }| {
                let end = end.as_ref().map(|(by, at)| {
                    let by = if by == approver { String::new() } else { format!("by {by}, ") };
                    format!("<br><span class=\"small soft\">{}</span>", escape(&format!("{by}{}", utc(*at))))
                });
                let late = if *trailing { " <span class=\"small soft\">too late to count</span>" } else { "" };
                format!("{} {}{late}{}", escape(approver), state_badge(state), end.unwrap_or_default())
            })
            .collect();
        let fate = match gate.fate {
            "consumed" => "used once, by its firing",
            "mooted" => "moot: the state was left",
            _ => "not used",
        };
        vec![
            format!(
                "<b>{}</b><br><span class=\"small soft\">in {}</span>",
                escape(&gate.action),
                escape(&gate.from_state)
            ),
            format!(
                "{}<br><span class=\"small soft\">{}; scope {}</span>",
                escape(&gate.guard),
                escape(&gate.rule),
                escape(&gate.scope)
            ),
            steps.join("<br>"),
            format!(
                "{}<br><span class=\"small soft\">{}{fate}</span>",
                state_badge(gate.state),
                gate.approved.as_ref().map_or_else(String::new, |of| format!("{}; ", escape(of)))
            ),
        ]
    };
    let headings = ["gate for", "guard", "approvers and decisions", "outcome"];
    let asked = |gate: &GateSummary| {
        let request = gate.request.as_ref()?;
        Some(vec![format!("<span class=\"small soft\">asked</span> <code>{}</code>", escape(request))])
    };
    let rows = gates.iter().flat_map(|gate| std::iter::once(row(gate)).chain(asked(gate)));
    format!("<h2>Gates</h2>\n{}", table("gates", &headings, rows))
}

fn processes(story: &Story) -> String {
    let purged = || "<span class=\"soft\">destroyed</span>".to_owned();
    let row = |process: &ProcessSummary| {
        let definition = process.definition.as_deref().unwrap_or("inline declaration");
        let (by, at) = process.started.clone().unzip();
        vec![
            format!(
                "<b>{}</b><br><code class=\"soft\">{}</code>",
                process.subject.as_deref().map_or_else(purged, escape),
                process.instance_id
            ),
            escape(definition),
            process.state.as_deref().map_or_else(purged, |state| badge("plain", state)),
            format!(
                "{}<br><span class=\"small soft\">{}</span>",
                at.map(utc).map_or_else(purged, |at| escape(&at)),
                escape(&by.unwrap_or_default())
            ),
            escape(&utc(process.last_at_us)),
            format!("{}<br><span class=\"small soft\">{} firings</span>", process.records, process.firings),
        ]
    };
    let headings = ["process", "definition", "state", "started", "last record", "records"];
    let mut out = format!("<h2>Processes</h2>\n{}", table("processes", &headings, story.processes.iter().map(row)));
    if story.processes_left_out > 0 {
        out.push_str(&format!("<p>{} more processes are verified and not listed.</p>\n", story.processes_left_out));
    }
    out
}

fn machine_part(machine: &Machine) -> String {
    let declaration = &machine.declaration;
    let row = |t: &crate::process::document::Transition| {
        let taken = machine.taken.contains(&(t.from.clone(), t.action.clone()));
        let action = if taken { format!("<b>{}</b>", escape(&t.action)) } else { escape(&t.action) };
        vec![escape(&t.from), action, escape(&t.to), t.guard.as_deref().map(escape).unwrap_or_default()]
    };
    let rows = table("moves", &["from", "action", "to", "guard"], declaration.transitions.iter().map(row));
    let ends = if declaration.terminal_states.is_empty() {
        "nothing".to_owned()
    } else {
        declaration.terminal_states.join(", ")
    };
    let taken = if machine.taken.is_empty() { "" } else { "; bold is what this process did" };
    let about = format!(
        "<h3>{}</h3>\n<p class=\"soft small\">Begins in {}, ends in {}{taken}. Digest <code>{}</code></p>\n",
        escape(machine.definition.as_deref().unwrap_or("Inline declaration")),
        escape(&declaration.initial_state),
        escape(&ends),
        escape(&machine.digest)
    );
    match svg::draw(machine) {
        None => about + &rows,
        Some(drawing) => format!("{about}<div class=\"two\"><div>{drawing}</div><div>{rows}</div></div>\n"),
    }
}
