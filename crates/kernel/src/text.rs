//! What counts as blank. References are compared byte for byte everywhere else: no trimming, no case
//! folding, no Unicode normalisation.

use crate::Time;

/// True when a reader would see nothing: empty, white space, or only characters that have no shape of
/// their own (zero-width spaces and joiners, soft hyphen, byte-order mark, controls).
pub fn is_blank(text: &str) -> bool {
    text.chars().all(|c| c.is_whitespace() || is_invisible(c))
}

/// Characters that let two references look the same while they differ: controls, zero-width and
/// bidirectional formatting characters. Registered actor names may not hold them.
pub fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{00AD}' | '\u{034F}' | '\u{061C}' | '\u{115F}' | '\u{1160}' | '\u{17B4}' | '\u{17B5}'
            | '\u{180B}'..='\u{180F}' | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}'
            | '\u{2060}'..='\u{206F}' | '\u{3164}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}'
            | '\u{FFA0}' | '\u{FFF9}'..='\u{FFFB}' | '\u{E0000}'..='\u{E0FFF}')
}

/// RFC 3339 in UTC, to the microsecond.
pub fn rfc3339(Time(us): Time) -> String {
    let (days, rest) = (us.div_euclid(86_400_000_000), us.rem_euclid(86_400_000_000));
    // Days since 1970 in the civil calendar, years beginning with March.
    let z = days + 719_468;
    let (era, day_of_era) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let mp = (5 * day_of_year + 2) / 153;
    let (day, month) = (day_of_year - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (seconds, fraction) = (rest / 1_000_000, rest % 1_000_000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:06}Z")
}

/// A length of time as definitions write it, in whole milliseconds and no less than one where there is any: `1h30m`.
pub fn length(micros: i64) -> String {
    const UNITS: &[(&str, i64)] = &[("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];
    let mut rest = (micros / 1000).max(i64::from(micros > 0));
    let mut text = String::new();
    for (unit, millis) in UNITS {
        if rest >= *millis {
            text.push_str(&format!("{}{unit}", rest / millis));
            rest %= millis;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// The text as a JSON string, quotes included.
pub fn json_string(text: &str) -> String {
    let mut json = String::with_capacity(text.len() + 2);
    json.push('"');
    let mut rest = text;
    while let Some(at) = rest.bytes().position(|byte| byte < b' ' || byte == b'"' || byte == b'\\') {
        // Such a byte is a character of its own, never part of another.
        let (plain, special) = rest.split_at(at);
        json.push_str(plain);
        match special.as_bytes()[0] {
            byte @ (b'"' | b'\\') => json.extend(['\\', char::from(byte)]),
            control => json.push_str(&format!("\\u{control:04x}")),
        }
        rest = &special[1..];
    }
    json.push_str(rest);
    json.push('"');
    json
}

/// The text of a JSON string; `None` where it is other JSON, or none.
pub fn from_json_string(json: &str) -> Option<String> {
    let inner = json.strip_prefix('"')?.strip_suffix('"')?;
    let mut text = String::with_capacity(inner.len());
    let mut rest = inner.chars();
    while let Some(c) = rest.next() {
        let c = match c {
            '"' => return None,
            '\\' => match rest.next()? {
                c @ ('"' | '\\' | '/') => c,
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'u' => match utf16_unit(&mut rest)? {
                    high @ 0xd800..=0xdbff => {
                        let escape = (rest.next()?, rest.next()?) == ('\\', 'u');
                        let low = utf16_unit(&mut rest).filter(|low| escape && (0xdc00..=0xdfff).contains(low))?;
                        char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00))?
                    }
                    unit => char::from_u32(unit)?,
                },
                _ => return None,
            },
            c => c,
        };
        text.push(c);
    }
    Some(text)
}

fn utf16_unit(digits: &mut std::str::Chars<'_>) -> Option<u32> {
    (0..4).try_fold(0, |unit, _| Some(unit * 16 + digits.next()?.to_digit(16)?))
}

/// An error that is longer is cut short, so that there is room for it in a record.
pub const MAX_ERROR_BYTES: usize = 4096;

/// The text, or as much of its beginning as has room with a `…` behind it.
pub fn shortened(error: &str) -> std::borrow::Cow<'_, str> {
    if error.len() <= MAX_ERROR_BYTES {
        return error.into();
    }
    let end = error.floor_char_boundary(MAX_ERROR_BYTES - '…'.len_utf8());
    format!("{}…", &error[..end]).into()
}

/// Bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_json_string_escapes_what_it_must_and_nothing_else() {
        for (text, json) in [
            ("", r#""""#),
            ("plain / grün \u{1F600}\u{7f}", "\"plain / grün \u{1F600}\u{7f}\""),
            (r#"a "b" \c\"#, r#""a \"b\" \\c\\""#),
            ("\u{0}\n\tend\u{1f}", r#""\u0000\u000a\u0009end\u001f""#),
        ] {
            assert_eq!(json_string(text), json);
        }
    }

    #[test]
    fn a_json_string_is_read_as_it_was_written() {
        for text in ["", "plain", r#"a "b" \c\"#, "grün \u{1F600}\u{7f}\n\t\0"] {
            assert_eq!(from_json_string(&json_string(text)).as_deref(), Some(text));
        }
        assert_eq!(
            from_json_string(r#""\/\b\f\n\r\t\u00e9\ud83d\ude00""#).as_deref(),
            Some("/\u{8}\u{c}\n\r\té\u{1F600}")
        );
        for other in [
            "",
            "null",
            "1",
            "\"",
            r#""a"b""#,
            r#""\""#,
            r#""\x""#,
            r#""\ud83d""#,
            r#""\ud83dx0041""#,
            r#""\u12""#,
            "[\"a\"]",
        ] {
            assert_eq!(from_json_string(other), None, "{other}");
        }
    }

    #[test]
    fn a_long_error_is_cut_between_characters() {
        for whole in ["", "boom", &"x".repeat(MAX_ERROR_BYTES)] {
            assert_eq!(shortened(whole), whole);
        }
        assert_eq!(shortened(&"x".repeat(MAX_ERROR_BYTES + 1)), format!("{}…", "x".repeat(MAX_ERROR_BYTES - 3)));
        assert_eq!(shortened(&"ü".repeat(MAX_ERROR_BYTES)), format!("{}…", "ü".repeat((MAX_ERROR_BYTES - 3) / 2)));
    }

    #[test]
    fn every_byte_has_its_two_digits() {
        for byte in 0..=255_u8 {
            assert_eq!(hex(&[byte, 0x0f]), format!("{byte:02x}0f"));
        }
        assert_eq!(crate::Digest([0xa5; 32]).to_string(), "a5".repeat(32));
    }

    #[test]
    fn lengths_are_written_as_definitions_write_them() {
        for (micros, text) in
            [(0, "0s"), (1, "1ms"), (250_000, "250ms"), (5_400_000_000, "1h30m"), (604_800_000_001, "7d")]
        {
            assert_eq!(length(micros), text);
        }
    }

    #[test]
    fn times_are_written_as_the_wire_writes_them() {
        for (us, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000000Z"),
            (1_763_236_048_123_456, "2025-11-15T19:47:28.123456Z"),
            (-1, "1969-12-31T23:59:59.999999Z"),
        ] {
            assert_eq!(rfc3339(Time(us)), text);
        }
    }

    #[test]
    fn whitespace_and_invisible_text_is_blank() {
        for blank in ["", " ", "\t\n", "\u{3000}", "\u{200B}", "\u{FEFF}\u{00AD} ", "\0"] {
            assert!(is_blank(blank), "{blank:?}");
        }
        for text in ["a", " a ", "Ж", "0", "\u{200B}x"] {
            assert!(!is_blank(text), "{text:?}");
        }
    }
}
