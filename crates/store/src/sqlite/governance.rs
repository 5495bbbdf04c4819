//! Reads of governance on SQLite.

use super::read::{SqliteReader, rows, run};
use crate::governance::{self, GovernanceSql};
use crate::select::Dialect;
use crate::value::Value;
use async_trait::async_trait;
use countersign_engine::port::{Governance, Page, ProblemQuery, ReplayQuery, StoreError};
use countersign_engine::rows::{ProblemRow, ReplayRow, SignalRow};
use countersign_kernel::InstanceId;
use countersign_kernel::governance::{Category, Open, Replays};

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

    async fn replay_requests(&self, query: &ReplayQuery, page: &Page) -> Result<Vec<ReplayRow>, StoreError> {
        let (query, page) = (*query, page.clone());
        self.read(move |connection| {
            let select = governance::replay_requests(Dialect::Sqlite, &query, &page);
            run(connection, &select, governance::replay_row)
        })
        .await
    }

    async fn scheduled_replays(&self, requests: &[InstanceId]) -> Result<Replays, StoreError> {
        let requests = requests.to_vec();
        self.read(move |connection| {
            let sql = GovernanceSql::new(Dialect::Sqlite).scheduled;
            let mut scheduled = Replays::new();
            for request in &requests {
                scheduled.extend(rows(connection, &sql, &[Value::Id(request.0)], governance::scheduled_row)?);
            }
            Ok(scheduled)
        })
        .await
    }

    async fn due_replays(&self, limit: usize) -> Result<Vec<ReplayRow>, StoreError> {
        self.read(move |connection| {
            let sql = GovernanceSql::new(Dialect::Sqlite).due;
            rows(connection, &sql, &[Value::count(limit as u64)], governance::replay_row)
        })
        .await
    }
}
