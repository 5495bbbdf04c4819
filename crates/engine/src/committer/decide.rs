//! The synchronous heart of the committer: jobs in, a batch and answers out. No I/O.

use super::acts::require_signature;
use super::due::{due_writes, opens_gate};
use super::round::Round;
use super::{Committer, Confirm, Decided, IDEMPOTENCY_WINDOW_US, Instance, Job, MAX_ROUND_STEPS};
use crate::effects::{self, Firing};
use crate::outcome::{self, Call, Command, Outcome, Proof, Target};
use crate::payload::{self, Digests};
use crate::port::{Batch, Check, Head};
use crate::project::{self, Subject};
use crate::rows::{IdempotencyRow, RecordRow, Write};
use crate::run::emit::Emitting;
use crate::unwritable;
use countersign_kernel::machine::ChainState;
use countersign_kernel::process::{self, Context, EventBody, GateKind, Process};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::Registry;
use countersign_kernel::retention;
use countersign_kernel::{EventId, IdSource, InstanceId, Time};
use countersign_ledger::document::{Document, declaration_document, gate_spec_document};
use countersign_ledger::record::MAX_PAYLOAD_BYTES;
use countersign_ledger::statement::OwnSignature;
use countersign_ledger::{Attestation, Draft, Retention, ZERO_HASH};
use std::collections::{HashMap, HashSet, VecDeque};

impl Committer {
    /// The synchronous heart: every job decided in order, under one view of the registry.
    pub(super) fn decide_all(
        &mut self,
        jobs: VecDeque<Job>,
        recalled: HashMap<(String, String), IdempotencyRow>,
    ) -> (Batch, Vec<Decided>) {
        self.tally.clear();
        self.notes.clear();
        let registry = self.registry.clone();
        let registry = registry.read();
        self.own_key_ended = self.has_own_key_ended(&registry);
        let mut round = Round {
            batch: Batch {
                registry_sequence: registry.sequence(),
                changes_registry: false,
                units: vec![],
                checks: vec![],
            },
            unit_of: HashMap::new(),
            recalled,
            purged: HashSet::new(),
            opened: HashSet::new(),
        };
        self.round_steps = 0;
        let decided = jobs.into_iter().map(|job| self.decide_one(job, &registry, &mut round)).collect();
        (round.batch, decided)
    }

