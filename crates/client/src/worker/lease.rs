//! The lease of one task as its worker sees it: prolonged by heartbeats, over when the server says so or when the
//! server could not be asked in time.

use super::is_transient;
use crate::client::Client;
use crate::wire::{HeartbeatTask, Task};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The soonest that a heartbeat without an answer is repeated.
const REPEAT_AFTER: Duration = Duration::from_millis(50);

/// Another worker has the step by now: further work on it has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease is lost: the step is not this worker's any more")]
pub struct LeaseLost;

/// Prolongs the lease of a task. Clones prolong the same lease.
///
/// Calling it is optional: heartbeats run by themselves while the handler works. It is for a handler that wants to be sure
/// right before it does what cannot be undone.
#[derive(Clone)]
pub struct Heartbeat {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    task_id: String,
    lease_token: String,
    length: Duration,
    /// By our own clock: the server's may differ.
    until: Mutex<Instant>,
    lost: watch::Sender<bool>,
}

impl Heartbeat {
    /// The lease of a task that has just arrived.
    pub(super) fn new(client: Client, task: &Task, length: Duration) -> Self {
        let inner = Inner {
            client,
            task_id: task.task_id.clone(),
            lease_token: task.lease_token.clone(),
            length,
            until: Mutex::new(Instant::now() + length),
            lost: watch::Sender::new(false),
        };
        Heartbeat { inner: Arc::new(inner) }
    }

    /// Asks the server now. `Ok` means: the step was ours when the server answered, and is for another whole lease.
    ///
    /// Where no answer comes, the lease counts as lost only when its time is over.
    pub async fn now(&self) -> Result<(), LeaseLost> {
        loop {
            if let Some(held) = self.beat().await {
                return held;
            }
            let pause = (self.inner.length / 20).max(REPEAT_AFTER);
            tokio::time::sleep_until(self.until().min(Instant::now() + pause)).await;
        }
    }

    /// How long the lease lasts if nothing prolongs it.
    pub fn remaining(&self) -> Duration {
        self.until().saturating_duration_since(Instant::now())
    }

    pub(super) fn until(&self) -> Instant {
        *self.inner.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_lost(&self) -> bool {
        *self.inner.lost.borrow()
    }

    /// Prolongs the lease at a third of its length, for ever; returns when it is lost.
    pub(super) async fn keep(&self) -> LeaseLost {
        let mut lost = self.inner.lost.subscribe();
        loop {
            tokio::select! {
                _ = lost.wait_for(|lost| *lost) => return LeaseLost,
                () = tokio::time::sleep(self.inner.length / 3) => {}
            }
            if self.now().await.is_err() {
                return LeaseLost;
            }
        }
    }

    /// One heartbeat; `None` if its result is unknown.
    async fn beat(&self) -> Option<Result<(), LeaseLost>> {
        let inner = &self.inner;
        let sent = Instant::now();
        if sent >= self.until() {
            return Some(self.give_up());
        }
        let lease_ms = i64::try_from(inner.length.as_millis()).ok();
        let request = HeartbeatTask { lease_token: inner.lease_token.clone(), lease_ms };
        let answer = tokio::time::timeout_at(self.until(), inner.client.heartbeat_task(&inner.task_id, &request)).await;
        match answer {
            Ok(Ok(_)) => {
                // From when it was sent: the server began to count later.
                let until = sent + inner.length;
                let mut held = inner.until.lock().unwrap_or_else(PoisonError::into_inner);
                *held = until.max(*held);
                Some(Ok(()))
            }
            Ok(Err(error)) if is_transient(&error) => {
                tracing::debug!(task_id = %inner.task_id, %error, "a heartbeat was not answered");
                None
            }
            Ok(Err(error)) => {
                tracing::warn!(task_id = %inner.task_id, %error, "a heartbeat was refused");
                Some(self.give_up())
            }
            Err(_) => None,
        }
    }

    fn give_up(&self) -> Result<(), LeaseLost> {
        self.inner.lost.send_replace(true);
        Err(LeaseLost)
    }
}

impl std::fmt::Debug for Heartbeat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Heartbeat").field("task_id", &self.inner.task_id).finish_non_exhaustive()
    }
}
