//! What a record says: the payload of each event, as `spec/record.md` section 4 lists them.

use crate::passkey;
use crate::run::payload::is_told_in_full;
use countersign_kernel::process::{
    self, Attachment, Decision, EventBody, Gate, GateKind, GateRef, MOOT_RECORD_REASON, OnBehalf, Request, Settled,
};
use countersign_kernel::registry::{self, Merged, Signatures, credential_id};
use countersign_kernel::retention::{self, RecordFacts};
use countersign_kernel::{Digest, EventId, HoldId, InstanceId, PublishedGate, StepId, Time};
use countersign_ledger::Unwritable;
use countersign_ledger::document::published_gate_document;
use serde_json::{Map, Value};

/// A payload under construction: members in the order they are given.
struct Payload(Map<String, Value>);

impl Payload {
    fn new() -> Self {
        Payload(Map::new())
    }

    fn of(instance_id: InstanceId) -> Self {
        Payload::new().id("instance_id", instance_id)
    }

    fn set(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    fn id(self, name: &str, value: impl std::fmt::Display) -> Self {
        self.set(name, value.to_string())
    }

    fn optional(self, name: &str, value: Option<impl Into<Value>>) -> Self {
        match value {
            None => self,
            Some(value) => self.set(name, value),
        }
    }

    /// JSON text under its own name.
    fn attached(self, attachment: Option<&Attachment>) -> Self {
        match attachment {
            None => self,
            Some(Attachment { member, text, .. }) => self.set(member, json_of(text)),
        }
    }

    fn gate(self, gate: GateRef) -> Self {
        match gate {
            GateRef::Step(step_id) => self.id("step_id", step_id),
            GateRef::Chain(chain_id) => self.id("chain_id", chain_id),
        }
    }

    /// For whom a substitute decided, and what let them.
    fn on_behalf(self, on_behalf: Option<&OnBehalf>) -> Self {
        match on_behalf {
            None => self,
            Some(OnBehalf { of, delegation_id, assignment_id }) => self
                .set("on_behalf_of", of.as_str())
                .id("delegation_id", delegation_id)
                .id("assignment_id", assignment_id),
        }
    }

    /// A `Value` has one text and no other outcome: there is no failure whose place empty bytes could take.
    fn bytes(self) -> Vec<u8> {
        Value::Object(self.0).to_string().into_bytes()
    }

    /// With what the approver is asked, byte for byte, as its last members; what is too large, by its digest.
    fn with_request(self, request: Option<&Request>) -> Vec<u8> {
        let mut bytes = self.bytes();
        if let Some(Request { text, digest }) = request {
            bytes.pop();
            if is_told_in_full(text) {
                bytes.extend_from_slice(format!(",\"request\":{text},\"request_digest\":\"{digest}\"}}").as_bytes());
            } else {
                let members = format!(",\"request_digest\":\"{digest}\",\"request_bytes\":{}}}", text.len());
                bytes.extend_from_slice(members.as_bytes());
            }
        }
        bytes
    }
}

/// Which edition of the rules of `spec/record.md` an instance begins under.
pub const RULES: u32 = 4;

/// Digests that the payload of a start names.
pub struct Digests {
    pub declaration: Digest,
    pub gate_spec: Digest,
    /// Of a workflow: its normalised document.
    pub document: Option<Digest>,
    /// Who approves the next version of a definition: JSON text.
    pub publish: Option<String>,
}

/// Who approves the next version, as JSON.
pub fn publish_text(gate: Option<&PublishedGate>) -> Result<Option<String>, Unwritable> {
    let document = gate.map(published_gate_document).transpose()?;
    Ok(document.map(|document| String::from_utf8_lossy(&document.bytes).into_owned()))
}

pub fn process_action(body: &EventBody) -> &'static str {
    match body {
        EventBody::WorkflowStarted { .. } => "workflow_started",
        EventBody::ChainInitiated { .. } => "chain_initiated",
        EventBody::GateOpened { .. } => "gate_opened",
        EventBody::GateDecided { .. } => "gate_decided",
        EventBody::StepWithdrawnWithChain { .. } => "step_withdrawn",
        EventBody::StepDecided { decision, .. } => match decision {
            Decision::Approve => "step_approved",
            Decision::Reject => "step_rejected",
            Decision::Withdraw => "step_withdrawn",
        },
        EventBody::ChainResolved { .. } => "chain_resolved",
        EventBody::ChainWithdrawn { .. } => "chain_withdrawn",
        EventBody::TransitionFired { .. } => "transition_fired",
        EventBody::MootGateRecalled { .. } => "moot_gate_recalled",
        EventBody::HoldPlaced { .. } => "hold_placed",
        EventBody::HoldReleased { .. } => "hold_released",
        EventBody::RecordPurged { .. } => retention::DESTRUCTION,
        EventBody::EvidenceExported => "evidence_exported",
        EventBody::AttemptRefused { .. } => "attempt_refused",
    }
}

