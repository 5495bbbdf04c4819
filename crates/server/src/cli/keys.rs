//! `countersign keys rotate`: new keys for the server itself, on its own machine and with the server stopped.

use super::connection::Context;
use super::output::{self, printable};
use super::table::{Tint, tint};
use clap::{Args, Subcommand, ValueEnum};
use countersign_server::rotate::{self, OwnKey, RotateOptions, Rotated};
use serde_json::json;
use std::path::PathBuf;

/// Manage the server's own keys
#[derive(Subcommand)]
pub enum KeysCommand {
    /// Replace a key of the server; stop the server first
    Rotate(RotateArgs),
}

#[derive(Args)]
pub struct RotateArgs {
    /// The key to replace [default: both]
    #[arg(value_enum)]
    which: Option<Which>,
    /// The server's data directory
    #[arg(long, value_name = "DIR", default_value = "./countersign-data")]
    data_dir: PathBuf,
    /// The store: postgres://… or sqlite:PATH [default: the SQLite file in the data directory]
    #[arg(long, value_name = "URL", env = "COUNTERSIGN_STORE", hide_env_values = true)]
    store: Option<String>,
    /// The server's configuration file [default: ./countersign.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Replace a lost private key: a record says so, and you must give auditors the new key
    #[arg(long, requires = "which")]
    lost: bool,
    /// With --lost: the id of the lost application key, if there are several
    #[arg(long, value_name = "ID", requires = "lost")]
    key_id: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Which {
    /// Signs what the engine itself records
    Application,
    /// Signs the log's checkpoints
    Log,
}

pub async fn run(context: &Context, command: KeysCommand) -> anyhow::Result<()> {
    let KeysCommand::Rotate(args) = command;
    let all = match args.which {
        Some(Which::Application) => vec![OwnKey::Application],
        Some(Which::Log) => vec![OwnKey::Log],
        None => vec![OwnKey::Application, OwnKey::Log],
    };
    for which in all {
        let rotated = rotate::rotate(RotateOptions {
            data_dir: args.data_dir.clone(),
            store: args.store.clone(),
            config: args.config.clone().or_else(super::serve::config_here),
            which,
            lost: args.lost,
            key_id: args.key_id.clone(),
        })
        .await?;
        tell(context, which, &rotated)?;
    }
    Ok(())
}

fn tell(context: &Context, which: OwnKey, rotated: &Rotated) -> anyhow::Result<()> {
    let Rotated { ended, key_id, verifier_key, note } = rotated;
    let name = if which == OwnKey::Log { "log" } else { "application" };
    if context.json() {
        return output::json(
            &json!({"key": name, "key_id": key_id, "ended": ended, "verifier_key": verifier_key, "note": note}),
        );
    }
    output::say(&format!("{name} key {} took the place of {}", tint(Tint::Strong, key_id), ended.join(", ")))?;
    if let Some(verifier_key) = verifier_key {
        output::say(&format!("verifier key {}", printable(verifier_key)))?;
        output::say(
            "Give it to auditors, add it to each witness (--log OLD --log NEW), and copy log.key to the other nodes",
        )?;
    }
    Ok(())
}