    fn decide_one(&mut self, mut job: Job, registry: &Registry, round: &mut Round) -> Decided {
        if let Some(answer) = round.replay(&job.call) {
            // A key used earlier in this batch stands or falls with the unit that used it.
            let confirm = round.unit_of_key(&job.call).map(Confirm::Unit);
            self.give_back(&mut job);
            return Decided { job, answer, confirm };
        }
        // Those who came after much work are not kept waiting for the flush of those before them, nor these for them.
        if self.round_steps >= MAX_ROUND_STEPS || !self.bring_up_to_date(&mut job.call, round) {
            let answer = Err(Refusal::new(Code::Overloaded, "to be decided again"));
            return Decided { job, answer, confirm: Some(Confirm::NextRound) };
        }
        if matches!(job.call.command, Command::Run { .. } | Command::Claim(_)) {
            return self.decide_run_job(job, registry, round);
        }
        if matches!(job.call.command, Command::Ask { .. }) {
            return self.decide_ask(job, registry, round);
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
    pub(super) fn confirm_refusal(&mut self, job: &Job, round: &mut Round) -> Option<Confirm> {
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
        vouch(call, registry)?;
        let entropy = u64::from_le_bytes(self.random()?);
        let clock = self.now();
        let registry_time = self.registry.newest();
        let instance = match target {
            Target::Existing(instance_id) => self.cache.get(instance_id),
            Target::New | Target::Nowhere => None,
        };
        // A run has commands of its own: decided as a process's, a gate would be approved and its run never told.
        let instance = instance.filter(|instance| instance.run.is_none() || !moves_a_process(command));
        if let Some(instance) = instance {
            expect_sequence(call, instance.head.sequence)?;
        }
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
    pub(super) fn accept(
        &mut self,
        call: &Call,
        events: &[process::Event],
        mut ids: IdSource,
        registry: &Registry,
        round: &mut Round,
    ) -> Result<(Outcome, usize), Refusal> {
        let started = events.first().and_then(Process::begin);
        let base = self.base_of(call, started.as_ref(), registry)?;
        let documents = events.first().map_or(Ok(None), documents_of)?;
        let mut written = Written { writes: vec![], records: vec![], event_ids: vec![], head: base.head.clone() };
        for event in events {
            let event_id = ids.make();
            written.writes.extend(self.emitted(&base, started.as_ref(), event, event_id, &mut ids)?);
            self.write_event(call, &base, event, event_id, registry, documents.as_ref(), &mut ids, &mut written)?;
            self.write_purge(event, &mut written.writes)?;
            if self.cache.peek(&base.instance_id).is_some_and(|instance| instance.process.is_replay()) {
                written.writes.extend(super::replay::decided(base.instance_id, event));
            }
        }
        // Behind the assignments that it is about: SQLite writes in this order.
        if events.iter().any(opens_gate) {
            let process = self.cache.peek(&base.instance_id).map(|instance| &instance.process);
            let definition = process.and_then(|process| process.definition.clone());
            let dues = self.dues_of(definition.as_ref(), registry);
            events.iter().for_each(|event| due_writes(event, &dues, &mut written.writes));
        }
        for event in events {
            match &event.body {
                EventBody::RecordPurged { record } => drop(round.purged.insert(record.event_id)),
                EventBody::GateOpened { .. } => drop(round.opened.insert(base.instance_id)),
                _ => {}
            }
        }

        // Nothing can be refused any more: the cached instance moves on.
        if let Some(process) = started {
            let (head, policy_ref) = (base.head.clone(), base.policy_ref.clone());
            let instance = Instance { process, run: None, head, policy_ref, beats: 0 };
            self.cache.insert(base.instance_id, instance);
        }
        let mut answer = outcome::of_process(events, &written.event_ids, base.head.sequence + 1);
        let (mut state, mut moves) = (String::new(), 0);
        if let Some(instance) = self.cache.get_mut(&base.instance_id) {
            let before = chain_state(&answer, &instance.process);
            events.iter().for_each(|event| instance.process.apply(event));
            instance.head = written.head.clone();
            match &instance.run {
                None => state.clone_from(&instance.process.current_state),
                Some(run) => run.head.state.as_str().clone_into(&mut state),
            }
            moves = instance.process.next_sequence_number - 1;
            let after = chain_state(&answer, &instance.process);
            complete_chain_state(&mut answer, after.or(before));
        }
        let expires_at = Time(written.head.last_time.0.saturating_add(IDEMPOTENCY_WINDOW_US));
        let key = call
            .idempotency
            .as_ref()
            .map(|i| round.keep(call, base.instance_id, i.request_digest, &answer, expires_at))
            .transpose();
        let index = round.unit(base.instance_id, base.head.sequence, base.beats);
        let unit = &mut round.batch.units[index];
        unit.head = written.head;
        unit.state = state;
        unit.moves = moves;
        unit.policy_ref = base.policy_ref;
        unit.beats = unit.beats.max(base.beats);
        unit.writes.append(&mut written.writes);
        unit.records.append(&mut written.records);
        // Last: the instance has moved on, whether the answer can be kept or not.
        unit.idempotency.extend(key?);
        Ok((answer, index))
    }

    /// What the event tells those who listen. Holds, purges and exports of a run's records tell nothing.
    fn emitted(
        &self,
        base: &Base,
        started: Option<&Process>,
        event: &process::Event,
        event_id: EventId,
        ids: &mut IdSource,
    ) -> Result<Vec<Write>, Refusal> {
        if !self.config.emitter.is_listened() {
            return Ok(vec![]);
        }
        let known = self.cache.peek(&base.instance_id).map(|instance| &instance.process);
        let definition = started.or(known).and_then(|process| process.definition.as_ref());
        let of = Emitting { instance_id: base.instance_id, definition, subject_ref: &base.subject_ref, is_run: false };
        self.config.emitter.process_row(&of, event, event_id, &*self.config.language, ids)
    }

    /// What the command's events build on: the cached instance, or the one that they begin.
    fn base_of(&mut self, call: &Call, started: Option<&Process>, registry: &Registry) -> Result<Base, Refusal> {
        if let Some(process) = started {
            return Ok(Base {
                instance_id: process.instance_id,
                head: Head { sequence: 0, record_hash: ZERO_HASH, last_time: Time(0) },
                policy_ref: self.policy_for(process, registry),
                subject_ref: process.subject_ref.clone(),
                initiator_ref: process.initiator_ref.clone(),
                beats: 0,
            });
        }
        let cached = match &call.command {
            Command::Process { target: Target::Existing(instance_id), .. } => self.cache.get(instance_id),
            Command::Process { .. }
            | Command::Run { .. }
            | Command::Claim(_)
            | Command::Registry(_)
            | Command::Governance(_)
            | Command::Merge(_)
            | Command::RequestReplay(_)
            | Command::Ask { .. } => None,
        };
        let instance =
            cached.ok_or_else(|| Refusal::new(Code::RecordingFailure, "events for an instance that is not held"))?;
        Ok(Base {
            instance_id: instance.process.instance_id,
            head: instance.head.clone(),
            policy_ref: instance.policy_ref.clone(),
            subject_ref: instance.process.subject_ref.clone(),
            initiator_ref: instance.process.initiator_ref.clone(),
            beats: instance.beats,
        })
    }

    /// The record and the rows of one event.
    #[expect(clippy::too_many_arguments, reason = "one private caller; all of it is what an event is written with")]
    fn write_event(
        &mut self,
        call: &Call,
        base: &Base,
        event: &process::Event,
        event_id: EventId,
        registry: &Registry,
        documents: Option<&(Document, Document)>,
        ids: &mut IdSource,
        written: &mut Written,
    ) -> Result<(), Refusal> {
        let Base { instance_id, subject_ref, initiator_ref, policy_ref, .. } = base;
        let digests = documents.map(|(d, g)| Digests {
            declaration: d.digest,
            gate_spec: g.digest,
            document: None,
            publish: None,
        });
        let sequence = written.head.sequence + 1;
        let firing = Firing { instance_id: *instance_id, subject_ref, initiator_ref };
        let effects = effects::filled(&firing, event, &*self.config.language)?;
        let payload =
            payload::process_payload(*instance_id, sequence, subject_ref, initiator_ref, event, digests.as_ref());
        let record = self.record(RecordDraft {
            event_id,
            instance_id: *instance_id,
            head: &mut written.head,
            action_ref: payload::process_action(&event.body),
            actor_ref: &event.actor_ref,
            at: event.at,
            registry_seq: registry.sequence(),
            policy_ref,
            proof: &call.proof,
            payload: effects::with(payload, &effects),
        })?;
        written.writes.append(&mut effects::writes(&firing, event, effects, ids));
        let fires = matches!(
            &call.command,
            Command::Process { command: process::Command::FireTransition(_) | process::Command::MoveProposal(_), .. }
        );
        let subject = Subject { instance_id: *instance_id, subject_ref, initiator_ref, fires };
        project::process_writes(&subject, event, event_id, documents, &mut written.writes);
        written.records.push(record);
        written.event_ids.push(event_id);
        Ok(())
    }

    pub(super) fn policy_for(&self, process: &Process, registry: &Registry) -> String {
        let deployment = self.config.deployment_policy();
        let of_definition = process
            .definition
            .as_ref()
            .and_then(|d| registry.definition(&d.name, Some(d.version)))
            .and_then(|definition| definition.retention.as_deref());
        match (of_definition, &self.config.audit_trail_retention_policy) {
            (Some(policy), Some(deployment)) => self.config.policies.longer(deployment, policy),
            // The deployment has not chosen; the definition has.
            (Some(policy), None) => policy,
            (None, _) => deployment,
        }
        .to_owned()
    }

    pub(super) fn random<const N: usize>(&mut self) -> Result<[u8; N], Refusal> {
        self.entropy.take().map_err(|error| {
            tracing::error!(%error, "no randomness");
            Refusal::new(Code::RecordingFailure, "the system gives no randomness; nothing was written")
        })
    }

    /// What the application actor writes is signed with its key; all else bears the caller's proof.
    fn attest<'d>(&self, draft: &RecordDraft<'d>) -> Result<Attestation<'d>, Refusal> {
        let own = draft.actor_ref == self.config.application_actor_ref;
        if let (true, Some(signer)) = (own, &self.config.application_key) {
            let registry = draft.instance_id == InstanceId::REGISTRY;
            let signature = OwnSignature {
                signer,
                action_ref: draft.action_ref,
                actor_ref: draft.actor_ref,
                instance_id: (!registry).then(|| draft.instance_id.to_string()),
                nonce: draft.event_id.to_string(),
                issued_at_us: draft.at.0,
            };
            return Ok(Attestation::Signed(signature.attest(&draft.payload).map_err(unwritable)?.into()));
        }
        Ok(match draft.proof {
            Proof::Signed(request) if !own && request.by_passkey => Attestation::Passkey(&request.attestation),
            Proof::Signed(request) if !own => Attestation::Signed(request.attestation.as_slice().into()),
            Proof::Token { credential_id } if !own => Attestation::Server { credential_id: Some(credential_id) },
            Proof::Signed(_) | Proof::Token { .. } | Proof::InProcess => Attestation::Server { credential_id: None },
        })
    }

    /// Whether the key with which this node signs for the engine was rotated away, here or by another node.
    pub(super) fn has_own_key_ended(&self, registry: &Registry) -> bool {
        let key_id = self.own_key_id.as_deref();
        let known = key_id.and_then(|id| registry.keys().get(&self.config.application_actor_ref, id));
        known.is_some_and(|known| !known.is_active())
    }

    pub(super) fn record(&mut self, draft: RecordDraft<'_>) -> Result<RecordRow, Refusal> {
        if self.own_key_ended && draft.actor_ref == self.config.application_actor_ref {
            let detail = "the key with which this node signs for the engine has ended; nothing was written. Give the \
                          node the new application.key and start it again";
            return Err(Refusal::new(Code::RecordingFailure, detail));
        }
        if draft.payload.len() > MAX_PAYLOAD_BYTES {
            let detail = format!(
                "the record would hold {} bytes; {MAX_PAYLOAD_BYTES} are allowed. Shorten the reason",
                draft.payload.len()
            );
            return Err(Refusal::new(Code::TooLarge, detail));
        }
        let salt = self.random()?;
        let sequence = draft.head.sequence + 1;
        let attestation = self.attest(&draft)?;
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
            attestation,
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
            purgeable_from: retention_until.filter(|_| {
                // The kinds that never are.
                !matches!(draft.instance_id, InstanceId::REGISTRY | InstanceId::GOVERNANCE)
                    && draft.action_ref != retention::DESTRUCTION
            }),
            record,
        })
    }
}

