//! Substitutes: an approver names one ahead, with a signature, for a period and a scope; the substitute decides in their place
//! where the gate_spec allows it, and nobody else does. On SQLite and on a real PostgreSQL (`scripts/with-postgres.sh`).

use crate::run_commands::countersign;
use crate::signed::Hand;
use crate::support::{Actor, Answer, Server, decided};
use crate::webhooks::{database, on_both};
use countersign_server::outbox::Pace;
use reqwest::Method;
use serde_json::{Value, json};

on_both! {
    a_substitute_decides_where_the_definition_allows_it,
    nobody_is_a_substitute_otherwise,
    in_a_quorum_nobody_has_two_voices,
    the_gates_of_runs_are_decided_by_substitutes_too,
    a_substitutes_decision_is_proved_by_the_command_line,
    a_delegation_is_the_approvers_own,
}

const RELEASE: &str = r#"
kind: process
name: release
states: [review, released, rejected]
initial_state: review
terminal_states: [released, rejected]
transitions:
  - {from: review, action: release, to: released, guard: sign-off}
  - {from: review, action: reject, to: rejected, guard: rejection}
gate_spec:
  sign-off: {approver_ref: qp, scope: "batch:sign-off", delegable: true}
  rejection: {approver_ref: qp, scope: "batch:rejection"}
"#;

const DEPLOY: &str = r#"
kind: workflow
name: deploy
order: linear
queue: q
gate_spec: {change: {approver_ref: qp, scope: "ops:change", delegable: true}}
steps:
  - {name: ask, run: approval, approver_ref: qp, scope: "ops:ask", delegable: true}
  - {name: apply, gate: change}
"#;

const HOUR: i64 = 3_600_000_000;

async fn server(store: Option<String>) -> Server {
    let server = Server::with(None, store, Pace::default()).await;
    for document in [RELEASE, DEPLOY] {
        server.admin().post_bytes("/v1/definitions", document).await.created();
    }
    server
}

/// RFC 3339, so many hours from now.
fn at(hours: i64) -> String {
    let now = jiff::Timestamp::now();
    format!("{:.6}", now.checked_add(jiff::SignedDuration::from_micros(hours * HOUR)).expect("a time"))
}

fn naming(delegate: &str, scope: &str, from: i64, until: i64) -> Value {
    json!({"delegate_ref": delegate, "scope": scope, "from": at(from), "until": at(until), "reason": "on leave"})
}

async fn delegate(hand: &Hand, body: Value) -> Answer {
    hand.signed("make_delegation", &format!("/v1/actors/{}/delegations", hand.name()), body).await
}

async fn revoke(actor: &Actor, owner: &str, id: &str) -> Answer {
    Answer::of(actor.request(Method::DELETE, &format!("/v1/actors/{owner}/delegations/{id}"))).await
}

fn id(made: Value) -> String {
    made["delegation_id"].as_str().expect("an id").to_owned()
}

/// A process whose gate for this action waits for `qp`; started by `ines`.
async fn waiting(ines: &Actor, action: &str) -> String {
    let body = json!({"definition": "release", "subject_ref": "BR-1"});
    let id = ines.post("/v1/processes", body).await.created()["instance_id"].as_str().expect("an id").to_owned();
    ines.open_gate(&id, action).await.created();
    id
}

const STARTER: &[&str] = &["workflows:start", "workflows:open-gate", "workflows:fire", "runs:start", "runs:control"];

async fn inbox(actor: &Actor) -> Vec<(String, String)> {
    let items = actor.get("/v1/inbox").await.ok()["items"].clone();
    let text = |item: &Value, name: &str| item[name].as_str().unwrap_or_default().to_owned();
    let items = items.as_array().expect("a list").iter();
    items.map(|item| (text(item, "action"), text(item, "on_behalf_of"))).collect()
}

