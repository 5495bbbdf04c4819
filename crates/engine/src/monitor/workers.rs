//! Worker classes: who was heard of, what they did, and which of them are silent.
//!
//! A class is silent if none of its workers ticked successfully within the threshold. It heals only with a successful tick that
//! came after that, and not while it is frozen. Nothing is judged before this node has been up for as long as the threshold:
//! until then workers may not have had anybody to ask.

use super::{Monitor, minute_of};
use crate::clock::Entropy;
use crate::monitor::histogram::Histogram;
use crate::port::monitor::{ClassRow, HeartbeatRow, WorkMinute};
use crate::port::{Page, ProblemQuery, StoreError};
use crate::rows::SignalRow;
use crate::{Engine, store_failure};
use countersign_kernel::governance::{Category, Signal, Subject};
use countersign_kernel::refusal::{Refusal, require_ref, require_text};
use countersign_kernel::registry::{Freeze, scopes, worker_class};
use countersign_kernel::{EventId, IdSource, ProblemId, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Workers of a class that a view names.
const MOST_SHOWN: usize = 100;
/// Records that a view names as evidence.
const MOST_REFS: usize = 100;
/// Problems that are read at a time.
const PAGE: usize = 500;
/// A view sums up what was done within this time.
const WINDOW_US: i64 = 3_600_000_000;

/// What the workers of a class have done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkDone {
    pub jobs: u64,
    pub errors: u64,
    /// The records of the last of them.
    pub events: Vec<EventId>,
}

impl WorkDone {
    pub(super) fn add(&mut self, jobs: u64, errors: u64, event_id: EventId) {
        self.jobs += jobs;
        self.errors += errors;
        if self.events.len() >= super::MOST_EVENTS {
            self.events.remove(0);
        }
        self.events.push(event_id);
    }

    fn merge(&mut self, row: &WorkMinute) {
        self.jobs += row.jobs;
        self.errors += row.errors;
        self.events.extend_from_slice(&row.events);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerState {
    Ok,
    Silent,
    Frozen,
}

/// A worker as it was last heard of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerView {
    pub seen: HeartbeatRow,
    pub state: WorkerState,
}

/// A worker class with its workers, and what they did lately.
#[derive(Clone, Debug)]
pub struct ClassView {
    pub worker_class: String,
    pub state: WorkerState,
    /// How many there are; the view names those that were heard of last.
    pub count: u64,
    pub workers: Vec<WorkerView>,
    pub last_tick: Option<Time>,
    pub last_ok: Option<Time>,
    pub threshold_us: i64,
    pub frozen: Option<Freeze>,
    pub work: WorkDone,
    /// How long its steps waited to be claimed, in the same time.
    pub lag: Histogram,
    pub since: Time,
}

impl Engine {
    /// A worker of a queue is there no more: it makes nothing silent. Needs `tasks:work`, or a finer one of it.
    pub async fn leave_queue(&self, actor_ref: &str, queue: &str, worker_id: &str) -> Result<(), Refusal> {
        require_ref("queue", queue)?;
        require_text("worker_id", worker_id)?;
        self.reach(actor_ref).await?;
        let class = worker_class(queue, worker_id);
        let failed = |error: StoreError| store_failure(&error);
        let is_frozen = self.registry().is_frozen(queue, worker_id);
        // It was heard of: where its class was silent, that is over.
        let open = self.reader.open_problems(&[(Category::SilentWorkers, class.clone())]).await.map_err(failed)?;
        if !open.is_empty() && !is_frozen {
            let heard = (class, self.now(), "a worker said goodbye".to_owned());
            self.signal_workers(vec![], vec![heard]).await.map_err(failed)?;
        }
        self.monitor.leaves(queue, worker_id);
        Ok(())
    }

    /// The worker classes with a silence that is not over, and since when.
    pub(super) async fn silent_classes(&self) -> Result<BTreeMap<String, Time>, StoreError> {
        Ok(self.open_of(Category::SilentWorkers).await?.into_iter().map(|(key, (_, since))| (key, since)).collect())
    }

