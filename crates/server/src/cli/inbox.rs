//! `countersign inbox`: what waits for the caller's decision.

use super::connection::Context;
use super::output::{printable, shell_word};
use super::page::{PageArgs, collect};
use super::table::{Fitted, Tint, tint};
use super::time::ago;
use clap::Args;
use countersign_client::wire::{InboxItem, InboxQuery};
use jiff::Timestamp;

/// List what waits for your decision
#[derive(Args)]
pub struct InboxArgs {
    #[command(flatten)]
    page: PageArgs,
}

pub async fn run(context: &Context, args: InboxArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    let listed = collect(&args.page, async |limit, cursor| client.inbox(&InboxQuery { limit, cursor }).await).await?;
    listed.print(context.json(), table, "Nothing waits for you.")
}

fn table(items: &[InboxItem]) -> Fitted {
    let now = Timestamp::now();
    let mut table = Fitted::new(&["subject", "action", "scope", "asked", "due", "decide with"]);
    for item in items {
        let decide =
            format!("countersign gate decide {} {} approve", shell_word(&item.instance_id), shell_word(&item.action));
        table.row(vec![
            tint(Tint::Strong, &item.subject_ref),
            printable(&item.action),
            printable(&item.scope),
            ago(&item.assigned_at, now),
            item.due_at.as_deref().map_or_else(String::new, |due| ago(due, now)),
            tint(Tint::Dim, &decide),
        ]);
    }
    // The command is what the list is for: it is never left out.
    table.within(None)
}
