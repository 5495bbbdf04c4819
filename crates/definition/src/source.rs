//! The place of a part of a value in the text. A value has lost its quotes, escapes and line ends, so the text is
//! followed from the begin of the value, one character of the value after the other.

use crate::problem::Position;
use std::cell::OnceCell;
use std::ops::Range;

/// Further into a value nobody is pointed: each problem has its way to go.
const MAX_BYTES: usize = 16 << 10;

/// The text of a document.
#[derive(Debug, Default)]
pub(crate) struct Source {
    text: String,
    /// Where each line begins.
    lines: OnceCell<Vec<usize>>,
}

impl Source {
    /// `text` without its byte order mark.
    pub fn new(text: &str) -> Source {
        Source { text: text.to_owned(), lines: OnceCell::new() }
    }

    /// Where `part` of the `value` that begins at `at` stands, and how many characters of that line belong to it; none where the
    /// text says it in another way than the value, as an alias does.
    pub fn part(&self, at: Position, value: &str, part: Range<usize>) -> Option<(Position, u32)> {
        if part.end > MAX_BYTES {
            return None;
        }
        let (before, inside) = (value.get(..part.start)?, value.get(part)?);
        let mut cursor = Cursor::new(self.from(at)?, at);
        before.chars().try_for_each(|c| cursor.step(c))?;
        cursor.pass_escaped_line_ends();
        let start = cursor.at;
        let mut width = 0;
        for c in inside.chars() {
            cursor.step(c)?;
            if cursor.at.line != start.line {
                break;
            }
            width = cursor.at.column - start.column;
        }
        Some((start, width.max(1)))
    }

    fn from(&self, at: Position) -> Option<&str> {
        let lines = self.lines.get_or_init(|| {
            let ends = self.text.match_indices(['\n', '\r']);
            let ends = ends.filter(|(i, end)| *end == "\n" || !self.text[i + 1..].starts_with('\n'));
            std::iter::once(0).chain(ends.map(|(i, _)| i + 1)).collect()
        });
        let line = &self.text[*lines.get(at.line.checked_sub(1)? as usize)?..];
        let (start, _) = line.char_indices().nth(at.column.checked_sub(1)? as usize)?;
        Some(&line[start..])
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    Single,
    Double,
    Literal,
    Folded,
}

/// A place in the text, which moves along with the characters of a value.
struct Cursor<'t> {
    rest: &'t str,
    at: Position,
    style: Style,
    /// What a block's lines are indented by.
    indent: usize,
    /// Line ends of the value that the text has been passed for already.
    passed: usize,
}

