//! What this server does by itself: shell steps and their reports, runs by the clock, and what it tells operators of that.

use crate::support::{Actor, Server};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

const SHELL: &str = "[executors.shell]\nenabled = true\n";
const SHELL_AND_HTTP: &str = "[executors.shell]\nenabled = true\n[executors.http]\nallow_private = true\n";

async fn publish(admin: &Actor, definition: Value) {
    admin.post("/v1/definitions", definition).await.created();
}

async fn start(admin: &Actor, definition: &str) -> String {
    let started = admin.post("/v1/runs", json!({"definition": definition})).await.created();
    started["run_id"].as_str().expect("an id").to_owned()
}

async fn until<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    for _ in 0..400 {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("{what}");
}

async fn until_state(admin: &Actor, run_id: &str, state: &str) -> Value {
    until(&format!("{run_id} is not {state}"), async || {
        Some(admin.get(&format!("/v1/runs/{run_id}")).await.ok()).filter(|run| run["state"] == state)
    })
    .await
}

fn lines(file: &Path) -> Vec<String> {
    std::fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// What the engine will never take is told at once, and the command is not run again for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_that_cannot_be_taken_fails_the_step() {
    let server = Server::with_config(Some(SHELL)).await;
    let admin = server.admin();
    let many = vec![json!({"type": "some.thing"}); 3000];
    let long = "a".repeat(70_000);
    for (name, report, told) in [
        ("own", json!({"result": "completed", "outbound_events": [{"type": "run.done"}]}), "outbound_events[0].type"),
        ("blank", json!({"result": "completed", "outbound_events": [{"type": " "}]}), "outbound_events[0].type"),
        ("silent", json!({"result": "waiting", "waiting_event_type": ""}), "waiting_event_type"),
        ("long", json!({"result": "waiting", "waiting_event_type": long}), "too-large"),
        ("many", json!({"result": "completed", "outbound_events": many}), "too-large"),
    ] {
        let (count, said) = (server.directory.path().join(name), server.directory.path().join(format!("{name}.json")));
        std::fs::write(&said, report.to_string()).expect("a report");
        let command = format!("echo >> '{}'; cat '{}'", count.display(), said.display());
        let step = json!({"name": "MAKE", "run": "shell", "command": command});
        publish(&admin, json!({"kind": "workflow", "name": name, "steps": [step]})).await;
        let run = until_state(&admin, &start(&admin, name).await, "failed").await;
        let step = &run["steps"][0];
        let error = step["last_error"].as_str().expect("an error");
        assert!(error.contains(told) && error.len() < 5000, "{name}: {error}");
        assert_eq!((&step["error_category"], &step["attempts"]), (&json!("validation"), &json!(1)), "{name}");
        assert_eq!(lines(&count).len(), 1, "{name}");
    }
}

/// A step that writes its process's number again and again, and the file it writes to.
async fn scribbling(server: &Server, admin: &Actor) -> (String, PathBuf) {
    let file = server.directory.path().join("written");
    let command = format!("while :; do echo $$ >> '{}'; sleep 0.01; done", file.display());
    let step = json!({"name": "WRITE", "run": "shell", "command": command, "idempotent": true});
    publish(admin, json!({"kind": "workflow", "name": "scribble", "steps": [step]})).await;
    let run_id = start(admin, "scribble").await;
    until("nothing is written", async || lines(&file).pop()).await;
    (run_id, file)
}

