//! What moved: a set of keys with the sequence that each moved to, and its form on the way to other nodes. The set is
//! bounded: where more keys move than it holds, it says that anything may have moved.

use countersign_kernel::{Digest, InstanceId};
use std::collections::HashMap;
use std::sync::Arc;
use uuid::Uuid;

/// More keys than this become "anything may have moved".
const MOST_KEYS: usize = 20_000;
/// PostgreSQL takes less than 8,000 bytes per notification; the rest is for the sender's id.
const MOST_BYTES: usize = 7_800;

/// What a topic listens to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// A run or a process.
    Instance(InstanceId),
    /// The runs of this definition.
    Runs(Arc<str>),
    /// The runs of all definitions. Only listened to: what moves is always of one definition.
    AllRuns,
    /// The processes of this definition; an empty name where the declaration was given at the start.
    Processes(Arc<str>),
    /// As with runs.
    AllProcesses,
    /// The in-tray of this actor.
    Inbox(Arc<str>),
    /// The worklist of this actor.
    Worklist(Arc<str>),
    /// A checkpoint was signed, or the log was verified.
    Ledger,
    /// A governance event was recorded, or a delivery was given up or is tried again.
    Governance,
    /// Actors, credentials, grants and definitions.
    Registry,
    /// A session, by the hash of its id: it was ended.
    Session(Digest),
}

/// Keys that moved since the set was last taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// The sequence is `None` where the key has none, or where it is not known.
    keys: HashMap<Key, Option<u64>>,
    anything: bool,
}

impl Moves {
    /// Anything may have moved: what was said meanwhile is lost.
    pub fn anything() -> Moves {
        Moves { keys: HashMap::new(), anything: true }
    }

    /// One thing without a sequence.
    pub fn of(key: Key) -> Moves {
        let mut moves = Moves::default();
        moves.insert(key, None);
        moves
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && !self.anything
    }

    pub fn is_anything(&self) -> bool {
        self.anything
    }

    pub fn keys(&self) -> impl Iterator<Item = (&Key, Option<u64>)> {
        self.keys.iter().map(|(key, sequence)| (key, *sequence))
    }

    pub fn sequence(&self, key: &Key) -> Option<u64> {
        self.keys.get(key).copied().flatten()
    }

    pub fn insert(&mut self, key: Key, sequence: Option<u64>) {
        if self.anything {
            return;
        }
        if self.keys.len() >= MOST_KEYS && !self.keys.contains_key(&key) {
            *self = Moves::anything();
            return;
        }
        let known = self.keys.entry(key).or_default();
        *known = (*known).max(sequence);
    }

    pub fn merge(&mut self, other: Moves) {
        if other.anything {
            *self = other;
            return;
        }
        other.keys.into_iter().for_each(|(key, sequence)| self.insert(key, sequence));
    }

    /// As texts that each fit into one notification.
    pub fn texts(&self) -> Vec<String> {
        if self.anything {
            return vec![anything_text()];
        }
        let mut texts: Vec<String> = Vec::new();
        for (key, sequence) in &self.keys {
            let Some(item) = item(key, *sequence) else { continue };
            if item.len() + 2 > MOST_BYTES {
                return vec![anything_text()];
            }
            match texts.last_mut() {
                Some(text) if text.len() + item.len() + 2 <= MOST_BYTES => {
                    text.push(',');
                    text.push_str(&item);
                }
                _ => texts.push(format!("[{item}")),
            }
        }
        texts.iter_mut().for_each(|text| text.push(']'));
        texts
    }

