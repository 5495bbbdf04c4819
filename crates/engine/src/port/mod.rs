//! The store port: what the engine asks of a database. Two implementations (SQLite, PostgreSQL) pass
//! one conformance suite.
//!
//! Duties that every implementation owes:
//! - **Durable**: when `commit` returns, what it reports as won survives the loss of power.
//! - **Atomic**: a unit's rows, records and idempotency keys are all there or none is.
//! - **Fenced**: a unit is written only if its instance still has the sequence it was decided on, and
//!   a batch only under the registry it was decided under.
//! - **Definite**: an error from `commit` means that nothing of the batch was written. Where the answer
//!   to a COMMIT was lost, the writer finds out before it answers; only if it cannot, it says
//!   [`StoreError::Unknown`].

mod cells;
mod governance;
pub mod log;
pub mod monitor;
pub mod outbox;
mod query;
pub mod sessions;

pub use cells::{Choose, HeldStep, RunCells, Since};
pub use governance::{Governance, ProblemQuery, ReplayQuery};
pub use log::{LogReader, LogWriter};
pub use monitor::MonitorStore;
pub use outbox::Outbox;
pub use query::{Beginning, Past};
pub use sessions::Sessions;

use crate::rows::{
    AssignmentRow, CorrectionRow, GateRow, HoldRow, IdempotencyRow, NewStep, ProcessRow, RecordRow, RunEventRow,
    RunRow, StepRow, StepState, StepWrite, TransitionRow, Write,
};
use async_trait::async_trait;
use countersign_kernel::plan::StepSeq;
use countersign_kernel::process::{Gate, Process};
use countersign_kernel::registry;
use countersign_kernel::{Digest, EventId, HoldId, InstanceId, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing was written; the same call may succeed later.
    #[error("the store is not available: {0}")]
    Transient(String),
    /// The database gave this transaction up in favour of another (a deadlock, a serialisation failure); nothing was
    /// written, and the same batch may be decided again at once.
    #[error("the store preferred another transaction: {0}")]
    Conflict(String),
    /// The database refused the data itself; nothing was written. Its neighbours in the batch are not to blame.
    #[error("the store refused the data: {0}")]
    Rejected(String),
    /// The answer to a COMMIT was lost and could not be found out.
    #[error("the outcome of a commit is not known: {0}")]
    Unknown(String),
    /// Stored data contradicts itself.
    #[error("stored data is damaged: {0}")]
    Corrupt(String),
    /// The definition of an instance is held back: this version does not read its document.
    #[error("the definition is quarantined: {0}")]
    Quarantined(String),
    /// The store was written by a newer version, or is no store of ours.
    #[error("{0}")]
    Unusable(String),
}

/// Where an instance's chain of records stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Number of the last record; also the version that the fence compares. 0: does not exist yet.
    pub sequence: u64,
    pub record_hash: Digest,
    /// Time of the last record.
    pub last_time: Time,
}

/// An instance as the store knows it.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub body: LoadedBody,
    pub head: Head,
    pub policy_ref: String,
    /// How often leases were prolonged: part of what the fence compares.
    pub beats: u64,
}

impl Loaded {
    pub fn instance_id(&self) -> InstanceId {
        match &self.body {
            LoadedBody::Process(process) => process.instance_id,
            LoadedBody::Run(run) => run.row.instance_id,
        }
    }
}

#[derive(Clone, Debug)]
pub enum LoadedBody {
    Process(Process),
    Run(Box<LoadedRun>),
}

/// A run in its parts: only the engine can read the definition document.
#[derive(Clone, Debug)]
pub struct LoadedRun {
    pub row: RunRow,
    pub head: StoredRunHead,
    /// The normalised definition document.
    pub document: Arc<[u8]>,
    /// That of the machine of one's own that it was started under.
    pub machine: Option<Arc<[u8]>>,
    /// Transitions that the shell has fired.
    pub moves: u64,
    /// The gates that can still matter, as for a process.
    pub gates: Vec<Gate>,
    pub holds: BTreeMap<HoldId, EventId>,
    /// Every step, by step_seq from 0 without a gap, compensations behind the plan's own. `output` is set only where
    /// `output_needed`.
    pub steps: Vec<(Option<StepSeq>, StepState)>,
    /// Events not yet taken, oldest first.
    pub kept: Vec<RunEventRow>,
}

