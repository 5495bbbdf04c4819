//! The outbox on SQLite, on a separate connection that takes turns with the committer.
//!
//! The result of a delivery is written without waiting for the disk: the next commit flushes it. If the power fails
//! before that, the event is delivered once more. A replay waits for the disk.

use super::connect::{Location, failed};
use super::read::rows;
use super::side::{self, Side, execute};
use super::{RECALL, Turn, insert_key};
use crate::decode;
use crate::outbox::{self, DELIVERY, OutboxSql};
use crate::select::Dialect;
use crate::statement::{Name, STATEMENTS, signal_values};
use crate::value::Value;
use async_trait::async_trait;
use countersign_engine::port::outbox::{Delivery, DeliveryReplay, DeliveryState, Outbox, OutboxView, Settled, Wanted};
use countersign_engine::port::{Page, StoreError};
use countersign_engine::rows::{IdempotencyRow, SignalRow};
use countersign_kernel::Time;
use rusqlite::Connection;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

pub struct SqliteOutbox {
    desk: Arc<Desk>,
}

struct Desk {
    side: Side,
    sql: OutboxSql,
    delivery: String,
    signal: String,
}

impl SqliteOutbox {
    pub fn new(location: Location, turn: Turn) -> Self {
        let (sql, delivery) = (OutboxSql::new(Dialect::Sqlite), DELIVERY.sqlite());
        let signal = STATEMENTS[Name::ProblemSignal as usize].sqlite();
        SqliteOutbox { desk: Arc::new(Desk { side: Side::new(location, turn), sql, delivery, signal }) }
    }

    async fn on_its_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Desk, &mut Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        side::on_its_thread(&self.desk, move |desk| desk.side.with(|connection| work(desk, connection))).await
    }
}

impl Desk {
    fn unspread(&self, connection: &Connection, limit: usize) -> Result<Vec<(Uuid, String)>, StoreError> {
        rows(connection, &self.sql.unspread, &[Value::count(limit as u64)], outbox::unspread_row)
    }

    /// There is one writer, so the rows that were found do not change until they are written.
    fn spread(&self, connection: &mut Connection, found: &[(Uuid, Vec<Arc<str>>)]) -> Result<(), StoreError> {
        self.side.write(connection, |transaction| {
            for (outbox_id, webhooks) in found {
                let sql = if webhooks.is_empty() { &self.sql.unwanted } else { &self.sql.spread };
                execute(transaction, sql, &[Value::Id(*outbox_id)])?;
                for webhook in webhooks {
                    execute(transaction, &self.delivery, &outbox::delivery_values(*outbox_id, webhook))?;
                }
            }
            Ok(())
        })
    }
}

#[async_trait]
impl Outbox for SqliteOutbox {
    async fn spread(&mut self, wanted: Wanted<'_>, limit: usize) -> Result<usize, StoreError> {
        let found = self.on_its_thread(move |desk, connection| desk.unspread(connection, limit)).await?;
        if found.is_empty() {
            return Ok(0);
        }
        let found: Vec<_> = found.into_iter().map(|(id, event_type)| (id, wanted(&event_type))).collect();
        self.on_its_thread(move |desk, connection| {
            desk.spread(connection, &found)?;
            Ok(found.len())
        })
        .await
    }

    async fn take(
        &mut self,
        webhook: &str,
        now: Time,
        lease: Duration,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        let webhook = webhook.to_owned();
        self.on_its_thread(move |desk, connection| {
            let due = |connection: &Connection| {
                let values = [Value::Text(&webhook), Value::count(limit as u64), Value::time(now)];
                rows(connection, &desk.sql.due, &values, outbox::due_row)
            };
            // A caller that finds nothing must not delay others.
            if due(connection)?.is_empty() {
                return Ok(vec![]);
            }
            desk.side.write(connection, |transaction| {
                let due = due(transaction)?;
                for delivery in &due {
                    let values = [Value::Id(delivery.outbox_id), Value::Text(&webhook), outbox::later(now, lease)];
                    execute(transaction, &desk.sql.lease, &values)?;
                }
                Ok(due)
            })
        })
        .await
    }

