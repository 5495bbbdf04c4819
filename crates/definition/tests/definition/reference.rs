//! `docs/reference/definition.md`: every field of the format, written from the JSON Schema (which `schema` holds against
//! the parser) and from the table of defaults and examples in `reference_fields`. `BLESS=1` writes the page.

use crate::reference_fields::{FIELDS, Row};
use countersign_definition::workflow_shape::Run;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/definition.md");

/// The parts of the page: heading, place in the schema, what comes before the table.
const SECTIONS: &[(&str, &str, &str)] = &[
    ("Process", "process", "A state machine whose transitions people and programs fire (`kind: process`)."),
    ("Transition", "transition", "An entry of `transitions` of a process."),
    (
        "Effect",
        "effect",
        "An entry of `effects` of a transition: a `start` or an `event`. Expressions see the firing as `event`.",
    ),
    ("Effect: a run", "start_effect", "The value of `start`."),
    ("Effect: an event", "event_effect", "The value of `event`."),
    (
        "Gate of a process: one approver",
        "published_single",
        "An entry of `gate_spec` of a process. The key is the label of a guard.",
    ),
    ("Gate of a process: quorum", "published_quorum", "An entry of `gate_spec` of a process with several approvers."),
    (
        "Gate of a process: named at the start",
        "open_entry",
        "An entry of `gate_spec` of a process without an approver. Every start names the approvers.",
    ),
    ("Quorum", "quorum", "The value of `quorum`."),
    (
        "Workflow",
        "workflow",
        "A chain or a graph of steps (`kind: workflow`). A workflow with `failurePolicy: fail-closed` is a runbook.",
    ),
    (
        "Gate of a workflow: one approver",
        "single_entry",
        "An entry of `gate_spec` of a workflow. The key is a label that a step names as its `gate`, or `reopen`, `cancel`, \
         `resume`, `void` or `sovereign`.",
    ),
    ("Gate of a workflow: quorum", "quorum_entry", "An entry of `gate_spec` of a workflow with several approvers."),
    (
        "Step",
        "step",
        "An entry of `steps`. The column *run* says which `run` a field belongs to. A field of another `run` is refused.",
    ),
    ("Retry policy", "retry_policy", "The value of `retryPolicy`, for the workflow or for one step."),
    ("Errors", "errors", "The value of `errors`: what follows a failure of each category."),
    ("Task", "task", "An entry of `tasks`: a part of a step."),
    ("Pin", "pin", "A value of `pins`. Besides these fields it has those of its `run`, as a step has them."),
    ("Concurrency", "concurrency", "The value of `concurrency`."),
    ("Queue limit", "queue_limit", "A value of `queues`. The key is the name of a queue."),
    ("Rate limit", "rate", "The value of `rateLimit`."),
    ("Schedule", "schedule", "An entry of `schedule` ([schedules](../guides/schedules.md))."),
    ("Trigger", "trigger", "An entry of `on`."),
    ("Blocked escalation", "escalation", "The value of `blockedEscalation`."),
    (
        "Compensation",
        "compensation",
        "An entry of `compensation`: how a completed step is undone ([undoing a run](../guides/step-model.md#undoing-a-run)).",
    ),
    (
        "Machine",
        "machine",
        "Custom states for steps or tasks, beside the built-in ones (`kind: machine`, \
         [custom states](../guides/step-model.md#custom-states)).",
    ),
    (
        "State of a machine",
        "machine_state",
        "An entry of `states`: a built-in state by its code or as the registry shows it, or a derived state.",
    ),
    ("Transition of a machine", "machine_transition", "An entry of `transitions` of a machine."),
    ("Facet of a machine", "machine_facet", "An entry of `facets`, as the registry shows it."),
    ("Roll-up policy of a machine", "machine_policy", "An entry of `rollup_policies`, as the registry shows it."),
];

/// Types that the tables name, with their place in the schema.
const TYPES: &[(&str, &str, &str)] = &[
    ("text", "text", "A string with at least one visible character and without a NUL character."),
    ("name", "name", "A letter, then up to 63 letters, digits, `_` or `-`."),
    ("dotted name", "definition_name", "Names joined by dots."),
    (
        "duration",
        "duration",
        "Whole numbers with `d`, `h`, `m`, `s` or `ms`, the longest unit first: `250ms`, `1h30m`.",
    ),
    ("priority", "priority", "An integer from 0 to 9. 9 goes first."),
    ("condition", "condition", "`true`, `false`, or one `${…}`."),
    ("JSON Schema", "json_schema", "A JSON Schema. It may not refer to anything outside itself."),
    ("texts", "texts", "A mapping from names to strings."),
];

