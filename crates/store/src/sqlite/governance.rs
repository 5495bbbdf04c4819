//! Reads of governance on SQLite.

use super::read::{SqliteReader, rows, run};
use crate::governance::{self, GovernanceSql};
use crate::select::Dialect;
use crate::value::Value;
use async_trait::async_trait;
use countersign_engine::port::{Governance, Page, ProblemQuery, StoreError};
use countersign_engine::rows::{ProblemRow, SignalRow};
use countersign_kernel::governance::{Category, Open};

#[async_trait]
impl Governance for SqliteReader {
    async fn problem_signals(&self, limit: usize) -> Result<Vec<SignalRow>, StoreError> {
        self.read(move |connection| {
            let sql = GovernanceSql::new(Dialect::Sqlite).signals;
            rows(connection, &sql, &[Value::count(limit as u64)], governance::signal_row)
        })
        .await
    }

    async fn open_problems(&self, subjects: &[(Category, String)]) -> Result<Open, StoreError> {
        let subjects = subjects.to_vec();
        self.read(move |connection| {
            let sql = GovernanceSql::new(Dialect::Sqlite).open;
            let mut open = Open::new();
            for (category, key) in &subjects {
                let values = [Value::Text(category.as_str()), Value::Text(key)];
                open.extend(rows(connection, &sql, &values, governance::open_row)?);
            }
            Ok(open)
        })
        .await
    }

    async fn problems(&self, query: &ProblemQuery, page: &Page) -> Result<Vec<ProblemRow>, StoreError> {
        let (query, page) = (*query, page.clone());
        self.read(move |connection| {
            run(connection, &governance::problems(Dialect::Sqlite, &query, &page), governance::problem_row)
        })
        .await
    }

    async fn count_problems(&self) -> Result<Vec<(Category, u64)>, StoreError> {
        let sql = GovernanceSql::new(Dialect::Sqlite).counts;
        self.read(move |connection| rows(connection, sql, &[], governance::count_row)).await
    }
}
