//! Who may call, and in which order a call is judged.

use crate::support::{Actor, Answer, Server};
use reqwest::Method;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_comes_before_everything_else() {
    let server = Server::start().await;
    let token = std::fs::read_to_string(server.directory.path().join("admin.token")).expect("a token");
    let token = token.trim();
    let nobody = server.nobody();
    for header in [
        "".to_owned(),
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        "Bearer nonsense".to_owned(),
        format!("Bearer {token}x"),
        format!("Bearer {}", token.to_uppercase()),
        format!("Basic {token}"),
        token.to_owned(),
    ] {
        let answer = Answer::of(nobody.request(Method::GET, "/v1/inbox").header("Authorization", &header)).await;
        answer.refused(401, "invalid-credential");
        assert_eq!(answer.headers["www-authenticate"], "Bearer", "{header}");
        assert!(!answer.text.contains("nonsense"), "a token is never repeated");
    }
    let twice = nobody.request(Method::GET, "/v1/inbox").bearer_auth(token).header("Authorization", "Bearer x");
    Answer::of(twice).await.refused(401, "invalid-credential");
    for good in [format!("bearer {token}"), format!("BEARER  {token}")] {
        Answer::of(nobody.request(Method::GET, "/v1/inbox").header("Authorization", good)).await.ok();
    }
    // Neither the shape nor the existence of anything is told to a stranger.
    nobody.post_bytes("/v1/grants", "{").await.refused(401, "invalid-credential");
    nobody.get("/v1/processes?nonsense=1").await.refused(401, "invalid-credential");
    nobody.get("/v1/processes/x").await.refused(401, "invalid-credential");
    let signed = nobody.request(Method::POST, "/v1/grants").header("Countersign-Signature", "AAAA").body("{}");
    Answer::of(signed).await.refused(401, "invalid-credential");
}

