//! Runs on their way through the committer: claims take steps out of the agenda, the kernel judges each, and what was
//! committed goes back into the agenda.

use super::claims::{Asked, to_task, without_next};
use super::decide::{RecordDraft, expect_sequence, vouch};
use super::due::{Dues, due_writes, opens_gate};
use super::round::Round;
use super::{Committer, Confirm, Decided, Instance, Job};
use crate::outcome::{self, Ask, Call, Command, Outcome, Target};
use crate::payload;
use crate::port::{Head, StoreError};
use crate::project::{self, Subject};
use crate::rows::{RecordRow, Write};
use crate::run::emit::Emitting;
use crate::run::payload::{RunDocuments, run_payload};
use crate::run::project::run_writes;
use crate::unwritable;
use countersign_kernel::budget::{Budget, STEPS_PER_COMMAND};
use countersign_kernel::lifecycle::RunState;
use countersign_kernel::plan::{Language, Secrets, StepSeq};
use countersign_kernel::process::{self, Process};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::Registry;
use countersign_kernel::run::{self, Claimed, Event, Run};
use countersign_kernel::{ChainId, Digest, EventId, IdSource, InstanceId, Time};
use countersign_ledger::{ZERO_HASH, sha256};
use std::collections::VecDeque;
use std::sync::Arc;

/// A key for a step's transition is kept for ever.
pub(super) const FOR_EVER: Time = Time(i64::MAX);
/// The key of a slot is kept until the run that took it ends; by this time it is found again.
const SLOT: Time = crate::run::dispatcher::SLOT;
pub(super) const STARTED: Time = crate::run::dispatcher::STARTED;

/// What the events of a command on a run came to.
pub(super) struct Accepted {
    pub unit: Option<usize>,
    run_id: InstanceId,
    pub claimed: Vec<Claimed>,
    gates: Vec<process::Event>,
    gate_ids: Vec<EventId>,
    first_sequence: u64,
    taken: Vec<StepSeq>,
    /// The first transition that it caused.
    moved: Option<String>,
    /// What a person who claimed a step works on.
    input: Option<Arc<str>>,
}

impl Committer {
    /// Another node may have prolonged a lease that looks expired here: such a run is read again.
    pub(super) fn doubt_leases(&mut self, jobs: &VecDeque<Job>) {
        if self.exclusive {
            return;
        }
        let now = self.now();
        for job in jobs {
            let (run_id, command) = match &job.call.command {
                Command::Run { target: Target::Existing(run_id), command } => (run_id, command),
                Command::Ask { target: Target::Existing(run_id), ask: Ask::Preview(command) } => (run_id, &**command),
                _ => continue,
            };
            let seqs: Vec<StepSeq> = match command {
                run::Command::Due { steps, .. } => steps.clone(),
                command => command.task().map(|task| task.step_seq).into_iter().collect(),
            };
            let expired = |run: &Run| {
                seqs.iter().any(|seq| run.cell(*seq).and_then(run::Cell::lease).is_some_and(|lease| lease.until < now))
            };
            if self.cache.get(run_id).and_then(|instance| instance.run.as_deref()).is_some_and(expired) {
                self.cache.remove(run_id);
            }
        }
    }

    /// Whether a run has had an event before, only the store knows.
    pub(super) async fn resolve_events(&mut self, jobs: &mut VecDeque<Job>) -> Result<(), StoreError> {
        let mut asked: Vec<(InstanceId, Arc<str>)> = Vec::new();
        let mut places: Vec<&mut bool> = Vec::new();
        for job in jobs.iter_mut() {
            if let Command::Run { target: Target::Existing(run_id), command: run::Command::Receive { event, seen } } =
                &mut job.call.command
            {
                asked.push((*run_id, event.id.clone()));
                places.push(seen);
            }
        }
        if asked.is_empty() {
            return Ok(());
        }
        for (place, seen) in places.into_iter().zip(self.writer.received(&asked).await?) {
            *place = seen;
        }
        Ok(())
    }

