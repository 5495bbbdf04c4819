//! Passkeys: registering one, and what signing in and signing commands with one have in common. Requests and answers are the
//! JSON of WebAuthn itself, so that a page passes on what its browser gives.

use super::auth::Caller;
use super::body::{Posted, PostedNothing};
use super::challenge::{self, Purpose};
use super::openapi::Refused;
use super::{App, Done, Problem, Read, mismatched};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use countersign_client::wire;
use countersign_engine::{Command, Engine, Outcome};
use countersign_kernel::refusal::Code;
use countersign_kernel::registry::{self, ActorKey, KnownKey, Passkey};
use countersign_ledger::passkey::{self, Algorithm, Assertion, Expected, PasskeyError, PasskeyKey};
use countersign_ledger::sha256;
use serde_json::json;

/// Hash of the rp_id, flags, counter and kind of authenticator stand before the length of the credential's id.
const ID_AT: usize = 32 + 1 + 4 + 16;
const WITH_CREDENTIAL: u8 = 0x40;
const TIMEOUT_MS: i64 = challenge::LASTS_US / 1000;

/// What a browser needs to make a passkey for the caller: the argument of `PublicKeyCredential.parseCreationOptionsFromJSON`.
/// Needs no scope.
#[utoipa::path(post, path = "/v1/me/passkeys/options", tag = "session", request_body = Option<wire::Empty>,
    responses((status = 200, body = wire::PasskeyOptions), Refused))]
pub async fn options(State(app): State<App>, caller: Caller, _: PostedNothing) -> Read<wire::PasskeyOptions> {
    let party = app.console.party()?;
    let engine = app.engine()?;
    let challenge = challenge::make(&app, Purpose::Register(&caller.actor_ref))?;
    let registry = engine.registry();
    let display_name = registry.actor(&caller.actor_ref).and_then(|actor| actor.display_name.clone());
    let known = registry.keys().of(&caller.actor_ref).iter().filter(|known| known.is_active());
    let exclude: Vec<_> = known
        .filter_map(|known| known.key.passkey.as_ref())
        .map(|passkey| json!({"type": "public-key", "id": passkey.credential_id}))
        .collect();
    let algorithms = [Algorithm::EdDsa, Algorithm::Es256].map(|a| json!({"type": "public-key", "alg": a.cose()}));
    // Says nothing about the actor to whoever finds the authenticator, and is the same for all of their passkeys.
    let handle = BASE64_URL_SAFE_NO_PAD.encode(sha256(&[caller.actor_ref.as_bytes()]).0);
    Ok(Json(wire::PasskeyOptions {
        public_key: json!({
            "rp": {"id": party.rp_id, "name": "Countersign"},
            "user": {
                "id": handle,
                "name": caller.actor_ref,
                "displayName": display_name.as_deref().unwrap_or(&caller.actor_ref),
            },
            "challenge": challenge,
            "pubKeyCredParams": algorithms,
            "timeout": TIMEOUT_MS,
            "excludeCredentials": exclude,
            "authenticatorSelection": {
                "residentKey": "required", "requireResidentKey": true, "userVerification": "required",
            },
            "attestation": "none",
        }),
    }))
}

/// Register a passkey of the caller, as `PublicKeyCredential.toJSON` gives it. An actor with an active key signs the request
/// with one of them, or holds `actors:manage`.
#[utoipa::path(post, path = "/v1/me/passkeys", tag = "session", request_body = wire::RegisterPasskey,
    responses((status = 201, body = wire::KeyRegistered), Refused))]
pub async fn register(
    State(app): State<App>,
    caller: Caller,
    posted: Posted<wire::RegisterPasskey>,
) -> Done<wire::KeyRegistered> {
    let wire::RegisterPasskey { label, credential } = posted.body;
    let key = read_credential(&app, &caller.actor_ref, credential, label)?;
    let command = registry::RegisterKey { actor_ref: caller.actor_ref.clone(), key };
    let command = Command::Registry(registry::Command::RegisterKey(command));
    match app.engine()?.execute(caller.call(command, posted.sent)?).await? {
        Outcome::KeyRegistered { key_id } => Ok((StatusCode::CREATED, Json(wire::KeyRegistered { key_id }))),
        outcome => Err(mismatched(&outcome)),
    }
}

fn read_credential(
    app: &App,
    actor_ref: &str,
    credential: wire::NewCredential,
    label: Option<String>,
) -> Result<ActorKey, Problem> {
    let party = app.console.party()?;
    let wire::NewCredential { id, response } = credential;
    let client_data = bytes(&response.client_data_json, "credential.response.clientDataJSON")?;
    let data = bytes(&response.authenticator_data, "credential.response.authenticatorData")?;
    let spki = bytes(&response.public_key, "credential.response.publicKey")?;
    let invalid = |error: PasskeyError| Problem::invalid_request(error.to_string()).at("credential");
    let answered = passkey::challenge(&client_data, "webauthn.create", party.expected()).map_err(invalid)?;
    challenge::check(app, Purpose::Register(actor_ref), &answered)?;
    passkey::counter(&data, party.expected()).map_err(invalid)?;
    if credential_in(&data) != Some(bytes(&id, "credential.id")?.as_slice()) {
        let detail = "the authenticator data name another credential than `id`";
        return Err(Problem::invalid_request(detail).at("credential.id"));
    }
    let key = PasskeyKey::from_spki(&spki).map_err(invalid)?;
    if key.algorithm().cose() != response.public_key_algorithm {
        let detail = "the public key is of another algorithm than `publicKeyAlgorithm`";
        return Err(Problem::invalid_request(detail).at("credential.response.publicKeyAlgorithm"));
    }
    let passkey = Passkey {
        algorithm: key.algorithm().as_str().to_owned(),
        credential_id: id,
        rp_id: party.rp_id.to_owned(),
        origin: party.origin.to_owned(),
        label,
    };
    Ok(ActorKey { key_id: key.key_id(), public_key: key.to_base64(), passkey: Some(passkey) })
}

