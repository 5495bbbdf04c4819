//! Machines of one's own: declared by a definition, refused unless they stand on the floor, listed and compared beside
//! the engine's.

use crate::run_commands::countersign;
use crate::support::Server;
use serde_json::{Value, json};

const REVIEWED: &str = include_str!("../../../../definitions/reviewed-step.yaml");

fn codes(answer: &Value) -> Vec<&str> {
    answer["problems"].as_array().expect("problems").iter().filter_map(|problem| problem["code"].as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_refused_unless_it_stands_on_the_floor() {
    let server = Server::start().await;
    let admin = server.admin();
    for (from, to, code) in [
        ("  - overdue\n", "", "missing-floor-state"),
        ("    floor_equivalent: waiting\n", "", "derived-without-floor"),
        ("    justification: The reviewer", "    # The reviewer", "derived-without-justification"),
        ("  - overdue\n", "  - {state_code: overdue, semantic_class: idle}\n", "floor-state-changed"),
    ] {
        let spoilt = REVIEWED.replacen(from, to, 1);
        let answer = admin.post_bytes("/v1/definitions", spoilt.as_str()).await;
        answer.refused(400, "invalid-definition");
        let validated = admin.post_bytes("/v1/definitions/validate", spoilt.as_str()).await.ok();
        assert!(codes(&validated).contains(&code), "{code}: {validated}");
    }
    // Nothing was published, and nothing is known of it.
    admin.get("/v1/registry/reviewed-step").await.refused(404, "not-known");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_published_shown_exported_and_compared() {
    let server = Server::start().await;
    let admin = server.admin();
    let published = admin.post_bytes("/v1/definitions", REVIEWED).await.created();
    assert_eq!((&published["name"], &published["version"]), (&json!("reviewed-step"), &json!(1)));
    assert_eq!(admin.post_bytes("/v1/definitions", REVIEWED).await.ok()["version"], 1, "the same again");
    assert_eq!(admin.get("/v1/definitions/reviewed-step").await.ok()["kind"], "machine");

    let registry = admin.get("/v1/registry").await.ok();
    let own = registry["machines"].as_array().expect("machines").last().expect("the last").clone();
    assert_eq!(
        (&own["state_machine_id"], &own["version"], &own["active"]),
        (&json!("reviewed-step"), &json!("1"), &json!(true))
    );
    assert_eq!(own, admin.get("/v1/registry/reviewed-step").await.ok());
    let states = own["states"].as_array().expect("states");
    let review = states.iter().find(|state| state["state_code"] == "in_review").expect("in_review");
    assert_eq!((&review["floor_equivalent"], &review["semantic_class"]), (&json!("waiting"), &json!("wait")));
    assert_eq!((&review["is_derived"], &review["ui_color_token"]), (&json!(true), &json!("ui.traffic_light.yellow")));
    let floor = admin.get("/v1/registry/step").await.ok();
    for (part, floor) in [("states", &floor["states"]), ("transitions", &floor["transitions"])] {
        let all = own[part].as_array().expect("rows");
        assert!(
            floor.as_array().expect("rows").iter().all(|row| all.contains(row)),
            "{part} of the floor are inherited"
        );
    }

    // It is no process and no workflow.
    let process = json!({"definition": "reviewed-step", "subject_ref": "s", "gate_spec": {}});
    admin.post("/v1/processes", process).await.refused(400, "invalid-request");
    admin.post("/v1/runs", json!({"definition": "reviewed-step"})).await.refused(400, "invalid-request");
    admin
        .post_bytes("/v1/definitions", "kind: workflow\nname: reviewed-step\nsteps: [{name: A}]\n")
        .await
        .refused(409, "conflict");

    // Exported and applied, it is the same machine; once more, it is the same document.
    let exported = countersign(&server, &["registry", "export", "reviewed-step"]).await;
    exported.says(0, &["kind: machine", "name: \"reviewed-step\"", "in_review"]);
    let file = server.directory.path().join("mine.yaml");
    std::fs::write(&file, &exported.out).expect("a file");
    let file = file.to_str().expect("a path");
    countersign(&server, &["definition", "validate", file]).await.says(0, &["valid"]);
    countersign(&server, &["definition", "apply", file]).await.says(0, &["published reviewed-step@2"]);
    countersign(&server, &["definition", "apply", file]).await.says(0, &["unchanged reviewed-step@2"]);
    countersign(&server, &["registry", "diff", "reviewed-step@1", "reviewed-step@2"])
        .await
        .says(0, &["The same states"]);
    let again = countersign(&server, &["registry", "export", "reviewed-step@2"]).await;
    assert_eq!(again.out, exported.out);

    // A third version adds a state; both it and the floor are told apart from it.
    let longer = REVIEWED.replace(
        "transitions:\n",
        "  - {state_code: parked, floor_equivalent: blocked, justification: Nobody is to blame}\ntransitions:\n",
    );
    assert_eq!(admin.post_bytes("/v1/definitions", longer.as_str()).await.created()["version"], 3);
    countersign(&server, &["registry", "diff", "reviewed-step@2", "reviewed-step"]).await.says(0, &["+ state parked"]);
    countersign(&server, &["registry", "diff", "step", "reviewed-step@1"])
        .await
        .says(0, &["+ state in_review", "+ transition submit_for_review in_progress → in_review by pic_human"]);
    let registry = admin.get("/v1/registry").await.ok();
    let versions: Vec<(&Value, &Value)> = registry["machines"]
        .as_array()
        .expect("machines")
        .iter()
        .filter(|machine| machine["state_machine_id"] == "reviewed-step")
        .map(|machine| (&machine["version"], &machine["active"]))
        .collect();
    assert_eq!(versions, [(&json!("1"), &json!(false)), (&json!("2"), &json!(false)), (&json!("3"), &json!(true))]);
    admin.get("/v1/registry/reviewed-step@4").await.refused(404, "not-known");

    countersign(&server, &["registry", "show"]).await.says(0, &["reviewed-step", "workflow_run"]);
    countersign(&server, &["definition", "list"]).await.says(0, &["reviewed-step", "machine"]);
    countersign(&server, &["definition", "show", "reviewed-step@1"])
        .await
        .says(0, &["changes_requested", "request_changes", "kind: machine"]);
    countersign(&server, &["definition", "show", "reviewed-step", "--mermaid"])
        .await
        .says(0, &["stateDiagram-v2", "in_progress --> in_review: submit_for_review"]);

    // The floor itself, exported, is a definition once it has a name of its own.
    let floor = countersign(&server, &["registry", "export", "task"]).await.out.replacen("\"task\"", "\"plain\"", 1);
    assert_eq!(admin.post_bytes("/v1/definitions", floor).await.created()["version"], 1);

    // The publications are in the ledger, and the log is sound.
    let records = admin.get("/v1/ledger/records?action_ref=definition_published").await.ok();
    let first = records["items"].as_array().expect("records").iter().find(|r| r["payload"]["name"] == "reviewed-step");
    assert!(first.expect("a record")["payload"]["document_digest"].is_string());
    admin.post("/v1/ledger/seal", json!({})).await;
    assert_eq!(admin.post("/v1/ledger/verify-log", json!({})).await.ok()["result"], "verified");
}

const PAPER: &str = "kind: workflow\nname: paper\norder: linear\nmachine: reviewed-step\nsteps: [{name: write, run: human, pic: kim}]\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_run_moves_by_its_own_machine() {
    let server = Server::start().await;
    let admin = server.admin();
    // A workflow can only name what is there.
    admin.post_bytes("/v1/definitions", PAPER).await.refused_at(400, "invalid-definition", "machine");
    admin.post_bytes("/v1/definitions", REVIEWED).await.created();
    admin.post_bytes("/v1/definitions", PAPER).await.created();
    let kim = server.actor("kim", &["tasks:work"]).await;
    let started = admin.post("/v1/runs", json!({"definition": "paper"})).await.created();
    let run_id = started["run_id"].as_str().expect("an id").to_owned();
    let path = |act: &str| format!("/v1/runs/{run_id}/steps/write/{act}");
    kim.post(&path("claim"), json!({})).await.ok();

    let review = json!({"to": "in_review", "waiting_facet": "waiting_human"});
    let foreseen = kim.post(&format!("{}?preview=true", path("transition")), review.clone()).await.ok();
    assert_eq!((&foreseen["ok"], &foreseen["transition_id"]), (&json!(true), &json!("submit_for_review")));
    assert_eq!(foreseen["emitted_event_type"], "step.waiting");
    let done = kim.post_keyed(&path("transition"), "k1", review.clone()).await.ok();
    assert_eq!((&done["state_code"], &done["derived_state"]), (&json!("waiting"), &json!("in_review")));
    assert_eq!(done["transition_id"], "submit_for_review");
    // The same again is answered as before; another body under the same key is refused.
    assert_eq!(kim.post_keyed(&path("transition"), "k1", review).await.ok(), done);
    kim.post_keyed(&path("transition"), "k1", json!({"to": "waiting"})).await.refused(409, "conflict");

    let view = admin.get(&format!("/v1/runs/{run_id}")).await.ok();
    let step = &view["steps"][0];
    assert_eq!((&view["machine"], &view["rollup"]["state_code"]), (&json!("reviewed-step@1"), &json!("yellow")));
    assert_eq!((&step["state_code"], &step["derived_state"]), (&json!("waiting"), &json!("in_review")));
    assert_eq!((&step["appearance"]["label"], &step["appearance"]["icon"]), (&json!("In review"), &json!("🔍")));
    assert_eq!(step["views"]["linear"], "WAITING");
    assert_eq!(kim.get("/v1/worklist").await.ok()["items"][0]["derived_state"], "in_review");

    // Version 2 takes the way back away; this run has it still.
    let shorter = REVIEWED.replace(
        "  - {from: in_review, to: changes_requested, actor_class: reviewer",
        "  - {from: in_review, to: changes_requested, actor_class: escalation_handler",
    );
    assert_eq!(admin.post_bytes("/v1/definitions", shorter).await.created()["version"], 2);
    let refused =
        countersign(&server, &["step", "transition", &run_id, "write", "--to", "changes_requested", "--preview"]).await;
    refused.says(1, &["would stay as it is", "declaration_evidence"]);
    countersign(
        &server,
        &[
            "step",
            "transition",
            &run_id,
            "write",
            "--to",
            "changes_requested",
            "--evidence",
            "note-1",
            "--reason",
            "no sources",
        ],
    )
    .await
    .says(0, &["write is changes requested; the run is"]);
    admin.post(&path("transition"), json!({"to": "in_review"})).await.refused_at(403, "unauthorized", "step");
    admin.post(&path("transition"), json!({"to": "completed"})).await.refused_at(409, "invalid-transition", "to");
    admin.post(&path("transition"), json!({})).await.refused(400, "invalid-request");
    countersign(&server, &["runs", "show", &run_id]).await.says(0, &["Changes requested"]);
    countersign(&server, &["step", "history", &run_id, "write"])
        .await
        .says(0, &["changes requested", "request_changes", "no sources"]);

    let records = admin.get(&format!("/v1/ledger/records?instance_id={run_id}")).await.ok();
    let last = records["items"]
        .as_array()
        .expect("records")
        .iter()
        .find(|r| r["action_ref"] == "step_transitioned")
        .expect("one");
    assert_eq!(last["payload"]["own_transition"]["to"], "changes_requested");
    assert_eq!(last["payload"]["evidence_ref"], "note-1");
    admin.post("/v1/ledger/seal", json!({})).await;
    assert_eq!(admin.post("/v1/ledger/verify-log", json!({"instance_id": run_id})).await.ok()["result"], "verified");
}
