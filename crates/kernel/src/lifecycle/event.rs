//! Event types (seed 003: register before emit). A transition may emit only what stands here, with its JSON Schema; what
//! is emitted is held against it.

pub struct EventType {
    pub name: &'static str,
    pub version: u32,
    /// What the data must carry besides what every event of its kind carries.
    pub carries: &'static [Field],
    /// Of these it must have some where it is emitted by this transition.
    pub carries_by: &'static [(&'static str, &'static [&'static str])],
}

/// A member of an event's data.
pub struct Field {
    pub name: &'static str,
    pub kind: FieldKind,
    pub required: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    Text,
    Integer,
    Boolean,
    /// A list of objects.
    Objects,
    /// A list of texts.
    Texts,
    /// One of these words.
    Word(&'static [&'static str]),
}

const fn must(name: &'static str, kind: FieldKind) -> Field {
    Field { name, kind, required: true }
}

const fn may(name: &'static str, kind: FieldKind) -> Field {
    Field { name, kind, required: false }
}

const fn plain(name: &'static str) -> EventType {
    EventType { name, version: 1, carries: &[], carries_by: &[] }
}

const fn with(name: &'static str, carries: &'static [Field]) -> EventType {
    EventType { name, version: 1, carries, carries_by: &[] }
}

const fn completed(name: &'static str) -> EventType {
    EventType { name, version: 1, carries: SLA, carries_by: &[("T7", LATE)] }
}

const fn reopened(name: &'static str) -> EventType {
    EventType { name, version: 1, carries: CORRECTION, carries_by: &[("T8r", CORRECTED)] }
}

/// MP-D3: what T7 leaves on the step, its event says too.
const LATE: &[&str] = &["completed_after_deadline", "overdue_first_at", "sla_breach_duration"];
const SLA: &[Field] = &[
    may("completed_after_deadline", FieldKind::Boolean),
    may("overdue_first_at", FieldKind::Text),
    may("sla_breach_duration", FieldKind::Text),
];

/// MP-D2: a reopening names what it reopens, why, and by whose leave; that of a completion also what had been yielded.
const CORRECTED: &[&str] = &["prior_completed_audit_id", "original_output_snapshot_id"];
const CORRECTION: &[Field] = &[
    must("prior_audit_id", FieldKind::Text),
    may("prior_completed_audit_id", FieldKind::Text),
    may("original_output_snapshot_id", FieldKind::Text),
    must("correction_reason", FieldKind::Word(REASONS)),
    must("approval_id", FieldKind::Text),
    must("cycle", FieldKind::Integer),
];
const REASONS: &[&str] = &["data_error", "policy_change", "downstream_dependency_failed", "regulatory_recall"];

/// The person in charge should hear of it.
/// `repeated`: it was overdue for the same deadline before, until it was claimed.
const OVERDUE: &[Field] = &[may("pic", FieldKind::Text), may("repeated", FieldKind::Boolean)];

const FACETS: &[&str] = &["waiting_dependency", "waiting_human", "waiting_external", "waiting_time_gate"];

/// What every event of a step carries.
pub const STEP_EVENT: &[Field] = &[
    must("run_id", FieldKind::Text),
    must("step", FieldKind::Text),
    must("step_seq", FieldKind::Integer),
    must("transition_id", FieldKind::Text),
    must("from_state", FieldKind::Text),
    must("to_state", FieldKind::Text),
    must("actor_class", FieldKind::Text),
    must("trigger_ref", FieldKind::Text),
    must("audit_ref", FieldKind::Text),
    must("trace_id", FieldKind::Text),
    must("correlation_id", FieldKind::Text),
    may("attempt", FieldKind::Integer),
    may("max_attempts", FieldKind::Integer),
];

/// What every event of a run carries.
pub const RUN_EVENT: &[Field] = &[
    must("run_id", FieldKind::Text),
    must("transition_id", FieldKind::Text),
    must("from_state", FieldKind::Text),
    must("to_state", FieldKind::Text),
    must("trigger_ref", FieldKind::Text),
    must("audit_ref", FieldKind::Text),
    must("trace_id", FieldKind::Text),
    must("correlation_id", FieldKind::Text),
    may("outcome", FieldKind::Text),
];

