//! Comparing one row member by member. Texts of purged records are replaced by `purged:<event_id>`, or by null.

use crate::bytes::Id;
use crate::json::{self, Value};
use crate::process::Process;

pub struct Row<'v> {
    value: &'v Value,
    process: Option<&'v Process>,
    difference: Option<String>,
}

/// Whether a text stands for one that was destroyed with a record of this process.
pub fn is_purged_text(text: &str, process: &Process) -> bool {
    let event_id = text.strip_prefix("purged:").and_then(Id::parse);
    event_id.is_some_and(|id| process.purged_events.contains_key(&id))
}

impl<'v> Row<'v> {
    pub fn new(value: &'v Value) -> Self {
        Row { value, process: None, difference: None }
    }

    /// Texts may be those of this process's purged records.
    pub fn purged(mut self, process: &'v Process) -> Self {
        self.process = Some(process);
        self
    }

    pub fn difference(self) -> Option<String> {
        self.difference
    }

    pub fn text(&mut self, name: &str, expected: Option<&str>) {
        let found = self.value.get(name);
        let same = match (found, expected) {
            (Some(Value::Null), None) => true,
            (Some(Value::Text(found)), Some(expected)) => found == expected,
            _ => false,
        };
        let purged = |text: &str| self.process.is_some_and(|process| is_purged_text(text, process));
        if !same && !found.and_then(Value::as_text).is_some_and(purged) {
            self.differs(name, expected.map(str::to_owned));
        }
    }

    pub fn id(&mut self, name: &str, expected: Option<Id>) {
        self.text(name, expected.map(|id| id.to_string()).as_deref());
    }

    pub fn int(&mut self, name: &str, expected: Option<i64>) {
        let same = match (self.value.get(name), expected) {
            (Some(Value::Null), None) => true,
            (Some(Value::Int(found)), Some(expected)) => *found == expected,
            _ => false,
        };
        if !same {
            self.differs(name, expected.map(|number| number.to_string()));
        }
    }

    pub fn natural(&mut self, name: &str, expected: Option<u64>) {
        self.int(name, expected.map(|number| i64::try_from(number).unwrap_or(i64::MAX)));
    }

    pub fn flag(&mut self, name: &str, expected: bool) {
        if self.value.get(name).and_then(Value::as_bool) != Some(expected) {
            self.differs(name, Some(expected.to_string()));
        }
    }

    /// Notes a difference that the caller found.
    pub fn differs(&mut self, name: &str, expected: Option<String>) {
        let found = match self.value.get(name) {
            None | Some(Value::Null) => "nothing".to_owned(),
            Some(Value::Text(text)) => format!("`{}`", json::shortened(text)),
            Some(Value::Int(number)) => number.to_string(),
            Some(Value::Bool(flag)) => flag.to_string(),
            Some(other) => other.kind().to_owned(),
        };
        let expected = expected.map_or("nothing".to_owned(), |text| format!("`{}`", json::shortened(&text)));
        self.difference.get_or_insert(format!("`{name}` is {found}, the records say {expected}"));
    }
}
