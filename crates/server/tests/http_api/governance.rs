//! Problems first: the board over HTTP, its evidence, and who may read it. On SQLite and on a real PostgreSQL.

use crate::replays::{APPROVER, replay};
use crate::support::{Actor, Server};
use crate::webhooks::{PACE, Receiver, allowed, database, on_both, outbox, send, until, with_workflow};
use serde_json::{Value, json};

const CATEGORIES: [&str; 8] = [
    "dlq",
    "silent_workers",
    "overdue_steps",
    "schema_violations",
    "event_lag",
    "integrity_warnings",
    "failed_runs",
    "orphan_runs",
];
const BRITTLE: &str = "kind: workflow\nname: brittle\nqueue: q\nsteps: [{name: A, retryPolicy: {maxRetries: 0}}]\n";

on_both! {
    the_board_shows_all_eight_with_their_evidence,
    a_dead_step_of_a_held_run_shows_every_attempt,
    a_delivery_that_was_given_up_is_a_dead_letter_until_it_arrives,
    workers_are_frozen_thawed_and_seen,
}

/// A run whose only task is claimed, and the task.
async fn claimed(admin: &Actor, start: Value) -> (String, Value) {
    let run = admin.post("/v1/runs", start).await.created();
    let claimed = admin.post("/v1/queues/q/claim", json!({"worker_id": "w", "wait_ms": 10_000})).await.ok();
    (run["run_id"].as_str().expect("an id").to_owned(), claimed["tasks"][0].clone())
}

/// A run that has failed: its id.
async fn fail(admin: &Actor) -> String {
    let (run_id, task) = claimed(admin, json!({"definition": "brittle"})).await;
    let path = format!("/v1/tasks/{}/dead", task["task_id"].as_str().expect("an id"));
    admin.post(&path, json!({"lease_token": task["lease_token"], "last_error": "broken"})).await.ok();
    run_id
}

async fn row(admin: &Actor, category: &str) -> Value {
    let board = admin.get("/v1/governance/problems").await.ok();
    let rows = board["items"].as_array().expect("rows").clone();
    let shown: Vec<&str> = rows.iter().filter_map(|row| row["category"].as_str()).collect();
    assert_eq!(shown, CATEGORIES, "always all eight");
    rows.into_iter().find(|row| row["category"] == category).expect("a row")
}

