//! What is to be done, and when: steps that workers may claim now, by queue, and everything that the clock has to look
//! at. It is kept in memory and may be wrong: the kernel judges every claim and every timer by what the run holds, and the
//! store finds again what a node forgot. It holds so much and no more: the best of each queue and the soonest of what is due;
//! when half of that is gone, the store is read again.

use super::leases::Leases;
use super::queue::{LaneId, Lanes, Queue, Ready};
use countersign_kernel::plan::{QueueLimit, StepSeq};
use countersign_kernel::registry::{Registry, scopes};
use countersign_kernel::run::Agenda;
use countersign_kernel::{InstanceId, Time};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// A step of a run, or (`None`) the run itself.
pub type Item = (InstanceId, Option<StepSeq>);

/// Things that the clock has to look at, at most.
const TIMERS: usize = 200_000;
/// How many things that are due are taken off the clock in one go.
const DUE_AT_ONCE: usize = 10_000;

#[derive(Default)]
pub struct Book {
    pages: Mutex<Pages>,
    /// Somebody put in something earlier than what the clock waits for.
    pub sooner: Notify,
    closed: AtomicBool,
    /// A slot may have become free, or somebody waits for one.
    pub slots: Notify,
    /// The store holds what this node has not heard of, or has forgotten.
    pub look: Notify,
    /// Everything in the store is to be looked at, from the start.
    forgot: AtomicBool,
    /// The registry is known: what the store says can be read with it.
    opened: AtomicBool,
    loaded: AtomicBool,
    loading: Notify,
    /// There are steps for which nobody here waits, and other nodes to tell; see [`Book::take_unattended`].
    pub unattended: Notify,
    has_peers: AtomicBool,
    /// Leases that somebody in this process works under.
    pub leases: Leases,
    /// Held by whoever looks at what is due: when the next one has it, all that was taken off the clock has been looked at.
    pub looking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Pages {
    queues: HashMap<Arc<str>, Queue>,
    /// What the clock has to look at, soonest first.
    timers: BTreeSet<(Time, Item)>,
    placed: HashMap<Item, Placed>,
    /// Queues with more steps than there are workers waiting here.
    unattended: BTreeSet<Arc<str>>,
    /// The numbers by which ready steps name their definitions, and the lanes of limited queues.
    definitions: HashMap<String, u32>,
    lanes: HashMap<(u32, Arc<str>, QueueLimit), LaneId>,
    /// Lanes for which there was no room, by when that is tried again.
    shut: BTreeSet<(Time, Arc<str>, LaneId)>,
    /// Later timers were left to the store.
    later: bool,
}

#[derive(Default)]
struct Placed {
    ready: Option<(Arc<str>, Ready)>,
    timer: Option<Time>,
}

impl Book {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a step now, in place of what was known before.
    pub fn place(
        &self,
        (run_id, step_seq): (InstanceId, StepSeq),
        agenda: &Agenda,
        definition: &str,
        limit: Option<QueueLimit>,
        now: Time,
    ) {
        let item = (run_id, Some(step_seq));
        let mut pages = self.pages();
        pages.remove(&item);
        let mut timer = agenda.timer;
        let mut placed = Placed::default();
        let (mut waiters, mut choosers, mut unattended) = (None, None, false);
        if let Some(claim) = &agenda.claim {
            if claim.at <= now {
                let definition = pages.number(definition);
                let lane = limit.map(|limit| pages.lane(definition, &claim.queue, limit));
                let behind = u8::MAX - claim.priority;
                let ready = Ready { behind, since: claim.at, run_id, step_seq, definition, lane };
                let queue = pages.queues.entry(claim.queue.clone()).or_default();
                let (takeable, left_out) = queue.insert(ready, limit.unwrap_or_default());
                if takeable {
                    waiters = Some(queue.waiters.clone());
                    choosers = (queue.choosy > 0).then(|| queue.choosers.clone());
                }
                unattended = queue.len() > queue.waiting && self.has_peers.load(Ordering::Relaxed);
                if unattended {
                    pages.unattended.insert(claim.queue.clone());
                }
                if left_out != Some(ready) {
                    placed.ready = Some((claim.queue.clone(), ready));
                }
                if let Some(Ready { run_id, step_seq, .. }) = left_out {
                    pages.forget_ready(&(run_id, Some(step_seq)));
                }
            } else {
                timer = Some(timer.map_or(claim.at, |timer| timer.min(claim.at)));
            }
        }
        let sooner = pages.set_timer(item, timer, &mut placed);
        if placed.ready.is_some() || placed.timer.is_some() {
            pages.placed.insert(item, placed);
        }
        drop(pages);
        if let Some(waiters) = waiters {
            waiters.notify_one();
        }
        if let Some(choosers) = choosers {
            choosers.notify_waiters();
        }
        if unattended {
            self.unattended.notify_one();
        }
        if sooner {
            self.sooner.notify_one();
        }
    }

