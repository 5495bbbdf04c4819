//! `countersign task`: the worker protocol by hand, one call each. `countersign work` does it by itself.

use super::connection::Context;
use super::failure::usage;
use super::input;
use super::output::{self, printable, shell_word};
use super::table::{Tint, tint};
use super::time::{parse_millis, when};
use clap::{Args, Subcommand, ValueEnum};
use countersign_client::Answer;
use countersign_client::wire::{
    ClaimTasks, CompleteTask, DeadTask, HeartbeatTask, MAX_WAIT_MS, RetryTask, Task, TaskReported, WaitTask,
};
use jiff::Timestamp;

/// Call the worker protocol: claim steps and report on them
#[derive(Subcommand)]
pub enum TaskCommand {
    /// Claim steps of a queue, until the lease ends
    Claim(ClaimArgs),
    /// Extend the lease of a step
    Heartbeat(HeartbeatArgs),
    /// Report that the step is complete
    Complete(CompleteArgs),
    /// Report that the step waits for an event, for a time, or for both
    Wait(WaitArgs),
    /// Report that the step failed and should be tried again
    Retry(RetryArgs),
    /// Report that the step failed for good
    Dead(DeadArgs),
}

#[derive(Args)]
pub struct ClaimArgs {
    /// The queue
    queue: String,
    /// The worker's name, unique among the workers
    #[arg(long, value_name = "NAME", default_value = "by-hand")]
    worker: String,
    /// The largest number of steps to claim
    #[arg(long, value_name = "N", default_value_t = 1)]
    max: u32,
    /// The duration of the lease
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_millis)]
    lease: i64,
    /// How long to wait for work, at most 1m
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_millis)]
    wait: i64,
}

/// A task and the proof that it is ours.
#[derive(Args)]
pub struct Claimed {
    /// The task's id
    task: String,
    /// The lease token, as `task claim` printed it
    #[arg(long, value_name = "TOKEN")]
    lease_token: String,
}

#[derive(Args)]
pub struct HeartbeatArgs {
    #[command(flatten)]
    claimed: Claimed,
    /// The duration of the lease, from now
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_millis)]
    lease: i64,
}

#[derive(Args)]
pub struct CompleteArgs {
    #[command(flatten)]
    claimed: Claimed,
    /// The output: one JSON value, or a field: NAME=TEXT, NAME:=JSON (may be repeated)
    #[arg(long, value_name = "JSON|NAME=TEXT")]
    output: Vec<String>,
    /// Claim the next task in the same call
    #[arg(long)]
    claim_next: bool,
}

#[derive(Args)]
pub struct WaitArgs {
    #[command(flatten)]
    claimed: Claimed,
    /// The type of the event to wait for
    #[arg(long, value_name = "TYPE", required_unless_present = "timeout")]
    event: Option<String>,
    /// The longest wait
    #[arg(long, value_name = "DURATION", value_parser = parse_millis)]
    timeout: Option<i64>,
    /// The reason for waiting, e.g. waiting_dependency (may be repeated)
    #[arg(long)]
    facet: Vec<String>,
}

#[derive(Args)]
pub struct RetryArgs {
    #[command(flatten)]
    claimed: Claimed,
    /// The error, for the record
    #[arg(long, value_name = "TEXT")]
    error: String,
    /// The pause before the next attempt [default: from the step's retry policy]
    #[arg(long, value_name = "DURATION", value_parser = parse_millis)]
    backoff: Option<i64>,
    /// The category of the failure
    #[arg(long, value_enum)]
    category: Option<CategoryArg>,
}

#[derive(Args)]
pub struct DeadArgs {
    #[command(flatten)]
    claimed: Claimed,
    /// The error, for the record
    #[arg(long, value_name = "TEXT")]
    error: String,
    /// The category of the failure
    #[arg(long, value_enum)]
    category: Option<CategoryArg>,
}

#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
enum CategoryArg {
    Transient,
    AgentError,
    Timeout,
    Validation,
    External,
    Governance,
}

