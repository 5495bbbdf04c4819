//! The rows of the store, as plain values, and the writes that commands cause. Each kind of update
//! touches a row at most once in its life, so a batch may apply all inserts and then all updates.

mod governance;
mod run;

pub use governance::{GovernanceWrite, ProblemEnd, ProblemRow, ReplayEnd, ReplayRow, SignalRow};
pub use run::{
    ChargeRow, CorrectionRow, HeadText, MachineRow, NewStep, OutboxRow, RunEventRow, RunHeadRow, RunRow, StepState,
    StepText, StepWrite,
};

use countersign_kernel::machine::{AssignmentStatus, ChainState, StepState as ApprovalState};
use countersign_kernel::process::Fate;
use countersign_kernel::registry::{
    Actor, ActorKey, ClassMarked, Configuration, Credential, Definition, Delegation, Marked,
};
use countersign_kernel::{
    AssignmentId, DelegationId, Digest, EventId, GrantId, HoldId, InstanceId, QuorumRule, StepId, Time, TransitionId,
};
use countersign_ledger::Record;
use std::sync::Arc;
use uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessRow {
    pub instance_id: InstanceId,
    pub definition: Option<(String, u32)>,
    pub subject_ref: String,
    pub initiator_ref: String,
    pub declaration_digest: Digest,
    pub gate_spec_digest: Digest,
    pub started_at: Time,
}

