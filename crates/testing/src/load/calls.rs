//! Calls in one line each.

use super::Design;
use crate::place::ADMIN;
use countersign_engine::{Call, Command, IdempotencyKey, Proof, Target};
use countersign_kernel::process::{
    self, DecideGate, Decision, FireTransition, OpenGate, Source, StartWorkflow, StepChoice,
};
use countersign_kernel::registry::{self, GrantScope, PublishDefinition, RevokeGrant, scopes};
use countersign_kernel::{GateSpec, GrantId, InstanceId, StepId};
use countersign_ledger::sha256;

/// The scopes that move a process.
pub const DOING: [&str; 3] = [scopes::WORKFLOWS_START, scopes::WORKFLOWS_OPEN_GATE, scopes::WORKFLOWS_FIRE];

pub fn by(actor_ref: &str, command: Command) -> Call {
    Call { actor_ref: actor_ref.to_owned(), proof: Proof::InProcess, command, idempotency: None }
}

fn on(actor_ref: &str, target: Target, command: process::Command) -> Call {
    by(actor_ref, Command::Process { target, command })
}

/// From the declaration itself.
pub fn start(actor_ref: &str, design: &Design, subject_ref: &str, reason: Option<&str>) -> Call {
    let source = Source::Inline(design.declaration.clone());
    let gate_spec = GateSpec::clone(&design.gate_spec);
    start_from(actor_ref, source, gate_spec, subject_ref, reason)
}

/// From the definition that [`publish`] published.
pub fn start_published(actor_ref: &str, design: &Design, subject_ref: &str, reason: Option<&str>) -> Call {
    let source = Source::Definition { name: design.name.clone(), version: None };
    start_from(actor_ref, source, GateSpec::default(), subject_ref, reason)
}

fn start_from(actor_ref: &str, source: Source, gate_spec: GateSpec, subject_ref: &str, reason: Option<&str>) -> Call {
    let reason = reason.map(str::to_owned);
    let start = StartWorkflow { source, subject_ref: subject_ref.to_owned(), gate_spec, reason };
    on(actor_ref, Target::New, process::Command::StartWorkflow(start))
}

pub fn open(actor_ref: &str, target: impl Into<At>, action: &str, reason: Option<&str>) -> Call {
    let command = OpenGate { action: action.to_owned(), reason: reason.map(str::to_owned), request: None };
    on(actor_ref, target.into().0, process::Command::OpenGate(command))
}

pub fn fire(actor_ref: &str, target: impl Into<At>, action: &str, reason: Option<&str>) -> Call {
    let command = FireTransition { action: action.to_owned(), reason: reason.map(str::to_owned) };
    on(actor_ref, target.into().0, process::Command::FireTransition(command))
}

pub fn decide(
    actor_ref: &str,
    target: impl Into<At>,
    action: &str,
    decision: Decision,
    reason: Option<&str>,
    step: Option<StepChoice>,
) -> Call {
    let (action, reason) = (action.to_owned(), reason.map(str::to_owned));
    let command = DecideGate { action, decision, reason, step, request_digest: None };
    on(actor_ref, target.into().0, process::Command::DecideGate(command))
}

/// The caller's own step, approved.
pub fn approve(actor_ref: &str, target: impl Into<At>, action: &str) -> Call {
    decide(actor_ref, target, action, Decision::Approve, Some("seen and approved"), None)
}

pub fn step(step_id: StepId) -> Option<StepChoice> {
    Some(StepChoice::Id(step_id))
}

pub fn grant(subject_ref: &str, scope: &str) -> Call {
    let command = GrantScope { subject_ref: subject_ref.to_owned(), action_scope: scope.to_owned() };
    by(ADMIN, Command::Registry(registry::Command::GrantScope(command)))
}

pub fn revoke(grant_id: Option<GrantId>) -> Call {
    by(ADMIN, Command::Registry(registry::Command::RevokeGrant(RevokeGrant { grant_id })))
}

pub fn publish(design: &Design) -> Call {
    let command = PublishDefinition {
        name: design.name.clone(),
        digest: sha256(&[design.name.as_bytes()]),
        source: design.name.as_str().into(),
        declaration: design.declaration.clone(),
        gate_spec: std::sync::Arc::new(GateSpec::clone(&design.gate_spec).into()),
        workflow: None,
        machine: None,
        retention: None,
        publish: None,
        merged: None,
    };
    by(ADMIN, Command::Registry(registry::Command::PublishDefinition(command)))
}

/// Under an idempotency key for this request.
pub fn with_key(call: Call, key: &str) -> Call {
    let request_digest = sha256(&[format!("{:?}", call.command).as_bytes()]);
    Call { idempotency: Some(IdempotencyKey { key: key.to_owned(), request_digest }), ..call }
}

/// Where a call goes: an instance, or nowhere.
pub struct At(pub Target);

impl From<InstanceId> for At {
    fn from(instance_id: InstanceId) -> Self {
        At(Target::Existing(instance_id))
    }
}

impl From<Option<InstanceId>> for At {
    fn from(instance_id: Option<InstanceId>) -> Self {
        At(instance_id.map_or(Target::Nowhere, Target::Existing))
    }
}