/// `subject_ref` and `initiator_ref` are the process's own; `digests` is given for a start; `sequence` is that of the
/// record to be.
pub fn process_payload(
    instance_id: InstanceId,
    sequence: u64,
    subject_ref: &str,
    initiator_ref: &str,
    event: &process::Event,
    digests: Option<&Digests>,
) -> Vec<u8> {
    let payload = Payload::of(instance_id);
    match &event.body {
        EventBody::WorkflowStarted { definition, subject_ref, declaration, replaced, reason, attachment, .. } => {
            payload
                .set("subject_ref", subject_ref.as_str())
                .set("initial_state", declaration.initial_state.as_str())
                .optional("definition", definition.as_ref().map(|d| format!("{}@{}", d.name, d.version)))
                .optional("declaration_digest", digests.map(|d| d.declaration.to_string()))
                .optional("gate_spec_digest", digests.map(|d| d.gate_spec.to_string()))
                .set("gate_spec_labels", declaration.guard_labels())
                .optional("replaced", (!replaced.is_empty()).then(|| replaced.clone()))
                .set("rules", RULES)
                .optional("reason", reason.as_deref())
                .attached(attachment.as_ref())
        }
        EventBody::ChainInitiated { gate, .. } => chain_initiated(payload, gate, subject_ref, initiator_ref),
        EventBody::GateOpened { gate, supersedes, reason } => {
            return gate_opened(payload, gate, initiator_ref)
                .optional("supersedes", supersedes.map(gate_ref_text))
                .optional("reason", reason.as_deref())
                .with_request(gate.request.as_ref());
        }
        EventBody::GateDecided { action, step_id, chain_id, decision, reason, request_digest, on_behalf, .. } => {
            payload
                .set("action", action.as_str())
                .optional("step_id", step_id.map(|id| id.to_string()))
                .optional("chain_id", chain_id.map(|id| id.to_string()))
                .set("decision", decision.as_str())
                .optional("reason", reason.as_deref())
                .optional("request_digest", request_digest.map(|digest| digest.to_string()))
                .on_behalf(on_behalf.as_ref())
        }
        EventBody::StepDecided { action, chain_id, decided_by, reason, trailing, settled, on_behalf, .. } => payload
            .id("chain_id", chain_id)
            .id("step_id", settled.step_id)
            .set("action", action.as_str())
            .set("decided_by", decided_by.as_str())
            .optional("reason", reason.as_deref())
            .set("trailing", *trailing)
            .on_behalf(on_behalf.as_ref()),
        EventBody::StepWithdrawnWithChain { action, chain_id, step_id, decided_by, reason } => payload
            .id("chain_id", chain_id)
            .id("step_id", step_id)
            .set("action", action.as_str())
            .set("decided_by", decided_by.as_str())
            .set("reason", reason.as_str())
            .set("trailing", true),
        EventBody::ChainResolved { action, chain_id, outcome, recalled } => payload
            .id("chain_id", chain_id)
            .set("action", action.as_str())
            .set("outcome", outcome.as_str())
            .set("recalled_step_ids", step_ids(recalled)),
        EventBody::ChainWithdrawn { action, chain_id, reason, recalled } => payload
            .id("chain_id", chain_id)
            .set("action", action.as_str())
            .set("reason", reason.as_str())
            .set("recalled_step_ids", step_ids(recalled)),
        EventBody::TransitionFired {
            transition_id,
            sequence_number,
            from_state,
            action,
            to_state,
            gate,
            reason,
            attachment,
            ..
        } => {
            let payload = payload
                .set("action", action.as_str())
                .set("from_state", from_state.as_str())
                .set("new_state", to_state.as_str())
                .id("transition_id", transition_id)
                .set("sequence_number", *sequence_number)
                .set("guarded", gate.is_some());
            match gate {
                None => payload,
                Some(gate) => payload.gate(*gate),
            }
            .optional("reason", reason.as_deref())
            .attached(attachment.as_ref())
        }
        EventBody::MootGateRecalled { moot_action, from_state, gate, kind, .. } => payload
            .set("moot_action", moot_action.as_str())
            .set("from_state", from_state.as_str())
            .gate(*gate)
            .set("moot_kind", kind.as_str())
            .set("reason", MOOT_RECORD_REASON),
        EventBody::HoldPlaced { hold_id, record_ref, reason, case_ref } => {
            hold(*hold_id, *record_ref, instance_id, reason).optional("case_ref", case_ref.as_deref())
        }
        EventBody::HoldReleased { hold_id, record_ref, reason } => hold(*hold_id, *record_ref, instance_id, reason),
        EventBody::RecordPurged { record } => purged(record),
        EventBody::EvidenceExported => payload.set("through_sequence", sequence.saturating_sub(1)),
        EventBody::AttemptRefused { attempted, code, detail } => {
            payload.set("attempted", attempted.as_str()).set("code", code.as_str()).set("detail", detail.as_str())
        }
    }
    .bytes()
}

