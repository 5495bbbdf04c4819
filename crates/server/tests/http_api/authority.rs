//! The limits of what actors who manage others can do, over HTTP: the engine's own actors are out of reach, nobody takes on
//! scopes that they do not hold, and what was added to whom is visible to them.

use crate::support::{Answer, Server, options};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use countersign_ledger::sha256;
use countersign_ledger::statement::{Signer, Statement};
use countersign_server::serve;
use reqwest::Method;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;

fn public_key(seed: u8) -> String {
    Signer::from_seed(&[seed; 32]).public_key().to_base64()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_scope_reaches_the_actors_of_the_engine() {
    let server = Server::start().await;
    let admin = server.admin();
    for own in ["countersign", "countersign-log"] {
        let keys = admin.get(&format!("/v1/actors/{own}/keys")).await.ok();
        let key_id = keys["keys"][0]["key_id"].as_str().expect("a key").to_owned();
        let key = json!({"public_key": public_key(9)});
        admin.post(&format!("/v1/actors/{own}/keys"), key).await.refused(403, "permission-denied");
        let revoke = format!("/v1/actors/{own}/keys/{key_id}/revoke");
        admin.post(&revoke, json!({})).await.refused(403, "permission-denied");
        admin.post(&format!("/v1/actors/{own}/tokens"), json!({})).await.refused(403, "permission-denied");
        let revoke = format!("/v1/actors/{own}/tokens/0000000000000000/revoke");
        admin.post(&revoke, json!({})).await.refused(403, "permission-denied");
        let grant = json!({"subject_ref": own, "action_scope": "workflows:fire"});
        admin.post("/v1/grants", grant).await.refused_at(403, "permission-denied", "subject_ref");
        let made = json!({"actor_ref": own, "kind": "service"});
        admin.post("/v1/actors", made).await.refused(409, "conflict");
    }
    // The server goes on as it was.
    admin.start_loop("still here").await;
    admin.post("/v1/ledger/seal", json!({})).await;
    let verified = admin.post("/v1/ledger/verify-log", json!({})).await.ok();
    assert_eq!(verified["result"], "verified", "{verified}");
}

/// Whoever got hold of `application.key` signs for nobody over HTTP.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_never_acts_as_the_application_actor() {
    let server = Server::start().await;
    let seed = std::fs::read_to_string(server.directory.path().join("application.key")).expect("a key");
    let seed: [u8; 32] = BASE64_STANDARD.decode(seed.trim()).expect("base64").try_into().expect("32 bytes");
    let signer = Signer::from_seed(&seed);
    let (path, body) = ("/v1/actors", json!({"actor_ref": "mallory", "kind": "human"}).to_string());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time");
    let statement = Statement {
        v: 1,
        action: "register_actor".to_owned(),
        actor_ref: "countersign".to_owned(),
        key_id: signer.public_key().key_id(),
        request: Some(format!("POST {path}")),
        instance_id: None,
        step_id: None,
        body_digest: sha256(&[body.as_bytes()]).to_string(),
        meaning: None,
        expected_sequence: None,
        nonce: "nonce-of-the-engine-1".to_owned(),
        issued_at_us: i64::try_from(now.as_micros()).expect("a time"),
    }
    .to_bytes()
    .expect("JSON");
    let request = server
        .nobody()
        .request(Method::POST, path)
        .header("Countersign-Statement", BASE64_STANDARD.encode(&statement))
        .header("Countersign-Signature", BASE64_STANDARD.encode(signer.sign(&statement)))
        .header("Content-Type", "application/json")
        .body(body);
    Answer::of(request).await.refused_at(401, "invalid-credential", "actor_ref");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_adds_a_key_or_token_holds_every_scope_of_the_actor() {
    let server = Server::start().await;
    let hr = server.actor("hr", &["actors:manage"]).await;
    server.actor("releaser", &["workflows:fire:batch-release"]).await;
    server.actor("approver", &[]).await;
    for target in ["admin", "releaser"] {
        let refused = hr.post(&format!("/v1/actors/{target}/tokens"), json!({})).await;
        assert!(refused.text.contains("holds no active grant of"), "{}", refused.text);
        refused.refused_at(403, "permission-denied", "actor_ref");
        let key = json!({"public_key": public_key(3)});
        hr.post(&format!("/v1/actors/{target}/keys"), key).await.refused_at(403, "permission-denied", "actor_ref");
    }
    let told = hr.post("/v1/actors/releaser/tokens", json!({})).await;
    assert!(
        told.body["detail"].as_str().expect("a detail").contains("`workflows:fire:batch-release`"),
        "{}",
        told.text
    );
    // A lost token of somebody who holds nothing, or nothing more, is replaced.
    hr.post("/v1/actors/approver/tokens", json!({})).await.created();
    let grant = json!({"subject_ref": "hr", "action_scope": "workflows:fire"});
    server.admin().post("/v1/grants", grant).await.created();
    hr.post("/v1/actors/releaser/tokens", json!({})).await.created();
    // A name that was given scopes before it was registered.
    let grant = json!({"subject_ref": "heir", "action_scope": "audit:purge"});
    server.admin().post("/v1/grants", grant).await.created();
    let heir = json!({"actor_ref": "heir", "kind": "human"});
    hr.post("/v1/actors", heir).await.refused_at(403, "permission-denied", "actor_ref");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_added_is_visible_to_the_actor() {
    let server = Server::start().await;
    let hr = server.actor("hr", &["actors:manage"]).await;
    let qp = server.actor("qp", &[]).await;
    let me = qp.get("/v1/whoami").await.ok();
    assert_eq!((&me["actor_ref"], &me["added_by_others"], &me["scopes"]), (&json!("qp"), &json!(0), &json!([])));
    let issued = hr.post("/v1/actors/qp/tokens", json!({})).await.created();
    hr.post("/v1/actors/qp/keys", json!({"public_key": public_key(4)})).await.created();
    assert_eq!(qp.get("/v1/whoami").await.ok()["added_by_others"], 2);
    let keys = qp.get("/v1/actors/qp/keys").await.ok();
    assert_eq!(keys["keys"][0]["added_by"], "hr");
    let tokens = keys["tokens"].as_array().expect("a list");
    let by: Vec<&Value> = tokens.iter().map(|token| &token["added_by"]).collect();
    assert_eq!(by, ["admin", "hr"]);
    assert!(tokens.iter().all(|token| token["added_at"].as_str().is_some_and(|at| at.ends_with('Z'))), "{keys}");
    let path = format!("/v1/actors/qp/tokens/{}/revoke", issued["credential_id"].as_str().expect("an id"));
    hr.post(&path, json!({})).await.ok();
    assert_eq!(qp.get("/v1/whoami").await.ok()["added_by_others"], 1);
    server.nobody().get("/v1/whoami").await.refused(401, "invalid-credential");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_pass_for_others_are_refused() {
    let server = Server::start().await;
    let admin = server.admin();
    for (name, told) in
        [("qp ", "blank"), ("\u{430}dmin", "`admin`"), ("\u{ff41}dmin", "U+FF41"), ("q\u{200b}p", "U+200B")]
    {
        let refused = admin.post("/v1/actors", json!({"actor_ref": name, "kind": "human"})).await;
        assert!(refused.body["detail"].as_str().expect("a detail").contains(told), "{name:?}: {}", refused.text);
        refused.refused_at(400, "invalid-request", "actor_ref");
    }
}

const TWO: &str = "kind: workflow\nname: NAME\norder: linear\nqueue: q\ncorrelationKey: \"${input.case}\"\nsteps:\n  - {name: FIRST, run: wait, event: word, timeout: 2h}\n  - {name: THEN, run: wait, event: other, timeout: 2h}\n";

#[tokio::test(flavor = "multi_thread")]
async fn what_may_not_be_read_is_as_if_it_were_not_there() {
    let server = Server::start().await;
    let admin = server.admin();
    for name in ["mine", "theirs"] {
        admin.post_bytes("/v1/definitions", TWO.replace("NAME", name)).await.created();
    }
    let run = |name: &str| json!({"definition": name, "input": {"case": "shared"}});
    let theirs = admin.post("/v1/runs", run("theirs")).await.created()["run_id"].clone();
    let scopes = ["runs:start:mine", "runs:read:mine", "runs:control:mine"];
    let mallory = server.actor("mallory", &scopes).await;

    // `corrects`: a run of others, and one that does not exist, are answered alike.
    let correcting = |run_id: &Value| json!({"definition": "mine", "input": {"case": "x"}, "corrects": run_id});
    let foreign = mallory.post("/v1/runs", correcting(&theirs)).await;
    let unknown = mallory.post("/v1/runs", correcting(&json!("01890000-0000-7000-8000-000000000000"))).await;
    assert_eq!((foreign.status, &foreign.body), (unknown.status, &unknown.body));
    foreign.refused_at(404, "not-known", "corrects");
    let mine = mallory.post("/v1/runs", json!({"definition": "mine", "input": {"case": "own"}})).await.created();
    mallory.post("/v1/runs", correcting(&mine["run_id"])).await.created();

    // A correlation key of others' runs, and one that nobody has.
    let event = |id: &str, key: &str| json!({"id": id, "type": "word", "correlation_key": key});
    for id in ["e1", "e1", "e2"] {
        let foreign = mallory.post("/v1/events", event(id, "shared")).await.accepted();
        let unknown = mallory.post("/v1/events", event(id, "nobodys")).await.accepted();
        assert_eq!(foreign, unknown);
    }
    // Of runs that share the key, those are told that may be; a duplicate is one of theirs.
    let shared = mallory.post("/v1/runs", run("mine")).await.created()["run_id"].clone();
    for run_id in [&shared, &theirs] {
        let path = format!("/v1/runs/{}", run_id.as_str().expect("an id"));
        while !admin.get(&path).await.ok().to_string().contains("\"waiting\"") {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
    let woken = mallory.post("/v1/events", event("e3", "shared")).await.accepted();
    assert_eq!(woken["woken"].as_array().map(Vec::len), Some(1), "{woken}");
    assert_eq!(mallory.post("/v1/events", event("e3", "shared")).await.accepted()["duplicate"], true);
    let admins = admin.post("/v1/events", event("e3", "shared")).await.accepted();
    assert_eq!(admins["woken"][0]["run_id"], theirs, "theirs had not heard of it");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_may_ask_for_a_token() {
    let server = Server::with_config(Some("[metrics]\ntoken = \"scrape-me\"\n")).await;
    server.nobody().get("/metrics").await.refused(401, "invalid-credential");
    server.admin().get("/metrics").await.refused(401, "invalid-credential");
    let scraped = server.with_token("scrape-me").get("/metrics").await;
    assert_eq!(scraped.status, 200);
    assert_eq!(server.nobody().get("/healthz").await.status, 200);
    drop(server);
    let open = Server::start().await;
    assert_eq!(open.nobody().get("/metrics").await.status, 200);
    let file = open.directory.path().join("metrics.token");
    std::fs::write(&file, "from-a-file\n").expect("written");
    let config = format!("[metrics]\ntoken = {{ file = \"{}\" }}\n", file.display());
    let mut open = open;
    open.configure(&config).await;
    assert_eq!(open.with_token("from-a-file").get("/metrics").await.status, 200);
    open.nobody().get("/metrics").await.refused(401, "invalid-credential");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_has_one_host() {
    let server = Server::start().await;
    for (request, status) in [
        ("GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "200"),
        ("GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n", "400"),
        ("GET /healthz HTTP/1.1\r\nHost: a\r\nHost: a\r\nConnection: close\r\n\r\n", "400"),
        ("GET /healthz HTTP/1.0\r\n\r\n", "200"),
    ] {
        let answer = server.raw(request.into(), false).await;
        assert!(answer.split(' ').nth(1) == Some(status), "{request:?}: {answer}");
    }
}

/// The keys of a store are those that it was set up with: others never appear by themselves.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_or_foreign_application_key_stops_the_server() {
    let mut server = Server::start().await;
    let file = server.directory.path().join("application.key");
    let kept = std::fs::read_to_string(&file).expect("a key");
    server.stop().await;
    std::fs::remove_file(&file).expect("removed");
    let told = refusal(&server).await;
    assert!(told.contains("application.key is missing") && told.contains("keys rotate application --lost"), "{told}");
    assert!(!file.exists(), "none is made");

    std::fs::write(&file, format!("{}\n", BASE64_STANDARD.encode([5; 32]))).expect("written");
    let foreign = Signer::from_seed(&[5; 32]).public_key().key_id();
    let told = refusal(&server).await;
    assert!(told.contains(&foreign) && told.contains("Restore the file"), "{told}");

    std::fs::write(&file, kept).expect("written");
    let server = server.resumed().await;
    let keys = server.admin().get("/v1/actors/countersign/keys").await.ok();
    assert_eq!(keys["keys"].as_array().map(Vec::len), Some(1), "{keys}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_regulated_server_does_not_start_with_secrets_that_others_can_read() {
    let mut server = Server::with_config(Some("regulated = true\n")).await;
    server.stop().await;
    for name in ["application.key", "log.key", "admin.token"] {
        let file = server.directory.path().join(name);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("changed");
        let config = server.directory.path().join("countersign.toml");
        let mut options = options(server.directory.path());
        options.config = Some(config);
        let told = format!("{:#}", serve::start(options).await.err().expect("it does not start"));
        assert!(told.contains(&format!("chmod 600 {}", file.display())), "{told}");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("changed");
    }
    server.resumed().await.admin().get("/v1/whoami").await.ok();
}

async fn refusal(server: &Server) -> String {
    let started = serve::start(options(server.directory.path())).await;
    format!("{:#}", started.err().expect("it does not start"))
}

/// Each operation has a name of its own and says which scope it asks for; no scope is left out.
#[tokio::test(flavor = "multi_thread")]
async fn every_operation_has_a_name_and_says_its_scopes() {
    let server = Server::start().await;
    let document = server.nobody().get("/openapi.json").await.ok();
    let (mut names, mut scopes) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            let name = operation["operationId"].as_str().unwrap_or_else(|| panic!("{method} {path} has no name"));
            assert!(names.insert(name.to_owned()), "{name} is the name of two operations");
            let asked = operation["x-countersign-scopes"].as_array().expect("scopes");
            let said = format!("{} {}", operation["summary"], operation["description"]);
            let open = operation["security"] == json!([{}]);
            assert!(open || !asked.is_empty() || said.contains("Needs no scope"), "{method} {path}: {said}");
            scopes.extend(asked.iter().map(|scope| scope.as_str().expect("text").to_owned()));
        }
    }
    let known: std::collections::BTreeSet<String> =
        countersign_kernel::registry::scopes::ALL.iter().map(|scope| (*scope).to_owned()).collect();
    // Kept for what governance will read; no operation asks for it yet.
    scopes.insert("governance:read".to_owned());
    assert_eq!(scopes, known, "every scope is asked for somewhere, and none that is not known");
}
