//! Comparing one row member by member.

use crate::bytes::Id;
use crate::json::{self, Value};

pub struct Row<'v> {
    value: &'v Value,
    difference: Option<String>,
}

impl<'v> Row<'v> {
    pub fn new(value: &'v Value) -> Self {
        Row { value, difference: None }
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
        if !same {
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
