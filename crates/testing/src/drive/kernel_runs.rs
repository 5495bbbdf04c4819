//! Runs in the kernel alone: what is due and what a queue holds is read off each run's agenda, and what a store would
//! keep besides (ended steps, outputs, received events, records) is folded from the events.

use super::commands::{
    act_command, child_start, control_command, decide_gate, open_gate, report_command, start_run_command,
};
use super::kernel::{KernelDriver, opened};
use super::kernel_retention::event_id;
use super::runs::{
    Acting, Addressed, ClaimWish, Control, Report, Reported, RunStart, Runs, SentEvent, TaskOf, TaskSeen, Woken,
    child_in, compact, critical_path, current, previewed, role, rollup, step_words, value, with_runbook, without_nulls,
};
use super::{ADMIN, APPLICATION, Decided, InboxItem, LEASE_US, On, Opened, Record, Said, broken};
use async_trait::async_trait;
use countersign_engine::payload;
use countersign_engine::run::payload::{RunDocuments, run_payload};
use countersign_kernel::lifecycle::{RunState, StepCode};
use countersign_kernel::plan::StepSeq;
use countersign_kernel::process::{self, Decision, EventBody, Process};
use countersign_kernel::refusal::{Code, Refusal, require_ref};
use countersign_kernel::registry::{Registry, scopes};
use countersign_kernel::run::{
    self, Cause, Cell, ClaimSteps, Claimed, Command, Context, Event, FromStep, KeptEvent, Parent, Prior, Role, Run,
    RunEvent, Severity, Started, TaskRef, check_lease,
};
use countersign_kernel::text::length;
use countersign_kernel::{Digest, EventId, InstanceId, Time};
use countersign_ledger::document::{declaration_document, gate_spec_document};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A run and everything that was recorded of it.
pub struct ToldRun {
    pub shell: Process,
    run: Run,
    started: Started,
    events: Vec<Event>,
    records: Vec<Record>,
    document: Option<Digest>,
    /// The steps as they were last told, ended ones in full.
    cells: BTreeMap<StepSeq, Cell>,
    outputs: BTreeMap<StepSeq, Arc<str>>,
    received: BTreeSet<Arc<str>>,
}

impl ToldRun {
    fn tell(&mut self, event: &Event, registry_seq: u64) -> Said<()> {
        let (sequence, run_id) = (self.records.len() as u64 + 1, self.run.run_id);
        let (subject, initiator) = (self.shell.subject_ref.clone(), self.shell.initiator_ref.clone());
        self.events.push(event.clone());
        let (action_ref, actor_ref, at, payload) = match event {
            Event::Gate(event) => {
                let bytes = payload::process_payload(run_id, sequence, &subject, &initiator, event, None);
                self.shell.apply(event);
                (payload::process_action(&event.body), &event.actor_ref, event.at, bytes)
            }
            Event::Run(event) => {
                let documents = match self.document.filter(|_| event.started.is_some()) {
                    None => None,
                    Some(document) => Some(RunDocuments {
                        document,
                        declaration: declaration_document(&self.shell.declaration).map_err(broken)?.digest,
                        gate_spec: gate_spec_document(&self.shell.gate_spec).map_err(broken)?.digest,
                    }),
                };
                let bytes = run_payload(&self.run, event, documents.as_ref());
                self.run.apply(event);
                self.cells.extend(event.cells.iter().cloned());
                self.outputs.extend(event.outputs.iter().cloned());
                self.received.extend(event.kept.iter().map(|kept| kept.id.clone()));
                if !event.action.is_recorded() {
                    return Ok(());
                }
                (event.action.as_str(), &event.actor_ref, event.at, bytes)
            }
        };
        self.records.push(Record {
            event_id: event_id(at, sequence).to_string(),
            sequence,
            action_ref: action_ref.to_owned(),
            actor_ref: actor_ref.clone(),
            payload: serde_json::from_slice(&payload).map_err(broken)?,
            registry_seq,
            recorded_at: at.0.to_string(),
        });
        Ok(())
    }

