//! Many workers on the same steps, on one engine and on two engines of one database: no step is anybody's twice, who comes
//! late changes nothing, limits hold, and every run ends.

use anyhow::{Context, bail, ensure};
use countersign_definition::Cel;
use countersign_engine::port::{Page, RecordQuery, RunQuery};
use countersign_engine::{
    Call, ClaimCall, Command, Config, Engine, IdempotencyKey, LogConfig, Outcome, Proof, Target, Task,
};
use countersign_kernel::InstanceId;
use countersign_kernel::process::{DecideGate, Decision, OpenGate};
use countersign_kernel::refusal::Code;
use countersign_kernel::registry;
use countersign_kernel::run::{self, Act, ClaimNext, StartRun, StepAct, TaskRef};
use countersign_ledger::sha256;
use countersign_testing::drive::commands::{grant_command, publish_command, register_command};
use countersign_testing::place::{ADMIN, Kind, Place};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

macro_rules! races {
    ($($name:ident,)*) => {
        mod sqlite {
            races!(@ (super::Kind::Sqlite, 1) $($name,)*);
        }
        mod postgres {
            races!(@ (super::Kind::Postgres, 1) $($name,)*);
        }
        mod two_engines {
            races!(@ (super::Kind::Postgres, 2) $($name,)* a_step_reaches_a_worker_at_the_other_engine_at_once,);
        }
    };
    (@ ($kind:expr, $engines:expr) $($name:ident,)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() -> anyhow::Result<()> {
            let stage = super::Stage::new($kind, $engines).await?;
            super::$name(&stage).await?;
            stage.end().await
        })*
    };
}

races! {
    no_step_is_claimed_twice_under_a_live_lease,
    who_comes_late_changes_nothing,
    a_long_chain_comes_to_its_end,
    a_queue_never_holds_more_leases_than_its_limit,
    runs_with_one_key_go_one_after_the_other,
    who_goes_on_with_another_run_keeps_to_its_limits,
    a_step_that_may_not_be_taken_is_there_for_others,
    a_lost_answer_is_given_again_with_its_next_task,
    a_waiting_run_keeps_to_the_limit_it_was_started_under,
    many_steps_move_at_once,
    one_of_many_claims_a_person_makes_wins,
    a_step_is_completed_or_its_run_cancelled,
    one_approval_reopens_once,
    a_worker_s_step_is_nobody_else_s,
    a_worker_completes_or_an_operator_cancels,
    a_failure_is_escalated_or_tried_again,
    the_same_key_gives_the_first_verdict,
}

struct Stage {
    place: Place,
    engines: Vec<Arc<Engine>>,
}

impl Stage {
    async fn new(kind: Kind, engines: usize) -> anyhow::Result<Stage> {
        let place = Place::new(kind).await?;
        let mut all = Vec::new();
        for n in 0..engines {
            let log = (n == 0).then(|| LogConfig::new([7; 32]));
            let config = Config { log, language: Arc::new(Cel::default()), ..Config::default() };
            all.push(place.engine(config).await?);
        }
        Ok(Stage { place, engines: all })
    }

    fn engine(&self, n: usize) -> &Arc<Engine> {
        &self.engines[n % self.engines.len()]
    }

    async fn publish(&self, text: &str) -> anyhow::Result<()> {
        let command = publish_command(text).map_err(|failure| anyhow::anyhow!("{failure}"))?;
        let publish = Command::Registry(registry::Command::PublishDefinition(command));
        self.engine(0).execute(call(publish)).await?;
        for engine in &self.engines {
            engine.refresh_registry().await?;
        }
        Ok(())
    }

    async fn start(&self, n: usize, definition: &str) -> anyhow::Result<InstanceId> {
        let command = StartRun::new(definition, "{\"key\": \"k\"}");
        let command = Command::Run { target: Target::New, command: run::Command::Start(Box::new(command)) };
        match self.engine(n).execute(call(command)).await? {
            Outcome::RunStarted { run_id } => InstanceId::parse(&run_id).context("an id"),
            outcome => bail!("{outcome:?}"),
        }
    }

