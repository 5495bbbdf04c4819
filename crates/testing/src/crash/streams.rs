//! The live stream of the real binary: a reader that comes back with its `Last-Event-ID` after SIGKILL is told of everything
//! that was acknowledged meanwhile; and a thousand readers cost no reads.

use super::stage::Stage;
use crate::load::Rng;
use crate::place::Kind;
use anyhow::{Context, ensure};
use countersign_client::{Client, EventStream, StreamEvent, wire};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const PROCESSES: usize = 3;
/// Only a test that fails waits that long.
const PATIENCE: Duration = Duration::from_secs(60);
const MANY: usize = 1000;
const COMMITS: u64 = 10;
/// Reads of the server's own background tasks, and of requests that are not counted one by one.
const OTHER_READS: u64 = 100;
const MEMORY: u64 = 64 << 20;

#[derive(Clone, Copy, Debug, Default)]
pub struct StreamsReport {
    pub kills: usize,
    pub acknowledged: u64,
    /// Topics that a reader heard of only when it came back.
    pub missed: usize,
}

/// What one reader knows: the highest sequence of each topic, and where to go on.
struct Reader {
    names: Vec<String>,
    told: BTreeMap<String, u64>,
    last_id: Option<String>,
    stream: EventStream,
}

impl Reader {
    async fn open(client: &Client, names: Vec<String>, last_id: Option<String>) -> anyhow::Result<Reader> {
        let topics: Vec<&str> = names.iter().map(String::as_str).collect();
        let stream = client.follow(&topics, last_id.as_deref()).await?;
        Ok(Reader { names, told: BTreeMap::new(), last_id, stream })
    }

    /// `false`: the connection is gone.
    async fn hear(&mut self) -> anyhow::Result<bool> {
        let event = tokio::time::timeout(PATIENCE, self.stream.next()).await.context("nothing is told")?;
        let Some(StreamEvent::Moved(moved)) = event else { return Ok(false) };
        if let Some(sequence) = moved.sequence {
            let known = self.told.entry(moved.topic).or_default();
            *known = sequence.max(*known);
        }
        self.last_id = self.stream.last_event_id().map(str::to_owned).or_else(|| self.last_id.take());
        Ok(true)
    }

    async fn hear_until(&mut self, topic: &str, sequence: u64) -> anyhow::Result<()> {
        while self.told.get(topic).is_none_or(|told| *told < sequence) {
            ensure!(self.hear().await?, "the stream ended before {topic} came to {sequence}: {:?}", self.told);
        }
        Ok(())
    }

    /// Comes back, at this server, knowing what it knew.
    async fn again(self, client: &Client) -> anyhow::Result<Reader> {
        let told = self.told;
        Ok(Reader { told, ..Reader::open(client, self.names, self.last_id).await? })
    }
}

async fn start(client: &Client) -> anyhow::Result<String> {
    let declaration = serde_json::from_str(
        r#"{"states": ["a"], "transitions": [{"from": "a", "action": "go", "to": "a"}], "initial_state": "a", "terminal_states": []}"#,
    )?;
    let start = wire::StartProcess {
        declaration: Some(declaration),
        definition: None,
        subject_ref: "followed".to_owned(),
        gate_spec: Some(serde_json::from_str("{}")?),
        reason: None,
    };
    Ok(client.start(&start).await?.body.instance_id)
}

fn fire() -> wire::FireTransition {
    wire::FireTransition { action: "go".to_owned(), reason: None }
}

