//! Dead letters are replayed as somebody requested and somebody else approved, once. On SQLite and on a real PostgreSQL
//! (`scripts/with-postgres.sh`).

use crate::signed::Hand;
use crate::support::{Actor, Server};
use crate::webhooks::{PACE, Receiver, allowed, database, on_both, outbox, send, until, with_workflow};
use serde_json::{Value, json};

on_both! {
    only_the_approval_has_a_delivery_replayed,
    a_dead_step_is_taken_up_as_its_definition_lets,
    a_rejection_and_a_withdrawal_close_a_request,
    a_replay_that_fails_leaves_the_letter_open,
    who_may_not_ask_is_refused_before_anything_is_looked_up,
    requests_and_approvals_of_two_nodes_lead_to_one_replay,
    what_was_approved_before_a_restart_is_replayed_once,
    requests_are_signed_on_a_regulated_server,
}

pub const APPROVER: &str = "[governance]\nreplay_approver = \"chief\"\n";
const WHY: &str = "their certificate is renewed";

/// The open dead letter of this event.
async fn letter_of(admin: &Actor, dead: &Value) -> String {
    let mut found = None;
    until("it is a dead letter", async || {
        let letters = admin.get("/v1/dead-letters?state=open").await.ok();
        let letters = letters["items"].as_array().expect("items").clone();
        found = letters.into_iter().find(|letter| letter["outbox_id"] == dead["outbox_id"]);
        found.is_some()
    })
    .await;
    found.expect("a letter")["dead_letter_id"].as_str().expect("an id").to_owned()
}

async fn request(actor: &Actor, letter: &str) -> Value {
    actor.post(&format!("/v1/dead-letters/{letter}/replay-requests"), json!({"reason": WHY})).await.created()
}

fn id_of(request: &Value) -> String {
    request["dlq_replay_request_id"].as_str().expect("an id").to_owned()
}

/// Has this event replayed: one person asks, another one approves.
pub async fn replay(server: &Server, dead: &Value) {
    let requester = server.actor("requester", &["governance:act"]).await;
    let chief = server.actor("chief", &[]).await;
    let made = request(&requester, &letter_of(&server.admin(), dead).await).await;
    chief.decide(&id_of(&made), "approve", json!({"decision": "approve"})).await.ok();
}

async fn requests(admin: &Actor, query: &str) -> Vec<Value> {
    let page = admin.get(&format!("/v1/replay-requests?{query}")).await.ok();
    page["items"].as_array().expect("items").clone()
}

async fn completed(admin: &Actor, count: usize) -> Vec<Value> {
    let mut found = vec![];
    until("the outcome is known", async || {
        found = requests(admin, "state=closed").await.into_iter().filter(|one| one["outcome"].is_string()).collect();
        found.len() == count
    })
    .await;
    found
}

async fn records(admin: &Actor, action: &str) -> Vec<Value> {
    let page = admin.get(&format!("/v1/ledger/records?action_ref={action}&limit=500")).await.ok();
    page["items"].as_array().expect("items").clone()
}

async fn verify(admin: &Actor) {
    let verified = admin.post("/v1/ledger/verify-log", json!({})).await.ok();
    assert_eq!(verified["result"], "verified", "{verified}");
}

/// A server with one dead delivery: the receiver, the server, the administrator, and the letter.
async fn with_dead_delivery(config: &str, store: Option<String>) -> (Receiver, Server, Actor, String) {
    let receiver = Receiver::start().await;
    receiver.answer(410);
    let types = "types = [\"order.*\", \"dlq_replay.*\"]";
    let config = format!("{config}{}", allowed(&receiver.webhook("in", types)));
    let (server, admin) = with_workflow(config, store).await;
    send(&admin, &["order.paid"]).await;
    until("it is given up", async || outbox(&admin, "dead").await.len() == 1).await;
    let dead = outbox(&admin, "dead").await.remove(0);
    let letter = letter_of(&admin, &dead).await;
    (receiver, server, admin, letter)
}

