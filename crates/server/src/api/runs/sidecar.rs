//! `GET /v1/runs/{run_id}/sidecar`: the files of a runbook's run.

use crate::api::auth::Caller;
use crate::api::body::Address;
use crate::api::openapi::Refused;
use crate::api::query::{Axis, List, Params};
use crate::api::{App, Problem, Read};
use crate::sidecar;
use axum::Json;
use axum::extract::State;
use countersign_client::wire;
use countersign_engine::port::{Page, RunQuery};
use countersign_kernel::InstanceId;
use countersign_kernel::refusal::{Code, Refusal};

pub struct SidecarAt;

impl List for SidecarAt {
    const TAG: u8 = b'y';
    const AXES: &'static [Axis] = &[Axis::Text("sequence")];
    const PAGED: bool = false;
}

/// The files of a runbook's run: `state.json`, `phase-NN.md` per step that began and, while it is stopped or has failed,
/// `stop-route-report.md`. With `sequence`, as they were at that record. Needs `runs:read`.
#[utoipa::path(get, path = "/v1/runs/{run_id}/sidecar", tag = "runs",
    params(("run_id" = String, Path), Params<SidecarAt>),
    responses((status = 200, body = wire::Sidecar), Refused))]
pub async fn read(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    params: Params<SidecarAt>,
) -> Read<wire::Sidecar> {
    let number = |text: String| {
        let number = text.parse::<u64>().ok().filter(|number| number.to_string() == text);
        number.ok_or_else(|| Problem::invalid_query("sequence", "`sequence` is the number of a record"))
    };
    let sequence = params.text("sequence").map(number).transpose()?;
    let engine = app.engine()?;
    let run_id = InstanceId::parse(address.get("run_id")).unwrap_or(InstanceId(uuid::Uuid::max()));
    let query = RunQuery { instance_id: Some(run_id), ..RunQuery::default() };
    let page = Page { after: None, limit: 1, descending: false };
    let run = engine.read_runs(&caller.actor_ref, query, &page).await?.into_iter().next();
    let run = run.ok_or_else(|| Refusal::new(Code::NotKnown, "there is no run with this run_id").at("run_id"))?;
    let sidecar = sidecar::files(&engine, &run, sequence).await?;
    Ok(Json(wire::Sidecar { files: sidecar.files.into_iter().collect() }))
}
