//! A workflow's plan: the graph of steps that a definition declares, as a value. A run carries the plan it
//! was started with and never asks for another one.
//!
//! Expressions and templates are texts here: the kernel passes them to a [`Language`], which is a pure
//! function of its arguments, and never looks inside.

mod language;

pub use language::{ExpressionError, Language, Scope, Secrets, Steps};

use crate::gate_spec::{GateEntry, GateSpec};
use crate::lifecycle::FailureCategory;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

/// A length of time in microseconds.
pub type Micros = i64;

/// The place of a step in its plan, counted from 0: seed 001's `step_seq`.
pub type StepSeq = u32;

/// One CEL expression, without its `${…}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Expression(pub Arc<str>);

/// A JSON text whose strings may hold `${…}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Template(pub Arc<str>);

/// A JSON Schema, as JSON text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Schema(pub Arc<str>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub order: Order,
    /// In the order of the definition: the position is the step's `step_seq`.
    pub steps: Vec<StepSpec>,
    pub compensation: Vec<CompensationSpec>,
    pub failure_policy: FailurePolicy,
    /// From the first `executing` on, time in `blocked` counted.
    pub timeout: Option<Micros>,
    /// Executing time only.
    pub hard_cap: Option<Micros>,
    /// 0–9; 9 goes first.
    pub priority: u8,
    pub correlation_key: Option<Template>,
    pub concurrency: Option<Concurrency>,
    pub queues: BTreeMap<String, QueueLimit>,
    pub schedule: Vec<Schedule>,
    /// Events that start a run.
    pub on: Vec<Trigger>,
    /// Entries by label: those of `gate:`, and `reopen`, `cancel`, `resume`, `void`, `sovereign`.
    pub gate_spec: GateSpec,
    pub blocked_escalation: BlockedEscalation,
    /// What its steps move by, where it is not the engine's own.
    pub machine: Option<MachineRef>,
    pub input_schema: Option<Schema>,
    /// What the run as a whole yields.
    pub output: Option<Template>,
    /// The steps whose input or output some expression, template or compensation needs later on, ascending. Only
    /// their outputs are kept at hand.
    pub referenced: Vec<StepSeq>,
    pub graph: Graph,
}

/// A state machine of one's own, as a definition names it. A run takes the newest version where none is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineRef {
    pub name: String,
    pub version: Option<u32>,
}

/// Who follows whom, who bears which name, and how deep in the graph a step stands: worked out from the steps when it is
/// first asked for.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    followers: OnceLock<Vec<Vec<StepSeq>>>,
    names: OnceLock<HashMap<Arc<str>, StepSeq>>,
    ranks: OnceLock<Ranks>,
    tasks: OnceLock<Tasks>,
}

/// The tasks of all steps, in their order: each as what its cell needs to know of it.
#[derive(Clone, Debug, Default)]
struct Tasks {
    specs: Vec<StepSpec>,
    /// The place of each step's first task among them, and behind the last step their number.
    first: Vec<StepSeq>,
    names: HashMap<Arc<str>, StepSeq>,
}

/// The steps in the order in which their turn comes: by the length of the longest chain that leads to them; of those at
/// the same depth, the one with the longest chain behind it first.
#[derive(Clone, Debug, Default)]
struct Ranks {
    order: Vec<StepSeq>,
    rank: Vec<StepSeq>,
    depth: Vec<u32>,
    /// The dependency by which the longest chain comes.
    deepest: Vec<Option<StepSeq>>,
    has_optional: bool,
}

impl PartialEq for Graph {
    /// It says nothing that the steps do not say.
    fn eq(&self, _: &Graph) -> bool {
        true
    }
}

