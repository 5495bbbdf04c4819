//! A short mark of a JSON value, to see whether the same value is reported again. It depends on the value alone: white
//! space, the order of members and the way a string is escaped do not count; numbers count by their text.
//!
//! It is no digest: nothing is proved with it, and it is mixed with a secret seed so that it tells nothing about the value.

use crate::text::from_json_string;

/// The mark of `json`, which is valid JSON, under `seed`.
pub fn mark(seed: u64, json: &str) -> u64 {
    let mut scan = Scan { seed, text: json, at: 0 };
    mixed(seed, scan.value())
}

struct Scan<'t> {
    seed: u64,
    text: &'t str,
    at: usize,
}

/// The finalizer of SplitMix64 over both words.
fn mixed(a: u64, b: u64) -> u64 {
    let mut z = a.rotate_left(23) ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl<'t> Scan<'t> {
    fn peek(&mut self) -> u8 {
        let bytes = self.text.as_bytes();
        while bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        bytes.get(self.at).copied().unwrap_or_default()
    }

    /// Whether the next character is this one, which is then behind us.
    fn skip(&mut self, byte: u8) -> bool {
        let found = self.peek() == byte;
        self.at += usize::from(found);
        found
    }

    fn value(&mut self) -> u64 {
        match self.peek() {
            b'{' => self.object(),
            b'[' => self.list(),
            b'"' => {
                let text = self.string();
                self.bytes(3, text.as_bytes())
            }
            _ => {
                let word = self.word();
                self.bytes(4, word.as_bytes())
            }
        }
    }

    /// Members count in any order, so their marks are added up.
    fn object(&mut self) -> u64 {
        self.at += 1;
        let mut sum = 1_u64;
        while self.peek() == b'"' {
            let name = self.string();
            let name = self.bytes(1, name.as_bytes());
            self.skip(b':');
            let value = self.value();
            sum = sum.wrapping_add(mixed(name, value));
            self.skip(b',');
        }
        self.at += 1;
        mixed(self.seed ^ 1, sum)
    }

    fn list(&mut self) -> u64 {
        self.at += 1;
        let mut all = 2_u64;
        while self.at < self.text.len() && !self.skip(b']') {
            let value = self.value();
            all = mixed(all, value);
            self.skip(b',');
        }
        mixed(self.seed ^ 2, all)
    }

    fn string(&mut self) -> std::borrow::Cow<'t, str> {
        let start = self.at;
        let bytes = self.text.as_bytes();
        self.at += 1;
        while bytes.get(self.at).is_some_and(|byte| *byte != b'"') {
            self.at += if bytes[self.at] == b'\\' { 2 } else { 1 };
        }
        self.at = (self.at + 1).min(bytes.len());
        let quoted = self.text.get(start..self.at).unwrap_or_default();
        match quoted.contains('\\') {
            false => quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default().into(),
            true => from_json_string(quoted).map_or(quoted.into(), Into::into),
        }
    }

    /// A number, `true`, `false` or `null`.
    fn word(&mut self) -> &'t str {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let end = rest.find(|c: char| c.is_ascii_whitespace() || ",]}".contains(c)).unwrap_or(rest.len());
        self.at += end.max(1);
        &rest[..end]
    }

    fn bytes(&self, kind: u64, bytes: &[u8]) -> u64 {
        let mut all = mixed(self.seed ^ kind, bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            all = mixed(all, u64::from_le_bytes(word));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::mark;

    #[test]
    fn the_same_value_has_the_same_mark_however_it_is_written() {
        for (one, other) in [
            (r#"{"a":1,"b":[true,null]}"#, r#" { "b" : [ true , null ] , "a" : 1 } "#),
            (r#""é\n""#, r#""\u00e9\u000a""#),
            (r#"{"x":{"c":"","d":{}},"y":[]}"#, r#"{"y":[],"x":{"d":{},"c":""}}"#),
            ("12.50", " 12.50"),
        ] {
            assert_eq!(mark(7, one), mark(7, other), "{one} {other}");
        }
    }

    #[test]
    fn other_values_have_other_marks() {
        let values = [
            "null",
            "true",
            "false",
            "0",
            "1",
            "1.0",
            "-1",
            "\"\"",
            "\"1\"",
            "\"null\"",
            "[]",
            "{}",
            "[[]]",
            "[1,2]",
            "[2,1]",
            "[1,[2]]",
            "[[1],2]",
            "[\"a\",\"b\"]",
            "[\"ab\"]",
            r#"{"a":1}"#,
            r#"{"a":"1"}"#,
            r#"{"a":1,"b":2}"#,
            r#"{"a":2,"b":1}"#,
            r#"{"a":{"b":1}}"#,
            r#"{"b":{"a":1}}"#,
            r#"["a",1]"#,
            "\"12345678\"",
            "\"12345678\\u0000\"",
            "\"123456789\"",
        ];
        for (i, one) in values.iter().enumerate() {
            for other in &values[i + 1..] {
                assert_ne!(mark(7, one), mark(7, other), "{one} {other}");
            }
            assert_ne!(mark(7, one), mark(8, one), "the seed counts: {one}");
        }
    }

    #[test]
    fn what_is_no_json_ends() {
        for text in ["", "{", "[", "[,", "\"", "\"\\", "{\"a\"", "{\"a\":", "[1", "é", "}", "]", "[\"\\"] {
            mark(1, text);
        }
    }
}
