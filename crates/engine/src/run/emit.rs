//! What transitions of runs and processes emit (seed 003): an event of a registered type, in the transaction of the transition itself.
//! Rows are written only for types that somebody listens to, so that a run nobody watches costs what it always did.

use super::runbook::shown;
use crate::replay;
use crate::rows::{OutboxRow, Write};
use countersign_kernel::governance::CompletedReplay;
use countersign_kernel::lifecycle::{EVENT_TYPES, EventType, Guard, RunState, StepCode, event_type};
use countersign_kernel::plan::{Language, Schema, StepSeq};
use countersign_kernel::process::{self, APPROVE, DefinitionRef, EventBody, is_proposal};
use countersign_kernel::refusal::Refusal;
use countersign_kernel::run::{Cell, Docket, Drift, ESCALATED, Move, Outbound, OwnMove, Role, Run, RunEvent, RunMove};
use countersign_kernel::text::{length, rfc3339};
use countersign_kernel::{EventId, IdSource, InstanceId, Time};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The types that somebody listens to, with their schemas.
#[derive(Clone, Default)]
pub struct Emitter {
    wanted: BTreeMap<&'static str, Schema>,
}

impl Emitter {
    pub fn new(wants: impl Fn(&str) -> bool) -> Emitter {
        let schema = |row: &EventType| Schema(row.schema().into());
        Emitter {
            wanted: EVENT_TYPES.iter().filter(|row| wants(row.name)).map(|row| (row.name, schema(row))).collect(),
        }
    }

    /// Holds a type to another schema than its own: a listener's contract may ask for more.
    #[must_use]
    pub fn hold_to(mut self, event_type: &EventType, schema: &str) -> Emitter {
        self.wanted.insert(event_type.name, Schema(schema.into()));
        self
    }

    /// The events of one record, as rows of its transaction; `run` is the run before it. What misses its schema is not sent,
    /// and so the transition that would emit it is not made.
    pub fn rows(
        &self,
        run: &Run,
        event: &RunEvent,
        audit_ref: EventId,
        language: &dyn Language,
        ids: &mut IdSource,
    ) -> Result<Vec<Write>, Refusal> {
        let step_name = |seq: StepSeq| match cell_of(event, seq).map(|cell| cell.role) {
            Some(Role::Compensation(step)) => run.step_name(step),
            _ => run.step_name(seq),
        };
        let steps = event.moves.iter().map(|m| {
            let name = step_name(m.step_seq);
            (event.emits(m), Some(name), step_data(run, event, m, name))
        });
        let own = event.acted.as_deref().and_then(|acted| Some((acted.step_seq, acted.own.as_ref()?)));
        let own = own.and_then(|(seq, own)| {
            let name = step_name(seq);
            Some((own.emits?, Some(name), own_data(event, seq, own, name)))
        });
        let runs = event.run_moves.iter().map(|m| (m.transition.emits(), None, run_data(event, m)));
        let mut rows = vec![];
        for (event_type, step, mut data) in steps.chain(own).chain(runs) {
            let Some(schema) = self.wanted.get(event_type) else { continue };
            data.insert("audit_ref".to_owned(), audit_ref.to_string().into());
            data.insert("run_id".to_owned(), run.run_id.to_string().into());
            data.insert("trace_id".to_owned(), run.trace().to_string().into());
            data.insert("correlation_id".to_owned(), run.correlation().to_string().into());
            let from = From { instance_id: run.run_id, step, at: event.at };
            rows.push(row(event_type, data, schema, &from, language, ids)?);
        }
        // Their rows are written with what the step itself sends.
        for outbound in event.outbound.iter().filter(|outbound| outbound.event_type == ESCALATED) {
            if let Some(schema) = self.wanted.get(ESCALATED) {
                conforms(ESCALATED, &escalation(run, outbound, audit_ref), schema, run.run_id, language)?;
            }
        }
        Ok(rows)
    }

