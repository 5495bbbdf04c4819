//! The gated process: it moves only through declared transitions, and a guarded transition fires only
//! on the genuine approval of the person or quorum its gate names.
//!
//! [`decide`] answers a command with events; [`Process::evolve`] applies them. One event is one ledger
//! record. A file per command; [`moot`] and [`quorum`] hold the two rules that several of them share.

mod built_in;
mod decide_gate;
mod evolve;
mod fire_transition;
mod moot;
mod open_gate;
mod place_hold;
mod proposal;
mod purge_record;
mod quorum;
mod record_export;
mod release_hold;
mod replay;
mod start_workflow;
mod substitute;

pub use moot::moot_gates;
pub use open_gate::open as open_any_gate;
pub use proposal::{
    APPROVE, Attachment, MoveProposal, PROPOSAL, PUBLISH, PUBLISHED_KINDS, ProposalAct, ProposalOf, ProposerClass,
    REVIEW, STATES as PROPOSAL_STATES, TERMINAL as PROPOSAL_TERMINAL, TRANSITIONS as PROPOSAL_TRANSITIONS, is_proposal,
    merge as merge_proposal, proposal_declaration,
};
pub use quorum::{Counts, evaluate as evaluate_quorum};
pub use replay::{
    REPLAY, REPLAY_GUARD, ReplayState, RequestReplay, STATES as REPLAY_STATES, TERMINAL as REPLAY_TERMINAL,
    TRANSITIONS as REPLAY_TRANSITIONS, admit_replay, is_replay, replay_declaration, request_replay,
};

use crate::declaration::{Declaration, Effect};
use crate::gate_spec::{GateSpec, QuorumRule};
use crate::id::{AssignmentId, ChainId, DelegationId, EventId, HoldId, IdSource, InstanceId, StepId, TransitionId};
use crate::machine::{ChainState, StepState};
use crate::refusal::{Code, Refusal, require_ref};
use crate::registry::Registry;
use crate::retention::{PlaceHold, PurgeRecord, RecordFacts, ReleaseHold};
use crate::{Digest, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What must be known of a process to decide about it. Its past lives in the store: this holds the
/// current state and the gates that can still matter, so it does not grow with the history.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    pub instance_id: InstanceId,
    pub definition: Option<DefinitionRef>,
    pub subject_ref: String,
    pub initiator_ref: String,
    pub declaration: Arc<Declaration>,
    pub gate_spec: Arc<GateSpec>,
    pub started_at: Time,
    pub current_state: String,
    /// The sequence number that the next transition will bear: 1 for the first.
    pub next_sequence_number: u64,
    /// The current binding of each (from_state, action), and superseded chains with undecided steps.
    pub gates: Vec<Gate>,
    /// The legal holds on its records that have not been released, and the record that each holds.
    pub holds: BTreeMap<HoldId, EventId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DefinitionRef {
    pub name: String,
    pub version: u32,
}

/// A guarded transition bound to its approval: one step, or a chain of steps under a quorum rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gate {
    pub from_state: String,
    pub action: String,
    pub guard: String,
    pub scope: String,
    pub opened_at: Time,
    pub kind: GateKind,
    /// One step for a single gate; one per approver, in declaration order, for a quorum.
    pub steps: Vec<Step>,
    /// What the approver is shown and decides on.
    pub request: Option<Request>,
    pub fate: Fate,
    /// False once a newer gate was opened for the same transition.
    pub current: bool,
}

/// What a decision is bound to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// A JSON object, as it is recorded.
    pub text: Arc<str>,
    /// Of that text.
    pub digest: Digest,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum GateKind {
    Single,
    Quorum { chain_id: ChainId, rule: QuorumRule, state: ChainState },
}

/// An approval is good for one firing. Leaving the state without it makes it moot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    Unspent,
    Consumed,
    Mooted,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    pub step_id: StepId,
    pub approver_ref: String,
    pub submitted_at: Time,
    pub state: StepState,
    /// The entry in the approver's in-tray, while it is Active.
    pub assignment: Option<AssignmentId>,
    /// Who approved or rejected it, when and why.
    pub decided: Option<Decided>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Decided {
    pub by: String,
    pub at: Time,
    pub reason: Option<String>,
}

/// A gate is named by its step, or by its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GateRef {
    Step(StepId),
    Chain(ChainId),
}

