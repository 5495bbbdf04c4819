//! An offline verifier of evidence bundles, written from `spec/` alone.
//!
//! It shares no code with the rest of Countersign, so that a fault there cannot hide itself here. A module per layer:
//! `archive`, `json` and `manifest` read; `record`, `chain`, `tree`, `note` and `policy` check integrity; `registry`
//! and `identity` check who; `process`, `state` and `permission` check the claims; `retention` what was destroyed.
//! `verify` is the order of checks, `report` what people and programs get to read. [`History`] makes the same checks for a server
//! that verifies its own store: the server depends on this crate, and never the other way round.

mod archive;
mod bytes;
mod chain;
pub mod finding;
mod form;
mod governance;
mod identity;
mod json;
mod manifest;
mod note;
mod origins;
mod permission;
mod policy;
mod process;
mod record;
mod registry;
mod replays;
pub mod report;
mod retention;
mod run;
mod state;
mod story;
mod time;
mod tree;
mod verdict;
mod verify;

pub use archive::Unreadable;
pub use note::{KeyKind, VerifierKey};
pub use policy::{Trust, parse as parse_policy};
pub use verdict::{ClaimVerdict, Outcome, Verdict};
pub use verify::{Detail, History, Stored, StoredContent, bundled_key, verify};
