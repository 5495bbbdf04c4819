//! A wall clock that is set, ahead and back, stops nothing and expires nothing (ADR 32): leases, waits, retries, time
//! limits and schedules go on by the time that passes, records never go back, and a restart changes nothing about that.

use anyhow::{Context, ensure};
use countersign_definition::Cel;
use countersign_engine::clock::HOLD_US;
use countersign_engine::port::{Page, RecordQuery};
use countersign_engine::{Config, Engine, Task};
use countersign_kernel::{InstanceId, run};
use countersign_server::schedule::Ticker;
use countersign_testing::hands::{Hand, LEASE, SECOND, claim, on_run, publish, start, state, task_ref};
use countersign_testing::on_both;
use countersign_testing::place::{ADMIN, Kind, Place, close};
use std::sync::Arc;
use std::time::Duration;

on_both! {
    a_clock_that_was_ahead_once_stops_nothing,
    a_jump_that_is_set_right_expires_nothing,
    a_restart_goes_on_from_the_newest_record,
    schedules_go_on_after_a_jump,
}

const MONTH: i64 = 30 * 86_400 * SECOND;
const SHORT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(15);

fn config(hand: &Hand) -> Config {
    Config { language: Arc::new(Cel::default()), clock: hand.clock(), ..Config::default() }
}

fn workflow(name: &str, rest: &str) -> String {
    format!("kind: workflow\nname: {name}\nqueue: q\n{rest}")
}

/// The wall clock goes ahead and stays there until the engine follows; then it is set right.
async fn ahead_and_back(engine: &Engine, hand: &Hand) {
    hand.set(MONTH);
    engine.tick().await;
    hand.turn(HOLD_US);
    engine.tick().await;
    hand.turn(SECOND);
    engine.tick().await;
}

/// A little more than this long, whichever rate the engine's time goes at.
async fn pass(engine: &Engine, hand: &Hand, us: i64) {
    hand.turn(us + us / 8 + SECOND);
    engine.tick().await;
}

async fn one(engine: &Engine) -> anyhow::Result<Task> {
    claim(engine, 1, LEASE, LONG).await?.pop().context("nothing to do")
}

async fn none(engine: &Engine) -> anyhow::Result<()> {
    let tasks = claim(engine, 1, LEASE, SHORT).await?;
    ensure!(tasks.is_empty(), "{tasks:?}");
    Ok(())
}

async fn times(engine: &Engine, run_id: InstanceId) -> anyhow::Result<Vec<i64>> {
    let query = RecordQuery { instance_id: Some(run_id), ..RecordQuery::default() };
    let page = Page { after: None, limit: 1000, descending: false };
    let records = engine.read_records(ADMIN, &query, &page).await?;
    Ok(records.iter().map(|record| record.recorded_at.0).collect())
}

