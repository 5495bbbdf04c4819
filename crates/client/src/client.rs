//! The connection to one server: address, credential, and the one path that every request takes.

use crate::error::Error;
use crate::sign::Signing;
use crate::wire::Problem;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::Duration;

/// Where `countersign serve` listens when nothing else is said.
pub const DEFAULT_SERVER: &str = "http://127.0.0.1:7433";

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
const STATEMENT: &str = "Countersign-Statement";
const SIGNATURE: &str = "Countersign-Signature";
/// A whole log may take a while.
const FOLLOWED_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// One server, as one actor. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    authorization: Option<HeaderValue>,
    idempotency_key: Option<HeaderValue>,
    signing: Option<Signing>,
}

/// What the server answered: the typed body, and the JSON exactly as it came, which may hold fields
/// that this version does not know.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer<T> {
    /// 200, or 201 where something was made.
    pub status: u16,
    pub body: T,
    pub json: Value,
}

/// How a definition document is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Yaml,
    Json,
}

/// The body of a request.
pub(crate) enum Body<'a> {
    None,
    Json(Vec<u8>),
    Document(Format, &'a [u8]),
}

impl Client {
    /// A client without a credential. `server` is an address like `http://127.0.0.1:7433`.
    pub fn new(server: &str) -> Result<Self, Error> {
        let base = parse_base(server)?;
        install_crypto_provider();
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("countersign/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(ANSWER_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none());
        if is_loopback(&base) {
            builder = builder.no_proxy();
        }
        // Without TLS and without redirects nothing needs the system's certificates, which take long to read.
        if base.scheme() == "http" {
            builder = builder.tls_certs_only([]);
        }
        let http = builder.build().map_err(|error| Error::Unusable(format!("no HTTP client can be made: {error}")))?;
        Ok(Client { http, base, authorization: None, idempotency_key: None, signing: None })
    }

    /// Acts with this bearer token from now on.
    pub fn with_token(mut self, token: &str) -> Result<Self, Error> {
        let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim()))
            .map_err(|_| Error::Unusable("the token holds characters that no token has: copy it again".into()))?;
        value.set_sensitive(true);
        self.authorization = Some(value);
        Ok(self)
    }

    /// Sends this `Idempotency-Key` with every POST of this client: the same key and body returns the
    /// first accepted answer, the same key with another body is refused with `conflict`.
    pub fn with_idempotency_key(mut self, key: &str) -> Result<Self, Error> {
        let value = HeaderValue::from_str(key)
            .map_err(|_| Error::Unusable("an idempotency key may hold visible ASCII characters only".into()))?;
        self.idempotency_key = Some(value);
        Ok(self)
    }

    /// For a caller that repeats a request on purpose.
    pub(crate) fn without_idempotency_key(mut self) -> Self {
        self.idempotency_key = None;
        self
    }

    /// Signs every request that changes something. With a key no token is needed for those.
    pub fn with_signing(mut self, signing: Signing) -> Self {
        self.signing = Some(signing);
        self
    }

    /// What the signatures of this client mean, where it signs.
    pub fn with_meaning(mut self, meaning: &str) -> Result<Self, Error> {
        match &mut self.signing {
            Some(signing) => signing.meaning = Some(meaning.to_owned()),
            None => {
                return Err(Error::Unusable(
                    "a meaning belongs to a signature, and there is no key to sign with".into(),
                ));
            }
        }
        Ok(self)
    }

    /// The server's address.
    pub fn server(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// Whether the server is on this machine.
    pub fn is_loopback(&self) -> bool {
        is_loopback(&self.base)
    }

    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &impl Serialize,
    ) -> Result<Answer<T>, Error> {
        let request = self.http.get(self.address(path)?).query(query);
        self.send(Method::GET, path, request, Body::None).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(&self, path: &[&str], body: Body<'_>) -> Result<Answer<T>, Error> {
        let request = self.http.post(self.address(path)?);
        self.send(Method::POST, path, request, body).await
    }

    pub(crate) async fn put<T: DeserializeOwned>(&self, path: &[&str], body: Body<'_>) -> Result<Answer<T>, Error> {
        let request = self.http.put(self.address(path)?);
        self.send(Method::PUT, path, request, body).await
    }

    pub(crate) async fn delete<T: DeserializeOwned>(&self, path: &[&str]) -> Result<Answer<T>, Error> {
        let request = self.http.delete(self.address(path)?);
        self.send(Method::DELETE, path, request, Body::None).await
    }

    /// The same where the server was asked to wait that long before it answers.
    pub(crate) async fn post_waiting<T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: Body<'_>,
        wait: Duration,
    ) -> Result<Answer<T>, Error> {
        let request = self.http.post(self.address(path)?).timeout(ANSWER_TIMEOUT.saturating_add(wait));
        self.send(Method::POST, path, request, body).await
    }

    pub(crate) async fn post_query<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &impl Serialize,
        body: Body<'_>,
    ) -> Result<Answer<T>, Error> {
        let request = self.http.post(self.address(path)?).query(query);
        self.send(Method::POST, path, request, body).await
    }

    /// A text that is not JSON.
    pub(crate) async fn get_text(&self, path: &[&str]) -> Result<String, Error> {
        let request = self.prepared(Method::GET, path, self.http.get(self.address(path)?), Body::None)?;
        let response = request.send().await.map_err(|source| self.unanswered(source))?;
        let status = response.status().as_u16();
        let bytes = response.bytes().await.map_err(|source| self.unanswered(source))?;
        if (200..300).contains(&status) {
            return Ok(String::from_utf8_lossy(&bytes).into_owned());
        }
        self.read::<Value>(status, &bytes).map(|answer| answer.json.to_string())
    }

    /// A file, passed on piece by piece as it arrives: `take` gets each piece and the total size.
    pub(crate) async fn get_file(
        &self,
        path: &[&str],
        query: &impl Serialize,
        mut take: impl FnMut(&[u8], Option<u64>) -> std::io::Result<()>,
    ) -> Result<reqwest::header::HeaderMap, Error> {
        let request = self.http.get(self.address(path)?).query(query).timeout(FOLLOWED_TIMEOUT);
        let request = self.prepared(Method::GET, path, request, Body::None)?;
        let mut response = request.send().await.map_err(|source| self.unanswered(source))?;
        let (status, headers, length) =
            (response.status().as_u16(), response.headers().clone(), response.content_length());
        if !(200..300).contains(&status) {
            let bytes = response.bytes().await.map_err(|source| self.unanswered(source))?;
            return self.read::<Value>(status, &bytes).map(|_| headers);
        }
        let mut taken = 0;
        while let Some(chunk) = response.chunk().await.map_err(|source| self.unanswered(source))? {
            take(&chunk, length).map_err(|error| Error::Unusable(format!("the file cannot be written: {error}")))?;
            taken += chunk.len() as u64;
        }
        match length {
            Some(length) if taken != length => {
                Err(Error::Unusable(format!("the file broke off: {taken} bytes of {length} came")))
            }
            _ => Ok(headers),
        }
    }

    /// A stream of events, once it has begun. There is no limit to how long it takes.
    pub(crate) async fn open_stream(
        &self,
        path: &[&str],
        query: &impl Serialize,
        last_event_id: Option<&str>,
    ) -> Result<reqwest::Response, Error> {
        let mut request = self.http.get(self.address(path)?).query(query).timeout(FOLLOWED_TIMEOUT);
        if let Some(id) = last_event_id {
            request = request.header(LAST_EVENT_ID, id);
        }
        let request = self.prepared(Method::GET, path, request, Body::None)?.header(ACCEPT, "text/event-stream");
        let response = request.send().await.map_err(|source| self.unanswered(source))?;
        let status = response.status().as_u16();
        if (200..300).contains(&status) {
            return Ok(response);
        }
        let bytes = response.bytes().await.map_err(|source| self.unanswered(source))?;
        let unexpected = Error::Unexpected { url: self.server().to_owned(), status, detail: excerpt(&bytes) };
        Err(self.read::<Value>(status, &bytes).err().unwrap_or(unexpected))
    }

    /// A request whose answer comes in lines: progress, then the answer itself. There is no limit to how long it takes.
    pub(crate) async fn post_followed<T: DeserializeOwned, P: DeserializeOwned>(
        &self,
        path: &[&str],
        body: Body<'_>,
        mut progress: impl FnMut(P),
    ) -> Result<Answer<T>, Error> {
        let request = self.prepared(Method::POST, path, self.http.post(self.address(path)?), body)?;
        let request = request.header(ACCEPT, "application/x-ndjson").timeout(FOLLOWED_TIMEOUT);
        let mut response = request.send().await.map_err(|source| self.unanswered(source))?;
        let status = response.status().as_u16();
        let mut rest: Vec<u8> = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|source| self.unanswered(source))? {
            rest.extend_from_slice(&chunk);
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                match serde_json::from_slice(&rest[..end]) {
                    Ok(line) => progress(line),
                    // Not a line of progress: the answer. Nothing comes after it.
                    Err(_) => break,
                }
                rest.drain(..=end);
            }
        }
        self.read_followed(status, &rest)
    }

    /// An answer that was begun has status 200; a refusal may still be its last line.
    fn read_followed<T: DeserializeOwned>(&self, status: u16, bytes: &[u8]) -> Result<Answer<T>, Error> {
        match serde_json::from_slice::<Problem>(bytes) {
            Ok(problem) => Err(Error::Refused(Box::new(problem))),
            Err(_) => self.read(status, bytes),
        }
    }

    /// A request with everything that belongs to it: credential, key, signature.
    fn prepared(
        &self,
        method: Method,
        path: &[&str],
        mut request: reqwest::RequestBuilder,
        body: Body<'_>,
    ) -> Result<reqwest::RequestBuilder, Error> {
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        if let (Some(key), true) = (&self.idempotency_key, [Method::POST, Method::DELETE].contains(&method)) {
            request = request.header(IDEMPOTENCY_KEY, key.clone());
        }
        let (media_type, bytes) = match body {
            Body::None => (None, vec![]),
            Body::Json(bytes) => (Some("application/json"), bytes),
            Body::Document(format, bytes) => (Some(format.media_type()), bytes.to_vec()),
        };
        if let Some(signing) = &self.signing {
            let address = self.address(path)?;
            // What the server sees behind a proxy that serves it under a prefix.
            let prefix = self.base.path().trim_end_matches('/');
            let seen = address.path().strip_prefix(prefix).unwrap_or(address.path());
            let nonce = self.idempotency_key.as_ref().and_then(|key| key.to_str().ok());
            if let Some(headers) = signing.sign(method.as_str(), path, seen, &bytes, nonce)? {
                request = request.header(STATEMENT, headers.statement).header(SIGNATURE, headers.signature);
            }
        }
        Ok(match media_type {
            Some(media_type) => request.header(CONTENT_TYPE, media_type).body(bytes),
            None => request,
        })
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        request: reqwest::RequestBuilder,
        body: Body<'_>,
    ) -> Result<Answer<T>, Error> {
        let request = self.prepared(method, path, request, body)?;
        let response = request.send().await.map_err(|source| self.unanswered(source))?;
        let status = response.status().as_u16();
        let bytes = response.bytes().await.map_err(|source| self.unanswered(source))?;
        self.read(status, &bytes)
    }

    /// Makes an answer, a refusal or a complaint out of what came back.
    fn read<T: DeserializeOwned>(&self, status: u16, bytes: &[u8]) -> Result<Answer<T>, Error> {
        let unexpected = |detail: String| Error::Unexpected { url: self.server().to_owned(), status, detail };
        if !(200..300).contains(&status) {
            return Err(match serde_json::from_slice::<Problem>(bytes) {
                Ok(problem) => Error::Refused(Box::new(problem)),
                Err(_) => unexpected(excerpt(bytes)),
            });
        }
        let not_ours = |error: serde_json::Error| {
            unexpected(format!(
                "{error}; is this a Countersign server, and of this version? It sent: {}",
                excerpt(bytes)
            ))
        };
        let json: Value = serde_json::from_slice(bytes).map_err(not_ours)?;
        let body = T::deserialize(&json).map_err(not_ours)?;
        Ok(Answer { status, body, json })
    }

    fn unanswered(&self, source: reqwest::Error) -> Error {
        // Only a failure to connect proves that nothing was sent.
        let url = self.server().to_owned();
        if source.is_builder() {
            Error::Unusable(format!("the request to {url} cannot be composed: {source}"))
        } else if source.is_connect() {
            Error::Unreachable { url, source: source.without_url() }
        } else {
            Error::NoAnswer { url, source: source.without_url() }
        }
    }

    /// The address of a route. Every segment is one name: `/` in it is escaped.
    fn address(&self, path: &[&str]) -> Result<Url, Error> {
        if let Some(unusable) = path.iter().find(|segment| matches!(**segment, "" | "." | "..")) {
            return Err(Error::Unusable(format!("`{unusable}` is not a name or an id")));
        }
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        Ok(url)
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("server", &self.server()).finish_non_exhaustive()
    }
}

