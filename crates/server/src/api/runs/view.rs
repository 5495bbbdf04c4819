//! Runs as they are read: a list, and one run with its steps.

use super::value;
use crate::api::auth::Caller;
use crate::api::body::Address;
use crate::api::openapi::Refused;
use crate::api::query::{Axis, List, Params};
use crate::api::{App, Problem, Read, process_view, time};
use axum::Json;
use axum::extract::State;
use countersign_client::wire;
use countersign_engine::port::{GateWithSteps, Page, RunQuery, RunStepView, RunView};
use countersign_engine::rows::CorrectionRow;
use countersign_kernel::InstanceId;
use countersign_kernel::lifecycle::{RunState, SemanticClass, StepCode};
use countersign_kernel::plan::{Order, Plan, StepSeq};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::text::length;
use std::sync::Arc;

/// Steps in one answer.
const STEPS: usize = 500;
/// Steps that are counted in one go.
const BATCH: usize = 5000;

pub struct RunList;

impl List for RunList {
    const TAG: u8 = b'r';
    const AXES: &'static [Axis] = &[
        Axis::Word("state", STATES),
        Axis::Text("definition"),
        Axis::Text("subject_ref"),
        Axis::Time("started_after"),
        Axis::Time("started_before"),
    ];
}

const STATES: &[&str] = &[
    "idle",
    "queued",
    "executing",
    "blocked",
    "paused",
    "stopped",
    "compensating",
    "completed",
    "failed",
    "cancelled",
    "voided",
];

pub struct StepsOfRun;

impl List for StepsOfRun {
    const TAG: u8 = b's';
    const AXES: &'static [Axis] = &[Axis::Text("steps_cursor")];
}

/// Runs, in the order in which they were started. Needs `runs:read`; with a finer scope, the runs of the definitions that
/// it names.
#[utoipa::path(get, path = "/v1/runs", tag = "runs", params(Params<RunList>),
    responses((status = 200, body = wire::Page<wire::RunSummary>), Refused))]
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    params: Params<RunList>,
) -> Read<wire::Page<wire::RunSummary>> {
    let query = RunQuery {
        instance_id: None,
        state: params.text("state"),
        definition: params.text("definition"),
        subject_ref: params.text("subject_ref"),
        started: params.range("started_"),
        definitions: None,
    };
    let runs = app.engine()?.read_runs(&caller.actor_ref, query, &params.page()?).await?;
    params.answer(runs, |run| run.row.instance_id.0, |run| Ok(summary(run))).map(Json)
}

fn summary(run: RunView) -> wire::RunSummary {
    wire::RunSummary {
        run_id: run.row.instance_id.to_string(),
        definition: format!("{}@{}", run.row.definition_name, run.row.definition_version),
        subject_ref: run.row.subject_ref,
        initiator_ref: run.row.initiator_ref,
        state: run.head.state,
        outcome: run.head.outcome,
        priority: run.head.priority,
        started_at: time::format(run.row.started_at),
        completed_at: run.head.completed_at.map(time::format),
        failed_at: run.head.failed_at.map(time::format),
        last_error: run.head.last_error.map(|error| error.to_string()),
    }
}

/// One run with its steps. Needs `runs:read`.
#[utoipa::path(get, path = "/v1/runs/{run_id}", tag = "runs", params(("run_id" = String, Path), Params<StepsOfRun>),
    responses((status = 200, body = wire::RunView), Refused))]
pub async fn read(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    params: Params<StepsOfRun>,
) -> Read<wire::RunView> {
    let engine = app.engine()?;
    let run_id = InstanceId::parse(address.get("run_id")).unwrap_or(InstanceId(uuid::Uuid::max()));
    let query = RunQuery { instance_id: Some(run_id), ..RunQuery::default() };
    let page = Page { after: None, limit: 1, descending: false };
    let run = engine.read_runs(&caller.actor_ref, query, &page).await?.into_iter().next();
    let run = run.ok_or_else(|| Refusal::new(Code::NotKnown, "there is no run with this run_id").at("run_id"))?;
    let plan = engine.plan_of(&run).ok_or_else(Problem::internal)?;
    let from = match params.text("steps_cursor") {
        None => 0,
        Some(text) => text
            .parse::<StepSeq>()
            .map_err(|_| Problem::invalid_query("steps_cursor", "this is no `steps_next` of ours"))?,
    };
    let corrections = engine.read_corrections(&run).await?;
    let mut tally = Tally::new(&plan);
    let (mut shown, mut next, mut seq) = (Vec::new(), None, 0);
    loop {
        let steps = engine.read_run_steps(&run, seq, BATCH).await?;
        let count = steps.len();
        for step in steps {
            seq = step.step_seq + 1;
            tally.add(&step);
            if step.step_seq >= from && shown.len() < STEPS {
                let of_step = corrections.iter().filter(|row| row.step_seq == step.step_seq).map(correction).collect();
                shown.push(wire::StepView { corrections: of_step, ..to_wire(step, &plan, &run) });
            } else if step.step_seq >= from && next.is_none() {
                next = Some(step.step_seq.to_string());
            }
        }
        if count < BATCH {
            break;
        }
    }
    let gates = engine.read_run_gates(&run).await?;
    Ok(Json(whole(run, &tally, shown, next, gates)))
}