    async fn state(&self, run_id: InstanceId) -> anyhow::Result<String> {
        let query = RunQuery { instance_id: Some(run_id), ..RunQuery::default() };
        let page = Page { after: None, limit: 1, descending: false };
        let run = self.engine(0).own_runs(&query, &page).await?.into_iter().next().context("no such run")?;
        Ok(run.head.state)
    }

    /// Everything is as it should be, by the ledger's own account.
    async fn end(self) -> anyhow::Result<()> {
        let report = self.engines[0].verify_log(ADMIN, None, &mut |_, _| ()).await?;
        ensure!(report.findings.is_empty(), "{:?}", report.findings);
        for engine in self.engines {
            let engine = Arc::into_inner(engine).context("the engine is still in use")?;
            tokio::task::spawn_blocking(|| engine.close()).await?;
        }
        self.place.remove().await
    }
}

fn call(command: Command) -> Call {
    Call { actor_ref: ADMIN.to_owned(), proof: Proof::InProcess, command, idempotency: None }
}

async fn claim(engine: &Engine, worker: &str, max: usize, lease_us: i64, wait: Duration) -> anyhow::Result<Vec<Task>> {
    let claim = ClaimCall { queue: "q".into(), worker_id: worker.into(), max, lease: lease_us };
    Ok(engine.claim(ADMIN, Proof::InProcess, claim, wait).await?)
}

async fn complete(engine: &Engine, task: &Task, next: bool) -> Result<Option<Task>, countersign_kernel::Refusal> {
    match engine.execute(call(complete_command(task, next))).await? {
        Outcome::TaskDone { next, .. } => Ok(next),
        _ => Ok(None),
    }
}

fn complete_command(task: &Task, next: bool) -> Command {
    let run_id = InstanceId::parse(&task.run_id).unwrap_or(InstanceId::REGISTRY);
    let lease_token = uuid::Uuid::parse_str(&task.lease_token).ok();
    let command = run::Command::Complete {
        task: TaskRef { step_seq: task.step_seq, lease_token },
        output: "null".into(),
        outbound: vec![],
        claim_next: next.then_some(ClaimNext { lease: 60_000_000 }),
        artifacts: vec![],
    };
    Command::Run { target: Target::Existing(run_id), command }
}

fn parallel(name: &str, steps: usize, head: &str) -> String {
    let mut text = format!("kind: workflow\nname: {name}\nqueue: q\n{head}steps:\n");
    for n in 0..steps {
        let _ = writeln!(text, "  - {{name: s{n}}}");
    }
    text
}

/// 32 claimers, some of whom take many at once.
async fn no_step_is_claimed_twice_under_a_live_lease(stage: &Stage) -> anyhow::Result<()> {
    const STEPS: usize = 1500;
    stage.publish(&parallel("wide", STEPS, "order: dag\n")).await?;
    let run_id = stage.start(0, "wide").await?;
    let seen = Arc::new(Mutex::new(HashSet::new()));
    let done = Arc::new(AtomicUsize::new(0));
    let mut workers = tokio::task::JoinSet::new();
    for n in 0..32 {
        let (engine, seen, done) = (stage.engine(n).clone(), seen.clone(), done.clone());
        workers.spawn(async move {
            while done.load(Ordering::SeqCst) < STEPS {
                let wait = Duration::from_millis(300);
                for task in claim(&engine, &format!("w{n}"), 1 + n % 7, 60_000_000, wait).await? {
                    ensure!(task.attempt == 1, "{task:?}");
                    let new = seen.lock().unwrap_or_else(PoisonError::into_inner).insert(task.step_seq);
                    ensure!(new, "step {} is claimed twice", task.step_seq);
                    complete(&engine, &task, false).await?;
                    done.fetch_add(1, Ordering::SeqCst);
                }
            }
            Ok(())
        });
    }
    while let Some(ended) = workers.join_next().await {
        ended??;
    }
    ensure!(seen.lock().unwrap_or_else(PoisonError::into_inner).len() == STEPS);
    ensure!(stage.state(run_id).await? == "completed");
    Ok(())
}