    /// The open problems of a category, by key.
    pub(super) async fn open_of(&self, category: Category) -> Result<BTreeMap<String, (ProblemId, Time)>, StoreError> {
        let query = ProblemQuery { category, open: Some(true) };
        let (mut open, mut after) = (BTreeMap::new(), None);
        loop {
            let page = Page { after, limit: PAGE, descending: false };
            let rows = self.reader.problems(&query, &page).await?;
            let full = rows.len() == PAGE;
            after = rows.last().map(|row| row.problem.problem_id.0);
            let known = |problem: countersign_kernel::governance::Problem| {
                (problem.subject.key, (problem.problem_id, problem.since))
            };
            open.extend(rows.into_iter().map(|row| known(row.problem)));
            if !full {
                return Ok(open);
            }
        }
    }

    /// The classes as the store knows them, with what only this node has seen.
    async fn known_classes(&self) -> Result<BTreeMap<Arc<str>, ClassRow>, StoreError> {
        let rows = self.monitor_store.worker_classes().await?;
        let mut classes: BTreeMap<Arc<str>, ClassRow> =
            rows.into_iter().map(|row| (row.worker_class.clone(), row)).collect();
        for seen in self.monitor.seen() {
            let class = classes.entry(seen.worker_class.clone()).or_insert_with(|| ClassRow {
                worker_class: seen.worker_class.clone(),
                workers: 0,
                last_tick: Time(0),
                last_ok: Time(0),
                lease_until: Time(0),
            });
            class.workers = class.workers.max(1);
            class.last_tick = class.last_tick.max(seen.last_tick);
            class.last_ok = class.last_ok.max(seen.last_ok);
            class.lease_until = class.lease_until.max(seen.lease_until);
        }
        Ok(classes)
    }

    pub(super) async fn observe_workers(&self) -> Result<(), StoreError> {
        let (classes, open) = (self.known_classes().await?, self.silent_classes().await?);
        let now = self.now();
        let (mut silent, mut heard) = (vec![], vec![]);
        {
            let registry = self.registry();
            for (class, row) in &classes {
                if registry.freeze_of(class).is_some() {
                    continue;
                }
                let threshold_us = self.config.thresholds.heartbeat(class);
                match open.get(&**class) {
                    Some(since) if row.last_ok > *since => {
                        heard.push((class.to_string(), row.last_ok, "a worker ticked again".to_owned()));
                    }
                    Some(_) => {}
                    None => {
                        let thawed = registry.thawed_at(class).unwrap_or(Time(0));
                        let last = row.last_ok.max(row.lease_until).max(thawed).max(self.opened_at);
                        if now.0 - last.0 > threshold_us {
                            silent.push((class.to_string(), now, silence(row.workers, threshold_us)));
                        }
                    }
                }
            }
        }
        self.signal_workers(silent, heard).await
    }

    async fn signal_workers(
        &self,
        silent: Vec<(String, Time, String)>,
        heard: Vec<(String, Time, String)>,
    ) -> Result<(), StoreError> {
        let subject = |class: String| Subject {
            category: Category::SilentWorkers,
            key: class.clone(),
            run_id: None,
            step: None,
            worker_class: Some(class),
        };
        let silent = silent.into_iter().map(|told| (true, told));
        let told = silent.chain(heard.into_iter().map(|told| (false, told)));
        let signals = told.map(|(opens, (class, at, detail))| Signal {
            subject: subject(class),
            at,
            event_id: None,
            opens,
            detail,
            replay: None,
        });
        self.observed(signals.collect()).await
    }

    /// Keeps what was observed until it is weighed.
    pub(super) async fn observed(&self, signals: Vec<Signal>) -> Result<(), StoreError> {
        if signals.is_empty() {
            return Ok(());
        }
        let entropy = Entropy::default().take().map_err(|error| StoreError::Transient(error.to_string()))?;
        let mut ids = IdSource::new(self.now(), u64::from_le_bytes(entropy));
        let rows: Vec<SignalRow> =
            signals.into_iter().map(|signal| SignalRow { signal_id: ids.make(), signal }).collect();
        self.signal(&rows).await
    }

