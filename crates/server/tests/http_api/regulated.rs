//! `regulated = true`: every act of a person is signed, services sign too unless the configuration says otherwise, reads need
//! no signature, and the records show what was asked for.

use crate::support::{Actor, Answer, BATCH_RELEASE, Server};
use crate::webhooks::{database, on_both};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use countersign_client::signed_action;
use countersign_ledger::sha256;
use countersign_ledger::statement::{Signer, Statement};
use countersign_server::outbox::Pace;
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};

on_both! {
    every_act_of_a_person_is_signed,
    a_token_completes_no_step,
    services_use_tokens_only_where_the_configuration_says_so,
    what_an_approval_allows_is_signed_too,
}

const REGISTRY: &str = "00000000-0000-0000-0000-000000000000";
const CARE: &str = r#"{"kind": "workflow", "name": "care", "order": "linear", "queue": "q", "schedule": [{"cron": "0 3 1 1 *"}],
    "steps": [{"name": "look", "run": "human", "pic": "ines"}, {"name": "pack"}, {"name": "send", "run": "wait", "event": "sent"}]}"#;

const LAB: &str = r#"{"kind": "workflow", "name": "lab", "order": "linear", "queue": "q",
    "gate_spec": {"reopen": {"approver_ref": "qp", "scope": "lab:reopen"}},
    "steps": [{"name": "look", "run": "human", "pic": "ines"}, {"name": "send", "run": "wait", "event": "sent"}]}"#;
const CUT: &str = r#"{"kind": "workflow", "name": "cut", "order": "linear", "queue": "q", "failurePolicy": "fail-closed",
    "gate_spec": {"sovereign": {"approver_ref": "qp", "scope": "cut"}}, "steps": [{"name": "plan", "readOnly": true}]}"#;

static NONCE: AtomicU64 = AtomicU64::new(1);

/// Somebody with a token and a key.
struct Hand {
    actor: Actor,
    signer: Signer,
    name: &'static str,
}

/// The process or run that a request is about.
fn instance_of(path: &str) -> Option<String> {
    let mut parts = path.split('/').skip(2);
    let (kind, id) = (parts.next()?, parts.next()?);
    match kind {
        "processes" | "runs" => Some(id.to_owned()),
        "tasks" => id.rsplit_once('.').map(|(run_id, _)| run_id.to_owned()),
        _ => None,
    }
}

impl Hand {
    fn new(actor: Actor, name: &'static str, seed: u8) -> Hand {
        Hand { actor, signer: Signer::from_seed(&[seed; 32]), name }
    }

    fn key(&self) -> Value {
        json!({"public_key": self.signer.public_key().to_base64()})
    }

    async fn sign(&self, path: &str, body: &str) -> Answer {
        let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let action = signed_action("POST", &segments).unwrap_or_else(|| panic!("{path} is signed"));
        let nonce = NONCE.fetch_add(1, Ordering::Relaxed);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time");
        let statement = Statement {
            v: 1,
            action: action.to_owned(),
            actor_ref: self.name.to_owned(),
            key_id: self.signer.public_key().key_id(),
            request: Some(format!("POST {path}")),
            instance_id: instance_of(path),
            step_id: None,
            body_digest: sha256(&[body.as_bytes()]).to_string(),
            meaning: (action == "decide_gate").then(|| "I have reviewed the batch record".to_owned()),
            expected_sequence: None,
            nonce: format!("nonce-{nonce:016}"),
            issued_at_us: i64::try_from(now.as_micros()).expect("a time"),
        };
        let statement = statement.to_bytes().expect("JSON");
        let request = self
            .actor
            .request(Method::POST, path)
            .header("Countersign-Statement", BASE64_STANDARD.encode(&statement))
            .header("Countersign-Signature", BASE64_STANDARD.encode(self.signer.sign(&statement)))
            .header("Content-Type", if body.starts_with('{') { "application/json" } else { "application/yaml" })
            .body(body.to_owned());
        Answer::of(request).await
    }

