//! `GET /v1/runs/{run_id}/steps/{step}`: one step whole, with what it works on and why its attempts failed.

use super::{runbook, value, view};
use crate::api::auth::Caller;
use crate::api::body::Address;
use crate::api::openapi::Refused;
use crate::api::query::NoQuery;
use crate::api::{App, Problem, Read, process_view, time};
use axum::Json;
use axum::extract::State;
use countersign_client::wire;
use countersign_engine::port::{RunStepView, RunView};
use countersign_engine::purge::places;
use countersign_engine::rows::RecordRow;
use countersign_kernel::plan::{Plan, StepSeq};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::run::UNDO;
use countersign_kernel::{InstanceId, Time};
use serde_json::Value;

/// One step, task (`step%2Ftask`) or compensation (`undo:step`), whole: input, output, the errors of its attempts, checks, pins, gates with what they ask,
/// tasks and corrections. Needs `runs:read`.
#[utoipa::path(get, path = "/v1/runs/{run_id}/steps/{step}", tag = "runs",
    params(("run_id" = String, Path), ("step" = String, Path)),
    responses((status = 200, body = wire::StepDetail), Refused))]
pub async fn read(State(app): State<App>, caller: Caller, address: Address, _: NoQuery) -> Read<wire::StepDetail> {
    let engine = app.engine()?;
    let run_id = InstanceId::parse(address.get("run_id")).unwrap_or(InstanceId(uuid::Uuid::max()));
    let run = engine.readable_run(&caller.actor_ref, run_id).await?;
    let plan = engine.plan_of(&run).await?;
    let name = address.get("step");
    let seq = match plan.cell_named(name) {
        Some(seq) => Some(seq),
        None => undo(&app, &run, &plan, name).await?,
    };
    let seq =
        seq.ok_or_else(|| Refusal::new(Code::NotKnown, format!("the run has no step named `{name}`")).at("step"))?;
    let (machine, corrections) = (engine.machine_of(&run), engine.read_corrections(&run).await?);
    let book = run.head.runbook.as_deref().and_then(countersign_engine::run::runbook::parse);
    let shown = |step: RunStepView| {
        let seq = step.step_seq;
        let corrections = corrections.iter().filter(|row| row.step_seq == seq).map(view::correction).collect();
        let view = wire::StepView { corrections, ..view::to_wire(step, &plan, &run, machine.as_deref()) };
        runbook::step(view, book.as_ref(), &plan)
    };
    let step = engine.read_run_steps(&run, seq, 1).await?.into_iter().next().ok_or_else(Problem::internal)?;
    let tasks = plan.tasks_of(seq);
    let tasks = match tasks.len() {
        0 => vec![],
        count => engine.read_run_steps(&run, tasks.start, count).await?,
    };
    let gates = engine.read_step_gates(&run, name).await?;
    let errors = engine.read_step_errors(&run, seq).await?;
    let chain = engine.read_escalations(&run, seq).await?;
    let input = engine.step_input(&caller.actor_ref, &run, name).await?;
    let pins = book.iter().flat_map(|book| &book.pins).filter(|pin| pin.step_seq == seq);
    Ok(Json(wire::StepDetail {
        run_id: run.row.instance_id.to_string(),
        input: input.as_deref().map(value),
        escalation_chain_id: chain.first().map(|_| format!("{}.{seq}", run.row.instance_id)),
        escalation_chain: chain.iter().map(escalation).collect(),
        attempt_log: errors.iter().flat_map(|row| attempts(row, seq)).collect(),
        pins: pins.map(|pin| runbook::pin(pin, &plan)).collect(),
        gates: process_view::gates_of(gates),
        tasks: tasks.into_iter().map(&shown).collect(),
        step: shown(step),
    }))
}

/// What undoes a step, called `undo:<step>`.
async fn undo(app: &App, run: &RunView, plan: &Plan, name: &str) -> Result<Option<StepSeq>, Problem> {
    let Some(undone) = name.strip_prefix(UNDO).and_then(|step| plan.step_named(step)) else { return Ok(None) };
    let behind = StepSeq::try_from(plan.cell_count()).unwrap_or(StepSeq::MAX);
    let undos = app.engine()?.read_run_steps(run, behind, plan.compensation.len()).await?;
    Ok(undos.into_iter().find(|step| step.new.compensates == Some(undone)).map(|step| step.step_seq))
}

fn escalation(row: &RecordRow) -> wire::Escalation {
    let payload: Value = row.record.payload().and_then(|bytes| serde_json::from_slice(bytes).ok()).unwrap_or_default();
    let to = payload.get("escalation").and_then(|said| said.get("to")).and_then(Value::as_array).into_iter().flatten();
    wire::Escalation {
        event_id: row.event_id.to_string(),
        action_ref: row.action_ref.clone(),
        at: time::format(row.recorded_at),
        actor_ref: row.actor_ref.clone(),
        to: to.filter_map(Value::as_str).map(str::to_owned).collect(),
        reason: payload.get("reason").and_then(Value::as_str).map(str::to_owned),
    }
}

/// What a record says of the failures of this step.
pub fn attempts(row: &RecordRow, seq: StepSeq) -> Vec<wire::FailedAttempt> {
    let told = wire::FailedAttempt {
        event_id: row.event_id.to_string(),
        at: time::format(row.recorded_at),
        actor_ref: row.actor_ref.clone(),
        attempts: None,
        error: None,
        error_category: None,
        next_run_at: None,
        effect_unknown: false,
        purged: false,
    };
    let Some(bytes) = row.record.payload() else { return vec![wire::FailedAttempt { purged: true, ..told }] };
    let payload: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let text = |error: &Value, name: &str| error.get(name).and_then(Value::as_str).map(str::to_owned);
    let errors = payload.get("errors").and_then(Value::as_array).into_iter().flatten();
    let of_step = errors.flat_map(|error| places(error, seq as usize + 1)).filter(|(of, _)| *of == seq as usize);
    of_step
        .filter(|(_, error)| error.get("last_error").is_some() || error.get("effect_unknown").is_some())
        .map(|(_, error)| wire::FailedAttempt {
            attempts: error.get("attempts").and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok()),
            error: text(error, "last_error"),
            error_category: text(error, "error_category"),
            next_run_at: error.get("next_run_at_us").and_then(Value::as_i64).map(|us| time::format(Time(us))),
            effect_unknown: error.get("effect_unknown").is_some(),
            ..told.clone()
        })
        .collect()
}
