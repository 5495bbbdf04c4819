//! Queues in which a definition may only have so many leases, or only so many claims in a while (`queues:`). A lease takes
//! a slot, a claim a token: keys that the store holds once, by the mechanism of idempotency keys, on whichever node. A
//! slot is given back when the step is nobody's any more, or passes on to its worker's next task; a token is given back by
//! the clock.

use super::claims::Offer;
use super::round::Round;
use super::{Committer, Job};
use crate::outcome::{Command, Target};
use crate::port::Unit;
use crate::rows::{IdempotencyRow, Write};
use countersign_kernel::plan::{Plan, QueueLimit, StepSeq};
use countersign_kernel::run::{self, Run};
use countersign_kernel::{Digest, InstanceId, Time};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The slot of a lease is said to be kept until here plus the step's number: so it is found again.
const LEASE_SLOTS: i64 = i64::MAX / 2;
/// Who is said to hold such keys; no actor can have this name's keys.
const HOLDER: &str = "\u{1}queue";
/// Where there was no room, it is looked for again after this long: a slot may be given back on another node.
const AGAIN_US: i64 = 200_000;
/// So many keys are asked after in one batch, beyond those that it may need. A smaller limit is looked at whole; in a larger
/// one that is nearly full, the search goes on where the last batch left it.
const LOOK: u32 = 128;

/// What is counted: the beginning of its keys, and how many of them there are.
type Counted = (String, u32);

/// The keys of a limit stand in a circle. Whoever needs one goes round from where the last one was found: what was taken
/// long ago is likely to be free again.
#[derive(Default)]
pub struct Circles(HashMap<Counted, Circle>);

struct Circle {
    at: u32,
    /// How many were asked after in this round, and how many of those were passed by.
    looked: u32,
    gone: u32,
    /// How many were passed by since one was found, also in earlier rounds, and when the first of them is free.
    held: u32,
    free_at: Time,
}

impl Circle {
    fn at(at: u32) -> Self {
        Circle { at, looked: 0, gone: 0, held: 0, free_at: Time(i64::MAX) }
    }

    /// A new round begins behind those that were passed by.
    fn go_on(&mut self, count: u32, looked: u32) {
        let at = after(self.at, self.gone, count);
        *self = match looked < count {
            true => Circle { at, looked, gone: 0, ..*self },
            false => Circle { looked: count, ..Circle::at(at) },
        };
    }

    /// Those that were asked after, from this one on.
    fn numbers(&self, from: u32, count: u32) -> impl Iterator<Item = u32> + use<> {
        let at = self.at;
        (from..self.looked).map(move |n| after(at, n, count))
    }
}

/// So many further round the circle.
fn after(at: u32, steps: u32, count: u32) -> u32 {
    let place = (u64::from(at) + u64::from(steps)) % u64::from(count.max(1));
    u32::try_from(place).unwrap_or(0)
}

/// By when the slot of this step's lease is found.
pub fn slot_of(step_seq: StepSeq) -> Time {
    Time(LEASE_SLOTS + i64::from(step_seq))
}

/// The step whose slot is found so.
fn step_of(slot: Time) -> Option<StepSeq> {
    slot.0.checked_sub(LEASE_SLOTS).and_then(|seq| StepSeq::try_from(seq).ok())
}

/// The limit of a step's queue, if its definition sets one.
pub fn limit_of(run: &Run, step_seq: StepSeq) -> Option<QueueLimit> {
    // Who looks at pins takes no slot.
    if run.plan.queues.is_empty() || run.survey_of(step_seq).is_some_and(|survey| survey.lease.is_none()) {
        return None;
    }
    limit_in(&run.plan, &run.queue(step_seq, run.cell(step_seq)?.role))
}

/// The limit that a run's definition sets in this queue, if it does.
pub fn limit_in(plan: &Plan, queue: &str) -> Option<QueueLimit> {
    plan.queues.get(queue).copied().filter(|limit| *limit != QueueLimit::default())
}

/// A definition's limit in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Limited {
    pub definition: String,
    queue: Arc<str>,
    pub limit: QueueLimit,
}

impl Limited {
    /// A lease, and a claim within a while, as far as the queue limits them.
    fn counted(&self) -> [Option<Counted>; 2] {
        let Limited { definition, queue, limit } = self;
        [
            limit.limit.map(|count| (format!("lease/{definition}/{queue}/"), count)),
            limit.rate.map(|rate| (format!("rate/{definition}/{queue}/"), rate.count)),
        ]
    }

    fn token_until(&self, now: Time) -> Time {
        Time(now.0.saturating_add(self.limit.rate.map_or(0, |rate| rate.per)))
    }
}

