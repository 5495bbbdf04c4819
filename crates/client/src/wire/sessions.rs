//! Sessions of browsers, and who is signed in.

use super::ActorKind;
use serde::{Deserialize, Serialize};

/// Sign in, with a token or with a passkey.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SignIn {
    /// A bearer token of the actor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The answer to a challenge of `POST /v1/session/options`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assertion: Option<PasskeyAssertion>,
}

impl std::fmt::Debug for SignIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignIn").finish_non_exhaustive()
    }
}

/// Options of WebAuthn, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PasskeyOptions {
    /// `PublicKeyCredentialCreationOptionsJSON` or `PublicKeyCredentialRequestOptionsJSON`.
    pub public_key: serde_json::Value,
}

/// An assertion as `PublicKeyCredential.toJSON` gives it; what else it has is not looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PasskeyAssertion {
    /// The credential, base64url.
    pub id: String,
    pub response: AssertionResponse,
}

/// All of it base64url without padding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AssertionResponse {
    #[serde(rename = "authenticatorData")]
    pub authenticator_data: String,
    #[serde(rename = "clientDataJSON")]
    pub client_data_json: String,
    pub signature: String,
}

/// Register a passkey of the caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RegisterPasskey {
    /// What the owner calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    pub credential: NewCredential,
}

/// A new credential as `PublicKeyCredential.toJSON` gives it; what else it has is not looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NewCredential {
    /// The credential, base64url.
    pub id: String,
    pub response: RegistrationResponse,
}

/// All but the number base64url without padding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RegistrationResponse {
    #[serde(rename = "clientDataJSON")]
    pub client_data_json: String,
    #[serde(rename = "authenticatorData")]
    pub authenticator_data: String,
    /// The SubjectPublicKeyInfo of an ES256 or EdDSA key.
    #[serde(rename = "publicKey")]
    pub public_key: String,
    /// -7 (ES256) or -8 (EdDSA).
    #[serde(rename = "publicKeyAlgorithm")]
    pub public_key_algorithm: i64,
}

/// A session has begun; its id is in the cookie `countersign_session`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SignedIn {
    pub actor_ref: String,
    pub display_name: Option<String>,
    /// When the session ends unless it is used; each use moves it, up to the absolute time-out.
    pub expires_at: String,
}

/// The caller, and what the caller may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Me {
    pub actor_ref: String,
    pub display_name: Option<String>,
    pub kind: ActorKind,
    /// Active ones, sorted.
    pub scopes: Vec<String>,
    /// Active ones, oldest first.
    pub passkeys: Vec<Passkey>,
    /// Whether this server accepts the caller's acts only with a signature.
    pub must_sign: bool,
    /// Null for a caller who is known by a token or a signature alone.
    pub session: Option<SessionOfMe>,
}

/// A passkey of the caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Passkey {
    pub key_id: String,
    /// What the browser finds it by, base64url.
    pub credential_id: String,
    pub label: Option<String>,
    pub registered_at: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionOfMe {
    /// When the session ends unless it is used.
    pub expires_at: String,
    /// How long it lasts without use, in seconds.
    pub idle_seconds: u64,
}

/// A session of an actor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionOfActor {
    pub session_id: String,
    /// The token or passkey that began it.
    pub credential_id: String,
    /// When it began; absent where an older version began it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun_at: Option<String>,
    /// What its browser calls itself, the first 300 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_agent: Option<String>,
    /// When it was last used, to within a minute.
    pub seen_at: String,
    /// When it ends unless it is used.
    pub expires_at: String,
    /// Whether it is the session of this request.
    pub current: bool,
}

/// What an actor is called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ActorName {
    pub actor_ref: String,
    /// Null where the actor has none, or there is no such actor.
    pub display_name: Option<String>,
}

/// Whose names to show.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct NameQuery {
    /// Names of actors, separated by commas, at most 100.
    pub refs: String,
}
