//! Actions on runs: starting and controlling them, claiming and reporting as a worker, sending events, reading. A run
//! is a JSON object with the fields of the wire at every level; only times are numbers of microseconds.

use super::{Decided, On, Opened, Said};
use async_trait::async_trait;
use countersign_kernel::lifecycle::{RunState, StepCode};
use countersign_kernel::plan::{Order, Plan, StepSeq};
use countersign_kernel::process::Decision;
use countersign_kernel::rollup::Rollup;
use countersign_kernel::run::Runbook;
use serde_json::{Map, Value, json};

#[derive(Clone, Debug, Default)]
pub struct RunStart {
    /// `name` or `name@version`.
    pub definition: String,
    /// JSON text.
    pub input: Option<String>,
    pub subject_ref: Option<String>,
    pub priority: Option<u8>,
    /// So long from now.
    pub start_in_us: Option<i64>,
    /// Ids of runs.
    pub corrects: Option<String>,
    pub from_step: Option<(String, String)>,
    pub dry_run: bool,
}

#[derive(Clone, Debug)]
pub struct ClaimWish {
    pub queue: String,
    pub worker_id: String,
    pub max: u32,
    pub lease_us: i64,
}

/// A step that a worker was given.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskSeen {
    pub run_id: String,
    pub step: String,
    pub step_seq: u32,
    pub attempt: u32,
    pub max_attempts: u32,
    pub task_type: String,
    pub input: Value,
    pub event: Option<Value>,
    pub lease_token: String,
}

/// A task as its worker names it.
#[derive(Clone, Copy, Debug)]
pub struct TaskOf<'a> {
    pub run_id: &'a str,
    pub step_seq: u32,
    pub lease_token: &'a str,
}

/// What a worker says became of its task. Values are JSON texts.
#[derive(Clone, Debug)]
pub enum Report {
    Complete { output: Option<String>, sending: Option<String>, claim_next: bool },
    Wait { event_type: Option<String>, timeout_us: Option<i64>, facet: Option<String>, sending: Option<String> },
    Retry { error: String, backoff_us: Option<i64>, category: Option<String> },
    Dead { error: String, category: Option<String> },
    CannotComplete { evidence: Option<String> },
    Block { reason: Option<String> },
    Beat { lease_us: i64 },
}

#[derive(Clone, Debug)]
pub struct Reported {
    pub state_code: String,
    pub next: Option<TaskSeen>,
}

#[derive(Clone, Debug)]
pub struct SentEvent {
    pub id: String,
    pub event_type: String,
    pub to: Addressed,
    /// JSON text.
    pub data: Option<String>,
}

#[derive(Clone, Debug)]
pub enum Addressed {
    Run(String),
    Key(String),
}

#[derive(Clone, Debug, Default)]
pub struct Woken {
    pub duplicate: bool,
    /// The steps' names.
    pub steps: Vec<String>,
}

/// What operators do to a run.
#[derive(Clone, Debug)]
pub enum Control {
    /// cancel, pause, resume, stop or void.
    Run {
        action: &'static str,
        approval_id: Option<String>,
        reason: Option<String>,
        /// Only of a cancel.
        compensate: bool,
    },
    Unblock {
        step: String,
        evidence_ref: Option<String>,
        reason: Option<String>,
    },
    Declare {
        step: String,
        done: bool,
        output: Option<String>,
        reason: String,
    },
}

/// An act on one step: the last word of the route, and the request's body.
#[derive(Clone, Debug)]
pub struct Acting {
    pub act: String,
    pub step: String,
    pub body: Map<String, Value>,
    /// A new deadline, so long from now.
    pub deadline_in_us: Option<i64>,
    pub preview: bool,
}

/// What a preview says, in one line: the transition, or `refused` and every guard or code that refuses.
pub fn previewed<'p>(transition_id: Option<&str>, problems: impl IntoIterator<Item = &'p str>) -> String {
    let problems: Vec<&str> = problems.into_iter().collect();
    match problems.as_slice() {
        [] => transition_id.unwrap_or("nothing").to_owned(),
        all => format!("refused {}", all.join(" and ")),
    }
}

