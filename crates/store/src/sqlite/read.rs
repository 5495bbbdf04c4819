//! Reads: rows as values, and a pool of connections that read in parallel with the writer.

use super::connect::{Location, failed};
use super::listing;
use super::run::gates;
use crate::decode::{self, InstanceRow};
use crate::select::run::RunSql;
use crate::select::{self, ByInstance, Dialect, RegistrySince, Select};
use crate::value::{Columns, Value};
use async_trait::async_trait;
use countersign_engine::port::{
    AssignmentQuery, ChargedStep, GateWithSteps, HoldQuery, InstanceHead, Page, Past, ProcessQuery, ProcessView,
    PurgeableQuery, QueuedRun, Reader, RecordQuery, RegistryDelta, RunCells, RunQuery, RunStepView, RunView, Since,
    StepQuery, StoreError, Waiting,
};
use countersign_engine::rows::{AssignmentRow, CorrectionRow, HoldRow, RecordRow, StepRow, TransitionRow};
use countersign_kernel::plan::StepSeq;
use countersign_kernel::{Digest, EventId, InstanceId, Time};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Row, TransactionBehavior, params_from_iter};
use std::sync::{Arc, Mutex, PoisonError};
use uuid::Uuid;

const READERS: usize = 4;

impl rusqlite::ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Value::Null => ValueRef::Null,
            Value::Int(int) => ValueRef::Integer(*int),
            Value::Bool(bool) => ValueRef::Integer(i64::from(*bool)),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::OwnText(text) => ValueRef::Text(text.as_bytes()),
            Value::Bytes(bytes) => ValueRef::Blob(bytes),
            Value::Id(id) => ValueRef::Blob(id.as_bytes()),
        }))
    }
}

fn column<T: rusqlite::types::FromSql>(row: &Row<'_>, i: usize) -> Result<T, StoreError> {
    row.get(i).map_err(|e| StoreError::Corrupt(format!("column {i}: {e}")))
}

impl Columns for Row<'_> {
    fn int(&self, i: usize) -> Result<i64, StoreError> {
        column(self, i)
    }
    fn optional_int(&self, i: usize) -> Result<Option<i64>, StoreError> {
        column(self, i)
    }
    fn bool(&self, i: usize) -> Result<bool, StoreError> {
        column(self, i)
    }
    fn text(&self, i: usize) -> Result<String, StoreError> {
        column(self, i)
    }
    fn optional_text(&self, i: usize) -> Result<Option<String>, StoreError> {
        column(self, i)
    }
    fn bytes(&self, i: usize) -> Result<Vec<u8>, StoreError> {
        column(self, i)
    }
    fn optional_bytes(&self, i: usize) -> Result<Option<Vec<u8>>, StoreError> {
        column(self, i)
    }
    fn optional_bytes32(&self, i: usize) -> Result<Option<[u8; 32]>, StoreError> {
        column(self, i)
    }
    fn id(&self, i: usize) -> Result<Uuid, StoreError> {
        column(self, i).map(Uuid::from_bytes)
    }
    fn optional_id(&self, i: usize) -> Result<Option<Uuid>, StoreError> {
        Ok(column::<Option<[u8; 16]>>(self, i)?.map(Uuid::from_bytes))
    }
}

