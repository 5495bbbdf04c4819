//! `GET /v1/timeline`: what happened, record by record, in order; a reopening beside what it reopened.

mod told;

use super::auth::Caller;
use super::openapi::Refused;
use super::query::{Axis, List, Params};
use super::{App, Problem, Read, time};
use axum::Json;
use axum::extract::State;
use countersign_client::wire;
use countersign_engine::Engine;
use countersign_engine::port::{Page, RecordQuery, RunView};
use countersign_engine::purge::places;
use countersign_engine::rows::RecordRow;
use countersign_kernel::plan::{Plan, StepSeq};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::scopes;
use countersign_kernel::run::own_trace;
use countersign_kernel::{EventId, InstanceId};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use told::{Names, errors, gate, one_move};

/// How many reopenings of one instance are read at a time.
const REOPENINGS: usize = 500;

pub struct Timeline;

impl List for Timeline {
    const TAG: u8 = b't';
    const AXES: &'static [Axis] =
        &[Axis::Text("trace_id"), Axis::Text("run_id"), Axis::Text("step"), Axis::Text("instance_id")];
}

/// Every record of a trace, of a run or of an instance, in order: give exactly one of the three; with `run_id` also a `step`, for
/// the records that moved it. Needs `audit:read`; with `runs:read` a run's records are told that moved it, and of each the moves
/// alone.
#[utoipa::path(get, path = "/v1/timeline", tag = "ledger", params(Params<Timeline>),
    responses((status = 200, body = wire::Page<wire::TimelineEntry>), Refused))]
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    params: Params<Timeline>,
) -> Read<wire::Page<wire::TimelineEntry>> {
    let engine = app.engine()?;
    let of = match (params.text("trace_id"), params.text("run_id"), params.text("instance_id")) {
        (Some(trace_id), None, None) => Of::Trace(trace_id),
        (None, Some(id), None) => {
            return of_run(&engine, &caller, &params, InstanceId::parse(&id)).await;
        }
        (None, None, Some(id)) => Of::Instance(InstanceId::parse(&id).unwrap_or(InstanceId(uuid::Uuid::max()))),
        _ => return Err(Problem::invalid_query("run_id", "give one of `trace_id`, `run_id` and `instance_id`")),
    };
    if params.text("step").is_some() {
        return Err(Problem::invalid_query("step", "a `step` is asked for together with its `run_id`"));
    }
    let page = params.page()?;
    let is_first = page.after.is_none();
    let scenes = scenes(&engine, &caller.actor_ref, &of).await?;
    let mut rows = Vec::new();
    for scene in &scenes {
        let query = RecordQuery { instance_id: Some(scene.instance_id), ..RecordQuery::default() };
        rows.extend(engine.read_records(&caller.actor_ref, &query, &page).await?);
    }
    // Whatever exists has at least the record of its start.
    if rows.is_empty() && is_first && matches!(of, Of::Instance(_)) {
        return Err(not_there("instance_id").into());
    }
    // Ids are in the order of time, across instances.
    rows.sort_unstable_by_key(|row| row.event_id);
    if page.descending {
        rows.reverse();
    }
    rows.truncate(page.limit);
    let links = Links::find(&engine, &scenes, &rows).await?;
    let shown = |row: RecordRow| {
        let scene = scenes.iter().find(|scene| scene.instance_id == row.instance_id);
        Ok(entry(row, scene, &links))
    };
    params.answer(rows, |row| row.event_id.0, shown).map(Json)
}

fn not_there(field: &str) -> Refusal {
    Refusal::new(Code::NotKnown, "there is no run and no process with this id").at(field)
}

