//! What the commands show of runs that do not simply go on: held up, tried again, halted, ended, undone.

use crate::run_commands::{admin_token, as_actor, command, countersign, started, with};
use crate::support::{Answer, Server};
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

const SHELL: &str = "
kind: workflow
name: sh
steps:
  - {name: build, run: shell, command: 'make all'}
";

const RETRIED: &str = "
kind: workflow
name: retried
queue: work
steps:
  - {name: do, retryPolicy: {maxRetries: 2, backoff: constant, initialDelay: 1h}}
";

const HELD: &str = "
kind: workflow
name: held
queue: work
steps:
  - {name: a, onFailure: hold, retryPolicy: {maxRetries: 0}}
  - {name: b, dependsOn: [a]}
";

const SIDES: &str = "
kind: workflow
name: sides
queue: work
steps:
  - {name: start}
  - {name: l, dependsOn: [start]}
  - {name: r, dependsOn: [start]}
";

const KEYED: &str = "
kind: workflow
name: keyed
queue: work
concurrency: {key: '${input.k}', limit: 1}
steps: [{name: a}]
";

const GATED: &str = "
kind: workflow
name: gated
order: linear
queue: work
gate_spec:
  go: {approver_ref: boss, scope: 'gated:go'}
steps:
  - {name: prep}
  - {name: go, gate: go}
";

const EXPRESSION: &str = "
kind: workflow
name: at-once
steps:
  - {name: a, run: wait, until: '${input.when}'}
";

const BUSY: &str = "echo busy >&2; exit 75";

async fn shown(server: &Server, id: &str) -> String {
    let said = countersign(server, &["runs", "show", id]).await;
    said.says(0, &[]);
    said.out
}

