//! Scenarios: text tables of what people do and what must come of it. `scenarios/README.md` describes
//! the language; [`parse`] reads it, [`run`] carries it out at one level.

mod check;
mod parse;
mod retention;
mod run;
mod run_play;
mod runs;
mod words;

pub use parse::parse;
pub use retention::RecordName;
pub use run::{Pace, run};
pub use runs::{RunAct, RunCheck, TaskLine};

use crate::drive::Start;
use countersign_kernel::process::Decision;
use countersign_kernel::refusal::Code;

/// A name for a process that there is not.
pub const NOWHERE: &str = "nowhere";

/// A name for the registry, whose records can be held too.
pub const REGISTRY: &str = "registry";

#[derive(Clone, Debug)]
pub struct Scenario {
    /// As it is shown: `scenarios/walkthrough.txt`.
    pub file: String,
    pub lines: Vec<Line>,
}

#[derive(Clone, Debug)]
pub struct Line {
    pub number: usize,
    /// `over HTTP:` the other levels leave it out.
    pub only_over_http: bool,
    pub what: What,
}

#[expect(clippy::large_enum_variant, reason = "a scenario has a few hundred lines")]
#[derive(Clone, Debug)]
pub enum What {
    /// Register an actor and give it these scopes.
    Actor {
        name: String,
        scopes: Vec<String>,
    },
    /// Publish this document.
    Definition {
        document: String,
    },
    Restart,
    /// Keep what is recorded from now on under this policy.
    Policy {
        name: String,
    },
    /// From now on the run that this step waits for has this name.
    Child {
        name: String,
        run: String,
        step: String,
    },
    /// The gate of this action that was opened last is called so from now on.
    Approval {
        name: String,
        run: String,
        action: String,
    },
    /// Let time pass.
    Pass {
        us: i64,
    },
    /// Let time pass until exactly so long after a time of a step, and stand there.
    PassUntil {
        us: i64,
        run: String,
        step: String,
        member: String,
    },
    Act {
        who: String,
        act: Act,
        expected: Expected,
    },
    Check(Check),
}

#[derive(Clone, Debug)]
pub enum Act {
    Start { name: String, start: Start },
    Open { on: Target, name: Option<String> },
    Decide { on: Target, decision: Decision, step: Option<StepName> },
    Fire { on: Target },
    Read { process: String },
    Grant { subject: String, scope: String },
    Revoke { subject: String, scope: String },
    Hold { record: RecordName, name: Option<String>, reason: String, case: Option<String> },
    Release { hold: String, reason: Option<String> },
    Purge { record: RecordName },
    Get { path: String },
    Post { path: String, body: String },
    Run(Box<RunAct>),
}

#[derive(Clone, Debug)]
pub struct Target {
    pub process: String,
    pub action: String,
    pub reason: Option<String>,
}

/// `first`, or `first/ann` for ann's step of a quorum. A name that no opening gave is sent as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepName {
    pub gate: String,
    pub approver: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Expected {
    Ok,
    /// A decision's outcome, and where the quorum stands after it.
    Decided {
        outcome: String,
        chain_state: Option<String>,
    },
    /// Of a process or a run.
    NewState(String),
    /// What a worker was given.
    Tasks(Vec<TaskLine>),
    /// The state of a step after its worker's report, and what the worker goes on with.
    Reported {
        state: String,
        next: Option<TaskLine>,
    },
    /// The steps that an event woke.
    Woke {
        duplicate: bool,
        steps: Vec<String>,
    },
    Refused {
        code: Code,
        at: Option<String>,
        /// The guard that is named.
        guard: Option<String>,
    },
}

#[derive(Clone, Debug)]
pub enum Check {
    Run(RunCheck),
    State {
        process: String,
        state: String,
    },
    Records {
        process: String,
        records: Vec<(String, Option<String>)>,
    },
    History {
        process: String,
        entries: Vec<HistoryLine>,
    },
    /// (process, action) of what waits, in the order in which it was put there.
    Inbox {
        who: String,
        items: Vec<(String, String)>,
    },
    /// The gate that was last opened for this action.
    Gate {
        process: String,
        action: String,
        state: String,
        fate: Option<String>,
    },
    Step {
        step: StepName,
        state: String,
        by: Option<String>,
        reason: Option<String>,
    },
    Assignment {
        step: StepName,
        status: String,
    },
    /// Whether the record has its content.
    Purged {
        record: RecordName,
        purged: bool,
    },
    /// `number` counts from 1; `None` is the last record.
    Payload {
        process: String,
        number: Option<u64>,
        member: String,
        value: Option<String>,
    },
    Lacks {
        process: String,
        number: Option<u64>,
        member: String,
    },
}

#[derive(Clone, Debug)]
pub struct HistoryLine {
    pub action: String,
    pub from_state: String,
    pub to_state: String,
    pub by: String,
    /// The gate whose approval it consumed.
    pub cleared_by: Option<String>,
}
