//! The way through the log, entry by entry: recomputes everything that was hashed, linked, ordered and signed. It believes
//! no stored hash that it can compute. Memory: a page, and where each instance stands.

use super::attestation::check_attestation;
use super::finding::{About, Finding, Findings};
use super::keys::LogKeys;
use super::tree;
use super::verify_log::{LogReport, PAGE};
use super::verify_record::is_signed;
use crate::Engine;
use crate::known::KnownRegistry;
use crate::port::log::{CheckpointRow, EntryRow, LogReader, Span};
use crate::port::{Head, StoreError};
use crate::rows::RecordRow;
use countersign_kernel::{Digest, InstanceId, Time};
use countersign_ledger::record::{Content, HeaderView};
use countersign_ledger::tiles::Frontier;
use countersign_ledger::{ZERO_HASH, is_hex_digest, merkle, salted_digest};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use uuid::Uuid;

/// Where an instance's chain stands.
pub(super) struct Place {
    pub sequence: u64,
    record_hash: Digest,
    at: Time,
    /// For the registry: what the records of its last command state.
    registry_seq: u64,
}

impl Place {
    pub fn before_the_first() -> Place {
        Place { sequence: 0, record_hash: ZERO_HASH, at: Time(i64::MIN), registry_seq: 0 }
    }
}

/// What is known on the way through the log.
pub(super) struct Walk {
    keys: Option<LogKeys>,
    pub next_index: u64,
    /// The tree over what the entries say; `None` once an entry is missing.
    frontier: Option<Frontier>,
    /// Subtrees that were completed since they were last compared with the stored ones.
    completed: Vec<(u32, u64, Digest)>,
    checkpoints: VecDeque<CheckpointRow>,
    /// The size from which checkpoints are still to be read.
    checkpoints_from: u64,
    pub heads: HashMap<InstanceId, Place>,
    /// The sequence of the registry's last record so far.
    registry_reached: u64,
    /// Where attestations are checked on the way: the registry, and who the application is.
    attests: Option<(Arc<KnownRegistry>, String)>,
    pub records: u64,
    pub sealed: (u64, Digest),
    pub findings: Findings,
}

impl Findings {
    /// The record against its predecessor; moves `place` on.
    pub fn link(&mut self, place: &mut Place, row: &RecordRow, header: &HeaderView<'_>) {
        let id = About::from(row);
        if header.sequence <= place.sequence {
            let detail = format!("record {} of {} comes after {}", header.sequence, header.instance_id, place.sequence);
            self.find("log-order", id, detail);
        } else if header.sequence != place.sequence + 1 {
            let detail = format!("record {} of {} follows {}", header.sequence, header.instance_id, place.sequence);
            self.find("sequence-gap", id, detail);
        } else if !is_hex_digest(&header.prev, &place.record_hash) {
            self.find("link-broken", id, "`prev` is not the hash of the record before".to_owned());
        }
        if header.recorded_at_us < place.at.0 {
            self.find("time-order", id, "it was recorded before its predecessor".to_owned());
        }
        if row.instance_id == InstanceId::REGISTRY {
            // Records of one command share their time and what they were decided under.
            let same_command = header.recorded_at_us == place.at.0;
            let expected = if same_command { place.registry_seq } else { header.sequence.saturating_sub(1) };
            if header.registry_seq != expected {
                let detail = format!("states registry_seq {}, not {expected}", header.registry_seq);
                self.find("registry-order", id, detail);
            }
        }
        *place = Place {
            sequence: header.sequence,
            record_hash: row.record.record_hash,
            at: Time(header.recorded_at_us),
            registry_seq: header.registry_seq,
        };
    }
}

/// Whether the text names this id. Says what comparing with `parse` would: an id has one way to be written.
fn is_id(text: &str, id: Uuid) -> bool {
    *id.hyphenated().encode_lower(&mut Uuid::encode_buffer()) == *text
}

impl Walk {
    pub fn new(keys: Option<LogKeys>) -> Walk {
        Walk {
            keys,
            attests: None,
            next_index: 0,
            frontier: Some(Frontier::default()),
            completed: vec![],
            checkpoints: VecDeque::new(),
            checkpoints_from: 1,
            heads: HashMap::new(),
            registry_reached: 0,
            records: 0,
            sealed: (0, merkle::empty_root()),
            findings: Findings::default(),
        }
    }

