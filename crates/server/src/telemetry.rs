//! Log and metrics. The log goes to stderr; it says what was asked and how it ended, never a token and
//! never a body. Metrics are kept in this process and rendered where `/metrics` is asked for.

use anyhow::Context;
use axum::extract::{MatchedPath, Request};
use axum::http::header::CACHE_CONTROL;
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use countersign_engine::Engine;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use std::io::IsTerminal;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tracing_subscriber::EnvFilter;

/// The variable that filters the log, in the form of `tracing`'s directives: `debug`, `info,hyper=warn`.
pub const LOG_VARIABLE: &str = "COUNTERSIGN_LOG";

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const REQUEST_SECONDS: &str = "countersign_http_request_seconds";
const QUEUE_READY: &str = "countersign_queue_ready";
const CLOCK_OFFSET: &str = "countersign_clock_offset_seconds";
const PROBLEMS: &str = "countersign_problems";
const LAG: &str = "countersign_lag_seconds";
const TIMERS: &str = "countersign_timers";
const LATENCY_BUCKETS: &[f64] = &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
const BATCH_BUCKETS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];
/// Samples that nobody fetches must not pile up.
const UPKEEP: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Json,
    Text,
}

/// Starts the log of this process. Without a format: text on a terminal, JSON elsewhere.
pub fn start_log(format: Option<LogFormat>) -> anyhow::Result<()> {
    let filter = match std::env::var(LOG_VARIABLE) {
        Ok(directives) => EnvFilter::try_new(&directives)
            .with_context(|| format!("{LOG_VARIABLE}={directives} is no log filter; write e.g. `debug`"))?,
        Err(_) => EnvFilter::new("info,refinery_core=warn"),
    };
    let terminal = std::io::stderr().is_terminal();
    let format = format.unwrap_or(if terminal { LogFormat::Text } else { LogFormat::Json });
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Json => log.json().flatten_event(true).try_init(),
        LogFormat::Text => log.with_ansi(terminal).with_target(false).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("the log cannot be started: {error}"))
}

/// The metrics of this process; the first call begins to collect them. A program that has installed a
/// recorder of its own keeps it, and then `/metrics` has nothing to tell.
pub fn metrics() -> &'static PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE.get_or_init(|| {
        let recorder = builder().build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("metrics are collected elsewhere: /metrics stays empty");
        }
        describe();
        handle
    })
}

fn builder() -> PrometheusBuilder {
    let batch = Matcher::Full("countersign_batch_commands".to_owned());
    let latency = Matcher::Full(REQUEST_SECONDS.to_owned());
    // Fails only for an empty list of buckets.
    PrometheusBuilder::new()
        .set_buckets_for_metric(latency, LATENCY_BUCKETS)
        .and_then(|builder| builder.set_buckets_for_metric(batch, BATCH_BUCKETS))
        .unwrap_or_default()
}

fn describe() {
    metrics::describe_counter!("countersign_http_requests_total", "Requests by route and status");
    metrics::describe_histogram!(REQUEST_SECONDS, metrics::Unit::Seconds, "Time from request to answer");
    metrics::describe_counter!("countersign_commands_total", "Commands by name and answer");
    metrics::describe_counter!("countersign_refused_authorisations_total", "Commands refused for want of authority");
    metrics::describe_histogram!("countersign_batch_commands", "Commands per transaction");
    metrics::describe_histogram!("countersign_command_steps", "Steps that commands spent on expressions and schemas");
    metrics::describe_counter!("countersign_runs_started_total", "Runs that this node has started");
    metrics::describe_counter!(
        "countersign_runs_ended_total",
        "Runs that ended on this node, by the state they ended in"
    );
    metrics::describe_counter!("countersign_steps_total", "Steps by the state they came to; `failed` counts attempts");
    metrics::describe_gauge!(QUEUE_READY, "Steps that may be claimed on this node, by queue");
    metrics::describe_gauge!(PROBLEMS, "Problems that are open, by category");
    metrics::describe_gauge!(LAG, "How long things waited lately, by producer, consumer and quantile");
    metrics::describe_gauge!(TIMERS, "What this node's clock has to look at: leases, waits, limits, retries");
    metrics::describe_gauge!(
        CLOCK_OFFSET,
        metrics::Unit::Seconds,
        "By how much the engine's time is ahead of the wall clock"
    );
    metrics::describe_counter!(
        "countersign_clock_jumps_total",
        "Jumps of the wall clock, and records found ahead of it"
    );
    metrics::describe_gauge!("countersign_cache_bytes", metrics::Unit::Bytes, "What cached instances take, about");
    metrics::describe_gauge!("countersign_plan_bytes", metrics::Unit::Bytes, "What cached plans take, about");
    metrics::describe_gauge!("countersign_stream_subscriptions", "Live streams that are open");
    metrics::describe_counter!(
        "countersign_stream_dropped_total",
        "Live streams that were dropped: their readers were too slow"
    );
    crate::listen::describe_metrics();
    crate::outbox::describe_metrics();
    crate::schedule::describe_metrics();
}

