//! From events to rows: what each event changes in the store.

use crate::rows::{AssignmentRow, GateRow, HoldRelease, HoldRow, ProcessRow, StepEnd, StepRow, TransitionRow, Write};
use countersign_kernel::machine::{AssignmentStatus, ChainState, StepState};
use countersign_kernel::process::{
    Attachment, Decision, Event, EventBody, Fate, Gate, GateKind, GateRef, MOOT_WITHDRAWAL_REASON, OnBehalf,
    QUORUM_WITHDRAWAL_REASON, Settled,
};
use countersign_kernel::{EventId, HoldId, InstanceId, Time, registry};
use countersign_ledger::document::Document;
use uuid::Uuid;

/// The process that the events belong to.
pub struct Subject<'a> {
    pub instance_id: InstanceId,
    pub subject_ref: &'a str,
    pub initiator_ref: &'a str,
    /// The events are those of a firing.
    pub fires: bool,
}

pub fn gate_id(gate: GateRef) -> Uuid {
    match gate {
        GateRef::Step(id) => id.0,
        GateRef::Chain(id) => id.0,
    }
}

/// The rows of one event of a process. `documents` are the declaration and gate_spec of a start.
pub fn process_writes(
    subject: &Subject<'_>,
    event: &Event,
    event_id: EventId,
    documents: Option<&(Document, Document)>,
    writes: &mut Vec<Write>,
) {
    match &event.body {
        EventBody::WorkflowStarted { instance_id, definition, subject_ref, attachment, .. } => {
            let Some((declaration, gate_spec)) = documents else { return };
            writes.extend(attached(attachment.as_ref()));
            writes
                .extend([declaration, gate_spec].map(|d| Write::Document { digest: d.digest, bytes: d.bytes.clone() }));
            writes.push(Write::Process(ProcessRow {
                instance_id: *instance_id,
                definition: definition.as_ref().map(|d| (d.name.clone(), d.version)),
                subject_ref: subject_ref.clone(),
                initiator_ref: event.actor_ref.clone(),
                declaration_digest: declaration.digest,
                gate_spec_digest: gate_spec.digest,
                started_at: event.at,
            }));
        }
        EventBody::ChainInitiated { gate, supersedes } => bind(subject, event, gate, *supersedes, writes),
        // A quorum's rows were written by its chain_initiated.
        EventBody::GateOpened { gate, supersedes, .. } => {
            if gate.kind == GateKind::Single {
                bind(subject, event, gate, *supersedes, writes);
            }
        }
        EventBody::GateDecided { decision, reason, settled, on_behalf, .. } => {
            if let Some(settled) = settled {
                decide(settled, *decision, &event.actor_ref, (reason, on_behalf), event.at, writes);
            }
        }
        EventBody::StepDecided { decision, decided_by, reason, settled, on_behalf, .. } => {
            decide(settled, *decision, decided_by, (reason, on_behalf), event.at, writes);
        }
        EventBody::ChainResolved { chain_id, outcome, recalled, .. } => {
            writes.push(Write::EndChain { gate_id: chain_id.0, state: *outcome, at: event.at });
            for settled in recalled {
                if *outcome == ChainState::Withdrawn {
                    let reason = if subject.fires { MOOT_WITHDRAWAL_REASON } else { QUORUM_WITHDRAWAL_REASON };
                    let reason = Some(reason.to_owned());
                    settle(settled, Decision::Withdraw, subject.initiator_ref, reason, event.at, writes);
                } else {
                    recall(settled, event.at, writes);
                }
            }
        }
        EventBody::ChainWithdrawn { chain_id, reason, recalled, .. } => {
            writes.push(Write::EndChain { gate_id: chain_id.0, state: ChainState::Withdrawn, at: event.at });
            for settled in recalled {
                settle(settled, Decision::Withdraw, &event.actor_ref, Some(reason.clone()), event.at, writes);
            }
        }
        EventBody::TransitionFired {
            transition_id,
            sequence_number,
            from_state,
            action,
            to_state,
            gate,
            attachment,
            ..
        } => {
            writes.extend(attached(attachment.as_ref()));
            writes.push(Write::Transition(TransitionRow {
                instance_id: subject.instance_id,
                sequence_number: *sequence_number,
                transition_id: *transition_id,
                from_state: from_state.clone(),
                action: action.clone(),
                to_state: to_state.clone(),
                fired_at: event.at,
                actor_ref: event.actor_ref.clone(),
                guard_satisfied: gate.is_some(),
                gate_id: gate.map(gate_id),
                gate_is_chain: gate.is_some_and(|gate| gate.chain_id().is_some()),
                event_id,
            }));
            if let Some(gate) = gate {
                writes.push(Write::SpendGate { gate_id: gate_id(*gate), fate: Fate::Consumed });
            }
        }
        EventBody::MootGateRecalled { gate, settled, .. } => {
            if let Some(settled) = settled {
                let reason = Some(MOOT_WITHDRAWAL_REASON.to_owned());
                settle(settled, Decision::Withdraw, subject.initiator_ref, reason, event.at, writes);
            }
            writes.push(Write::SpendGate { gate_id: gate_id(*gate), fate: Fate::Mooted });
        }
        EventBody::HoldPlaced { hold_id, record_ref, reason, case_ref } => {
            let case_ref = case_ref.clone();
            let hold = hold(*hold_id, *record_ref, subject.instance_id, reason, case_ref);
            writes.push(Write::Hold(HoldRow { placed_at: event.at, placed_by: event.actor_ref.clone(), ..hold }));
        }
        EventBody::HoldReleased { hold_id, reason, .. } => {
            writes.push(released(*hold_id, &event.actor_ref, event.at, reason));
        }
        // What a purge destroys depends on what is stored: see `crate::purge`.
        EventBody::RecordPurged { .. } | EventBody::EvidenceExported | EventBody::AttemptRefused { .. } => {}
        // Its rows changed with the chain's end.
        EventBody::StepWithdrawnWithChain { .. } => {}
    }
}

