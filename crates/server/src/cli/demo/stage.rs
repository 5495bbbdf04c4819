//! Plays a story: registers the cast, makes the calls, shows each with its answer and its records.

use super::story::{Act, Beat, Expect, Role, Story};
use crate::cli::output::{printable, say};
use crate::cli::table::{Tint, tint};
use crate::cli::{time, view};
use anyhow::{anyhow, bail};
use countersign_client::wire::{
    ActorKind, DecideGate, Decision, FireTransition, GrantScope, InboxQuery, LedgerRecord, OpenGate, Problem,
    RecordQuery, RegisterActor, StartProcess,
};
use countersign_client::{ActorKey, Client, Error, Format, Signing};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;

pub struct Stage<'s> {
    story: &'s Story,
    admin: Client,
    cast: HashMap<&'static str, Client>,
    instance_id: String,
    /// How many records of the process have been shown.
    shown: u64,
    beats: usize,
}

impl<'s> Stage<'s> {
    pub async fn set(url: &str, admin_token: &str, story: &'s Story, data_dir: &Path) -> anyhow::Result<Stage<'s>> {
        let admin = Client::new(url)?.with_token(admin_token)?;
        say(&format!("\n{}", tint(Tint::Strong, story.title)))?;
        say(&format!("{}\n", story.setting))?;
        say(&format!("A server runs at {url} on an SQLite store in {}.", data_dir.display()))?;
        let published = admin.publish_definition(Format::Yaml, story.document.as_bytes()).await?.body;
        say(&format!("Published {}@{} (SHA-256 {}…).", published.name, published.version, &published.digest[..16]))?;
        say(&format!("Records are kept under {}.", tint(Tint::Strong, story.retention)))?;
        say("Everybody has a key of their own and signs; a witness cosigns the log.")?;
        let mut cast = HashMap::new();
        for role in story.cast {
            cast.insert(role.actor, register(url, &admin, role).await?);
        }
        Ok(Stage { story, admin, cast, instance_id: String::new(), shown: 0, beats: 0 })
    }

    pub fn admin(&self) -> &Client {
        &self.admin
    }

    pub fn instance_id(&self) -> &str {
        &self.instance_id
    }

    pub async fn play(&mut self, beat: &Beat) -> anyhow::Result<()> {
        self.beats += 1;
        say(&format!("\n{} {}", tint(Tint::Strong, &format!("{:>2}.", self.beats)), beat.say))?;
        let client = self.cast.get(beat.actor).ok_or_else(|| anyhow!("{} is not in the cast", beat.actor))?.clone();
        let result = self.act(&client, beat).await?;
        match (result, beat.expect) {
            (Ok(answer), Expect::Accepted | Expect::Entries(_)) => {
                say(&format!("    {} {}", tint(Tint::Good, "→"), compact(&answer)))?;
                if let Expect::Entries(expected) = beat.expect
                    && answer["items"].as_array().map(Vec::len) != Some(expected)
                {
                    bail!("the story expects {expected} in the in-tray");
                }
                self.show_new_records().await
            }
            (Err(problem), Expect::Refused(code)) if problem.code == code => {
                let refused = tint(Tint::Bad, &format!("refused {}: {}", problem.status, problem.code));
                say(&format!("    {} {refused}", tint(Tint::Bad, "→")))?;
                say(&format!("      {}", tint(Tint::Dim, &problem.detail)))
            }
            (Ok(answer), Expect::Refused(code)) => {
                bail!("the story expects {code}, but it was accepted: {}", compact(&answer))
            }
            (Err(problem), _) => {
                bail!("the story expects otherwise, but was refused {}: {}", problem.code, problem.detail)
            }
        }
    }

    async fn act(&mut self, client: &Client, beat: &Beat) -> anyhow::Result<Result<Value, Problem>> {
        let at = format!("/v1/processes/{}", self.instance_id);
        let result = match &beat.act {
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
                    self.instance_id.clone_from(&answer.body.instance_id);
                }
                answer.map(|answer| answer.json)
            }
            Act::Fire(action) => {
                let request = FireTransition { action: (*action).to_owned(), reason: None };
                show_call(beat.actor, &format!("POST {at}/transitions"), &request)?;
                client.fire(&self.instance_id, &request).await.map(|answer| answer.json)
            }
            Act::Open(action) => {
                let request = OpenGate { action: (*action).to_owned(), reason: None };
                show_call(beat.actor, &format!("POST {at}/gates"), &request)?;
                client.open_gate(&self.instance_id, &request).await.map(|answer| answer.json)
            }
            Act::Approve(action, reason) => self.decide(client, beat, action, Decision::Approve, reason).await?,
            Act::Reject(action, reason) => self.decide(client, beat, action, Decision::Reject, reason).await?,
            Act::InTray => {
                say(&format!("    {} GET /v1/inbox", tint(Tint::Wait, beat.actor)))?;
                client.inbox(&InboxQuery::default()).await.map(|answer| answer.json)
            }
        };
        match result {
            Ok(answer) => Ok(Ok(answer)),
            Err(Error::Refused(problem)) => Ok(Err(*problem)),
            Err(error) => Err(error.into()),
        }
    }

    async fn decide(
        &self,
        client: &Client,
        beat: &Beat,
        action: &str,
        decision: Decision,
        reason: &str,
    ) -> anyhow::Result<Result<Value, Error>> {
        let request = DecideGate { decision, reason: Some(reason.to_owned()), step_id: None };
        let call = format!("POST /v1/processes/{}/gates/{action}/decision", self.instance_id);
        show_call(beat.actor, &call, &request)?;
        Ok(client.decide_gate(&self.instance_id, action, &request).await.map(|answer| answer.json))
    }

    async fn records(&self) -> anyhow::Result<Vec<LedgerRecord>> {
        let query =
            RecordQuery { instance_id: Some(self.instance_id.clone()), limit: Some(500), ..RecordQuery::default() };
        Ok(self.admin.records(&query).await?.body.items)
    }

    async fn show_new_records(&mut self) -> anyhow::Result<()> {
        let shown = self.shown;
        for record in self.records().await?.into_iter().filter(|record| record.sequence > shown) {
            self.shown = record.sequence;
            say(&format!(
                "    {} record {} {} by {}, {}  {}",
                tint(Tint::Dim, "✎"),
                record.sequence,
                tint(Tint::Strong, &record.action_ref),
                printable(&record.actor_ref),
                if record.assurance == "actor_signed" { "signed" } else { "by token" },
                tint(Tint::Dim, &record.event_id)
            ))?;
        }
        Ok(())
    }

    /// The process as anybody may read it afterwards, and the chain of its records.
    pub async fn curtain(&self) -> anyhow::Result<()> {
        let process = self.admin.process(&self.instance_id).await?.body;
        say(&format!("\n{}\n", view::render(&process, Timestamp::now())))?;
        let records = self.records().await?;
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

/// The records, each of which must name the one before.
pub fn show_chain(records: &[LedgerRecord]) -> anyhow::Result<()> {
    let mut prev = "0".repeat(64);
    say(&tint(Tint::Strong, "Records (each names the hash of the one before)"))?;
    for record in records {
        if record.prev != prev {
            bail!("record {} does not name its predecessor", record.sequence);
        }
        let until = record.retention.retention_until.as_deref().map_or_else(|| "without end".to_owned(), time::at);
        say(&format!(
            "  {:>2}  {:<18} {:<20} {}…  kept until {until}",
            record.sequence,
            record.action_ref,
            printable(&record.actor_ref),
            &record.record_hash[..16],
        ))?;
        prev.clone_from(&record.record_hash);
    }
    Ok(())
}

pub async fn register(url: &str, admin: &Client, role: &Role) -> anyhow::Result<Client> {
    let key = ActorKey::generate()?;
    let request = RegisterActor {
        actor_ref: role.actor.to_owned(),
        kind: ActorKind::Human,
        display_name: None,
        public_key: Some(key.public_key()),
    };
    let token =
        admin.register_actor(&request).await?.body.token.ok_or_else(|| anyhow!("no token for {}", role.actor))?;
    for scope in role.scopes {
        admin.grant(&GrantScope { subject_ref: role.actor.to_owned(), action_scope: (*scope).to_owned() }).await?;
    }
    let scopes = if role.scopes.is_empty() { "no grants".to_owned() } else { role.scopes.join(" ") };
    say(&format!("  {:<20} {:<60} {}", role.actor, role.who, tint(Tint::Dim, &scopes)))?;
    let signing = Signing { actor_ref: role.actor.to_owned(), key, meaning: None, expected_sequence: None };
    Ok(Client::new(url)?.with_token(&token)?.with_signing(signing))
}

pub fn show_call(actor: &str, call: &str, body: &impl Serialize) -> anyhow::Result<()> {
    say(&format!("    {} {} {}", tint(Tint::Wait, actor), call, compact(&serde_json::to_value(body)?)))
}

pub fn compact(value: &Value) -> String {
    printable(&value.to_string())
}
