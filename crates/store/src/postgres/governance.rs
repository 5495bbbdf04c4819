//! Reads of governance on PostgreSQL.

use super::connect::failed;
use super::read::PostgresReader;
use crate::governance::{self, GovernanceSql};
use crate::select::Dialect;
use crate::value::Value;
use async_trait::async_trait;
use countersign_engine::port::{Governance, Page, ProblemQuery, StoreError};
use countersign_engine::rows::{ProblemRow, SignalRow};
use countersign_kernel::governance::{Category, Open};

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
}
