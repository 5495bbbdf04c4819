//! Which key signs the log, and which ones did before: each handed over with a cross-signed note
//! (`spec/checkpoint.md`, section 6).

use super::failed;
use crate::Engine;
use crate::port::StoreError;
use crate::port::log::{LogReader, RotationRow};
use countersign_kernel::Digest;
use countersign_kernel::refusal::Refusal;
use countersign_ledger::note::{Rotation, Verifier};

/// The keys of a log, by the sizes they sign.
#[derive(Clone, Debug)]
pub struct LogKeys {
    current: Verifier,
    /// Smallest first: the key that signed up to this size, and the root there.
    earlier: Vec<Earlier>,
}

#[derive(Clone, Debug)]
struct Earlier {
    size: u64,
    root: Digest,
    key: Verifier,
    /// It signed the note itself; otherwise it was lost.
    handed_over: bool,
}

impl LogKeys {
    /// Reads the notes of a log whose key is now `current`. The error says what contradicts what.
    pub fn read(current: Verifier, rotations: &[RotationRow]) -> Result<LogKeys, String> {
        let mut earlier: Vec<Earlier> = Vec::with_capacity(rotations.len());
        let mut next: Option<Verifier> = None;
        for row in rotations {
            let bad = |what: &str| format!("the note of the rotation at {} entries: {what}", row.size);
            let (rotation, handed_over) = Rotation::open(&row.note).map_err(|error| bad(&error.to_string()))?;
            let Rotation { checkpoint, from, to } = rotation;
            if checkpoint.size != row.size || checkpoint.origin != current.name {
                return Err(bad("it is of another size or log"));
            }
            if next.replace(to).is_some_and(|expected| expected != from) {
                return Err(bad("it does not go on from the key before it"));
            }
            earlier.push(Earlier { size: row.size, root: checkpoint.root, key: from, handed_over });
        }
        if next.is_some_and(|last| last != current) {
            return Err("the last rotation does not lead to the key of the log".to_owned());
        }
        Ok(LogKeys { current, earlier })
    }

    /// The key that signs a checkpoint of this size.
    pub fn at(&self, size: u64) -> &Verifier {
        self.earlier.iter().find(|earlier| size <= earlier.size).map_or(&self.current, |earlier| &earlier.key)
    }

    /// Whether a note of a rotation states another root for this size.
    pub fn contradicts(&self, size: u64, root: &Digest) -> bool {
        self.earlier.iter().any(|earlier| earlier.size == size && earlier.root != *root)
    }

    /// The key before the one of today, and whether it signed the note of its end.
    pub fn before_the_last(&self) -> Option<(&Verifier, bool)> {
        self.earlier.last().map(|earlier| (&earlier.key, earlier.handed_over))
    }

    /// Keys that did not sign their successor's note.
    pub fn lost(&self) -> impl Iterator<Item = u64> {
        self.earlier.iter().filter(|earlier| !earlier.handed_over).map(|earlier| earlier.size)
    }
}

/// The keys of the log as the store has them; `None` where there is no log.
pub async fn read(log: &dyn LogReader, current: Option<Verifier>) -> Result<Option<LogKeys>, StoreError> {
    let Some(identity) = log.identity().await? else { return Ok(None) };
    let corrupt = |what: String| StoreError::Corrupt(format!("the log's keys: {what}"));
    let current = match current {
        Some(current) => current,
        None => Verifier::parse(&identity.verifier_key).map_err(|error| corrupt(error.to_string()))?,
    };
    LogKeys::read(current, &log.rotations().await?).map(Some).map_err(corrupt)
}

impl Engine {
    pub(crate) async fn log_keys(&self) -> Result<Option<LogKeys>, Refusal> {
        read(&*self.log, None).await.map_err(failed)
    }

    /// The notes with which other keys took over, smallest first.
    pub async fn log_rotations(&self) -> Result<Vec<RotationRow>, Refusal> {
        self.log.rotations().await.map_err(failed)
    }
}
