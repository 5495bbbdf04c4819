//! The log's part of the store port: every committed record gets one place in one append-only log
//! (`spec/checkpoint.md`). The sealer owns the [`LogWriter`]; everybody else has the [`LogReader`].
//!
//! Duties that every implementation owes:
//! - **Ordered**: [`LogWriter::unsealed`] gives records in the one order that is possible: each instance's by
//!   sequence, and the registry's between those that were decided under it. A record is given only when no
//!   transaction that could still commit has its place before it.
//! - **One log**: an append either continues the log exactly where it ends, or writes nothing. Two leaders can
//!   never fork it, whatever they believe.
//! - **Fenced**: nothing is written under a lease that has ended.
//! - **Durable**: a checkpoint that was stored survives the loss of power, and with it every entry it covers. Entries
//!   that no checkpoint covers may be lost with the machine: they are found again, in the same order.

use super::{Head, StoreError};
use crate::rows::RecordRow;
use async_trait::async_trait;
use countersign_kernel::{Digest, EventId, InstanceId, Time};
use std::time::Duration;

/// What names the log for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogIdentity {
    pub origin: String,
    /// The key that signs its checkpoints, as C2SP writes it.
    pub verifier_key: String,
}

/// The right to write to the log: which take of the lease it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseToken(pub u64);

/// A committed record that has no place in the log yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsealed {
    pub event_id: EventId,
    pub record_hash: Digest,
    pub recorded_at: Time,
}

/// The hash of the complete subtree of `2^level` leaves that starts at leaf `index << level`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub level: u32,
    pub index: u64,
    pub hash: Digest,
}

/// Entries that continue the log, with the subtrees that they complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    pub lease: LeaseToken,
    pub from_index: u64,
    pub entries: Vec<Unsealed>,
    pub nodes: Vec<Node>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    Done,
    /// The lease has ended. Nothing was written.
    LeaseLost,
    /// Somebody else has written there. Nothing was written; read again.
    Overtaken,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointRow {
    pub size: u64,
    pub root: Digest,
    /// The signed note, with the cosignatures there are.
    pub note: String,
    pub signed_at: Time,
}

/// The last time that the whole log was verified on request. It is no evidence: who doubts it verifies again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedRow {
    pub at: Time,
    pub by: String,
    pub records: u64,
    pub size: u64,
    /// How many findings there were.
    pub findings: u64,
}

/// Another key took over at this size: the cross-signed note (`spec/checkpoint.md`, section 6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RotationRow {
    pub size: u64,
    pub note: String,
    pub rotated_at: Time,
}

/// One entry of the log with the record it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryRow {
    pub log_index: u64,
    pub event_id: EventId,
    pub record_hash: Digest,
    /// `None`: the record is not there, or cannot be read.
    pub record: Option<RecordRow>,
}

/// Stored hashes `from..to` of one level; 0 are the entries themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub level: u32,
    pub from: u64,
    pub to: u64,
}

/// Writes to the log, on a connection of its own. Owned by the sealer.
#[async_trait]
pub trait LogWriter: Send {
    /// Gives the log its name and key; what was given first stays. Returns what the log has.
    async fn begin(&mut self, identity: &LogIdentity) -> Result<LogIdentity, StoreError>;

    /// Takes the lease if nobody holds it, by the database's clock. It ends by [`Self::release_lease`] or at its
    /// instant, and in no other way; whoever holds it cannot take it again.
    async fn take_lease(&mut self, holder: &str, ttl: Duration) -> Result<Option<LeaseToken>, StoreError>;
    /// `false`: it had ended.
    async fn renew_lease(&mut self, lease: LeaseToken, ttl: Duration) -> Result<bool, StoreError>;
    /// `false`: it had ended.
    async fn release_lease(&mut self, lease: LeaseToken) -> Result<bool, StoreError>;

    /// The records that come next in the log, in its order, at most `limit`.
    async fn unsealed(&mut self, limit: usize) -> Result<Vec<Unsealed>, StoreError>;
    async fn append(&mut self, append: &Append) -> Result<Written, StoreError>;
    /// Stores a checkpoint, durably. A size that has one already is [`Written::Overtaken`].
    async fn put_checkpoint(&mut self, lease: LeaseToken, row: &CheckpointRow) -> Result<Written, StoreError>;
    /// Replaces the note of a checkpoint by one with more signatures. `false`: there is no such checkpoint.
    async fn extend_note(&mut self, size: u64, note: &str) -> Result<bool, StoreError>;
    /// Keeps this verification in the place of the one before.
    async fn put_verified(&mut self, row: &VerifiedRow) -> Result<(), StoreError>;
    /// Gives the log its next key and keeps the note of it, durably and in one transaction. [`Written::Overtaken`]: the
    /// log's key is not the one that `from` names, or a note of this size is there already.
    async fn rotate(
        &mut self,
        lease: LeaseToken,
        from: &LogIdentity,
        to: &str,
        row: &RotationRow,
    ) -> Result<Written, StoreError>;
}

/// Reads of the log, in parallel with whoever writes it. They see what is committed.
#[async_trait]
pub trait LogReader: Send + Sync {
    /// `None`: this store has no log yet.
    async fn identity(&self) -> Result<Option<LogIdentity>, StoreError>;
    /// How many entries there are.
    async fn size(&self) -> Result<u64, StoreError>;
    /// The committed record that is last in the log's order, whether it stands there already or not.
    async fn newest(&self) -> Result<Option<EventId>, StoreError>;
    /// How many committed records have no place yet, counted up to `limit`.
    async fn count_unsealed(&self, limit: u64) -> Result<u64, StoreError>;
    /// The stored hashes of these spans; a span that is not wholly there is [`StoreError::Corrupt`].
    async fn hashes(&self, spans: &[Span]) -> Result<Vec<Vec<Digest>>, StoreError>;
    /// Where these records stand, in the order of the argument.
    async fn index_of(&self, event_ids: &[EventId]) -> Result<Vec<Option<u64>>, StoreError>;
    /// Entries from `from` on, in order, at most `limit`, each with its record.
    async fn entries(&self, from: u64, limit: usize) -> Result<Vec<EntryRow>, StoreError>;
    /// Records that should stand in the log, for others after them do, and do not; at most `limit`.
    async fn skipped(&self, limit: usize) -> Result<Vec<EventId>, StoreError>;
    /// Where the instances' chains stand, by id, strictly after `after`.
    async fn heads(&self, after: Option<InstanceId>, limit: usize) -> Result<Vec<(InstanceId, Head)>, StoreError>;

    async fn latest_checkpoint(&self) -> Result<Option<CheckpointRow>, StoreError>;
    /// Checkpoints of at least this size, smallest first.
    async fn checkpoints(&self, size: u64, limit: usize) -> Result<Vec<CheckpointRow>, StoreError>;
    async fn verified(&self) -> Result<Option<VerifiedRow>, StoreError>;
    /// Where other keys took over, smallest first.
    async fn rotations(&self) -> Result<Vec<RotationRow>, StoreError>;
}
