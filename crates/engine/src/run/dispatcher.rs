//! Who begins when only so many runs with the same key may be under way. A run that is waiting takes a slot with a key
//! (the mechanism of idempotency keys) that no other run can hold at the same time, on whichever node: the store decides.

use super::clockwork::Clockwork;
use crate::Engine;
use crate::committer::Job;
use crate::known::KnownRegistry;
use crate::outcome::{Call, Command, IdempotencyKey, Outcome, Proof, Target};
use crate::port::{QueuedRun, StoreError};
use countersign_kernel::refusal::Code;
use countersign_kernel::run;
use countersign_kernel::{InstanceId, Time};
use countersign_ledger::sha256;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;

/// Until when the keys of slots are said to be kept; a run's slot is found by it when the run ends.
pub const SLOT: Time = Time(i64::MAX - 1);
/// The same of the keys that runs were started under: one that is voided gives its key back.
pub const STARTED: Time = Time(i64::MAX - 2);
const BATCH: usize = 500;
/// So many further pages of those that wait are looked at in one go, and how soon the next go follows: runs whose key is
/// full may stand before others without end, and the first page has to come round quickly.
const DEEPER: usize = 4;
const GO_ON: Duration = Duration::from_millis(100);
/// So many slots of a key are tried in one go.
const TRIES: u32 = 256;
/// Keys of runs that start by the clock one after the other: `@schedule/<pattern>`, or with the key that the definition
/// gives them behind it. Such a run needs the slot of its pattern, and one of that key.
pub const SCHEDULED: &str = "@schedule/";
/// Where other nodes end runs, nobody tells us.
const POLL: Duration = Duration::from_secs(10);
const RARELY: Duration = Duration::from_secs(60);
/// After the store failed to tell or to take something.
const AFTER_TROUBLE: Duration = Duration::from_secs(1);

pub struct Dispatcher {
    pub clockwork: Clockwork,
    pub registry: Arc<KnownRegistry>,
    pub poll: Duration,
    /// Somebody may be able to begin who did not, because the store failed.
    pub troubled: AtomicBool,
}

/// Behind which run, by its priority and id, the search goes on.
type Behind = Option<(u8, InstanceId)>;
/// A definition in a version, and a key of which no slot is free.
type Full = HashSet<(String, u32, Arc<str>)>;

