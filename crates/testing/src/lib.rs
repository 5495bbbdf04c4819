//! What the whole of Countersign is tested with. Development only: nothing that ships depends on this.
//!
//! - [`scenario`]: text tables that an auditor can read, their parser and their runner.
//! - [`drive`]: the same actions at four levels: kernel, SQLite, PostgreSQL, HTTP.
//! - [`audit`]: seed 000's acceptance checks, done from the records alone at the end of every scenario.
//! - [`postgres`]: a database of its own for each test.

pub mod audit;
pub mod drive;
pub mod postgres;
pub mod scenario;

use std::path::{Path, PathBuf};

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
