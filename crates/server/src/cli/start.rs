//! `countersign start`: starts a process from a published definition or from a declaration.

use super::Keyed;
use super::connection::Context;
use super::input::{Document, json_or_file};
use super::output::{self, shell_word};
use super::table::{Tint, tint};
use clap::Args;
use countersign_client::wire::StartProcess;

/// Start a process
#[derive(Args)]
pub struct StartArgs {
    /// A published definition: NAME for the newest version, NAME@2 for that one
    #[arg(required_unless_present = "declaration", conflicts_with = "declaration")]
    definition: Option<String>,
    /// The subject of the process: a batch, an order, a document
    #[arg(long, value_name = "REF")]
    subject: String,
    /// The approvers by guard, as JSON or in a JSON file; with a definition, only for its `replaceable` entries
    #[arg(long, value_name = "FILE|JSON")]
    gate_spec: Option<String>,
    /// Start from this declaration (a JSON file) instead of a published definition
    #[arg(long, value_name = "FILE")]
    declaration: Option<String>,
    /// The reason, for the record
    #[arg(long)]
    reason: Option<String>,
    /// Print only the id of the process
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
    #[command(flatten)]
    keyed: Keyed,
}

pub async fn run(context: &Context, args: StartArgs) -> anyhow::Result<()> {
    let request = StartProcess {
        declaration: args.declaration.as_deref().map(|file| Document::read(file)?.json()).transpose()?,
        definition: args.definition,
        subject_ref: args.subject,
        gate_spec: args.gate_spec.as_deref().map(json_or_file).transpose()?,
        reason: args.reason,
    };
    let answer = context.client_keyed(&args.keyed)?.start(&request).await?;
    if context.json() {
        return output::json(&answer.json);
    }
    let instance = &answer.body.instance_id;
    if args.quiet {
        return output::say_verbatim(instance);
    }
    output::say(&format!("started {}", tint(Tint::Strong, instance)))?;
    output::next([format!("countersign show {}", shell_word(instance))])
}
