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
use countersign_engine::run::door::{Arrival, Arrived};
use countersign_engine::{Addressee, Command, Target};
use countersign_kernel::InstanceId;
use countersign_kernel::refusal::{require_ref, require_text};
use countersign_kernel::run::{self, KeptEvent};
use std::sync::Arc;

/// Send an event to a run, or to every live run with a correlation key: it wakes what waits for it, and starts a run of every
/// definition whose `on` names it. The same id does nothing twice. Needs `runs:control` or `tasks:work`; runs with the key that the
/// caller holds neither for, and definitions that the caller may not start (`runs:start`), are passed over as if there were none.
#[utoipa::path(post, path = "/v1/events", tag = "runs", request_body = wire::SendEvent,
    responses((status = 202, body = wire::EventSent), Refused))]
pub async fn send(State(app): State<App>, caller: Caller, posted: Posted<wire::SendEvent>) -> Done<wire::EventSent> {
    let wire::SendEvent { id, event_type, run_id, correlation_key, data } = posted.body;
    let Some(to) = addressee(run_id, correlation_key)? else {
        let detail = "whom it concerns is missing: give a `run_id` or a `correlation_key`";
        return Err(Problem::invalid_request(detail).at("run_id"));
    };
    require_ref("id", &id)?;
    require_ref("type", &event_type)?;
    let (id, event_type, data): (Arc<str>, Arc<str>, _) = (id.into(), event_type.into(), text(data));
    let event = KeptEvent { id: id.clone(), event_type: event_type.clone(), data: data.clone() };
    let command = run::Command::Receive { event, seen: false };
    let call = caller.call(Command::Run { target: Target::Nowhere, command }, posted.sent)?;
    let arrival = Arrival { id: Some(id), event_type, data, to: Some(to), passes_over: true };
    let engine = app.engine()?;
    let sent = engine.once(&call.actor_ref, call.idempotency.clone(), async {
        let Arrived { duplicate, run_ids, woken, reached } = engine.event_arrives(&call, &arrival).await?;
        Ok(wire::EventSent { duplicate, woken: woken_steps(woken), reached, run_ids })
    });
    Ok((StatusCode::ACCEPTED, Json(sent.await?)))
}

/// Whom an event concerns, where it says so.
pub(super) fn addressee(run_id: Option<String>, correlation_key: Option<String>) -> Result<Option<Addressee>, Problem> {
    match (run_id, correlation_key) {
        (Some(run_id), None) => {
            require_text("run_id", &run_id)?;
            Ok(Some(Addressee::Run(match target_of(&run_id) {
                Target::Existing(run_id) => Some(run_id),
                Target::New | Target::Nowhere => None,
            })))
        }
        (None, Some(key)) => Ok(Some(Addressee::Key(key))),
        (None, None) => Ok(None),
        (Some(_), Some(_)) => {
            let detail = "give a `run_id` or a `correlation_key`, not both";
            Err(Problem::invalid_request(detail).at("correlation_key"))
        }
    }
}

pub(super) fn woken_steps(woken: Vec<(InstanceId, String)>) -> Vec<wire::WokenStep> {
    woken.into_iter().map(|(run_id, step)| wire::WokenStep { run_id: run_id.to_string(), step }).collect()
}
