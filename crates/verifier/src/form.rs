//! The members that payloads and rows have, and of what kind (`spec/record.md`, section 4; `spec/bundle.md`, section 2).

use crate::bytes::Digest;
use crate::json::{Fault, FaultKind, Value};
use crate::record::{Action, Header, require_text};

#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Text,
    Int,
    Bool,
    Hex,
    Texts,
    /// The steps of a quorum: id, assignment and approver of each.
    Steps,
    List,
    OneOf(&'static [&'static str]),
    Any,
}

#[derive(Clone, Copy, Debug)]
enum Need {
    Must,
    OrNull,
    /// Absent or null.
    Maybe,
}

#[derive(Clone, Copy, Debug)]
pub struct Member {
    pub name: &'static str,
    kind: Kind,
    need: Need,
}

pub type Form = &'static [Member];

pub const fn must(name: &'static str, kind: Kind) -> Member {
    Member { name, kind, need: Need::Must }
}

pub const fn or_null(name: &'static str, kind: Kind) -> Member {
    Member { name, kind, need: Need::OrNull }
}

pub const fn maybe(name: &'static str, kind: Kind) -> Member {
    Member { name, kind, need: Need::Maybe }
}

const fn text(name: &'static str) -> Member {
    must(name, Kind::Text)
}

impl Kind {
    fn fits(self, value: &Value) -> bool {
        match self {
            Kind::Text => value.as_text().is_some(),
            Kind::Int => value.as_int().is_some(),
            Kind::Bool => value.as_bool().is_some(),
            Kind::Hex => value.as_text().is_some_and(|text| Digest::parse(text).is_some()),
            Kind::Texts => value.as_list().is_some_and(|list| list.iter().all(|item| item.as_text().is_some())),
            Kind::Steps => value.as_list().is_some_and(|list| list.iter().all(is_step)),
            Kind::List => value.as_list().is_some(),
            Kind::OneOf(texts) => value.as_text().is_some_and(|text| texts.contains(&text)),
            Kind::Any => *value != Value::Null,
        }
    }
}

fn is_step(value: &Value) -> bool {
    ["step_id", "assignment_id", "approver_ref"].iter().all(|name| require_text(value, name).is_ok())
}

/// Has every member of the form, each of its kind. Others may stand beside them.
pub fn check(value: &Value, form: Form) -> Result<(), Fault> {
    let fault = |detail: String| Err(Fault { kind: FaultKind::Syntax, detail });
    if value.members().is_none() {
        return fault(format!("{} where an object should be", value.kind()));
    }
    for member in form {
        let name = member.name;
        match (value.get(name), member.need) {
            (None, Need::Maybe) | (Some(Value::Null), Need::Maybe | Need::OrNull) => {}
            (None, _) => return fault(format!("the member `{name}` is missing")),
            (Some(found), _) if member.kind.fits(found) => {}
            (Some(found), _) => return fault(format!("`{name}` is {}, which it cannot be", found.kind())),
        }
    }
    Ok(())
}

/// The same, and nothing beside them.
pub fn check_exactly(value: &Value, form: Form) -> Result<(), Fault> {
    check(value, form)?;
    let known = |name: &str| form.iter().any(|member| member.name == name);
    match value.members().unwrap_or_default().iter().find(|(name, _)| !known(name)) {
        None => Ok(()),
        Some((name, _)) => {
            let detail = format!("the member `{}` is unknown", crate::json::shortened(name));
            Err(Fault { kind: FaultKind::Syntax, detail })
        }
    }
}

const CREDENTIAL: Form = &[text("actor_ref"), text("credential_id")];
const GRANT: Form = &[text("grant_id"), text("subject_ref"), text("action_scope")];
const STEP: Form = &[
    text("instance_id"),
    text("chain_id"),
    text("step_id"),
    text("action"),
    text("decided_by"),
    maybe("reason", Kind::Text),
    must("trailing", Kind::Bool),
    maybe("on_behalf_of", Kind::Text),
    maybe("delegation_id", Kind::Text),
    maybe("assignment_id", Kind::Text),
];

