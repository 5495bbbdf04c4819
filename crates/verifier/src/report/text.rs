//! The answer for a terminal. Whatever stands in a record is shown, never obeyed: control characters are escaped.

use super::{Circumstances, finding_line, headline, place};
use crate::verdict::ClaimVerdict;
use crate::{Outcome, Verdict};
use std::fmt::Write as _;

const GREEN: &str = "32";
const RED: &str = "31";
const YELLOW: &str = "33";
const BOLD: &str = "1";

/// Colour is for terminals; elsewhere it would be noise.
struct Paint(bool);

impl Paint {
    fn with(&self, style: &str, text: &str) -> String {
        if self.0 { format!("\u{1b}[{style}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

pub fn write(verdict: &Verdict, circumstances: &Circumstances<'_>, colour: bool) -> String {
    let paint = Paint(colour);
    let mut out = String::new();
    let style = if verdict.passed() { GREEN } else { RED };
    line(&mut out, 0, &paint.with(style, &plain(&headline(verdict))));
    line(&mut out, 0, &plain(&verdict.subject()));
    if let (Some(origin), Some(size), Some(root)) = (&verdict.origin, verdict.tree_size, &verdict.root) {
        line(&mut out, 0, &plain(&format!("log {origin}, {size} entries, root {root}")));
    }
    line(&mut out, 0, &verdict.counted());
    for key in &circumstances.trust.log_keys {
        line(&mut out, 0, &plain(&format!("against the log key {key}")));
    }
    let witnesses = if circumstances.trust.asks_for_witnesses() { "asked for by the policy" } else { "not asked for" };
    line(&mut out, 0, &format!("witnesses: {witnesses}"));
    out.push('\n');
    for claim in &verdict.claims {
        write_claim(&mut out, claim, &paint);
    }
    write_notes(&mut out, verdict, &paint);
    write_questions(&mut out, verdict, &paint);
    out
}

fn write_claim(out: &mut String, claim: &ClaimVerdict, paint: &Paint) {
    let (mark, style) = match claim.outcome {
        Outcome::Verified => ("✓", GREEN),
        Outcome::Failed => ("✗", RED),
        Outcome::Unverifiable => ("~", YELLOW),
    };
    let heading = format!("{} {:<9} {}", paint.with(style, mark), claim.claim.as_str(), claim.claim.title());
    line(out, 0, &heading);
    let unverifiable =
        if claim.outcome == Outcome::Unverifiable { "; unverifiable in part, see the notes" } else { "" };
    line(out, 12, &format!("checked: {} {}{unverifiable}", claim.checked, claim.claim.counted()));
    for finding in &claim.findings {
        line(out, 12, &paint.with(RED, &plain(&finding_line(finding))));
        if let Some(place) = place(&finding.place) {
            line(out, 14, &plain(&place));
        }
    }
}

fn write_notes(out: &mut String, verdict: &Verdict, paint: &Paint) {
    if verdict.notes.is_empty() {
        return;
    }
    out.push('\n');
    line(out, 0, &paint.with(BOLD, "Notes (no findings)"));
    for note in &verdict.notes {
        let event = note.event_id.map(|id| format!(" [{id}]")).unwrap_or_default();
        line(out, 2, &plain(&format!("{}: {}{event}", note.code, note.detail)));
    }
}

fn write_questions(out: &mut String, verdict: &Verdict, paint: &Paint) {
    out.push('\n');
    line(out, 0, &paint.with(BOLD, "What only people can answer"));
    for question in &verdict.questions {
        line(out, 0, &format!("({}) {}", question.check, question.question));
        for fact in &question.facts {
            line(out, 4, &format!("- {}", plain(&fact.text)));
        }
        if question.facts.is_empty() {
            line(out, 4, "- the bundle holds no facts for this");
        }
    }
}

fn line(out: &mut String, indent: usize, text: &str) {
    // Writing to a String does not fail.
    let _ = writeln!(out, "{:indent$}{text}", "");
}

/// Control characters, and those that turn the direction of writing, as escapes.
pub fn plain(text: &str) -> String {
    let hidden = |c: char| {
        c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        if hidden(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_cannot_paint_the_terminal() {
        assert_eq!(plain("a\u{1b}[32m✓\nb\u{202e}"), "a\\u{1b}[32m✓\\u{a}b\\u{202e}");
    }
}
