//! `countersign fire`: moves a process along one of its transitions.

use super::Keyed;
use super::connection::Context;
use super::ids;
use super::output::{self, printable};
use super::table::{Tint, tint};
use clap::Args;
use countersign_client::wire::FireTransition;

/// Fire a transition of a process
#[derive(Args)]
pub struct FireArgs {
    /// The process
    instance: String,
    /// The transition's action
    action: String,
    /// The reason, for the record
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    keyed: Keyed,
}

pub async fn run(context: &Context, args: FireArgs) -> anyhow::Result<()> {
    let request = FireTransition { action: args.action, reason: args.reason };
    let client = context.client_keyed(&args.keyed)?;
    let instance = ids::instance(&client, &args.instance).await?;
    let answer = client.fire(&instance, &request).await?;
    if context.json() {
        return output::json(&answer.json);
    }
    let fired = &answer.body;
    let told = format!(
        "{} → {} {}",
        printable(&request.action),
        tint(Tint::Strong, &fired.new_state),
        tint(Tint::Dim, &format!("(transition {}, record {})", fired.sequence_number, fired.event_id))
    );
    output::say(&told)
}
