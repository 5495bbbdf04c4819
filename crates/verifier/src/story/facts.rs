//! The facts for the questions that only people can answer.

use super::{Decision, Fact, Machine, Plan, Spec};
use crate::registry::{Actor, Registry};
use crate::run::definition::{StepSpec, Workflow};
use crate::time::utc;
use serde_json::json;

/// So many steps are told; a report is for people.
const MOST_STEPS: usize = 200;

pub fn spec_facts(spec: &Spec) -> Vec<Fact> {
    let origin = match &spec.definition {
        Some(name) => format!("named by the initiator in place of {name}"),
        None => "declared by the initiator".to_owned(),
    };
    let published = spec.definition.as_ref().map(|name| format!("as published with {name}"));
    let fact = |(guard, entry): (&String, &crate::process::document::GateEntry)| {
        let replaced = spec.replaced.iter().any(|label| **label == **guard);
        let origin = published.as_ref().filter(|_| !replaced).unwrap_or(&origin);
        let rule = entry.rule.map(|rule| rule.as_str());
        let how = match entry.rule {
            None => String::new(),
            Some(rule) => {
                rule.m().map_or(format!(" ({})", rule.as_str()), |m| format!(" ({m} of {})", entry.approvers.len()))
            }
        };
        Fact {
            text: format!("guard {guard}: {}{how}, scope {} ({origin})", entry.approvers.join(", "), entry.scope),
            data: json!({
                "guard": guard, "approvers": entry.approvers, "rule": rule, "m": entry.rule.and_then(|rule| rule.m()),
                "scope": entry.scope, "gate_spec_digest": spec.digest, "definition": spec.definition,
                "as_published": spec.as_published.map(|_| !replaced),
            }),
        }
    };
    spec.gate_spec.0.iter().map(fact).collect()
}

pub fn machine_fact(machine: &Machine) -> Fact {
    let declaration = &machine.declaration;
    let moves: Vec<String> = declaration
        .transitions
        .iter()
        .map(|t| {
            let guard = t.guard.as_ref().map(|guard| format!(" [{guard}]")).unwrap_or_default();
            format!("{} —{}→ {}{guard}", t.from, t.action, t.to)
        })
        .collect();
    let transitions: Vec<serde_json::Value> = declaration
        .transitions
        .iter()
        .map(|t| json!({"from": t.from, "action": t.action, "to": t.to, "guard": t.guard}))
        .collect();
    Fact {
        text: format!(
            "{}: begins in {}, ends in {}; {}",
            machine.definition.as_deref().unwrap_or("an inline declaration"),
            declaration.initial_state,
            if declaration.terminal_states.is_empty() {
                "nothing".to_owned()
            } else {
                declaration.terminal_states.join(", ")
            },
            moves.join("; ")
        ),
        data: json!({
            "definition": machine.definition, "declaration_digest": machine.digest, "states": declaration.states,
            "initial_state": declaration.initial_state, "terminal_states": declaration.terminal_states,
            "transitions": transitions,
        }),
    }
}

/// What a workflow declares: its steps, what each is, and what can be undone.
pub fn plan_fact(plan: &Plan) -> Fact {
    let workflow = &*plan.workflow;
    let told = workflow.steps.iter().take(MOST_STEPS);
    let mut text = if workflow.linear {
        told.map(described).collect::<Vec<_>>().join(" → ")
    } else {
        told.map(|step| format!("{}{}", described(step), behind(workflow, step))).collect::<Vec<_>>().join("; ")
    };
    let more = workflow.steps.len().saturating_sub(MOST_STEPS);
    if more > 0 {
        text.push_str(&format!("; and {more} more steps"));
    }
    let undone: Vec<&str> = undone(workflow).take(MOST_STEPS).collect();
    if !undone.is_empty() {
        text.push_str(&format!("; can be undone: {}", undone.join(", ")));
    }
    let step = |step: &StepSpec| json!({"name": step.name, "run": step.run, "gate": step.gate, "depends_on": names(workflow, &step.depends_on)});
    Fact {
        text: format!("{}: {text}", plan.definition.as_deref().unwrap_or("a workflow")),
        data: json!({
            "definition": plan.definition, "document_digest": plan.digest, "order": if workflow.linear { "linear" } else { "dag" },
            "steps": workflow.steps.iter().take(MOST_STEPS).map(step).collect::<Vec<_>>(), "steps_left_out": more,
            "undone": undone,
        }),
    }
}

