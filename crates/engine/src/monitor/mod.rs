//! What this node sees of its workers, and how long things wait on their way. All of it is kept in memory, costs a command
//! nothing but a few additions, and is written now and then, many rows at a time: it is no evidence, and a crash may lose the last
//! of it. What it comes to is evidence, as problems of the governance chain (ADR 70).

pub mod histogram;
mod lag;
mod workers;

pub use lag::{Lag, LagPair, LagPoint, Percentiles};
pub use workers::{ClassView, WorkDone, WorkerState, WorkerView};

use crate::Engine;
use crate::port::monitor::{HeartbeatRow, LagMinute, WorkMinute};
use countersign_kernel::registry::worker_class;
use countersign_kernel::{EventId, Time};
use histogram::Histogram;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often what was seen of workers is written, if there is anything new.
const BEAT: Duration = Duration::from_secs(5);
/// Every so many beats it is looked what it comes to; and what is old is deleted.
const LOOK_EVERY: u64 = 2;
const FORGET_EVERY: u64 = 720;
/// Workers that a node keeps in memory; more of them are not watched.
const MOST_WORKERS: usize = 50_000;
/// Minutes that a node keeps while it cannot write them.
const MOST_MINUTES: usize = 60;
/// Records that are named as evidence of a minute's work.
const MOST_EVENTS: usize = 10;
/// A worker that was not heard of for so long is left to the store.
const FORGOTTEN_US: i64 = 15 * MINUTE_US;
const MINUTE_US: i64 = 60_000_000;
/// For so long workers that are not heard of, and minutes, are kept.
const KEPT_WORKERS_US: i64 = 24 * 60 * MINUTE_US;
const KEPT_MINUTES: i64 = 31 * 24 * 60;

/// The producers that lag is measured from. The consumer of the first two is a sink or a queue.
pub const OUTBOX: &str = "outbox";
pub const READY: &str = "ready";
pub const DUE: &str = "due";
pub const COMMITTED: &str = "committed";
/// The consumers of the last two.
pub const FIRED: &str = "fired";
pub const SEALED: &str = "sealed";

/// When workers are silent, and when things wait for too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thresholds {
    pub heartbeat_us: i64,
    /// Of some worker classes.
    pub heartbeat_of: BTreeMap<String, i64>,
    /// The time over which lag is judged.
    pub lag_window_us: i64,
    pub lag: LagThresholds,
    /// Of some pairs, by `<producer>-><consumer>`.
    pub lag_of: BTreeMap<String, LagThresholds>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LagThresholds {
    pub p50_us: Option<i64>,
    pub p95_us: Option<i64>,
    pub p99_us: Option<i64>,
}

impl Default for Thresholds {
    fn default() -> Self {
        const SECOND: i64 = 1_000_000;
        Thresholds {
            heartbeat_us: 60 * SECOND,
            heartbeat_of: BTreeMap::new(),
            lag_window_us: 300 * SECOND,
            lag: LagThresholds { p50_us: Some(10 * SECOND), p95_us: Some(30 * SECOND), p99_us: Some(60 * SECOND) },
            lag_of: BTreeMap::new(),
        }
    }
}

impl Thresholds {
    pub fn heartbeat(&self, worker_class: &str) -> i64 {
        self.heartbeat_of.get(worker_class).copied().unwrap_or(self.heartbeat_us)
    }

    pub fn lag(&self, pair: &str) -> LagThresholds {
        self.lag_of.get(pair).copied().unwrap_or(self.lag)
    }
}

/// What a commit says of a worker.
pub(crate) struct Noted {
    pub queue: Arc<str>,
    pub worker_id: Arc<str>,
    pub at: Time,
    pub note: Note,
}

pub(crate) enum Note {
    /// It was handed a step that had waited for so long.
    Claimed {
        lease_until: Time,
        waited_us: i64,
    },
    Prolonged {
        lease_until: Time,
    },
    /// It completed a step.
    Done(EventId),
    /// It reported a failure.
    Failed(EventId),
    /// Its lease expired.
    Lost(EventId),
    /// It put the step down in another way.
    Left,
}

#[derive(Default)]
pub(crate) struct Monitor(Mutex<State>);