async fn verify(server: &Server) {
    let report = server.admin().post("/v1/ledger/verify-log", json!({})).await.ok();
    assert_eq!(report["result"], "verified", "{report}");
}

async fn a_substitute_decides_where_the_definition_allows_it(store: Option<String>) {
    let server = server(store).await;
    let (qp, vega) = (Hand::new(&server, "qp", 1, &[]).await, server.actor("vega", &[]).await);
    let ines = server.actor("ines", STARTER).await;
    let made = id(delegate(&qp, naming("vega", "batch:sign-off", -1, 24)).await.created());
    let process = waiting(&ines, "release").await;

    // The in-tray of both shows it, and the substitute's says for whom.
    assert_eq!(inbox(&qp.actor).await, [("release".to_owned(), String::new())]);
    assert_eq!(inbox(&vega).await, [("release".to_owned(), "qp".to_owned())]);
    assert_eq!(vega.get("/v1/inbox/count").await.ok()["count"], 1);
    // A person who may decide may read what about.
    assert_eq!(vega.get(&format!("/v1/processes/{process}")).await.ok()["current_state"], "review");
    let body = json!({"decision": "approve", "reason": "in order"});
    assert_eq!(decided(vega.decide(&process, "release", body).await.ok())["outcome"], "approved");

    let records =
        server.admin().get(&format!("/v1/ledger/records?instance_id={process}&action_ref=gate_decided")).await;
    let (record, said) = (&records.ok()["items"][0].clone(), |record: &Value| record["payload"].clone());
    assert_eq!(record["actor_ref"], "vega");
    assert_eq!((&said(record)["on_behalf_of"], &said(record)["delegation_id"]), (&json!("qp"), &json!(made)));

    // One assignment was transferred, and the other, the substitute's, ended with the decision.
    let all = server.admin().get("/v1/assignments").await.ok()["items"].clone();
    let all: Vec<_> = all.as_array().expect("a list").iter().map(|a| (&a["assignee_ref"], &a["status"])).collect();
    assert_eq!(all, [(&json!("qp"), &json!("Transferred")), (&json!("vega"), &json!("Recalled"))]);
    let transferred = server.admin().get("/v1/assignments?status=Transferred").await.ok()["items"][0].clone();
    assert!(transferred["transferred_at"].is_string() && transferred["recalled_at"].is_null(), "{transferred}");
    let gate = server.admin().get(&format!("/v1/processes/{process}")).await.ok()["gates"][0].clone();
    let names = ["approver_ref", "decided_by", "on_behalf_of", "state"].map(|name| gate[name].clone());
    assert_eq!(names, ["qp", "vega", "qp", "Approved"].map(|text| json!(text)));
    assert_eq!(gate["assignment"]["assignment_id"], said(record)["assignment_id"]);
    assert!(inbox(&qp.actor).await.is_empty() && inbox(&vega).await.is_empty());
    ines.fire(&process, "release").await.ok();

    // The approver may still decide.
    let process = waiting(&ines, "release").await;
    let body = json!({"decision": "reject", "reason": "not yet"});
    assert_eq!(decided(qp.actor.decide(&process, "release", body.clone()).await.ok())["outcome"], "rejected_outcome");
    vega.decide(&process, "release", body).await.refused(409, "not-pending");
    verify(&server).await;
}

