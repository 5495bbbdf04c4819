//! `countersign timeline`: what happened, in order and why, with a reopening beside what it reopened.

use super::connection::Context;
use super::ids;
use super::output::printable;
use super::page::{PageArgs, collect};
use super::run_view::whole;
use super::table::{Tint, tint};
use super::time::{lasting, when};
use clap::Args;
use countersign_client::Client;
use countersign_client::wire::{TimelineEntry, TimelineError, TimelineGate, TimelineLink, TimelineMove, TimelineQuery};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};

/// Show every record of a run, a process or a trace, in order
#[derive(Args)]
#[command(group(clap::ArgGroup::new("of").required(true).args(["instance", "run", "trace"])))]
pub struct TimelineArgs {
    /// A run or a process
    #[arg(value_name = "ID")]
    instance: Option<String>,
    /// A run
    #[arg(long, value_name = "ID")]
    run: Option<String>,
    /// A W3C trace, with all its runs
    #[arg(long, value_name = "TRACE")]
    trace: Option<String>,
    /// Also show inputs and outputs
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    page: PageArgs,
}

pub async fn run(context: &Context, args: TimelineArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    let (run_id, instance_id) = match (&args.run, &args.instance) {
        (Some(text), _) => (Some(ids::run(&client, text).await?), None),
        (None, Some(text)) => (None, Some(ids::instance(&client, text).await?)),
        (None, None) => (None, None),
    };
    let query = TimelineQuery { trace_id: args.trace, run_id, instance_id, ..TimelineQuery::default() };
    let fetch = async |limit, cursor| client.timeline(&TimelineQuery { limit, cursor, ..query.clone() }).await;
    let listed = collect(&args.page, fetch).await?;
    let named = if args.full && !context.json() { Some(named(&client, &listed.items).await) } else { None };
    listed.print(context.json(), |entries| drawn(entries, named.as_ref(), Timestamp::now()), "No records.")
}

/// The names of the steps of runs, by number.
type Named = HashMap<String, BTreeMap<u64, String>>;

/// A run that cannot be read has none.
async fn named(client: &Client, entries: &[TimelineEntry]) -> Named {
    let mut named = Named::new();
    for entry in entries {
        if !named.contains_key(&entry.instance_id) {
            let run = whole(client, &entry.instance_id).await.map(|answer| answer.body.steps).unwrap_or_default();
            let steps = run.into_iter().map(|step| (u64::from(step.step_seq), step.name)).collect();
            named.insert(entry.instance_id.clone(), steps);
        }
    }
    named
}

