//! Passkeys: registering one, signing in with one, and deciding with one. The authenticator is a small one in software.

use crate::sessions::{Browser, ORIGIN, from_page};
use crate::support::{Answer, BATCH_RELEASE, Server};
use crate::webhooks::{database, on_both};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD as URL};
use countersign_ledger::sha256;
use countersign_server::outbox::Pace;
use reqwest::{Method, RequestBuilder};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};

const CONFIG: &str = "[console]\norigin = \"http://localhost:7433\"\n";
const RP_ID: &str = "localhost";
const VERIFIED: u8 = 5;
const SPKI: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE";

on_both! {
    a_person_signs_in_and_decides_with_a_passkey,
    assertions_for_something_else_are_refused,
    a_token_adds_the_first_passkey_and_no_other,
    a_challenge_is_answered_once_and_in_time,
}

/// What an authenticator is told and says.
#[derive(Clone)]
struct Ceremony {
    kind: &'static str,
    origin: &'static str,
    rp_id: &'static str,
    flags: u8,
    counter: u32,
}

impl Ceremony {
    fn get(counter: u32) -> Ceremony {
        Ceremony { kind: "webauthn.get", origin: ORIGIN, rp_id: RP_ID, flags: VERIFIED, counter }
    }
}

struct Authenticator {
    pair: EcdsaKeyPair,
    id: String,
}

impl Authenticator {
    fn new(name: &str) -> Authenticator {
        let rng = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &rng).expect("a key");
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, document.as_ref(), &rng).expect("a key");
        Authenticator { pair, id: URL.encode(format!("credential of {name}")) }
    }

    fn public(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    fn key_id(&self) -> String {
        sha256(&[self.public()]).to_string()[..16].to_owned()
    }

    fn client_data(ceremony: &Ceremony, challenge: &str) -> Vec<u8> {
        let data =
            json!({"type": ceremony.kind, "challenge": challenge, "origin": ceremony.origin, "crossOrigin": false});
        data.to_string().into_bytes()
    }

    fn data(ceremony: &Ceremony) -> Vec<u8> {
        [&sha256(&[ceremony.rp_id.as_bytes()]).0[..], &[ceremony.flags], &ceremony.counter.to_be_bytes()].concat()
    }

    fn assertion(&self, ceremony: &Ceremony, challenge: &str) -> Value {
        let (client, data) = (Self::client_data(ceremony, challenge), Self::data(ceremony));
        let message = [&data[..], &sha256(&[&client]).0].concat();
        let signature = self.pair.sign(&SystemRandom::new(), &message).expect("a signature");
        json!({"id": self.id, "rawId": self.id, "type": "public-key", "clientExtensionResults": {}, "response": {
            "authenticatorData": URL.encode(data), "clientDataJSON": URL.encode(client),
            "signature": URL.encode(signature.as_ref()), "userHandle": null,
        }})
    }

    fn credential(&self, ceremony: &Ceremony, challenge: &str) -> Value {
        let id = URL.decode(&self.id).expect("base64url");
        let length = u16::try_from(id.len()).expect("short").to_be_bytes();
        let data = [&Self::data(ceremony)[..], &[0; 16], &length, &id].concat();
        // The constant ends with the 0x04 of the point.
        let spki = [&BASE64_STANDARD.decode(SPKI).expect("base64")[..], &self.public()[1..]].concat();
        json!({"id": self.id, "rawId": self.id, "type": "public-key", "response": {
            "clientDataJSON": URL.encode(Self::client_data(ceremony, challenge)), "authenticatorData": URL.encode(data),
            "publicKey": URL.encode(spki), "publicKeyAlgorithm": -7, "transports": ["internal"], "attestationObject": "oA",
        }})
    }

    /// The headers of a request that is signed with it.
    fn sign(&self, request: RequestBuilder, said: &Value, ceremony: &Ceremony) -> RequestBuilder {
        let statement = said.to_string();
        let challenge = URL.encode(sha256(&[statement.as_bytes()]).0);
        let assertion = self.assertion(ceremony, &challenge).to_string();
        let request = request.header("Countersign-Statement", BASE64_STANDARD.encode(&statement));
        request.header("Countersign-Assertion", URL.encode(assertion))
    }
}

