//! Who might do what, by the registry's own records; and whether everything was done by somebody who might.

use super::Notes;
use super::chain::Entry;
use countersign_engine::port::{ProcessView, RegistryDelta};
use countersign_kernel::Time;
use countersign_kernel::registry::{Event, EventBody, Registry};
use serde_json::Value;
use std::collections::HashMap;

pub struct Grants {
    application: String,
    /// (subject, scope) → every time that it was given.
    held: HashMap<(String, String), Vec<Held>>,
    /// Time of each registry record.
    times: HashMap<u64, i64>,
    /// name@version → the record that published it.
    published: HashMap<String, u64>,
    /// The same as the rows tell it.
    registry: Registry,
}

/// From which registry record to which a grant was in force.
struct Held {
    grant_id: String,
    from: u64,
    to: Option<u64>,
}

pub fn check(entries: &[Entry], stored: &RegistryDelta, notes: &mut Notes<'_>) -> Grants {
    let mut registry = Registry::default();
    for (sequence, event) in &stored.events {
        registry.apply(*sequence, event);
    }
    let application = entries.first().and_then(|entry| entry.text("actor_ref")).unwrap_or_default().to_owned();
    let mut grants =
        Grants { application, held: HashMap::new(), times: HashMap::new(), published: HashMap::new(), registry };
    let mut before = 0;
    for command in entries.chunk_by(|a, b| a.at == b.at) {
        for entry in command {
            notes.require(entry.registry_seq == before, || {
                format!("registry record {} names {} as its predecessor", entry.sequence, entry.registry_seq)
            });
            grants.check_permission(entry, notes);
        }
        command.iter().for_each(|entry| grants.take_in(entry, notes));
        before = command.last().map_or(before, |entry| entry.sequence);
    }
    check_rows(entries, stored, notes);
    grants
}

impl Grants {
    pub fn application(&self) -> &str {
        &self.application
    }

    fn take_in(&mut self, entry: &Entry, notes: &mut Notes<'_>) {
        self.times.insert(entry.sequence, entry.at);
        let text = |name: &str| entry.text(name).unwrap_or_default().to_owned();
        match entry.action_ref.as_str() {
            "grant_made" => {
                let key = (text("subject_ref"), text("action_scope"));
                let held = Held { grant_id: text("grant_id"), from: entry.sequence, to: None };
                self.held.entry(key).or_default().push(held);
            }
            "grant_revoked" => {
                let key = (text("subject_ref"), text("action_scope"));
                let grant_id = text("grant_id");
                let held = self.held.get_mut(&key).into_iter().flatten();
                match held.into_iter().find(|held| held.grant_id == grant_id && held.to.is_none()) {
                    Some(held) => held.to = Some(entry.sequence),
                    None => notes.note(format!("registry record {} takes what nobody gave", entry.sequence)),
                }
            }
            "definition_published" => {
                let version = entry.payload.get("version").map(ToString::to_string).unwrap_or_default();
                self.published.insert(format!("{}@{version}", text("name")), entry.sequence);
            }
            _ => {}
        }
    }

    fn permitted_under(&self, subject: &str, scope: &str, sequence: u64) -> bool {
        let held = self.held.get(&(subject.to_owned(), scope.to_owned()));
        held.into_iter().flatten().any(|held| held.from <= sequence && held.to.is_none_or(|to| sequence < to))
    }

    fn check_permission(&self, entry: &Entry, notes: &mut Notes<'_>) {
        let scope = match entry.action_ref.as_str() {
            // The first command sets the store up.
            _ if entry.registry_seq == 0 => {
                return notes.require(entry.actor_ref == self.application, || {
                    format!("registry record {} is by {}", entry.sequence, entry.actor_ref)
                });
            }
            // The engine looks after its own keys.
            "key_registered" if entry.actor_ref == self.application => return,
            "actor_registered" | "key_registered" | "key_revoked" | "credential_issued" | "credential_revoked" => {
                "actors:manage"
            }
            "grant_made" | "grant_revoked" => "permissions:manage",
            "definition_published" | "definition_retired" => "definitions:publish",
            "hold_placed" | "hold_released" => "audit:hold",
            "evidence_exported" => "audit:read",
            _ => return,
        };
        notes.require(self.permitted_under(&entry.actor_ref, scope, entry.registry_seq), || {
            format!("registry record {}: {} did not hold {scope}", entry.sequence, entry.actor_ref)
        });
    }

    /// Every start, opening and firing was permitted under the registry that its record names.
    pub fn check_process(&self, view: &ProcessView, entries: &[Entry], notes: &mut Notes<'_>) {
        let definition = view.row.definition.as_ref().map(|(name, _)| name.as_str());
        for entry in entries {
            match self.times.get(&entry.registry_seq) {
                None => notes.note(format!("record {} names a registry record that is not there", entry.sequence)),
                Some(time) => notes.require(*time <= entry.at, || {
                    format!(
                        "record {} is earlier than registry record {}, under which it was decided",
                        entry.sequence, entry.registry_seq
                    )
                }),
            }
            if let Some(definition) = entry.text("definition") {
                let published = self.published.get(definition).is_some_and(|sequence| *sequence <= entry.registry_seq);
                notes.require(published, || format!("record {}: {definition} was not published", entry.sequence));
            }
            let scope = match entry.action_ref.as_str() {
                "workflow_started" => "workflows:start",
                "gate_opened" | "chain_initiated" => "workflows:open-gate",
                "transition_fired" => "workflows:fire",
                "hold_placed" | "hold_released" => "audit:hold",
                "record_purged" => "audit:purge",
                "evidence_exported" => "audit:read",
                _ => continue,
            };
            let scopes = [Some(scope.to_owned()), definition.map(|name| format!("{scope}:{name}"))];
            let (actor, under) = (entry.actor_ref.as_str(), entry.registry_seq);
            let told = scopes.iter().flatten().any(|scope| self.permitted_under(actor, scope, under));
            let stored =
                scopes.iter().flatten().any(|scope| self.registry.grants().permitted_under(actor, scope, under));
            notes.require(told, || format!("record {}: {actor} did not hold {scope} under {under}", entry.sequence));
            notes.require(told == stored, || {
                format!("record {}: the grants' rows say something else than their records", entry.sequence)
            });
        }
    }
}

