//! The reads. The SQL text is the same for both databases, except for the form of a parameter and of "one of these
//! ids". Columns are listed in the order in which [`crate::decode`] reads them.

pub mod run;

use crate::sqlite::listing::{self, WAITING};
use crate::value::Value;
use countersign_engine::port::{
    AssignmentQuery, HoldQuery, Page, ProcessQuery, PurgeableQuery, Range, RecordQuery, Sight, StepQuery,
};
use countersign_kernel::Time;
use countersign_kernel::id::first_at;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    pub fn hole(self, n: usize) -> String {
        match self {
            Dialect::Sqlite => format!("?{n}"),
            Dialect::Postgres => format!("${n}"),
        }
    }

    /// "`column` is one of the ids in parameter 1": an array on PostgreSQL, one id at a time on SQLite.
    pub fn among(self, column: &str) -> String {
        match self {
            Dialect::Sqlite => format!("{column} = ?1"),
            Dialect::Postgres => format!("{column} = ANY($1)"),
        }
    }

    /// Where records are found by their instance.
    fn chained(self) -> &'static str {
        match self {
            Dialect::Sqlite => "chained_records",
            Dialect::Postgres => "records",
        }
    }
}

pub const PROCESS: &str = "p.instance_id, p.definition_name, p.definition_version, p.subject_ref, p.initiator_ref, \
    p.declaration_digest, p.gate_spec_digest, p.started_at_us, i.sequence, i.head, i.last_time_us, i.state, i.moves, i.policy_ref, i.beats";
pub const TRANSITION: &str = "instance_id, sequence_number, transition_id, from_state, action, to_state, fired_at_us, actor_ref, \
    guard_satisfied, gate_id, gate_is_chain, event_id";
pub const GATE: &str = "gate_id, instance_id, from_state, action, guard, scope, opened_at_us, opened_by, rule, m, chain_state, \
    chain_terminal_at_us, fate, is_current";
const STEP: &str = "s.step_id, s.gate_id, s.instance_id, s.slot, s.action, s.subject_ref, s.approver_ref, s.submitter_ref, s.scope, \
    s.submitted_at_us, s.state, s.ended_by, s.ended_at_us, s.ended_reason, s.request";
/// How many columns a step has: an assignment joined to it starts there.
pub const STEP_COLUMNS: usize = 15;
const ASSIGNMENT: &str = "a.assignment_id, a.task_ref, a.assignee_ref, a.assigned_at_us, a.status, a.ended_at_us";
pub const RECORD: &str = "event_id, instance_id, sequence, action_ref, actor_ref, recorded_at_us, header, payload, attestation, salt, \
    purgeable_from_us";
const HOLD: &str = "hold_id, record_ref, instance_id, placed_at_us, placed_by, reason, case_ref, released_at_us, released_by, release_reason";

/// Queries by instance, for loading and for views.
pub struct ByInstance {
    pub processes: String,
    pub history: String,
    /// Some of one instance. Parameters: instance, from, limit.
    pub firings: String,
    /// The active assignments of an actor. Parameters: assignee, the due time and the assignment to continue behind, limit, and who asks.
    pub inbox: String,
    /// Parameters: assignee.
    pub inbox_count: &'static str,
    pub gates: String,
    pub live_gates: String,
    /// Steps joined with their newest assignment.
    pub steps: String,
    pub document: &'static str,
    /// Active holds: hold, record and instance.
    pub holds: String,
    /// Steps of an instance, or of a gate, without their assignments.
    pub own_steps: String,
    pub gate_steps: String,
    /// One record, one hold, and the active holds on records.
    pub record: String,
    pub hold: String,
    pub holds_on: String,
    /// The hold that a record of this instance (1) and time (2) placed, while it is active.
    pub own_hold: String,
}

