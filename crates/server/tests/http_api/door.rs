//! Events have one door: what steps send and what callers post starts the same definitions and wakes the same waits, once.
//! On SQLite and on a real PostgreSQL (`scripts/with-postgres.sh`).

use crate::replays::{APPROVER, replay};
use crate::support::{Actor, Server};
use crate::webhooks::{PACE, database, on_both, outbox, until};
use serde_json::{Value, json};

const SHOP: &str =
    "kind: workflow\nname: shop\nqueue: orders\ncorrelationKey: ${input.order}\nsteps: [{name: PAY, timeout: 10m}]\n";
const WATCHER: &str = "kind: workflow\nname: watcher\ncorrelationKey: ${input.order}\nsteps: [{name: W, run: wait, event: order.paid, timeout: 1h}]\n";
const BILLING: &str = "kind: workflow\nname: billing\non: [{event: order.paid, input: {order: \"${event.order}\"}}]\nqueue: bills\n\
    correlationKey: ${input.order}\nsteps: [{name: BILL, timeout: 10m}]\n";
const PING: &str = "kind: workflow\nname: ping\non: [{event: ping}]\nqueue: pings\nsteps: [{name: P, timeout: 10m}]\n";
const ALONE: &str = "kind: workflow\nname: alone\nqueue: alone\norder: dag\nsteps:\n  - {name: A, timeout: 10m}\n  \
    - {name: B, run: wait, event: go, timeout: 1h}\n";

on_both! {
    what_a_step_sends_starts_what_listens_and_wakes_what_waits,
    a_run_may_wait_for_its_own_steps,
    an_event_is_the_same_at_both_doors,
    who_may_not_start_is_passed_over_or_refused,
    runs_that_start_each_other_come_to_an_end,
    what_cannot_start_is_a_dead_letter,
    a_firing_starts_runs_and_sends_events,
    a_start_that_is_refused_is_a_dead_letter,
    what_no_effect_can_be_is_refused,
}

async fn served(store: Option<String>, documents: &[&str]) -> (Server, Actor) {
    let server = Server::with(Some(APPROVER.to_owned()), store, PACE).await;
    let admin = server.admin();
    for document in documents {
        admin.post_bytes("/v1/definitions", *document).await.created();
    }
    (server, admin)
}

async fn start(admin: &Actor, definition: &str, input: Value) -> String {
    let started = admin.post("/v1/runs", json!({"definition": definition, "input": input})).await.created();
    started["run_id"].as_str().expect("an id").to_owned()
}

/// Completes the next task of a queue, which sends these events.
async fn complete(admin: &Actor, queue: &str, events: Value) -> String {
    let claim = json!({"worker_id": "w", "wait_ms": 10_000});
    let task = admin.post(&format!("/v1/queues/{queue}/claim"), claim).await.ok()["tasks"][0].clone();
    let body = json!({"lease_token": task["lease_token"], "output": 1, "outbound_events": events});
    admin.post(&format!("/v1/tasks/{}/complete", task["task_id"].as_str().expect("a task")), body).await.ok();
    task["run_id"].as_str().expect("an id").to_owned()
}

async fn runs(admin: &Actor, definition: &str) -> Vec<String> {
    let page = admin.get(&format!("/v1/runs?definition={definition}&limit=500")).await.ok();
    let items = page["items"].as_array().expect("items");
    items.iter().map(|run| run["run_id"].as_str().expect("an id").to_owned()).collect()
}

async fn state(admin: &Actor, run_id: &str) -> String {
    admin.get(&format!("/v1/runs/{run_id}")).await.ok()["state"].as_str().expect("a state").to_owned()
}

async fn payloads(admin: &Actor, run_id: &str, action: &str) -> Vec<Value> {
    let page = admin.get(&format!("/v1/ledger/records?instance_id={run_id}&action_ref={action}")).await.ok();
    page["items"].as_array().expect("items").iter().map(|record| record["payload"].clone()).collect()
}

async fn verified(admin: &Actor) {
    let verified = admin.post("/v1/ledger/verify-log", json!({})).await.ok();
    assert_eq!(verified["result"], "verified", "{verified}");
}

