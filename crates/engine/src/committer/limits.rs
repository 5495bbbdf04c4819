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
use std::collections::VecDeque;

/// The slot of a lease is said to be kept until here plus the step's number: so it is found again.
const LEASE_SLOTS: i64 = i64::MAX / 2;
/// Who is said to hold such keys; no actor can have this name's keys.
const HOLDER: &str = "\u{1}queue";
/// A step that found no slot is looked at again after this long.
const AGAIN_US: i64 = 200_000;

/// By when the slot of this step's lease is found.
pub fn slot_of(step_seq: StepSeq) -> Time {
    Time(LEASE_SLOTS + i64::from(step_seq))
}

/// The limit of a step's queue, if its definition sets one.
pub fn limit_of(run: &Run, step_seq: StepSeq) -> Option<QueueLimit> {
    let role = run.cell(step_seq)?.role;
    run.plan.queues.get(&*run.queue(step_seq, role)).copied()
}

fn keys(kind: &str, definition: &str, queue: &str, count: u32) -> impl Iterator<Item = String> {
    let stem = format!("{kind}/{definition}/{queue}/");
    (1..=count).map(move |n| format!("{stem}{n}"))
}

impl Committer {
    /// The keys whose holders must be known before the offered steps of these jobs are decided.
    pub(super) fn limit_keys(&mut self, jobs: &VecDeque<Job>) -> Vec<(String, String)> {
        let mut wanted = Vec::new();
        for job in jobs.iter().filter(|job| matches!(job.call.command, Command::Claim(_))) {
            for (run_id, step_seq) in &job.offered {
                let Some((definition, queue, limit)) = self.limited(*run_id, *step_seq) else { continue };
                wanted.extend(limit.limit.into_iter().flat_map(|n| keys("lease", &definition, &queue, n)));
                wanted.extend(limit.rate.into_iter().flat_map(|rate| keys("rate", &definition, &queue, rate.count)));
            }
        }
        wanted.sort_unstable();
        wanted.dedup();
        wanted.into_iter().map(|key| (HOLDER.to_owned(), key)).collect()
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
        let mut taken = Vec::new();
        let slots = limit.limit.map(|n| (keys("lease", &definition, &queue, n), slot_of(step_seq)));
        let found = slots.map(|(keys, until)| self.free(keys, until, run_id, round));
        let rate = limit
            .rate
            .map(|rate| (keys("rate", &definition, &queue, rate.count), Time(now.0.saturating_add(rate.per))));
        let token = rate.map(|(keys, until)| self.free(keys, until, run_id, round));
        for key in [found, token].into_iter().flatten() {
            match key {
                Some(row) => taken.push(row),
                None => {
                    self.book.remind((run_id, Some(step_seq)), Some(Time(now.0 + AGAIN_US)));
                    return None;
                }
            }
        }
        Some(taken)
    }

    fn free(
        &self,
        mut keys: impl Iterator<Item = String>,
        until: Time,
        run_id: InstanceId,
        round: &Round,
    ) -> Option<IdempotencyRow> {
        let key = keys.find(|key| !round.recalled.contains_key(&(HOLDER.to_owned(), key.clone())))?;
        Some(IdempotencyRow {
            actor_ref: HOLDER.to_owned(),
            key,
            instance_id: run_id,
            request_digest: Digest([0; 32]),
            answer: String::new(),
            expires_at: until,
        })
    }
}
