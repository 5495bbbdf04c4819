//! A run from its rows. What can be worked out from the plan and the states of the steps is not stored twice.

use crate::port::{LoadedRun, StoreError};
use crate::rows::StepState;
use crate::run::rollup::Basis;
use crate::run::runbook;
use countersign_kernel::InstanceId;
use countersign_kernel::lifecycle::{FailureCategory, Outcome, RunState, StepCode};
use countersign_kernel::plan::{Plan, StepSeq};
use countersign_kernel::process::{DefinitionRef, Process};
use countersign_kernel::rollup::{Colour, Rollup, Tally};
use countersign_kernel::run::{
    Block, BlockReason, Cause, Cell, Docket, Facet, Handed, Head, KeptEvent, Lease, Live, Parent, PinnedMachine, Role,
    Run, Severity, TaskType, Waiting, is_passed,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub fn assemble(
    loaded: LoadedRun,
    plan: Arc<Plan>,
    machine: Option<Arc<PinnedMachine>>,
) -> Result<(Process, Run), StoreError> {
    let LoadedRun { row, head, moves, gates, holds, steps, kept, .. } = loaded;
    let damaged = |what: &str| StoreError::Corrupt(format!("run {}: {what}", row.instance_id));
    if steps.len() < plan.cell_count() {
        return Err(damaged("it has fewer steps than its plan"));
    }
    let started_at = row.started_at;
    let (declaration, gate_spec) = countersign_kernel::run::shell_declaration(&plan);
    let shell = Process {
        instance_id: row.instance_id,
        definition: Some(DefinitionRef { name: row.definition_name.clone(), version: row.definition_version }),
        subject_ref: row.subject_ref.clone(),
        initiator_ref: row.initiator_ref.clone(),
        current_state: declaration.initial_state.clone(),
        declaration: Arc::new(declaration),
        gate_spec: Arc::new(gate_spec),
        started_at: row.started_at,
        next_sequence_number: moves + 1,
        gates,
        holds,
    };
    let outcome = match &head.outcome {
        None => None,
        Some(text) => Some(Outcome::parse(text).ok_or_else(|| damaged("its outcome is none"))?),
    };
    let runbook = match head.runbook.as_deref() {
        None => None,
        Some(text) => Some(Box::new(runbook::parse(text).ok_or_else(|| damaged("its runbook is none"))?)),
    };
    let mut outputs = BTreeMap::new();
    let mut cells = Vec::with_capacity(steps.len());
    for (seq, (compensates, state)) in (0..).zip(steps) {
        if let Some(output) = state.output.clone().filter(|_| state.output_needed) {
            outputs.insert(seq, output);
        }
        cells.push(cell(seq, compensates, state, &plan));
    }
    resolve_dependencies(&plan, &mut cells);
    let count = |which: fn(&Cell) -> bool| u32::try_from(cells.iter().filter(|cell| which(cell)).count()).unwrap_or(0);
    let of_plan = || (0..).zip(&cells).take(plan.steps.len());
    let open = of_plan().filter(|(seq, cell)| !is_passed(&plan, *seq, cell)).count();
    let current =
        of_plan().find(|(seq, cell)| !is_passed(&plan, *seq, cell)).map_or(plan.steps.len(), |(seq, _)| seq as usize);
    let live: BTreeSet<StepSeq> = (0..)
        .zip(&cells)
        .filter(|(_, cell)| !cell.is_ended() && cell.state != StepCode::NotStarted)
        .map(|(seq, _)| seq)
        .collect();
    let mut run = Run {
        run_id: row.instance_id,
        machine,
        input: row.input,
        trace_id: row.trace_id,
        correlation_key: row.correlation_key,
        follows: row.corrects.or(row.continues),
        head: Head {
            state: RunState::parse(&head.state)
                .ok_or_else(|| StoreError::Corrupt(format!("run {}: its state is none", row.instance_id)))?,
            outcome,
            last_error: head.last_error,
            priority: head.priority,
            start_at: head.start_at,
            executing_since: head.executing_since,
            completed_at: head.completed_at,
            failed_at: head.failed_at,
            open: u32::try_from(open).unwrap_or(u32::MAX),
            blocked: count(|cell| cell.state == StepCode::Blocked && !matches!(cell.role, Role::Task(_))),
            held: count(Cell::is_held),
            current: u32::try_from(current).unwrap_or(u32::MAX),
            critical: Run::first_unfinished(&plan, |seq| cells.get(seq as usize).is_some_and(Cell::is_ended)),
            rollup: Rollup::default(),
            output: head.output,
            concurrency_key: row.concurrency_key,
            parent: row.parent.map(|(run_id, step_seq)| Parent { run_id, step_seq }),
            runbook,
            undoing: head.undoing,
            called_off: head.called_off,
        },
        plan,
        cells,
        live,
        tally: Tally::default(),
        outputs,
        kept: kept
            .into_iter()
            .map(|kept| KeptEvent { id: kept.event_id, event_type: kept.event_type, data: kept.data })
            .collect(),
    };
    run.count_all();
    run.head.rollup = match head.rollup.as_deref().map(Basis::parse) {
        Some(Some(basis)) => basis.rollup,
        Some(None) => return Err(StoreError::Corrupt(format!("run {}: its roll-up is none", run.run_id))),
        None => run.counted(started_at),
    };
    Ok((shell, run))
}

fn cell(seq: StepSeq, compensates: Option<StepSeq>, state: StepState, plan: &Plan) -> Cell {
    let charge = state.charge;
    let begun = state.state != StepCode::NotStarted || compensates.is_some();
    let waiting = state.waiting_facet.and_then(Facet::parse).map(|facet| Waiting {
        event_type: state.waiting_event_type.clone(),
        facet,
        secondary: charge.secondary_facets.iter().flat_map(|list| list.split(',')).filter_map(Facet::parse).collect(),
        deadline_at: state.deadline_at,
    });
    let lease = state.locked_by.clone().zip(state.locked_until).map(|(worker_id, until)| Lease { worker_id, until });
    let task_type = state.task_type.and_then(|text| TaskType::ALL.iter().copied().find(|t| t.as_str() == text));
    let severity = state.blocked_cause.and_then(Cause::parse).map_or(Severity::YellowDark, Severity::Red);
    // A row of an older version does not say since when.
    let since = state.blocked_since.or(state.started_at).filter(|_| state.state == StepCode::Blocked);
    let block = since.map(|since| Block {
        since,
        reason: charge.block_reason.and_then(BlockReason::parse),
        escalated_at: charge.escalated_at,
    });
    let live = Live {
        attempts: state.attempts,
        next_run_at: state.next_run_at,
        lease,
        waiting,
        last_error: state.last_error,
        category: state.error_category.and_then(FailureCategory::parse),
        event: state.event_data,
        started_at: state.started_at,
        effect_unknown: state.effect_unknown,
        child: state.child_run_id,
        child_colour: state.child_colour.and_then(Colour::parse),
        severity,
        block,
        task_type,
    };
    let docket = Docket {
        pic: charge.pic,
        deadline: charge.deadline,
        start_by: charge.start_by,
        overdue_first_at: charge.overdue_first_at,
        sla_breach: charge.sla_breach,
        cycle: charge.cycle,
        declared_at: charge.declared_at,
        escalated_at: charge.escalated_at.filter(|_| state.state == StepCode::CannotComplete),
        derived: charge.derived_state,
    };
    Cell {
        state: state.state,
        token: state.lease_token,
        role: match (compensates, plan.step_of_task(seq)) {
            (Some(undone), _) => Role::Compensation(undone),
            (None, Some(step)) => Role::Task(step),
            (None, None) => Role::Step,
        },
        completed_at: state.completed_at,
        handed: state.handed.as_deref().and_then(handed).map(Box::new),
        live: (begun && !state.state.is_terminal()).then(|| Box::new(live)),
        docket: (docket != Docket::default()).then(|| Box::new(docket)),
        ..Cell::new(plan.step(seq).map_or(0, |step| step.depends_on.len()))
    }
}

fn handed(text: &str) -> Option<Handed> {
    let mut parts = text.split('.');
    Some(Handed {
        run_id: InstanceId::parse(parts.next()?)?,
        step_seq: parts.next()?.parse().ok()?,
        lease_token: uuid::Uuid::try_parse(parts.next()?).ok()?,
    })
}

/// Completed, or completed before it was reopened.
fn has_fed(cell: &Cell) -> bool {
    cell.state == StepCode::Completed || (cell.cycle() > 0 && cell.completed_at.is_some())
}

fn resolve_dependencies(plan: &Plan, cells: &mut [Cell]) {
    let ended: Vec<(bool, bool)> =
        (0..).zip(cells.iter()).map(|(seq, cell)| (is_passed(plan, seq, cell), has_fed(cell))).collect();
    for (spec, cell) in plan.steps.iter().zip(cells) {
        let of = |seq: &StepSeq| ended.get(*seq as usize).copied().unwrap_or((false, false));
        // One that has begun waits for nothing any more, even where a step before it was reopened.
        let waits = cell.state == StepCode::NotStarted;
        let open = spec.depends_on.iter().filter(|seq| waits && !of(seq).0).count();
        cell.open_deps = u32::try_from(open).unwrap_or(u32::MAX);
        cell.fed = spec.depends_on.iter().any(|seq| of(seq).1);
    }
}