impl ByInstance {
    pub fn new(dialect: Dialect) -> Self {
        let among = |column| dialect.among(column);
        ByInstance {
            processes: format!(
                "SELECT {PROCESS} FROM processes p JOIN instances i ON i.instance_id = p.instance_id WHERE {}",
                among("p.instance_id")
            ),
            history: format!(
                "SELECT {TRANSITION} FROM transitions WHERE {} ORDER BY instance_id, sequence_number",
                among("instance_id")
            ),
            firings: format!(
                "SELECT {TRANSITION} FROM transitions WHERE instance_id = {} AND sequence_number >= {} ORDER BY sequence_number LIMIT {}",
                dialect.hole(1),
                dialect.hole(2),
                dialect.hole(3)
            ),
            inbox: inbox(dialect),
            inbox_count: match dialect {
                Dialect::Sqlite => {
                    "SELECT COUNT(*) FROM assignments_opened o CROSS JOIN assignments a ON a.assignment_id = o.assignment_id \
                                    WHERE o.assignee_ref = ?1 AND a.status = 'Active'"
                }
                Dialect::Postgres => "SELECT COUNT(*) FROM assignments WHERE assignee_ref = $1 AND status = 'Active'",
            },
            gates: format!("SELECT {GATE} FROM gates WHERE {} ORDER BY gate_id", among("instance_id")),
            live_gates: format!(
                "SELECT {GATE} FROM gates g WHERE {} AND (is_current OR EXISTS (SELECT 1 FROM approval_steps s \
                 WHERE s.gate_id = g.gate_id AND s.state = 'Pending')) ORDER BY gate_id",
                among("instance_id")
            ),
            steps: format!(
                "SELECT {STEP}, {ASSIGNMENT}, t.assignment_id, t.assignee_ref, t.assigned_at_us, t.ended_at_us \
                 FROM approval_steps s JOIN assignments a ON a.task_ref = s.step_id AND a.assignment_id = \
                 (SELECT n.assignment_id FROM assignments n WHERE n.task_ref = s.step_id ORDER BY n.assignment_id DESC LIMIT 1) \
                 LEFT JOIN assignments t ON t.task_ref = s.step_id AND t.status = 'Transferred' AND t.assignment_id < a.assignment_id \
                 WHERE {} ORDER BY s.gate_id, s.slot",
                among("s.gate_id")
            ),
            document: match dialect {
                Dialect::Sqlite => "SELECT body FROM documents WHERE digest = ?1",
                Dialect::Postgres => "SELECT body FROM documents WHERE digest = $1",
            },
            holds: format!(
                "SELECT hold_id, record_ref, instance_id FROM holds WHERE {} AND released_at_us IS NULL",
                among("instance_id")
            ),
            own_steps: format!(
                "SELECT {STEP} FROM gates g JOIN approval_steps s ON s.gate_id = g.gate_id WHERE g.instance_id = {}",
                dialect.hole(1)
            ),
            gate_steps: format!("SELECT {STEP} FROM approval_steps s WHERE s.gate_id = {}", dialect.hole(1)),
            record: format!("SELECT {RECORD} FROM records WHERE event_id = {}", dialect.hole(1)),
            hold: format!("SELECT {HOLD} FROM holds WHERE hold_id = {}", dialect.hole(1)),
            holds_on: format!(
                "SELECT {HOLD} FROM holds WHERE {} AND released_at_us IS NULL ORDER BY record_ref, hold_id",
                among("record_ref")
            ),
            own_hold: format!(
                "SELECT {HOLD} FROM holds WHERE instance_id = {} AND placed_at_us = {} AND released_at_us IS NULL",
                dialect.hole(1),
                dialect.hole(2)
            ),
        }
    }
}

/// How many approvals of the same quorum are like this.
fn of_quorum(like: &str) -> String {
    format!("(SELECT COUNT(*) FROM approval_steps q WHERE q.gate_id = s.gate_id AND {like})")
}

