//! The five actions of seed 000, the actions on runs, and the reads, as a scenario requests them, over any level. A
//! driver translates and remembers tokens. It decides nothing, so a scenario observes the real behaviour of that
//! level.

pub mod commands;
mod engine;
mod engine_runs;
mod follow;
mod http;
mod http_runs;
mod kernel;
mod kernel_retention;
mod kernel_runs;
mod runs;

pub use engine::EngineDriver;
pub use http::HttpDriver;
pub use http_runs::micros;
pub use kernel::KernelDriver;
pub use runs::{
    Acting, Addressed, ClaimWish, Control, Report, Reported, RunStart, Runs, SentEvent, TaskOf, TaskSeen, Woken,
};

use async_trait::async_trait;
use countersign_engine::clock::Clock;
use countersign_kernel::process::Decision;
use countersign_kernel::refusal::Refusal;
use countersign_kernel::{Declaration, GateSpec, Time};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Holds every scope from the beginning.
pub const ADMIN: &str = "admin";
/// In whose name the engine itself acts.
pub const APPLICATION: &str = "countersign";
/// The default length of a lease.
pub const LEASE_US: i64 = 30_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    Kernel,
    Sqlite,
    Postgres,
    Http,
}

#[derive(Debug)]
pub enum Failure {
    /// A normal answer.
    Refused(Refusal),
    /// The level itself does not work.
    Broken(String),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Failure::Refused(refusal)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Refused(refusal) => write!(f, "{refusal}"),
            Failure::Broken(what) => write!(f, "broken: {what}"),
        }
    }
}

pub type Said<T> = Result<T, Failure>;

#[derive(Clone, Debug)]
pub enum Source {
    Declaration(Arc<Declaration>),
    /// `name` or `name@version`.
    Definition(String),
}

#[derive(Clone, Debug)]
pub struct Start {
    pub from: Source,
    pub subject_ref: String,
    pub gate_spec: GateSpec,
    pub reason: Option<String>,
}

/// An action on a transition of a process.
#[derive(Clone, Copy, Debug)]
pub struct On<'a> {
    pub instance_id: &'a str,
    pub action: &'a str,
    pub reason: Option<&'a str>,
}

/// A hold on a record.
#[derive(Clone, Copy, Debug)]
pub struct HoldOn<'a> {
    pub record_ref: &'a str,
    pub reason: &'a str,
    pub case_ref: Option<&'a str>,
}

/// A gate that was opened: its chain, if it is a quorum, and its steps in declaration order.
#[derive(Clone, Debug, Default)]
pub struct Opened {
    pub chain_id: Option<String>,
    pub steps: Vec<OpenedStep>,
}

#[derive(Clone, Debug)]
pub struct OpenedStep {
    pub step_id: String,
    /// Who must decide it; empty where the answer does not say (a single gate).
    pub approver_ref: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// `approved`, `rejected_outcome` or `withdrawn`.
    pub outcome: String,
    pub chain_state: Option<String>,
}

/// A process with its whole past.
#[derive(Clone, Debug)]
pub struct View {
    pub instance_id: String,
    pub subject_ref: String,
    pub initiator_ref: String,
    pub declaration: Declaration,
    pub gate_spec: GateSpec,
    pub current_state: String,
    pub history: Vec<Firing>,
    /// One per approval step that was ever bound to a transition.
    pub gates: Vec<GateStep>,
}

#[derive(Clone, Debug)]
pub struct Firing {
    pub sequence_number: u64,
    pub from_state: String,
    pub action: String,
    pub to_state: String,
    pub actor_ref: String,
    pub guard_satisfied: Option<bool>,
    /// The step or the chain whose approval it consumed.
    pub gate_id: Option<String>,
    pub event_id: String,
}

#[derive(Clone, Debug)]
pub struct GateStep {
    pub step: Step,
    pub from_state: String,
    pub guard: String,
    pub chain: Option<Chain>,
    pub assignment_status: String,
    pub is_current: bool,
    /// `unspent`, `consumed` or `mooted`.
    pub fate: String,
}

impl GateStep {
    /// What names the gate: its chain, or its one step.
    pub fn gate_id(&self) -> &str {
        self.chain.as_ref().map_or(&self.step.step_id, |chain| &chain.chain_id)
    }

    /// The state of the gate, of either kind.
    pub fn gate_state(&self) -> &str {
        self.chain.as_ref().map_or(&self.step.state, |chain| &chain.state)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    pub chain_id: String,
    pub state: String,
}

/// An approval step as its own store tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub step_id: String,
    pub action: String,
    pub subject_ref: String,
    pub approver_ref: String,
    pub submitter_ref: String,
    pub scope: String,
    pub state: String,
    /// Who decided or withdrew it, and why.
    pub ended_by: Option<String>,
    pub reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    pub task_ref: String,
    pub assignee_ref: String,
    pub status: String,
}

