//! Where the committer works. A store that blocks while it commits needs a thread of its own; one that waits for a server
//! is served among the callers, who then need not wait for another thread to wake up, twice for every call.

use super::{Committer, Desk, Job};
use crate::run::agenda::Book;
use std::sync::{Arc, Mutex, PoisonError, mpsc as threads};
use tokio::runtime::{Builder, Handle, RuntimeFlavor};
use tokio::sync::mpsc;

/// Schemas and expressions are bounded so that a quarter of this would do.
const STACK_BYTES: usize = 8 << 20;

pub enum Place {
    Thread(std::thread::JoinHandle<()>),
    /// Says nothing, and ends with the task.
    Task(Mutex<threads::Receiver<()>>),
}

impl Place {
    /// A store of this process alone is embedded, and `blocks`.
    pub fn of(desk: Arc<Desk>, queue: mpsc::Receiver<Job>, book: Arc<Book>, blocks: bool) -> std::io::Result<Place> {
        let shared =
            Handle::try_current().ok().filter(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
        match shared {
            Some(runtime) if !blocks => {
                let (ended, end) = threads::channel();
                runtime.spawn(async move {
                    Committer::run(&desk, queue, &book).await;
                    drop(ended);
                });
                Ok(Place::Task(Mutex::new(end)))
            }
            _ => {
                let runtime = Builder::new_current_thread().enable_all().build()?;
                let work = move || runtime.block_on(Committer::run(&desk, queue, &book));
                Ok(Place::Thread(
                    std::thread::Builder::new().name("committer".to_owned()).stack_size(STACK_BYTES).spawn(work)?,
                ))
            }
        }
    }

    /// Returns when the committer has served all that was sent.
    pub fn wait(self) {
        match self {
            Place::Thread(thread) => {
                if thread.join().is_err() {
                    tracing::error!("the committer thread panicked");
                }
            }
            Place::Task(end) => {
                let wait = || {
                    // Nothing is ever sent: it ends when the task does.
                    let _ = end.into_inner().unwrap_or_else(PoisonError::into_inner).recv();
                };
                match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
                    Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(wait),
                    _ => wait(),
                }
            }
        }
    }
}