    /// The same request twice: with the token alone it is refused, signed it is accepted.
    async fn act(&self, path: &str, body: Value) -> Value {
        self.act_with(path, &body.to_string()).await
    }

    async fn act_with(&self, path: &str, body: &str) -> Value {
        self.actor.post_bytes(path, body.to_owned()).await.refused(401, "invalid-credential");
        let answer = self.sign(path, body).await;
        assert!((200..300).contains(&answer.status), "{path}: {}", answer.text);
        answer.body
    }

    async fn acts(&self, path: &str, bodies: &[(&str, Value)]) {
        for (act, body) in bodies {
            self.act(&format!("{path}/{act}"), body.clone()).await;
        }
    }
}

/// The administrator of a fresh regulated server: the first key is registered with the token, and nothing else is.
async fn admin(server: &Server) -> Hand {
    let admin = Hand::new(server.admin(), "admin", 1);
    admin
        .actor
        .post("/v1/grants", json!({"subject_ref": "admin", "action_scope": "audit:read"}))
        .await
        .refused(401, "invalid-credential");
    admin.actor.post("/v1/actors/admin/keys", admin.key()).await.created();
    let second = Hand::new(server.admin(), "admin", 2);
    admin.actor.post("/v1/actors/admin/keys", second.key()).await.refused(401, "invalid-credential");
    admin
}

/// A person, or a service without a key.
async fn actor(server: &Server, admin: &Hand, name: &'static str, seed: u8, kind: &str, scopes: &[&str]) -> Hand {
    let mut body = json!({"actor_ref": name, "kind": kind});
    let hand = Hand::new(server.nobody(), name, seed);
    if kind == "human" {
        body["public_key"] = hand.key()["public_key"].clone();
    }
    let made = admin.act("/v1/actors", body).await;
    for scope in scopes {
        admin.act("/v1/grants", json!({"subject_ref": name, "action_scope": scope})).await;
    }
    Hand { actor: server.with_token(made["token"].as_str().expect("a token")), ..hand }
}

async fn records(admin: &Hand, instance_id: &str) -> Vec<Value> {
    let page = admin.actor.get(&format!("/v1/ledger/records?instance_id={instance_id}&limit=500")).await.ok();
    page["items"].as_array().expect("a list").clone()
}

/// The newest configuration that was recorded.
async fn configured(admin: &Hand) -> Value {
    let records = records(admin, REGISTRY).await;
    let newest = records
        .iter()
        .filter(|record| record["action_ref"] == "configuration_recorded")
        .max_by_key(|record| record["sequence"].as_u64());
    newest.expect("a configuration")["payload"].clone()
}

async fn verified(admin: &Hand) {
    let verified = admin.actor.post("/v1/ledger/verify-log", json!({})).await.ok();
    assert_eq!(verified["result"], "verified", "{verified}");
}

const SCOPES: &[&str] = &[
    "workflows:start",
    "workflows:open-gate",
    "workflows:fire",
    "workflows:read",
    "runs:start",
    "runs:control",
    "runs:read",
    "tasks:work",
    "definitions:publish",
    "audit:hold",
    "audit:read",
];

