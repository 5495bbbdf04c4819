//! What the reads of an adversary (`prove-path`, `dispute`, `investigate`) share: records with how they verify, and the
//! grants that the registry's own records tell of, so that who may read the ledger needs no further right to judge it.
//! [`process`] puts one process together from them, [`gates`] only its gates.
//!
//! Everything here serialises as it stands in the commands' `--json`; `docs/guides` describes those shapes.

pub mod gates;
pub mod process;
pub mod run;
pub mod scopes;

use crate::cli::output::printable;
use crate::cli::table::{Tint, tint};
use crate::cli::time::when;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use countersign_client::wire::{LedgerRecord, RecordQuery, VerificationResult, VerifyRecord};
use countersign_client::{Client, Error};
use jiff::Timestamp;
use scopes::{Kind, Needed, needed};
use serde::Serialize;
use serde_json::Value;
use std::collections::HashMap;
use tokio::task::JoinSet;

/// The instance that actors, grants and definitions are recorded in.
pub const REGISTRY: &str = "00000000-0000-0000-0000-000000000000";
/// Verifications under way at once.
const AT_ONCE: usize = 16;
/// The server gives no more than this at once.
const LARGEST_PAGE: u32 = 500;

/// How a record verifies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "result", content = "code", rename_all = "kebab-case")]
pub enum Check {
    /// Attested, unchanged, and under a signed checkpoint.
    Verified,
    /// Attested and unchanged; no checkpoint covers it yet.
    Unsealed,
    /// Its content was destroyed.
    Purged,
    /// The code of `POST /v1/ledger/verify`.
    FailedVerification(String),
}

impl Check {
    pub fn failed(&self) -> Option<&str> {
        match self {
            Check::FailedVerification(code) => Some(code),
            Check::Verified | Check::Unsealed | Check::Purged => None,
        }
    }

    /// `✓ verified`, with its colour.
    pub fn shown(&self) -> String {
        match self {
            Check::Verified => tint(Tint::Good, "✓ verified"),
            Check::Unsealed => tint(Tint::Wait, "· not sealed yet"),
            Check::Purged => tint(Tint::Dim, "· purged"),
            Check::FailedVerification(code) => tint(Tint::Bad, &format!("✗ {code}")),
        }
    }
}

pub fn mark(good: bool) -> String {
    if good { tint(Tint::Good, "✓") } else { tint(Tint::Bad, "✗") }
}

/// `1 gate`, `2 gates`
pub fn counted(count: u64, name: &str) -> String {
    format!("{count} {name}{}", if count == 1 { "" } else { "s" })
}

/// A record, how its actor was known, and how it verifies.
pub struct Entry {
    pub record: LedgerRecord,
    attestation: Value,
    pub check: Check,
}

impl Entry {
    fn new(record: LedgerRecord, json: &Value) -> Entry {
        let attestation = json.get("attestation").cloned().unwrap_or_default();
        Entry { record, attestation, check: Check::FailedVerification("not-checked".to_owned()) }
    }

    pub fn is(&self, action_ref: &str) -> bool {
        self.record.action_ref == action_ref
    }

