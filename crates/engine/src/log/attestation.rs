//! Whether a record's attestation holds: `spec/record.md`, section 5. One function per class.

use crate::payload::credential_id;
use countersign_kernel::registry::Registry;
use countersign_ledger::record::{Assurance, Header};
use serde::Deserialize;

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
struct ServerAttestation {
    v: u32,
    class: String,
    credential_id: Option<String>,
}

/// Whether these bytes, which the header commits to, attest what the header says. `registry` may have moved on since;
/// what counts is how it stood at the header's `registry_seq`.
pub fn check_attestation(
    header: &Header,
    attestation: &[u8],
    registry: &Registry,
    application_actor_ref: &str,
) -> Result<(), AttestationFault> {
    let own = header.actor_ref == application_actor_ref;
    // The first command of a store registers the application actor, in its own name.
    if !(registry.registered_under(&header.actor_ref, header.registry_seq) || own && header.registry_seq == 0) {
        return Err(AttestationFault::ActorUnknown);
    }
    if header.assurance != Assurance::ServerAttested.as_str() {
        return Err(AttestationFault::ProofInvalid);
    }
    server_attested(header, attestation, registry, own)
}

/// 5.1: the server vouches that a bearer token of the actor was presented. Only the engine itself has none.
fn server_attested(
    header: &Header,
    attestation: &[u8],
    registry: &Registry,
    own: bool,
) -> Result<(), AttestationFault> {
    let invalid = AttestationFault::ProofInvalid;
    let read: ServerAttestation = serde_json::from_slice(attestation).map_err(|_| invalid)?;
    if read.v != 1 || read.class != header.assurance {
        return Err(invalid);
    }
    let holds = match &read.credential_id {
        Some(presented) => registry.credentials_of(&header.actor_ref).any(|hash| credential_id(hash) == *presented),
        None => own,
    };
    if holds { Ok(()) } else { Err(invalid) }
}
