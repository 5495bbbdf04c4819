//! The one door of events (ADR 59), whether a caller posts them or a step of this server sends them: what an event starts (`on:`),
//! and which waits it wakes.
//!
//! What an event does has a key of its own: the event's id and the definition, or the event's id in the run that it wakes. So an event
//! that comes again does what is missing and nothing twice.

use super::service::{Addressee, Sent};
use crate::effects::{START, StartOrder};
use crate::outcome::{Call, Command, IdempotencyKey, Outcome, Target};
use crate::port::outbox::Delivery;
use crate::port::{Page, ProcessQuery, RecordQuery};
use crate::{Engine, store_failure};
use countersign_kernel::plan::{Plan, Scope, Trigger, WaitWork, Work};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::{Definition, Registry, scopes};
use countersign_kernel::run::{self, KeptEvent, Origin, OriginCause, StartRun};
use countersign_kernel::{Budget, Digest, InstanceId, TransitionId};
use countersign_ledger::sha256;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// The sink of the outbox under which this server takes what its own steps send. No configured sink has a name with `@`.
pub const EVENTS: &str = "@events";
/// How many runs may start each other by events, one after the other.
pub const MAX_DEPTH: u32 = 16;

/// An event at the door.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Under which it is known when it comes again. Without one the caller's Idempotency-Key serves, if there is one.
    pub id: Option<Arc<str>>,
    pub event_type: Arc<str>,
    /// JSON text.
    pub data: Arc<str>,
    /// Whose waits it may wake.
    pub to: Option<Addressee>,
    /// Definitions that the sender may not start: refused, or passed over as if they did not listen.
    pub passes_over: bool,
}

/// What an event has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// All of it had happened before.
    pub duplicate: bool,
    pub run_ids: Vec<String>,
    pub woken: Vec<(InstanceId, String)>,
    pub reached: u32,
}

/// An event of this server that could not be delivered to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undelivered {
    pub error: String,
    /// It may be delivered another time.
    pub passes: bool,
}

impl From<Refusal> for Undelivered {
    fn from(refusal: Refusal) -> Self {
        Undelivered { passes: refusal.passes(), error: refusal.to_string() }
    }
}

/// What one definition makes of an event.
type Start = (String, Result<StartRun, Refusal>);

impl Engine {
    /// Starts what an event starts, and wakes what waits for it, in the name of whoever sends it. What can be refused is refused
    /// before anything happens.
    pub async fn event_arrives(self: &Arc<Self>, call: &Call, event: &Arrival) -> Result<Arrived, Refusal> {
        if event.to.is_some() && event.id.is_none() {
            let detail = "an event that is for runs has an `id`, by which they know it when it comes again";
            return Err(Refusal::new(Code::InvalidRequest, detail).at("id"));
        }
        // What another node has just published listens too.
        self.catch_up().await?;
        let starts = self.starts(&call.actor_ref, event).await?;
        let starts = starts.into_iter().map(|(_, start)| start).collect::<Result<Vec<_>, _>>()?;
        let starts: Vec<_> = starts.into_iter().map(|start| (key_of(event, call, &start.definition), start)).collect();
        let mut before = Vec::new();
        for (key, _) in starts.iter().filter(|_| event.id.is_some()) {
            if let Some(key) = key {
                before.extend(self.started_under(&call.actor_ref, &key.key).await?);
            }
        }
        let mut sent = Sent { duplicate: true, woken: vec![], reached: 0 };
        let mut duplicate = event.id.is_some() && before.len() == starts.len();
        if let (Some(to), Some(id)) = (&event.to, &event.id) {
            let kept = KeptEvent { id: id.clone(), event_type: event.event_type.clone(), data: event.data.clone() };
            sent = self.send_event_but(&call.actor_ref, &call.proof, to, &kept, &before).await?;
            // Where it concerns no run, what it starts tells.
            duplicate &= sent.duplicate || sent.reached == 0 && !starts.is_empty();
        }
        let mut run_ids = Vec::with_capacity(starts.len());
        for (idempotency, start) in starts {
            run_ids.extend(self.start_by_event(call, idempotency, start).await?);
        }
        Ok(Arrived { duplicate, run_ids, woken: sent.woken, reached: sent.reached })
    }