    /// Whether anything is known of it.
    pub fn knows(&self, item: &Item) -> bool {
        self.pages().placed.contains_key(item)
    }

    /// Whether everything in the store is to be looked at again, because there is room for it now.
    pub fn take_forgot(&self) -> bool {
        self.forgot.swap(false, Ordering::AcqRel)
    }

    fn recall(&self) {
        self.forgot.store(true, Ordering::Release);
        self.look.notify_one();
    }

    /// Timers later than those that are known wait in the store.
    pub fn is_full(&self) -> bool {
        self.pages().later
    }

    /// Lets the store be looked at.
    pub fn open_store(&self) {
        self.opened.store(true, Ordering::Release);
        self.look.notify_one();
    }

    pub fn is_opened(&self) -> bool {
        self.opened.load(Ordering::Acquire)
    }

    /// Everything that the store held when it was opened has been seen.
    pub fn set_loaded(&self) {
        if !self.loaded.swap(true, Ordering::AcqRel) {
            self.loading.notify_waiters();
        }
    }

    pub fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::Acquire)
    }

    pub async fn until_loaded(&self) {
        let mut notified = std::pin::pin!(self.loading.notified());
        notified.as_mut().enable();
        if !self.is_loaded() {
            notified.await;
        }
    }

    pub fn take_unattended(&self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.pages().unattended)
    }

    /// Whether there are other nodes who may have workers for what nobody here claims.
    pub fn set_peers(&self, has_peers: bool) {
        self.has_peers.store(has_peers, Ordering::Relaxed);
    }

    /// Counts as waiting in this queue until what is returned is dropped.
    pub fn wait_in(&self, queue: &Arc<str>, reach: &Reach) -> InQueue<'_> {
        let choosy = *reach != Reach::All;
        let mut pages = self.pages();
        let place = pages.queues.entry(queue.clone()).or_default();
        place.waiting += 1;
        place.choosy += usize::from(choosy);
        InQueue { book: self, queue: queue.clone(), choosy }
    }

    pub fn is_waited_for(&self, queue: &str) -> bool {
        self.pages().queues.get(queue).is_some_and(|queue| queue.waiting > 0)
    }

    /// Has the clock look at it at this time; for what the store says is due.
    pub fn remind(&self, item: Item, at: Option<Time>) {
        let mut pages = self.pages();
        let mut placed = pages.placed.remove(&item).unwrap_or_default();
        if let Some(old) = placed.timer.take() {
            pages.timers.remove(&(old, item));
        }
        let sooner = pages.set_timer(item, at, &mut placed);
        if placed.ready.is_some() || placed.timer.is_some() {
            pages.placed.insert(item, placed);
        }
        drop(pages);
        if sooner {
            self.sooner.notify_one();
        }
    }

    /// At this time at the latest: what is to be looked at sooner stays so.
    pub fn remind_by(&self, item: Item, at: Time) {
        let known = self.pages().placed.get(&item).and_then(|placed| placed.timer);
        if known.is_none_or(|known| known > at) {
            self.remind(item, Some(at));
        }
    }

    /// The store says that this is due. It is looked at, unless it can be claimed already, or has been `looked_at` and waits
    /// for something else.
    pub fn told(&self, item: Item, due_at: Time, looked_at: bool) {
        let waits = self.pages().placed.get(&item).is_some_and(|placed| placed.ready.is_some() || looked_at);
        if !waits {
            self.remind_by(item, due_at);
        }
    }

    /// Takes up to `max` steps out of a queue, as far as this reaches; whoever takes them claims them or gives them back.
    pub fn take(&self, queue: &str, max: usize, reach: &Reach) -> Vec<(InstanceId, StepSeq)> {
        self.take_of(queue, max, reach, |_| Lanes::Open)
    }

    /// Takes one step for somebody who can only be given what needs no room, or has `room` under a definition's limit.
    pub fn take_next(
        &self,
        queue: &Arc<str>,
        reach: &Reach,
        room: Option<(&str, QueueLimit)>,
    ) -> Option<(InstanceId, StepSeq)> {
        let lanes = |pages: &Pages| {
            let lane = |(definition, limit)| {
                let definition = pages.definitions.get(definition)?;
                pages.lanes.get(&(*definition, queue.clone(), limit)).copied()
            };
            Lanes::Only(room.and_then(lane))
        };
        self.take_of(queue, 1, reach, lanes).pop()
    }

    fn take_of(
        &self,
        queue: &str,
        max: usize,
        reach: &Reach,
        lanes: impl FnOnce(&Pages) -> Lanes,
    ) -> Vec<(InstanceId, StepSeq)> {
        let mut pages = self.pages();
        let (named, lanes) = (pages.named(reach), lanes(&pages));
        let mut taken = Vec::new();
        let (mut more, mut drained) = (None, false);
        if let Some(queue) = pages.queues.get_mut(queue) {
            let ready = queue.take(max, named.as_deref(), lanes);
            taken.extend(ready.into_iter().map(|ready| (ready.run_id, ready.step_seq)));
            more = queue.has_any(None).then(|| queue.waiters.clone());
            drained = queue.is_drained();
        }
        for (run_id, step_seq) in &taken {
            pages.forget_ready(&(*run_id, Some(*step_seq)));
        }
        drop(pages);
        if drained {
            self.recall();
        }
        // There is more for the next one who waits.
        if let Some(waiters) = more {
            waiters.notify_one();
        }
        taken
    }

    /// Whether there is anything to take, as far as this reaches.
    pub fn has_ready(&self, queue: &str, reach: &Reach) -> bool {
        let pages = self.pages();
        let named = pages.named(reach);
        pages.queues.get(queue).is_some_and(|queue| queue.has_any(named.as_deref()))
    }

    /// There is no room under this definition's limit: nobody is offered such a step before that time, or before somebody
    /// leaves ([`Book::open`]).
    pub fn shut(&self, queue: &Arc<str>, definition: &str, limit: QueueLimit, until: Time) {
        let mut pages = self.pages();
        let definition = pages.number(definition);
        let lane = pages.lane(definition, queue, limit);
        let Some(place) = pages.queues.get_mut(queue) else { return };
        if let Some(before) = place.shut(lane, until) {
            pages.shut.remove(&(before, queue.clone(), lane));
        }
        let sooner = pages.next_due().is_none_or(|next| until < next);
        pages.shut.insert((until, queue.clone(), lane));
        drop(pages);
        if sooner {
            self.sooner.notify_one();
        }
    }

    /// Somebody has left a limited queue: whoever found no room there is offered again.
    pub fn open(&self, queue: &Arc<str>, definition: &str) {
        let mut pages = self.pages();
        let Some(definition) = pages.definitions.get(definition).copied() else { return };
        let lanes = pages.queues.get(queue).map_or(vec![], |queue| queue.shut_lanes(definition));
        let woken: Vec<_> = lanes.into_iter().filter_map(|lane| pages.open(queue, lane)).collect();
        drop(pages);
        woken.iter().for_each(Woken::wake);
    }

    /// How many steps wait for workers in each queue that has ever had any.
    pub fn depths(&self) -> Vec<(Arc<str>, usize)> {
        let pages = self.pages();
        let used = pages.queues.iter().filter(|(_, queue)| queue.used);
        used.map(|(name, queue)| (name.clone(), queue.len())).collect()
    }

    /// How many things the clock has to look at.
    pub fn timers(&self) -> usize {
        self.pages().timers.len()
    }

    /// Nobody is to wait any more.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        for queue in self.pages().queues.values() {
            queue.waiters.notify_waiters();
            queue.choosers.notify_waiters();
        }
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Wakes when something comes into the queue that may be in reach.
    pub fn waiters(&self, queue: &Arc<str>, reach: &Reach) -> Arc<Notify> {
        let mut pages = self.pages();
        let queue = pages.queues.entry(queue.clone()).or_default();
        if *reach == Reach::All { queue.waiters.clone() } else { queue.choosers.clone() }
    }

    /// What is due, of so many runs, and since when, taken off the clock. Limited queues are tried again in passing.
    pub fn due(&self, now: Time, runs: usize) -> Vec<(Time, Item)> {
        let mut pages = self.pages();
        let mut woken = Vec::new();
        while let Some((at, queue, lane)) = pages.shut.first().cloned()
            && at <= now
        {
            woken.extend(pages.open(&queue, lane));
        }
        let (mut due, mut seen) = (Vec::new(), HashSet::new());
        while due.len() < DUE_AT_ONCE
            && let Some((at, item)) = pages.timers.first().copied()
            && at <= now
            && (seen.len() < runs || seen.contains(&item.0))
        {
            seen.insert(item.0);
            pages.timers.pop_first();
            pages.forget_timer(&item);
            due.push((at, item));
        }
        let drained = pages.later && pages.timers.len() < TIMERS / 2;
        pages.later &= !drained;
        drop(pages);
        if drained {
            self.recall();
        }
        woken.iter().for_each(Woken::wake);
        due
    }

    pub fn next_due(&self) -> Option<Time> {
        self.pages().next_due()
    }
}