fn described(step: &StepSpec) -> String {
    let gate = step.gate.as_ref().map(|gate| format!(", behind gate {gate}")).unwrap_or_default();
    let about = step.about.as_ref().map(|about| format!(" {about}")).unwrap_or_default();
    format!("{} ({}{about}{gate})", step.name, step.run)
}

fn behind(workflow: &Workflow, step: &StepSpec) -> String {
    match names(workflow, &step.depends_on).as_slice() {
        [] => String::new(),
        names => format!(" after {}", names.join(", ")),
    }
}

fn names<'w>(workflow: &'w Workflow, places: &[usize]) -> Vec<&'w str> {
    places.iter().filter_map(|place| workflow.steps.get(*place)).map(|step| step.name.as_str()).collect()
}

fn undone(workflow: &Workflow) -> impl Iterator<Item = &str> {
    let steps = workflow.steps.iter().enumerate();
    steps.filter(|(seq, _)| workflow.compensated.contains(seq)).map(|(_, step)| step.name.as_str())
}

pub fn approver_fact(approver: &str, decisions: &[&Decision], registry: &Registry) -> Fact {
    let actor = registry.actor(approver, u64::MAX);
    let at = decisions.iter().map(|decision| decision.registry_seq).max().unwrap_or(registry.sequence);
    let scopes = registry.scopes_of(approver, at);
    let mut text = match actor {
        None => format!("{approver}: not in the registry"),
        Some(actor) => format!("{approver}{}", describe(actor)),
    };
    text.push_str(&format!("; grants then: {}", if scopes.is_empty() { "none".to_owned() } else { scopes.join(", ") }));
    for decision in decisions {
        let quoted =
            |label: &str, text: &Option<String>| text.as_ref().map(|t| format!(", {label} “{t}”")).unwrap_or_default();
        text.push_str(&format!(
            "; {} {} at {}{}{} ({})",
            decision.decision,
            decision.action,
            utc(decision.at_us),
            quoted("reason", &decision.reason),
            quoted("meaning", &decision.meaning),
            decision.assurance
        ));
    }
    let keys = actor.map(|actor| actor.keys.as_slice()).unwrap_or_default();
    let keys: Vec<serde_json::Value> = keys
        .iter()
        .map(|key| json!({"key_id": key.key_id, "registered_seq": key.span.from, "revoked_seq": key.span.until}))
        .collect();
    let listed: Vec<serde_json::Value> = decisions.iter().map(|decision| decision_data(decision)).collect();
    Fact {
        text,
        data: json!({
            "actor_ref": approver, "kind": actor.map(|actor| &actor.kind),
            "display_name": actor.and_then(|actor| actor.display_name.as_ref()),
            "registered_at_us": actor.map(|actor| actor.registered_at_us), "registered_seq": actor.map(|actor| actor.registered),
            "keys": keys, "grants": scopes, "grants_at_registry_seq": at, "decisions": listed,
        }),
    }
}

fn describe(actor: &Actor) -> String {
    let name = actor.display_name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    let keys: Vec<String> = actor
        .keys
        .iter()
        .map(|key| match key.span.until {
            None => key.key_id.clone(),
            Some(until) => format!("{} (revoked by registry record {until})", key.key_id),
        })
        .collect();
    let keys = if keys.is_empty() { "no key".to_owned() } else { format!("keys {}", keys.join(", ")) };
    format!("{name}: {}, registered {}, {keys}", actor.kind, utc(actor.registered_at_us))
}

fn decision_data(decision: &Decision) -> serde_json::Value {
    json!({
        "instance_id": decision.instance_id.to_string(), "action": decision.action, "decision": decision.decision,
        "recorded_at_us": decision.at_us, "registry_seq": decision.registry_seq, "reason": decision.reason,
        "meaning": decision.meaning, "assurance": decision.assurance,
    })
}