async fn the_board_shows_all_eight_with_their_evidence(store: Option<String>) {
    let server = Server::with(None, store, PACE).await;
    let admin = server.admin();
    let quiet = row(&admin, "failed_runs").await;
    assert_eq!(quiet, json!({"category": "failed_runs", "light": "green", "count": 0}), "nothing is made up");
    admin.post_bytes("/v1/definitions", BRITTLE).await.created();
    let failed = fail(&admin).await;
    until("the run is on the board", async || row(&admin, "failed_runs").await["count"] == 1).await;
    let red = row(&admin, "failed_runs").await;
    let summary = &red["summary"];
    assert_eq!((&red["light"], &summary["text"]), (&json!("red"), &json!("1 failed run")));
    assert!(red["oldest_at"].is_string() && summary["time_window"]["start_at"] == red["oldest_at"], "{red}");
    assert_eq!((&summary["source_event_count"], &summary["source_event_total"]), (&json!(1), &json!(1)));
    assert_eq!(summary["generated_by"]["summarizer_kind"], "deterministic_rule");
    assert!(summary["confidence"].is_null() && summary["text_key"] == "governance.failed_runs.open", "{summary}");
    let texts = admin.get("/v1/registry").await.ok()["texts"].clone();
    for language in ["en", "vi"] {
        assert!(texts[language]["governance.failed_runs.open"].as_str().is_some_and(|text| text.contains("{count}")));
    }
    let evidence = summary["source_event_refs"][0].as_str().expect("evidence");
    let record = admin.get(&format!("/v1/ledger/records/{evidence}")).await.ok();
    assert_eq!(record["instance_id"], failed.as_str(), "one click away");

    let items = admin.get("/v1/governance/problems/failed_runs?state=open").await.ok();
    let item = items["items"][0].clone();
    assert_eq!((&item["run_id"], &item["opened_event_id"]), (&json!(failed), &json!(evidence)));
    let told = admin.get(item["timeline"].as_str().expect("a timeline")).await.ok();
    assert!(told["items"].as_array().is_some_and(|items| !items.is_empty()), "{told}");
    let chain = admin.get(summary["timeline"].as_str().expect("a timeline")).await.ok();
    assert_eq!(chain["items"][0]["action_ref"], "problem_opened");
    let metrics = server.nobody().get("/metrics").await.text;
    assert!(metrics.contains("countersign_problems{category=\"orphan_runs\"} 0"), "{metrics}");

    let (correction, task) = claimed(&admin, json!({"definition": "brittle", "corrects": failed})).await;
    let path = format!("/v1/tasks/{}/complete", task["task_id"].as_str().expect("an id"));
    admin.post(&path, json!({"lease_token": task["lease_token"]})).await.ok();
    until("the light is green", async || row(&admin, "failed_runs").await["light"] == "green").await;
    let resolved = admin.get("/v1/governance/problems/failed_runs?state=resolved").await.ok();
    let resolving = resolved["items"][0]["resolved_event_id"].as_str().expect("an event").to_owned();
    let record = admin.get(&format!("/v1/ledger/records/{resolving}")).await.ok();
    assert_eq!((&record["action_ref"], &record["instance_id"]), (&json!("step_completed"), &json!(correction)));
    let green = row(&admin, "failed_runs").await;
    assert_eq!((&green["count"], &green["summary"]["source_event_refs"][0]), (&json!(0), &json!(resolving)));

    let verified = admin.post("/v1/ledger/verify-log", json!({})).await.ok();
    assert_eq!(verified["result"], "verified", "{verified}");
    admin.get("/v1/governance/problems/lost_runs").await.refused(404, "not-known");
    admin.get("/v1/governance/problems/failed_runs?state=gone").await.refused(400, "invalid-query");
    let reader = server.actor("reader", &["governance:read"]).await;
    reader.get("/v1/governance/problems").await.ok();
    let worker = server.actor("worker", &["tasks:work", "runs:read"]).await;
    worker.get("/v1/governance/problems").await.refused(403, "permission-denied");
    worker.get("/v1/governance/problems/lost_runs").await.refused(403, "permission-denied");
}

async fn a_dead_step_of_a_held_run_shows_every_attempt(store: Option<String>) {
    let server = Server::with(None, store, PACE).await;
    let admin = server.admin();
    let held = BRITTLE.replace("brittle", "held").replace("name: A", "name: A, onFailure: hold");
    admin.post_bytes("/v1/definitions", held).await.created();
    let (run_id, task) = claimed(&admin, json!({"definition": "held", "input": {"n": 7}})).await;
    let path = format!("/v1/tasks/{}/dead", task["task_id"].as_str().expect("an id"));
    admin.post(&path, json!({"lease_token": task["lease_token"], "last_error": "broken"})).await.ok();
    until("it is a dead letter", async || row(&admin, "dlq").await["count"] == 1).await;
    let reader = server.actor("reader", &["governance:read"]).await;
    let letter = reader.get("/v1/dead-letters").await.ok()["items"][0].clone();
    assert_eq!((&letter["kind"], &letter["run_id"], &letter["step"]), (&json!("step"), &json!(run_id), &json!("A")));
    let path = format!("/v1/dead-letters/{}", letter["dead_letter_id"].as_str().expect("an id"));
    let whole = reader.get(&path).await.ok();
    assert_eq!((&whole["payload"], &whole["attempt_log"][0]["error"]), (&json!({"n": 7}), &json!("broken")));
    reader.get("/v1/dead-letters/x").await.refused(404, "not-known");
    let stranger = server.actor("stranger", &["runs:read"]).await;
    stranger.get("/v1/dead-letters").await.refused(403, "permission-denied");
    stranger.get(&path).await.refused(403, "permission-denied");
}

