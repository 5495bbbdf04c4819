//! What operators do to a run. With `?preview=true` nothing changes, and the answer says what would happen.

use super::preview::{Preview, previewed};
use super::{target, text};
use crate::api::auth::Caller;
use crate::api::body::{Address, Posted};
use crate::api::openapi::Refused;
use crate::api::{App, Done, Problem};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use countersign_client::wire;
use countersign_engine::Outcome;
use countersign_kernel::run::Command;
use std::time::Duration;

async fn execute(
    app: &App,
    caller: Caller,
    address: &Address,
    sent: crate::api::body::Sent,
    preview: Preview,
    command: Command,
) -> Done<wire::RunAnswer> {
    let call = preview.call(caller, target(address)?, command, sent)?;
    let answer = match app.engine()?.execute(call).await? {
        Outcome::RunMoved { state } => wire::RunAnswer::Moved(wire::RunMoved { state }),
        outcome => wire::RunAnswer::Preview(previewed(outcome)?),
    };
    Ok((StatusCode::OK, Json(answer)))
}

/// The reason of a command that spends no approval.
fn unapproved(given: wire::ControlRun) -> Result<Option<String>, Problem> {
    match uncompensated(given)? {
        (reason, None) => Ok(reason),
        (_, Some(_)) => {
            Err(Problem::invalid_request("no gate guards this command, so it spends no approval").at("approval_id"))
        }
    }
}

/// The reason and the approval of a command that undoes nothing.
fn uncompensated(given: wire::ControlRun) -> Result<(Option<String>, Option<String>), Problem> {
    match given.compensate {
        false => Ok((given.reason, given.approval_id)),
        true => Err(Problem::invalid_request("only a cancel undoes what was completed").at("compensate")),
    }
}

/// Cancel a run: what is under way is revoked. With `compensate`, completed steps are undone by their compensations first, and the run is `compensating` until then. Needs `runs:control`, and a cleared gate where the definition names one.
#[utoipa::path(post, path = "/v1/runs/{run_id}/cancel", tag = "runs", params(("run_id" = String, Path), ("preview" = Option<bool>, Query)),
    request_body = wire::ControlRun, responses((status = 200, body = wire::RunAnswer), Refused))]
pub async fn cancel(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    preview: Preview,
    posted: Posted<wire::ControlRun>,
) -> Done<wire::RunAnswer> {
    let wire::ControlRun { reason, approval_id, compensate } = posted.body;
    let command = Command::Cancel { reason, approval_id, compensate };
    execute(&app, caller, &address, posted.sent, preview, command).await
}

/// Pause a run: nothing new is claimed, work under way may finish. Needs `runs:control`.
#[utoipa::path(post, path = "/v1/runs/{run_id}/pause", tag = "runs", params(("run_id" = String, Path), ("preview" = Option<bool>, Query)),
    request_body = wire::ControlRun, responses((status = 200, body = wire::RunAnswer), Refused))]
pub async fn pause(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    preview: Preview,
    posted: Posted<wire::ControlRun>,
) -> Done<wire::RunAnswer> {
    let command = Command::Pause { reason: unapproved(posted.body)? };
    execute(&app, caller, &address, posted.sent, preview, command).await
}

/// How long an answer waits for the survey that a resume asks for.
const SURVEY: Duration = Duration::from_secs(40);

/// Go on with a paused or stopped run. A runbook that was stopped needs the approval of its gate `resume`; where its pins are
/// not as approved, it is `stopped` again. Needs `runs:control`.
#[utoipa::path(post, path = "/v1/runs/{run_id}/resume", tag = "runs", params(("run_id" = String, Path), ("preview" = Option<bool>, Query)),
    request_body = wire::ControlRun, responses((status = 200, body = wire::RunAnswer), Refused))]
pub async fn resume(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    preview: Preview,
    posted: Posted<wire::ControlRun>,
) -> Done<wire::RunAnswer> {
    let (reason, approval_id) = uncompensated(posted.body)?;
    let command = Command::Resume { approval_id, reason };
    let (status, Json(answer)) = execute(&app, caller, &address, posted.sent, preview, command).await?;
    let wire::RunAnswer::Moved(moved) = answer else { return Ok((status, Json(answer))) };
    let state = app.engine()?.surveyed(target(&address)?, moved.state, SURVEY).await?;
    Ok((status, Json(wire::RunAnswer::Moved(wire::RunMoved { state }))))
}

/// Stop a run: leases are revoked, steps go back to ready. Needs `runs:control`.
#[utoipa::path(post, path = "/v1/runs/{run_id}/stop", tag = "runs", params(("run_id" = String, Path), ("preview" = Option<bool>, Query)),
    request_body = wire::ControlRun, responses((status = 200, body = wire::RunAnswer), Refused))]
pub async fn stop(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    preview: Preview,
    posted: Posted<wire::ControlRun>,
) -> Done<wire::RunAnswer> {
    let command = Command::Stop { reason: unapproved(posted.body)? };
    execute(&app, caller, &address, posted.sent, preview, command).await
}

/// End a run as if it had never counted. A runbook needs the approval of its gate `void`, and is voided even where it has failed. Needs `runs:control`.
#[utoipa::path(post, path = "/v1/runs/{run_id}/void", tag = "runs", params(("run_id" = String, Path), ("preview" = Option<bool>, Query)),
    request_body = wire::ControlRun, responses((status = 200, body = wire::RunAnswer), Refused))]
pub async fn void(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    preview: Preview,
    posted: Posted<wire::ControlRun>,
) -> Done<wire::RunAnswer> {
    let (reason, approval_id) = uncompensated(posted.body)?;
    let command = Command::Void { approval_id, reason };
    execute(&app, caller, &address, posted.sent, preview, command).await
}

/// Say what became of an attempt that left no verdict, or of a step that a person does not end, so that the run can go on undoing. Needs `runs:control`.
#[utoipa::path(post, path = "/v1/runs/{run_id}/steps/{step}/declare-effect", tag = "runs",
    params(("run_id" = String, Path), ("step" = String, Path), ("preview" = Option<bool>, Query)),
    request_body = wire::DeclareEffect, responses((status = 200, body = wire::RunAnswer), Refused))]
pub async fn declare_effect(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    preview: Preview,
    posted: Posted<wire::DeclareEffect>,
) -> Done<wire::RunAnswer> {
    let wire::DeclareEffect { result, output, reason } = posted.body;
    let done = result == wire::DeclaredResult::Completed;
    if !done && output.is_some() {
        return Err(Problem::invalid_request("what was not done has no output").at("output"));
    }
    let step = address.get("step").to_owned();
    let command = Command::DeclareEffect { step, done, output: output.map(|output| text(Some(output))), reason };
    execute(&app, caller, &address, posted.sent, preview, command).await
}
