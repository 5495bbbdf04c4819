//! Helpers for tests of runs: publish, start, claim, complete, and move the engine's clock.

use anyhow::{Context, bail};
use countersign_engine::clock::{Clock, Reading};
use countersign_engine::port::{Page, RunQuery};
use countersign_engine::{Call, ClaimCall, Command, Engine, Outcome, Proof, Target, Task};
use countersign_kernel::refusal::Refusal;
use countersign_kernel::run::{self, ClaimNext, StartRun, TaskRef};
use countersign_kernel::{InstanceId, Time, registry};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::drive::commands::publish_command;
use crate::place::ADMIN;

pub const SECOND: i64 = 1_000_000;
pub const LEASE: i64 = 60 * SECOND;

/// A clock that stops until it is moved.
#[derive(Clone)]
pub struct Hand {
    wall: Arc<AtomicI64>,
    elapsed: Arc<AtomicI64>,
}

impl Default for Hand {
    fn default() -> Self {
        Hand { wall: Arc::new(AtomicI64::new(Clock::system().read().wall.0)), elapsed: Arc::default() }
    }
}

impl Hand {
    pub fn clock(&self) -> Clock {
        let Hand { wall, elapsed } = self.clone();
        Clock::new(move || Reading {
            wall: Time(wall.load(Ordering::SeqCst)),
            elapsed_us: elapsed.load(Ordering::SeqCst),
        })
    }

    pub fn wall(&self) -> i64 {
        self.wall.load(Ordering::SeqCst)
    }

    /// Lets so much time pass.
    pub fn turn(&self, micros: i64) {
        self.elapsed.fetch_add(micros, Ordering::SeqCst);
        self.wall.fetch_add(micros, Ordering::SeqCst);
    }

    /// Sets the wall clock, forward or back, while no time passes.
    pub fn set(&self, micros: i64) {
        self.wall.fetch_add(micros, Ordering::SeqCst);
    }
}

pub fn call(command: Command) -> Call {
    Call { actor_ref: ADMIN.to_owned(), proof: Proof::InProcess, command, idempotency: None }
}

pub fn on_run(run_id: InstanceId, command: run::Command) -> Call {
    call(Command::Run { target: Target::Existing(run_id), command })
}

pub async fn publish(engine: &Engine, text: &str) -> anyhow::Result<()> {
    let command = publish_command(text).map_err(|failure| anyhow::anyhow!("{failure}"))?;
    engine.execute(call(Command::Registry(registry::Command::PublishDefinition(command)))).await?;
    Ok(())
}

pub async fn start(engine: &Engine, definition: &str, input: &str) -> anyhow::Result<InstanceId> {
    let command = run::Command::Start(Box::new(StartRun::new(definition, input)));
    match engine.execute(call(Command::Run { target: Target::New, command })).await? {
        Outcome::RunStarted { run_id } => InstanceId::parse(&run_id).context("an id"),
        outcome => bail!("{outcome:?}"),
    }
}

pub async fn claim(engine: &Engine, max: usize, lease: i64, wait: Duration) -> Result<Vec<Task>, Refusal> {
    let claim = ClaimCall { queue: "q".into(), worker_id: "w".into(), max, lease };
    engine.claim(ADMIN, Proof::InProcess, claim, wait).await
}

pub fn task_ref(task: &Task) -> TaskRef {
    TaskRef { step_seq: task.step_seq, lease_token: uuid::Uuid::parse_str(&task.lease_token).ok() }
}

pub fn run_of(task: &Task) -> InstanceId {
    InstanceId::parse(&task.run_id).unwrap_or(InstanceId::REGISTRY)
}

/// Returns the next task, where it asked for one and there is one.
pub async fn complete(engine: &Engine, task: &Task, next: bool) -> Result<Option<Task>, Refusal> {
    let command = run::Command::Complete {
        task: task_ref(task),
        output: "null".into(),
        outbound: vec![],
        claim_next: next.then_some(ClaimNext { lease: LEASE }),
        artifacts: vec![],
    };
    match engine.execute(on_run(run_of(task), command)).await? {
        Outcome::TaskDone { next, .. } => Ok(next),
        _ => Ok(None),
    }
}

pub async fn state(engine: &Engine, run_id: InstanceId) -> anyhow::Result<String> {
    let query = RunQuery { instance_id: Some(run_id), ..RunQuery::default() };
    let page = Page { after: None, limit: 1, descending: false };
    let run = engine.own_runs(&query, &page).await?.into_iter().next().context("no such run")?;
    Ok(run.head.state)
}

/// How many steps of these runs are somebody's.
pub async fn held(engine: &Engine, runs: &[InstanceId]) -> anyhow::Result<usize> {
    let mut held = 0;
    for run_id in runs {
        let query = RunQuery { instance_id: Some(*run_id), ..RunQuery::default() };
        let page = Page { after: None, limit: 1, descending: false };
        let run = engine.own_runs(&query, &page).await?.into_iter().next().context("no such run")?;
        let steps = engine.read_run_steps(&run, 0, 100).await?;
        held += steps.iter().filter(|step| step.state.locked_by.is_some()).count();
    }
    Ok(held)
}