async fn what_a_step_sends_starts_what_listens_and_wakes_what_waits(store: Option<String>) {
    let (mut server, admin) = served(store, &[SHOP, WATCHER, BILLING]).await;
    let (waits, other) = (
        start(&admin, "watcher", json!({"order": "o-1"})).await,
        start(&admin, "watcher", json!({"order": "o-2"})).await,
    );
    let shop = start(&admin, "shop", json!({"order": "o-1"})).await;
    let paid = json!({"type": "order.paid", "data": {"order": "o-1", "amount": 7}});
    complete(&admin, "orders", json!([paid, {"type": "nobody.listens"}])).await;
    until("both have arrived", async || outbox(&admin, "delivered").await.len() == 2).await;
    let billing = runs(&admin, "billing").await;
    assert_eq!(billing.len(), 1);
    let view = admin.get(&format!("/v1/runs/{}", billing[0])).await.ok();
    assert_eq!((&view["input"], &view["initiator_ref"]), (&json!({"order": "o-1"}), &json!("countersign")));
    let woken = admin.get(&format!("/v1/runs/{waits}")).await.ok();
    assert_eq!((&woken["state"], &woken["steps"][0]["output"]), (&json!("completed"), &paid["data"]));
    assert_eq!(state(&admin, &other).await, "executing");

    // The record of the run names what started it, and the trace goes on.
    let started = payloads(&admin, &billing[0], "run_started").await.remove(0);
    let event = outbox(&admin, "delivered").await.into_iter().find(|event| event["type"] == "order.paid");
    let event = event.expect("the event");
    assert_eq!(event["deliveries"][0]["webhook"], "@events");
    let origin = json!({"instance_id": shop, "outbox_id": event["outbox_id"], "depth": 1});
    assert_eq!((&started["origin"], &started["trace_id"]), (&origin, &json!(shop.replace('-', ""))));
    // The sender waits for nothing of that type, and what the event has started does not hear of it.
    for run_id in [&shop, &billing[0]] {
        assert!(payloads(&admin, run_id, "event_received").await.is_empty());
    }
    verified(&admin).await;
    server.restart().await;
    assert_eq!(runs(&server.admin(), "billing").await, billing);
}

async fn a_run_may_wait_for_its_own_steps(store: Option<String>) {
    let (_server, admin) = served(store, &[ALONE]).await;
    let run_id = start(&admin, "alone", json!({})).await;
    complete(&admin, "alone", json!([{"type": "go", "data": 3}])).await;
    until("it has ended", async || state(&admin, &run_id).await == "completed").await;
    assert_eq!(admin.get(&format!("/v1/runs/{run_id}")).await.ok()["steps"][1]["output"], 3);
    verified(&admin).await;
}

async fn an_event_is_the_same_at_both_doors(store: Option<String>) {
    let (_server, admin) = served(store, &[WATCHER, BILLING]).await;
    let (first, second) = (
        start(&admin, "watcher", json!({"order": "o-1"})).await,
        start(&admin, "watcher", json!({"order": "o-1"})).await,
    );
    let event = json!({"id": "e-1", "type": "order.paid", "correlation_key": "o-1", "data": {"order": "o-1"}});
    let sent = admin.post("/v1/events", event.clone()).await.accepted();
    assert_eq!(
        (&sent["duplicate"], &sent["reached"], sent["woken"].as_array().map(Vec::len)),
        (&json!(false), &json!(2), Some(2))
    );
    let billing = runs(&admin, "billing").await;
    assert_eq!((billing.len(), &sent["run_ids"]), (1, &json!(billing)));
    for run_id in [first, second] {
        assert_eq!(state(&admin, &run_id).await, "completed");
    }
    // The same again, at this door and at the other one: nothing happens twice, and what it has started does not get it.
    let again = admin.post("/v1/events", event.clone()).await.accepted();
    assert_eq!((&again["duplicate"], &again["run_ids"], &again["woken"]), (&json!(true), &json!(billing), &json!([])));
    let other_door = admin.post("/v1/runs/trigger", event).await.accepted();
    assert_eq!(other_door, json!({"run_ids": billing}));
    assert_eq!(runs(&admin, "billing").await, billing);
    assert!(payloads(&admin, &billing[0], "event_received").await.is_empty());

    // And the other way round.
    let third = start(&admin, "watcher", json!({"order": "o-3"})).await;
    let event = json!({"id": "e-2", "type": "order.paid", "run_id": third, "data": {"order": "o-3"}});
    let triggered = admin.post("/v1/runs/trigger", event.clone()).await.accepted();
    assert_eq!(triggered["woken"], json!([{"run_id": third, "step": "W"}]));
    let again = admin.post("/v1/events", event).await.accepted();
    assert_eq!((&again["duplicate"], &again["run_ids"]), (&json!(true), &triggered["run_ids"]));
    assert_eq!(runs(&admin, "billing").await.len(), 2);
    let nameless = json!({"type": "order.paid", "correlation_key": "o-3", "data": {"order": "o-3"}});
    admin.post("/v1/runs/trigger", nameless).await.refused_at(400, "invalid-request", "id");
    verified(&admin).await;
}

