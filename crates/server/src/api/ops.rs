//! What operators and their tools ask: is it alive, is it ready, what does it do, what does it serve.
//! None of it needs a credential, and none of it tells anything about anybody's processes.

use super::body::Address;
use super::openapi::Refused;
use super::query::NoQuery;
use super::{App, Problem};
use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use countersign_kernel::{Code, Refusal};
use serde::Serialize;

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

/// It can be worked with: the store answers and the committer lives.
#[utoipa::path(get, path = "/readyz", tag = "operation", security(()), responses((status = 200, body = Status), Refused))]
pub async fn readyz(State(app): State<App>) -> Result<Json<Status>, Problem> {
    match app.engine()?.ready().await {
        Ok(()) => Ok(status(&app, "ready")),
        Err(error) => Err(Problem::from(countersign_engine::store_failure(&error))),
    }
}

/// Metrics in the text format of Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "operation", security(()),
    responses((status = 200, body = String, content_type = "text/plain")))]
pub async fn metrics(State(app): State<App>) -> impl IntoResponse {
    if let Ok(engine) = app.engine() {
        crate::telemetry::look_at(&engine);
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
