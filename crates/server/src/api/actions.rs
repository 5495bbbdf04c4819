//! What the caller may do to a run, a step or a process now, and why not. The engine decides each candidate as it would decide
//! the command, and writes nothing.

use super::auth::Caller;
use super::body::Address;
use super::openapi::Refused;
use super::query::NoQuery;
use super::{App, Read};
use axum::Json;
use axum::extract::State;
use countersign_client::wire;
use countersign_engine::port::{Page, Past, ProcessQuery};
use countersign_engine::{Ask, Offered, Problem};
use countersign_kernel::InstanceId;
use countersign_kernel::refusal::{Code, Refusal};
use serde_json::json;

type Actions = Vec<wire::OfferedAction>;

/// What the caller may do to a run, and why not. Needs `runs:read`.
#[utoipa::path(get, path = "/v1/runs/{run_id}/actions", tag = "runs", params(("run_id" = String, Path)),
    responses((status = 200, body = Vec<wire::OfferedAction>), Refused))]
pub async fn of_run(State(app): State<App>, caller: Caller, address: Address, _: NoQuery) -> Read<Actions> {
    let engine = app.engine()?;
    let run = engine.readable_run(&caller.actor_ref, id(address.get("run_id"))).await?;
    let offers = engine.offers(&caller.actor_ref, run.row.instance_id, Ask::Run).await?;
    Ok(Json(offers.into_iter().map(to_wire).collect()))
}

/// What the caller may do to a step, or to a task (`step%2Ftask`), and why not. Needs `runs:read`.
#[utoipa::path(get, path = "/v1/runs/{run_id}/steps/{step}/actions", tag = "runs",
    params(("run_id" = String, Path), ("step" = String, Path)),
    responses((status = 200, body = Vec<wire::OfferedAction>), Refused))]
pub async fn of_step(State(app): State<App>, caller: Caller, address: Address, _: NoQuery) -> Read<Actions> {
    let engine = app.engine()?;
    let run = engine.readable_run(&caller.actor_ref, id(address.get("run_id"))).await?;
    let step = address.get("step").to_owned();
    let prior = engine.prior(run.row.instance_id, &step).await?.map(Box::new);
    let offers = engine.offers(&caller.actor_ref, run.row.instance_id, Ask::Step { step, prior }).await?;
    Ok(Json(offers.into_iter().map(to_wire).collect()))
}

/// What the caller may do to a process, and why not. Needs `workflows:read`.
#[utoipa::path(get, path = "/v1/processes/{instance_id}/actions", tag = "processes",
    params(("instance_id" = String, Path)),
    responses((status = 200, body = Vec<wire::OfferedAction>), Refused))]
pub async fn of_process(State(app): State<App>, caller: Caller, address: Address, _: NoQuery) -> Read<Actions> {
    let engine = app.engine()?;
    let instance_id = id(address.get("instance_id"));
    let query = ProcessQuery { instance_id: Some(instance_id), past: Past::Nothing, ..ProcessQuery::default() };
    let page = Page { after: None, limit: 1, descending: false };
    if engine.read_workflow(&caller.actor_ref, query, &page).await?.is_empty() {
        return Err(Refusal::new(Code::NotKnown, "there is no process with this instance_id").at("instance_id").into());
    }
    let offers = engine.offers(&caller.actor_ref, instance_id, Ask::Process).await?;
    Ok(Json(offers.into_iter().map(to_wire).collect()))
}

/// Text that is no id of ours names nothing, like an id that is not there.
fn id(text: &str) -> InstanceId {
    InstanceId::parse(text).unwrap_or(InstanceId(uuid::Uuid::max()))
}

fn to_wire(offered: Offered) -> wire::OfferedAction {
    let (name, filled) = label(&offered);
    let label_key = format!("action.{name}.label");
    let severity = severity(&offered.action, &offered.command);
    let Offered { action, command, transition_id, to_state, problems, needs, gate, approval_id } = offered;
    let problems: Vec<wire::ActionProblem> = problems.into_iter().map(problem).collect();
    wire::OfferedAction {
        action,
        command,
        transition_id,
        to_state,
        ok: problems.is_empty(),
        problems,
        needs,
        gate,
        approval_id,
        label_key,
        args: filled.into_iter().map(|(name, text)| (name.to_owned(), json!(text))).collect(),
        severity,
    }
}

pub fn problem(problem: Problem) -> wire::ActionProblem {
    wire::ActionProblem { guard: problem.guard, message: problem.message }
}

/// The name of its text among those of the registry (`action.<name>.label`), and what is filled into it.
fn label(offered: &Offered) -> (&str, Option<(&'static str, String)>) {
    let plain = |text: &str| text.replace(['-', '_'], " ");
    match (offered.command.as_str(), offered.action.as_str()) {
        ("open_gate", _) => ("open-gate", Some(("action", plain(offered.gate.as_deref().unwrap_or_default())))),
        ("fire_transition", action) => ("fire", Some(("action", plain(action)))),
        (_, "transition") => ("transition", Some(("state", plain(&offered.to_state)))),
        (_, action) => (action, None),
    }
}

fn severity(action: &str, command: &str) -> wire::ActionSeverity {
    match (command, action) {
        ("fire_transition" | "open_gate", _) | (_, "retry" | "resume" | "complete" | "claim" | "approve") => {
            wire::ActionSeverity::Primary
        }
        (_, "cancel" | "void" | "stop" | "cannot-complete" | "reject") => wire::ActionSeverity::Danger,
        _ => wire::ActionSeverity::Plain,
    }
}
