//! Where the binaries are.

use anyhow::{Context, ensure};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// Names the binary to test; without it, it is built or found beside this program.
pub const VARIABLE: &str = "COUNTERSIGN_BIN";

pub fn countersign() -> anyhow::Result<PathBuf> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let find = || match std::env::var_os(VARIABLE) {
        Some(named) => Ok(named.into()),
        None => find("countersign"),
    };
    FOUND.get_or_init(|| find().map_err(|error| format!("{error:#}"))).clone().map_err(|error| anyhow::anyhow!(error))
}

/// The auditor's program.
pub fn verifier() -> anyhow::Result<PathBuf> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| find("countersign-verify").map_err(|error| format!("{error:#}")));
    found.clone().map_err(|error| anyhow::anyhow!(error))
}

fn find(name: &str) -> anyhow::Result<PathBuf> {
    // target/PROFILE/this, or target/PROFILE/deps/this for a test.
    let own = std::env::current_exe()?;
    let mut directory = own.parent().context("a program is in a directory")?;
    if directory.ends_with("deps") {
        directory = directory.parent().context("deps is in a directory")?;
    }
    let found = directory.join(name);
    // Under cargo, what is there may be older than the code. The whole workspace, so that what the tests were
    // built with serves again.
    if let Some(cargo) = std::env::var_os("CARGO") {
        let mut build = Command::new(cargo);
        build.args(["build", "--locked", "--workspace", "--bin", name]).current_dir(crate::workspace());
        if directory.ends_with("release") {
            build.arg("--release");
        }
        let built = build.output().context("cargo cannot be run")?;
        let said = String::from_utf8_lossy(&built.stderr).into_owned();
        ensure!(built.status.success(), "{name} does not build:\n{said}");
    }
    ensure!(found.is_file(), "{} is not there: build it, or name another with {VARIABLE}", found.display());
    Ok(found)
}