/// What a person has to decide is little: all of it is found by index, and sorted by when it is due.
fn inbox(dialect: Dialect) -> String {
    let [a, b, c, d, e] = [1, 2, 3, 4, 5].map(|n| dialect.hole(n));
    let (from, who) = match dialect {
        Dialect::Sqlite => (
            "assignments_opened o CROSS JOIN assignments a ON a.assignment_id = o.assignment_id \
             CROSS JOIN approval_steps s ON s.step_id = a.task_ref CROSS JOIN gates g ON g.gate_id = s.gate_id",
            "o.assignee_ref",
        ),
        Dialect::Postgres => (
            "assignments a JOIN approval_steps s ON s.step_id = a.task_ref JOIN gates g ON g.gate_id = s.gate_id",
            "a.assignee_ref",
        ),
    };
    let involved = format!("(q.approver_ref = {e} OR q.ended_by = {e})");
    format!(
        "SELECT {STEP}, {ASSIGNMENT}, a.due_at_us, g.opened_by, COALESCE(r.definition_name, p.definition_name), \
         COALESCE(r.definition_version, p.definition_version), (r.instance_id IS NOT NULL), g.rule, g.m, {}, g.guard FROM {from} \
         LEFT JOIN runs r ON r.instance_id = s.instance_id LEFT JOIN processes p ON p.instance_id = s.instance_id \
         WHERE {who} = {a} AND a.status = 'Active' AND (COALESCE(a.due_at_us, 9223372036854775807), a.assignment_id) > ({b}, {c}) \
         ORDER BY COALESCE(a.due_at_us, 9223372036854775807), a.assignment_id LIMIT {d}",
        ["q.state = 'Approved'", "q.state = 'Rejected'", "q.gate_id = s.gate_id", &involved].map(of_quorum).join(", ")
    )
}

/// A query with its parameters.
pub struct Select<'q> {
    pub sql: String,
    pub values: Vec<Value<'q>>,
    dialect: Dialect,
    pub conditions: Vec<String>,
}

impl<'q> Select<'q> {
    pub fn new(dialect: Dialect, head: String) -> Self {
        Select { sql: head, values: vec![], dialect, conditions: vec![] }
    }

    pub fn compare(&mut self, column: &str, operator: &str, value: Value<'q>) {
        self.values.push(value);
        self.conditions.push(format!("{column} {operator} {}", self.dialect.hole(self.values.len())));
    }

    fn equal(&mut self, column: &str, value: Option<Value<'q>>) {
        if let Some(value) = value {
            self.compare(column, "=", value);
        }
    }

    fn among_texts(&mut self, column: &str, texts: &'q [String]) {
        let mut holes = Vec::with_capacity(texts.len());
        for text in texts {
            self.values.push(Value::Text(text));
            holes.push(self.dialect.hole(self.values.len()));
        }
        // Of none of them: an empty list is no SQL.
        let among = if holes.is_empty() { "1 = 0".to_owned() } else { format!("{column} IN ({})", holes.join(", ")) };
        self.conditions.push(among);
    }

    /// Only what belongs to instances that the reader may see.
    fn within_sight(&mut self, sight: &'q Sight) {
        self.among_texts("p.definition_name", &sight.processes);
        let processes = self.conditions.pop().unwrap_or_default();
        let runs = match &sight.runs {
            None => "r.instance_id IS NOT NULL".to_owned(),
            Some(names) => {
                self.among_texts("r.definition_name", names);
                self.conditions.pop().unwrap_or_default()
            }
        };
        self.conditions.push(format!(
            "(EXISTS (SELECT 1 FROM processes p WHERE p.instance_id = s.instance_id AND {processes}) \
             OR EXISTS (SELECT 1 FROM runs r WHERE r.instance_id = s.instance_id AND {runs}))"
        ));
    }

    /// A range of times of a table keyed by ids that were made at those times.
    pub fn id_range(&mut self, column: &str, range: &Range) {
        if let Some(after) = range.after {
            self.compare(column, ">=", Value::Id(first_at(after)));
        }
        if let Some(before) = range.before {
            self.compare(column, "<", Value::Id(first_at(Time(before.0.saturating_add(1)))));
        }
    }

    fn time_range(&mut self, column: &str, range: &Range) {
        if let Some(after) = range.after {
            self.compare(column, ">=", Value::time(after));
        }
        if let Some(before) = range.before {
            self.compare(column, "<=", Value::time(before));
        }
    }

