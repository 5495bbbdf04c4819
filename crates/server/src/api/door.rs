//! What every request has to bring before anything else is looked at: one `Host`, and for `/metrics` the token, where the
//! configuration asks for one.

use super::Problem;
use crate::config::Secret;
use axum::extract::Request;
use axum::http::Version;
use axum::http::header::{AUTHORIZATION, HOST};
use countersign_kernel::refusal::Code;
use countersign_ledger::sha256;

const METRICS: &str = "/metrics";

/// `Ok` where the request may go on.
pub fn check(request: &Request, metrics_token: Option<&Secret>) -> Result<(), Problem> {
    check_host(request)?;
    match metrics_token {
        Some(token) if request.uri().path() == METRICS => check_token(request, token),
        _ => Ok(()),
    }
}

/// RFC 9112, 3.2: one Host in every request of HTTP/1.1. Two of them let a proxy and this server disagree.
fn check_host(request: &Request) -> Result<(), Problem> {
    let refuse = |detail: &str| Err(Problem::invalid_request(detail).at("Host"));
    match request.headers().get_all(HOST).iter().count() {
        1 => Ok(()),
        0 if request.version() < Version::HTTP_11 => Ok(()),
        0 => refuse("the request has no Host header"),
        _ => refuse("the request has more than one Host header"),
    }
}

fn check_token(request: &Request, token: &Secret) -> Result<(), Problem> {
    let mut given = request.headers().get_all(AUTHORIZATION).iter();
    let bearer = match (given.next(), given.next()) {
        (Some(one), None) => one.to_str().ok().and_then(|value| value.split_once(' ')),
        _ => None,
    };
    let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("Bearer")).map(|(_, token)| token.trim());
    if bearer.is_some_and(|bearer| same(bearer.as_bytes(), token.reveal())) {
        return Ok(());
    }
    Err(Problem::new(Code::InvalidCredential, "metrics need `Authorization: Bearer TOKEN` with the configured token"))
}

/// Compares digests, byte for byte to the end: the time it takes tells nothing about where they differ.
fn same(given: &[u8], expected: &[u8]) -> bool {
    let (given, expected) = (sha256(&[given]), sha256(&[expected]));
    given.0.iter().zip(&expected.0).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn request(path: &str, headers: &[(&str, &str)]) -> Request {
        let builder = Request::builder().uri(path);
        headers
            .iter()
            .fold(builder, |builder, (name, value)| builder.header(*name, *value))
            .body(Body::empty())
            .expect("a request")
    }

    #[test]
    fn a_request_has_one_host() {
        assert!(check(&request("/healthz", &[("host", "a")]), None).is_ok());
        assert!(check(&request("/healthz", &[]), None).is_err());
        assert!(check(&request("/healthz", &[("host", "a"), ("host", "a")]), None).is_err());
        let mut old = request("/healthz", &[]);
        *old.version_mut() = Version::HTTP_10;
        assert!(check(&old, None).is_ok());
    }

    #[test]
    fn metrics_take_their_token_and_nothing_else() {
        let token = Secret::new("scrape-me");
        let ask = |path: &str, given: &[&str]| {
            let headers: Vec<_> =
                [("host", "a")].into_iter().chain(given.iter().map(|g| ("authorization", *g))).collect();
            check(&request(path, &headers), Some(&token)).is_ok()
        };
        assert!(ask("/metrics", &["Bearer scrape-me"]));
        assert!(ask("/metrics", &["bearer scrape-me"]));
        for given in [&[][..], &["scrape-me"], &["Bearer scrape-m"], &["Bearer scrape-me", "Bearer scrape-me"]] {
            assert!(!ask("/metrics", given), "{given:?}");
        }
        assert!(ask("/healthz", &[]));
        assert!(check(&request("/metrics", &[("host", "a")]), None).is_ok(), "none is configured");
    }
}
