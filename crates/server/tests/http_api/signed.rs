//! Signed requests: the record of a signed action verifies with public material alone; nothing of a signature can be
//! used for anything else.

use crate::support::{Actor, Answer, BATCH_RELEASE, Server};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use countersign_ledger::sha256;
use countersign_ledger::statement::{PublicKey, Signed, Signer, Statement};
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};

/// An actor with a key, who can also sign wrongly.
pub struct Hand {
    pub actor: Actor,
    signer: Signer,
    name: &'static str,
}

static NONCE: AtomicU64 = AtomicU64::new(1);

impl Hand {
    pub async fn new(server: &Server, name: &'static str, seed: u8, scopes: &[&str]) -> Hand {
        let signer = Signer::from_seed(&[seed; 32]);
        let actor = server.actor(name, scopes).await;
        let key = json!({"public_key": signer.public_key().to_base64()});
        let made = server.admin().post(&format!("/v1/actors/{name}/keys"), key).await.created();
        assert_eq!(made["key_id"], signer.public_key().key_id());
        Hand { actor, signer, name }
    }

    /// The same hand after the server started again.
    pub fn at(self, server: &Server) -> Hand {
        Hand { actor: server.with_token(&self.actor.token()), ..self }
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    fn statement(&self, action: &str, path: &str, body: &str) -> Statement {
        let nonce = NONCE.fetch_add(1, Ordering::Relaxed);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time");
        let rest = path.strip_prefix("/v1/processes/").or_else(|| path.strip_prefix("/v1/proposals/"));
        let instance = rest.and_then(|rest| rest.split('/').next());
        Statement {
            v: 1,
            action: action.to_owned(),
            actor_ref: self.name.to_owned(),
            key_id: self.signer.public_key().key_id(),
            request: Some(format!("POST {path}")),
            instance_id: instance.map(str::to_owned),
            step_id: None,
            body_digest: sha256(&[body.as_bytes()]).to_string(),
            meaning: (action == "decide_gate").then(|| "I have reviewed the batch record".to_owned()),
            expected_sequence: None,
            nonce: format!("nonce-{nonce:016}"),
            issued_at_us: i64::try_from(now.as_micros()).expect("a time"),
        }
    }

    async fn send(&self, path: &str, body: &str, statement: &Statement) -> Answer {
        send(&self.actor, path, body, &statement.to_bytes().expect("JSON"), &self.signer).await
    }

    pub async fn signed(&self, action: &str, path: &str, body: Value) -> Answer {
        let body = body.to_string();
        self.send(path, &body, &self.statement(action, path, &body)).await
    }
}

async fn send(actor: &Actor, path: &str, body: &str, statement: &[u8], signer: &Signer) -> Answer {
    let request = actor
        .request(Method::POST, path)
        .header("Countersign-Statement", BASE64_STANDARD.encode(statement))
        .header("Countersign-Signature", BASE64_STANDARD.encode(signer.sign(statement)))
        .header("Content-Type", "application/json")
        .body(body.to_owned());
    Answer::of(request).await
}

/// A batch in review whose release waits for `qp`.
async fn waiting(server: &Server) -> String {
    let admin = server.admin();
    admin.post_bytes("/v1/definitions", BATCH_RELEASE).await;
    let gate_spec = json!({"qa-approval": {"approver_ref": "qp", "scope": "batch"}, "qp-approval": {"approver_ref": "qp", "scope": "batch"}});
    let declaration = json!({
        "states": ["review", "released"], "initial_state": "review", "terminal_states": ["released"],
        "transitions": [{"from": "review", "action": "release", "to": "released", "guard": "qp-approval"}],
    });
    let gate_spec = json!({"qp-approval": gate_spec["qp-approval"]});
    let body = json!({"declaration": declaration, "subject_ref": "BR-1", "gate_spec": gate_spec});
    let id = admin.post("/v1/processes", body).await.created()["instance_id"].as_str().expect("an id").to_owned();
    admin.open_gate(&id, "release").await.created();
    id
}

fn decision(id: &str) -> String {
    format!("/v1/processes/{id}/gates/release/decision")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_decision_is_recorded_with_what_was_signed() {
    let server = Server::start().await;
    let qp = Hand::new(&server, "qp", 1, &[]).await;
    let id = waiting(&server).await;
    let body = json!({"decision": "approve", "reason": "in order"});
    assert_eq!(qp.signed("decide_gate", &decision(&id), body.clone()).await.ok()["outcome"], "approved");

    let records =
        server.admin().get(&format!("/v1/ledger/records?instance_id={id}&action_ref=gate_decided")).await.ok();
    let record = &records["items"][0];
    assert_eq!(record["assurance"], "actor_signed");
    assert_eq!(record["actor_ref"], "qp");
    // With public material alone: the attestation, the payload, and the registered key.
    let attestation = record["attestation"].to_string();
    let signed = Signed::parse(attestation.as_bytes()).expect("an attestation");
    let keys = server.admin().get("/v1/actors/qp/keys").await.ok();
    let key = PublicKey::parse(keys["keys"][0]["public_key"].as_str().expect("a key")).expect("a key");
    signed.verify(&key, record["payload"].to_string().as_bytes()).expect("it verifies");
    assert_eq!(signed.statement.meaning.as_deref(), Some("I have reviewed the batch record"));
    assert_eq!(signed.statement.instance_id.as_deref(), Some(id.as_str()));
    assert_eq!(signed.statement.body_digest, sha256(&[body.to_string().as_bytes()]).to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signature_alone_says_who_is_calling() {
    let server = Server::start().await;
    let mut qp = Hand::new(&server, "qp", 1, &[]).await;
    let id = waiting(&server).await;
    qp.actor = server.nobody();
    qp.signed("decide_gate", &decision(&id), json!({"decision": "approve"})).await.ok();
    // With somebody else's token it is refused: who is it now?
    qp.actor = server.admin();
    let answer = qp.signed("decide_gate", &decision(&id), json!({"decision": "approve"})).await;
    answer.refused_at(401, "invalid-credential", "actor_ref");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signature_is_good_for_one_thing() {
    let server = Server::start().await;
    let qp = Hand::new(&server, "qp", 1, &["workflows:fire"]).await;
    let mallory = Hand::new(&server, "mallory", 2, &["workflows:fire"]).await;
    let (id, other) = (waiting(&server).await, waiting(&server).await);
    let (path, body) = (decision(&id), json!({"decision": "approve"}).to_string());
    let good = qp.statement("decide_gate", &path, &body);

    // For another request, another body, another action, another instance, another actor.
    qp.send(&decision(&other), &body, &good).await.refused_at(401, "invalid-credential", "request");
    let rejected = json!({"decision": "reject", "reason": "no"}).to_string();
    qp.send(&path, &rejected, &good).await.refused_at(401, "invalid-credential", "body_digest");
    let wrong = Statement { action: "fire_transition".into(), ..good.clone() };
    qp.send(&path, &body, &wrong).await.refused_at(401, "invalid-credential", "action");
    let wrong = Statement { instance_id: Some(other.clone()), ..good.clone() };
    qp.send(&path, &body, &wrong).await.refused_at(401, "invalid-credential", "instance_id");
    let wrong = Statement { step_id: Some("00000000-0000-7000-8000-000000000000".into()), ..good.clone() };
    qp.send(&path, &body, &wrong).await.refused_at(401, "invalid-credential", "step_id");
    let wrong = Statement { meaning: None, ..good.clone() };
    qp.send(&path, &body, &wrong).await.refused_at(400, "invalid-request", "meaning");
    let wrong = Statement { issued_at_us: good.issued_at_us - 11 * 60 * 1_000_000, ..good.clone() };
    qp.send(&path, &body, &wrong).await.refused_at(401, "invalid-credential", "issued_at_us");
    let wrong = Statement { key_id: mallory.signer.public_key().key_id(), ..good.clone() };
    qp.send(&path, &body, &wrong).await.refused_at(401, "invalid-credential", "key_id");
    // Signed by another key than the one it names.
    send(&qp.actor, &path, &body, &good.to_bytes().expect("JSON"), &mallory.signer)
        .await
        .refused(401, "invalid-credential");
    send(&server.nobody(), &path, &body, &good.to_bytes().expect("JSON"), &mallory.signer)
        .await
        .refused(401, "invalid-credential");
    // One bit of the statement.
    let edited = String::from_utf8(good.to_bytes().expect("JSON")).expect("text").replace("reviewed", "rewiewed");
    let request = qp.actor.request(Method::POST, &path).body(body.clone());
    let request = request
        .header("Countersign-Statement", BASE64_STANDARD.encode(edited))
        .header("Countersign-Signature", BASE64_STANDARD.encode(qp.signer.sign(&good.to_bytes().expect("JSON"))));
    Answer::of(request).await.refused_at(401, "invalid-credential", "Countersign-Signature");

    // Nothing has happened so far, and the good one still does.
    let records = server.admin().get(&format!("/v1/ledger/records?instance_id={id}")).await.ok();
    assert_eq!(records["items"].as_array().expect("a list").len(), 2);
    qp.send(&path, &body, &good).await.ok();
    // The same again is the same answer, and no second decision.
    assert_eq!(qp.send(&path, &body, &good).await.ok()["outcome"], "approved");
    // Its nonce is spent: another statement cannot have it.
    let again = Statement { meaning: Some("something else".into()), ..good };
    qp.send(&path, &body, &again).await.refused(409, "conflict");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_may_insist_on_what_its_signer_saw() {
    let server = Server::start().await;
    let qp = Hand::new(&server, "qp", 1, &[]).await;
    let id = waiting(&server).await;
    let (path, body) = (decision(&id), json!({"decision": "approve"}).to_string());
    let stale = Statement { expected_sequence: Some(1), ..qp.statement("decide_gate", &path, &body) };
    qp.send(&path, &body, &stale).await.refused_at(409, "conflict", "expected_sequence");
    let seen = Statement { expected_sequence: Some(2), ..qp.statement("decide_gate", &path, &body) };
    qp.send(&path, &body, &seen).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_rotated_and_revoked() {
    let server = Server::start().await;
    let admin = server.admin();
    let mut qp = Hand::new(&server, "qp", 1, &[]).await;
    let first = qp.signer.clone();
    let second = Signer::from_seed(&[9; 32]);
    let key = json!({"public_key": second.public_key().to_base64()});
    // With a token alone one may not give oneself a key; signed with the old one, one may.
    qp.actor.post("/v1/actors/qp/keys", key.clone()).await.refused(403, "permission-denied");
    qp.signed("register_key", "/v1/actors/qp/keys", key.clone()).await.created();
    admin.post("/v1/actors/qp/keys", key.clone()).await.refused_at(409, "conflict", "public_key");
    admin.post("/v1/actors/admin/keys", key).await.refused_at(409, "conflict", "public_key");
    let id = waiting(&server).await;
    let revoke = format!("/v1/actors/qp/keys/{}/revoke", first.public_key().key_id());
    qp.signer = second;
    qp.signed("revoke_key", &revoke, json!({"reason": "lost"})).await.ok();
    admin.post(&revoke, json!({})).await.refused_at(409, "not-active", "key_id");
    admin.post("/v1/actors/qp/keys/0000/revoke", json!({})).await.refused_at(404, "not-known", "key_id");
    admin.post("/v1/actors/nobody/keys/0000/revoke", json!({})).await.refused_at(404, "not-known", "actor_ref");
    qp.signer = first;
    let body = json!({"decision": "approve"});
    let answer = qp.signed("decide_gate", &decision(&id), body.clone()).await;
    answer.refused_at(401, "invalid-credential", "key_id");
    qp.signer = Signer::from_seed(&[9; 32]);
    qp.signed("decide_gate", &decision(&id), body).await.ok();
    let keys = admin.get("/v1/actors/qp/keys").await.ok();
    let status: Vec<&str> =
        keys["keys"].as_array().expect("keys").iter().filter_map(|key| key["status"].as_str()).collect();
    assert_eq!(status, ["revoked", "active"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_issued_anew_and_revoked() {
    let server = Server::start().await;
    let admin = server.admin();
    let stranger = server.actor("stranger", &[]).await;
    stranger.post("/v1/actors/stranger/tokens", json!({})).await.refused(403, "permission-denied");
    let issued = admin.post("/v1/actors/stranger/tokens", json!({})).await.created();
    let again = server.with_token(issued["token"].as_str().expect("a token"));
    again.get("/v1/inbox").await.ok();
    let credential = issued["credential_id"].as_str().expect("an id");
    let path = format!("/v1/actors/stranger/tokens/{credential}/revoke");
    admin.post(&path, json!({})).await.ok();
    admin.post(&path, json!({})).await.refused_at(409, "not-active", "credential_id");
    admin.post("/v1/actors/stranger/tokens/x/revoke", json!({})).await.refused_at(404, "not-known", "credential_id");
    admin.post("/v1/actors/nobody/tokens", json!({})).await.refused_at(404, "not-known", "actor_ref");
    again.get("/v1/inbox").await.refused(401, "invalid-credential");
    stranger.get("/v1/inbox").await.ok();
}

/// What leaves no record is signed for, too, and a statement is taken once.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_is_taken_once_whatever_it_asks_for() {
    let server = Server::sealing_when_asked().await;
    let hand = Hand::new(&server, "hand", 3, &["audit:seal", "runs:start", "tasks:work", "governance:act"]).await;
    let definition = "kind: workflow\nname: two\norder: dag\nqueue: q\nsteps: [{name: A}, {name: B}]\n";
    server.admin().post_bytes("/v1/definitions", definition).await.created();
    hand.signed("start_run", "/v1/runs", json!({"definition": "two"})).await.created();

    let claim = json!({"worker_id": "w"}).to_string();
    let statement = hand.statement("claim", "/v1/queues/q/claim", &claim);
    let claimed = hand.send("/v1/queues/q/claim", &claim, &statement).await.ok();
    assert_eq!(hand.send("/v1/queues/q/claim", &claim, &statement).await.ok(), claimed, "no second task");
    let statement = hand.statement("seal", "/v1/ledger/seal", "{}");
    let sealed = hand.send("/v1/ledger/seal", "{}", &statement).await.ok();
    assert_eq!(hand.send("/v1/ledger/seal", "{}", &statement).await.ok(), sealed);

    let why = json!({"reason": "r"});
    for (path, body) in [("/v1/ledger/seal", &json!({})), ("/v1/dead-letters/x/replay-requests", &why)] {
        hand.signed("grant", path, body.clone()).await.refused_at(401, "invalid-credential", "action");
    }
    let letter = "/v1/dead-letters/x/replay-requests";
    hand.signed("request_replay", letter, why).await.refused_at(404, "not-known", "dead_letter_id");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_software_itself_is_registered_and_signs() {
    let server = Server::start().await;
    let admin = server.admin();
    let records = admin.get("/v1/ledger/records?instance_id=00000000-0000-0000-0000-000000000000&limit=500").await.ok();
    let records = records["items"].as_array().expect("a list");
    let keys = admin.get("/v1/actors/countersign/keys").await.ok();
    let key = PublicKey::parse(keys["keys"][0]["public_key"].as_str().expect("a key")).expect("a key");
    let mut seen = 0;
    for record in records.iter().filter(|record| record["actor_ref"] == "countersign") {
        assert_eq!(record["assurance"], "actor_signed", "{record}");
        let signed = Signed::parse(record["attestation"].to_string().as_bytes()).expect("an attestation");
        signed.verify(&key, record["payload"].to_string().as_bytes()).expect("it verifies");
        seen += 1;
    }
    assert!(seen > 10, "the first records are the software's own: {seen}");
    assert!(admin.get("/v1/actors/countersign-log/keys").await.ok()["keys"].is_array());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_must_be_one() {
    let server = Server::start().await;
    let admin = server.admin();
    for key in ["", " ", "key", "AAAA", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="] {
        let body = json!({"actor_ref": "x", "kind": "human", "public_key": key});
        admin.post("/v1/actors", body).await.refused_at(400, "invalid-request", "public_key");
    }
}
