//! Reads on a pool of connections, each read in one snapshot.

use super::connect::{Settings, failed};
use crate::decode::{self, InstanceRow};
use crate::select::{self, ByInstance, Dialect, RegistrySince, Select};
use crate::value::{Columns, Value};
use async_trait::async_trait;
use countersign_engine::port::{
    AssignmentQuery, HoldQuery, Page, ProcessQuery, ProcessView, PurgeableQuery, Reader, RecordQuery, RegistryDelta,
    StepQuery, StoreError,
};
use countersign_engine::rows::{AssignmentRow, GateRow, HoldRow, RecordRow, StepRow, TransitionRow};
use countersign_kernel::{Digest, InstanceId};
use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use std::collections::HashMap;
use std::sync::Arc;
use tokio_postgres::types::ToSql;
use tokio_postgres::{GenericClient, IsolationLevel, NoTls, Row};
use uuid::Uuid;

const CONNECTIONS: usize = 8;

pub struct PostgresReader {
    pool: Pool,
    by_instance: ByInstance,
    registry_since: RegistrySince,
}

impl PostgresReader {
    pub fn new(settings: &Settings) -> Result<Self, StoreError> {
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = match &settings.tls {
            None => Manager::from_config(settings.config.clone(), NoTls, recycling),
            Some(tls) => Manager::from_config(settings.config.clone(), tls.clone(), recycling),
        };
        let pool = Pool::builder(manager)
            .max_size(CONNECTIONS)
            .build()
            .map_err(|e| StoreError::Unusable(format!("the connection pool could not be built: {e}")))?;
        Ok(PostgresReader {
            pool,
            by_instance: ByInstance::new(Dialect::Postgres),
            registry_since: RegistrySince::new(Dialect::Postgres),
        })
    }

    pub async fn connection(&self) -> Result<deadpool_postgres::Client, StoreError> {
        self.pool.get().await.map_err(|e| StoreError::Transient(format!("no connection to PostgreSQL: {e}")))
    }

    async fn run<T>(
        &self,
        select: &Select<'_>,
        decode: impl Fn(&dyn Columns) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let client = self.connection().await?;
        run(&**client, select, decode).await
    }
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

pub async fn registry_since(
    client: &impl GenericClient,
    sql: &RegistrySince,
    sequence: u64,
) -> Result<RegistryDelta, StoreError> {
    let since = i64::try_from(sequence).unwrap_or(i64::MAX);
    let head = client.query_opt(&sql.head, &[&InstanceId::REGISTRY.0]).await.map_err(failed)?;
    let head = decode::head_row(&head.ok_or_else(|| StoreError::Corrupt("the registry has no row".to_owned()))?)?;
    if head.sequence <= sequence {
        return Ok(RegistryDelta { events: vec![], head });
    }
    let query = async |sql: &str| client.query(sql, &[&since]).await.map_err(failed);
    let mut events = Vec::new();
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
    }
    for row in query(&sql.configurations).await? {
        events.push(decode::configuration_event(&row)?);
    }
    // A change that was committed between two of these reads is fetched next time, whole.
    events.retain(|(sequence, _)| *sequence <= head.sequence);
    events.sort_by_key(|(sequence, _)| *sequence);
    Ok(RegistryDelta { events, head })
}

type Steps = HashMap<Uuid, Vec<(StepRow, AssignmentRow)>>;

async fn steps_of(client: &impl GenericClient, sql: &str, gate_ids: &Vec<Uuid>) -> Result<Steps, StoreError> {
    let mut steps: Steps = HashMap::new();
    for row in client.query(sql, &[gate_ids]).await.map_err(failed)? {
        let (step, assignment) = decode::assigned_step_row(&row)?;
        steps.entry(step.gate_id).or_default().push((step, assignment));
    }
    Ok(steps)
}

/// The whole past of these instances, in a fixed number of queries.
async fn views(
    client: &impl GenericClient,
    sql: &ByInstance,
    found: Vec<InstanceRow>,
) -> Result<Vec<ProcessView>, StoreError> {
    let ids: Vec<Uuid> = found.iter().map(|row| row.process.instance_id.0).collect();
    let all = async |sql: &str| -> Result<Vec<Row>, StoreError> { client.query(sql, &[&ids]).await.map_err(failed) };
    let mut history: HashMap<InstanceId, Vec<TransitionRow>> = HashMap::new();
    for row in all(&sql.history).await? {
        let row = decode::transition_row(&row)?;
        history.entry(row.instance_id).or_default().push(row);
    }
    let gate_rows: Vec<GateRow> =
        all(&sql.gates).await?.iter().map(|row| decode::gate_row(row)).collect::<Result<_, _>>()?;
    let mut steps = steps_of(client, &sql.steps, &gate_rows.iter().map(|row| row.gate_id).collect()).await?;
    let mut gates: HashMap<InstanceId, Vec<_>> = HashMap::new();
    for gate in gate_rows {
        let steps = steps.remove(&gate.gate_id).unwrap_or_default();
        gates.entry(gate.instance_id).or_default().push((gate, steps));
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

#[async_trait]
impl Reader for PostgresReader {
    async fn processes(&self, query: &ProcessQuery, page: &Page) -> Result<Vec<ProcessView>, StoreError> {
        let mut client = self.connection().await?;
        let snapshot = client
            .build_transaction()
            .isolation_level(IsolationLevel::RepeatableRead)
            .read_only(true)
            .start()
            .await
            .map_err(failed)?;
        let found = run(&*snapshot, &select::processes(Dialect::Postgres, query, page), decode::instance_row).await?;
        let views = views(&*snapshot, &self.by_instance, found).await?;
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
        registry_since(&**client, &self.registry_since, sequence).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.connection().await?.query_one("SELECT 1", &[]).await.map(|_| ()).map_err(failed)
    }
}