const HEAD: &str = "<!-- Generated from spec/definition.schema.json and crates/definition/tests/definition/reference_fields.rs: \
BLESS=1 cargo test -p countersign-definition --test definition reference -->
# Definition reference

A definition is a YAML 1.2 or JSON document with `kind: process`, `kind: workflow` or `kind: machine`. This page lists every field.

- An unknown field is refused. `countersign definition validate FILE` shows every problem with its line and column.
- *required* means that the field has no default. `–` means that nothing applies without the field.
- Where values may contain `${…}`, see [expressions](../guides/expressions.md).
- [definitions/](../../definitions) has complete examples. [spec/definition.schema.json](../../spec/definition.schema.json) is the JSON
  Schema, for editors.
";

fn schema() -> Value {
    serde_json::from_str(include_str!("../../../../spec/definition.schema.json")).expect("JSON")
}

fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect()
}

fn words<'v>(values: impl Iterator<Item = &'v Value>) -> String {
    let words: Vec<String> = values.map(|value| format!("`{}`", value.to_string().trim_matches('"'))).collect();
    words.join(", ")
}

/// The type of a field, as a reader needs it.
fn type_of(schema: &Value, field: &Value) -> String {
    if let Some(place) = field["$ref"].as_str() {
        let name = place.rsplit('/').next().expect("a name");
        if let Some((word, ..)) = TYPES.iter().find(|(_, place, _)| *place == name) {
            return (*word).to_owned();
        }
        if let Some((heading, ..)) = SECTIONS.iter().find(|(_, place, _)| *place == name) {
            return format!("[{}](#{})", heading.to_lowercase(), anchor(heading));
        }
        return type_of(schema, schema.pointer(&place[1..]).expect(place));
    }
    if let Some(value) = field.get("const") {
        return words([value].into_iter());
    }
    if let Some(values) = field["enum"].as_array() {
        return words(values.iter());
    }
    for key in ["oneOf", "anyOf"] {
        if let Some(forms) = field[key].as_array() {
            let forms: BTreeSet<String> = forms.iter().map(|form| type_of(schema, form)).collect();
            return forms.into_iter().collect::<Vec<_>>().join(" or ");
        }
    }
    match field["type"].as_str() {
        Some("array") if field["items"].is_object() => format!("list of {}", type_of(schema, &field["items"])),
        Some("array") => "list".to_owned(),
        Some("object") if field["additionalProperties"].is_object() => {
            format!("mapping to {}", type_of(schema, &field["additionalProperties"]))
        }
        Some("object") if field["properties"].is_object() => {
            let parts = field["properties"].as_object().expect("properties");
            format!(
                "mapping with {}",
                words(parts.keys().map(|key| Value::from(key.as_str())).collect::<Vec<_>>().iter())
            )
        }
        Some("object") => "mapping".to_owned(),
        Some("boolean") => "`true`, `false`".to_owned(),
        Some("integer") => match (field["minimum"].as_i64(), field["maximum"].as_i64()) {
            (Some(least), Some(most)) => format!("integer from {least} to {most}"),
            (Some(least), None) => format!("integer, at least {least}"),
            _ => "integer".to_owned(),
        },
        Some("string") if field["pattern"].is_string() => "text".to_owned(),
        Some("string") => "string".to_owned(),
        _ => "any value".to_owned(),
    }
}

/// What the row says, or the `description` of the field in the schema, or that of what it refers to.
fn meaning<'s>(schema: &'s Value, place: &str, name: &str) -> &'s str {
    if let Some(row) = rows_of(place).iter().find(|row| row.field == name).filter(|row| !row.meaning.is_empty()) {
        return row.meaning;
    }
    let field = &schema["$defs"][place]["properties"][name];
    let own = field["description"].as_str();
    let referred = || {
        let name = field["$ref"].as_str()?;
        if TYPES.iter().any(|(_, place, _)| name.ends_with(&format!("/{place}"))) {
            return None;
        }
        schema.pointer(&name[1..])?["description"].as_str()
    };
    own.or_else(referred).unwrap_or_default()
}

const RUNS: [Run; 7] = [Run::Worker, Run::Shell, Run::Http, Run::Approval, Run::Wait, Run::Workflow, Run::Human];

/// Which `run` a field of a step belongs to.
fn run_of(field: &str) -> String {
    if !Run::is_of_some(field) {
        return "every".to_owned();
    }
    let owners = RUNS.into_iter().filter(|run| run.fields().all().any(|own| own == field));
    owners.map(|run| format!("`{}`", run.as_str())).collect::<Vec<_>>().join(", ")
}