    /// Delivers what a step of this server sent to this server. Whoever publishes `on:` or waits for an event has agreed to it, so it
    /// takes no grant of the sender's.
    pub async fn deliver_inside(self: &Arc<Self>, delivery: &Delivery) -> Result<(), Undelivered> {
        let start = StartRun::new("", "null");
        let own = self.own_call(Command::Run { target: Target::New, command: run::Command::Start(Box::new(start)) });
        let run = self.run_of(delivery.instance_id).await?;
        if run.is_none() && delivery.event_type == START {
            return self.start_by_effect(delivery, &own).await;
        }
        let id: Arc<str> = delivery.outbox_id.to_string().into();
        let (event_type, data): (Arc<str>, Arc<str>) =
            (delivery.event_type.as_str().into(), delivery.data.as_str().into());
        let event = Arrival { id: Some(id.clone()), event_type, data, to: None, passes_over: true };
        self.catch_up().await?;

        let kept = KeptEvent { id, event_type: event.event_type.clone(), data: event.data.clone() };
        let starts = self.starts(&own.actor_ref, &event).await?;
        let mut before = Vec::new();
        for (definition, _) in &starts {
            let key = event_key(&delivery.outbox_id.to_string(), definition);
            before.extend(self.started_under(&own.actor_ref, &key).await?);
        }
        let to = match run {
            None => Addressee::Key(self.subject_of(delivery.instance_id).await?),
            Some(sender) => {
                if !waits_for(&*self.plan_of(&sender).await?, &event.event_type) {
                    before.push(delivery.instance_id);
                }
                let own = Addressee::Run(Some(delivery.instance_id));
                sender.row.correlation_key.map_or(own, |key| Addressee::Key(key.to_string()))
            }
        };
        self.send_event_but(&own.actor_ref, &own.proof, &to, &kept, &before).await?;
        self.start_inside(delivery, &own, &event, starts).await
    }

    /// The subject of a process: runs with that correlation key hear what its transitions send.
    async fn subject_of(&self, instance_id: InstanceId) -> Result<String, Undelivered> {
        let query = ProcessQuery { instance_id: Some(instance_id), ..ProcessQuery::default() };
        let page = Page { after: None, limit: 1, descending: false };
        let found = self.reader.processes(&query, &page).await.map_err(|error| store_failure(&error))?;
        let process = found.into_iter().next();
        process
            .map(|process| process.row.subject_ref)
            .ok_or_else(|| Undelivered { error: "the process that sent it is not known".to_owned(), passes: false })
    }

    /// The run that a firing starts: once, by the key of the firing and the place of the effect.
    async fn start_by_effect(&self, delivery: &Delivery, own: &Call) -> Result<(), Undelivered> {
        let order = serde_json::from_str::<StartOrder>(&delivery.data).ok();
        let order = order.and_then(|order| Some((TransitionId::parse(&order.transition_id)?, order)));
        let Some((transition_id, order)) = order else {
            return Err(Undelivered { error: "what it starts was purged".to_owned(), passes: false });
        };
        let key = format!("effect/{transition_id}/{}", order.effect);
        let cause = OriginCause::Effect { transition_id, effect: order.effect };
        let start = StartRun {
            version: order.version,
            origin: Some(Origin { instance_id: delivery.instance_id, cause, depth: 1 }),
            ..StartRun::new(order.definition, order.input.to_string())
        };
        let idempotency = Some(IdempotencyKey { request_digest: sha256(&[key.as_bytes()]), key });
        let refused = |refusal: Refusal| Undelivered::from(refusal);
        let command = Command::Run { target: Target::New, command: run::Command::Start(Box::new(start)) };
        self.execute(Call { command, idempotency, ..own.clone() }).await.map(|_| ()).map_err(refused)
    }

