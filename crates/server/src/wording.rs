//! What readers of JSON and TOML say, in words for people who do not write Rust.

/// The kinds of values as Rust calls them, and as everybody does.
const KINDS: [(&str, &str); 11] = [
    ("expected u8", "expected a whole number from 0 to 255"),
    ("expected u16", "expected a whole number from 0 to 65535"),
    ("expected u32", "expected a whole number, not negative"),
    ("expected u64", "expected a whole number, not negative"),
    ("expected usize", "expected a whole number, not negative"),
    ("expected i64", "expected a whole number"),
    ("expected f64", "expected a number"),
    ("expected a boolean", "expected true or false"),
    ("expected a sequence", "expected a list"),
    ("expected a map", "expected an object"),
    ("found signed int", "found the number"),
];

pub fn plain(message: &str) -> String {
    // The name of a struct of ours says nothing to anybody else.
    let message = match message.split_once("expected struct ") {
        Some((before, _)) => format!("{before}expected an object"),
        None => message.to_owned(),
    };
    KINDS.iter().fold(message, |message, (theirs, ours)| message.replace(theirs, ours))
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn nobody_has_to_know_rust() {
        for (theirs, ours) in [
            (
                "invalid type: string \"9\", expected u8",
                "invalid type: string \"9\", expected a whole number from 0 to 255",
            ),
            (
                "invalid type: sequence, expected struct Task with 5 elements",
                "invalid type: sequence, expected an object",
            ),
            ("unknown field `x`", "unknown field `x`"),
        ] {
            assert_eq!(plain(theirs), ours);
        }
    }
}
