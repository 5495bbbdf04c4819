//! Dead letters: deliveries that were given up and dead steps of held runs, alike.

use super::auth::Caller;
use super::body::Address;
use super::governance::timeline_of;
use super::openapi::Refused;
use super::query::{Axis, List, NoQuery, Params};
use super::runs::step::attempts;
use super::runs::value;
use super::{App, Problem, Read, replay_requests, time};
use axum::Json;
use axum::extract::State;
use countersign_client::wire;
use countersign_engine::Engine;
use countersign_engine::port::{Page, ProblemQuery, ReplayQuery, RunQuery};
use countersign_engine::replay::{delivery_of, step_of};
use countersign_engine::rows::ProblemRow;
use countersign_kernel::governance::Category;
use countersign_kernel::plan::StepSeq;
use countersign_kernel::{InstanceId, ProblemId};
use uuid::Uuid;

/// Requests that a letter is shown with, the newest first.
const MOST_REQUESTS: usize = 100;

pub struct DeadLetterList;

impl List for DeadLetterList {
    const TAG: u8 = b'L';
    const AXES: &'static [Axis] = &[Axis::Word("state", &["open", "resolved"])];
}

/// Deliveries that were given up and dead steps of held runs, in the order in which they died. Needs `governance:read`.
#[utoipa::path(get, path = "/v1/dead-letters", tag = "governance", params(Params<DeadLetterList>),
    responses((status = 200, body = wire::Page<wire::DeadLetter>), Refused))]
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    params: Params<DeadLetterList>,
) -> Read<wire::Page<wire::DeadLetter>> {
    let open = params.text("state").map(|state| state == "open");
    let query = ProblemQuery { category: Category::Dlq, open };
    let rows = app.engine()?.problems(&caller.actor_ref, &query, &params.page()?).await?;
    params.answer(rows, |row| row.problem.problem_id.0, |row| Ok(to_wire(&row, &Dead::of(&row)))).map(Json)
}

/// A dead letter whole: what it holds, and why its attempts failed. Needs `governance:read`.
#[utoipa::path(get, path = "/v1/dead-letters/{dead_letter_id}", tag = "governance",
    params(("dead_letter_id" = String, Path)), responses((status = 200, body = wire::DeadLetterView), Refused))]
pub async fn read(State(app): State<App>, caller: Caller, address: Address, _: NoQuery) -> Read<wire::DeadLetterView> {
    let engine = app.engine()?;
    let problem_id = ProblemId::parse(address.get("dead_letter_id"));
    let row = engine.problem(&caller.actor_ref, Category::Dlq, problem_id).await?;
    let mut view = whole(&engine, &row).await?;
    let query = ReplayQuery { dead_letter_id: problem_id, open: None };
    let page = Page { after: None, limit: MOST_REQUESTS, descending: true };
    let requests = engine.replay_requests(&caller.actor_ref, &query, &page).await?;
    view.replay_requests = requests.iter().map(replay_requests::to_wire).collect();
    Ok(Json(view))
}

/// The letter with what it holds; the caller may read it.
pub async fn whole(engine: &Engine, row: &ProblemRow) -> Result<wire::DeadLetterView, Problem> {
    let dead = Dead::of(row);
    let letter = to_wire(row, &dead);
    match dead {
        Dead::Delivery { outbox_id, webhook } => delivery(engine, letter, outbox_id, &webhook).await,
        Dead::Step { run_id, seq } => step(engine, letter, run_id, seq).await,
    }
}

enum Dead {
    Delivery { outbox_id: Option<Uuid>, webhook: String },
    Step { run_id: InstanceId, seq: StepSeq },
}

impl Dead {
    fn of(row: &ProblemRow) -> Dead {
        match (step_of(row), delivery_of(row)) {
            (Some((run_id, seq, _)), _) => Dead::Step { run_id, seq },
            (None, Some((outbox_id, webhook))) => Dead::Delivery { outbox_id: Some(outbox_id), webhook },
            (None, None) => Dead::Delivery { outbox_id: None, webhook: String::new() },
        }
    }
}

fn to_wire(row: &ProblemRow, dead: &Dead) -> wire::DeadLetter {
    let problem = &row.problem;
    let (kind, outbox_id, webhook) = match dead {
        Dead::Step { .. } => (wire::DeadLetterKind::Step, None, None),
        Dead::Delivery { outbox_id, webhook } => {
            (wire::DeadLetterKind::Delivery, outbox_id.map(|id| id.to_string()), Some(webhook.clone()))
        }
    };
    wire::DeadLetter {
        dead_letter_id: problem.problem_id.to_string(),
        kind,
        state: if row.resolved.is_some() { wire::ProblemState::Resolved } else { wire::ProblemState::Open },
        run_id: problem.subject.run_id.map(|run_id| run_id.to_string()).unwrap_or_default(),
        step: problem.subject.step.clone(),
        outbox_id,
        webhook,
        since: time::format(problem.since),
        detail: problem.detail.clone(),
        timeline: timeline_of(row),
    }
}

fn bare(letter: wire::DeadLetter) -> wire::DeadLetterView {
    wire::DeadLetterView {
        letter,
        payload: None,
        failure_class: None,
        attempts: 0,
        last_error: None,
        attempt_log: vec![],
        replay_requests: vec![],
    }
}

async fn delivery(
    engine: &Engine,
    letter: wire::DeadLetter,
    outbox_id: Option<Uuid>,
    webhook: &str,
) -> Result<wire::DeadLetterView, Problem> {
    let Some(outbox_id) = outbox_id else { return Ok(bare(letter)) };
    let Some((event, data)) = engine.own_dead_event(outbox_id).await? else { return Ok(bare(letter)) };
    let delivery = event.deliveries.into_iter().find(|delivery| delivery.webhook == webhook);
    let (attempts, last_error) = delivery.map_or((0, None), |delivery| (delivery.attempts, delivery.last_error));
    Ok(wire::DeadLetterView { payload: Some(value(&data)), attempts, last_error, ..bare(letter) })
}

async fn step(
    engine: &Engine,
    letter: wire::DeadLetter,
    run_id: InstanceId,
    seq: StepSeq,
) -> Result<wire::DeadLetterView, Problem> {
    let query = RunQuery { instance_id: Some(run_id), ..RunQuery::default() };
    let page = Page { after: None, limit: 1, descending: false };
    let Some(run) = engine.own_runs(&query, &page).await?.pop() else { return Ok(bare(letter)) };
    let Some(step) = engine.read_run_steps(&run, seq, 1).await?.into_iter().next() else { return Ok(bare(letter)) };
    let errors = engine.read_step_errors(&run, seq).await?;
    let own = engine.config().application_actor_ref.clone();
    let input = engine.step_input(&own, &run, &step.new.name).await?;
    Ok(wire::DeadLetterView {
        payload: input.as_deref().map(value),
        failure_class: step.state.error_category.map(str::to_owned),
        attempts: u64::from(step.state.attempts),
        attempt_log: errors.iter().flat_map(|row| attempts(row, seq)).collect(),
        ..bare(letter)
    })
}
