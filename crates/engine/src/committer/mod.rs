//! The committer: one thread that owns the writer; [`Desk`] says when a caller borrows it. It takes the
//! calls that arrived while the last transaction was being flushed, has the kernel decide them one after
//! the other against cached instances, and commits everything as one batch.
//!
//! Correctness comes from the fence alone. A batch is written only under the registry it was decided
//! under, a unit only on the sequence it was decided on; a loser is reloaded and decided again. Where
//! other nodes share the store, refusals are confirmed in the same way before they are given: nobody is
//! refused on a stale cache.

mod acts;
mod asks;
mod cache;
mod claims;
mod colour;
mod decide;
mod desk;
mod due;
mod governance;
mod job;
pub mod limits;
mod load;
mod merge;
mod moved;
mod notes;
mod place;
mod placing;
mod preview;
mod registry_change;
mod replay;
mod retention;
mod round;
mod runs;
mod tally;

use cache::Cache;
pub use desk::Desk;
pub use job::Job;
pub use place::Place;
pub(crate) use round::{kept_answer, replayed};

use crate::clock::{EngineClock, Entropy};
use crate::governance::signals;
use crate::known::KnownRegistry;
use crate::log::Damaged;
use crate::monitor::Monitor;
use crate::outbox::sends;
use crate::outcome::{Command, Outcome, Target};
use crate::port::{Batch, Committed, Due, Head, Reader, StoreError, Verdict, Writer};
use crate::readiness::Readiness;
use crate::replay::schedules;
use crate::rows::{IdempotencyRow, Write};
use crate::run::agenda::{Book, Item};
use crate::run::records::RunbookChanges;
use crate::stream::hub::Hub;
use crate::{Config, store_failure};
use countersign_kernel::budget::STEPS_PER_COMMAND;
use countersign_kernel::lifecycle::Guard;
use countersign_kernel::process::{self, Process, StepChoice};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::run::{self, Run};
use countersign_kernel::{EventId, InstanceId, Time, registry};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};

/// Calls per transaction, at most.
const MAX_BATCH: usize = 1024;
/// How often a call is decided again after it lost a race, before it is given up.
const MAX_ROUNDS: u32 = 100;
/// What the calls of one round may spend in the language of definitions; the others are decided in the next one.
const MAX_ROUND_STEPS: u64 = 12 * STEPS_PER_COMMAND;
pub(crate) const IDEMPOTENCY_WINDOW_US: i64 = 24 * 3_600_000_000;
const HOUSEKEEPING: Duration = Duration::from_secs(1);

pub type Answer = Result<Outcome, Refusal>;

struct Instance {
    /// The process; for a run, its shell.
    process: Process,
    run: Option<Box<Run>>,
    head: Head,
    policy_ref: String,
    beats: u64,
}

/// Who is told that something was committed.
pub struct Wakes {
    pub sealer: Arc<Notify>,
    /// Of events for the world outside only.
    pub outbox: Arc<Notify>,
    /// Of signals of what went wrong, or was put right.
    pub governance: Arc<Notify>,
    /// Of runbooks only.
    pub runbooks: Arc<RunbookChanges>,
    /// Whoever follows what moves.
    pub hub: Arc<Hub>,
}

impl Wakes {
    fn committed(&self, batch: &Batch) {
        self.sealer.notify_one();
        if batch.units.iter().any(|unit| sends(&unit.writes)) {
            self.outbox.notify_one();
        }
        if batch.units.iter().any(|unit| signals(&unit.writes) || schedules(&unit.writes)) {
            self.governance.notify_one();
        }
    }
}

/// What the committer shares with the rest of the engine.
pub struct Around {
    pub wakes: Wakes,
    pub book: Arc<Book>,
    pub clock: Arc<EngineClock>,
    pub readiness: Arc<Readiness>,
    pub reader: Arc<dyn Reader>,
    pub monitor: Arc<Monitor>,
}

