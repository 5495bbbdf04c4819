//! `countersign serve`: runs the server until it is asked to stop.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Run the server
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// Where everything is kept; made if it is not there [default: ./countersign-data]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// The address to listen on [default: 127.0.0.1:7433]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<String>,
    /// postgres://… or sqlite:PATH; without it, an SQLite file in the data directory
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,
    /// A configuration file (TOML); every key can also be set by a variable COUNTERSIGN_…
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// How to write the log [default: text on a terminal, json elsewhere]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub log: Option<LogFormat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Json,
    Text,
}

pub async fn run(args: ServeArgs) -> anyhow::Result<()> {
    // TO WIRE: `countersign_server::serve::run` with these arguments, once it exists.
    anyhow::bail!("this build has no server yet ({args:?})")
}
