//! What is asked of the engine, and what it answers when it accepts.

use countersign_kernel::plan::Micros;
use countersign_kernel::process::{Decision, Event, EventBody, Gate, GateKind, RequestReplay};
use countersign_kernel::refusal::Refusal;
use countersign_kernel::registry::PublishDefinition;
use countersign_kernel::{Digest, EventId, InstanceId, process, registry, run};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Something an actor asks for. The actor has been authenticated.
#[derive(Clone, Debug)]
pub struct Call {
    pub actor_ref: String,
    pub proof: Proof,
    pub command: Command,
    pub idempotency: Option<IdempotencyKey>,
}

/// How the actor is known. It was checked at the door; the committer checks again that it still stands when the
/// call is decided.
#[derive(Clone, Debug, Default)]
pub enum Proof {
    /// A caller inside this process.
    #[default]
    InProcess,
    /// A bearer token, or the passkey that began a session, by the name it has in evidence.
    Token {
        credential_id: String,
    },
    Signed(Arc<SignedRequest>),
}

impl Proof {
    pub fn is_signed(&self) -> bool {
        matches!(self, Proof::Signed(_))
    }
}

/// A request whose signature and body were verified.
#[derive(Debug)]
pub struct SignedRequest {
    pub key_id: String,
    /// The attestation that every record of this call carries.
    pub attestation: Vec<u8>,
    /// It was signed with a passkey.
    pub by_passkey: bool,
    /// The instance must still stand here.
    pub expected_sequence: Option<u64>,
}

#[derive(Clone, Debug)]
pub enum Command {
    Process {
        target: Target,
        command: process::Command,
    },
    Run {
        target: Target,
        command: run::Command,
    },
    /// A worker asks for steps of a queue, whichever runs they belong to.
    Claim(ClaimCall),
    Registry(registry::Command),
    Governance(Governance),
    /// An approved proposal takes effect.
    Merge(Box<MergeCall>),
    /// A dead letter is to be tried again, if its approvers agree.
    RequestReplay(Box<RequestReplay>),
    /// Nothing is to change.
    Ask {
        target: Target,
        ask: Ask,
    },
}

/// A command on the governance chain.
#[derive(Clone, Debug)]
pub enum Governance {
    /// Makes problems of what commits have signalled, a page at a time.
    Weigh,
}

/// What is asked about an instance.
#[derive(Clone, Debug)]
pub enum Ask {
    /// What the caller may do to a process, to a run, to one step.
    Process,
    Run,
    Step {
        step: String,
        /// What closed it, which only the store knows.
        prior: Option<Box<run::Prior>>,
    },
    /// What this command on the run would come to.
    Preview(Box<run::Command>),
    /// What the step works on.
    Input {
        step: String,
    },
}

#[derive(Clone, Debug)]
pub struct ClaimCall {
    pub queue: Arc<str>,
    pub worker_id: Arc<str>,
    pub max: usize,
    pub lease: Micros,
}

#[derive(Clone, Debug)]
pub struct MergeCall {
    pub proposal: InstanceId,
    /// The document that was read to be the approved one.
    pub publish: Option<PublishDefinition>,
    /// What whoever applied it says of that, for a kind that publishes nothing.
    pub evidence_ref: Option<String>,
    pub reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    New,
    Existing(InstanceId),
    /// An id that we never gave out: it is decided like any other, and names nothing.
    Nowhere,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    pub key: String,
    /// Digest of the whole request, so that the same key cannot stand for another.
    pub request_digest: Digest,
}

impl Command {
    pub fn name(&self) -> &'static str {
        match self {
            Command::Process { command, .. } => command.name(),
            Command::Run { command, .. } => command.name(),
            Command::Claim(_) => "claim",
            Command::Ask { .. } => "ask",
            Command::Governance(Governance::Weigh) => "weigh_signals",
            Command::Merge(_) => "merge_proposal",
            Command::RequestReplay(_) => "request_replay",
            Command::Registry(command) => match command {
                registry::Command::Bootstrap(_) => "bootstrap",
                registry::Command::RegisterActor(_) => "register_actor",
                registry::Command::RegisterKey(_) => "register_key",
                registry::Command::RevokeKey(_) => "revoke_key",
                registry::Command::RotateKey(_) => "rotate_key",
                registry::Command::IssueCredential(_) => "issue_credential",
                registry::Command::RevokeCredential(_) => "revoke_credential",
                registry::Command::GrantScope(_) => "grant",
                registry::Command::RevokeGrant(_) => "revoke",
                registry::Command::MakeDelegation(_) => "make_delegation",
                registry::Command::RevokeDelegation(_) => "revoke_delegation",
                registry::Command::PublishDefinition(_) => "publish_definition",
                registry::Command::MarkDefinition(command) => command.mark.command(),
                registry::Command::MarkWorkerClass(command) => command.mark.command(),
                registry::Command::RecordConfiguration(_) => "record_configuration",
                registry::Command::PlaceHold(_) => "place_hold",
                registry::Command::ReleaseHold(_) => "release_hold",
                registry::Command::RecordExport(_) => "export_evidence",
                registry::Command::RecordRefusedAttempt(_) => "record_refused_attempt",
            },
        }
    }
}

