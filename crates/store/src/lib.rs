//! The two stores behind the engine's port. Shared parts: [`value`] (values and how a row is read), [`statement`]
//! (every write as data, from which each dialect's SQL is derived), [`select`] (the reads). [`sqlite`] and
//! [`postgres`] contain only what differs: connections, transactions, the fence.

mod decode;
mod governance;
mod log;
mod outbox;
mod postgres;
#[cfg(feature = "raw")]
pub mod raw;
mod select;
mod sessions;
mod sqlite;
mod statement;
#[cfg(feature = "raw")]
pub mod tap;
#[cfg(test)]
mod tests;
mod value;

use countersign_engine::port::{Store, StoreError};

/// Opens and migrates the store that `url` names: `sqlite:PATH`, `sqlite::memory:` or `postgres://…`.
pub async fn open(url: &str) -> Result<Box<dyn Store>, StoreError> {
    if let Some(path) = url.strip_prefix("sqlite:") {
        return Ok(Box::new(sqlite::SqliteStore::open(path)?));
    }
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        return Ok(Box::new(postgres::PostgresStore::open(url).await?));
    }
    Err(StoreError::Unusable(
        "the store must be `sqlite:PATH`, `sqlite::memory:` or `postgres://USER@HOST:PORT/DATABASE`".to_owned(),
    ))
}

/// The newest schema that this build knows; both stores number alike.
pub const SCHEMA_VERSION: u32 = 45;

/// The reads of this node: what pages and commands ask for, not what the committer and the sealer do.
fn count_read() {
    metrics::counter!("countersign_store_reads_total").increment(1);
}

fn newer_schema(found: u32) -> StoreError {
    StoreError::Unusable(format!(
        "the store has schema version {found}, but this build knows only up to {SCHEMA_VERSION}: it was written by a newer \
         Countersign. Start that version, or restore a backup made before the upgrade"
    ))
}