    /// Each definition for itself: one that can make nothing of the event keeps no other from starting.
    async fn start_inside(
        self: &Arc<Self>,
        delivery: &Delivery,
        own: &Call,
        event: &Arrival,
        starts: Vec<Start>,
    ) -> Result<(), Undelivered> {
        if starts.is_empty() {
            return Ok(());
        }
        let depth = self.depth_of(delivery.instance_id).await?.saturating_add(1);
        if depth > MAX_DEPTH {
            let error = format!(
                "EVENT_LOOP: {MAX_DEPTH} runs have started each other by events, so this one starts nothing; a replay does not change that"
            );
            return Err(Undelivered { error, passes: false });
        }
        let cause = OriginCause::Event(delivery.outbox_id);
        let origin = Some(Origin { instance_id: delivery.instance_id, cause, depth });
        let trace_id = self.trace_of(delivery.instance_id).await?;
        let mut failed: Vec<Undelivered> = Vec::new();
        for (definition, start) in starts {
            let started = async {
                let start = StartRun { origin: origin.clone(), trace_id: trace_id.clone(), ..start? };
                self.start_by_event(own, key_of(event, own, &definition), start).await
            };
            if let Err(refusal) = started.await {
                let Undelivered { error, passes } = refusal.into();
                failed.push(Undelivered { error: format!("{definition}: {error}"), passes });
            }
        }
        match failed.is_empty() {
            true => Ok(()),
            false => Err(Undelivered {
                passes: failed.iter().any(|failure| failure.passes),
                error: failed.into_iter().map(|failure| failure.error).collect::<Vec<_>>().join("; "),
            }),
        }
    }

    /// `None`: it was paused or retired meanwhile.
    async fn start_by_event(
        &self,
        of: &Call,
        idempotency: Option<IdempotencyKey>,
        start: StartRun,
    ) -> Result<Option<String>, Refusal> {
        let command = Command::Run { target: Target::New, command: run::Command::Start(Box::new(start)) };
        match self.execute(Call { command, idempotency, ..of.clone() }).await {
            Ok(Outcome::RunStarted { run_id }) => Ok(Some(run_id)),
            Err(refusal) if refusal.code == Code::NotActive => Ok(None),
            Err(refusal) => Err(refusal),
            Ok(outcome) => {
                tracing::error!(?outcome, "unexpected outcome");
                Err(Refusal::new(Code::RecordingFailure, "a start was answered with something else"))
            }
        }
    }

    /// The run that was started under this key, if there is one.
    async fn started_under(&self, actor_ref: &str, key: &str) -> Result<Option<InstanceId>, Refusal> {
        let kept = self.outbox.kept_answer(actor_ref, key, self.now()).await.map_err(|error| store_failure(&error))?;
        let answer = kept.and_then(|row| serde_json::from_str(&row.answer).ok());
        Ok(match answer {
            Some(Outcome::RunStarted { run_id }) => InstanceId::parse(&run_id),
            _ => None,
        })
    }

    /// How many starts inside this server led to this run.
    async fn depth_of(&self, run_id: InstanceId) -> Result<u32, Refusal> {
        let query = RecordQuery { instance_id: Some(run_id), ..RecordQuery::default() };
        let page = Page { after: None, limit: 1, descending: false };
        let records = self.reader.records(&query, &page).await.map_err(|error| store_failure(&error))?;
        let content = records.into_iter().next().and_then(|record| record.record.content);
        let payload: Option<Value> = content.and_then(|content| serde_json::from_slice(&content.payload).ok());
        let depth = payload.and_then(|payload| payload.get("origin")?.get("depth")?.as_u64());
        Ok(u32::try_from(depth.unwrap_or(0)).unwrap_or(u32::MAX))
    }

    /// What this event starts, by the name of the definition.
    async fn starts(self: &Arc<Self>, actor_ref: &str, event: &Arrival) -> Result<Vec<Start>, Refusal> {
        let mut plans = HashMap::new();
        let digests = listening(&self.registry(), &event.event_type);
        for digest in digests {
            plans.insert(digest, self.published_plan(digest).await?);
        }
        let (engine, actor_ref, event) = (self.clone(), actor_ref.to_owned(), event.clone());
        // It takes as long as a command may: the runtime's own threads do not wait for it.
        let found = tokio::task::spawn_blocking(move || engine.worked_out(&actor_ref, &event, &plans));
        found.await.map_err(|error| {
            tracing::error!(%error, "what an event starts could not be found out");
            Refusal::new(Code::RecordingFailure, "what this event starts could not be found out")
        })?
    }

