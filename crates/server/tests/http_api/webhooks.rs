//! Events reach webhooks: exactly those that were committed, signed, again after failures, and never a secret with them.
//! On SQLite and on a real PostgreSQL (`scripts/with-postgres.sh`).

use crate::replays::{APPROVER, replay};
use crate::stream::Follower;
use crate::support::{Actor, Server};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use countersign_server::outbox::Pace;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SECRET: &str = "s3cr3t-of-the-webhook";
const WORKFLOW: &str =
    "kind: workflow\nname: order\norder: linear\nqueue: orders\nsteps:\n  - {name: PAY, timeout: 10m}\n";
pub const PACE: Pace = Pace {
    first: Duration::from_millis(50),
    longest: Duration::from_millis(100),
    margin: Duration::from_secs(2),
    look: Duration::from_millis(100),
};
const PATIENCE: Duration = Duration::from_secs(30);

macro_rules! on_both {
    ($($name:ident,)*) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(None).await
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(Some(super::database().await)).await
            })*
        }
    };
}

pub(crate) use on_both;

on_both! {
    committed_events_arrive_once_and_signed,
    a_webhook_that_is_down_gets_them_later,
    a_refusal_is_final_and_can_be_tried_again,
    attempts_end,
    one_webhook_is_not_kept_waiting_by_another,
    a_message_whose_answer_was_not_noted_is_sent_again,
    a_report_under_a_lost_lease_sends_nothing,
    private_addresses_are_not_reached_unless_allowed,
    transitions_are_told_to_whoever_asks_for_them,
    an_escalation_carries_its_record,
    processes_and_gates_tell_what_happens,
}

pub async fn database() -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let server = std::env::var("COUNTERSIGN_TEST_POSTGRES").expect("run it through scripts/with-postgres.sh");
    let (client, connection) = tokio_postgres::connect(&server, tokio_postgres::NoTls).await.expect("PostgreSQL");
    tokio::spawn(connection);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let name = format!("countersign_webhooks_{since:x}_{}", COUNTER.fetch_add(1, Ordering::Relaxed));
    client.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("a database");
    let (base, _) = server.rsplit_once('/').expect("an address");
    format!("{base}/{name}")
}

/// Somebody who is sent events.
#[derive(Clone)]
pub struct Receiver {
    pub addr: std::net::SocketAddr,
    got: Arc<Mutex<Vec<(HeaderMap, String)>>>,
    status: Arc<AtomicU16>,
    delay_ms: Arc<AtomicU64>,
}

async fn receive(State(receiver): State<Receiver>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let text = String::from_utf8_lossy(&body).into_owned();
    receiver.got.lock().expect("no panic").push((headers, text));
    tokio::time::sleep(Duration::from_millis(receiver.delay_ms.load(Ordering::SeqCst))).await;
    StatusCode::from_u16(receiver.status.load(Ordering::SeqCst)).expect("a status")
}