impl GateRef {
    pub const fn id(self) -> uuid::Uuid {
        match self {
            GateRef::Step(StepId(id)) | GateRef::Chain(ChainId(id)) => id,
        }
    }

    pub fn step_id(self) -> Option<StepId> {
        match self {
            GateRef::Step(step_id) => Some(step_id),
            GateRef::Chain(_) => None,
        }
    }

    pub fn chain_id(self) -> Option<ChainId> {
        match self {
            GateRef::Step(_) => None,
            GateRef::Chain(chain_id) => Some(chain_id),
        }
    }
}

/// Where a gate stands, whatever its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateStatus {
    Pending,
    Approved,
    Rejected,
    Withdrawn,
}

impl Gate {
    pub fn gate_ref(&self) -> GateRef {
        match (&self.kind, self.steps.first()) {
            (GateKind::Quorum { chain_id, .. }, _) => GateRef::Chain(*chain_id),
            (GateKind::Single, Some(step)) => GateRef::Step(step.step_id),
            (GateKind::Single, None) => GateRef::Step(StepId(uuid::Uuid::nil())),
        }
    }

    pub fn status(&self) -> GateStatus {
        let of_chain = |state| match state {
            ChainState::Pending => GateStatus::Pending,
            ChainState::Approved => GateStatus::Approved,
            ChainState::Rejected => GateStatus::Rejected,
            ChainState::Withdrawn => GateStatus::Withdrawn,
        };
        let of_step = |state| match state {
            StepState::Pending => GateStatus::Pending,
            StepState::Approved => GateStatus::Approved,
            StepState::Rejected => GateStatus::Rejected,
            StepState::Withdrawn => GateStatus::Withdrawn,
        };
        match &self.kind {
            GateKind::Quorum { state, .. } => of_chain(*state),
            GateKind::Single => self.steps.first().map_or(GateStatus::Withdrawn, |step| of_step(step.state)),
        }
    }

    pub fn digest(&self) -> Option<Digest> {
        self.request.as_ref().map(|request| request.digest)
    }

    /// The one condition under which its transition may fire.
    pub fn is_cleared(&self) -> bool {
        self.current && self.fate == Fate::Unspent && self.status() == GateStatus::Approved
    }

    pub fn pending_steps(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|step| step.state == StepState::Pending)
    }
}

impl Process {
    /// The current binding of a transition out of `from_state`.
    pub fn gate(&self, from_state: &str, action: &str) -> Option<&Gate> {
        self.gates.iter().find(|gate| gate.current && gate.from_state == from_state && gate.action == action)
    }

    pub fn is_terminal(&self) -> bool {
        self.declaration.is_terminal(&self.current_state)
    }

    fn definition_name(&self) -> Option<&str> {
        self.definition.as_ref().map(|definition| definition.name.as_str())
    }
}

/// What an action is decided with besides the process: who asks, when, and what the registry says.
pub struct Context<'a> {
    pub actor_ref: &'a str,
    pub now: Time,
    pub registry: &'a Registry,
    pub application_actor_ref: &'a str,
    pub ids: IdSource,
}

#[derive(Clone, Debug)]
pub enum Command {
    StartWorkflow(StartWorkflow),
    OpenGate(OpenGate),
    DecideGate(DecideGate),
    FireTransition(FireTransition),
    Propose(Box<ProposalOf>),
    MoveProposal(MoveProposal),
    PlaceHold(PlaceHold),
    ReleaseHold(ReleaseHold),
    PurgeRecord(PurgeRecord),
    /// Somebody takes the evidence of this process away: the record says who and up to where.
    RecordExport,
    RecordRefusedAttempt(RecordRefusedAttempt),
}

impl Command {
    pub const fn name(&self) -> &'static str {
        match self {
            Command::StartWorkflow(_) => "start_workflow",
            Command::OpenGate(_) => "open_gate",
            Command::DecideGate(_) => "decide_gate",
            Command::FireTransition(_) => "fire_transition",
            Command::Propose(_) => "propose",
            Command::MoveProposal(command) => command.name(),
            Command::PlaceHold(_) => "place_hold",
            Command::ReleaseHold(_) => "release_hold",
            Command::PurgeRecord(_) => "purge_record",
            Command::RecordExport => "export_evidence",
            Command::RecordRefusedAttempt(_) => "record_refused_attempt",
        }
    }
}

#[derive(Clone, Debug)]
pub struct StartWorkflow {
    pub source: Source,
    pub subject_ref: String,
    /// The whole gate_spec for an inline declaration; for a definition, what it leaves to the start.
    pub gate_spec: GateSpec,
    pub reason: Option<String>,
}

