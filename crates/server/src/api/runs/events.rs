//! Events from outside.

use super::{target_of, text};
use crate::api::auth::Caller;
use crate::api::body::Posted;
use crate::api::openapi::Refused;
use crate::api::{App, Done, Problem};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use countersign_client::wire;
use countersign_engine::run::service::Sent;
use countersign_engine::{Addressee, Command, Target};
use countersign_kernel::refusal::require_text;
use countersign_kernel::run::{self, KeptEvent};

/// Send an event to a run, or to every live run with a correlation key. The same id wakes once. Needs `runs:control`
/// or `tasks:work`; runs with the key that the caller holds neither for are passed over, as if nobody had the key.
#[utoipa::path(post, path = "/v1/events", tag = "runs", request_body = wire::SendEvent,
    responses((status = 202, body = wire::EventSent), Refused))]
pub async fn send(State(app): State<App>, caller: Caller, posted: Posted<wire::SendEvent>) -> Done<wire::EventSent> {
    let wire::SendEvent { id, event_type, run_id, correlation_key, data } = posted.body;
    let to = match (run_id, correlation_key) {
        (Some(run_id), None) => {
            require_text("run_id", &run_id)?;
            Addressee::Run(match target_of(&run_id) {
                Target::Existing(run_id) => Some(run_id),
                Target::New | Target::Nowhere => None,
            })
        }
        (None, Some(key)) => Addressee::Key(key),
        (Some(_), Some(_)) => {
            return Err(
                Problem::invalid_request("give a `run_id` or a `correlation_key`, not both").at("correlation_key")
            );
        }
        (None, None) => {
            return Err(Problem::invalid_request(
                "whom it concerns is missing: give a `run_id` or a `correlation_key`",
            )
            .at("run_id"));
        }
    };
    let event = KeptEvent { id: id.into(), event_type: event_type.into(), data: text(data) };
    let command = run::Command::Receive { event: event.clone(), seen: false };
    let call = caller.call(Command::Run { target: Target::Nowhere, command }, posted.sent)?;
    let engine = app.engine()?;
    let sent = engine.once(&call.actor_ref, call.idempotency, async {
        let Sent { duplicate, woken, reached } = engine.send_event(&call.actor_ref, &call.proof, &to, &event).await?;
        let woken = woken.into_iter().map(|(run_id, step)| wire::WokenStep { run_id: run_id.to_string(), step });
        Ok(wire::EventSent { duplicate, woken: woken.collect(), reached })
    });
    Ok((StatusCode::ACCEPTED, Json(sent.await?)))
}
