//! A strict reader of JSON (RFC 8259). It takes nothing silently: a member that appears twice and an integer beyond
//! ±(2^53 − 1) are faults, so that no two readers can take different values from the same bytes.

use std::fmt;

/// The largest integer that every reader of JSON represents exactly.
pub const MAX_INTEGER: i64 = (1 << 53) - 1;

/// Deeper than anything the formats need; a hostile text must not exhaust the stack.
const MAX_DEPTH: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    /// A number that is no integer in plain decimal, as it was written.
    Number(Box<str>),
    Text(String),
    List(Vec<Value>),
    /// Members in the order they were written.
    Object(Vec<(String, Value)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    Syntax,
    DuplicateKey,
    OutOfRange,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub kind: FaultKind,
    pub detail: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

/// As JSON, without space.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("null"),
            Value::Bool(value) => value.fmt(f),
            Value::Int(number) => number.fmt(f),
            Value::Number(written) => f.write_str(written),
            Value::Text(value) => f.write_str(&text(value)),
            Value::List(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if i == 0 { "" } else { "," })?;
                }
                f.write_str("]")
            }
            Value::Object(members) => {
                f.write_str("{")?;
                for (i, (name, value)) in members.iter().enumerate() {
                    write!(f, "{}{}:{value}", if i == 0 { "" } else { "," }, text(name))?;
                }
                f.write_str("}")
            }
        }
    }
}

/// One JSON value and nothing after it.
pub fn parse(bytes: &[u8]) -> Result<Value, Fault> {
    Ok(read(bytes)?.0)
}

/// One JSON value of a format in which every number is an integer.
pub fn parse_integers(bytes: &[u8]) -> Result<Value, Fault> {
    let value = parse(bytes)?;
    match value.fraction() {
        None => Ok(value),
        Some(text) => {
            let detail = format!("{} stands where an integer is asked", shortened(text));
            Err(Fault { kind: FaultKind::OutOfRange, detail })
        }
    }
}

/// The same, and no insignificant white space anywhere.
pub fn parse_compact(bytes: &[u8]) -> Result<Value, Fault> {
    match read(bytes)? {
        (value, false) => Ok(value),
        (_, true) => Err(syntax("insignificant white space")),
    }
}

/// The text of a member as it stands in the object `text`.
pub fn member_text<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut reader = Reader { text, at: 0, saw_space: false };
    reader.space();
    if !reader.take(b'{') {
        return None;
    }
    loop {
        reader.space();
        let key = (reader.peek() == Some(b'"')).then(|| reader.string().ok()).flatten()?;
        reader.space();
        reader.take(b':').then_some(())?;
        reader.space();
        let from = reader.at;
        reader.value(1).ok()?;
        if key == name {
            return text.get(from..reader.at);
        }
        reader.space();
        reader.take(b',').then_some(())?;
    }
}