#[derive(Clone, Debug)]
pub enum Source {
    Inline(Arc<Declaration>),
    Definition { name: String, version: Option<u32> },
}

#[derive(Clone, Debug)]
pub struct OpenGate {
    pub action: String,
    pub reason: Option<String>,
    /// What the approver is to decide on, where whoever opens the gate says it.
    pub request: Option<Request>,
}

#[derive(Clone, Debug)]
pub struct DecideGate {
    pub action: String,
    pub decision: Decision,
    pub reason: Option<String>,
    pub step: Option<StepChoice>,
    /// The request that the approver saw.
    pub request_digest: Option<Digest>,
}

/// A step that the caller named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepChoice {
    Id(StepId),
    /// It once was a step of this transition and has ended; only the store remembers it.
    Ended,
    /// No step of this transition bears that id.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    Approve,
    Reject,
    Withdraw,
}

impl Decision {
    pub const ALL: &'static [Decision] = &[Decision::Approve, Decision::Reject, Decision::Withdraw];

    pub const fn as_str(self) -> &'static str {
        match self {
            Decision::Approve => "approve",
            Decision::Reject => "reject",
            Decision::Withdraw => "withdraw",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|decision| decision.as_str() == text)
    }
}

#[derive(Clone, Debug)]
pub struct FireTransition {
    pub action: String,
    pub reason: Option<String>,
}

/// Where failed attempts are audited: somebody was refused for want of authority.
#[derive(Clone, Debug)]
pub struct RecordRefusedAttempt {
    pub attempted: String,
    pub code: Code,
    pub detail: String,
}

/// What happened: one event, one record of the process's chain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    pub actor_ref: String,
    pub at: Time,
    pub body: EventBody,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EventBody {
    WorkflowStarted {
        instance_id: InstanceId,
        definition: Option<DefinitionRef>,
        subject_ref: String,
        declaration: Arc<Declaration>,
        gate_spec: Arc<GateSpec>,
        /// The labels whose approvers are not those of the definition.
        replaced: Vec<String>,
        reason: Option<String>,
        /// What is proposed.
        attachment: Option<Attachment>,
    },
    ChainInitiated {
        gate: Gate,
        supersedes: Option<GateRef>,
    },
    GateOpened {
        gate: Gate,
        supersedes: Option<GateRef>,
        reason: Option<String>,
    },
    /// `settled` is empty where a chain event of the same command carries the effect.
    GateDecided {
        action: String,
        step_id: Option<StepId>,
        chain_id: Option<ChainId>,
        decision: Decision,
        reason: Option<String>,
        settled: Option<Settled>,
        /// That of its gate.
        request_digest: Option<Digest>,
        on_behalf: Option<OnBehalf>,
    },
    StepDecided {
        action: String,
        chain_id: ChainId,
        decision: Decision,
        decided_by: String,
        reason: Option<String>,
        /// The chain had its outcome already; this decision is kept and changes nothing else.
        trailing: bool,
        settled: Settled,
        on_behalf: Option<OnBehalf>,
    },
    /// The record of a step that its chain's end withdrew: what it says has happened with that end.
    StepWithdrawnWithChain {
        action: String,
        chain_id: ChainId,
        step_id: StepId,
        decided_by: String,
        reason: String,
    },
    ChainResolved {
        action: String,
        chain_id: ChainId,
        outcome: ChainState,
        /// Undecided steps whose in-tray entries are recalled.
        recalled: Vec<Settled>,
    },
    ChainWithdrawn {
        action: String,
        chain_id: ChainId,
        reason: String,
        recalled: Vec<Settled>,
    },
    TransitionFired {
        transition_id: TransitionId,
        sequence_number: u64,
        from_state: String,
        action: String,
        to_state: String,
        gate: Option<GateRef>,
        reason: Option<String>,
        /// As they are declared: their expressions are worked out with the record.
        effects: Vec<Effect>,
        attachment: Option<Attachment>,
    },
    MootGateRecalled {
        moot_action: String,
        from_state: String,
        gate: GateRef,
        kind: MootKind,
        /// The pending step of a single gate, withdrawn with it.
        settled: Option<Settled>,
    },
    HoldPlaced {
        hold_id: HoldId,
        record_ref: EventId,
        reason: String,
        case_ref: Option<String>,
    },
    HoldReleased {
        hold_id: HoldId,
        record_ref: EventId,
        reason: String,
    },
    /// The content of this record is gone; what is said about it here stays.
    RecordPurged {
        record: RecordFacts,
    },
    EvidenceExported,
    AttemptRefused {
        attempted: String,
        code: Code,
        detail: String,
    },
}

