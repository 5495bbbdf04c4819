//! Runs have no largest size. The real binary, over HTTP, finishes one run with many parallel steps, one with many
//! steps in a row, and one with many steps that are all undone. Its memory stays within a limit, every step can be
//! read, and the log and a bundle of it verify.

use crate::crash::{Proven, Server, binary, require_proven};
use crate::place::{Kind, Place};
use anyhow::{Context, ensure};
use countersign_client::wire::{ClaimTasks, CompleteTask, DeadTask, RecordQuery, StartRun, Task};
use countersign_client::{Client, Format};
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const WORKERS: usize = 8;
const LEASE_MS: i64 = 600_000;
const CLAIM: u32 = 100;
/// What a server may take that holds no run, in a debug build.
const BASE_BYTES: u64 = 150 << 20;
/// What it may take for each step: its cell, its place in the plan, its part of the document, several times over.
const STEP_BYTES: u64 = 6 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// All steps at once.
    Parallel,
    /// One after the other; each works on what the one before it yielded.
    Sequential,
    /// All at once; then one more, which fails, and everything is undone.
    Undone,
}

#[derive(Clone, Debug)]
pub struct Report {
    pub steps: usize,
    pub published: Duration,
    pub started: Duration,
    pub worked: Duration,
    proven: Proven,
    /// Until all was worked on, and until all was verified and exported.
    pub peak_bytes: u64,
    pub peak_proven_bytes: u64,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let s = |length: &Duration| length.as_secs_f64();
        write!(
            f,
            "{} steps: published in {:.1} s, started in {:.1} s, done in {:.1} s; verified in {:.1} s, exported in {:.1} s, audited in {:.1} s; at most {} MiB, with verifying {} MiB",
            self.steps,
            s(&self.published),
            s(&self.started),
            s(&self.worked),
            s(&self.proven.verified),
            s(&self.proven.exported),
            s(&self.proven.audited),
            self.peak_bytes >> 20,
            self.peak_proven_bytes >> 20
        )
    }
}

fn document(shape: Shape, steps: usize) -> String {
    let mut text = String::from("kind: workflow\nname: large\nqueue: large\n");
    text += if shape == Shape::Sequential { "order: linear\n" } else { "order: dag\n" };
    if shape == Shape::Undone {
        text += "failurePolicy: compensate\nretryPolicy: {maxRetries: 0}\n";
    }
    text += "steps:\n";
    for n in 0..steps {
        let _ = match (shape, n) {
            (Shape::Parallel | Shape::Undone, _) | (Shape::Sequential, 0) => writeln!(text, "  - {{name: s{n}}}"),
            (Shape::Sequential, _) => {
                writeln!(text, "  - {{name: s{n}, input: {{before: \"${{steps.s{}.output.n}}\"}}}}", n - 1)
            }
        };
    }
    if shape == Shape::Undone {
        let names = |separator: &str| (0..steps).map(|n| format!("s{n}")).collect::<Vec<_>>().join(separator);
        let _ = writeln!(text, "  - {{name: last, queue: last, dependsOn: [{}]}}\ncompensation:", names(", "));
        for n in 0..steps {
            let _ = writeln!(text, "  - {{step: s{n}, action: undo, agent: large}}");
        }
    }
    text
}

pub async fn run(kind: Kind, shape: Shape, steps: usize) -> anyhow::Result<Report> {
    let place = Place::new(kind).await?;
    let directory = place.directory().join("node-0");
    std::fs::create_dir_all(&directory)?;
    let text = document(shape, steps);
    let config = format!("[limits]\nbody_bytes = {}\n", text.len().max(1 << 20));
    std::fs::write(directory.join("countersign.toml"), config)?;
    let mut server = Server::start(&binary::countersign()?, directory.clone(), &place.url).await?;
    let token = std::fs::read_to_string(directory.join("admin.token"))?.trim().to_owned();
    let client = Client::new(&server.url)?.with_token(&token)?;
    let report = play(&client, &server, shape, steps, &text, place.directory()).await;
    let report =
        report.with_context(|| format!("{steps} steps, {shape:?}, on {kind}; {}", place.directory().display()))?;
    let bound = BASE_BYTES + STEP_BYTES * steps as u64;
    ensure!(report.peak_bytes <= bound, "{report}, and {} MiB were expected", bound >> 20);
    let status = server.terminate().await?;
    ensure!(status.success(), "the server ended with {status}");
    place.remove().await?;
    Ok(report)
}

async fn play(
    client: &Client,
    server: &Server,
    shape: Shape,
    steps: usize,
    text: &str,
    directory: &std::path::Path,
) -> anyhow::Result<Report> {
    let clock = Instant::now();
    client.publish_definition(Format::Yaml, text.as_bytes()).await?;
    let published = clock.elapsed();
    let request = StartRun { definition: "large".to_owned(), input: Some(json!({})), ..Default::default() };
    let run_id = client.start_run(&request).await?.body.run_id;
    let started = clock.elapsed() - published;
    match shape {
        Shape::Parallel => all_at_once(client, steps).await?,
        Shape::Sequential => one_after_the_other(client, steps).await?,
        Shape::Undone => {
            all_at_once(client, steps).await?;
            undo_all(client, steps).await?;
        }
    }
    let worked = clock.elapsed() - published - started;
    match shape {
        Shape::Parallel | Shape::Sequential => require_read(client, &run_id, steps).await?,
        Shape::Undone => require_undone(client, &run_id, steps).await?,
    }
    let peak_bytes = server.peak_rss_bytes()?;
    let proven = require_proven(std::slice::from_ref(client), directory).await?;
    let peak_proven_bytes = server.peak_rss_bytes()?;
    Ok(Report { steps, published, started, worked, proven, peak_bytes, peak_proven_bytes })
}

