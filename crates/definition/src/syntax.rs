//! A syntax error in words that help the author, at the place to correct. If there is nothing better, the parser's
//! own message and place are used.

use crate::language::template::{Piece, pieces};
use crate::problem::{Position, lines, quoted};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::granit_parser::ErrorKind;
use serde_saphyr::localizer::ExternalMessageSource;
use serde_saphyr::{Error, MessageFormatter, UserMessageFormatter};

pub(crate) const SECOND_DOCUMENT: &str =
    "a file holds one document, and here begins another; put it into a file of its own";
const TAB: &str = "YAML cannot be indented with a tab; use spaces";

/// Where the error is, and what to do about it.
pub(crate) fn explain(error: &Error, text: &str) -> (Position, String) {
    let at = error.location().map_or(Position::START, position);
    match error {
        Error::AliasError { error, .. } | Error::WithSnippet { error, .. } => (at, explain(error, text).1),
        Error::MultipleDocuments { .. } => (second_document(text, at), SECOND_DOCUMENT.to_owned()),
        Error::Budget { breach: BudgetBreach::Depth { .. }, .. } => (at, too_deep()),
        Error::Budget { .. } => (at, "the document is far too large for a definition; split it up".to_owned()),
        Error::AliasReplayLimitExceeded { .. } | Error::AliasReplayStackDepthExceeded { .. } => {
            (at, "the aliases of this document unfold into too many values; write them out".to_owned())
        }
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            (at, "this alias contains itself; write the value out".to_owned())
        }
        Error::UnknownAnchor { .. } => {
            (at, "this alias names no anchor; quote the value if `*` is meant as text".to_owned())
        }
        Error::UnsupportedTag { tag, .. } => (at, format!("the tag {} means nothing here; leave it out", quoted(tag))),
        Error::ExternalMessage { source, .. } => match source.as_ref() {
            ExternalMessageSource::Parser(scan) => explain_scan(scan.kind(), at, text, error),
            _ => (at, in_its_own_words(error)),
        },
        _ => (at, in_its_own_words(error)),
    }
}

pub(crate) fn position(location: serde_saphyr::Location) -> Position {
    let clamped = |n: u64| u32::try_from(n).unwrap_or(u32::MAX).max(1);
    Position { line: clamped(location.line()), column: clamped(location.column()) }
}

/// What follows a `...` line, which the reader ignores where it is not well-formed.
pub(crate) fn after_document_end(text: &str) -> Option<Position> {
    let mut ended = false;
    let mut offset = 0;
    for line in text.split_inclusive(['\n', '\r']) {
        let marker = is_marker(line, "...");
        let content = if marker { line[3..].trim_start() } else { line.trim_start() };
        if (ended || marker) && !content.is_empty() && !content.starts_with('#') {
            return Some(Position::after(&text[..offset + line.len() - content.len()]));
        }
        ended |= marker;
        offset += line.len();
    }
    None
}

fn explain_scan(kind: &ErrorKind, at: Position, text: &str, error: &Error) -> (Position, String) {
    if let Some((at, message)) = unquoted_expression(kind, at, text) {
        return (at, message);
    }
    let message = match kind {
        ErrorKind::RecursionLimitExceeded => too_deep(),
        ErrorKind::TabInPlainScalar
        | ErrorKind::TabInIndentation
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabAtBlockScalarStart
        | ErrorKind::TabNotAllowed => return (first_tab(text, at).unwrap_or(at), TAB.to_owned()),
        ErrorKind::MappingValueNotAllowed => {
            "a `:` cannot stand here; check the indentation, or quote the text that holds it".to_owned()
        }
        ErrorKind::InvalidColonPlacement => {
            "a `:` cannot stand here; close the bracket that is open before it".to_owned()
        }
        ErrorKind::UnclosedFlowCollection { open } => format!("this `{open}` is never closed; close it"),
        ErrorKind::UnclosedQuotedScalar => "a quotation is never closed; close its quote".to_owned(),
        ErrorKind::InvalidQuotedScalarIndent => {
            "a quotation runs on to this line; close its quote before, or indent the line".to_owned()
        }
        ErrorKind::InvalidTrailingDoubleQuotedScalar => {
            "the quotation has ended before this; inside of `\"…\"` write `'`, or `\\\"`".to_owned()
        }
        ErrorKind::InvalidTrailingSingleQuotedScalar => {
            "the quotation has ended before this; inside of `'…'` write `''`".to_owned()
        }
        ErrorKind::UnexpectedCharacter { character } => {
            format!("a value cannot begin with {}; put it in quotes", quoted(&character.to_string()))
        }
        ErrorKind::ExpectedDocumentStart => {
            "the document has ended before this; remove what follows it, or check the indentation".to_owned()
        }
        _ => in_its_own_words(error),
    };
    (at, message)
}

/// An expression whose braces or colon YAML takes for its own.
fn unquoted_expression(kind: &ErrorKind, at: Position, text: &str) -> Option<(Position, String)> {
    let line = lines(text).nth(at.line.checked_sub(1)? as usize)?;
    let column = at.column.saturating_sub(1) as usize;
    let before: String = line.chars().take(column).collect();
    let (start, why) = match kind {
        ErrorKind::ExpectedFlowMappingSeparator if before.ends_with('$') => (before.len() - 1, "in `{ }` a `${…}`"),
        ErrorKind::ExpectedFlowSequenceSeparator if before.ends_with('$') => (before.len() - 1, "in `[ ]` a `${…}`"),
        ErrorKind::MappingValueNotAllowed => {
            let start = before.rfind("${").filter(|start| pieces(&before[*start..]).is_err())?;
            (start, "a `${…}` that holds `: `")
        }
        _ => return None,
    };
    let written = match pieces(&line[start..]).ok()?.first() {
        Some(Piece::Expression(expression)) if expression.contains('"') => format!("'${{{expression}}}'"),
        Some(Piece::Expression(expression)) => format!("\"${{{expression}}}\""),
        _ => return None,
    };
    let column = u32::try_from(before[..start].chars().count() + 1).ok()?;
    Some((Position { line: at.line, column }, format!("{why} must be quoted: {}", quoted(&written))))
}

fn in_its_own_words(error: &Error) -> String {
    format!("not valid YAML: {}", UserMessageFormatter.format_message(error))
}

fn too_deep() -> String {
    format!("nested more than {} levels deep; no definition needs that", crate::read::MAX_DEPTH)
}

/// The `---` that begins the second document, above its content at `at`.
fn second_document(text: &str, at: Position) -> Position {
    let shown: Vec<&str> = lines(text).take(at.line as usize).collect();
    for (i, line) in shown.iter().enumerate().rev() {
        if is_marker(line, "---") {
            return Position { line: u32::try_from(i + 1).unwrap_or(u32::MAX), column: 1 };
        }
        let passable = line.trim_start().is_empty() || line.trim_start().starts_with('#');
        if !passable && i + 1 != shown.len() {
            break;
        }
    }
    at
}

fn is_marker(line: &str, marker: &str) -> bool {
    line.strip_prefix(marker).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

/// The first tab that stands in a line's indentation, from `at` on.
fn first_tab(text: &str, at: Position) -> Option<Position> {
    let from = at.line.saturating_sub(1);
    (from..).zip(lines(text).skip(from as usize)).find_map(|(line, content)| {
        let indentation = content.chars().take_while(|c| matches!(c, ' ' | '\t'));
        let column = indentation.clone().position(|c| c == '\t')?;
        Some(Position { line: line + 1, column: u32::try_from(column + 1).unwrap_or(u32::MAX) })
    })
}
