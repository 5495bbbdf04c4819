//! Runbooks, while servers and workers are killed. A step with an effect writes a mark into its own file when it
//! begins. An operator reads the marks, declares the effect of attempts without a report, and resumes stopped runs.
//! At the end no step has begun more often than its records admit: every run has completed with one mark per step, or
//! has failed before.

use super::runs::{CHAIN, require_proven};
use super::stage::Stage;
use crate::load::Rng;
use crate::place::Kind;
use anyhow::{Context, bail, ensure};
use countersign_client::wire::{
    ApprovalState, DecideGate, Decision, DeclareEffect, DeclaredResult, RecordQuery, RunView, StartRun, StepView,
};
use countersign_client::{Client, Error, Format};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const WORKERS: usize = 2;
/// Runs that are started in all, and that may be under way at once.
const RUNS: usize = 16;
const OPEN: usize = 6;
const PATIENCE: Duration = Duration::from_secs(600);
const PACE: Duration = Duration::from_millis(20);
/// The steps with effects.
const MARKED: [&str; 3] = ["first", "mark", "last"];

#[derive(Clone, Debug, Default)]
pub struct RunbooksReport {
    pub completed: usize,
    pub failed: usize,
    /// Attempts without a report, by the operator's declaration.
    pub declared_done: usize,
    pub declared_not_done: usize,
    pub resumed: usize,
    pub servers_killed: usize,
    pub workers_killed: usize,
    /// Other runs, beside them.
    pub plain: usize,
}

impl std::fmt::Display for RunbooksReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let RunbooksReport { completed, failed, declared_done, declared_not_done, resumed, .. } = self;
        write!(
            f,
            "{completed} runbooks completed, {failed} failed; {declared_done} effects declared done, {declared_not_done} not done, \
             {resumed} resumed; {} other runs; {} servers and {} workers killed",
            self.plain, self.servers_killed, self.workers_killed
        )
    }
}

/// `program` is `countersign-torture`, which is a worker too.
pub async fn killed_with_runbooks(
    program: &Path,
    kind: Kind,
    nodes: usize,
    seed: u64,
    kills: usize,
) -> anyhow::Result<RunbooksReport> {
    let ward = Ward::new(program, kind, nodes, seed).await?;
    let logs = ward.stage.logs();
    let report = play(ward, seed, kills).await;
    report.with_context(|| format!("runbooks killed on {kind} with {nodes} nodes, seed {seed}; logs: {logs}"))
}

/// Each step with effects marks its beginning and then takes a moment, so that kills hit it in between. The caps are short: an
/// attempt that a killed server has left is not waited for until its lease is over.
fn definition(marks: &Path, world: &Path) -> String {
    let mark = |step: &str| format!("echo $$ >> {}/$COUNTERSIGN_RUN_ID.{step}; sleep 0.05", marks.display());
    format!(
        "kind: workflow
name: careful
order: linear
queue: crash
failurePolicy: fail-closed
hardCap: 60m
gate_spec: {{sovereign: {{approver_ref: admin, scope: crash}}}}
steps:
  - name: look
    run: shell
    readOnly: true
    command: 'true'
    pins: {{world: {{run: shell, command: [cat, {}], timeout: 3s}}}}
  - {{name: first, run: shell, softCap: 4s, command: '{}'}}
  - {{name: mark, softCap: 20s}}
  - {{name: last, run: shell, softCap: 4s, command: '{}'}}
",
        world.display(),
        mark("first"),
        mark("last")
    )
}

/// Servers and workers with runbooks, and what an operator does about them.
struct Ward {
    stage: Stage,
    marks: PathBuf,
    report: RunbooksReport,
}

impl Ward {
    async fn new(program: &Path, kind: Kind, nodes: usize, seed: u64) -> anyhow::Result<Ward> {
        let mut stage = Stage::new(program, kind, nodes, seed, "[executors.shell]\nenabled = true\n").await?;
        let (marks, world) = (stage.place.directory().join("marks"), stage.place.directory().join("world"));
        std::fs::create_dir_all(&marks)?;
        std::fs::write(&world, "as it is\n")?;
        stage.yard.marks(&marks)?;
        for text in [CHAIN, &definition(&marks, &world)] {
            stage.client(0)?.publish_definition(Format::Yaml, text.as_bytes()).await?;
        }
        stage.hire(WORKERS)?;
        Ok(Ward { stage, marks, report: RunbooksReport::default() })
    }

