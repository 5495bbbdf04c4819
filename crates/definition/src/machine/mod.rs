//! `kind: machine`: a custom state machine. Its floor states and transitions are those of the engine's machine of the
//! same scope, unchanged. It adds derived states and its own transitions.

mod floor;
mod state;
mod transition;

pub use floor::{FACET_FIELDS, POLICY_FIELDS};
pub use state::MACHINE_STATE_FIELDS;
pub use transition::MACHINE_TRANSITION_FIELDS;

use crate::document::{json, tree};
use crate::fields::{FieldList, Mapping, string};
use crate::names::definition_name;
use crate::problem::{ProblemCode, Problems, quoted};
use crate::tree::{Node, Value};
use crate::workflow::values::word;
use crate::{Body, Definition, Kind};
use countersign_kernel::lifecycle::{MachineDef, MachineScope, OwnMachine, machine as engines};

/// The top level. States of the floor may be named alone; its transitions, facets and policies may be left out.
pub const MACHINE_FIELDS: FieldList = FieldList {
    required: &["kind", "name", "scope", "states"],
    optional: &["description", "initial_state", "transitions", "facets", "rollup_policies"],
};

const SCOPES: &[(&str, MachineScope)] = &[
    (MachineScope::Step.as_str(), MachineScope::Step),
    (MachineScope::Task.as_str(), MachineScope::Task),
    (MachineScope::WorkflowRun.as_str(), MachineScope::WorkflowRun),
];

pub(crate) fn definition(root: &Node, problems: &mut Problems) -> Option<Definition> {
    let machine = read(root, problems);
    if !problems.is_empty() {
        return None;
    }
    let machine = machine?;
    let name = machine.name.clone();
    let body = Body::Machine { machine, document: json(root).into_bytes() };
    Some(Definition { kind: Kind::Machine, name, retention: None, body, warnings: Vec::new() })
}

/// The machine of a normalised document; nothing where the document is of another kind. What was published is read for
/// ever, so nothing is judged again.
pub(crate) fn machine(document: &[u8]) -> Result<Option<OwnMachine>, String> {
    let root = tree(document).map_err(|error| format!("the definition's document is not JSON: {error}"))?;
    match root.field("kind").map(|node| &node.value) {
        Some(Value::String(kind)) if kind == Kind::Machine.as_str() => {}
        _ => return Ok(None),
    }
    let mut problems = Problems::default();
    match read(&root, &mut problems) {
        Some(machine) => Ok(Some(machine)),
        None => Err(problems.into_sorted().first().map(ToString::to_string).unwrap_or_default()),
    }
}

/// The machine, as far as it can be read.
fn read(root: &Node, problems: &mut Problems) -> Option<OwnMachine> {
    let fields = Mapping::of(root, String::new(), "a mapping", problems)?;
    fields.check_fields(&MACHINE_FIELDS, problems);
    let name = fields.get("name").and_then(|node| own_name(node, problems));
    let description = fields.get("description").and_then(|node| string(node, "description", problems));
    let scope = fields.get("scope").and_then(|node| word(node, "scope", SCOPES, problems))?;
    let base = scope.floor()?;
    if let Some(node) = fields.get("initial_state") {
        initial(node, base, problems);
    }
    let states = state::read(&fields, scope, base, problems);
    let transitions = transition::read(&fields, scope, base, &states, problems);
    floor::facets(&fields, base, problems);
    floor::policies(&fields, base, problems);
    Some(OwnMachine {
        name: name?,
        scope,
        description: description.unwrap_or_default().to_owned(),
        states: states.derived,
        transitions,
    })
}

/// A definition's name that is not the engine's own.
fn own_name(node: &Node, problems: &mut Problems) -> Option<String> {
    let name = definition_name(node, problems)?;
    if engines(&name).is_some() {
        let message = format!("{} is the engine's own machine; give this one a name of its own", quoted(&name));
        problems.add(node.at, "name", ProblemCode::BadValue, message);
    }
    Some(name)
}

fn initial(node: &Node, base: &MachineDef, problems: &mut Problems) {
    if string(node, "initial_state", problems).is_some_and(|written| written != base.initial_state) {
        let message = format!("the floor begins in `{}`, and so does every machine on it", base.initial_state);
        problems.add(node.at, "initial_state", ProblemCode::FloorStateChanged, message);
    }
}
