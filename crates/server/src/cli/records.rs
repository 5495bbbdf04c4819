//! `countersign records`: the ledger, as a list or one record in full.

use super::connection::Context;
use super::ids;
use super::output::{self, printable, printable_lines};
use super::page::{PageArgs, collect};
use super::table::{Table, Tint, tint};
use super::time::{self, Instant, at, when};
use clap::Args;
use countersign_client::wire::{LedgerRecord, RecordQuery, RetentionState};
use jiff::Timestamp;

/// List ledger records, the newest first, or show one
#[derive(Args)]
pub struct RecordsArgs {
    /// Show this record in full
    #[arg(conflicts_with_all = ["instance", "action", "actor", "after", "before", "oldest_first", "limit", "all", "cursor"])]
    event_id: Option<String>,
    /// List only records of this process or run, in the order of its chain
    #[arg(long, value_name = "INSTANCE")]
    instance: Option<String>,
    /// List only records of this kind, e.g. gate_decided
    #[arg(long, value_name = "ACTION_REF")]
    action: Option<String>,
    /// List only those of this actor
    #[arg(long, value_name = "REF")]
    actor: Option<String>,
    /// List only those recorded at or after this time: RFC 3339, a day, or an age (2h, 7d)
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    after: Option<Instant>,
    /// List only those recorded at or before this time
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    before: Option<Instant>,
    /// List the oldest first, in the order of the chain
    #[arg(long)]
    oldest_first: bool,
    #[command(flatten)]
    page: PageArgs,
}

pub async fn run(context: &Context, args: RecordsArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    if let Some(event_id) = &args.event_id {
        let answer = client.record(event_id).await?;
        return if context.json() { output::json(&answer.json) } else { output::say(&record(&answer.body)?) };
    }
    let instance = match &args.instance {
        Some(text) => Some(ids::instance(&client, text).await?),
        None => None,
    };
    // A chain is read from its beginning.
    let oldest_first = args.oldest_first || instance.is_some();
    let query = RecordQuery {
        order: (!oldest_first).then(|| "desc".to_owned()),
        instance_id: instance,
        action_ref: args.action,
        actor_ref: args.actor,
        after: args.after.map(Instant::to_wire),
        before: args.before.map(Instant::to_wire),
        ..RecordQuery::default()
    };
    let fetch = async |limit, cursor| client.records(&RecordQuery { limit, cursor, ..query.clone() }).await;
    collect(&args.page, fetch).await?.print(context.json(), table, "No records.")
}

fn table(records: &[LedgerRecord]) -> Table {
    let now = Timestamp::now();
    let mut table = Table::new(["recorded", "what", "who", "process", "#", "record"]);
    for record in records {
        table.row([
            when(&record.recorded_at, now),
            tint(Tint::Strong, &record.action_ref),
            printable(&record.actor_ref),
            printable(&record.instance_id),
            record.sequence.to_string(),
            printable(&record.event_id),
        ]);
    }
    table
}

fn record(record: &LedgerRecord) -> anyhow::Result<String> {
    let now = Timestamp::now();
    let sealed = record.log_index.map_or_else(|| "not yet".to_owned(), |index| format!("at log index {index}"));
    let retained = match record.retention.state {
        RetentionState::Retained => "kept",
        RetentionState::Purged => "purged; was kept",
    };
    let until = record
        .retention
        .retention_until
        .as_deref()
        .map_or_else(|| "for ever".to_owned(), |t| format!("until {}", at(t)));
    let mut lines = vec![tint(Tint::Strong, &record.action_ref)];
    for (name, value) in [
        ("record", printable(&record.event_id)),
        ("who", format!("{} ({})", printable(&record.actor_ref), printable(&record.assurance))),
        ("recorded", when(&record.recorded_at, now)),
        ("process", format!("{}, record {} of it", printable(&record.instance_id), record.sequence)),
        ("retention", format!("{retained} {until} ({})", printable(&record.retention.policy_ref))),
        ("sealed", sealed),
        ("hash", printable(&record.record_hash)),
        ("after", printable(&record.prev)),
    ] {
        lines.push(format!("  {} {value}", tint(Tint::Dim, &format!("{name:<10}"))));
    }
    lines.push(printable_lines(&serde_json::to_string_pretty(&record.payload)?));
    Ok(lines.join("\n"))
}