/// The registry's rows say what its records say.
fn check_rows(entries: &[Entry], stored: &RegistryDelta, notes: &mut Notes<'_>) {
    let mut events: HashMap<u64, &Event> = stored.events.iter().map(|(sequence, event)| (*sequence, event)).collect();
    notes.require(events.len() == stored.events.len(), || "two registry rows bear one sequence".to_owned());
    // Holds have rows of their own kind, which are checked apart.
    let rowless = ["attempt_refused", "hold_placed", "hold_released", "evidence_exported"];
    for entry in entries.iter().filter(|entry| !rowless.contains(&entry.action_ref.as_str())) {
        match events.remove(&entry.sequence) {
            None => notes.note(format!("registry record {} has no row", entry.sequence)),
            Some(event) => notes.require(agrees(entry, event), || {
                format!("registry record {} and its row differ: {:?}", entry.sequence, event.body)
            }),
        }
    }
    for sequence in events.keys() {
        notes.note(format!("the registry row {sequence} has no record"));
    }
}

fn agrees(entry: &Entry, event: &Event) -> bool {
    let says = |name: &str, value: Option<&str>| entry.text(name) == value;
    let body = match &event.body {
        EventBody::ActorRegistered { actor, .. } => {
            entry.action_ref == "actor_registered"
                && says("actor_ref", Some(&actor.actor_ref))
                && says("kind", Some(actor.kind.as_str()))
                && says("display_name", actor.display_name.as_deref())
        }
        EventBody::GrantMade { grant_id, subject_ref, action_scope }
        | EventBody::GrantRevoked { grant_id, subject_ref, action_scope } => {
            let made = matches!(event.body, EventBody::GrantMade { .. });
            entry.action_ref == if made { "grant_made" } else { "grant_revoked" }
                && says("grant_id", Some(&grant_id.to_string()))
                && says("subject_ref", Some(subject_ref))
                && says("action_scope", Some(action_scope))
        }
        EventBody::DelegationMade(made) => {
            let us = |name: &str, time: Time| entry.payload.get(name).and_then(Value::as_i64) == Some(time.0);
            entry.action_ref == "delegation_made"
                && says("delegation_id", Some(&made.delegation_id.to_string()))
                && says("delegator_ref", Some(&made.delegator_ref))
                && says("delegate_ref", Some(&made.delegate_ref))
                && says("scope", Some(&made.scope))
                && says("reason", made.reason.as_deref())
                && us("from_us", made.from)
                && us("until_us", made.until)
        }
        EventBody::DelegationRevoked { delegation_id, delegator_ref, delegate_ref, scope } => {
            entry.action_ref == "delegation_revoked"
                && says("delegation_id", Some(&delegation_id.to_string()))
                && says("delegator_ref", Some(delegator_ref))
                && says("delegate_ref", Some(delegate_ref))
                && says("scope", Some(scope))
        }
        EventBody::DefinitionPublished(definition) => {
            entry.action_ref == "definition_published"
                && says("name", Some(&definition.name))
                && entry.payload.get("version").and_then(serde_json::Value::as_u64) == Some(definition.version.into())
                && says("digest", Some(&definition.digest.to_string()))
        }
        EventBody::KeyRegistered { actor_ref, key } => {
            entry.action_ref == "key_registered"
                && says("actor_ref", Some(actor_ref))
                && says("key_id", Some(&key.key_id))
                && says("public_key", Some(&key.public_key))
        }
        EventBody::KeyRevoked { actor_ref, key_id, reason } => {
            entry.action_ref == "key_revoked"
                && says("actor_ref", Some(actor_ref))
                && says("key_id", Some(key_id))
                && says("reason", reason.as_deref())
        }
        EventBody::CredentialIssued(credential) | EventBody::CredentialRevoked(credential) => {
            let issued = matches!(event.body, EventBody::CredentialIssued(_));
            entry.action_ref == if issued { "credential_issued" } else { "credential_revoked" }
                && says("actor_ref", Some(&credential.actor_ref))
                && says("credential_id", Some(&countersign_kernel::registry::credential_id(&credential.token_hash)))
        }
        EventBody::DefinitionMarked(marked) => {
            entry.action_ref == marked.mark.action()
                && says("name", Some(&marked.name))
                && entry.payload.get("version").and_then(serde_json::Value::as_u64) == Some(marked.version.into())
                && says("reason", marked.reason.as_deref())
        }
        EventBody::WorkerClassMarked(marked) => {
            entry.action_ref == marked.mark.action()
                && says("worker_class", Some(&marked.worker_class))
                && says("reason", Some(&marked.reason))
        }
        EventBody::ConfigurationRecorded(configuration) => {
            entry.action_ref == "configuration_recorded"
                && says("audit_trail_retention_policy", configuration.audit_trail_retention_policy.as_deref())
                && says("application_actor_ref", Some(&configuration.application_actor_ref))
                && says("server_actor_ref", Some(&configuration.server_actor_ref))
        }
        EventBody::HoldPlaced { .. }
        | EventBody::HoldReleased { .. }
        | EventBody::EvidenceExported(_)
        | EventBody::AttemptRefused { .. } => false,
    };
    body && event.at.0 == entry.at && event.actor_ref == entry.actor_ref
}