    /// Records of one instance by their ids. In a chain that is the order of their sequences, for which there is an index.
    fn paged_in_chain(mut self, instance_id: countersign_kernel::InstanceId, page: &Page) -> Self {
        let (than, direction) = if page.descending { ("<", "DESC") } else { (">", "ASC") };
        if let Some(after) = page.after {
            self.compare("event_id", than, Value::Id(after));
            let event_id = self.dialect.hole(self.values.len());
            self.values.push(Value::Id(instance_id.0));
            let instance_id = self.dialect.hole(self.values.len());
            let from = if page.descending { i64::MAX } else { 0 };
            self.conditions.push(format!(
                "sequence {than} COALESCE((SELECT a.sequence FROM records a WHERE a.event_id = {event_id} AND a.instance_id = {instance_id}), {from})"
            ));
        }
        self.values.push(Value::count(page.limit as u64));
        let (conditions, limit) = (self.conditions.join(" AND "), self.dialect.hole(self.values.len()));
        self.sql.push_str(&format!(" WHERE {conditions} ORDER BY sequence {direction} LIMIT {limit}"));
        self
    }

    pub fn paged(mut self, key: &str, page: &Page) -> Self {
        if let Some(after) = page.after {
            self.compare(key, if page.descending { "<" } else { ">" }, Value::Id(after));
        }
        if !self.conditions.is_empty() {
            self.sql.push_str(" WHERE ");
            self.sql.push_str(&self.conditions.join(" AND "));
        }
        self.values.push(Value::count(page.limit as u64));
        let (direction, hole) = (if page.descending { "DESC" } else { "ASC" }, self.dialect.hole(self.values.len()));
        self.sql.push_str(&format!(" ORDER BY {key} {direction} LIMIT {hole}"));
        self
    }
}

pub fn processes<'q>(dialect: Dialect, query: &'q ProcessQuery, page: &Page) -> Select<'q> {
    let (from, key) = match (&query.current_state, dialect) {
        (None, _) => ("processes p JOIN instances i ON i.instance_id = p.instance_id", "p.instance_id"),
        // Without numbers SQLite would not begin with the state.
        (Some(_), Dialect::Sqlite) => (
            "instances i INDEXED BY instances_by_state CROSS JOIN processes p ON p.instance_id = i.instance_id",
            "i.instance_id",
        ),
        (Some(_), Dialect::Postgres) => {
            ("instances i JOIN processes p ON p.instance_id = i.instance_id", "i.instance_id")
        }
    };
    let mut select = Select::new(dialect, format!("SELECT {PROCESS} FROM {from}"));
    if let Some(state) = &query.current_state {
        select.conditions.push("i.rollup IS NULL".to_owned());
        select.compare("i.state", "=", Value::Text(state));
    }
    select.equal("p.definition_version", query.version.map(|version| Value::Int(version.into())));
    select.equal("p.instance_id", query.instance_id.map(|id| Value::Id(id.0)));
    select.equal("p.subject_ref", query.subject_ref.as_deref().map(Value::Text));
    select.equal("p.initiator_ref", query.initiator_ref.as_deref().map(Value::Text));
    select.id_range(key, &query.started);
    if let Some(names) = &query.definitions {
        select.among_texts("p.definition_name", names);
    }
    if let Some(beginning) = &query.q {
        let found = run::begins(dialect, "processes", beginning, &mut select.values);
        select.conditions.push(format!("p.instance_id {found}"));
    }
    select.paged(key, page)
}

pub fn approval_steps<'q>(dialect: Dialect, query: &'q StepQuery, page: &Page) -> Select<'q> {
    let (from, key) = if dialect == Dialect::Sqlite && listing::pending(query) {
        ("steps_opened o CROSS JOIN approval_steps s ON s.step_id = o.step_id", "o.step_id")
    } else {
        ("approval_steps s", "s.step_id")
    };
    let mut select = Select::new(dialect, format!("SELECT {STEP} FROM {from}"));
    select.equal("s.step_id", query.step_id.map(|id| Value::Id(id.0)));
    select.equal("s.subject_ref", query.subject_ref.as_deref().map(Value::Text));
    select.equal("s.approver_ref", query.approver_ref.as_deref().map(Value::Text));
    select.equal("s.submitter_ref", query.submitter_ref.as_deref().map(Value::Text));
    select.equal("s.scope", query.scope.as_deref().map(Value::Text));
    match query.state.as_deref() {
        // Spelt out, so that the index of pending steps serves it.
        Some("Pending") => select.conditions.push("s.state = 'Pending'".to_owned()),
        state => select.equal("s.state", state.map(Value::Text)),
    }
    select.id_range(key, &query.submitted);
    for (range, withdrawn) in [(&query.decided, false), (&query.withdrawn, true)] {
        if *range != Range::default() {
            let states = if withdrawn { "s.state = 'Withdrawn'" } else { "s.state IN ('Approved', 'Rejected')" };
            select.conditions.push(states.to_owned());
            select.time_range("s.ended_at_us", range);
        }
    }
    if let Some(instance_id) = query.instance_id {
        select.values.push(Value::Id(instance_id.0));
        let hole = dialect.hole(select.values.len());
        select.conditions.push(format!("s.gate_id IN (SELECT gate_id FROM gates WHERE instance_id = {hole})"));
    }
    if let Some(sight) = &query.sight {
        select.within_sight(sight);
    }
    select.paged(key, page)
}

