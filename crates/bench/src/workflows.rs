//! Workflows: W1 (many runs of ten trivial steps), W2 (one such run after another), W3 (single-step jobs while workers
//! work), in process and leased over HTTP, beside the raw limit for the rows they write. Also: how long a step takes to
//! reach a worker that waits, and what a step of a long chain costs beside one of a short chain.

use crate::limits;
use crate::report::{Report, Row};
use crate::runbooks;
use crate::target::Target;
use anyhow::{Context, anyhow};
use countersign_client::{Client, Format, wire};
use countersign_engine::{Call, ClaimCall, Command, Config, Engine, Outcome, Proof, Task};
use countersign_kernel::InstanceId;
use countersign_kernel::registry;
use countersign_kernel::run::{self, ClaimNext, StartRun, TaskRef};
use countersign_ledger::sha256;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub const STEPS: usize = 10;
pub const QUEUE: &str = "bench";
const LEASE_US: i64 = 60_000_000;
/// Of chains and short runs, one after the other.
const TURNS: usize = 3;

pub struct Sizes {
    /// Runs of W1.
    pub runs: usize,
    pub workers: usize,
    /// Workers over HTTP.
    pub leased: usize,
}

pub async fn measure(store: &str, sizes: &Sizes, report: &mut Report) -> anyhow::Result<()> {
    let workers = sizes.workers;
    eprintln!("{store}: W1, {} runs of {STEPS} steps in process …", sizes.runs);
    let target = Target::in_process_with(store, config()).await?;
    let place = Place::of(target.engine.clone().context("no engine")?).await?;
    place.w1(sizes.runs.min(200), workers, STEPS).await?;
    let before = target.written().await?;
    let elapsed = place.w1(sizes.runs, workers, STEPS).await?;
    let after = target.written().await?;
    let (limit, rows_per_run) = limits::limit_of(store, config(), async |engine, captured| {
        let place = Place::of(engine).await?;
        captured.take();
        place.w1(sizes.runs, workers, STEPS).await?;
        Ok(sizes.runs)
    })
    .await?;
    let mut row = Row::rate("W1 runs of 10 steps", store, "in process", workers, rate(sizes.runs, elapsed));
    row.ratio_to_limit = Some(row.ops_per_s * rows_per_run / limit);
    row.written = before.zip(after).map(|(before, after)| after.since(&before, sizes.runs));
    report.add(row);
    eprintln!("{store}: W2 …");
    let samples = place.w2(200).await?;
    let total: u64 = samples.iter().map(|us| u64::from(*us)).sum();
    report.add(Row::new("W2 one run of 10 steps", store, "in process", 1, &samples, Duration::from_micros(total)));
    eprintln!("{store}: W3 …");
    let jobs = sizes.runs * 5;
    let elapsed = place.w3(jobs, workers).await?;
    report.add(Row::rate("W3 single-step jobs", store, "in process", workers, rate(jobs, elapsed)));
    eprintln!("{store}: wake-up …");
    let samples = place.wake_up(300).await?;
    let total: u64 = samples.iter().map(|us| u64::from(*us)).sum();
    report.add(Row::new(
        "ready step to waiting worker",
        store,
        "in process",
        1,
        &samples,
        Duration::from_micros(total),
    ));
    eprintln!("{store}: chains of 500 …");
    // A chain keeps one worker busy: as many of them as workers, or fewer would share a flush than where chains are short. In
    // turns, for the machine is not the same from one moment to the next; not too many, or it takes minutes.
    let (workers, long) = (workers.min(128), 500);
    let (mut chains, mut short) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..TURNS {
        chains += place.w1(workers, workers, long).await?;
        short += place.w1(workers * long / STEPS, workers, STEPS).await?;
    }
    let steps = workers * long * TURNS;
    let mut row = Row::rate("step of a chain of 500", store, "in process", workers, rate(steps, chains));
    row.ratio_to_limit = Some(short.as_secs_f64() / chains.as_secs_f64());
    report.add(row);
    runbooks::measure(&place, store, sizes.runs.min(200), workers, report).await?;
    drop(place);
    target.close().await
}

pub fn rate(count: usize, elapsed: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let count = count as f64;
    count / elapsed.as_secs_f64()
}

pub fn definition(steps: usize) -> String {
    let mut text = format!("kind: workflow\nname: chain-{steps}\norder: linear\nqueue: {QUEUE}\nsteps:\n");
    for n in 0..steps {
        let _ = writeln!(text, "  - {{name: s{n}}}");
    }
    text
}

