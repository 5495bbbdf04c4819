//! Simultaneous calls by several callers, at one engine or at two on one database. Each function sets up a race, runs
//! it, and checks what must hold for every winner. [`Arena::end`] then checks the whole store.

mod decisions;
mod keys;
mod moves;
mod purges;
mod random;

pub use decisions::a_gate_is_decided_once;
pub use keys::{fresh_documents_in_any_order, keys_in_any_order, one_key_one_effect};
pub use moves::{
    every_turn_of_a_loop_counts, no_firing_after_a_revocation, nothing_waits_in_a_state_that_was_left,
    one_approval_one_firing,
};
pub use purges::{a_record_is_purged_once, keep_for_a_moment, no_purge_under_a_hold, no_subject_outlives_its_purge};
pub use random::random_clients;

use crate::load::client::told;
use crate::place::{self, Kind, Place};
use crate::store_audit::{self, Summary};
use countersign_engine::clock::{Clock, Reading};
use countersign_engine::{Call, Config, Engine};
use countersign_kernel::Time;
use std::collections::BTreeMap;
use std::sync::Arc;

const SKEW_US: i64 = 3_000_000;

/// One store and the engines that share it.
pub struct Arena {
    place: Place,
    engines: Vec<Arc<Engine>>,
}

impl Arena {
    pub async fn new(kind: Kind, engines: usize) -> anyhow::Result<Arena> {
        Arena::on(Place::new(kind).await?, engines).await
    }

    /// Each further engine's clock is behind, as clocks are; and who is refused for want of authority is recorded.
    pub async fn on(place: Place, engines: usize) -> anyhow::Result<Arena> {
        Arena::with(place, engines, |config| config).await
    }

    /// The same, each engine configured a little differently.
    pub async fn with(place: Place, engines: usize, change: impl Fn(Config) -> Config) -> anyhow::Result<Arena> {
        let mut opened = vec![];
        for behind in (0..).take(engines) {
            let exact = Clock::system();
            let clock = Clock::new(move || {
                let Reading { wall, elapsed_us } = exact.read();
                Reading { wall: Time(wall.0 - behind * SKEW_US), elapsed_us }
            });
            let config = Config { clock, audit_failed_attempts: true, ..Config::default() };
            opened.push(place.engine(change(config)).await?);
        }
        Ok(Arena { place, engines: opened })
    }

    pub fn url(&self) -> &str {
        &self.place.url
    }

    /// Closes the engines.
    pub async fn close(self) -> anyhow::Result<Place> {
        for engine in self.engines {
            place::close(engine).await?;
        }
        Ok(self.place)
    }

    /// The nth engine, going round.
    pub fn engine(&self, n: usize) -> &Arc<Engine> {
        &self.engines[n % self.engines.len()]
    }

    /// Closes the engines and checks everything that is left.
    pub async fn end(self) -> anyhow::Result<Summary> {
        let place = self.close().await?;
        let summary = store_audit::require_sound(&place.url).await?;
        place.remove().await?;
        Ok(summary)
    }

    /// Gives all calls at once, going round the engines; the answers in the order of the calls.
    async fn at_once(&self, calls: Vec<Call>) -> anyhow::Result<Vec<&'static str>> {
        let tasks: Vec<_> = (calls.into_iter().enumerate())
            .map(|(n, call)| {
                let engine = self.engine(n).clone();
                tokio::spawn(async move { told(&engine, call).await })
            })
            .collect();
        let mut answers = vec![];
        for task in tasks {
            answers.push(task.await?);
        }
        Ok(answers)
    }
}

/// How often each answer was given.
fn counted(answers: &[&'static str]) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for answer in answers {
        *counts.entry(*answer).or_default() += 1;
    }
    counts
}
