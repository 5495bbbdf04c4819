//! The engine's own workers: they claim `shell`, `http` and `workflow` steps like any other worker, under a lease and
//! with heartbeats, and report what became of them. They need no network and nobody's grant. What this deployment does not
//! carry out they claim too, and block it: a step must not wait for somebody who never comes.

mod child;
mod survey;

use crate::api::problem::shortened;
use crate::config::{Config, SecretStore};
use countersign_engine::run::leases::LeaseWatch;
use countersign_engine::{Call, ClaimCall, Command, Engine, Outcome, Proof, Target, Task};
use countersign_executor::Verdict;
use countersign_executor::artifact::{self, ArtifactStore};
use countersign_executor::http::{HttpExecutor, HttpJob};
use countersign_executor::shell::{Artifacts, ShellJob};
use countersign_kernel::lifecycle::FailureCategory;
use countersign_kernel::plan::Work;
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::run::{self, Job, TaskRef, TaskType};
use countersign_kernel::{InstanceId, Time};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use uuid::Uuid;

const LEASE_US: i64 = 60_000_000;
const HEARTBEAT: Duration = Duration::from_secs(20);
const WAIT: Duration = Duration::from_secs(20);
/// How many jobs of a kind run at a time.
const SHELL_JOBS: usize = 8;
const HTTP_JOBS: usize = 64;
const CHILD_JOBS: usize = 16;
const SURVEYS: usize = 8;
/// How much is told of a refused report.
const ERROR_CHARACTERS: usize = 1000;
/// After a failure of the engine itself.
const PAUSE: Duration = Duration::from_secs(1);

/// What a job is carried out with.
#[derive(Clone)]
struct Tools {
    /// Absent where http steps are not carried out.
    http: Option<HttpExecutor>,
    allow_private: bool,
    shell: bool,
    secrets: SecretStore,
    artifacts: ArtifactStore,
}

/// Starts the executors that this deployment has.
pub fn start(engine: &Arc<Engine>, config: &Config, artifacts: &ArtifactStore) -> Vec<JoinHandle<()>> {
    let (secrets, config) = (config.secrets(), &config.executors);
    let made = config.http.enabled.then(HttpExecutor::new).transpose();
    let http = made.unwrap_or_else(|error| {
        tracing::error!(%error, "http steps cannot be carried out");
        None
    });
    let tools = Tools {
        http,
        allow_private: config.http.allow_private,
        shell: config.shell.enabled,
        secrets,
        artifacts: artifacts.clone(),
    };
    let mut queues = vec![("@workflow", CHILD_JOBS)];
    if config.http.enabled || !config.http.elsewhere {
        queues.push(("@http", HTTP_JOBS));
    }
    if config.shell.enabled || !config.shell.elsewhere {
        queues.push(("@shell", SHELL_JOBS));
    }
    // A survey may hold pins of both kinds.
    if !config.http.elsewhere && !config.shell.elsewhere {
        queues.push((run::SURVEY_QUEUE, SURVEYS));
    }
    let start = |(queue, jobs)| tokio::spawn(work(Arc::downgrade(engine), queue, jobs, tools.clone()));
    queues.into_iter().map(start).collect()
}

