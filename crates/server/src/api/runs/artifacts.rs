//! `GET /v1/runs/{run_id}/artifacts/{sha256}`: a file that a step of the run has left.

use crate::api::auth::Caller;
use crate::api::body::Address;
use crate::api::openapi::Refused;
use crate::api::query::NoQuery;
use crate::api::{App, Problem};
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::response::{IntoResponse, Response};
use countersign_engine::port::{Page, RunQuery};
use countersign_engine::run::runbook;
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::{Digest, InstanceId};
use tokio_util::io::ReaderStream;

/// A file that a step of this run has left, by its SHA-256. Its content is checked against the digest before it is sent. Needs
/// `runs:read`.
#[utoipa::path(get, path = "/v1/runs/{run_id}/artifacts/{sha256}", tag = "runs",
    params(("run_id" = String, Path), ("sha256" = String, Path)),
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>), Refused))]
pub async fn read(State(app): State<App>, caller: Caller, address: Address, _: NoQuery) -> Result<Response, Problem> {
    let engine = app.engine()?;
    let run_id = InstanceId::parse(address.get("run_id")).unwrap_or(InstanceId(uuid::Uuid::max()));
    let query = RunQuery { instance_id: Some(run_id), ..RunQuery::default() };
    let page = Page { after: None, limit: 1, descending: false };
    let run = engine.read_runs(&caller.actor_ref, query, &page).await?.into_iter().next();
    let run = run.ok_or_else(|| Refusal::new(Code::NotKnown, "there is no run with this run_id").at("run_id"))?;
    let unknown = || Refusal::new(Code::NotKnown, "no step of this run has left a file with this digest").at("sha256");
    let book = run.head.runbook.as_deref().and_then(runbook::parse).ok_or_else(unknown)?;
    let wanted = address.get("sha256");
    let left = book.artifacts.into_iter().map(|(_, left)| left).find(|left| left.sha256.to_string() == wanted);
    let sha256: Digest = left.ok_or_else(unknown)?.sha256;
    drop(engine);
    let store = app.artifacts.clone();
    let found = tokio::task::spawn_blocking(move || store.find(&sha256)).await;
    let file = match found {
        Ok(Ok(Some(file))) => file,
        Ok(Ok(None)) => {
            return Err(Refusal::new(Code::NotKnown, "this server does not keep the file").at("sha256").into());
        }
        Ok(Err(error)) => {
            tracing::error!(%sha256, %error, "an artifact cannot be served");
            return Err(Problem::internal());
        }
        Err(_) => return Err(Problem::internal()),
    };
    let length = file.metadata().map_err(|_| Problem::internal())?.len();
    let headers = [
        (CONTENT_TYPE, "application/octet-stream".to_owned()),
        (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (CONTENT_DISPOSITION, format!("attachment; filename=\"{sha256}\"")),
        (CONTENT_LENGTH, length.to_string()),
    ];
    Ok((headers, Body::from_stream(ReaderStream::new(tokio::fs::File::from_std(file)))).into_response())
}
