//! Steady work by clients that count their results. Every call has its own tag (its reason, and its idempotency key).
//! The tag ends up in exactly one record if the call took effect. So the ledger itself shows at the end whether
//! acknowledged calls are there and refused calls are not.

use super::Rng;
use anyhow::{bail, ensure};
use async_trait::async_trait;
use countersign_engine::port::{Page, RecordQuery};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

/// The process that clients drive round and round: `draft` → (signed) → `signed` → back.
pub const SIGN: &str = "sign";
pub const BACK: &str = "back";
pub const CLERK: &str = "clerk";
pub const APPROVER: &str = "approver";

/// What a call came to, as far as its caller knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    Yes,
    /// Refused: it must have left nothing.
    No(String),
    /// There was nobody to ask; it must have left nothing either.
    Unsent,
    /// No answer, or one that does not say: it has happened wholly, or not at all.
    Unknown(String),
}

/// The state of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stand {
    /// In `draft`, and no gate is open.
    Draft,
    Waiting,
    Cleared,
    Signed,
}

/// Some way to reach a server or an engine.
#[async_trait]
pub trait Caller: Send + Sync {
    /// The instance, if it is known to have been started.
    async fn start(&self, tag: &str) -> (Said, Option<String>);
    async fn open(&self, instance_id: &str, tag: &str) -> Said;
    async fn approve(&self, instance_id: &str, tag: &str) -> Said;
    async fn fire(&self, instance_id: &str, action: &str, tag: &str) -> Said;
    /// `None` while no server answers.
    async fn stand(&self, instance_id: &str) -> anyhow::Result<Option<Stand>>;
    /// After a call that was not answered: returns when it makes sense to go on, `false` when it never will.
    async fn recover(&self) -> bool;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Acknowledged,
    Refused,
    Unknown,
}

/// All answers to clients.
#[derive(Default)]
pub struct Witness {
    told: Mutex<HashMap<String, Known>>,
    codes: Mutex<BTreeMap<String, usize>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    pub acknowledged: usize,
    pub refused: usize,
    /// Not answered: those that are there, and those that are not.
    pub unknown_there: usize,
    pub unknown_absent: usize,
}

impl Witness {
    /// What was told last counts, but for a repetition that reached nobody.
    pub fn note(&self, tag: &str, said: &Said) {
        let (known, code) = match said {
            Said::Yes => (Known::Acknowledged, None),
            Said::No(code) => (Known::Refused, Some(code)),
            Said::Unsent => (Known::Refused, None),
            Said::Unknown(code) => (Known::Unknown, Some(code)),
        };
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if *said == Said::Unsent && told.contains_key(tag) {
            return;
        }
        told.insert(tag.to_owned(), known);
        drop(told);
        if let Some(code) = code {
            *self.codes.lock().unwrap_or_else(PoisonError::into_inner).entry(code.clone()).or_default() += 1;
        }
    }

