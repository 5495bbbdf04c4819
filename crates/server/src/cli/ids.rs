//! What a command is about may be named by its id, by the beginning of the id, or by its subject, as long as one run or
//! process alone is meant. What is not found is sent as it is: the server says so.

use super::failure::usage;
use super::output::printable;
use countersign_client::wire::{InboxQuery, ProcessQuery, RunQuery};
use countersign_client::{Client, Error};
use jiff::Timestamp;
use std::collections::BTreeMap;

/// A shorter beginning names too many.
const LEAST_CHARS: usize = 4;
/// A query by `q` needs so many.
const LEAST_SOUGHT: usize = 3;
/// So many candidates are looked at, and fewer are shown.
const LOOKED_AT: u32 = 100;
const SHOWN: usize = 5;
const ID_LENGTH: usize = 36;
/// The digits of an id that are its time, in milliseconds.
const TIME_DIGITS: usize = 12;

/// The id of a run.
pub async fn run(client: &Client, text: &str) -> anyhow::Result<String> {
    named(client, text, false).await
}

/// The id of a run or a process.
pub async fn instance(client: &Client, text: &str) -> anyhow::Result<String> {
    named(client, text, true).await
}

async fn named(client: &Client, text: &str, processes_too: bool) -> anyhow::Result<String> {
    if is_id(text) || text.chars().count() < LEAST_SOUGHT {
        return Ok(text.to_owned());
    }
    let mut found = BTreeMap::new();
    let mut add = |id: &str, subject: &str, what: &str| {
        if begins(id, text) || subject == text {
            found.insert(id.to_owned(), format!("{id}  {what}, {subject}"));
        }
    };
    let query = RunQuery { q: Some(text.to_owned()), limit: Some(LOOKED_AT), ..RunQuery::default() };
    for run in readable(client.runs(&query).await.map(|answer| answer.body.items))? {
        add(&run.run_id, &run.subject_ref, &format!("{}, {}", run.definition, run.state));
    }
    if processes_too {
        for query in of_processes(text) {
            for process in readable(client.processes(&query).await.map(|answer| answer.body.items))? {
                add(&process.instance_id, &process.subject_ref, &process.current_state);
            }
        }
    }
    // Whoever may read neither still has an in-tray.
    let query = InboxQuery { limit: Some(LOOKED_AT), cursor: None };
    for item in readable(client.inbox(&query).await.map(|answer| answer.body.items))? {
        add(&item.instance_id, &item.subject_ref, &item.action);
    }
    let mut ids = found.keys();
    match (ids.next(), found.len()) {
        (Some(id), 1) => Ok(id.clone()),
        (None, _) => Ok(text.to_owned()),
        (Some(_), count) => {
            let shown: Vec<&str> = found.values().rev().take(SHOWN).map(String::as_str).collect();
            let more = if count > SHOWN { "\n  …" } else { "" };
            Err(usage(format!(
                "`{}` names {count}, the newest first; give the id of one:\n  {}{more}",
                printable(text),
                shown.join("\n  ")
            )))
        }
    }
}

/// Who may not read these simply finds none there.
fn readable<T>(items: Result<Vec<T>, Error>) -> Result<Vec<T>, Error> {
    match items {
        Err(error) if error.code().is_some() => Ok(Vec::new()),
        items => items,
    }
}

/// By their subject, and by the time that an id begins with.
fn of_processes(text: &str) -> Vec<ProcessQuery> {
    let query = ProcessQuery { limit: Some(LOOKED_AT), ..ProcessQuery::default() };
    let of_subject = ProcessQuery { subject_ref: Some(text.to_owned()), ..query.clone() };
    let of_time = times(text).map(|(after, before)| ProcessQuery {
        started_after: Some(after.to_string()),
        started_before: Some(before.to_string()),
        ..query
    });
    std::iter::once(of_subject).chain(of_time).collect()
}

/// When what has an id that begins so was made: ids begin with their time.
fn times(beginning: &str) -> Option<(Timestamp, Timestamp)> {
    let digits: String = beginning.chars().filter(|c| *c != '-').take(TIME_DIGITS).collect();
    if beginning.chars().count() < LEAST_CHARS || !beginning.chars().all(|c| c == '-' || c.is_ascii_hexdigit()) {
        return None;
    }
    let time = |fill: &str| {
        let filled = format!("{digits}{}", fill.repeat(TIME_DIGITS.saturating_sub(digits.len())));
        let ms = i64::from_str_radix(&filled, 16).ok()?;
        Timestamp::from_millisecond(ms).ok()
    };
    Some((time("0")?, time("f")?.checked_add(jiff::SignedDuration::from_millis(1)).ok()?))
}

fn begins(id: &str, text: &str) -> bool {
    text.chars().count() >= LEAST_CHARS && id.starts_with(&text.to_ascii_lowercase())
}

fn is_id(text: &str) -> bool {
    text.len() == ID_LENGTH && uuid::Uuid::try_parse(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_an_id_says_when_it_was_made() {
        let id = "019a8f3c-2b1d-7abc-8000-000000000001";
        let ms = i64::from_str_radix("019a8f3c2b1d", 16).expect("a number");
        let made = Timestamp::from_millisecond(ms).expect("a time");
        for length in [4, 8, 9, 13, 20] {
            let (after, before) = times(&id[..length]).expect("a beginning");
            assert!(after <= made && made < before, "{length}: {after} {made} {before}");
            assert!(begins(id, &id[..length]) && begins(id, &id[..length].to_uppercase()));
        }
        assert!(times("019").is_none() && times("order-1").is_none() && !begins(id, "019"));
        assert!(is_id(id) && !is_id(&id[..35]));
    }
}
