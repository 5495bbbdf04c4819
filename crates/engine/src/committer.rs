//! The committer: one thread that owns the writer. It takes the calls that arrived while the last
//! transaction was being flushed, has the kernel decide them one after the other against cached
//! instances, and commits everything as one batch.
//!
//! Correctness comes from the fence alone. A batch is written only under the registry it was decided
//! under, a unit only on the sequence it was decided on; a loser is reloaded and decided again. Where
//! other nodes share the store, refusals are confirmed in the same way before they are given: nobody is
//! refused on a stale cache.

use crate::clock::Entropy;
use crate::outcome::{self, Call, Command, Outcome, Target};
use crate::payload::{self, Digests};
use crate::port::{Batch, Check, Committed, Head, Loaded, RegistryDelta, StoreError, Unit, Verdict, Writer};
use crate::project::{self, Subject};
use crate::rows::{IdempotencyRow, RecordRow};
use crate::{Config, store_failure};
use countersign_kernel::process::{self, Context, EventBody, GateKind, Process, StepChoice};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::{self, Registry};
use countersign_kernel::{Digest, EventId, IdSource, InstanceId, Time};
use countersign_ledger::document::{declaration_document, gate_spec_document};
use countersign_ledger::record::MAX_PAYLOAD_BYTES;
use countersign_ledger::{Attestation, Draft, Retention, ZERO_HASH};
use hashlink::LruCache;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Calls per transaction, at most.
const MAX_BATCH: usize = 1024;
/// How often a call is decided again after it lost a race, before it is given up.
const MAX_ROUNDS: u32 = 100;
const IDEMPOTENCY_WINDOW_US: i64 = 24 * 3_600_000_000;
const HOUSEKEEPING: Duration = Duration::from_secs(1);

type Answer = Result<Outcome, Refusal>;

pub struct Job {
    call: Call,
    answer: oneshot::Sender<Answer>,
    /// Set where this job only records that its caller was refused: the answer is this refusal.
    refused: Option<Refusal>,
}

impl Job {
    pub fn new(call: Call, answer: oneshot::Sender<Answer>) -> Self {
        Job { call, answer, refused: None }
    }

    fn give(self, answer: Answer) {
        let answer = match (self.refused, answer) {
            (None, answer) => answer,
            (Some(refusal), Ok(_)) => Err(refusal),
            (Some(refusal), Err(failure)) => {
                tracing::error!(%failure, attempt = %refusal, "a refused attempt could not be recorded");
                Err(refusal)
            }
        };
        // The caller may have gone away; what was committed stays committed.
        let _ = self.answer.send(answer);
    }

    fn is_registry(&self) -> bool {
        matches!(self.call.command, Command::Registry(_))
    }

    fn instance_id(&self) -> Option<InstanceId> {
        match &self.call.command {
            Command::Process { target: Target::Existing(instance_id), .. } => Some(*instance_id),
            Command::Process { target: Target::New | Target::Nowhere, .. } | Command::Registry(_) => None,
        }
    }
}

struct Instance {
    process: Process,
    head: Head,
    policy_ref: String,
}

pub struct Committer {
    writer: Box<dyn Writer>,
    /// No other process writes to the store: the cache is always current.
    exclusive: bool,
    registry: Arc<RwLock<Registry>>,
    config: Arc<Config>,
    cache: LruCache<InstanceId, Instance>,
    /// Time of the newest registry record: nothing decided under it is recorded as earlier.
    registry_time: Time,
    clock_offset_us: i64,
    entropy: Entropy,
}

/// Brings a registry up to date with what the store says.
pub fn absorb(registry: &RwLock<Registry>, delta: &RegistryDelta) {
    let mut registry = registry.write().unwrap_or_else(PoisonError::into_inner);
    for (sequence, event) in &delta.events {
        registry.apply(*sequence, event);
    }
    registry.advance_to(delta.head.sequence);
}

/// What became of one job in a round, before its batch is committed.
struct Decided {
    job: Job,
    answer: Answer,
    /// Index into the batch's units (accepted) or checks (refused); `None` where nothing needs confirming.
    confirm: Option<Confirm>,
}

#[derive(Clone, Copy)]
enum Confirm {
    Unit(usize),
    Check(usize),
}

