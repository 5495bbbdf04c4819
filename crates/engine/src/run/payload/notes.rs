//! What a run's record says of checks, pins and approvals (`spec/run.md`, section 9).

use super::{Object, list};
use crate::run::runbook::shown;
use countersign_kernel::run::{Drift, Notes, Verdict};
use countersign_kernel::text::json_string;
use countersign_ledger::sha256;

/// Checks, pins and approvals.
pub(super) fn noted(payload: &mut Object, notes: &Notes, room: &mut usize) {
    let mut lines = Vec::new();
    for (seq, verdicts) in &notes.checks {
        for Verdict { name, held } in verdicts {
            lines.push(format!("{{\"step_seq\":{seq},\"name\":{},\"held\":{held}}}", json_string(name)));
        }
    }
    payload.lines("checks", &lines);
    let refused = notes.refused.iter().map(|(seq, output)| {
        let mut line = Object::new();
        line.int("step_seq", seq);
        line.value("output", output, room);
        line.end()
    });
    payload.lines("refused", &refused.collect::<Vec<_>>());
    let artifacts = notes.artifacts.iter().map(|(seq, artifact)| {
        let mut line = Object::new();
        line.int("step_seq", seq);
        line.text("path", &artifact.path);
        line.text("sha256", &artifact.sha256.to_string());
        line.int("size_bytes", artifact.size_bytes);
        line.end()
    });
    payload.lines("artifacts", &artifacts.collect::<Vec<_>>());
    if let Some((seq, output)) = &notes.yielded {
        let mut line = Object::new();
        line.int("step_seq", seq);
        line.value("output", output, room);
        payload.raw("yielded", &line.end());
    }
    let digest = |value: &str| sha256(&[value.as_bytes()]).to_string();
    let pin = |name: &str, value: Option<&str>, captured: bool| {
        let mut line = Object::new();
        line.text("pin", name);
        line.optional("digest", value.map(digest).as_deref());
        if let Some(value) = value.filter(|_| captured) {
            line.raw("value", &shown(value));
        }
        line.end()
    };
    if let Some((seq, pins)) = &notes.captured {
        payload.int("step_seq", seq);
        let lines: Vec<String> = pins.iter().map(|(name, value)| pin(name, Some(value), true)).collect();
        payload.raw("pins", &list(&lines));
    }
    if let Some((seq, pins)) = &notes.surveyed {
        payload.int("step_seq", seq);
        let lines: Vec<String> = pins.iter().map(|(name, value)| pin(name, value.as_deref(), false)).collect();
        payload.raw("pins", &list(&lines));
    }
    let differs = |drift: &Drift| {
        let mut line = Object::new();
        line.text("pin", &drift.pin);
        line.raw("pinned", &shown(&drift.pinned));
        line.raw("live", &drift.live.as_deref().map_or("null".to_owned(), shown));
        line.end()
    };
    payload.lines("drift", &notes.drift.iter().map(differs).collect::<Vec<_>>());
    payload.optional("approval_id", notes.approval_id.map(|id| id.to_string()).as_deref());
    payload.lines("repinned", &notes.repinned.iter().map(differs).collect::<Vec<_>>());
    if let Some(budget) = notes.budget {
        payload.int("budget_us", budget);
    }
    if notes.compensate {
        payload.raw("compensate", "true");
    }
}
