//! Starting runs: by hand, behind the finished steps of another one, and by an event.

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
use countersign_engine::{Call, Engine, IdempotencyKey, Outcome, Target};
use countersign_kernel::plan::{Plan, Scope};
use countersign_kernel::refusal::{Code, Refusal, require_text};
use countersign_kernel::registry::{Definition, Registry, Workflow, scopes};
use countersign_kernel::run::{Command, StartRun, is_trace_id};
use countersign_kernel::{Budget, Digest, InstanceId};
use std::collections::HashMap;
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
/// be. The same call again, with the same Idempotency-Key, starts what is missing and nothing twice.
#[utoipa::path(post, path = "/v1/runs/trigger", tag = "runs", request_body = wire::TriggerRuns,
    responses((status = 202, body = wire::RunsTriggered), Refused))]
pub async fn trigger(
    State(app): State<App>,
    caller: Caller,
    posted: Posted<wire::TriggerRuns>,
) -> Done<wire::RunsTriggered> {
    let engine = app.engine()?;
    let wire::TriggerRuns { event_type, data } = posted.body;
    require_text("type", &event_type)?;
    let call = caller.call(on(Target::New, Command::Dispatch { in_slot: false }), posted.sent)?;
    // What another node has just published listens too.
    engine.catch_up().await?;
    let started = engine.once(&call.actor_ref, call.idempotency.clone(), async {
        let starts = {
            let plans = listeners(&engine, &event_type).await?;
            let (engine, actor_ref, data) = (engine.clone(), call.actor_ref.clone(), text(data));
            // It takes as long as a command may: the runtime's own threads do not wait for it.
            let found = tokio::task::spawn_blocking(move || triggered(&engine, &actor_ref, &event_type, &data, &plans));
            found.await.map_err(|error| {
                tracing::error!(%error, "what an event starts could not be found out");
                Refusal::new(Code::RecordingFailure, "what this event starts could not be found out")
            })??
        };
        let mut run_ids = Vec::with_capacity(starts.len());
        for start in starts {
            // Each start has a key of its own, so that the same event sent again starts none twice and those that are missing.
            let key = |of: &IdempotencyKey| IdempotencyKey {
                key: format!("{}/{}", of.key, start.definition),
                request_digest: of.request_digest,
            };
            let idempotency = call.idempotency.as_ref().map(key);
            let command = on(Target::New, Command::Start(Box::new(start)));
            match engine.execute(Call { command, idempotency, ..call.clone() }).await {
                Ok(Outcome::RunStarted { run_id }) => run_ids.push(run_id),
                // Paused or retired meanwhile.
                Err(refusal) if refusal.code == Code::NotActive => {}
                Err(refusal) => return Err(refusal),
                Ok(outcome) => {
                    tracing::error!(?outcome, "unexpected outcome");
                    return Err(Refusal::new(Code::RecordingFailure, "a start was answered with something else"));
                }
            }
        }
        Ok(wire::RunsTriggered { run_ids })
    });
    Ok((StatusCode::ACCEPTED, Json(started.await?)))
}

/// Whether events start runs of this definition now.
fn starts_by_event(registry: &Registry, definition: &Definition) -> bool {
    !registry.is_retired(&definition.name, definition.version) && registry.pause_of(&definition.name).is_none()
}

/// The plans that an event of this type starts, by the digest of their document.
async fn listeners(engine: &Engine, event_type: &str) -> Result<HashMap<Digest, Arc<Plan>>, Refusal> {
    let digests: Vec<Digest> = {
        let registry = engine.registry();
        let newest = registry.definition_names().into_iter().filter_map(|name| registry.definition(name, None));
        let workflows = newest.filter_map(|definition| definition.workflow.as_ref());
        let listens = |workflow: &&Workflow| workflow.outline.started_by.iter().any(|known| **known == *event_type);
        workflows.filter(listens).map(|workflow| workflow.document_digest).collect()
    };
    let mut plans = HashMap::with_capacity(digests.len());
    for digest in digests {
        plans.insert(digest, engine.published_plan(digest).await?);
    }
    Ok(plans)
}

/// What this event starts. What can be refused is refused before anything is started.
fn triggered(
    engine: &Engine,
    actor_ref: &str,
    event_type: &str,
    data: &Arc<str>,
    plans: &HashMap<Digest, Arc<Plan>>,
) -> Result<Vec<StartRun>, Refusal> {
    let registry = engine.registry();
    // Who may start nothing learns nothing about what an event would start.
    let finer = format!("{}:", scopes::RUNS_START);
    let may_start_one = registry.grants().active_scopes(actor_ref, &finer).next().is_some();
    if !registry.permitted(actor_ref, scopes::RUNS_START) && !may_start_one {
        let detail = format!("`{actor_ref}` holds no grant for `{}`", scopes::RUNS_START);
        return Err(Refusal::new(Code::PermissionDenied, detail));
    }
    let budget = Budget::default();
    let language = engine.config().language.metered(&budget);
    let newest = registry.definition_names().into_iter().filter_map(|name| registry.definition(name, None));
    let newest = newest.filter(|definition| starts_by_event(&registry, definition));
    let mut starts = Vec::new();
    for definition in newest {
        let workflow = definition.workflow.as_ref();
        let Some(plan) = workflow.and_then(|workflow| plans.get(&workflow.document_digest)) else { continue };
        let Some(trigger) = plan.on.iter().find(|trigger| trigger.event_type == event_type) else { continue };
        let name = &definition.name;
        if !registry.permitted_on(actor_ref, scopes::RUNS_START, Some(name)) {
            let detail = format!("`{actor_ref}` may not start every run that this event starts");
            return Err(Refusal::new(Code::PermissionDenied, detail));
        }
        let because = |error| {
            let detail = format!("`{name}` cannot make its input of this event: {error}");
            Refusal::new(Code::InvalidRequest, detail).at("data")
        };
        let input = match &trigger.input {
            None => data.clone(),
            Some(template) => {
                let scope = Scope { event: Some(data), ..Scope::default() };
                language.fill(template, &scope).map_err(because)?.into()
            }
        };
        if let Some(schema) = &plan.input_schema {
            language.conforms(schema, &input).map_err(because)?;
        }
        let scope = Scope { input: Some(&input), ..Scope::default() };
        for key in plan.correlation_key.iter().chain(plan.concurrency.as_ref().map(|concurrency| &concurrency.key)) {
            language.fill(key, &scope).map_err(because)?;
        }
        let version = Some(definition.version);
        starts.push(StartRun { version, by_itself: true, ..StartRun::new(name.clone(), input) });
    }
    Ok(starts)
}
