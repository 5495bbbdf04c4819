//! The records of one instance: dense, linked, unaltered, and one command at a time.

use super::Notes;
use countersign_engine::port::Head;
use countersign_engine::rows::RecordRow;
use countersign_kernel::{EventId, InstanceId};
use countersign_ledger::record::Header;
use countersign_ledger::{ZERO_HASH, check_link};
use serde_json::{Map, Value};

/// A record, read.
pub struct Entry {
    pub sequence: u64,
    pub event_id: EventId,
    pub action_ref: String,
    pub actor_ref: String,
    pub at: i64,
    pub registry_seq: u64,
    /// Nothing, where the record was purged.
    pub payload: Map<String, Value>,
    pub purged: bool,
    pub record_hash: String,
    pub header: Header,
}

impl Entry {
    pub fn text(&self, name: &str) -> Option<&str> {
        self.payload.get(name).and_then(Value::as_str)
    }

    /// The step or the chain that it names.
    pub fn gate_id(&self) -> Option<&str> {
        self.text("chain_id").or_else(|| self.text("step_id"))
    }

    pub fn texts(&self, name: &str) -> Vec<&str> {
        self.payload.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
    }
}

/// What can be read of them; what is wrong is noted.
pub fn check(instance_id: InstanceId, rows: &[RecordRow], head: &Head, notes: &mut Notes<'_>) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let (mut sequence, mut hash) = (0, ZERO_HASH);
    for row in rows {
        let (header, own) = match check_link((sequence > 0).then_some((sequence, hash)), &row.record) {
            Ok(checked) => checked,
            Err(error) => {
                notes.note(format!("record {}: {error}", row.event_id));
                return entries;
            }
        };
        (sequence, hash) = (header.sequence, own);
        let columns = row.event_id.to_string() == header.event_id
            && row.instance_id == instance_id
            && header.instance_id == instance_id.to_string()
            && row.sequence == header.sequence
            && row.action_ref == header.action_ref
            && row.actor_ref == header.actor_ref
            && row.recorded_at.0 == header.recorded_at_us;
        notes.require(columns, || format!("record {sequence}: the columns do not repeat the header"));
        let payload = match row.record.payload().map(serde_json::from_slice) {
            None => Map::new(),
            Some(Ok(Value::Object(payload))) => payload,
            Some(_) => {
                notes.note(format!("record {sequence}: the payload is no JSON object"));
                continue;
            }
        };
        if let Some(before) = entries.last() {
            notes.require(before.event_id < row.event_id, || {
                format!("record {sequence}: its id sorts before its elder's")
            });
            notes.require(before.at <= header.recorded_at_us, || format!("record {sequence}: time went back"));
            notes.require(before.registry_seq <= header.registry_seq, || {
                format!("record {sequence}: decided under an older registry than the one before it")
            });
        }
        entries.push(Entry {
            sequence,
            event_id: row.event_id,
            action_ref: header.action_ref.clone(),
            actor_ref: header.actor_ref.clone(),
            at: header.recorded_at_us,
            registry_seq: header.registry_seq,
            payload,
            purged: row.record.is_purged(),
            record_hash: own.to_string(),
            header,
        });
    }
    let last_time = rows.last().map_or(0, |row| row.recorded_at.0);
    let at_head = head.sequence == sequence && head.record_hash == hash && head.last_time.0 == last_time;
    notes.require(at_head, || format!("its row stands at {head:?}, its last record is {sequence} at {last_time}"));
    check_commands(&entries, notes);
    entries
}

/// Records share a time only within one command, and two commands never share one.
fn check_commands(entries: &[Entry], notes: &mut Notes<'_>) {
    for command in entries.chunk_by(|a, b| a.at == b.at) {
        let actions: Vec<&str> = command.iter().map(|entry| entry.action_ref.as_str()).collect();
        notes.require(is_one_command(&actions), || {
            format!("record {}: {actions:?} bear one time, but are not one command", command[0].sequence)
        });
    }
}

fn is_one_command(actions: &[&str]) -> bool {
    match actions {
        // What never stands alone.
        ["chain_initiated" | "chain_withdrawn" | "chain_resolved" | "moot_gate_recalled"] => false,
        ["step_approved" | "step_rejected" | "step_withdrawn"] => false,
        [_] => true,
        ["chain_initiated", "gate_opened"] => true,
        ["chain_withdrawn", "gate_decided", rest @ ..]
        | ["step_approved" | "step_rejected" | "step_withdrawn", "gate_decided", "chain_resolved", rest @ ..] => {
            rest.iter().all(|action| *action == "step_withdrawn")
        }
        ["step_approved" | "step_rejected" | "step_withdrawn", "gate_decided"] => true,
        ["transition_fired", rest @ ..] => {
            rest.iter().all(|action| matches!(*action, "chain_resolved" | "moot_gate_recalled" | "step_withdrawn"))
        }
        // The first of all: the engine itself, and its administrator.
        ["actor_registered", "actor_registered", "actor_registered", rest @ ..] => {
            rest.iter().all(|action| *action == "grant_made")
        }
        _ => false,
    }
}
