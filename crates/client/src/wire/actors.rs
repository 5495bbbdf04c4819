//! Actors: who can act, and with which credential.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ActorKind {
    /// A person.
    Human,
    /// A program.
    Service,
}

/// Register an actor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RegisterActor {
    /// The name under which the actor acts; compared byte for byte, never reused.
    pub actor_ref: String,
    pub kind: ActorKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// An Ed25519 public key, for actors who sign their requests: base64 of 32 bytes, hex, or PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
}

/// The registered actor and its bearer token, which is shown this once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ActorRegistered {
    pub actor_ref: String,
    /// Absent when an `Idempotency-Key` repeats an earlier answer: secrets are not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

impl std::fmt::Debug for ActorRegistered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let token = self.token.as_ref().map(|_| "(hidden)");
        f.debug_struct("ActorRegistered").field("actor_ref", &self.actor_ref).field("token", &token).finish()
    }
}

/// A registered actor. Its token is never shown again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Actor {
    pub actor_ref: String,
    pub kind: ActorKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
    pub registered_at: String,
}

/// Add a key to an actor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RegisterKey {
    /// An Ed25519 public key: base64 of 32 bytes, hex, or PEM.
    pub public_key: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KeyRegistered {
    /// The first 16 hex digits of the SHA-256 of the key's bytes.
    pub key_id: String,
}

/// End a key. What it signed before still verifies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RevokeKey {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Ended {
    /// `revoked`.
    pub status: String,
}

/// A key that an actor has or had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ActorKey {
    pub key_id: String,
    pub public_key: String,
    /// It is a passkey.
    #[serde(default)]
    pub passkey: bool,
    /// What its owner calls the passkey.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// `active` or `revoked`.
    pub status: String,
    /// The registry record that began it.
    pub registered_seq: u64,
    /// The registry record that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_seq: Option<u64>,
    /// Who added it.
    #[serde(default)]
    pub added_by: String,
    #[serde(default)]
    pub added_at: String,
}

/// The keys of an actor, and the names of its tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ActorKeys {
    pub keys: Vec<ActorKey>,
    pub tokens: Vec<ActorToken>,
}

/// A bearer token, by the name it has in evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ActorToken {
    pub credential_id: String,
    /// `active` or `revoked`.
    pub status: String,
    /// Who added it.
    #[serde(default)]
    pub added_by: String,
    #[serde(default)]
    pub added_at: String,
}

/// The caller, as the server knows them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Whoami {
    pub actor_ref: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// Active ones, sorted.
    pub scopes: Vec<String>,
    /// Active keys and tokens of the caller that another actor added after the registration.
    pub added_by_others: u64,
}

/// A further token, which is shown this once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenIssued {
    pub credential_id: String,
    /// Absent when an `Idempotency-Key` repeats an earlier answer: secrets are not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

impl std::fmt::Debug for TokenIssued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenIssued").field("credential_id", &self.credential_id).finish_non_exhaustive()
    }
}

/// Which actors to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct ActorQuery {
    /// At most this many items (default 50, at most 500).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The `next` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
