//! One step, and the fields that every step has whatever its `run`.

use super::Reader;
use super::expressions::Place;
use super::limits::cap;
use super::retry::{Written, retry_policy};
use super::tasks::tasks;
use super::values::{boolean, literal, priority, some_time, word};
use super::work::{RUNS, Run, check_fields, queue, work};
use crate::fields::{FieldList, Mapping, list, wrong_type};
use crate::names::{is_name, name, not_a_name};
use crate::problem::{Position, ProblemCode, Problems, quoted};
use crate::tree::{Node, Value};
use countersign_kernel::plan::{
    ErrorResponse, ErrorResponses, Expression, FailurePolicy, Micros, OnFailure, PinSpec, RetryPolicy, StepSeq,
    StepSpec, Template, Work,
};
use countersign_kernel::run::PROBE_TIMEOUT;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// All fields of a step. Which of them belong to its `run` is [`Run::fields`].
pub const STEP_FIELDS: FieldList = FieldList {
    required: &["name"],
    optional: &[
        "run",
        "dependsOn",
        "when",
        "input",
        "output",
        "inputSchema",
        "outputSchema",
        "retryPolicy",
        "timeout",
        "deadline",
        "onFailure",
        "optional",
        "readOnly",
        "idempotent",
        "gate",
        "request",
        "checks",
        "pins",
        "softCap",
        "state",
        "category",
        "errors",
        "priority",
        "scheduleToStart",
        "tasks",
        "queue",
        "command",
        "env",
        "artifacts",
        "success",
        "retry",
        "method",
        "url",
        "headers",
        "body",
        "approver_ref",
        "approvers",
        "quorum",
        "scope",
        "delegable",
        "event",
        "for",
        "until",
        "workflow",
        "pic",
    ],
};
pub const ERROR_FIELDS: FieldList = FieldList { required: &[], optional: &["agent_error", "external"] };

pub(super) const ON_FAILURES: &[(&str, OnFailure)] = &[
    ("abort", OnFailure::Abort),
    ("skip", OnFailure::Skip),
    ("compensate", OnFailure::Compensate),
    ("hold", OnFailure::Hold),
];
pub(super) const ERROR_RESPONSES: &[(&str, ErrorResponse)] =
    &[("retry", ErrorResponse::Retry), ("skip", ErrorResponse::Skip), ("abort", ErrorResponse::Abort)];
/// What can be looked at again and again without a trace.
pub(super) const PIN_RUNS: &[(&str, Run)] = &[("shell", Run::Shell), ("http", Run::Http), ("worker", Run::Worker)];

/// What the top level says for all steps. `None`: it could not be read.
pub(super) struct Defaults {
    pub queue: Arc<str>,
    pub retry: Written,
    pub failure_policy: Option<FailurePolicy>,
    pub hard_cap: Option<Micros>,
    pub schedule_to_start: Option<Micros>,
}

