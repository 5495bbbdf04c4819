//! A server for one test, and actors who talk to it.

use countersign_engine::clock::Clock;
use countersign_kernel::Time;
use countersign_kernel::refusal::Code;
use countersign_server::outbox::Pace;
use countersign_server::serve::{self, ADMIN_TOKEN_FILE, Running, ServeOptions};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tempfile::TempDir;

pub const BATCH_RELEASE: &str = include_str!("../../../../definitions/batch-release.yaml");

const SEALING_WHEN_ASKED: &str = "[seal]\nevery = \"1h\"\nrecords = 1000000\n[log]\norigin = \"example.org/log\"\n";

pub struct Server {
    pub directory: TempDir,
    running: Option<Running>,
    http: reqwest::Client,
    config: Option<String>,
    /// `None`: an SQLite file in the directory.
    store: Option<String>,
    pace: Pace,
    /// How far the server's clock is ahead.
    ahead_us: Arc<AtomicI64>,
}

impl Server {
    pub async fn start() -> Server {
        Server::with_config(None).await
    }

    /// What is recorded from now on is sealed only when somebody asks for it.
    pub async fn sealing_when_asked() -> Server {
        let server = Server::with_config(Some(SEALING_WHEN_ASKED)).await;
        // The records of the start may be under a checkpoint already: the log's first one is not waited for.
        let _ = server.admin().post("/v1/ledger/seal", json!({})).await;
        server
    }

    /// With this TOML as its configuration.
    pub async fn with_config(config: Option<&'static str>) -> Server {
        Server::with(config.map(str::to_owned), None, Pace::default()).await
    }

    pub async fn with(config: Option<String>, store: Option<String>, pace: Pace) -> Server {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().expect("a client");
        let mut server = Server {
            directory: tempfile::tempdir().expect("a directory"),
            running: None,
            http,
            config,
            store,
            pace,
            ahead_us: Arc::default(),
        };
        server.resume().await;
        server
    }

    /// A second node on the same database: it has a copy of the first one's keys.
    pub async fn beside(&self) -> Server {
        let directory = tempfile::tempdir().expect("a directory");
        for key in ["application.key", "log.key"] {
            std::fs::copy(self.directory.path().join(key), directory.path().join(key)).expect("a key");
        }
        let (http, config, store) = (self.http.clone(), self.config.clone(), self.store.clone());
        let mut server =
            Server { directory, running: None, http, config, store, pace: self.pace, ahead_us: self.ahead_us.clone() };
        server.resume().await;
        server
    }

    async fn resume(&mut self) {
        let mut options = options(self.directory.path());
        options.store.clone_from(&self.store);
        options.pace = self.pace;
        if let Some(toml) = &self.config {
            let file = self.directory.path().join("countersign.toml");
            std::fs::write(&file, toml).expect("a configuration");
            options.config = Some(file);
        }
        let (system, ahead_us) = (Clock::system(), self.ahead_us.clone());
        let wall = move || Time(system.read().wall.0 + ahead_us.load(Ordering::SeqCst));
        options.clock = Some(Clock::told(wall));
        self.running = Some(serve::start(options).await.expect("a server"));
    }

    /// Lets time pass.
    pub fn pass_days(&self, days: i64) {
        self.pass_us(days * 86_400_000_000);
    }

    pub fn pass_us(&self, us: i64) {
        self.ahead_us.fetch_add(us, Ordering::SeqCst);
    }

    /// Stops in order and starts again on the same data.
    pub async fn restart(&mut self) {
        self.stop().await;
        self.resume().await;
    }

    /// Stops, and starts again with this configuration.
    pub async fn configure(&mut self, config: &str) {
        self.config = Some(config.to_owned());
        self.restart().await;
    }

    /// Starts again after [`Server::stop`].
    pub async fn resumed(mut self) -> Server {
        self.resume().await;
        self
    }

    pub async fn stop(&mut self) {
        self.take().shutdown().await.expect("an orderly end");
    }

    /// The running server itself, for the test to end as it likes.
    pub fn take(&mut self) -> Running {
        self.running.take().expect("a running server")
    }

    pub fn url(&self) -> String {
        self.running.as_ref().expect("a running server").url()
    }

    /// An actor without a credential.
    pub fn nobody(&self) -> Actor {
        Actor { http: self.http.clone(), url: self.url(), token: None }
    }

    pub fn admin(&self) -> Actor {
        let token = std::fs::read_to_string(self.directory.path().join(ADMIN_TOKEN_FILE)).expect("a token");
        self.with_token(token.trim())
    }

    pub fn with_token(&self, token: &str) -> Actor {
        Actor { token: Some(token.to_owned()), ..self.nobody() }
    }

    /// Registers an actor and grants it these scopes.
    pub async fn actor(&self, name: &str, scopes: &[&str]) -> Actor {
        let admin = self.admin();
        let made = admin.post("/v1/actors", json!({"actor_ref": name, "kind": "human"})).await.created();
        for scope in scopes {
            admin.post("/v1/grants", json!({"subject_ref": name, "action_scope": scope})).await.created();
        }
        self.with_token(made["token"].as_str().expect("a token"))
    }

