//! Commits that fail, in every form; the long form is `make torture`.

use anyhow::{Context, ensure};
use async_trait::async_trait;
use countersign_engine::Config;
use countersign_engine::port::{Batch, Committed, StoreError, Writer};
use countersign_kernel::refusal::Code;
use countersign_store::tap::{Tap, Tapped};
use countersign_testing::load::calls;
use countersign_testing::place::{Kind, Place, close, engine_on};
use countersign_testing::recording_failure::{
    backends_killed_under_load, connection_cut_at_any_byte, every_command_in_both_forms,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Once it is armed, a commit panics.
#[derive(Default)]
struct Panics(AtomicBool);

#[async_trait]
impl Tap for Panics {
    async fn commit(&self, writer: &mut dyn Writer, batch: &Batch) -> Result<Committed, StoreError> {
        assert!(!self.0.load(Ordering::SeqCst), "the panic that the test asked for");
        writer.commit(batch).await
    }
}

/// What a committer remembers that panicked cannot be trusted: nothing is committed any more, and `/readyz`, which is these
/// checks, says so.
async fn a_committer_that_panicked_is_not_ready(kind: Kind) -> anyhow::Result<()> {
    let (place, tap) = (Place::new(kind).await?, Arc::new(Panics::default()));
    let store = Tapped { inner: place.store().await?, tap: tap.clone() };
    let engine = engine_on(Box::new(store), Config::default()).await?;
    engine.execute(calls::grant("ines", "workflows:read")).await?;
    let blocks = async || engine.checks().await.iter().any(|check| check.name == "committer" && check.blocks());
    ensure!(!blocks().await, "{:?}", engine.checks().await);
    tap.0.store(true, Ordering::SeqCst);
    let answer = engine.execute(calls::grant("ines", "workflows:fire")).await;
    ensure!(answer.as_ref().is_err_and(|refusal| refusal.code == Code::RecordingFailure), "{answer:?}");
    let fallen = async {
        while !blocks().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), fallen).await.context("the committer is said to be running")?;
    tap.0.store(false, Ordering::SeqCst);
    let answer = engine.execute(calls::grant("ines", "workflows:fire")).await;
    ensure!(answer.as_ref().is_err_and(|refusal| refusal.code == Code::RecordingFailure), "{answer:?}");
    close(engine).await?;
    place.remove().await
}

countersign_testing::on_both! {
    a_committer_that_panicked_is_not_ready,
}

#[tokio::test]
async fn both_forms_of_failure_on_sqlite() -> anyhow::Result<()> {
    let place = Place::new(Kind::Sqlite).await?;
    every_command_in_both_forms(&place).await?;
    place.remove().await
}

#[tokio::test]
async fn both_forms_of_failure_on_postgres() -> anyhow::Result<()> {
    let place = Place::new(Kind::Postgres).await?;
    every_command_in_both_forms(&place).await?;
    place.remove().await
}

/// The answer is found out: a commit that took place is acknowledged although its answer was lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_may_be_cut_at_any_byte() -> anyhow::Result<()> {
    for seed in 1..=2 {
        let cuts = connection_cut_at_any_byte(seed, 100).await?;
        println!("{cuts:?}");
        assert!(cuts.cut > 50 && cuts.found_out > 10, "{cuts:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backends_may_be_killed_at_any_moment() -> anyhow::Result<()> {
    let account = backends_killed_under_load(1, 40).await?;
    println!("{account:?}");
    assert!(account.acknowledged > 100, "{account:?}");
    Ok(())
}
