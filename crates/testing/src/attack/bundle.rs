//! A bundle, read without any check, because it may be broken.

use anyhow::Context;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

pub struct Bundle {
    pub records: Vec<Line>,
    /// By instance.
    pub state: BTreeMap<String, Value>,
    /// By digest.
    pub documents: BTreeMap<String, String>,
    /// By grant.
    pub grants: BTreeMap<String, Value>,
    pub checkpoint: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub log_index: u64,
    pub header: String,
    pub payload: Option<String>,
    pub attestation: Option<String>,
    pub salt: Option<String>,
}

impl Line {
    /// A member of the header. Broken headers are read as far as they go.
    pub fn member(&self, name: &str) -> Value {
        let whole: Value = serde_json::from_str(&self.header).unwrap_or_default();
        whole.get(name).cloned().unwrap_or_default()
    }

    pub fn text(&self, name: &str) -> String {
        self.member(name).as_str().unwrap_or_default().to_owned()
    }

    pub fn number(&self, name: &str) -> i64 {
        self.member(name).as_i64().unwrap_or_default()
    }
}

impl Bundle {
    pub fn read(path: &Path) -> anyhow::Result<Bundle> {
        let mut archive = zip::ZipArchive::new(File::open(path)?)?;
        let mut text = |name: &str| -> anyhow::Result<String> {
            let mut bytes = Vec::new();
            archive.by_name(name).with_context(|| name.to_owned())?.read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let lines = |text: String| -> anyhow::Result<Vec<Value>> {
            text.lines().map(|line| serde_json::from_str(line).context("a line that is no JSON")).collect()
        };
        let keyed = |rows: Vec<Value>, key: &str| -> BTreeMap<String, Value> {
            rows.into_iter().map(|row| (row[key].as_str().unwrap_or_default().to_owned(), row)).collect()
        };
        let optional = |value: &Value| value.as_str().map(str::to_owned);
        let record = |row: Value| Line {
            log_index: row["log_index"].as_u64().unwrap_or_default(),
            header: optional(&row["header"]).unwrap_or_default(),
            payload: optional(&row["payload"]),
            attestation: optional(&row["attestation"]),
            salt: optional(&row["salt"]),
        };
        let documents = lines(text("documents.jsonl")?)?;
        Ok(Bundle {
            records: lines(text("records.jsonl")?)?.into_iter().map(record).collect(),
            state: keyed(lines(text("state.jsonl")?)?, "instance_id"),
            documents: documents
                .iter()
                .filter_map(|row| Some((optional(&row["digest"])?, optional(&row["body"])?)))
                .collect(),
            grants: keyed(lines(text("grants.jsonl")?)?, "grant_id"),
            checkpoint: text("checkpoint")?,
        })
    }

    /// Every entry of the log is there.
    pub fn is_whole(&self) -> bool {
        self.note().is_some_and(|(size, _)| size == self.records.len() as u64)
    }

    /// Size and root of the checkpoint.
    pub fn note(&self) -> Option<(u64, &str)> {
        let mut lines = self.checkpoint.lines().skip(1);
        Some((lines.next()?.parse().ok()?, lines.next()?))
    }
}
