//! The way to the terminal. Colour is decided here (only where somebody sees it), and no character
//! that a server or a file sent can act on the terminal.

use super::table::{Tint, paint, tint};
use countersign_kernel::text::is_invisible;
use serde::Serialize;
use std::io::Write;

/// Prints a text, which may hold tints, and a line end on stdout.
pub fn say(text: &str) -> anyhow::Result<()> {
    Ok(writeln!(anstream::stdout(), "{}", paint(text))?)
}

/// Prints text that holds no tints, every character as it is.
pub fn say_verbatim(text: &str) -> anyhow::Result<()> {
    Ok(writeln!(anstream::stdout(), "{text}")?)
}

/// Prints the commands that may come next.
pub fn next(commands: impl IntoIterator<Item = String>) -> anyhow::Result<()> {
    commands.into_iter().try_for_each(|command| say(&format!("  {} {}", tint(Tint::Dim, "next:"), printable(&command))))
}

/// Prints JSON on stdout.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    say_verbatim(&serde_json::to_string_pretty(value)?)
}

/// Says something about the output on stderr.
pub fn complain(text: &str) {
    complain_verbatim(&paint(text));
}

/// Like `complain`, for text that holds no tints.
pub fn complain_verbatim(text: &str) {
    // When stderr is gone too, there is nobody left to tell.
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// One line of foreign text with everything escaped that has no shape of its own.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_invisible(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// Foreign text of several lines: line ends and tabs stay.
pub fn printable_lines(text: &str) -> String {
    text.lines()
        .map(|line| line.split('\t').map(printable).collect::<Vec<_>>().join("\t"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// A word for a shell, quoted where it has to be.
pub fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The text as it is shown where there is no colour.
#[cfg(test)]
pub fn plain(text: &str) -> String {
    anstream::adapter::strip_str(&paint(text)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_cannot_act_on_the_terminal() {
        assert_eq!(printable("a\u{1b}[31m\u{9b}b\u{202e}\n"), "a\\u{1b}[31m\\u{9b}b\\u{202e}\\n");
        assert_eq!(printable("Đỗ 試験 é"), "Đỗ 試験 é");
        assert_eq!(printable_lines("a:\n\tb\u{7}\n"), "a:\n\tb\\u{7}");
    }

    #[test]
    fn commands_that_are_suggested_can_be_pasted() {
        for (word, quoted) in [("release", "release"), ("two words", "'two words'"), ("it's", r"'it'\''s'"), ("", "''")]
        {
            assert_eq!(shell_word(word), quoted);
        }
    }
}
