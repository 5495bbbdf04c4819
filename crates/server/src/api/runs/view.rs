//! Runs as they are read: a list, and one run with its steps.

use super::cells::progress;
use super::{runbook, value};
use crate::api::auth::Caller;
use crate::api::body::Address;
use crate::api::openapi::Refused;
use crate::api::query::{Axis, List, Params, beginning};
use crate::api::start::name_and_version;
use crate::api::{App, Problem, Read, process_view, schedules, time};
use axum::Json;
use axum::extract::State;
use countersign_client::wire;
use countersign_engine::port::{GateWithSteps, Page, RunQuery, RunStepView, RunView};
use countersign_engine::reads::Halt;
use countersign_engine::rows::{CorrectionRow, NewStep, StepState};
use countersign_engine::run::rollup::Basis;
use countersign_kernel::InstanceId;
use countersign_kernel::lifecycle::{FacetRow, OwnMachine, RunState, STEP_FACETS, StepCode};
use countersign_kernel::plan::{Plan, StepSeq};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::rollup::Rollup;
use countersign_kernel::text::length;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// Steps in one answer.
const STEPS: usize = 500;

pub struct RunList;

impl List for RunList {
    const TAG: u8 = b'r';
    const AXES: &'static [Axis] = &[
        Axis::Word("rollup", COLOURS),
        FILTERS[0],
        FILTERS[1],
        FILTERS[2],
        FILTERS[3],
        FILTERS[4],
        FILTERS[5],
        FILTERS[6],
        FILTERS[7],
        FILTERS[8],
    ];
}

/// What runs are chosen by beside their colour.
const FILTERS: [Axis; 9] = [
    Axis::Word("state", STATES),
    Axis::Text("definition"),
    Axis::Text("subject_ref"),
    Axis::Text("pic"),
    Axis::Text("initiator_ref"),
    Axis::Text("parent_run_id"),
    Axis::Text("q"),
    Axis::Time("started_after"),
    Axis::Time("started_before"),
];

pub struct RunCount;

impl List for RunCount {
    const TAG: u8 = b'k';
    const AXES: &'static [Axis] = &FILTERS;
    const PAGED: bool = false;
}

/// Runs of one colour are counted up to here.
const COUNTED: usize = 1000;

const COLOURS: &[&str] = &["gray", "green", "yellow", "red"];

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
    const TAG: u8 = b'v';
    const AXES: &'static [Axis] = &[Axis::Text("steps_cursor")];
    const PAGED: bool = false;
}

/// Runs, in the order in which they were started. `pic` is in charge of a step that is to be done; `q` is how a subject or a
/// run's id begins. Needs `runs:read`; with a finer scope, the runs of the definitions that
/// it names. With `state=idle`, `idle` lists the definitions that wait for their next tick or event.
#[utoipa::path(get, path = "/v1/runs", tag = "runs", params(Params<RunList>),
    responses((status = 200, body = wire::RunPage), Refused))]
pub async fn list(State(app): State<App>, caller: Caller, params: Params<RunList>) -> Read<wire::RunPage> {
    let engine = app.engine()?;
    let query = query(&params)?;
    let idle = match query.state.as_deref() {
        Some("idle") => Some(schedules::idle(&engine, &caller.actor_ref, query.definition.as_deref()).await?),
        _ => None,
    };
    let (mut runs, mut come_to) = (Vec::new(), Vec::new());
    for run in engine.read_runs(&caller.actor_ref, query, &params.page()?).await? {
        let plan = engine.plan_of(&run).await?;
        let basis = engine.rollup_of(&run, &plan).await?;
        let step = come_to_step(&run, &basis, &plan);
        come_to.extend(step.map(|step| (run.row.instance_id, step)));
        runs.push((run, basis, plan, step));
    }
    let pics = come_to.iter().map(|(run_id, _)| *run_id).zip(engine.pics(&come_to).await?);
    let pics: HashMap<InstanceId, Option<String>> = pics.collect();
    let shown = |(run, basis, plan, step): (RunView, Basis, Arc<Plan>, Option<StepSeq>)| {
        let pic = pics.get(&run.row.instance_id).cloned().flatten();
        Ok(summary(run, &basis, &plan, step, pic))
    };
    let wire::Page { items, next } = params.answer(runs, |(run, ..)| run.row.instance_id.0, shown)?;
    Ok(Json(wire::RunPage { items, next, idle }))
}

