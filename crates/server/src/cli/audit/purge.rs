//! `countersign audit purge`: destroys what need not be kept any longer, one record or all that are due. It shows first
//! and asks before; what is held stays, and is said.

use crate::cli::connection::Context;
use crate::cli::failure::{Failure, usage};
use crate::cli::output::{self, printable};
use crate::cli::page::{PageArgs, collect};
use crate::cli::table::{Table, Tint, tint};
use crate::cli::time::at;
use clap::Args;
use countersign_client::wire::{HoldQuery, HoldState, PurgeableQuery, PurgeableRecord, RetentionState};
use countersign_client::{Client, Error};
use jiff::Timestamp;
use serde_json::json;
use std::io::{BufRead, IsTerminal, Write};
use tokio::task::JoinSet;

/// Purges under way at once: they share the server's transactions.
const AT_ONCE: usize = 16;
/// With more than this, progress is shown.
const MANY: usize = 50;

/// Destroy the content of records whose retention has elapsed
#[derive(Args)]
pub struct PurgeArgs {
    /// Purge this record
    #[arg(required_unless_present = "eligible", conflicts_with = "eligible")]
    event_id: Option<String>,
    /// Purge every record whose retention has elapsed and that has no active hold
    #[arg(long)]
    eligible: bool,
    /// Show what would be destroyed and what is held, without purging
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

pub async fn run(context: &Context, args: PurgeArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    match &args.event_id {
        Some(event_id) if args.dry_run => show(context, &client, event_id).await,
        Some(event_id) => one(context, &client, event_id, args.yes).await,
        None => all(context, &client, &args).await,
    }
}

/// One record, and whether it may be purged.
async fn show(context: &Context, client: &Client, event_id: &str) -> anyhow::Result<()> {
    let record = client.record(event_id).await?.body;
    let query = HoldQuery {
        record_ref: Some(record.event_id.clone()),
        state: Some(HoldState::Active),
        limit: Some(500),
        ..HoldQuery::default()
    };
    let holds = client.holds(&query).await?.body.items;
    let record = PurgeableRecord {
        event_id: record.event_id,
        action_ref: record.action_ref,
        actor_ref: record.actor_ref,
        recorded_at: record.recorded_at,
        instance_id: record.instance_id,
        sequence: record.sequence,
        retention: record.retention,
        purge_deadline: None,
        overdue: false,
        holds,
    };
    if context.json() { output::json(&record) } else { output::say(&table(&[record]).to_string()) }
}

async fn one(context: &Context, client: &Client, event_id: &str, yes: bool) -> anyhow::Result<()> {
    confirm(&format!("the content of {}", printable(event_id)), yes)?;
    let answer = client.purge_record(event_id).await?;
    if context.json() {
        return output::json(&answer.json);
    }
    let by = printable(&answer.body.purged_by);
    output::say(&format!("purged {} (recorded as {by})", tint(Tint::Strong, &answer.body.event_id)))
}

async fn all(context: &Context, client: &Client, args: &PurgeArgs) -> anyhow::Result<()> {
    let everything = PageArgs { limit: u32::MAX, all: true, cursor: None };
    let fetch = async |limit, cursor| client.purgeable(&PurgeableQuery { limit, cursor }).await;
    let listed = collect(&everything, fetch).await?;
    if args.dry_run {
        listed.print(context.json(), table, "Nothing may be purged now.")?;
        if !context.json() && !listed.items.is_empty() {
            output::complain(&tint(Tint::Dim, &summary(&listed.items)));
        }
        return Ok(());
    }
    let (due, held): (Vec<PurgeableRecord>, Vec<PurgeableRecord>) =
        listed.items.into_iter().partition(|record| record.holds.is_empty());
    if !due.is_empty() {
        confirm(&format!("the content of {} records ({} are held and stay)", due.len(), held.len()), args.yes)?;
    }
    let outcome = purge(client, due, !context.json()).await?;
    report(context, &outcome, &held)
}

/// What came of it, by event_id.
#[derive(Default)]
struct Outcome {
    purged: Vec<(String, String)>,
    refused: Vec<(String, String, String)>,
}

async fn purge(client: &Client, due: Vec<PurgeableRecord>, talks: bool) -> Result<Outcome, Error> {
    let (total, mut outcome, mut running) = (due.len(), Outcome::default(), JoinSet::new());
    let mut waiting = due.into_iter();
    loop {
        while running.len() < AT_ONCE
            && let Some(record) = waiting.next()
        {
            let client = client.clone();
            running.spawn(async move {
                let answer = client.purge_record(&record.event_id).await;
                (record.event_id, answer)
            });
        }
        let Some(joined) = running.join_next().await else { return Ok(outcome) };
        let Ok((event_id, answer)) = joined else { continue };
        match answer {
            Ok(answer) => outcome.purged.push((event_id, answer.body.purged_by)),
            // Held or purged by somebody else meanwhile.
            Err(Error::Refused(problem)) => {
                outcome.refused.push((event_id, problem.code.clone(), problem.detail.clone()))
            }
            Err(error) => return Err(error),
        }
        let done = outcome.purged.len() + outcome.refused.len();
        if talks && total > MANY && done % MANY == 0 {
            output::complain(&tint(Tint::Dim, &format!("{done} of {total}")));
        }
    }
}

fn report(context: &Context, outcome: &Outcome, held: &[PurgeableRecord]) -> anyhow::Result<()> {
    if context.json() {
        let purged: Vec<_> = outcome.purged.iter().map(|(id, by)| json!({"event_id": id, "purged_by": by})).collect();
        let refused: Vec<_> = outcome
            .refused
            .iter()
            .map(|(id, code, detail)| json!({"event_id": id, "code": code, "detail": detail}))
            .collect();
        output::json(&json!({"purged": purged, "held": held, "refused": refused}))?;
    } else {
        if !held.is_empty() {
            output::say(&table(held).to_string())?;
        }
        for (event_id, code, detail) in &outcome.refused {
            output::complain(&format!("{} {}: {}", tint(Tint::Bad, code), printable(event_id), printable(detail)));
        }
        let count = tint(Tint::Strong, &outcome.purged.len().to_string());
        output::say(&format!("purged {count}, held {}, refused {}", held.len(), outcome.refused.len()))?;
    }
    if outcome.refused.is_empty() { Ok(()) } else { Err(Failure::Reported.into()) }
}

/// Destruction is asked for twice, by a person or by `--yes`.
fn confirm(what: &str, yes: bool) -> anyhow::Result<()> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(usage(
            "a purge destroys content permanently and asks for confirmation, but stdin is not a terminal: add --yes",
        ));
    }
    let mut stderr = anstream::stderr();
    write!(stderr, "Destroy {what} permanently? [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    if matches!(answer.trim(), "y" | "Y" | "yes") { Ok(()) } else { Err(usage("not confirmed: nothing was destroyed")) }
}