    fn worked_out(
        &self,
        actor_ref: &str,
        event: &Arrival,
        plans: &HashMap<Digest, Arc<Plan>>,
    ) -> Result<Vec<Start>, Refusal> {
        let registry = self.registry();
        if !event.passes_over {
            may_start_one(actor_ref, &registry)?;
        }
        let budget = Budget::default();
        let is_own = actor_ref == self.config.application_actor_ref;
        let mut starts = Vec::new();
        for definition in registry.started_by(&event.event_type) {
            let workflow = definition.workflow.as_ref();
            let Some(plan) = workflow.and_then(|workflow| plans.get(&workflow.document_digest)) else { continue };
            let Some(trigger) = plan.on.iter().find(|trigger| trigger.event_type == *event.event_type) else {
                continue;
            };
            if !is_own && !registry.permitted_on(actor_ref, scopes::RUNS_START, Some(&definition.name)) {
                if event.passes_over {
                    continue;
                }
                let detail = format!("`{actor_ref}` may not start every run that this event starts");
                return Err(Refusal::new(Code::PermissionDenied, detail));
            }
            starts.push((definition.name.clone(), self.start_of(definition, (plan, trigger), &event.data, &budget)));
        }
        starts.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(starts)
    }

    fn start_of(
        &self,
        definition: &Definition,
        (plan, trigger): (&Plan, &Trigger),
        data: &Arc<str>,
        budget: &Budget,
    ) -> Result<StartRun, Refusal> {
        let language = self.config.language.metered(budget);
        let name = &definition.name;
        let because = |error| {
            let detail = format!("`{name}` cannot make its input of this event: {error}");
            Refusal::new(Code::InvalidRequest, detail).at("data")
        };
        let input = match &trigger.input {
            None => data.clone(),
            Some(template) => {
                let scope = Scope { event: Some(data), ..Scope::default() };
                language.fill(template, &scope).map_err(because)?.into()
            }
        };
        if let Some(schema) = &plan.input_schema {
            language.conforms(schema, &input).map_err(because)?;
        }
        let scope = Scope { input: Some(&input), ..Scope::default() };
        for key in plan.correlation_key.iter().chain(plan.concurrency.as_ref().map(|concurrency| &concurrency.key)) {
            language.fill(key, &scope).map_err(because)?;
        }
        let version = Some(definition.version);
        Ok(StartRun { version, by_itself: true, ..StartRun::new(name.clone(), input) })
    }
}

/// Who may start nothing learns nothing about what an event would start.
fn may_start_one(actor_ref: &str, registry: &Registry) -> Result<(), Refusal> {
    let finer = format!("{}:", scopes::RUNS_START);
    let may_start_one = registry.grants().active_scopes(actor_ref, &finer).next().is_some();
    if registry.permitted(actor_ref, scopes::RUNS_START) || may_start_one {
        return Ok(());
    }
    let detail = format!("`{actor_ref}` holds no grant for `{}`", scopes::RUNS_START);
    Err(Refusal::new(Code::PermissionDenied, detail))
}

/// The documents of what listens to this type.
fn listening(registry: &Registry, event_type: &str) -> Vec<Digest> {
    let workflows = registry.started_by(event_type).filter_map(|definition| definition.workflow.as_ref());
    workflows.map(|workflow| workflow.document_digest).collect()
}

/// Whether a run of this plan has a step that waits for events of this type.
pub fn waits_for(plan: &Plan, event_type: &str) -> bool {
    plan.steps
        .iter()
        .any(|step| matches!(&step.work, Work::Wait(WaitWork::Event { event_type: known, .. }) if known == event_type))
}

fn event_key(id: &str, definition: &str) -> String {
    format!("event/{id}/{definition}")
}

/// Each start has a key of its own, so that the same event sent again starts none twice and those that are missing.
fn key_of(event: &Arrival, call: &Call, definition: &str) -> Option<IdempotencyKey> {
    match &event.id {
        Some(id) => {
            let key = event_key(id, definition);
            Some(IdempotencyKey { request_digest: sha256(&[key.as_bytes()]), key })
        }
        None => call
            .idempotency
            .as_ref()
            .map(|of| IdempotencyKey { key: format!("{}/{definition}", of.key), request_digest: of.request_digest }),
    }
}
