//! `countersign audit export`: an evidence bundle, for an auditor who verifies it without us.

use super::super::connection::Context;
use super::super::ids;
use super::super::output::{self, printable, shell_word};
use super::super::table::{Tint, tint};
use super::super::time::{self, Instant};
use anyhow::Context as _;
use clap::Args;
use countersign_client::wire::ExportQuery;
use serde_json::json;
use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Export the evidence of one process or run, or of a time window, as a bundle
#[derive(Args)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true).args(["instance", "from", "to"]))]
pub struct ExportArgs {
    /// Export this process or run
    #[arg(long, value_name = "INSTANCE", conflicts_with_all = ["from", "to"])]
    instance: Option<String>,
    /// Export every process and run with a record at or after this time: RFC 3339, or an age (2h)
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    from: Option<Instant>,
    /// Export only those with a record at or before this time
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    to: Option<Instant>,
    /// Write the bundle to this file
    #[arg(short, long, value_name = "FILE", default_value = "evidence.zip")]
    output: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
}

pub async fn run(context: &Context, args: ExportArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    let instance_id = match &args.instance {
        Some(text) => Some(ids::instance(&client, text).await?),
        None => None,
    };
    let query =
        ExportQuery { instance_id, after: args.from.map(Instant::to_wire), before: args.to.map(Instant::to_wire) };
    let part = args.output.with_extension("zip.part");
    anyhow::ensure!(
        args.force || !args.output.exists(),
        "{} exists already: choose another file with -o, or replace it with --force",
        args.output.display()
    );
    let cannot = || format!("{} cannot be written", args.output.display());
    let mut file = BufWriter::new(File::create(&part).with_context(cannot)?);
    let mut progress = Progress { shown: std::io::stderr().is_terminal() && !context.json(), taken: 0 };
    let taken = client.export(&query, |piece, length| {
        progress.add(piece.len() as u64, length);
        file.write_all(piece)
    });
    let taken = taken.await;
    progress.clear();
    let kept = match taken {
        Ok(evidence) => finish(file, &part, &args.output).with_context(cannot).map(|()| evidence),
        Err(error) => Err(error.into()),
    };
    let evidence = kept.inspect_err(|_| {
        // Half a bundle is none.
        let _ = std::fs::remove_file(&part);
    })?;
    let key = client.log_key().await?;
    if context.json() {
        let file = args.output.to_string_lossy();
        return output::json(
            &json!({"file": file, "bytes": progress.taken, "evidence_id": evidence, "log_key": key.trim()}),
        );
    }
    let line = |name: &str, value: &str| format!("  {} {}", tint(Tint::Dim, &format!("{name:<8}")), printable(value));
    output::say(&format!("{} {} bytes.", tint(Tint::Good, "Exported:"), progress.taken))?;
    output::say(&line("file", &args.output.to_string_lossy()))?;
    output::say(&line("evidence", evidence.as_deref().unwrap_or("unnamed")))?;
    output::say(&line("log key", key.trim()))?;
    let file = shell_word(&args.output.to_string_lossy()).to_string();
    output::say(&line("verify", &format!("countersign-verify {file} --key {}", shell_word(key.trim()))))
}

fn finish(file: BufWriter<File>, part: &Path, output: &Path) -> std::io::Result<()> {
    file.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()?;
    std::fs::rename(part, output)
}

/// How much has come, on a terminal.
struct Progress {
    shown: bool,
    taken: u64,
}

impl Progress {
    fn add(&mut self, bytes: u64, length: Option<u64>) {
        self.taken += bytes;
        if self.shown {
            let of = length.map_or_else(String::new, |length| format!(" of {}", length / 1024));
            eprint!("\r{}{of} KiB", self.taken / 1024);
        }
    }

    fn clear(&self) {
        if self.shown {
            eprint!("\r\x1b[2K");
        }
    }
}