/// The statement of a request by this key, over this body.
fn statement(
    actor_ref: &str,
    key_id: &str,
    action: &str,
    path: &str,
    instance_id: Option<&str>,
    body: &str,
    nonce: &str,
) -> Value {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time").as_micros();
    json!({
        "v": 1, "action": action, "actor_ref": actor_ref, "key_id": key_id, "request": format!("POST {path}"),
        "instance_id": instance_id, "step_id": null, "body_digest": sha256(&[body.as_bytes()]).to_string(),
        "meaning": "I release this batch", "expected_sequence": null, "nonce": format!("nonce-of-sixteen-{nonce}"),
        "issued_at_us": u64::try_from(now).expect("a time"),
    })
}

async fn server(store: Option<String>) -> Server {
    Server::with(Some(CONFIG.to_owned()), store, Pace::default()).await
}

async fn person(server: &Server, name: &str) -> (String, Browser) {
    server.actor(name, &[]).await;
    let issued = server.admin().post(&format!("/v1/actors/{name}/tokens"), json!({})).await.created();
    let token = issued["token"].as_str().expect("a token").to_owned();
    let browser = Browser::sign_in(server, &token).await;
    (token, browser)
}

fn create() -> Ceremony {
    Ceremony { kind: "webauthn.create", flags: VERIFIED | 0x40, ..Ceremony::get(0) }
}

async fn registration(browser: &Browser, authenticator: &Authenticator, ceremony: &Ceremony) -> Value {
    let options = browser.post("/v1/me/passkeys/options", json!({})).await.ok();
    let challenge = options["public_key"]["challenge"].as_str().expect("a challenge");
    json!({"label": "blue key", "credential": authenticator.credential(ceremony, challenge)})
}

async fn register(browser: &Browser, authenticator: &Authenticator) -> Answer {
    browser.post("/v1/me/passkeys", registration(browser, authenticator, &create()).await).await
}

/// A batch whose release waits for `qp_director_santos`.
async fn waiting(server: &Server) -> String {
    let admin = server.admin();
    let _ = admin.post_bytes("/v1/definitions", BATCH_RELEASE).await;
    let body = json!({"definition": "batch-release", "subject_ref": "br-1"});
    let id = admin.post("/v1/processes", body).await.created()["instance_id"].as_str().expect("an id").to_owned();
    admin.fire(&id, "begin-testing").await.ok();
    admin.fire(&id, "complete-tests").await.ok();
    admin.open_gate(&id, "release").await.created();
    id
}

const QP: &str = "qp_director_santos";
const DECISION: &str = r#"{"decision":"approve","reason":"reviewed"}"#;

/// The decision, signed with this passkey.
fn decide(
    browser: &Browser,
    authenticator: &Authenticator,
    id: &str,
    ceremony: &Ceremony,
    nonce: &str,
) -> RequestBuilder {
    let path = format!("/v1/processes/{id}/gates/release/decision");
    let said = statement(QP, &authenticator.key_id(), "decide_gate", &path, Some(id), DECISION, nonce);
    authenticator.sign(browser.request(Method::POST, &path), &said, ceremony).body(DECISION)
}

async fn sign_in(server: &Server, authenticator: &Authenticator, ceremony: &Ceremony) -> Answer {
    let nobody = server.nobody();
    let options = Answer::of(from_page(nobody.request(Method::POST, "/v1/session/options"))).await.ok();
    assert_eq!(options["public_key"]["rpId"], RP_ID);
    let challenge = options["public_key"]["challenge"].as_str().expect("a challenge");
    let body = json!({"assertion": authenticator.assertion(ceremony, challenge)});
    Answer::of(from_page(nobody.request(Method::POST, "/v1/session")).json(&body)).await
}

