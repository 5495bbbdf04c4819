//! The result of a job, in the terms of the worker protocol.

use crate::artifact::Artifact;
use crate::json;
use crate::mask::Mask;
use countersign_kernel::lifecycle::FailureCategory;
use countersign_kernel::run::{Facet, Outbound};
use std::borrow::Cow;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Completed {
        /// One JSON value that the engine's own door would let in.
        output_json: String,
        outbound: Vec<Outbound>,
        /// The files that the step was to leave, all of them.
        artifacts: Vec<Artifact>,
    },
    Waiting {
        event_type: Option<String>,
        timeout: Option<Duration>,
        facet: Option<Facet>,
        outbound: Vec<Outbound>,
    },
    Retry {
        last_error: String,
        /// In place of what the step's retry policy says.
        backoff: Option<Duration>,
        category: Option<FailureCategory>,
    },
    Dead {
        last_error: String,
        category: Option<FailureCategory>,
    },
    /// It was begun, and its effect is unknown. If the step may be repeated, `instead` is reported.
    Unknown {
        instead: Box<Verdict>,
    },
}

impl Verdict {
    pub(crate) fn completed(output_json: impl Into<String>) -> Self {
        Verdict::Completed { output_json: output_json.into(), outbound: vec![], artifacts: vec![] }
    }

    pub(crate) fn dead(last_error: impl Into<String>, category: FailureCategory) -> Self {
        Verdict::Dead { last_error: last_error.into(), category: Some(category) }
    }

    pub(crate) fn retry(last_error: impl Into<String>, category: FailureCategory) -> Self {
        Verdict::Retry { last_error: last_error.into(), backoff: None, category: Some(category) }
    }

    /// Without a verdict where `self` would be a guess.
    pub(crate) fn unknown(self) -> Self {
        Verdict::Unknown { instead: Box::new(self) }
    }

    /// The definition, or what was filled into it, cannot be carried out: trying again would change nothing.
    pub(crate) fn unusable(last_error: impl Into<String>) -> Self {
        Verdict::dead(last_error, FailureCategory::Validation)
    }

    /// Why there is nothing better to report; `None` where there is.
    pub fn error(self) -> Option<String> {
        match self {
            Verdict::Retry { last_error, .. } | Verdict::Dead { last_error, .. } => Some(last_error),
            Verdict::Unknown { instead } => instead.error(),
            Verdict::Completed { .. } | Verdict::Waiting { .. } => None,
        }
    }

    /// The same without the secrets.
    pub(crate) fn masked(self, mask: &Mask) -> Self {
        let text = |text: String| mask.text(&text).into_owned();
        let events = |events: Vec<Outbound>| {
            let masked = |event: Outbound| Outbound {
                event_type: mask.text(&event.event_type).into_owned(),
                data: mask.json(&event.data).into(),
            };
            events.into_iter().map(masked).collect()
        };
        match self {
            Verdict::Completed { output_json, outbound, artifacts } => {
                let masked = match mask.json(&output_json) {
                    Cow::Borrowed(_) => None,
                    // Two keys may have become one.
                    Cow::Owned(masked) if json::check(&masked).is_err() => {
                        return Verdict::unusable("the output has secrets for keys: without them it cannot be kept");
                    }
                    Cow::Owned(masked) => Some(masked),
                };
                let output_json = masked.unwrap_or(output_json);
                Verdict::Completed { output_json, outbound: events(outbound), artifacts }
            }
            Verdict::Waiting { event_type, timeout, facet, outbound } => {
                Verdict::Waiting { event_type: event_type.map(text), timeout, facet, outbound: events(outbound) }
            }
            Verdict::Retry { last_error, backoff, category } => {
                Verdict::Retry { last_error: text(last_error), backoff, category }
            }
            Verdict::Dead { last_error, category } => Verdict::Dead { last_error: text(last_error), category },
            Verdict::Unknown { instead } => instead.masked(mask).unknown(),
        }
    }
}
