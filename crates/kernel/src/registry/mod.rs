//! The registry: who exists, who may do what, and which definitions are published. It is an instance
//! like any other, with a dense sequence of records of its own; every other record names the registry
//! sequence it was decided under.

mod decide;
mod delegations;
mod holds;
mod keys;
mod names;
mod permission;
mod signatures;
mod standing;
mod workers;

pub(crate) use decide::denied;
use decide::require_known_actor;
pub use decide::{
    Bootstrap, Command, Context, GrantScope, IssueCredential, PublishDefinition, RecordRefusedAttempt, RegisterActor,
    RegisterKey, RevokeCredential, RevokeGrant, RevokeKey, RotateKey, decide,
};
pub use delegations::{
    Delegation, Delegations, KnownDelegation, MAX_OPEN as MAX_OPEN_DELEGATIONS, MakeDelegation, RevokeDelegation,
};
pub use holds::RecordExport;
pub use keys::{ActorKey, Added, Keys, KnownKey, KnownToken, Passkey, credential_id};
pub use permission::{Grant, Grants, scopes};
pub use signatures::Signatures;
pub use standing::{Mark, MarkDefinition, Marked, Pause, Retirement, Standing};
pub use workers::{ClassMark, ClassMarked, Freeze, worker_class, worker_kind};

use crate::declaration::Declaration;
use crate::id::{DelegationId, EventId, GrantId, HoldId, InstanceId};
use crate::lifecycle::OwnMachine;
use crate::plan::{Plan, Schedule};
use crate::process::GateRef;
use crate::published_gates::{PublishedGate, PublishedGates};
use crate::refusal::{Code, Refusal};
use crate::{Digest, Time};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    pub actor_ref: String,
    pub kind: ActorKind,
    pub display_name: Option<String>,
    /// The key it was registered with; [`Keys`] knows those that came later.
    pub key: Option<ActorKey>,
    pub registered_at: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActorKind {
    Human,
    Service,
}

impl ActorKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            ActorKind::Human => "human",
            ActorKind::Service => "service",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [ActorKind::Human, ActorKind::Service].into_iter().find(|kind| kind.as_str() == text)
    }
}

/// A bearer token is known by its hash alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    pub token_hash: Digest,
    pub actor_ref: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    pub name: String,
    pub version: u32,
    /// Digest of the document exactly as it was published.
    pub digest: Digest,
    /// The document itself. The registry of an engine does without it.
    pub source: Option<Arc<str>>,
    pub declaration: Arc<Declaration>,
    pub gate_spec: Arc<PublishedGates>,
    /// Of a workflow; its declaration and gate_spec are then those of its runs' shells.
    pub workflow: Option<Workflow>,
    /// Of a state machine of one's own; its declaration then only names its states.
    pub machine: Option<Machine>,
    /// Of a workflow or machine that this version does not read. Then it has neither.
    pub quarantined: Option<Quarantine>,
    pub retention: Option<String>,
    /// Who approves its next version; then nothing but the merge of a proposal publishes that.
    pub publish: Option<PublishedGate>,
    /// The proposal that it was published from. The registry of an engine does without it.
    pub merged: Option<Merged>,
    pub published_at: Time,
    pub published_by: String,
}

/// A proposal that was merged, and its approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merged {
    pub proposal: InstanceId,
    pub approval: GateRef,
}

/// What a workflow is, besides its gates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workflow {
    /// The registry of an engine does without it: whoever starts a run brings it ([`crate::run::StartRun::plan`]).
    pub plan: Option<Arc<Plan>>,
    pub outline: Outline,
    /// The normalised document that the plan was compiled from; runs carry its digest. The registry of an engine does without it.
    pub document: Option<Arc<[u8]>>,
    pub document_digest: Digest,
}

/// What is asked of a plan where no run is at hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    pub is_runbook: bool,
    pub schedule: Arc<[Schedule]>,
    /// The types of events that start a run.
    pub started_by: Arc<[Arc<str>]>,
    /// How many runs of one key may be under way.
    pub concurrency_limit: Option<u32>,
}

impl Workflow {
    pub fn new(plan: Arc<Plan>, document: Arc<[u8]>, document_digest: Digest) -> Workflow {
        let outline = Outline {
            is_runbook: plan.is_runbook(),
            schedule: plan.schedule.clone().into(),
            started_by: plan.on.iter().map(|trigger| Arc::from(&*trigger.event_type)).collect(),
            concurrency_limit: plan.concurrency.as_ref().map(|concurrency| concurrency.limit),
        };
        Workflow { plan: Some(plan), outline, document: Some(document), document_digest }
    }
}

