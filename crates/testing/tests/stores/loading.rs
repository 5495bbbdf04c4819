//! A start with much to do: calls are served at once, nothing is loaded that nobody needs yet, and nothing is forgotten.
//! Everything is counted, nothing is timed.

use anyhow::{Context, ensure};
use async_trait::async_trait;
use countersign_definition::Cel;
use countersign_engine::port::{Batch, Committed, StoreError, Writer};
use countersign_engine::{Command, Config, Engine, Target};
use countersign_kernel::run;
use countersign_store::tap::{Tap, Tapped};
use countersign_testing::hands::{Hand, LEASE, SECOND, call, claim, complete, on_run, publish, run_of, start};
use countersign_testing::on_both;
use countersign_testing::place::{Kind, Place, close, engine_on};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

on_both! {
    a_start_with_many_ready_runs_serves_at_once,
    work_is_handed_out_by_priority_after_a_start,
    what_is_asked_for_now_goes_before_the_backlog,
    leases_of_before_the_start_end_behind_ready_work,
    large_runs_do_not_stay_in_memory,
    one_batch_loads_no_more_than_fits,
    definitions_do_not_stay_in_memory,
}

/// Runs that are ready when the engine starts: so many pages of what the store says is due.
const RUNS: usize = 3000;
const PAGE: usize = 500;
const LONG: Duration = Duration::from_secs(30);

#[derive(Default)]
struct Counts {
    loaded: AtomicUsize,
    rows: AtomicUsize,
    rows_at_commit: AtomicUsize,
    loaded_at_commit: AtomicUsize,
    /// Pages of what is due that were read, and whether a test lets only the first one be read.
    pages: AtomicUsize,
    one_page: AtomicBool,
}

#[async_trait]
impl Tap for Counts {
    async fn commit(&self, writer: &mut dyn Writer, batch: &Batch) -> Result<Committed, StoreError> {
        self.rows_at_commit.store(self.rows.load(Ordering::SeqCst), Ordering::SeqCst);
        self.loaded_at_commit.store(self.loaded.load(Ordering::SeqCst), Ordering::SeqCst);
        writer.commit(batch).await
    }

    fn loaded(&self, instances: usize) {
        self.loaded.fetch_add(instances, Ordering::SeqCst);
    }

    fn looks(&self) -> Result<(), StoreError> {
        match self.pages.fetch_add(1, Ordering::SeqCst) {
            1.. if self.one_page.load(Ordering::SeqCst) => Err(StoreError::Transient("not now".to_owned())),
            _ => Ok(()),
        }
    }

    fn found_due(&self, rows: usize) {
        self.rows.fetch_add(rows, Ordering::SeqCst);
    }
}

fn config(hand: &Hand) -> Config {
    Config { language: Arc::new(Cel::default()), clock: hand.clock(), ..Config::default() }
}

fn workflow(name: &str, head: &str) -> String {
    format!("kind: workflow\nname: {name}\nqueue: q\n{head}steps: [{{name: A}}]\n")
}

async fn start_many(engine: &Arc<Engine>, name: &str, count: usize) -> anyhow::Result<()> {
    let mut started = tokio::task::JoinSet::new();
    for _ in 0..count {
        let (engine, name) = (engine.clone(), name.to_owned());
        started.spawn(async move { start(&engine, &name, "{}").await });
        if started.len() >= 200 {
            started.join_next().await.context("a run")???;
        }
    }
    while let Some(started) = started.join_next().await {
        started??;
    }
    Ok(())
}

async fn reopened(place: &Place, hand: &Hand) -> anyhow::Result<(Arc<Counts>, Arc<Engine>)> {
    let counts = Arc::new(Counts::default());
    let store = Box::new(Tapped { inner: place.store().await?, tap: counts.clone() });
    Ok((counts, engine_on(store, config(hand)).await?))
}

