//! A `run: http` step: one request and the meaning of its answer.
//!
//! **Architecture invariant:** a request goes only to addresses that were checked. Our own `guard` resolves names,
//! hosts that are addresses are checked before each hop, this module and not the client follows redirects, and no
//! proxy is used.

mod address;
mod answer;
mod guard;
mod message;

pub use message::{Answered, Destination};

use crate::filled;
use crate::mask::Mask;
use crate::probe::fits;
use crate::verdict::Verdict;
use answer::{Answer, BODY_BYTES, names};
use countersign_kernel::lifecycle::FailureCategory;
use countersign_kernel::plan::{HttpWork, StatusClass};
use guard::{Forbidden, Guard, Lookup, check_literal, system_lookup};
use reqwest::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Client, Method, StatusCode, Url};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// For a step without its own timeout.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
const MAX_HOPS: usize = 5;
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Headers that say how a message is framed or whom it is for, and the one that is ours.
const RESERVED: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "idempotency-key",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A request with everything filled in, secrets included.
#[derive(Clone)]
pub struct HttpJob {
    pub method: String,
    pub url: String,
    pub headers: BTreeMap<String, String>,
    /// A JSON text. A JSON string under a content-type of another kind is sent as the text it is.
    pub body_json: Option<String>,
    pub success: Vec<StatusClass>,
    pub retry: Vec<StatusClass>,
    /// What is left of the step's own timeout.
    pub timeout: Option<Duration>,
    pub idempotency_key: String,
    /// Whether addresses that are not the public internet's may be reached.
    pub allow_private: bool,
    /// What is not to be shown of the answer.
    pub mask: Mask,
}

impl HttpJob {
    /// A step's work with its templates filled in, as JSON texts. The rest of the job is left empty.
    pub fn filled(work: &HttpWork, url: &str, headers: Option<&str>, body: Option<&str>) -> Result<Self, Verdict> {
        let url =
            serde_json::from_str(url).map_err(|_| Verdict::unusable("`url` is not a text once it is filled in"))?;
        let headers = match headers {
            Some(headers) => filled::texts(headers)
                .ok_or_else(|| Verdict::unusable("`headers` is not an object of texts once it is filled in"))?,
            None => BTreeMap::new(),
        };
        Ok(HttpJob {
            method: work.method.clone(),
            url,
            headers,
            body_json: body.map(str::to_owned),
            success: work.success.clone(),
            retry: work.retry.clone(),
            timeout: None,
            idempotency_key: String::new(),
            allow_private: false,
            mask: Mask::default(),
        })
    }
}

impl fmt::Debug for HttpJob {
    /// Headers and body may hold secrets: only the headers' names are shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&String> = self.headers.keys().collect();
        let mut shown = f.debug_struct("HttpJob");
        shown.field("method", &self.method).field("url", &self.url).field("headers", &names).finish_non_exhaustive()
    }
}

/// Sends the requests of steps. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct HttpExecutor {
    /// Reaches public addresses only.
    guarded: Client,
    /// Reaches whatever there is.
    open: Client,
}

/// One request on its way, which may be sent on to elsewhere.
struct Hop {
    method: Method,
    url: Url,
    headers: HeaderMap,
    body: Option<Vec<u8>>,
}

impl HttpExecutor {
    pub fn new() -> Result<Self, String> {
        Self::with_lookup(system_lookup())
    }

    fn with_lookup(lookup: Lookup) -> Result<Self, String> {
        install_crypto_provider();
        let builder = || {
            Client::builder()
                .user_agent(concat!("countersign/", env!("CARGO_PKG_VERSION")))
                .connect_timeout(CONNECT_TIMEOUT)
                .redirect(reqwest::redirect::Policy::none())
                // A proxy would connect in our place, to whatever it finds under the name.
                .no_proxy()
        };
        let built = |error: reqwest::Error| format!("no HTTP client can be made: {error}");
        let guarded = builder().dns_resolver(std::sync::Arc::new(Guard { lookup })).build().map_err(built)?;
        let open = builder().build().map_err(built)?;
        Ok(HttpExecutor { guarded, open })
    }

    /// Sends the request and reads the answer. Dropping the future closes the connection.
    pub async fn run(&self, job: &HttpJob) -> Verdict {
        let verdict = match self.answer(job).await {
            Ok(answer) => answer.judge(job),
            Err(verdict) => verdict,
        };
        verdict.masked(&job.mask)
    }