impl Receiver {
    pub async fn start() -> Receiver {
        Receiver::on(tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a listener"))
    }

    fn on(listener: tokio::net::TcpListener) -> Receiver {
        let receiver = Receiver {
            addr: listener.local_addr().expect("an address"),
            got: Arc::default(),
            status: Arc::new(AtomicU16::new(204)),
            delay_ms: Arc::default(),
        };
        let router = Router::new().fallback(receive).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        receiver
    }

    pub fn answer(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    pub fn got(&self) -> Vec<(HeaderMap, String)> {
        self.got.lock().expect("no panic").clone()
    }

    /// What arrived, by the event's id: how often.
    fn ids(&self) -> BTreeMap<String, usize> {
        let mut ids = BTreeMap::new();
        for (_, body) in self.got() {
            let event: Value = serde_json::from_str(&body).expect("JSON");
            *ids.entry(event["id"].as_str().expect("an id").to_owned()).or_default() += 1;
        }
        ids
    }

    pub fn webhook(&self, name: &str, keys: &str) -> String {
        format!(
            "[[webhooks]]\nname = \"{name}\"\nurl = \"http://{}/in?key=k\"\nsecret = \"{SECRET}\"\n{keys}\n",
            self.addr
        )
    }
}

pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "it did not come about: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub fn allowed(webhooks: &str) -> String {
    format!("{webhooks}[executors.http]\nallow_private = true\n")
}

pub async fn with_workflow(config: String, store: Option<String>) -> (Server, Actor) {
    let server = Server::with(Some(config), store, PACE).await;
    let admin = server.admin();
    let published = admin.post_bytes("/v1/definitions", WORKFLOW).await;
    assert!(matches!(published.status, 200 | 201), "{}", published.text);
    (server, admin)
}

/// A run whose only step sends these events when it is completed.
pub async fn send(admin: &Actor, types: &[&str]) {
    let task = claimed(admin).await;
    let events: Vec<Value> = types.iter().map(|name| json!({"type": name, "data": {"b": 1, "a": "ü"}})).collect();
    let body = json!({"lease_token": task["lease_token"], "output": 1, "outbound_events": events});
    let path = format!("/v1/tasks/{}/complete", task["task_id"].as_str().expect("an id"));
    admin.post(&path, body).await.ok();
}

async fn claimed(admin: &Actor) -> Value {
    admin.post("/v1/runs", json!({"definition": "order", "subject_ref": "o-1"})).await.created();
    let claim = json!({"worker_id": "w", "wait_ms": 5000});
    admin.post("/v1/queues/orders/claim", claim).await.ok()["tasks"][0].clone()
}

pub async fn outbox(admin: &Actor, state: &str) -> Vec<Value> {
    let page = admin.get(&format!("/v1/outbox?state={state}&limit=500")).await.ok();
    page["items"].as_array().expect("items").clone()
}

const GATED: &str = "kind: process\nname: paper\nstates: [a, b, c]\ninitial_state: a\nterminal_states: [c]\ntransitions:\n\
    - {from: a, action: go, to: b}\n- {from: b, action: end, to: c, guard: board}\ngate_spec:\n  \
    board: {approvers: [admin, ann], quorum: {rule: one-of-n}, scope: s}\n";
const GATED_STEP: &str =
    "kind: workflow\nname: cut\ngate_spec: {ok: {approver_ref: admin, scope: s}}\nsteps: [{name: A, gate: ok}]\n";

async fn processes_and_gates_tell_what_happens(store: Option<String>) {
    let receiver = Receiver::start().await;
    let types = "types = [\"process.started\", \"gate.*\", \"transition.fired\"]";
    let (server, admin) = with_workflow(allowed(&receiver.webhook("in", types)), store).await;
    for document in [GATED, GATED_STEP] {
        admin.post_bytes("/v1/definitions", document).await.created();
    }
    let made =
        admin.post("/v1/processes", json!({"definition": "paper", "subject_ref": "secret-subject"})).await.created();
    let id = made["instance_id"].as_str().expect("an id").to_owned();
    admin.fire(&id, "go").await.ok();
    // What is refused tells nothing.
    admin.fire(&id, "end").await.refused(409, "gate-not-cleared");
    admin.open_gate(&id, "end").await.created();
    admin.decide(&id, "end", json!({"decision": "approve", "reason": "secret-reason"})).await.ok();
    admin.fire(&id, "end").await.ok();
    let run = admin.post("/v1/runs", json!({"definition": "cut"})).await.created();
    let run_id = run["run_id"].as_str().expect("an id").to_owned();
    until("all have arrived", async || receiver.ids().len() >= 6).await;
    let records = admin.get(&format!("/v1/ledger/records?instance_id={id}")).await.ok();
    let event_id = |action: &str, n: usize| {
        let items = records["items"].as_array().expect("items").iter().filter(|record| record["action_ref"] == action);
        items.map(|record| record["event_id"].clone()).nth(n).expect("a record")
    };
    let mut told: Vec<(String, String, Value)> = vec![];
    for (_, body) in receiver.got() {
        assert!(!body.contains("secret-"), "what only readers may know: {body}");
        let event: Value = serde_json::from_str(&body).expect("JSON");
        let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
        told.push((text("type"), text("source"), event["data"].clone()));
    }
    let of = |name: &str, source: String| {
        let found = told.iter().filter(|(kind, from, _)| kind == name && *from == source);
        found.map(|(_, _, data)| data.clone()).collect::<Vec<_>>()
    };
    let process = format!("/processes/{id}");
    let common = json!({"instance_id": id, "definition": "paper@1", "actor_ref": "admin"});
    let with = |action: &str, n: usize, more: Value| {
        let mut all = common.clone();
        let members = all.as_object_mut().expect("an object");
        members.insert("audit_ref".to_owned(), event_id(action, n));
        members.extend(more.as_object().expect("an object").clone());
        all
    };
    assert_eq!(of("process.started", process.clone()), [with("workflow_started", 0, json!({"initial_state": "a"}))]);
    let opened = of("gate.opened", process.clone());
    let chain = opened[0]["chain_id"].clone();
    assert!(chain.is_string(), "{opened:?}");
    let expected = json!({"action": "end", "from_state": "b", "guard": "board", "scope": "s", "approver_refs": ["admin", "ann"], "chain_id": chain});
    assert_eq!(opened, [with("gate_opened", 0, expected)]);
    let decided = of("gate.decided", process.clone());
    assert_eq!((decided.len(), &decided[0]["decision"], &decided[0]["chain_id"]), (1, &json!("approve"), &chain));
    let fired = of("transition.fired", process);
    let mut moves: Vec<_> = fired
        .iter()
        .map(|data| (data["sequence_number"].clone(), data["action"].clone(), data["guarded"].clone()))
        .collect();
    moves.sort_by_key(|(number, ..)| number.as_u64());
    assert_eq!(moves, [(json!(1), json!("go"), json!(false)), (json!(2), json!("end"), json!(true))]);
    let gate = of("gate.opened", format!("/runs/{run_id}"));
    assert_eq!((gate.len(), &gate[0]["run_id"], &gate[0]["approver_refs"]), (1, &json!(run_id), &json!(["admin"])));
    assert!(gate[0].get("instance_id").is_none());
    let verified = admin.post("/v1/ledger/verify-log", json!({})).await.ok();
    assert_eq!(verified["result"], "verified", "{verified}");
    drop(server);
}

async fn committed_events_arrive_once_and_signed(store: Option<String>) {
    let receiver = Receiver::start().await;
    let (server, admin) = with_workflow(allowed(&receiver.webhook("in", "types = [\"order.*\"]")), store).await;
    for _ in 0..5 {
        send(&admin, &["order.paid", "order.shipped", "noise"]).await;
    }
    until("all are delivered", async || outbox(&admin, "delivered").await.len() == 15).await;
    let events = outbox(&admin, "delivered").await;
    let wanted = events.iter().filter(|event| event["type"] != "noise");
    let expected: BTreeMap<String, usize> =
        wanted.map(|event| (event["outbox_id"].as_str().expect("an id").to_owned(), 1)).collect();
    assert_eq!((expected.len(), receiver.ids()), (10, expected.clone()));
    for (headers, body) in receiver.got() {
        let event: Value = serde_json::from_str(&body).expect("JSON");
        let listed = events.iter().find(|listed| listed["outbox_id"] == event["id"]).expect("listed");
        assert_eq!((&event["specversion"], &event["subject"]), (&json!("1.0"), &json!("PAY")));
        assert_eq!(event["source"], format!("/runs/{}", listed["run_id"].as_str().expect("an id")));
        assert_eq!((&event["type"], &event["time"]), (&listed["type"], &listed["created_at"]));
        assert_eq!(
            (&event["datacontenttype"], &event["data"]),
            (&json!("application/json"), &json!({"b": 1, "a": "ü"}))
        );
        assert_eq!(headers["content-type"], "application/cloudevents+json");
        assert_eq!(headers["idempotency-key"], event["id"].as_str().expect("an id"));
        check_signature(headers["countersign-signature"].to_str().expect("text"), &body);
    }
    let metrics = server.nobody().get("/metrics").await.text;
    assert!(metrics.contains("countersign_outbox_deliveries_total"), "{metrics}");
    assert!(!metrics.contains(SECRET) && !metrics.contains("key=k"));
    // A stop in good order leaves nothing half done.
    let (mut server, before) = (server, receiver.got().len());
    server.restart().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(receiver.got().len(), before);
}

/// As `spec/webhooks.md` says it, by the program that it shows.
fn check_signature(header: &str, body: &str) {
    let spec = include_str!("../../../../spec/webhooks.md");
    let (_, program) = spec.split_once("```python\n").expect("a program");
    let (program, _) = program.split_once("```").expect("its end");
    let program =
        format!("{program}\nimport sys\nsys.exit(0 if verify(b'{SECRET}', sys.argv[1], sys.argv[2].encode()) else 1)");
    let verdict = |body: &str| {
        let python = Command::new("python3").args(["-c", &program, header, body]).stderr(Stdio::inherit()).status();
        python.expect("python3").success()
    };
    assert!(verdict(body), "{header}");
    assert!(!verdict(&format!("{body} ")), "{header}");
}

/// What the engine emits reaches the webhook that names it, with the trace, and no other.
async fn transitions_are_told_to_whoever_asks_for_them(store: Option<String>) {
    let (own, life) = (Receiver::start().await, Receiver::start().await);
    let keys = "types = [\"step.*\", \"run.completed\"]";
    let config = allowed(&format!("{}{}", own.webhook("own", ""), life.webhook("life", keys)));
    let (_server, admin) = with_workflow(config, store).await;
    send(&admin, &["order.paid"]).await;
    until("all are delivered", async || outbox(&admin, "delivered").await.len() == 5).await;
    let types = |receiver: &Receiver| {
        let events = receiver.got().into_iter().map(|(_, body)| serde_json::from_str::<Value>(&body).expect("JSON"));
        events
            .map(|event| event["type"].as_str().expect("a type").to_owned())
            .collect::<std::collections::BTreeSet<_>>()
    };
    let told = ["run.completed", "step.completed", "step.ready", "step.started"].map(str::to_owned);
    assert_eq!(types(&life), told.into());
    assert_eq!(types(&own), ["order.paid".to_owned()].into());
    let run = admin.get("/v1/runs").await.ok()["items"][0]["run_id"].clone();
    let run_id = run.as_str().expect("an id");
    for (_, body) in life.got() {
        let data = serde_json::from_str::<Value>(&body).expect("JSON")["data"].clone();
        assert_eq!((&data["run_id"], &data["correlation_id"]), (&run, &run));
        assert_eq!(data["trace_id"], run_id.replace('-', ""));
        let audit =
            admin.get(&format!("/v1/ledger/records/{}", data["audit_ref"].as_str().expect("a record"))).await.ok();
        assert_eq!(audit["instance_id"], run);
    }
}

/// "Every emitted event type must be registered": an escalation too, and it says which run and step, and which record shows it.
async fn an_escalation_carries_its_record(store: Option<String>) {
    let receiver = Receiver::start().await;
    let (_server, admin) = with_workflow(allowed(&receiver.webhook("in", "")), store).await;
    let types = admin.get("/v1/registry").await;
    assert!(types.text.contains("governance.escalated"), "{}", types.text);
    let task = claimed(&admin).await;
    let path = format!("/v1/tasks/{}/dead", task["task_id"].as_str().expect("an id"));
    let body = json!({"lease_token": task["lease_token"], "last_error": "policy 7", "error_category": "governance"});
    admin.post(&path, body).await.ok();
    until("it has arrived", async || receiver.got().len() == 1).await;
    let event: Value = serde_json::from_str(&receiver.got()[0].1).expect("JSON");
    let (data, run) = (&event["data"], admin.get("/v1/runs").await.ok()["items"][0]["run_id"].clone());
    assert_eq!(event["type"], "governance.escalated");
    assert_eq!((&data["run_id"], &data["correlation_id"], &data["error"]), (&run, &run, &json!("policy 7")));
    assert_eq!(data["step"], task["step"]);
    assert_eq!(data["trace_id"], run.as_str().expect("an id").replace('-', ""));
    let record = data["audit_ref"].as_str().expect("a record");
    let record = admin.get(&format!("/v1/ledger/records/{record}")).await.ok();
    assert_eq!((&record["instance_id"], &record["action_ref"]), (&run, &json!("step_failed")));
}

async fn a_webhook_that_is_down_gets_them_later(store: Option<String>) {
    let gone = Receiver::start().await;
    // An address at which nobody listens yet.
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let addr = socket.local_addr().expect("an address");
    let config = allowed(&Receiver { addr, ..gone }.webhook("in", "max_attempts = 1000"));
    let (_server, admin) = with_workflow(config, store).await;
    send(&admin, &["order.paid"]).await;
    until("it was tried", async || {
        let pending = outbox(&admin, "pending").await;
        pending[0]["deliveries"][0]["attempts"].as_u64().is_some_and(|attempts| attempts >= 2)
            && pending[0]["deliveries"][0]["last_error"].is_string()
    })
    .await;
    let back = Receiver::on(socket.listen(128).expect("it listens"));
    until("it is delivered", async || outbox(&admin, "delivered").await.len() == 1).await;
    assert_eq!(back.got().len(), 1);
    assert!(outbox(&admin, "delivered").await[0]["deliveries"][0].get("last_error").is_none());
}

async fn a_refusal_is_final_and_can_be_tried_again(store: Option<String>) {
    let receiver = Receiver::start().await;
    receiver.answer(410);
    let (server, admin) = with_workflow(format!("{APPROVER}{}", allowed(&receiver.webhook("in", ""))), store).await;
    let mut governance = Follower::of(admin.request(reqwest::Method::GET, "/v1/stream?topics=governance")).await;
    governance.topics(1).await;
    send(&admin, &["order.paid"]).await;
    until("it is given up", async || outbox(&admin, "dead").await.len() == 1).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(receiver.got().len(), 1);
    // That it was given up is told, and that it is tried again.
    assert_eq!(governance.topics(1).await, ["governance"]);
    let dead = outbox(&admin, "dead").await.remove(0);
    assert_eq!(
        (&dead["deliveries"][0]["last_error"], &dead["deliveries"][0]["webhook"]),
        (&json!("answered 410"), &json!("in"))
    );
    receiver.answer(200);
    let path = format!("/v1/outbox/{}/replay", dead["outbox_id"].as_str().expect("an id"));
    let reader = server.actor("reader", &["runs:read"]).await;
    assert_eq!(outbox(&reader, "dead").await.len(), 1);
    server.actor("stranger", &[]).await.get("/v1/outbox").await.refused(403, "permission-denied");
    admin.get("/v1/outbox?state=lost").await.refused(400, "invalid-query");
    // Nobody has it tried again alone.
    assert_eq!(admin.post(&path, json!({})).await.status, 404);
    replay(&server, &dead).await;
    until("it is delivered", async || outbox(&admin, "delivered").await.len() == 1).await;
    assert_eq!(governance.topics(1).await, ["governance"]);
    let delivered = outbox(&admin, "delivered").await.remove(0);
    assert_eq!(delivered["replayed_by"], "requester");
    assert!(delivered["replayed_at"].is_string());
    assert_eq!(receiver.got()[0].1, receiver.got()[1].1, "the same event, byte for byte");
}

async fn attempts_end(store: Option<String>) {
    let receiver = Receiver::start().await;
    receiver.answer(503);
    let (_server, admin) = with_workflow(allowed(&receiver.webhook("in", "max_attempts = 3")), store).await;
    send(&admin, &["order.paid"]).await;
    until("it is given up", async || outbox(&admin, "dead").await.len() == 1).await;
    assert_eq!(receiver.got().len(), 3);
    let error = outbox(&admin, "dead").await[0]["deliveries"][0]["last_error"].as_str().map(str::to_owned);
    assert_eq!(error.as_deref(), Some("given up after 3 attempts: answered 503"));
}

async fn one_webhook_is_not_kept_waiting_by_another(store: Option<String>) {
    let (slow, quick) = (Receiver::start().await, Receiver::start().await);
    slow.delay_ms.store(3000, Ordering::SeqCst);
    let config = allowed(&format!("{}{}", slow.webhook("slow", ""), quick.webhook("quick", "")));
    let (_server, admin) = with_workflow(config, store).await;
    let begun = std::time::Instant::now();
    for _ in 0..10 {
        send(&admin, &["order.paid", "order.shipped"]).await;
    }
    until("the quick one has all", async || quick.got().len() == 20).await;
    assert!(outbox(&admin, "delivered").await.is_empty() || begun.elapsed() > Duration::from_secs(3));
    until("all are delivered", async || outbox(&admin, "delivered").await.len() == 20).await;
    assert!(quick.ids().values().chain(slow.ids().values()).all(|count| *count == 1));
    assert_eq!(slow.ids(), quick.ids());
}

async fn a_message_whose_answer_was_not_noted_is_sent_again(store: Option<String>) {
    let receiver = Receiver::start().await;
    receiver.delay_ms.store(60_000, Ordering::SeqCst);
    let (mut server, admin) = with_workflow(allowed(&receiver.webhook("in", "timeout = \"5s\"")), store).await;
    send(&admin, &["order.paid"]).await;
    until("it is sent", async || receiver.got().len() == 1).await;
    // As if the process had died between the answer and its being noted.
    drop(server.take());
    receiver.delay_ms.store(0, Ordering::SeqCst);
    // The engine's threads end behind the drop, and SQLite belongs to one process.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let server = server.resumed().await;
    let admin = server.admin();
    until("it is sent again", async || outbox(&admin, "delivered").await.len() == 1).await;
    assert_eq!((receiver.got().len(), receiver.ids().len()), (2, 1));
    assert_eq!(outbox(&admin, "delivered").await[0]["deliveries"][0]["attempts"], 2);
}

async fn a_report_under_a_lost_lease_sends_nothing(store: Option<String>) {
    let receiver = Receiver::start().await;
    let (_server, admin) = with_workflow(allowed(&receiver.webhook("in", "")), store).await;
    let task = claimed(&admin).await;
    let path = format!("/v1/tasks/{}/complete", task["task_id"].as_str().expect("an id"));
    let body =
        json!({"lease_token": "00000000-0000-7000-8000-000000000000", "outbound_events": [{"type": "order.paid"}]});
    admin.post(&path, body).await.refused(409, "lease-lost");
    // An event of its own shows that the way is open.
    let body = json!({"lease_token": task["lease_token"], "outbound_events": [{"type": "order.true"}]});
    admin.post(&path, body).await.ok();
    until("the true one is delivered", async || outbox(&admin, "delivered").await.len() == 1).await;
    assert_eq!(receiver.got().len(), 1);
    assert!(receiver.got()[0].1.contains("order.true"));
    assert!(receiver.got()[0].1.ends_with(r#""data":null}"#), "{}", receiver.got()[0].1);
}

async fn private_addresses_are_not_reached_unless_allowed(store: Option<String>) {
    let receiver = Receiver::start().await;
    let (_server, admin) = with_workflow(receiver.webhook("in", "max_attempts = 2"), store).await;
    send(&admin, &["order.paid"]).await;
    until("it is given up", async || outbox(&admin, "dead").await.len() == 1).await;
    let dead = outbox(&admin, "dead").await.remove(0).to_string();
    assert!(dead.contains("FORBIDDEN_TARGET") && !dead.contains("key=k") && !dead.contains(SECRET), "{dead}");
    assert!(receiver.got().is_empty());
}

/// Everything that is logged on this thread, whatever its level.
#[derive(Clone, Default)]
pub struct Logged(pub Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "current_thread")]
async fn no_secret_is_logged() {
    // In a process of its own: what is logged where is decided per process, by whoever comes first.
    const ALONE: &str = "COUNTERSIGN_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let mut alone = Command::new(std::env::current_exe().expect("this program"));
        let alone = alone.args(["webhooks::no_secret_is_logged", "--exact", "--nocapture"]).env(ALONE, "1");
        let output = alone.output().expect("this program again");
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && told.contains("1 passed"), "{told}");
        return;
    }
    let logged = Logged::default();
    let writer = logged.clone();
    let log = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(move || writer.clone());
    let _guard = tracing::subscriber::set_default(log.finish());
    let receiver = Receiver::start().await;
    let (_server, admin) = with_workflow(allowed(&receiver.webhook("in", "")), None).await;
    send(&admin, &["order.paid"]).await;
    until("it is delivered", async || outbox(&admin, "delivered").await.len() == 1).await;
    receiver.answer(400);
    send(&admin, &["order.paid"]).await;
    until("it is given up", async || outbox(&admin, "dead").await.len() == 1).await;
    let told = String::from_utf8_lossy(&logged.0.lock().expect("no panic")).into_owned();
    assert!(told.contains("not delivered, and not tried again") && told.contains("TRACE"), "{told}");
    let signature = receiver.got()[0].0["countersign-signature"].to_str().expect("text").to_owned();
    assert!(!told.contains(SECRET) && !told.contains(&signature) && !told.contains("key=k"), "{told}");
}

/// Two nodes share a database; each event is sent once.
#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_do_not_send_the_same() {
    let (receiver, database) = (Receiver::start().await, database().await);
    let config = allowed(&receiver.webhook("in", ""));
    let (one, admin) = with_workflow(config, Some(database)).await;
    let other = one.beside().await;
    // Its data directory is its own, and so it has no token of its own: the store was set up by the first.
    assert!(!other.directory.path().join(countersign_server::serve::ADMIN_TOKEN_FILE).exists());
    for _ in 0..20 {
        send(&admin, &["a", "b", "c"]).await;
    }
    until("all are delivered", async || outbox(&admin, "delivered").await.len() == 60).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let ids = receiver.ids();
    assert_eq!((ids.len(), ids.values().filter(|count| **count > 1).count()), (60, 0));
    drop((one, other));
}
