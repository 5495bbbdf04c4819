//! `countersign serve`: runs the server until it is asked to stop.

use clap::{Args, ValueEnum};
use countersign_server::serve::{self, DEFAULT_LISTEN, ServeOptions};
use countersign_server::telemetry;
use std::path::PathBuf;

const CONFIG_FILE: &str = "./countersign.toml";

/// Run the server
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// The directory for keys, token and store; created if it does not exist
    #[arg(long, value_name = "DIR", default_value = "./countersign-data")]
    pub data_dir: PathBuf,
    /// The address to listen on; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = DEFAULT_LISTEN)]
    pub listen: String,
    /// The store: postgres://… or sqlite:PATH [default: an SQLite file in the data directory]
    #[arg(long, value_name = "URL", env = "COUNTERSIGN_STORE", hide_env_values = true)]
    pub store: Option<String>,
    /// A configuration file (TOML) [default: ./countersign.toml, if it exists]; every key can also be set by a variable
    /// COUNTERSIGN_…
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The address of a witness that cosigns the log's checkpoints (may be repeated)
    #[arg(long = "witness", value_name = "URL")]
    pub witnesses: Vec<String>,
    /// Start a new history in an empty store, although the data directory has keys of an earlier one
    #[arg(long)]
    pub new_store: bool,
    /// The format of the log [default: text on a terminal, otherwise json]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub log: Option<LogFormat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Json,
    Text,
}

pub async fn run(args: ServeArgs) -> anyhow::Result<()> {
    let log = args.log.map(|format| match format {
        LogFormat::Json => telemetry::LogFormat::Json,
        LogFormat::Text => telemetry::LogFormat::Text,
    });
    let ServeArgs { data_dir, listen, store, config, witnesses, new_store, log: _ } = args;
    let config = config.or_else(config_here);
    serve::run(ServeOptions { listen, store, config, witnesses, new_store, log, ..ServeOptions::new(data_dir) }).await
}

/// The configuration file of this directory, if there is one.
pub fn config_here() -> Option<PathBuf> {
    Some(PathBuf::from(CONFIG_FILE)).filter(|file| file.exists())
}