#[tokio::test(flavor = "multi_thread")]
async fn shape_comes_before_permission_and_permission_before_existence() {
    let server = Server::start().await;
    let admin = server.admin();
    let id = admin.start_loop("s").await;
    let stranger = server.actor("stranger", &[]).await;
    for id in [id.as_str(), "x"] {
        let denied = |answer: Answer| answer.refused(403, "permission-denied");
        denied(stranger.fire(id, "go").await);
        denied(stranger.open_gate(id, "go").await);
        denied(stranger.get(&format!("/v1/processes/{id}")).await);
        denied(stranger.get(&format!("/v1/ledger/records/{id}")).await);
        denied(stranger.post(&format!("/v1/grants/{id}/revoke"), json!({})).await);
        stranger.fire(id, " ").await.refused(400, "invalid-request");
    }
    for path in [
        "/v1/processes",
        "/v1/approval-steps",
        "/v1/assignments",
        "/v1/ledger/records",
        "/v1/actors",
        "/v1/grants",
        "/v1/definitions",
        "/v1/definitions/x",
        "/v1/definitions/x/versions/1",
    ] {
        stranger.get(path).await.refused(403, "permission-denied");
        stranger.get(&format!("{path}?nonsense=1")).await.refused_at(400, "invalid-query", "nonsense");
    }
    stranger.post("/v1/actors", json!({"actor_ref": "x", "kind": "human"})).await.refused(403, "permission-denied");
    stranger
        .post("/v1/grants", json!({"subject_ref": "x", "action_scope": "y"}))
        .await
        .refused(403, "permission-denied");
    stranger
        .post("/v1/processes", json!({"definition": "x", "subject_ref": "y"}))
        .await
        .refused(403, "permission-denied");
    stranger.post_bytes("/v1/definitions", "nonsense").await.refused(400, "invalid-definition");
    // What is one's own needs no scope.
    assert_eq!(stranger.get("/v1/inbox").await.ok(), json!({"items": [], "next": null}));
    assert_eq!(stranger.get("/v1/grants?subject_ref=stranger").await.ok(), json!({"items": [], "next": null}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_counts_from_its_making_to_its_revocation() {
    let server = Server::start().await;
    let admin = server.admin();
    let worker = server.actor("worker", &[]).await;
    let id = admin.start_loop("s").await;
    worker.fire(&id, "go").await.refused(403, "permission-denied");
    let body = json!({"subject_ref": "worker", "action_scope": "workflows:fire"});
    let grant = admin.post("/v1/grants", body).await.created();
    worker.fire(&id, "go").await.ok();
    let revoke = format!("/v1/grants/{}/revoke", grant["grant_id"].as_str().expect("an id"));
    let revoked = Answer::of(admin.request(Method::POST, &revoke)).await.ok();
    assert_eq!(revoked, json!({"status": "revoked"}));
    admin.post(&revoke, json!({})).await.refused_at(409, "not-active", "grant_id");
    worker.fire(&id, "back").await.refused(403, "permission-denied");
    let listed = admin.get("/v1/grants?subject_ref=worker&action_scope=workflows:fire").await.ok();
    assert_eq!((&listed["items"][0]["status"], listed["items"].as_array().map(Vec::len)), (&json!("revoked"), Some(1)));
    assert!(listed["items"][0]["revoked_at"].is_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finer_scope_opens_one_definition_alone() {
    let server = Server::start().await;
    let admin = server.admin();
    for name in ["one", "two"] {
        let document = format!(
            "{{kind: process, name: {name}, states: [a, b], initial_state: a, terminal_states: [b], transitions: [{{from: a, action: go, to: b}}]}}"
        );
        admin.post_bytes("/v1/definitions", document).await.created();
    }
    let start = async |actor: &Actor, definition: &str| {
        actor.post("/v1/processes", json!({"definition": definition, "subject_ref": "s"})).await
    };
    let narrow = server.actor("narrow", &["workflows:start:one", "workflows:fire:one", "workflows:read:one"]).await;
    let own = start(&narrow, "one").await.created();
    start(&narrow, "two").await.refused(403, "permission-denied");
    let other = start(&admin, "two@1").await.created();
    narrow.fire(own["instance_id"].as_str().expect("an id"), "go").await.ok();
    narrow.fire(other["instance_id"].as_str().expect("an id"), "go").await.refused(403, "permission-denied");
    let seen = narrow.get("/v1/processes").await.ok();
    assert_eq!(seen["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(seen["items"][0]["declaration_ref"], "one@1");
    let other = other["instance_id"].as_str().expect("an id");
    for path in [format!("/v1/processes/{other}"), format!("/v1/processes?instance_id={other}")] {
        narrow.get(&path).await.refused(403, "permission-denied");
    }
    let definitions = narrow.get("/v1/definitions").await.ok();
    assert_eq!(definitions["items"].as_array().map(Vec::len), Some(1));
    narrow.get("/v1/definitions/two").await.refused(403, "permission-denied");
    start(&admin, "two@2").await.refused_at(404, "not-known", "definition");
}

/// Permission comes before existence, for runs and their tasks as for processes; and who says nothing need not write it.
#[tokio::test(flavor = "multi_thread")]
async fn a_finer_scope_shows_the_runs_of_its_definition() {
    let server = Server::start().await;
    let admin = server.admin();
    let mut runs = vec![];
    for name in ["one", "two"] {
        let definition = format!("kind: workflow\nname: {name}\nsteps: [{{name: A}}]\n");
        admin.post_bytes("/v1/definitions", definition).await.created();
        let run = admin.post("/v1/runs", json!({"definition": name})).await.created();
        runs.push(run["run_id"].as_str().expect("an id").to_owned());
    }
    let narrow = server.actor("narrow", &["runs:read:one", "runs:control:one"]).await;
    narrow.get(&format!("/v1/runs/{}", runs[0])).await.ok();
    for path in [format!("/v1/runs/{}", runs[1]), "/v1/runs/nowhere".to_owned(), "/v1/runs?definition=two".to_owned()] {
        narrow.get(&path).await.refused(403, "permission-denied");
    }
    admin.get("/v1/runs/nowhere").await.refused(404, "not-known");
    for task in ["nope", &format!("{}.0", runs[1])] {
        let lease = json!({"lease_token": "00000000-0000-0000-0000-000000000000"});
        narrow.post(&format!("/v1/tasks/{task}/heartbeat"), lease.clone()).await.refused(403, "permission-denied");
    }
    let pause = narrow.request(reqwest::Method::POST, &format!("/v1/runs/{}/pause", runs[0]));
    let pause = pause.json(&json!({"reason": "lunch"}));
    assert_eq!(Answer::of(pause).await.ok()["state"], "paused");
}
