//! Assignments: every entry that ever stood in somebody's in-tray.

use super::auth::Caller;
use super::openapi::Refused;
use super::query::{Axis, List, Params};
use super::{App, Read, time};
use axum::Json;
use axum::extract::State;
use countersign_client::wire;
use countersign_engine::port::AssignmentQuery;
use countersign_engine::rows::AssignmentRow;
use countersign_kernel::machine::AssignmentStatus;
use countersign_kernel::{AssignmentId, StepId};

pub struct AssignmentList;

impl List for AssignmentList {
    const TAG: u8 = b'a';
    const AXES: &'static [Axis] = &[
        Axis::Text("assignment_id"),
        Axis::Text("task_ref"),
        Axis::Text("assignee_ref"),
        Axis::Word("status", &["Active", "Recalled", "Transferred"]),
    ];
}

/// Assignments, in the order in which they were made. Needs `workflows:read`; with `workflows:read:<definition>`, `runs:read` or
/// `runs:read:<definition>` those of these processes and runs.
#[utoipa::path(get, path = "/v1/assignments", tag = "processes", params(Params<AssignmentList>),
    responses((status = 200, body = wire::Page<wire::Assignment>), Refused))]
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    params: Params<AssignmentList>,
) -> Read<wire::Page<wire::Assignment>> {
    let query = AssignmentQuery {
        assignment_id: params.id("assignment_id", AssignmentId::parse),
        task_ref: params.id("task_ref", StepId::parse),
        assignee_ref: params.text("assignee_ref"),
        status: params.text("status"),
        sight: None,
    };
    let rows = app.engine()?.read_assignments(&caller.actor_ref, &query, &params.page()?).await?;
    params.answer(rows, |(row, _)| row.assignment_id.0, |(row, _)| Ok(to_wire(row))).map(Json)
}

fn to_wire(row: AssignmentRow) -> wire::Assignment {
    let ended_at = |status| row.ended_at.filter(|_| row.status == status).map(time::format);
    wire::Assignment {
        assignment_id: row.assignment_id.to_string(),
        task_ref: row.task_ref.to_string(),
        recalled_at: ended_at(AssignmentStatus::Recalled),
        transferred_at: ended_at(AssignmentStatus::Transferred),
        assigned_at: time::format(row.assigned_at),
        status: status(row.status),
        assignee_ref: row.assignee_ref,
    }
}

pub fn status(status: AssignmentStatus) -> wire::AssignmentStatus {
    match status {
        AssignmentStatus::Active => wire::AssignmentStatus::Active,
        AssignmentStatus::Recalled => wire::AssignmentStatus::Recalled,
        AssignmentStatus::Transferred => wire::AssignmentStatus::Transferred,
    }
}
