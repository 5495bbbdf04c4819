//! Actors: who can act here. A token leaves the server once, in the answer to the request that made it.

use super::auth::{Caller, hash_token, new_token};
use super::body::{Address, Posted, PostedNothing};
use super::openapi::Refused;
use super::query::{Axis, List, NoQuery, Params};
use super::signed::parse_key;
use super::{App, Done, Problem, Read, mismatched, time};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use countersign_client::wire;
use countersign_engine::{Command, Outcome, store_failure};
use countersign_kernel::refusal::{Code, Refusal};
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
    let key = public_key.as_deref().map(parse_key).transpose()?;
    let command = registry::RegisterActor { actor_ref, kind, display_name, key, token_hash };
    let command = Command::Registry(registry::Command::RegisterActor(command));
    let engine = app.engine()?;
    match engine.execute(caller.call(command, posted.sent)?).await? {
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

/// Add a key to an actor. Needs `actors:manage` and every scope that the actor holds, or a signature by an earlier key
/// of the same actor. Nobody adds one to an actor of the engine itself.
#[utoipa::path(post, path = "/v1/actors/{actor_ref}/keys", tag = "actors", params(("actor_ref" = String, Path)),
    request_body = wire::RegisterKey, responses((status = 201, body = wire::KeyRegistered), Refused))]
pub async fn register_key(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    posted: Posted<wire::RegisterKey>,
) -> Done<wire::KeyRegistered> {
    let key = parse_key(&posted.body.public_key)?;
    let command = registry::RegisterKey { actor_ref: address.get("actor_ref").to_owned(), key };
    let command = Command::Registry(registry::Command::RegisterKey(command));
    match app.engine()?.execute(caller.call(command, posted.sent)?).await? {
        Outcome::KeyRegistered { key_id } => Ok((StatusCode::CREATED, Json(wire::KeyRegistered { key_id }))),
        outcome => Err(mismatched(&outcome)),
    }
}

/// End a key. Needs `actors:manage`, or a signature by a key of the same actor.
#[utoipa::path(post, path = "/v1/actors/{actor_ref}/keys/{key_id}/revoke", tag = "actors",
    params(("actor_ref" = String, Path), ("key_id" = String, Path)), request_body = wire::RevokeKey,
    responses((status = 200, body = wire::Ended), Refused))]
pub async fn revoke_key(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    posted: Posted<wire::RevokeKey>,
) -> Done<wire::Ended> {
    let command = registry::Command::RevokeKey(registry::RevokeKey {
        actor_ref: address.get("actor_ref").to_owned(),
        key_id: address.get("key_id").to_owned(),
        reason: posted.body.reason,
    });
    ended(app.engine()?.execute(caller.call(Command::Registry(command), posted.sent)?).await?)
}

/// The keys of an actor, revoked ones included, and the names of its tokens, with who added each and when. Every actor may
/// see its own; those of others need `actors:manage`.
#[utoipa::path(get, path = "/v1/actors/{actor_ref}/keys", tag = "actors", params(("actor_ref" = String, Path)),
    responses((status = 200, body = wire::ActorKeys), Refused))]
pub async fn keys(State(app): State<App>, caller: Caller, address: Address, _: NoQuery) -> Read<wire::ActorKeys> {
    let actor_ref = address.get("actor_ref");
    let engine = app.engine()?;
    if actor_ref != caller.actor_ref {
        engine.require_scope(&caller.actor_ref, scopes::ACTORS_MANAGE).await?;
    }
    engine.refresh_registry().await.map_err(|error| Problem::from(store_failure(&error)))?;
    let registry = engine.registry();
    if registry.actor(actor_ref).is_none() {
        return Err(Refusal::new(Code::NotKnown, format!("there is no actor `{actor_ref}`")).at("actor_ref").into());
    }
    let status = |revoked: Option<u64>| if revoked.is_none() { "active" } else { "revoked" }.to_owned();
    let key = |known: &registry::KnownKey| wire::ActorKey {
        key_id: known.key.key_id.clone(),
        public_key: known.key.public_key.clone(),
        passkey: known.key.passkey.is_some(),
        label: known.key.passkey.as_ref().and_then(|passkey| passkey.label.clone()),
        status: status(known.revoked_sequence),
        registered_seq: known.registered_sequence,
        revoked_seq: known.revoked_sequence,
        added_by: known.added.by.clone(),
        added_at: time::format(known.added.at),
    };
    let token = |known: &registry::KnownToken| wire::ActorToken {
        credential_id: known.credential_id.clone(),
        status: status(known.revoked_sequence),
        added_by: known.added.by.clone(),
        added_at: time::format(known.added.at),
    };
    let keys = registry.keys();
    Ok(Json(wire::ActorKeys {
        keys: keys.of(actor_ref).iter().map(key).collect(),
        tokens: keys.tokens_of(actor_ref).map(token).collect(),
    }))
}

/// Issue a further token, for an actor who lost the first. It is shown this once. Needs `actors:manage` and every scope
/// that the actor holds.
#[utoipa::path(post, path = "/v1/actors/{actor_ref}/tokens", tag = "actors", params(("actor_ref" = String, Path)),
    request_body = Option<wire::Empty>, responses((status = 201, body = wire::TokenIssued), Refused))]
pub async fn issue_token(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    posted: PostedNothing,
) -> Done<wire::TokenIssued> {
    let token = new_token()?;
    let token_hash = hash_token(&token);
    let command = registry::IssueCredential { actor_ref: address.get("actor_ref").to_owned(), token_hash };
    let command = Command::Registry(registry::Command::IssueCredential(command));
    let engine = app.engine()?;
    match engine.execute(caller.call(command, posted.sent)?).await? {
        Outcome::CredentialIssued { credential_id } => {
            let token = engine.registry().authenticate(&token_hash).is_some().then_some(token);
            Ok((StatusCode::CREATED, Json(wire::TokenIssued { credential_id, token })))
        }
        outcome => Err(mismatched(&outcome)),
    }
}

/// End a token. Needs `actors:manage`.
#[utoipa::path(post, path = "/v1/actors/{actor_ref}/tokens/{credential_id}/revoke", tag = "actors",
    params(("actor_ref" = String, Path), ("credential_id" = String, Path)), request_body = Option<wire::Empty>,
    responses((status = 200, body = wire::Ended), Refused))]
pub async fn revoke_token(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    posted: PostedNothing,
) -> Done<wire::Ended> {
    let command = registry::Command::RevokeCredential(registry::RevokeCredential {
        actor_ref: address.get("actor_ref").to_owned(),
        credential_id: address.get("credential_id").to_owned(),
    });
    ended(app.engine()?.execute(caller.call(Command::Registry(command), posted.sent)?).await?)
}

fn ended(outcome: Outcome) -> Done<wire::Ended> {
    match outcome {
        Outcome::Revoked => Ok((StatusCode::OK, Json(wire::Ended { status: "revoked".to_owned() }))),
        outcome => Err(mismatched(&outcome)),
    }
}

fn to_wire(actor: registry::Actor) -> wire::Actor {
    wire::Actor {
        actor_ref: actor.actor_ref,
        kind: kind(actor.kind),
        display_name: actor.display_name,
        public_key: actor.key.map(|key| key.public_key),
        registered_at: time::format(actor.registered_at),
    }
}

pub fn kind(kind: registry::ActorKind) -> wire::ActorKind {
    match kind {
        registry::ActorKind::Human => wire::ActorKind::Human,
        registry::ActorKind::Service => wire::ActorKind::Service,
    }
}
