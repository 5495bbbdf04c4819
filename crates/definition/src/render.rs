//! Problems for a terminal: the file, line and column, the line itself, and a caret under the place.

use crate::problem::{lines, printable};
use crate::read::BYTE_ORDER_MARK;
use crate::{Problem, Severity};
use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use std::borrow::Cow;

/// How much of a path stands beside the caret; a document can make its labels as long as it likes.
const MAX_PATH_CHARS: usize = 100;

/// One report per problem, in the order given. `text` is the document that was parsed. What the
/// document holds is shown as text: no control character reaches the terminal.
pub fn render(file_name: &str, text: &str, problems: &[Problem], colour: bool) -> String {
    let renderer = if colour { Renderer::styled() } else { Renderer::plain() }.decor_style(DecorStyle::Ascii);
    let lines: Vec<&str> = lines(text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)).collect();
    let file_name = Cow::from(printable(file_name, usize::MAX));
    let mut out = String::new();
    for problem in problems {
        let line = lines.get(problem.line.saturating_sub(1) as usize).copied().unwrap_or_default();
        let line: Vec<char> = line.chars().map(|c| if is_harmless(c) { c } else { '\u{FFFD}' }).collect();
        let start = (problem.column.saturating_sub(1) as usize).min(line.len());
        let width = problem.width.map_or_else(|| marked(&line, start), |width| width as usize);
        let end = (start + width).min(line.len());
        let bytes = |to: usize| line[..to].iter().map(|c| c.len_utf8()).sum::<usize>();
        let annotation = AnnotationKind::Primary.span(bytes(start)..bytes(end));
        let annotation = if problem.path.is_empty() {
            annotation
        } else {
            annotation.label(printable(&problem.path, MAX_PATH_CHARS))
        };
        let snippet = Snippet::source(line.iter().collect::<String>())
            .line_start(problem.line as usize)
            .path(&file_name)
            .annotation(annotation);
        let level = match problem.code.severity() {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let title = level.primary_title(problem.message.as_str()).id(problem.code.as_str());
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&renderer.render(&[title.element(snippet)]));
        out.push('\n');
    }
    out
}

fn is_harmless(c: char) -> bool {
    c == '\t' || !c.is_control()
}

/// How many characters to mark from `start` on: a quoted string, a bracket, or a word up to where YAML ends one.
fn marked(line: &[char], start: usize) -> usize {
    let from = &line[start..];
    let ends_word = |i: usize| from.get(i + 1).is_none_or(|c| c.is_whitespace());
    let word = match from.first() {
        None => 0,
        Some(c) if c.is_whitespace() => 1,
        Some(quote @ ('"' | '\'')) => from[1..].iter().position(|c| c == quote).map_or(from.len(), |end| end + 2),
        Some('{' | '[' | '}' | ']' | ',' | '#') => 1,
        Some('-' | '?' | ':') if ends_word(0) => 1,
        Some(_) => plain(from, in_brackets(&line[..start])),
    };
    let trailing = from[..word].iter().rev().take_while(|c| c.is_whitespace()).count();
    (word - trailing).max(word.min(1))
}

/// The length of a value without quotes. Between brackets, more characters end it; `${…}` is one piece.
fn plain(from: &[char], in_brackets: bool) -> usize {
    let mut braces = 0_usize;
    for (i, c) in from.iter().enumerate() {
        let before = i.checked_sub(1).map(|i| from[i]);
        let after = from.get(i + 1);
        match c {
            '{' if before == Some('$') || braces > 0 => braces += 1,
            '}' if braces > 0 => braces -= 1,
            _ if braces > 0 => {}
            ':' if after.is_none_or(|c| c.is_whitespace()) => return i,
            '#' if before.is_some_and(char::is_whitespace) => return i,
            ',' | '{' | '}' | '[' | ']' if in_brackets => return i,
            _ => {}
        }
    }
    from.len()
}

/// Whether a bracket is open at the end of this line so far, as far as the line tells.
fn in_brackets(before: &[char]) -> bool {
    let (mut open, mut quote) = (0_usize, None);
    for c in before {
        match (quote, c) {
            (Some(end), c) if end == c => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '{' | '[') => open += 1,
            (None, '}' | ']') => open = open.saturating_sub(1),
            _ => {}
        }
    }
    open > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_a_quotation_or_a_bracket_is_marked() {
        for (before, from, expected) in [
            ("[", "draft, x]", "draft"),
            ("", "name: x", "name"),
            ("", "\"a, b\", c", "\"a, b\""),
            ("", "'a b", "'a b"),
            ("", "{from: a}", "{"),
            ("", "released  # x", "released"),
            ("", "- x", "-"),
            ("", "\tx", "\t"),
            ("", "", ""),
            ("{n: ", "-1}", "-1"),
            ("until: ", "2027-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
            ("url: ", "htp://x  ", "htp://x"),
            ("k: ", "a, b", "a, b"),
            ("k: ", "${input.x ? {'a': 1} : 2}-x # y", "${input.x ? {'a': 1} : 2}-x"),
        ] {
            let line: Vec<char> = before.chars().chain(from.chars()).collect();
            assert_eq!(marked(&line, before.chars().count()), expected.chars().count(), "{before}{from}");
        }
    }
}
