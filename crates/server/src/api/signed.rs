//! Signed requests: a statement that the client composed, and an Ed25519 signature over it (`spec/record.md`, 5.2) or the
//! assertion of a passkey (5.3).
//! The signature, who signed, when, and what for are checked before the body is read; the body and the command
//! when they are known.

use super::App;
use super::body::Sent;
use super::passkeys;
use super::problem::Problem;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use countersign_client::wire;
use countersign_engine::{Command, IdempotencyKey, SignedRequest, Target};
use countersign_kernel::Time;
use countersign_kernel::process;
use countersign_kernel::refusal::{Code, Refusal, require_text};
use countersign_kernel::registry::{self, Passkey};
use countersign_kernel::run;
use countersign_ledger::passkey::{self, Assertion, Expected, PasskeyKey};
use countersign_ledger::sha256;
use countersign_ledger::statement::{self, PublicKey, SignedOver, Statement};
use std::sync::Arc;

pub const STATEMENT: &str = "Countersign-Statement";
pub const SIGNATURE: &str = "Countersign-Signature";
pub const ASSERTION: &str = "Countersign-Assertion";
/// How far a signer's clock may be from ours. Nonces are remembered for longer, so no statement is taken twice.
const FRESH_US: i64 = 10 * 60 * 1_000_000;
/// Largest statement that is read.
const MAX_STATEMENT_BYTES: usize = 8192;

/// A statement whose signature fits a key of its actor.
#[derive(Debug)]
pub struct VerifiedStatement {
    pub statement: Statement,
    bytes: Vec<u8>,
    proof: SignatureProof,
}

#[derive(Debug)]
enum SignatureProof {
    Ed25519([u8; 64]),
    Passkey(Assertion),
}

/// What a request brings beside its statement.
enum Given {
    Signature([u8; 64]),
    Assertion(Box<wire::PasskeyAssertion>),
}

/// The key that a statement names.
enum Verifying {
    Ed25519(PublicKey),
    Passkey(PasskeyKey, Passkey),
}

fn refuse(detail: impl Into<String>, field: &str) -> Problem {
    Problem::new(Code::InvalidCredential, detail.into()).at(field)
}

/// The statement of a request, where it has one.
pub async fn verify(parts: &Parts, app: &App) -> Result<Option<Arc<VerifiedStatement>>, Problem> {
    let is_signed = [SIGNATURE, ASSERTION].iter().any(|name| parts.headers.contains_key(*name));
    let bytes = match (header(&parts.headers, STATEMENT)?, is_signed) {
        (None, false) => return Ok(None),
        (None, true) => return Err(refuse("there is a signature without a statement", STATEMENT)),
        (Some(_), false) => return Err(refuse("the statement is not signed", SIGNATURE)),
        (Some(bytes), true) => bytes,
    };
    let given = given(&parts.headers)?;
    if bytes.len() > MAX_STATEMENT_BYTES {
        return Err(refuse(format!("a statement has at most {MAX_STATEMENT_BYTES} bytes"), STATEMENT));
    }
    let statement = Statement::parse(&bytes).map_err(|error| refuse(error.to_string(), STATEMENT))?;
    let request = format!("{} {}", parts.method, parts.uri.path());
    if statement.request.as_deref() != Some(request.as_str()) {
        let detail = format!("the statement was signed for another request; this one is `{request}`");
        return Err(refuse(detail, "request"));
    }
    let (proof, counter) = prove(find_key(app, &statement).await?, &bytes, given)?;
    // People sign by the clocks on their walls; the engine's time may be ahead of them.
    let engine = app.engine()?;
    let distance = |Time(now): Time| now.saturating_sub(statement.issued_at_us).abs();
    if distance(engine.now()).min(distance(engine.clock().wall())) > FRESH_US {
        return Err(refuse("the statement was not signed within ten minutes of this server's clock", "issued_at_us"));
    }
    if let (SignatureProof::Passkey(assertion), Some(counter)) = (&proof, counter) {
        passkeys::count(&engine, &statement.key_id, counter, assertion).await?;
    }
    Ok(Some(Arc::new(VerifiedStatement { statement, bytes, proof })))
}

