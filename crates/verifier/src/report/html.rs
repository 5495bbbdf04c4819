//! The report: one page that needs nothing but itself. No scripts, nothing fetched; whatever stands in a record is
//! escaped. Prints on A4.

use super::html_story::{self, table};
use super::{Circumstances, headline, place};
use crate::finding::Note;
use crate::time::utc;
use crate::verdict::ClaimVerdict;
use crate::{Outcome, Verdict};

const STYLE: &str = "
:root{--ink:#1a1d21;--soft:#5b6470;--line:#d7dce2;--ok:#12692f;--bad:#a11a1a;--open:#8a5a00;--paper:#fff}
*{box-sizing:border-box}
body{font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Liberation Sans',sans-serif;color:var(--ink);background:var(--paper);margin:0 auto;max-width:62rem;padding:2rem 1.5rem}
h1{font-size:1.6rem;margin:0 0 .2rem}h2{font-size:1.15rem;margin:2.2rem 0 .6rem;border-bottom:1px solid var(--line);padding-bottom:.2rem}h3{font-size:1rem;margin:1.2rem 0 .3rem}
p{margin:.3rem 0}.soft{color:var(--soft)}.verdict{font-size:1.25rem;font-weight:650;padding:.7rem 1rem;border:2px solid;border-radius:.4rem;margin:1rem 0}
.ok{color:var(--ok)}.bad{color:var(--bad)}.open{color:var(--open)}
code,.mono{font:12.5px/1.45 ui-monospace,'Liberation Mono',Menlo,monospace;overflow-wrap:anywhere}
table{border-collapse:collapse;width:100%;font-size:13px;margin:.5rem 0}th,td{text-align:left;vertical-align:top;padding:.3rem .5rem;border-bottom:1px solid var(--line);overflow-wrap:anywhere}
th{color:var(--soft);font-weight:600}thead{display:table-header-group}tr{break-inside:avoid}
dl{display:grid;grid-template-columns:11rem 1fr;gap:.2rem 1rem;margin:.5rem 0}dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
.claim{break-inside:avoid;margin:.9rem 0}.claim b{font-weight:600}.finding{border-left:3px solid var(--bad);padding:.2rem .7rem;margin:.4rem 0}
ul{margin:.3rem 0;padding-left:1.2rem}li{margin:.25rem 0;overflow-wrap:anywhere}
@page{size:A4;margin:16mm 14mm}
@media print{body{max-width:none;padding:0;font-size:10.5pt}h2{break-after:avoid}table{font-size:8.5pt}}
";

pub fn write(verdict: &Verdict, circumstances: &Circumstances<'_>) -> String {
    let class = if verdict.passed() { "ok" } else { "bad" };
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <title>Evidence report</title><style>{STYLE}</style></head><body>\n<h1>Evidence report</h1>\n<p class=\"soft\">{}</p>\n\
         <p class=\"verdict {class}\">{}</p>\n",
        escape(&verdict.subject()),
        escape(&headline(verdict))
    );
    page.push_str(&what_was_verified(verdict, circumstances));
    page.push_str("<h2>Claims</h2>\n");
    verdict.claims.iter().for_each(|claim| page.push_str(&write_claim(claim)));
    page.push_str(&notes(&verdict.notes));
    page.push_str(&html_story::write(&verdict.story));
    page.push_str(&questions(verdict));
    page.push_str(&format!(
        "<h2>How to repeat this check</h2>\n<p>Take the bundle, and the log’s key from the organisation (never from the bundle). Then run:</p>\n\
         <p><code>{}</code></p>\n<p>Exit status 0 means passed, 1 findings, 2 that the bundle or the arguments could not be read. \
         The formats are public, so any other verifier written from them must come to the same answer.</p>\n</body></html>\n",
        escape(circumstances.command)
    ));
    page
}

fn what_was_verified(verdict: &Verdict, circumstances: &Circumstances<'_>) -> String {
    let unknown = || "unknown".to_owned();
    let mut rows = vec![
        ("bundle", circumstances.bundle.to_owned()),
        ("log", verdict.origin.clone().unwrap_or_else(unknown)),
        ("entries in the log", verdict.tree_size.map_or_else(unknown, |size| size.to_string())),
        ("root", verdict.root.clone().unwrap_or_else(unknown)),
        ("records checked", verdict.records.to_string()),
        ("processes", verdict.instances.to_string()),
    ];
    if let Some(manifest) = &verdict.manifest {
        rows.push(("exported", format!("{} by {}", utc(manifest.made_at_us), manifest.made_by)));
        rows.push(("software", manifest.software.clone()));
    }
    rows.extend(circumstances.trust.log_keys.iter().map(|key| ("trusted log key", key.to_string())));
    let witnesses = if circumstances.trust.asks_for_witnesses() { "as the policy asks" } else { "not asked for" };
    rows.push(("witnesses", witnesses.to_owned()));
    let rows: String =
        rows.iter().map(|(name, value)| format!("<dt>{}</dt><dd>{}</dd>", escape(name), escape(value))).collect();
    format!("<h2>What was verified, and against what</h2>\n<dl>{rows}</dl>\n")
}

fn write_claim(claim: &ClaimVerdict) -> String {
    let (mark, class, word) = match claim.outcome {
        Outcome::Verified => ("✓", "ok", "verified"),
        Outcome::Failed => ("✗", "bad", "failed"),
        Outcome::Unverifiable => ("~", "open", "unverifiable in part"),
    };
    let findings: String = claim
        .findings
        .iter()
        .map(|finding| {
            let place = place(&finding.place).map(|place| format!("<p class=\"soft\">{}</p>", escape(&place)));
            format!(
                "<div class=\"finding\"><p><code>{}</code> {}</p>{}</div>",
                finding.code.as_str(),
                escape(&finding.detail),
                place.unwrap_or_default()
            )
        })
        .collect();
    format!(
        "<div class=\"claim\"><p><b class=\"{class}\">{mark} {}</b> — {} <span class=\"soft\">({word}; checked: {} {})</span></p>{findings}</div>\n",
        claim.claim.as_str(),
        escape(claim.claim.title()),
        claim.checked,
        claim.claim.counted()
    )
}

fn notes(notes: &[Note]) -> String {
    if notes.is_empty() {
        return String::new();
    }
    let rows = notes.iter().map(|note| {
        vec![note.code.to_owned(), note.event_id.map(|id| id.to_string()).unwrap_or_default(), note.detail.clone()]
    });
    format!("<h2>Notes</h2>\n{}", table(&["note", "record", "detail"], rows))
}

fn questions(verdict: &Verdict) -> String {
    let mut out = "<h2>What only people can answer</h2>\n".to_owned();
    for question in &verdict.questions {
        let facts: String = question.facts.iter().map(|fact| format!("<li>{}</li>", escape(&fact.text))).collect();
        let facts = if facts.is_empty() { "<li>the bundle holds no facts for this</li>".to_owned() } else { facts };
        out.push_str(&format!("<h3>({}) {}</h3>\n<ul>{facts}</ul>\n", question.check, escape(question.question)));
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
