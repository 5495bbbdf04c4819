//! A gate that several people clear together.

use crate::support::{Actor, Server, decided};
use serde_json::{Value, json};

async fn start(actor: &Actor, rule: Value) -> String {
    let body = json!({
        "declaration": {
            "states": ["open", "approved", "dropped"],
            "transitions": [
                {"from": "open", "action": "amend", "to": "approved", "guard": "board"},
                {"from": "open", "action": "drop", "to": "dropped"},
            ],
            "initial_state": "open", "terminal_states": ["approved", "dropped"],
        },
        "subject_ref": "protocol-9",
        "gate_spec": {"board": {"approvers": ["ann", "ben", "cleo"], "quorum": rule, "scope": "trial:amend"}},
    });
    actor.post("/v1/processes", body).await.created()["instance_id"].as_str().expect("an id").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_of_three_clear_a_gate() {
    let server = Server::start().await;
    let admin = server.admin();
    let (ann, ben, cleo) =
        (server.actor("ann", &[]).await, server.actor("ben", &[]).await, server.actor("cleo", &[]).await);
    let id = start(&admin, json!({"rule": "m-of-n", "m": 2})).await;
    let opened = admin.open_gate(&id, "amend").await.created();
    let steps = opened["steps"].as_array().expect("steps");
    let approvers: Vec<&Value> = steps.iter().map(|step| &step["approver_ref"]).collect();
    assert_eq!(approvers, ["ann", "ben", "cleo"]);
    assert!(opened.get("step_id").is_none());

    let first = ann.decide(&id, "amend", json!({"decision": "approve"})).await.ok();
    assert_eq!(decided(first), json!({"outcome": "approved", "chain_state": "Pending"}));
    ann.decide(&id, "amend", json!({"decision": "approve"})).await.refused(409, "not-pending");
    admin.fire(&id, "amend").await.refused(409, "gate-not-cleared");
    // Naming a step does not make it yours.
    let ben_step = &steps[1]["step_id"];
    cleo.decide(&id, "amend", json!({"decision": "approve", "step_id": ben_step})).await.refused(403, "unauthorized");
    let second = ben.decide(&id, "amend", json!({"decision": "approve", "step_id": ben_step})).await.ok();
    assert_eq!(decided(second), json!({"outcome": "approved", "chain_state": "Approved"}));
    assert_eq!(cleo.get("/v1/inbox").await.ok()["items"], json!([]), "the rest was recalled");
    assert_eq!(admin.fire(&id, "amend").await.ok()["new_state"], "approved");

    let view = admin.get(&format!("/v1/processes/{id}")).await.ok();
    let gates = view["gates"].as_array().expect("gates");
    assert_eq!(gates.len(), 3, "one item per step");
    let chain = json!({"chain_id": opened["chain_id"], "state": "Approved", "rule": "m-of-n", "m": 2,
        "approved": 2, "needed": 2, "approvers": 3});
    assert!(gates.iter().all(|gate| gate["chain"] == chain), "{view}");
    let fired = &view["transition_history"][0];
    assert_eq!((&fired["guard_satisfied"], &fired["chain_id"]), (&json!(true), &opened["chain_id"]));
    assert!(fired.get("step_id").is_none());
    let steps = admin.get(&format!("/v1/approval-steps?instance_id={id}")).await.ok();
    assert_eq!(steps["items"][0]["chain_id"], opened["chain_id"]);
    assert_eq!(steps["items"][0]["subject_ref"], "protocol-9:amend");
}

/// Two of three approved a step of a run: the third is no longer waited for, and may still speak too late.
#[tokio::test(flavor = "multi_thread")]
async fn a_decided_quorum_is_over() {
    let server = Server::start().await;
    let admin = server.admin();
    let [ann, ben, cleo] =
        [server.actor("ann", &[]).await, server.actor("ben", &[]).await, server.actor("cleo", &[]).await];
    let workflow = "kind: workflow\nname: pay\norder: linear\ngate_spec:\n  board: {approvers: [ann, ben, cleo], \
        quorum: {rule: m-of-n, m: 2}, scope: pay}\nsteps:\n  - {name: wire, gate: board}\n";
    admin.post_bytes("/v1/definitions", workflow.as_bytes()).await.created();
    let run = admin.post("/v1/runs", json!({"definition": "pay"})).await.created()["run_id"].clone();
    let path = format!("/v1/runs/{}", run.as_str().expect("an id"));
    let decide = format!("{path}/gates/wire/decision");
    for approver in [&ann, &ben] {
        approver.post(&decide, json!({"decision": "approve"})).await.ok();
    }
    let view = admin.get(&path).await.ok();
    assert_eq!(view["steps"][0]["state_code"], "ready", "{view}");
    let third = |view: &Value| view["gates"][2].clone();
    assert_eq!(view["gates"].as_array().expect("gates").len(), 3, "all three are named");
    assert_eq!(
        (&third(&view)["state"], &third(&view)["assignment"]["status"]),
        (&json!("Pending"), &json!("Recalled"))
    );
    assert_eq!((&third(&view)["chain"]["approved"], &third(&view)["chain"]["approvers"]), (&json!(2), &json!(3)));
    assert_eq!(cleo.get("/v1/inbox").await.ok()["items"], json!([]));
    let offered = admin.get(&format!("{path}/actions")).await.ok().to_string();
    assert!(!offered.contains(r#""action":"approve""#), "nothing is left to decide: {offered}");

    let late = cleo.post(&decide, json!({"decision": "approve"})).await.ok();
    assert_eq!(decided(late), json!({"outcome": "approved", "chain_state": "Approved"}));
    let view = admin.get(&path).await.ok();
    assert_eq!((&third(&view)["state"], &third(&view)["trailing"]), (&json!("Approved"), &json!(true)), "{view}");
    assert_eq!(third(&view)["chain"]["approved"], 2, "it came too late to count");
    assert!(view["gates"][0].get("trailing").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_initiator_withdraws_the_whole_chain() {
    let server = Server::start().await;
    let admin = server.admin();
    let ann = server.actor("ann", &[]).await;
    let id = start(&admin, json!({"rule": "all-of-n"})).await;
    admin.open_gate(&id, "amend").await.created();
    ann.decide(&id, "amend", json!({"decision": "withdraw", "reason": "no"})).await.refused(403, "unauthorized");
    let withdrawn = admin.decide(&id, "amend", json!({"decision": "withdraw", "reason": "typo"})).await.ok();
    assert_eq!(decided(withdrawn), json!({"outcome": "withdrawn", "chain_state": "Withdrawn"}));
    assert_eq!(ann.get("/v1/inbox").await.ok()["items"], json!([]));
    admin.open_gate(&id, "amend").await.created();
    let rejected = ann.decide(&id, "amend", json!({"decision": "reject", "reason": "unsafe"})).await.ok();
    assert_eq!(decided(rejected), json!({"outcome": "rejected_outcome", "chain_state": "Rejected"}));
    admin.fire(&id, "drop").await.ok();
    let actions = admin.get(&format!("/v1/ledger/records?instance_id={id}&limit=500")).await.ok();
    let actions: Vec<&str> = actions["items"]
        .as_array()
        .expect("records")
        .iter()
        .filter_map(|record| record["action_ref"].as_str())
        .collect();
    assert_eq!(actions.iter().filter(|action| **action == "chain_initiated").count(), 2);
    assert_eq!(actions.iter().filter(|action| **action == "chain_withdrawn").count(), 1);
    assert_eq!(actions.iter().filter(|action| **action == "chain_resolved").count(), 1);
}
