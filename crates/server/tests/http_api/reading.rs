//! Reads take what has a meaning for them and refuse the rest.

use crate::support::{Answer, Server};
use reqwest::Method;
use serde_json::{Value, json};

const ONE: &str = "kind: workflow\nname: one\norder: dag\nqueue: q\nsteps: [{name: A}, {name: B}]\n";
const NOWHERE: &str = "00000000-0000-7000-8000-000000000000";

fn count(answer: &Value) -> Option<usize> {
    answer["items"].as_array().map(Vec::len)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parameter_without_a_meaning_is_refused() {
    let server = Server::start().await;
    let admin = server.admin();
    admin.post_bytes("/v1/definitions", ONE).await.created();
    let run = admin.post("/v1/runs", json!({"definition": "one"})).await.created();
    let run_id = run["run_id"].as_str().expect("an id");
    for (path, field) in [
        (format!("/v1/runs/{run_id}?limit=1"), "limit"),
        (format!("/v1/runs/{run_id}?order=desc"), "order"),
        (format!("/v1/runs/{run_id}?cursor=00"), "cursor"),
        (format!("/v1/runs/{run_id}/steps/A/history?limit=1"), "limit"),
        ("/v1/ledger/export?limit=1".to_owned(), "limit"),
        ("/errors/conflict?lang=fr".to_owned(), "lang"),
        ("/openapi.json?pretty=1".to_owned(), "pretty"),
        // Shape comes before existence.
        (format!("/v1/runs/{NOWHERE}?steps_cursor=zz"), "steps_cursor"),
        (format!("/v1/runs/{run_id}?steps_cursor=%2B1"), "steps_cursor"),
        (format!("/v1/runs/{run_id}?steps_cursor=01"), "steps_cursor"),
        ("/v1/runs?definition=one@x".to_owned(), "definition"),
    ] {
        admin.get(&path).await.refused_at(400, "invalid-query", field);
    }
    assert_eq!(admin.get(&format!("/v1/runs/{run_id}?steps_cursor=1")).await.ok()["steps"][0]["name"], "B");
    // Probes add what they like.
    for path in ["/healthz?x=1", "/readyz?x=1", "/metrics?x=1"] {
        assert_eq!(Answer::of(server.nobody().request(Method::GET, path)).await.status, 200, "{path}");
    }
    let description = admin.get("/openapi.json").await.ok();
    for path in ["/v1/runs/{run_id}", "/v1/ledger/export"] {
        let parameters = description["paths"][path]["get"]["parameters"].as_array().expect("parameters");
        assert!(parameters.iter().all(|parameter| parameter["name"] != "limit"), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blank_id_is_no_id() {
    let server = Server::start().await;
    let admin = server.admin();
    for (path, field) in [
        ("/v1/runs/%20", "run_id"),
        ("/v1/runs/%E2%80%8B/steps/A/history", "run_id"),
        ("/v1/processes/%20", "instance_id"),
        ("/v1/ledger/records/%20", "event_id"),
        ("/v1/definitions/%20", "name"),
    ] {
        admin.get(path).await.refused_at(400, "invalid-request", field);
    }
    for instance_id in ["", " "] {
        let body = json!({"instance_id": instance_id});
        admin.post("/v1/ledger/verify-log", body).await.refused_at(400, "invalid-request", "instance_id");
    }
    admin.post("/v1/ledger/verify-log", json!({"instance_id": "x"})).await.refused(404, "not-known");
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_found_by_the_definition_that_views_print() {
    let server = Server::start().await;
    let admin = server.admin();
    for version in 1..=2 {
        admin.post_bytes("/v1/definitions", format!("{ONE}description: v{version}\n")).await.created();
        admin.post("/v1/runs", json!({"definition": "one"})).await.created();
    }
    for (definition, found) in [("one", 2), ("one@1", 1), ("one@2", 1), ("one@3", 0), ("two", 0)] {
        let runs = admin.get(&format!("/v1/runs?definition={definition}")).await.ok();
        assert_eq!(count(&runs), Some(found), "{definition}");
        for run in runs["items"].as_array().expect("a list").iter().filter(|_| definition.contains('@')) {
            assert_eq!(run["definition"], definition);
        }
    }
    let by_state = admin.get("/v1/runs?definition=one@1&state=executing").await.ok();
    assert_eq!(count(&by_state), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_is_good_for_its_own_list() {
    let server = Server::start().await;
    let admin = server.admin();
    admin.post_bytes("/v1/definitions", ONE).await.created();
    for _ in 0..2 {
        admin.post("/v1/runs", json!({"definition": "one"})).await.created();
    }
    let next = admin.get("/v1/runs?limit=1").await.ok()["next"].as_str().expect("a cursor").to_owned();
    admin.get(&format!("/v1/runs?cursor={next}")).await.ok();
    admin.get(&format!("/v1/ledger/records?cursor={next}")).await.refused_at(400, "invalid-query", "cursor");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_says_why_its_gate_was_opened() {
    let server = Server::start().await;
    let admin = server.admin();
    let transition = |action: &str| json!({"from": "a", "action": action, "to": "b", "guard": action});
    let quorum = json!({"approvers": ["p", "q"], "quorum": {"rule": "all-of-n"}, "scope": "s"});
    let body = json!({
        "declaration": {"states": ["a", "b"], "initial_state": "a", "terminal_states": ["b"],
            "transitions": [transition("one"), transition("many"), transition("silent")]},
        "subject_ref": "s",
        "gate_spec": {"one": {"approver_ref": "p", "scope": "s"}, "many": quorum, "silent": {"approver_ref": "p", "scope": "s"}},
    });
    let id = admin.post("/v1/processes", body).await.created()["instance_id"].as_str().expect("an id").to_owned();
    let gates = format!("/v1/processes/{id}/gates");
    admin.post(&gates, json!({"action": "one", "reason": "because of one"})).await.created();
    admin.post(&gates, json!({"action": "many", "reason": "because of many"})).await.created();
    admin.post(&gates, json!({"action": "silent"})).await.created();
    let steps = admin.get(&format!("/v1/approval-steps?instance_id={id}")).await.ok();
    let told: Vec<(&str, Option<&str>)> = steps["items"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|step| (step["action"].as_str().expect("an action"), step["reason"].as_str()))
        .collect();
    let many = ("many", Some("because of many"));
    assert_eq!(told, [("one", Some("because of one")), many, many, ("silent", None)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_waits_for_a_minute_at_most() {
    let server = Server::start().await;
    let admin = server.admin();
    for wait_ms in [60_001, 999_999_999] {
        let body = json!({"worker_id": "w", "wait_ms": wait_ms});
        admin.post("/v1/queues/q/claim", body).await.refused_at(400, "invalid-request", "wait_ms");
    }
    admin.post("/v1/queues/q/claim", json!({"worker_id": "w", "wait_ms": 1})).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_is_told_however_many_runs_it_has() {
    const RUNS: usize = 501;
    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    let server = Server::start().await;
    let admin = server.admin();
    admin.post_bytes("/v1/definitions", ONE).await.created();
    let mut last = Value::Null;
    for _ in 0..RUNS {
        let start =
            admin.request(Method::POST, "/v1/runs").header("traceparent", format!("00-{TRACE}-00f067aa0ba902b7-01"));
        last = Answer::of(start.json(&json!({"definition": "one"}))).await.created();
    }
    let told = admin.get(&format!("/v1/timeline?trace_id={TRACE}&order=desc&limit=1")).await.ok();
    assert_eq!(told["items"][0]["instance_id"], last["run_id"], "{told}");
}

/// A payload is presented as it was written, digit for digit.
#[tokio::test(flavor = "multi_thread")]
async fn a_number_verifies_by_its_digits() {
    let server = Server::start().await;
    let admin = server.admin();
    admin.post_bytes("/v1/definitions", ONE).await.created();
    admin.post("/v1/runs", json!({"definition": "one"})).await.created();
    let task = admin.post("/v1/queues/q/claim", json!({"worker_id": "w"})).await.ok()["tasks"][0].clone();
    let done = json!({"lease_token": task["lease_token"], "output": {"ph": 0.1}});
    admin.post(&format!("/v1/tasks/{}/complete", task["task_id"].as_str().expect("an id")), done).await.ok();
    let records = admin.get("/v1/ledger/records?order=desc&limit=1").await.ok();
    let record = &records["items"][0];
    let body = json!({"event_id": record["event_id"], "payload": record["payload"], "lenient": true}).to_string();
    assert!(body.contains("0.1}"), "{body}");
    assert_eq!(admin.post_bytes("/v1/ledger/verify", body.clone()).await.ok()["result"], "verified");
    let other = body.replace("0.1}", "0.10000000000000000555}");
    let answer = admin.post_bytes("/v1/ledger/verify", other).await.ok();
    assert_eq!(answer["code"], "seal-record-set-mismatch", "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_an_answer_is_called_has_a_page() {
    let server = Server::start().await;
    let answer = Answer::of(server.nobody().request(Method::GET, "/errors/internal-error")).await;
    assert_eq!((answer.status, answer.text.lines().next()), (200, Some("# internal-error")));
}