impl Eq for Graph {}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Each step follows the one before it.
    Linear,
    Dag,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailurePolicy {
    Abort,
    Compensate,
    /// A runbook: whatever is not as it should be stops the run.
    FailClosed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepSpec {
    pub name: Arc<str>,
    pub work: Work,
    /// Steps that must have ended before this one, ascending. In a chain: the one before.
    pub depends_on: Vec<StepSeq>,
    pub when: Option<Expression>,
    /// `None`: the run's input.
    pub input: Option<Template>,
    /// Replaces what the work yields; may use `output`.
    pub output: Option<Template>,
    pub input_schema: Option<Schema>,
    pub output_schema: Option<Schema>,
    pub retry: RetryPolicy,
    /// From the first in_progress or blocked, over all attempts.
    pub timeout: Option<Micros>,
    /// After `ready`; beyond it the step is overdue.
    pub deadline: Option<Micros>,
    /// How long it may be ready and unclaimed; beyond it the step is overdue.
    pub schedule_to_start: Option<Micros>,
    pub on_failure: OnFailure,
    /// Never rolls up.
    pub optional: bool,
    pub read_only: bool,
    pub idempotent: bool,
    /// A label of the gate_spec.
    pub gate: Option<String>,
    /// What the approver is shown and decides on: a JSON object, with `${…}` inside.
    pub request: Option<Template>,
    /// The steps whose outputs it uses: its approver is shown them where `request` says nothing else.
    pub uses: Vec<StepSeq>,
    pub checks: Vec<(Arc<str>, Expression)>,
    pub pins: Vec<PinSpec>,
    /// Since it was claimed.
    pub soft_cap: Option<Micros>,
    /// Files that it leaves, relative to its working directory.
    pub artifacts: Vec<Arc<str>>,
    /// What the run's phase is called once this step is complete.
    pub phase: Option<Arc<str>>,
    /// The group that readers are shown it in.
    pub category: Option<Arc<str>>,
    pub errors: ErrorResponses,
    /// Where workers claim it. Work of the engine's own executors is claimed from their queues, see [`Work::queue`].
    pub queue: Arc<str>,
    /// 0–9, in place of the run's.
    pub priority: Option<u8>,
    pub tasks: Vec<TaskSpec>,
}

/// Something of the world outside that must stay as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinSpec {
    pub name: Arc<str>,
    /// Shell, http or a worker.
    pub work: Work,
    /// Where a worker looks at it.
    pub queue: Arc<str>,
    pub timeout: Micros,
}

