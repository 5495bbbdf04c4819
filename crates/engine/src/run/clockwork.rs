//! Whatever happens by the clock: leases that expire, waits and steps that time out, retries that come due, delayed
//! starts, children that ended. One task per node; it only hands out reminders, the kernel judges each.

use super::agenda::{Book, Item};
use crate::clock::EngineClock;
use crate::monitor::{self, Monitor};
use crate::outcome::{Call, Command, Outcome, Proof, Target};
use crate::port::Reader;
use crate::{Engine, committer::Job};
use countersign_kernel::plan::StepSeq;
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::run;
use countersign_kernel::{InstanceId, Time};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Of how many runs something is looked at in one go. Callers wait for no more than these: each may have to be loaded.
const BATCH: usize = 200;
/// Steps that one command looks at.
const PORTION: usize = 200;
/// The longest sleep: clocks are set, and reminders may be lost with a node.
const LONGEST: Duration = Duration::from_secs(30);
/// When something is looked at again that the store could not take, and that was refused.
const SOON_US: i64 = 1_000_000;
const LATER_US: i64 = 30_000_000;

/// What the clockwork needs of an engine; it must not keep the engine alive.
#[derive(Clone)]
pub struct Clockwork {
    pub book: Arc<Book>,
    pub jobs: mpsc::WeakSender<Job>,
    pub reader: Arc<dyn Reader>,
    pub now: Arc<dyn Fn() -> Time + Send + Sync>,
    pub application_actor_ref: String,
    pub(crate) monitor: Arc<Monitor>,
}

impl Clockwork {
    /// Runs until the engine is gone.
    pub async fn run(self) {
        loop {
            let sleep = match self.book.next_due() {
                None => LONGEST,
                Some(at) => Duration::from_micros(u64::try_from(at.0 - (self.now)().0).unwrap_or(0)).min(LONGEST),
            };
            tokio::select! {
                () = self.book.sooner.notified() => {}
                () = tokio::time::sleep(sleep) => {}
            }
            if !self.tick().await {
                return;
            }
        }
    }

    /// Has everything that is due looked at. False once the engine is gone.
    pub async fn tick(&self) -> bool {
        let _alone = self.book.looking.lock().await;
        loop {
            let due = self.book.due((self.now)(), BATCH);
            if due.is_empty() {
                return true;
            }
            let mut asked = Vec::new();
            let since: Vec<Time> = due.iter().map(|(at, _)| *at).collect();
            for (run_id, (steps, whole)) in by_run(due.into_iter().map(|(_, item)| item).collect()) {
                if whole {
                    // A run whose delayed start has come; the dispatcher sees to those that also need a slot.
                    self.book.slots.notify_one();
                    match self.send(run_id, run::Command::Dispatch { in_slot: false }).await {
                        Some(answer) => asked.push(((run_id, vec![], true), answer)),
                        None => return false,
                    }
                }
                for (steps, whole) in portions(steps, whole) {
                    match self.send(run_id, run::Command::Due { steps: steps.clone(), run: whole }).await {
                        Some(answer) => asked.push(((run_id, steps, whole), answer)),
                        None => return false,
                    }
                }
            }
            for ((run_id, steps, whole), answer) in asked {
                match answer.await {
                    Ok(Ok(Outcome::Looked { children, parent, stands_still })) => {
                        for (step_seq, child) in children {
                            if stands_still {
                                self.stop_child(run_id, &child).await;
                            }
                            self.ask_after_child(run_id, step_seq, &child).await;
                        }
                        if let Some((step_seq, parent)) = parent {
                            self.ask_after_parent(run_id, &parent, step_seq).await;
                        }
                    }
                    Ok(Err(refusal)) => self.put_off(run_id, &steps, whole, &refusal),
                    Ok(Ok(_)) | Err(_) => {}
                }
            }
            let now = (self.now)();
            since.iter().for_each(|at| self.monitor.lag(monitor::DUE, monitor::FIRED, now, now.0 - at.0));
        }
    }

