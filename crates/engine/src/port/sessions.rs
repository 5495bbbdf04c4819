//! Sessions of browsers, and what signing in and signing with passkeys leaves behind. They are no part of the evidence: a row begins, is touched now and then, and is deleted. What is done
//! in a session is recorded under the credential that began it.
//!
//! A store keeps the hash of a session's id and never the id, so a copy of the database signs nobody in.

use super::StoreError;
use async_trait::async_trait;
use countersign_kernel::{Digest, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// SHA-256 of the session's id.
    pub session_hash: Digest,
    pub actor_ref: String,
    /// The token or passkey that began it, by its name in evidence.
    pub credential_id: String,
    /// When it was last used, to within a minute.
    pub seen_at: Time,
    /// It ends then, however much it is used.
    pub ends_at: Time,
    /// When it began, and what its browser calls itself; nothing where an older version began it.
    pub begun_at: Option<Time>,
    pub user_agent: Option<String>,
}

/// Reads see what other nodes have written.
#[async_trait]
pub trait Sessions: Send + Sync {
    async fn begin(&self, row: &SessionRow) -> Result<(), StoreError>;
    async fn find(&self, session_hash: &Digest) -> Result<Option<SessionRow>, StoreError>;
    /// The sessions of an actor, the one that was used last first, at most 100. Some may be over.
    async fn of_actor(&self, actor_ref: &str) -> Result<Vec<SessionRow>, StoreError>;
    /// Need not be durable: a session whose last touches are lost ends a little earlier.
    async fn touch(&self, session_hash: &Digest, seen_at: Time) -> Result<(), StoreError>;
    /// Durable when it returns: a session that was ended stays so.
    async fn end(&self, session_hash: &Digest) -> Result<(), StoreError>;
    /// Marks a challenge as answered; `false` where it was before. Kept until `ends_at`.
    async fn spend(&self, challenge_hash: &Digest, ends_at: Time) -> Result<bool, StoreError>;
    /// Raises the counter of a passkey to the one that this assertion shows; `false` where it is not higher than before, and
    /// the assertion is not the one that showed it. A passkey that never counts shows 0.
    async fn count(&self, key_id: &str, counter: u32, assertion_hash: &Digest) -> Result<bool, StoreError>;
    /// Deletes what is over at `now`, a bounded number of rows per call.
    async fn forget(&self, now: Time) -> Result<(), StoreError>;
}
