//! The worker protocol (`spec/worker-protocol.md`).

use super::preview::{Preview, previewed};
use super::{millis, target_of, text, value};
use crate::api::auth::Caller;
use crate::api::body::{Address, Posted, Sent};
use crate::api::openapi::Refused;
use crate::api::{App, Done, Problem, time};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use countersign_client::wire;
use countersign_engine::{ClaimCall, Command, Outcome, Target, Task};
use countersign_kernel::Time;
use countersign_kernel::lifecycle::FailureCategory;
use countersign_kernel::refusal::{Refusal, require_text};
use countersign_kernel::run::{self, ClaimNext, Facet, Outbound, TaskRef};
use std::time::Duration;

/// Claim steps of a queue, at once or as soon as there are any. Needs `tasks:work`, or `tasks:work:<definition>` for steps of its runs.
#[utoipa::path(post, path = "/v1/queues/{queue}/claim", tag = "tasks", params(("queue" = String, Path)),
    request_body = wire::ClaimTasks, responses((status = 200, body = wire::TasksClaimed), Refused))]
pub async fn claim(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    posted: Posted<wire::ClaimTasks>,
) -> Done<wire::TasksClaimed> {
    let wire::ClaimTasks { worker_id, max, lease_ms, wait_ms } = posted.body;
    let claim = ClaimCall {
        queue: address.get("queue").into(),
        worker_id: worker_id.into(),
        max: max.unwrap_or(1) as usize,
        lease: millis(lease_ms.unwrap_or(wire::DEFAULT_LEASE_MS), "lease_ms")?,
    };
    if claim.queue.starts_with('@') {
        return Err(Problem::invalid_request("this queue belongs to the engine's own executors").at("queue"));
    }
    let (queue, worker_id) = (claim.queue.clone(), claim.worker_id.clone());
    let call = caller.call(Command::Claim(claim.clone()), posted.sent)?;
    let wait = Duration::from_millis(wait_ms.unwrap_or(0));
    let engine = app.engine()?;
    let tasks = engine.claim_once(&call.actor_ref, call.proof, claim, wait, call.idempotency).await?;
    let frozen = tasks.is_empty() && engine.registry().is_frozen(&queue, &worker_id);
    Ok((StatusCode::OK, Json(wire::TasksClaimed { tasks: tasks.iter().map(to_wire).collect(), frozen })))
}

/// Prolong a lease. Needs `tasks:work`.
#[utoipa::path(post, path = "/v1/tasks/{task_id}/heartbeat", tag = "tasks", params(("task_id" = String, Path), ("preview" = Option<bool>, Query)),
    request_body = wire::HeartbeatTask, responses((status = 200, body = wire::TaskAnswer), Refused))]
pub async fn heartbeat(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    preview: Preview,
    posted: Posted<wire::HeartbeatTask>,
) -> Done<wire::TaskAnswer> {
    let wire::HeartbeatTask { lease_token, lease_ms } = posted.body;
    let lease = millis(lease_ms.unwrap_or(wire::DEFAULT_LEASE_MS), "lease_ms")?;
    let make = |task| run::Command::Heartbeat { task, lease };
    report(&app, caller, &address, (posted.sent, preview), &lease_token, make).await
}

/// The step is done. With `claim_next`, the answer holds the worker's next task. Needs `tasks:work`.
#[utoipa::path(post, path = "/v1/tasks/{task_id}/complete", tag = "tasks", params(("task_id" = String, Path), ("preview" = Option<bool>, Query)),
    request_body = wire::CompleteTask, responses((status = 200, body = wire::TaskAnswer), Refused))]
pub async fn complete(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    preview: Preview,
    posted: Posted<wire::CompleteTask>,
) -> Done<wire::TaskAnswer> {
    let wire::CompleteTask { lease_token, output, outbound_events, claim_next, lease_ms } = posted.body;
    let lease = millis(lease_ms.unwrap_or(wire::DEFAULT_LEASE_MS), "lease_ms")?;
    let outbound = outbound(outbound_events)?;
    // Nothing is handed out with a preview.
    let claim_next = (claim_next.unwrap_or(false) && !preview.0).then_some(ClaimNext { lease });
    let make = |task| run::Command::Complete { task, output: text(output), outbound, claim_next, artifacts: vec![] };
    report(&app, caller, &address, (posted.sent, preview), &lease_token, make).await
}

