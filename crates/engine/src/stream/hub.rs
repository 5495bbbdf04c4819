//! One hub per node passes on what moved: from the committer and from other nodes to the subscriptions here, and from the
//! committer to other nodes. It asks the store for nothing and holds no engine.
//!
//! A subscription keeps one entry per topic, however often the topic moves, so a reader that reads nothing holds no more
//! than that. One that leaves its entries for longer than [`SLOW`] loses them and has to reload.

use super::moves::{Key, Moves};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// A subscription whose entries wait for longer than this is dropped.
const SLOW: Duration = Duration::from_secs(10);
/// How long a dropped subscription may take to notice before it is cut off.
const STUCK: Duration = Duration::from_secs(20);
/// How often slow subscriptions are looked for.
const SWEEP: Duration = Duration::from_secs(5);

/// Ends the connection of a reader that takes nothing at all.
pub type CutOff = Box<dyn Fn() + Send + Sync>;

#[derive(Default)]
pub struct Hub {
    /// For the subscriptions here, until the pump takes it.
    arrived: Mutex<Moves>,
    arrival: Notify,
    /// For other nodes, until the bell takes it.
    leaving: Mutex<Moves>,
    pub departure: Notify,
    has_peers: AtomicBool,
    subscriptions: Mutex<Subscriptions>,
    /// How many there are, without the lock.
    count: AtomicUsize,
    closed: AtomicBool,
}

#[derive(Default)]
struct Subscriptions {
    all: HashMap<u64, Arc<Shared>>,
    /// The subscriptions that listen to a key, each with its number of the topic.
    by_key: HashMap<Key, Vec<(u64, usize)>>,
    by_actor: HashMap<String, usize>,
    next: u64,
}

/// What the hub and one subscription share.
struct Shared {
    queue: Mutex<Queue>,
    news: Notify,
    cut_off: CutOff,
}

#[derive(Default)]
struct Queue {
    /// By the number of the topic.
    moved: BTreeMap<usize, Option<u64>>,
    /// Since when the first of them waits.
    since: Option<Instant>,
    look_again: bool,
    /// It was too slow, since then.
    dropped: Option<Instant>,
    closed: bool,
}

/// Why no subscription could be made.
#[derive(Debug, PartialEq, Eq)]
pub enum NoSubscription {
    /// This actor has as many as it may have.
    TooMany,
    Closed,
}

/// What a subscription hears next.
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    /// These topics moved, by number, and to which sequence, where that is known.
    Moved(Vec<(usize, Option<u64>)>),
    /// The registry moved: what the reader may see may have changed. Comes before anything that moved.
    LookAgain,
    /// The reader's session may have been ended.
    SessionMoved,
    /// The reader was too slow; what moved meanwhile is lost.
    TooSlow,
    /// The server is stopping.
    Closed,
}

/// The keys of some topics; ends when it is dropped.
pub struct Subscription {
    hub: Arc<Hub>,
    id: u64,
    actor_ref: String,
    keys: Vec<(Key, usize)>,
    shared: Arc<Shared>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    /// Whether anybody wants to hear what moved.
    pub fn is_followed(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0 || self.has_peers.load(Ordering::SeqCst)
    }

    pub fn set_peers(&self, has_peers: bool) {
        self.has_peers.store(has_peers, Ordering::SeqCst);
    }

    /// This was committed here.
    pub fn committed(&self, moves: Moves) {
        if moves.is_empty() {
            return;
        }
        if self.has_peers.load(Ordering::SeqCst) {
            locked(&self.leaving).merge(moves.clone());
            self.departure.notify_one();
        }
        self.heard(moves);
    }

    /// Something that `/v1/governance` shows was changed here.
    pub fn governance_moved(&self) {
        self.committed(Moves::of(Key::Governance));
    }

    /// This was committed, here or elsewhere.
    pub fn heard(&self, moves: Moves) {
        locked(&self.arrived).merge(moves);
        self.arrival.notify_one();
    }

    /// What other nodes have to hear.
    pub fn take_leaving(&self) -> Moves {
        std::mem::take(&mut *locked(&self.leaving))
    }

    /// They could not be told: later.
    pub fn put_back(&self, moves: Moves) {
        locked(&self.leaving).merge(moves);
        self.departure.notify_one();
    }

    /// At most `most` of one actor. It listens to nothing until [`Subscription::listen`].
    pub fn subscribe(
        self: &Arc<Self>,
        actor_ref: &str,
        most: usize,
        cut_off: CutOff,
    ) -> Result<Subscription, NoSubscription> {
        let mut subscriptions = locked(&self.subscriptions);
        if self.closed.load(Ordering::SeqCst) {
            return Err(NoSubscription::Closed);
        }
        let of_actor = subscriptions.by_actor.entry(actor_ref.to_owned()).or_default();
        if *of_actor >= most {
            return Err(NoSubscription::TooMany);
        }
        *of_actor += 1;
        let id = subscriptions.next;
        subscriptions.next += 1;
        let shared = Arc::new(Shared { queue: Mutex::default(), news: Notify::new(), cut_off });
        subscriptions.all.insert(id, shared.clone());
        self.counted(&subscriptions);
        Ok(Subscription { hub: self.clone(), id, actor_ref: actor_ref.to_owned(), keys: vec![], shared })
    }

    fn counted(&self, subscriptions: &Subscriptions) {
        self.count.store(subscriptions.all.len(), Ordering::SeqCst);
        metrics::gauge!("countersign_stream_subscriptions").set(subscriptions.all.len() as f64);
    }