async fn nobody_is_a_substitute_otherwise(store: Option<String>) {
    let server = server(store).await;
    let qp = Hand::new(&server, "qp", 1, &[]).await;
    let vega = Hand::new(&server, "vega", 2, &[]).await;
    let other = server.actor("other", &[]).await;
    let ines = server.actor("ines", STARTER).await;
    let approve = json!({"decision": "approve"});
    let process = waiting(&ines, "release").await;
    let refused = async |actor: &Actor, action: &str| {
        let answer = actor.decide(&process, action, json!({"decision": "approve"})).await;
        answer.refused(403, "unauthorized");
        answer.body["detail"].as_str().expect("a detail").to_owned()
    };

    assert!(refused(&vega.actor, "release").await.contains("has not named"));
    // Before its period, and for another scope.
    delegate(&qp, naming("vega", "batch:sign-off", 2, 4)).await.created();
    delegate(&qp, naming("vega", "batch", -1, 24)).await.created();
    assert!(refused(&vega.actor, "release").await.contains("has not named"));
    assert!(inbox(&vega.actor).await.is_empty());
    vega.actor.get(&format!("/v1/processes/{process}")).await.refused(403, "permission-denied");
    // Revoked.
    let made = id(delegate(&qp, naming("vega", "batch:sign-off", -1, 24)).await.created());
    assert_eq!(inbox(&vega.actor).await.len(), 1);
    assert_eq!(revoke(&qp.actor, "qp", &made).await.ok()["status"], "revoked");
    assert!(refused(&vega.actor, "release").await.contains("has not named"));
    assert!(inbox(&vega.actor).await.is_empty());
    // Where the entry does not say `delegable`.
    delegate(&qp, naming("vega", "batch:rejection", -1, 24)).await.created();
    ines.open_gate(&process, "reject").await.created();
    assert!(refused(&vega.actor, "reject").await.contains("lets no approver"));
    assert!(inbox(&vega.actor).await.is_empty());
    // Who started the process decides nothing in it for others.
    delegate(&qp, naming("ines", "batch:sign-off", -1, 24)).await.created();
    assert!(refused(&ines, "release").await.contains("initiated this"));
    assert!(inbox(&ines).await.is_empty());
    // In its period; and a substitute names no further one.
    delegate(&vega, naming("other", "batch:sign-off", -1, 24)).await.created();
    server.pass_us(3 * HOUR);
    assert_eq!(inbox(&vega.actor).await, [("release".to_owned(), "qp".to_owned())]);
    assert!(inbox(&other).await.is_empty());
    assert!(refused(&other, "release").await.contains("has not named"));
    // After it.
    server.pass_us(2 * HOUR);
    assert!(inbox(&vega.actor).await.is_empty());
    assert!(refused(&vega.actor, "release").await.contains("has not named"));
    qp.actor.decide(&process, "release", approve).await.ok();

    // Of a definition, the definition says who may be substituted.
    let replaced = json!({"definition": "release", "subject_ref": "BR-2",
        "gate_spec": {"rejection": {"approver_ref": "qp", "scope": "batch:rejection", "delegable": true}}});
    ines.post("/v1/processes", replaced).await.refused_at(400, "invalid-request", "gate_spec.rejection.delegable");
    verify(&server).await;
}

async fn in_a_quorum_nobody_has_two_voices(store: Option<String>) {
    let server = server(store).await;
    let hands = [("ann", 1), ("ben", 2), ("cid", 3)];
    let mut board = vec![];
    for (name, seed) in hands {
        board.push(Hand::new(&server, name, seed, &[]).await);
    }
    let vega = server.actor("vega", &[]).await;
    let ines = server.actor("ines", STARTER).await;
    let entry = json!({"approvers": ["ann", "ben", "cid"], "quorum": {"rule": "all-of-n"}, "scope": "board", "delegable": true});
    let declaration = json!({"states": ["a", "b"], "initial_state": "a", "terminal_states": ["b"],
        "transitions": [{"from": "a", "action": "go", "to": "b", "guard": "board"}]});
    let body = json!({"declaration": declaration, "subject_ref": "S-1", "gate_spec": {"board": entry}});
    let process = ines.post("/v1/processes", body).await.created()["instance_id"].as_str().expect("an id").to_owned();
    let steps = ines.open_gate(&process, "go").await.created()["steps"].clone();
    let step = |n: usize| steps[n]["step_id"].clone();
    let approve = |step: Option<Value>| match step {
        None => json!({"decision": "approve"}),
        Some(step) => json!({"decision": "approve", "step_id": step}),
    };
    for n in [0, 1] {
        delegate(&board[n], naming("vega", "board", -1, 24)).await.created();
    }
    // The substitute of two approvers decides for one, and says which.
    assert_eq!(inbox(&vega).await.len(), 2);
    vega.decide(&process, "go", approve(None)).await.refused_at(400, "invalid-request", "step_id");
    vega.decide(&process, "go", approve(Some(step(1)))).await.ok();
    vega.decide(&process, "go", approve(Some(step(0)))).await.refused(403, "unauthorized");
    assert!(inbox(&vega).await.is_empty());
    // An approver of the quorum substitutes for nobody in it.
    delegate(&board[0], naming("cid", "board", -1, 24)).await.created();
    board[2].actor.decide(&process, "go", approve(Some(step(0)))).await.refused(403, "unauthorized");
    assert_eq!(inbox(&board[2].actor).await, [("go".to_owned(), String::new())]);
    board[2].actor.decide(&process, "go", approve(None)).await.ok();
    let last = board[0].actor.decide(&process, "go", approve(None)).await.ok();
    assert_eq!(last["chain_state"], "Approved");
    ines.fire(&process, "go").await.ok();
    verify(&server).await;
}

