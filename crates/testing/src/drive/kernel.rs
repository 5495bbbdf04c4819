//! The kernel alone: a registry, processes in a map, and what was recorded as a list. The past that the
//! kernel itself does not keep (ended steps, the history) is folded from the events.

use super::{
    ADMIN, APPLICATION, Assignment, Chain, Decided, Driver, Failure, Firing, GateStep, HoldOn, InboxItem, Level, On,
    Opened, OpenedStep, Record, Said, Start, Step, View, broken,
};
use async_trait::async_trait;
use countersign_definition::Cel;
use countersign_engine::payload::{self, Digests};
use countersign_kernel::machine::{AssignmentStatus, ChainState, StepState};
use countersign_kernel::plan::Language;
use countersign_kernel::process::{
    self, Command, Context, Decision, Event, EventBody, Fate, GateKind, GateRef, MOOT_WITHDRAWAL_REASON, Process,
    Settled, StepChoice,
};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::{self, Bootstrap, Registry, scopes};
use countersign_kernel::retention::{PlaceHold, PurgeRecord, RecordFacts, ReleaseHold, purged_text};
use countersign_kernel::{Digest, IdSource, InstanceId, StepId, Time};
use countersign_ledger::document::{declaration_document, gate_spec_document};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::commands::{
    decide_command, fire_command, grant_command, open_command, publish_command, register_command, revoke_command,
    start_command,
};
use super::kernel_retention::{Kept, event_id};
use super::kernel_runs::ToldRun;

const SERVER_ACTOR: &str = "countersign-log";

pub struct KernelDriver {
    pub(super) registry: Registry,
    processes: BTreeMap<InstanceId, Told>,
    pub(super) runs: BTreeMap<InstanceId, ToldRun>,
    pub(super) language: Arc<dyn Language>,
    pub(super) clock: i64,
    /// What a store would know besides.
    kept: Kept,
}

/// A process and everything that was recorded of it.
struct Told {
    process: Process,
    /// With the registry sequence that each was decided under.
    events: Vec<(Event, u64)>,
    history: Vec<Firing>,
    gates: Vec<GateStep>,
}

impl KernelDriver {
    pub fn new() -> Result<Self, Failure> {
        let mut driver = KernelDriver {
            registry: Registry::default(),
            processes: BTreeMap::new(),
            runs: BTreeMap::new(),
            language: Arc::new(Cel::default()),
            clock: 1_000_000,
            kept: Kept::default(),
        };
        let bootstrap = Bootstrap {
            admin_ref: ADMIN.to_owned(),
            admin_token_hash: Digest([0; 32]),
            application_key: None,
            server_actor_ref: SERVER_ACTOR.to_owned(),
            server_key: None,
        };
        driver.change_registry(APPLICATION, &registry::Command::Bootstrap(bootstrap))?;
        Ok(driver)
    }

    pub(super) fn tick(&mut self) -> (Time, IdSource) {
        self.clock += 1;
        (Time(self.clock), IdSource::new(Time(self.clock), 1))
    }

    fn change_registry(&mut self, by: &str, command: &registry::Command) -> Said<Vec<registry::Event>> {
        let (now, mut ids) = self.tick();
        let mut ctx = registry::Context {
            actor_ref: by,
            signed: false,
            application_actor_ref: APPLICATION,
            server_actor_ref: SERVER_ACTOR,
            now,
            ids: &mut ids,
        };
        let events = registry::decide(&self.registry, command, &mut ctx)?;
        let under = self.registry.sequence();
        for event in &events {
            self.registry.apply(self.registry.sequence() + 1, event);
            self.kept.registry.push((event.clone(), under));
            self.kept.note_registry(event);
        }
        Ok(events)
    }

