//! Hides secrets in the result of a job. A command may print its input, and a server may answer with the request;
//! every occurrence becomes `***` before a verdict leaves this crate.
//!
//! A value is found as it is, and in the encodings that programs commonly print: Base64 (also inside longer texts, as
//! in `Basic` credentials), percent-encoding, hexadecimal and JSON. A command that discloses a secret on purpose can
//! still do so, for example by reversing it. Masking prevents accidents.

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::fmt::Write;
use std::sync::Arc;

pub const HIDDEN: &str = "***";
/// The shortest secret: a shorter value would be found, and hidden, in texts that do not hold it.
pub const SHORTEST_BYTES: usize = 4;
/// The shortest part of a secret (a line of a key, a stretch of Base64) that is looked for by itself.
const SHORTEST_PART: usize = 8;

/// The secrets to hide, ready to be searched for. Cheap to clone.
#[derive(Clone, Default)]
pub struct Mask {
    search: Option<Arc<AhoCorasick>>,
    longest: usize,
    /// There are secrets that cannot be searched for: nothing is shown.
    hides_all: bool,
}

impl Mask {
    pub fn of<'s>(secrets: impl IntoIterator<Item = &'s str>) -> Mask {
        let mut forms = BTreeSet::new();
        for secret in secrets {
            forms_of(secret, &mut forms);
        }
        if forms.is_empty() {
            return Mask::default();
        }
        let longest = forms.iter().map(String::len).max().unwrap_or(0);
        let built = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&forms);
        match built {
            Ok(search) => Mask { search: Some(Arc::new(search)), longest, hides_all: false },
            Err(error) => {
                tracing::error!(%error, "the secrets are too large to be searched for: no output is shown");
                Mask::everything()
            }
        }
    }

    /// Hides everything, where it is not known what has to be hidden.
    pub fn everything() -> Mask {
        Mask { search: None, longest: usize::MAX, hides_all: true }
    }

    /// The length of the longest text that is hidden. A text whose beginning or end was cut off may begin or end with a part
    /// of a secret that is shorter than this.
    pub fn longest(&self) -> usize {
        self.longest
    }

    pub fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if self.hides_all {
            return Cow::Owned(HIDDEN.to_owned());
        }
        let Some(search) = self.search.as_deref().filter(|search| search.is_match(text)) else {
            return Cow::Borrowed(text);
        };
        let mut masked = String::with_capacity(text.len());
        search.replace_all_with(text, &mut masked, |_, _, out| {
            out.push_str(HIDDEN);
            true
        });
        Cow::Owned(masked)
    }

    /// A JSON text with its strings and numbers masked, however they are escaped; everything else stays as it was written.
    pub fn json<'t>(&self, json: &'t str) -> Cow<'t, str> {
        if self.search.is_none() && !self.hides_all {
            return Cow::Borrowed(json);
        }
        let (mut out, mut rest) = (String::with_capacity(json.len()), json);
        while let Some(start) = rest.find(|c: char| c == '"' || c == '-' || c.is_ascii_digit()) {
            out.push_str(&rest[..start]);
            rest = &rest[start..];
            let length = if rest.starts_with('"') { string_length(rest) } else { number_length(rest) };
            let (token, after) = rest.split_at(length);
            out.push_str(&self.token(token));
            rest = after;
        }
        out.push_str(rest);
        Cow::Owned(out)
    }

    fn token<'t>(&self, token: &'t str) -> Cow<'t, str> {
        let quoted = |text: &str| Cow::Owned(serde_json::Value::from(text).to_string());
        if !token.starts_with('"') {
            let hidden = matches!(self.text(token), Cow::Owned(_));
            return if hidden { quoted(HIDDEN) } else { Cow::Borrowed(token) };
        }
        match serde_json::from_str::<String>(token) {
            Ok(text) => match self.text(&text) {
                Cow::Borrowed(_) => Cow::Borrowed(token),
                Cow::Owned(masked) => quoted(&masked),
            },
            Err(_) => quoted(HIDDEN),
        }
    }
}

impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mask")
    }
}

/// The bytes of the string literal that a JSON text begins with.
fn string_length(json: &str) -> usize {
    let bytes = json.as_bytes();
    let mut i = 1;
    while i < bytes.len() && bytes[i] != b'"' {
        i += if bytes[i] == b'\\' { 2 } else { 1 };
    }
    // A literal that never ends takes all of it.
    if i < bytes.len() { i + 1 } else { bytes.len() }
}

fn number_length(json: &str) -> usize {
    json.find(|c: char| !c.is_ascii_digit() && !matches!(c, '-' | '+' | '.' | 'e' | 'E')).unwrap_or(json.len()).max(1)
}

