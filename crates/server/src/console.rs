//! The web console: static files that the binary carries. The page is one application: every address that a browser opens and
//! that nothing else serves is its `index.html`.

use axum::body::Body;
use axum::http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, VARY,
};
use axum::http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode};

struct File {
    path: &'static str,
    tag: &'static str,
    plain: &'static [u8],
    brotli: Option<&'static [u8]>,
    gzip: Option<&'static [u8]>,
}

static FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/console.rs"));

/// The script that verifies bundles compiles WebAssembly. Its policy is its own: no other script of the page may do that.
const VERIFIES: (&str, &str) =
    ("/assets/verify.worker-", "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'");

const INDEX: &str = "/index.html";
const NOT_BUILT: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Countersign</title><h1>The console is not in this binary</h1>\
    <p>It was built without Node.js. Run <code>make build</code>, then start the server again. The HTTP API and the command line work as usual.</p>";

/// What a browser gets for this request, if it is for the console.
pub fn answer<B>(request: &Request<B>) -> Option<Response<Body>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return None;
    }
    let path = request.uri().path();
    let found = FILES.iter().find(|file| file.path == path);
    if let Some(file) = found {
        return Some(serve(file, request.headers()));
    }
    if !wants_page(path, request.headers()) {
        return None;
    }
    let Some(index) = FILES.iter().find(|file| file.path == INDEX) else {
        return Response::builder().header(CONTENT_TYPE, "text/html; charset=utf-8").body(Body::from(NOT_BUILT)).ok();
    };
    Some(serve(index, request.headers()))
}

/// A browser that opens an address asks for HTML; programs and the page's own requests do not. What looks like a file is one.
fn wants_page(path: &str, headers: &HeaderMap) -> bool {
    let html =
        headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).is_some_and(|accept| accept.contains("text/html"));
    html && !path.starts_with("/v1/") && !path.rsplit('/').next().unwrap_or_default().contains('.')
}

fn serve(file: &File, headers: &HeaderMap) -> Response<Body> {
    let header = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    // Vite puts a hash of the content into the names of what it makes.
    let cache = if file.path.starts_with("/assets/") { "public, max-age=31536000, immutable" } else { "no-cache" };
    let answer =
        Response::builder().header(ETAG, file.tag).header(CACHE_CONTROL, cache).header(VARY, "accept-encoding");
    if header(IF_NONE_MATCH).split(',').any(|tag| tag.trim() == file.tag) {
        return answer.status(StatusCode::NOT_MODIFIED).body(Body::empty()).unwrap_or_default();
    }
    let accepted = header(ACCEPT_ENCODING);
    let takes = |encoding: &str| {
        accepted.split(',').any(|offer| offer.split(';').next().is_some_and(|name| name.trim() == encoding))
    };
    let (encoding, bytes) = match (file.brotli, file.gzip) {
        (Some(brotli), _) if takes("br") => (Some("br"), brotli),
        (_, Some(gzip)) if takes("gzip") => (Some("gzip"), gzip),
        _ => (None, file.plain),
    };
    let mut answer = answer.header(CONTENT_TYPE, content_type(file.path));
    if file.path.starts_with(VERIFIES.0) {
        answer = answer.header(CONTENT_SECURITY_POLICY, VERIFIES.1);
    }
    let answer = encoding.into_iter().fold(answer, |answer, encoding| answer.header(CONTENT_ENCODING, encoding));
    answer.body(Body::from(bytes)).unwrap_or_default()
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "json" => "application/json",
        "wasm" => "application/wasm",
        "woff2" => "font/woff2",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(method: &str, path: &str, accept: &str) -> Option<Response<Body>> {
        let request = Request::builder().method(method).uri(path).header(ACCEPT, accept).body(()).expect("a request");
        answer(&request)
    }

    const BROWSER: &str = "text/html,application/xhtml+xml,*/*;q=0.8";

    #[test]
    fn a_browser_gets_the_page_at_every_address_of_its_own() {
        for path in ["/", "/inbox", "/runs/0192", "/explain/conflict"] {
            let page = ask("GET", path, BROWSER).expect("a page");
            assert_eq!(page.headers()[CONTENT_TYPE], "text/html; charset=utf-8", "{path}");
        }
    }

    #[test]
    fn programs_and_the_api_do_not() {
        assert!(ask("GET", "/inbox", "application/json").is_none());
        assert!(ask("GET", "/v1/nothing", BROWSER).is_none());
        assert!(ask("GET", "/missing.js", BROWSER).is_none());
        assert!(ask("POST", "/inbox", BROWSER).is_none());
    }

    #[test]
    fn a_file_is_compressed_cached_and_not_sent_twice() {
        let file =
            File { path: "/assets/a-1.js", tag: "\"1\"", plain: b"plain", brotli: Some(b"br"), gzip: Some(b"gz") };
        let with = |name: HeaderName, value: &str| {
            let headers = HeaderMap::from_iter([(name, value.parse().expect("a value"))]);
            serve(&file, &headers)
        };
        let best = with(ACCEPT_ENCODING, "gzip, deflate, br");
        assert_eq!(
            (&best.headers()[CONTENT_ENCODING], &best.headers()[CONTENT_TYPE]),
            (&"br".parse().expect("br"), &"text/javascript; charset=utf-8".parse().expect("js"))
        );
        assert!(best.headers()[CACHE_CONTROL].to_str().is_ok_and(|cache| cache.contains("immutable")));
        assert_eq!(with(ACCEPT_ENCODING, "gzip;q=0.5").headers()[CONTENT_ENCODING], "gzip");
        assert!(with(ACCEPT_ENCODING, "identity").headers().get(CONTENT_ENCODING).is_none());
        assert_eq!(with(IF_NONE_MATCH, "\"0\", \"1\"").status(), StatusCode::NOT_MODIFIED);
    }
}
