//! A request to replay a dead letter: a process under the built-in declaration below, with one gate, which is opened with it.
//! The decision that clears the gate fires `approve` in the same command, and that is what schedules the replay. Nobody fires
//! it, and no other command moves the process.

use super::proposal::without;
use super::{Attachment, Context, DefinitionRef, Event, EventBody, GateStatus, OpenGate, Process, Request};
use super::{built_in, open_gate};
use crate::declaration::Declaration;
use crate::gate_spec::{GateEntry, GateSpec};
use crate::id::ProblemId;
use crate::refusal::{Code, Refusal, require_text};
use crate::registry::scopes;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// What requests come from, in the place of a published definition: no document can have this name.
pub const REPLAY: &str = "countersign:replay";
pub const REPLAY_VERSION: u32 = 1;
/// The guard of `approve`.
pub const REPLAY_GUARD: &str = "replay";

const REQUESTED: &str = "requested";
const APPROVE: &str = "approve";
const REJECT: &str = "reject";
const WITHDRAW: &str = "withdraw";

pub const TRANSITIONS: &[built_in::Row] = &[
    (REQUESTED, APPROVE, "approved", Some(REPLAY_GUARD)),
    (REQUESTED, REJECT, "rejected", None),
    (REQUESTED, WITHDRAW, "withdrawn", None),
];
pub const STATES: &[&str] = &[REQUESTED, "approved", "rejected", "withdrawn"];
pub const TERMINAL: &[&str] = &["approved", "rejected", "withdrawn"];

/// The declaration that every request is made under.
pub fn replay_declaration() -> &'static Arc<Declaration> {
    static DECLARATION: LazyLock<Arc<Declaration>> =
        LazyLock::new(|| built_in::declaration(STATES, TRANSITIONS, TERMINAL));
    &DECLARATION
}

/// The state of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayState {
    Requested,
    /// The replay is scheduled.
    Approved,
    Rejected,
    Withdrawn,
    /// It was replayed, and the outcome is known.
    Completed,
}

impl ReplayState {
    pub const ALL: &'static [ReplayState] = &[
        ReplayState::Requested,
        ReplayState::Approved,
        ReplayState::Rejected,
        ReplayState::Withdrawn,
        ReplayState::Completed,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            ReplayState::Requested => REQUESTED,
            ReplayState::Approved => "approved",
            ReplayState::Rejected => "rejected",
            ReplayState::Withdrawn => "withdrawn",
            ReplayState::Completed => "completed",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|state| state.as_str() == text)
    }

    /// Whether another request for the same letter has to wait.
    pub const fn is_open(self) -> bool {
        matches!(self, ReplayState::Requested | ReplayState::Approved)
    }
}

/// A request for one dead letter.
#[derive(Clone, Debug)]
pub struct RequestReplay {
    pub dead_letter_id: ProblemId,
    pub reason: String,
    /// What the approvers are asked: the letter, as the record of the start and the gate say it.
    pub content: Attachment,
    pub request: Request,
    /// Who approves, as the deployment or the definition names them.
    pub approvers: Option<GateEntry>,
}

impl Process {
    pub fn is_replay(&self) -> bool {
        is_replay(self.definition.as_ref())
    }
}

pub fn is_replay(definition: Option<&DefinitionRef>) -> bool {
    definition.is_some_and(|of| of.name == REPLAY && of.version == REPLAY_VERSION)
}

/// Permission, and the shape of what is asked. It comes before anything is looked up.
pub fn admit_replay(reason: &str, ctx: &Context<'_>) -> Result<(), Refusal> {
    ctx.require_scope(scopes::GOVERNANCE_ACT, None)?;
    require_text("reason", reason)
}

/// The process of the request, and its gate.
pub fn request_replay(command: &RequestReplay, ctx: &mut Context<'_>) -> Result<Vec<Event>, Refusal> {
    admit_replay(&command.reason, ctx)?;
    let entry = approvers(command.approvers.as_ref(), ctx.actor_ref)?;
    let instance_id = ctx.ids.make();
    let started = ctx.by_caller(EventBody::WorkflowStarted {
        instance_id,
        definition: Some(DefinitionRef { name: REPLAY.to_owned(), version: REPLAY_VERSION }),
        subject_ref: format!("dead-letter/{}", command.dead_letter_id),
        declaration: replay_declaration().clone(),
        gate_spec: Arc::new(GateSpec(BTreeMap::from([(REPLAY_GUARD.to_owned(), entry)]))),
        replaced: vec![],
        reason: Some(command.reason.clone()),
        attachment: Some(command.content.clone()),
    });
    let process = Process::begin(&started)
        .ok_or_else(|| Refusal::new(Code::RecordingFailure, "a request that begins no process"))?;
    let open = OpenGate { action: APPROVE.to_owned(), reason: Some(command.reason.clone()), request: None };
    let mut events = vec![started];
    events.extend(open_gate::open(&process, &open, Some(command.request.clone()), ctx)?);
    Ok(events)
}

/// Who requests does not approve.
fn approvers(entry: Option<&GateEntry>, requester: &str) -> Result<GateEntry, Refusal> {
    let nobody = |why: &str| Refusal::new(Code::GateNotAvailable, format!("nobody could approve a replay: {why}"));
    let entry = entry.ok_or_else(|| nobody("set `[governance] replay_approver` in the server's configuration"))?;
    let rest = without(entry, requester).filter(|rest| !rest.approvers().iter().any(|approver| approver == requester));
    rest.ok_or_else(|| nobody("who requests it does not approve; name somebody else in `[governance] replay_approver`"))
}

/// What the engine does once the gate is decided: the approval schedules the replay; a rejection and a withdrawal close the
/// request.
pub(super) fn follow(process: &Process, decided: &[Event], ctx: &mut Context<'_>) -> Vec<Event> {
    let after = decided.iter().fold(process.clone(), |process, event| process.evolve(event));
    if after.current_state != REQUESTED {
        return vec![];
    }
    let Some(gate) = after.gate(REQUESTED, APPROVE) else { return vec![] };
    let (action, spent) = match gate.status() {
        GateStatus::Approved if gate.is_cleared() => (APPROVE, Some(gate)),
        GateStatus::Rejected => (REJECT, None),
        GateStatus::Withdrawn => (WITHDRAW, None),
        GateStatus::Approved | GateStatus::Pending => return vec![],
    };
    built_in::fire(&after, action, spent, ctx)
}