pub fn rows<T>(
    connection: &Connection,
    sql: &str,
    values: &[Value<'_>],
    decode: impl Fn(&dyn Columns) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    let mut found = statement.query(params_from_iter(values)).map_err(failed)?;
    let mut all = Vec::new();
    while let Some(row) = found.next().map_err(failed)? {
        all.push(decode(row)?);
    }
    Ok(all)
}

pub fn run<T>(
    connection: &Connection,
    select: &Select<'_>,
    decode: impl Fn(&dyn Columns) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    rows(connection, &select.sql, &select.values, decode)
}

pub fn document(connection: &Connection, sql: &str, digest: &Digest) -> Result<Vec<u8>, StoreError> {
    let body = rows(connection, sql, &[Value::digest(digest)], |row| row.bytes(0))?.pop();
    body.ok_or_else(|| StoreError::Corrupt(format!("document {digest} is missing")))
}

pub fn registry_since(
    connection: &Connection,
    sql: &RegistrySince,
    sequence: u64,
) -> Result<RegistryDelta, StoreError> {
    let since = [Value::count(sequence)];
    let head = rows(connection, &sql.head, &[Value::Id(InstanceId::REGISTRY.0)], decode::head_row)?
        .pop()
        .ok_or_else(|| StoreError::Corrupt("the registry has no row".to_owned()))?;
    if head.sequence <= sequence {
        return Ok(RegistryDelta { events: vec![], workflows: vec![], head });
    }
    let mut events = rows(connection, &sql.actors, &since, decode::actor_event)?;
    events.extend(rows(connection, &sql.issued, &since, |row| decode::credential_event(row, false))?);
    events.extend(rows(connection, &sql.withdrawn, &since, |row| decode::credential_event(row, true))?);
    events.extend(rows(connection, &sql.keys, &since, decode::key_event)?);
    events.extend(rows(connection, &sql.revoked_keys, &since, decode::revoked_key_event)?);
    events.extend(rows(connection, &sql.granted, &since, |row| decode::grant_event(row, false))?);
    events.extend(rows(connection, &sql.revoked, &since, |row| decode::grant_event(row, true))?);
    events.extend(rows(connection, &sql.delegated, &since, decode::delegation_event)?);
    events.extend(rows(connection, &sql.undelegated, &since, decode::revoked_delegation_event)?);
    let definition = |row: &dyn Columns| Ok((decode::definition_event(row)?, decode::workflow_document(row)?));
    let (definitions, documents): (Vec<_>, Vec<_>) =
        rows(connection, &sql.definitions, &since, definition)?.into_iter().unzip();
    events.extend(definitions);
    let mut workflows: Vec<_> = documents.into_iter().flatten().collect();
    workflows.sort_by_key(|(sequence, _)| *sequence);
    events.extend(rows(connection, &sql.marks, &since, decode::mark_event)?);
    events.extend(rows(connection, &sql.class_marks, &since, decode::class_mark_event)?);
    events.extend(rows(connection, &sql.configurations, &since, decode::configuration_event)?);
    events.sort_by_key(|(sequence, _)| *sequence);
    Ok(RegistryDelta { events, workflows, head })
}

/// Idle read connections. One more is opened when all are busy.
pub struct Pool {
    idle: Mutex<Vec<Connection>>,
    location: Location,
}

impl Pool {
    pub fn new(location: Location) -> Result<Pool, StoreError> {
        let idle = (0..READERS).map(|_| location.connect(true)).collect::<Result<_, _>>()?;
        Ok(Pool { idle: Mutex::new(idle), location })
    }

    pub fn with<T>(&self, read: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = idle().pop();
        let mut connection = match taken {
            Some(connection) => connection,
            None => self.location.connect(true)?,
        };
        // One snapshot for all queries of a read.
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Deferred).map_err(failed)?;
        let result = read(&transaction);
        transaction.finish().map_err(failed)?;
        let mut idle = idle();
        if idle.len() < READERS {
            idle.push(connection);
        }
        result
    }
}

/// Runs a read on a thread that may wait.
pub async fn read_on<T, F>(pool: &Arc<Pool>, read: F) -> Result<T, StoreError>
where
    T: Send + 'static,
    F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
{
    crate::count_read();
    let pool = pool.clone();
    tokio::task::spawn_blocking(move || pool.with(read))
        .await
        .unwrap_or_else(|e| Err(StoreError::Transient(format!("a read was interrupted: {e}"))))
}

pub struct SqliteReader {
    pub pool: Arc<Pool>,
}

impl SqliteReader {
    pub async fn read<T, F>(&self, read: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        read_on(&self.pool, read).await
    }
}

fn process_view(
    connection: &Connection,
    sql: &ByInstance,
    row: InstanceRow,
    past: Past,
) -> Result<ProcessView, StoreError> {
    let (from, limit) = past.firings();
    let firings = [Value::Id(row.process.instance_id.0), Value::Int(from), Value::Int(limit)];
    Ok(ProcessView {
        declaration: document(connection, sql.document, &row.process.declaration_digest)?.into(),
        gate_spec: document(connection, sql.document, &row.process.gate_spec_digest)?.into(),
        history: rows(connection, &sql.firings, &firings, decode::transition_row)?,
        gates: match past {
            Past::Nothing => vec![],
            Past::Whole | Past::Firings { .. } => gates(connection, sql, row.process.instance_id, None)?,
        },
        current_state: row.state,
        head: row.head,
        row: row.process,
    })
}

