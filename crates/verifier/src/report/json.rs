//! The answer as JSON (`spec/bundle.md`, section 5).

use crate::Verdict;
use crate::finding::{Finding, Note};
use serde::Serialize;

#[derive(Serialize)]
struct Answer<'a> {
    result: &'static str,
    origin: Option<&'a str>,
    tree_size: Option<u64>,
    root: Option<&'a str>,
    records: u64,
    instances: u64,
    claims: Vec<ClaimAnswer<'a>>,
    notes: Vec<NoteAnswer<'a>>,
    questions: Vec<QuestionAnswer<'a>>,
}

#[derive(Serialize)]
struct ClaimAnswer<'a> {
    claim: &'static str,
    title: &'static str,
    result: &'static str,
    checked: u64,
    findings: Vec<FindingAnswer<'a>>,
}

#[derive(Serialize)]
struct FindingAnswer<'a> {
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_index: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance_id: Option<String>,
    detail: &'a str,
}

#[derive(Serialize)]
struct NoteAnswer<'a> {
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_id: Option<String>,
    detail: &'a str,
}

#[derive(Serialize)]
struct QuestionAnswer<'a> {
    check: u8,
    question: &'static str,
    facts: Vec<&'a serde_json::Value>,
}

pub fn write(verdict: &Verdict) -> Result<String, serde_json::Error> {
    let answer = Answer {
        result: if verdict.passed() { "verified" } else { "failed-verification" },
        origin: verdict.origin.as_deref(),
        tree_size: verdict.tree_size,
        root: verdict.root.as_deref(),
        records: verdict.records,
        instances: verdict.instances,
        claims: verdict
            .claims
            .iter()
            .map(|claim| ClaimAnswer {
                claim: claim.claim.as_str(),
                title: claim.claim.title(),
                result: claim.outcome.as_str(),
                checked: claim.checked,
                findings: claim.findings.iter().map(finding).collect(),
            })
            .collect(),
        notes: verdict.notes.iter().map(note).collect(),
        questions: verdict
            .questions
            .iter()
            .map(|question| QuestionAnswer {
                check: question.check,
                question: question.question,
                facts: question.facts.iter().map(|fact| &fact.data).collect(),
            })
            .collect(),
    };
    serde_json::to_string_pretty(&answer)
}

fn finding(finding: &Finding) -> FindingAnswer<'_> {
    FindingAnswer {
        code: finding.code.as_str(),
        event_id: finding.place.event_id.map(|id| id.to_string()),
        log_index: finding.place.log_index,
        instance_id: finding.place.instance_id.map(|id| id.to_string()),
        detail: &finding.detail,
    }
}

fn note(note: &Note) -> NoteAnswer<'_> {
    NoteAnswer { code: note.code, event_id: note.event_id.map(|id| id.to_string()), detail: &note.detail }
}
