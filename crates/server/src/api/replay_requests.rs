//! Requests to replay dead letters. Whether one may be made is the engine's to say; here the letter is looked up that its
//! approvers are shown.

use super::auth::Caller;
use super::body::{Address, Posted};
use super::openapi::Refused;
use super::query::{Axis, List, Params};
use super::{App, Done, Problem, Read, dead_letters, mismatched, time};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use countersign_client::wire;
use countersign_engine::port::ReplayQuery;
use countersign_engine::replay::Letter;
use countersign_engine::rows::{ProblemRow, ReplayRow};
use countersign_engine::{Command, Engine, Outcome};
use countersign_kernel::ProblemId;
use countersign_kernel::governance::ReplayOutcome;
use countersign_kernel::process::ReplayState;
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::scopes;

pub struct ReplayRequestList;

impl List for ReplayRequestList {
    const TAG: u8 = b'Y';
    const AXES: &'static [Axis] = &[Axis::Word("state", &["open", "closed"]), Axis::Text("dead_letter_id")];
}

/// Ask for a replay of a dead letter. Its approvers find the request in their in-trays; only their approval schedules the
/// replay, once. Whom `[governance] replay_approver` names approves, or for a step the entry `replay` of its definition's
/// gate_spec; never the caller. One request for a letter is open at a time. Needs `governance:act`.
#[utoipa::path(post, path = "/v1/dead-letters/{dead_letter_id}/replay-requests", tag = "governance",
    params(("dead_letter_id" = String, Path)), request_body = wire::RequestReplay,
    responses((status = 201, body = wire::ReplayRequested), Refused))]
pub async fn make(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    posted: Posted<wire::RequestReplay>,
) -> Done<wire::ReplayRequested> {
    let engine = app.engine()?;
    let dead_letter_id = address.get("dead_letter_id").to_owned();
    let id = ProblemId::parse(&dead_letter_id);
    // Who may not act learns nothing; the engine refuses and records it.
    let may = engine.may(&caller.actor_ref, scopes::GOVERNANCE_ACT).await?;
    let row = match engine.own_dead_letter(id).await {
        Ok(row) => Some(row),
        Err(refusal) if refusal.code == Code::NotKnown => None,
        Err(refusal) => return Err(refusal.into()),
    };
    let letter = letter(&engine, row.as_ref().filter(|_| may), &dead_letter_id, posted.body.reason).await?;
    // An id that we never gave out names nothing.
    let command = letter.request(id.unwrap_or(ProblemId(uuid::Uuid::nil())));
    let command = Command::RequestReplay(Box::new(command));
    match engine.execute(caller.call(command, posted.sent)?).await? {
        Outcome::ReplayRequested { request_id, step_id, chain_id, approvers } => {
            let gate = wire::ReplayGate { action: "approve".to_owned(), step_id, chain_id, approvers };
            let state = wire::ReplayRequestState::Requested;
            let made = wire::ReplayRequested { dlq_replay_request_id: request_id, dead_letter_id, state, gate };
            Ok((StatusCode::CREATED, Json(made)))
        }
        outcome => Err(mismatched(&outcome)),
    }
}

/// What the approvers are shown.
async fn letter(
    engine: &Engine,
    row: Option<&ProblemRow>,
    dead_letter_id: &str,
    reason: String,
) -> Result<Letter, Problem> {
    let mut letter = Letter {
        dead_letter_id: dead_letter_id.to_owned(),
        kind: "delivery".to_owned(),
        target: String::new(),
        failure_class: None,
        payload_digest: None,
        attempts: 0,
        reason,
    };
    let Some(row) = row else { return Ok(letter) };
    let view = dead_letters::whole(engine, row).await?;
    if view.letter.kind == wire::DeadLetterKind::Step {
        "step".clone_into(&mut letter.kind);
    }
    letter.target.clone_from(&row.problem.subject.key);
    letter.failure_class = view.failure_class;
    letter.payload_digest = view.payload.map(|payload| Letter::digest_of(&payload.to_string()));
    letter.attempts = view.attempts;
    Ok(letter)
}

/// Requests to replay dead letters, in the order in which they were made. `open`: they wait for a decision or an outcome.
/// Needs `governance:read`.
#[utoipa::path(get, path = "/v1/replay-requests", tag = "governance", params(Params<ReplayRequestList>),
    responses((status = 200, body = wire::Page<wire::ReplayRequest>), Refused))]
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    params: Params<ReplayRequestList>,
) -> Read<wire::Page<wire::ReplayRequest>> {
    let open = params.text("state").map(|state| state == "open");
    let dead_letter_id = params.text("dead_letter_id").map(|text| {
        let refused = || Refusal::new(Code::InvalidQuery, "a dead letter is named by its id").at("dead_letter_id");
        ProblemId::parse(&text).ok_or_else(refused)
    });
    let query = ReplayQuery { dead_letter_id: dead_letter_id.transpose()?, open };
    let rows = app.engine()?.replay_requests(&caller.actor_ref, &query, &params.page()?).await?;
    params.answer(rows, |row| row.request_id.0, |row| Ok(to_wire(&row))).map(Json)
}

pub fn to_wire(row: &ReplayRow) -> wire::ReplayRequest {
    wire::ReplayRequest {
        dlq_replay_request_id: row.request_id.to_string(),
        dead_letter_id: row.dead_letter_id.to_string(),
        state: match row.state {
            ReplayState::Requested => wire::ReplayRequestState::Requested,
            ReplayState::Approved => wire::ReplayRequestState::Approved,
            ReplayState::Rejected => wire::ReplayRequestState::Rejected,
            ReplayState::Withdrawn => wire::ReplayRequestState::Withdrawn,
            ReplayState::Completed => wire::ReplayRequestState::Completed,
        },
        requested_by: row.requested_by.clone(),
        requested_at: time::format(row.requested_at),
        approval_id: row.approval_id.map(|id| id.to_string()),
        outcome: row.completed.map(|end| match end.outcome {
            ReplayOutcome::Delivered => wire::ReplayOutcome::Delivered,
            ReplayOutcome::Resumed => wire::ReplayOutcome::Resumed,
            ReplayOutcome::Failed => wire::ReplayOutcome::Failed,
        }),
        outcome_event_id: row.completed.map(|end| end.event_id.to_string()),
        completed_at: row.completed.map(|end| time::format(end.at)),
    }
}
