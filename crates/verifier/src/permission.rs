//! Permission at the time (`spec/record.md`, 5.5): each record's actor held the scope it needs at `registry_seq`.

use crate::finding::{Claim, Code, Findings};
use crate::record::{Action, Assurance, Header, Record};
use crate::registry::Registry;

/// The definition that a process came from, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin<'a> {
    Definition(&'a str),
    None,
    /// The record that says so was purged.
    Purged,
}

/// What a chain of records is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Process,
    Run,
    /// A run that is a step of another one.
    Child,
    Proposal,
    /// A request to replay a dead letter.
    Replay,
}

/// The scope a record needs, and whether the finer scope of a definition does as well.
fn needed(action: Action) -> Option<(&'static str, bool)> {
    Some(match action {
        Action::WorkflowStarted => ("workflows:start", true),
        Action::GateOpened | Action::ChainInitiated => ("workflows:open-gate", true),
        Action::TransitionFired => ("workflows:fire", true),
        Action::RunStarted => ("runs:start", true),
        Action::StepsClaimed
        | Action::StepCompleted
        | Action::StepWaiting
        | Action::StepRetried
        | Action::StepFailed
        | Action::StepClaimed
        | Action::StepReleased
        | Action::StepBlocked
        | Action::StepCannotComplete
        | Action::StepReengaged
        | Action::StepYielded
        | Action::PinsCaptured
        | Action::PinsSurveyed
        | Action::ChildStarted => ("tasks:work", true),
        // Which scope it takes, its class says.
        Action::StepTransitioned => ("tasks:work", true),
        Action::StepEscalated => ("governance:act", true),
        Action::RunCancelled
        | Action::RunPaused
        | Action::RunResumed
        | Action::RunStopped
        | Action::RunVoided
        | Action::StepUnblocked
        | Action::EffectDeclared
        | Action::StepRetryOrdered
        | Action::BlockEscalated
        | Action::StepReopened
        | Action::DeadlineExtended => ("runs:control", true),
        Action::EvidenceExported => ("audit:read", false),
        Action::HoldPlaced | Action::HoldReleased => ("audit:hold", false),
        Action::RecordPurged => ("audit:purge", false),
        Action::ActorRegistered
        | Action::CredentialIssued
        | Action::CredentialRevoked
        | Action::KeyRegistered
        | Action::KeyRevoked => ("actors:manage", false),
        Action::GrantMade | Action::GrantRevoked => ("permissions:manage", false),
        Action::DefinitionPublished | Action::DefinitionRetired => ("definitions:publish", false),
        Action::SchedulePaused | Action::ScheduleResumed => ("runs:control", true),
        Action::WorkerClassFrozen | Action::WorkerClassThawed => ("governance:act", false),
        Action::RunDispatched
        | Action::ChildWaiting
        | Action::ChildResumed
        | Action::ChildEnded
        | Action::EventReceived
        | Action::TimePassed
        | Action::CompensationsListed
        | Action::GateFollowed
        | Action::GateDecided
        | Action::MootGateRecalled
        | Action::StepApproved
        | Action::StepRejected
        | Action::StepWithdrawn
        | Action::ChainResolved
        | Action::ChainWithdrawn
        | Action::AttemptRefused
        // Every approver names their own substitutes.
        | Action::DelegationMade
        | Action::DelegationRevoked
        // Only the engine writes them, which the chain's own check looks at.
        | Action::ConditionObserved
        | Action::DlqReplayRequested
        | Action::DlqReplayCompleted
        | Action::ProblemOpened
        | Action::ProblemResolved
        | Action::ConfigurationRecorded => return None,
    })
}

