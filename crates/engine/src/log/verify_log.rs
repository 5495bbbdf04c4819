//! `verify_log`: reads every record again, in the order of the log, and recomputes everything that was hashed, linked,
//! ordered and signed. It believes no stored hash that it can compute. Memory: a page, and where each instance stands.

use super::attestation::check_attestation;
use super::verify_record::is_signed;
use super::{failed, tree};
use crate::Engine;
use crate::known::KnownRegistry;
use crate::port::log::{CheckpointRow, EntryRow, LogReader, Span};
use crate::port::{Head, Page, RecordQuery, StoreError};
use crate::rows::RecordRow;
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::scopes;
use countersign_kernel::{Digest, EventId, InstanceId, Time};
use countersign_ledger::note::Verifier;
use countersign_ledger::record::{Content, HeaderView};
use countersign_ledger::tiles::Frontier;
use countersign_ledger::{ZERO_HASH, is_hex_digest, merkle, salted_digest};
use serde::Deserialize;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use uuid::Uuid;

pub(super) const PAGE: usize = 1024;
/// Findings beyond this are counted, not kept.
const KEPT_FINDINGS: usize = 1000;

/// Something that is not as it was recorded. The codes are those of `spec/bundle.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub code: &'static str,
    pub event_id: Option<EventId>,
    pub detail: String,
}

/// What verifying came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogReport {
    /// Records that were read.
    pub records: u64,
    /// Of the log, as far as it was verified.
    pub size: u64,
    pub root: Digest,
    pub findings: Vec<Finding>,
    /// How many there were, whether kept or not.
    pub found: u64,
}

impl Engine {
    /// The whole log, or what concerns one instance. `progress` is told (records read, records to read).
    pub async fn verify_log(
        &self,
        actor_ref: &str,
        instance_id: Option<InstanceId>,
        progress: &mut (dyn FnMut(u64, u64) + Send),
    ) -> Result<LogReport, Refusal> {
        self.require_scope(actor_ref, scopes::AUDIT_READ).await?;
        self.refresh_registry().await.map_err(failed)?;
        match instance_id {
            None => self.verify_whole(progress).await,
            Some(instance_id) => self.verify_instance(instance_id, progress).await,
        }
    }

    /// The records, links, seals and signatures, without the stores beside them.
    pub async fn verify_records(
        &self,
        actor_ref: &str,
        progress: &mut (dyn FnMut(u64, u64) + Send),
    ) -> Result<LogReport, Refusal> {
        self.require_scope(actor_ref, scopes::AUDIT_READ).await?;
        self.refresh_registry().await.map_err(failed)?;
        Ok(self.walk(progress).await?.report())
    }

    async fn verify_whole(&self, progress: &mut (dyn FnMut(u64, u64) + Send)) -> Result<LogReport, Refusal> {
        let mut walk = self.walk(progress).await?;
        self.verify_stores(&mut walk).await?;
        Ok(walk.report())
    }

    async fn walk(&self, progress: &mut (dyn FnMut(u64, u64) + Send)) -> Result<Walk, Refusal> {
        let log = &*self.log;
        // The checkpoint first: what is appended meanwhile cannot make it look cut off.
        let latest = log.latest_checkpoint().await.map_err(failed)?;
        let size = log.size().await.map_err(failed)?;
        let mut walk = Walk::new(self.trusted_key().await?, self);
        if let Some(row) = latest.filter(|row| row.size > size) {
            let detail = format!("a checkpoint covers {} entries, but the log has only {size}", row.size);
            walk.find("inclusion-invalid", None, detail);
        }
        progress(0, size);
        let mut page = log.entries(0, PAGE).await.map_err(failed)?;
        while walk.next_index < size {
            let Some(last) = page.last() else {
                walk.find("inclusion-invalid", None, format!("the log has no entry {}", walk.next_index));
                break;
            };
            // The next page is read while this one is checked.
            let ahead = log.entries(last.log_index + 1, PAGE);
            let (next, checked) = tokio::join!(ahead, walk.page(log, &page, size));
            checked.map_err(failed)?;
            page = next.map_err(failed)?;
            progress(walk.next_index.min(size), size);
        }
        for event_id in log.skipped(KEPT_FINDINGS).await.map_err(failed)? {
            walk.find(
                "inclusion-invalid",
                Some(event_id),
                "the record stands nowhere in the log, later ones do".into(),
            );
        }
        self.verify_heads(&mut walk).await?;
        Ok(walk)
    }