/// A step as it is written, for the passes that look at all of them.
pub(super) struct Step<'a> {
    pub node: &'a Node,
    /// The name, where there is one that can be read.
    pub name: Option<&'a str>,
    pub name_at: Position,
    /// What `dependsOn` names, with the place in that list.
    pub depends_on: Vec<(usize, &'a str, Position)>,
    /// True when something of `dependsOn` could not be read.
    pub depends_unknown: bool,
    pub depends_at: Option<Position>,
    pub gate: Option<(&'a str, Position)>,
    pub gate_unknown: bool,
    pub retry: Option<Written>,
    pub read_only: bool,
    pub on_failure: Option<(OnFailure, Position)>,
    /// Without its dependencies.
    pub spec: Option<StepSpec>,
}

pub(super) fn read_step<'a>(node: &'a Node, seq: StepSeq, defaults: &Defaults, reader: &mut Reader<'_>) -> Step<'a> {
    let mut step = Step {
        node,
        name: None,
        name_at: node.at,
        depends_on: Vec::new(),
        depends_unknown: true,
        depends_at: None,
        gate: None,
        gate_unknown: true,
        retry: None,
        read_only: false,
        on_failure: None,
        spec: None,
    };
    let path = format!("steps[{seq}]");
    let Some(fields) = Mapping::of(node, path, "a mapping with the `name` of a step", reader.problems) else {
        return step;
    };
    let misspelt = fields.check_fields_offering(&STEP_FIELDS, || offered(&fields), reader.problems);
    if let Some(node) = fields.get("name") {
        step.name = name(node, &fields.path_to("name"), reader.problems);
        step.name_at = node.at;
    }
    read_dependencies(&mut step, &fields, &misspelt, reader.problems);
    if let Some(node) = fields.get("gate").filter(|node| matches!(node.value, Value::Map(_))) {
        wrong_type(node, &fields.path_to("gate"), "the label of an entry in gate_spec", reader.problems);
    } else if let Some(node) = fields.get("gate") {
        step.gate = literal(node, &fields.path_to("gate"), reader.problems).map(|label| (label, node.at));
    }
    step.gate_unknown = step.gate.is_none() && (fields.get("gate").is_some() || misspelt.contains("gate"));
    step.spec = read_spec(&mut step, &fields, &misspelt, Place::Step(seq), defaults, reader);
    step
}

/// The fields that a step with this `run` may have; without one that can be read, those that every step may have.
fn offered(fields: &Mapping<'_>) -> Vec<&'static str> {
    let run = match fields.get("run").map(|node| &node.value) {
        None => Some(Run::Worker),
        Some(Value::String(written)) => RUNS.iter().find(|(word, _)| word == written).map(|(_, run)| *run),
        Some(_) => None,
    };
    let own = |field: &str| run.is_some_and(|run| run.fields().all().any(|own| own == field));
    STEP_FIELDS.all().filter(|field| !Run::is_of_some(field) || own(field)).collect()
}

fn read_dependencies<'a>(
    step: &mut Step<'a>,
    fields: &Mapping<'a>,
    misspelt: &HashSet<&'static str>,
    problems: &mut Problems,
) {
    let Some(node) = fields.get("dependsOn") else {
        step.depends_unknown = misspelt.contains("dependsOn");
        return;
    };
    step.depends_at = Some(node.at);
    let path = fields.path_to("dependsOn");
    let Some(items) = list(node, &path, "a list of steps such as `[a]`", problems) else { return };
    let mut seen = HashSet::new();
    for (i, item) in items.iter().enumerate() {
        let path = format!("{path}[{i}]");
        let Some(name) = literal(item, &path, problems) else { continue };
        if !seen.insert(name) {
            let message = format!("{} is named already; keep one of the two", quoted(name));
            problems.add(item.at, path, ProblemCode::BadValue, message);
        }
        step.depends_on.push((i, name, item.at));
    }
    step.depends_unknown = step.depends_on.len() != items.len();
}

fn read_spec(
    step: &mut Step<'_>,
    fields: &Mapping<'_>,
    misspelt: &HashSet<&'static str>,
    place: Place,
    defaults: &Defaults,
    reader: &mut Reader<'_>,
) -> Option<StepSpec> {
    let work = read_work(fields, misspelt, place, reader);
    let waits = fields.get("run").is_some_and(|node| matches!(&node.value, Value::String(run) if run == "wait"));
    let waits_for_event = waits && fields.get("event").is_some();
    let time = |field: &str, reader: &mut Reader<'_>| {
        let node = fields.get(field)?;
        some_time(node, &fields.path_to(field), ProblemCode::BadValue, reader.problems)
    };
    let template = |field: &str, place: Place, reader: &mut Reader<'_>| {
        Some(reader.template(fields.get(field)?, &fields.path_to(field), place))
    };
    let yields = place.step().map_or(place, Place::Yield);
    let optional = switch(fields, "optional", reader.problems);
    step.read_only = switch(fields, "readOnly", reader.problems);
    Some(StepSpec {
        // A timeout of a wait for an event is the wait's own.
        timeout: if waits_for_event { None } else { time("timeout", reader) },
        deadline: time("deadline", reader),
        schedule_to_start: time("scheduleToStart", reader)
            .or(defaults.schedule_to_start.filter(|_| matches!(work, Some(Work::Worker | Work::Human { .. })))),
        when: condition(fields, "when", place, reader),
        input: template("input", place, reader),
        output: template("output", yields, reader),
        input_schema: schema(fields, "inputSchema", reader),
        output_schema: schema(fields, "outputSchema", reader),
        retry: read_retry(step, fields, defaults, reader),
        on_failure: read_on_failure(step, fields, optional, defaults, reader),
        optional,
        read_only: step.read_only,
        idempotent: switch(fields, "idempotent", reader.problems),
        gate: step.gate.map(|(label, _)| label.to_owned()),
        request: request(fields, place, defaults, reader),
        checks: checks(fields, yields, reader),
        pins: pins(fields, place, defaults, reader),
        soft_cap: soft_cap(fields, defaults, reader),
        artifacts: artifacts(fields, reader.problems),
        phase: named(fields, "state", reader.problems),
        category: named(fields, "category", reader.problems),
        errors: errors(fields, reader.problems),
        queue: queue(fields, reader).map_or_else(|| defaults.queue.clone(), Arc::from),
        priority: fields.get("priority").and_then(|node| priority(node, &fields.path_to("priority"), reader.problems)),
        tasks: tasks(fields, place, reader),
        depends_on: Vec::new(),
        uses: Vec::new(),
        name: step.name?.into(),
        work: work?,
    })
}

