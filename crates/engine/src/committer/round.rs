//! The batch that one round of deciding builds up, and the answers kept under idempotency keys.

use super::Answer;
use crate::outcome::{Call, Outcome};
use crate::port::{Batch, StoreError, Unit};
use crate::rows::IdempotencyRow;
use crate::store_failure;
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::{Digest, EventId, InstanceId, Time};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::{HashMap, HashSet};

/// The batch that a round builds up.
pub(super) struct Round {
    pub batch: Batch,
    pub unit_of: HashMap<InstanceId, usize>,
    /// Answers kept under idempotency keys, from the store and from this round.
    pub recalled: HashMap<(String, String), IdempotencyRow>,
    /// Records whose content goes with this batch.
    pub purged: HashSet<EventId>,
    /// Instances to which this batch adds approval steps.
    pub opened: HashSet<InstanceId>,
}

impl Round {
    pub fn unit(&mut self, instance_id: InstanceId, expected_sequence: u64, expected_beats: u64) -> usize {
        let units = &mut self.batch.units;
        *self.unit_of.entry(instance_id).or_insert_with(|| {
            let mut unit = Unit::new(instance_id, expected_sequence);
            unit.expected_beats = expected_beats;
            units.push(unit);
            units.len() - 1
        })
    }

    pub fn replay(&self, call: &Call) -> Option<Answer> {
        let idempotency = call.idempotency.as_ref()?;
        let row = self.recalled.get(&(call.actor_ref.clone(), idempotency.key.clone()))?;
        Some(replay(row, idempotency.request_digest))
    }

    pub fn unit_of_key(&self, call: &Call) -> Option<usize> {
        let key = &call.idempotency.as_ref()?.key;
        let used = |row: &IdempotencyRow| row.actor_ref == call.actor_ref && row.key == *key;
        self.batch.units.iter().position(|unit| unit.idempotency.iter().any(used))
    }

    pub fn keep(
        &mut self,
        call: &Call,
        instance_id: InstanceId,
        request_digest: Digest,
        answer: &Outcome,
        expires_at: Time,
    ) -> Result<IdempotencyRow, Refusal> {
        let key = call.idempotency.as_ref().map(|i| i.key.as_str()).unwrap_or_default();
        let row = idempotency_row(call, key, instance_id, request_digest, answer, expires_at)?;
        self.recalled.insert((row.actor_ref.clone(), row.key.clone()), row.clone());
        Ok(row)
    }
}

pub(super) fn idempotency_row(
    call: &Call,
    key: &str,
    instance_id: InstanceId,
    request_digest: Digest,
    answer: &Outcome,
    expires_at: Time,
) -> Result<IdempotencyRow, Refusal> {
    Ok(IdempotencyRow {
        actor_ref: call.actor_ref.clone(),
        key: key.to_owned(),
        instance_id,
        request_digest,
        answer: kept_answer(answer)?,
        expires_at,
    })
}

/// An answer as it is kept under an Idempotency-Key. One that cannot be written could not be given again.
pub(crate) fn kept_answer<T: Serialize>(answer: &T) -> Result<String, Refusal> {
    serde_json::to_string(answer).map_err(|error| {
        let detail =
            format!("the answer cannot be kept under its Idempotency-Key ({error}); read before you try again");
        Refusal::new(Code::RecordingFailure, detail)
    })
}

pub(super) fn replay(row: &IdempotencyRow, request_digest: Digest) -> Answer {
    replayed(row, request_digest)
}

/// The answer kept under a key, if it was used for the same request.
pub(crate) fn replayed<T: DeserializeOwned>(row: &IdempotencyRow, request_digest: Digest) -> Result<T, Refusal> {
    if row.request_digest != request_digest {
        let detail = "this Idempotency-Key was used for another request; use a new key";
        return Err(Refusal::new(Code::Conflict, detail).at("Idempotency-Key"));
    }
    serde_json::from_str(&row.answer)
        .map_err(|error| store_failure(&StoreError::Corrupt(format!("kept answer of key {}: {error}", row.key))))
}
