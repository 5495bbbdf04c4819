//! The binary under pressure from outside: connections that announce and say nothing, a system without file descriptors, a
//! full disk, and a wall clock that is set. It goes on, and `/readyz` says what is wrong.

use reqwest::Client;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const ONE: &str = "kind: workflow\nname: one\nqueue: q\nsteps: [{name: A, retryPolicy: {maxRetries: 100}}]\n";

/// Asks until there is an answer.
async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    for _ in 0..3000 {
        if let Some(answer) = ask().await {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("never: {what}");
}

/// `countersign serve` in a process of its own, started by a shell that says this first.
struct Served {
    child: Child,
    addr: SocketAddr,
    directory: PathBuf,
    client: Client,
}

impl Served {
    async fn start(directory: &Path, first: &str, variables: &[(&str, &str)]) -> Served {
        let _ = rustls::crypto::ring::default_provider().install_default();
        // Another test may take the port before the server does.
        for _ in 0..5 {
            let mut served = Served::try_start(directory, first, variables);
            for _ in 0..3000 {
                if served.get("/healthz").await.is_some() {
                    return served;
                }
                if served.child.try_wait().expect("a process").is_some() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        panic!("it never serves: {}", std::fs::read_to_string(directory.join("log")).unwrap_or_default());
    }

    fn try_start(directory: &Path, first: &str, variables: &[(&str, &str)]) -> Served {
        let addr = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
        let script = format!("{first}; exec \"$0\" serve --data-dir \"$1\" --listen {addr} --log text 2>>\"$1/log\"");
        let child = Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_countersign")])
            .arg(directory)
            .envs(variables.iter().copied())
            .env_remove("COUNTERSIGN_LOG")
            .stdin(Stdio::null())
            .spawn()
            .expect("a process");
        let client = Client::builder().no_proxy().build().expect("a client");
        Served { child, addr, directory: directory.to_owned(), client }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    async fn get(&self, path: &str) -> Option<String> {
        let answer = self.client.get(format!("http://{}{path}", self.addr)).send().await.ok()?;
        answer.text().await.ok()
    }

    async fn post(&self, path: &str, body: String) -> (u16, Value) {
        let token = std::fs::read_to_string(self.directory.join("admin.token")).expect("a token");
        let request = self.client.post(format!("http://{}{path}", self.addr)).bearer_auth(token.trim());
        let answer = request.header("Content-Type", "application/json").body(body).send().await.expect("an answer");
        let status = answer.status().as_u16();
        (status, serde_json::from_str(&answer.text().await.expect("a body")).unwrap_or(Value::Null))
    }

    async fn publish(&self) {
        let token = std::fs::read_to_string(self.directory.join("admin.token")).expect("a token");
        let request = self.client.post(format!("http://{}/v1/definitions", self.addr)).bearer_auth(token.trim());
        assert_eq!(request.body(ONE).send().await.expect("an answer").status(), 201);
    }

    async fn start_run(&self) {
        let (status, answer) = self.post("/v1/runs", json!({"definition": "one", "input": {}}).to_string()).await;
        assert_eq!(status, 201, "{answer}");
    }

    /// Waits for a step and takes it for a second.
    async fn claim(&self) -> Value {
        let claim = json!({"worker_id": "w", "max": 1, "lease_ms": 1000, "wait_ms": 30_000});
        let (status, mut answer) = self.post("/v1/queues/q/claim", claim.to_string()).await;
        assert_eq!(status, 200, "{answer}");
        let tasks = answer["tasks"].take();
        assert_eq!(tasks.as_array().map(Vec::len), Some(1), "{answer}; {}", self.log());
        tasks[0].clone()
    }

    /// The status, and each check with whether it is in order.
    async fn ready(&self) -> (u16, Value) {
        let answer = self.client.get(format!("http://{}/readyz", self.addr)).send().await.expect("an answer");
        let status = answer.status().as_u16();
        let body: Value = serde_json::from_str(&answer.text().await.expect("a body")).expect("JSON");
        (status, body["checks"].clone())
    }

    async fn check(&self, name: &str) -> (u16, Value) {
        let (status, checks) = self.ready().await;
        let found = checks.as_array().and_then(|checks| checks.iter().find(|check| check["name"] == name).cloned());
        (status, found.unwrap_or_else(|| panic!("no {name} in {checks}")))
    }

    fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("a process");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
        line.trim().trim_end_matches("kB").trim().parse::<u64>().expect("a number") * 1024
    }

    fn connect(&self) -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect(self.addr)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(stream)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn directory() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_takes_memory_when_it_comes_and_not_when_it_is_announced() {
    let directory = directory();
    let served = Served::start(directory.path(), ":", &[]).await;
    let token = std::fs::read_to_string(directory.path().join("admin.token")).expect("a token");
    served.get("/readyz").await.expect("an answer");
    let before = served.resident_bytes();
    let head = format!(
        "POST /v1/runs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: 1048576\r\n\r\n{{",
        token.trim()
    );
    let mut announced = Vec::new();
    for _ in 0..400 {
        let mut stream = served.connect().expect("a connection");
        stream.write_all(head.as_bytes()).expect("sent");
        announced.push(stream);
    }
    // Answered on a connection that came later: the others have been read.
    served.get("/readyz").await.expect("an answer");
    let grown = served.resident_bytes().saturating_sub(before);
    assert!(grown < 100 << 20, "{} MiB for 400 bytes", grown >> 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_file_descriptors_it_goes_on() {
    let directory = directory();
    let served = Served::start(directory.path(), "ulimit -n 64", &[]).await;
    let mut silent: Vec<TcpStream> = (0..120).filter_map(|_| served.connect().ok()).collect();
    assert!(!silent.is_empty());
    eventually("it says so", || async { served.log().contains("could not be accepted").then_some(()) }).await;
    let asked = |stream: &mut TcpStream| -> std::io::Result<String> {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    // Idle ones make room, also while all of them stay open.
    let mut last = served.connect().expect("a connection");
    let answer = tokio::task::spawn_blocking(move || asked(&mut last)).await.expect("a thread");
    assert!(answer.as_ref().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")), "{answer:?}");
    silent.clear();
    eventually("it serves again", || async { served.get("/readyz").await.map(|_| ()) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_full_disk_it_is_not_ready_and_says_why() {
    let directory = directory();
    // No file may grow beyond a few megabytes; without the signal that would end the process.
    let served = Served::start(directory.path(), "trap '' XFSZ; ulimit -S -f 8192", &[]).await;
    assert_eq!(served.check("store_write").await.0, 200);
    served.publish().await;
    let input = json!({"definition": "one", "input": {"text": "x".repeat(200_000)}}).to_string();
    let refused = eventually("the disk is full", || async {
        let (status, answer) = served.post("/v1/runs", input.clone()).await;
        (status != 201).then_some((status, answer))
    })
    .await;
    assert_eq!((refused.0, &refused.1["code"]), (503, &json!("recording-failure")), "{}", refused.1);
    // What is left is used up by what is small.
    let small = json!({"definition": "one", "input": {}}).to_string();
    let body = eventually("not ready", || async {
        served.post("/v1/runs", small.clone()).await;
        let body: Value = serde_json::from_str(&served.get("/readyz").await?).ok()?;
        (body["code"] == "recording-failure").then_some(body)
    })
    .await;
    let checks = body["checks"].as_array().expect("checks");
    let check = checks.iter().find(|check| check["name"] == "store_write").expect("a check");
    assert_eq!(
        (&body["status"], &check["ok"], &check["severity"]),
        (&json!(503), &json!(false), &json!("error")),
        "{body}"
    );
    assert!(body["detail"].as_str().is_some_and(|detail| detail.contains("store_write")), "{body}");

    let pid = served.child.id().to_string();
    let raised = Command::new("prlimit").args(["--fsize=unlimited", "--pid", &pid]).status().expect("prlimit");
    assert!(raised.success());
    eventually("there is room again", || async { (served.ready().await.0 == 200).then_some(()) }).await;
    served.start_run().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_cannot_seal_is_not_ready() {
    let directory = directory();
    drop(Served::start(directory.path(), ":", &[]).await);
    std::fs::remove_file(directory.path().join("log.key")).expect("a key");
    let served = Served::start(directory.path(), ":", &[]).await;
    let (status, check) = served.check("sealing").await;
    assert_eq!((status, &check["ok"]), (503, &json!(false)), "{check}");
    assert!(check["detail"].as_str().is_some_and(|detail| detail.contains("log.key")), "{check}");
}

/// Where the clock is set by a library that stands between the program and the system.
struct Faked {
    file: PathBuf,
    library: String,
}

impl Faked {
    fn new(directory: &Path) -> Faked {
        let places = std::fs::read_dir("/usr/lib").expect("libraries").flatten().map(|entry| entry.path());
        let library = places.map(|place| place.join("faketime/libfaketimeMT.so.1")).find(|path| path.exists());
        let library = library.expect("libfaketime is not there: scripts/setup.sh faketime installs it");
        Faked { file: directory.join("clock"), library: library.display().to_string() }
    }

    fn set(&self, offset: &str) {
        let new = self.file.with_extension("new");
        std::fs::write(&new, format!("{offset}\n")).expect("a file");
        std::fs::rename(&new, &self.file).expect("a file");
    }

    async fn serve(&self, directory: &Path) -> Served {
        let variables = [
            ("LD_PRELOAD", self.library.as_str()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.to_str().expect("a path")),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("DONT_FAKE_MONOTONIC", "1"),
        ];
        Served::start(directory, ":", &variables).await
    }
}

async fn clock_is(served: &Served, ok: bool, says: &str) {
    eventually(says, || async {
        let (status, check) = served.check("clock").await;
        assert_eq!(status, 200, "a clock is a warning");
        let said = check["detail"].as_str().is_some_and(|detail| detail.contains(says));
        (check["ok"] == ok && said).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_go_on_while_the_wall_clock_is_set_ahead_and_back() {
    let directory = directory();
    let faked = Faked::new(directory.path());
    faked.set("+0");
    let served = faked.serve(directory.path()).await;
    served.publish().await;
    served.start_run().await;
    let before = served.claim().await["locked_until"].clone();
    faked.set("+30d");
    clock_is(&served, false, "the wall clock went").await;
    let during = served.claim().await["locked_until"].clone();
    faked.set("+0");
    clock_is(&served, true, "goes by the wall clock").await;
    let after = served.claim().await["locked_until"].clone();
    let times = [before, during, after].map(|time| time.as_str().expect("a time").to_owned());
    assert!(times.is_sorted(), "{times:?}");
    let metrics = served.get("/metrics").await.expect("metrics");
    for direction in ["ahead", "back"] {
        let counted = format!("countersign_clock_jumps_total{{direction=\"{direction}\"}} 1");
        assert!(metrics.contains(&counted), "{metrics}");
    }
    assert!(served.log().contains("the wall clock jumped"), "{}", served.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_clock_was_ahead_when_it_last_ran_goes_on_from_there() {
    let directory = directory();
    let faked = Faked::new(directory.path());
    faked.set("+30d");
    let served = faked.serve(directory.path()).await;
    served.publish().await;
    served.start_run().await;
    let ahead = served.claim().await["locked_until"].as_str().expect("a time").to_owned();
    drop(served);
    faked.set("+0");
    let served = faked.serve(directory.path()).await;
    clock_is(&served, false, "ahead of the wall clock").await;
    let next = served.claim().await["locked_until"].as_str().expect("a time").to_owned();
    let later = served.claim().await["locked_until"].as_str().expect("a time").to_owned();
    assert!(ahead < next && next < later, "{ahead} {next} {later}");
}