#[derive(Default)]
struct State {
    /// By queue and id.
    workers: HashMap<Arc<str>, HashMap<Arc<str>, Worker>>,
    known: usize,
    /// Said goodbye, by class and id.
    gone: HashSet<(Arc<str>, Arc<str>)>,
    minutes: BTreeMap<i64, Minute>,
}

struct Worker {
    class: Arc<str>,
    /// Claims of it that wait for work.
    waiting: u32,
    seen: HeartbeatRow,
    stored: Option<HeartbeatRow>,
    /// It is this server's own, and ends with it.
    own: bool,
}

#[derive(Default)]
struct Minute {
    lag: HashMap<&'static str, HashMap<Arc<str>, Histogram>>,
    work: HashMap<Arc<str>, WorkDone>,
}

/// A claim that waits: while it does, its worker is there.
pub(crate) struct Waiting<'m> {
    monitor: &'m Monitor,
    queue: Arc<str>,
    worker_id: Arc<str>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.monitor.state();
        if let Some(worker) = state.workers.get_mut(&self.queue).and_then(|workers| workers.get_mut(&self.worker_id)) {
            worker.waiting = worker.waiting.saturating_sub(1);
        }
    }
}

pub(crate) const fn minute_of(at: Time) -> i64 {
    at.0.div_euclid(MINUTE_US)
}

impl Monitor {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker asks for work: it ticks, and again for as long as what is returned lives.
    pub fn waits<'m>(
        &'m self,
        queue: &Arc<str>,
        worker_id: &Arc<str>,
        now: Time,
        (is_frozen, own): (bool, bool),
    ) -> Waiting<'m> {
        let mut state = self.state();
        if let Some(worker) = state.worker(queue, worker_id) {
            worker.waiting += 1;
            worker.own |= own;
            worker.tick(now, !is_frozen);
        }
        Waiting { monitor: self, queue: queue.clone(), worker_id: worker_id.clone() }
    }

    /// Takes what a commit says of workers.
    pub fn take(&self, noted: Vec<Noted>, is_frozen: impl Fn(&str, &str) -> bool) {
        let mut state = self.state();
        for Noted { queue, worker_id, at, note } in noted {
            let heard = !matches!(note, Note::Lost(_));
            let class = state.worker(&queue, &worker_id).map(|worker| {
                if heard {
                    worker.tick(at, !is_frozen(&queue, &worker_id));
                }
                if let Note::Claimed { lease_until, .. } | Note::Prolonged { lease_until } = note {
                    worker.seen.lease_until = worker.seen.lease_until.max(lease_until);
                }
                worker.class.clone()
            });
            let (jobs, errors, event_id) = match note {
                Note::Claimed { waited_us, .. } => {
                    state.lag(READY, &queue, at, waited_us);
                    continue;
                }
                Note::Prolonged { .. } | Note::Left => continue,
                Note::Done(event_id) => (1, 0, event_id),
                Note::Failed(event_id) | Note::Lost(event_id) => (0, 1, event_id),
            };
            if let Some(class) = class {
                state.minute(at).work.entry(class).or_default().add(jobs, errors, event_id);
            }
        }
    }

    /// Something that came from this producer has reached this consumer after so long.
    pub fn lag(&self, producer: &'static str, consumer: &str, now: Time, waited_us: i64) {
        self.state().lag(producer, consumer, now, waited_us);
    }

    /// The worker is gone for good; it counts as heard of, once more.
    fn leaves(&self, queue: &str, worker_id: &str) {
        let mut state = self.state();
        if let Some(workers) = state.workers.get_mut(queue)
            && workers.remove(worker_id).is_some()
        {
            state.known -= 1;
        }
        state.gone.insert((worker_class(queue, worker_id).into(), worker_id.into()));
    }

    /// This server's own workers end with it.
    fn own_leave(&self) {
        let state = self.state();
        let own: Vec<(Arc<str>, Arc<str>)> = state
            .workers
            .iter()
            .flat_map(|(queue, workers)| workers.iter().map(move |(id, worker)| (queue, id, worker)))
            .filter(|(_, _, worker)| worker.own)
            .map(|(queue, id, _)| (queue.clone(), id.clone()))
            .collect();
        drop(state);
        own.iter().for_each(|(queue, id)| self.leaves(queue, id));
    }

    /// What is to be written of workers: those of which the store has not heard for a part of their class's threshold.
    fn unwritten(
        &self,
        now: Time,
        thresholds: &Thresholds,
        is_frozen: impl Fn(&str, &str) -> bool,
    ) -> Vec<HeartbeatRow> {
        let mut rows = vec![];
        let mut state = self.state();
        for (queue, workers) in &mut state.workers {
            for (id, worker) in workers.iter_mut() {
                if worker.waiting > 0 {
                    worker.tick(now, !is_frozen(queue, id));
                }
                if worker.is_news(thresholds.heartbeat(&worker.class) / 4) {
                    rows.push(worker.seen.clone());
                }
            }
        }
        rows
    }

    /// These rows are written; who was not heard of for long is forgotten.
    fn wrote(&self, rows: Vec<HeartbeatRow>, gone: &[(Arc<str>, Arc<str>)], now: Time) {
        let mut state = self.state();
        for row in rows {
            let queue = row.worker_class.rsplit_once(':').map_or("", |(queue, _)| queue);
            if let Some(worker) = state.workers.get_mut(queue).and_then(|workers| workers.get_mut(&row.worker_id)) {
                worker.stored = Some(row);
            }
        }
        for key in gone {
            state.gone.remove(key);
        }
        state.workers.retain(|_, workers| {
            workers.retain(|_, worker| {
                worker.waiting > 0 || worker.stored.is_none() || worker.seen.last_tick.0 > now.0 - FORGOTTEN_US
            });
            !workers.is_empty()
        });
        state.known = state.workers.values().map(HashMap::len).sum();
    }

    fn gone(&self) -> Vec<(Arc<str>, Arc<str>)> {
        self.state().gone.iter().cloned().collect()
    }

    /// What was seen in minutes before this one.
    fn minutes_before(&self, minute: i64) -> (Vec<WorkMinute>, Vec<LagMinute>) {
        let state = self.state();
        let minutes = || state.minutes.range(..minute);
        let work = minutes().flat_map(|(minute, seen)| seen.work_rows(*minute)).collect();
        let lag = minutes().flat_map(|(minute, seen)| seen.lag_rows(*minute)).collect();
        (work, lag)
    }

    /// Everything that is not written yet, from this minute on.
    fn minutes_since(&self, minute: i64) -> (Vec<WorkMinute>, Vec<LagMinute>) {
        let state = self.state();
        let minutes = || state.minutes.range(minute..);
        let work = minutes().flat_map(|(minute, seen)| seen.work_rows(*minute)).collect();
        let lag = minutes().flat_map(|(minute, seen)| seen.lag_rows(*minute)).collect();
        (work, lag)
    }

    fn forget_minutes_before(&self, minute: i64) {
        let mut state = self.state();
        state.minutes = state.minutes.split_off(&minute);
    }

    /// The workers of which this node knows.
    fn seen(&self) -> Vec<HeartbeatRow> {
        self.state().workers.values().flat_map(HashMap::values).map(|worker| worker.seen.clone()).collect()
    }
}

