//! The part of the report on a run: where it comes from, the drawing, and for every step who did what and when, with which input and
//! output.

use super::html::escape;
use super::html_story::{backed, badge, table};
use super::svg_run;
use crate::story::{Act, RunStep, RunSummary};
use crate::time::stamp;

pub fn write(run: &RunSummary) -> String {
    let ended = run.outcome.as_ref().map(|outcome| format!(" ({})", escape(outcome))).unwrap_or_default();
    let error = run.last_error.as_ref().map(|error| format!(": {}", escape(error))).unwrap_or_default();
    let undone = matches!(run.outcome.as_deref(), Some("rolled_back" | "partial" | "effect_unknown"));
    let state = badge(if undone { "open" } else { class_of(run.state) }, &in_words(run.state));
    let mut out = format!("<h2>The run</h2>\n<p>The run is {state}{ended}{error}</p>\n");
    if run.lost {
        out.push_str(
            "<p class=\"soft\">From some record on it could not be followed; what is shown is what came before.</p>\n",
        );
    }
    let fact = |(name, value): &(&str, String)| format!("<dt>{}</dt><dd>{}</dd>", escape(name), escape(value));
    let facts: String = run.facts.iter().map(fact).collect();
    let value = |name: &str, value: &Option<String>| {
        value.as_ref().map_or_else(String::new, |value| format!("<dt>{name}</dt><dd>{}</dd>", code(value)))
    };
    out.push_str(&format!("<dl>{facts}{}{}</dl>\n", value("Input", &run.input), value("Output", &run.output)));
    out.push_str(&svg_run::draw(run).map(|svg| format!("<div class=\"drawing\">{svg}</div>\n")).unwrap_or_default());
    out.push_str("<h2>Steps</h2>\n");
    out.push_str(&table("steps", &["step", "who and when", "input and output"], run.steps.iter().map(|s| row(run, s))));
    if run.left_out > 0 {
        out.push_str(&format!("<p>{} more steps are verified and not listed.</p>\n", run.left_out));
    }
    out
}

/// How a state is coloured.
pub fn class_of(state: &str) -> &'static str {
    match state {
        "completed" => "ok",
        "failed" | "cannot_complete" | "cancelled" | "voided" => "bad",
        "skipped" | "not_started" | "idle" => "plain",
        _ => "open",
    }
}

/// A state as people write it.
pub fn in_words(state: &str) -> String {
    state.replace('_', " ")
}

fn code(text: &str) -> String {
    format!("<code>{}</code>", escape(text))
}

fn row(run: &RunSummary, step: &RunStep) -> Vec<String> {
    vec![what(run, step), acts(run, step), values(step)]
}

/// The step itself: its name, its state, and what people ask of it first.
fn what(run: &RunSummary, step: &RunStep) -> String {
    let named = |seq: usize| run.steps.get(seq).map_or("?", |step| step.name.as_str());
    let kind = match step.undoes {
        Some(undone) => format!("undoes {}", named(undone)),
        None => step.kind.clone(),
    };
    let mut lines = vec![kind];
    lines.extend(step.gate.as_ref().map(|gate| format!("behind gate {gate}")));
    lines.extend(step.pic.as_ref().map(|pic| format!("in charge: {pic}")));
    lines.extend(step.deadline_us.map(|deadline| format!("deadline {}", stamp(deadline))));
    lines.extend(step.child.as_ref().map(|child| format!("is the run {child}")));
    if step.taken_over {
        lines.push("ended in the run that this one continues".to_owned());
    } else if step.began_at_us.is_none() {
        lines.push("never begun".to_owned());
    }
    if let (Some(began), Some(done)) = (step.began_at_us, step.completed_at_us.filter(|_| !step.taken_over)) {
        lines.push(format!("done {} after it began", lasted(done - began)));
    }
    if step.failed_attempts > 0 {
        lines.push(format!("{} without success", plural(step.failed_attempts, "attempt")));
    }
    let lines: Vec<String> = lines.iter().map(|line| escape(line)).collect();
    format!(
        "<b>{}</b><br>{}<br><span class=\"small soft\">{}</span>",
        escape(&step.name),
        badge(class_of(step.state), &in_words(step.state)),
        lines.join("<br>")
    )
}

fn plural(count: i64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Who did what, and when. That a step became ready is worth a line where nothing followed.
fn acts(run: &RunSummary, step: &RunStep) -> String {
    let log = &step.log;
    let last = log.acts.len().saturating_sub(1);
    let worth = |(at, act): &(usize, &Act)| act.to != "ready" || *at == last || !act.why.is_empty();
    let told: String = log.acts.iter().enumerate().filter(worth).map(|(_, act)| write_act(run, act)).collect();
    let more = match log.acts_left_out {
        0 => String::new(),
        count => format!("<li class=\"soft\">{count} more are verified and not listed</li>"),
    };
    let error = step.last_error.as_ref().filter(|error| !log.acts.iter().any(|act| act.why.contains(error)));
    let error = error.map(|error| format!("<li>last error: {}</li>", escape(error))).unwrap_or_default();
    format!("<ul class=\"acts\">{told}{error}{more}</ul>")
}

fn write_act(run: &RunSummary, act: &Act) -> String {
    let what = match (act.to.as_str(), act.id.as_str()) {
        ("in_progress", "T3r" | "T4r" | "T6") => "went on".to_owned(),
        ("in_progress", "T8r" | "T12r") => "reopened".to_owned(),
        ("in_progress", "T10") => "tried again".to_owned(),
        ("in_progress", _) => "begun".to_owned(),
        (to, _) => in_words(to),
    };
    let actor = format!("{} {}", escape(&act.who), badge("plain", backed(act.assurance.as_str())));
    let who = match (act.by_engine, run.engine.as_deref() == Some(&*act.who)) {
        (true, true) => "<span class=\"soft\">the engine</span>".to_owned(),
        (true, false) => format!("<span class=\"soft\">the engine, in the record of</span> {actor}"),
        (false, _) => actor,
    };
    let why: String =
        act.why.iter().map(|why| format!("<br><span class=\"small soft\">{}</span>", escape(why))).collect();
    let at = format!("<span class=\"n\">{}</span>", escape(&stamp(act.at_us)));
    format!("<li><b>{}</b> {at}<br>{who}{why}</li>", escape(&what))
}

fn values(step: &RunStep) -> String {
    let value = |name: &'static str| {
        move |value: &String| format!("<p><span class=\"label\">{name}</span> {}</p>", code(value))
    };
    let log = &step.log;
    let inputs: String = log.inputs.iter().map(value("input")).collect();
    let outputs: String = log.outputs.iter().map(value("output")).collect();
    let more = match log.values_left_out {
        0 => String::new(),
        count => format!("<p class=\"soft\">{count} more are verified and not listed</p>"),
    };
    inputs + &outputs + &more
}

/// `1 h 20 min`, to what matters.
fn lasted(us: i64) -> String {
    let ms = us / 1_000;
    match ms {
        ..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
        3_600_000..86_400_000 => format!("{} h {} min", ms / 3_600_000, ms % 3_600_000 / 60_000),
        _ => format!("{} d {} h", ms / 86_400_000, ms % 86_400_000 / 3_600_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_to_what_matters() {
        let told = [999_000, 1_250_000, 61_000_000, 3_660_000_000, 90_000_000_000].map(lasted);
        assert_eq!(told, ["999 ms", "1.2 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"]);
    }
}