async fn a_person_signs_in_and_decides_with_a_passkey(store: Option<String>) {
    let server = server(store.clone()).await;
    let (_, browser) = person(&server, QP).await;
    let authenticator = Authenticator::new(QP);
    assert_eq!(register(&browser, &authenticator).await.created()["key_id"], authenticator.key_id());
    let me = browser.get("/v1/me").await.ok();
    assert_eq!(
        (&me["passkeys"][0]["key_id"], &me["passkeys"][0]["label"]),
        (&json!(authenticator.key_id()), &json!("blue key"))
    );
    let other = match &store {
        Some(_) => Some(server.beside().await),
        None => None,
    };
    let node = other.as_ref().unwrap_or(&server);
    let session = Browser::signed_in(node.nobody(), sign_in(node, &authenticator, &Ceremony::get(1)).await);
    let me = session.get("/v1/me").await.ok();
    assert_eq!(me["actor_ref"], QP);

    let id = waiting(&server).await;
    let decided = Answer::of(decide(&session, &authenticator, &id, &Ceremony::get(2), "1")).await.ok();
    assert_eq!(decided["outcome"], "approved", "{decided}");
    let admin = server.admin();
    let records = admin.get(&format!("/v1/ledger/records?instance_id={id}&action_ref=gate_decided")).await.ok();
    let record = &records["items"][0];
    assert_eq!((record["actor_ref"].as_str(), record["assurance"].as_str()), (Some(QP), Some("passkey_signed")));
    assert_eq!(record["attestation"]["key_id"], authenticator.key_id());
    admin.fire(&id, "release").await.ok();
    let verified = admin.post("/v1/ledger/verify-log", json!({})).await.ok();
    assert_eq!(verified["result"], "verified", "{verified}");

    // Whoever is in a session that a passkey began acts under that passkey.
    let second = server.actor("starter", &["workflows:start"]).await;
    drop(second);
    admin.post("/v1/grants", json!({"subject_ref": QP, "action_scope": "workflows:start"})).await.created();
    let body = json!({"definition": "batch-release", "subject_ref": "br-2"});
    let started =
        session.post("/v1/processes", body).await.created()["instance_id"].as_str().expect("an id").to_owned();
    let records = admin.get(&format!("/v1/ledger/records?instance_id={started}")).await.ok();
    assert_eq!(records["items"][0]["attestation"]["credential_id"], authenticator.key_id());
    assert_eq!(admin.post("/v1/ledger/verify-log", json!({})).await.ok()["result"], "verified");

    // With the passkey ends what it began.
    let revoke = format!("/v1/actors/{QP}/keys/{}/revoke", authenticator.key_id());
    admin.post(&revoke, json!({"reason": "lost"})).await.ok();
    session.get("/v1/me").await.refused(401, "invalid-credential");
    sign_in(&server, &authenticator, &Ceremony::get(9)).await.refused(401, "invalid-credential");
    browser.get("/v1/me").await.ok();
    assert_eq!(admin.post("/v1/ledger/verify-log", json!({})).await.ok()["result"], "verified");
}

