//! Grants: which scope an actor holds, and held. Revoked ones stay in the list.

use super::auth::Caller;
use super::body::{Address, Posted, PostedNothing};
use super::openapi::Refused;
use super::query::{Axis, List, Params};
use super::{App, Done, Problem, Read, mismatched, time};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use countersign_client::wire;
use countersign_engine::{Command, Outcome, store_failure};
use countersign_kernel::GrantId;
use countersign_kernel::registry::{self, Grant, scopes};

pub struct GrantList;

impl List for GrantList {
    const TAG: u8 = b'g';
    const AXES: &'static [Axis] = &[Axis::Text("subject_ref"), Axis::Text("action_scope"), Axis::Time("at")];
}

/// Give a scope to an actor. Needs `permissions:manage`.
#[utoipa::path(post, path = "/v1/grants", tag = "actors", request_body = wire::GrantScope,
    responses((status = 201, body = wire::ScopeGranted), Refused))]
pub async fn grant(
    State(app): State<App>,
    caller: Caller,
    posted: Posted<wire::GrantScope>,
) -> Done<wire::ScopeGranted> {
    let wire::GrantScope { subject_ref, action_scope } = posted.body;
    let command = registry::Command::GrantScope(registry::GrantScope { subject_ref, action_scope });
    match app.engine()?.execute(caller.call(Command::Registry(command), posted.sent)?).await? {
        Outcome::Granted { grant_id } => Ok((StatusCode::CREATED, Json(wire::ScopeGranted { grant_id }))),
        outcome => Err(mismatched(&outcome)),
    }
}

/// End a grant. Needs `permissions:manage`.
#[utoipa::path(post, path = "/v1/grants/{grant_id}/revoke", tag = "actors", params(("grant_id" = String, Path)),
    request_body = Option<wire::Empty>, responses((status = 200, body = wire::GrantRevoked), Refused))]
pub async fn revoke(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    posted: PostedNothing,
) -> Done<wire::GrantRevoked> {
    let grant_id = GrantId::parse(address.get("grant_id"));
    let command = registry::Command::RevokeGrant(registry::RevokeGrant { grant_id });
    match app.engine()?.execute(caller.call(Command::Registry(command), posted.sent)?).await? {
        Outcome::Revoked => Ok((StatusCode::OK, Json(wire::GrantRevoked { status: wire::GrantStatus::Revoked }))),
        outcome => Err(mismatched(&outcome)),
    }
}

/// Grants, in the order in which they were made; with `at`, those that were in force at that time (granted at or before
/// it and not revoked by then), whatever became of them since. Needs `permissions:manage`; everybody may list their own
/// with `subject_ref`.
#[utoipa::path(get, path = "/v1/grants", tag = "actors", params(Params<GrantList>),
    responses((status = 200, body = wire::Page<wire::Grant>), Refused))]
pub async fn list(State(app): State<App>, caller: Caller, params: Params<GrantList>) -> Read<wire::Page<wire::Grant>> {
    let (subject_ref, action_scope) = (params.text("subject_ref"), params.text("action_scope"));
    let at = params.text("at").as_deref().and_then(time::parse);
    let engine = app.engine()?;
    if subject_ref.as_ref() != Some(&caller.actor_ref) {
        engine.require_scope(&caller.actor_ref, scopes::PERMISSIONS_MANAGE).await?;
    }
    engine.refresh_registry().await.map_err(|error| Problem::from(store_failure(&error)))?;
    let fits = |grant: &&Grant| {
        action_scope.as_ref().is_none_or(|scope| grant.action_scope == *scope)
            && at.is_none_or(|time| grant.is_active_at(time))
    };
    let registry = engine.registry();
    let grants = match &subject_ref {
        Some(subject_ref) => registry.grants().of_subject(subject_ref).filter(fits).map(keyed).collect(),
        None => registry.grants().iter().filter(fits).map(keyed).collect(),
    };
    drop(registry);
    Ok(Json(params.answer_from(grants, to_wire)))
}

fn keyed(grant: &Grant) -> (Vec<u8>, Grant) {
    (grant.grant_id.0.as_bytes().to_vec(), grant.clone())
}

fn to_wire(grant: Grant) -> wire::Grant {
    wire::Grant {
        grant_id: grant.grant_id.to_string(),
        status: if grant.is_active() { wire::GrantStatus::Active } else { wire::GrantStatus::Revoked },
        granted_at: time::format(grant.granted_at),
        revoked_at: grant.revoked.map(|(at, _)| time::format(at)),
        subject_ref: grant.subject_ref,
        action_scope: grant.action_scope,
    }
}
