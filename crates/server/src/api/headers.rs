//! What every answer tells a browser: run nothing that this server did not send, show it in no frame, guess no content type,
//! and tell no other site where the reader came from.

use axum::http::header::{
    CONTENT_SECURITY_POLICY, REFERRER_POLICY, STRICT_TRANSPORT_SECURITY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue};

const POLICY: &str =
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
/// A year. Other hosts of the domain are not ours to speak for.
const HSTS: HeaderValue = HeaderValue::from_static("max-age=31536000");
const ALWAYS: [(HeaderName, HeaderValue); 6] = [
    (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    // For browsers that do not know frame-ancestors.
    (X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
];

/// `tls`: the answer leaves over TLS.
pub fn protect(headers: &mut HeaderMap, tls: bool) {
    for (name, value) in ALWAYS {
        // One script of the console brings a policy of its own.
        headers.entry(name).or_insert(value);
    }
    if tls {
        headers.insert(STRICT_TRANSPORT_SECURITY, HSTS);
    }
}