/// The records of one run: all of them for an auditor, the moves for whoever may read the run.
async fn of_run(
    engine: &Engine,
    caller: &Caller,
    params: &Params<Timeline>,
    run_id: Option<InstanceId>,
) -> Read<wire::Page<wire::TimelineEntry>> {
    let run_id = run_id.unwrap_or(InstanceId(uuid::Uuid::max()));
    let audits = engine.may(&caller.actor_ref, scopes::AUDIT_READ).await?;
    let run = if audits {
        engine.run_for_audit(&caller.actor_ref, run_id).await?
    } else {
        Some(engine.readable_run(&caller.actor_ref, run_id).await?)
    };
    let Some(run) = run else {
        // An auditor may ask for a process in this way, too.
        return of_process(engine, caller, params, run_id).await;
    };
    let plan = engine.plan_of(&run).await?;
    let step =
        match params.text("step") {
            None => None,
            Some(name) => Some(plan.cell_named(&name).ok_or_else(|| {
                Refusal::new(Code::NotKnown, format!("the run has no step named `{name}`")).at("step")
            })?),
        };
    let wanted = |row: &RecordRow| match (step, audits) {
        (None, true) => true,
        (None, false) => payload(row).is_some_and(|payload| MOVES.iter().any(|name| payload.get(name).is_some())),
        (Some(seq), _) => payload(row).is_some_and(|payload| moves_step(&payload, seq)),
    };
    let (mut page, mut rows) = (params.page()?, Vec::new());
    let wish = page.limit;
    page.limit = page.limit.max(LOOKED_THROUGH);
    loop {
        let some = engine.run_records(&run, RecordQuery::default(), &page).await?;
        let (count, last) = (some.len(), some.last().map(|row| row.event_id.0));
        rows.extend(some.into_iter().filter(&wanted));
        if count < page.limit || rows.len() >= wish {
            break;
        }
        page.after = last;
    }
    rows.truncate(wish);
    let scene = [Scene { instance_id: run_id, run: Some((run, plan)) }];
    let links = Links::find(engine, &scene, &rows).await?;
    let shown = |row: RecordRow| {
        let entry = entry(row, scene.first(), &links);
        Ok(if audits { entry } else { wire::TimelineEntry { payload: None, ..entry } })
    };
    params.answer(rows, |row| row.event_id.0, shown).map(Json)
}

async fn of_process(
    engine: &Engine,
    caller: &Caller,
    params: &Params<Timeline>,
    instance_id: InstanceId,
) -> Read<wire::Page<wire::TimelineEntry>> {
    let page = params.page()?;
    let query = RecordQuery { instance_id: Some(instance_id), ..RecordQuery::default() };
    let rows = engine.read_records(&caller.actor_ref, &query, &page).await?;
    if rows.is_empty() && page.after.is_none() || params.text("step").is_some() {
        return Err(not_there("run_id").into());
    }
    let links = Links { reopened_by: HashMap::new(), closed: HashMap::new() };
    params.answer(rows, |row| row.event_id.0, |row| Ok(entry(row, None, &links))).map(Json)
}

/// What of a record moves something.
const MOVES: [&str; 3] = ["transitions", "run_transitions", "own_transition"];
/// Records of a run that are looked through at a time, where not all are shown.
const LOOKED_THROUGH: usize = 200;

fn moves_step(payload: &Value, seq: StepSeq) -> bool {
    let place = seq as usize;
    let moved = |made: &Value| places(made, place + 1).any(|(of, _)| of == place);
    let acted = payload.get("step_seq").and_then(Value::as_u64) == Some(u64::from(seq));
    items(payload, "transitions").any(moved) || acted && payload.get("own_transition").is_some()
}

enum Of {
    Trace(String),
    Instance(InstanceId),
}

/// An instance whose records are told.
struct Scene {
    instance_id: InstanceId,
    /// Where it is a run.
    run: Option<(RunView, Arc<Plan>)>,
}

async fn scenes(engine: &Engine, actor_ref: &str, of: &Of) -> Result<Vec<Scene>, Problem> {
    let runs = match of {
        Of::Trace(trace_id) => engine.runs_of_trace(actor_ref, trace_id).await?,
        Of::Instance(id) => engine.run_for_audit(actor_ref, *id).await?.into_iter().collect(),
    };
    let mut scenes = Vec::with_capacity(runs.len());
    for run in runs {
        let plan = engine.plan_of(&run).await?;
        scenes.push(Scene { instance_id: run.row.instance_id, run: Some((run, plan)) });
    }
    if let (Of::Instance(instance_id), true) = (of, scenes.is_empty()) {
        scenes.push(Scene { instance_id: *instance_id, run: None });
    }
    Ok(scenes)
}

