//! Loading instances: a fixed number of queries for all of them, whatever they are.

use super::connect::failed;
use super::{CACHED_DOCUMENTS, PostgresWriter, Session, read};
use crate::decode;
use crate::decode::run::{RunInstance, StoredStep};
use crate::value::Columns;
use countersign_engine::port::{Loaded, LoadedBody, LoadedRun, StoreError};
use countersign_engine::rows::{AssignmentRow, GateRow, RunEventRow, StepRow};
use countersign_kernel::process::Gate;
use countersign_kernel::{Declaration, Digest, EventId, GateSpec, HoldId, InstanceId};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

/// Steps of one run that are fetched at a time: the driver holds all rows of an answer, and a run may have many.
const STEP_PAGE: i64 = 16_384;

/// The headers of records by instance and sequence.
pub(super) const LAST_HEADERS: &str = "SELECT r.instance_id, r.header FROM UNNEST($1::uuid[], $2::bigint[]) AS h (instance_id, sequence) \
     JOIN records r ON r.instance_id = h.instance_id AND r.sequence = h.sequence";

/// The gates that can still matter, and the active holds.
#[derive(Default)]
struct Bindings {
    gates: HashMap<InstanceId, Vec<Gate>>,
    holds: HashMap<InstanceId, BTreeMap<HoldId, EventId>>,
}

impl Bindings {
    fn take(&mut self, instance_id: InstanceId) -> (Vec<Gate>, BTreeMap<HoldId, EventId>) {
        (self.gates.remove(&instance_id).unwrap_or_default(), self.holds.remove(&instance_id).unwrap_or_default())
    }
}

impl Session {
    async fn bindings(&self, ids: &Vec<Uuid>) -> Result<Bindings, StoreError> {
        let sql = &self.by_instance;
        let by_ids: [&(dyn ToSql + Sync); 1] = [ids];
        let (gate_rows, hold_rows) = tokio::try_join!(
            self.client.query(sql.live_gates.as_str(), &by_ids),
            self.client.query(sql.holds.as_str(), &by_ids),
        )
        .map_err(failed)?;
        let mut found = Bindings::default();
        for row in &hold_rows {
            let (instance_id, hold_id, record_ref) = decode::active_hold(row)?;
            found.holds.entry(instance_id).or_default().insert(hold_id, record_ref);
        }
        let gate_rows: Vec<GateRow> = gate_rows.iter().map(|row| decode::gate_row(row)).collect::<Result<_, _>>()?;
        let gate_ids: Vec<Uuid> = gate_rows.iter().map(|row| row.gate_id).collect();
        let mut steps: HashMap<Uuid, Vec<(StepRow, AssignmentRow)>> = HashMap::new();
        if !gate_ids.is_empty() {
            steps = read::steps_of(&self.client, &sql.steps, &gate_ids).await?;
        }
        for row in &gate_rows {
            let gate = decode::kernel_gate(row, steps.get(&row.gate_id).map_or(&[], Vec::as_slice))?;
            found.gates.entry(row.instance_id).or_default().push(gate);
        }
        Ok(found)
    }

    async fn run_steps(&self, mut ids: Vec<Uuid>) -> Result<HashMap<InstanceId, Vec<StoredStep>>, StoreError> {
        let mut steps: HashMap<InstanceId, Vec<StoredStep>> = HashMap::new();
        let mut from = 0i64;
        while !ids.is_empty() {
            let until = from + STEP_PAGE;
            let mut more = Vec::new();
            for row in &self.client.query(&self.runs.steps, &[&ids, &from, &until]).await.map_err(failed)? {
                let step = decode::run::stored_step(row)?;
                if i64::from(step.step_seq) == until - 1 {
                    more.push(step.instance_id.0);
                }
                steps.entry(step.instance_id).or_default().push(step);
            }
            (ids, from) = (more, until);
        }
        Ok(steps)
    }

    /// The headers of the last records of instances, as their rows name them.
    async fn last_headers(&self, ids: Vec<Uuid>, sequences: Vec<i64>) -> Result<HashMap<Uuid, Vec<u8>>, StoreError> {
        let rows = self.client.query(&self.last_headers, &[&ids, &sequences]).await.map_err(failed)?;
        rows.iter().map(|row| Ok((row.id(0)?, row.bytes(1)?))).collect()
    }

    async fn kept_events(&self, ids: &Vec<Uuid>) -> Result<HashMap<InstanceId, Vec<RunEventRow>>, StoreError> {
        let mut kept: HashMap<InstanceId, Vec<RunEventRow>> = HashMap::new();
        for row in &self.client.query(&self.runs.kept, &[ids]).await.map_err(failed)? {
            let event = decode::run::event_row(row)?;
            kept.entry(event.instance_id).or_default().push(event);
        }
        Ok(kept)
    }
}