async fn only_the_approval_has_a_delivery_replayed(store: Option<String>) {
    let (receiver, server, admin, letter) = with_dead_delivery(APPROVER, store).await;
    let (ann, chief) = (server.actor("ann", &["governance:act"]).await, server.actor("chief", &[]).await);
    receiver.answer(200);
    let made = request(&ann, &letter).await;
    let id = id_of(&made);
    assert_eq!((&made["state"], &made["gate"]["approvers"]), (&json!("requested"), &json!(["chief"])));
    let waits = chief.get("/v1/inbox").await.ok()["items"][0].clone();
    let asked = &waits["request"];
    let said = (&asked["dead_letter_id"], &asked["kind"], &asked["attempts"], &asked["reason"]);
    assert_eq!(said, (&json!(letter), &json!("delivery"), &json!(1), &json!(WHY)), "{waits}");
    assert_eq!(asked["payload_digest"].as_str().map(str::len), Some(64));
    ann.decide(&id, "approve", json!({"decision": "approve"})).await.refused(403, "unauthorized");
    admin.fire(&id, "approve").await.refused(409, "invalid-transition");
    admin.open_gate(&id, "approve").await.refused(409, "invalid-transition");
    let path = format!("/v1/dead-letters/{letter}/replay-requests");
    admin.post(&path, json!({"reason": "too"})).await.refused(409, "already-open");
    assert_eq!(receiver.got().len(), 1, "nothing was sent before the approval");
    let approved = chief.decide(&id, "approve", json!({"decision": "approve"})).await.ok();
    assert_eq!(approved["outcome"], "approved");
    let done = completed(&admin, 1).await.remove(0);
    assert_eq!((&done["outcome"], &done["state"]), (&json!("delivered"), &json!("completed")));
    assert_eq!(done["approval_id"], made["gate"]["step_id"]);
    assert_eq!(receiver.got()[0].1, receiver.got()[1].1, "the same event, byte for byte");
    let told = records(&admin, "dlq_replay_completed").await;
    let payload = &told[0]["payload"];
    assert_eq!(told.len(), 1);
    assert_eq!((&payload["dlq_replay_request_id"], &payload["approval_id"]), (&json!(id), &done["approval_id"]));
    let seen = admin.get(&format!("/v1/dead-letters/{letter}")).await.ok();
    assert_eq!((&seen["state"], &seen["replay_requests"][0]["outcome"]), (&json!("resolved"), &json!("delivered")));
    let problem = admin.get("/v1/governance/problems/dlq").await.ok()["items"][0].clone();
    assert_eq!(problem["resolved_event_id"], told[0]["event_id"]);
    until("it is told", async || receiver.got().len() == 3).await;
    let event: Value = serde_json::from_str(&receiver.got()[2].1).expect("JSON");
    assert_eq!((&event["type"], &event["data"]["outcome"]), (&json!("dlq_replay.completed"), &json!("delivered")));
    admin.post(&path, json!({"reason": "again"})).await.refused(409, "conflict");
    verify(&admin).await;
}

const HELD: &str = "kind: workflow\nname: held\nqueue: q\ngate_spec: {replay: {approver_ref: owner, scope: s}}\n\
    steps: [{name: A, onFailure: hold, retryPolicy: {maxRetries: 0}}]\n";

/// The next task of the queue is given up.
async fn give_up(admin: &Actor) {
    let claimed = admin.post("/v1/queues/q/claim", json!({"worker_id": "w", "wait_ms": 10_000})).await.ok();
    let task = &claimed["tasks"][0];
    let path = format!("/v1/tasks/{}/dead", task["task_id"].as_str().expect("an id"));
    admin.post(&path, json!({"lease_token": task["lease_token"], "last_error": "broken"})).await.ok();
}