/// A claim that waits for work.
pub struct InQueue<'b> {
    book: &'b Book,
    queue: Arc<str>,
    choosy: bool,
}

impl Drop for InQueue<'_> {
    fn drop(&mut self) {
        if let Some(queue) = self.book.pages().queues.get_mut(&self.queue) {
            queue.waiting = queue.waiting.saturating_sub(1);
            queue.choosy = queue.choosy.saturating_sub(usize::from(self.choosy));
        }
    }
}

/// Who waits in a queue in which there is something to take again.
struct Woken {
    waiters: Arc<Notify>,
    choosers: Arc<Notify>,
}

impl Woken {
    fn wake(&self) {
        self.waiters.notify_one();
        self.choosers.notify_waiters();
    }
}

/// What of a queue somebody may claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    All,
    /// Steps of runs of these definitions.
    Only(Vec<String>),
}

impl Reach {
    /// By the grants of this moment; `None` where somebody may work on nothing at all.
    pub fn of(actor_ref: &str, registry: &Registry) -> Option<Reach> {
        if registry.permitted(actor_ref, scopes::TASKS_WORK) {
            return Some(Reach::All);
        }
        let finer = format!("{}:", scopes::TASKS_WORK);
        let held = registry.grants().active_scopes(actor_ref, &finer);
        let only: Vec<String> = held.map(|scope| scope[finer.len()..].to_owned()).collect();
        (!only.is_empty()).then_some(Reach::Only(only))
    }
}