    /// Has the kernel decide, and applies what follows.
    fn ask(&mut self, by: &str, instance_id: Option<&str>, command: &Command) -> Said<Vec<Event>> {
        let (now, ids) = self.tick();
        let instance_id = instance_id.and_then(InstanceId::parse);
        let told = instance_id.and_then(|id| self.processes.get(&id));
        let mut ctx = Context { actor_ref: by, now, registry: &self.registry, application_actor_ref: APPLICATION, ids };
        let events = process::decide(told.map(|told| &told.process), command, &mut ctx)?;
        if let Some(process) = events.first().and_then(Process::begin) {
            let told = Told { process, events: vec![], history: vec![], gates: vec![] };
            self.processes.insert(told.process.instance_id, told);
        }
        let instance_id = events.first().and_then(started).or(instance_id);
        let told = instance_id.and_then(|id| self.processes.get_mut(&id));
        let told = told.ok_or_else(|| broken("events of no process"))?;
        for event in &events {
            told.process.apply(event);
            told.tell(event, self.registry.sequence());
            self.kept.note(told.process.instance_id, event);
        }
        Ok(events)
    }

    fn told(&self, instance_id: &str) -> Said<&Told> {
        InstanceId::parse(instance_id)
            .and_then(|id| self.processes.get(&id))
            .ok_or_else(|| Refusal::new(Code::NotKnown, "there is no process with this instance_id").into())
    }

    /// What the engine asks its store: what is known of this record?
    fn facts(&self, event_id: &str) -> Option<RecordFacts> {
        let of_processes = self.processes.values().flat_map(|told| {
            (1..).zip(&told.events).map(|(sequence, (event, _))| {
                let action_ref = payload::process_action(&event.body);
                (told.process.instance_id, sequence, event.at, action_ref, event.actor_ref.as_str())
            })
        });
        self.kept.facts(event_id, of_processes)
    }

    /// What the engine asks its store: is this step live, has it ended, or was it never one?
    fn choice(&self, on: On<'_>, step_id: &str) -> StepChoice {
        let (Some(id), Ok(told)) = (StepId::parse(step_id), self.told(on.instance_id)) else {
            return StepChoice::Unknown;
        };
        let mut of_action = told.process.gates.iter().filter(|gate| gate.action == on.action);
        if of_action.any(|gate| gate.steps.iter().any(|step| step.step_id == id)) {
            StepChoice::Id(id)
        } else if told.gates.iter().any(|seen| seen.step.step_id == step_id && seen.step.action == on.action) {
            StepChoice::Ended
        } else {
            StepChoice::Unknown
        }
    }
}

fn started(event: &Event) -> Option<InstanceId> {
    match &event.body {
        EventBody::WorkflowStarted { instance_id, .. } => Some(*instance_id),
        _ => None,
    }
}

fn gate_id(gate: GateRef) -> String {
    match gate {
        GateRef::Step(id) => id.to_string(),
        GateRef::Chain(id) => id.to_string(),
    }
}

pub(super) fn opened(gate: &process::Gate) -> Opened {
    let step = |step: &process::Step| OpenedStep {
        step_id: step.step_id.to_string(),
        approver_ref: step.approver_ref.clone(),
    };
    let chain_id = gate.gate_ref().chain_id().map(|id| id.to_string());
    Opened { chain_id, steps: gate.steps.iter().map(step).collect() }
}

fn owned(text: Option<&str>) -> Option<String> {
    text.map(str::to_owned)
}