/// The document that an attachment names.
fn attached(attachment: Option<&Attachment>) -> Option<Write> {
    let (digest, text) = attachment?.document.as_ref()?;
    Some(Write::Document { digest: *digest, bytes: text.as_bytes().to_vec() })
}

fn hold(
    hold_id: HoldId,
    record_ref: EventId,
    instance_id: InstanceId,
    reason: &str,
    case_ref: Option<String>,
) -> HoldRow {
    let (placed_at, placed_by, reason) = (Time(0), String::new(), reason.to_owned());
    HoldRow { hold_id, record_ref, instance_id, placed_at, placed_by, reason, case_ref, released: None }
}

fn released(hold_id: HoldId, by: &str, at: Time, reason: &str) -> Write {
    Write::ReleaseHold { hold_id, release: HoldRelease { at, by: by.to_owned(), reason: reason.to_owned() } }
}

fn bind(subject: &Subject<'_>, event: &Event, gate: &Gate, supersedes: Option<GateRef>, writes: &mut Vec<Write>) {
    let id = gate_id(gate.gate_ref());
    let (rule, chain_state) = match &gate.kind {
        GateKind::Single => (None, None),
        GateKind::Quorum { rule, state, .. } => (Some(*rule), Some(*state)),
    };
    writes.extend(supersedes.map(|old| Write::SupersedeGate { gate_id: gate_id(old) }));
    writes.push(Write::Gate(GateRow {
        gate_id: id,
        instance_id: subject.instance_id,
        from_state: gate.from_state.clone(),
        action: gate.action.clone(),
        guard: gate.guard.clone(),
        scope: gate.scope.clone(),
        opened_at: gate.opened_at,
        opened_by: event.actor_ref.clone(),
        rule,
        chain_state,
        chain_terminal_at: None,
        fate: gate.fate,
        current: gate.current,
    }));
    for (slot, step) in (0..).zip(&gate.steps) {
        writes.push(Write::Step(StepRow {
            step_id: step.step_id,
            gate_id: id,
            instance_id: subject.instance_id,
            slot,
            action: gate.action.clone(),
            subject_ref: format!("{}:{}", subject.subject_ref, gate.action),
            approver_ref: step.approver_ref.clone(),
            submitter_ref: subject.initiator_ref.to_owned(),
            scope: gate.scope.clone(),
            submitted_at: step.submitted_at,
            state: step.state,
            ended: None,
            request: gate.request.as_ref().map(|request| request.text.clone()),
        }));
        writes.extend(step.assignment.map(|assignment_id| {
            Write::Assignment(AssignmentRow {
                assignment_id,
                task_ref: step.step_id,
                assignee_ref: step.approver_ref.clone(),
                assigned_at: step.submitted_at,
                status: AssignmentStatus::Active,
                ended_at: None,
                taken_over: None,
            })
        }));
    }
}

