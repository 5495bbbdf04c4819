//! Rows of governance: what commits signalled, and the problems that were made of it.

use countersign_kernel::governance::{Category, Problem, Signal};
use countersign_kernel::{EventId, ProblemId, Time};
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
}
