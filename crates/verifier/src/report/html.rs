//! The report: one page that needs nothing but itself. No scripts, nothing fetched; whatever stands in a record is
//! escaped. The verdict comes first, then what it rests on, then what happened, then what people have to judge.

use super::html_story;
use super::{Circumstances, place};
use crate::finding::Note;
use crate::story::Question;
use crate::time::utc;
use crate::verdict::ClaimVerdict;
use crate::{Outcome, Verdict};

const STYLE: &str = include_str!("style.css");

pub fn write(verdict: &Verdict, circumstances: &Circumstances<'_>) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <title>Evidence report: {title}</title><style>\n{STYLE}</style></head><body>\n<p class=\"kicker\">Evidence report</p>\n\
         <h1>{title}</h1>\n<p class=\"soft\">{}</p>\n",
        escape(&verdict.subject()),
        title = escape(&title(verdict)),
    );
    page.push_str(&banner(verdict));
    page.push_str(&what_was_verified(verdict, circumstances));
    page.push_str(&claims(verdict));
    page.push_str(&notes(&verdict.notes));
    page.push_str(&uncovered(verdict, circumstances));
    page.push_str(&html_story::write(&verdict.story));
    page.push_str(&questions(&verdict.questions));
    page.push_str(&format!(
        "<h2>How to repeat this check</h2>\n<p>Take the bundle, and the log’s key from the organisation, never from the bundle. Then run:</p>\n\
         <pre>{}</pre>\n<p class=\"small soft\">Exit status 0 means passed, 1 findings, 2 that the bundle or the arguments could not be read. The formats \
         are public: a verifier that somebody else writes from them comes to the same answer.</p>\n</body></html>\n",
        escape(circumstances.command)
    ));
    page
}

/// What people call it: the subject of the one process, or the window.
fn title(verdict: &Verdict) -> String {
    match verdict.story.processes.as_slice() {
        [one] if verdict.story.whole => one.subject.clone().unwrap_or_else(|| one.instance_id.to_string()),
        _ => format!("{} processes and runs", verdict.instances),
    }
}

fn banner(verdict: &Verdict) -> String {
    let findings = verdict.findings().count();
    let open = verdict.claims.iter().filter(|claim| claim.outcome == Outcome::Unverifiable).count();
    let s = |count: usize| if count == 1 { "" } else { "s" };
    let (class, mark, head, text) = if findings > 0 {
        let failed = verdict.claims.iter().filter(|claim| claim.outcome == Outcome::Failed).count();
        let text = format!(
            "{failed} of the {} claims below {} not hold. Do not rely on this bundle before every finding is explained.",
            verdict.claims.len(),
            if failed == 1 { "does" } else { "do" }
        );
        ("bad", "✗", format!("Failed verification: {findings} finding{}", s(findings)), text)
    } else if open > 0 {
        let text = format!(
            "Nothing was found wrong. {open} claim{} can be verified in part only, since content was destroyed as retention allows or cannot be checked here: see the notes.",
            s(open)
        );
        ("open", "✓", "Verified, in part".to_owned(), text)
    } else {
        let text =
            format!("All {} claims below hold, for every one of {} records.", verdict.claims.len(), verdict.records);
        ("ok", "✓", "Verified".to_owned(), text)
    };
    format!(
        "<div class=\"verdict {class}\"><div class=\"mark\">{mark}</div><div><b>{}</b><span>{}</span></div></div>\n",
        escape(&head),
        escape(&text)
    )
}

fn what_was_verified(verdict: &Verdict, circumstances: &Circumstances<'_>) -> String {
    let unknown = || "unknown".to_owned();
    let mut rows = vec![("Bundle", circumstances.bundle.to_owned(), false)];
    if let Some(manifest) = &verdict.manifest {
        let software = &manifest.software;
        rows.push(("Exported", format!("{} by {} ({software})", utc(manifest.made_at_us), manifest.made_by), false));
    }
    let size = verdict.tree_size.map_or_else(unknown, |size| size.to_string());
    rows.push(("Log", format!("{}, {size} entries", verdict.origin.clone().unwrap_or_else(unknown)), false));
    rows.push(("Root of the log", verdict.root.clone().unwrap_or_else(unknown), true));
    rows.extend(circumstances.trust.log_keys.iter().map(|key| ("Trusted log key", key.to_string(), true)));
    let witnesses = match (circumstances.trust.asks_for_witnesses(), verdict.passed()) {
        (false, _) => "not asked for",
        (true, true) => "cosigned as the policy asks",
        (true, false) => "asked for by the policy",
    };
    rows.push(("Witnesses", witnesses.to_owned(), false));
    rows.push(("Checked", verdict.counted(), false));
    let row = |(name, value, code): &(&str, String, bool)| {
        let class = if *code { " class=\"mono\"" } else { "" };
        format!("<dt>{}</dt><dd{class}>{}</dd>", escape(name), escape(value))
    };
    format!("<dl>{}</dl>\n", rows.iter().map(row).collect::<String>())
}