impl State {
    /// `None`: there are too many.
    fn worker(&mut self, queue: &Arc<str>, worker_id: &Arc<str>) -> Option<&mut Worker> {
        let is_known = self.workers.get(queue).is_some_and(|workers| workers.contains_key(worker_id));
        if !is_known {
            if self.known >= MOST_WORKERS {
                return None;
            }
            self.known += 1;
            let class: Arc<str> = worker_class(queue, worker_id).into();
            self.gone.remove(&(class.clone(), worker_id.clone()));
            let seen = HeartbeatRow {
                worker_class: class.clone(),
                worker_id: worker_id.clone(),
                last_tick: Time(0),
                last_ok: Time(0),
                lease_until: Time(0),
            };
            let worker = Worker { class, waiting: 0, seen, stored: None, own: false };
            self.workers.entry(queue.clone()).or_default().insert(worker_id.clone(), worker);
        }
        self.workers.get_mut(queue)?.get_mut(worker_id)
    }

    fn minute(&mut self, at: Time) -> &mut Minute {
        let minute = minute_of(at);
        if self.minutes.len() >= MOST_MINUTES && !self.minutes.contains_key(&minute) {
            self.minutes.pop_first();
        }
        self.minutes.entry(minute).or_default()
    }

    fn lag(&mut self, producer: &'static str, consumer: &str, now: Time, waited_us: i64) {
        let of = self.minute(now).lag.entry(producer).or_default();
        match of.get_mut(consumer) {
            Some(histogram) => histogram.add(waited_us),
            None => of.entry(consumer.into()).or_default().add(waited_us),
        }
    }
}

