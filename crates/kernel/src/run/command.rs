//! What can be asked of a run.

use super::{Artifact, Event, Facet, Found, KeptEvent, Origin, Parent, Prior, TransitionWish};
use crate::id::InstanceId;
use crate::lifecycle::{FailureCategory, StepCode};
use crate::plan::{Micros, Plan, StepSeq};
use crate::process::{DecideGate, OpenGate};
use crate::rollup::Colour;
use crate::{Digest, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use uuid::Uuid;

#[derive(Clone, Debug)]
pub enum Command {
    Start(Box<StartRun>),
    /// The dispatcher found a free slot, or the time of a delayed start has come. A run with a concurrency key begins
    /// only in a slot.
    Dispatch {
        in_slot: bool,
    },
    Claim(ClaimSteps),
    Complete {
        task: TaskRef,
        output: Arc<str>,
        outbound: Vec<Outbound>,
        claim_next: Option<ClaimNext>,
        /// The files that the definition names, as the executor found them.
        artifacts: Vec<Artifact>,
    },
    /// The engine's own executor looked at pins: each with its value (JSON text), or with nothing. A worker's survey is
    /// reported by `Complete`, `Retry` or `Dead`.
    Survey {
        task: TaskRef,
        values: Vec<Found>,
        /// Why those without a value have none. Shown, and in no record.
        errors: Vec<(Arc<str>, Arc<str>)>,
    },
    Wait {
        task: TaskRef,
        event_type: Option<String>,
        timeout: Option<Micros>,
        /// The first in their order is shown first.
        facets: Vec<Facet>,
        outbound: Vec<Outbound>,
    },
    Retry {
        task: TaskRef,
        error: String,
        backoff: Option<Micros>,
        category: Option<FailureCategory>,
    },
    Dead {
        task: TaskRef,
        error: String,
        category: Option<FailureCategory>,
    },
    /// T12 by the worker that holds the step, or has put it down.
    CannotComplete {
        task: TaskRef,
        evidence_ref: Option<String>,
    },
    /// T4 by the worker that holds the step.
    Block {
        task: TaskRef,
        block_reason: Option<String>,
    },
    Heartbeat {
        task: TaskRef,
        lease: Micros,
    },
    /// The engine's executor started the child; the step now waits for it without a lease.
    ChildStarted {
        task: TaskRef,
        child: InstanceId,
    },
    /// The child of this step has ended.
    ChildEnded {
        step_seq: StepSeq,
        child: InstanceId,
        completed: bool,
        output: Arc<str>,
    },
    /// The child of this step lives: its colour now, and whether it waits ([`super::Run::waits`]).
    ChildColoured {
        step_seq: StepSeq,
        child: InstanceId,
        colour: Colour,
        waits: bool,
    },
    /// Somebody sends an event; `seen` where this run had it before.
    Receive {
        event: KeptEvent,
        seen: bool,
    },
    /// The clock reached something: these steps, and perhaps the run's own limit.
    Due {
        steps: Vec<StepSeq>,
        run: bool,
    },
    OpenGate(OpenGate),
    DecideGate(DecideGate),
    Cancel {
        reason: Option<String>,
        approval_id: Option<String>,
        /// Undo what was completed, and be cancelled then.
        compensate: bool,
    },
    Pause {
        reason: Option<String>,
    },
    Resume {
        /// Of the gate `resume`.
        approval_id: Option<String>,
        reason: Option<String>,
    },
    Stop {
        reason: Option<String>,
    },
    Void {
        /// Of the gate `void`; where there is none, of `cancel`.
        approval_id: Option<String>,
        reason: Option<String>,
    },
    /// What somebody does to one step.
    Act(StepAct),
    /// An operator says what became of an attempt that left no verdict.
    DeclareEffect {
        step: String,
        done: bool,
        output: Option<Arc<str>>,
        reason: String,
    },
}

impl Command {
    pub const fn name(&self) -> &'static str {
        match self {
            Command::Start(_) => "start_run",
            Command::Dispatch { .. } => "dispatch_run",
            Command::Claim(_) => "claim",
            Command::Complete { .. } => "complete",
            Command::Survey { .. } => "survey",
            Command::Wait { .. } => "wait",
            Command::Retry { .. } => "retry",
            Command::Dead { .. } => "dead",
            Command::CannotComplete { .. } => "cannot_complete",
            Command::Block { .. } => "block",
            Command::Heartbeat { .. } => "heartbeat",
            Command::ChildStarted { .. } => "child_started",
            Command::ChildEnded { .. } => "child_ended",
            Command::ChildColoured { .. } => "child_coloured",
            Command::Receive { .. } => "receive_event",
            Command::Due { .. } => "due",
            Command::OpenGate(_) => "open_gate",
            Command::DecideGate(_) => "decide_gate",
            Command::Cancel { .. } => "cancel_run",
            Command::Pause { .. } => "pause_run",
            Command::Resume { .. } => "resume_run",
            Command::Stop { .. } => "stop_run",
            Command::Void { .. } => "void_run",
            Command::Act(command) => command.act.name(),
            Command::DeclareEffect { .. } => "declare_effect",
        }
    }
}