fn key(stem: &str, number: u32) -> (String, String) {
    (HOLDER.to_owned(), format!("{stem}{}", u64::from(number) + 1))
}

fn held_until(key: String, run_id: InstanceId, until: Time) -> IdempotencyRow {
    IdempotencyRow {
        actor_ref: HOLDER.to_owned(),
        key,
        instance_id: run_id,
        request_digest: Digest([0; 32]),
        answer: String::new(),
        expires_at: until,
    }
}

/// Why there is no key: all are held, the first of them until then at the latest; or not all have been looked at.
enum NoKey {
    AllHeld(Time),
    NotFound,
}

/// Room for one more step in a limited queue, once the step that is reported on has left it.
#[derive(Clone)]
pub(super) struct Room {
    pub under: Limited,
    /// The key of the slot that the step leaves.
    left: Option<String>,
    /// Otherwise one that is free.
    slot: Option<String>,
    token: Option<String>,
}

impl Committer {
    /// The keys whose holders must be known before the offered steps of these jobs are decided, and those who ask for a
    /// next task.
    pub(super) fn limit_keys(&mut self, jobs: &VecDeque<Job>) -> Vec<(String, String)> {
        let mut wanted: HashMap<Counted, u32> = HashMap::new();
        for job in jobs {
            let next = match &job.call.command {
                Command::Run {
                    target: Target::Existing(run_id),
                    command: run::Command::Complete { task, claim_next: Some(_), .. },
                } => Some((*run_id, task.step_seq)),
                _ => None,
            };
            for (run_id, step_seq) in job.offered.iter().copied().chain(next) {
                let Some(limited) = self.limited(run_id, step_seq) else { continue };
                for counted in limited.counted().into_iter().flatten() {
                    *wanted.entry(counted).or_default() += 1;
                }
            }
        }
        let mut keys = Vec::new();
        for ((stem, count), steps) in wanted {
            // Two nodes that begin at different places are seldom in each other's way.
            let mut begin = || u32::from_le_bytes(self.entropy.take().unwrap_or_default()) % count.max(1);
            let known = self.circles.0.entry((stem.clone(), count));
            let circle = known.or_insert_with(|| Circle::at(begin()));
            circle.go_on(count, steps.saturating_add(LOOK));
            keys.extend(circle.numbers(0, count).map(|number| key(&stem, number)));
        }
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    pub(super) fn limited(&mut self, run_id: InstanceId, step_seq: StepSeq) -> Option<Limited> {
        let instance = self.cache.get(&run_id)?;
        let run = instance.run.as_deref()?;
        let limit = limit_of(run, step_seq)?;
        let definition = instance.process.definition.as_ref()?.name.clone();
        Some(Limited { definition, queue: run.queue(step_seq, run.cell(step_seq)?.role), limit })
    }

    /// Those of the offered steps for which there is room, with the keys that they take. Room is given in the order in which
    /// they were offered; for whom there is none, goes back to where it stood.
    pub(super) fn with_room(&mut self, offered: &[(InstanceId, StepSeq)], round: &mut Round) -> Vec<Offer> {
        let mut offers = Vec::with_capacity(offered.len());
        for (place, (run_id, step_seq)) in offered.iter().copied().enumerate() {
            if !self.cache.contains_key(&run_id) {
                self.look_again(run_id, step_seq);
            } else if let Some(keys) = self.take_keys(run_id, step_seq, round) {
                for row in &keys {
                    round.recalled.insert((row.actor_ref.clone(), row.key.clone()), row.clone());
                }
                offers.push(Offer { place, run_id, step_seq, keys });
            } else {
                self.put_back(run_id, step_seq);
            }
        }
        offers
    }

    /// The keys that a claim of this step takes; `None` where there is no room.
    fn take_keys(&mut self, run_id: InstanceId, step_seq: StepSeq, round: &Round) -> Option<Vec<IdempotencyRow>> {
        let Some(limited) = self.limited(run_id, step_seq) else { return Some(vec![]) };
        let now = self.now();
        let mut taken = Vec::new();
        for (counted, until) in limited.counted().into_iter().zip([slot_of(step_seq), limited.token_until(now)]) {
            let Some(counted) = counted else { continue };
            match self.free(&counted, round) {
                Ok(key) => taken.push(held_until(key, run_id, until)),
                Err(NoKey::AllHeld(free_at)) => {
                    let until = free_at.min(Time(now.0 + AGAIN_US));
                    self.book.shut(&limited.queue, &limited.definition, limited.limit, until);
                    return None;
                }
                Err(NoKey::NotFound) => return None,
            }
        }
        Some(taken)
    }

    /// One of the keys that were asked after and that nobody holds.
    fn free(&mut self, counted: &Counted, round: &Round) -> Result<String, NoKey> {
        let (stem, count) = counted;
        let Some(circle) = self.circles.0.get_mut(counted) else { return Err(NoKey::NotFound) };
        for number in circle.numbers(circle.gone, *count) {
            circle.gone += 1;
            let key = key(stem, number);
            let Some(row) = round.recalled.get(&key) else {
                circle.held = 0;
                return Ok(key.1);
            };
            circle.held = circle.held.saturating_add(1);
            circle.free_at = circle.free_at.min(row.expires_at);
        }
        if circle.looked < *count && circle.held < *count {
            return Err(NoKey::NotFound);
        }
        circle.held = 0;
        Err(NoKey::AllHeld(std::mem::replace(&mut circle.free_at, Time(i64::MAX))))
    }

    /// A step that could not be claimed leaves the room that it was given.
    pub(super) fn leave(
        &mut self,
        run_id: InstanceId,
        step_seq: StepSeq,
        keys: Vec<IdempotencyRow>,
        round: &mut Round,
    ) {
        if keys.is_empty() {
            return;
        }
        for row in keys {
            round.recalled.remove(&(row.actor_ref, row.key));
        }
        if let Some(limited) = self.limited(run_id, step_seq) {
            self.book.open(&limited.queue, &limited.definition);
        }
    }

    /// Room for the next task of whoever completes this step: `Ok(None)` where none is needed, an error where there is none.
    pub(super) fn room_after(&mut self, run_id: InstanceId, done: StepSeq, round: &Round) -> Result<Option<Room>, ()> {
        let Some(under) = self.limited(run_id, done) else { return Ok(None) };
        let [leases, claims] = under.counted();
        let mut room = Room { under, left: None, slot: None, token: None };
        if let Some(leases) = leases {
            room.left = self.slot_held(&leases, run_id, done, round);
            if room.left.is_none() {
                room.slot = Some(self.free(&leases, round).map_err(drop)?);
            }
        }
        if let Some(claims) = claims {
            room.token = Some(self.free(&claims, round).map_err(drop)?);
        }
        Ok(Some(room))
    }

    /// The key of a step's slot, if it is among those that were asked after.
    fn slot_held(&self, counted: &Counted, run_id: InstanceId, step_seq: StepSeq, round: &Round) -> Option<String> {
        let (stem, count) = counted;
        let mut keys = self.circles.0.get(counted)?.numbers(0, *count).map(|number| key(stem, number));
        let own = |row: &IdempotencyRow| row.instance_id == run_id && row.expires_at == slot_of(step_seq);
        keys.find(|key| round.recalled.get(key).is_some_and(own)).map(|(_, key)| key)
    }

    /// The room that one step leaves is another's, which is claimed in `unit`.
    pub(super) fn pass_on(
        &self,
        room: Room,
        (left, done): (usize, StepSeq),
        (unit, step_seq): (usize, StepSeq),
        round: &mut Round,
    ) {
        let run_id = round.batch.units[unit].instance_id;
        if let Some(key) = room.left {
            let leaves =
                |write: &Write| matches!(write, Write::ForgetKeys { expires_at, .. } if *expires_at == slot_of(done));
            round.batch.units[left].writes.retain(|write| !leaves(write));
            let (actor_ref, expires_at) = (HOLDER.to_owned(), slot_of(step_seq));
            let passed = Write::PassKey { actor_ref, key, instance_id: run_id, expires_at };
            round.batch.units[unit].writes.push(passed);
        }
        let slot = room.slot.map(|key| held_until(key, run_id, slot_of(step_seq)));
        let token = room.token.map(|key| held_until(key, run_id, room.under.token_until(self.now())));
        for row in slot.into_iter().chain(token) {
            round.recalled.insert((row.actor_ref.clone(), row.key.clone()), row.clone());
            round.batch.units[unit].idempotency.push(row);
        }
    }

    /// Whoever waits for the slots that a committed unit gave back is offered again.
    pub(super) fn open_freed(&self, run: &Run, definition: &str, unit: &Unit) {
        if run.plan.queues.is_empty() {
            return;
        }
        for write in &unit.writes {
            if let Write::ForgetKeys { expires_at, .. } = write
                && let Some(seq) = step_of(*expires_at)
                && let Some(cell) = run.cell(seq)
            {
                self.book.open(&run.queue(seq, cell.role), definition);
            }
        }
    }
}