fn read_work(
    fields: &Mapping<'_>,
    misspelt: &HashSet<&'static str>,
    place: Place,
    reader: &mut Reader<'_>,
) -> Option<Work> {
    let run = match fields.get("run") {
        Some(node) => word(node, &fields.path_to("run"), RUNS, reader.problems)?,
        // Which fields belong here hides behind the slip.
        None if misspelt.contains("run") => return None,
        None => Run::Worker,
    };
    check_fields(fields, run, reader);
    work(fields, run, misspelt, place, reader)
}

fn named(fields: &Mapping<'_>, field: &str, problems: &mut Problems) -> Option<Arc<str>> {
    name(fields.get(field)?, &fields.path_to(field), problems).map(Arc::from)
}

fn switch(fields: &Mapping<'_>, field: &str, problems: &mut Problems) -> bool {
    fields.get(field).and_then(|node| boolean(node, &fields.path_to(field), problems)).unwrap_or(false)
}

fn condition(fields: &Mapping<'_>, field: &str, place: Place, reader: &mut Reader<'_>) -> Option<Expression> {
    let node = fields.get(field)?;
    reader.expressions.condition(node, &fields.path_to(field), place, reader.problems)
}

fn schema(fields: &Mapping<'_>, field: &str, reader: &mut Reader<'_>) -> Option<countersign_kernel::plan::Schema> {
    reader.schema(fields.get(field)?, &fields.path_to(field))
}

fn read_retry(step: &mut Step<'_>, fields: &Mapping<'_>, defaults: &Defaults, reader: &mut Reader<'_>) -> RetryPolicy {
    step.retry = fields
        .get("retryPolicy")
        .map(|node| retry_policy(node, fields.path_to("retryPolicy"), defaults.retry, reader.problems));
    let policy = step.retry.unwrap_or(defaults.retry).policy();
    match defaults.failure_policy {
        Some(FailurePolicy::FailClosed) => RetryPolicy { max_retries: 0, ..policy },
        _ => policy,
    }
}

/// What is written; else skip where the step is optional; else as the definition says.
fn read_on_failure(
    step: &mut Step<'_>,
    fields: &Mapping<'_>,
    optional: bool,
    defaults: &Defaults,
    reader: &mut Reader<'_>,
) -> OnFailure {
    if let Some(node) = fields.get("onFailure") {
        let found = word(node, &fields.path_to("onFailure"), ON_FAILURES, reader.problems);
        step.on_failure = found.map(|found| (found, node.at));
    }
    match (step.on_failure, defaults.failure_policy) {
        (Some((written, _)), _) => written,
        (None, _) if optional => OnFailure::Skip,
        (None, Some(FailurePolicy::Compensate)) => OnFailure::Compensate,
        (None, _) => OnFailure::Abort,
    }
}

fn checks(fields: &Mapping<'_>, place: Place, reader: &mut Reader<'_>) -> Vec<(Arc<str>, Expression)> {
    let Some(node) = fields.get("checks") else { return Vec::new() };
    let path = fields.path_to("checks");
    let Some(checks) = Mapping::of(node, path, "a mapping from names to expressions", reader.problems) else {
        return Vec::new();
    };
    let mut found = Vec::with_capacity(checks.entries.len());
    for (key, node) in checks.entries {
        let path = checks.path_to(&key.text);
        if !is_name(&key.text) {
            reader.problems.add(key.at, path.clone(), ProblemCode::BadValue, not_a_name(&key.text));
        }
        let expression = reader.expressions.condition(node, &path, place, reader.problems);
        found.extend(expression.map(|expression| (Arc::from(key.text.as_str()), expression)));
    }
    found
}

