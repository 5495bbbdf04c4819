//! Where the committer is found: its own thread takes it for each batch; where the store commits in place, a caller who
//! finds it idle takes it too, and is spared two changes of threads for a flush that nobody shares.

use super::{Committer, Job};
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Mutex, MutexGuard};

pub struct Desk {
    /// Empty while somebody works with it, and for good once one of them panicked.
    committer: Mutex<Option<Box<Committer>>>,
    /// The last batch held one call. Under load callers queue up, for a batch shares its flush.
    alone: AtomicBool,
}

/// The committer, taken for one piece of work.
pub struct Taken<'a> {
    pub committer: Box<Committer>,
    place: MutexGuard<'a, Option<Box<Committer>>>,
}

impl Taken<'_> {
    pub fn put_back(mut self) {
        *self.place = Some(self.committer);
    }
}

impl Desk {
    pub fn new(committer: Committer) -> Self {
        Desk { committer: Mutex::new(Some(Box::new(committer))), alone: AtomicBool::new(true) }
    }

    /// `None`: somebody panicked with it, and what it remembers cannot be trusted.
    pub async fn take(&self) -> Option<Taken<'_>> {
        let mut place = self.committer.lock().await;
        let committer = place.take()?;
        Some(Taken { committer, place })
    }

    pub fn saw(&self, calls: usize) {
        self.alone.store(calls == 1, Ordering::Relaxed);
    }

    /// Serves a job on the caller's thread if nobody else is at work; else gives it back. A runtime with one thread
    /// is left alone: blocked, it could not bring the other calls of a batch.
    pub fn serve_here(&self, job: Job) -> Option<Job> {
        if !self.alone.load(Ordering::Relaxed) {
            return Some(job);
        }
        let runtime = match Handle::try_current() {
            Ok(runtime) if runtime.runtime_flavor() == RuntimeFlavor::MultiThread => runtime,
            _ => return Some(job),
        };
        let Ok(mut place) = self.committer.try_lock() else { return Some(job) };
        tokio::task::block_in_place(|| {
            let Some(committer) = place.take() else { return Some(job) };
            let mut taken = Taken { committer, place };
            let work = || runtime.block_on(taken.committer.serve(VecDeque::from([job])));
            match std::panic::catch_unwind(AssertUnwindSafe(work)) {
                Ok(()) => taken.put_back(),
                Err(_) => tracing::error!("the committer panicked on a caller's thread"),
            }
            None
        })
    }
}
