//! The log as the engine shows it: checkpoints, proofs, sealing now, and verifying what is stored.

mod attestation;
mod damage;
mod finding;
mod history;
mod keys;
pub mod tree;
mod verify_book;
mod verify_columns;
mod verify_governance;
mod verify_log;
mod verify_record;
mod verify_rollup;
mod verify_rows;
mod verify_run;
mod verify_stores;
mod walk;

pub use attestation::{AttestationFault, Attested, check_attestation};
pub(crate) use damage::Damaged;
pub use finding::Finding;
pub use keys::LogKeys;
pub use verify_log::LogReport;
pub use verify_record::{Strictness, Verification};

use crate::clock::EngineClock;
use crate::monitor::Monitor;
use crate::port::LogParts;
use crate::port::log::{CheckpointRow, LogIdentity, LogReader, LogWriter, VerifiedRow};
use crate::readiness::Readiness;
use crate::sealer::{LogConfig, Sealer, SealerHandle};
use crate::stream::moves::{Key, Moves};
use crate::{Config, Engine, OpenError, store_failure};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::scopes;
use countersign_kernel::{Digest, EventId, Time};
use countersign_ledger::merkle;
use countersign_ledger::note::NoteSigner;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// How long `seal_now` waits for the node that seals.
const SEAL_NOW: Duration = Duration::from_secs(10);
/// Records behind the newest checkpoint are counted up to here.
const MOST_COUNTED: u64 = 10_000;
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// A seal over everything that was recorded before it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// `<origin>@<size>`
    pub evidence_id: String,
    pub size: u64,
    pub root: Digest,
}

/// That a record stands in the log, up to a signed checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    pub event_id: EventId,
    pub log_index: u64,
    pub record_hash: Digest,
    /// Of the checkpoint's tree.
    pub size: u64,
    pub root: Digest,
    /// From the leaf upwards.
    pub proof: Vec<Digest>,
    /// The signed note.
    pub checkpoint: String,
}

/// That the log of `old` entries is the beginning of the log of `new` entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consistency {
    pub old: u64,
    pub new: u64,
    pub old_root: Digest,
    pub new_root: Digest,
    pub proof: Vec<Digest>,
}

/// How far the log is sealed and verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogStatus {
    /// Entries under the newest checkpoint.
    pub sealed: u64,
    pub sealed_at: Option<Time>,
    /// Records behind it, counted up to a bound.
    pub unsealed: u64,
    /// When the oldest of them was recorded.
    pub unsealed_since: Option<Time>,
    pub now: Time,
    pub verified: Option<VerifiedRow>,
}

/// The log as an engine holds it.
pub(crate) struct OpenLog {
    pub reader: Arc<dyn LogReader>,
    /// For cosignatures; the sealer has one of its own.
    pub writer: Box<dyn LogWriter>,
    pub sealer: Option<SealerHandle>,
    /// Why it does not seal, where it does not.
    pub follows: Option<&'static str>,
}

const NO_KEY: &str = "this node has no log.key: it records and does not seal";
const FOREIGN_KEY: &str = "the log.key of this node is not the one that this log is signed with: it does not seal";

/// What the sealer goes by, and what it tells.
pub(crate) struct Watched {
    pub clock: Arc<EngineClock>,
    /// Something was committed.
    pub wake: Arc<Notify>,
    pub readiness: Arc<Readiness>,
    pub monitor: Arc<Monitor>,
}

/// Names the log where it has no name, and starts the sealer where this node has the log's key. The sealer runs on a
/// thread of its own, so it gets its own `parts`: its connections must not be driven by the caller's thread.
pub(crate) async fn open(
    (mut writer, reader): LogParts,
    parts: LogParts,
    exclusive: bool,
    config: &Config,
    watched: Watched,
) -> Result<OpenLog, OpenError> {
    let Some(log) = &config.log else { return Ok(OpenLog { reader, writer, sealer: None, follows: Some(NO_KEY) }) };
    let origin = match (reader.identity().await?, &log.origin) {
        (Some(identity), Some(wanted)) if identity.origin != *wanted => {
            tracing::warn!(
                origin = identity.origin,
                wanted,
                "the log bears its name for ever; the configured one is not used"
            );
            identity.origin
        }
        (Some(identity), _) => identity.origin,
        (None, Some(wanted)) => wanted.clone(),
        (None, None) => format!("countersign/{}", random_hex()?),
    };
    let wanted = LogIdentity { verifier_key: signer(&origin, log)?.verifier().to_string(), origin };
    let identity = writer.begin(&wanted).await?;
    let signer = signer(&identity.origin, log)?;
    if signer.verifier().to_string() != identity.verifier_key {
        tracing::warn!(
            log = identity.verifier_key,
            here = %signer.verifier(),
            "this node's log key is not the one that this log is signed with: it follows without sealing. \
             Copy `log.key` from the data directory of a node that seals, and start again"
        );
        return Ok(OpenLog { reader, writer, sealer: None, follows: Some(FOREIGN_KEY) });
    }
    let sealer = Sealer {
        writer: parts.0,
        reader: parts.1,
        signer,
        origin: identity.origin,
        config: log.clone(),
        clock: watched.clock,
        monitor: watched.monitor,
        exclusive,
        wake: watched.wake,
        readiness: watched.readiness,
        holder: format!("node-{}", random_hex()?),
    };
    let sealer = Some(sealer.start().map_err(OpenError::Thread)?);
    Ok(OpenLog { reader, writer, sealer, follows: None })
}