/// Whether a gate of the instance names this actor, or a step is in their charge. Parameters: instance, actor.
pub fn is_party(dialect: Dialect) -> String {
    let (a, b) = (dialect.hole(1), dialect.hole(2));
    format!(
        "SELECT 1 WHERE EXISTS (SELECT 1 FROM gates g JOIN approval_steps s ON s.gate_id = g.gate_id WHERE g.instance_id = {a} \
         AND (s.approver_ref = {b} OR s.ended_by = {b} AND s.state <> 'Withdrawn')) OR EXISTS (SELECT 1 FROM run_steps WHERE instance_id = {a} AND pic = {b})"
    )
}

pub fn assignments<'q>(dialect: Dialect, query: &'q AssignmentQuery, page: &Page) -> Select<'q> {
    let (from, who, key) = if dialect == Dialect::Sqlite && listing::active(query) {
        let from = "assignments_opened o CROSS JOIN assignments a ON a.assignment_id = o.assignment_id \
                    CROSS JOIN approval_steps s ON s.step_id = a.task_ref";
        (from, "o.assignee_ref", "o.assignment_id")
    } else {
        let from = "assignments a JOIN approval_steps s ON s.step_id = a.task_ref";
        (from, "a.assignee_ref", "a.assignment_id")
    };
    let mut select = Select::new(dialect, format!("SELECT {STEP}, {ASSIGNMENT} FROM {from}"));
    select.equal("a.assignment_id", query.assignment_id.map(|id| Value::Id(id.0)));
    select.equal("a.task_ref", query.task_ref.map(|id| Value::Id(id.0)));
    select.equal(who, query.assignee_ref.as_deref().map(Value::Text));
    match query.status.as_deref() {
        Some("Active") => select.conditions.push("a.status = 'Active'".to_owned()),
        status => select.equal("a.status", status.map(Value::Text)),
    }
    if let Some(sight) = &query.sight {
        select.within_sight(sight);
    }
    select.paged(key, page)
}

pub fn records<'q>(dialect: Dialect, query: &'q RecordQuery, page: &Page) -> Select<'q> {
    let is_of_instance = query.instance_id.is_some() && query.event_id.is_none();
    let records = if is_of_instance { dialect.chained() } else { "records" };
    let mut select = Select::new(dialect, format!("SELECT {RECORD} FROM {records}"));
    select.equal("event_id", query.event_id.map(|id| Value::Id(id.0)));
    select.equal("instance_id", query.instance_id.map(|id| Value::Id(id.0)));
    select.equal("action_ref", query.action_ref.as_deref().map(Value::Text));
    select.equal("actor_ref", query.actor_ref.as_deref().map(Value::Text));
    select.id_range("event_id", &query.recorded);
    match query.instance_id {
        Some(instance_id) if is_of_instance => select.paged_in_chain(instance_id, page),
        _ => select.paged("event_id", page),
    }
}

/// Whole chains, in the order of the index.
pub fn chains(
    dialect: Dialect,
    first: countersign_kernel::InstanceId,
    last: countersign_kernel::InstanceId,
) -> Select<'static> {
    let mut select = Select::new(dialect, format!("SELECT {RECORD} FROM {}", dialect.chained()));
    select.compare("instance_id", ">=", Value::Id(first.0));
    select.compare("instance_id", "<=", Value::Id(last.0));
    let conditions = select.conditions.join(" AND ");
    select.sql.push_str(&format!(" WHERE {conditions} ORDER BY instance_id, sequence"));
    select
}

