//! What people and operators do to one step. With `?preview=true` nothing changes, and the answer says what would happen.

use super::preview::{Preview, previewed};
use super::tasks::outbound;
use super::{millis, on, target, text, value};
use crate::api::auth::Caller;
use crate::api::body::{Address, Posted, Sent};
use crate::api::openapi::Refused;
use crate::api::{App, Done, Problem, time};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use countersign_client::wire;
use countersign_engine::{Outcome, Target};
use countersign_kernel::run::{Act, Command, StepAct, TransitionWish};

/// A request about one step, before its body is looked at.
struct Asked {
    app: App,
    caller: Caller,
    address: Address,
    preview: Preview,
}

impl Asked {
    async fn act(self, sent: Sent, act: Act, reason: Option<String>) -> Done<wire::StepAnswer> {
        let Asked { app, caller, address, preview: Preview(preview) } = self;
        let engine = app.engine()?;
        let target = target(&address)?;
        let step = address.get("step").to_owned();
        let act = match (act, target) {
            // Only the store knows what closed the step.
            (Act::Reopen { approval_id, correction_reason, .. }, Target::Existing(run_id)) => {
                let prior = engine.prior(run_id, &step).await?.map(Box::new);
                Act::Reopen { approval_id, correction_reason, prior }
            }
            (act, _) => act,
        };
        let command = Command::Act(StepAct { step, act, reason, preview });
        let mut call = caller.call(on(target, command), sent)?;
        if preview {
            call.idempotency = None;
        }
        let answer = match engine.execute(call).await? {
            Outcome::StepActed { state_code, derived_state, state, transition_id, input } => {
                let input = input.as_deref().map(value);
                wire::StepAnswer::Acted(wire::StepActed { state_code, derived_state, state, transition_id, input })
            }
            outcome => wire::StepAnswer::Preview(previewed(outcome)?),
        };
        Ok((StatusCode::OK, Json(answer)))
    }
}

/// Begin a step that the caller is in charge of (T2). Needs `tasks:work`.
#[utoipa::path(post, path = "/v1/runs/{run_id}/steps/{step}/claim", tag = "runs",
    params(("run_id" = String, Path), ("step" = String, Path), ("preview" = Option<bool>, Query)),
    request_body = wire::ActOnStep, responses((status = 200, body = wire::StepAnswer), Refused))]
pub async fn claim(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    preview: Preview,
    posted: Posted<wire::ActOnStep>,
) -> Done<wire::StepAnswer> {
    Asked { app, caller, address, preview }.act(posted.sent, Act::Claim, posted.body.reason).await
}

/// Give it back (T2r). Needs `tasks:work`.
#[utoipa::path(post, path = "/v1/runs/{run_id}/steps/{step}/release", tag = "runs",
    params(("run_id" = String, Path), ("step" = String, Path), ("preview" = Option<bool>, Query)),
    request_body = wire::ActOnStep, responses((status = 200, body = wire::StepAnswer), Refused))]
pub async fn release(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    preview: Preview,
    posted: Posted<wire::ActOnStep>,
) -> Done<wire::StepAnswer> {
    Asked { app, caller, address, preview }.act(posted.sent, Act::Release, posted.body.reason).await
}

/// Put it down until something happens (T3). Needs `tasks:work`.
#[utoipa::path(post, path = "/v1/runs/{run_id}/steps/{step}/wait", tag = "runs",
    params(("run_id" = String, Path), ("step" = String, Path), ("preview" = Option<bool>, Query)),
    request_body = wire::WaitStep, responses((status = 200, body = wire::StepAnswer), Refused))]
pub async fn wait(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    preview: Preview,
    posted: Posted<wire::WaitStep>,
) -> Done<wire::StepAnswer> {
    let wire::WaitStep { waiting_event_type, timeout_ms, waiting_facet, waiting_facets, reason } = posted.body;
    let timeout = timeout_ms.map(|ms| millis(ms, "timeout_ms")).transpose()?;
    let facets = waiting_facet.into_iter().chain(waiting_facets.unwrap_or_default()).collect();
    let act = Act::Wait { event_type: waiting_event_type, timeout, facets };
    Asked { app, caller, address, preview }.act(posted.sent, act, reason).await
}

/// Say what keeps it from going on (T4). Needs `tasks:work`.
#[utoipa::path(post, path = "/v1/runs/{run_id}/steps/{step}/block", tag = "runs",
    params(("run_id" = String, Path), ("step" = String, Path), ("preview" = Option<bool>, Query)),
    request_body = wire::BlockStep, responses((status = 200, body = wire::StepAnswer), Refused))]