async fn a_delivery_that_was_given_up_is_a_dead_letter_until_it_arrives(store: Option<String>) {
    let receiver = Receiver::start().await;
    receiver.answer(410);
    let config = format!("{APPROVER}{}", allowed(&receiver.webhook("in", "types = [\"order.*\"]")));
    let (server, admin) = with_workflow(config, store).await;
    send(&admin, &["order.paid"]).await;
    until("it is given up", async || outbox(&admin, "dead").await.len() == 1).await;
    until("it is on the board", async || row(&admin, "dlq").await["count"] == 1).await;
    let dead = outbox(&admin, "dead").await.remove(0);
    let item = admin.get("/v1/governance/problems/dlq").await.ok()["items"][0].clone();
    assert_eq!((&item["opened_event_id"], &item["step"]), (&dead["outbox_id"], &json!("PAY")));
    let letters = admin.get("/v1/dead-letters?state=open").await.ok();
    let letter = letters["items"][0].clone();
    assert_eq!((&letter["kind"], &letter["outbox_id"]), (&json!("delivery"), &dead["outbox_id"]));
    let path = format!("/v1/dead-letters/{}", letter["dead_letter_id"].as_str().expect("an id"));
    let whole = admin.get(&path).await.ok();
    assert_eq!((&whole["attempts"], &whole["last_error"]), (&json!(1), &json!("answered 410")));
    assert_eq!(whole["payload"], json!({"a": "ü", "b": 1}));
    receiver.answer(200);
    replay(&server, &dead).await;
    until("the light is green", async || row(&admin, "dlq").await["light"] == "green").await;
    let item = admin.get("/v1/governance/problems/dlq").await.ok()["items"][0].clone();
    let resolving = item["resolved_event_id"].as_str().expect("an event");
    let record = admin.get(&format!("/v1/ledger/records/{resolving}")).await.ok();
    assert_eq!(record["action_ref"], "dlq_replay_completed", "the engine has seen it arrive");
    let verified = admin.post("/v1/ledger/verify-log", json!({})).await.ok();
    assert_eq!(verified["result"], "verified", "{verified}");
}

