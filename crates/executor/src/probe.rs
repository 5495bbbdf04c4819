//! Shared by shell and http pins: a value is kept whole or not at all, so two values that look equal are equal.

/// The largest value of a pin, as a JSON text. What is larger is pinned by its digest, which the probe has to print.
pub const VALUE_BYTES: usize = 64 * 1024;

pub(crate) fn fits(value: String) -> Result<String, String> {
    if value.len() > VALUE_BYTES {
        return Err(format!("the value is larger than {VALUE_BYTES} bytes: pin its digest"));
    }
    Ok(value)
}

/// Text as a JSON string.
pub(crate) fn quoted(bytes: &[u8]) -> Result<String, String> {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(serde_json::Value::from(text).to_string()),
        _ => Err("the value is not text in UTF-8: pin its digest".to_owned()),
    }
}
