//! An `actor_signed` attestation, and the statement in it and in a `passkey_signed` one, read strictly (`spec/record.md`,
//! 5.2). Form only.

use crate::bytes::{Digest, Id};
use crate::json::{self, Fault, FaultKind, Value};
use crate::record::{integer, optional_integer, require_members, require_text};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignedOver {
    Body,
    Document,
    Payload,
}

pub struct Signed {
    pub key_id: String,
    pub statement_bytes: Vec<u8>,
    pub statement: Statement,
    pub signed_over: SignedOver,
    pub body: Option<Vec<u8>>,
}

pub struct Statement {
    pub action: String,
    pub actor_ref: String,
    pub key_id: String,
    pub request: Option<String>,
    pub instance_id: Option<Id>,
    pub step_id: Option<Id>,
    pub body_digest: Digest,
    pub meaning: Option<String>,
    pub expected_sequence: Option<i64>,
    pub nonce: String,
    pub issued_at_us: i64,
}

const ATTESTATION: [&str; 7] = ["v", "class", "key_id", "statement", "signature", "signed_over", "body"];

const STATEMENT: [&str; 12] = [
    "v",
    "action",
    "actor_ref",
    "key_id",
    "request",
    "instance_id",
    "step_id",
    "body_digest",
    "meaning",
    "expected_sequence",
    "nonce",
    "issued_at_us",
];

pub fn read(attestation: &Value) -> Result<(Signed, [u8; 64]), Fault> {
    require_members(attestation, &ATTESTATION, &[])?;
    let signature = base64(attestation, "signature")?;
    let signature = signature.try_into().map_err(|_| form("`signature` does not have 64 bytes"))?;
    Ok((read_parts(attestation)?, signature))
}

/// What attestations with a statement have in common.
pub fn read_parts(attestation: &Value) -> Result<Signed, Fault> {
    require_version(attestation)?;
    let statement_bytes = base64(attestation, "statement")?;
    let signed_over = match require_text(attestation, "signed_over")? {
        "body" => SignedOver::Body,
        "document" => SignedOver::Document,
        "payload" => SignedOver::Payload,
        _ => return Err(form("`signed_over` is none of `body`, `document`, `payload`")),
    };
    let body = match attestation.get("body") {
        Some(Value::Null) => None,
        _ => Some(base64(attestation, "body")?),
    };
    if body.is_some() != (signed_over == SignedOver::Body) {
        return Err(form("`body` stands there exactly where `signed_over` is `body`"));
    }
    Ok(Signed {
        key_id: require_text(attestation, "key_id")?.to_owned(),
        statement: statement(&statement_bytes)?,
        statement_bytes,
        signed_over,
        body,
    })
}

fn statement(bytes: &[u8]) -> Result<Statement, Fault> {
    let value = json::parse(bytes).map_err(|fault| Fault { detail: format!("statement: {fault}"), ..fault })?;
    require_members(&value, &STATEMENT, &[])?;
    require_version(&value)?;
    let text = |name| require_text(&value, name).map(str::to_owned);
    let optional = |name: &str| match value.get(name) {
        Some(Value::Null) => Ok(None),
        _ => require_text(&value, name).map(|text| Some(text.to_owned())),
    };
    let id = |name: &str| match optional(name)? {
        None => Ok(None),
        Some(text) => Id::parse(&text).map(Some).ok_or_else(|| form(format!("`{name}` of the statement is not an id"))),
    };
    // For people to read, and for the order of a passkey's counters; the server compared it with its own clock.
    let issued_at_us = integer(&value, "issued_at_us")?;
    let nonce = text("nonce")?;
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if !(16..=128).contains(&nonce.len()) || !nonce.bytes().all(allowed) {
        return Err(form("`nonce` is not 16 to 128 of the characters A–Z a–z 0–9 - _ ."));
    }
    Ok(Statement {
        action: text("action")?,
        actor_ref: text("actor_ref")?,
        key_id: text("key_id")?,
        request: optional("request")?,
        instance_id: id("instance_id")?,
        step_id: id("step_id")?,
        body_digest: Digest::parse(&text("body_digest")?).ok_or_else(|| form("`body_digest` is not 64 hex digits"))?,
        meaning: optional("meaning")?,
        expected_sequence: optional_integer(&value, "expected_sequence")?,
        nonce,
        issued_at_us,
    })
}

fn require_version(value: &Value) -> Result<(), Fault> {
    if integer(value, "v")? == 1 { Ok(()) } else { Err(form("`v` is not 1")) }
}

fn base64(value: &Value, name: &str) -> Result<Vec<u8>, Fault> {
    STANDARD.decode(require_text(value, name)?).map_err(|_| form(format!("`{name}` is not base64 with padding")))
}

fn form(detail: impl Into<String>) -> Fault {
    Fault { kind: FaultKind::Syntax, detail: detail.into() }
}
