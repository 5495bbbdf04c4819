//! Destroyed content: only what a `record_purged` names, only after its time, never under a hold. One per chain.

use crate::bytes::{Digest, Id};
use crate::finding::{Claim, Code, Findings, PARTIALLY_PURGED, PURGED};
use crate::json::Value;
use crate::record::{Action, Header, Record};
use std::collections::{HashMap, HashSet};

#[derive(Debug, Default)]
pub struct Retention {
    /// Records without content that no `record_purged` has named yet.
    unexplained: HashMap<Id, Header>,
    explained: HashSet<Id>,
    /// Active holds: hold → record.
    holds: HashMap<String, String>,
}

impl Retention {
    /// Takes the next record of the chain.
    pub fn take(&mut self, record: &Record, findings: &mut Findings) {
        let header = &record.header;
        if record.content.is_none() {
            return self.take_purged(header, findings);
        }
        let Some(payload) = record.payload() else { return };
        let taken = match header.action {
            Action::HoldPlaced => self.place(header, payload),
            Action::HoldReleased => self.release(payload),
            Action::RecordPurged => self.explain(header, payload, findings),
            _ => Some(()),
        };
        if taken.is_none() {
            let detail = format!("the payload is not that of a `{}`", header.action.as_str());
            findings.find(Code::BundleForm, header, detail);
        }
    }

    fn take_purged(&mut self, header: &Header, findings: &mut Findings) {
        findings.checked(Claim::Retention);
        findings.unverifiable(Claim::Identity);
        let detail =
            format!("the content of `{}` (sequence {}) was destroyed", header.action.as_str(), header.sequence);
        findings.note(PURGED, Some(header.event_id), detail);
        if header.is_registry() || header.is_governance() || header.action == Action::RecordPurged {
            let detail = "registry records and records of a purge are never purged, and this one has no content";
            findings.find(Code::DestructionInvalid, header, detail);
            return;
        }
        if matches!(header.action, Action::HoldPlaced | Action::HoldReleased) {
            findings.unverifiable(Claim::Retention);
            let detail = "a hold was purged: on what it was, and how long, cannot be told";
            findings.note(PARTIALLY_PURGED, Some(header.event_id), detail);
        }
        self.unexplained.insert(header.event_id, header.clone());
    }

    fn place(&mut self, header: &Header, payload: &Value) -> Option<()> {
        payload.text("reason")?;
        if payload.text("instance_id")? != header.instance_id.to_string() {
            return None;
        }
        self.holds.insert(payload.text("hold_id")?.to_owned(), payload.text("record_ref")?.to_owned());
        Some(())
    }

    /// A release counts only for the hold and the record it names.
    fn release(&mut self, payload: &Value) -> Option<()> {
        let (hold, record) = (payload.text("hold_id")?, payload.text("record_ref")?);
        if self.holds.get(hold).is_some_and(|held| held == record) {
            self.holds.remove(hold);
        }
        Some(())
    }

    fn explain(&mut self, header: &Header, payload: &Value, findings: &mut Findings) -> Option<()> {
        findings.checked(Claim::Retention);
        let event_id = Id::parse(payload.text("event_id")?)?;
        let stated_until = match payload.get("retention_until_us")? {
            Value::Null => None,
            value => Some(value.as_int()?),
        };
        let mut find = |detail: String| findings.find(Code::DestructionInvalid, header, detail);
        let Some(destroyed) = self.unexplained.remove(&event_id) else {
            let why = if self.explained.contains(&event_id) {
                "was purged before"
            } else {
                "is not a record without content before it"
            };
            find(format!("it names {event_id}, which {why}"));
            return Some(());
        };
        self.explained.insert(event_id);
        if !names(payload, &destroyed) || stated_until != destroyed.retention_until_us {
            find(format!("it does not describe the record {event_id} as that record's header does"));
        }
        match destroyed.retention_until_us {
            None => find(format!("{event_id} was to be kept without end")),
            Some(until) if header.recorded_at_us < until => {
                find(format!(
                    "{event_id} was to be kept until {until} µs, it was purged at {} µs",
                    header.recorded_at_us
                ));
            }
            Some(_) => {}
        }
        let held = self.holds.iter().find(|(_, record)| **record == event_id.to_string());
        if let Some((hold, _)) = held {
            find(format!("{event_id} was purged while the hold {hold} was active"));
        }
        Some(())
    }

    /// At the end of the chain: what nobody accounts for.
    pub fn finish(&self, findings: &mut Findings) {
        let mut rest: Vec<&Header> = self.unexplained.values().collect();
        rest.sort_by_key(|header| header.log_index);
        for header in rest {
            let detail = "its content is gone, and no later `record_purged` names it";
            findings.find(Code::DestructionInvalid, header, detail);
        }
    }
}

/// The purge repeats the header of what it destroyed.
fn names(payload: &Value, destroyed: &Header) -> bool {
    let digest = |name| payload.text(name).and_then(Digest::parse);
    payload.text("instance_id") == Some(&destroyed.instance_id.to_string())
        && payload.int("sequence").and_then(|sequence| u64::try_from(sequence).ok()) == Some(destroyed.sequence)
        && payload.text("action_ref") == Some(destroyed.action.as_str())
        && payload.text("actor_ref") == Some(&destroyed.actor_ref)
        && digest("record_hash") == Some(destroyed.record_hash)
        && digest("attestation_digest") == Some(destroyed.attestation_digest)
        && payload.text("policy_ref") == Some(&destroyed.policy_ref)
}
