//! Sessions of browsers: the cookie, when it counts, and signing in and out.
//!
//! A browser sends its cookies with every request to this server, whichever page caused it. So a cookie counts only where the
//! browser says that the page was ours ([`Console::is_same_origin`]). That is asked where the caller is found
//! ([`super::auth`]), before any route and for every method.

use super::auth::{Caller, hash_token};
use super::body::Posted;
use super::openapi::Refused;
use super::passkeys::{self, Party};
use super::problem::shortened;
use super::query::NoQuery;
use super::{App, Problem, time};
use crate::config::ConsoleSection;
use axum::Json;
use axum::extract::State;
use axum::http::header::{COOKIE, ORIGIN, SET_COOKIE, USER_AGENT};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use countersign_client::wire;
use countersign_engine::sessions::{Lifetimes, Session};
use countersign_kernel::Digest;
use countersign_kernel::refusal::Code;
use countersign_kernel::registry::credential_id;
use countersign_kernel::text::is_blank;

pub const COOKIE_NAME: &str = "countersign_session";
/// What is kept of how a browser calls itself, in characters.
const MOST_OF_USER_AGENT: usize = 300;
const FETCH_SITE: &str = "Sec-Fetch-Site";

/// How this server is seen by browsers.
#[derive(Clone, Debug)]
pub struct Console {
    origin: Option<String>,
    rp_id: Option<String>,
    lifetimes: Lifetimes,
    /// Browsers reach it by HTTPS.
    https: bool,
    /// By HTTPS, or from this machine alone: elsewhere a cookie could be read on its way.
    private: bool,
    tls: bool,
}

impl Console {
    /// `on_loopback`: where this server listens. `tls`: it speaks TLS itself.
    pub fn new(section: &ConsoleSection, on_loopback: bool, tls: bool) -> Console {
        let https = tls || section.is_https();
        let (origin, rp_id, lifetimes) = (section.origin.clone(), section.rp_id(), section.lifetimes());
        Console { origin, rp_id, lifetimes, https, private: https || on_loopback, tls }
    }

    /// This server itself, and not a proxy in front of it.
    pub fn speaks_tls(&self) -> bool {
        self.tls
    }

    /// Where passkeys belong, once the configuration says it.
    pub fn party(&self) -> Result<Party<'_>, Problem> {
        match (&self.origin, &self.rp_id) {
            (Some(origin), Some(rp_id)) => Ok(Party { origin, rp_id }),
            _ => Err(Problem::invalid_request(
                "passkeys need `console.origin` with a name of a host in the server's configuration",
            )),
        }
    }

    /// Whether the browser says that a page of ours asks.
    fn is_same_origin(&self, headers: &HeaderMap) -> bool {
        only(headers, ORIGIN.as_str()).is_some_and(|origin| self.origin.as_deref() == Some(origin))
            || only(headers, FETCH_SITE) == Some("same-origin")
    }

    /// Signing in needs no cookie, but a foreign page must not sign a browser in as somebody else.
    fn require_own_page(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let by_browser = headers.contains_key(ORIGIN) || headers.contains_key(FETCH_SITE);
        if by_browser && !self.is_same_origin(headers) {
            let detail = "the request comes from a page of another origin than `console.origin`";
            return Err(Problem::new(Code::InvalidCredential, detail).at("Origin"));
        }
        Ok(())
    }

    fn require_private(&self) -> Result<(), Problem> {
        if self.private {
            return Ok(());
        }
        let detail = "this server is reached by plain HTTP from other machines, so nobody signs in here: configure [tls], or \
                      a proxy that has TLS and `console.origin` with https";
        Err(Problem::new(Code::InvalidCredential, detail))
    }

    /// The hash of the session's id in the request's cookie, where the cookie counts.
    pub fn session_hash(&self, headers: &HeaderMap) -> Option<Digest> {
        if !self.private || !self.is_same_origin(headers) {
            return None;
        }
        let pairs = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let pairs = pairs.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let mut ours = pairs.filter(|(name, _)| *name == COOKIE_NAME).map(|(_, id)| id);
        // Two of them: another host of the domain has set one, and nobody knows which.
        match (ours.next(), ours.next()) {
            (Some(id), None) => Some(hash_token(id)),
            _ => None,
        }
    }

    pub fn lifetimes(&self) -> Lifetimes {
        self.lifetimes
    }

    fn cookie(&self, id: &str, more: &str) -> String {
        let secure = if self.https { "; Secure" } else { "" };
        format!("{COOKIE_NAME}={id}; Path=/; HttpOnly; SameSite=Strict{secure}{more}")
    }
}

/// The value of a header that is there once.
fn only<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}

/// The request's headers, once it is clear that signing in is possible and a foreign page does not ask for it.
pub struct Visitor(HeaderMap);

impl axum::extract::FromRequestParts<App> for Visitor {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut axum::http::request::Parts, app: &App) -> Result<Self, Problem> {
        app.console.require_private()?;
        app.console.require_own_page(&parts.headers)?;
        Ok(Visitor(parts.headers.clone()))
    }
}