/// The transition that the events of a command tell of first, and what it emits: the run's own where the command is about the
/// run, a machine's own where one was asked for.
pub fn moved_by(command: &Command, events: &[Event]) -> Option<(String, Option<&'static str>)> {
    let event = events.iter().find_map(|event| match event {
        Event::Run(event) => Some(&**event),
        Event::Gate(_) => None,
    })?;
    let own = event.acted.as_deref().and_then(|acted| acted.own.as_ref());
    let of_step = || event.moves.first().map(|m| (m.transition.id.to_owned(), Some(event.emits(m))));
    let of_run = || event.run_moves.first().map(|m| (m.transition.id.to_owned(), Some(m.transition.emits())));
    match (command, own) {
        (Command::Act(_), Some(own)) => Some((own.id.clone(), own.emits)),
        (Command::Cancel { .. } | Command::Pause { .. } | Command::Resume { .. }, _)
        | (Command::Stop { .. } | Command::Void { .. }, _) => of_run().or_else(of_step),
        _ => of_step().or_else(of_run),
    }
}

/// What a person in charge, a reviewer or an operator does to a step.
#[derive(Clone, Debug)]
pub struct StepAct {
    pub step: String,
    pub act: Act,
    pub reason: Option<String>,
    /// Nothing is to change; only what would happen is asked for.
    pub preview: bool,
}

/// Words of a vocabulary come as they were said: what is not in it is the guard's to refuse.
#[derive(Clone, Debug)]
pub enum Act {
    Claim,
    Release,
    Wait {
        event_type: Option<String>,
        timeout: Option<Micros>,
        facets: Vec<String>,
    },
    Block {
        block_reason: Option<String>,
    },
    Unblock {
        evidence_ref: Option<String>,
    },
    Complete {
        output: Arc<str>,
        outbound: Vec<Outbound>,
    },
    CannotComplete {
        evidence_ref: Option<String>,
    },
    Escalate,
    /// Another attempt at a step that failed and is held.
    Retry,
    /// The same, of a dead letter, as its request was approved. By the engine alone.
    Replay(Replay),
    BlockEscalate {
        approval_id: Option<String>,
    },
    Reopen {
        approval_id: Option<String>,
        correction_reason: Option<String>,
        prior: Option<Box<Prior>>,
    },
    ExtendDeadline {
        deadline: Time,
    },
    /// T6 by the person in charge of a step that is overdue.
    Reengage,
    /// A transition that the run's own machine declares.
    Transition(Box<TransitionWish>),
}

/// The request of a replay, and the gate of its approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Replay {
    pub request: InstanceId,
    pub approval_id: uuid::Uuid,
    /// The letter is about the step as it was reopened so often.
    pub cycle: u32,
}

