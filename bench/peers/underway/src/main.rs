//! underway: every step is a task that a worker claims, so it stands beside our leased steps. Driven by
//! ../drive.py; the protocol stands in ../README.md.
//!
//! Two traps. An instance of `Job` shares one step index between enqueueing and working: whoever enqueues with the
//! instance that works begins at whatever step was last worked on, and the steps before it are skipped. So jobs are
//! enqueued through a second instance. And there is no way to wait for a job: its last step says that it is there,
//! which is a commit too early, to underway's advantage; drive.py then waits for the rows.

use sqlx::postgres::{PgPool, PgPoolOptions};
use std::time::Instant;
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use underway::job::Context;
use underway::{Job, To, task};

const WORKERS: usize = 8;
const PRODUCERS: usize = 8;

type Failure = Box<dyn std::error::Error + Send + Sync>;

type Chain = Job<(), UnboundedSender<()>>;

/// Does nothing; the last of a job's steps reports that it is there.
async fn step(cx: Context<UnboundedSender<()>>, (): ()) -> task::Result<To<()>> {
    if cx.step_index + 1 < cx.step_count {
        return To::next(());
    }
    let _ = cx.state.send(());
    To::done()
}

async fn job(steps: usize, pool: &PgPool, ended: &UnboundedSender<()>) -> Result<Chain, Failure> {
    let mut builder = Job::builder().state(ended.clone()).step(step);
    for _ in 1..steps {
        builder = builder.step(step);
    }
    Ok(builder.name(format!("chain-{steps}")).pool(pool.clone()).build().await?)
}

struct Bench {
    enqueuing: Chain,
    ended: UnboundedReceiver<()>,
}

impl Bench {
    async fn start(steps: usize, pool: &PgPool) -> Result<Bench, Failure> {
        let (sender, ended) = unbounded_channel();
        let mut worker = job(steps, pool, &sender).await?.worker();
        worker.set_concurrency_limit(WORKERS);
        tokio::spawn(async move { worker.run().await.expect("the worker failed") });
        Ok(Bench { enqueuing: job(steps, pool, &sender).await?, ended })
    }

    async fn many(&mut self, count: usize) -> Result<(), Failure> {
        for producer in 0..PRODUCERS {
            let job = self.enqueuing.clone();
            let share = (count + producer) / PRODUCERS;
            tokio::spawn(async move {
                for _ in 0..share {
                    job.enqueue(&()).await.expect("not enqueued");
                }
            });
        }
        for _ in 0..count {
            self.ended.recv().await;
        }
        Ok(())
    }

    async fn one_by_one(&mut self, count: usize) -> Result<Vec<f64>, Failure> {
        let mut milliseconds = Vec::with_capacity(count);
        for _ in 0..count {
            let begin = Instant::now();
            self.enqueuing.enqueue(&()).await?;
            self.ended.recv().await;
            milliseconds.push(begin.elapsed().as_secs_f64() * 1e3);
        }
        Ok(milliseconds)
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = std::env::args().nth(1).expect("usage: peer-underway URL");
    let pool = PgPoolOptions::new().max_connections(WORKERS as u32 * 2 + PRODUCERS as u32 + 4).connect(&url).await?;
    underway::run_migrations(&pool).await?;
    let mut chain = Bench::start(10, &pool).await?;
    let mut single = Bench::start(1, &pool).await?;
    println!("ready");

    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let (work, count) = line.split_once(' ').expect("WORK COUNT");
        let count = count.parse()?;
        let milliseconds = match work {
            "W1" => chain.many(count).await.map(|()| vec![])?,
            "W2" => chain.one_by_one(count).await?,
            "W3" => single.many(count).await.map(|()| vec![])?,
            _ => panic!("unknown work {work}"),
        };
        println!("{milliseconds:?}");
    }
    Ok(())
}