/// A text as JSON, with no more escapes than it needs.
pub fn text(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if u32::from(c) < 0x20 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn read(bytes: &[u8]) -> Result<(Value, bool), Fault> {
    let text = std::str::from_utf8(bytes).map_err(|e| syntax(format!("not UTF-8 at byte {}", e.valid_up_to())))?;
    let mut reader = Reader { text, at: 0, saw_space: false };
    reader.space();
    let value = reader.value(0)?;
    reader.space();
    if reader.at != bytes.len() {
        return Err(reader.unexpected("the end"));
    }
    Ok((value, reader.saw_space))
}

impl Value {
    pub fn get(&self, name: &str) -> Option<&Value> {
        match self {
            Value::Object(members) => members.iter().find(|(key, _)| key == name).map(|(_, value)| value),
            _ => None,
        }
    }

    /// The member, where it is there and not null.
    pub fn given(&self, name: &str) -> Option<&Value> {
        self.get(name).filter(|value| **value != Value::Null)
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(Value::as_text)
    }

    pub fn int(&self, name: &str) -> Option<i64> {
        self.get(name).and_then(Value::as_int)
    }

    pub fn as_text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(number) => Some(*number),
            _ => None,
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    pub fn as_list(&self) -> Option<&[Value]> {
        match self {
            Value::List(items) => Some(items),
            _ => None,
        }
    }

    pub fn members(&self) -> Option<&[(String, Value)]> {
        match self {
            Value::Object(members) => Some(members),
            _ => None,
        }
    }

    /// Texts of a list of nothing but texts.
    pub fn texts(&self, name: &str) -> Option<Vec<&str>> {
        self.get(name)?.as_list()?.iter().map(Value::as_text).collect()
    }

    /// A number that is no integer, at any depth.
    pub fn fraction(&self) -> Option<&str> {
        match self {
            Value::Number(text) => Some(text),
            Value::List(items) => items.iter().find_map(Value::fraction),
            Value::Object(members) => members.iter().find_map(|(_, value)| value.fraction()),
            Value::Null | Value::Bool(_) | Value::Int(_) | Value::Text(_) => None,
        }
    }

    /// What kind of value stands here, in words.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Int(_) => "an integer",
            Value::Number(_) => "a number that is no integer",
            Value::Text(_) => "text",
            Value::List(_) => "a list",
            Value::Object(_) => "an object",
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    saw_space: bool,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
            self.saw_space = true;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn unexpected(&self, wanted: &str) -> Fault {
        syntax(format!("not JSON: {wanted} expected at byte {}", self.at))
    }

    fn value(&mut self, depth: usize) -> Result<Value, Fault> {
        if depth > MAX_DEPTH {
            return Err(syntax(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.list(depth),
            Some(b'"') => Ok(Value::Text(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            _ => Err(self.unexpected("a value")),
        }
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, Fault> {
        if !self.rest().starts_with(word) {
            return Err(self.unexpected("a value"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn object(&mut self, depth: usize) -> Result<Value, Fault> {
        self.at += 1;
        let mut members = Vec::new();
        self.space();
        if self.take(b'}') {
            return Ok(Value::Object(members));
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("a member's name"));
            }
            let name = self.string()?;
            self.space();
            if !self.take(b':') {
                return Err(self.unexpected("`:`"));
            }
            self.space();
            let value = self.value(depth + 1)?;
            members.push((name, value));
            self.space();
            if self.take(b'}') {
                break;
            }
            if !self.take(b',') {
                return Err(self.unexpected("`,` or `}`"));
            }
        }
        refuse_repeated(&members)?;
        Ok(Value::Object(members))
    }

    fn list(&mut self, depth: usize) -> Result<Value, Fault> {
        self.at += 1;
        let mut items = Vec::new();
        self.space();
        if self.take(b']') {
            return Ok(Value::List(items));
        }
        loop {
            self.space();
            items.push(self.value(depth + 1)?);
            self.space();
            if self.take(b']') {
                return Ok(Value::List(items));
            }
            if !self.take(b',') {
                return Err(self.unexpected("`,` or `]`"));
            }
        }
    }

    fn digits(&mut self) -> usize {
        let from = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        self.at - from
    }

    fn number(&mut self) -> Result<Value, Fault> {
        let from = self.at;
        let negative = self.take(b'-');
        let zero = self.peek() == Some(b'0');
        let digits = self.digits();
        if digits == 0 || (zero && digits > 1) {
            return Err(self.unexpected("a number"));
        }
        let mut integer = !(negative && zero);
        if self.take(b'.') {
            integer = false;
            if self.digits() == 0 {
                return Err(self.unexpected("a digit"));
            }
        }
        if self.take(b'e') || self.take(b'E') {
            integer = false;
            let _sign = self.take(b'+') || self.take(b'-');
            if self.digits() == 0 {
                return Err(self.unexpected("a digit"));
            }
        }
        let text = self.text.get(from..self.at).unwrap_or_default();
        if !integer {
            return Ok(Value::Number(text.into()));
        }
        match text.parse::<i64>() {
            Ok(number) if (-MAX_INTEGER..=MAX_INTEGER).contains(&number) => Ok(Value::Int(number)),
            _ => Err(Fault {
                kind: FaultKind::OutOfRange,
                detail: format!("the integer {} at byte {from} is beyond ±(2^53 − 1)", shortened(text)),
            }),
        }
    }

    fn string(&mut self) -> Result<String, Fault> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = self.rest();
            let Some(end) = rest.bytes().position(|b| b == b'"' || b == b'\\' || b < 0x20) else {
                return Err(syntax("not JSON: a text does not end"));
            };
            out.push_str(rest.get(..end).unwrap_or_default());
            self.at += end + 1;
            match rest.as_bytes().get(end) {
                Some(b'"') => return Ok(out),
                Some(b'\\') => out.push(self.escape()?),
                _ => return Err(syntax(format!("not JSON: a control character at byte {}", self.at - 1))),
            }
        }
    }

    fn escape(&mut self) -> Result<char, Fault> {
        let byte = self.peek().ok_or_else(|| self.unexpected("an escape"))?;
        self.at += 1;
        Ok(match byte {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode(),
            _ => return Err(self.unexpected("an escape")),
        })
    }

    fn unicode(&mut self) -> Result<char, Fault> {
        let first = self.four_hex()?;
        let code = match first {
            0xD800..=0xDBFF => {
                if !(self.take(b'\\') && self.take(b'u')) {
                    return Err(self.unexpected("the second half of a surrogate pair"));
                }
                let second = self.four_hex()?;
                if !(0xDC00..=0xDFFF).contains(&second) {
                    return Err(self.unexpected("the second half of a surrogate pair"));
                }
                0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)
            }
            code => code,
        };
        match char::from_u32(code) {
            None => Err(syntax(format!("not JSON: half a surrogate pair before byte {}", self.at))),
            Some('\0') => Err(syntax(format!("U+0000 in a text before byte {}", self.at))),
            Some(character) => Ok(character),
        }
    }

    fn four_hex(&mut self) -> Result<u32, Fault> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4).unwrap_or_default();
        if digits.len() != 4 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(self.unexpected("four hex digits"));
        }
        self.at += 4;
        let value = |digit: &u8| char::from(*digit).to_digit(16).unwrap_or_default();
        Ok(digits.iter().fold(0, |code, digit| code * 16 + value(digit)))
    }
}

fn refuse_repeated(members: &[(String, Value)]) -> Result<(), Fault> {
    let mut names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair.first() == pair.last()) {
        None => Ok(()),
        Some(pair) => Err(Fault {
            kind: FaultKind::DuplicateKey,
            detail: format!(
                "the member `{}` appears twice in one object",
                shortened(pair.first().copied().unwrap_or(""))
            ),
        }),
    }
}

fn syntax(detail: impl Into<String>) -> Fault {
    Fault { kind: FaultKind::Syntax, detail: detail.into() }
}

/// A text of unknown length, short enough for a message.
pub fn shortened(text: &str) -> String {
    const MOST: usize = 80;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    text.chars().take(MOST).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> FaultKind {
        parse(text.as_bytes()).expect_err(text).kind
    }

    #[test]
    fn reads_what_json_allows() {
        let value = parse(br#" {"a":[1,-2,true,null,"x\n\u00e9\ud83d\ude00"],"b":1.5e3} "#).expect("JSON");
        assert_eq!(value.get("a").and_then(|a| a.as_list()).map(<[Value]>::len), Some(5));
        assert_eq!(value.get("b"), Some(&Value::Number("1.5e3".into())));
        assert_eq!(value.get("a").and_then(|a| a.as_list()?.last()?.as_text()), Some("x\né😀"));
        assert_eq!(parse(b"9007199254740991"), Ok(Value::Int(MAX_INTEGER)));
    }

    #[test]
    fn refuses_what_two_readers_could_read_differently() {
        assert_eq!(fault(r#"{"a":{"b":1,"c":2,"b":3}}"#), FaultKind::DuplicateKey);
        assert_eq!(fault(r#"{"a":1,"\u0061":2}"#), FaultKind::DuplicateKey);
        assert_eq!(fault("9007199254740992"), FaultKind::OutOfRange);
        assert_eq!(fault("-9007199254740992"), FaultKind::OutOfRange);
        assert_eq!(fault("123456789012345678901234567890"), FaultKind::OutOfRange);
    }

    #[test]
    fn refuses_what_is_not_json() {
        for text in [
            "",
            "{",
            "[1,]",
            "{\"a\":1,}",
            "{a:1}",
            "01",
            "-",
            "1.",
            "1e",
            "+1",
            "nul",
            "\"\\x\"",
            "\"\t\"",
            "\"\\ud800\"",
            "\"\\u0000\"",
            "\"",
            "1 2",
            "NaN",
            "Infinity",
            "\u{feff}1",
        ] {
            assert_eq!(fault(text), FaultKind::Syntax, "{text}");
        }
        assert_eq!(fault(&"[".repeat(100_000)), FaultKind::Syntax);
        assert!(parse(b"\"\xff\"").is_err());
    }

    #[test]
    fn compact_means_without_space_outside_texts() {
        assert!(parse_compact(br#"{"a":"b c"}"#).is_ok());
        assert!(parse_compact(br#"{"a": 1}"#).is_err());
        assert!(parse_compact(b"{}\n").is_err());
    }
}
