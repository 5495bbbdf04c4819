//! Documents that were made to do harm, kept in `tests/corpus/`, and what becomes of them when they are altered. Whatever the
//! document: an answer, on a small stack, and what is accepted can be used within its budget.

use countersign_definition::{Body, Cel, parse};
use countersign_kernel::Budget;
use countersign_kernel::plan::{Expression, Language, Scope, Template};
use proptest::prelude::*;
use std::path::Path;

const SMALL_STACK: usize = 2 << 20;

fn corpus() -> Vec<(String, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let entries = std::fs::read_dir(directory).expect("the corpus");
    let mut all: Vec<(String, Vec<u8>)> = entries
        .map(|entry| entry.expect("an entry"))
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path()).expect("a file")))
        .collect();
    all.sort();
    all
}

/// Values that expressions and schemas are tried on.
const VALUES: &[&str] = &[
    "null",
    r#"{"items":["a","b","c"],"text":"aaaa","children":[{"children":[]}],"a":{"a":{"a":1}}}"#,
    "[[[[1,2],3],4],5]",
    "\"aaaaaaaaaaaaaaaaaaaaaaaa\"",
];

/// Reads a document, and uses what it holds.
fn try_out(text: &[u8]) -> bool {
    let Ok(definition) = parse(text) else { return false };
    let cel = Cel::with_cache(1 << 20);
    if let Body::Workflow { plan, document } = definition.body {
        assert_eq!(cel.plan(&document).as_ref(), Ok(&plan));
        cel.prepare(&document);
        for value in VALUES {
            let budget = Budget::default();
            let language = cel.metered(&budget);
            let scope = Scope { input: Some(value), event: Some(value), output: Some(value), ..Scope::default() };
            if let Some(schema) = &plan.input_schema {
                let _ = language.conforms(schema, value);
            }
            for step in &plan.steps {
                let _ = step.when.as_ref().map(|when| language.judge(when, &scope));
                let templates = step.input.iter().chain(&step.output);
                templates.for_each(|template| drop(language.fill(template, &scope)));
            }
        }
    }
    true
}

fn on_a_small_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(SMALL_STACK).spawn_scoped(scope, work);
        thread.expect("a thread").join().expect("no panic")
    })
}

#[test]
fn the_corpus_is_answered() {
    let accepted: Vec<String> =
        corpus().into_iter().filter(|(_, text)| on_a_small_stack(|| try_out(text))).map(|(name, _)| name).collect();
    let expected = [
        "dynamic-reference.json",
        "maps-of-maps.yaml",
        "pattern-that-looks-around.json",
        "properties-deep.json",
        "schemas-in-schemas.json",
        "template-deep.json",
    ];
    assert_eq!(accepted, expected);
}

/// Pieces that expressions are made of.
const PIECES: &[&str] = &[
    "input",
    "input.items",
    "input.text",
    ".a",
    ".all(x, ",
    ".map(x, ",
    ".filter(x, ",
    ".exists_one(x, ",
    "x",
    ")",
    "(",
    "[",
    "]",
    "{'a': ",
    "}",
    ", ",
    " + ",
    " - ",
    " * ",
    " == ",
    " in ",
    " && ",
    " || ",
    " ? ",
    " : ",
    "!",
    "-",
    "1",
    "2.5",
    "'aaaa'",
    "''",
    "size(",
    "string(",
    ".matches('a+')",
    ".matches(x)",
    ".contains('a')",
    "has(input.a)",
    "true",
    "null",
    "[0]",
    "b'a'",
    "type(",
];

/// Parts of schemas that fit anywhere.
fn any_schema() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::json;
    let leaf = prop_oneof![
        Just(json!(true)),
        Just(json!({"type": "string"})),
        Just(json!({"pattern": "^a+$"})),
        Just(json!({"enum": [1, "a", null]})),
        Just(json!({"uniqueItems": true})),
        (0..4u8).prop_map(|i| json!({"$ref": format!("#/$defs/d{i}")})),
        Just(json!({"$dynamicRef": "#n"})),
        Just(json!({"$ref": "#"})),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(|all| json!({"anyOf": all})),
            prop::collection::vec(inner.clone(), 1..4)
                .prop_map(|all| json!({"allOf": all, "unevaluatedProperties": false})),
            prop::collection::vec(inner.clone(), 1..3).prop_map(|all| json!({"oneOf": all})),
            inner.clone().prop_map(|one| json!({"not": one})),
            inner.clone().prop_map(|one| json!({"properties": {"a": one, "items": {"items": one}}})),
            inner.clone().prop_map(|one| json!({"items": one, "contains": one})),
            inner.clone().prop_map(|one| json!({"additionalProperties": one, "patternProperties": {"^i": one}})),
            inner.prop_map(|one| json!({"$dynamicAnchor": "n", "if": one, "then": one})),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn an_altered_corpus_is_answered(
        (which, at, piece) in (any::<prop::sample::Index>(), any::<prop::sample::Index>(), prop::sample::select(PIECES)),
        length in 0..60usize,
    ) {
        let corpus = corpus();
        let mut text = corpus[which.index(corpus.len())].1.clone();
        let start = at.index(text.len() + 1);
        let end = (start + length).min(text.len());
        text.splice(start..end, piece.bytes());
        on_a_small_stack(|| try_out(&text));
    }

    #[test]
    fn any_expression_is_answered_within_its_budget(pieces in prop::collection::vec(prop::sample::select(PIECES), 1..40)) {
        let (cel, budget) = (Cel::with_cache(1 << 20), Budget::default());
        let expression = Expression(pieces.concat().into());
        let template = Template(serde_json::json!(format!("${{{}}}", pieces.concat())).to_string().into());
        on_a_small_stack(|| {
            let scope = Scope { input: Some(VALUES[1]), ..Scope::default() };
            let language = cel.metered(&budget);
            let first = language.judge(&expression, &scope);
            let _ = language.fill(&template, &scope);
            let again = Cel::new().judge(&expression, &scope);
            prop_assert_eq!(first, again, "the same answer each time");
            Ok(())
        })?;
    }

    #[test]
    fn any_schema_is_answered_within_its_budget(root in any_schema(), defs in prop::collection::vec(any_schema(), 4)) {
        let mut root = match root {
            serde_json::Value::Object(fields) => fields,
            _ => serde_json::Map::new(),
        };
        let defs = defs.into_iter().enumerate().map(|(i, schema)| (format!("d{i}"), schema)).collect();
        root.insert("$defs".to_owned(), serde_json::Value::Object(defs));
        let text = serde_json::json!({
            "kind": "workflow", "name": "w", "steps": [{"name": "a"}], "inputSchema": root,
        });
        on_a_small_stack(|| try_out(text.to_string().as_bytes()));
    }
}