fn whole(
    run: RunView,
    tally: &Tally<'_>,
    steps: Vec<wire::StepView>,
    steps_next: Option<String>,
    gates: Vec<GateWithSteps>,
) -> wire::RunView {
    let state = RunState::parse(&run.head.state).unwrap_or(RunState::Idle);
    let id = |id: Option<InstanceId>| id.map(|id| id.to_string());
    wire::RunView {
        run_id: run.row.instance_id.to_string(),
        definition: format!("{}@{}", run.row.definition_name, run.row.definition_version),
        subject_ref: run.row.subject_ref,
        initiator_ref: run.row.initiator_ref,
        views: wire::RunViews { linear: state.linear().to_owned() },
        state: run.head.state,
        outcome: run.head.outcome,
        current_step_seq: tally.current().map(|(seq, _)| seq),
        current_step_type: tally.current().map(|(_, name)| name.to_owned()),
        priority: run.head.priority,
        started_at: time::format(run.row.started_at),
        start_at: run.head.start_at.map(time::format),
        completed_at: run.head.completed_at.map(time::format),
        failed_at: run.head.failed_at.map(time::format),
        last_error: run.head.last_error.map(|error| error.to_string()),
        input: Some(value(&run.row.input)),
        output: run.head.output.as_deref().map(value),
        correlation_key: run.row.correlation_key.map(|key| key.to_string()),
        corrects: id(run.row.corrects),
        continues: id(run.row.continues),
        parent_run_id: id(run.row.parent.map(|(run_id, _)| run_id)),
        rollup: tally.rollup(),
        steps,
        steps_next,
        gates: gates
            .into_iter()
            .flat_map(|(row, steps)| {
                steps.into_iter().map(move |(step, assignment)| process_view::gate(&row, step, &assignment))
            })
            .collect(),
    }
}

fn to_wire(step: RunStepView, plan: &Arc<Plan>, run: &RunView) -> wire::StepView {
    let RunStepView { step_seq, new, state } = step;
    let spec = plan.step(step_seq).filter(|_| new.compensates.is_none());
    let retry = state.state == StepCode::Failed && state.next_run_at.is_some();
    let lives = !RunState::parse(&run.head.state).is_some_and(RunState::is_ended);
    let def = state.state.def();
    let charge = state.charge;
    let text = |text: Option<Arc<str>>| text.map(|text| text.to_string());
    wire::StepView {
        name: new.name.to_string(),
        step_seq,
        role: if new.compensates.is_some() { "compensation" } else { "step" }.to_owned(),
        compensates: new.compensates.and_then(|seq| plan.step(seq)).map(|spec| spec.name.to_string()),
        run: spec.map_or("worker", |spec| spec.work.as_str()).to_owned(),
        queue: new.queue.to_string(),
        state_code: state.state.as_str().to_owned(),
        waiting_facet: state.waiting_facet.map(str::to_owned),
        secondary_facets: charge.secondary_facets.iter().flat_map(|list| list.split(',')).map(str::to_owned).collect(),
        waiting_event_type: text(state.waiting_event_type),
        pic: text(charge.pic),
        deadline: charge.deadline.map(time::format),
        overdue_first_at: charge.overdue_first_at.map(time::format),
        completed_after_deadline: charge.sla_breach.map(|_| true),
        sla_breach_duration: charge.sla_breach.map(length),
        blocked_since: charge.blocked_since.map(time::format),
        block_reason: charge.block_reason.map(str::to_owned),
        escalated_at: charge.escalated_at.map(time::format),
        corrections: vec![],
        attempts: state.attempts,
        max_attempts: new.max_attempts,
        next_run_at: state.next_run_at.map(time::format),
        locked_by: text(state.locked_by),
        locked_until: state.locked_until.map(time::format),
        deadline_at: state.deadline_at.map(time::format),
        started_at: state.started_at.map(time::format),
        completed_at: state.completed_at.map(time::format),
        last_error: text(state.last_error),
        error_category: state.error_category.map(str::to_owned),
        effect_unknown: state.effect_unknown,
        child_run_id: state.child_run_id.map(|id| id.to_string()),
        output: state.output.as_deref().map(value),
        optional: spec.is_some_and(|spec| spec.optional),
        depends_on: spec.map_or(vec![], |spec| {
            spec.depends_on.iter().filter_map(|seq| plan.step(*seq)).map(|spec| spec.name.to_string()).collect()
        }),
        appearance: wire::Appearance {
            color_token: def.color.to_owned(),
            icon: def.icon.to_owned(),
            label: def.label.to_owned(),
        },
        views: wire::StepViews {
            linear: state.state.linear(retry, lives).to_owned(),
            dag: state.state.dag(retry).to_owned(),
        },
    }
}

