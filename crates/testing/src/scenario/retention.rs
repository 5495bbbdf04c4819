//! The words for holds and purges: which record is meant, who holds it, and how much time goes by.

use super::Act;
use super::parse::Words;
use std::collections::BTreeSet;

/// A record, by its number in a process; a text in quotes is sent unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordName {
    Of { process: String, number: u64 },
    Text(String),
}

/// `record 2 of B`, or a text in quotes.
pub(super) fn record(
    words: &mut Words,
    process: impl Fn(&mut Words) -> Result<String, String>,
) -> Result<RecordName, String> {
    if words.peek() != Some("record") {
        let word = words.take("the record")?;
        return if word.quoted { Ok(RecordName::Text(word.text)) } else { Err("which record?".to_owned()) };
    }
    words.expect("record")?;
    let number = words.text("its number")?.parse().map_err(|_| "a record has a number from 1")?;
    words.expect("of")?;
    Ok(RecordName::Of { process: process(words)?, number })
}

/// `record 2 of B [as H] because "…" [case C]`.
pub(super) fn hold(words: &mut Words, process: impl Fn(&mut Words) -> Result<String, String>) -> Result<Act, String> {
    let record = record(words, process)?;
    let name = words.optional("as")?;
    let reason = words.optional("because")?.unwrap_or_default();
    Ok(Act::Hold { record, name, reason, case: words.optional("case")? })
}

/// `H [because "…"]`: a hold that was placed `as` this, or an id in quotes.
pub(super) fn release(words: &mut Words, placed: &BTreeSet<String>) -> Result<Act, String> {
    let word = words.take("the hold")?;
    if !word.quoted && word.text != super::NOWHERE && !placed.contains(&word.text) {
        return Err(format!("no hold was placed `as {}`; an id that there is not stands in quotes", word.text));
    }
    Ok(Act::Release { hold: word.text, reason: words.optional("because")? })
}

/// `purged` or `kept`.
pub(super) fn purged(words: &mut Words) -> Result<bool, String> {
    match words.text("`purged` or `kept`")?.as_str() {
        "purged" => Ok(true),
        "kept" => Ok(false),
        other => Err(format!("expected `purged` or `kept`, found `{other}`")),
    }
}

/// `2557d`, `3h`, `5s`, `1us`.
pub(super) fn length(text: &str) -> Result<i64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "d" => 86_400_000_000,
        "h" => 3_600_000_000,
        "m" => 60_000_000,
        "s" => 1_000_000,
        "ms" => 1000,
        "us" => 1,
        _ => return Err(format!("`{text}` is no length of time: units are d, h, m, s, ms and us")),
    };
    number
        .parse::<i64>()
        .ok()
        .and_then(|number| number.checked_mul(unit))
        .ok_or_else(|| format!("`{text}` is too long"))
}
