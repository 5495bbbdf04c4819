//! Runbooks whose pins and steps the server carries out itself: real files change under them.

use crate::support::{Actor, Server};
use reqwest::Method;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

pub const SHELL: &str = "[executors.shell]\nenabled = true\n[executors.http]\nallow_private = true\n";

/// A definition that fails closed, with these steps.
pub fn runbook(name: &str, steps: Value) -> Value {
    json!({
        "kind": "workflow", "name": name, "order": "linear", "failurePolicy": "fail-closed", "hardCap": "60m",
        "gate_spec": {"sovereign": {"approver_ref": "owner", "scope": "prod:resume"}}, "steps": steps,
    })
}

pub async fn started(admin: &Actor, definition: Value) -> String {
    let name = definition["name"].clone();
    admin.post("/v1/definitions", definition).await.created();
    let started = admin.post("/v1/runs", json!({"definition": name})).await.created();
    started["run_id"].as_str().expect("an id").to_owned()
}

/// The run once this holds of it.
pub async fn until(admin: &Actor, run_id: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let mut run = Value::Null;
    for _ in 0..1200 {
        run = admin.get(&format!("/v1/runs/{run_id}")).await.ok();
        if holds(&run) {
            return run;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("{what}: {run:#}");
}

pub async fn until_state(admin: &Actor, run_id: &str, state: &str) -> Value {
    until(admin, run_id, state, |run| run["state"] == state).await
}

/// Takes the one task of this queue, and completes it.
async fn work(admin: &Actor, queue: &str) {
    let claim = json!({"worker_id": "w", "lease_ms": 60000, "wait_ms": 20000});
    let claimed = admin.post(&format!("/v1/queues/{queue}/claim"), claim).await.ok();
    let task = &claimed["tasks"][0];
    let path = format!("/v1/tasks/{}/complete", task["task_id"].as_str().expect("a task"));
    admin.post(&path, json!({"lease_token": task["lease_token"]})).await.ok();
}

fn lines(file: &Path) -> usize {
    std::fs::read_to_string(file).unwrap_or_default().lines().count()
}

/// The approval of the gate `resume` that is open now.
pub async fn approve_resume(admin: &Actor, owner: &Actor, run_id: &str) -> Value {
    let gate = until(admin, run_id, "no gate", |run| gate_of(run).is_some()).await;
    let step_id = gate_of(&gate).expect("a gate")["step_id"].clone();
    let decision = json!({"decision": "approve", "reason": "seen"});
    owner.post(&format!("/v1/runs/{run_id}/gates/resume/decision"), decision).await.ok();
    step_id
}

fn gate_of(run: &Value) -> Option<&Value> {
    let gates = run["gates"].as_array()?;
    gates.iter().find(|gate| gate["action"] == "resume" && gate["state"] == "Pending")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changes_stops_the_run_before_the_next_step() {
    let server = Server::with_config(Some(SHELL)).await;
    let (admin, owner) = (server.admin(), server.actor("owner", &[]).await);
    let (file, marker) = (server.directory.path().join("manifest"), server.directory.path().join("marker"));
    std::fs::write(&file, "as reviewed").expect("a file");
    let steps = json!([
        {"name": "pin", "run": "shell", "readOnly": true, "command": "echo '{\"rows\": 2}'",
            "checks": {"some": "${output.rows > 0}"},
            "pins": {"manifest": {"run": "shell", "command": ["sha256sum", file]}}},
        {"name": "look", "queue": "hands"},
        {"name": "apply", "run": "shell", "command": format!("echo applied >> '{}'", marker.display())},
    ]);
    let run_id = started(&admin, runbook("drifting", steps)).await;
    // The values of pins come with a record of their own, after the one that completes the step.
    let run = until(&admin, &run_id, "nothing is pinned", |run| run["pins"][0]["value"].is_string()).await;
    let pinned = run["pins"][0]["value"].as_str().expect("a value").to_owned();
    assert!(pinned.ends_with(&format!("  {}", file.display())), "{pinned}");

    std::fs::write(&file, "changed meanwhile").expect("a file");
    // The change came before the survey for `look`, or after it: both stop the run.
    let seen = until(&admin, &run_id, "nobody looks", |run| {
        run["state"] == "stopped" || run["steps"][1]["state_code"] == "ready"
    });
    if seen.await["state"] != "stopped" {
        work(&admin, "hands").await;
    }
    let stopped = until_state(&admin, &run_id, "stopped").await;
    assert_eq!(
        (&stopped["outcome"], &stopped["drift"][0]["pin"]),
        (&json!("drift"), &json!("manifest")),
        "{stopped:#}"
    );
    assert_eq!(stopped["drift"][0]["pinned"], pinned);
    let live = stopped["drift"][0]["live"].as_str().expect("a value");
    assert!(live != pinned && live.ends_with("manifest"), "{live}");
    assert_eq!(lines(&marker), 0);

    let approval_id = approve_resume(&admin, &owner, &run_id).await;
    admin.post(&format!("/v1/runs/{run_id}/resume"), json!({"approval_id": approval_id})).await.ok();
    if until(&admin, &run_id, "it does not go on", |run| run["state"] != "stopped" && run["surveying"].is_null()).await
        ["steps"][1]["state_code"]
        == "ready"
    {
        work(&admin, "hands").await;
    }
    let done = until_state(&admin, &run_id, "completed").await;
    assert_eq!(lines(&marker), 1, "{done:#}");
}

/// A probe that fails, takes too long, or that nobody here may carry out gives no value.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_looked_at_has_no_value() {
    let server = Server::with_config(Some(SHELL)).await;
    let admin = server.admin();
    for (name, probe, why) in [
        ("failing", json!({"run": "shell", "command": "echo no such table >&2; exit 3"}), "exit code 3"),
        ("late", json!({"run": "shell", "command": "sleep 60", "timeout": "300ms"}), "it took too long and was killed"),
        ("refused", json!({"run": "http", "url": "http://127.0.0.1:1/"}), "127.0.0.1:1"),
        ("unknown", json!({"run": "shell", "command": "true", "env": {"X": "${secrets.nowhere}"}}), "`nowhere`"),
    ] {
        let steps =
            json!([{"name": "pin", "run": "shell", "readOnly": true, "command": "true", "pins": {"world": probe}}]);
        let run_id = started(&admin, runbook(name, steps)).await;
        let run = until_state(&admin, &run_id, "failed").await;
        assert_eq!(run["steps"][0]["last_error"], "PIN_FAILED:world", "{name}: {run:#}");
        let told = &run["pin_errors"][0];
        assert!(told["error"].as_str().is_some_and(|error| error.contains(why)), "{name}: {told}");
    }
}

/// A pin that could be looked at once and cannot any more has drifted.
#[tokio::test(flavor = "multi_thread")]
async fn a_pin_that_is_gone_has_drifted() {
    let server = Server::with_config(Some(SHELL)).await;
    let admin = server.admin();
    let file = server.directory.path().join("there");
    std::fs::write(&file, "{\"version\": 7}\n").expect("a file");
    let steps = json!([
        {"name": "pin", "run": "shell", "readOnly": true, "command": "true",
            "pins": {"version": {"run": "shell", "command": ["cat", file]}}},
        {"name": "gone", "run": "shell", "readOnly": true, "command": ["rm", file]},
        {"name": "apply", "run": "shell", "command": "true"},
    ]);
    let run = until_state(&admin, &started(&admin, runbook("gone", steps)).await, "stopped").await;
    let drift = &run["drift"][0];
    assert_eq!((&run["outcome"], &drift["pinned"]), (&json!("drift"), &json!({"version": 7})), "{run:#}");
    assert_eq!((&drift["pin"], &drift["live"]), (&json!("version"), &Value::Null), "{run:#}");
    let error = run["pin_errors"][0]["error"].as_str().expect("why it has no value");
    assert!(error.starts_with("exit code 1") && error.contains("No such file"), "{error}");
    assert_eq!(run["steps"][2]["state_code"], "not_started");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_steps_leave_are_kept_and_served() {
    let server = Server::with_config(Some(SHELL)).await;
    let (admin, nobody) = (server.admin(), server.actor("nobody", &[]).await);
    let leave = json!([{"name": "backup", "run": "shell", "artifacts": ["out/dump.bin"],
        "command": "mkdir out && printf 'hello\\n' > out/dump.bin"}]);
    let run_id = started(&admin, runbook("leaving", leave)).await;
    let run = until_state(&admin, &run_id, "completed").await;
    const HELLO: &str = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
    let kept = json!([{"path": "out/dump.bin", "sha256": HELLO, "size_bytes": 6}]);
    assert_eq!(run["steps"][0]["artifacts"], kept);

    let path = format!("/v1/runs/{run_id}/artifacts/{HELLO}");
    let served = admin.get(&path).await;
    assert_eq!(
        (served.status, served.text.as_str(), served.content_type.as_str()),
        (200, "hello\n", "application/octet-stream")
    );
    assert_eq!(served.headers["x-content-type-options"], "nosniff");
    assert!(served.headers["content-disposition"].to_str().is_ok_and(|value| value.starts_with("attachment")));
    nobody.get(&path).await.refused(403, "permission-denied");
    server.nobody().get(&path).await.refused(401, "invalid-credential");

    // What another run has left is not this run's to show.
    let other = json!([{"name": "a", "run": "shell", "command": "true"}]);
    let other = started(&admin, runbook("another", other)).await;
    until_state(&admin, &other, "completed").await;
    for path in [
        format!("/v1/runs/{other}/artifacts/{HELLO}"),
        format!("/v1/runs/{run_id}/artifacts/{}", "0".repeat(64)),
        format!("/v1/runs/{run_id}/artifacts/..%2F..%2Fadmin.token"),
        format!("/v1/runs/nothing/artifacts/{HELLO}"),
    ] {
        admin.get(&path).await.refused(404, "not-known");
    }
    let place = server.directory.path().join("artifacts/58").join(HELLO);
    std::fs::write(&place, "HELLO\n").expect("spoilt");
    assert_eq!(admin.get(&path).await.status, 500, "what is served has the digest that was asked for");
    std::fs::remove_file(&place).expect("removed");
    admin.get(&path).await.refused(404, "not-known");
    let answer = admin.request(Method::POST, &path).send().await.expect("an answer");
    assert_eq!(answer.status().as_u16(), 405);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_leaves_no_file_has_failed() {
    let server = Server::with_config(Some(SHELL)).await;
    let admin = server.admin();
    for (name, command, told) in [
        ("missing", "true", "ARTIFACT_MISSING: dump"),
        ("linked", "ln -s /etc/passwd dump", "ARTIFACT_REFUSED: dump: it is a symbolic link"),
    ] {
        let steps = json!([{"name": "backup", "run": "shell", "artifacts": ["dump"], "command": command}]);
        let run = until_state(&admin, &started(&admin, runbook(name, steps)).await, "failed").await;
        assert_eq!(run["steps"][0]["last_error"], told, "{run:#}");
    }
}

/// Secrets are masked in what is pinned, and what is pinned is what was masked.
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_masked_in_a_pin() {
    let mut server = Server::with_config(Some(SHELL)).await;
    let secret = server.directory.path().join("secret");
    std::fs::write(&secret, "pl4nted-pin").expect("a secret");
    server.configure(&format!("{SHELL}[secrets]\npin = {{file = \"{}\"}}\n", secret.display())).await;
    let admin = server.admin();
    let env = json!({"KEY": "${secrets.pin}"});
    let steps = json!([
        {"name": "pin", "run": "shell", "readOnly": true, "command": "true",
            "pins": {"key": {"run": "shell", "command": "echo \"the key is $KEY\"", "env": env}}},
        {"name": "apply", "run": "shell", "command": "true"},
    ]);
    let run = until_state(&admin, &started(&admin, runbook("masked", steps)).await, "completed").await;
    assert_eq!(run["pins"][0]["value"], "the key is ***", "{run:#}");
    let records = admin.get("/v1/ledger/records?limit=500").await;
    assert!(records.status == 200 && !records.text.contains("pl4nted"));
}