/// The stored form of [`RunHeadRow`], as far as deciding needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRunHead {
    pub state: String,
    pub outcome: Option<String>,
    pub last_error: Option<Arc<str>>,
    pub priority: u8,
    pub start_at: Option<Time>,
    pub executing_since: Option<Time>,
    pub completed_at: Option<Time>,
    pub failed_at: Option<Time>,
    pub output: Option<Arc<str>>,
    /// Its colour, see [`crate::run::rollup::Basis`]; it stands on the instance's row.
    pub rollup: Option<Arc<str>>,
    /// What a runbook keeps, see [`crate::run::runbook`].
    pub runbook: Option<Arc<str>>,
    pub undoing: bool,
    pub called_off: bool,
}

/// Something of a run that is due: a step, or (`None`) the run itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    pub instance_id: InstanceId,
    pub step_seq: Option<StepSeq>,
    pub due_at: Time,
    /// A step that has not begun and waits for nothing but a worker: whoever knows its definition need not load the run.
    pub ready: Option<ReadyStep>,
}

/// What its definition does not say of a step that is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyStep {
    pub definition_name: String,
    pub definition_version: u32,
    /// The run's.
    pub priority: u8,
}

impl Due {
    /// Before everything that is due at this time or later.
    pub fn from(due_at: Time) -> Due {
        Due { instance_id: InstanceId(uuid::Uuid::nil()), step_seq: None, due_at, ready: None }
    }
}

/// Which runs a list holds.
#[derive(Clone, Debug, Default)]
pub struct RunQuery {
    pub instance_id: Option<InstanceId>,
    pub state: Option<String>,
    pub definition: Option<String>,
    /// Of the definition.
    pub version: Option<u32>,
    pub subject_ref: Option<String>,
    /// Started in this trace of somebody else.
    pub trace_id: Option<String>,
    pub started: Range,
    /// Only runs of these definitions, where the reader may not see all.
    pub definitions: Option<Vec<String>>,
    /// The colour of its roll-up.
    pub rollup: Option<String>,
    /// Somebody who is in charge of a step that is to be done.
    pub pic: Option<String>,
    pub initiator_ref: Option<String>,
    pub parent: Option<InstanceId>,
    pub q: Option<Beginning>,
}

/// A run as it is read: without its steps, which are paged.
#[derive(Clone, Debug)]
pub struct RunView {
    pub row: RunRow,
    pub head: StoredRunHead,
    pub chain: Head,
    pub copies: RunCopies,
}

/// What the store holds a second time about a run, so that lists find it. Only [`crate::log`] reads it: it compares the
/// copies with what they repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunCopies {
    pub colour: Option<String>,
    pub state: String,
    /// Transitions that the shell has fired.
    pub moves: u64,
    pub definition_name: String,
    pub correlation_key: Option<Arc<str>>,
    pub concurrency_key: Option<Arc<str>>,
    pub is_live: bool,
}

/// A run that waits for a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedRun {
    pub instance_id: InstanceId,
    pub definition_name: String,
    pub definition_version: u32,
    pub concurrency_key: Option<Arc<str>>,
    /// Runs of the same definition and key that have begun and not ended.
    pub under_way: u64,
    pub priority: u8,
}

/// A gate with its steps and their newest assignments.
pub type GateWithSteps = (GateRow, Vec<(StepRow, AssignmentRow)>);

/// A step as it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunStepView {
    pub step_seq: StepSeq,
    pub new: NewStep,
    pub state: StepState,
}

/// Registry changes since a sequence, oldest first, and where its chain stands.
#[derive(Clone, Debug)]
pub struct RegistryDelta {
    /// Definitions come without their `workflow`, which only the engine can read from its document.
    pub events: Vec<(u64, registry::Event)>,
    /// The normalised documents of the workflows among them, by registry sequence.
    pub workflows: Vec<(u64, Arc<[u8]>)>,
    pub head: Head,
}

/// All that a batch writes to one instance.
#[derive(Clone, Debug)]
pub struct Unit {
    pub instance_id: InstanceId,
    /// The sequence that the decisions were made on; 0 before the first record.
    pub expected_sequence: u64,
    /// What the instance row says afterwards.
    pub head: Head,
    pub state: String,
    /// How many transitions have fired so far.
    pub moves: u64,
    pub policy_ref: String,
    /// What the fence compares besides the sequence, and what it says afterwards: prolonging a lease leaves no record.
    pub expected_beats: u64,
    pub beats: u64,
    /// A run's colour with its basis, and the colour alone.
    pub rollup: Option<Arc<str>>,
    pub colour: Option<&'static str>,
    pub writes: Vec<Write>,
    /// Steps of a run, each at most once.
    pub steps: BTreeMap<StepSeq, StepWrite>,
    pub records: Vec<RecordRow>,
    pub idempotency: Vec<IdempotencyRow>,
    /// Other instances of the batch whose units are written if this one is, and only then.
    pub stands_with: Vec<InstanceId>,
}