    /// Sends the request and gives the body of its answer as a JSON text, or why there is none.
    pub async fn probe(&self, job: &HttpJob) -> Result<String, String> {
        let value = match self.answer(job).await {
            Ok(answer) if names(&job.success, answer.status) => answer.value(),
            Ok(answer) => Err(answer.told(&job.mask)),
            Err(verdict) => Err(verdict.error().unwrap_or_default()),
        };
        let value = value.and_then(|value| fits(job.mask.json(&value).into_owned()));
        value.map_err(|why| job.mask.text(&why).into_owned())
    }

    async fn answer(&self, job: &HttpJob) -> Result<Answer, Verdict> {
        let hop = Hop::of(job).map_err(Verdict::unusable)?;
        let Some(limit) = job.timeout else { return self.follow(job, hop).await };
        let late = |_| Err(Verdict::dead("STEP_TIMEOUT: no answer in time", FailureCategory::Timeout).unknown());
        tokio::time::timeout(limit, self.follow(job, hop)).await.unwrap_or_else(late)
    }

    async fn follow(&self, job: &HttpJob, mut hop: Hop) -> Result<Answer, Verdict> {
        for _ in 0..=MAX_HOPS {
            let response = self.send(job, &hop).await?;
            // A status that the step names is an answer, also where it points elsewhere.
            let status = response.status();
            let named = names(&job.success, status.as_u16()) || names(&job.retry, status.as_u16());
            let target = if named { None } else { response.headers().get(LOCATION).cloned() };
            match target {
                Some(target) if status.is_redirection() => {
                    let nowhere = |why| Verdict::unusable(format!("{} leads nowhere: {why}", hop.shown()));
                    hop = hop.onward(status, &target).map_err(nowhere)?;
                }
                _ => return read(job, &hop, response).await,
            }
        }
        Err(Verdict::dead(
            format!("{} after {MAX_HOPS} redirects still leads elsewhere", hop.shown()),
            FailureCategory::External,
        ))
    }

    async fn send(&self, job: &HttpJob, hop: &Hop) -> Result<reqwest::Response, Verdict> {
        let client = if job.allow_private { &self.open } else { &self.guarded };
        if !job.allow_private {
            check_literal(&hop.url).map_err(|forbidden| Verdict::unusable(format!("FORBIDDEN_TARGET: {forbidden}")))?;
        }
        let mut request = client.request(hop.method.clone(), hop.url.clone()).headers(hop.headers.clone());
        if let Some(body) = &hop.body {
            request = request.body(body.clone());
        }
        if job.timeout.is_none() {
            request = request.timeout(ANSWER_TIMEOUT);
        }
        request.send().await.map_err(|error| unanswered(job, hop, &error))
    }
}

async fn read(job: &HttpJob, hop: &Hop, mut response: reqwest::Response) -> Result<Answer, Verdict> {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let (mut body, mut cut) = (Vec::new(), false);
    while !cut {
        match response.chunk().await {
            Ok(Some(chunk)) => {
                let room = BODY_BYTES - body.len();
                cut = chunk.len() > room;
                body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            }
            Ok(None) => break,
            Err(error) => return Err(unanswered(job, hop, &error)),
        }
    }
    Ok(Answer { asked: hop.shown(), status, headers, body, cut })
}

impl Hop {
    /// The request itself, or what in it cannot be sent.
    fn of(job: &HttpJob) -> Result<Self, String> {
        let method =
            Method::from_bytes(job.method.as_bytes()).ok().filter(|m| *m != Method::CONNECT && *m != Method::TRACE);
        let method = method.ok_or_else(|| format!("`{}` is no method for a step", job.method.escape_debug()))?;
        let mut headers = HeaderMap::new();
        for (name, value) in &job.headers {
            let shown = name.escape_debug();
            let name =
                HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("`{shown}` is no name of a header"))?;
            if RESERVED.contains(&name.as_str()) {
                return Err(format!("a step cannot set the header `{name}`"));
            }
            // The value may be a secret, so the message omits it.
            let mut value = HeaderValue::from_str(value)
                .map_err(|_| format!("the value of the header `{name}` holds control characters"))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let key = HeaderValue::from_str(&job.idempotency_key)
            .map_err(|_| "the idempotency key is no header value".to_owned())?;
        headers.insert(IDEMPOTENCY_KEY, key);
        let body = job.body_json.as_deref().map(|body| encoded(body, &mut headers)).transpose()?;
        Ok(Hop { method, url: parse(&job.url)?, headers, body })
    }