    /// Steps that the clock has to look at now.
    fn due(&self, now: Time) -> (Vec<StepSeq>, bool) {
        let is_due = |seq: &StepSeq| self.run.agenda(*seq).timer.is_some_and(|at| at <= now);
        (self.run.on_agenda().filter(is_due).collect(), self.run.due_at().is_some_and(|at| at <= now))
    }

    /// The record that closed the step, and what it yielded.
    fn prior(&self, step: &str) -> Option<Prior> {
        let seq = self.run.plan.cell_named(step)?;
        let cell = self.cells.get(&seq)?;
        let at = match cell.state {
            StepCode::Completed => cell.completed_at?,
            _ => cell.docket.as_ref()?.declared_at?,
        };
        let record = self.records.iter().rev().find(|record| record.recorded_at == at.0.to_string())?;
        Some(Prior {
            event_id: EventId::parse(&record.event_id)?,
            actor_ref: record.actor_ref.clone(),
            at,
            output: self.outputs.get(&seq).cloned(),
        })
    }

    fn finished(&self, step: &str) -> FromStep {
        let name = |seq: &StepSeq| self.run.step_name(*seq).to_owned();
        let undoes = |cell: &Cell| matches!(cell.role, Role::Compensation(_));
        let undoing = self.cells.iter().filter(|(_, cell)| undoes(cell) && cell.state != StepCode::NotStarted);
        let undone: BTreeSet<String> = undoing.map(|(seq, _)| name(seq)).collect();
        let ended = self.cells.iter().filter(|(seq, cell)| {
            let finished = matches!(cell.state, StepCode::Completed | StepCode::Skipped);
            finished && !undoes(cell) && !undone.contains(&name(seq))
        });
        let finished = ended.map(|(seq, cell)| (name(seq), (cell.state, self.outputs.get(seq).cloned())));
        FromStep {
            run_id: self.run.run_id,
            step: step.to_owned(),
            definition: self.started.definition.name.clone(),
            has_ended: self.run.head.state.is_ended(),
            finished: finished.collect(),
            undone,
            // The kernel alone purges nothing of a run.
            purged: BTreeSet::new(),
        }
    }

    fn view(&self) -> Value {
        let (run, head) = (&self.run, &self.run.head);
        let codes: Vec<StepCode> = self.cells.values().map(|cell| cell.state).collect();
        let current = current(&run.plan, &codes);
        let text = |text: &Option<Arc<str>>| text.as_ref().map(ToString::to_string);
        let time = |time: Option<Time>| time.map(|time| time.0);
        let id = |id: Option<InstanceId>| id.map(|id| id.to_string());
        let view = without_nulls(json!({
            "machine": run.machine.as_ref().map(|pinned| format!("{}@{}", pinned.name, pinned.version)),
            "state": head.state.as_str(),
            "outcome": head.outcome.map(|outcome| outcome.as_str()),
            "views": {"linear": head.state.linear()},
            "current_step_seq": current.as_ref().map(|(seq, _)| seq),
            "current_step_type": current.as_ref().map(|(_, name)| name),
            "rollup": rollup(&head.rollup, &run.plan),
            "critical_path": critical_path(&run.plan, run.critical_step()),
            "priority": head.priority,
            "start_at": time(head.start_at),
            "completed_at": time(head.completed_at),
            "failed_at": time(head.failed_at),
            "last_error": text(&head.last_error),
            "output": head.output.as_deref().map(value),
            "correlation_key": text(&self.started.correlation_key),
            "corrects": id(self.started.corrects),
            "continues": id(self.started.continues),
            "steps": self.cells.iter().map(|(seq, cell)| self.step(*seq, cell)).collect::<Vec<_>>(),
        }));
        with_runbook(view, run.runbook(), &run.plan, &codes)
    }

