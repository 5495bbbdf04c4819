//! The tokens of an expression and their places: the parser gives neither after an error.

use super::template::end_of_string;
use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Name,
    Number,
    Text,
    /// A quotation that never ends.
    Unclosed,
    /// Brackets, `.`, `,`, `?`, `:` and the operators.
    Mark,
    /// What is no part of any expression.
    Stranger,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'t> {
    pub kind: Kind,
    pub text: &'t str,
    pub start: usize,
}

impl Token<'_> {
    pub fn span(&self) -> Range<usize> {
        self.start..self.start + self.text.len()
    }

    pub fn is(&self, text: &str) -> bool {
        self.text == text && matches!(self.kind, Kind::Name | Kind::Mark)
    }
}

const MARKS: &[&str] = &[
    "==", "!=", "<=", ">=", "&&", "||", "(", ")", "[", "]", "{", "}", ".", ",", "?", ":", "<", ">", "+", "-", "*", "/",
    "%", "!",
];
/// What other languages have, which is taken for one word so that it can be named.
const STRANGERS: &[&str] = &["===", "!==", "<>", "=>", "??"];

pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        if c.is_whitespace() {
            at += c.len_utf8();
            continue;
        }
        if rest.starts_with("//") {
            at += rest.find(['\n', '\r']).unwrap_or(rest.len());
            continue;
        }
        let (kind, length) = token(rest, c);
        found.push(Token { kind, text: &rest[..length], start: at });
        at += length;
    }
    found
}

fn token(rest: &str, first: char) -> (Kind, usize) {
    let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    let prefix = &rest[..word];
    let quoted = rest[word..].starts_with(['"', '\'']);
    let is_prefix = prefix.len() <= 2 && prefix.chars().all(|c| "rRbB".contains(c));
    if quoted && is_prefix {
        let raw = prefix.contains(['r', 'R']);
        return match end_of_string(rest.as_bytes(), word, raw) {
            Some(end) => (Kind::Text, end),
            None => (Kind::Unclosed, rest.len()),
        };
    }
    if first.is_ascii_digit() {
        return (Kind::Number, number(rest));
    }
    if first.is_ascii_alphabetic() || first == '_' {
        return (Kind::Name, word);
    }
    let of = |words: &[&str]| words.iter().find(|word| rest.starts_with(**word)).map(|word| word.len());
    match (of(STRANGERS), of(MARKS)) {
        (Some(length), _) => (Kind::Stranger, length),
        (None, Some(length)) => (Kind::Mark, length),
        (None, None) => (Kind::Stranger, first.len_utf8().max(word)),
    }
}

/// Digits, a fraction, an exponent, and whatever letters hang on.
fn number(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let mut end = 0;
    while let Some(byte) = bytes.get(end) {
        let fraction = *byte == b'.' && bytes.get(end + 1).is_some_and(u8::is_ascii_digit);
        let exponent = matches!(byte, b'+' | b'-') && end > 0 && matches!(bytes[end - 1], b'e' | b'E');
        if !byte.is_ascii_alphanumeric() && !fraction && !exponent {
            break;
        }
        end += 1;
    }
    end
}
