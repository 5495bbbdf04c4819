//! Definition documents: the text an author writes, YAML 1.2 or JSON, to the kernel's values. Every
//! problem is collected in one pass, at its line and column, with a code that tools can rely on.
//!
//! This crate reads text that anybody may send: it never panics, never follows anything outside the
//! text, and bounds what a small text may unfold into. It decides nothing about a deployment:
//! whether a retention policy is configured or an approver exists is checked where those are known.
//!
//! Read in this order: `read` (text to a span tree, with `syntax` for what is not YAML), `tree` (that tree), `fields` (checked access to
//! its mappings), then one module per kind: `process`, with `gates` beside it for `gate_spec`, `workflow`, and `machine`. `language` evaluates the
//! expressions of a workflow, `schedule` says when a cron pattern comes next.

mod cron;
mod document;
mod duration;
mod fields;
mod gates;
mod language;
mod machine;
mod names;
mod problem;
mod process;
mod publish;
mod read;
mod render;
mod schedule;
mod source;
mod suggest;
mod syntax;
mod tree;
mod workflow;

pub use duration::parse_duration;
pub use fields::FieldList;
pub use gates::{
    OPEN_ENTRY_FIELDS, PUBLISHED_QUORUM_FIELDS, PUBLISHED_SINGLE_FIELDS, QUORUM_ENTRY_FIELDS, QUORUM_FIELDS,
    QUORUM_RULES, SINGLE_ENTRY_FIELDS,
};
pub use language::{Cel, DEFAULT_CACHE_BYTES};
pub use machine::{FACET_FIELDS, MACHINE_FIELDS, MACHINE_STATE_FIELDS, MACHINE_TRANSITION_FIELDS, POLICY_FIELDS};
pub use problem::{Problem, ProblemCode, Severity};
pub use process::{PROCESS_FIELDS, TRANSITION_FIELDS};
pub use render::render;
pub use schedule::next_after;
pub use workflow::shape as workflow_shape;

use countersign_kernel::lifecycle::OwnMachine;
use countersign_kernel::plan::{Micros, Plan};
use countersign_kernel::{Declaration, PublishedGates};
use fields::{Mapping, string};
use problem::Problems;
use std::collections::BTreeMap;
use tree::{Node, Value};

/// A definition without problems.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    pub kind: Kind,
    pub name: String,
    /// The name of a retention policy of the deployment.
    pub retention: Option<String>,
    pub body: Body,
    /// What its author should think of again, by line and column; publishing does not refuse it.
    pub warnings: Vec<Problem>,
}

/// What a definition of each kind comes to.
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and it is taken apart at once")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    Process {
        declaration: Declaration,
        /// May lack an entry for a guard of the declaration: a start supplies it, label by label.
        gate_spec: PublishedGates,
    },
    Workflow {
        plan: Plan,
        /// The definition as normalised JSON, from which [`Cel`] makes an equal plan again.
        document: Vec<u8>,
    },
    Machine {
        machine: OwnMachine,
        /// The definition as normalised JSON, from which [`Cel`] makes an equal machine again.
        document: Vec<u8>,
    },
}

/// What a definition describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Process,
    Workflow,
    Machine,
}

impl Kind {
    pub const ALL: &'static [Kind] = &[Kind::Process, Kind::Workflow, Kind::Machine];

    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Process => "process",
            Kind::Workflow => "workflow",
            Kind::Machine => "machine",
        }
    }
}

/// What only a deployment knows.
pub trait Deployment {
    /// The version of a workflow that a workflow runs as a step, to be fixed; no version means the newest. `None` when there
    /// is none.
    fn workflow(&mut self, name: &str, version: Option<u32>) -> Option<u32>;

    /// Whether a workflow that was found here is fail-closed.
    fn is_fail_closed(&self, _name: &str, _version: u32) -> bool {
        true
    }

    /// Why steps cannot move by this machine, if so.
    fn refuses_machine(&self, _name: &str, _version: Option<u32>) -> Option<String> {
        None
    }

    /// Why this retention policy cannot be had, if so.
    fn refuses_retention(&self, _policy: &str) -> Option<String> {
        None
    }
}

