//! Queues in which a definition may only have so many leases, or only so many claims in a while (`queues:`). A lease takes
//! a slot, a claim a token: keys that the store holds once, by the mechanism of idempotency keys, on whichever node. A
//! slot is given back when the step is nobody's any more; a token by the clock.

use super::round::Round;
use super::{Committer, Job};
use crate::outcome::Command;
use crate::rows::IdempotencyRow;
use countersign_kernel::plan::{QueueLimit, StepSeq};
use countersign_kernel::run::Run;
use countersign_kernel::{Digest, InstanceId, Time};
use std::collections::{HashMap, VecDeque};

/// The slot of a lease is said to be kept until here plus the step's number: so it is found again.
const LEASE_SLOTS: i64 = i64::MAX / 2;
/// Who is said to hold such keys; no actor can have this name's keys.
const HOLDER: &str = "\u{1}queue";
/// A step that found no slot is looked at again after this long.
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

#[derive(Default)]
struct Circle {
    at: u32,
    /// How many were asked after in this round, and how many of those were passed by.
    looked: u32,
    gone: u32,
}

impl Circle {
    /// Those that were asked after and not passed by yet.
    fn numbers(&self, count: u32) -> impl Iterator<Item = u32> + use<> {
        let at = self.at;
        (self.gone..self.looked).map(move |n| after(at, n, count))
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

/// The limit of a step's queue, if its definition sets one.
pub fn limit_of(run: &Run, step_seq: StepSeq) -> Option<QueueLimit> {
    let role = run.cell(step_seq)?.role;
    run.plan.queues.get(&*run.queue(step_seq, role)).copied()
}

/// A lease, and a claim within a while, as far as the queue limits them.
fn counted(definition: &str, queue: &str, limit: &QueueLimit) -> [Option<Counted>; 2] {
    [
        limit.limit.map(|count| (format!("lease/{definition}/{queue}/"), count)),
        limit.rate.map(|rate| (format!("rate/{definition}/{queue}/"), rate.count)),
    ]
}

fn key(stem: &str, number: u32) -> (String, String) {
    (HOLDER.to_owned(), format!("{stem}{}", u64::from(number) + 1))
}

impl Committer {
    /// The keys whose holders must be known before the offered steps of these jobs are decided.
    pub(super) fn limit_keys(&mut self, jobs: &VecDeque<Job>) -> Vec<(String, String)> {
        let mut wanted: HashMap<Counted, u32> = HashMap::new();
        for job in jobs.iter().filter(|job| matches!(job.call.command, Command::Claim(_))) {
            for (run_id, step_seq) in &job.offered {
                let Some((definition, queue, limit)) = self.limited(*run_id, *step_seq) else { continue };
                for counted in counted(&definition, &queue, &limit).into_iter().flatten() {
                    *wanted.entry(counted).or_default() += 1;
                }
            }
        }
        let mut keys = Vec::new();
        for ((stem, count), steps) in wanted {
            // Two nodes that begin at different places are seldom in each other's way.
            let mut begin = || u32::from_le_bytes(self.entropy.take().unwrap_or_default()) % count.max(1);
            let known = self.circles.0.entry((stem.clone(), count));
            let circle = known.or_insert_with(|| Circle { at: begin(), ..Circle::default() });
            let at = after(circle.at, circle.gone, count);
            *circle = Circle { at, looked: count.min(steps.saturating_add(LOOK)), gone: 0 };
            keys.extend(circle.numbers(count).map(|number| key(&stem, number)));
        }
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    pub(super) fn limited(&mut self, run_id: InstanceId, step_seq: StepSeq) -> Option<(String, String, QueueLimit)> {
        let instance = self.cache.get(&run_id)?;
        let run = instance.run.as_deref()?;
        let limit = limit_of(run, step_seq)?;
        let definition = instance.process.definition.as_ref()?.name.clone();
        Some((definition, run.queue(step_seq, run.cell(step_seq)?.role).to_string(), limit))
    }

    /// The keys that a claim of this step takes; `None` where there is no room, and the step is put off.
    pub(super) fn take_keys(
        &mut self,
        run_id: InstanceId,
        step_seq: StepSeq,
        round: &Round,
    ) -> Option<Vec<IdempotencyRow>> {
        let Some((definition, queue, limit)) = self.limited(run_id, step_seq) else { return Some(vec![]) };
        let now = self.now();
        let token_until = Time(now.0.saturating_add(limit.rate.map_or(0, |rate| rate.per)));
        let mut taken = Vec::new();
        for (counted, until) in counted(&definition, &queue, &limit).into_iter().zip([slot_of(step_seq), token_until]) {
            let Some(counted) = counted else { continue };
            match self.free(&counted, until, run_id, round) {
                Some(row) => taken.push(row),
                None => {
                    self.book.remind((run_id, Some(step_seq)), Some(Time(now.0 + AGAIN_US)));
                    return None;
                }
            }
        }
        Some(taken)
    }

    /// One of the keys that were asked after and that nobody holds.
    fn free(&mut self, counted: &Counted, until: Time, run_id: InstanceId, round: &Round) -> Option<IdempotencyRow> {
        let (stem, count) = counted;
        let circle = self.circles.0.get_mut(counted)?;
        let mut found = None;
        for number in circle.numbers(*count) {
            circle.gone += 1;
            let key = key(stem, number);
            if !round.recalled.contains_key(&key) {
                found = Some(key);
                break;
            }
        }
        let (actor_ref, key) = found?;
        Some(IdempotencyRow {
            actor_ref,
            key,
            instance_id: run_id,
            request_digest: Digest([0; 32]),
            answer: String::new(),
            expires_at: until,
        })
    }
}
