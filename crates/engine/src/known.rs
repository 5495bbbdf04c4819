//! The registry as this node knows it. Readers and the committer bring it up to date; all of them see the
//! same one.

use crate::port::RegistryDelta;
use countersign_kernel::Time;
use countersign_kernel::registry::Registry;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

#[derive(Default)]
pub struct KnownRegistry {
    registry: RwLock<Registry>,
    newest_us: AtomicI64,
}

impl KnownRegistry {
    pub fn read(&self) -> RwLockReadGuard<'_, Registry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time of the newest registry record that is known: nothing decided under it is recorded as earlier.
    pub fn newest(&self) -> Time {
        Time(self.newest_us.load(Ordering::Acquire))
    }

    /// Brings it up to date with what the store says.
    pub fn absorb(&self, delta: &RegistryDelta) {
        let mut registry = self.registry.write().unwrap_or_else(PoisonError::into_inner);
        // Before anybody can decide under these events.
        self.newest_us.fetch_max(delta.head.last_time.0, Ordering::AcqRel);
        for (sequence, event) in &delta.events {
            registry.apply(*sequence, event);
        }
        registry.advance_to(delta.head.sequence);
    }
}