async fn assertions_for_something_else_are_refused(store: Option<String>) {
    let server = server(store).await;
    let (_, browser) = person(&server, QP).await;
    let (_, other) = person(&server, "somebody").await;
    let (authenticator, foreign) = (Authenticator::new(QP), Authenticator::new("somebody"));
    register(&browser, &authenticator).await.created();
    register(&other, &foreign).await.created();
    let id = waiting(&server).await;
    let good = Ceremony::get(10);
    for (n, wrong) in [
        Ceremony { origin: "https://evil.example", ..good.clone() },
        Ceremony { rp_id: "evil.example", ..good.clone() },
        Ceremony { flags: 1, ..good.clone() },
        Ceremony { flags: 4, ..good.clone() },
        Ceremony { kind: "webauthn.create", ..good.clone() },
    ]
    .iter()
    .enumerate()
    {
        let answer = Answer::of(decide(&browser, &authenticator, &id, wrong, &format!("wrong-{n}"))).await;
        answer.refused_at(401, "invalid-credential", "Countersign-Assertion");
        sign_in(&server, &authenticator, wrong).await.refused(401, "invalid-credential");
    }
    let path = format!("/v1/processes/{id}/gates/release/decision");
    // Somebody else's passkey, under either name.
    let said = statement(QP, &foreign.key_id(), "decide_gate", &path, Some(&id), DECISION, "foreign-1");
    let request = foreign.sign(browser.request(Method::POST, &path), &said, &good).body(DECISION);
    Answer::of(request).await.refused_at(401, "invalid-credential", "key_id");
    let said = statement(QP, &authenticator.key_id(), "decide_gate", &path, Some(&id), DECISION, "foreign-2");
    let request = foreign.sign(browser.request(Method::POST, &path), &said, &good).body(DECISION);
    Answer::of(request).await.refused_at(401, "invalid-credential", "Countersign-Assertion");
    let said = statement("somebody", &foreign.key_id(), "decide_gate", &path, Some(&id), DECISION, "foreign-3");
    let request = foreign.sign(browser.request(Method::POST, &path), &said, &good).body(DECISION);
    Answer::of(request).await.refused_at(401, "invalid-credential", "actor_ref");
    // A challenge for signing in signs no command, and another body is another statement.
    let signed =
        decide(&browser, &authenticator, &id, &good, "body").body(r#"{"decision":"reject","reason":"reviewed"}"#);
    Answer::of(signed).await.refused_at(401, "invalid-credential", "body_digest");
    let both =
        decide(&browser, &authenticator, &id, &Ceremony::get(11), "both").header("Countersign-Signature", "AAAA");
    Answer::of(both).await.refused(401, "invalid-credential");
    let plain = browser.request(Method::POST, &path).body(DECISION);
    let said = statement(QP, &authenticator.key_id(), "decide_gate", &path, Some(&id), DECISION, "plain");
    let plain = plain.header("Countersign-Statement", BASE64_STANDARD.encode(said.to_string()));
    let plain = plain.header("Countersign-Signature", BASE64_STANDARD.encode([7; 64]));
    Answer::of(plain).await.refused_at(401, "invalid-credential", "Countersign-Signature");

    // The counter goes up; the same request may come again, and another with the same counter may not.
    let repeated = decide(&browser, &authenticator, &id, &Ceremony::get(20), "good");
    let again = repeated.try_clone().expect("a request");
    let first = Answer::of(repeated).await.ok();
    assert_eq!(Answer::of(again).await.ok(), first);
    for counter in [20, 19, 0] {
        let back = decide(&browser, &authenticator, &id, &Ceremony::get(counter), &format!("back-{counter}"));
        Answer::of(back).await.refused(401, "invalid-credential");
        sign_in(&server, &authenticator, &Ceremony::get(counter)).await.refused(401, "invalid-credential");
    }
    let admin = server.admin();
    let records = admin.get(&format!("/v1/ledger/records?instance_id={id}&action_ref=gate_decided")).await.ok();
    assert_eq!(records["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(admin.post("/v1/ledger/verify-log", json!({})).await.ok()["result"], "verified");
}

async fn a_token_adds_the_first_passkey_and_no_other(store: Option<String>) {
    let server = server(store).await;
    let (_, browser) = person(&server, "ana").await;
    let (first, second) = (Authenticator::new("first"), Authenticator::new("second"));
    let registered = async |ceremony: Ceremony| {
        browser.post("/v1/me/passkeys", registration(&browser, &first, &ceremony).await).await
    };
    for wrong in [
        Ceremony { origin: "https://evil.example", ..create() },
        Ceremony { rp_id: "evil.example", ..create() },
        Ceremony { flags: 0x41, ..create() },
        Ceremony { flags: 5, ..create() },
        Ceremony { kind: "webauthn.get", ..create() },
    ] {
        registered(wrong).await.refused(400, "invalid-request");
    }
    register(&browser, &first).await.created();
    register(&browser, &first).await.refused(403, "permission-denied");
    register(&browser, &second).await.refused(403, "permission-denied");
    // With the first one's signature a second one is added.
    let body = registration(&browser, &second, &create()).await.to_string();
    let said = statement("ana", &first.key_id(), "register_key", "/v1/me/passkeys", None, &body, "second");
    let request = first.sign(browser.request(Method::POST, "/v1/me/passkeys"), &said, &Ceremony::get(1));
    Answer::of(request.header("Content-Type", "application/json").body(body)).await.created();
    let me = browser.get("/v1/me").await.ok();
    assert_eq!(me["passkeys"].as_array().map(Vec::len), Some(2), "{me}");
    // A credential is one actor's for ever, and a challenge is for the actor who asked for it.
    let (_, other) = person(&server, "ben").await;
    register(&other, &second).await.refused(409, "conflict");
    let theirs = registration(&browser, &Authenticator::new("third"), &create()).await;
    other.post("/v1/me/passkeys", theirs).await.refused(401, "invalid-credential");
    let admin = server.admin();
    let records = admin.get("/v1/ledger/records?action_ref=key_registered&actor_ref=ana").await.ok();
    let assurances: Vec<&str> =
        records["items"].as_array().expect("a list").iter().filter_map(|record| record["assurance"].as_str()).collect();
    assert_eq!(assurances, ["server_attested", "passkey_signed"]);
    let passkey = &records["items"][0]["payload"]["passkey"];
    let expected =
        json!({"algorithm": "ES256", "credential_id": first.id, "rp_id": RP_ID, "origin": ORIGIN, "label": "blue key"});
    assert_eq!(*passkey, expected);
    assert_eq!(admin.post("/v1/ledger/verify-log", json!({})).await.ok()["result"], "verified");
}

async fn a_challenge_is_answered_once_and_in_time(store: Option<String>) {
    let server = server(store).await;
    let (_, browser) = person(&server, "ana").await;
    let authenticator = Authenticator::new("ana");
    register(&browser, &authenticator).await.created();
    let nobody = server.nobody();
    let fresh = async || {
        let options = Answer::of(from_page(nobody.request(Method::POST, "/v1/session/options"))).await.ok();
        options["public_key"]["challenge"].as_str().expect("a challenge").to_owned()
    };
    let answer = async |challenge: &str| {
        let body = json!({"assertion": authenticator.assertion(&Ceremony::get(0), challenge)});
        Answer::of(from_page(nobody.request(Method::POST, "/v1/session")).json(&body)).await
    };
    let challenge = fresh().await;
    answer(&challenge).await.ok();
    answer(&challenge).await.refused(401, "invalid-credential");
    let late = fresh().await;
    server.pass_us(6 * 60_000_000);
    answer(&late).await.refused(401, "invalid-credential");
    let options = Browser::sign_in(&server, &person(&server, "ben").await.0)
        .await
        .post("/v1/me/passkeys/options", json!({}))
        .await
        .ok();
    answer(options["public_key"]["challenge"].as_str().expect("a challenge")).await.refused(401, "invalid-credential");
    answer(&URL.encode([7; 56])).await.refused(401, "invalid-credential");
    answer("").await.refused(401, "invalid-credential");
    answer(&fresh().await).await.ok();
    let neither = from_page(nobody.request(Method::POST, "/v1/session")).json(&json!({}));
    Answer::of(neither).await.refused(400, "invalid-request");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_origin_there_are_no_passkeys() {
    let server = Server::start().await;
    server.admin().post("/v1/me/passkeys/options", json!({})).await.refused(400, "invalid-request");
    server.nobody().post("/v1/session/options", json!({})).await.refused(400, "invalid-request");
}
