//! What differs between two versions of a definition, value by value. Steps are compared by name, states by name,
//! transitions by where they start and what they are called.

use super::graph::of_published;
use crate::api::auth::Caller;
use crate::api::body::Address;
use crate::api::openapi::Refused;
use crate::api::query::{Axis, List, Params};
use crate::api::{App, Problem, Read};
use axum::Json;
use axum::extract::State;
use countersign_client::wire::{self, NamedEdge};
use countersign_kernel::Time;
use countersign_kernel::plan::Plan;
use countersign_kernel::process::PUBLISH;
use countersign_kernel::registry::Definition;
use countersign_ledger::Unwritable;
use countersign_ledger::document::{Document, declaration_document, published_gate_document, published_gates_document};
use countersign_ledger::sha256;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

pub struct With;

impl List for With {
    const TAG: u8 = b'D';
    const AXES: &'static [Axis] = &[Axis::Text("with")];
    const PAGED: bool = false;
}

/// What changes from this version to the version `with`. Needs what listing needs: `workflows:read`, `workflows:start`,
/// `runs:read`, `runs:start` or `definitions:publish`.
#[utoipa::path(get, path = "/v1/definitions/{name}/versions/{version}/diff", tag = "definitions",
    params(("name" = String, Path), ("version" = u32, Path), Params<With>),
    responses((status = 200, body = wire::DefinitionDiff), Refused))]
pub async fn diff(
    State(app): State<App>,
    caller: Caller,
    address: Address,
    params: Params<With>,
) -> Read<wire::DefinitionDiff> {
    let with =
        params.text("with").ok_or_else(|| Problem::invalid_query("with", "give the other version: `?with=2`"))?;
    let from = super::published(&app, &caller, &address).await?;
    let to = super::one(&app, &caller, address.get("name"), Some(super::number(&with))).await?;
    Ok(Json(between(&Whole::read(&app, from).await?, &Whole::read(&app, to).await?)))
}

/// A definition with what the registry does not keep in memory.
pub struct Whole {
    definition: Arc<Definition>,
    document: Option<Arc<[u8]>>,
    plan: Option<Arc<Plan>>,
}

impl Whole {
    pub async fn read(app: &App, definition: Arc<Definition>) -> Result<Whole, Problem> {
        let document = match definition.document_digest() {
            Some(digest) => Some(app.engine()?.published_document(*digest).await?),
            None => None,
        };
        let plan = super::plan(app, &definition).await?;
        Ok(Whole { definition, document, plan })
    }

    /// A document that could be published.
    pub fn proposed(definition: countersign_definition::Definition, source: Arc<str>) -> Whole {
        let publish = definition.published_as(source, |bytes| sha256(&[bytes]));
        let plan = publish.workflow.as_ref().and_then(|workflow| workflow.plan.clone());
        let definition = Definition {
            name: publish.name,
            version: 0,
            digest: publish.digest,
            source: Some(publish.source),
            declaration: publish.declaration,
            gate_spec: publish.gate_spec,
            workflow: publish.workflow,
            machine: publish.machine,
            quarantined: None,
            retention: publish.retention,
            publish: publish.publish,
            merged: None,
            published_at: Time(0),
            published_by: String::new(),
        };
        Whole { document: definition.document().cloned(), definition: Arc::new(definition), plan }
    }
}

/// What a definition says, as one value.
fn said(Whole { definition, document, .. }: &Whole) -> Value {
    let read = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap_or_default();
    let shown = |document: Result<Document, Unwritable>| document.map_or(Value::Null, |document| read(&document.bytes));
    match document {
        Some(document) => read(document),
        None => {
            let mut value = shown(declaration_document(&definition.declaration));
            value["gate_spec"] = shown(published_gates_document(&definition.gate_spec));
            if let Some(gate) = &definition.publish {
                value["gate_spec"][PUBLISH] = shown(published_gate_document(gate));
            }
            if let Some(retention) = &definition.retention {
                value["retention"] = json!(retention);
            }
            value
        }
    }
}

/// The lists whose items have names, and what names them.
const NAMED: &[(&str, &[&str])] = &[
    ("steps", &["name"]),
    ("tasks", &["name"]),
    ("transitions", &["from", "action", "id"]),
    ("compensation", &["step"]),
    ("states", &["state_code", "code"]),
];