fn summary(records: &[PurgeableRecord]) -> String {
    let held = records.iter().filter(|record| !record.holds.is_empty()).count();
    let overdue = records.iter().filter(|record| record.overdue).count();
    format!("{} would be purged, {held} are held; {overdue} are past their deadline", records.len() - held)
}

fn table(records: &[PurgeableRecord]) -> Table {
    let now = Timestamp::now();
    let mut table = Table::new(["record", "what", "process", "#", "kept until", "policy", "purge"]);
    for record in records {
        table.row([
            printable(&record.event_id),
            tint(Tint::Strong, &record.action_ref),
            printable(&record.instance_id),
            record.sequence.to_string(),
            record.retention.retention_until.as_deref().map_or_else(|| "for ever".to_owned(), at),
            printable(&record.retention.policy_ref),
            verdict(record, now),
        ]);
    }
    table
}

/// Whether it may be purged, and what stands in the way.
fn verdict(record: &PurgeableRecord, now: Timestamp) -> String {
    let until = record.retention.retention_until.as_deref().and_then(|time| time.parse::<Timestamp>().ok());
    let holds: Vec<&str> = record.holds.iter().map(|hold| hold.hold_id.as_str()).collect();
    match (record.retention.state, until) {
        (RetentionState::Purged, _) => tint(Tint::Dim, "purged already"),
        (_, None) => tint(Tint::Dim, "never"),
        (_, Some(until)) if now < until => tint(Tint::Dim, "not yet"),
        _ if !holds.is_empty() => tint(Tint::Wait, &format!("held by {}", holds.join(", "))),
        _ if record.overdue => tint(Tint::Bad, "overdue"),
        _ => tint(Tint::Good, "due"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersign_client::wire::{Hold, Retention};

    fn record(until: Option<&str>, state: RetentionState, held: bool, overdue: bool) -> PurgeableRecord {
        let text = |text: &str| text.to_owned();
        let hold = Hold {
            hold_id: text("h-1"),
            record_ref: text("e"),
            instance_id: text("i"),
            state: HoldState::Active,
            placed_at: text("2026-01-01T00:00:00Z"),
            placed_by: text("lea"),
            reason: text("r"),
            case_ref: None,
            released_at: None,
            released_by: None,
            release_reason: None,
        };
        PurgeableRecord {
            event_id: text("e"),
            action_ref: text("gate_decided"),
            actor_ref: text("a"),
            recorded_at: text("2020-01-01T00:00:00Z"),
            instance_id: text("i"),
            sequence: 1,
            retention: Retention { policy_ref: text("p"), retention_until: until.map(text), state },
            purge_deadline: None,
            overdue,
            holds: if held { vec![hold] } else { vec![] },
        }
    }

    #[test]
    fn a_dry_run_says_what_stands_in_the_way() {
        let now: Timestamp = "2026-11-15T00:00:00Z".parse().expect("a time");
        let (past, future) = (Some("2026-11-15T00:00:00Z"), Some("2026-11-15T00:00:01Z"));
        let (kept, gone) = (RetentionState::Retained, RetentionState::Purged);
        for (record, said) in [
            (record(past, kept, false, false), "due"),
            (record(past, kept, false, true), "overdue"),
            (record(past, kept, true, true), "held by h-1"),
            (record(future, kept, true, false), "not yet"),
            (record(None, kept, false, false), "never"),
            (record(past, gone, false, false), "purged already"),
        ] {
            assert_eq!(output::plain(&verdict(&record, now)), said);
        }
        let counted = [record(past, kept, false, true), record(past, kept, true, false)];
        assert_eq!(summary(&counted), "1 would be purged, 1 are held; 1 are past their deadline");
    }
}