/// A binding of a guarded transition; `gate_id` is its step's id, or its chain's for a quorum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateRow {
    pub gate_id: Uuid,
    pub instance_id: InstanceId,
    pub from_state: String,
    pub action: String,
    pub guard: String,
    pub scope: String,
    pub opened_at: Time,
    pub opened_by: String,
    pub rule: Option<QuorumRule>,
    pub chain_state: Option<ChainState>,
    pub chain_terminal_at: Option<Time>,
    pub fate: Fate,
    pub current: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepRow {
    pub step_id: StepId,
    pub gate_id: Uuid,
    pub instance_id: InstanceId,
    pub slot: u32,
    pub action: String,
    pub subject_ref: String,
    pub approver_ref: String,
    pub submitter_ref: String,
    pub scope: String,
    pub submitted_at: Time,
    pub state: ApprovalState,
    /// By whom, when and why it was decided or withdrawn.
    pub ended: Option<StepEnd>,
    /// What the approver is shown and decides on: JSON text.
    pub request: Option<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepEnd {
    pub by: String,
    pub at: Time,
    pub reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignmentRow {
    pub assignment_id: AssignmentId,
    pub task_ref: StepId,
    pub assignee_ref: String,
    pub assigned_at: Time,
    pub status: AssignmentStatus,
    pub ended_at: Option<Time>,
    /// The approver's, where it was transferred to a substitute: this one. Never written with it.
    pub taken_over: Option<Box<AssignmentRow>>,
}

impl AssignmentRow {
    /// This one alone, and before it the one that it took over.
    pub fn chain(&self) -> impl Iterator<Item = AssignmentRow> {
        let alone = AssignmentRow { taken_over: None, ..self.clone() };
        self.taken_over.as_deref().cloned().into_iter().chain([alone])
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransitionRow {
    pub instance_id: InstanceId,
    pub sequence_number: u64,
    pub transition_id: TransitionId,
    pub from_state: String,
    pub action: String,
    pub to_state: String,
    pub fired_at: Time,
    pub actor_ref: String,
    pub guard_satisfied: bool,
    /// The step or chain whose approval it consumed.
    pub gate_id: Option<Uuid>,
    pub gate_is_chain: bool,
    pub event_id: EventId,
}

/// A stored record. The columns beside the bytes repeat the header, to search by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordRow {
    pub event_id: EventId,
    pub instance_id: InstanceId,
    pub sequence: u64,
    pub action_ref: String,
    pub actor_ref: String,
    pub recorded_at: Time,
    /// From when on it may be purged; nothing where it never may, and once it has been.
    pub purgeable_from: Option<Time>,
    pub record: Record,
}

/// A legal hold on a record. It is released, never deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldRow {
    pub hold_id: HoldId,
    pub record_ref: EventId,
    pub instance_id: InstanceId,
    pub placed_at: Time,
    pub placed_by: String,
    pub reason: String,
    pub case_ref: Option<String>,
    pub released: Option<HoldRelease>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldRelease {
    pub at: Time,
    pub by: String,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyRow {
    pub actor_ref: String,
    pub key: String,
    /// Where the command left its records: a purge of them takes the answer along.
    pub instance_id: InstanceId,
    pub request_digest: Digest,
    /// The accepted answer, without secrets.
    pub answer: String,
    pub expires_at: Time,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    Document {
        digest: Digest,
        bytes: Vec<u8>,
    },
    Process(ProcessRow),
    Gate(GateRow),
    Step(StepRow),
    Assignment(AssignmentRow),
    Transition(TransitionRow),
    Actor {
        actor: Actor,
        registered_by: String,
        registry_sequence: u64,
    },
    Credential {
        credential: Credential,
        issued_at: Time,
        issued_by: String,
        registry_sequence: u64,
    },
    Key {
        actor_ref: String,
        key: ActorKey,
        registered_at: Time,
        registered_by: String,
        registry_sequence: u64,
    },
    Grant {
        grant_id: GrantId,
        subject_ref: String,
        action_scope: String,
        granted_at: Time,
        granted_by: String,
        registry_sequence: u64,
    },
    Definition {
        definition: Box<Definition>,
        declaration_digest: Digest,
        gate_spec_digest: Digest,
        /// Who approves the next version: JSON text.
        publish: Option<String>,
        registry_sequence: u64,
    },
    Delegation {
        delegation: Delegation,
        made_at: Time,
        registry_sequence: u64,
    },
    DefinitionMark {
        marked: Marked,
        marked_at: Time,
        marked_by: String,
        registry_sequence: u64,
    },
    WorkerClassMark {
        marked: ClassMarked,
        marked_at: Time,
        marked_by: String,
        registry_sequence: u64,
    },
    Configuration {
        configuration: Configuration,
        recorded_at: Time,
        recorded_by: String,
        registry_sequence: u64,
    },

    Hold(HoldRow),
    Run(RunRow),
    /// The first one of a run.
    NewRunHead(RunHeadRow),
    RunEvent(RunEventRow),
    Correction(CorrectionRow),
    /// The record that tells why an attempt at a step failed.
    StepError {
        instance_id: InstanceId,
        step_seq: u32,
        event_id: EventId,
    },
    Outbox(OutboxRow),
    /// What an event for this server itself has from the start; those to webhooks are made later.
    Delivery {
        outbox_id: Uuid,
        sink: &'static str,
    },
    Governance(GovernanceWrite),

    RunHead(RunHeadRow),
    TakeRunEvent {
        instance_id: InstanceId,
        event_id: Arc<str>,
    },
    SupersedeGate {
        gate_id: Uuid,
    },
    SpendGate {
        gate_id: Uuid,
        fate: Fate,
    },
    EndChain {
        gate_id: Uuid,
        state: ChainState,
        at: Time,
    },
    EndStep {
        step_id: StepId,
        state: ApprovalState,
        end: StepEnd,
    },
    /// By when it is to be decided, as its definition says. Of one that the same batch adds.
    AssignmentDue {
        assignment_id: AssignmentId,
        due_at: Time,
    },
    EndAssignment {
        assignment_id: AssignmentId,
        /// Whose in-tray it leaves. Not stored again.
        assignee_ref: String,
        status: AssignmentStatus,
        at: Time,
    },
    RevokeCredential {
        credential: Credential,
        revoked_at: Time,
        revoked_by: String,
        registry_sequence: u64,
    },
    RevokeKey {
        key_id: String,
        reason: Option<String>,
        revoked_at: Time,
        revoked_by: String,
        registry_sequence: u64,
    },
    RevokeDelegation {
        delegation_id: DelegationId,
        revoked_at: Time,
        registry_sequence: u64,
    },
    RevokeGrant {
        grant_id: GrantId,
        revoked_at: Time,
        revoked_by: String,
        registry_sequence: u64,
    },
    ReleaseHold {
        hold_id: HoldId,
        release: HoldRelease,
    },

    /// Destroys the content of a record.
    PurgeRecord {
        event_id: EventId,
    },
    /// These put a text in the place of what a purged record said; see [`crate::purge`].
    RedactSubject {
        instance_id: InstanceId,
        text: String,
    },
    RedactStepSubject {
        step_id: StepId,
        text: String,
    },
    RedactStepReason {
        step_id: StepId,
        text: String,
    },
    RedactHold {
        hold_id: HoldId,
        text: String,
    },
    RedactRelease {
        hold_id: HoldId,
        text: String,
    },
    /// Subject and input of a run.
    RedactRunInput {
        instance_id: InstanceId,
        text: String,
    },
    /// The keys that were made of its input, in the row of the run and in that of its head.
    RedactRunKeys {
        instance_id: InstanceId,
        text: String,
    },
    RedactRunHeadKeys {
        instance_id: InstanceId,
        text: String,
    },
    /// What one of its steps yielded, failed with, or was woken by.
    RedactRunStep {
        instance_id: InstanceId,
        step_seq: u32,
        what: StepText,
        text: String,
    },
    /// What the run as a whole yielded, or failed with.
    RedactStepRequest {
        step_id: StepId,
        text: String,
    },
    RedactRunHead {
        instance_id: InstanceId,
        what: HeadText,
        text: String,
    },
    /// What a record that is purged said of the ways of steps, without its content.
    Visits {
        instance_id: InstanceId,
        event_id: EventId,
        visits: String,
    },
    /// What a step had yielded before it was reopened.
    RedactCorrection {
        instance_id: InstanceId,
        prior_event_id: EventId,
        text: String,
    },
    /// The data of an event that it received.
    RedactRunEvent {
        instance_id: InstanceId,
        event_id: String,
        text: String,
    },
    /// The data of the events that its command of that time sent.
    RedactOutbox {
        instance_id: InstanceId,
        created_at: Time,
        text: String,
    },
    /// Forgets the answers that this instance's command of that time gave under idempotency keys.
    ForgetKeys {
        instance_id: InstanceId,
        expires_at: Time,
    },
    /// A key that stands is another instance's from now on, or kept until another time.
    PassKey {
        actor_ref: String,
        key: String,
        instance_id: InstanceId,
        expires_at: Time,
    },
}