async fn workers_are_frozen_thawed_and_seen(store: Option<String>) {
    let server = Server::with(None, store, PACE).await;
    let admin = server.admin();
    admin.post_bytes("/v1/definitions", BRITTLE).await.created();
    let (_, task) = claimed(&admin, json!({"definition": "brittle"})).await;
    let path = format!("/v1/tasks/{}/complete", task["task_id"].as_str().expect("an id"));
    admin.post(&path, json!({"lease_token": task["lease_token"]})).await.ok();
    let (class, path) = ("q:worker", "/v1/governance/workers/q:worker");
    let reader = server.actor("reader", &["governance:read"]).await;
    let seen = async || {
        let all = reader.get("/v1/governance/workers").await.ok();
        let items = all["items"].as_array().expect("classes").clone();
        assert!(items.iter().any(|item| item["worker_class"] == "@workflow:countersign"), "its own executors: {all}");
        items.into_iter().find(|item| item["worker_class"] == class).unwrap_or_default()
    };
    let item = seen().await;
    assert_eq!((&item["status"], &item["queue"], &item["kind"]), (&json!("ok"), &json!("q"), &json!("worker")));
    let summary = &item["summary"];
    let text = summary["text"].as_str().expect("a sentence");
    assert!(text.starts_with("OK, 1 job / 0 errors / lag ") && text.ends_with(" s p95"), "{text}");
    let evidence = summary["source_event_refs"][0].as_str().expect("evidence");
    let record = admin.get(&format!("/v1/ledger/records/{evidence}")).await.ok();
    assert_eq!((&record["action_ref"], &summary["source_event_count"]), (&json!("step_completed"), &json!(1)));

    let why = json!({"reason": "it is being repaired"});
    reader.post(&format!("{path}/freeze"), why.clone()).await.refused(403, "permission-denied");
    let hand = server.actor("hand", &["governance:act"]).await;
    hand.get("/v1/governance/workers").await.refused(403, "permission-denied");
    hand.post(&format!("{path}/freeze"), json!({"reason": " "})).await.refused(400, "invalid-request");
    hand.post("/v1/governance/workers/q/freeze", why.clone()).await.refused(400, "invalid-request");
    let frozen = hand.post(&format!("{path}/freeze"), why.clone()).await.ok();
    assert_eq!(frozen, json!({"worker_class": class, "frozen": true}));
    admin.post("/v1/runs", json!({"definition": "brittle"})).await.created();
    let none = admin.post("/v1/queues/q/claim", json!({"worker_id": "w"})).await.ok();
    assert_eq!(none, json!({"tasks": [], "frozen": true}));
    let item = seen().await;
    assert_eq!((&item["status"], &item["frozen"]["by"]), (&json!("frozen"), &json!("hand")));
    assert_eq!(item["frozen"]["reason"], why["reason"]);
    // A waiting claim gets the step as soon as the class is thawed.
    let waits = async { admin.post("/v1/queues/q/claim", json!({"worker_id": "w", "wait_ms": 20_000})).await.ok() };
    let thaws = async { hand.post(&format!("{path}/thaw"), why.clone()).await.ok() };
    let (claimed, thawed) = tokio::join!(waits, thaws);
    assert_eq!((claimed["tasks"].as_array().map(Vec::len), &thawed["frozen"]), (Some(1), &json!(false)));
    let marks = admin.get("/v1/ledger/records?action_ref=worker_class_frozen").await.ok();
    let record = &marks["items"][0];
    assert_eq!((&record["actor_ref"], &record["payload"]["worker_class"]), (&json!("hand"), &json!(class)), "{record}");

    // A queue may have any name.
    let odd = hand.post("/v1/governance/workers/a%2Fb%20c:shop/freeze", why.clone()).await.ok();
    assert_eq!(odd["worker_class"], "a/b c:shop");

    let stranger = server.actor("stranger", &["runs:read"]).await;
    stranger.post("/v1/queues/q/leave", json!({"worker_id": "w"})).await.refused(403, "permission-denied");
    stranger.get("/v1/governance/lag").await.refused(403, "permission-denied");
    let left = admin.post("/v1/queues/q/leave", json!({"worker_id": "w"})).await.ok();
    assert_eq!(left, json!({"worker_class": class}));
    admin.post("/v1/queues/@http/leave", json!({"worker_id": "w"})).await.refused(400, "invalid-request");

    let lag = reader.get("/v1/governance/lag?window=15m").await.ok();
    let pairs = lag["items"].as_array().expect("pairs");
    let pair = pairs.iter().find(|pair| pair["consumer"] == "q").expect("ready steps");
    assert_eq!((&pair["producer"], &pair["count"], &pair["light"]), (&json!("ready"), &json!(2), &json!("green")));
    assert!(pair["lag"]["p95_ms"].is_number() && pair["thresholds"]["p95_ms"] == 30_000.0, "{pair}");
    for wrong in ["window=1y", "window=5s", "window=32d", "since=1h"] {
        reader.get(&format!("/v1/governance/lag?{wrong}")).await.refused(400, "invalid-query");
    }
    let metrics = server.nobody().get("/metrics").await.text;
    assert!(
        metrics.contains("countersign_lag_seconds{producer=\"ready\",consumer=\"q\",quantile=\"0.95\"}"),
        "{metrics}"
    );
    let verified = admin.post("/v1/ledger/verify-log", json!({})).await.ok();
    assert_eq!(verified["result"], "verified", "{verified}");
}