/// The step waits for an event, a time, or both. Needs `tasks:work`.
#[utoipa::path(post, path = "/v1/tasks/{task_id}/wait", tag = "tasks", params(("task_id" = String, Path), ("preview" = Option<bool>, Query)),
    request_body = wire::WaitTask, responses((status = 200, body = wire::TaskAnswer), Refused))]
pub async fn wait(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    preview: Preview,
    posted: Posted<wire::WaitTask>,
) -> Done<wire::TaskAnswer> {
    let wire::WaitTask { lease_token, waiting_event_type, timeout_ms, waiting_facet, waiting_facets, outbound_events } =
        posted.body;
    let timeout = timeout_ms.map(|ms| millis(ms, "timeout_ms")).transpose()?;
    let facet = |(field, text): (&'static str, String)| {
        Facet::parse(&text).ok_or_else(|| one_of(field, &text, Facet::ALL.iter().map(|f| f.as_str())))
    };
    let one = waiting_facet.into_iter().map(|text| ("waiting_facet", text));
    let several = waiting_facets.into_iter().flatten().map(|text| ("waiting_facets", text));
    let facets = one.chain(several).map(facet).collect::<Result<Vec<Facet>, _>>()?;
    let outbound = outbound(outbound_events)?;
    let make = |task| run::Command::Wait { task, event_type: waiting_event_type, timeout, facets, outbound };
    report(&app, caller, &address, (posted.sent, preview), &lease_token, make).await
}

/// The step failed and should be tried again. Needs `tasks:work`.
#[utoipa::path(post, path = "/v1/tasks/{task_id}/retry", tag = "tasks", params(("task_id" = String, Path), ("preview" = Option<bool>, Query)),
    request_body = wire::RetryTask, responses((status = 200, body = wire::TaskAnswer), Refused))]
pub async fn retry(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    preview: Preview,
    posted: Posted<wire::RetryTask>,
) -> Done<wire::TaskAnswer> {
    let wire::RetryTask { lease_token, last_error, backoff_ms, error_category } = posted.body;
    let backoff = backoff_ms.map(|ms| millis(ms, "backoff_ms")).transpose()?;
    let category = category(error_category)?;
    let make = |task| run::Command::Retry { task, error: last_error, backoff, category };
    report(&app, caller, &address, (posted.sent, preview), &lease_token, make).await
}

/// The step failed for good. Needs `tasks:work`.
#[utoipa::path(post, path = "/v1/tasks/{task_id}/dead", tag = "tasks", params(("task_id" = String, Path), ("preview" = Option<bool>, Query)),
    request_body = wire::DeadTask, responses((status = 200, body = wire::TaskAnswer), Refused))]
pub async fn dead(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    preview: Preview,
    posted: Posted<wire::DeadTask>,
) -> Done<wire::TaskAnswer> {
    let wire::DeadTask { lease_token, last_error, error_category } = posted.body;
    let category = category(error_category)?;
    let make = |task| run::Command::Dead { task, error: last_error, category };
    report(&app, caller, &address, (posted.sent, preview), &lease_token, make).await
}

/// The step cannot be completed (T12): under the lease that holds it, or under which it was put down to wait. Needs `tasks:work`.
#[utoipa::path(post, path = "/v1/tasks/{task_id}/cannot-complete", tag = "tasks", params(("task_id" = String, Path), ("preview" = Option<bool>, Query)),
    request_body = wire::CannotCompleteTask, responses((status = 200, body = wire::TaskAnswer), Refused))]