impl Unit {
    /// Its instance begins with it. The registry and the governance chain have rows in every store.
    pub fn is_new(&self) -> bool {
        let has_row = matches!(self.instance_id, InstanceId::REGISTRY | InstanceId::GOVERNANCE);
        self.expected_sequence == 0 && !has_row
    }

    /// Nothing written yet.
    pub fn new(instance_id: InstanceId, expected_sequence: u64) -> Self {
        Unit {
            instance_id,
            expected_sequence,
            head: Head { sequence: 0, record_hash: Digest([0; 32]), last_time: Time(0) },
            state: String::new(),
            moves: 0,
            policy_ref: String::new(),
            expected_beats: 0,
            beats: 0,
            rollup: None,
            colour: None,
            writes: vec![],
            steps: BTreeMap::new(),
            records: vec![],
            idempotency: vec![],
            stands_with: vec![],
        }
    }
}

/// A refusal was decided on this sequence of this instance; it stands only if that is still current.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub instance_id: InstanceId,
    pub expected_sequence: u64,
}

#[derive(Clone, Debug)]
pub struct Batch {
    /// The registry sequence that everything here was decided under.
    pub registry_sequence: u64,
    /// True for the one unit that changes the registry itself: it excludes every other batch.
    pub changes_registry: bool,
    pub units: Vec<Unit>,
    pub checks: Vec<Check>,
}

impl Batch {
    /// Which units are to be written, of those whose fence `holds`: where one of several that stand together has lost, all
    /// of them have.
    pub fn winners(&self, mut holds: Vec<bool>) -> Vec<bool> {
        let pairs: Vec<(usize, usize)> = (0..).zip(&self.units).flat_map(|(i, unit)| self.partners(i, unit)).collect();
        let mut settled = false;
        while !settled {
            settled = true;
            for (a, b) in &pairs {
                if holds[*a] != holds[*b] {
                    (holds[*a], holds[*b]) = (false, false);
                    settled = false;
                }
            }
        }
        holds
    }

    fn partners(&self, i: usize, unit: &Unit) -> Vec<(usize, usize)> {
        let of = |id: &InstanceId| self.units.iter().position(|other| other.instance_id == *id);
        unit.stands_with.iter().filter_map(of).map(|other| (i, other)).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Committed (a unit), or still true (a check).
    Won,
    /// Somebody else moved the instance first: reload it and decide again.
    Lost,
    /// An idempotency key of this unit was used by a commit that came in between.
    KeyTaken,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Committed {
    /// Verdicts in the order of the batch: its units, then its checks.
    Done(Vec<Verdict>),
    /// The registry has moved on; nothing was written. Refresh it and decide everything again.
    RegistryMoved,
}

/// The one connection that writes. Owned by the committer.
#[async_trait]
pub trait Writer: Send {
    /// The processes among `ids` that exist, in any order.
    async fn load(&mut self, ids: &[InstanceId]) -> Result<Vec<Loaded>, StoreError>;
    async fn registry_since(&mut self, sequence: u64) -> Result<RegistryDelta, StoreError>;
    /// Stored answers for these (actor, key) pairs, unexpired ones only.
    async fn recall(&mut self, keys: &[(String, String)], now: Time) -> Result<Vec<IdempotencyRow>, StoreError>;
    async fn commit(&mut self, batch: &Batch) -> Result<Committed, StoreError>;
    /// Whether a step with this id ever was a step of this instance's action.
    async fn step_ended(
        &mut self,
        instance_id: InstanceId,
        action: &str,
        step_id: countersign_kernel::StepId,
    ) -> Result<bool, StoreError>;
    /// The record with this id, as it is stored now.
    async fn find_record(&mut self, event_id: EventId) -> Result<Option<RecordRow>, StoreError>;
    async fn find_hold(&mut self, hold_id: HoldId) -> Result<Option<HoldRow>, StoreError>;
    async fn steps(&mut self, of: StepsOf) -> Result<Vec<StepRow>, StoreError>;
    /// Which of these events (run, event id) the run has received before.
    async fn received(&mut self, events: &[(InstanceId, Arc<str>)]) -> Result<Vec<bool>, StoreError>;
    /// Steps and runs that are due at `until` or before, strictly behind `after` in their order (time, run, step; the run itself
    /// before its steps), at most `limit`. On PostgreSQL rows that another node is changing just now are skipped. Never scans
    /// what is not due.
    async fn due(&mut self, after: &Due, until: Time, limit: usize) -> Result<Vec<Due>, StoreError>;
    /// Overwrites what purges left behind in the database's own files (old pages, old row versions). Called after every
    /// purge, and again from time to time while it answers `false`: somebody still reads an older state.
    async fn scrub(&mut self) -> Result<bool, StoreError>;
    /// Deletes idempotency rows that expired before `now`, a bounded number per call.
    async fn forget_expired(&mut self, now: Time) -> Result<u64, StoreError>;
    /// How far the database's clock is ahead of ours, in microseconds.
    async fn clock_offset_us(&mut self) -> Result<i64, StoreError>;
}

/// Whose approval steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepsOf {
    Instance(InstanceId),
    /// A gate by its step's or chain's id.
    Gate(uuid::Uuid),
}

/// A page of a list: strictly after `after` in the order of ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub after: Option<uuid::Uuid>,
    pub limit: usize,
    pub descending: bool,
}