/// Who or what carries a step out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    Worker,
    /// The command, its environment, and the exit codes that mean success and retry.
    Shell(ShellWork),
    Http(HttpWork),
    /// A gate and nothing else.
    Approval(GateEntry),
    Wait(WaitWork),
    /// A run of another definition; the version was fixed when this one was published.
    Workflow {
        name: String,
        version: Option<u32>,
    },
    Human {
        /// Who is in charge; may hold `${…}`.
        pic: Option<Template>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShellWork {
    /// A JSON string (for `sh -c`) or list of strings (run as it is), with `${…}` inside.
    pub command: Template,
    /// A JSON object of strings; may use `secrets`.
    pub env: Option<Template>,
    pub success: Vec<i32>,
    pub retry: Vec<i32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpWork {
    pub method: String,
    pub url: Template,
    /// A JSON object of strings; may use `secrets`.
    pub headers: Option<Template>,
    pub body: Option<Template>,
    pub success: Vec<StatusClass>,
    pub retry: Vec<StatusClass>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusClass {
    /// One status, such as 429.
    Code(u16),
    /// `5xx` is `Hundred(5)`.
    Hundred(u8),
    /// No answer at all.
    Network,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitWork {
    Event {
        event_type: String,
        timeout: Option<Micros>,
    },
    For(Micros),
    /// A time in RFC 3339.
    Until(Template),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskSpec {
    pub name: String,
    pub work: Work,
    /// From its turn on.
    pub deadline: Option<Micros>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnFailure {
    Abort,
    Skip,
    Compensate,
    Hold,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RetryPolicy {
    pub max_retries: u32,
    pub backoff: Backoff,
    pub initial_delay: Micros,
    pub max_delay: Micros,
    pub jitter: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backoff {
    Constant,
    Linear,
    Exponential,
}

impl RetryPolicy {
    pub const DEFAULT: RetryPolicy = RetryPolicy {
        max_retries: 3,
        backoff: Backoff::Exponential,
        initial_delay: 1_000_000,
        max_delay: 60_000_000,
        jitter: false,
    };

    /// Seed 001's `max_attempts`.
    pub const fn max_attempts(&self) -> u32 {
        self.max_retries.saturating_add(1)
    }

    /// The delay before retry `n`, counted from 1, without jitter.
    pub fn delay(&self, n: u32) -> Micros {
        let factor = match self.backoff {
            Backoff::Constant => 1,
            Backoff::Linear => i64::from(n),
            Backoff::Exponential => 1_i64.checked_shl(n.saturating_sub(1)).filter(|f| *f > 0).unwrap_or(i64::MAX),
        };
        self.initial_delay.saturating_mul(factor).min(self.max_delay)
    }
}

/// What follows an agent_error or an external failure of this step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ErrorResponses {
    pub agent_error: Option<ErrorResponse>,
    pub external: Option<ErrorResponse>,
}

impl ErrorResponses {
    pub const fn of(&self, category: FailureCategory) -> Option<ErrorResponse> {
        match category {
            FailureCategory::AgentError => self.agent_error,
            FailureCategory::External => self.external,
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorResponse {
    Retry,
    Skip,
    Abort,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompensationSpec {
    /// The step it undoes.
    pub step: StepSeq,
    /// What is to be done, for the agent.
    pub action: String,
    /// Who undoes it: the queue from which workers claim it.
    pub agent: Arc<str>,
    /// Worker, shell or http.
    pub work: Work,
    /// From the first attempt, over all attempts.
    pub timeout: Option<Micros>,
    /// A failure waits for an operator instead of ending the run.
    pub hold: bool,
}

impl CompensationSpec {
    pub fn claim_queue(&self) -> &str {
        self.work.queue().unwrap_or(&self.agent)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concurrency {
    pub key: Template,
    pub limit: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct QueueLimit {
    pub limit: Option<u32>,
    pub rate: Option<Rate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    pub count: u32,
    pub per: Micros,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    pub cron: String,
    pub time_zone: String,
    pub input: Option<Template>,
    pub overlap: Overlap,
    /// How far back ticks are started that fell while no server was up; 0: they are lost.
    pub catch_up: Micros,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    Skip,
    Queue,
    Allow,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    pub event_type: String,
    /// May use `event`; `None`: the event's data.
    pub input: Option<Template>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockedEscalation {
    pub after: Micros,
    /// A block that has lasted longer is escalated only with an approval (MP-D4). `None`: half of `after`.
    pub review_after: Option<Micros>,
    /// `None`: DAGs only.
    pub critical_path: Option<bool>,
}

impl Default for BlockedEscalation {
    fn default() -> Self {
        BlockedEscalation { after: 4 * 3600 * 1_000_000, review_after: None, critical_path: None }
    }
}

impl Work {
    pub const fn as_str(&self) -> &'static str {
        match self {
            Work::Worker => "worker",
            Work::Shell(_) => "shell",
            Work::Http(_) => "http",
            Work::Approval(_) => "approval",
            Work::Wait(_) => "wait",
            Work::Workflow { .. } => "workflow",
            Work::Human { .. } => "human",
        }
    }

    /// Whether workers, or the engine's own executors, claim it; the rest goes on by itself or by a person.
    pub const fn is_claimed(&self) -> bool {
        match self {
            Work::Worker | Work::Shell(_) | Work::Http(_) | Work::Workflow { .. } => true,
            Work::Approval(_) | Work::Wait(_) | Work::Human { .. } => false,
        }
    }

    /// The queue of the engine's own executor for this work. No definition can name it: a name has no `@`.
    pub const fn queue(&self) -> Option<&'static str> {
        match self {
            Work::Shell(_) => Some("@shell"),
            Work::Http(_) => Some("@http"),
            Work::Workflow { .. } => Some("@workflow"),
            Work::Worker | Work::Approval(_) | Work::Wait(_) | Work::Human { .. } => None,
        }
    }
}

impl StepSpec {
    pub fn claim_queue(&self) -> &str {
        self.work.queue().unwrap_or(&self.queue)
    }

    /// Whether workers claim it. A worker's step with tasks is none of theirs: they claim the tasks.
    pub const fn is_claimed(&self) -> bool {
        self.work.is_claimed() && self.tasks.is_empty()
    }

    /// It is done by its tasks alone: nobody claims it, and it begins by itself.
    pub const fn is_frame(&self) -> bool {
        matches!(self.work, Work::Worker) && !self.tasks.is_empty()
    }

    /// A task of this step as a piece of work of its own: on the step's input, from its queue, with as many attempts.
    fn task(&self, seq: StepSeq, task: &TaskSpec) -> StepSpec {
        StepSpec {
            name: format!("{}/{}", self.name, task.name).into(),
            work: task.work.clone(),
            depends_on: vec![seq],
            when: None,
            output: None,
            output_schema: None,
            timeout: None,
            deadline: task.deadline,
            gate: None,
            request: None,
            uses: vec![],
            checks: vec![],
            pins: vec![],
            soft_cap: None,
            artifacts: vec![],
            phase: None,
            category: None,
            tasks: vec![],
            ..self.clone()
        }
    }

    /// Whether an attempt without a verdict may simply be made again or undone.
    pub const fn is_repeatable(&self) -> bool {
        self.read_only || self.idempotent
    }
}

impl Plan {
    /// Dangerous work in small steps: fail-closed, and one after the other.
    pub fn is_runbook(&self) -> bool {
        self.failure_policy == FailurePolicy::FailClosed && self.order == Order::Linear
    }

    /// The step, or the task: tasks are numbered on behind the steps.
    pub fn step(&self, seq: StepSeq) -> Option<&StepSpec> {
        let place = seq as usize;
        self.steps.get(place).or_else(|| self.tasks().specs.get(place - self.steps.len()))
    }

    /// How many cells a run of it begins with: its steps, and behind them their tasks.
    pub fn cell_count(&self) -> usize {
        self.steps.len() + self.tasks().specs.len()
    }

    /// The tasks of this step, in their order.
    pub fn tasks_of(&self, step: StepSeq) -> std::ops::Range<StepSeq> {
        let (place, behind) = (step as usize, StepSeq::try_from(self.steps.len()).unwrap_or(StepSeq::MAX));
        match self.tasks().first.get(place..place + 2) {
            Some(&[first, next]) => behind + first..behind + next,
            _ => 0..0,
        }
    }

    /// The step that this is a task of.
    pub fn step_of_task(&self, seq: StepSeq) -> Option<StepSeq> {
        let place = (seq as usize).checked_sub(self.steps.len())?;
        self.tasks().specs.get(place)?.depends_on.first().copied()
    }

    /// The step of that name, or the task that is called `step/task`.
    pub fn cell_named(&self, name: &str) -> Option<StepSeq> {
        self.step_named(name).or_else(|| self.tasks().names.get(name).copied())
    }

    fn tasks(&self) -> &Tasks {
        self.graph.tasks.get_or_init(|| {
            let mut tasks = Tasks::default();
            for (seq, step) in (0..).zip(&self.steps) {
                tasks.first.push(StepSeq::try_from(tasks.specs.len()).unwrap_or(StepSeq::MAX));
                tasks.specs.extend(step.tasks.iter().map(|task| step.task(seq, task)));
            }
            tasks.first.push(StepSeq::try_from(tasks.specs.len()).unwrap_or(StepSeq::MAX));
            let behind = StepSeq::try_from(self.steps.len()).unwrap_or(StepSeq::MAX);
            tasks.names = (behind..).zip(&tasks.specs).map(|(seq, task)| (task.name.clone(), seq)).collect();
            tasks
        })
    }

    pub fn step_named(&self, name: &str) -> Option<StepSeq> {
        let names =
            self.graph.names.get_or_init(|| (0..).zip(&self.steps).map(|(seq, s)| (s.name.clone(), seq)).collect());
        names.get(name).copied()
    }

    pub fn compensation_of(&self, seq: StepSeq) -> Option<&CompensationSpec> {
        self.compensation.iter().find(|entry| entry.step == seq)
    }

    /// The steps that wait for this one, ascending.
    pub fn dependents(&self, seq: StepSeq) -> &[StepSeq] {
        let followers = self.graph.followers.get_or_init(|| {
            let mut followers = vec![Vec::new(); self.steps.len()];
            for (later, step) in (0..).zip(&self.steps) {
                for earlier in &step.depends_on {
                    if let Some(list) = followers.get_mut(*earlier as usize) {
                        list.push(later);
                    }
                }
            }
            followers
        });
        followers.get(seq as usize).map_or(&[], Vec::as_slice)
    }

    /// The step whose turn comes at this place, counted from 0.
    pub fn by_rank(&self, rank: StepSeq) -> Option<StepSeq> {
        self.ranks().order.get(rank as usize).copied()
    }

    pub fn rank(&self, seq: StepSeq) -> Option<StepSeq> {
        self.ranks().rank.get(seq as usize).copied()
    }

    /// How many steps the longest chain of dependencies has that reaches this one.
    pub fn depth(&self, seq: StepSeq) -> u32 {
        self.ranks().depth.get(seq as usize).copied().unwrap_or(0)
    }

    /// The longest chain of dependencies that reaches this step, backwards from it.
    pub fn critical_path(&self, to: Option<StepSeq>) -> impl Iterator<Item = StepSeq> {
        std::iter::successors(to, |seq| self.ranks().deepest.get(*seq as usize).copied().flatten())
    }

    pub fn has_optional_steps(&self) -> bool {
        self.ranks().has_optional
    }

    fn ranks(&self) -> &Ranks {
        self.graph.ranks.get_or_init(|| {
            let count = self.steps.len();
            let (mut depth, mut height) = (vec![0_u32; count], vec![0_u32; count]);
            let mut deepest: Vec<Option<StepSeq>> = vec![None; count];
            let mut open: Vec<usize> = self.steps.iter().map(|step| step.depends_on.len()).collect();
            let roots = (0..).zip(&open).filter(|(_, open)| **open == 0).map(|(seq, _)| seq);
            let mut sorted: Vec<StepSeq> = roots.collect();
            let mut at = 0;
            while let Some(seq) = sorted.get(at).copied() {
                at += 1;
                for later in self.dependents(seq) {
                    let place = *later as usize;
                    // Of chains of the same length, the one by the earliest step.
                    if depth[seq as usize] + 1 > depth[place] {
                        depth[place] = depth[seq as usize] + 1;
                        deepest[place] = Some(seq);
                    }
                    open[place] -= 1;
                    if open[place] == 0 {
                        sorted.push(*later);
                    }
                }
            }
            for seq in sorted.iter().rev() {
                let behind = self.dependents(*seq).iter().map(|later| height[*later as usize] + 1);
                height[*seq as usize] = behind.max().unwrap_or(0);
            }
            sorted.sort_by_key(|seq| (depth[*seq as usize], std::cmp::Reverse(height[*seq as usize]), *seq));
            let mut rank = vec![0; count];
            for (place, seq) in (0..).zip(&sorted) {
                rank[*seq as usize] = place;
            }
            Ranks { order: sorted, rank, depth, deepest, has_optional: self.steps.iter().any(|step| step.optional) }
        })
    }

    pub fn is_referenced(&self, seq: StepSeq) -> bool {
        self.referenced.binary_search(&seq).is_ok()
    }
}
