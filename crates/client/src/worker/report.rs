//! What a handler says became of its task: a [`Report`] where it did what it should, a [`Failure`] where it did not.

use crate::wire::OutboundEvent;
use serde_json::Value;
use std::fmt;
use std::time::Duration;

/// A longer error does not help, and every attempt keeps its error for ever.
const MAX_ERROR_BYTES: usize = 8 * 1024;

/// The handler did its part.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// The step is done.
    Completed { output: Value, outbound_events: Vec<OutboundEvent> },
    /// The step waits for an event, for a time, or for both, and then comes back to the same handler.
    Waiting {
        event_type: Option<String>,
        timeout: Option<Duration>,
        facet: Option<Facet>,
        outbound_events: Vec<OutboundEvent>,
    },
}

/// What kind of thing a waiting step waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Facet {
    Dependency,
    Human,
    External,
    TimeGate,
}

/// The handler could not do its part.
///
/// Every error converts into a [`Failure::retry`], so `?` does the usual thing. For that it cannot be an error itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub(super) message: String,
    pub(super) verdict: Verdict,
    pub(super) category: Option<Category>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Retry {
        backoff: Option<Duration>,
    },
    Dead,
    /// The message is the reference of the evidence.
    CannotComplete,
    Blocked(BlockReason),
}

/// What a step lacks from its own side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockReason {
    MissingInput,
    MissingApproval,
    ConfigError,
}

/// What kind of failure it was. What follows is in `spec/worker-protocol.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Category {
    Transient,
    AgentError,
    Timeout,
    Validation,
    External,
    Governance,
}

impl Report {
    pub fn completed(output: impl Into<Value>) -> Self {
        Report::Completed { output: output.into(), outbound_events: vec![] }
    }

    /// Waits for an event of this type, without a limit: add one with [`Report::timeout`].
    pub fn waiting_for(event_type: impl Into<String>) -> Self {
        Report::Waiting { event_type: Some(event_type.into()), timeout: None, facet: None, outbound_events: vec![] }
    }

    /// Comes back after this long, as a task of type WAITING_TIMEOUT.
    pub fn waiting(time: Duration) -> Self {
        Report::Waiting { event_type: None, timeout: Some(time), facet: None, outbound_events: vec![] }
    }

    /// Of a wait: how long at most. A completed step has nothing to time out.
    pub fn timeout(mut self, limit: Duration) -> Self {
        if let Report::Waiting { timeout, .. } = &mut self {
            *timeout = Some(limit);
        }
        self
    }

    /// Of a wait: what kind of thing it is that is waited for.
    pub fn facet(mut self, kind: Facet) -> Self {
        if let Report::Waiting { facet, .. } = &mut self {
            *facet = Some(kind);
        }
        self
    }

    /// Sends an event with the report: recorded in the same transaction, or not at all.
    pub fn emit(mut self, event_type: impl Into<String>, data: impl Into<Value>) -> Self {
        let (Report::Completed { outbound_events, .. } | Report::Waiting { outbound_events, .. }) = &mut self;
        outbound_events.push(OutboundEvent { event_type: event_type.into(), data: Some(data.into()) });
        self
    }
}

impl From<Value> for Report {
    fn from(output: Value) -> Self {
        Report::completed(output)
    }
}

impl From<()> for Report {
    fn from((): ()) -> Self {
        Report::completed(Value::Null)
    }
}

impl Failure {
    /// The step is to be tried again, as its retry policy says.
    pub fn retry(message: impl fmt::Display) -> Self {
        Failure { message: presentable(&message), verdict: Verdict::Retry { backoff: None }, category: None }
    }

    /// The step has failed for good.
    pub fn dead(message: impl fmt::Display) -> Self {
        Failure { message: presentable(&message), verdict: Verdict::Dead, category: None }
    }

    /// Nobody can complete the step as things are; the evidence (a ticket, a document, a record) shows it.
    pub fn cannot_complete(evidence_ref: impl fmt::Display) -> Self {
        Failure { message: presentable(&evidence_ref), verdict: Verdict::CannotComplete, category: None }
    }

    /// The step is blocked until a person unblocks it, and then comes back to a worker.
    pub fn blocked(reason: BlockReason) -> Self {
        Failure { message: reason.as_str().to_owned(), verdict: Verdict::Blocked(reason), category: None }
    }

    /// Of a retry: after this long, in place of what the retry policy says.
    pub fn after(mut self, wait: Duration) -> Self {
        if let Verdict::Retry { backoff } = &mut self.verdict {
            *backoff = Some(wait);
        }
        self
    }

    /// Of a retry and of a failure for good.
    pub fn category(mut self, category: Category) -> Self {
        self.category = Some(category);
        self
    }
}

impl<E: std::error::Error> From<E> for Failure {
    /// With everything that led to it.
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message.push_str(": ");
            message.push_str(&cause.to_string());
            source = cause.source();
        }
        Failure::retry(message)
    }
}

impl Facet {
    pub const fn as_str(self) -> &'static str {
        match self {
            Facet::Dependency => "waiting_dependency",
            Facet::Human => "waiting_human",
            Facet::External => "waiting_external",
            Facet::TimeGate => "waiting_time_gate",
        }
    }
}

impl BlockReason {
    pub const fn as_str(self) -> &'static str {
        match self {
            BlockReason::MissingInput => "missing_input",
            BlockReason::MissingApproval => "missing_approval",
            BlockReason::ConfigError => "config_error",
        }
    }
}

impl Category {
    pub const fn as_str(self) -> &'static str {
        match self {
            Category::Transient => "transient",
            Category::AgentError => "agent_error",
            Category::Timeout => "timeout",
            Category::Validation => "validation",
            Category::External => "external",
            Category::Governance => "governance",
        }
    }
}

/// The server refuses blank texts and U+0000: a report must not fail over its own error message.
fn presentable(message: &impl fmt::Display) -> String {
    let mut text = message.to_string().replace('\0', "\u{FFFD}");
    if text.len() > MAX_ERROR_BYTES {
        let end = (0..=MAX_ERROR_BYTES).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    if text.trim().is_empty() { "the handler failed and did not say why".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_error_becomes_a_retry_that_tells_the_whole_story() {
        #[derive(Debug, thiserror::Error)]
        #[error("the ledger is closed")]
        struct Outer(#[source] std::fmt::Error);
        let failure = Failure::from(Outer(std::fmt::Error));
        assert_eq!(failure.verdict, Verdict::Retry { backoff: None });
        assert!(failure.message.starts_with("the ledger is closed: an error occurred"), "{}", failure.message);
    }

    #[test]
    fn a_message_that_the_server_would_refuse_is_made_presentable() {
        assert_eq!(Failure::dead("  ").message, "the handler failed and did not say why");
        assert_eq!(Failure::dead("a\0b").message, "a\u{FFFD}b");
        let long = Failure::dead("ä".repeat(MAX_ERROR_BYTES)).message;
        assert!(long.len() <= MAX_ERROR_BYTES + '…'.len_utf8() && long.ends_with('…'));
    }

    #[test]
    fn what_belongs_to_the_other_kind_of_report_is_left_alone() {
        let completed = Report::completed(1).timeout(Duration::from_secs(1)).facet(Facet::Human);
        assert_eq!(completed, Report::completed(1));
        let dead = Failure::dead("x").after(Duration::from_secs(1));
        assert_eq!(dead, Failure::dead("x"));
    }
}