    fn step(&self, seq: StepSeq, cell: &Cell) -> Value {
        let (run, live) = (&self.run, cell.details());
        let text = |text: &Option<Arc<str>>| text.as_ref().map(ToString::to_string);
        let time = |time: Option<Time>| time.map(|time| time.0);
        let docket = cell.docket.as_deref().cloned().unwrap_or_default();
        let waiting = live.waiting.as_ref();
        let compensates = match cell.role {
            Role::Step | Role::Task(_) => None,
            Role::Compensation(step) => Some(run.step_name(step)),
        };
        let task_of = match cell.role {
            Role::Task(step) => Some(run.step_name(step)),
            Role::Step | Role::Compensation(_) => None,
        };
        without_nulls(json!({
            "name": run.step_name(seq),
            "step_seq": seq,
            "role": role(compensates.is_some(), task_of.is_some()),
            "compensates": compensates,
            "task_of": task_of,
            "queue": &*run.queue(seq, cell.role),
            "state_code": cell.state.as_str(),
            "derived_state": cell.derived().map(ToString::to_string),
            "waiting_facet": waiting.map(|waiting| waiting.facet.as_str()),
            "waiting_event_type": waiting.and_then(|waiting| text(&waiting.event_type)),
            "secondary_facets": waiting
                .filter(|waiting| !waiting.secondary.is_empty())
                .map(|waiting| waiting.secondary.iter().map(|facet| facet.as_str()).collect::<Vec<_>>()),
            "pic": text(&docket.pic),
            "deadline": time(docket.deadline),
            "start_by": time(docket.start_by),
            "overdue_first_at": time(docket.overdue_first_at),
            "completed_after_deadline": docket.sla_breach.map(|_| true),
            "sla_breach_duration": docket.sla_breach.map(length),
            "blocked_since": live.block.map(|block| block.since.0),
            "blocked_severity": cell.severity().map(|severity| severity.as_str()),
            "blocked_cause": cell.severity().and_then(Severity::cause).map(Cause::as_str),
            "block_reason": live.block.and_then(|block| block.reason).map(|reason| reason.as_str()),
            "escalated_at": cell.escalated_at().map(|at| at.0),
            "attempts": live.attempts,
            "max_attempts": run.max_attempts(seq),
            "next_run_at": live.next_run_at.map(|at| at.0),
            "locked_by": live.lease.as_ref().map(|lease| lease.worker_id.to_string()),
            "locked_until": live.lease.as_ref().map(|lease| lease.until.0),
            "deadline_at": waiting.and_then(|waiting| waiting.deadline_at).map(|at| at.0),
            "completed_at": cell.completed_at.map(|at| at.0),
            "last_error": text(&live.last_error),
            "error_category": live.category.map(|category| category.as_str()),
            "effect_unknown": live.effect_unknown.then_some(true),
            "output": self.outputs.get(&seq).map(|output| value(output)),
            "child_run_id": live.child.map(|id| id.to_string()),
            "child_rollup": live.child_colour.map(|colour| colour.as_str()),
            "views": step_words(if cell.is_offered() { StepCode::Ready } else { cell.state }, cell.retry_scheduled(), run.head.state),
        }))
    }

    pub fn records(&self) -> Vec<Record> {
        self.records.clone()
    }

    /// Whether a gate of the run names this actor, or a step of it is in their charge.
    fn is_party(&self, actor_ref: &str) -> bool {
        let asked = self.events.iter().any(|event| match event {
            Event::Gate(event) => match &event.body {
                EventBody::GateOpened { gate, .. } => gate.steps.iter().any(|step| step.approver_ref == actor_ref),
                _ => false,
            },
            Event::Run(_) => false,
        });
        asked || self.cells.values().any(|cell| cell.pic().is_some_and(|pic| **pic == *actor_ref))
    }

    pub fn inbox(&self, of: &str) -> Vec<InboxItem> {
        let mut waiting = vec![];
        for gate in &self.shell.gates {
            let own = gate.steps.iter().filter(|step| step.approver_ref == of && step.assignment.is_some());
            waiting.extend(own.map(|step| InboxItem {
                instance_id: self.run.run_id.to_string(),
                action: gate.action.clone(),
                step_id: step.step_id.to_string(),
            }));
        }
        waiting
    }

