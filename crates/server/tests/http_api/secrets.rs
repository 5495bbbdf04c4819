//! A secret appears nowhere: the real server, with its log at its most talkative, carries out steps that do their best to tell
//! one, and everything that it wrote is searched.

use crate::support::Actor;
use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode, Uri};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const PASSWORD: &str = "pl4nted/pässword \"x\"";
const TOKEN: &str = "pl4nted-token-6b1f";

/// The server as a process of its own.
struct Process {
    child: Child,
    directory: TempDir,
    admin: Actor,
}

impl Process {
    async fn start() -> Process {
        let directory = tempfile::tempdir().expect("a directory");
        // What is secret by right is kept apart from what is searched.
        let secrets = directory.path().join("secrets");
        std::fs::create_dir(&secrets).expect("a directory");
        std::fs::write(secrets.join("pg"), format!("{PASSWORD}\n")).expect("a secret");
        let config = directory.path().join("countersign.toml");
        let toml = format!(
            "[executors.shell]\nenabled = true\n[executors.http]\nallow_private = true\n[secrets]\npg = {{file = \"{0}/pg\"}}\n\
             gone = {{file = \"{0}/gone\"}}\ntoken = {{env = \"PLANTED_TOKEN\"}}\n[sidecar]\ndir = \"{1}\"\n",
            secrets.display(),
            directory.path().join("data/sidecars").display()
        );
        std::fs::write(&config, toml).expect("a configuration");
        let log = File::create(directory.path().join("log")).expect("a log");
        let data = directory.path().join("data");
        let child = Command::new(env!("CARGO_BIN_EXE_countersign"))
            .args(["serve", "--listen", "127.0.0.1:0", "--log", "json"])
            .arg("--data-dir")
            .arg(&data)
            .arg("--config")
            .arg(&config)
            .env("COUNTERSIGN_LOG", "trace")
            .env("PLANTED_TOKEN", TOKEN)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("a server");
        let path = directory.path().join("log");
        let addr = until("the server does not serve", async || {
            let log = std::fs::read_to_string(&path).unwrap_or_default();
            let serving = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            serving
                .filter(|line| line["message"] == "serving")
                .find_map(|line| line["addr"].as_str().map(str::to_owned))
        })
        .await;
        let token = std::fs::read_to_string(data.join("admin.token")).expect("a token");
        Process { child, directory, admin: Actor::at(&format!("http://{addr}"), token.trim()) }
    }

    /// Publishes a workflow of one step, starts it and gives the run once it has ended.
    async fn play(&self, name: &str, mut step: Value) -> Value {
        step["name"] = json!("TELL");
        step["retryPolicy"] = json!({"maxRetries": 0});
        let definition = json!({"kind": "workflow", "name": name, "steps": [step]});
        self.admin.post("/v1/definitions", definition).await.created();
        let started = self.admin.post("/v1/runs", json!({"definition": name})).await.created();
        let path = format!("/v1/runs/{}", started["run_id"].as_str().expect("an id"));
        until(&format!("{name} does not end"), async || {
            let run = self.admin.get(&path).await.ok();
            Some(run).filter(|run| run["state"] == "completed" || run["state"] == "failed")
        })
        .await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn until<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    for _ in 0..1200 {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{what}");
}

/// A server that says back everything it was sent.
async fn echo() -> String {
    let router = Router::new().fallback(async |uri: Uri, headers: HeaderMap, body: Bytes| {
        let code = uri.path().trim_start_matches('/').parse().expect("a status");
        let told: Vec<String> = headers.iter().map(|(name, value)| format!("{name}: {value:?}")).collect();
        let value = |name: &str| String::from_utf8_lossy(headers[name].as_bytes()).into_owned();
        let text = format!("{} {told:?} {}", value("authorization"), String::from_utf8_lossy(&body));
        let again = [("x-again", headers["authorization"].clone())];
        (StatusCode::from_u16(code).expect("a status"), again, text)
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let base = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, router).await });
    base
}

/// The forms that are searched for.
fn forms() -> Vec<String> {
    let mut forms = vec![];
    for secret in [PASSWORD, TOKEN] {
        let json = json!(secret).to_string();
        forms.push(secret.to_owned());
        forms.push(json.trim_matches('"').to_owned());
        forms.push(BASE64_STANDARD.encode(secret).trim_end_matches('=').to_owned());
        let percent = |byte: u8| match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        };
        forms.push(secret.bytes().map(percent).collect());
    }
    // As the middle of `user:secret`.
    forms.push(BASE64_STANDARD.encode(format!("user:{TOKEN}"))[8..24].to_owned());
    forms.push("pl4nted".to_owned());
    forms
}

