//! What counts as blank. References are compared byte for byte everywhere else: no trimming, no case
//! folding, no Unicode normalisation.

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
    for c in text.chars() {
        match c {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            c if c < ' ' => json.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => json.push(c),
        }
    }
    json.push('"');
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_written_as_definitions_write_them() {
        for (micros, text) in
            [(0, "0s"), (1, "1ms"), (250_000, "250ms"), (5_400_000_000, "1h30m"), (604_800_000_001, "7d")]
        {
            assert_eq!(length(micros), text);
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
