//! Two engines on one database: what one of them loses in a race is there for somebody, and what one was told the other
//! does not deny.

use anyhow::{Context, ensure};
use async_trait::async_trait;
use countersign_definition::Cel;
use countersign_engine::clock::Clock;
use countersign_engine::port::outbox::Settled;
use countersign_engine::port::{Batch, Committed, Page, RunQuery, StoreError, Writer};
use countersign_engine::run::door;
use countersign_engine::{Addressee, Call, ClaimCall, Command, Config, Engine, IdempotencyKey, Outcome, Proof};
use countersign_kernel::InstanceId;
use countersign_kernel::run::{self, ClaimNext, KeptEvent};
use countersign_ledger::sha256;
use countersign_store::tap::{Tap, Tapped};
use countersign_testing::drive::commands::{grant_command, register_command};
use countersign_testing::hands::{
    Hand, LEASE, SECOND, call, claim, complete, held, on_run, publish, run_of, start, state, task_ref,
};
use countersign_testing::place::{ADMIN, Kind, Place, close, engine_on};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(15);
const ONE: &str = "kind: workflow\nname: one\nqueue: q\nsteps: [{name: A}]\n";

fn config() -> Config {
    Config { language: Arc::new(Cel::default()), ..Config::default() }
}

/// Just before the first batch that writes to this run, something else happens to the run.
#[derive(Default)]
struct Beforehand {
    other: Mutex<Option<(Arc<Engine>, InstanceId)>>,
    commits: AtomicUsize,
    offset_us: AtomicI64,
}

impl Beforehand {
    fn arm(&self, other: &Arc<Engine>, run_id: InstanceId) {
        *self.other.lock().unwrap_or_else(PoisonError::into_inner) = Some((other.clone(), run_id));
    }

    fn fires(&self, batch: &Batch) -> Option<(Arc<Engine>, InstanceId)> {
        let mut other = self.other.lock().unwrap_or_else(PoisonError::into_inner);
        let concerned = |run_id: InstanceId| batch.units.iter().any(|unit| unit.instance_id == run_id);
        other.take_if(|(_, run_id)| batch.units.len() > 1 && concerned(*run_id))
    }
}

#[async_trait]
impl Tap for Beforehand {
    async fn commit(&self, writer: &mut dyn Writer, batch: &Batch) -> Result<Committed, StoreError> {
        self.commits.fetch_add(1, Ordering::SeqCst);
        if let Some((other, run_id)) = self.fires(batch) {
            for command in [
                run::Command::Pause { reason: Some("for now".to_owned()) },
                run::Command::Resume { approval_id: None, reason: None },
            ] {
                let moved = other.execute(on_run(run_id, command)).await;
                moved.map_err(|refusal| StoreError::Rejected(refusal.to_string()))?;
            }
        }
        writer.commit(batch).await
    }

    fn clock_offset_us(&self) -> Option<i64> {
        Some(self.offset_us.load(Ordering::SeqCst))
    }
}

struct Nodes {
    place: Place,
    tap: Arc<Beforehand>,
    /// Its commits are tapped.
    here: Arc<Engine>,
    there: Arc<Engine>,
}

impl Nodes {
    async fn new(config: Config) -> anyhow::Result<Nodes> {
        let place = Place::new(Kind::Postgres).await?;
        let tap = Arc::new(Beforehand::default());
        let store = Box::new(Tapped { inner: place.store().await?, tap: tap.clone() });
        let here = engine_on(store, config.clone()).await?;
        let there = place.engine(config).await?;
        Ok(Nodes { place, tap, here, there })
    }

    async fn publish(&self, text: &str) -> anyhow::Result<()> {
        publish(&self.here, text).await?;
        self.there.refresh_registry().await?;
        Ok(())
    }

    async fn end(self) -> anyhow::Result<()> {
        close(self.here).await?;
        close(self.there).await?;
        self.place.remove().await
    }
}

