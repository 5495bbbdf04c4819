//! Keys and bearer tokens: what an actor is known by. Nothing is forgotten: a revoked key still verifies what it
//! signed before.

use crate::{Digest, Time, text};
use std::collections::HashMap;

/// A public key of an actor. What it is, only the edge knows; here it is a name and a text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ActorKey {
    pub key_id: String,
    pub public_key: String,
    /// Of a passkey. A key without it signs statements itself.
    pub passkey: Option<Passkey>,
}

/// What a passkey has besides its public key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Passkey {
    /// `ES256` or `EdDSA`.
    pub algorithm: String,
    /// How its authenticator names it: base64url.
    pub credential_id: String,
    pub rp_id: String,
    /// Of the pages that it signs for.
    pub origin: String,
    /// What its owner calls it.
    pub label: Option<String>,
}

/// Who added a key or token, when, and by which registry record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
    pub by: String,
    pub at: Time,
    pub sequence: u64,
    /// It is the one that the actor was registered with.
    pub with_actor: bool,
}

/// A key and the registry records that began and ended it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownKey {
    pub key: ActorKey,
    pub registered_sequence: u64,
    pub revoked_sequence: Option<u64>,
    pub added: Added,
}

impl KnownKey {
    pub fn is_active(&self) -> bool {
        self.revoked_sequence.is_none()
    }

    /// Whether it could be used under the registry with this sequence.
    pub fn was_active_at(&self, sequence: u64) -> bool {
        self.registered_sequence <= sequence && self.revoked_sequence.is_none_or(|revoked| revoked > sequence)
    }
}

/// A bearer token, by its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownToken {
    pub actor_ref: String,
    pub token_hash: Digest,
    /// Names the token in evidence without giving it away.
    pub credential_id: String,
    pub issued_sequence: u64,
    pub revoked_sequence: Option<u64>,
    pub added: Added,
}

impl KnownToken {
    pub fn is_active(&self) -> bool {
        self.revoked_sequence.is_none()
    }

    pub fn was_active_at(&self, sequence: u64) -> bool {
        self.issued_sequence <= sequence && self.revoked_sequence.is_none_or(|revoked| revoked > sequence)
    }
}

pub fn credential_id(token_hash: &Digest) -> String {
    text::hex(&token_hash.0[..8])
}

#[derive(Clone, Debug, Default)]
pub struct Keys {
    keys: HashMap<String, Vec<KnownKey>>,
    /// Whose each key is.
    owners: HashMap<String, String>,
    /// The key that each passkey's credential id names.
    passkeys: HashMap<String, String>,
    tokens: HashMap<Digest, KnownToken>,
    /// The tokens of each actor.
    held: HashMap<String, Vec<Digest>>,
}

impl Keys {
    pub fn of(&self, actor_ref: &str) -> &[KnownKey] {
        self.keys.get(actor_ref).map_or(&[], Vec::as_slice)
    }

    pub fn get(&self, actor_ref: &str, key_id: &str) -> Option<&KnownKey> {
        self.of(actor_ref).iter().find(|known| known.key.key_id == key_id)
    }

    /// Whoever has this key, revoked or not.
    pub fn owner(&self, key_id: &str) -> Option<&str> {
        self.owners.get(key_id).map(String::as_str)
    }

    /// A passkey by its credential id, and whose it is.
    pub fn passkey(&self, credential_id: &str) -> Option<(&str, &KnownKey)> {
        let key_id = self.passkeys.get(credential_id)?;
        let owner = self.owner(key_id)?;
        Some((owner, self.get(owner, key_id)?))
    }

    /// Whether a request or session of this actor may go on that is known by this token, or by this passkey: nobody has
    /// revoked it.
    pub fn vouches(&self, actor_ref: &str, credential_id: &str) -> bool {
        let token = self.token_by_id(actor_ref, credential_id).is_some_and(KnownToken::is_active);
        let is_passkey = |known: &KnownKey| known.key.passkey.is_some() && known.is_active();
        token || self.get(actor_ref, credential_id).is_some_and(is_passkey)
    }

    pub fn token(&self, token_hash: &Digest) -> Option<&KnownToken> {
        self.tokens.get(token_hash)
    }

    pub fn tokens_of(&self, actor_ref: &str) -> impl Iterator<Item = &KnownToken> {
        self.held.get(actor_ref).into_iter().flatten().filter_map(|hash| self.tokens.get(hash))
    }

    pub fn token_by_id(&self, actor_ref: &str, credential_id: &str) -> Option<&KnownToken> {
        self.tokens_of(actor_ref).find(|token| token.credential_id == credential_id)
    }

    pub(super) fn add(&mut self, actor_ref: &str, key: ActorKey, added: Added) {
        self.owners.insert(key.key_id.clone(), actor_ref.to_owned());
        if let Some(passkey) = &key.passkey {
            self.passkeys.insert(passkey.credential_id.clone(), key.key_id.clone());
        }
        let known = KnownKey { key, registered_sequence: added.sequence, revoked_sequence: None, added };
        self.keys.entry(actor_ref.to_owned()).or_default().push(known);
    }

    pub(super) fn revoke(&mut self, actor_ref: &str, key_id: &str, sequence: u64) {
        let keys = self.keys.get_mut(actor_ref);
        if let Some(known) = keys.and_then(|keys| keys.iter_mut().find(|known| known.key.key_id == key_id)) {
            known.revoked_sequence = Some(sequence);
        }
    }

    pub(super) fn issue(&mut self, actor_ref: &str, token_hash: Digest, added: Added) {
        self.held.entry(actor_ref.to_owned()).or_default().push(token_hash);
        let token = KnownToken {
            actor_ref: actor_ref.to_owned(),
            token_hash,
            credential_id: credential_id(&token_hash),
            issued_sequence: added.sequence,
            revoked_sequence: None,
            added,
        };
        self.tokens.insert(token_hash, token);
    }

    pub(super) fn withdraw(&mut self, token_hash: &Digest, sequence: u64) {
        if let Some(token) = self.tokens.get_mut(token_hash) {
            token.revoked_sequence = Some(sequence);
        }
    }
}
