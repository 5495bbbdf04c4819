//! `countersign grant`, `revoke` and `grants`: which scopes an actor holds.

use super::Keyed;
use super::connection::Context;
use super::output::{self, printable};
use super::page::{PageArgs, collect};
use super::table::{Table, Tint, tint};
use super::time::when;
use clap::Args;
use countersign_client::wire::{Grant, GrantQuery, GrantScope, GrantStatus};
use countersign_kernel::registry::scopes;
use jiff::Timestamp;

/// Grant a scope to an actor
#[derive(Args)]
pub struct GrantArgs {
    /// The actor that receives the scope
    subject: String,
    /// The exact scope, e.g. workflows:fire
    scope: String,
    #[command(flatten)]
    keyed: Keyed,
}

/// Revoke a grant
#[derive(Args)]
pub struct RevokeArgs {
    /// The grant, as `countersign grants` lists it
    grant_id: String,
    #[command(flatten)]
    keyed: Keyed,
}

/// List grants, revoked ones included
#[derive(Args)]
pub struct GrantsArgs {
    /// List only those of this actor
    #[arg(long, value_name = "REF")]
    subject: Option<String>,
    /// List only grants of this scope
    #[arg(long)]
    scope: Option<String>,
    #[command(flatten)]
    page: PageArgs,
}

pub async fn grant(context: &Context, args: GrantArgs) -> anyhow::Result<()> {
    let request = GrantScope { subject_ref: args.subject, action_scope: args.scope };
    let answer = context.client_keyed(&args.keyed)?.grant(&request).await?;
    if context.json() {
        return output::json(&answer.json);
    }
    let told = format!(
        "granted {} to {} ({})",
        tint(Tint::Strong, &request.action_scope),
        tint(Tint::Strong, &request.subject_ref),
        printable(&answer.body.grant_id)
    );
    output::say(&told)?;
    let known = scopes::ALL.iter().any(|scope| {
        let rest = request.action_scope.strip_prefix(scope);
        rest.is_some_and(|rest| rest.is_empty() || (rest.starts_with(':') && rest.len() > 1))
    });
    if !known {
        output::complain("note: the engine itself never asks for this scope; is it spelt as you mean it?");
    }
    Ok(())
}

pub async fn revoke(context: &Context, args: RevokeArgs) -> anyhow::Result<()> {
    let answer = context.client_keyed(&args.keyed)?.revoke(&args.grant_id).await?;
    if context.json() {
        output::json(&answer.json)
    } else {
        output::say(&printable(&format!("revoked {}", args.grant_id)))
    }
}

pub async fn list(context: &Context, args: GrantsArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    let fetch = async |limit, cursor| {
        let (subject_ref, action_scope) = (args.subject.clone(), args.scope.clone());
        client.grants(&GrantQuery { subject_ref, action_scope, limit, cursor, ..GrantQuery::default() }).await
    };
    collect(&args.page, fetch).await?.print(context.json(), table, "No grants.")
}

fn table(grants: &[Grant]) -> Table {
    let now = Timestamp::now();
    let mut table = Table::new(["actor", "scope", "status", "since", "grant"]);
    for grant in grants {
        let (status, since) = match (grant.status, &grant.revoked_at) {
            (GrantStatus::Revoked, revoked_at) => (tint(Tint::Dim, "revoked"), revoked_at.as_ref()),
            (GrantStatus::Active, _) => (tint(Tint::Good, "active"), None),
        };
        table.row([
            tint(Tint::Strong, &grant.subject_ref),
            printable(&grant.action_scope),
            status,
            when(since.unwrap_or(&grant.granted_at), now),
            printable(&grant.grant_id),
        ]);
    }
    table
}