pub async fn block(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    preview: Preview,
    posted: Posted<wire::BlockStep>,
) -> Done<wire::StepAnswer> {
    let wire::BlockStep { block_reason, reason } = posted.body;
    Asked { app, caller, address, preview }.act(posted.sent, Act::Block { block_reason }, reason).await
}

/// What blocked it, or what it waited for, is there (T4r, T3r), which `evidence_ref` shows: for the person in charge, or with
/// `runs:control`. A worker's step goes back to its queue.
#[utoipa::path(post, path = "/v1/runs/{run_id}/steps/{step}/unblock", tag = "runs",
    params(("run_id" = String, Path), ("step" = String, Path), ("preview" = Option<bool>, Query)),
    request_body = wire::EvidencedStep, responses((status = 200, body = wire::StepAnswer), Refused))]
pub async fn unblock(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    preview: Preview,
    posted: Posted<wire::EvidencedStep>,
) -> Done<wire::StepAnswer> {
    let wire::EvidencedStep { evidence_ref, reason } = posted.body;
    Asked { app, caller, address, preview }.act(posted.sent, Act::Unblock { evidence_ref }, reason).await
}

/// It is done (T8; T7 where it is late). Output that misses its contract is refused. Needs `tasks:work`.
#[utoipa::path(post, path = "/v1/runs/{run_id}/steps/{step}/complete", tag = "runs",
    params(("run_id" = String, Path), ("step" = String, Path), ("preview" = Option<bool>, Query)),
    request_body = wire::CompleteStep, responses((status = 200, body = wire::StepAnswer), Refused))]
pub async fn complete(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    preview: Preview,
    posted: Posted<wire::CompleteStep>,
) -> Done<wire::StepAnswer> {
    let wire::CompleteStep { output, outbound_events, reason } = posted.body;
    let act = Act::Complete { output: text(output), outbound: outbound(outbound_events)? };
    Asked { app, caller, address, preview }.act(posted.sent, act, reason).await
}

/// Declare that it cannot be completed (T12). The run goes on, red. Needs `tasks:work`.
#[utoipa::path(post, path = "/v1/runs/{run_id}/steps/{step}/cannot-complete", tag = "runs",
    params(("run_id" = String, Path), ("step" = String, Path), ("preview" = Option<bool>, Query)),
    request_body = wire::EvidencedStep, responses((status = 200, body = wire::StepAnswer), Refused))]
pub async fn cannot_complete(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    preview: Preview,
    posted: Posted<wire::EvidencedStep>,
) -> Done<wire::StepAnswer> {
    let wire::EvidencedStep { evidence_ref, reason } = posted.body;
    Asked { app, caller, address, preview }.act(posted.sent, Act::CannotComplete { evidence_ref }, reason).await
}

/// Nobody will try this failed step again (T11). Needs `governance:act`.
#[utoipa::path(post, path = "/v1/runs/{run_id}/steps/{step}/escalate", tag = "runs",
    params(("run_id" = String, Path), ("step" = String, Path), ("preview" = Option<bool>, Query)),
    request_body = wire::ActOnStep, responses((status = 200, body = wire::StepAnswer), Refused))]
pub async fn escalate(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    preview: Preview,
    posted: Posted<wire::ActOnStep>,
) -> Done<wire::StepAnswer> {
    Asked { app, caller, address, preview }.act(posted.sent, Act::Escalate, posted.body.reason).await
}

/// Have a step that failed and is held tried once more. Needs `runs:control`.
#[utoipa::path(post, path = "/v1/runs/{run_id}/steps/{step}/retry", tag = "runs",
    params(("run_id" = String, Path), ("step" = String, Path), ("preview" = Option<bool>, Query)),
    request_body = wire::ActOnStep, responses((status = 200, body = wire::StepAnswer), Refused))]
pub async fn retry(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    preview: Preview,
    posted: Posted<wire::ActOnStep>,
) -> Done<wire::StepAnswer> {
    Asked { app, caller, address, preview }.act(posted.sent, Act::Retry, posted.body.reason).await
}

