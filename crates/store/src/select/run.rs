//! The reads of runs. An ended run must cost nothing: frequent questions are answered from indexes that contain only
//! live runs.

use super::{Dialect, RECORD, Select};
use crate::statement::UNDER_WAY;
use crate::value::Value;
use countersign_engine::port::{Beginning, Page, RunQuery};
use countersign_kernel::InstanceId;
use countersign_kernel::lifecycle::RunState;
use countersign_kernel::plan::StepSeq;

const RUN: &str = "r.instance_id, r.definition_name, r.definition_version, r.document_digest, r.subject_ref, r.initiator_ref, r.input, \
    r.correlation_key, r.concurrency_key, r.corrects, r.continues, r.parent_id, r.parent_step_seq, r.started_at_us, \
    h.state, h.outcome, h.last_error, h.priority, h.start_at_us, h.executing_since_us, h.completed_at_us, h.failed_at_us, h.output, \
    i.sequence, i.head, i.last_time_us, i.moves, i.policy_ref, i.beats, i.rollup, r.trace_id, r.machine, r.machine_digest, h.runbook, \
    i.colour, i.state, h.definition_name, h.correlation_key, h.concurrency_key, h.is_live, h.undoing, h.called_off";
const FROM_RUNS: &str =
    "FROM runs r JOIN run_heads h ON h.instance_id = r.instance_id JOIN instances i ON i.instance_id = r.instance_id";
/// A step without its output and without columns for readers only.
const STEP_STATE: &str = "instance_id, step_seq, compensates, state, attempts, next_run_at_us, locked_by, locked_until_us, lease_token, \
    waiting_event_type, waiting_facet, deadline_at_us, last_error, error_category, event_data, started_at_us, completed_at_us, \
    effect_unknown, child_run_id, task_type, output_needed, due_at_us, handed, blocked_since_us, blocked_cause, child_colour, \
    pic, deadline_us, overdue_first_at_us, sla_breach_us, cycle, declared_at_us, secondary_facets, block_reason, escalated_at_us, derived_state, \
    start_by_us";
/// Where the columns that follow [`STEP_STATE`] begin: the output, then for readers name, queue and max_attempts.
pub const STEP_STATE_COLUMNS: usize = 37;

/// Spelt as in the index.
const HELD_UP: &str =
    "(state IN ('waiting', 'blocked', 'failed') OR child_run_id IS NOT NULL AND state = 'in_progress')";

/// The states of a step that its person has still to do something about. Spelt as in the index.
const TO_BE_DONE: &str = "state IN ('ready', 'in_progress', 'waiting', 'blocked', 'overdue')";

/// Queries of runs, for loading and for views. The first three take what [`Dialect::among`] takes.
/// It has not begun, and waits for nothing but a worker.
const PLAINLY_READY: &str = "(state = 'ready' AND next_run_at_us = due_at_us AND started_at_us IS NULL AND compensates IS NULL \
    AND start_by_us IS NULL AND deadline_us IS NULL)";

pub struct RunSql {
    /// A run with its head and its instance, in one snapshot.
    pub runs: String,
    /// From one step (parameter 2) on and before another (3), in no order. Only outputs that later steps need are read.
    pub steps: String,
    pub kept: String,
    /// Parameters: from, until, limit, and behind which run and step at that time.
    pub due: String,
    /// Parameters: run, from, limit.
    pub step_page: String,
    /// What is drawn of every step. Parameters: run.
    pub cells: String,
    /// What is drawn of some steps. Parameters: run, and one step (SQLite) or all of them (PostgreSQL).
    pub some_cells: String,
    /// Parameters: run.
    pub held: String,
    /// Records of a run behind a sequence. Parameters: run, sequence, limit.
    pub records_since: String,
    /// Parameters: run, step, behind which record, limit.
    pub step_errors: String,
    /// Parameters: key, limit, behind which run.
    pub by_correlation: String,
    /// Parameters: now, limit, behind which priority and run.
    pub queued: String,
    /// Parameters: run.
    pub corrections: String,
    pub visits: String,
    /// Parameters: person, behind this deadline, run and step, limit.
    pub charged: String,
    /// The current states of runs and processes.
    pub heads: String,
}

