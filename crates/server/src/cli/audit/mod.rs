//! `countersign audit`: what auditors, record keepers and lawyers do with the ledger.

mod hold;
mod purge;

use super::connection::Context;
use clap::Subcommand;

/// Hold and purge ledger records
#[derive(Subcommand)]
pub enum AuditCommand {
    #[command(subcommand)]
    Hold(hold::HoldCommand),
    Purge(purge::PurgeArgs),
}

pub async fn run(context: &Context, command: AuditCommand) -> anyhow::Result<()> {
    match command {
        AuditCommand::Hold(command) => hold::run(context, command).await,
        AuditCommand::Purge(args) => purge::run(context, args).await,
    }
}