/// The entries as text: when and who, then what it did, indented.
fn drawn(entries: &[TimelineEntry], named: Option<&Named>, now: Timestamp) -> String {
    let several = entries.windows(2).any(|pair| pair[0].instance_id != pair[1].instance_id);
    let mut since = Since::default();
    let lines = entries.iter().map(|entry| {
        let mut text = lines(entry, &mut since, several, now);
        for value in named.into_iter().flat_map(|named| values(entry, named)) {
            text.push_str(&format!("\n    {value}"));
        }
        text
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Since when each step has been in its state, as far as the entries tell.
#[derive(Default)]
struct Since(HashMap<(String, String), Timestamp>);

impl Since {
    /// How long the step was in the state that it leaves here, where that says something.
    fn left(&mut self, entry: &TimelineEntry, m: &TimelineMove) -> Option<String> {
        let at: Timestamp = entry.recorded_at.parse().ok()?;
        let step = m.step.clone().unwrap_or_default() + m.compensates.as_deref().map_or("", |_| "\u{0}undo");
        let before = self.0.insert((entry.instance_id.clone(), step), at)?;
        let lasted =
            matches!(m.from_state.as_str(), "in_progress" | "overdue" | "waiting" | "blocked" | "paused" | "stopped");
        lasted.then(|| lasting(at.duration_since(before)))
    }
}

/// What went in and came out, as the record says it: a value, or its digest.
fn values(entry: &TimelineEntry, named: &Named) -> Vec<String> {
    let Some(payload) = &entry.payload else { return vec![] };
    let names = named.get(&entry.instance_id);
    let of = |holder: &Value, name: &str| {
        let digest = || Some(format!("sha256:{}", holder.get(format!("{name}_digest"))?.as_str()?));
        holder.get(name).map(Value::to_string).or_else(digest)
    };
    let step = |holder: &Value| match holder.get("step_seq").and_then(Value::as_u64) {
        Some(seq) => names.and_then(|names| names.get(&seq)).cloned().unwrap_or_else(|| format!("step {seq}")),
        None => format!("steps {}", holder.get("step_seqs").and_then(Value::as_str).unwrap_or("?")),
    };
    let line = |what: &str, who: &str, value: String| {
        format!("{} {}", tint(Tint::Dim, &format!("{what} of {who}:")), printable(&value))
    };
    let of_run = ["input", "output"].into_iter().filter_map(|what| Some(line(what, "the run", of(payload, what)?)));
    let of_steps = [("inputs", "input"), ("outputs", "output")].into_iter().flat_map(|(list, what)| {
        let held = payload.get(list).and_then(Value::as_array).into_iter().flatten();
        held.map(move |holder| (what, holder)).collect::<Vec<_>>()
    });
    let of_steps = of_steps.filter_map(|(what, holder)| Some(line(what, &step(holder), of(holder, what)?)));
    of_run.chain(of_steps).collect()
}

fn lines(entry: &TimelineEntry, since: &mut Since, several: bool, now: Timestamp) -> String {
    let mut head = format!(
        "{}  {}  by {}",
        tint(Tint::Dim, &when(&entry.recorded_at, now)),
        tint(Tint::Strong, &entry.action_ref),
        printable(&entry.actor_ref)
    );
    if several {
        head.push_str(&tint(Tint::Dim, &format!("  in {}", entry.instance_id)));
    }
    if let Some(reason) = &entry.reason {
        head.push_str(&format!(": {}", printable(reason)));
    }
    let mut lines = vec![head];
    if entry.purged {
        lines.push(format!("    {}", tint(Tint::Dim, "its content was purged")));
    }
    lines.extend(entry.gate.iter().map(|gate| format!("    {}", of_gate(gate))));
    for m in entry.run_transitions.iter().chain(&entry.transitions) {
        lines.push(format!("    {}", told(m, since.left(entry, m))));
    }
    lines.extend(entry.errors.iter().map(|error| format!("    {}", failed(error))));
    let known = |error: &str| entry.errors.iter().any(|one| one.error.as_deref() == Some(error));
    let why = entry.last_error.as_deref().filter(|error| !known(error));
    lines.extend(why.map(|error| format!("    {}", tint(Tint::Bad, &format!("✕ {error}")))));
    lines.extend(entry.facets.iter().map(|facet| format!("    {} {}", tint(Tint::Wait, "◦"), printable(facet))));
    lines.extend(entry.reopens.iter().map(|link| format!("    ↺ reopens {}", linked(link, now))));
    lines.extend(entry.reopened_by.iter().map(|link| format!("    ↻ reopened by {}", linked(link, now))));
    lines.join("\n")
}

/// `the gate of deploy was opened for boss`, `the gate of deploy: approve`.
fn of_gate(gate: &TimelineGate) -> String {
    let action = tint(Tint::Strong, &gate.action);
    match &gate.decision {
        Some(decision) => {
            let colour = if matches!(decision.as_str(), "approve" | "approved") { Tint::Good } else { Tint::Bad };
            format!("the gate of {action}: {}", tint(colour, decision))
        }
        None => format!("the gate of {action} was opened for {}", tint(Tint::Strong, &gate.approvers.join(", "))),
    }
}

/// `✕ VALIDATE, attempt 2: busy; tried again`
fn failed(error: &TimelineError) -> String {
    let why = error.error.as_deref().or(error.error_category.as_deref()).unwrap_or("it gave no reason");
    let again = if error.retried { "; it is tried again" } else { "" };
    tint(Tint::Bad, &format!("✕ {}, attempt {}: {why}{again}", error.step, error.attempt))
}

fn told(m: &TimelineMove, lasted: Option<String>) -> String {
    let colour = match m.to_state.as_str() {
        "completed" | "executing" | "in_progress" | "ready" => Tint::Good,
        "failed" | "cannot_complete" | "cancelled" | "overdue" | "voided" => Tint::Bad,
        "waiting" | "blocked" | "paused" | "stopped" | "compensating" => Tint::Wait,
        _ => Tint::Dim,
    };
    let who = match (&m.compensates, m.actor_class.is_some() || m.step.is_some()) {
        (Some(undone), _) => tint(Tint::Wait, &format!("↩ undo {undone}")),
        (None, true) => tint(Tint::Strong, m.step.as_deref().unwrap_or("?")),
        (None, false) => tint(Tint::Strong, "the run"),
    };
    let lasted = lasted.map_or_else(String::new, |lasted| format!(" after {lasted}"));
    format!(
        "{who} {} → {}{lasted} {}",
        printable(&m.from_state),
        tint(colour, &m.to_state),
        tint(Tint::Dim, &format!("({} {})", m.transition_id, m.trigger_ref))
    )
}

fn linked(link: &TimelineLink, now: Timestamp) -> String {
    let why = link.correction_reason.as_deref().map_or_else(String::new, |reason| format!(", {reason}"));
    printable(&format!(
        "{} by {}, {}{why} ({})",
        link.action_ref,
        link.actor_ref,
        when(&link.recorded_at, now),
        link.event_id
    ))
}

#[cfg(test)]
mod tests {
    use super::super::output::plain;
    use super::*;
    use serde_json::json;

    fn entry(seq: u64, at: &str, more: Value) -> TimelineEntry {
        let mut entry = json!({"event_id": format!("e-{seq}"), "recorded_at": at, "instance_id": "r", "sequence": seq,
            "action_ref": "x", "actor_ref": "w"});
        if let (Value::Object(entry), Value::Object(more)) = (&mut entry, more) {
            entry.extend(more);
        }
        serde_json::from_value(entry).expect("an entry")
    }

    fn step(name: &str, id: &str, from: &str, to: &str) -> Value {
        json!({"transition_id": id, "step": name, "from_state": from, "to_state": to, "actor_class": "executor_worker",
            "trigger_ref": "t"})
    }

    #[test]
    fn it_says_how_long_why_and_what_was_decided() {
        let undo = json!({"transition_id": "T2", "step": "A", "compensates": "A", "from_state": "ready", "to_state": "in_progress",
            "actor_class": "executor_worker", "trigger_ref": "t"});
        let entries = [
            entry(
                1,
                "2026-11-15T10:00:00Z",
                json!({"transitions": [step("A", "T2", "ready", "in_progress")],
                "payload": {"inputs": [{"step_seq": 0, "input": {"n": 1}}]}}),
            ),
            entry(
                2,
                "2026-11-15T10:00:03Z",
                json!({"transitions": [step("A", "T9", "in_progress", "failed")],
                "errors": [{"step": "A", "attempt": 1, "error": "busy", "retried": true}], "last_error": "busy"}),
            ),
            entry(3, "2026-11-15T10:01:00Z", json!({"gate": {"action": "B", "approvers": ["boss", "ann"]}})),
            entry(4, "2026-11-15T10:02:00Z", json!({"gate": {"action": "B", "decision": "reject"}, "reason": "no"})),
            entry(5, "2026-11-15T10:03:00Z", json!({"transitions": [undo], "last_error": "REJECTED"})),
        ];
        let now = "2026-11-15T11:00:00Z".parse().expect("a time");
        let named = HashMap::from([("r".to_owned(), BTreeMap::from([(0, "A".to_owned())]))]);
        let told = plain(&drawn(&entries, Some(&named), now));
        for part in [
            "A ready → in_progress (T2 t)\n    input of A: {\"n\":1}",
            "A in_progress → failed after 3 s (T9 t)\n    ✕ A, attempt 1: busy; it is tried again\n",
            "the gate of B was opened for boss, ann",
            "by w: no\n    the gate of B: reject",
            "↩ undo A ready → in_progress (T2 t)\n    ✕ REJECTED",
        ] {
            assert!(told.contains(part), "{part:?} is not in\n{told}");
        }
        assert_eq!(told.matches("busy").count(), 1, "{told}");
        assert!(!plain(&drawn(&entries, None, now)).contains("input of A"));
    }
}
