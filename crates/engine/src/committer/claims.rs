//! Claims on their way through the committer: steps are taken out of the agenda, the kernel judges each, and what was taken
//! and is not claimed in the end goes back, whichever way that end comes.

use super::decide::vouch;
use super::limits::Room;
use super::round::Round;
use super::{Answer, Committer, Confirm, Decided, Job};
use crate::outcome::{Call, ClaimCall, Command, Outcome, Target, Task};
use crate::rows::IdempotencyRow;
use crate::run::agenda::Reach;
use crate::run::project::handed_text;
use countersign_kernel::budget::{Budget, STEPS_PER_COMMAND};
use countersign_kernel::plan::StepSeq;
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::Registry;
use countersign_kernel::run::{self, Claimed, Handed};
use countersign_kernel::{IdSource, InstanceId, Time};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

/// Steps of one run that one record says are claimed: more would not fit into it.
const MAX_CLAIMED: usize = 256;

/// A completion that asks for a next task.
#[derive(Clone)]
pub(super) struct Asked {
    pub run_id: InstanceId,
    pub done: StepSeq,
    pub worker_id: Arc<str>,
    pub lease: i64,
    /// In a limited queue.
    pub room: Option<Room>,
}

/// A step that a claim may take.
pub(super) struct Offer {
    /// Where it stands among those that the claim was offered.
    pub place: usize,
    pub run_id: InstanceId,
    pub step_seq: StepSeq,
    /// What it takes in a limited queue.
    pub keys: Vec<IdempotencyRow>,
}

impl Committer {
    /// Takes steps for every claim that waits.
    pub(super) fn offer(&self, jobs: &mut VecDeque<Job>) {
        // Most batches hold no claim, and need not look.
        if !jobs.iter().any(|job| matches!(job.call.command, Command::Claim(_))) {
            return;
        }
        let registry = self.registry.read();
        for job in jobs {
            if let Command::Claim(claim) = &job.call.command
                && job.offered.is_empty()
                && !registry.is_frozen(&claim.queue, &claim.worker_id)
            {
                // Who may nothing is offered something all the same: the kernel refuses it.
                let reach = self.reach(&job.call.actor_ref, &registry).unwrap_or(Reach::All);
                job.offered = self.book.take(&claim.queue, claim.max, &reach);
            }
        }
    }

    /// What this actor may claim as things stand; the kernel judges each step when it is decided on.
    fn reach(&self, actor_ref: &str, registry: &Registry) -> Option<Reach> {
        if actor_ref == self.config.application_actor_ref {
            return Some(Reach::All);
        }
        Reach::of(actor_ref, registry)
    }

    /// What a job took and did not claim is looked at again soon.
    pub(super) fn give_back(&self, job: &mut Job) {
        for (run_id, step_seq) in job.offered.drain(..) {
            self.look_again(run_id, step_seq);
        }
    }

    /// A step that was not given away stands where it stood.
    pub(super) fn put_back(&self, run_id: InstanceId, step_seq: StepSeq) {
        let known = self.cache.peek(&run_id).and_then(|instance| Some((instance, instance.run.as_deref()?)));
        let Some((instance, run)) = known else { return self.look_again(run_id, step_seq) };
        self.place_step(instance, step_seq, &run.agenda(step_seq), self.moment(Some(instance)));
    }

    pub(super) fn look_again(&self, run_id: InstanceId, step_seq: StepSeq) {
        self.book.remind((run_id, Some(step_seq)), Some(self.now()));
    }

    /// Leaves out the tasks whose unit lost, and has their steps looked at again. False where none is left of those that were
    /// hoped for.
    pub(super) fn keep_tasks(&self, answer: &mut Answer, units: &[usize], won: impl Fn(usize) -> bool) -> bool {
        let Ok(Outcome::Claimed { tasks }) = answer else { return true };
        let mut units = units.iter();
        tasks.retain(|task| {
            let kept = units.next().is_some_and(|unit| won(*unit));
            if let (false, Some(run_id)) = (kept, InstanceId::parse(&task.run_id)) {
                self.look_again(run_id, task.step_seq);
            }
            kept
        });
        !tasks.is_empty()
    }