async fn the_gates_of_runs_are_decided_by_substitutes_too(store: Option<String>) {
    let server = server(store).await;
    let (qp, vega) = (Hand::new(&server, "qp", 1, &[]).await, server.actor("vega", &[]).await);
    let ines = server.actor("ines", STARTER).await;
    delegate(&qp, naming("vega", "ops:ask", -1, 24)).await.created();
    delegate(&qp, naming("vega", "ops:change", -1, 24)).await.created();
    let run = ines.post("/v1/runs", json!({"definition": "deploy"})).await.created()["run_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    for action in ["ask", "apply"] {
        assert_eq!(inbox(&vega).await, [(action.to_owned(), "qp".to_owned())]);
        let path = format!("/v1/runs/{run}/gates/{action}/decision");
        vega.post(&path, json!({"decision": "approve", "reason": "seen"})).await.ok();
    }
    let view = server.admin().get(&format!("/v1/runs/{run}")).await.ok();
    let decision = &view["steps"][0]["output"]["decisions"][0];
    assert_eq!((&decision["approver_ref"], &decision["decided_by"]), (&json!("qp"), &json!("vega")), "{view}");
    assert_eq!(view["steps"][1]["state_code"], "ready", "{view}");
    verify(&server).await;
}

/// A decision in the approver's place is the approver's, for whoever asks the records: of a process and of a run.
async fn a_substitutes_decision_is_proved_by_the_command_line(store: Option<String>) {
    let server = server(store).await;
    let (qp, vega) = (Hand::new(&server, "qp", 1, &[]).await, server.actor("vega", &[]).await);
    let ines = server.actor("ines", STARTER).await;
    for scope in ["batch:sign-off", "ops:ask", "ops:change"] {
        delegate(&qp, naming("vega", scope, -1, 24)).await.created();
    }
    let approve = json!({"decision": "approve", "reason": "in order"});
    let process = waiting(&ines, "release").await;
    vega.decide(&process, "release", approve.clone()).await.ok();
    ines.fire(&process, "release").await.ok();
    let run = ines.post("/v1/runs", json!({"definition": "deploy"})).await.created()["run_id"].clone();
    let run = run.as_str().expect("an id");
    for action in ["ask", "apply"] {
        vega.post(&format!("/v1/runs/{run}/gates/{action}/decision"), approve.clone()).await.ok();
    }
    let _ = server.admin().post("/v1/ledger/seal", json!({})).await;

    for (instance, action) in [(&*process, "release"), (run, "ask"), (run, "apply")] {
        let proof = countersign(&server, &["audit", "prove-path", instance]).await;
        proof.says(0, &["✓  gates cleared", "Proved:"]);
        let dispute = countersign(&server, &["audit", "dispute", instance, action]).await;
        dispute.says(0, &["Refuted:", "vega approved for qp", "by vega for qp at"]);
    }
    let window = countersign(&server, &["audit", "investigate", "--from", "1d"]).await;
    window.says(0, &["Nothing amiss:", "approve release for qp", "approved by vega for qp"]);
}

