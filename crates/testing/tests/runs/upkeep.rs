//! What must not be lost: slots, reminders, ready steps and kept answers, whatever goes wrong beside them.

use anyhow::{Context, bail, ensure};
use async_trait::async_trait;
use countersign_definition::Cel;
use countersign_engine::port::{Batch, Committed, StoreError, Writer};
use countersign_engine::{Addressee, Call, ClaimCall, Command, Config, Engine, IdempotencyKey, Outcome, Proof, Target};
use countersign_kernel::InstanceId;
use countersign_kernel::refusal::Code;
use countersign_kernel::run::{self, KeptEvent, Parent, StartRun};
use countersign_ledger::sha256;
use countersign_store::tap::{Tap, Tapped};
use countersign_testing::drive::commands::{grant_command, register_command};
use countersign_testing::hands::{Hand, LEASE, SECOND, call, claim, complete, on_run, publish, start, state, task_ref};
use countersign_testing::on_both;
use countersign_testing::place::{ADMIN, Kind, Place, close, engine_on};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

on_both! {
    a_step_that_fails_at_its_claim_leaves_its_slot,
    a_large_limit_costs_no_more_than_a_small_one,
    a_queue_hands_out_so_many_in_a_while,
    a_lease_expires_after_an_outage,
    a_step_is_handed_out_after_an_outage,
    a_queued_run_begins_after_an_outage,
    a_lease_that_ends_during_a_commit_is_recovered,
    a_limit_that_passes_during_a_commit_is_seen,
    steps_are_handed_out_after_the_clock_was_set_back,
    a_full_key_holds_up_no_other,
    an_answer_is_kept_though_nothing_changed,
    an_event_reaches_the_runs_that_its_sender_may_reach,
    a_child_that_its_parent_never_heard_of_ends_with_it,
    a_child_that_nobody_reported_ends_with_the_step_it_was_for,
    whoever_works_here_hears_that_their_lease_is_gone,
}

const LONG: Duration = Duration::from_secs(15);

fn config(hand: Option<&Hand>) -> Config {
    let config = Config { language: Arc::new(Cel::default()), ..Config::default() };
    match hand {
        Some(hand) => Config { clock: hand.clock(), ..config },
        None => config,
    }
}

fn workflow(name: &str, head: &str, steps: &str) -> String {
    format!("kind: workflow\nname: {name}\nqueue: q\n{head}steps: [{steps}]\n")
}

async fn a_step_that_fails_at_its_claim_leaves_its_slot(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let engine = place.engine(config(None)).await?;
    let step = "{name: A, input: {x: \"${input.deep.er}\"}}";
    publish(&engine, &workflow("narrow", "queues: {q: {limit: 1}}\n", step)).await?;
    let bad = start(&engine, "narrow", "{}").await?;
    ensure!(claim(&engine, 1, LEASE, Duration::from_millis(300)).await?.is_empty());
    ensure!(state(&engine, bad).await? == "failed");
    for _ in 0..2 {
        start(&engine, "narrow", "{\"deep\": {\"er\": 1}}").await?;
    }
    for _ in 0..2 {
        let tasks = claim(&engine, 2, LEASE, LONG).await?;
        ensure!(tasks.len() == 1, "{tasks:?}");
        complete(&engine, &tasks[0], false).await?;
    }
    close(engine).await?;
    place.remove().await
}

async fn a_large_limit_costs_no_more_than_a_small_one(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let engine = place.engine(config(None)).await?;
    let head = format!("order: dag\nqueues: {{q: {{limit: {n}, rateLimit: {{count: {n}, per: 1h}}}}}}\n", n = large());
    publish(&engine, &workflow("wide", &head, "{name: A}, {name: B}")).await?;
    start(&engine, "wide", "{}").await?;
    let began = Instant::now();
    let mut tasks = claim(&engine, 1, LEASE, LONG).await?;
    tasks.extend(claim(&engine, 5, LEASE, LONG).await?);
    ensure!(tasks.len() == 2, "{tasks:?}");
    ensure!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    close(engine).await?;
    place.remove().await
}

fn large() -> u32 {
    std::env::var("LARGE").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000_000_000)
}

