//! The command of one step: what goes in, what comes out, and what its exit code means.

use anyhow::Context as _;
use countersign_client::wire::Task;
use countersign_executor::{Verdict, shell};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::de::IgnoredAny;
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use tokio::task::JoinHandle;

/// `EX_TEMPFAIL`: try again later.
const RETRY: i32 = 75;
/// Of what a command prints, this much of the end is kept.
const KEPT: usize = 256 * 1024;
const LONGEST_ERROR: usize = 1000;
/// Linux takes variables of up to 128 KiB.
pub const LONGEST_EVENT: usize = 100 * 1024;

pub struct Running {
    /// The process and all that it starts.
    group: Option<Pid>,
    /// Nothing once it has been waited for.
    ended: Option<JoinHandle<std::io::Result<Verdict>>>,
}

impl Running {
    pub fn start(command: &str, task: &Task) -> anyhow::Result<Self> {
        let child = Command::new("sh")
            .args(["-c", command])
            .env("COUNTERSIGN_RUN_ID", &task.run_id)
            .env("COUNTERSIGN_TASK_ID", &task.task_id)
            .env("COUNTERSIGN_STEP", &task.step)
            .env("COUNTERSIGN_TASK_TYPE", &task.task_type)
            .env("COUNTERSIGN_ATTEMPT", task.attempt.to_string())
            .env("COUNTERSIGN_IDEMPOTENCY_KEY", &task.idempotency_key)
            // Empty where no event woke the step.
            .env("COUNTERSIGN_EVENT", event_of(task).unwrap_or_default())
            // The token is ours, not the command's.
            .env_remove("COUNTERSIGN_TOKEN")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is for the worker, which lets the command finish.
            .process_group(0)
            .spawn()
            .context("the command cannot be started")?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let input = task.input.to_string();
        Ok(Running { group, ended: Some(tokio::task::spawn_blocking(move || finish(child, &input))) })
    }

    /// May be dropped and asked again, until it has answered.
    pub async fn wait(&mut self) -> anyhow::Result<Verdict> {
        let running = self.ended.as_mut().context("the command has ended already")?;
        let ended = running.await;
        self.ended = None;
        ended?.context("the command cannot be waited for")
    }
}

impl Drop for Running {
    /// Ends the command and everything that it started, where it has not ended by itself.
    fn drop(&mut self) {
        if let (Some(group), Some(_)) = (self.group, &self.ended) {
            // It may be ending this very moment.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// The data of the event that woke the step, as JSON.
fn event_of(task: &Task) -> Option<String> {
    task.event.as_ref().map(Value::to_string)
}

/// Whether the event is too long for a variable: then no command can be started.
pub fn event_is_too_long(task: &Task) -> bool {
    event_of(task).is_some_and(|event| event.len() > LONGEST_EVENT)
}

/// Hands the input over, and takes what comes out on both ways at once, so that nobody waits for anybody.
fn finish(mut child: Child, input: &str) -> std::io::Result<Verdict> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (stdout, stderr) = std::thread::scope(|scope| {
        // A command that reads no input may end before it has it all: that is its own affair.
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input.as_bytes())));
        // What it complains of is for whoever looks after this worker.
        let stderr =
            scope.spawn(move || stderr.map(|pipe| tail(pipe, |piece| drop(std::io::stderr().write_all(piece)))));
        (stdout.map(|pipe| tail(pipe, |_| ())), stderr.join().ok().flatten())
    });
    let text = |bytes: Option<Vec<u8>>| String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned();
    Ok(judged(child.wait()?, &text(stdout), &text(stderr)))
}

/// Everything is read and passed on; the end of it is kept.
fn tail(mut pipe: impl Read, pass_on: impl Fn(&[u8])) -> Vec<u8> {
    let (mut kept, mut piece) = (Vec::new(), vec![0; 16 * 1024]);
    while let Ok(count @ 1..) = pipe.read(&mut piece) {
        pass_on(&piece[..count]);
        kept.extend_from_slice(&piece[..count]);
        if kept.len() > 2 * KEPT {
            kept.drain(..kept.len() - KEPT);
        }
    }
    kept
}

