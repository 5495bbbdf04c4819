//! The problems' rows against the records of the governance chain: what a row says was opened and resolved, a record says.

use super::finding::Finding;
use crate::replay;
use crate::rows::{ProblemRow, RecordRow, ReplayRow};
use countersign_kernel::governance::Category;
use countersign_kernel::{EventId, InstanceId, ProblemId};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};

/// What the records say of a problem.
#[derive(Default)]
struct Told {
    category: String,
    key: String,
    opened: Option<EventId>,
    resolved: Option<EventId>,
    seen: bool,
}

/// What the records say of a request to replay a dead letter.
#[derive(Default)]
struct ToldReplay {
    letter: Option<ProblemId>,
    /// What became of it, and the record that says so.
    outcome: Option<(String, EventId)>,
    seen: bool,
}

/// What the records say of every problem, and what was found on the way.
#[derive(Default)]
pub(super) struct Known {
    problems: HashMap<ProblemId, Told>,
    replays: HashMap<InstanceId, ToldReplay>,
    /// Rows that no record knows: they may have come meanwhile.
    unknown: Vec<ProblemRow>,
    changed: Vec<Finding>,
}

impl Known {
    pub fn of(records: &[RecordRow]) -> Known {
        let mut known = Known::default();
        for row in records {
            let Some(content) = &row.record.content else { continue };
            let Ok(payload) = serde_json::from_slice::<Value>(&content.payload) else { continue };
            known.told_replay(row, &payload);
            for entry in payload.get("problems").and_then(Value::as_array).into_iter().flatten() {
                known.told(&row.action_ref, entry);
            }
        }
        known
    }

    fn told(&mut self, action_ref: &str, entry: &Value) {
        let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
        let Some(problem_id) = ProblemId::parse(text("problem_id")) else { return };
        let told = self.problems.entry(problem_id).or_default();
        let event_id = EventId::parse(text("event_id"));
        if action_ref == "problem_opened" {
            told.opened = event_id;
            text("category").clone_into(&mut told.category);
            text("key").clone_into(&mut told.key);
        } else {
            told.resolved = event_id;
        }
    }

    fn told_replay(&mut self, row: &RecordRow, payload: &Value) {
        let text = |name: &str| payload.get(name).and_then(Value::as_str).unwrap_or_default();
        let Some(request) = InstanceId::parse(text("dlq_replay_request_id")) else { return };
        let told = self.replays.entry(request).or_default();
        match row.action_ref.as_str() {
            replay::REQUESTED => told.letter = ProblemId::parse(text("dead_letter_id")),
            replay::COMPLETED => told.outcome = Some((text("outcome").to_owned(), row.event_id)),
            _ => {}
        }
    }

    /// A request that no record knows may have come meanwhile.
    pub fn replay_row(&mut self, row: &ReplayRow) {
        let Some(told) = self.replays.get_mut(&row.request_id) else { return };
        told.seen = true;
        let outcome = row.completed.map(|end| (end.outcome.as_str().to_owned(), end.event_id));
        if told.letter != Some(row.dead_letter_id) || told.outcome != outcome {
            let event_id = row.completed.map(|end| end.event_id);
            let detail = format!("the row of the request {} says something else than its records", row.request_id);
            self.changed.push(found("governance-invalid", event_id, detail));
        }
    }

    pub fn row(&mut self, row: ProblemRow) {
        let problem = &row.problem;
        let Some(told) = self.problems.get_mut(&problem.problem_id) else { return self.unknown.push(row) };
        told.seen = true;
        let resolved = row.resolved.map(|end| end.event_id);
        let same = told.category == problem.subject.category.as_str()
            && told.key == problem.subject.key
            && told.opened == Some(problem.opened_event_id);
        if !same {
            let detail = format!("the row of problem {} says something else than its record", problem.problem_id);
            self.changed.push(found("row-missing", None, detail));
        } else if resolved != told.resolved {
            let how = |event: Option<EventId>| event.map_or("open".to_owned(), |id| format!("resolved by {id}"));
            let detail = format!(
                "the row of problem {} is {}; the governance chain says {}",
                problem.problem_id,
                how(resolved),
                how(told.resolved)
            );
            self.changed.push(found("governance-invalid", resolved, detail));
        }
    }

    /// What is wrong, where nothing moved meanwhile.
    pub fn finish(self, counts: &[(Category, u64)]) -> Vec<Finding> {
        let Known { problems, replays, unknown, changed: mut findings } = self;
        for (request, _) in replays.iter().filter(|(_, told)| !told.seen) {
            findings.push(found("row-missing", None, format!("request {request} was made and has no row")));
        }
        for row in unknown {
            let detail = format!("no record opened problem {}, which has a row", row.problem.problem_id);
            findings.push(found("record-missing", None, detail));
        }
        let mut open: BTreeMap<&str, u64> = BTreeMap::new();
        for (problem_id, told) in &problems {
            if !told.seen {
                findings.push(found("row-missing", None, format!("problem {problem_id} was opened and has no row")));
            }
            if told.resolved.is_none() {
                *open.entry(&told.category).or_default() += 1;
            }
        }
        for (category, count) in counts {
            let records = open.get(category.as_str()).copied().unwrap_or(0);
            if records != *count {
                let detail =
                    format!("{count} problems of `{category}` are said to be open; the records leave {records}");
                findings.push(found("row-missing", None, detail));
            }
        }
        findings
    }
}

fn found(code: &'static str, event_id: Option<EventId>, detail: String) -> Finding {
    Finding { code, event_id, instance_id: Some(InstanceId::GOVERNANCE), detail }
}
