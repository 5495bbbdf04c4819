//! Files and JSON that a command is given. `-` is stdin.

use super::failure::usage;
use countersign_client::Format;
use serde::de::DeserializeOwned;
use std::io::Read;

/// A file's name, as the user gave it, and its bytes.
pub struct Document {
    pub name: String,
    pub bytes: Vec<u8>,
}

impl Document {
    pub fn read(name: &str) -> anyhow::Result<Self> {
        let mut bytes = Vec::new();
        let read = if name == "-" {
            std::io::stdin().lock().read_to_end(&mut bytes).map(|_| ())
        } else {
            std::fs::read(name).map(|content| bytes = content)
        };
        read.map_err(|error| usage(format!("{name} cannot be read: {error}")))?;
        Ok(Document { name: if name == "-" { "stdin".into() } else { name.into() }, bytes })
    }

    /// By the file's name; YAML is the wider language.
    pub fn format(&self) -> Format {
        if self.name.ends_with(".json") { Format::Json } else { Format::Yaml }
    }

    /// The value in a JSON document, or where it goes wrong.
    pub fn json<T: DeserializeOwned>(&self) -> anyhow::Result<T> {
        parse_json(&self.bytes).map_err(|told| usage(format!("{}: {told}", self.name)))
    }
}

/// A JSON value given in the argument itself, in a file, or on stdin.
pub fn json_or_file<T: DeserializeOwned>(argument: &str) -> anyhow::Result<T> {
    if argument.trim_start().starts_with('{') {
        return parse_json(argument.as_bytes()).map_err(usage);
    }
    Document::read(argument)?.json()
}

fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let mut parser = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut parser).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        let hint = if inner.is_syntax() { " (this has to be JSON)" } else { "" };
        if path == "." { format!("{inner}{hint}") } else { format!("{path}: {inner}{hint}") }
    })?;
    parser.end().map_err(|error| error.to_string())?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersign_client::wire::GateSpec;

    #[test]
    fn a_mistake_in_json_is_told_with_its_path() {
        let spec: GateSpec = json_or_file(r#"{"QP": {"approver_ref": "a", "scope": "s"}}"#).expect("a gate spec");
        assert_eq!(spec["QP"].approver_ref.as_deref(), Some("a"));
        for (text, told) in [
            (r#"{"QP": {"approver_ref": "a", "scop": "s"}}"#, "QP.scop: unknown field `scop`"),
            (r#"{"QP": {"quorum": {"rule": "most"}, "scope": "s"}}"#, "QP.quorum.rule: unknown variant `most`"),
            (r#"{"QP": }"#, "(this has to be JSON)"),
            (r#"{} {}"#, "trailing characters"),
            ("nowhere.json", "nowhere.json cannot be read"),
        ] {
            let error = json_or_file::<GateSpec>(text).expect_err("a mistake").to_string();
            assert!(error.contains(told), "{error}");
        }
    }
}
