//! What a POST brings: its body, read up to the limit, and its `Idempotency-Key`. Where the request is signed, the
//! body is the one that was signed.

use super::App;
use super::json;
use super::problem::Problem;
use super::signed::VerifiedStatement;
use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use countersign_client::wire::Empty;
use countersign_engine::IdempotencyKey;
use countersign_kernel::refusal::{Code, require_text};
use countersign_ledger::sha256;
use http_body_util::BodyExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;

const IDEMPOTENCY_KEY: &str = "Idempotency-Key";
const MAX_KEY_CHARS: usize = 255;
/// A body that has not arrived by then is given up.
const ARRIVAL: Duration = Duration::from_secs(60);
/// How much of a refused body is still taken in, so that its sender gets to read the refusal.
const DRAIN_BYTES: usize = 64 << 20;
const DRAIN: Duration = Duration::from_secs(10);

/// The request beside what it says: what the engine is told with every command.
#[derive(Default)]
pub struct Sent {
    pub idempotency: Option<IdempotencyKey>,
    /// The body's bytes, where the request is signed.
    pub body: Vec<u8>,
}

/// A JSON body of this type.
pub struct Posted<T> {
    pub body: T,
    pub sent: Sent,
    /// The body as it was written.
    pub bytes: Vec<u8>,
}

/// A body that says nothing: empty, or `{}`.
pub struct PostedNothing {
    pub sent: Sent,
}

/// The bytes of a body, whatever they are.
pub struct PostedBytes {
    pub bytes: Vec<u8>,
    pub sent: Sent,
}

impl<T: DeserializeOwned + Serialize> FromRequest<App> for Posted<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let Received { bytes, sent, headers } = receive(request, app).await?;
        require_json(&headers)?;
        // Where nothing has to be said, saying nothing is enough.
        let body = if bytes.is_empty() {
            let nothing = serde_json::Value::Object(serde_json::Map::new());
            json::typed(&nothing)
                .map_err(|_| Problem::invalid_request("the body is empty; a JSON object is expected"))?
        } else {
            json::typed(&json::parse(&bytes)?)?
        };
        Ok(Posted { body, sent, bytes })
    }
}

impl FromRequest<App> for PostedNothing {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let Received { bytes, sent, headers } = receive(request, app).await?;
        if !bytes.is_empty() {
            require_json(&headers)?;
            json::typed::<Empty>(&json::parse(&bytes)?)?;
        }
        Ok(PostedNothing { sent })
    }
}

impl FromRequest<App> for PostedBytes {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let Received { bytes, sent, .. } = receive(request, app).await?;
        Ok(PostedBytes { bytes, sent })
    }
}

/// The names in the request's address, percent-decoded.
pub struct Address(Vec<(String, String)>);

impl Address {
    /// The text in the place of `{name}`. A route without that place has no such text.
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value.as_str())
    }
}

impl FromRequestParts<App> for Address {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let params = RawPathParams::from_request_parts(parts, app)
            .await
            .map_err(|_| Problem::invalid_request("the address holds bytes that are not UTF-8"))?;
        let mut names = Vec::new();
        for (name, value) in &params {
            if value.contains('\0') {
                return Err(Problem::invalid_request("the address holds the character U+0000").at(name));
            }
            require_text(name, value)?;
            names.push((name.to_owned(), value.to_owned()));
        }
        Ok(Address(names))
    }
}

struct Received {
    bytes: Vec<u8>,
    sent: Sent,
    headers: HeaderMap,
}

async fn receive(request: Request, app: &App) -> Result<Received, Problem> {
    let (Parts { method, uri, headers, extensions, .. }, body) = request.into_parts();
    if let Some(query) = uri.query().filter(|query| !query.is_empty()) {
        let name = query.split(['=', '&']).next().unwrap_or_default();
        return Err(Problem::invalid_request("this action has no query parameters").at(name));
    }
    let key = idempotency_key(&headers)?;
    if headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        return Err(Problem::invalid_request("send the body as it is, without Content-Encoding").at("Content-Encoding"));
    }
    let bytes = read(body, &headers, app.body_bytes).await?;
    let sent = match extensions.get::<Arc<VerifiedStatement>>() {
        Some(statement) => {
            statement.check_body(&bytes)?;
            Sent { idempotency: Some(statement.idempotency(key.as_deref())?), body: bytes.clone() }
        }
        None => {
            let digest = || sha256(&[method.as_str().as_bytes(), b"\n", uri.path().as_bytes(), b"\n", &bytes]);
            let idempotency = key.map(|key| IdempotencyKey { key, request_digest: digest() });
            Sent { idempotency, body: vec![] }
        }
    };
    Ok(Received { bytes, sent, headers })
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let visible =
        |text: &&str| (1..=MAX_KEY_CHARS).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    match (value.to_str().ok().filter(visible), values.next()) {
        (Some(key), None) => Ok(Some(key.to_owned())),
        _ => {
            let detail =
                format!("one key of 1 to {MAX_KEY_CHARS} visible ASCII characters is expected, without blanks");
            Err(Problem::invalid_request(detail).at(IDEMPOTENCY_KEY))
        }
    }
}

fn require_json(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(value) = headers.get(CONTENT_TYPE) else { return Ok(()) };
    let essence = value.to_str().ok().and_then(|value| value.split(';').next()).map(str::trim);
    if essence.is_some_and(|essence| essence.eq_ignore_ascii_case("application/json")) {
        return Ok(());
    }
    Err(Problem::invalid_request("the body is expected as `Content-Type: application/json`").at("Content-Type"))
}

async fn read(mut body: Body, headers: &HeaderMap, limit: usize) -> Result<Vec<u8>, Problem> {
    let too_large = || {
        let detail = format!(
            "the body is larger than {limit} bytes; `limits.body_bytes` in the server's configuration says how much is read"
        );
        Problem::new(Code::TooLarge, detail)
    };
    let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > limit) {
        // Who asks first has not begun to send.
        if !headers.contains_key(EXPECT) {
            drain(body).await;
        }
        return Err(too_large());
    }
    // What is announced may never come: room is made for what arrives.
    let mut bytes = Vec::new();
    let arrival = async {
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| Problem::invalid_request("the body broke off"))?;
            if let Ok(data) = frame.into_data() {
                if bytes.len() + data.len() > limit {
                    return Err(too_large());
                }
                bytes.extend_from_slice(&data);
            }
        }
        Ok(())
    };
    match tokio::time::timeout(ARRIVAL, arrival).await {
        Ok(Ok(())) => Ok(bytes),
        Ok(Err(problem)) => {
            drain(body).await;
            Err(problem)
        }
        Err(_) => {
            Err(Problem::invalid_request("the body did not arrive in time").with_status(StatusCode::REQUEST_TIMEOUT))
        }
    }
}

/// Takes in the rest and forgets it. A connection that is closed on a sender in full flow is reset, and
/// the refusal lost with it.
async fn drain(mut body: Body) {
    let rest = async {
        let mut taken = 0;
        while taken < DRAIN_BYTES {
            match body.frame().await {
                Some(Ok(frame)) => taken += frame.data_ref().map_or(0, |data| data.len()),
                Some(Err(_)) | None => break,
            }
        }
    };
    // Where it takes too long, the sender has only itself to blame.
    let _ = tokio::time::timeout(DRAIN, rest).await;
}
