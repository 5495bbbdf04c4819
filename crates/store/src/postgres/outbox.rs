//! The outbox on PostgreSQL, on a separate connection. Several nodes work on it. Each skips rows that another node
//! has locked, and a delivery that was taken is due again only when its lease is over. A lock on the event orders the
//! settling of its deliveries.

use super::connect::{Settings, failed};
use super::read::parameters;
use super::values::RowSet;
use super::{INSERT_KEYS, PLANS, RECALL};
use crate::decode;
use crate::outbox::{self, DELIVERY, OutboxSql};
use crate::select::Dialect;
use crate::statement::{Name, STATEMENTS, signal_values};
use crate::value::Columns;
use async_trait::async_trait;
use countersign_engine::port::outbox::{
    Delivery, DeliveryReplay, DeliveryState, DeliveryView, Outbox, OutboxView, Settled, Wanted,
};
use countersign_engine::port::{Page, StoreError};
use countersign_engine::rows::{IdempotencyRow, SignalRow};
use countersign_kernel::Time;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, IsolationLevel, Row, Statement as Prepared, Transaction};
use uuid::Uuid;

pub struct PostgresOutbox {
    settings: Settings,
    session: Option<Session>,
    sql: OutboxSql,
    delivery: String,
}

struct Session {
    client: Client,
    /// By their text.
    prepared: HashMap<String, Prepared>,
}

/// A transaction, and what is prepared on its connection.
struct Work<'s> {
    transaction: Transaction<'s>,
    prepared: &'s mut HashMap<String, Prepared>,
}

impl Work<'_> {
    async fn prepared(&mut self, sql: &str) -> Result<Prepared, StoreError> {
        if let Some(prepared) = self.prepared.get(sql) {
            return Ok(prepared.clone());
        }
        let prepared = self.transaction.prepare(sql).await.map_err(failed)?;
        self.prepared.insert(sql.to_owned(), prepared.clone());
        Ok(prepared)
    }

    async fn query(&mut self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, StoreError> {
        let prepared = self.prepared(sql).await?;
        self.transaction.query(&prepared, values).await.map_err(failed)
    }

    async fn execute(&mut self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<u64, StoreError> {
        let prepared = self.prepared(sql).await?;
        self.transaction.execute(&prepared, values).await.map_err(failed)
    }

    async fn commit(self) -> Result<(), StoreError> {
        self.transaction.commit().await.map_err(failed)
    }
}

impl PostgresOutbox {
    pub fn new(settings: Settings) -> Self {
        let (sql, delivery) = (OutboxSql::new(Dialect::Postgres), DELIVERY.postgres());
        PostgresOutbox { settings, session: None, sql, delivery }
    }

    /// A new transaction; dropping it undoes it.
    async fn begin(&mut self) -> Result<(Work<'_>, &OutboxSql, &str), StoreError> {
        if self.session.as_ref().is_none_or(|session| session.client.is_closed()) {
            self.session = None;
            let client = self.settings.connect().await?;
            client.batch_execute(PLANS).await.map_err(failed)?;
            client.batch_execute("SET idle_in_transaction_session_timeout = '10s'").await.map_err(failed)?;
            self.session = Some(Session { client, prepared: HashMap::new() });
        }
        let session = self.session.as_mut().ok_or_else(|| StoreError::Transient("no connection".to_owned()))?;
        let begin = session.client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).read_only(false);
        let transaction = begin.start().await.map_err(failed)?;
        Ok((Work { transaction, prepared: &mut session.prepared }, &self.sql, &self.delivery))
    }
}

fn limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

#[async_trait]
impl Outbox for PostgresOutbox {
    async fn spread(&mut self, wanted: Wanted<'_>, most: usize) -> Result<usize, StoreError> {
        let (mut work, sql, delivery) = self.begin().await?;
        let found = work.query(&sql.unspread, &[&limit(most)]).await?;
        let found: Vec<(Uuid, Vec<Arc<str>>)> = found
            .iter()
            .map(|row| outbox::unspread_row(row).map(|(id, event_type)| (id, wanted(&event_type))))
            .collect::<Result<_, _>>()?;
        if found.is_empty() {
            return Ok(0);
        }
        let ids = |spread: bool| -> Vec<Uuid> {
            found.iter().filter(|(_, webhooks)| webhooks.is_empty() != spread).map(|(id, _)| *id).collect()
        };
        let rows = found.iter().flat_map(|(id, webhooks)| webhooks.iter().map(|w| outbox::delivery_values(*id, w)));
        let set = RowSet::of(&DELIVERY, rows.collect());
        work.execute(delivery, &[&set]).await?;
        work.execute(&sql.spread, &[&ids(true)]).await?;
        work.execute(&sql.unwanted, &[&ids(false)]).await?;
        work.commit().await?;
        Ok(found.len())
    }

    async fn take(
        &mut self,
        webhook: &str,
        now: Time,
        lease: Duration,
        most: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        let (mut work, sql, _) = self.begin().await?;
        let due = work.query(&sql.due, &[&webhook, &limit(most), &now.0]).await?;
        let due: Vec<Delivery> = due.iter().map(|row| outbox::due_row(row)).collect::<Result<_, _>>()?;
        if !due.is_empty() {
            let ids: Vec<Uuid> = due.iter().map(|delivery| delivery.outbox_id).collect();
            work.execute(&sql.lease, &[&ids, &webhook, &outbox::later(now, lease)]).await?;
            work.commit().await?;
        }
        Ok(due)
    }

