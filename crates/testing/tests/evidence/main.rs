//! What an auditor gets: bundles, verification of the log, rotated keys, and each attack of the corpus on a live store.

mod auditor;
mod bundles_of_runs;
mod checks;
mod columns;
mod processes;
mod rotation;
mod runs;
mod verify_log;
