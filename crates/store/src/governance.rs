//! The reads of governance that both databases share, and how its rows are read.

use crate::select::{Dialect, Select};
use crate::value::{Columns, Value, token};
use countersign_engine::port::{Page, ProblemQuery, ReplayQuery, StoreError};
use countersign_engine::rows::{ProblemEnd, ProblemRow, ReplayEnd, ReplayRow, SignalRow};
use countersign_kernel::governance::{Category, Problem, ReplayOutcome, Replayed, Scheduled, Signal, Subject};
use countersign_kernel::process::ReplayState;
use countersign_kernel::{EventId, InstanceId, ProblemId, Time};

pub struct GovernanceSql {
    /// Parameter: limit.
    pub signals: String,
    /// Parameters: category, key.
    pub open: String,
    pub counts: &'static str,
    /// Parameters: these requests. Those of them that are approved, and of which no outcome is known.
    pub scheduled: String,
    /// Parameter: limit. Approved requests that nothing was done about yet.
    pub due: String,
}

impl GovernanceSql {
    pub fn new(dialect: Dialect) -> Self {
        let (a, b) = (dialect.hole(1), dialect.hole(2));
        GovernanceSql {
            signals: format!(
                "SELECT signal_id, category, key, opens, at_us, event_id, run_id, step, worker_class, detail, \
                 replay_request_id, replay_outcome FROM problem_signals \
                 ORDER BY signal_id LIMIT {a}"
            ),
            open: match dialect {
                Dialect::Sqlite => format!(
                    "SELECT category, key, problem_id, since_us FROM problems WHERE category = {a} AND key = {b} AND resolved_at_us IS NULL"
                ),
                Dialect::Postgres => format!(
                    "SELECT p.category, p.key, p.problem_id, p.since_us FROM UNNEST({a}::text[], {b}::text[]) AS s (category, key) \
                     JOIN problems p ON p.category = s.category AND p.key = s.key WHERE p.resolved_at_us IS NULL"
                ),
            },
            counts: "SELECT category, open_count FROM problem_counts",
            scheduled: format!(
                "SELECT request_id, problem_id, approval_id FROM replay_requests WHERE {} AND state = 'approved'",
                dialect.among("request_id")
            ),
            due: format!(
                "SELECT {REPLAY_COLUMNS} FROM replay_requests r{} WHERE r.state = 'approved' AND r.replayed_at_us IS NULL \
                 ORDER BY r.request_id LIMIT {a}",
                match dialect {
                    Dialect::Sqlite => " INDEXED BY replay_requests_due",
                    Dialect::Postgres => "",
                }
            ),
        }
    }
}

pub fn problems<'q>(dialect: Dialect, query: &ProblemQuery, page: &Page) -> Select<'q> {
    let columns = "p.problem_id, p.category, p.key, p.since_us, p.opened_event_id, p.run_id, p.step, p.worker_class, p.detail, \
                   p.resolved_event_id, p.resolved_at_us, r.trace_id";
    // Otherwise SQLite, which knows no numbers, might read what is resolved to find what is open.
    let index = match (dialect, query.open) {
        (Dialect::Postgres, _) => "",
        (Dialect::Sqlite, Some(true)) => " INDEXED BY problems_open_by_category",
        (Dialect::Sqlite, Some(false)) => " INDEXED BY problems_resolved_by_category",
        (Dialect::Sqlite, None) => " INDEXED BY problems_by_category",
    };
    let from = format!("problems p{index} LEFT JOIN runs r ON r.instance_id = p.run_id");
    let mut select = Select::new(dialect, format!("SELECT {columns} FROM {from}"));
    // Spelt out, so that the index of what is open, or resolved, serves it.
    let is = |open: bool| format!("p.resolved_at_us IS {}NULL", if open { "" } else { "NOT " });
    select.conditions.extend(query.open.map(is));
    select.compare("p.category", "=", Value::Text(query.category.as_str()));
    select.paged("p.problem_id", page)
}

const REPLAY_COLUMNS: &str = "r.request_id, r.problem_id, r.requested_by, r.requested_at_us, r.state, r.approval_id, r.outcome, \
                              r.outcome_event_id, r.completed_at_us";

