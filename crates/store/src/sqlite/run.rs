//! Runs on SQLite: loading, writing their steps, and what is due.

use super::connect::failed;
use super::read::{document, rows};
use crate::decode;
use crate::select::run::{RECEIVED_SQLITE, RunSql};
use crate::select::{ByInstance, Dialect};
use crate::statement::{Name, step_values};
use crate::value::Value;
use countersign_engine::port::{Due, GateWithSteps, Loaded, LoadedBody, LoadedRun, RunCells, Since, StoreError, Unit};
use countersign_kernel::process::Gate;
use countersign_kernel::{Digest, EventId, HoldId, InstanceId, Time};
use rusqlite::{Connection, params_from_iter};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The writer's part that concerns runs.
pub struct Runs {
    sql: RunSql,
    /// Definition documents, as they are stored.
    documents: HashMap<Digest, Arc<[u8]>>,
}

impl Runs {
    pub fn new() -> Self {
        Runs { sql: RunSql::new(Dialect::Sqlite), documents: HashMap::new() }
    }

    /// Gates and holds are read where those of a process are.
    pub fn load(
        &mut self,
        connection: &Connection,
        by_instance: &ByInstance,
        instance_id: InstanceId,
        bindings: impl FnOnce() -> Result<(Vec<Gate>, BTreeMap<HoldId, EventId>), StoreError>,
    ) -> Result<Option<Loaded>, StoreError> {
        let id = [Value::Id(instance_id.0)];
        let Some(run) = rows(connection, &self.sql.runs, &id, decode::run::run_instance)?.pop() else {
            return Ok(None);
        };
        let (gates, holds) = bindings()?;
        let every_step = [Value::Id(instance_id.0), Value::Int(0), Value::Int(i64::MAX)];
        let steps = rows(connection, &self.sql.steps, &every_step, decode::run::stored_step)?;
        let machine = match &run.row.machine {
            Some(machine) => Some(self.document(connection, by_instance, &machine.digest)?),
            None => None,
        };
        let body = LoadedRun {
            machine,
            document: self.document(connection, by_instance, &run.row.document_digest)?,
            row: run.row,
            head: run.head,
            moves: run.moves,
            gates,
            holds,
            steps: decode::run::whole_plan(steps)?,
            kept: rows(connection, &self.sql.kept, &id, decode::run::event_row)?,
        };
        let (policy_ref, beats) = (run.policy_ref, run.beats);
        Ok(Some(Loaded { body: LoadedBody::Run(Box::new(body)), head: run.chain, policy_ref, beats }))
    }

    fn document(
        &mut self,
        connection: &Connection,
        by_instance: &ByInstance,
        digest: &Digest,
    ) -> Result<Arc<[u8]>, StoreError> {
        if let Some(known) = self.documents.get(digest) {
            return Ok(known.clone());
        }
        if self.documents.len() >= super::CACHED_DOCUMENTS {
            self.documents.clear();
        }
        let body: Arc<[u8]> = document(connection, by_instance.document, digest)?.into();
        self.documents.insert(*digest, body.clone());
        Ok(body)
    }

    pub fn due(&self, connection: &Connection, after: &Due, until: Time, limit: usize) -> Result<Vec<Due>, StoreError> {
        let step = after.step_seq.map_or(-1, i64::from);
        let (from, run_id, step) = (Value::time(after.due_at), Value::Id(after.instance_id.0), Value::Int(step));
        let values = [from, Value::time(until), Value::count(limit as u64), run_id, step];
        rows(connection, &self.sql.due, &values, decode::run::due)
    }
}

pub fn received(connection: &Connection, events: &[(InstanceId, Arc<str>)]) -> Result<Vec<bool>, StoreError> {
    let mut all = Vec::with_capacity(events.len());
    for (instance_id, event_id) in events {
        let values = [Value::Id(instance_id.0), Value::Text(event_id)];
        all.extend(rows(connection, RECEIVED_SQLITE, &values, |row| row.bool(0))?);
    }
    Ok(all)
}

/// A run may have a hundred thousand steps: both statements are prepared once, and each row is bound by itself.
pub fn write_steps(connection: &Connection, statements: &[String], unit: &Unit) -> Result<(), StoreError> {
    if unit.steps.is_empty() {
        return Ok(());
    }
    let mut insert = connection.prepare_cached(&statements[Name::NewRunStep as usize]).map_err(failed)?;
    let mut update = connection.prepare_cached(&statements[Name::RunStep as usize]).map_err(failed)?;
    for (step_seq, step) in &unit.steps {
        let (name, values) = step_values(unit.instance_id, *step_seq, step);
        let prepared = if name == Name::NewRunStep { &mut insert } else { &mut update };
        prepared.execute(params_from_iter(&values)).map_err(failed)?;
    }
    Ok(())
}

/// Every gate that was ever opened for an instance, or for these actions of it, with its steps.
pub fn gates(
    connection: &Connection,
    sql: &ByInstance,
    instance_id: InstanceId,
    actions: Option<&[String]>,
) -> Result<Vec<GateWithSteps>, StoreError> {
    let mut gates = Vec::new();
    let found = rows(connection, &sql.gates, &[Value::Id(instance_id.0)], decode::gate_row)?;
    for gate in found.into_iter().filter(|gate| actions.is_none_or(|actions| actions.contains(&gate.action))) {
        let steps = rows(connection, &sql.steps, &[Value::Id(gate.gate_id)], decode::gate_step_row)?;
        gates.push((gate, steps));
    }
    Ok(gates)
}

/// What is drawn of a run, all in the snapshot that the connection reads.
pub fn cells(
    connection: &Connection,
    run_id: InstanceId,
    since: Option<Since>,
) -> Result<Option<RunCells>, StoreError> {
    let sql = RunSql::new(Dialect::Sqlite);
    let id = [Value::Id(run_id.0)];
    let Some(run) = rows(connection, &sql.runs, &id, decode::run::run_view)?.pop() else { return Ok(None) };
    let (mut chosen, mut chosen_from) = (None, None);
    if let Some(since) = since.filter(|since| since.sequence <= run.chain.sequence) {
        let values = [Value::Id(run_id.0), Value::count(since.sequence), Value::count(since.records as u64 + 1)];
        let records = rows(connection, &sql.records_since, &values, decode::record_row)?;
        if records.len() <= since.records {
            let held = rows(connection, &sql.held, &id, decode::run::held)?;
            chosen = (since.choose)(&run, &records, &held);
            chosen_from = Some((records, held));
        }
    }
    let Some(seqs) = chosen else {
        let steps = rows(connection, &sql.cells, &id, decode::run::step_view)?;
        return Ok(Some(RunCells { run, steps, full: true, chosen_from }));
    };
    let mut steps = Vec::with_capacity(seqs.len());
    for seq in seqs {
        let values = [Value::Id(run_id.0), Value::Int(i64::from(seq))];
        steps.extend(rows(connection, &sql.some_cells, &values, decode::run::step_view)?);
    }
    Ok(Some(RunCells { run, steps, full: false, chosen_from }))
}