/// An accepted answer. It is kept under an idempotency key, so it holds no secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    Started {
        instance_id: String,
    },
    GateOpened {
        step_id: String,
        assignment_id: String,
    },
    ChainOpened {
        chain_id: String,
        steps: Vec<OpenedStep>,
    },
    Decided {
        outcome: String,
        chain_state: Option<String>,
        /// The record of the decision; nothing in an answer that an older version kept.
        #[serde(default)]
        event_id: Option<String>,
    },
    Fired {
        new_state: String,
        transition_id: String,
        sequence_number: u64,
        event_id: String,
    },
    ActorRegistered {
        actor_ref: String,
    },
    KeyRegistered {
        key_id: String,
    },
    CredentialIssued {
        credential_id: String,
    },
    Granted {
        grant_id: String,
    },
    Revoked,
    DelegationMade {
        delegation_id: String,
    },
    /// `created` is false where the same document was published before.
    Published {
        name: String,
        version: u32,
        digest: String,
        created: bool,
    },
    /// The version that was published, where one was. `created` is false where it was merged before.
    Merged {
        name: Option<String>,
        version: Option<u32>,
        digest: Option<String>,
        created: bool,
    },
    /// The request, and the gate that its approvers decide on.
    ReplayRequested {
        request_id: String,
        step_id: Option<String>,
        chain_id: Option<String>,
        approvers: Vec<String>,
    },
    HoldPlaced {
        hold_id: String,
    },
    HoldReleased,
    /// `event_id` is the record that says so.
    Purged {
        event_id: String,
    },
    /// The `evidence_exported` record, which is the last one of what is exported.
    Exported {
        event_id: String,
        sequence: u64,
    },
    RunStarted {
        run_id: String,
    },
    Claimed {
        tasks: Vec<Task>,
    },
    /// What became of a task: its step, its run, and the task that its worker goes on with.
    TaskDone {
        state_code: String,
        run_state: String,
        next: Option<Task>,
    },
    EventReceived {
        duplicate: bool,
        woken: Vec<String>,
        /// It woke a step, or the run keeps it for its next wait.
        #[serde(default)]
        reached: bool,
    },
    RunMoved {
        state: String,
    },
    /// What became of the step that somebody acted on, and of its run.
    StepActed {
        state_code: String,
        /// What lies over it, in a machine of one's own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        derived_state: Option<String>,
        state: String,
        transition_id: Option<String>,
        /// JSON text: what whoever claimed the step works on.
        #[serde(default)]
        input: Option<Arc<str>>,
    },
    /// What would have become of it.
    Previewed {
        ok: bool,
        transition_id: Option<String>,
        emitted_event_type: Option<String>,
        problems: Vec<Problem>,
        /// Of a cancellation: what it does to the steps that completed.
        #[serde(default)]
        undoes: Vec<String>,
        #[serde(default)]
        leaves: Vec<String>,
    },
    /// What the caller may do, and why not.
    Offers {
        offers: Vec<Offered>,
    },
    /// JSON text.
    StepInput {
        input: Option<String>,
    },
    /// The clock has looked; these steps wait for child runs, and this one of another run should wait for this run.
    Looked {
        children: Vec<(u32, String)>,
        parent: Option<(u32, String)>,
        /// A runbook that was stopped: these children stop with it.
        stands_still: bool,
    },
    /// How many signals were weighed, and what became of them.
    Weighed {
        signals: u64,
        opened: u64,
        resolved: u64,
    },
    Done,
}

/// Why something would be refused: the guard, or the code where none is named, and what it says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    pub guard: String,
    pub message: String,
}

impl Problem {
    pub fn all(refusal: &Refusal) -> Vec<Problem> {
        let problem = |(guard, message): (&str, &str)| Problem { guard: guard.to_owned(), message: message.to_owned() };
        refusal.problems().map(problem).collect()
    }
}

