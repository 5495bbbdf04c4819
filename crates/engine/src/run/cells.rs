//! What is drawn of a run: every step in short, or those that changed since a record of the run (ADR 41). The records name the
//! steps that they changed, so nothing has to be kept for this: not by the writer, not in memory.

use crate::port::{HeldStep, Page, RunCells, RunQuery, RunStepView, RunView, Since};
use crate::purge::ranges;
use crate::reads::sees;
use crate::rows::RecordRow;
use crate::run::rollup::{Basis, counted, stored};
use crate::{Engine, store_failure};
use countersign_kernel::InstanceId;
use countersign_kernel::lifecycle::StepCode;
use countersign_kernel::plan::{Plan, StepSeq};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::scopes;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

/// Whoever missed more records than this is given the whole run.
const RECORDS: usize = 200;
/// No run has more steps.
const STEPS: usize = 1 << 24;

/// The members of a run's record that name the steps they are about (`spec/run.md`).
const NAMING: &[&str] = &[
    "transitions",
    "leases",
    "waits",
    "outputs",
    "charges",
    "sla",
    "errors",
    "severities",
    "children",
    "checks",
    "refused",
    "artifacts",
    "yielded",
    "effect",
];

/// What a caller is shown of a run.
#[derive(Debug)]
pub struct Cells {
    pub run: RunView,
    pub plan: Arc<Plan>,
    /// Its colour and progress, of the same state as the steps.
    pub basis: Basis,
    /// What is shown: all steps where `full`, else those that changed.
    pub steps: Vec<RunStepView>,
    pub full: bool,
    /// The steps that are held up by a step before them.
    pub downstream: BTreeSet<StepSeq>,
    /// What it cost: rows of steps and of records.
    pub rows_read: usize,
    /// The states of all steps, where they were read.
    pub codes: Vec<StepCode>,
}

impl Engine {
    /// The run in short. With `since`, the steps that changed behind that record of the run; all of them where that is not known
    /// any more.
    pub async fn read_cells(&self, actor_ref: &str, run_id: InstanceId, since: Option<u64>) -> Result<Cells, Refusal> {
        let visible = self.run_in_sight(actor_ref, run_id).await?;
        let in_sight = |read: Option<RunCells>| match read {
            Some(read) if sees(&visible, &read.run.row.definition_name) => Ok(read),
            _ if visible.is_some() => Err(Engine::unseen(actor_ref, scopes::RUNS_READ)),
            _ => Err(unknown_run()),
        };
        let known = Arc::new(OnceLock::new());
        let mut read = in_sight(self.run_cells(run_id, since, &known).await?)?;
        let plan = match known.get() {
            Some(plan) => Arc::clone(plan),
            None => self.plan_of(&read.run).await?,
        };
        if read.chosen_from.is_some() && known.set(plan.clone()).is_ok() {
            // The changes are chosen by the plan, and it was not at hand.
            read = in_sight(self.run_cells(run_id, since, &known).await?)?;
        }
        let RunCells { run, mut steps, full: all, chosen_from } = read;
        let mut rows_read = steps.len();
        let mut changed = None;
        let mut held: Vec<HeldStep> = if all { steps.iter().filter_map(held_up).collect() } else { vec![] };
        let codes = if all { steps.iter().map(|step| step.state.state).collect() } else { vec![] };
        let basis = match stored(&run)? {
            Some(basis) if basis.progress.is_some() => basis,
            older => counted(older, &plan, &steps, &run),
        };
        if let Some((records, holding)) = chosen_from {
            rows_read += records.len() + holding.len();
            changed = Changed::of(&records, &holding, &plan);
            held = holding;
        }
        if let Some(Changed { named, all }) = &changed {
            // What follows a barrier and has begun is not held up by it.
            let waits = |step: &RunStepView| all.contains(&step.step_seq) && step.state.state == StepCode::NotStarted;
            steps.retain(|step| named.contains(&step.step_seq) || waits(step));
        }
        let waiting = steps.iter().any(|step| step.state.state == StepCode::NotStarted);
        let downstream =
            if waiting { behind(&plan, held.iter().filter_map(HeldStep::blocker)) } else { BTreeSet::new() };
        Ok(Cells { run, plan, basis, steps, full: changed.is_none(), downstream, rows_read, codes })
    }

