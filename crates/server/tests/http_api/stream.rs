//! The live stream: what moves is told, and nothing else; to those who may see it, on every node, and again after a lost
//! connection. On SQLite and on a real PostgreSQL (`scripts/with-postgres.sh`).

use crate::support::{Actor, Answer, Server};
use crate::webhooks::{PACE, database, on_both};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;

const CAPA: &str = include_str!("../../../../definitions/capa.yaml");
const WORKFLOW: &str =
    "kind: workflow\nname: order\norder: linear\nqueue: orders\nsteps:\n  - {name: PAY, timeout: 10m}\n";
/// Only a test that fails waits that long.
const PATIENCE: Duration = Duration::from_secs(30);

on_both! {
    each_topic_moves_when_it_should_and_not_otherwise,
    a_topic_is_refused_as_the_read_of_it_would_be,
    governance_events_move_their_topic,
    who_comes_back_is_told_what_it_missed,
    revoked_rights_end_the_stream,
    a_finer_scope_covers_the_runs_of_its_definition,
    a_finer_scope_covers_the_processes_of_its_definition,
    a_stream_does_not_delay_the_end,
    streams_and_topics_are_bounded,
}

async fn server(store: Option<String>) -> Server {
    Server::with(None, store, PACE).await
}

/// A stream that is open.
pub struct Follower {
    response: reqwest::Response,
    text: String,
    last_id: Option<String>,
}

impl Follower {
    async fn open(actor: &Actor, topics: &str) -> Follower {
        Follower::resume(actor, topics, None).await
    }

    async fn resume(actor: &Actor, topics: &str, last_id: Option<&str>) -> Follower {
        let mut request = actor.request(Method::GET, &format!("/v1/stream?topics={topics}"));
        if let Some(id) = last_id {
            request = request.header("Last-Event-ID", id);
        }
        Follower::of(request).await
    }

    pub async fn of(request: reqwest::RequestBuilder) -> Follower {
        let response = request.send().await.expect("an answer");
        assert_eq!(response.status().as_u16(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["x-accel-buffering"], "no");
        Follower { response, text: String::new(), last_id: None }
    }

    /// The next event: its name and data. `None` where the stream has ended.
    async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some((frame, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
                let event = field("event").map(str::to_owned);
                let data = field("data").map(|data| serde_json::from_str(data).expect("JSON"));
                if let Some(id) = field("id") {
                    self.last_id = Some(id.to_owned());
                }
                self.text = rest.to_owned();
                if let Some(event) = event {
                    return Some((event, data.unwrap_or_default()));
                }
                continue;
            }
            let chunk = tokio::time::timeout(PATIENCE, self.response.chunk()).await.expect("in time").ok()??;
            self.text.push_str(std::str::from_utf8(&chunk).expect("text"));
        }
    }

    /// The topic that moved next, and to which sequence.
    async fn moved(&mut self) -> (String, Option<u64>) {
        let (event, data) = self.next().await.expect("an event");
        assert_eq!(event, "moved", "{data}");
        let members: Vec<&String> = data.as_object().expect("an object").keys().collect();
        assert!(members.iter().all(|member| ["topic", "sequence"].contains(&member.as_str())), "no content: {data}");
        (data["topic"].as_str().expect("a topic").to_owned(), data["sequence"].as_u64())
    }

    /// Takes so many events, and returns their topics.
    pub async fn topics(&mut self, count: usize) -> Vec<String> {
        let mut topics = Vec::new();
        for _ in 0..count {
            topics.push(self.moved().await.0);
        }
        topics.sort_unstable();
        topics
    }

    /// Waits until this topic has come to this sequence. Where nodes have just met, they say only that it may have moved.
    async fn reaches(&mut self, topic: &str, sequence: u64) {
        loop {
            let (moved, to) = self.moved().await;
            if moved == topic && to.is_none_or(|to| to == sequence) {
                return;
            }
        }
    }

    /// The stream ends, whatever it still tells.
    pub async fn ends(mut self) {
        while self.next().await.is_some() {}
    }
}

async fn start_order(actor: &Actor) -> String {
    let started = actor.post("/v1/runs", json!({"definition": "order", "input": {}})).await.created();
    started["run_id"].as_str().expect("an id").to_owned()
}

async fn with_order(store: Option<String>) -> (Server, String) {
    let server = server(store).await;
    server.admin().post_bytes("/v1/definitions", WORKFLOW).await.created();
    let run_id = start_order(&server.admin()).await;
    (server, run_id)
}