async fn a_queue_hands_out_so_many_in_a_while(kind: Kind) -> anyhow::Result<()> {
    let (place, hand) = (Place::new(kind).await?, Hand::default());
    let engine = place.engine(config(Some(&hand))).await?;
    publish(&engine, &workflow("slow", "queues: {q: {rateLimit: {count: 2, per: 10s}}}\n", "{name: A}")).await?;
    for _ in 0..5 {
        start(&engine, "slow", "{}").await?;
    }
    for expected in [2, 2, 1] {
        let mut tasks = claim(&engine, 5, LEASE, Duration::from_millis(300)).await?;
        hand.turn(9 * SECOND);
        engine.tick().await;
        tasks.extend(claim(&engine, 5, LEASE, Duration::from_millis(300)).await?);
        ensure!(tasks.len() == expected, "{} instead of {expected}", tasks.len());
        for task in &tasks {
            complete(&engine, task, false).await?;
        }
        hand.turn(2 * SECOND);
        engine.tick().await;
    }
    close(engine).await?;
    place.remove().await
}

/// While it is out, the store takes nothing and tells nothing. It goes out after so many commits.
struct Outage(AtomicI64);

impl Default for Outage {
    fn default() -> Self {
        Outage(AtomicI64::new(i64::MAX))
    }
}

impl Outage {
    fn check(&self, commits: i64) -> Result<(), StoreError> {
        match self.0.fetch_sub(commits, Ordering::SeqCst) {
            ..=0 => Err(StoreError::Transient("out of order".to_owned())),
            _ => Ok(()),
        }
    }

    fn set(&self, out: bool) {
        self.after(if out { 0 } else { i64::MAX });
    }

    fn after(&self, commits: i64) {
        self.0.store(commits, Ordering::SeqCst);
    }
}

#[async_trait]
impl Tap for Outage {
    async fn commit(&self, writer: &mut dyn Writer, batch: &Batch) -> Result<Committed, StoreError> {
        // One with nothing in it but checks is none.
        self.check(i64::from(!batch.units.is_empty()))?;
        writer.commit(batch).await
    }

    fn read(&self) -> Result<(), StoreError> {
        self.check(0)
    }
}

async fn tapped(place: &Place, tap: Arc<dyn Tap>, config: Config) -> anyhow::Result<Arc<Engine>> {
    engine_on(Box::new(Tapped { inner: place.store().await?, tap }), config).await
}

async fn a_lease_expires_after_an_outage(kind: Kind) -> anyhow::Result<()> {
    let (place, outage) = (Place::new(kind).await?, Arc::new(Outage::default()));
    let engine = tapped(&place, outage.clone(), config(None)).await?;
    publish(&engine, &workflow("one", "", "{name: A}")).await?;
    start(&engine, "one", "{}").await?;
    ensure!(claim(&engine, 1, SECOND / 2, LONG).await?.len() == 1);
    outage.set(true);
    tokio::time::sleep(Duration::from_millis(1200)).await;
    outage.set(false);
    let again = claim(&engine, 1, LEASE, LONG).await?;
    ensure!(again.len() == 1 && again[0].attempt == 2, "{again:?}");
    close(engine).await?;
    place.remove().await
}

async fn a_queued_run_begins_after_an_outage(kind: Kind) -> anyhow::Result<()> {
    let (place, outage) = (Place::new(kind).await?, Arc::new(Outage::default()));
    let engine = tapped(&place, outage.clone(), config(None)).await?;
    publish(&engine, &workflow("keyed", "concurrency: {key: \"${input.key}\", limit: 1}\n", "{name: A}")).await?;
    for _ in 0..2 {
        start(&engine, "keyed", "{\"key\": \"a\"}").await?;
    }
    let first = claim(&engine, 2, LEASE, LONG).await?;
    ensure!(first.len() == 1, "{first:?}");
    // The end of the first run is written; that the second begins is not.
    outage.after(1);
    complete(&engine, &first[0], false).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    outage.set(false);
    let second = claim(&engine, 2, LEASE, Duration::from_secs(8)).await?;
    ensure!(second.len() == 1, "{second:?}");
    close(engine).await?;
    place.remove().await
}

async fn a_step_is_handed_out_after_an_outage(kind: Kind) -> anyhow::Result<()> {
    let (place, outage) = (Place::new(kind).await?, Arc::new(Outage::default()));
    let engine = tapped(&place, outage.clone(), config(None)).await?;
    publish(&engine, &workflow("one", "", "{name: A}")).await?;
    start(&engine, "one", "{}").await?;
    outage.set(true);
    let refusal = claim(&engine, 1, LEASE, LONG).await.err().context("a claim without a store")?;
    ensure!(refusal.code == Code::RecordingFailure, "{refusal}");
    tokio::time::sleep(Duration::from_millis(300)).await;
    outage.set(false);
    ensure!(claim(&engine, 1, LEASE, LONG).await?.len() == 1);
    close(engine).await?;
    place.remove().await
}