/// The run of the completed task has moved meanwhile: the next task that goes with it is not written without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_completion_and_its_next_task_are_written_together() -> anyhow::Result<()> {
    let nodes = Nodes::new(config()).await?;
    nodes.publish(ONE).await?;
    let mut runs = vec![start(&nodes.here, "one", "{}").await?];
    let first = claim(&nodes.here, 1, LEASE, LONG).await?.remove(0);
    for _ in 0..3 {
        runs.push(start(&nodes.here, "one", "{}").await?);
    }
    nodes.tap.arm(&nodes.there, runs[0]);
    let idempotency = Some(IdempotencyKey { key: "k".to_owned(), request_digest: sha256(&[b"c"]) });
    let command = run::Command::Complete {
        task: task_ref(&first),
        output: "null".into(),
        outbound: vec![],
        claim_next: Some(ClaimNext { lease: LEASE }),
        artifacts: vec![],
    };
    let complete = Call { idempotency, ..on_run(runs[0], command) };
    let Outcome::TaskDone { next, .. } = nodes.here.execute(complete.clone()).await? else {
        anyhow::bail!("no answer")
    };
    let next = next.context("there were three")?;
    ensure!(nodes.tap.other.lock().unwrap_or_else(PoisonError::into_inner).is_none(), "nothing came in between");
    ensure!(held(&nodes.here, &runs).await? == 1, "{} tasks are somebody's", held(&nodes.here, &runs).await?);
    ensure!(held(&nodes.here, &[run_of(&next)]).await? == 1);
    let again = nodes.there.execute(complete).await?;
    ensure!(matches!(again, Outcome::TaskDone { next: Some(ref same), .. } if *same == next), "{again:?}");
    let rest = claim(&nodes.here, 5, LEASE, LONG).await?;
    ensure!(!rest.is_empty());
    nodes.end().await
}

/// Of two tasks one is lost to somebody else's change: its step must not wait until all is looked at again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_claim_loses_is_there_again() -> anyhow::Result<()> {
    let hand = Hand::default();
    let nodes = Nodes::new(Config { clock: hand.clock(), ..config() }).await?;
    nodes.publish(ONE).await?;
    let runs = [start(&nodes.here, "one", "{}").await?, start(&nodes.here, "one", "{}").await?];
    // What has been due for so long is looked for now and then only.
    hand.turn(60 * SECOND);
    tokio::time::sleep(Duration::from_secs(7)).await;
    nodes.tap.arm(&nodes.there, runs[0]);
    let tasks = claim(&nodes.here, 2, LEASE, LONG).await?;
    ensure!(tasks.len() == 1 && run_of(&tasks[0]) == runs[1], "{tasks:?}");
    nodes.here.tick().await;
    let lost = claim(&nodes.here, 2, LEASE, Duration::from_secs(2)).await?;
    ensure!(lost.len() == 1 && run_of(&lost[0]) == runs[0], "{lost:?}");
    nodes.end().await
}

/// More is due at one and the same time than is read at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_stands_behind_many_is_found() -> anyhow::Result<()> {
    let nodes = Nodes::new(config()).await?;
    let mut text = "kind: workflow\nname: many\norder: dag\nqueue: nobody\nsteps:\n".to_owned();
    for n in 0..4100 {
        let _ = writeln!(text, "  - {{name: s{n}}}");
    }
    text.push_str("  - {name: last, queue: q}\n");
    nodes.publish(&text).await?;
    start(&nodes.here, "many", "{}").await?;
    let tasks = claim(&nodes.there, 1, LEASE, Duration::from_secs(20)).await?;
    ensure!(tasks.len() == 1 && tasks[0].step_seq == 4100, "{tasks:?}");
    nodes.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_granted_something_there_is_not_refused_here() -> anyhow::Result<()> {
    let nodes = Nodes::new(config()).await?;
    publish(&nodes.there, ONE).await?;
    for command in [register_command("fresh"), grant_command("fresh", "tasks:work:one")] {
        nodes.there.execute(call(Command::Registry(command))).await?;
    }
    start(&nodes.there, "one", "{}").await?;
    let claim = ClaimCall { queue: "q".into(), worker_id: "w".into(), max: 1, lease: LEASE };
    let tasks = nodes.here.claim("fresh", Proof::InProcess, claim, LONG).await?;
    ensure!(tasks.len() == 1);
    nodes.end().await
}