    /// All worker classes with their workers, and what they did within the last hour. Needs `governance:read`.
    pub async fn worker_classes(&self, actor_ref: &str) -> Result<Vec<ClassView>, Refusal> {
        self.require_scope(actor_ref, scopes::GOVERNANCE_READ).await?;
        self.catch_up().await?;
        let failed = |error: StoreError| store_failure(&error);
        let mut classes = self.known_classes().await.map_err(failed)?;
        let frozen: Vec<String> = self.registry().frozen_classes().map(|(class, _)| class.to_owned()).collect();
        for class in frozen {
            let class: Arc<str> = class.into();
            let none = Time(0);
            let row = || ClassRow {
                worker_class: class.clone(),
                workers: 0,
                last_tick: none,
                last_ok: none,
                lease_until: none,
            };
            classes.entry(class.clone()).or_insert_with(row);
        }
        let open = self.silent_classes().await.map_err(failed)?;
        let now = self.now();
        let since = Time(now.0 - WINDOW_US);
        let mut done = self.work_done(minute_of(since)).await.map_err(failed)?;
        let lag = self.lag_of_queues(minute_of(since)).await.map_err(failed)?;
        let mut views = Vec::with_capacity(classes.len());
        for (class, row) in classes {
            let frozen = self.registry().freeze_of(&class).cloned();
            let threshold_us = self.config.thresholds.heartbeat(&class);
            let judge = |row: &HeartbeatRow| match &frozen {
                Some(_) => WorkerState::Frozen,
                None if now.0 - row.last_ok.max(row.lease_until).0 > threshold_us => WorkerState::Silent,
                None => WorkerState::Ok,
            };
            let mut workers: BTreeMap<Arc<str>, HeartbeatRow> = BTreeMap::new();
            let stored = self.monitor_store.workers_of(&class, MOST_SHOWN).await.map_err(failed)?;
            for row in stored.into_iter().chain(self.monitor.seen_of(&class)) {
                let known = workers.entry(row.worker_id.clone()).or_insert_with(|| row.clone());
                known.last_tick = known.last_tick.max(row.last_tick);
                known.last_ok = known.last_ok.max(row.last_ok);
                known.lease_until = known.lease_until.max(row.lease_until);
            }
            let count = row.workers.max(workers.len() as u64);
            let mut workers: Vec<WorkerView> =
                workers.into_values().map(|seen| WorkerView { state: judge(&seen), seen }).collect();
            workers.sort_by_key(|worker| std::cmp::Reverse(worker.seen.last_tick));
            workers.truncate(MOST_SHOWN);
            let all_silent = !workers.is_empty() && workers.iter().all(|worker| worker.state == WorkerState::Silent);
            let state = match &frozen {
                Some(_) => WorkerState::Frozen,
                None if open.contains_key(&*class) || all_silent => WorkerState::Silent,
                None => WorkerState::Ok,
            };
            let mut work = done.remove(&class).unwrap_or_default();
            work.events.drain(..work.events.len().saturating_sub(MOST_REFS));
            let queue = class.rsplit_once(':').map_or("", |(queue, _)| queue);
            let heard = |at: Time| Some(at).filter(|at| at.0 > 0);
            views.push(ClassView {
                state,
                count,
                workers,
                last_tick: heard(row.last_tick),
                last_ok: heard(row.last_ok),
                threshold_us,
                frozen,
                work,
                lag: lag.get(queue).cloned().unwrap_or_default(),
                since,
                worker_class: class.to_string(),
            });
        }
        Ok(views)
    }

    async fn work_done(&self, minute: i64) -> Result<BTreeMap<Arc<str>, WorkDone>, StoreError> {
        let stored = self.monitor_store.work_since(minute).await?;
        let mut done: BTreeMap<Arc<str>, WorkDone> = BTreeMap::new();
        for row in stored.iter().chain(&self.monitor.minutes_since(minute).0) {
            done.entry(row.worker_class.clone()).or_default().merge(row);
        }
        Ok(done)
    }
}

impl Monitor {
    fn seen_of(&self, class: &str) -> Vec<HeartbeatRow> {
        self.seen().into_iter().filter(|row| &*row.worker_class == class).take(MOST_SHOWN).collect()
    }
}

fn silence(workers: u64, threshold_us: i64) -> String {
    let seconds = threshold_us / 1_000_000;
    match workers {
        1 => format!("its only worker was not heard of for more than {seconds} s"),
        workers => format!("none of its {workers} workers was heard of for more than {seconds} s"),
    }
}