    /// What another node said. What a newer version may say besides is left out.
    pub fn read(text: &str) -> Option<Moves> {
        let items: Vec<(String, String, Option<u64>)> = serde_json::from_str(text).ok()?;
        let mut moves = Moves::default();
        for (kind, name, sequence) in items {
            let key = match kind.as_str() {
                "*" => return Some(Moves::anything()),
                "i" => Key::Instance(InstanceId(Uuid::try_parse(&name).ok()?)),
                "d" => Key::Runs(name.into()),
                "p" => Key::Processes(name.into()),
                "a" => Key::Inbox(name.into()),
                "w" => Key::Worklist(name.into()),
                "l" => Key::Ledger,
                "g" => Key::Governance,
                "r" => Key::Registry,
                "s" => Key::Session(countersign_ledger::parse_hex_digest(&name)?),
                _ => continue,
            };
            moves.insert(key, sequence);
        }
        Some(moves)
    }
}

fn anything_text() -> String {
    r#"[["*","",null]]"#.to_owned()
}

fn item(key: &Key, sequence: Option<u64>) -> Option<String> {
    let (kind, name) = match key {
        Key::Instance(id) => ("i", id.0.simple().to_string()),
        Key::Runs(name) => ("d", name.to_string()),
        Key::Processes(name) => ("p", name.to_string()),
        Key::Inbox(actor) => ("a", actor.to_string()),
        Key::Worklist(actor) => ("w", actor.to_string()),
        Key::Ledger => ("l", String::new()),
        Key::Governance => ("g", String::new()),
        Key::Registry => ("r", String::new()),
        Key::Session(hash) => ("s", hash.to_string()),
        Key::AllRuns | Key::AllProcesses => return None,
    };
    serde_json::to_string(&(kind, name, sequence)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u128) -> Key {
        Key::Instance(InstanceId(Uuid::from_u128(n)))
    }

    #[test]
    fn a_key_is_kept_once_with_its_highest_sequence() {
        let mut moves = Moves::default();
        for sequence in [Some(2), Some(7), None, Some(3)] {
            moves.insert(id(1), sequence);
        }
        assert_eq!(moves.keys().collect::<Vec<_>>(), [(&id(1), Some(7))]);
    }

    #[test]
    fn what_is_said_to_other_nodes_is_read_again_and_fits_into_notifications() {
        let mut moves = Moves::default();
        (0..500).for_each(|n| moves.insert(id(n), Some(n as u64 + 1)));
        for name in ["a b", "quote\"d", "line\nbreak", "ngôn ngữ"] {
            moves.insert(Key::Runs(name.into()), None);
            moves.insert(Key::Processes(name.into()), None);
            moves.insert(Key::Inbox(name.into()), None);
            moves.insert(Key::Worklist(name.into()), None);
        }
        moves.insert(Key::Registry, Some(12));
        moves.insert(Key::Ledger, None);
        moves.insert(Key::Governance, None);
        moves.insert(Key::Session(Digest([7; 32])), None);
        let texts = moves.texts();
        assert!(texts.len() > 1 && texts.iter().all(|text| text.len() <= MOST_BYTES));
        let mut read = Moves::default();
        texts.iter().for_each(|text| read.merge(Moves::read(text).expect("a text of ours")));
        assert_eq!(read, moves);
        assert_eq!(Moves::read(r#"[["z","new",1],["d","x",null]]"#).expect("a newer one").keys().count(), 1);
        assert_eq!(Moves::read("nonsense"), None);
    }

    #[test]
    fn more_keys_than_the_set_holds_are_anything() {
        let mut moves = Moves::default();
        (0..MOST_KEYS as u128).for_each(|n| moves.insert(id(n), Some(1)));
        assert!(!moves.is_anything());
        moves.insert(id(0), Some(2));
        assert!(!moves.is_anything(), "it is there already");
        moves.insert(id(u128::MAX), Some(1));
        assert!(moves.is_anything() && moves.keys().next().is_none());
        moves.insert(id(1), Some(1));
        assert_eq!(moves.texts(), [anything_text()]);
        assert!(Moves::read(&moves.texts()[0]).expect("a text").is_anything());
        let mut long = Moves::default();
        long.insert(Key::Runs("x".repeat(MOST_BYTES).into()), None);
        assert_eq!(long.texts(), [anything_text()], "it fits into no notification");
    }
}
