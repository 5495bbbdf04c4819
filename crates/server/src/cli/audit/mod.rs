//! `countersign audit`: what the ledger proves, and what auditors, record keepers and lawyers do with it. One file per
//! command.

mod case;
mod checkpoint;
mod consistency;
mod dispute;
mod export;
mod hold;
mod investigate;
mod prove;
mod prove_path;
mod prove_run;
mod purge;
mod seal;
mod sidecar;
mod verify;

use super::connection::Context;
use clap::Subcommand;

/// Verify, seal, prove, hold and purge ledger records
#[derive(Subcommand)]
pub enum AuditCommand {
    Export(export::ExportArgs),
    Verify(verify::VerifyArgs),
    Seal(seal::SealArgs),
    Checkpoint(checkpoint::CheckpointArgs),
    Key(checkpoint::KeyArgs),
    Prove(prove::ProveArgs),
    ProvePath(prove_path::ProvePathArgs),
    Dispute(dispute::DisputeArgs),
    Investigate(investigate::InvestigateArgs),
    Consistency(consistency::ConsistencyArgs),
    #[command(subcommand)]
    Hold(hold::HoldCommand),
    Purge(purge::PurgeArgs),
}

pub async fn run(context: &Context, command: AuditCommand) -> anyhow::Result<()> {
    match command {
        AuditCommand::Hold(command) => hold::run(context, command).await,
        AuditCommand::Purge(args) => purge::run(context, args).await,
        AuditCommand::Export(args) => export::run(context, args).await,
        AuditCommand::Verify(args) => verify::run(context, args).await,
        AuditCommand::Seal(args) => seal::run(context, args).await,
        AuditCommand::Checkpoint(args) => checkpoint::run(context, args).await,
        AuditCommand::Key(_) => checkpoint::key(context).await,
        AuditCommand::Prove(args) => prove::run(context, args).await,
        AuditCommand::ProvePath(args) => prove_path::run(context, args).await,
        AuditCommand::Dispute(args) => dispute::run(context, args).await,
        AuditCommand::Investigate(args) => investigate::run(context, args).await,
        AuditCommand::Consistency(args) => consistency::run(context, args).await,
    }
}
