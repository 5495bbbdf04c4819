//! Requests to a real server on this machine, and requests that must never leave.

use super::*;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::Response;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// (method, path, headers, body) of every request that arrived.
type Seen = Arc<Mutex<Vec<(String, String, HeaderMap, String)>>>;

async fn serve(answer: impl Fn(&str) -> Response<Body> + Clone + Send + Sync + 'static) -> (String, Seen) {
    let seen = Seen::default();
    let noted = seen.clone();
    let router = Router::new().fallback(move |request: Request| async move {
        let (head, body) = request.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.expect("a body");
        let path = head.uri.to_string();
        let body = String::from_utf8_lossy(&body).into_owned();
        let answer = answer(&path);
        noted.lock().expect("seen").push((head.method.to_string(), path, head.headers, body));
        answer
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let base = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (base, seen)
}

fn status(code: u16, body: &str) -> Response<Body> {
    Response::builder().status(code).body(Body::from(body.to_owned())).expect("a response")
}

fn to(code: u16, target: &str) -> Response<Body> {
    Response::builder().status(code).header("location", target).body(Body::empty()).expect("a response")
}

fn job(method: &str, url: &str) -> HttpJob {
    HttpJob {
        method: method.to_owned(),
        url: url.to_owned(),
        headers: BTreeMap::new(),
        body_json: None,
        success: vec![StatusClass::Hundred(2)],
        retry: vec![StatusClass::Code(408), StatusClass::Code(429), StatusClass::Hundred(5), StatusClass::Network],
        timeout: Some(Duration::from_secs(20)),
        idempotency_key: "key-1".to_owned(),
        allow_private: true,
        mask: Mask::default(),
    }
}

fn executor() -> HttpExecutor {
    HttpExecutor::new().expect("an executor")
}

async fn output(job: &HttpJob) -> Value {
    match executor().run(job).await {
        Verdict::Completed { output_json, .. } => serde_json::from_str(&output_json).expect("JSON"),
        other => panic!("{other:?}"),
    }
}

async fn dead(job: &HttpJob, category: FailureCategory) -> String {
    match executor().run(job).await {
        Verdict::Dead { last_error, category: Some(found) } if found == category => last_error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_request_carries_what_was_declared_and_the_key() {
    let (base, seen) = serve(|_| {
        let response = Response::builder().status(201).header("content-type", "application/json; charset=utf-8");
        let response = response.header("x-a", "1").header("x-a", "2").header("set-cookie", "session=secret");
        response.body(Body::from(r#"{"id": 1.50}"#)).expect("a response")
    })
    .await;
    let mut job = job("POST", &format!("{base}/a?q=1"));
    job.headers.insert("X-Token".to_owned(), "secret".to_owned());
    job.body_json = Some(r#"{"n":1.50}"#.to_owned());
    let Verdict::Completed { output_json, .. } = executor().run(&job).await else { panic!("completed") };
    assert!(output_json.contains(r#""body":{"id": 1.50}"#), "as it came: {output_json}");
    let output: Value = serde_json::from_str(&output_json).expect("JSON");
    assert_eq!((&output["status"], &output["headers"]["x-a"]), (&json!(201), &json!("1, 2")));
    assert!(output["headers"].get("set-cookie").is_none());

    let seen = seen.lock().expect("seen");
    let (method, path, headers, body) = &seen[0];
    assert_eq!((method.as_str(), path.as_str(), body.as_str()), ("POST", "/a?q=1", r#"{"n":1.50}"#));
    for (name, value) in [("idempotency-key", "key-1"), ("x-token", "secret"), ("content-type", "application/json")] {
        assert_eq!(headers[name], value);
    }
    assert_eq!(seen.len(), 1);
}

#[tokio::test]
async fn a_body_is_json_where_it_says_so_and_may_be_kept() {
    let (base, _) = serve(|path| {
        let (media_type, body) = match path {
            "/text" => ("text/plain", "7"),
            "/problem" => ("application/problem+json", r#"{"a":1}"#),
            "/broken" => ("application/json", "{"),
            "/large-number" => ("application/json", "[9007199254740993]"),
            _ => ("text/html", "a\0b"),
        };
        Response::builder().header("content-type", media_type).body(Body::from(body)).expect("a response")
    })
    .await;
    for (path, expected) in [
        ("/text", json!("7")),
        ("/problem", json!({"a": 1})),
        ("/broken", json!("{")),
        ("/large-number", json!("[9007199254740993]")),
        ("/nul", json!("a\u{FFFD}b")),
    ] {
        assert_eq!(output(&job("GET", &format!("{base}{path}"))).await["body"], expected, "{path}");
    }
}

#[tokio::test]
async fn a_text_is_sent_as_text_where_that_is_declared() {
    let (base, seen) = serve(|_| status(204, "")).await;
    let mut job = job("PUT", &base);
    job.body_json = Some(r#""a=1&b=2""#.to_owned());
    output(&job).await;
    job.headers.insert("Content-Type".to_owned(), "application/x-www-form-urlencoded".to_owned());
    output(&job).await;
    let bodies: Vec<String> = seen.lock().expect("seen").iter().map(|(.., body)| body.clone()).collect();
    assert_eq!(bodies, [r#""a=1&b=2""#, "a=1&b=2"]);
    job.body_json = Some("{".to_owned());
    assert!(dead(&job, FailureCategory::Validation).await.starts_with("`body` is not JSON"));
}

#[tokio::test]
async fn the_status_decides() {
    let (base, _) = serve(|path| {
        let code: u16 =
            path.trim_start_matches('/').split('?').next().and_then(|code| code.parse().ok()).expect("a status");
        let response = Response::builder().status(code).header("retry-after", "7");
        response.body(Body::from("why\n")).expect("a response")
    })
    .await;
    for code in [408, 429, 500, 503] {
        let told = format!("GET {base}/{code} answered {code}: why");
        let retry = Verdict::Retry {
            last_error: told,
            backoff: Some(Duration::from_secs(7)),
            category: Some(FailureCategory::External),
        };
        assert_eq!(executor().run(&job("GET", &format!("{base}/{code}?secret=1"))).await, retry);
    }
    for code in [304, 400, 404] {
        let told = dead(&job("GET", &format!("{base}/{code}")), FailureCategory::External).await;
        assert!(told.contains(&format!("answered {code}")), "{told}");
    }
    let mut picky = job("GET", &format!("{base}/404"));
    picky.success = vec![StatusClass::Code(404)];
    assert_eq!(output(&picky).await["status"], 404);
    picky.url = format!("{base}/200");
    dead(&picky, FailureCategory::External).await;
}

#[tokio::test]
async fn an_answer_is_read_up_to_a_limit() {
    let (base, _) = serve(|path| {
        let code = if path == "/fails" { 500 } else { 200 };
        let length = if path == "/fits" { BODY_BYTES } else { BODY_BYTES + 1 };
        status(code, &"x".repeat(length))
    })
    .await;
    assert_eq!(output(&job("GET", &format!("{base}/fits"))).await["body"].as_str().map(str::len), Some(BODY_BYTES));
    assert!(dead(&job("GET", &base), FailureCategory::Validation).await.starts_with("ANSWER_TOO_LARGE"));
    match executor().run(&job("GET", &format!("{base}/fails"))).await {
        Verdict::Retry { last_error, .. } => assert!(last_error.len() < 1000),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn no_answer_is_the_network_and_a_late_one_the_timeout() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let silent = format!("http://{}/?secret=1", listener.local_addr().expect("an address"));
    let mut late = job("GET", &silent);
    late.timeout = Some(Duration::from_millis(200));
    match executor().run(&late).await {
        Verdict::Unknown { instead } => match *instead {
            Verdict::Dead { last_error, category: Some(FailureCategory::Timeout) } => {
                assert!(last_error.starts_with("STEP_TIMEOUT"), "{last_error}");
            }
            other => panic!("{other:?}"),
        },
        other => panic!("what was sent may have been done: {other:?}"),
    }
    drop(listener);

    let mut nobody = job("GET", &silent);
    match executor().run(&nobody).await {
        Verdict::Retry { last_error, category: Some(FailureCategory::External), backoff: None } => {
            assert!(last_error.contains("was not answered") && !last_error.contains("secret"), "{last_error}");
        }
        other => panic!("{other:?}"),
    }
    nobody.retry = vec![];
    dead(&nobody, FailureCategory::External).await;

    // A connection that breaks once the request is out says nothing of what was done.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let rude = format!("http://{}/", listener.local_addr().expect("an address"));
    let hanging_up = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 1024];
            let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut request).await;
        }
    });
    match executor().run(&job("POST", &rude)).await {
        Verdict::Unknown { instead } => assert!(matches!(*instead, Verdict::Retry { .. }), "{instead:?}"),
        other => panic!("{other:?}"),
    }
    hanging_up.abort();
}

#[tokio::test]
async fn redirects_are_followed_as_browsers_do() {
    let (base, seen) = serve(|path| match path {
        "/see-other" => to(303, "/end"),
        "/found" => to(302, "end"),
        "/same" => to(307, "/end"),
        "/round" => to(307, "/round"),
        "/nowhere" => status(302, ""),
        _ => status(200, ""),
    })
    .await;
    let methods = || {
        seen.lock()
            .expect("seen")
            .drain(..)
            .map(|(method, path, _, body)| format!("{method} {path} {body}"))
            .collect::<Vec<_>>()
    };
    let mut posted = job("POST", "");
    posted.body_json = Some("1".to_owned());
    for (path, last) in [("/see-other", "GET /end "), ("/found", "GET /end "), ("/same", "POST /end 1")] {
        posted.url = format!("{base}{path}");
        output(&posted).await;
        assert_eq!(methods()[1..], [last]);
    }
    assert!(dead(&job("GET", &format!("{base}/round")), FailureCategory::External).await.contains("redirects"));
    assert_eq!(methods().len(), MAX_HOPS + 1);
    dead(&job("GET", &format!("{base}/nowhere")), FailureCategory::External).await;
    // A status that the step names is its answer.
    let mut wanted = job("GET", &format!("{base}/found"));
    wanted.success = vec![StatusClass::Code(302)];
    assert_eq!(output(&wanted).await["headers"]["location"], "end");
}

#[tokio::test]
async fn what_was_declared_for_one_place_is_not_shown_to_another() {
    let (other, seen) = serve(|_| status(200, "")).await;
    let target = other.clone();
    let (base, _) = serve(move |path| to(if path == "/keep" { 308 } else { 302 }, &target)).await;
    let mut job = job("GET", &base);
    for (name, value) in [("Authorization", "Bearer x"), ("X-Api-Key", "x"), ("Cookie", "x"), ("Accept", "text/plain")]
    {
        job.headers.insert(name.to_owned(), value.to_owned());
    }
    output(&job).await;
    {
        let seen = seen.lock().expect("seen");
        let headers = &seen[0].2;
        assert!(
            ["authorization", "x-api-key", "cookie"].iter().all(|name| headers.get(*name).is_none()),
            "{headers:?}"
        );
        assert_eq!(
            (&headers["accept"], &headers["idempotency-key"]),
            (&"text/plain".parse().expect("a value"), &"key-1".parse().expect("a value"))
        );
    }
    job.method = "POST".to_owned();
    job.url = format!("{base}/keep");
    job.body_json = Some(r#"{"secret":1}"#.to_owned());
    assert!(dead(&job, FailureCategory::Validation).await.contains("would send the body to another place"));
}

/// Says `public` for names that are, and counts how often it was asked.
fn names_to(addresses: &'static [&'static str]) -> (HttpExecutor, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let lookup: Lookup = Arc::new(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        let found = addresses.iter().map(|ip| SocketAddr::new(ip.parse().expect("an address"), 0)).collect();
        Box::pin(async move { Ok(found) })
    });
    (HttpExecutor::with_lookup(lookup).expect("an executor"), asked)
}

fn is_forbidden(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Dead { last_error, category: Some(FailureCategory::Validation) } if last_error.starts_with("FORBIDDEN_TARGET"))
}

#[tokio::test]
async fn private_addresses_are_refused_however_they_are_written() {
    let (base, seen) = serve(|_| status(200, "")).await;
    let port = base.rsplit(':').next().expect("a port").to_owned();
    for host in [
        "127.0.0.1",
        "127.1",
        "0x7f000001",
        "2130706433",
        "0177.0.0.1",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "localhost",
        "169.254.169.254",
        "10.0.0.1",
        "192.168.0.1",
        "100.64.0.1",
        "[fd00:ec2::254]",
        "[fe80::1]",
        "①②⑦.0.0.1",
    ] {
        let mut job = job("GET", &format!("http://{host}:{port}/"));
        job.allow_private = false;
        let verdict = executor().run(&job).await;
        assert!(is_forbidden(&verdict), "{host}: {verdict:?}");
    }
    assert!(seen.lock().expect("seen").is_empty());
}

#[tokio::test]
async fn it_is_the_resolved_addresses_that_count() {
    let (base, seen) = serve(|_| status(200, "")).await;
    let port = base.rsplit(':').next().expect("a port").to_owned();
    let mut job = job("GET", &format!("http://innocent.example:{port}/"));
    job.allow_private = false;
    for addresses in [&["127.0.0.1"][..], &["93.184.216.34", "127.0.0.1"], &["::ffff:127.0.0.1"], &["fd00::1"]] {
        let (executor, asked) = names_to(addresses);
        let verdict = executor.run(&job).await;
        assert!(is_forbidden(&verdict), "{addresses:?}: {verdict:?}");
        assert_eq!(asked.load(Ordering::Relaxed), 1, "resolved once, by us");
    }
    assert!(seen.lock().expect("seen").is_empty());
}

#[test]
fn every_hop_of_a_redirect_is_looked_at() {
    let hop = Hop::of(&job("GET", "https://public.example/a")).expect("a hop");
    let onward = |target: &'static str| hop.onward(StatusCode::FOUND, &HeaderValue::from_static(target));
    for target in ["https://127.0.0.1/", "//[::1]/", "https://[::ffff:10.0.0.1]/x"] {
        assert!(check_literal(&onward(target).expect("a hop").url).is_err(), "{target}");
    }
    for (target, why) in [
        ("http://public.example/", "without encryption"),
        ("ftp://public.example/", "neither with http"),
        ("file:///etc/passwd", "neither with http"),
        ("https://a:b@public.example/", "credential"),
        ("https://public.example/\t", "white space"),
        ("\\\\evil.example\\", "backslashes"),
    ] {
        let refused = onward(target).map(|hop| hop.url).expect_err(target);
        assert!(refused.contains(why), "{target}: {refused}");
    }
}

#[tokio::test]
async fn a_redirect_to_a_private_address_is_not_followed() {
    let (inner, reached) = serve(|_| status(200, "the secret")).await;
    let (outer, _) = serve(move |_| to(302, &inner)).await;
    // The first hop is let through by hand; the second has to pass the guard.
    let executor = executor();
    let mut job = job("GET", &outer);
    let first = Hop::of(&job).expect("a hop");
    let response = executor.send(&job, &first).await.expect("a redirect");
    let target = response.headers().get(LOCATION).cloned().expect("a target");
    let second = first.onward(response.status(), &target).expect("a hop");
    job.allow_private = false;
    let refused = executor.follow(&job, second).await.err();
    assert!(refused.as_ref().is_some_and(is_forbidden), "{refused:?}");
    assert!(reached.lock().expect("seen").is_empty());
}

#[tokio::test]
async fn nothing_can_be_smuggled_into_a_request() {
    let (base, seen) = serve(|_| status(200, "")).await;
    let with = |change: &dyn Fn(&mut HttpJob)| {
        let mut job = job("GET", &base);
        change(&mut job);
        job
    };
    let header = |name: &'static str, value: &'static str| {
        move |job: &mut HttpJob| drop(job.headers.insert(name.to_owned(), value.to_owned()))
    };
    let url = |end: &'static str| move |job: &mut HttpJob| job.url.push_str(end);
    for (job, why) in [
        (with(&header("X-A", "1\r\nX-B: 2")), "control characters"),
        (with(&header("X-A\r\nX-B", "2")), "no name of a header"),
        (with(&header("Host", "elsewhere")), "cannot set the header `host`"),
        (with(&header("Transfer-Encoding", "chunked")), "cannot set the header"),
        (with(&header("content-length", "3")), "cannot set the header"),
        (with(&header("Idempotency-Key", "mine")), "cannot set the header"),
        (with(&url("/a\r\nX-B: 2")), "white space"),
        (with(&url("/a\tb")), "white space"),
        (with(&url("/a b")), "white space"),
        (with(&url("\\@evil.example")), "backslashes"),
        (with(&|job| job.url = "file:///etc/passwd".to_owned()), "neither with http"),
        (with(&|job| job.url = "http://user:pw@127.0.0.1/".to_owned()), "credential"),
        (with(&|job| job.url = "not an address".to_owned()), "white space"),
        (with(&|job| job.method = "GET / HTTP/1.1\r\nX: ".to_owned()), "no method"),
        (with(&|job| job.method = "CONNECT".to_owned()), "no method"),
        (with(&|job| job.idempotency_key = "a\nb".to_owned()), "idempotency key"),
    ] {
        let told = dead(&job, FailureCategory::Validation).await;
        assert!(told.contains(why) && !told.contains("X-B: 2"), "{told}");
    }
    assert!(seen.lock().expect("seen").is_empty());
}

#[test]
fn a_job_is_made_of_a_step_with_its_templates_filled_in() {
    let template = countersign_kernel::plan::Template("\"\"".into());
    let work = HttpWork {
        method: "POST".to_owned(),
        url: template,
        headers: None,
        body: None,
        success: vec![StatusClass::Hundred(2)],
        retry: vec![StatusClass::Network],
    };
    let job = HttpJob::filled(&work, r#""https://a.example""#, Some(r#"{"A":"b"}"#), Some("[1]")).expect("a job");
    assert_eq!(
        (job.url.as_str(), job.headers["A"].as_str(), job.body_json.as_deref()),
        ("https://a.example", "b", Some("[1]"))
    );
    assert!(!job.allow_private && job.retry == work.retry);
    let shown = format!("{job:?}");
    assert!(shown.contains(r#"["A"]"#) && !shown.contains(r#""b""#) && !shown.contains("[1]"), "{shown}");
    assert!(HttpJob::filled(&work, "7", None, None).is_err());
    assert!(HttpJob::filled(&work, r#""https://a.example""#, Some(r#"{"A":[1]}"#), None).is_err());
    // What can only be text is written as one.
    let job = HttpJob::filled(&work, r#""https://a.example""#, Some(r#"{"A":1,"B":true}"#), None).expect("a job");
    assert_eq!(job.headers.values().collect::<Vec<_>>(), ["1", "true"]);
}

const SECRET: &str = "hunter2/hunter2";

/// A server that says back what it was sent, in its headers, its body and its way on.
#[tokio::test]
async fn a_secret_is_masked_in_the_answer() {
    let (base, _) = serve(|path| {
        let kind = if path == "/json" { "application/json" } else { "text/plain" };
        let code = match path {
            "/late" => 503,
            "/wrong" => 400,
            _ => 200,
        };
        let body = format!(r#"{{"echo":"hunter2\/hunter2","number":1.50,"url":"?k={}"}}"#, "hunter2%2Fhunter2");
        let response = Response::builder().status(code).header("content-type", kind).header("x-echo", SECRET);
        response.body(Body::from(body)).expect("a response")
    })
    .await;
    for path in ["/json", "/text", "/late", "/wrong"] {
        let mut job = job("POST", &format!("{base}{path}"));
        job.headers.insert("X-Key".to_owned(), SECRET.to_owned());
        job.mask = Mask::of([SECRET]);
        let told = format!("{:?}", executor().run(&job).await);
        assert!(told.contains("***") && !told.contains("hunter2"), "{told}");
        assert!(told.contains("1.50"), "the rest is as it came: {told}");
    }
    let (elsewhere, _) = serve(|_| to(302, "ftp://hunter2/hunter2")).await;
    let mut job = job("GET", &elsewhere);
    job.mask = Mask::of([SECRET]);
    assert!(!dead(&job, FailureCategory::Validation).await.contains("hunter2"));
}

#[tokio::test]
async fn a_probes_value_is_the_body() {
    let (base, _) = serve(|path| {
        let (code, kind, body): (u16, &str, Vec<u8>) = match path {
            "/json" => (200, "application/json", br#" {"a": 1.50} "#.to_vec()),
            "/text" => (200, "text/plain", b"one\ntwo\n".to_vec()),
            "/bytes" => (200, "text/plain", vec![0xff]),
            "/large" => (200, "text/plain", vec![b'x'; 70_000]),
            "/secret" => (200, "text/plain", SECRET.into()),
            _ => (404, "text/plain", SECRET.into()),
        };
        Response::builder().status(code).header("content-type", kind).body(Body::from(body)).expect("a response")
    })
    .await;
    for (path, expected) in [
        ("/json", Ok(r#"{"a": 1.50}"#)),
        ("/text", Ok(r#""one\ntwo\n""#)),
        ("/secret", Ok(r#""***""#)),
        ("/bytes", Err("not text")),
        ("/large", Err("larger than 65536 bytes")),
        ("/none", Err("answered 404: ***")),
    ] {
        let mut job = job("GET", &format!("{base}{path}"));
        job.mask = Mask::of([SECRET]);
        match (executor().probe(&job).await, expected) {
            (Ok(value), Ok(expected)) => assert_eq!(value, expected),
            (Err(why), Err(told)) => assert!(why.contains(told), "{path}: {why}"),
            (found, _) => panic!("{path}: {found:?}"),
        }
    }
}
