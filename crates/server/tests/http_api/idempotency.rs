//! The same key and body is answered as the first time, and nothing is done twice.

use crate::support::{Server, two_states};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_gets_the_first_answer_even_after_a_restart() {
    let mut server = Server::start().await;
    let admin = server.admin();
    let start = json!({"declaration": two_states(), "subject_ref": "s"});
    let started = admin.post_keyed("/v1/processes", "k1", start.clone()).await.created();
    assert_eq!(admin.post_keyed("/v1/processes", "k1", start.clone()).await.created(), started);
    let id = started["instance_id"].as_str().expect("an id").to_owned();
    let transitions = format!("/v1/processes/{id}/transitions");
    let fired = admin.post_keyed(&transitions, "k2", json!({"action": "go"})).await.ok();

    server.restart().await;
    let admin = server.admin();
    assert_eq!(admin.post_keyed("/v1/processes", "k1", start.clone()).await.created(), started);
    assert_eq!(admin.post_keyed(&transitions, "k2", json!({"action": "go"})).await.ok(), fired);
    let view = admin.get(&format!("/v1/processes/{id}")).await.ok();
    assert_eq!(view["transition_history"].as_array().map(Vec::len), Some(1));
    assert_eq!(admin.get("/v1/processes").await.ok()["items"].as_array().map(Vec::len), Some(1));

    // Another body, another spelling of it, or another address is another request.
    for (path, body) in [
        ("/v1/processes", json!({"declaration": two_states(), "subject_ref": "t"})),
        ("/v1/grants", json!({"subject_ref": "x", "action_scope": "y"})),
    ] {
        admin.post_keyed(path, "k1", body).await.refused_at(409, "conflict", "Idempotency-Key");
    }
    // Keys are per actor.
    let other = server.actor("other", &["workflows:start"]).await;
    assert_ne!(other.post_keyed("/v1/processes", "k1", start).await.created(), started);
}

const TWO_STEPS: &str = "kind: workflow\nname: two\norder: dag\nqueue: q\nsteps: [{name: A}, {name: B}, {name: C}]\n";

/// What leaves no record of its own answers as the first time too, and its key stands for nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn seals_claims_and_events_are_carried_out_once() {
    let mut server = Server::sealing_when_asked().await;
    let admin = server.admin();
    admin.post_bytes("/v1/definitions", TWO_STEPS).await.created();
    let run = admin.post("/v1/runs", json!({"definition": "two"})).await.created();

    let claim = json!({"worker_id": "w", "max": 1});
    let claimed = admin.post_keyed("/v1/queues/q/claim", "c", claim.clone()).await.ok();
    assert_eq!(claimed["tasks"].as_array().map(Vec::len), Some(1));
    let event = json!({"id": "e-1", "type": "t", "run_id": run["run_id"]});
    let sent = admin.post_keyed("/v1/events", "e", event.clone()).await.accepted();
    assert_eq!(sent["duplicate"], false);
    let sealed = admin.post_keyed("/v1/ledger/seal", "s", json!({})).await.ok();

    server.restart().await;
    let admin = server.admin();
    assert_eq!(admin.post_keyed("/v1/queues/q/claim", "c", claim.clone()).await.ok(), claimed, "the same lease");
    let more = json!({"worker_id": "w", "max": 2});
    admin.post_keyed("/v1/queues/q/claim", "c", more).await.refused_at(409, "conflict", "Idempotency-Key");
    assert_eq!(admin.post_keyed("/v1/events", "e", event).await.accepted(), sent);
    let other = json!({"id": "e-2", "type": "t", "run_id": run["run_id"]});
    admin.post_keyed("/v1/events", "e", other).await.refused_at(409, "conflict", "Idempotency-Key");
    assert_eq!(admin.post_keyed("/v1/ledger/seal", "s", json!({})).await.ok(), sealed);
    admin.post_keyed("/v1/queues/q/claim", "s", claim).await.refused_at(409, "conflict", "Idempotency-Key");
    // What a repeated claim would have taken is there for others, at once or a moment later.
    let mut rest = Vec::new();
    while rest.len() < 2 {
        let claim = json!({"worker_id": "v", "max": 5, "wait_ms": 10_000});
        let more = admin.post("/v1/queues/q/claim", claim).await.ok()["tasks"].as_array().expect("tasks").clone();
        assert!(!more.is_empty(), "one is missing: {rest:?}");
        rest.extend(more.iter().map(|task| task["step"].as_str().expect("a step").to_owned()));
    }
    rest.sort_unstable();
    assert_eq!(rest, ["B", "C"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_not_kept() {
    let server = Server::start().await;
    let admin = server.admin();
    let id = admin.start_loop("s").await;
    let transitions = format!("/v1/processes/{id}/transitions");
    admin.post_keyed(&transitions, "k", json!({"action": "back"})).await.refused(409, "invalid-transition");
    admin.fire(&id, "go").await.ok();
    admin.post_keyed(&transitions, "k", json!({"action": "back"})).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_registration_does_not_tell_the_token_again() {
    let mut server = Server::start().await;
    let admin = server.admin();
    let body = json!({"actor_ref": "qa", "kind": "human", "display_name": "Quality"});
    let first = admin.post_keyed("/v1/actors", "k", body.clone()).await.created();
    let token = first["token"].as_str().expect("a token").to_owned();
    assert!(token.starts_with("cs_") && token.len() == 67, "{token}");
    server.restart().await;
    let admin = server.admin();
    let again = admin.post_keyed("/v1/actors", "k", body.clone()).await.created();
    assert_eq!(again, json!({"actor_ref": "qa"}));
    server.with_token(&token).get("/v1/inbox").await.ok();
    admin.post("/v1/actors", body).await.refused_at(409, "conflict", "actor_ref");
    let definition = "{kind: process, name: d, states: [a], initial_state: a, terminal_states: [], transitions: []}";
    let publish = async || {
        let request = admin.request(reqwest::Method::POST, "/v1/definitions").header("Idempotency-Key", "d");
        crate::support::Answer::of(request.body(definition)).await
    };
    let first = publish().await.created();
    assert_eq!(publish().await.created(), first, "the first answer, status and all");
}
