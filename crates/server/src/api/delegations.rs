//! Delegations: whom an approver named to decide in their place, for a period and a scope. Ended ones stay in the list.

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
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::{self, KnownDelegation, scopes};
use countersign_kernel::{DelegationId, Time};

pub struct DelegationList;

impl List for DelegationList {
    const TAG: u8 = b'S';
    const AXES: &'static [Axis] = &[];
}

/// Name a substitute, who may approve or reject in the caller's place from `from` until `until`, where a gate_spec entry of
/// this scope says `delegable: true`. Every actor does it for itself alone, with a signature. Needs no scope.
#[utoipa::path(post, path = "/v1/actors/{actor_ref}/delegations", tag = "actors",
    params(("actor_ref" = String, Path)), request_body = wire::MakeDelegation,
    responses((status = 201, body = wire::DelegationMade), Refused))]
pub async fn make(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    posted: Posted<wire::MakeDelegation>,
) -> Done<wire::DelegationMade> {
    let wire::MakeDelegation { delegate_ref, scope, from, until, reason } = posted.body;
    let command = registry::MakeDelegation {
        delegator_ref: address.get("actor_ref").to_owned(),
        delegate_ref,
        scope,
        from: instant("from", &from)?,
        until: instant("until", &until)?,
        reason,
    };
    let command = Command::Registry(registry::Command::MakeDelegation(command));
    match app.engine()?.execute(caller.call(command, posted.sent)?).await? {
        Outcome::DelegationMade { delegation_id } => {
            Ok((StatusCode::CREATED, Json(wire::DelegationMade { delegation_id })))
        }
        outcome => Err(mismatched(&outcome)),
    }
}

fn instant(name: &str, text: &str) -> Result<Time, Problem> {
    let detail = || format!("`{name}` is no time; write one like 2026-11-15T19:47:28Z");
    time::parse(text).ok_or_else(|| Problem::invalid_request(detail()).at(name))
}

/// End a delegation of the caller. Decisions that were made under it stay as they are. Needs no scope.
#[utoipa::path(delete, path = "/v1/actors/{actor_ref}/delegations/{delegation_id}", tag = "actors",
    params(("actor_ref" = String, Path), ("delegation_id" = String, Path)),
    responses((status = 200, body = wire::Ended), Refused))]
pub async fn revoke(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    posted: PostedNothing,
) -> Done<wire::Ended> {
    let command = registry::RevokeDelegation {
        delegator_ref: address.get("actor_ref").to_owned(),
        delegation_id: DelegationId::parse(address.get("delegation_id")),
    };
    let command = Command::Registry(registry::Command::RevokeDelegation(command));
    match app.engine()?.execute(caller.call(command, posted.sent)?).await? {
        Outcome::Revoked => Ok((StatusCode::OK, Json(wire::Ended { status: "revoked".to_owned() }))),
        outcome => Err(mismatched(&outcome)),
    }
}

/// Delegations that an actor made and those that name it, in the order in which they were made. Every actor may list its
/// own; those of others need `actors:manage`.
#[utoipa::path(get, path = "/v1/actors/{actor_ref}/delegations", tag = "actors",
    params(("actor_ref" = String, Path), Params<DelegationList>),
    responses((status = 200, body = wire::Page<wire::Delegation>), Refused))]
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    params: Params<DelegationList>,
) -> Read<wire::Page<wire::Delegation>> {
    let actor_ref = address.get("actor_ref");
    let engine = app.engine()?;
    if actor_ref != caller.actor_ref {
        engine.require_scope(&caller.actor_ref, scopes::ACTORS_MANAGE).await?;
    }
    engine.refresh_registry().await.map_err(|error| Problem::from(store_failure(&error)))?;
    let (registry, now) = (engine.registry(), engine.now());
    if registry.actor(actor_ref).is_none() {
        return Err(Refusal::new(Code::NotKnown, format!("there is no actor `{actor_ref}`")).at("actor_ref").into());
    }
    let known = registry.delegations();
    let keyed = |known: &KnownDelegation| (known.delegation.delegation_id.0.as_bytes().to_vec(), known.clone());
    let found = known.of_delegator(actor_ref).chain(known.to_delegate(actor_ref)).map(keyed).collect();
    drop(registry);
    Ok(Json(params.answer_from(found, |known| to_wire(known, now))))
}

fn to_wire(known: KnownDelegation, now: Time) -> wire::Delegation {
    let status = match (known.revoked, known.is_open(now), known.is_in_force(now)) {
        (Some(_), ..) => wire::DelegationStatus::Revoked,
        (None, false, _) => wire::DelegationStatus::Expired,
        (None, true, false) => wire::DelegationStatus::Pending,
        (None, true, true) => wire::DelegationStatus::Active,
    };
    let KnownDelegation { delegation, made_at, revoked } = known;
    wire::Delegation {
        delegation_id: delegation.delegation_id.to_string(),
        delegator_ref: delegation.delegator_ref,
        delegate_ref: delegation.delegate_ref,
        scope: delegation.scope,
        from: time::format(delegation.from),
        until: time::format(delegation.until),
        reason: delegation.reason,
        status,
        made_at: time::format(made_at),
        revoked_at: revoked.map(|(at, _)| time::format(at)),
    }
}