#[async_trait]
pub trait Runs: Send {
    /// The state of the step afterwards; for a preview, what [`previewed`] says.
    async fn act_on_step(&mut self, by: &str, run_id: &str, acting: &Acting) -> Said<String>;
    async fn start_run(&mut self, by: &str, start: &RunStart) -> Said<String>;
    async fn claim(&mut self, by: &str, wish: &ClaimWish) -> Said<Vec<TaskSeen>>;
    async fn report(&mut self, by: &str, task: TaskOf<'_>, report: &Report) -> Said<Reported>;
    async fn send_event(&mut self, by: &str, event: &SentEvent) -> Said<Woken>;
    /// What a command on a run, or the report of a task, would come to: as [`previewed`] says it.
    async fn preview_control(&mut self, by: &str, run_id: &str, control: &Control) -> Said<String>;
    async fn preview_report(&mut self, by: &str, task: TaskOf<'_>, report: &Report) -> Said<String>;
    /// The state of the run afterwards.
    async fn control_run(&mut self, by: &str, run_id: &str, control: &Control) -> Said<String>;
    async fn open_run_gate(&mut self, by: &str, on: On<'_>) -> Said<Opened>;
    async fn decide_run_gate(&mut self, by: &str, on: On<'_>, decision: Decision) -> Said<Decided>;
    async fn read_run(&mut self, by: &str, run_id: &str) -> Said<Value>;
    /// The run that this step waits for. Where no executor of the server's would start it, it is started here.
    async fn child_of(&mut self, run_id: &str, step: &str) -> Said<String>;
}

/// The members of a view that are times.
pub const TIMES: &[&str] = &[
    "started_at",
    "start_at",
    "completed_at",
    "failed_at",
    "next_run_at",
    "locked_until",
    "deadline_at",
    "deadline",
    "start_by",
    "overdue_first_at",
    "blocked_since",
    "escalated_at",
    "computed_at",
    "frozen_at",
    "soft_cap_at",
];

/// The word for what a cell is.
pub const fn role(compensates: bool, is_task: bool) -> &'static str {
    match (compensates, is_task) {
        (true, _) => "compensation",
        (false, true) => "task",
        (false, false) => "step",
    }
}

/// The run that a step of this view waits for.
pub fn child_in(view: &Value, step: &str) -> Option<String> {
    let mut steps = view["steps"].as_array().into_iter().flatten();
    Some(steps.find(|seen| seen["name"] == step)?["child_run_id"].as_str()?.to_owned())
}

/// A view without the members that say nothing.
pub fn without_nulls(object: Value) -> Value {
    match object {
        Value::Object(members) => {
            members.into_iter().filter(|(_, value)| !value.is_null()).collect::<Map<_, _>>().into()
        }
        other => other,
    }
}

/// A run's colour, as the contract shows it.
pub fn rollup(rollup: &Rollup, plan: &Plan) -> Value {
    let name = |seq: StepSeq| plan.step(seq).map(|step| step.name.to_string());
    let counts = rollup.counts;
    without_nulls(json!({
        "state_code": rollup.colour.as_str(),
        "decisive_step": rollup.decisive.and_then(|(seq, _)| name(seq)),
        "decisive_state_code": rollup.decisive.map(|(_, state)| state.as_str()),
        "counts": {
            "red": counts.red, "yellow": counts.yellow, "green": counts.green,
            "skipped": counts.skipped, "optional_excluded": counts.optional_excluded,
        },
        "frozen_at": rollup.frozen_at.map(|at| at.0),
    }))
}

/// What a runbook's run shows besides, laid over its view.
pub fn with_runbook(mut view: Value, book: Option<&Runbook>, plan: &Plan, codes: &[StepCode]) -> Value {
    let Some(book) = book else { return view };
    let shown = |text: &str| value(&countersign_engine::run::runbook::shown(text));
    let drift: Vec<Value> = book
        .drift
        .iter()
        .map(|d| json!({"pin": &*d.pin, "pinned": shown(&d.pinned), "live": d.live.as_deref().map(shown)}))
        .collect();
    let name = |seq: StepSeq| plan.step(seq).map_or_else(String::new, |spec| spec.name.to_string());
    view["phase"] = json!(&*book.phase(plan, codes));
    if book.dry_run {
        view["dry_run"] = json!(true);
    }
    if !drift.is_empty() {
        view["drift"] = json!(drift);
    }
    if let Some(survey) = &book.survey {
        view["surveying"] = json!(name(survey.step_seq));
    }
    if let Some((seq, at)) = book.claimed
        && let Some(cap) = plan.step(seq).and_then(|spec| spec.soft_cap)
    {
        view["steps"][seq as usize]["soft_cap_at"] = json!(at.after(cap).0);
    }
    for (seq, verdicts) in &book.checks {
        let verdicts: Vec<Value> = verdicts.iter().map(|v| json!({"name": &*v.name, "held": v.held})).collect();
        view["steps"][*seq as usize]["checks"] = json!(verdicts);
    }
    view
}

/// From its beginning to where it leads.
pub fn critical_path(plan: &Plan, to: Option<StepSeq>) -> Option<Vec<String>> {
    let mut path: Vec<String> =
        plan.critical_path(to).filter_map(|seq| plan.step(seq)).map(|s| s.name.to_string()).collect();
    path.reverse();
    (!path.is_empty()).then_some(path)
}

/// What both vocabularies call a step, and where a chain stands: a level that has no view of its own shows it so.
pub fn step_words(code: StepCode, retry_scheduled: bool, run: RunState) -> Value {
    json!({"linear": code.linear(retry_scheduled, !run.is_ended()), "dag": code.dag(retry_scheduled)})
}

/// A chain's first step that has not ended, or its last one.
pub fn current(plan: &Plan, codes: &[StepCode]) -> Option<(StepSeq, String)> {
    if plan.order != Order::Linear {
        return None;
    }
    let steps = (0..).zip(&plan.steps).zip(codes);
    let open = steps.clone().find(|(_, code)| !code.is_terminal());
    open.or_else(|| steps.last()).map(|((seq, spec), _)| (seq, spec.name.to_string()))
}

pub fn value(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_else(|_| Value::String(json.to_owned()))
}

/// A value as the server keeps it.
pub fn compact(json: Option<&str>) -> std::sync::Arc<str> {
    json.map_or_else(|| "null".into(), |json| value(json).to_string().into())
}