impl Dispatcher {
    pub async fn run(self) {
        let mut deeper: Behind = None;
        loop {
            let mut full = Full::new();
            let Some(behind_first) = self.begin(None, &mut full).await else { return };
            deeper = deeper.or(behind_first);
            for _ in 0..DEEPER {
                if deeper.is_none() {
                    break;
                }
                let Some(behind) = self.begin(deeper, &mut full).await else { return };
                deeper = behind;
            }
            let pause = match self.troubled.swap(false, Ordering::Relaxed) {
                true => AFTER_TROUBLE,
                false if deeper.is_some() => GO_ON,
                false => self.poll,
            };
            tokio::select! {
                () = self.clockwork.book.slots.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Begins every run that can begin now. False once the engine is gone.
    pub async fn dispatch(&self) -> bool {
        let (mut full, mut after) = (Full::new(), None);
        loop {
            match self.begin(after, &mut full).await {
                None => return false,
                Some(None) => return true,
                Some(behind) => after = behind,
            }
        }
    }

    /// Begins what can begin on one page of those that wait. Returns behind which run the next page begins, if there may be
    /// one; nothing at all once the engine is gone.
    async fn begin(&self, after: Behind, full: &mut Full) -> Option<Behind> {
        let queued = match self.clockwork.reader.queued_runs((self.clockwork.now)(), after, BATCH).await {
            Ok(queued) => queued,
            Err(error @ (StoreError::Unusable(_) | StoreError::Corrupt(_) | StoreError::Quarantined(_))) => {
                tracing::error!(%error, "queued runs cannot be read");
                return Some(None);
            }
            Err(error) => {
                tracing::warn!(%error, "queued runs could not be read");
                self.troubled.store(true, Ordering::Relaxed);
                return Some(None);
            }
        };
        let last = queued.last().map(|run| (run.priority, run.instance_id));
        let behind = last.filter(|_| queued.len() == BATCH);
        for waiting in queued {
            let Some(key) = waiting.concurrency_key.clone() else { continue };
            let place = (waiting.definition_name.clone(), waiting.definition_version, key);
            if !full.contains(&place) && !self.find_slot(&waiting, &place.2).await? {
                full.insert(place);
            }
        }
        Some(behind)
    }

    /// Whether the run got a slot; `None` once the engine is gone.
    async fn find_slot(&self, waiting: &QueuedRun, key: &str) -> Option<bool> {
        let Some(scheduled) = key.strip_prefix(SCHEDULED) else { return self.find_among(waiting, key).await };
        let (pattern, own) = match scheduled.split_once('/') {
            Some((pattern, own)) => (pattern, Some(own)),
            None => (scheduled, None),
        };
        let slot = format!("slot/{}/1/{SCHEDULED}{pattern}", waiting.definition_name);
        match own {
            None => self.take(waiting, slot, true).await,
            Some(own) => match self.take(waiting, slot, false).await? {
                true => self.find_among(waiting, own).await,
                false => Some(false),
            },
        }
    }

    /// A run keeps to the version that it was started under.
    async fn find_among(&self, waiting: &QueuedRun, key: &str) -> Option<bool> {
        let limit = {
            let registry = self.registry.read();
            let definition = registry.definition(&waiting.definition_name, Some(waiting.definition_version));
            let workflow = definition.and_then(|definition| definition.workflow.as_ref());
            workflow.and_then(|workflow| workflow.outline.concurrency_limit).unwrap_or(1)
        };
        // Those that are under way hold as many slots, most likely the first ones.
        for n in 0..u64::from(limit.min(TRIES)) {
            let slot = waiting.under_way.wrapping_add(n) % u64::from(limit) + 1;
            let slot = format!("slot/{}/{slot}/{key}", waiting.definition_name);
            if self.take(waiting, slot, true).await? {
                return Some(true);
            }
        }
        Some(false)
    }

    /// Whether the slot is this run's now; if so, the run begins, or (not `in_slot`) waits for another one that it needs too.
    async fn take(&self, waiting: &QueuedRun, key: String, in_slot: bool) -> Option<bool> {
        let request_digest = sha256(&[waiting.instance_id.0.as_bytes()]);
        let call = Call {
            actor_ref: self.clockwork.application_actor_ref.clone(),
            proof: Proof::InProcess,
            command: Command::Run {
                target: Target::Existing(waiting.instance_id),
                command: run::Command::Dispatch { in_slot },
            },
            idempotency: Some(IdempotencyKey { key, request_digest }),
        };
        let (answer, answered) = oneshot::channel();
        self.clockwork.jobs.upgrade()?.send(Job::new(call, answer)).await.ok()?;
        match answered.await {
            Ok(Ok(Outcome::RunMoved { .. })) => Some(true),
            Ok(Err(refusal)) if refusal.code == Code::Conflict => Some(false),
            Ok(Ok(_)) => Some(false),
            Ok(Err(refusal)) => {
                tracing::warn!(%refusal, run_id = %waiting.instance_id, "a queued run could not begin");
                self.troubled.fetch_or(refusal.passes(), Ordering::Relaxed);
                Some(false)
            }
            Err(_) => None,
        }
    }
}

impl Engine {
    pub(crate) fn dispatcher(&self, exclusive: bool) -> Dispatcher {
        Dispatcher {
            clockwork: self.clockwork(),
            registry: self.registry.clone(),
            poll: if exclusive { RARELY } else { POLL },
            troubled: AtomicBool::new(false),
        }
    }
}
