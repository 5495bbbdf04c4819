//! Rows of runs.

use super::{head_row_at, small};
use crate::select::run::STEP_STATE_COLUMNS;
use crate::value::{Columns, token};
use countersign_engine::port::{
    ChargedStep, Due, Head, HeldStep, InstanceHead, QueuedRun, ReadyStep, RunCopies, RunStepView, RunView, StoreError,
    StoredRunHead,
};
use countersign_engine::rows::{ChargeRow, CorrectionRow, MachineRow, NewStep, RunEventRow, RunRow, StepState};
use countersign_kernel::lifecycle::{FailureCategory, StepCode};
use countersign_kernel::plan::StepSeq;
use countersign_kernel::rollup::Colour;
use countersign_kernel::run::{BlockReason, Cause, CorrectionReason, Facet, TaskType};
use countersign_kernel::{EventId, InstanceId, StepId, Time};
use std::sync::Arc;

/// A run row joined with its head and its instance row.
pub struct RunInstance {
    pub row: RunRow,
    pub head: StoredRunHead,
    pub chain: Head,
    pub moves: u64,
    pub policy_ref: String,
    pub beats: u64,
}

fn optional_time(row: &dyn Columns, i: usize) -> Result<Option<Time>, StoreError> {
    Ok(row.optional_int(i)?.map(Time))
}

fn optional_str(row: &dyn Columns, i: usize) -> Result<Option<Arc<str>>, StoreError> {
    Ok(row.optional_text(i)?.map(Arc::from))
}

fn optional_instance(row: &dyn Columns, i: usize) -> Result<Option<InstanceId>, StoreError> {
    Ok(row.optional_id(i)?.map(InstanceId))
}

fn step_seq(int: i64) -> Result<StepSeq, StoreError> {
    small(int, "step")
}

pub fn run_instance(row: &dyn Columns) -> Result<RunInstance, StoreError> {
    let parent = match (optional_instance(row, 11)?, row.optional_int(12)?) {
        (Some(id), Some(step)) => Some((id, step_seq(step)?)),
        (None, None) => None,
        _ => return Err(StoreError::Corrupt("a run has half a parent".to_owned())),
    };
    let machine = match (row.optional_text(31)?, row.optional_bytes(32)?) {
        (Some(named), Some(_)) => Some(MachineRow { named, digest: row.digest(32)? }),
        (None, None) => None,
        _ => return Err(StoreError::Corrupt("a run has half a machine".to_owned())),
    };
    let priority = row.int(17)?;
    Ok(RunInstance {
        row: RunRow {
            instance_id: InstanceId(row.id(0)?),
            definition_name: row.text(1)?,
            definition_version: small(row.int(2)?, "definition version")?,
            document_digest: row.digest(3)?,
            subject_ref: row.text(4)?,
            initiator_ref: row.text(5)?,
            input: row.text(6)?.into(),
            correlation_key: optional_str(row, 7)?,
            concurrency_key: optional_str(row, 8)?,
            corrects: optional_instance(row, 9)?,
            continues: optional_instance(row, 10)?,
            parent,
            started_at: row.time(13)?,
            trace_id: optional_str(row, 30)?,
            machine,
        },
        head: StoredRunHead {
            state: row.text(14)?,
            outcome: row.optional_text(15)?,
            last_error: optional_str(row, 16)?,
            priority: u8::try_from(priority)
                .map_err(|_| StoreError::Corrupt(format!("priority {priority} is out of range")))?,
            start_at: optional_time(row, 18)?,
            executing_since: optional_time(row, 19)?,
            completed_at: optional_time(row, 20)?,
            failed_at: optional_time(row, 21)?,
            output: optional_str(row, 22)?,
            rollup: optional_str(row, 29)?,
            runbook: optional_str(row, 33)?,
            undoing: row.bool(40)?,
            called_off: row.bool(41)?,
        },
        chain: head_row_at(row, 23)?,
        moves: row.count(26)?,
        policy_ref: row.text(27)?,
        beats: row.count(28)?,
    })
}

