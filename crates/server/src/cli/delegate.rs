//! `countersign delegate`: substitutes who decide in an approver's place.

use super::Keyed;
use super::connection::Context;
use super::output::{self, printable};
use super::page::{PageArgs, collect};
use super::table::{Table, Tint, tint};
use super::time::{Instant, now, parse_ahead, when};
use clap::{Args, Subcommand};
use countersign_client::wire::{Delegation, DelegationQuery, DelegationStatus, MakeDelegation};
use jiff::Timestamp;

/// Name substitutes who approve or reject in your place
#[derive(Subcommand)]
pub enum DelegateCommand {
    Add(AddArgs),
    List(ListArgs),
    Revoke(RevokeArgs),
}

/// Name a substitute for a period; signed with the key of your profile
#[derive(Args)]
pub struct AddArgs {
    /// The substitute
    #[arg(value_name = "REF")]
    delegate: String,
    /// The exact scope of the gates, as their gate_spec has it
    #[arg(long)]
    scope: String,
    /// When the period begins: a time, a day, or how long from now, e.g. "in 2h" [default: now]
    #[arg(long, value_name = "TIME", value_parser = parse_ahead)]
    from: Option<Instant>,
    /// When it ends: a time, a day, or how long from now, e.g. "in 14d"
    #[arg(long, value_name = "TIME", value_parser = parse_ahead)]
    until: Instant,
    /// Why
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    keyed: Keyed,
}

/// List the delegations that you made and those that name you
#[derive(Args)]
pub struct ListArgs {
    /// Those of this actor instead
    #[arg(value_name = "REF")]
    actor_ref: Option<String>,
    #[command(flatten)]
    page: PageArgs,
}

/// End a delegation that you made
#[derive(Args)]
pub struct RevokeArgs {
    /// The delegation, as `countersign delegate list` shows it
    delegation_id: String,
    #[command(flatten)]
    keyed: Keyed,
}

pub async fn run(context: &Context, command: DelegateCommand) -> anyhow::Result<()> {
    match command {
        DelegateCommand::Add(args) => add(context, args).await,
        DelegateCommand::List(args) => list(context, args).await,
        DelegateCommand::Revoke(args) => revoke(context, args).await,
    }
}

async fn add(context: &Context, args: AddArgs) -> anyhow::Result<()> {
    let client = context.client_keyed(&args.keyed)?;
    let me = client.whoami().await?.body.actor_ref;
    let request = MakeDelegation {
        delegate_ref: args.delegate,
        scope: args.scope,
        from: args.from.unwrap_or_else(now).to_wire(),
        until: args.until.to_wire(),
        reason: args.reason,
    };
    let answer = client.make_delegation(&me, &request).await?;
    if context.json() {
        return output::json(&answer.json);
    }
    output::say(&format!(
        "{} decides in your place where a gate of {} allows it, until {} ({})",
        tint(Tint::Strong, &request.delegate_ref),
        tint(Tint::Strong, &request.scope),
        when(&request.until, Timestamp::now()),
        printable(&answer.body.delegation_id)
    ))
}

async fn list(context: &Context, args: ListArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    let whose = match args.actor_ref {
        Some(actor_ref) => actor_ref,
        None => client.whoami().await?.body.actor_ref,
    };
    let fetch = async |limit, cursor| client.delegations(&whose, &DelegationQuery { limit, cursor }).await;
    collect(&args.page, fetch).await?.print(context.json(), table, "No delegations.")
}

fn table(delegations: &[Delegation]) -> Table {
    let now = Timestamp::now();
    let mut table = Table::new(["approver", "substitute", "scope", "status", "from", "until", "delegation"]);
    for one in delegations {
        let status = match one.status {
            DelegationStatus::Pending => tint(Tint::Wait, "pending"),
            DelegationStatus::Active => tint(Tint::Good, "active"),
            DelegationStatus::Expired => tint(Tint::Dim, "expired"),
            DelegationStatus::Revoked => tint(Tint::Dim, "revoked"),
        };
        table.row([
            tint(Tint::Strong, &one.delegator_ref),
            tint(Tint::Strong, &one.delegate_ref),
            printable(&one.scope),
            status,
            when(&one.from, now),
            when(&one.until, now),
            printable(&one.delegation_id),
        ]);
    }
    table
}

async fn revoke(context: &Context, args: RevokeArgs) -> anyhow::Result<()> {
    let client = context.client_keyed(&args.keyed)?;
    let me = client.whoami().await?.body.actor_ref;
    let answer = client.revoke_delegation(&me, &args.delegation_id).await?;
    if context.json() {
        output::json(&answer.json)
    } else {
        output::say(&printable(&format!("revoked {}", args.delegation_id)))
    }
}
