//! What the stories of runbooks need besides: files that the run is about and that somebody changes, a rehearsal, and the
//! approval without which a stopped run does not go on.

use super::run_stage::{Answered, POLL_MS, RunStage, WAIT_MS};
use super::theatre::show_call;
use crate::cli::output::{printable, say};
use crate::cli::table::{Tint, tint};
use anyhow::{Context, bail, ensure};
use countersign_client::Client;
use countersign_client::wire::{ControlRun, DecideGate, Decision, RunView, StartRun};
use std::process::Command;
use std::time::Duration;

impl RunStage<'_> {
    pub(super) fn make_world(&self) -> anyhow::Result<()> {
        let Some(script) = self.story.world else { return Ok(()) };
        std::fs::create_dir_all(&self.world)?;
        self.execute(script)?;
        say(&format!("What it is about is in {}.", self.world.display()))
    }

    pub(super) fn change_world(&self, actor: &str, script: &str) -> anyhow::Result<()> {
        for line in script.lines() {
            say(&format!("    {} $ {}", tint(Tint::Wait, actor), line))?;
        }
        self.execute(script)
    }

    fn execute(&self, script: &str) -> anyhow::Result<()> {
        let out = Command::new("/bin/sh").args(["-euc", script]).current_dir(&self.world).output()?;
        ensure!(out.status.success(), "the story's own script fails: {}", String::from_utf8_lossy(&out.stderr));
        Ok(())
    }

    pub(super) fn filled(&self, text: &str) -> String {
        text.replace("$approval", &self.approval_id).replace("$WORLD", &self.world.display().to_string())
    }

    pub(super) fn start_request(&self) -> anyhow::Result<StartRun> {
        Ok(StartRun {
            definition: self.story.definition.to_owned(),
            input: Some(serde_json::from_str(&self.filled(self.story.input))?),
            subject_ref: Some(self.story.subject.to_owned()),
            ..StartRun::default()
        })
    }

    pub(super) async fn rehearse(&self, client: &Client, actor: &str) -> anyhow::Result<()> {
        let request = StartRun { dry_run: true, ..self.start_request()? };
        show_call(actor, "POST /v1/runs", &request)?;
        let run_id = client.start_run(&request).await?.body.run_id;
        let run = self.look_until(&run_id, "its rehearsal ends", |run| run.ended_at.is_some()).await?;
        ensure!(run.outcome.as_deref() == Some("dry_run"), "the rehearsal ends {} {:?}", run.state, run.outcome);
        for step in &run.steps {
            say(&format!("    {} `{}` is {}", tint(Tint::Good, "→"), step.name, step.state_code))?;
        }
        Ok(())
    }

    pub(super) async fn wait_for_run(&self, state: &str, phase: &str) -> anyhow::Result<()> {
        let what = format!("the run is {state} in phase {phase}");
        let is_there =
            |run: &RunView| run.state == state && run.phase.as_deref() == Some(phase) && run.surveying.is_none();
        let run = self.look_until(&self.theatre.instance_id, &what, is_there).await?;
        let outcome = run.outcome.map_or_else(String::new, |outcome| format!(" ({outcome})"));
        say(&format!("    {} {state}{outcome}, phase {phase}", tint(Tint::Good, "→")))?;
        for found in &run.drift {
            let line = format!("{}  pinned {}  live {}", found.pin, found.pinned, found.live);
            say(&format!("      {}", tint(Tint::Bad, &printable(&line))))?;
        }
        Ok(())
    }

    async fn look_until(&self, run_id: &str, what: &str, holds: impl Fn(&RunView) -> bool) -> anyhow::Result<RunView> {
        let mut seen = String::new();
        for _ in 0..WAIT_MS / POLL_MS {
            let run = self.theatre.admin.run(run_id).await?.body;
            if holds(&run) {
                return Ok(run);
            }
            seen = format!("{}, {:?}, phase {:?}, {:?}", run.state, run.outcome, run.phase, run.last_error);
            tokio::time::sleep(Duration::from_millis(POLL_MS)).await;
        }
        bail!("the story expects that {what}, but it is {seen}")
    }

    /// Approves a gate; the approval is remembered for who spends it.
    pub(super) async fn approve(&mut self, client: &Client, actor: &str, action: &str) -> anyhow::Result<Answered> {
        let run = self.theatre.admin.run(&self.theatre.instance_id).await?.body;
        let gate = run.gates.iter().rev().find(|gate| gate.action == action);
        self.approval_id = gate.with_context(|| format!("there is no gate {action}"))?.step_id.clone();
        let request = DecideGate { decision: Decision::Approve, reason: None, step_id: None, request_digest: None };
        show_call(actor, &format!("POST /v1/runs/{}/gates/{action}/decision", run.run_id), &request)?;
        Ok(client.decide_run_gate(&run.run_id, action, &request).await.map(|answer| answer.json))
    }

    pub(super) async fn control(
        &self,
        client: &Client,
        actor: &str,
        action: &str,
        body: &str,
    ) -> anyhow::Result<Answered> {
        let request: ControlRun = serde_json::from_str(&self.filled(body))?;
        let run_id = &self.theatre.instance_id;
        show_call(actor, &format!("POST /v1/runs/{run_id}/{action}"), &request)?;
        Ok(client.control_run(run_id, action, &request).await.map(|answer| answer.json))
    }
}