impl Worker {
    fn tick(&mut self, now: Time, ok: bool) {
        self.seen.last_tick = self.seen.last_tick.max(now);
        if ok {
            self.seen.last_ok = self.seen.last_ok.max(now);
        }
    }

    fn is_news(&self, gap_us: i64) -> bool {
        let Some(stored) = &self.stored else { return true };
        let later = |seen: Time, stored: Time| seen.0 - stored.0 >= gap_us.max(1);
        later(self.seen.last_tick, stored.last_tick)
            || later(self.seen.last_ok, stored.last_ok)
            || later(self.seen.lease_until, stored.lease_until)
    }
}

impl Minute {
    fn work_rows(&self, minute: i64) -> impl Iterator<Item = WorkMinute> {
        self.work.iter().map(move |(class, done)| WorkMinute {
            minute,
            worker_class: class.clone(),
            jobs: done.jobs,
            errors: done.errors,
            events: done.events.clone(),
        })
    }

    fn lag_rows(&self, minute: i64) -> impl Iterator<Item = LagMinute> {
        self.lag.iter().flat_map(move |(producer, of)| {
            of.iter().map(move |(consumer, histogram)| LagMinute {
                minute,
                producer: (*producer).into(),
                consumer: consumer.clone(),
                histogram: histogram.clone(),
            })
        })
    }
}

impl Engine {
    /// Writes what this node has seen and the store does not know. For a server; tests call it instead of waiting.
    pub async fn write_monitor(&self) -> Result<(), crate::port::StoreError> {
        let now = self.now();
        let rows = {
            let registry = self.registry();
            let frozen = |queue: &str, worker_id: &str| registry.is_frozen(queue, worker_id);
            self.monitor.unwritten(now, &self.config.thresholds, frozen)
        };
        let gone = self.monitor.gone();
        if !rows.is_empty() || !gone.is_empty() {
            self.monitor_store.write_heartbeats(&rows, &gone).await?;
        }
        self.monitor.wrote(rows, &gone, now);
        self.write_minutes_before(minute_of(now)).await
    }

    async fn write_minutes_before(&self, minute: i64) -> Result<(), crate::port::StoreError> {
        let (work, lag) = self.monitor.minutes_before(minute);
        if !work.is_empty() || !lag.is_empty() {
            self.monitor_store.write_minutes(self.node_id, &work, &lag).await?;
        }
        self.monitor.forget_minutes_before(minute);
        Ok(())
    }

    /// Looks what it comes to: opens and resolves problems of workers and of lag.
    pub async fn observe_monitor(&self) -> Result<(), crate::port::StoreError> {
        self.observe_workers().await?;
        self.observe_lag().await
    }

    /// The server stops: what it has seen is written, and its own workers leave.
    pub async fn end_monitor(&self) {
        self.monitor.own_leave();
        let written = async {
            self.write_monitor().await?;
            self.write_minutes_before(i64::MAX).await
        };
        if let Err(error) = written.await {
            tracing::warn!(%error, "what was seen of workers and lag could not be written");
        }
    }

    /// Deletes what is old: workers that were not heard of for a day, and minutes after a month.
    pub async fn forget_monitor(&self) -> Result<(), crate::port::StoreError> {
        let now = self.now();
        let kept: Vec<String> = self.silent_classes().await?.into_keys().collect();
        self.monitor_store.forget(Time(now.0 - KEPT_WORKERS_US), &kept, minute_of(now) - KEPT_MINUTES).await
    }
}

/// Watches until the engine is gone.
pub async fn watch(engine: std::sync::Weak<Engine>) {
    let mut beats: u64 = 0;
    loop {
        tokio::time::sleep(BEAT).await;
        let Some(engine) = engine.upgrade() else { return };
        beats += 1;
        let watched = async {
            engine.write_monitor().await?;
            if beats.is_multiple_of(LOOK_EVERY) {
                engine.observe_monitor().await?;
            }
            if beats % FORGET_EVERY == 1 {
                engine.forget_monitor().await?;
            }
            Ok::<(), crate::port::StoreError>(())
        };
        if let Err(error) = watched.await {
            tracing::warn!(%error, "workers and lag could not be watched");
        }
    }
}
