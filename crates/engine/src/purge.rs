//! What a purge destroys. The record's own content goes as a whole; what it said may stand elsewhere too: a reason in the
//! row of an approval step or of a hold, the subject in the process and its steps, an answer kept under an idempotency key;
//! of a run its input, outputs and errors, and the data of events (`spec/run.md`, section 8).
//! All of it goes in the one transaction that records the purge. What stays is what the header keeps (who, what kind of
//! act, when) and what the process needs to go on: states, gates, names of approvers.

use crate::port::{LoadedRun, StepsOf, StoreError};
use crate::rows::{HeadText, RecordRow, StepRow, StepText, Write};
use countersign_kernel::plan::StepSeq;
use countersign_kernel::retention::{RUN_START, RecordFacts, START, purged_text};
use countersign_kernel::{HoldId, StepId, Time};
use countersign_ledger::record::Header;
use countersign_ledger::{parse_hex_digest, sha256};
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
            START | RUN_START => Some(StepsOf::Instance(self.row.instance_id)),
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
            RUN_START => {
                writes.extend(steps.iter().map(|step| Write::RedactStepSubject {
                    step_id: step.step_id,
                    text: format!("{text}:{}", step.action),
                }));
                writes.push(Write::RedactRunInput { instance_id, text: text.clone() });
                writes.push(Write::RedactRunKeys { instance_id, text: text.clone() });
                writes.push(Write::RedactRunHeadKeys { instance_id, text });
            }
            "gate_opened" if self.payload.contains_key("request_digest") => {
                let listed = self.entries("steps").filter_map(|step| step.get("step_id").and_then(Value::as_str));
                let listed = listed.filter_map(|text| Uuid::try_parse(text).ok());
                let steps = listed.chain(self.id("step_id")).map(StepId);
                writes.extend(steps.map(|step_id| Write::RedactStepRequest { step_id, text: text.clone() }));
            }
            "transition_fired" if self.payload.contains_key("effects") => {
                let (instance_id, created_at) = (self.row.instance_id, self.row.recorded_at);
                writes.push(Write::RedactOutbox { instance_id, created_at, text });
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

    /// Whether it can be a record of a run that is repeated in the run's own rows.
    pub fn is_of_run(&self) -> bool {
        self.row.action_ref == RUN_START
            || [
                "transitions",
                "run_transitions",
                "outputs",
                "errors",
                "event",
                "outbound_events",
                "effect",
                "pins",
                "yielded",
            ]
            .iter()
            .any(|member| self.payload.contains_key(*member))
    }

    /// What goes of a run besides. `keys_expire_at` is that of the answers to its workers, which hold what they were given.
    pub fn run_writes(&self, run: &LoadedRun, keys_expire_at: Time) -> Vec<Write> {
        let RecordRow { event_id, instance_id, recorded_at, .. } = *self.row;
        let text = purged_text(event_id);
        let mut writes = vec![Write::ForgetKeys { instance_id, expires_at: keys_expire_at }];
        let mut redact = |step_seq: Option<StepSeq>, what: StepText| {
            writes.extend(step_seq.map(|step_seq| Write::RedactRunStep {
                instance_id,
                step_seq,
                what,
                text: text.clone(),
            }));
        };
        // A step that was corrected since shows what the correction yielded.
        let shown = |seq: &StepSeq| run.steps.get(*seq as usize).is_some_and(|s| s.1.completed_at == Some(recorded_at));
        for (member, what) in [("outputs", StepText::Output), ("errors", StepText::Error)] {
            let seqs = self.entries(member).flat_map(|entry| places(entry, run.steps.len()));
            let seqs = seqs.filter_map(|(seq, _)| StepSeq::try_from(seq).ok());
            seqs.filter(|seq| what != StepText::Output || shown(seq)).for_each(|seq| redact(Some(seq), what));
        }
        if let Some(event) = self.payload.get("event") {
            // Steps that hold what the event brought, whether it woke them now or later.
            let woken = |data: &str| told(event, "data").is_some_and(|told| told.is(data));
            let held = (0..).zip(&run.steps).filter(|(_, (_, state))| state.event_data.as_deref().is_some_and(woken));
            held.for_each(|(step_seq, _)| redact(Some(step_seq), StepText::Event));
            if let Some(event_id) = event.get("id").and_then(Value::as_str) {
                let event_id = event_id.to_owned();
                writes.push(Write::RedactRunEvent { instance_id, event_id, text: text.clone() });
            }
        }
        if self.payload.contains_key("outputs") {
            writes.push(Write::RedactCorrection { instance_id, prior_event_id: event_id, text: text.clone() });
        }
        if let Some(visits) = self.visits() {
            writes.push(Write::Visits { instance_id, event_id, visits });
        }
        // What a step sent, and what its transitions told the world.
        if ["outbound_events", "transitions", "run_transitions"].iter().any(|member| self.payload.contains_key(*member))
        {
            writes.push(Write::RedactOutbox { instance_id, created_at: recorded_at, text: text.clone() });
        }
        if ["output", "output_digest"].iter().any(|member| self.payload.contains_key(*member)) {
            writes.push(Write::RedactRunHead { instance_id, what: HeadText::Output, text: text.clone() });
        }
        if run.head.runbook.is_some() {
            writes.push(Write::RedactRunHead { instance_id, what: HeadText::Runbook, text: text.clone() });
        }
        if self.payload.contains_key("last_error") {
            writes.push(Write::RedactRunHead { instance_id, what: HeadText::Error, text });
        }
        writes
    }

    /// What stays of it: which ways the steps went, and what a reopening went back on. No text of anybody's is in it.
    fn visits(&self) -> Option<String> {
        let mut kept = Map::new();
        kept.insert("transitions".to_owned(), self.payload.get("transitions")?.clone());
        kept.extend(self.payload.get("approval_id").map(|id| ("approval_id".to_owned(), id.clone())));
        if let Some(Value::Object(correction)) = self.payload.get("correction") {
            let named = ["cycle", "correction_reason", "prior_event_id"];
            let named = named.into_iter().filter_map(|name| Some((name.to_owned(), correction.get(name)?.clone())));
            kept.insert("correction".to_owned(), Value::Object(named.collect()));
        }
        Some(Value::Object(kept).to_string())
    }

    fn entries(&self, member: &str) -> impl Iterator<Item = &Value> {
        self.payload.get(member).and_then(Value::as_array).into_iter().flatten()
    }

    fn id(&self, member: &str) -> Option<Uuid> {
        self.payload.get(member).and_then(Value::as_str).and_then(|text| Uuid::try_parse(text).ok())
    }
}