/// Instances with a record in the window. The registry's id is the smallest of all, so it is not among them.
pub fn instances_in(
    dialect: Dialect,
    window: &Range,
    after: Option<countersign_kernel::InstanceId>,
    limit: usize,
) -> Select<'static> {
    let head = match dialect {
        Dialect::Sqlite => "SELECT instance_id FROM instances i",
        Dialect::Postgres => "SELECT DISTINCT instance_id FROM records",
    };
    let mut select = Select::new(dialect, head.to_owned());
    select.id_range("event_id", window);
    if dialect == Dialect::Sqlite && !select.conditions.is_empty() {
        let within = std::mem::take(&mut select.conditions).join(" AND ");
        select.conditions.push(format!(
            "(EXISTS (SELECT 1 FROM records_of_instance l WHERE l.instance_id = i.instance_id AND {within}) \
             OR instance_id IN (SELECT r.instance_id FROM {WAITING} AND {within}))"
        ));
    }
    if dialect == Dialect::Sqlite {
        // The governance chain has a row in every store, and perhaps no record.
        select.conditions.push("sequence > 0".to_owned());
    }
    select.compare("instance_id", ">", Value::Id(after.unwrap_or(countersign_kernel::InstanceId::REGISTRY).0));
    select.values.push(Value::count(limit as u64));
    let (conditions, limit) = (select.conditions.join(" AND "), dialect.hole(select.values.len()));
    select.sql.push_str(&format!(" WHERE {conditions} ORDER BY instance_id LIMIT {limit}"));
    select
}

pub fn definition_source(dialect: Dialect, name: &str, version: u32) -> Select<'_> {
    let mut select = Select::new(dialect, "SELECT source FROM definitions".to_owned());
    select.values.extend([Value::Text(name), Value::Int(i64::from(version))]);
    select.sql.push_str(&format!(" WHERE name = {} AND version = {}", dialect.hole(1), dialect.hole(2)));
    select
}

pub fn holds<'q>(dialect: Dialect, query: &'q HoldQuery, page: &Page) -> Select<'q> {
    let mut select = Select::new(dialect, format!("SELECT {HOLD} FROM holds"));
    select.equal("hold_id", query.hold_id.map(|id| Value::Id(id.0)));
    select.equal("record_ref", query.record_ref.map(|id| Value::Id(id.0)));
    select.equal("case_ref", query.case_ref.as_deref().map(Value::Text));
    if let Some(released) = query.released {
        select.conditions.push(format!("released_at_us IS {}", if released { "NOT NULL" } else { "NULL" }));
    }
    select.paged("hold_id", page)
}

/// In the order of the index, which holds nothing else. What a run says that has not ended may not be purged.
pub fn purgeable(dialect: Dialect, query: &PurgeableQuery) -> Select<'static> {
    let mut select = Select::new(dialect, format!("SELECT {RECORD} FROM records"));
    select.compare("purgeable_from_us", "<=", Value::time(query.now));
    let live = "SELECT 1 FROM run_heads l WHERE l.instance_id = records.instance_id AND l.is_live";
    select.conditions.push(format!("NOT EXISTS ({live})"));
    let (than, direction) = if query.descending { ("<", "DESC") } else { (">", "ASC") };
    if let Some((from, event_id)) = query.after {
        select.values.extend([Value::time(from), Value::Id(event_id.0)]);
        let last = select.values.len();
        let (from, id) = (dialect.hole(last - 1), dialect.hole(last));
        select.conditions.push(format!("(purgeable_from_us, event_id) {than} ({from}, {id})"));
    }
    select.values.push(Value::count(query.limit as u64));
    let (conditions, limit) = (select.conditions.join(" AND "), dialect.hole(select.values.len()));
    select.sql.push_str(&format!(
        " WHERE {conditions} ORDER BY purgeable_from_us {direction}, event_id {direction} LIMIT {limit}"
    ));
    select
}

