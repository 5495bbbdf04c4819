//! Which commands are acts of their sender, and whether such an act has to be signed. One table: a command that is new
//! has to answer here.

use crate::outcome::{Call, Command, Governance};
use countersign_kernel::offer::Asked;
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::{self, Registry};
use countersign_kernel::{process, run};

/// Something that leaves a record in its sender's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// What is decided on a gate: signed on a regulated server since there are any.
    Decision,
    Other,
}

impl Command {
    /// `None`: it reads, or leaves no record of its own.
    pub fn act(&self) -> Option<Act> {
        match self {
            Command::Process { command, .. } => of_process(command),
            Command::Run { command, .. } => of_run(command),
            Command::Claim(_) => Some(Act::Other),
            Command::Registry(command) => of_registry(command),
            Command::Merge(_) | Command::RequestReplay(_) => Some(Act::Other),
            Command::Ask { .. } | Command::Governance(Governance::Weigh) => None,
        }
    }
}

const fn of_process(command: &process::Command) -> Option<Act> {
    match command {
        process::Command::DecideGate(_) => Some(Act::Decision),
        process::Command::StartWorkflow(_)
        | process::Command::OpenGate(_)
        | process::Command::FireTransition(_)
        | process::Command::Propose(_)
        | process::Command::MoveProposal(_)
        | process::Command::PlaceHold(_)
        | process::Command::ReleaseHold(_)
        | process::Command::PurgeRecord(_) => Some(Act::Other),
        // Taking evidence away is a read that is recorded; of a refused attempt the engine keeps a record.
        process::Command::RecordExport | process::Command::RecordRefusedAttempt(_) => None,
    }
}

const fn of_run(command: &run::Command) -> Option<Act> {
    match command {
        run::Command::DecideGate(_) => Some(Act::Decision),
        run::Command::Act(act) => match act.preview {
            true => None,
            false => Some(Act::Other),
        },
        run::Command::Start(_)
        | run::Command::Dispatch { .. }
        | run::Command::Claim(_)
        | run::Command::Complete { .. }
        | run::Command::Survey { .. }
        | run::Command::Wait { .. }
        | run::Command::Retry { .. }
        | run::Command::Dead { .. }
        | run::Command::CannotComplete { .. }
        | run::Command::Block { .. }
        | run::Command::ChildStarted { .. }
        | run::Command::ChildEnded { .. }
        | run::Command::Receive { .. }
        | run::Command::Due { .. }
        | run::Command::OpenGate(_)
        | run::Command::Cancel { .. }
        | run::Command::Pause { .. }
        | run::Command::Resume { .. }
        | run::Command::Stop { .. }
        | run::Command::Void { .. }
        | run::Command::DeclareEffect { .. } => Some(Act::Other),
        // They leave no record: a lease is prolonged, a child's colour is seen.
        run::Command::Heartbeat { .. } | run::Command::ChildColoured { .. } => None,
    }
}

const fn of_registry(command: &registry::Command) -> Option<Act> {
    match command {
        registry::Command::Bootstrap(_)
        | registry::Command::RegisterActor(_)
        | registry::Command::RegisterKey(_)
        | registry::Command::RevokeKey(_)
        | registry::Command::RotateKey(_)
        | registry::Command::IssueCredential(_)
        | registry::Command::RevokeCredential(_)
        | registry::Command::GrantScope(_)
        | registry::Command::RevokeGrant(_)
        | registry::Command::MakeDelegation(_)
        | registry::Command::RevokeDelegation(_)
        | registry::Command::PublishDefinition(_)
        | registry::Command::MarkDefinition(_)
        | registry::Command::MarkWorkerClass(_)
        | registry::Command::RecordConfiguration(_)
        | registry::Command::PlaceHold(_)
        | registry::Command::ReleaseHold(_) => Some(Act::Other),
        registry::Command::RecordExport(_) | registry::Command::RecordRefusedAttempt(_) => None,
    }
}

/// Refuses an act that the recorded configuration wants signed, and that is not. Both verifiers judge by the same record.
pub(super) fn require_signature(call: &Call, registry: &Registry) -> Result<(), Refusal> {
    let Some(act) = call.command.act().filter(|_| !call.proof.is_signed()) else { return Ok(()) };
    if !is_signed_by(&call.actor_ref, act, registry) || enrols(call, registry) {
        return Ok(());
    }
    let detail = format!(
        "this server is regulated: `{}` is signed (Countersign-Statement with Countersign-Signature or \
         Countersign-Assertion); a token or session alone does not do. Who has no key yet registers one first",
        call.command.name()
    );
    Err(Refusal::new(Code::InvalidCredential, detail).at("Countersign-Statement"))
}

/// Whether this actor has to sign such an act.
fn is_signed_by(actor_ref: &str, act: Act, registry: &Registry) -> bool {
    let regulated = registry.configuration().is_some_and(|configuration| configuration.regulated);
    let decides = act == Act::Decision && regulated && !registry.is_engine_actor(actor_ref);
    decides || registry.must_sign(actor_ref)
}

/// Whether this actor has to sign what is offered.
pub(super) fn is_offer_signed(actor_ref: &str, asked: &Asked, registry: &Registry) -> bool {
    let act = match asked {
        Asked::Process(command) => of_process(command),
        Asked::Run(command) => of_run(command),
    };
    act.is_some_and(|act| is_signed_by(actor_ref, act, registry))
}

/// An actor without a key registers the first one unsigned: nothing could sign for it.
fn enrols(call: &Call, registry: &Registry) -> bool {
    let Command::Registry(registry::Command::RegisterKey(command)) = &call.command else { return false };
    let keys = registry.keys().of(&call.actor_ref);
    command.actor_ref == call.actor_ref && !keys.iter().any(registry::KnownKey::is_active)
}