impl RunSql {
    pub fn new(dialect: Dialect) -> Self {
        let (a, b, c, d, e) = (dialect.hole(1), dialect.hole(2), dialect.hole(3), dialect.hole(4), dialect.hole(5));
        // What another node is changing just now is its business.
        let lock = match dialect {
            Dialect::Sqlite => "",
            Dialect::Postgres => " FOR UPDATE SKIP LOCKED",
        };
        let no = match dialect {
            Dialect::Sqlite => "0",
            Dialect::Postgres => "FALSE",
        };
        // Otherwise SQLite, which knows no numbers, would read all that is queued and sort it.
        let by_priority = match dialect {
            Dialect::Sqlite => " INDEXED BY run_heads_queued",
            Dialect::Postgres => "",
        };
        RunSql {
            // Each table is asked by its key: while they are empty, PostgreSQL would begin with any of them.
            runs: format!(
                "SELECT {RUN} {FROM_RUNS} WHERE {} AND {} AND {}",
                dialect.among("r.instance_id"),
                dialect.among("h.instance_id"),
                dialect.among("i.instance_id")
            ),
            steps: format!(
                "SELECT {STEP_STATE}, CASE WHEN output_needed THEN output END FROM run_steps \
                 WHERE {} AND step_seq >= {b} AND step_seq < {c}",
                dialect.among("instance_id")
            ),
            kept: format!(
                "SELECT instance_id, event_id, event_type, data, received_at_us, taken FROM run_events WHERE {} AND NOT taken \
                 ORDER BY instance_id, received_at_us, event_id",
                dialect.among("instance_id")
            ),
            due: format!(
                "SELECT d.instance_id, d.step_seq, d.due_at_us, r.definition_name, r.definition_version, w.priority FROM (\
                 SELECT * FROM (SELECT instance_id, step_seq, due_at_us, {PLAINLY_READY} AS plain FROM run_steps \
                 WHERE due_at_us >= {a} AND due_at_us <= {b} \
                 AND (due_at_us, instance_id, step_seq) > ({a}, {d}, {e}) ORDER BY due_at_us, instance_id, step_seq LIMIT {c}{lock}) AS s \
                 UNION ALL SELECT * FROM (SELECT instance_id, -1, due_at_us, {no} FROM run_heads WHERE due_at_us >= {a} AND due_at_us <= {b} \
                 AND (due_at_us, instance_id, -1) > ({a}, {d}, {e}) ORDER BY due_at_us, instance_id LIMIT {c}{lock}) AS h ORDER BY 3, 1, 2 LIMIT {c}) AS d \
                 LEFT JOIN run_heads w ON d.plain AND w.instance_id = d.instance_id AND w.state IN ('executing', 'blocked') \
                 LEFT JOIN runs r ON r.instance_id = w.instance_id ORDER BY d.due_at_us, d.instance_id, d.step_seq"
            ),
            step_page: format!(
                "SELECT {STEP_STATE}, output, name, queue, max_attempts FROM run_steps WHERE instance_id = {a} AND step_seq >= {b} \
                 ORDER BY step_seq LIMIT {c}"
            ),
            cells: format!("SELECT {} FROM run_steps WHERE instance_id = {a} ORDER BY step_seq", drawn()),
            some_cells: match dialect {
                Dialect::Sqlite => {
                    format!("SELECT {} FROM run_steps WHERE instance_id = {a} AND step_seq = {b}", drawn())
                }
                // A lookup each: with `= ANY` and an order, PostgreSQL reads all steps of the run.
                Dialect::Postgres => format!(
                    "SELECT s.* FROM UNNEST({b}::bigint[]) AS wanted (seq) CROSS JOIN LATERAL (SELECT {} FROM run_steps \
                     WHERE instance_id = {a} AND step_seq = wanted.seq LIMIT 1) AS s ORDER BY wanted.seq",
                    drawn()
                ),
            },
            held: match dialect {
                Dialect::Sqlite => format!(
                    "SELECT step_seq, state, child_run_id FROM run_steps INDEXED BY run_steps_held_up WHERE instance_id = {a} AND {HELD_UP} \
                     ORDER BY step_seq"
                ),
                Dialect::Postgres => format!(
                    "SELECT step_seq, state, child_run_id FROM run_steps WHERE instance_id = {a} AND {HELD_UP} ORDER BY step_seq"
                ),
            },
            step_errors: format!(
                "SELECT {} FROM step_errors e {join} records r ON r.event_id = e.event_id WHERE e.instance_id = {a} AND e.step_seq = {b} \
                 AND e.event_id > {c} ORDER BY e.event_id LIMIT {d}",
                RECORD.split(", ").map(|column| format!("r.{}", column.trim())).collect::<Vec<_>>().join(", "),
                join = if dialect == Dialect::Sqlite { "CROSS JOIN" } else { "JOIN" }
            ),
            records_since: format!(
                "SELECT {RECORD} FROM {} WHERE instance_id = {a} AND sequence > {b} ORDER BY sequence LIMIT {c}",
                dialect.chained()
            ),
            by_correlation: format!(
                "SELECT instance_id, definition_name FROM run_heads WHERE correlation_key = {a} AND is_live AND instance_id > {c} \
                 ORDER BY instance_id LIMIT {b}"
            ),
            corrections: format!(
                "SELECT instance_id, step_seq, cycle, from_state, prior_event_id, prior_actor_ref, prior_at_us, output, overdue_first_at_us, \
                 sla_breach_us, approval_id, correction_reason, reopened_by, reopened_at_us, event_id FROM step_corrections \
                 WHERE instance_id = {a} ORDER BY step_seq, cycle"
            ),
            visits: format!("SELECT event_id, visits FROM step_visits WHERE instance_id = {a}"),
            heads: format!(
                "SELECT i.instance_id, i.sequence, r.instance_id IS NOT NULL, COALESCE(r.definition_name, p.definition_name) \
                 FROM instances i LEFT JOIN runs r ON r.instance_id = i.instance_id \
                 LEFT JOIN processes p ON p.instance_id = i.instance_id \
                 WHERE {} AND (r.instance_id IS NOT NULL OR p.instance_id IS NOT NULL)",
                dialect.among("i.instance_id")
            ),
            // Few steps are any one person's: the index holds those that are to be done, and they are sorted.
            charged: format!(
                "SELECT {}, s.output, s.name, s.queue, s.max_attempts, r.definition_name, r.definition_version, r.subject_ref, h.state \
                 FROM run_steps s JOIN runs r ON r.instance_id = s.instance_id JOIN run_heads h ON h.instance_id = s.instance_id \
                 WHERE s.pic = {a} AND s.{TO_BE_DONE} AND h.is_live \
                 AND (COALESCE(s.deadline_us, 9223372036854775807), s.instance_id, s.step_seq) > ({b}, {c}, {d}) \
                 ORDER BY COALESCE(s.deadline_us, 9223372036854775807), s.instance_id, s.step_seq LIMIT {e}",
                STEP_STATE.split(", ").map(|column| format!("s.{}", column.trim())).collect::<Vec<_>>().join(", ")
            ),
            // Each key is counted once, however many runs wait for it. A run without a key shares its slot with no other run.
            queued: format!(
                "WITH q AS (SELECT instance_id, definition_name, concurrency_key, priority FROM run_heads{by_priority} WHERE state = 'queued' \
                 AND (start_at_us IS NULL OR start_at_us <= {a}) \
                 AND (priority < {c} OR (priority = {c} AND instance_id > {d})) ORDER BY priority DESC, instance_id LIMIT {b}), \
                 k AS (SELECT d.definition_name, d.concurrency_key, (SELECT COUNT(*) FROM run_heads u WHERE \
                 u.definition_name = d.definition_name AND u.concurrency_key = d.concurrency_key AND u.{UNDER_WAY}) AS under_way \
                 FROM (SELECT DISTINCT definition_name, concurrency_key FROM q WHERE concurrency_key IS NOT NULL) AS d) \
                 SELECT q.instance_id, q.definition_name, r.definition_version, q.concurrency_key, COALESCE(k.under_way, 0), q.priority \
                 FROM q JOIN runs r ON r.instance_id = q.instance_id LEFT JOIN k ON k.definition_name = q.definition_name AND k.concurrency_key = q.concurrency_key \
                 ORDER BY q.priority DESC, q.instance_id"
            ),
        }
    }
}

