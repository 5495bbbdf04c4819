//! Evidence bundles to take away.

use super::auth::Caller;
use super::openapi::Refused;
use super::query::{Axis, List, Params};
use super::{App, Problem};
use crate::evidence::{self, ExportError};
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use countersign_engine::Command;
use countersign_engine::Target;
use countersign_engine::evidence::{Exporter, Scope};
use countersign_engine::port::Range;
use countersign_kernel::{InstanceId, process};
use tokio_util::io::ReaderStream;

pub struct ExportScope;

impl List for ExportScope {
    const TAG: u8 = b'e';
    const PAGED: bool = false;
    const AXES: &'static [Axis] = &[Axis::Text("instance_id"), Axis::Time("after"), Axis::Time("before")];
}

/// An evidence bundle (ZIP, `spec/bundle.md`): of one process, or of every process with a record in a window of time. The
/// export is itself recorded. Needs `audit:read`.
#[utoipa::path(get, path = "/v1/ledger/export", tag = "ledger", params(Params<ExportScope>),
    responses((status = 200, content_type = "application/zip", body = Vec<u8>), Refused))]
pub async fn export(State(app): State<App>, caller: Caller, params: Params<ExportScope>) -> Result<Response, Problem> {
    let window: Range = params.range("");
    let instance_id = params.text("instance_id");
    let windowed = window != Range::default();
    let scope = match (&instance_id, windowed) {
        (Some(_), true) => {
            return Err(Problem::invalid_query("instance_id", "give either an instance_id or a window, not both"));
        }
        (Some(text), false) => Scope::Instance(InstanceId::parse(text).unwrap_or(InstanceId(uuid::Uuid::max()))),
        (None, _) => Scope::Window(window),
    };
    let engine = app.engine()?;
    // A signed request is signed for this very export.
    let target = match &scope {
        Scope::Instance(instance_id) => Target::Existing(*instance_id),
        Scope::Window(_) => Target::Nowhere,
    };
    let command = Command::Process { target, command: process::Command::RecordExport };
    let sent = caller.sent_nothing()?;
    let call = caller.call(command, sent)?;
    let exporter = Exporter { actor_ref: call.actor_ref, proof: call.proof, idempotency: call.idempotency };
    let (file, summary) =
        evidence::export(&engine, &exporter, &scope, app.witnesses).await.map_err(|error| match error {
            ExportError::Refused(refusal) => Problem::from(refusal),
            ExportError::Failed(error) => {
                tracing::error!(error = format!("{error:#}"), "an export failed");
                Problem::internal()
            }
        })?;
    let length = file.metadata().map_err(|_| Problem::internal())?.len();
    let name = match scope {
        Scope::Instance(instance_id) => format!("evidence-{instance_id}.zip"),
        Scope::Window(_) => "evidence-window.zip".to_owned(),
    };
    let headers = [
        (CONTENT_TYPE, "application/zip".to_owned()),
        (CONTENT_DISPOSITION, format!("attachment; filename=\"{name}\"")),
        (CONTENT_LENGTH, length.to_string()),
    ];
    let told = [("Countersign-Evidence", summary.evidence_id), ("Countersign-Records", summary.records.to_string())];
    let body = Body::from_stream(ReaderStream::new(tokio::fs::File::from_std(file)));
    Ok((headers, told, body).into_response())
}