    /// What was recorded is enough to build the run again.
    pub fn verify(&self) -> Said<()> {
        let begun = self.events.first().and_then(Run::begun_by);
        let (mut shell, mut run) = begun.ok_or_else(|| broken("a run that did not begin"))?;
        for event in &self.events {
            match event {
                Event::Gate(event) => shell.apply(event),
                Event::Run(event) => run.apply(event),
            }
        }
        if run == self.run && shell == self.shell { Ok(()) } else { Err(broken(format!("replayed to {run:?}"))) }
    }
}

fn not_known() -> super::Failure {
    Refusal::new(Code::NotKnown, "there is no run with this run_id").into()
}

fn task(run_id: InstanceId, claimed: &Claimed) -> TaskSeen {
    TaskSeen {
        run_id: run_id.to_string(),
        step: claimed.step.to_string(),
        step_seq: claimed.step_seq,
        attempt: claimed.attempt,
        max_attempts: claimed.max_attempts,
        task_type: claimed.task_type.as_str().to_owned(),
        input: value(&claimed.input),
        event: claimed.event.as_deref().map(value),
        lease_token: claimed.lease_token.to_string(),
    }
}

fn run_events(events: &[Event]) -> impl Iterator<Item = &RunEvent> {
    events.iter().filter_map(|event| match event {
        Event::Run(event) => Some(&**event),
        Event::Gate(_) => None,
    })
}

impl KernelDriver {
    pub(super) fn told_run(&self, run_id: &str) -> Option<&ToldRun> {
        InstanceId::parse(run_id).and_then(|id| self.runs.get(&id))
    }

    fn document(registry: &Registry, started: &Started) -> Option<Digest> {
        let definition = registry.definition(&started.definition.name, Some(started.definition.version))?;
        definition.workflow.as_ref().map(|workflow| workflow.document_digest)
    }

    /// Has the kernel decide, and applies what follows.
    fn ask_run(&mut self, by: &str, run_id: Option<InstanceId>, command: &Command) -> Said<(InstanceId, Vec<Event>)> {
        let (now, ids) = self.tick();
        let told = run_id.and_then(|id| self.runs.get(&id));
        let base =
            process::Context { actor_ref: by, now, registry: &self.registry, application_actor_ref: APPLICATION, ids };
        let mut ctx = Context { base, language: &*self.language, secrets: None, digest: super::digest_of };
        let events = run::decide(told.map(|told| (&told.shell, &told.run)), command, &mut ctx)?;
        let mut run_id = run_id;
        if let Some((shell, run)) = events.first().and_then(Run::begun_by) {
            let started = run_events(&events).find_map(|event| event.started.as_deref().cloned());
            let started = started.ok_or_else(|| broken("a run without a start"))?;
            run_id = Some(run.run_id);
            let told = ToldRun {
                document: Self::document(&self.registry, &started),
                shell,
                run,
                started,
                events: vec![],
                records: vec![],
                cells: BTreeMap::new(),
                outputs: BTreeMap::new(),
                received: BTreeSet::new(),
            };
            self.runs.insert(told.run.run_id, told);
        }
        let run_id = run_id.ok_or_else(|| broken("events of no run"))?;
        let under = self.registry.sequence();
        if let Some(told) = self.runs.get_mut(&run_id) {
            events.iter().try_for_each(|event| told.tell(event, under))?;
        }
        Ok((run_id, events))
    }

    /// What a repeated completion is answered with, besides the step's state.
    fn handed_again(&mut self, by: &str, run_id: InstanceId, seq: StepSeq) -> Option<TaskSeen> {
        let (now, ids) = self.tick();
        let told = self.runs.get(&run_id)?;
        let handed = told.run.cell(seq)?.handed.as_deref()?;
        let base =
            process::Context { actor_ref: by, now, registry: &self.registry, application_actor_ref: APPLICATION, ids };
        let mut ctx = Context { base, language: &*self.language, secrets: None, digest: super::digest_of };
        let claimed = run::handed_out((&told.shell, &told.run), handed, &mut ctx)?;
        Some(task(run_id, &claimed))
    }

