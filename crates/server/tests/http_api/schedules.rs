//! What starts by itself: shown as idle, paused, resumed, triggered by hand, and retired.

use crate::support::Server;
use crate::webhooks::{database, on_both};
use countersign_server::outbox::Pace;
use serde_json::{Value, json};

const NIGHTLY: &str = "kind: workflow\nname: nightly\norder: linear\n\
    schedule: [{cron: '0 2 * * *', catchUp: 1h, input: {by: night}}, {cron: '@yearly'}]\n\
    steps: [{name: A}, {name: B}]\n";
const ON_ORDER: &str =
    "kind: workflow\nname: on-order\non: [{event: order.created}]\nsteps: [{name: A, queue: orders}]\n";
const PLAIN: &str = "kind: workflow\nname: plain\nsteps: [{name: A}]\n";
const PROCESS: &str = "kind: process\nname: paper\nstates: [a, b]\ninitial_state: a\nterminal_states: [b]\n\
    transitions: [{from: a, action: go, to: b}]\n";

on_both! {
    what_waits_is_shown_as_idle,
    a_pause_is_a_record_and_holds,
    a_schedule_is_triggered_by_hand,
    a_retired_definition_starts_nothing,
}

async fn started(store: Option<String>) -> Server {
    let server = Server::with(None, store, Pace::default()).await;
    for document in [NIGHTLY, ON_ORDER, PLAIN, PROCESS] {
        server.admin().post_bytes("/v1/definitions", document).await.created();
    }
    server
}

async fn registry_records(server: &Server, action: &str) -> Vec<Value> {
    let page = server.admin().get(&format!("/v1/ledger/records?action_ref={action}")).await.ok();
    page["items"].as_array().cloned().unwrap_or_default()
}

async fn verified(server: &Server) {
    let answer = server.admin().post("/v1/ledger/verify-log", json!({})).await.ok();
    assert_eq!(answer["result"], "verified", "{answer}");
}

async fn what_waits_is_shown_as_idle(store: Option<String>) {
    let server = started(store).await;
    let admin = server.admin();
    let page = admin.get("/v1/runs?state=idle").await.ok();
    assert_eq!(page["items"], json!([]));
    let idle = page["idle"].as_array().expect("a list").clone();
    let names: Vec<_> = idle.iter().map(|one| (&one["definition"], &one["state"], &one["events"])).collect();
    assert_eq!(
        names,
        [
            (&json!("nightly@1"), &json!("idle"), &json!([])),
            (&json!("on-order@1"), &json!("idle"), &json!(["order.created"]))
        ]
    );
    assert!(idle[0]["next_at"].as_str().is_some_and(|at| at.contains("T02:00:00")), "{idle:?}");
    assert_eq!(idle[1]["next_at"], Value::Null);
    assert!(admin.get("/v1/runs").await.ok().get("idle").is_none());
    let one = admin.get("/v1/runs?state=idle&definition=on-order").await.ok();
    assert_eq!(one["idle"].as_array().map(Vec::len), Some(1));
    let ben = server.actor("ben", &["runs:read:on-order"]).await;
    assert_eq!(ben.get("/v1/runs?state=idle").await.ok()["idle"], one["idle"]);
    let schedules = admin.get("/v1/schedules").await.ok();
    assert_eq!((&schedules["items"][0]["catch_up"], &schedules["items"][1]["index"]), (&json!("1h"), &json!(1)));
}

async fn a_pause_is_a_record_and_holds(store: Option<String>) {
    let mut server = started(store).await;
    let ana = server.actor("ana", &["runs:control:on-order"]).await;
    ana.post("/v1/schedules/on-order/pause", json!({})).await.refused(400, "invalid-request");
    ana.post("/v1/schedules/nightly/pause", json!({"reason": "x"})).await.refused(403, "permission-denied");
    ana.post("/v1/schedules/nothing/pause", json!({"reason": "x"})).await.refused(403, "permission-denied");
    let admin = server.admin();
    admin.post("/v1/schedules/nothing/pause", json!({"reason": "x"})).await.refused(404, "not-known");
    admin.post("/v1/schedules/plain/pause", json!({"reason": "x"})).await.refused_at(
        400,
        "invalid-request",
        "definition",
    );
    let paused = ana.post("/v1/schedules/on-order/pause", json!({"reason": "no stock"})).await.ok();
    assert_eq!(paused, json!({"definition": "on-order", "state": "paused"}));
    // Again: it is so already, and there is no second record.
    ana.post("/v1/schedules/on-order/pause", json!({"reason": "no stock"})).await.ok();
    let records = registry_records(&server, "schedule_paused").await;
    assert_eq!(records.len(), 1);
    assert_eq!(records[0]["actor_ref"], "ana");
    assert_eq!(records[0]["payload"], json!({"name": "on-order", "version": 1, "reason": "no stock"}));
    server.restart().await;
    let admin = server.admin();
    let triggered = admin.post("/v1/runs/trigger", json!({"type": "order.created"})).await.accepted();
    assert_eq!(triggered["run_ids"], json!([]));
    let idle = admin.get("/v1/runs?state=idle&definition=on-order").await.ok()["idle"][0].clone();
    assert_eq!(
        (&idle["state"], &idle["paused"]["by"], &idle["paused"]["reason"]),
        (&json!("paused"), &json!("ana"), &json!("no stock"))
    );
    admin.post("/v1/schedules/on-order/resume", json!({})).await.ok();
    let triggered = admin.post("/v1/runs/trigger", json!({"type": "order.created"})).await.accepted();
    assert_eq!(triggered["run_ids"].as_array().map(Vec::len), Some(1));
    verified(&server).await;
}

