//! Reads of governance on PostgreSQL.

use super::connect::failed;
use super::read::PostgresReader;
use crate::governance::{self, GovernanceSql};
use crate::select::Dialect;
use crate::value::Value;
use async_trait::async_trait;
use countersign_engine::port::{Governance, Page, ProblemQuery, ReplayQuery, StoreError};
use countersign_engine::rows::{ProblemRow, ReplayRow, SignalRow};
use countersign_kernel::InstanceId;
use countersign_kernel::governance::{Category, Open, Replays};

#[async_trait]
impl Governance for PostgresReader {
    async fn problem_signals(&self, limit: usize) -> Result<Vec<SignalRow>, StoreError> {
        let sql = GovernanceSql::new(Dialect::Postgres).signals;
        self.rows(&sql, &[Value::count(limit as u64)], governance::signal_row).await
    }

    async fn open_problems(&self, subjects: &[(Category, String)]) -> Result<Open, StoreError> {
        let sql = GovernanceSql::new(Dialect::Postgres).open;
        let categories: Vec<&str> = subjects.iter().map(|(category, _)| category.as_str()).collect();
        let keys: Vec<&str> = subjects.iter().map(|(_, key)| key.as_str()).collect();
        let client = self.connection().await?;
        let statement = client.prepare_cached(&sql).await.map_err(failed)?;
        let rows = client.query(&statement, &[&categories, &keys]).await.map_err(failed)?;
        rows.iter().map(|row| governance::open_row(row)).collect()
    }

    async fn problems(&self, query: &ProblemQuery, page: &Page) -> Result<Vec<ProblemRow>, StoreError> {
        self.run(&governance::problems(Dialect::Postgres, query, page), governance::problem_row).await
    }

    async fn count_problems(&self) -> Result<Vec<(Category, u64)>, StoreError> {
        self.rows(GovernanceSql::new(Dialect::Postgres).counts, &[], governance::count_row).await
    }

    async fn replay_requests(&self, query: &ReplayQuery, page: &Page) -> Result<Vec<ReplayRow>, StoreError> {
        self.run(&governance::replay_requests(Dialect::Postgres, query, page), governance::replay_row).await
    }

    async fn scheduled_replays(&self, requests: &[InstanceId]) -> Result<Replays, StoreError> {
        let sql = GovernanceSql::new(Dialect::Postgres).scheduled;
        let requests: Vec<uuid::Uuid> = requests.iter().map(|request| request.0).collect();
        let client = self.connection().await?;
        let statement = client.prepare_cached(&sql).await.map_err(failed)?;
        let rows = client.query(&statement, &[&requests]).await.map_err(failed)?;
        rows.iter().map(|row| governance::scheduled_row(row)).collect()
    }

    async fn due_replays(&self, limit: usize) -> Result<Vec<ReplayRow>, StoreError> {
        let sql = GovernanceSql::new(Dialect::Postgres).due;
        self.rows(&sql, &[Value::count(limit as u64)], governance::replay_row).await
    }
}