/// Claims and carries out until the engine is gone.
async fn work(engine: Weak<Engine>, queue: &'static str, jobs: usize, tools: Tools) {
    let room = Arc::new(Semaphore::new(jobs));
    // Every node is a worker of the same classes.
    let Some(node_id) = engine.upgrade().map(|engine| engine.node_id()) else { return };
    let worker_id: Arc<str> = format!("countersign:{node_id}").into();
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        let Some(held) = engine.upgrade() else { return };
        let actor_ref = held.config().application_actor_ref.clone();
        let claim = ClaimCall { queue: queue.into(), worker_id: worker_id.clone(), max: 1, lease: LEASE_US };
        let claimed = held.claim(&actor_ref, Proof::InProcess, claim, WAIT).await;
        drop(held);
        match claimed {
            Ok(tasks) => {
                // One at a time was asked for.
                let Some(task) = tasks.into_iter().next() else { continue };
                let (engine, tools) = (engine.clone(), tools.clone());
                tokio::spawn(async move {
                    carry_out(&engine, task, &tools).await;
                    drop(permit);
                });
            }
            Err(refusal) => {
                tracing::warn!(%refusal, queue, "nothing could be claimed");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Does the work of one task, keeps its lease meanwhile, and reports.
async fn carry_out(engine: &Weak<Engine>, task: Task, tools: &Tools) {
    if task.task_type == TaskType::Survey.as_str() {
        return look(engine, &task, tools).await;
    }
    let Some(job) = task.job.clone() else { return };
    let watch = engine.upgrade().and_then(|engine| engine.watch_lease(&task));
    let watch = watch.as_ref();
    let done = match &job.work {
        Work::Workflow { name, version } => {
            let mut starting = pin!(child::start(engine, &task, &job, name, *version));
            tokio::select! {
                done = &mut starting => done,
                // There may be a child by now. It is reported all the same: refused, it asks after its parent.
                () = lease_lost(engine, &task, watch) => starting.await,
            }
        }
        _ => {
            tokio::select! {
                verdict = execute(engine, &task, &job, tools, watch) => Done::Verdict(verdict),
                // Somebody else has the step now, or nobody. What is dropped here is killed.
                () = lease_lost(engine, &task, watch) => return,
            }
        }
    };
    let done = match done {
        // It is left to the lease, or to the step's own timeout, to find that nobody knows; a report would be a guess.
        Done::Verdict(Verdict::Unknown { .. }) if !job.repeatable => {
            tracing::info!(task_id = task.task_id(), "nobody knows what became of an attempt");
            return;
        }
        Done::Verdict(Verdict::Unknown { instead }) => Done::Verdict(*instead),
        done => done,
    };
    let Err(refusal) = deliver(engine, &task, &done).await else { return };
    // Nobody will ever take it: in silence the step would only be done again, to no better end.
    tracing::error!(%refusal, task_id = task.task_id(), "the engine refuses the report of a step");
    let place = refusal.field.as_ref().map_or_else(String::new, |field| format!(" ({field})"));
    let last_error = shortened(&format!("the report was refused: {refusal}{place}"), ERROR_CHARACTERS);
    let failed = Done::Verdict(Verdict::Dead { last_error, category: Some(FailureCategory::Validation) });
    if let Err(refusal) = deliver(engine, &task, &failed).await {
        tracing::error!(%refusal, task_id = task.task_id(), "the engine refuses the failure too");
    }
}

/// Looks at the pins of a run, and reports.
async fn look(engine: &Weak<Engine>, task: &Task, tools: &Tools) {
    let watch = engine.upgrade().and_then(|engine| engine.watch_survey(task));
    let gone = async {
        match &watch {
            Some(watch) => watch.gone().await,
            None => std::future::pending().await,
        }
    };
    let values = tokio::select! {
        values = survey::look(task, tools) => values,
        // Nobody asks any more. What is dropped here is killed.
        () = gone => return,
    };
    if let Err(refusal) = deliver(engine, task, &Done::Values(values)).await {
        tracing::error!(%refusal, task_id = task.task_id(), "the engine refuses a survey");
    }
}

/// What came of a task.
#[derive(Clone)]
enum Done {
    Verdict(Verdict),
    Child(InstanceId),
    /// Of a survey.
    Values(Vec<survey::Looked>),
}

/// Keeps the lease, and returns when it is lost.
async fn lease_lost(engine: &Weak<Engine>, task: &Task, watch: Option<&LeaseWatch>) {
    let gone = async {
        match watch {
            Some(watch) => watch.gone().await,
            None => std::future::pending().await,
        }
    };
    let beats = async {
        let heartbeat = |task| run::Command::Heartbeat { task, lease: LEASE_US };
        loop {
            tokio::time::sleep(HEARTBEAT).await;
            if let Heard::Lost | Heard::No(_) = report(engine, task, heartbeat).await {
                return;
            }
        }
    };
    tokio::select! {
        () = gone => {}
        () = beats => {}
    }
}

/// Reports until there is an answer. An error where the engine has understood the report and will not take it.
async fn deliver(engine: &Weak<Engine>, task: &Task, done: &Done) -> Result<(), Refusal> {
    loop {
        match report(engine, task, |task| command(task, done.clone())).await {
            Heard::Yes | Heard::Lost => return Ok(()),
            Heard::No(refusal) => return Err(refusal),
            // Once the lease is over, it is lost.
            Heard::NotNow => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn execute(engine: &Weak<Engine>, task: &Task, job: &Job, tools: &Tools, watch: Option<&LeaseWatch>) -> Verdict {
    let filled = |i: usize| job.filled.get(i).and_then(|text| text.as_deref());
    let mask = tools.secrets.mask(&job.secrets).await;
    // What must not begin twice does not begin late: since the claim somebody may have taken it away and given it on.
    if let (Some(watch), false) = (watch, job.repeatable)
        && !watch.stands().await
    {
        return std::future::pending().await;
    }
    let timeout = job.timeout_at.map(|at| remaining(engine, at));
    match &job.work {
        Work::Shell(_) if !tools.shell => disabled("shell", task),
        Work::Http(_) if tools.http.is_none() => disabled("http", task),
        Work::Shell(work) => match ShellJob::filled(work, filled(0).unwrap_or("null"), filled(1)) {
            Ok(shell) => {
                let shell = ShellJob {
                    input_json: task.input.to_string(),
                    timeout,
                    idempotency_key: task.idempotency_key(),
                    run_id: task.run_id.clone(),
                    step: task.step.to_string(),
                    attempt: task.attempt,
                    artifacts: wanted(job, tools),
                    mask,
                    ..shell
                };
                shell.run().await
            }
            Err(verdict) => verdict,
        },
        Work::Http(work) => {
            match (&tools.http, HttpJob::filled(work, filled(0).unwrap_or("null"), filled(1), filled(2))) {
                (Some(executor), Ok(http)) => {
                    let allow_private = tools.allow_private;
                    let idempotency_key = task.idempotency_key();
                    executor.run(&HttpJob { timeout, idempotency_key, allow_private, mask, ..http }).await
                }
                (_, Err(verdict)) => verdict,
                (None, Ok(_)) => dead("no http executor"),
            }
        }
        Work::Worker | Work::Approval(_) | Work::Wait(_) | Work::Workflow { .. } | Work::Human { .. } => {
            dead("not the work of an executor")
        }
    }
}

/// The files that the step has to leave.
fn wanted(job: &Job, tools: &Tools) -> Option<Artifacts> {
    let paths: Vec<String> = job.artifacts.iter().map(ToString::to_string).collect();
    (!paths.is_empty()).then(|| Artifacts { paths, store: tools.artifacts.clone() })
}

fn artifact(kept: artifact::Artifact) -> run::Artifact {
    run::Artifact { path: kept.path.into(), sha256: kept.sha256, size_bytes: kept.size_bytes }
}

/// A failure of governance blocks the step: somebody has to decide.
fn disabled(kind: &str, task: &Task) -> Verdict {
    let last_error = format!(
        "{}_DISABLED: this server carries out no {kind} steps. Set `executors.{kind}.enabled = true` in its configuration and \
         start it again, then `countersign runs unblock {} {} --evidence …`",
        kind.to_uppercase(),
        task.run_id,
        task.step
    );
    Verdict::Dead { last_error, category: Some(FailureCategory::Governance) }
}

fn dead(error: &str) -> Verdict {
    Verdict::Dead { last_error: error.to_owned(), category: Some(FailureCategory::AgentError) }
}

fn remaining(engine: &Weak<Engine>, at: Time) -> Duration {
    let now = engine.upgrade().map_or(at, |engine| engine.now());
    Duration::from_micros(u64::try_from(at.0 - now.0).unwrap_or(0))
}

fn command(task: TaskRef, done: Done) -> run::Command {
    let micros = |length: Duration| i64::try_from(length.as_micros()).unwrap_or(i64::MAX);
    let verdict = match done {
        Done::Child(child) => return run::Command::ChildStarted { task, child },
        Done::Values(looked) => {
            let why =
                |(pin, value): &survey::Looked| value.as_ref().err().map(|why| (pin.clone(), why.as_str().into()));
            let errors = looked.iter().filter_map(why).collect();
            let values = looked.into_iter().map(|(pin, value)| (pin, value.ok())).collect();
            return run::Command::Survey { task, values, errors };
        }
        Done::Verdict(verdict) => verdict,
    };
    match verdict {
        Verdict::Unknown { instead } => command(task, Done::Verdict(*instead)),
        Verdict::Completed { output_json, outbound, artifacts } => {
            let (output, artifacts) = (output_json.into(), artifacts.into_iter().map(artifact).collect());
            run::Command::Complete { task, output, outbound, claim_next: None, artifacts }
        }
        Verdict::Waiting { event_type, timeout, facet, outbound } => {
            let facets = facet.into_iter().collect();
            run::Command::Wait { task, event_type, timeout: timeout.map(micros), facets, outbound }
        }
        Verdict::Retry { last_error, backoff, category } => {
            run::Command::Retry { task, error: last_error, backoff: backoff.map(micros), category }
        }
        Verdict::Dead { last_error, category } => run::Command::Dead { task, error: last_error, category },
    }
}

/// What the engine said to a report.
enum Heard {
    Yes,
    /// It could not be recorded at the moment.
    NotNow,
    /// The lease is lost, or the engine is gone.
    Lost,
    /// It never will be taken.
    No(Refusal),
}

async fn report(engine: &Weak<Engine>, task: &Task, command: impl FnOnce(TaskRef) -> run::Command) -> Heard {
    let (Some(engine), Some(run_id)) = (engine.upgrade(), InstanceId::parse(&task.run_id)) else {
        return Heard::Lost;
    };
    let lease_token = Uuid::try_parse(&task.lease_token).ok();
    let command = command(TaskRef { step_seq: task.step_seq, lease_token });
    let call = own_call(&engine, Target::Existing(run_id), command);
    match engine.execute(call).await {
        Ok(Outcome::TaskDone { .. }) => Heard::Yes,
        Ok(_) => Heard::Lost,
        Err(refusal) => {
            tracing::info!(%refusal, task_id = task.task_id(), "a report was refused");
            match refusal.code {
                Code::LeaseLost | Code::AlreadyTerminal => Heard::Lost,
                _ if refusal.passes() => Heard::NotNow,
                _ => Heard::No(refusal),
            }
        }
    }
}

fn own_call(engine: &Engine, target: Target, command: run::Command) -> Call {
    Call {
        actor_ref: engine.config().application_actor_ref.clone(),
        proof: Proof::InProcess,
        command: Command::Run { target, command },
        idempotency: None,
    }
}
