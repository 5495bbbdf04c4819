//! `verify_log`: reads everything again and checks it as an auditor's verifier would. The log in its order ([`Walk`]), what the
//! records say ([`super::history`]), and the tables beside them ([`super::verify_stores`]). What cannot be read is a finding:
//! it stops only where the store itself does not answer.

use super::failed;
use super::finding::{About, Finding, Findings, KEPT_FINDINGS};
use super::walk::{Place, Walk};
use crate::Engine;
use crate::port::log::{CheckpointRow, EntryRow, LogReader};
use crate::port::{Head, Page, RecordQuery, StoreError};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::scopes;
use countersign_kernel::{Digest, EventId, InstanceId};
use countersign_ledger::merkle;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use uuid::Uuid;

pub(super) const PAGE: usize = 1024;
/// What a finding is about that belongs to no instance.
const LOG: &str = "log";
/// Records of one instance that are read beyond the log's end.
const MOST_UNSEALED: usize = 1_000_000;

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

/// Tells (records read, records to read).
type Progress<'p> = &'p mut (dyn FnMut(u64, u64) + Send);

impl Engine {
    /// The whole log, or what concerns one instance. Instances with a finding accept no command from then on.
    pub async fn verify_log(
        &self,
        actor_ref: &str,
        instance_id: Option<InstanceId>,
        progress: Progress<'_>,
    ) -> Result<LogReport, Refusal> {
        self.require_scope(actor_ref, scopes::AUDIT_READ).await?;
        match instance_id {
            None => self.verify_whole(progress).await,
            Some(instance_id) => self.verify_instance(instance_id, progress).await,
        }
    }

    /// The records, links, seals and signatures alone: not what the records say, nor the tables beside them.
    pub async fn verify_records(&self, actor_ref: &str, progress: Progress<'_>) -> Result<LogReport, Refusal> {
        self.require_scope(actor_ref, scopes::AUDIT_READ).await?;
        self.refresh_registry().await.map_err(failed)?;
        let mut walk = Walk::attesting(self.trusted_keys().await?, self);
        self.walk(&mut walk, progress).await?;
        self.verify_heads(&mut walk).await?;
        Ok(walk.report())
    }

    /// Verifies everything for the server itself, which needs no scope.
    pub async fn verify_own(&self) -> Result<LogReport, Refusal> {
        self.verify_whole(&mut |_, _| {}).await
    }

    async fn verify_whole(&self, progress: Progress<'_>) -> Result<LogReport, Refusal> {
        let mut walk = Walk::new(self.trusted_keys().await?);
        self.walk(&mut walk, progress).await?;
        let instances = self.verify_heads(&mut walk).await?;
        self.verify_stores(&mut walk, instances).await?;
        self.warn(&walk.findings).await;
        self.damaged.replace(std::mem::take(&mut walk.findings.damaged));
        Ok(walk.report())
    }

    /// What was found is a problem until a later verification finds nothing of it.
    async fn warn(&self, findings: &Findings) {
        let mut codes: BTreeMap<String, &str> = BTreeMap::new();
        for finding in &findings.kept {
            let about = finding.instance_id.map_or_else(|| LOG.to_owned(), |instance_id| instance_id.to_string());
            codes.entry(about).or_insert(finding.code);
        }
        let all_are_kept = findings.found == findings.kept.len() as u64;
        if let Err(error) = self.observe_integrity(codes, all_are_kept).await {
            tracing::warn!(%error, "what verifying found could not be told to governance");
        }
    }