fn correction(row: &CorrectionRow) -> wire::StepCorrection {
    wire::StepCorrection {
        cycle: row.cycle,
        prior_state_code: row.from_state.as_str().to_owned(),
        prior_event_id: row.prior_event_id.to_string(),
        prior_actor_ref: row.prior_actor_ref.clone(),
        prior_at: time::format(row.prior_at),
        original_output: row.output.as_deref().map(value),
        correction_reason: row.correction_reason.to_owned(),
        approval_id: row.approval_id.to_string(),
        reopened_by: row.reopened_by.clone(),
        reopened_at: time::format(row.reopened_at),
        event_id: row.event_id.to_string(),
    }
}

/// The roll-up, step by step: red over yellow over green, mandatory steps that have begun only.
struct Tally<'p> {
    plan: &'p Plan,
    counts: wire::RollupCounts,
    decisive: Option<(SemanticRank, String)>,
    current: Option<(StepSeq, &'p str)>,
}

type SemanticRank = u8;

impl<'p> Tally<'p> {
    fn new(plan: &'p Plan) -> Self {
        Tally { plan, counts: wire::RollupCounts::default(), decisive: None, current: None }
    }

    fn add(&mut self, step: &RunStepView) {
        let spec = self.plan.step(step.step_seq).filter(|_| step.new.compensates.is_none());
        if let (Some(spec), None, Order::Linear) = (spec, self.current, self.plan.order)
            && !step.state.state.is_terminal()
        {
            self.current = Some((step.step_seq, &spec.name));
        }
        if spec.is_some_and(|spec| spec.optional) {
            self.counts.optional_excluded += 1;
            return;
        }
        let rank = match (step.state.state, step.state.state.def().class) {
            (StepCode::Skipped, _) => {
                self.counts.skipped += 1;
                return;
            }
            (_, SemanticClass::Idle) => return,
            (_, SemanticClass::Active) => {
                self.counts.green += 1;
                1
            }
            (_, SemanticClass::Wait) => {
                self.counts.yellow += 1;
                2
            }
            (_, SemanticClass::Red) => {
                self.counts.red += 1;
                3
            }
        };
        if self.decisive.as_ref().is_none_or(|(known, _)| rank > *known) {
            self.decisive = Some((rank, step.new.name.to_string()));
        }
    }

    /// Where a chain stands: the first step that has not ended, or its last one.
    fn current(&self) -> Option<(StepSeq, &'p str)> {
        let last = || {
            let last = self.plan.steps.last().filter(|_| self.plan.order == Order::Linear)?;
            Some((StepSeq::try_from(self.plan.steps.len() - 1).ok()?, &*last.name))
        };
        self.current.or_else(last)
    }

    fn rollup(&self) -> wire::Rollup {
        let (code, decisive) = match &self.decisive {
            None => ("gray", None),
            Some((1, _)) => ("green", None),
            Some((2, step)) => ("yellow", Some(step.clone())),
            Some((_, step)) => ("red", Some(step.clone())),
        };
        wire::Rollup { state_code: code.to_owned(), decisive_step: decisive, counts: self.counts }
    }
}
