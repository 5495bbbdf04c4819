//! How large the terminal is, and text that is made to fit it.

use super::table::{END, is_mark};
use std::io::IsTerminal;

/// Where nobody tells how tall the terminal is.
const USUAL_HEIGHT: usize = 24;

/// Columns of the terminal that stdout is; `None` where it is none and lines may be as long as they like.
pub fn width() -> Option<usize> {
    let stdout = std::io::stdout();
    let size = rustix::termios::tcgetwinsize(&stdout).ok().filter(|_| stdout.is_terminal())?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

pub fn height() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).map(|size| usize::from(size.ws_row));
    size.ok().filter(|rows| *rows > 0).unwrap_or(USUAL_HEIGHT)
}

/// Whether a picture can be drawn over the one before: stdout is a terminal, and one that can do more than print.
pub fn has_cursor() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Columns that a text takes.
pub fn columns(text: &str) -> usize {
    text.chars().map(columns_of).sum()
}

fn columns_of(c: char) -> usize {
    match u32::from(c) {
        _ if is_mark(c) => 0,
        0x300..=0x36F | 0x200D | 0xFE00..=0xFE0F => 0,
        0x1100..=0x115F | 0x231A..=0x231B | 0x23E9..=0x23F3 | 0x2E80..=0xA4CF | 0xAC00..=0xD7A3 => 2,
        0xF900..=0xFAFF | 0xFE30..=0xFE6F | 0xFF00..=0xFF60 | 0xFFE0..=0xFFE6 | 0x1F300..=0x1FAFF => 2,
        0x20000..=0x3FFFD => 2,
        _ => 1,
    }
}

/// The text in lines of at most so many columns, broken at spaces where there are any. A tint goes on in the next line.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut page = Page { lines: vec![], line: String::new(), used: 0, tint: None };
    for (i, word) in text.split(' ').enumerate() {
        let needed = columns(word) + usize::from(page.used > 0);
        if i > 0 && page.used > 0 && page.used + needed > width {
            page.break_line();
        } else if i > 0 {
            page.put(' ', 1);
        }
        for c in word.chars() {
            if page.used + columns_of(c) > width {
                page.break_line();
            }
            page.put(c, columns_of(c));
        }
    }
    page.lines.push(page.line);
    page.lines
}

struct Page {
    lines: Vec<String>,
    line: String,
    used: usize,
    tint: Option<char>,
}

impl Page {
    fn put(&mut self, c: char, columns: usize) {
        if is_mark(c) {
            self.tint = (c != END).then_some(c);
        }
        self.line.push(c);
        self.used += columns;
    }

    fn break_line(&mut self) {
        if self.tint.is_some() {
            self.line.push(END);
        }
        self.lines.push(std::mem::take(&mut self.line));
        self.line.extend(self.tint);
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::output::plain;
    use super::super::table::{Tint, tint};
    use super::*;

    #[test]
    fn nothing_of_a_text_is_lost_when_it_is_wrapped() {
        let text = "the shell executor is disabled; enable it with [executors.shell]";
        for width in [1, 7, 20, 63, 64, 200] {
            let lines = wrapped(text, width);
            assert!(lines.iter().all(|line| columns(line) <= width), "{width}: {lines:?}");
            let letters = |text: &str| text.replace(' ', "");
            assert_eq!(letters(&lines.concat()), letters(text), "{width}");
        }
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("", 7), [""]);
    }

    #[test]
    fn a_tint_goes_on_in_the_next_line_and_ends_with_each() {
        let lines = wrapped(&format!("so {}, then", tint(Tint::Bad, "it failed badly")), 10);
        assert_eq!(lines.iter().map(|line| plain(line)).collect::<Vec<_>>(), ["so it", "failed", "badly,", "then"]);
        assert!(lines[1].starts_with(is_mark) && lines[1].ends_with(END), "{lines:?}");
        assert!(!lines[3].contains(is_mark), "{lines:?}");
    }
}