impl Act {
    pub const fn name(&self) -> &'static str {
        match self {
            Act::Claim => "claim_step",
            Act::Release => "release_step",
            Act::Wait { .. } => "wait_step",
            Act::Block { .. } => "block_step",
            Act::Unblock { .. } => "unblock_step",
            Act::Complete { .. } => "complete_step",
            Act::CannotComplete { .. } => "cannot_complete_step",
            Act::Escalate => "escalate_step",
            Act::Retry => "retry_step",
            Act::Replay(_) => "replay_step",
            Act::BlockEscalate { .. } => "escalate_block",
            Act::Reopen { .. } => "reopen_step",
            Act::ExtendDeadline { .. } => "extend_deadline",
            Act::Reengage => "reengage_step",
            Act::Transition(_) => "transition_step",
        }
    }
}

#[derive(Clone, Debug)]
pub struct StartRun {
    pub definition: String,
    pub version: Option<u32>,
    pub input: Arc<str>,
    pub subject_ref: Option<String>,
    pub priority: Option<u8>,
    pub start_at: Option<Time>,
    /// The run that this one corrects.
    pub corrects: Option<InstanceId>,
    /// Starts behind the finished steps of another run.
    pub from_step: Option<FromStep>,
    pub parent: Option<Parent>,
    /// In place of the definition's own: for runs that wait for each other.
    pub concurrency_key: Option<Arc<str>>,
    /// Only surveys, checks and what is `readOnly`.
    pub dry_run: bool,
    /// The clock or an event starts it: refused while that is paused.
    pub by_itself: bool,
    /// The trace that it belongs to (W3C: 32 hexadecimal digits); without one it begins its own.
    pub trace_id: Option<Arc<str>>,
    /// What inside this server started it.
    pub origin: Option<Origin>,
    /// The plan of the version that is started, under the digest of its document, where the registry does without it.
    pub plan: Option<(Digest, Arc<Plan>)>,
}

impl StartRun {
    /// A run of the newest version, with nothing said but what it works on.
    pub fn new(definition: impl Into<String>, input: impl Into<Arc<str>>) -> Self {
        StartRun {
            definition: definition.into(),
            version: None,
            input: input.into(),
            subject_ref: None,
            priority: None,
            start_at: None,
            corrects: None,
            from_step: None,
            parent: None,
            concurrency_key: None,
            dry_run: false,
            by_itself: false,
            trace_id: None,
            origin: None,
            plan: None,
        }
    }
}

/// Where a new run takes over: what the old run has finished and does not lie behind this step is taken from it, with its
/// outputs. All but the first two is what only the store knows of the old run.
#[derive(Clone, Debug)]
pub struct FromStep {
    pub run_id: InstanceId,
    pub step: String,
    pub definition: String,
    /// Before that, what it has finished may still be undone.
    pub has_ended: bool,
    /// The steps that completed or were skipped, by name, with outputs; not those that were undone.
    pub finished: BTreeMap<String, (StepCode, Option<Arc<str>>)>,
    /// The steps that it undid, or began to undo.
    pub undone: BTreeSet<String>,
    /// The finished steps of which nobody knows any more what they yielded.
    pub purged: BTreeSet<String>,
}

#[derive(Clone, Debug)]
pub struct ClaimSteps {
    pub steps: Vec<StepSeq>,
    pub worker_id: Arc<str>,
    pub lease: Micros,
}

/// The worker would like to go on with the next step of its queue.
#[derive(Clone, Debug)]
pub struct ClaimNext {
    pub lease: Micros,
}

/// A step under a lease, as a worker names it.
#[derive(Clone, Debug)]
pub struct TaskRef {
    pub step_seq: StepSeq,
    /// `None` where the text given is no token of ours.
    pub lease_token: Option<Uuid>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outbound {
    pub event_type: String,
    pub data: Arc<str>,
}
