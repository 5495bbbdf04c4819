//! `countersign audit seal`: a checkpoint over everything that is recorded by now.

use super::super::connection::Context;
use super::super::output::{self, printable};
use super::super::table::{Tint, tint};
use clap::Args;

/// Seal all records now
#[derive(Args)]
pub struct SealArgs {}

pub async fn run(context: &Context, _: SealArgs) -> anyhow::Result<()> {
    let answer = context.client()?.seal().await?;
    if context.json() {
        return output::json(&answer.json);
    }
    let seal = &answer.body;
    output::say(&format!(
        "{} {} records are under a checkpoint.\n  {} {}\n  {} {}",
        tint(Tint::Good, "Sealed:"),
        seal.size,
        tint(Tint::Dim, "evidence"),
        printable(&seal.evidence_id),
        tint(Tint::Dim, "root    "),
        printable(&seal.root)
    ))
}
