//! Strict JSON: what two readers could understand differently is refused. Duplicate keys, integers
//! beyond ±(2^53 − 1), U+0000, bytes that are not UTF-8, and nesting that no request of ours needs
//! (`spec/record.md`, section 7). Every fault names its place.

use super::problem::{Problem, shortened};
use crate::wording::plain;
use serde::Serialize;
use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt::{self, Write};

pub const MAX_DEPTH: usize = 64;
/// 2^53 − 1: the largest integer that every JSON reader keeps exactly.
const MAX_INTEGER: u64 = (1 << 53) - 1;
/// How much of a key stands in a path.
const MAX_SEGMENT_CHARS: usize = 128;

/// The value that these bytes are.
pub fn parse(bytes: &[u8]) -> Result<Value, Problem> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let (line, column) = position(&bytes[..error.valid_up_to()]);
        Problem::invalid_request(format!("line {line}, column {column}: the body is not UTF-8"))
    })?;
    let mut fault = None;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let parsed = Strict { place: Place::Root, depth: 0, fault: &mut fault }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value));
    parsed.map_err(|error| match fault {
        Some(Fault { field, message }) => {
            let detail = format!("line {}, column {}: {message}", error.line(), error.column());
            let problem = Problem::invalid_request(detail);
            if field.is_empty() { problem } else { problem.at(field) }
        }
        None => Problem::invalid_request(syntax_error(&error)),
    })
}

/// The value as a request of this type; unknown fields, wrong types and missing fields are refused.
pub fn typed<T: DeserializeOwned + Serialize>(value: &Value) -> Result<T, Problem> {
    if !value.is_object() {
        return Err(Problem::invalid_request(format!("the body is {}; it must be an object", kind(value))));
    }
    let typed: T = serde_path_to_error::deserialize(value).map_err(|error| {
        let mut field = match error.path().to_string() {
            root if root == "." => String::new(),
            path => path,
        };
        let message = error.inner().to_string();
        // The path of what is missing ends at its parent.
        if let Some(name) = message.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
            if !field.is_empty() {
                field.push('.');
            }
            field.push_str(name);
        }
        let message = shortened(&plain(&message), 300);
        if field.is_empty() {
            Problem::invalid_request(format!("the body: {message}"))
        } else {
            Problem::invalid_request(format!("`{}`: {message}", shortened(&field, MAX_SEGMENT_CHARS))).at(field)
        }
    })?;
    // serde also takes a list for a struct, by position. We do not.
    let meant = serde_json::to_value(&typed).unwrap_or_default();
    same_kinds(value, &meant, Place::Root)?;
    Ok(typed)
}

/// What was written is of the same kinds as what was understood.
fn same_kinds(written: &Value, meant: &Value, place: Place<'_>) -> Result<(), Problem> {
    match (written, meant) {
        (Value::Object(written), Value::Object(meant)) => written
            .iter()
            .filter_map(|(key, value)| Some((key, value, meant.get(key)?)))
            .try_for_each(|(key, value, meant)| same_kinds(value, meant, Place::Member { parent: &place, key })),
        (Value::Array(written), Value::Array(meant)) => written
            .iter()
            .zip(meant)
            .enumerate()
            .try_for_each(|(index, (value, meant))| same_kinds(value, meant, Place::Item { parent: &place, index })),
        // What may be null was read as absent, or as blank.
        (Value::Null, _) => Ok(()),
        _ if std::mem::discriminant(written) == std::mem::discriminant(meant) => Ok(()),
        _ => {
            let (found, expected) = (kind(written), kind(meant));
            let problem = match place {
                Place::Root => Problem::invalid_request(format!("the body is {found}; it must be {expected}")),
                place => Problem::invalid_request(format!("`{place}` is {found}; it must be {expected}"))
                    .at(place.to_string()),
            };
            Err(problem)
        }
    }
}

const fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// serde_json ends its messages with the place; ours begin with it.
fn syntax_error(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
    format!("line {}, column {}: the body is not JSON: {message}", error.line(), error.column())
}

fn position(before: &[u8]) -> (usize, usize) {
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
    (line, column)
}

struct Fault {
    field: String,
    message: String,
}

