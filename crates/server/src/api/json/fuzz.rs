//! Any bytes as a body: an answer, never a panic, and what is accepted is what every other reader takes it for. What once
//! broke something is kept in `tests/corpus/bodies.txt` and read first.

use super::*;
use axum::response::IntoResponse;
use countersign_client::wire;
use proptest::prelude::*;

/// `accepted` or `refused`, and the body as a JSON string, on each line; `#` begins a comment.
const CORPUS: &str = include_str!("../../../tests/corpus/bodies.txt");

const PIECES: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\"a\"",
    "\"a\":",
    "\"definition\":",
    "\"input\":",
    "\"reason\":",
    "\"gate_spec\":",
    "{}",
    "[]",
    "null",
    "true",
    "false",
    "0",
    "-0",
    "1",
    "-1",
    "1.5",
    "1e5",
    "1e400",
    "-1e-400",
    "9007199254740991",
    "9007199254740992",
    "18446744073709551616",
    "01",
    "NaN",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\"\\ud83d\\ude00\"",
    "\\",
    "\\u",
    "\u{0}",
    "\u{FEFF}",
    "\u{1F600}",
    "\n",
    " ",
    "//",
    "/**/",
    "'",
];

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn texts_hold_no_zero(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.contains('\0'),
        Value::Array(items) => items.iter().all(texts_hold_no_zero),
        Value::Object(members) => members.iter().all(|(key, value)| !key.contains('\0') && texts_hold_no_zero(value)),
        _ => true,
    }
}

/// What every answer to any bytes must hold to. Whether they were accepted.
fn check(bytes: &[u8]) -> bool {
    match parse(bytes) {
        Ok(value) => {
            let plain: Value = serde_json::from_slice(bytes).expect("another reader reads it, too");
            assert_eq!(value, plain, "two readers, two values");
            assert!(depth(&value) <= MAX_DEPTH && texts_hold_no_zero(&value), "{value}");
            let again = parse(value.to_string().as_bytes()).expect("what was accepted is accepted again");
            assert_eq!(again, value);
            shapes(&value);
            true
        }
        Err(problem) => {
            assert_eq!(problem.into_response().status(), 400);
            false
        }
    }
}

/// Requests of every shape are made of it, or refused.
fn shapes(value: &Value) {
    fn one<T: DeserializeOwned + Serialize>(value: &Value) {
        if let Err(problem) = typed::<T>(value) {
            assert_eq!(problem.into_response().status(), 400);
        }
    }
    one::<wire::StartRun>(value);
    one::<wire::StartProcess>(value);
    one::<wire::SendEvent>(value);
    one::<wire::CompleteTask>(value);
    one::<wire::RegisterActor>(value);
    one::<wire::VerifyRecord>(value);
    one::<wire::ControlRun>(value);
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        let key = prop_oneof![
            prop::sample::select(vec![
                "definition",
                "input",
                "declaration",
                "gate_spec",
                "subject_ref",
                "output",
                "reason",
                "event_id"
            ])
            .prop_map(str::to_owned),
            ".{0,4}",
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..6).prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

#[test]
fn what_once_broke_something_is_answered() {
    let mut read = 0;
    for line in CORPUS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (verdict, body) = line.split_once(' ').expect("two parts");
        let body: String = serde_json::from_str(body.trim()).expect("a JSON string");
        assert_eq!(check(body.as_bytes()), verdict == "accepted", "{line}");
        read += 1;
    }
    assert!(read > 10, "the corpus is read");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&bytes);
    }

    #[test]
    fn any_pieces_are_answered(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..25)) {
        check(pieces.concat().as_bytes());
    }

    #[test]
    fn edited_json_is_answered(
        value in json_value(), edits in prop::collection::vec((0..300_usize, 0..5_usize, prop::sample::select(PIECES)), 0..4)
    ) {
        let mut bytes = value.to_string().into_bytes();
        for (at, cut, piece) in edits {
            let from = at % (bytes.len() + 1);
            let to = (from + cut).min(bytes.len());
            bytes.splice(from..to, piece.bytes());
        }
        check(&bytes);
    }
}
