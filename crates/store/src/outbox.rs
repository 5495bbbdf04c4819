//! The statements of the outbox that both databases share, and how its rows are read. The locking of rows, and how
//! many are changed at once, differ.

use crate::select::{Dialect, Select};
use crate::statement::{Kind, Statement};
use crate::value::{Columns, Type, Value, token};
use countersign_engine::port::outbox::{Delivery, DeliveryReplay, DeliveryState, DeliveryView, OutboxView, Settled};
use countersign_engine::port::{Page, StoreError};
use countersign_engine::rows::SignalRow;
use countersign_kernel::governance::{Category, ReplayOutcome, Replayed, Signal, Subject};
use countersign_kernel::{EventId, IdSource, InstanceId, Time};
use std::time::Duration;
use uuid::Uuid;

pub const DELIVERY: Statement = Statement {
    table: "deliveries",
    columns: &[
        ("outbox_id", Type::Id),
        ("webhook", Type::Text),
        ("state", Type::Text),
        ("attempts", Type::Int),
        ("next_attempt_at_us", Type::Int),
    ],
    kind: Kind::Insert,
    keys: 2,
};

/// A delivery that is due at once.
pub fn delivery_values(outbox_id: Uuid, webhook: &str) -> Vec<Value<'_>> {
    vec![Value::Id(outbox_id), Value::Text(webhook), Value::Text("pending"), Value::Int(0), Value::Int(0)]
}

/// "1 is one of these ids" takes an array on PostgreSQL and one id at a time on SQLite.
pub struct OutboxSql {
    /// Events without deliveries. Parameter: limit.
    pub unspread: String,
    /// Parameter: events.
    pub spread: String,
    /// Events that no webhook selects. Parameter: events.
    pub unwanted: String,
    /// Parameters: webhook, limit.
    pub due: String,
    /// Parameters: events, webhook, lease.
    pub lease: String,
    /// Locks an event, so that two of its deliveries are settled one after the other. Parameter: event.
    pub lock: String,
    pub delivered: String,
    pub postponed: String,
    pub dead: String,
    /// Ends an event none of whose deliveries is pending. Parameter: event.
    pub conclude: String,
    /// Notes that an approved request was acted on. Parameters: request, when.
    pub claim: String,
    /// Parameters: event, webhook, request.
    pub revive: String,
    /// The state of one delivery. Parameters: event, webhook.
    pub standing: String,
    /// Parameters: event, who, when.
    pub replayed: String,
    /// Parameter: event.
    pub data: String,
    /// Parameter: events.
    pub deliveries: String,
}