    /// A member of the payload.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.record.payload.get(name).and_then(Value::as_str)
    }

    /// The gate that it speaks of: its chain, or its one step.
    pub fn gate_id(&self) -> Option<&str> {
        self.text("chain_id").or_else(|| self.text("step_id"))
    }

    /// The approver whose decision this is: the actor, or the one in whose place they decided. Whether the delegation allows it
    /// is checked with the log.
    pub fn approver(&self) -> &str {
        self.text("on_behalf_of").unwrap_or(&self.record.actor_ref)
    }

    /// ` for qp`, where a substitute decided.
    pub fn in_place_of(&self) -> String {
        self.text("on_behalf_of").map_or_else(String::new, |approver| format!(" for {approver}"))
    }

    /// What the signature was said to mean, where the record is signed.
    pub fn meaning(&self) -> Option<String> {
        let statement = BASE64_STANDARD.decode(self.attestation.get("statement")?.as_str()?).ok()?;
        let statement: Value = serde_json::from_slice(&statement).ok()?;
        statement.get("meaning")?.as_str().map(str::to_owned)
    }

    /// The key or the token that the actor was known by.
    pub fn credential(&self) -> Option<String> {
        let named = |member: &str| self.attestation.get(member).and_then(Value::as_str);
        let key = named("key_id").map(|id| format!("key {id}"));
        key.or_else(|| named("credential_id").map(|id| format!("token {id}")))
    }

    pub fn evidence(&self) -> Evidence {
        let record = &self.record;
        Evidence {
            event_id: record.event_id.clone(),
            action_ref: record.action_ref.clone(),
            actor_ref: record.actor_ref.clone(),
            recorded_at: record.recorded_at.clone(),
            sequence: record.sequence,
            log_index: record.log_index,
            assurance: record.assurance.clone(),
            credential: self.credential(),
            verification: self.check.clone(),
        }
    }
}

/// A record as the reports name it.
#[derive(Clone, Debug, Serialize)]
pub struct Evidence {
    pub event_id: String,
    pub action_ref: String,
    pub actor_ref: String,
    pub recorded_at: String,
    /// Its place in its instance.
    pub sequence: u64,
    /// Its place in the log; null until it is sealed.
    pub log_index: Option<u64>,
    pub assurance: String,
    /// `key …` or `token …`: what the actor was known by.
    pub credential: Option<String>,
    pub verification: Check,
}

impl Evidence {
    /// `record 5, log 31, ✓ verified`
    pub fn shown(&self) -> String {
        let index = self.log_index.map_or_else(|| "not in the log".to_owned(), |index| format!("log entry {index}"));
        format!("record {}, {index}, {}  {}", self.sequence, self.verification.shown(), printable(&self.event_id))
    }
}

/// Something that is not as it should be. The codes are those of `spec/bundle.md`, section 3, and those of
/// `POST /v1/ledger/verify`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub code: String,
    pub event_id: Option<String>,
    pub detail: String,
}

impl Finding {
    pub fn new(code: &str, event_id: Option<&str>, detail: impl Into<String>) -> Finding {
        Finding { code: code.to_owned(), event_id: event_id.map(str::to_owned), detail: detail.into() }
    }

    pub fn shown(&self) -> String {
        let record = self.event_id.as_ref().map_or_else(String::new, |id| format!("  {}", printable(id)));
        format!("{} {}{record}", tint(Tint::Bad, &format!("✗ {}:", self.code)), printable(&self.detail))
    }
}

/// What is wrong with each of these records by itself.
pub fn seal_findings(entries: &[Entry]) -> Vec<Finding> {
    let mut found = Vec::new();
    for entry in entries {
        let what = format!("record {}, {}", entry.record.sequence, entry.record.action_ref);
        let (code, detail) = match &entry.check {
            Check::Verified => continue,
            Check::Unsealed => ("unsealed", format!("{what} is under no checkpoint yet: countersign audit seal")),
            Check::Purged => (process::PURGED, format!("the content of {what} was destroyed")),
            Check::FailedVerification(code) => (code.as_str(), format!("{what} does not verify")),
        };
        found.push(Finding::new(code, Some(&entry.record.event_id), detail));
    }
    found
}

/// Records, page after page.
pub struct Pager<'c> {
    client: &'c Client,
    query: RecordQuery,
    limit: u32,
    ended: bool,
}

impl<'c> Pager<'c> {
    pub fn new(client: &'c Client, query: RecordQuery) -> Self {
        Pager { client, query, limit: LARGEST_PAGE, ended: false }
    }