    /// What would happen; only refusals that concern the step are told.
    fn preview(&mut self, by: &str, run_id: Option<InstanceId>, command: &Command) -> Said<String> {
        let (now, ids) = self.tick();
        let told = run_id.and_then(|id| self.runs.get(&id));
        let base =
            process::Context { actor_ref: by, now, registry: &self.registry, application_actor_ref: APPLICATION, ids };
        let mut ctx = Context { base, language: &*self.language, secrets: None, digest: super::digest_of };
        match run::decide(told.map(|told| (&told.shell, &told.run)), command, &mut ctx) {
            Ok(events) => {
                let moved = run::moved_by(command, &events);
                Ok(previewed(moved.as_ref().map(|(id, _)| id.as_str()), []))
            }
            Err(refusal) => match refusal.code {
                Code::TransitionRefusedByGuard
                | Code::InvalidTransition
                | Code::AlreadyTerminal
                | Code::Conflict
                | Code::GateNotCleared => Ok(previewed(None, refusal.problems().map(|(guard, _)| guard))),
                _ => Err(refusal.into()),
            },
        }
    }

    /// Has everything looked at that is due.
    pub(super) fn look(&mut self) -> Said<()> {
        loop {
            let now = Time(self.clock);
            let all: Vec<InstanceId> = self.runs.keys().copied().collect();
            let mut moved = false;
            for run_id in all {
                let Some((steps, whole)) = self.runs.get(&run_id).map(|told| told.due(now)) else { continue };
                if whole {
                    moved |=
                        !self.ask_run(APPLICATION, Some(run_id), &Command::Dispatch { in_slot: true })?.1.is_empty();
                }
                if whole || !steps.is_empty() {
                    let looked = self.ask_run(APPLICATION, Some(run_id), &Command::Due { steps, run: whole });
                    // Whatever cannot be done now is looked at again when the run moves on.
                    moved |= looked.is_ok_and(|(_, events)| !events.is_empty());
                }
            }
            moved |= self.tell_parents()?;
            moved |= self.end_left_behind();
            moved |= self.stop_with_parents();
            if !moved {
                return Ok(());
            }
        }
    }

    /// Whoever waits for a run hears how it stands.
    fn tell_parents(&mut self) -> Said<bool> {
        let mut news = vec![];
        for (child, told) in &self.runs {
            let head = &told.run.head;
            let Some(Parent { run_id, step_seq }) = head.parent else { continue };
            let completed = head.state == RunState::Completed && head.outcome.is_none();
            let said = if completed { head.output.clone() } else { head.last_error.clone() };
            let output = said.unwrap_or_else(|| Arc::from(if completed { "null" } else { "ended" }));
            let (child, colour, waits) = (*child, head.rollup.colour, told.run.waits());
            news.push((
                run_id,
                match head.state.is_ended() {
                    true => Command::ChildEnded { step_seq, child, completed, output },
                    false => Command::ChildColoured { step_seq, child, colour, waits },
                },
            ));
        }
        let mut moved = false;
        for (parent, command) in news {
            moved |= !self.ask_run(APPLICATION, Some(parent), &command)?.1.is_empty();
        }
        Ok(moved)
    }

    /// Whom no step waits for any more is cancelled.
    fn end_left_behind(&mut self) -> bool {
        let ended = |parent: &Parent| {
            let cell = self.runs.get(&parent.run_id).and_then(|told| told.run.cell(parent.step_seq));
            cell.is_some_and(|cell| run::is_over(cell.state, cell.retry_scheduled()))
        };
        let left = self.runs.iter().filter(|(_, told)| told.run.head.parent.as_ref().is_some_and(ended));
        let left: Vec<InstanceId> = left.map(|(child, _)| *child).collect();
        let cancel = Command::Cancel { reason: Some("left behind".to_owned()), approval_id: None, compensate: false };
        let mut moved = false;
        for child in left {
            // One that has ended, or may not be cancelled, stays as it is.
            moved |= self.ask_run(APPLICATION, Some(child), &cancel).is_ok_and(|(_, made)| !made.is_empty());
        }
        moved
    }