    pub(super) fn taken_back(&self, decided: Vec<Decided>) -> Vec<Job> {
        let mut jobs: Vec<Job> = decided.into_iter().map(|decided| decided.job).collect();
        jobs.iter_mut().for_each(|job| self.give_back(job));
        jobs
    }

    pub(super) fn decide_claim(
        &mut self,
        mut job: Job,
        claim: &ClaimCall,
        registry: &Registry,
        round: &mut Round,
    ) -> Decided {
        if let Err(refusal) = vouch(&job.call, registry) {
            self.give_back(&mut job);
            return Decided { job, answer: Err(refusal), confirm: None };
        }
        let mut offers = self.with_room(&job.offered, round);
        job.offered = offers.iter().map(|offer| (offer.run_id, offer.step_seq)).collect();
        offers.sort_unstable_by_key(|offer| (offer.run_id, offer.step_seq));
        let mut claimed = Vec::with_capacity(offers.len());
        self.steps_spent = 0;
        let mut refusal: Option<Refusal> = None;
        for group in offers.chunk_by_mut(|a, b| a.run_id == b.run_id).flat_map(|group| group.chunks_mut(MAX_CLAIMED)) {
            let run_id = group[0].run_id;
            let steps = group.iter().map(|offer| offer.step_seq).collect();
            let (worker_id, lease) = (claim.worker_id.clone(), claim.lease);
            let command = run::Command::Claim(run::ClaimSteps { steps, worker_id, lease });
            // Of several definitions, one may not be permitted any more.
            let accepted = match &refusal {
                // Each run has a budget of its own; the claim as a whole ends with the run that uses up the first.
                _ if self.steps_spent >= STEPS_PER_COMMAND => None,
                Some(refusal) if refusal.code != Code::PermissionDenied => None,
                _ => match self.run_command(&job.call, Target::Existing(run_id), &command, registry, round) {
                    Ok(accepted) => accepted.unit.map(|unit| (unit, accepted.claimed)),
                    Err(refused) => {
                        refusal = Some(refused);
                        None
                    }
                },
            };
            for offer in group {
                let keys = std::mem::take(&mut offer.keys);
                let own = |claimed: &&Claimed| claimed.step_seq == offer.step_seq;
                if let Some((unit, taken)) = &accepted
                    && let Some(taken) = taken.iter().find(own)
                {
                    round.batch.units[*unit].idempotency.extend(keys);
                    claimed.push((offer.place, *unit, to_task(run_id, taken)));
                } else {
                    // A step that fails when it is claimed was nobody's, and takes up no room.
                    self.leave(run_id, offer.step_seq, keys, round);
                    self.look_again(run_id, offer.step_seq);
                }
            }
        }
        claimed.sort_unstable_by_key(|(place, ..)| *place);
        let (units, tasks): (Vec<usize>, Vec<Task>) = claimed.into_iter().map(|(_, unit, task)| (unit, task)).unzip();
        let denied = |refusal: &Refusal| refusal.code == Code::PermissionDenied;
        let reaches = refusal.as_ref().is_some_and(denied) && Reach::of(&job.call.actor_ref, registry).is_some();
        match refusal {
            Some(refusal) if tasks.is_empty() && !reaches => {
                self.give_back(&mut job);
                Decided { job, answer: Err(refusal), confirm: None }
            }
            _ => {
                let answer = Outcome::Claimed { tasks };
                let kept = self.keep_claim(&job.call, &answer, units.first().copied(), round);
                let confirm = (!units.is_empty()).then_some(Confirm::Tasks(units));
                Decided { job, answer: kept.map(|()| answer), confirm }
            }
        }
    }

