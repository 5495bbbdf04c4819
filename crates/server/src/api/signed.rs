//! Signed requests: a statement that the client composed, and an Ed25519 signature over it (`spec/record.md`, 5.2).
//! The signature, who signed, when, and what for are checked before the body is read; the body and the command
//! when they are known.

use super::App;
use super::body::Sent;
use super::problem::Problem;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use countersign_engine::{Command, IdempotencyKey, SignedRequest, Target};
use countersign_kernel::Time;
use countersign_kernel::process;
use countersign_kernel::refusal::{Code, Refusal, require_text};
use countersign_kernel::registry;
use countersign_kernel::run;
use countersign_ledger::sha256;
use countersign_ledger::statement::{self, PublicKey, SignedOver, Statement};
use std::sync::Arc;

pub const STATEMENT: &str = "Countersign-Statement";
pub const SIGNATURE: &str = "Countersign-Signature";
/// How far a signer's clock may be from ours. Nonces are remembered for longer, so no statement is taken twice.
const FRESH_US: i64 = 10 * 60 * 1_000_000;
/// Largest statement that is read.
const MAX_STATEMENT_BYTES: usize = 8192;

/// A statement whose signature fits a key of its actor.
#[derive(Debug)]
pub struct VerifiedStatement {
    pub statement: Statement,
    bytes: Vec<u8>,
    signature: [u8; 64],
}

fn refuse(detail: impl Into<String>, field: &str) -> Problem {
    Problem::new(Code::InvalidCredential, detail.into()).at(field)
}

/// The statement of a request, where it has one.
pub async fn verify(parts: &Parts, app: &App) -> Result<Option<Arc<VerifiedStatement>>, Problem> {
    let (bytes, signature) = match (header(&parts.headers, STATEMENT)?, header(&parts.headers, SIGNATURE)?) {
        (None, None) => return Ok(None),
        (None, Some(_)) => return Err(refuse("there is a signature without a statement", STATEMENT)),
        (Some(_), None) => return Err(refuse("the statement is not signed", SIGNATURE)),
        (Some(bytes), Some(signature)) => (bytes, signature),
    };
    let signature: [u8; 64] =
        signature.try_into().map_err(|_| refuse("an Ed25519 signature has 64 bytes", SIGNATURE))?;
    if bytes.len() > MAX_STATEMENT_BYTES {
        return Err(refuse(format!("a statement has at most {MAX_STATEMENT_BYTES} bytes"), STATEMENT));
    }
    let statement = Statement::parse(&bytes).map_err(|error| refuse(error.to_string(), STATEMENT))?;
    let request = format!("{} {}", parts.method, parts.uri.path());
    if statement.request.as_deref() != Some(request.as_str()) {
        let detail = format!("the statement was signed for another request; this one is `{request}`");
        return Err(refuse(detail, "request"));
    }
    let key = find_key(app, &statement).await?;
    key.verify(&bytes, &signature).map_err(|error| refuse(error.to_string(), SIGNATURE))?;
    let Time(now) = app.engine()?.now();
    if now.saturating_sub(statement.issued_at_us).abs() > FRESH_US {
        return Err(refuse("the statement was not signed within ten minutes of this server's clock", "issued_at_us"));
    }
    Ok(Some(Arc::new(VerifiedStatement { statement, bytes, signature })))
}

fn header(headers: &HeaderMap, name: &str) -> Result<Option<Vec<u8>>, Problem> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let bytes = value.to_str().ok().and_then(|text| statement::decode(text.trim()));
    match (bytes, values.next()) {
        (Some(bytes), None) => Ok(Some(bytes)),
        _ => Err(refuse("one header of base64 is expected", name)),
    }
}

/// The key that the statement names. It may have been registered on another node a moment ago.
async fn find_key(app: &App, statement: &Statement) -> Result<PublicKey, Problem> {
    let engine = app.engine()?;
    let find = || {
        let registry = engine.registry();
        let known = registry.keys().get(&statement.actor_ref, &statement.key_id)?;
        Some((known.is_active(), PublicKey::parse(&known.key.public_key).ok()?))
    };
    let mut found = find();
    if found.is_none() {
        engine.refresh_registry().await.map_err(|error| countersign_engine::store_failure(&error))?;
        found = find();
    }
    match found {
        Some((true, key)) => Ok(key),
        Some((false, _)) => Err(refuse("this key has been revoked", "key_id")),
        None => Err(refuse(format!("`{}` has no such key here", statement.actor_ref), "key_id")),
    }
}

