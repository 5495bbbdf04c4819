//! The result of a process that succeeded: its last line, if that is JSON, is the output, or a report as in the
//! worker protocol.

use super::capture::Tail;
use crate::json::{self, Fault};
use crate::mask::Mask;
use crate::text;
use crate::verdict::Verdict;
use countersign_kernel::lifecycle::FailureCategory;
use countersign_kernel::refusal::require_text;
use countersign_kernel::run::{Facet, Outbound};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::time::Duration;

/// `{"result": …}` with the fields of the task route of that name.
#[derive(Deserialize)]
#[serde(tag = "result", rename_all = "lowercase", deny_unknown_fields)]
enum Line {
    Completed {
        output: Option<serde_json::Value>,
        outbound_events: Option<Vec<Event>>,
    },
    Waiting {
        waiting_event_type: Option<String>,
        timeout_ms: Option<u64>,
        waiting_facet: Option<String>,
        outbound_events: Option<Vec<Event>>,
    },
    Retry {
        last_error: String,
        backoff_ms: Option<u64>,
        error_category: Option<String>,
    },
    Dead {
        last_error: String,
        error_category: Option<String>,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Event {
    #[serde(rename = "type")]
    event_type: String,
    data: Option<serde_json::Value>,
}

pub fn of(stdout: &Tail, mask: &Mask) -> Verdict {
    let Some(line) = stdout.last_line() else {
        let limit = super::STDOUT_BYTES;
        return Verdict::unusable(format!(
            "OUTPUT_TOO_LARGE: the last line of the output is longer than {limit} bytes"
        ));
    };
    // What is not JSON was meant for people.
    std::str::from_utf8(line).map_or_else(|_| Verdict::completed("null"), |line| of_line(line, mask))
}

/// The result that the last line of a process reports.
pub fn of_line(line: &str, mask: &Mask) -> Verdict {
    match json::check(line) {
        Err(Fault::Syntax) => return Verdict::completed("null"),
        Err(Fault::Refused(why)) => {
            return Verdict::unusable(format!("the last line of the output is JSON, but {why}"));
        }
        Ok(()) => {}
    }
    if !is_report(line) {
        return Verdict::completed(line);
    }
    // A mistake in a report is an error: the faulty part may be the important one.
    let unfit = |why: String| Verdict::unusable(format!("the last line of the output is no report: {why}"));
    match serde_json::from_str::<Line>(line) {
        Ok(report) => verdict(report, line, mask).unwrap_or_else(unfit),
        Err(error) => unfit(error.to_string()),
    }
}

/// An object whose `result` is one of the four words; any other `result` is simply output.
fn is_report(line: &str) -> bool {
    #[derive(Deserialize)]
    struct Peek {
        result: Option<Box<RawValue>>,
    }
    let result =
        line.starts_with('{').then(|| serde_json::from_str::<Peek>(line).ok()).flatten().and_then(|p| p.result);
    let word = result.and_then(|result| serde_json::from_str::<String>(result.get()).ok());
    word.is_some_and(|word| matches!(word.as_str(), "completed" | "waiting" | "retry" | "dead"))
}

fn verdict(report: Line, line: &str, mask: &Mask) -> Result<Verdict, String> {
    Ok(match report {
        Line::Completed { output, outbound_events } => Verdict::Completed {
            output_json: output.map_or_else(|| "null".to_owned(), |_| raw_output(line)),
            outbound: events(outbound_events)?,
            artifacts: vec![],
        },
        Line::Waiting { waiting_event_type, timeout_ms, waiting_facet, outbound_events } => {
            if waiting_event_type.is_none() && timeout_ms.is_none() {
                return Err("a wait needs a `waiting_event_type`, a `timeout_ms`, or both".to_owned());
            }
            let facet = waiting_facet.map(|text| Facet::parse(&text).ok_or(format!("`{text}` is no waiting_facet")));
            Verdict::Waiting {
                event_type: waiting_event_type,
                timeout: timeout_ms.map(Duration::from_millis),
                facet: facet.transpose()?,
                outbound: events(outbound_events)?,
            }
        }
        Line::Retry { last_error, backoff_ms, error_category } => Verdict::Retry {
            last_error: told(&last_error, mask)?,
            backoff: backoff_ms.map(Duration::from_millis),
            category: category(error_category)?,
        },
        Line::Dead { last_error, error_category } => {
            Verdict::Dead { last_error: told(&last_error, mask)?, category: category(error_category)? }
        }
    })
}

/// The output as it was written: a number read and written again might be another one.
fn raw_output(line: &str) -> String {
    #[derive(Deserialize)]
    struct Output {
        output: Box<RawValue>,
    }
    serde_json::from_str::<Output>(line).map_or_else(|_| "null".to_owned(), |found| found.output.get().to_owned())
}

/// As the route of the same fields has it: an event has a type.
fn events(events: Option<Vec<Event>>) -> Result<Vec<Outbound>, String> {
    let outbound = |(i, event): (usize, Event)| {
        require_text(&format!("outbound_events[{i}].type"), &event.event_type).map_err(|refusal| refusal.detail)?;
        let data = event.data.map_or_else(|| "null".into(), |data| data.to_string().into());
        Ok(Outbound { event_type: event.event_type, data })
    };
    events.unwrap_or_default().into_iter().enumerate().map(outbound).collect()
}

/// Masked before it is cut: half a secret would not be found.
fn told(last_error: &str, mask: &Mask) -> Result<String, String> {
    if last_error.trim().is_empty() {
        return Err("`last_error` is blank".to_owned());
    }
    Ok(text::head(&mask.text(last_error), super::ERROR_BYTES))
}

fn category(text: Option<String>) -> Result<Option<FailureCategory>, String> {
    text.map(|text| FailureCategory::parse(&text).ok_or(format!("`{text}` is no error_category"))).transpose()
}
