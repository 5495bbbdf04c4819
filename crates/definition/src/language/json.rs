//! JSON to CEL and back. Whole numbers stay whole as far as CEL has them, from −2^63 to 2^64−1; one beyond is an
//! error and never a number with fewer digits. A number with a point or an exponent is a double, as in every reader of JSON.

use cel::Value;
use cel::common::types::{CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelUInt};
use cel::common::value::Val;
use std::collections::HashMap;

/// The largest result, in bytes of JSON.
pub(super) const MAX_BYTES: usize = 4 << 20;

/// No text that is recorded holds it: not every store could keep it.
pub(super) const NUL: &str = "its value holds the character U+0000";

/// Steps to read a JSON text: for each byte, and for each value that it may hold.
pub(super) fn reading(text: &str) -> u64 {
    let marks = text.bytes().filter(|byte| matches!(byte, b',' | b':' | b'[' | b'{')).count();
    text.len() as u64 + 40 * (marks as u64 + 1)
}

/// The value of a JSON text. `name` is the variable that holds it.
pub(super) fn value(name: &str, text: &str) -> Result<Box<dyn Val>, String> {
    if let Some(number) = too_many_digits(text) {
        return Err(format!("`{name}` holds the whole number {number}, which has more digits than can be kept"));
    }
    let parsed = serde_json::from_str(text).map_err(|error| format!("`{name}` is not JSON: {error}"))?;
    Ok(from_json(parsed))
}

/// The reader of JSON bounds how deep this goes.
fn from_json(value: serde_json::Value) -> Box<dyn Val> {
    use serde_json::Value as Json;
    match value {
        Json::Null => Box::new(CelNull),
        Json::Bool(value) => Box::new(CelBool::from(value)),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(value), _) => Box::new(CelInt::from(value)),
            (None, Some(value)) => Box::new(CelUInt::from(value)),
            (None, None) => Box::new(CelDouble::from(number.as_f64().unwrap_or(f64::NAN))),
        },
        Json::String(text) => Box::new(CelString::from(text)),
        Json::Array(items) => Box::new(CelList::from(items.into_iter().map(from_json).collect::<Vec<_>>())),
        Json::Object(entries) => map(entries.into_iter().map(|(key, value)| (key, from_json(value)))),
    }
}

pub(super) fn map(entries: impl Iterator<Item = (String, Box<dyn Val>)>) -> Box<dyn Val> {
    let entries: HashMap<CelMapKey<'static>, Box<dyn Val>> =
        entries.map(|(key, value)| (CelMapKey::from(key), value)).collect();
    Box::new(CelMap::from(entries))
}

/// A whole number of the text that is neither in 64 bits with a sign nor without.
fn too_many_digits(text: &str) -> Option<&str> {
    let bytes = text.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        match bytes[i] {
            b'"' => {
                i += 1;
                while i < bytes.len() && bytes[i] != b'"' {
                    i += if bytes[i] == b'\\' { 2 } else { 1 };
                }
                i += 1;
            }
            b'-' | b'0'..=b'9' => {
                let start = i;
                while i < bytes.len() && matches!(bytes[i], b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9') {
                    i += 1;
                }
                let number = text.get(start..i)?;
                let whole = number.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit());
                if whole && number.len() > 18 && number.parse::<i64>().is_err() && number.parse::<u64>().is_err() {
                    return Some(number);
                }
            }
            _ => i += 1,
        }
    }
    None
}

/// The JSON text of a value; the keys of a map in their order, so that equal values have equal texts.
pub(super) fn text(value: &Value) -> Result<String, String> {
    let mut out = String::new();
    write(value, &mut out)?;
    Ok(out)
}

/// What a value is, for a message.
pub(super) fn describe(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Int(_) | Value::UInt(_) | Value::Float(_) => "a number",
        Value::String(_) => "a string",
        Value::List(_) => "a list",
        Value::Map(_) => "a map",
        Value::Bytes(_) => "bytes",
        _ => "something that JSON does not have",
    }
}

fn string(text: &str) -> Result<String, String> {
    if text.contains('\0') {
        return Err(NUL.to_owned());
    }
    Ok(serde_json::Value::from(text).to_string())
}

fn write(value: &Value, out: &mut String) -> Result<(), String> {
    if out.len() > MAX_BYTES {
        return Err(format!("its value is larger than {MAX_BYTES} bytes"));
    }
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Int(value) => out.push_str(&value.to_string()),
        Value::UInt(value) => out.push_str(&value.to_string()),
        Value::Float(value) if value.is_finite() => out.push_str(&serde_json::Value::from(*value).to_string()),
        Value::Float(_) => return Err("its value is not a finite number".to_owned()),
        Value::String(text) => out.push_str(&string(text)?),
        Value::List(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write(item, out)?;
            }
            out.push(']');
        }
        Value::Map(map) => {
            let mut entries: Vec<(String, &Value)> =
                map.map.iter().map(|(key, value)| (key.to_string(), value)).collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            if entries.windows(2).any(|pair| pair[0].0 == pair[1].0) {
                return Err("its value has two keys that are the same in JSON".to_owned());
            }
            out.push('{');
            for (i, (key, value)) in entries.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                out.push_str(&string(&key)?);
                out.push(':');
                write(value, out)?;
            }
            out.push('}');
        }
        other => return Err(format!("its value is {}, which JSON does not have", describe(other))),
    }
    Ok(())
}