/// Make a block urgent. One that has lasted needs an approval. Needs `runs:control` or `governance:act`.
#[utoipa::path(post, path = "/v1/runs/{run_id}/steps/{step}/block-escalate", tag = "runs",
    params(("run_id" = String, Path), ("step" = String, Path), ("preview" = Option<bool>, Query)),
    request_body = wire::EscalateBlock, responses((status = 200, body = wire::StepAnswer), Refused))]
pub async fn block_escalate(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    preview: Preview,
    posted: Posted<wire::EscalateBlock>,
) -> Done<wire::StepAnswer> {
    let wire::EscalateBlock { approval_id, reason } = posted.body;
    Asked { app, caller, address, preview }.act(posted.sent, Act::BlockEscalate { approval_id }, reason).await
}

/// Reopen a closed step for correction (T8r, T12r), with an approval of its gate `reopen:<step>`. Needs `runs:control`.
#[utoipa::path(post, path = "/v1/runs/{run_id}/steps/{step}/reopen", tag = "runs",
    params(("run_id" = String, Path), ("step" = String, Path), ("preview" = Option<bool>, Query)),
    request_body = wire::ReopenStep, responses((status = 200, body = wire::StepAnswer), Refused))]
pub async fn reopen(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    preview: Preview,
    posted: Posted<wire::ReopenStep>,
) -> Done<wire::StepAnswer> {
    let wire::ReopenStep { approval_id, correction_reason, reason } = posted.body;
    Asked { app, caller, address, preview }
        .act(posted.sent, Act::Reopen { approval_id, correction_reason, prior: None }, reason)
        .await
}

/// Go on with a step that is overdue (T6): its deadline is counted anew from now. For the person in charge. Needs `tasks:work`.
#[utoipa::path(post, path = "/v1/runs/{run_id}/steps/{step}/re-engage", tag = "runs",
    params(("run_id" = String, Path), ("step" = String, Path), ("preview" = Option<bool>, Query)),
    request_body = wire::ActOnStep, responses((status = 200, body = wire::StepAnswer), Refused))]
pub async fn reengage(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    preview: Preview,
    posted: Posted<wire::ActOnStep>,
) -> Done<wire::StepAnswer> {
    Asked { app, caller, address, preview }.act(posted.sent, Act::Reengage, posted.body.reason).await
}

/// Make a transition that the run's own machine declares. Needs what its actor class needs: `tasks:work` of whoever is in
/// charge, `runs:control` of a reviewer, `governance:act` of an escalation handler.
#[utoipa::path(post, path = "/v1/runs/{run_id}/steps/{step}/transition", tag = "runs",
    params(("run_id" = String, Path), ("step" = String, Path), ("preview" = Option<bool>, Query)),
    request_body = wire::TransitionStep, responses((status = 200, body = wire::StepAnswer), Refused))]
pub async fn transition(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    preview: Preview,
    posted: Posted<wire::TransitionStep>,
) -> Done<wire::StepAnswer> {
    let body = posted.body;
    let wish = TransitionWish {
        to: body.to,
        trigger_ref: body.trigger_ref,
        evidence_ref: body.evidence_ref,
        event_type: body.waiting_event_type,
        timeout: body.timeout_ms.map(|ms| millis(ms, "timeout_ms")).transpose()?,
        facets: body.waiting_facet.into_iter().chain(body.waiting_facets.unwrap_or_default()).collect(),
        block_reason: body.block_reason,
        output: body.output.map(|output| text(Some(output))),
        outbound: outbound(body.outbound_events)?,
    };
    Asked { app, caller, address, preview }.act(posted.sent, Act::Transition(Box::new(wish)), body.reason).await
}

/// Put its deadline off (T6 where it is overdue). Needs `runs:control`.
#[utoipa::path(post, path = "/v1/runs/{run_id}/steps/{step}/extend-deadline", tag = "runs",
    params(("run_id" = String, Path), ("step" = String, Path), ("preview" = Option<bool>, Query)),
    request_body = wire::ExtendDeadline, responses((status = 200, body = wire::StepAnswer), Refused))]
pub async fn extend_deadline(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    preview: Preview,
    posted: Posted<wire::ExtendDeadline>,
) -> Done<wire::StepAnswer> {
    let wire::ExtendDeadline { deadline, reason } = posted.body;
    let Some(deadline) = time::parse(&deadline) else {
        return Err(Problem::invalid_request("`deadline` is no RFC 3339 time like 2026-11-15T19:47:28Z").at("deadline"));
    };
    Asked { app, caller, address, preview }.act(posted.sent, Act::ExtendDeadline { deadline }, reason).await
}
