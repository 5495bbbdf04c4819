//! The registry as this node knows it. Readers and the committer bring it up to date; all of them see the
//! same one. Of published documents it keeps what a summary needs. Their plans are in a cache that is bounded in bytes, and are
//! read from the store again where they are needed.

use crate::plans::Plans;
use crate::port::{Reader, RegistryDelta, StoreError};
use countersign_kernel::plan::{ExpressionError, Language, Micros, Plan};
use countersign_kernel::registry::{EventBody, Machine, Quarantine, Registry, Workflow};
use countersign_kernel::{Digest, Time};
use countersign_ledger::sha256;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use tokio::sync::watch;

pub struct KnownRegistry {
    registry: RwLock<Registry>,
    newest_us: AtomicI64,
    language: Arc<dyn Language>,
    reader: Arc<dyn Reader>,
    plans: Mutex<Plans>,
    /// How long approvers have, by definition; only of those that say it.
    dues: RwLock<HashMap<Digest, Dues>>,
    /// Its sequence, for those who wait for a change.
    sequence: watch::Sender<u64>,
}

/// How long the approvers have, by label of a gate_spec.
pub type Dues = Arc<BTreeMap<String, Micros>>;

impl KnownRegistry {
    pub fn new(language: Arc<dyn Language>, reader: Arc<dyn Reader>, plan_bytes: usize) -> Self {
        let plans = Mutex::new(Plans::new(plan_bytes));
        let (registry, newest_us, dues) = (RwLock::default(), AtomicI64::new(0), RwLock::default());
        let sequence = watch::Sender::new(0);
        KnownRegistry { registry, newest_us, language, reader, plans, dues, sequence }
    }

    fn plans(&self) -> MutexGuard<'_, Plans> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the plans in memory take, about.
    pub fn plan_bytes(&self) -> usize {
        self.plans().bytes()
    }

    pub fn plan_at_hand(&self, digest: &Digest) -> Option<Arc<Plan>> {
        self.plans().get(digest)
    }

    /// The plan of a stored document.
    pub async fn plan(&self, digest: Digest) -> Result<Arc<Plan>, StoreError> {
        if let Some(plan) = self.plan_at_hand(&digest) {
            return Ok(plan);
        }
        let document = self.reader.document(digest).await?;
        self.plan_of(digest, &document)
    }

    /// The plan of this document, compiled once while it is in use.
    pub fn plan_of(&self, digest: Digest, document: &[u8]) -> Result<Arc<Plan>, StoreError> {
        if let Some(plan) = self.plan_at_hand(&digest) {
            return Ok(plan);
        }
        let plan = self.language.plan(document).map_err(|error| StoreError::Quarantined(error.message))?;
        let plan = Arc::new(plan);
        self.plans().insert(digest, plan.clone(), document.len());
        Ok(plan)
    }

    /// Changes whenever the registry does.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.sequence.subscribe()
    }

    pub fn read(&self) -> RwLockReadGuard<'_, Registry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the approvers of this definition have.
    pub fn dues(&self, definition: &Digest) -> Dues {
        let known = self.dues.read().unwrap_or_else(PoisonError::into_inner);
        known.get(definition).cloned().unwrap_or_default()
    }

    /// Time of the newest registry record that is known: nothing decided under it is recorded as earlier.
    pub fn newest(&self) -> Time {
        Time(self.newest_us.load(Ordering::Acquire))
    }

    /// Brings it up to date with what the store says.
    pub fn absorb(&self, mut delta: RegistryDelta) -> Result<(), StoreError> {
        for (sequence, document) in delta.workflows {
            let read = self.compile(document);
            for (of, event) in &mut delta.events {
                if let (true, EventBody::DefinitionPublished(definition)) = (*of == sequence, &mut event.body) {
                    match read.clone() {
                        Read::Workflow(workflow) => definition.workflow = Some(workflow),
                        Read::Machine(machine) => definition.machine = Some(machine),
                        Read::Quarantined(held) => {
                            let (name, version, why) = (&definition.name, definition.version, &held.why);
                            tracing::error!(name, version, %why, "a definition is quarantined: nothing is started from it");
                            definition.quarantined = Some(held);
                        }
                    }
                }
            }
        }
        for (_, event) in &mut delta.events {
            if let EventBody::DefinitionPublished(definition) = &mut event.body {
                if let Some(Workflow { plan: Some(plan), document: Some(document), document_digest, .. }) =
                    &definition.workflow
                {
                    self.plans().insert(*document_digest, plan.clone(), document.len());
                }
                let source = definition.source.as_deref().filter(|source| source.contains("due"));
                let dues = source.map(|source| self.language.dues(source)).filter(|dues| !dues.is_empty());
                if let Some(dues) = dues {
                    let mut known = self.dues.write().unwrap_or_else(PoisonError::into_inner);
                    known.insert(definition.digest, Arc::new(dues));
                }
                definition.put_away();
            }
        }
        let mut registry = self.registry.write().unwrap_or_else(PoisonError::into_inner);
        // Before anybody can decide under these events.
        self.newest_us.fetch_max(delta.head.last_time.0, Ordering::AcqRel);
        for (sequence, event) in &delta.events {
            registry.apply(*sequence, event);
        }
        registry.advance_to(delta.head.sequence);
        let sequence = registry.sequence();
        self.sequence.send_if_modified(|known| std::mem::replace(known, sequence) != sequence);
        Ok(())
    }

    /// What a published document holds. One that cannot be read is held back, and everything else goes on.
    fn compile(&self, document: Arc<[u8]>) -> Read {
        let document_digest = sha256(&[&document]);
        let held = |error: ExpressionError, is_machine, document| {
            let (why, document) = (error.message.into(), Some(document));
            Read::Quarantined(Quarantine { why, is_machine, document, document_digest })
        };
        match self.language.machine(&document) {
            Ok(Some(machine)) => {
                return Read::Machine(Machine {
                    machine: Arc::new(machine),
                    document: Some(document),
                    document_digest,
                });
            }
            Ok(None) => {}
            Err(error) => return held(error, true, document),
        }
        match self.language.plan(&document) {
            Ok(plan) => Read::Workflow(Workflow::new(Arc::new(plan), document, document_digest)),
            Err(error) => held(error, false, document),
        }
    }
}

#[derive(Clone)]
enum Read {
    Workflow(Workflow),
    Machine(Machine),
    Quarantined(Quarantine),
}
