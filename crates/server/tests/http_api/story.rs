//! The release of a batch, from the definition to the evidence.

use crate::support::{BATCH_RELEASE, Server, decided};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_released_by_the_person_whom_its_gate_names() {
    let server = Server::with_config(Some("audit_trail_retention_policy = \"sox_7_year\"")).await;
    let admin = server.admin();
    let technician =
        server.actor("lab_tech_rivera", &["workflows:start", "workflows:fire", "workflows:open-gate"]).await;
    let director = server.actor("qp_director_santos", &[]).await;
    let auditor = server.actor("auditor", &["audit:read", "workflows:read:batch-release"]).await;

    let published = admin.post_bytes("/v1/definitions", BATCH_RELEASE).await.created();
    assert_eq!((&published["name"], &published["version"]), (&json!("batch-release"), &json!(1)));
    assert_eq!(admin.post_bytes("/v1/definitions", BATCH_RELEASE).await.ok(), published);
    let document = technician.get("/v1/definitions/batch-release").await.ok();
    assert_eq!(document["document"], BATCH_RELEASE);
    assert_eq!(technician.get("/v1/definitions/batch-release/versions/1").await.ok(), document);

    let body = json!({"definition": "batch-release", "subject_ref": "br-2026-0412", "reason": "campaign 7"});
    let started = technician.post("/v1/processes", body).await.created();
    let id = started["instance_id"].as_str().expect("an id");
    assert_eq!(technician.fire(id, "begin-testing").await.ok()["new_state"], "testing");
    let fired = technician.fire(id, "complete-tests").await.ok();
    assert_eq!((&fired["new_state"], &fired["sequence_number"]), (&json!("qp-review"), &json!(2)));

    technician.fire(id, "release").await.refused(409, "gate-not-cleared");
    director.decide(id, "release", json!({"decision": "approve"})).await.refused(409, "gate-not-open");
    let gate = technician.open_gate(id, "release").await.created();
    assert_eq!(gate.as_object().expect("an object").len(), 2);
    technician.open_gate(id, "release").await.refused(409, "already-open");
    technician.fire(id, "release").await.refused(409, "gate-not-cleared");
    technician.open_gate(id, "begin-testing").await.refused(409, "invalid-transition");
    technician.open_gate(id, "reject-batch").await.created();

    let inbox = director.get("/v1/inbox").await.ok();
    assert_eq!(inbox["items"].as_array().map(Vec::len), Some(2));
    let waiting = &inbox["items"][0];
    assert_eq!((&waiting["task_ref"], &waiting["instance_id"]), (&gate["step_id"], &json!(id)));
    assert_eq!(
        (&waiting["action"], &waiting["scope"]),
        (&json!("release"), &json!("pharma:batch-release:qp-sign-off"))
    );
    assert_eq!(technician.get("/v1/inbox").await.ok()["items"], json!([]));

    technician.decide(id, "release", json!({"decision": "approve"})).await.refused(403, "unauthorized");
    director.decide(id, "release", json!({"decision": "reject"})).await.refused_at(400, "invalid-request", "reason");
    let approved = director.decide(id, "release", json!({"decision": "approve", "reason": "COA reviewed"})).await.ok();
    assert_eq!(decided(approved), json!({"outcome": "approved"}));
    director.decide(id, "release", json!({"decision": "approve"})).await.refused(409, "not-pending");
    director.fire(id, "release").await.refused(403, "permission-denied");
    let fired = technician.fire(id, "release").await.ok();
    assert_eq!(fired["new_state"], "released");

    technician.fire(id, "release").await.refused(409, "terminal");
    technician.open_gate(id, "release").await.refused(409, "gate-not-available");
    assert_eq!(director.get("/v1/inbox").await.ok()["items"], json!([]), "the moot gate was recalled");

    check_view(&auditor.get(&format!("/v1/processes/{id}")).await.ok(), id, &gate, &fired);
    check_records(&auditor.get(&format!("/v1/ledger/records?instance_id={id}")).await.ok(), id, &fired);
    let event = fired["event_id"].as_str().expect("an id");
    let record = auditor.get(&format!("/v1/ledger/records/{event}")).await.ok();
    assert_eq!(record["payload"]["new_state"], "released");
    technician.get(&format!("/v1/ledger/records/{event}")).await.refused(403, "permission-denied");
    technician.get(&format!("/v1/processes/{id}")).await.refused(403, "permission-denied");
}

fn check_view(view: &Value, id: &str, gate: &Value, fired: &Value) {
    assert_eq!(view["instance_id"], id);
    assert_eq!((&view["subject_ref"], &view["initiator_ref"]), (&json!("br-2026-0412"), &json!("lab_tech_rivera")));
    assert_eq!((&view["declaration_ref"], &view["current_state"]), (&json!("batch-release@1"), &json!("released")));
    assert_eq!(view["declaration"]["transitions"][3]["guard"], "QP-sign-off");
    assert_eq!(view["gate_spec"]["QP-sign-off"]["approver_ref"], "qp_director_santos");

    let history = view["transition_history"].as_array().expect("a history");
    assert_eq!(history.len(), 3);
    assert_eq!(history[0]["sequence_number"], 1);
    assert!(history[0].get("guard_satisfied").is_none() && history[0].get("step_id").is_none());
    let last = &history[2];
    assert_eq!((&last["from_state"], &last["to_state"]), (&json!("qp-review"), &json!("released")));
    assert_eq!((&last["guard_satisfied"], &last["step_id"]), (&json!(true), &gate["step_id"]));
    assert_eq!((&last["event_id"], &last["transition_id"]), (&fired["event_id"], &fired["transition_id"]));

    let gates = view["gates"].as_array().expect("gates");
    assert_eq!(gates.len(), 2);
    let release = &gates[0];
    assert_eq!((&release["action"], &release["from_state"]), (&json!("release"), &json!("qp-review")));
    assert_eq!((&release["state"], &release["guard"]), (&json!("Approved"), &json!("QP-sign-off")));
    assert_eq!(
        (&release["decided_by"], &release["decision_reason"]),
        (&json!("qp_director_santos"), &json!("COA reviewed"))
    );
    assert_eq!(release["assignment"], json!({"assignment_id": gate["assignment_id"], "status": "Recalled"}));
    assert_eq!((&release["binding"], release.get("chain")), (&json!("current"), None));
    let moot = &gates[1];
    assert_eq!((&moot["state"], &moot["withdrawn_by"]), (&json!("Withdrawn"), &json!("lab_tech_rivera")));
    assert!(moot["withdrawal_reason"].as_str().is_some_and(|reason| reason.starts_with("Gate moot")));
    assert!(moot.get("decided_by").is_none() && moot.get("decided_at").is_none());
}

