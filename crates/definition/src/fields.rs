//! Checked access to a mapping: its fields are a closed list, and a value of the wrong type is reported once, at its
//! place.

use crate::problem::{Position, ProblemCode, Problems, enumerated, quoted, segment};
use crate::suggest::synonym;
use crate::tree::{Key, Node, Value};
use countersign_kernel::text::is_blank;
use std::collections::HashSet;

/// The fields of one kind of mapping. The JSON Schema is tested against these lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldList {
    pub required: &'static [&'static str],
    pub optional: &'static [&'static str],
}

impl FieldList {
    pub fn all(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.required.iter().chain(self.optional).copied()
    }
}

/// A mapping of the document, with its path.
pub(crate) struct Mapping<'a> {
    pub at: Position,
    pub entries: &'a [(Key, Node)],
    pub path: String,
    node: &'a Node,
}

impl<'a> Mapping<'a> {
    /// `node` as a mapping; anything else is a problem. `expected` says what ought to be here.
    pub fn of(node: &'a Node, path: String, expected: &str, problems: &mut Problems) -> Option<Mapping<'a>> {
        match &node.value {
            Value::Map(entries) => Some(Mapping { at: node.at, entries, path, node }),
            _ => {
                wrong_type(node, &path, expected, problems);
                None
            }
        }
    }

    pub fn get(&self, name: &str) -> Option<&'a Node> {
        self.node.field(name)
    }

    pub fn path_to(&self, field: &str) -> String {
        if self.path.is_empty() { segment(field).into_owned() } else { format!("{}.{}", self.path, segment(field)) }
    }

    /// The node at a path from the document's root; for the root mapping only.
    pub fn nearest(&self, path: &str) -> &'a Node {
        self.node.nearest(path)
    }

    /// Reports the fields that are not in the list, and those that are missing. A missing field that
    /// is there under a misspelt name is reported once, as unknown. Returns the fields so misspelt.
    pub fn check_fields(&self, list: &FieldList, problems: &mut Problems) -> HashSet<&'static str> {
        self.check_fields_offering(list, || list.all().collect(), problems)
    }

    /// Like `check_fields`, where not every field of the list belongs here: those that do are offered.
    pub fn check_fields_offering(
        &self,
        list: &FieldList,
        offered: impl Fn() -> Vec<&'static str>,
        problems: &mut Problems,
    ) -> HashSet<&'static str> {
        let mut misspelt = HashSet::new();
        for (key, _) in self.entries {
            if list.all().any(|field| field == key.text) {
                continue;
            }
            let offered = offered();
            let absent: Vec<&'static str> = list.all().filter(|field| self.get(field).is_none()).collect();
            let belongs = absent.iter().copied().filter(|field| offered.contains(field));
            let meant = synonym(&key.text, belongs.clone())
                .or_else(|| problems.guess(&key.text, belongs))
                .or_else(|| problems.guess(&key.text, absent.iter().copied()));
            let advice = match meant {
                Some(field) => format!("did you mean `{field}`?"),
                None => format!("the fields here are {}", enumerated(offered.iter().copied())),
            };
            misspelt.extend(meant);
            let message = format!("unknown field {}; {advice}", quoted(&key.text));
            problems.add(key.at, self.path_to(&key.text), ProblemCode::UnknownField, message);
        }
        self.require(list.required, &misspelt, problems);
        misspelt
    }

    /// Reports those of `fields` that are neither here nor here under a misspelt name.
    pub fn require(&self, fields: &[&'static str], misspelt: &HashSet<&'static str>, problems: &mut Problems) {
        for field in fields.iter().filter(|field| self.get(field).is_none() && !misspelt.contains(*field)) {
            problems.add(
                self.at,
                self.path_to(field),
                ProblemCode::MissingField,
                format!("`{field}` is missing here; add it"),
            );
        }
    }
}

/// A string, blank or not.
pub(crate) fn string<'a>(node: &'a Node, path: &str, problems: &mut Problems) -> Option<&'a str> {
    match &node.value {
        Value::String(text) => Some(text),
        _ => {
            wrong_type(node, path, "a string", problems);
            None
        }
    }
}

/// A string with something to see in it.
pub(crate) fn text<'a>(node: &'a Node, path: &str, problems: &mut Problems) -> Option<&'a str> {
    let text = string(node, path, problems)?;
    if is_blank(text) {
        problems.add(node.at, path, ProblemCode::Blank, "blank text; write at least one visible character");
        return None;
    }
    Some(text)
}

pub(crate) fn list<'a>(node: &'a Node, path: &str, expected: &str, problems: &mut Problems) -> Option<&'a [Node]> {
    match &node.value {
        Value::Seq(items) => Some(items),
        _ => {
            wrong_type(node, path, expected, problems);
            None
        }
    }
}

pub(crate) fn wrong_type(node: &Node, path: &str, expected: &str, problems: &mut Problems) {
    let advice = match (&node.value, expected) {
        (Value::Reported, _) => return,
        (Value::Bool(_) | Value::Integer(_) | Value::Float(_), "a string") => "; put it in quotes to make it a string",
        (Value::Null, _) if !path.is_empty() => "; fill it in, or leave the field out if it is optional",
        _ => "",
    };
    problems.add(
        node.at,
        path,
        ProblemCode::BadValue,
        format!("expected {expected}, found {}{advice}", node.describe()),
    );
}
