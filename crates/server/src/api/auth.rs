//! Who is calling: a bearer token to the actor behind it. It comes before every other check, and
//! nothing of a request is looked at for a caller who is not known.

use super::App;
use super::problem::Problem;
use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use countersign_engine::payload::credential_id;
use countersign_engine::{Call, Command, IdempotencyKey};
use countersign_kernel::Digest;
use countersign_kernel::refusal::Code;
use countersign_ledger::sha256;

/// Headers of signed requests. Until they are verified they must not look as if they were.
const SIGNATURE_HEADERS: &[&str] = &["Countersign-Statement", "Countersign-Signature"];

/// The actor who asks.
#[derive(Clone, Debug)]
pub struct Caller {
    pub actor_ref: String,
    pub credential_id: String,
}

impl Caller {
    /// What this actor asks of the engine.
    pub fn call(self, command: Command, idempotency: Option<IdempotencyKey>) -> Call {
        Call { actor_ref: self.actor_ref, credential_id: Some(self.credential_id), command, idempotency }
    }
}

impl FromRequestParts<App> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let token_hash = hash_token(bearer_token(parts)?);
        let actor_ref = app.engine()?.authenticate(&token_hash).await?;
        if let Some(header) = SIGNATURE_HEADERS.iter().find(|header| parts.headers.contains_key(**header)) {
            let detail = format!(
                "this version does not verify signed requests yet: send it without {header}, and the record will say \
                 `server_attested`"
            );
            return Err(Problem::invalid_request(detail).at(header));
        }
        Ok(Caller { actor_ref, credential_id: credential_id(&token_hash) })
    }
}

fn bearer_token(parts: &Parts) -> Result<&str, Problem> {
    let refuse = |detail: &str| Problem::new(Code::InvalidCredential, detail);
    let mut headers = parts.headers.get_all(AUTHORIZATION).iter();
    let (header, more) = (headers.next(), headers.next());
    let header = header.ok_or_else(|| refuse("the request has no `Authorization: Bearer TOKEN` header"))?;
    if more.is_some() {
        return Err(refuse("the request has more than one Authorization header"));
    }
    let token = header
        .to_str()
        .ok()
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("Bearer"))
        .map(|(_, token)| token.trim())
        .filter(|token| !token.is_empty());
    token.ok_or_else(|| refuse("the Authorization header is not of the form `Bearer TOKEN`"))
}

/// A fresh token. It is shown once and kept only as its hash.
pub fn new_token() -> Result<String, Problem> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(|error| {
        tracing::error!(%error, "no randomness");
        Problem::new(Code::RecordingFailure, "the system gives no randomness; nothing was written")
    })?;
    Ok(format!("cs_{}", Digest(secret)))
}

pub fn hash_token(token: &str) -> Digest {
    sha256(&[token.as_bytes()])
}