async fn claim(client: &Client, worker: usize, max: u32) -> anyhow::Result<Vec<Task>> {
    claim_from("large", client, worker, max).await
}

async fn claim_from(queue: &str, client: &Client, worker: usize, max: u32) -> anyhow::Result<Vec<Task>> {
    let request =
        ClaimTasks { worker_id: format!("w{worker}"), max: Some(max), lease_ms: Some(LEASE_MS), wait_ms: Some(2000) };
    Ok(client.claim_tasks(queue, &request).await?.body.tasks)
}

async fn complete(client: &Client, task: &Task, claim_next: bool) -> anyhow::Result<Option<Task>> {
    let request = CompleteTask {
        lease_token: task.lease_token.clone(),
        output: Some(json!({ "n": task.step_seq })),
        claim_next: Some(claim_next),
        lease_ms: Some(LEASE_MS),
        ..Default::default()
    };
    Ok(client.complete_task(&task.task_id, &request).await?.body.next)
}

async fn all_at_once(client: &Client, steps: usize) -> anyhow::Result<()> {
    let done = Arc::new(AtomicUsize::new(0));
    let mut workers = tokio::task::JoinSet::new();
    for n in 0..WORKERS {
        let (client, done) = (client.clone(), done.clone());
        workers.spawn(async move {
            while done.load(Ordering::SeqCst) < steps {
                for task in claim(&client, n, CLAIM).await? {
                    complete(&client, &task, false).await?;
                    done.fetch_add(1, Ordering::SeqCst);
                }
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = workers.join_next().await {
        ended??;
    }
    Ok(())
}

async fn one_after_the_other(client: &Client, steps: usize) -> anyhow::Result<()> {
    let mut next = claim(client, 0, 1).await?.into_iter().next();
    let mut done = 0;
    while let Some(task) = next {
        ensure!(task.step_seq as usize == done, "{task:?} came after {done}");
        ensure!(done == 0 || task.input == json!({ "before": done - 1 }), "{task:?}");
        next = complete(client, &task, true).await?;
        done += 1;
    }
    ensure!(done == steps, "{done} steps were handed out");
    Ok(())
}

/// The last step fails, and then there is one thing to undo after the other.
async fn undo_all(client: &Client, steps: usize) -> anyhow::Result<()> {
    // In a queue of its own: those who did the rest may still be waiting for more.
    let last = claim_from("last", client, 0, 1).await?.into_iter().next().context("the last step")?;
    ensure!((last.step.as_str(), last.task_type.as_str()) == ("last", "READY_STEP"), "{last:?}");
    let dead = DeadTask { lease_token: last.lease_token, last_error: "no".to_owned(), ..Default::default() };
    client.dead_task(&last.task_id, &dead).await?;
    let mut next = claim(client, 0, 1).await?.into_iter().next();
    let mut undone = HashSet::new();
    while let Some(task) = next {
        ensure!(task.task_type == "COMPENSATION", "{task:?}");
        ensure!(task.step_seq as usize == steps + 1 + undone.len(), "{task:?} after {}", undone.len());
        next = complete(client, &task, true).await?;
        ensure!(undone.insert(task.step.clone()), "{task:?} came before");
    }
    ensure!(undone.len() == steps, "{} steps were undone", undone.len());
    Ok(())
}

/// Every step that was completed was undone, and as many records as it takes say what there was to undo.
async fn require_undone(client: &Client, run_id: &str, steps: usize) -> anyhow::Result<()> {
    let mut view = client.run(run_id).await?.body;
    ensure!((view.state.as_str(), view.outcome.as_deref()) == ("completed", Some("rolled_back")), "{}", view.state);
    let mut counted: HashMap<String, usize> = HashMap::new();
    loop {
        for step in &view.steps {
            *counted.entry(step.state_code.clone()).or_default() += 1;
        }
        let Some(cursor) = view.steps_next.take() else { break };
        view = client.run_steps(run_id, &cursor).await?.body;
    }
    let expected = HashMap::from([("completed".to_owned(), 2 * steps), ("failed".to_owned(), 1)]);
    ensure!(counted == expected, "{counted:?}");
    let query = RecordQuery {
        instance_id: Some(run_id.to_owned()),
        action_ref: Some("compensations_listed".to_owned()),
        ..Default::default()
    };
    let lists = client.records(&query).await?.body.items.len();
    ensure!(lists == steps.saturating_sub(256).div_ceil(2048), "{lists} records list what was undone");
    Ok(())
}

/// All of its steps can be read, page by page.
async fn require_read(client: &Client, run_id: &str, steps: usize) -> anyhow::Result<()> {
    let mut view = client.run(run_id).await?.body;
    ensure!(view.state == "completed", "the run is {}", view.state);
    ensure!(view.rollup.counts.green == steps as u64, "{:?}", view.rollup);
    let mut read = 0;
    loop {
        for step in &view.steps {
            ensure!((step.step_seq as usize, step.state_code.as_str()) == (read, "completed"), "{step:?} at {read}");
            read += 1;
        }
        let Some(cursor) = view.steps_next.take() else { break };
        view = client.run_steps(run_id, &cursor).await?.body;
    }
    ensure!(read == steps, "{read} steps were read");
    Ok(())
}
