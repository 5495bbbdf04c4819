//! What it costs to draw a run of 10,000 steps, and to follow it: all cells, and what changed after one completion. In process the
//! engine's read is timed; over HTTP all that the server does, with the roll-up, the JSON and its compression.

use crate::report::{Report, Row};
use crate::target::Target;
use crate::workflows::{QUEUE, config, publish, start_named};
use anyhow::{Context, ensure};
use countersign_client::{Client, Format, wire};
use countersign_engine::{Call, ClaimCall, Command, Engine, Proof, Target as Aim};
use countersign_kernel::InstanceId;
use countersign_kernel::run::{self, TaskRef};
use countersign_ledger::sha256;
use std::fmt::Write as _;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const STEPS: usize = 10_000;
const DELTAS: usize = 200;
const WHOLE: usize = 20;
const LEASE_US: i64 = 600_000_000;

pub async fn measure(store: &str, report: &mut Report) -> anyhow::Result<()> {
    eprintln!("{store}: cells of a run of {STEPS} steps …");
    let target = Target::in_process_with(store, config()).await?;
    let engine = target.engine.clone().context("no engine")?;
    engine.bootstrap("admin", sha256(&[b"bench"])).await?;
    publish(&engine, &wide()?).await?;
    let run_id = start_named(&engine, "wide").await?;
    let (mut deltas, mut since) = (vec![], None);
    for _ in 0..DELTAS {
        since = Some(engine.read_cells("admin", run_id, since).await?.run.chain.sequence);
        complete_one(&engine).await?;
        let before = Instant::now();
        let delta = engine.read_cells("admin", run_id, since).await?;
        deltas.push(u32::try_from(before.elapsed().as_micros())?);
        ensure!(!delta.full && delta.steps.len() == 1, "{} steps changed", delta.steps.len());
    }
    let mut whole = vec![];
    for _ in 0..WHOLE {
        let before = Instant::now();
        ensure!(engine.read_cells("admin", run_id, None).await?.steps.len() == STEPS);
        whole.push(u32::try_from(before.elapsed().as_micros())?);
    }
    add(report, store, "in process", deltas, whole);
    drop(engine);
    target.close().await?;
    over_http(store, report).await
}

fn wide() -> anyhow::Result<String> {
    let mut text = format!("kind: workflow\nname: wide\norder: dag\nqueue: {QUEUE}\nsteps:\n");
    (0..STEPS).try_for_each(|n| writeln!(text, "  - {{name: s{n}}}"))?;
    Ok(text)
}

fn add(report: &mut Report, store: &str, mode: &str, deltas: Vec<u32>, whole: Vec<u32>) {
    for (work, samples) in [("cells: delta of one in 10,000", deltas), ("cells: all of 10,000", whole)] {
        let total: u64 = samples.iter().map(|us| u64::from(*us)).sum();
        report.add(Row::new(work, store, mode, 1, &samples, Duration::from_micros(total)));
    }
}

async fn over_http(store: &str, report: &mut Report) -> anyhow::Result<()> {
    let target = Target::http(store).await?;
    let url = target.server.as_ref().context("no server")?.url();
    let client = Client::new(&url)?.with_token(&target.admin_token()?)?;
    client.publish_definition(Format::Yaml, wide()?.as_bytes()).await?;
    let start = wire::StartRun { definition: "wide".into(), ..wire::StartRun::default() };
    let run_id = client.start_run(&start).await?.body.run_id;
    let mut line = Line::open(url.trim_start_matches("http://"), target.admin_token()?).await?;
    let path = format!("/v1/runs/{run_id}/cells");
    let mut whole = vec![];
    for _ in 0..WHOLE {
        whole.push(line.get(&path, "gzip").await?.0);
    }
    let sequence = async |line: &mut Line, path: &str| -> anyhow::Result<u64> {
        let (_, body) = line.get(path, "identity").await?;
        let cells: wire::RunCells = serde_json::from_slice(&body)?;
        Ok(cells.sequence)
    };
    let mut since = sequence(&mut line, &path).await?;
    let mut deltas = vec![];
    for _ in 0..DELTAS {
        let claim = wire::ClaimTasks { worker_id: "bench".into(), max: Some(1), lease_ms: None, wait_ms: None };
        let task = client.claim_tasks(QUEUE, &claim).await?.body.tasks.pop().context("no task")?;
        let done = wire::CompleteTask { lease_token: task.lease_token, ..wire::CompleteTask::default() };
        client.complete_task(&task.task_id, &done).await?;
        let changed = format!("{path}?since={since}");
        deltas.push(line.get(&changed, "gzip").await?.0);
        since = sequence(&mut line, &changed).await?;
    }
    add(report, store, "http", deltas, whole);
    target.close().await
}

/// A connection that asks and does nothing else: what it waits for is the server.
struct Line {
    stream: TcpStream,
    address: String,
    token: String,
}

impl Line {
    async fn open(address: &str, token: String) -> anyhow::Result<Line> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Line { stream, address: address.to_owned(), token })
    }

    /// Microseconds from the request to the last byte of the answer, and its body.
    async fn get(&mut self, path: &str, coding: &str) -> anyhow::Result<(u32, Vec<u8>)> {
        let Line { stream, address, token } = self;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nAccept-Encoding: {coding}\r\n\r\n"
        );
        let before = Instant::now();
        stream.write_all(request.as_bytes()).await?;
        let (mut bytes, mut chunk) = (vec![], vec![0; 1 << 16]);
        loop {
            let count = stream.read(&mut chunk).await?;
            ensure!(count > 0, "the server closed the connection");
            bytes.extend_from_slice(&chunk[..count]);
            let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
            let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
            ensure!(head.starts_with("http/1.1 200"), "{head}");
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.context("no length")?.parse()?;
            if bytes.len() >= end + 4 + length {
                return Ok((u32::try_from(before.elapsed().as_micros())?, bytes.split_off(end + 4)));
            }
        }
    }
}

async fn complete_one(engine: &Engine) -> anyhow::Result<()> {
    let claim = ClaimCall { queue: QUEUE.into(), worker_id: "bench".into(), max: 1, lease: LEASE_US };
    let task = engine.claim("admin", Proof::InProcess, claim, Duration::ZERO).await?.pop().context("no task")?;
    let of = TaskRef { step_seq: task.step_seq, lease_token: uuid::Uuid::try_parse(&task.lease_token).ok() };
    let command = run::Command::Complete {
        task: of,
        output: "null".into(),
        outbound: vec![],
        claim_next: None,
        artifacts: vec![],
    };
    let target = Aim::Existing(InstanceId::parse(&task.run_id).context("an id")?);
    let command = Command::Run { target, command };
    engine.execute(Call { actor_ref: "admin".to_owned(), proof: Proof::InProcess, command, idempotency: None }).await?;
    Ok(())
}
