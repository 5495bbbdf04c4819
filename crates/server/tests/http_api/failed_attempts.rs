//! Attempts that are refused for want of authority: counted always, recorded where the deployment asks for it.

use crate::support::{BATCH_RELEASE, Server};
use serde_json::{Value, json};

/// (instance or registry, code, what was attempted) of every recorded attempt.
async fn recorded(server: &Server) -> Vec<(String, String, String)> {
    let page = server.admin().get("/v1/ledger/records?action_ref=attempt_refused").await.ok();
    let text = |record: &Value, name: &str| record["payload"][name].as_str().unwrap_or_default().to_owned();
    let items = page["items"].as_array().cloned().unwrap_or_default();
    items
        .iter()
        .map(|r| (r["instance_id"].as_str().unwrap_or_default().to_owned(), text(r, "code"), text(r, "attempted")))
        .collect()
}

async fn attempts(server: &Server) -> String {
    let admin = server.admin();
    admin.post_bytes("/v1/definitions", BATCH_RELEASE).await.created();
    let stranger = server.actor("stranger", &[]).await;
    let started =
        admin.post("/v1/processes", json!({"definition": "batch-release", "subject_ref": "b"})).await.created();
    let id = started["instance_id"].as_str().expect("an id").to_owned();
    for action in ["begin-testing", "complete-tests"] {
        admin.fire(&id, action).await.ok();
    }
    admin.open_gate(&id, "release").await.created();
    stranger.fire(&id, "release").await.refused(403, "permission-denied");
    stranger.decide(&id, "release", json!({"decision": "approve"})).await.refused(403, "unauthorized");
    stranger
        .post("/v1/processes", json!({"definition": "batch-release", "subject_ref": "c"}))
        .await
        .refused(403, "permission-denied");
    stranger
        .post("/v1/grants", json!({"subject_ref": "stranger", "action_scope": "workflows:fire"}))
        .await
        .refused(403, "permission-denied");
    // Refused, but not for want of authority.
    admin.fire(&id, "nowhere").await.refused(409, "invalid-transition");
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_attempts_are_recorded_where_the_deployment_asks_for_it() {
    let server = Server::with_config(Some("[audit]\nfailed_attempts = true\n")).await;
    let id = attempts(&server).await;
    let registry = "00000000-0000-0000-0000-000000000000".to_owned();
    let mut found = recorded(&server).await;
    found.sort();
    let mut expected = vec![
        (id.clone(), "permission-denied".to_owned(), "fire_transition".to_owned()),
        (id.clone(), "unauthorized".to_owned(), "decide_gate".to_owned()),
        (registry.clone(), "permission-denied".to_owned(), "start_workflow".to_owned()),
        (registry, "permission-denied".to_owned(), "grant".to_owned()),
    ];
    expected.sort();
    assert_eq!(found, expected);
    // They are records like any other, and the process is as it was.
    let view = server.admin().get(&format!("/v1/processes/{id}")).await.ok();
    assert_eq!(view["current_state"], "qp-review");
    assert_eq!(view["gates"][0]["state"], "Pending");
}

#[tokio::test(flavor = "multi_thread")]
async fn otherwise_they_are_only_counted() {
    let server = Server::start().await;
    attempts(&server).await;
    assert_eq!(recorded(&server).await, vec![]);
    let metrics = server.nobody().get("/metrics").await.text;
    assert!(
        metrics.contains(
            r#"countersign_refused_authorisations_total{command="fire_transition",code="permission-denied"}"#
        ),
        "{metrics}"
    );
    assert!(
        metrics.contains(r#"countersign_refused_authorisations_total{command="decide_gate",code="unauthorized"}"#),
        "{metrics}"
    );
}