impl Told {
    fn tell(&mut self, event: &Event, registry_seq: u64) {
        self.events.push((event.clone(), registry_seq));
        let by = event.actor_ref.as_str();
        let initiator = self.process.initiator_ref.clone();
        match &event.body {
            EventBody::GateOpened { gate, supersedes, .. } => {
                if let Some(old) = supersedes.map(gate_id) {
                    self.gates.iter_mut().filter(|seen| seen.gate_id() == old).for_each(|seen| seen.is_current = false);
                }
                let chain = match &gate.kind {
                    GateKind::Single => None,
                    GateKind::Quorum { chain_id, .. } => {
                        Some(Chain { chain_id: chain_id.to_string(), state: ChainState::Pending.to_string() })
                    }
                };
                self.gates.extend(gate.steps.iter().map(|step| GateStep {
                    step: Step {
                        step_id: step.step_id.to_string(),
                        action: gate.action.clone(),
                        subject_ref: format!("{}:{}", self.process.subject_ref, gate.action),
                        approver_ref: step.approver_ref.clone(),
                        submitter_ref: initiator.clone(),
                        scope: gate.scope.clone(),
                        state: StepState::Pending.to_string(),
                        ended_by: None,
                        reason: None,
                    },
                    from_state: gate.from_state.clone(),
                    guard: gate.guard.clone(),
                    chain: chain.clone(),
                    assignment_status: AssignmentStatus::Active.to_string(),
                    is_current: true,
                    fate: "unspent".to_owned(),
                }));
            }
            EventBody::GateDecided { decision, settled: Some(settled), reason, .. } => {
                self.settle(settled, *decision, by, reason.as_deref());
            }
            EventBody::StepDecided { decision, settled, decided_by, reason, .. } => {
                self.settle(settled, *decision, decided_by, reason.as_deref());
            }
            EventBody::ChainResolved { chain_id, outcome, recalled, .. } => {
                self.end_chain(&chain_id.to_string(), *outcome, recalled, &initiator, MOOT_WITHDRAWAL_REASON);
            }
            // It says again what the chain's end has done.
            EventBody::StepWithdrawnWithChain { .. } => {}
            EventBody::ChainWithdrawn { chain_id, reason, recalled, .. } => {
                self.end_chain(&chain_id.to_string(), ChainState::Withdrawn, recalled, by, reason);
            }
            EventBody::TransitionFired { sequence_number, from_state, action, to_state, gate, .. } => {
                self.history.push(Firing {
                    sequence_number: *sequence_number,
                    from_state: from_state.clone(),
                    action: action.clone(),
                    to_state: to_state.clone(),
                    actor_ref: by.to_owned(),
                    guard_satisfied: gate.map(|_| true),
                    gate_id: gate.map(gate_id),
                    event_id: event_id(event.at, self.events.len() as u64).to_string(),
                });
                self.spend(*gate, Fate::Consumed);
            }
            EventBody::MootGateRecalled { gate, settled, .. } => {
                if let Some(settled) = settled {
                    self.settle(settled, Decision::Withdraw, &initiator, Some(MOOT_WITHDRAWAL_REASON));
                }
                self.spend(Some(*gate), Fate::Mooted);
            }
            EventBody::WorkflowStarted { .. }
            | EventBody::ChainInitiated { .. }
            | EventBody::GateDecided { settled: None, .. }
            | EventBody::HoldPlaced { .. }
            | EventBody::HoldReleased { .. }
            | EventBody::EvidenceExported
            | EventBody::AttemptRefused { .. } => {}
            EventBody::RecordPurged { record } => self.forget(record),
        }
    }

    /// What a purged record said is gone from the rows too.
    fn forget(&mut self, record: &RecordFacts) {
        let text = purged_text(record.event_id);
        let index = usize::try_from(record.sequence).unwrap_or(0).saturating_sub(1);
        match self.events.get(index).map(|(event, _)| event.body.clone()) {
            Some(EventBody::WorkflowStarted { .. }) => {
                for seen in &mut self.gates {
                    seen.step.subject_ref = format!("{text}:{}", seen.step.action);
                }
            }
            Some(
                EventBody::GateDecided { settled: Some(settled), reason: Some(_), .. }
                | EventBody::StepDecided { settled, reason: Some(_), .. },
            ) => self.of_step(&settled).for_each(|seen| seen.step.reason = Some(text.clone())),
            _ => {}
        }
    }

    fn of_step(&mut self, settled: &Settled) -> impl Iterator<Item = &mut GateStep> {
        let id = settled.step_id.to_string();
        self.gates.iter_mut().filter(move |seen| seen.step.step_id == id)
    }

