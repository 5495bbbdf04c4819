//! Workers and lag (seed 003, 7.3, 7.5 and 7.6): who is not heard of is a problem until a successful tick, a frozen class claims
//! nothing and does not heal, and what waits for too long is a problem until it is in time again.

use anyhow::{Context, bail, ensure};
use countersign_definition::Cel;
use countersign_engine::monitor::{ClassView, LagThresholds, Thresholds, WorkerState};
use countersign_engine::port::{Page, ProblemQuery};
use countersign_engine::rows::ProblemRow;
use countersign_engine::{ClaimCall, Command, Config, Engine, LogConfig, Proof, Task};
use countersign_kernel::governance::Category;
use countersign_kernel::refusal::Code;
use countersign_kernel::registry::{self, ClassMark, ClassMarked};
use countersign_testing::hands::{Hand, LEASE, SECOND, call, complete, publish, start};
use countersign_testing::on_both;
use countersign_testing::place::{ADMIN, Kind, Place, close};
use std::sync::Arc;
use std::time::Duration;

on_both! {
    a_silent_class_is_a_problem_until_a_successful_tick,
    a_frozen_class_claims_nothing_and_does_not_heal,
    a_worker_that_says_goodbye_makes_nothing_silent,
    a_lease_keeps_its_worker_from_being_silent,
    an_idle_fleet_is_one_write_and_its_silence_one_problem,
    what_waits_too_long_is_a_problem_until_it_is_in_time,
    old_workers_and_minutes_go,
}

const PLAIN: &str = "kind: workflow\nname: plain\nqueue: orders\nsteps: [{name: A}, {name: B, dependsOn: [A]}]\n";
const CLASS: &str = "orders:shop";
const SHOP: &str = "shop:host7:1";

fn config(hand: &Hand) -> Config {
    Config {
        language: Arc::new(Cel::default()),
        log: Some(LogConfig::new([7; 32])),
        clock: hand.clock(),
        ..Config::default()
    }
}

async fn claim(engine: &Engine, worker_id: &str, lease: i64) -> anyhow::Result<Vec<Task>> {
    let claim = ClaimCall { queue: "orders".into(), worker_id: worker_id.into(), max: 10, lease };
    Ok(engine.claim(ADMIN, Proof::InProcess, claim, Duration::ZERO).await?)
}

async fn mark(engine: &Engine, mark: ClassMark, by: &str) -> Result<(), countersign_kernel::refusal::Refusal> {
    let marked = ClassMarked { mark, worker_class: CLASS.to_owned(), reason: "it is being repaired".to_owned() };
    let mut call = call(Command::Registry(registry::Command::MarkWorkerClass(marked)));
    by.clone_into(&mut call.actor_ref);
    engine.execute(call).await.map(|_| ())
}

/// Writes, observes and weighs, as a server does every few seconds.
async fn watch(engine: &Engine) -> anyhow::Result<()> {
    engine.write_monitor().await?;
    engine.observe_monitor().await?;
    engine.weigh_signals().await?;
    Ok(())
}

async fn problems(engine: &Engine, category: Category, open: bool) -> anyhow::Result<Vec<ProblemRow>> {
    let page = Page { after: None, limit: 100, descending: false };
    Ok(engine.problems(ADMIN, &ProblemQuery { category, open: Some(open) }, &page).await?)
}

async fn silent(engine: &Engine) -> anyhow::Result<usize> {
    Ok(problems(engine, Category::SilentWorkers, true).await?.len())
}

async fn class(engine: &Engine, name: &str) -> anyhow::Result<ClassView> {
    let classes = engine.worker_classes(ADMIN).await?;
    classes.into_iter().find(|class| class.worker_class == name).context("the class is known")
}

async fn sound(engine: &Engine) -> anyhow::Result<()> {
    let report = engine.verify_log(ADMIN, None, &mut |_, _| {}).await?;
    ensure!(report.findings.is_empty(), "{:?}", report.findings);
    Ok(())
}