/// What the approver of the step's gate is shown: a mapping of values.
fn request(fields: &Mapping<'_>, place: Place, defaults: &Defaults, reader: &mut Reader<'_>) -> Option<Template> {
    let node = fields.get("request")?;
    let path = fields.path_to("request");
    let asked = Mapping::of(node, path.clone(), "a mapping from names to values", reader.problems)?;
    let approval = matches!(fields.get("run").map(|node| &node.value), Some(Value::String(run)) if run == "approval");
    if fields.get("gate").is_none() && !approval && !reader.trusted {
        let message =
            "a `request` is what the approver of a gate is shown, and this step has no `gate`; add one, or remove it";
        reader.problems.add(node.at, path.clone(), ProblemCode::BadValue, message);
    }
    if let (Some(pins), Some(FailurePolicy::FailClosed), false) =
        (asked.get("pins"), defaults.failure_policy, reader.trusted)
    {
        let message = "the pins of a runbook stand in every request under this name; choose another";
        reader.problems.add(pins.at, asked.path_to("pins"), ProblemCode::BadValue, message);
    }
    Some(reader.template(node, &path, place))
}

fn pins(fields: &Mapping<'_>, place: Place, defaults: &Defaults, reader: &mut Reader<'_>) -> Vec<PinSpec> {
    let Some(node) = fields.get("pins") else { return Vec::new() };
    let path = fields.path_to("pins");
    let Some(pins) = Mapping::of(node, path, "a mapping from names to what is looked at", reader.problems) else {
        return Vec::new();
    };
    let mut found = Vec::with_capacity(pins.entries.len());
    for (key, node) in pins.entries {
        let path = pins.path_to(&key.text);
        if !is_name(&key.text) {
            reader.problems.add(key.at, path.clone(), ProblemCode::BadValue, not_a_name(&key.text));
        }
        found.extend(pin(&key.text, node, path, place, defaults, reader));
    }
    found
}

/// `{run: shell, command: …}`, `{run: http, url: …}` or `{run: worker, queue: …}`.
fn pin(
    pin: &str,
    node: &Node,
    path: String,
    place: Place,
    defaults: &Defaults,
    reader: &mut Reader<'_>,
) -> Option<PinSpec> {
    let fields = Mapping::of(node, path, "a mapping such as `{run: shell, command: …}`", reader.problems)?;
    let Some(run_node) = fields.get("run") else {
        fields.require(&["run"], &HashSet::new(), reader.problems);
        return None;
    };
    let run = word(run_node, &fields.path_to("run"), PIN_RUNS, reader.problems)?;
    let misspelt = fields.check_fields(&pin_fields(run, reader.trusted), reader.problems);
    let timeout = match fields.get("timeout") {
        Some(node) => some_time(node, &fields.path_to("timeout"), ProblemCode::BadValue, reader.problems)?,
        None => PROBE_TIMEOUT,
    };
    let queue = queue(&fields, reader).map_or_else(|| defaults.queue.clone(), Arc::from);
    let work = work(&fields, run, &misspelt, place, reader)?;
    Some(PinSpec { name: pin.into(), work, queue, timeout })
}

/// The fields of a pin: those of its work, which are required where the work requires them. Nothing is looked at twice, so
/// there is no `retry`; what was published with one still compiles.
const fn pin_fields(run: Run, trusted: bool) -> FieldList {
    match (run, trusted) {
        (Run::Http, false) => {
            FieldList { required: &[], optional: &["run", "url", "method", "headers", "body", "success", "timeout"] }
        }
        (Run::Http, true) => FieldList {
            required: &[],
            optional: &["run", "url", "method", "headers", "body", "success", "timeout", "retry"],
        },
        (Run::Worker, _) => FieldList { required: &[], optional: &["run", "queue", "timeout"] },
        (_, false) => FieldList { required: &[], optional: &["run", "command", "env", "success", "timeout"] },
        (_, true) => FieldList { required: &[], optional: &["run", "command", "env", "success", "timeout", "retry"] },
    }
}