    /// Where each instance's row says it stands, against the last record that was read; and the tail that is not
    /// sealed yet.
    async fn verify_heads(&self, walk: &mut Walk) -> Result<(), Refusal> {
        let mut after = None;
        loop {
            let page = self.log.heads(after, PAGE).await.map_err(failed)?;
            let Some((last, _)) = page.last() else { break };
            after = Some(*last);
            for (instance_id, row) in page {
                let walked = walk.heads.remove(&instance_id).unwrap_or_else(Place::before_the_first);
                if row.sequence > walked.sequence {
                    let place = self.verify_tail(walk, instance_id, walked, row.sequence).await?;
                    walk.head(instance_id, &place, &row);
                } else {
                    walk.head(instance_id, &walked, &row);
                }
            }
        }
        for (instance_id, place) in std::mem::take(&mut walk.heads) {
            let detail = format!("{} records of {instance_id}, which has no row", place.sequence);
            walk.find("row-missing", None, detail);
        }
        Ok(())
    }

    /// The records after what the log holds, up to `sequence`.
    async fn verify_tail(
        &self,
        walk: &mut Walk,
        instance_id: InstanceId,
        mut place: Place,
        sequence: u64,
    ) -> Result<Place, Refusal> {
        let query = RecordQuery { instance_id: Some(instance_id), ..RecordQuery::default() };
        let limit = usize::try_from(sequence - place.sequence).unwrap_or(usize::MAX).saturating_add(PAGE);
        let page = Page { after: None, limit, descending: true };
        let mut rows = self.reader.records(&query, &page).await.map_err(failed)?;
        rows.retain(|row| row.sequence > place.sequence && row.sequence <= sequence);
        rows.sort_unstable_by_key(|row| row.sequence);
        for row in &rows {
            walk.records += 1;
            if let Some(header) = walk.contents(row) {
                walk.findings.link(&mut place, row, &header);
            }
        }
        Ok(place)
    }

    /// The chain of one instance, and that each of its records stands in the log in order.
    async fn verify_instance(
        &self,
        instance_id: InstanceId,
        progress: &mut (dyn FnMut(u64, u64) + Send),
    ) -> Result<LogReport, Refusal> {
        let log = &*self.log;
        let mut walk = Walk::new(self.trusted_key().await?, self);
        let seal = log.latest_checkpoint().await.map_err(failed)?;
        let registry = self.registry_places().await?;
        let head = self.instance_head(instance_id).await?;
        let Some(head) = head else {
            return Err(Refusal::new(Code::NotKnown, "there is no such instance").at("instance_id"));
        };
        let (mut place, mut after, mut last_index) = (Place::before_the_first(), None, None);
        progress(0, head.sequence);
        loop {
            let query = RecordQuery { instance_id: Some(instance_id), ..RecordQuery::default() };
            let page = Page { after, limit: PAGE, descending: false };
            let rows = self.reader.records(&query, &page).await.map_err(failed)?;
            let Some(last) = rows.last() else { break };
            after = Some(last.event_id.0);
            let ids: Vec<EventId> = rows.iter().map(|row| row.event_id).collect();
            let indices = log.index_of(&ids).await.map_err(failed)?;
            for (row, log_index) in rows.iter().zip(indices) {
                walk.records += 1;
                let Some(header) = walk.contents(row) else { continue };
                walk.findings.link(&mut place, row, &header);
                let Some(log_index) = log_index else { continue };
                if last_index.is_some_and(|last| log_index <= last) {
                    walk.find("log-order", Some(row.event_id), "it stands in the log before its predecessor".into());
                }
                last_index = Some(log_index);
                walk.between(&registry, row, &header, log_index);
                if let Some(seal) = seal.as_ref().filter(|seal| seal.size > log_index) {
                    walk.included(log, row, log_index, seal).await.map_err(failed)?;
                }
            }
            progress(walk.records, head.sequence);
        }
        if let Some(seal) = &seal {
            walk.signature(seal);
        }
        self.verify_stores_of(&mut walk, instance_id).await?;
        // Records that came meanwhile are ahead of the row that was read before.
        if place.sequence <= head.sequence {
            walk.head(instance_id, &place, &head);
        }
        walk.sealed = seal.map_or((0, merkle::empty_root()), |row| (row.size, row.root));
        Ok(walk.report())
    }

    async fn instance_head(&self, instance_id: InstanceId) -> Result<Option<Head>, Refusal> {
        // The instance just before, in the order of ids.
        let before = instance_id.0.as_u128().checked_sub(1).map(|id| InstanceId(Uuid::from_u128(id)));
        let found = self.log.heads(before, 1).await.map_err(failed)?;
        Ok(found.into_iter().find(|(id, _)| *id == instance_id).map(|(_, head)| head))
    }