async fn cancel(actor: &Actor, run_id: &str) {
    let cancelled = actor.post(&format!("/v1/runs/{run_id}/cancel"), json!({"reason": "a test"})).await;
    assert!(cancelled.status < 300, "{}", cancelled.text);
}

async fn each_topic_moves_when_it_should_and_not_otherwise(store: Option<String>) {
    let server = server(store).await;
    let admin = server.admin();
    admin.post_bytes("/v1/definitions", CAPA).await.created();
    let kim = server.actor("kim", &["tasks:work"]).await;
    let qa = server.actor("qa_lead", &[]).await;
    let process = admin.start_loop("a thing").await;
    let topic = format!("process:{process}");

    let mut all = Follower::open(&admin, &format!("{topic},runs")).await;
    assert_eq!(all.moved().await, (topic.clone(), Some(1)), "where it stands");
    assert_eq!(all.moved().await, ("runs".to_owned(), None));
    let mut lists = Follower::open(&admin, "processes").await;
    assert_eq!(lists.moved().await, ("processes".to_owned(), None));
    let mut of_kim = Follower::open(&kim, "inbox,worklist").await;
    assert_eq!(of_kim.topics(2).await, ["inbox", "worklist"]);
    let mut of_qa = Follower::open(&qa, "worklist,inbox").await;
    assert_eq!(of_qa.topics(2).await, ["inbox", "worklist"]);

    // A process moves itself and no list of runs.
    admin.fire(&process, "go").await.ok();
    assert_eq!(all.moved().await, (topic.clone(), Some(2)));
    assert_eq!(lists.moved().await, ("processes".to_owned(), None));
    // A run moves the list of runs and the worklist of the person in charge.
    let input = json!({"finding": "mould", "investigator": "kim", "owner": "lee"});
    let started = admin.post("/v1/runs", json!({"definition": "capa", "input": input})).await.created();
    let run_id = started["run_id"].as_str().expect("an id").to_owned();
    assert_eq!(all.moved().await, ("runs".to_owned(), None));
    assert_eq!(of_kim.moved().await.0, "worklist");
    let mut of_run = Follower::open(&admin, &format!("run:{run_id}")).await;
    let (_, before) = of_run.moved().await;
    kim.post(&format!("/v1/runs/{run_id}/steps/investigate/claim"), json!({})).await.ok();
    let (_, after) = of_run.moved().await;
    assert!(after > before, "{before:?} {after:?}");
    assert_eq!(of_kim.moved().await.0, "worklist");
    let output = json!({"output": {"root_cause": "a leak", "severity": "major"}});
    kim.post(&format!("/v1/runs/{run_id}/steps/investigate/complete"), output).await.ok();
    assert_eq!(of_kim.moved().await.0, "worklist");
    // A gate moves the in-tray of its approver, when it opens and when it is decided.
    assert_eq!(of_qa.moved().await.0, "inbox");
    let decision = format!("/v1/runs/{run_id}/gates/correct/decision");
    qa.post(&decision, json!({"decision": "approve"})).await.ok();
    assert_eq!(of_qa.moved().await.0, "inbox");
    // Prolonging nothing and reading moves nothing: the next event of each is the one that is made now.
    admin.get(&format!("/v1/runs/{run_id}")).await.ok();
    let gated = json!({
        "declaration": {
            "states": ["a", "b"], "transitions": [{"from": "a", "action": "go", "to": "b", "guard": "g"}],
            "initial_state": "a", "terminal_states": ["b"],
        },
        "subject_ref": "s",
        "gate_spec": {"g": {"approver_ref": "kim", "scope": "x"}},
    });
    let gated = admin.post("/v1/processes", gated).await.created()["instance_id"].as_str().expect("an id").to_owned();
    admin.open_gate(&gated, "go").await.created();
    assert_eq!(of_kim.moved().await.0, "inbox");
    admin.fire(&process, "back").await.ok();
    all.reaches(&topic, 3).await;
    assert_eq!(lists.moved().await.0, "processes");
}

