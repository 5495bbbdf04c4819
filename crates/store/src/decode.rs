//! From rows to values. A row that cannot be decoded is [`StoreError::Corrupt`], with the place.

pub mod run;

use crate::select::STEP_COLUMNS;
use crate::statement::parse_fate;
use crate::value::{Columns, token};
use countersign_engine::passkey;
use countersign_engine::port::{Head, Loaded, LoadedBody, Quorum, StoreError, Waiting};
use countersign_engine::rows::{
    AssignmentRow, GateRow, HoldRelease, HoldRow, IdempotencyRow, ProcessRow, RecordRow, StepEnd, StepRow,
    TransitionRow,
};
use countersign_kernel::machine::{AssignmentStatus, ChainState, StepState};
use countersign_kernel::process::{Decided, DefinitionRef, Gate, GateKind, GateRef, Process, Request, Step};
use countersign_kernel::registry::{
    Actor, ActorKey, ActorKind, ClassMark, ClassMarked, Configuration, Credential, Definition, Delegation, Event,
    EventBody, Mark, Marked, Merged, Signatures,
};
use countersign_kernel::{
    AssignmentId, ChainId, Declaration, DelegationId, Digest, EventId, GateSpec, GrantId, HoldId, InstanceId,
    PublishedGate, PublishedGates, StepId, TransitionId,
};
use countersign_ledger::document::{
    parse_declaration, parse_gate_spec, parse_published_gate, parse_published_gates, parse_rule,
};
use countersign_ledger::{Content, Record, record_hash, sha256};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A process row joined with its instance row.
pub struct InstanceRow {
    pub process: ProcessRow,
    pub head: Head,
    pub state: String,
    pub moves: u64,
    pub policy_ref: String,
    pub beats: u64,
}

fn small(value: i64, what: &str) -> Result<u32, StoreError> {
    u32::try_from(value).map_err(|_| StoreError::Corrupt(format!("{what} {value} is out of range")))
}

pub fn instance_row(row: &dyn Columns) -> Result<InstanceRow, StoreError> {
    let definition = match (row.optional_text(1)?, row.optional_int(2)?) {
        (Some(name), Some(version)) => Some((name, small(version, "definition version")?)),
        (None, None) => None,
        _ => return Err(StoreError::Corrupt("a process has half a definition".to_owned())),
    };
    Ok(InstanceRow {
        process: ProcessRow {
            instance_id: InstanceId(row.id(0)?),
            definition,
            subject_ref: row.text(3)?,
            initiator_ref: row.text(4)?,
            declaration_digest: row.digest(5)?,
            gate_spec_digest: row.digest(6)?,
            started_at: row.time(7)?,
        },
        head: head_row_at(row, 8)?,
        state: row.text(11)?,
        moves: row.count(12)?,
        policy_ref: row.text(13)?,
        beats: row.count(14)?,
    })
}

pub fn transition_row(row: &dyn Columns) -> Result<TransitionRow, StoreError> {
    Ok(TransitionRow {
        instance_id: InstanceId(row.id(0)?),
        sequence_number: row.count(1)?,
        transition_id: TransitionId(row.id(2)?),
        from_state: row.text(3)?,
        action: row.text(4)?,
        to_state: row.text(5)?,
        fired_at: row.time(6)?,
        actor_ref: row.text(7)?,
        guard_satisfied: row.bool(8)?,
        gate_id: row.optional_id(9)?,
        gate_is_chain: row.bool(10)?,
        event_id: EventId(row.id(11)?),
    })
}

/// A quorum's rule, with its number in the column behind it.
fn quorum_rule(row: &dyn Columns, at: usize) -> Result<Option<countersign_kernel::QuorumRule>, StoreError> {
    let m = row.optional_int(at + 1)?.map(|m| small(m, "quorum m")).transpose()?;
    row.optional_text(at)?.map(|rule| token(&rule, |rule| parse_rule(rule, m))).transpose()
}

pub fn gate_row(row: &dyn Columns) -> Result<GateRow, StoreError> {
    let rule = quorum_rule(row, 8)?;
    Ok(GateRow {
        gate_id: row.id(0)?,
        instance_id: InstanceId(row.id(1)?),
        from_state: row.text(2)?,
        action: row.text(3)?,
        guard: row.text(4)?,
        scope: row.text(5)?,
        opened_at: row.time(6)?,
        opened_by: row.text(7)?,
        rule,
        chain_state: row.optional_text(10)?.map(|state| token(&state, ChainState::parse)).transpose()?,
        chain_terminal_at: row.optional_int(11)?.map(countersign_kernel::Time),
        fate: token(&row.text(12)?, parse_fate)?,
        current: row.bool(13)?,
    })
}