/// A key or token that was good at the door may have been revoked since; and where the deployment is regulated, acts are signed.
pub(super) fn vouch(call: &Call, registry: &Registry) -> Result<(), Refusal> {
    // What the engine does itself comes from inside the process.
    if !matches!(call.proof, Proof::InProcess) && registry.is_engine_actor(&call.actor_ref) {
        return Err(Refusal::new(Code::InvalidCredential, "no request acts as an actor of the engine itself"));
    }
    let stands = match &call.proof {
        Proof::InProcess => true,
        Proof::Token { credential_id } => registry.keys().vouches(&call.actor_ref, credential_id),
        Proof::Signed(request) => {
            registry.keys().get(&call.actor_ref, &request.key_id).is_some_and(|known| known.is_active())
        }
    };
    if !stands {
        return Err(Refusal::new(Code::InvalidCredential, "this key or token has been revoked"));
    }
    require_signature(call, registry)
}

/// Who signs may say on which state of the instance the decision was made.
pub(super) fn expect_sequence(call: &Call, sequence: u64) -> Result<(), Refusal> {
    let Proof::Signed(request) = &call.proof else { return Ok(()) };
    match request.expected_sequence {
        Some(expected) if expected != sequence => {
            let detail = format!(
                "the statement was signed on record {expected}, and the instance stands at {sequence}: look again \
                 and sign anew"
            );
            Err(Refusal::new(Code::Conflict, detail).at("expected_sequence"))
        }
        _ => Ok(()),
    }
}

