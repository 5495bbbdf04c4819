//! Gates of a run: the same as those of a process.

use super::{on, target};
use crate::api::auth::Caller;
use crate::api::body::{Address, Posted};
use crate::api::openapi::Refused;
use crate::api::processes::{decision, gate_decided, gate_opened, opening};
use crate::api::{App, Done};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use countersign_client::wire;
use countersign_kernel::run::Command;

/// Open a gate that does not open by itself, such as `cancel`. Needs `runs:control`.
#[utoipa::path(post, path = "/v1/runs/{run_id}/gates", tag = "runs", params(("run_id" = String, Path)),
    request_body = wire::OpenGate, responses((status = 201, body = wire::GateOpened), Refused))]
pub async fn open(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    posted: Posted<wire::OpenGate>,
) -> Done<wire::GateOpened> {
    let command = on(target(&address)?, Command::OpenGate(opening(posted.body)?));
    let outcome = app.engine()?.execute(caller.call(command, posted.sent)?).await?;
    Ok((StatusCode::CREATED, Json(gate_opened(outcome)?)))
}

/// Decide an open gate of a run. Needs no scope: the gate names who may decide it.
#[utoipa::path(post, path = "/v1/runs/{run_id}/gates/{action}/decision", tag = "runs",
    params(("run_id" = String, Path), ("action" = String, Path)), request_body = wire::DecideGate,
    responses((status = 200, body = wire::GateDecided), Refused))]
pub async fn decide(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    posted: Posted<wire::DecideGate>,
) -> Done<wire::GateDecided> {
    let command = decision(address.get("action"), posted.body)?;
    let command = on(target(&address)?, Command::DecideGate(command));
    let engine = app.engine()?;
    let outcome = engine.execute(caller.call(command, posted.sent)?).await?;
    Ok((StatusCode::OK, Json(gate_decided(&engine, outcome).await?)))
}
