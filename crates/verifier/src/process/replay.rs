//! Requests to replay a dead letter (`spec/replay.md`): what the approvers were asked is what was requested, and the requester is
//! none of them.

use super::proposal::same;
use super::{Context, Process};
use crate::bytes::Id;
use crate::finding::{Claim, Code};
use crate::form::{self, Form, Kind, maybe, must};
use crate::json::Value;
use crate::record::{Action, Header, Record};

/// What a request says it comes from.
pub const DEFINITION: &str = "countersign:replay@1";
/// SHA-256 of the declaration that every request runs under.
const DECLARATION: &str = "9c0904b6b61b2bf1899e3239d2c1c88189a86eb2a6aac7c8ecd0807d0cdf6913";
/// The guard, and the label of who approves.
const REPLAY: &str = "replay";
/// The member that says what is to be replayed.
pub const MEMBER: &str = "dead_letter";

const LETTER: Form = &[
    must("dead_letter_id", Kind::Text),
    must("kind", Kind::OneOf(&["delivery", "step"])),
    must("target", Kind::Text),
    maybe("failure_class", Kind::Text),
    maybe("payload_digest", Kind::Hex),
    must("attempts", Kind::Int),
    must("reason", Kind::Text),
];

/// What is known of a request besides its process.
#[derive(Debug, Default)]
pub struct Replay {
    letter: Option<Value>,
    /// The gate of its approval, and the record that followed it.
    pub approved: Option<(Id, Id)>,
}

impl Replay {
    pub fn letter(&self) -> Option<Id> {
        self.letter.as_ref()?.text("dead_letter_id").and_then(Id::parse)
    }
}

impl Process {
    pub fn is_replay(&self) -> bool {
        self.started.as_ref().is_some_and(|started| started.definition.as_deref() == Some(DEFINITION))
    }

    /// After the process itself took the record.
    pub(super) fn take_replay(&mut self, record: &Record, ctx: &mut Context<'_>) {
        let (header, Some(payload)) = (&record.header, record.payload()) else { return };
        if !self.is_replay() {
            return;
        }
        match header.action {
            Action::WorkflowStarted => self.begin_replay(header, payload, ctx),
            Action::GateOpened => {
                let asked = payload.get("request").unwrap_or(&Value::Null);
                if self.replay.letter.as_ref().is_some_and(|letter| !same(letter, asked)) {
                    let detail = "the approvers are asked something else than was requested";
                    ctx.findings.find(Code::BindingInvalid, header, detail);
                }
            }
            Action::TransitionFired => {
                if !ctx.registry.is_application_actor(&header.actor_ref, header.registry_seq) {
                    let detail = format!("moved by `{}`; the engine follows the gate", header.actor_ref);
                    ctx.findings.find(Code::WrongApprover, header, detail);
                }
                if payload.text("action") == Some("approve") {
                    let gate = payload.text("chain_id").or(payload.text("step_id")).and_then(Id::parse);
                    self.replay.approved = gate.map(|gate| (gate, header.event_id));
                }
            }
            _ => {}
        }
    }

    fn begin_replay(&mut self, header: &Header, payload: &Value, ctx: &mut Context<'_>) {
        if payload.text("declaration_digest") != Some(DECLARATION) {
            let detail = "a request under another declaration than that of requests";
            ctx.findings.find(Code::DocumentMismatch, header, detail);
        }
        let letter = payload.get(MEMBER).unwrap_or(&Value::Null);
        if let Err(fault) = form::check_exactly(letter, LETTER) {
            return ctx.findings.find(Code::BundleForm, header, format!("{MEMBER}: {}", fault.detail));
        }
        let subject = format!("dead-letter/{}", letter.text("dead_letter_id").unwrap_or_default());
        if payload.text("subject_ref") != Some(&subject) {
            ctx.findings.find(Code::DocumentMismatch, header, "the subject is not the dead letter");
        }
        ctx.findings.checked(Claim::ApprovalGated);
        let entry = self.gate_spec.as_ref().and_then(|spec| spec.0.get(REPLAY));
        if entry.is_some_and(|entry| entry.approvers.iter().any(|approver| **approver == *header.actor_ref)) {
            let detail = format!("`{}` requests the replay, and is an approver", header.actor_ref);
            ctx.findings.find(Code::WrongApprover, header, detail);
        }
        self.replay.letter = Some(letter.clone());
    }
}
