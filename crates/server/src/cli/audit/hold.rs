//! `countersign audit hold`: keep a record from being purged, and let it go again.

use crate::cli::Keyed;
use crate::cli::connection::Context;
use crate::cli::output::{self, printable};
use crate::cli::page::{PageArgs, collect};
use crate::cli::table::{Table, Tint, tint};
use crate::cli::time::when;
use clap::{Args, Subcommand, ValueEnum};
use countersign_client::wire::{Hold, HoldQuery, HoldState, PlaceHold, ReleaseHold};
use jiff::Timestamp;

/// Place, release and list legal holds
#[derive(Subcommand)]
pub enum HoldCommand {
    /// Keep a record from being purged
    Place(PlaceArgs),
    /// Release a hold; other holds on the same record stay active
    Release(ReleaseArgs),
    /// List holds, released ones included
    List(ListArgs),
}

#[derive(Args)]
pub struct PlaceArgs {
    /// The record, as `countersign records` lists it
    event_id: String,
    /// The reason for the hold, for the record
    #[arg(long)]
    reason: String,
    /// The case that the hold belongs to
    #[arg(long, value_name = "CASE_REF")]
    case: Option<String>,
    #[command(flatten)]
    keyed: Keyed,
}

#[derive(Args)]
pub struct ReleaseArgs {
    /// The hold, as `countersign audit hold list` shows it
    hold_id: String,
    /// The reason for the release, for the record
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    keyed: Keyed,
}

#[derive(Args)]
pub struct ListArgs {
    /// List only holds on this record
    #[arg(long, value_name = "EVENT_ID")]
    record: Option<String>,
    /// List only active or only released holds
    #[arg(long, value_enum, ignore_case = true)]
    state: Option<StateArg>,
    /// List only holds of this case
    #[arg(long, value_name = "CASE_REF")]
    case: Option<String>,
    #[command(flatten)]
    page: PageArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum StateArg {
    Active,
    Released,
}

pub async fn run(context: &Context, command: HoldCommand) -> anyhow::Result<()> {
    match command {
        HoldCommand::Place(args) => place(context, args).await,
        HoldCommand::Release(args) => release(context, args).await,
        HoldCommand::List(args) => list(context, args).await,
    }
}

async fn place(context: &Context, args: PlaceArgs) -> anyhow::Result<()> {
    let request = PlaceHold { record_ref: args.event_id, reason: args.reason, case_ref: args.case };
    let answer = context.client_keyed(&args.keyed)?.place_hold(&request).await?;
    if context.json() {
        return output::json(&answer.json);
    }
    let hold = tint(Tint::Strong, &answer.body.hold_id);
    output::say(&format!("{} is held by {hold}", printable(&request.record_ref)))
}

async fn release(context: &Context, args: ReleaseArgs) -> anyhow::Result<()> {
    let request = ReleaseHold { reason: Some(args.reason) };
    let answer = context.client_keyed(&args.keyed)?.release_hold(&args.hold_id, &request).await?;
    if context.json() {
        output::json(&answer.json)
    } else {
        output::say(&printable(&format!("released {}", args.hold_id)))
    }
}

async fn list(context: &Context, args: ListArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    let state = args.state.map(|state| match state {
        StateArg::Active => HoldState::Active,
        StateArg::Released => HoldState::Released,
    });
    let query = HoldQuery { record_ref: args.record, state, case_ref: args.case, ..HoldQuery::default() };
    let fetch = async |limit, cursor| client.holds(&HoldQuery { limit, cursor, ..query.clone() }).await;
    collect(&args.page, fetch).await?.print(context.json(), table, "No holds.")
}

fn table(holds: &[Hold]) -> Table {
    let now = Timestamp::now();
    let mut table = Table::new(["hold", "state", "since", "by", "case", "reason", "record"]);
    for hold in holds {
        let (state, since, by, reason) = match hold.state {
            HoldState::Active => (tint(Tint::Wait, "active"), &hold.placed_at, &hold.placed_by, &hold.reason),
            HoldState::Released => (
                tint(Tint::Dim, "released"),
                hold.released_at.as_ref().unwrap_or(&hold.placed_at),
                hold.released_by.as_ref().unwrap_or(&hold.placed_by),
                hold.release_reason.as_ref().unwrap_or(&hold.reason),
            ),
        };
        table.row([
            printable(&hold.hold_id),
            state,
            when(since, now),
            printable(by),
            printable(hold.case_ref.as_deref().unwrap_or("–")),
            printable(reason),
            printable(&hold.record_ref),
        ]);
    }
    table
}