async fn a_finer_scope_covers_the_processes_of_its_definition(store: Option<String>) {
    let server = server(store).await;
    let admin = server.admin();
    for name in ["mine", "other"] {
        let process = format!(
            "kind: process\nname: {name}\nstates: [a, b]\ninitial_state: a\nterminal_states: [b]\ntransitions:\n  - \
             {{from: a, action: go, to: b}}\n"
        );
        admin.post_bytes("/v1/definitions", process).await.created();
    }
    let start = |name: &'static str| {
        let admin = admin.clone();
        async move {
            let started = admin.post("/v1/processes", json!({"definition": name, "subject_ref": "s"})).await.created();
            started["instance_id"].as_str().expect("an id").to_owned()
        }
    };
    let ada = server.actor("ada", &["workflows:read:mine"]).await;
    let mut list = Follower::open(&ada, "processes").await;
    assert_eq!(list.moved().await, ("processes".to_owned(), None));
    // Of what she may not see she hears nothing: the next event is that of her own, as both come in one order.
    let other = start("other").await;
    let mine = start("mine").await;
    assert_eq!(list.moved().await.0, "processes");
    let mut own = Follower::open(&ada, &format!("process:{mine}")).await;
    own.reaches(&format!("process:{mine}"), 1).await;
    // Once she may see more, the list is another one, and its processes are told.
    admin.post("/v1/grants", json!({"subject_ref": "ada", "action_scope": "workflows:read:other"})).await.created();
    assert_eq!(list.moved().await.0, "processes");
    admin.fire(&other, "go").await.ok();
    assert_eq!(list.moved().await.0, "processes");
}

async fn a_topic_is_refused_as_the_read_of_it_would_be(store: Option<String>) {
    let (server, run_id) = with_order(store).await;
    let admin = server.admin();
    let process = admin.start_loop("a thing").await;
    let none = server.actor("nobody_special", &[]).await;
    let finer = server.actor("of_another", &["runs:read:other", "workflows:read:other"]).await;
    let ask = |actor: &Actor, topics: String| {
        let actor = actor.clone();
        async move { actor.get(&format!("/v1/stream?topics={topics}")).await }
    };
    for (topic, path) in [
        (format!("run:{run_id}"), format!("/v1/runs/{run_id}")),
        (format!("process:{process}"), format!("/v1/processes/{process}")),
    ] {
        for actor in [&none, &finer] {
            let (read, stream) = (actor.get(&path).await, ask(actor, topic.clone()).await);
            read.refused(403, "permission-denied");
            stream.refused_at(403, "permission-denied", "topics");
            // What is not there is refused in the same words.
            let (kind, _) = topic.split_once(':').expect("a kind");
            let absent = ask(actor, format!("{kind}:0198c0de-0000-7000-8000-000000000000")).await;
            assert_eq!(absent.body["detail"], stream.body["detail"]);
        }
    }
    for list in ["runs", "processes"] {
        ask(&none, list.to_owned()).await.refused_at(403, "permission-denied", "topics");
    }
    ask(&admin, "run:0198c0de-0000-7000-8000-000000000000".to_owned()).await.refused_at(404, "not-known", "topics");
    ask(&admin, format!("run:{process}")).await.refused_at(404, "not-known", "topics");
    ask(&admin, format!("process:{run_id}")).await.refused_at(404, "not-known", "topics");
    for bad in ["governances", "", "runs,", "run:", "everything"] {
        ask(&admin, bad.to_owned()).await.refused_at(400, "invalid-query", "topics");
    }
    admin.get("/v1/stream").await.refused_at(400, "invalid-query", "topics");
    admin.get("/v1/stream?topics=runs&since=3").await.refused_at(400, "invalid-query", "since");
    server.nobody().get("/v1/stream?topics=inbox").await.refused(401, "invalid-credential");
    // One's own needs no scope.
    let mut own = Follower::open(&none, "inbox,worklist").await;
    assert_eq!(own.topics(2).await, ["inbox", "worklist"]);
}

const HELD: &str = "kind: workflow\nname: held\nqueue: held\nsteps: [{name: A}]\n";

async fn governance_events_move_their_topic(store: Option<String>) {
    let server = server(store).await;
    let admin = server.admin();
    admin.post_bytes("/v1/definitions", HELD).await.created();
    let reader = server.actor("reader", &["governance:read"]).await;
    let mut governance = Follower::open(&reader, "governance,inbox").await;
    assert_eq!(governance.topics(2).await, ["governance", "inbox"]);
    for scope in ["governance:act", "runs:read", "audit:read"] {
        let other = server.actor(&format!("holds-{}", scope.replace(':', "-")), &[scope]).await;
        let refused = other.get("/v1/stream?topics=governance,inbox").await;
        refused.refused_at(403, "permission-denied", "topics");
        assert_eq!(refused.body["refused_topics"], json!(["governance"]));
    }
    admin.post("/v1/runs", json!({"definition": "held"})).await.created();
    let claim = json!({"worker_id": "w", "wait_ms": 10_000});
    let task = admin.post("/v1/queues/held/claim", claim).await.ok()["tasks"][0].clone();
    let dead = format!("/v1/tasks/{}/dead", task["task_id"].as_str().expect("an id"));
    // The start moves nothing; that a policy forbade the step is escalated.
    let forbidden =
        json!({"lease_token": task["lease_token"], "last_error": "not allowed", "error_category": "governance"});
    admin.post(&dead, forbidden).await.ok();
    assert_eq!(governance.moved().await, ("governance".to_owned(), None));
    // Whoever loses the scope loses the stream.
    let grants = admin.get("/v1/grants?subject_ref=reader").await.ok();
    let grant = grants["items"][0]["grant_id"].as_str().expect("a grant").to_owned();
    admin.post(&format!("/v1/grants/{grant}/revoke"), json!({})).await.ok();
    governance.ends().await;
}