impl<'t> Cursor<'t> {
    fn new(rest: &'t str, at: Position) -> Cursor<'t> {
        let style = match rest.chars().next() {
            Some('\'') => Style::Single,
            Some('"') => Style::Double,
            Some('|') => Style::Literal,
            Some('>') => Style::Folded,
            _ => Style::Plain,
        };
        let mut cursor = Cursor { rest, at, style, indent: 0, passed: 0 };
        match style {
            Style::Plain => {}
            Style::Single | Style::Double => cursor.pass(1),
            Style::Literal | Style::Folded => {
                // The header says how the block ends; what it holds begins on the next line.
                cursor.pass(rest.find(['\n', '\r']).unwrap_or(rest.len()));
                let first = crate::problem::lines(cursor.rest).find(|line| !line.trim().is_empty()).unwrap_or_default();
                cursor.indent = first.len() - first.trim_start_matches(' ').len();
                cursor.pass_line_end();
            }
        }
        cursor
    }

    /// Passes what the text has for this character of the value.
    fn step(&mut self, c: char) -> Option<()> {
        if self.passed > 0 && c == '\n' {
            self.passed -= 1;
            return Some(());
        }
        match self.style {
            Style::Literal | Style::Folded => self.step_in_block(c),
            Style::Plain | Style::Single | Style::Double => self.step_in_flow(c),
        }
    }

    fn step_in_block(&mut self, c: char) -> Option<()> {
        if !self.rest.starts_with(['\n', '\r']) {
            return self.pass_char(c);
        }
        let ends = self.count_line_ends();
        match (c, self.style) {
            ('\n', Style::Folded) if ends > 1 => {
                (0..ends).for_each(|_| self.pass_line_end());
                self.passed = ends - 2;
            }
            ('\n', _) | (' ', Style::Folded) => self.pass_line_end(),
            _ => return None,
        }
        Some(())
    }

    fn step_in_flow(&mut self, c: char) -> Option<()> {
        self.pass_escaped_line_ends();
        let blanks = self.rest.trim_start_matches([' ', '\t']);
        if blanks.starts_with(['\n', '\r']) && matches!(c, ' ' | '\n') {
            let ends = self.pass_folded();
            self.passed = if c == '\n' { ends.saturating_sub(2) } else { 0 };
            return Some(());
        }
        match (self.style, self.rest.as_bytes()) {
            (Style::Single, [b'\'', b'\'', ..]) if c == '\'' => self.pass(2),
            (Style::Double, [b'\\', escape, ..]) => {
                let length = match escape {
                    b'x' => 4,
                    b'u' => 6,
                    b'U' => 10,
                    _ => 2,
                };
                self.rest.get(..length)?;
                self.pass(length);
            }
            _ => return self.pass_char(c),
        }
        Some(())
    }

    /// Of a line end after a backslash, a value has nothing.
    fn pass_escaped_line_ends(&mut self) {
        let escaped = |rest: &str| rest.strip_prefix('\\').is_some_and(|rest| rest.starts_with(['\n', '\r']));
        while self.style == Style::Double && escaped(self.rest) {
            self.pass(1);
            self.pass_folded();
        }
    }

    fn pass_char(&mut self, c: char) -> Option<()> {
        self.rest = self.rest.strip_prefix(c)?;
        self.at.column = self.at.column.saturating_add(1);
        Some(())
    }

    /// Passes so many bytes of this line.
    fn pass(&mut self, bytes: usize) {
        let (passed, rest) = self.rest.split_at(bytes);
        self.at.column = self.at.column.saturating_add(u32::try_from(passed.chars().count()).unwrap_or(u32::MAX));
        self.rest = rest;
    }

    /// Passes a line end and the indentation that follows it.
    fn pass_line_end(&mut self) {
        let Some(rest) = self.rest.strip_prefix("\r\n").or_else(|| self.rest.strip_prefix(['\n', '\r'])) else {
            return;
        };
        self.rest = rest;
        self.at = Position { line: self.at.line.saturating_add(1), column: 1 };
        let blanks = rest.len() - rest.trim_start_matches(' ').len();
        self.pass(blanks.min(self.indent));
    }

    /// Passes all blanks and line ends, and says how many line ends there were.
    fn pass_folded(&mut self) -> usize {
        let mut ends = 0;
        loop {
            self.pass(self.rest.len() - self.rest.trim_start_matches([' ', '\t']).len());
            if !self.rest.starts_with(['\n', '\r']) {
                return ends;
            }
            self.pass_line_end();
            ends += 1;
        }
    }

    /// The line ends here, with nothing but blanks between them.
    fn count_line_ends(&self) -> usize {
        let blank = self.rest.len() - self.rest.trim_start().len();
        let blank = &self.rest[..blank];
        crate::problem::lines(blank).count() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `text` begins with the value, of which `part` is meant.
    fn found(text: &str, value: &str, part: &str) -> Option<(u32, u32, u32)> {
        let start = value.find(part).unwrap();
        let source = Source::new(text);
        let (at, width) = source.part(Position::START, value, start..start + part.len())?;
        Some((at.line, at.column, width))
    }

    #[test]
    fn a_part_of_a_value_is_found_however_the_value_is_written() {
        for (text, value, place) in [
            ("a = b", "a = b", (1, 3, 1)),
            ("'it''s = b'", "it's = b", (1, 8, 1)),
            (r#""\"é\u0041 = b""#, "\"éA = b", (1, 12, 1)),
            ("a\n   = b", "a = b", (2, 4, 1)),
            ("\"a  \n\n  = b\"", "a\n= b", (3, 3, 1)),
            ("\"a \\\n   = b\"", "a = b", (2, 4, 1)),
            ("|\n  a\n  = b\n", "a\n= b\n", (3, 3, 1)),
            (">-\n  a\n  = b\n", "a = b", (3, 3, 1)),
            (">\r\n  a\r\n\r\n  = b\r\n", "a\n= b\n", (4, 3, 1)),
        ] {
            assert_eq!(found(text, value, "="), Some(place), "{text:?}");
        }
        assert_eq!(found("'a bc'", "a bc", "bc"), Some((1, 4, 2)));
        // What runs on is marked to the end of its first line; what is empty, as the place where it is missed.
        assert_eq!(found("ab\n cd", "ab cd", "b cd"), Some((1, 2, 1)));
        assert_eq!(found("ab", "ab", ""), Some((1, 1, 1)));
        // An alias says nothing of its value.
        assert_eq!(found("*x", "a = b", "="), None);
    }
}
