//! The registry: who exists, who may do what, and which definitions are published. It is an instance
//! like any other, with a dense sequence of records of its own; every other record names the registry
//! sequence it was decided under.

mod decide;
mod holds;
mod keys;
mod permission;

pub(crate) use decide::denied;
pub use decide::{
    Bootstrap, Command, Context, GrantScope, IssueCredential, PublishDefinition, RecordRefusedAttempt, RegisterActor,
    RegisterKey, RevokeCredential, RevokeGrant, RevokeKey, decide,
};
pub use holds::RecordExport;
pub use keys::{ActorKey, Keys, KnownKey, KnownToken, credential_id};
pub use permission::{Grant, Grants, scopes};

use crate::declaration::Declaration;
use crate::gate_spec::GateSpec;
use crate::id::{EventId, GrantId, HoldId};
use crate::lifecycle::OwnMachine;
use crate::plan::Plan;
use crate::{Digest, Time};
use std::collections::HashMap;
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
    pub source: Arc<str>,
    pub declaration: Arc<Declaration>,
    pub gate_spec: Arc<GateSpec>,
    /// Of a workflow; its declaration and gate_spec are then those of its runs' shells.
    pub workflow: Option<Workflow>,
    /// Of a state machine of one's own; its declaration then only names its states.
    pub machine: Option<Machine>,
    pub retention: Option<String>,
    pub published_at: Time,
    pub published_by: String,
}

/// What a workflow is, besides its gates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workflow {
    pub plan: Arc<Plan>,
    /// The normalised document that the plan was compiled from; runs carry its digest.
    pub document: Arc<[u8]>,
    pub document_digest: Digest,
}

/// What a state machine of one's own is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    pub machine: Arc<OwnMachine>,
    /// The normalised document that it was read from.
    pub document: Arc<[u8]>,
    pub document_digest: Digest,
}

impl Definition {
    /// The document that `definition_published` states besides declaration and gate_spec, and its digest.
    pub fn document(&self) -> Option<(&Arc<[u8]>, &Digest)> {
        match (&self.workflow, &self.machine) {
            (Some(workflow), _) => Some((&workflow.document, &workflow.document_digest)),
            (None, Some(machine)) => Some((&machine.document, &machine.document_digest)),
            (None, None) => None,
        }
    }
}

/// The configuration that decides how records are made and kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// `None`: the deployment has not chosen.
    pub audit_trail_retention_policy: Option<String>,
    /// Gate decisions must be signed.
    pub regulated: bool,
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
    DefinitionPublished(Definition),
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
    definitions: HashMap<String, Vec<Arc<Definition>>>,
    configuration: Option<Configuration>,
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

    /// The actor behind a bearer token that was not revoked.
    pub fn authenticate(&self, token_hash: &Digest) -> Option<&str> {
        let token = self.keys.token(token_hash).filter(|token| token.revoked_sequence.is_none())?;
        Some(&token.actor_ref)
    }

    /// Keys and tokens, revoked ones included.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    pub fn grants(&self) -> &permission::Grants {
        &self.grants
    }

    /// Deny by absence: true only where an active grant says so.
    pub fn permitted(&self, subject_ref: &str, scope: &str) -> bool {
        self.grants.permitted(subject_ref, scope)
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
        self.sequence = sequence;
        match &event.body {
            EventBody::ActorRegistered { actor, credential } => {
                self.actors.insert(actor.actor_ref.clone(), actor.clone());
                if let Some(key) = &actor.key {
                    self.keys.add(&actor.actor_ref, key.clone(), sequence);
                }
                self.registered.insert(actor.actor_ref.clone(), sequence);
                if let Some(credential) = credential {
                    self.keys.issue(&credential.actor_ref, credential.token_hash, sequence);
                }
            }
            EventBody::KeyRegistered { actor_ref, key } => self.keys.add(actor_ref, key.clone(), sequence),
            EventBody::KeyRevoked { actor_ref, key_id, .. } => self.keys.revoke(actor_ref, key_id, sequence),
            EventBody::CredentialIssued(credential) => {
                self.keys.issue(&credential.actor_ref, credential.token_hash, sequence);
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
            EventBody::DefinitionPublished(definition) => {
                self.definitions.entry(definition.name.clone()).or_default().push(Arc::new(definition.clone()));
            }
            EventBody::ConfigurationRecorded(configuration) => self.configuration = Some(configuration.clone()),
            // Nothing is decided by them: registry records are never purged, and the store knows which holds stand.
            EventBody::HoldPlaced { .. }
            | EventBody::HoldReleased { .. }
            | EventBody::EvidenceExported(_)
            | EventBody::AttemptRefused { .. } => {}
        }
    }
}