/// What every event of a process or of a gate carries: the process, or the run where the gate is a run's.
pub const PROCESS_EVENT: &[Field] = &[
    may("instance_id", FieldKind::Text),
    may("run_id", FieldKind::Text),
    may("definition", FieldKind::Text),
    must("actor_ref", FieldKind::Text),
    must("audit_ref", FieldKind::Text),
];
/// What an escalation by the engine carries: where it comes from, and what shows it. A stop of the whole run may be at no step.
pub const ESCALATION_EVENT: &[Field] = &[
    must("run_id", FieldKind::Text),
    may("step", FieldKind::Text),
    must("audit_ref", FieldKind::Text),
    must("trace_id", FieldKind::Text),
    must("correlation_id", FieldKind::Text),
];
/// The error of a step that a policy blocks, or the outcome of a stop, and why.
const ESCALATED: &[Field] = &[
    may("error", FieldKind::Text),
    may("outcome", FieldKind::Text),
    may("reason", FieldKind::Text),
    may("drift", FieldKind::Objects),
];
const STARTED: &[Field] = &[must("initial_state", FieldKind::Text)];
const OPENED: &[Field] = &[
    must("action", FieldKind::Text),
    must("from_state", FieldKind::Text),
    must("guard", FieldKind::Text),
    must("scope", FieldKind::Text),
    must("approver_refs", FieldKind::Texts),
    may("step_id", FieldKind::Text),
    may("chain_id", FieldKind::Text),
];
const DECIDED: &[Field] = &[
    must("action", FieldKind::Text),
    must("decision", FieldKind::Word(&["approve", "reject", "withdraw"])),
    may("step_id", FieldKind::Text),
    may("chain_id", FieldKind::Text),
];
const FIRED: &[Field] = &[
    must("action", FieldKind::Text),
    must("from_state", FieldKind::Text),
    must("to_state", FieldKind::Text),
    must("transition_id", FieldKind::Text),
    must("sequence_number", FieldKind::Integer),
    must("guarded", FieldKind::Boolean),
];

/// Of what was approved: its kind and target, and the gate of its approval.
const APPROVED: &[Field] = &[
    must("proposal_kind", FieldKind::Text),
    must("target", FieldKind::Text),
    may("step_id", FieldKind::Text),
    may("chain_id", FieldKind::Text),
];

/// What became of a replay, of which letter, and by whose leave.
const REPLAYED: &[Field] = &[
    must("dlq_replay_request_id", FieldKind::Text),
    must("approval_id", FieldKind::Text),
    must("dead_letter_id", FieldKind::Text),
    must("outcome", FieldKind::Word(&["delivered", "resumed", "failed"])),
    must("audit_ref", FieldKind::Text),
];

pub const EVENT_TYPES: &[EventType] = &[
    with("process.started", STARTED),
    with("gate.opened", OPENED),
    with("gate.decided", DECIDED),
    with("transition.fired", FIRED),
    with("proposal.approved", APPROVED),
    plain("step.ready"),
    plain("step.started"),
    plain("step.released"),
    with("step.waiting", &[must("waiting_facet", FieldKind::Word(FACETS))]),
    plain("step.resumed"),
    with("step.blocked", &[may("block_reason", FieldKind::Text)]),
    plain("step.unblocked"),
    with("step.overdue", OVERDUE),
    plain("step.recovered_from_overdue"),
    completed("step.completed"),
    reopened("step.reopened_for_correction"),
    with("step.failed", &[must("classification", FieldKind::Word(&["transient", "permanent"]))]),
    plain("step.retry"),
    plain("step.escalated"),
    plain("step.cannot_complete"),
    plain("step.woken"),
    plain("step.held"),
    plain("step.lease_expired"),
    plain("step.skipped"),
    plain("step.cancelled"),
    plain("task.ready"),
    plain("task.started"),
    plain("task.released"),
    with("task.waiting", &[must("waiting_facet", FieldKind::Word(FACETS))]),
    plain("task.resumed"),
    with("task.blocked", &[may("block_reason", FieldKind::Text)]),
    plain("task.unblocked"),
    with("task.overdue", OVERDUE),
    plain("task.recovered_from_overdue"),
    completed("task.completed"),
    reopened("task.reopened_for_correction"),
    with("task.failed", &[must("classification", FieldKind::Word(&["transient", "permanent"]))]),
    plain("task.retry"),
    plain("task.escalated"),
    plain("task.cannot_complete"),
    plain("task.woken"),
    plain("task.held"),
    plain("task.lease_expired"),
    plain("task.skipped"),
    plain("task.cancelled"),
    plain("run.queued"),
    plain("run.executing"),
    plain("run.blocked"),
    plain("run.paused"),
    with("run.stopped", &[may("drift", FieldKind::Objects)]),
    plain("run.compensating"),
    plain("run.completed"),
    plain("run.failed"),
    plain("run.cancelled"),
    plain("run.voided"),
    with("governance.escalated", ESCALATED),
    with("dlq_replay.completed", REPLAYED),
];