#[async_trait]
impl Reader for SqliteReader {
    async fn processes(&self, query: &ProcessQuery, page: &Page) -> Result<Vec<ProcessView>, StoreError> {
        let (query, page) = (query.clone(), page.clone());
        self.read(move |connection| {
            let sql = ByInstance::new(Dialect::Sqlite);
            let listed = listing::processes(&query, &page);
            let select = listed.unwrap_or_else(|| select::processes(Dialect::Sqlite, &query, &page));
            let found = run(connection, &select, decode::instance_row)?;
            found.into_iter().map(|row| process_view(connection, &sql, row, query.past)).collect()
        })
        .await
    }

    async fn approval_steps(&self, query: &StepQuery, page: &Page) -> Result<Vec<StepRow>, StoreError> {
        let (query, page) = (query.clone(), page.clone());
        self.read(move |connection| {
            run(connection, &select::approval_steps(Dialect::Sqlite, &query, &page), decode::step_row)
        })
        .await
    }

    async fn assignments(
        &self,
        query: &AssignmentQuery,
        page: &Page,
    ) -> Result<Vec<(AssignmentRow, StepRow)>, StoreError> {
        let (query, page) = (query.clone(), page.clone());
        self.read(move |connection| {
            let found =
                run(connection, &select::assignments(Dialect::Sqlite, &query, &page), decode::assigned_step_row)?;
            Ok(found.into_iter().map(|(step, assignment)| (assignment, step)).collect())
        })
        .await
    }

    async fn inbox(
        &self,
        assignee_ref: &str,
        asked_by: &str,
        after: Option<(i64, Uuid)>,
        limit: usize,
    ) -> Result<Vec<Waiting>, StoreError> {
        let (assignee, asked_by) = (assignee_ref.to_owned(), asked_by.to_owned());
        self.read(move |connection| {
            let (due, id) = after.unwrap_or((i64::MIN, Uuid::nil()));
            let values = [
                Value::Text(&assignee),
                Value::Int(due),
                Value::Id(id),
                Value::count(limit as u64),
                Value::Text(&asked_by),
            ];
            rows(connection, &ByInstance::new(Dialect::Sqlite).inbox, &values, decode::waiting)
        })
        .await
    }

    async fn inbox_count(&self, assignee_ref: &str) -> Result<u64, StoreError> {
        let assignee = assignee_ref.to_owned();
        self.read(move |connection| {
            let sql = ByInstance::new(Dialect::Sqlite).inbox_count;
            let counts = rows(connection, sql, &[Value::Text(&assignee)], |row| row.count(0))?;
            Ok(counts.first().copied().unwrap_or(0))
        })
        .await
    }

    async fn is_party(&self, instance_id: InstanceId, actor_ref: &str) -> Result<bool, StoreError> {
        let actor = actor_ref.to_owned();
        self.read(move |connection| {
            let values = [Value::Id(instance_id.0), Value::Text(&actor)];
            Ok(!rows(connection, &select::is_party(Dialect::Sqlite), &values, |_| Ok(()))?.is_empty())
        })
        .await
    }

    async fn records(&self, query: &RecordQuery, page: &Page) -> Result<Vec<RecordRow>, StoreError> {
        let (query, page) = (query.clone(), page.clone());
        self.read(move |connection| {
            let listed = listing::records(&query, &page);
            let select = listed.unwrap_or_else(|| select::records(Dialect::Sqlite, &query, &page));
            run(connection, &select, decode::record_row)
        })
        .await
    }

    async fn chains(&self, first: InstanceId, last: InstanceId) -> Result<Vec<RecordRow>, StoreError> {
        self.read(move |connection| run(connection, &select::chains(Dialect::Sqlite, first, last), decode::record_row))
            .await
    }

    async fn instances_in(
        &self,
        window: &countersign_engine::port::Range,
        after: Option<InstanceId>,
        limit: usize,
    ) -> Result<Vec<InstanceId>, StoreError> {
        let window = window.clone();
        self.read(move |connection| {
            let select = select::instances_in(Dialect::Sqlite, &window, after, limit);
            run(connection, &select, |row| row.id(0).map(InstanceId))
        })
        .await
    }

