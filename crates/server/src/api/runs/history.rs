//! `GET /v1/runs/{run_id}/steps/{step}/history`: every visit of a step to a state, kept whatever became of it.

use crate::api::auth::Caller;
use crate::api::body::Address;
use crate::api::openapi::Refused;
use crate::api::query::NoQuery;
use crate::api::{App, Read, time};
use axum::Json;
use axum::extract::State;
use countersign_client::wire;
use countersign_engine::port::{Page, RunQuery};
use countersign_engine::run::history::{History, Visit};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::{EventId, InstanceId};
use std::collections::HashMap;

/// Every visit of a step, or of a task (`step%2Ftask`), to a state, in order; a reopening and what it reopened name each
/// other. Needs `runs:read`.
#[utoipa::path(get, path = "/v1/runs/{run_id}/steps/{step}/history", tag = "runs",
    params(("run_id" = String, Path), ("step" = String, Path)),
    responses((status = 200, body = wire::StepHistory), Refused))]
pub async fn read(State(app): State<App>, caller: Caller, address: Address, _: NoQuery) -> Read<wire::StepHistory> {
    let engine = app.engine()?;
    let run_id = InstanceId::parse(address.get("run_id")).unwrap_or(InstanceId(uuid::Uuid::max()));
    let query = RunQuery { instance_id: Some(run_id), ..RunQuery::default() };
    let page = Page { after: None, limit: 1, descending: false };
    let run = engine.read_runs(&caller.actor_ref, query, &page).await?.into_iter().next();
    let run = run.ok_or_else(|| Refusal::new(Code::NotKnown, "there is no run with this run_id").at("run_id"))?;
    let plan = engine.plan_of(&run).await?;
    let step = address.get("step");
    let seq = plan
        .cell_named(step)
        .ok_or_else(|| Refusal::new(Code::NotKnown, format!("the run has no step named `{step}`")).at("step"))?;
    let History { visits, is_purged } = engine.step_history(&run, seq).await?;
    let reopened_by: HashMap<EventId, EventId> =
        visits.iter().filter_map(|visit| Some((visit.correction.as_ref()?.prior_event_id?, visit.event_id))).collect();
    let left = visits.iter().skip(1).map(|next| Some(next.at)).chain([None]);
    let shown = visits.iter().zip(left).map(|(visit, left)| wire::StepVisit {
        left_at: left.map(time::format),
        reopened_by: reopened_by.get(&visit.event_id).filter(|_| closes(visit)).map(ToString::to_string),
        ..to_wire(visit)
    });
    Ok(Json(wire::StepHistory {
        run_id: run.row.instance_id.to_string(),
        step: step.to_owned(),
        visits: shown.collect(),
        purged: is_purged,
    }))
}

/// Of the transitions of one record, the one that a reopening goes back on.
fn closes(visit: &Visit) -> bool {
    matches!(visit.to.as_str(), "completed" | "cannot_complete")
}

fn to_wire(visit: &Visit) -> wire::StepVisit {
    let correction = visit.correction.as_ref();
    wire::StepVisit {
        state_code: visit.to.clone(),
        from_state: visit.from.clone(),
        to_state: visit.to.clone(),
        transition_id: visit.transition_id.clone(),
        actor_class: visit.actor_class.clone(),
        trigger_ref: visit.trigger.clone(),
        actor_ref: visit.actor_ref.clone(),
        at: time::format(visit.at),
        left_at: None,
        event_id: visit.event_id.to_string(),
        cycle: visit.cycle,
        reason: visit.reason.clone(),
        reopens: correction.and_then(|correction| correction.prior_event_id).map(|id| id.to_string()),
        reopened_by: None,
        correction_reason: correction.and_then(|correction| correction.correction_reason.clone()),
        approval_id: correction.and_then(|correction| correction.approval_id.clone()),
    }
}
