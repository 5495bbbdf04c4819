//! The published JSON Schema says what the parser does.

use countersign_definition::{
    FieldList, Kind, PROCESS_FIELDS, QUORUM_ENTRY_FIELDS, QUORUM_FIELDS, QUORUM_RULES, SINGLE_ENTRY_FIELDS,
    TRANSITION_FIELDS,
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
        ("", PROCESS_FIELDS),
        ("/$defs/transition", TRANSITION_FIELDS),
        ("/$defs/single_entry", SINGLE_ENTRY_FIELDS),
        ("/$defs/quorum_entry", QUORUM_ENTRY_FIELDS),
        ("/$defs/quorum", QUORUM_FIELDS),
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
    let [kind] = Kind::ALL else { panic!("the schema is for one kind") };
    assert_eq!(schema["properties"]["kind"]["const"], kind.as_str());
}
