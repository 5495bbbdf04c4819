//! Reads on a pool of connections, each read in one snapshot.

use super::connect::{Settings, failed};
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
use countersign_engine::rows::{AssignmentRow, CorrectionRow, GateRow, HoldRow, RecordRow, StepRow, TransitionRow};
use countersign_kernel::plan::StepSeq;
use countersign_kernel::{Digest, EventId, InstanceId, Time};
use deadpool_postgres::{ClientWrapper, Hook, HookError, Manager, ManagerConfig, Pool, RecyclingMethod};
use std::collections::HashMap;
use std::sync::Arc;
use tokio_postgres::types::ToSql;
use tokio_postgres::{GenericClient, IsolationLevel, NoTls, Row, ToStatement};
use uuid::Uuid;

const CONNECTIONS: usize = 8;

pub struct PostgresReader {
    pool: Pool,
    by_instance: ByInstance,
    runs: RunSql,
    registry_since: RegistrySince,
}

impl PostgresReader {
    pub fn new(settings: &Settings) -> Result<Self, StoreError> {
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = match &settings.tls {
            None => Manager::from_config(settings.config.clone(), NoTls, recycling),
            Some(tls) => Manager::from_config(settings.config.clone(), tls.clone(), recycling),
        };
        // Every query has an index. Outdated statistics must not lead to a scan of a whole table.
        let plans = Hook::async_fn(|client: &mut ClientWrapper, _| {
            Box::pin(async move { client.batch_execute(super::PLANS).await.map_err(HookError::Backend) })
        });
        let pool = Pool::builder(manager)
            .max_size(CONNECTIONS)
            .post_create(plans)
            .build()
            .map_err(|e| StoreError::Unusable(format!("the connection pool could not be built: {e}")))?;
        Ok(PostgresReader {
            pool,
            by_instance: ByInstance::new(Dialect::Postgres),
            runs: RunSql::new(Dialect::Postgres),
            registry_since: RegistrySince::new(Dialect::Postgres),
        })
    }

    /// Its connections, for what else is neither the committer's nor the log's.
    pub fn pool(&self) -> Pool {
        self.pool.clone()
    }

    pub async fn connection(&self) -> Result<deadpool_postgres::Client, StoreError> {
        connection(&self.pool).await
    }

    pub async fn run<T>(
        &self,
        select: &Select<'_>,
        decode: impl Fn(&dyn Columns) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let client = self.connection().await?;
        run(&**client, select, decode).await
    }

