//! What the engine offers about runs besides [`Engine::execute`]: claims that wait for work, and events by key.

use crate::outcome::{Call, ClaimCall, Command, IdempotencyKey, Outcome, Proof, Target, Task};
use crate::port::{Page, Range, RecordQuery, RunQuery};
use crate::run::agenda::Reach;
use crate::{Engine, store_failure};
use countersign_kernel::InstanceId;
use countersign_kernel::lifecycle::StepCode;
use countersign_kernel::refusal::{Code, Refusal, require_ref};
use countersign_kernel::registry::{Registry, scopes};
use countersign_kernel::run::{self, KeptEvent, Prior};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// How many tasks one claim may ask for.
pub const MAX_CLAIM: usize = 1000;
/// The longest that a claim waits for work.
pub const MAX_WAIT: Duration = Duration::from_secs(60);
/// How many runs that an event concerns are read at a time.
const CORRELATED: usize = 10_000;

/// What became of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    pub duplicate: bool,
    pub woken: Vec<(InstanceId, String)>,
    /// How many live runs have it: woken, or keeping it for their next wait.
    pub reached: u32,
}

/// Whom an event concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Addressee {
    Run(Option<InstanceId>),
    Key(String),
}

/// How often it is looked whether a survey is done.
const LOOK: Duration = Duration::from_millis(20);