async fn a_start_with_many_ready_runs_serves_at_once(kind: Kind) -> anyhow::Result<()> {
    let (place, hand) = (Place::new(kind).await?, Hand::default());
    let engine = place.engine(config(&hand)).await?;
    publish(&engine, &workflow("one", "")).await?;
    start_many(&engine, "one", RUNS).await?;
    close(engine).await?;

    let (counts, engine) = reopened(&place, &hand).await?;
    let before = counts.rows.load(Ordering::SeqCst);
    start(&engine, "one", "{}").await?;
    let read = counts.rows_at_commit.load(Ordering::SeqCst) - before;
    ensure!(read <= 2 * PAGE, "{read} rows were read before the first commit");
    ensure!(counts.loaded_at_commit.load(Ordering::SeqCst) == 0, "runs were loaded before the first commit");

    let mut done = BTreeSet::new();
    while done.len() <= RUNS {
        let tasks = claim(&engine, 1000, LEASE, LONG).await?;
        ensure!(!tasks.is_empty(), "{} of {} were handed out", done.len(), RUNS + 1);
        done.extend(tasks.iter().map(run_of));
    }
    let loaded = counts.loaded.load(Ordering::SeqCst);
    ensure!(loaded <= RUNS + 100, "{loaded} runs were loaded for {RUNS} claims");
    close(engine).await?;
    place.remove().await
}

async fn work_is_handed_out_by_priority_after_a_start(kind: Kind) -> anyhow::Result<()> {
    let (place, hand) = (Place::new(kind).await?, Hand::default());
    let engine = place.engine(config(&hand)).await?;
    publish(&engine, &workflow("many", "priority: 3\n")).await?;
    publish(&engine, &workflow("urgent", "priority: 9\n")).await?;
    publish(&engine, &workflow("narrow", "priority: 7\nqueues: {q: {limit: 1}}\n")).await?;
    start_many(&engine, "many", PAGE + 100).await?;
    hand.turn(SECOND);
    start(&engine, "narrow", "{}").await?;
    start(&engine, "narrow", "{}").await?;
    let urgent = start(&engine, "urgent", "{}").await?;
    close(engine).await?;

    let (_, engine) = reopened(&place, &hand).await?;
    engine.loaded().await;
    let tasks = claim(&engine, 3, LEASE, LONG).await?;
    ensure!(tasks.len() == 3 && run_of(&tasks[0]) == urgent, "{tasks:?}");
    let rest = claim(&engine, 1000, LEASE, LONG).await?;
    ensure!(rest.len() == PAGE + 99, "{}: one of two narrow ones has to wait", rest.len());
    complete(&engine, &tasks[1], false).await?;
    let last = claim(&engine, 10, LEASE, LONG).await?;
    ensure!(last.len() == 1, "{last:?}");
    close(engine).await?;
    place.remove().await
}