    /// How often calls were refused or lost, by cause.
    pub fn causes(&self) -> BTreeMap<String, usize> {
        self.codes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn acknowledged(&self) -> usize {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.values().filter(|known| **known == Known::Acknowledged).count()
    }

    /// Compares with what the store holds.
    pub async fn check(&self, url: &str) -> anyhow::Result<Account> {
        let stored = stored_tags(url).await?;
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let mut account = Account::default();
        for (tag, known) in told.iter() {
            let there = stored.get(tag).copied().unwrap_or(0);
            ensure!(there <= 1, "{tag} took effect {there} times");
            match (known, there) {
                (Known::Acknowledged, 1) => account.acknowledged += 1,
                (Known::Acknowledged, _) => bail!("{tag} was acknowledged and is lost"),
                (Known::Refused, 0) => account.refused += 1,
                (Known::Refused, _) => bail!("{tag} was refused and took effect"),
                (Known::Unknown, 1) => account.unknown_there += 1,
                (Known::Unknown, _) => account.unknown_absent += 1,
            }
        }
        if let Some(tag) = stored.keys().find(|tag| !told.contains_key(*tag)) {
            bail!("{tag} is recorded, and nobody asked for it");
        }
        Ok(account)
    }
}

/// How often each tag took effect. A gate's decision is told twice in a quorum; its own record counts.
async fn stored_tags(url: &str) -> anyhow::Result<HashMap<String, usize>> {
    let (_, reader) = countersign_store::open(url).await?.into_parts();
    let mut tags = HashMap::new();
    for action_ref in ["workflow_started", "gate_opened", "gate_decided", "transition_fired"] {
        let query = RecordQuery { action_ref: Some(action_ref.to_owned()), ..RecordQuery::default() };
        let mut page = Page { after: None, limit: 500, descending: false };
        loop {
            let rows = reader.records(&query, &page).await?;
            for row in &rows {
                let payload: Value = serde_json::from_slice(row.record.payload().unwrap_or(b"null"))?;
                if let Some(tag) = payload.get("reason").and_then(Value::as_str) {
                    *tags.entry(tag.to_owned()).or_default() += 1;
                }
            }
            page.after = rows.last().map(|row| row.event_id.0);
            if rows.len() < page.limit {
                break;
            }
        }
    }
    Ok(tags)
}

/// One client: starts processes and drives each round a few times, until `over`.
pub async fn work(
    caller: &dyn Caller,
    name: &str,
    seed: u64,
    witness: &Witness,
    over: impl Fn() -> bool,
) -> anyhow::Result<()> {
    let mut client = Client { caller, name, witness, calls: 0, rng: Rng::new(seed) };
    while !over() {
        let tag = client.tag();
        let (said, instance_id) = client.start(&tag).await;
        if matches!(said, Said::Unknown(_) | Said::Unsent) && !caller.recover().await {
            return Ok(());
        }
        let Some(instance_id) = instance_id else { continue };
        let mut rounds = 4 + client.rng.below(40);
        while rounds > 0 && !over() {
            rounds -= 1;
            if !client.move_on(&instance_id).await? {
                return Ok(());
            }
        }
    }
    Ok(())
}

struct Client<'a> {
    caller: &'a dyn Caller,
    name: &'a str,
    witness: &'a Witness,
    calls: usize,
    rng: Rng,
}

impl Client<'_> {
    fn tag(&mut self) -> String {
        self.calls += 1;
        format!("{}-{}", self.name, self.calls)
    }

    async fn start(&mut self, tag: &str) -> (Said, Option<String>) {
        let (said, instance_id) = self.caller.start(tag).await;
        self.witness.note(tag, &said);
        (said, instance_id)
    }

    /// The next step of a process, wherever it stands. `false` when nobody will ever answer again.
    async fn move_on(&mut self, instance_id: &str) -> anyhow::Result<bool> {
        let Some(stand) = self.caller.stand(instance_id).await? else {
            return Ok(self.caller.recover().await);
        };
        let tag = self.tag();
        let mut said = self.step(instance_id, &stand, &tag).await;
        self.witness.note(&tag, &said);
        while matches!(said, Said::Unknown(_) | Said::Unsent) {
            if !self.caller.recover().await {
                return Ok(false);
            }
            if said == Said::Unsent || self.rng.percent(50) {
                break;
            }
            // The same request under the same key: if it took effect, this is its answer.
            said = self.step(instance_id, &stand, &tag).await;
            self.witness.note(&tag, &said);
        }
        Ok(true)
    }

    async fn step(&self, instance_id: &str, stand: &Stand, tag: &str) -> Said {
        match stand {
            Stand::Draft => self.caller.open(instance_id, tag).await,
            Stand::Waiting => self.caller.approve(instance_id, tag).await,
            Stand::Cleared => self.caller.fire(instance_id, SIGN, tag).await,
            Stand::Signed => self.caller.fire(instance_id, BACK, tag).await,
        }
    }
}