    /// The event of one record of a process, or of a run's gates.
    pub fn process_row(
        &self,
        of: &Emitting<'_>,
        event: &process::Event,
        audit_ref: EventId,
        language: &dyn Language,
        ids: &mut IdSource,
    ) -> Result<Vec<Write>, Refusal> {
        let told = [process_data(&event.body, of.is_run), approved(of, &event.body)];
        let told = told.into_iter().flatten();
        let rows = told.map(|told| self.told(of, event, audit_ref, told, language, ids));
        rows.filter_map(Result::transpose).collect()
    }

    /// What became of a replay, for those who listen.
    pub fn replay_row(
        &self,
        completed: &CompletedReplay,
        language: &dyn Language,
        ids: &mut IdSource,
    ) -> Result<Option<Write>, Refusal> {
        let Some(schema) = self.wanted.get(replay::EVENT) else { return Ok(None) };
        let from = From { instance_id: completed.request, step: None, at: completed.at };
        row(replay::EVENT, replay::data(completed), schema, &from, language, ids).map(Some)
    }

    fn told(
        &self,
        of: &Emitting<'_>,
        event: &process::Event,
        audit_ref: EventId,
        (event_type, data): (&'static str, Value),
        language: &dyn Language,
        ids: &mut IdSource,
    ) -> Result<Option<Write>, Refusal> {
        let (Some(schema), Value::Object(mut data)) = (self.wanted.get(event_type), data) else { return Ok(None) };
        data.retain(|_, value| !value.is_null());
        let whose = if of.is_run { "run_id" } else { "instance_id" };
        data.insert(whose.to_owned(), of.instance_id.to_string().into());
        if let Some(definition) = of.definition {
            data.insert("definition".to_owned(), format!("{}@{}", definition.name, definition.version).into());
        }
        data.insert("actor_ref".to_owned(), event.actor_ref.as_str().into());
        data.insert("audit_ref".to_owned(), audit_ref.to_string().into());
        let from = From { instance_id: of.instance_id, step: None, at: event.at };
        row(event_type, data, schema, &from, language, ids).map(Some)
    }

    /// Whether anybody listens at all.
    pub fn is_listened(&self) -> bool {
        !self.wanted.is_empty()
    }

    pub fn is_listened_to(&self, name: &str) -> bool {
        event_type(name).is_some() && self.wanted.contains_key(name)
    }
}

/// What an escalation carries outside: besides what its record says, that record, and what relates it to others.
pub fn escalation(run: &Run, outbound: &Outbound, audit_ref: EventId) -> Arc<str> {
    let mut data: Map<String, Value> = serde_json::from_str(&outbound.data).unwrap_or_default();
    data.insert("audit_ref".to_owned(), audit_ref.to_string().into());
    data.insert("trace_id".to_owned(), run.trace().to_string().into());
    data.insert("correlation_id".to_owned(), run.correlation().to_string().into());
    Value::Object(data).to_string().into()
}

/// What a process's event is of.
pub struct Emitting<'a> {
    pub instance_id: InstanceId,
    pub definition: Option<&'a DefinitionRef>,
    pub subject_ref: &'a str,
    pub is_run: bool,
}

/// Where an event comes from.
struct From<'a> {
    instance_id: InstanceId,
    step: Option<&'a str>,
    at: Time,
}

/// What misses its schema is not sent, and so the transition that would emit it is not made.
fn row(
    event_type: &str,
    data: Map<String, Value>,
    schema: &Schema,
    from: &From<'_>,
    language: &dyn Language,
    ids: &mut IdSource,
) -> Result<Write, Refusal> {
    let data = Value::Object(data).to_string();
    conforms(event_type, &data, schema, from.instance_id, language)?;
    Ok(Write::Outbox(OutboxRow {
        outbox_id: ids.make(),
        instance_id: from.instance_id,
        event_type: event_type.to_owned(),
        step: from.step.map(Into::into),
        data: data.into(),
        created_at: from.at,
        inside: false,
    }))
}

fn conforms(
    event_type: &str,
    data: &str,
    schema: &Schema,
    instance_id: InstanceId,
    language: &dyn Language,
) -> Result<(), Refusal> {
    language.conforms(schema, data).map_err(|error| {
        tracing::error!(%instance_id, event_type, %error, "an event misses its schema: its transition is refused");
        Refusal::by_guard(Guard::EventSchema, format_args!("`{event_type}` misses its schema: {error}"))
    })
}

