//! JSON Schema: whether a schema is one, and whether a document conforms. Nothing is fetched: a reference leads
//! nowhere but into the schema itself.
//!
//! The library that validates recurses along schema and document and has no limits of its own. So a schema is measured as a
//! graph before the library sees it ([`graph`]), and a check is walked through and paid for before the library makes it
//! ([`walk`]).

mod graph;
mod resources;
mod walk;

use super::pattern::{MAX_COMPILED_BYTES, MAX_DFA_BYTES};
use countersign_kernel::Budget;
use countersign_kernel::plan::ExpressionError;
use graph::Graph;
use jsonschema::{PatternOptions, Validator};
use std::panic::{AssertUnwindSafe, catch_unwind};

const MAX_MESSAGE_CHARS: usize = 300;
/// The longest schema, in bytes of JSON.
pub(crate) const MAX_BYTES: usize = 256 << 10;
/// A pattern that looks around or back is tried so often and then given up.
const MAX_BACKTRACKS: usize = 1000;

/// What `type` may say.
pub(crate) const TYPES: &[&str] = &["array", "boolean", "integer", "null", "number", "object", "string"];

/// What is wrong with a schema, and the JSON pointer to where.
#[derive(Debug)]
pub(crate) struct Fault {
    pub pointer: String,
    pub message: String,
    /// It may be a schema, and is larger or deeper than a schema may be.
    pub out_of_bounds: bool,
}

impl Fault {
    fn of_all(message: impl Into<String>) -> Fault {
        Fault { pointer: String::new(), message: message.into(), out_of_bounds: false }
    }

    fn bound(pointer: impl Into<String>, message: impl Into<String>) -> Fault {
        Fault { pointer: pointer.into(), message: message.into(), out_of_bounds: true }
    }
}

/// A schema that can be checked against.
pub(crate) struct Compiled {
    validator: Validator,
    graph: Graph,
    bytes: usize,
}

/// Whether a schema keeps to the bounds; it is not compiled.
pub(crate) fn bounded(schema: &str) -> Result<(), Fault> {
    measure(schema).map(|_| ())
}

fn measure(schema: &str) -> Result<(serde_json::Value, Graph), Fault> {
    if schema.len() > MAX_BYTES {
        let message = format!("it has {} bytes, and a schema may have {MAX_BYTES}; make it smaller", schema.len());
        return Err(Fault::bound("", message));
    }
    let schema: serde_json::Value =
        serde_json::from_str(schema).map_err(|error| Fault::of_all(format!("it is not JSON: {error}")))?;
    let graph = Graph::of(&schema)?;
    Ok((schema, graph))
}

pub(crate) fn compile(text: &str) -> Result<Compiled, Fault> {
    let (schema, graph) = measure(text)?;
    let patterns = PatternOptions::fancy_regex()
        .backtrack_limit(MAX_BACKTRACKS)
        .size_limit(MAX_COMPILED_BYTES)
        .dfa_size_limit(MAX_DFA_BYTES);
    let options = jsonschema::options().with_pattern_options(patterns);
    match catch_unwind(AssertUnwindSafe(|| options.build(&schema))) {
        Ok(Ok(validator)) => {
            let bytes = 24 * text.len() + graph.bytes();
            Ok(Compiled { validator, graph, bytes })
        }
        Ok(Err(error)) => {
            let (pointer, message) = (error.instance_path().to_string(), place("", &error.to_string()));
            Err(Fault { pointer, message, out_of_bounds: false })
        }
        Err(_) => Err(Fault::of_all("it cannot be read")),
    }
}

impl Compiled {
    /// About how many bytes it takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first place where the document misses the schema. Reading the document has been paid for.
    pub fn check(&self, document: &str, budget: &Budget) -> Result<(), ExpressionError> {
        let document: serde_json::Value =
            serde_json::from_str(document).map_err(|error| missed(format!("it is not JSON: {error}")))?;
        let explaining = self.graph.walk(&document, budget)?;
        let judged = catch_unwind(AssertUnwindSafe(|| {
            if self.validator.is_valid(&document) {
                return Ok(());
            }
            // To say where costs more than to say whether.
            if !budget.spend(explaining) {
                return Err("it misses the schema; it is too large to say where".to_owned());
            }
            self.validator
                .validate(&document)
                .map_err(|error| place(&error.instance_path().to_string(), &error.to_string()))
        }));
        match judged {
            Ok(answer) => answer.map_err(missed),
            Err(_) => Err(missed("it cannot be checked".to_owned())),
        }
    }
}

fn missed(message: String) -> ExpressionError {
    ExpressionError::new(message)
}

fn place(path: &str, message: &str) -> String {
    let mut message: String =
        message.chars().take(MAX_MESSAGE_CHARS + 1).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE_CHARS) {
        message.truncate(end);
        message.push('…');
    }
    if path.is_empty() { message } else { format!("at {path}: {message}") }
}
