//! The caller's in-tray: what waits for their decision. Everybody may see their own.

use super::auth::Caller;
use super::openapi::Refused;
use super::query::{Axis, List, Params};
use super::{App, Read, time};
use axum::Json;
use axum::extract::State;
use countersign_client::wire;
use countersign_engine::rows::{AssignmentRow, StepRow};

pub struct InboxList;

impl List for InboxList {
    const TAG: u8 = b'i';
    const AXES: &'static [Axis] = &[];
}

/// What waits for the caller. Needs no scope.
#[utoipa::path(get, path = "/v1/inbox", tag = "processes", params(Params<InboxList>),
    responses((status = 200, body = wire::Page<wire::InboxItem>), Refused))]
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    params: Params<InboxList>,
) -> Read<wire::Page<wire::InboxItem>> {
    let rows = app.engine()?.inbox(&caller.actor_ref, &params.page()?).await?;
    params.answer(rows, |(assignment, _)| assignment.assignment_id.0, |row| Ok(to_wire(row))).map(Json)
}

fn to_wire((assignment, step): (AssignmentRow, StepRow)) -> wire::InboxItem {
    // A step's subject is `<subject>:<action>`; the in-tray shows the two apart.
    let subject_ref = step.subject_ref.strip_suffix(&step.action).and_then(|s| s.strip_suffix(':'));
    let subject_ref = subject_ref.unwrap_or(&step.subject_ref).to_owned();
    wire::InboxItem {
        assignment_id: assignment.assignment_id.to_string(),
        task_ref: assignment.task_ref.to_string(),
        instance_id: step.instance_id.to_string(),
        action: step.action,
        scope: step.scope,
        subject_ref,
        assigned_at: time::format(assignment.assigned_at),
        due_at: None,
    }
}