async fn who_comes_back_is_told_what_it_missed(store: Option<String>) {
    let mut server = server(store).await;
    let (a, b) = (server.admin().start_loop("a").await, server.admin().start_loop("b").await);
    let topics = format!("process:{a},process:{b},inbox");
    let mut first = Follower::open(&server.admin(), &topics).await;
    assert_eq!(first.topics(3).await.len(), 3);
    server.admin().fire(&a, "go").await.ok();
    assert_eq!(first.moved().await, (format!("process:{a}"), Some(2)));
    let id = first.last_id.clone().expect("an id");
    drop(first);

    server.admin().fire(&b, "go").await.ok();
    let mut again = Follower::resume(&server.admin(), &topics, Some(&id)).await;
    assert_eq!(again.topics(2).await, ["inbox".to_owned(), format!("process:{b}")], "a has not moved since");
    drop(again);
    // In another order, after a restart: the id still counts.
    server.admin().fire(&a, "back").await.ok();
    server.restart().await;
    let turned = format!("inbox,process:{b},process:{a}");
    let mut restarted = Follower::resume(&server.admin(), &turned, Some(&id)).await;
    let mut missed = vec!["inbox".to_owned(), format!("process:{a}"), format!("process:{b}")];
    missed.sort_unstable();
    assert_eq!(restarted.topics(3).await, missed);
    // An id of other topics, or none of ours, says nothing: all are told.
    for strange in ["nonsense", "", "a.1.2.3"] {
        let mut all = Follower::resume(&server.admin(), &topics, Some(strange)).await;
        assert_eq!(all.topics(3).await.len(), 3);
    }
    let mut other = Follower::resume(&server.admin(), &format!("process:{a}"), Some(&id)).await;
    assert_eq!(other.moved().await, (format!("process:{a}"), Some(3)));
}

async fn revoked_rights_end_the_stream(store: Option<String>) {
    let (server, run_id) = with_order(store).await;
    let admin = server.admin();
    let ada = server.actor("ada", &["workflows:read"]).await;
    let granted = admin.post("/v1/grants", json!({"subject_ref": "ada", "action_scope": "runs:read"})).await.created();
    let topic = format!("run:{run_id}");
    let mut stream = Follower::open(&ada, &topic).await;
    stream.moved().await;
    let mut own = Follower::open(&ada, "inbox").await;
    own.moved().await;
    // Other changes of the registry end nothing.
    server.actor("somebody_new", &[]).await;
    admin.post(&format!("/v1/grants/{}/revoke", granted["grant_id"].as_str().expect("an id")), json!({})).await.ok();
    stream.ends().await;
    ada.get(&format!("/v1/stream?topics={topic}")).await.refused(403, "permission-denied");

    // The in-tray is still theirs, until the token is gone.
    let tokens = admin.get("/v1/actors/ada/keys").await.ok();
    let credential = tokens["tokens"][0]["credential_id"].as_str().expect("a token").to_owned();
    let revoked = admin.post(&format!("/v1/actors/ada/tokens/{credential}/revoke"), json!({})).await;
    assert!(revoked.status < 300, "{}", revoked.text);
    own.ends().await;
}

