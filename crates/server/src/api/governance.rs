//! Governance: the board of problems, and the problems of a category.

use super::auth::Caller;
use super::body::Address;
use super::openapi::Refused;
use super::query::{Axis, List, NoQuery, Params};
use super::{App, Read, time};
use axum::Json;
use axum::extract::State;
use countersign_client::wire;
use countersign_engine::governance::BoardRow;
use countersign_engine::port::ProblemQuery;
use countersign_engine::rows::ProblemRow;
use countersign_kernel::governance::{Category, Light};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::run::own_trace;
use countersign_kernel::{InstanceId, Time};
use serde_json::{Map, Value};

/// Who makes the sentences of the board.
const SUMMARIZER: &str = "countersign.problem_board";
const SUMMARIZER_VERSION: &str = "1";

pub struct ProblemList;

impl List for ProblemList {
    const TAG: u8 = b'G';
    const AXES: &'static [Axis] = &[Axis::Word("state", &["open", "resolved"])];
}

/// All categories of problems, each with a light, how many are open, and a sentence with its evidence. Needs `governance:read`.
#[utoipa::path(get, path = "/v1/governance/problems", tag = "governance",
    responses((status = 200, body = wire::ProblemBoard), Refused))]
pub async fn board(State(app): State<App>, caller: Caller, _: NoQuery) -> Read<wire::ProblemBoard> {
    let engine = app.engine()?;
    let rows = engine.problem_board(&caller.actor_ref).await?;
    let now = engine.now();
    Ok(Json(wire::ProblemBoard { items: rows.iter().map(|row| row_to_wire(row, now)).collect() }))
}

/// The problems of a category, in the order in which they opened. Needs `governance:read`.
#[utoipa::path(get, path = "/v1/governance/problems/{category}", tag = "governance",
    params(("category" = String, Path), Params<ProblemList>),
    responses((status = 200, body = wire::Page<wire::ProblemItem>), Refused))]
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    params: Params<ProblemList>,
) -> Read<wire::Page<wire::ProblemItem>> {
    let engine = app.engine()?;
    engine.require_governance_read(&caller.actor_ref).await?;
    let unknown = || Refusal::new(Code::NotKnown, "there is no such category of problems").at("category");
    let category = Category::parse(address.get("category")).ok_or_else(unknown)?;
    let open = params.text("state").map(|state| state == "open");
    let rows = engine.problems(&caller.actor_ref, &ProblemQuery { category, open }, &params.page()?).await?;
    params.answer(rows, |row| row.problem.problem_id.0, |row| Ok(problem_to_wire(&row))).map(Json)
}

fn row_to_wire(row: &BoardRow, now: Time) -> wire::ProblemCount {
    let light = if row.open == 0 { Light::Green } else { row.category.light() };
    let oldest = row.evidence.first().filter(|_| row.open > 0);
    wire::ProblemCount {
        category: category_to_wire(row.category),
        light: match light {
            Light::Green => wire::TrafficLight::Green,
            Light::Yellow => wire::TrafficLight::Yellow,
            Light::Red => wire::TrafficLight::Red,
        },
        count: row.open,
        oldest_at: oldest.map(|oldest| time::format(oldest.problem.since)),
        summary: summary(row, now),
    }
}

