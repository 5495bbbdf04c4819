//! The published JSON Schema says what the parser does.

use crate::SHIPPED;
use crate::workflows::EVERYTHING;
use countersign_definition::workflow_shape as shape;
use countersign_definition::{
    FACET_FIELDS, FieldList, Kind, MACHINE_FIELDS, MACHINE_STATE_FIELDS, MACHINE_TRANSITION_FIELDS, OPEN_ENTRY_FIELDS,
    POLICY_FIELDS, PROCESS_FIELDS, PUBLISHED_QUORUM_FIELDS, PUBLISHED_SINGLE_FIELDS, QUORUM_ENTRY_FIELDS,
    QUORUM_FIELDS, QUORUM_RULES, SINGLE_ENTRY_FIELDS, TRANSITION_FIELDS,
};
use serde_json::Value;
use std::collections::BTreeSet;

fn schema() -> Value {
    serde_json::from_str(include_str!("../../../../spec/definition.schema.json")).expect("JSON")
}

fn texts(value: &Value) -> BTreeSet<&str> {
    value.as_array().expect("a list").iter().map(|text| text.as_str().expect("text")).collect()
}

#[test]
fn the_schema_has_the_fields_of_the_parser() {
    let schema = schema();
    let places: &[(&str, FieldList)] = &[
        ("/$defs/process", PROCESS_FIELDS),
        ("/$defs/workflow", shape::WORKFLOW_FIELDS),
        ("/$defs/step", shape::STEP_FIELDS),
        ("/$defs/retry_policy", shape::RETRY_FIELDS),
        ("/$defs/errors", shape::ERROR_FIELDS),
        ("/$defs/task", shape::TASK_FIELDS),
        ("/$defs/concurrency", shape::CONCURRENCY_FIELDS),
        ("/$defs/queue_limit", shape::QUEUE_FIELDS),
        ("/$defs/rate", shape::RATE_FIELDS),
        ("/$defs/schedule", shape::SCHEDULE_FIELDS),
        ("/$defs/trigger", shape::TRIGGER_FIELDS),
        ("/$defs/escalation", shape::ESCALATION_FIELDS),
        ("/$defs/compensation", shape::COMPENSATION_FIELDS),
        ("/$defs/transition", TRANSITION_FIELDS),
        ("/$defs/effect", shape::EFFECT_FIELDS),
        ("/$defs/start_effect", shape::START_EFFECT_FIELDS),
        ("/$defs/event_effect", shape::EVENT_EFFECT_FIELDS),
        ("/$defs/single_entry", SINGLE_ENTRY_FIELDS),
        ("/$defs/quorum_entry", QUORUM_ENTRY_FIELDS),
        ("/$defs/published_single", PUBLISHED_SINGLE_FIELDS),
        ("/$defs/published_quorum", PUBLISHED_QUORUM_FIELDS),
        ("/$defs/open_entry", OPEN_ENTRY_FIELDS),
        ("/$defs/quorum", QUORUM_FIELDS),
        ("/$defs/machine", MACHINE_FIELDS),
        ("/$defs/machine_state", MACHINE_STATE_FIELDS),
        ("/$defs/machine_transition", MACHINE_TRANSITION_FIELDS),
        ("/$defs/machine_facet", FACET_FIELDS),
        ("/$defs/machine_policy", POLICY_FIELDS),
    ];
    for (place, fields) in places {
        let object = schema.pointer(place).expect("a definition");
        let properties: BTreeSet<&str> =
            object["properties"].as_object().expect("properties").keys().map(String::as_str).collect();
        assert_eq!(properties, fields.all().collect(), "{place}");
        assert_eq!(texts(&object["required"]), fields.required.iter().copied().collect(), "{place}");
        assert_eq!(object["additionalProperties"], Value::Bool(false), "{place}");
    }
}

#[test]
fn the_schema_has_the_values_of_the_parser() {
    let schema = schema();
    assert_eq!(texts(&schema["$defs"]["quorum"]["properties"]["rule"]["enum"]), QUORUM_RULES.iter().copied().collect());
    assert_eq!(texts(&schema["properties"]["kind"]["enum"]), Kind::ALL.iter().map(|kind| kind.as_str()).collect());
    for kind in Kind::ALL {
        assert_eq!(schema["$defs"][kind.as_str()]["properties"]["kind"]["const"], kind.as_str());
    }
    for (place, words) in shape::words() {
        let found = schema.pointer(&format!("{place}/enum")).unwrap_or_else(|| panic!("{place}"));
        assert_eq!(texts(found), words.into_iter().collect(), "{place}");
    }
}

/// A field of some `run` is a field of a step.
#[test]
fn the_fields_of_each_run_are_fields_of_a_step() {
    use shape::Run;
    let step: BTreeSet<&str> = shape::STEP_FIELDS.all().collect();
    for run in [Run::Worker, Run::Shell, Run::Http, Run::Approval, Run::Wait, Run::Workflow, Run::Human] {
        assert!(run.fields().all().all(|field| step.contains(field)), "{run:?}");
    }
}

#[test]
fn the_schema_takes_what_the_parser_takes() {
    let validator = jsonschema::validator_for(&schema()).expect("a schema");
    for text in SHIPPED.iter().map(|(_, text)| *text).chain([EVERYTHING]) {
        let document: Value = serde_saphyr::from_str(text).expect("YAML");
        let problems: Vec<String> =
            validator.iter_errors(&document).map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert!(problems.is_empty(), "{text}\n{problems:#?}");
    }
    for text in [
        "kind: machine\nname: x\nscope: step",
        "kind: machine\nname: x\nscope: moon\nstates: []",
        "kind: machine\nname: x\nscope: step\nstates: [{code: a}]",
        "kind: machine\nname: x\nscope: step\nstates: []\ntransitions: [{to: a, actor_class: system, trigger_ref: t}]",
        "kind: workflow\nname: x",
        "kind: workflow\nname: x\nsteps: []",
        "kind: workflow\nname: x\nsteps: [{name: a, timeout: 5}]",
        "kind: workflow\nname: x\nsteps: [{name: a, when: input.x}]",
        "kind: workflow\nname: x\nsteps: [{name: a, run: workflow, workflow: x@0}]",
    ] {
        let document: Value = serde_saphyr::from_str(text).expect("YAML");
        assert!(!validator.is_valid(&document), "{text}");
    }
}