/// A soft cap that is longer than the hard cap is never reached, and a step that is not claimed has none.
fn soft_cap(fields: &Mapping<'_>, defaults: &Defaults, reader: &mut Reader<'_>) -> Option<Micros> {
    let soft = cap(fields, "softCap", reader.problems)?;
    let run = fields.get("run").map(|node| &node.value);
    let unclaimed = matches!(run, Some(Value::String(run)) if run == "wait" || run == "approval");
    let message = match defaults.hard_cap {
        _ if reader.trusted => None,
        _ if unclaimed => {
            Some("a `softCap` counts from when the step is claimed, and nobody claims this one; remove it")
        }
        Some(hard) if soft > hard => {
            Some("this `softCap` is longer than the definition's `hardCap`, and would never be reached")
        }
        _ => None,
    };
    if let (Some(message), Some(node)) = (message, fields.get("softCap")) {
        reader.problems.add(node.at, fields.path_to("softCap"), ProblemCode::BadCap, message);
    }
    Some(soft)
}

/// Files below the step's working directory.
fn artifacts(fields: &Mapping<'_>, problems: &mut Problems) -> Vec<Arc<str>> {
    let Some(node) = fields.get("artifacts") else { return Vec::new() };
    let path = fields.path_to("artifacts");
    let Some(items) = list(node, &path, "a list of files such as `[report.csv]`", problems) else { return Vec::new() };
    let mut found: Vec<Arc<str>> = Vec::with_capacity(items.len());
    for (i, item) in items.iter().enumerate() {
        let path = format!("{path}[{i}]");
        let Some(file) = literal(item, &path, problems) else { continue };
        let inside = file.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
        let message = if !inside || file.contains(['\\', '\0']) {
            format!("{} is not a file below the step's working directory; write a relative path", quoted(file))
        } else if found.iter().any(|known| **known == *file) {
            format!("{} is named already; keep one of the two", quoted(file))
        } else {
            found.push(file.into());
            continue;
        };
        problems.add(item.at, path, ProblemCode::BadValue, message);
    }
    found
}

fn errors(fields: &Mapping<'_>, problems: &mut Problems) -> ErrorResponses {
    let Some(node) = fields.get("errors") else { return ErrorResponses::default() };
    let path = fields.path_to("errors");
    let Some(errors) = Mapping::of(node, path, "a mapping such as `{external: retry}`", problems) else {
        return ErrorResponses::default();
    };
    errors.check_fields(&ERROR_FIELDS, problems);
    let mut response = |field: &str| word(errors.get(field)?, &errors.path_to(field), ERROR_RESPONSES, problems);
    ErrorResponses { agent_error: response("agent_error"), external: response("external") }
}

/// The steps by their names.
pub(super) struct Names<'a> {
    by_name: HashMap<&'a str, StepSeq>,
    /// Whether every step has a name that could be read; otherwise the one that is missed may be there.
    pub complete: bool,
    /// Whether each name is there once.
    pub unique: bool,
}

impl<'a> Names<'a> {
    pub fn of(steps: &[Step<'a>], problems: &mut Problems) -> Names<'a> {
        let mut names =
            Names { by_name: HashMap::with_capacity(steps.len()), complete: !steps.is_empty(), unique: true };
        for (seq, step) in (0..).zip(steps) {
            let Some(name) = step.name else {
                names.complete = false;
                continue;
            };
            if let Some(first) = names.by_name.get(name) {
                names.unique = false;
                let message =
                    format!("{} is the name of steps[{first}] already; a step's name is its own", quoted(name));
                problems.add(step.name_at, format!("steps[{seq}].name"), ProblemCode::DuplicateStep, message);
            } else {
                names.by_name.insert(name, seq);
            }
        }
        names
    }

    pub fn get(&self, name: &str) -> Option<StepSeq> {
        self.by_name.get(name).copied()
    }
}

/// "there is no step `x`; did you mean `y`?"
pub(super) fn no_such_step(written: &str, steps: &[Step<'_>], problems: &Problems) -> String {
    let advice = match problems.guess(written, steps.iter().filter_map(|step| step.name)) {
        Some(meant) => format!("did you mean {}?", quoted(meant)),
        None => "name one of the steps".to_owned(),
    };
    format!("there is no step {}; {advice}", quoted(written))
}