/// Filters are all optional and all must hold. Time ranges are inclusive at both ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Range {
    pub after: Option<Time>,
    pub before: Option<Time>,
}

#[derive(Clone, Debug, Default)]
pub struct ProcessQuery {
    pub instance_id: Option<InstanceId>,
    pub subject_ref: Option<String>,
    pub initiator_ref: Option<String>,
    pub started: Range,
    /// Only processes of these definitions, where the reader may not see all.
    pub definitions: Option<Vec<String>>,
    /// Of the definition.
    pub version: Option<u32>,
    pub current_state: Option<String>,
    /// How its subject or its id begins.
    pub q: Option<Beginning>,
    /// How much of the past is read.
    pub past: Past,
}

#[derive(Clone, Debug, Default)]
pub struct StepQuery {
    pub step_id: Option<countersign_kernel::StepId>,
    pub instance_id: Option<InstanceId>,
    pub subject_ref: Option<String>,
    pub approver_ref: Option<String>,
    pub submitter_ref: Option<String>,
    pub scope: Option<String>,
    pub state: Option<String>,
    pub submitted: Range,
    pub decided: Range,
    pub withdrawn: Range,
    pub sight: Option<Sight>,
}

/// Whose approval steps and assignments are seen by a reader who may not see all.
#[derive(Clone, Debug, Default)]
pub struct Sight {
    /// Processes of these definitions.
    pub processes: Vec<String>,
    /// Runs of these definitions; `None`: all runs.
    pub runs: Option<Vec<String>>,
}

#[derive(Clone, Debug, Default)]
pub struct AssignmentQuery {
    pub assignment_id: Option<countersign_kernel::AssignmentId>,
    pub task_ref: Option<countersign_kernel::StepId>,
    pub assignee_ref: Option<String>,
    pub status: Option<String>,
    pub sight: Option<Sight>,
}

#[derive(Clone, Debug, Default)]
pub struct RecordQuery {
    pub event_id: Option<EventId>,
    pub instance_id: Option<InstanceId>,
    pub action_ref: Option<String>,
    pub actor_ref: Option<String>,
    pub recorded: Range,
}

#[derive(Clone, Debug, Default)]
pub struct HoldQuery {
    pub hold_id: Option<HoldId>,
    pub record_ref: Option<EventId>,
    pub case_ref: Option<String>,
    /// Only those that stand, or only those that were released.
    pub released: Option<bool>,
}

/// Records that may be purged at a time, by the time from which on they may.
#[derive(Clone, Debug)]
pub struct PurgeableQuery {
    pub now: Time,
    /// Strictly after this one.
    pub after: Option<(Time, EventId)>,
    pub limit: usize,
    pub descending: bool,
}

/// Where something stands among what is due: what is never due comes last.
pub fn due_key(due_at: Option<Time>) -> i64 {
    due_at.map_or(i64::MAX, |at| at.0)
}

/// A step that is somebody's to do, with its run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChargedStep {
    pub run_id: InstanceId,
    pub definition_name: String,
    pub definition_version: u32,
    pub subject_ref: String,
    pub run_state: String,
    pub step: RunStepView,
}