impl Pages {
    fn number(&mut self, definition: &str) -> u32 {
        if let Some(number) = self.definitions.get(definition) {
            return *number;
        }
        let number = u32::try_from(self.definitions.len()).unwrap_or(u32::MAX);
        self.definitions.insert(definition.to_owned(), number);
        number
    }

    fn lane(&mut self, definition: u32, queue: &Arc<str>, limit: QueueLimit) -> LaneId {
        let next = u32::try_from(self.lanes.len()).unwrap_or(u32::MAX).saturating_add(1);
        *self.lanes.entry((definition, queue.clone(), limit)).or_insert(LaneId::new(next).unwrap_or(LaneId::MAX))
    }

    /// The definitions that are in reach; `None` where all are.
    fn named(&self, reach: &Reach) -> Option<Vec<u32>> {
        let Reach::Only(names) = reach else { return None };
        Some(names.iter().filter_map(|name| self.definitions.get(name).copied()).collect())
    }

    /// Opens a lane that is shut.
    fn open(&mut self, queue: &Arc<str>, lane: LaneId) -> Option<Woken> {
        let place = self.queues.get_mut(queue)?;
        let until = place.open(lane)?;
        self.shut.remove(&(until, queue.clone(), lane));
        Some(Woken { waiters: place.waiters.clone(), choosers: place.choosers.clone() })
    }

    fn next_due(&self) -> Option<Time> {
        let timer = self.timers.first().map(|(at, _)| *at);
        let lane = self.shut.first().map(|(at, ..)| *at);
        timer.into_iter().chain(lane).min()
    }

