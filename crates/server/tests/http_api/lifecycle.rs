//! Starting and stopping: what is acknowledged stays, and nobody shares a store by accident.

use crate::support::{Server, options};
use countersign_server::serve;
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn everything_acknowledged_before_the_end_is_there_after_it() {
    let mut server = Server::start().await;
    let admin = server.admin();
    let id = admin.start_loop("s").await;
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..8 {
        let admin = admin.clone();
        callers.spawn(async move {
            let mut acknowledged = Vec::new();
            for n in 0.. {
                let subject = format!("c{caller}-{n}");
                let body = json!({"subject_ref": subject, "action_scope": "x"});
                let request = admin.request(reqwest::Method::POST, "/v1/grants").json(&body);
                match request.send().await {
                    Ok(response) if response.status().as_u16() == 201 => acknowledged.push(subject),
                    _ => break,
                }
            }
            acknowledged
        });
    }
    while admin.get("/v1/grants?action_scope=x&subject_ref=c0-5").await.ok()["items"] == json!([]) {
        tokio::task::yield_now().await;
    }
    server.stop().await;
    let acknowledged: Vec<String> = callers.join_all().await.into_iter().flatten().collect();
    assert!(acknowledged.len() > 5);

    let server = server.resumed().await;
    let admin = server.admin();
    for subject in acknowledged {
        let found = admin.get(&format!("/v1/grants?subject_ref={subject}")).await.ok();
        assert_eq!(found["items"].as_array().map(Vec::len), Some(1), "{subject}");
    }
    assert_eq!(admin.get(&format!("/v1/processes/{id}")).await.ok()["current_state"], "a");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_under_way_is_answered_and_an_idle_connection_holds_nothing_up() {
    let mut server = Server::start().await;
    let address = server.url().replace("http://", "");
    let token = std::fs::read_to_string(server.directory.path().join("admin.token")).expect("a token");
    let body = r#"{"subject_ref": "late", "action_scope": "x"}"#;
    let head = format!(
        "POST /v1/grants HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n",
        token.trim(),
        body.len()
    );
    let idle = TcpStream::connect(&address).expect("a connection");
    let mut halfway = TcpStream::connect(&address).expect("a connection");
    halfway.write_all(b"GET /healthz HTTP/1.1\r\nHost:").expect("sent");
    let mut caller = TcpStream::connect(&address).expect("a connection");
    caller.write_all(head.as_bytes()).expect("sent");
    let mut told = [0; 25];
    caller.read_exact(&mut told).expect("the server reads the body");
    assert_eq!(&told, b"HTTP/1.1 100 Continue\r\n\r\n");

    let started = Instant::now();
    let running = server.take();
    let stopping = tokio::spawn(running.shutdown());
    while TcpStream::connect(&address).is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(!stopping.is_finished(), "a request is under way");
    caller.write_all(body.as_bytes()).expect("sent");
    let mut answer = String::new();
    caller.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    stopping.await.expect("not panicked").expect("an orderly end");
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    drop((idle, halfway));

    let server = server.resumed().await;
    let found = server.admin().get("/v1/grants?subject_ref=late").await.ok();
    assert_eq!(found["items"].as_array().map(Vec::len), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_has_one_server_and_a_data_directory_one_owner() {
    let mut server = Server::start().await;
    let directory = server.directory.path().to_owned();
    let told = serve::start(options(&directory)).await.err().expect("held").to_string();
    assert!(told.contains("another process uses the store"), "{told}");
    let mode = |path: &std::path::Path| std::fs::metadata(path).expect("a file").permissions().mode() & 0o777;
    assert_eq!(mode(&directory.join("admin.token")), 0o600);
    let token = std::fs::read_to_string(directory.join("admin.token")).expect("a token");
    server.restart().await;
    assert_eq!(std::fs::read_to_string(directory.join("admin.token")).expect("a token"), token, "made once");

    let nested = directory.join("not/yet/there");
    let running = serve::start(options(&nested)).await.expect("a server");
    assert_eq!(mode(&nested), 0o700);
    running.shutdown().await.expect("an orderly end");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_started_says_why() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("countersign.toml");
    std::fs::write(&file, "audit_trail_retention = \"sox_7_year\"").expect("a file");
    let mut with_config = options(directory.path());
    with_config.config = Some(file);
    let told = serve::start(with_config).await.err().expect("refused").to_string();
    assert!(told.contains("audit_trail_retention") && told.contains("countersign.toml"), "{told}");

    let mut with_store = options(directory.path());
    with_store.store = Some("mysql://u:secret@h/d".to_owned());
    let told = format!("{:#}", serve::start(with_store).await.err().expect("refused"));
    assert!(told.contains("sqlite:PATH") && !told.contains("secret"), "{told}");

    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = listener.local_addr().expect("an address").to_string();
    let not_made = directory.path().join("not-made");
    for (listen, why) in [("nonsense", "write it like 127.0.0.1:7433"), (&taken, "Address already in use")] {
        let mut with_listen = options(&not_made);
        with_listen.listen = listen.to_owned();
        let told = format!("{:#}", serve::start(with_listen).await.err().expect("refused"));
        assert!(told.contains(listen) && told.contains(why), "{told}");
        assert!(!not_made.exists(), "nothing is made for {listen}");
    }
    // And the failed attempts left nothing behind that would stand in the way.
    serve::start(options(directory.path())).await.expect("a server").shutdown().await.expect("an orderly end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_there_is_never_overwritten() {
    // As a crash between the two leaves it, or another store in the same directory: the token is on disk, this
    // store is empty.
    let mut server = Server::start().await;
    let token_file = server.directory.path().join("admin.token");
    let token = std::fs::read_to_string(&token_file).expect("a token");
    server.stop().await;
    let mut other = options(server.directory.path());
    other.store = Some(format!("sqlite:{}", server.directory.path().join("other.sqlite").display()));
    other.new_store = true;
    serve::start(other).await.expect("a server").shutdown().await.expect("an orderly end");
    assert_eq!(std::fs::read_to_string(&token_file).expect("a token"), token);
    let server = server.resumed().await;
    server.admin().get("/v1/actors").await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_at_rest_is_one_private_file() {
    use std::os::unix::fs::PermissionsExt;
    let mut server = Server::start().await;
    server.admin().start_loop("s").await;
    server.stop().await;
    let file = server.directory.path().join("countersign.sqlite");
    assert_eq!(std::fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o600);
    let log = std::fs::metadata(server.directory.path().join("countersign.sqlite-wal"));
    assert_eq!(log.map_or(0, |log| log.len()), 0, "the log holds nothing that the file lacks");
}
