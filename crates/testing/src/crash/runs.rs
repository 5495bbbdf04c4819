//! Runs, while servers and workers are killed: `countersign serve` and workers in processes of their own get SIGKILL at
//! seeded moments. In the end every result that was acknowledged is there, no step was completed by two, every run has
//! ended as its definition says, and the log verifies, by the server's own account and by that of `countersign-verify`.

use super::binary;
use super::server::Server;
use super::worker::{Acknowledged, Yard};
use crate::load::Rng;
use crate::place::{Kind, Place};
use anyhow::{Context, bail, ensure};
use countersign_client::wire::{ExportQuery, RunView, StartRun, VerifyLog};
use countersign_client::{Client, Error, Format};
use serde_json::json;
use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
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
const DEFINITIONS: [&str; 3] = [
    "kind: workflow
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
",
    "kind: workflow
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
",
    "kind: workflow
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
",
];

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
    let stage = Stage::new(program, kind, nodes, seed).await?;
    let logs = stage.place.directory().display().to_string();
    let report = play(stage, seed, kills).await;
    report.with_context(|| format!("runs killed on {kind} with {nodes} nodes, seed {seed}; logs: {logs}"))
}

struct Stage {
    place: Place,
    program: PathBuf,
    binary: PathBuf,
    servers: Vec<Server>,
    urls: Arc<Mutex<Vec<Option<String>>>>,
    yard: Yard,
    token: String,
    crew: Crew,
    hired: usize,
    seed: u64,
}

impl Stage {
    async fn new(program: &Path, kind: Kind, nodes: usize, seed: u64) -> anyhow::Result<Stage> {
        let place = Place::new(kind).await?;
        let binary = binary::countersign()?;
        let mut servers = vec![];
        for n in 0..nodes {
            servers.push(Server::start(&binary, place.directory().join(format!("node-{n}")), &place.url).await?);
        }
        let token = std::fs::read_to_string(place.directory().join("node-0").join("admin.token"))?.trim().to_owned();
        let client = Client::new(&servers[0].url)?.with_token(&token)?;
        for text in DEFINITIONS {
            client.publish_definition(Format::Yaml, text.as_bytes()).await?;
        }
        let yard = Yard::new(place.directory().join("yard"), &token)?;
        let urls = Arc::new(Mutex::new(servers.iter().map(|server| Some(server.url.clone())).collect()));
        let program = program.to_owned();
        let mut stage =
            Stage { place, program, binary, servers, urls, yard, token, crew: Crew(vec![]), hired: 0, seed };
        stage.say_where()?;
        for _ in 0..WORKERS {
            let worker = stage.hire()?;
            stage.crew.0.push(worker);
        }
        Ok(stage)
    }

    fn say_where(&self) -> anyhow::Result<()> {
        self.yard.servers(&self.urls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn set(&self, node: usize, url: Option<String>) -> anyhow::Result<()> {
        self.urls.lock().unwrap_or_else(PoisonError::into_inner)[node] = url;
        self.say_where()
    }

    fn hire(&mut self) -> anyhow::Result<Child> {
        self.hired += 1;
        self.yard.spawn(&self.program, self.hired, self.seed)
    }

    fn client(&self, node: usize) -> anyhow::Result<Client> {
        Ok(Client::new(&self.servers[node].url)?.with_token(&self.token)?)
    }

    async fn kill_server(&mut self, node: usize) -> anyhow::Result<()> {
        self.set(node, None)?;
        self.servers[node].kill()?;
        let directory = self.place.directory().join(format!("node-{node}"));
        self.servers[node] = Server::start(&self.binary, directory, &self.place.url).await?;
        self.set(node, Some(self.servers[node].url.clone()))
    }

    fn kill_worker(&mut self, n: usize) -> anyhow::Result<()> {
        let worker = self.hire()?;
        self.crew.0[n].kill()?;
        self.crew.0[n].wait()?;
        self.crew.0[n] = worker;
        Ok(())
    }

    /// Returns when workers have been told so much more.
    async fn wait_for_work(&mut self, more: u64) -> anyhow::Result<()> {
        let (goal, until) = (self.yard.told_bytes()? + more, Instant::now() + PATIENCE);
        while self.yard.told_bytes()? < goal {
            for server in &mut self.servers {
                server.require_alive()?;
            }
            for worker in &mut self.crew.0 {
                ensure!(worker.try_wait()?.is_none(), "a worker ended by itself");
            }
            ensure!(Instant::now() < until, "nothing is done any more");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }
}

/// The workers that are alive; none outlives the test.
struct Crew(Vec<Child>);

impl Drop for Crew {
    fn drop(&mut self) {
        for worker in &mut self.0 {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

/// Starts runs, and keeps their ids.
#[derive(Default)]
struct Starter {
    ids: Mutex<Vec<(String, &'static str)>>,
    /// Runs that have ended, as far as somebody looked.
    ended: AtomicUsize,
    over: AtomicBool,
}

impl Starter {
    fn ids(&self) -> Vec<(String, &'static str)> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Each start is repeated under its key until somebody answers: it is there once.
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
        stage.wait_for_work(1 + rng.below(BETWEEN) as u64).await?;
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
    stage.wait_for_work(1).await?;
    starter.over.store(true, Ordering::SeqCst);
    starting.await??;
    let runs = require_ended(&stage, &starter.ids()).await?;
    let told = stage.yard.told()?;
    require_kept(&runs, &told)?;
    let clients: Vec<Client> = (0..stage.servers.len()).map(|node| stage.client(node)).collect::<Result<_, _>>()?;
    require_proven(&clients, stage.place.directory()).await?;
    let report = RunsReport { runs: runs.len(), acknowledged: told.len(), servers_killed, workers_killed };
    end(stage).await?;
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

/// The first of these servers finds nothing wrong with its log, nor does the auditor with what it exports.
pub(crate) async fn require_proven(servers: &[Client], directory: &Path) -> anyhow::Result<Proven> {
    let client = servers.first().context("no server")?;
    let clock = Instant::now();
    // The server seals by itself too: there may be nothing left.
    match client.seal().await {
        Err(error) if error.code() != Some("nothing-to-seal") => return Err(error.into()),
        _ => {}
    }
    let report = client.verify_log(&VerifyLog::default(), |_| ()).await?.body;
    ensure!(report.findings.is_empty(), "the log does not verify: {:#?}", report.findings);
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

async fn end(stage: Stage) -> anyhow::Result<()> {
    let Stage { place, servers, crew, .. } = stage;
    drop(crew);
    for mut server in servers {
        let status = server.terminate().await?;
        ensure!(status.success(), "a server that was told to stop ended with {status}");
    }
    super::require_log(&place).await?;
    place.remove().await
}
