//! What the engine promises beyond a single node and a single step: answers that were wrong once, or could be.

use async_trait::async_trait;
use countersign_engine::port::{Batch, Committed, StoreError, Writer};
use countersign_engine::{Config, Engine, Outcome};
use countersign_kernel::QuorumRule;
use countersign_kernel::process::Decision;
use countersign_store::tap::{Tap, Tapped};
use countersign_testing::load::client::{granted, let_do, opened, started, told, view};
use countersign_testing::load::shapes::{quorum, shape, single};
use countersign_testing::load::{ManualClock, calls};
use countersign_testing::place::{self, Kind, Place};
use countersign_testing::races::{self, Arena};
use countersign_testing::store_audit;
use std::sync::Arc;

async fn end(place: Place, engines: impl IntoIterator<Item = Arc<Engine>>) -> anyhow::Result<()> {
    for engine in engines {
        place::close(engine).await?;
    }
    store_audit::require_sound(&place.url).await?;
    place.remove().await
}

/// A node that has not heard of a gate yet must not take its steps for ended ones.
#[tokio::test]
async fn a_step_opened_on_another_node_can_be_decided_by_its_id() -> anyhow::Result<()> {
    let place = Place::new(Kind::Postgres).await?;
    let (here, there) = (place.engine(Config::default()).await?, place.engine(Config::default()).await?);
    let_do(&here, &["ines"]).await?;
    let design = shape("chain", &["a go b both"], &[("both", quorum(QuorumRule::AllOfN, &["bea", "cleo"]))]);
    let process = started(&here, "ines", &design).await?;
    // Now the other node holds the process as it was before the gate.
    assert_eq!(told(&there, calls::fire("ines", process, "go", None)).await, "gate-not-cleared");
    let steps = opened(&here, "ines", process, "go").await?;
    for (step, approver) in steps.iter().zip(["bea", "cleo"]) {
        let approve = calls::decide(approver, process, "go", Decision::Approve, None, calls::step(*step));
        assert_eq!(told(&there, approve).await, "ok", "{approver}");
        assert_eq!(told(&here, calls::fire("bea", process, "go", None)).await, "permission-denied");
    }
    assert_eq!(told(&there, calls::fire("ines", process, "go", None)).await, "ok");
    end(place, [here, there]).await
}

/// A late decision on a chain that was approved, spent and replaced says how that chain ended.
#[tokio::test]
async fn a_trailing_decision_tells_the_state_of_its_own_chain() -> anyhow::Result<()> {
    for kind in Kind::ALL {
        let place = Place::new(kind).await?;
        let engine = place.engine(Config::default()).await?;
        let_do(&engine, &["ines"]).await?;
        let gates = [("either", quorum(QuorumRule::OneOfN, &["bea", "cleo"]))];
        let design = shape("loop", &["a again a either", "a leave b"], &gates);
        let process = started(&engine, "ines", &design).await?;
        let first = opened(&engine, "ines", process, "again").await?;
        assert_eq!(told(&engine, calls::approve("bea", process, "again")).await, "ok");
        assert_eq!(told(&engine, calls::fire("ines", process, "again", None)).await, "ok");
        opened(&engine, "ines", process, "again").await?;
        let late = calls::decide("cleo", process, "again", Decision::Approve, None, calls::step(first[1]));
        let answer = engine.execute(late).await?;
        let Outcome::Decided { chain_state, .. } = answer else { panic!("{answer:?}") };
        assert_eq!(chain_state.as_deref(), Some("Approved"), "{kind}");
        end(place, [engine]).await?;
    }
    Ok(())
}

/// The steps that go with a withdrawn quorum do not claim that the workflow left its state.
#[tokio::test]
async fn a_withdrawn_quorum_does_not_tell_of_a_state_that_was_left() -> anyhow::Result<()> {
    let place = Place::new(Kind::Sqlite).await?;
    let engine = place.engine(Config::default()).await?;
    let_do(&engine, &["ines"]).await?;
    let design = shape("chain", &["a go b both"], &[("both", quorum(QuorumRule::AllOfN, &["bea", "cleo"]))]);
    let process = started(&engine, "ines", &design).await?;
    let steps = opened(&engine, "ines", process, "go").await?;
    let withdraw = calls::decide("ines", process, "go", Decision::Withdraw, Some("not now"), calls::step(steps[0]));
    assert_eq!(told(&engine, withdraw).await, "ok");
    let view = view(&engine, process).await?;
    assert_eq!(view.current_state, "a");
    let rest = view.gates[0].1[1].0.ended.as_ref().and_then(|end| end.reason.clone()).unwrap_or_default();
    assert!(!rest.contains("left"), "nothing was left, but the step says: {rest}");
    end(place, [engine]).await
}