/// What a state machine of one's own is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    pub machine: Arc<OwnMachine>,
    /// The normalised document that it was read from. The registry of an engine does without it.
    pub document: Option<Arc<[u8]>>,
    pub document_digest: Digest,
}

/// Why a published document is held back: it breaks a bound that it was not held to when it was published, or it is damaged.
/// Nothing starts from it, and nothing that was started from it goes on, until a server reads it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantine {
    pub why: Arc<str>,
    pub is_machine: bool,
    pub document: Option<Arc<[u8]>>,
    pub document_digest: Digest,
}

impl Definition {
    /// `workflow`, `machine` or `process`.
    pub fn kind(&self) -> &'static str {
        let held = |machine| self.quarantined.as_ref().is_some_and(|held| held.is_machine == machine);
        kind(self.workflow.is_some() || held(false), self.machine.is_some() || held(true))
    }

    /// Refuses what is held back.
    pub fn require_usable(&self) -> Result<(), Refusal> {
        let Some(held) = &self.quarantined else { return Ok(()) };
        let detail = format!(
            "version {} of `{}` is quarantined: {}; publish a version that keeps to the bounds",
            self.version, self.name, held.why
        );
        Err(Refusal::new(Code::InvalidDefinition, detail).at("definition"))
    }

    /// The digest of the document that `definition_published` states besides declaration and gate_spec.
    pub fn document_digest(&self) -> Option<&Digest> {
        match (&self.workflow, &self.machine) {
            (Some(workflow), _) => Some(&workflow.document_digest),
            (None, Some(machine)) => Some(&machine.document_digest),
            (None, None) => self.quarantined.as_ref().map(|held| &held.document_digest),
        }
    }

    /// That document.
    pub fn document(&self) -> Option<&Arc<[u8]>> {
        let documents = (
            self.workflow.as_ref().and_then(|workflow| workflow.document.as_ref()),
            self.machine.as_ref().and_then(|machine| machine.document.as_ref()),
            self.quarantined.as_ref().and_then(|held| held.document.as_ref()),
        );
        documents.0.or(documents.1).or(documents.2)
    }

    /// Lets go of what takes room and what the store gives back: the source, the document and the plan.
    pub fn put_away(&mut self) {
        self.source = None;
        if let Some(workflow) = &mut self.workflow {
            workflow.plan = None;
            workflow.document = None;
        }
        if let Some(machine) = &mut self.machine {
            machine.document = None;
        }
        if let Some(held) = &mut self.quarantined {
            held.document = None;
        }
    }
}

pub(super) const fn kind(is_workflow: bool, is_machine: bool) -> &'static str {
    match (is_workflow, is_machine) {
        (true, _) => "workflow",
        (false, true) => "machine",
        (false, false) => "process",
    }
}

/// The configuration that decides how records are made and kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// `None`: the deployment has not chosen.
    pub audit_trail_retention_policy: Option<String>,
    /// Gate decisions must be signed, and what `signatures` says.
    pub regulated: bool,
    /// Whose other acts must be signed. `None`: nobody's, or recorded by a version that asked for decisions alone.
    pub signatures: Option<Signatures>,
    pub application_actor_ref: String,
    pub server_actor_ref: String,
}

/// What was done to the registry: one event, one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub actor_ref: String,
    pub at: Time,
    pub body: EventBody,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventBody {
    ActorRegistered {
        actor: Actor,
        credential: Option<Credential>,
    },
    KeyRegistered {
        actor_ref: String,
        key: ActorKey,
    },
    KeyRevoked {
        actor_ref: String,
        key_id: String,
        reason: Option<String>,
    },
    CredentialIssued(Credential),
    CredentialRevoked(Credential),
    GrantMade {
        grant_id: GrantId,
        subject_ref: String,
        action_scope: String,
    },
    GrantRevoked {
        grant_id: GrantId,
        subject_ref: String,
        action_scope: String,
    },
    /// An approver named a substitute.
    DelegationMade(Delegation),
    DelegationRevoked {
        delegation_id: DelegationId,
        delegator_ref: String,
        delegate_ref: String,
        scope: String,
    },
    DefinitionPublished(Definition),
    DefinitionMarked(Marked),
    WorkerClassMarked(ClassMarked),
    ConfigurationRecorded(Configuration),
    /// A hold on one of the registry's own records.
    HoldPlaced {
        hold_id: HoldId,
        record_ref: EventId,
        reason: String,
        case_ref: Option<String>,
    },
    HoldReleased {
        hold_id: HoldId,
        record_ref: EventId,
        reason: String,
    },
    /// The evidence of a window of time was taken away.
    EvidenceExported(RecordExport),
    /// A refused attempt that belongs to no process.
    AttemptRefused {
        attempted: String,
        code: String,
        detail: String,
    },
}

