//! `kind: process`: states, transitions and the guards on them. The kernel decides whether a declaration is sound;
//! this module maps the kernel's faults to their places in the text.

use crate::fields::{FieldList, Mapping, list, string, text};
use crate::gates::{Unused, published_gates, report_unused};
use crate::names::definition_name;
use crate::problem::{ProblemCode, Problems, quoted};
use crate::tree::{Node, Value};
use crate::workflow::effects;
use crate::{Body, Definition, Kind, Resolver};
use countersign_kernel::declaration::{Fault, FaultKind};
use countersign_kernel::text::is_blank;
use countersign_kernel::{Declaration, PublishedGates, Transition};
use std::collections::HashSet;

/// The top level. `description` is for readers; nothing is made of it.
pub const PROCESS_FIELDS: FieldList = FieldList {
    required: &["kind", "name", "states", "initial_state", "terminal_states", "transitions"],
    optional: &["description", "gate_spec", "retention"],
};
pub const TRANSITION_FIELDS: FieldList =
    FieldList { required: &["from", "action", "to"], optional: &["guard", "effects"] };

const UNUSED: Unused =
    Unused { complaint: "no transition has the guard", advice: "guard a transition with it, or remove the entry" };

pub(crate) fn definition(
    root: &Mapping<'_>,
    resolver: Option<Resolver<'_>>,
    problems: &mut Problems,
) -> Option<Definition> {
    let misspelt = root.check_fields(&PROCESS_FIELDS, problems);
    let name = root.get("name").and_then(|node| definition_name(node, problems));
    if let Some(node) = root.get("description") {
        string(node, "description", problems);
    }

    let mut walk = Walk { holes: HashSet::new(), guards_known: true, resolver, problems };
    let declaration = walk.declaration(root);
    let Walk { holes, mut guards_known, .. } = walk;
    report_faults(root, &declaration, &holes, problems);

    guards_known &= !misspelt.contains("transitions");
    let gate_spec = root.get("gate_spec").map_or_else(PublishedGates::default, |node| {
        if guards_known {
            report_unused(node, "gate_spec", &declaration.guard_labels(), &UNUSED, problems);
        }
        published_gates(node, "gate_spec", problems)
    });
    if guards_known && !misspelt.contains("gate_spec") {
        report_uncovered(root, &declaration.guard_labels(), problems);
    }
    let retention = root.get("retention").and_then(|node| text(node, "retention", problems)).map(str::to_owned);
    let body = Body::Process { declaration, gate_spec };
    problems.is_empty().then_some(Definition {
        kind: Kind::Process,
        name: name?,
        retention,
        body,
        warnings: Vec::new(),
    })
}

/// A guard without an entry: no start may say who clears it, so nobody could.
fn report_uncovered(root: &Mapping<'_>, guards: &[&str], problems: &mut Problems) {
    let written: Vec<&str> = match root.get("gate_spec").map(|node| &node.value) {
        Some(Value::Map(entries)) => entries.iter().map(|(label, _)| label.text.as_str()).collect(),
        Some(_) => return,
        None => vec![],
    };
    let Some(Value::Seq(transitions)) = root.get("transitions").map(|node| &node.value) else { return };
    let mut reported = HashSet::new();
    for (at, transition) in transitions.iter().enumerate() {
        let Some(node) = transition.field("guard") else { continue };
        let Value::String(label) = &node.value else { continue };
        if is_blank(label) || written.contains(&label.as_str()) || !reported.insert(label.as_str()) {
            continue;
        }
        // An entry that looks like it is reported as unused, and with what was meant.
        if problems.guess(label, written.iter().copied().filter(|entry| !guards.contains(entry))).is_some() {
            continue;
        }
        let advice = "name who approves, or leave that to each start with `{replaceable: true, scope: …}`";
        let message = format!("gate_spec has no entry {}; {advice}", quoted(label));
        problems.add(node.at, format!("transitions[{at}].guard"), ProblemCode::UnknownGate, message);
    }
}

/// Reads the declaration's parts. What cannot be read becomes a hole: a text that no document can
/// hold, so that the kernel can judge the rest, with every index in its place.
struct Walk<'a, 'r> {
    /// The paths of the holes, whose problem is reported already.
    holes: HashSet<String>,
    /// False when a guard could not be read, or may hide behind a misspelt field.
    guards_known: bool,
    resolver: Option<Resolver<'r>>,
    problems: &'a mut Problems,
}

