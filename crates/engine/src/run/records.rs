//! The records of one run, for views that are made from them alone; and which runbooks have new ones.

use crate::port::{Page, RecordQuery, RunQuery, RunView};
use crate::run::runbook;
use crate::{Engine, store_failure};
use countersign_kernel::refusal::Refusal;
use countersign_kernel::{Digest, EventId, InstanceId, Time};
use countersign_ledger::parse_hex_digest;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// Records that are read at once.
const BATCH: usize = 500;

/// A record of a run, as far as views need it.
#[derive(Clone, Debug)]
pub struct RunRecord {
    pub sequence: u64,
    pub event_id: EventId,
    pub action_ref: String,
    pub actor_ref: String,
    pub at: Time,
    pub record_hash: Digest,
    /// The payload. Of a purged record: its transitions, which outlive it.
    pub said: Value,
    pub is_purged: bool,
}

impl Engine {
    /// The records of a run that the caller was shown, up to this sequence, in order.
    pub async fn records_through(&self, run: &RunView, through: u64) -> Result<Vec<RunRecord>, Refusal> {
        let query = RecordQuery { instance_id: Some(run.row.instance_id), ..RecordQuery::default() };
        let mut page = Page { after: None, limit: BATCH, descending: false };
        let mut records: Vec<RunRecord> = Vec::new();
        loop {
            let rows = self.reader.records(&query, &page).await.map_err(|error| store_failure(&error))?;
            let (count, last) = (rows.len(), rows.last().map(|row| (row.event_id, row.sequence)));
            records.extend(rows.into_iter().filter(|row| row.sequence <= through).map(|row| {
                let said = row.record.payload().and_then(|payload| serde_json::from_slice(payload).ok());
                RunRecord {
                    sequence: row.sequence,
                    event_id: row.event_id,
                    is_purged: row.record.is_purged(),
                    record_hash: row.record.record_hash,
                    action_ref: row.action_ref,
                    actor_ref: row.actor_ref,
                    at: row.recorded_at,
                    said: said.unwrap_or(Value::Null),
                }
            }));
            match last {
                Some((event_id, sequence)) if count == BATCH && sequence < through => page.after = Some(event_id.0),
                _ => break,
            }
        }
        if records.iter().any(|record| record.is_purged) {
            let kept = self.reader.visits(run.row.instance_id).await.map_err(|error| store_failure(&error))?;
            let kept: HashMap<EventId, String> = kept.into_iter().collect();
            for record in records.iter_mut().filter(|record| record.is_purged) {
                let visits = kept.get(&record.event_id).and_then(|text| serde_json::from_str(text).ok());
                record.said = visits.unwrap_or(Value::Null);
            }
        }
        Ok(records)
    }

    /// The files that this record names; none where it is purged, or where there is no such record.
    pub async fn artifacts_of_record(&self, event_id: &str) -> Result<Vec<Digest>, Refusal> {
        let Some(event_id) = EventId::parse(event_id) else { return Ok(vec![]) };
        let query = RecordQuery { event_id: Some(event_id), ..RecordQuery::default() };
        let page = Page { after: None, limit: 1, descending: false };
        let rows = self.reader.records(&query, &page).await.map_err(|error| store_failure(&error))?;
        let payload = rows.first().and_then(|row| row.record.payload());
        let said: Value = payload.and_then(|payload| serde_json::from_slice(payload).ok()).unwrap_or_default();
        Ok(artifacts(&said))
    }

    /// Whether any record that is not purged names this file. Reads every run of a definition with artifacts.
    pub async fn names_artifact(&self, sha256: &Digest) -> Result<bool, Refusal> {
        let workflows: Vec<(String, Digest)> = {
            let registry = self.registry();
            let versions = registry.definition_names().into_iter().flat_map(|name| registry.definition_versions(name));
            versions.filter_map(|one| Some((one.name.clone(), one.workflow.as_ref()?.document_digest))).collect()
        };
        let mut definitions: Vec<String> = vec![];
        for (name, digest) in workflows {
            if definitions.last() != Some(&name)
                && self.published_plan(digest).await?.steps.iter().any(|step| !step.artifacts.is_empty())
            {
                definitions.push(name);
            }
        }
        let query = RunQuery { definitions: Some(definitions), ..RunQuery::default() };
        let mut page = Page { after: None, limit: BATCH, descending: false };
        loop {
            let runs = self.own_runs(&query, &page).await?;
            for run in &runs {
                let named = match run.head.runbook.as_deref().and_then(runbook::parse) {
                    Some(book) => book.artifacts.iter().any(|(_, left)| left.sha256 == *sha256),
                    // A purge took what the run kept of it. Its records that are left still count.
                    None => {
                        let records = self.records_through(run, run.chain.sequence).await?;
                        records.iter().any(|record| artifacts(&record.said).contains(sha256))
                    }
                };
                if named {
                    return Ok(true);
                }
            }
            match runs.last() {
                Some(last) if runs.len() == BATCH => page.after = Some(last.row.instance_id.0),
                _ => return Ok(false),
            }
        }
    }

    /// Which runbooks this node has committed records of.
    pub fn runbook_changes(&self) -> Arc<RunbookChanges> {
        self.runbook_changes.clone()
    }
}

fn artifacts(said: &Value) -> Vec<Digest> {
    let left = said.get("artifacts").and_then(Value::as_array).into_iter().flatten();
    left.filter_map(|left| parse_hex_digest(left.get("sha256")?.as_str()?)).collect()
}

/// The runbooks that have new records since they were last taken. A run that changes often is one entry.
#[derive(Debug, Default)]
pub struct RunbookChanges {
    is_followed: AtomicBool,
    runs: Mutex<HashSet<InstanceId>>,
    wake: Notify,
}

impl RunbookChanges {
    /// From now on changes are kept until they are taken.
    pub fn follow(&self) {
        self.is_followed.store(true, Ordering::Release);
    }

    pub(crate) fn add(&self, run_id: InstanceId) {
        if self.is_followed.load(Ordering::Acquire) {
            self.runs.lock().unwrap_or_else(PoisonError::into_inner).insert(run_id);
            self.wake.notify_one();
        }
    }

    pub fn take(&self) -> HashSet<InstanceId> {
        std::mem::take(&mut *self.runs.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns when there may be something to take.
    pub async fn changed(&self) {
        self.wake.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_changes_often_is_one_entry() {
        let changes = RunbookChanges::default();
        let run = |n: u128| InstanceId(uuid::Uuid::from_u128(n));
        changes.add(run(1));
        assert!(changes.take().is_empty(), "nobody follows");
        changes.follow();
        (0..1000).for_each(|n| changes.add(run(n % 2)));
        assert_eq!(changes.take().len(), 2);
        assert!(changes.take().is_empty());
    }
}