fn decide(
    settled: &Settled,
    decision: Decision,
    by: &str,
    (reason, on_behalf): (&Option<String>, &Option<OnBehalf>),
    at: Time,
    writes: &mut Vec<Write>,
) {
    match on_behalf {
        None => settle(settled, decision, by, reason.clone(), at, writes),
        Some(on_behalf) => {
            end_step(settled, decision, by, reason.clone(), at, writes);
            transfer(settled, on_behalf, by, at, writes);
        }
    }
}

/// The entry in the approver's in-tray became the substitute's, who settled it at once.
fn transfer(settled: &Settled, on_behalf: &OnBehalf, to: &str, at: Time, writes: &mut Vec<Write>) {
    end_assignment(settled, "reassign", at, writes);
    if let Some(status) = AssignmentStatus::Active.after("recall") {
        writes.push(Write::Assignment(AssignmentRow {
            assignment_id: on_behalf.assignment_id,
            task_ref: settled.step_id,
            assignee_ref: to.to_owned(),
            assigned_at: at,
            status,
            ended_at: Some(at),
            taken_over: None,
        }));
    }
}

fn settle(settled: &Settled, decision: Decision, by: &str, reason: Option<String>, at: Time, writes: &mut Vec<Write>) {
    end_step(settled, decision, by, reason, at, writes);
    recall(settled, at, writes);
}

fn end_step(
    settled: &Settled,
    decision: Decision,
    by: &str,
    reason: Option<String>,
    at: Time,
    writes: &mut Vec<Write>,
) {
    if let Some(state) = StepState::Pending.after(decision.as_str()) {
        writes.push(Write::EndStep { step_id: settled.step_id, state, end: StepEnd { by: by.to_owned(), at, reason } });
    }
}

fn recall(settled: &Settled, at: Time, writes: &mut Vec<Write>) {
    end_assignment(settled, "recall", at, writes);
}

fn end_assignment(settled: &Settled, how: &str, at: Time, writes: &mut Vec<Write>) {
    if let (Some(assignment_id), Some(status)) = (settled.assignment, AssignmentStatus::Active.after(how)) {
        let assignee_ref = settled.approver_ref.clone();
        writes.push(Write::EndAssignment { assignment_id, assignee_ref, status, at });
    }
}

