//! `countersign audit prove`: that a record stands in the log, in a form that needs no trust in the server.

use super::super::connection::Context;
use super::super::output::{self, printable};
use super::super::table::{Tint, tint};
use anyhow::Context as _;
use clap::Args;
use std::path::PathBuf;

/// Print the proof that a record is in the log
#[derive(Args)]
pub struct ProveArgs {
    /// The record
    event_id: String,
    /// Write the proof to this file, as JSON
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub async fn run(context: &Context, args: ProveArgs) -> anyhow::Result<()> {
    let answer = context.client()?.record_proof(&args.event_id).await?;
    if let Some(file) = &args.output {
        let text = format!("{}\n", serde_json::to_string_pretty(&answer.json)?);
        std::fs::write(file, text).with_context(|| format!("{} cannot be written", file.display()))?;
    }
    if context.json() {
        return output::json(&answer.json);
    }
    let proof = &answer.body;
    let mut lines = vec![format!(
        "{} entry {} of {}, {} hashes from the record to the root.",
        tint(Tint::Good, "Proved:"),
        proof.log_index,
        proof.size,
        proof.proof.len()
    )];
    for (name, value) in [("record", &proof.event_id), ("hash", &proof.record_hash), ("root", &proof.root)] {
        lines.push(format!("  {} {}", tint(Tint::Dim, &format!("{name:<7}")), printable(value)));
    }
    if let Some(file) = &args.output {
        lines.push(format!("  {} {}", tint(Tint::Dim, "written"), printable(&file.display().to_string())));
    }
    output::say(&lines.join("\n"))
}