/// Where a run has come to that has not ended: the step that decides its colour, else the first one of its way that has not ended.
fn come_to_step(run: &RunView, basis: &Basis, plan: &Plan) -> Option<StepSeq> {
    let lives = RunState::parse(&run.head.state).is_some_and(|state| !state.is_ended());
    let decisive = basis.rollup.decisive.map(|(seq, _)| seq);
    let on_the_way = current(basis, plan).map(|(seq, _)| seq).or(basis.critical);
    decisive.or(on_the_way).filter(|_| lives)
}

/// How many runs of each colour there are, with the same filters as the list. Needs `runs:read`; with a finer scope, the runs of the
/// definitions that it names.
#[utoipa::path(get, path = "/v1/runs/counts", tag = "runs", params(Params<RunCount>),
    responses((status = 200, body = wire::RunCounts), Refused))]
pub async fn counts(State(app): State<App>, caller: Caller, params: Params<RunCount>) -> Read<wire::RunCounts> {
    let counts = app.engine()?.count_runs(&caller.actor_ref, query(&params)?, COLOURS, COUNTED + 1).await?;
    let most = u64::try_from(COUNTED).unwrap_or(u64::MAX);
    let mut counts = counts.into_iter().map(|count| wire::ColourCount { count: count.min(most), more: count > most });
    let mut next = || counts.next().unwrap_or_default();
    Ok(Json(wire::RunCounts { gray: next(), green: next(), yellow: next(), red: next() }))
}

/// What the parameters choose.
fn query<L: List>(params: &Params<L>) -> Result<RunQuery, Problem> {
    let (definition, version) = match params.text("definition") {
        None => (None, None),
        Some(text) => {
            let (name, version) = name_and_version(&text).map_err(Problem::into_query)?;
            (Some(name), version)
        }
    };
    Ok(RunQuery {
        instance_id: None,
        state: params.text("state"),
        definition,
        version,
        subject_ref: params.text("subject_ref"),
        trace_id: None,
        started: params.range("started_"),
        definitions: None,
        rollup: params.text("rollup"),
        pic: params.text("pic"),
        initiator_ref: params.text("initiator_ref"),
        parent: params.id("parent_run_id", InstanceId::parse),
        q: params.text("q").map(|text| beginning(&text)).transpose()?,
    })
}

/// A run that was cancelled or voided has no time of its own for that: it is the one at which its colour was last
/// computed, for nothing moves an ended run.
fn ended_at(run: &RunView, basis: &Basis) -> Option<String> {
    let ended = RunState::parse(&run.head.state).is_some_and(RunState::is_ended);
    let at = run.head.completed_at.or(run.head.failed_at).unwrap_or(basis.rollup.computed_at);
    ended.then(|| time::format(at))
}