pub struct Committer {
    writer: Box<dyn Writer>,
    /// What governance knows is read, not cached.
    reader: Arc<dyn Reader>,
    /// No other process writes to the store: the cache is always current.
    exclusive: bool,
    registry: Arc<KnownRegistry>,
    config: Arc<Config>,
    cache: Cache,
    clock: Arc<EngineClock>,
    readiness: Arc<Readiness>,
    entropy: Entropy,
    /// For the purges of this round: what each destroys besides the record.
    copies: HashMap<EventId, Vec<Write>>,
    /// Something was purged that may still stand in the store's own files.
    scrub_due: bool,
    wakes: Wakes,
    /// What is to be done with steps, and when.
    book: Arc<Book>,
    /// Up to here everything that was due has been seen.
    low_water: Due,
    /// The store could not say what is due.
    look_failed: bool,
    /// The next look begins with what has been due for longest.
    from_start: bool,
    /// What the store said is due when it was last asked.
    told: HashMap<Item, Time>,
    circles: limits::Circles,
    tally: tally::Tally,
    /// What this round says of workers.
    notes: notes::Notes,
    monitor: Arc<Monitor>,
    /// Instances that verifying found to be damaged: they are refused.
    pub damaged: Arc<Damaged>,
    ticks: u64,
    /// There may be more expired idempotency keys.
    keys_left: bool,
    /// This node's application key, by its id, and whether it has ended under the registry that is decided under.
    own_key_id: Option<String>,
    own_key_ended: bool,
    /// Runs in which the engine's own transition was refused for the event that it would have emitted.
    schema_missed: HashSet<InstanceId>,
    /// What the call in hand has spent in the language of definitions.
    steps_spent: u64,
    /// What the calls of this round have spent.
    round_steps: u64,
    /// Calls whose instances did not fit into memory beside those of the batch.
    deferred: Vec<Job>,
}

/// What became of one job in a round, before its batch is committed.
struct Decided {
    job: Job,
    answer: Answer,
    /// Index into the batch's units (accepted) or checks (refused); `None` where nothing needs confirming.
    confirm: Option<Confirm>,
}

#[derive(Clone)]
enum Confirm {
    Unit(usize),
    /// A claim: the unit of each of its tasks. Those that lose are left out.
    Tasks(Vec<usize>),
    Check(usize),
    /// It cannot be decided on top of this batch's own changes.
    NextRound,
}

impl Committer {
    pub fn new(
        writer: Box<dyn Writer>,
        exclusive: bool,
        registry: Arc<KnownRegistry>,
        config: Arc<Config>,
        Around { wakes, book, clock, readiness, reader, monitor }: Around,
    ) -> Self {
        Committer {
            writer,
            reader,
            exclusive,
            registry,
            cache: Cache::new(config.cached_instances.max(4 * MAX_BATCH), config.cache_bytes),
            own_key_id: config.application_key.as_ref().map(|signer| signer.public_key().key_id()),
            own_key_ended: false,
            config,
            clock,
            readiness,
            entropy: Entropy::default(),
            copies: HashMap::new(),
            // Before a crash there may have been purges. Where others share the store, it cleans up by itself.
            scrub_due: exclusive,
            wakes,
            book,
            low_water: Due::from(Time(0)),
            look_failed: false,
            from_start: true,
            told: HashMap::new(),
            circles: limits::Circles::default(),
            tally: tally::Tally::default(),
            notes: notes::Notes::default(),
            monitor,
            damaged: Arc::default(),
            ticks: 0,
            keys_left: false,
            schema_missed: HashSet::new(),
            steps_spent: 0,
            round_steps: 0,
            deferred: vec![],
        }
    }

    /// Runs until every sender is gone and the queue is empty.
    pub async fn run(desk: &Desk, mut queue: mpsc::Receiver<Job>, book: &Book) {
        let mut jobs = Vec::with_capacity(MAX_BATCH);
        let mut housekeeping = tokio::time::interval(HOUSEKEEPING);
        housekeeping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // However much is to be found in the store, calls get in between.
        let mut looked = false;
        loop {
            tokio::select! {
                biased;
                // These two before the calls: under load there is always one.
                _ = housekeeping.tick() => {
                    let Some(mut taken) = desk.take().await else { break };
                    taken.committer.housekeep().await;
                    taken.put_back();
                }
                () = book.look.notified(), if !looked => {
                    let Some(mut taken) = desk.take().await else { break };
                    taken.committer.look_for_due().await;
                    taken.put_back();
                    looked = true;
                }
                count = queue.recv_many(&mut jobs, MAX_BATCH) => {
                    if count == 0 {
                        break;
                    }
                    let Some(mut taken) = desk.take().await else { break };
                    // Those who came while somebody else was at work share this flush.
                    while jobs.len() < MAX_BATCH && let Ok(job) = queue.try_recv() {
                        jobs.push(job);
                    }
                    desk.saw(jobs.len());
                    taken.committer.serve(jobs.drain(..).collect()).await;
                    taken.put_back();
                    looked = false;
                }
                () = tokio::task::yield_now(), if looked => looked = false,
            }
        }
    }