async fn a_delegation_is_the_approvers_own(store: Option<String>) {
    let server = server(store).await;
    let qp = Hand::new(&server, "qp", 1, &[]).await;
    let vega = Hand::new(&server, "vega", 2, &[]).await;
    let good = || naming("vega", "batch:sign-off", -1, 24);
    let path = "/v1/actors/qp/delegations";

    // With a signature, by the approver, and nobody for them.
    qp.actor.post(path, good()).await.refused(401, "invalid-credential");
    vega.signed("make_delegation", path, good()).await.refused_at(403, "unauthorized", "actor_ref");
    server.admin().post(path, good()).await.refused_at(403, "unauthorized", "actor_ref");
    for (change, status, code, field) in [
        (json!({"delegate_ref": "qp"}), 400, "invalid-request", "delegate_ref"),
        (json!({"delegate_ref": "countersign"}), 400, "invalid-request", "delegate_ref"),
        (json!({"delegate_ref": "nobody"}), 404, "not-known", "delegate_ref"),
        (json!({"delegate_ref": " "}), 400, "invalid-request", "delegate_ref"),
        (json!({"scope": " "}), 400, "invalid-request", "scope"),
        (json!({"reason": " "}), 400, "invalid-request", "reason"),
        (json!({"from": "tomorrow"}), 400, "invalid-request", "from"),
        (json!({"until": at(-2)}), 400, "invalid-request", "until"),
        (json!({"from": at(-3), "until": at(-2)}), 400, "invalid-request", "until"),
    ] {
        let mut body = good();
        for (name, value) in change.as_object().expect("an object") {
            body[name] = value.clone();
        }
        delegate(&qp, body).await.refused_at(status, code, field);
    }
    let made = id(delegate(&qp, good()).await.created());
    let listed = qp.actor.get(path).await.ok()["items"][0].clone();
    let said = ["delegation_id", "delegator_ref", "delegate_ref", "scope", "status", "reason"]
        .map(|name| listed[name].clone());
    assert_eq!(said, [&*made, "qp", "vega", "batch:sign-off", "active", "on leave"].map(|text| json!(text)));
    // Both sides see it, and an administrator of actors.
    assert_eq!(vega.actor.get("/v1/actors/vega/delegations").await.ok()["items"], json!([listed]));
    assert_eq!(server.admin().get(path).await.ok()["items"], json!([listed]));
    vega.actor.get(path).await.refused(403, "permission-denied");
    server.admin().get("/v1/actors/nobody/delegations").await.refused(404, "not-known");

    revoke(&vega.actor, "qp", &made).await.refused_at(403, "unauthorized", "actor_ref");
    revoke(&vega.actor, "vega", &made).await.refused_at(404, "not-known", "delegation_id");
    revoke(&server.admin(), "qp", &made).await.refused_at(403, "unauthorized", "actor_ref");
    revoke(&qp.actor, "qp", "no-id").await.refused_at(404, "not-known", "delegation_id");
    revoke(&qp.actor, "qp", &made).await.ok();
    revoke(&qp.actor, "qp", &made).await.refused_at(409, "not-active", "delegation_id");
    assert_eq!(qp.actor.get(path).await.ok()["items"][0]["status"], "revoked");
    // What comes later knows all of it.
    let mut server = server;
    server.restart().await;
    let again = server.admin().get(path).await.ok()["items"][0].clone();
    assert_eq!((&again["status"], &again["delegation_id"]), (&json!("revoked"), &json!(made)));
    verify(&server).await;
}
