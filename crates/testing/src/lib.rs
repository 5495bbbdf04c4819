//! What the whole of Countersign is tested with. Development only: nothing that ships depends on this.
//!
//! - [`scenario`]: text tables that an auditor can read, their parser and their runner.
//! - [`drive`]: the same actions at four levels: kernel, SQLite, PostgreSQL, HTTP.
//! - [`audit`]: seed 000's acceptance checks, done from the records alone at the end of every scenario.
//! - [`attack`]: every attack of the test vectors, on a live store.
//! - [`run_audit`]: the same for runs: only declared transitions, each from where the last one led.
//! - [`postgres`]: a database of its own for each test.
//! - [`place`]: a fresh store for a test, and engines on it; [`load`]: seeded work to give them.
//!   [`hands`]: what is done with runs by hand.
//! - [`store_audit`]: everything in a store, read back and checked against its own records.
//! - [`conformance`]: the duties of the store port, which every store must fulfil.
//! - [`differential`]: the same commands to both stores. [`races`]: many callers, one and two engines.
//! - [`recording_failure`]: commits that fail, through [`tap`]. [`crash`]: the real server, killed.
//! - [`torture`]: all of these with large numbers, for as long as you like.

pub mod attack;
pub mod audit;
pub mod conformance;
pub mod crash;
pub mod differential;
pub mod drive;
pub mod hands;
pub mod large;
pub mod load;
pub mod place;
pub mod postgres;
pub mod races;
pub mod recording_failure;
pub mod run_audit;
pub mod scenario;
pub mod store_audit;
pub mod torture;

use std::path::{Path, PathBuf};

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
