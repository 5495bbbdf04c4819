//! Many workers on the same steps, on one engine and on two engines of one database: no step is anybody's twice, who comes
//! late changes nothing, limits hold, and every run ends.

use anyhow::{Context, bail, ensure};
use countersign_definition::{Body, Cel, parse};
use countersign_engine::port::{Page, RecordQuery, RunQuery};
use countersign_engine::{
    Call, ClaimCall, Command, Config, Engine, IdempotencyKey, LogConfig, Outcome, Proof, Target, Task,
};
use countersign_kernel::InstanceId;
use countersign_kernel::process::{DecideGate, Decision, OpenGate};
use countersign_kernel::refusal::Code;
use countersign_kernel::registry::{self, PublishDefinition, Workflow};
use countersign_kernel::run::{self, Act, ClaimNext, StartRun, StepAct, TaskRef, shell_declaration};
use countersign_ledger::sha256;
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
            races!(@ (super::Kind::Postgres, 2) $($name,)*);
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
    one_of_many_claims_a_person_makes_wins,
    a_step_is_completed_or_its_run_cancelled,
    one_approval_reopens_once,
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
        let definition = parse(text.as_bytes()).map_err(|problems| anyhow::anyhow!("{problems:?}"))?;
        let Body::Workflow { plan, document } = definition.body else { bail!("a process") };
        let (declaration, gate_spec) = shell_declaration(&plan);
        let document_digest = sha256(&[&document]);
        let command = PublishDefinition {
            name: definition.name,
            digest: sha256(&[text.as_bytes()]),
            source: text.into(),
            declaration: Arc::new(declaration),
            gate_spec: Arc::new(gate_spec),
            retention: None,
            workflow: Some(Workflow { plan: Arc::new(plan), document: document.into(), document_digest }),
        };
        let publish = Command::Registry(registry::Command::PublishDefinition(command));
        self.engine(0).execute(call(publish)).await?;
        for engine in &self.engines {
            engine.refresh_registry().await?;
        }
        Ok(())
    }

    async fn start(&self, n: usize, definition: &str) -> anyhow::Result<InstanceId> {
        let command = StartRun {
            definition: definition.to_owned(),
            version: None,
            input: "{\"key\": \"k\"}".into(),
            subject_ref: None,
            priority: None,
            start_at: None,
            corrects: None,
            from_step: None,
            parent: None,
            concurrency_key: None,
            trace_id: None,
        };
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
    let run_id = InstanceId::parse(&task.run_id).unwrap_or(InstanceId::REGISTRY);
    let lease_token = uuid::Uuid::parse_str(&task.lease_token).ok();
    let command = run::Command::Complete {
        task: TaskRef { step_seq: task.step_seq, lease_token },
        output: "null".into(),
        outbound: vec![],
        claim_next: next.then_some(ClaimNext { lease: 60_000_000 }),
    };
    let outcome = engine.execute(call(Command::Run { target: Target::Existing(run_id), command })).await?;
    match outcome {
        Outcome::TaskDone { next, .. } => Ok(next),
        _ => Ok(None),
    }
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
    stage.publish(&parallel("wide", STEPS, "")).await?;
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
    stage.publish(&parallel("narrow", STEPS, "queues: {q: {limit: 3}}\n")).await?;
    let run_id = stage.start(0, "narrow").await?;
    let (held, most, done) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut workers = tokio::task::JoinSet::new();
    for n in 0..8 {
        let (engine, held, most, done) = (stage.engine(n).clone(), held.clone(), most.clone(), done.clone());
        workers.spawn(async move {
            while done.load(Ordering::SeqCst) < STEPS {
                for task in claim(&engine, &format!("w{n}"), 2, 60_000_000, Duration::from_millis(200)).await? {
                    most.fetch_max(held.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    // Counted as given back before it is: the other way round a claim could come in between.
                    held.fetch_sub(1, Ordering::SeqCst);
                    complete(&engine, &task, true).await?;
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
        let cancel = run::Command::Cancel { reason: None };
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
        let open = run::Command::OpenGate(OpenGate { action: "reopen:A".to_owned(), reason: None });
        let opened = engine.execute(call(Command::Run { target: Target::Existing(run_id), command: open })).await?;
        let Outcome::GateOpened { step_id, .. } = opened else { bail!("{opened:?}") };
        let decide = run::Command::DecideGate(DecideGate {
            action: "reopen:A".to_owned(),
            decision: Decision::Approve,
            reason: None,
            step: None,
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
