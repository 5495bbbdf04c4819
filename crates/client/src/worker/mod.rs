//! A worker: claims the steps of one queue, runs a handler for each, and reports the result
//! (`spec/worker-protocol.md`).
//!
//! ```no_run
//! # async fn example() -> Result<(), countersign_client::Error> {
//! use countersign_client::Client;
//! use countersign_client::worker::{Worker, told_to_stop};
//! use serde_json::json;
//!
//! let client = Client::new("http://127.0.0.1:7433")?.with_token("…")?;
//! Worker::new(client, "orders")
//!     .concurrency(8)
//!     .on("VALIDATE", |task| async move {
//!         let order: serde_json::Value = task.input()?;
//!         Ok(json!({ "valid": order["lines"].is_array() }))
//!     })
//!     .run(told_to_stop())
//!     .await
//! # }
//! ```
//!
//! A task may be handed out more than once: a worker can die after it has acted and before it has said so. What must not
//! happen twice needs [`TaskContext::idempotency_key`].
//!
//! While a handler works, its lease is prolonged at a third of its length. A handler whose lease is lost is dropped at its
//! next `.await`, and nothing is reported for it: another worker has the step.

mod context;
mod delivery;
mod lease;
mod report;

pub use context::{TaskContext, TaskType};
pub use lease::{Heartbeat, LeaseLost};
pub use report::{BlockReason, Category, Facet, Failure, Report};

use crate::client::Client;
use crate::error::Error;
use crate::wire::{ClaimTasks, LeaveQueue, Task};
use delivery::{Delivery, millis};
use std::collections::HashMap;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::{JoinError, JoinSet};

/// How long a claim waits for work before it is made again.
const LONGEST_POLL: Duration = Duration::from_secs(20);
const LEASE: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_secs(30);
/// How long a worker that stops waits for the answer to its goodbye.
const FAREWELL: Duration = Duration::from_secs(5);

type Handling = Pin<Box<dyn Future<Output = Result<Report, Failure>> + Send>>;
type Handler = Arc<dyn Fn(TaskContext) -> Handling + Send + Sync>;

/// Done when the process is asked to stop: by Ctrl-C, or by SIGTERM as service managers and containers send it.
pub async fn told_to_stop() {
    #[cfg(unix)]
    if let Ok(mut terminate) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        tokio::select! {
            _ = terminate.recv() => return,
            _ = tokio::signal::ctrl_c() => return,
        }
    }
    // Where nothing can be heard there is nothing to wait for either.
    let _ = tokio::signal::ctrl_c().await;
}

/// Works on one queue until it receives a stop signal.
#[must_use = "a worker does nothing until it is run"]
pub struct Worker {
    queue: String,
    concurrency: usize,
    poll: Duration,
    grace: Duration,
    desk: Desk,
}

/// What every task of the worker needs.
struct Desk {
    client: Client,
    worker_id: String,
    lease: Duration,
    steps: HashMap<String, Handler>,
    compensations: HashMap<String, Handler>,
    fallback: Option<Handler>,
    /// No new task is begun.
    stopping: AtomicBool,
}

impl Worker {
    pub fn new(client: Client, queue: impl Into<String>) -> Self {
        let desk = Desk {
            // Under one key every claim would be answered like the first.
            client: client.without_idempotency_key(),
            worker_id: default_worker_id(),
            lease: LEASE,
            steps: HashMap::new(),
            compensations: HashMap::new(),
            fallback: None,
            stopping: AtomicBool::new(false),
        };
        Worker { queue: queue.into(), concurrency: 1, poll: LONGEST_POLL, grace: GRACE, desk }
    }

    /// A readable name, unique among the workers; made of program, host and process where it is not given.
    pub fn worker_id(mut self, worker_id: impl Into<String>) -> Self {
        self.desk.worker_id = worker_id.into();
        self
    }

    /// How many tasks at a time; 1 where it is not given.
    pub fn concurrency(mut self, tasks: usize) -> Self {
        self.concurrency = tasks.max(1);
        self
    }

