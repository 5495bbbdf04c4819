//! Holds and purges: what is asked, and what the kernel is told about the record that it is asked about. Content itself
//! never comes here: to decide whether it may go, nobody has to read it.

use crate::id::{EventId, HoldId, InstanceId};
use crate::refusal::{Code, Refusal, require_optional_text, require_ref, require_text};
use crate::{Digest, Time};

/// The record that begins a process: its subject is repeated elsewhere.
pub const START: &str = "workflow_started";
/// The record that begins a run: its subject and its input are repeated elsewhere.
pub const RUN_START: &str = "run_started";
/// The record of a destruction. It stays for ever: it is what tells a lawful purge from a loss.
pub const DESTRUCTION: &str = "record_purged";

/// What the store knows of a record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RecordFacts {
    pub event_id: EventId,
    pub instance_id: InstanceId,
    pub sequence: u64,
    pub action_ref: String,
    pub actor_ref: String,
    pub record_hash: Digest,
    pub attestation_digest: Digest,
    pub policy_ref: String,
    /// `None`: kept without end.
    pub retention_until: Option<Time>,
    /// Its content is gone already.
    pub purged: bool,
    /// The hold that this record placed: while it stands, its own record says why.
    pub places: Option<HoldId>,
}

/// What the store knows of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldFacts {
    pub hold_id: HoldId,
    pub record_ref: EventId,
    pub instance_id: InstanceId,
    pub released: bool,
}

/// Keeps a record from being purged. Holds on one record are independent: it is held while any of them stands.
#[derive(Clone, Debug)]
pub struct PlaceHold {
    /// The event_id, as it was given.
    pub record_ref: String,
    pub reason: String,
    pub case_ref: Option<String>,
    /// `None`: there is no such record.
    pub record: Option<RecordFacts>,
}

#[derive(Clone, Debug)]
pub struct ReleaseHold {
    /// As it was given.
    pub hold_id: String,
    pub reason: Option<String>,
    /// `None`: there never was such a hold.
    pub hold: Option<HoldFacts>,
}

/// Destroys what a record says. That it was there, and by whom and when, stays.
#[derive(Clone, Debug)]
pub struct PurgeRecord {
    /// As it was given.
    pub event_id: String,
    /// `None`: there is no such record.
    pub record: Option<RecordFacts>,
    /// It is one of a run that has not ended.
    pub run_lives: bool,
}

impl PurgeRecord {
    pub fn of(event_id: &str) -> Self {
        PurgeRecord { event_id: event_id.to_owned(), record: None, run_lives: false }
    }
}

/// What stands in the place of a text that was purged with this record.
pub fn purged_text(event_id: EventId) -> String {
    format!("purged:{event_id}")
}

impl PlaceHold {
    /// What can be judged from the request alone.
    pub(crate) fn check_shape(&self) -> Result<(), Refusal> {
        require_text("record_ref", &self.record_ref)?;
        require_text("reason", &self.reason)?;
        self.case_ref.as_deref().map_or(Ok(()), |case_ref| require_ref("case_ref", case_ref))
    }

    /// The record, which must be one of this instance.
    pub(crate) fn record_of(&self, instance_id: Option<InstanceId>) -> Result<&RecordFacts, Refusal> {
        let record = self.record.as_ref().filter(|record| Some(record.instance_id) == instance_id);
        record.ok_or_else(|| no_record("record_ref"))
    }
}

impl ReleaseHold {
    pub(crate) fn check_shape(&self) -> Result<(), Refusal> {
        require_text("hold_id", &self.hold_id)
    }

    /// The hold on a record of this instance.
    pub(crate) fn hold_of(&self, instance_id: Option<InstanceId>) -> Result<&HoldFacts, Refusal> {
        let hold = self.hold.as_ref().filter(|hold| Some(hold.instance_id) == instance_id);
        hold.ok_or_else(|| Refusal::new(Code::NotKnown, "there is no hold with this hold_id").at("hold_id"))
    }

    /// Legal Hold's own order: a release of what was released is refused before its reason is looked at.
    pub(crate) fn reason_for(&self, active: bool) -> Result<String, Refusal> {
        if !active {
            return Err(Refusal::new(Code::AlreadyReleased, "this hold has been released already").at("hold_id"));
        }
        let reason = self.reason.as_deref().ok_or_else(|| Refusal::blank("reason"))?;
        require_optional_text("reason", Some(reason))?;
        Ok(reason.to_owned())
    }
}

/// Whether this JSON stands in the place of a value that was purged.
pub fn is_purged_value(json: &str) -> bool {
    let event_id = json.strip_prefix("\"purged:").and_then(|text| text.strip_suffix('"'));
    event_id.and_then(EventId::parse).is_some()
}

impl RecordFacts {
    /// Retained, and its time is over: at the very instant it ends, it is.
    pub(crate) fn require_eligible(&self, now: Time) -> Result<(), Refusal> {
        let refuse = |detail: String| Err(Refusal::new(Code::NotEligible, detail).at("event_id"));
        if self.purged {
            return refuse("the content of this record has been purged already".to_owned());
        }
        if self.instance_id == InstanceId::REGISTRY {
            return refuse("registry records are never purged: all other records are verified through them".to_owned());
        }
        if self.action_ref == DESTRUCTION {
            return refuse(format!("`{DESTRUCTION}` records are never purged: they prove that a purge was lawful"));
        }
        match self.retention_until {
            None => refuse(format!("under the policy `{}` it is kept without end", self.policy_ref)),
            Some(until) if now < until => {
                let left = left(until.0.saturating_sub(now.0));
                refuse(format!("its retention period (`{}`) has not elapsed: {left} are left", self.policy_ref))
            }
            Some(_) => Ok(()),
        }
    }
}

pub(crate) fn no_record(field: &str) -> Refusal {
    Refusal::new(Code::NotKnown, "there is no record with this event_id").at(field)
}

/// A length of time for people, rounded down; never nothing.
fn left(us: i64) -> String {
    let units = [(86_400_000_000, "days"), (3_600_000_000, "hours"), (60_000_000, "minutes"), (1_000_000, "seconds")];
    match units.into_iter().find(|(length, _)| us >= 2 * length) {
        Some((length, unit)) => format!("{} {unit}", us / length),
        None => format!("{us} microseconds"),
    }
}