    /// What could not be looked at is not forgotten: nobody else may ever think of it.
    fn put_off(&self, run_id: InstanceId, steps: &[StepSeq], whole: bool, refusal: &Refusal) {
        let delay = match refusal.code {
            Code::NotKnown => return,
            _ if refusal.passes() => SOON_US,
            _ => LATER_US,
        };
        let again = Time((self.now)().0 + delay);
        let own = whole.then_some((run_id, None));
        for item in steps.iter().map(|seq| (run_id, Some(*seq))).chain(own) {
            self.book.remind_by(item, again);
        }
    }

    pub(super) async fn send(
        &self,
        run_id: InstanceId,
        command: run::Command,
    ) -> Option<oneshot::Receiver<crate::committer::Answer>> {
        let (answer, answered) = oneshot::channel();
        let call = Call {
            actor_ref: self.application_actor_ref.clone(),
            proof: Proof::InProcess,
            command: Command::Run { target: Target::Existing(run_id), command },
            idempotency: None,
        };
        // It may have to wait for room; nothing that is due is dropped.
        self.jobs.upgrade()?.send(Job::new(call, answer)).await.ok()?;
        Some(answered)
    }
}

fn by_run(due: Vec<Item>) -> BTreeMap<InstanceId, (Vec<StepSeq>, bool)> {
    let mut runs: BTreeMap<InstanceId, (Vec<StepSeq>, bool)> = BTreeMap::new();
    for (run_id, step_seq) in due {
        let (steps, whole) = runs.entry(run_id).or_default();
        match step_seq {
            Some(seq) => steps.push(seq),
            None => *whole = true,
        }
    }
    runs
}

/// As many steps at a time as one record has room for; the run itself comes first.
fn portions(steps: Vec<StepSeq>, whole: bool) -> Vec<(Vec<StepSeq>, bool)> {
    let own = (whole && steps.is_empty()).then(|| (vec![], true));
    let portions = steps.chunks(PORTION).enumerate().map(|(n, steps)| (steps.to_vec(), whole && n == 0));
    own.into_iter().chain(portions).collect()
}

/// Where other nodes write: this node's time is not behind what they have recorded. A lease that a node gave whose clock was
/// ahead would else last until this one has caught up.
async fn keep_up(reader: Arc<dyn Reader>, clock: Arc<EngineClock>) {
    loop {
        match crate::newest_record(&*reader).await {
            Ok(newest) => clock.observe(newest),
            Err(error) => tracing::debug!(%error, "the newest record could not be read"),
        }
        tokio::time::sleep(LONGEST).await;
    }
}

impl Engine {
    pub(crate) fn start_clockwork(&mut self, exclusive: bool) {
        self.background.push(tokio::spawn(self.clockwork().run()));
        self.background.push(tokio::spawn(self.dispatcher(exclusive).run()));
        if !exclusive {
            self.background.push(tokio::spawn(keep_up(self.reader.clone(), self.clock.clone())));
        }
    }

    pub(crate) fn clockwork(&self) -> Clockwork {
        let (clock, registry) = (self.clock.clone(), self.registry.clone());
        Clockwork {
            // As the kernel will judge, wherever clocks have been set back.
            now: Arc::new(move || clock.now().max(registry.newest())),
            book: self.book.clone(),
            jobs: self.jobs.downgrade(),
            reader: self.reader.clone(),
            application_actor_ref: self.config.application_actor_ref.clone(),
            monitor: self.monitor.clone(),
        }
    }

    /// Returns when everything has been seen that was to be done when the store was opened.
    pub async fn loaded(&self) {
        self.book.until_loaded().await;
    }

    /// Has everything looked at that is due by the engine's clock: for tests, which move it.
    pub async fn tick(&self) {
        if self.exclusive {
            self.loaded().await;
        }
        self.clockwork().tick().await;
        self.dispatcher(true).dispatch().await;
        self.clockwork().tick().await;
    }
}