    /// How long after this worker's death others may take over its tasks; 30 seconds where it is not given.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.desk.lease = lease;
        self
    }

    /// How long a claim waits at the server for work; at most, and where it is not given, 20 seconds.
    pub fn poll(mut self, wait: Duration) -> Self {
        self.poll = wait.min(LONGEST_POLL);
        self
    }

    /// How long handlers may go on after a shutdown; 30 seconds where it is not given.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// What is done for a step of this name. A step whose wait was in vain comes here too, as
    /// [`TaskType::WaitingTimeout`].
    pub fn on<F, Fut, R>(mut self, step: impl Into<String>, handler: F) -> Self
    where
        F: Fn(TaskContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Into<Report> + 'static,
    {
        self.desk.steps.insert(step.into(), boxed(handler));
        self
    }

    /// What is done to undo a step of this name. It is never the step's own handler: doing is not undoing.
    pub fn on_compensation<F, Fut, R>(mut self, step: impl Into<String>, handler: F) -> Self
    where
        F: Fn(TaskContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Into<Report> + 'static,
    {
        self.desk.compensations.insert(step.into(), boxed(handler));
        self
    }

    /// What is done for steps that have no handler of their own; never for compensations.
    pub fn fallback<F, Fut, R>(mut self, handler: F) -> Self
    where
        F: Fn(TaskContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Into<Report> + 'static,
    {
        self.desk.fallback = Some(boxed(handler));
        self
    }

    /// Works until `shutdown` comes, then lets the handlers finish within the grace time. Those that do not are dropped and
    /// not reported: their leases expire, so the engine knows that their effect is unknown.
    ///
    /// A server that is away is asked again until it is back. An error is returned where asking again is of no use: the
    /// credential is bad, or there is no grant for `tasks:work`.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        let Worker { queue, concurrency, poll, grace, desk } = self;
        let desk = Arc::new(desk);
        let mut shutdown = pin!(shutdown);
        let mut slots = JoinSet::new();
        let mut backoff = Backoff::new();
        // A claim under way is never given up for a better one: what it was handed would be lost until the lease expires.
        let mut claim = pin!(None);
        let ended = loop {
            let free = concurrency.saturating_sub(slots.len());
            if claim.is_none() && free > 0 {
                claim.set(Some(desk.claim(&queue, free, poll, backoff.due())));
            }
            tokio::select! {
                () = &mut shutdown => break Ok(()),
                Some(_) = slots.join_next() => {}
                claimed = within(claim.as_mut()) => {
                    claim.set(None);
                    match claimed {
                        Ok(tasks) => {
                            backoff = Backoff::new();
                            for task in tasks {
                                slots.spawn(desk.clone().work_through(task));
                            }
                        }
                        Err(error) if is_transient(&error) => {
                            tracing::warn!(queue, %error, "no work could be claimed; trying again");
                            backoff.arm();
                        }
                        Err(error) => break Err(error),
                    }
                }
            }
        };
        desk.stopping.store(true, Ordering::Relaxed);
        let drained = tokio::time::timeout(grace, async { while slots.join_next().await.is_some() {} }).await;
        if drained.is_err() {
            tracing::warn!(
                queue,
                left = slots.len(),
                "handlers are still at work after the grace time and are dropped"
            );
            slots.shutdown().await;
        }
        if ended.is_ok() {
            desk.leave(&queue).await;
        }
        ended
    }
}

impl Desk {
    async fn claim(&self, queue: &str, free: usize, poll: Duration, pause: Duration) -> Result<Vec<Task>, Error> {
        tokio::time::sleep(pause).await;
        let request = ClaimTasks {
            worker_id: self.worker_id.clone(),
            max: Some(u32::try_from(free).unwrap_or(u32::MAX).min(1000)),
            lease_ms: Some(millis(self.lease)),
            wait_ms: u64::try_from(poll.as_millis()).ok(),
        };
        self.client.claim_tasks(queue, &request).await.map(|answer| answer.body.tasks)
    }

    /// Says goodbye, so that the silence of this worker is no problem. Where nobody hears it, the worker is found silent.
    async fn leave(&self, queue: &str) {
        let request = LeaveQueue { worker_id: self.worker_id.clone() };
        match tokio::time::timeout(FAREWELL, self.client.leave_queue(queue, &request)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!(queue, %error, "the server was not told that this worker stops"),
            Err(_) => tracing::debug!(queue, "the server did not answer that this worker stops"),
        }
    }

    /// One task after the other: each completion brings the next one with its answer.
    async fn work_through(self: Arc<Self>, task: Task) {
        let mut next = Some(task);
        while let Some(task) = next {
            next = self.work(task).await;
        }
    }

    async fn work(&self, task: Task) -> Option<Task> {
        let lease = Heartbeat::new(self.client.clone(), &task, self.lease);
        let result = match self.handler(&task) {
            Ok(handler) => attempt(handler, TaskContext::new(task.clone(), lease.clone())).await?,
            Err(failure) => Err(failure),
        };
        let delivery = Delivery {
            client: &self.client,
            task: &task,
            lease: &lease,
            lease_ms: Some(millis(self.lease)),
            claim_next: !self.stopping.load(Ordering::Relaxed),
        };
        delivery.deliver(result).await
    }

    /// A task without a handler goes back, so that a worker with a handler can have it.
    fn handler(&self, task: &Task) -> Result<Handler, Failure> {
        let (found, method) = match TaskType::of(task) {
            TaskType::Compensation => (self.compensations.get(&task.step), "on_compensation"),
            TaskType::ReadyStep | TaskType::WaitingTimeout => {
                (self.steps.get(&task.step).or(self.fallback.as_ref()), "on")
            }
        };
        found.cloned().ok_or_else(|| {
            let (worker_id, step) = (&self.worker_id, &task.step);
            Failure::retry(format!(
                "worker `{worker_id}` has no handler for this: register one with {method}(\"{step}\", …)"
            ))
        })
    }
}

/// What the handler says; nothing where the lease was lost before it did. In a task of its own, so that a panic ends
/// nothing but this attempt.
async fn attempt(handler: Handler, context: TaskContext) -> Option<Result<Report, Failure>> {
    let lease = context.heartbeat().clone();
    let (task_id, step) = (context.task().task_id.clone(), context.step().to_owned());
    let mut handling = JoinSet::new();
    handling.spawn(async move { handler(context).await });
    tokio::select! {
        // A handler may have learned of the loss by itself, and ended over it.
        Some(ended) = handling.join_next() => {
            (!lease.is_lost()).then(|| ended.unwrap_or_else(|error| Err(panicked(error))))
        }
        LeaseLost = lease.keep() => {
            tracing::warn!(task_id, step, "the lease is lost: the handler is dropped and nothing is reported");
            None
        }
    }
}

fn panicked(error: JoinError) -> Failure {
    let told = match error.try_into_panic() {
        Ok(payload) => match payload.downcast::<String>() {
            Ok(text) => *text,
            Err(payload) => {
                payload.downcast::<&str>().map_or_else(|_| "no message".to_owned(), |text| (*text).to_owned())
            }
        },
        Err(error) => error.to_string(),
    };
    Failure::retry(format!("the handler panicked: {told}")).category(Category::AgentError)
}

fn boxed<F, Fut, R>(handler: F) -> Handler
where
    F: Fn(TaskContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, Failure>> + Send + 'static,
    R: Into<Report> + 'static,
{
    let handler = Arc::new(handler);
    Arc::new(move |context| {
        let handler = handler.clone();
        Box::pin(async move { handler(context).await.map(Into::into) })
    })
}

/// The future inside, if there is one; without one it never ends.
async fn within<F: Future>(future: Pin<&mut Option<F>>) -> F::Output {
    match future.as_pin_mut() {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// Whether the same request may well be taken later.
fn is_transient(error: &Error) -> bool {
    match error {
        Error::Unreachable { .. } | Error::NoAnswer { .. } => true,
        Error::Refused(problem) => problem.status == 429 || problem.status >= 500,
        Error::Unexpected { status, .. } => *status == 429 || *status >= 500,
        Error::Unusable(_) => false,
    }
}

/// Ever longer pauses, half of each drawn by lot: workers that failed together do not come back together.
struct Backoff {
    pause: Duration,
    armed: bool,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(5);

    const fn new() -> Self {
        Backoff { pause: Self::FIRST, armed: false }
    }

    /// The next pause is due.
    const fn arm(&mut self) {
        self.armed = true;
    }

    /// Nothing, unless something failed.
    fn due(&mut self) -> Duration {
        if std::mem::take(&mut self.armed) { self.next() } else { Duration::ZERO }
    }

    fn next(&mut self) -> Duration {
        let half = self.pause / 2;
        self.pause = (self.pause * 2).min(Self::LONGEST);
        // Without randomness the pause is merely less well spread.
        let drawn = getrandom::u32().unwrap_or(u32::MAX);
        half + half.mul_f64(f64::from(drawn) / f64::from(u32::MAX))
    }
}

fn default_worker_id() -> String {
    let program = std::env::current_exe().ok();
    let program =
        program.as_deref().and_then(|path| path.file_name()).map_or("worker".into(), |name| name.to_string_lossy());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_else(|_| "host".to_owned());
    let suffix = getrandom::u32().unwrap_or(0);
    format!("{program}:{}:{}:{suffix:08x}", host.trim(), std::process::id())
}

#[cfg(test)]
mod tests;