    async fn runs(&self, query: &RunQuery, page: &Page) -> Result<Vec<RunView>, StoreError> {
        let (query, page) = (query.clone(), page.clone());
        self.read(move |connection| {
            run(connection, &select::run::runs(Dialect::Sqlite, &query, &page), decode::run::run_view)
        })
        .await
    }

    async fn count_runs(&self, query: &RunQuery, most: usize) -> Result<u64, StoreError> {
        let query = query.clone();
        self.read(move |connection| {
            let counts = run(connection, &select::run::count(Dialect::Sqlite, &query, most), |row| row.count(0))?;
            Ok(counts.first().copied().unwrap_or(0))
        })
        .await
    }

    async fn pics(&self, steps: &[(InstanceId, StepSeq)]) -> Result<Vec<Option<String>>, StoreError> {
        let steps = steps.to_vec();
        self.read(move |connection| {
            let sql = "SELECT pic FROM run_steps WHERE instance_id = ?1 AND step_seq = ?2";
            let pic = |(run_id, seq): (InstanceId, StepSeq)| {
                let values = [Value::Id(run_id.0), Value::Int(i64::from(seq))];
                Ok(rows(connection, sql, &values, |row| row.optional_text(0))?.into_iter().next().flatten())
            };
            steps.into_iter().map(pic).collect()
        })
        .await
    }

    async fn heads(&self, ids: &[InstanceId]) -> Result<Vec<InstanceHead>, StoreError> {
        let ids = ids.to_vec();
        self.read(move |connection| {
            let sql = RunSql::new(Dialect::Sqlite).heads;
            let mut heads = Vec::with_capacity(ids.len());
            for id in ids {
                heads.extend(rows(connection, &sql, &[Value::Id(id.0)], decode::run::head)?);
            }
            Ok(heads)
        })
        .await
    }

    async fn run_steps(&self, run_id: InstanceId, from: StepSeq, limit: usize) -> Result<Vec<RunStepView>, StoreError> {
        self.read(move |connection| {
            let values = [Value::Id(run_id.0), Value::Int(i64::from(from)), Value::count(limit as u64)];
            rows(connection, &RunSql::new(Dialect::Sqlite).step_page, &values, decode::run::step_view)
        })
        .await
    }

    async fn run_cells(&self, run_id: InstanceId, since: Option<Since>) -> Result<Option<RunCells>, StoreError> {
        self.read(move |connection| super::run::cells(connection, run_id, since)).await
    }

    async fn corrections(&self, run_id: InstanceId) -> Result<Vec<CorrectionRow>, StoreError> {
        self.read(move |connection| {
            let sql = RunSql::new(Dialect::Sqlite).corrections;
            rows(connection, &sql, &[Value::Id(run_id.0)], decode::run::correction)
        })
        .await
    }

    async fn visits(&self, run_id: InstanceId) -> Result<Vec<(EventId, String)>, StoreError> {
        self.read(move |connection| {
            rows(connection, &RunSql::new(Dialect::Sqlite).visits, &[Value::Id(run_id.0)], decode::run::visits)
        })
        .await
    }

    async fn charged(
        &self,
        pic: &str,
        after: Option<(i64, InstanceId, StepSeq)>,
        limit: usize,
    ) -> Result<Vec<ChargedStep>, StoreError> {
        let pic = pic.to_owned();
        self.read(move |connection| {
            let [due, run_id, step] = select::run::behind(after);
            let values = [Value::Text(&pic), due, run_id, step, Value::count(limit as u64)];
            rows(connection, &RunSql::new(Dialect::Sqlite).charged, &values, decode::run::charged)
        })
        .await
    }

    async fn runs_by_correlation(
        &self,
        key: &str,
        after: Option<InstanceId>,
        limit: usize,
    ) -> Result<Vec<(InstanceId, String)>, StoreError> {
        let key = key.to_owned();
        let after = after.map_or(uuid::Uuid::nil(), |id| id.0);
        self.read(move |connection| {
            let values = [Value::Text(&key), Value::count(limit as u64), Value::Id(after)];
            let sql = &RunSql::new(Dialect::Sqlite).by_correlation;
            rows(connection, sql, &values, |row| Ok((InstanceId(row.id(0)?), row.text(1)?)))
        })
        .await
    }

