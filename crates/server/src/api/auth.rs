//! Who is calling: the actor behind a bearer token, or behind a signature ([`super::signed`]). It comes before every
//! other check, and nothing of a request is looked at for a caller who is not known.

use super::App;
use super::body::Sent;
use super::problem::Problem;
use super::signed::{self, VerifiedStatement};
use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use countersign_engine::{Call, Command, IdempotencyKey, Proof};
use countersign_kernel::Digest;
use countersign_kernel::refusal::Code;
use countersign_kernel::registry::credential_id;
use countersign_ledger::sha256;
use std::sync::Arc;

/// The actor who asks.
#[derive(Clone, Debug)]
pub struct Caller {
    pub actor_ref: String,
    known_by: KnownBy,
}

#[derive(Clone, Debug)]
enum KnownBy {
    Token { credential_id: String },
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
        let bearer = match (&statement, parts.headers.contains_key(AUTHORIZATION)) {
            // A signature says enough.
            (Some(_), false) => None,
            _ => {
                let token_hash = hash_token(bearer_token(parts)?);
                Some((app.engine()?.authenticate(&token_hash).await?, credential_id(&token_hash)))
            }
        };
        match (statement, bearer) {
            (Some(statement), bearer) => {
                let actor_ref = statement.statement.actor_ref.clone();
                if bearer.is_some_and(|(bearer, _)| bearer != actor_ref) {
                    let detail = "the bearer token and the signature are those of different actors";
                    return Err(Problem::new(Code::InvalidCredential, detail).at("actor_ref"));
                }
                parts.extensions.insert(statement.clone());
                Ok(Caller { actor_ref, known_by: KnownBy::Signature(statement) })
            }
            (None, Some((actor_ref, credential_id))) => {
                Ok(Caller { actor_ref, known_by: KnownBy::Token { credential_id } })
            }
            (None, None) => Err(Problem::new(Code::InvalidCredential, "the request names no actor")),
        }
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
