//! JSON from outside, with the same rules as the engine's API (`spec/record.md`, section 7): no duplicate keys, no
//! numbers that readers could read differently, no U+0000, limited depth. Values are checked, not rewritten: the
//! received text is kept.

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::collections::HashSet;
use std::fmt;

const MAX_DEPTH: usize = 64;
/// 2^53 − 1: the largest integer that every JSON reader keeps exactly.
const MAX_INTEGER: u64 = (1 << 53) - 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Not JSON at all.
    Syntax,
    /// JSON that would not be let in, and why.
    Refused(String),
}

/// `Ok` where the text is one JSON value that may be kept.
pub fn check(text: &str) -> Result<(), Fault> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let checked = Check { depth: 0 }.deserialize(&mut deserializer).and_then(|()| deserializer.end());
    checked.map_err(|error| match error.classify() {
        serde_json::error::Category::Data => Fault::Refused(error.to_string()),
        _ => Fault::Syntax,
    })
}

struct Check {
    depth: usize,
}

impl Check {
    fn deeper<E: de::Error>(&self) -> Result<Check, E> {
        if self.depth >= MAX_DEPTH {
            return Err(E::custom(format_args!("nested more than {MAX_DEPTH} deep")));
        }
        Ok(Check { depth: self.depth + 1 })
    }
}

impl<'de> DeserializeSeed<'de> for Check {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Check {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<(), E> {
        if value > MAX_INTEGER { Err(beyond(value)) } else { Ok(()) }
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(), E> {
        if value.unsigned_abs() > MAX_INTEGER { Err(beyond(value)) } else { Ok(()) }
    }

    /// Also whole numbers that fit no integer come here.
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<(), E> {
        if value.abs() > MAX_INTEGER as f64 { Err(beyond(value)) } else { Ok(()) }
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<(), E> {
        if value.contains('\0') { Err(E::custom("a text holds the character U+0000")) } else { Ok(()) }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(self.deeper()?)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut keys = HashSet::new();
        while let Some(key) = members.next_key::<String>()? {
            if key.contains('\0') {
                return Err(de::Error::custom("a key holds the character U+0000"));
            }
            members.next_value_seed(self.deeper()?)?;
            if let Some(twice) = keys.replace(key) {
                return Err(de::Error::custom(format_args!("the key `{twice}` stands twice")));
            }
        }
        Ok(())
    }
}

fn beyond<E: de::Error>(value: impl fmt::Display) -> E {
    E::custom(format_args!("the number {value} lies beyond ±(2^53 − 1): write it as text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_readers_could_understand_differently_is_refused() {
        let deep = format!("{}1{}", "[".repeat(65), "]".repeat(65));
        for (text, told) in [
            (r#"{"a":1,"b":{"a":1,"a":2}}"#, "the key `a` stands twice"),
            ("9007199254740993", "beyond"),
            ("[-9007199254740992]", "beyond"),
            ("1e300", "beyond"),
            (r#""\u0000""#, "U+0000"),
            (r#"{"\u0000":1}"#, "U+0000"),
            (&deep, "nested"),
        ] {
            match check(text) {
                Err(Fault::Refused(why)) => assert!(why.contains(told), "{why}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_is_json_is_json_and_what_is_not_is_not() {
        for text in ["null", " [1, 2.5, -3] ", r#"{"a": {"b": ["c", true]}}"#, r#""text""#, "9007199254740991"] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        for text in ["", "done.", "{", "1 2", "{'a': 1}", "NaN"] {
            assert_eq!(check(text), Err(Fault::Syntax), "{text}");
        }
    }
}
