//! Plays the story of a workflow: starts a run, plays the workers, the people and the world outside, shows each call with its answer
//! and its records.

use super::run_story::{RunAct, RunStory};
use super::story::Beat;
use super::theatre::{Theatre, show_call, show_chain};
use crate::cli::output::say;
use crate::cli::run_view::{MAX_ROWS, render};
use crate::cli::table::{Tint, tint};
use anyhow::{anyhow, bail, ensure};
use countersign_client::wire::{ClaimTasks, CompleteTask, DeadTask, InboxQuery, OpenGate, RetryTask, SendEvent, Task};
use countersign_client::{Client, Error};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

const LEASE_MS: i64 = 30_000;
/// How long a claim waits for a step that is expected.
pub(super) const WAIT_MS: u64 = 20_000;
pub(super) const POLL_MS: u64 = 100;

pub struct RunStage<'s> {
    pub(super) story: &'s RunStory,
    pub theatre: Theatre,
    /// What each worker has claimed last.
    claimed: HashMap<&'static str, Task>,
    /// The approval that was opened or approved last.
    pub(super) approval_id: String,
    /// Where the files of the story are.
    pub(super) world: PathBuf,
}

pub(super) type Answered = Result<Value, Error>;

impl<'s> RunStage<'s> {
    pub async fn set(mut theatre: Theatre, story: &'s RunStory, world: PathBuf) -> anyhow::Result<Self> {
        let document = match story.hurry {
            None => story.document.to_owned(),
            Some((long, short)) => story.document.replacen(long, short, 1),
        };
        theatre.publish(&document).await?;
        if let Some((long, short)) = story.hurry {
            say(&format!("In it stands `{short}` instead of `{long}`: nobody waits that long for a story."))?;
        }
        say(&format!("Records are kept under {}.", tint(Tint::Strong, story.retention)))?;
        theatre.enter(story.cast).await?;
        let stage = RunStage { story, theatre, claimed: HashMap::new(), approval_id: String::new(), world };
        stage.make_world()?;
        Ok(stage)
    }

    pub async fn play(&mut self, beat: &Beat<RunAct>) -> anyhow::Result<()> {
        let client = self.theatre.announce(beat)?;
        match beat.act {
            RunAct::Look => return self.look(&client).await,
            RunAct::Await(step, state) => self.wait_for(&client, step, state).await?,
            RunAct::Reaches(state, phase) => self.wait_for_run(state, phase).await?,
            RunAct::World(script) => return self.change_world(beat.actor, script),
            RunAct::Rehearse => return self.rehearse(&client, beat.actor).await,
            _ => {
                let result = self.act(&client, beat).await?;
                let Some(answer) = Theatre::answered(result, beat.expect)? else { return Ok(()) };
                self.check(&beat.act, &answer)?;
            }
        }
        self.theatre.show_new_records().await
    }

    async fn look(&self, client: &Client) -> anyhow::Result<()> {
        let run = client.run(&self.theatre.instance_id).await?.body;
        for line in render(&run, MAX_ROWS, Timestamp::now()).lines() {
            say(&format!("    {line}"))?;
        }
        Ok(())
    }