#[derive(Clone, Debug)]
pub struct Record {
    pub event_id: String,
    pub sequence: u64,
    pub action_ref: String,
    pub actor_ref: String,
    pub payload: Value,
    pub registry_seq: u64,
    pub recorded_at: String,
}

/// Something that waits in an in-tray.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxItem {
    pub instance_id: String,
    pub action: String,
    pub step_id: String,
}

/// Reads for the scenario's own checks are made as [`ADMIN`].
#[async_trait]
pub trait Driver: Runs + Send {
    fn level(&self) -> Level;

    async fn register(&mut self, actor_ref: &str) -> Said<()>;
    async fn grant(&mut self, by: &str, subject_ref: &str, scope: &str) -> Said<String>;
    async fn revoke(&mut self, by: &str, grant_id: &str) -> Said<()>;
    async fn publish(&mut self, by: &str, document: &str) -> Said<()>;

    async fn start(&mut self, by: &str, start: &Start) -> Said<String>;
    async fn open_gate(&mut self, by: &str, on: On<'_>) -> Said<Opened>;
    async fn decide_gate(&mut self, by: &str, on: On<'_>, decision: Decision, step_id: Option<&str>) -> Said<Decided>;
    async fn fire(&mut self, by: &str, on: On<'_>) -> Said<String>;
    /// `read_workflow` by instance.
    async fn read(&mut self, by: &str, instance_id: &str) -> Said<View>;

    /// The hold's id.
    async fn place_hold(&mut self, by: &str, hold: HoldOn<'_>) -> Said<String>;
    async fn release_hold(&mut self, by: &str, hold_id: &str, reason: Option<&str>) -> Said<()>;
    async fn purge(&mut self, by: &str, event_id: &str) -> Said<()>;

    async fn inbox(&mut self, by: &str) -> Said<Vec<InboxItem>>;
    async fn approval_steps(&mut self, instance_id: &str) -> Said<Vec<Step>>;
    async fn assignments(&mut self, step_id: &str) -> Said<Vec<Assignment>>;
    async fn records(&mut self, instance_id: &str) -> Said<Vec<Record>>;

    /// Whether the actor held the scope when this record was decided.
    async fn held(&mut self, actor_ref: &str, scope: &str, record: &Record) -> Said<bool>;
    /// Stops and starts again on what is stored. Nothing, where nothing is stored.
    async fn restart(&mut self) -> Said<()>;
    /// From now on records are kept under this policy; what is stored serves under it.
    async fn keep_under(&mut self, policy: &str) -> Said<()>;
    /// Lets time pass, and has everything looked at that is due then.
    async fn pass(&mut self, us: i64) -> Said<()>;
    /// Lets time pass up to this very microsecond and stand there, whoever looks at the clock, until more of it passes.
    async fn pass_until(&mut self, at_us: i64) -> Said<()>;
    /// What can be checked of the stored evidence at this level and no other.
    async fn verify(&mut self, instance_id: &str) -> Said<()>;
    /// A request as it stands, over HTTP: `None` body for a GET. Answers with the body.
    async fn request(&mut self, by: &str, path: &str, body: Option<&str>) -> Said<Value>;
}

/// A clock that begins with the system's time, goes on by a microsecond with every look at it, and otherwise only when it
/// is told to: however slow the machine, no lease expires by itself.
#[derive(Clone)]
struct Shifted {
    now: Arc<AtomicI64>,
    /// How far it goes on with every look: not at all where it stands.
    step: Arc<AtomicI64>,
}

impl Default for Shifted {
    fn default() -> Self {
        Shifted { now: Arc::new(AtomicI64::new(Clock::system().read().wall.0)), step: Arc::new(AtomicI64::new(1)) }
    }
}

impl Shifted {
    fn pass(&self, us: i64) {
        self.step.store(1, Ordering::SeqCst);
        self.now.fetch_add(us, Ordering::SeqCst);
    }

    fn stand_at(&self, us: i64) {
        self.step.store(0, Ordering::SeqCst);
        self.now.store(us, Ordering::SeqCst);
    }

    fn clock(&self) -> Clock {
        let (now, step) = (self.now.clone(), self.step.clone());
        Clock::told(move || Time(now.fetch_add(step.load(Ordering::SeqCst), Ordering::SeqCst)))
    }
}

pub(crate) fn broken(what: impl std::fmt::Display) -> Failure {
    Failure::Broken(what.to_string())
}

/// SHA-256, as the engine has the kernel compute it.
pub fn digest_of(text: &str) -> countersign_kernel::Digest {
    countersign_ledger::sha256(&[text.as_bytes()])
}