fn search(place: &str, bytes: &[u8], forms: &[String]) {
    for form in forms {
        let found = bytes.windows(form.len()).position(|window| window == form.as_bytes());
        if let Some(at) = found {
            let around = &bytes[at.saturating_sub(200)..(at + 200).min(bytes.len())];
            panic!("{place} holds {form}: {}", String::from_utf8_lossy(around));
        }
    }
}

fn search_files(directory: &Path, forms: &[String]) {
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            search_files(&path, forms);
        } else {
            search(&path.display().to_string(), &std::fs::read(&path).expect("a file"), forms);
        }
    }
}

/// What steps do that tell secrets, and how each ends.
fn telling(base: &str, secrets: &Path) -> Vec<(&'static str, Value, &'static str)> {
    let env = json!({"PW": "${secrets.pg}", "TOKEN": "${secrets.token}"});
    let shell = |command: &str| json!({"run": "shell", "command": command, "env": env.clone()});
    let http = |status: u16| {
        json!({"run": "http", "method": "POST", "url": format!("{base}/{status}"),
            "headers": {"Authorization": "Bearer ${secrets.token}"}, "body": {"password": "${secrets.pg}"}})
    };
    vec![
        ("output", shell(r#"printf '{"k":"%s"}' "$TOKEN""#), "completed"),
        (
            "encoded",
            shell(r#"printf '["%s","%s"]' "$(printf %s "user:$TOKEN" | base64)" "$(printf %s "$PW" | base64 -w0)""#),
            "completed",
        ),
        (
            "event",
            shell(r#"printf '{"result":"completed","outbound_events":[{"type":"told","data":"%s"}]}' "$TOKEN""#),
            "completed",
        ),
        ("failing", shell(r#"echo "it was $PW and $TOKEN" >&2; exit 3"#), "failed"),
        ("dead", shell(r#"printf '{"result":"dead","last_error":"it was %s"}' "$TOKEN""#), "failed"),
        ("retried", shell(r#"echo "it was $PW" >&2; exit 75"#), "failed"),
        // One that it was not given, but found.
        ("found", json!({"run": "shell", "command": format!("cat '{}/pg' >&2; exit 1", secrets.display())}), "failed"),
        ("answered", http(200), "completed"),
        ("refused", http(400), "failed"),
        ("broken", http(500), "failed"),
        ("absent", json!({"run": "shell", "command": "true", "env": {"X": "${secrets.gone}"}}), "failed"),
        ("unknown", json!({"run": "http", "url": base, "headers": {"X": "${secrets.nowhere}"}}), "failed"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_nowhere_but_where_it_belongs() {
    let (server, base) = (Process::start().await, echo().await);
    let admin = &server.admin;
    let mut runs = vec![];
    for (name, step, ends) in telling(&base, &server.directory.path().join("secrets")) {
        let run = server.play(name, step).await;
        assert_eq!(run["state"], ends, "{name}: {run}");
        let shown = run.to_string();
        let silent = ["event", "absent", "unknown"].contains(&name);
        assert!(silent || shown.contains("***"), "{name}: {shown}");
        runs.push((name, run));
    }
    let error = |name: &str| {
        let (_, run) = runs.iter().find(|(known, _)| *known == name).expect("a run");
        run["steps"][0]["last_error"].as_str().expect("an error").to_owned()
    };
    let absent = error("absent");
    assert!(
        absent.starts_with("EXPRESSION_ERROR: env: ") && absent.contains("secret `gone` cannot be read"),
        "{absent}"
    );
    assert!(error("unknown").contains("secret `nowhere` is not configured"), "{}", error("unknown"));
    assert!(error("failing").contains("it was *** and ***"), "{}", error("failing"));

    let forms = forms();
    for (name, run) in &runs {
        let run_id = run["run_id"].as_str().expect("an id");
        search(name, run.to_string().as_bytes(), &forms);
        for path in [format!("/v1/runs/{run_id}/steps/TELL/history"), format!("/v1/timeline?run_id={run_id}")] {
            let answer = admin.get(&path).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text);
            search(&path, answer.text.as_bytes(), &forms);
        }
        let bundle = admin.request(reqwest::Method::GET, &format!("/v1/ledger/export?instance_id={run_id}"));
        let bundle = bundle.send().await.expect("an answer").bytes().await.expect("a bundle");
        let mut archive = zip::ZipArchive::new(std::io::Cursor::new(bundle)).expect("a bundle");
        for i in 0..archive.len() {
            let mut content = vec![];
            archive.by_index(i).expect("a file").read_to_end(&mut content).expect("its content");
            search("a bundle", &content, &forms);
        }
    }
    search_runbook(&server, &forms).await;
    for path in ["/v1/runs", "/v1/ledger/records?limit=500", "/v1/outbox", "/metrics", "/openapi.json"] {
        let answer = admin.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        search(path, answer.text.as_bytes(), &forms);
    }
    search_files(&server.directory.path().join("data"), &forms);
    search("the log", &std::fs::read(server.directory.path().join("log")).expect("a log"), &forms);
}

/// A runbook whose pins, probes, outputs and requests tell secrets, and stops: its files are searched where the API gives them and
/// where the server keeps them.
async fn search_runbook(server: &Process, forms: &[String]) {
    let admin = &server.admin;
    let env = json!({"PW": "${secrets.pg}", "TOKEN": "${secrets.token}"});
    let world = server.directory.path().join("world");
    std::fs::write(&world, "there").expect("a file");
    let probe =
        format!("cat '{}' && echo \"it is $TOKEN\" || {{ echo \"lost $PW $TOKEN\" >&2; exit 3; }}", world.display());
    let definition = json!({
        "kind": "workflow", "name": "telling", "order": "linear", "failurePolicy": "fail-closed",
        "gate_spec": {"sovereign": {"approver_ref": "admin", "scope": "s"}},
        "steps": [
            {"name": "pin", "run": "shell", "readOnly": true, "env": env, "command": "echo \"$PW\"; printf '{\"k\":\"%s\"}' \"$TOKEN\"",
                "pins": {"world": {"run": "shell", "command": probe, "env": env}}},
            {"name": "spoil", "run": "shell", "readOnly": true, "command": ["rm", world]},
            {"name": "apply", "run": "shell", "command": "true"},
        ],
    });
    admin.post("/v1/definitions", definition).await.created();
    let started = admin.post("/v1/runs", json!({"definition": "telling"})).await.created();
    let run_id = started["run_id"].as_str().expect("an id").to_owned();
    let path = format!("/v1/runs/{run_id}");
    let run = until("it does not stop", async || {
        let run = admin.get(&path).await.ok();
        Some(run).filter(|run| run["state"] == "stopped" || run["state"] == "failed")
    });
    let run = run.await;
    assert_eq!((&run["state"], &run["outcome"]), (&json!("stopped"), &json!("drift")), "{run:#}");
    let error = run["pin_errors"][0]["error"].as_str().expect("why there is no value");
    assert!(error.contains("lost *** ***"), "{error}");
    search(&path, run.to_string().as_bytes(), forms);
    for path in [format!("{path}/sidecar"), "/v1/inbox".to_owned()] {
        let answer = admin.get(&path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        search(&path, answer.text.as_bytes(), forms);
    }
    let files = admin.get(&format!("{path}/sidecar")).await.ok()["files"].clone();
    let report = files["stop-route-report.md"].as_str().expect("a report");
    assert!(
        report.contains("***") && files["phase-01.md"].as_str().is_some_and(|text| text.contains("***")),
        "{files:#}"
    );
    let sidecars = server.directory.path().join("data/sidecars");
    let kept = until("the files are not kept", async || {
        let runs = std::fs::read_dir(&sidecars).expect("a directory").filter_map(Result::ok);
        let of_run = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().ends_with(&run_id);
        let place = runs.into_iter().find(of_run)?.path();
        let report = std::fs::read_to_string(place.join("stop-route-report.md")).ok()?;
        let state = std::fs::read_to_string(place.join("state.json")).ok()?;
        (Some(state.as_str()) == files["state.json"].as_str()).then_some(report)
    });
    assert_eq!(kept.await, report);
}

/// What is read anew for every step is used anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_secret_is_used_from_the_next_step_on() {
    let server = Process::start().await;
    let file = server.directory.path().join("secrets/pg");
    let step = || json!({"run": "shell", "command": "printf %s \"$PW\" | sha256sum", "env": {"PW": "${secrets.pg}"}});
    let digest = async |name: &str| {
        let mut step = step();
        step["command"] = json!("printf '\"%s\"' \"$(printf %s \"$PW\" | sha256sum | cut -c1-64)\"");
        let run = server.play(name, step).await;
        run["steps"][0]["output"].as_str().unwrap_or_default().to_owned()
    };
    let first = digest("first").await;
    std::fs::write(&file, "an entirely different one").expect("rotated");
    let second = digest("second").await;
    assert!(first.len() == 64 && second.len() == 64 && first != second, "{first} {second}");
    std::fs::remove_file(&file).expect("removed");
    let run = server.play("third", step()).await;
    assert!(run["steps"][0]["last_error"].as_str().is_some_and(|error| error.contains("secret `pg`")), "{run}");
}
