//! Time and randomness enter the engine here and nowhere else.

use countersign_kernel::Time;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A source of time; tests bring their own.
pub type Clock = Arc<dyn Fn() -> Time + Send + Sync>;

pub fn system_clock() -> Clock {
    Arc::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Time(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    })
}

/// A clock that goes by the store's, and by how much that is ahead.
pub fn corrected(clock: Clock) -> (Clock, Arc<AtomicI64>) {
    let ahead_us = Arc::new(AtomicI64::new(0));
    let by = ahead_us.clone();
    (Arc::new(move || Time(clock().0.saturating_add(by.load(Ordering::Relaxed)))), ahead_us)
}

/// Random bytes from the operating system, fetched in pages.
pub struct Entropy {
    page: Box<[u8; 4096]>,
    used: usize,
}

impl Default for Entropy {
    fn default() -> Self {
        Entropy { page: Box::new([0; 4096]), used: 4096 }
    }
}

impl Entropy {
    pub fn take<const N: usize>(&mut self) -> Result<[u8; N], getrandom::Error> {
        if self.used + N > self.page.len() {
            getrandom::fill(&mut self.page[..])?;
            self.used = 0;
        }
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.page[self.used..self.used + N]);
        // A page that leaks later must not tell old salts.
        self.page[self.used..self.used + N].fill(0);
        self.used += N;
        Ok(bytes)
    }
}