    /// What the store has of the run. Where its plan is neither known nor at hand, no step is chosen.
    async fn run_cells(
        &self,
        run_id: InstanceId,
        since: Option<u64>,
        known: &Arc<OnceLock<Arc<Plan>>>,
    ) -> Result<Option<RunCells>, Refusal> {
        let since = since.filter(|sequence| *sequence > 0).map(|sequence| {
            let (registry, known) = (self.registry.clone(), known.clone());
            let choose = move |run: &RunView, records: &[RecordRow], held: &[HeldStep]| {
                if let (None, Some(plan)) = (known.get(), registry.plan_at_hand(&run.row.document_digest)) {
                    known.get_or_init(|| plan);
                }
                let Some(plan) = known.get() else { return Some(vec![]) };
                // The phase of a runbook depends on all its steps, and it has few: all are read, and those that changed are shown.
                // An older version stored no progress: it is counted from all steps.
                let reads_all = plan.is_runbook() || !matches!(stored(run), Ok(Some(Basis { progress: Some(_), .. })));
                let changed = Changed::of(records, held, plan).filter(|_| !reads_all)?;
                Some(changed.all.into_iter().collect())
            };
            Since { sequence, records: RECORDS, choose: Arc::new(choose) }
        });
        self.reader.run_cells(run_id, since).await.map_err(|error| store_failure(&error))
    }

    /// The run with this id, for an actor who may read it.
    pub async fn readable_run(&self, actor_ref: &str, run_id: InstanceId) -> Result<RunView, Refusal> {
        let query = RunQuery { instance_id: Some(run_id), ..RunQuery::default() };
        let page = Page { after: None, limit: 1, descending: false };
        let run = self.read_runs(actor_ref, query, &page).await?.into_iter().next();
        run.ok_or_else(unknown_run)
    }
}

fn unknown_run() -> Refusal {
    Refusal::new(Code::NotKnown, "there is no run with this run_id").at("run_id")
}

fn held_up(step: &RunStepView) -> Option<HeldStep> {
    let held =
        HeldStep { step_seq: step.step_seq, state: step.state.state, has_child: step.state.child_run_id.is_some() };
    let of_plan = step.new.compensates.is_none();
    (of_plan && matches!(held.state, StepCode::Waiting | StepCode::Blocked)).then_some(held)
}

impl HeldStep {
    /// A step that waits or is blocked holds up all that follow it.
    fn blocker(&self) -> Option<StepSeq> {
        matches!(self.state, StepCode::Waiting | StepCode::Blocked).then_some(self.step_seq)
    }
}

/// Every step that follows one of these, however far behind.
fn behind(plan: &Plan, seqs: impl Iterator<Item = StepSeq>) -> BTreeSet<StepSeq> {
    let mut found = BTreeSet::new();
    let mut open: Vec<StepSeq> = seqs.collect();
    while let Some(seq) = open.pop() {
        open.extend(plan.dependents(seq).iter().filter(|later| found.insert(**later)));
    }
    found
}

/// Which steps changed, as the records tell it.
struct Changed {
    /// By themselves.
    named: BTreeSet<StepSeq>,
    /// And those whose way was blocked or cleared.
    all: BTreeSet<StepSeq>,
}

impl Changed {
    /// Nothing where a record does not say any more what it changed.
    fn of(records: &[RecordRow], held: &[HeldStep], plan: &Plan) -> Option<Changed> {
        // That a child has another colour leaves no record of its parent.
        let coloured =
            |held: &&HeldStep| held.has_child && matches!(held.state, StepCode::InProgress | StepCode::Waiting);
        let mut named: BTreeSet<StepSeq> = held.iter().filter(coloured).map(|held| held.step_seq).collect();
        let mut barriers = BTreeSet::new();
        for row in records {
            let payload: Value = serde_json::from_slice(row.record.payload()?).ok()?;
            for entry in NAMING.iter().filter_map(|name| payload.get(name)).flat_map(entries) {
                named.extend(steps_of(entry));
                let is_barrier =
                    |end: &str| matches!(entry.get(end).and_then(Value::as_str), Some("waiting" | "blocked"));
                if is_barrier("from") != is_barrier("to") {
                    barriers.extend(steps_of(entry));
                }
            }
            // Where the run itself moves, a failed step may lose the retry that it was promised, and no record names it.
            if payload.get("run_transitions").is_some() {
                named.extend(held.iter().filter(|held| held.state == StepCode::Failed).map(|held| held.step_seq));
            }
            named.extend(seq(payload.get("step_seq")));
            let undone = payload.get("compensations").and_then(Value::as_array).into_iter().flatten();
            named.extend(undone.filter_map(|pair| seq(pair.get(0))));
        }
        let mut all = behind(plan, barriers.into_iter());
        all.extend(&named);
        Some(Changed { named, all })
    }
}

fn entries(value: &Value) -> impl Iterator<Item = &Value> {
    let (one, many) = match value {
        Value::Array(entries) => (None, entries.as_slice()),
        value => (Some(value), &[][..]),
    };
    one.into_iter().chain(many)
}

fn seq(value: Option<&Value>) -> Option<StepSeq> {
    value.and_then(Value::as_u64).and_then(|seq| StepSeq::try_from(seq).ok())
}

fn steps_of(entry: &Value) -> Vec<StepSeq> {
    match entry.get("step_seqs").and_then(Value::as_str) {
        Some(text) => ranges(text, STEPS).into_iter().filter_map(|seq| StepSeq::try_from(seq).ok()).collect(),
        None => seq(entry.get("step_seq")).into_iter().collect(),
    }
}