    /// The same, with the attestation of each record.
    pub fn attesting(keys: Option<LogKeys>, engine: &Engine) -> Walk {
        let known = (engine.registry.clone(), engine.config.application_actor_ref.clone());
        Walk { attests: Some(known), ..Walk::new(keys) }
    }

    pub fn report(self) -> LogReport {
        let Walk { records, sealed: (size, root), findings, .. } = self;
        LogReport { records, size, root, findings: findings.kept, found: findings.found }
    }

    pub fn find(&mut self, code: &'static str, about: impl Into<About>, detail: impl Into<String>) {
        self.findings.find(code, about, detail.into());
    }

    pub fn found_all(&mut self, findings: Vec<Finding>) {
        self.findings.extend(findings);
    }

    pub async fn page(&mut self, log: &dyn LogReader, page: &[EntryRow], size: u64) -> Result<(), StoreError> {
        for entry in page.iter().filter(|entry| entry.log_index < size) {
            self.entry(log, entry).await?;
        }
        // What lies beyond was appended after we began.
        self.next_index = page.last().map_or(self.next_index, |entry| entry.log_index + 1);
        self.nodes(log).await
    }

    async fn entry(&mut self, log: &dyn LogReader, entry: &EntryRow) -> Result<(), StoreError> {
        if entry.log_index != self.next_index {
            let detail = format!("the log has no entry {}", self.next_index);
            self.find("inclusion-invalid", About::LOG, detail);
            self.frontier = None;
        }
        self.next_index = entry.log_index + 1;
        match &entry.record {
            None => {
                let detail =
                    format!("entry {} stands for a record that is not there or cannot be read", entry.log_index);
                self.find("record-missing", About::event(entry.event_id), detail);
            }
            Some(row) => self.record(entry, row),
        }
        if let Some(frontier) = &mut self.frontier {
            let completed = &mut self.completed;
            frontier.push(entry.record_hash, |level, index, hash| completed.push((level, index, hash)));
            let size = frontier.size();
            if self.checkpoints.is_empty() && size >= self.checkpoints_from {
                self.checkpoints = log.checkpoints(size, PAGE).await?.into();
                self.checkpoints_from = self.checkpoints.back().map_or(u64::MAX, |row| row.size + 1);
            }
            while let Some(row) = self.checkpoints.pop_front_if(|row| row.size <= size) {
                self.checkpoint(&row);
            }
        }
        Ok(())
    }

    fn record(&mut self, entry: &EntryRow, row: &RecordRow) {
        self.records += 1;
        if row.record.record_hash != entry.record_hash {
            let detail = format!("the header's hash is not that of entry {}", entry.log_index);
            self.find("inclusion-invalid", row, detail);
        }
        let Some(header) = self.contents(row) else { return };
        if row.instance_id != InstanceId::REGISTRY {
            let reached = self.registry_reached;
            if header.registry_seq != reached {
                let detail =
                    format!("decided under registry record {}, but stands after {reached}", header.registry_seq);
                self.find("registry-order", row, detail);
            }
        }
        let place = self.heads.entry(row.instance_id).or_insert_with(Place::before_the_first);
        self.findings.link(place, row, &header);
        if row.instance_id == InstanceId::REGISTRY {
            self.registry_reached = place.sequence;
        }
    }

