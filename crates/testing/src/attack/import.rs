//! A broken bundle as SQL: the differences between it and the honest one, table by table.

use super::bundle::{Bundle, Line};
use crate::place::Kind;
use anyhow::Context;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use countersign_kernel::Digest;
use countersign_ledger::record_hash;
use countersign_ledger::tiles::Frontier;
use serde_json::Value;
use std::collections::BTreeMap;

/// How a value is written into a column.
#[derive(Clone, Copy)]
enum As {
    Text,
    Int,
    Bool,
    Id,
    Hex,
}
use As::{Bool, Hex, Id, Int, Text};

struct Sql {
    kind: Kind,
    text: String,
}

impl Sql {
    fn value(&self, value: &Value, column: As) -> String {
        let text = value.as_str().unwrap_or_default();
        match (value, column) {
            (Value::Null, _) => "NULL".to_owned(),
            (_, Id) if self.kind == Kind::Sqlite => format!("X'{}'", text.replace('-', "")),
            (_, Id) => format!("'{text}'"),
            (_, Hex) => self.hex(text),
            (Value::Bool(value), _) if self.kind == Kind::Sqlite => i64::from(*value).to_string(),
            (Value::String(text), _) => format!("'{}'", text.replace('\'', "''")),
            (value, _) => value.to_string(),
        }
    }

    fn hex(&self, hex: &str) -> String {
        match self.kind {
            Kind::Sqlite => format!("X'{hex}'"),
            Kind::Postgres => format!("decode('{hex}', 'hex')"),
        }
    }