pub fn step_row(row: &dyn Columns) -> Result<StepRow, StoreError> {
    let ended = match (row.optional_text(11)?, row.optional_int(12)?) {
        (Some(by), Some(at)) => Some(StepEnd { by, at: countersign_kernel::Time(at), reason: row.optional_text(13)? }),
        (None, None) => None,
        _ => return Err(StoreError::Corrupt("a step has half an ending".to_owned())),
    };
    Ok(StepRow {
        step_id: StepId(row.id(0)?),
        gate_id: row.id(1)?,
        instance_id: InstanceId(row.id(2)?),
        slot: small(row.int(3)?, "slot")?,
        action: row.text(4)?,
        subject_ref: row.text(5)?,
        approver_ref: row.text(6)?,
        submitter_ref: row.text(7)?,
        scope: row.text(8)?,
        submitted_at: row.time(9)?,
        state: token(&row.text(10)?, StepState::parse)?,
        ended,
        request: row.optional_text(14)?.map(Arc::from),
    })
}

/// A step joined with an assignment.
pub fn assigned_step_row(row: &dyn Columns) -> Result<(StepRow, AssignmentRow), StoreError> {
    let at = |i| STEP_COLUMNS + i;
    let assignment = AssignmentRow {
        assignment_id: AssignmentId(row.id(at(0))?),
        task_ref: StepId(row.id(at(1))?),
        assignee_ref: row.text(at(2))?,
        assigned_at: row.time(at(3))?,
        status: token(&row.text(at(4))?, AssignmentStatus::parse)?,
        ended_at: row.optional_int(at(5))?.map(countersign_kernel::Time),
        taken_over: None,
    };
    Ok((step_row(row)?, assignment))
}

/// A step joined with its newest assignment, and with the one that was transferred.
pub fn gate_step_row(row: &dyn Columns) -> Result<(StepRow, AssignmentRow), StoreError> {
    let at = |i| STEP_COLUMNS + 6 + i;
    let (step, assignment) = assigned_step_row(row)?;
    let taken_over = match row.optional_id(at(0))? {
        None => None,
        Some(id) => Some(Box::new(AssignmentRow {
            assignment_id: AssignmentId(id),
            task_ref: step.step_id,
            assignee_ref: row.text(at(1))?,
            assigned_at: row.time(at(2))?,
            status: AssignmentStatus::Transferred,
            ended_at: row.optional_int(at(3))?.map(countersign_kernel::Time),
            taken_over: None,
        })),
    };
    Ok((step, AssignmentRow { taken_over, ..assignment }))
}

/// A step with its assignment, and what the in-tray shows besides.
pub fn waiting(row: &dyn Columns) -> Result<Waiting, StoreError> {
    let at = |i| STEP_COLUMNS + 6 + i;
    let (step, assignment) = assigned_step_row(row)?;
    let definition = match (row.optional_text(at(2))?, row.optional_int(at(3))?) {
        (Some(name), Some(version)) => Some((name, small(version, "definition version")?)),
        _ => None,
    };
    let due_at = row.optional_int(at(0))?.map(countersign_kernel::Time);
    let quorum = match quorum_rule(row, at(5))? {
        Some(rule) => {
            let [approved, rejected, approvers] = [row.count(at(7))?, row.count(at(8))?, row.count(at(9))?];
            Some(Quorum { rule, approved, rejected, approvers })
        }
        None => None,
    };
    let (opened_by, is_run) = (row.text(at(1))?, row.bool(at(4))?);
    let (is_involved, guard) = (row.count(at(10))? > 0, row.text(at(11))?);
    Ok(Waiting { assignment, step, opened_by, is_run, definition, due_at, quorum, is_involved, guard })
}

pub fn record_row(row: &dyn Columns) -> Result<RecordRow, StoreError> {
    let header = row.bytes(6)?;
    let content = match (row.optional_bytes(7)?, row.optional_bytes(8)?, row.optional_bytes32(9)?) {
        (Some(payload), Some(attestation), Some(salt)) => Some(Content { payload, attestation, salt }),
        (None, None, None) => None,
        _ => return Err(StoreError::Corrupt("a record has lost a part of its content".to_owned())),
    };
    let record_hash = record_hash(&header);
    Ok(RecordRow {
        event_id: EventId(row.id(0)?),
        instance_id: InstanceId(row.id(1)?),
        sequence: row.count(2)?,
        action_ref: row.text(3)?,
        actor_ref: row.text(4)?,
        recorded_at: row.time(5)?,
        purgeable_from: row.optional_int(10)?.map(countersign_kernel::Time),
        record: Record { header, content, record_hash },
    })
}

