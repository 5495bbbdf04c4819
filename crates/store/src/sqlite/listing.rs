//! Lists: records by action, by actor and by instance; processes by initiator and by definition. Rows are listed many
//! at a time. A commit writes every page that it touches as a whole, and this is most of the cost of a single
//! command. So a command does not write a page of each list.
//!
//! Lists of open items work in the same way: a decision does not remove its step from the list of pending ones, or
//! its assignment from the list of active ones. Readers check whether a listed item is still open.
//!
//! The commit that makes the unlisted tail long enough lists it, in its own transaction. So a list and its extent are
//! one state for every reader, there is no background work, and the tail that a reader must search is short.

use super::connect::failed;
use crate::select::{Dialect, PROCESS, RECORD, Select};
use crate::value::Value;
use countersign_engine::port::{AssignmentQuery, Page, ProcessQuery, RecordQuery, StepQuery, StoreError, Unit};
use countersign_engine::rows::Write;
use rusqlite::{Connection, params_from_iter};
use uuid::Uuid;

/// Listed at a time. Rarer than one commit in a hundred even where each brings one record, so that its price is none of
/// the ninety-ninth percentile; and few enough to be looked through by the way.
const AT_ONCE: usize = 512;
/// The number of lists that one query merges. A caller with more definitions than this may see most of the processes.
const MERGED: usize = 64;
/// Records that are not listed yet.
pub const WAITING: &str = "records r NOT INDEXED WHERE r.position > (SELECT through FROM records_listed)";

/// The header of a listed record, by instance and sequence.
pub const LISTED_HEADER: &str = "SELECT r.header FROM records_of_instance l CROSS JOIN records r ON r.position = l.position \
                                 WHERE l.instance_id = ?1 AND l.sequence = ?2";

/// The same of a record that waits to be listed.
pub fn waiting_header() -> String {
    format!("SELECT r.header FROM {WAITING} AND r.instance_id = ?1 AND r.sequence = ?2")
}

/// What the lists lack, as far as the writer knows. It only says when to list; what is listed says the store.
pub struct Unlisted {
    records: usize,
    /// Steps and assignments that have ended, and may still be named among the open ones. `None`: whoever opens a store
    /// does not know.
    ended: Option<(Vec<Uuid>, Vec<Uuid>)>,
}

impl Unlisted {
    pub fn unknown() -> Self {
        Unlisted { records: AT_ONCE, ended: None }
    }

    /// In the transaction that has written the units.
    pub fn wrote<'u>(
        &mut self,
        connection: &Connection,
        units: impl Iterator<Item = &'u Unit>,
    ) -> Result<(), StoreError> {
        for unit in units {
            self.records += unit.records.len();
            let Some((steps, assignments)) = &mut self.ended else { continue };
            for write in &unit.writes {
                match write {
                    Write::EndStep { step_id, .. } => steps.push(step_id.0),
                    Write::EndAssignment { assignment_id, .. } => assignments.push(assignment_id.0),
                    _ => {}
                }
            }
        }
        if self.records >= AT_ONCE {
            list(connection)?;
            forget_ended(connection, self.ended.take())?;
            *self = Unlisted { records: 0, ended: Some((vec![], vec![])) };
        }
        Ok(())
    }
}

/// Takes what has ended out of the lists of what is open.
fn forget_ended(connection: &Connection, ended: Option<(Vec<Uuid>, Vec<Uuid>)>) -> Result<(), StoreError> {
    let steps = "DELETE FROM steps_opened WHERE step_id";
    let assignments = "DELETE FROM assignments_opened WHERE (assignee_ref, assignment_id)";
    let execute = |sql: &str, id: Option<Uuid>| {
        let mut statement = connection.prepare_cached(sql)?;
        statement.execute(params_from_iter(id.map(Value::Id)))
    };
    let done = match ended {
        Some((ended_steps, ended_assignments)) => {
            let assignments = format!(
                "{assignments} IN (SELECT assignee_ref, assignment_id FROM assignments WHERE assignment_id = ?1)"
            );
            let steps = format!("{steps} = ?1");
            let mut all = ended_steps.into_iter().map(|id| execute(&steps, Some(id)));
            all.try_for_each(|done| done.map(|_| ())).and_then(|()| {
                ended_assignments.into_iter().try_for_each(|id| execute(&assignments, Some(id)).map(|_| ()))
            })
        }
        None => {
            let steps = format!(
                "{steps} NOT IN (SELECT step_id FROM steps_opened JOIN approval_steps USING (step_id) WHERE state = 'Pending')"
            );
            let assignments = format!(
                "{assignments} NOT IN (SELECT o.assignee_ref, o.assignment_id FROM assignments_opened o \
                 JOIN assignments a USING (assignment_id) WHERE a.status = 'Active')"
            );
            execute(&steps, None).and_then(|_| execute(&assignments, None)).map(|_| ())
        }
    };
    done.map_err(failed)
}