/// Sign in: begin a session for the actor behind a token, or behind a passkey. The cookie that is set is accepted only with `Origin` equal to
/// `console.origin` or with `Sec-Fetch-Site: same-origin`. Needs no credential besides.
#[utoipa::path(post, path = "/v1/session", tag = "session", request_body = wire::SignIn, security(()),
    responses((status = 200, body = wire::SignedIn), Refused))]
pub async fn sign_in(
    State(app): State<App>,
    visitor: Visitor,
    posted: Posted<wire::SignIn>,
) -> Result<Response, Problem> {
    let (actor_ref, credential_id) = match (posted.body.token, posted.body.assertion) {
        (Some(token), None) => {
            let token_hash = hash_token(&token);
            (app.engine()?.authenticate(&token_hash).await?, credential_id(&token_hash))
        }
        (None, Some(assertion)) => passkeys::sign_in(&app, &assertion).await?,
        _ => return Err(Problem::invalid_request("either `token` or `assertion` is expected").at("token")),
    };
    begin(&app, &visitor, &actor_ref, &credential_id).await
}

/// A new id with every sign-in: one that somebody planted before is worth nothing.
async fn begin(app: &App, visitor: &Visitor, actor_ref: &str, credential_id: &str) -> Result<Response, Problem> {
    let engine = app.engine()?;
    if let Some(earlier) = app.console.session_hash(&visitor.0) {
        engine.end_session(&earlier).await?;
    }
    let id = new_id()?;
    let user_agent = visitor.0.get(USER_AGENT).and_then(|value| value.to_str().ok());
    let user_agent = user_agent.map(|text| shortened(text, MOST_OF_USER_AGENT)).filter(|text| !is_blank(text));
    let session =
        engine.begin_session(hash_token(&id), actor_ref, credential_id, user_agent, app.console.lifetimes).await?;
    let display_name = engine.registry().actor(actor_ref).and_then(|actor| actor.display_name.clone());
    let Session { actor_ref, expires_at, .. } = session;
    let body = wire::SignedIn { actor_ref, display_name, expires_at: time::format(expires_at) };
    Ok(([(SET_COOKIE, app.console.cookie(&id, ""))], Json(body)).into_response())
}

/// Sign out: end the session of this request's cookie. Needs no scope.
#[utoipa::path(delete, path = "/v1/session", tag = "session", responses((status = 204, description = "Signed out"), Refused))]
pub async fn sign_out(State(app): State<App>, caller: Caller, _: NoQuery) -> Result<Response, Problem> {
    let Some(session) = &caller.session else {
        return Err(Problem::new(Code::NotKnown, "the request has no session to end"));
    };
    app.engine()?.end_session(&session.session_hash).await?;
    Ok((StatusCode::NO_CONTENT, [(SET_COOKIE, app.console.cookie("", "; Max-Age=0"))]).into_response())
}

fn new_id() -> Result<String, Problem> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(|error| {
        tracing::error!(%error, "no randomness");
        Problem::new(Code::RecordingFailure, "the system gives no randomness; nothing was written")
    })?;
    Ok(Digest(secret).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderName;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_bytes(name.as_bytes()).expect("a name"), value.parse().expect("a value"))
        };
        pairs.iter().map(pair).collect()
    }

    fn console(origin: Option<&str>, on_loopback: bool, tls: bool) -> Console {
        let section = ConsoleSection { origin: origin.map(str::to_owned), ..ConsoleSection::default() };
        Console::new(&section, on_loopback, tls)
    }

    #[test]
    fn a_cookie_counts_only_from_a_page_of_ours() {
        const ID: (&str, &str) = ("cookie", "a=b; countersign_session=1; c=d");
        let console = console(Some("https://c.example"), false, false);
        let counts = |more: &[(&'static str, &str)]| console.session_hash(&headers(&[&[ID], more].concat())).is_some();
        assert!(counts(&[("origin", "https://c.example")]));
        assert!(counts(&[("sec-fetch-site", "same-origin")]));
        for more in [
            &[][..],
            &[("origin", "https://c.example.evil")],
            &[("origin", "http://c.example")],
            &[("origin", "https://c.example:8443")],
            &[("origin", "null")],
            &[("origin", "https://c.example"), ("origin", "https://c.example")],
            &[("sec-fetch-site", "same-site")],
            &[("sec-fetch-site", "cross-site")],
            &[("sec-fetch-site", "none")],
            &[("origin", "https://c.example"), ("cookie", "countersign_session=2")],
        ] {
            assert!(!counts(more), "{more:?}");
        }
    }

    #[test]
    fn plain_http_from_other_machines_has_no_sessions() {
        let request = headers(&[("cookie", "countersign_session=1"), ("sec-fetch-site", "same-origin")]);
        for (origin, on_loopback, tls, private, secure) in [
            (None, true, false, true, false),
            (Some("http://localhost:7433"), true, false, true, false),
            (Some("https://c.example"), true, false, true, true),
            (Some("https://c.example"), false, false, true, true),
            (None, false, true, true, true),
            (None, false, false, false, false),
        ] {
            let console = console(origin, on_loopback, tls);
            assert_eq!(console.session_hash(&request).is_some(), private, "{origin:?} {on_loopback} {tls}");
            assert_eq!(console.require_private().is_ok(), private);
            assert_eq!(console.cookie("1", "").contains("; Secure"), secure);
        }
    }
}
