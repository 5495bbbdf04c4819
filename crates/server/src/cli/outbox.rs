//! `countersign outbox`: what was sent to webhooks, and what did not arrive.

use super::connection::Context;
use super::output::printable;
use super::page::{PageArgs, collect};
use super::table::{Table, Tint, tint};
use super::time::when;
use clap::{Args, Subcommand, ValueEnum};
use countersign_client::wire::{OutboxEvent, OutboxQuery, OutboxState};
use jiff::Timestamp;

/// List outgoing events and what became of them
#[derive(Subcommand)]
pub enum OutboxCommand {
    /// List events and their deliveries, the newest first
    List(ListArgs),
}

#[derive(Args)]
pub struct ListArgs {
    /// Filter by delivery state
    #[arg(long, value_enum, ignore_case = true)]
    state: Option<StateArg>,
    /// List the oldest first
    #[arg(long)]
    oldest_first: bool,
    #[command(flatten)]
    page: PageArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum StateArg {
    Pending,
    Delivered,
    Dead,
}

pub async fn run(context: &Context, command: OutboxCommand) -> anyhow::Result<()> {
    match command {
        OutboxCommand::List(args) => list(context, args).await,
    }
}

async fn list(context: &Context, args: ListArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    let state = args.state.map(|state| match state {
        StateArg::Pending => OutboxState::Pending,
        StateArg::Delivered => OutboxState::Delivered,
        StateArg::Dead => OutboxState::Dead,
    });
    let order = (!args.oldest_first).then(|| "desc".to_owned());
    let fetch = async |limit, cursor| client.outbox(&OutboxQuery { state, order: order.clone(), limit, cursor }).await;
    collect(&args.page, fetch).await?.print(context.json(), table, "No events.")
}

fn state(state: OutboxState) -> String {
    match state {
        OutboxState::Pending => tint(Tint::Wait, "pending"),
        OutboxState::Delivered => tint(Tint::Dim, "delivered"),
        OutboxState::Dead => tint(Tint::Strong, "dead"),
    }
}

fn table(events: &[OutboxEvent]) -> Table {
    let now = Timestamp::now();
    let mut table = Table::new(["event", "type", "state", "sent", "webhook", "attempts", "last error"]);
    for event in events {
        let head = |state: String| {
            [printable(&event.outbox_id), printable(&event.event_type), state, when(&event.created_at, now)]
        };
        let row = |table: &mut Table, state: String, rest: [String; 3]| {
            let ([a, b, c, d], [e, f, g]) = (head(state), rest);
            table.row([a, b, c, d, e, f, g]);
        };
        if event.deliveries.is_empty() {
            row(&mut table, state(event.state), [String::new(), String::new(), String::new()]);
        }
        for delivery in &event.deliveries {
            let error = delivery.last_error.as_deref().unwrap_or_default();
            let rest = [printable(&delivery.webhook), delivery.attempts.to_string(), printable(error)];
            row(&mut table, state(delivery.state), rest);
        }
    }
    table
}