/// What [`crate::decode::run::step_view`] reads, without long texts.
fn drawn() -> String {
    let column = |column: &str| match column {
        "last_error" | "event_data" => "NULL".to_owned(),
        column => column.to_owned(),
    };
    let columns: Vec<String> = STEP_STATE.split(", ").map(|name| column(name.trim())).collect();
    format!("{}, NULL, name, queue, max_attempts", columns.join(", "))
}

/// What follows from a place in the queue: of priorities, the best comes first.
pub fn queued_behind(after: Option<(u8, InstanceId)>) -> (Value<'static>, Value<'static>) {
    let (priority, run_id) = after.map_or((i64::from(u8::MAX), uuid::Uuid::nil()), |(p, id)| (i64::from(p), id.0));
    (Value::Int(priority), Value::Id(run_id))
}

/// The runs or processes whose subject, or whose id, begins like this.
pub fn begins<'q>(dialect: Dialect, table: &str, beginning: &'q Beginning, values: &mut Vec<Value<'q>>) -> String {
    let mut hole = |value| {
        values.push(value);
        dialect.hole(values.len())
    };
    let subject = match dialect {
        Dialect::Sqlite => "subject_ref",
        Dialect::Postgres => "subject_ref COLLATE \"C\"",
    };
    let (from, to) = (hole(Value::Text(&beginning.subject.0)), hole(Value::Text(&beginning.subject.1)));
    let mut found = format!("SELECT instance_id FROM {table} WHERE {subject} >= {from} AND {subject} < {to}");
    if let Some((first, last)) = beginning.ids {
        let (first, last) = (hole(Value::Id(first)), hole(Value::Id(last)));
        found += &format!(
            " UNION ALL SELECT instance_id FROM {table} WHERE instance_id >= {first} AND instance_id <= {last}"
        );
    }
    format!("IN ({found})")
}

