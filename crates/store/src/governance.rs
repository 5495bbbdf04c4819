//! The reads of governance that both databases share, and how its rows are read.

use crate::select::{Dialect, Select};
use crate::value::{Columns, Value, token};
use countersign_engine::port::{Page, ProblemQuery, StoreError};
use countersign_engine::rows::{ProblemEnd, ProblemRow, SignalRow};
use countersign_kernel::governance::{Category, Problem, Signal, Subject};
use countersign_kernel::{EventId, InstanceId, ProblemId, Time};

pub struct GovernanceSql {
    /// Parameter: limit.
    pub signals: String,
    /// Parameters: category, key.
    pub open: String,
    pub counts: &'static str,
}

impl GovernanceSql {
    pub fn new(dialect: Dialect) -> Self {
        let (a, b) = (dialect.hole(1), dialect.hole(2));
        GovernanceSql {
            signals: format!(
                "SELECT signal_id, category, key, opens, at_us, event_id, run_id, step, worker_class, detail FROM problem_signals \
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
    let signal = Signal { subject, at: row.time(4)?, event_id, opens: row.bool(3)?, detail: row.text(9)? };
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