    /// Where a redirect leads, as browsers follow it. What was declared for one place is not shown to another.
    fn onward(&self, status: StatusCode, target: &HeaderValue) -> Result<Self, String> {
        let target = target.to_str().map_err(|_| "its Location is not text".to_owned())?;
        refuse_odd(target)?;
        let url = self.url.join(target).map_err(|error| format!("its Location: {error}"))?;
        let url = checked(url)?;
        if self.url.scheme() == "https" && url.scheme() == "http" {
            return Err("it would go on without encryption".to_owned());
        }
        let elsewhere = url.origin() != self.url.origin();
        let becomes_get = status == StatusCode::SEE_OTHER && self.method != Method::HEAD
            || matches!(status, StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND) && self.method == Method::POST;
        if elsewhere && self.body.is_some() && !becomes_get {
            return Err(format!("it would send the body to another place, {}", url.origin().ascii_serialization()));
        }
        let mut headers = self.headers.clone();
        if elsewhere {
            let kept = [ACCEPT, IDEMPOTENCY_KEY];
            headers =
                kept.into_iter().filter_map(|name| Some((name.clone(), self.headers.get(&name)?.clone()))).collect();
        }
        let (method, body) = if becomes_get { (Method::GET, None) } else { (self.method.clone(), self.body.clone()) };
        if body.is_none() {
            headers.remove(CONTENT_TYPE);
            headers.remove(CONTENT_LENGTH);
        }
        Ok(Hop { method, url, headers, body })
    }

    /// Without the query, which is no place for people to look at.
    fn shown(&self) -> String {
        let origin = self.url.origin().ascii_serialization();
        format!("{} {origin}{}", self.method, self.url.path())
    }
}

fn encoded(body: &str, headers: &mut HeaderMap) -> Result<Vec<u8>, String> {
    let declared = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let is_json = declared.is_none_or(|media_type| media_type.to_ascii_lowercase().contains("json"));
    if declared.is_none() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    match serde_json::from_str::<serde_json::Value>(body) {
        Ok(serde_json::Value::String(text)) if !is_json => Ok(text.into_bytes()),
        Ok(_) => Ok(body.as_bytes().to_vec()),
        Err(error) => Err(format!("`body` is not JSON once it is filled in: {error}")),
    }
}

fn parse(url: &str) -> Result<Url, String> {
    refuse_odd(url)?;
    checked(Url::parse(url).map_err(|error| format!("`url` is not an address: {error}"))?)
}

/// Parsers of addresses drop or repair these silently: they may hide another address.
fn refuse_odd(url: &str) -> Result<(), String> {
    let odd = |c: char| c.is_control() || c.is_whitespace() || c == '\\';
    if url.contains(odd) {
        Err("an address holds no white space, control characters or backslashes".to_owned())
    } else {
        Ok(())
    }
}

fn checked(url: Url) -> Result<Url, String> {
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err("the address begins neither with http:// nor with https://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a credential does not belong into an address: use a header".to_owned());
    }
    Ok(url)
}

/// No answer at all: a refusal of ours, or the network's.
fn unanswered(job: &HttpJob, hop: &Hop, error: &reqwest::Error) -> Verdict {
    if let Some(forbidden) = Forbidden::within(error) {
        return Verdict::unusable(format!("FORBIDDEN_TARGET: {forbidden}"));
    }
    let why = if error.is_timeout() { "no answer in time".to_owned() } else { innermost(error) };
    let told = format!("{} was not answered: {why}", hop.shown());
    let verdict = if job.retry.contains(&StatusClass::Network) {
        Verdict::retry(told, FailureCategory::External)
    } else {
        Verdict::dead(told, FailureCategory::External)
    };
    // Without a connection nothing was sent.
    if error.is_connect() { verdict } else { verdict.unknown() }
}

/// The innermost cause is what people understand; the address would show the query.
fn innermost(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// TLS needs a crypto provider per program. A program that has installed its own keeps it.
fn install_crypto_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Lost only to another thread that installed one first, which is just as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

#[cfg(test)]
mod tests;