/// A worker stopped past its lease and woken again cannot write.
async fn who_comes_late_changes_nothing(stage: &Stage) -> anyhow::Result<()> {
    stage.publish("kind: workflow\nname: one\nqueue: q\nsteps:\n  - {name: s}\n").await?;
    let run_id = stage.start(0, "one").await?;
    let late = claim(stage.engine(0), "late", 1, 30_000, Duration::from_secs(10)).await?;
    let late = late.first().context("nothing to claim")?;
    let again = claim(stage.engine(1), "prompt", 1, 60_000_000, Duration::from_secs(20)).await?;
    let again = again.first().context("the step never came back")?;
    ensure!(again.attempt == 2, "{again:?}");
    for engine in &stage.engines {
        let refusal = complete(engine, late, false).await.err().context("a late write was taken")?;
        ensure!(refusal.code == Code::LeaseLost, "{refusal}");
    }
    ensure!(stage.state(run_id).await? == "executing");
    complete(stage.engine(1), again, false).await?;
    ensure!(stage.state(run_id).await? == "completed");
    Ok(())
}

async fn a_long_chain_comes_to_its_end(stage: &Stage) -> anyhow::Result<()> {
    const STEPS: usize = 1000;
    stage.publish(&parallel("chain", STEPS, "order: linear\n")).await?;
    let run_id = stage.start(0, "chain").await?;
    let mut next = claim(stage.engine(0), "w", 1, 60_000_000, Duration::from_secs(10)).await?.into_iter().next();
    let mut steps = 0;
    while let Some(task) = next {
        ensure!(task.step_seq as usize == steps, "{} came after {steps}", task.step_seq);
        next = complete(stage.engine(steps), &task, true).await?;
        steps += 1;
    }
    ensure!(steps == STEPS, "{steps} steps");
    ensure!(stage.state(run_id).await? == "completed");
    Ok(())
}

