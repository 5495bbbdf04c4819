//! What a purge destroys. The record's own content goes as a whole; what it said may stand elsewhere too: a reason in the
//! row of an approval step or of a hold, the subject in the process and its steps, an answer kept under an idempotency key.
//! All of it goes in the one transaction that records the purge. What stays is what the header keeps (who, what kind of
//! act, when) and what the process needs to go on: states, gates, names of approvers.

use crate::port::{StepsOf, StoreError};
use crate::rows::{RecordRow, StepRow, Write};
use countersign_kernel::retention::{RecordFacts, START, purged_text};
use countersign_kernel::{HoldId, StepId, Time};
use countersign_ledger::parse_hex_digest;
use countersign_ledger::record::Header;
use serde_json::{Map, Value};
use uuid::Uuid;

/// What the kernel is told about a record.
pub fn facts(row: &RecordRow) -> Result<RecordFacts, StoreError> {
    let damaged = |what: String| StoreError::Corrupt(format!("record {}: {what}", row.event_id));
    let header = Header::parse(&row.record.header).map_err(|error| damaged(error.to_string()))?;
    let places = match row.action_ref.as_str() {
        "hold_placed" => Purge::of(row)?.and_then(|purge| purge.id("hold_id")).map(HoldId),
        _ => None,
    };
    let attestation_digest = parse_hex_digest(&header.attestation_digest);
    Ok(RecordFacts {
        event_id: row.event_id,
        instance_id: row.instance_id,
        sequence: row.sequence,
        action_ref: header.action_ref,
        actor_ref: header.actor_ref,
        record_hash: row.record.record_hash,
        attestation_digest: attestation_digest.ok_or_else(|| damaged("its attestation_digest is none".to_owned()))?,
        policy_ref: header.retention.policy_ref,
        retention_until: header.retention.retention_until_us.map(Time),
        purged: row.record.is_purged(),
        places,
    })
}

/// A record that is to be purged, read for what it repeats.
pub struct Purge<'r> {
    row: &'r RecordRow,
    payload: Map<String, Value>,
}

impl<'r> Purge<'r> {
    /// `None` where nothing is left to destroy.
    pub fn of(row: &'r RecordRow) -> Result<Option<Purge<'r>>, StoreError> {
        let Some(payload) = row.record.payload() else { return Ok(None) };
        match serde_json::from_slice(payload) {
            Ok(Value::Object(payload)) => Ok(Some(Purge { row, payload })),
            _ => Err(StoreError::Corrupt(format!("record {}: its payload is no JSON object", row.event_id))),
        }
    }

    /// The steps that must be known to say what is repeated.
    pub fn steps(&self) -> Option<StepsOf> {
        match self.row.action_ref.as_str() {
            START => Some(StepsOf::Instance(self.row.instance_id)),
            // A whole chain was withdrawn for one reason.
            "gate_decided" | "chain_withdrawn" if !self.payload.contains_key("step_id") => {
                self.id("chain_id").map(StepsOf::Gate)
            }
            _ => None,
        }
    }

    /// Everything that goes; `keys_expire_at` is when the answer of the record's command would have been forgotten.
    pub fn writes(&self, steps: &[StepRow], keys_expire_at: Time) -> Vec<Write> {
        let RecordRow { event_id, instance_id, .. } = *self.row;
        let text = purged_text(event_id);
        let mut writes =
            vec![Write::PurgeRecord { event_id }, Write::ForgetKeys { instance_id, expires_at: keys_expire_at }];
        let reason = self.payload.contains_key("reason");
        match self.row.action_ref.as_str() {
            START => {
                writes.extend(steps.iter().map(|step| Write::RedactStepSubject {
                    step_id: step.step_id,
                    text: format!("{text}:{}", step.action),
                }));
                writes.push(Write::RedactSubject { instance_id, text });
            }
            "gate_decided" | "step_approved" | "step_rejected" | "step_withdrawn" | "chain_withdrawn" if reason => {
                let ended = |step: &&StepRow| step.ended.as_ref().is_some_and(|end| end.at == self.row.recorded_at);
                let by_chain = steps.iter().filter(ended).map(|step| step.step_id);
                let named = self.id("step_id").map(StepId);
                writes.extend(
                    by_chain.chain(named).map(|step_id| Write::RedactStepReason { step_id, text: text.clone() }),
                );
            }
            "hold_placed" => {
                writes.extend(self.id("hold_id").map(|id| Write::RedactHold { hold_id: HoldId(id), text }));
            }
            "hold_released" => {
                writes.extend(self.id("hold_id").map(|id| Write::RedactRelease { hold_id: HoldId(id), text }));
            }
            _ => {}
        }
        writes
    }

    fn id(&self, member: &str) -> Option<Uuid> {
        self.payload.get(member).and_then(Value::as_str).and_then(|text| Uuid::try_parse(text).ok())
    }
}
