//! Problems for a terminal: the file, line and column, the line itself, and a caret under the place.

use crate::Problem;
use crate::problem::{lines, printable};
use crate::read::BYTE_ORDER_MARK;
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
        let end = start + marked(&line[start..]);
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
        let title = Level::ERROR.primary_title(problem.message.as_str()).id(problem.code.as_str());
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

/// How many characters to mark: a quoted string, a bracket, or a word up to where YAML ends one.
fn marked(from: &[char]) -> usize {
    let word = match from.first() {
        None => 0,
        Some(c) if c.is_whitespace() => 1,
        Some(quote @ ('"' | '\'')) => from[1..].iter().position(|c| c == quote).map_or(from.len(), |end| end + 2),
        Some('{' | '[' | '}' | ']' | ',' | '-' | '?' | ':' | '#') => 1,
        Some(_) => from.iter().position(|c| matches!(c, ',' | '{' | '}' | '[' | ']' | ':' | '#')).unwrap_or(from.len()),
    };
    let trailing = from[..word].iter().rev().take_while(|c| c.is_whitespace()).count();
    (word - trailing).max(word.min(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_a_quotation_or_a_bracket_is_marked() {
        for (from, expected) in [
            ("draft, x]", "draft"),
            ("name: x", "name"),
            ("\"a, b\", c", "\"a, b\""),
            ("'a b", "'a b"),
            ("{from: a}", "{"),
            ("released  # x", "released"),
            ("- x", "-"),
            ("\tx", "\t"),
            ("", ""),
        ] {
            let chars: Vec<char> = from.chars().collect();
            assert_eq!(marked(&chars), expected.chars().count(), "{from}");
        }
    }
}
