//! What starts by the clock, and when next.

use super::auth::Caller;
use super::openapi::Refused;
use super::query::NoQuery;
use super::{App, Problem, Read, time};
use crate::schedule::{Upcoming, upcoming};
use axum::Json;
use axum::extract::State;
use countersign_client::wire;
use countersign_engine::store_failure;
use countersign_kernel::plan::Overlap;
use countersign_kernel::registry::scopes;

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
        cron: one.schedule.cron,
        time_zone: one.schedule.time_zone,
        overlap: match one.schedule.overlap {
            Overlap::Skip => "skip",
            Overlap::Queue => "queue",
            Overlap::Allow => "allow",
        }
        .to_owned(),
        next_at: one.next_at.map(time::format),
    };
    Ok(Json(wire::Page { items: upcoming(&engine).into_iter().filter(seen).map(view).collect(), next: None }))
}