/// A step that leaves Pending, or an undecided one whose in-tray entry is recalled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Settled {
    pub step_id: StepId,
    /// Its Active assignment, which ends with it.
    pub assignment: Option<AssignmentId>,
    pub approver_ref: String,
}

/// A substitute decided in an approver's place: the entry in the in-tray became theirs with the decision.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OnBehalf {
    /// The approver.
    pub of: String,
    pub delegation_id: DelegationId,
    /// The substitute's own.
    pub assignment_id: AssignmentId,
}

impl Settled {
    fn of(step: &Step) -> Self {
        Settled { step_id: step.step_id, assignment: step.assignment, approver_ref: step.approver_ref.clone() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MootKind {
    PendingWithdrawn,
    ApprovedUnconsumed,
}

impl MootKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            MootKind::PendingWithdrawn => "pending-withdrawn",
            MootKind::ApprovedUnconsumed => "approved-unconsumed",
        }
    }
}

/// Why a moot step was withdrawn, on the step itself and in its record.
pub const MOOT_WITHDRAWAL_REASON: &str =
    "Gate moot: workflow left the gate's from_state by firing a different transition";
pub const MOOT_RECORD_REASON: &str = "Gate moot: workflow advanced past from_state";
/// Why the undecided rest of a chain was withdrawn with it.
pub const QUORUM_WITHDRAWAL_REASON: &str = "Chain withdrawn: its quorum can no longer be reached";
/// Why the undecided rest of a resolved chain was withdrawn.
pub const LEFT_WITHDRAWAL_REASON: &str = "Chain resolved: workflow left the gate's from_state";

/// Decides a command on a process, or on no process yet. Checks go from shape over permission and
/// existence to state, so that a caller learns nothing about what it may not see.
pub fn decide(process: Option<&Process>, command: &Command, ctx: &mut Context<'_>) -> Result<Vec<Event>, Refusal> {
    require_ref("actor_ref", ctx.actor_ref)?;
    match command {
        Command::StartWorkflow(command) => start_workflow::decide(command, ctx),
        Command::OpenGate(command) => open_gate::decide(process, command, ctx),
        Command::DecideGate(command) => decide_gate::decide(process, command, ctx),
        Command::FireTransition(command) => fire_transition::decide(process, command, ctx),
        Command::Propose(command) => proposal::propose(command, ctx),
        Command::MoveProposal(command) => proposal::decide(process, command, ctx),
        Command::PlaceHold(command) => place_hold::decide(process, command, ctx),
        Command::ReleaseHold(command) => release_hold::decide(process, command, ctx),
        Command::PurgeRecord(command) => purge_record::decide(process, command, ctx),
        Command::RecordExport => record_export::decide(process, ctx),
        Command::RecordRefusedAttempt(command) => Ok(vec![ctx.by_caller(EventBody::AttemptRefused {
            attempted: command.attempted.clone(),
            code: command.code,
            detail: command.detail.clone(),
        })]),
    }
}

impl Context<'_> {
    fn by_caller(&self, body: EventBody) -> Event {
        Event { actor_ref: self.actor_ref.to_owned(), at: self.now, body }
    }

    fn by_application(&self, body: EventBody) -> Event {
        Event { actor_ref: self.application_actor_ref.to_owned(), at: self.now, body }
    }

    /// The general scope, or the finer one of the definition the process came from.
    pub(crate) fn require_scope(&self, scope: &str, definition: Option<&str>) -> Result<(), Refusal> {
        if self.registry.permitted_on(self.actor_ref, scope, definition) {
            return Ok(());
        }
        Err(crate::registry::denied(self.actor_ref, scope))
    }

    /// Permission comes before existence: somebody who may nothing learns nothing about what exists.
    fn known<'p>(&self, process: Option<&'p Process>, scope: &str) -> Result<&'p Process, Refusal> {
        self.require_scope(scope, process.and_then(Process::definition_name))?;
        process.ok_or_else(not_known)
    }
}

fn not_known() -> Refusal {
    Refusal::new(Code::NotKnown, "there is no process with this instance_id").at("instance_id")
}
