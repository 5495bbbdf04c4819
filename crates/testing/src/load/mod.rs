//! Seeded load: random processes, random commands of which most are valid when they are given, and a [`Hand`] that
//! gives them to an engine. Commands name instances, steps and grants by number, so several stores can get the same
//! commands.

mod ask;
pub mod calls;
pub mod client;
mod hand;
mod rng;
pub mod shapes;
pub mod steady;
mod world;

pub use ask::{Ask, Asked, Asker, StepAt};
pub use hand::{Book, Hand, Known};
pub use rng::Rng;
pub use world::{ACTIONS, Design, PEOPLE, design};

use countersign_engine::clock::Clock;
use countersign_kernel::Time;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// A clock that stops until it is moved.
#[derive(Clone)]
pub struct ManualClock(Arc<AtomicI64>);

impl Default for ManualClock {
    fn default() -> Self {
        ManualClock(Arc::new(AtomicI64::new(1_800_000_000_000_000)))
    }
}

impl ManualClock {
    pub fn advance(&self, us: i64) {
        self.0.fetch_add(us, Ordering::SeqCst);
    }

    pub fn clock(&self) -> Clock {
        let time = self.0.clone();
        Clock::told(move || Time(time.load(Ordering::SeqCst)))
    }
}
