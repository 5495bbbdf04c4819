//! What is wrong with a document, and where. Codes are part of the format and never change their
//! meaning; messages are for people and may be reworded.

use crate::source::Source;
use crate::suggest::closest;
use countersign_kernel::declaration::FaultKind;
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// The longest message; a document can make its names as long as it likes.
const MAX_MESSAGE_CHARS: usize = 600;
/// How much of a name or value a message repeats.
const MAX_QUOTED_CHARS: usize = 64;
/// How much of a key stands in a path.
const MAX_SEGMENT_CHARS: usize = 128;
/// Nobody reads more; what a small text is answered with stays small.
const MAX_PROBLEMS: usize = 1000;
/// After so many problems, no more guesses at what was meant: each costs time.
const MAX_GUESSES: usize = 100;

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

            /// The code of this name, if this version knows it.
            pub fn named(text: &str) -> Option<ProblemCode> {
                ProblemCode::ALL.iter().copied().find(|code| code.as_str() == text)
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
    /// An expression that is not CEL, or that names what is not there: a variable, or a step that is not upstream.
    BadExpression = "bad-expression",
    NoSteps = "no-steps",
    DuplicateStep = "duplicate-step",
    /// Steps that wait for one another, for ever.
    DagCycle = "dag-cycle",
    UnknownDependency = "unknown-dependency",
    /// Every step waits for another one.
    NoRoot = "no-root",
    /// A step to which no way leads from a step that waits for none.
    UnreachableStep = "unreachable-step",
    LinearDependsOn = "linear-depends-on",
    /// Several steps without a word on their order.
    MissingOrder = "missing-order",
    /// Work for a person, with nobody in charge of it.
    MissingPic = "missing-pic",
    /// A field that belongs to another `run`.
    FieldNotForRun = "field-not-for-run",
    /// A step's gate without an approver in gate_spec.
    UnknownGate = "unknown-gate",
    /// A gate_spec entry whose label nothing names.
    UnusedGate = "unused-gate",
    /// A quorum that cannot be reached, or whose parts contradict each other.
    BadQuorum = "bad-quorum",
    /// A retry policy that is negative or contradicts itself.
    BadRetry = "bad-retry",
    UnknownCompensation = "unknown-compensation",
    DuplicateCompensation = "duplicate-compensation",
    ReadOnlyCompensation = "read-only-compensation",
    /// `compensate` where nothing says how.
    NoCompensation = "no-compensation",
    BadCron = "bad-cron",
    BadTimeZone = "bad-time-zone",
    /// A definition that is not published here, or not in that version.
    UnknownWorkflow = "unknown-workflow",
    BadCap = "bad-cap",
    /// Something that a runbook does not allow, or no sovereign to resume it.
    FailClosedViolation = "fail-closed-violation",
    NoStates = "no-states",
    DuplicateState = "duplicate-state",
    UnknownState = "unknown-state",
    InitialTerminal = "initial-terminal",
    ExitFromTerminal = "exit-from-terminal",
    DuplicateTransition = "duplicate-transition",
    /// A code of the floor that a machine does not have.
    MissingFloorState = "missing-floor-state",
    /// A state of the floor that is not as the floor has it.
    FloorStateChanged = "floor-state-changed",
    /// A state that is not of the floor and names no floor state.
    DerivedWithoutFloor = "derived-without-floor",
    DerivedWithoutJustification = "derived-without-justification",
    /// A transition of the floor that is not as the floor has it.
    FloorTransitionChanged = "floor-transition-changed",
    /// A transition between states that the floor knows no way between, for that actor class.
    NoFloorTransition = "no-floor-transition",
    /// A transition that can never fire.
    NeverFires = "never-fires",
    /// Text in which there is nothing to see.
    Blank = "blank",
    /// Warning: a step that may wait or run for ever.
    NoTimeout = "no-timeout",
    /// Warning: a compensation that does not say it is safe to repeat.
    CompensationNotIdempotent = "compensation-not-idempotent",
    /// Warning: a command or request that cannot be undone, with no approval before it.
    UngatedEffect = "ungated-effect",
    /// Warning: more than ten steps outside of any group.
    LargeUngrouped = "large-ungrouped",
}

