//! `countersign work`: a small worker. It claims the steps of a queue, runs a command for each, extends the lease while
//! the command runs, and reports the result.

mod command;
mod report;

use super::connection::Context;
use super::failure::{Failure, usage};
use super::output::{self, printable, shell_word};
use super::table::{Tint, tint};
use super::time::parse_millis;
use clap::Args;
use command::Running;
use countersign_client::wire::{ClaimTasks, DEFAULT_LEASE_MS, HeartbeatTask, LeaveQueue, Task, TaskReported};
use countersign_client::{Answer, Client, Error};
use countersign_executor::Verdict;
use countersign_kernel::lifecycle::FailureCategory;
use countersign_server::signals::Stop;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How long a claim waits at the server. Stopping takes no longer than this where nothing is under way.
const WAIT_MS: u64 = 2000;
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// A report that nobody answers is repeated this often.
const REPORTS: usize = 10;
/// A lease is prolonged this often while it runs.
const BEATS: i64 = 3;

/// Run a worker: carry out a command for every step of a queue
///
/// The command gets the step's input as JSON on stdin, and the variables COUNTERSIGN_RUN_ID, _TASK_ID, _STEP, _TASK_TYPE,
/// _ATTEMPT, _IDEMPOTENCY_KEY and _EVENT (the data of the event that woke the step, or empty).
///
/// If it exits with 0 and its last line is JSON, that line is the step's output, or a report: {"result": "completed",
/// "waiting", "retry" or "dead"} with the fields of that verb of the worker protocol, for example {"result": "waiting",
/// "waiting_event_type": "payment.captured", "timeout_ms": 7200000}. If it exits with 75, the step is tried again as its
/// retry policy says. With any other code the step fails for good, and the last line on stderr is the error.
///
/// Ctrl-C or SIGTERM lets running commands finish. A second one stops at once; other workers take the steps over later.
#[derive(Args)]
pub struct WorkArgs {
    /// The queue
    queue: String,
    /// The command for each step, for `sh -c`; required
    #[arg(long, value_name = "COMMAND")]
    exec: Option<String>,
    /// The worker's name, unique among the workers [default: made from this process]
    #[arg(long, value_name = "NAME")]
    worker: Option<String>,
    /// The number of steps at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    parallel: u16,
    /// The duration of the lease; it is extended while the command runs
    #[arg(long, value_name = "DURATION", value_parser = parse_millis)]
    lease: Option<i64>,
    /// Stop when the queue is empty
    #[arg(long)]
    drain: bool,
}

struct Worker {
    client: Client,
    queue: String,
    exec: String,
    name: String,
    lease_ms: i64,
    drain: bool,
    json: bool,
    stopped: AtomicBool,
}

pub async fn run(context: &Context, args: WorkArgs) -> anyhow::Result<()> {
    let Some(exec) = args.exec.filter(|command| !command.trim().is_empty()) else {
        let queue = shell_word(&args.queue);
        return Err(usage(format!(
            "the command is missing: countersign work {queue} --exec './do-it.sh'\n\
             The command gets the step's input as JSON on stdin; its last line, if it is JSON, is the step's output.\n\
             To take and report one step by hand: countersign task claim {queue}"
        )));
    };
    let worker = Arc::new(Worker {
        client: context.client()?,
        queue: args.queue,
        exec,
        name: args.worker.unwrap_or_else(|| format!("countersign-work-{}", std::process::id())),
        lease_ms: args.lease.unwrap_or(DEFAULT_LEASE_MS),
        drain: args.drain,
        json: context.json(),
        stopped: AtomicBool::new(false),
    });
    if !context.json() {
        let told = format!("{} works on {}; Ctrl-C stops it", worker.name, worker.queue);
        output::complain(&tint(Tint::Dim, &told));
    }
    let mut stop = Stop::listen()?;
    let mut hands = JoinSet::new();
    for number in 1..=args.parallel {
        let name = if args.parallel == 1 { worker.name.clone() } else { format!("{}-{number}", worker.name) };
        hands.spawn(worker.clone().work(name));
    }
    let mut result = Ok(());
    loop {
        tokio::select! {
            hand = hands.join_next() => match hand {
                None => return result,
                Some(Ok(Ok(()))) => {}
                Some(failed) => {
                    worker.stopped.store(true, Ordering::Relaxed);
                    result = failed.map_err(anyhow::Error::from).and_then(|done| done);
                }
            },
            _ = stop.asked() => {
                if worker.stopped.swap(true, Ordering::Relaxed) {
                    return Err(Failure::Interrupted.into());
                }
                output::complain("finishing what is under way; once more to leave it");
            }
        }
    }
}

impl Worker {
    /// Claims and carries out one step after the other.
    async fn work(self: Arc<Self>, name: String) -> anyhow::Result<()> {
        let request = ClaimTasks {
            worker_id: name.clone(),
            max: Some(1),
            lease_ms: Some(self.lease_ms),
            wait_ms: Some(if self.drain { 0 } else { WAIT_MS }),
        };
        let worked = self.claim_all(&request).await;
        if worked.is_ok() {
            // Where nobody hears it, the worker is found silent later.
            let _ = self.client.leave_queue(&self.queue, &LeaveQueue { worker_id: name }).await;
        }
        worked
    }

