//! Whether a record's attestation holds: `spec/record.md`, section 5. One function per class.

use countersign_kernel::registry::Registry;
use countersign_ledger::passkey::{Expected, PasskeyKey, SignedByPasskey};
use countersign_ledger::record::{Assurance, Header, HeaderView};
use countersign_ledger::statement::{PublicKey, Signed, Statement};
use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttestationFault {
    /// The proof does not show that this actor did it.
    ProofInvalid,
    /// The actor was not registered when it was decided.
    ActorUnknown,
}

impl AttestationFault {
    pub const fn as_str(self) -> &'static str {
        match self {
            AttestationFault::ProofInvalid => "attestation-proof-invalid",
            AttestationFault::ActorUnknown => "attestation-actor-unknown-in-registry",
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerAttestation<'a> {
    v: u32,
    #[serde(borrow)]
    class: Cow<'a, str>,
    #[serde(borrow)]
    credential_id: Option<Cow<'a, str>>,
}

/// A caller inside the process needs no token, and nobody else can have none: the server vouches for it as such.
const IN_PROCESS: &[u8] = br#"{"v":1,"class":"server_attested","credential_id":null}"#;

/// What a header says of who did it.
#[derive(Clone, Copy)]
pub struct Attested<'h> {
    pub action_ref: &'h str,
    pub actor_ref: &'h str,
    pub instance_id: &'h str,
    pub registry_seq: u64,
    pub assurance: &'h str,
}

impl<'h> From<&'h Header> for Attested<'h> {
    fn from(header: &'h Header) -> Self {
        let Header { action_ref, actor_ref, instance_id, registry_seq, assurance, .. } = header;
        Attested { action_ref, actor_ref, instance_id, registry_seq: *registry_seq, assurance }
    }
}

impl<'h> From<&'h HeaderView<'_>> for Attested<'h> {
    fn from(header: &'h HeaderView<'_>) -> Self {
        let HeaderView { action_ref, actor_ref, instance_id, registry_seq, assurance, .. } = header;
        Attested { action_ref, actor_ref, instance_id, registry_seq: *registry_seq, assurance }
    }
}

/// Whether these bytes, which the header commits to, attest what the header says. `registry` may have moved on since;
/// what counts is how it stood at the header's `registry_seq`.
pub fn check_attestation(
    header: Attested<'_>,
    attestation: &[u8],
    payload: &[u8],
    registry: &Registry,
    application_actor_ref: &str,
) -> Result<(), AttestationFault> {
    let own = header.actor_ref == application_actor_ref;
    if header.assurance == Assurance::ServerAttested.as_str() && attestation == IN_PROCESS {
        return Ok(());
    }
    // The first command of a store registers the application actor, in its own name.
    if !(registry.registered_under(header.actor_ref, header.registry_seq) || own && header.registry_seq == 0) {
        return Err(AttestationFault::ActorUnknown);
    }
    let holds = match header.assurance {
        assurance if assurance == Assurance::ServerAttested.as_str() => server_attested(header, attestation, registry),
        assurance if assurance == Assurance::ActorSigned.as_str() => {
            actor_signed(header, attestation, payload, registry, own)
        }
        assurance if assurance == Assurance::PasskeySigned.as_str() => {
            passkey_signed(header, attestation, payload, registry)
        }
        _ => None,
    };
    holds.filter(|holds| *holds).map(|_| ()).ok_or(AttestationFault::ProofInvalid)
}

/// 5.1: the server vouches that a bearer token of the actor was presented, or a session that a passkey of theirs began.
fn server_attested(header: Attested<'_>, attestation: &[u8], registry: &Registry) -> Option<bool> {
    let read: ServerAttestation<'_> = serde_json::from_slice(attestation).ok()?;
    let token = |id: &Cow<'_, str>| {
        let known = registry.keys().token_by_id(header.actor_ref, id);
        let passkey = registry.keys().get(header.actor_ref, id).filter(|known| known.key.passkey.is_some());
        known.is_some_and(|token| token.was_active_at(header.registry_seq))
            || passkey.is_some_and(|known| known.was_active_at(header.registry_seq))
    };
    Some(read.v == 1 && read.class == header.assurance && read.credential_id.as_ref().is_some_and(token))
}

