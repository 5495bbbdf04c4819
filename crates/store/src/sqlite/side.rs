//! A connection beside the committer's, for writes that are not part of a batch. It takes turns with the committer
//! and does not wait for the disk; [`Side::flush`] waits.

use super::Turn;
use super::connect::{Location, failed};
use crate::value::Value;
use countersign_engine::port::StoreError;
use rusqlite::{Connection, Transaction, TransactionBehavior, params_from_iter};
use std::sync::{Arc, Mutex, PoisonError};

/// Used on threads where it may wait.
pub struct Side {
    location: Location,
    connection: Mutex<Option<Connection>>,
    turn: Turn,
}

impl Side {
    pub fn new(location: Location, turn: Turn) -> Self {
        Side { location, connection: Mutex::default(), turn }
    }

    pub fn with<T>(&self, work: impl FnOnce(&mut Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut held = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = match &mut *held {
            Some(connection) => connection,
            none => {
                let connection = self.location.connect(false)?;
                connection.pragma_update(None, "synchronous", "NORMAL").map_err(failed)?;
                none.insert(connection)
            }
        };
        work(connection)
    }

    pub fn write<T>(
        &self,
        connection: &mut Connection,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        let result = work(&transaction)?;
        transaction.commit().map_err(failed)?;
        Ok(result)
    }

    /// Waits until what was committed is on the disk: in the log, or in the database where the log was moved to.
    pub fn flush(&self) -> Result<(), StoreError> {
        let Some(wal) = self.location.wal() else { return Ok(()) };
        let synced = std::fs::File::open(wal).and_then(|file| file.sync_data());
        synced.map_err(|error| StoreError::Transient(format!("the write-ahead log cannot be flushed: {error}")))
    }
}

pub fn execute(connection: &Connection, sql: &str, values: &[Value<'_>]) -> Result<usize, StoreError> {
    connection.prepare_cached(sql).map_err(failed)?.execute(params_from_iter(values)).map_err(failed)
}

/// Runs work on a thread where it may wait.
pub async fn on_its_thread<D: Send + Sync + 'static, T: Send + 'static>(
    desk: &Arc<D>,
    work: impl FnOnce(&D) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let desk = desk.clone();
    let done = tokio::task::spawn_blocking(move || work(&desk));
    done.await.unwrap_or_else(|e| Err(StoreError::Transient(format!("a write was interrupted: {e}"))))
}
