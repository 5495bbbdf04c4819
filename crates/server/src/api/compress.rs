//! Answers above 1 kB are compressed with gzip for clients that ask for it: whole ones of text. What is streamed, and what is
//! compressed already, leaves as it is.

use axum::body::{Body, HttpBody};
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, SET_COOKIE, VARY};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::BodyExt;
use std::io::Write;

const FROM_BYTES: u64 = 1024;
/// What takes longer is done on another thread.
const INLINE_BYTES: usize = 128 << 10;

/// Whether the client takes gzip.
pub fn is_asked(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").map_or(Ok(1.0), |weight| weight.trim().parse::<f32>());
        name.trim().eq_ignore_ascii_case("gzip") && weight.is_ok_and(|weight| weight > 0.0)
    })
}

/// The answer as the client wants it.
pub async fn encode(response: Response, asked: bool) -> Response {
    if !is_worthwhile(&response) {
        return response;
    }
    let (mut head, body) = response.into_parts();
    head.headers.append(VARY, HeaderValue::from_static("accept-encoding"));
    if !asked {
        return Response::from_parts(head, body);
    }
    // It is in memory as a whole: reading it waits for nothing.
    let Ok(plain) = body.collect().await.map(http_body_util::Collected::to_bytes) else {
        return super::Problem::internal().into_response();
    };
    let packed = if plain.len() > INLINE_BYTES {
        let plain = plain.clone();
        tokio::task::spawn_blocking(move || gzip(&plain)).await.ok().flatten()
    } else {
        gzip(&plain)
    };
    let Some(packed) = packed else { return Response::from_parts(head, Body::from(plain)) };
    head.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    head.headers.insert(CONTENT_LENGTH, HeaderValue::from(packed.len()));
    weaken(&mut head.headers);
    Response::from_parts(head, Body::from(packed))
}

fn is_worthwhile(response: &Response) -> bool {
    let headers = response.headers();
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    let is_text = essence.starts_with("text/") || essence.ends_with("json") || essence.ends_with("javascript");
    let is_large = response.body().size_hint().exact().is_some_and(|bytes| bytes > FROM_BYTES);
    is_text && is_large && !headers.contains_key(CONTENT_ENCODING) && !headers.contains_key(SET_COOKIE)
}

fn gzip(plain: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(plain.len() / 4), Compression::fast());
    encoder.write_all(plain).ok()?;
    encoder.finish().ok()
}

/// The same content in other bytes is not what a strong tag promises (RFC 9110, 8.8.1).
fn weaken(headers: &mut HeaderMap) {
    let strong = headers.get(ETAG).and_then(|tag| tag.to_str().ok()).filter(|tag| tag.starts_with('"'));
    let weak = strong.and_then(|tag| HeaderValue::from_str(&format!("W/{tag}")).ok());
    if let Some(weak) = weak {
        headers.insert(ETAG, weak);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn asks(value: &str) -> bool {
        is_asked(&HeaderMap::from_iter([(ACCEPT_ENCODING, value.parse().expect("a value"))]))
    }

    #[test]
    fn a_client_asks_for_gzip_by_name() {
        for yes in ["gzip", "GZIP", "deflate, gzip;q=0.5", "br;q=1.0, gzip; q=0.8, *;q=0.1"] {
            assert!(asks(yes), "{yes}");
        }
        for no in ["", "identity", "gzip;q=0", "gzip;q=x", "br", "x-gzip-2", "*"] {
            assert!(!asks(no), "{no}");
        }
        assert!(!is_asked(&HeaderMap::new()));
    }

    #[tokio::test]
    async fn large_text_is_packed_and_nothing_else() {
        let json = || "{\"a\": 1}".repeat(40_000);
        let answer = |kind: &'static str, body: String| ([(CONTENT_TYPE, kind), (ETAG, "\"1\"")], body).into_response();
        let packed = encode(answer("application/json", json()), true).await;
        assert_eq!(packed.headers()[CONTENT_ENCODING], "gzip");
        assert_eq!(packed.headers()[ETAG], "W/\"1\"");
        assert_eq!(packed.headers()[VARY], "accept-encoding");
        let bytes = packed.into_body().collect().await.expect("a body").to_bytes();
        assert!(bytes.len() < json().len() / 10);
        let mut plain = String::new();
        flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut plain).expect("gzip");
        assert_eq!(plain, json());

        let cookie = ([(CONTENT_TYPE, "application/json"), (SET_COOKIE, "a=b")], json()).into_response();
        for (plain, asked) in [
            (answer("application/json", json()), false),
            (answer("application/json", "x".repeat(1024)), true),
            (answer("application/zip", json()), true),
            (answer("application/octet-stream", json()), true),
            (cookie, true),
        ] {
            assert!(!encode(plain, asked).await.headers().contains_key(CONTENT_ENCODING));
        }
    }
}