async fn every_act_of_a_person_is_signed(store: Option<String>) {
    let server = Server::with(Some("regulated = true\n".to_owned()), store, Pace::default()).await;
    let admin = admin(&server).await;
    let ines = actor(&server, &admin, "ines", 3, "human", SCOPES).await;
    let qp = actor(&server, &admin, "qp_director_santos", 4, "human", &[]).await;
    assert_eq!(
        (&configured(&admin).await["regulated"], &configured(&admin).await["signatures"]),
        (&json!(true), &json!("all"))
    );

    // The registry.
    let granted = admin.act("/v1/grants", json!({"subject_ref": "ines", "action_scope": "audit:seal"})).await;
    admin.act(&format!("/v1/grants/{}/revoke", granted["grant_id"].as_str().expect("an id")), json!({})).await;
    let issued = admin.act("/v1/actors/ines/tokens", json!({})).await;
    let token = sha256(&[issued["token"].as_str().expect("a token").as_bytes()]).to_string()[..16].to_owned();
    admin.act(&format!("/v1/actors/ines/tokens/{token}/revoke"), json!({})).await;
    let further = Hand::new(server.nobody(), "ines", 9);
    admin.act("/v1/actors/ines/keys", further.key()).await;
    let key_id = further.signer.public_key().key_id();
    admin.act(&format!("/v1/actors/ines/keys/{key_id}/revoke"), json!({"reason": "a test"})).await;
    ines.act_with("/v1/definitions", BATCH_RELEASE).await;
    ines.act_with("/v1/definitions", CARE).await;
    ines.acts("/v1/schedules/care", &[("pause", json!({"reason": "x"})), ("resume", json!({"reason": "x"}))]).await;

    // A process, from start to end.
    let body = json!({"definition": "batch-release", "subject_ref": "br-1"});
    let id = ines.act("/v1/processes", body).await["instance_id"].as_str().expect("an id").to_owned();
    let process = format!("/v1/processes/{id}");
    for action in ["begin-testing", "complete-tests"] {
        ines.act(&format!("{process}/transitions"), json!({"action": action})).await;
    }
    let offered = ines.actor.get(&format!("{process}/actions")).await.ok();
    let offered = offered.as_array().or(offered["items"].as_array()).expect("a list").clone();
    assert!(!offered.is_empty());
    for action in &offered {
        assert!(action["needs"].as_array().expect("a list").contains(&json!("signature")), "{action}");
    }
    ines.act(&format!("{process}/gates"), json!({"action": "release"})).await;
    qp.act(&format!("{process}/gates/release/decision"), json!({"decision": "approve", "reason": "reviewed"})).await;
    ines.act(&format!("{process}/transitions"), json!({"action": "release"})).await;
    let event_id = records(&admin, &id).await[0]["event_id"].as_str().expect("an id").to_owned();
    let held = ines.act("/v1/ledger/holds", json!({"record_ref": event_id, "reason": "a case"})).await;
    let hold_id = held["hold_id"].as_str().expect("an id").to_owned();
    ines.act(&format!("/v1/ledger/holds/{hold_id}/release"), json!({"reason": "closed"})).await;
    admin
        .actor
        .post(&format!("/v1/ledger/records/{event_id}/purge"), json!({}))
        .await
        .refused(401, "invalid-credential");

    // A run, with what a person does to its steps.
    let run_id =
        ines.act("/v1/runs", json!({"definition": "care"})).await["run_id"].as_str().expect("an id").to_owned();
    let run = format!("/v1/runs/{run_id}");
    let acts = [
        ("claim", json!({})),
        ("release", json!({"reason": "lunch"})),
        ("claim", json!({})),
        ("wait", json!({"waiting_facets": ["waiting_human"]})),
        ("unblock", json!({"evidence_ref": "note-1"})),
        ("block", json!({"block_reason": "missing_input"})),
        ("unblock", json!({"evidence_ref": "note-2"})),
        ("complete", json!({"output": {"seen": 1}})),
    ];
    ines.acts(&format!("{run}/steps/look"), &acts).await;
    let claim = json!({"worker_id": "w", "max": 1, "lease_ms": 60_000, "wait_ms": 20_000});
    let task = ines.act("/v1/queues/q/claim", claim).await["tasks"][0].clone();
    let (task_id, lease) = (task["task_id"].as_str().expect("an id"), task["lease_token"].clone());
    // A lease is prolonged without a record, and so without a signature.
    let beat = json!({"lease_token": lease, "lease_ms": 60_000});
    ines.actor.post(&format!("/v1/tasks/{task_id}/heartbeat"), beat).await.ok();
    ines.act(&format!("/v1/tasks/{task_id}/complete"), json!({"lease_token": lease, "output": 1})).await;
    let reason = || json!({"reason": "to see"});
    ines.acts(&run, &[("pause", reason()), ("resume", reason()), ("stop", reason()), ("resume", reason())]).await;
    ines.act("/v1/events", json!({"id": "e-1", "type": "sent", "run_id": run_id})).await;
    let other = ines.act("/v1/schedules/care/trigger", json!({})).await["run_id"].as_str().expect("an id").to_owned();
    ines.acts(&format!("/v1/runs/{other}"), &[("cancel", reason())]).await;
    admin.act("/v1/definitions/care/retire", json!({"reason": "the end"})).await;

    // Reads and previews need no signature, and taking evidence away is a read that is recorded.
    for path in [&*process, &run, "/v1/inbox", "/v1/whoami"] {
        ines.actor.get(path).await.ok();
    }
    assert_eq!(ines.actor.get(&format!("/v1/ledger/export?instance_id={id}")).await.status, 200);
    for (instance_id, least) in [(&*id, 9), (&*run_id, 14), (REGISTRY, 30)] {
        let records = records(&admin, instance_id).await;
        assert!(records.len() >= least, "{instance_id}: {}", records.len());
        let attested: Vec<&str> = records
            .iter()
            .filter(|record| record["assurance"] == "server_attested")
            .filter_map(|record| record["action_ref"].as_str())
            .collect();
        let expected: &[&str] = match instance_id {
            REGISTRY => &["key_registered"],
            _ if instance_id == id => &["evidence_exported"],
            _ => &[],
        };
        assert_eq!(attested, expected, "{instance_id}");
    }
    verified(&admin).await;
}