impl VerifiedStatement {
    /// Whether these are the bytes that were signed for.
    pub fn check_body(&self, body: &[u8]) -> Result<(), Problem> {
        if sha256(&[body]).to_string() == self.statement.body_digest {
            return Ok(());
        }
        Err(refuse("the body is not the one that was signed", "body_digest"))
    }

    /// A statement is taken once: its nonce is the request's idempotency key.
    pub fn idempotency(&self, given: Option<&str>) -> Result<IdempotencyKey, Problem> {
        let key = self.statement.nonce.clone();
        if given.is_some_and(|given| given != key) {
            let detail = "a signed request is repeated with the same statement; send no other key than its nonce";
            return Err(Problem::invalid_request(detail).at("Idempotency-Key"));
        }
        Ok(IdempotencyKey { key, request_digest: sha256(&[&self.bytes]) })
    }

    /// Whether this is what was signed for.
    pub fn check_action(&self, asked: &str) -> Result<(), Problem> {
        let action = &self.statement.action;
        if action == asked {
            return Ok(());
        }
        Err(refuse(format!("the statement was signed for `{action}`; this request is `{asked}`"), "action"))
    }

    pub fn check_instance(&self, target: Option<&str>) -> Result<(), Problem> {
        if self.statement.instance_id.as_deref() == target {
            return Ok(());
        }
        Err(refuse("the statement names another instance than the request", "instance_id"))
    }

    /// What the engine is told, once the command is known to be the one that was signed for.
    pub fn proof(&self, command: &Command, sent: &Sent) -> Result<SignedRequest, Problem> {
        let Statement { key_id, instance_id, step_id, meaning, expected_sequence, .. } = &self.statement;
        self.check_action(command.name())?;
        let target = match command {
            Command::Process { target: Target::Existing(instance_id), .. }
            | Command::Run { target: Target::Existing(instance_id), .. } => Some(instance_id.to_string()),
            Command::Process { target: Target::New | Target::Nowhere, .. }
            | Command::Run { target: Target::New | Target::Nowhere, .. }
            | Command::Claim(_)
            | Command::Registry(_) => None,
        };
        let named_by_record = matches!(
            command,
            Command::Process {
                command: process::Command::PlaceHold(_)
                    | process::Command::ReleaseHold(_)
                    | process::Command::PurgeRecord(_)
                    | process::Command::RecordExport,
                ..
            }
        );
        let unnamed = (named_by_record && instance_id.is_none())
            || matches!(
                command,
                Command::Process { target: Target::Nowhere, .. } | Command::Run { target: Target::Nowhere, .. }
            );
        if !unnamed {
            self.check_instance(target.as_deref())?;
        }
        if let Command::Process { command: process::Command::DecideGate(decision), .. }
        | Command::Run { command: run::Command::DecideGate(decision), .. } = command
        {
            require_text("meaning", meaning.as_deref().unwrap_or_default())?;
            let named = match &decision.step {
                Some(process::StepChoice::Id(step_id)) => Some(step_id.to_string()),
                Some(process::StepChoice::Ended | process::StepChoice::Unknown) | None => None,
            };
            if step_id.is_some() && *step_id != named {
                return Err(refuse("the statement names another step than the body", "step_id"));
            }
        }
        let over = match command {
            Command::Registry(registry::Command::PublishDefinition(_)) => SignedOver::Document,
            _ => SignedOver::Body(&sent.body),
        };
        Ok(SignedRequest {
            key_id: key_id.clone(),
            attestation: statement::attestation(key_id, &self.bytes, &self.signature, over),
            expected_sequence: *expected_sequence,
        })
    }
}

/// A public key in one of the forms that people have it.
pub fn parse_key(text: &str) -> Result<registry::ActorKey, Refusal> {
    require_text("public_key", text)?;
    let key = PublicKey::parse(text);
    let key = key.map_err(|error| Refusal::new(Code::InvalidRequest, error.to_string()).at("public_key"))?;
    Ok(countersign_engine::actor_key(&key))
}
