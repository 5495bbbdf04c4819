//! How often this node verifies its store by itself.

use super::Duration;
use anyhow::ensure;
use serde::Deserialize;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GovernanceSection {
    /// So long after the last verification the whole store is verified again; without it, only when somebody asks.
    pub verify_every: Option<Duration>,
}

impl GovernanceSection {
    pub(super) fn check(self) -> anyhow::Result<()> {
        ensure!(
            self.verify_every.is_none_or(|every| every.us >= MIN_US),
            "governance.verify_every must be at least 1m: every verification reads the whole store"
        );
        Ok(())
    }

    pub fn verify_every(self) -> Option<std::time::Duration> {
        self.verify_every.and_then(|every| u64::try_from(every.us).ok()).map(std::time::Duration::from_micros)
    }
}

const MIN_US: i64 = 60_000_000;