/// Only claimed steps are executed: once a cancel is answered, the process is as good as gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_ends_with_its_lease() {
    let server = Server::with_config(Some(SHELL)).await;
    let admin = server.admin();
    let (run_id, file) = scribbling(&server, &admin).await;
    admin.post(&format!("/v1/runs/{run_id}/cancel"), json!({"reason": "enough"})).await.ok();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let written = lines(&file).len();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(lines(&file).len(), written);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_of_one_step_are_never_at_work_together() {
    let server = Server::with_config(Some(SHELL)).await;
    let admin = server.admin();
    let (run_id, file) = scribbling(&server, &admin).await;
    for _ in 0..3 {
        let former = lines(&file).pop();
        admin.post(&format!("/v1/runs/{run_id}/stop"), json!({"reason": "enough"})).await.ok();
        admin.post(&format!("/v1/runs/{run_id}/resume"), json!({})).await.ok();
        until("nobody goes on", async || lines(&file).pop().filter(|last| Some(last) != former.as_ref())).await;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    admin.post(&format!("/v1/runs/{run_id}/cancel"), json!({"reason": "enough"})).await.ok();
    let mut turns = lines(&file);
    turns.dedup();
    assert_eq!(turns.len(), 4, "they took turns: {turns:?}");
}

/// A compensation is carried out by the executors: it sees the output of what it undoes, is tried again, and has its own time.
#[tokio::test(flavor = "multi_thread")]
async fn executors_undo_what_they_did() {
    let server = Server::with_config(Some(SHELL_AND_HTTP)).await;
    let admin = server.admin();
    let (file, count) = (server.directory.path().join("undone"), server.directory.path().join("count"));
    // The first attempt asks to be tried again.
    let again = format!(
        "echo >> '{0}'; test $(wc -l < '{0}') -ge 2 || exit 75; echo ${{output.id}} > '{1}'",
        count.display(),
        file.display()
    );
    let definition = json!({
        "kind": "workflow", "name": "undone", "order": "linear", "failurePolicy": "compensate",
        "retryPolicy": {"maxRetries": 2, "backoff": "constant", "initialDelay": "1ms", "maxDelay": "1ms"},
        "steps": [
            {"name": "MAKE", "run": "shell", "command": "echo '{\"id\": 7}'"},
            {"name": "CALL", "run": "shell", "command": "echo '{\"path\": \"healthz\"}'"},
            {"name": "SLOW", "run": "shell", "command": "echo 1"},
            {"name": "FAIL", "run": "shell", "command": "exit 1"},
        ],
        "compensation": [
            {"step": "MAKE", "action": "Delete", "run": "shell", "command": again},
            {"step": "CALL", "action": "Call off", "run": "http", "url": format!("{}/${{output.path}}", server.url())},
            {"step": "SLOW", "action": "Wait", "run": "shell", "command": "sleep 60", "timeout": "50ms", "onFailure": "hold"},
        ],
    });
    let publisher = server.actor("publisher", &["definitions:publish"]).await;
    publisher.post("/v1/definitions", definition.clone()).await.refused(403, "permission-denied");
    publish(&admin, definition).await;
    let run_id = start(&admin, "undone").await;
    let route = format!("/v1/runs/{run_id}/steps/undo:SLOW");
    // Its process ends with its time, and its failure waits for an operator.
    until("SLOW is not held", async || {
        let step = admin.get(&route).await;
        let held = step.body["state_code"] == "failed" && step.body["next_run_at"].is_null();
        held.then_some(())
    })
    .await;
    assert_eq!(admin.get(&format!("/v1/runs/{run_id}")).await.ok()["state"], "compensating");
    let actions = admin.get(&format!("{route}/actions")).await.ok();
    let offered: Vec<&str> = actions
        .as_array()
        .expect("a list")
        .iter()
        .filter(|a| a["ok"] == true)
        .filter_map(|a| a["action"].as_str())
        .collect();
    assert_eq!(offered, ["retry", "declare-effect"]);
    let declared = json!({"result": "completed", "reason": "nothing to wait for"});
    admin.post(&format!("{route}/declare-effect"), declared).await.ok();
    let run = until_state(&admin, &run_id, "completed").await;
    assert_eq!(run["outcome"], "rolled_back");
    assert_eq!(lines(&file), ["7"]);
    assert_eq!(lines(&count).len(), 2);
    let called = admin.get(&format!("/v1/runs/{run_id}/steps/undo:CALL")).await.ok();
    assert_eq!((&called["run"], &called["output"]["status"]), (&json!("http"), &json!(200)));
}

/// The value of the first sample whose line begins so.
async fn sample(admin: &Actor, name: &str) -> Option<f64> {
    let text = admin.get("/metrics").await.text;
    text.lines().find(|line| line.starts_with(name))?.rsplit(' ').next()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_tell_of_runs_steps_and_queues() {
    let server = Server::with_config(Some(SHELL)).await;
    let admin = server.admin();
    let wait = json!({"name": "WAIT", "queue": "metered"});
    publish(&admin, json!({"kind": "workflow", "name": "metered", "steps": [wait]})).await;
    let queue = r#"countersign_queue_ready{queue="metered"}"#;
    for _ in 0..3 {
        start(&admin, "metered").await;
    }
    assert_eq!(sample(&admin, queue).await, Some(3.0));
    let claim = json!({"worker_id": "w", "max": 2, "lease_ms": 60000});
    let tasks = admin.post("/v1/queues/metered/claim", claim).await.ok();
    assert_eq!(sample(&admin, queue).await, Some(1.0));
    // One for each lease; other servers of this process show theirs under the same name.
    let timers = async || sample(&admin, "countersign_timers ").await.filter(|timers| *timers >= 2.0);
    until("nothing is looked at", timers).await;
    for (task, verb) in tasks["tasks"].as_array().expect("tasks").iter().zip(["complete", "dead"]) {
        let task_id = task["task_id"].as_str().expect("an id");
        let mut body = json!({"lease_token": task["lease_token"]});
        if verb == "dead" {
            body["last_error"] = json!("it broke");
        }
        admin.post(&format!("/v1/tasks/{task_id}/{verb}"), body).await.ok();
    }
    // Other tests of this process count here too.
    for (name, least) in [
        ("countersign_runs_started_total ", 3.0),
        (r#"countersign_runs_ended_total{state="completed"}"#, 1.0),
        (r#"countersign_runs_ended_total{state="failed"}"#, 1.0),
        (r#"countersign_steps_total{state="completed"}"#, 1.0),
        (r#"countersign_steps_total{state="failed"}"#, 1.0),
    ] {
        assert!(sample(&admin, name).await >= Some(least), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ticks_that_are_skipped_are_counted() {
    let server = Server::start().await;
    let admin = server.admin();
    let every_minute = json!([{"cron": "* * * * *"}]);
    let definition = json!({"kind": "workflow", "name": "clocked", "schedule": every_minute, "queue": "q", "steps": [{"name": "A"}]});
    publish(&admin, definition).await;
    let counted =
        async |result: &str| sample(&admin, &format!("countersign_schedule_ticks_total{{result=\"{result}\"}}")).await;
    until("no tick was skipped", async || {
        server.pass_days(1);
        tokio::time::sleep(Duration::from_secs(1)).await;
        counted("skipped").await
    })
    .await;
    assert!(counted("started").await >= Some(1.0));
    assert_eq!(admin.get("/v1/runs").await.ok()["items"].as_array().map(Vec::len), Some(1));
}