impl Format {
    const fn media_type(self) -> &'static str {
        match self {
            Format::Yaml => "application/yaml",
            Format::Json => "application/json",
        }
    }
}

impl Body<'_> {
    pub(crate) fn json(value: &impl Serialize) -> Result<Self, Error> {
        serde_json::to_vec(value)
            .map(Body::Json)
            .map_err(|error| Error::Unusable(format!("the request cannot be written as JSON: {error}")))
    }
}

fn parse_base(server: &str) -> Result<Url, Error> {
    let unusable = |why: &str| {
        Error::Unusable(format!("`{server}` is not a server's address ({why}): write it like {DEFAULT_SERVER}"))
    };
    let url = Url::parse(server.trim()).map_err(|error| unusable(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(unusable("it does not begin with http:// or https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(unusable("a credential does not belong into it"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(unusable("it goes on after the path"));
    }
    Ok(url)
}

/// Traffic to this machine never takes a proxy.
fn is_loopback(url: &Url) -> bool {
    match url.host_str() {
        Some("localhost" | "[::1]") => true,
        Some(host) => host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback()),
        None => false,
    }
}

/// TLS needs a crypto provider per program; without one `reqwest` would panic. A program that has
/// installed its own keeps it.
fn install_crypto_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Lost only to another thread that installed one first, which is just as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

fn excerpt(bytes: &[u8]) -> String {
    const LONGEST: usize = 200;
    let text = String::from_utf8_lossy(bytes);
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None if line.is_empty() => "(nothing)".into(),
        None => line,
    }
}

#[cfg(test)]
mod tests;