fn summary(run: RunView, basis: &Basis, plan: &Plan, step: Option<StepSeq>, pic: Option<String>) -> wire::RunSummary {
    wire::RunSummary {
        progress: progress(basis, plan),
        current_step: step.and_then(|seq| plan.step(seq)).map(|step| step.name.to_string()),
        pic,
        rollup: rollup(basis, plan),
        ended_at: ended_at(&run, basis),
        run_id: run.row.instance_id.to_string(),
        definition: format!("{}@{}", run.row.definition_name, run.row.definition_version),
        parent_run_id: run.row.parent.map(|(run_id, _)| run_id.to_string()),
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
    let from = match params.text("steps_cursor") {
        None => 0,
        Some(text) => text
            .parse::<StepSeq>()
            .ok()
            .filter(|seq| seq.to_string() == text)
            .ok_or_else(|| Problem::invalid_query("steps_cursor", "this is no `steps_next` of ours"))?,
    };
    let engine = app.engine()?;
    let run_id = InstanceId::parse(address.get("run_id")).unwrap_or(InstanceId(uuid::Uuid::max()));
    let query = RunQuery { instance_id: Some(run_id), ..RunQuery::default() };
    let page = Page { after: None, limit: 1, descending: false };
    let run = engine.read_runs(&caller.actor_ref, query, &page).await?.into_iter().next();
    let run = run.ok_or_else(|| Refusal::new(Code::NotKnown, "there is no run with this run_id").at("run_id"))?;
    let plan = engine.plan_of(&run).await?;
    let machine = engine.machine_of(&run);
    let basis = engine.rollup_of(&run, &plan).await?;
    let book = run.head.runbook.as_deref().and_then(countersign_engine::run::runbook::parse);
    let now = engine.now();
    let corrections = engine.read_corrections(&run).await?;
    let mut steps = engine.read_run_steps(&run, from, STEPS + 1).await?;
    let next = steps.get(STEPS).map(|step| step.step_seq.to_string());
    steps.truncate(STEPS);
    let of = |seq: StepSeq| corrections.iter().filter(|row| row.step_seq == seq).map(correction).collect();
    let shown = steps
        .into_iter()
        .map(|step| {
            let seq = step.step_seq;
            runbook::step(
                wire::StepView { corrections: of(seq), ..to_wire(step, &plan, &run, machine.as_deref()) },
                book.as_ref(),
                &plan,
            )
        })
        .collect();
    let gates = engine.read_run_gates(&run).await?;
    let halt = engine.read_halt(&run).await?;
    let called_off = run.head.called_off;
    let view = runbook::run(whole(run, &basis, &plan, shown, gates), book.as_ref(), &plan, now);
    Ok(Json(wire::RunView { steps_next: next, ..halted(view, halt, called_off) }))
}

/// With who brought it where it stands, and why.
/// One that was called off ended later than that.
fn halted(view: wire::RunView, halt: Option<Halt>, called_off: bool) -> wire::RunView {
    let Some(Halt { at, actor_ref, reason }) = halt else { return view };
    let (at, by) = (Some(time::format(at)), Some(actor_ref));
    if view.ended_at.is_some() {
        let at = if called_off { view.ended_at.clone() } else { at };
        return wire::RunView { ended_at: at, ended_by: by, reason, ..view };
    }
    wire::RunView { halted_at: at, halted_by: by, reason, ..view }
}

fn whole(
    run: RunView,
    basis: &Basis,
    plan: &Plan,
    steps: Vec<wire::StepView>,
    gates: Vec<GateWithSteps>,
) -> wire::RunView {
    let state = RunState::parse(&run.head.state).unwrap_or(RunState::Idle);
    let id = |id: Option<InstanceId>| id.map(|id| id.to_string());
    wire::RunView {
        ended_at: ended_at(&run, basis),
        ended_by: None,
        halted_at: None,
        halted_by: None,
        reason: None,
        run_id: run.row.instance_id.to_string(),
        definition: format!("{}@{}", run.row.definition_name, run.row.definition_version),
        machine: run.row.machine.map(|machine| machine.named),
        subject_ref: run.row.subject_ref,
        initiator_ref: run.row.initiator_ref,
        views: wire::RunViews { linear: state.linear().to_owned() },
        state: run.head.state,
        outcome: run.head.outcome,
        current_step_seq: current(basis, plan).map(|(seq, _)| seq),
        current_step_type: current(basis, plan).map(|(_, name)| name),
        priority: run.head.priority,
        started_at: time::format(run.row.started_at),
        start_at: run.head.start_at.map(time::format),
        completed_at: run.head.completed_at.map(time::format),
        failed_at: run.head.failed_at.map(time::format),
        last_error: run.head.last_error.map(|error| error.to_string()),
        input: Some(value(&run.row.input)),
        output: run.head.output.as_deref().map(value),
        correlation_key: run.row.correlation_key.map(|key| key.to_string()),
        concurrency_key: run.row.concurrency_key.map(|key| key.to_string()),
        corrects: id(run.row.corrects),
        continues: id(run.row.continues),
        parent_run_id: id(run.row.parent.map(|(run_id, _)| run_id)),
        phase: None,
        dry_run: false,
        pins: vec![],
        drift: vec![],
        pin_errors: vec![],
        surveying: None,
        executing_ms: None,
        hard_cap_ms: None,
        rollup: rollup(basis, plan),
        critical_path: critical_path(basis, plan),
        steps,
        steps_next: None,
        gates: process_view::gates_of(gates),
    }
}

/// A block is red for a cause that the severity function has named, and never otherwise.
const fn severity_text(cause: Option<&str>) -> &'static str {
    if cause.is_some() { "red" } else { "yellow_dark" }
}