/// What a record of a process emits. A run's own transitions have types of their own.
fn process_data(body: &EventBody, is_run: bool) -> Option<(&'static str, Value)> {
    Some(match body {
        EventBody::WorkflowStarted { declaration, .. } => {
            ("process.started", json!({"initial_state": declaration.initial_state}))
        }
        EventBody::GateOpened { gate, .. } => {
            let approvers: Vec<&str> = gate.steps.iter().map(|step| step.approver_ref.as_str()).collect();
            let id = gate.gate_ref();
            let data = json!({
                "action": gate.action, "from_state": gate.from_state, "guard": gate.guard, "scope": gate.scope,
                "approver_refs": approvers, "step_id": id.step_id().map(|id| id.to_string()),
                "chain_id": id.chain_id().map(|id| id.to_string()),
            });
            ("gate.opened", data)
        }
        EventBody::GateDecided { action, step_id, chain_id, decision, .. } => {
            let data = json!({
                "action": action, "decision": decision.as_str(), "step_id": step_id.map(|id| id.to_string()),
                "chain_id": chain_id.map(|id| id.to_string()),
            });
            ("gate.decided", data)
        }
        EventBody::TransitionFired { transition_id, sequence_number, from_state, action, to_state, gate, .. }
            if !is_run =>
        {
            let data = json!({
                "action": action, "from_state": from_state, "to_state": to_state,
                "transition_id": transition_id.to_string(), "sequence_number": sequence_number, "guarded": gate.is_some(),
            });
            ("transition.fired", data)
        }
        _ => return None,
    })
}

/// The approval of a proposal, for who applies it.
fn approved(of: &Emitting<'_>, body: &EventBody) -> Option<(&'static str, Value)> {
    let EventBody::TransitionFired { action, gate: Some(gate), .. } = body else { return None };
    if action != APPROVE || !is_proposal(of.definition) {
        return None;
    }
    let (kind, target) = of.subject_ref.split_once('/')?;
    let data = json!({
        "proposal_kind": kind, "target": target, "step_id": gate.step_id().map(|id| id.to_string()),
        "chain_id": gate.chain_id().map(|id| id.to_string()),
    });
    Some(("proposal.approved", data))
}

/// The step as the event leaves it: what ended has left its details behind, the event still has them.
fn cell_of(event: &RunEvent, seq: StepSeq) -> Option<&Cell> {
    let at = event.cells.binary_search_by_key(&seq, |(seq, _)| *seq).ok()?;
    event.cells.get(at).map(|(_, cell)| cell)
}

