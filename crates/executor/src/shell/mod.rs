//! A `run: shell` step: a process in a separate group, with a clean environment, an empty working directory and the
//! step's input on its standard input. The directory is made for this attempt and removed after it. The files that
//! the step names as artifacts are copied elsewhere first.
//!
//! The engine's own secrets (tokens, addresses of databases) are not in the process's environment. The process is not
//! confined in any other way: it runs as the same user on the same machine. So publishing such a step needs a
//! separate scope.

mod capture;
mod group;
mod outcome;
mod probe;
mod warden;

use crate::artifact::{Artifact, ArtifactStore, Unkept};
use crate::mask::Mask;
use crate::verdict::Verdict;
use crate::{filled, text};
use capture::Tail;
use countersign_kernel::lifecycle::FailureCategory;
use countersign_kernel::plan::ShellWork;
use group::{Group, Pipes};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;

/// How much is kept of what the process writes; the rest is read and forgotten.
pub const STDOUT_BYTES: usize = 1024 * 1024;
pub const STDERR_BYTES: usize = 64 * 1024;
/// How much of it an error tells.
const ERROR_BYTES: usize = 4 * 1024;
const ERROR_LINES: usize = 20;
/// How long to read a pipe that a process outside the group keeps open.
const LINGER: Duration = Duration::from_millis(500);

const PATH: &str = "/usr/bin:/bin";
const LANG: &str = "C.UTF-8";
/// Names that begin so are the engine's to give.
const OURS: &str = "COUNTERSIGN_";

/// A command with everything filled in, secrets included.
#[derive(Clone)]
pub struct ShellJob {
    pub command: Command,
    pub env: BTreeMap<String, String>,
    pub input_json: String,
    pub success: Vec<i32>,
    pub retry: Vec<i32>,
    /// What is left of the step's own timeout.
    pub timeout: Option<Duration>,
    pub idempotency_key: String,
    pub run_id: String,
    pub step: String,
    pub attempt: u32,
    /// The files that the process has to leave in its working directory, and where they are kept.
    pub artifacts: Option<Artifacts>,
    /// What is not to be shown of what the process writes.
    pub mask: Mask,
}

#[derive(Clone, Debug)]
pub struct Artifacts {
    /// Relative to the working directory.
    pub paths: Vec<String>,
    pub store: ArtifactStore,
}

/// How a process has ended, and what it wrote.
struct Attempt {
    ended: Ended,
    stdout: Tail,
    stderr: Tail,
    /// Where nothing runs any more.
    directory: Option<TempDir>,
}

enum Ended {
    /// With this code, as a shell counts: killed by signal 9 is 137.
    With(i32),
    Lost(io::Error),
    Late,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// For `sh -c`.
    Text(String),
    /// Run as it is: nothing in it is a shell's to interpret.
    List(Vec<String>),
}

/// The result that the last line of a command reports, for a worker that runs commands elsewhere.
pub fn reported(last_line: &str) -> Verdict {
    outcome::of_line(last_line, &Mask::default())
}

impl ShellJob {
    /// A step's work with its templates filled in: `command` and `env` are JSON texts. The rest of the job is left empty.
    pub fn filled(work: &ShellWork, command: &str, env: Option<&str>) -> Result<Self, Verdict> {
        let command = match filled::list(command) {
            Some(list) => Command::List(list),
            None => serde_json::from_str(command).map(Command::Text).map_err(|_| {
                Verdict::unusable("`command` is neither a text nor a list of texts once it is filled in")
            })?,
        };
        let env = match env {
            Some(env) => filled::texts(env)
                .ok_or_else(|| Verdict::unusable("`env` is not an object of texts once it is filled in"))?,
            None => BTreeMap::new(),
        };
        Ok(ShellJob {
            command,
            env,
            input_json: "null".to_owned(),
            success: work.success.clone(),
            retry: work.retry.clone(),
            timeout: None,
            idempotency_key: String::new(),
            run_id: String::new(),
            step: String::new(),
            attempt: 1,
            artifacts: None,
            mask: Mask::default(),
        })
    }

