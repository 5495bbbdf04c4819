//! Approval steps: every approval that was ever asked of anybody.

use super::auth::Caller;
use super::openapi::Refused;
use super::query::{Axis, List, Params};
use super::{App, Read, process_view, time};
use axum::Json;
use axum::extract::State;
use countersign_client::wire;
use countersign_engine::port::StepQuery;
use countersign_engine::rows::{StepEnd, StepRow};
use countersign_kernel::machine::StepState;
use countersign_kernel::{InstanceId, StepId};

pub struct StepList;

impl List for StepList {
    const TAG: u8 = b's';
    const AXES: &'static [Axis] = &[
        Axis::Text("step_id"),
        Axis::Text("instance_id"),
        Axis::Text("subject_ref"),
        Axis::Text("approver_ref"),
        Axis::Text("submitter_ref"),
        Axis::Text("scope"),
        Axis::Word("state", &["Pending", "Approved", "Rejected", "Withdrawn"]),
        Axis::Time("submitted_after"),
        Axis::Time("submitted_before"),
        Axis::Time("decided_after"),
        Axis::Time("decided_before"),
        Axis::Time("withdrawn_after"),
        Axis::Time("withdrawn_before"),
    ];
}

/// Approval steps, in the order in which they were submitted. Needs `workflows:read`; with `workflows:read:<definition>`, `runs:read` or
/// `runs:read:<definition>` those of these processes and runs.
#[utoipa::path(get, path = "/v1/approval-steps", tag = "processes", params(Params<StepList>),
    responses((status = 200, body = wire::Page<wire::ApprovalStep>), Refused))]
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    params: Params<StepList>,
) -> Read<wire::Page<wire::ApprovalStep>> {
    let query = StepQuery {
        step_id: params.id("step_id", StepId::parse),
        instance_id: params.id("instance_id", InstanceId::parse),
        subject_ref: params.text("subject_ref"),
        approver_ref: params.text("approver_ref"),
        submitter_ref: params.text("submitter_ref"),
        scope: params.text("scope"),
        state: params.text("state"),
        submitted: params.range("submitted_"),
        decided: params.range("decided_"),
        withdrawn: params.range("withdrawn_"),
        sight: None,
    };
    let engine = app.engine()?;
    let rows = engine.read_approval_steps(&caller.actor_ref, &query, &params.page()?).await?;
    let reasons = engine.opening_reasons(&rows).await?;
    let shown = |row: StepRow| {
        let reason = reasons.get(&row.gate_id).cloned();
        Ok(to_wire(row, reason))
    };
    params.answer(rows, |row| row.step_id.0, shown).map(Json)
}

fn to_wire(row: StepRow, reason: Option<String>) -> wire::ApprovalStep {
    let End { decided_by, decided_at, decision_reason, withdrawn_by, withdrawn_at, withdrawal_reason } =
        End::of(row.state, row.ended);
    let on_behalf_of = process_view::on_behalf_of(decided_by.as_ref(), &row.approver_ref);
    wire::ApprovalStep {
        // A step of its own is its own gate; a step of a quorum belongs to the chain's.
        chain_id: (row.gate_id != row.step_id.0).then(|| row.gate_id.to_string()),
        step_id: row.step_id.to_string(),
        subject_ref: row.subject_ref,
        approver_ref: row.approver_ref,
        submitter_ref: row.submitter_ref,
        scope: row.scope,
        submitted_at: time::format(row.submitted_at),
        reason,
        state: state(row.state),
        decided_by,
        on_behalf_of,
        decided_at,
        decision_reason,
        withdrawn_by,
        withdrawn_at,
        withdrawal_reason,
        instance_id: Some(row.instance_id.to_string()),
        action: Some(row.action),
    }
}

/// How a step ended, in the words of the wire.
#[derive(Default)]
pub struct End {
    pub decided_by: Option<String>,
    pub decided_at: Option<String>,
    pub decision_reason: Option<String>,
    pub withdrawn_by: Option<String>,
    pub withdrawn_at: Option<String>,
    pub withdrawal_reason: Option<String>,
}

impl End {
    pub fn of(state: StepState, ended: Option<StepEnd>) -> End {
        let Some(StepEnd { by, at, reason }) = ended else { return End::default() };
        let (by, at) = (Some(by), Some(time::format(at)));
        if state == StepState::Withdrawn {
            End { withdrawn_by: by, withdrawn_at: at, withdrawal_reason: reason, ..End::default() }
        } else {
            End { decided_by: by, decided_at: at, decision_reason: reason, ..End::default() }
        }
    }
}

pub fn state(state: StepState) -> wire::ApprovalState {
    match state {
        StepState::Pending => wire::ApprovalState::Pending,
        StepState::Approved => wire::ApprovalState::Approved,
        StepState::Rejected => wire::ApprovalState::Rejected,
        StepState::Withdrawn => wire::ApprovalState::Withdrawn,
    }
}
