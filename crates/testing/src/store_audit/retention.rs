//! Holds and purges: every destruction was lawful and is recorded, nothing else is missing, and the rows of the holds say
//! what was recorded of them.

use super::Notes;
use super::chain::Entry;
use countersign_engine::port::ProcessView;
use countersign_engine::rows::HoldRow;
use countersign_kernel::InstanceId;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A hold as its records tell it.
struct Hold<'e> {
    record_ref: &'e str,
    placed: &'e Entry,
    released: Option<&'e Entry>,
}

pub fn check(instance_id: InstanceId, entries: &[Entry], rows: &[HoldRow], notes: &mut Notes<'_>) {
    let mut holds: BTreeMap<&str, Hold<'_>> = BTreeMap::new();
    let mut destroyed: BTreeSet<&str> = BTreeSet::new();
    for entry in entries {
        let text = |name: &str| entry.text(name).unwrap_or_default();
        match entry.action_ref.as_str() {
            _ if entry.purged => {}
            "hold_placed" => {
                let known = entries.iter().any(|held| held.event_id.to_string() == text("record_ref"));
                notes.require(known, || format!("record {} holds what is not here", entry.sequence));
                let hold = Hold { record_ref: text("record_ref"), placed: entry, released: None };
                holds.insert(text("hold_id"), hold);
            }
            "hold_released" => match holds.get_mut(text("hold_id")).filter(|hold| hold.released.is_none()) {
                Some(hold) => hold.released = Some(entry),
                // Of a hold whose placing was purged nothing more can be told.
                None => notes.require(entries.iter().any(|entry| entry.purged), || {
                    format!("record {} releases what nobody held", entry.sequence)
                }),
            },
            "record_purged" => {
                let held = holds.values().any(|hold| hold.released.is_none() && hold.record_ref == text("event_id"));
                notes.require(!held, || format!("record {}: purged under a legal hold", entry.sequence));
                let again = !destroyed.insert(text("event_id"));
                notes.require(!again, || format!("record {}: purged for the second time", entry.sequence));
                check_destruction(entry, entries, notes);
            }
            _ => {}
        }
    }
    for entry in entries.iter().filter(|entry| entry.purged) {
        let lawful = destroyed.contains(entry.event_id.to_string().as_str())
            && instance_id != InstanceId::REGISTRY
            && entry.action_ref != "record_purged";
        notes.require(lawful, || format!("record {} has lost its content without a purge", entry.sequence));
    }
    compare(entries, &holds, rows, notes);
}

fn check_destruction(entry: &Entry, entries: &[Entry], notes: &mut Notes<'_>) {
    let named = entries.iter().find(|other| Some(other.event_id.to_string().as_str()) == entry.text("event_id"));
    let Some(other) = named.filter(|other| other.sequence < entry.sequence) else {
        return notes.note(format!("record {} purges what is not here", entry.sequence));
    };
    let number = |name: &str| entry.payload.get(name).and_then(Value::as_i64);
    let until = other.header.retention.retention_until_us;
    let says = entry.text("action_ref") == Some(&other.action_ref)
        && entry.text("actor_ref") == Some(&other.actor_ref)
        && entry.text("record_hash") == Some(&other.record_hash)
        && entry.text("attestation_digest") == Some(&other.header.attestation_digest)
        && entry.text("policy_ref") == Some(&other.header.retention.policy_ref)
        && number("sequence") == i64::try_from(other.sequence).ok()
        && number("retention_until_us") == until;
    notes.require(says, || format!("record {} says something else of record {}", entry.sequence, other.sequence));
    notes.require(until.is_some_and(|until| until <= entry.at), || {
        format!("record {} was purged before its time", other.sequence)
    });
    notes.require(other.purged, || format!("record {} was purged and has its content", other.sequence));
}

fn compare(entries: &[Entry], holds: &BTreeMap<&str, Hold<'_>>, rows: &[HoldRow], notes: &mut Notes<'_>) {
    let recorded = |action: &str| entries.iter().filter(|entry| entry.action_ref == action).count();
    let released = rows.iter().filter(|row| row.released.is_some()).count();
    notes.require((rows.len(), released) == (recorded("hold_placed"), recorded("hold_released")), || {
        format!("{} holds, {released} of them released, were not recorded so", rows.len())
    });
    for row in rows {
        // The record of its placing was purged.
        let Some(hold) = holds.get(row.hold_id.to_string().as_str()) else { continue };
        let placed = row.record_ref.to_string() == hold.record_ref
            && (row.placed_at.0, &row.placed_by) == (hold.placed.at, &hold.placed.actor_ref)
            && Some(row.reason.as_str()) == hold.placed.text("reason")
            && row.case_ref.as_deref() == hold.placed.text("case_ref");
        let ended = match (&row.released, hold.released) {
            (Some(row), Some(entry)) => {
                (row.at.0, &row.by) == (entry.at, &entry.actor_ref) && Some(row.reason.as_str()) == entry.text("reason")
            }
            (Some(row), None) => row.reason.starts_with("purged:"),
            (None, released) => released.is_none(),
        };
        notes.require(placed && ended, || format!("hold {} is not as it was recorded", row.hold_id));
    }
}

/// A process of which something was purged: its subject went with its start, in every row.
pub fn check_process(view: &ProcessView, entries: &[Entry], notes: &mut Notes<'_>) {
    let Some(start) = entries.first().filter(|entry| entry.purged) else { return };
    let text = format!("purged:{}", start.event_id);
    notes.require(view.row.subject_ref == text, || "the subject outlived its purge".to_owned());
    for (step, _) in view.gates.iter().flat_map(|(_, steps)| steps) {
        notes.require(step.subject_ref == format!("{text}:{}", step.action), || {
            format!("the subject outlived its purge in step {}", step.step_id)
        });
    }
}