/// What the events of a command build on.
struct Base {
    instance_id: InstanceId,
    head: Head,
    policy_ref: String,
    subject_ref: String,
    initiator_ref: String,
    beats: u64,
}

/// What the events of a command write.
struct Written {
    writes: Vec<Write>,
    records: Vec<RecordRow>,
    event_ids: Vec<EventId>,
    head: Head,
}

/// Whether only a process knows this command. Holds, purges and exports concern the records of any instance.
const fn moves_a_process(command: &process::Command) -> bool {
    matches!(
        command,
        process::Command::OpenGate(_)
            | process::Command::DecideGate(_)
            | process::Command::FireTransition(_)
            | process::Command::MoveProposal(_)
    )
}

/// The declaration and gate_spec of a start.
fn documents_of(event: &process::Event) -> Result<Option<(Document, Document)>, Refusal> {
    match &event.body {
        EventBody::WorkflowStarted { declaration, gate_spec, .. } => {
            let declaration = declaration_document(declaration).map_err(unwritable)?;
            Ok(Some((declaration, gate_spec_document(gate_spec).map_err(unwritable)?)))
        }
        _ => Ok(None),
    }
}

/// A record about to be written; `head` moves on with it.
pub(super) struct RecordDraft<'a> {
    pub event_id: EventId,
    pub instance_id: InstanceId,
    pub head: &'a mut Head,
    pub action_ref: &'a str,
    pub actor_ref: &'a str,
    pub at: Time,
    pub registry_seq: u64,
    pub policy_ref: &'a str,
    /// How the caller is known; what the application actor writes is known by its own signature.
    pub proof: &'a Proof,
    pub payload: Vec<u8>,
}

/// Where the chain stands that this answer is about, as long as the process holds it.
fn chain_state(answer: &Outcome, process: &Process) -> Option<ChainState> {
    let Outcome::Decided { chain_state: Some(chain), .. } = answer else { return None };
    process.gates.iter().find_map(|gate| match &gate.kind {
        GateKind::Quorum { chain_id, state, .. } if chain_id.to_string() == *chain => Some(*state),
        GateKind::Quorum { .. } | GateKind::Single => None,
    })
}

/// Puts the chain's state where `of_process` left its id.
pub(super) fn name_chain_state(answer: &mut Outcome, process: &Process) {
    let state = chain_state(answer, process);
    complete_chain_state(answer, state);
}

/// `of_process` leaves the chain's id where its state belongs. A superseded chain is let go with its last
/// step; its state was settled before.
fn complete_chain_state(answer: &mut Outcome, state: Option<ChainState>) {
    if let Outcome::Decided { chain_state: Some(chain), .. } = answer {
        *chain = state.map_or_else(String::new, |state| state.as_str().to_owned());
    }
}