    /// The next records; none at the end. A record that the server cannot even read fails its whole page: then pages
    /// become smaller until only that record is left out, and reading ends there.
    pub async fn next(&mut self) -> Result<Vec<Entry>, Error> {
        while !self.ended {
            let asked = RecordQuery { limit: Some(self.limit), ..self.query.clone() };
            let page = match self.client.records(&asked).await {
                Err(Error::Refused(problem)) if problem.status >= 500 && self.limit > 1 => {
                    self.limit /= 2;
                    continue;
                }
                Err(error) => {
                    self.ended = true;
                    return Err(error);
                }
                Ok(page) => page,
            };
            self.ended = page.body.next.is_none() || page.body.next == self.query.cursor;
            self.query.cursor = page.body.next;
            let raw = page.json.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
            if !page.body.items.is_empty() {
                return Ok(page
                    .body
                    .items
                    .into_iter()
                    .zip(&raw)
                    .map(|(record, json)| Entry::new(record, json))
                    .collect());
            }
        }
        Ok(Vec::new())
    }
}

/// Every record of an instance, in order, each verified.
pub async fn entries_of(client: &Client, instance_id: &str) -> Result<Vec<Entry>, Error> {
    let query = RecordQuery { instance_id: Some(instance_id.to_owned()), ..RecordQuery::default() };
    let (mut pager, mut entries) = (Pager::new(client, query), Vec::new());
    loop {
        let page = pager.next().await?;
        if page.is_empty() {
            return Ok(entries);
        }
        entries.extend(verified(client, page).await?);
    }
}

/// Verifies these records, several at a time.
pub async fn verified(client: &Client, mut entries: Vec<Entry>) -> Result<Vec<Entry>, Error> {
    let (mut running, mut next) = (JoinSet::new(), 0);
    loop {
        while running.len() < AT_ONCE
            && let Some(entry) = entries.get(next)
        {
            let (client, record, at) = (client.clone(), entry.record.clone(), next);
            running.spawn(async move { (at, check(&client, &record).await) });
            next += 1;
        }
        let Some(joined) = running.join_next().await else { return Ok(entries) };
        let Ok((at, check)) = joined else { continue };
        if let Some(entry) = entries.get_mut(at) {
            entry.check = check?;
        }
    }
}

async fn check(client: &Client, record: &LedgerRecord) -> Result<Check, Error> {
    let mut request =
        VerifyRecord { event_id: record.event_id.clone(), payload: record.payload.clone(), lenient: None };
    let mut answer = client.verify_record(&request).await?.body;
    let unsealed = answer.code.as_deref() == Some("unsealed");
    if unsealed {
        request.lenient = Some(true);
        answer = client.verify_record(&request).await?.body;
    }
    Ok(match (answer.result, answer.code) {
        (VerificationResult::Verified, _) if unsealed => Check::Unsealed,
        (VerificationResult::Verified, _) => Check::Verified,
        (VerificationResult::FailedVerification, Some(code)) if code == "purged" => Check::Purged,
        (VerificationResult::FailedVerification, code) => Check::FailedVerification(code.unwrap_or_default()),
    })
}

