//! What became of a job, in the words of the worker protocol.

use countersign_kernel::lifecycle::FailureCategory;
use countersign_kernel::run::{Facet, Outbound};
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Completed {
        /// One JSON value that the engine's own door would let in.
        output_json: String,
        outbound: Vec<Outbound>,
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
    /// It was begun, and nobody knows what became of it. Whoever may make it again reports `instead`.
    Unknown {
        instead: Box<Verdict>,
    },
}

impl Verdict {
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
}