/// Which record reopened what which record had closed.
struct Links {
    reopened_by: HashMap<EventId, Vec<wire::TimelineLink>>,
    closed: HashMap<EventId, wire::TimelineLink>,
}

impl Links {
    async fn find(engine: &Engine, scenes: &[Scene], rows: &[RecordRow]) -> Result<Links, Problem> {
        let mut links = Links { reopened_by: HashMap::new(), closed: HashMap::new() };
        let shown: HashSet<InstanceId> = rows.iter().map(|row| row.instance_id).collect();
        for scene in scenes.iter().filter(|scene| shown.contains(&scene.instance_id)) {
            let Some((run, _)) = &scene.run else { continue };
            let query = || RecordQuery { action_ref: Some("step_reopened".to_owned()), ..RecordQuery::default() };
            let mut page = Page { after: None, limit: REOPENINGS, descending: false };
            loop {
                let reopenings = engine.run_records(run, query(), &page).await?;
                for row in &reopenings {
                    if let Some(prior) = payload(row).as_ref().and_then(prior) {
                        links.reopened_by.entry(prior).or_default().push(link(row));
                    }
                }
                match reopenings.last() {
                    Some(last) if reopenings.len() == REOPENINGS => page.after = Some(last.event_id.0),
                    _ => break,
                }
            }
        }
        for (of, prior) in rows.iter().filter_map(|row| Some((row, prior(&payload(row)?)?))) {
            let scene = scenes.iter().find(|scene| scene.instance_id == of.instance_id);
            let Some((run, _)) = scene.and_then(|scene| scene.run.as_ref()) else { continue };
            let query = RecordQuery { event_id: Some(prior), ..RecordQuery::default() };
            let page = Page { after: None, limit: 1, descending: false };
            if let Some(row) = engine.run_records(run, query, &page).await?.into_iter().next() {
                links.closed.insert(prior, link(&row));
            }
        }
        Ok(links)
    }
}

fn payload(row: &RecordRow) -> Option<Value> {
    row.record.payload().and_then(|bytes| serde_json::from_slice(bytes).ok())
}

/// The record that closed what this payload reopens.
fn prior(payload: &Value) -> Option<EventId> {
    let correction = payload.get("correction")?;
    EventId::parse(correction.get("prior_event_id").and_then(Value::as_str)?)
}

fn link(row: &RecordRow) -> wire::TimelineLink {
    let payload = payload(row);
    let correction = payload.as_ref().and_then(|payload| payload.get("correction"));
    wire::TimelineLink {
        event_id: row.event_id.to_string(),
        action_ref: row.action_ref.clone(),
        actor_ref: row.actor_ref.clone(),
        recorded_at: time::format(row.recorded_at),
        correction_reason: correction.and_then(|c| text(c, "correction_reason")),
        approval_id: correction.and(payload.as_ref()).and_then(|payload| text(payload, "approval_id")),
    }
}

fn text(value: &Value, name: &str) -> Option<String> {
    value.get(name).and_then(Value::as_str).map(str::to_owned)
}