    fn settle(&mut self, settled: &Settled, decision: Decision, by: &str, reason: Option<&str>) {
        for seen in self.of_step(settled) {
            let state = StepState::parse(&seen.step.state).and_then(|state| state.after(decision.as_str()));
            seen.step.state = state.map_or_else(|| "decided twice".to_owned(), |state| state.to_string());
            seen.step.ended_by = Some(by.to_owned());
            seen.step.reason = owned(reason);
            seen.assignment_status = AssignmentStatus::Recalled.to_string();
        }
    }

    fn end_chain(&mut self, chain: &str, outcome: ChainState, recalled: &[Settled], by: &str, reason: &str) {
        let chains = self.gates.iter_mut().filter_map(|seen| seen.chain.as_mut());
        chains.filter(|seen| seen.chain_id == chain).for_each(|seen| seen.state = outcome.to_string());
        for settled in recalled {
            if outcome == ChainState::Withdrawn {
                self.settle(settled, Decision::Withdraw, by, Some(reason));
            }
            self.of_step(settled).for_each(|seen| seen.assignment_status = AssignmentStatus::Recalled.to_string());
        }
    }

    fn spend(&mut self, gate: Option<GateRef>, fate: Fate) {
        let id = gate.map(gate_id);
        let fate = match fate {
            Fate::Unspent => "unspent",
            Fate::Consumed => "consumed",
            Fate::Mooted => "mooted",
        };
        let spent = self.gates.iter_mut().filter(|seen| Some(seen.gate_id()) == id.as_deref());
        spent.for_each(|seen| fate.clone_into(&mut seen.fate));
    }

    fn chain_state(&self, events: &[Event]) -> Option<String> {
        let chain = events.iter().find_map(|event| match &event.body {
            EventBody::GateDecided { chain_id, .. } => *chain_id,
            _ => None,
        })?;
        let chains = self.gates.iter().filter_map(|seen| seen.chain.as_ref());
        chains.filter(|seen| seen.chain_id == chain.to_string()).map(|seen| seen.state.clone()).next()
    }
}

#[async_trait]
impl Driver for KernelDriver {
    fn level(&self) -> Level {
        Level::Kernel
    }

    async fn register(&mut self, actor_ref: &str) -> Said<()> {
        self.change_registry(ADMIN, &register_command(actor_ref)).map(|_| ())
    }

    async fn grant(&mut self, by: &str, subject_ref: &str, scope: &str) -> Said<String> {
        let events = self.change_registry(by, &grant_command(subject_ref, scope))?;
        match events.first().map(|event| &event.body) {
            Some(registry::EventBody::GrantMade { grant_id, .. }) => Ok(grant_id.to_string()),
            other => Err(broken(format!("a grant that made {other:?}"))),
        }
    }

    async fn revoke(&mut self, by: &str, grant_id: &str) -> Said<()> {
        self.change_registry(by, &revoke_command(grant_id)).map(|_| ())
    }

    async fn publish(&mut self, by: &str, document: &str) -> Said<()> {
        let command = publish_command(document)?;
        self.change_registry(by, &registry::Command::PublishDefinition(command)).map(|_| ())
    }

    async fn start(&mut self, by: &str, start: &Start) -> Said<String> {
        let events = self.ask(by, None, &start_command(start)?)?;
        let id = events.first().and_then(started).ok_or_else(|| broken("a start without a start"))?;
        Ok(id.to_string())
    }

    async fn open_gate(&mut self, by: &str, on: On<'_>) -> Said<Opened> {
        let events = self.ask(by, Some(on.instance_id), &open_command(on))?;
        let gate = events.iter().find_map(|event| match &event.body {
            EventBody::GateOpened { gate, .. } => Some(gate),
            _ => None,
        });
        gate.map(opened).ok_or_else(|| broken("an opening without a gate"))
    }

    async fn decide_gate(&mut self, by: &str, on: On<'_>, decision: Decision, step: Option<&str>) -> Said<Decided> {
        let step = step.map(|step_id| self.choice(on, step_id));
        let events = self.ask(by, Some(on.instance_id), &decide_command(on, decision, step))?;
        let outcome = match decision {
            Decision::Approve => "approved",
            Decision::Reject => "rejected_outcome",
            Decision::Withdraw => "withdrawn",
        };
        let chain_state = self.told(on.instance_id)?.chain_state(&events);
        Ok(Decided { outcome: outcome.to_owned(), chain_state })
    }

