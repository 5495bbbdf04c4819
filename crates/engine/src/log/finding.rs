//! What verifying found: the codes are those of `spec/checks.md`.

use crate::rows::RecordRow;
use countersign_kernel::{EventId, InstanceId};
use std::collections::{BTreeMap, HashSet};

/// Findings beyond this are counted, not kept.
pub(super) const KEPT_FINDINGS: usize = 1000;

/// Something that is not as it was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub code: &'static str,
    pub event_id: Option<EventId>,
    /// The instance whose records or rows it is about.
    pub instance_id: Option<InstanceId>,
    pub detail: String,
}

/// What a finding is about.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct About {
    event_id: Option<EventId>,
    instance_id: Option<InstanceId>,
}

impl About {
    pub const LOG: About = About { event_id: None, instance_id: None };

    pub fn event(event_id: EventId) -> About {
        About { event_id: Some(event_id), instance_id: None }
    }

    pub fn of(event_id: Option<EventId>, instance_id: Option<InstanceId>) -> About {
        About { event_id, instance_id }
    }
}

impl From<InstanceId> for About {
    fn from(instance_id: InstanceId) -> About {
        About { event_id: None, instance_id: Some(instance_id) }
    }
}

impl From<&RecordRow> for About {
    fn from(row: &RecordRow) -> About {
        About { event_id: Some(row.event_id), instance_id: Some(row.instance_id) }
    }
}

/// The first findings, how many there were, and which instances they concern.
#[derive(Default)]
pub(super) struct Findings {
    pub kept: Vec<Finding>,
    pub found: u64,
    /// Each with its first finding.
    pub damaged: BTreeMap<InstanceId, String>,
    /// Two checks may find the same fault of a record: it counts once.
    seen: HashSet<(&'static str, EventId)>,
}

impl Findings {
    pub fn find(&mut self, code: &'static str, about: impl Into<About>, detail: String) {
        let About { event_id, instance_id } = about.into();
        if let Some(instance_id) = instance_id {
            self.damaged.entry(instance_id).or_insert_with(|| format!("{code}: {detail}"));
        }
        if let Some(event_id) = event_id
            && self.kept.len() < KEPT_FINDINGS
            && !self.seen.insert((code, event_id))
        {
            return;
        }
        self.found += 1;
        if self.kept.len() < KEPT_FINDINGS {
            self.kept.push(Finding { code, event_id, instance_id, detail });
        }
    }

    pub fn extend(&mut self, findings: impl IntoIterator<Item = Finding>) {
        for Finding { code, event_id, instance_id, detail } in findings {
            self.find(code, About::of(event_id, instance_id), detail);
        }
    }
}