/// An active hold keeps its own record, too.
pub const HOLD_PLACED: &str = "hold_placed";

pub fn hold_row(row: &dyn Columns) -> Result<HoldRow, StoreError> {
    let released = match (row.optional_int(7)?, row.optional_text(8)?, row.optional_text(9)?) {
        (Some(at), Some(by), Some(reason)) => Some(HoldRelease { at: countersign_kernel::Time(at), by, reason }),
        (None, None, None) => None,
        _ => return Err(StoreError::Corrupt("a hold has half a release".to_owned())),
    };
    Ok(HoldRow {
        hold_id: HoldId(row.id(0)?),
        record_ref: EventId(row.id(1)?),
        instance_id: InstanceId(row.id(2)?),
        placed_at: row.time(3)?,
        placed_by: row.text(4)?,
        reason: row.text(5)?,
        case_ref: row.optional_text(6)?,
        released,
    })
}

/// An active hold, as the kernel knows it, and its instance.
pub fn active_hold(row: &dyn Columns) -> Result<(InstanceId, HoldId, EventId), StoreError> {
    Ok((InstanceId(row.id(2)?), HoldId(row.id(0)?), EventId(row.id(1)?)))
}

pub fn idempotency_row(row: &dyn Columns) -> Result<IdempotencyRow, StoreError> {
    Ok(IdempotencyRow {
        actor_ref: row.text(0)?,
        key: row.text(1)?,
        request_digest: row.digest(2)?,
        answer: row.text(3)?,
        expires_at: row.time(4)?,
        instance_id: InstanceId(row.id(5)?),
    })
}

pub fn declaration(digest: &Digest, body: &[u8]) -> Result<Arc<Declaration>, StoreError> {
    parse_declaration(body).map(Arc::new).map_err(|e| StoreError::Corrupt(format!("declaration {digest}: {e}")))
}

pub fn published_gates(digest: &Digest, body: &[u8]) -> Result<Arc<PublishedGates>, StoreError> {
    let read = parse_published_gates(body).map(Arc::new);
    read.map_err(|e| StoreError::Corrupt(format!("gate_spec of definition {digest}: {e}")))
}

/// The proposal that a version was published from.
fn merged(row: &dyn Columns) -> Result<Option<Merged>, StoreError> {
    let (Some(proposal), Some(approval)) = (row.optional_id(13)?, row.optional_id(14)?) else { return Ok(None) };
    let approval = match row.bool(15)? {
        true => GateRef::Chain(ChainId(approval)),
        false => GateRef::Step(StepId(approval)),
    };
    Ok(Some(Merged { proposal: InstanceId(proposal), approval }))
}

/// Who approves the next version of a definition.
fn published_gate(digest: &Digest, text: &str) -> Result<PublishedGate, StoreError> {
    parse_published_gate(text.as_bytes())
        .map_err(|e| StoreError::Corrupt(format!("who publishes after definition {digest}: {e}")))
}

pub fn gate_spec(digest: &Digest, body: &[u8]) -> Result<Arc<GateSpec>, StoreError> {
    parse_gate_spec(body).map(Arc::new).map_err(|e| StoreError::Corrupt(format!("gate_spec {digest}: {e}")))
}

/// A stored gate with its steps, as the kernel knows it.
pub fn kernel_gate(row: &GateRow, steps: &[(StepRow, AssignmentRow)]) -> Result<Gate, StoreError> {
    let kind = match (row.rule, row.chain_state) {
        (None, None) => GateKind::Single,
        (Some(rule), Some(state)) => GateKind::Quorum { chain_id: ChainId(row.gate_id), rule, state },
        _ => return Err(StoreError::Corrupt(format!("gate {} has half a quorum", row.gate_id))),
    };
    if steps.is_empty() {
        return Err(StoreError::Corrupt(format!("gate {} has no step", row.gate_id)));
    }
    let step = |(step, assignment): &(StepRow, AssignmentRow)| Step {
        step_id: step.step_id,
        approver_ref: step.approver_ref.clone(),
        submitted_at: step.submitted_at,
        state: step.state,
        assignment: (assignment.status == AssignmentStatus::Active).then_some(assignment.assignment_id),
        decided: step.ended.clone().filter(|_| step.state != StepState::Withdrawn).map(|end| Decided {
            by: end.by,
            at: end.at,
            reason: end.reason,
        }),
    };
    Ok(Gate {
        from_state: row.from_state.clone(),
        action: row.action.clone(),
        guard: row.guard.clone(),
        scope: row.scope.clone(),
        opened_at: row.opened_at,
        kind,
        request: steps
            .first()
            .and_then(|(step, _)| step.request.clone())
            .map(|text| Request { digest: sha256(&[text.as_bytes()]), text }),
        steps: steps.iter().map(step).collect(),
        fate: row.fate,
        current: row.current,
    })
}

