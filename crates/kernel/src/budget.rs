//! How much work a command may do in the language of definitions. Work is counted in steps, never timed: the same command
//! has the same outcome on every machine.

use std::sync::atomic::{AtomicU64, Ordering};

/// What one command may spend on all its expressions, patterns and schemas together. A step is about as much work as
/// copying two bytes. The budget is to take no more than 50 ms of one core, however it is spent; `make bench
/// BENCH_ARGS=--only=language` measures it.
pub const STEPS_PER_COMMAND: u64 = 16 << 20;

/// The budget of one command. It is shared by reference and needs no lock: a command is decided by one thread.
#[derive(Debug)]
pub struct Budget(AtomicU64);

impl Default for Budget {
    fn default() -> Self {
        Budget::of(STEPS_PER_COMMAND)
    }
}

impl Budget {
    pub const fn of(steps: u64) -> Budget {
        Budget(AtomicU64::new(steps))
    }

    pub fn left(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn set_left(&self, steps: u64) {
        self.0.store(steps, Ordering::Relaxed);
    }

    /// Takes so many steps. Where fewer are left, all of them are gone and the answer is false.
    #[must_use]
    pub fn spend(&self, steps: u64) -> bool {
        let left = self.left().checked_sub(steps);
        self.set_left(left.unwrap_or(0));
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spent_is_gone_and_never_comes_back() {
        let budget = Budget::of(10);
        assert!(budget.spend(4) && budget.left() == 6);
        assert!(!budget.spend(7) && budget.left() == 0);
        assert!(!budget.spend(1));
        assert!(budget.spend(0));
    }
}
