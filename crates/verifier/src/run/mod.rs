//! A run, replayed from its records (`spec/run.md`): every transition of a step and of the run is declared and follows the
//! one before, what completes has an output, what is undone is undone in order, and no gate is passed without an approval.
//! The gates themselves are those of a process, and are judged there.

mod acts;
pub mod definition;
mod follow;
mod gates;
mod inputs;
mod machine;
pub mod own;
mod people;
pub mod read;
mod runbook;

use crate::bytes::{Digest, Id};
use crate::finding::{Claim, Code};
use crate::origins::Origin;
use crate::process::{Context, Process};
use crate::record::{Action, Header, Record};
use crate::replays::Retry;
use definition::Workflow;
use own::OwnMachine;
use read::{Ranges, Told, told};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// A step, a task, or a compensation.
#[derive(Debug)]
pub struct Step {
    pub name: String,
    pub compensates: Option<usize>,
    /// The step that it is a part of.
    task_of: Option<usize>,
    pub state: &'static str,
    /// It is blocked by its gate, not by somebody.
    gated: bool,
    /// Since when it is blocked, where it is; and whether somebody has escalated that.
    blocked_since_us: Option<i64>,
    escalated: bool,
    /// It is overdue because nobody has claimed it.
    unclaimed: bool,
    pub taken_over: bool,
    pub attempts: i64,
    pub last_error: Option<String>,
    pub category: Option<String>,
    pub effect_unknown: bool,
    pub child: Option<Id>,
    pub started_at_us: Option<i64>,
    pub completed_at_us: Option<i64>,
    pub output: Option<Told>,
    pub charge: people::Charge,
    /// What lies over its state, in a machine of one's own.
    pub derived: Option<String>,
    /// Who reported on it, in order, each once in a row.
    pub by: Vec<Rc<str>>,
}

impl Step {
    fn new(name: String, compensates: Option<usize>) -> Step {
        Step {
            name,
            compensates,
            task_of: None,
            state: "not_started",
            blocked_since_us: None,
            escalated: false,
            unclaimed: false,
            gated: false,
            taken_over: false,
            attempts: 0,
            last_error: None,
            category: None,
            effect_unknown: false,
            child: None,
            started_at_us: None,
            completed_at_us: None,
            output: None,
            charge: people::Charge::default(),
            derived: None,
            by: vec![],
        }
    }
}

/// What the run was started with, besides what a process has.
#[derive(Debug)]
pub struct Begin {
    pub document_digest: Digest,
    pub priority: i64,
    pub start_at_us: Option<i64>,
    pub input: Told,
    /// Texts and ids as they stand there, by member.
    pub texts: HashMap<&'static str, String>,
    pub parent_step_seq: Option<i64>,
    /// Over the outputs of the steps that were taken over.
    pub outputs_digest: Option<Digest>,
}

/// What the command whose records are arriving did, for what can be judged only at its end.
#[derive(Debug, Default)]
struct Command {
    opened: Vec<String>,
    approved: Vec<String>,
    fired: Vec<(String, Header)>,
    mooted: Vec<(String, Header)>,
    /// Steps that X8 blocked, that X8r cleared, and that left `blocked` for failed or cancelled.
    blocked: Vec<usize>,
    cleared: Vec<usize>,
    dropped: Vec<usize>,
    /// The gates whose approval the run's own record spends, and by which approval.
    spends: Vec<(String, String)>,
    spent: Vec<(String, Option<String>)>,
    /// The run ended, or began to compensate.
    over: bool,
    /// It stopped; or it was resumed, and pins were pinned anew.
    stops: bool,
    repinned: bool,
    /// Compensations that are due and that no record of it has listed yet.
    unlisted: Vec<(usize, usize)>,
}

#[derive(Debug)]
pub struct Run {
    workflow: Option<Rc<Workflow>>,
    machine: Option<Rc<OwnMachine>>,
    pub machine_digest: Option<Digest>,
    pub begin: Option<Begin>,
    /// What inside the engine started it.
    pub origin: Option<Origin>,
    /// Steps that were taken up again as dead letters.
    pub retries: Vec<Retry>,
    /// The types of the events that its steps sent.
    pub sent: HashSet<String>,
    pub steps: Vec<Step>,
    pub state: &'static str,
    pub outcome: Option<String>,
    pub last_error: Option<String>,
    pub output: Option<Told>,
    pub executing_since_us: Option<i64>,
    pub completed_at_us: Option<i64>,
    pub failed_at_us: Option<i64>,
    /// It has begun to undo its work.
    undoing: bool,
    /// It was cancelled with `compensate`: it is cancelled, and not completed, once that is undone.
    called_off: bool,
    /// What it did cannot be told from here on: a record was purged, or could not be read.
    pub lost: bool,
    command: Command,
    last: Option<Header>,
    ended: bool,
    book: runbook::Runbook,
}