    async fn queued_runs(
        &self,
        now: Time,
        after: Option<(u8, InstanceId)>,
        limit: usize,
    ) -> Result<Vec<QueuedRun>, StoreError> {
        self.read(move |connection| {
            let (priority, run_id) = select::run::queued_behind(after);
            let values = [Value::time(now), Value::count(limit as u64), priority, run_id];
            rows(connection, &RunSql::new(Dialect::Sqlite).queued, &values, decode::run::queued)
        })
        .await
    }

    async fn run_gates(
        &self,
        run_id: InstanceId,
        actions: Option<&[String]>,
    ) -> Result<Vec<GateWithSteps>, StoreError> {
        let actions = actions.map(<[String]>::to_vec);
        self.read(move |connection| gates(connection, &ByInstance::new(Dialect::Sqlite), run_id, actions.as_deref()))
            .await
    }

    async fn step_errors(
        &self,
        run_id: InstanceId,
        step_seq: StepSeq,
        after: Option<EventId>,
        limit: usize,
    ) -> Result<Vec<RecordRow>, StoreError> {
        self.read(move |connection| {
            let after = after.map_or(Uuid::nil(), |id| id.0);
            let step = Value::Int(i64::from(step_seq));
            let values = [Value::Id(run_id.0), step, Value::Id(after), Value::count(limit as u64)];
            rows(connection, &RunSql::new(Dialect::Sqlite).step_errors, &values, decode::record_row)
        })
        .await
    }

    async fn run_history(&self, run_id: InstanceId) -> Result<Vec<TransitionRow>, StoreError> {
        self.read(move |connection| {
            let sql = ByInstance::new(Dialect::Sqlite);
            rows(connection, &sql.history, &[Value::Id(run_id.0)], decode::transition_row)
        })
        .await
    }

    async fn document(&self, digest: Digest) -> Result<Arc<[u8]>, StoreError> {
        self.read(move |connection| {
            document(connection, ByInstance::new(Dialect::Sqlite).document, &digest).map(Arc::from)
        })
        .await
    }

    async fn definition_source(&self, name: &str, version: u32) -> Result<Option<Arc<str>>, StoreError> {
        let name = name.to_owned();
        let found = self
            .read(move |connection| {
                run(connection, &select::definition_source(Dialect::Sqlite, &name, version), |row| row.text(0))
            })
            .await?;
        Ok(found.into_iter().next().map(Arc::from))
    }

    async fn holds(&self, query: &HoldQuery, page: &Page) -> Result<Vec<HoldRow>, StoreError> {
        let (query, page) = (query.clone(), page.clone());
        self.read(move |connection| run(connection, &select::holds(Dialect::Sqlite, &query, &page), decode::hold_row))
            .await
    }

    async fn purgeable(&self, query: &PurgeableQuery) -> Result<Vec<(RecordRow, Vec<HoldRow>)>, StoreError> {
        let query = query.clone();
        self.read(move |connection| {
            let sql = ByInstance::new(Dialect::Sqlite);
            let found = run(connection, &select::purgeable(Dialect::Sqlite, &query), decode::record_row)?;
            found
                .into_iter()
                .map(|row| {
                    let mut holds = rows(connection, &sql.holds_on, &[Value::Id(row.event_id.0)], decode::hold_row)?;
                    if row.action_ref == decode::HOLD_PLACED {
                        let placed = [Value::Id(row.instance_id.0), Value::time(row.recorded_at)];
                        holds.extend(rows(connection, &sql.own_hold, &placed, decode::hold_row)?);
                    }
                    Ok((row, holds))
                })
                .collect()
        })
        .await
    }

    async fn registry_since(&self, sequence: u64) -> Result<RegistryDelta, StoreError> {
        self.read(move |connection| registry_since(connection, &RegistrySince::new(Dialect::Sqlite), sequence)).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.pool.location.files.require()?;
        self.read(|connection| rows(connection, "SELECT 1", &[], |row| row.int(0)).map(|_| ())).await
    }
}
