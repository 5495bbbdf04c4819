//! What starts by the clock, and when next; and what waits for that or for an event.

use super::auth::Caller;
use super::body::{Address, Posted, Sent};
use super::openapi::Refused;
use super::query::NoQuery;
use super::{App, Done, Problem, Read, mismatched, time};
use crate::schedule::{Upcoming, by_hand, upcoming};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use countersign_client::wire;
use countersign_engine::{Command, Engine, Outcome, Target, store_failure};
use countersign_kernel::plan::Overlap;
use countersign_kernel::registry::{self, Mark, MarkDefinition, Pause, scopes};
use countersign_kernel::run;
use countersign_kernel::text::length;
use std::collections::{BTreeMap, BTreeSet};

/// The schedules of the newest version of each definition, with the time of the next run. Needs `runs:read`, or
/// `runs:read:<definition>` for those of one definition.
#[utoipa::path(get, path = "/v1/schedules", tag = "runs",
    responses((status = 200, body = wire::Page<wire::ScheduleView>), Refused))]
pub async fn list(State(app): State<App>, caller: Caller, _: NoQuery) -> Read<wire::Page<wire::ScheduleView>> {
    let engine = app.engine()?;
    let visible = engine.visible_definitions(&caller.actor_ref, scopes::RUNS_READ).await?;
    engine.refresh_registry().await.map_err(|error| Problem::from(store_failure(&error)))?;
    let seen = |one: &Upcoming| visible.as_ref().is_none_or(|names| names.contains(&one.definition));
    let view = |one: Upcoming| wire::ScheduleView {
        definition: one.definition,
        version: one.version,
        overlap: match one.schedule.overlap {
            Overlap::Skip => "skip",
            Overlap::Queue => "queue",
            Overlap::Allow => "allow",
        }
        .to_owned(),
        cron: one.schedule.cron,
        time_zone: one.schedule.time_zone,
        next_at: one.next_at.map(time::format),
        index: one.index,
        state: state(one.pause.as_ref()),
        catch_up: (one.schedule.catch_up > 0).then(|| length(one.schedule.catch_up)),
        paused: one.pause.map(paused),
    };
    Ok(Json(wire::Page { items: upcoming(&engine).into_iter().filter(seen).map(view).collect(), next: None }))
}

fn state(pause: Option<&Pause>) -> String {
    if pause.is_some() { "paused" } else { "idle" }.to_owned()
}

fn paused(pause: Pause) -> wire::PauseView {
    wire::PauseView { at: time::format(pause.at), by: pause.by, reason: pause.reason }
}

/// What waits for its next tick or for an event, of the definitions that the caller may see.
pub async fn idle(engine: &Engine, actor_ref: &str, definition: Option<&str>) -> Result<Vec<wire::IdleRun>, Problem> {
    let visible = engine.visible_definitions(actor_ref, scopes::RUNS_READ).await?;
    engine.refresh_registry().await.map_err(|error| Problem::from(store_failure(&error)))?;
    let mut next: BTreeMap<String, BTreeSet<countersign_kernel::Time>> = BTreeMap::new();
    for one in upcoming(engine) {
        next.entry(one.definition).or_default().extend(one.next_at);
    }
    let registry = engine.registry();
    let newest = registry.definition_names().into_iter().filter_map(|name| registry.definition(name, None));
    let seen = |name: &String| visible.as_ref().is_none_or(|names| names.contains(name));
    let shown = newest.filter(|one| {
        one.starts_by_itself()
            && seen(&one.name)
            && definition.is_none_or(|name| name == one.name)
            && !registry.is_retired(&one.name, one.version)
    });
    let view = |one: &std::sync::Arc<registry::Definition>| {
        let pause = registry.pause_of(&one.name);
        let started_by = one.workflow.as_ref().map(|workflow| workflow.outline.started_by.clone());
        wire::IdleRun {
            definition: format!("{}@{}", one.name, one.version),
            state: state(pause),
            events: started_by.iter().flat_map(|types| types.iter()).map(ToString::to_string).collect(),
            next_at: next.get(&one.name).and_then(BTreeSet::first).map(|at| time::format(*at)),
            paused: pause.cloned().map(paused),
        }
    };
    Ok(shown.map(view).collect())
}

async fn mark(
    app: &App,
    caller: Caller,
    address: &Address,
    sent: Sent,
    mark: Mark,
    reason: Option<String>,
) -> Done<wire::ScheduleMoved> {
    let engine = app.engine()?;
    let definition = address.get("definition").to_owned();
    let command = MarkDefinition { mark, name: definition.clone(), reason };
    let command = Command::Registry(registry::Command::MarkDefinition(command));
    match engine.execute(caller.call(command, sent)?).await? {
        Outcome::Done => {
            let state = if mark == Mark::Paused { "paused" } else { "idle" }.to_owned();
            Ok((StatusCode::OK, Json(wire::ScheduleMoved { definition, state })))
        }
        outcome => Err(mismatched(&outcome)),
    }
}

/// Pause a definition: neither its schedules nor events start runs of it, and ticks that fall in the pause are lost. Runs that
/// are under way go on. Needs `runs:control`.
#[utoipa::path(post, path = "/v1/schedules/{definition}/pause", tag = "runs", params(("definition" = String, Path)),
    request_body = wire::ControlSchedule, responses((status = 200, body = wire::ScheduleMoved), Refused))]
pub async fn pause(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    posted: Posted<wire::ControlSchedule>,
) -> Done<wire::ScheduleMoved> {
    mark(&app, caller, &address, posted.sent, Mark::Paused, posted.body.reason).await
}

/// End the pause of a definition. Needs `runs:control`.
#[utoipa::path(post, path = "/v1/schedules/{definition}/resume", tag = "runs", params(("definition" = String, Path)),
    request_body = wire::ControlSchedule, responses((status = 200, body = wire::ScheduleMoved), Refused))]
pub async fn resume(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    posted: Posted<wire::ControlSchedule>,
) -> Done<wire::ScheduleMoved> {
    mark(&app, caller, &address, posted.sent, Mark::Resumed, posted.body.reason).await
}

/// Start the run of a schedule now, with the schedule's input, also while it is paused. The caller is the run's initiator.
/// Needs `runs:start`.
#[utoipa::path(post, path = "/v1/schedules/{definition}/trigger", tag = "runs", params(("definition" = String, Path)),
    request_body = wire::TriggerSchedule, responses((status = 201, body = wire::RunStarted), Refused))]
pub async fn trigger(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    posted: Posted<wire::TriggerSchedule>,
) -> Done<wire::RunStarted> {
    let engine = app.engine()?;
    engine.catch_up().await?;
    let definition = address.get("definition");
    engine.require_start(&caller.actor_ref, definition).await?;
    let start = by_hand(&engine, definition, posted.body.index).await?;
    let command = Command::Run { target: Target::New, command: run::Command::Start(Box::new(start)) };
    match engine.execute(caller.call(command, posted.sent)?).await? {
        Outcome::RunStarted { run_id } => Ok((StatusCode::CREATED, Json(wire::RunStarted { run_id }))),
        outcome => Err(mismatched(&outcome)),
    }
}