impl PostgresWriter {
    pub(super) async fn load_all(&mut self, ids: &[InstanceId]) -> Result<Vec<Loaded>, StoreError> {
        let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
        let session = self.session().await?;
        // Between these reads another node may commit. The fence finds out, because the sequence is read before everything
        // else: what belongs to it may be newer than it says, never older.
        let by_ids: [&(dyn ToSql + Sync); 1] = [&ids];
        let (processes, runs) = tokio::try_join!(
            session.client.query(session.by_instance.processes.as_str(), &by_ids),
            session.client.query(&session.runs.runs, &by_ids),
        )
        .map_err(failed)?;
        let runs: Vec<RunInstance> = runs.iter().map(|row| decode::run::run_instance(row)).collect::<Result<_, _>>()?;
        let mut bindings = session.bindings(&ids).await?;
        let (mut steps, mut kept) = (HashMap::new(), HashMap::new());
        if !runs.is_empty() {
            let run_ids: Vec<Uuid> = runs.iter().map(|run| run.row.instance_id.0).collect();
            kept = session.kept_events(&run_ids).await?;
            steps = session.run_steps(run_ids).await?;
        }
        let mut all = Vec::with_capacity(processes.len() + runs.len());
        for row in processes {
            let row = decode::instance_row(&row)?;
            let (declaration, gate_spec) =
                self.documents(row.process.declaration_digest, row.process.gate_spec_digest).await?;
            let (gates, holds) = bindings.take(row.process.instance_id);
            all.push(decode::loaded(row, declaration, gate_spec, gates, holds)?);
        }
        for run in runs {
            let instance_id = run.row.instance_id;
            let (gates, holds) = bindings.take(instance_id);
            let machine = match &run.row.machine {
                Some(machine) => Some(self.run_document(machine.digest).await?),
                None => None,
            };
            let body = LoadedRun {
                machine,
                document: self.run_document(run.row.document_digest).await?,
                row: run.row,
                head: run.head,
                moves: run.moves,
                gates,
                holds,
                steps: decode::run::whole_plan(steps.remove(&instance_id).unwrap_or_default())?,
                kept: kept.remove(&instance_id).unwrap_or_default(),
            };
            let (policy_ref, beats) = (run.policy_ref, run.beats);
            all.push(Loaded { body: LoadedBody::Run(Box::new(body)), head: run.chain, policy_ref, beats });
        }
        let (ids, sequences) = all
            .iter()
            .map(|loaded| (loaded.instance_id().0, i64::try_from(loaded.head.sequence).unwrap_or(i64::MAX)))
            .unzip();
        let headers = self.session().await?.last_headers(ids, sequences).await?;
        for loaded in &all {
            decode::require_last_record(loaded, headers.get(&loaded.instance_id().0).map(Vec::as_slice))?;
        }
        Ok(all)
    }

    async fn run_document(&mut self, digest: Digest) -> Result<Arc<[u8]>, StoreError> {
        if let Some(known) = self.run_documents.get(&digest) {
            return Ok(known.clone());
        }
        if self.run_documents.len() >= CACHED_DOCUMENTS {
            self.run_documents.clear();
        }
        let body: Arc<[u8]> = self.document(&digest).await?.into();
        self.run_documents.insert(digest, body.clone());
        Ok(body)
    }

    async fn document(&mut self, digest: &Digest) -> Result<Vec<u8>, StoreError> {
        let session = self.session().await?;
        read::document(&session.client, session.by_instance.document, digest).await
    }

    async fn documents(&mut self, d: Digest, g: Digest) -> Result<(Arc<Declaration>, Arc<GateSpec>), StoreError> {
        if self.declarations.len() + self.gate_specs.len() > CACHED_DOCUMENTS {
            self.declarations.clear();
            self.gate_specs.clear();
        }
        if !self.declarations.contains_key(&d) {
            let parsed = decode::declaration(&d, &self.document(&d).await?)?;
            self.declarations.insert(d, parsed);
        }
        if !self.gate_specs.contains_key(&g) {
            let parsed = decode::gate_spec(&g, &self.document(&g).await?)?;
            self.gate_specs.insert(g, parsed);
        }
        match (self.declarations.get(&d), self.gate_specs.get(&g)) {
            (Some(declaration), Some(gate_spec)) => Ok((declaration.clone(), gate_spec.clone())),
            _ => Err(StoreError::Corrupt("a document left the cache".to_owned())),
        }
    }
}
