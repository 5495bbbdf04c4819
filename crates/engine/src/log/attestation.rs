//! Whether a record's attestation holds: `spec/record.md`, section 5. One function per class.

use countersign_kernel::registry::Registry;
use countersign_ledger::record::{Assurance, Header, HeaderView};
use countersign_ledger::statement::{PublicKey, Signed};
use serde::Deserialize;
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
    pub actor_ref: &'h str,
    pub instance_id: &'h str,
    pub registry_seq: u64,
    pub assurance: &'h str,
}

impl<'h> From<&'h Header> for Attested<'h> {
    fn from(header: &'h Header) -> Self {
        let Header { actor_ref, instance_id, registry_seq, assurance, .. } = header;
        Attested { actor_ref, instance_id, registry_seq: *registry_seq, assurance }
    }
}

impl<'h> From<&'h HeaderView<'_>> for Attested<'h> {
    fn from(header: &'h HeaderView<'_>) -> Self {
        let HeaderView { actor_ref, instance_id, registry_seq, assurance, .. } = header;
        Attested { actor_ref, instance_id, registry_seq: *registry_seq, assurance }
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
        _ => None,
    };
    holds.filter(|holds| *holds).map(|_| ()).ok_or(AttestationFault::ProofInvalid)
}

/// 5.1: the server vouches that a bearer token of the actor was presented.
fn server_attested(header: Attested<'_>, attestation: &[u8], registry: &Registry) -> Option<bool> {
    let read: ServerAttestation<'_> = serde_json::from_slice(attestation).ok()?;
    let token = |id: &Cow<'_, str>| {
        let known = registry.keys().token_by_id(header.actor_ref, id);
        known.is_some_and(|token| token.was_active_at(header.registry_seq))
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
    // A node that has no other key signs the registration of its own with it.
    let introduced = own && known.registered_sequence > header.registry_seq && known.is_active();
    let key = PublicKey::parse(&known.key.public_key).ok()?;
    let statement = &signed.statement;
    let about_this = statement.actor_ref == header.actor_ref
        && statement.instance_id.as_ref().is_none_or(|instance_id| *instance_id == header.instance_id);
    let active = known.was_active_at(header.registry_seq) || introduced;
    Some(active && about_this && signed.verify(&key, payload).is_ok())
}
