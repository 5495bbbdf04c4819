//! The registry as its records tell it: actors with their keys and credentials, grants, definitions, configuration.
//! Everything is kept with the sequence that began and the sequence that ended it, so that "at `registry_seq`" has an
//! answer for ever.

use crate::bytes::{Digest, Id, hex, sha256};
use crate::finding::{APPLICATION_KEY_ADDED, Code, Findings, SERVER_KEY_ADDED};
use crate::json::Value;
use crate::process::document::{PublishedGate, published_gate};
use crate::record::{Action, Header, Record};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// From which registry record on, and until which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub from: u64,
    pub until: Option<u64>,
}

impl Span {
    fn since(from: u64) -> Self {
        Span { from, until: None }
    }

    pub fn began(&self, at: u64) -> bool {
        self.from <= at
    }

    pub fn ended(&self, at: u64) -> bool {
        self.until.is_some_and(|until| until <= at)
    }

    pub fn holds(&self, at: u64) -> bool {
        self.began(at) && !self.ended(at)
    }
}

#[derive(Clone, Debug)]
pub struct Actor {
    pub registered: u64,
    pub registered_at_us: i64,
    pub kind: String,
    pub display_name: Option<String>,
    pub keys: Vec<Key>,
    credentials: Vec<(String, Span)>,
    /// Keys and credentials that another actor added after the registration: id, who, and by which record.
    added: Vec<(String, String, u64)>,
}

#[derive(Clone, Debug)]
pub struct Key {
    pub key_id: String,
    /// 32 bytes of Ed25519; 65, an uncompressed point of P-256, for a passkey of ES256.
    pub public_key: Vec<u8>,
    pub passkey: Option<Passkey>,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub struct Passkey {
    pub algorithm: String,
    pub rp_id: String,
    pub origin: String,
}

#[derive(Clone, Debug)]
pub struct Grant {
    pub subject_ref: String,
    pub action_scope: String,
    pub span: Span,
    pub granted_at_us: i64,
    pub revoked_at_us: Option<i64>,
}

/// A substitute whom an approver named.
#[derive(Clone, Debug)]
pub struct Delegation {
    pub delegator_ref: String,
    pub delegate_ref: String,
    pub scope: String,
    from_us: i64,
    until_us: i64,
    pub span: Span,
}

impl Delegation {
    /// Whether its period holds this time.
    pub fn covers(&self, at_us: i64) -> bool {
        self.from_us <= at_us && at_us < self.until_us
    }
}

#[derive(Clone, Debug)]
pub struct Definition {
    pub published: u64,
    pub declaration_digest: Digest,
    pub gate_spec_digest: Digest,
    /// Of a workflow or a machine.
    pub document_digest: Option<Digest>,
    /// Of the document as it was published.
    pub digest: Digest,
    /// Who approves the next version.
    publish: Option<PublishedGate>,
    /// The proposal that it was published from, and the gate of its approval.
    pub merged: Option<(Id, Id)>,
    pub by: Rc<str>,
    pub at_us: i64,
    version: i64,
    /// The record that retired it.
    retired: Option<u64>,
}

impl Definition {
    /// The record by which it was retired then.
    pub fn retired_by(&self, at: u64) -> Option<u64> {
        self.retired.filter(|sequence| *sequence <= at)
    }
}

#[derive(Clone, Debug)]
pub struct Configuration {
    sequence: u64,
    pub regulated: bool,
    pub signatures: Option<Signatures>,
    pub application_actor_ref: String,
    pub server_actor_ref: String,
}

/// Whose acts must be signed, besides decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signatures {
    /// Services may use tokens.
    People,
    All,
}

#[derive(Debug, Default)]
pub struct Registry {
    /// The last registry record seen.
    pub sequence: u64,
    /// Where each of its records stands in the log: sequence 1 first.
    places: Vec<u64>,
    actors: BTreeMap<String, Actor>,
    grants: HashMap<String, Grant>,
    grants_of: HashMap<(String, String), Vec<String>>,
    delegations: HashMap<String, Delegation>,
    definitions: HashMap<String, Definition>,
    /// The versions of each name, in their order.
    newest: HashMap<String, Vec<String>>,
    /// The proposals that versions name.
    merges: Vec<(Id, String)>,
    configurations: Vec<Configuration>,
    /// When each worker class was frozen.
    frozen: HashMap<String, Vec<Span>>,
    first_actor: Option<String>,
    first_time_us: Option<i64>,
    /// The last record of the very first command.
    pub bootstrap_end: u64,
}