/// What stands in the queues at this moment; between two scrapes nobody asks.
pub async fn look_at(engine: &Engine) {
    for (queue, ready) in engine.queue_depths() {
        metrics::gauge!(QUEUE_READY, "queue" => queue.to_string()).set(ready as f64);
    }
    metrics::gauge!(TIMERS).set(engine.timers() as f64);
    // What cannot be read keeps what it was; `/readyz` says why.
    for (category, open) in engine.problem_counts().await.unwrap_or_default() {
        metrics::gauge!(PROBLEMS, "category" => category.as_str()).set(open as f64);
    }
    for (producer, consumer, found) in engine.lag_now().await.unwrap_or_default() {
        for (quantile, us) in [("0.5", found.p50_us), ("0.95", found.p95_us), ("0.99", found.p99_us)] {
            let labels = [
                ("producer", producer.to_string()),
                ("consumer", consumer.to_string()),
                ("quantile", quantile.to_owned()),
            ];
            metrics::gauge!(LAG, &labels).set(us as f64 / 1e6);
        }
    }
    metrics::gauge!(CLOCK_OFFSET).set(engine.clock().ahead_of_wall_us() as f64 / 1e6);
}

/// Keeps the memory of unfetched samples bounded, for as long as it runs.
pub async fn upkeep() {
    let mut tick = tokio::time::interval(UPKEEP);
    loop {
        tick.tick().await;
        metrics().run_upkeep();
    }
}

/// One line and one sample per request, and an id by which both sides can name it.
pub async fn observe(mut request: Request, answer: impl AsyncFnOnce(Request) -> Response) -> Response {
    let id = request_id(&request);
    if let Ok(value) = HeaderValue::from_str(&id) {
        request.headers_mut().insert(REQUEST_ID, value);
    }
    let method = method_name(request.method());
    // Only routes of ours become labels: whoever asks for random paths must not fill the memory.
    let path = request
        .extensions()
        .get::<MatchedPath>()
        .map_or_else(|| "(unknown)".to_owned(), |path| path.as_str().to_owned());
    let started = Instant::now();
    let mut response = answer(request).await;
    let seconds = started.elapsed().as_secs_f64();
    let status = response.status().as_u16();

    metrics::counter!("countersign_http_requests_total", "method" => method, "path" => path.clone(), "status" => status.to_string())
        .increment(1);
    metrics::histogram!(REQUEST_SECONDS, "method" => method, "path" => path.clone()).record(seconds);
    let latency_ms = seconds * 1000.0;
    match status {
        500.. => tracing::error!(method, path, status, latency_ms, request_id = %id, "request failed"),
        400.. => tracing::info!(method, path, status, latency_ms, request_id = %id, "request refused"),
        _ => tracing::debug!(method, path, status, latency_ms, request_id = %id, "request"),
    }
    let headers = response.headers_mut();
    // Answers are of the moment, and some hold a token.
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if let Ok(value) = HeaderValue::from_str(&id) {
        headers.insert(REQUEST_ID, value);
    }
    response
}

/// The caller's own id if it is fit for a log line, else one of ours.
fn request_id(request: &Request) -> String {
    let given = request.headers().get(REQUEST_ID).and_then(|value| value.to_str().ok());
    let fit = |id: &&str| {
        (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:".contains(&b))
    };
    if let Some(id) = given.filter(fit) {
        return id.to_owned();
    }
    let mut bytes = [0; 8];
    // An id without randomness is still an id.
    let _ = getrandom::fill(&mut bytes);
    format!("{:016x}", u64::from_be_bytes(bytes))
}

/// Methods are labels too, and a client may invent them.
fn method_name(method: &axum::http::Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        _ => "(other)",
    }
}
