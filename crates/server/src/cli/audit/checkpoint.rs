//! `countersign audit checkpoint`: the newest signed note, as it is.

use super::super::connection::Context;
use super::super::output::{self, printable_lines};
use clap::Args;
use serde_json::json;

/// Print the newest checkpoint (a signed note)
#[derive(Args)]
pub struct CheckpointArgs {
    /// Print the log's verifier key instead
    #[arg(long)]
    key: bool,
}

/// Print the log's verifier key, for `countersign-verify --key` and for witnesses
#[derive(Args)]
pub struct KeyArgs {}

pub async fn key(context: &Context) -> anyhow::Result<()> {
    run(context, CheckpointArgs { key: true }).await
}

pub async fn run(context: &Context, args: CheckpointArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    let (name, text) =
        if args.key { ("key", client.log_key().await?) } else { ("checkpoint", client.checkpoint().await?) };
    if context.json() {
        return output::json(&json!({ name: text }));
    }
    output::say(&printable_lines(&text))
}
