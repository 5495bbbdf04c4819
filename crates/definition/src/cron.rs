//! Explains what is wrong with a cron pattern, for its author. croner decides whether a pattern is right, but does
//! not say where it is wrong.

use crate::problem::quoted;
use crate::suggest::closest;
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use std::ops::Range;

const NICKNAMES: &[&str] = &["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@hourly"];
const MONTHS: &[&str] = &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const DAYS: &[&str] = &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// One field of a pattern: what it is called, its range, and the words that it knows.
struct Field {
    name: &'static str,
    one: &'static str,
    first: u32,
    last: u32,
    words: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field { name: "minute", one: "a minute", first: 0, last: 59, words: &[] },
    Field { name: "hour", one: "an hour", first: 0, last: 23, words: &[] },
    Field { name: "day", one: "a day", first: 1, last: 31, words: &[] },
    Field { name: "month", one: "a month", first: 1, last: 12, words: MONTHS },
    Field { name: "day of the week", one: "a day of the week", first: 0, last: 7, words: DAYS },
];
const IN_ORDER: &str = "minute, hour, day, month and day of the week";

/// A longer pattern is not looked at piece by piece.
const MAX_LOOKED_AT: usize = 256;

/// What is wrong, and where in the pattern.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub part: Range<usize>,
    pub message: String,
}

/// Five fields, from the minute to the day of the week, or a nickname such as `@daily`.
pub(crate) fn parse(pattern: &str) -> Result<Cron, Fault> {
    read(pattern).ok_or_else(|| fault(pattern))
}

fn read(pattern: &str) -> Option<Cron> {
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    parser.parse(pattern).ok()
}

fn fault(pattern: &str) -> Fault {
    let fields = words(pattern);
    if let [nickname] = fields.as_slice()
        && pattern.trim_start().starts_with('@')
    {
        let written = &pattern[nickname.clone()];
        let advice = match closest(written, NICKNAMES.iter().copied()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("the nicknames are {}", crate::problem::enumerated(NICKNAMES.iter().copied())),
        };
        return Fault { part: nickname.clone(), message: format!("there is no {}; {advice}", quoted(written)) };
    }
    if fields.len() != FIELDS.len() {
        let message = match fields.len() {
            6 => format!("six fields; there are no seconds here, only {IN_ORDER}"),
            1 => format!("one field; a cron pattern has five, {IN_ORDER}"),
            n => format!("{n} fields; a cron pattern has five, {IN_ORDER}"),
        };
        return Fault { part: 0..pattern.len(), message };
    }
    let unreadable =
        Fault { part: 0..pattern.len(), message: format!("{} cannot be read as {IN_ORDER}", quoted(pattern)) };
    if pattern.len() > MAX_LOOKED_AT {
        return unreadable;
    }
    // The first field that is at fault alone.
    let alone = |i: usize, text: &str| {
        let alone: Vec<&str> = (0..FIELDS.len()).map(|other| if other == i { text } else { "*" }).collect();
        read(&alone.join(" ")).is_none()
    };
    for (i, (part, field)) in fields.iter().zip(&FIELDS).enumerate() {
        let mut start = part.start;
        for item in pattern[part.clone()].split(',') {
            if !item.is_empty() && alone(i, item) {
                let (inside, message) = field.fault(item);
                return Fault { part: start + inside.start..start + inside.end, message };
            }
            start += item.len() + 1;
        }
    }
    unreadable
}

impl Field {
    /// What is wrong with one item of a list, such as `1-5/2`.
    fn fault(&self, item: &str) -> (Range<usize>, String) {
        let Field { name, one, first, last, words } = self;
        let (range, every) = item.split_once('/').map_or((item, None), |(range, every)| (range, Some(every)));
        let mut start = 0;
        let mut ends = Vec::new();
        for bound in range.split('-') {
            let place = start..start + bound.len();
            start = place.end + 1;
            let number = bound.parse::<u32>().ok();
            let word = words.iter().position(|word| word.eq_ignore_ascii_case(bound));
            let word = word.and_then(|i| u32::try_from(i).ok()).map(|i| i + first);
            match number.or(word) {
                Some(number) if number < *first || number > *last => {
                    return (place, format!("{name} {number} is out of range, {first} to {last}"));
                }
                Some(number) => ends.push(number),
                None if bound == "*" || bound == "?" => {}
                None => {
                    let advice = match closest(&bound.to_uppercase(), words.iter().copied()) {
                        Some(meant) => format!("did you mean `{meant}`?"),
                        None if words.is_empty() => format!("write {first} to {last}, or `*` for every one"),
                        None => format!(
                            "write {first} to {last}, {} to {}, or `*` for every one",
                            words[0],
                            words[words.len() - 1]
                        ),
                    };
                    return (place, format!("{} is not {one}; {advice}", quoted(bound)));
                }
            }
        }
        if let Some(every) = every
            && every.parse::<u32>().ok().is_none_or(|every| every == 0 || every > *last)
        {
            let place = range.len() + 1..item.len();
            return (place, format!("after the `/` stands every how many, 1 to {last}, and not {}", quoted(every)));
        }
        match ends.as_slice() {
            [from, to] if from > to => {
                (0..range.len(), format!("{} goes backwards; write the smaller first", quoted(range)))
            }
            [_] if every.is_some() => (
                0..item.len(),
                format!("{} has no range before its `/`; write `*/…` or `{range}-{last}/…`", quoted(item)),
            ),
            _ => {
                (0..item.len(), format!("{} is not {one}; write {first} to {last}, or `*` for every one", quoted(item)))
            }
        }
    }
}

/// Where the words of a text stand.
fn words(text: &str) -> Vec<Range<usize>> {
    let at = |word: &str| word.as_ptr() as usize - text.as_ptr() as usize;
    text.split_whitespace().map(|word| at(word)..at(word) + word.len()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_of_the_field_that_is() {
        for (pattern, part, message) in [
            ("61 6 * * *", "61", "minute 61 is out of range, 0 to 59"),
            ("0 6,24 * * *", "24", "hour 24 is out of range, 0 to 23"),
            ("0 6 0 * *", "0", "day 0 is out of range, 1 to 31"),
            ("0 6 * 13 *", "13", "month 13 is out of range, 1 to 12"),
            ("0 6 * * 1-8", "8", "day of the week 8 is out of range, 0 to 7"),
            ("0 6 * * MOM", "MOM", "`MOM` is not a day of the week; did you mean `MON`?"),
            ("0 6am * * *", "6am", "`6am` is not an hour; write 0 to 23, or `*` for every one"),
            ("0 9-5 * * *", "9-5", "`9-5` goes backwards; write the smaller first"),
            ("*/0 * * * *", "0", "after the `/` stands every how many, 1 to 59, and not `0`"),
            (
                "0 0 6 * * *",
                "0 0 6 * * *",
                "six fields; there are no seconds here, only minute, hour, day, month and day of the week",
            ),
            ("0 6 * *", "0 6 * *", "4 fields; a cron pattern has five, minute, hour, day, month and day of the week"),
            ("daily", "daily", "one field; a cron pattern has five, minute, hour, day, month and day of the week"),
            ("@dayly", "@dayly", "there is no `@dayly`; did you mean `@daily`?"),
        ] {
            let Err(fault) = parse(pattern) else { panic!("{pattern}: sound") };
            assert_eq!((&pattern[fault.part], fault.message.as_str()), (part, message), "{pattern}");
        }
    }
}