/// Where the visitor stands: a list through the callers' frames, written out only for a fault.
#[derive(Clone, Copy)]
enum Place<'p> {
    Root,
    Member { parent: &'p Place<'p>, key: &'p str },
    Item { parent: &'p Place<'p>, index: usize },
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Root => Ok(()),
            Place::Item { parent, index } => write!(f, "{parent}[{index}]"),
            Place::Member { parent: Place::Root, key } => f.write_str(&shortened(key, MAX_SEGMENT_CHARS)),
            Place::Member { parent, key } => {
                parent.fmt(f)?;
                f.write_char('.')?;
                f.write_str(&shortened(key, MAX_SEGMENT_CHARS))
            }
        }
    }
}

/// Builds a value and watches over it.
struct Strict<'p, 'f> {
    place: Place<'p>,
    depth: usize,
    fault: &'f mut Option<Fault>,
}

impl Strict<'_, '_> {
    /// Notes the fault for our own report and stops the deserializer.
    fn refuse<T, E: de::Error>(self, message: impl Into<String>) -> Result<T, E> {
        *self.fault = Some(Fault { field: self.place.to_string(), message: message.into() });
        Err(E::custom("refused"))
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        if value > MAX_INTEGER { self.refuse(beyond(value)) } else { Ok(Value::from(value)) }
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        if value.unsigned_abs() > MAX_INTEGER { self.refuse(beyond(value)) } else { Ok(Value::from(value)) }
    }