async fn who_may_not_start_is_passed_over_or_refused(store: Option<String>) {
    let (server, admin) = served(store, &[WATCHER, BILLING]).await;
    let worker = server.actor("worker", &["tasks:work"]).await;
    let watcher = start(&admin, "watcher", json!({"order": "o-1"})).await;
    let event = |id: &str, data: Value| json!({"id": id, "type": "order.paid", "run_id": watcher, "data": data});
    worker.post("/v1/runs/trigger", event("e-1", json!({"order": "o-1"}))).await.refused(403, "permission-denied");
    // An event of which a definition can make nothing does nothing at all.
    admin.post("/v1/events", event("e-2", json!({}))).await.refused_at(400, "invalid-request", "data");
    assert_eq!(state(&admin, &watcher).await, "executing");
    let sent = worker.post("/v1/events", event("e-1", json!({"order": "o-1"}))).await.accepted();
    assert_eq!((sent["woken"].as_array().map(Vec::len), sent.get("run_ids")), (Some(1), None));
    assert!(runs(&admin, "billing").await.is_empty());
}

async fn runs_that_start_each_other_come_to_an_end(store: Option<String>) {
    let (_server, admin) = served(store, &[PING]).await;
    start(&admin, "ping", json!({})).await;
    for _ in 0..17 {
        complete(&admin, "pings", json!([{"type": "ping"}])).await;
    }
    until("the last one is a dead letter", async || outbox(&admin, "dead").await.len() == 1).await;
    let dead = outbox(&admin, "dead").await.remove(0);
    let error = dead["deliveries"][0]["last_error"].as_str().expect("an error");
    assert!(error.starts_with("EVENT_LOOP: "), "{error}");
    let all = runs(&admin, "ping").await;
    let mut depths = Vec::new();
    for run_id in &all {
        depths.push(payloads(&admin, run_id, "run_started").await[0]["origin"]["depth"].as_u64().unwrap_or(0));
    }
    depths.sort_unstable();
    assert_eq!(depths, (0..=16).collect::<Vec<_>>());
    verified(&admin).await;
}

async fn what_cannot_start_is_a_dead_letter(store: Option<String>) {
    let good = PING.replace("name: ping", "name: good");
    let bad =
        good.replace("name: good", "name: bad").replace("event: ping", "event: ping, input: {n: \"${event.deep.er}\"}");
    let (server, admin) = served(store, &[&bad, &good, SHOP]).await;
    start(&admin, "shop", json!({"order": "o-1"})).await;
    complete(&admin, "orders", json!([{"type": "ping", "data": {}}])).await;
    until("it is a dead letter", async || outbox(&admin, "dead").await.len() == 1).await;
    let dead = outbox(&admin, "dead").await.remove(0);
    let error = dead["deliveries"][0]["last_error"].as_str().expect("an error");
    assert!(error.starts_with("bad: ") && !error.contains("good"), "{error}");
    assert_eq!((runs(&admin, "good").await.len(), runs(&admin, "bad").await.len()), (1, 0));
    // Put right, it starts what is missing and nothing twice.
    admin.post_bytes("/v1/definitions", good.replace("name: good", "name: bad")).await.created();
    replay(&server, &dead).await;
    until("it is delivered", async || outbox(&admin, "dead").await.is_empty() && runs(&admin, "bad").await.len() == 1)
        .await;
    assert_eq!(runs(&admin, "good").await.len(), 1);
}

const RELEASE: &str = "kind: process\nname: release\nstates: [made, checked, out]\ninitial_state: made\nterminal_states: [out]\ntransitions:\n  \
    - {from: made, action: check, to: checked, effects: [{event: {type: batch.checked, data: {batch: \"${event.subject_ref}\"}}}]}\n  \
    - from: checked\n    action: release\n    to: out\n    guard: qp\n    effects:\n      \
    - {start: {definition: ship, input: {batch: \"${event.subject_ref}\", by: \"${event.actor_ref}\"}}}\n      \
    - {start: {definition: ship@1}}\n      \
    - {event: {type: order.paid, data: {order: \"${event.subject_ref}\"}}}\n\
    gate_spec: {qp: {approver_ref: admin, scope: s}}\n";
const SHIP: &str = "kind: workflow\nname: ship\nqueue: ship\nsteps: [{name: S, timeout: 10m}]\n";

async fn process(admin: &Actor, subject: &str) -> String {
    let made = admin.post("/v1/processes", json!({"definition": "release", "subject_ref": subject})).await.created();
    made["instance_id"].as_str().expect("an id").to_owned()
}