    fn remove(&mut self, item: &Item) {
        let Some(placed) = self.placed.remove(item) else { return };
        if let Some((queue, ready)) = placed.ready
            && let Some(queue) = self.queues.get_mut(&queue)
        {
            queue.remove(&ready);
        }
        if let Some(at) = placed.timer {
            self.timers.remove(&(at, *item));
        }
    }

    fn forget_timer(&mut self, item: &Item) {
        let done = self.placed.get_mut(item).is_some_and(|placed| {
            placed.timer = None;
            placed.ready.is_none()
        });
        if done {
            self.placed.remove(item);
        }
    }

    fn forget_ready(&mut self, item: &Item) {
        let done = self.placed.get_mut(item).is_some_and(|placed| {
            placed.ready = None;
            placed.timer.is_none()
        });
        if done {
            self.placed.remove(item);
        }
    }

    /// True where the clock has to wake earlier than it thought.
    fn set_timer(&mut self, item: Item, at: Option<Time>, placed: &mut Placed) -> bool {
        let Some(at) = at else { return false };
        if self.timers.len() >= TIMERS
            && let Some((last, dropped)) = self.timers.last().copied()
        {
            self.later = true;
            if at >= last {
                return false;
            }
            self.timers.pop_last();
            self.forget_timer(&dropped);
        }
        placed.timer = Some(at);
        let first = self.timers.first().is_none_or(|(first, _)| at < *first);
        self.timers.insert((at, item));
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersign_kernel::run::Claim;
    use uuid::Uuid;

    fn run(n: u128) -> InstanceId {
        InstanceId(Uuid::from_u128(n))
    }

    fn claim(at: i64, priority: u8) -> Agenda {
        Agenda { claim: Some(Claim { at: Time(at), queue: Arc::from("q"), priority }), timer: None }
    }

    #[test]
    fn priority_goes_first_then_who_waited_longest() {
        let book = Book::default();
        book.place((run(1), 0), &claim(10, 5), "d", None, Time(100));
        book.place((run(2), 0), &claim(5, 5), "d", None, Time(100));
        book.place((run(3), 0), &claim(50, 9), "d", None, Time(100));
        book.place((run(4), 0), &claim(200, 9), "d", None, Time(100));
        assert_eq!(book.take("q", 10, &Reach::All), vec![(run(3), 0), (run(2), 0), (run(1), 0)]);
        assert_eq!(book.next_due(), Some(Time(200)), "the fourth waits for its time");
        assert_eq!(book.due(Time(200), 10), vec![(Time(200), (run(4), Some(0)))]);
        assert!(book.pages().placed.is_empty());
    }

    /// However much there is to do, the agenda holds the best of it, and asks for the rest when there is room.
    #[test]
    fn what_does_not_fit_is_left_to_the_store() {
        let book = Book::default();
        let all = super::super::queue::LINE as u128 + 10;
        for n in 0..all {
            let late = i64::try_from(all - n).expect("small");
            book.place((run(n), 0), &claim(late, if n < 5 { 9 } else { 1 }), "d", None, Time(i64::MAX));
        }
        assert_eq!(book.pages().placed.len(), super::super::queue::LINE);
        let first: Vec<InstanceId> = book.take("q", 6, &Reach::All).into_iter().map(|(run_id, _)| run_id).collect();
        assert_eq!(first, [run(4), run(3), run(2), run(1), run(0), run(all - 1)]);
        assert!(!book.take_forgot());
        book.take("q", super::super::queue::LINE / 2, &Reach::All);
        assert!(book.take_forgot() && !book.take_forgot(), "the store is read again, once");
    }

    #[test]
    fn the_soonest_timers_are_kept() {
        let book = Book::default();
        let all = TIMERS as u128 + 10;
        for n in 0..all {
            book.remind((run(n), None), Some(Time(i64::try_from(all - n).expect("small"))));
        }
        assert_eq!((book.timers(), book.is_full(), book.pages().placed.len()), (TIMERS, true, TIMERS));
        assert_eq!(book.next_due(), Some(Time(1)));
        book.remind((run(all), None), Some(Time(i64::MAX)));
        assert!(!book.knows(&(run(all), None)), "it is later than all of them");
        for _ in 0..TIMERS / 2 / DUE_AT_ONCE {
            assert_eq!(book.due(Time(i64::MAX), TIMERS).len(), DUE_AT_ONCE, "a batch is bounded");
        }
        assert!(!book.take_forgot());
        assert_eq!(book.due(Time(i64::MAX), 1).len(), 1);
        assert!(book.take_forgot() && !book.is_full());
    }

    #[test]
    fn a_step_is_placed_once() {
        let book = Book::default();
        book.place((run(1), 0), &claim(10, 5), "d", None, Time(100));
        book.place((run(1), 0), &claim(20, 5), "d", None, Time(100));
        assert_eq!(book.take("q", 10, &Reach::All).len(), 1);
        book.place((run(1), 0), &claim(20, 5), "d", None, Time(100));
        book.place((run(1), 0), &Agenda::default(), "d", None, Time(100));
        assert!(book.take("q", 10, &Reach::All).is_empty());
        assert_eq!(book.next_due(), None);
    }

    #[test]
    fn who_may_work_on_some_definitions_takes_nothing_else() {
        let book = Book::default();
        for (n, definition) in [(1, "a"), (2, "b"), (3, "c"), (4, "b")] {
            book.place((run(n), 0), &claim(i64::try_from(n).expect("small"), 5), definition, None, Time(100));
        }
        let only = |names: &[&str]| Reach::Only(names.iter().map(|name| (*name).to_owned()).collect());
        assert!(!book.has_ready("q", &only(&["d"])) && book.take("q", 10, &only(&["d"])).is_empty());
        assert_eq!(book.take("q", 1, &only(&["b", "c"])), vec![(run(2), 0)]);
        assert_eq!(book.take("q", 10, &only(&["b", "c"])), vec![(run(3), 0), (run(4), 0)]);
        assert!(!book.has_ready("q", &only(&["b"])) && book.has_ready("q", &Reach::All));
        assert_eq!(book.take("q", 10, &Reach::All), vec![(run(1), 0)]);
        assert!(book.pages().placed.is_empty());
    }

    #[test]
    fn a_lane_is_shut_until_somebody_leaves_or_its_time_comes() {
        let (book, q) = (Book::default(), Arc::from("q"));
        let limit = |limit| QueueLimit { limit: Some(limit), rate: None };
        for (n, priority, limited) in [(1, 1, Some(1)), (2, 9, Some(1)), (3, 5, None), (4, 7, Some(2))] {
            book.place((run(n), 0), &claim(1, priority), "d", limited.map(limit), Time(100));
        }
        // As many as there can be room for, in order of priority.
        assert_eq!(book.take("q", 10, &Reach::All), vec![(run(2), 0), (run(4), 0), (run(3), 0)]);
        book.shut(&q, "d", limit(1), Time(300));
        assert!(!book.has_ready("q", &Reach::All) && book.take("q", 10, &Reach::All).is_empty());
        assert_eq!(book.next_due(), Some(Time(300)));
        book.place((run(2), 0), &claim(1, 9), "d", Some(limit(1)), Time(100));
        assert!(!book.has_ready("q", &Reach::All), "who comes meanwhile waits too");
        assert_eq!(book.take_next(&q, &Reach::All, None), None);
        assert_eq!(book.take_next(&q, &Reach::All, Some(("d", limit(1)))), Some((run(2), 0)), "who brings room along");
        book.open(&q, "other");
        assert!(!book.has_ready("q", &Reach::All));
        book.open(&q, "d");
        assert_eq!((book.next_due(), book.take("q", 10, &Reach::All)), (None, vec![(run(1), 0)]));

        book.place((run(1), 0), &claim(1, 1), "d", Some(limit(1)), Time(100));
        book.shut(&q, "d", limit(1), Time(300));
        book.shut(&q, "d", limit(1), Time(200));
        assert!(book.due(Time(199), 10).is_empty() && !book.has_ready("q", &Reach::All));
        assert!(book.due(Time(200), 10).is_empty() && book.has_ready("q", &Reach::All));
        let only = |name: &str| Reach::Only(vec![name.to_owned()]);
        assert!(book.has_ready("q", &only("d")) && !book.has_ready("q", &only("other")));
        assert_eq!(book.take("q", 10, &only("d")), vec![(run(1), 0)]);
        assert_eq!(book.next_due(), None);
        assert!(book.pages().placed.is_empty());
    }
}
