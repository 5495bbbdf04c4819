//! The caller as a page shows them, and the names of others.

use super::auth::Caller;
use super::openapi::Refused;
use super::query::{self, NoQuery};
use super::{App, Problem, Read, actors, time};
use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use countersign_client::wire;
use countersign_engine::store_failure;
use countersign_kernel::refusal::Code;
use countersign_kernel::registry::KnownKey;

const MOST_NAMES: usize = 100;

/// Who the caller is, what they may do, and when their session ends. Needs no scope.
#[utoipa::path(get, path = "/v1/me", tag = "session", responses((status = 200, body = wire::Me), Refused))]
pub async fn read(State(app): State<App>, caller: Caller, _: NoQuery) -> Read<wire::Me> {
    let engine = app.engine()?;
    engine.refresh_registry().await.map_err(|error| Problem::from(store_failure(&error)))?;
    let registry = engine.registry();
    let actor = registry
        .actor(&caller.actor_ref)
        .ok_or_else(|| Problem::new(Code::InvalidCredential, "the caller is no registered actor"))?;
    let mut scopes: Vec<String> = registry.grants().active_scopes(&caller.actor_ref, "").map(str::to_owned).collect();
    scopes.sort_unstable();
    Ok(Json(wire::Me {
        display_name: actor.display_name.clone(),
        kind: actors::kind(actor.kind),
        scopes,
        passkeys: registry.keys().of(&caller.actor_ref).iter().filter_map(passkey).collect(),
        must_sign: registry.must_sign(&caller.actor_ref),
        session: caller.session.map(|session| wire::SessionOfMe {
            expires_at: time::format(session.expires_at),
            idle_seconds: u64::try_from(app.console.lifetimes().idle_us / 1_000_000).unwrap_or(0),
        }),
        actor_ref: caller.actor_ref,
    }))
}

fn passkey(known: &KnownKey) -> Option<wire::Passkey> {
    let passkey = known.key.passkey.as_ref().filter(|_| known.is_active())?;
    Some(wire::Passkey {
        key_id: known.key.key_id.clone(),
        credential_id: passkey.credential_id.clone(),
        label: passkey.label.clone(),
        registered_at: time::format(known.added.at),
    })
}

/// The names that a request asks for.
pub struct Names(Vec<String>);

impl FromRequestParts<App> for Names {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _app: &App) -> Result<Self, Problem> {
        let mut refs = None;
        for (name, value) in query::decode(parts.uri.query().unwrap_or_default())? {
            match (name.as_str(), &refs) {
                ("refs", None) => refs = Some(value),
                ("refs", Some(_)) => return Err(Problem::invalid_query("refs", "`refs` is given more than once")),
                _ => return Err(Problem::invalid_query(&name, "this read has the parameter `refs` and no other")),
            }
        }
        let refs = refs.ok_or_else(|| Problem::invalid_query("refs", "name the actors: refs=NAME,NAME"))?;
        let names: Vec<String> = refs.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        match names.len() {
            1..=MOST_NAMES => Ok(Names(names)),
            count => {
                let detail = format!("{count} names are asked for; 1 to {MOST_NAMES} are possible");
                Err(Problem::invalid_query("refs", detail))
            }
        }
    }
}

/// What actors are called, in the order asked for. An actor that does not exist is answered like one without a display name.
/// Needs no scope.
#[utoipa::path(get, path = "/v1/actors/names", tag = "actors", params(wire::NameQuery),
    responses((status = 200, body = wire::Page<wire::ActorName>), Refused))]
pub async fn names(State(app): State<App>, _: Caller, Names(refs): Names) -> Read<wire::Page<wire::ActorName>> {
    let engine = app.engine()?;
    engine.catch_up().await?;
    let registry = engine.registry();
    let named = |actor_ref: String| wire::ActorName {
        display_name: registry.actor(&actor_ref).and_then(|actor| actor.display_name.clone()),
        actor_ref,
    };
    Ok(Json(wire::Page { items: refs.into_iter().map(named).collect(), next: None }))
}
