//! What a caller is told, for every way an exchange can end.

use super::*;
use crate::wire::{FireTransition, ProcessQuery, ScopeGranted};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

/// Answers one request with these bytes and hands back what it was asked.
fn answer_once(status: &str, body: &str) -> (String, JoinHandle<String>) {
    let response = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a caller");
        let mut asked = Vec::new();
        let mut buffer = [0; 4096];
        while !complete(&asked) {
            match stream.read(&mut buffer).expect("a request") {
                0 => break,
                n => asked.extend_from_slice(&buffer[..n]),
            }
        }
        stream.write_all(response.as_bytes()).expect("the answer is taken");
        String::from_utf8(asked).expect("text")
    });
    (address, served)
}

fn complete(asked: &[u8]) -> bool {
    let text = String::from_utf8_lossy(asked).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap_or(0));
    body.len() >= length
}

fn fire() -> FireTransition {
    FireTransition { action: "release".into(), reason: None }
}

#[tokio::test]
async fn a_refusal_carries_its_code_detail_and_field() {
    let body = r#"{"type":"t","title":"T","status":409,"code":"gate-not-cleared","detail":"The gate waits.","field":"action"}"#;
    let (server, asked) = answer_once("409 Conflict", body);
    let client = Client::new(&server).and_then(|c| c.with_token("tok\n")).and_then(|c| c.with_idempotency_key("k1"));
    let error = client.expect("a client").fire("an/id", &fire()).await.expect_err("refused");
    assert_eq!(error.code(), Some("gate-not-cleared"));
    assert_eq!(error.to_string(), "gate-not-cleared: The gate waits.");
    assert_eq!(error.refusal().and_then(|p| p.field.as_deref()), Some("action"));

    let asked = asked.join().expect("served");
    assert!(asked.starts_with("POST /v1/processes/an%2Fid/transitions HTTP/1.1\r\n"), "{asked}");
    assert!(asked.contains("authorization: Bearer tok\r\n") && asked.contains("idempotency-key: k1\r\n"), "{asked}");
    assert!(asked.ends_with(r#"{"action":"release"}"#), "{asked}");
}

#[tokio::test]
async fn an_answer_keeps_fields_that_this_version_does_not_know() {
    let (server, asked) = answer_once("201 Created", r#"{"grant_id":"g1","new_field":7}"#);
    let client = Client::new(&server).expect("a client");
    let request = crate::wire::GrantScope { subject_ref: "s".into(), action_scope: "a".into() };
    let answer: Answer<ScopeGranted> = client.grant(&request).await.expect("granted");
    assert_eq!((answer.status, answer.body.grant_id.as_str()), (201, "g1"));
    assert_eq!(answer.json["new_field"], 7);
    assert!(!asked.join().expect("served").contains("idempotency-key"));
}

#[tokio::test]
async fn only_what_is_asked_for_is_in_the_query() {
    let (server, asked) = answer_once("200 OK", r#"{"items":[],"next":null}"#);
    let query = ProcessQuery { subject_ref: Some("a&b".into()), limit: Some(7), ..ProcessQuery::default() };
    Client::new(&server).expect("a client").processes(&query).await.expect("a page");
    let asked = asked.join().expect("served");
    assert!(asked.starts_with("GET /v1/processes?subject_ref=a%26b&limit=7 HTTP/1.1\r\n"), "{asked}");
}

#[tokio::test]
async fn an_answer_that_is_not_ours_is_unexpected() {
    for (status, body, told) in [
        ("502 Bad Gateway", "<html> nginx\n </html>", "(status 502): <html> nginx </html>"),
        ("200 OK", r#"{"hello":1}"#, "missing field `new_state`"),
        ("302 Found", "", "(status 302): (nothing)"),
    ] {
        let (server, _asked) = answer_once(status, body);
        let error = Client::new(&server).expect("a client").fire("i", &fire()).await.expect_err("not ours");
        assert!(matches!(error, Error::Unexpected { .. }) && error.to_string().contains(told), "{error}");
    }
}

#[tokio::test]
async fn a_silent_address_says_how_to_start_a_server() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let server = format!("http://{}", listener.local_addr().expect("an address"));
    drop(listener);
    let error = Client::new(&server).expect("a client").process("i").await.expect_err("nobody there");
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert!(
        error.to_string().starts_with(&format!("no server answers at {server}: start one with `countersign serve`"))
    );
}

#[tokio::test]
async fn an_answer_cut_short_is_not_taken_for_a_server_that_is_not_there() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let server = format!("http://{}", listener.local_addr().expect("an address"));
    let hang_up = std::thread::spawn(move || listener.accept().map(drop));
    let error = Client::new(&server).expect("a client").fire("i", &fire()).await.expect_err("cut short");
    assert!(matches!(error, Error::NoAnswer { .. }), "{error:?}");
    assert!(hang_up.join().expect("accepted").is_ok());
}

#[tokio::test]
async fn what_is_no_address_or_id_is_told_before_anything_is_sent() {
    for server in ["", "localhost:7433", "ftp://x", "http://a:b@host", "http://host/?x=1"] {
        let told = Client::new(server).expect_err("not an address").to_string();
        assert!(told.contains("write it like http://127.0.0.1:7433"), "{told}");
    }
    let client = Client::new("http://127.0.0.1:1/prefix/").expect("a client");
    assert_eq!(client.server(), "http://127.0.0.1:1/prefix");
    for id in ["", ".", ".."] {
        assert!(matches!(client.process(id).await, Err(Error::Unusable(_))), "{id:?}");
    }
    assert!(Client::new("http://h").and_then(|c| c.with_token("a\u{7}b")).is_err());
}
