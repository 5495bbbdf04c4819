//! Problems for a terminal: the file, line and column, the line itself, and a caret under the place.

use crate::Problem;
use crate::read::BYTE_ORDER_MARK;
use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

/// One report per problem, in the order given. `text` is the document that was parsed. What the
/// document holds is shown as text: no control character reaches the terminal.
pub fn render(file_name: &str, text: &str, problems: &[Problem], colour: bool) -> String {
    let renderer = if colour { Renderer::styled() } else { Renderer::plain() }.decor_style(DecorStyle::Ascii);
    let lines: Vec<&str> = lines(text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)).collect();
    let mut out = String::new();
    for problem in problems {
        let line = lines.get(problem.line.saturating_sub(1) as usize).copied().unwrap_or_default();
        let line: Vec<char> = line.chars().map(|c| if is_harmless(c) { c } else { '\u{FFFD}' }).collect();
        let start = (problem.column.saturating_sub(1) as usize).min(line.len());
        let end = start + marked(&line[start..]);
        let bytes = |to: usize| line[..to].iter().map(|c| c.len_utf8()).sum::<usize>();
        let annotation = AnnotationKind::Primary.span(bytes(start)..bytes(end));
        let annotation = if problem.path.is_empty() { annotation } else { annotation.label(problem.path.as_str()) };
        let snippet = Snippet::source(line.iter().collect::<String>())
            .line_start(problem.line as usize)
            .path(file_name)
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

/// Lines end as YAML has them end: LF, CR LF or CR.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(end) = text.find(['\n', '\r']) else {
            rest = None;
            return Some(text);
        };
        let after = &text[end..];
        rest = after.strip_prefix("\r\n").or_else(|| after.get(1..));
        Some(&text[..end])
    })
}

fn is_harmless(c: char) -> bool {
    c == '\t' || !c.is_control()
}

/// How many characters to mark: a quoted string, a bracket, or a word up to where YAML ends one.
fn marked(from: &[char]) -> usize {
    let word = match from.first() {
        None => 0,
        Some(quote @ ('"' | '\'')) => from[1..].iter().position(|c| c == quote).map_or(from.len(), |end| end + 2),
        Some('{' | '[' | '}' | ']' | ',' | '-' | '?' | ':' | '#') => 1,
        Some(_) => from.iter().position(|c| matches!(c, ',' | '{' | '}' | '[' | ']' | ':' | '#')).unwrap_or(from.len()),
    };
    let trailing = from[..word].iter().rev().take_while(|c| c.is_whitespace()).count();
    (word - trailing).max(usize::from(!from.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_yaml() {
        assert_eq!(lines("a\nb\r\nc\rd\n").collect::<Vec<_>>(), ["a", "b", "c", "d", ""]);
        assert_eq!(lines("").collect::<Vec<_>>(), [""]);
    }

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
            ("", ""),
        ] {
            let chars: Vec<char> = from.chars().collect();
            assert_eq!(marked(&chars), expected.chars().count(), "{from}");
        }
    }
}
