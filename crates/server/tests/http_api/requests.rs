//! What an approver is asked: shown, bound to the decision, and to be read by whom the gate names.

use crate::support::Server;
use serde_json::{Value, json};

const WORKFLOW: &str = "kind: workflow\nname: payout\norder: linear\ngate_spec:\n  \
    chief: {approver_ref: ann, scope: pay}\n  cancel: {approver_ref: ann, scope: pay}\nsteps:\n  \
    - {name: check}\n  - {name: unrelated}\n  - {name: wire, gate: chief, input: {sum: \"${steps.check.output.sum}\"}}\n  \
    - {name: accept, run: approval, approver_ref: ann, scope: pay}\n  \
    - {name: file, run: human, pic: kim}\n";

fn items(answer: &Value) -> Vec<Value> {
    answer["items"].as_array().expect("items").clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_asks_what_its_gate_was_opened_with() {
    let server = Server::start().await;
    let admin = server.admin();
    let (ann, ben) = (server.actor("ann", &[]).await, server.actor("ben", &[]).await);
    let body = json!({
        "declaration": {"states": ["open", "done"], "initial_state": "open", "terminal_states": ["done"],
            "transitions": [{"from": "open", "action": "pay", "to": "done", "guard": "chief"}]},
        "subject_ref": "invoice-7", "gate_spec": {"chief": {"approver_ref": "ann", "scope": "pay"}},
    });
    let id = admin.post("/v1/processes", body).await.created()["instance_id"].as_str().expect("an id").to_owned();
    let gates = format!("/v1/processes/{id}/gates");
    ann.get(&format!("/v1/processes/{id}")).await.refused(403, "permission-denied");
    let wrong = json!({"action": "pay", "request": [1]});
    admin.post(&gates, wrong).await.refused_at(400, "invalid-request", "request");
    let large = json!({"action": "pay", "request": {"text": "x".repeat(20_000)}});
    admin.post(&gates, large).await.refused_at(400, "invalid-request", "request");
    let request = json!({"sum": 120, "to": "ACME"});
    admin.post(&gates, json!({"action": "pay", "request": request})).await.created();

    let asked = items(&ann.get("/v1/inbox").await.ok())[0].clone();
    assert_eq!(asked["request"], request);
    let digest = asked["request_digest"].as_str().expect("a digest").to_owned();
    // Whom a gate names reads the process; others do not.
    let view = ann.get(&format!("/v1/processes/{id}")).await.ok();
    assert_eq!((&view["gates"][0]["request"], &view["gates"][0]["request_digest"]), (&request, &json!(digest)));
    ben.get(&format!("/v1/processes/{id}")).await.refused(403, "permission-denied");
    ann.get("/v1/processes").await.refused(403, "permission-denied");

    let stale = json!({"decision": "approve", "request_digest": "0".repeat(64)});
    ann.decide(&id, "pay", stale).await.refused_at(409, "conflict", "request_digest");
    ann.decide(&id, "pay", json!({"decision": "approve", "request_digest": digest})).await.ok();
    let records = admin.get(&format!("/v1/ledger/records?instance_id={id}&action_ref=gate_decided")).await.ok();
    assert_eq!(items(&records)[0]["payload"]["request_digest"], digest);
    let verified = admin.post("/v1/ledger/verify-log", json!({"instance_id": id})).await.ok();
    assert_eq!(verified["result"], "verified", "{verified}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_asks_with_its_input_and_what_the_step_uses() {
    let server = Server::start().await;
    let admin = server.admin();
    let (ann, kim) = (server.actor("ann", &[]).await, server.actor("kim", &["tasks:work"]).await);
    admin.post_bytes("/v1/definitions", WORKFLOW.as_bytes()).await.created();
    let body = json!({"definition": "payout", "input": {"invoice": 7}});
    let run = admin.post("/v1/runs", body).await.created()["run_id"].as_str().expect("an id").to_owned();
    let path = format!("/v1/runs/{run}");
    let work = async |output: Value| {
        let claim = json!({"worker_id": "w", "max": 1, "lease_ms": 30_000, "wait_ms": 0});
        let task = admin.post("/v1/queues/default/claim", claim).await.ok()["tasks"][0].clone();
        let done = format!("/v1/tasks/{}/complete", task["task_id"].as_str().expect("a task"));
        admin.post(&done, json!({"lease_token": task["lease_token"], "output": output})).await.ok();
    };
    ann.get(&path).await.refused(403, "permission-denied");
    work(json!({"sum": 120})).await;
    work(json!("nothing to do with it")).await;
    let asked = items(&ann.get("/v1/inbox").await.ok())[0].clone();
    assert_eq!(asked["request"], json!({"input": {"invoice": 7}, "outputs": {"check": {"sum": 120}}}));
    assert_eq!(ann.get(&path).await.ok()["gates"][0]["request_digest"], asked["request_digest"]);
    kim.get(&path).await.refused(403, "permission-denied");
    let approve = json!({"decision": "approve", "reason": "agreed", "request_digest": asked["request_digest"]});
    ann.post(&format!("{path}/gates/wire/decision"), approve.clone()).await.ok();
    work(json!("wired")).await;

    // An approval shows what the step before it made, and yields who decided, when and why.
    let asked = items(&ann.get("/v1/inbox").await.ok())[0].clone();
    assert_eq!(asked["request"]["outputs"], json!({"wire": "wired"}));
    ann.post(&format!("{path}/gates/accept/decision"), json!({"decision": "approve", "reason": "agreed"})).await.ok();
    let view = ann.get(&path).await.ok();
    let yielded = &view["steps"][3]["output"];
    let decision = &yielded["decisions"][0];
    assert_eq!(yielded["approved"], true, "{view}");
    assert_eq!((&decision["decided_by"], &decision["reason"]), (&json!("ann"), &json!("agreed")));
    assert!(decision["decided_at_us"].is_i64(), "{yielded}");
    // The step is in kim's charge now.
    assert_eq!(kim.get(&path).await.ok()["steps"][4]["pic"], "kim");

    // What the opener says, and where it says nothing, how the run stands.
    let gates = format!("{path}/gates");
    admin.post(&gates, json!({"action": "cancel", "reason": "typo"})).await.created();
    let asked = items(&ann.get("/v1/inbox").await.ok())[0].clone();
    assert_eq!(asked["request"], json!({"run_state": "executing", "reason": "typo", "input": {"invoice": 7}}));
    ann.post(&format!("{gates}/cancel/decision"), json!({"decision": "reject", "reason": "no"})).await.ok();
    admin.post(&gates, json!({"action": "cancel", "request": {"why": "typo"}})).await.created();
    assert_eq!(items(&ann.get("/v1/inbox").await.ok())[0]["request"], json!({"why": "typo"}));
    admin.post(&gates, json!({"action": "wire", "request": {}})).await.refused(409, "gate-not-available");
}

/// Steps and assignments of some definitions, for whoever reads only those.
#[tokio::test(flavor = "multi_thread")]
async fn finer_scopes_reach_approval_steps_and_assignments() {
    let server = Server::start().await;
    let admin = server.admin();
    let process = |name: &str| {
        format!(
            "kind: process\nname: {name}\nstates: [a, b]\ninitial_state: a\nterminal_states: [b]\n\
             transitions: [{{from: a, action: go, to: b, guard: g}}]\ngate_spec: {{g: {{approver_ref: ann, scope: s}}}}\n"
        )
    };
    server.actor("ann", &[]).await;
    for name in ["one", "two"] {
        admin.post_bytes("/v1/definitions", process(name).as_bytes()).await.created();
        let body = json!({"definition": name, "subject_ref": name});
        let id = admin.post("/v1/processes", body).await.created()["instance_id"].as_str().expect("an id").to_owned();
        admin.open_gate(&id, "go").await.created();
    }
    let workflow = "kind: workflow\nname: three\nsteps:\n  - {name: ok, run: approval, approver_ref: ann, scope: s}\n";
    admin.post_bytes("/v1/definitions", workflow.as_bytes()).await.created();
    admin.post("/v1/runs", json!({"definition": "three", "subject_ref": "three"})).await.created();

    for (name, scopes, subjects) in [
        ("all", vec!["workflows:read"], vec!["one:go", "two:go", "three:ok"]),
        ("some", vec!["workflows:read:one"], vec!["one:go"]),
        ("runs", vec!["runs:read"], vec!["three:ok"]),
        ("both", vec!["workflows:read:two", "runs:read:three"], vec!["two:go", "three:ok"]),
        ("other", vec!["runs:read:four"], vec![]),
    ] {
        let reader = server.actor(name, &scopes).await;
        let steps = items(&reader.get("/v1/approval-steps?approver_ref=ann").await.ok());
        let seen: Vec<&str> = steps.iter().filter_map(|step| step["subject_ref"].as_str()).collect();
        assert_eq!(seen, subjects, "{name}");
        let pending = items(&reader.get("/v1/approval-steps?state=Pending").await.ok());
        assert_eq!(pending.len(), subjects.len(), "{name}");
        let assignments = items(&reader.get("/v1/assignments?status=Active&assignee_ref=ann").await.ok());
        assert_eq!(assignments.len(), subjects.len(), "{name}");
    }
    let nobody = server.actor("blind", &["runs:start"]).await;
    nobody.get("/v1/approval-steps").await.refused(403, "permission-denied");
    nobody.get("/v1/assignments").await.refused(403, "permission-denied");
}
