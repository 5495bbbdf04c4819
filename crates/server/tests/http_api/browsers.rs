//! What every answer tells a browser, compression, and TLS from the binary itself.

use crate::sessions::Browser;
use crate::support::{Answer, Server, options};
use countersign_server::outbox::Pace;
use countersign_server::serve;
use reqwest::Method;
use serde_json::json;
use std::path::{Path, PathBuf};

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/tls").join(name)
}

#[track_caller]
fn is_protected(answer: &Answer, what: &str) {
    let header = |name: &str| answer.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let policy = header("content-security-policy");
    assert!(policy.contains("default-src 'self'") && policy.contains("frame-ancestors 'none'"), "{what}: {policy}");
    assert!(!policy.contains("unsafe"), "{what}: {policy}");
    assert_eq!(header("x-content-type-options"), "nosniff", "{what}");
    assert_eq!(header("referrer-policy"), "no-referrer", "{what}");
    assert_eq!(header("x-frame-options"), "DENY", "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_protects_the_browser_that_shows_it() {
    let server = Server::start().await;
    let (nobody, admin) = (server.nobody(), server.admin());
    for path in ["/healthz", "/readyz", "/metrics", "/openapi.json", "/errors/not-known", "/v1/inbox", "/nothing"] {
        is_protected(&nobody.get(path).await, path);
        is_protected(&admin.get(path).await, path);
    }
    for (method, path) in [(Method::PUT, "/v1/inbox"), (Method::OPTIONS, "/v1/inbox"), (Method::HEAD, "/healthz")] {
        is_protected(&Answer::of(nobody.request(method.clone(), path)).await, method.as_str());
    }
    is_protected(&admin.post_bytes("/v1/grants", "{").await, "bad input");
    let plain = admin.get("/v1/inbox").await;
    assert!(!plain.headers.contains_key("strict-transport-security"), "not over plain HTTP");
    assert!(!plain.headers.contains_key("access-control-allow-origin"), "no other page may read it");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_answers_are_compressed_where_the_client_asks() {
    let server = Server::start().await;
    let ask = |path: &'static str, coding: &'static str| {
        Answer::of(server.admin().request(Method::GET, path).header("Accept-Encoding", coding))
    };
    let packed = ask("/openapi.json", "br, gzip").await;
    assert_eq!(packed.headers["content-encoding"], "gzip");
    assert_eq!(packed.headers["vary"], "accept-encoding");
    let plain = ask("/openapi.json", "identity").await;
    assert!(!plain.headers.contains_key("content-encoding"));
    let length =
        |answer: &Answer| answer.headers["content-length"].to_str().expect("text").parse::<usize>().expect("a number");
    assert!(length(&packed) < length(&plain) / 4);
    for small in ["/healthz", "/v1/inbox"] {
        assert!(!ask(small, "gzip").await.headers.contains_key("content-encoding"), "{small}");
    }
    // Bundles are compressed already, and streamed.
    let id = server.admin().start_loop("s").await;
    let export = server.admin().request(Method::GET, &format!("/v1/ledger/export?instance_id={id}"));
    let bundle = Answer::of(export.header("Accept-Encoding", "gzip")).await;
    assert_eq!((bundle.status, bundle.headers.contains_key("content-encoding")), (200, false));
}

fn tls_config(more: &str) -> String {
    let (cert, key) = (corpus("cert.pem"), corpus("key.pem"));
    format!("[tls]\ncert = {:?}\nkey = {:?}\n{more}", cert.display().to_string(), key.display().to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_speaks_tls_itself() {
    let server = Server::with(Some(tls_config("")), None, Pace::default()).await;
    assert!(server.url().starts_with("https://"));
    let root =
        reqwest::Certificate::from_pem(&std::fs::read(corpus("root.pem")).expect("a file")).expect("a certificate");
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([root]).build().expect("a client");
    let token = std::fs::read_to_string(server.directory.path().join("admin.token")).expect("a token");
    let answer = Answer::of(client.get(format!("{}/v1/me", server.url())).bearer_auth(token.trim())).await;
    assert_eq!(answer.headers["strict-transport-security"], "max-age=31536000");
    is_protected(&answer, "TLS");
    assert_eq!(answer.ok()["actor_ref"], "admin");
    let sign_in = client.post(format!("{}/v1/session", server.url())).json(&json!({"token": token.trim()}));
    let browser = Browser::signed_in(server.nobody(), Answer::of(sign_in).await);
    assert!(browser.set_cookie.contains("; Secure"), "{}", browser.set_cookie);
    // A client that trusts other roots does not talk to it, and plain HTTP is no way in.
    let url = format!("{}/healthz", server.url());
    let stranger = reqwest::Client::builder().no_proxy().build().expect("a client");
    assert!(stranger.get(&url).send().await.is_err());
    assert!(stranger.get(url.replace("https", "http")).send().await.is_err());
    let mut server = server;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_that_cannot_work_is_refused_at_the_start() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let directory = tempfile::tempdir().expect("a directory");
    let missing = directory.path().join("no.pem").display().to_string();
    let (cert, key) = (corpus("cert.pem").display().to_string(), corpus("key.pem").display().to_string());
    for (cert, key, told) in [
        (Some(&cert), None, "needed together"),
        (None, Some(&key), "needed together"),
        (Some(&missing), Some(&key), "no.pem"),
        (Some(&cert), Some(&missing), "no.pem"),
        (Some(&key), Some(&key), "no certificate"),
    ] {
        let line = |name: &str, value: Option<&String>| value.map_or(String::new(), |v| format!("{name} = {v:?}\n"));
        let file = directory.path().join("countersign.toml");
        std::fs::write(&file, format!("[tls]\n{}{}", line("cert", cert), line("key", key))).expect("a file");
        let data = directory.path().join("data");
        let with = serve::ServeOptions { config: Some(file), ..options(&data) };
        let error = serve::start(with).await.err().expect("a refusal");
        assert!(format!("{error:#}").contains(told), "{error:#}");
        assert!(!data.exists(), "nothing was made");
    }
}