pub fn run_view(row: &dyn Columns) -> Result<RunView, StoreError> {
    let RunInstance { row: run, head, chain, moves, .. } = run_instance(row)?;
    let copies = RunCopies {
        colour: row.optional_text(34)?,
        state: row.text(35)?,
        moves,
        definition_name: row.text(36)?,
        correlation_key: optional_str(row, 37)?,
        concurrency_key: optional_str(row, 38)?,
        is_live: row.bool(39)?,
    };
    Ok(RunView { row: run, head, chain, copies })
}

/// A step of a run, as it is loaded.
pub struct StoredStep {
    pub instance_id: InstanceId,
    pub step_seq: StepSeq,
    pub compensates: Option<StepSeq>,
    pub state: StepState,
}

fn task_type(text: &str) -> Option<TaskType> {
    TaskType::ALL.iter().copied().find(|t| t.as_str() == text)
}

pub fn stored_step(row: &dyn Columns) -> Result<StoredStep, StoreError> {
    let facet = row.optional_text(10)?.map(|text| token(&text, Facet::parse)).transpose()?;
    let category = row.optional_text(13)?.map(|text| token(&text, FailureCategory::parse)).transpose()?;
    let cause = row.optional_text(24)?.map(|text| token(&text, Cause::parse)).transpose()?;
    let colour = row.optional_text(25)?.map(|text| token(&text, Colour::parse)).transpose()?;
    let task = row.optional_text(19)?.map(|text| token(&text, task_type)).transpose()?;
    Ok(StoredStep {
        instance_id: InstanceId(row.id(0)?),
        step_seq: step_seq(row.int(1)?)?,
        compensates: row.optional_int(2)?.map(step_seq).transpose()?,
        state: StepState {
            state: token(&row.text(3)?, StepCode::parse)?,
            attempts: small(row.int(4)?, "attempts")?,
            next_run_at: optional_time(row, 5)?,
            locked_by: optional_str(row, 6)?,
            locked_until: optional_time(row, 7)?,
            lease_token: row.optional_id(8)?,
            waiting_event_type: optional_str(row, 9)?,
            waiting_facet: facet.map(Facet::as_str),
            deadline_at: optional_time(row, 11)?,
            last_error: optional_str(row, 12)?,
            error_category: category.map(FailureCategory::as_str),
            event_data: optional_str(row, 14)?,
            started_at: optional_time(row, 15)?,
            completed_at: optional_time(row, 16)?,
            effect_unknown: row.bool(17)?,
            child_run_id: optional_instance(row, 18)?,
            task_type: task.map(TaskType::as_str),
            output_needed: row.bool(20)?,
            due_at: optional_time(row, 21)?,
            handed: optional_str(row, 22)?,
            blocked_since: optional_time(row, 23)?,
            blocked_cause: cause.map(Cause::as_str),
            child_colour: colour.map(Colour::as_str),
            charge: charge(row)?,
            output: optional_str(row, STEP_STATE_COLUMNS)?,
        },
    })
}

fn charge(row: &dyn Columns) -> Result<ChargeRow, StoreError> {
    let block_reason = row.optional_text(33)?.map(|text| token(&text, BlockReason::parse)).transpose()?;
    Ok(ChargeRow {
        pic: optional_str(row, 26)?,
        deadline: optional_time(row, 27)?,
        overdue_first_at: optional_time(row, 28)?,
        sla_breach: row.optional_int(29)?,
        cycle: row.optional_int(30)?.map_or(Ok(0), |cycle| small(cycle, "cycle"))?,
        declared_at: optional_time(row, 31)?,
        secondary_facets: optional_str(row, 32)?,
        block_reason: block_reason.map(BlockReason::as_str),
        escalated_at: optional_time(row, 34)?,
        derived_state: optional_str(row, 35)?,
        start_by: optional_time(row, 36)?,
    })
}

pub fn correction(row: &dyn Columns) -> Result<CorrectionRow, StoreError> {
    Ok(CorrectionRow {
        instance_id: InstanceId(row.id(0)?),
        step_seq: step_seq(row.int(1)?)?,
        cycle: small(row.int(2)?, "cycle")?,
        from_state: token(&row.text(3)?, StepCode::parse)?,
        prior_event_id: EventId(row.id(4)?),
        prior_actor_ref: row.text(5)?,
        prior_at: row.time(6)?,
        output: optional_str(row, 7)?,
        overdue_first_at: optional_time(row, 8)?,
        sla_breach: row.optional_int(9)?,
        approval_id: StepId(row.id(10)?),
        correction_reason: token(&row.text(11)?, CorrectionReason::parse)?.as_str(),
        reopened_by: row.text(12)?,
        reopened_at: row.time(13)?,
        event_id: EventId(row.id(14)?),
    })
}