/// Time passes while a batch is written, once it is told to.
struct Slow {
    hand: Hand,
    by: i64,
    now: AtomicBool,
}

#[async_trait]
impl Tap for Slow {
    async fn commit(&self, writer: &mut dyn Writer, batch: &Batch) -> Result<Committed, StoreError> {
        let committed = writer.commit(batch).await;
        if self.now.load(Ordering::SeqCst) && !batch.units.is_empty() {
            self.hand.turn(self.by);
        }
        committed
    }
}

async fn slow(place: &Place, by: i64) -> anyhow::Result<(Arc<Slow>, Arc<Engine>)> {
    let hand = Hand::default();
    let slow = Arc::new(Slow { hand: hand.clone(), by, now: AtomicBool::new(false) });
    Ok((slow.clone(), tapped(place, slow, config(Some(&hand))).await?))
}

async fn a_lease_that_ends_during_a_commit_is_recovered(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let (slow, engine) = slow(&place, SECOND / 50).await?;
    publish(&engine, &workflow("one", "", "{name: A, deadline: 1s}")).await?;
    start(&engine, "one", "{}").await?;
    ensure!(claim(&engine, 1, SECOND + SECOND / 200, LONG).await?.len() == 1);
    slow.now.store(true, Ordering::SeqCst);
    // The deadline passes; while that is written, so does the lease.
    slow.hand.turn(SECOND + 10);
    engine.tick().await;
    slow.hand.turn(SECOND);
    engine.tick().await;
    let again = claim(&engine, 1, LEASE, Duration::from_secs(1)).await?;
    ensure!(again.len() == 1 && again[0].attempt == 2, "{again:?}");
    close(engine).await?;
    place.remove().await
}

async fn a_limit_that_passes_during_a_commit_is_seen(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let (slow, engine) = slow(&place, SECOND / 50).await?;
    publish(&engine, &workflow("one", "timeout: 1005ms\n", "{name: A, deadline: 1s}")).await?;
    let run_id = start(&engine, "one", "{}").await?;
    ensure!(claim(&engine, 1, LEASE, LONG).await?.len() == 1);
    slow.now.store(true, Ordering::SeqCst);
    slow.hand.turn(SECOND + 10);
    engine.tick().await;
    slow.hand.turn(SECOND);
    engine.tick().await;
    ensure!(state(&engine, run_id).await? == "failed", "{}", state(&engine, run_id).await?);
    close(engine).await?;
    place.remove().await
}

async fn steps_are_handed_out_after_the_clock_was_set_back(kind: Kind) -> anyhow::Result<()> {
    let (place, hand) = (Place::new(kind).await?, Hand::default());
    let engine = place.engine(config(Some(&hand))).await?;
    publish(&engine, &workflow("one", "", "{name: A}, {name: B, dependsOn: [A]}")).await?;
    start(&engine, "one", "{}").await?;
    hand.set(-3600 * SECOND);
    start(&engine, "one", "{}").await?;
    let tasks = claim(&engine, 2, LEASE, Duration::from_secs(2)).await?;
    ensure!(tasks.len() == 2, "{tasks:?}");
    complete(&engine, &tasks[0], false).await?;
    close(engine).await?;
    let engine = place.engine(config(Some(&hand))).await?;
    let next = claim(&engine, 2, LEASE, Duration::from_secs(5)).await?;
    ensure!(next.len() == 1 && &*next[0].step == "B", "{next:?}");
    close(engine).await?;
    place.remove().await
}

async fn a_full_key_holds_up_no_other(kind: Kind) -> anyhow::Result<()> {
    let (place, hand) = (Place::new(kind).await?, Hand::default());
    let engine = place.engine(config(Some(&hand))).await?;
    publish(&engine, &workflow("keyed", "concurrency: {key: \"${input.key}\", limit: 1}\n", "{name: A}")).await?;
    for _ in 0..502 {
        // By their ids they stand in the order of their starts.
        hand.turn(SECOND);
        start(&engine, "keyed", "{\"key\": \"a\"}").await?;
    }
    hand.turn(SECOND);
    let other = start(&engine, "keyed", "{\"key\": \"b\"}").await?;
    engine.tick().await;
    ensure!(state(&engine, other).await? == "executing", "{}", state(&engine, other).await?);
    close(engine).await?;
    place.remove().await
}

