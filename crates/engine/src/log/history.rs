//! The checks of the offline verifier, on what this store holds (ADR 31): [`countersign_verifier::History`] on a thread of its
//! own, fed with the registry and then with one instance after the other. What it finds, an auditor's verifier finds.

use super::finding::Finding;
use crate::rows::RecordRow;
use countersign_kernel::{EventId, InstanceId};
use countersign_verifier::{History, Stored, StoredContent};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use uuid::Uuid;

/// Instances that may wait for the thread.
const WAITING: usize = 4;

pub(super) enum Fed {
    Documents(Vec<Arc<[u8]>>),
    Registry(Vec<RecordRow>),
    /// The newest note of the log and the key that it is signed with.
    EndRegistry(Option<(String, String)>),
    Instance {
        instance_id: InstanceId,
        records: Vec<RecordRow>,
        /// Its rows, as a line of `state.jsonl`. The governance chain has none.
        state: Option<String>,
    },
}

/// The thread and the way to it.
pub(super) struct HistoryCheck {
    feed: mpsc::Sender<Fed>,
    done: JoinHandle<Vec<Finding>>,
    /// The last registry record that it was given.
    pub registry_sequence: u64,
}

impl HistoryCheck {
    pub fn start(in_process: bool) -> HistoryCheck {
        let (feed, mut fed) = mpsc::channel(WAITING);
        let done = tokio::task::spawn_blocking(move || {
            let mut history = History::new(in_process);
            let mut found = vec![];
            while let Some(next) = fed.blocking_recv() {
                let about = take(&mut history, next);
                let (findings, more) = history.findings();
                let last = findings.last().map(|finding| finding.code.as_str());
                found.extend(findings.into_iter().map(|finding| told(finding, about)));
                if let (Some(code), 1..) = (last, more) {
                    let detail = format!("{more} more findings are not listed");
                    found.push(Finding { code, event_id: None, instance_id: about, detail });
                }
            }
            found
        });
        HistoryCheck { feed, done, registry_sequence: 0 }
    }

    pub async fn give(&self, fed: Fed) {
        // A thread that has ended is noticed at the end.
        let _ = self.feed.send(fed).await;
    }

    /// What it found; an error where the thread has failed.
    pub async fn finish(self) -> Result<Vec<Finding>, String> {
        drop(self.feed);
        self.done.await.map_err(|error| error.to_string())
    }
}

/// The instance that it was about.
fn take(history: &mut History, fed: Fed) -> Option<InstanceId> {
    match fed {
        Fed::Documents(bodies) => {
            bodies.iter().for_each(|body| history.document(body));
            None
        }
        Fed::Registry(records) => {
            records.iter().for_each(|row| history.registry(&stored(row)));
            Some(InstanceId::REGISTRY)
        }
        Fed::EndRegistry(checkpoint) => {
            history.end_registry(checkpoint.as_ref().map(|(note, key)| (note.as_str(), key.as_str())));
            Some(InstanceId::REGISTRY)
        }
        Fed::Instance { instance_id, records, state } => {
            history.instance(
                instance_id.0.into_bytes(),
                records.iter().map(stored),
                state.as_deref().map(str::as_bytes),
            );
            Some(instance_id)
        }
    }
}

fn stored(row: &RecordRow) -> Stored<'_> {
    let content = row.record.content.as_ref().map(|content| StoredContent {
        payload: &content.payload,
        attestation: &content.attestation,
        salt: content.salt,
    });
    Stored { event_id: row.event_id.0.into_bytes(), header: &row.record.header, content }
}

fn told(finding: countersign_verifier::finding::Finding, about: Option<InstanceId>) -> Finding {
    let id = |bytes: [u8; 16]| Uuid::from_bytes(bytes);
    let event_id = finding.place.event_id.map(|event_id| EventId(id(event_id.0)));
    Finding { code: finding.code.as_str(), event_id, instance_id: about, detail: finding.detail }
}