impl Engine {
    /// The state of a run once the survey is done that a command has asked for, as far as the engine's own executor does it and
    /// not for longer than this; `state` where there is none to wait for.
    pub async fn surveyed(&self, target: Target, state: String, wait: Duration) -> Result<String, Refusal> {
        let Target::Existing(run_id) = target else { return Ok(state) };
        let until = Instant::now() + wait;
        let query = RunQuery { instance_id: Some(run_id), ..RunQuery::default() };
        let page = Page { after: None, limit: 1, descending: false };
        let mut state = state;
        while Instant::now() < until {
            let Some(run) = self.own_runs(&query, &page).await?.into_iter().next() else { break };
            state.clone_from(&run.head.state);
            let Some(book) = run.head.runbook.as_deref().and_then(super::runbook::parse) else { break };
            let Some(survey) = book.survey.as_ref().filter(|survey| !survey.captures()) else { break };
            let plan = self.plan_of(&run).await?;
            if book.part(&plan, survey).is_none_or(|part| &*part.queue != run::SURVEY_QUEUE) {
                break;
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(state)
    }

    /// Steps of a queue for a worker, at once or as soon as there are any; none when `wait` is over.
    pub async fn claim(
        &self,
        actor_ref: &str,
        proof: Proof,
        claim: ClaimCall,
        wait: Duration,
    ) -> Result<Vec<Task>, Refusal> {
        self.claim_once(actor_ref, proof, claim, wait, None).await
    }

    /// The same under a key: asked again while one of the leases stands, it answers with the same tasks.
    pub async fn claim_once(
        &self,
        actor_ref: &str,
        proof: Proof,
        claim: ClaimCall,
        wait: Duration,
        idempotency: Option<IdempotencyKey>,
    ) -> Result<Vec<Task>, Refusal> {
        countersign_kernel::refusal::require_text("worker_id", &claim.worker_id)?;
        require_ref("queue", &claim.queue)?;
        if claim.max == 0 || claim.max > MAX_CLAIM {
            return Err(
                Refusal::new(Code::InvalidRequest, format!("`max` must lie between 1 and {MAX_CLAIM}")).at("max")
            );
        }
        run::check_lease(claim.lease)?;
        let mut reach = self.reach(actor_ref).await?;
        if wait > MAX_WAIT {
            let detail = format!("`wait_ms` must lie between 0 and {}", MAX_WAIT.as_millis());
            return Err(Refusal::new(Code::InvalidRequest, detail).at("wait_ms"));
        }
        let deadline = Instant::now() + wait;
        // Only the store knows whether it was asked before.
        let mut may_be_repeated = idempotency.is_some();
        let waiters = self.book.waiters(&claim.queue, &reach);
        let is_frozen = || self.registry().is_frozen(&claim.queue, &claim.worker_id);
        let own = actor_ref == self.config.application_actor_ref;
        let _there = self.monitor.waits(&claim.queue, &claim.worker_id, self.now(), (is_frozen(), own));
        let _waiting = self.book.wait_in(&claim.queue, &reach);
        let mut changes = self.registry.changes();
        loop {
            let notified = waiters.notified();
            if self.book.is_closed() {
                return Ok(vec![]);
            }
            changes.mark_unchanged();
            let asks_again = std::mem::take(&mut may_be_repeated);
            let frozen = is_frozen();
            if frozen && !asks_again {
                // What it was woken for is for others.
                waiters.notify_one();
                tokio::select! {
                    _ = changes.changed() => continue,
                    () = tokio::time::sleep_until(deadline) => return Ok(vec![]),
                }
            }
            if asks_again || self.book.has_ready(&claim.queue, &reach) {
                let call = Call {
                    actor_ref: actor_ref.to_owned(),
                    proof: proof.clone(),
                    command: Command::Claim(claim.clone()),
                    idempotency: idempotency.clone(),
                };
                if let Outcome::Claimed { tasks } = self.execute(call).await?
                    && !tasks.is_empty()
                {
                    return Ok(tasks);
                }
                // What somebody may work on can change while they wait.
                if reach != Reach::All {
                    reach = self.reach(actor_ref).await?;
                }
                if is_frozen() || self.book.has_ready(&claim.queue, &reach) && Instant::now() < deadline {
                    continue;
                }
            }
            tokio::select! {
                () = notified => {}
                () = tokio::time::sleep_until(deadline) => return Ok(vec![]),
            }
        }
    }

    /// The general grant, or finer ones: `tasks:work:<definition>`.
    pub(crate) async fn reach(&self, actor_ref: &str) -> Result<Reach, Refusal> {
        if actor_ref == self.config.application_actor_ref {
            return Ok(Reach::All);
        }
        self.allowed(|registry| Reach::of(actor_ref, registry), actor_ref, scopes::TASKS_WORK).await
    }

    /// Delivers an event to a run, or to every live run with a correlation key. The same id wakes once.
    pub async fn send_event(
        &self,
        actor_ref: &str,
        proof: &Proof,
        to: &Addressee,
        event: &KeptEvent,
    ) -> Result<Sent, Refusal> {
        self.send_event_but(actor_ref, proof, to, event, &[]).await
    }

    /// The same, but for runs that it does not concern.
    pub(crate) async fn send_event_but(
        &self,
        actor_ref: &str,
        proof: &Proof,
        to: &Addressee,
        event: &KeptEvent,
        unconcerned: &[InstanceId],
    ) -> Result<Sent, Refusal> {
        require_ref("id", &event.id)?;
        require_ref("type", &event.event_type)?;
        let mut targets = match to {
            Addressee::Run(run_id) => vec![run_id.map_or(Target::Nowhere, Target::Existing)],
            Addressee::Key(key) => {
                require_ref("correlation_key", key)?;
                self.correlated(actor_ref, key).await?.into_iter().map(Target::Existing).collect()
            }
        };
        targets.retain(|target| !matches!(target, Target::Existing(run_id) if unconcerned.contains(run_id)));
        let mut sent = Sent { duplicate: !targets.is_empty(), woken: vec![], reached: 0 };
        for target in targets {
            let call = Call {
                actor_ref: actor_ref.to_owned(),
                proof: proof.clone(),
                command: Command::Run { target, command: run::Command::Receive { event: event.clone(), seen: false } },
                idempotency: None,
            };
            if let (Outcome::EventReceived { duplicate, woken, reached }, Target::Existing(run_id)) =
                (self.execute(call).await?, target)
            {
                sent.duplicate &= duplicate;
                sent.reached += u32::from(reached);
                sent.woken.extend(woken.into_iter().map(|step| (run_id, step)));
            }
        }
        Ok(sent)
    }

    /// The live runs with this key that an event of this actor may be delivered to. Others are passed over in silence: a
    /// key of runs that the actor may not reach is answered like one that nobody has.
    async fn correlated(&self, actor_ref: &str, key: &str) -> Result<Vec<InstanceId>, Refusal> {
        let any = |registry: &Registry| delivers(actor_ref, None, registry);
        if actor_ref != self.config.application_actor_ref {
            self.allowed(any, actor_ref, scopes::RUNS_CONTROL).await?;
        }
        let (mut reached, mut after) = (Vec::new(), None);
        // By definition, whether its runs may be told.
        let mut known: BTreeMap<String, bool> = BTreeMap::new();
        loop {
            let page = self.reader.runs_by_correlation(key, after, CORRELATED).await;
            let page = page.map_err(|error| store_failure(&error))?;
            let full = page.len() == CORRELATED;
            after = page.last().map(|(run_id, _)| *run_id);
            for (run_id, definition) in page {
                let allowed = match known.get(&definition) {
                    Some(allowed) => *allowed,
                    None => {
                        let allowed = self.may_deliver(actor_ref, &definition).await?;
                        known.insert(definition, allowed);
                        allowed
                    }
                };
                if allowed {
                    reached.push(run_id);
                }
            }
            if !full {
                return Ok(reached);
            }
        }
    }

    async fn may_deliver(&self, actor_ref: &str, definition: &str) -> Result<bool, Refusal> {
        if actor_ref == self.config.application_actor_ref {
            return Ok(true);
        }
        let this = |registry: &Registry| delivers(actor_ref, Some(definition), registry);
        match self.allowed(this, actor_ref, scopes::RUNS_CONTROL).await {
            Ok(()) => Ok(true),
            Err(refusal) if refusal.code == Code::PermissionDenied => Ok(false),
            Err(refusal) => Err(refusal),
        }
    }

    /// The record that closed a step, and what it yielded: what a reopening is set beside.
    pub async fn prior(&self, run_id: InstanceId, step: &str) -> Result<Option<Prior>, Refusal> {
        let Some(row) = self.run_of(run_id).await?.map(|view| view.row) else { return Ok(None) };
        let plan = self.plan(&row.definition_name, row.definition_version).await?;
        let Some(seq) = plan.and_then(|plan| plan.cell_named(step)) else { return Ok(None) };
        let steps = self.reader.run_steps(run_id, seq, 1).await.map_err(|error| store_failure(&error))?;
        let Some(state) = steps.into_iter().next().map(|step| step.state) else { return Ok(None) };
        let closed_at = match state.state {
            StepCode::Completed => state.completed_at,
            _ => state.charge.declared_at,
        };
        let Some(at) = closed_at else { return Ok(None) };
        let query = RecordQuery {
            instance_id: Some(run_id),
            recorded: Range { after: Some(at), before: Some(at) },
            ..RecordQuery::default()
        };
        let page = Page { after: None, limit: 100, descending: true };
        let records = self.reader.records(&query, &page).await.map_err(|error| store_failure(&error))?;
        // The run's own record is the last of its command.
        Ok(records.into_iter().next().map(|record| Prior {
            event_id: record.event_id,
            actor_ref: record.actor_ref,
            at,
            output: state.output,
        }))
    }

    /// Claims that wait for work are answered at once, streams end, and so do all that follow: the server is stopping.
    pub fn stop_waiting(&self) {
        self.book.close();
        self.hub.close();
    }

    /// Whether there is such a run that this actor may read. One that it may not read is as one that is not there.
    pub async fn sees_run(&self, actor_ref: &str, run_id: InstanceId) -> Result<bool, Refusal> {
        let query = RunQuery { instance_id: Some(run_id), ..RunQuery::default() };
        let page = Page { after: None, limit: 1, descending: false };
        match self.read_runs(actor_ref, query, &page).await {
            Err(refusal) if refusal.code == Code::PermissionDenied => Ok(false),
            found => Ok(!found?.is_empty()),
        }
    }

    /// How many steps wait in each queue of this node.
    pub fn queue_depths(&self) -> Vec<(std::sync::Arc<str>, usize)> {
        self.book.depths()
    }

    /// How many things this node's clock has to look at.
    pub fn timers(&self) -> usize {
        self.book.timers()
    }
}

/// Whether this actor may deliver an event to runs of this definition, or (`None`) of any.
fn delivers(actor_ref: &str, definition: Option<&str>, registry: &Registry) -> Option<()> {
    let on = |scope: &str| match definition {
        Some(_) => registry.permitted_on(actor_ref, scope, definition),
        None => {
            let finer = format!("{scope}:");
            registry.permitted(actor_ref, scope) || registry.grants().active_scopes(actor_ref, &finer).next().is_some()
        }
    };
    (on(scopes::RUNS_CONTROL) || on(scopes::TASKS_WORK)).then_some(())
}