    async fn settle(&mut self, delivery: &Delivery, settled: &Settled, now: Time) -> Result<bool, StoreError> {
        let (mut work, sql, _) = self.begin().await?;
        let (update, values, ends) = sql.settle(delivery, settled, now);
        if ends {
            work.query(&sql.lock, &[&delivery.outbox_id]).await?;
        }
        let changed = work.execute(update, &parameters(&values)).await? > 0;
        if changed && ends {
            work.execute(&sql.conclude, &[&delivery.outbox_id]).await?;
        }
        if let Some(signal) = outbox::signal(delivery, settled, now).filter(|_| changed) {
            let statement = &STATEMENTS[Name::ProblemSignal as usize];
            let set = RowSet::of(statement, vec![signal_values(&signal)]);
            work.execute(&statement.postgres(), &[&set]).await?;
        }
        work.commit().await?;
        Ok(changed)
    }

    async fn list(&mut self, state: Option<DeliveryState>, page: &Page) -> Result<Vec<OutboxView>, StoreError> {
        let (mut work, sql, _) = self.begin().await?;
        let select = outbox::list(Dialect::Postgres, state, page);
        let events = work.query(&select.sql, &parameters(&select.values)).await?;
        let events: Vec<OutboxView> = events.iter().map(|row| outbox::view_row(row)).collect::<Result<_, _>>()?;
        let ids: Vec<Uuid> = events.iter().map(|event| event.outbox_id).collect();
        let deliveries = work.query(&sql.deliveries, &[&ids]).await?;
        let deliveries: Vec<(Uuid, DeliveryView)> =
            deliveries.iter().map(|row| outbox::delivery_row(row)).collect::<Result<_, _>>()?;
        Ok(outbox::joined(events, deliveries))
    }

    async fn replay(&mut self, replay: &DeliveryReplay, at: Time) -> Result<bool, StoreError> {
        let (mut work, sql, _) = self.begin().await?;
        work.query(&sql.lock, &[&replay.outbox_id]).await?;
        if work.execute(&sql.claim, &[&replay.request_id.0, &at.0]).await? == 0 {
            return Ok(false);
        }
        let revived = work.execute(&sql.revive, &[&replay.outbox_id, &replay.webhook, &replay.request_id.0]).await?;
        if revived > 0 {
            work.execute(&sql.replayed, &[&replay.outbox_id, &replay.requested_by, &at.0]).await?;
        } else {
            let state = work.query(&sql.standing, &[&replay.outbox_id, &replay.webhook]).await?;
            let state = state.first().map(|row| outbox::state_row(row)).transpose()?;
            let signal = outbox::nothing_dead(replay, state, at);
            let statement = &STATEMENTS[Name::ProblemSignal as usize];
            let set = RowSet::of(statement, vec![signal_values(&signal)]);
            work.execute(&statement.postgres(), &[&set]).await?;
        }
        work.commit().await?;
        Ok(true)
    }

    async fn find(&mut self, outbox_id: Uuid) -> Result<Option<(OutboxView, String)>, StoreError> {
        let found = self.list(None, &outbox::page_of(outbox_id)).await?.pop();
        let Some(view) = found.filter(|view| view.outbox_id == outbox_id) else { return Ok(None) };
        let (mut work, sql, _) = self.begin().await?;
        let data = work.query(&sql.data, &[&outbox_id]).await?;
        let data = data.first().map(|row| row.text(0)).transpose()?;
        work.commit().await?;
        Ok(data.map(|data| (view, data)))
    }

    async fn signal(&mut self, signals: &[SignalRow]) -> Result<(), StoreError> {
        let (mut work, ..) = self.begin().await?;
        let statement = &STATEMENTS[Name::ProblemSignal as usize];
        let set = RowSet::of(statement, signals.iter().map(signal_values).collect());
        work.execute(&statement.postgres(), &[&set]).await?;
        work.commit().await
    }

    async fn kept_answer(
        &mut self,
        actor_ref: &str,
        key: &str,
        now: Time,
    ) -> Result<Option<IdempotencyRow>, StoreError> {
        let (mut work, ..) = self.begin().await?;
        let kept = work.query(RECALL, &[&[actor_ref].as_slice(), &[key].as_slice(), &now.0]).await?;
        work.commit().await?;
        kept.first().map(|row| decode::idempotency_row(row)).transpose()
    }

    async fn keep_answer(&mut self, row: &IdempotencyRow, now: Time) -> Result<(), StoreError> {
        let (mut work, ..) = self.begin().await?;
        let digest = row.request_digest.0.as_slice();
        let (actors, keys, digests) = ([row.actor_ref.as_str()], [row.key.as_str()], [digest]);
        let (answers, expiries, instances) = ([row.answer.as_str()], [row.expires_at.0], [row.instance_id.0]);
        let (actors, keys, digests) = (actors.as_slice(), keys.as_slice(), digests.as_slice());
        let (answers, expiries, instances) = (answers.as_slice(), expiries.as_slice(), instances.as_slice());
        work.query(INSERT_KEYS, &[&actors, &keys, &digests, &answers, &expiries, &now.0, &instances]).await?;
        work.commit().await
    }
}
