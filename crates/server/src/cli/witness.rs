//! `countersign witness`: runs a witness until it is asked to stop.

use super::output::{self, printable};
use anyhow::Context as _;
use clap::Args;
use countersign_server::signals::Stop;
use countersign_server::telemetry;
use countersign_server::witness::{self, WitnessOptions};
use std::path::PathBuf;

/// Run a witness: cosign a log's checkpoints while the log only grows
#[derive(Args)]
pub struct WitnessArgs {
    /// The directory for the witness's key and state; created if it does not exist
    #[arg(long, value_name = "DIR", default_value = "./countersign-witness")]
    data_dir: PathBuf,
    /// The address to listen on; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7434")]
    listen: String,
    /// The name of the witness in cosignatures, chosen once [default: made from its key]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The verifier key of a log to watch, or @FILE (may be repeated)
    #[arg(long = "log", value_name = "KEY", required = true)]
    logs: Vec<String>,
}

pub async fn run(args: WitnessArgs) -> anyhow::Result<()> {
    telemetry::start_log(None)?;
    let mut stop = Stop::listen()?;
    let logs = args.logs.iter().map(|key| key_or_file(key)).collect::<anyhow::Result<_>>()?;
    let options = WitnessOptions { data_dir: args.data_dir, listen: args.listen, name: args.name, logs };
    let running = witness::start(&options).await?;
    output::say(&format!("witness key {}", printable(&running.verifier.to_string())))?;
    output::say(&format!("listening on {}", running.url()))?;
    stop.asked().await;
    running.shutdown().await
}

fn key_or_file(text: &str) -> anyhow::Result<String> {
    match text.strip_prefix('@') {
        Some(file) => {
            let key = std::fs::read_to_string(file).with_context(|| format!("the key {file} cannot be read"))?;
            Ok(key.trim().to_owned())
        }
        None => Ok(text.to_owned()),
    }
}