/// The rows of one event of the registry, which bears this sequence.
pub fn registry_writes(
    event: &registry::Event,
    sequence: u64,
    documents: Option<&(Document, Document)>,
    publish: Option<&str>,
    writes: &mut Vec<Write>,
) {
    let by = || event.actor_ref.clone();
    match &event.body {
        registry::EventBody::ActorRegistered { actor, credential } => {
            writes.push(Write::Actor { actor: actor.clone(), registered_by: by(), registry_sequence: sequence });
            writes.extend(actor.key.as_ref().map(|key| new_key(event, &actor.actor_ref, key, sequence)));
            writes.extend(credential.as_ref().map(|credential| new_token(event, credential, sequence)));
        }
        registry::EventBody::KeyRegistered { actor_ref, key } => writes.push(new_key(event, actor_ref, key, sequence)),
        registry::EventBody::KeyRevoked { key_id, reason, .. } => writes.push(Write::RevokeKey {
            key_id: key_id.clone(),
            reason: reason.clone(),
            revoked_at: event.at,
            revoked_by: by(),
            registry_sequence: sequence,
        }),
        registry::EventBody::CredentialIssued(credential) => writes.push(new_token(event, credential, sequence)),
        registry::EventBody::CredentialRevoked(credential) => writes.push(Write::RevokeCredential {
            credential: credential.clone(),
            revoked_at: event.at,
            revoked_by: by(),
            registry_sequence: sequence,
        }),
        registry::EventBody::GrantMade { grant_id, subject_ref, action_scope } => writes.push(Write::Grant {
            grant_id: *grant_id,
            subject_ref: subject_ref.clone(),
            action_scope: action_scope.clone(),
            granted_at: event.at,
            granted_by: by(),
            registry_sequence: sequence,
        }),
        registry::EventBody::GrantRevoked { grant_id, .. } => {
            writes.push(Write::RevokeGrant {
                grant_id: *grant_id,
                revoked_at: event.at,
                revoked_by: by(),
                registry_sequence: sequence,
            });
        }
        registry::EventBody::DelegationMade(delegation) => writes.push(Write::Delegation {
            delegation: delegation.clone(),
            made_at: event.at,
            registry_sequence: sequence,
        }),
        registry::EventBody::DelegationRevoked { delegation_id, .. } => writes.push(Write::RevokeDelegation {
            delegation_id: *delegation_id,
            revoked_at: event.at,
            registry_sequence: sequence,
        }),
        registry::EventBody::DefinitionPublished(definition) => {
            let Some((declaration, gate_spec)) = documents else { return };
            let document = definition.document_digest().zip(definition.document());
            writes.extend(document.map(|(digest, bytes)| Write::Document { digest: *digest, bytes: bytes.to_vec() }));
            writes
                .extend([declaration, gate_spec].map(|d| Write::Document { digest: d.digest, bytes: d.bytes.clone() }));
            writes.push(Write::Definition {
                definition: Box::new(definition.clone()),
                declaration_digest: declaration.digest,
                gate_spec_digest: gate_spec.digest,
                publish: publish.map(str::to_owned),
                registry_sequence: sequence,
            });
        }
        registry::EventBody::DefinitionMarked(marked) => writes.push(Write::DefinitionMark {
            marked: marked.clone(),
            marked_at: event.at,
            marked_by: by(),
            registry_sequence: sequence,
        }),
        registry::EventBody::WorkerClassMarked(marked) => writes.push(Write::WorkerClassMark {
            marked: marked.clone(),
            marked_at: event.at,
            marked_by: by(),
            registry_sequence: sequence,
        }),
        registry::EventBody::ConfigurationRecorded(configuration) => writes.push(Write::Configuration {
            configuration: configuration.clone(),
            recorded_at: event.at,
            recorded_by: by(),
            registry_sequence: sequence,
        }),
        registry::EventBody::HoldPlaced { hold_id, record_ref, reason, case_ref } => {
            let hold = hold(*hold_id, *record_ref, InstanceId::REGISTRY, reason, case_ref.clone());
            writes.push(Write::Hold(HoldRow { placed_at: event.at, placed_by: by(), ..hold }));
        }
        registry::EventBody::HoldReleased { hold_id, reason, .. } => {
            writes.push(released(*hold_id, &event.actor_ref, event.at, reason));
        }
        registry::EventBody::EvidenceExported(_) | registry::EventBody::AttemptRefused { .. } => {}
    }
}

fn new_key(event: &registry::Event, actor_ref: &str, key: &registry::ActorKey, sequence: u64) -> Write {
    Write::Key {
        actor_ref: actor_ref.to_owned(),
        key: key.clone(),
        registered_at: event.at,
        registered_by: event.actor_ref.clone(),
        registry_sequence: sequence,
    }
}

fn new_token(event: &registry::Event, credential: &registry::Credential, sequence: u64) -> Write {
    Write::Credential {
        credential: credential.clone(),
        issued_at: event.at,
        issued_by: event.actor_ref.clone(),
        registry_sequence: sequence,
    }
}