/// Registry changes after a sequence (parameter 1), as a query per kind; and the registry's current sequence.
pub struct RegistrySince {
    pub head: String,
    pub actors: String,
    pub issued: String,
    pub withdrawn: String,
    pub keys: String,
    pub revoked_keys: String,
    pub granted: String,
    pub revoked: String,
    pub delegated: String,
    pub undelegated: String,
    pub definitions: String,
    pub marks: String,
    pub class_marks: String,
    pub configurations: String,
}

impl RegistrySince {
    pub fn new(dialect: Dialect) -> Self {
        let since = dialect.hole(1);
        RegistrySince {
            head: format!("SELECT sequence, head, last_time_us FROM instances WHERE instance_id = {since}"),
            actors: format!(
                "SELECT a.registry_seq, a.actor_ref, a.kind, a.display_name, a.registered_at_us, a.registered_by, c.token_hash, k.key_id, k.public_key \
                 FROM actors a LEFT JOIN credentials c ON c.registry_seq = a.registry_seq \
                 LEFT JOIN actor_keys k ON k.registry_seq = a.registry_seq WHERE a.registry_seq > {since}"
            ),
            // What was registered together with its actor is part of that event.
            issued: format!(
                "SELECT c.registry_seq, c.token_hash, c.actor_ref, c.issued_at_us, c.issued_by FROM credentials c \
                 WHERE c.registry_seq > {since} AND NOT EXISTS (SELECT 1 FROM actors a WHERE a.registry_seq = c.registry_seq)"
            ),
            withdrawn: format!(
                "SELECT revoked_seq, token_hash, actor_ref, revoked_at_us, revoked_by FROM credentials WHERE revoked_seq > {since}"
            ),
            keys: format!(
                "SELECT k.registry_seq, k.actor_ref, k.key_id, k.public_key, k.registered_at_us, k.registered_by, k.passkey FROM actor_keys k \
                 WHERE k.registry_seq > {since} AND NOT EXISTS (SELECT 1 FROM actors a WHERE a.registry_seq = k.registry_seq)"
            ),
            revoked_keys: format!(
                "SELECT revoked_seq, actor_ref, key_id, revoke_reason, revoked_at_us, revoked_by FROM actor_keys WHERE revoked_seq > {since}"
            ),
            granted: format!(
                "SELECT granted_seq, grant_id, subject_ref, action_scope, granted_at_us, granted_by FROM grants WHERE granted_seq > {since}"
            ),
            revoked: format!(
                "SELECT revoked_seq, grant_id, subject_ref, action_scope, revoked_at_us, revoked_by FROM grants WHERE revoked_seq > {since}"
            ),
            delegated: format!(
                "SELECT made_seq, delegation_id, delegator_ref, delegate_ref, scope, made_at_us, from_us, until_us, reason \
                 FROM delegations WHERE made_seq > {since}"
            ),
            undelegated: format!(
                "SELECT revoked_seq, delegation_id, delegator_ref, delegate_ref, scope, revoked_at_us \
                 FROM delegations WHERE revoked_seq > {since}"
            ),
            definitions: format!(
                "SELECT d.registry_seq, d.name, d.version, d.digest, d.source, d.retention, d.published_at_us, d.published_by, x.body, y.body, z.body, d.document_digest, d.publish, d.proposal_id, d.approval_id, d.approval_is_chain \
                 FROM definitions d JOIN documents x ON x.digest = d.declaration_digest JOIN documents y ON y.digest = d.gate_spec_digest \
                 LEFT JOIN documents z ON z.digest = d.document_digest \
                 WHERE d.registry_seq > {since}"
            ),
            marks: format!(
                "SELECT registry_seq, mark, name, version, reason, marked_at_us, marked_by FROM definition_marks WHERE registry_seq > {since}"
            ),
            class_marks: format!(
                "SELECT registry_seq, mark, worker_class, reason, marked_at_us, marked_by FROM worker_class_marks WHERE registry_seq > {since}"
            ),
            configurations: format!(
                "SELECT registry_seq, policy, recorded_at_us, recorded_by, regulated, application_actor_ref, server_actor_ref, signatures FROM configurations WHERE registry_seq > {since}"
            ),
        }
    }
}