impl OutboxSql {
    pub fn new(dialect: Dialect) -> Self {
        let (a, b, c, d, e) = (dialect.hole(1), dialect.hole(2), dialect.hole(3), dialect.hole(4), dialect.hole(5));
        let (skip, skip_d, lock) = match dialect {
            Dialect::Sqlite => ("", "", ""),
            Dialect::Postgres => (" FOR UPDATE SKIP LOCKED", " FOR UPDATE OF d SKIP LOCKED", " FOR UPDATE"),
        };
        // Otherwise SQLite, which knows no numbers, might read all that is pending and sort it.
        let by_time = match dialect {
            Dialect::Sqlite => " INDEXED BY outbox_pending",
            Dialect::Postgres => "",
        };
        let spread = i64::MAX;
        let among = dialect.among("outbox_id");
        let one = format!("outbox_id = {a} AND webhook = {b} AND state = 'pending'");
        let with =
            |state: &str| format!("EXISTS (SELECT 1 FROM deliveries WHERE outbox_id = {a} AND state = '{state}')");
        let (pending, dead) = (with("pending"), with("dead"));
        OutboxSql {
            unspread: format!(
                "SELECT outbox_id, event_type FROM outbox{by_time} WHERE state = 'pending' AND next_attempt_at_us < {spread} \
                 ORDER BY next_attempt_at_us, outbox_id LIMIT {a}{skip}"
            ),
            spread: format!("UPDATE outbox SET next_attempt_at_us = {spread} WHERE {among}"),
            unwanted: format!("UPDATE outbox SET state = 'delivered', data = 'null' WHERE {among}"),
            due: format!(
                "SELECT d.outbox_id, d.webhook, o.instance_id, o.event_type, o.step, o.created_at_us, o.data, d.attempts, \
                 d.replay_request_id \
                 FROM deliveries d JOIN outbox o ON o.outbox_id = d.outbox_id \
                 WHERE d.webhook = {a} AND d.state = 'pending' AND d.next_attempt_at_us <= {c} \
                 ORDER BY d.next_attempt_at_us, d.outbox_id LIMIT {b}{skip_d}"
            ),
            lease: format!(
                "UPDATE deliveries SET attempts = attempts + 1, next_attempt_at_us = {c} WHERE {among} AND webhook = {b}"
            ),
            lock: format!("SELECT state FROM outbox WHERE outbox_id = {a}{lock}"),
            delivered: format!(
                "UPDATE deliveries SET state = 'delivered', settled_at_us = {c}, last_error = NULL WHERE {one}"
            ),
            postponed: format!(
                "UPDATE deliveries SET last_error = {d}, next_attempt_at_us = {e} WHERE {one} AND attempts = {c}"
            ),
            dead: format!(
                "UPDATE deliveries SET state = 'dead', settled_at_us = {e}, last_error = {d} WHERE {one} AND attempts = {c}"
            ),
            conclude: format!(
                "UPDATE outbox SET state = CASE WHEN {dead} THEN 'dead' ELSE 'delivered' END, \
                 data = CASE WHEN {dead} THEN data ELSE 'null' END WHERE outbox_id = {a} AND state = 'pending' AND NOT {pending}"
            ),
            claim: format!(
                "UPDATE replay_requests SET replayed_at_us = {b} \
                 WHERE request_id = {a} AND state = 'approved' AND replayed_at_us IS NULL"
            ),
            revive: format!(
                "UPDATE deliveries SET state = 'pending', attempts = 0, next_attempt_at_us = 0, settled_at_us = NULL, \
                 replay_request_id = {c} WHERE outbox_id = {a} AND webhook = {b} AND state = 'dead'"
            ),
            standing: format!("SELECT state FROM deliveries WHERE outbox_id = {a} AND webhook = {b}"),
            replayed: format!(
                "UPDATE outbox SET state = 'pending', replayed_by = {b}, replayed_at_us = {c} WHERE outbox_id = {a}"
            ),
            data: format!("SELECT data FROM outbox WHERE outbox_id = {a}"),
            deliveries: format!(
                "SELECT outbox_id, webhook, state, attempts, next_attempt_at_us, settled_at_us, last_error FROM deliveries \
                 WHERE {among} ORDER BY outbox_id, webhook"
            ),
        }
    }

    /// What a settlement writes, its parameters, and whether the event may have ended with it.
    pub fn settle<'v>(&self, delivery: &'v Delivery, settled: &'v Settled, now: Time) -> (&str, Vec<Value<'v>>, bool) {
        let mut values = vec![Value::Id(delivery.outbox_id), Value::Text(&delivery.webhook)];
        match settled {
            Settled::Delivered => {
                values.push(Value::time(now));
                (&self.delivered, values, true)
            }
            Settled::Postponed { error, pause } => {
                values.extend([Value::count(delivery.attempt), Value::Text(error), later(now, *pause)]);
                (&self.postponed, values, false)
            }
            Settled::Dead { error } => {
                values.extend([Value::count(delivery.attempt), Value::Text(error), Value::time(now)]);
                (&self.dead, values, true)
            }
        }
    }
}

/// What a settlement signals: a delivery that is given up is a dead letter until it arrives after a replay.
pub fn signal(delivery: &Delivery, settled: &Settled, now: Time) -> Option<SignalRow> {
    let (opens, outcome) = match settled {
        Settled::Dead { .. } => (true, ReplayOutcome::Failed),
        Settled::Delivered if delivery.replay.is_some() => (false, ReplayOutcome::Delivered),
        Settled::Delivered | Settled::Postponed { .. } => return None,
    };
    let (outbox_id, webhook) = (delivery.outbox_id, &delivery.webhook);
    let subject = Subject {
        category: Category::Dlq,
        key: format!("{outbox_id}.{webhook}"),
        run_id: Some(delivery.instance_id),
        step: delivery.step.clone(),
        worker_class: None,
    };
    let replay = delivery.replay.map(|request| Replayed { request, outcome });
    let signal = Signal {
        subject,
        at: now,
        event_id: (opens && replay.is_none()).then_some(EventId(outbox_id)),
        opens,
        detail: match (opens, replay) {
            (true, None) => format!("the delivery of `{}` to {webhook} was given up", delivery.event_type),
            (true, Some(_)) => format!("the delivery of `{}` to {webhook} was given up again", delivery.event_type),
            (false, _) => format!("`{}` was delivered to {webhook} after a replay", delivery.event_type),
        },
        replay,
    };
    Some(SignalRow { signal_id: signal_id(outbox_id, webhook, now), signal })
}

