//! The outbox as the server uses it: what is due for a webhook, what became of it, and what operators may see and do.

use crate::monitor::OUTBOX;
use crate::port::Page;
use crate::port::outbox::{Delivery, DeliveryReplay, DeliveryState, OutboxView, Settled, Wanted};
use crate::port::{Outbox, StoreError};
use crate::rows::{IdempotencyRow, SignalRow, Write};
use crate::{Engine, store_failure};
use countersign_kernel::Time;
use countersign_kernel::refusal::Refusal;
use countersign_kernel::registry::scopes;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard, Notify};
use uuid::Uuid;

/// The engine's outbox.
pub(crate) struct OutboxDesk {
    outbox: Mutex<Box<dyn Outbox>>,
    wake: Arc<Notify>,
}

impl OutboxDesk {
    pub fn new(outbox: Box<dyn Outbox>, wake: Arc<Notify>) -> Self {
        OutboxDesk { outbox: Mutex::new(outbox), wake }
    }

    async fn open(&self) -> MutexGuard<'_, Box<dyn Outbox>> {
        self.outbox.lock().await
    }
}

impl OutboxDesk {
    pub async fn kept_answer(
        &self,
        actor_ref: &str,
        key: &str,
        now: Time,
    ) -> Result<Option<IdempotencyRow>, StoreError> {
        self.open().await.kept_answer(actor_ref, key, now).await
    }

    pub async fn signal(&self, signals: &[SignalRow]) -> Result<(), StoreError> {
        self.open().await.signal(signals).await
    }

    pub async fn keep_answer(&self, row: &IdempotencyRow, now: Time) -> Result<(), StoreError> {
        self.open().await.keep_answer(row, now).await
    }
}

/// Whether these rows hold an event for the world outside.
pub(crate) fn sends(writes: &[Write]) -> bool {
    writes.iter().any(|write| matches!(write, Write::Outbox(_)))
}

/// For the server itself, which needs no grant.
impl Engine {
    /// Tells that this node has committed an event. Those of other nodes are found by looking.
    pub fn outbox_wake(&self) -> Arc<Notify> {
        self.outbox.wake.clone()
    }

    pub async fn spread_outbox(&self, wanted: Wanted<'_>, limit: usize) -> Result<usize, StoreError> {
        self.outbox.open().await.spread(wanted, limit).await
    }

    pub async fn take_deliveries(
        &self,
        webhook: &str,
        lease: Duration,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        self.outbox.open().await.take(webhook, self.now(), lease, limit).await
    }

    /// Tries a dead delivery again, as its request was approved: once.
    pub(crate) async fn replay_delivery(&self, replay: &DeliveryReplay) -> Result<bool, StoreError> {
        let done = self.outbox.open().await.replay(replay, self.now()).await?;
        if done {
            self.outbox.wake.notify_one();
            self.governance_wake.notify_one();
            self.hub.governance_moved();
        }
        Ok(done)
    }

    pub async fn settle_delivery(&self, delivery: &Delivery, settled: &Settled) -> Result<bool, StoreError> {
        let noted = self.outbox.open().await.settle(delivery, settled, self.now()).await?;
        // What was given up and tried again is late because somebody had to look into it.
        if noted && matches!(settled, Settled::Delivered) && delivery.replay.is_none() {
            let now = self.now();
            self.monitor.lag(OUTBOX, &delivery.webhook, now, now.0 - delivery.created_at.0);
        }
        // A delivery that was given up, or that arrived after all, is a signal (`governance`).
        let arrived = delivery.replay.is_some() && matches!(settled, Settled::Delivered);
        if noted && (matches!(settled, Settled::Dead { .. }) || arrived) {
            self.governance_wake.notify_one();
        }
        Ok(noted)
    }
}

impl Engine {
    /// What a dead letter holds: an event with its deliveries, and what it says. For the server itself, which needs no grant.
    pub async fn own_dead_event(&self, outbox_id: Uuid) -> Result<Option<(OutboxView, String)>, Refusal> {
        self.outbox.open().await.find(outbox_id).await.map_err(|error| store_failure(&error))
    }

    /// Events for the world outside and their deliveries. Needs `runs:read`.
    pub async fn read_outbox(
        &self,
        actor_ref: &str,
        state: Option<DeliveryState>,
        page: &Page,
    ) -> Result<Vec<OutboxView>, Refusal> {
        self.require_scope(actor_ref, scopes::RUNS_READ).await?;
        self.outbox.open().await.list(state, page).await.map_err(|error| store_failure(&error))
    }
}