    /// Whoever repeats a claim because its answer was lost is given the same tasks, while one of their leases stands.
    fn keep_claim(&self, call: &Call, answer: &Outcome, unit: Option<usize>, round: &mut Round) -> Result<(), Refusal> {
        let (Some(idempotency), Some(unit), Outcome::Claimed { tasks }) = (&call.idempotency, unit, answer) else {
            return Ok(());
        };
        let until = tasks.iter().map(|task| Time(task.locked_until_us)).max().unwrap_or(self.now());
        let instance_id = round.batch.units[unit].instance_id;
        let row = round.keep(call, instance_id, idempotency.request_digest, answer, until)?;
        round.batch.units[unit].idempotency.push(row);
        Ok(())
    }

    /// Who completes a task and asks for the next, if it may be handed one: in a limited queue there has to be room for it.
    pub(super) fn asked(&mut self, target: Target, command: &run::Command, round: &Round) -> Option<Asked> {
        let (run::Command::Complete { task, claim_next: Some(next), .. }, Target::Existing(run_id)) = (command, target)
        else {
            return None;
        };
        let run = self.cache.get(&run_id)?.run.as_deref()?;
        let worker_id = run.cell(task.step_seq)?.lease()?.worker_id.clone();
        let room = self.room_after(run_id, task.step_seq, round).ok()?;
        Some(Asked { run_id, done: task.step_seq, worker_id, lease: next.lease, room })
    }

    /// A worker that finished the last step of its queue here goes on with another run's: both are written, or none. Returns
    /// the task, and what was taken out of the agenda for it.
    pub(super) fn claim_elsewhere(
        &mut self,
        call: &Call,
        asked: Asked,
        unit: usize,
        registry: &Registry,
        round: &mut Round,
    ) -> Option<(Task, (InstanceId, StepSeq))> {
        let queue = {
            let run = self.cache.get(&asked.run_id)?.run.as_deref()?;
            run.queue(asked.done, run.cell(asked.done)?.role)
        };
        if registry.is_frozen(&queue, &asked.worker_id) {
            return None;
        }
        let reach = self.reach(&call.actor_ref, registry)?;
        let room = asked.room.as_ref().map(|room| (room.under.definition.as_str(), room.under.limit));
        let (other, step_seq) = self.book.take_next(&queue, &reach, room)?;
        let Some((there, claimed)) = self.claim_there(call, &asked, (other, step_seq), registry, round) else {
            self.look_again(other, step_seq);
            return None;
        };
        // Otherwise a task could be somebody's who is never told.
        let together = &mut round.batch.units[unit].stands_with;
        if !together.contains(&other) {
            together.push(other);
        }
        self.note_handed(&asked, unit, Handed { run_id: other, step_seq, lease_token: claimed.lease_token }, round);
        if let (Some(room), Some(_)) = (asked.room, self.limited(other, step_seq)) {
            self.pass_on(room, (unit, asked.done), (there, step_seq), round);
        }
        Some((to_task(other, &claimed), (other, step_seq)))
    }

    fn claim_there(
        &mut self,
        call: &Call,
        asked: &Asked,
        (other, step_seq): (InstanceId, StepSeq),
        registry: &Registry,
        round: &mut Round,
    ) -> Option<(usize, Claimed)> {
        // Who holds the keys of another limit was not asked of the store.
        let limited = self.limited(other, step_seq);
        let has_room = limited.is_none() || limited.as_ref() == asked.room.as_ref().map(|room| &room.under);
        if !has_room || !self.cache.contains_key(&other) {
            return None;
        }
        let (worker_id, lease) = (asked.worker_id.clone(), asked.lease);
        let command = run::Command::Claim(run::ClaimSteps { steps: vec![step_seq], worker_id, lease });
        let accepted = self.run_command(call, Target::Existing(other), &command, registry, round).ok()?;
        accepted.unit.zip(accepted.claimed.into_iter().next())
    }