    async fn walk(&self, walk: &mut Walk, progress: Progress<'_>) -> Result<(), Refusal> {
        let log = &*self.log;
        // The checkpoint first: what is appended meanwhile cannot make it look cut off.
        let latest = self.newest_seal(walk).await?;
        let size = log.size().await.map_err(failed)?;
        if let Some(row) = latest.filter(|row| row.size > size) {
            let detail = format!("a checkpoint covers {} entries, but the log has only {size}", row.size);
            walk.find("inclusion-invalid", About::LOG, detail);
            walk.signature(&row);
        }
        progress(0, size);
        let mut page = EntryPage::read(log, 0, size).await.map_err(failed)?;
        while walk.next_index < size {
            page.unreadable(walk);
            let Some(next) = page.next() else {
                walk.find("inclusion-invalid", About::LOG, format!("the log has no entry {}", walk.next_index));
                break;
            };
            // The next page is read while this one is checked.
            let ahead = EntryPage::read(log, next, size);
            let (ahead, checked) = tokio::join!(ahead, walk.page(log, &page.entries, size));
            match checked {
                Err(StoreError::Corrupt(what)) => walk.find("checkpoint-invalid", About::LOG, what),
                checked => checked.map_err(failed)?,
            }
            walk.next_index = walk.next_index.max(next);
            page = ahead.map_err(failed)?;
            progress(walk.next_index.min(size), size);
        }
        match log.skipped(KEPT_FINDINGS).await {
            Err(StoreError::Corrupt(what)) => walk.find("record-missing", About::LOG, what),
            skipped => {
                for event_id in skipped.map_err(failed)? {
                    let detail = "the record is nowhere in the log, later ones are";
                    walk.find("inclusion-invalid", About::event(event_id), detail);
                }
            }
        }
        Ok(())
    }