    /// Nothing of a runbook that was stopped goes on.
    fn stop_with_parents(&mut self) -> bool {
        let held_up = |(child, told): (&InstanceId, &ToldRun)| {
            let parent = told.run.head.parent.as_ref()?;
            let holder = &self.runs.get(&parent.run_id)?.run;
            let waits = holder.cell(parent.step_seq)?.awaited() == Some(*child);
            (holder.stands_still() && waits && told.run.head.state != RunState::Stopped).then_some(*child)
        };
        let children: Vec<InstanceId> = self.runs.iter().filter_map(held_up).collect();
        let stop = Command::Stop { reason: Some("its parent was stopped".to_owned()) };
        let mut moved = false;
        for child in children {
            // One that has ended stays as it is.
            moved |= self.ask_run(APPLICATION, Some(child), &stop).is_ok_and(|(_, made)| !made.is_empty());
        }
        moved
    }

    /// Whether one more step of this run's definition may be somebody's in this queue, besides those that are about to be.
    fn has_room(&self, run_id: InstanceId, queue: &str, line: &[(InstanceId, StepSeq)]) -> bool {
        let definition = |told: &ToldRun| told.started.definition.name.clone();
        let Some(told) = self.runs.get(&run_id) else { return false };
        let Some(limit) = told.run.plan.queues.get(queue).and_then(|limit| limit.limit) else { return true };
        let own = self.runs.values().filter(|other| definition(other) == definition(told));
        let held = own.flat_map(|other| other.run.cells.iter().zip(0..).map(move |(cell, seq)| (other, cell, seq)));
        let held = held.filter(|(other, cell, seq)| cell.is_held() && *other.run.queue(*seq, cell.role) == *queue);
        let about = line.iter().filter_map(|(other, _)| self.runs.get(other));
        let about = about.filter(|other| definition(other) == definition(told));
        held.count() + about.count() < limit as usize
    }

    /// The state of the step after a report, for its worker.
    fn state_of(&self, run_id: InstanceId, seq: StepSeq) -> String {
        let cell = self.runs.get(&run_id).and_then(|told| told.run.cell(seq));
        cell.map_or(String::new(), |cell| cell.state.as_str().to_owned())
    }
}

#[async_trait]
impl Runs for KernelDriver {
    async fn start_run(&mut self, by: &str, start: &RunStart) -> Said<String> {
        let from = match &start.from_step {
            None => None,
            Some((run_id, step)) => Some(self.told_run(run_id).ok_or_else(not_known)?.finished(step)),
        };
        let command = start_run_command(start, Time(self.clock), from)?;
        self.ask_run(by, None, &command).map(|(run_id, _)| run_id.to_string())
    }

