//! Starting runs: by hand, behind the finished steps of another one, and by an event.

use super::events::{addressee, woken_steps};
use super::{on, target_of, text};
use crate::api::auth::Caller;
use crate::api::body::Posted;
use crate::api::openapi::Refused;
use crate::api::{App, Done, Problem, mismatched, time};
use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use countersign_client::wire;
use countersign_engine::run::door::Arrival;
use countersign_engine::{Outcome, Target};
use countersign_kernel::InstanceId;
use countersign_kernel::refusal::{Code, Refusal, require_ref, require_text};
use countersign_kernel::registry::scopes;
use countersign_kernel::run::{Command, StartRun, is_trace_id};
use std::convert::Infallible;
use std::sync::Arc;

/// The trace that the caller is in, by its `traceparent` (W3C). One that is none is passed over, as W3C wants it.
pub struct Trace(Option<Arc<str>>);

impl<S: Send + Sync> FromRequestParts<S> for Trace {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let header = parts.headers.get("traceparent").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let trace_id = header.split('-').nth(1).filter(|_| header.len() >= 55 && !header.starts_with("ff"));
        Ok(Trace(trace_id.filter(|text| is_trace_id(text)).map(Arc::from)))
    }
}

/// Start a run of a published workflow. Needs `runs:start`.
#[utoipa::path(post, path = "/v1/runs", tag = "runs", request_body = wire::StartRun,
    responses((status = 201, body = wire::RunStarted), Refused))]
pub async fn start(
    State(app): State<App>,
    caller: Caller,
    trace: Trace,
    posted: Posted<wire::StartRun>,
) -> Done<wire::RunStarted> {
    let engine = app.engine()?;
    let wire::StartRun { definition, input, subject_ref, priority, start_at, corrects, from_step, dry_run } =
        posted.body;
    let (name, version) = crate::api::start::name_and_version(&definition)?;
    let start_at = match start_at {
        None => None,
        Some(text) => Some(time::parse(&text).ok_or_else(|| {
            Problem::invalid_request("`start_at` is no RFC 3339 time like 2026-11-15T19:47:28Z").at("start_at")
        })?),
    };
    let corrects = corrects.map(|run_id| known_run(&run_id, "corrects")).transpose()?;
    // Whoever may not start it learns nothing about what exists.
    let may_start = engine.registry().permitted_on(&caller.actor_ref, scopes::RUNS_START, Some(&name));
    if let Some(run_id) = corrects.filter(|_| may_start)
        && !engine.sees_run(&caller.actor_ref, run_id).await?
    {
        return Err(unknown_run("corrects").into());
    }
    let from_step = match from_step {
        None => None,
        Some(wire::FromStep { run_id, step }) => {
            Some(engine.from_step(&caller.actor_ref, known_run(&run_id, "from_step.run_id")?, step).await?)
        }
    };
    let wished = StartRun::new(name, text(input));
    let command = StartRun {
        version,
        subject_ref,
        priority,
        start_at,
        corrects,
        from_step,
        dry_run,
        trace_id: trace.0,
        ..wished
    };
    let call = caller.call(on(Target::New, Command::Start(Box::new(command))), posted.sent)?;
    match engine.execute(call).await? {
        Outcome::RunStarted { run_id } => Ok((StatusCode::CREATED, Json(wire::RunStarted { run_id }))),
        outcome => Err(mismatched(&outcome)),
    }
}

fn known_run(run_id: &str, field: &str) -> Result<InstanceId, Refusal> {
    require_text(field, run_id)?;
    match target_of(run_id) {
        Target::Existing(run_id) => Ok(run_id),
        _ => Err(unknown_run(field)),
    }
}

fn unknown_run(field: &str) -> Refusal {
    Refusal::new(Code::NotKnown, "there is no run with this id").at(field)
}

/// Start a run of every definition whose `on` names this event. Needs `runs:start` for each: none is started where one may not
/// be. The same call again, with the same Idempotency-Key or the same `id`, starts what is missing and nothing twice. With a `run_id`
/// or a `correlation_key` it also wakes what waits for it, as at `/v1/events`; that needs `runs:control` or `tasks:work`.
#[utoipa::path(post, path = "/v1/runs/trigger", tag = "runs", request_body = wire::TriggerRuns,
    responses((status = 202, body = wire::RunsTriggered), Refused))]
pub async fn trigger(
    State(app): State<App>,
    caller: Caller,
    posted: Posted<wire::TriggerRuns>,
) -> Done<wire::RunsTriggered> {
    let engine = app.engine()?;
    let wire::TriggerRuns { id, event_type, run_id, correlation_key, data } = posted.body;
    require_text("type", &event_type)?;
    if let Some(id) = &id {
        require_ref("id", id)?;
    }
    let to = addressee(run_id, correlation_key)?;
    let call = caller.call(on(Target::New, Command::Dispatch { in_slot: false }), posted.sent)?;
    let (id, event_type) = (id.map(Arc::from), event_type.into());
    let arrival = Arrival { id, event_type, data: text(data), to, passes_over: false };
    let started = engine.once(&call.actor_ref, call.idempotency.clone(), async {
        let arrived = engine.event_arrives(&call, &arrival).await?;
        Ok(wire::RunsTriggered { run_ids: arrived.run_ids, woken: woken_steps(arrived.woken) })
    });
    Ok((StatusCode::ACCEPTED, Json(started.await?)))
}
