//! `countersign timeline`: what happened, in order, with a reopening beside what it reopened.

use super::connection::Context;
use super::output::printable;
use super::page::{PageArgs, collect};
use super::table::{Tint, tint};
use super::time::when;
use clap::Args;
use countersign_client::wire::{TimelineEntry, TimelineLink, TimelineMove, TimelineQuery};
use jiff::Timestamp;

/// Show every record of a run, an instance or a trace, in order
#[derive(Args)]
#[command(group(clap::ArgGroup::new("of").required(true).args(["instance", "run", "trace"])))]
pub struct TimelineArgs {
    /// A run or a process
    #[arg(value_name = "ID")]
    instance: Option<String>,
    /// A run
    #[arg(long, value_name = "ID")]
    run: Option<String>,
    /// A trace (W3C), with all runs that belong to it
    #[arg(long, value_name = "TRACE")]
    trace: Option<String>,
    #[command(flatten)]
    page: PageArgs,
}

pub async fn run(context: &Context, args: TimelineArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    let query = TimelineQuery {
        trace_id: args.trace,
        run_id: args.run,
        instance_id: args.instance,
        ..TimelineQuery::default()
    };
    let fetch = async |limit, cursor| client.timeline(&TimelineQuery { limit, cursor, ..query.clone() }).await;
    collect(&args.page, fetch).await?.print(context.json(), drawn, "No records.")
}

/// The entries as text: when and who, then what it did, indented.
fn drawn(entries: &[TimelineEntry]) -> String {
    let now = Timestamp::now();
    let several = entries.windows(2).any(|pair| pair[0].instance_id != pair[1].instance_id);
    entries.iter().map(|entry| lines(entry, several, now)).collect::<Vec<_>>().join("\n")
}

fn lines(entry: &TimelineEntry, several: bool, now: Timestamp) -> String {
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
    lines.extend(entry.run_transitions.iter().map(|m| format!("    {}", told("the run", m))));
    lines.extend(entry.transitions.iter().map(|m| format!("    {}", told(m.step.as_deref().unwrap_or("?"), m))));
    lines.extend(entry.facets.iter().map(|facet| format!("    {} {}", tint(Tint::Wait, "◦"), printable(facet))));
    lines.extend(entry.reopens.iter().map(|link| format!("    ↺ reopens {}", linked(link, now))));
    lines.extend(entry.reopened_by.iter().map(|link| format!("    ↻ reopened by {}", linked(link, now))));
    lines.join("\n")
}

fn told(who: &str, m: &TimelineMove) -> String {
    let colour = match m.to_state.as_str() {
        "completed" | "executing" | "in_progress" | "ready" => Tint::Good,
        "failed" | "cannot_complete" | "cancelled" | "overdue" | "voided" => Tint::Bad,
        "waiting" | "blocked" | "paused" | "stopped" | "compensating" => Tint::Wait,
        _ => Tint::Dim,
    };
    format!(
        "{} {} → {} {}",
        tint(Tint::Strong, who),
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