fn items<'v>(value: &'v Value, name: &str) -> impl Iterator<Item = &'v Value> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn entry(row: RecordRow, scene: Option<&Scene>, links: &Links) -> wire::TimelineEntry {
    let payload = payload(&row);
    let run = scene.and_then(|scene| scene.run.as_ref());
    let said = payload.as_ref();
    let plan = run.map(|(_, plan)| &**plan);
    let nothing = Value::Null;
    let names = Names::of(plan, said.unwrap_or(&nothing));
    let moves = |name: &str| -> Vec<wire::TimelineMove> {
        said.into_iter().flat_map(|payload| items(payload, name)).map(|made| one_move(made, &names)).collect()
    };
    // A transition of the run's own machine stands behind what the floor did for it.
    let acted = said.and_then(|payload| payload.get("step_seq")?.as_u64()).and_then(|seq| u32::try_from(seq).ok());
    let step = acted.zip(plan).and_then(|(seq, plan)| plan.step(seq)).map(|step| step.name.to_string());
    let own = said.and_then(|payload| payload.get("own_transition")).map(|made| one_move(made, &names));
    let own = own.map(|made| wire::TimelineMove { step, ..made });
    let reopens = said.and_then(prior).and_then(|prior| links.closed.get(&prior).cloned());
    wire::TimelineEntry {
        trace_id: run.map(|(run, _)| trace_of(run)),
        correlation_id: run.map(|(run, _)| {
            run.row.correlation_key.as_ref().map_or_else(|| run.row.instance_id.to_string(), |key| key.to_string())
        }),
        transitions: moves("transitions").into_iter().chain(own).collect(),
        run_transitions: moves("run_transitions"),
        facets: said.zip(run).map_or(vec![], |(payload, (_, plan))| facets(payload, plan)),
        errors: said.map_or(vec![], |payload| errors(payload, &names)),
        last_error: said.and_then(|payload| text(payload, "last_error")),
        gate: said.and_then(|payload| gate(&row, payload)),
        reopens,
        reopened_by: links.reopened_by.get(&row.event_id).cloned().unwrap_or_default(),
        reason: said.and_then(|payload| text(payload, "reason")),
        purged: row.record.content.is_none(),
        event_id: row.event_id.to_string(),
        recorded_at: time::format(row.recorded_at),
        instance_id: row.instance_id.to_string(),
        sequence: row.sequence,
        action_ref: row.action_ref,
        actor_ref: row.actor_ref,
        payload,
    }
}

fn trace_of(run: &RunView) -> String {
    run.row.trace_id.clone().unwrap_or_else(|| own_trace(run.row.instance_id)).to_string()
}

/// What is no state but belongs to one: which attempt it is, what is waited for, how badly it is blocked.
fn facets(payload: &Value, plan: &Plan) -> Vec<String> {
    let seq = |value: &Value| value.get("step_seq").and_then(Value::as_u64).and_then(|seq| StepSeq::try_from(seq).ok());
    let named = |value: &Value| {
        let step = seq(value).and_then(|seq| plan.step(seq));
        step.map(|step| (step.name.clone(), step.retry.max_attempts()))
    };
    let mut facets = Vec::new();
    for lease in items(payload, "leases") {
        if let (Some((name, max)), Some(attempt)) = (named(lease), lease.get("attempt").and_then(Value::as_u64)) {
            facets.push(format!("{name}: attempt {attempt}/{max}"));
        }
    }
    for error in items(payload, "errors") {
        let attempts = error.get("attempts").and_then(Value::as_u64).unwrap_or_default();
        match named(error) {
            Some((name, max)) if error.get("next_run_at_us").is_some() => {
                facets.push(format!("{name}: retrying (attempt {}/{max})", attempts + 1));
            }
            Some((name, max)) => facets.push(format!("{name}: attempt {}/{max}", attempts.max(1))),
            None => {}
        }
    }
    for wait in items(payload, "waits") {
        if let (Some((name, _)), Some(facet)) = (named(wait), text(wait, "facet")) {
            facets.push(format!("{name}: {facet}"));
        }
    }
    for severity in items(payload, "severities") {
        if let (Some((name, _)), Some(colour)) = (named(severity), text(severity, "severity")) {
            let cause = text(severity, "cause").map_or_else(String::new, |cause| format!(" ({cause})"));
            facets.push(format!("{name}: blocked {colour}{cause}"));
        }
    }
    if payload
        .get("transitions")
        .is_some_and(|_| items(payload, "transitions").any(|t| text(t, "id").as_deref() == Some("T11")))
    {
        facets.push("escalated".to_owned());
    }
    facets
}