    async fn settle(&mut self, delivery: &Delivery, settled: &Settled, now: Time) -> Result<bool, StoreError> {
        let (delivery, settled) = (delivery.clone(), settled.clone());
        self.on_its_thread(move |desk, connection| {
            desk.side.write(connection, |transaction| {
                let (sql, values, ends) = desk.sql.settle(&delivery, &settled, now);
                let changed = execute(transaction, sql, &values)? > 0;
                if changed && ends {
                    execute(transaction, &desk.sql.conclude, &[Value::Id(delivery.outbox_id)])?;
                }
                if let Some(signal) = outbox::signal(&delivery, &settled, now).filter(|_| changed) {
                    execute(transaction, &desk.signal, &signal_values(&signal))?;
                }
                Ok(changed)
            })
        })
        .await
    }

    async fn list(&mut self, state: Option<DeliveryState>, page: &Page) -> Result<Vec<OutboxView>, StoreError> {
        let page = page.clone();
        self.on_its_thread(move |desk, connection| {
            let snapshot = connection.transaction().map_err(failed)?;
            let select = outbox::list(Dialect::Sqlite, state, &page);
            let events = rows(&snapshot, &select.sql, &select.values, outbox::view_row)?;
            let mut deliveries = Vec::new();
            for event in &events {
                let id = [Value::Id(event.outbox_id)];
                deliveries.extend(rows(&snapshot, &desk.sql.deliveries, &id, outbox::delivery_row)?);
            }
            Ok(outbox::joined(events, deliveries))
        })
        .await
    }

    async fn replay(&mut self, replay: &DeliveryReplay, at: Time) -> Result<bool, StoreError> {
        let replay = replay.clone();
        self.on_its_thread(move |desk, connection| {
            let done = desk.side.write(connection, |transaction| {
                let (event, webhook) = (Value::Id(replay.outbox_id), Value::Text(&replay.webhook));
                let request = Value::Id(replay.request_id.0);
                if execute(transaction, &desk.sql.claim, &[request.clone(), Value::time(at)])? == 0 {
                    return Ok(false);
                }
                let revived = execute(transaction, &desk.sql.revive, &[event.clone(), webhook.clone(), request])?;
                if revived > 0 {
                    let by = Value::Text(&replay.requested_by);
                    execute(transaction, &desk.sql.replayed, &[event, by, Value::time(at)])?;
                } else {
                    let state = rows(transaction, &desk.sql.standing, &[event, webhook], outbox::state_row)?.pop();
                    let signal = outbox::nothing_dead(&replay, state, at);
                    execute(transaction, &desk.signal, &signal_values(&signal))?;
                }
                Ok(true)
            })?;
            desk.side.flush()?;
            Ok(done)
        })
        .await
    }

    async fn find(&mut self, outbox_id: Uuid) -> Result<Option<(OutboxView, String)>, StoreError> {
        let found = self.list(None, &outbox::page_of(outbox_id)).await?.pop();
        let Some(view) = found.filter(|view| view.outbox_id == outbox_id) else { return Ok(None) };
        self.on_its_thread(move |desk, connection| {
            let data = rows(connection, &desk.sql.data, &[Value::Id(outbox_id)], |row| row.text(0))?.pop();
            Ok(data.map(|data| (view, data)))
        })
        .await
    }

    async fn signal(&mut self, signals: &[SignalRow]) -> Result<(), StoreError> {
        let signals = signals.to_vec();
        self.on_its_thread(move |desk, connection| {
            desk.side.write(connection, |transaction| {
                for signal in &signals {
                    execute(transaction, &desk.signal, &signal_values(signal))?;
                }
                Ok(())
            })?;
            desk.side.flush()
        })
        .await
    }

    async fn kept_answer(
        &mut self,
        actor_ref: &str,
        key: &str,
        now: Time,
    ) -> Result<Option<IdempotencyRow>, StoreError> {
        let (actor_ref, key) = (actor_ref.to_owned(), key.to_owned());
        self.on_its_thread(move |_, connection| {
            let values = [Value::Text(&actor_ref), Value::Text(&key), Value::time(now)];
            Ok(rows(connection, RECALL, &values, decode::idempotency_row)?.pop())
        })
        .await
    }

    async fn keep_answer(&mut self, row: &IdempotencyRow, now: Time) -> Result<(), StoreError> {
        let row = row.clone();
        self.on_its_thread(move |desk, connection| {
            desk.side.write(connection, |transaction| insert_key(transaction, &row, now))?;
            desk.side.flush()
        })
        .await
    }
}
