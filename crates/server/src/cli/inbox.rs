//! `countersign inbox`: what waits for the caller's decision.

use super::asked::{Asked, gist};
use super::connection::Context;
use super::output::{printable, shell_word};
use super::page::{PageArgs, collect};
use super::table::{Fitted, Tint, tint};
use super::time::{ago, when};
use clap::Args;
use countersign_client::wire::{InboxItem, InboxQuery};
use jiff::Timestamp;

/// List the decisions that wait for you
#[derive(Args)]
pub struct InboxArgs {
    /// Show each request in full, with pins, checks and files
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    page: PageArgs,
}

pub async fn run(context: &Context, args: InboxArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    let listed = collect(&args.page, async |limit, cursor| client.inbox(&InboxQuery { limit, cursor }).await).await?;
    let none = "No decision waits for you.";
    if args.full {
        listed.print(context.json(), |items| items.iter().map(full).collect::<Vec<_>>().join("\n\n"), none)?;
    } else {
        listed.print(context.json(), table, none)?;
    }
    if let Ok(caller) = client.whoami().await {
        super::whoami::notice(&caller.body);
    }
    Ok(())
}

fn decide(item: &InboxItem) -> String {
    format!("countersign gate decide {} {} approve", shell_word(&item.instance_id), shell_word(&item.action))
}

fn table(items: &[InboxItem]) -> Fitted {
    let now = Timestamp::now();
    let asks = items.iter().any(|item| item.request.is_some());
    let due = items.iter().any(|item| item.due_at.is_some());
    let mut names = vec!["subject", "action", "scope", "asked"];
    names.extend((due || !asks).then_some("due"));
    names.extend(asks.then_some("request"));
    let substitutes = items.iter().any(|item| item.on_behalf_of.is_some());
    names.extend(substitutes.then_some("on behalf of"));
    names.push("decide with");
    let mut table = Fitted::new(&names);
    for item in items {
        let mut row = vec![
            tint(Tint::Strong, &item.subject_ref),
            printable(&item.action),
            printable(&item.scope),
            ago(&item.assigned_at, now),
        ];
        let until = item.due_at.as_deref().map_or_else(String::new, |due| ago(due, now));
        row.extend((due || !asks).then_some(until));
        row.extend(asks.then(|| item.request.as_ref().map(gist).unwrap_or_default()));
        row.extend(substitutes.then(|| item.on_behalf_of.as_deref().map(printable).unwrap_or_default()));
        row.push(tint(Tint::Dim, &decide(item)));
        table.row(row);
    }
    // The command is what the list is for: it is never left out.
    table.within(None)
}

fn full(item: &InboxItem) -> String {
    let now = Timestamp::now();
    let asked = Asked {
        request: item.request.as_ref(),
        request_digest: item.request_digest.as_deref(),
        checks: item.checks.clone(),
        artifacts: item.artifacts.clone(),
    };
    let mut lines = vec![
        format!("{} of {}", tint(Tint::Strong, &item.action), tint(Tint::Strong, &item.subject_ref)),
        format!("  {} {}", tint(Tint::Dim, "run or process"), printable(&item.instance_id)),
        format!("  {} {}, scope {}", tint(Tint::Dim, "asked"), when(&item.assigned_at, now), printable(&item.scope)),
    ];
    if let Some(approver) = &item.on_behalf_of {
        lines.push(format!("  {} {}", tint(Tint::Dim, "on behalf of"), printable(approver)));
    }
    let asked = asked.render();
    if !asked.is_empty() {
        lines.push(format!("\n{asked}"));
    }
    let digest = item.request_digest.as_ref().map_or_else(String::new, |digest| format!(" --request-digest {digest}"));
    lines.push(format!(
        "\n{}\n  {}",
        tint(Tint::Strong, "Decide"),
        tint(Tint::Dim, &format!("{}{digest}", decide(item)))
    ));
    lines.join("\n")
}