async fn a_silent_class_is_a_problem_until_a_successful_tick(kind: Kind) -> anyhow::Result<()> {
    let (place, hand) = (Place::new(kind).await?, Hand::default());
    let engine = place.engine(config(&hand)).await?;
    publish(&engine, PLAIN).await?;
    claim(&engine, SHOP, LEASE).await?;
    claim(&engine, "other", LEASE).await?;
    watch(&engine).await?;
    ensure!(class(&engine, CLASS).await?.state == WorkerState::Ok);
    ensure!(class(&engine, "orders:worker").await?.count == 1, "its id says no kind");
    hand.turn(59 * SECOND);
    watch(&engine).await?;
    ensure!(silent(&engine).await? == 0, "not yet");
    hand.turn(2 * SECOND);
    // One worker that is heard of is enough for its class.
    claim(&engine, "another", LEASE).await?;
    watch(&engine).await?;
    let [problem] = &problems(&engine, Category::SilentWorkers, true).await?[..] else { bail!("one class is silent") };
    ensure!(problem.problem.subject.worker_class.as_deref() == Some(CLASS), "{problem:?}");
    let view = class(&engine, CLASS).await?;
    ensure!(view.state == WorkerState::Silent && view.workers[0].state == WorkerState::Silent, "{view:?}");
    watch(&engine).await?;
    ensure!(silent(&engine).await? == 1, "it does not heal by itself");
    hand.turn(SECOND);
    claim(&engine, "shop:host8:1", LEASE).await?;
    claim(&engine, "other", LEASE).await?;
    watch(&engine).await?;
    ensure!(silent(&engine).await? == 0);
    let [healed] = &problems(&engine, Category::SilentWorkers, false).await?[..] else { bail!("one problem") };
    ensure!(healed.problem.problem_id == problem.problem.problem_id && healed.resolved.is_some());
    sound(&engine).await?;
    close(engine).await?;
    place.remove().await
}

/// "Silent worker auto-resume blocked until heartbeat caller has emitted ≥1 successful tick AND the worker class flag is not frozen."
async fn a_frozen_class_claims_nothing_and_does_not_heal(kind: Kind) -> anyhow::Result<()> {
    let (place, hand) = (Place::new(kind).await?, Hand::default());
    let engine = place.engine(config(&hand)).await?;
    publish(&engine, PLAIN).await?;
    let refused = mark(&engine, ClassMark::Frozen, "nobody").await.err().context("it was taken: without a scope")?;
    ensure!(refused.code == Code::PermissionDenied, "{refused}");
    claim(&engine, SHOP, LEASE).await?;
    watch(&engine).await?;
    hand.turn(61 * SECOND);
    watch(&engine).await?;
    ensure!(silent(&engine).await? == 1);
    mark(&engine, ClassMark::Frozen, ADMIN).await?;
    mark(&engine, ClassMark::Frozen, ADMIN).await?;
    start(&engine, "plain", "{}").await?;
    hand.turn(SECOND);
    ensure!(claim(&engine, SHOP, LEASE).await?.is_empty(), "a frozen class is handed nothing");
    watch(&engine).await?;
    ensure!(silent(&engine).await? == 1, "asking is no successful tick");
    ensure!(class(&engine, CLASS).await?.state == WorkerState::Frozen);
    // Another kind of worker has the same queue for itself.
    let task = claim(&engine, "batch:1", LEASE).await?.pop().context("a task")?;
    hand.turn(SECOND);
    mark(&engine, ClassMark::Thawed, ADMIN).await?;
    watch(&engine).await?;
    ensure!(silent(&engine).await? == 1, "thawed, it still has to tick");
    hand.turn(SECOND);
    complete(&engine, &task, false).await?;
    let task = claim(&engine, SHOP, LEASE).await?.pop().context("the next step")?;
    watch(&engine).await?;
    ensure!(silent(&engine).await? == 0);
    // What it works on it may finish; what follows goes to others.
    start(&engine, "plain", "{}").await?;
    mark(&engine, ClassMark::Frozen, ADMIN).await?;
    complete(&engine, &task, true).await?;
    ensure!(claim(&engine, SHOP, LEASE).await?.is_empty());
    ensure!(claim(&engine, "batch:1", LEASE).await?.len() == 1, "it was left for this one");
    // However long it is frozen, it is not called silent; and not right after it was thawed either.
    hand.turn(600 * SECOND);
    watch(&engine).await?;
    mark(&engine, ClassMark::Thawed, ADMIN).await?;
    watch(&engine).await?;
    let open = problems(&engine, Category::SilentWorkers, true).await?;
    ensure!(open.iter().all(|row| row.problem.subject.key != CLASS), "{open:?}");
    sound(&engine).await?;
    close(engine).await?;
    place.remove().await
}