/// Whether a problem keeps a definition from being published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    Error,
    Warning,
}

impl Severity {
    pub const fn as_str(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

impl ProblemCode {
    pub const fn severity(self) -> Severity {
        match self {
            ProblemCode::NoTimeout
            | ProblemCode::CompensationNotIdempotent
            | ProblemCode::UngatedEffect
            | ProblemCode::LargeUngrouped => Severity::Warning,
            _ => Severity::Error,
        }
    }
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
    /// How many characters from there are meant, where that is less or more than the word there.
    pub width: Option<u32>,
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

    /// The place of the character after `before`. A line ends with LF, CR LF or CR, as in YAML.
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

/// A part of a value, which begins at `at`.
pub(crate) struct Part<'a> {
    pub at: Position,
    pub value: &'a str,
    pub part: Range<usize>,
}

/// Collects problems in any order, up to a thousand.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    source: Source,
    found: Vec<Problem>,
}

impl Problems {
    /// Of this text. Without it, a problem inside a value is reported at the begin of the value.
    pub fn of(text: &str) -> Problems {
        Problems { source: Source::new(text), found: Vec::new() }
    }

    pub fn add(&mut self, at: Position, path: impl Into<String>, code: ProblemCode, message: impl AsRef<str>) {
        self.push(at, None, path.into(), code, message.as_ref());
    }

    pub fn add_inside(&mut self, part: Part<'_>, path: &str, code: ProblemCode, message: impl AsRef<str>) {
        if self.found.len() == MAX_PROBLEMS {
            return;
        }
        let place = self.source.part(part.at, part.value, part.part);
        let (at, width) = place.map_or((part.at, None), |(at, width)| (at, Some(width)));
        self.push(at, width, path.to_owned(), code, message.as_ref());
    }

    fn push(&mut self, at: Position, width: Option<u32>, path: String, code: ProblemCode, message: &str) {
        if self.found.len() == MAX_PROBLEMS {
            return;
        }
        let message = printable(message, MAX_MESSAGE_CHARS);
        self.found.push(Problem { path, line: at.line, column: at.column, width, code, message });
    }

    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// The candidate that was probably meant by `written`.
    pub fn guess<'a>(&self, written: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
        if self.found.len() < MAX_GUESSES { closest(written, candidates) } else { None }
    }

    pub fn into_sorted(mut self) -> Vec<Problem> {
        self.found.sort_by_key(|problem| (problem.line, problem.column));
        self.found
    }
}

/// A key of the document for use in a path: not too long.
pub(crate) fn segment(key: &str) -> Cow<'_, str> {
    match key.char_indices().nth(MAX_SEGMENT_CHARS) {
        Some((end, _)) => Cow::Owned(format!("{}…", &key[..end])),
        None => Cow::Borrowed(key),
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
pub(crate) fn printable(text: &str, max_chars: usize) -> String {
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
    fn lines_are_those_of_yaml() {
        assert_eq!(lines("a\nb\r\nc\rd\n").collect::<Vec<_>>(), ["a", "b", "c", "d", ""]);
        assert_eq!(lines("").collect::<Vec<_>>(), [""]);
    }

    #[test]
    fn messages_are_printable_and_bounded() {
        assert_eq!(quoted("a\u{1b}[31m\u{9b}\n"), "`a\\u{1b}[31m\\u{9b}\\n`");
        assert_eq!(quoted(&"x".repeat(1000)).chars().count(), MAX_QUOTED_CHARS + 3);
        assert_eq!(enumerated(["a"]), "`a`");
        assert_eq!(enumerated(["a", "b", "c"]), "`a`, `b` and `c`");
    }
}