    /// Ends every subscription, and takes no more.
    pub fn close(&self) {
        let subscriptions = locked(&self.subscriptions);
        self.closed.store(true, Ordering::SeqCst);
        for shared in subscriptions.all.values() {
            locked(&shared.queue).closed = true;
            shared.news.notify_one();
        }
    }

    /// Passes on what arrives, until the engine is closed. `registry` changes with the registry's sequence.
    pub async fn pump(self: Arc<Self>, mut registry: watch::Receiver<u64>) {
        let mut sweep = tokio::time::interval(SWEEP);
        sweep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.arrival.notified() => {
                    let moves = std::mem::take(&mut *locked(&self.arrived));
                    self.pass_on(&moves);
                }
                Ok(()) = registry.changed() => self.look_again(),
                _ = sweep.tick() => self.sweep(Instant::now()),
            }
        }
    }

    fn pass_on(&self, moves: &Moves) {
        let subscriptions = locked(&self.subscriptions);
        let now = Instant::now();
        if moves.is_anything() {
            for (key, listeners) in &subscriptions.by_key {
                if *key != Key::Registry {
                    subscriptions.tell(listeners, None, now);
                }
            }
            return;
        }
        for (key, sequence) in moves.keys() {
            if let Some(listeners) = subscriptions.by_key.get(key) {
                subscriptions.tell(listeners, sequence, now);
            }
        }
        let runs = moves.keys().any(|(key, _)| matches!(key, Key::Runs(_)));
        let processes = moves.keys().any(|(key, _)| matches!(key, Key::Processes(_)));
        for (all, moved) in [(Key::AllRuns, runs), (Key::AllProcesses, processes)] {
            if let Some(listeners) = subscriptions.by_key.get(&all).filter(|_| moved) {
                subscriptions.tell(listeners, None, now);
            }
        }
    }

    fn look_again(&self) {
        for shared in locked(&self.subscriptions).all.values() {
            locked(&shared.queue).look_again = true;
            shared.news.notify_one();
        }
    }

    /// Drops those that leave their entries, and cuts off those that do not even notice that.
    fn sweep(&self, now: Instant) {
        let subscriptions = locked(&self.subscriptions);
        for shared in subscriptions.all.values() {
            let mut queue = locked(&shared.queue);
            if queue.dropped.is_some_and(|dropped| now >= dropped + STUCK) {
                (shared.cut_off)();
            }
            if queue.dropped.is_none() && queue.since.is_some_and(|since| now >= since + SLOW) {
                metrics::counter!("countersign_stream_dropped_total").increment(1);
                queue.moved.clear();
                queue.dropped = Some(now);
                shared.news.notify_one();
            }
        }
    }
}

impl Subscriptions {
    fn tell(&self, listeners: &[(u64, usize)], sequence: Option<u64>, now: Instant) {
        for (id, topic) in listeners {
            let Some(shared) = self.all.get(id) else { continue };
            let mut queue = locked(&shared.queue);
            if queue.dropped.is_none() {
                let known = queue.moved.entry(*topic).or_default();
                *known = (*known).max(sequence);
                queue.since.get_or_insert(now);
            }
            drop(queue);
            shared.news.notify_one();
        }
    }

    fn unbind(&mut self, id: u64, keys: &[(Key, usize)]) {
        for (key, _) in keys {
            if let Some(listeners) = self.by_key.get_mut(key) {
                listeners.retain(|(of, _)| *of != id);
                if listeners.is_empty() {
                    self.by_key.remove(key);
                }
            }
        }
    }
}

impl Subscription {
    /// Listens to these keys from now on, each for the topic with this number, and to no others.
    pub fn listen(&mut self, keys: Vec<(Key, usize)>) {
        let mut subscriptions = locked(&self.hub.subscriptions);
        subscriptions.unbind(self.id, &self.keys);
        for (key, topic) in &keys {
            subscriptions.by_key.entry(key.clone()).or_default().push((self.id, *topic));
        }
        self.keys = keys;
    }

    /// Marks a topic as moved, for this subscription alone.
    pub fn mark(&self, topic: usize, sequence: Option<u64>) {
        let mut queue = locked(&self.shared.queue);
        let known = queue.moved.entry(topic).or_default();
        *known = (*known).max(sequence);
        queue.since.get_or_insert(Instant::now());
        drop(queue);
        self.shared.news.notify_one();
    }

    /// How many entries wait: never more than there are topics.
    pub fn waiting(&self) -> usize {
        locked(&self.shared.queue).moved.len()
    }

    /// Waits for news. Nothing is lost where the caller stops waiting.
    pub async fn next(&mut self) -> News {
        loop {
            if let Some(news) = self.take() {
                return news;
            }
            self.shared.news.notified().await;
        }
    }

    fn take(&self) -> Option<News> {
        let mut queue = locked(&self.shared.queue);
        if queue.closed {
            return Some(News::Closed);
        }
        if queue.dropped.is_some() {
            return Some(News::TooSlow);
        }
        if std::mem::take(&mut queue.look_again) {
            return Some(News::LookAgain);
        }
        queue.since = None;
        let moved = std::mem::take(&mut queue.moved);
        (!moved.is_empty()).then(|| News::Moved(moved.into_iter().collect()))
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut subscriptions = locked(&self.hub.subscriptions);
        subscriptions.unbind(self.id, &self.keys);
        subscriptions.all.remove(&self.id);
        if let Some(count) = subscriptions.by_actor.get_mut(&self.actor_ref) {
            *count -= 1;
            if *count == 0 {
                subscriptions.by_actor.remove(&self.actor_ref);
            }
        }
        self.hub.counted(&subscriptions);
    }
}

#[cfg(test)]
mod tests;