impl Registry {
    /// Takes the next record of the registry's chain.
    pub fn apply(&mut self, record: &Record, findings: &mut Findings) {
        let header = &record.header;
        if header.sequence == self.places.len() as u64 + 1 {
            self.places.push(header.log_index);
        }
        self.sequence = self.sequence.max(header.sequence);
        self.first_actor.get_or_insert_with(|| header.actor_ref.to_string());
        let first_time_us = *self.first_time_us.get_or_insert(header.recorded_at_us);
        if header.recorded_at_us == first_time_us {
            self.bootstrap_end = self.bootstrap_end.max(header.sequence);
        }
        let Some(payload) = record.payload() else { return };
        let applied = match header.action {
            Action::ActorRegistered => self.register(header, payload, findings),
            Action::CredentialIssued => self.issue(header, payload),
            Action::CredentialRevoked => self.end_credential(header, payload, findings),
            Action::KeyRegistered => self.add_key(header, payload, findings),
            Action::KeyRevoked => self.end_key(header, payload, findings),
            Action::GrantMade => self.grant(header, payload, findings),
            Action::GrantRevoked => self.revoke(header, payload, findings),
            Action::DelegationMade => self.delegate(header, payload, findings),
            Action::DelegationRevoked => self.end_delegation(header, payload, findings),
            Action::DefinitionPublished => self.publish(header, payload, findings),
            Action::DefinitionRetired => self.retire(header, payload, findings),
            Action::ConfigurationRecorded => self.configure(header, payload),
            Action::WorkerClassFrozen => self.freeze(header, payload, findings),
            Action::WorkerClassThawed => self.thaw(header, payload, findings),
            _ => Some(()),
        };
        if applied.is_none() {
            let detail = format!("the payload is not that of a `{}`", header.action.as_str());
            findings.find(Code::BundleForm, header, detail);
        }
    }

    fn register(&mut self, header: &Header, payload: &Value, findings: &mut Findings) -> Option<()> {
        let actor_ref = payload.text("actor_ref")?;
        if self.actors.contains_key(actor_ref) {
            findings.find(Code::RecordMissing, header, format!("`{actor_ref}` is registered a second time"));
            return Some(());
        }
        let optional = |name| payload.given(name).map(|value| value.as_text().map(str::to_owned));
        let mut actor = Actor {
            registered: header.sequence,
            registered_at_us: header.recorded_at_us,
            kind: payload.text("kind")?.to_owned(),
            display_name: payload.text("display_name").map(str::to_owned),
            keys: vec![],
            credentials: vec![],
            added: vec![],
        };
        if payload.given("public_key").is_some() {
            actor.keys.push(key_of(payload, header.sequence, false)?);
        }
        if let Some(credential) = optional("credential_id") {
            actor.credentials.push((credential?, Span::since(header.sequence)));
        }
        self.actors.insert(actor_ref.to_owned(), actor);
        Some(())
    }

    fn issue(&mut self, header: &Header, payload: &Value) -> Option<()> {
        let credential = payload.text("credential_id")?.to_owned();
        let actor_ref = payload.text("actor_ref")?;
        let actor = self.actors.get_mut(actor_ref)?;
        if actor_ref != &*header.actor_ref {
            actor.added.push((credential.clone(), header.actor_ref.to_string(), header.sequence));
        }
        actor.credentials.push((credential, Span::since(header.sequence)));
        Some(())
    }

    fn end_credential(&mut self, header: &Header, payload: &Value, findings: &mut Findings) -> Option<()> {
        let (actor_ref, id) = (payload.text("actor_ref")?, payload.text("credential_id")?);
        let credentials = self.actors.get_mut(actor_ref).map(|actor| actor.credentials.iter_mut());
        let live = credentials.into_iter().flatten().find(|(known, span)| known == id && span.until.is_none());
        match live {
            Some((_, span)) => span.until = Some(header.sequence),
            None => findings.find(Code::RowMissing, header, format!("`{actor_ref}` had no credential {id} to revoke")),
        }
        Some(())
    }