async fn a_worker_that_says_goodbye_makes_nothing_silent(kind: Kind) -> anyhow::Result<()> {
    let (place, hand) = (Place::new(kind).await?, Hand::default());
    let engine = place.engine(config(&hand)).await?;
    publish(&engine, PLAIN).await?;
    claim(&engine, SHOP, LEASE).await?;
    claim(&engine, "shop:host8:1", LEASE).await?;
    watch(&engine).await?;
    ensure!(class(&engine, CLASS).await?.count == 2);
    let refused = engine.leave_queue("nobody", "orders", SHOP).await.err().context("it was taken: without a scope")?;
    ensure!(refused.code == Code::PermissionDenied, "{refused}");
    engine.leave_queue(ADMIN, "orders", SHOP).await?;
    engine.leave_queue(ADMIN, "orders", "shop:host8:1").await?;
    watch(&engine).await?;
    ensure!(engine.worker_classes(ADMIN).await?.is_empty());
    hand.turn(3600 * SECOND);
    watch(&engine).await?;
    ensure!(silent(&engine).await? == 0);
    // A class that is silent may be ended so, too: its goodbye was heard.
    claim(&engine, SHOP, LEASE).await?;
    watch(&engine).await?;
    hand.turn(61 * SECOND);
    watch(&engine).await?;
    ensure!(silent(&engine).await? == 1);
    hand.turn(SECOND);
    engine.leave_queue(ADMIN, "orders", SHOP).await?;
    watch(&engine).await?;
    ensure!(silent(&engine).await? == 0 && engine.worker_classes(ADMIN).await?.is_empty());
    sound(&engine).await?;
    close(engine).await?;
    place.remove().await
}

async fn a_lease_keeps_its_worker_from_being_silent(kind: Kind) -> anyhow::Result<()> {
    let (place, hand) = (Place::new(kind).await?, Hand::default());
    let engine = place.engine(config(&hand)).await?;
    publish(&engine, PLAIN).await?;
    start(&engine, "plain", "{}").await?;
    let task = claim(&engine, SHOP, 600 * SECOND).await?.pop().context("a task")?;
    hand.turn(500 * SECOND);
    watch(&engine).await?;
    ensure!(silent(&engine).await? == 0, "its lease says that it is at work");
    complete(&engine, &task, false).await?;
    watch(&engine).await?;
    let view = class(&engine, CLASS).await?;
    ensure!((view.work.jobs, view.work.errors, view.work.events.len()) == (1, 0, 1), "{view:?}");
    hand.turn(200 * SECOND);
    watch(&engine).await?;
    ensure!(silent(&engine).await? == 1, "now its lease would have ended");
    close(engine).await?;
    place.remove().await
}

