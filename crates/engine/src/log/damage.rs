//! Instances that verifying found to be damaged. They accept no command until a later verification finds nothing. In memory
//! only: after a restart they are found again when they are loaded, or by the next verification.

use crate::port::StoreError;
use countersign_kernel::InstanceId;
use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

/// What is wrong with each.
#[derive(Default)]
pub(crate) struct Damaged(RwLock<BTreeMap<InstanceId, String>>);

impl Damaged {
    /// After everything was verified.
    pub fn replace(&self, mut found: BTreeMap<InstanceId, String>) {
        // The registry goes on: keys must be revocable, and evidence exportable, while people look into it.
        found.remove(&InstanceId::REGISTRY);
        // So does governance, which is where they look.
        found.remove(&InstanceId::GOVERNANCE);
        for (instance_id, what) in &found {
            tracing::error!(%instance_id, what, "the instance is damaged: it accepts no command");
        }
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = found;
    }

    /// After one instance was verified.
    pub fn settle(&self, instance_id: InstanceId, found: Option<String>) {
        let mut damaged = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let goes_on = matches!(instance_id, InstanceId::REGISTRY | InstanceId::GOVERNANCE);
        match found.filter(|_| !goes_on) {
            Some(what) => {
                tracing::error!(%instance_id, what, "the instance is damaged: it accepts no command");
                damaged.insert(instance_id, what);
            }
            None => drop(damaged.remove(&instance_id)),
        }
    }

    /// Why an instance is refused.
    pub fn refusal(&self, instance_id: InstanceId) -> Option<StoreError> {
        let damaged = self.0.read().unwrap_or_else(PoisonError::into_inner);
        damaged.get(&instance_id).map(|what| StoreError::Corrupt(format!("instance {instance_id}: {what}")))
    }

    pub fn is_empty(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    pub fn count(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}
