//! `countersign audit`: what the ledger proves, one file per command.

mod checkpoint;
mod consistency;
mod prove;
mod seal;
mod verify;

use super::connection::Context;
use clap::Subcommand;

/// Verify records and the log, seal, and fetch proofs
#[derive(Subcommand)]
pub enum AuditCommand {
    Verify(verify::VerifyArgs),
    Seal(seal::SealArgs),
    Checkpoint(checkpoint::CheckpointArgs),
    Prove(prove::ProveArgs),
    Consistency(consistency::ConsistencyArgs),
}

pub async fn run(context: &Context, command: AuditCommand) -> anyhow::Result<()> {
    match command {
        AuditCommand::Verify(args) => verify::run(context, args).await,
        AuditCommand::Seal(args) => seal::run(context, args).await,
        AuditCommand::Checkpoint(args) => checkpoint::run(context, args).await,
        AuditCommand::Prove(args) => prove::run(context, args).await,
        AuditCommand::Consistency(args) => consistency::run(context, args).await,
    }
}