/// Something in somebody's in-tray.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub assignment: AssignmentRow,
    pub step: StepRow,
    /// Whoever opened the gate.
    pub opened_by: String,
    pub is_run: bool,
    pub definition: Option<(String, u32)>,
    pub due_at: Option<Time>,
    pub quorum: Option<Quorum>,
    /// The caller is an approver of the same gate, or has decided a step of it.
    pub is_involved: bool,
    /// The label of the gate_spec that names the approver.
    pub guard: String,
}

/// How far the quorum has come that an approval belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quorum {
    pub rule: countersign_kernel::QuorumRule,
    pub approved: u64,
    pub rejected: u64,
    pub approvers: u64,
}

/// A process with its whole past: what `read_workflow` shows.
#[derive(Clone, Debug)]
pub struct ProcessView {
    pub row: ProcessRow,
    /// Where its chain of records stood when this was read.
    pub head: Head,
    pub current_state: String,
    pub declaration: Arc<[u8]>,
    pub gate_spec: Arc<[u8]>,
    pub history: Vec<TransitionRow>,
    /// Every gate that was ever opened, in the order of opening, with its steps.
    pub gates: Vec<GateWithSteps>,
}

/// Where a run or a process stands, and nothing else of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceHead {
    pub instance_id: InstanceId,
    pub is_run: bool,
    /// By name.
    pub definition: Option<String>,
    pub sequence: u64,
}

/// Reads, in parallel with the writer. They see what is committed.
#[async_trait]
pub trait Reader: Governance {
    async fn processes(&self, query: &ProcessQuery, page: &Page) -> Result<Vec<ProcessView>, StoreError>;
    async fn approval_steps(&self, query: &StepQuery, page: &Page) -> Result<Vec<StepRow>, StoreError>;
    /// Assignments, each with the step it stands for.
    async fn assignments(
        &self,
        query: &AssignmentQuery,
        page: &Page,
    ) -> Result<Vec<(AssignmentRow, StepRow)>, StoreError>;
    /// What waits for this person, soonest due first, then oldest first, behind this one; `asked_by` is who is asked about
    /// in [`Waiting::is_involved`].
    async fn inbox(
        &self,
        assignee_ref: &str,
        asked_by: &str,
        after: Option<(i64, uuid::Uuid)>,
        limit: usize,
    ) -> Result<Vec<Waiting>, StoreError>;
    async fn inbox_count(&self, assignee_ref: &str) -> Result<u64, StoreError>;
    /// Whether a gate of this process or run names this actor, or a step of it is in their charge.
    async fn is_party(&self, instance_id: InstanceId, actor_ref: &str) -> Result<bool, StoreError>;
    async fn records(&self, query: &RecordQuery, page: &Page) -> Result<Vec<RecordRow>, StoreError>;
    /// The records of all instances from `first` to `last`, by instance and sequence.
    async fn chains(&self, first: InstanceId, last: InstanceId) -> Result<Vec<RecordRow>, StoreError>;
    /// Processes with a record in this window, strictly after `after` in the order of ids.
    async fn instances_in(
        &self,
        window: &Range,
        after: Option<InstanceId>,
        limit: usize,
    ) -> Result<Vec<InstanceId>, StoreError>;
    async fn runs(&self, query: &RunQuery, page: &Page) -> Result<Vec<RunView>, StoreError>;
    /// How many there are, counted up to `most`.
    async fn count_runs(&self, query: &RunQuery, most: usize) -> Result<u64, StoreError>;
    /// Who is in charge of each of these steps, in the same order.
    async fn pics(&self, steps: &[(InstanceId, StepSeq)]) -> Result<Vec<Option<String>>, StoreError>;
    /// Where these runs and processes stand, those that exist, in any order.
    async fn heads(&self, ids: &[InstanceId]) -> Result<Vec<InstanceHead>, StoreError>;
    /// The steps of a run from this one on.
    async fn run_steps(&self, run_id: InstanceId, from: StepSeq, limit: usize) -> Result<Vec<RunStepView>, StoreError>;
    /// A run and its steps in one snapshot; with `since`, the steps that it chooses. Never reads more of the run than it has to.
    async fn run_cells(&self, run_id: InstanceId, since: Option<Since>) -> Result<Option<RunCells>, StoreError>;
    /// Live runs that an event with this key may concern, with their definitions, oldest first, behind `after`.
    async fn runs_by_correlation(
        &self,
        key: &str,
        after: Option<InstanceId>,
        limit: usize,
    ) -> Result<Vec<(InstanceId, String)>, StoreError>;
    /// Queued runs (not delayed beyond `now`), best priority then oldest first, behind the one of this priority and id; and how
    /// many runs with each of their concurrency keys have begun and not ended, per definition.
    async fn queued_runs(
        &self,
        now: Time,
        after: Option<(u8, InstanceId)>,
        limit: usize,
    ) -> Result<Vec<QueuedRun>, StoreError>;
    /// What was reopened in a run, by step and cycle.
    async fn corrections(&self, run_id: InstanceId) -> Result<Vec<CorrectionRow>, StoreError>;
    /// What is kept of the purged records of a run, see [`Write::Visits`](crate::rows::Write::Visits).
    async fn visits(&self, run_id: InstanceId) -> Result<Vec<(EventId, String)>, StoreError>;
    /// The steps that a person is in charge of and that are to be done, in live runs, soonest deadline first, behind this one.
    async fn charged(
        &self,
        pic: &str,
        after: Option<(i64, InstanceId, StepSeq)>,
        limit: usize,
    ) -> Result<Vec<ChargedStep>, StoreError>;
    /// The gates of a run, ended ones included, with their steps; with `actions`, only those of these.
    async fn run_gates(&self, run_id: InstanceId, actions: Option<&[String]>)
    -> Result<Vec<GateWithSteps>, StoreError>;
    /// The records that tell why attempts at this step failed, oldest first, behind `after`.
    async fn step_errors(
        &self,
        run_id: InstanceId,
        step_seq: StepSeq,
        after: Option<EventId>,
        limit: usize,
    ) -> Result<Vec<RecordRow>, StoreError>;
    /// The gates that a run has passed: what its shell fired, in order.
    async fn run_history(&self, run_id: InstanceId) -> Result<Vec<TransitionRow>, StoreError>;
    /// A document by its digest.
    async fn document(&self, digest: Digest) -> Result<Arc<[u8]>, StoreError>;
    /// A definition's document as it was published.
    async fn definition_source(&self, name: &str, version: u32) -> Result<Option<Arc<str>>, StoreError>;
    async fn holds(&self, query: &HoldQuery, page: &Page) -> Result<Vec<HoldRow>, StoreError>;
    /// Each with the holds that keep it for now.
    async fn purgeable(&self, query: &PurgeableQuery) -> Result<Vec<(RecordRow, Vec<HoldRow>)>, StoreError>;
    async fn registry_since(&self, sequence: u64) -> Result<RegistryDelta, StoreError>;
    /// Answers when the store can be read.
    async fn ping(&self) -> Result<(), StoreError>;
}