    /// Also whole numbers that fit no integer come here.
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        match Number::from_f64(value) {
            Some(number) if value.abs() <= MAX_INTEGER as f64 => Ok(Value::Number(number)),
            _ => self.refuse(beyond(value)),
        }
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        if value.contains('\0') {
            return self.refuse("the text holds the character U+0000");
        }
        Ok(Value::from(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        if self.depth == MAX_DEPTH {
            return self.refuse(format!("nested deeper than {MAX_DEPTH} levels"));
        }
        let mut list = Vec::new();
        loop {
            let place = Place::Item { parent: &self.place, index: list.len() };
            let item = Strict { place, depth: self.depth + 1, fault: self.fault };
            match items.next_element_seed(item)? {
                Some(value) => list.push(value),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        if self.depth == MAX_DEPTH {
            return self.refuse(format!("nested deeper than {MAX_DEPTH} levels"));
        }
        let mut map = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            let place = Place::Member { parent: &self.place, key: &key };
            let member = Strict { place, depth: self.depth + 1, fault: self.fault };
            if key.contains('\0') {
                return member.refuse("the key holds the character U+0000");
            }
            if map.contains_key(&key) {
                return member.refuse("this key stands here twice");
            }
            let value = members.next_value_seed(member)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

fn beyond(number: impl fmt::Display) -> String {
    let number = shortened(&number.to_string(), 40);
    format!("the number {number} is beyond ±{MAX_INTEGER}, where readers no longer agree on its value")
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;
    use axum::response::IntoResponse;
    use serde_json::json;

    async fn told(problem: Problem) -> (Option<String>, String) {
        let body = axum::body::to_bytes(problem.into_response().into_body(), 100_000).await.expect("a body");
        let problem: countersign_client::wire::Problem = serde_json::from_slice(&body).expect("a problem");
        assert_eq!(problem.code, "invalid-request");
        (problem.field, problem.detail)
    }

    #[tokio::test]
    async fn what_readers_could_take_differently_is_refused_at_its_place() {
        let deep = format!("{}1{}", "[".repeat(65), "]".repeat(65));
        for (body, field, detail) in [
            (&br#"{"a": 1"#[..], None, "line 1, column 7: the body is not JSON: EOF"),
            (b"", None, "line 1, column 0: the body is not JSON"),
            (b"{} {}", None, "line 1, column 4"),
            (b"{\"a\":\n  \xff}", None, "line 2, column 3: the body is not UTF-8"),
            (b"\xef\xbb\xbf{}", None, "line 1, column 1"),
            (br#"{"a": "\ud800"}"#, None, "line 1"),
            (br#"{"a": 01}"#, None, "line 1"),
            (br#"{"a": NaN}"#, None, "line 1"),
            (br#"{"a": 1e999}"#, None, "out of range"),
            (br#"{"a": 1, "b": {"a": 1}, "a": 2}"#, Some("a"), "twice"),
            (br#"{"x": [{"y": {}}, {"y": {"k": 1, "k": 1}}]}"#, Some("x[1].y.k"), "twice"),
            (br#"{"a": 9007199254740992}"#, Some("a"), "9007199254740992"),
            (br#"{"a": [-9007199254740992]}"#, Some("a[0]"), "-9007199254740992"),
            (br#"{"a": 123456789012345678901234567890}"#, Some("a"), "beyond"),
            (br#"{"a": 1e300}"#, Some("a"), "beyond"),
            (br#"{"a": ["b\u0000"]}"#, Some("a[0]"), "U+0000"),
            (br#"{"\u0000": 1}"#, Some("\0"), "U+0000"),
            (deep.as_bytes(), Some(&"[0]".repeat(64)), "deeper than 64"),
        ] {
            let text = String::from_utf8_lossy(body);
            let (at, said) = told(parse(body).expect_err(&text)).await;
            assert_eq!(at.as_deref(), field, "{text}: {said}");
            assert!(said.contains(detail), "{text}: {said}");
        }
    }

    #[test]
    fn everything_else_is_kept_as_it_is() {
        let depth = format!("{}{}", "[".repeat(64), "]".repeat(64));
        assert!(parse(depth.as_bytes()).is_ok());
        let value = parse(br#" {"b": [1, -2, 2.5, true, null, "\u00e9"], "a": 9007199254740991} "#).ok();
        assert_eq!(value, Some(json!({"b": [1, -2, 2.5, true, null, "é"], "a": 9_007_199_254_740_991_u64})));
    }

    #[tokio::test]
    async fn a_request_names_the_field_that_does_not_fit() {
        use countersign_client::wire::StartProcess;
        let declaration = json!({"states": ["a"], "transitions": [], "initial_state": "a", "terminal_states": []});
        for (value, field, detail) in [
            (json!([]), None, "the body is a list; it must be an object"),
            (json!("s"), None, "the body is text; it must be an object"),
            (json!([null, "d", "s", null, null]), None, "the body is a list; it must be an object"),
            (
                json!({"subject_ref": "s", "declaration": {"states": [], "transitions": [["a", "b", "c"]],
                    "initial_state": "a", "terminal_states": []}}),
                Some("declaration.transitions[0]"),
                "is a list; it must be an object",
            ),
            (
                json!({"subject_ref": "s", "gate_spec": {"x": {"quorum": {"rule": {"all-of-n": null}}, "scope": "s"}}}),
                Some("gate_spec.x.quorum.rule"),
                "must be text",
            ),
            (json!({}), Some("subject_ref"), "missing field"),
            (json!({"subject_ref": 5}), Some("subject_ref"), "expected a string"),
            (json!({"subject_ref": "s", "subject": 1}), Some("subject"), "unknown field"),
            (
                json!({"subject_ref": "s", "gate_spec": {"x": {"approver_ref": "a"}}}),
                Some("gate_spec.x.scope"),
                "missing field",
            ),
            (
                json!({"subject_ref": "s", "declaration": declaration, "gate_spec": {"QP-sign-off": {"scope": true}}}),
                Some("gate_spec.QP-sign-off.scope"),
                "expected a string",
            ),
            (
                json!({"subject_ref": "s", "gate_spec": {"x": {"quorum": {"rule": "most"}, "scope": "s"}}}),
                Some("gate_spec.x.quorum.rule"),
                "all-of-n",
            ),
            (
                json!({"subject_ref": "s", "gate_spec": {"x": {"quorum": {"rule": "m-of-n", "m": -1}}}}),
                Some("gate_spec.x.quorum.m"),
                "`-1`, expected a whole number",
            ),
        ] {
            let text = value.to_string();
            let (at, said) = told(typed::<StartProcess>(&value).expect_err(&text)).await;
            assert_eq!(at.as_deref(), field, "{text}: {said}");
            assert!(said.contains(detail), "{text}: {said}");
        }
    }
}