async fn a_firing_starts_runs_and_sends_events(store: Option<String>) {
    let (mut server, admin) = served(store, &[SHIP, WATCHER, BILLING, RELEASE]).await;
    // The version is that of the day on which the process was published.
    admin.post_bytes("/v1/definitions", SHIP.replace("queue: ship", "queue: later")).await.created();
    let waits = start(&admin, "watcher", json!({"order": "b-1"})).await;
    let id = process(&admin, "b-1").await;
    let declared =
        admin.get(&format!("/v1/processes/{id}")).await.ok()["declaration"]["transitions"][1]["effects"].clone();
    assert_eq!(declared[0]["start"]["definition"], "ship@1");
    admin.fire(&id, "check").await.ok();
    // What is refused causes nothing.
    admin.fire(&id, "release").await.refused(409, "gate-not-cleared");
    admin.open_gate(&id, "release").await.created();
    admin.decide(&id, "release", json!({"decision": "approve"})).await.ok();
    let fired = admin.fire(&id, "release").await.ok();
    until("everything has arrived", async || {
        runs(&admin, "ship").await.len() == 2 && runs(&admin, "billing").await.len() == 1
    })
    .await;
    until("the wait is over", async || state(&admin, &waits).await == "completed").await;

    let recorded = payloads(&admin, &id, "transition_fired").await;
    let told = json!([
        {"start": {"definition": "ship@1", "input": {"batch": "b-1", "by": "admin"}}},
        {"start": {"definition": "ship@1", "input": null}},
        {"event": {"type": "order.paid", "data": {"order": "b-1"}}},
    ]);
    let firing = recorded.iter().find(|payload| payload["action"] == "release").expect("the firing");
    assert_eq!(firing["effects"], told);
    let mut started = Vec::new();
    for run_id in runs(&admin, "ship").await {
        let payload = payloads(&admin, &run_id, "run_started").await.remove(0);
        assert_eq!(payload["definition"], "ship@1");
        started.push((payload["origin"].clone(), payload["input"].clone()));
    }
    started.sort_by_key(|(origin, _)| origin["effect"].as_u64());
    let origin = |n: u32| json!({"instance_id": id, "transition_id": fired["transition_id"], "effect": n, "depth": 1});
    assert_eq!(started, [(origin(0), json!({"batch": "b-1", "by": "admin"})), (origin(1), Value::Null)]);
    verified(&admin).await;
    server.restart().await;
    assert_eq!(runs(&server.admin(), "ship").await.len(), 2);
}

async fn a_start_that_is_refused_is_a_dead_letter(store: Option<String>) {
    let strict = format!("{SHIP}inputSchema: {{type: object, required: [batch]}}\n");
    let (_server, admin) = served(store, &[&strict, RELEASE]).await;
    let id = process(&admin, "b-1").await;
    admin.fire(&id, "check").await.ok();
    admin.open_gate(&id, "release").await.created();
    admin.decide(&id, "release", json!({"decision": "approve"})).await.ok();
    admin.fire(&id, "release").await.ok();
    until("one of them is a dead letter", async || outbox(&admin, "dead").await.len() == 1).await;
    let dead = outbox(&admin, "dead").await.remove(0);
    assert_eq!((&dead["type"], &dead["deliveries"][0]["webhook"]), (&json!("@start"), &json!("@events")));
    until("the other one runs", async || runs(&admin, "ship").await.len() == 1).await;
    verified(&admin).await;
}

async fn what_no_effect_can_be_is_refused(store: Option<String>) {
    let (_server, admin) = served(store, &[SHIP]).await;
    for (written, instead, code, path) in [
        ("definition: ship,", "definition: shop,", "unknown-workflow", "transitions[1].effects[0].start.definition"),
        ("definition: ship@1", "definition: ship@7", "unknown-workflow", "transitions[1].effects[1].start.definition"),
        (
            "by: \"${event.actor_ref}\"",
            "by: \"${input.x}\"",
            "bad-expression",
            "transitions[1].effects[0].start.input.by",
        ),
        ("type: order.paid", "type: run.completed", "bad-value", "transitions[1].effects[2].event.type"),
        ("type: order.paid", "kind: order.paid", "unknown-field", "transitions[1].effects[2].event.kind"),
        ("{start: {definition: ship@1}}", "{}", "missing-field", "transitions[1].effects[1]"),
    ] {
        assert!(RELEASE.contains(written), "{written}");
        let answer = admin.post_bytes("/v1/definitions/validate", RELEASE.replacen(written, instead, 1)).await.ok();
        let problem = answer["problems"].as_array().expect("problems").iter().find(|problem| problem["path"] == path);
        assert_eq!(problem.map(|problem| &problem["code"]), Some(&json!(code)), "{answer}");
    }
    let inline = json!({
        "declaration": {
            "states": ["a", "b"], "initial_state": "a", "terminal_states": ["b"],
            "transitions": [{"from": "a", "action": "go", "to": "b", "effects": [{"start": {"definition": "ship"}}]}],
        },
        "subject_ref": "s", "gate_spec": {},
    });
    admin.post("/v1/processes", inline).await.refused_at(
        400,
        "invalid-declaration",
        "declaration.transitions[0].effects",
    );
}
