//! `release_hold`: ends one hold. Others on the same record stand.

use super::{Context, Event, EventBody, Process};
use crate::refusal::Refusal;
use crate::registry::scopes;
use crate::retention::ReleaseHold;

pub fn decide(process: Option<&Process>, command: &ReleaseHold, ctx: &Context<'_>) -> Result<Vec<Event>, Refusal> {
    command.check_shape()?;
    ctx.require_scope(scopes::AUDIT_HOLD, None)?;
    let hold = command.hold_of(process.map(|process| process.instance_id))?;
    // What the process itself holds is newer than what the store was asked.
    let active = process.is_some_and(|process| process.holds.contains_key(&hold.hold_id));
    let reason = command.reason_for(active)?;
    Ok(vec![ctx.by_caller(EventBody::HoldReleased { hold_id: hold.hold_id, record_ref: hold.record_ref, reason })])
}
