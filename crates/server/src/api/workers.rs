//! Workers and lag: who works, who was not heard of, what was frozen, and how long things wait.

use super::auth::Caller;
use super::body::{Address, Posted, Sent};
use super::openapi::Refused;
use super::query::{Axis, List, NoQuery, Params};
use super::{App, Done, Problem, Read, mismatched, time};
use crate::config::Duration;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use countersign_client::wire;
use countersign_engine::monitor::{ClassView, LagPair, LagThresholds, Percentiles, WorkerState, WorkerView};
use countersign_engine::{Command, Outcome};
use countersign_kernel::Time;
use countersign_kernel::registry::{self, ClassMark, ClassMarked, Freeze, worker_class};
use serde_json::{Map, Value};

/// Who makes the sentences about workers.
const SUMMARIZER: &str = "countersign.worker_status";
const SUMMARIZER_VERSION: &str = "1";
const DEFAULT_WINDOW: &str = "1h";

pub struct LagList;

impl List for LagList {
    const TAG: u8 = b'W';
    const AXES: &'static [Axis] = &[Axis::Text("window")];
    const PAGED: bool = false;
}

/// The worker classes: who is there, when they were last heard of, and what they did within the last hour. Needs
/// `governance:read`.
#[utoipa::path(get, path = "/v1/governance/workers", tag = "governance",
    responses((status = 200, body = wire::WorkerClasses), Refused))]
pub async fn workers(State(app): State<App>, caller: Caller, _: NoQuery) -> Read<wire::WorkerClasses> {
    let engine = app.engine()?;
    let classes = engine.worker_classes(&caller.actor_ref).await?;
    let now = engine.now();
    Ok(Json(wire::WorkerClasses { items: classes.into_iter().map(|class| class_to_wire(class, now)).collect() }))
}

/// Freeze a worker class, `<queue>:<kind>`: from now on its workers claim nothing on any server, and what they work on they may
/// finish. Needs `governance:act`.
#[utoipa::path(post, path = "/v1/governance/workers/{worker_class}/freeze", tag = "governance",
    params(("worker_class" = String, Path)), request_body = wire::ControlWorkers,
    responses((status = 200, body = wire::WorkersMoved), Refused))]
pub async fn freeze(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    posted: Posted<wire::ControlWorkers>,
) -> Done<wire::WorkersMoved> {
    mark(&app, caller, &address, posted.sent, ClassMark::Frozen, posted.body.reason).await
}

/// Thaw a worker class: its workers may claim again. Needs `governance:act`.
#[utoipa::path(post, path = "/v1/governance/workers/{worker_class}/thaw", tag = "governance",
    params(("worker_class" = String, Path)), request_body = wire::ControlWorkers,
    responses((status = 200, body = wire::WorkersMoved), Refused))]
pub async fn thaw(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    posted: Posted<wire::ControlWorkers>,
) -> Done<wire::WorkersMoved> {
    mark(&app, caller, &address, posted.sent, ClassMark::Thawed, posted.body.reason).await
}

async fn mark(
    app: &App,
    caller: Caller,
    address: &Address,
    sent: Sent,
    mark: ClassMark,
    reason: String,
) -> Done<wire::WorkersMoved> {
    let worker_class = address.get("worker_class").to_owned();
    let command = ClassMarked { mark, worker_class: worker_class.clone(), reason };
    let command = Command::Registry(registry::Command::MarkWorkerClass(command));
    match app.engine()?.execute(caller.call(command, sent)?).await? {
        Outcome::Done => {
            let frozen = mark == ClassMark::Frozen;
            Ok((StatusCode::OK, Json(wire::WorkersMoved { worker_class, frozen })))
        }
        outcome => Err(mismatched(&outcome)),
    }
}

/// Leave a queue: the worker stops, and its silence is no problem. Needs `tasks:work`, or `tasks:work:<definition>`.
#[utoipa::path(post, path = "/v1/queues/{queue}/leave", tag = "tasks", params(("queue" = String, Path)),
    request_body = wire::LeaveQueue, responses((status = 200, body = wire::QueueLeft), Refused))]
pub async fn leave(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    posted: Posted<wire::LeaveQueue>,
) -> Done<wire::QueueLeft> {
    let queue = address.get("queue").to_owned();
    if queue.starts_with('@') {
        return Err(Problem::invalid_request("this queue belongs to the engine's own executors").at("queue"));
    }
    let worker_id = posted.body.worker_id;
    let engine = app.engine()?;
    let (actor_ref, idempotency) = caller.acts("leave_queue", posted.sent)?;
    let left = engine.once(&actor_ref, idempotency, async {
        engine.leave_queue(&actor_ref, &queue, &worker_id).await?;
        Ok(wire::QueueLeft { worker_class: worker_class(&queue, &worker_id) })
    });
    Ok((StatusCode::OK, Json(left.await?)))
}

/// How long things waited within a window that ends now (`window`, such as `1h`, at most 31d), by producer and consumer:
/// events for their sinks, ready steps for a worker, due timers, and records for their checkpoint. Needs `governance:read`.
#[utoipa::path(get, path = "/v1/governance/lag", tag = "governance", params(Params<LagList>),
    responses((status = 200, body = wire::LagReport), Refused))]
