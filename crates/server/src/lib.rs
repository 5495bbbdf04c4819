//! The server half of Countersign: configuration, the HTTP API over the engine, and the process around
//! them. It renders and parses; it decides nothing.
//!
//! - [`config`]: what a deployment may set, and from where.
//! - [`serve`]: opening, listening, stopping.
//! - [`log_key`]: the key that checkpoints are signed with.
//! - [`rotate`]: new keys for the server itself.
//! - [`api`]: the routes.
//! - `executors`: shell, http and child steps; `schedule`: runs that start by the clock.
//! - [`outbox`]: events on their way to webhooks and NATS.
//! - [`sidecar`]: the files of a runbook's run.
//! - [`pages`]: what each refusal code means.
//! - [`telemetry`]: log and metrics; [`signals`]: being asked to stop.

pub mod api;
mod artifacts;
pub mod config;
mod console;
mod cosign;
pub mod evidence;
mod executors;
mod keys;
mod listen;
mod log_key;
pub mod outbox;
pub mod pages;
pub mod rotate;
pub mod schedule;
pub mod serve;
pub mod sidecar;
pub mod signals;
mod store_guard;
pub mod telemetry;
pub mod witness;
mod wording;