/// 5.2: the signature fits a key that was the actor's then, and the statement is about this record.
fn actor_signed(
    header: Attested<'_>,
    attestation: &[u8],
    payload: &[u8],
    registry: &Registry,
    own: bool,
) -> Option<bool> {
    let signed = Signed::parse(attestation).ok()?;
    let known = registry.keys().get(header.actor_ref, &signed.key_id)?;
    // A node that has no other key signs the registration of its own with it; so does the first command.
    let introduced = own && known.registered_sequence == header.registry_seq + 1;
    let key = PublicKey::parse(&known.key.public_key).ok().filter(|_| known.key.passkey.is_none())?;
    let statement = &signed.statement;
    let about_this = statement.actor_ref == header.actor_ref
        && statement.instance_id.as_ref().is_none_or(|instance_id| *instance_id == header.instance_id);
    let active = known.was_active_at(header.registry_seq) || introduced;
    let asked = signed.body().is_none_or(|body| asked_for(header.action_ref, payload, body, statement) == Some(true));
    Some(active && about_this && asked && signed.verify(&key, payload).is_ok())
}

/// 5.3: the same with a passkey, whose authenticator signed over the statement's hash.
fn passkey_signed(header: Attested<'_>, attestation: &[u8], payload: &[u8], registry: &Registry) -> Option<bool> {
    let signed = SignedByPasskey::parse(attestation).ok()?;
    let known = registry.keys().get(header.actor_ref, &signed.key_id)?;
    let passkey = known.key.passkey.as_ref()?;
    let key = PasskeyKey::parse(&passkey.algorithm, &known.key.public_key).ok()?;
    let expected = Expected { origin: &passkey.origin, rp_id: &passkey.rp_id };
    let statement = &signed.statement;
    let about_this = statement.actor_ref == header.actor_ref
        && statement.instance_id.as_ref().is_none_or(|instance_id| *instance_id == header.instance_id);
    let body = signed.body.as_deref();
    let asked = body.is_none_or(|body| asked_for(header.action_ref, payload, body, statement) == Some(true));
    let active = known.was_active_at(header.registry_seq);
    Some(active && about_this && asked && signed.verify(&key, expected, payload))
}

/// Whether a decision, an opening or a firing is what the signed request asks for. What other records say is checked with
/// their whole history (`super::history`).
fn asked_for(action_ref: &str, payload: &[u8], body: &[u8], statement: &Statement) -> Option<bool> {
    let decision = match action_ref {
        "gate_decided" => None,
        "step_approved" => Some("approve"),
        "step_rejected" => Some("reject"),
        "step_withdrawn" | "chain_withdrawn" => Some("withdraw"),
        "gate_opened" | "transition_fired" => Some(""),
        _ => return Some(true),
    };
    let payload: Value = serde_json::from_slice(payload).ok()?;
    let body: Value = if body.is_empty() { Value::Null } else { serde_json::from_slice(body).ok()? };
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let same_reason = text(&payload, "reason") == text(&body, "reason");
    if decision == Some("") {
        return Some(same_reason && text(&payload, "action") == text(&body, "action"));
    }
    let step_id = text(&payload, "step_id");
    let same_step = |named: Option<String>| named.is_none() || named == step_id;
    let action = text(&payload, "action")?;
    let plain = action.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    let request = statement.request.as_deref().unwrap_or_default();
    Some(
        same_reason
            && decision.map(str::to_owned).or_else(|| text(&payload, "decision")) == text(&body, "decision")
            && same_step(text(&body, "step_id"))
            && same_step(statement.step_id.clone())
            && (!plain || request.ends_with(&format!("/gates/{action}/decision"))),
    )
}