fn signer(origin: &str, log: &LogConfig) -> Result<NoteSigner, OpenError> {
    NoteSigner::log(origin, &log.seed).map_err(|error| OpenError::Log(format!("`{origin}` cannot name a log: {error}")))
}

fn random_hex() -> Result<String, OpenError> {
    let mut bytes = [0u8; 8];
    getrandom::fill(&mut bytes).map_err(|error| OpenError::Log(format!("the system gives no randomness: {error}")))?;
    Ok(format!("{:016x}", u64::from_be_bytes(bytes)))
}

fn failed(error: crate::port::StoreError) -> Refusal {
    store_failure(&error)
}

impl Engine {
    /// The log's name and public key; `None` while the store has no log.
    pub async fn log_identity(&self) -> Result<Option<LogIdentity>, Refusal> {
        self.log.identity().await.map_err(failed)
    }

    /// The log's verifier key as C2SP writes it.
    pub async fn log_verifier_key(&self) -> Result<Option<String>, Refusal> {
        Ok(self.log_identity().await?.map(|identity| identity.verifier_key))
    }

    /// Whether this node can sign checkpoints.
    pub fn seals(&self) -> bool {
        self.sealer.is_some()
    }

    /// Why no checkpoint of this node will come, where none will: it has no key of the log, or another one than the log
    /// is signed with, or the stored log contradicts itself. For `/readyz`.
    pub fn cannot_seal(&self) -> Option<&'static str> {
        self.follows.or_else(|| self.sealer.as_ref().and_then(SealerHandle::halted))
    }

    /// Adds a witness' signature line to a checkpoint. The line has been verified.
    pub async fn add_cosignature(&self, size: u64, line: &str) -> Result<(), Refusal> {
        let mut writer = self.log_writer.lock().await;
        let found = self.log.checkpoints(size, 1).await.map_err(failed)?.into_iter().next();
        let Some(row) = found.filter(|row| row.size == size && !row.note.contains(line)) else { return Ok(()) };
        writer.extend_note(size, &format!("{}{line}", row.note)).await.map_err(failed)?;
        Ok(())
    }

    /// The newest checkpoint.
    pub async fn checkpoint(&self) -> Result<Option<CheckpointRow>, Refusal> {
        self.log.latest_checkpoint().await.map_err(failed)
    }

    /// How far the log is sealed, what waits, and when all of it was last verified. Needs `audit:read`.
    pub async fn log_status(&self, actor_ref: &str) -> Result<LogStatus, Refusal> {
        self.require_scope(actor_ref, scopes::AUDIT_READ).await?;
        let checkpoint = self.checkpoint().await?;
        let sealed = checkpoint.as_ref().map_or(0, |row| row.size);
        let size = self.log.size().await.map_err(failed)?;
        let unplaced = self.log.count_unsealed(MOST_COUNTED).await.map_err(failed)?;
        let first = match self.log.entries(sealed, 1).await.map_err(failed)?.pop().and_then(|entry| entry.record) {
            Some(record) => Some(record.recorded_at),
            None if unplaced > 0 => {
                let waiting = self.log_writer.lock().await.unsealed(1).await.map_err(failed)?;
                waiting.first().map(|record| record.recorded_at)
            }
            None => None,
        };
        Ok(LogStatus {
            sealed,
            sealed_at: checkpoint.map(|row| row.signed_at),
            unsealed: size.saturating_sub(sealed) + unplaced,
            unsealed_since: first,
            now: self.now(),
            verified: self.log.verified().await.map_err(failed)?,
        })
    }

    /// Keeps when the whole log was verified, by whom, and what that came to.
    pub async fn keep_verification(&self, actor_ref: &str, report: &LogReport) -> Result<(), Refusal> {
        let LogReport { records, size, found, .. } = report;
        let (by, findings) = (actor_ref.to_owned(), *found);
        let row = VerifiedRow { at: self.now(), by, records: *records, size: *size, findings };
        self.log_writer.lock().await.put_verified(&row).await.map_err(failed)?;
        self.hub.committed(Moves::of(Key::Ledger));
        Ok(())
    }

    /// How many entries of the log are under a checkpoint.
    pub async fn sealed_through(&self) -> Result<u64, Refusal> {
        Ok(self.checkpoint().await?.map_or(0, |row| row.size))
    }

    /// Where these records stand in the log.
    pub async fn log_indices(&self, event_ids: &[EventId]) -> Result<Vec<Option<u64>>, Refusal> {
        self.log.index_of(event_ids).await.map_err(failed)
    }

    /// Seals everything that is recorded by now; on any node. Returns when the checkpoint is stored.
    pub async fn seal_now(&self) -> Result<Evidence, Refusal> {
        let nothing = || Refusal::new(Code::NothingToSeal, "nothing was recorded since the last seal");
        let Some(newest) = self.log.newest().await.map_err(failed)? else { return Err(nothing()) };
        if self.seal_over(newest).await?.is_some() {
            return Err(nothing());
        }
        let asked = Instant::now();
        let mut signed = self.sealer.as_ref().map(|sealer| sealer.signed.clone());
        while asked.elapsed() < SEAL_NOW {
            if let Some(sealer) = &self.sealer {
                sealer.urge();
            }
            let news = async {
                match &mut signed {
                    Some(signed) => signed.changed().await.is_ok(),
                    None => std::future::pending().await,
                }
            };
            if tokio::time::timeout(ASK_AGAIN, news).await == Ok(false) {
                // The sealer has stopped; perhaps another node goes on.
                signed = None;
            }
            if let Some(row) = self.seal_over(newest).await? {
                let identity = self.log.identity().await.map_err(failed)?;
                let origin = identity.map_or_else(String::new, |identity| identity.origin);
                let evidence_id = format!("{origin}@{}", row.size);
                return Ok(Evidence { evidence_id, size: row.size, root: row.root });
            }
        }
        let detail = if self.seals() {
            "no checkpoint was signed in time; the records are kept and will be sealed. The server's log says why it waits"
        } else {
            "this node has no log key, and no other node signed a checkpoint in time"
        };
        Err(Refusal::new(Code::RecordingFailure, detail))
    }

    /// The checkpoint that covers this record, once there is one.
    pub async fn sealed(&self, event_id: EventId) -> Result<CheckpointRow, Refusal> {
        if let Some(row) = self.seal_over(event_id).await? {
            return Ok(row);
        }
        match self.seal_now().await {
            Err(refusal) if refusal.code != Code::NothingToSeal => return Err(refusal),
            _ => {}
        }
        let detail = "the record was not sealed in time; try again";
        self.seal_over(event_id).await?.ok_or_else(|| Refusal::new(Code::Overloaded, detail))
    }

    /// The first checkpoint that covers this record.
    async fn seal_over(&self, event_id: EventId) -> Result<Option<CheckpointRow>, Refusal> {
        let Some(Some(log_index)) = self.log_indices(&[event_id]).await?.into_iter().next() else { return Ok(None) };
        let found = self.log.checkpoints(log_index + 1, 1).await.map_err(failed)?;
        Ok(found.into_iter().next())
    }

    /// That a record stands in the log of the newest checkpoint. `None`: it does not, or not yet.
    pub async fn prove(&self, event_id: EventId) -> Result<Option<Proof>, Refusal> {
        let Some(Some(log_index)) = self.log_indices(&[event_id]).await?.into_iter().next() else { return Ok(None) };
        let Some(row) = self.checkpoint().await?.filter(|row| row.size > log_index) else { return Ok(None) };
        let log = &*self.log;
        let question = |tiles: &mut countersign_ledger::tiles::Tiles| {
            let leaf = merkle::Subtrees::hash(tiles, 0, log_index)?;
            Ok((leaf, merkle::inclusion_proof(tiles, log_index, row.size)?))
        };
        let (record_hash, proof) = tree::ask(log, row.size, question).await.map_err(failed)?;
        let CheckpointRow { size, root, note: checkpoint, .. } = row;
        Ok(Some(Proof { event_id, log_index, record_hash, size, root, proof, checkpoint }))
    }

    /// That the log has only grown from `old` to `new` entries.
    pub async fn consistency(&self, old: u64, new: u64) -> Result<Consistency, Refusal> {
        let size = self.log.size().await.map_err(failed)?;
        if old > new || new > size {
            let detail = format!("`old` is at most `new`, and `new` at most {size}, the size of the log");
            return Err(Refusal::new(Code::InvalidQuery, detail));
        }
        let question = |tiles: &mut countersign_ledger::tiles::Tiles| {
            let proof = merkle::consistency_proof(tiles, old, new)?;
            Ok((merkle::root(tiles, old)?, merkle::root(tiles, new)?, proof))
        };
        let (old_root, new_root, proof) = tree::ask(&*self.log, size, question).await.map_err(failed)?;
        Ok(Consistency { old, new, old_root, new_root, proof })
    }
}
