//! JSON Schema: whether a schema is one, and whether a document conforms. Nothing is fetched: a reference leads
//! nowhere but into the schema itself.

use jsonschema::Validator;
use std::panic::{AssertUnwindSafe, catch_unwind};

const MAX_MESSAGE_CHARS: usize = 300;

/// What `type` may say.
pub(crate) const TYPES: &[&str] = &["array", "boolean", "integer", "null", "number", "object", "string"];

/// What is wrong with a schema, and the JSON pointer to where.
pub(crate) struct Fault {
    pub pointer: String,
    pub message: String,
}

impl Fault {
    fn of_all(message: String) -> Fault {
        Fault { pointer: String::new(), message }
    }
}

pub(crate) fn compile(schema: &str) -> Result<Validator, Fault> {
    let schema: serde_json::Value =
        serde_json::from_str(schema).map_err(|error| Fault::of_all(format!("it is not JSON: {error}")))?;
    let compiled = catch_unwind(AssertUnwindSafe(|| jsonschema::validator_for(&schema)));
    match compiled {
        Ok(Ok(validator)) => Ok(validator),
        Ok(Err(error)) => {
            Err(Fault { pointer: error.instance_path().to_string(), message: place("", &error.to_string()) })
        }
        Err(_) => Err(Fault::of_all("it cannot be read".to_owned())),
    }
}

/// The first place where the document misses the schema.
pub(super) fn check(validator: &Validator, document: &str) -> Result<(), String> {
    let document: serde_json::Value =
        serde_json::from_str(document).map_err(|error| format!("it is not JSON: {error}"))?;
    match catch_unwind(AssertUnwindSafe(|| {
        validator.validate(&document).map_err(|error| place(&error.instance_path().to_string(), &error.to_string()))
    })) {
        Ok(answer) => answer,
        Err(_) => Err("it cannot be checked".to_owned()),
    }
}

fn place(path: &str, message: &str) -> String {
    let mut message: String = message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE_CHARS) {
        message.truncate(end);
        message.push('…');
    }
    if path.is_empty() { message } else { format!("at {path}: {message}") }
}