    async fn fire(&mut self, by: &str, on: On<'_>) -> Said<String> {
        self.ask(by, Some(on.instance_id), &fire_command(on))?;
        Ok(self.told(on.instance_id)?.process.current_state.clone())
    }

    async fn place_hold(&mut self, by: &str, hold: HoldOn<'_>) -> Said<String> {
        let record = self.facts(hold.record_ref);
        let instance_id = record.as_ref().map(|record| record.instance_id);
        let command = PlaceHold {
            record_ref: hold.record_ref.to_owned(),
            reason: hold.reason.to_owned(),
            case_ref: owned(hold.case_ref),
            record,
        };
        if instance_id == Some(InstanceId::REGISTRY) {
            let events = self.change_registry(by, &registry::Command::PlaceHold(command))?;
            return self.kept.placed(events.iter().find_map(|event| match &event.body {
                registry::EventBody::HoldPlaced { hold_id, .. } => Some(*hold_id),
                _ => None,
            }));
        }
        let instance_id = instance_id.map(|id| id.to_string());
        let events = self.ask(by, instance_id.as_deref(), &Command::PlaceHold(command))?;
        self.kept.placed(events.iter().find_map(|event| match &event.body {
            EventBody::HoldPlaced { hold_id, .. } => Some(*hold_id),
            _ => None,
        }))
    }

    async fn release_hold(&mut self, by: &str, hold_id: &str, reason: Option<&str>) -> Said<()> {
        let hold = self.kept.hold(hold_id);
        let command = ReleaseHold { hold_id: hold_id.to_owned(), reason: owned(reason), hold };
        match hold.map(|hold| hold.instance_id) {
            Some(InstanceId::REGISTRY) => {
                self.change_registry(by, &registry::Command::ReleaseHold(command)).map(|_| ())
            }
            id => {
                let id = id.map(|id| id.to_string());
                self.ask(by, id.as_deref(), &Command::ReleaseHold(command)).map(|_| ())
            }
        }
    }

    async fn purge(&mut self, by: &str, event_id: &str) -> Said<()> {
        let record = self.facts(event_id);
        let instance_id = record.as_ref().map(|record| record.instance_id.to_string());
        let command = PurgeRecord { record, ..PurgeRecord::of(event_id) };
        self.ask(by, instance_id.as_deref(), &Command::PurgeRecord(command)).map(|_| ())
    }

    /// The kernel has no reads of its own; this asks it for the permission only.
    async fn read(&mut self, by: &str, instance_id: &str) -> Said<View> {
        let told = self.told(instance_id);
        let definition = told.as_ref().ok().and_then(|told| told.process.definition.as_ref());
        let all = self.registry.permitted(by, scopes::WORKFLOWS_READ);
        let named = told.as_ref().is_ok_and(|told| told.gates.iter().any(|seen| seen.step.approver_ref == by));
        let some = || self.registry.permitted_on(by, scopes::WORKFLOWS_READ, definition.map(|d| d.name.as_str()));
        if !all && !named && !some() {
            return Err(Refusal::new(Code::PermissionDenied, "not to be read by this actor").into());
        }
        let told = told?;
        Ok(View {
            instance_id: instance_id.to_owned(),
            subject_ref: told.process.subject_ref.clone(),
            initiator_ref: told.process.initiator_ref.clone(),
            declaration: (*told.process.declaration).clone(),
            gate_spec: (*told.process.gate_spec).clone(),
            current_state: told.process.current_state.clone(),
            history: told.history.clone(),
            gates: told.gates.clone(),
        })
    }