async fn an_idle_fleet_is_one_write_and_its_silence_one_problem(kind: Kind) -> anyhow::Result<()> {
    let (place, hand) = (Place::new(kind).await?, Hand::default());
    let engine = place.engine(config(&hand)).await?;
    publish(&engine, PLAIN).await?;
    for n in 0..1000 {
        claim(&engine, &format!("shop:{n}"), LEASE).await?;
    }
    ensure!(place.texts("SELECT worker_id FROM worker_heartbeats").await?.is_empty(), "nothing is written for a claim");
    watch(&engine).await?;
    ensure!(place.texts("SELECT worker_id FROM worker_heartbeats").await?.len() == 1000);
    // What the store knows well enough is not written again.
    place.sql("DELETE FROM worker_heartbeats").await?;
    hand.turn(5 * SECOND);
    for n in 0..1000 {
        claim(&engine, &format!("shop:{n}"), LEASE).await?;
    }
    engine.write_monitor().await?;
    ensure!(place.texts("SELECT worker_id FROM worker_heartbeats").await?.is_empty());
    hand.turn(10 * SECOND);
    for n in 0..1000 {
        claim(&engine, &format!("shop:{n}"), LEASE).await?;
    }
    watch(&engine).await?;
    ensure!(place.texts("SELECT worker_id FROM worker_heartbeats").await?.len() == 1000);
    hand.turn(61 * SECOND);
    engine.observe_monitor().await?;
    let signals = place.texts("SELECT key FROM problem_signals WHERE category = 'silent_workers'").await?;
    ensure!(signals == [CLASS], "a thousand silent workers are one signal: {signals:?}");
    engine.weigh_signals().await?;
    ensure!(silent(&engine).await? == 1);
    let view = class(&engine, CLASS).await?;
    ensure!(view.count == 1000 && view.workers.len() == 100, "{}", view.count);
    close(engine).await?;
    place.remove().await
}

async fn what_waits_too_long_is_a_problem_until_it_is_in_time(kind: Kind) -> anyhow::Result<()> {
    let (place, hand) = (Place::new(kind).await?, Hand::default());
    let strict = LagThresholds { p95_us: Some(5 * SECOND), ..LagThresholds::default() };
    let thresholds = Thresholds {
        lag: LagThresholds::default(),
        lag_of: [("ready->orders".to_owned(), strict)].into(),
        ..Thresholds::default()
    };
    let engine = place.engine(Config { thresholds, ..config(&hand) }).await?;
    publish(&engine, PLAIN).await?;
    start(&engine, "plain", "{}").await?;
    hand.turn(8 * SECOND);
    let task = claim(&engine, SHOP, LEASE).await?.pop().context("a task")?;
    watch(&engine).await?;
    let [problem] = &problems(&engine, Category::EventLag, true).await?[..] else { bail!("it waited for 8 s") };
    ensure!(problem.problem.subject.key == "ready->orders", "{problem:?}");
    let lag = engine.read_lag(ADMIN, 3600 * SECOND).await?;
    let pair = lag.pairs.iter().find(|pair| *pair.consumer == *"orders").context("the pair")?;
    ensure!(pair.is_open && pair.is_late() && pair.count == 1 && pair.points.len() == 1, "{pair:?}");
    ensure!((8 * SECOND..=9 * SECOND).contains(&pair.percentiles.p95_us), "{pair:?}");
    let refused = engine.read_lag(ADMIN, SECOND).await.err().context("it was taken: too short")?;
    ensure!(refused.code == Code::InvalidQuery, "{refused}");
    // Nothing arrived since: nothing is known.
    hand.turn(600 * SECOND);
    watch(&engine).await?;
    ensure!(problems(&engine, Category::EventLag, true).await?.len() == 1);
    ensure!(place.texts("SELECT consumer FROM lag_minutes WHERE producer = 'ready'").await? == ["orders"]);
    ensure!(complete(&engine, &task, false).await.is_err(), "its lease is over");
    start(&engine, "plain", "{}").await?;
    claim(&engine, SHOP, LEASE).await?;
    hand.turn(61 * SECOND);
    watch(&engine).await?;
    let later = engine.read_lag(ADMIN, 3600 * SECOND).await?;
    let pair = later.pairs.iter().find(|pair| *pair.consumer == *"orders").context("the pair")?;
    ensure!(pair.points.len() >= 2, "the trend has a point for each part in which something arrived: {pair:?}");
    sound(&engine).await?;
    close(engine).await?;
    place.remove().await
}

