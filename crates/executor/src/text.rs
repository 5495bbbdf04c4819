//! Turns foreign bytes into text that a record can hold: UTF-8, of limited length, without U+0000, which PostgreSQL
//! cannot store.

pub fn of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\0', "\u{FFFD}")
}

/// The beginning of a text.
pub fn head(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let end = (0..=max_bytes).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}…", &text[..end])
}

/// The last lines of a text that fit into `max_bytes`; the last line is cut if it does not fit by itself.
pub fn last_lines(text: &str, max_lines: usize, max_bytes: usize) -> String {
    let mut kept: Vec<&str> = vec![];
    let mut room = max_bytes;
    for line in text.lines().rev().filter(|line| !line.trim().is_empty()).take(max_lines) {
        if line.len() > room {
            break;
        }
        room -= line.len();
        kept.push(line);
    }
    if kept.is_empty() {
        return text
            .lines()
            .rev()
            .find(|line| !line.trim().is_empty())
            .map_or_else(String::new, |line| head(line, max_bytes));
    }
    kept.reverse();
    kept.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_a_text() {
        assert_eq!(of(b"a\0\xffb"), "a\u{FFFD}\u{FFFD}b");
        assert_eq!(head("äöü", 3), "ä…");
        assert_eq!(last_lines("1\n2\n\n3\n", 2, 100), "2\n3");
        assert_eq!(last_lines("first\nsecond", 9, 8), "second");
        assert_eq!(last_lines("too long", 9, 3), "too…");
        assert_eq!(last_lines(" \n", 9, 9), "");
    }
}
