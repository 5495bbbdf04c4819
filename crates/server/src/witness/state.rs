//! What a witness remembers: its name and, per log, the last checkpoint it cosigned. On the disk before an answer leaves.

use crate::serve::write_secret;
use anyhow::{Context, bail};
use countersign_kernel::Digest;
use countersign_ledger::{parse_hex_digest, sha256};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub size: u64,
    pub root: Digest,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    name: String,
    #[serde(default)]
    logs: BTreeMap<String, Stored>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    size: u64,
    root: String,
}

pub struct StateFile {
    path: PathBuf,
    document: Document,
}

impl StateFile {
    pub fn load(path: &Path) -> anyhow::Result<StateFile> {
        let document = match std::fs::read_to_string(path) {
            Ok(text) => serde_json::from_str(&text)
                .with_context(|| format!("{} is damaged; a witness must not forget: restore it", path.display()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Document::default(),
            Err(error) => return Err(error).with_context(|| format!("{} cannot be read", path.display())),
        };
        let file = StateFile { path: path.to_owned(), document };
        for (origin, stored) in &file.document.logs {
            if parse_hex_digest(&stored.root).is_none() {
                bail!("{}: the root of {origin} is no hash; restore the file", path.display());
            }
        }
        Ok(file)
    }

    /// The name is chosen once: cosignatures are known by it.
    pub fn settle_name(&mut self, wanted: Option<&str>, seed: &[u8; 32]) -> anyhow::Result<String> {
        match (wanted, self.document.name.as_str()) {
            (Some(wanted), known) if !known.is_empty() && wanted != known => {
                bail!("this witness is called `{known}` already; another name needs another data directory")
            }
            (_, known) if !known.is_empty() => {}
            (wanted, _) => {
                let made = || format!("countersign-witness-{}", &sha256(&[b"name", seed]).to_string()[..8]);
                self.document.name = wanted.map_or_else(made, str::to_owned);
                self.write()?;
            }
        }
        Ok(self.document.name.clone())
    }

    pub fn seen(&self, origin: &str) -> Option<Seen> {
        let stored = self.document.logs.get(origin)?;
        Some(Seen { size: stored.size, root: parse_hex_digest(&stored.root)? })
    }

    /// Kept, or the old state stands and an error says so.
    pub fn remember(&mut self, origin: &str, seen: Seen) -> anyhow::Result<()> {
        let stored = Stored { size: seen.size, root: seen.root.to_string() };
        let before = self.document.logs.insert(origin.to_owned(), stored);
        self.write().inspect_err(|_| {
            match before {
                Some(before) => self.document.logs.insert(origin.to_owned(), before),
                None => self.document.logs.remove(origin),
            };
        })
    }

    fn write(&self) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(&self.document)?;
        write_secret(&self.path, &text).with_context(|| format!("{} cannot be written", self.path.display()))
    }
}
