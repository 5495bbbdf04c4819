//! The start of a server with many live runs: the time from its start to the first write, and until a worker has a
//! task.

use crate::report::{Report, Row};
use crate::target::Target;
use crate::workflows::{QUEUE, definition};
use anyhow::Context;
use countersign_client::{Client, Format, wire};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Starts of the server that are measured.
const STARTS: usize = 3;
const CLIENTS: usize = 128;

pub async fn measure(store: &str, live: usize, report: &mut Report) -> anyhow::Result<()> {
    if live == 0 {
        return Ok(());
    }
    eprintln!("{store}: {live} live runs to be started first …");
    let target = Target::http(store).await?;
    start_many(&target, live).await?;
    let mut place = target.stop().await?;
    let (mut writes, mut tasks) = (vec![], vec![]);
    for _ in 0..STARTS {
        let begin = Instant::now();
        let served = Target::serve(place).await?;
        let client = client(&served)?;
        client.start_run(&run()).await?;
        writes.push(u32::try_from(begin.elapsed().as_micros())?);
        let claim = wire::ClaimTasks { worker_id: "first".into(), max: Some(1), lease_ms: None, wait_ms: Some(20_000) };
        client.claim_tasks(QUEUE, &claim).await?.body.tasks.pop().context("no task within 20 s")?;
        tasks.push(u32::try_from(begin.elapsed().as_micros())?);
        place = served.stop().await?;
    }
    place.remove().await?;
    for (what, samples) in [("first write", writes), ("first task", tasks)] {
        let total: u64 = samples.iter().map(|us| u64::from(*us)).sum();
        let work = format!("start to {what}, {live} live runs");
        report.add(Row::new(&work, store, "http", 1, &samples, Duration::from_micros(total)));
    }
    Ok(())
}

fn run() -> wire::StartRun {
    wire::StartRun { definition: "chain-1".into(), ..wire::StartRun::default() }
}

fn client(target: &Target) -> anyhow::Result<Client> {
    let url = target.server.as_ref().context("no server")?.url();
    Ok(Client::new(&url)?.with_token(&target.admin_token()?)?)
}

/// Runs of one step that nothing works on.
async fn start_many(target: &Target, runs: usize) -> anyhow::Result<()> {
    client(target)?.publish_definition(Format::Yaml, definition(1).as_bytes()).await?;
    let next = Arc::new(AtomicUsize::new(0));
    let mut starters = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        let (client, next) = (client(target)?, next.clone());
        starters.spawn(async move {
            while next.fetch_add(1, Ordering::Relaxed) < runs {
                client.start_run(&run()).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = starters.join_next().await {
        done??;
    }
    Ok(())
}