/// Nothing, where no event is there to be summed up.
fn summary(row: &BoardRow, now: Time) -> Option<wire::Summary> {
    let since = row.evidence.iter().map(|row| row.problem.since).min()?;
    let refs: Vec<String> = row
        .evidence
        .iter()
        .map(|row| row.resolved.map_or(row.problem.opened_event_id, |end| end.event_id).to_string())
        .collect();
    let total = if row.open > 0 { row.open } else { refs.len() as u64 };
    let what = in_words(row.category, row.open);
    let (text, state) = match row.open {
        0 => (format!("No {what}; the last were resolved"), "resolved"),
        open => (format!("{open} {what}"), "open"),
    };
    let args = Map::from_iter([("count".to_owned(), Value::from(row.open))]);
    Some(wire::Summary {
        text,
        text_key: format!("governance.{}.{state}", row.category),
        args,
        source_event_count: refs.len() as u64,
        source_event_total: total,
        time_window: wire::TimeWindow { start_at: time::format(since), end_at: time::format(now) },
        generated_by: wire::GeneratedBy {
            summarizer_kind: wire::SummarizerKind::DeterministicRule,
            summarizer_ref: SUMMARIZER.to_owned(),
            summarizer_version: SUMMARIZER_VERSION.to_owned(),
        },
        confidence: None,
        source_event_refs: refs,
        timeline: of_chain(),
    })
}

/// Where what happened can be read: by the trace of its run, where it is about one.
pub fn timeline_of(row: &ProblemRow) -> String {
    trace_of(row).map_or_else(of_chain, |trace_id| format!("/v1/timeline?trace_id={trace_id}"))
}

fn trace_of(row: &ProblemRow) -> Option<String> {
    let run_id = row.problem.subject.run_id?;
    Some(row.trace_id.clone().unwrap_or_else(|| own_trace(run_id).to_string()))
}

pub fn of_chain() -> String {
    format!("/v1/timeline?instance_id={}", InstanceId::GOVERNANCE)
}

const fn in_words(category: Category, count: u64) -> &'static str {
    match (category, count) {
        (Category::Dlq, 1) => "dead letter",
        (Category::Dlq, _) => "dead letters",
        (Category::SilentWorkers, 1) => "silent worker class",
        (Category::SilentWorkers, _) => "silent worker classes",
        (Category::OverdueSteps, 1) => "overdue step",
        (Category::OverdueSteps, _) => "overdue steps",
        (Category::SchemaViolations, 1) => "schema violation",
        (Category::SchemaViolations, _) => "schema violations",
        (Category::EventLag, 1) => "breach of an event lag threshold",
        (Category::EventLag, _) => "breaches of event lag thresholds",
        (Category::IntegrityWarnings, 1) => "integrity warning",
        (Category::IntegrityWarnings, _) => "integrity warnings",
        (Category::FailedRuns, 1) => "failed run",
        (Category::FailedRuns, _) => "failed runs",
        (Category::OrphanRuns, 1) => "orphan run",
        (Category::OrphanRuns, _) => "orphan runs",
    }
}

fn problem_to_wire(row: &ProblemRow) -> wire::ProblemItem {
    let problem = &row.problem;
    let run_id = problem.subject.run_id;
    wire::ProblemItem {
        problem_id: problem.problem_id.to_string(),
        state: if row.resolved.is_some() { wire::ProblemState::Resolved } else { wire::ProblemState::Open },
        opened_event_id: problem.opened_event_id.to_string(),
        resolved_event_id: row.resolved.map(|end| end.event_id.to_string()),
        run_id: run_id.map(|run_id| run_id.to_string()),
        step: problem.subject.step.clone(),
        worker_class: problem.subject.worker_class.clone(),
        timeline: timeline_of(row),
        trace_id: trace_of(row),
        since: time::format(problem.since),
        detail: problem.detail.clone(),
    }
}

const fn category_to_wire(category: Category) -> wire::ProblemCategory {
    match category {
        Category::Dlq => wire::ProblemCategory::Dlq,
        Category::SilentWorkers => wire::ProblemCategory::SilentWorkers,
        Category::OverdueSteps => wire::ProblemCategory::OverdueSteps,
        Category::SchemaViolations => wire::ProblemCategory::SchemaViolations,
        Category::EventLag => wire::ProblemCategory::EventLag,
        Category::IntegrityWarnings => wire::ProblemCategory::IntegrityWarnings,
        Category::FailedRuns => wire::ProblemCategory::FailedRuns,
        Category::OrphanRuns => wire::ProblemCategory::OrphanRuns,
    }
}