    /// An idle server asks for little: less than two queries a second, all of its parts together.
    async fn housekeep(&mut self) {
        let now_and_then = |every: u64| self.ticks.is_multiple_of(every);
        let (due, registry, rest) = (now_and_then(3), now_and_then(5), now_and_then(30));
        // Everything older has been seen, but for clocks that differ: where others write, all of it is looked at again.
        self.from_start |= !self.exclusive && now_and_then(60);
        self.ticks += 1;
        // Also where nobody asks for the time: a clock that jumped is noticed.
        self.now();
        if (due && !self.exclusive) || self.look_failed {
            // What is due on this node it knows; this finds what a node that is gone has left.
            self.look_for_due().await;
        }
        if !self.exclusive
            && registry
            && let Err(error) = self.refresh_registry().await
        {
            tracing::warn!(%error, "the registry could not be refreshed");
        }
        metrics::gauge!("countersign_cache_bytes").set(self.cache.bytes() as f64);
        metrics::gauge!("countersign_plan_bytes").set(self.registry.plan_bytes() as f64);
        self.scrub().await;
        if rest || self.keys_left {
            match self.writer.forget_expired(self.now()).await {
                Ok(gone) => self.keys_left = gone > 0,
                Err(error) => tracing::warn!(%error, "expired idempotency keys could not be removed"),
            }
        }
        if !self.exclusive && rest {
            match self.writer.clock_offset_us().await {
                Ok(offset) => self.clock.set_store_ahead_us(offset),
                Err(error) => tracing::warn!(%error, "the store's clock could not be read"),
            }
        }
    }

    fn now(&self) -> Time {
        self.clock.now()
    }

    /// What time it is for this instance: whatever clocks say, later than what was recorded of it, and not earlier than what is
    /// known of the registry.
    fn moment(&self, instance: Option<&Instance>) -> Time {
        let earliest = instance.map_or(Time(0), |instance| Time(instance.head.last_time.0 + 1));
        self.now().max(earliest).max(self.registry.newest())
    }

    /// Serves calls in the order of arrival: runs of process calls as batches, those of the registry and of
    /// governance one by one.
    async fn serve(&mut self, mut jobs: VecDeque<Job>) {
        metrics::histogram!("countersign_batch_commands").record(jobs.len() as f64);
        while let Some(first) = jobs.front() {
            if first.is_alone() {
                match jobs.pop_front() {
                    Some(job) if job.is_registry() => self.serve_registry(job).await,
                    Some(job) => self.serve_governance(job).await,
                    None => {}
                }
                continue;
            }
            let end = jobs.iter().position(Job::is_alone).unwrap_or(jobs.len());
            let rest = jobs.split_off(end);
            let follow_ups = self.serve_processes(std::mem::replace(&mut jobs, rest)).await;
            for job in follow_ups.into_iter().rev() {
                jobs.push_front(job);
            }
            self.cache.trim();
        }
    }

    /// Decides and commits, again and again for those that lost a race. Returns registry jobs that arose, and calls for which there
    /// was no room in memory.
    async fn serve_processes(&mut self, mut jobs: VecDeque<Job>) -> Vec<Job> {
        let mut follow_ups = Vec::new();
        for _ in 0..MAX_ROUNDS {
            if jobs.is_empty() {
                return follow_ups;
            }
            if self.round_steps >= MAX_ROUND_STEPS {
                // Where the committer works among its callers, they come first now.
                tokio::task::yield_now().await;
            }
            let recalled = self.prefetch(&mut jobs).await;
            follow_ups.append(&mut self.deferred);
            let recalled = match recalled {
                Ok(recalled) => recalled,
                Err(error) => {
                    self.fail_all(jobs, &error);
                    return follow_ups;
                }
            };
            let (mut batch, decided) = self.decide_all(std::mem::take(&mut jobs), recalled);
            self.colour(&mut batch.units);
            if batch.units.is_empty() && batch.checks.is_empty() {
                for mut decided in decided {
                    if matches!(decided.confirm, Some(Confirm::NextRound)) {
                        self.give_back(&mut decided.job);
                        jobs.push_back(decided.job);
                    } else {
                        jobs.extend(self.finish(decided, &batch, &mut follow_ups));
                    }
                }
                continue;
            }
            let committed = self.writer.commit(&batch).await;
            self.readiness.wrote(&committed);
            match committed {
                Ok(Committed::Done(verdicts)) => {
                    self.after_purges(&batch).await;
                    self.wakes.committed(&batch);
                    self.tell_moved(&batch, &verdicts);
                    let losers = self.settle(&batch, decided, &verdicts, &mut follow_ups);
                    self.forget_runs(&batch);
                    jobs.extend(losers);
                }
                Ok(Committed::RegistryMoved) => {
                    self.evict(&batch);
                    jobs.extend(self.taken_back(decided));
                    if let Err(error) = self.refresh_registry().await {
                        self.fail_all(jobs, &error);
                        return follow_ups;
                    }
                }
                Err(StoreError::Conflict(cause)) => {
                    tracing::debug!(cause, "deciding a batch again");
                    self.evict(&batch);
                    jobs.extend(self.taken_back(decided));
                }
                Err(StoreError::Rejected(_)) if decided.len() > 1 => {
                    // One of them holds what the database cannot take. Apart, only that one fails.
                    self.evict(&batch);
                    for job in self.taken_back(decided) {
                        follow_ups.extend(Box::pin(self.serve_processes(VecDeque::from([job]))).await);
                    }
                }
                Err(error) => {
                    if matches!(error, StoreError::Unknown(_)) {
                        self.tell_perhaps_moved(&batch);
                    }
                    self.evict(&batch);
                    if matches!(error, StoreError::Unknown(_)) {
                        self.look_at_all(&batch);
                    }
                    for mut decided in decided {
                        self.give_back(&mut decided.job);
                        decided.job.give(Err(store_failure(&error)));
                    }
                    return follow_ups;
                }
            }
        }
        for mut job in jobs {
            self.give_back(&mut job);
            job.give(Err(Refusal::new(Code::Overloaded, "other writers kept changing this instance; try again")));
        }
        follow_ups
    }