    pub(super) fn decide_run_job(&mut self, mut job: Job, registry: &Registry, round: &mut Round) -> Decided {
        if let Command::Claim(claim) = &job.call.command {
            let claim = claim.clone();
            return self.decide_claim(job, &claim, registry, round);
        }
        let instance = job.instance_id().and_then(|id| self.cache.peek(&id));
        job.looked_at = self.moment(instance);
        self.steps_spent = 0;
        let Job { call, offered, .. } = &mut job;
        match self.try_run(call, offered, registry, round) {
            Ok((answer, confirm)) => {
                let confirm = confirm.or_else(|| self.confirm_refusal(&job, round));
                Decided { job, answer: Ok(answer), confirm }
            }
            Err(refusal) => {
                let confirm = self.confirm_refusal(&job, round);
                Decided { job, answer: Err(refusal), confirm }
            }
        }
    }

    /// What it takes out of the agenda for a next task stands in `offered` until it is known to be claimed.
    fn try_run(
        &mut self,
        call: &Call,
        offered: &mut Vec<(InstanceId, StepSeq)>,
        registry: &Registry,
        round: &mut Round,
    ) -> Result<(Outcome, Option<Confirm>), Refusal> {
        let Command::Run { target, command } = &call.command else {
            return Err(Refusal::new(Code::InvalidRequest, "not a command on a run"));
        };
        vouch(call, registry)?;
        // The same event twice in one batch: the second one is a repetition.
        if let (run::Command::Receive { event, .. }, Target::Existing(run_id)) = (command, target) {
            let same = |write: &Write| matches!(write, Write::RunEvent(row) if row.event_id == event.id);
            if let Some(unit) = round.unit_of.get(run_id)
                && round.batch.units[*unit].writes.iter().any(same)
            {
                let answer = Outcome::EventReceived { duplicate: true, woken: vec![], reached: true };
                return Ok((answer, Some(Confirm::Unit(*unit))));
            }
        }
        let asked = self.asked(*target, command, round);
        let unclaimed = asked.is_none().then(|| without_next(command)).flatten();
        let decided = unclaimed.as_ref().unwrap_or(command);
        if let run::Command::Act(act) = decided
            && act.preview
        {
            return self.preview(call, *target, decided, registry).map(|answer| (answer, None));
        }
        let accepted = self.run_command(call, *target, decided, registry, round)?;
        let mut answer = self.answer(decided, &accepted);
        if let (Some(Asked { done, room: Some(room), .. }), Some(unit), Some(next)) =
            (&asked, accepted.unit, accepted.claimed.first())
        {
            self.pass_on(room.clone(), (unit, *done), (unit, next.step_seq), round);
        }
        if let Outcome::TaskDone { next: next @ None, .. } = &mut answer {
            match accepted.unit {
                None => *next = self.hand_again(call, (*target, command), registry),
                // A statement is signed for one instance.
                Some(unit) if !call.proof.is_signed() => {
                    let found = asked.and_then(|asked| self.claim_elsewhere(call, asked, unit, registry, round));
                    if let Some((task, taken)) = found {
                        *next = Some(task);
                        offered.push(taken);
                    }
                }
                Some(_) => {}
            }
        }
        let command = decided;
        let Some(idempotency) = &call.idempotency else { return Ok((answer, accepted.unit.map(Confirm::Unit))) };
        let unit = accepted.unit.or_else(|| self.as_it_is(accepted.run_id, command, round));
        if let Some(unit) = unit {
            let until = match command {
                run::Command::Dispatch { .. } => SLOT,
                run::Command::Start(_) => STARTED,
                _ => FOR_EVER,
            };
            let row = round.keep(call, accepted.run_id, idempotency.request_digest, &answer, until)?;
            round.batch.units[unit].idempotency.push(row);
        }
        Ok((answer, unit.map(Confirm::Unit)))
    }

