//! The step model over HTTP and on the command line: the registry, the colour of runs, traces and the timeline.

use crate::run_commands::countersign;
use crate::support::{Actor, Answer, Server};
use reqwest::Method;
use serde_json::{Value, json};

const LAB: &str = "kind: workflow\nname: lab\nqueue: lab\nsteps:\n  - {name: A, retryPolicy: {maxRetries: 2, backoff: constant, initialDelay: 1ms}}\n  - {name: B, dependsOn: [A]}\n";
const PARENT: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

async fn server() -> (Server, Actor) {
    let server = Server::start().await;
    let admin = server.admin();
    admin.post_bytes("/v1/definitions", LAB).await.created();
    (server, admin)
}

async fn claim(admin: &Actor) -> Value {
    let claim = json!({"worker_id": "w", "wait_ms": 5000});
    admin.post("/v1/queues/lab/claim", claim).await.ok()["tasks"][0].clone()
}

async fn report(admin: &Actor, task: &Value, what: &str, mut body: Value) -> Answer {
    body["lease_token"] = task["lease_token"].clone();
    admin.post(&format!("/v1/tasks/{}/{what}", task["task_id"].as_str().expect("an id")), body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_registry_is_served_shown_exported_and_compared() {
    let (server, admin) = server().await;
    let registry = admin.get("/v1/registry").await.ok();
    let ids: Vec<&str> = registry["machines"]
        .as_array()
        .expect("machines")
        .iter()
        .filter_map(|m| m["state_machine_id"].as_str())
        .collect();
    assert_eq!(
        ids,
        ["step", "task", "workflow_run", "approval_step", "assignment", "approval_chain", "proposal", "replay_request"]
    );
    let step = admin.get("/v1/registry/step").await.ok();
    assert_eq!(step, registry["machines"][0]);
    assert_eq!(step["states"][3]["texts"]["vi"]["label"], "Đang chờ");
    let t8 = step["transitions"].as_array().expect("rows").iter().find(|row| row["id"] == "T8").expect("T8");
    assert_eq!((&t8["guard_kind"], &t8["rollback_to"]), (&json!("predicate_fn"), &json!("in_progress")));
    admin.get("/v1/registry/nothing").await.refused(404, "not-known");
    server.nobody().get("/v1/registry").await.refused(401, "invalid-credential");

    countersign(&server, &["registry", "show"]).await.says(0, &["workflow_run", "1.0.0"]);
    countersign(&server, &["registry", "show", "step"])
        .await
        .says(0, &["T12r", "step_reopen_for_correction", "waiting_time_gate"]);
    countersign(&server, &["registry", "show", "--events"]).await.says(0, &["step.completed", "trace_id"]);
    let diagram = countersign(&server, &["registry", "export", "step", "--format", "mermaid"]).await;
    diagram.says(0, &["stateDiagram-v2", "in_progress --> completed: T8", "completed --> in_progress: T8r"]);

    let yaml = countersign(&server, &["registry", "export", "step"]).await;
    yaml.says(0, &["kind: machine\nname: \"step\"", "transitions:"]);
    let json = countersign(&server, &["registry", "export", "task", "--format", "json"]).await;
    let file = server.directory.path().join("task.json");
    std::fs::write(&file, &json.out).expect("a file");
    let file = file.to_str().expect("a path");
    countersign(&server, &["registry", "diff", "task", file]).await.says(0, &["The same states"]);
    countersign(&server, &["registry", "diff", "step", file]).await.says(0, &["task_pic_human", "task.completed"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_has_a_timeline() {
    let (server, admin) = server().await;
    let traced =
        admin.request(Method::POST, "/v1/runs").header("traceparent", format!("00-{PARENT}-00f067aa0ba902b7-01"));
    let run_id = Answer::of(traced.json(&json!({"definition": "lab"}))).await.created()["run_id"].clone();
    let run_id = run_id.as_str().expect("an id").to_owned();
    let own = admin.post("/v1/runs", json!({"definition": "lab"})).await.created();
    let own = own["run_id"].as_str().expect("an id").to_owned();

    let task = claim(&admin).await;
    assert_eq!(task["run_id"], run_id);
    report(&admin, &task, "retry", json!({"last_error": "net"})).await.ok();
    let run = admin.get(&format!("/v1/runs/{run_id}")).await.ok();
    assert_eq!((&run["rollup"]["state_code"], &run["rollup"]["decisive_step"]), (&json!("red"), &json!("A")));
    assert_eq!(run["critical_path"], json!(["A"]));
    let listed = admin.get("/v1/runs").await.ok();
    assert_eq!(listed["items"][0]["rollup"], run["rollup"]);
    assert_eq!(listed["items"][1]["rollup"]["state_code"], "green");

    let timeline = admin.get(&format!("/v1/timeline?trace_id={PARENT}")).await.ok();
    let entries = timeline["items"].as_array().expect("items");
    let actions: Vec<&str> = entries.iter().filter_map(|entry| entry["action_ref"].as_str()).collect();
    assert_eq!(actions, ["run_started", "steps_claimed", "step_retried"]);
    assert!(entries.iter().all(|entry| entry["trace_id"] == PARENT && entry["correlation_id"] == run_id));
    assert_eq!(entries[1]["facets"], json!(["A: attempt 1/3"]));
    assert_eq!(entries[2]["facets"], json!(["A: retrying (attempt 2/3)"]));
    assert_eq!(entries[2]["transitions"][0]["emitted_event_type"], "step.failed");
    assert_eq!(admin.get(&format!("/v1/timeline?run_id={run_id}")).await.ok(), timeline);
    // Page by page it is the same.
    let first = admin.get(&format!("/v1/timeline?run_id={run_id}&limit=2")).await.ok();
    let next = first["next"].as_str().expect("more");
    let rest = admin.get(&format!("/v1/timeline?run_id={run_id}&limit=2&cursor={next}")).await.ok();
    assert_eq!((&rest["items"][0], &rest["next"]), (&entries[2], &Value::Null));
    // A run without a traceparent is its own trace.
    let own_trace = own.replace('-', "");
    let alone = admin.get(&format!("/v1/timeline?trace_id={own_trace}")).await.ok();
    assert_eq!(alone["items"][0]["instance_id"], own);

    admin.get("/v1/timeline").await.refused(400, "invalid-query");
    admin.get(&format!("/v1/timeline?trace_id={PARENT}&run_id={run_id}")).await.refused(400, "invalid-query");
    let kim = server.actor("kim", &["runs:read"]).await;
    let moves = kim.get(&format!("/v1/timeline?run_id={run_id}")).await.ok();
    let moves = moves["items"].as_array().expect("items");
    assert!(!moves.is_empty() && moves.iter().all(|entry| entry.get("payload").is_none()), "{moves:?}");
    let lee = server.actor("lee", &[]).await;
    lee.get(&format!("/v1/timeline?run_id={run_id}")).await.refused(403, "permission-denied");

    let said = countersign(&server, &["timeline", &run_id]).await;
    said.says(
        0,
        &[
            "step_retried  by admin",
            "A in_progress → failed after",
            "(T9 executor_failure)",
            "✕ A, attempt 1:",
            "A: retrying (attempt 2/3)",
        ],
    );
    countersign(&server, &["runs", "show", &run_id]).await.says(0, &["red", "because of A"]);
    countersign(&server, &["audit", "verify"]).await.says(0, &["Verified"]);
}

const HELD: &str = "kind: workflow\nname: held\nqueue: held\ngate_spec: {reopen: {approver_ref: admin, scope: s}}\n\
    steps: [{name: A, onFailure: hold, retryPolicy: {maxRetries: 1, backoff: constant, initialDelay: 1ms, maxDelay: 1ms}}]\n";

/// "Both the original `step.completed` and the subsequent `step.reopened_for_correction`, linked"; retries and escalations
/// are facets, not states.
#[tokio::test(flavor = "multi_thread")]
async fn a_reopening_stands_beside_what_it_reopened() {
    let (server, admin) = server().await;
    admin.post_bytes("/v1/definitions", HELD).await.created();
    let run = admin.post("/v1/runs", json!({"definition": "held"})).await.created();
    let run_id = run["run_id"].as_str().expect("an id").to_owned();
    for verb in ["retry", "dead"] {
        let claim = json!({"worker_id": "w", "max": 1, "lease_ms": 30_000, "wait_ms": 10_000});
        let task = admin.post("/v1/queues/held/claim", claim).await.ok()["tasks"][0].clone();
        report(&admin, &task, verb, json!({"last_error": "net"})).await.ok();
    }
    let step = format!("/v1/runs/{run_id}/steps/A");
    admin.post(&format!("{step}/escalate"), json!({"reason": "vendor gone"})).await.ok();
    // Who escalated it to whom, when, by which record.
    let escalated = admin.get(&step).await.ok();
    assert_eq!(escalated["facets"], json!(["escalated"]));
    assert_eq!(escalated["escalation_chain_id"], format!("{run_id}.0"));
    let chain = escalated["escalation_chain"].as_array().expect("a chain").clone();
    assert_eq!(chain.len(), 1, "{chain:?}");
    assert_eq!((&chain[0]["actor_ref"], &chain[0]["to"]), (&json!("admin"), &json!(["admin"])));
    assert_eq!((&chain[0]["action_ref"], &chain[0]["reason"]), (&json!("step_escalated"), &json!("vendor gone")));
    assert_eq!(chain[0]["at"], escalated["escalated_at"]);
    let gates = format!("/v1/runs/{run_id}/gates");
    let approval = admin.post(&gates, json!({"action": "reopen:A"})).await.created()["step_id"].clone();
    admin.post(&format!("{gates}/reopen:A/decision"), json!({"decision": "approve"})).await.ok();
    let body = json!({"approval_id": approval, "correction_reason": "policy_change"});
    admin.post(&format!("{step}/reopen"), body).await.ok();
    // The chain outlives the facet.
    let reopened = admin.get(&step).await.ok();
    assert_eq!((reopened.get("facets"), &reopened["escalation_chain"]), (None, &json!(chain)));

    let timeline = admin.get(&format!("/v1/timeline?run_id={run_id}")).await.ok();
    let entries = timeline["items"].as_array().expect("items");
    let of = |action: &str| entries.iter().find(|entry| entry["action_ref"] == action).expect("the record");
    let (closing, reopening) = (of("step_escalated"), of("step_reopened"));
    assert_eq!(reopening["reopens"]["event_id"], closing["event_id"]);
    assert_eq!(chain[0]["event_id"], closing["event_id"]);
    assert_eq!(reopening["reopens"]["action_ref"], "step_escalated");
    assert_eq!(closing["reopened_by"][0]["event_id"], reopening["event_id"]);
    assert_eq!(closing["reopened_by"][0]["correction_reason"], "policy_change");
    assert_eq!(closing["reopened_by"][0]["approval_id"], approval);
    assert_eq!(closing["correlation_id"], reopening["correlation_id"]);
    assert_eq!(reopening["transitions"][0]["emitted_event_type"], "step.reopened_for_correction");
    // Nothing else was closed or reopened.
    assert_eq!(entries.iter().filter(|entry| entry.get("reopens").is_some_and(|link| !link.is_null())).count(), 1);
    let facets: Vec<&Value> =
        entries.iter().flat_map(|entry| entry["facets"].as_array().into_iter().flatten()).collect();
    let told = ["A: attempt 1/2", "A: retrying (attempt 2/2)", "A: attempt 2/2", "A: attempt 2/2", "escalated"];
    assert_eq!(facets, told, "{facets:?}");
    assert_eq!(closing["facets"], json!(["escalated"]));
    let said = countersign(&server, &["timeline", &run_id]).await;
    said.says(0, &["step_reopened  by admin", "A: retrying (attempt 2/2)", "escalated"]);
}

/// The engine's own events are not a worker's to send.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_sends_the_engines_events_for_it() {
    let (_server, admin) = server().await;
    admin.post("/v1/runs", json!({"definition": "lab"})).await.created();
    let task = claim(&admin).await;
    let events = json!([{"type": "order.paid"}, {"type": "step.completed", "data": {}}]);
    let refused = report(&admin, &task, "complete", json!({"output": 1, "outbound_events": events})).await;
    refused.refused_at(400, "invalid-request", "outbound_events[1].type");
    report(&admin, &task, "complete", json!({"output": 1, "outbound_events": [{"type": "order.paid"}]})).await.ok();
}
