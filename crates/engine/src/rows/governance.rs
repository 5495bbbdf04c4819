//! Rows of governance: what commits signalled, and the problems that were made of it.

use countersign_kernel::governance::{Category, Problem, ReplayOutcome, Signal};
use countersign_kernel::process::ReplayState;
use countersign_kernel::{EventId, InstanceId, ProblemId, Time};
use uuid::Uuid;

/// A signal that no problem has been made of yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignalRow {
    pub signal_id: Uuid,
    pub signal: Signal,
}

/// A problem with what resolved it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProblemRow {
    pub problem: Problem,
    pub resolved: Option<ProblemEnd>,
    /// The trace of its run, where the run was started in one of another system.
    pub trace_id: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProblemEnd {
    pub event_id: EventId,
    pub at: Time,
}

/// A request to replay a dead letter. Its process says how it was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayRow {
    pub request_id: InstanceId,
    pub dead_letter_id: ProblemId,
    pub requested_by: String,
    pub requested_at: Time,
    pub state: ReplayState,
    /// The step or the chain of its approval.
    pub approval_id: Option<Uuid>,
    pub completed: Option<ReplayEnd>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayEnd {
    pub outcome: ReplayOutcome,
    pub event_id: EventId,
    pub at: Time,
}

/// A write to the rows of governance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GovernanceWrite {
    Signal(SignalRow),
    /// A signal that was weighed goes.
    TakeSignal {
        signal_id: Uuid,
    },
    Problem(Problem),
    ResolveProblem {
        problem_id: ProblemId,
        end: ProblemEnd,
    },
    /// How many problems of the category are open from now on.
    CountProblems {
        category: Category,
        open: u64,
    },
    RequestReplay(ReplayRow),
    /// How its gate was decided.
    DecideReplay {
        request_id: InstanceId,
        state: ReplayState,
        approval_id: Option<Uuid>,
    },
    CompleteReplay {
        request_id: InstanceId,
        end: ReplayEnd,
    },
}