    pub async fn rows<T>(
        &self,
        sql: &str,
        values: &[Value<'_>],
        decode: impl Fn(&dyn Columns) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let client = self.connection().await?;
        let statement = client.prepare_cached(sql).await.map_err(failed)?;
        let rows = client.query(&statement, &parameters(values)).await.map_err(failed)?;
        rows.iter().map(|row| decode(row)).collect()
    }
}

pub async fn connection(pool: &Pool) -> Result<deadpool_postgres::Client, StoreError> {
    crate::count_read();
    pool.get().await.map_err(|e| StoreError::Transient(format!("no connection to PostgreSQL: {e}")))
}

pub fn parameters<'v>(values: &'v [Value<'v>]) -> Vec<&'v (dyn ToSql + Sync)> {
    values.iter().map(|value| value as &(dyn ToSql + Sync)).collect()
}

async fn run<T>(
    client: &impl GenericClient,
    select: &Select<'_>,
    decode: impl Fn(&dyn Columns) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let rows = client.query(&select.sql, &parameters(&select.values)).await.map_err(failed)?;
    rows.iter().map(|row| decode(row)).collect()
}

pub async fn document(client: &impl GenericClient, sql: &str, digest: &Digest) -> Result<Vec<u8>, StoreError> {
    let row = client.query_opt(sql, &[&digest.0.as_slice()]).await.map_err(failed)?;
    row.ok_or_else(|| StoreError::Corrupt(format!("document {digest} is missing")))?.bytes(0)
}

/// `head`: that query of `sql`, as text or prepared.
pub async fn registry_since(
    client: &impl GenericClient,
    head: &(impl ToStatement + Sync + Send + ?Sized),
    sql: &RegistrySince,
    sequence: u64,
) -> Result<RegistryDelta, StoreError> {
    let since = i64::try_from(sequence).unwrap_or(i64::MAX);
    let head = client.query_opt(head, &[&InstanceId::REGISTRY.0]).await.map_err(failed)?;
    let head = decode::head_row(&head.ok_or_else(|| StoreError::Corrupt("the registry has no row".to_owned()))?)?;
    if head.sequence <= sequence {
        return Ok(RegistryDelta { events: vec![], workflows: vec![], head });
    }
    let query = async |sql: &str| client.query(sql, &[&since]).await.map_err(failed);
    let (mut events, mut workflows) = (Vec::new(), Vec::new());
    for row in query(&sql.actors).await? {
        events.push(decode::actor_event(&row)?);
    }
    for row in query(&sql.issued).await? {
        events.push(decode::credential_event(&row, false)?);
    }
    for row in query(&sql.withdrawn).await? {
        events.push(decode::credential_event(&row, true)?);
    }
    for row in query(&sql.keys).await? {
        events.push(decode::key_event(&row)?);
    }
    for row in query(&sql.revoked_keys).await? {
        events.push(decode::revoked_key_event(&row)?);
    }
    for row in query(&sql.granted).await? {
        events.push(decode::grant_event(&row, false)?);
    }
    for row in query(&sql.revoked).await? {
        events.push(decode::grant_event(&row, true)?);
    }
    for row in query(&sql.definitions).await? {
        events.push(decode::definition_event(&row)?);
        workflows.extend(decode::workflow_document(&row)?);
    }
    for row in query(&sql.delegated).await? {
        events.push(decode::delegation_event(&row)?);
    }
    for row in query(&sql.undelegated).await? {
        events.push(decode::revoked_delegation_event(&row)?);
    }
    for row in query(&sql.marks).await? {
        events.push(decode::mark_event(&row)?);
    }
    for row in query(&sql.class_marks).await? {
        events.push(decode::class_mark_event(&row)?);
    }
    for row in query(&sql.configurations).await? {
        events.push(decode::configuration_event(&row)?);
    }
    // A change that was committed between two of these reads is fetched next time, whole.
    events.retain(|(sequence, _)| *sequence <= head.sequence);
    workflows.retain(|(sequence, _)| *sequence <= head.sequence);
    events.sort_by_key(|(sequence, _)| *sequence);
    workflows.sort_by_key(|(sequence, _)| *sequence);
    Ok(RegistryDelta { events, workflows, head })
}

pub type Steps = HashMap<Uuid, Vec<(StepRow, AssignmentRow)>>;

pub async fn steps_of(client: &impl GenericClient, sql: &str, gate_ids: &Vec<Uuid>) -> Result<Steps, StoreError> {
    let mut steps: Steps = HashMap::new();
    for row in client.query(sql, &[gate_ids]).await.map_err(failed)? {
        let (step, assignment) = decode::gate_step_row(&row)?;
        steps.entry(step.gate_id).or_default().push((step, assignment));
    }
    Ok(steps)
}

/// Every gate that was ever opened for these instances, or for these actions of them, with its steps.
async fn gates_of(
    client: &impl GenericClient,
    sql: &ByInstance,
    ids: &Vec<Uuid>,
    actions: Option<&[String]>,
) -> Result<Vec<GateWithSteps>, StoreError> {
    let rows = client.query(sql.gates.as_str(), &[ids]).await.map_err(failed)?;
    let mut gates: Vec<GateRow> = rows.iter().map(|row| decode::gate_row(row)).collect::<Result<_, _>>()?;
    gates.retain(|gate| actions.is_none_or(|actions| actions.contains(&gate.action)));
    let mut steps = steps_of(client, &sql.steps, &gates.iter().map(|row| row.gate_id).collect()).await?;
    let with_steps = |gate: GateRow| {
        let steps = steps.remove(&gate.gate_id).unwrap_or_default();
        (gate, steps)
    };
    Ok(gates.into_iter().map(with_steps).collect())
}

/// The whole past of these instances, in a fixed number of queries.
async fn views(
    client: &impl GenericClient,
    sql: &ByInstance,
    found: Vec<InstanceRow>,
    past: Past,
) -> Result<Vec<ProcessView>, StoreError> {
    let ids: Vec<Uuid> = found.iter().map(|row| row.process.instance_id.0).collect();
    let all = async |sql: &str| -> Result<Vec<Row>, StoreError> { client.query(sql, &[&ids]).await.map_err(failed) };
    let mut history: HashMap<InstanceId, Vec<TransitionRow>> = HashMap::new();
    let mut gates: HashMap<InstanceId, Vec<GateWithSteps>> = HashMap::new();
    let firings = match past {
        Past::Whole => all(&sql.history).await?,
        Past::Nothing => vec![],
        Past::Firings { .. } => {
            let ((from, limit), mut some) = (past.firings(), vec![]);
            for id in &ids {
                some.extend(client.query(sql.firings.as_str(), &[id, &from, &limit]).await.map_err(failed)?);
            }
            some
        }
    };
    for row in firings {
        let row = decode::transition_row(&row)?;
        history.entry(row.instance_id).or_default().push(row);
    }
    if past != Past::Nothing {
        for gate in gates_of(client, sql, &ids, None).await? {
            gates.entry(gate.0.instance_id).or_default().push(gate);
        }
    }
    let mut documents: HashMap<Digest, Arc<[u8]>> = HashMap::new();
    for digest in found.iter().flat_map(|row| [row.process.declaration_digest, row.process.gate_spec_digest]) {
        if let std::collections::hash_map::Entry::Vacant(vacant) = documents.entry(digest) {
            vacant.insert(document(client, sql.document, &digest).await?.into());
        }
    }
    let body = |digest: &Digest| documents.get(digest).cloned().unwrap_or_default();
    Ok(found
        .into_iter()
        .map(|row| ProcessView {
            declaration: body(&row.process.declaration_digest),
            gate_spec: body(&row.process.gate_spec_digest),
            history: history.remove(&row.process.instance_id).unwrap_or_default(),
            gates: gates.remove(&row.process.instance_id).unwrap_or_default(),
            current_state: row.state,
            head: row.head,
            row: row.process,
        })
        .collect())
}

async fn snapshot(client: &mut deadpool_postgres::Client) -> Result<deadpool_postgres::Transaction<'_>, StoreError> {
    let snapshot = client.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(true);
    snapshot.start().await.map_err(failed)
}

#[async_trait]
impl Reader for PostgresReader {
    async fn processes(&self, query: &ProcessQuery, page: &Page) -> Result<Vec<ProcessView>, StoreError> {
        let mut client = self.connection().await?;
        let snapshot = snapshot(&mut client).await?;
        let found = run(&*snapshot, &select::processes(Dialect::Postgres, query, page), decode::instance_row).await?;
        let views = views(&*snapshot, &self.by_instance, found, query.past).await?;
        snapshot.commit().await.map_err(failed)?;
        Ok(views)
    }