pub fn loaded(
    row: InstanceRow,
    declaration: Arc<Declaration>,
    gate_spec: Arc<GateSpec>,
    gates: Vec<Gate>,
    holds: BTreeMap<HoldId, EventId>,
) -> Result<Loaded, StoreError> {
    let InstanceRow { process, head, state, moves, policy_ref, beats } = row;
    if !declaration.states.contains(&state) {
        return Err(StoreError::Corrupt(format!(
            "instance {} is in the undeclared state `{state}`",
            process.instance_id
        )));
    }
    let process = Process {
        instance_id: process.instance_id,
        definition: process.definition.map(|(name, version)| DefinitionRef { name, version }),
        subject_ref: process.subject_ref,
        initiator_ref: process.initiator_ref,
        declaration,
        gate_spec,
        started_at: process.started_at,
        current_state: state,
        next_sequence_number: moves + 1,
        gates,
        holds,
    };
    Ok(Loaded { body: LoadedBody::Process(process), head, policy_ref, beats })
}

/// That the last record of an instance is there, and is the one that the instance's row names.
pub fn require_last_record(loaded: &Loaded, header: Option<&[u8]>) -> Result<(), StoreError> {
    let (instance_id, Head { sequence, record_hash: expected, .. }) = (loaded.instance_id(), &loaded.head);
    let what = match header.map(record_hash) {
        None => "is missing".to_owned(),
        Some(found) if found != *expected => format!("has the hash {found}, and {expected} was recorded"),
        Some(_) => return Ok(()),
    };
    Err(StoreError::Corrupt(format!("instance {instance_id}: its last record, number {sequence}, {what}")))
}

pub fn head_row(row: &dyn Columns) -> Result<Head, StoreError> {
    head_row_at(row, 0)
}

fn head_row_at(row: &dyn Columns, i: usize) -> Result<Head, StoreError> {
    Ok(Head { sequence: row.count(i)?, record_hash: row.digest(i + 1)?, last_time: row.time(i + 2)? })
}

type Numbered = Result<(u64, Event), StoreError>;

pub fn actor_event(row: &dyn Columns) -> Numbered {
    let actor_ref = row.text(1)?;
    let registered_at = row.time(4)?;
    let credential = match row.optional_bytes(6)? {
        Some(_) => Some(Credential { token_hash: row.digest(6)?, actor_ref: actor_ref.clone() }),
        None => None,
    };
    let key = match (row.optional_text(7)?, row.optional_text(8)?) {
        (Some(key_id), Some(public_key)) => Some(ActorKey { key_id, public_key, passkey: None }),
        _ => None,
    };
    let actor = Actor {
        actor_ref,
        kind: token(&row.text(2)?, ActorKind::parse)?,
        display_name: row.optional_text(3)?,
        key,
        registered_at,
    };
    Ok((
        row.count(0)?,
        Event { actor_ref: row.text(5)?, at: registered_at, body: EventBody::ActorRegistered { actor, credential } },
    ))
}

pub fn credential_event(row: &dyn Columns, revoked: bool) -> Numbered {
    let credential = Credential { token_hash: row.digest(1)?, actor_ref: row.text(2)? };
    let body = if revoked { EventBody::CredentialRevoked(credential) } else { EventBody::CredentialIssued(credential) };
    Ok((row.count(0)?, Event { actor_ref: row.text(4)?, at: row.time(3)?, body }))
}

pub fn key_event(row: &dyn Columns) -> Numbered {
    let passkey = row.optional_text(6)?.map(|text| token(&text, passkey::parse)).transpose()?;
    let key = ActorKey { key_id: row.text(2)?, public_key: row.text(3)?, passkey };
    let body = EventBody::KeyRegistered { actor_ref: row.text(1)?, key };
    Ok((row.count(0)?, Event { actor_ref: row.text(5)?, at: row.time(4)?, body }))
}

pub fn revoked_key_event(row: &dyn Columns) -> Numbered {
    let body = EventBody::KeyRevoked { actor_ref: row.text(1)?, key_id: row.text(2)?, reason: row.optional_text(3)? };
    Ok((row.count(0)?, Event { actor_ref: row.text(5)?, at: row.time(4)?, body }))
}

