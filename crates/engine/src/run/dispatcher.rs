//! Who begins when only so many runs with the same key may be under way. A run that is waiting takes a slot with a key
//! (the mechanism of idempotency keys) that no other run can hold at the same time, on whichever node: the store decides.

use super::clockwork::Clockwork;
use crate::Engine;
use crate::committer::Job;
use crate::known::KnownRegistry;
use crate::outcome::{Call, Command, IdempotencyKey, Outcome, Proof, Target};
use crate::port::{QueuedRun, StoreError};
use countersign_kernel::Time;
use countersign_kernel::refusal::Code;
use countersign_kernel::run;
use countersign_ledger::sha256;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Until when the keys of slots are said to be kept; a run's slot is found by it when the run ends.
pub const SLOT: Time = Time(i64::MAX - 1);
const BATCH: usize = 500;
/// Where other nodes end runs, nobody tells us.
const POLL: Duration = Duration::from_secs(10);
const RARELY: Duration = Duration::from_secs(60);

pub struct Dispatcher {
    pub clockwork: Clockwork,
    pub registry: Arc<KnownRegistry>,
    pub poll: Duration,
}

impl Dispatcher {
    pub async fn run(self) {
        loop {
            if !self.dispatch().await {
                return;
            }
            tokio::select! {
                () = self.clockwork.book.slots.notified() => {}
                () = tokio::time::sleep(self.poll) => {}
            }
        }
    }

    /// Begins every run that can begin now. False once the engine is gone.
    pub async fn dispatch(&self) -> bool {
        let queued = match self.clockwork.reader.queued_runs((self.clockwork.now)(), BATCH).await {
            Ok(queued) => queued,
            Err(error @ (StoreError::Unusable(_) | StoreError::Corrupt(_))) => {
                tracing::error!(%error, "queued runs cannot be read");
                return true;
            }
            Err(error) => {
                tracing::warn!(%error, "queued runs could not be read");
                return true;
            }
        };
        let mut full: Vec<(String, u32, Arc<str>)> = Vec::new();
        for waiting in queued {
            let Some(key) = waiting.concurrency_key.clone() else { continue };
            let place = (waiting.definition_name.clone(), waiting.definition_version, key);
            if full.contains(&place) {
                continue;
            }
            match self.find_slot(&waiting, &place.2).await {
                Some(true) => {}
                Some(false) => full.push(place),
                None => return false,
            }
        }
        true
    }

    /// Whether the run got a slot; `None` once the engine is gone.
    async fn find_slot(&self, waiting: &QueuedRun, key: &str) -> Option<bool> {
        let limit = {
            let registry = self.registry.read();
            // A run keeps to the version that it was started under.
            let definition = registry.definition(&waiting.definition_name, Some(waiting.definition_version));
            let plan =
                definition.and_then(|definition| definition.workflow.as_ref()).map(|workflow| workflow.plan.clone());
            plan.and_then(|plan| plan.concurrency.as_ref().map(|concurrency| concurrency.limit)).unwrap_or(1)
        };
        for slot in 1..=limit {
            let digest = sha256(&[waiting.instance_id.0.as_bytes()]);
            let key = format!("slot/{}/{slot}/{key}", waiting.definition_name);
            let call = Call {
                actor_ref: self.clockwork.application_actor_ref.clone(),
                proof: Proof::InProcess,
                command: Command::Run {
                    target: Target::Existing(waiting.instance_id),
                    command: run::Command::Dispatch { in_slot: true },
                },
                idempotency: Some(IdempotencyKey { key, request_digest: digest }),
            };
            let (answer, answered) = oneshot::channel();
            self.clockwork.jobs.upgrade()?.send(Job::new(call, answer)).await.ok()?;
            match answered.await {
                Ok(Ok(Outcome::RunMoved { .. })) => return Some(true),
                Ok(Err(refusal)) if refusal.code == Code::Conflict => {}
                Ok(Ok(_)) => return Some(false),
                Ok(Err(refusal)) => {
                    tracing::warn!(%refusal, run_id = %waiting.instance_id, "a queued run could not begin");
                    return Some(false);
                }
                Err(_) => return None,
            }
        }
        Some(false)
    }
}

impl Engine {
    pub(crate) fn dispatcher(&self, exclusive: bool) -> Dispatcher {
        Dispatcher {
            clockwork: self.clockwork(),
            registry: self.registry.clone(),
            poll: if exclusive { RARELY } else { POLL },
        }
    }
}
