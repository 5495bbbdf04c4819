//! The live stream: from a commit on one node to a reader on another, with one reader and with a thousand.

use crate::log::memory;
use crate::report::{Report, Row};
use crate::target::Target;
use anyhow::Context;
use countersign_client::{Client, EventStream, StreamEvent, wire};
use std::time::{Duration, Instant};

const MANY: usize = 1000;
const TURNS: usize = 200;

/// Only where nodes can share a store.
pub async fn measure(store: &str, time: Duration, report: &mut Report) -> anyhow::Result<()> {
    if store != "postgres" {
        return Ok(());
    }
    eprintln!("{store}: a commit reaches a stream on another node …");
    let target = Target::http(store).await?;
    let (other, _directory) = target.beside("[limits]\nstreams_per_actor = 2000\n").await?;
    let token = target.admin_token()?;
    let here = Client::new(&target.server.as_ref().context("no server")?.url())?.with_token(&token)?;
    let there = Client::new(&other.url())?.with_token(&token)?;
    let declaration = serde_json::from_str(
        r#"{"states": ["a"], "transitions": [{"from": "a", "action": "go", "to": "a"}], "initial_state": "a", "terminal_states": []}"#,
    )?;
    let start = wire::StartProcess {
        declaration: Some(declaration),
        definition: None,
        subject_ref: "bench".to_owned(),
        gate_spec: Some(serde_json::from_str("{}")?),
        reason: None,
    };
    let instance_id = here.start(&start).await?.body.instance_id;
    let topic = format!("process:{instance_id}");
    let fire = wire::FireTransition { action: "go".to_owned(), reason: None };

    let mut stream = there.follow(&[&topic], None).await?;
    let mut sequence = 1;
    reach(&mut stream, sequence).await?;
    let (mut samples, begin) = (Vec::new(), Instant::now());
    while begin.elapsed() < time {
        sequence += 1;
        here.fire(&instance_id, &fire).await?;
        let committed = Instant::now();
        reach(&mut stream, sequence).await?;
        samples.push(u32::try_from(committed.elapsed().as_micros())?);
    }
    report.add(Row::new("commit to a stream on another node", store, "http", 1, &samples, begin.elapsed()));

    let before = memory::now()?;
    let mut streams = Vec::new();
    for _ in 0..MANY {
        let mut stream = there.follow(&[&topic, "runs", "inbox"], None).await?;
        reach(&mut stream, sequence).await?;
        streams.push(stream);
    }
    let grown = memory::now()?.saturating_sub(before) >> 20;
    let (mut samples, begin) = (Vec::new(), Instant::now());
    for _ in 0..TURNS {
        sequence += 1;
        here.fire(&instance_id, &fire).await?;
        let committed = Instant::now();
        for stream in &mut streams {
            reach(stream, sequence).await?;
        }
        samples.push(u32::try_from(committed.elapsed().as_micros())?);
    }
    let work = format!("commit to the last of 1,000 streams there, {grown} MiB more with their readers");
    report.add(Row::new(&work, store, "http", MANY, &samples, begin.elapsed()));
    drop((stream, streams));
    other.shutdown().await?;
    target.close().await
}

/// Reads until the topic has come to this sequence.
async fn reach(stream: &mut EventStream, sequence: u64) -> anyhow::Result<()> {
    while let Some(event) = stream.next().await {
        if matches!(event, StreamEvent::Moved(moved) if moved.sequence == Some(sequence)) {
            return Ok(());
        }
    }
    anyhow::bail!("the stream ended")
}