async fn an_answer_is_kept_though_nothing_changed(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let engine = place.engine(config(None)).await?;
    publish(&engine, &workflow("one", "", "{name: A}")).await?;
    let run_id = start(&engine, "one", "{}").await?;
    let resume = |body: &str| {
        let idempotency = Some(IdempotencyKey { key: "k".to_owned(), request_digest: sha256(&[body.as_bytes()]) });
        Call { idempotency, ..on_run(run_id, run::Command::Resume { approval_id: None, reason: None }) }
    };
    let first = engine.execute(resume("a")).await?;
    engine.execute(on_run(run_id, run::Command::Pause { reason: Some("for now".to_owned()) })).await?;
    ensure!(engine.execute(resume("a")).await? == first);
    ensure!(state(&engine, run_id).await? == "paused");
    let refusal = engine.execute(resume("b")).await.err().context("another request under the same key")?;
    ensure!(refusal.code == Code::Conflict, "{refusal}");
    // What was kept with nothing else to write disturbs nothing that follows.
    engine.execute(on_run(run_id, run::Command::Resume { approval_id: None, reason: None })).await?;
    let tasks = claim(&engine, 1, LEASE, LONG).await?;
    complete(&engine, &tasks[0], false).await?;
    ensure!(state(&engine, run_id).await? == "completed");
    close(engine).await?;
    place.remove().await
}

async fn an_event_reaches_the_runs_that_its_sender_may_reach(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let engine = place.engine(config(None)).await?;
    for name in ["mine", "theirs"] {
        publish(&engine, &workflow(name, "correlationKey: ${input.case}\n", "{name: A}")).await?;
    }
    let commands = [
        register_command("narrow"),
        grant_command("narrow", "runs:control:mine"),
        register_command("nobody"),
        grant_command("nobody", "runs:read"),
    ];
    for command in commands {
        engine.execute(call(Command::Registry(command))).await?;
    }
    for name in ["mine", "theirs"] {
        start(&engine, name, "{\"case\": \"c1\"}").await?;
    }
    for task in claim(&engine, 2, LEASE, LONG).await? {
        let (task, run_id) = (task_ref(&task), countersign_testing::hands::run_of(&task));
        let event_type = Some("answer".to_owned());
        let command = run::Command::Wait { task, event_type, timeout: None, facets: vec![], outbound: vec![] };
        engine.execute(on_run(run_id, command)).await?;
    }
    let event = KeptEvent { id: "e1".into(), event_type: "answer".into(), data: "1".into() };
    let send = async |actor: &str, key: &str| {
        engine.send_event(actor, &Proof::InProcess, &Addressee::Key(key.to_owned()), &event).await
    };
    let denied = |sent: Result<countersign_engine::Sent, countersign_kernel::Refusal>| {
        sent.err().map(|refusal| refusal.code) == Some(Code::PermissionDenied)
    };
    let sent = send("narrow", "c1").await?;
    ensure!(!sent.duplicate && sent.woken.len() == 1, "{sent:?}");
    ensure!(denied(send("nobody", "c1").await) && denied(send("nobody", "unknown").await));
    ensure!(send("narrow", "unknown").await?.woken.is_empty());
    // The other run has not had it before.
    let sent = send(ADMIN, "c1").await?;
    ensure!(sent.woken.len() == 1, "{sent:?}");
    let again =
        engine.execute(on_run(sent.woken[0].0, run::Command::Receive { event: event.clone(), seen: false })).await?;
    ensure!(matches!(again, Outcome::EventReceived { duplicate: true, .. }), "{again:?}");
    close(engine).await?;
    place.remove().await
}