    fn add_key(&mut self, header: &Header, payload: &Value, findings: &mut Findings) -> Option<()> {
        let actor_ref = payload.text("actor_ref")?;
        let key = key_of(payload, header.sequence, true)?;
        if !self.is_bootstrap(header) {
            self.note_own_key(header, actor_ref, &key.key_id, findings);
        }
        match self.actors.get_mut(actor_ref) {
            Some(actor) => {
                if actor_ref != &*header.actor_ref {
                    actor.added.push((key.key_id.clone(), header.actor_ref.to_string(), header.sequence));
                }
                actor.keys.push(key);
            }
            None => findings.find(Code::RowMissing, header, format!("a key for `{actor_ref}`, who is not registered")),
        }
        Some(())
    }

    /// A further key of the software itself is lawful, and something that an auditor looks at.
    fn note_own_key(&self, header: &Header, actor_ref: &str, key_id: &str, findings: &mut Findings) {
        let at = header.registry_seq;
        let roles = [
            (APPLICATION_KEY_ADDED, "application", self.application_actor(at)),
            (SERVER_KEY_ADDED, "server", self.server_actor(at)),
        ];
        for (code, role, _) in roles.into_iter().filter(|(_, _, actor)| *actor == Some(actor_ref)) {
            let detail = format!("`{}` gave the {role} actor `{actor_ref}` the further key {key_id}", header.actor_ref);
            findings.note(code, Some(header.event_id), detail);
        }
    }

    fn end_key(&mut self, header: &Header, payload: &Value, findings: &mut Findings) -> Option<()> {
        let (actor_ref, id) = (payload.text("actor_ref")?, payload.text("key_id")?);
        let keys = self.actors.get_mut(actor_ref).map(|actor| actor.keys.iter_mut());
        match keys.into_iter().flatten().find(|key| key.key_id == id && key.span.until.is_none()) {
            Some(key) => key.span.until = Some(header.sequence),
            None => findings.find(Code::RowMissing, header, format!("`{actor_ref}` had no key {id} to revoke")),
        }
        Some(())
    }

    fn grant(&mut self, header: &Header, payload: &Value, findings: &mut Findings) -> Option<()> {
        let text = |name| payload.text(name).map(str::to_owned);
        let (id, subject_ref, action_scope) = (text("grant_id")?, text("subject_ref")?, text("action_scope")?);
        let grant = Grant {
            subject_ref: subject_ref.clone(),
            action_scope: action_scope.clone(),
            span: Span::since(header.sequence),
            granted_at_us: header.recorded_at_us,
            revoked_at_us: None,
        };
        if self.grants.contains_key(&id) {
            findings.find(Code::RecordMissing, header, format!("the grant {id} is made a second time"));
            return Some(());
        }
        self.grants_of.entry((subject_ref, action_scope)).or_default().push(id.clone());
        self.grants.insert(id, grant);
        Some(())
    }

    fn revoke(&mut self, header: &Header, payload: &Value, findings: &mut Findings) -> Option<()> {
        let id = payload.text("grant_id")?;
        let (subject, scope) = (payload.text("subject_ref")?, payload.text("action_scope")?);
        match self.grants.get_mut(id).filter(|grant| grant.span.until.is_none()) {
            Some(grant) if grant.subject_ref == subject && grant.action_scope == scope => {
                grant.span.until = Some(header.sequence);
                grant.revoked_at_us = Some(header.recorded_at_us);
            }
            Some(_) => findings.find(Code::RowMissing, header, format!("the grant {id} is another one than was made")),
            None => findings.find(Code::RowMissing, header, format!("there was no active grant {id} to revoke")),
        }
        Some(())
    }

    fn delegate(&mut self, header: &Header, payload: &Value, findings: &mut Findings) -> Option<()> {
        let text = |name| payload.text(name).map(str::to_owned);
        let id = text("delegation_id")?;
        let delegation = Delegation {
            delegator_ref: text("delegator_ref")?,
            delegate_ref: text("delegate_ref")?,
            scope: text("scope")?,
            from_us: payload.int("from_us")?,
            until_us: payload.int("until_us")?,
            span: Span::since(header.sequence),
        };
        let Delegation { delegator_ref, delegate_ref, from_us, until_us, .. } = &delegation;
        let engine = [self.application_actor(header.registry_seq), self.server_actor(header.registry_seq)];
        let named = self.actor(delegate_ref, header.registry_seq).is_some()
            && delegate_ref != delegator_ref
            && !engine.contains(&Some(delegate_ref));
        let detail = if *delegator_ref != *header.actor_ref {
            format!("`{}` named a substitute for `{delegator_ref}`", header.actor_ref)
        } else if !named {
            format!("`{delegate_ref}` cannot be the substitute of `{delegator_ref}`")
        } else if *until_us <= *from_us || *until_us <= header.recorded_at_us {
            format!("the period of the delegation {id} is none")
        } else {
            if let Some(before) = self.delegations.insert(id.clone(), delegation) {
                findings.find(Code::RecordMissing, header, format!("the delegation {id} is made a second time"));
                self.delegations.insert(id, before);
            }
            return Some(());
        };
        // Nobody decides by it.
        findings.find(Code::WrongApprover, header, detail);
        Some(())
    }

