//! What a run's transitions emit (seed 003): an event of a registered type, in the transaction of the transition itself.
//! Rows are written only for types that somebody listens to, so that a run nobody watches costs what it always did.

use crate::port::Unit;
use crate::rows::{OutboxRow, Write};
use countersign_kernel::lifecycle::{EVENT_TYPES, EventType, StepCode, event_type};
use countersign_kernel::plan::{Language, Schema, StepSeq};
use countersign_kernel::run::{Cell, Move, OwnMove, Run, RunEvent, RunMove};
use countersign_kernel::{EventId, IdSource};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

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

    /// The events of one record, as rows of its transaction. What misses its schema is not sent, and said so loudly: it
    /// would be ours.
    pub fn emit(
        &self,
        run: &Run,
        event: &RunEvent,
        audit_ref: EventId,
        language: &dyn Language,
        ids: &mut IdSource,
        unit: &mut Unit,
    ) {
        if self.wanted.is_empty() {
            return;
        }
        let steps = event.moves.iter().map(|m| (event.emits(m), Some(m.step_seq), step_data(run, event, m)));
        let own = event.acted.as_deref().and_then(|acted| Some((acted.step_seq, acted.own.as_ref()?)));
        let own = own.and_then(|(seq, own)| Some((own.emits?, Some(seq), own_data(run, event, seq, own))));
        let runs = event.run_moves.iter().map(|m| (m.transition.emits(), None, run_data(run, m)));
        for (name, step_seq, mut data) in steps.chain(own).chain(runs) {
            let Some(schema) = self.wanted.get(name) else { continue };
            data.insert("audit_ref".to_owned(), audit_ref.to_string().into());
            data.insert("run_id".to_owned(), run.run_id.to_string().into());
            data.insert("trace_id".to_owned(), run.trace().to_string().into());
            data.insert("correlation_id".to_owned(), run.correlation().to_string().into());
            let data = Value::Object(data).to_string();
            if let Err(error) = language.conforms(schema, &data) {
                tracing::error!(run_id = %run.run_id, event_type = name, %error, "an event misses its schema and is not sent");
                continue;
            }
            unit.writes.push(Write::Outbox(OutboxRow {
                outbox_id: ids.make(),
                instance_id: run.run_id,
                event_type: name.to_owned(),
                step: step_seq.map(|seq| run.step_name(seq).into()),
                data: data.into(),
                created_at: event.at,
            }));
        }
    }

    pub fn is_listened_to(&self, name: &str) -> bool {
        event_type(name).is_some() && self.wanted.contains_key(name)
    }
}

fn step_data(run: &Run, event: &RunEvent, m: &Move) -> Map<String, Value> {
    // What ended has left its details behind; the event still has them.
    let cell = event.cells.iter().find(|(seq, _)| *seq == m.step_seq).map(|(_, cell)| cell);
    let live = cell.and_then(|cell| cell.live.as_deref());
    let mut data = Map::new();
    let mut put = |name: &str, value: Value| drop(data.insert(name.to_owned(), value));
    put("step", run.step_name(m.step_seq).into());
    put("step_seq", m.step_seq.into());
    put("transition_id", m.transition.id.into());
    put("from_state", m.from.as_str().into());
    put("to_state", m.to.as_str().into());
    put("actor_class", m.actor.as_str().into());
    put("trigger_ref", m.trigger.into());
    put("attempt", (live.map_or(0, |live| live.attempts) + 1).into());
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
        _ => {}
    }
    data
}

/// A transition of one's own: the states as its machine calls them.
fn own_data(run: &Run, event: &RunEvent, seq: StepSeq, own: &OwnMove) -> Map<String, Value> {
    let data = json!({
        "step": run.step_name(seq),
        "step_seq": seq,
        "transition_id": own.id,
        "from_state": own.from,
        "to_state": own.to,
        "actor_class": own.actor.as_str(),
        "trigger_ref": own.trigger,
    });
    let Value::Object(mut data) = data else { return Map::new() };
    let cell = event.cells.iter().find(|(of, _)| *of == seq).map(|(_, cell)| cell);
    if let Some(waiting) = cell.and_then(|cell| cell.live.as_ref()).and_then(|live| live.waiting.as_ref()) {
        data.insert("waiting_facet".to_owned(), waiting.facet.as_str().into());
    }
    if let Some(cell) = cell.filter(|cell| cell.state == StepCode::Failed) {
        let again = if cell.retry_scheduled() { "transient" } else { "permanent" };
        data.insert("classification".to_owned(), again.into());
    }
    data
}

fn run_data(run: &Run, m: &RunMove) -> Map<String, Value> {
    let data = json!({
        "transition_id": m.transition.id,
        "from_state": m.transition.from.as_str(),
        "to_state": m.transition.to.as_str(),
        "trigger_ref": m.transition.trigger,
    });
    let Value::Object(mut data) = data else { return Map::new() };
    if let Some(outcome) = run.head.outcome {
        data.insert("outcome".to_owned(), outcome.as_str().into());
    }
    data
}
