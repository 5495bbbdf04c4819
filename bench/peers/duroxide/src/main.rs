//! duroxide: an orchestration is replayed for every result of an activity, which a worker of the same process claims. Driven
//! by ../drive.py; the protocol stands in ../README.md.
//!
//! On SQLite its stock durability is less than ours: it sets `synchronous = WAL`, which SQLite does not know and takes for
//! NORMAL, so its commits are not flushed one by one. Whoever waits for an orchestration polls, up to every 100 ms. Idle
//! dispatchers poll every POLL here instead of every 100 ms.

use duroxide::providers::Provider;
use duroxide::providers::sqlite::SqliteProvider;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{Runtime, RuntimeOptions};
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry, OrchestrationStatus};
use duroxide_pg::PostgresProvider;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

const STEPS: usize = 10;
const CONCURRENCY: usize = 16;
const POLL: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(120);

type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn open(url: &str) -> Result<Arc<dyn Provider>, Failure> {
    // The driver's form for a file has three slashes before the path.
    match url.strip_prefix("sqlite:///") {
        Some(path) => Ok(Arc::new(SqliteProvider::new(&format!("sqlite:{path}?mode=rwc"), None).await?)),
        None => Ok(Arc::new(PostgresProvider::new(url).await?)),
    }
}

async fn chain(context: OrchestrationContext, _: String) -> Result<String, String> {
    for _ in 0..STEPS {
        context.schedule_activity("noop", "").await?;
    }
    Ok(String::new())
}

struct Bench {
    client: Client,
    started: AtomicUsize,
}

impl Bench {
    async fn one(&self) -> Result<(), Failure> {
        let instance = format!("chain-{}", self.started.fetch_add(1, Ordering::Relaxed));
        self.client.start_orchestration(&instance, "chain", "").await?;
        match self.client.wait_for_orchestration(&instance, PATIENCE).await? {
            OrchestrationStatus::Completed { .. } => Ok(()),
            other => Err(format!("{instance} ended as {other:?}").into()),
        }
    }

    async fn many(self: &Arc<Self>, count: usize) -> Result<(), Failure> {
        let loops = CONCURRENCY.min(count);
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..loops {
            let (bench, share) = (self.clone(), (count + n) / loops);
            tasks.spawn(async move {
                for _ in 0..share {
                    bench.one().await?;
                }
                Ok::<(), Failure>(())
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok(())
    }

    async fn one_by_one(&self, count: usize) -> Result<Vec<f64>, Failure> {
        let mut milliseconds = Vec::with_capacity(count);
        for _ in 0..count {
            let begin = Instant::now();
            self.one().await?;
            milliseconds.push(begin.elapsed().as_secs_f64() * 1e3);
        }
        Ok(milliseconds)
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = std::env::args().nth(1).expect("usage: peer-duroxide URL");
    let store = open(&url).await?;
    let noop = |_: ActivityContext, _: String| async { Ok(String::new()) };
    let activities = ActivityRegistry::builder().register("noop", noop).build();
    let orchestrations = OrchestrationRegistry::builder().register("chain", chain).build();
    // On SQLite two dispatchers of a kind lock each other out: their transactions read first, and then may not write.
    let dispatchers = if url.starts_with("sqlite:") { 1 } else { 4 };
    let options = RuntimeOptions {
        orchestration_concurrency: dispatchers,
        worker_concurrency: dispatchers,
        dispatcher_min_poll_interval: POLL,
        ..RuntimeOptions::default()
    };
    let _runtime = Runtime::start_with_options(store.clone(), activities, orchestrations, options).await;
    let bench = Arc::new(Bench { client: Client::new(store), started: AtomicUsize::new(0) });
    println!("ready");

    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let (work, count) = line.split_once(' ').expect("WORK COUNT");
        let count = count.parse()?;
        let milliseconds = match work {
            "W1" => bench.many(count).await.map(|()| vec![])?,
            "W2" => bench.one_by_one(count).await?,
            _ => panic!("unknown work {work}"),
        };
        println!("{milliseconds:?}");
    }
    // Its runtime would wait for its dispatchers; there is nothing to wait for.
    std::process::exit(0);
}
