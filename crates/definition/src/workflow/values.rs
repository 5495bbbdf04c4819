//! Single values of a workflow: words of a closed list, durations, whole numbers, switches.

use crate::duration::parse_duration;
use crate::fields::{string, text, wrong_type};
use crate::problem::{ProblemCode, Problems, enumerated, quoted};
use crate::tree::{Node, Value};
use countersign_kernel::plan::Micros;
use std::ops::RangeInclusive;

/// One of `words`, as its value.
pub(crate) fn word<T: Copy>(node: &Node, path: &str, words: &[(&str, T)], problems: &mut Problems) -> Option<T> {
    let written = string(node, path, problems)?;
    let found = words.iter().find(|(word, _)| *word == written).map(|(_, meaning)| *meaning);
    if found.is_none() {
        let names = || words.iter().map(|(word, _)| *word);
        let advice = match problems.guess(written, names()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("the values are {}", enumerated(names())),
        };
        let message = format!("{} means nothing here; {advice}", quoted(written));
        problems.add(node.at, path, ProblemCode::BadValue, message);
    }
    found
}

pub(crate) fn boolean(node: &Node, path: &str, problems: &mut Problems) -> Option<bool> {
    match node.value {
        Value::Bool(value) => Some(value),
        _ => {
            wrong_type(node, path, "`true` or `false`", problems);
            None
        }
    }
}

pub(crate) fn integer(node: &Node, path: &str, range: RangeInclusive<i64>, problems: &mut Problems) -> Option<i64> {
    let Value::Integer(value) = node.value else {
        wrong_type(node, path, "a whole number", problems);
        return None;
    };
    if !range.contains(&value) {
        let message = format!("{value} is out of range; it goes from {} to {}", range.start(), range.end());
        problems.add(node.at, path, ProblemCode::BadValue, message);
        return None;
    }
    Some(value)
}

/// A count of at least one.
pub(crate) fn count(node: &Node, path: &str, problems: &mut Problems) -> Option<u32> {
    integer(node, path, 1..=i64::from(u32::MAX), problems).and_then(|value| u32::try_from(value).ok())
}

pub(crate) fn priority(node: &Node, path: &str, problems: &mut Problems) -> Option<u8> {
    integer(node, path, 0..=9, problems).and_then(|value| u8::try_from(value).ok())
}

/// A duration, which may be nothing at all.
pub(crate) fn duration(node: &Node, path: &str, problems: &mut Problems) -> Option<Micros> {
    let written = match &node.value {
        Value::String(written) => written,
        Value::Integer(number) => {
            let message = format!("a duration needs its unit, such as `{number}s`; the units are d, h, m, s and ms");
            problems.add(node.at, path, ProblemCode::BadValue, message);
            return None;
        }
        _ => {
            wrong_type(node, path, "a duration such as `1h30m`", problems);
            return None;
        }
    };
    let found = parse_duration(written);
    if found.is_none() {
        let message = format!(
            "{} is not a duration; write whole numbers with d, h, m, s or ms, such as `1h30m`, and at most 36500d",
            quoted(written)
        );
        problems.add(node.at, path, ProblemCode::BadValue, message);
    }
    found
}

/// A duration that takes some time. Nothing at all is the problem `code`.
pub(crate) fn some_time(node: &Node, path: &str, code: ProblemCode, problems: &mut Problems) -> Option<Micros> {
    let length = duration(node, path, problems)?;
    if length == 0 {
        problems.add(node.at, path, code, "nothing could be done in no time; make it longer, or leave it out");
        return None;
    }
    Some(length)
}

/// Text that is used unchanged: an expression would not be evaluated, so it is refused.
pub(crate) fn literal<'a>(node: &'a Node, path: &str, problems: &mut Problems) -> Option<&'a str> {
    let text = text(node, path, problems)?;
    if text.contains("${") {
        let message = "no expression is evaluated here; write the text out";
        problems.add(node.at, path, ProblemCode::BadExpression, message);
        return None;
    }
    Some(text)
}