    async fn claim_all(&self, request: &ClaimTasks) -> anyhow::Result<()> {
        let mut lost = false;
        while !self.stopped.load(Ordering::Relaxed) {
            match self.client.claim_tasks(&self.queue, request).await {
                Ok(answer) => {
                    lost = false;
                    if answer.body.tasks.is_empty() && self.drain {
                        return Ok(());
                    }
                    for task in &answer.body.tasks {
                        self.carry_out(task).await?;
                    }
                }
                Err(error @ (Error::Unreachable { .. } | Error::NoAnswer { .. })) => {
                    if !lost {
                        output::complain(&format!("{error}; still trying"));
                    }
                    lost = true;
                    tokio::time::sleep(TRY_AGAIN_AFTER).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    async fn carry_out(&self, task: &Task) -> anyhow::Result<()> {
        let began = Instant::now();
        let unfit = |why: String| Verdict::Dead { last_error: why, category: Some(FailureCategory::Validation) };
        let ended = if command::event_is_too_long(task) {
            let limit = command::LONGEST_EVENT;
            Some(unfit(format!("the event is longer than the {limit} bytes that a command can be given")))
        } else {
            self.execute(task).await?
        };
        let Some(mut ended) = ended else {
            return self.tell(task, "lease-lost", None, "the command was stopped", began);
        };
        let mut answer = self.report(task, &ended, &task.lease_token).await;
        // What the server will never take ends the step: in silence it would be handed out again and again.
        if let Err(Error::Refused(problem)) = &answer
            && matches!(problem.status, 400 | 413 | 422)
            && !matches!(ended, Verdict::Dead { .. })
        {
            ended = unfit(format!("the server refused the report: {}", problem.detail));
            answer = self.report(task, &ended, &format!("{}.unfit", task.lease_token)).await;
        }
        let (what, detail) = report::told(&ended);
        match answer {
            Ok(answer) => self.tell(task, what, Some(&answer.body), &detail, began),
            // The step went on without us: somebody else has it, or its run has ended.
            Err(Error::Refused(problem)) => self.tell(task, &problem.code, None, &problem.detail, began),
            Err(error) => Err(error.into()),
        }
    }

    /// Runs the command and prolongs the lease meanwhile; nothing where the lease was lost, and the command stopped.
    async fn execute(&self, task: &Task) -> anyhow::Result<Option<Verdict>> {
        let mut running = Running::start(&self.exec, task)?;
        let every = Duration::from_millis(u64::try_from(self.lease_ms / BEATS).unwrap_or(1).max(1));
        loop {
            tokio::select! {
                ended = running.wait() => return ended.map(Some),
                () = tokio::time::sleep(every) => {
                    let request = HeartbeatTask {
                        lease_token: task.lease_token.clone(),
                        lease_ms: Some(self.lease_ms),
                    };
                    // A server that does not answer may be back before the lease ends.
                    if let Err(Error::Refused(_)) = self.client.heartbeat_task(&task.task_id, &request).await {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Says what came of it, again if nobody answers: the key makes sure that it counts once.
    async fn report(&self, task: &Task, ended: &Verdict, key: &str) -> Result<Answer<TaskReported>, Error> {
        let client = self.client.clone().with_idempotency_key(key)?;
        let mut left = REPORTS;
        loop {
            let answer = report::send(&client, task, ended).await;
            left -= 1;
            match answer {
                Err(Error::Unreachable { .. } | Error::NoAnswer { .. }) if left > 0 => {
                    tokio::time::sleep(TRY_AGAIN_AFTER).await;
                }
                answer => return answer,
            }
        }
    }

    /// One line per step.
    fn tell(
        &self,
        task: &Task,
        what: &str,
        reported: Option<&TaskReported>,
        detail: &str,
        began: Instant,
    ) -> anyhow::Result<()> {
        let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        if self.json {
            let line = json!({
                "task_id": task.task_id, "run_id": task.run_id, "step": task.step, "task_type": task.task_type,
                "attempt": task.attempt, "reported": what, "detail": detail, "ms": ms,
                "state_code": reported.map(|reported| &reported.state_code),
                "run_state": reported.map(|reported| &reported.run_state),
            });
            return output::say_verbatim(&Value::to_string(&line));
        }
        let colour = match what {
            "completed" => Tint::Good,
            "retry" | "waiting" => Tint::Wait,
            _ => Tint::Bad,
        };
        let undo = if task.task_type == "COMPENSATION" { "↩ undo " } else { "" };
        let run = reported.map_or_else(String::new, |reported| format!(", run {}", printable(&reported.run_state)));
        output::say(&format!(
            "{} {undo}{} {} {ms} ms{run}  {}",
            tint(Tint::Dim, &task.run_id),
            tint(Tint::Strong, &task.step),
            tint(colour, what),
            tint(Tint::Dim, detail)
        ))
    }
}