    /// Where the registry's records stand in the log, by sequence from 1.
    async fn registry_places(&self) -> Result<HashMap<u64, u64>, Refusal> {
        let query = RecordQuery { instance_id: Some(InstanceId::REGISTRY), ..RecordQuery::default() };
        let (mut places, mut after) = (HashMap::new(), None);
        loop {
            let page = Page { after, limit: PAGE, descending: false };
            let rows = self.reader.records(&query, &page).await.map_err(failed)?;
            let Some(last) = rows.last() else { return Ok(places) };
            after = Some(last.event_id.0);
            let ids: Vec<EventId> = rows.iter().map(|row| row.event_id).collect();
            let indices = self.log.index_of(&ids).await.map_err(failed)?;
            places.extend(rows.iter().zip(indices).filter_map(|(row, index)| Some((row.sequence, index?))));
        }
    }
}

/// What a destruction record says.
#[derive(Deserialize)]
struct PurgeSaid {
    event_id: String,
    record_hash: String,
}

/// Where an instance's chain stands.
struct Place {
    sequence: u64,
    record_hash: Digest,
    at: Time,
    /// For the registry: what the records of its last command state.
    registry_seq: u64,
}

impl Place {
    fn before_the_first() -> Place {
        Place { sequence: 0, record_hash: ZERO_HASH, at: Time(i64::MIN), registry_seq: 0 }
    }
}

/// What is known on the way through the log.
pub(super) struct Walk {
    key: Option<Verifier>,
    next_index: u64,
    /// The tree over what the entries say; `None` once an entry is missing.
    frontier: Option<Frontier>,
    /// Subtrees that were completed since they were last compared with the stored ones.
    completed: Vec<(u32, u64, Digest)>,
    checkpoints: VecDeque<CheckpointRow>,
    /// The size from which checkpoints are still to be read.
    checkpoints_from: u64,
    heads: HashMap<InstanceId, Place>,
    /// The sequence of the registry's last record so far.
    registry_reached: u64,
    registry: Arc<KnownRegistry>,
    application: String,
    /// Records without content whose destruction no record has told yet.
    purged: HashMap<EventId, Digest>,
    records: u64,
    sealed: (u64, Digest),
    findings: Findings,
}

/// The first findings, and how many there were.
#[derive(Default)]
struct Findings {
    kept: Vec<Finding>,
    found: u64,
}

impl Findings {
    fn find(&mut self, code: &'static str, event_id: Option<EventId>, detail: String) {
        self.found += 1;
        if self.kept.len() < KEPT_FINDINGS {
            self.kept.push(Finding { code, event_id, detail });
        }
    }