fn step_data(run: &Run, event: &RunEvent, m: &Move, name: &str) -> Map<String, Value> {
    let cell = cell_of(event, m.step_seq);
    let live = cell.and_then(|cell| cell.live.as_deref());
    let mut data = Map::new();
    let mut put = |name: &str, value: Value| drop(data.insert(name.to_owned(), value));
    put("step", name.into());
    put("step_seq", m.step_seq.into());
    put("transition_id", m.transition.id.into());
    put("from_state", m.from.as_str().into());
    put("to_state", m.to.as_str().into());
    put("actor_class", m.actor.as_str().into());
    put("trigger_ref", m.trigger.into());
    // The one that was under way, or is to come: a failure has been counted by now.
    let before = run.cell(m.step_seq).and_then(|cell| cell.live.as_deref());
    put("attempt", (before.map_or(0, |live| live.attempts) + 1).into());
    put("max_attempts", run.max_attempts(m.step_seq).into());
    match m.transition.emits {
        "step.waiting" => {
            // A wait that was over in the same commit was one for something outside.
            let facet = live.and_then(|live| live.waiting.as_ref()).map_or("waiting_external", |w| w.facet.as_str());
            put("waiting_facet", facet.into());
        }
        "step.failed" => {
            let again = cell.is_some_and(Cell::retry_scheduled);
            put("classification", if again { "transient" } else { "permanent" }.into());
            if let Some(error) = live.and_then(|live| live.last_error.as_deref()) {
                put("last_error", error.into());
            }
            if let Some(category) = live.and_then(|live| live.category) {
                put("error_category", category.as_str().into());
            }
        }
        "step.overdue" => {
            let docket = run.cell(m.step_seq).and_then(|cell| cell.docket.as_deref());
            if docket.is_some_and(Docket::was_overdue_for_its_deadline) {
                put("repeated", true.into());
            }
            if let Some(pic) = cell.and_then(|cell| cell.docket.as_deref()).and_then(|docket| docket.pic.as_deref()) {
                put("pic", pic.into());
            }
        }
        "step.blocked" => {
            if let Some(reason) = live.and_then(|live| live.block).and_then(|block| block.reason) {
                put("block_reason", reason.as_str().into());
            }
        }
        "step.completed" if m.transition.id == "T7" => {
            let docket = cell.and_then(|cell| cell.docket.as_deref());
            put("completed_after_deadline", true.into());
            if let Some((first, breach)) =
                docket.and_then(|docket| Some((docket.overdue_first_at?, docket.sla_breach?)))
            {
                put("overdue_first_at", rfc3339(first).into());
                put("sla_breach_duration", length(breach).into());
            }
        }
        "step.reopened_for_correction" => {
            if let Some(correction) = event.acted.as_deref().and_then(|acted| acted.correction.as_ref()) {
                let prior = correction.prior.event_id.to_string();
                if correction.from == StepCode::Completed {
                    // Under this key it is kept beside the correction.
                    let snapshot = format!("{}.{}.{}", run.run_id, m.step_seq, correction.cycle);
                    put("original_output_snapshot_id", snapshot.into());
                    put("prior_completed_audit_id", prior.clone().into());
                }
                put("prior_audit_id", prior.into());
                put("correction_reason", correction.reason.as_str().into());
                put("approval_id", correction.approval_id.to_string().into());
                put("cycle", correction.cycle.into());
            }
        }
        _ => {}
    }
    data
}

/// A transition of one's own: the states as its machine calls them.
fn own_data(event: &RunEvent, seq: StepSeq, own: &OwnMove, name: &str) -> Map<String, Value> {
    let data = json!({
        "step": name,
        "step_seq": seq,
        "transition_id": own.id,
        "from_state": own.from,
        "to_state": own.to,
        "actor_class": own.actor.as_str(),
        "trigger_ref": own.trigger,
    });
    let Value::Object(mut data) = data else { return Map::new() };
    let cell = cell_of(event, seq);
    if let Some(waiting) = cell.and_then(|cell| cell.live.as_ref()).and_then(|live| live.waiting.as_ref()) {
        data.insert("waiting_facet".to_owned(), waiting.facet.as_str().into());
    }
    if let Some(cell) = cell.filter(|cell| cell.state == StepCode::Failed) {
        let again = if cell.retry_scheduled() { "transient" } else { "permanent" };
        data.insert("classification".to_owned(), again.into());
    }
    data
}

fn run_data(event: &RunEvent, m: &RunMove) -> Map<String, Value> {
    let data = json!({
        "transition_id": m.transition.id,
        "from_state": m.transition.from.as_str(),
        "to_state": m.transition.to.as_str(),
        "trigger_ref": m.transition.trigger,
    });
    let Value::Object(mut data) = data else { return Map::new() };
    if let Some(outcome) = event.head.outcome {
        data.insert("outcome".to_owned(), outcome.as_str().into());
    }
    let drift = event.notes.as_deref().map_or(&[][..], |notes| &notes.drift);
    if !drift.is_empty() && m.transition.to == RunState::Stopped {
        let json = |text: &str| serde_json::from_str(&shown(text)).unwrap_or(Value::Null);
        let line = |d: &Drift| json!({"pin": &*d.pin, "pinned": json(&d.pinned), "live": d.live.as_deref().map(json)});
        data.insert("drift".to_owned(), drift.iter().map(line).collect());
    }
    data
}