/// While all but the first page of the backlog is still in the store (ADR 61).
async fn what_is_asked_for_now_goes_before_the_backlog(kind: Kind) -> anyhow::Result<()> {
    let (place, hand) = (Place::new(kind).await?, Hand::default());
    let engine = place.engine(config(&hand)).await?;
    publish(&engine, &workflow("one", "priority: 5\n")).await?;
    publish(&engine, &workflow("urgent", "priority: 9\n")).await?;
    let first = start(&engine, "one", "{}").await?;
    hand.turn(SECOND);
    start_many(&engine, "one", 2 * PAGE).await?;
    hand.turn(SECOND);
    let (last, stored) = (start(&engine, "one", "{}").await?, start(&engine, "urgent", "{}").await?);
    close(engine).await?;

    let counts = Arc::new(Counts::default());
    counts.one_page.store(true, Ordering::SeqCst);
    let store = Box::new(Tapped { inner: place.store().await?, tap: counts.clone() });
    let engine = engine_on(store, config(&hand)).await?;
    // A call loads what it names, and nothing else.
    engine.execute(on_run(last, run::Command::Pause { reason: Some("for now".to_owned()) })).await?;
    ensure!(counts.loaded.load(Ordering::SeqCst) == 1, "{}", counts.loaded.load(Ordering::SeqCst));
    // What is new goes by its priority, before all that waits.
    let new = start(&engine, "urgent", "{}").await?;
    let tasks = claim(&engine, 1, LEASE, LONG).await?;
    ensure!(tasks.len() == 1 && run_of(&tasks[0]) == new, "{tasks:?}");
    // Then what has waited longest.
    let tasks = claim(&engine, 1, LEASE, LONG).await?;
    ensure!(tasks.len() == 1 && run_of(&tasks[0]) == first, "{tasks:?}");
    ensure!(counts.rows.load(Ordering::SeqCst) <= PAGE, "the backlog was read");

    // With more of it, what is urgent there goes first.
    counts.one_page.store(false, Ordering::SeqCst);
    engine.loaded().await;
    let tasks = claim(&engine, 1, LEASE, LONG).await?;
    ensure!(tasks.len() == 1 && run_of(&tasks[0]) == stored, "{tasks:?}");
    let rest = claim(&engine, 1000, LEASE, LONG).await?;
    ensure!(rest.len() == 2 * PAGE, "{}: one is paused", rest.len());
    close(engine).await?;
    place.remove().await
}

async fn leases_of_before_the_start_end_behind_ready_work(kind: Kind) -> anyhow::Result<()> {
    let (place, hand) = (Place::new(kind).await?, Hand::default());
    let engine = place.engine(config(&hand)).await?;
    publish(&engine, &workflow("one", "")).await?;
    start_many(&engine, "one", PAGE).await?;
    let held = claim(&engine, PAGE, LEASE, LONG).await?;
    ensure!(held.len() == PAGE);
    start_many(&engine, "one", PAGE + 100).await?;
    close(engine).await?;

    hand.turn(2 * LEASE);
    let (_, engine) = reopened(&place, &hand).await?;
    let (mut again, mut all) = (BTreeSet::new(), 0);
    while again.len() < PAGE {
        engine.tick().await;
        let tasks = claim(&engine, 1000, 100 * LEASE, LONG).await?;
        ensure!(!tasks.is_empty(), "{} of {PAGE} leases ended", again.len());
        all += tasks.len();
        let runs: BTreeSet<_> = tasks.iter().map(run_of).collect();
        again.extend(held.iter().map(run_of).filter(|run| runs.contains(run)));
    }
    ensure!(all <= 2 * PAGE + 100, "{all} tasks");
    close(engine).await?;
    place.remove().await
}

/// As many bytes as are allowed, and no more: who was used last stays.
async fn large_runs_do_not_stay_in_memory(kind: Kind) -> anyhow::Result<()> {
    let (place, hand) = (Place::new(kind).await?, Hand::default());
    let counts = Arc::new(Counts::default());
    let store = Box::new(Tapped { inner: place.store().await?, tap: counts.clone() });
    let engine = engine_on(store, Config { cache_bytes: 1 << 20, ..config(&hand) }).await?;
    publish(&engine, &workflow("one", "")).await?;
    let input = format!("{{\"text\": \"{}\"}}", "x".repeat(100_000));
    let mut runs = Vec::new();
    for _ in 0..30 {
        runs.push(start(&engine, "one", &input).await?);
    }
    let pause = || run::Command::Pause { reason: Some("for now".to_owned()) };
    let before = counts.loaded.load(Ordering::SeqCst);
    for run_id in &runs[25..] {
        engine.execute(on_run(*run_id, pause())).await?;
    }
    ensure!(counts.loaded.load(Ordering::SeqCst) == before, "the newest five fit");
    for run_id in &runs[..5] {
        engine.execute(on_run(*run_id, pause())).await?;
    }
    let loaded = counts.loaded.load(Ordering::SeqCst) - before;
    ensure!(loaded == 5, "{loaded} of the oldest five were loaded again");
    close(engine).await?;
    place.remove().await
}