async fn dead_step(server: &Server) -> (String, String) {
    let admin = server.admin();
    admin.post_bytes("/v1/definitions", HELD).await.created();
    let run = admin.post("/v1/runs", json!({"definition": "held"})).await.created();
    give_up(&admin).await;
    let mut letters = vec![];
    until("it is a dead letter", async || {
        letters = admin.get("/v1/dead-letters?state=open").await.ok()["items"].as_array().expect("items").clone();
        letters.len() == 1
    })
    .await;
    let text = |value: &Value| value.as_str().expect("an id").to_owned();
    (text(&run["run_id"]), text(&letters[0]["dead_letter_id"]))
}

async fn a_dead_step_is_taken_up_as_its_definition_lets(store: Option<String>) {
    let server = Server::with(Some(APPROVER.to_owned()), store, PACE).await;
    let (ann, owner) = (server.actor("ann", &["governance:act"]).await, server.actor("owner", &[]).await);
    let admin = server.admin();
    let (run, letter) = dead_step(&server).await;
    let made = request(&ann, &letter).await;
    assert_eq!(made["gate"]["approvers"], json!(["owner"]), "whom the definition names");
    owner.decide(&id_of(&made), "approve", json!({"decision": "approve"})).await.ok();
    assert_eq!(completed(&admin, 1).await[0]["outcome"], "resumed");
    let ordered = records(&admin, "step_retry_ordered").await;
    assert_eq!((ordered.len(), &ordered[0]["actor_ref"]), (1, &json!("countersign")));
    let bound = &ordered[0]["payload"]["replay"];
    assert_eq!(bound["dlq_replay_request_id"], made["dlq_replay_request_id"]);
    assert_eq!(bound["approval_id"], made["gate"]["step_id"]);
    // It dies again: that is another letter, with a request of its own.
    give_up(&admin).await;
    until("both are letters", async || {
        admin.get("/v1/dead-letters").await.ok()["items"].as_array().map(Vec::len) == Some(2)
    })
    .await;
    let open = admin.get("/v1/dead-letters?state=open").await.ok()["items"][0].clone();
    let second = request(&ann, open["dead_letter_id"].as_str().expect("an id")).await;
    // Meanwhile an operator has retried it: there is nothing left to replay.
    admin.post(&format!("/v1/runs/{run}/steps/A/retry"), json!({})).await.ok();
    owner.decide(&id_of(&second), "approve", json!({"decision": "approve"})).await.ok();
    let outcomes: Vec<Value> = completed(&admin, 2).await.iter().map(|one| one["outcome"].clone()).collect();
    assert_eq!(outcomes, [json!("resumed"), json!("failed")]);
    assert_eq!(records(&admin, "step_retry_ordered").await.len(), 2);
    verify(&admin).await;
}

async fn a_rejection_and_a_withdrawal_close_a_request(store: Option<String>) {
    let (receiver, server, admin, letter) = with_dead_delivery(APPROVER, store).await;
    let (ann, chief) = (server.actor("ann", &["governance:act"]).await, server.actor("chief", &[]).await);
    let rejected = id_of(&request(&ann, &letter).await);
    chief.decide(&rejected, "approve", json!({"decision": "reject", "reason": "not yet"})).await.ok();
    let withdrawn = id_of(&request(&ann, &letter).await);
    ann.decide(&withdrawn, "approve", json!({"decision": "withdraw", "reason": "not needed"})).await.ok();
    chief.decide(&withdrawn, "approve", json!({"decision": "approve"})).await.refused(409, "not-pending");
    let states: Vec<Value> = requests(&admin, "state=closed").await.iter().map(|one| one["state"].clone()).collect();
    assert_eq!(states, [json!("rejected"), json!("withdrawn")]);
    assert!(requests(&admin, "state=open").await.is_empty());
    request(&ann, &letter).await;
    assert_eq!(requests(&admin, &format!("dead_letter_id={letter}")).await.len(), 3);
    assert_eq!(receiver.got().len(), 1, "nothing was sent");
    verify(&admin).await;
}

