//! Runs of workflows: starting, steering, reading; their tasks for workers, and the events that wake them.

pub mod artifacts;
pub mod cells;
pub mod control;
pub mod events;
pub mod gates;
pub mod history;
mod preview;
mod runbook;
pub mod sidecar;
pub mod start;
pub mod step;
pub mod steps;
pub mod tasks;
pub mod view;
pub mod worklist;

use super::Problem;
use super::body::Address;
use countersign_engine::{Command, Target};
use countersign_kernel::InstanceId;
use countersign_kernel::refusal::{Refusal, require_text};
use countersign_kernel::run;
use serde_json::Value;
use std::sync::Arc;

/// The run that the address names. The registry is an instance, but no run.
fn target(address: &Address) -> Result<Target, Refusal> {
    let text = address.get("run_id");
    require_text("run_id", text)?;
    Ok(target_of(text))
}

fn target_of(run_id: &str) -> Target {
    match InstanceId::parse(run_id) {
        None | Some(InstanceId::REGISTRY) => Target::Nowhere,
        Some(run_id) => Target::Existing(run_id),
    }
}

fn on(target: Target, command: run::Command) -> Command {
    Command::Run { target, command }
}

/// A value as it is kept: compact JSON.
fn text(value: Option<Value>) -> Arc<str> {
    value.map_or_else(|| Arc::from("null"), |value| value.to_string().into())
}

/// A kept value on the wire. What was purged is no JSON any more and shows as it is.
pub fn value(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_else(|_| Value::String(json.to_owned()))
}

fn millis(ms: i64, field: &str) -> Result<i64, Problem> {
    ms.checked_mul(1000).ok_or_else(|| Problem::invalid_request(format!("`{field}` is out of range")).at(field))
}