    fn end_delegation(&mut self, header: &Header, payload: &Value, findings: &mut Findings) -> Option<()> {
        let id = payload.text("delegation_id")?;
        let said = (payload.text("delegator_ref")?, payload.text("delegate_ref")?, payload.text("scope")?);
        if said.0 != &*header.actor_ref {
            let detail = format!("`{}` ended a delegation of `{}`", header.actor_ref, said.0);
            findings.find(Code::WrongApprover, header, detail);
        }
        let same = |known: &&mut Delegation| {
            let known = (known.delegator_ref.as_str(), known.delegate_ref.as_str(), known.scope.as_str());
            known == said
        };
        let live = self.delegations.get_mut(id).filter(|known| known.span.until.is_none()).filter(same);
        match live {
            Some(known) => known.span.until = Some(header.sequence),
            None => findings.find(Code::RowMissing, header, format!("there was no such delegation {id} to revoke")),
        }
        Some(())
    }

    fn publish(&mut self, header: &Header, payload: &Value, findings: &mut Findings) -> Option<()> {
        let name = format!("{}@{}", payload.text("name")?, payload.int("version")?);
        let digest = |name| payload.text(name).and_then(Digest::parse);
        let definition = Definition {
            published: header.sequence,
            declaration_digest: digest("declaration_digest")?,
            gate_spec_digest: digest("gate_spec_digest")?,
            document_digest: digest("document_digest"),
            digest: digest("digest")?,
            publish: match payload.given("publish") {
                None => None,
                Some(gate) => Some(published_gate(gate).ok()?),
            },
            merged: match payload.given("proposal") {
                None => None,
                Some(merged) => Some(merged_of(merged)?),
            },
            by: header.actor_ref.clone(),
            at_us: header.recorded_at_us,
            version: payload.int("version")?,
            retired: None,
        };
        if definition.merged.is_none() && self.publisher(payload.text("name")?, header.registry_seq).is_some() {
            let detail = format!("{name} needs the approval of a proposal, and names none");
            findings.find(Code::GateNotApproved, header, detail);
        }
        if self.definitions.contains_key(&name) {
            findings.find(Code::RecordMissing, header, format!("the definition {name} is published a second time"));
            return Some(());
        }
        self.newest.entry(payload.text("name")?.to_owned()).or_default().push(name.clone());
        self.merges.extend(definition.merged.map(|(instance, _)| (instance, name.clone())));
        self.definitions.insert(name, definition);
        Some(())
    }

    /// It ends what was published up to the version that it names.
    /// Whether the workers of this class might claim nothing under the registry at this sequence.
    pub fn is_frozen(&self, worker_class: &str, at: u64) -> bool {
        self.frozen.get(worker_class).is_some_and(|spans| spans.iter().any(|span| span.holds(at)))
    }

    fn freeze(&mut self, header: &Header, payload: &Value, findings: &mut Findings) -> Option<()> {
        let class = payload.text("worker_class")?;
        if self.is_frozen(class, header.sequence) {
            findings.find(Code::RowMissing, header, format!("the worker class {class} is frozen already"));
            return Some(());
        }
        self.frozen.entry(class.to_owned()).or_default().push(Span::since(header.sequence));
        Some(())
    }

    fn thaw(&mut self, header: &Header, payload: &Value, findings: &mut Findings) -> Option<()> {
        let class = payload.text("worker_class")?;
        match self.frozen.get_mut(class).and_then(|spans| spans.last_mut()).filter(|span| span.until.is_none()) {
            Some(span) => span.until = Some(header.sequence),
            None => findings.find(
                Code::RowMissing,
                header,
                format!("the worker class {class} is thawed, and was not frozen"),
            ),
        }
        Some(())
    }