/// "Every act of a person: … reopen …": with the approval that it needs, and to void a runbook.
async fn what_an_approval_allows_is_signed_too(store: Option<String>) {
    let server = Server::with(Some("regulated = true\n".to_owned()), store, Pace::default()).await;
    let admin = admin(&server).await;
    let ines = actor(&server, &admin, "ines", 3, "human", SCOPES).await;
    let qp = actor(&server, &admin, "qp", 4, "human", &[]).await;
    for document in [LAB, CUT] {
        ines.act_with("/v1/definitions", document).await;
    }
    let started = async |definition: &str| {
        let run = ines.act("/v1/runs", json!({"definition": definition})).await;
        format!("/v1/runs/{}", run["run_id"].as_str().expect("an id"))
    };
    // Both open the gate and have it approved.
    let approved = async |run: &str, action: &str| {
        let gate = ines.act(&format!("{run}/gates"), json!({"action": action, "reason": "needed"})).await;
        let decide = format!("{run}/gates/{action}/decision");
        qp.act(&decide, json!({"decision": "approve", "reason": "agreed"})).await;
        gate["step_id"].clone()
    };

    let lab = started("lab").await;
    ines.acts(&format!("{lab}/steps/look"), &[("claim", json!({})), ("complete", json!({"output": 1}))]).await;
    let approval = approved(&lab, "reopen:look").await;
    let body = json!({"approval_id": approval, "correction_reason": "data_error", "reason": "the wrong line"});
    ines.act(&format!("{lab}/steps/look/reopen"), body).await;
    let view = ines.actor.get(&lab).await.ok();
    assert_eq!(view["steps"][0]["state_code"], "in_progress", "{view}");

    let cut = started("cut").await;
    let approval = approved(&cut, "void").await;
    ines.act(&format!("{cut}/void"), json!({"approval_id": approval, "reason": "the wrong database"})).await;
    assert_eq!(ines.actor.get(&cut).await.ok()["state"], "voided");

    for run in [lab, cut] {
        let records = records(&admin, run.trim_start_matches("/v1/runs/")).await;
        let signed =
            |action: &str| records.iter().any(|r| r["action_ref"] == action && r["assurance"] == "actor_signed");
        assert!(signed("gate_decided") && (signed("step_reopened") || signed("run_voided")), "{records:?}");
    }
    verified(&admin).await;
}