    /// A command that was accepted and changes nothing has its answer kept all the same, with a unit that leaves the run as it
    /// is.
    fn as_it_is(&mut self, run_id: InstanceId, command: &run::Command, round: &mut Round) -> Option<usize> {
        let instance = self.cache.get(&run_id)?;
        let run = instance.run.as_deref()?;
        // A slot is kept for a run that waits; one that has begun gave it back, or will give back what it has.
        if let run::Command::Dispatch { in_slot } = command
            && (*in_slot || run.head.state != RunState::Queued)
        {
            return None;
        }
        let index = round.unit(run_id, instance.head.sequence, instance.beats);
        let unit = &mut round.batch.units[index];
        unit.head = instance.head.clone();
        run.head.state.as_str().clone_into(&mut unit.state);
        unit.moves = instance.process.next_sequence_number - 1;
        unit.policy_ref.clone_from(&instance.policy_ref);
        unit.beats = instance.beats;
        Some(index)
    }

    /// Decides one command on one run and lays out what it writes.
    pub(super) fn run_command(
        &mut self,
        call: &Call,
        target: Target,
        command: &run::Command,
        registry: &Registry,
        round: &mut Round,
    ) -> Result<Accepted, Refusal> {
        let (events, ids) = self.decide_on_run(call, target, command, registry)?;
        self.accept_run(call, target, events, ids, registry, round)
    }

    pub(super) fn decide_on_run(
        &mut self,
        call: &Call,
        target: Target,
        command: &run::Command,
        registry: &Registry,
    ) -> Result<(Vec<Event>, IdSource), Refusal> {
        let entropy = u64::from_le_bytes(self.random()?);
        let (language, budget) = (self.config.language.clone(), Budget::default());
        let language = language.metered(&budget);
        let existing = match target {
            Target::Existing(run_id) => Some(run_id),
            Target::New | Target::Nowhere => None,
        };
        if let Some(instance) = existing.and_then(|run_id| self.cache.get(&run_id)) {
            expect_sequence(call, instance.head.sequence)?;
        }
        let now = self.moment(existing.and_then(|run_id| self.cache.peek(&run_id)));
        let mut ctx = self.run_context(call, registry, &*language, IdSource::new(now, entropy));
        ctx.base.now = now;
        let instance = existing.and_then(|run_id| self.cache.peek(&run_id));
        let known = instance.and_then(|instance| Some((&instance.process, instance.run.as_deref()?)));
        let events = run::decide(known, command, &mut ctx);
        let ids = ctx.base.ids;
        let spent = STEPS_PER_COMMAND - budget.left();
        self.steps_spent = self.steps_spent.saturating_add(spent);
        self.round_steps = self.round_steps.saturating_add(spent);
        if spent > 0 {
            metrics::histogram!("countersign_command_steps").record(spent as f64);
        }
        Ok((events?, ids))
    }