    /// Runs the process to its end. Dropping the future kills it and everything it has started.
    pub async fn run(&self) -> Verdict {
        let verdict = match self.attempt().await {
            Ok(attempt) => self.conclude(attempt).await,
            Err(refused) => refused,
        };
        verdict.masked(&self.mask)
    }

    async fn attempt(&self) -> Result<Attempt, Verdict> {
        self.check()?;
        let mut group = self.spawn()?;
        let (mut stdout, mut stderr) = (Tail::new(STDOUT_BYTES), Tail::new(STDERR_BYTES));
        let ended = {
            let attended = attend(&mut group, self.input_json.as_bytes(), &mut stdout, &mut stderr);
            match self.timeout {
                Some(limit) => tokio::time::timeout(limit, attended).await.ok(),
                None => Some(attended.await),
            }
        };
        let directory = group.end().await;
        let ended = match ended {
            Some(Ok(status)) => Ended::With(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))),
            Some(Err(error)) => Ended::Lost(error),
            None => Ended::Late,
        };
        Ok(Attempt { ended, stdout, stderr, directory })
    }

    /// The verdict, with the artifacts where there have to be some. The working directory is gone afterwards.
    async fn conclude(&self, mut attempt: Attempt) -> Verdict {
        let directory = attempt.directory.take();
        let mut verdict = self.judge(&attempt);
        let wanted = self.artifacts.clone().filter(|wanted| !wanted.paths.is_empty());
        let kept = tokio::task::spawn_blocking({
            let is_completed = matches!(verdict, Verdict::Completed { .. });
            move || {
                let kept = match (&directory, wanted.filter(|_| is_completed)) {
                    (Some(directory), Some(wanted)) => collect(directory, &wanted),
                    (None, Some(_)) => Err(Verdict::dead("the working directory is gone", FailureCategory::Transient)),
                    (_, None) => Ok(vec![]),
                };
                directory.into_iter().for_each(group::remove);
                kept
            }
        });
        let lost = |error| Err(Verdict::dead(format!("no artifact was kept: {error}"), FailureCategory::Transient));
        match kept.await.unwrap_or_else(lost) {
            Ok(kept) => {
                if let Verdict::Completed { artifacts, .. } = &mut verdict {
                    *artifacts = kept;
                }
                verdict
            }
            Err(unkept) => unkept,
        }
    }

    fn check(&self) -> Result<(), Verdict> {
        let blank = match &self.command {
            Command::Text(text) => text.trim().is_empty(),
            Command::List(list) => list.first().is_none_or(|program| program.trim().is_empty()),
        };
        if blank {
            return Err(Verdict::unusable("`command` is blank"));
        }
        let bad = |name: &&String| name.is_empty() || name.contains(['=', '\0']) || name.starts_with(OURS);
        if let Some(name) = self.env.keys().find(bad) {
            let why = format!(
                "`env` cannot set `{}`: names are not blank, hold no `=`, and {OURS}… is ours",
                name.escape_debug()
            );
            return Err(Verdict::unusable(why));
        }
        Ok(())
    }

    fn spawn(&self) -> Result<Group, Verdict> {
        let transient =
            |what: &str, error: &io::Error| Verdict::retry(format!("{what}: {error}"), FailureCategory::Transient);
        let directory = tempfile::Builder::new().prefix("countersign-step-").tempdir();
        let directory = directory.map_err(|error| transient("no working directory can be made", &error))?;
        let mut command = match &self.command {
            Command::Text(text) => {
                let mut command = tokio::process::Command::new("/bin/sh");
                command.args(["-c", text]);
                command
            }
            Command::List(list) => {
                let mut list = list.iter();
                let mut command = tokio::process::Command::new(list.next().map_or("", String::as_str));
                command.args(list);
                command
            }
        };
        command
            .env_clear()
            .env("PATH", PATH)
            .env("LANG", LANG)
            .env("HOME", directory.path())
            .envs(&self.env)
            .env("COUNTERSIGN_IDEMPOTENCY_KEY", &self.idempotency_key)
            .env("COUNTERSIGN_RUN_ID", &self.run_id)
            .env("COUNTERSIGN_STEP", &self.step)
            .env("COUNTERSIGN_ATTEMPT", self.attempt.to_string())
            .current_dir(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Group::spawn(command, directory).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::ArgumentListTooLong => {
                Verdict::unusable(format!("the command cannot be started: {}: {error}", self.program()))
            }
            _ => transient("the command cannot be started", &error),
        })
    }

    /// What is started, by name.
    fn program(&self) -> &str {
        match &self.command {
            Command::Text(_) => "/bin/sh",
            Command::List(list) => list.first().map_or("", String::as_str),
        }
    }

    fn judge(&self, attempt: &Attempt) -> Verdict {
        let told = |error: String| with_stderr(error, &attempt.stderr, &self.mask);
        match &attempt.ended {
            Ended::With(code) if self.success.contains(code) => outcome::of(&attempt.stdout, &self.mask),
            Ended::With(code) if self.retry.contains(code) => {
                Verdict::retry(told(format!("exit code {code}")), FailureCategory::Transient)
            }
            Ended::With(code) => Verdict::dead(told(format!("exit code {code}")), FailureCategory::AgentError),
            Ended::Lost(error) => {
                Verdict::retry(format!("the process was lost: {error}"), FailureCategory::Transient).unknown()
            }
            Ended::Late => {
                let error = told("STEP_TIMEOUT: the process was killed".to_owned());
                Verdict::dead(error, FailureCategory::Timeout).unknown()
            }
        }
    }
}