/// What is kept of a purged record.
pub fn visits(row: &dyn Columns) -> Result<(EventId, String), StoreError> {
    Ok((EventId(row.id(0)?), row.text(1)?))
}

/// The state of a run or a process.
pub fn head(row: &dyn Columns) -> Result<InstanceHead, StoreError> {
    Ok(InstanceHead {
        instance_id: InstanceId(row.id(0)?),
        sequence: row.count(1)?,
        is_run: row.bool(2)?,
        definition: row.optional_text(3)?,
    })
}

/// A step of a person's worklist, with its run.
pub fn charged(row: &dyn Columns) -> Result<ChargedStep, StoreError> {
    let at = STEP_STATE_COLUMNS + 4;
    Ok(ChargedStep {
        step: step_view(row)?,
        run_id: InstanceId(row.id(0)?),
        definition_name: row.text(at)?,
        definition_version: small(row.int(at + 1)?, "definition version")?,
        subject_ref: row.text(at + 2)?,
        run_state: row.text(at + 3)?,
    })
}

/// The steps of one run in their order, which has no gap.
pub fn whole_plan(mut steps: Vec<StoredStep>) -> Result<Vec<(Option<StepSeq>, StepState)>, StoreError> {
    steps.sort_unstable_by_key(|step| step.step_seq);
    if let Some((_, step)) = (0..).zip(&steps).find(|(seq, step)| step.step_seq != *seq) {
        return Err(StoreError::Corrupt(format!(
            "run {} lacks a step before its step {}",
            step.instance_id, step.step_seq
        )));
    }
    Ok(steps.into_iter().map(|step| (step.compensates, step.state)).collect())
}

pub fn step_view(row: &dyn Columns) -> Result<RunStepView, StoreError> {
    let StoredStep { step_seq, compensates, state, .. } = stored_step(row)?;
    let at = |i| STEP_STATE_COLUMNS + i;
    let new = NewStep {
        name: row.text(at(1))?.into(),
        compensates,
        queue: row.text(at(2))?.into(),
        max_attempts: small(row.int(at(3))?, "attempts")?,
    };
    Ok(RunStepView { step_seq, new, state })
}

pub fn held(row: &dyn Columns) -> Result<HeldStep, StoreError> {
    Ok(HeldStep {
        step_seq: step_seq(row.int(0)?)?,
        state: token(&row.text(1)?, StepCode::parse)?,
        has_child: row.optional_id(2)?.is_some(),
    })
}

pub fn event_row(row: &dyn Columns) -> Result<RunEventRow, StoreError> {
    Ok(RunEventRow {
        instance_id: InstanceId(row.id(0)?),
        event_id: row.text(1)?.into(),
        event_type: row.text(2)?.into(),
        data: row.text(3)?.into(),
        received_at: row.time(4)?,
        taken: row.bool(5)?,
    })
}

/// -1 means the run itself.
pub fn due(row: &dyn Columns) -> Result<Due, StoreError> {
    let step_seq = match row.int(1)? {
        -1 => None,
        step => Some(step_seq(step)?),
    };
    let ready = match row.optional_text(3)? {
        None => None,
        Some(definition_name) => Some(ReadyStep {
            definition_name,
            definition_version: small(row.int(4)?, "definition version")?,
            priority: priority(row.int(5)?)?,
        }),
    };
    Ok(Due { instance_id: InstanceId(row.id(0)?), step_seq, due_at: row.time(2)?, ready })
}

fn priority(value: i64) -> Result<u8, StoreError> {
    u8::try_from(value).map_err(|_| StoreError::Corrupt("a priority is out of range".to_owned()))
}

pub fn queued(row: &dyn Columns) -> Result<QueuedRun, StoreError> {
    Ok(QueuedRun {
        instance_id: InstanceId(row.id(0)?),
        definition_name: row.text(1)?,
        definition_version: small(row.int(2)?, "definition version")?,
        concurrency_key: optional_str(row, 3)?,
        under_way: row.count(4)?,
        priority: priority(row.int(5)?)?,
    })
}
