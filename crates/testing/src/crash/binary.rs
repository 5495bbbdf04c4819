//! Where the binary `countersign` is.

use anyhow::{Context, ensure};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// Names the binary to test; without it, it is built or found beside this program.
pub const VARIABLE: &str = "COUNTERSIGN_BIN";

pub fn countersign() -> anyhow::Result<PathBuf> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    FOUND.get_or_init(|| find().map_err(|error| format!("{error:#}"))).clone().map_err(|error| anyhow::anyhow!(error))
}

fn find() -> anyhow::Result<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE) {
        return Ok(named.into());
    }
    // target/PROFILE/this, or target/PROFILE/deps/this for a test.
    let own = std::env::current_exe()?;
    let mut directory = own.parent().context("a program is in a directory")?;
    if directory.ends_with("deps") {
        directory = directory.parent().context("deps is in a directory")?;
    }
    let found = directory.join("countersign");
    // Under cargo, what is there may be older than the code. The whole workspace, so that what the tests were
    // built with serves again.
    if let Some(cargo) = std::env::var_os("CARGO") {
        let mut build = Command::new(cargo);
        build.args(["build", "--locked", "--workspace", "--bin", "countersign"]).current_dir(crate::workspace());
        if directory.ends_with("release") {
            build.arg("--release");
        }
        let built = build.output().context("cargo cannot be run")?;
        let said = String::from_utf8_lossy(&built.stderr).into_owned();
        ensure!(built.status.success(), "the server does not build:\n{said}");
    }
    ensure!(found.is_file(), "{} is not there: build it, or name another with {VARIABLE}", found.display());
    Ok(found)
}
