//! `retryPolicy`: a step's fields go before the definition's, and those before the format's own.

use super::values::{boolean, duration, integer, word};
use crate::fields::{FieldList, Mapping};
use crate::problem::{ProblemCode, Problems};
use crate::tree::{Node, Value};
use countersign_kernel::plan::{Backoff, Micros, RetryPolicy};

pub const RETRY_FIELDS: FieldList =
    FieldList { required: &[], optional: &["maxRetries", "backoff", "initialDelay", "maxDelay", "jitter"] };

pub(super) const BACKOFFS: &[(&str, Backoff)] =
    &[("constant", Backoff::Constant), ("linear", Backoff::Linear), ("exponential", Backoff::Exponential)];

/// More attempts than a user would wait for.
pub(super) const MAX_RETRIES: i64 = 1_000_000;

/// The fields in the document.
#[derive(Clone, Copy, Default)]
pub(super) struct Written {
    max_retries: Option<u32>,
    backoff: Option<Backoff>,
    initial_delay: Option<Micros>,
    max_delay: Option<Micros>,
    jitter: Option<bool>,
}

impl Written {
    pub fn retries(&self) -> bool {
        self.max_retries != Some(0)
    }

    /// The policy. A default delay gives way to a written one.
    pub fn policy(&self) -> RetryPolicy {
        let default = RetryPolicy::DEFAULT;
        let (initial_delay, max_delay) = match (self.initial_delay, self.max_delay) {
            (Some(initial), None) => (initial, default.max_delay.max(initial)),
            (None, Some(max)) => (default.initial_delay.min(max), max),
            (initial, max) => (initial.unwrap_or(default.initial_delay), max.unwrap_or(default.max_delay)),
        };
        RetryPolicy {
            max_retries: self.max_retries.unwrap_or(default.max_retries),
            backoff: self.backoff.unwrap_or(default.backoff),
            initial_delay,
            max_delay,
            jitter: self.jitter.unwrap_or(default.jitter),
        }
    }
}

/// What is written here, over `base`.
pub(super) fn retry_policy(node: &Node, path: String, base: Written, problems: &mut Problems) -> Written {
    let Some(fields) = Mapping::of(node, path, "a mapping such as `{maxRetries: 3}`", problems) else {
        return base;
    };
    fields.check_fields(&RETRY_FIELDS, problems);
    let before = problems.len();
    let mut written = base;
    if let Some(node) = fields.get("maxRetries") {
        written.max_retries = max_retries(node, &fields.path_to("maxRetries"), problems);
    }
    if let Some(node) = fields.get("backoff") {
        written.backoff = word(node, &fields.path_to("backoff"), BACKOFFS, problems);
    }
    if let Some(node) = fields.get("initialDelay") {
        written.initial_delay = delay(node, &fields.path_to("initialDelay"), problems);
    }
    if let Some(node) = fields.get("maxDelay") {
        written.max_delay = delay(node, &fields.path_to("maxDelay"), problems);
    }
    if let Some(node) = fields.get("jitter") {
        written.jitter = boolean(node, &fields.path_to("jitter"), problems);
    }
    let at_fault = ["maxDelay", "initialDelay"].into_iter().find_map(|field| Some((field, fields.get(field)?)));
    if let (Some(initial), Some(max), Some((field, node))) = (written.initial_delay, written.max_delay, at_fault)
        && max < initial
        && problems.len() == before
    {
        let message = "`maxDelay` is shorter than `initialDelay`; no delay can be both";
        problems.add(node.at, fields.path_to(field), ProblemCode::BadRetry, message);
    }
    written
}

fn max_retries(node: &Node, path: &str, problems: &mut Problems) -> Option<u32> {
    if let Value::Integer(value) = node.value
        && value < 0
    {
        let message = format!("{value} retries cannot be made; write 0 for none");
        problems.add(node.at, path, ProblemCode::BadRetry, message);
        return None;
    }
    integer(node, path, 0..=MAX_RETRIES, problems).and_then(|value| u32::try_from(value).ok())
}

fn delay(node: &Node, path: &str, problems: &mut Problems) -> Option<Micros> {
    if let Value::String(text) = &node.value
        && text.starts_with('-')
    {
        problems.add(node.at, path, ProblemCode::BadRetry, "a delay cannot be negative; write `0s` for none");
        return None;
    }
    duration(node, path, problems)
}