/// The state's own colour, but for a block that has become red and for a step that shows the colour of its child.
fn color_token(state: &StepState, severity: Option<&str>) -> &'static str {
    match (state.state, severity, state.child_colour) {
        (_, Some("red"), _) | (StepCode::InProgress | StepCode::Waiting, _, Some("red")) => "ui.traffic_light.red",
        (StepCode::InProgress | StepCode::Waiting, _, Some("yellow")) => "ui.traffic_light.yellow",
        _ => state.state.def().color,
    }
}

/// What is shown of a failed step that will be tried again (seed 003 §4.5).
fn retrying() -> Option<&'static FacetRow> {
    STEP_FACETS.iter().find(|row| row.facet == "retrying")
}

/// The colour, icon and text of a step in every view.
pub(super) struct Look {
    pub color_token: &'static str,
    pub icon: String,
    pub label: String,
    /// The key of that text in the registry, and what is filled into it.
    pub label_key: String,
    pub attempt: Option<(u32, u32)>,
}

impl Look {
    pub fn args(&self) -> Map<String, Value> {
        let attempt = self.attempt.into_iter();
        attempt
            .flat_map(|(attempt, max)| [("attempt", attempt), ("max_attempts", max)])
            .map(|(name, count)| (name.to_owned(), json!(count)))
            .collect()
    }
}

fn retries(state: &StepState) -> bool {
    state.state == StepCode::Failed && state.next_run_at.is_some()
}

pub(super) fn severity(state: &StepState) -> Option<&'static str> {
    (state.state == StepCode::Blocked).then(|| severity_text(state.blocked_cause))
}

/// `lives`: its run has not ended.
pub(super) fn look(new: &NewStep, state: &StepState, lives: bool, machine: Option<&OwnMachine>) -> Look {
    let def = state.state.def();
    let color_token = color_token(state, severity(state));
    // What the run's own machine calls it; a block that has become red stays red.
    if let Some(derived) = state.charge.derived_state.as_deref().and_then(|code| machine?.state(code)) {
        return Look {
            color_token: if color_token == def.color { derived.ui_color_token } else { color_token },
            icon: derived.ui_icon.clone(),
            label: derived.label_en.clone(),
            label_key: format!("state.{}.label", derived.code),
            attempt: None,
        };
    }
    if let Some(facet) = retrying().filter(|_| retries(state) && lives) {
        let attempt = state.attempts.saturating_add(1).min(new.max_attempts);
        return Look {
            color_token,
            icon: facet.icon.to_owned(),
            label: facet.label_en.replace("n/N", &format!("{attempt}/{}", new.max_attempts)),
            label_key: format!("facet.{}.label", facet.facet),
            attempt: Some((attempt, new.max_attempts)),
        };
    }
    let label_key = format!("state.{}.label", def.text);
    Look { color_token, icon: def.icon.to_owned(), label: def.label.to_owned(), label_key, attempt: None }
}