fn list(connection: &Connection) -> Result<(), StoreError> {
    // In the order of the lists: each page is visited once.
    let records = [("records_of_action", "action_ref"), ("records_of_actor", "actor_ref")].map(|(list, column)| {
        format!("INSERT INTO {list} SELECT {column}, event_id FROM {WAITING} ORDER BY {column}, event_id")
    });
    let processes = [("processes_of_initiator", "initiator_ref"), ("processes_of_definition", "definition_name")];
    let processes = processes.map(|(list, column)| {
        format!(
            "INSERT INTO {list} SELECT {column}, instance_id FROM processes WHERE {column} IS NOT NULL AND instance_id IN \
             (SELECT instance_id FROM {WAITING} AND r.sequence = 1) ORDER BY {column}, instance_id"
        )
    });
    let chains = format!(
        "INSERT INTO records_of_instance SELECT instance_id, sequence, event_id, position FROM {WAITING} ORDER BY instance_id, sequence"
    );
    for sql in records.iter().chain(&processes).chain([&chains]) {
        connection.prepare_cached(sql).and_then(|mut list| list.execute([])).map_err(failed)?;
    }
    let through = "UPDATE records_listed SET through = (SELECT MAX(position) FROM records)";
    connection.prepare_cached(through).and_then(|mut through| through.execute([])).map(|_| ()).map_err(failed)
}

/// The query, where one of these two lists is the way to its records: one that names a record or an instance has a shorter one.
pub fn records<'q>(query: &'q RecordQuery, page: &Page) -> Option<Select<'q>> {
    if query.event_id.is_some() || query.instance_id.is_some() {
        return None;
    }
    let (list, column, value, also) = match (query.actor_ref.as_deref(), query.action_ref.as_deref()) {
        (Some(actor), action) => ("records_of_actor", "l.actor_ref", actor, action),
        (None, Some(action)) => ("records_of_action", "l.action_ref", action, None),
        (None, None) => return None,
    };
    let mut select = Select::new(Dialect::Sqlite, String::new());
    select.compare(column, "=", Value::Text(value));
    select.id_range("l.event_id", &query.recorded);
    let (than, direction) = if page.descending { ("<", "DESC") } else { (">", "ASC") };
    if let Some(after) = page.after {
        select.compare("l.event_id", than, Value::Id(after));
    }
    let common = std::mem::take(&mut select.conditions).join(" AND ");
    let (mut listed, mut waiting) = (String::new(), String::new());
    if let Some(action) = also {
        select.values.push(Value::Text(action));
        let hole = Dialect::Sqlite.hole(select.values.len());
        listed = format!(
            " AND EXISTS (SELECT 1 FROM records_of_action a WHERE a.action_ref = {hole} AND a.event_id = l.event_id)"
        );
        waiting = format!(" AND l.action_ref = {hole}");
    }
    select.values.push(Value::count(page.limit as u64));
    let end = format!("{direction} LIMIT {}", Dialect::Sqlite.hole(select.values.len()));
    select.sql = format!(
        "SELECT {RECORD} FROM (SELECT l.event_id AS listed FROM {list} l WHERE {common}{listed} ORDER BY l.event_id {end}) \
         CROSS JOIN records ON event_id = listed \
         UNION ALL SELECT {RECORD} FROM (SELECT * FROM records l NOT INDEXED \
         WHERE l.position > (SELECT through FROM records_listed) AND {common}{waiting} ORDER BY l.event_id {end}) \
         ORDER BY event_id {end}"
    );
    Some(select)
}

