//! What operators and their tools ask: is it alive, is it ready, what does it do, what does it serve.
//! None of it needs a credential (but for `/metrics`, where the configuration names a token), and none of it tells anything about anybody's processes.

use super::body::Address;
use super::openapi::Refused;
use super::problem::shortened;
use super::query::NoQuery;
use super::{App, Problem};
use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use countersign_engine::readiness::Check;
use countersign_kernel::{Code, Refusal};
use serde::Serialize;

const MAX_DETAIL_CHARS: usize = 500;

#[derive(Serialize, utoipa::ToSchema)]
pub struct Status {
    status: &'static str,
    version: &'static str,
    /// `sqlite` or `postgres`.
    store: &'static str,
}

fn status(app: &App, status: &'static str) -> Json<Status> {
    Json(Status { status, version: env!("CARGO_PKG_VERSION"), store: app.store_kind })
}

/// The process lives.
#[utoipa::path(get, path = "/healthz", tag = "operation", security(()), responses((status = 200, body = Status)))]
pub async fn healthz(State(app): State<App>) -> Json<Status> {
    status(&app, "ok")
}

/// One thing that this node needs for its work.
#[derive(Serialize, utoipa::ToSchema)]
pub struct ReadinessCheck {
    /// `committer`, `store_read`, `store_write`, `sealing`, `loading`, `clock`; more may come.
    name: &'static str,
    ok: bool,
    /// What it means where `ok` is false: with an `error` the node is not ready, with a `warning` it is.
    severity: &'static str,
    detail: String,
}

impl From<Check> for ReadinessCheck {
    fn from(check: Check) -> Self {
        let Check { name, ok, required, detail } = check;
        let severity = if required { "error" } else { "warning" };
        ReadinessCheck { name, ok, severity, detail: shortened(&detail, MAX_DETAIL_CHARS) }
    }
}

#[derive(Serialize, utoipa::ToSchema)]
pub struct Readiness {
    status: &'static str,
    version: &'static str,
    /// `sqlite` or `postgres`.
    store: &'static str,
    checks: Vec<ReadinessCheck>,
}

#[derive(Serialize)]
struct Checks {
    checks: Vec<ReadinessCheck>,
}

/// Whether this node can do its work: one check per thing that it needs. Where a required one fails, the answer is a problem
/// (503) with the same list.
#[utoipa::path(get, path = "/readyz", tag = "operation", security(()),
    responses((status = 200, body = Readiness), Refused))]
pub async fn readyz(State(app): State<App>) -> Result<Response, Problem> {
    let checks = app.engine()?.checks().await;
    let missing: Vec<String> =
        checks.iter().filter(|check| check.blocks()).map(|check| format!("{}: {}", check.name, check.detail)).collect();
    let checks = checks.into_iter().map(ReadinessCheck::from).collect();
    if missing.is_empty() {
        let Json(Status { status, version, store }) = status(&app, "ready");
        return Ok(Json(Readiness { status, version, store, checks }).into_response());
    }
    let detail = format!("this node is not ready: {}", missing.join("; "));
    Ok(Problem::new(Code::RecordingFailure, detail).with_members(Checks { checks }))
}

/// Metrics in the text format of Prometheus. Where the configuration names a token (`[metrics] token`), it is asked for.
#[utoipa::path(get, path = "/metrics", tag = "operation", security(()),
    responses((status = 200, body = String, content_type = "text/plain")))]
pub async fn metrics(State(app): State<App>) -> impl IntoResponse {
    if let Ok(engine) = app.engine() {
        crate::telemetry::look_at(&engine).await;
    }
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], crate::telemetry::metrics().render())
}

/// What a refusal code means, when it is given and what to do: where the `type` of a problem points.
#[utoipa::path(get, path = "/errors/{code}", tag = "operation", security(()), params(("code" = String, Path)),
    responses((status = 200, body = String, content_type = "text/markdown"), Refused))]
pub async fn explain(address: Address, _: NoQuery) -> Result<impl IntoResponse, Problem> {
    let page = crate::pages::find(address.get("code"));
    let (_, page) = page.ok_or_else(|| Refusal::new(Code::NotKnown, "there is no such code"))?;
    Ok(([(CONTENT_TYPE, "text/markdown; charset=utf-8")], page))
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "operation", security(()),
    responses((status = 200, body = Object, content_type = "application/json")))]
pub async fn openapi(State(app): State<App>, _: NoQuery) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], app.openapi.to_string())
}
