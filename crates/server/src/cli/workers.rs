//! `countersign governance workers`, `freeze`, `thaw` and `lag`.

use super::Keyed;
use super::connection::Context;
use super::output::{self, printable};
use super::table::{Table, Tint, tint};
use super::time::when;
use clap::Args;
use countersign_client::wire::{
    ControlWorkers, LagPercentiles, LagQuery, LagReport, TrafficLight, WorkerClass, WorkerClasses, WorkerStatus,
};
use jiff::Timestamp;

#[derive(Args)]
pub struct WorkersArgs {
    /// Show the workers of this class, `<queue>:<kind>`
    #[arg(value_name = "CLASS")]
    worker_class: Option<String>,
}

#[derive(Args)]
pub struct ControlArgs {
    /// The worker class, `<queue>:<kind>`, such as orders:worker
    #[arg(value_name = "CLASS")]
    worker_class: String,
    /// The reason, for the record
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    keyed: Keyed,
}

#[derive(Args)]
pub struct LagArgs {
    /// The window that ends now, such as 1h or 7d; at most 31d
    #[arg(long, value_name = "DURATION")]
    window: Option<String>,
}

pub async fn workers(context: &Context, args: WorkersArgs) -> anyhow::Result<()> {
    let mut answer = context.client()?.worker_classes().await?;
    if let Some(class) = &args.worker_class {
        answer.body.items.retain(|item| item.worker_class == *class);
        let kept = |item: &serde_json::Value| item["worker_class"] == class.as_str();
        if let Some(items) = answer.json.get_mut("items").and_then(serde_json::Value::as_array_mut) {
            items.retain(kept);
        }
    }
    if context.json() {
        return output::json(&answer.json);
    }
    match (&args.worker_class, answer.body.items.as_slice()) {
        (_, []) => output::say("No workers."),
        (Some(_), [class]) => output::say(&workers_table(class).to_string()),
        _ => output::say(&classes_table(&answer.body).to_string()),
    }
}

fn classes_table(classes: &WorkerClasses) -> Table {
    let now = Timestamp::now();
    let mut table = Table::new(["class", "status", "workers", "last tick", "within the last hour"]);
    for class in &classes.items {
        let told = class.summary.as_ref().map_or_else(String::new, |summary| printable(&summary.text));
        let frozen = class.frozen.as_ref().map(|freeze| format!("by {}: {}", freeze.by, freeze.reason));
        table.row([
            printable(&class.worker_class),
            status(class.status),
            class.worker_count.to_string(),
            class.last_tick_at.as_deref().map_or_else(String::new, |at| when(at, now)),
            frozen.map_or(told, |frozen| printable(&frozen)),
        ]);
    }
    table
}

fn workers_table(class: &WorkerClass) -> Table {
    let now = Timestamp::now();
    let mut table = Table::new(["worker", "status", "last tick", "last successful tick"]);
    for worker in &class.workers {
        table.row([
            printable(&worker.worker_id),
            status(worker.status),
            when(&worker.last_tick_at, now),
            worker.last_ok_at.as_deref().map_or_else(String::new, |at| when(at, now)),
        ]);
    }
    table
}

fn status(status: WorkerStatus) -> String {
    match status {
        WorkerStatus::Ok => tint(Tint::Dim, "ok"),
        WorkerStatus::Silent => tint(Tint::Strong, "silent"),
        WorkerStatus::Frozen => tint(Tint::Wait, "frozen"),
    }
}

pub async fn freeze(context: &Context, args: ControlArgs) -> anyhow::Result<()> {
    control(context, args, "freeze").await
}

pub async fn thaw(context: &Context, args: ControlArgs) -> anyhow::Result<()> {
    control(context, args, "thaw").await
}

async fn control(context: &Context, args: ControlArgs, action: &str) -> anyhow::Result<()> {
    let ControlArgs { worker_class, reason, keyed } = args;
    let request = ControlWorkers { reason };
    let answer = context.client_keyed(&keyed)?.control_workers(&worker_class, action, &request).await?;
    if context.json() {
        return output::json(&answer.json);
    }
    let moved = answer.body;
    let state = if moved.frozen { "frozen: its workers claim nothing" } else { "thawed: its workers claim again" };
    output::say(&format!("{} is {state}", tint(Tint::Strong, &printable(&moved.worker_class))))
}

pub async fn lag(context: &Context, args: LagArgs) -> anyhow::Result<()> {
    let answer = context.client()?.lag(&LagQuery { window: args.window }).await?;
    if context.json() {
        return output::json(&answer.json);
    }
    if answer.body.items.is_empty() {
        return output::say("Nothing arrived in this window.");
    }
    output::say(&lag_table(&answer.body).to_string())
}

fn lag_table(report: &LagReport) -> Table {
    let mut table = Table::new(["light", "from", "to", "count", "p50", "p95", "p99", "p95 may be"]);
    for pair in &report.items {
        let light = match pair.light {
            TrafficLight::Green => tint(Tint::Dim, "green"),
            TrafficLight::Yellow => tint(Tint::Wait, "yellow"),
            TrafficLight::Red => tint(Tint::Strong, "red"),
        };
        let LagPercentiles { p50_ms, p95_ms, p99_ms } = pair.lag;
        table.row([
            light,
            printable(&pair.producer),
            printable(&pair.consumer),
            pair.count.to_string(),
            length(p50_ms),
            length(p95_ms),
            length(p99_ms),
            pair.thresholds.p95_ms.map_or_else(String::new, length),
        ]);
    }
    table
}

fn length(ms: f64) -> String {
    if ms < 1000.0 { format!("{ms:.1} ms") } else { format!("{:.1} s", ms / 1e3) }
}