pub async fn lag(State(app): State<App>, caller: Caller, params: Params<LagList>) -> Read<wire::LagReport> {
    let engine = app.engine()?;
    engine.require_governance_read(&caller.actor_ref).await?;
    let window = params.text("window").unwrap_or_else(|| DEFAULT_WINDOW.to_owned());
    let window = Duration::parse(&window).map_err(|why| Problem::invalid_query("window", why))?;
    let lag = engine.read_lag(&caller.actor_ref, window.us).await?;
    let window = wire::TimeWindow { start_at: time::format(lag.from), end_at: time::format(lag.until) };
    Ok(Json(wire::LagReport { window, items: lag.pairs.iter().map(pair_to_wire).collect() }))
}

fn class_to_wire(class: ClassView, now: Time) -> wire::WorkerClass {
    let summary = summary(&class, now);
    let (queue, kind) = class.worker_class.rsplit_once(':').unwrap_or((&class.worker_class, ""));
    let at = |at: Option<Time>| at.map(time::format);
    wire::WorkerClass {
        queue: queue.to_owned(),
        kind: kind.to_owned(),
        status: state_to_wire(class.state),
        light: match class.state {
            WorkerState::Ok => wire::TrafficLight::Green,
            WorkerState::Silent => wire::TrafficLight::Red,
            WorkerState::Frozen => wire::TrafficLight::Yellow,
        },
        summary,
        last_tick_at: at(class.last_tick),
        last_ok_at: at(class.last_ok),
        threshold_ms: class.threshold_us / 1000,
        frozen: class.frozen.map(|Freeze { at, by, reason }| wire::FreezeView { by, at: time::format(at), reason }),
        worker_count: class.count,
        workers: class.workers.iter().map(worker_to_wire).collect(),
        worker_class: class.worker_class,
    }
}

/// "OK, 14 jobs / 0 errors / lag 1.2 s p95", with the records of what was done. Nothing, where nothing was.
fn summary(class: &ClassView, now: Time) -> Option<wire::Summary> {
    let work = &class.work;
    if work.events.is_empty() {
        return None;
    }
    let (word, key) = match class.state {
        WorkerState::Ok => ("OK", "ok"),
        WorkerState::Silent => ("Silent", "silent"),
        WorkerState::Frozen => ("Frozen", "frozen"),
    };
    let p95_us = class.lag.percentile(95);
    let lag = p95_us.map_or_else(String::new, |us| format!(" / lag {:.1} s p95", us as f64 / 1e6));
    let counted = |count: u64, one: &str| if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") };
    let mut args = Map::new();
    args.insert("jobs".to_owned(), work.jobs.into());
    args.insert("errors".to_owned(), work.errors.into());
    args.insert("lag_p95_ms".to_owned(), p95_us.map_or(Value::Null, |us| Value::from(us as f64 / 1e3)));
    Some(wire::Summary {
        text: format!("{word}, {} / {}{lag}", counted(work.jobs, "job"), counted(work.errors, "error")),
        text_key: format!("governance.workers.{key}"),
        args,
        source_event_count: work.events.len() as u64,
        source_event_total: work.jobs + work.errors,
        time_window: wire::TimeWindow { start_at: time::format(class.since), end_at: time::format(now) },
        generated_by: wire::GeneratedBy {
            summarizer_kind: wire::SummarizerKind::DeterministicRule,
            summarizer_ref: SUMMARIZER.to_owned(),
            summarizer_version: SUMMARIZER_VERSION.to_owned(),
        },
        confidence: None,
        source_event_refs: work.events.iter().map(ToString::to_string).collect(),
        timeline: super::governance::of_chain(),
    })
}

fn worker_to_wire(worker: &WorkerView) -> wire::WorkerView {
    wire::WorkerView {
        worker_id: worker.seen.worker_id.to_string(),
        status: state_to_wire(worker.state),
        last_tick_at: time::format(worker.seen.last_tick),
        last_ok_at: Some(worker.seen.last_ok).filter(|at| at.0 > 0).map(time::format),
    }
}

const fn state_to_wire(state: WorkerState) -> wire::WorkerStatus {
    match state {
        WorkerState::Ok => wire::WorkerStatus::Ok,
        WorkerState::Silent => wire::WorkerStatus::Silent,
        WorkerState::Frozen => wire::WorkerStatus::Frozen,
    }
}

fn pair_to_wire(pair: &LagPair) -> wire::LagPair {
    let LagThresholds { p50_us, p95_us, p99_us } = pair.thresholds;
    let ms = |us: Option<i64>| us.map(|us| us as f64 / 1e3);
    wire::LagPair {
        producer: pair.producer.to_string(),
        consumer: pair.consumer.to_string(),
        light: if pair.is_late() || pair.is_open { wire::TrafficLight::Yellow } else { wire::TrafficLight::Green },
        problem: pair.is_open.then_some(wire::ProblemState::Open),
        count: pair.count,
        lag: percentiles_to_wire(pair.percentiles),
        thresholds: wire::LagThresholds { p50_ms: ms(p50_us), p95_ms: ms(p95_us), p99_ms: ms(p99_us) },
        points: pair
            .points
            .iter()
            .map(|point| wire::LagPoint {
                at: time::format(point.at),
                count: point.count,
                lag: percentiles_to_wire(point.percentiles),
            })
            .collect(),
    }
}

fn percentiles_to_wire(found: Percentiles) -> wire::LagPercentiles {
    let ms = |us: i64| us as f64 / 1e3;
    wire::LagPercentiles { p50_ms: ms(found.p50_us), p95_ms: ms(found.p95_us), p99_ms: ms(found.p99_us) }
}
