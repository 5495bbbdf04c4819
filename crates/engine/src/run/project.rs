//! From a run's event to its rows.

use super::dispatcher::{SLOT, STARTED};
use super::door;
use super::emit::escalation;
use super::payload::tells_error;
use super::runbook;
use crate::committer::limits::{limit_of, slot_of};
use crate::governance;
use crate::port::Unit;
use crate::rows::{
    ChargeRow, CorrectionRow, MachineRow, NewStep, OutboxRow, RunEventRow, RunHeadRow, RunRow, StepState, StepWrite,
    Write,
};
use countersign_kernel::lifecycle::{RunState, StepCode, event_type as event_type_of_engine};
use countersign_kernel::plan::StepSeq;
use countersign_kernel::registry::Registry;
use countersign_kernel::rollup::Colour;
use countersign_kernel::run::{Action, Cause, Cell, ESCALATED, Handed, Role, Run, RunEvent};
use countersign_kernel::{Digest, EventId, IdSource};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Lays out what `event` writes; `run` is the run after it.
pub fn run_writes(
    run: &Run,
    event: &RunEvent,
    event_id: EventId,
    document: Option<Digest>,
    registry: &Registry,
    ids: &mut IdSource,
    unit: &mut Unit,
) {
    if let (Some(started), Some(document_digest)) = (&event.started, document) {
        unit.writes.push(Write::Run(RunRow {
            instance_id: run.run_id,
            definition_name: started.definition.name.clone(),
            definition_version: started.definition.version,
            document_digest,
            subject_ref: started.subject_ref.clone(),
            initiator_ref: event.actor_ref.clone(),
            input: started.input.clone(),
            correlation_key: started.correlation_key.clone(),
            concurrency_key: event.head.concurrency_key.clone(),
            corrects: started.corrects,
            continues: started.continues,
            parent: event.head.parent.as_ref().map(|parent| (parent.run_id, parent.step_seq)),
            started_at: event.at,
            trace_id: started.trace_id.clone(),
            machine: started.machine.as_ref().map(|pinned| MachineRow {
                named: format!("{}@{}", pinned.name, pinned.version),
                digest: pinned.document_digest,
            }),
        }));
    }
    if event.started.is_some() || !event.run_moves.is_empty() || run.runbook().is_some() {
        write_head(run, event.started.is_some(), unit);
    }
    if !event.run_moves.is_empty() && run.head.state.is_ended() {
        if run.head.concurrency_key.is_some() {
            unit.writes.push(Write::ForgetKeys { instance_id: run.run_id, expires_at: SLOT });
        }
        // The same request can be made anew.
        if run.head.state == RunState::Voided {
            unit.writes.push(Write::ForgetKeys { instance_id: run.run_id, expires_at: STARTED });
        }
    }
    if !run.plan.queues.is_empty() {
        give_slots_back(run, event, unit);
    }
    let outputs: HashMap<StepSeq, &Arc<str>> = event.outputs.iter().map(|(seq, output)| (*seq, output)).collect();
    for (seq, cell) in &event.cells {
        let output = outputs.get(seq).copied().cloned();
        write_step(run, *seq, cell, output, unit, event.adds(*seq));
    }
    if event.action.is_recorded() {
        governance::of_run(run, event, event_id, ids, &mut unit.writes);
    }
    // Compensations that are listed in a second record say nothing of errors.
    if event.action.is_recorded() && event.action != Action::CompensationsListed {
        let failed: BTreeSet<StepSeq> = event.moves.iter().filter(|m| tells_error(m)).map(|m| m.step_seq).collect();
        let error = |step_seq| Write::StepError { instance_id: run.run_id, step_seq, event_id };
        unit.writes.extend(failed.into_iter().map(error));
    }
    if let Some(acted) = event.acted.as_deref()
        && let Some(correction) = &acted.correction
    {
        unit.writes.push(Write::Correction(CorrectionRow {
            instance_id: run.run_id,
            step_seq: acted.step_seq,
            cycle: correction.cycle,
            from_state: correction.from,
            prior_event_id: correction.prior.event_id,
            prior_actor_ref: correction.prior.actor_ref.clone(),
            prior_at: correction.prior.at,
            output: correction.prior.output.clone(),
            overdue_first_at: correction.overdue_first_at,
            sla_breach: correction.sla_breach,
            approval_id: correction.approval_id,
            correction_reason: correction.reason.as_str(),
            reopened_by: event.actor_ref.clone(),
            reopened_at: event.at,
            event_id,
        }));
    }
    send(run, event, event_id, registry, ids, unit);
    if let Some(kept) = &event.kept {
        unit.writes.push(Write::RunEvent(RunEventRow {
            instance_id: run.run_id,
            event_id: kept.id.clone(),
            event_type: kept.event_type.clone(),
            data: kept.data.clone(),
            received_at: event.at,
            taken: event.taken.contains(&kept.id),
        }));
    }
    let own = |id: &&Arc<str>| event.kept.as_ref().is_none_or(|kept| kept.id != **id);
    for event_id in event.taken.iter().filter(own) {
        take_event(run, event_id, unit);
    }
}

