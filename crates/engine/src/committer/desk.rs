//! Where the committer is found: its own thread takes it for each batch; where the store commits in place, a caller who
//! finds it idle takes it too, and is spared two changes of threads for a flush that nobody shares.

use super::{Committer, Job};
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Mutex, MutexGuard};

pub struct Desk {
    /// Empty while somebody works with it, and for good once one of them panicked.
    committer: Mutex<Option<Box<Committer>>>,
    /// The last batch held one call. Under load callers queue up, for a batch shares its flush.
    alone: AtomicBool,
    /// Somebody panicked with the committer: nothing is committed here any more.
    panicked: AtomicBool,
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
        Desk {
            committer: Mutex::new(Some(Box::new(committer))),
            alone: AtomicBool::new(true),
            panicked: AtomicBool::new(false),
        }
    }

    /// `None`: somebody panicked with it, and what it remembers cannot be trusted.
    pub async fn take(&self) -> Option<Taken<'_>> {
        let mut place = self.committer.lock().await;
        let committer = place.take()?;
        Some(Taken { committer, place })
    }

    pub fn has_panicked(&self) -> bool {
        self.panicked.load(Ordering::Relaxed)
    }

    pub fn saw(&self, calls: usize) {
        self.alone.store(calls == 1, Ordering::Relaxed);
    }

    /// Serves a job on the caller's thread if nobody else is at work; else gives it back. A runtime with one thread
    /// is left alone: blocked, it could not bring the other calls of a batch.
    ///
    /// The runtime is not told (`block_in_place`) that this thread is busy: handing its other tasks to another thread
    /// takes a third as long as the whole call, and a call alone has few of them beside it.
    pub fn serve_here(&self, job: Job) -> Option<Job> {
        if !self.alone.load(Ordering::Relaxed) {
            return Some(job);
        }
        let runtime = match Handle::try_current() {
            Ok(runtime) if runtime.runtime_flavor() == RuntimeFlavor::MultiThread => runtime,
            _ => return Some(job),
        };
        let Ok(mut place) = self.committer.try_lock() else { return Some(job) };
        let Some(mut committer) = place.take() else { return Some(job) };
        let mut work = Box::pin(async move {
            committer.serve(VecDeque::from([job])).await;
            committer
        });
        let served = std::panic::catch_unwind(AssertUnwindSafe(|| {
            // A store that commits in place has nothing to wait for.
            match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(committer) => committer,
                Poll::Pending => tokio::task::block_in_place(|| runtime.block_on(work)),
            }
        }));
        match served {
            Ok(committer) => *place = Some(committer),
            Err(_) => {
                self.panicked.store(true, Ordering::Relaxed);
                tracing::error!("the committer panicked on a caller's thread");
            }
        }
        None
    }
}
