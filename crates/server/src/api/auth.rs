//! Who is calling: the actor behind a bearer token, a session ([`super::session`]) or a signature ([`super::signed`]). It
//! comes before every other check, and nothing of a request is looked at for a caller who is not known.

use super::App;
use super::body::Sent;
use super::problem::Problem;
use super::signed::{self, VerifiedStatement};
use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use countersign_engine::sessions::Session;
use countersign_engine::{Call, Command, IdempotencyKey, Proof};
use countersign_kernel::Digest;
use countersign_kernel::refusal::Code;
use countersign_kernel::registry::{Registry, credential_id};
use countersign_ledger::sha256;
use std::sync::Arc;

/// The actor who asks.
#[derive(Clone, Debug)]
pub struct Caller {
    pub actor_ref: String,
    /// The session that the request belongs to, where it has one.
    pub session: Option<Session>,
    known_by: KnownBy,
}

#[derive(Clone, Debug)]
enum KnownBy {
    /// The token, or what began the session.
    Token {
        credential_id: String,
    },
    Signature(Arc<VerifiedStatement>),
}

impl Caller {
    /// A request without a body, which is signed for as such.
    pub fn sent_nothing(&self) -> Result<Sent, Problem> {
        match &self.known_by {
            KnownBy::Token { .. } => Ok(Sent::default()),
            KnownBy::Signature(statement) => {
                statement.check_body(b"")?;
                Ok(Sent { idempotency: Some(statement.idempotency(None)?), body: vec![] })
            }
        }
    }

    /// Whether what this caller is known by still counts: it may have been revoked since.
    pub fn is_still_known(&self, registry: &Registry) -> bool {
        let keys = registry.keys();
        match &self.known_by {
            KnownBy::Token { credential_id } => {
                // A session may have been begun with a passkey.
                keys.token_by_id(&self.actor_ref, credential_id).is_some_and(|token| token.is_active())
                    || keys.get(&self.actor_ref, credential_id).is_some_and(|key| key.is_active())
            }
            KnownBy::Signature(statement) => {
                keys.get(&self.actor_ref, &statement.statement.key_id).is_some_and(|key| key.is_active())
            }
        }
    }

    /// For what is done without a command of the engine: who does it, under which key.
    pub fn acts(self, action: &str, sent: Sent) -> Result<(String, Option<IdempotencyKey>), Problem> {
        if let KnownBy::Signature(statement) = &self.known_by {
            statement.check_action(action)?;
            statement.check_instance(None)?;
        }
        Ok((self.actor_ref, sent.idempotency))
    }

    /// What this actor asks of the engine.
    pub fn call(self, command: Command, sent: Sent) -> Result<Call, Problem> {
        let proof = match self.known_by {
            KnownBy::Token { credential_id } => Proof::Token { credential_id },
            KnownBy::Signature(statement) => Proof::Signed(Arc::new(statement.proof(&command, &sent)?)),
        };
        Ok(Call { actor_ref: self.actor_ref, proof, command, idempotency: sent.idempotency })
    }
}

impl FromRequestParts<App> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let statement = signed::verify(parts, app).await?;
        let (known, session) = identify(parts, app, statement.is_some()).await?;
        match (statement, known) {
            (Some(statement), known) => {
                let actor_ref = statement.statement.actor_ref.clone();
                if known.is_some_and(|(known, _)| known != actor_ref) {
                    let detail = "the token or session and the signature are those of different actors";
                    return Err(Problem::new(Code::InvalidCredential, detail).at("actor_ref"));
                }
                parts.extensions.insert(statement.clone());
                Ok(Caller { actor_ref, known_by: KnownBy::Signature(statement), session })
            }
            (None, Some((actor_ref, credential_id))) => {
                Ok(Caller { actor_ref, known_by: KnownBy::Token { credential_id }, session })
            }
            (None, None) => Err(Problem::new(Code::InvalidCredential, "the request names no actor")),
        }
    }
}

/// The actor and the credential behind a bearer token or, where there is none, behind a session's cookie; and that session.
async fn identify(
    parts: &Parts,
    app: &App,
    is_signed: bool,
) -> Result<(Option<(String, String)>, Option<Session>), Problem> {
    if !parts.headers.contains_key(AUTHORIZATION) {
        if let Some(session_hash) = app.console.session_hash(&parts.headers) {
            let session = app.engine()?.session(&session_hash, app.console.lifetimes()).await?;
            let ended = || Problem::new(Code::InvalidCredential, "the session has ended; sign in again");
            let session = session.ok_or_else(ended)?;
            return Ok((Some((session.actor_ref.clone(), session.credential_id.clone())), Some(session)));
        }
        // A signature says enough.
        if is_signed {
            return Ok((None, None));
        }
    }
    let token_hash = hash_token(bearer_token(parts)?);
    let actor_ref = app.engine()?.authenticate(&token_hash).await?;
    Ok((Some((actor_ref, credential_id(&token_hash))), None))
}

fn bearer_token(parts: &Parts) -> Result<&str, Problem> {
    let refuse = |detail: &str| Problem::new(Code::InvalidCredential, detail);
    let mut headers = parts.headers.get_all(AUTHORIZATION).iter();
    let (header, more) = (headers.next(), headers.next());
    let header = header
        .ok_or_else(|| refuse("the request has no `Authorization: Bearer TOKEN` header, and no session that counts"))?;
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
