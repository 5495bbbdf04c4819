//! Corrections (MP-D2): T8r and T12r open a new cycle of a step that was closed. Nothing of what closed it changes: it is
//! set beside the new cycle, with the record that closed it and the output it had.

use super::Action;
use super::flow::{By, Flow, SYSTEM, broken};
use super::guard::{Approval, Given};
use crate::Time;
use crate::id::{EventId, StepId};
use crate::lifecycle::{ActorClass, StepCode};
use crate::plan::{Micros, Order, StepSeq, Work};
use crate::refusal::Refusal;
use std::sync::Arc;

/// The gate that every reopening needs.
pub const REOPEN: &str = "reopen";

/// The record that closed the step, and what it yielded: only the store knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prior {
    pub event_id: EventId,
    pub actor_ref: String,
    pub at: Time,
    pub output: Option<Arc<str>>,
}

/// One reopening: what was closed, and why it is opened again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Correction {
    /// Counted from 1.
    pub cycle: u32,
    pub from: StepCode,
    pub approval_id: StepId,
    pub reason: CorrectionReason,
    pub prior: Prior,
    pub overdue_first_at: Option<Time>,
    pub sla_breach: Option<Micros>,
}

/// The correction vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CorrectionReason {
    DataError,
    PolicyChange,
    DownstreamDependencyFailed,
    RegulatoryRecall,
}

impl CorrectionReason {
    pub const ALL: &'static [CorrectionReason] = &[
        CorrectionReason::DataError,
        CorrectionReason::PolicyChange,
        CorrectionReason::DownstreamDependencyFailed,
        CorrectionReason::RegulatoryRecall,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            CorrectionReason::DataError => "data_error",
            CorrectionReason::PolicyChange => "policy_change",
            CorrectionReason::DownstreamDependencyFailed => "downstream_dependency_failed",
            CorrectionReason::RegulatoryRecall => "regulatory_recall",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.as_str() == text)
    }
}

pub struct Wish<'a> {
    pub approval_id: Option<&'a str>,
    pub reason: Option<&'a str>,
    pub prior: Option<&'a Prior>,
}

/// T8r or T12r: the step's person goes on with it; a worker's step goes back to its queue.
pub fn reopen(flow: &mut Flow<'_, '_, '_>, seq: StepSeq, wish: &Wish<'_>) -> Result<Action, Refusal> {
    let by = By(ActorClass::Reviewer, "step_reopen_for_correction");
    let whole = flow.run.plan.step_of_task(seq);
    // What was declared impossible blocks its step: the approval is the step's.
    let gate = format!("{REOPEN}:{}", flow.run.step_name(whole.unwrap_or(seq)));
    let approval = Approval { gate: &gate, id: wish.approval_id, is_named: true };
    let given =
        Given { correction_reason: wish.reason, approval: Some(approval), prior: wish.prior, ..Given::default() };
    let fired = flow.fire(seq, StepCode::InProgress, by, &given)?;
    let persons = flow.spec(seq).is_some_and(|spec| matches!(spec.work, Work::Human { .. }));
    let approval_id = flow.spend(&approval)?;
    let reason = wish.reason.and_then(CorrectionReason::parse).ok_or_else(broken)?;
    let prior = prior_of(flow, seq, wish.prior).cloned().ok_or_else(broken)?;
    let from = flow.state(seq).unwrap_or(StepCode::Completed);

    let (now, promised) = (flow.now(), flow.spec(seq).and_then(|spec| spec.deadline));
    let cell = flow.edit(seq)?;
    cell.token = None;
    // A new cycle begins with all its attempts and all its time.
    let unknown = cell.live.as_ref().is_some_and(|live| live.effect_unknown);
    cell.live = Some(Box::new(super::Live { effect_unknown: unknown, ..super::Live::default() }));
    let docket = cell.docket.get_or_insert_default();
    docket.cycle += 1;
    docket.declared_at = None;
    docket.deadline = promised.map(|length| now.after(length));
    let correction = Correction {
        cycle: docket.cycle,
        from,
        approval_id,
        reason,
        prior,
        overdue_first_at: docket.overdue_first_at,
        sla_breach: docket.sla_breach,
    };
    if let Some(acted) = &mut flow.acted {
        acted.approval_id = Some(approval_id);
        acted.correction = Some(correction);
    }
    flow.make(fired)?;
    if from == StepCode::Completed {
        hold_followers_up(flow, seq)?;
    }
    if !persons {
        flow.move_step(seq, StepCode::Ready, By(SYSTEM, "unclaimed"))?;
        flow.edit(seq)?.live.get_or_insert_default().next_run_at = Some(now);
        if flow.has_pins() && whole.is_none() {
            flow.ask_survey(seq)?;
        }
    }
    Ok(Action::StepReopened)
}

/// What closed the step, as it is kept; nothing is reopened without it.
pub fn prior_of<'p>(flow: &Flow<'_, '_, '_>, seq: StepSeq, prior: Option<&'p Prior>) -> Option<&'p Prior> {
    let cell = flow.cell(seq);
    let closed_at = cell.and_then(|cell| match cell.state {
        StepCode::Completed => cell.completed_at,
        _ => cell.docket.as_ref().and_then(|docket| docket.declared_at),
    });
    prior.filter(|prior| Some(prior.at) == closed_at)
}

/// Steps that have not begun wait for the correction, those that are ready again (X17); those that have, go on from what was
/// there.
fn hold_followers_up(flow: &mut Flow<'_, '_, '_>, seq: StepSeq) -> Result<(), Refusal> {
    let run = flow.run;
    if run.plan.order == Order::Linear {
        flow.head.current = flow.head.current.min(seq);
        // What was to begin behind it does not.
        if flow.is_surveyed() {
            flow.drop_survey()?;
        }
        let steps = StepSeq::try_from(run.plan.steps.len()).unwrap_or(StepSeq::MAX);
        for later in seq + 1..steps {
            hold_up(flow, later)?;
        }
        if seq + 1 < steps && flow.state(seq + 1) == Some(StepCode::NotStarted) {
            flow.edit(seq + 1)?.open_deps += 1;
        }
        return Ok(());
    }
    for follower in run.plan.dependents(seq) {
        hold_up(flow, *follower)?;
        if flow.state(*follower) == Some(StepCode::NotStarted) {
            flow.edit(*follower)?.open_deps += 1;
        }
    }
    Ok(())
}

/// X17, where its turn has come and nobody has begun with it. Whoever was in charge is named anew when its turn comes again.
fn hold_up(flow: &mut Flow<'_, '_, '_>, seq: StepSeq) -> Result<(), Refusal> {
    let untouched = |cell: &super::Cell| cell.is_offered() && cell.details().started_at.is_none();
    if !flow.cell(seq).is_some_and(untouched) {
        return Ok(());
    }
    flow.move_step(seq, StepCode::NotStarted, By(SYSTEM, "predecessor_reopened"))?;
    let cell = flow.edit(seq)?;
    cell.live = None;
    if let Some(docket) = &mut cell.docket {
        (docket.pic, docket.deadline) = (None, None);
    }
    if cell.docket.as_deref() == Some(&super::Docket::default()) {
        cell.docket = None;
    }
    Ok(())
}
