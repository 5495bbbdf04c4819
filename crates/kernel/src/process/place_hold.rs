//! `place_hold`: keeps a record of this process from being purged, whatever state the process is in.

use super::{Context, Event, EventBody, Process};
use crate::refusal::Refusal;
use crate::registry::scopes;
use crate::retention::PlaceHold;

pub fn decide(process: Option<&Process>, command: &PlaceHold, ctx: &mut Context<'_>) -> Result<Vec<Event>, Refusal> {
    command.check_shape()?;
    ctx.require_scope(scopes::AUDIT_HOLD, None)?;
    let record = command.record_of(process.map(|process| process.instance_id))?;
    let hold_id = ctx.ids.make();
    Ok(vec![ctx.by_caller(EventBody::HoldPlaced {
        hold_id,
        record_ref: record.event_id,
        reason: command.reason.clone(),
        case_ref: command.case_ref.clone(),
    })])
}