pub fn grant_event(row: &dyn Columns, revoked: bool) -> Numbered {
    let (grant_id, subject_ref, action_scope) = (GrantId(row.id(1)?), row.text(2)?, row.text(3)?);
    let body = if revoked {
        EventBody::GrantRevoked { grant_id, subject_ref, action_scope }
    } else {
        EventBody::GrantMade { grant_id, subject_ref, action_scope }
    };
    Ok((row.count(0)?, Event { actor_ref: row.text(5)?, at: row.time(4)?, body }))
}

pub fn delegation_event(row: &dyn Columns) -> Numbered {
    let (delegator_ref, made_at) = (row.text(2)?, row.time(5)?);
    let body = EventBody::DelegationMade(Delegation {
        delegation_id: DelegationId(row.id(1)?),
        delegator_ref: delegator_ref.clone(),
        delegate_ref: row.text(3)?,
        scope: row.text(4)?,
        from: row.time(6)?,
        until: row.time(7)?,
        reason: row.optional_text(8)?,
    });
    Ok((row.count(0)?, Event { actor_ref: delegator_ref, at: made_at, body }))
}

pub fn revoked_delegation_event(row: &dyn Columns) -> Numbered {
    let delegator_ref = row.text(2)?;
    let body = EventBody::DelegationRevoked {
        delegation_id: DelegationId(row.id(1)?),
        delegator_ref: delegator_ref.clone(),
        delegate_ref: row.text(3)?,
        scope: row.text(4)?,
    };
    Ok((row.count(0)?, Event { actor_ref: delegator_ref, at: row.time(5)?, body }))
}

pub fn definition_event(row: &dyn Columns) -> Numbered {
    let digest = row.digest(3)?;
    let (published_at, published_by) = (row.time(6)?, row.text(7)?);
    let definition = Definition {
        name: row.text(1)?,
        version: small(row.int(2)?, "definition version")?,
        digest,
        source: Some(row.text(4)?.into()),
        retention: row.optional_text(5)?,
        declaration: declaration(&digest, &row.bytes(8)?)?,
        gate_spec: published_gates(&digest, &row.bytes(9)?)?,
        // Only the engine can read it from its document.
        workflow: None,
        machine: None,
        quarantined: None,
        publish: row.optional_text(12)?.map(|text| published_gate(&digest, &text)).transpose()?,
        merged: merged(row)?,
        published_at,
        published_by: published_by.clone(),
    };
    Ok((
        row.count(0)?,
        Event { actor_ref: published_by, at: published_at, body: EventBody::DefinitionPublished(definition) },
    ))
}

/// The document of a workflow or a machine, and its place in the registry.
type WorkflowDocument = (u64, Arc<[u8]>);

/// Of a definition that is a workflow or a machine.
pub fn workflow_document(row: &dyn Columns) -> Result<Option<WorkflowDocument>, StoreError> {
    match (row.optional_bytes(10)?, row.optional_bytes(11)?) {
        (Some(body), Some(_)) => Ok(Some((row.count(0)?, body.into()))),
        (None, None) => Ok(None),
        _ => Err(StoreError::Corrupt(format!("the document of the definition `{}` is missing", row.text(1)?))),
    }
}

pub fn mark_event(row: &dyn Columns) -> Numbered {
    let marked = Marked {
        mark: token(&row.text(1)?, Mark::parse)?,
        name: row.text(2)?,
        version: small(row.int(3)?, "definition version")?,
        reason: row.optional_text(4)?,
    };
    Ok((row.count(0)?, Event { actor_ref: row.text(6)?, at: row.time(5)?, body: EventBody::DefinitionMarked(marked) }))
}

pub fn class_mark_event(row: &dyn Columns) -> Numbered {
    let marked =
        ClassMarked { mark: token(&row.text(1)?, ClassMark::parse)?, worker_class: row.text(2)?, reason: row.text(3)? };
    Ok((row.count(0)?, Event { actor_ref: row.text(5)?, at: row.time(4)?, body: EventBody::WorkerClassMarked(marked) }))
}

pub fn configuration_event(row: &dyn Columns) -> Numbered {
    let body = EventBody::ConfigurationRecorded(Configuration {
        audit_trail_retention_policy: row.optional_text(1)?,
        regulated: row.bool(4)?,
        signatures: row.optional_text(7)?.map(|text| token(&text, Signatures::parse)).transpose()?,
        application_actor_ref: row.text(5)?,
        server_actor_ref: row.text(6)?,
    });
    Ok((row.count(0)?, Event { actor_ref: row.text(3)?, at: row.time(2)?, body }))
}
