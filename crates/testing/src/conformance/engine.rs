//! Through the engine: a call that the store rejects fails without its neighbours.

use crate::load::client::{let_do, told, view};
use crate::load::shapes::{shape, single};
use crate::load::{Design, calls, client};
use crate::place::{Kind, Place, close, engine_on};
use crate::store_audit;
use anyhow::ensure;
use async_trait::async_trait;
use countersign_engine::port::{Batch, Committed, StoreError, Writer};
use countersign_engine::{Call, Config, Engine};
use countersign_kernel::process::Decision;
use countersign_store::tap::{Tap, Tapped};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

const POISON: &str = "poison";
const CALLS: usize = 20;

/// Holds the first commit back until the others wait behind it, and rejects what holds [`POISON`].
#[derive(Default)]
struct Poisoned {
    held: Notify,
    go: Notify,
    /// The largest batch that was rejected for it.
    largest: AtomicUsize,
}

#[async_trait]
impl Tap for Poisoned {
    async fn commit(&self, writer: &mut dyn Writer, batch: &Batch) -> Result<Committed, StoreError> {
        let holds = |text: &str| {
            let payloads = batch.units.iter().flat_map(|unit| &unit.records).filter_map(|row| row.record.payload());
            payloads.into_iter().any(|payload| String::from_utf8_lossy(payload).contains(text))
        };
        if holds("held back") {
            self.held.notify_one();
            self.go.notified().await;
        }
        if holds(POISON) {
            self.largest.fetch_max(batch.units.len(), Ordering::SeqCst);
            return Err(StoreError::Rejected("poison".to_owned()));
        }
        writer.commit(batch).await
    }
}

/// Gives the calls so that they wait together behind one that is held back.
async fn together(engine: &Arc<Engine>, tap: &Poisoned, first: Call, calls: Vec<Call>) -> Vec<&'static str> {
    let give = |call: Call| {
        let engine = engine.clone();
        tokio::spawn(async move { told(&engine, call).await })
    };
    let first = give(first);
    tap.held.notified().await;
    let waiting: Vec<_> = calls.into_iter().map(give).collect();
    // On this runtime every task has been begun, and has sent its call, when this one comes round again.
    tokio::task::yield_now().await;
    tap.go.notify_one();
    let mut answers = vec![first.await.unwrap_or("lost")];
    for task in waiting {
        answers.push(task.await.unwrap_or("lost"));
    }
    answers
}

fn design() -> Design {
    shape("plain", &["a go b sign"], &[("sign", single("bea"))])
}

/// Needs a runtime of one thread: see [`together`].
pub async fn one_bad_call_costs_its_neighbours_nothing(place: &Place) -> anyhow::Result<()> {
    let tap = Arc::new(Poisoned::default());
    let store = Tapped { inner: place.store().await?, tap: tap.clone() };
    let engine = engine_on(Box::new(store), Config::default()).await?;
    let_do(&engine, &["ines"]).await?;
    let design = design();
    let start = |n: usize| {
        let subject = if n == CALLS / 2 { POISON.to_owned() } else { format!("subject {n}") };
        calls::start("ines", &design, &subject, None)
    };
    let first = calls::start("ines", &design, "held back", None);
    let answers = together(&engine, &tap, first, (0..CALLS).map(start).collect()).await;
    let failed = answers.iter().filter(|answer| **answer == "recording-failure").count();
    ensure!(answers[1 + CALLS / 2] == "recording-failure" && failed == 1, "{answers:?}");
    ensure!(tap.largest.load(Ordering::SeqCst) > 1, "the bad call never had neighbours");

    if place.kind == Kind::Postgres {
        a_reason_that_postgresql_cannot_store(&engine, &design).await?;
    }
    close(engine).await?;
    let summary = store_audit::require_sound(&place.url).await?;
    ensure!(summary.processes >= CALLS, "{summary}");
    Ok(())
}

/// U+0000 is no text to PostgreSQL; the call fails and leaves nothing, its own instance included.
async fn a_reason_that_postgresql_cannot_store(engine: &Arc<Engine>, design: &Design) -> anyhow::Result<()> {
    let process = client::started(engine, "ines", design).await?;
    client::opened(engine, "ines", process, "go").await?;
    let bad = calls::decide("bea", process, "go", Decision::Approve, Some("a\0b"), None);
    let answer = told(engine, bad).await;
    ensure!(answer == "recording-failure" || answer == "invalid-request", "{answer}");
    ensure!(view(engine, process).await?.gates[0].1[0].0.ended.is_none());
    ensure!(told(engine, calls::approve("bea", process, "go")).await == "ok");
    ensure!(told(engine, calls::fire("ines", process, "go", None)).await == "ok");
    Ok(())
}
