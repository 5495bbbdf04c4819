//! The registry as this node knows it. Readers and the committer bring it up to date; all of them see the
//! same one.

use crate::port::{RegistryDelta, StoreError};
use countersign_kernel::Time;
use countersign_kernel::plan::Language;
use countersign_kernel::registry::{EventBody, Machine, Registry, Workflow};
use countersign_ledger::sha256;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

pub struct KnownRegistry {
    registry: RwLock<Registry>,
    newest_us: AtomicI64,
    language: Arc<dyn Language>,
}

impl KnownRegistry {
    pub fn new(language: Arc<dyn Language>) -> Self {
        KnownRegistry { registry: RwLock::default(), newest_us: AtomicI64::new(0), language }
    }

    pub fn read(&self) -> RwLockReadGuard<'_, Registry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time of the newest registry record that is known: nothing decided under it is recorded as earlier.
    pub fn newest(&self) -> Time {
        Time(self.newest_us.load(Ordering::Acquire))
    }

    /// Brings it up to date with what the store says.
    pub fn absorb(&self, mut delta: RegistryDelta) -> Result<(), StoreError> {
        for (sequence, document) in delta.workflows {
            let machine = self.machine(&document)?;
            let workflow = if machine.is_none() { Some(self.workflow(document)?) } else { None };
            for (of, event) in &mut delta.events {
                if let (true, EventBody::DefinitionPublished(definition)) = (*of == sequence, &mut event.body) {
                    definition.workflow.clone_from(&workflow);
                    definition.machine.clone_from(&machine);
                }
            }
        }
        let mut registry = self.registry.write().unwrap_or_else(PoisonError::into_inner);
        // Before anybody can decide under these events.
        self.newest_us.fetch_max(delta.head.last_time.0, Ordering::AcqRel);
        for (sequence, event) in &delta.events {
            registry.apply(*sequence, event);
        }
        registry.advance_to(delta.head.sequence);
        Ok(())
    }

    fn machine(&self, document: &Arc<[u8]>) -> Result<Option<Machine>, StoreError> {
        let machine = self.language.machine(document).map_err(|error| {
            StoreError::Corrupt(format!("the document of a published machine cannot be read: {error}"))
        })?;
        let made = |machine| Machine {
            machine: Arc::new(machine),
            document_digest: sha256(&[document]),
            document: document.clone(),
        };
        Ok(machine.map(made))
    }

    fn workflow(&self, document: Arc<[u8]>) -> Result<Workflow, StoreError> {
        let plan = self.language.plan(&document).map_err(|error| {
            StoreError::Corrupt(format!("the document of a published workflow cannot be read: {error}"))
        })?;
        Ok(Workflow { plan: Arc::new(plan), document_digest: sha256(&[&document]), document })
    }
}