const STARTED_TEXTS: [&str; 5] = ["correlation_key", "concurrency_key", "corrects", "continues", "parent_run_id"];

impl Run {
    pub fn new() -> Run {
        Run {
            workflow: None,
            machine: None,
            machine_digest: None,
            begin: None,
            origin: None,
            retries: vec![],
            sent: HashSet::new(),
            steps: vec![],
            state: "idle",
            outcome: None,
            last_error: None,
            output: None,
            executing_since_us: None,
            completed_at_us: None,
            failed_at_us: None,
            undoing: false,
            called_off: false,
            lost: false,
            command: Command::default(),
            last: None,
            ended: false,
            book: runbook::Runbook::default(),
        }
    }

    /// The definition that it was started under, where it could be read.
    pub fn workflow(&self) -> Option<Rc<Workflow>> {
        self.workflow.clone()
    }

    /// Before the process beside it takes the next record of the chain.
    pub fn before(&mut self, header: &Header, process: &Process, ctx: &mut Context<'_>) {
        if self.last.as_ref().is_some_and(|last| last.recorded_at_us != header.recorded_at_us) {
            self.end_command(process, ctx);
        }
    }

    /// Takes that record, after the process beside it.
    pub fn take(&mut self, record: &Record, process: &Process, ctx: &mut Context<'_>) {
        let header = &record.header;
        self.last = Some(header.clone());
        let aside = matches!(
            header.action,
            Action::EvidenceExported
                | Action::HoldPlaced
                | Action::HoldReleased
                | Action::RecordPurged
                | Action::AttemptRefused
        );
        if aside {
            return;
        }
        if self.ended && !self.lost && !self.may_be_voided(record) {
            let detail = format!("the run had ended ({}), and this follows", self.state);
            ctx.findings.find(Code::UndeclaredTransition, header, detail);
        }
        if header.action == Action::TransitionFired
            && !ctx.registry.is_application_actor(&header.actor_ref, header.registry_seq)
        {
            let detail =
                format!("a gate of a run is consumed by the application actor, this is by `{}`", header.actor_ref);
            ctx.findings.find(Code::StatementMismatch, header, detail);
        }
        let Some(payload) = record.payload() else {
            self.lost = true;
            return;
        };
        if !header.action.is_run() {
            if header.action == Action::GateOpened && self.book.dry {
                ctx.findings.find(Code::RunbookViolation, header, "a dry run opens a gate");
            }
            return self.note_gate(header, payload, ctx);
        }
        ctx.findings.checked(Claim::DeclaredPath);
        if header.action == Action::RunStarted
            && header.sequence == 1
            && self.start(header, payload, process, ctx).is_none()
        {
            let detail = "the payload is not that of a `run_started`";
            ctx.findings.find(Code::BundleForm, header, detail);
            self.lost = true;
        }
        if header.action == Action::RunStarted && header.sequence != 1 {
            ctx.findings.find(Code::RecordMissing, header, "a second start: the run was started before");
            return;
        }
        let sent = payload.given("outbound_events").and_then(crate::json::Value::as_list).unwrap_or_default();
        self.sent.extend(sent.iter().filter_map(|event| event.text("type")).map(str::to_owned));
        let steps = (!self.lost).then_some(self.steps.len());
        match read::read(payload, header.action, steps) {
            Some(moves) if !self.lost => self.follow(header, &moves, process, ctx),
            Some(_) => {}
            None => {
                let detail = format!("the payload is not that of a `{}`", header.action.as_str());
                ctx.findings.find(Code::BundleForm, header, detail);
                self.lost = true;
            }
        }
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.state, "completed" | "failed" | "cancelled" | "voided")
    }

    /// A step of another run.
    pub fn is_child(&self) -> bool {
        self.begin.as_ref().is_some_and(|begin| begin.texts.contains_key("parent_run_id"))
    }

    /// A run that failed or was cancelled may still be voided, by its gate.
    fn may_be_voided(&self, record: &Record) -> bool {
        let action = |payload: &crate::json::Value| {
            payload.text("action").or(payload.text("moot_action")).is_some_and(|action| action == "void")
        };
        let of_gate = !record.header.action.is_run() && record.payload().is_some_and(action);
        matches!(self.state, "failed" | "cancelled") && (record.header.action == Action::RunVoided || of_gate)
    }

    fn start(
        &mut self,
        header: &Header,
        payload: &crate::json::Value,
        process: &Process,
        ctx: &mut Context<'_>,
    ) -> Option<()> {
        let document_digest = Digest::parse(payload.text("document_digest")?)?;
        if let Some(origin) = payload.given("origin") {
            self.origin = Some(Origin::read(origin, header)?);
            if !ctx.registry.is_application_actor(&header.actor_ref, header.registry_seq) {
                let detail = format!(
                    "what has an origin is started by the application actor, this is by `{}`",
                    header.actor_ref
                );
                ctx.findings.find(Code::StatementMismatch, header, detail);
            }
        }
        let mut texts = HashMap::new();
        for name in STARTED_TEXTS {
            if let Some(value) = payload.given(name) {
                texts.insert(name, value.as_text()?.to_owned());
            }
        }
        let optional = |name: &str| match payload.given(name) {
            None => Some(None),
            Some(value) => value.as_int().map(Some),
        };
        let taken = payload.given("taken_over");
        let mut begin = Begin {
            document_digest,
            priority: payload.int("priority")?,
            start_at_us: optional("start_at_us")?,
            input: told(payload, "input")??,
            texts,
            parent_step_seq: optional("parent_step_seq")?,
            outputs_digest: None,
        };
        let count = payload.int("steps")?;
        let tasks = optional("tasks")?.unwrap_or(0);
        self.check_document(header, document_digest, (count, tasks), ctx);
        self.check_machine(header, payload, ctx);
        if let Some(taken) = taken {
            for state in ["completed", "skipped"] {
                self.take_over(&Ranges::parse(taken.text(state)?)?, state)?;
            }
            begin.outputs_digest = Some(Digest::parse(taken.text("outputs_digest")?)?);
            let left = |task: &Step| !task.taken_over;
            let bare = (0..self.planned()).find(|seq| {
                self.steps.get(*seq).is_some_and(|step| step.taken_over) && self.tasks_of(*seq).iter().any(left)
            });
            if let Some(seq) = bare {
                let detail = format!("step {seq} is taken over without its tasks");
                ctx.findings.find(Code::UndeclaredTransition, header, detail);
            }
        }
        self.begin = Some(begin);
        self.begin_runbook(header, payload, process, ctx);
        Some(())
    }

    fn take_over(&mut self, seqs: &Ranges, state: &'static str) -> Option<()> {
        if seqs.last().is_some_and(|last| last >= self.steps.len()) {
            return if self.lost { Some(()) } else { None };
        }
        for seq in seqs.iter() {
            let step = self.steps.get_mut(seq)?;
            step.state = state;
            step.taken_over = true;
        }
        Some(())
    }

    /// The definition is there, is the published one, and has as many steps and tasks as the record says.
    fn check_document(&mut self, header: &Header, digest: Digest, (count, tasks): (i64, i64), ctx: &mut Context<'_>) {
        ctx.findings.checked(Claim::DeclaredPath);
        self.workflow = ctx.documents.workflow(digest);
        match &self.workflow {
            None => {
                let detail = format!("no definition of a workflow with the digest {digest} is in the bundle");
                ctx.findings.find(Code::DocumentMismatch, header, detail);
                self.lost = true;
            }
            Some(workflow) => {
                let known = workflow.steps.len();
                if usize::try_from(count).ok() != Some(known) {
                    let detail = format!("started with {count} steps, the definition has {known}");
                    ctx.findings.find(Code::DocumentMismatch, header, detail);
                }
                let parts = workflow.tasks.len();
                if usize::try_from(tasks).ok() != Some(parts) {
                    let detail = format!("started with {tasks} tasks, the definition has {parts}");
                    ctx.findings.find(Code::DocumentMismatch, header, detail);
                }
                let steps = workflow.steps.iter().map(|step| Step::new(step.name.clone(), None));
                let task =
                    |(name, step): &(String, usize)| Step { task_of: Some(*step), ..Step::new(name.clone(), None) };
                self.steps = steps.chain(workflow.tasks.iter().map(task)).collect();
            }
        }
    }

    /// How many steps the definition has; their tasks stand behind them.
    fn planned(&self) -> usize {
        self.workflow.as_ref().map_or(0, |workflow| workflow.steps.len())
    }

    /// How many steps and tasks it has; compensations stand behind them.
    fn with_tasks(&self) -> usize {
        self.planned() + self.workflow.as_ref().map_or(0, |workflow| workflow.tasks.len())
    }

    /// The tasks of this step.
    fn tasks_of(&self, step: usize) -> &[Step] {
        let spec = self.workflow.as_ref().and_then(|workflow| workflow.steps.get(step));
        let places = spec.map_or(0..0, |spec| self.planned() + spec.tasks.start..self.planned() + spec.tasks.end);
        self.steps.get(places).unwrap_or_default()
    }

    /// After the last record.
    pub fn finish(&mut self, process: &Process, ctx: &mut Context<'_>) {
        self.end_command(process, ctx);
    }
}
