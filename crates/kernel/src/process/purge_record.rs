//! `purge_record`: destroys the content of a record whose retention has elapsed and which nobody holds. Holds and purges
//! of a record are commands on the same process, so the fence puts them in one order: a purge sees every hold before it.

use super::{Context, Event, EventBody, Process, not_known};
use crate::refusal::{Code, Refusal, require_text};
use crate::registry::scopes;
use crate::retention::{PurgeRecord, no_record};

/// How many holds a refusal names.
const NAMED: usize = 5;

pub fn decide(process: Option<&Process>, command: &PurgeRecord, ctx: &Context<'_>) -> Result<Vec<Event>, Refusal> {
    require_text("event_id", &command.event_id)?;
    ctx.require_scope(scopes::AUDIT_PURGE, None)?;
    let record = command.record.as_ref().ok_or_else(|| no_record("event_id"))?;
    record.require_eligible(ctx.now)?;
    if command.run_lives {
        let detail = "its run has not ended, and works with what its records say: they may be purged when it has";
        return Err(Refusal::new(Code::NotEligible, detail).at("event_id"));
    }
    let process = process.filter(|process| process.instance_id == record.instance_id).ok_or_else(not_known)?;
    let holds: Vec<String> = process
        .holds
        .iter()
        .filter(|(hold_id, held)| **held == record.event_id || record.places == Some(**hold_id))
        .map(|(hold_id, _)| hold_id.to_string())
        .collect();
    if !holds.is_empty() {
        let more = if holds.len() > NAMED { format!(" and {} more", holds.len() - NAMED) } else { String::new() };
        let named = holds[..holds.len().min(NAMED)].join(", ");
        let detail = format!("the record is held by {named}{more}: every hold must be released first");
        return Err(Refusal::new(Code::UnderLegalHold, detail).at("event_id"));
    }
    Ok(vec![ctx.by_caller(EventBody::RecordPurged { record: record.clone() })])
}