fn forms_of(secret: &str, forms: &mut BTreeSet<String>) {
    if secret.is_empty() {
        return;
    }
    let bytes = secret.as_bytes();
    let lines = secret.lines().map(str::trim).filter(|line| line.len() >= SHORTEST_PART);
    forms.extend(lines.map(str::to_owned));
    let json = serde_json::Value::from(secret).to_string();
    let json = json[1..json.len() - 1].to_owned();
    forms.insert(ascii_json(&json));
    forms.insert(json.replace('/', "\\/"));
    forms.insert(json);
    for kept in ["-._~", "-._~!'()*", "-._*", ""] {
        let percent = percent_encoded(bytes, kept);
        forms.insert(percent.replace("%20", "+"));
        forms.insert(lower_percent(&percent));
        forms.insert(percent);
    }
    let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    forms.insert(hex.to_uppercase());
    forms.insert(hex);
    let padded = BASE64_STANDARD.encode(bytes);
    forms.insert(url_alphabet(&padded));
    forms.insert(padded);
    for offset in 0..3 {
        let stretch = base64_stretch(bytes, offset);
        if stretch.len() >= SHORTEST_PART {
            forms.insert(url_alphabet(&stretch));
            forms.insert(stretch);
        }
    }
    forms.insert(secret.to_owned());
}

/// What of the Base64 of a longer text depends on these bytes alone, where `offset` (modulo 3) bytes go before them.
fn base64_stretch(bytes: &[u8], offset: usize) -> String {
    let text = [&[0; 2][..offset], bytes].concat();
    let encoded = BASE64_STANDARD_NO_PAD.encode(&text);
    let (first, end) = ((offset * 8).div_ceil(6), text.len() * 8 / 6);
    encoded.get(first..end).unwrap_or_default().to_owned()
}

fn url_alphabet(base64: &str) -> String {
    base64.replace('+', "-").replace('/', "_")
}

fn percent_encoded(bytes: &[u8], kept: &str) -> String {
    let mut encoded = String::new();
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || kept.as_bytes().contains(byte) {
            encoded.push(char::from(*byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// With the hexadecimal digits, and nothing else, in lower case.
fn lower_percent(percent: &str) -> String {
    let mut pieces = percent.split('%');
    let mut lower = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (digits, rest) = piece.split_at(piece.len().min(2));
        let _ = write!(lower, "%{}{rest}", digits.to_ascii_lowercase());
    }
    lower
}

/// As writers of JSON do it that keep to ASCII.
fn ascii_json(json: &str) -> String {
    let mut ascii = String::new();
    for unit in json.encode_utf16() {
        match char::from_u32(u32::from(unit)).filter(char::is_ascii) {
            Some(c) => ascii.push(c),
            None => {
                let _ = write!(ascii, "\\u{unit:04x}");
            }
        }
    }
    ascii
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "s3cr\"et/ pä+ss";

    fn mask() -> Mask {
        Mask::of([SECRET, "98765432"])
    }

    #[test]
    fn every_form_is_hidden() {
        let base64 = |text: &str| BASE64_STANDARD.encode(text);
        for text in [
            SECRET.to_owned(),
            serde_json::to_string(SECRET).expect("JSON"),
            r#"s3cr\"et\/ pä+ss"#.to_owned(),
            r#"s3cr\"et/ p\u00e4+ss"#.to_owned(),
            "s3cr%22et%2F%20p%C3%A4%2Bss".to_owned(),
            "s3cr%22et%2f%20p%c3%a4%2bss".to_owned(),
            "s3cr%22et%2F+p%C3%A4%2Bss".to_owned(),
            base64(SECRET),
            base64(SECRET).trim_end_matches('=').to_owned(),
            SECRET.bytes().map(|byte| format!("{byte:02X}")).collect(),
        ] {
            let told = format!("before {text} after");
            let masked = mask().text(&told).into_owned();
            assert!(masked.contains(HIDDEN) && !masked.contains(&text), "{told}: {masked}");
            assert!(masked.starts_with("before ") && masked.ends_with(" after"), "{masked}");
        }
    }

    /// As in `Authorization: Basic`: whatever goes before and after the secret.
    #[test]
    fn base64_is_found_inside_of_longer_texts() {
        for before in ["", "u", "us", "use", "user:"] {
            for after in ["", "x", "xy", "xyz"] {
                let encoded = BASE64_STANDARD.encode(format!("{before}{SECRET}{after}"));
                let masked = mask().text(&encoded).into_owned();
                assert!(masked.contains(HIDDEN) && masked.len() < encoded.len() - 10, "{encoded}: {masked}");
            }
        }
    }

    #[test]
    fn json_is_masked_in_its_values_and_kept_as_it_was_written() {
        let json =
            r#"{ "a":"\u00733cr\"et/ p\u00e4+ss!", "n":1.50,"p":[98765432, -98765432.5], "s3cr\"et/ pä+ss":null}"#;
        let expected = r#"{ "a":"***!", "n":1.50,"p":["***", "***"], "***":null}"#;
        assert_eq!(mask().json(json), expected);
        let plain = r#"[1.50, "a\u0041", true]"#;
        assert_eq!((mask().json(plain), Mask::default().json(plain)), (plain.into(), plain.into()));
    }

    #[test]
    fn a_key_of_many_lines_is_hidden_line_by_line() {
        let mask = Mask::of(["-----BEGIN KEY-----\nMIIEvQIBADANBg\nx\n-----END KEY-----"]);
        assert_eq!(mask.text("| MIIEvQIBADANBg |\nx"), "| *** |\nx");
    }

    #[test]
    fn without_secrets_nothing_changes() {
        assert_eq!(Mask::of([]).text("***"), "***");
        assert_eq!((Mask::of([""]).longest(), mask().longest() >= SECRET.len()), (0, true));
    }
}
