//! What is wrong with a document, and where. Codes are part of the format and never change their
//! meaning; messages are for people and may be reworded.

use countersign_kernel::declaration::FaultKind;
use std::fmt;

/// The longest message; a document can make its names as long as it likes.
const MAX_MESSAGE_CHARS: usize = 400;
/// How much of a name or value a message repeats.
const MAX_QUOTED_CHARS: usize = 64;

macro_rules! problem_codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// The stable name of a problem. The text is the wire form.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum ProblemCode { $($(#[$doc])* $name,)* }

        impl ProblemCode {
            pub const ALL: &'static [ProblemCode] = &[$(ProblemCode::$name,)*];

            pub const fn as_str(self) -> &'static str {
                match self { $(ProblemCode::$name => $text,)* }
            }
        }
    };
}

problem_codes! {
    /// Not one well-formed YAML or JSON document in UTF-8, or one that unfolds beyond all bounds.
    YamlSyntax = "yaml-syntax",
    UnknownField = "unknown-field",
    DuplicateKey = "duplicate-key",
    MissingField = "missing-field",
    /// The wrong type, or a value outside what the field allows.
    BadValue = "bad-value",
    /// A gate_spec entry whose label no transition names.
    UnusedGate = "unused-gate",
    /// A quorum that nobody could fill, or whose parts contradict each other.
    BadQuorum = "bad-quorum",
    NoStates = "no-states",
    DuplicateState = "duplicate-state",
    UnknownState = "unknown-state",
    InitialTerminal = "initial-terminal",
    ExitFromTerminal = "exit-from-terminal",
    DuplicateTransition = "duplicate-transition",
    /// Text in which there is nothing to see.
    Blank = "blank",
}

impl From<FaultKind> for ProblemCode {
    fn from(kind: FaultKind) -> Self {
        match kind {
            FaultKind::NoStates => ProblemCode::NoStates,
            FaultKind::Blank => ProblemCode::Blank,
            FaultKind::DuplicateState => ProblemCode::DuplicateState,
            FaultKind::UnknownState => ProblemCode::UnknownState,
            FaultKind::InitialTerminal => ProblemCode::InitialTerminal,
            FaultKind::ExitFromTerminal => ProblemCode::ExitFromTerminal,
            FaultKind::DuplicateTransition => ProblemCode::DuplicateTransition,
        }
    }
}

impl fmt::Display for ProblemCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One problem of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// `transitions[2].to`, `gate_spec.QP-sign-off.scope`; empty for the document as a whole.
    pub path: String,
    /// Counted from 1.
    pub line: u32,
    /// Counted from 1, in characters.
    pub column: u32,
    pub code: ProblemCode,
    /// What is wrong and what to do, without control characters.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.line, self.column, self.code, self.message)
    }
}

/// A place in the text: line and column, both counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Position {
    pub line: u32,
    pub column: u32,
}

impl Position {
    pub const START: Position = Position { line: 1, column: 1 };

    /// Where the character after `before` stands. A line ends with LF, CR LF or CR, as in YAML.
    pub fn after(before: &str) -> Position {
        let mut at = Position::START;
        let mut chars = before.chars().peekable();
        while let Some(c) = chars.next() {
            if c == '\n' || (c == '\r' && chars.peek() != Some(&'\n')) {
                at = Position { line: at.line.saturating_add(1), column: 1 };
            } else {
                at.column = at.column.saturating_add(1);
            }
        }
        at
    }
}

/// Collects problems in any order.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<Problem>);

impl Problems {
    pub fn add(&mut self, at: Position, path: impl Into<String>, code: ProblemCode, message: impl AsRef<str>) {
        let message = printable(message.as_ref(), MAX_MESSAGE_CHARS);
        self.0.push(Problem { path: path.into(), line: at.line, column: at.column, code, message });
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn into_sorted(mut self) -> Vec<Problem> {
        self.0.sort_by_key(|problem| (problem.line, problem.column));
        self.0
    }
}

/// A name or value of the document for use in a message: in backticks and not too long.
pub(crate) fn quoted(text: &str) -> String {
    format!("`{}`", printable(text, MAX_QUOTED_CHARS))
}

/// `a`, `b` and `c`, for a message.
pub(crate) fn enumerated<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match names.as_slice() {
        [most @ .., last] if !most.is_empty() => format!("{} and {last}", most.join(", ")),
        _ => names.concat(),
    }
}

/// `text` with control characters escaped and its tail cut at `max_chars`.
fn printable(text: &str, max_chars: usize) -> String {
    let mut out = String::new();
    for (i, c) in text.chars().enumerate() {
        if i == max_chars {
            out.push('…');
            break;
        }
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_counts_characters_and_all_line_ends() {
        for (before, line, column) in [
            ("", 1, 1),
            ("ab", 1, 3),
            ("é☃", 1, 3),
            ("a\n", 2, 1),
            ("a\r\nb", 2, 2),
            ("a\rb\r", 3, 1),
            ("\n\n\n x", 4, 3),
        ] {
            assert_eq!(Position::after(before), Position { line, column }, "{before:?}");
        }
    }

    #[test]
    fn messages_are_printable_and_bounded() {
        assert_eq!(quoted("a\u{1b}[31m\u{9b}\n"), "`a\\u{1b}[31m\\u{9b}\\n`");
        assert_eq!(quoted(&"x".repeat(1000)).chars().count(), MAX_QUOTED_CHARS + 3);
        assert_eq!(enumerated(["a"]), "`a`");
        assert_eq!(enumerated(["a", "b", "c"]), "`a`, `b` and `c`");
    }
}