pub async fn cannot_complete(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    preview: Preview,
    posted: Posted<wire::CannotCompleteTask>,
) -> Done<wire::TaskAnswer> {
    let wire::CannotCompleteTask { lease_token, evidence_ref } = posted.body;
    let make = |task| run::Command::CannotComplete { task, evidence_ref };
    report(&app, caller, &address, (posted.sent, preview), &lease_token, make).await
}

/// The step is blocked (T4) until somebody clears that; then it goes back to its queue. Needs `tasks:work`.
#[utoipa::path(post, path = "/v1/tasks/{task_id}/block", tag = "tasks", params(("task_id" = String, Path), ("preview" = Option<bool>, Query)),
    request_body = wire::BlockTask, responses((status = 200, body = wire::TaskAnswer), Refused))]
pub async fn block(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    preview: Preview,
    posted: Posted<wire::BlockTask>,
) -> Done<wire::TaskAnswer> {
    let wire::BlockTask { lease_token, block_reason } = posted.body;
    let make = |task| run::Command::Block { task, block_reason };
    report(&app, caller, &address, (posted.sent, preview), &lease_token, make).await
}

async fn report(
    app: &App,
    caller: Caller,
    address: &Address,
    (sent, preview): (Sent, Preview),
    lease_token: &str,
    make: impl FnOnce(TaskRef) -> run::Command,
) -> Done<wire::TaskAnswer> {
    require_text("lease_token", lease_token)?;
    let (target, step_seq) = task(address.get("task_id"));
    let lease_token = uuid::Uuid::try_parse(lease_token).ok();
    let call = preview.call(caller, target, make(TaskRef { step_seq, lease_token }), sent)?;
    let answer = match app.engine()?.execute(call).await? {
        Outcome::TaskDone { state_code, run_state, next } => {
            let next = next.as_ref().map(to_wire);
            wire::TaskAnswer::Reported(Box::new(wire::TaskReported { state_code, run_state, next }))
        }
        outcome => wire::TaskAnswer::Preview(previewed(outcome)?),
    };
    Ok((StatusCode::OK, Json(answer)))
}

/// `<run_id>.<step_seq>`; to callers it is opaque. Whether there is such a task is said only to who may know.
fn task(task_id: &str) -> (Target, u32) {
    let parsed = task_id.rsplit_once('.').and_then(|(run_id, seq)| {
        let seq = seq.parse::<u32>().ok().filter(|number| number.to_string() == seq)?;
        Some((target_of(run_id), seq))
    });
    parsed.unwrap_or((Target::Nowhere, 0))
}

pub fn to_wire(task: &Task) -> wire::Task {
    wire::Task {
        task_id: task.task_id(),
        run_id: task.run_id.clone(),
        step: task.step.to_string(),
        step_seq: task.step_seq,
        attempt: task.attempt,
        max_attempts: task.max_attempts,
        task_type: task.task_type.clone(),
        input: value(&task.input),
        event: task.event.as_deref().map(value),
        idempotency_key: task.idempotency_key(),
        lease_token: task.lease_token.clone(),
        locked_until: time::format(Time(task.locked_until_us)),
    }
}

pub fn outbound(events: Option<Vec<wire::OutboundEvent>>) -> Result<Vec<Outbound>, Refusal> {
    let events = events.unwrap_or_default();
    for (i, event) in events.iter().enumerate() {
        require_text(&format!("outbound_events[{i}].type"), &event.event_type)?;
    }
    Ok(events.into_iter().map(|event| Outbound { event_type: event.event_type, data: text(event.data) }).collect())
}

fn category(text: Option<String>) -> Result<Option<FailureCategory>, Problem> {
    let Some(text) = text else { return Ok(None) };
    let known = FailureCategory::REGISTRY.iter().map(|class| class.category.as_str());
    FailureCategory::parse(&text).map(Some).ok_or_else(|| one_of("error_category", &text, known))
}

fn one_of<'w>(field: &str, text: &str, known: impl Iterator<Item = &'w str>) -> Problem {
    let known = known.collect::<Vec<_>>().join(", ");
    let text = crate::api::problem::shortened(text, 40);
    Problem::invalid_request(format!("`{text}` is none of {known}")).at(field)
}