/// Text that was written as JSON.
fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

fn merged(Merged { proposal, approval }: Merged) -> Value {
    Value::Object(Payload::of(proposal).gate(approval).0)
}

fn hold(hold_id: HoldId, record_ref: EventId, instance_id: InstanceId, reason: &str) -> Payload {
    Payload::new()
        .id("hold_id", hold_id)
        .id("record_ref", record_ref)
        .id("instance_id", instance_id)
        .set("reason", reason)
}

fn purged(record: &RecordFacts) -> Payload {
    Payload::new()
        .id("event_id", record.event_id)
        .id("instance_id", record.instance_id)
        .set("sequence", record.sequence)
        .set("action_ref", record.action_ref.as_str())
        .set("actor_ref", record.actor_ref.as_str())
        .id("record_hash", record.record_hash)
        .id("attestation_digest", record.attestation_digest)
        .set("policy_ref", record.policy_ref.as_str())
        .set("retention_until_us", record.retention_until.map(|time| time.0))
}

fn gate_ref_text(gate: GateRef) -> String {
    match gate {
        GateRef::Step(id) => id.to_string(),
        GateRef::Chain(id) => id.to_string(),
    }
}

fn step_ids(settled: &[Settled]) -> Vec<String> {
    settled.iter().map(|settled| settled.step_id.to_string()).collect()
}

fn steps(gate: &Gate) -> Vec<Value> {
    let one = |step_id: StepId, assignment: Option<String>, approver_ref: &str| {
        let mut members = Map::new();
        members.insert("step_id".into(), step_id.to_string().into());
        members.insert("assignment_id".into(), assignment.into());
        members.insert("approver_ref".into(), approver_ref.into());
        Value::Object(members)
    };
    gate.steps.iter().map(|s| one(s.step_id, s.assignment.map(|id| id.to_string()), &s.approver_ref)).collect()
}