async fn a_clock_that_was_ahead_once_stops_nothing(kind: Kind) -> anyhow::Result<()> {
    let (place, hand) = (Place::new(kind).await?, Hand::default());
    let engine = place.engine(config(&hand)).await?;
    publish(
        &engine,
        &workflow("one", "steps: [{name: A, retryPolicy: {maxRetries: 5, backoff: constant, initialDelay: 5s}}]\n"),
    )
    .await?;
    publish(
        &engine,
        &workflow("limited", "timeout: 1h\nqueue: other\nsteps: [{name: A}]\n").replacen("queue: q\n", "", 1),
    )
    .await?;
    ahead_and_back(&engine, &hand).await;
    hand.set(-MONTH);
    ensure!(engine.clock().ahead_of_wall_us() > MONTH / 2, "it followed, and does not go back");

    let run_id = start(&engine, "one", "{}").await?;
    let limited = start(&engine, "limited", "{}").await?;
    one(&engine).await?;
    none(&engine).await?;
    pass(&engine, &hand, LEASE).await;
    let task = one(&engine).await.context("the lease did not end")?;
    let retry = run::Command::Retry { task: task_ref(&task), error: "busy".to_owned(), backoff: None, category: None };
    engine.execute(on_run(run_id, retry)).await?;
    none(&engine).await?;
    pass(&engine, &hand, 5 * SECOND).await;
    let task = one(&engine).await.context("the retry did not come")?;
    let wait = run::Command::Wait {
        task: task_ref(&task),
        event_type: Some("never".to_owned()),
        timeout: Some(60 * SECOND),
        facets: vec![],
        outbound: vec![],
    };
    engine.execute(on_run(run_id, wait)).await?;
    none(&engine).await?;
    pass(&engine, &hand, 60 * SECOND).await;
    one(&engine).await.context("the wait did not end")?;
    pass(&engine, &hand, 3600 * SECOND).await;
    ensure!(state(&engine, limited).await? == "failed", "{}", state(&engine, limited).await?);

    let times = times(&engine, run_id).await?;
    ensure!(times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
    let lasted = times.last().context("records")? - times[0];
    ensure!(lasted >= LEASE + 65 * SECOND, "the records span {lasted} µs: they got one time");
    close(engine).await?;
    place.remove().await
}

async fn a_jump_that_is_set_right_expires_nothing(kind: Kind) -> anyhow::Result<()> {
    let (place, hand) = (Place::new(kind).await?, Hand::default());
    let engine = place.engine(config(&hand)).await?;
    publish(&engine, &workflow("one", "steps: [{name: A}]\n")).await?;
    start(&engine, "one", "{}").await?;
    one(&engine).await?;
    for by in [MONTH, -MONTH, -MONTH, MONTH] {
        hand.set(by);
        hand.turn(SECOND);
        engine.tick().await;
        none(&engine).await?;
    }
    ensure!(engine.clock().ahead_of_wall_us().abs() < SECOND, "{}", engine.clock().ahead_of_wall_us());
    pass(&engine, &hand, LEASE).await;
    one(&engine).await.context("the lease did not end")?;
    close(engine).await?;
    place.remove().await
}

async fn a_restart_goes_on_from_the_newest_record(kind: Kind) -> anyhow::Result<()> {
    let (place, hand) = (Place::new(kind).await?, Hand::default());
    let engine = place.engine(config(&hand)).await?;
    publish(&engine, &workflow("one", "steps: [{name: A}]\n")).await?;
    ahead_and_back(&engine, &hand).await;
    let run_id = start(&engine, "one", "{}").await?;
    one(&engine).await?;
    let before = engine.now();
    close(engine).await?;
    hand.set(-MONTH);

    let engine = place.engine(config(&hand)).await?;
    ensure!(engine.now().0 > before.0 - 2 * SECOND, "time went back by {} µs", before.0 - engine.now().0);
    none(&engine).await?;
    pass(&engine, &hand, LEASE).await;
    one(&engine).await.context("the lease did not end after a restart")?;
    pass(&engine, &hand, LEASE).await;
    one(&engine).await.context("the next lease did not end")?;
    let times = times(&engine, run_id).await?;
    ensure!(times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
    close(engine).await?;
    place.remove().await
}

async fn schedules_go_on_after_a_jump(kind: Kind) -> anyhow::Result<()> {
    let (place, hand) = (Place::new(kind).await?, Hand::default());
    let engine = place.engine(config(&hand)).await?;
    let every_minute = "schedule: [{cron: \"* * * * *\", overlap: allow}]\nsteps: [{name: A}]\n";
    publish(&engine, &workflow("clocked", every_minute)).await?;
    let mut ticker = Ticker::default();
    ticker.look(&engine).await;
    ahead_and_back(&engine, &hand).await;
    ticker.look(&engine).await;
    hand.set(-MONTH);
    while !claim(&engine, 10, LEASE, SHORT).await?.is_empty() {}
    for _ in 0..3 {
        hand.turn(66 * SECOND);
        ticker.look(&engine).await;
    }
    let started = claim(&engine, 10, LEASE, LONG).await?;
    ensure!((3..=4).contains(&started.len()), "{} runs in three minutes", started.len());
    close(engine).await?;
    place.remove().await
}

/// A node whose clock is a month ahead dies; the other one goes on with what it left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_recovers_what_one_with_a_clock_ahead_has_left() -> anyhow::Result<()> {
    let (place, hand, ahead) = (Place::new(Kind::Postgres).await?, Hand::default(), Hand::default());
    ahead.set(MONTH);
    let there = place.engine(config(&ahead)).await?;
    publish(&there, &workflow("one", "order: dag\nsteps: [{name: A}, {name: B}]\n")).await?;
    let here = place.engine(config(&hand)).await?;
    let run_id = start(&there, "one", "{}").await?;
    ensure!(claim(&there, 2, LEASE, LONG).await?.len() == 2);
    close(there).await?;

    // By its records: when they are read, and by whoever opens the store.
    here.execute(on_run(run_id, run::Command::Pause { reason: Some("for now".to_owned()) })).await?;
    here.execute(on_run(run_id, run::Command::Resume { approval_id: None, reason: None })).await?;
    ensure!(here.clock().ahead_of_wall_us() > MONTH - SECOND);
    pass(&here, &hand, LEASE).await;
    ensure!(claim(&here, 2, LEASE, LONG).await?.len() == 2, "the leases did not end");
    close(here).await?;
    let here = place.engine(config(&hand)).await?;
    pass(&here, &hand, LEASE).await;
    ensure!(claim(&here, 2, LEASE, LONG).await?.len() == 2, "the leases did not end after a restart");
    close(here).await?;
    place.remove().await
}
