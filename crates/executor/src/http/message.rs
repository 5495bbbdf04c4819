//! A message to an address that the deployment itself configured: one request, no redirect, and only the answer's
//! status. The address is guarded like that of a step.

use super::guard::{Forbidden, check_literal};
use super::{HttpExecutor, innermost, parse};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Method, Url};
use std::fmt;
use std::time::Duration;

/// The longest that is waited because the other side asks for it.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(3600);

/// Where messages go.
#[derive(Clone)]
pub struct Destination {
    url: Url,
    pub timeout: Duration,
    /// Whether it may be an address that is not the public internet's.
    pub allow_private: bool,
}

impl Destination {
    pub fn new(url: &str, timeout: Duration, allow_private: bool) -> Result<Self, String> {
        Ok(Destination { url: parse(url)?, timeout, allow_private })
    }

    /// Without the query, which is no place for people to look at.
    pub fn shown(&self) -> String {
        format!("{}{}", self.url.origin().ascii_serialization(), self.url.path())
    }

    pub fn is_encrypted(&self) -> bool {
        self.url.scheme() == "https"
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Destination").field("url", &self.shown()).finish_non_exhaustive()
    }
}

/// How a message was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    Status {
        status: u16,
        retry_after: Option<Duration>,
    },
    /// Not at all, and why.
    Not(String),
}

impl HttpExecutor {
    /// Posts a message. Dropping the future closes the connection.
    pub async fn post(&self, to: &Destination, headers: &[(&'static str, String)], body: Vec<u8>) -> Answered {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let Ok(mut value) = HeaderValue::from_str(value) else {
                return Answered::Not(format!("the value of the header `{name}` cannot be sent"));
            };
            value.set_sensitive(true);
            map.insert(HeaderName::from_static(name), value);
        }
        if !to.allow_private
            && let Err(forbidden) = check_literal(&to.url)
        {
            return Answered::Not(format!("FORBIDDEN_TARGET: {forbidden}"));
        }
        let client = if to.allow_private { &self.open } else { &self.guarded };
        let request = client.request(Method::POST, to.url.clone()).headers(map).body(body).timeout(to.timeout);
        match request.send().await {
            Ok(response) => {
                let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
                let retry_after = retry_after.and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
                let retry_after = retry_after.map(|pause| pause.min(MAX_RETRY_AFTER));
                Answered::Status { status: response.status().as_u16(), retry_after }
            }
            Err(error) => Answered::Not(match Forbidden::within(&error) {
                Some(forbidden) => format!("FORBIDDEN_TARGET: {forbidden}"),
                None if error.is_timeout() => "no answer in time".to_owned(),
                None => innermost(&error),
            }),
        }
    }
}
