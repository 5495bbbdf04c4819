//! Whoever works in this very process hears at once that the lease they work under is gone, and can stop. A worker elsewhere
//! hears so with its next heartbeat.

use crate::Engine;
use crate::outcome::Task;
use crate::port::Reader;
use crate::rows::StepWrite;
use countersign_kernel::InstanceId;
use countersign_kernel::plan::StepSeq;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use uuid::Uuid;

/// How often the store is asked, where another node may have taken the lease away.
const LOOK: Duration = Duration::from_secs(2);

/// A lease of a step.
type Lease = (InstanceId, StepSeq, Uuid);

/// The leases that somebody here works under, and by what each hears of its end.
#[derive(Default)]
pub struct Leases {
    steps: Mutex<BTreeMap<Lease, Arc<Notify>>>,
    /// A survey is leased to one at a time, and apart from the step that it is for.
    surveys: Mutex<BTreeMap<(InstanceId, Uuid), Arc<Notify>>>,
}

impl Leases {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Lease, Arc<Notify>>> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn surveys(&self) -> MutexGuard<'_, BTreeMap<(InstanceId, Uuid), Arc<Notify>>> {
        self.surveys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This is the lease of the run's survey now: every other one is gone.
    pub fn surveyed(&self, run_id: InstanceId, lease: Option<Uuid>) {
        let of_run = (run_id, Uuid::nil())..=(run_id, Uuid::max());
        for ((_, token), gone) in self.surveys().range(of_run) {
            if lease != Some(*token) {
                gone.notify_one();
            }
        }
    }

    /// These steps were written: every other lease of theirs is gone.
    pub fn written(&self, run_id: InstanceId, steps: &BTreeMap<StepSeq, StepWrite>) {
        let watched = self.all();
        let of_run = (run_id, StepSeq::MIN, Uuid::nil())..=(run_id, StepSeq::MAX, Uuid::max());
        for ((_, step_seq, token), gone) in watched.range(of_run) {
            if steps.get(step_seq).is_some_and(|step| step.state.lease_token != Some(*token)) {
                gone.notify_one();
            }
        }
    }

    /// The engine ends: nothing can be reported any more.
    pub fn end(&self) {
        self.all().values().for_each(|gone| gone.notify_one());
        self.surveys().values().for_each(|gone| gone.notify_one());
    }
}

impl Engine {
    /// `None` where the task has no lease that could be watched.
    pub fn watch_lease(&self, task: &Task) -> Option<LeaseWatch> {
        let lease = (InstanceId::parse(&task.run_id)?, task.step_seq, Uuid::try_parse(&task.lease_token).ok()?);
        let gone = Arc::new(Notify::new());
        self.book.leases.all().insert(lease, gone.clone());
        let book = self.book.clone();
        Some(LeaseWatch { lease, gone, book, reader: Arc::downgrade(&self.reader), shared: !self.exclusive })
    }
}

impl Engine {
    /// `None` where the task has no lease that could be watched.
    pub fn watch_survey(&self, task: &Task) -> Option<SurveyWatch> {
        let lease = (InstanceId::parse(&task.run_id)?, Uuid::try_parse(&task.lease_token).ok()?);
        let gone = Arc::new(Notify::new());
        self.book.leases.surveys().insert(lease, gone.clone());
        Some(SurveyWatch { lease, gone, book: self.book.clone() })
    }
}

/// An eye on the lease of a survey. It does not keep the engine alive.
pub struct SurveyWatch {
    lease: (InstanceId, Uuid),
    gone: Arc<Notify>,
    book: Arc<super::agenda::Book>,
}

impl SurveyWatch {
    /// Returns when this node has taken the lease away. What another node does is not heard of: a survey ends soon by itself.
    pub async fn gone(&self) {
        self.gone.notified().await;
    }
}

impl Drop for SurveyWatch {
    fn drop(&mut self) {
        self.book.leases.surveys().remove(&self.lease);
    }
}

/// An eye on one lease. It does not keep the engine alive.
pub struct LeaseWatch {
    lease: Lease,
    gone: Arc<Notify>,
    book: Arc<super::agenda::Book>,
    reader: Weak<dyn Reader>,
    /// Other nodes use the store.
    shared: bool,
}

impl LeaseWatch {
    /// Returns when the lease is gone: at once where this node took it away, soon where another one did.
    pub async fn gone(&self) {
        // It may have been taken away before anybody watched.
        while self.stands().await {
            tokio::select! {
                () = self.gone.notified() => return,
                () = tokio::time::sleep(LOOK), if self.shared => {}
            }
        }
    }

    /// Whether it stands, by the store's own account.
    pub async fn stands(&self) -> bool {
        let (run_id, step_seq, token) = self.lease;
        let Some(reader) = self.reader.upgrade() else { return false };
        match reader.run_steps(run_id, step_seq, 1).await {
            Ok(steps) => {
                steps.first().is_some_and(|step| step.step_seq == step_seq && step.state.lease_token == Some(token))
            }
            // Nobody says that it is gone; the heartbeat asks as well.
            Err(_) => true,
        }
    }
}

impl Drop for LeaseWatch {
    fn drop(&mut self) {
        self.book.leases.all().remove(&self.lease);
    }
}
