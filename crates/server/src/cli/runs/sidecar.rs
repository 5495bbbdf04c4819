//! `countersign runs sidecar`: the files of a runbook's run, in a directory.

use crate::cli::connection::Context;
use crate::cli::ids;
use crate::cli::output::{self, printable, shell_word};
use crate::cli::table::{Tint, tint};
use anyhow::{Context as _, ensure};
use clap::Args;
use countersign_server::sidecar::{STATE_FILE, STOP_ROUTE_FILE, is_own_name};
use serde_json::{Value, json};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct SidecarArgs {
    /// The run
    run: String,
    /// The directory for the files; created if it does not exist
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Replace files of the same names that belong to another run
    #[arg(long)]
    force: bool,
}

pub async fn run(context: &Context, args: SidecarArgs) -> anyhow::Result<()> {
    let client = context.client()?;
    let run = ids::run(&client, &args.run).await?;
    let files = client.sidecar(&run, None).await?.body.files;
    let dir = &args.output;
    std::fs::create_dir_all(dir).with_context(|| format!("{} cannot be made", dir.display()))?;
    let there = own_files(dir)?;
    let state = files.get(STATE_FILE).map(|text| run_id(text)).unwrap_or_default();
    let of_this_run = || std::fs::read_to_string(dir.join(STATE_FILE)).is_ok_and(|text| run_id(&text) == state);
    ensure!(
        args.force || there.is_empty() || of_this_run(),
        "{} holds files that are not of this run ({}): choose another directory with -o, or replace them with --force",
        dir.display(),
        there.join(", ")
    );
    // What no longer holds goes, such as the report of a stop that is over.
    for name in there.iter().filter(|name| !files.contains_key(*name)) {
        match std::fs::remove_file(dir.join(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("{} cannot be removed", dir.join(name).display()));
            }
            _ => {}
        }
    }
    for (name, text) in files.iter().filter(|(name, _)| is_own_name(name)) {
        replace(dir, name, text).with_context(|| format!("{} cannot be written", dir.join(name).display()))?;
    }
    let names: Vec<&String> = files.keys().collect();
    if context.json() {
        return output::json(&json!({"directory": dir.to_string_lossy(), "run_id": state, "files": names}));
    }
    let shown = names.iter().map(|name| printable(name)).collect::<Vec<_>>().join(", ");
    output::say(&format!("wrote {} into {}", tint(Tint::Strong, &shown), printable(&dir.to_string_lossy())))?;
    let file = |name: &str| shell_word(&dir.join(name).to_string_lossy());
    let stopped = files.contains_key(STOP_ROUTE_FILE).then(|| format!("cat {}", file(STOP_ROUTE_FILE)));
    let verify = format!("countersign audit verify --sidecar {}", file(STATE_FILE));
    output::next(stopped.into_iter().chain([verify]))
}

/// The names of a sidecar's files that are there.
fn own_files(dir: &Path) -> anyhow::Result<Vec<String>> {
    let entries = std::fs::read_dir(dir).with_context(|| format!("{} cannot be read", dir.display()))?;
    let mut names = vec![];
    for entry in entries {
        names.extend(entry?.file_name().into_string().ok().filter(|name| is_own_name(name)));
    }
    names.sort_unstable();
    Ok(names)
}

/// Of which run it is.
fn run_id(state: &str) -> String {
    let state: Value = serde_json::from_str(state).unwrap_or_default();
    state.get("run_id").and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn replace(dir: &Path, name: &str, text: &str) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    // What a run says is not for everybody on this machine.
    let permissions = std::fs::Permissions::from_mode(0o640);
    let mut file = tempfile::Builder::new().prefix(".tmp-").permissions(permissions).tempfile_in(dir)?;
    file.write_all(text.as_bytes())?;
    file.persist(dir.join(name)).map(drop).map_err(|error| error.error)
}