/// What the payload of a record says, at least.
pub fn payload(header: &Header) -> Form {
    match header.action {
        Action::WorkflowStarted => {
            const {
                &[
                    text("instance_id"),
                    text("subject_ref"),
                    text("initial_state"),
                    maybe("definition", Kind::Text),
                    must("declaration_digest", Kind::Hex),
                    must("gate_spec_digest", Kind::Hex),
                    must("gate_spec_labels", Kind::Texts),
                    maybe("replaced", Kind::Texts),
                    maybe("rules", Kind::Int),
                    maybe("reason", Kind::Text),
                ]
            }
        }
        Action::GateOpened => {
            const {
                &[
                    text("instance_id"),
                    text("action"),
                    text("from_state"),
                    text("guard"),
                    maybe("step_id", Kind::Text),
                    maybe("assignment_id", Kind::Text),
                    maybe("approver_ref", Kind::Text),
                    maybe("chain_id", Kind::Text),
                    maybe("steps", Kind::Steps),
                    text("scope"),
                    text("submitter_ref"),
                    maybe("supersedes", Kind::Text),
                    maybe("reason", Kind::Text),
                ]
            }
        }
        Action::GateDecided => {
            const {
                &[
                    text("instance_id"),
                    text("action"),
                    maybe("step_id", Kind::Text),
                    maybe("chain_id", Kind::Text),
                    must("decision", Kind::OneOf(&["approve", "reject", "withdraw"])),
                    maybe("reason", Kind::Text),
                    maybe("on_behalf_of", Kind::Text),
                    maybe("delegation_id", Kind::Text),
                    maybe("assignment_id", Kind::Text),
                ]
            }
        }
        Action::TransitionFired => {
            const {
                &[
                    text("instance_id"),
                    text("action"),
                    text("from_state"),
                    text("new_state"),
                    text("transition_id"),
                    must("sequence_number", Kind::Int),
                    must("guarded", Kind::Bool),
                    maybe("step_id", Kind::Text),
                    maybe("chain_id", Kind::Text),
                    maybe("reason", Kind::Text),
                    maybe("effects", Kind::List),
                ]
            }
        }
        Action::MootGateRecalled => {
            const {
                &[
                    text("instance_id"),
                    text("moot_action"),
                    text("from_state"),
                    maybe("step_id", Kind::Text),
                    maybe("chain_id", Kind::Text),
                    text("moot_kind"),
                    text("reason"),
                ]
            }
        }
        Action::ChainInitiated => {
            const {
                &[
                    text("instance_id"),
                    text("chain_id"),
                    text("action"),
                    text("subject_ref"),
                    text("scope"),
                    text("initiator_ref"),
                    must("approver_set", Kind::Texts),
                    text("quorum_rule"),
                    maybe("m", Kind::Int),
                    must("steps", Kind::Steps),
                ]
            }
        }
        Action::StepApproved | Action::StepRejected | Action::StepWithdrawn => STEP,
        Action::ChainResolved => {
            const {
                &[
                    text("instance_id"),
                    text("chain_id"),
                    text("action"),
                    text("outcome"),
                    must("recalled_step_ids", Kind::Texts),
                ]
            }
        }
        Action::ChainWithdrawn => {
            const {
                &[
                    text("instance_id"),
                    text("chain_id"),
                    text("action"),
                    text("reason"),
                    must("recalled_step_ids", Kind::Texts),
                ]
            }
        }
        Action::RunStarted => {
            const {
                &[
                    text("instance_id"),
                    text("definition"),
                    must("document_digest", Kind::Hex),
                    must("declaration_digest", Kind::Hex),
                    must("gate_spec_digest", Kind::Hex),
                    text("subject_ref"),
                    must("steps", Kind::Int),
                    must("priority", Kind::Int),
                    maybe("rules", Kind::Int),
                    maybe("origin", Kind::Any),
                    maybe("transitions", Kind::List),
                    must("run_transitions", Kind::List),
                ]
            }
        }
        Action::CompensationsListed => const { &[text("instance_id"), must("compensations", Kind::List)] },
        Action::EventReceived => const { &[text("instance_id"), must("event", Kind::Any)] },
        Action::EffectDeclared => {
            const { &[text("instance_id"), must("effect", Kind::Any), must("reason", Kind::Text)] }
        }
        Action::AttemptRefused => {
            const { &[maybe("instance_id", Kind::Text), text("attempted"), text("code"), text("detail")] }
        }
        Action::EvidenceExported if header.is_registry() => {
            const {
                &[
                    or_null("after_us", Kind::Int),
                    or_null("before_us", Kind::Int),
                    must("instances", Kind::Int),
                    must("heads_digest", Kind::Hex),
                ]
            }
        }
        Action::EvidenceExported => const { &[text("instance_id"), must("through_sequence", Kind::Int)] },
        Action::ConditionObserved => const { &[text("instance_id"), must("conditions", Kind::List)] },
        Action::DlqReplayRequested => {
            const { &[text("instance_id"), text("dlq_replay_request_id"), text("dead_letter_id"), must("key", Kind::Text)] }
        }
        Action::DlqReplayCompleted => {
            const {
                &[
                    text("instance_id"),
                    text("dlq_replay_request_id"),
                    text("approval_id"),
                    text("dead_letter_id"),
                    must("outcome", Kind::OneOf(&["delivered", "resumed", "failed"])),
                    must("at_us", Kind::Int),
                    text("detail"),
                    maybe("event_id", Kind::Text),
                ]
            }
        }
        Action::ProblemOpened | Action::ProblemResolved => {
            const { &[text("instance_id"), must("problems", Kind::List)] }
        }
        Action::HoldPlaced => {
            const {
                &[
                    text("hold_id"),
                    text("record_ref"),
                    text("instance_id"),
                    text("reason"),
                    maybe("case_ref", Kind::Text),
                ]
            }
        }
        Action::HoldReleased => const { &[text("hold_id"), text("record_ref"), text("instance_id"), text("reason")] },
        Action::RecordPurged => {
            const {
                &[
                    text("event_id"),
                    text("instance_id"),
                    must("sequence", Kind::Int),
                    text("action_ref"),
                    text("actor_ref"),
                    must("record_hash", Kind::Hex),
                    must("attestation_digest", Kind::Hex),
                    text("policy_ref"),
                    or_null("retention_until_us", Kind::Int),
                ]
            }
        }
        Action::ActorRegistered => {
            const {
                &[
                    text("actor_ref"),
                    text("kind"),
                    maybe("display_name", Kind::Text),
                    maybe("public_key", Kind::Text),
                    maybe("key_id", Kind::Text),
                    maybe("credential_id", Kind::Text),
                ]
            }
        }
        Action::CredentialIssued | Action::CredentialRevoked => CREDENTIAL,
        Action::KeyRegistered => {
            const { &[text("actor_ref"), text("key_id"), text("public_key"), maybe("passkey", Kind::Any)] }
        }
        Action::KeyRevoked => const { &[text("actor_ref"), text("key_id"), maybe("reason", Kind::Text)] },
        Action::GrantMade | Action::GrantRevoked => GRANT,
        Action::DelegationMade => {
            const {
                &[
                    text("delegation_id"),
                    text("delegator_ref"),
                    text("delegate_ref"),
                    text("scope"),
                    must("from_us", Kind::Int),
                    must("until_us", Kind::Int),
                    maybe("reason", Kind::Text),
                ]
            }
        }
        Action::DelegationRevoked => {
            const { &[text("delegation_id"), text("delegator_ref"), text("delegate_ref"), text("scope")] }
        }
        Action::DefinitionPublished => {
            const {
                &[
                    text("name"),
                    must("version", Kind::Any),
                    must("digest", Kind::Hex),
                    must("declaration_digest", Kind::Hex),
                    must("gate_spec_digest", Kind::Hex),
                    maybe("document_digest", Kind::Hex),
                    maybe("retention", Kind::Any),
                    maybe("publish", Kind::Any),
                    maybe("proposal", Kind::Any),
                ]
            }
        }
        Action::DefinitionRetired | Action::SchedulePaused | Action::ScheduleResumed => {
            const { &[text("name"), must("version", Kind::Int), maybe("reason", Kind::Text)] }
        }
        Action::WorkerClassFrozen | Action::WorkerClassThawed => const { &[text("worker_class"), text("reason")] },
        Action::ConfigurationRecorded => {
            const {
                &[
                    or_null("audit_trail_retention_policy", Kind::Text),
                    must("regulated", Kind::Bool),
                    maybe("signatures", Kind::OneOf(&["people", "all"])),
                    text("application_actor_ref"),
                    text("server_actor_ref"),
                ]
            }
        }
        // What else a run's records hold is read where they are followed.
        _ => const { &[text("instance_id"), maybe("reason", Kind::Text)] },
    }
}