pub fn check(record: &Record, origin: Origin<'_>, kind: Kind, registry: &Registry, findings: &mut Findings) {
    let header = &record.header;
    let engine = registry.is_application_actor(&header.actor_ref, header.registry_seq);
    let is_run = matches!(kind, Kind::Run | Kind::Child);
    let needed = match header.action {
        // The engine follows the gate of its approval.
        Action::TransitionFired if matches!(kind, Kind::Proposal | Kind::Replay) && engine => None,
        Action::WorkflowStarted | Action::GateOpened | Action::ChainInitiated if kind == Kind::Replay => {
            Some(("governance:act", false))
        }
        // As a request for that was approved.
        Action::StepRetryOrdered
            if engine && record.payload().is_some_and(|payload| payload.get("replay").is_some()) =>
        {
            None
        }
        Action::WorkflowStarted | Action::GateOpened | Action::ChainInitiated | Action::TransitionFired
            if kind == Kind::Proposal =>
        {
            Some(("proposals:write", false))
        }
        // Gates of a run open and are passed by themselves, but for those that an operator opens.
        Action::GateOpened | Action::ChainInitiated if is_run => (!engine).then_some(("runs:control", true)),
        Action::TransitionFired if is_run => None,
        Action::StepTransitioned => match class_scope(record) {
            Some(scope) => Some((scope, true)),
            None => return findings.unverifiable(Claim::Permission),
        },
        // It starts children and what a schedule asks for, and carries out shell, http and child steps itself.
        Action::RunStarted
        | Action::StepsClaimed
        | Action::StepCompleted
        | Action::StepWaiting
        | Action::StepRetried
        | Action::StepFailed
        | Action::StepYielded
        | Action::PinsCaptured
        | Action::PinsSurveyed
        | Action::ChildStarted
            if engine =>
        {
            None
        }
        // Where the step has ended without it, or the run of the step was stopped.
        Action::RunCancelled | Action::RunStopped if engine && kind == Kind::Child => None,
        action => needed(action),
    };
    let Some((scope, by_definition)) = needed else { return };
    if needs_none(record, registry) {
        return;
    }
    findings.checked(Claim::Permission);
    let (actor, at) = (&header.actor_ref, header.registry_seq);
    let scopes = [Some(scope), instead(header.action)];
    if scopes.iter().flatten().any(|scope| registry.holds_scope(actor, scope, at)) {
        return;
    }
    let finer =
        |name: &str| scopes.iter().flatten().any(|scope| registry.holds_scope(actor, &format!("{scope}:{name}"), at));
    let origin = match header.action {
        Action::SchedulePaused | Action::ScheduleResumed => {
            record.payload().and_then(|payload| payload.text("name")).map_or(Origin::None, Origin::Definition)
        }
        _ => origin,
    };
    match origin {
        Origin::Definition(name) if by_definition && finer(name) => {}
        Origin::Purged if by_definition => findings.unverifiable(Claim::Permission),
        _ => {
            let detail = format!("`{actor}` did not hold `{scope}` at registry record {at}");
            findings.find(Code::PermissionNotHeld, header, detail);
        }
    }
}

/// What whoever makes a transition of one's own must hold: by the class they make it as.
fn class_scope(record: &Record) -> Option<&'static str> {
    Some(match record.payload()?.get("own_transition").and_then(|own| own.text("actor_class")) {
        Some("reviewer") => "runs:control",
        Some("escalation_handler") => "governance:act",
        _ => "tasks:work",
    })
}

/// Another scope that does as well: of a person in charge, of whoever acts for governance.
const fn instead(action: Action) -> Option<&'static str> {
    match action {
        Action::StepUnblocked => Some("tasks:work"),
        Action::BlockEscalated => Some("governance:act"),
        _ => None,
    }
}

/// The command that set the registry up, the engine's own keys, and one's own keys with an earlier own key.
fn needs_none(record: &Record, registry: &Registry) -> bool {
    let header = &record.header;
    if registry.is_bootstrap(header) {
        return true;
    }
    let whose = record.payload().and_then(|payload| payload.text("actor_ref"));
    let Some(whose) = whose else { return false };
    match header.action {
        Action::KeyRegistered => {
            engines_own(header, whose, registry) || own(header, whose) || first_passkey(record, whose, registry)
        }
        Action::KeyRevoked => engines_own(header, whose, registry) || own(header, whose),
        _ => false,
    }
}

fn own(header: &Header, whose: &str) -> bool {
    header.assurance != Assurance::ServerAttested && whose == &*header.actor_ref
}

/// A passkey may be the first key of an actor who has none: then there is nothing to sign with.
fn first_passkey(record: &Record, whose: &str, registry: &Registry) -> bool {
    let header = &record.header;
    let is_passkey = record.payload().is_some_and(|payload| payload.given("passkey").is_some());
    is_passkey && whose == &*header.actor_ref && !registry.has_key(whose, header.registry_seq)
}

fn engines_own(header: &Header, whose: &str, registry: &Registry) -> bool {
    let at = header.registry_seq;
    registry.is_application_actor(&header.actor_ref, at)
        && (registry.is_application_actor(whose, at) || registry.server_actor(at) == Some(whose))
}
