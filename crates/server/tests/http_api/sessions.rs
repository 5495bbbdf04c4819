//! Sessions of browsers: who a cookie stands for, when it counts, and when it is over.

use crate::stream::Follower;
use crate::support::{Actor, Answer, Server};
use crate::webhooks::{database, on_both};
use countersign_server::outbox::Pace;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

pub const ORIGIN: &str = "http://localhost:7433";
const CONFIG: &str = "[console]\norigin = \"http://localhost:7433\"\nidle = \"15m\"\nabsolute = \"12h\"\n";
const CROSS_SITE: &[&[(&str, &str)]] = &[
    &[],
    &[("Origin", "https://evil.example")],
    &[("Origin", "null")],
    &[("Origin", "http://localhost:7434")],
    &[("Sec-Fetch-Site", "cross-site"), ("Origin", "https://evil.example")],
    &[("Sec-Fetch-Site", "same-site")],
    &[("Sec-Fetch-Site", "none")],
];

on_both! {
    a_browser_signs_in_and_out,
    a_cookie_from_another_page_reads_and_changes_nothing,
    an_idle_session_ends_and_a_used_one_lasts_until_its_absolute_end,
    a_session_ends_with_the_token_that_began_it,
    a_session_is_begun_anew_with_each_sign_in,
    what_is_done_in_a_session_is_recorded_under_its_token,
    sessions_are_listed_and_ended,
    a_stream_ends_with_its_session,
    an_actor_has_only_so_many_sessions,
    names_are_told_to_every_actor_and_existence_to_none,
}

pub async fn server(store: Option<String>) -> Server {
    Server::with(Some(CONFIG.to_owned()), store, Pace::default()).await
}

/// A browser that shows a page of this server.
#[derive(Clone)]
pub struct Browser {
    pub actor: Actor,
    pub cookie: String,
    pub set_cookie: String,
}

impl Browser {
    pub async fn sign_in(server: &Server, token: &str) -> Browser {
        let nobody = server.nobody();
        let answer =
            Answer::of(from_page(nobody.request(Method::POST, "/v1/session")).json(&json!({"token": token}))).await;
        Browser::signed_in(nobody, answer)
    }

    #[track_caller]
    pub fn signed_in(actor: Actor, answer: Answer) -> Browser {
        assert_eq!(answer.status, 200, "{}", answer.text);
        let set_cookie = answer.headers["set-cookie"].to_str().expect("text").to_owned();
        let cookie = set_cookie.split(';').next().expect("a cookie").to_owned();
        Browser { actor, cookie, set_cookie }
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        from_page(self.foreign(method, path))
    }

    /// With the cookie, from nowhere.
    pub fn foreign(&self, method: Method, path: &str) -> RequestBuilder {
        self.actor.request(method, path).header("Cookie", &self.cookie)
    }

    pub async fn get(&self, path: &str) -> Answer {
        Answer::of(self.request(Method::GET, path)).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        Answer::of(self.request(Method::POST, path).json(&body)).await
    }

    fn at(&self, server: &Server) -> Browser {
        Browser { actor: server.nobody(), ..self.clone() }
    }
}

pub fn from_page(request: RequestBuilder) -> RequestBuilder {
    request.header("Origin", ORIGIN)
}

fn token(server: &Server) -> String {
    let text = std::fs::read_to_string(server.directory.path().join("admin.token")).expect("a token");
    text.trim().to_owned()
}

