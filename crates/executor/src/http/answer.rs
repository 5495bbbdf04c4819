//! The result of an answer: its status decides, its content becomes the output.

use super::HttpJob;
use crate::json;
use crate::mask::Mask;
use crate::probe::quoted;
use crate::text;
use crate::verdict::Verdict;
use countersign_kernel::lifecycle::FailureCategory;
use countersign_kernel::plan::StatusClass;
use reqwest::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER, SET_COOKIE};
use serde_json::Value;
use serde_json::value::RawValue;
use std::time::Duration;

/// An answer is read this far.
pub const BODY_BYTES: usize = 1024 * 1024;
const EXCERPT_BYTES: usize = 500;
/// A server may ask for patience, but not for ever.
const LONGEST_BACKOFF: Duration = Duration::from_secs(3600);

pub fn names(classes: &[StatusClass], status: u16) -> bool {
    classes.iter().any(|class| match class {
        StatusClass::Code(code) => *code == status,
        StatusClass::Hundred(hundred) => u16::from(*hundred) == status / 100,
        StatusClass::Network => false,
    })
}

pub struct Answer {
    /// Method and address, for people.
    pub asked: String,
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    /// There was more.
    pub cut: bool,
}

impl Answer {
    pub fn judge(&self, job: &HttpJob) -> Verdict {
        let Answer { asked, status, .. } = self;
        if names(&job.success, *status) {
            if self.cut {
                return Verdict::unusable(format!(
                    "ANSWER_TOO_LARGE: {asked} answered {status} with more than {BODY_BYTES} bytes"
                ));
            }
            return match self.output() {
                Ok(output_json) => Verdict::completed(output_json),
                Err(error) => Verdict::unusable(format!("{asked} answered {status}, which cannot be kept: {error}")),
            };
        }
        let told = self.told(&job.mask);
        if names(&job.retry, *status) {
            return Verdict::Retry {
                last_error: told,
                backoff: self.retry_after(),
                category: Some(FailureCategory::External),
            };
        }
        Verdict::dead(told, FailureCategory::External)
    }

    /// The status and the beginning of the body, masked before it is cut and without an end that may be that of a secret.
    pub fn told(&self, mask: &Mask) -> String {
        let Answer { asked, status, body, .. } = self;
        let end = if self.cut { body.len().saturating_sub(mask.longest()) } else { body.len() };
        let body = text::of(&body[..end]);
        let excerpt = text::head(mask.text(&body).trim(), EXCERPT_BYTES);
        if excerpt.is_empty() {
            format!("{asked} answered {status}")
        } else {
            format!("{asked} answered {status}: {excerpt}")
        }
    }

    /// The body as the value of a pin, as a JSON text. Nothing is mended: what looks equal is equal.
    pub fn value(&self) -> Result<String, String> {
        if self.cut {
            return Err(format!("{} answered with more than {BODY_BYTES} bytes", self.asked));
        }
        match self.json() {
            Some(json) => Ok(json.trim().to_owned()),
            None => quoted(&self.body),
        }
    }

    /// The body, where it says that it is JSON and may be kept as such.
    fn json(&self) -> Option<&str> {
        std::str::from_utf8(&self.body).ok().filter(|body| self.is_json() && json::check(body).is_ok())
    }

    /// `{status, headers, body}`. The body is JSON where it says so and may be kept, otherwise text.
    fn output(&self) -> Result<String, serde_json::Error> {
        #[derive(serde::Serialize)]
        struct Output<'a> {
            status: u16,
            headers: Value,
            body: Body<'a>,
        }
        #[derive(serde::Serialize)]
        #[serde(untagged)]
        enum Body<'a> {
            Json(&'a RawValue),
            Text(String),
        }
        let body = match self.json().map(serde_json::from_str::<&RawValue>) {
            Some(Ok(raw)) => Body::Json(raw),
            _ => Body::Text(text::of(&self.body)),
        };
        serde_json::to_string(&Output { status: self.status, headers: self.shown_headers(), body })
    }

    fn is_json(&self) -> bool {
        let media_type = self.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let media_type = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        media_type == "application/json" || media_type.ends_with("+json")
    }

    /// In lower case; several of one name are joined. A cookie is a secret, and outputs are kept for years.
    fn shown_headers(&self) -> Value {
        let shown = self.headers.keys().filter(|name| **name != SET_COOKIE).map(|name| {
            let values = self.headers.get_all(name).iter().map(|value| text::of(value.as_bytes()));
            (name.as_str().to_owned(), Value::String(values.collect::<Vec<_>>().join(", ")))
        });
        Value::Object(shown.collect())
    }

    /// Seconds only: a date would have to be held against a clock that may differ.
    fn retry_after(&self) -> Option<Duration> {
        let seconds = self.headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
        Some(Duration::from_secs(seconds).min(LONGEST_BACKOFF))
    }
}
