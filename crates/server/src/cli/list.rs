//! `countersign list`: the processes, newest facts first to see: subject and state.

use super::connection::Context;
use super::output::printable;
use super::page::{PageArgs, collect};
use super::table::{Table, Tint, tint};
use super::time::{self, Instant, when};
use super::view::state_tint;
use clap::Args;
use countersign_client::wire::{ProcessQuery, WorkflowView};
use jiff::Timestamp;

/// List processes
#[derive(Args)]
pub struct ListArgs {
    /// List only those with this subject
    #[arg(long, value_name = "REF")]
    subject: Option<String>,
    /// List only those that this actor started
    #[arg(long, value_name = "REF")]
    initiator: Option<String>,
    /// List only those started at or after this time: RFC 3339, a day, or an age (2h, 7d)
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    after: Option<Instant>,
    /// List only those started at or before this time
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    before: Option<Instant>,
    #[command(flatten)]
    page: PageArgs,
}

pub async fn run(context: &Context, args: ListArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    let query = ProcessQuery {
        subject_ref: args.subject,
        initiator_ref: args.initiator,
        started_after: args.after.map(Instant::to_wire),
        started_before: args.before.map(Instant::to_wire),
        ..ProcessQuery::default()
    };
    let fetch = async |limit, cursor| client.processes(&ProcessQuery { limit, cursor, ..query.clone() }).await;
    collect(&args.page, fetch).await?.print(context.json(), table, "No processes.")
}

fn table(views: &[WorkflowView]) -> Table {
    let now = Timestamp::now();
    let mut table = Table::new(["process", "subject", "state", "definition", "initiator", "started"]);
    for view in views {
        table.row([
            printable(&view.instance_id),
            tint(Tint::Strong, &view.subject_ref),
            tint(state_tint(view), &view.current_state),
            printable(&view.declaration_ref),
            printable(&view.initiator_ref),
            when(&view.started_at, now),
        ]);
    }
    table
}
