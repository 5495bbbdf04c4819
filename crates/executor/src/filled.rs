//! The result of a template in a place for text: a number or a truth value is written as text, any other value is an
//! error.

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

pub struct Text(pub String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Text(text)),
            value @ (Value::Number(_) | Value::Bool(_)) => Ok(Text(value.to_string())),
            Value::Null | Value::Array(_) | Value::Object(_) => Err(D::Error::custom("not a text")),
        }
    }
}

/// An object of texts.
pub fn texts(json: &str) -> Option<std::collections::BTreeMap<String, String>> {
    let filled: std::collections::BTreeMap<String, Text> = serde_json::from_str(json).ok()?;
    Some(filled.into_iter().map(|(name, Text(text))| (name, text)).collect())
}

/// A list of texts.
pub fn list(json: &str) -> Option<Vec<String>> {
    let filled: Vec<Text> = serde_json::from_str(json).ok()?;
    Some(filled.into_iter().map(|Text(text)| text).collect())
}