    /// Where each instance's row says it is, against the last record that was read; and the tail that is not sealed yet.
    /// Returns the instances there are.
    async fn verify_heads(&self, walk: &mut Walk) -> Result<BTreeSet<InstanceId>, Refusal> {
        let (mut after, mut instances, mut limit) = (None, BTreeSet::new(), PAGE);
        loop {
            let page = match self.log.heads(after, limit).await {
                // A row that cannot be read: its neighbours can, one at a time.
                Err(StoreError::Corrupt(_)) if limit > 1 => {
                    limit = 1;
                    continue;
                }
                Err(StoreError::Corrupt(what)) => {
                    // The row does not say whose it is; the records of the next instance that has some do.
                    let next = walk.heads.keys().filter(|id| after.is_none_or(|after| **id > after)).min().copied();
                    let Some(next) = next else { break };
                    walk.heads.remove(&next);
                    walk.find("row-missing", next, format!("the row that says where it is cannot be read: {what}"));
                    instances.insert(next);
                    after = Some(next);
                    continue;
                }
                page => page.map_err(failed)?,
            };
            let Some((last, _)) = page.last() else { break };
            after = Some(*last);
            for (instance_id, row) in page {
                if row.sequence > 0 && instance_id != InstanceId::REGISTRY {
                    instances.insert(instance_id);
                }
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
            walk.find("row-missing", instance_id, detail);
        }
        Ok(instances)
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
        // A row may claim any number of records.
        let limit = usize::try_from(sequence - place.sequence).unwrap_or(usize::MAX).saturating_add(PAGE);
        let page = Page { after: None, limit: limit.min(MOST_UNSEALED), descending: true };
        let mut rows = match self.reader.records(&query, &page).await {
            Err(StoreError::Corrupt(what)) => {
                walk.find("record-missing", instance_id, format!("its records cannot be read: {what}"));
                return Ok(place);
            }
            rows => rows.map_err(failed)?,
        };
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

    /// The chain of one instance, that each of its records is in the log in order, and all that the records say.
    async fn verify_instance(&self, instance_id: InstanceId, progress: Progress<'_>) -> Result<LogReport, Refusal> {
        let log = &*self.log;
        let mut walk = Walk::new(self.trusted_keys().await?);
        let seal = self.newest_seal(&mut walk).await?;
        // What is sealed while this looks may come after a registry record whose place was not known yet.
        let known = log.size().await.map_err(failed)?;
        let registry = self.registry_places(&mut walk).await?;
        let head = match self.instance_head(instance_id).await {
            Err(StoreError::Corrupt(what)) => {
                walk.find("row-missing", instance_id, format!("the row that says where it is cannot be read: {what}"));
                self.damaged.settle(instance_id, walk.findings.damaged.remove(&instance_id));
                return Ok(walk.report());
            }
            head => head.map_err(failed)?,
        };
        let Some(head) = head else {
            return Err(Refusal::new(Code::NotKnown, "there is no such instance").at("instance_id"));
        };
        let (mut place, mut after, mut last_index) = (Place::before_the_first(), None, None);
        progress(0, head.sequence);
        loop {
            let query = RecordQuery { instance_id: Some(instance_id), ..RecordQuery::default() };
            let page = Page { after, limit: PAGE, descending: false };
            let rows = match self.reader.records(&query, &page).await {
                Err(StoreError::Corrupt(what)) => {
                    walk.find("record-missing", instance_id, format!("its records cannot be read: {what}"));
                    break;
                }
                rows => rows.map_err(failed)?,
            };
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
                    walk.find("log-order", row, "it is in the log before its predecessor");
                }
                last_index = Some(log_index);
                if log_index < known {
                    walk.between(&registry, row, &header, log_index);
                }
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
        self.damaged.settle(instance_id, walk.findings.damaged.remove(&instance_id));
        Ok(walk.report())
    }

    async fn newest_seal(&self, walk: &mut Walk) -> Result<Option<CheckpointRow>, Refusal> {
        match self.log.latest_checkpoint().await {
            Err(StoreError::Corrupt(what)) => {
                walk.find("checkpoint-invalid", About::LOG, what);
                Ok(None)
            }
            latest => latest.map_err(failed),
        }
    }

    async fn instance_head(&self, instance_id: InstanceId) -> Result<Option<Head>, StoreError> {
        // The instance just before, in the order of ids.
        let before = instance_id.0.as_u128().checked_sub(1).map(|id| InstanceId(Uuid::from_u128(id)));
        let found = self.log.heads(before, 1).await?;
        Ok(found.into_iter().find(|(id, _)| *id == instance_id).map(|(_, head)| head))
    }

    /// Where the registry's records stand in the log, by sequence from 1.
    async fn registry_places(&self, walk: &mut Walk) -> Result<HashMap<u64, u64>, Refusal> {
        let query = RecordQuery { instance_id: Some(InstanceId::REGISTRY), ..RecordQuery::default() };
        let (mut places, mut after) = (HashMap::new(), None);
        loop {
            let page = Page { after, limit: PAGE, descending: false };
            let rows = match self.reader.records(&query, &page).await {
                Err(StoreError::Corrupt(what)) => {
                    walk.find("record-missing", InstanceId::REGISTRY, format!("its records cannot be read: {what}"));
                    return Ok(places);
                }
                rows => rows.map_err(failed)?,
            };
            let Some(last) = rows.last() else { return Ok(places) };
            after = Some(last.event_id.0);
            let ids: Vec<EventId> = rows.iter().map(|row| row.event_id).collect();
            let indices = self.log.index_of(&ids).await.map_err(failed)?;
            places.extend(rows.iter().zip(indices).filter_map(|(row, index)| Some((row.sequence, index?))));
        }
    }
}

/// A page of the log, and the entries in it that cannot be read.
struct EntryPage {
    entries: Vec<EntryRow>,
    unreadable: Vec<(u64, String)>,
}

impl EntryPage {
    async fn read(log: &dyn LogReader, from: u64, size: u64) -> Result<EntryPage, StoreError> {
        match log.entries(from, PAGE).await {
            Err(StoreError::Corrupt(_)) => {}
            entries => return Ok(EntryPage { entries: entries?, unreadable: vec![] }),
        }
        let mut page = EntryPage { entries: vec![], unreadable: vec![] };
        for log_index in from..size.min(from + PAGE as u64) {
            match log.entries(log_index, 1).await {
                Err(StoreError::Corrupt(what)) => page.unreadable.push((log_index, what)),
                entry => page.entries.extend(entry?.into_iter().filter(|entry| entry.log_index == log_index)),
            }
        }
        Ok(page)
    }

    fn unreadable(&self, walk: &mut Walk) {
        for (log_index, what) in &self.unreadable {
            walk.find("inclusion-invalid", About::LOG, format!("entry {log_index} of the log cannot be read: {what}"));
        }
    }

    /// Where the next page begins; `None` where the log has ended.
    fn next(&self) -> Option<u64> {
        let last = self.entries.last().map(|entry| entry.log_index);
        last.max(self.unreadable.last().map(|(log_index, _)| *log_index)).map(|last| last + 1)
    }
}