    async fn act(&mut self, client: &Client, beat: &Beat<RunAct>) -> anyhow::Result<Answered> {
        match &beat.act {
            RunAct::Start => {
                let request = self.start_request()?;
                show_call(beat.actor, "POST /v1/runs", &request)?;
                let answer = client.start_run(&request).await;
                if let Ok(answer) = &answer {
                    self.theatre.instance_id.clone_from(&answer.body.run_id);
                }
                Ok(answer.map(|answer| answer.json))
            }
            RunAct::Claim(queue, _) => self.claim(client, beat, queue, LEASE_MS, WAIT_MS).await,
            RunAct::ClaimBriefly(queue, _, lease_ms) => self.claim(client, beat, queue, *lease_ms, WAIT_MS).await,
            RunAct::FindNothing(queue) => self.claim(client, beat, queue, LEASE_MS, 0).await,
            RunAct::Complete(output) => {
                let (task_id, lease_token) = self.task_of(beat)?;
                let output = Some(serde_json::from_str(output)?);
                let request = CompleteTask { lease_token, output, ..CompleteTask::default() };
                show_call(beat.actor, &format!("POST /v1/tasks/{task_id}/complete"), &request)?;
                Ok(client.complete_task(&task_id, &request).await.map(|answer| answer.json))
            }
            RunAct::Retry(error, backoff_ms) => {
                let (task_id, lease_token) = self.task_of(beat)?;
                let last_error = (*error).to_owned();
                let request =
                    RetryTask { lease_token, last_error, backoff_ms: Some(*backoff_ms), ..RetryTask::default() };
                show_call(beat.actor, &format!("POST /v1/tasks/{task_id}/retry"), &request)?;
                Ok(client.retry_task(&task_id, &request).await.map(|answer| answer.json))
            }
            RunAct::Dead(error) => {
                let (task_id, lease_token) = self.task_of(beat)?;
                let request = DeadTask { lease_token, last_error: (*error).to_owned(), ..DeadTask::default() };
                show_call(beat.actor, &format!("POST /v1/tasks/{task_id}/dead"), &request)?;
                Ok(client.dead_task(&task_id, &request).await.map(|answer| answer.json))
            }
            RunAct::Event { id, event_type, key, data, .. } => {
                let request = SendEvent {
                    id: (*id).to_owned(),
                    event_type: (*event_type).to_owned(),
                    run_id: None,
                    correlation_key: Some((*key).to_owned()),
                    data: Some(serde_json::from_str(data)?),
                };
                show_call(beat.actor, "POST /v1/events", &request)?;
                Ok(client.send_event(&request).await.map(|answer| answer.json))
            }
            RunAct::On(step, act, body) => {
                let request: Value = serde_json::from_str(&self.filled(body))?;
                show_call(
                    beat.actor,
                    &format!("POST /v1/runs/{}/steps/{step}/{act}", self.theatre.instance_id),
                    &request,
                )?;
                Ok(client.act_on_step(&self.theatre.instance_id, step, act, &request).await.map(|answer| answer.json))
            }
            RunAct::Open(action) => {
                let request = OpenGate { action: (*action).to_owned(), reason: None, request: None };
                show_call(beat.actor, &format!("POST /v1/runs/{}/gates", self.theatre.instance_id), &request)?;
                let answer = client.open_run_gate(&self.theatre.instance_id, &request).await;
                if let Ok(answer) = &answer {
                    self.approval_id = answer.body.step_id.clone().unwrap_or_default();
                }
                Ok(answer.map(|answer| answer.json))
            }
            RunAct::Approve(action) => self.approve(client, beat.actor, action).await,
            RunAct::Control(action, body) => self.control(client, beat.actor, action, body).await,
            RunAct::InTray(_) => {
                say(&format!("    {} GET /v1/inbox", tint(Tint::Wait, beat.actor)))?;
                Ok(client.inbox(&InboxQuery::default()).await.map(|answer| answer.json))
            }
            RunAct::Look | RunAct::Await(..) | RunAct::Reaches(..) | RunAct::World(_) | RunAct::Rehearse => {
                Ok(Ok(Value::Null))
            }
        }
    }

    async fn wait_for(&self, client: &Client, step: &str, state: &str) -> anyhow::Result<()> {
        for _ in 0..WAIT_MS / POLL_MS {
            let run = client.run(&self.theatre.instance_id).await?.body;
            if run.steps.iter().any(|seen| seen.name == step && seen.state_code == state) {
                return say(&format!("    {} `{step}` is {state}", tint(Tint::Bad, "→")));
            }
            tokio::time::sleep(Duration::from_millis(POLL_MS)).await;
        }
        bail!("the story expects that `{step}` becomes {state}")
    }