    /// The completed step says what its worker was handed, in memory and in its row.
    fn note_handed(&mut self, asked: &Asked, unit: usize, handed: Handed, round: &mut Round) {
        let run = self.cache.get_mut(&asked.run_id).and_then(|instance| instance.run.as_deref_mut());
        if let Some(cell) = run.and_then(|run| run.cells.get_mut(asked.done as usize)) {
            cell.handed = Some(Box::new(handed));
        }
        if let Some(write) = round.batch.units[unit].steps.get_mut(&asked.done) {
            write.state.handed = Some(handed_text(&handed));
        }
    }

    /// What was handed out with this completion when it was first made.
    fn handed(&mut self, target: Target, command: &run::Command) -> Option<Handed> {
        let (run::Command::Complete { task, output, claim_next: Some(_), .. }, Target::Existing(run_id)) =
            (command, target)
        else {
            return None;
        };
        let cell = self.cache.get(&run_id)?.run.as_deref()?.cell(task.step_seq)?;
        let again = cell.was_completed(task.lease_token, output) == Some(run::Repeated::Same);
        cell.handed.as_deref().copied().filter(|_| again)
    }

    /// Runs of which somebody may be handed a task again.
    pub(super) fn handed_elsewhere(&mut self, jobs: &VecDeque<Job>) -> Vec<InstanceId> {
        let mut runs = Vec::new();
        for job in jobs {
            let Command::Run { target, command } = &job.call.command else { continue };
            let handed = self.handed(*target, command).map(|handed| handed.run_id);
            runs.extend(handed.filter(|run_id| !self.cache.contains_key(run_id)));
        }
        runs
    }

    /// Steps of runs that are not in memory go back to their queues.
    pub(super) fn give_back_unloaded(&mut self, job: &mut Job, unloaded: &HashSet<InstanceId>) {
        let (back, kept) = job.offered.drain(..).partition(|(run_id, _)| unloaded.contains(run_id));
        job.offered = back;
        self.give_back(job);
        job.offered = kept;
    }

    /// Whoever repeats a completion because its answer was lost is handed the same task, while its lease stands.
    pub(super) fn hand_again(
        &mut self,
        call: &Call,
        (target, command): (Target, &run::Command),
        registry: &Registry,
    ) -> Option<Task> {
        let handed = self.handed(target, command)?;
        let (language, budget) = (self.config.language.clone(), Budget::default());
        let language = language.metered(&budget);
        // No id is made: nothing happens.
        let mut ctx = self.run_context(call, registry, &*language, IdSource::new(self.now(), 0));
        let instance = self.cache.peek(&handed.run_id)?;
        let claimed = run::handed_out((&instance.process, instance.run.as_deref()?), &handed, &mut ctx)?;
        Some(to_task(handed.run_id, &claimed))
    }
}

/// A completion that asks for nothing more.
pub(super) fn without_next(command: &run::Command) -> Option<run::Command> {
    let run::Command::Complete { task, output, outbound, claim_next: Some(_), artifacts } = command else {
        return None;
    };
    let (task, output, outbound) = (task.clone(), output.clone(), outbound.clone());
    Some(run::Command::Complete { task, output, outbound, claim_next: None, artifacts: artifacts.clone() })
}

pub(super) fn to_task(run_id: InstanceId, claimed: &Claimed) -> Task {
    Task {
        run_id: run_id.to_string(),
        step: claimed.step.clone(),
        step_seq: claimed.step_seq,
        attempt: claimed.attempt,
        max_attempts: claimed.max_attempts,
        cycle: claimed.cycle,
        task_type: claimed.task_type.as_str().to_owned(),
        input: claimed.input.clone(),
        event: claimed.event.clone(),
        lease_token: claimed.lease_token.to_string(),
        locked_until_us: claimed.locked_until.0,
        job: claimed.job.clone(),
        probes: claimed.probes.clone(),
    }
}