pub fn config() -> Config {
    Config { language: Arc::new(countersign_definition::Cel::default()), ..Config::default() }
}

pub struct Place {
    pub engine: Arc<Engine>,
}

impl Place {
    pub async fn of(engine: Arc<Engine>) -> anyhow::Result<Place> {
        engine.bootstrap("admin", sha256(&[b"bench"])).await?;
        for steps in [1, STEPS, 500] {
            publish(&engine, &definition(steps)).await?;
        }
        Ok(Place { engine })
    }

    /// Starts all runs and works until all have ended.
    pub async fn w1(&self, runs: usize, workers: usize, steps: usize) -> anyhow::Result<Duration> {
        let left = Arc::new(AtomicI64::new(i64::try_from(runs * steps)?));
        let next = Arc::new(AtomicUsize::new(0));
        let begin = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..workers {
            let (engine, next) = (self.engine.clone(), next.clone());
            tasks.spawn(async move {
                while next.fetch_add(1, Ordering::Relaxed) < runs {
                    start(&engine, steps).await?;
                }
                anyhow::Ok(())
            });
            let (engine, left) = (self.engine.clone(), left.clone());
            tasks.spawn(async move { work(&engine, n, &left).await });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        Ok(begin.elapsed())
    }

    /// One run after the other, by one worker that goes from step to step. It is a task of the runtime, as a worker is,
    /// and as the peers' are: the main thread would have to be woken for every answer.
    async fn w2(&self, runs: usize) -> anyhow::Result<Vec<u32>> {
        let engine = self.engine.clone();
        let worker = tokio::spawn(async move {
            let mut samples = Vec::with_capacity(runs);
            for _ in 0..runs {
                let begin = Instant::now();
                start(&engine, STEPS).await?;
                let left = AtomicI64::new(i64::try_from(STEPS)?);
                work(&engine, 0, &left).await?;
                samples.push(u32::try_from(begin.elapsed().as_micros())?);
            }
            anyhow::Ok(samples)
        });
        worker.await?
    }

    /// Eight producers while workers work.
    pub async fn w3(&self, jobs: usize, workers: usize) -> anyhow::Result<Duration> {
        let left = Arc::new(AtomicI64::new(i64::try_from(jobs)?));
        let next = Arc::new(AtomicUsize::new(0));
        let begin = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let (engine, next) = (self.engine.clone(), next.clone());
            tasks.spawn(async move {
                while next.fetch_add(1, Ordering::Relaxed) < jobs {
                    start(&engine, 1).await?;
                }
                anyhow::Ok(())
            });
        }
        for n in 0..workers {
            let (engine, left) = (self.engine.clone(), left.clone());
            tasks.spawn(async move { work(&engine, n, &left).await });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        Ok(begin.elapsed())
    }

    /// From the answer to a start until a worker that waited has the step: on an otherwise idle engine.
    async fn wake_up(&self, times: usize) -> anyhow::Result<Vec<u32>> {
        let mut samples = Vec::with_capacity(times);
        for _ in 0..times {
            let engine = self.engine.clone();
            let waiting = tokio::spawn(async move {
                let tasks = claim(&engine, "waiting", 1).await?;
                anyhow::Ok((Instant::now(), tasks))
            });
            tokio::time::sleep(Duration::from_millis(3)).await;
            start(&self.engine, 1).await?;
            let ready = Instant::now();
            let (got, tasks) = waiting.await??;
            samples.push(u32::try_from(got.saturating_duration_since(ready).as_micros())?);
            for task in tasks {
                complete(&self.engine, task).await?;
            }
        }
        Ok(samples)
    }
}

pub async fn publish(engine: &Engine, text: &str) -> anyhow::Result<()> {
    let definition = countersign_definition::parse(text.as_bytes()).map_err(|problems| anyhow!("{problems:?}"))?;
    let publish = definition.published_as(text, |bytes| sha256(&[bytes]));
    engine.execute(call(Command::Registry(registry::Command::PublishDefinition(publish)))).await?;
    Ok(())
}

pub fn call(command: Command) -> Call {
    Call { actor_ref: "admin".to_owned(), proof: Proof::InProcess, command, idempotency: None }
}

async fn start(engine: &Engine, steps: usize) -> anyhow::Result<()> {
    start_named(engine, &format!("chain-{steps}")).await.map(drop)
}

pub async fn start_named(engine: &Engine, definition: &str) -> anyhow::Result<InstanceId> {
    let command = run::Command::Start(Box::new(StartRun::new(definition, "null")));
    match engine.execute(call(Command::Run { target: countersign_engine::Target::New, command })).await? {
        Outcome::RunStarted { run_id } => InstanceId::parse(&run_id).context("a run's id"),
        outcome => Err(anyhow!("{outcome:?}")),
    }
}

async fn claim(engine: &Engine, worker: &str, max: usize) -> anyhow::Result<Vec<Task>> {
    let claim = ClaimCall { queue: QUEUE.into(), worker_id: worker.into(), max, lease: LEASE_US };
    Ok(engine.claim("admin", Proof::InProcess, claim, Duration::from_millis(200)).await?)
}

async fn complete(engine: &Engine, task: Task) -> anyhow::Result<Option<Task>> {
    let run_id = InstanceId::parse(&task.run_id).context("a run's id")?;
    let lease_token = uuid::Uuid::try_parse(&task.lease_token).ok();
    let command = run::Command::Complete {
        task: TaskRef { step_seq: task.step_seq, lease_token },
        output: Arc::from("null"),
        outbound: vec![],
        claim_next: Some(ClaimNext { lease: LEASE_US }),
        artifacts: vec![],
    };
    let target = countersign_engine::Target::Existing(run_id);
    match engine.execute(call(Command::Run { target, command })).await? {
        Outcome::TaskDone { next, .. } => Ok(next),
        outcome => Err(anyhow!("{outcome:?}")),
    }
}

/// Claims and completes until nothing is left.
pub async fn work(engine: &Engine, n: usize, left: &AtomicI64) -> anyhow::Result<()> {
    let worker = format!("worker-{n}");
    while left.load(Ordering::Relaxed) > 0 {
        for task in claim(engine, &worker, 1).await? {
            let mut next = Some(task);
            while let Some(task) = next {
                next = complete(engine, task).await?;
                left.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
    Ok(())
}

pub async fn over_http(store: &str, sizes: &Sizes, report: &mut Report) -> anyhow::Result<()> {
    eprintln!("{store}: W1 leased over HTTP …");
    let target = Target::http(store).await?;
    let served = Served::of(&target, sizes.leased).await?;
    let runs = sizes.runs / 2;
    // As for the peers and the measurement in process: nothing is measured cold.
    served.w1(runs.min(200)).await?;
    let elapsed = served.w1(runs).await?;
    report.add(Row::rate("W1 runs of 10 steps", store, "leased, http", served.workers.len(), rate(runs, elapsed)));
    drop(served);
    target.close().await
}

/// A server and its workers, each with connections of its own as separate programs would have.
struct Served {
    starters: Client,
    workers: Vec<Client>,
}

impl Served {
    async fn of(target: &Target, workers: usize) -> anyhow::Result<Served> {
        let url = target.server.as_ref().context("no server")?.url();
        let token = target.admin_token()?;
        let client = || anyhow::Ok(Client::new(&url)?.with_token(&token)?);
        let starters = client()?;
        starters.publish_definition(Format::Yaml, definition(STEPS).as_bytes()).await?;
        Ok(Served { starters, workers: (0..workers).map(|_| client()).collect::<Result<_, _>>()? })
    }

    async fn w1(&self, runs: usize) -> anyhow::Result<Duration> {
        let left = Arc::new(AtomicI64::new(i64::try_from(runs * STEPS)?));
        let next = Arc::new(AtomicUsize::new(0));
        let begin = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for (n, worker) in self.workers.iter().enumerate() {
            let (client, next) = (self.starters.clone(), next.clone());
            tasks.spawn(async move {
                let request = wire::StartRun { definition: format!("chain-{STEPS}"), ..wire::StartRun::default() };
                while next.fetch_add(1, Ordering::Relaxed) < runs {
                    client.start_run(&request).await?;
                }
                anyhow::Ok(())
            });
            let (worker, left) = (worker.clone(), left.clone());
            tasks.spawn(async move { work_over_http(&worker, n, &left).await });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        Ok(begin.elapsed())
    }
}

async fn work_over_http(client: &Client, n: usize, left: &AtomicI64) -> anyhow::Result<()> {
    let request =
        wire::ClaimTasks { worker_id: format!("worker-{n}"), max: Some(1), lease_ms: None, wait_ms: Some(200) };
    while left.load(Ordering::Relaxed) > 0 {
        for task in client.claim_tasks(QUEUE, &request).await?.body.tasks {
            let mut next = Some(task);
            while let Some(task) = next {
                let report = wire::CompleteTask {
                    lease_token: task.lease_token,
                    claim_next: Some(true),
                    ..wire::CompleteTask::default()
                };
                next = client.complete_task(&task.task_id, &report).await?.body.next;
                left.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
    Ok(())
}
