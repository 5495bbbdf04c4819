//! What every story is played in: a server, those who act on it, and the records that appear as they do.

use super::story::{Beat, Expect, Role};
use crate::cli::output::{printable, say};
use crate::cli::table::{Tint, tint};
use crate::cli::time;
use anyhow::{anyhow, bail};
use countersign_client::wire::{ActorKind, GrantScope, LedgerRecord, RecordQuery, RegisterActor, RegisterKey};
use countersign_client::{ActorKey, Client, Error, Format, Signing};
use serde::Serialize;
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;

pub struct Theatre {
    url: String,
    pub admin: Client,
    cast: HashMap<&'static str, Client>,
    /// The process or the run that the story is about, once it has begun.
    pub instance_id: String,
    /// How many of its records have been shown.
    shown: u64,
    beats: usize,
}

impl Theatre {
    pub async fn open(
        url: &str,
        admin_token: &str,
        data_dir: &Path,
        title: &str,
        setting: &str,
    ) -> anyhow::Result<Theatre> {
        // The server is regulated: the administrator's first key is registered with the token, everything else is signed.
        let (admin, key) = (Client::new(url)?.with_token(admin_token)?, ActorKey::generate()?);
        admin.register_key("admin", &RegisterKey { public_key: key.public_key() }).await?;
        let admin =
            admin.with_signing(Signing { actor_ref: "admin".to_owned(), key, meaning: None, expected_sequence: None });
        say(&format!("\n{}", tint(Tint::Strong, title)))?;
        say(&format!("{setting}\n"))?;
        say(&format!("A server runs at {url} on an SQLite store in {}.", data_dir.display()))?;
        let (url, cast, instance_id) = (url.to_owned(), HashMap::new(), String::new());
        Ok(Theatre { url, admin, cast, instance_id, shown: 0, beats: 0 })
    }

    pub async fn publish(&self, document: &str) -> anyhow::Result<()> {
        let published = self.admin.publish_definition(Format::Yaml, document.as_bytes()).await?.body;
        say(&format!("Published {}@{} (SHA-256 {}…).", published.name, published.version, &published.digest[..16]))
    }

    pub async fn enter(&mut self, cast: &[Role]) -> anyhow::Result<()> {
        say("Everybody has a key of their own and signs; a witness cosigns the log.")?;
        for role in cast {
            let client = self.register(role).await?;
            self.cast.insert(role.actor, client);
        }
        Ok(())
    }

    async fn register(&self, role: &Role) -> anyhow::Result<Client> {
        let key = ActorKey::generate()?;
        let request = RegisterActor {
            actor_ref: role.actor.to_owned(),
            kind: ActorKind::Human,
            display_name: None,
            public_key: Some(key.public_key()),
        };
        let registered = self.admin.register_actor(&request).await?.body;
        let token = registered.token.ok_or_else(|| anyhow!("no token for {}", role.actor))?;
        for scope in role.scopes {
            let request = GrantScope { subject_ref: role.actor.to_owned(), action_scope: (*scope).to_owned() };
            self.admin.grant(&request).await?;
        }
        let scopes = if role.scopes.is_empty() { "no grants".to_owned() } else { role.scopes.join(" ") };
        say(&format!("  {:<20} {:<60} {}", role.actor, role.who, tint(Tint::Dim, &scopes)))?;
        let signing = Signing { actor_ref: role.actor.to_owned(), key, meaning: None, expected_sequence: None };
        Ok(Client::new(&self.url)?.with_token(&token)?.with_signing(signing))
    }

    /// Says what is about to happen, and who does it.
    pub fn announce<A>(&mut self, beat: &Beat<A>) -> anyhow::Result<Client> {
        self.beats += 1;
        say(&format!("\n{} {}", tint(Tint::Strong, &format!("{:>2}.", self.beats)), beat.say))?;
        self.cast.get(beat.actor).cloned().ok_or_else(|| anyhow!("{} is not in the cast", beat.actor))
    }

    /// Shows what came of it, which must be what the story expects; returns what was accepted.
    pub fn answered(result: Result<Value, Error>, expect: Expect) -> anyhow::Result<Option<Value>> {
        match (result, expect) {
            (Ok(answer), Expect::Refused(code)) => {
                bail!("the story expects {code}, but it was accepted: {}", compact(&answer))
            }
            (Ok(answer), Expect::Accepted | Expect::Entries(_)) => {
                say(&format!("    {} {}", tint(Tint::Good, "→"), compact(&answer)))?;
                Ok(Some(answer))
            }
            (Err(Error::Refused(problem)), Expect::Refused(code)) if problem.code == code => {
                let refused = tint(Tint::Bad, &format!("refused {}: {}", problem.status, problem.code));
                say(&format!("    {} {refused}", tint(Tint::Bad, "→")))?;
                say(&format!("      {}", tint(Tint::Dim, &problem.detail)))?;
                Ok(None)
            }
            (Err(Error::Refused(problem)), _) => {
                bail!("the story expects otherwise, but was refused {}: {}", problem.code, problem.detail)
            }
            (Err(error), _) => Err(error.into()),
        }
    }

    pub async fn records(&self) -> anyhow::Result<Vec<LedgerRecord>> {
        let instance_id = Some(self.instance_id.clone());
        let query = RecordQuery { instance_id, limit: Some(500), ..RecordQuery::default() };
        Ok(self.admin.records(&query).await?.body.items)
    }

    pub async fn show_new_records(&mut self) -> anyhow::Result<()> {
        let shown = self.shown;
        for record in self.records().await?.into_iter().filter(|record| record.sequence > shown) {
            self.shown = record.sequence;
            say(&format!(
                "    {} record {} {} by {}, {}  {}",
                tint(Tint::Dim, "✎"),
                record.sequence,
                tint(Tint::Strong, &record.action_ref),
                printable(&record.actor_ref),
                if record.assurance == "actor_signed" { "signed" } else { "attested by the server" },
                tint(Tint::Dim, &record.event_id)
            ))?;
        }
        Ok(())
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

pub fn show_call(actor: &str, call: &str, body: &impl Serialize) -> anyhow::Result<()> {
    say(&format!("    {} {} {}", tint(Tint::Wait, actor), call, compact(&serde_json::to_value(body)?)))
}

fn compact(value: &Value) -> String {
    printable(&value.to_string())
}