pub fn place(value: &Value) -> Option<usize> {
    value.get("step_seq").and_then(Value::as_u64).and_then(|seq| usize::try_from(seq).ok())
}

/// The steps that share an entry, or the one whose it is.
pub fn places(entry: &Value, limit: usize) -> impl Iterator<Item = (usize, &Value)> {
    let seqs = match entry.get("step_seqs").and_then(Value::as_str) {
        Some(seqs) => ranges(seqs, limit),
        None => place(entry).into_iter().collect(),
    };
    seqs.into_iter().map(move |seq| (seq, entry))
}

/// `0-3,7`, below a limit.
pub fn ranges(text: &str, limit: usize) -> Vec<usize> {
    let span = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?.min(limit.saturating_sub(1)))
    };
    text.split(',').filter_map(span).flatten().collect()
}

/// A value as a record of a run tells it: in full, or by digest.
pub enum Told<'v> {
    Value(&'v Value),
    Digest(&'v str),
}

pub fn told<'v>(holder: &'v Value, name: &str) -> Option<Told<'v>> {
    let digest = || holder.get(format!("{name}_digest")).and_then(Value::as_str);
    holder.get(name).map(Told::Value).or_else(|| digest().map(Told::Digest))
}

impl Told<'_> {
    /// Whether the stored text is what was told.
    pub fn is(&self, text: &str) -> bool {
        match self {
            Told::Value(value) => serde_json::from_str::<Value>(text).is_ok_and(|stored| stored == **value),
            Told::Digest(digest) => sha256(&[text.as_bytes()]).to_string() == **digest,
        }
    }
}
