//! `countersign audit consistency`: that the log has only grown between two sizes.

use super::super::connection::Context;
use super::super::output::{self, printable};
use super::super::table::{Tint, tint};
use clap::Args;
use countersign_client::wire::ConsistencyQuery;

/// Print the proof that the log only grew between two sizes
#[derive(Args)]
pub struct ConsistencyArgs {
    /// The size of the earlier checkpoint
    old: u64,
    /// The size of the later checkpoint
    new: u64,
}

pub async fn run(context: &Context, args: ConsistencyArgs) -> anyhow::Result<()> {
    let query = ConsistencyQuery { old: args.old, new: args.new };
    let answer = context.client()?.consistency(&query).await?;
    if context.json() {
        return output::json(&answer.json);
    }
    let proof = &answer.body;
    let mut lines = vec![format!("From {} to {} entries, {} hashes.", proof.old, proof.new, proof.proof.len())];
    for (name, value) in [("old root", &proof.old_root), ("new root", &proof.new_root)] {
        lines.push(format!("  {} {}", tint(Tint::Dim, name), printable(value)));
    }
    lines.extend(proof.proof.iter().map(|hash| format!("  {}", printable(hash))));
    output::say(&lines.join("\n"))
}
