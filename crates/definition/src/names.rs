//! Names: of definitions, and of their parts.

use crate::fields::text;
use crate::problem::{ProblemCode, Problems, quoted};
use crate::tree::Node;

const MAX_SEGMENT: usize = 64;

/// A letter and then up to 63 letters, digits, `_` or `-`.
pub(crate) fn is_name(text: &str) -> bool {
    text.len() <= MAX_SEGMENT
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// Names joined by dots.
pub(crate) fn is_definition_name(text: &str) -> bool {
    text.split('.').all(is_name)
}

pub(crate) fn definition_name(node: &Node, problems: &mut Problems) -> Option<String> {
    let name = text(node, "name", problems)?;
    if !is_definition_name(name) {
        let message = format!(
            "{} is not a definition's name; start with a letter, then use letters, digits, `_` and `-`, \
             at most {MAX_SEGMENT} in a row, with dots between such parts",
            quoted(name)
        );
        problems.add(node.at, "name", ProblemCode::BadValue, message);
        return None;
    }
    Some(name.to_owned())
}

pub(crate) fn name<'a>(node: &'a Node, path: &str, problems: &mut Problems) -> Option<&'a str> {
    let name = text(node, path, problems)?;
    if !is_name(name) {
        problems.add(node.at, path, ProblemCode::BadValue, not_a_name(name));
        return None;
    }
    Some(name)
}

pub(crate) fn not_a_name(text: &str) -> String {
    format!(
        "{} is not a name; start with a letter, then use letters, digits, `_` and `-`, at most {MAX_SEGMENT} in all",
        quoted(text)
    )
}