async fn old_workers_and_minutes_go(kind: Kind) -> anyhow::Result<()> {
    let (place, hand) = (Place::new(kind).await?, Hand::default());
    let engine = place.engine(config(&hand)).await?;
    publish(&engine, PLAIN).await?;
    start(&engine, "plain", "{}").await?;
    claim(&engine, SHOP, LEASE).await?;
    claim(&engine, "batch:1", LEASE).await?;
    watch(&engine).await?;
    // The lease of the shop has to end, too.
    hand.turn(600 * SECOND);
    engine.leave_queue(ADMIN, "orders", "batch:2").await?;
    watch(&engine).await?;
    ensure!(silent(&engine).await? == 2);
    hand.turn(SECOND);
    claim(&engine, "batch:3", LEASE).await?;
    watch(&engine).await?;
    ensure!(silent(&engine).await? == 1, "only the shop is silent");
    hand.turn(25 * 3600 * SECOND);
    engine.forget_monitor().await?;
    let left = place.texts("SELECT worker_id FROM worker_heartbeats ORDER BY worker_id").await?;
    ensure!(left == [SHOP], "those of a class that is silent stay: {left:?}");
    ensure!(!place.texts("SELECT consumer FROM lag_minutes").await?.is_empty(), "minutes are kept for a month");
    hand.turn(32 * 24 * 3600 * SECOND);
    engine.forget_monitor().await?;
    ensure!(place.texts("SELECT consumer FROM lag_minutes").await?.is_empty());
    close(engine).await?;
    place.remove().await
}

/// Two servers: a class that is frozen at one claims nothing at the other, and a worker that the other one hears is not silent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_frozen_on_one_node_is_frozen_on_all() -> anyhow::Result<()> {
    let place = Place::new(Kind::Postgres).await?;
    let hand = Hand::default();
    let (here, there) = (place.engine(config(&hand)).await?, place.engine(config(&hand)).await?);
    publish(&here, PLAIN).await?;
    there.refresh_registry().await?;
    start(&there, "plain", "{}").await?;
    // The other node has not heard of it yet: the fence tells it.
    mark(&here, ClassMark::Frozen, ADMIN).await?;
    ensure!(claim(&there, SHOP, LEASE).await?.is_empty(), "it holds at once");
    // What it had been offered is put back.
    there.tick().await;
    ensure!(claim(&there, "batch:1", LEASE).await?.len() == 1);
    mark(&here, ClassMark::Thawed, ADMIN).await?;
    there.refresh_registry().await?;
    claim(&there, SHOP, LEASE).await?;
    claim(&here, "shop:host8:1", LEASE).await?;
    watch(&there).await?;
    watch(&here).await?;
    ensure!(class(&here, CLASS).await?.count == 2);
    hand.turn(61 * SECOND);
    claim(&there, SHOP, LEASE).await?;
    there.write_monitor().await?;
    watch(&here).await?;
    let open = problems(&here, Category::SilentWorkers, true).await?;
    ensure!(open.iter().all(|row| row.problem.subject.key != CLASS), "{open:?}");
    hand.turn(61 * SECOND);
    let (one, other) = tokio::join!(watch(&here), watch(&there));
    one?;
    other?;
    let open = problems(&here, Category::SilentWorkers, true).await?;
    ensure!(open.iter().filter(|row| row.problem.subject.key == CLASS).count() == 1, "opened once: {open:?}");
    sound(&here).await?;
    close(here).await?;
    close(there).await?;
    place.remove().await
}