/// A last line of JSON is the output or a report, as of a step with `run: shell`.
fn judged(status: ExitStatus, stdout: &str, stderr: &str) -> Verdict {
    if status.success() {
        let line = last_line(stdout).unwrap_or("null");
        if serde_json::from_str::<IgnoredAny>(line).is_err() {
            crate::cli::output::complain("the last line of the command is no JSON: the step's output is null");
        }
        return shell::reported(line);
    }
    let error = last_line(stderr).or_else(|| last_line(stdout)).map(|line| line.chars().take(LONGEST_ERROR).collect());
    let last_error = error.unwrap_or_else(|| match status.code() {
        Some(code) => format!("the command exited with {code}"),
        None => format!("the command ended: {status}"),
    });
    if status.code() == Some(RETRY) {
        Verdict::Retry { last_error, backoff: None, category: None }
    } else {
        Verdict::Dead { last_error, category: None }
    }
}

fn last_line(text: &str) -> Option<&str> {
    text.lines().rev().map(str::trim).find(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(input: Value) -> Task {
        Task {
            task_id: "r.0".into(),
            run_id: "r".into(),
            step: "SHIP".into(),
            step_seq: 0,
            attempt: 2,
            max_attempts: 3,
            task_type: "READY_STEP".into(),
            input,
            event: Some(serde_json::json!({"paid": 1})),
            idempotency_key: "r.0".into(),
            lease_token: "l".into(),
            locked_until: String::new(),
        }
    }

    async fn ended(command: &str) -> String {
        let mut running = Running::start(command, &task(serde_json::json!({"n": 1}))).expect("it starts");
        match running.wait().await.expect("it ends") {
            Verdict::Completed { output_json, outbound, .. } => {
                format!(
                    "completed {output_json}{}",
                    outbound.iter().map(|e| format!(" {}", e.event_type)).collect::<String>()
                )
            }
            Verdict::Waiting { event_type, timeout, .. } => format!("waiting {event_type:?} {timeout:?}"),
            Verdict::Retry { last_error, .. } => format!("retry {last_error}"),
            Verdict::Dead { last_error, category } => {
                format!("dead {last_error}{}", category.map_or("", |category| category.as_str()))
            }
            Verdict::Unknown { .. } => "unknown".to_owned(),
        }
    }

    #[tokio::test]
    async fn an_exit_code_says_what_became_of_the_step() {
        for (command, expected) in [
            ("cat", r#"completed {"n":1}"#),
            ("echo working; echo '[1, 2]'; echo", "completed [1, 2]"),
            ("echo done", "completed null"),
            (
                r#"echo '{"result": "completed", "output": 7, "outbound_events": [{"type": "done"}]}'"#,
                "completed 7 done",
            ),
            (r#"echo '{"result": "waiting", "timeout_ms": 5}'"#, "waiting None Some(5ms)"),
            (r#"echo '{"result": "retry", "last_error": "busy"}'"#, "retry busy"),
            (
                r#"echo '{"result": "dead", "last_error": "gone: ", "error_category": "external"}'"#,
                "dead gone: external",
            ),
            (r#"echo '{"result": "fine"}'"#, r#"completed {"result": "fine"}"#),
            ("echo \"[$COUNTERSIGN_EVENT]\"", r#"completed [{"paid":1}]"#),
            ("true", "completed null"),
            ("echo \"\\\"$COUNTERSIGN_STEP-$COUNTERSIGN_ATTEMPT\\\"\"", r#"completed "SHIP-2""#),
            ("echo no >&2; echo 'no stock' >&2; exit 75", "retry no stock"),
            ("echo 'no such order' >&2; exit 1", "dead no such order"),
            ("exit 3", "dead the command exited with 3"),
            ("yes | head -c 3000000; echo 7", "completed 7"),
        ] {
            assert_eq!(ended(command).await, expected, "{command}");
        }
    }

    fn dead() -> Verdict {
        Verdict::Dead { last_error: String::new(), category: None }
    }

    #[tokio::test]
    async fn a_stopped_command_takes_its_children_along() {
        let mut running = Running::start("sleep 600 & sleep 600", &task(Value::Null)).expect("it starts");
        let ended = running.ended.take().expect("it runs");
        running.ended = Some(tokio::spawn(async { Ok(dead()) }));
        drop(running);
        // The pipes end when the last process that holds them has.
        assert!(matches!(ended.await.expect("a thread"), Ok(Verdict::Dead { .. })));
    }
}