/// Kept in memory on every node and brought up to date by sequence.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    sequence: u64,
    actors: HashMap<String, Actor>,
    /// The registry record that registered each actor.
    registered: HashMap<String, u64>,
    keys: Keys,
    grants: permission::Grants,
    delegations: Delegations,
    definitions: HashMap<String, Vec<Arc<Definition>>>,
    standing: HashMap<String, standing::Standing>,
    classes: workers::Classes,
    configuration: Option<Configuration>,
    /// The actors of the software itself, now and before.
    engine_actors: BTreeSet<String>,
    /// What each actor's name looks like (UTS 39), and the actor who had it first.
    looks: HashMap<String, String>,
}

impl Registry {
    /// The number of the last record of the registry chain.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Records in between that change nothing here still count.
    pub fn advance_to(&mut self, sequence: u64) {
        self.sequence = self.sequence.max(sequence);
    }

    pub fn actor(&self, actor_ref: &str) -> Option<&Actor> {
        self.actors.get(actor_ref)
    }

    /// Whether the actor was registered for what was decided under this registry sequence.
    pub fn registered_under(&self, actor_ref: &str, registry_sequence: u64) -> bool {
        self.registered.get(actor_ref).is_some_and(|sequence| *sequence <= registry_sequence)
    }

    pub fn actors(&self) -> impl Iterator<Item = &Actor> {
        self.actors.values()
    }

    /// The actor behind a bearer token that was not revoked. The engine's own actors have none: a token that an older
    /// version issued for one opens nothing.
    pub fn authenticate(&self, token_hash: &Digest) -> Option<&str> {
        let token = self.keys.token(token_hash).filter(|token| token.revoked_sequence.is_none())?;
        Some(token.actor_ref.as_str()).filter(|actor_ref| !self.is_engine_actor(actor_ref))
    }

    /// Whether this is an actor of the software itself: the one that began the registry, or one that a recorded
    /// configuration names as application or server actor.
    pub fn is_engine_actor(&self, actor_ref: &str) -> bool {
        self.engine_actors.contains(actor_ref)
    }

    /// Keys and tokens of this actor that are active and that another actor added after its registration.
    pub fn added_by_others(&self, actor_ref: &str) -> usize {
        let foreign = |added: &Added| added.by != actor_ref && !added.with_actor;
        let keys = self.keys.of(actor_ref).iter().filter(|known| known.is_active() && foreign(&known.added));
        let tokens = self.keys.tokens_of(actor_ref).filter(|token| token.is_active() && foreign(&token.added));
        keys.count() + tokens.count()
    }