    /// Everything that deciding needs and that only the store knows.
    async fn prefetch(
        &mut self,
        jobs: &mut VecDeque<Job>,
    ) -> Result<HashMap<(String, String), IdempotencyRow>, StoreError> {
        self.offer(jobs);
        self.refuse_damaged(jobs);
        self.doubt_leases(jobs);
        let offered = jobs.iter().flat_map(|job| job.offered.iter().map(|(run_id, _)| *run_id));
        let needed: Vec<InstanceId> = jobs.iter().filter_map(Job::instance_id).chain(offered).collect();
        self.load_within_room(needed, jobs).await?;
        let mut handed = self.handed_elsewhere(jobs);
        self.load(&mut handed, jobs).await?;
        let limits = self.limit_keys(jobs);
        let keys: Vec<(String, String)> = jobs
            .iter()
            .filter_map(|job| job.call.idempotency.as_ref().map(|i| (job.call.actor_ref.clone(), i.key.clone())))
            .chain(limits)
            .collect();
        let recalled = if keys.is_empty() { vec![] } else { self.writer.recall(&keys, self.now()).await? };
        for job in jobs.iter_mut() {
            self.resolve_step(job).await?;
        }
        self.bring_plans(jobs).await?;
        self.resolve_records(jobs).await?;
        self.resolve_events(jobs).await?;
        Ok(recalled.into_iter().map(|row| ((row.actor_ref.clone(), row.key.clone()), row)).collect())
    }

    /// What verifying found to be damaged takes no command, whether it is in the cache or not.
    fn refuse_damaged(&mut self, jobs: &mut VecDeque<Job>) {
        if self.damaged.is_empty() {
            return;
        }
        for mut job in std::mem::take(jobs) {
            job.offered.retain(|(run_id, _)| self.damaged.refusal(*run_id).is_none());
            match job.instance_id().and_then(|instance_id| self.damaged.refusal(instance_id)) {
                Some(error) => self.fail_all(VecDeque::from([job]), &error),
                None => jobs.push_back(job),
            }
        }
    }

    /// A step that was named but is not live: has it ended, or was it never one?
    async fn resolve_step(&mut self, job: &mut Job) -> Result<(), StoreError> {
        let (instance_id, command) = match &mut job.call.command {
            Command::Process {
                target: Target::Existing(instance_id),
                command: process::Command::DecideGate(command),
            }
            | Command::Run { target: Target::Existing(instance_id), command: run::Command::DecideGate(command) } => {
                (instance_id, command)
            }
            _ => return Ok(()),
        };
        let Some(step_id) = job.named_step else { return Ok(()) };
        let Some(instance) = self.cache.get(instance_id) else { return Ok(()) };
        let live = |gate: &process::Gate| {
            gate.action == command.action && gate.steps.iter().any(|step| step.step_id == step_id)
        };
        command.step = Some(if instance.process.gates.iter().any(live) {
            StepChoice::Id(step_id)
        } else if self.writer.step_ended(*instance_id, &command.action, step_id).await? {
            StepChoice::Ended
        } else {
            StepChoice::Unknown
        });
        Ok(())
    }

