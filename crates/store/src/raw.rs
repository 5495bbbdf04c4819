//! The raw limit of each store for the rows that commands write: the same statements on the same schema, one
//! transaction per batch, and nothing else. `make bench` compares the engine with it.

use crate::postgres::RawPostgres;
use crate::sqlite::RawSqlite;
use countersign_engine::port::{StoreError, Unit};

pub enum Raw {
    Sqlite(Box<RawSqlite>),
    Postgres(Box<RawPostgres>),
}

impl Raw {
    /// An empty, migrated store to write to.
    pub async fn open(url: &str) -> Result<Raw, StoreError> {
        match url.strip_prefix("sqlite:") {
            Some(path) => Ok(Raw::Sqlite(Box::new(RawSqlite::open(path)?))),
            None => Ok(Raw::Postgres(Box::new(RawPostgres::open(url).await?))),
        }
    }

    /// Writes the rows of these units in one durable transaction.
    pub async fn write(&mut self, units: &[Unit]) -> Result<(), StoreError> {
        match self {
            Raw::Sqlite(raw) => raw.write(units),
            Raw::Postgres(raw) => raw.write(units).await,
        }
    }

    /// One durable single-row transaction.
    pub async fn bare_transaction(&mut self, body: &[u8]) -> Result<(), StoreError> {
        match self {
            Raw::Sqlite(raw) => raw.bare_transaction(body),
            Raw::Postgres(raw) => raw.bare_transaction(body).await,
        }
    }
}

/// Rows that a unit writes, records and the instance row included.
pub fn row_count(unit: &Unit) -> usize {
    1 + unit.writes.len() + unit.steps.len() + unit.records.len() + unit.idempotency.len()
}