/// The outcome of a replay of a delivery that is not given up any more, or is not known.
pub fn nothing_dead(replay: &DeliveryReplay, state: Option<DeliveryState>, now: Time) -> SignalRow {
    let arrived = state == Some(DeliveryState::Delivered);
    let outcome = if arrived { ReplayOutcome::Delivered } else { ReplayOutcome::Failed };
    let detail = match state {
        Some(DeliveryState::Delivered) => "it had arrived already",
        Some(_) => "it is on its way already",
        None => "this delivery is not known",
    };
    let signal = Signal {
        subject: replay.subject.clone(),
        at: now,
        event_id: None,
        opens: !arrived,
        detail: format!("nothing was replayed to {}: {detail}", replay.webhook),
        replay: Some(Replayed { request: replay.request_id, outcome }),
    };
    SignalRow { signal_id: signal_id(replay.outbox_id, &replay.webhook, now), signal }
}

/// Two deliveries of one event may be settled at one time.
fn signal_id(outbox_id: Uuid, webhook: &str, now: Time) -> Uuid {
    let of_webhook = webhook.bytes().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    IdSource::new(now, outbox_id.as_u64_pair().1.wrapping_add(of_webhook)).make()
}

/// The page that holds this event and no other.
pub fn page_of(outbox_id: Uuid) -> Page {
    let before = outbox_id.as_u128().checked_sub(1).map(Uuid::from_u128);
    Page { after: before, limit: 1, descending: false }
}

pub fn list<'q>(dialect: Dialect, state: Option<DeliveryState>, page: &Page) -> Select<'q> {
    let columns = "outbox_id, instance_id, event_type, step, created_at_us, state, replayed_by, replayed_at_us";
    let mut select = Select::new(dialect, format!("SELECT {columns} FROM outbox"));
    // Spelt out, so that the state's own index serves it.
    select.conditions.extend(state.map(|state| format!("state = '{}'", state.as_str())));
    select.paged("outbox_id", page)
}

pub fn later(now: Time, by: Duration) -> Value<'static> {
    Value::Int(now.0.saturating_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)))
}

pub fn unspread_row(row: &dyn Columns) -> Result<(Uuid, String), StoreError> {
    Ok((row.id(0)?, row.text(1)?))
}

/// As it is after it was taken.
pub fn due_row(row: &dyn Columns) -> Result<Delivery, StoreError> {
    Ok(Delivery {
        outbox_id: row.id(0)?,
        webhook: row.text(1)?.into(),
        instance_id: InstanceId(row.id(2)?),
        event_type: row.text(3)?,
        step: row.optional_text(4)?,
        created_at: row.time(5)?,
        data: row.text(6)?,
        attempt: row.count(7)? + 1,
        replay: row.optional_id(8)?.map(InstanceId),
    })
}

pub fn state_row(row: &dyn Columns) -> Result<DeliveryState, StoreError> {
    token(&row.text(0)?, DeliveryState::parse)
}

/// Its deliveries are still to be found.
pub fn view_row(row: &dyn Columns) -> Result<OutboxView, StoreError> {
    let replayed_at = row.optional_int(7)?.map(Time);
    Ok(OutboxView {
        outbox_id: row.id(0)?,
        instance_id: InstanceId(row.id(1)?),
        event_type: row.text(2)?,
        step: row.optional_text(3)?,
        created_at: row.time(4)?,
        state: token(&row.text(5)?, DeliveryState::parse)?,
        replayed: row.optional_text(6)?.zip(replayed_at),
        deliveries: vec![],
    })
}

pub fn delivery_row(row: &dyn Columns) -> Result<(Uuid, DeliveryView), StoreError> {
    let state = token(&row.text(2)?, DeliveryState::parse)?;
    let next_attempt_at = row.time(4)?;
    let view = DeliveryView {
        webhook: row.text(1)?,
        state,
        attempts: row.count(3)?,
        // 0: at once.
        next_attempt_at: (state == DeliveryState::Pending && next_attempt_at.0 > 0).then_some(next_attempt_at),
        settled_at: row.optional_int(5)?.map(Time),
        last_error: row.optional_text(6)?,
    };
    Ok((row.id(0)?, view))
}

/// Gives each event its deliveries.
pub fn joined(mut events: Vec<OutboxView>, deliveries: Vec<(Uuid, DeliveryView)>) -> Vec<OutboxView> {
    for (outbox_id, delivery) in deliveries {
        if let Some(event) = events.iter_mut().find(|event| event.outbox_id == outbox_id) {
            event.deliveries.push(delivery);
        }
    }
    events
}