    fn retire(&mut self, header: &Header, payload: &Value, findings: &mut Findings) -> Option<()> {
        let (name, version) = (payload.text("name")?, payload.int("version")?);
        let newest = self.definitions.get(&format!("{name}@{version}")).filter(|newest| newest.retired.is_none());
        if newest.is_none() || self.definitions.contains_key(&format!("{name}@{}", version.saturating_add(1))) {
            let detail = format!("{name}@{version} was not the newest version, or was retired already");
            findings.find(Code::RowMissing, header, detail);
            return Some(());
        }
        let of = |known: &str| known.rsplit_once('@').is_some_and(|(known, _)| known == name);
        for (_, definition) in self.definitions.iter_mut().filter(|(known, _)| of(known)) {
            if definition.version <= version {
                definition.retired.get_or_insert(header.sequence);
            }
        }
        Some(())
    }

    fn configure(&mut self, header: &Header, payload: &Value) -> Option<()> {
        let text = |name| payload.text(name).map(str::to_owned);
        self.configurations.push(Configuration {
            sequence: header.sequence,
            regulated: payload.get("regulated")?.as_bool()?,
            signatures: match payload.given("signatures").map(Value::as_text) {
                None => None,
                Some(Some("people")) => Some(Signatures::People),
                Some(Some("all")) => Some(Signatures::All),
                Some(_) => return None,
            },
            application_actor_ref: text("application_actor_ref")?,
            server_actor_ref: text("server_actor_ref")?,
        });
        Some(())
    }

    /// The place in the log of a registry record. None where it is not in the bundle.
    fn place(&self, sequence: u64) -> Option<u64> {
        self.places.get(usize::try_from(sequence.checked_sub(1)?).ok()?).copied()
    }

    /// Whether a record at this place of the log was decided under `registry_seq`: that record stands before it, and the
    /// next one, if there is one, after it.
    pub fn in_force(&self, registry_seq: u64, log_index: u64) -> bool {
        let known = registry_seq == 0 || self.place(registry_seq).is_some_and(|place| place < log_index);
        known && self.place(registry_seq.saturating_add(1)).is_none_or(|place| place > log_index)
    }

    /// Registered at or before that sequence.
    pub fn actor(&self, actor_ref: &str, at: u64) -> Option<&Actor> {
        self.actors.get(actor_ref).filter(|actor| actor.registered <= at)
    }

    /// The credential, where it was ever the actor's by then.
    pub fn credential(&self, actor_ref: &str, id: &str, at: u64) -> Option<Span> {
        let spans =
            self.actors.get(actor_ref)?.credentials.iter().filter(|(known, span)| known == id && span.began(at));
        spans.map(|(_, span)| *span).max_by_key(|span| span.from)
    }

    /// Who added this key or credential after the actor's registration, where it was another actor, and by which record.
    pub fn added_by_another(&self, actor_ref: &str, id: &str, at: u64) -> Option<(&str, u64)> {
        let added = self.actors.get(actor_ref)?.added.iter().rev();
        added.filter(|(known, _, sequence)| known == id && *sequence <= at).map(|(_, by, at)| (by.as_str(), *at)).next()
    }

    /// The key, where it was ever the actor's by then; the newest registration counts.
    pub fn key(&self, actor_ref: &str, id: &str, at: u64) -> Option<&Key> {
        let keys = self.actors.get(actor_ref)?.keys.iter().filter(|key| key.key_id == id && key.span.began(at));
        keys.max_by_key(|key| key.span.from)
    }

    /// Whether the actor had a key that was not revoked.
    pub fn has_key(&self, actor_ref: &str, at: u64) -> bool {
        self.actors.get(actor_ref).is_some_and(|actor| actor.keys.iter().any(|key| key.span.holds(at)))
    }

    pub fn holds_scope(&self, subject_ref: &str, scope: &str, at: u64) -> bool {
        let ids = self.grants_of.get(&(subject_ref.to_owned(), scope.to_owned()));
        ids.into_iter().flatten().filter_map(|id| self.grants.get(id)).any(|grant| grant.span.holds(at))
    }

    /// The scopes that a subject held.
    pub fn scopes_of(&self, subject_ref: &str, at: u64) -> Vec<&str> {
        let theirs = self.grants.values().filter(|grant| grant.subject_ref == subject_ref && grant.span.holds(at));
        let mut scopes: Vec<&str> = theirs.map(|grant| grant.action_scope.as_str()).collect();
        scopes.sort_unstable();
        scopes.dedup();
        scopes
    }

    pub fn delegation(&self, id: &str) -> Option<&Delegation> {
        self.delegations.get(id)
    }