fn given(headers: &HeaderMap) -> Result<Given, Problem> {
    match (header(headers, SIGNATURE)?, header(headers, ASSERTION)?) {
        (None, None) => Err(refuse("the statement is not signed", SIGNATURE)),
        (Some(_), Some(_)) => Err(refuse("a signature and an assertion; one of them is enough", ASSERTION)),
        (Some(signature), None) => {
            let signature = signature.try_into().map_err(|_| refuse("an Ed25519 signature has 64 bytes", SIGNATURE))?;
            Ok(Given::Signature(signature))
        }
        (None, Some(json)) => {
            let read = serde_json::from_slice(&json);
            let read = read.map_err(|error| refuse(format!("the assertion cannot be read: {error}"), ASSERTION))?;
            Ok(Given::Assertion(Box::new(read)))
        }
    }
}

/// Checks the signature, and gives the counter of a passkey.
fn prove(key: Verifying, statement: &[u8], given: Given) -> Result<(SignatureProof, Option<u32>), Problem> {
    match (key, given) {
        (Verifying::Ed25519(key), Given::Signature(signature)) => {
            key.verify(statement, &signature).map_err(|error| refuse(error.to_string(), SIGNATURE))?;
            Ok((SignatureProof::Ed25519(signature), None))
        }
        (Verifying::Passkey(key, passkey), Given::Assertion(given)) => {
            let made =
                passkeys::read_assertion(&given).map_err(|_| refuse("it holds what is not base64url", ASSERTION))?;
            if given.id != passkey.credential_id {
                return Err(refuse("the assertion is that of another passkey than the statement names", ASSERTION));
            }
            let expected = Expected { origin: &passkey.origin, rp_id: &passkey.rp_id };
            let counter = made.verify_statement(&key, statement, expected);
            let counter = counter.map_err(|error| refuse(error.to_string(), ASSERTION))?;
            Ok((SignatureProof::Passkey(made), Some(counter)))
        }
        (Verifying::Ed25519(_), Given::Assertion(_)) => {
            Err(refuse("the key of this statement is no passkey", ASSERTION))
        }
        (Verifying::Passkey(..), Given::Signature(_)) => Err(refuse(
            "the key of this statement is a passkey: send its assertion in Countersign-Assertion",
            SIGNATURE,
        )),
    }
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
async fn find_key(app: &App, statement: &Statement) -> Result<Verifying, Problem> {
    let engine = app.engine()?;
    if engine.is_engine_actor(&statement.actor_ref) {
        return Err(refuse("no request acts as an actor of the engine itself", "actor_ref"));
    }
    let find = || {
        let registry = engine.registry();
        let known = registry.keys().get(&statement.actor_ref, &statement.key_id)?;
        let key = match passkeys::verifying_key(known) {
            Some((key, passkey)) => Verifying::Passkey(key, passkey),
            None => Verifying::Ed25519(PublicKey::parse(&known.key.public_key).ok()?),
        };
        Some((known.is_active(), key))
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
            | Command::Run { target: Target::Existing(instance_id), .. }
            | Command::Ask { target: Target::Existing(instance_id), .. } => Some(instance_id.to_string()),
            Command::Process { target: Target::New | Target::Nowhere, .. }
            | Command::Run { target: Target::New | Target::Nowhere, .. }
            | Command::Ask { target: Target::New | Target::Nowhere, .. }
            | Command::Claim(_)
            | Command::Governance(_)
            | Command::RequestReplay(_)
            | Command::Registry(_) => None,
            Command::Merge(merge) => Some(merge.proposal.to_string()),
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
        let attestation = match &self.proof {
            SignatureProof::Ed25519(signature) => statement::attestation(key_id, &self.bytes, signature, over),
            SignatureProof::Passkey(assertion) => passkey::attestation(key_id, &self.bytes, assertion, over),
        };
        Ok(SignedRequest {
            key_id: key_id.clone(),
            attestation: attestation.map_err(|error| Refusal::new(Code::RecordingFailure, error.to_string()))?,
            by_passkey: matches!(self.proof, SignatureProof::Passkey(_)),
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
