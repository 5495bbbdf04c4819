//! Files and JSON that a command is given. `-` is stdin.

use super::failure::usage;
use countersign_client::Format;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
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

/// A JSON value given whole, or field by field: `name=text`, `name:=json`. None when nothing was given.
pub fn value(arguments: &[String]) -> anyhow::Result<Option<Value>> {
    match arguments {
        [] => Ok(None),
        [whole] if field(whole).is_none() => parse_json(whole.as_bytes())
            .map(Some)
            .map_err(|told| usage(format!("`{whole}` is neither JSON nor NAME=TEXT nor NAME:=JSON: {told}"))),
        fields => {
            let mut object = Map::new();
            for argument in fields {
                let Some((name, value)) = field(argument) else {
                    let told = format!("`{argument}` is no field: write NAME=TEXT, NAME:=JSON, or one JSON value");
                    return Err(usage(told));
                };
                let value = match value {
                    Field::Text(text) => Value::String(text.to_owned()),
                    Field::Json(json) => {
                        parse_json(json.as_bytes()).map_err(|told| usage(format!("{name}: {told}")))?
                    }
                };
                if object.insert(name.to_owned(), value).is_some() {
                    return Err(usage(format!("`{name}` is given twice")));
                }
            }
            Ok(Some(Value::Object(object)))
        }
    }
}

enum Field<'a> {
    Text(&'a str),
    Json(&'a str),
}

fn field(argument: &str) -> Option<(&str, Field<'_>)> {
    let (name, value) = argument.split_once('=')?;
    let (name, value) = match name.strip_suffix(':') {
        Some(name) => (name, Field::Json(value)),
        None => (name, Field::Text(value)),
    };
    let plain = |c: char| c.is_alphanumeric() || "_-.".contains(c);
    (!name.is_empty() && name.chars().all(plain)).then_some((name, value))
}

fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let mut parser = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut parser).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        let hint = if inner.is_syntax() { " (this has to be JSON)" } else { "" };
        // Of what is no JSON there is no path.
        if path == "." || inner.is_syntax() { format!("{inner}{hint}") } else { format!("{path}: {inner}{hint}") }
    })?;
    parser.end().map_err(|error| error.to_string())?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersign_client::wire::GateSpec;

    #[test]
    fn a_value_is_given_whole_or_field_by_field() {
        let given = |arguments: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
            value(&arguments).map(|value| value.unwrap_or_default().to_string()).map_err(|error| error.to_string())
        };
        for (arguments, expected) in [
            (&[][..], "null"),
            (&[r#"{"a": 1}"#], r#"{"a":1}"#),
            (&["[1]"], "[1]"),
            (&["order=1001", "paid:=42", "note=a=b"], r#"{"order":"1001","paid":42,"note":"a=b"}"#),
        ] {
            let expected: serde_json::Value = serde_json::from_str(expected).expect("JSON");
            assert_eq!(given(arguments), Ok(expected.to_string()), "{arguments:?}");
        }
        for (arguments, told) in [
            (&["order"][..], "`order` is neither JSON nor NAME=TEXT"),
            (&["{bad"], "nor NAME:=JSON: key must be a string"),
            (&["a=1", "{}"], "`{}` is no field"),
            (&["a=1", "a=2"], "`a` is given twice"),
            (&["a:=x"], "a: expected value"),
        ] {
            let error = given(arguments).expect_err("a mistake");
            assert!(error.contains(told), "{error}");
        }
    }

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