    fn bytes(&self, bytes: &[u8]) -> String {
        self.hex(&bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    }

    fn id(&self, id: &str) -> String {
        self.value(&id.into(), Id)
    }

    fn run(&mut self, statement: &str) {
        self.text.push_str(statement);
        self.text.push_str(";\n");
    }

    /// Rows of one table that belong to an instance, by their id: changed, added, removed.
    fn rows(&mut self, table: &Table, instance_id: &str, before: &Value, after: &Value) {
        let keyed = |rows: &Value| -> BTreeMap<String, Value> {
            let rows = rows.get(table.member).and_then(Value::as_array).cloned().unwrap_or_default();
            rows.into_iter().map(|row| (row[table.key].as_str().unwrap_or_default().to_owned(), row)).collect()
        };
        let (before, after) = (keyed(before), keyed(after));
        for id in before.keys().filter(|id| !after.contains_key(*id)) {
            let statement = format!("DELETE FROM {} WHERE {} = {}", table.name, table.key, self.id(id));
            self.run(&statement);
        }
        for (id, row) in &after {
            let columns: Vec<(String, String)> = table.columns.iter().map(|column| self.column(row, column)).collect();
            if !before.contains_key(id) {
                let mut all = columns;
                all.push((table.key.to_owned(), self.id(id)));
                if table.of_instance {
                    all.push(("instance_id".to_owned(), self.id(instance_id)));
                }
                all.extend(table.unknown.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
                let (names, values): (Vec<String>, Vec<String>) = all.into_iter().unzip();
                self.run(&format!("INSERT INTO {} ({}) VALUES ({})", table.name, names.join(", "), values.join(", ")));
            } else if before.get(id) != Some(row) {
                let set: Vec<String> = columns.iter().map(|(name, value)| format!("{name} = {value}")).collect();
                let statement =
                    format!("UPDATE {} SET {} WHERE {} = {}", table.name, set.join(", "), table.key, self.id(id));
                self.run(&statement);
            }
        }
    }

    fn column(&self, row: &Value, (member, name, column): &(&str, &str, As)) -> (String, String) {
        let value = match *member {
            // Single gates and chains share a column.
            "gate_of_firing" => ["step_id", "chain_id"].iter().map(|name| &row[*name]).find(|id| !id.is_null()),
            "is_chain" => return ((*name).to_owned(), self.value(&Value::Bool(!row["chain_id"].is_null()), Bool)),
            member => row.get(member),
        };
        ((*name).to_owned(), self.value(value.unwrap_or(&Value::Null), *column))
    }
}

struct Table {
    name: &'static str,
    member: &'static str,
    key: &'static str,
    of_instance: bool,
    columns: &'static [(&'static str, &'static str, As)],
    /// What a bundle does not say, for a row that is added.
    unknown: &'static [(&'static str, &'static str)],
}

const TABLES: &[Table] = &[
    Table {
        name: "transitions",
        member: "transitions",
        key: "transition_id",
        of_instance: true,
        columns: &[
            ("sequence_number", "sequence_number", Int),
            ("from_state", "from_state", Text),
            ("action", "action", Text),
            ("to_state", "to_state", Text),
            ("fired_at_us", "fired_at_us", Int),
            ("actor_ref", "actor_ref", Text),
            ("guard_satisfied", "guard_satisfied", Bool),
            ("gate_of_firing", "gate_id", Id),
            ("is_chain", "gate_is_chain", Bool),
            ("event_id", "event_id", Id),
        ],
        unknown: &[],
    },
    Table {
        name: "gates",
        member: "gates",
        key: "gate_id",
        of_instance: true,
        columns: &[
            ("from_state", "from_state", Text),
            ("action", "action", Text),
            ("guard", "guard", Text),
            ("scope", "scope", Text),
            ("opened_at_us", "opened_at_us", Int),
            ("opened_by", "opened_by", Text),
            ("rule", "rule", Text),
            ("m", "m", Int),
            ("chain_state", "chain_state", Text),
            ("fate", "fate", Text),
            ("current", "is_current", Bool),
        ],
        unknown: &[],
    },
    Table {
        name: "approval_steps",
        member: "approval_steps",
        key: "step_id",
        of_instance: true,
        columns: &[
            ("gate_id", "gate_id", Id),
            ("action", "action", Text),
            ("subject_ref", "subject_ref", Text),
            ("approver_ref", "approver_ref", Text),
            ("submitter_ref", "submitter_ref", Text),
            ("scope", "scope", Text),
            ("submitted_at_us", "submitted_at_us", Int),
            ("state", "state", Text),
            ("ended_by", "ended_by", Text),
            ("ended_at_us", "ended_at_us", Int),
            ("ended_reason", "ended_reason", Text),
        ],
        unknown: &[("slot", "0")],
    },
    Table {
        name: "assignments",
        member: "assignments",
        key: "assignment_id",
        of_instance: false,
        columns: &[
            ("task_ref", "task_ref", Id),
            ("assignee_ref", "assignee_ref", Text),
            ("assigned_at_us", "assigned_at_us", Int),
            ("status", "status", Text),
            ("ended_at_us", "ended_at_us", Int),
        ],
        unknown: &[],
    },
];

/// Members of a run's line, the tables that hold them and their columns.
const RUN: &[(&str, &str, As)] = &[
    ("document_digest", "runs", Hex),
    ("input", "runs", Text),
    ("correlation_key", "runs", Text),
    ("concurrency_key", "runs", Text),
    ("corrects", "runs", Id),
    ("continues", "runs", Id),
    ("machine_digest", "runs", Hex),
    ("state", "run_heads", Text),
    ("outcome", "run_heads", Text),
    ("priority", "run_heads", Int),
    ("start_at_us", "run_heads", Int),
    ("executing_since_us", "run_heads", Int),
    ("completed_at_us", "run_heads", Int),
    ("failed_at_us", "run_heads", Int),
    ("last_error", "run_heads", Text),
    ("output", "run_heads", Text),
];

const STEP: &[(&str, As)] = &[
    ("name", Text),
    ("compensates", Int),
    ("state", Text),
    ("attempts", Int),
    ("started_at_us", Int),
    ("completed_at_us", Int),
    ("last_error", Text),
    ("error_category", Text),
    ("effect_unknown", Bool),
    ("child_run_id", Id),
    ("output", Text),
    ("derived_state", Text),
];

const CHARGE: &[(&str, As)] = &[
    ("pic", Text),
    ("deadline_us", Int),
    ("start_by_us", Int),
    ("overdue_first_at_us", Int),
    ("sla_breach_us", Int),
    ("cycle", Int),
];

/// What somebody does to the store of `honest` so that it says what `attacked` says. `naive`: nothing is computed anew.
pub fn statements(kind: Kind, honest: &Bundle, attacked: &Bundle, naive: bool) -> anyhow::Result<String> {
    let mut sql = Sql { kind, text: String::new() };
    if attacked.records != honest.records {
        records(&mut sql, attacked);
        if naive {
            // The log says which record is where; the hashes stay.
            for line in &attacked.records {
                let statement = format!(
                    "UPDATE log_entries SET event_id = {} WHERE log_index = {}",
                    sql.id(&line.text("event_id")),
                    line.log_index
                );
                if !line.text("event_id").is_empty() && moved(honest, line) {
                    sql.run(&statement);
                }
            }
        } else {
            log(&mut sql, attacked);
            heads(&mut sql, attacked);
        }
    }
    if attacked.checkpoint != honest.checkpoint {
        checkpoint(&mut sql, attacked)?;
    }
    for (digest, body) in attacked.documents.iter().filter(|(digest, body)| honest.documents.get(*digest) != Some(body))
    {
        let delete = format!("DELETE FROM documents WHERE digest = {}", sql.hex(digest));
        let insert = format!(
            "INSERT INTO documents (digest, body) VALUES ({}, {})",
            sql.hex(digest),
            sql.bytes(body.as_bytes())
        );
        sql.run(&delete);
        sql.run(&insert);
    }
    // Who makes everything fit has no reason to delete what others still refer to.
    for digest in honest.documents.keys().filter(|digest| naive && !attacked.documents.contains_key(*digest)) {
        let delete = format!("DELETE FROM documents WHERE digest = {}", sql.hex(digest));
        sql.run(&delete);
    }
    if naive {
        grants(&mut sql, honest, attacked);
    }
    for instance_id in honest.state.keys().chain(attacked.state.keys()) {
        let line = |bundle: &Bundle| bundle.state.get(instance_id).cloned().unwrap_or_default();
        instance(&mut sql, instance_id, &line(honest), &line(attacked));
    }
    Ok(sql.text)
}

fn moved(honest: &Bundle, line: &Line) -> bool {
    let at = honest.records.iter().find(|other| other.log_index == line.log_index);
    at.is_none_or(|other| other.text("event_id") != line.text("event_id"))
}

/// All records anew, in the order of the log.
fn records(sql: &mut Sql, bundle: &Bundle) {
    sql.run("DELETE FROM records");
    if sql.kind == Kind::Sqlite {
        for list in ["records_of_action", "records_of_actor", "records_of_instance"] {
            sql.run(&format!("DELETE FROM {list}"));
        }
        sql.run("UPDATE records_listed SET through = 0");
    }
    let mut lines: Vec<&Line> = bundle.records.iter().collect();
    lines.sort_by_key(|line| line.log_index);
    for line in lines {
        let optional = |text: &Option<String>| match text {
            Some(text) => sql.bytes(text.as_bytes()),
            None => "NULL".to_owned(),
        };
        let salt = line.salt.as_ref().map_or("NULL".to_owned(), |salt| sql.hex(salt));
        let statement = format!(
            "INSERT INTO records (event_id, instance_id, sequence, action_ref, actor_ref, recorded_at_us, header, payload, \
             attestation, salt) VALUES ({}, {}, {}, {}, {}, {}, {}, {}, {}, {salt})",
            sql.id(&line.text("event_id")),
            sql.id(&line.text("instance_id")),
            line.number("sequence"),
            sql.value(&line.text("action_ref").into(), Text),
            sql.value(&line.text("actor_ref").into(), Text),
            line.number("recorded_at_us"),
            sql.bytes(line.header.as_bytes()),
            optional(&line.payload),
            optional(&line.attestation),
        );
        sql.run(&statement);
    }
}

fn hash(line: &Line) -> Digest {
    record_hash(line.header.as_bytes())
}

/// Entries and subtrees over the records as they are now.
fn log(sql: &mut Sql, bundle: &Bundle) {
    sql.run("DELETE FROM log_entries");
    sql.run("DELETE FROM log_nodes");
    let mut lines: Vec<&Line> = bundle.records.iter().collect();
    lines.sort_by_key(|line| line.log_index);
    let (mut frontier, mut nodes) = (Frontier::default(), vec![]);
    for line in lines {
        let statement = format!(
            "INSERT INTO log_entries (log_index, event_id, record_hash) VALUES ({}, {}, {})",
            line.log_index,
            sql.id(&line.text("event_id")),
            sql.bytes(&hash(line).0)
        );
        sql.run(&statement);
        frontier.push(hash(line), |level, index, hash| nodes.push((level, index, hash)));
    }
    for (level, index, hash) in nodes {
        let statement = format!(
            "INSERT INTO log_nodes (level, node_index, hash) VALUES ({level}, {index}, {})",
            sql.bytes(&hash.0)
        );
        sql.run(&statement);
    }
}

/// Where each chain ends now.
fn heads(sql: &mut Sql, bundle: &Bundle) {
    let mut last: BTreeMap<String, &Line> = BTreeMap::new();
    for line in &bundle.records {
        let head = last.entry(line.text("instance_id")).or_insert(line);
        if line.number("sequence") > head.number("sequence") {
            *head = line;
        }
    }
    for (instance_id, line) in last.into_iter().filter(|(instance_id, _)| !instance_id.is_empty()) {
        let statement = format!(
            "UPDATE instances SET sequence = {}, head = {}, last_time_us = {} WHERE instance_id = {}",
            line.number("sequence"),
            sql.bytes(&hash(line).0),
            line.number("recorded_at_us"),
            sql.id(&instance_id)
        );
        sql.run(&statement);
    }
}

fn checkpoint(sql: &mut Sql, bundle: &Bundle) -> anyhow::Result<()> {
    let (size, root) = bundle.note().context("a checkpoint that says no size")?;
    let root = BASE64_STANDARD.decode(root).context("a root that is no base64")?;
    sql.run("DELETE FROM log_checkpoints");
    let statement = format!(
        "INSERT INTO log_checkpoints (size, root, note, signed_at_us) VALUES ({size}, {}, {}, 0)",
        sql.bytes(&root),
        sql.value(&bundle.checkpoint.as_str().into(), Text)
    );
    sql.run(&statement);
    Ok(())
}

fn grants(sql: &mut Sql, honest: &Bundle, attacked: &Bundle) {
    for id in honest.grants.keys().filter(|id| !attacked.grants.contains_key(*id)) {
        let statement = format!("DELETE FROM grants WHERE grant_id = {}", sql.id(id));
        sql.run(&statement);
    }
    for (id, row) in &attacked.grants {
        let int = |name: &str| sql.value(&row[name], Int);
        let text = |name: &str| sql.value(&row[name], Text);
        let statement = match honest.grants.get(id) {
            Some(before) if before == row => continue,
            Some(_) => format!(
                "UPDATE grants SET subject_ref = {}, action_scope = {}, granted_at_us = {}, granted_seq = {}, \
                 revoked_at_us = {}, revoked_seq = {}, revoked_by = CASE WHEN {} IS NULL THEN NULL ELSE 'admin' END \
                 WHERE grant_id = {}",
                text("subject_ref"),
                text("action_scope"),
                int("granted_at_us"),
                int("granted_seq"),
                int("revoked_at_us"),
                int("revoked_seq"),
                int("revoked_seq"),
                sql.id(id)
            ),
            // The sequence of a record that is no grant.
            None => format!(
                "INSERT INTO grants (grant_id, subject_ref, action_scope, granted_at_us, granted_by, granted_seq) \
                 VALUES ({}, {}, {}, {}, 'admin', (SELECT MAX(sequence) FROM records WHERE action_ref = 'configuration_recorded'))",
                sql.id(id),
                text("subject_ref"),
                text("action_scope"),
                int("granted_at_us")
            ),
        };
        sql.run(&statement);
    }
}

fn instance(sql: &mut Sql, instance_id: &str, before: &Value, after: &Value) {
    if before == after {
        return;
    }
    let id = sql.id(instance_id);
    if after.is_null() {
        sql.run(&format!("DELETE FROM processes WHERE instance_id = {id}"));
        sql.run(&format!("DELETE FROM runs WHERE instance_id = {id}"));
        return;
    }
    if before.is_null() {
        let digest = sql.hex(&"0".repeat(64));
        sql.run(&format!(
            "INSERT INTO instances (instance_id, sequence, head, last_time_us, state, moves, policy_ref) \
             VALUES ({id}, 1, {digest}, 0, 'x', 0, 'x')"
        ));
    }
    let run = after.get("run").is_some() || before.get("run").is_some();
    process(sql, instance_id, before, after, run);
    for table in TABLES {
        sql.rows(table, instance_id, before, after);
    }
    if let (Some(before), Some(after)) = (before.get("run"), after.get("run")) {
        for (name, table, column) in RUN.iter().filter(|(name, ..)| before.get(*name) != after.get(*name)) {
            let value = sql.value(after.get(*name).unwrap_or(&Value::Null), *column);
            sql.run(&format!("UPDATE {table} SET {name} = {value} WHERE instance_id = {id}"));
        }
        steps(sql, &id, &before["steps"], &after["steps"]);
    } else if run && !before.is_null() {
        // A run that is called a process.
        sql.run(&format!("DELETE FROM runs WHERE instance_id = {id}"));
    }
}

fn process(sql: &mut Sql, instance_id: &str, before: &Value, after: &Value, run: bool) {
    let id = sql.id(instance_id);
    let definition = after["definition"].as_str().and_then(|named| named.rsplit_once('@'));
    let (name, version) = definition.map_or((Value::Null, Value::Null), |(name, version)| {
        (name.into(), version.parse::<i64>().map_or(Value::Null, Value::from))
    });
    let mut columns = vec![
        ("subject_ref", sql.value(&after["subject_ref"], Text)),
        ("initiator_ref", sql.value(&after["initiator_ref"], Text)),
        ("definition_name", sql.value(&name, Text)),
        ("definition_version", sql.value(&version, Int)),
        ("started_at_us", sql.value(&after["started_at_us"], Int)),
    ];
    if !run {
        columns.push(("declaration_digest", sql.value(&after["declaration_digest"], Hex)));
        columns.push(("gate_spec_digest", sql.value(&after["gate_spec_digest"], Hex)));
    }
    if before.is_null() {
        let (names, values): (Vec<&str>, Vec<String>) = columns.into_iter().unzip();
        if !run {
            sql.run(&format!(
                "INSERT INTO processes (instance_id, {}) VALUES ({id}, {})",
                names.join(", "),
                values.join(", ")
            ));
        }
        return;
    }
    let table = if run { "runs" } else { "processes" };
    let set: Vec<String> = columns.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    sql.run(&format!("UPDATE {table} SET {} WHERE instance_id = {id}", set.join(", ")));
    if before["current_state"] != after["current_state"] && !run {
        let state = sql.value(&after["current_state"], Text);
        sql.run(&format!("UPDATE instances SET state = {state} WHERE instance_id = {id}"));
    }
    if before["sequence"] != after["sequence"] {
        sql.run(&format!("UPDATE instances SET sequence = {} WHERE instance_id = {id}", after["sequence"]));
    }
}

fn steps(sql: &mut Sql, id: &str, before: &Value, after: &Value) {
    let keyed = |rows: &Value| -> BTreeMap<u64, Value> {
        let rows = rows.as_array().cloned().unwrap_or_default();
        rows.into_iter().map(|row| (row["step_seq"].as_u64().unwrap_or_default(), row)).collect()
    };
    let (before, after) = (keyed(before), keyed(after));
    for seq in before.keys().filter(|seq| !after.contains_key(*seq)) {
        sql.run(&format!("DELETE FROM run_steps WHERE instance_id = {id} AND step_seq = {seq}"));
    }
    for (seq, row) in &after {
        let Some(old) = before.get(seq) else {
            let (name, state) = (sql.value(&row["name"], Text), sql.value(&row["state"], Text));
            let (unknown, needed) = (sql.value(&row["effect_unknown"], Bool), sql.value(&Value::Bool(false), Bool));
            sql.run(&format!(
                "INSERT INTO run_steps (instance_id, step_seq, name, queue, max_attempts, state, attempts, effect_unknown, \
                 output_needed) VALUES ({id}, {seq}, {name}, 'q', 1, {state}, {}, {unknown}, {needed})",
                row["attempts"]
            ));
            continue;
        };
        let mut changed: Vec<(&str, Value, As)> = vec![];
        for (name, column) in STEP.iter().filter(|(name, _)| old.get(*name) != row.get(*name)) {
            changed.push((name, row.get(*name).cloned().unwrap_or_default(), *column));
        }
        let charge = |row: &Value, name: &str| row.get("charge").and_then(|charge| charge.get(name)).cloned();
        for (name, column) in CHARGE.iter().filter(|(name, _)| charge(old, name) != charge(row, name)) {
            changed.push((name, charge(row, name).unwrap_or_default(), *column));
        }
        for (name, value, column) in changed {
            let value = sql.value(&value, column);
            sql.run(&format!("UPDATE run_steps SET {name} = {value} WHERE instance_id = {id} AND step_seq = {seq}"));
        }
    }
}