    fn client(&self) -> anyhow::Result<Client> {
        self.stage.client(0)
    }

    async fn kill(&mut self, rng: &mut Rng) -> anyhow::Result<()> {
        // In turn, so that few kills hit both.
        if self.report.servers_killed <= self.report.workers_killed {
            self.stage.kill_server(rng.below(self.stage.servers.len())).await?;
            self.report.servers_killed += 1;
        } else {
            self.stage.kill_worker(rng.below(WORKERS))?;
            self.report.workers_killed += 1;
        }
        Ok(())
    }

    /// How many attempts at a step have begun.
    fn marks(&self, run_id: &str, step: &str) -> usize {
        std::fs::read_to_string(self.marks.join(format!("{run_id}.{step}"))).unwrap_or_default().lines().count()
    }
}

async fn play(mut ward: Ward, seed: u64, kills: usize) -> anyhow::Result<RunbooksReport> {
    let (mut rng, until) = (Rng::new(seed), Instant::now() + PATIENCE);
    let mut open: BTreeSet<String> = BTreeSet::new();
    let mut ended: Vec<RunView> = vec![];
    // Other runs, which the same workers work on.
    let mut plain: Vec<String> = vec![];
    let (mut started, mut killed) = (0, 0);
    while ended.len() < RUNS {
        ensure!(Instant::now() < until, "these runs do not end: {open:?}");
        if open.len() < OPEN
            && started < RUNS
            && let Some(run_id) = start(&ward, "careful", started).await?
        {
            open.insert(run_id);
            plain.extend(start(&ward, "chain", started).await?);
            started += 1;
        }
        for run_id in open.clone() {
            let Some(run) = answered(ward.client()?.run(&run_id).await)? else { continue };
            match run.state.as_str() {
                "completed" | "failed" => {
                    open.remove(&run_id);
                    ended.push(run);
                }
                "stopped" => operate(&mut ward, &run).await?,
                _ => {}
            }
        }
        // Spread over the runs, at random moments.
        if killed < kills && ended.len() * (kills + 1) >= killed * RUNS && rng.percent(30) {
            tokio::time::sleep(Duration::from_millis(rng.below(120) as u64)).await;
            ward.kill(&mut rng).await?;
            killed += 1;
        }
        tokio::time::sleep(PACE).await;
    }
    for run in &ended {
        check(&ward, run).await?;
    }
    for run_id in &plain {
        while ward.client()?.run(run_id).await?.body.state != "completed" {
            ensure!(Instant::now() < until, "this run does not end: {run_id}");
            tokio::time::sleep(PACE).await;
        }
    }
    let completed = ended.iter().filter(|run| run.state == "completed").count();
    let report = RunbooksReport { completed, failed: RUNS - completed, plain: plain.len(), ..ward.report.clone() };
    end(ward).await?;
    Ok(report)
}

async fn start(ward: &Ward, definition: &str, n: usize) -> anyhow::Result<Option<String>> {
    let request = StartRun { definition: definition.to_owned(), input: Some(json!({ "n": n })), ..Default::default() };
    let client = ward.client()?.with_idempotency_key(&format!("start-{definition}-{n}"))?;
    Ok(answered(client.start_run(&request).await)?.map(|started| started.run_id))
}

/// Nothing where no server answered, or another one was faster; an error where it was refused for another reason.
fn answered<T>(answer: Result<countersign_client::Answer<T>, Error>) -> anyhow::Result<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer.body)),
        Err(Error::Refused(problem)) if problem.status < 500 => {
            bail!("refused: {}: {}", problem.code, problem.detail)
        }
        Err(_) => Ok(None),
    }
}

/// What an operator does about a run that was stopped: look what became of the attempt, say so, and resume.
async fn operate(ward: &mut Ward, run: &RunView) -> anyhow::Result<()> {
    let client = ward.client()?;
    if let Some(step) = run.steps.iter().find(|step| step.effect_unknown) {
        return declare(ward, &client, run, step).await;
    }
    let Some(gate) = run.gates.iter().rfind(|gate| gate.action == "resume") else { return Ok(()) };
    match gate.state {
        ApprovalState::Pending => {
            let request = DecideGate {
                decision: Decision::Approve,
                reason: Some("seen".to_owned()),
                step_id: None,
                request_digest: gate.request_digest.clone(),
            };
            match client.decide_run_gate(&run.run_id, "resume", &request).await {
                // It was approved before a kill, and not answered.
                Err(Error::Refused(problem)) if problem.status == 409 => Ok(()),
                answer => answered(answer).map(|_| ()),
            }
        }
        ApprovalState::Approved => {
            if resume(ward, &run.run_id, &gate.step_id).await? {
                ward.report.resumed += 1;
            }
            Ok(())
        }
        ApprovalState::Rejected | ApprovalState::Withdrawn => bail!("nobody rejected {gate:?}"),
    }
}

