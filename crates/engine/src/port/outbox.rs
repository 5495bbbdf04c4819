//! The outbox: events for the world outside, which a step committed with its result, on their way to webhooks.
//!
//! Each event becomes one delivery per webhook that wants it, so that a webhook that is slow or gone is nobody else's
//! trouble. A delivery is taken under a lease: for as long as it lasts, nobody else takes it. If whoever took it never
//! says what became of it, the lease ends and it is taken again. So an event may arrive twice, and is never lost.
//!
//! Leases and pauses end by the engine's time, like those of steps.

use super::{Page, StoreError};
use crate::rows::{IdempotencyRow, SignalRow};
use async_trait::async_trait;
use countersign_kernel::governance::Subject;
use countersign_kernel::{InstanceId, Time};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Which webhooks want an event of this type.
pub type Wanted<'a> = &'a (dyn Fn(&str) -> Vec<Arc<str>> + Send + Sync);

/// How an event, or its delivery to one webhook, stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryState {
    /// On its way.
    Pending,
    Delivered,
    /// Given up.
    Dead,
}

impl DeliveryState {
    pub const fn as_str(self) -> &'static str {
        match self {
            DeliveryState::Pending => "pending",
            DeliveryState::Delivered => "delivered",
            DeliveryState::Dead => "dead",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Pending, Self::Delivered, Self::Dead].into_iter().find(|state| state.as_str() == text)
    }
}

/// An event to be sent to one webhook, now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub outbox_id: Uuid,
    pub webhook: Arc<str>,
    pub instance_id: InstanceId,
    pub event_type: String,
    pub step: Option<String>,
    pub created_at: Time,
    /// JSON text.
    pub data: String,
    /// How often it has been taken, this time included.
    pub attempt: u64,
    /// It was given up before, and is tried again as this request was approved.
    pub replay: Option<InstanceId>,
}

/// What became of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    Delivered,
    /// To be tried again after a pause.
    Postponed {
        error: String,
        pause: Duration,
    },
    /// Not to be tried again.
    Dead {
        error: String,
    },
}

/// A dead delivery and the approved request to try it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryReplay {
    pub request_id: InstanceId,
    pub requested_by: String,
    pub outbox_id: Uuid,
    pub webhook: String,
    /// The problem that it is.
    pub subject: Subject,
}

/// An event with all its deliveries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxView {
    pub outbox_id: Uuid,
    pub instance_id: InstanceId,
    pub event_type: String,
    pub step: Option<String>,
    pub created_at: Time,
    /// `Dead` where nothing is on its way any more and a webhook did not get it.
    pub state: DeliveryState,
    /// Who last had what was given up tried again, and when.
    pub replayed: Option<(String, Time)>,
    pub deliveries: Vec<DeliveryView>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryView {
    pub webhook: String,
    pub state: DeliveryState,
    pub attempts: u64,
    /// While it is pending.
    pub next_attempt_at: Option<Time>,
    /// When it was delivered or given up.
    pub settled_at: Option<Time>,
    pub last_error: Option<String>,
}

/// What waits for delivery, and what became of it.
#[async_trait]
pub trait Outbox: Send {
    /// Makes the deliveries of events that have none yet, at most `limit` events; returns how many events these were.
    /// An event that no webhook wants is delivered.
    async fn spread(&mut self, wanted: Wanted<'_>, limit: usize) -> Result<usize, StoreError>;
    /// Deliveries to this webhook that are due, the longest due first, at most `limit`. They are due again when `lease` is
    /// over. On PostgreSQL rows that another node is taking just now are skipped.
    async fn take(
        &mut self,
        webhook: &str,
        now: Time,
        lease: Duration,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError>;
    /// `false`: it is settled already, or somebody else has taken it since (who then says what becomes of it; a delivery
    /// that was made counts all the same). An event that is delivered to all leaves its data: the record has it.
    async fn settle(&mut self, delivery: &Delivery, settled: &Settled, now: Time) -> Result<bool, StoreError>;
    /// Events in the order of their ids.
    async fn list(&mut self, state: Option<DeliveryState>, page: &Page) -> Result<Vec<OutboxView>, StoreError>;
    /// Has a delivery that was given up tried again from the start, as its request was approved: once, however often it is asked.
    /// Where it is not given up any more, that is the outcome, and is signalled. `false`: it was done before, or the request
    /// is not approved. It is durable when this returns.
    async fn replay(&mut self, replay: &DeliveryReplay, at: Time) -> Result<bool, StoreError>;
    /// An event with its deliveries, and what it says: JSON text, `null` once it is delivered to all.
    async fn find(&mut self, outbox_id: Uuid) -> Result<Option<(OutboxView, String)>, StoreError>;
    /// Keeps what the engine has observed by itself, to be weighed. It is durable when this returns.
    async fn signal(&mut self, signals: &[SignalRow]) -> Result<(), StoreError>;
    /// The answer that this actor was given under this key, unless its time is over at `now`.
    async fn kept_answer(
        &mut self,
        actor_ref: &str,
        key: &str,
        now: Time,
    ) -> Result<Option<IdempotencyRow>, StoreError>;
    /// Keeps the answer to something that the committer has no part in, unless there is one under its key at `now`.
    async fn keep_answer(&mut self, row: &IdempotencyRow, now: Time) -> Result<(), StoreError>;
}