/// A deployment of which nothing matters but its workflows.
impl<F: FnMut(&str, Option<u32>) -> Option<u32>> Deployment for F {
    fn workflow(&mut self, name: &str, version: Option<u32>) -> Option<u32> {
        self(name, version)
    }
}

type Resolver<'a> = &'a mut dyn Deployment;

/// Reads one definition document. On failure the list holds at least one problem, at most a thousand,
/// and is sorted by line and column. Text that is not YAML has one problem only: where it breaks off.
///
/// The workflows that a workflow runs are taken as they are written; see [`parse_resolved`].
pub fn parse(text: &[u8]) -> Result<Definition, Vec<Problem>> {
    parse_with(text, None)
}

/// Like [`parse`], for this deployment: with the versions of the workflows that a workflow runs fixed, in the plan and
/// in the document. One that is not known there is a problem, `unknown-workflow`.
pub fn parse_resolved(text: &[u8], deployment: &mut dyn Deployment) -> Result<Definition, Vec<Problem>> {
    parse_with(text, Some(deployment))
}

/// By label of the gate_spec, how long its approvers have to decide once the gate is open. `text` is a document that was
/// published.
pub fn dues(text: &[u8]) -> BTreeMap<String, Micros> {
    let mut problems = Problems::of("");
    let root = read::read(text, &mut problems);
    root.as_ref().and_then(|root| root.field("gate_spec")).map_or_else(BTreeMap::new, gates::dues)
}

fn parse_with(text: &[u8], resolver: Option<Resolver<'_>>) -> Result<Definition, Vec<Problem>> {
    let source = std::str::from_utf8(text).unwrap_or_default();
    let mut problems = Problems::of(source.strip_prefix(read::BYTE_ORDER_MARK).unwrap_or(source));
    let definition = read::read(text, &mut problems).and_then(|root| definition(root, resolver, &mut problems));
    match definition {
        Some(definition) if problems.is_empty() => Ok(definition),
        _ => Err(problems.into_sorted()),
    }
}

fn definition(root: Node, resolver: Option<Resolver<'_>>, problems: &mut Problems) -> Option<Definition> {
    let fields = Mapping::of(&root, String::new(), "a mapping with `kind` and `name`", problems)?;
    if let (Some(deployment), Some(node)) = (&resolver, fields.get("retention"))
        && let Value::String(policy) = &node.value
        && let Some(message) = deployment.refuses_retention(policy)
    {
        problems.add(node.at, "retention", ProblemCode::BadValue, message);
    }
    match kind(&fields, problems)? {
        Kind::Process => process::definition(&fields, resolver.map(|resolver| resolver as Resolver<'_>), problems),
        Kind::Machine => machine::definition(&root, problems),
        Kind::Workflow => workflow::definition(root, resolver.map(|resolver| resolver as Resolver<'_>), problems),
    }
}

fn kind(root: &Mapping<'_>, problems: &mut Problems) -> Option<Kind> {
    let Some(node) = root.get("kind") else {
        match root.entries.iter().find(|(key, _)| problems.guess(&key.text, ["kind"]).is_some()) {
            Some((key, _)) => {
                let message = format!("unknown field {}; did you mean `kind`?", problem::quoted(&key.text));
                problems.add(key.at, root.path_to(&key.text), ProblemCode::UnknownField, message);
            }
            None => problems.add(
                root.at,
                "kind",
                ProblemCode::MissingField,
                "the document does not say its kind; add `kind: process`, `kind: workflow` or `kind: machine`",
            ),
        }
        return None;
    };
    let written = string(node, "kind", problems)?;
    let found = Kind::ALL.iter().copied().find(|kind| kind.as_str() == written);
    if found.is_none() {
        let advice = match problems.guess(written, Kind::ALL.iter().map(|kind| kind.as_str())) {
            Some(kind) => format!("; did you mean `{kind}`?"),
            None => String::new(),
        };
        let message = format!(
            "this version supports kind: process, kind: workflow and kind: machine, and not {}{advice}",
            problem::quoted(written)
        );
        problems.add(node.at, "kind", ProblemCode::BadValue, message);
    }
    found
}