/// The query, where lists are the way to its processes.
pub fn processes<'q>(query: &'q ProcessQuery, page: &Page) -> Option<Select<'q>> {
    if query.instance_id.is_some() || query.subject_ref.is_some() || query.current_state.is_some() {
        return None;
    }
    let mut select = Select::new(Dialect::Sqlite, String::new());
    let mut hole = |value| {
        select.values.push(value);
        Dialect::Sqlite.hole(select.values.len())
    };
    let names: Option<Vec<String>> =
        query.definitions.as_ref().map(|names| names.iter().map(|name| hole(Value::Text(name))).collect());
    let mut of_process: String =
        names.iter().map(|names| format!(" AND p.definition_name IN ({})", names.join(", "))).collect();
    let version = query.version.map(|version| hole(Value::Int(version.into())));
    if let Some(version) = &version {
        of_process += &format!(" AND p.definition_version = {version}");
    }
    let lists = match (query.initiator_ref.as_deref(), &names) {
        (Some(initiator), _) => {
            let initiator = hole(Value::Text(initiator));
            let list = format!(
                "processes_of_initiator l CROSS JOIN processes p USING (instance_id) WHERE l.initiator_ref = {initiator}{of_process}"
            );
            of_process += &format!(" AND p.initiator_ref = {initiator}");
            vec![list]
        }
        (None, Some(names)) if (1..=MERGED).contains(&names.len()) => {
            let list = |name: &String| match &version {
                None => format!("processes_of_definition l WHERE l.definition_name = {name}"),
                Some(version) => format!(
                    "processes_of_definition l CROSS JOIN processes p USING (instance_id) WHERE l.definition_name = {name} \
                     AND p.definition_version = {version}"
                ),
            };
            names.iter().map(list).collect()
        }
        (None, _) => return None,
    };
    select.id_range("p.instance_id", &query.started);
    let (than, direction) = if page.descending { ("<", "DESC") } else { (">", "ASC") };
    if let Some(after) = page.after {
        select.compare("p.instance_id", than, Value::Id(after));
    }
    let range: String =
        std::mem::take(&mut select.conditions).iter().map(|condition| format!(" AND {condition}")).collect();
    select.values.push(Value::count(page.limit as u64));
    let end = format!("{direction} LIMIT {}", Dialect::Sqlite.hole(select.values.len()));
    let mut found: Vec<String> = lists
        .iter()
        .map(|list| {
            let range = range.replace("p.instance_id", "l.instance_id");
            format!("SELECT * FROM (SELECT l.instance_id FROM {list}{range} ORDER BY l.instance_id {end})")
        })
        .collect();
    found.push(format!(
        "SELECT p.instance_id FROM processes p WHERE p.instance_id IN (SELECT r.instance_id FROM {WAITING} AND r.sequence = 1)\
         {of_process}{range}"
    ));
    select.sql = format!(
        "SELECT {PROCESS} FROM ({}) f CROSS JOIN processes p ON p.instance_id = f.instance_id \
         CROSS JOIN instances i ON i.instance_id = p.instance_id ORDER BY p.instance_id {end}",
        found.join(" UNION ALL ")
    );
    Some(select)
}

/// The query, where the list of pending steps is the way to them.
pub fn pending(query: &StepQuery) -> bool {
    let StepQuery { step_id, subject_ref, approver_ref, submitter_ref, scope, instance_id, .. } = query;
    let by_text = [subject_ref, approver_ref, submitter_ref, scope].iter().any(|text| text.is_some());
    query.state.as_deref() == Some("Pending") && step_id.is_none() && instance_id.is_none() && !by_text
}

/// The query, if the list of an actor's active assignments leads to them.
pub fn active(query: &AssignmentQuery) -> bool {
    let by_id = query.assignment_id.is_some() || query.task_ref.is_some();
    query.status.as_deref() == Some("Active") && query.assignee_ref.is_some() && !by_id
}