    async fn inbox(&mut self, by: &str) -> Said<Vec<InboxItem>> {
        let mut waiting: Vec<InboxItem> = vec![];
        for told in self.processes.values() {
            for gate in &told.process.gates {
                let own = gate.steps.iter().filter(|step| step.approver_ref == by && step.assignment.is_some());
                waiting.extend(own.map(|step| InboxItem {
                    instance_id: told.process.instance_id.to_string(),
                    action: gate.action.clone(),
                    step_id: step.step_id.to_string(),
                }));
            }
        }
        waiting.extend(self.runs.values().flat_map(|told| told.inbox(by)));
        waiting.sort_by(|a, b| a.step_id.cmp(&b.step_id));
        Ok(waiting)
    }

    async fn approval_steps(&mut self, instance_id: &str) -> Said<Vec<Step>> {
        Ok(self.told(instance_id)?.gates.iter().map(|seen| seen.step.clone()).collect())
    }

    async fn assignments(&mut self, step_id: &str) -> Said<Vec<Assignment>> {
        let steps = self.processes.values().flat_map(|told| &told.gates).filter(|seen| seen.step.step_id == step_id);
        Ok(steps
            .map(|seen| Assignment {
                task_ref: step_id.to_owned(),
                assignee_ref: seen.step.approver_ref.clone(),
                status: seen.assignment_status.clone(),
            })
            .collect())
    }

    async fn records(&mut self, instance_id: &str) -> Said<Vec<Record>> {
        if InstanceId::parse(instance_id) == Some(InstanceId::REGISTRY) {
            return self.kept.registry_records();
        }
        if let Some(told) = self.told_run(instance_id) {
            return Ok(told.records());
        }
        let told = self.told(instance_id)?;
        let process = &told.process;
        let digests = Digests {
            declaration: declaration_document(&process.declaration).map_err(broken)?.digest,
            gate_spec: gate_spec_document(&process.gate_spec).map_err(broken)?.digest,
            document: None,
            publish: None,
        };
        let record = |(sequence, (event, registry_seq)): (u64, &(Event, u64))| {
            let payload = payload::process_payload(
                process.instance_id,
                sequence,
                &process.subject_ref,
                &process.initiator_ref,
                event,
                Some(&digests),
            );
            let event_id = event_id(event.at, sequence);
            let payload = if self.kept.purged.contains(&event_id) { b"null".to_vec() } else { payload };
            Ok(Record {
                event_id: event_id.to_string(),
                sequence,
                action_ref: payload::process_action(&event.body).to_owned(),
                actor_ref: event.actor_ref.clone(),
                payload: serde_json::from_slice(&payload).map_err(broken)?,
                registry_seq: *registry_seq,
                recorded_at: event.at.0.to_string(),
            })
        };
        (1..).zip(&told.events).map(record).collect()
    }

    async fn held(&mut self, actor_ref: &str, scope: &str, record: &Record) -> Said<bool> {
        Ok(self.registry.grants().permitted_under(actor_ref, scope, record.registry_seq))
    }

    async fn restart(&mut self) -> Said<()> {
        Ok(())
    }

    async fn keep_under(&mut self, policy: &str) -> Said<()> {
        self.kept.policy = Some(policy.to_owned());
        Ok(())
    }

    async fn pass(&mut self, us: i64) -> Said<()> {
        self.clock += us;
        self.look()
    }

    async fn pass_until(&mut self, at_us: i64) -> Said<()> {
        self.clock = at_us;
        self.look()
    }

    /// What was recorded is enough to build the process again.
    async fn verify(&mut self, instance_id: &str) -> Said<()> {
        if let Some(told) = self.told_run(instance_id) {
            return told.verify();
        }
        let told = self.told(instance_id)?;
        let mut events = told.events.iter().map(|(event, _)| event);
        let again = events.next().and_then(Process::begin).map(|process| events.fold(process, Process::evolve));
        if again.as_ref() == Some(&told.process) {
            return Ok(());
        }
        Err(broken(format!("replayed to {again:?}, but the process is {:?}", told.process)))
    }

    async fn request(&mut self, _: &str, _: &str, _: Option<&str>) -> Said<Value> {
        Err(broken("the kernel takes no requests"))
    }
}