impl Committer {
    pub fn new(writer: Box<dyn Writer>, exclusive: bool, registry: Arc<RwLock<Registry>>, config: Arc<Config>) -> Self {
        Committer {
            writer,
            exclusive,
            registry,
            cache: LruCache::new(config.cached_instances.max(1)),
            config,
            registry_time: Time(0),
            clock_offset_us: 0,
            entropy: Entropy::default(),
        }
    }

    /// Runs until every sender is gone and the queue is empty.
    pub fn run(mut self, mut queue: mpsc::Receiver<Job>) {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                tracing::error!(%error, "the committer could not start");
                return;
            }
        };
        runtime.block_on(async {
            let mut jobs = Vec::with_capacity(MAX_BATCH);
            let mut housekeeping = tokio::time::interval(HOUSEKEEPING);
            housekeeping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    biased;
                    count = queue.recv_many(&mut jobs, MAX_BATCH) => {
                        if count == 0 {
                            break;
                        }
                        metrics::histogram!("countersign_batch_commands").record(count as f64);
                        self.serve(jobs.drain(..).collect()).await;
                    }
                    _ = housekeeping.tick() => self.housekeep().await,
                }
            }
        });
    }

    async fn housekeep(&mut self) {
        if !self.exclusive {
            match self.writer.clock_offset_us().await {
                Ok(offset) => self.clock_offset_us = offset,
                Err(error) => tracing::warn!(%error, "the store's clock could not be read"),
            }
            if let Err(error) = self.refresh_registry().await {
                tracing::warn!(%error, "the registry could not be refreshed");
            }
        }
        if let Err(error) = self.writer.forget_expired(self.now()).await {
            tracing::warn!(%error, "expired idempotency keys could not be removed");
        }
    }

    fn now(&self) -> Time {
        Time((self.config.clock)().0.saturating_add(self.clock_offset_us))
    }

    /// Serves calls in the order of arrival: runs of process calls as batches, registry calls one by one.
    async fn serve(&mut self, mut jobs: VecDeque<Job>) {
        while let Some(first) = jobs.front() {
            if first.is_registry() {
                if let Some(job) = jobs.pop_front() {
                    self.serve_registry(job).await;
                }
                continue;
            }
            let end = jobs.iter().position(Job::is_registry).unwrap_or(jobs.len());
            let rest = jobs.split_off(end);
            let follow_ups = self.serve_processes(std::mem::replace(&mut jobs, rest)).await;
            for job in follow_ups.into_iter().rev() {
                jobs.push_front(job);
            }
        }
    }

    /// Decides and commits, again and again for those that lost a race. Returns registry jobs that arose.
    async fn serve_processes(&mut self, mut jobs: VecDeque<Job>) -> Vec<Job> {
        let mut follow_ups = Vec::new();
        for _ in 0..MAX_ROUNDS {
            if jobs.is_empty() {
                return follow_ups;
            }
            let recalled = match self.prefetch(&mut jobs).await {
                Ok(recalled) => recalled,
                Err(error) => {
                    fail_all(jobs, &error);
                    return follow_ups;
                }
            };
            let (batch, decided) = self.decide_all(std::mem::take(&mut jobs), recalled);
            if batch.units.is_empty() && batch.checks.is_empty() {
                decided.into_iter().for_each(|d| jobs.extend(self.finish(d, &mut follow_ups)));
                continue;
            }
            match self.writer.commit(&batch).await {
                Ok(Committed::Done(verdicts)) => {
                    let losers = self.settle(&batch, decided, &verdicts, &mut follow_ups);
                    jobs.extend(losers);
                }
                Ok(Committed::RegistryMoved) => {
                    self.evict(&batch);
                    jobs.extend(decided.into_iter().map(|d| d.job));
                    if let Err(error) = self.refresh_registry().await {
                        fail_all(jobs, &error);
                        return follow_ups;
                    }
                }
                Err(StoreError::Rejected(_)) if decided.len() > 1 => {
                    // One of them holds what the database cannot take. Apart, only that one fails.
                    self.evict(&batch);
                    for decided in decided {
                        follow_ups.extend(Box::pin(self.serve_processes(VecDeque::from([decided.job]))).await);
                    }
                }
                Err(error) => {
                    self.evict(&batch);
                    fail_all(decided.into_iter().map(|d| d.job).collect(), &error);
                    return follow_ups;
                }
            }
        }
        for job in jobs {
            job.give(Err(Refusal::new(Code::Overloaded, "other writers kept changing this instance; try again")));
        }
        follow_ups
    }

    /// Everything that deciding needs and that only the store knows.
    async fn prefetch(
        &mut self,
        jobs: &mut VecDeque<Job>,
    ) -> Result<HashMap<(String, String), IdempotencyRow>, StoreError> {
        let mut missing: Vec<InstanceId> =
            jobs.iter().filter_map(Job::instance_id).filter(|id| !self.cache.contains_key(id)).collect();
        missing.sort_unstable();
        missing.dedup();
        if !missing.is_empty() {
            match self.writer.load(&missing).await {
                Ok(loaded) => loaded.into_iter().for_each(|loaded| self.remember(loaded)),
                Err(StoreError::Corrupt(_)) => self.load_one_by_one(&missing, jobs).await?,
                Err(error) => return Err(error),
            }
        }
        let keys: Vec<(String, String)> = jobs
            .iter()
            .filter_map(|job| job.call.idempotency.as_ref().map(|i| (job.call.actor_ref.clone(), i.key.clone())))
            .collect();
        let recalled = if keys.is_empty() { vec![] } else { self.writer.recall(&keys, self.now()).await? };
        for job in jobs.iter_mut() {
            self.resolve_step(job).await?;
        }
        Ok(recalled.into_iter().map(|row| ((row.actor_ref.clone(), row.key.clone()), row)).collect())
    }

    /// One damaged instance must not stop its neighbours: its calls are refused, the others go on.
    async fn load_one_by_one(&mut self, missing: &[InstanceId], jobs: &mut VecDeque<Job>) -> Result<(), StoreError> {
        for instance_id in missing {
            match self.writer.load(&[*instance_id]).await {
                Ok(loaded) => loaded.into_iter().for_each(|loaded| self.remember(loaded)),
                Err(error @ StoreError::Corrupt(_)) => {
                    tracing::error!(%instance_id, %error, "instance quarantined");
                    let (damaged, others) = jobs.drain(..).partition(|job| job.instance_id() == Some(*instance_id));
                    *jobs = others;
                    fail_all(damaged, &error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn remember(&mut self, loaded: Loaded) {
        let Loaded { process, head, policy_ref } = loaded;
        self.cache.insert(process.instance_id, Instance { process, head, policy_ref });
    }

    /// A step that was named but is not live: has it ended, or was it never one?
    async fn resolve_step(&mut self, job: &mut Job) -> Result<(), StoreError> {
        let Command::Process { target: Target::Existing(instance_id), command: process::Command::DecideGate(command) } =
            &mut job.call.command
        else {
            return Ok(());
        };
        let Some(StepChoice::Id(step_id)) = command.step else { return Ok(()) };
        let Some(instance) = self.cache.get(instance_id) else { return Ok(()) };
        let live = |gate: &process::Gate| {
            gate.action == command.action && gate.steps.iter().any(|step| step.step_id == step_id)
        };
        if !instance.process.gates.iter().any(live) {
            let ended = self.writer.step_ended(*instance_id, &command.action, step_id).await?;
            command.step = Some(if ended { StepChoice::Ended } else { StepChoice::Unknown });
        }
        Ok(())
    }

    /// The synchronous heart: every job decided in order, under one view of the registry.
    fn decide_all(
        &mut self,
        jobs: VecDeque<Job>,
        recalled: HashMap<(String, String), IdempotencyRow>,
    ) -> (Batch, Vec<Decided>) {
        let registry = self.registry.clone();
        let registry = registry.read().unwrap_or_else(PoisonError::into_inner);
        let mut round = Round {
            batch: Batch {
                registry_sequence: registry.sequence(),
                changes_registry: false,
                units: vec![],
                checks: vec![],
            },
            unit_of: HashMap::new(),
            recalled,
        };
        let decided = jobs.into_iter().map(|job| self.decide_one(job, &registry, &mut round)).collect();
        (round.batch, decided)
    }

    fn decide_one(&mut self, job: Job, registry: &Registry, round: &mut Round) -> Decided {
        if let Some(answer) = round.replay(&job.call) {
            // A key used earlier in this batch stands or falls with the unit that used it.
            let confirm = round.unit_of_key(&job.call).map(Confirm::Unit);
            return Decided { job, answer, confirm };
        }
        match self.try_decide(&job.call, registry, round) {
            Ok((answer, unit)) => Decided { job, answer: Ok(answer), confirm: Some(Confirm::Unit(unit)) },
            Err(refusal) => {
                let confirm = self.confirm_refusal(&job, round);
                Decided { job, answer: Err(refusal), confirm }
            }
        }
    }

    /// A refusal on what another node may have changed has to be confirmed by the store. One that was
    /// decided on top of this batch's own changes stands or falls with them.
    fn confirm_refusal(&mut self, job: &Job, round: &mut Round) -> Option<Confirm> {
        let instance_id = job.instance_id();
        if let Some(unit) = instance_id.and_then(|id| round.unit_of.get(&id)) {
            return Some(Confirm::Unit(*unit));
        }
        if self.exclusive {
            return None;
        }
        let instance_id = instance_id.unwrap_or(InstanceId::REGISTRY);
        let expected_sequence = self.cache.get(&instance_id).map_or(0, |instance| instance.head.sequence);
        let known = round.batch.checks.iter().position(|check| check.instance_id == instance_id);
        Some(Confirm::Check(known.unwrap_or_else(|| {
            // Only the registry is checked for calls that name no instance.
            let expected_sequence =
                if instance_id == InstanceId::REGISTRY { round.batch.registry_sequence } else { expected_sequence };
            round.batch.checks.push(Check { instance_id, expected_sequence });
            round.batch.checks.len() - 1
        })))
    }

    fn try_decide(&mut self, call: &Call, registry: &Registry, round: &mut Round) -> Result<(Outcome, usize), Refusal> {
        let Command::Process { target, command } = &call.command else {
            return Err(Refusal::new(Code::InvalidRequest, "a registry call among process calls"));
        };
        let entropy = u64::from_le_bytes(self.random()?);
        let clock = self.now();
        let registry_time = self.registry_time;
        let instance = match target {
            Target::Existing(instance_id) => self.cache.get(instance_id),
            Target::New | Target::Nowhere => None,
        };
        let earliest = instance.as_ref().map_or(Time(0), |instance| Time(instance.head.last_time.0 + 1));
        let now = clock.max(earliest).max(registry_time);
        let mut ctx = Context {
            actor_ref: &call.actor_ref,
            now,
            registry,
            application_actor_ref: &self.config.application_actor_ref,
            ids: IdSource::new(now, entropy),
        };
        let events = process::decide(instance.map(|instance| &instance.process), command, &mut ctx)?;
        let ids = ctx.ids;
        self.accept(call, &events, ids, registry, round)
    }

    /// Turns accepted events into records and rows of the batch, and moves the cached instance on.
    fn accept(
        &mut self,
        call: &Call,
        events: &[process::Event],
        mut ids: IdSource,
        registry: &Registry,
        round: &mut Round,
    ) -> Result<(Outcome, usize), Refusal> {
        let first =
            events.first().ok_or_else(|| Refusal::new(Code::RecordingFailure, "an accepted command without events"))?;
        let started = match (&call.command, Process::begin(first)) {
            (_, Some(process)) => Some(process),
            (Command::Process { target: Target::Existing(_), .. }, None) => None,
            _ => return Err(Refusal::new(Code::RecordingFailure, "events for no instance")),
        };
        let documents = match &first.body {
            EventBody::WorkflowStarted { declaration, gate_spec, .. } => {
                Some((declaration_document(declaration), gate_spec_document(gate_spec)))
            }
            _ => None,
        };
        let (instance_id, head, policy_ref, subject_ref, initiator_ref) = match &started {
            Some(process) => {
                let head = Head { sequence: 0, record_hash: ZERO_HASH, last_time: Time(0) };
                let policy = self.policy_for(process, registry);
                (process.instance_id, head, policy, process.subject_ref.clone(), process.initiator_ref.clone())
            }
            None => {
                let found = match &call.command {
                    Command::Process { target: Target::Existing(id), .. } => self.cache.get(id),
                    _ => None,
                };
                let instance =
                    found.ok_or_else(|| Refusal::new(Code::RecordingFailure, "the instance left the cache"))?;
                let process = &instance.process;
                (
                    process.instance_id,
                    instance.head.clone(),
                    instance.policy_ref.clone(),
                    process.subject_ref.clone(),
                    process.initiator_ref.clone(),
                )
            }
        };

        let digests = documents.as_ref().map(|(d, g)| Digests { declaration: d.digest, gate_spec: g.digest });
        let subject = Subject { instance_id, subject_ref: &subject_ref, initiator_ref: &initiator_ref };
        let mut writes = Vec::new();
        let mut records = Vec::with_capacity(events.len());
        let mut event_ids = Vec::with_capacity(events.len());
        let mut head_after = head.clone();
        for event in events {
            let event_id: EventId = ids.make();
            let own = event.actor_ref == self.config.application_actor_ref && event.actor_ref != call.actor_ref;
            let payload = payload::process_payload(instance_id, &subject_ref, &initiator_ref, event, digests.as_ref());
            let record = self.record(RecordDraft {
                event_id,
                instance_id,
                head: &mut head_after,
                action_ref: payload::process_action(&event.body),
                actor_ref: &event.actor_ref,
                at: event.at,
                registry_seq: registry.sequence(),
                policy_ref: &policy_ref,
                credential_id: if own { None } else { call.credential_id.as_deref() },
                payload,
            })?;
            project::process_writes(&subject, event, event_id, documents.as_ref(), &mut writes);
            records.push(record);
            event_ids.push(event_id);
        }

        // Nothing can be refused any more: move on.
        let instance = match started {
            Some(process) => {
                self.cache.insert(
                    instance_id,
                    Instance { process, head: head_after.clone(), policy_ref: policy_ref.clone() },
                );
                self.cache.get_mut(&instance_id)
            }
            None => self.cache.get_mut(&instance_id),
        };
        let mut answer = outcome::of_process(events, &event_ids);
        let (mut state, mut moves) = (String::new(), 0);
        if let Some(instance) = instance {
            events.iter().for_each(|event| instance.process.apply(event));
            instance.head = head_after.clone();
            state.clone_from(&instance.process.current_state);
            moves = instance.process.next_sequence_number - 1;
            complete_chain_state(&mut answer, &instance.process);
        }
        let expires_at = Time(head_after.last_time.0.saturating_add(IDEMPOTENCY_WINDOW_US));
        let key = call.idempotency.as_ref().map(|i| round.keep(call, i.request_digest, &answer, expires_at));
        let unit = round.unit(instance_id, head.sequence);
        let unit_ref = &mut round.batch.units[unit];
        unit_ref.head = head_after;
        unit_ref.state = state;
        unit_ref.moves = moves;
        unit_ref.policy_ref = policy_ref;
        unit_ref.writes.append(&mut writes);
        unit_ref.records.append(&mut records);
        unit_ref.idempotency.extend(key);
        Ok((answer, unit))
    }

    fn policy_for(&self, process: &Process, registry: &Registry) -> String {
        let deployment = self.config.deployment_policy();
        let of_definition = process
            .definition
            .as_ref()
            .and_then(|d| registry.definition(&d.name, Some(d.version)))
            .and_then(|definition| definition.retention.as_deref());
        of_definition.map_or(deployment, |policy| self.config.policies.longer(deployment, policy)).to_owned()
    }

    fn random<const N: usize>(&mut self) -> Result<[u8; N], Refusal> {
        self.entropy.take().map_err(|error| {
            tracing::error!(%error, "no randomness");
            Refusal::new(Code::RecordingFailure, "the system gives no randomness; nothing was written")
        })
    }

    fn record(&mut self, draft: RecordDraft<'_>) -> Result<RecordRow, Refusal> {
        if draft.payload.len() > MAX_PAYLOAD_BYTES {
            let detail = format!(
                "the record would hold {} bytes; {MAX_PAYLOAD_BYTES} are allowed. Shorten the reason",
                draft.payload.len()
            );
            return Err(Refusal::new(Code::TooLarge, detail));
        }
        let salt = self.random()?;
        let sequence = draft.head.sequence + 1;
        let (retention_until, purge_deadline) = self.config.policies.window(draft.policy_ref, draft.at);
        let record = Draft {
            event_id: draft.event_id,
            instance_id: draft.instance_id,
            sequence,
            prev: draft.head.record_hash,
            action_ref: draft.action_ref,
            actor_ref: draft.actor_ref,
            recorded_at: draft.at,
            registry_seq: draft.registry_seq,
            retention: Retention { policy_ref: draft.policy_ref, retention_until, purge_deadline },
            attestation: Attestation::Server { credential_id: draft.credential_id },
            payload: draft.payload,
            salt,
        }
        .into_record()
        .map_err(|error| Refusal::new(Code::RecordingFailure, error.to_string()))?;
        *draft.head = Head { sequence, record_hash: record.record_hash, last_time: draft.at };
        Ok(RecordRow {
            event_id: draft.event_id,
            instance_id: draft.instance_id,
            sequence,
            action_ref: draft.action_ref.to_owned(),
            actor_ref: draft.actor_ref.to_owned(),
            recorded_at: draft.at,
            record,
        })
    }

    /// Gives the answers that stand, and returns the jobs that must be decided again.
    fn settle(
        &mut self,
        batch: &Batch,
        decided: Vec<Decided>,
        verdicts: &[Verdict],
        follow_ups: &mut Vec<Job>,
    ) -> VecDeque<Job> {
        let verdict = |confirm| match confirm {
            Confirm::Unit(i) => verdicts.get(i).copied(),
            Confirm::Check(i) => verdicts.get(batch.units.len() + i).copied(),
        };
        for (i, unit) in batch.units.iter().enumerate() {
            if verdict(Confirm::Unit(i)) != Some(Verdict::Won) {
                self.cache.remove(&unit.instance_id);
            }
        }
        for (i, check) in batch.checks.iter().enumerate() {
            if verdict(Confirm::Check(i)) != Some(Verdict::Won) {
                self.cache.remove(&check.instance_id);
            }
        }
        let mut again = VecDeque::new();
        for decided in decided {
            match decided.confirm.map(verdict) {
                None | Some(Some(Verdict::Won)) => again.extend(self.finish(decided, follow_ups)),
                Some(_) => again.push_back(decided.job),
            }
        }
        again
    }

    /// Gives an answer. Where failed attempts are audited, a refusal for want of authority first becomes
    /// a job of its own: on the instance if there is one (returned), else on the registry.
    fn finish(&mut self, decided: Decided, follow_ups: &mut Vec<Job>) -> Option<Job> {
        let Decided { mut job, answer, .. } = decided;
        let refusal = match &answer {
            Err(refusal) if matches!(refusal.code, Code::PermissionDenied | Code::Unauthorized) => refusal.clone(),
            _ => {
                job.give(answer);
                return None;
            }
        };
        if !self.config.audit_failed_attempts || job.refused.is_some() {
            job.give(answer);
            return None;
        }
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

    fn evict(&mut self, batch: &Batch) {
        for unit in &batch.units {
            self.cache.remove(&unit.instance_id);
        }
        for check in &batch.checks {
            self.cache.remove(&check.instance_id);
        }
    }

    async fn refresh_registry(&mut self) -> Result<Head, StoreError> {
        let known = self.registry.read().unwrap_or_else(PoisonError::into_inner).sequence();
        let delta = self.writer.registry_since(known).await?;
        absorb(&self.registry, &delta);
        self.registry_time = self.registry_time.max(delta.head.last_time);
        Ok(delta.head)
    }

    /// One registry change, one transaction, every other batch excluded.
    async fn serve_registry(&mut self, job: Job) {
        for _ in 0..MAX_ROUNDS {
            match self.try_registry(&job).await {
                Ok(Some(answer)) => {
                    if let Some(follow_up) = self.registry_refusal(&job, &answer) {
                        return Box::pin(self.serve_registry(Job {
                            refused: answer.err(),
                            call: follow_up,
                            answer: job.answer,
                        }))
                        .await;
                    }
                    return job.give(answer);
                }
                Ok(None) => {}
                Err(error) => return job.give(Err(store_failure(&error))),
            }
        }
        job.give(Err(Refusal::new(Code::Overloaded, "the registry kept changing; try again")));
    }

    fn registry_refusal(&self, job: &Job, answer: &Answer) -> Option<Call> {
        let Err(refusal @ Refusal { code: Code::PermissionDenied | Code::Unauthorized, .. }) = answer else {
            return None;
        };
        if !self.config.audit_failed_attempts || job.refused.is_some() {
            return None;
        }
        let command = registry::RecordRefusedAttempt {
            attempted: job.call.command.name().to_owned(),
            code: refusal.code,
            detail: refusal.detail.clone(),
        };
        let command = Command::Registry(registry::Command::RecordRefusedAttempt(command));
        Some(Call { command, idempotency: None, ..job.call.clone() })
    }

    /// `None`: the registry moved meanwhile, try again.
    async fn try_registry(&mut self, job: &Job) -> Result<Option<Answer>, StoreError> {
        let Command::Registry(command) = &job.call.command else {
            return Ok(Some(Err(Refusal::new(Code::InvalidRequest, "not a registry call"))));
        };
        let head = self.refresh_registry().await?;
        if let Some(idempotency) = &job.call.idempotency {
            let key = (job.call.actor_ref.clone(), idempotency.key.clone());
            if let Some(row) = self.writer.recall(&[key], self.now()).await?.into_iter().next() {
                return Ok(Some(replay(&row, idempotency.request_digest)));
            }
        }
        match self.registry_unit(job, command, head) {
            Err(refusal) => Ok(Some(Err(refusal))),
            Ok((answer, None)) => Ok(Some(Ok(answer))),
            Ok((answer, Some((unit, events)))) => {
                let first = unit.expected_sequence + 1;
                let batch = Batch {
                    registry_sequence: unit.expected_sequence,
                    changes_registry: true,
                    units: vec![unit],
                    checks: vec![],
                };
                match self.writer.commit(&batch).await? {
                    Committed::Done(verdicts) if verdicts == [Verdict::Won] => {
                        let events = (first..).zip(events).collect();
                        let head = batch.units[0].head.clone();
                        self.registry_time = self.registry_time.max(head.last_time);
                        absorb(&self.registry, &RegistryDelta { events, head });
                        Ok(Some(Ok(answer)))
                    }
                    Committed::Done(_) | Committed::RegistryMoved => Ok(None),
                }
            }
        }
    }

    /// Decides a registry command on the registry as it stands, and lays out what it writes.
    #[expect(clippy::type_complexity, reason = "one private caller; a named type would say less")]
    fn registry_unit(
        &mut self,
        job: &Job,
        command: &registry::Command,
        head: Head,
    ) -> Result<(Outcome, Option<(Unit, Vec<registry::Event>)>), Refusal> {
        let call = &job.call;
        let entropy = u64::from_le_bytes(self.random()?);
        let now = self.now().max(Time(head.last_time.0 + 1));
        let mut ids = IdSource::new(now, entropy);
        let (events, answer, registry_seq) = {
            let registry = self.registry.read().unwrap_or_else(PoisonError::into_inner);
            let application = &self.config.application_actor_ref;
            let events = registry::decide(&registry, command, &call.actor_ref, application, now, &mut ids)?;
            let answer = registry_outcome(command, &events, &registry);
            (events, answer, registry.sequence())
        };
        if events.is_empty() {
            return Ok((answer, None));
        }
        let mut unit = Unit {
            instance_id: InstanceId::REGISTRY,
            expected_sequence: head.sequence,
            head,
            state: String::new(),
            moves: 0,
            policy_ref: self.config.deployment_policy().to_owned(),
            writes: vec![],
            records: vec![],
            idempotency: vec![],
        };
        for event in &events {
            let documents = match &event.body {
                registry::EventBody::DefinitionPublished(d) => {
                    Some((declaration_document(&d.declaration), gate_spec_document(&d.gate_spec)))
                }
                _ => None,
            };
            let digests = documents.as_ref().map(|(d, g)| Digests { declaration: d.digest, gate_spec: g.digest });
            let policy_ref = unit.policy_ref.clone();
            let record = self.record(RecordDraft {
                event_id: ids.make(),
                instance_id: InstanceId::REGISTRY,
                head: &mut unit.head,
                action_ref: payload::registry_action(&event.body),
                actor_ref: &event.actor_ref,
                at: event.at,
                registry_seq,
                policy_ref: &policy_ref,
                credential_id: call.credential_id.as_deref(),
                payload: payload::registry_payload(event, digests.as_ref()),
            })?;
            project::registry_writes(event, record.sequence, documents.as_ref(), &mut unit.writes);
            unit.records.push(record);
        }
        unit.idempotency.extend(call.idempotency.as_ref().map(|i| {
            let expires_at = Time(now.0.saturating_add(IDEMPOTENCY_WINDOW_US));
            idempotency_row(call, &i.key, i.request_digest, &answer, expires_at)
        }));
        Ok((answer, Some((unit, events))))
    }
}

struct RecordDraft<'a> {
    event_id: EventId,
    instance_id: InstanceId,
    head: &'a mut Head,
    action_ref: &'a str,
    actor_ref: &'a str,
    at: Time,
    registry_seq: u64,
    policy_ref: &'a str,
    credential_id: Option<&'a str>,
    payload: Vec<u8>,
}

/// The batch that a round builds up.
struct Round {
    batch: Batch,
    unit_of: HashMap<InstanceId, usize>,
    /// Answers kept under idempotency keys, from the store and from this round.
    recalled: HashMap<(String, String), IdempotencyRow>,
}

impl Round {
    fn unit(&mut self, instance_id: InstanceId, expected_sequence: u64) -> usize {
        let units = &mut self.batch.units;
        *self.unit_of.entry(instance_id).or_insert_with(|| {
            units.push(Unit {
                instance_id,
                expected_sequence,
                head: Head { sequence: 0, record_hash: ZERO_HASH, last_time: Time(0) },
                state: String::new(),
                moves: 0,
                policy_ref: String::new(),
                writes: vec![],
                records: vec![],
                idempotency: vec![],
            });
            units.len() - 1
        })
    }

    fn replay(&self, call: &Call) -> Option<Answer> {
        let idempotency = call.idempotency.as_ref()?;
        let row = self.recalled.get(&(call.actor_ref.clone(), idempotency.key.clone()))?;
        Some(replay(row, idempotency.request_digest))
    }

    fn unit_of_key(&self, call: &Call) -> Option<usize> {
        let key = &call.idempotency.as_ref()?.key;
        let used = |row: &IdempotencyRow| row.actor_ref == call.actor_ref && row.key == *key;
        self.batch.units.iter().position(|unit| unit.idempotency.iter().any(used))
    }

    fn keep(&mut self, call: &Call, request_digest: Digest, answer: &Outcome, expires_at: Time) -> IdempotencyRow {
        let key = call.idempotency.as_ref().map(|i| i.key.as_str()).unwrap_or_default();
        let row = idempotency_row(call, key, request_digest, answer, expires_at);
        self.recalled.insert((row.actor_ref.clone(), row.key.clone()), row.clone());
        row
    }
}

fn idempotency_row(
    call: &Call,
    key: &str,
    request_digest: Digest,
    answer: &Outcome,
    expires_at: Time,
) -> IdempotencyRow {
    IdempotencyRow {
        actor_ref: call.actor_ref.clone(),
        key: key.to_owned(),
        request_digest,
        answer: serde_json::to_string(answer).unwrap_or_default(),
        expires_at,
    }
}

fn replay(row: &IdempotencyRow, request_digest: Digest) -> Answer {
    if row.request_digest != request_digest {
        let detail = "this Idempotency-Key was used for another request; use a new key";
        return Err(Refusal::new(Code::Conflict, detail).at("Idempotency-Key"));
    }
    serde_json::from_str(&row.answer)
        .map_err(|error| store_failure(&StoreError::Corrupt(format!("kept answer of key {}: {error}", row.key))))
}

/// `of_process` leaves the chain's id where its state belongs.
fn complete_chain_state(answer: &mut Outcome, process: &Process) {
    let Outcome::Decided { chain_state: Some(chain), .. } = answer else { return };
    let state = process.gates.iter().find_map(|gate| match &gate.kind {
        GateKind::Quorum { chain_id, state, .. } if chain_id.to_string() == *chain => Some(state.as_str()),
        GateKind::Quorum { .. } | GateKind::Single => None,
    });
    // A superseded chain whose last step was just decided is no longer held; it had been rejected or withdrawn.
    state.unwrap_or("Rejected").clone_into(chain);
}

fn registry_outcome(command: &registry::Command, events: &[registry::Event], registry: &Registry) -> Outcome {
    match (command, events.first().map(|event| &event.body)) {
        (_, Some(registry::EventBody::GrantMade { grant_id, .. })) => {
            Outcome::Granted { grant_id: grant_id.to_string() }
        }
        (_, Some(registry::EventBody::GrantRevoked { .. })) => Outcome::Revoked,
        (registry::Command::RegisterActor(command), _) => {
            Outcome::ActorRegistered { actor_ref: command.actor_ref.clone() }
        }
        (_, Some(registry::EventBody::DefinitionPublished(d))) => {
            Outcome::Published { name: d.name.clone(), version: d.version, digest: d.digest.to_string(), created: true }
        }
        (registry::Command::PublishDefinition(command), None) => Outcome::Published {
            name: command.name.clone(),
            version: registry.definition(&command.name, None).map_or(1, |d| d.version),
            digest: command.digest.to_string(),
            created: false,
        },
        _ => Outcome::Done,
    }
}

fn fail_all(jobs: VecDeque<Job>, error: &StoreError) {
    for job in jobs {
        job.give(Err(store_failure(error)));
    }
}
