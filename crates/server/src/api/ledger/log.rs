//! The log: its checkpoints, its key, and proofs that need no trust in this server.

use crate::api::auth::Caller;
use crate::api::body::{Address, PostedNothing};
use crate::api::openapi::Refused;
use crate::api::query::{NoQuery, decode};
use crate::api::{App, Problem, Read, format_time};
use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::response::IntoResponse;
use countersign_client::wire;
use countersign_engine::log::{Consistency, Evidence, Proof};
use countersign_engine::port::log::RotationRow;
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::scopes;
use countersign_kernel::{Digest, EventId};

fn hex(hashes: &[Digest]) -> Vec<String> {
    hashes.iter().map(ToString::to_string).collect()
}

fn plain(text: String) -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; charset=utf-8")], text)
}

fn no_checkpoint() -> Problem {
    Problem::new(Code::NotKnown, "there is no checkpoint yet; the first one follows within moments of the first record")
}

/// Seal everything that is recorded by now. Needs `audit:seal`.
#[utoipa::path(post, path = "/v1/ledger/seal", tag = "ledger", request_body = Option<wire::Empty>,
    responses((status = 200, body = wire::Seal), Refused))]
pub async fn seal(State(app): State<App>, caller: Caller, posted: PostedNothing) -> Read<wire::Seal> {
    let engine = app.engine()?;
    let (actor_ref, idempotency) = caller.acts("seal", posted.sent)?;
    let sealed = engine.once(&actor_ref, idempotency, async {
        engine.require_scope(&actor_ref, scopes::AUDIT_SEAL).await?;
        let Evidence { evidence_id, size, root } = engine.seal_now().await?;
        Ok(wire::Seal { evidence_id, size, root: root.to_string() })
    });
    Ok(Json(sealed.await?))
}

/// The newest checkpoint: a signed note. Needs `audit:read`.
#[utoipa::path(get, path = "/v1/ledger/checkpoint", tag = "ledger",
    responses((status = 200, body = String, content_type = "text/plain"), Refused))]
pub async fn checkpoint(State(app): State<App>, caller: Caller, _: NoQuery) -> Result<impl IntoResponse, Problem> {
    let engine = app.engine()?;
    engine.require_scope(&caller.actor_ref, scopes::AUDIT_READ).await?;
    let row = engine.checkpoint().await?.ok_or_else(no_checkpoint)?;
    Ok(plain(row.note))
}

/// The log's verifier key. It proves nothing by itself: get it from whoever runs this server. Needs `audit:read`.
#[utoipa::path(get, path = "/v1/ledger/key", tag = "ledger",
    responses((status = 200, body = String, content_type = "text/plain"), Refused))]
pub async fn key(State(app): State<App>, caller: Caller, _: NoQuery) -> Result<impl IntoResponse, Problem> {
    let engine = app.engine()?;
    engine.require_scope(&caller.actor_ref, scopes::AUDIT_READ).await?;
    let key = engine.log_verifier_key().await?;
    let key = key.ok_or_else(|| Problem::new(Code::NotKnown, "this store has no log"))?;
    Ok(plain(format!("{key}\n")))
}

/// The notes with which other keys took over the log, oldest first: each is signed by the old key and by the new one. Needs
/// `audit:read`.
#[utoipa::path(get, path = "/v1/ledger/rotations", tag = "ledger",
    responses((status = 200, body = wire::LogRotations), Refused))]
pub async fn rotations(State(app): State<App>, caller: Caller, _: NoQuery) -> Read<wire::LogRotations> {
    let engine = app.engine()?;
    engine.require_scope(&caller.actor_ref, scopes::AUDIT_READ).await?;
    let rows = engine.log_rotations().await?;
    let rotation = |row: RotationRow| wire::LogRotation {
        size: row.size,
        note: row.note,
        rotated_at: format_time(row.rotated_at),
    };
    Ok(Json(wire::LogRotations { rotations: rows.into_iter().map(rotation).collect() }))
}

/// That a record stands in the log of the newest checkpoint. Needs `audit:read`.
#[utoipa::path(get, path = "/v1/ledger/records/{event_id}/proof", tag = "ledger", params(("event_id" = String, Path)),
    responses((status = 200, body = wire::RecordProof), Refused))]
pub async fn proof(State(app): State<App>, caller: Caller, address: Address, _: NoQuery) -> Read<wire::RecordProof> {
    let engine = app.engine()?;
    engine.require_scope(&caller.actor_ref, scopes::AUDIT_READ).await?;
    let found = match EventId::parse(address.get("event_id")) {
        Some(event_id) => engine.prove(event_id).await?,
        None => None,
    };
    let absent = || Refusal::new(Code::NotKnown, "no checkpoint covers a record with this event_id").at("event_id");
    let Proof { event_id, log_index, record_hash, size, root, proof, checkpoint } = found.ok_or_else(absent)?;
    Ok(Json(wire::RecordProof {
        event_id: event_id.to_string(),
        log_index,
        record_hash: record_hash.to_string(),
        size,
        root: root.to_string(),
        proof: hex(&proof),
        checkpoint,
    }))
}

/// That the log has only grown between two sizes. Needs `audit:read`.
#[utoipa::path(get, path = "/v1/ledger/consistency", tag = "ledger", params(wire::ConsistencyQuery),
    responses((status = 200, body = wire::ConsistencyProof), Refused))]
pub async fn consistency(State(app): State<App>, caller: Caller, sizes: Sizes) -> Read<wire::ConsistencyProof> {
    let engine = app.engine()?;
    engine.require_scope(&caller.actor_ref, scopes::AUDIT_READ).await?;
    let Consistency { old, new, old_root, new_root, proof } = engine.consistency(sizes.old, sizes.new).await?;
    let (old_root, new_root) = (old_root.to_string(), new_root.to_string());
    Ok(Json(wire::ConsistencyProof { old, new, old_root, new_root, proof: hex(&proof) }))
}

/// `old` and `new`, each once.
pub struct Sizes {
    old: u64,
    new: u64,
}

impl FromRequestParts<App> for Sizes {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _app: &App) -> Result<Self, Problem> {
        let (mut old, mut new) = (None, None);
        for (name, value) in decode(parts.uri.query().unwrap_or_default())? {
            let place = match name.as_str() {
                "old" => &mut old,
                "new" => &mut new,
                _ => return Err(Problem::invalid_query(&name, "this read has the parameters `old` and `new`")),
            };
            let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            let size = value.parse().ok().filter(|_| digits);
            let size = size.ok_or_else(|| Problem::invalid_query(&name, "a number of log entries is expected"))?;
            if place.replace(size).is_some() {
                return Err(Problem::invalid_query(&name, "this parameter stands here twice"));
            }
        }
        let missing = |name: &str| Problem::invalid_query(name, format!("`{name}` is missing"));
        Ok(Sizes { old: old.ok_or_else(|| missing("old"))?, new: new.ok_or_else(|| missing("new"))? })
    }
}
