//! A store that intercepts commits: tests inspect them, make them fail, or lose their answers.

use async_trait::async_trait;
use countersign_engine::port::{
    Batch, Committed, Due, Loaded, LogParts, MonitorStore, Outbox, Reader, RegistryDelta, Sessions, StepsOf, Store,
    StoreError, Writer,
};
use countersign_engine::rows::{HoldRow, IdempotencyRow, RecordRow, StepRow};
use countersign_kernel::{EventId, HoldId, InstanceId, StepId, Time};
use std::sync::{Arc, Mutex, PoisonError};

/// What is done with a commit on its way to the store.
#[async_trait]
pub trait Tap: Send + Sync {
    async fn commit(&self, writer: &mut dyn Writer, batch: &Batch) -> Result<Committed, StoreError>;

    /// Asked before what deciding needs is read.
    fn read(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// So many instances were loaded.
    fn loaded(&self, _instances: usize) {}

    /// Asked before what is due is read.
    fn looks(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// So many rows of what is due were read.
    fn found_due(&self, _rows: usize) {}

    /// By how much the database's clock appears to be ahead, if a test sets it.
    fn clock_offset_us(&self) -> Option<i64> {
        None
    }
}

/// Any store, tapped.
pub struct Tapped {
    pub inner: Box<dyn Store>,
    pub tap: Arc<dyn Tap>,
}

impl Store for Tapped {
    fn into_parts(self: Box<Self>) -> (Box<dyn Writer>, Arc<dyn Reader>) {
        let (writer, reader) = self.inner.into_parts();
        (Box::new(TappedWriter { inner: writer, tap: self.tap }), reader)
    }

    fn log(&self) -> Result<LogParts, StoreError> {
        self.inner.log()
    }

    fn outbox(&self) -> Result<Box<dyn Outbox>, StoreError> {
        self.inner.outbox()
    }

    fn monitor(&self) -> Box<dyn MonitorStore> {
        self.inner.monitor()
    }

    fn sessions(&self) -> Box<dyn Sessions> {
        self.inner.sessions()
    }

    fn is_exclusive(&self) -> bool {
        self.inner.is_exclusive()
    }

    fn kind(&self) -> &'static str {
        self.inner.kind()
    }
}

struct TappedWriter {
    inner: Box<dyn Writer>,
    tap: Arc<dyn Tap>,
}

#[async_trait]
impl Writer for TappedWriter {
    async fn load(&mut self, ids: &[InstanceId]) -> Result<Vec<Loaded>, StoreError> {
        self.tap.read()?;
        let loaded = self.inner.load(ids).await?;
        self.tap.loaded(loaded.len());
        Ok(loaded)
    }
    async fn registry_since(&mut self, sequence: u64) -> Result<RegistryDelta, StoreError> {
        self.inner.registry_since(sequence).await
    }
    async fn recall(&mut self, keys: &[(String, String)], now: Time) -> Result<Vec<IdempotencyRow>, StoreError> {
        self.tap.read()?;
        self.inner.recall(keys, now).await
    }
    async fn commit(&mut self, batch: &Batch) -> Result<Committed, StoreError> {
        self.tap.commit(&mut *self.inner, batch).await
    }
    async fn step_ended(&mut self, instance_id: InstanceId, action: &str, step_id: StepId) -> Result<bool, StoreError> {
        self.inner.step_ended(instance_id, action, step_id).await
    }
    async fn find_record(&mut self, event_id: EventId) -> Result<Option<RecordRow>, StoreError> {
        self.inner.find_record(event_id).await
    }
    async fn find_hold(&mut self, hold_id: HoldId) -> Result<Option<HoldRow>, StoreError> {
        self.inner.find_hold(hold_id).await
    }
    async fn steps(&mut self, of: StepsOf) -> Result<Vec<StepRow>, StoreError> {
        self.inner.steps(of).await
    }
    async fn received(&mut self, events: &[(InstanceId, Arc<str>)]) -> Result<Vec<bool>, StoreError> {
        self.inner.received(events).await
    }

    async fn due(&mut self, after: &Due, until: Time, limit: usize) -> Result<Vec<Due>, StoreError> {
        self.tap.looks()?;
        let due = self.inner.due(after, until, limit).await?;
        self.tap.found_due(due.len());
        Ok(due)
    }

    async fn scrub(&mut self) -> Result<bool, StoreError> {
        self.inner.scrub().await
    }
    async fn forget_expired(&mut self, now: Time) -> Result<u64, StoreError> {
        self.inner.forget_expired(now).await
    }
    async fn clock_offset_us(&mut self) -> Result<i64, StoreError> {
        match self.tap.clock_offset_us() {
            Some(offset) => Ok(offset),
            None => self.inner.clock_offset_us().await,
        }
    }
}

/// Lets everything through and keeps a copy.
#[derive(Default)]
pub struct Copies(Mutex<Vec<Batch>>);

impl Copies {
    pub fn take(&self) -> Vec<Batch> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Tap for Copies {
    async fn commit(&self, writer: &mut dyn Writer, batch: &Batch) -> Result<Committed, StoreError> {
        let committed = writer.commit(batch).await?;
        if !batch.units.is_empty() {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(batch.clone());
        }
        Ok(committed)
    }
}