    async fn claim(
        &mut self,
        client: &Client,
        beat: &Beat<RunAct>,
        queue: &str,
        lease_ms: i64,
        wait_ms: u64,
    ) -> anyhow::Result<Answered> {
        let request = ClaimTasks {
            worker_id: beat.actor.to_owned(),
            max: Some(1),
            lease_ms: Some(lease_ms),
            wait_ms: Some(wait_ms),
        };
        show_call(beat.actor, &format!("POST /v1/queues/{queue}/claim"), &request)?;
        let answer = client.claim_tasks(queue, &request).await;
        if let Ok(task) = answer.as_ref().map(|answer| answer.body.tasks.first())
            && let Some(task) = task
        {
            self.claimed.insert(beat.actor, task.clone());
        }
        Ok(answer.map(|answer| answer.json))
    }

    fn task_of(&self, beat: &Beat<RunAct>) -> anyhow::Result<(String, String)> {
        let task = self.claimed.get(beat.actor).ok_or_else(|| anyhow!("{} has claimed nothing", beat.actor))?;
        Ok((task.task_id.clone(), task.lease_token.clone()))
    }

    /// Whether the answer is the one that the story tells of.
    fn check(&self, act: &RunAct, answer: &Value) -> anyhow::Result<()> {
        match act {
            RunAct::Claim(_, step) | RunAct::ClaimBriefly(_, step, _) => {
                let given = answer["tasks"][0]["step"].as_str();
                ensure!(given == Some(step), "the story expects {step}, but {given:?} was given");
            }
            RunAct::FindNothing(queue) => {
                let none = answer["tasks"].as_array().is_some_and(Vec::is_empty);
                ensure!(none, "the story expects nothing in {queue}");
            }
            RunAct::Event { wakes, duplicate, .. } => {
                let woken = answer["woken"].as_array().map(Vec::len);
                ensure!(woken == Some(*wakes), "the story expects that it wakes {wakes}");
                ensure!(answer["duplicate"] == *duplicate, "the story expects duplicate: {duplicate}");
            }
            RunAct::Start
            | RunAct::Complete(_)
            | RunAct::Retry(..)
            | RunAct::Dead(_)
            | RunAct::On(..)
            | RunAct::Open(_)
            | RunAct::Approve(_)
            | RunAct::Await(..)
            | RunAct::Reaches(..)
            | RunAct::Control(..)
            | RunAct::World(_)
            | RunAct::Rehearse
            | RunAct::Look => {}
            RunAct::InTray(expected) => {
                let entries = answer["items"].as_array().map(Vec::len);
                ensure!(entries == Some(*expected), "the story expects {expected} in the in-tray");
            }
        }
        Ok(())
    }

    /// The run as anybody may read it afterwards, and the chain of its records.
    pub async fn curtain(&self) -> anyhow::Result<()> {
        let run = self.theatre.admin.run(&self.theatre.instance_id).await?.body;
        say(&format!("\n{}\n", render(&run, MAX_ROWS, Timestamp::now())))?;
        let records = self.theatre.records().await?;
        show_chain(&records)?;
        let (state, outcome) = self.story.ends;
        ensure!(run.state == state, "the story ends {state}, but the run is {}", run.state);
        if let Some(outcome) = outcome {
            ensure!(run.outcome.as_deref() == Some(outcome), "the story ends {outcome}, not {:?}", run.outcome);
        }
        let ended: Vec<(String, &str)> = run
            .steps
            .iter()
            .map(|step| {
                let name = step.compensates.as_ref().map_or_else(|| step.name.clone(), |undone| format!("↩ {undone}"));
                (name, step.state_code.as_str())
            })
            .collect();
        let ended: Vec<(&str, &str)> = ended.iter().map(|(name, state)| (name.as_str(), *state)).collect();
        ensure!(ended == self.story.steps, "the story ends with other steps: {ended:?}");
        let outcome = outcome.map_or_else(String::new, |outcome| format!(" ({outcome})"));
        say(&format!(
            "\n{} {} ended {}: {} steps, {} records, every change with its record.",
            tint(Tint::Good, "✓"),
            self.story.subject,
            tint(Tint::Strong, &format!("{state}{outcome}")),
            run.steps.len(),
            records.len()
        ))
    }
}