    /// The record against its predecessor; moves `place` on.
    fn link(&mut self, place: &mut Place, row: &RecordRow, header: &HeaderView<'_>) {
        let id = Some(row.event_id);
        if header.sequence != place.sequence + 1 {
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
    fn new(key: Option<Verifier>, engine: &Engine) -> Walk {
        Walk {
            key,
            registry: engine.registry.clone(),
            application: engine.config.application_actor_ref.clone(),
            purged: HashMap::new(),
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

    fn report(mut self) -> LogReport {
        for event_id in std::mem::take(&mut self.purged).into_keys() {
            let detail = "its content is gone, and no record tells of its destruction".to_owned();
            self.find("destruction-invalid", Some(event_id), detail);
        }
        let Walk { records, sealed: (size, root), findings: Findings { kept, found }, .. } = self;
        LogReport { records, size, root, findings: kept, found }
    }

    pub(super) fn find(&mut self, code: &'static str, event_id: Option<EventId>, detail: String) {
        self.findings.find(code, event_id, detail);
    }

    pub(super) fn found_all(&mut self, findings: Vec<Finding>) {
        for Finding { code, event_id, detail } in findings {
            self.find(code, event_id, detail);
        }
    }

    async fn page(&mut self, log: &dyn LogReader, page: &[EntryRow], size: u64) -> Result<(), StoreError> {
        for entry in page.iter().filter(|entry| entry.log_index < size) {
            self.entry(log, entry).await?;
        }
        // What lies beyond was appended after we began.
        self.next_index = page.last().map_or(size, |entry| entry.log_index + 1);
        self.nodes(log).await
    }

    async fn entry(&mut self, log: &dyn LogReader, entry: &EntryRow) -> Result<(), StoreError> {
        if entry.log_index != self.next_index {
            let detail = format!("the log has no entry {}", self.next_index);
            self.find("inclusion-invalid", None, detail);
            self.frontier = None;
        }
        self.next_index = entry.log_index + 1;
        match &entry.record {
            None => {
                let detail =
                    format!("entry {} stands for a record that is not there or cannot be read", entry.log_index);
                self.find("record-missing", Some(entry.event_id), detail);
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
            self.find("inclusion-invalid", Some(row.event_id), detail);
        }
        let Some(header) = self.contents(row) else { return };
        if row.instance_id != InstanceId::REGISTRY {
            let reached = self.registry_reached;
            if header.registry_seq != reached {
                let detail =
                    format!("decided under registry record {}, but stands after {reached}", header.registry_seq);
                self.find("registry-order", Some(row.event_id), detail);
            }
        }
        let place = self.heads.entry(row.instance_id).or_insert_with(Place::before_the_first);
        self.findings.link(place, row, &header);
        if row.instance_id == InstanceId::REGISTRY {
            self.registry_reached = place.sequence;
        }
    }

    /// What a record says of itself: header, columns, digests.
    fn contents<'r>(&mut self, row: &'r RecordRow) -> Option<HeaderView<'r>> {
        let id = Some(row.event_id);
        let header = match HeaderView::parse(&row.record.header) {
            Ok(header) => header,
            Err(error) => {
                self.find("header-invalid", id, error.to_string());
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
            self.find("row-missing", id, "the columns beside the header say something else".to_owned());
        }
        match &row.record.content {
            Some(content) => self.content(row, &header, content),
            None => drop(self.purged.insert(row.event_id, row.record.record_hash)),
        }
        Some(header)
    }

    fn content(&mut self, row: &RecordRow, header: &HeaderView<'_>, content: &Content) {
        let id = Some(row.event_id);
        let Content { payload, attestation, salt } = content;
        if !is_hex_digest(&header.payload_digest, &salted_digest(salt, payload)) {
            self.find("payload-digest-mismatch", id, "the payload is not the one that was recorded".to_owned());
        }
        if !is_hex_digest(&header.attestation_digest, &salted_digest(salt, attestation)) {
            let detail = "the attestation is not the one that was recorded".to_owned();
            return self.find("attestation-digest-mismatch", id, detail);
        }
        let checked = check_attestation(header.into(), attestation, payload, &self.registry.read(), &self.application);
        if let Err(fault) = checked {
            let detail = format!("the attestation does not show that it was `{}`", header.actor_ref);
            self.find(fault.as_str(), id, detail);
        }
        if header.action_ref == "record_purged"
            && let Ok(said) = serde_json::from_slice::<PurgeSaid>(payload)
        {
            let known = EventId::parse(&said.event_id).and_then(|event_id| self.purged.remove(&event_id));
            if known.is_none_or(|hash| hash.to_string() != said.record_hash) {
                let detail = format!("it names {}, whose content is not gone or which is another", said.event_id);
                self.find("destruction-invalid", id, detail);
            }
        }
    }

    fn head(&mut self, instance_id: InstanceId, place: &Place, row: &Head) {
        if row.sequence != place.sequence || row.record_hash != place.record_hash {
            let detail = format!(
                "the row of {instance_id} says {} records, the last {}; its records end at {} with {}",
                row.sequence, row.record_hash, place.sequence, place.record_hash
            );
            self.find("row-missing", None, detail);
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
                self.find("inclusion-invalid", None, detail);
                // What follows is wrong for the same reason.
                self.frontier = None;
            }
        }
        self.signature(row);
    }

    fn signature(&mut self, row: &CheckpointRow) {
        if !self.key.as_ref().is_some_and(|key| is_signed(row, key)) {
            let detail = format!("the log's key has not signed the checkpoint of {} entries as it stands", row.size);
            self.find("checkpoint-invalid", None, detail);
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
                self.find("inclusion-invalid", None, detail);
            }
        }
        Ok(())
    }

    /// After the registry record it was decided under, and before the next.
    fn between(&mut self, registry: &HashMap<u64, u64>, row: &RecordRow, header: &HeaderView<'_>, log_index: u64) {
        if row.instance_id == InstanceId::REGISTRY {
            return;
        }
        let known = header.registry_seq == 0 || registry.get(&header.registry_seq).is_some_and(|at| *at < log_index);
        let next = registry.get(&(header.registry_seq + 1)).is_none_or(|at| log_index < *at);
        if !(known && next) {
            let detail = format!("does not stand between registry records {0} and {0} + 1", header.registry_seq);
            self.find("registry-order", Some(row.event_id), detail);
        }
    }

    /// That the record leads to the checkpoint's root.
    async fn included(
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
            self.find("inclusion-invalid", Some(row.event_id), detail);
        }
        Ok(())
    }
}
