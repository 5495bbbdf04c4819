//! Holds on the registry's own records, and exports of a window of time. Registry records are never purged; a hold on one
//! says that somebody relies on it, and is recorded like any other.

use super::decide::require_permission;
use super::{EventBody, Registry, scopes};
use crate::id::{IdSource, InstanceId};
use crate::refusal::Refusal;
use crate::retention::{PlaceHold, ReleaseHold};
use crate::{Digest, Time};

/// What a bundle of a window of time holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordExport {
    pub after: Option<Time>,
    pub before: Option<Time>,
    pub instances: u64,
    /// Where each instance's chain ends in it (`spec/bundle.md`).
    pub heads_digest: Digest,
}

pub fn place(
    registry: &Registry,
    command: &PlaceHold,
    actor_ref: &str,
    ids: &mut IdSource,
) -> Result<EventBody, Refusal> {
    command.check_shape()?;
    require_permission(registry, actor_ref, scopes::AUDIT_HOLD)?;
    let record = command.record_of(Some(InstanceId::REGISTRY))?;
    Ok(EventBody::HoldPlaced {
        hold_id: ids.make(),
        record_ref: record.event_id,
        reason: command.reason.clone(),
        case_ref: command.case_ref.clone(),
    })
}

pub fn release(registry: &Registry, command: &ReleaseHold, actor_ref: &str) -> Result<EventBody, Refusal> {
    command.check_shape()?;
    require_permission(registry, actor_ref, scopes::AUDIT_HOLD)?;
    let hold = command.hold_of(Some(InstanceId::REGISTRY))?;
    let reason = command.reason_for(!hold.released)?;
    Ok(EventBody::HoldReleased { hold_id: hold.hold_id, record_ref: hold.record_ref, reason })
}

pub fn export(registry: &Registry, command: &RecordExport, actor_ref: &str) -> Result<EventBody, Refusal> {
    require_permission(registry, actor_ref, scopes::AUDIT_READ)?;
    Ok(EventBody::EvidenceExported(*command))
}