    /// Whether this actor was a substitute of that one in this scope, at that time and under that registry record.
    pub fn substituted(&self, delegate: &str, delegator: &str, scope: &str, (at_us, at): (i64, u64)) -> bool {
        self.delegations.values().any(|known| {
            (known.delegate_ref.as_str(), known.delegator_ref.as_str(), known.scope.as_str())
                == (delegate, delegator, scope)
                && known.span.holds(at)
                && known.covers(at_us)
        })
    }

    pub fn grants(&self) -> &HashMap<String, Grant> {
        &self.grants
    }

    /// A definition by `name@version`, published at or before that sequence.
    pub fn definition(&self, name: &str, at: u64) -> Option<&Definition> {
        self.definitions.get(name).filter(|definition| definition.published <= at)
    }

    /// Who approves the next version of a definition, as the newest one says at that sequence.
    pub fn publisher(&self, name: &str, at: u64) -> Option<&PublishedGate> {
        let versions = self.newest.get(name)?.iter().rev();
        let newest = versions.filter_map(|version| self.definition(version, at)).next()?;
        newest.publish.as_ref()
    }

    /// The versions that name this proposal, with their records.
    pub fn merges_of(&self, instance: Id) -> impl Iterator<Item = (&str, u64)> {
        let of = self.merges.iter().filter(move |(merged, _)| *merged == instance);
        of.filter_map(|(_, name)| Some((name.as_str(), self.definitions.get(name)?.published)))
    }

    pub fn configuration(&self, at: u64) -> Option<&Configuration> {
        self.configurations.iter().rev().find(|configuration| configuration.sequence <= at)
    }

    pub fn is_service(&self, actor_ref: &str) -> bool {
        self.actors.get(actor_ref).is_some_and(|actor| actor.kind == "service")
    }

    /// The engine's own actor: as configured, and before the first configuration the one who began the registry.
    pub fn application_actor(&self, at: u64) -> Option<&str> {
        let configured = self.configuration(at).map(|configuration| configuration.application_actor_ref.as_str());
        configured.or(self.first_actor.as_deref())
    }

    pub fn is_application_actor(&self, actor_ref: &str, at: u64) -> bool {
        self.application_actor(at) == Some(actor_ref)
    }

    pub fn server_actor(&self, at: u64) -> Option<&str> {
        self.configuration(at).map(|configuration| configuration.server_actor_ref.as_str())
    }

    /// Part of the command that set the registry up.
    pub fn is_bootstrap(&self, header: &Header) -> bool {
        header.is_registry() && Some(header.recorded_at_us) == self.first_time_us
    }
}

/// The proposal and the gate that a version names.
fn merged_of(merged: &Value) -> Option<(Id, Id)> {
    let gate = merged.text("chain_id").or(merged.text("step_id"))?;
    Some((Id::parse(merged.text("instance_id")?)?, Id::parse(gate)?))
}

/// A key as `actor_registered` or `key_registered` states it. Its id follows from its bytes.
fn key_of(payload: &Value, sequence: u64, id_needed: bool) -> Option<Key> {
    let public_key = STANDARD.decode(payload.text("public_key")?).ok()?;
    let passkey = match payload.given("passkey") {
        None => None,
        Some(value) => Some(passkey_of(value)?),
    };
    match passkey.as_ref().map(|passkey| passkey.algorithm.as_str()) {
        None | Some("EdDSA") => (public_key.len() == 32).then_some(())?,
        Some("ES256") => (public_key.len() == 65 && public_key.first() == Some(&4)).then_some(())?,
        Some(_) => return None,
    }
    let key_id = key_id(&public_key);
    let stated = payload.given("key_id");
    if stated.map_or(id_needed, |stated| stated.as_text() != Some(&key_id)) {
        return None;
    }
    Some(Key { key_id, public_key, passkey, span: Span::since(sequence) })
}

fn passkey_of(value: &Value) -> Option<Passkey> {
    crate::record::require_members(value, &["algorithm", "credential_id", "rp_id", "origin"], &["label"]).ok()?;
    let text = |name| value.text(name).map(str::to_owned);
    text("credential_id")?;
    if value.given("label").is_some() {
        text("label")?;
    }
    Some(Passkey { algorithm: text("algorithm")?, rp_id: text("rp_id")?, origin: text("origin")? })
}

pub fn key_id(public_key: &[u8]) -> String {
    hex(sha256(&[public_key]).0.get(..8).unwrap_or_default())
}