/// The id of the credential that the authenticator says it has made.
fn credential_in(data: &[u8]) -> Option<&[u8]> {
    let flags = data.get(32)?;
    let rest = data.get(ID_AT..).filter(|_| flags & WITH_CREDENTIAL != 0)?;
    let (length, rest) = rest.split_first_chunk::<2>()?;
    rest.get(..usize::from(u16::from_be_bytes(*length)))
}

/// As WebAuthn writes bytes in JSON.
fn bytes(text: &str, field: &str) -> Result<Vec<u8>, Problem> {
    let read = BASE64_URL_SAFE_NO_PAD.decode(text);
    read.map_err(|_| Problem::invalid_request(format!("`{field}` is expected as base64url without padding")).at(field))
}

/// Where passkeys of this server belong.
#[derive(Clone, Copy, Debug)]
pub struct Party<'c> {
    pub origin: &'c str,
    pub rp_id: &'c str,
}

impl<'c> Party<'c> {
    pub fn expected(self) -> Expected<'c> {
        Expected { origin: self.origin, rp_id: self.rp_id }
    }
}

/// An assertion, and the credential that it names.
pub fn read_assertion(assertion: &wire::PasskeyAssertion) -> Result<Assertion, Problem> {
    let response = &assertion.response;
    Ok(Assertion {
        authenticator_data: bytes(&response.authenticator_data, "response.authenticatorData")?,
        client_data_json: bytes(&response.client_data_json, "response.clientDataJSON")?,
        signature: bytes(&response.signature, "response.signature")?,
    })
}

/// The passkey of a registered key, as it verifies.
pub fn verifying_key(known: &KnownKey) -> Option<(PasskeyKey, Passkey)> {
    let passkey = known.key.passkey.clone()?;
    let key = PasskeyKey::parse(&passkey.algorithm, &known.key.public_key).ok()?;
    Some((key, passkey))
}

/// A counter that does not go up shows that the authenticator was copied.
pub async fn count(engine: &Engine, key_id: &str, counter: u32, assertion: &Assertion) -> Result<(), Problem> {
    let seen = sha256(&[&assertion.authenticator_data, &assertion.client_data_json]);
    if engine.count_passkey(key_id, counter, &seen).await? {
        return Ok(());
    }
    tracing::warn!(key_id, counter, "the counter of a passkey went back: its authenticator may have been copied");
    let detail =
        "the counter of this passkey has gone back; sign anew, and if that does not help, have the passkey revoked";
    Err(Problem::new(Code::InvalidCredential, detail))
}

/// A challenge for signing in with a passkey: the argument of `PublicKeyCredential.parseRequestOptionsFromJSON`. Needs no
/// credential.
#[utoipa::path(post, path = "/v1/session/options", tag = "session", request_body = Option<wire::Empty>, security(()),
    responses((status = 200, body = wire::PasskeyOptions), Refused))]
pub async fn sign_in_options(
    State(app): State<App>,
    _: super::session::Visitor,
    _: PostedNothing,
) -> Read<wire::PasskeyOptions> {
    let party = app.console.party()?;
    let challenge = challenge::make(&app, Purpose::SignIn)?;
    Ok(Json(wire::PasskeyOptions {
        // No list of credentials: it would tell who is registered here.
        public_key: json!({
            "challenge": challenge, "rpId": party.rp_id, "timeout": TIMEOUT_MS, "userVerification": "required",
            "allowCredentials": [],
        }),
    }))
}

/// The actor whose passkey answered a challenge for signing in, and the name of the passkey.
pub async fn sign_in(app: &App, assertion: &wire::PasskeyAssertion) -> Result<(String, String), Problem> {
    let party = app.console.party()?;
    let refuse = |error: PasskeyError| Problem::new(Code::InvalidCredential, error.to_string()).at("assertion");
    let made = read_assertion(assertion)?;
    let answered = passkey::challenge(&made.client_data_json, "webauthn.get", party.expected()).map_err(refuse)?;
    let end = challenge::check(app, Purpose::SignIn, &answered)?;
    let engine = app.engine()?;
    engine.catch_up().await?;
    let found = {
        let registry = engine.registry();
        let known = registry.keys().passkey(&assertion.id).filter(|(_, known)| known.is_active());
        known.and_then(|(owner, known)| Some((owner.to_owned(), known.key.key_id.clone(), verifying_key(known)?)))
    };
    let found = found.filter(|(owner, ..)| !engine.is_engine_actor(owner));
    let unknown = || Problem::new(Code::InvalidCredential, "no actor has this passkey here").at("assertion");
    let (actor_ref, key_id, (key, passkey)) = found.ok_or_else(unknown)?;
    let expected = Expected { origin: &passkey.origin, rp_id: &passkey.rp_id };
    let counter = made.verify(&key, &answered, expected).map_err(refuse)?;
    if !engine.spend_challenge(&sha256(&[&answered]), end).await? {
        return Err(Problem::new(Code::InvalidCredential, "this challenge was answered before").at("assertion"));
    }
    count(&engine, &key_id, counter, &made).await?;
    Ok((actor_ref, key_id))
}