async fn a_browser_signs_in_and_out(store: Option<String>) {
    let server = server(store.clone()).await;
    let browser = Browser::sign_in(&server, &token(&server)).await;
    for part in ["Path=/", "HttpOnly", "SameSite=Strict"] {
        assert!(browser.set_cookie.contains(part), "{}", browser.set_cookie);
    }
    assert!(browser.set_cookie.starts_with("countersign_session="));
    assert!(!browser.set_cookie.contains("Secure"), "plain HTTP on loopback");
    let me = browser.get("/v1/me").await.ok();
    assert_eq!((me["actor_ref"].as_str(), me["kind"].as_str()), (Some("admin"), Some("human")));
    assert_eq!(me["display_name"], "Administrator");
    assert!(me["scopes"].as_array().is_some_and(|scopes| scopes.len() > 10));
    assert_eq!(me["passkeys"], json!([]));
    assert!(me["session"]["expires_at"].is_string());
    assert_eq!(server.admin().get("/v1/me").await.ok()["session"], Value::Null);
    let same_origin = browser.foreign(Method::GET, "/v1/me").header("Sec-Fetch-Site", "same-origin");
    Answer::of(same_origin).await.ok();

    // Another node of the same database knows the session, and that it was ended.
    let other = match &store {
        Some(_) => Some(server.beside().await),
        None => None,
    };
    if let Some(other) = &other {
        assert_eq!(browser.at(other).get("/v1/me").await.ok()["actor_ref"], "admin");
    }
    let out = Answer::of(browser.request(Method::DELETE, "/v1/session")).await;
    assert_eq!(out.status, 204, "{}", out.text);
    let cleared = out.headers["set-cookie"].to_str().expect("text");
    assert!(cleared.starts_with("countersign_session=;") && cleared.contains("Max-Age=0"), "{cleared}");
    browser.get("/v1/me").await.refused(401, "invalid-credential");
    Answer::of(browser.request(Method::DELETE, "/v1/session")).await.refused(401, "invalid-credential");
    if let Some(other) = &other {
        browser.at(other).get("/v1/me").await.refused(401, "invalid-credential");
    }
    Answer::of(server.admin().request(Method::DELETE, "/v1/session")).await.refused(404, "not-known");
    for body in [json!({"token": "cs_nonsense"}), json!({"token": ""})] {
        server.nobody().post("/v1/session", body).await.refused(401, "invalid-credential");
    }
    server.nobody().post("/v1/session", json!({"tokens": "x"})).await.refused(400, "invalid-request");
}