async fn a_queue_never_holds_more_leases_than_its_limit(stage: &Stage) -> anyhow::Result<()> {
    const STEPS: usize = 24;
    stage.publish(&parallel("narrow", STEPS, "order: dag\nqueues: {q: {limit: 3}}\n")).await?;
    let run_id = stage.start(0, "narrow").await?;
    let (held, most, done) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut workers = tokio::task::JoinSet::new();
    for n in 0..8 {
        let (engine, held, most, done) = (stage.engine(n).clone(), held.clone(), most.clone(), done.clone());
        workers.spawn(async move {
            while done.load(Ordering::SeqCst) < STEPS {
                let mut line = claim(&engine, &format!("w{n}"), 2, 60_000_000, Duration::from_millis(200)).await?;
                most.fetch_max(held.fetch_add(line.len(), Ordering::SeqCst) + line.len(), Ordering::SeqCst);
                while let Some(task) = line.pop() {
                    tokio::task::yield_now().await;
                    // Counted as given back before it is: the other way round a claim could come in between.
                    held.fetch_sub(1, Ordering::SeqCst);
                    if let Some(next) = complete(&engine, &task, true).await? {
                        most.fetch_max(held.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        line.push(next);
                    }
                    done.fetch_add(1, Ordering::SeqCst);
                }
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = workers.join_next().await {
        ended??;
    }
    let most = most.load(Ordering::SeqCst);
    ensure!((1..=3).contains(&most), "{most} at a time");
    ensure!(stage.state(run_id).await? == "completed");
    Ok(())
}

async fn runs_with_one_key_go_one_after_the_other(stage: &Stage) -> anyhow::Result<()> {
    const RUNS: usize = 6;
    stage.publish(&parallel("keyed", 2, "concurrency: {key: \"${input.key}\", limit: 1}\norder: linear\n")).await?;
    let mut runs = Vec::new();
    for n in 0..RUNS {
        runs.push(stage.start(n, "keyed").await?);
    }
    for n in 0..RUNS * 2 {
        let tasks = claim(stage.engine(n), "w", 10, 60_000_000, Duration::from_secs(20)).await?;
        ensure!(tasks.len() == 1, "{} steps of runs with one key at a time", tasks.len());
        let mut begun = 0;
        for run_id in &runs {
            begun += usize::from(stage.state(*run_id).await? == "executing");
        }
        ensure!(begun == 1, "{begun} runs under way");
        complete(stage.engine(n), &tasks[0], false).await?;
    }
    for run_id in runs {
        ensure!(stage.state(run_id).await? == "completed");
    }
    Ok(())
}

const ONE_STEP: &str = "steps:\n  - {name: s}\n";

/// The limit of a queue is that of the definition whose step is taken, whatever the worker did before.
async fn who_goes_on_with_another_run_keeps_to_its_limits(stage: &Stage) -> anyhow::Result<()> {
    let head = "kind: workflow\nqueue: q\n";
    stage.publish(&format!("{head}name: free\n{ONE_STEP}")).await?;
    stage.publish(&format!("{head}name: narrow\nqueues: {{q: {{limit: 1}}}}\n{ONE_STEP}")).await?;
    let engine = stage.engine(0);
    let mut narrow = Vec::new();
    for _ in 0..2 {
        narrow.push(stage.start(0, "narrow").await?.to_string());
    }
    let held = claim(engine, "w1", 1, 60_000_000, Duration::from_secs(10)).await?;
    ensure!(held.len() == 1 && held[0].run_id == narrow[0], "{held:?}");
    // The second one is put off before the free one is there, and found again behind it.
    ensure!(claim(engine, "w1", 1, 60_000_000, Duration::ZERO).await?.is_empty());
    let free = stage.start(0, "free").await?.to_string();
    let task = claim(engine, "w2", 1, 60_000_000, Duration::from_secs(10)).await?.remove(0);
    ensure!(task.run_id == free, "{task:?}");
    tokio::time::sleep(Duration::from_millis(400)).await;
    let next = complete(engine, &task, true).await?;
    ensure!(next.is_none(), "two leases in a queue of one: {next:?}");
    complete(engine, &held[0], false).await?;
    let freed = claim(engine, "w2", 1, 60_000_000, Duration::from_secs(10)).await?;
    ensure!(freed.len() == 1 && freed[0].run_id == narrow[1], "{freed:?}");
    complete(engine, &freed[0], false).await?;
    Ok(())
}

/// A worker that may work for one definition alone finishes its step and asks for the next: the step of the other
/// definition that stands first in the queue is not its, and must not be lost.
async fn a_step_that_may_not_be_taken_is_there_for_others(stage: &Stage) -> anyhow::Result<()> {
    stage.publish(&format!("kind: workflow\nqueue: q\nname: mine\n{ONE_STEP}")).await?;
    stage.publish(&format!("kind: workflow\nqueue: q\nname: theirs\n{ONE_STEP}")).await?;
    let engine = stage.engine(0);
    for command in [register_command("narrow"), grant_command("narrow", "tasks:work:mine")] {
        engine.execute(call(Command::Registry(command))).await?;
    }
    stage.start(0, "mine").await?;
    let task = claim(engine, "w", 1, 60_000_000, Duration::from_secs(10)).await?.remove(0);
    let theirs = stage.start(0, "theirs").await?.to_string();
    let command = complete_command(&task, true);
    let outcome = engine.execute(Call { actor_ref: "narrow".to_owned(), ..call(command) }).await?;
    ensure!(matches!(outcome, Outcome::TaskDone { next: None, .. }), "{outcome:?}");
    let found = claim(engine, "anybody", 1, 60_000_000, Duration::from_secs(10)).await?;
    ensure!(found.len() == 1 && found[0].run_id == theirs, "{found:?}");
    complete(engine, &found[0], false).await?;
    Ok(())
}

/// The next task may be one of another run, and whoever asks again may ask another server.
async fn a_lost_answer_is_given_again_with_its_next_task(stage: &Stage) -> anyhow::Result<()> {
    stage.publish(&format!("kind: workflow\nqueue: q\nname: one\n{ONE_STEP}")).await?;
    let first = stage.start(0, "one").await?;
    let task = claim(stage.engine(0), "w", 1, 60_000_000, Duration::from_secs(10)).await?.remove(0);
    let second = stage.start(0, "one").await?;
    let next = complete(stage.engine(0), &task, true).await?.context("nothing came with the answer")?;
    ensure!(next.run_id == second.to_string(), "{next:?}");
    for n in 0..3 {
        let again = complete(stage.engine(n), &task, true).await?;
        ensure!(again.as_ref() == Some(&next), "{again:?} in place of {next:?}");
        ensure!(complete(stage.engine(n), &task, false).await?.is_none(), "nobody asked for more");
    }
    complete(stage.engine(1), &next, false).await?;
    ensure!(complete(stage.engine(1), &task, true).await?.is_none(), "that task is done");
    for run_id in [first, second] {
        ensure!(stage.state(run_id).await? == "completed");
    }
    Ok(())
}

/// A run carries its own copy of the definition: a newer version with another limit is not its.
async fn a_waiting_run_keeps_to_the_limit_it_was_started_under(stage: &Stage) -> anyhow::Result<()> {
    let keyed = |limit: u32| {
        format!(
            "kind: workflow\nname: k\nqueue: q\nconcurrency: {{key: \"${{input.key}}\", limit: {limit}}}\n{ONE_STEP}"
        )
    };
    stage.publish(&keyed(1)).await?;
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(stage.start(0, "k").await?);
    }
    let held = claim(stage.engine(0), "w", 10, 60_000_000, Duration::from_secs(20)).await?;
    ensure!(held.len() == 1, "{held:?}");
    stage.publish(&keyed(5)).await?;
    // Whatever has the dispatcher look again.
    let newer = stage.start(0, "k").await?;
    let more = claim(stage.engine(0), "w", 10, 60_000_000, Duration::from_secs(20)).await?;
    ensure!(more.iter().all(|task| task.run_id == newer.to_string()) && more.len() == 1, "{more:?}");
    ensure!(claim(stage.engine(0), "w", 10, 60_000_000, Duration::from_millis(500)).await?.is_empty());
    for task in held.iter().chain(&more) {
        complete(stage.engine(0), task, false).await?;
    }
    for _ in 0..2 {
        let tasks = claim(stage.engine(0), "w", 10, 60_000_000, Duration::from_secs(20)).await?;
        ensure!(tasks.len() == 1, "{tasks:?}");
        complete(stage.engine(0), &tasks[0], false).await?;
    }
    Ok(())
}

/// Nodes tell each other; without it the other one would look once a second.
async fn a_step_reaches_a_worker_at_the_other_engine_at_once(stage: &Stage) -> anyhow::Result<()> {
    stage.publish(&format!("kind: workflow\nqueue: q\nname: one\n{ONE_STEP}")).await?;
    let mut took = Vec::new();
    for n in 0..15 {
        let waiting = {
            let engine = stage.engine(n + 1).clone();
            tokio::spawn(async move { claim(&engine, "w", 1, 60_000_000, Duration::from_secs(20)).await })
        };
        // At any time between two looks.
        tokio::time::sleep(Duration::from_millis(50 + 67 * n as u64 % 500)).await;
        let before = std::time::Instant::now();
        stage.start(n, "one").await?;
        let tasks = waiting.await??;
        took.push(before.elapsed());
        complete(stage.engine(n + 1), tasks.first().context("nothing came")?, false).await?;
    }
    took.sort_unstable();
    ensure!(took[took.len() / 2] < Duration::from_secs(1), "{took:?}");
    Ok(())
}

/// However many steps do the same at once, their records have room for it: they begin to wait, are claimed, lose their leases
/// together, and are cancelled.
async fn many_steps_move_at_once(stage: &Stage) -> anyhow::Result<()> {
    const STEPS: usize = 1500;
    let mut text = String::from("kind: workflow\nname: many\norder: dag\nqueue: q\nsteps:\n");
    for n in 0..STEPS {
        let _ = writeln!(text, "  - {{name: w{n}, run: wait, event: never, timeout: 1h}}\n  - {{name: s{n}}}");
    }
    stage.publish(&text).await?;
    let run_id = stage.start(0, "many").await?;
    let worker = "w".repeat(200);
    let mut claimed = HashSet::new();
    while claimed.len() < STEPS {
        let tasks = claim(stage.engine(0), &worker, 1000, 20_000_000, Duration::from_secs(10)).await?;
        ensure!(!tasks.is_empty(), "{} were claimed", claimed.len());
        claimed.extend(tasks.iter().map(|task| task.step_seq));
    }
    let mut again = HashSet::new();
    while again.len() < STEPS {
        let tasks = claim(stage.engine(1), &worker, 1000, 120_000_000, Duration::from_secs(60)).await?;
        ensure!(!tasks.is_empty(), "{} came back", again.len());
        ensure!(tasks.iter().all(|task| task.attempt >= 2), "not a further attempt");
        again.extend(tasks.iter().map(|task| task.step_seq));
    }
    let cancel = run::Command::Cancel { reason: Some("not needed".to_owned()), approval_id: None, compensate: false };
    stage.engine(0).execute(call(Command::Run { target: Target::Existing(run_id), command: cancel })).await?;
    ensure!(stage.state(run_id).await? == "cancelled");
    Ok(())
}

const PEOPLE: &str = r#"
kind: workflow
name: people
order: linear
gate_spec: {reopen: {approver_ref: admin, scope: s}}
steps: [{name: A, run: human, pic: admin}, {name: B, run: human, pic: admin}]
"#;

fn acting(run_id: InstanceId, step: &str, act: Act) -> Command {
    let command = run::Command::Act(StepAct { step: step.to_owned(), act, reason: None, preview: false });
    Command::Run { target: Target::Existing(run_id), command }
}

fn completing() -> Act {
    Act::Complete { output: "null".into(), outbound: vec![] }
}

/// Gives all of them at once, each to the next engine, and counts how they were answered.
async fn at_once(stage: &Stage, calls: Vec<Call>) -> anyhow::Result<Vec<Result<Outcome, Code>>> {
    let tasks: Vec<_> = calls
        .into_iter()
        .enumerate()
        .map(|(n, call)| {
            let engine = stage.engine(n).clone();
            tokio::spawn(async move { engine.execute(call).await.map_err(|refusal| refusal.code) })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await?);
    }
    Ok(answers)
}

fn won(answers: &[Result<Outcome, Code>], code: Code) -> anyhow::Result<()> {
    let (good, bad): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.is_ok());
    ensure!(good.len() == 1, "{answers:?}");
    ensure!(bad.iter().all(|answer| answer.as_ref().err() == Some(&code)), "{answers:?}");
    Ok(())
}

async fn one_of_many_claims_a_person_makes_wins(stage: &Stage) -> anyhow::Result<()> {
    stage.publish(PEOPLE).await?;
    for n in 0..5 {
        let run_id = stage.start(n, "people").await?;
        let calls = (0..8).map(|_| call(acting(run_id, "A", Act::Claim))).collect();
        won(&at_once(stage, calls).await?, Code::InvalidTransition)?;
    }
    Ok(())
}

async fn a_step_is_completed_or_its_run_cancelled(stage: &Stage) -> anyhow::Result<()> {
    stage.publish(&PEOPLE.replace(", {name: B, run: human, pic: admin}", "")).await?;
    for n in 0..8 {
        let run_id = stage.start(n, "people").await?;
        stage.engine(n).execute(call(acting(run_id, "A", Act::Claim))).await?;
        let cancel =
            run::Command::Cancel { reason: Some("not needed".to_owned()), approval_id: None, compensate: false };
        let cancel = call(Command::Run { target: Target::Existing(run_id), command: cancel });
        let complete = call(acting(run_id, "A", completing()));
        let calls = if n % 2 == 0 { vec![cancel, complete] } else { vec![complete, cancel] };
        won(&at_once(stage, calls).await?, Code::AlreadyTerminal)?;
        ensure!(["completed", "cancelled"].contains(&stage.state(run_id).await?.as_str()));
    }
    Ok(())
}

async fn one_approval_reopens_once(stage: &Stage) -> anyhow::Result<()> {
    stage.publish(PEOPLE).await?;
    for n in 0..4 {
        let run_id = stage.start(n, "people").await?;
        let engine = stage.engine(n);
        engine.execute(call(acting(run_id, "A", Act::Claim))).await?;
        engine.execute(call(acting(run_id, "A", completing()))).await?;
        let open = run::Command::OpenGate(OpenGate { action: "reopen:A".to_owned(), reason: None, request: None });
        let opened = engine.execute(call(Command::Run { target: Target::Existing(run_id), command: open })).await?;
        let Outcome::GateOpened { step_id, .. } = opened else { bail!("{opened:?}") };
        let decide = run::Command::DecideGate(DecideGate {
            action: "reopen:A".to_owned(),
            decision: Decision::Approve,
            reason: None,
            step: None,
            request_digest: None,
        });
        engine.execute(call(Command::Run { target: Target::Existing(run_id), command: decide })).await?;
        let prior = engine.prior(run_id, "A").await?.context("nothing closed the step")?;
        let reopen = Act::Reopen {
            approval_id: Some(step_id),
            correction_reason: Some("data_error".to_owned()),
            prior: Some(Box::new(prior)),
        };
        let calls = (0..6).map(|_| call(acting(run_id, "A", reopen.clone()))).collect();
        won(&at_once(stage, calls).await?, Code::InvalidTransition)?;
    }
    Ok(())
}

/// Beside the worker who claims it, a person tries to: only one is asked for.
async fn a_worker_s_step_is_nobody_else_s(stage: &Stage) -> anyhow::Result<()> {
    stage.publish("kind: workflow\nname: work\nqueue: q\nsteps: [{name: A}]\n").await?;
    for n in 0..5 {
        let run_id = stage.start(n, "work").await?;
        let worker = stage.engine(n).clone();
        let claiming = tokio::spawn(async move { claim(&worker, "w", 5, 60_000_000, Duration::from_secs(20)).await });
        let calls = (0..6).map(|_| call(acting(run_id, "A", Act::Claim))).collect();
        let answers = at_once(stage, calls).await?;
        ensure!(answers.iter().all(|answer| answer.as_ref().err() == Some(&Code::Unauthorized)), "{answers:?}");
        let tasks = claiming.await??;
        ensure!(tasks.len() == 1 && tasks[0].run_id == run_id.to_string(), "{tasks:?}");
        complete(stage.engine(n), &tasks[0], false).await?;
        ensure!(stage.state(run_id).await? == "completed");
    }
    Ok(())
}

/// The worker who comes late has lost its lease; the operator who does finds the run ended.
async fn a_worker_completes_or_an_operator_cancels(stage: &Stage) -> anyhow::Result<()> {
    stage.publish("kind: workflow\nname: work\nqueue: q\nsteps: [{name: A}]\n").await?;
    for n in 0..8 {
        let run_id = stage.start(n, "work").await?;
        let tasks = claim(stage.engine(n), "w", 1, 60_000_000, Duration::from_secs(20)).await?;
        let cancel =
            run::Command::Cancel { reason: Some("not needed".to_owned()), approval_id: None, compensate: false };
        let cancel = call(Command::Run { target: Target::Existing(run_id), command: cancel });
        let complete = call(complete_command(tasks.first().context("no task")?, false));
        let calls = if n % 2 == 0 { vec![cancel, complete] } else { vec![complete, cancel] };
        let answers = at_once(stage, calls).await?;
        let (of_cancel, of_complete) = if n % 2 == 0 { (&answers[0], &answers[1]) } else { (&answers[1], &answers[0]) };
        match stage.state(run_id).await?.as_str() {
            "completed" => ensure!(of_complete.is_ok() && *of_cancel == Err(Code::AlreadyTerminal), "{answers:?}"),
            "cancelled" => ensure!(of_cancel.is_ok() && *of_complete == Err(Code::LeaseLost), "{answers:?}"),
            state => bail!("the run is {state}: {answers:?}"),
        }
    }
    Ok(())
}

/// T11 and another attempt exclude each other: whoever comes second finds the step no longer as it was.
async fn a_failure_is_escalated_or_tried_again(stage: &Stage) -> anyhow::Result<()> {
    let text =
        "kind: workflow\nname: held\nqueue: q\nsteps: [{name: A, onFailure: hold, retryPolicy: {maxRetries: 0}}]\n";
    stage.publish(text).await?;
    for n in 0..6 {
        let run_id = stage.start(n, "held").await?;
        // What was tried again in an earlier round may come along.
        let tasks = claim(stage.engine(n), "w", 10, 60_000_000, Duration::from_secs(20)).await?;
        let task = tasks.iter().find(|task| task.run_id == run_id.to_string()).context("no task")?;
        let of = TaskRef { step_seq: task.step_seq, lease_token: uuid::Uuid::try_parse(&task.lease_token).ok() };
        let dead = run::Command::Dead { task: of, error: "torn".to_owned(), category: None };
        stage.engine(n).execute(call(Command::Run { target: Target::Existing(run_id), command: dead })).await?;
        let (escalate, retry) = (call(acting(run_id, "A", Act::Escalate)), call(acting(run_id, "A", Act::Retry)));
        let calls = if n % 2 == 0 { vec![escalate, retry] } else { vec![retry, escalate] };
        let answers = at_once(stage, calls).await?;
        let of_retry = &answers[usize::from(n % 2 == 0)];
        // A step that will be tried again has its budget; one that was given up has not failed any more.
        let code = if of_retry.is_ok() { Code::TransitionRefusedByGuard } else { Code::InvalidTransition };
        won(&answers, code)?;
    }
    Ok(())
}

async fn the_same_key_gives_the_first_verdict(stage: &Stage) -> anyhow::Result<()> {
    stage.publish(PEOPLE).await?;
    let run_id = stage.start(0, "people").await?;
    let keyed = |act: Act| Call {
        idempotency: Some(IdempotencyKey { key: "k1".to_owned(), request_digest: sha256(&[b"claim"]) }),
        ..call(acting(run_id, "A", act))
    };
    let answers = at_once(stage, (0..6).map(|_| keyed(Act::Claim)).collect()).await?;
    ensure!(answers.iter().all(|answer| answer.is_ok() && *answer == answers[0]), "{answers:?}");
    let query = RecordQuery { instance_id: Some(run_id), ..RecordQuery::default() };
    let page = Page { after: None, limit: 100, descending: false };
    let records = stage.engine(0).read_records(ADMIN, &query, &page).await?;
    let claims = records.iter().filter(|record| record.action_ref == "step_claimed").count();
    ensure!(claims == 1, "{claims} claims were recorded");
    // Whatever has become of the step since: the first verdict.
    stage.engine(0).execute(call(acting(run_id, "A", Act::Release))).await?;
    for n in 0..2 {
        let again = stage.engine(n).execute(keyed(Act::Claim)).await?;
        ensure!(Ok(again) == answers[0]);
    }
    Ok(())
}