/// Behind this step, or from the first one on.
pub fn behind(after: Option<(i64, InstanceId, StepSeq)>) -> [Value<'static>; 3] {
    let first = (i64::MIN, uuid::Uuid::nil(), -1);
    let (due, run_id, step) = after.map_or(first, |(due, run_id, step)| (due, run_id.0, i64::from(step)));
    [Value::Int(due), Value::Id(run_id), Value::Int(step)]
}

/// Which of these events are known: one answer per event on PostgreSQL, one event at a time on SQLite.
pub const RECEIVED_SQLITE: &str = "SELECT EXISTS (SELECT 1 FROM run_events WHERE instance_id = ?1 AND event_id = ?2)";
/// A join whose left side comes first in every plan: for EXISTS PostgreSQL would read a table that is small today into a
/// hash, and go on doing so.
pub const RECEIVED_POSTGRES: &str = "SELECT e.event_id IS NOT NULL FROM UNNEST($1::uuid[], $2::text[]) WITH ORDINALITY AS u(instance_id, event_id, n) \
    LEFT JOIN run_events e ON e.instance_id = u.instance_id AND e.event_id = u.event_id ORDER BY u.n";

/// A list by state is read from the heads and one by colour from the instances, which have an index for it; every other from the
/// runs. One by subject, initiator, parent or person too: few runs share these.
pub fn runs<'q>(dialect: Dialect, query: &'q RunQuery, page: &Page) -> Select<'q> {
    selected(dialect, RUN, query, page)
}

/// How many there are, counted up to `most`.
pub fn count<'q>(dialect: Dialect, query: &'q RunQuery, most: usize) -> Select<'q> {
    let page = Page { after: None, limit: most, descending: false };
    let select = selected(dialect, "1", query, &page);
    Select { sql: format!("SELECT COUNT(*) FROM ({}) AS found", select.sql), ..select }
}

fn selected<'q>(dialect: Dialect, columns: &str, query: &'q RunQuery, page: &Page) -> Select<'q> {
    let mut select = Select::new(dialect, format!("SELECT {columns} {FROM_RUNS}"));
    let texts = [&query.subject_ref, &query.initiator_ref, &query.pic];
    let of_runs = texts.iter().any(|text| text.is_some()) || query.parent.is_some() || query.q.is_some();
    let (table, definition) = match (of_runs, query.state.is_some(), query.rollup.is_some()) {
        (false, true, _) => ("h", "h.definition_name"),
        (false, false, true) => ("i", "r.definition_name"),
        _ => ("r", "r.definition_name"),
    };
    let (key, definition) = (format!("{table}.instance_id"), definition.to_owned());
    select.equal("i.colour", query.rollup.as_deref().map(Value::Text));
    select.equal("r.initiator_ref", query.initiator_ref.as_deref().map(Value::Text));
    select.equal("r.parent_id", query.parent.map(|id| Value::Id(id.0)));
    if let Some(pic) = &query.pic {
        select.values.push(Value::Text(pic));
        let hole = dialect.hole(select.values.len());
        select.conditions.push(format!(
            "r.instance_id IN (SELECT s.instance_id FROM run_steps s WHERE s.pic = {hole} AND s.{TO_BE_DONE})"
        ));
    }
    if let Some(beginning) = &query.q {
        let found = begins(dialect, "runs", beginning, &mut select.values);
        select.conditions.push(format!("r.instance_id {found}"));
    }
    select.equal(&key, query.instance_id.map(|id| Value::Id(id.0)));
    match query.state.as_deref().map(|state| (state, RunState::parse(state))) {
        // Spelt out, so that the indexes of some states serve it.
        Some((_, Some(state))) => select.conditions.push(format!("h.state = '{}'", state.as_str())),
        state => select.equal("h.state", state.map(|(state, _)| Value::Text(state))),
    }
    select.equal(&definition, query.definition.as_deref().map(Value::Text));
    select.equal("r.definition_version", query.version.map(|version| Value::Int(version.into())));
    select.equal("r.trace_id", query.trace_id.as_deref().map(Value::Text));
    select.equal("r.subject_ref", query.subject_ref.as_deref().map(Value::Text));
    select.id_range(&key, &query.started);
    if let Some(names) = &query.definitions {
        select.among_texts(&definition, names);
    }
    select.paged(&key, page)
}