pub fn replay_requests<'q>(dialect: Dialect, query: &ReplayQuery, page: &Page) -> Select<'q> {
    let mut select = Select::new(dialect, format!("SELECT {REPLAY_COLUMNS} FROM replay_requests r"));
    // Spelt out, so that the index of what is open serves it.
    if let Some(open) = query.open {
        let not = if open { "" } else { "NOT " };
        select.conditions.push(format!("r.state {not}IN ('requested', 'approved')"));
    }
    if let Some(problem_id) = query.dead_letter_id {
        select.compare("r.problem_id", "=", Value::Id(problem_id.0));
    }
    select.paged("r.request_id", page)
}

pub fn replay_row(row: &dyn Columns) -> Result<ReplayRow, StoreError> {
    let outcome = row.optional_text(6)?.map(|text| token(&text, ReplayOutcome::parse)).transpose()?;
    let completed = match (outcome, row.optional_id(7)?, row.optional_int(8)?) {
        (Some(outcome), Some(id), Some(at)) => Some(ReplayEnd { outcome, event_id: EventId(id), at: Time(at) }),
        (None, None, None) => None,
        _ => return Err(StoreError::Corrupt("a replay has half an outcome".to_owned())),
    };
    Ok(ReplayRow {
        request_id: InstanceId(row.id(0)?),
        dead_letter_id: ProblemId(row.id(1)?),
        requested_by: row.text(2)?,
        requested_at: row.time(3)?,
        state: token(&row.text(4)?, ReplayState::parse)?,
        approval_id: row.optional_id(5)?,
        completed,
    })
}

pub fn scheduled_row(row: &dyn Columns) -> Result<(InstanceId, Scheduled), StoreError> {
    let request = InstanceId(row.id(0)?);
    let approval_id = row.optional_id(2)?;
    let approval_id =
        approval_id.ok_or_else(|| StoreError::Corrupt(format!("request {request} is approved by no gate")))?;
    Ok((request, Scheduled { dead_letter_id: ProblemId(row.id(1)?), approval_id }))
}

fn category(text: &str) -> Result<Category, StoreError> {
    token(text, Category::parse)
}

pub fn signal_row(row: &dyn Columns) -> Result<SignalRow, StoreError> {
    let subject = Subject {
        category: category(&row.text(1)?)?,
        key: row.text(2)?,
        run_id: row.optional_id(6)?.map(InstanceId),
        step: row.optional_text(7)?,
        worker_class: row.optional_text(8)?,
    };
    let event_id = row.optional_id(5)?.map(EventId);
    let outcome = row.optional_text(11)?.map(|text| token(&text, ReplayOutcome::parse)).transpose()?;
    let replay = row.optional_id(10)?.map(InstanceId).zip(outcome);
    let replay = replay.map(|(request, outcome)| Replayed { request, outcome });
    let signal = Signal { subject, at: row.time(4)?, event_id, opens: row.bool(3)?, detail: row.text(9)?, replay };
    Ok(SignalRow { signal_id: row.id(0)?, signal })
}

/// An entry of [`Open`](countersign_kernel::governance::Open).
type OpenEntry = ((Category, String), (ProblemId, Time));

pub fn open_row(row: &dyn Columns) -> Result<OpenEntry, StoreError> {
    Ok(((category(&row.text(0)?)?, row.text(1)?), (ProblemId(row.id(2)?), row.time(3)?)))
}

pub fn count_row(row: &dyn Columns) -> Result<(Category, u64), StoreError> {
    Ok((category(&row.text(0)?)?, row.count(1)?))
}

pub fn problem_row(row: &dyn Columns) -> Result<ProblemRow, StoreError> {
    let subject = Subject {
        category: category(&row.text(1)?)?,
        key: row.text(2)?,
        run_id: row.optional_id(5)?.map(InstanceId),
        step: row.optional_text(6)?,
        worker_class: row.optional_text(7)?,
    };
    let problem = Problem {
        problem_id: ProblemId(row.id(0)?),
        subject,
        since: row.time(3)?,
        opened_event_id: EventId(row.id(4)?),
        detail: row.text(8)?,
    };
    let resolved = match (row.optional_id(9)?, row.optional_int(10)?) {
        (Some(id), Some(at)) => Some(ProblemEnd { event_id: EventId(id), at: countersign_kernel::Time(at) }),
        (None, None) => None,
        _ => return Err(StoreError::Corrupt(format!("problem {} is resolved by no event", problem.problem_id))),
    };
    Ok(ProblemRow { problem, resolved, trace_id: row.optional_text(11)? })
}