/// Whether the actor of a record was allowed to do it, by the registry that it was decided under.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "status", rename_all = "kebab-case")]
pub enum Permission {
    NotNeeded { why: &'static str },
    Held(Held),
    Missing { scope: &'static str },
}

/// The grant that covered an action.
#[derive(Clone, Debug, Serialize)]
pub struct Held {
    pub scope: String,
    pub grant_id: String,
    pub granted_at: String,
    pub granted_by: String,
    pub revoked_at: Option<String>,
    pub revoked_by: Option<String>,
    /// Whether it was in force by the clock too (`granted_at` ≤ t < `revoked_at`); the order of the records decides.
    pub in_force_at_the_time: bool,
    /// The event_id of its `grant_made`, and how that verifies.
    pub event_id: String,
    pub verification: Check,
}

impl Permission {
    pub fn is_missing(&self) -> bool {
        matches!(self, Permission::Missing { .. })
    }

    /// For a sentence: `held workflows:fire: grant …`.
    pub fn shown(&self, now: Timestamp) -> String {
        match self {
            Permission::NotNeeded { why } => tint(Tint::Dim, &format!("no grant needed: {why}")),
            Permission::Missing { scope } => tint(Tint::Bad, &format!("no active grant of {scope}")),
            Permission::Held(held) => {
                let revoked = held.revoked_at.as_ref().map_or_else(String::new, |at| {
                    format!(", {} {}", tint(Tint::Wait, "revoked since:"), when(at, now))
                });
                let skew = if held.in_force_at_the_time { "" } else { " (by the order of records; the clocks differ)" };
                let verifies = held
                    .verification
                    .failed()
                    .map_or_else(String::new, |_| format!(", its record: {}", held.verification.shown()));
                let since = when(&held.granted_at, now);
                format!(
                    "{} by grant {} of {since}{revoked}{skew}{verifies}",
                    printable(&held.scope),
                    printable(&held.grant_id)
                )
            }
        }
    }
}

/// A registry record that began or ended a grant.
#[derive(Clone, Debug)]
struct Moment {
    sequence: u64,
    at: String,
    by: String,
    event_id: String,
}

struct Grant {
    grant_id: String,
    scope: String,
    granted: Moment,
    revoked: Option<Moment>,
}

/// The grants of every actor, as the registry's records tell them.
#[derive(Default)]
pub struct Registry {
    grants: HashMap<String, Vec<Grant>>,
    application: Option<String>,
    /// Of each actor: key, registry record that registered it, and that which revoked it.
    keys: HashMap<String, Vec<(String, u64, Option<u64>)>>,
    /// Up to this record of the registry, recorded at this time.
    through: u64,
    read_to: Option<String>,
    checks: HashMap<String, Check>,
}

impl Registry {
    /// Reads on from where it ended.
    async fn read_on(&mut self, client: &Client) -> Result<(), Error> {
        let query = RecordQuery {
            instance_id: Some(REGISTRY.to_owned()),
            after: self.read_to.clone(),
            ..RecordQuery::default()
        };
        let mut pager = Pager::new(client, query);
        loop {
            let page = pager.next().await?;
            if page.is_empty() {
                return Ok(());
            }
            let through = self.through;
            page.iter().filter(|entry| entry.record.sequence > through).for_each(|entry| self.note(entry));
            if let Some(last) = page.last() {
                self.through = self.through.max(last.record.sequence);
                self.read_to = Some(last.record.recorded_at.clone());
            }
        }
    }

    fn note(&mut self, entry: &Entry) {
        let record = &entry.record;
        let text = |name: &str| entry.text(name).unwrap_or_default().to_owned();
        let moment = Moment {
            sequence: record.sequence,
            at: record.recorded_at.clone(),
            by: record.actor_ref.clone(),
            event_id: record.event_id.clone(),
        };
        let grants = self.grants.entry(text("subject_ref"));
        match record.action_ref.as_str() {
            "grant_made" => grants.or_default().push(Grant {
                grant_id: text("grant_id"),
                scope: text("action_scope"),
                granted: moment,
                revoked: None,
            }),
            "grant_revoked" => {
                let grant_id = text("grant_id");
                let grant = grants.or_default().iter_mut().find(|grant| grant.grant_id == grant_id);
                if let Some(grant) = grant.filter(|grant| grant.revoked.is_none()) {
                    grant.revoked = Some(moment);
                }
            }
            "key_registered" => {
                self.keys.entry(text("actor_ref")).or_default().push((text("key_id"), record.sequence, None));
            }
            "key_revoked" => {
                let (keys, key_id) = (self.keys.entry(text("actor_ref")).or_default(), text("key_id"));
                keys.iter_mut().filter(|(id, ..)| *id == key_id).for_each(|(.., until)| *until = Some(record.sequence));
            }
            "configuration_recorded" => self.application = Some(text("application_actor_ref")),
            _ => {}
        }
    }

    /// Whether the record's actor was allowed to do it. `definition` is the name of the definition of what the record is of.
    pub async fn permission(
        &mut self,
        client: &Client,
        entry: &Entry,
        kind: Kind,
        definition: Option<&str>,
    ) -> Result<Permission, Error> {
        let record = &entry.record;
        if self.through == 0 || record.registry_seq > self.through {
            self.read_on(client).await?;
        }
        let Needed { scope, instead, by_definition } = match self.needed(entry, kind) {
            Err(why) => return Ok(Permission::NotNeeded { why }),
            Ok(needed) => needed,
        };
        // A pause or its end is a record of the registry, about the definition that it names.
        let own = entry.text("name").filter(|_| record.action_ref.starts_with("schedule_"));
        let definition = own.or(definition);
        let covers = |held: &str, scope: &str| {
            let finer = || held.strip_prefix(scope).and_then(|rest| rest.strip_prefix(':'));
            held == scope || (by_definition && definition.is_some() && finer() == definition)
        };
        let fits = |grant: &&Grant| {
            [Some(scope), instead].into_iter().flatten().any(|scope| covers(&grant.scope, scope))
                && grant.granted.sequence <= record.registry_seq
                && grant.revoked.as_ref().is_none_or(|revoked| record.registry_seq < revoked.sequence)
        };
        let Some(grant) = self.grants.get(&record.actor_ref).and_then(|grants| grants.iter().find(fits)) else {
            return Ok(Permission::Missing { scope });
        };
        let at = record.recorded_at.as_str();
        let mut held = Held {
            scope: grant.scope.clone(),
            grant_id: grant.grant_id.clone(),
            granted_at: grant.granted.at.clone(),
            granted_by: grant.granted.by.clone(),
            revoked_at: grant.revoked.as_ref().map(|revoked| revoked.at.clone()),
            revoked_by: grant.revoked.as_ref().map(|revoked| revoked.by.clone()),
            in_force_at_the_time: grant.granted.at.as_str() <= at
                && grant.revoked.as_ref().is_none_or(|revoked| at < revoked.at.as_str()),
            event_id: grant.granted.event_id.clone(),
            verification: Check::Verified,
        };
        held.verification = self.check(client, &held.event_id).await?;
        Ok(Permission::Held(held))
    }

    async fn check(&mut self, client: &Client, event_id: &str) -> Result<Check, Error> {
        if let Some(known) = self.checks.get(event_id) {
            return Ok(known.clone());
        }
        let found = check(client, &client.record(event_id).await?.body).await?;
        self.checks.insert(event_id.to_owned(), found.clone());
        Ok(found)
    }

    /// An actor who has no key may register a passkey: there is nothing to sign with.
    fn is_first_passkey(&self, entry: &Entry) -> bool {
        let (record, at) = (&entry.record, entry.record.registry_seq);
        let mut keys = self.keys.get(&record.actor_ref).into_iter().flatten();
        record.payload.get("passkey").is_some_and(|passkey| !passkey.is_null())
            && entry.text("actor_ref") == Some(&record.actor_ref)
            && !keys.any(|(_, from, until)| *from <= at && until.is_none_or(|until| at < until))
    }

    /// The scope that a record needs, or why it needs none: [`needed`], but for keys and the first start.
    fn needed(&self, entry: &Entry, kind: Kind) -> Result<Needed, &'static str> {
        let record = &entry.record;
        let application = self.application.as_ref() == Some(&record.actor_ref);
        let own = entry.text("actor_ref") == Some(&record.actor_ref) && record.assurance != "server_attested";
        match record.action_ref.as_str() {
            "key_registered" | "key_revoked" if own => return Err("one's own key, signed with one's own key"),
            "key_registered" if self.is_first_passkey(entry) => return Err("a passkey as one's own first key"),
            "key_registered" if application => return Err("the software's own key"),
            _ => {}
        }
        let class = record.payload.get("own_transition").and_then(|own| own.get("actor_class")).and_then(Value::as_str);
        let needed = needed(&record.action_ref, kind, application, class)?;
        match record.registry_seq {
            0 if application && record.instance_id == REGISTRY => Err("the first start of the server"),
            _ => Ok(needed),
        }
    }
}
