//! After a purge the old versions of its rows are dead, but still in the table's files. `VACUUM` removes them. It
//! runs on a separate connection, in parallel to the writer, one at a time.

use super::connect::{Settings, failed};
use countersign_engine::port::StoreError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The tables in which a purge replaces or deletes anything.
const VACUUM: &str = "VACUUM records, approval_steps, processes, holds, idempotency, runs, run_steps, step_corrections";

#[derive(Default)]
pub struct Scrubber {
    running: Arc<AtomicBool>,
}

impl Scrubber {
    /// `false` where one is under way that may have begun too early.
    pub fn begin(&self, settings: &Settings) -> bool {
        if self.running.swap(true, Ordering::SeqCst) {
            return false;
        }
        let (running, settings) = (self.running.clone(), settings.clone());
        tokio::spawn(async move {
            if let Err(error) = vacuum(&settings).await {
                tracing::warn!(%error, "VACUUM after a purge failed; autovacuum will take the dead rows out in its time");
            }
            running.store(false, Ordering::SeqCst);
        });
        true
    }
}

async fn vacuum(settings: &Settings) -> Result<(), StoreError> {
    settings.connect().await?.batch_execute(VACUUM).await.map_err(failed)
}