    async fn approval_steps(&self, query: &StepQuery, page: &Page) -> Result<Vec<StepRow>, StoreError> {
        self.run(&select::approval_steps(Dialect::Postgres, query, page), decode::step_row).await
    }

    async fn assignments(
        &self,
        query: &AssignmentQuery,
        page: &Page,
    ) -> Result<Vec<(AssignmentRow, StepRow)>, StoreError> {
        let found = self.run(&select::assignments(Dialect::Postgres, query, page), decode::assigned_step_row).await?;
        Ok(found.into_iter().map(|(step, assignment)| (assignment, step)).collect())
    }

    async fn inbox(
        &self,
        assignee_ref: &str,
        asked_by: &str,
        after: Option<(i64, Uuid)>,
        limit: usize,
    ) -> Result<Vec<Waiting>, StoreError> {
        let (due, id) = after.unwrap_or((i64::MIN, Uuid::nil()));
        let values = [
            Value::Text(assignee_ref),
            Value::Int(due),
            Value::Id(id),
            Value::count(limit as u64),
            Value::Text(asked_by),
        ];
        self.rows(&self.by_instance.inbox, &values, decode::waiting).await
    }

    async fn inbox_count(&self, assignee_ref: &str) -> Result<u64, StoreError> {
        let counts = self.rows(self.by_instance.inbox_count, &[Value::Text(assignee_ref)], |row| row.count(0)).await?;
        Ok(counts.first().copied().unwrap_or(0))
    }

    async fn is_party(&self, instance_id: InstanceId, actor_ref: &str) -> Result<bool, StoreError> {
        let values = [Value::Id(instance_id.0), Value::Text(actor_ref)];
        Ok(!self.rows(&select::is_party(Dialect::Postgres), &values, |_| Ok(())).await?.is_empty())
    }

    async fn records(&self, query: &RecordQuery, page: &Page) -> Result<Vec<RecordRow>, StoreError> {
        self.run(&select::records(Dialect::Postgres, query, page), decode::record_row).await
    }

