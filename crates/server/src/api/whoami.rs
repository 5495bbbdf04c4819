//! Who the caller is here: what they are known by, what they may do, and what others have added to them.

use super::auth::Caller;
use super::openapi::Refused;
use super::query::NoQuery;
use super::{App, Problem, Read};
use axum::Json;
use axum::extract::State;
use countersign_client::wire;
use countersign_engine::store_failure;

/// The actor behind this request, with its scopes, and how many of its active keys and tokens another actor added after
/// its registration. Needs no scope.
#[utoipa::path(get, path = "/v1/whoami", tag = "actors", responses((status = 200, body = wire::Whoami), Refused))]
pub async fn whoami(State(app): State<App>, caller: Caller, _: NoQuery) -> Read<wire::Whoami> {
    let engine = app.engine()?;
    engine.refresh_registry().await.map_err(|error| Problem::from(store_failure(&error)))?;
    let registry = engine.registry();
    let actor = registry.actor(&caller.actor_ref);
    let mut scopes: Vec<String> = registry.grants().active_scopes(&caller.actor_ref, "").map(str::to_owned).collect();
    scopes.sort_unstable();
    Ok(Json(wire::Whoami {
        display_name: actor.and_then(|actor| actor.display_name.clone()),
        scopes,
        added_by_others: registry.added_by_others(&caller.actor_ref) as u64,
        actor_ref: caller.actor_ref,
    }))
}
