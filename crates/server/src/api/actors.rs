//! Actors: who can act here. A token leaves the server once, in the answer to the request that made it.

use super::auth::{Caller, hash_token, new_token};
use super::body::Posted;
use super::openapi::Refused;
use super::query::{Axis, List, Params};
use super::{App, Done, Problem, Read, mismatched, time};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use countersign_client::wire;
use countersign_engine::{Command, Outcome, store_failure};
use countersign_kernel::registry::{self, scopes};

pub struct ActorList;

impl List for ActorList {
    const TAG: u8 = b'c';
    const AXES: &'static [Axis] = &[];
}

/// Register an actor. Its token is shown this once. Needs `actors:manage`.
#[utoipa::path(post, path = "/v1/actors", tag = "actors", request_body = wire::RegisterActor,
    responses((status = 201, body = wire::ActorRegistered), Refused))]
pub async fn register(
    State(app): State<App>,
    caller: Caller,
    posted: Posted<wire::RegisterActor>,
) -> Done<wire::ActorRegistered> {
    let wire::RegisterActor { actor_ref, kind, display_name, public_key } = posted.body;
    let token = new_token()?;
    let token_hash = hash_token(&token);
    let kind = match kind {
        wire::ActorKind::Human => registry::ActorKind::Human,
        wire::ActorKind::Service => registry::ActorKind::Service,
    };
    let command = registry::RegisterActor { actor_ref, kind, display_name, public_key, token_hash };
    let command = Command::Registry(registry::Command::RegisterActor(command));
    let engine = app.engine()?;
    match engine.execute(caller.call(command, posted.idempotency)).await? {
        Outcome::ActorRegistered { actor_ref } => {
            // The answer to a repeated request stands for the first one, whose token nobody kept.
            let fresh = engine.registry().authenticate(&token_hash).is_some();
            let token = fresh.then_some(token);
            Ok((StatusCode::CREATED, Json(wire::ActorRegistered { actor_ref, token })))
        }
        outcome => Err(mismatched(&outcome)),
    }
}

/// Who is registered, by name. Needs `actors:manage`.
#[utoipa::path(get, path = "/v1/actors", tag = "actors", params(Params<ActorList>),
    responses((status = 200, body = wire::Page<wire::Actor>), Refused))]
pub async fn list(State(app): State<App>, caller: Caller, params: Params<ActorList>) -> Read<wire::Page<wire::Actor>> {
    let engine = app.engine()?;
    engine.require_scope(&caller.actor_ref, scopes::ACTORS_MANAGE).await?;
    engine.refresh_registry().await.map_err(|error| Problem::from(store_failure(&error)))?;
    let actors =
        engine.registry().actors().map(|actor| (actor.actor_ref.clone().into_bytes(), actor.clone())).collect();
    Ok(Json(params.answer_from(actors, to_wire)))
}

fn to_wire(actor: registry::Actor) -> wire::Actor {
    wire::Actor {
        actor_ref: actor.actor_ref,
        kind: match actor.kind {
            registry::ActorKind::Human => wire::ActorKind::Human,
            registry::ActorKind::Service => wire::ActorKind::Service,
        },
        display_name: actor.display_name,
        public_key: actor.public_key,
        registered_at: time::format(actor.registered_at),
    }
}
