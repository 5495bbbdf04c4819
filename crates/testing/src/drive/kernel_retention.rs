//! The data that a store has besides the processes, for the kernel alone: the registry's records, holds, purges, and
//! retention.

use super::{Record, Said, broken};
use countersign_engine::payload;
use countersign_engine::retention::Policies;
use countersign_kernel::process::{self, EventBody};
use countersign_kernel::registry;
use countersign_kernel::retention::{HoldFacts, RecordFacts};
use countersign_kernel::{Digest, EventId, HoldId, IdSource, InstanceId, Time};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub struct Kept {
    pub policy: Option<String>,
    pub purged: BTreeSet<EventId>,
    /// With the sequence that each was decided under.
    pub registry: Vec<(registry::Event, u64)>,
    holds: BTreeMap<HoldId, HoldFacts>,
    /// By the time of placing, which is that of no other command.
    placed: BTreeMap<Time, HoldId>,
    /// Under which policy each process was started.
    started_under: BTreeMap<InstanceId, Option<String>>,
}

/// Commands never share a time here, so time and place name a record.
pub fn event_id(at: Time, sequence: u64) -> EventId {
    IdSource::new(at, sequence).make()
}

impl Kept {
    pub fn note(&mut self, instance_id: InstanceId, event: &process::Event) {
        match &event.body {
            EventBody::WorkflowStarted { .. } => drop(self.started_under.insert(instance_id, self.policy.clone())),
            EventBody::HoldPlaced { hold_id, record_ref, .. } => {
                self.placed.insert(event.at, *hold_id);
                self.place(*hold_id, *record_ref, instance_id);
            }
            EventBody::HoldReleased { hold_id, .. } => self.release(*hold_id),
            EventBody::RecordPurged { record } => drop(self.purged.insert(record.event_id)),
            _ => {}
        }
    }

    pub fn note_registry(&mut self, event: &registry::Event) {
        match &event.body {
            registry::EventBody::HoldPlaced { hold_id, record_ref, .. } => {
                self.place(*hold_id, *record_ref, InstanceId::REGISTRY);
            }
            registry::EventBody::HoldReleased { hold_id, .. } => self.release(*hold_id),
            _ => {}
        }
    }

    fn place(&mut self, hold_id: HoldId, record_ref: EventId, instance_id: InstanceId) {
        self.holds.insert(hold_id, HoldFacts { hold_id, record_ref, instance_id, released: false });
    }

    fn release(&mut self, hold_id: HoldId) {
        if let Some(hold) = self.holds.get_mut(&hold_id) {
            hold.released = true;
        }
    }

    pub fn placed(&self, hold_id: Option<HoldId>) -> Said<String> {
        hold_id.map(|id| id.to_string()).ok_or_else(|| broken("a hold that was not placed"))
    }

    pub fn hold(&self, hold_id: &str) -> Option<HoldFacts> {
        HoldId::parse(hold_id).and_then(|id| self.holds.get(&id)).copied()
    }

    /// The record with this id, among these (instance, sequence, time, action, actor) and the registry's own.
    pub fn facts<'t>(
        &self,
        wanted: &str,
        of_processes: impl Iterator<Item = (InstanceId, u64, Time, &'t str, &'t str)>,
    ) -> Option<RecordFacts> {
        let of_registry = (1..).zip(&self.registry).map(|(sequence, (event, _))| {
            let action_ref = payload::registry_action(&event.body);
            (InstanceId::REGISTRY, sequence, event.at, action_ref, event.actor_ref.clone())
        });
        let of_processes =
            of_processes.map(|(id, sequence, at, action, actor)| (id, sequence, at, action, actor.to_owned()));
        let wanted = EventId::parse(wanted)?;
        let found = of_processes.chain(of_registry).find(|(_, sequence, at, ..)| event_id(*at, *sequence) == wanted);
        let (instance_id, sequence, at, action_ref, actor_ref) = found?;
        let policy = self.started_under.get(&instance_id).cloned().flatten();
        let policy_ref = policy.unwrap_or_else(|| "unset".to_owned());
        let (retention_until, _) = Policies::default().window(&policy_ref, at);
        Some(RecordFacts {
            event_id: wanted,
            instance_id,
            sequence,
            action_ref: action_ref.to_owned(),
            actor_ref,
            record_hash: Digest([0; 32]),
            attestation_digest: Digest([0; 32]),
            policy_ref,
            retention_until,
            purged: self.purged.contains(&wanted),
            places: self.placed.get(&at).copied(),
        })
    }

    pub fn registry_records(&self) -> Said<Vec<Record>> {
        let record = |(sequence, (event, under)): (u64, &(registry::Event, u64))| {
            Ok(Record {
                event_id: event_id(event.at, sequence).to_string(),
                sequence,
                action_ref: payload::registry_action(&event.body).to_owned(),
                actor_ref: event.actor_ref.clone(),
                payload: serde_json::from_slice(&payload::registry_payload(event, None)).map_err(broken)?,
                registry_seq: *under,
                recorded_at: event.at.0.to_string(),
            })
        };
        (1..).zip(&self.registry).map(record).collect()
    }
}