    /// Gives the answers that stand, and returns the jobs that must be decided again.
    fn settle(
        &mut self,
        batch: &Batch,
        decided: Vec<Decided>,
        verdicts: &[Verdict],
        follow_ups: &mut Vec<Job>,
    ) -> VecDeque<Job> {
        let of_unit = |i: usize| verdicts.get(i).copied();
        for (i, unit) in batch.units.iter().enumerate() {
            match of_unit(i) {
                Some(Verdict::Won) => {
                    self.cache.wrote(unit);
                    self.place(unit);
                    let run = self.cache.get(&unit.instance_id).and_then(|instance| instance.run.as_deref());
                    if run.is_some_and(|run| run.plan.is_runbook()) {
                        self.wakes.runbooks.add(unit.instance_id);
                    }
                }
                _ => self.cache.remove(&unit.instance_id),
            }
        }
        for (i, check) in batch.checks.iter().enumerate() {
            if of_unit(batch.units.len() + i) != Some(Verdict::Won) {
                self.cache.remove(&check.instance_id);
            }
        }
        let won = |i: usize| of_unit(i) == Some(Verdict::Won);
        let mut again = VecDeque::new();
        for mut decided in decided {
            let stands = match &decided.confirm {
                None => true,
                Some(Confirm::Unit(i)) => won(*i),
                Some(Confirm::Check(i)) => won(batch.units.len() + i),
                Some(Confirm::NextRound) => false,
                Some(Confirm::Tasks(units)) => self.keep_tasks(&mut decided.answer, units, won),
            };
            if stands {
                again.extend(self.finish(decided, batch, follow_ups));
            } else {
                self.give_back(&mut decided.job);
                again.push_back(decided.job);
            }
        }
        again
    }

    /// Gives an answer. Where failed attempts are audited, a refusal for want of authority first becomes
    /// a job of its own: on the instance if there is one (returned), else on the registry.
    fn finish(&mut self, decided: Decided, batch: &Batch, follow_ups: &mut Vec<Job>) -> Option<Job> {
        let Decided { mut job, answer, confirm } = decided;
        let written = match confirm {
            Some(Confirm::Unit(i)) => batch.units.get(i),
            _ => None,
        };
        self.place_again(&job, written);
        if answer.is_err() {
            self.send_child_to_parent(&job);
        }
        let refusal = match &answer {
            Err(refusal) if self.is_recorded(&job, refusal) => refusal.clone(),
            _ => {
                job.give(answer);
                return None;
            }
        };
        let attempted = job.call.command.name().to_owned();
        let (code, detail) = (refusal.code, refusal.detail.clone());
        job.call.idempotency = None;
        job.refused = Some(refusal);
        let instance_id = job.instance_id().filter(|id| self.cache.contains_key(id));
        match instance_id {
            Some(instance_id) => {
                let command =
                    process::Command::RecordRefusedAttempt(process::RecordRefusedAttempt { attempted, code, detail });
                job.call.command = Command::Process { target: Target::Existing(instance_id), command };
                Some(job)
            }
            None => {
                let command = registry::RecordRefusedAttempt { attempted, code, detail };
                job.call.command = Command::Registry(registry::Command::RecordRefusedAttempt(command));
                follow_ups.push(job);
                None
            }
        }
    }

    /// Whether that somebody was refused goes into the ledger: without leave, where the deployment wants it; an event that
    /// misses its schema, always. The clock tries again and again, and is recorded once.
    fn is_recorded(&mut self, job: &Job, refusal: &Refusal) -> bool {
        if job.refused.is_some() {
            return false;
        }
        if refusal.is_by_guard(Guard::EventSchema) {
            let own = job.call.actor_ref == self.config.application_actor_ref;
            return !own || job.instance_id().is_none_or(|id| self.schema_missed.insert(id));
        }
        self.config.audit_failed_attempts && matches!(refusal.code, Code::PermissionDenied | Code::Unauthorized)
    }

    fn fail_all(&self, jobs: VecDeque<Job>, error: &StoreError) {
        for mut job in jobs {
            self.give_back(&mut job);
            job.give(Err(store_failure(error)));
        }
    }

    fn evict(&mut self, batch: &Batch) {
        for unit in &batch.units {
            self.cache.remove(&unit.instance_id);
        }
        for check in &batch.checks {
            self.cache.remove(&check.instance_id);
        }
    }

    async fn refresh_registry(&mut self) -> Result<Head, StoreError> {
        let known = self.registry.read().sequence();
        let delta = self.writer.registry_since(known).await?;
        let head = delta.head.clone();
        self.clock.observe(head.last_time);
        self.registry.absorb(delta)?;
        Ok(head)
    }
}