    pub(super) fn run_context<'x>(
        &'x self,
        call: &'x Call,
        registry: &'x Registry,
        language: &'x dyn Language,
        ids: IdSource,
    ) -> run::Context<'x> {
        let application_actor_ref = &self.config.application_actor_ref;
        run::Context {
            base: process::Context {
                actor_ref: &call.actor_ref,
                now: self.now(),
                registry,
                application_actor_ref,
                ids,
            },
            language,
            secrets: self.config.secrets.as_deref().map(|secrets| secrets as &dyn Secrets),
            digest: digest_of,
        }
    }

    fn accept_run(
        &mut self,
        call: &Call,
        target: Target,
        events: Vec<Event>,
        mut ids: IdSource,
        registry: &Registry,
        round: &mut Round,
    ) -> Result<Accepted, Refusal> {
        let begun = events.first().and_then(Run::begun_by);
        let base = self.run_base(target, begun.as_ref(), registry)?;
        let mut accepted = Accepted {
            unit: None,
            run_id: base.run_id,
            claimed: vec![],
            gates: vec![],
            gate_ids: vec![],
            first_sequence: base.head.sequence + 1,
            taken: vec![],
            moved: None,
            input: None,
        };
        if events.is_empty() {
            return Ok(accepted);
        }
        let mut head = base.head.clone();
        let mut records = Vec::with_capacity(events.len());
        let mut event_ids = Vec::with_capacity(events.len());
        let mut emitted = vec![];
        for event in &events {
            let event_id: EventId = ids.make();
            event_ids.push(event_id);
            if let (true, Event::Run(event)) = (self.config.emitter.is_listened(), event) {
                let known = || self.cache.peek(&base.run_id).and_then(|instance| instance.run.as_deref());
                let run = begun.as_ref().map(|(_, run)| run).or_else(known).ok_or_else(not_held)?;
                emitted.append(&mut self.config.emitter.rows(
                    run,
                    event,
                    event_id,
                    &*self.config.language,
                    &mut ids,
                )?);
            }
            if let (true, Event::Gate(event)) = (self.config.emitter.is_listened(), event) {
                let known = self.cache.peek(&base.run_id).map(|instance| &instance.process);
                let shell = begun.as_ref().map(|(shell, _)| shell).or(known).ok_or_else(not_held)?;
                let of = Emitting {
                    instance_id: base.run_id,
                    definition: shell.definition.as_ref(),
                    subject_ref: &shell.subject_ref,
                    is_run: true,
                };
                emitted.extend(self.config.emitter.process_row(
                    &of,
                    event,
                    event_id,
                    &*self.config.language,
                    &mut ids,
                )?);
            }
            if let Some(record) = self.run_record(call, &base, event, event_id, begun.as_ref(), registry, &mut head)? {
                records.push(record);
            }
        }

        let opens = events.iter().any(|event| matches!(event, Event::Gate(event) if opens_gate(event)));
        let dues = if opens {
            let known = self.cache.peek(&base.run_id).map(|instance| &instance.process);
            let shell = begun.as_ref().map(|(shell, _)| shell).or(known);
            let definition = shell.and_then(|shell| shell.definition.clone());
            self.dues_of(definition.as_ref(), registry)
        } else {
            Dues::default()
        };

        // Nothing can be refused any more: the cached run moves on.
        if let Some((process, run)) = begun {
            let policy_ref = base.policy_ref.clone();
            let instance =
                Instance { process, run: Some(Box::new(run)), head: base.head.clone(), policy_ref, beats: 0 };
            self.cache.insert(base.run_id, instance);
        }
        let Some(instance) = self.cache.get_mut(&base.run_id) else { return Err(not_held()) };
        let Some(run) = instance.run.as_deref_mut() else { return Err(not_held()) };
        let index = round.unit(base.run_id, base.head.sequence, instance.beats);
        let unit = &mut round.batch.units[index];
        unit.writes.append(&mut emitted);
        let moot = moot_chains(&events);
        for (event, event_id) in events.into_iter().zip(event_ids) {
            match event {
                Event::Gate(event) => {
                    let resolves = match &event.body {
                        process::EventBody::ChainResolved { chain_id, .. } => Some(*chain_id),
                        _ => None,
                    };
                    let subject = Subject {
                        instance_id: base.run_id,
                        subject_ref: &base.subject_ref,
                        initiator_ref: &base.initiator_ref,
                        fires: resolves.is_some_and(|chain_id| moot.contains(&chain_id)),
                    };
                    project::process_writes(&subject, &event, event_id, None, &mut unit.writes);
                    due_writes(&event, &dues, &mut unit.writes);
                    if opens_gate(&event) {
                        round.opened.insert(base.run_id);
                    }
                    instance.process.apply(&event);
                    accepted.gates.push(event);
                    accepted.gate_ids.push(event_id);
                }
                Event::Run(event) => {
                    self.notes.take(run, &event, event_id);
                    run.apply(&event);
                    let document = base.documents.map(|documents| documents.document);
                    run_writes(run, &event, event_id, document, registry, &mut ids, unit);
                    let own = event.acted.as_deref().and_then(|acted| acted.own.as_ref()).map(|own| own.id.clone());
                    let moved = || own.or_else(|| event.moves.first().map(|m| m.transition.id.to_owned()));
                    accepted.moved = accepted.moved.take().or_else(moved);
                    if !event.action.is_recorded() {
                        instance.beats += 1;
                    }
                    self.tally.add(base.run_id, &event.moves);
                    accepted.taken.extend(woken(&event));
                    accepted.input = event.acted.and_then(|acted| acted.input).or(accepted.input.take());
                    accepted.claimed.extend(event.claimed);
                }
            }
        }
        instance.head = head.clone();
        unit.head = head;
        run.head.state.as_str().clone_into(&mut unit.state);
        unit.moves = instance.process.next_sequence_number - 1;
        unit.policy_ref = base.policy_ref;
        unit.beats = instance.beats;
        unit.records.append(&mut records);
        accepted.unit = Some(index);
        Ok(accepted)
    }

    /// The record of one event; none for a heartbeat.
    #[expect(clippy::too_many_arguments, reason = "one private caller; all of it is what a record is made of")]
    fn run_record(
        &mut self,
        call: &Call,
        base: &RunBase,
        event: &Event,
        event_id: EventId,
        begun: Option<&(Process, Run)>,
        registry: &Registry,
        head: &mut Head,
    ) -> Result<Option<RecordRow>, Refusal> {
        let (action_ref, actor_ref, at, payload) = match event {
            Event::Gate(event) => {
                let sequence = head.sequence + 1;
                let bytes = payload::process_payload(
                    base.run_id,
                    sequence,
                    &base.subject_ref,
                    &base.initiator_ref,
                    event,
                    None,
                );
                (payload::process_action(&event.body), event.actor_ref.as_str(), event.at, bytes)
            }
            Event::Run(event) if !event.action.is_recorded() => return Ok(None),
            Event::Run(event) => {
                let run = match begun {
                    Some((_, run)) => run,
                    None => self.cache.get(&base.run_id).and_then(|i| i.run.as_deref()).ok_or_else(not_held)?,
                };
                let bytes = run_payload(run, event, base.documents.as_ref());
                (event.action.as_str(), event.actor_ref.as_str(), event.at, bytes)
            }
        };
        self.record(RecordDraft {
            event_id,
            instance_id: base.run_id,
            head,
            action_ref,
            actor_ref,
            at,
            registry_seq: registry.sequence(),
            policy_ref: &base.policy_ref,
            proof: &call.proof,
            payload,
        })
        .map(Some)
    }

    fn run_base(
        &mut self,
        target: Target,
        begun: Option<&(Process, Run)>,
        registry: &Registry,
    ) -> Result<RunBase, Refusal> {
        if let Some((shell, run)) = begun {
            let definition = shell.definition.as_ref().and_then(|d| registry.definition(&d.name, Some(d.version)));
            return Ok(RunBase {
                run_id: run.run_id,
                head: Head { sequence: 0, record_hash: ZERO_HASH, last_time: Time(0) },
                policy_ref: self.policy_for(shell, registry),
                subject_ref: shell.subject_ref.clone(),
                initiator_ref: shell.initiator_ref.clone(),
                documents: definition
                    .map_or(Ok(None), |definition| RunDocuments::of(definition))
                    .map_err(unwritable)?,
            });
        }
        let Target::Existing(run_id) = target else { return Err(not_held()) };
        let instance = self.cache.get(&run_id).ok_or_else(not_held)?;
        Ok(RunBase {
            run_id,
            head: instance.head.clone(),
            policy_ref: instance.policy_ref.clone(),
            subject_ref: instance.process.subject_ref.clone(),
            initiator_ref: instance.process.initiator_ref.clone(),
            documents: None,
        })
    }

    fn answer(&mut self, command: &run::Command, accepted: &Accepted) -> Outcome {
        let run_id = accepted.run_id;
        let run = self.cache.get(&run_id).and_then(|instance| instance.run.as_deref());
        let state = run.map_or("", |run| run.head.state.as_str()).to_owned();
        match command {
            run::Command::Start(_) => Outcome::RunStarted { run_id: run_id.to_string() },
            run::Command::OpenGate(_) | run::Command::DecideGate(_) => {
                let mut answer = outcome::of_process(&accepted.gates, &accepted.gate_ids, accepted.first_sequence);
                if let Some(instance) = self.cache.get(&run_id) {
                    super::decide::name_chain_state(&mut answer, &instance.process);
                }
                answer
            }
            run::Command::Receive { seen, .. } => Outcome::EventReceived {
                duplicate: *seen,
                woken: run
                    .map_or(vec![], |run| accepted.taken.iter().map(|seq| run.step_name(*seq).to_owned()).collect()),
                reached: !accepted.taken.is_empty() || run.is_some_and(|run| !run.head.state.is_ended()),
            },
            run::Command::Due { steps, run: whole } => Outcome::Looked {
                stands_still: run.is_some_and(run::Run::stands_still),
                parent: run
                    .filter(|run| *whole && !run.head.state.is_ended())
                    .and_then(|run| run.head.parent.as_ref())
                    .map(|parent| (parent.step_seq, parent.run_id.to_string())),
                children: run.map_or(vec![], |run| {
                    let child = |seq: &StepSeq| Some((*seq, run.cell(*seq)?.awaited()?.to_string()));
                    steps.iter().filter_map(child).collect()
                }),
            },
            run::Command::Act(act) => Outcome::StepActed {
                state_code: acted(run, act).map_or("", |cell| cell.state.as_str()).to_owned(),
                derived_state: acted(run, act).and_then(|cell| cell.derived()).map(|derived| derived.to_string()),
                state,
                transition_id: accepted.moved.clone(),
                input: accepted.input.clone(),
            },
            command => match (command.task(), run) {
                (Some(task), Some(run)) => Outcome::TaskDone {
                    state_code: run.cell(task.step_seq).map_or("", |cell| cell.state.as_str()).to_owned(),
                    run_state: state,
                    next: accepted.claimed.first().map(|claimed| to_task(run_id, claimed)),
                },
                _ => Outcome::RunMoved { state },
            },
        }
    }
}