/// What is decided under a grant is never recorded as earlier than the grant, however the clocks differ.
#[tokio::test]
async fn a_record_is_not_earlier_than_the_grant_it_rests_on() -> anyhow::Result<()> {
    let place = Place::new(Kind::Postgres).await?;
    let (early, late) = (ManualClock::default(), ManualClock::default());
    late.advance(3_600_000_000);
    let here = place.engine(Config { clock: late.clock(), ..Config::default() }).await?;
    let there = place.engine(Config { clock: early.clock(), ..Config::default() }).await?;
    let design = shape("plain", &["a go b sign"], &[("sign", single("bea"))]);
    for scope in calls::DOING {
        granted(&here, "ines", scope).await?;
    }
    // The other node learns of the grants by reading, not by writing.
    there.refresh_registry().await?;
    started(&there, "ines", &design).await?;
    end(place, [here, there]).await
}

/// The fence does not rest on the database's default isolation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_default_isolation_changes_nothing() -> anyhow::Result<()> {
    for isolation in ["repeatable read", "serializable"] {
        let place = Place::new(Kind::Postgres).await?;
        let set = format!("ALTER DATABASE %I SET default_transaction_isolation = ''{isolation}''");
        place.sql(&format!("DO $$ BEGIN EXECUTE format('{set}', current_database()); END $$")).await?;
        let arena = Arena::on(place, 2).await?;
        races::no_firing_after_a_revocation(&arena, 1, 5).await?;
        races::every_turn_of_a_loop_counts(&arena, 10).await?;
        races::random_clients(&arena, 1, 4, 100).await?;
        arena.end().await?;
    }
    Ok(())
}

/// Commits, and then fails as nothing should.
struct Panics;

#[async_trait]
impl Tap for Panics {
    async fn commit(&self, writer: &mut dyn Writer, batch: &Batch) -> Result<Committed, StoreError> {
        let committed = writer.commit(batch).await?;
        let subjects = batch.units.iter().flat_map(|unit| &unit.records).filter_map(|row| row.record.payload());
        assert!(!subjects.into_iter().any(|payload| String::from_utf8_lossy(payload).contains("fatal")), "as asked");
        Ok(committed)
    }
}

/// Whoever is not answered is not told that nothing was written: it may have been.
#[tokio::test]
async fn an_engine_that_dies_claims_nothing() -> anyhow::Result<()> {
    let place = Place::new(Kind::Sqlite).await?;
    let store = Tapped { inner: place.store().await?, tap: Arc::new(Panics) };
    let engine = place::engine_on(Box::new(store), Config::default()).await?;
    let_do(&engine, &["ines"]).await?;
    let design = shape("plain", &["a go b"], &[]);
    let refusal = engine.execute(calls::start("ines", &design, "fatal", None)).await.expect_err("no answer");
    assert_eq!(refusal.code.as_str(), "recording-failure");
    assert!(!refusal.detail.contains("nothing was written"), "{refusal}");
    // It says so as soon as its thread is gone.
    while engine.checks().await.iter().any(|check| check.name == "committer" && check.ok) {
        tokio::task::yield_now().await;
    }
    let refusal = engine.execute(calls::start("ines", &design, "later", None)).await.expect_err("nobody is there");
    assert!(refusal.detail.contains("nothing was written"), "{refusal}");
    drop(engine);
    assert_eq!(store_audit::require_sound(&place.url).await?.processes, 1);
    Ok(())
}

/// SQLite's lists of what is open may name what has ended, but neither for long nor after the store was opened again.
#[tokio::test]
async fn what_has_ended_is_taken_out_of_what_is_open() -> anyhow::Result<()> {
    let place = Place::new(Kind::Sqlite).await?;
    let engine = place.engine(Config::default()).await?;
    let_do(&engine, &["ines"]).await?;
    let design = shape("loop", &["a again a one", "a leave b"], &[("one", single("bea"))]);
    let process = started(&engine, "ines", &design).await?;
    for _ in 0..200 {
        opened(&engine, "ines", process, "again").await?;
        assert_eq!(told(&engine, calls::approve("bea", process, "again")).await, "ok");
        assert_eq!(told(&engine, calls::fire("ines", process, "again", None)).await, "ok");
    }
    let open = opened(&engine, "ines", process, "again").await?;
    let named = async |list: &str| place.texts(&format!("SELECT CAST(COUNT(*) AS TEXT) FROM {list}")).await;
    for list in ["steps_opened", "assignments_opened"] {
        let [count] = &named(list).await?[..] else { panic!("one count") };
        assert!((1..180).contains(&count.parse::<u32>()?), "{list}: {count}");
    }
    place::close(engine).await?;
    let engine = place.engine(Config::default()).await?;
    started(&engine, "ines", &design).await?;
    for list in ["steps_opened", "assignments_opened"] {
        assert_eq!(named(list).await?, ["1"], "{list}");
    }
    let approve = calls::decide("bea", process, "again", Decision::Approve, None, calls::step(open[0]));
    assert_eq!(told(&engine, approve).await, "ok");
    end(place, [engine]).await
}