/// What a step sends goes to webhooks, and, where something here may listen, to this server itself: as rows of the same commit.
fn send(run: &Run, event: &RunEvent, event_id: EventId, registry: &Registry, ids: &mut IdSource, unit: &mut Unit) {
    // Whoever sends events reports on a step, and that step moves first.
    let sender = event.moves.first().map(|m| m.step_seq);
    for outbound in &event.outbound {
        let mut row = OutboxRow {
            outbox_id: ids.make(),
            instance_id: run.run_id,
            event_type: outbound.event_type.clone(),
            step: sender.map(|seq| run.step_name(seq).into()),
            data: match outbound.event_type.as_str() {
                ESCALATED => escalation(run, outbound, event_id),
                _ => outbound.data.clone(),
            },
            created_at: event.at,
            inside: false,
        };
        unit.writes.push(Write::Outbox(row.clone()));
        if arrives_inside(run, &row.event_type, registry) {
            row.outbox_id = ids.make();
            row.inside = true;
            unit.writes.push(Write::Delivery { outbox_id: row.outbox_id, sink: door::EVENTS });
            unit.writes.push(Write::Outbox(row));
        }
    }
}

/// Whether an event that a step of this run sends may concern something on this server.
fn arrives_inside(run: &Run, event_type: &str, registry: &Registry) -> bool {
    // What the engine emits with its own transitions starts nothing.
    event_type_of_engine(event_type).is_none()
        && (run.correlation_key.is_some()
            || door::waits_for(&run.plan, event_type)
            || registry.started_by(event_type).next().is_some())
}

/// A step that was somebody's and is nobody's any more leaves its slot.
fn give_slots_back(run: &Run, event: &RunEvent, unit: &mut Unit) {
    let held = |code: StepCode| matches!(code, StepCode::InProgress | StepCode::Overdue);
    for m in event.moves.iter().filter(|m| held(m.from) && !held(m.to)) {
        if limit_of(run, m.step_seq).is_some_and(|limit| limit.limit.is_some()) {
            unit.writes.push(Write::ForgetKeys { instance_id: run.run_id, expires_at: slot_of(m.step_seq) });
        }
    }
}

fn take_event(run: &Run, event_id: &Arc<str>, unit: &mut Unit) {
    // It may have come in this very batch.
    for write in &mut unit.writes {
        if let Write::RunEvent(row) = write
            && row.event_id == *event_id
        {
            row.taken = true;
            return;
        }
    }
    unit.writes.push(Write::TakeRunEvent { instance_id: run.run_id, event_id: event_id.clone() });
}

fn write_head(run: &Run, new: bool, unit: &mut Unit) {
    let head = &run.head;
    let row = RunHeadRow {
        instance_id: run.run_id,
        state: head.state.as_str(),
        outcome: head.outcome.map(|outcome| outcome.as_str()),
        last_error: head.last_error.clone(),
        priority: head.priority,
        start_at: head.start_at,
        executing_since: head.executing_since,
        completed_at: head.completed_at,
        failed_at: head.failed_at,
        output: head.output.clone(),
        due_at: run.head_due_at(),
        is_live: !head.state.is_ended() && head.state != RunState::Idle,
        runbook: run.runbook().map(|book| runbook::to_json(book).into()),
        undoing: head.undoing,
        called_off: head.called_off,
    };
    // Each row is written once per batch: a later command of the same batch replaces what an earlier one wrote.
    for write in &mut unit.writes {
        match write {
            Write::NewRunHead(known) | Write::RunHead(known) => {
                *known = row;
                return;
            }
            _ => {}
        }
    }
    unit.writes.push(if new { Write::NewRunHead(row) } else { Write::RunHead(row) });
}

