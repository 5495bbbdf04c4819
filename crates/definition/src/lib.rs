//! Definition documents: the text an author writes, YAML 1.2 or JSON, to the kernel's values. Every
//! problem is collected in one pass, at its line and column, with a code that tools can rely on.
//!
//! This crate reads text that anybody may send: it never panics, never follows anything outside the
//! text, and bounds what a small text may unfold into. It decides nothing about a deployment:
//! whether a retention policy is configured or an approver exists is checked where those are known.
//!
//! Read in this order: `read` (text to a span tree, with `syntax` for what is not YAML), `tree` (that tree), `fields` (checked access to
//! its mappings), then one module per kind: `process`, with `gates` beside it for `gate_spec`.

mod fields;
mod gates;
mod problem;
mod process;
mod read;
mod render;
mod suggest;
mod syntax;
mod tree;

pub use fields::FieldList;
pub use gates::{QUORUM_ENTRY_FIELDS, QUORUM_FIELDS, QUORUM_RULES, SINGLE_ENTRY_FIELDS};
pub use problem::{Problem, ProblemCode};
pub use process::{PROCESS_FIELDS, TRANSITION_FIELDS};
pub use render::render;

use countersign_kernel::{Declaration, GateSpec};
use fields::{Mapping, string};
use problem::Problems;
use tree::Node;

/// A definition without problems.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    pub kind: Kind,
    pub name: String,
    pub declaration: Declaration,
    /// May lack an entry for a guard of the declaration: a start supplies it, label by label.
    pub gate_spec: GateSpec,
    /// The name of a retention policy of the deployment.
    pub retention: Option<String>,
}

/// What a definition describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Process,
}

impl Kind {
    pub const ALL: &'static [Kind] = &[Kind::Process];

    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Process => "process",
        }
    }
}

/// Reads one definition document. On failure the list holds at least one problem, at most a thousand,
/// and is sorted by line and column. Text that is not YAML has one problem only: where it breaks off.
pub fn parse(text: &[u8]) -> Result<Definition, Vec<Problem>> {
    let mut problems = Problems::default();
    let definition = read::read(text, &mut problems).and_then(|root| document(&root, &mut problems));
    match definition {
        Some(definition) if problems.is_empty() => Ok(definition),
        _ => Err(problems.into_sorted()),
    }
}

fn document(root: &Node, problems: &mut Problems) -> Option<Definition> {
    let root = Mapping::of(root, String::new(), "a mapping with `kind` and `name`", problems)?;
    match kind(&root, problems)? {
        Kind::Process => process::definition(&root, problems),
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
                "the document does not say its kind; add `kind: process`",
            ),
        }
        return None;
    };
    let written = string(node, "kind", problems)?;
    let found = Kind::ALL.iter().copied().find(|kind| kind.as_str() == written);
    if found.is_none() {
        let message = format!("this version supports kind: process, and not {}", problem::quoted(written));
        problems.add(node.at, "kind", ProblemCode::BadValue, message);
    }
    found
}
