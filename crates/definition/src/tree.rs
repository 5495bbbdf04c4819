//! The document as a tree in which every value and every key knows its place in the text. This is
//! the only shape that the kinds' modules see; they know nothing of YAML.

use crate::problem::Position;

/// Integers are exact in every reader of JSON up to here.
pub(crate) const MAX_SAFE_INTEGER: i64 = (1 << 53) - 1;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    /// Where the value begins; for an alias, the place of the alias.
    pub at: Position,
    pub value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    /// Within ±[`MAX_SAFE_INTEGER`].
    Integer(i64),
    /// Finite.
    Float(f64),
    /// Without NUL.
    String(String),
    Seq(Vec<Node>),
    /// In the order of the text; no key twice.
    Map(Vec<(Key, Node)>),
    /// Something was here and its problem has been reported; say no more of it.
    Reported,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key {
    pub at: Position,
    pub text: String,
}

impl Node {
    /// What is here, for "expected …, found …".
    pub fn describe(&self) -> &'static str {
        match &self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "a boolean",
            Value::Integer(_) | Value::Float(_) => "a number",
            Value::String(_) => "a string",
            Value::Seq(_) => "a list",
            Value::Map(_) => "a mapping",
            Value::Reported => "an unreadable value",
        }
    }

    pub fn field(&self, name: &str) -> Option<&Node> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|(key, _)| key.text == name).map(|(_, node)| node),
            _ => None,
        }
    }

    pub fn field_mut(&mut self, name: &str) -> Option<&mut Node> {
        match &mut self.value {
            Value::Map(entries) => entries.iter_mut().find(|(key, _)| key.text == name).map(|(_, node)| node),
            _ => None,
        }
    }

    /// The node at a path such as `transitions[2].to`, or the nearest one above it that exists.
    pub fn nearest(&self, path: &str) -> &Node {
        let mut node = self;
        for segment in path.split(['.', '[']).filter(|segment| !segment.is_empty()) {
            let child = match (&node.value, segment.strip_suffix(']')) {
                (Value::Seq(items), Some(index)) => index.parse().ok().and_then(|i: usize| items.get(i)),
                (Value::Map(_), None) => node.field(segment),
                _ => None,
            };
            match child {
                Some(child) => node = child,
                None => break,
            }
        }
        node
    }
}

impl Node {
    /// The node that a JSON pointer leads to, or the nearest one above it that exists, with its path from here.
    pub fn at_pointer(&self, pointer: &str) -> (&Node, String) {
        let (mut node, mut path) = (self, String::new());
        for segment in pointer.split('/').skip(1) {
            let key = segment.replace("~1", "/").replace("~0", "~");
            let (child, name) = match &node.value {
                Value::Seq(items) => (key.parse().ok().and_then(|i: usize| items.get(i)), format!("[{key}]")),
                _ => (node.field(&key), format!(".{}", crate::problem::segment(&key))),
            };
            let Some(child) = child else { break };
            (node, path) = (child, path + &name);
        }
        (node, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(line: u32, value: Value) -> Node {
        Node { at: Position { line, column: 1 }, value }
    }

    fn key(text: &str) -> Key {
        Key { at: Position::START, text: text.to_owned() }
    }

    #[test]
    fn a_path_finds_its_node_or_the_nearest_above() {
        let to = node(4, Value::String("x".into()));
        let second = node(3, Value::Map(vec![(key("to"), to)]));
        let list = node(2, Value::Seq(vec![node(9, Value::Null), second]));
        let root = node(1, Value::Map(vec![(key("transitions"), list)]));
        for (path, line) in [
            ("", 1),
            ("transitions", 2),
            ("transitions[0]", 9),
            ("transitions[1]", 3),
            ("transitions[1].to", 4),
            ("transitions[1].guard", 3),
            ("transitions[7].to", 2),
            ("transitions.to", 2),
            ("states[0]", 1),
        ] {
            assert_eq!(root.nearest(path).at.line, line, "{path}");
        }
    }
}