async fn a_replay_that_fails_leaves_the_letter_open(store: Option<String>) {
    let (receiver, server, admin, letter) = with_dead_delivery(APPROVER, store).await;
    let (ann, chief) = (server.actor("ann", &["governance:act"]).await, server.actor("chief", &[]).await);
    let first = id_of(&request(&ann, &letter).await);
    chief.decide(&first, "approve", json!({"decision": "approve"})).await.ok();
    assert_eq!(completed(&admin, 1).await[0]["outcome"], "failed");
    assert_eq!(admin.get(&format!("/v1/dead-letters/{letter}")).await.ok()["state"], "open");
    receiver.answer(200);
    let second = id_of(&request(&ann, &letter).await);
    chief.decide(&second, "approve", json!({"decision": "approve"})).await.ok();
    assert_eq!(completed(&admin, 2).await[1]["outcome"], "delivered");
    assert_eq!(admin.get(&format!("/v1/dead-letters/{letter}")).await.ok()["state"], "resolved");
    verify(&admin).await;
}

async fn who_may_not_ask_is_refused_before_anything_is_looked_up(store: Option<String>) {
    let (_receiver, server, admin, letter) = with_dead_delivery("", store).await;
    let path = |letter: &str| format!("/v1/dead-letters/{letter}/replay-requests");
    let why = json!({"reason": WHY});
    let reader = server.actor("reader", &["governance:read"]).await;
    for letter in [&*letter, "x", "0193c0de-0000-7000-8000-000000000000"] {
        reader.post(&path(letter), why.clone()).await.refused(403, "permission-denied");
    }
    server.nobody().post(&path(&letter), why.clone()).await.refused(401, "invalid-credential");
    let ann = server.actor("ann", &["governance:act"]).await;
    let unset = ann.post(&path(&letter), why.clone()).await;
    unset.refused(409, "gate-not-available");
    assert!(unset.text.contains("replay_approver"), "{}", unset.text);
    ann.post(&path("x"), why.clone()).await.refused_at(404, "not-known", "dead_letter_id");
    ann.post(&path(&letter), json!({"reason": " "})).await.refused_at(400, "invalid-request", "reason");
    ann.post(&path(&letter), json!({})).await.refused(400, "invalid-request");
    ann.get("/v1/replay-requests").await.refused(403, "permission-denied");
    admin.get("/v1/replay-requests?state=lost").await.refused(400, "invalid-query");
    assert!(requests(&admin, "").await.is_empty());
    let mut server = server;
    server.configure(APPROVER).await;
    // Who is the only approver cannot ask.
    let chief = server.actor("chief", &["governance:act"]).await;
    chief.post(&path(&letter), why).await.refused(409, "gate-not-available");
}

async fn requests_and_approvals_of_two_nodes_lead_to_one_replay(store: Option<String>) {
    let is_shared = store.is_some();
    let (receiver, server, admin, letter) = with_dead_delivery(APPROVER, store).await;
    let (ann, chief) = (server.actor("ann", &["governance:act"]).await, server.actor("chief", &[]).await);
    receiver.answer(200);
    let other = match is_shared {
        true => Some(server.beside().await),
        false => None,
    };
    let there = |actor: &Actor| other.as_ref().unwrap_or(&server).with_token(&actor.token());
    let path = format!("/v1/dead-letters/{letter}/replay-requests");
    let asked: Vec<_> = (0..8)
        .map(|n| {
            let (actor, path) = (if n % 2 == 0 { ann.clone() } else { there(&ann) }, path.clone());
            tokio::spawn(async move { actor.post(&path, json!({"reason": WHY})).await })
        })
        .collect();
    let mut made = vec![];
    for answer in asked {
        let answer = answer.await.expect("an answer");
        match answer.status {
            201 => made.push(answer.body),
            _ => answer.refused(409, "already-open"),
        }
    }
    assert_eq!(made.len(), 1, "one request for a letter: {made:?}");
    let id = id_of(&made[0]);
    let decided: Vec<_> = (0..8)
        .map(|n| {
            let (actor, id) = (if n % 2 == 0 { chief.clone() } else { there(&chief) }, id.clone());
            tokio::spawn(async move { actor.decide(&id, "approve", json!({"decision": "approve"})).await.status })
        })
        .collect();
    let mut approved = 0;
    for status in decided {
        approved += usize::from(status.await.expect("an answer") == 200);
    }
    assert_eq!(approved, 1);
    completed(&admin, 1).await;
    until("its outcome is told", async || receiver.got().len() >= 3).await;
    let sent = receiver.got().iter().filter(|(_, body)| body.contains("order.paid")).count();
    assert_eq!(sent, 2, "the first attempt and one replay");
    assert_eq!(records(&admin, "dlq_replay_completed").await.len(), 1);
    verify(&admin).await;
}