impl Walk<'_, '_> {
    fn declaration(&mut self, root: &Mapping<'_>) -> Declaration {
        Declaration {
            states: self.strings(root, "states"),
            initial_state: self.string_or_hole(root, "initial_state"),
            terminal_states: self.strings(root, "terminal_states"),
            transitions: self.transitions(root),
        }
    }

    fn hole(&mut self, path: String) -> String {
        let unwritable = format!("\0{path}");
        self.holes.insert(path);
        unwritable
    }

    fn string_or_hole(&mut self, mapping: &Mapping<'_>, field: &str) -> String {
        let path = mapping.path_to(field);
        match mapping.get(field).and_then(|node| string(node, &path, self.problems)) {
            Some(text) => text.to_owned(),
            None => self.hole(path),
        }
    }

    fn strings(&mut self, root: &Mapping<'_>, field: &str) -> Vec<String> {
        let items =
            root.get(field).and_then(|node| list(node, field, "a list of strings such as `[a, b]`", self.problems));
        let Some(items) = items else {
            self.hole(field.to_owned());
            return Vec::new();
        };
        let mut strings = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            let path = format!("{field}[{i}]");
            strings.push(match string(item, &path, self.problems) {
                Some(text) => text.to_owned(),
                None => self.hole(path),
            });
        }
        strings
    }

    fn transitions(&mut self, root: &Mapping<'_>) -> Vec<Transition> {
        let items =
            root.get("transitions").and_then(|node| list(node, "transitions", "a list of transitions", self.problems));
        let Some(items) = items else {
            self.guards_known = false;
            return Vec::new();
        };
        items.iter().enumerate().map(|(i, item)| self.transition(item, format!("transitions[{i}]"))).collect()
    }

    fn transition(&mut self, node: &Node, path: String) -> Transition {
        let Some(fields) = Mapping::of(node, path.clone(), "a mapping with `from`, `action` and `to`", self.problems)
        else {
            self.guards_known = false;
            let mut hole = |field: &str| self.hole(format!("{path}.{field}"));
            let (from_state, action, to_state) = (hole("from"), hole("action"), hole("to"));
            return Transition { from_state, action, to_state, guard: None, effects: vec![] };
        };
        let misspelt = fields.check_fields(&TRANSITION_FIELDS, self.problems);
        let transition = Transition {
            from_state: self.string_or_hole(&fields, "from"),
            action: self.string_or_hole(&fields, "action"),
            to_state: self.string_or_hole(&fields, "to"),
            guard: fields.get("guard").map(|_| self.string_or_hole(&fields, "guard")),
            effects: match fields.get("effects") {
                None => vec![],
                Some(node) => {
                    let resolver = self.resolver.as_mut().map(|resolver| &mut **resolver as Resolver<'_>);
                    effects::effects(node, &fields.path_to("effects"), resolver, self.problems)
                }
            },
        };
        self.guards_known &= !misspelt.contains("guard") && !self.holes.contains(&fields.path_to("guard"));
        transition
    }
}

/// The kernel's faults, without those that only repeat a problem that is reported already: at a hole,
/// or about a state while the list of states itself is at fault.
fn report_faults(root: &Mapping<'_>, declaration: &Declaration, holes: &HashSet<String>, problems: &mut Problems) {
    let states_known = !declaration.states.is_empty() && !holes.iter().any(|path| path.starts_with("states"));
    for fault in declaration.faults() {
        let repeats = holes.contains(&fault.path) || (fault.kind == FaultKind::UnknownState && !states_known);
        if !repeats {
            let node = root.nearest(&fault.path);
            let message = explain(&fault, node, declaration, problems);
            problems.add(node.at, fault.path, fault.kind.into(), message);
        }
    }
}

fn explain(fault: &Fault, node: &Node, declaration: &Declaration, problems: &Problems) -> String {
    let meant = match (&node.value, fault.kind) {
        (Value::String(written), FaultKind::UnknownState) => {
            problems.guess(written, declaration.states.iter().map(String::as_str))
        }
        _ => None,
    };
    match meant {
        Some(state) => format!("{}; did you mean {}?", fault.message, quoted(state)),
        None => fault.message.clone(),
    }
}