    /// What a record says of itself: header, columns, digests.
    pub fn contents<'r>(&mut self, row: &'r RecordRow) -> Option<HeaderView<'r>> {
        let header = match HeaderView::parse(&row.record.header) {
            Ok(header) => header,
            Err(error) => {
                self.find("header-invalid", row, error.to_string());
                return None;
            }
        };
        let same = is_id(&header.event_id, row.event_id.0)
            && is_id(&header.instance_id, row.instance_id.0)
            && header.sequence == row.sequence
            && header.action_ref == row.action_ref
            && header.actor_ref == row.actor_ref
            && header.recorded_at_us == row.recorded_at.0;
        if !same {
            self.find("row-missing", row, "the columns beside the header say something else");
        }
        if let Some(content) = &row.record.content {
            self.content(row, &header, content);
        }
        Some(header)
    }

    fn content(&mut self, row: &RecordRow, header: &HeaderView<'_>, content: &Content) {
        let Content { payload, attestation, salt } = content;
        if !is_hex_digest(&header.payload_digest, &salted_digest(salt, payload)) {
            self.find("payload-digest-mismatch", row, "the payload is not the one that was recorded");
        }
        if !is_hex_digest(&header.attestation_digest, &salted_digest(salt, attestation)) {
            let detail = "the attestation is not the one that was recorded";
            return self.find("attestation-digest-mismatch", row, detail);
        }
        let Some((registry, application)) = &self.attests else { return };
        let checked = check_attestation(header.into(), attestation, payload, &registry.read(), application);
        if let Err(fault) = checked {
            let detail = format!("the attestation does not show that it was `{}`", header.actor_ref);
            self.find(fault.as_str(), row, detail);
        }
    }

    pub fn head(&mut self, instance_id: InstanceId, place: &Place, row: &Head) {
        if row.sequence != place.sequence || row.record_hash != place.record_hash {
            let detail = format!(
                "the row of {instance_id} says {} records, the last {}; its records end at {} with {}",
                row.sequence, row.record_hash, place.sequence, place.record_hash
            );
            self.find("row-missing", instance_id, detail);
        }
    }

    /// The tree as it is now against what was signed at this size.
    fn checkpoint(&mut self, row: &CheckpointRow) {
        let Some(frontier) = &self.frontier else { return };
        let (size, root) = (frontier.size(), frontier.root());
        if row.size == size {
            self.sealed = (size, root);
            if row.root != root {
                let detail = format!("the first {size} entries have root {root}; signed was {}", row.root);
                self.find("inclusion-invalid", About::LOG, detail);
                // What follows is wrong for the same reason.
                self.frontier = None;
            }
        }
        self.signature(row);
    }

    pub fn signature(&mut self, row: &CheckpointRow) {
        let signed = |keys: &LogKeys| is_signed(row, keys.at(row.size)) && !keys.contradicts(row.size, &row.root);
        if !self.keys.as_ref().is_some_and(signed) {
            let detail = format!("the log's key has not signed the checkpoint of {} entries as it stands", row.size);
            self.find("checkpoint-invalid", About::LOG, detail);
        }
    }

    /// The stored subtrees against the computed ones.
    async fn nodes(&mut self, log: &dyn LogReader) -> Result<(), StoreError> {
        for (level, index, hash) in std::mem::take(&mut self.completed) {
            let stored = match log.hashes(&[Span { level, from: index, to: index + 1 }]).await {
                Err(StoreError::Corrupt(_)) => None,
                stored => stored?.into_iter().flatten().next(),
            };
            if stored != Some(hash) {
                let detail = format!("the stored hash {index} of level {level} is not that of its entries");
                self.find("inclusion-invalid", About::LOG, detail);
            }
        }
        Ok(())
    }

    /// After the registry record it was decided under, and before the next.
    pub fn between(&mut self, registry: &HashMap<u64, u64>, row: &RecordRow, header: &HeaderView<'_>, log_index: u64) {
        if row.instance_id == InstanceId::REGISTRY {
            return;
        }
        let known = header.registry_seq == 0 || registry.get(&header.registry_seq).is_some_and(|at| *at < log_index);
        let next = registry.get(&(header.registry_seq + 1)).is_none_or(|at| log_index < *at);
        if !(known && next) {
            let detail = format!("does not stand between registry records {0} and {0} + 1", header.registry_seq);
            self.find("registry-order", row, detail);
        }
    }

    /// That the record leads to the checkpoint's root.
    pub async fn included(
        &mut self,
        log: &dyn LogReader,
        row: &RecordRow,
        log_index: u64,
        seal: &CheckpointRow,
    ) -> Result<(), StoreError> {
        let proof = tree::ask(log, seal.size, |tiles| merkle::inclusion_proof(tiles, log_index, seal.size)).await;
        let proof = match proof {
            Err(StoreError::Corrupt(_)) => None,
            proof => Some(proof?),
        };
        let holds = proof.is_some_and(|proof| {
            merkle::verify_inclusion(&row.record.record_hash, log_index, seal.size, &proof, &seal.root)
        });
        if !holds {
            let detail = format!("entry {log_index} does not lead to the root of the checkpoint of {}", seal.size);
            self.find("inclusion-invalid", row, detail);
        }
        Ok(())
    }
}
