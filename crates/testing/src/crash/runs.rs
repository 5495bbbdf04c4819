//! Runs, while servers and workers are killed: `countersign serve` and workers in separate processes get SIGKILL at
//! seeded moments. At the end every acknowledged result exists, no step was completed by two workers, every run has
//! ended as its definition says, and the log verifies, by the server and by `countersign-verify`.

use super::binary;
use super::stage::Stage;
use super::worker::Acknowledged;
use crate::load::Rng;
use crate::place::Kind;
use anyhow::{Context, bail, ensure};
use countersign_client::wire::{ExportQuery, RunView, StartRun, VerifyLog};
use countersign_client::{Client, Error, Format};
use serde_json::json;
use std::collections::HashMap;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const WORKERS: usize = 3;
/// Bytes of acknowledgements between two kills, at most; a line has about 200.
const BETWEEN: usize = 4000;
/// Runs that may be under way at once.
const OPEN: usize = 12;
const PATIENCE: Duration = Duration::from_secs(180);

/// A lease that a killed worker took with it is an attempt without a verdict, so every step may be tried again often.
const DEFINITIONS: [&str; 3] = [CHAIN, FAN, SAGA];

pub(super) const CHAIN: &str = "kind: workflow
name: chain
order: linear
queue: crash
retryPolicy: {maxRetries: 60, backoff: constant, initialDelay: 10ms, maxDelay: 10ms}
steps:
  - {name: a, idempotent: true}
  - {name: b, idempotent: true, input: {before: \"${steps.a.output}\"}}
  - {name: nap, run: wait, for: 30ms}
  - {name: c, idempotent: true}
  - {name: d, idempotent: true, input: {before: \"${steps.c.output}\"}}
";
const FAN: &str = "kind: workflow
name: fan
queue: crash
retryPolicy: {maxRetries: 60, backoff: constant, initialDelay: 10ms, maxDelay: 10ms}
steps:
  - {name: root, idempotent: true}
  - {name: l1, dependsOn: [root], idempotent: true}
  - {name: l2, dependsOn: [root], idempotent: true}
  - {name: l3, dependsOn: [root], idempotent: true}
  - {name: l4, dependsOn: [root], idempotent: true}
  - {name: join, dependsOn: [l1, l2, l3, l4], idempotent: true, input: {one: \"${steps.l1.output}\"}}
";
const SAGA: &str = "kind: workflow
name: saga
order: linear
queue: crash
failurePolicy: compensate
retryPolicy: {maxRetries: 60, backoff: constant, initialDelay: 10ms, maxDelay: 10ms}
steps:
  - {name: a, idempotent: true}
  - {name: b, idempotent: true}
  - {name: hopeless, idempotent: true}
compensation:
  - {step: a, action: undo a, agent: crash}
  - {step: b, action: undo b, agent: crash}
";

#[derive(Clone, Debug)]
pub struct RunsReport {
    pub runs: usize,
    pub acknowledged: usize,
    pub servers_killed: usize,
    pub workers_killed: usize,
}

impl std::fmt::Display for RunsReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let RunsReport { runs, acknowledged, servers_killed, workers_killed } = self;
        write!(
            f,
            "{runs} runs ended, {acknowledged} results acknowledged; {servers_killed} servers and {workers_killed} workers killed"
        )
    }
}

/// `program` is `countersign-torture`, which is a worker too.
pub async fn killed_with_runs(
    program: &Path,
    kind: Kind,
    nodes: usize,
    seed: u64,
    kills: usize,
) -> anyhow::Result<RunsReport> {
    let stage = set(program, kind, nodes, seed).await?;
    let logs = stage.logs();
    let report = play(stage, seed, kills).await;
    report.with_context(|| format!("runs killed on {kind} with {nodes} nodes, seed {seed}; logs: {logs}"))
}

/// The servers have every definition, and workers are at work.
async fn set(program: &Path, kind: Kind, nodes: usize, seed: u64) -> anyhow::Result<Stage> {
    let mut stage = Stage::new(program, kind, nodes, seed, "").await?;
    let client = stage.client(0)?;
    for text in DEFINITIONS {
        client.publish_definition(Format::Yaml, text.as_bytes()).await?;
    }
    stage.hire(WORKERS)?;
    Ok(stage)
}

/// Returns after this many more answers to workers.
async fn wait_for_work(stage: &mut Stage, more: u64) -> anyhow::Result<()> {
    let (goal, until) = (stage.yard.told_bytes()? + more, Instant::now() + PATIENCE);
    while stage.yard.told_bytes()? < goal {
        for server in &mut stage.servers {
            server.require_alive()?;
        }
        for worker in &mut stage.crew.0 {
            ensure!(worker.try_wait()?.is_none(), "a worker ended by itself");
        }
        ensure!(Instant::now() < until, "nothing is done any more");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// Starts runs, and keeps their ids.
#[derive(Default)]
struct Starter {
    ids: Mutex<Vec<(String, &'static str)>>,
    /// Runs known to have ended.
    ended: AtomicUsize,
    over: AtomicBool,
}

impl Starter {
    fn ids(&self) -> Vec<(String, &'static str)> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Each start is repeated under its key until a server answers, and has one effect.
    async fn run(&self, urls: &Mutex<Vec<Option<String>>>, token: &str, mut rng: Rng) -> anyhow::Result<()> {
        for n in 0.. {
            while self.ids().len() >= self.ended.load(Ordering::SeqCst) + OPEN && !self.over.load(Ordering::SeqCst) {
                self.look(urls, token).await?;
            }
            if self.over.load(Ordering::SeqCst) {
                break;
            }
            let name = *rng.pick(&["chain", "fan", "saga"]).context("a name")?;
            let request =
                StartRun { definition: name.to_owned(), input: Some(json!({ "n": n })), ..Default::default() };
            let run_id = loop {
                let Some(client) = any(urls, token)? else {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    continue;
                };
                match client.with_idempotency_key(&format!("start-{n}"))?.start_run(&request).await {
                    Ok(answer) => break answer.body.run_id,
                    // Another node may not have heard of the definition yet.
                    Err(Error::Refused(problem)) if problem.status < 500 && problem.code != "not-known" => {
                        bail!("a start was refused: {}: {}", problem.code, problem.detail)
                    }
                    Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            };
            self.ids.lock().unwrap_or_else(PoisonError::into_inner).push((run_id, name));
        }
        Ok(())
    }

    /// Counts how many of the oldest have ended.
    async fn look(&self, urls: &Mutex<Vec<Option<String>>>, token: &str) -> anyhow::Result<()> {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let Some(client) = any(urls, token)? else { return Ok(()) };
        let oldest = self.ids().get(self.ended.load(Ordering::SeqCst)).cloned();
        let Some((run_id, _)) = oldest else { return Ok(()) };
        if let Ok(answer) = client.run(&run_id).await
            && has_ended(&answer.body)
        {
            self.ended.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }
}

fn any(urls: &Mutex<Vec<Option<String>>>, token: &str) -> anyhow::Result<Option<Client>> {
    let url = urls.lock().unwrap_or_else(PoisonError::into_inner).iter().flatten().next().cloned();
    url.map(|url| Ok(Client::new(&url)?.with_token(token)?)).transpose()
}

fn has_ended(run: &RunView) -> bool {
    matches!(run.state.as_str(), "completed" | "failed" | "cancelled" | "voided")
}

async fn play(mut stage: Stage, seed: u64, kills: usize) -> anyhow::Result<RunsReport> {
    let mut rng = Rng::new(seed);
    let starter = Arc::new(Starter::default());
    let starting = {
        let (starter, urls, token) = (starter.clone(), stage.urls.clone(), stage.token.clone());
        let rng = Rng::fork(seed, 0);
        tokio::spawn(async move { starter.run(&urls, &token, rng).await })
    };
    let (mut servers_killed, mut workers_killed) = (0, 0);
    for _ in 0..kills {
        wait_for_work(&mut stage, 1 + rng.below(BETWEEN) as u64).await?;
        // Somewhere within the next commits.
        tokio::time::sleep(Duration::from_micros(rng.below(5000) as u64)).await;
        if rng.percent(50) {
            stage.kill_server(rng.below(stage.servers.len())).await?;
            servers_killed += 1;
        } else {
            stage.kill_worker(rng.below(WORKERS))?;
            workers_killed += 1;
        }
    }
    wait_for_work(&mut stage, 1).await?;
    starter.over.store(true, Ordering::SeqCst);
    starting.await??;
    let runs = require_ended(&stage, &starter.ids()).await?;
    let told = stage.yard.told()?;
    require_kept(&runs, &told)?;
    let clients: Vec<Client> = (0..stage.servers.len()).map(|node| stage.client(node)).collect::<Result<_, _>>()?;
    require_proven(&clients, stage.place.directory()).await?;
    let report = RunsReport { runs: runs.len(), acknowledged: told.len(), servers_killed, workers_killed };
    stage.end().await?;
    Ok(report)
}

/// Every run ends by itself, as its definition says.
async fn require_ended(stage: &Stage, ids: &[(String, &'static str)]) -> anyhow::Result<HashMap<String, RunView>> {
    let client = stage.client(0)?;
    let until = Instant::now() + PATIENCE;
    let mut runs = HashMap::new();
    for (run_id, name) in ids {
        let run = loop {
            let run = client.run(run_id).await?.body;
            if has_ended(&run) {
                break run;
            }
            ensure!(Instant::now() < until, "a run of {name} does not end: {run:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let outcome = (*name == "saga").then_some("rolled_back");
        ensure!((run.state.as_str(), run.outcome.as_deref()) == ("completed", outcome), "{name} ended so: {run:#?}");
        ensure!(runs.insert(run_id.clone(), run).is_none(), "{run_id} was started twice");
    }
    Ok(runs)
}

/// What a worker was told is what is stored, and nobody else was told the same of that step.
fn require_kept(runs: &HashMap<String, RunView>, told: &[Acknowledged]) -> anyhow::Result<()> {
    let mut by: HashMap<(&str, u32), &str> = HashMap::new();
    for ack in told {
        let run = runs.get(&ack.run_id).with_context(|| format!("a step of a run that nobody started: {ack:?}"))?;
        let step = run.steps.iter().find(|step| step.step_seq == ack.step_seq).context("a step that is not there")?;
        ensure!(step.state_code == ack.state_code, "{ack:?} was acknowledged, and it is {step:#?}");
        if ack.state_code == "completed" {
            ensure!(step.output.as_ref() == Some(&ack.output), "{ack:?} was acknowledged, and it is {step:#?}");
        }
        let other = by.insert((&ack.run_id, ack.step_seq), &ack.lease_token);
        ensure!(other.is_none_or(|other| other == ack.lease_token), "{ack:?} was completed twice");
    }
    Ok(())
}

/// This server finds nothing wrong with its log.
pub(super) async fn require_verified(client: &Client) -> anyhow::Result<()> {
    // The server seals by itself too: there may be nothing left.
    match client.seal().await {
        Err(error) if error.code() != Some("nothing-to-seal") => return Err(error.into()),
        _ => {}
    }
    let report = client.verify_log(&VerifyLog::default(), |_| ()).await?.body;
    ensure!(report.findings.is_empty(), "the log does not verify: {:#?}", report.findings);
    Ok(())
}

/// The first of these servers finds nothing wrong with its log, nor does the auditor with what it exports.
pub(crate) async fn require_proven(servers: &[Client], directory: &Path) -> anyhow::Result<Proven> {
    let client = servers.first().context("no server")?;
    let clock = Instant::now();
    require_verified(client).await?;
    let verified = clock.elapsed();
    let path = directory.join("evidence.zip");
    let mut bundle = std::fs::File::create(&path)?;
    client.export(&ExportQuery::default(), |piece: &[u8], _| bundle.write_all(piece)).await?;
    let exported = clock.elapsed() - verified;
    let mut command = Command::new(binary::verifier()?);
    for server in servers {
        command.args(["--key", server.log_key().await?.trim()]);
    }
    let out = command.arg(&path).output()?;
    ensure!(
        out.status.success(),
        "the auditor objects: {}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    Ok(Proven { verified, exported, audited: clock.elapsed() - verified - exported })
}

/// How long it took to prove everything: by the server, by writing a bundle, by the auditor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proven {
    pub verified: Duration,
    pub exported: Duration,
    pub audited: Duration,
}