/// A writer and a reader of one log.
pub type LogParts = (Box<dyn LogWriter>, Arc<dyn LogReader>);

/// How nodes on one store tell each other something at once. What is said may be lost.
#[async_trait]
pub trait Bell: Send {
    /// Says this to every node that listens, to this one too.
    async fn ring(&mut self, words: &[String]) -> Result<(), StoreError>;
    /// The next thing that somebody said. Nothing is lost where the caller stops waiting.
    async fn hear(&mut self) -> Result<String, StoreError>;
}

/// A store, opened and migrated.
pub trait Store: Send {
    fn into_parts(self: Box<Self>) -> (Box<dyn Writer>, Arc<dyn Reader>);
    /// The log of this store. Each writer has a connection of its own and makes it when it is first needed.
    fn log(&self) -> Result<LogParts, StoreError>;
    /// The outbox of this store, with a connection of its own, made when it is first needed.
    fn outbox(&self) -> Result<Box<dyn Outbox>, StoreError>;
    /// The sessions of browsers.
    fn sessions(&self) -> Box<dyn Sessions>;
    /// What nodes have seen of workers and of lag.
    fn monitor(&self) -> Box<dyn MonitorStore>;
    /// `None` where no other node can be there, or nothing can be said.
    fn bell(&self) -> Option<Box<dyn Bell>> {
        None
    }
    /// True where no other process can write to it: then a cached instance is always current.
    fn is_exclusive(&self) -> bool;
    /// True where the writer waits for nothing but its own system calls: then a caller may commit on its own thread.
    fn commits_in_place(&self) -> bool {
        false
    }
    /// `sqlite` or `postgres`, for logs and metrics.
    fn kind(&self) -> &'static str;
}
