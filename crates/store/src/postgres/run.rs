//! Runs on PostgreSQL: their statements, and how many steps are written in one transaction.

use super::connect::failed;
use super::values::RowSet;
use crate::decode;
use crate::select::Dialect;
use crate::select::run::{RECEIVED_POSTGRES, RunSql};
use crate::statement::{Name, STATEMENTS, step_values};
use crate::value::Columns;
use countersign_engine::port::{Due, StoreError, Unit};
use countersign_engine::rows::StepWrite;
use countersign_kernel::plan::StepSeq;
use countersign_kernel::{InstanceId, Time};
use std::sync::Arc;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement as Prepared};
use uuid::Uuid;

/// Steps that one statement writes.
const CHUNK: usize = 2048;
/// Chunks that are sent together with everything else. What goes beyond is sent before, one chunk after the other, so
/// that a run of any length takes the memory of a few chunks.
const CHUNKS_IN_FLIGHT: usize = 4;

/// What the writer asks about runs, prepared.
pub struct RunStatements {
    pub runs: Prepared,
    /// Parameters: runs, from this step on, before this one.
    pub steps: Prepared,
    pub kept: Prepared,
    due: Prepared,
    received: Prepared,
}

impl RunStatements {
    pub async fn prepare(client: &Client) -> Result<Self, StoreError> {
        let sql = RunSql::new(Dialect::Postgres);
        let prepare = async |sql: &str| client.prepare(sql).await.map_err(failed);
        Ok(RunStatements {
            runs: prepare(&sql.runs).await?,
            steps: prepare(&sql.steps).await?,
            kept: prepare(&sql.kept).await?,
            due: prepare(&sql.due).await?,
            received: prepare(RECEIVED_POSTGRES).await?,
        })
    }

    pub async fn due(&self, client: &Client, after: &Due, until: Time, limit: usize) -> Result<Vec<Due>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let (from, run_id, step) = (after.due_at.0, after.instance_id.0, after.step_seq.map_or(-1, i64::from));
        let values: [&(dyn ToSql + Sync); 5] = [&from, &until.0, &limit, &run_id, &step];
        let rows = client.query(&self.due, &values).await.map_err(failed)?;
        rows.iter().map(|row| decode::run::due(row)).collect()
    }

    pub async fn received(&self, client: &Client, events: &[(InstanceId, Arc<str>)]) -> Result<Vec<bool>, StoreError> {
        if events.is_empty() {
            return Ok(vec![]);
        }
        let ids: Vec<Uuid> = events.iter().map(|(id, _)| id.0).collect();
        let names: Vec<&str> = events.iter().map(|(_, name)| &**name).collect();
        let rows = client.query(&self.received, &[&ids, &names]).await.map_err(failed)?;
        rows.iter().map(|row| row.bool(0)).collect()
    }
}

type Step<'a> = (InstanceId, StepSeq, &'a StepWrite);

/// The steps of a batch's winners. Rows are made of them a chunk at a time.
pub struct Steps<'a> {
    new: Vec<Step<'a>>,
    changed: Vec<Step<'a>>,
}

impl<'a> Steps<'a> {
    pub fn of(units: &[&'a Unit]) -> Self {
        let all =
            units.iter().flat_map(|unit| unit.steps.iter().map(|(step_seq, step)| (unit.instance_id, *step_seq, step)));
        let (new, changed) = all.partition(|(_, _, step)| step.new.is_some());
        Steps { new, changed }
    }

    fn chunks(&self) -> impl ExactSizeIterator<Item = (Name, &[Step<'a>])> {
        let new = self.new.chunks(CHUNK).map(|chunk| (Name::NewRunStep, chunk));
        let changed = self.changed.chunks(CHUNK).map(|chunk| (Name::RunStep, chunk));
        new.chain(changed).collect::<Vec<_>>().into_iter()
    }

    fn set(name: Name, chunk: &[Step<'a>]) -> (Name, RowSet<'a>) {
        let rows = chunk.iter().map(|(instance_id, step_seq, step)| step_values(*instance_id, *step_seq, step).1);
        (name, RowSet::of(&STATEMENTS[name as usize], rows.collect()))
    }

    /// What is to be written first, chunk by chunk.
    pub fn ahead(&self) -> impl Iterator<Item = (Name, RowSet<'a>)> {
        let ahead = self.chunks().len().saturating_sub(CHUNKS_IN_FLIGHT);
        self.chunks().take(ahead).map(|(name, chunk)| Self::set(name, chunk))
    }

    /// The rest, for all of it to be sent at once.
    pub fn at_last(&self) -> impl Iterator<Item = (Name, RowSet<'a>)> {
        let ahead = self.chunks().len().saturating_sub(CHUNKS_IN_FLIGHT);
        self.chunks().skip(ahead).map(|(name, chunk)| Self::set(name, chunk))
    }
}