    /// Keys and tokens, revoked ones included.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    pub fn grants(&self) -> &permission::Grants {
        &self.grants
    }

    /// Substitutes, past ones included.
    pub fn delegations(&self) -> &Delegations {
        &self.delegations
    }

    /// Deny by absence: true only where an active grant says so.
    pub fn permitted(&self, subject_ref: &str, scope: &str) -> bool {
        self.grants.permitted(subject_ref, scope)
    }

    /// Whether this actor may do all that the scope allows: it holds the scope, or the general one that covers it.
    pub fn covers(&self, actor_ref: &str, scope: &str) -> bool {
        let general = |general: &&&str| scope.strip_prefix(**general).is_some_and(|finer| finer.starts_with(':'));
        self.permitted(actor_ref, scope)
            || scopes::ALL.iter().filter(general).any(|general| self.permitted(actor_ref, general))
    }

    /// A general scope (`workflows:fire`) covers the finer one (`workflows:fire:batch-release`).
    pub fn permitted_on(&self, subject_ref: &str, scope: &str, definition: Option<&str>) -> bool {
        self.permitted(subject_ref, scope)
            || definition.is_some_and(|name| self.permitted(subject_ref, &format!("{scope}:{name}")))
    }

    /// The newest version, or the one asked for.
    pub fn definition(&self, name: &str, version: Option<u32>) -> Option<&Arc<Definition>> {
        let versions = self.definitions.get(name)?;
        match version {
            None => versions.last(),
            Some(version) => versions.iter().find(|definition| definition.version == version),
        }
    }

    /// A state machine of one's own: the newest version, or the one asked for.
    pub fn own_machine(&self, name: &str, version: Option<u32>) -> Option<(&Arc<Definition>, &Machine)> {
        let definition = self.definition(name, version)?;
        Some((definition, definition.machine.as_ref()?))
    }

    pub fn definition_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.definitions.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    pub fn definition_versions(&self, name: &str) -> &[Arc<Definition>] {
        self.definitions.get(name).map_or(&[], Vec::as_slice)
    }

    /// The configuration that the last record of its kind states; `None` before the first.
    pub fn configuration(&self) -> Option<&Configuration> {
        self.configuration.as_ref()
    }

    /// Applies the record with this number. One that is known already changes nothing, so a node may
    /// be told twice.
    pub fn apply(&mut self, sequence: u64, event: &Event) {
        if sequence <= self.sequence {
            return;
        }
        if self.sequence == 0 {
            self.engine_actors.insert(event.actor_ref.clone());
        }
        self.sequence = sequence;
        let with_actor = matches!(event.body, EventBody::ActorRegistered { .. });
        let added = || Added { by: event.actor_ref.clone(), at: event.at, sequence, with_actor };
        match &event.body {
            EventBody::ActorRegistered { actor, credential } => {
                self.actors.insert(actor.actor_ref.clone(), actor.clone());
                if let Some(key) = &actor.key {
                    self.keys.add(&actor.actor_ref, key.clone(), added());
                }
                self.registered.insert(actor.actor_ref.clone(), sequence);
                self.looks.entry(names::look(&actor.actor_ref)).or_insert_with(|| actor.actor_ref.clone());
                if let Some(credential) = credential {
                    self.keys.issue(&credential.actor_ref, credential.token_hash, added());
                }
            }
            EventBody::KeyRegistered { actor_ref, key } => self.keys.add(actor_ref, key.clone(), added()),
            EventBody::KeyRevoked { actor_ref, key_id, .. } => self.keys.revoke(actor_ref, key_id, sequence),
            EventBody::CredentialIssued(credential) => {
                self.keys.issue(&credential.actor_ref, credential.token_hash, added());
            }
            EventBody::CredentialRevoked(credential) => self.keys.withdraw(&credential.token_hash, sequence),
            EventBody::GrantMade { grant_id, subject_ref, action_scope } => {
                self.grants.add(Grant {
                    grant_id: *grant_id,
                    subject_ref: subject_ref.clone(),
                    action_scope: action_scope.clone(),
                    granted_at: event.at,
                    granted_sequence: self.sequence,
                    revoked: None,
                });
            }
            EventBody::GrantRevoked { grant_id, .. } => self.grants.revoke(*grant_id, event.at, self.sequence),
            EventBody::DelegationMade(delegation) => self.delegations.add(delegation, event.at),
            EventBody::DelegationRevoked { delegation_id, .. } => {
                self.delegations.revoke(*delegation_id, event.at, self.sequence);
            }
            EventBody::DefinitionPublished(definition) => {
                self.definitions.entry(definition.name.clone()).or_default().push(Arc::new(definition.clone()));
            }
            EventBody::DefinitionMarked(marked) => {
                self.standing.entry(marked.name.clone()).or_default().apply(marked, event.at, &event.actor_ref);
            }
            EventBody::WorkerClassMarked(marked) => self.classes.apply(marked, event.at, &event.actor_ref),
            EventBody::ConfigurationRecorded(configuration) => {
                self.engine_actors.insert(configuration.application_actor_ref.clone());
                self.engine_actors.insert(configuration.server_actor_ref.clone());
                self.configuration = Some(configuration.clone());
            }
            // Nothing is decided by them: registry records are never purged, and the store knows which holds stand.
            EventBody::HoldPlaced { .. }
            | EventBody::HoldReleased { .. }
            | EventBody::EvidenceExported(_)
            | EventBody::AttemptRefused { .. } => {}
        }
    }
}