/// Nothing of what is served listens to a cookie that another page sent, whatever the method and the form of the body.
async fn a_cookie_from_another_page_reads_and_changes_nothing(store: Option<String>) {
    let server = server(store).await;
    let browser = Browser::sign_in(&server, &token(&server)).await;
    let records = async || {
        let page = server.admin().get("/v1/ledger/records?limit=500").await.ok();
        let ids = page["items"].as_array().expect("a list").iter().map(|record| record["event_id"].to_string());
        ids.collect::<Vec<_>>()
    };
    let (before, id) = (records().await, server.admin().start_loop("s").await);
    let after_start = records().await;
    assert_ne!(before, after_start);
    let description = server.nobody().get("/openapi.json").await.ok();
    let bodies = [
        ("application/json", r#"{"actor_ref": "mallory", "kind": "human", "action": "go"}"#),
        ("text/plain", r#"{"actor_ref": "mallory", "kind": "human", "action": "go"}"#),
        ("application/x-www-form-urlencoded", "actor_ref=mallory&kind=human"),
        ("multipart/form-data; boundary=x", "--x--"),
    ];
    let paths = description["paths"].as_object().expect("paths");
    for (path, item) in paths.iter().filter(|(path, _)| path.starts_with("/v1/") && *path != "/v1/session/options") {
        let address = path.replace("{instance_id}", &id).replace(['{', '}'], "");
        for method in item.as_object().expect("operations").keys() {
            let method: Method = method.to_uppercase().parse().expect("a method");
            if (path.as_str(), &method) == ("/v1/session", &Method::POST) {
                continue;
            }
            for headers in CROSS_SITE {
                let with = |request: RequestBuilder| headers.iter().fold(request, |r, (n, v)| r.header(*n, *v));
                let forms = if method == Method::GET { &bodies[..1] } else { &bodies[..] };
                for (content_type, body) in forms {
                    let mut request = with(browser.foreign(method.clone(), &address));
                    if method != Method::GET {
                        request = request.header("Content-Type", *content_type).body(*body);
                    }
                    Answer::of(request).await.refused(401, "invalid-credential");
                }
            }
        }
    }
    let export = format!("/v1/ledger/export?instance_id={id}");
    Answer::of(browser.foreign(Method::GET, &export).header("Origin", "https://evil.example"))
        .await
        .refused(401, "invalid-credential");
    assert_eq!(records().await, after_start, "nothing was recorded");
    assert_eq!(Answer::of(browser.request(Method::GET, &export)).await.status, 200, "the same from a page of ours");
    // Nor does a foreign page sign anybody in.
    for headers in CROSS_SITE.iter().filter(|headers| !headers.is_empty()) {
        let request = server.nobody().request(Method::POST, "/v1/session").json(&json!({"token": token(&server)}));
        let answer = Answer::of(headers.iter().fold(request, |r, (n, v)| r.header(*n, *v))).await;
        answer.refused(401, "invalid-credential");
        assert!(!answer.headers.contains_key("set-cookie"));
    }
    // A bearer token needs neither.
    Answer::of(server.admin().request(Method::GET, "/v1/me").header("Origin", "https://evil.example")).await.ok();
}

async fn follow(browser: &Browser) -> Follower {
    Follower::of(browser.request(Method::GET, "/v1/stream?topics=inbox")).await
}

async fn sessions_are_listed_and_ended(store: Option<String>) {
    let server = server(store.clone()).await;
    let (admin, mallory) = (server.admin(), server.actor("mallory", &["runs:read"]).await);
    server.actor("ana", &[]).await;
    let token = admin.post("/v1/actors/ana/tokens", json!({})).await.created();
    let by = token["token"].as_str().expect("a token");
    let (lost, own) = (Browser::sign_in(&server, by).await, Browser::sign_in(&server, by).await);
    let listed = own.get("/v1/actors/ana/sessions").await.ok()["items"].clone();
    let listed = listed.as_array().expect("items");
    let (mine, others): (Vec<&Value>, Vec<&Value>) = listed.iter().partition(|item| item["current"] == true);
    assert_eq!((mine.len(), others.len()), (1, 1), "{listed:?}");
    assert!(listed.iter().all(|item| item["credential_id"] == token["credential_id"]));
    let of_lost = format!("/v1/actors/ana/sessions/{}", others[0]["session_id"].as_str().expect("an id"));
    mallory.get("/v1/actors/ana/sessions").await.refused(403, "permission-denied");
    Answer::of(mallory.request(Method::DELETE, &of_lost)).await.refused(403, "permission-denied");
    let of_another = of_lost.replace("/ana/", "/mallory/");
    Answer::of(mallory.request(Method::DELETE, &of_another)).await.refused(404, "not-known");
    lost.get("/v1/me").await.ok();

    let mut streams = vec![follow(&lost).await];
    let node = match &store {
        Some(_) => Some(server.beside().await),
        None => None,
    };
    if let Some(node) = &node {
        streams.push(follow(&lost.at(node)).await);
    }
    assert_eq!(Answer::of(own.request(Method::DELETE, &of_lost)).await.status, 204);
    lost.get("/v1/me").await.refused(401, "invalid-credential");
    for stream in streams {
        stream.ends().await;
    }
    Answer::of(own.request(Method::DELETE, &of_lost)).await.refused(404, "not-known");
    // An administrator sees and ends what is left.
    let left = admin.get("/v1/actors/ana/sessions").await.ok()["items"].clone();
    assert_eq!(left.as_array().map(Vec::len), Some(1));
    assert_eq!(left[0]["current"], false);
    let of_own = format!("/v1/actors/ana/sessions/{}", left[0]["session_id"].as_str().expect("an id"));
    assert_eq!(Answer::of(admin.request(Method::DELETE, &of_own)).await.status, 204);
    own.get("/v1/me").await.refused(401, "invalid-credential");
    admin.get("/v1/actors/nobody/sessions").await.refused(404, "not-known");
}

async fn a_stream_ends_with_its_session(store: Option<String>) {
    let config = CONFIG.replace("15m", "10s");
    let server = Server::with(Some(config), store, Pace::default()).await;
    let (out, idle) =
        (Browser::sign_in(&server, &token(&server)).await, Browser::sign_in(&server, &token(&server)).await);
    let (of_out, of_idle) = (follow(&out).await, follow(&idle).await);
    let by_token = Follower::of(server.admin().request(Method::GET, "/v1/stream?topics=inbox")).await;
    assert_eq!(Answer::of(out.request(Method::DELETE, "/v1/session")).await.status, 204);
    of_out.ends().await;
    // A stream alone does not keep its session from being idle.
    of_idle.ends().await;
    idle.get("/v1/me").await.refused(401, "invalid-credential");
    drop(by_token);
}

async fn an_actor_has_only_so_many_sessions(store: Option<String>) {
    let server = server(store).await;
    let mut browsers = vec![];
    for _ in 0..21 {
        server.pass_us(1000);
        browsers.push(Browser::sign_in(&server, &token(&server)).await);
    }
    let listed = browsers[20].get("/v1/actors/admin/sessions").await.ok()["items"].clone();
    assert_eq!(listed.as_array().map(Vec::len), Some(20));
    browsers[0].get("/v1/me").await.refused(401, "invalid-credential");
    browsers[1].get("/v1/me").await.ok();
}

const MINUTE_US: i64 = 60_000_000;

async fn an_idle_session_ends_and_a_used_one_lasts_until_its_absolute_end(store: Option<String>) {
    let server = server(store).await;
    let idle = Browser::sign_in(&server, &token(&server)).await;
    let used = Browser::sign_in(&server, &token(&server)).await;
    // It was not sent a cookie of another session, so there are two.
    let began = used.get("/v1/me").await.ok()["session"]["expires_at"].clone();
    server.pass_us(10 * MINUTE_US);
    let moved = used.get("/v1/me").await.ok()["session"]["expires_at"].clone();
    assert!(moved.as_str() > began.as_str(), "{moved} {began}");
    server.pass_us(6 * MINUTE_US);
    idle.get("/v1/me").await.refused(401, "invalid-credential");
    used.get("/v1/me").await.ok();
    // What was idle for too long does not come back.
    idle.get("/v1/inbox").await.refused(401, "invalid-credential");
    for _ in 0..70 {
        server.pass_us(10 * MINUTE_US);
        used.get("/v1/me").await.ok();
    }
    server.pass_us(10 * MINUTE_US);
    used.get("/v1/me").await.refused(401, "invalid-credential");
    let again = Browser::sign_in(&server, &token(&server)).await;
    again.get("/v1/me").await.ok();
}

async fn a_session_ends_with_the_token_that_began_it(store: Option<String>) {
    let server = server(store.clone()).await;
    let admin = server.admin();
    server.actor("ana", &["workflows:start"]).await;
    let second = admin.post("/v1/actors/ana/tokens", json!({})).await.created();
    let third = admin.post("/v1/actors/ana/tokens", json!({})).await.created();
    let by = |made: &Value| made["token"].as_str().expect("a token").to_owned();
    let (ended, stays) = (Browser::sign_in(&server, &by(&second)).await, Browser::sign_in(&server, &by(&third)).await);
    let node = match &store {
        Some(_) => Some(server.beside().await),
        None => None,
    };
    if let Some(node) = &node {
        ended.at(node).get("/v1/me").await.ok();
    }
    let credential = second["credential_id"].as_str().expect("an id");
    admin.post(&format!("/v1/actors/ana/tokens/{credential}/revoke"), json!({})).await.ok();
    ended.get("/v1/me").await.refused(401, "invalid-credential");
    let body = json!({"declaration": crate::support::two_states(), "subject_ref": "s", "gate_spec": {}});
    ended.post("/v1/processes", body.clone()).await.refused(401, "invalid-credential");
    if let Some(node) = &node {
        // At once, also where the revocation was not made.
        ended.at(node).get("/v1/inbox").await.refused(401, "invalid-credential");
    }
    stays.post("/v1/processes", body).await.created();
}

async fn a_session_is_begun_anew_with_each_sign_in(store: Option<String>) {
    let server = server(store).await;
    let ana = server.actor("ana", &[]).await;
    let first = Browser::sign_in(&server, &token(&server)).await;
    // Mallory's own session is planted in the browser; who signs in does not take it over, and it is gone.
    let ana_token = server.admin().post("/v1/actors/ana/tokens", json!({})).await.created();
    let body = json!({"token": ana_token["token"]});
    let answer = Answer::of(first.request(Method::POST, "/v1/session").json(&body)).await;
    let second = Browser::signed_in(server.nobody(), answer);
    assert_ne!(first.cookie, second.cookie);
    first.get("/v1/me").await.refused(401, "invalid-credential");
    assert_eq!(second.get("/v1/me").await.ok()["actor_ref"], "ana");
    // An id that nobody gave out is none, and sending one plants nothing.
    let planted = Browser { cookie: format!("countersign_session={}", "ab".repeat(32)), ..second.clone() };
    planted.get("/v1/me").await.refused(401, "invalid-credential");
    let answer = Answer::of(planted.request(Method::POST, "/v1/session").json(&body)).await;
    assert_ne!(Browser::signed_in(server.nobody(), answer).cookie, planted.cookie);
    planted.get("/v1/me").await.refused(401, "invalid-credential");
    // Two cookies of that name: neither counts.
    let two = second.request(Method::GET, "/v1/me").header("Cookie", &planted.cookie);
    Answer::of(two).await.refused(401, "invalid-credential");
    // A bearer token beside a cookie is who asks.
    let both = ana.request(Method::GET, "/v1/me").header("Cookie", &first.cookie).header("Origin", ORIGIN);
    assert_eq!(Answer::of(both).await.ok()["actor_ref"], "ana");
}

async fn what_is_done_in_a_session_is_recorded_under_its_token(store: Option<String>) {
    let server = server(store).await;
    let admin = server.admin();
    let browser = Browser::sign_in(&server, &token(&server)).await;
    let body = json!({"declaration": crate::support::two_states(), "subject_ref": "s", "gate_spec": {}});
    let id = browser.post("/v1/processes", body).await.created()["instance_id"].as_str().expect("an id").to_owned();
    let records = admin.get(&format!("/v1/ledger/records?instance_id={id}")).await.ok();
    assert_eq!(records["items"][0]["actor_ref"], "admin");
    assert_eq!(records["items"][0]["assurance"], "server_attested");
    let verified = admin.post("/v1/ledger/verify-log", json!({"instance_id": id})).await.ok();
    assert_eq!(verified["result"], "verified", "{verified}");
}

async fn names_are_told_to_every_actor_and_existence_to_none(store: Option<String>) {
    let server = server(store).await;
    let nobody_special = server.actor("ana", &[]).await;
    let named = nobody_special.get("/v1/actors/names?refs=admin,ana,no%20such").await.ok();
    let expected = json!({"items": [
        {"actor_ref": "admin", "display_name": "Administrator"},
        {"actor_ref": "ana", "display_name": null},
        {"actor_ref": "no such", "display_name": null},
    ], "next": null});
    assert_eq!(named, expected);
    for bad in ["", "?refs=", "?refs=a&refs=b", "?ref=a", "?refs=a&x=1"] {
        nobody_special.get(&format!("/v1/actors/names{bad}")).await.refused(400, "invalid-query");
    }
    let many = vec!["a"; 101].join(",");
    nobody_special.get(&format!("/v1/actors/names?refs={many}")).await.refused_at(400, "invalid-query", "refs");
    server.nobody().get("/v1/actors/names?refs=admin").await.refused(401, "invalid-credential");
}

/// The database holds no id of a session.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_the_database_signs_nobody_in() {
    let mut server = server(None).await;
    let browser = Browser::sign_in(&server, &token(&server)).await;
    browser.get("/v1/me").await.ok();
    let id = browser.cookie.split_once('=').expect("a cookie").1.to_owned();
    server.stop().await;
    let bytes = std::fs::read(server.directory.path().join("countersign.sqlite")).expect("a database");
    let raw: Vec<u8> = (0..32).map(|i| u8::from_str_radix(&id[2 * i..2 * i + 2], 16).expect("hex")).collect();
    assert!(!bytes.windows(64).any(|window| window == id.as_bytes()));
    assert!(!bytes.windows(32).any(|window| window == raw));
}