/// Something that could be asked for, and what would become of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offered {
    pub action: String,
    pub command: String,
    pub transition_id: Option<String>,
    pub to_state: String,
    /// Everything that refuses it.
    pub problems: Vec<Problem>,
    pub needs: Vec<String>,
    pub gate: Option<String>,
    /// The approval that it would spend.
    #[serde(default)]
    pub approval_id: Option<String>,
}

/// A step under a lease, as a worker is given it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    pub run_id: String,
    pub step: Arc<str>,
    pub step_seq: u32,
    pub attempt: u32,
    pub max_attempts: u32,
    /// How often the step was reopened.
    #[serde(default)]
    pub cycle: u32,
    pub task_type: String,
    /// JSON text.
    pub input: Arc<str>,
    pub event: Option<Arc<str>>,
    pub lease_token: String,
    pub locked_until_us: i64,
    /// For the engine's own executors; may hold secrets and leaves this process for nowhere.
    #[serde(skip)]
    pub job: Option<Box<run::Job>>,
    /// Of a survey, in the same way.
    #[serde(skip)]
    pub probes: Vec<run::Probe>,
}

impl Task {
    pub fn task_id(&self) -> String {
        format!("{}.{}", self.run_id, self.step_seq)
    }

    /// The same for every attempt at the step; a correction has one of its own.
    pub fn idempotency_key(&self) -> String {
        run::idempotency_key(&self.task_id(), self.cycle)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenedStep {
    pub step_id: String,
    pub assignment_id: String,
    pub approver_ref: String,
}

/// The answer that these events of one command amount to; `ids` are their records, the first of which bears this sequence.
pub fn of_process(events: &[Event], ids: &[EventId], first: u64) -> Outcome {
    for ((event, event_id), sequence) in events.iter().zip(ids).zip(first..) {
        match &event.body {
            EventBody::WorkflowStarted { instance_id, .. } => {
                return Outcome::Started { instance_id: instance_id.to_string() };
            }
            EventBody::GateOpened { gate, .. } => return opened(gate),
            EventBody::TransitionFired { transition_id, sequence_number, to_state, .. } => {
                return Outcome::Fired {
                    new_state: to_state.clone(),
                    transition_id: transition_id.to_string(),
                    sequence_number: *sequence_number,
                    event_id: event_id.to_string(),
                };
            }
            EventBody::GateDecided { decision, chain_id, .. } => {
                return Outcome::Decided {
                    outcome: match decision {
                        Decision::Approve => "approved",
                        Decision::Reject => "rejected_outcome",
                        Decision::Withdraw => "withdrawn",
                    }
                    .to_owned(),
                    // Filled in by the caller, who knows the chain afterwards.
                    chain_state: chain_id.map(|id| id.to_string()),
                    event_id: Some(event_id.to_string()),
                };
            }
            EventBody::HoldPlaced { hold_id, .. } => return Outcome::HoldPlaced { hold_id: hold_id.to_string() },
            EventBody::HoldReleased { .. } => return Outcome::HoldReleased,
            EventBody::RecordPurged { .. } => return Outcome::Purged { event_id: event_id.to_string() },
            EventBody::EvidenceExported => {
                return Outcome::Exported { event_id: event_id.to_string(), sequence };
            }
            EventBody::ChainInitiated { .. }
            | EventBody::StepDecided { .. }
            | EventBody::ChainResolved { .. }
            | EventBody::StepWithdrawnWithChain { .. }
            | EventBody::ChainWithdrawn { .. }
            | EventBody::MootGateRecalled { .. }
            | EventBody::AttemptRefused { .. } => {}
        }
    }
    Outcome::Done
}

fn opened(gate: &Gate) -> Outcome {
    let text = |id: Option<countersign_kernel::AssignmentId>| id.map(|id| id.to_string()).unwrap_or_default();
    match (&gate.kind, gate.steps.first()) {
        (GateKind::Single, Some(step)) => {
            Outcome::GateOpened { step_id: step.step_id.to_string(), assignment_id: text(step.assignment) }
        }
        (GateKind::Quorum { chain_id, .. }, _) => Outcome::ChainOpened {
            chain_id: chain_id.to_string(),
            steps: gate
                .steps
                .iter()
                .map(|step| OpenedStep {
                    step_id: step.step_id.to_string(),
                    assignment_id: text(step.assignment),
                    approver_ref: step.approver_ref.clone(),
                })
                .collect(),
        },
        (GateKind::Single, None) => Outcome::Done,
    }
}