fn rows_of(place: &str) -> &'static [Row] {
    FIELDS.iter().find(|(section, _)| *section == place).map_or(&[], |(_, rows)| rows)
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn table(schema: &Value, place: &str) -> String {
    let object = &schema["$defs"][place];
    let required: Vec<&str> = object["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let of_step = place == "step";
    let mut text = if of_step {
        "| field | run | type | default | meaning | example |\n| --- | --- | --- | --- | --- | --- |\n".to_owned()
    } else {
        "| field | type | default | meaning | example |\n| --- | --- | --- | --- | --- |\n".to_owned()
    };
    let properties = object["properties"].as_object().expect("properties");
    let row = |field: &str| rows_of(place).iter().find(|row| row.field == field);
    // In the order of the table; a field that it lacks comes last, and the other test names it.
    let listed = rows_of(place).iter().map(|row| row.field).filter(|field| properties.contains_key(*field));
    let unlisted = properties.keys().map(String::as_str).filter(|field| row(field).is_none());
    for field in listed.chain(unlisted) {
        let declared = &properties[field];
        let run = if of_step { format!(" {} |", run_of(field)) } else { String::new() };
        let default = match row(field).map_or("", |row| row.default) {
            _ if required.contains(&field) => "required",
            _ if of_step && RUNS.iter().any(|run| run.fields().required.contains(&field)) => "required",
            "" => "–",
            default => default,
        };
        let example = row(field).map_or("", |row| row.example);
        writeln!(
            text,
            "| `{field}` |{run} {} | {} | {} | {} |",
            cell(&type_of(schema, declared)),
            cell(default),
            cell(meaning(schema, place, field)),
            if example.is_empty() { "–".to_owned() } else { format!("`{}`", cell(example)) }
        )
        .expect("a string");
    }
    text
}

fn page() -> String {
    let schema = schema();
    let mut text = HEAD.to_owned();
    text += "\n## Types\n\n| type | meaning |\n| --- | --- |\n";
    for (word, place, meaning) in TYPES {
        assert!(schema["$defs"][*place].is_object(), "{place}");
        writeln!(text, "| {word} | {meaning} |").expect("a string");
    }
    for (heading, place, intro) in SECTIONS {
        write!(text, "\n## {heading}\n\n{intro}\n\n{}", table(&schema, place)).expect("a string");
    }
    text
}

#[test]
fn the_reference_is_that_of_the_schema() {
    let page = page();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(PAGE, &page).expect("the page is written");
    }
    let written = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        written == page,
        "docs/reference/definition.md is not that of the schema: run this test with BLESS=1 and commit the page"
    );
}

/// Nothing with fields is missing from the page, and each field has its row, in both directions.
#[test]
fn every_field_of_the_format_has_a_row_with_an_example() {
    let schema = schema();
    let sections: BTreeSet<&str> = SECTIONS.iter().map(|(_, place, _)| *place).collect();
    for (place, object) in schema["$defs"].as_object().expect("definitions") {
        let has_fields = object["properties"].is_object() && place != "machine_text";
        assert_eq!(
            has_fields,
            sections.contains(place.as_str()),
            "{place}: a section of the page and no mapping, or the reverse"
        );
    }
    for place in sections {
        let declared: BTreeSet<&str> =
            schema["$defs"][place]["properties"].as_object().expect("properties").keys().map(String::as_str).collect();
        let rows: BTreeSet<&str> = rows_of(place).iter().map(|row| row.field).collect();
        assert_eq!(rows, declared, "{place}: rows of reference_fields.rs (left), fields of the schema (right)");
        for row in rows_of(place) {
            assert!(!row.example.is_empty(), "{place}.{}: no example", row.field);
            assert!(!meaning(&schema, place, row.field).is_empty(), "{place}.{}: no meaning", row.field);
        }
    }
}

/// An example can be written as it is shown.
#[test]
fn every_example_fits_the_schema() {
    for (place, rows) in FIELDS {
        for row in *rows {
            let example: Value =
                serde_saphyr::from_str(row.example).unwrap_or_else(|error| panic!("{place}: {}: {error}", row.example));
            let (field, value) = example.as_object().and_then(|map| map.iter().next()).expect("field: value");
            assert_eq!(field, row.field, "{place}");
            let mut schema = schema();
            let only = schema["$defs"][*place]["properties"][field].clone();
            let definitions = schema["$defs"].take();
            let of_field = serde_json::json!({ "$defs": definitions, "allOf": [only] });
            let validator = jsonschema::validator_for(&of_field).expect("a schema");
            let problems: Vec<String> = validator.iter_errors(value).map(|error| error.to_string()).collect();
            assert!(problems.is_empty(), "{place}: {}: {problems:?}", row.example);
        }
    }
}