    /// The kernel has no queues: what its runs would hand out, in the order of the engine's book.
    async fn claim(&mut self, by: &str, wish: &ClaimWish) -> Said<Vec<TaskSeen>> {
        check_lease(wish.lease_us)?;
        let now = Time(self.clock);
        let mut ready: Vec<(u8, Time, InstanceId, StepSeq)> = vec![];
        for (run_id, told) in &self.runs {
            for seq in told.run.on_agenda() {
                let claim = told.run.agenda(seq).claim.filter(|claim| claim.at <= now && *claim.queue == *wish.queue);
                ready.extend(claim.map(|claim| (u8::MAX - claim.priority, claim.at, *run_id, seq)));
            }
        }
        let finer = format!("{}:", scopes::TASKS_WORK);
        if self.registry.grants().active_scopes(by, &finer).next().is_some() {
            let (registry, runs) = (&self.registry, &self.runs);
            ready.retain(|(_, _, run_id, _)| {
                let definition = runs.get(run_id).and_then(|told| told.shell.definition.as_ref());
                registry.permitted_on(by, scopes::TASKS_WORK, definition.map(|definition| definition.name.as_str()))
            });
        } else if ready.is_empty() && !self.registry.permitted(by, scopes::TASKS_WORK) {
            return Err(Refusal::new(Code::PermissionDenied, "no grant for tasks:work").into());
        }
        ready.sort_unstable();
        let mut line: Vec<(InstanceId, StepSeq)> = vec![];
        for (_, _, run_id, seq) in ready {
            if line.len() < wish.max as usize && self.has_room(run_id, &wish.queue, &line) {
                line.push((run_id, seq));
            }
        }
        // A run is asked once; its tasks stand where its steps stood.
        let mut tasks = vec![];
        for (first, (run_id, _)) in line.iter().enumerate() {
            if line[..first].iter().any(|(earlier, _)| earlier == run_id) {
                continue;
            }
            let steps = line.iter().filter(|(of, _)| of == run_id).map(|(_, seq)| *seq).collect();
            let command =
                Command::Claim(ClaimSteps { steps, worker_id: wish.worker_id.as_str().into(), lease: wish.lease_us });
            let (run_id, events) = self.ask_run(by, Some(*run_id), &command)?;
            for claimed in run_events(&events).flat_map(|event| &event.claimed) {
                let place = line.iter().position(|offered| *offered == (run_id, claimed.step_seq));
                tasks.push((place, task(run_id, claimed)));
            }
        }
        tasks.sort_by_key(|(place, _)| *place);
        Ok(tasks.into_iter().map(|(_, task)| task).collect())
    }

    async fn report(&mut self, by: &str, of: TaskOf<'_>, report: &Report) -> Said<Reported> {
        let command = report_command(of.step_seq, of.lease_token, report)?;
        let (run_id, events) = self.ask_run(by, InstanceId::parse(of.run_id), &command)?;
        let mut next = run_events(&events).flat_map(|event| &event.claimed).next().map(|claimed| task(run_id, claimed));
        if events.is_empty() && matches!(command, Command::Complete { claim_next: Some(_), .. }) {
            next = self.handed_again(by, run_id, of.step_seq);
        }
        Ok(Reported { state_code: self.state_of(run_id, of.step_seq), next })
    }

    async fn act_on_step(&mut self, by: &str, run_id: &str, acting: &Acting) -> Said<String> {
        let prior = self.told_run(run_id).and_then(|told| told.prior(&acting.step));
        let command = act_command(acting, Time(self.clock), prior)?;
        let id = InstanceId::parse(run_id);
        if acting.preview {
            return self.preview(by, id, &command);
        }
        let (id, _) = self.ask_run(by, id, &command)?;
        let seq = self.runs.get(&id).and_then(|told| told.run.cell_named(&acting.step));
        Ok(seq.map_or(String::new(), |seq| self.state_of(id, seq)))
    }

    async fn send_event(&mut self, by: &str, event: &SentEvent) -> Said<Woken> {
        let kept = KeptEvent {
            id: event.id.as_str().into(),
            event_type: event.event_type.as_str().into(),
            data: compact(event.data.as_deref()),
        };
        let concerned: Vec<Option<InstanceId>> = match &event.to {
            Addressed::Run(run_id) => vec![InstanceId::parse(run_id)],
            Addressed::Key(key) => {
                require_ref("correlation_key", key)?;
                let has_key = |told: &&ToldRun| {
                    told.started.correlation_key.as_deref() == Some(key) && !told.run.head.state.is_ended()
                };
                self.runs.values().filter(has_key).map(|told| Some(told.run.run_id)).collect()
            }
        };
        let mut woken = Woken { duplicate: !concerned.is_empty(), steps: vec![] };
        for run_id in concerned {
            let seen = run_id.and_then(|id| self.runs.get(&id)).is_some_and(|told| told.received.contains(&kept.id));
            let (run_id, events) = self.ask_run(by, run_id, &Command::Receive { event: kept.clone(), seen })?;
            woken.duplicate &= seen;
            let Some(told) = self.runs.get(&run_id) else { continue };
            let moves = run_events(&events).flat_map(|event| &event.moves);
            let by_event = moves.filter(|m| matches!(m.transition.id, "X1" | "T3r"));
            woken.steps.extend(by_event.map(|m| told.run.step_name(m.step_seq).to_owned()));
        }
        Ok(woken)
    }