fn gate_opened(payload: Payload, gate: &Gate, submitter_ref: &str) -> Payload {
    let payload = payload
        .set("action", gate.action.as_str())
        .set("from_state", gate.from_state.as_str())
        .set("guard", gate.guard.as_str());
    let payload = match (&gate.kind, gate.steps.first()) {
        (GateKind::Single, Some(step)) => payload
            .id("step_id", step.step_id)
            .optional("assignment_id", step.assignment.map(|id| id.to_string()))
            .set("approver_ref", step.approver_ref.as_str()),
        (GateKind::Quorum { chain_id, .. }, _) => payload.id("chain_id", chain_id).set("steps", steps(gate)),
        (GateKind::Single, None) => payload,
    };
    payload.set("scope", gate.scope.as_str()).set("submitter_ref", submitter_ref)
}

fn chain_initiated(payload: Payload, gate: &Gate, subject_ref: &str, initiator_ref: &str) -> Payload {
    let GateKind::Quorum { chain_id, rule, .. } = &gate.kind else { return payload };
    let approvers: Vec<&str> = gate.steps.iter().map(|step| step.approver_ref.as_str()).collect();
    payload
        .id("chain_id", chain_id)
        .set("action", gate.action.as_str())
        .set("subject_ref", format!("{subject_ref}:{}", gate.action))
        .set("scope", gate.scope.as_str())
        .set("initiator_ref", initiator_ref)
        .set("approver_set", approvers)
        .set("quorum_rule", rule.as_str())
        .optional("m", rule.m())
        .set("steps", steps(gate))
}

pub fn registry_action(body: &registry::EventBody) -> &'static str {
    match body {
        registry::EventBody::ActorRegistered { .. } => "actor_registered",
        registry::EventBody::KeyRegistered { .. } => "key_registered",
        registry::EventBody::KeyRevoked { .. } => "key_revoked",
        registry::EventBody::CredentialIssued(_) => "credential_issued",
        registry::EventBody::CredentialRevoked(_) => "credential_revoked",
        registry::EventBody::GrantMade { .. } => "grant_made",
        registry::EventBody::GrantRevoked { .. } => "grant_revoked",
        registry::EventBody::DelegationMade(_) => "delegation_made",
        registry::EventBody::DelegationRevoked { .. } => "delegation_revoked",
        registry::EventBody::DefinitionPublished(_) => "definition_published",
        registry::EventBody::DefinitionMarked(marked) => marked.mark.action(),
        registry::EventBody::WorkerClassMarked(marked) => marked.mark.action(),
        registry::EventBody::ConfigurationRecorded(_) => "configuration_recorded",
        registry::EventBody::HoldPlaced { .. } => "hold_placed",
        registry::EventBody::HoldReleased { .. } => "hold_released",
        registry::EventBody::EvidenceExported(_) => "evidence_exported",
        registry::EventBody::AttemptRefused { .. } => "attempt_refused",
    }
}