/// What was published there a moment ago is read here, and chosen among.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_published_there_is_known_here() -> anyhow::Result<()> {
    let nodes = Nodes::new(config()).await?;
    publish(&nodes.there, ONE).await?;
    start(&nodes.there, "one", "{}").await?;
    let page = Page { after: None, limit: 1, descending: false };
    let run = nodes.here.own_runs(&RunQuery::default(), &page).await?.remove(0);
    ensure!(nodes.here.plan_of(&run).await?.steps.len() == 1);
    let two = ONE.replace("{name: A}", "{name: A}, {name: B}").replace("steps:", "order: dag\nsteps:");
    publish(&nodes.there, &two).await?;
    nodes.here.catch_up().await?;
    ensure!(nodes.here.registry().definition("one", None).is_some_and(|newest| newest.version == 2));
    nodes.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_event_at_two_engines_wakes_once() -> anyhow::Result<()> {
    let nodes = Nodes::new(config()).await?;
    nodes.publish("kind: workflow\nname: one\nqueue: q\ncorrelationKey: ${input.case}\nsteps: [{name: A}]\n").await?;
    for n in 0..6 {
        let run_id = start(&nodes.here, "one", &format!("{{\"case\": \"c{n}\"}}")).await?;
        let task = claim(&nodes.here, 1, LEASE, LONG).await?.remove(0);
        nodes.here.execute(on_run(run_id, waiting(&task))).await?;
        let event = KeptEvent { id: "e".into(), event_type: "answer".into(), data: "1".into() };
        let to = Addressee::Key(format!("c{n}"));
        let (a, b) = tokio::join!(
            nodes.here.send_event(ADMIN, &Proof::InProcess, &to, &event),
            nodes.there.send_event(ADMIN, &Proof::InProcess, &to, &event),
        );
        let (a, b) = (a?, b?);
        ensure!(a.woken.len() + b.woken.len() == 1 && a.duplicate != b.duplicate, "{a:?} {b:?}");
        let task = claim(&nodes.here, 1, LEASE, LONG).await?.remove(0);
        ensure!(task.event.is_some());
        complete(&nodes.here, &task, false).await?;
        ensure!(state(&nodes.here, run_id).await? == "completed");
    }
    nodes.end().await
}

/// Two engines deliver the same event of a step to this server, also after one of them could not note that it had: it starts one run and
/// wakes once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_of_a_step_starts_once_at_two_engines() -> anyhow::Result<()> {
    let nodes = Nodes::new(config()).await?;
    let keyed = "queue: q\ncorrelationKey: ${input.case}\nsteps: ";
    nodes.publish(&format!("kind: workflow\nname: one\n{keyed}[{{name: A}}]\n")).await?;
    nodes.publish("kind: workflow\nname: heard\non: [{event: done}]\nqueue: other\nsteps: [{name: A}]\n").await?;
    let waits = "[{name: W, run: wait, event: done, timeout: 1h}]";
    nodes.publish(&format!("kind: workflow\nname: waiter\n{keyed}{waits}\n")).await?;
    for n in 0..6 {
        let case = format!("{{\"case\": \"c{n}\"}}");
        let waiter = start(&nodes.there, "waiter", &case).await?;
        let run_id = start(&nodes.here, "one", &case).await?;
        let task = claim(&nodes.here, 1, LEASE, LONG).await?.remove(0);
        let outbound = vec![run::Outbound { event_type: "done".to_owned(), data: case.as_str().into() }];
        let task = task_ref(&task);
        let done = run::Command::Complete { task, output: "1".into(), outbound, claim_next: None, artifacts: vec![] };
        nodes.here.execute(on_run(run_id, done)).await?;
        let taken = nodes.there.take_deliveries(door::EVENTS, LONG, 10).await?;
        ensure!(taken.len() == 1 && nodes.here.take_deliveries(door::EVENTS, LONG, 10).await?.is_empty(), "{taken:?}");
        let (a, b) = tokio::join!(nodes.here.deliver_inside(&taken[0]), nodes.there.deliver_inside(&taken[0]));
        ensure!(a.is_ok() && b.is_ok(), "{a:?} {b:?}");
        ensure!(nodes.there.deliver_inside(&taken[0]).await.is_ok());
        ensure!(nodes.here.settle_delivery(&taken[0], &Settled::Delivered).await?);
        let query = RunQuery { definition: Some("heard".to_owned()), ..RunQuery::default() };
        let page = Page { after: None, limit: 100, descending: false };
        ensure!(nodes.here.own_runs(&query, &page).await?.len() == n + 1);
        ensure!(state(&nodes.here, waiter).await? == "completed");
    }
    nodes.end().await
}

