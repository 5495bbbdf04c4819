//! Text to a span tree. Here, and nowhere else, is YAML: bounds on nesting and aliases, duplicate
//! keys, numbers that not every reader of JSON would keep, and the one-document rule.

use crate::problem::{Position, ProblemCode, Problems, quoted, segment};
use crate::syntax::{SECOND_DOCUMENT, after_document_end, explain, position};
use crate::tree::{Key, MAX_SAFE_INTEGER, Node, Value};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, MergeKeyPolicy, NonFiniteFloatPolicy, Spanned};
use std::collections::HashSet;
use std::fmt;

pub(crate) const MAX_DEPTH: usize = 64;
/// A workflow of 100,000 short steps has room; a node takes some hundred bytes of memory.
const MAX_NODES: usize = 1_500_000;
/// A value has one event, a list or a mapping two.
const MAX_EVENTS: usize = 2 * MAX_NODES;
/// What all aliases together may unfold into: values, and bytes.
const MAX_ALIAS_VALUES: usize = 100_000;
const MAX_ALIAS_BYTES: usize = 64 << 20;

/// Not counted as a column.
pub(crate) const BYTE_ORDER_MARK: char = '\u{FEFF}';

/// The document's tree. `None` when the text is not YAML; then there is a problem. A tree may come
/// with problems too: what they are about is [`Value::Reported`] or left out.
pub(crate) fn read(bytes: &[u8], problems: &mut Problems) -> Option<Node> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let before = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
            let at = Position::after(before.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&before));
            problems.add(at, "", ProblemCode::YamlSyntax, "this byte is not UTF-8; save the file as UTF-8");
            return None;
        }
    };
    match serde_saphyr::from_str_with_options::<RawNode>(text, options(text.len())) {
        Ok(root) => {
            if let Some(at) = after_document_end(text) {
                problems.add(at, "", ProblemCode::YamlSyntax, SECOND_DOCUMENT);
            }
            Some(Cleaner { problems, path: String::new() }.node(root))
        }
        Err(error) => {
            let (at, message) = explain(&error, text);
            problems.add(at, "", ProblemCode::YamlSyntax, message);
            None
        }
    }
}

fn options(text_bytes: usize) -> serde_saphyr::Options {
    // No value is longer than the text.
    let max_alias_values = MAX_ALIAS_VALUES.min(MAX_ALIAS_BYTES / text_bytes.max(1));
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_events: MAX_EVENTS,
            // The bound on what aliases unfold into is the one that matters.
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: max_alias_values },
        // The reader passes every string key on; `Cleaner` reports the second and keeps the first.
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        merge_keys: MergeKeyPolicy::AsOrdinary,
        // `no` is a word, and may be a state.
        strict_booleans: true,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        reject_unsupported_tags: true,
        // Otherwise more than 32 comment lines in a row are an error.
        emit_comments: false,
        with_snippet: false,
    }
}

/// A value as the reader gives it, before the checks of [`Cleaner`].
struct RawNode {
    at: Position,
    value: RawValue,
}

enum RawValue {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    String(String),
    Seq(Vec<RawNode>),
    Map(Vec<(RawNode, RawNode)>),
}

impl<'de> Deserialize<'de> for RawNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<RawValue>::deserialize(deserializer)?;
        Ok(RawNode { at: position(spanned.referenced), value: spanned.value })
    }
}

impl<'de> Deserialize<'de> for RawValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = RawValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<RawValue, E> {
        Ok(RawValue::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<RawValue, E> {
        Ok(RawValue::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<RawValue, E> {
        Ok(RawValue::Integer(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<RawValue, E> {
        Ok(RawValue::Integer(i64::try_from(value).unwrap_or(i64::MAX)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<RawValue, E> {
        Ok(RawValue::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<RawValue, E> {
        Ok(RawValue::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<RawValue, E> {
        Ok(RawValue::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<RawValue, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(RawValue::Seq(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawValue, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(RawValue::Map(entries))
    }
}

/// Reports what no document may hold, whatever its kind, and keeps it out of the tree. Its depth of
/// recursion is the reader's bound on nesting.
struct Cleaner<'a> {
    problems: &'a mut Problems,
    path: String,
}

impl Cleaner<'_> {
    fn node(&mut self, raw: RawNode) -> Node {
        let at = raw.at;
        let value = match raw.value {
            RawValue::Null => Value::Null,
            RawValue::Bool(value) => Value::Bool(value),
            RawValue::Integer(value) if value.abs_diff(0) > MAX_SAFE_INTEGER.abs_diff(0) => {
                self.reported(at, TOO_LARGE)
            }
            RawValue::Integer(value) => Value::Integer(value),
            RawValue::Float(value) if !value.is_finite() => self.reported(at, NOT_FINITE),
            RawValue::Float(value) if value.abs() > MAX_SAFE_INTEGER as f64 => self.reported(at, TOO_LARGE),
            RawValue::Float(value) => Value::Float(value),
            RawValue::String(text) if text.contains('\0') => self.reported(at, HOLDS_NUL),
            RawValue::String(text) => Value::String(text),
            RawValue::Seq(items) => Value::Seq(self.seq(items)),
            RawValue::Map(entries) => Value::Map(self.map(entries)),
        };
        Node { at, value }
    }

    fn reported(&mut self, at: Position, message: &str) -> Value {
        self.problems.add(at, self.path.clone(), ProblemCode::BadValue, message);
        Value::Reported
    }

    fn seq(&mut self, items: Vec<RawNode>) -> Vec<Node> {
        let length = self.path.len();
        let mut clean = Vec::with_capacity(items.len());
        for (i, item) in items.into_iter().enumerate() {
            self.path.push_str(&format!("[{i}]"));
            clean.push(self.node(item));
            self.path.truncate(length);
        }
        clean
    }

    fn map(&mut self, entries: Vec<(RawNode, RawNode)>) -> Vec<(Key, Node)> {
        let length = self.path.len();
        let mut seen = HashSet::new();
        let mut clean = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let Some(key) = self.key(key) else { continue };
            if length > 0 {
                self.path.push('.');
            }
            self.path.push_str(&segment(&key.text));
            if seen.insert(key.text.clone()) {
                let value = self.node(value);
                clean.push((key, value));
            } else {
                let message = format!("{} is given twice; keep one of the two", quoted(&key.text));
                self.problems.add(key.at, self.path.clone(), ProblemCode::DuplicateKey, message);
            }
            self.path.truncate(length);
        }
        clean
    }

    fn key(&mut self, raw: RawNode) -> Option<Key> {
        let at = raw.at;
        let message = match raw.value {
            RawValue::String(text) if text.contains('\0') => HOLDS_NUL,
            RawValue::String(text) if text == "<<" => {
                "merge keys (`<<`) are not part of YAML 1.2; write the fields out"
            }
            RawValue::String(text) => return Some(Key { at, text }),
            RawValue::Null => "a key is missing here",
            RawValue::Map(_) => "a key must be a string, not a mapping; an expression is written `\"${…}\"`",
            RawValue::Seq(_) => "a key must be a string, not a list",
            RawValue::Bool(_) | RawValue::Integer(_) | RawValue::Float(_) => "a key must be a string; put it in quotes",
        };
        self.problems.add(at, self.path.clone(), ProblemCode::BadValue, message);
        None
    }
}

const TOO_LARGE: &str =
    "a number beyond ±9007199254740991 (2^53−1) loses digits in JSON; write it as a string, in quotes";
const NOT_FINITE: &str = "not a finite number; write a number, or put it in quotes to make it a string";
const HOLDS_NUL: &str = "text with a NUL character cannot be stored; remove it";
