//! What a firing causes beside the move (`effects` of its transition, ADR 59): worked out when it commits, told by its record, and
//! handed to this server as rows of the same commit. [`crate::run::door`] carries it out.

use crate::rows::{OutboxRow, Write};
use crate::run::door::EVENTS;
use crate::run::payload::is_told_in_full;
use countersign_kernel::plan::{Language, Scope, Template};
use countersign_kernel::process::{Event, EventBody};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::text::{json_string, rfc3339};
use countersign_kernel::{Budget, Effect, IdSource, InstanceId};
use countersign_ledger::sha256;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;

/// The type under which the outbox lists a start. No event has it.
pub const START: &str = "@start";

/// An effect with its values (JSON texts).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filled {
    Start { definition: String, version: Option<u32>, input: Arc<str> },
    Event { event_type: String, data: Arc<str> },
}

/// A start on its way.
#[derive(Debug, Serialize, Deserialize)]
pub struct StartOrder {
    pub definition: String,
    pub version: Option<u32>,
    pub input: Value,
    pub transition_id: String,
    /// Its place among the effects of the transition.
    pub effect: u32,
}

/// Whose firing it is.
pub struct Firing<'a> {
    pub instance_id: InstanceId,
    pub subject_ref: &'a str,
    pub initiator_ref: &'a str,
}

/// The effects of an event, worked out. One that cannot be keeps the transition from firing.
pub fn filled(of: &Firing<'_>, event: &Event, language: &dyn Language) -> Result<Vec<Filled>, Refusal> {
    let EventBody::TransitionFired {
        transition_id,
        sequence_number,
        from_state,
        action,
        to_state,
        reason,
        effects,
        ..
    } = &event.body
    else {
        return Ok(vec![]);
    };
    if effects.is_empty() {
        return Ok(vec![]);
    }
    let firing = json!({
        "instance_id": of.instance_id.to_string(), "subject_ref": of.subject_ref, "initiator_ref": of.initiator_ref,
        "actor_ref": event.actor_ref, "action": action, "from_state": from_state, "to_state": to_state,
        "transition_id": transition_id.to_string(), "sequence_number": sequence_number, "fired_at": rfc3339(event.at),
        "reason": reason,
    });
    let firing = firing.to_string();
    let budget = Budget::default();
    let language = language.metered(&budget);
    let scope = Scope { event: Some(&firing), ..Scope::default() };
    let fill = |template: &Option<Template>| -> Result<Arc<str>, Refusal> {
        let Some(template) = template else { return Ok("null".into()) };
        let value = language.fill(template, &scope).map_err(|error| {
            let detail = format!("an effect of `{action}` cannot be worked out: {error}");
            Refusal::new(Code::InvalidRequest, detail).at("action")
        })?;
        Ok(value.into())
    };
    let one = |effect: &Effect| {
        Ok(match effect {
            Effect::Start { definition, version, input } => {
                Filled::Start { definition: definition.clone(), version: *version, input: fill(input)? }
            }
            Effect::Event { event_type, data } => Filled::Event { event_type: event_type.clone(), data: fill(data)? },
        })
    };
    effects.iter().map(one).collect()
}

/// The payload of the firing's record with its effects as the last member.
pub fn with(mut payload: Vec<u8>, effects: &[Filled]) -> Vec<u8> {
    if effects.is_empty() {
        return payload;
    }
    payload.pop();
    let each: Vec<String> = effects.iter().map(Filled::told).collect();
    payload.extend_from_slice(format!(",\"effects\":[{}]}}", each.join(",")).as_bytes());
    payload
}

impl Filled {
    fn told(&self) -> String {
        match self {
            Filled::Start { definition, version, input } => {
                let definition = json_string(&named(definition, *version));
                format!("{{\"start\":{{\"definition\":{definition},{}}}}}", value("input", input))
            }
            Filled::Event { event_type, data } => {
                format!("{{\"event\":{{\"type\":{},{}}}}}", json_string(event_type), value("data", data))
            }
        }
    }
}

/// `name@2`
fn named(definition: &str, version: Option<u32>) -> String {
    version.map_or_else(|| definition.to_owned(), |version| format!("{definition}@{version}"))
}

/// In full, or by digest.
fn value(name: &str, json: &str) -> String {
    if is_told_in_full(json) {
        return format!("\"{name}\":{json}");
    }
    format!("\"{name}_digest\":\"{}\",\"{name}_bytes\":{}", sha256(&[json.as_bytes()]), json.len())
}

/// The rows that carry the effects on: an event to webhooks and to this server, a start to this server alone.
pub fn writes(of: &Firing<'_>, event: &Event, effects: Vec<Filled>, ids: &mut IdSource) -> Vec<Write> {
    let EventBody::TransitionFired { transition_id, .. } = &event.body else { return vec![] };
    let mut writes = Vec::new();
    for (place, effect) in (0..).zip(effects) {
        let (event_type, data) = match effect {
            Filled::Event { event_type, data } => (event_type, data),
            Filled::Start { definition, version, input } => {
                let transition_id = transition_id.to_string();
                let order = json!({
                    "definition": definition, "version": version, "transition_id": transition_id, "effect": place,
                });
                let mut text = order.to_string();
                text.pop();
                (START.to_owned(), format!("{text},\"input\":{input}}}").into())
            }
        };
        let is_event = event_type != START;
        let (instance_id, created_at) = (of.instance_id, event.at);
        let row =
            OutboxRow { outbox_id: ids.make(), instance_id, event_type, step: None, data, created_at, inside: false };
        writes.extend(is_event.then(|| Write::Outbox(row.clone())));
        let row = OutboxRow { outbox_id: ids.make(), inside: true, ..row };
        writes.push(Write::Delivery { outbox_id: row.outbox_id, sink: EVENTS });
        writes.push(Write::Outbox(row));
    }
    writes
}