pub fn registry_payload(event: &registry::Event, digests: Option<&Digests>) -> Vec<u8> {
    let payload = Payload::new();
    match &event.body {
        registry::EventBody::ActorRegistered { actor, credential } => payload
            .set("actor_ref", actor.actor_ref.as_str())
            .set("kind", actor.kind.as_str())
            .optional("display_name", actor.display_name.as_deref())
            .optional("public_key", actor.key.as_ref().map(|key| key.public_key.as_str()))
            .optional("key_id", actor.key.as_ref().map(|key| key.key_id.as_str()))
            .optional("credential_id", credential.as_ref().map(|c| credential_id(&c.token_hash))),
        registry::EventBody::KeyRegistered { actor_ref, key } => payload
            .set("actor_ref", actor_ref.as_str())
            .set("key_id", key.key_id.as_str())
            .set("public_key", key.public_key.as_str())
            .optional("passkey", key.passkey.as_ref().map(passkey::to_json)),
        registry::EventBody::KeyRevoked { actor_ref, key_id, reason } => payload
            .set("actor_ref", actor_ref.as_str())
            .set("key_id", key_id.as_str())
            .optional("reason", reason.as_deref()),
        registry::EventBody::CredentialIssued(credential) | registry::EventBody::CredentialRevoked(credential) => {
            payload
                .set("actor_ref", credential.actor_ref.as_str())
                .set("credential_id", credential_id(&credential.token_hash))
        }
        registry::EventBody::GrantMade { grant_id, subject_ref, action_scope }
        | registry::EventBody::GrantRevoked { grant_id, subject_ref, action_scope } => payload
            .id("grant_id", grant_id)
            .set("subject_ref", subject_ref.as_str())
            .set("action_scope", action_scope.as_str()),
        registry::EventBody::DelegationMade(delegation) => payload
            .id("delegation_id", delegation.delegation_id)
            .set("delegator_ref", delegation.delegator_ref.as_str())
            .set("delegate_ref", delegation.delegate_ref.as_str())
            .set("scope", delegation.scope.as_str())
            .set("from_us", delegation.from.0)
            .set("until_us", delegation.until.0)
            .optional("reason", delegation.reason.as_deref()),
        registry::EventBody::DelegationRevoked { delegation_id, delegator_ref, delegate_ref, scope } => payload
            .id("delegation_id", delegation_id)
            .set("delegator_ref", delegator_ref.as_str())
            .set("delegate_ref", delegate_ref.as_str())
            .set("scope", scope.as_str()),
        registry::EventBody::DefinitionPublished(definition) => payload
            .set("name", definition.name.as_str())
            .set("version", definition.version)
            .id("digest", definition.digest)
            .optional("declaration_digest", digests.map(|d| d.declaration.to_string()))
            .optional("gate_spec_digest", digests.map(|d| d.gate_spec.to_string()))
            .optional("document_digest", digests.and_then(|d| d.document).map(|digest| digest.to_string()))
            .optional("retention", definition.retention.as_deref())
            .optional("publish", digests.and_then(|d| d.publish.as_deref()).map(json_of))
            .optional("proposal", definition.merged.map(merged)),
        registry::EventBody::DefinitionMarked(marked) => payload
            .set("name", marked.name.as_str())
            .set("version", marked.version)
            .optional("reason", marked.reason.as_deref()),
        registry::EventBody::WorkerClassMarked(marked) => {
            payload.set("worker_class", marked.worker_class.as_str()).set("reason", marked.reason.as_str())
        }
        registry::EventBody::ConfigurationRecorded(configuration) => payload
            .set("audit_trail_retention_policy", configuration.audit_trail_retention_policy.clone())
            .set("regulated", configuration.regulated)
            .optional("signatures", configuration.signatures.map(Signatures::as_str))
            .set("application_actor_ref", configuration.application_actor_ref.as_str())
            .set("server_actor_ref", configuration.server_actor_ref.as_str()),
        registry::EventBody::HoldPlaced { hold_id, record_ref, reason, case_ref } => {
            hold(*hold_id, *record_ref, InstanceId::REGISTRY, reason).optional("case_ref", case_ref.as_deref())
        }
        registry::EventBody::HoldReleased { hold_id, record_ref, reason } => {
            hold(*hold_id, *record_ref, InstanceId::REGISTRY, reason)
        }
        registry::EventBody::EvidenceExported(export) => payload
            .set("after_us", export.after.map(|Time(us)| us))
            .set("before_us", export.before.map(|Time(us)| us))
            .set("instances", export.instances)
            .id("heads_digest", export.heads_digest),
        registry::EventBody::AttemptRefused { attempted, code, detail } => {
            payload.set("attempted", attempted.as_str()).set("code", code.as_str()).set("detail", detail.as_str())
        }
    }
    .bytes()
}