async fn a_schedule_is_triggered_by_hand(store: Option<String>) {
    let server = started(store).await;
    let ana = server.actor("ana", &["runs:start:nightly"]).await;
    ana.post("/v1/schedules/nightly/trigger", json!({})).await.refused_at(400, "invalid-request", "index");
    ana.post("/v1/schedules/nightly/trigger", json!({"index": 2})).await.refused_at(404, "not-known", "index");
    ana.post("/v1/schedules/on-order/trigger", json!({})).await.refused(403, "permission-denied");
    server.admin().post("/v1/schedules/on-order/trigger", json!({})).await.refused(404, "not-known");
    server.admin().post("/v1/schedules/nightly/pause", json!({"reason": "audit"})).await.ok();
    let run_id = ana.post("/v1/schedules/nightly/trigger", json!({"index": 0})).await.created()["run_id"].clone();
    let run = server.admin().get(&format!("/v1/runs/{}", run_id.as_str().expect("an id"))).await.ok();
    assert_eq!((&run["input"], &run["initiator_ref"]), (&json!({"by": "night"}), &json!("ana")), "{run}");
    verified(&server).await;
}

async fn a_retired_definition_starts_nothing(store: Option<String>) {
    let mut server = started(store).await;
    let admin = server.admin();
    let run = admin.post("/v1/runs", json!({"definition": "nightly"})).await.created();
    let process = admin.post("/v1/processes", json!({"definition": "paper", "subject_ref": "s"})).await.created();
    let ana = server.actor("ana", &["runs:control", "runs:start"]).await;
    ana.post("/v1/definitions/nightly/retire", json!({"reason": "x"})).await.refused(403, "permission-denied");
    admin.post("/v1/definitions/nightly/retire", json!({})).await.refused(400, "invalid-request");
    for name in ["nightly", "paper"] {
        let retired = admin.post(&format!("/v1/definitions/{name}/retire"), json!({"reason": "replaced"})).await.ok();
        assert_eq!(retired, json!({"name": name, "version": 1}));
        admin.post(&format!("/v1/definitions/{name}/retire"), json!({"reason": "x"})).await.refused(409, "not-active");
    }
    server.restart().await;
    let admin = server.admin();
    for definition in ["nightly", "nightly@1"] {
        let refused = admin.post("/v1/runs", json!({"definition": definition})).await;
        refused.refused_at(409, "not-active", "definition");
    }
    let refused = admin.post("/v1/processes", json!({"definition": "paper", "subject_ref": "s"})).await;
    refused.refused_at(409, "not-active", "definition");
    admin.post("/v1/schedules/nightly/trigger", json!({"index": 0})).await.refused(404, "not-known");
    assert_eq!(admin.get("/v1/schedules").await.ok()["items"], json!([]));
    let parent = "kind: workflow\nname: parent\nsteps: [{name: sub, run: workflow, workflow: nightly}]\n";
    admin.post_bytes("/v1/definitions", parent).await.refused(400, "invalid-definition");
    let view = admin.get("/v1/definitions/nightly").await.ok();
    assert_eq!((&view["retired"]["by"], &view["retired"]["reason"]), (&json!("admin"), &json!("replaced")));
    // What is under way goes on.
    let run_id = run["run_id"].as_str().expect("an id");
    let claimed = admin
        .post("/v1/queues/default/claim", json!({"worker_id": "w", "max": 1, "lease_ms": 60000, "wait_ms": 5000}))
        .await
        .ok();
    let (task, lease) = (claimed["tasks"][0]["task_id"].clone(), claimed["tasks"][0]["lease_token"].clone());
    let task = task.as_str().expect("a task").to_owned();
    assert!(task.starts_with(run_id));
    admin.post(&format!("/v1/tasks/{task}/complete"), json!({"lease_token": lease})).await.ok();
    admin.fire(process["instance_id"].as_str().expect("an id"), "go").await.ok();
    // Published again, it is a new version that starts.
    let again = admin.post_bytes("/v1/definitions", NIGHTLY).await.created();
    assert_eq!(again["version"], 2);
    admin.post("/v1/runs", json!({"definition": "nightly"})).await.created();
    admin.post("/v1/runs", json!({"definition": "nightly@1"})).await.refused(409, "not-active");
    assert_eq!(registry_records(&server, "definition_retired").await.len(), 2);
    verified(&server).await;
}