    /// Sends these bytes as they are and returns the whole answer. Where `ends`, nothing more is to come.
    pub async fn raw(&self, request: Vec<u8>, ends: bool) -> String {
        let addr = self.running.as_ref().expect("a running server").addr;
        let exchange = move || {
            let mut stream = TcpStream::connect(addr).expect("a connection");
            // What is refused early may be cut off while it is still being sent.
            let _ = stream.write_all(&request);
            if ends {
                let _ = stream.shutdown(Shutdown::Write);
            }
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            String::from_utf8_lossy(&answer).into_owned()
        };
        tokio::task::spawn_blocking(exchange).await.expect("an exchange")
    }
}

pub fn options(data_dir: &Path) -> ServeOptions {
    ServeOptions { listen: "127.0.0.1:0".to_owned(), ..ServeOptions::new(data_dir) }
}

#[derive(Clone)]
pub struct Actor {
    http: reqwest::Client,
    url: String,
    token: Option<String>,
}

impl Actor {
    /// Of a server that runs elsewhere.
    pub fn at(url: &str, token: &str) -> Actor {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().expect("a client");
        Actor { http, url: url.to_owned(), token: Some(token.to_owned()) }
    }

    pub fn token(&self) -> String {
        self.token.clone().expect("a token")
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.url));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    pub async fn get(&self, path: &str) -> Answer {
        Answer::of(self.request(Method::GET, path)).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        Answer::of(self.request(Method::POST, path).json(&body)).await
    }

    pub async fn post_bytes(&self, path: &str, body: impl Into<Vec<u8>>) -> Answer {
        Answer::of(self.request(Method::POST, path).body(body.into())).await
    }

    pub async fn post_keyed(&self, path: &str, key: &str, body: Value) -> Answer {
        Answer::of(self.request(Method::POST, path).header("Idempotency-Key", key).json(&body)).await
    }

    pub async fn fire(&self, instance_id: &str, action: &str) -> Answer {
        self.post(&format!("/v1/processes/{instance_id}/transitions"), json!({"action": action})).await
    }

    pub async fn open_gate(&self, instance_id: &str, action: &str) -> Answer {
        self.post(&format!("/v1/processes/{instance_id}/gates"), json!({"action": action})).await
    }

    pub async fn decide(&self, instance_id: &str, action: &str, body: Value) -> Answer {
        self.post(&format!("/v1/processes/{instance_id}/gates/{action}/decision"), body).await
    }

    /// A process that moves freely between two states.
    pub async fn start_loop(&self, subject: &str) -> String {
        let body = json!({"declaration": two_states(), "subject_ref": subject, "gate_spec": {}});
        self.post("/v1/processes", body).await.created()["instance_id"].as_str().expect("an id").to_owned()
    }
}

pub fn two_states() -> Value {
    json!({
        "states": ["a", "b"],
        "transitions": [{"from": "a", "action": "go", "to": "b"}, {"from": "b", "action": "back", "to": "a"}],
        "initial_state": "a",
        "terminal_states": [],
    })
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub content_type: String,
    pub headers: reqwest::header::HeaderMap,
    pub body: Value,
    pub text: String,
}

impl Answer {
    pub async fn of(request: RequestBuilder) -> Answer {
        let response = request.send().await.expect("an answer");
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let content_type = headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or("").to_owned();
        let text = response.text().await.expect("a body");
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        Answer { status, content_type, headers, body, text }
    }

    #[track_caller]
    pub fn ok(self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text);
        self.body
    }

    #[track_caller]
    pub fn accepted(self) -> Value {
        assert_eq!(self.status, 202, "{}", self.text);
        self.body
    }

    #[track_caller]
    pub fn created(self) -> Value {
        assert_eq!(self.status, 201, "{}", self.text);
        self.body
    }

    /// It was refused with this code, and the problem is complete.
    #[track_caller]
    pub fn refused(&self, status: u16, code: &str) {
        assert_eq!((self.status, self.body["code"].as_str()), (status, Some(code)), "{}", self.text);
        self.is_problem();
    }

    #[track_caller]
    pub fn refused_at(&self, status: u16, code: &str, field: &str) {
        self.refused(status, code);
        assert_eq!(self.body["field"], field, "{}", self.text);
    }

    /// A refusal has all its members, and a code that is known.
    #[track_caller]
    pub fn is_problem(&self) {
        assert_eq!(self.content_type, "application/problem+json", "{}", self.text);
        let code = self.body["code"].as_str().expect("a code");
        assert!(Code::parse(code).is_some(), "{}", self.text);
        assert_eq!(self.body["type"], format!("/errors/{code}"));
        assert_eq!(self.body["status"], self.status);
        assert!(!self.body["title"].as_str().expect("a title").is_empty());
        assert!(!self.body["detail"].as_str().expect("a detail").is_empty());
    }
}

/// What a decision came to, without the record that it left.
pub fn decided(mut answer: Value) -> Value {
    let members = answer.as_object_mut().expect("an object");
    for member in ["event_id", "sequence", "record_hash", "assurance"] {
        assert!(members.remove(member).is_some(), "{member} is missing");
    }
    answer
}