/// `<run_id>.<step_seq>.<lease_token>`
pub fn handed_text(handed: &Handed) -> Arc<str> {
    format!("{}.{}.{}", handed.run_id, handed.step_seq, handed.lease_token).into()
}

fn write_step(run: &Run, seq: StepSeq, cell: &Cell, output: Option<Arc<str>>, unit: &mut Unit, new: bool) {
    let live = cell.live.as_deref();
    let block = live.and_then(|live| live.block.as_ref());
    // The row is written whole: what it said of an output that is still needed, it says again.
    let output = output.or_else(|| run.outputs.get(&seq).cloned());
    let output_needed = output.is_some() && run.keeps_output(seq);
    let state = StepState {
        state: cell.state,
        attempts: live.map_or(0, |live| live.attempts),
        next_run_at: live.and_then(|live| live.next_run_at),
        locked_by: live.and_then(|live| live.lease.as_ref()).map(|lease| lease.worker_id.clone()),
        locked_until: live.and_then(|live| live.lease.as_ref()).map(|lease| lease.until),
        lease_token: cell.token,
        waiting_event_type: live.and_then(|live| live.waiting.as_ref()).and_then(|waiting| waiting.event_type.clone()),
        waiting_facet: live.and_then(|live| live.waiting.as_ref()).map(|waiting| waiting.facet.as_str()),
        deadline_at: live.and_then(|live| live.waiting.as_ref()).and_then(|waiting| waiting.deadline_at),
        last_error: live.and_then(|live| live.last_error.clone()),
        error_category: live.and_then(|live| live.category).map(|category| category.as_str()),
        event_data: live.and_then(|live| live.event.clone()),
        started_at: live.and_then(|live| live.started_at),
        completed_at: cell.completed_at,
        effect_unknown: live.is_some_and(|live| live.effect_unknown),
        child_run_id: live.and_then(|live| live.child),
        child_colour: live.and_then(|live| live.child_colour).map(Colour::as_str),
        blocked_since: block.map(|block| block.since),
        blocked_cause: live.and_then(|live| live.severity.cause()).map(Cause::as_str),
        task_type: live.and_then(|live| live.task_type).map(|task_type| task_type.as_str()),
        output,
        output_needed,
        due_at: run.step_due_at(seq),
        handed: cell.handed.as_deref().map(handed_text),
        charge: charge(cell),
    };
    match unit.steps.get_mut(&seq) {
        Some(write) => write.state = state,
        None => {
            let new = new.then(|| NewStep {
                name: run.step_name(seq).into(),
                compensates: match cell.role {
                    Role::Compensation(step) => Some(step),
                    Role::Step | Role::Task(_) => None,
                },
                queue: run.queue(seq, cell.role),
                max_attempts: run.max_attempts(seq),
            });
            unit.steps.insert(seq, StepWrite { new, state });
        }
    }
}

fn charge(cell: &Cell) -> ChargeRow {
    let docket = cell.docket.as_deref().cloned().unwrap_or_default();
    let live = cell.live.as_deref();
    let block = live.and_then(|live| live.block);
    let secondary = live.and_then(|live| live.waiting.as_ref()).map_or(&[][..], |waiting| &waiting.secondary);
    let facets: Vec<&str> = secondary.iter().map(|facet| facet.as_str()).collect();
    ChargeRow {
        pic: docket.pic,
        deadline: docket.deadline,
        start_by: docket.start_by,
        overdue_first_at: docket.overdue_first_at,
        sla_breach: docket.sla_breach,
        cycle: docket.cycle,
        declared_at: docket.declared_at,
        secondary_facets: (!facets.is_empty()).then(|| facets.join(",").into()),
        block_reason: block.and_then(|block| block.reason).map(|reason| reason.as_str()),
        escalated_at: cell.escalated_at(),
        derived_state: docket.derived,
    }
}