pub(super) fn to_wire(
    step: RunStepView,
    plan: &Arc<Plan>,
    run: &RunView,
    machine: Option<&OwnMachine>,
) -> wire::StepView {
    let RunStepView { step_seq, new, state } = step;
    let spec = plan.step(step_seq).filter(|_| new.compensates.is_none());
    let task_of = spec.and_then(|_| plan.step(plan.step_of_task(step_seq)?)).map(|step| step.name.to_string());
    let retry = retries(&state);
    let lives = !RunState::parse(&run.head.state).is_some_and(RunState::is_ended);
    let severity = severity(&state);
    let look = look(&new, &state, lives, machine);
    let shown = state.as_offered();
    let charge = state.charge;
    let text = |text: Option<Arc<str>>| text.map(|text| text.to_string());
    wire::StepView {
        name: new.name.to_string(),
        step_seq,
        role: match (&new.compensates, &task_of) {
            (Some(_), _) => "compensation",
            (None, Some(_)) => "task",
            (None, None) => "step",
        }
        .to_owned(),
        compensates: new.compensates.and_then(|seq| plan.step(seq)).map(|spec| spec.name.to_string()),
        run: match new.compensates.and_then(|undone| plan.compensation_of(undone)) {
            Some(entry) => entry.work.as_str(),
            None => spec.map_or("worker", |spec| spec.work.as_str()),
        }
        .to_owned(),
        queue: new.queue.to_string(),
        compensable: new.compensates.is_none() && plan.compensation_of(step_seq).is_some(),
        state_code: state.state.as_str().to_owned(),
        derived_state: text(charge.derived_state.clone()),
        waiting_facet: state.waiting_facet.map(str::to_owned),
        secondary_facets: charge.secondary_facets.iter().flat_map(|list| list.split(',')).map(str::to_owned).collect(),
        waiting_event_type: text(state.waiting_event_type),
        pic: text(charge.pic),
        deadline: charge.deadline.map(time::format),
        start_by: charge.start_by.map(time::format),
        overdue_first_at: charge.overdue_first_at.map(time::format),
        completed_after_deadline: charge.sla_breach.map(|_| true),
        sla_breach_duration: charge.sla_breach.map(length),
        block_reason: charge.block_reason.map(str::to_owned),
        facets: [("retrying", retry && lives), ("escalated", charge.escalated_at.is_some())]
            .iter()
            .filter(|(_, attached)| *attached)
            .map(|(facet, _)| (*facet).to_owned())
            .collect(),
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
        checks: vec![],
        artifacts: vec![],
        soft_cap_at: None,
        child_run_id: state.child_run_id.map(|id| id.to_string()),
        child_rollup: state.child_colour.map(str::to_owned),
        blocked_severity: severity.map(str::to_owned),
        blocked_cause: state.blocked_cause.map(str::to_owned),
        blocked_since: state.blocked_since.map(time::format),
        output: state.output.as_deref().map(value),
        optional: spec.is_some_and(|spec| spec.optional),
        depends_on: spec.filter(|_| task_of.is_none()).map_or(vec![], |spec| {
            spec.depends_on.iter().filter_map(|seq| plan.step(*seq)).map(|spec| spec.name.to_string()).collect()
        }),
        task_of,
        appearance: wire::Appearance {
            args: look.args(),
            color_token: look.color_token.to_owned(),
            icon: look.icon,
            label: look.label,
            label_key: look.label_key,
        },
        views: wire::StepViews { linear: shown.linear(retry, lives).to_owned(), dag: shown.dag(retry).to_owned() },
    }
}

pub(super) fn correction(row: &CorrectionRow) -> wire::StepCorrection {
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

/// The colour and its basis in the words of the contract.
pub(super) fn rollup(basis: &Basis, plan: &Plan) -> wire::Rollup {
    let Rollup { colour, counts, decisive, computed_at, frozen_at } = basis.rollup;
    let name = |seq: StepSeq| plan.step(seq).map(|step| step.name.to_string());
    wire::Rollup {
        state_code: colour.as_str().to_owned(),
        // A compensation that decides is no step of the plan.
        decisive_step: decisive.map(|(seq, _)| name(seq).unwrap_or_else(|| format!("#{seq}"))),
        decisive_state_code: decisive.map(|(_, state)| state.as_str().to_owned()),
        counts: wire::RollupCounts {
            red: counts.red.into(),
            yellow: counts.yellow.into(),
            green: counts.green.into(),
            skipped: counts.skipped.into(),
            optional_excluded: counts.optional_excluded.into(),
        },
        computed_at: Some(time::format(computed_at)),
        frozen_at: frozen_at.map(time::format),
    }
}

/// Where a chain stands: the first step that has not ended, or its last one.
fn current(basis: &Basis, plan: &Plan) -> Option<(StepSeq, String)> {
    let last = StepSeq::try_from(plan.steps.len().checked_sub(1)?).ok()?;
    let seq = basis.current?.min(last);
    Some((seq, plan.step(seq)?.name.to_string()))
}

/// From its beginning to where it leads; of a very long one the end.
fn critical_path(basis: &Basis, plan: &Plan) -> Vec<String> {
    let path = plan.critical_path(basis.critical).take(STEPS).filter_map(|seq| plan.step(seq));
    let mut names: Vec<String> = path.map(|step| step.name.to_string()).collect();
    names.reverse();
    names
}