async fn what_was_approved_before_a_restart_is_replayed_once(store: Option<String>) {
    let (receiver, mut server, _, letter) = with_dead_delivery(APPROVER, store).await;
    let (ann, chief) = (server.actor("ann", &["governance:act"]).await, server.actor("chief", &[]).await);
    receiver.answer(200);
    let id = id_of(&request(&ann, &letter).await);
    chief.decide(&id, "approve", json!({"decision": "approve"})).await.ok();
    for _ in 0..2 {
        server.restart().await;
    }
    let admin = server.admin();
    assert_eq!(completed(&admin, 1).await[0]["outcome"], "delivered");
    assert_eq!(records(&admin, "dlq_replay_completed").await.len(), 1);
    verify(&admin).await;
}

async fn requests_are_signed_on_a_regulated_server(store: Option<String>) {
    let mut server = Server::with(Some(APPROVER.to_owned()), store, PACE).await;
    let ann = Hand::new(&server, "ann", 2, &["governance:act"]).await;
    let owner = Hand::new(&server, "owner", 1, &[]).await;
    let (_, letter) = dead_step(&server).await;
    server.configure(&format!("{APPROVER}[regulated]\nenabled = true\n")).await;
    let (ann, owner) = (ann.at(&server), owner.at(&server));
    let path = format!("/v1/dead-letters/{letter}/replay-requests");
    ann.actor.post(&path, json!({"reason": WHY})).await.refused(401, "invalid-credential");
    let made = ann.signed("request_replay", &path, json!({"reason": WHY})).await.created();
    let id = id_of(&made);
    let decide = format!("/v1/processes/{id}/gates/approve/decision");
    owner.signed("decide_gate", &decide, json!({"decision": "approve"})).await.ok();
    let admin = server.admin();
    assert_eq!(completed(&admin, 1).await[0]["outcome"], "resumed");
    verify(&admin).await;
}

/// Somebody with access to the database makes the row say that it was approved: it is replayed, and verifying finds it.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_claims_an_approval_is_found() {
    let store = database().await;
    let (receiver, server, admin, letter) = with_dead_delivery(APPROVER, Some(store.clone())).await;
    receiver.answer(200);
    let ann = server.actor("ann", &["governance:act"]).await;
    request(&ann, &letter).await;
    let (client, connection) = tokio_postgres::connect(&store, tokio_postgres::NoTls).await.expect("PostgreSQL");
    tokio::spawn(connection);
    let forged = "UPDATE replay_requests SET state = 'approved', approval_id = gen_random_uuid()";
    assert_eq!(client.execute(forged, &[]).await.expect("an update"), 1);
    // The server looks for what was approved when it has work, and now and then.
    completed(&admin, 1).await;
    let verified = admin.post("/v1/ledger/verify-log", json!({})).await.ok();
    assert_ne!(verified["result"], "verified", "{verified}");
    let findings = verified["findings"].as_array().expect("findings");
    let detail = "was not approved by";
    let found = findings.iter().any(|finding| {
        finding["code"] == "governance-invalid" && finding["detail"].as_str().is_some_and(|text| text.contains(detail))
    });
    assert!(found, "{verified}");
}