    async fn chains(&self, first: InstanceId, last: InstanceId) -> Result<Vec<RecordRow>, StoreError> {
        self.run(&select::chains(Dialect::Postgres, first, last), decode::record_row).await
    }

    async fn instances_in(
        &self,
        window: &countersign_engine::port::Range,
        after: Option<InstanceId>,
        limit: usize,
    ) -> Result<Vec<InstanceId>, StoreError> {
        let select = select::instances_in(Dialect::Postgres, window, after, limit);
        self.run(&select, |row| row.id(0).map(InstanceId)).await
    }

    async fn runs(&self, query: &RunQuery, page: &Page) -> Result<Vec<RunView>, StoreError> {
        let select = select::run::runs(Dialect::Postgres, query, page);
        if query.instance_id.is_some() {
            // Asked for with every read of one run: prepared once.
            return self.rows(&select.sql, &select.values, decode::run::run_view).await;
        }
        self.run(&select, decode::run::run_view).await
    }

    async fn count_runs(&self, query: &RunQuery, most: usize) -> Result<u64, StoreError> {
        let counts = self.run(&select::run::count(Dialect::Postgres, query, most), |row| row.count(0)).await?;
        Ok(counts.first().copied().unwrap_or(0))
    }

    async fn pics(&self, steps: &[(InstanceId, StepSeq)]) -> Result<Vec<Option<String>>, StoreError> {
        let (ids, seqs): (Vec<Uuid>, Vec<i64>) = steps.iter().map(|(id, seq)| (id.0, i64::from(*seq))).unzip();
        let client = self.connection().await?;
        let sql = "SELECT s.pic FROM UNNEST($1::uuid[], $2::bigint[]) WITH ORDINALITY AS u(instance_id, step_seq, n) \
                   LEFT JOIN run_steps s ON s.instance_id = u.instance_id AND s.step_seq = u.step_seq ORDER BY u.n";
        let statement = client.prepare_cached(sql).await.map_err(failed)?;
        let rows = client.query(&statement, &[&ids, &seqs]).await.map_err(failed)?;
        rows.iter().map(|row| row.optional_text(0)).collect()
    }

    async fn heads(&self, ids: &[InstanceId]) -> Result<Vec<InstanceHead>, StoreError> {
        let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
        let client = self.connection().await?;
        let statement = client.prepare_cached(&self.runs.heads).await.map_err(failed)?;
        let rows = client.query(&statement, &[&ids]).await.map_err(failed)?;
        rows.iter().map(|row| decode::run::head(row)).collect()
    }

    async fn run_steps(&self, run_id: InstanceId, from: StepSeq, limit: usize) -> Result<Vec<RunStepView>, StoreError> {
        let values = [Value::Id(run_id.0), Value::Int(i64::from(from)), Value::count(limit as u64)];
        self.rows(&self.runs.step_page, &values, decode::run::step_view).await
    }

    async fn run_cells(&self, run_id: InstanceId, since: Option<Since>) -> Result<Option<RunCells>, StoreError> {
        let mut client = self.connection().await?;
        let snapshot = snapshot(&mut client).await?;
        // It only read: rolling it back as it is dropped loses nothing, and is not waited for.
        super::run::cells(&snapshot, &self.runs, run_id, since).await
    }

    async fn corrections(&self, run_id: InstanceId) -> Result<Vec<CorrectionRow>, StoreError> {
        self.rows(&self.runs.corrections, &[Value::Id(run_id.0)], decode::run::correction).await
    }

    async fn visits(&self, run_id: InstanceId) -> Result<Vec<(EventId, String)>, StoreError> {
        self.rows(&self.runs.visits, &[Value::Id(run_id.0)], decode::run::visits).await
    }

    async fn charged(
        &self,
        pic: &str,
        after: Option<(i64, InstanceId, StepSeq)>,
        limit: usize,
    ) -> Result<Vec<ChargedStep>, StoreError> {
        let [due, run_id, step] = select::run::behind(after);
        let values = [Value::Text(pic), due, run_id, step, Value::count(limit as u64)];
        self.rows(&self.runs.charged, &values, decode::run::charged).await
    }

