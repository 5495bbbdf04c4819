//! Plays the story of a process: makes the calls, shows each with its answer and its records.

use super::story::{Act, Beat, Expect, Story};
use super::theatre::{Theatre, show_call, show_chain};
use crate::cli::output::say;
use crate::cli::table::{Tint, tint};
use crate::cli::view;
use anyhow::{bail, ensure};
use countersign_client::wire::{DecideGate, Decision, FireTransition, InboxQuery, OpenGate, StartProcess};
use countersign_client::{Client, Error};
use jiff::Timestamp;
use serde_json::Value;

pub struct Stage<'s> {
    story: &'s Story,
    pub theatre: Theatre,
}

impl<'s> Stage<'s> {
    pub async fn set(mut theatre: Theatre, story: &'s Story) -> anyhow::Result<Stage<'s>> {
        theatre.publish(story.document).await?;
        say(&format!("Records are kept under {}.", tint(Tint::Strong, story.retention)))?;
        theatre.enter(story.cast).await?;
        Ok(Stage { story, theatre })
    }

    pub async fn play(&mut self, beat: &Beat<Act>) -> anyhow::Result<()> {
        let client = self.theatre.announce(beat)?;
        let result = self.act(&client, beat).await?;
        let Some(answer) = Theatre::answered(result, beat.expect)? else { return Ok(()) };
        if let Expect::Entries(expected) = beat.expect {
            let entries = answer["items"].as_array().map(Vec::len);
            ensure!(entries == Some(expected), "the story expects {expected} in the in-tray");
        }
        self.theatre.show_new_records().await
    }

    async fn act(&mut self, client: &Client, beat: &Beat<Act>) -> anyhow::Result<Result<Value, Error>> {
        let id = self.theatre.instance_id.clone();
        let at = format!("/v1/processes/{id}");
        Ok(match &beat.act {
            Act::Start => {
                let request = StartProcess {
                    definition: Some(self.story.definition.to_owned()),
                    declaration: None,
                    subject_ref: self.story.subject.to_owned(),
                    gate_spec: None,
                    reason: None,
                };
                show_call(beat.actor, "POST /v1/processes", &request)?;
                let answer = client.start(&request).await;
                if let Ok(answer) = &answer {
                    self.theatre.instance_id.clone_from(&answer.body.instance_id);
                }
                answer.map(|answer| answer.json)
            }
            Act::Fire(action) => {
                let request = FireTransition { action: (*action).to_owned(), reason: None };
                show_call(beat.actor, &format!("POST {at}/transitions"), &request)?;
                client.fire(&id, &request).await.map(|answer| answer.json)
            }
            Act::Open(action) => {
                let request = OpenGate { action: (*action).to_owned(), reason: None, request: None };
                show_call(beat.actor, &format!("POST {at}/gates"), &request)?;
                client.open_gate(&id, &request).await.map(|answer| answer.json)
            }
            Act::Approve(action, reason) => self.decide(client, beat, action, Decision::Approve, reason).await?,
            Act::Reject(action, reason) => self.decide(client, beat, action, Decision::Reject, reason).await?,
            Act::InTray => {
                say(&format!("    {} GET /v1/inbox", tint(Tint::Wait, beat.actor)))?;
                client.inbox(&InboxQuery::default()).await.map(|answer| answer.json)
            }
        })
    }

    async fn decide(
        &self,
        client: &Client,
        beat: &Beat<Act>,
        action: &str,
        decision: Decision,
        reason: &str,
    ) -> anyhow::Result<Result<Value, Error>> {
        let request = DecideGate { decision, reason: Some(reason.to_owned()), step_id: None, request_digest: None };
        let id = &self.theatre.instance_id;
        let call = format!("POST /v1/processes/{id}/gates/{action}/decision");
        show_call(beat.actor, &call, &request)?;
        Ok(client.decide_gate(id, action, &request).await.map(|answer| answer.json))
    }

    /// The process as anybody may read it afterwards, and the chain of its records.
    pub async fn curtain(&self) -> anyhow::Result<()> {
        let process = self.theatre.admin.process(&self.theatre.instance_id).await?.body;
        say(&format!("\n{}\n", view::render(&process, Timestamp::now())))?;
        let records = self.theatre.records().await?;
        show_chain(&records)?;
        for entry in &process.transition_history {
            let fired =
                records.iter().filter(|r| r.action_ref == "transition_fired" && r.event_id == entry.event_id).count();
            if fired != 1 {
                bail!("transition {} has {fired} records", entry.sequence_number);
            }
        }
        say(&format!(
            "\n{} {} ended in {}: {} transitions, {} records, every transition with its record.",
            tint(Tint::Good, "✓"),
            self.story.subject,
            tint(Tint::Strong, &process.current_state),
            process.transition_history.len(),
            records.len()
        ))
    }
}