/// The attack: somebody has a token of the person in charge, and not their key.
async fn a_token_completes_no_step(store: Option<String>) {
    let server = Server::with(Some("regulated = true\n".to_owned()), store, Pace::default()).await;
    let admin = admin(&server).await;
    let ines = actor(&server, &admin, "ines", 3, "human", SCOPES).await;
    ines.act_with("/v1/definitions", CARE).await;
    let run_id =
        ines.act("/v1/runs", json!({"definition": "care"})).await["run_id"].as_str().expect("an id").to_owned();
    let step = format!("/v1/runs/{run_id}/steps/look");
    ines.act(&format!("{step}/claim"), json!({})).await;
    let before = records(&admin, &run_id).await.len();
    let complete = json!({"output": {"seen": "nothing"}});
    let refused = ines.actor.post(&format!("{step}/complete"), complete.clone()).await;
    refused.refused(401, "invalid-credential");
    assert!(refused.body["detail"].as_str().expect("a detail").contains("regulated"), "{}", refused.text);
    let keyed = ines.actor.post_keyed(&format!("{step}/complete"), "again", complete.clone()).await;
    keyed.refused(401, "invalid-credential");
    // What would come of it may still be asked.
    let preview = ines.actor.post(&format!("{step}/complete?preview=true"), complete.clone()).await.ok();
    assert_eq!(preview["ok"], true, "{preview}");
    // Nor does the signature of another one, or with a key that the registry does not know.
    let other = Hand::new(ines.actor.clone(), "ines", 77);
    other.sign(&format!("{step}/complete"), &complete.to_string()).await.refused(401, "invalid-credential");
    let view = ines.actor.get(&format!("/v1/runs/{run_id}")).await.ok();
    assert_eq!(view["steps"][0]["state_code"], "in_progress", "{view}");
    assert_eq!(records(&admin, &run_id).await.len(), before, "no record");
    ines.sign(&format!("{step}/complete"), &complete.to_string()).await.ok();
    verified(&admin).await;
}

async fn services_use_tokens_only_where_the_configuration_says_so(store: Option<String>) {
    let config = "[regulated]\nservices = \"token\"\n";
    let mut server = Server::with(Some(config.to_owned()), store, Pace::default()).await;
    let admin = admin(&server).await;
    let ines = actor(&server, &admin, "ines", 3, "human", SCOPES).await;
    let robot = actor(&server, &admin, "robot", 5, "service", &["tasks:work", "runs:start"]).await;
    assert_eq!(configured(&admin).await["signatures"], "people");
    let work = r#"{"kind": "workflow", "name": "work", "order": "linear", "queue": "q", "steps": [{"name": "a"}, {"name": "b"}]}"#;
    ines.act_with("/v1/definitions", work).await;
    let run_id = robot.actor.post("/v1/runs", json!({"definition": "work"})).await.created()["run_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let claim = json!({"worker_id": "w", "max": 1, "lease_ms": 60_000, "wait_ms": 20_000});
    ines.actor.post("/v1/queues/q/claim", claim.clone()).await.refused(401, "invalid-credential");
    let task = robot.actor.post("/v1/queues/q/claim", claim.clone()).await.ok()["tasks"][0].clone();
    let done = json!({"lease_token": task["lease_token"], "output": 1});
    let path = format!("/v1/tasks/{}/complete", task["task_id"].as_str().expect("an id"));
    // A person's token is no service's.
    ines.actor.post(&path, done.clone()).await.refused(401, "invalid-credential");
    robot.actor.post(&path, done).await.ok();
    verified(&admin).await;

    server.configure("regulated = true\n").await;
    let (admin, robot) =
        (Hand { actor: server.admin(), ..admin }, Hand { actor: server.with_token(&robot.actor.token()), ..robot });
    assert_eq!(configured(&admin).await["signatures"], "all");
    robot.actor.post("/v1/queues/q/claim", claim.clone()).await.refused(401, "invalid-credential");
    // It signs, once it has a key.
    admin.act("/v1/actors/robot/keys", robot.key()).await;
    let tasks = robot.sign("/v1/queues/q/claim", &claim.to_string()).await.ok();
    assert_eq!(tasks["tasks"][0]["step"], "b", "{tasks}");
    let records = records(&admin, &run_id).await;
    assert_eq!(records.last().expect("a record")["assurance"], "actor_signed");
    verified(&admin).await;
}
