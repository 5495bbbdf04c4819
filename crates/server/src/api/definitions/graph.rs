//! A definition as a graph: what a page draws of it.

use crate::api::auth::Caller;
use crate::api::body::Address;
use crate::api::openapi::Refused;
use crate::api::query::NoQuery;
use crate::api::{App, Problem};
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use countersign_client::wire;
use countersign_definition::{Body, Definition};
use countersign_kernel::lifecycle::OwnMachine;
use countersign_kernel::plan::{Order, Plan, StepSeq, StepSpec, Template, Work};
use countersign_kernel::run::shell_declaration;
use countersign_kernel::text::from_json_string;
use countersign_kernel::{Declaration, GateSpec, PublishedGate, PublishedGates, registry};
use countersign_ledger::sha256;

/// A version never changes, so neither does its graph. What one caller was shown is kept for that caller alone.
const KEPT: &str = "private, max-age=31536000, immutable";

/// The graph of one version. It never changes and has an `ETag`. Needs what listing needs: `workflows:read`,
/// `workflows:start`, `runs:read`, `runs:start` or `definitions:publish`.
#[utoipa::path(get, path = "/v1/definitions/{name}/versions/{version}/graph", tag = "definitions",
    params(("name" = String, Path), ("version" = u32, Path), ("If-None-Match" = Option<String>, Header)),
    responses((status = 200, body = wire::Graph), (status = 304, description = "It is the one that the client has"), Refused))]
pub async fn graph(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    _: NoQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let definition = super::published(&app, &caller, &address).await?;
    definition.require_usable()?;
    // Text and numbers always serialise.
    let plan = super::plan(&app, &definition).await?;
    let body = serde_json::to_vec(&of_published(&definition, plan.as_deref())).unwrap_or_default();
    let tag = format!("\"{}\"", &sha256(&[&body]).to_string()[..32]);
    let kept = [(ETAG, tag.as_str()), (CACHE_CONTROL, KEPT), (VARY, "Authorization, Cookie")];
    if headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok()).any(|known| names(known, &tag)) {
        return Ok((StatusCode::NOT_MODIFIED, kept).into_response());
    }
    Ok((kept, [(CONTENT_TYPE, "application/json")], body).into_response())
}

/// Whether a list of entity tags names this one. They are compared weakly (RFC 9110, 13.1.2).
fn names(list: &str, tag: &str) -> bool {
    list.split(',').map(str::trim).any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
}

/// `plan`: of a workflow.
pub fn of_published(definition: &registry::Definition, plan: Option<&Plan>) -> wire::Graph {
    let graph = match (plan, &definition.machine) {
        (Some(plan), _) => of_plan(plan),
        (None, Some(machine)) => of_machine(&machine.machine),
        (None, None) => of_process(&definition.declaration, &definition.gate_spec),
    };
    wire::Graph { digest: definition.digest.to_string(), kind: definition.kind().to_owned(), ..graph }
}

/// Of a document that could be published.
pub fn of_document(definition: &Definition, bytes: &[u8]) -> wire::Graph {
    let graph = match &definition.body {
        Body::Workflow { plan, .. } => of_plan(plan),
        Body::Machine { machine, .. } => of_machine(machine),
        Body::Process { declaration, gate_spec } => of_process(declaration, gate_spec),
    };
    let kind = match &definition.body {
        Body::Workflow { .. } => "workflow",
        Body::Machine { .. } => "machine",
        Body::Process { .. } => "process",
    };
    wire::Graph { digest: sha256(&[bytes]).to_string(), kind: kind.to_owned(), ..graph }
}

fn of_plan(plan: &Plan) -> wire::Graph {
    let gates = shell_declaration(plan).1;
    let nodes: Vec<wire::GraphNode> = (0..).zip(&plan.steps).map(|(seq, step)| node(plan, seq, step, &gates)).collect();
    let edges = nodes.iter().flat_map(|node| {
        let edge = |from: &StepSeq| wire::GraphEdge { from: *from, to: node.step_seq, label: node.when.clone() };
        node.depends_on.iter().map(edge)
    });
    wire::Graph {
        order: Some(order(plan.order).to_owned()),
        // A schema was read as JSON when it was published.
        input_schema: plan.input_schema.as_ref().and_then(|schema| serde_json::from_str(&schema.0).ok()),
        edges: Some(edges.collect()),
        nodes: Some(nodes),
        ..wire::Graph::default()
    }
}

const fn order(order: Order) -> &'static str {
    match order {
        Order::Linear => "linear",
        Order::Dag => "dag",
    }
}

fn node(plan: &Plan, seq: StepSeq, step: &StepSpec, gates: &GateSpec) -> wire::GraphNode {
    let gate = match &step.work {
        Work::Approval(_) => Some(format!("approval:{}", step.name)),
        _ => step.gate.clone(),
    };
    let approvers =
        gate.as_ref().and_then(|label| gates.0.get(label)).map_or(vec![], |entry| entry.approvers().to_vec());
    let tasks = plan.tasks_of(seq).filter_map(|seq| {
        let task = plan.step(seq)?;
        Some(wire::GraphTask {
            step_seq: seq,
            name: task.name.to_string(),
            run: task.work.as_str().to_owned(),
            pic: pic(&task.work),
        })
    });
    wire::GraphNode {
        step_seq: seq,
        name: step.name.to_string(),
        run: step.work.as_str().to_owned(),
        queue: step.claim_queue().to_owned(),
        pic: pic(&step.work),
        gate,
        approvers,
        when: step.when.as_ref().map(|when| when.0.to_string()),
        workflow: match &step.work {
            Work::Workflow { name, version: Some(version) } => Some(format!("{name}@{version}")),
            Work::Workflow { name, version: None } => Some(name.clone()),
            _ => None,
        },
        optional: step.optional,
        category: step.category.as_ref().map(ToString::to_string),
        depends_on: step.depends_on.clone(),
        tasks: tasks.collect(),
    }
}

fn pic(work: &Work) -> Option<String> {
    let Work::Human { pic: Some(Template(pic)) } = work else { return None };
    Some(from_json_string(pic).unwrap_or_else(|| pic.to_string()))
}

fn of_process(declaration: &Declaration, gates: &PublishedGates) -> wire::Graph {
    let approvers = |guard: &Option<String>| {
        let entry = guard.as_ref().and_then(|guard| gates.0.get(guard)).and_then(PublishedGate::preset);
        entry.map_or(vec![], |entry| entry.approvers().to_vec())
    };
    let transitions = declaration.transitions.iter().map(|t| wire::GraphTransition {
        from: t.from_state.clone(),
        action: t.action.clone(),
        to: t.to_state.clone(),
        approvers: approvers(&t.guard),
        guard: t.guard.clone(),
    });
    of_states(declaration, transitions.collect())
}

/// The floor's states and its own, with the transitions that it adds; those of the floor are in the registry.
fn of_machine(machine: &OwnMachine) -> wire::Graph {
    let transitions = machine.transitions.iter().map(|t| wire::GraphTransition {
        from: t.from.clone(),
        action: t.trigger.clone(),
        to: t.to.clone(),
        guard: t.guard.map(|guard| guard.name().to_owned()),
        approvers: vec![],
    });
    of_states(&machine.declaration(), transitions.collect())
}

fn of_states(declaration: &Declaration, transitions: Vec<wire::GraphTransition>) -> wire::Graph {
    wire::Graph {
        states: Some(declaration.states.clone()),
        initial_state: Some(declaration.initial_state.clone()),
        terminal_states: Some(declaration.terminal_states.clone()),
        transitions: Some(transitions),
        ..wire::Graph::default()
    }
}
