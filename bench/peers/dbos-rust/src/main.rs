//! DBOS Transact for Rust. Driven by ../drive.py; the protocol stands in ../README.md.

use dbos::{Config, DBOS, Error, WorkflowRef, step};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

const STEPS: usize = 10;
/// Workflows in flight, and connections. Of 16 to 128 in flight with 10 to 64 connections, these were fastest.
const CONCURRENCY: usize = 64;
const CONNECTIONS: u32 = 64;

type Chain = WorkflowRef<(), ()>;

async fn noop() -> Result<(), Error> {
    Ok(())
}

async fn many(chain: &Chain, count: usize) -> Result<(), Error> {
    let begun = Arc::new(AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..CONCURRENCY.min(count) {
        let (chain, begun) = (chain.clone(), begun.clone());
        tasks.spawn(async move {
            while begun.fetch_add(1, Ordering::Relaxed) < count {
                chain.run(()).await?;
            }
            Ok::<_, Error>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("a task panicked")?;
    }
    Ok(())
}

async fn one_by_one(chain: &Chain, count: usize) -> Result<Vec<f64>, Error> {
    let mut milliseconds = Vec::with_capacity(count);
    for _ in 0..count {
        let begin = Instant::now();
        chain.run(()).await?;
        milliseconds.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    Ok(milliseconds)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).expect("usage: peer-dbos-rust URL");
    let dbos = DBOS::new(Config {
        app_version: Some("bench".to_owned()),
        max_connections: CONNECTIONS,
        ..Config::new("bench", url)
    });
    let chain: Chain = dbos.register_workflow("chain", |()| async move {
        for _ in 0..STEPS {
            step("noop", noop).await?;
        }
        Ok::<_, Error>(())
    })?;
    dbos.launch().await?;
    println!("ready");

    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await.expect("standard input") {
        let (work, count) = line.split_once(' ').expect("WORK COUNT");
        let count = count.parse().expect("COUNT");
        let milliseconds = match work {
            "W1" => many(&chain, count).await.map(|()| vec![])?,
            "W2" => one_by_one(&chain, count).await?,
            _ => panic!("unknown work {work}"),
        };
        println!("{milliseconds:?}");
    }
    dbos.shutdown().await;
    Ok(())
}