fn claims(verdict: &Verdict) -> String {
    let rows: String = verdict.claims.iter().map(write_claim).collect();
    format!(
        "<h2>Claims</h2>\n<table class=\"claims\"><thead><tr><th>claim</th><th>what it says</th><th>result</th></tr></thead><tbody>\n{rows}</tbody></table>\n"
    )
}

fn write_claim(claim: &ClaimVerdict) -> String {
    let (class, word) = match claim.outcome {
        Outcome::Verified => ("ok", "✓ verified"),
        Outcome::Failed => ("bad", "✗ failed"),
        Outcome::Unverifiable => ("open", "~ in part"),
    };
    let findings: String = claim
        .findings
        .iter()
        .map(|finding| {
            let place = place(&finding.place).map(|place| format!("<p class=\"small soft\">{}</p>", escape(&place)));
            format!(
                "<div class=\"finding\"><p><code>{}</code> {}</p>{}</div>",
                finding.code.as_str(),
                escape(&finding.detail),
                place.unwrap_or_default()
            )
        })
        .collect();
    format!(
        "<tr><td>{}</td><td>{}<br><span class=\"small soft\">{} {}</span>{findings}</td><td><span class=\"badge {class}\">{word}</span></td></tr>\n",
        escape(claim.claim.as_str()),
        escape(claim.claim.title()),
        claim.checked,
        claim.claim.counted()
    )
}

fn notes(notes: &[Note]) -> String {
    if notes.is_empty() {
        return String::new();
    }
    let rows: String = notes
        .iter()
        .map(|note| {
            let event = note.event_id.map(|id| format!("<br><code class=\"soft\">{id}</code>")).unwrap_or_default();
            format!(
                "<tr><td><span class=\"badge plain\">{}</span></td><td>{}{event}</td></tr>\n",
                note.code,
                escape(&note.detail)
            )
        })
        .collect();
    format!(
        "<h2>Notes</h2>\n<p class=\"soft\">No faults; things to know, and to ask about.</p>\n<table><tbody>\n{rows}</tbody></table>\n"
    )
}

/// What a reader must not take from the word "verified".
fn uncovered(verdict: &Verdict, circumstances: &Circumstances<'_>) -> String {
    let witnesses =
        "No witness was asked for: that the holder of the log’s key keeps no second version of the log is not checked.";
    let witnesses = (!circumstances.trust.asks_for_witnesses()).then(|| witnesses.to_owned());
    let sentences: String =
        verdict.uncovered.iter().chain(&witnesses).map(|said| format!("<li>{}</li>\n", escape(said))).collect();
    format!("<h2>What these checks do not cover</h2>\n<ul class=\"uncovered\">\n{sentences}</ul>\n")
}

fn questions(questions: &[Question]) -> String {
    let mut out = "<h2>What only people can answer</h2>\n<p class=\"soft\">The facts are verified as above; the judgement is yours.</p>\n".to_owned();
    for question in questions {
        let facts: String = question.facts.iter().map(|fact| format!("<li>{}</li>", escape(&fact.text))).collect();
        let facts = if facts.is_empty() { "<li>the bundle holds no facts for this</li>".to_owned() } else { facts };
        out.push_str(&format!(
            "<div class=\"ask\"><h3>{}</h3>\n<ul class=\"small\">{facts}</ul>\n<p class=\"small answer\">Answer, name and date:</p></div>\n",
            escape(question.question)
        ));
    }
    out
}

/// Text that means nothing to a browser. Control characters are shown as escapes.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in super::text::plain(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}