/// What the events of a command on a run build on.
struct RunBase {
    run_id: InstanceId,
    head: Head,
    policy_ref: String,
    subject_ref: String,
    initiator_ref: String,
    /// Of a new run.
    documents: Option<RunDocuments>,
}

/// Chains that are withdrawn because nobody needs their outcome any more.
fn moot_chains(events: &[Event]) -> Vec<ChainId> {
    let moot = |event: &Event| match event {
        Event::Gate(process::Event { body: process::EventBody::MootGateRecalled { gate, .. }, .. }) => gate.chain_id(),
        Event::Gate(_) | Event::Run(_) => None,
    };
    events.iter().filter_map(moot).collect()
}

fn digest_of(text: &str) -> Digest {
    sha256(&[text.as_bytes()])
}

fn not_held() -> Refusal {
    Refusal::new(Code::RecordingFailure, "events for a run that is not held")
}

/// The steps that an event woke.
fn woken(event: &run::RunEvent) -> Vec<StepSeq> {
    let by_event = |m: &&run::Move| matches!(m.transition.id, "X1" | "T3r");
    event.moves.iter().filter(by_event).map(|m| m.step_seq).collect()
}

/// The step that somebody acted on.
fn acted<'r>(run: Option<&'r run::Run>, act: &run::StepAct) -> Option<&'r run::Cell> {
    run.and_then(|run| run.cell(run.cell_named(&act.step)?))
}