/// The event comes at one engine while the worker says at the other that it waits for it: whoever is first, it is woken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_meets_its_wait_is_not_lost() -> anyhow::Result<()> {
    let nodes = Nodes::new(config()).await?;
    nodes.publish(ONE).await?;
    for n in 0..12 {
        let run_id = start(&nodes.here, "one", "{}").await?;
        let task = claim(&nodes.here, 1, LEASE, LONG).await?.remove(0);
        let event = KeptEvent { id: "e".into(), event_type: "answer".into(), data: "1".into() };
        let (to, wait) = (Addressee::Run(Some(run_id)), on_run(run_id, waiting(&task)));
        let (waiter, sender) = if n % 2 == 0 { (&nodes.here, &nodes.there) } else { (&nodes.there, &nodes.here) };
        let (waits, sent) =
            tokio::join!(waiter.execute(wait), sender.send_event(ADMIN, &Proof::InProcess, &to, &event));
        waits?;
        ensure!(!sent?.duplicate);
        let woken = claim(&nodes.here, 1, LEASE, LONG).await?;
        ensure!(woken.len() == 1 && woken[0].event.as_deref() == Some("1"), "{woken:?}");
        complete(&nodes.here, &woken[0], false).await?;
    }
    nodes.end().await
}

fn waiting(task: &countersign_engine::Task) -> run::Command {
    let (task, event_type) = (task_ref(task), Some("answer".to_owned()));
    run::Command::Wait { task, event_type, timeout: None, facets: vec![], outbound: vec![] }
}

/// A node whose clock is ahead goes by the database's, all of it: it does not ask again and again for what is not due yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_goes_by_the_database_s_clock() -> anyhow::Result<()> {
    let ahead = 5 * SECOND;
    let system = config().clock;
    let clock = Clock::told(move || countersign_kernel::Time(system.read().wall.0 + ahead));
    let place = Place::new(Kind::Postgres).await?;
    let tap = Arc::new(Beforehand::default());
    tap.offset_us.store(-ahead, Ordering::SeqCst);
    let store = Box::new(Tapped { inner: place.store().await?, tap: tap.clone() });
    let engine = engine_on(store, Config { clock, ..config() }).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let real = config().clock;
    let off = engine.now().0 - real.read().wall.0;
    ensure!(off.abs() < SECOND, "the node's clock is {off} ahead");
    publish(&engine, ONE).await?;
    start(&engine, "one", "{}").await?;
    ensure!(claim(&engine, 1, 3 * SECOND, LONG).await?.len() == 1);
    let before = tap.commits.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let asked = tap.commits.load(Ordering::SeqCst) - before;
    ensure!(asked < 20, "{asked} batches while nothing happened");
    close(engine).await?;
    place.remove().await
}

/// Where another node takes a lease away, whoever works under it hears so long before the next heartbeat.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_another_node_took_away_is_missed_soon() -> anyhow::Result<()> {
    let nodes = Nodes::new(config()).await?;
    nodes.publish(ONE).await?;
    let run_id = start(&nodes.here, "one", "{}").await?;
    let tasks = claim(&nodes.here, 1, LEASE, LONG).await?;
    let watch = nodes.here.watch_lease(&tasks[0]).context("a lease")?;
    let cancelled = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        nodes
            .there
            .execute(on_run(
                run_id,
                run::Command::Cancel { reason: Some("not needed".to_owned()), approval_id: None, compensate: false },
            ))
            .await
    };
    let (heard, cancelled) = tokio::join!(tokio::time::timeout(Duration::from_secs(6), watch.gone()), cancelled);
    cancelled?;
    heard.context("nobody was told")?;
    drop(watch);
    nodes.end().await
}