/// Lists of named things as mappings, so that moving one is no change to all behind it. A plain list stays as it is.
fn keyed(name: &str, value: Value) -> Value {
    match value {
        Value::Object(members) => {
            Value::Object(members.into_iter().map(|(key, value)| (key.clone(), keyed(&key, value))).collect())
        }
        Value::Array(items) => {
            let by = NAMED.iter().find(|(list, _)| *list == name).map_or(&[][..], |(_, by)| by);
            let name_of = |item: &Value| {
                let parts: Vec<&str> = by.iter().filter_map(|member| item.get(member)?.as_str()).collect();
                (!parts.is_empty()).then(|| parts.join(" "))
            };
            let names: Option<Vec<String>> = items.iter().map(name_of).collect();
            match names {
                Some(names) if !names.is_empty() => {
                    let named = names.into_iter().zip(items);
                    Value::Object(named.map(|(name, item)| (name, keyed("", item))).collect())
                }
                _ => Value::Array(items),
            }
        }
        value => value,
    }
}

pub fn between(from: &Whole, to: &Whole) -> wire::DefinitionDiff {
    let (old, new) = (keyed("", said(from)), keyed("", said(to)));
    let parts = |value: &Value, Whole { definition, .. }: &Whole| -> BTreeSet<String> {
        match (definition.kind(), value.get("steps").and_then(Value::as_object)) {
            ("workflow", Some(steps)) => steps.keys().cloned().collect(),
            _ => definition.declaration.states.iter().cloned().collect(),
        }
    };
    let (before, after) = (parts(&old, from), parts(&new, to));
    let (was, is) = (edges(from), edges(to));
    let mut changed = Vec::new();
    compare("", &old, &new, &mut changed);
    // What is there as a whole, or gone as a whole, is told once.
    let told = |change: &wire::DefinitionChange| {
        let of = |list: &str, names: &BTreeSet<String>| {
            change
                .path
                .strip_prefix(list)
                .and_then(|path| path.strip_prefix('.'))
                .is_some_and(|name| names.contains(name))
        };
        let listed = [&before, &after].iter().any(|names| of("steps", names) || of("states", names));
        listed && (change.from.is_null() || change.to.is_null()) || change.path == "states" || is_edge(&change.path)
    };
    changed.retain(|change| !told(change));
    wire::DefinitionDiff {
        added: after.difference(&before).cloned().collect(),
        removed: before.difference(&after).cloned().collect(),
        changed,
        edges: wire::DefinitionEdges {
            added: is.difference(&was).cloned().collect(),
            removed: was.difference(&is).cloned().collect(),
        },
    }
}

/// Told by `edges`: what a step depends on, and a transition that is there or not.
fn is_edge(path: &str) -> bool {
    let parts: Vec<&str> = path.split('.').collect();
    matches!(parts[..], ["steps", _, "dependsOn"] | ["transitions", _])
}

fn edges(whole: &Whole) -> BTreeSet<NamedEdge> {
    let graph = of_published(&whole.definition, whole.plan.as_deref());
    let nodes = graph.nodes.unwrap_or_default();
    let name = |seq: u32| nodes.get(seq as usize).map_or_else(String::new, |node| node.name.clone());
    let of_steps = graph.edges.iter().flatten();
    let of_steps = of_steps.map(|edge| NamedEdge { from: name(edge.from), to: name(edge.to), label: None });
    let of_states = graph.transitions.iter().flatten();
    let of_states =
        of_states.map(|t| NamedEdge { from: t.from.clone(), to: t.to.clone(), label: Some(t.action.clone()) });
    of_steps.chain(of_states).collect()
}

fn compare(path: &str, old: &Value, new: &Value, changed: &mut Vec<wire::DefinitionChange>) {
    if old == new {
        return;
    }
    let (Value::Object(before), Value::Object(after)) = (old, new) else {
        let (path, from, to) = (path.to_owned(), old.clone(), new.clone());
        changed.push(wire::DefinitionChange { path, from, to });
        return;
    };
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let of = |members: &Map<String, Value>, name: &str| members.get(name).cloned().unwrap_or_default();
    for name in names {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        compare(&path, &of(before, name), &of(after, name), changed);
    }
}
