//! A worker in a separate process, to be killed. It claims steps, reports on them, and writes down what the server
//! acknowledged, so that a test can compare it after both processes are dead.

use crate::load::Rng;
use anyhow::Context;
use countersign_client::wire::{ClaimTasks, CompleteTask, DeadTask, HeartbeatTask, Task, TaskReported};
use countersign_client::{Client, Error};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long after a worker's death its steps go to another worker.
pub const LEASE_MS: i64 = 700;
pub const QUEUE: &str = "crash";
/// The name of a step that never succeeds.
pub const HOPELESS: &str = "hopeless";
/// The name of a step with an effect: a line in a file of its own.
pub const MARK: &str = "mark";
/// Long enough for nobody to be late between asking for it and leaving the mark.
const MARK_LEASE_MS: i64 = 15_000;
const MARK_TAKES: Duration = Duration::from_millis(50);
const PACE: Duration = Duration::from_millis(5);

/// What one server acknowledged of one step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Acknowledged {
    pub run_id: String,
    pub step_seq: u32,
    pub lease_token: String,
    pub state_code: String,
    pub output: Value,
}

/// Where workers find the servers and the credential, and leave what they were told.
#[derive(Clone, Debug)]
pub struct Yard(PathBuf);

impl Yard {
    pub fn new(directory: PathBuf, token: &str) -> anyhow::Result<Yard> {
        std::fs::create_dir_all(directory.join("told"))?;
        std::fs::write(directory.join("token"), token)?;
        Ok(Yard(directory))
    }

    /// Where marks are left.
    pub fn marks(&self, directory: &Path) -> anyhow::Result<()> {
        Ok(std::fs::write(self.0.join("marks"), directory.as_os_str().as_encoded_bytes())?)
    }

    /// Replaced as a whole, so a reader never sees half of it.
    pub fn servers(&self, urls: &[Option<String>]) -> anyhow::Result<()> {
        let text: String = urls.iter().flatten().map(|url| format!("{url}\n")).collect();
        let new = self.0.join("servers.new");
        std::fs::write(&new, text)?;
        std::fs::rename(new, self.0.join("servers"))?;
        Ok(())
    }

    /// Everything that workers were told so far. The last line of one that was killed may be cut off.
    pub fn told(&self) -> anyhow::Result<Vec<Acknowledged>> {
        let mut all = Vec::new();
        for file in std::fs::read_dir(self.0.join("told"))? {
            let text = std::fs::read_to_string(file?.path())?;
            let whole = text.rfind('\n').map_or("", |end| &text[..end]);
            for line in whole.lines() {
                all.push(serde_json::from_str(line).context("a line that a worker wrote")?);
            }
        }
        Ok(all)
    }

    /// How much there is of it, without reading it.
    pub fn told_bytes(&self) -> anyhow::Result<u64> {
        let mut sum = 0;
        for file in std::fs::read_dir(self.0.join("told"))? {
            sum += file?.metadata()?.len();
        }
        Ok(sum)
    }

    pub fn spawn(&self, program: &Path, id: usize, seed: u64) -> anyhow::Result<Child> {
        Command::new(program)
            .arg("--worker")
            .arg(&self.0)
            .args(["--id", &id.to_string(), "--seed", &seed.to_string()])
            // It ends with whoever holds the other end.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("{} cannot be run", program.display()))
    }
}

/// Works until it is killed, or until its parent is gone.
pub async fn work(directory: &Path, id: usize, seed: u64) -> anyhow::Result<()> {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let token = std::fs::read_to_string(directory.join("token"))?;
    let told = File::options().create(true).append(true).open(directory.join("told").join(format!("worker-{id}")))?;
    let mut worker = Worker { directory: directory.to_owned(), token, told, id, rng: Rng::fork(seed, id as u64) };
    loop {
        if worker.turn().await.is_err() {
            tokio::time::sleep(PACE).await;
        }
    }
}