pub fn event_type(name: &str) -> Option<&'static EventType> {
    EVENT_TYPES.iter().find(|row| row.name == name)
}

impl EventType {
    pub fn fields(&self) -> impl Iterator<Item = &'static Field> {
        let common = match self.name.split('.').next() {
            Some("run") => RUN_EVENT,
            Some("governance") => ESCALATION_EVENT,
            Some("dlq_replay") => &[],
            Some("process" | "gate" | "transition" | "proposal") => PROCESS_EVENT,
            _ => STEP_EVENT,
        };
        common.iter().chain(self.carries)
    }

    /// The JSON Schema of its data. More members may come later; a reader takes what it knows.
    pub fn schema(&self) -> String {
        let properties: Vec<String> = self
            .fields()
            .map(|field| {
                let schema = match field.kind {
                    FieldKind::Text => r#"{"type":"string","minLength":1}"#.to_owned(),
                    FieldKind::Integer => r#"{"type":"integer"}"#.to_owned(),
                    FieldKind::Boolean => r#"{"type":"boolean"}"#.to_owned(),
                    FieldKind::Objects => r#"{"type":"array","items":{"type":"object"}}"#.to_owned(),
                    FieldKind::Texts => r#"{"type":"array","items":{"type":"string"}}"#.to_owned(),
                    FieldKind::Word(words) => format!(r#"{{"enum":["{}"]}}"#, words.join(r#"",""#)),
                };
                format!(r#""{}":{schema}"#, field.name)
            })
            .collect();
        let required: Vec<&str> = self.fields().filter(|field| field.required).map(|field| field.name).collect();
        let by = |(id, names): &(&str, &[&str])| {
            let names = names.join(r#"",""#);
            format!(
                r#"{{"if":{{"properties":{{"transition_id":{{"const":"{id}"}}}}}},"then":{{"required":["{names}"]}}}}"#
            )
        };
        let carries_by: Vec<String> = self.carries_by.iter().map(by).collect();
        let all_of =
            if carries_by.is_empty() { String::new() } else { format!(r#","allOf":[{}]"#, carries_by.join(",")) };
        format!(
            r#"{{"$schema":"https://json-schema.org/draft/2020-12/schema","title":"{}","type":"object","required":["{}"],"properties":{{{}}}{all_of}}}"#,
            self.name,
            required.join(r#"",""#),
            properties.join(",")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::{RUN_TRANSITIONS, STEP_TRANSITIONS};

    #[test]
    fn nothing_is_emitted_that_is_not_registered() {
        let step = STEP_TRANSITIONS.iter().map(|t| t.emits);
        for emitted in step.chain(RUN_TRANSITIONS.iter().map(crate::lifecycle::RunTransition::emits)) {
            assert!(event_type(emitted).is_some(), "{emitted}");
            assert!(event_type(&emitted.replacen("step.", "task.", 1)).is_some(), "{emitted} of a task");
        }
    }

    #[test]
    fn every_type_is_registered_once_and_emitted_by_something() {
        for (i, row) in EVENT_TYPES.iter().enumerate() {
            assert!(EVENT_TYPES[i + 1..].iter().all(|other| other.name != row.name), "{}", row.name);
            // A task makes the transitions of a step.
            let of_step = row.name.replacen("task.", "step.", 1);
            let step = STEP_TRANSITIONS.iter().any(|t| t.emits == of_step);
            // What a process does is no transition of the engine's machines: its records name it.
            let of_process =
                ["process.started", "gate.opened", "gate.decided", "transition.fired", "proposal.approved"]
                    .contains(&row.name);
            // The governance chain says what became of a replay.
            let of_process = of_process || row.name == "dlq_replay.completed";
            // A policy that blocks, and a stop, are escalated beside their transitions.
            let escalates = row.name == crate::run::ESCALATED;
            assert!(
                of_process || escalates || step || RUN_TRANSITIONS.iter().any(|t| t.emits() == row.name),
                "{}",
                row.name
            );
        }
    }
}
