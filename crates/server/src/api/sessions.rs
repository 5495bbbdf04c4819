//! The sessions of an actor: who looks after an account sees where it is signed in, and ends what should not be there.

use super::auth::Caller;
use super::body::Address;
use super::openapi::Refused;
use super::query::NoQuery;
use super::{App, Problem, Read, time};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use countersign_client::wire;
use countersign_engine::Engine;
use countersign_engine::sessions::Session;
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::scopes;
use std::sync::Arc;

/// The sessions of an actor, the one that was used last first. Every actor may see its own; those of others need
/// `actors:manage`.
#[utoipa::path(get, path = "/v1/actors/{actor_ref}/sessions", tag = "session", params(("actor_ref" = String, Path)),
    responses((status = 200, body = wire::Page<wire::SessionOfActor>), Refused))]
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    _: NoQuery,
) -> Read<wire::Page<wire::SessionOfActor>> {
    let engine = app.engine()?;
    let found = of(&app, &engine, &caller, &address).await?;
    let current = caller.session.map(|session| session.session_hash);
    let view = |session: Session| wire::SessionOfActor {
        session_id: session.session_hash.to_string(),
        credential_id: session.credential_id,
        seen_at: time::format(session.seen_at),
        begun_at: session.begun_at.map(time::format),
        expires_at: time::format(session.expires_at),
        user_agent: session.user_agent,
        current: current == Some(session.session_hash),
    };
    Ok(Json(wire::Page { items: found.into_iter().map(view).collect(), next: None }))
}

/// End a session of an actor: its next request is refused, and its streams end. Every actor may end its own; those of others
/// need `actors:manage`.
#[utoipa::path(delete, path = "/v1/actors/{actor_ref}/sessions/{session_id}", tag = "session",
    params(("actor_ref" = String, Path), ("session_id" = String, Path)),
    responses((status = 204, description = "Ended"), Refused))]
pub async fn end(State(app): State<App>, caller: Caller, address: Address, _: NoQuery) -> Result<StatusCode, Problem> {
    let engine = app.engine()?;
    let found = of(&app, &engine, &caller, &address).await?;
    let session_id = address.get("session_id");
    let Some(session) = found.iter().find(|session| session.session_hash.to_string() == session_id) else {
        return Err(Refusal::new(Code::NotKnown, "this actor has no such session").at("session_id").into());
    };
    engine.end_session(&session.session_hash).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn of(app: &App, engine: &Arc<Engine>, caller: &Caller, address: &Address) -> Result<Vec<Session>, Problem> {
    let actor_ref = address.get("actor_ref");
    if actor_ref != caller.actor_ref {
        engine.require_scope(&caller.actor_ref, scopes::ACTORS_MANAGE).await?;
    }
    if engine.registry().actor(actor_ref).is_none() {
        return Err(Refusal::new(Code::NotKnown, format!("there is no actor `{actor_ref}`")).at("actor_ref").into());
    }
    Ok(engine.sessions_of(actor_ref, app.console.lifetimes()).await?)
}