/// What is left where a parent is moved between the start of its child and the report of that: the parent, its child, and the
/// late report.
async fn unreported(engine: &Engine) -> anyhow::Result<(InstanceId, InstanceId, Call)> {
    publish(engine, &workflow("inner", "", "{name: A}")).await?;
    publish(engine, &workflow("outer", "", "{name: CHILD, run: workflow, workflow: inner}")).await?;
    let parent = start(engine, "outer", "{}").await?;
    let claim = ClaimCall { queue: "@workflow".into(), worker_id: "w".into(), max: 1, lease: 600 * SECOND };
    let tasks = engine.claim(ADMIN, Proof::InProcess, claim, LONG).await?;
    let task = tasks.first().context("the step of the parent")?;
    let inner = StartRun {
        parent: Some(Parent { run_id: parent, step_seq: task.step_seq }),
        ..StartRun::new("inner", task.input.clone())
    };
    let command = run::Command::Start(Box::new(inner));
    let Outcome::RunStarted { run_id } = engine.execute(call(Command::Run { target: Target::New, command })).await?
    else {
        bail!("the child did not start");
    };
    let child = InstanceId::parse(&run_id).context("an id")?;
    Ok((parent, child, on_run(parent, run::Command::ChildStarted { task: task_ref(task), child })))
}

async fn becomes(engine: &Engine, run_id: InstanceId, expected: &str) -> anyhow::Result<()> {
    let began = Instant::now();
    while state(engine, run_id).await? != expected {
        ensure!(began.elapsed() < LONG, "it is {}, not {expected}", state(engine, run_id).await?);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn a_child_that_its_parent_never_heard_of_ends_with_it(kind: Kind) -> anyhow::Result<()> {
    let place = Place::new(kind).await?;
    let engine = place.engine(config(None)).await?;
    let (parent, child, report) = unreported(&engine).await?;
    engine
        .execute(on_run(
            parent,
            run::Command::Cancel { reason: Some("not needed".to_owned()), approval_id: None, compensate: false },
        ))
        .await?;
    let refusal = engine.execute(report).await.err().context("a report after the end")?;
    ensure!(refusal.code == Code::LeaseLost, "{refusal}");
    becomes(&engine, child, "cancelled").await?;
    close(engine).await?;
    place.remove().await
}

/// The step is still to be done when its child asks, and ends only then.
async fn a_child_that_nobody_reported_ends_with_the_step_it_was_for(kind: Kind) -> anyhow::Result<()> {
    let (place, hand) = (Place::new(kind).await?, Hand::default());
    let engine = place.engine(config(Some(&hand))).await?;
    let (parent, child, report) = unreported(&engine).await?;
    engine.execute(on_run(parent, run::Command::Stop { reason: Some("for now".to_owned()) })).await?;
    ensure!(engine.execute(report).await.is_err());
    engine.tick().await;
    ensure!(state(&engine, child).await? == "executing");
    engine
        .execute(on_run(
            parent,
            run::Command::Cancel { reason: Some("not needed".to_owned()), approval_id: None, compensate: false },
        ))
        .await?;
    hand.turn(31 * SECOND);
    engine.tick().await;
    becomes(&engine, child, "cancelled").await?;
    close(engine).await?;
    place.remove().await
}

async fn whoever_works_here_hears_that_their_lease_is_gone(kind: Kind) -> anyhow::Result<()> {
    // Before the store is asked again.
    let at_once = Duration::from_millis(1500);
    let place = Place::new(kind).await?;
    let engine = place.engine(config(None)).await?;
    publish(&engine, &workflow("one", "order: dag\n", "{name: A, idempotent: true}, {name: B}")).await?;
    let run_id = start(&engine, "one", "{}").await?;
    let tasks = claim(&engine, 2, LEASE, LONG).await?;
    let (task, other) = (&tasks[0], &tasks[1]);
    let watch = engine.watch_lease(task).context("a lease")?;
    let meanwhile = async |command: run::Command| -> anyhow::Result<bool> {
        let acted = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            engine.execute(on_run(run_id, command)).await
        };
        let (heard, acted) = tokio::join!(tokio::time::timeout(at_once, watch.gone()), acted);
        acted?;
        Ok(heard.is_ok())
    };
    ensure!(!meanwhile(run::Command::Heartbeat { task: task_ref(task), lease: LEASE }).await?, "it was prolonged");
    let report = run::Command::Retry { task: task_ref(other), error: "e".to_owned(), backoff: None, category: None };
    ensure!(!meanwhile(report).await?, "that was another step");
    ensure!(meanwhile(run::Command::Stop { reason: Some("for now".to_owned()) }).await?, "nobody was told");
    // Whoever looks only now hears it as well.
    let late = engine.watch_lease(task).context("a lease")?;
    tokio::time::timeout(at_once, late.gone()).await?;
    drop((watch, late));
    close(engine).await?;
    place.remove().await
}