/// Keeps every file that was asked for, or says what the step failed to leave.
fn collect(directory: &TempDir, wanted: &Artifacts) -> Result<Vec<Artifact>, Verdict> {
    let keep = |path: &String| {
        wanted.store.keep(directory.path(), path).map_err(|unkept| match unkept {
            Unkept::Missing => Verdict::dead(format!("ARTIFACT_MISSING: {path}"), FailureCategory::AgentError),
            Unkept::Refused(why) => {
                Verdict::dead(format!("ARTIFACT_REFUSED: {path}: {why}"), FailureCategory::AgentError)
            }
            Unkept::TooLarge(max) => Verdict::dead(
                format!("ARTIFACT_TOO_LARGE: {path}: `artifacts.max_bytes` allows {max} bytes"),
                FailureCategory::AgentError,
            ),
            Unkept::Failed(error) => {
                Verdict::dead(format!("ARTIFACT_NOT_KEPT: {path}: {error}"), FailureCategory::Transient)
            }
        })
    };
    wanted.paths.iter().map(keep).collect()
}

impl fmt::Debug for ShellJob {
    /// The environment may hold secrets: only its names are shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&String> = self.env.keys().collect();
        let mut shown = f.debug_struct("ShellJob");
        shown.field("command", &self.command).field("env", &names).field("run_id", &self.run_id);
        shown.field("step", &self.step).field("attempt", &self.attempt).finish_non_exhaustive()
    }
}

/// Feeds the process, reads what it writes, and sees it end. What it leaves running does not outlive it.
async fn attend(group: &mut Group, input: &[u8], stdout: &mut Tail, stderr: &mut Tail) -> io::Result<ExitStatus> {
    let (stdin, out, err): Pipes = group.pipes();
    let fed = async {
        if let Some(mut stdin) = stdin {
            // A process that does not want its input closes the pipe. Dropping our end tells it that there is no more.
            let _ = stdin.write_all(input).await;
        }
    };
    let mut pipes = pin!(async { tokio::join!(fed, stdout.drain(out), stderr.drain(err)) });
    let mut drained = false;
    let status = loop {
        tokio::select! {
            status = group.wait() => break status,
            _ = &mut pipes, if !drained => drained = true,
        }
    };
    group.kill();
    if !drained {
        let _ = tokio::time::timeout(LINGER, pipes).await;
    }
    status
}

/// Masked before it is cut, and without a beginning that may be the end of a secret.
fn with_stderr(error: String, stderr: &Tail, mask: &Mask) -> String {
    let cut = if stderr.is_cut() { mask.longest().min(stderr.bytes().len()) } else { 0 };
    let written = text::of(&stderr.bytes()[cut..]);
    let told = text::last_lines(&mask.text(&written), ERROR_LINES, ERROR_BYTES);
    if told.is_empty() { error } else { format!("{error}: {told}") }
}
