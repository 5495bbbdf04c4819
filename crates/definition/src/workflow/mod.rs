//! `kind: workflow`: a document to the kernel's plan. Each module reads one theme; what needs all steps at once
//! (the graph, the gates, compensations, the steps that expressions name) comes after the steps themselves.
//!
//! A definition may have 100,000 steps: everything here is a few passes over them, and nothing recurses along the graph.

mod advice;
mod closed;
mod compensation;
mod expressions;
mod graph;
mod labels;
mod limits;
mod retry;
mod step;
mod tasks;
mod triggers;
mod upstream;
pub(crate) mod values;
mod work;

/// The fields and words of the format, which the JSON Schema is tested against.
pub mod shape {
    pub use super::WORKFLOW_FIELDS;
    pub use super::compensation::COMPENSATION_FIELDS;
    pub use super::limits::{CONCURRENCY_FIELDS, ESCALATION_FIELDS, QUEUE_FIELDS, RATE_FIELDS};
    pub use super::retry::RETRY_FIELDS;
    pub use super::step::{ERROR_FIELDS, STEP_FIELDS};
    pub use super::tasks::TASK_FIELDS;
    pub use super::triggers::{SCHEDULE_FIELDS, TRIGGER_FIELDS};
    pub use super::work::Run;

    /// The words that a field allows: the field's place in the schema, and the words.
    pub fn words() -> Vec<(&'static str, Vec<&'static str>)> {
        fn of<T>(words: &[(&'static str, T)]) -> Vec<&'static str> {
            words.iter().map(|(word, _)| *word).collect()
        }
        vec![
            ("/$defs/workflow/properties/order", of(super::ORDERS)),
            ("/$defs/workflow/properties/failurePolicy", of(super::FAILURE_POLICIES)),
            ("/$defs/step/properties/run", of(super::work::RUNS)),
            ("/$defs/step/properties/onFailure", of(super::step::ON_FAILURES)),
            ("/$defs/error_response", of(super::step::ERROR_RESPONSES)),
            ("/$defs/retry_policy/properties/backoff", of(super::retry::BACKOFFS)),
            ("/$defs/schedule/properties/overlap", of(super::triggers::OVERLAPS)),
            ("/$defs/task/properties/run", of(super::tasks::TASK_RUNS)),
            ("/$defs/pin/properties/run", of(super::step::PIN_RUNS)),
            ("/$defs/compensation/properties/run", of(super::compensation::COMPENSATION_RUNS)),
            ("/$defs/compensation/properties/onFailure", of(super::compensation::COMPENSATION_FAILURES)),
        ]
    }
}

use crate::document::{json, tree};
use crate::fields::{FieldList, Mapping, list, string, text};
use crate::language::schema;
use crate::names::{definition_name, name};
use crate::problem::{Position, ProblemCode, Problems, enumerated, quoted};
use crate::tree::{Node, Value};
use crate::{Body, Definition, Kind, Resolver};
use countersign_kernel::GateSpec;
use countersign_kernel::plan::{FailurePolicy, Graph, MachineRef, Order, Plan, Schema, StepSeq, Template, Work};
use expressions::{Expressions, Place};
use retry::{Written, retry_policy};
use step::{Defaults, Names, Step, read_step};
use values::{priority, some_time, word};

/// The top level. `description` is for readers; nothing is made of it.
pub const WORKFLOW_FIELDS: FieldList = FieldList {
    required: &["kind", "name", "steps"],
    optional: &[
        "description",
        "order",
        "queue",
        "retryPolicy",
        "failurePolicy",
        "timeout",
        "scheduleToStart",
        "hardCap",
        "priority",
        "correlationKey",
        "concurrency",
        "queues",
        "schedule",
        "on",
        "gate_spec",
        "blockedEscalation",
        "machine",
        "pic",
        "inputSchema",
        "output",
        "compensation",
        "retention",
    ],
};

const ORDERS: &[(&str, Order)] = &[("linear", Order::Linear), ("dag", Order::Dag)];
const FAILURE_POLICIES: &[(&str, FailurePolicy)] = &[
    ("abort", FailurePolicy::Abort),
    ("compensate", FailurePolicy::Compensate),
    ("fail-closed", FailurePolicy::FailClosed),
];

const DEFAULT_QUEUE: &str = "default";
const DEFAULT_PRIORITY: u8 = 5;

/// What all parts are read with.
pub(super) struct Reader<'p> {
    pub problems: &'p mut Problems,
    expressions: Expressions,
    resolver: Option<Resolver<'p>>,
    /// What was published once is taken as it is: only its shape is read, and not judged again.
    trusted: bool,
    /// The definition's own.
    name: Option<String>,
    /// The person in charge of work for people that names none.
    pic: Option<Node>,
    /// The step that is being read.
    step: StepSeq,
    /// Steps whose `workflow` is to be written with the version that was fixed.
    fixed: Vec<(StepSeq, String)>,
    schemas: Vec<Schema>,
}

impl<'p> Reader<'p> {
    fn new(problems: &'p mut Problems, resolver: Option<Resolver<'p>>, trusted: bool) -> Reader<'p> {
        Reader {
            problems,
            expressions: Expressions::new(trusted),
            resolver,
            trusted,
            name: None,
            pic: None,
            step: 0,
            fixed: Vec::new(),
            schemas: Vec::new(),
        }
    }

    fn template(&mut self, node: &Node, path: &str, place: Place) -> Template {
        self.expressions.template(node, path, place, self.problems)
    }

    /// A text that differs from run to run, or is a constant that cannot be mistaken for such.
    fn computed(&mut self, node: &Node, path: &str, place: Place) -> Template {
        if !self.trusted {
            expressions::refuse_bare(node, path, self.problems);
        }
        self.template(node, path, place)
    }

    /// A JSON Schema that can be compiled.
    fn schema(&mut self, node: &Node, path: &str) -> Option<Schema> {
        if !matches!(node.value, Value::Map(_) | Value::Bool(_)) {
            crate::fields::wrong_type(node, path, "a JSON Schema", self.problems);
            return None;
        }
        let text = json(node);
        // What was published is held to the bounds alone: whether it is a schema was judged then.
        let judged = if self.trusted { schema::bounded(&text) } else { schema::compile(&text).map(|_| ()) };
        if let Err(fault) = judged {
            let (found, place) = node.at_pointer(&fault.pointer);
            let message = match &found.value {
                Value::String(written) if fault.pointer.ends_with("/type") => not_a_type(written, self.problems),
                _ if fault.out_of_bounds => format!("this schema cannot be used: {}", fault.message),
                _ => format!("this is not a JSON Schema that can be used: {}", fault.message),
            };
            self.problems.add(found.at, format!("{path}{place}"), ProblemCode::BadValue, message);
            return None;
        }
        let schema = Schema(text.into());
        self.schemas.push(schema.clone());
        Some(schema)
    }

    /// A child workflow, its version fixed where a resolver is at hand.
    fn resolve(&mut self, name: &str, version: Option<u32>, at: Position, path: String) -> Option<Work> {
        let Some(resolver) = &mut self.resolver else {
            return Some(Work::Workflow { name: name.to_owned(), version });
        };
        let Some(fixed) = resolver.workflow(name, version) else {
            let message = match version {
                Some(version) => format!("there is no version {version} of a workflow {} here", quoted(name)),
                None if self.name.as_deref() == Some(name) => {
                    format!("{} is this workflow itself, and has no version yet that it could run", quoted(name))
                }
                None => format!("there is no workflow {} here; publish it first", quoted(name)),
            };
            self.problems.add(at, path, ProblemCode::UnknownWorkflow, message);
            return None;
        };
        self.fixed.push((self.step, format!("{name}@{fixed}")));
        Some(Work::Workflow { name: name.to_owned(), version: Some(fixed) })
    }
}

fn not_a_type(written: &str, problems: &Problems) -> String {
    let advice = match problems.guess(written, schema::TYPES.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`? The types are "),
        None => "the types are ".to_owned(),
    };
    format!("{} is not a type of JSON Schema; {advice}{}", quoted(written), enumerated(schema::TYPES.iter().copied()))
}

pub(crate) fn definition<'p>(
    mut root: Node,
    resolver: Option<Resolver<'p>>,
    problems: &'p mut Problems,
) -> Option<Definition> {
    let mut reader = Reader::new(problems, resolver, false);
    let (name, retention, plan) = {
        let fields = Mapping::of(&root, String::new(), "a mapping", reader.problems)?;
        let name = fields.get("name").and_then(|node| definition_name(node, reader.problems));
        reader.name.clone_from(&name);
        if let Some(node) = fields.get("description") {
            string(node, "description", reader.problems);
        }
        let plan = read_plan(&fields, &mut reader);
        let retention = fields.get("retention").and_then(|node| text(node, "retention", reader.problems));
        (name, retention.map(str::to_owned), plan)
    };
    let Reader { fixed, problems, .. } = reader;
    if !problems.is_empty() {
        return None;
    }
    let plan = plan?;
    let warnings = advice::warnings(&root, &plan);
    fix_versions(&mut root, fixed);
    let body = Body::Workflow { plan, document: json(&root).into_bytes() };
    Some(Definition { kind: Kind::Workflow, name: name?, retention, body, warnings })
}

/// What a normalised document holds.
pub(crate) struct Read {
    pub plan: Plan,
    /// Each once.
    pub expressions: Vec<String>,
    pub schemas: Vec<Schema>,
}

/// The plan of a normalised document. What was published was judged then, so nothing that a later version might
/// judge differently is judged again: time zones, what is a schema, what is reachable. The bounds on schemas hold for all.
pub(crate) fn read(document: &[u8]) -> Result<Read, String> {
    let root = tree(document).map_err(|error| format!("the definition's document is not JSON: {error}"))?;
    let mut problems = Problems::default();
    let (plan, expressions, schemas) = {
        let mut reader = Reader::new(&mut problems, None, true);
        let fields = Mapping::of(&root, String::new(), "a mapping", reader.problems);
        let workflow = fields.filter(|fields| {
            matches!(fields.get("kind").map(|node| &node.value), Some(Value::String(kind)) if kind == "workflow")
        });
        let plan = workflow.and_then(|fields| read_plan(&fields, &mut reader));
        (plan, reader.expressions.into_texts(), reader.schemas)
    };
    match (plan, problems.into_sorted().first()) {
        (Some(plan), None) => Ok(Read { plan, expressions, schemas }),
        (_, Some(problem)) => Err(format!("{}: {}: {}", problem.path, problem.code, problem.message)),
        (None, None) => Err("the document is not a workflow".to_owned()),
    }
}

/// Writes `name@n` where a child's version was fixed.
fn fix_versions(root: &mut Node, fixed: Vec<(StepSeq, String)>) {
    for (seq, written) in fixed {
        let steps = root.field_mut("steps").map(|node| &mut node.value);
        let Some(Value::Seq(items)) = steps else { return };
        if let Some(node) = items.get_mut(seq as usize).and_then(|step| step.field_mut("workflow")) {
            node.value = Value::String(written);
        }
    }
}

/// The plan, if there are no problems; the caller looks.
fn read_plan(fields: &Mapping<'_>, reader: &mut Reader<'_>) -> Option<Plan> {
    let misspelt = fields.check_fields(&WORKFLOW_FIELDS, reader.problems);
    let order = match fields.get("order") {
        Some(node) => word(node, "order", ORDERS, reader.problems),
        None => Some(Order::Dag),
    };
    let failure_policy = match fields.get("failurePolicy") {
        Some(node) => word(node, "failurePolicy", FAILURE_POLICIES, reader.problems),
        None => Some(FailurePolicy::Abort),
    };
    let queue = fields.get("queue").and_then(|node| name(node, "queue", reader.problems)).unwrap_or(DEFAULT_QUEUE);
    let retry = fields
        .get("retryPolicy")
        .map(|node| retry_policy(node, "retryPolicy".into(), Written::default(), reader.problems));
    let hard_cap = limits::cap(fields, "hardCap", reader.problems);
    reader.pic = fields.get("pic").filter(|node| text(node, "pic", reader.problems).is_some()).cloned();
    if let (Some(node), false) = (&reader.pic, reader.trusted) {
        expressions::refuse_bare(node, "pic", reader.problems);
    }
    let defaults = Defaults {
        queue: queue.into(),
        retry: retry.unwrap_or_default(),
        failure_policy,
        hard_cap,
        schedule_to_start: fields
            .get("scheduleToStart")
            .and_then(|node| some_time(node, "scheduleToStart", ProblemCode::BadValue, reader.problems)),
    };

    let steps = read_steps(fields, &defaults, reader);
    let names = Names::of(&steps, reader.problems);
    let compensation = compensation::read(fields, &steps, &names, failure_policy, reader);
    let gate_spec = labels::read(fields, &steps, reader);
    if !reader.trusted {
        if failure_policy != Some(FailurePolicy::FailClosed) && !misspelt.contains("order") {
            graph::require_order(fields, &steps, reader.problems);
        }
        match failure_policy {
            Some(FailurePolicy::FailClosed) => closed::check(fields, &steps, retry, order, reader),
            Some(FailurePolicy::Abort | FailurePolicy::Compensate) => closed::keep_out(fields, &steps, reader.problems),
            None => {}
        }
    }
    let rest = read_rest(fields, reader);
    limits::require_reviewer(fields, &rest.blocked_escalation, &gate_spec, reader.problems);
    let depends_on = graph::dependencies(fields, order, &steps, &names, reader);
    upstream::check_pins(failure_policy, &steps, reader);
    let referenced = upstream::referenced(order, &steps, &names, &depends_on, &compensation, reader);

    let specs = steps.into_iter().zip(depends_on).zip(referenced.by_step).map(|((step, depends_on), uses)| {
        let mut spec = step.spec?;
        spec.depends_on = depends_on;
        spec.uses = uses;
        Some(spec)
    });
    Some(Plan {
        order: order?,
        steps: specs.collect::<Option<Vec<_>>>()?,
        compensation,
        failure_policy: failure_policy?,
        hard_cap,
        gate_spec,
        referenced: referenced.all,
        ..rest
    })
}

fn read_steps<'a>(fields: &Mapping<'a>, defaults: &Defaults, reader: &mut Reader<'_>) -> Vec<Step<'a>> {
    let Some(node) = fields.get("steps") else { return Vec::new() };
    let Some(items) = list(node, "steps", "a list of steps, each with a `-` before it", reader.problems) else {
        return Vec::new();
    };
    if items.is_empty() {
        reader.problems.add(node.at, "steps", ProblemCode::NoSteps, "a workflow needs at least one step; add one");
    }
    let mut steps = Vec::with_capacity(items.len());
    for (seq, item) in (0..).zip(items) {
        reader.step = seq;
        steps.push(read_step(item, seq, defaults, reader));
    }
    steps
}

/// The fields of the top level that concern no step in particular; those that do are left empty.
fn read_rest(fields: &Mapping<'_>, reader: &mut Reader<'_>) -> Plan {
    Plan {
        order: Order::Dag,
        steps: Vec::new(),
        graph: Graph::default(),
        compensation: Vec::new(),
        failure_policy: FailurePolicy::Abort,
        timeout: fields
            .get("timeout")
            .and_then(|node| some_time(node, "timeout", ProblemCode::BadValue, reader.problems)),
        hard_cap: None,
        priority: fields
            .get("priority")
            .and_then(|node| priority(node, "priority", reader.problems))
            .unwrap_or(DEFAULT_PRIORITY),
        correlation_key: fields.get("correlationKey").and_then(|node| {
            text(node, "correlationKey", reader.problems)?;
            Some(reader.computed(node, "correlationKey", Place::Start))
        }),
        concurrency: fields.get("concurrency").and_then(|node| limits::concurrency(node, reader)),
        queues: fields.get("queues").map(|node| limits::queues(node, reader.problems)).unwrap_or_default(),
        schedule: fields.get("schedule").map(|node| triggers::schedules(node, reader)).unwrap_or_default(),
        on: fields.get("on").map(|node| triggers::triggers(node, reader)).unwrap_or_default(),
        gate_spec: GateSpec::default(),
        blocked_escalation: fields
            .get("blockedEscalation")
            .map(|node| limits::escalation(node, reader.problems))
            .unwrap_or_default(),
        machine: fields.get("machine").and_then(|node| {
            let (name, version) = work::versioned(node, "machine", reader)?;
            let refused = reader.resolver.as_ref().and_then(|deployment| deployment.refuses_machine(name, version));
            if let Some(message) = refused {
                reader.problems.add(node.at, "machine", ProblemCode::BadValue, message);
            }
            Some(MachineRef { name: name.to_owned(), version })
        }),
        input_schema: fields.get("inputSchema").and_then(|node| reader.schema(node, "inputSchema")),
        output: fields.get("output").map(|node| reader.template(node, "output", Place::RunOutput)),
        referenced: Vec::new(),
    }
}