#[track_caller]
fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_remedy_for_what_blocks_is_told_in_full() {
    let server = with(&[SHELL]).await;
    let id = started(&server, &["sh"]).await;
    let view = crate::starts::until_state(&server.admin(), &id, "blocked").await;
    let error = view["steps"][0]["last_error"].as_str().expect("an error").to_owned();
    assert!(error.len() > 80, "{error}");
    let text = shown(&server, &id).await;
    has(&text, &[&error, &format!("countersign runs unblock {id} build --evidence …")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_looks_like_one() {
    let server = with(&[RETRIED]).await;
    let id = started(&server, &["retried"]).await;
    countersign(&server, &["work", "work", "--drain", "--exec", BUSY]).await.says(0, &["busy"]);
    let run = server.admin().get(&format!("/v1/runs/{id}")).await.ok();
    let looks = &run["steps"][0]["appearance"];
    assert_eq!((&looks["icon"], &looks["label"]), (&json!("↻"), &json!("Retrying (attempt 2/3)")));
    has(&shown(&server, &id).await, &["↻  do    Retrying  2/3      in 1 h", "busy", "because of do (retrying)"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_halted_or_ended_a_run_is_told_with_the_reason() {
    let server = with(&[RETRIED]).await;
    let admin = server.admin();
    let id = started(&server, &["retried"]).await;
    let path = format!("/v1/runs/{id}");
    countersign(&server, &["runs", "pause", &id, "--reason", "stock-taking"]).await.says(0, &["is paused"]);
    let paused = admin.get(&path).await.ok();
    assert_eq!((&paused["halted_by"], &paused["reason"]), (&json!("admin"), &json!("stock-taking")));
    assert_eq!((paused["halted_at"].is_string(), paused.get("ended_at")), (true, None));
    let text = shown(&server, &id).await;
    has(&text, &["paused     just now", "by admin: stock-taking", "countersign runs resume"]);
    assert!(!text.contains("countersign work"), "{text}");

    countersign(&server, &["runs", "resume", &id]).await.says(0, &["is executing"]);
    assert_eq!(admin.get(&path).await.ok().get("halted_by"), None);
    countersign(&server, &["runs", "cancel", &id, "--reason", "wrong customer"]).await.says(0, &["is cancelled"]);
    let cancelled = admin.get(&path).await.ok();
    assert_eq!((&cancelled["ended_by"], &cancelled["reason"]), (&json!("admin"), &json!("wrong customer")));
    let listed = admin.get("/v1/runs").await.ok();
    assert_eq!(listed["items"][0]["ended_at"], cancelled["ended_at"]);
    has(&shown(&server, &id).await, &["cancelled  just now", "by admin: wrong customer", "0/1, 1 cancelled"]);
    let at = cancelled["ended_at"].as_str().expect("a time").replace('T', " ");
    countersign(&server, &["watch", &id]).await.says(1, &[&at[11..19], "run is cancelled: wrong customer"]);
    countersign(&server, &["runs", "list"]).await.says(0, &[&at[..19], "retried@1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejection_says_who_and_why() {
    let server = with(&[GATED]).await;
    let made = countersign(&server, &["actor", "add", "boss", "--json"]).await;
    let made: serde_json::Value = serde_json::from_str(&made.out).expect("JSON");
    let boss = made["token"].as_str().expect("a token").to_owned();
    let id = started(&server, &["gated"]).await;
    countersign(&server, &["work", "work", "--drain", "--exec", "cat"]).await.says(0, &["run blocked"]);
    as_actor(&server, &boss, &["inbox"]).await.says(0, &["gated:go", "just now"]);
    let reject = ["gate", "decide", &id, "go", "reject", "--reason", "too risky"];
    as_actor(&server, &boss, &reject).await.says(0, &["Rejected"]);
    has(&shown(&server, &id).await, &["REJECTED by boss: too risky", "1/2, 1 failed"]);
    let needless = started(&server, &["gated"]).await;
    let said = countersign(&server, &["gate", "open", &needless, "cancel"]).await;
    said.says(1, &[&format!("cancelling this run needs no approval: countersign runs cancel {needless}")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_failure_is_decided_by_somebody() {
    let server = with(&[HELD]).await;
    let id = started(&server, &["held"]).await;
    countersign(&server, &["work", "work", "--drain", "--exec", "exit 1"]).await.says(0, &["dead"]);
    let retry = format!("countersign step retry {id} a");
    has(&shown(&server, &id).await, &[&retry, &format!("step escalate {id} a"), &format!("runs cancel {id}")]);
    countersign(&server, &["step", "retry", &id, "a"]).await.says(0, &["a will be tried again"]);
    has(&shown(&server, &id).await, &["Retrying", "in queue work", "countersign work work"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_failed_is_told_and_not_what_was_cancelled_because_of_it() {
    let server = with(&[SIDES]).await;
    let id = started(&server, &["sides"]).await;
    // The left side waits to be tried again when the right one fails for good.
    let fails = "case $COUNTERSIGN_STEP in l) exit 75;; r) exit 1;; *) echo {};; esac";
    countersign(&server, &["work", "work", "--drain", "--exec", fails]).await.says(0, &["run failed"]);
    let admin = server.admin();
    let run = admin.get(&format!("/v1/runs/{id}")).await.ok();
    assert_eq!((&run["rollup"]["decisive_step"], &run["state"]), (&json!("r"), &json!("failed")), "{run:#}");
    has(&shown(&server, &id).await, &["because of r (failed)", &format!("runs retry {id} --from r")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_run_says_for_which_slot() {
    let server = with(&[KEYED]).await;
    started(&server, &["keyed", "--input", "k=x"]).await;
    let id = started(&server, &["keyed", "--input", "k=x"]).await;
    assert_eq!(server.admin().get(&format!("/v1/runs/{id}")).await.ok()["concurrency_key"], "x");
    has(&shown(&server, &id).await, &["is queued", "for a slot: key x", "runs list --definition keyed"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_started_and_failed_at_once_is_told_so() {
    let server = with(&[EXPRESSION]).await;
    let said = countersign(&server, &["run", "at-once", "--input", "when=never"]).await;
    said.says(1, &["started ", "failed at once: ", "next: countersign runs retry"]);
    let past =
        countersign(&server, &["run", "at-once", "--input", "when=2020-01-01T00:00:00Z", "--at", "2020-01-01"]).await;
    past.says(0, &["started ", "next: countersign watch"]);
    assert!(!past.out.contains("not before"), "{past:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_said_to_be_so() {
    let server = with(&[RETRIED]).await;
    let published: Answer = server.admin().post_bytes("/v1/definitions", crate::support::BATCH_RELEASE).await;
    published.created();
    for (line, code, told) in [
        ("timeline nosuch", 1, "not-known"),
        ("timeline --run nosuch", 1, "not-known"),
        ("run nosuch", 1, "countersign definition list shows what is published"),
        ("run batch-release", 1, "countersign start batch-release"),
        ("runs list --definition nosuch", 0, "No workflow nosuch is published here"),
        ("runs list --definition retried", 0, "No such runs of retried."),
    ] {
        countersign(&server, &line.split(' ').collect::<Vec<_>>()).await.says(code, &[told]);
    }
    // Nobody reads hints in JSON.
    let refused = countersign(&server, &["run", "nosuch", "--json"]).await;
    assert!(!refused.err.contains("definition list"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_what_happened_begin_with_the_newest() {
    let webhook = "[[webhooks]]\nname = \"shop\"\nurl = \"http://127.0.0.1:9/\"\nsecret = \"s\"\nallow_private = true\ntypes = [\"run.*\"]\n";
    let server = Server::with_config(Some(webhook)).await;
    let published: Answer = server.admin().post_bytes("/v1/definitions", RETRIED).await;
    published.created();
    let id = started(&server, &["retried"]).await;
    countersign(&server, &["runs", "cancel", &id, "--reason", "r"]).await.says(0, &[]);
    let first = async |arguments: &[&str]| {
        let said = countersign(&server, arguments).await;
        said.out.lines().nth(2).unwrap_or_default().to_owned()
    };
    has(&first(&["records", "--limit", "1"]).await, &["run_cancelled"]);
    has(&first(&["records", "--limit", "1", "--oldest-first"]).await, &["actor_"]);
    // A chain is read from its beginning.
    has(&first(&["records", "--instance", &id]).await, &["run_started"]);
    has(&first(&["outbox", "list", "--limit", "1"]).await, &["cancelled"]);
    assert!(!first(&["outbox", "list", "--limit", "1", "--oldest-first"]).await.contains("cancelled"));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_stops_watching_is_not_told_that_the_run_failed() {
    let server = with(&[RETRIED]).await;
    let id = started(&server, &["retried"]).await;
    let mut watching = command(&server, &admin_token(&server), &["watch", &id]);
    let ended = tokio::task::spawn_blocking(move || {
        let mut watching = watching.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it runs");
        let mut seen = String::new();
        let mut lines = BufReader::new(watching.stdout.take().expect("a pipe"));
        lines.read_line(&mut seen).expect("a line");
        assert!(seen.contains("run is executing"), "{seen}");
        assert!(Command::new("kill").args(["-INT", &watching.id().to_string()]).status().expect("a kill").success());
        watching.wait().expect("an end")
    });
    assert_eq!(ended.await.expect("a thread").code(), Some(130));
}
