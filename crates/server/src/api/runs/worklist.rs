//! What a person has to do: the steps they are in charge of. Approvals are in the in-tray.

use crate::api::auth::Caller;
use crate::api::openapi::Refused;
use crate::api::query::{Axis, List, Params, bad_cursor};
use crate::api::{App, Problem, Read, time};
use axum::Json;
use axum::extract::State;
use countersign_client::wire;
use countersign_engine::port::{ChargedStep, due_key};
use countersign_kernel::InstanceId;
use countersign_kernel::plan::StepSeq;
use uuid::Uuid;

pub struct Worklist;

impl List for Worklist {
    const TAG: u8 = b'w';
    const AXES: &'static [Axis] = &[];
}

/// The steps that the caller is in charge of and that are to be done, soonest deadline first. Needs no scope.
#[utoipa::path(get, path = "/v1/worklist", tag = "runs", params(Params<Worklist>),
    responses((status = 200, body = wire::Page<wire::WorklistItem>), Refused))]
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    params: Params<Worklist>,
) -> Read<wire::Page<wire::WorklistItem>> {
    if params.is_descending() {
        return Err(Problem::invalid_query("order", "this list is given by deadline, soonest first"));
    }
    let (limit, after) = params.keyed_page();
    let after = after.map(place).transpose()?;
    let steps = app.engine()?.worklist(&caller.actor_ref, after, limit).await?;
    params.answer_keyed(steps, key, |step| Ok(to_wire(step))).map(Json)
}

fn key(step: &ChargedStep) -> Vec<u8> {
    let mut key = due_key(step.step.state.charge.deadline).to_be_bytes().to_vec();
    key.extend(step.run_id.0.as_bytes());
    key.extend(step.step.step_seq.to_be_bytes());
    key
}

fn place(key: &[u8]) -> Result<(i64, InstanceId, StepSeq), Problem> {
    let (due, rest) = key.split_at_checked(8).ok_or_else(bad_cursor)?;
    let due = due.try_into().map(i64::from_be_bytes).map_err(|_| bad_cursor())?;
    let (run_id, seq) = rest.split_at_checked(16).ok_or_else(bad_cursor)?;
    let run_id = Uuid::from_slice(run_id).map_err(|_| bad_cursor())?;
    let seq: [u8; 4] = seq.try_into().map_err(|_| bad_cursor())?;
    Ok((due, InstanceId(run_id), StepSeq::from_be_bytes(seq)))
}

fn to_wire(charged: ChargedStep) -> wire::WorklistItem {
    let state = charged.step.state;
    wire::WorklistItem {
        run_id: charged.run_id.to_string(),
        definition: format!("{}@{}", charged.definition_name, charged.definition_version),
        subject_ref: charged.subject_ref,
        run_state: charged.run_state,
        step: charged.step.new.name.to_string(),
        step_seq: charged.step.step_seq,
        derived_state: state.charge.derived_state.as_ref().map(|derived| derived.to_string()),
        state_code: state.state.as_str().to_owned(),
        waiting_facet: state.waiting_facet.map(str::to_owned),
        block_reason: state.charge.block_reason.map(str::to_owned),
        deadline: state.charge.deadline.map(time::format),
        overdue_first_at: state.charge.overdue_first_at.map(time::format),
    }
}
