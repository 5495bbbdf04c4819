//! Runs on PostgreSQL: their statements, and how many steps are written in one transaction.

use super::connect::failed;
use super::values::RowSet;
use crate::decode;
use crate::select::Dialect;
use crate::select::run::{RECEIVED_POSTGRES, RunSql};
use crate::statement::{Name, STATEMENTS, step_values};
use crate::value::Columns;
use countersign_engine::port::{Due, HeldStep, RunCells, RunView, Since, StoreError, Unit};
use countersign_engine::rows::{RecordRow, StepWrite};
use countersign_kernel::plan::StepSeq;
use countersign_kernel::{InstanceId, Time};
use std::sync::Arc;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement as Prepared};
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

/// What is drawn of a run, all in this snapshot. What needs no earlier answer is asked at once, so that a delta takes two
/// round trips.
pub async fn cells(
    snapshot: &deadpool_postgres::Transaction<'_>,
    sql: &RunSql,
    run_id: InstanceId,
    since: Option<Since>,
) -> Result<Option<RunCells>, StoreError> {
    let query = async |sql: &str, values: &[&(dyn ToSql + Sync)]| -> Result<Vec<Row>, StoreError> {
        let statement = snapshot.prepare_cached(sql).await.map_err(failed)?;
        snapshot.query(&statement, values).await.map_err(failed)
    };
    let ids = vec![run_id.0];
    let (by_ids, by_id): ([&(dyn ToSql + Sync); 1], [&(dyn ToSql + Sync); 1]) = ([&ids], [&run_id.0]);
    let view = |rows: &[Row]| rows.first().map(|row| decode::run::run_view(row)).transpose();
    let Some(since) = since else {
        let (run, rows) = tokio::try_join!(query(&sql.runs, &by_ids), query(&sql.cells, &by_id))?;
        return view(&run)?.map(|run| drawn(run, &rows, true, None)).transpose();
    };
    let sequence = i64::try_from(since.sequence).unwrap_or(i64::MAX);
    let limit = i64::try_from(since.records).unwrap_or(i64::MAX - 1) + 1;
    let behind: [&(dyn ToSql + Sync); 3] = [&run_id.0, &sequence, &limit];
    let (run, records, held) =
        tokio::try_join!(query(&sql.runs, &by_ids), query(&sql.records_since, &behind), query(&sql.held, &by_id))?;
    let Some(run) = view(&run)? else { return Ok(None) };
    let (mut chosen, mut chosen_from) = (None, None);
    if since.sequence <= run.chain.sequence && records.len() <= since.records {
        let records = records.iter().map(|row| decode::record_row(row)).collect::<Result<Vec<_>, _>>()?;
        let held = held.iter().map(|row| decode::run::held(row)).collect::<Result<Vec<_>, _>>()?;
        chosen = (since.choose)(&run, &records, &held);
        chosen_from = Some((records, held));
    }
    let full = chosen.is_none();
    let rows = match chosen {
        None => query(&sql.cells, &by_id).await?,
        Some(seqs) if seqs.is_empty() => vec![],
        Some(seqs) => {
            let seqs: Vec<i64> = seqs.into_iter().map(i64::from).collect();
            query(&sql.some_cells, &[&run_id.0, &seqs]).await?
        }
    };
    drawn(run, &rows, full, chosen_from).map(Some)
}

type ChosenFrom = Option<(Vec<RecordRow>, Vec<HeldStep>)>;

fn drawn(run: RunView, rows: &[Row], full: bool, chosen_from: ChosenFrom) -> Result<RunCells, StoreError> {
    let steps = rows.iter().map(|row| decode::run::step_view(row)).collect::<Result<_, _>>()?;
    Ok(RunCells { run, steps, full, chosen_from })
}
