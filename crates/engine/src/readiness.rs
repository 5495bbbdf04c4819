//! What has to be in order before this node should be given work, fact by fact. Most of it is known already; the store is
//! asked only where nothing has been heard of it lately. Other parts of the server add what they know ([`Readiness::add`]).

use crate::clock::JUMP_US;
use crate::port::StoreError;
use crate::rows::IdempotencyRow;
use crate::{Engine, port};
use countersign_kernel::{Digest, InstanceId};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// For this long a commit that succeeded speaks for the next one.
const FRESH: Duration = Duration::from_secs(5);
/// A store that takes longer to answer is not ready.
const PATIENCE: Duration = Duration::from_secs(2);
/// So many failures of the sealer in a row are more than bad luck.
const SEAL_FAILURES: u32 = 3;
/// The name under which the store is tried; no actor can have it.
const PROBE: &str = "@readiness";

/// One fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub name: &'static str,
    pub ok: bool,
    /// Where it is not in order, the node is not ready. Otherwise it is only a warning.
    pub required: bool,
    pub detail: String,
}

impl Check {
    pub fn required(name: &'static str, ok: bool, detail: impl Into<String>) -> Self {
        Check { name, ok, required: true, detail: detail.into() }
    }

    pub fn warning(name: &'static str, ok: bool, detail: impl Into<String>) -> Self {
        Check { name, ok, required: false, detail: detail.into() }
    }

    pub fn blocks(&self) -> bool {
        self.required && !self.ok
    }
}

type Fact = Box<dyn Fn() -> Check + Send + Sync>;

/// What is known of this node's health.
#[derive(Default)]
pub struct Readiness {
    writes: Mutex<Writes>,
    seal: Mutex<Seal>,
    facts: Mutex<Vec<Fact>>,
}

#[derive(Default)]
struct Writes {
    succeeded: Option<Instant>,
    /// Why the last write failed, if it did.
    failure: Option<String>,
}

/// How the sealer of this node does.
#[derive(Clone, Debug, Default)]
pub struct Seal {
    pub leads: bool,
    /// In a row.
    pub failures: u32,
    pub last_error: Option<String>,
    pub unsigned: u64,
}

impl Readiness {
    fn writes(&self) -> MutexGuard<'_, Writes> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seal(&self) -> MutexGuard<'_, Seal> {
        self.seal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn facts(&self) -> MutexGuard<'_, Vec<Fact>> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a fact that somebody else knows. It must not block.
    pub fn add(&self, fact: impl Fn() -> Check + Send + Sync + 'static) {
        self.facts().push(Box::new(fact));
    }

    /// How a commit ended. What says nothing of the store is left out.
    pub fn wrote<T>(&self, result: &Result<T, StoreError>) {
        match result {
            Ok(_) => *self.writes() = Writes { succeeded: Some(Instant::now()), failure: None },
            Err(
                StoreError::Conflict(_) | StoreError::Rejected(_) | StoreError::Corrupt(_) | StoreError::Quarantined(_),
            ) => {}
            Err(error @ (StoreError::Transient(_) | StoreError::Unknown(_) | StoreError::Unusable(_))) => {
                self.writes().failure = Some(error.to_string());
            }
        }
    }

    fn has_written_lately(&self) -> bool {
        let writes = self.writes();
        writes.failure.is_none() && writes.succeeded.is_some_and(|at| at.elapsed() < FRESH)
    }

    pub fn sealer(&self, change: impl FnOnce(&mut Seal)) {
        change(&mut self.seal());
    }
}

impl Engine {
    pub fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    /// Whether work can be done here, and what stands in its way.
    pub async fn checks(&self) -> Vec<Check> {
        let mut checks = vec![self.committer_check(), self.read_check().await, self.write_check().await];
        checks.extend([self.seal_check(), self.loading_check(), self.clock_check()]);
        checks.extend(self.readiness.facts().iter().map(|fact| fact()));
        checks
    }

    fn committer_check(&self) -> Check {
        // Where it panicked on a caller's thread, its own hears of it a moment later.
        let lives = !self.jobs.is_closed() && !self.committer_has_panicked();
        Check::required("committer", lives, if lives { "running" } else { "it has stopped: restart the server" })
    }

    async fn read_check(&self) -> Check {
        match tokio::time::timeout(PATIENCE, self.reader.ping()).await {
            Ok(Ok(())) => Check::required("store_read", true, "the store answers"),
            Ok(Err(error)) => Check::required("store_read", false, error.to_string()),
            Err(_) => Check::required("store_read", false, slow()),
        }
    }

    /// A commit of the last seconds says enough. Otherwise something is written that nobody will read.
    async fn write_check(&self) -> Check {
        if !self.readiness.has_written_lately() {
            match tokio::time::timeout(PATIENCE, self.probe()).await {
                Ok(result) => self.readiness.wrote(&result),
                Err(_) => self.readiness.writes().failure = Some(slow()),
            }
        }
        let failure = self.readiness.writes().failure.clone();
        match failure {
            None => Check::required("store_write", true, "the store takes commits"),
            Some(failure) => Check::required("store_write", false, failure),
        }
    }

    /// A row that has expired already, in the place of the one before.
    async fn probe(&self) -> Result<(), port::StoreError> {
        let now = self.now();
        let row = IdempotencyRow {
            actor_ref: PROBE.to_owned(),
            key: PROBE.to_owned(),
            instance_id: InstanceId::REGISTRY,
            request_digest: Digest([0; 32]),
            answer: String::new(),
            expires_at: now,
        };
        self.outbox.keep_answer(&row, now).await
    }

    fn seal_check(&self) -> Check {
        let check = |ok, detail: String| Check::required("sealing", ok, detail);
        let Seal { leads, failures, last_error, unsigned } = self.readiness.seal().clone();
        let why = last_error.map_or_else(String::new, |error| format!(": {error}"));
        match self.cannot_seal() {
            Some(reason) if self.sealer.is_none() && !self.exclusive => {
                Check::warning("sealing", false, format!("{reason}. Another node has to seal"))
            }
            Some(reason) => check(false, format!("{reason}{why}")),
            None if failures >= SEAL_FAILURES => check(false, format!("sealing failed {failures} times in a row{why}")),
            None if leads => check(true, format!("this node seals; {unsigned} records wait for a checkpoint")),
            None => check(true, "another node seals".to_owned()),
        }
    }

    fn loading_check(&self) -> Check {
        let loaded = self.book.is_loaded();
        let detail = if loaded { "all work is known" } else { "work that waits in the store is still being read" };
        Check::warning("loading", loaded, detail)
    }

    fn clock_check(&self) -> Check {
        let ahead_us = self.clock.ahead_of_wall_us();
        let seconds = ahead_us.abs() / 1_000_000;
        let (ok, detail) = match ahead_us {
            _ if ahead_us.abs() <= JUMP_US => (true, "the engine's time goes by the wall clock".to_owned()),
            1.. => (false, format!("the engine's time is {seconds} s ahead of the wall clock, which was set back")),
            _ => (false, format!("the wall clock went {seconds} s ahead; it is followed if it stays there")),
        };
        Check::warning("clock", ok, detail)
    }
}

fn slow() -> String {
    format!("the store did not answer within {} s", PATIENCE.as_secs())
}