pub async fn run(context: &Context, command: TaskCommand) -> anyhow::Result<()> {
    let client = context.client()?;
    let (task, answer) = match command {
        TaskCommand::Claim(args) => return claim(context, args).await,
        TaskCommand::Heartbeat(HeartbeatArgs { claimed: Claimed { task, lease_token }, lease }) => {
            let request = HeartbeatTask { lease_token, lease_ms: Some(lease) };
            let answer = client.heartbeat_task(&task, &request).await?;
            (task, answer)
        }
        TaskCommand::Complete(CompleteArgs { claimed: Claimed { task, lease_token }, output, claim_next }) => {
            let output = input::value(&output)?;
            let claim_next = claim_next.then_some(true);
            let request = CompleteTask { lease_token, output, claim_next, ..CompleteTask::default() };
            let answer = client.complete_task(&task, &request).await?;
            (task, answer)
        }
        TaskCommand::Wait(WaitArgs { claimed: Claimed { task, lease_token }, event, timeout, facet }) => {
            let request = WaitTask {
                lease_token,
                waiting_event_type: event,
                timeout_ms: timeout,
                waiting_facet: None,
                waiting_facets: (!facet.is_empty()).then_some(facet),
                outbound_events: None,
            };
            let answer = client.wait_task(&task, &request).await?;
            (task, answer)
        }
        TaskCommand::Retry(RetryArgs { claimed: Claimed { task, lease_token }, error, backoff, category }) => {
            let error_category = category.and_then(named);
            let request = RetryTask { lease_token, last_error: error, backoff_ms: backoff, error_category };
            let answer = client.retry_task(&task, &request).await?;
            (task, answer)
        }
        TaskCommand::Dead(DeadArgs { claimed: Claimed { task, lease_token }, error, category }) => {
            let request = DeadTask { lease_token, last_error: error, error_category: category.and_then(named) };
            let answer = client.dead_task(&task, &request).await?;
            (task, answer)
        }
    };
    reported(context, &task, &answer)
}

fn named(category: CategoryArg) -> Option<String> {
    category.to_possible_value().map(|value| value.get_name().to_owned())
}

async fn claim(context: &Context, args: ClaimArgs) -> anyhow::Result<()> {
    let wait_ms = u64::try_from(args.wait).unwrap_or(0);
    if wait_ms > MAX_WAIT_MS {
        return Err(usage(format!("--wait is at most {}s: claim again after that", MAX_WAIT_MS / 1000)));
    }
    let request =
        ClaimTasks { worker_id: args.worker, max: Some(args.max), lease_ms: Some(args.lease), wait_ms: Some(wait_ms) };
    let answer = context.client()?.claim_tasks(&args.queue, &request).await?;
    if context.json() {
        return output::json(&answer.json);
    }
    if answer.body.tasks.is_empty() {
        return output::say(&format!("Nothing to do in {}.", printable(&args.queue)));
    }
    for task in &answer.body.tasks {
        output::say(&drawn(task, Timestamp::now()))?;
    }
    Ok(())
}

fn drawn(task: &Task, now: Timestamp) -> String {
    let attempt = format!("attempt {}/{}, {}", task.attempt, task.max_attempts, task.task_type);
    let mut lines = vec![format!("{} {}", tint(Tint::Strong, &task.step), tint(Tint::Dim, &attempt))];
    let mut line = |name: &str, value: String| {
        lines.push(format!("  {} {value}", tint(Tint::Dim, &format!("{name:<11}"))));
    };
    line("task", printable(&task.task_id));
    line("run", printable(&task.run_id));
    line("input", printable(&task.input.to_string()));
    if let Some(event) = &task.event {
        line("event", printable(&event.to_string()));
    }
    line("lease token", printable(&task.lease_token));
    line("yours until", when(&task.locked_until, now));
    let then = format!(
        "countersign task complete {} --lease-token {} --output …",
        shell_word(&task.task_id),
        shell_word(&task.lease_token)
    );
    lines.push(format!("  {}", tint(Tint::Dim, &then)));
    lines.join("\n")
}

fn reported(context: &Context, task: &str, answer: &Answer<TaskReported>) -> anyhow::Result<()> {
    if context.json() {
        return output::json(&answer.json);
    }
    let TaskReported { state_code, run_state, next } = &answer.body;
    output::say(&format!(
        "{} is {}, the run {}",
        printable(task),
        tint(Tint::Strong, state_code),
        printable(run_state)
    ))?;
    match next {
        Some(next) => output::say(&drawn(next, Timestamp::now())),
        None => Ok(()),
    }
}