/// Kills the server that a reader is connected to, while processes move; the reader comes back to the next one.
pub async fn killed_with_streams(
    program: &Path,
    kind: Kind,
    nodes: usize,
    seed: u64,
    kills: usize,
) -> anyhow::Result<StreamsReport> {
    let mut stage = Stage::new(program, kind, nodes, seed, "").await?;
    let (mut rng, mut report) = (Rng::new(seed), StreamsReport { kills, ..StreamsReport::default() });
    let mut processes = vec![];
    for _ in 0..PROCESSES {
        // The record of the start is the first one.
        processes.push((start(&stage.client(0)?).await?, Arc::new(AtomicU64::new(1))));
    }
    let topic = |instance_id: &str| format!("process:{instance_id}");
    let names: Vec<String> =
        processes.iter().map(|(id, _)| topic(id)).chain(["inbox".to_owned(), "runs".to_owned()]).collect();
    let mut reader = Reader::open(&stage.client(0)?, names, None).await?;
    for n in 0..kills {
        for (id, acknowledged) in &processes {
            reader.hear_until(&topic(id), acknowledged.load(Ordering::SeqCst)).await?;
        }
        let node = n % nodes;
        // Not all of them move, and none of them is waited for.
        let writers: Vec<_> = processes[..1 + rng.below(PROCESSES)]
            .iter()
            .map(|(id, acknowledged)| {
                let (client, id, acknowledged) = (stage.client(node), id.clone(), acknowledged.clone());
                tokio::spawn(async move {
                    let client = client?;
                    while client.fire(&id, &fire()).await.is_ok() {
                        acknowledged.fetch_add(1, Ordering::SeqCst);
                    }
                    anyhow::Ok(())
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(20 + rng.below(60) as u64)).await;
        stage.kill_server(node).await?;
        for writer in writers {
            writer.await??;
        }
        while reader.hear().await? {}
        let missed = |(id, acknowledged): &&(String, Arc<AtomicU64>)| {
            reader.told.get(&topic(id)).is_none_or(|told| *told < acknowledged.load(Ordering::SeqCst))
        };
        report.missed += processes.iter().filter(missed).count();
        // The sequence of what was written and not acknowledged counts too: what is told now is where the process stands.
        reader = reader.again(&stage.client((n + 1) % nodes)?).await?;
        for (id, acknowledged) in &processes {
            reader.hear_until(&topic(id), acknowledged.load(Ordering::SeqCst)).await?;
            acknowledged.store(reader.told[&topic(id)], Ordering::SeqCst);
        }
    }
    report.acknowledged = processes.iter().map(|(_, acknowledged)| acknowledged.load(Ordering::SeqCst)).sum();
    drop(reader);
    stage.end().await?;
    Ok(report)
}

/// How often the server has read its store for requests.
async fn reads(client: &reqwest::Client, url: &str) -> anyhow::Result<u64> {
    let text = client.get(format!("{url}/metrics")).send().await?.text().await?;
    let line = text.lines().find_map(|line| line.strip_prefix("countersign_store_reads_total "));
    line.context("no such counter")?.parse().context("a number")
}

/// A thousand readers of one process: each reads once, when it begins, and no commit makes it read again.
pub async fn followed_by_many(program: &Path, kind: Kind) -> anyhow::Result<()> {
    let stage = Stage::new(program, kind, 1, 1, "[limits]\nstreams_per_actor = 2000\n").await?;
    let (client, http) = (stage.client(0)?, reqwest::Client::builder().no_proxy().build()?);
    let id = start(&client).await?;
    let topic = format!("process:{id}");
    let url = stage.servers[0].url.clone();
    let (before, memory) = (reads(&http, &url).await?, stage.servers[0].rss_bytes()?);
    let mut readers = Vec::new();
    for _ in 0..MANY {
        let names = vec![topic.clone(), "runs".to_owned(), "inbox".to_owned(), "worklist".to_owned()];
        let mut reader = Reader::open(&client, names, None).await?;
        reader.hear_until(&topic, 1).await?;
        readers.push(reader);
    }
    let opened = reads(&http, &url).await?;
    ensure!(opened - before <= MANY as u64 + OTHER_READS, "{} reads to begin {MANY} streams", opened - before);
    for sequence in 2..2 + COMMITS {
        client.fire(&id, &fire()).await?;
        for reader in &mut readers {
            reader.hear_until(&topic, sequence).await?;
        }
    }
    let followed = reads(&http, &url).await? - opened;
    ensure!(followed <= OTHER_READS, "{followed} reads for {COMMITS} commits with {MANY} readers");
    let grown = stage.servers[0].rss_bytes()?.saturating_sub(memory);
    ensure!(grown < MEMORY, "{MANY} streams take {} MiB", grown >> 20);
    drop(readers);
    stage.end().await
}
