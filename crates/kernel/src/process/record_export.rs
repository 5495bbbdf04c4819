//! `export_evidence`: somebody takes the evidence of this process away. The record that says so is the last one of what
//! is taken, so that a tail which was cut off shows.

use super::{Context, Event, EventBody, Process};
use crate::refusal::Refusal;
use crate::registry::scopes;

pub fn decide(process: Option<&Process>, ctx: &Context<'_>) -> Result<Vec<Event>, Refusal> {
    ctx.require_scope(scopes::AUDIT_READ, None)?;
    process.ok_or_else(super::not_known)?;
    Ok(vec![ctx.by_caller(EventBody::EvidenceExported)])
}