    async fn preview_report(&mut self, by: &str, of: TaskOf<'_>, report: &Report) -> Said<String> {
        let command = report_command(of.step_seq, of.lease_token, report)?;
        self.preview(by, InstanceId::parse(of.run_id), &command)
    }

    async fn preview_control(&mut self, by: &str, run_id: &str, control: &Control) -> Said<String> {
        self.preview(by, InstanceId::parse(run_id), &control_command(control)?)
    }

    async fn control_run(&mut self, by: &str, run_id: &str, control: &Control) -> Said<String> {
        let (run_id, _) = self.ask_run(by, InstanceId::parse(run_id), &control_command(control)?)?;
        Ok(self.runs.get(&run_id).map_or(String::new(), |told| told.run.head.state.to_string()))
    }

    async fn open_run_gate(&mut self, by: &str, on: On<'_>) -> Said<Opened> {
        let (_, events) = self.ask_run(by, InstanceId::parse(on.instance_id), &Command::OpenGate(open_gate(on)))?;
        let gate = events.iter().find_map(|event| match event {
            Event::Gate(process::Event { body: EventBody::GateOpened { gate, .. }, .. }) => Some(gate),
            _ => None,
        });
        gate.map(opened).ok_or_else(|| broken("an opening without a gate"))
    }

    async fn decide_run_gate(&mut self, by: &str, on: On<'_>, decision: Decision) -> Said<Decided> {
        let command = Command::DecideGate(decide_gate(on, decision, None));
        self.ask_run(by, InstanceId::parse(on.instance_id), &command)?;
        let outcome = match decision {
            Decision::Approve => "approved",
            Decision::Reject => "rejected_outcome",
            Decision::Withdraw => "withdrawn",
        };
        Ok(Decided { outcome: outcome.to_owned(), chain_state: None })
    }

    async fn read_run(&mut self, by: &str, run_id: &str) -> Said<Value> {
        let told = self.told_run(run_id);
        let definition = told.map(|told| told.started.definition.name.as_str());
        let party = told.is_some_and(|told| told.is_party(by));
        if !party && !self.registry.permitted_on(by, scopes::RUNS_READ, definition) {
            return Err(Refusal::new(Code::PermissionDenied, "not to be read by this actor").into());
        }
        told.map(ToldRun::view).ok_or_else(not_known)
    }

    /// What the server's executor of child steps does.
    async fn child_of(&mut self, run_id: &str, step: &str) -> Said<String> {
        let now = Time(self.clock);
        let mut ready: Vec<(InstanceId, StepSeq)> = vec![];
        for (id, told) in &self.runs {
            let claim = |seq: &&StepSeq| told.run.agenda(**seq).claim.filter(|claim| claim.at <= now);
            let own = told.run.live.iter().filter(|seq| claim(seq).is_some_and(|claim| &*claim.queue == "@workflow"));
            ready.extend(own.map(|seq| (*id, *seq)));
        }
        for (id, seq) in ready {
            let command =
                Command::Claim(ClaimSteps { steps: vec![seq], worker_id: APPLICATION.into(), lease: LEASE_US });
            let (_, events) = self.ask_run(APPLICATION, Some(id), &command)?;
            let claimed = run_events(&events).flat_map(|event| &event.claimed).next().cloned();
            let claimed = claimed.ok_or_else(|| broken("a child step that nobody could claim"))?;
            let start = child_start(claimed.job.as_deref(), &id.to_string(), seq, &claimed.input)?;
            let (child, _) = self.ask_run(APPLICATION, None, &start)?;
            let task = TaskRef { step_seq: seq, lease_token: Some(claimed.lease_token) };
            self.ask_run(APPLICATION, Some(id), &Command::ChildStarted { task, child })?;
        }
        let view = self.read_run(ADMIN, run_id).await?;
        child_in(&view, step).ok_or_else(|| broken(format!("`{step}` waits for no run")))
    }
}