fn check_records(page: &Value, id: &str, fired: &Value) {
    let records = page["items"].as_array().expect("records");
    let actions: Vec<&str> = records.iter().map(|record| record["action_ref"].as_str().expect("an action")).collect();
    assert_eq!(
        actions,
        [
            "workflow_started",
            "transition_fired",
            "transition_fired",
            "gate_opened",
            "gate_opened",
            "gate_decided",
            "transition_fired",
            "moot_gate_recalled"
        ]
    );
    let mut prev = "0".repeat(64);
    for (record, sequence) in records.iter().zip(1..) {
        assert_eq!((&record["instance_id"], &record["sequence"]), (&json!(id), &json!(sequence)));
        assert_eq!((&record["payload"]["instance_id"], &record["prev"]), (&json!(id), &json!(prev)));
        // What people did is known by their tokens, what the engine did by its signature.
        let own = record["actor_ref"] == "countersign";
        assert_eq!(record["assurance"], if own { "actor_signed" } else { "server_attested" });
        assert!(record["registry_seq"].as_u64().is_some_and(|sequence| sequence > 20));
        assert_eq!(record["payload_digest"].as_str().map(str::len), Some(64));
        let retention = &record["retention"];
        // The deployment keeps longer than the definition asks.
        assert_eq!((&retention["policy_ref"], &retention["state"]), (&json!("sox_7_year"), &json!("Retained")));
        assert!(retention["retention_until"].as_str().is_some_and(|until| until.ends_with('Z')));
        prev = record["record_hash"].as_str().expect("a hash").to_owned();
    }
    let started = &records[0];
    assert_eq!(
        (&started["payload"]["definition"], &started["payload"]["reason"]),
        (&json!("batch-release@1"), &json!("campaign 7"))
    );
    assert_eq!((&started["actor_ref"], &records[7]["actor_ref"]), (&json!("lab_tech_rivera"), &json!("countersign")));
    assert_eq!(records[6]["event_id"], fired["event_id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_gate_may_be_opened_again_and_the_old_one_stays() {
    let server = Server::start().await;
    let admin = server.admin();
    let approver = server.actor("controller", &[]).await;
    let body = json!({
        "declaration": {
            "states": ["draft", "booked"],
            "transitions": [{"from": "draft", "action": "book now/ß", "to": "booked", "guard": "sign-off"}],
            "initial_state": "draft", "terminal_states": ["booked"],
        },
        "subject_ref": "je-1",
        "gate_spec": {"sign-off": {"approver_ref": "controller", "scope": "fin:book"}},
    });
    let id = admin.post("/v1/processes", body).await.created()["instance_id"].as_str().expect("an id").to_owned();
    // The action is text; in an address it is percent-encoded.
    let (action, encoded) = ("book now/ß", "book%20now%2F%C3%9F");
    admin.open_gate(&id, action).await.created();
    let rejected = approver.decide(&id, encoded, json!({"decision": "reject", "reason": "wrong period"})).await.ok();
    assert_eq!(decided(rejected), json!({"outcome": "rejected_outcome"}));
    admin.fire(&id, action).await.refused(409, "gate-not-cleared");
    let second = admin.open_gate(&id, action).await.created();
    let withdrawn = admin.decide(&id, encoded, json!({"decision": "withdraw", "reason": "again"})).await.ok();
    assert_eq!(decided(withdrawn), json!({"outcome": "withdrawn"}));
    admin
        .decide(&id, encoded, json!({"decision": "approve", "step_id": second["step_id"]}))
        .await
        .refused(409, "not-pending");
    admin.decide(&id, encoded, json!({"decision": "approve", "step_id": "nonsense"})).await.refused_at(
        404,
        "not-known",
        "step_id",
    );
    admin.open_gate(&id, action).await.created();
    approver.decide(&id, encoded, json!({"decision": "approve"})).await.ok();
    admin.fire(&id, action).await.ok();

    let view = admin.get(&format!("/v1/processes/{id}")).await.ok();
    let of =
        |member: &str| -> Vec<&Value> { view["gates"].as_array().expect("gates").iter().map(|g| &g[member]).collect() };
    assert_eq!(of("binding"), ["superseded", "superseded", "current"]);
    assert_eq!(of("state"), ["Rejected", "Withdrawn", "Approved"]);
    assert_eq!(view["declaration_ref"].as_str().map(str::len), Some(64), "a digest for what was given at start");
    let records = admin.get(&format!("/v1/ledger/records?instance_id={id}&action_ref=workflow_started")).await.ok();
    assert_eq!(records["items"][0]["payload"]["declaration_digest"], view["declaration_ref"]);
    let retention = &records["items"][0]["retention"];
    assert_eq!((&retention["policy_ref"], &retention["retention_until"]), (&json!("unset"), &Value::Null));
}
