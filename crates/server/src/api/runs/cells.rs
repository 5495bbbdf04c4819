//! `GET /v1/runs/{run_id}/cells`: a run as it is drawn, whole or what changed since a record of it.

use super::view::{look, rollup, severity};
use crate::api::auth::Caller;
use crate::api::body::Address;
use crate::api::openapi::Refused;
use crate::api::query::{Axis, List, Params};
use crate::api::{App, Problem, Read, time};
use axum::Json;
use axum::extract::State;
use countersign_client::wire;
use countersign_engine::port::RunStepView;
use countersign_engine::run::cells::Cells;
use countersign_engine::run::rollup::Basis;
use countersign_kernel::InstanceId;
use countersign_kernel::lifecycle::{OwnMachine, RUN_STATES, RunState};
use countersign_kernel::plan::Plan;
use countersign_kernel::run::phase;
use serde_json::Map;

pub struct CellsOfRun;

impl List for CellsOfRun {
    const TAG: u8 = b'C';
    const AXES: &'static [Axis] = &[Axis::Text("since")];
    const PAGED: bool = false;
}

/// A run with a small cell per step, all as of one record, whose number is `sequence`. With `since`, the number of an earlier
/// answer, only the cells that changed; where that is not known any more, all of them and `full: true`. Needs `runs:read`.
#[utoipa::path(get, path = "/v1/runs/{run_id}/cells", tag = "runs", params(("run_id" = String, Path), Params<CellsOfRun>),
    responses((status = 200, body = wire::RunCells), Refused))]
pub async fn read(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    params: Params<CellsOfRun>,
) -> Read<wire::RunCells> {
    let since = match params.text("since") {
        None => None,
        Some(text) => Some(text.parse::<u64>().ok().filter(|since| since.to_string() == text).ok_or_else(|| {
            Problem::invalid_query("since", "`since` is the `sequence` of an earlier answer, a whole number")
        })?),
    };
    let engine = app.engine()?;
    let run_id = InstanceId::parse(address.get("run_id")).unwrap_or(InstanceId(uuid::Uuid::max()));
    let cells = engine.read_cells(&caller.actor_ref, run_id, since).await?;
    let machine = engine.machine_of(&cells.run);
    Ok(Json(to_wire(cells, machine.as_deref())))
}

fn to_wire(cells: Cells, machine: Option<&OwnMachine>) -> wire::RunCells {
    let Cells { run, plan, basis, steps, full, downstream, codes, .. } = cells;
    let state = RunState::parse(&run.head.state).unwrap_or(RunState::Idle);
    let cell = |step: RunStepView| {
        let behind = step.state.state.as_str() == "not_started" && downstream.contains(&step.step_seq);
        wire::Cell { downstream_of_blocker: behind, ..cell(step, !state.is_ended(), machine) }
    };
    let mut critical_path: Vec<u32> = plan.critical_path(basis.critical).collect();
    critical_path.reverse();
    wire::RunCells {
        sequence: run.chain.sequence,
        full,
        phase: run.head.runbook.is_some().then(|| phase(&plan, &codes).to_string()),
        appearance: run_looks(state),
        rollup: rollup(&basis, &plan),
        progress: progress(&basis, &plan),
        critical_path,
        cells: steps.into_iter().map(cell).collect(),
        state: run.head.state,
    }
}

fn run_looks(state: RunState) -> wire::Looks {
    let def = RUN_STATES.iter().find(|def| def.code == state);
    wire::Looks {
        color_token: def.map_or("", |def| def.color).to_owned(),
        icon: def.map_or("", |def| def.icon).to_owned(),
        label_key: format!("run.{state}.label"),
        args: Map::new(),
    }
}

pub(super) fn progress(basis: &Basis, plan: &Plan) -> wire::RunProgress {
    let progress = basis.progress.unwrap_or_default();
    wire::RunProgress {
        mandatory_completed: progress.completed,
        mandatory_total: plan.mandatory_steps().saturating_sub(progress.skipped),
    }
}

fn cell(step: RunStepView, lives: bool, machine: Option<&OwnMachine>) -> wire::Cell {
    let RunStepView { step_seq, new, state } = step;
    let look = look(&new, &state, lives, machine);
    let args = look.args();
    let charge = &state.charge;
    wire::Cell {
        step_seq,
        state_code: state.state.as_str().to_owned(),
        derived_state: charge.derived_state.as_deref().map(str::to_owned),
        waiting_facet: state.waiting_facet.map(str::to_owned),
        secondary_facets: charge.secondary_facets.iter().flat_map(|list| list.split(',')).map(str::to_owned).collect(),
        blocked_severity: severity(&state).map(str::to_owned),
        downstream_of_blocker: false,
        pic: charge.pic.as_deref().map(str::to_owned),
        deadline: charge.deadline.map(time::format),
        attempts: state.attempts,
        max_attempts: new.max_attempts,
        child_run_id: state.child_run_id.map(|id| id.to_string()),
        compensates: new.compensates,
        color_token: look.color_token.to_owned(),
        icon: look.icon,
        label_key: look.label_key,
        args,
    }
}