/// Whether it was done is what the marks say, once nothing of the attempt runs any more.
async fn declare(ward: &mut Ward, client: &Client, run: &RunView, step: &StepView) -> anyhow::Result<()> {
    while is_at_work(&run.run_id)? {
        tokio::time::sleep(PACE).await;
    }
    let (marks, name) = (ward.marks(&run.run_id, &step.name), step.name.as_str());
    ensure!(marks <= 1, "{name} of {} began {marks} times, and nobody said that it may", run.run_id);
    let result = if marks == 1 { DeclaredResult::Completed } else { DeclaredResult::NotDone };
    let output = (marks == 1).then(|| json!({"declared": true}));
    let request = DeclareEffect { result, output, reason: format!("{marks} marks") };
    match client.declare_effect(&run.run_id, name, &request).await {
        // It was declared before a kill, and not answered; the run is looked at again.
        Err(Error::Refused(problem)) if problem.status == 409 => {}
        answer => {
            if answered(answer)?.is_some() {
                ward.report.declared_done += marks;
                ward.report.declared_not_done += 1 - marks;
            }
        }
    }
    Ok(())
}

/// Whether a process of a step of this run is still there.
fn is_at_work(run_id: &str) -> anyhow::Result<bool> {
    let wanted = format!("COUNTERSIGN_RUN_ID={run_id}");
    for entry in std::fs::read_dir("/proc")? {
        let Ok(environment) = std::fs::read(entry?.path().join("environ")) else { continue };
        if environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// False where it is not known yet.
async fn resume(ward: &Ward, run_id: &str, approval_id: &str) -> anyhow::Result<bool> {
    let url = format!("{}/v1/runs/{run_id}/resume", ward.stage.servers[0].url);
    let request = reqwest::Client::builder().no_proxy().build()?.post(url).bearer_auth(&ward.stage.token);
    match request.json(&json!({ "approval_id": approval_id })).send().await {
        Ok(response) if response.status().is_success() => Ok(true),
        // It was resumed before a kill, or stopped again.
        Ok(response) if response.status().as_u16() == 409 => Ok(false),
        Ok(response) if response.status().is_client_error() => bail!("not resumed: {}", response.text().await?),
        Ok(_) | Err(_) => Ok(false),
    }
}

/// A step that is completed has begun once, and one that is not has not begun. The records say how often it was claimed: once
/// where it is completed, and once more for each time that somebody declared that nothing was done.
async fn check(ward: &Ward, run: &RunView) -> anyhow::Result<()> {
    if run.state == "failed" {
        let of_a_pin =
            |step: &StepView| step.last_error.as_deref().is_some_and(|error| error.starts_with("PIN_FAILED"));
        ensure!(run.steps.iter().any(of_a_pin), "a run failed: {run:#?}");
    }
    let query = RecordQuery {
        instance_id: Some(run.run_id.clone()),
        action_ref: Some("effect_declared".to_owned()),
        limit: Some(500),
        ..Default::default()
    };
    let declared = ward.client()?.records(&query).await?.body.items;
    for step in run.steps.iter().filter(|step| MARKED.contains(&step.name.as_str())) {
        let (name, marks) = (step.name.as_str(), ward.marks(&run.run_id, &step.name));
        let completed = usize::from(step.state_code == "completed");
        ensure!(marks == completed, "{name} of {} has {marks} marks: {step:#?}", run.run_id);
        let history = ward.client()?.step_history(&run.run_id, name).await?.body;
        let claims = history.visits.iter().filter(|visit| visit.to_state == "in_progress").count();
        let nothing = json!({"step_seq": step.step_seq, "done": false});
        let not_done = declared.iter().filter(|record| record.payload["effect"] == nothing).count();
        ensure!(
            claims == completed + not_done,
            "{name} of {} was claimed {claims} times, and {not_done} times declared not done: {history:#?}",
            run.run_id
        );
    }
    Ok(())
}

async fn end(ward: Ward) -> anyhow::Result<()> {
    require_proven(&[ward.client()?], ward.stage.place.directory()).await?;
    ward.stage.end().await
}