/// A claim over many large runs loads as many as there is room for; the others are claimed next.
async fn one_batch_loads_no_more_than_fits(kind: Kind) -> anyhow::Result<()> {
    const LARGE: usize = 40;
    let (place, hand) = (Place::new(kind).await?, Hand::default());
    let engine = engine_on(place.store().await?, config(&hand)).await?;
    publish(&engine, &workflow("one", "")).await?;
    let input = format!("{{\"text\": \"{}\"}}", "x".repeat(100_000));
    for _ in 0..LARGE {
        start(&engine, "one", &input).await?;
    }
    close(engine).await?;

    let counts = Arc::new(Counts::default());
    let store = Box::new(Tapped { inner: place.store().await?, tap: counts.clone() });
    let engine = engine_on(store, Config { cache_bytes: 1 << 20, ..config(&hand) }).await?;
    let mut claimed = BTreeSet::new();
    while claimed.len() < LARGE {
        engine.tick().await;
        let before = counts.loaded.load(Ordering::SeqCst);
        let tasks = claim(&engine, LARGE, 100 * LEASE, LONG).await?;
        let loaded = counts.loaded_at_commit.load(Ordering::SeqCst) - before;
        // On PostgreSQL the clock may look meanwhile, in a batch of its own.
        let batches = if kind == Kind::Postgres { 2 } else { 1 };
        ensure!(loaded <= 12 * batches, "{batches} batches loaded {loaded} runs of 100 KB, each into 1 MiB");
        ensure!(!tasks.is_empty(), "{} of {LARGE} were claimed", claimed.len());
        claimed.extend(tasks.iter().map(run_of));
    }
    close(engine).await?;
    place.remove().await
}

/// Of a published document the registry keeps a summary; plans are kept within a bound, and read again where they are needed.
async fn definitions_do_not_stay_in_memory(kind: Kind) -> anyhow::Result<()> {
    const VERSIONS: u32 = 60;
    const BOUND: usize = 8 << 20;
    let (place, hand) = (Place::new(kind).await?, Hand::default());
    let small = || Config { definition_cache_bytes: BOUND, ..config(&hand) };
    let engine = engine_on(place.store().await?, small()).await?;
    let filler = "x".repeat(4_000);
    let steps: Vec<String> = (0..100).map(|n| format!("  - {{name: s{n}, input: {{text: \"{filler}\"}}}}\n")).collect();
    let document = |version: u32| {
        format!("kind: workflow\nname: large\nqueue: q{version}\norder: linear\nsteps:\n{}", steps.concat())
    };
    for version in 1..=VERSIONS {
        publish(&engine, &document(version)).await?;
        ensure!(engine.plan_bytes() <= BOUND, "version {version}: {} bytes of plans", engine.plan_bytes());
    }
    close(engine).await?;
    let engine = engine_on(place.store().await?, small()).await?;
    ensure!(engine.plan_bytes() <= BOUND, "after a start: {} bytes of plans", engine.plan_bytes());
    {
        let registry = engine.registry();
        let versions = registry.definition_versions("large");
        ensure!(versions.len() == VERSIONS as usize);
        for definition in versions {
            let workflow = definition.workflow.as_ref().context("a workflow")?;
            let kept = (&definition.source, &workflow.plan, &workflow.document);
            ensure!(kept == (&None, &None, &None), "version {} is in memory", definition.version);
        }
    }
    // Each is there when it is asked for.
    for version in [1, 30, VERSIONS] {
        let start = run::StartRun { version: Some(version), ..run::StartRun::new("large", "{}") };
        engine
            .execute(call(Command::Run { target: Target::New, command: run::Command::Start(Box::new(start)) }))
            .await?;
        let source = engine.definition_source("large", version).await?.context("a source")?;
        ensure!(*source == document(version), "version {version} is another document");
        ensure!(engine.plan_bytes() <= BOUND, "{} bytes of plans", engine.plan_bytes());
    }
    close(engine).await?;
    place.remove().await
}