    async fn runs_by_correlation(
        &self,
        key: &str,
        after: Option<InstanceId>,
        limit: usize,
    ) -> Result<Vec<(InstanceId, String)>, StoreError> {
        let values = [Value::Text(key), Value::count(limit as u64), Value::Id(after.map_or(Uuid::nil(), |id| id.0))];
        self.rows(&self.runs.by_correlation, &values, |row| Ok((InstanceId(row.id(0)?), row.text(1)?))).await
    }

    async fn queued_runs(
        &self,
        now: Time,
        after: Option<(u8, InstanceId)>,
        limit: usize,
    ) -> Result<Vec<QueuedRun>, StoreError> {
        let (priority, run_id) = select::run::queued_behind(after);
        let values = [Value::time(now), Value::count(limit as u64), priority, run_id];
        self.rows(&self.runs.queued, &values, decode::run::queued).await
    }

    async fn step_errors(
        &self,
        run_id: InstanceId,
        step_seq: StepSeq,
        after: Option<EventId>,
        limit: usize,
    ) -> Result<Vec<RecordRow>, StoreError> {
        let after = after.map_or(Uuid::nil(), |id| id.0);
        let step = Value::Int(i64::from(step_seq));
        let values = [Value::Id(run_id.0), step, Value::Id(after), Value::count(limit as u64)];
        self.rows(&self.runs.step_errors, &values, decode::record_row).await
    }

    async fn run_gates(
        &self,
        run_id: InstanceId,
        actions: Option<&[String]>,
    ) -> Result<Vec<GateWithSteps>, StoreError> {
        let mut client = self.connection().await?;
        let snapshot = snapshot(&mut client).await?;
        let gates = gates_of(&*snapshot, &self.by_instance, &vec![run_id.0], actions).await?;
        snapshot.commit().await.map_err(failed)?;
        Ok(gates)
    }

    async fn run_history(&self, run_id: InstanceId) -> Result<Vec<TransitionRow>, StoreError> {
        let client = self.connection().await?;
        let rows = client.query(self.by_instance.history.as_str(), &[&vec![run_id.0]]).await.map_err(failed)?;
        rows.iter().map(|row| decode::transition_row(row)).collect()
    }

    async fn document(&self, digest: Digest) -> Result<Arc<[u8]>, StoreError> {
        let client = self.connection().await?;
        document(&**client, self.by_instance.document, &digest).await.map(Arc::from)
    }

    async fn definition_source(&self, name: &str, version: u32) -> Result<Option<Arc<str>>, StoreError> {
        let found = self.run(&select::definition_source(Dialect::Postgres, name, version), |row| row.text(0)).await?;
        Ok(found.into_iter().next().map(Arc::from))
    }

    async fn holds(&self, query: &HoldQuery, page: &Page) -> Result<Vec<HoldRow>, StoreError> {
        self.run(&select::holds(Dialect::Postgres, query, page), decode::hold_row).await
    }

    async fn purgeable(&self, query: &PurgeableQuery) -> Result<Vec<(RecordRow, Vec<HoldRow>)>, StoreError> {
        let found = self.run(&select::purgeable(Dialect::Postgres, query), decode::record_row).await?;
        let ids: Vec<Uuid> = found.iter().map(|row| row.event_id.0).collect();
        let client = self.connection().await?;
        let mut holds: HashMap<Uuid, Vec<HoldRow>> = HashMap::new();
        for row in client.query(self.by_instance.holds_on.as_str(), &[&ids]).await.map_err(failed)? {
            let hold = decode::hold_row(&row)?;
            holds.entry(hold.record_ref.0).or_default().push(hold);
        }
        for row in found.iter().filter(|row| row.action_ref == decode::HOLD_PLACED) {
            let placed = [Value::Id(row.instance_id.0), Value::time(row.recorded_at)];
            for own in client.query(self.by_instance.own_hold.as_str(), &parameters(&placed)).await.map_err(failed)? {
                holds.entry(row.event_id.0).or_default().push(decode::hold_row(&own)?);
            }
        }
        Ok(found
            .into_iter()
            .map(|row| {
                let holds = holds.remove(&row.event_id.0).unwrap_or_default();
                (row, holds)
            })
            .collect())
    }

    async fn registry_since(&self, sequence: u64) -> Result<RegistryDelta, StoreError> {
        let client = self.connection().await?;
        registry_since(&**client, self.registry_since.head.as_str(), &self.registry_since, sequence).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.connection().await?.query_one("SELECT 1", &[]).await.map(|_| ()).map_err(failed)
    }
}