async fn a_finer_scope_covers_the_runs_of_its_definition(store: Option<String>) {
    let (server, run_id) = with_order(store).await;
    let admin = server.admin();
    admin.post_bytes("/v1/definitions", WORKFLOW.replace("name: order", "name: other")).await.created();
    let ada = server.actor("ada", &["runs:read:other"]).await;
    let mut runs = Follower::open(&ada, "inbox,runs").await;
    assert_eq!(runs.topics(2).await, ["inbox", "runs"]);
    // A run of `order` is none that she may see.
    cancel(&admin, &run_id).await;
    let started = admin.post("/v1/runs", json!({"definition": "other", "input": {}})).await.created();
    assert_eq!(runs.moved().await.0, "runs");
    let other = started["run_id"].as_str().expect("an id");
    let mut one = Follower::open(&ada, &format!("run:{other}")).await;
    let (_, sequence) = one.moved().await;
    cancel(&admin, other).await;
    assert!(one.moved().await.1 > sequence);
    assert_eq!(runs.moved().await.0, "runs");
    // Once she may see more, the list is another one, and its runs are told.
    admin.post("/v1/grants", json!({"subject_ref": "ada", "action_scope": "runs:read:order"})).await.created();
    assert_eq!(runs.moved().await.0, "runs");
    start_order(&admin).await;
    assert_eq!(runs.moved().await.0, "runs");
}

async fn a_stream_does_not_delay_the_end(store: Option<String>) {
    let mut server = server(store).await;
    let mut streams = Vec::new();
    for _ in 0..5 {
        let mut stream = Follower::open(&server.admin(), "runs,inbox").await;
        stream.topics(2).await;
        streams.push(stream);
    }
    let running = server.take();
    // Streams hold no engine and end by themselves: waiting for requests under way would take 20 s, for connections 2 s.
    let ended = tokio::spawn(running.shutdown());
    for stream in streams {
        stream.ends().await;
    }
    ended.await.expect("an end").expect("an orderly one");
}

async fn streams_and_topics_are_bounded(store: Option<String>) {
    let config = "[limits]\nstream_topics = 2\nstreams_per_actor = 2\n".to_owned();
    let server = Server::with(Some(config), store, PACE).await;
    let admin = server.admin();
    let many = admin.get("/v1/stream?topics=runs,inbox,worklist").await;
    many.refused_at(400, "invalid-query", "topics");
    assert!(many.body["detail"].as_str().expect("a detail").contains("limits.stream_topics"));
    let first = Follower::open(&admin, "runs,inbox").await;
    let _second = Follower::open(&admin, "runs").await;
    let third = admin.get("/v1/stream?topics=inbox").await;
    third.refused_at(429, "overloaded", "topics");
    assert!(third.body["detail"].as_str().expect("a detail").contains("limits.streams_per_actor"));
    let ada = server.actor("ada", &[]).await;
    Follower::open(&ada, "inbox").await.moved().await;
    // Who leaves makes room, once the server has noticed.
    drop(first);
    let again = async {
        loop {
            let answer = admin.request(Method::GET, "/v1/stream?topics=inbox").send().await.expect("an answer");
            if answer.status().as_u16() == 200 {
                break;
            }
            Answer::of(admin.request(Method::GET, "/readyz")).await;
        }
    };
    tokio::time::timeout(PATIENCE, again).await.expect("room");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_node_commits_is_told_by_the_other() {
    let one = server(Some(database().await)).await;
    let other = one.beside().await;
    let admin = one.admin();
    let there = Actor::at(
        &other.url(),
        std::fs::read_to_string(one.directory.path().join("admin.token")).expect("a token").trim(),
    );
    let process = admin.start_loop("a thing").await;
    let topic = format!("process:{process}");
    let mut stream = Follower::open(&there, &format!("{topic},inbox")).await;
    stream.topics(2).await;
    for (sequence, action) in (2..).zip(["go", "back", "go", "back"]) {
        admin.fire(&process, action).await.ok();
        // When the nodes meet, each says once that anything may have moved.
        stream.reaches(&topic, sequence).await;
    }
    // What this node did is told by itself, as ever.
    there.fire(&process, "go").await.ok();
    stream.reaches(&topic, 6).await;

    // A grant that is revoked on the one node ends the stream on the other.
    let ada = one.actor("ada", &[]).await;
    let granted = admin.post("/v1/grants", json!({"subject_ref": "ada", "action_scope": "runs:read"})).await.created();
    let token = ada.token();
    let ada_there = Actor::at(&other.url(), &token);
    let mut runs = Follower::open(&ada_there, "runs").await;
    runs.moved().await;
    admin.post(&format!("/v1/grants/{}/revoke", granted["grant_id"].as_str().expect("an id")), json!({})).await.ok();
    runs.ends().await;
    // Coming back to the other node with the id of the first one: nothing is missed.
    let id = stream.last_id.clone().expect("an id");
    drop(stream);
    admin.fire(&process, "back").await.ok();
    let mut back = Follower::resume(&admin, &format!("inbox,{topic}"), Some(&id)).await;
    back.reaches(&topic, 7).await;
}