struct Worker {
    directory: PathBuf,
    token: String,
    told: File,
    id: usize,
    rng: Rng,
}

impl Worker {
    /// Any of the servers that are there.
    fn client(&mut self) -> anyhow::Result<Client> {
        let servers = std::fs::read_to_string(self.directory.join("servers"))?;
        let urls: Vec<&str> = servers.lines().collect();
        let url = self.rng.pick(&urls).context("no server")?;
        Ok(Client::new(url)?.with_token(self.token.trim())?)
    }

    async fn turn(&mut self) -> anyhow::Result<()> {
        let request = ClaimTasks {
            worker_id: format!("worker-{}", self.id),
            max: Some(1 + u32::try_from(self.rng.below(4))?),
            lease_ms: Some(LEASE_MS),
            wait_ms: Some(300),
        };
        let tasks = self.client()?.claim_tasks(QUEUE, &request).await?.body.tasks;
        for task in tasks {
            let mut next = Some(task);
            while let Some(task) = next {
                next = self.handle(&task).await?;
            }
        }
        Ok(())
    }

    /// Repeats a report until a server answers. Returns the task that came with the answer.
    async fn handle(&mut self, task: &Task) -> anyhow::Result<Option<Task>> {
        let output = json!({ "by": self.id, "attempt": task.attempt, "draw": self.rng.below(1_000_000) });
        let claim_next = Some(self.rng.percent(50));
        if task.step == MARK && !self.mark(task).await? {
            return Ok(None);
        }
        loop {
            match self.report(task, &output, claim_next).await {
                Ok(reported) => {
                    let mut line = serde_json::to_string(&Acknowledged {
                        run_id: task.run_id.clone(),
                        step_seq: task.step_seq,
                        lease_token: task.lease_token.clone(),
                        state_code: reported.state_code,
                        output: output.clone(),
                    })?;
                    line.push('\n');
                    self.told.write_all(line.as_bytes())?;
                    return Ok(reported.next);
                }
                Err(Some(_)) => return Ok(None),
                Err(None) => tokio::time::sleep(PACE).await,
            }
        }
    }

    /// Has the effect of the step, once, and only under a lease that is certain. False where it is gone.
    async fn mark(&mut self, task: &Task) -> anyhow::Result<bool> {
        let request = HeartbeatTask { lease_token: task.lease_token.clone(), lease_ms: Some(MARK_LEASE_MS) };
        if self.client()?.heartbeat_task(&task.task_id, &request).await.is_err() {
            return Ok(false);
        }
        let marks = PathBuf::from(std::fs::read_to_string(self.directory.join("marks"))?);
        let mut file = File::options().create(true).append(true).open(marks.join(format!("{}.{MARK}", task.run_id)))?;
        writeln!(file, "worker-{}", self.id)?;
        // So that kills hit what has had its effect and is not reported.
        tokio::time::sleep(MARK_TAKES).await;
        Ok(true)
    }

    /// An error is the code of a refusal, or none where it is not known whether it was done.
    async fn report(
        &mut self,
        task: &Task,
        output: &Value,
        claim_next: Option<bool>,
    ) -> Result<TaskReported, Option<String>> {
        let client = self.client().map_err(|_| None)?;
        let lease_token = task.lease_token.clone();
        let answer = if task.step == HOPELESS {
            let request = DeadTask { lease_token, last_error: "hopeless".to_owned(), error_category: None };
            client.dead_task(&task.task_id, &request).await
        } else {
            let request = CompleteTask {
                lease_token,
                output: Some(output.clone()),
                claim_next,
                lease_ms: Some(LEASE_MS),
                ..Default::default()
            };
            client.complete_task(&task.task_id, &request).await
        };
        match answer {
            Ok(answer) => Ok(answer.body),
            Err(Error::Refused(problem)) if problem.status < 500 => Err(Some(problem.code.clone())),
            Err(_) => Err(None),
        }
    }
}
