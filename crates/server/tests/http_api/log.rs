//! The log over HTTP: seals, proofs and verification.

use crate::support::{Actor, Answer, Server};
use countersign_ledger::merkle;
use countersign_ledger::note::{Checkpoint, Verifier};
use countersign_ledger::parse_hex_digest;
use reqwest::Method;
use serde_json::{Value, json};

async fn newest(actor: &Actor) -> Value {
    actor.get("/v1/ledger/records?order=desc&limit=1").await.ok()["items"][0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_sealed_proved_and_verified() {
    let mut server = Server::sealing_when_asked().await;
    let admin = server.admin();
    server.actor("auditor", &["audit:read"]).await;
    server.actor("late", &[]).await;
    let record = newest(&admin).await;
    let (id, payload) = (record["event_id"].as_str().expect("an id").to_owned(), record["payload"].clone());
    let verify = async |actor: &Actor, body: Value| actor.post("/v1/ledger/verify", body).await.ok();
    let unsealed = verify(&admin, json!({"event_id": id, "payload": payload})).await;
    assert_eq!(unsealed, json!({"result": "failed-verification", "code": "unsealed"}));
    let lenient = verify(&admin, json!({"event_id": id, "payload": payload, "lenient": true})).await;
    assert_eq!(lenient, json!({"result": "verified"}));
    admin.get(&format!("/v1/ledger/records/{id}/proof")).await.refused(404, "not-known");

    let seal = admin.post("/v1/ledger/seal", json!({})).await.ok();
    let size = seal["size"].as_u64().expect("a size");
    assert_eq!(seal["evidence_id"], format!("example.org/log@{size}"));
    admin.post("/v1/ledger/seal", json!({})).await.refused(409, "nothing-to-seal");
    assert_eq!(verify(&admin, json!({"event_id": id, "payload": payload})).await, json!({"result": "verified"}));
    let mut other = payload.clone();
    other["actor_ref"] = json!("somebody else");
    let mismatch = verify(&admin, json!({"event_id": id, "payload": other})).await;
    assert_eq!(mismatch, json!({"result": "failed-verification", "code": "seal-record-set-mismatch"}));
    admin.post("/v1/ledger/verify", json!({"event_id": "x", "payload": {}})).await.refused(404, "not-known");
    admin.post("/v1/ledger/verify", json!({"event_id": id})).await.refused(400, "invalid-request");

    // Everything that a client needs to check it alone.
    let key = Verifier::parse(&admin.get("/v1/ledger/key").await.text).expect("a key");
    let note = admin.get("/v1/ledger/checkpoint").await;
    assert!(note.content_type.starts_with("text/plain"));
    let (text, _) = key.open(&note.text).expect("signed");
    let checkpoint = Checkpoint::parse(text).expect("a checkpoint");
    assert_eq!(seal["root"], checkpoint.root.to_string());
    let proof = admin.get(&format!("/v1/ledger/records/{id}/proof")).await.ok();
    assert_eq!(proof["checkpoint"], note.text);
    let shown = newest(&admin).await;
    assert_eq!((&shown["log_index"], &shown["record_hash"]), (&proof["log_index"], &proof["record_hash"]));
    let hash = |value: &Value| parse_hex_digest(value.as_str().expect("hex")).expect("a hash");
    let path: Vec<_> = proof["proof"].as_array().expect("hashes").iter().map(hash).collect();
    let index = proof["log_index"].as_u64().expect("an index");
    assert!(merkle::verify_inclusion(&hash(&proof["record_hash"]), index, size, &path, &checkpoint.root));

    let grown = admin.get(&format!("/v1/ledger/consistency?old=3&new={size}")).await.ok();
    let path: Vec<_> = grown["proof"].as_array().expect("hashes").iter().map(hash).collect();
    assert!(merkle::verify_consistency(3, size, &hash(&grown["old_root"]), &hash(&grown["new_root"]), &path));
    for (query, field) in
        [("old=1", "new"), ("old=1&new=x", "new"), ("old=1&new=2&x=3", "x"), ("old=1&old=1&new=2", "old")]
    {
        let answer = admin.get(&format!("/v1/ledger/consistency?{query}")).await;
        answer.refused(400, "invalid-query");
        assert_eq!(answer.body["field"], field, "{query}");
    }
    admin.get("/v1/ledger/consistency?old=5&new=4").await.refused(400, "invalid-query");
    admin.get("/v1/ledger/consistency?old=5&new=99999").await.refused(400, "invalid-query");

    server.restart().await;
    let again = server.admin().get("/v1/ledger/checkpoint").await;
    assert!(key.open(&again.text).is_ok(), "the key was kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_whole_log_is_verified_and_may_be_followed() {
    let server = Server::start().await;
    let admin = server.admin();
    for n in 0..5 {
        server.actor(&format!("actor {n}"), &["workflows:start"]).await;
    }
    let _ = admin.post("/v1/ledger/seal", json!({})).await;
    let report = admin.post("/v1/ledger/verify-log", json!({})).await.ok();
    assert_eq!(report["result"], "verified", "{report}");
    assert!(report["records"].as_u64().is_some_and(|records| records >= 30), "{report}");
    let registry = json!({"instance_id": "00000000-0000-0000-0000-000000000000"});
    assert_eq!(admin.post("/v1/ledger/verify-log", registry).await.ok()["result"], "verified");
    admin.post("/v1/ledger/verify-log", json!({"instance_id": "nobody"})).await.refused(404, "not-known");

    let request = admin.request(Method::POST, "/v1/ledger/verify-log").header("Accept", "application/x-ndjson");
    let followed = Answer::of(request.json(&json!({}))).await;
    assert_eq!(followed.content_type, "application/x-ndjson");
    let lines: Vec<Value> = followed.text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.last().map(|line| &line["result"]), Some(&json!("verified")));
    assert!(lines[0]["of"].is_u64(), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sealing_and_reading_need_their_scopes() {
    let server = Server::start().await;
    let reader = server.actor("reader", &["audit:read"]).await;
    let sealer = server.actor("sealer", &["audit:seal"]).await;
    reader.post("/v1/ledger/seal", json!({})).await.refused(403, "permission-denied");
    for path in ["checkpoint", "key", "consistency?old=1&new=1", "records/x/proof"] {
        sealer.get(&format!("/v1/ledger/{path}")).await.refused(403, "permission-denied");
    }
    sealer.post("/v1/ledger/verify", json!({"event_id": "x", "payload": {}})).await.refused(403, "permission-denied");
    sealer.post("/v1/ledger/verify-log", json!({})).await.refused(403, "permission-denied");
    // Sealed by this or already: only then is there something to count.
    let _ = sealer.post("/v1/ledger/seal", json!({})).await;
    let metrics = server.nobody().get("/metrics").await.text;
    for name in ["countersign_sealed_total", "countersign_seal_leader", "countersign_checkpoint_size"] {
        assert!(metrics.contains(name), "{name}: {metrics}");
    }
}

/// The sealer works while an instance is verified: what it seals meanwhile is no finding, and freezes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_is_verified_while_the_sealer_works() {
    let server = Server::start().await;
    let admin = server.admin();
    for round in 0..60 {
        server.actor(&format!("actor-{round}"), &["runs:read"]).await;
        let id = admin.start_loop("s").await;
        let report = admin.post("/v1/ledger/verify-log", json!({"instance_id": id})).await.ok();
        assert_eq!(report["result"], "verified", "{report}");
    }
}
