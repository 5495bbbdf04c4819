//! The verifier from outside: honest bundles, attacks on them, hostile bytes, and the command line.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests and their helpers may fail")]

mod command;
mod findings;
mod hostile;
mod mutated;
mod report;
mod support;
