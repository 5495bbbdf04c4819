//! What the console's pages need beside the contract: what a decision left, where a request leads, counts, names of actions, and
//! how far the log is sealed.

use crate::sessions::{self, Browser, from_page};
use crate::stream::Follower;
use crate::support::{Actor, Answer, Server};
use crate::webhooks::{database, on_both};
use countersign_server::outbox::Pace;
use reqwest::Method;
use serde_json::{Value, json};

const BOARD: &str = "
kind: process
name: board
states: [draft, adopted]
initial_state: draft
terminal_states: [adopted]
transitions:
  - {from: draft, action: adopt, to: adopted, guard: board}
gate_spec:
  board: {approvers: [ann, bob, eve], quorum: {rule: m-of-n, m: 2}, scope: 'board:adopt'}
";

const WORK: &str = "
kind: workflow
name: work
order: dag
gate_spec:
  cancel: {approver_ref: ann, scope: 'work:cancel'}
steps:
  - {name: first, run: human, pic: '${input.pic}'}
  - {name: second, run: human, pic: bob}
  - {name: third, run: human, pic: bob, optional: true}
";

on_both! {
    a_decision_names_its_record,
    the_in_tray_says_why_where_to_and_how_far_a_quorum_is,
    runs_are_counted_and_say_where_they_are,
    processes_are_found_by_how_their_subject_begins,
    an_action_brings_its_name_its_weight_and_its_approval,
    a_session_tells_when_it_began_and_where,
    a_refused_stream_names_its_topics,
    the_ledger_tells_its_lag_and_its_last_verification,
}

async fn world(store: Option<String>) -> Server {
    let server = Server::with(None, store, Pace::default()).await;
    for name in ["ann", "bob", "eve"] {
        server.actor(name, &["runs:read", "tasks:work"]).await;
    }
    for document in [BOARD, WORK] {
        server.admin().post_bytes("/v1/definitions", document).await.created();
    }
    server
}

async fn as_actor(server: &Server, name: &str) -> Actor {
    let issued = server.admin().post(&format!("/v1/actors/{name}/tokens"), json!({})).await.created();
    server.with_token(issued["token"].as_str().expect("a token"))
}

async fn start(actor: &Actor, path: &str, body: Value) -> String {
    let made = actor.post(path, body).await.created();
    let id = made.get("run_id").or(made.get("instance_id")).and_then(Value::as_str);
    id.expect("an id").to_owned()
}

async fn adoption(server: &Server, subject: &str) -> String {
    let admin = server.admin();
    let id = start(&admin, "/v1/processes", json!({"definition": "board", "subject_ref": subject})).await;
    let body = json!({"action": "adopt", "reason": "budget of 2027"});
    admin.post(&format!("/v1/processes/{id}/gates"), body).await.created();
    id
}

async fn a_decision_names_its_record(store: Option<String>) {
    let server = world(store).await;
    let id = adoption(&server, "plan").await;
    let ann = as_actor(&server, "ann").await;
    let decided = ann.decide(&id, "adopt", json!({"decision": "approve", "reason": "read"})).await.ok();
    assert_eq!((&decided["outcome"], &decided["chain_state"]), (&json!("approved"), &json!("Pending")));
    let event_id = decided["event_id"].as_str().expect("an id");
    let record = server.admin().get(&format!("/v1/ledger/records/{event_id}")).await.ok();
    assert_eq!(record["payload"]["reason"], "read");
    for field in ["sequence", "record_hash", "assurance"] {
        assert_eq!(decided[field], record[field], "{field}");
    }
    assert_eq!(decided["assurance"], "server_attested");
    // The same for the gate of a run.
    let run = start(&server.admin(), "/v1/runs", json!({"definition": "work", "input": {"pic": "ann"}})).await;
    server.admin().post(&format!("/v1/runs/{run}/gates"), json!({"action": "cancel"})).await.created();
    let path = format!("/v1/runs/{run}/gates/cancel/decision");
    let decided = ann.post(&path, json!({"decision": "reject", "reason": "needed"})).await.ok();
    let path = format!("/v1/ledger/records/{}", decided["event_id"].as_str().expect("an id"));
    let record = server.admin().get(&path).await.ok();
    assert_eq!(decided["record_hash"], record["record_hash"]);
    assert_eq!((&record["instance_id"], &record["action_ref"]), (&json!(run), &json!("gate_decided")));
}

async fn the_in_tray_says_why_where_to_and_how_far_a_quorum_is(store: Option<String>) {
    let server = world(store).await;
    let id = adoption(&server, "plan").await;
    let (ann, bob) = (as_actor(&server, "ann").await, as_actor(&server, "bob").await);
    ann.decide(&id, "adopt", json!({"decision": "approve"})).await.ok();
    let tray = bob.get("/v1/inbox").await.ok();
    let item = &tray["items"][0];
    assert_eq!((&item["reason"], &item["to_state"]), (&json!("budget of 2027"), &json!("adopted")));
    let quorum = json!({"rule": "m-of-n", "approvers": 3, "needed": 2, "approved": 1, "rejected": 0});
    assert_eq!(item["quorum"], quorum);
    // A gate of one approver is no quorum, and one of a run leads to no state of a process.
    let run = start(&server.admin(), "/v1/runs", json!({"definition": "work", "input": {"pic": "ann"}})).await;
    server.admin().post(&format!("/v1/runs/{run}/gates"), json!({"action": "cancel"})).await.created();
    let tray = ann.get("/v1/inbox").await.ok();
    let item = &tray["items"][0];
    assert_eq!((item.get("quorum"), item.get("to_state"), item.get("reason")), (None, None, None));
}

async fn runs_are_counted_and_say_where_they_are(store: Option<String>) {
    let server = world(store).await;
    let admin = server.admin();
    for pic in ["ann", "ann", "eve"] {
        start(&admin, "/v1/runs", json!({"definition": "work", "input": {"pic": pic}, "subject_ref": pic})).await;
    }
    let listed = admin.get("/v1/runs?q=eve").await.ok();
    let run = &listed["items"][0];
    assert_eq!((&run["current_step"], &run["pic"]), (&json!("first"), &json!("eve")));
    assert_eq!(run["progress"], json!({"mandatory_completed": 0, "mandatory_total": 2}));
    let steps = format!("/v1/runs/{}/steps/first", run["run_id"].as_str().expect("an id"));
    let eve = as_actor(&server, "eve").await;
    eve.post(&format!("{steps}/claim"), json!({})).await.ok();
    eve.post(&format!("{steps}/complete"), json!({"output": {}})).await.ok();
    let listed = admin.get("/v1/runs?q=eve").await.ok();
    let run = &listed["items"][0];
    assert_eq!((&run["current_step"], &run["pic"]), (&json!("second"), &json!("bob")));
    assert_eq!(run["progress"], json!({"mandatory_completed": 1, "mandatory_total": 2}));

    let count = |n: u64| json!({"count": n, "more": false});
    let counts = admin.get("/v1/runs/counts").await.ok();
    let of = async |query: &str| texts_of(&admin, query).await;
    let all: u64 = ["gray", "green", "yellow", "red"].iter().filter_map(|c| counts[c]["count"].as_u64()).sum();
    assert_eq!(all, 3);
    for colour in ["gray", "green", "yellow", "red"] {
        let listed = of(&format!("rollup={colour}")).await;
        assert_eq!(counts[colour], count(listed), "{colour}");
    }
    let narrowed = admin.get("/v1/runs/counts?subject_ref=ann&definition=work").await.ok();
    assert_eq!(narrowed["green"], count(of("rollup=green&subject_ref=ann").await));
    assert_eq!(admin.get("/v1/runs/counts?q=nothing").await.ok()["green"], count(0));
    admin.get("/v1/runs/counts?rollup=red").await.refused_at(400, "invalid-query", "rollup");
    admin.get("/v1/runs/counts?limit=5").await.refused_at(400, "invalid-query", "limit");
    server.actor("none", &[]).await.get("/v1/runs/counts").await.refused(403, "permission-denied");
    let finer = server.actor("finer", &["runs:read:other"]).await;
    assert_eq!(finer.get("/v1/runs/counts").await.ok()["green"], count(0));
    finer.get("/v1/runs/counts?definition=work").await.refused(403, "permission-denied");
}

async fn texts_of(actor: &Actor, query: &str) -> u64 {
    let listed = actor.get(&format!("/v1/runs?{query}")).await.ok();
    listed["items"].as_array().expect("items").len() as u64
}

async fn processes_are_found_by_how_their_subject_begins(store: Option<String>) {
    let server = world(store).await;
    let admin = server.admin();
    let (plan, other) = (adoption(&server, "größe:plan-1").await, adoption(&server, "plan-2").await);
    let found = async |q: &str| {
        let listed = admin.get(&format!("/v1/processes?q={q}")).await.ok();
        let items = listed["items"].as_array().expect("items").clone();
        items.iter().map(|item| item["instance_id"].as_str().expect("an id").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(found("gr%C3%B6").await, std::slice::from_ref(&plan));
    assert_eq!(found("plan").await, std::slice::from_ref(&other));
    assert_eq!(found("plan&current_state=draft&definition=board").await, std::slice::from_ref(&other));
    assert_eq!(found("plan&current_state=adopted").await, [""; 0]);
    assert_eq!(found(&plan[..30]).await, std::slice::from_ref(&plan));
    assert_eq!(found("PLAN").await, [""; 0]);
    admin.get("/v1/processes?q=pl").await.refused_at(400, "invalid-query", "q");
}

async fn an_action_brings_its_name_its_weight_and_its_approval(store: Option<String>) {
    let server = world(store).await;
    let (admin, ann) = (server.admin(), as_actor(&server, "ann").await);
    let registry = admin.get("/v1/registry").await.ok();
    let words = |action: &Value| {
        let key = action["label_key"].as_str().expect("a key");
        ["en", "vi"].map(|language| {
            let text = registry["texts"][language][key].as_str().unwrap_or_else(|| panic!("{language} {key}"));
            action["args"].as_object().expect("args").iter().fold(text.to_owned(), |text, (name, value)| {
                text.replace(&format!("{{{name}}}"), value.as_str().expect("a text"))
            })
        })
    };
    let run = start(&admin, "/v1/runs", json!({"definition": "work", "input": {"pic": "ann"}})).await;
    let offered = async |path: String, name: &str, gate: Option<&str>| {
        let all = admin.get(&format!("{path}/actions")).await.ok();
        let all = all.as_array().expect("actions").clone();
        all.iter().for_each(|action| drop(words(action)));
        let found = all.into_iter().find(|one| one["action"] == name && gate.is_none_or(|gate| one["gate"] == gate));
        found.unwrap_or_else(|| panic!("no {name}"))
    };
    let of_run = format!("/v1/runs/{run}");
    let open = offered(of_run.clone(), "open-gate", Some("cancel")).await;
    assert_eq!(words(&open), ["Ask for cancel", "Yêu cầu cancel"]);
    assert_eq!(open["severity"], "primary");
    let cancel = offered(of_run.clone(), "cancel", None).await;
    assert_eq!(
        (&cancel["ok"], &cancel["severity"], cancel.get("approval_id")),
        (&json!(false), &json!("danger"), None)
    );
    // Once the approval is there, it is offered; the run spends it by itself, so none is named.
    admin.post(&format!("{of_run}/gates"), json!({"action": "cancel"})).await.created();
    ann.post(&format!("{of_run}/gates/cancel/decision"), json!({"decision": "approve"})).await.ok();
    let cancel = offered(of_run.clone(), "cancel", None).await;
    assert_eq!((&cancel["ok"], cancel.get("approval_id")), (&json!(true), None), "{cancel}");
    admin.post(&format!("{of_run}/cancel"), json!({"reason": "a test"})).await.ok();
    // A step, and a process.
    let run = start(&admin, "/v1/runs", json!({"definition": "work", "input": {"pic": "admin"}})).await;
    let claim = offered(format!("/v1/runs/{run}/steps/first"), "claim", None).await;
    assert_eq!((words(&claim), &claim["severity"]), (["Claim".to_owned(), "Nhận việc".to_owned()], &json!("primary")));
    let process = adoption(&server, "plan").await;
    let adopt = offered(format!("/v1/processes/{process}"), "adopt", None).await;
    assert_eq!(words(&adopt)[0], "adopt");
    // Every problem has a title in both languages.
    for language in ["en", "vi"] {
        assert!(
            registry["texts"][language]["problem.permission-denied.title"]
                .as_str()
                .is_some_and(|text| !text.is_empty())
        );
    }
    // What a step looks like has its words by key, too.
    let view = admin.get(&format!("/v1/runs/{run}")).await.ok();
    let look = &view["steps"][0]["appearance"];
    assert_eq!(registry["texts"]["en"][look["label_key"].as_str().expect("a key")], look["label"]);
}

async fn a_session_tells_when_it_began_and_where(store: Option<String>) {
    let server = sessions::server(store).await;
    let token = server.admin().token();
    let request = from_page(server.nobody().request(Method::POST, "/v1/session"));
    let answer = Answer::of(request.header("User-Agent", "Firefox of the lab").json(&json!({"token": token}))).await;
    let browser = Browser::signed_in(server.nobody(), answer);
    let me = browser.get("/v1/me").await.ok();
    assert_eq!(me["session"]["idle_seconds"], 15 * 60);
    server.pass_us(60_000_000);
    let listed = browser.get("/v1/actors/admin/sessions").await.ok();
    let session = &listed["items"][0];
    assert_eq!(session["user_agent"], "Firefox of the lab");
    assert!(session["begun_at"].as_str() < session["seen_at"].as_str(), "{session}");
}

async fn a_refused_stream_names_its_topics(store: Option<String>) {
    let server = world(store).await;
    let ann = as_actor(&server, "ann").await;
    let process = adoption(&server, "plan").await;
    let ask = async |topics: &str| ann.get(&format!("/v1/stream?topics={topics}")).await;
    let answer = ask(&format!("inbox,process:{process},runs,ledger")).await;
    answer.refused_at(403, "permission-denied", "topics");
    assert_eq!(answer.body["refused_topics"], json!(["ledger", format!("process:{process}")]));
    // Without them it begins.
    drop(Follower::of(ann.request(Method::GET, "/v1/stream?topics=inbox,runs")).await);
    let nothing = "run:0198c0de-0000-7000-8000-000000000000";
    let answer = ask(&format!("inbox,{nothing}")).await;
    answer.refused_at(404, "not-known", "topics");
    assert_eq!(answer.body["refused_topics"], json!([nothing]));
}

async fn the_ledger_tells_its_lag_and_its_last_verification(store: Option<String>) {
    let server = world(store).await;
    let admin = server.admin();
    let auditor = server.actor("auditor", &["audit:read"]).await;
    let mut stream = Follower::of(auditor.request(Method::GET, "/v1/stream?topics=ledger")).await;
    assert_eq!(stream.topics(1).await, ["ledger"], "at the beginning");
    admin.start_loop("a thing").await;
    // Sealed now, or by itself just before.
    let sealed = admin.post("/v1/ledger/seal", json!({})).await;
    assert!(sealed.status == 200 || sealed.body["code"] == "nothing-to-seal", "{}", sealed.text);
    assert_eq!(stream.topics(1).await, ["ledger"], "a checkpoint was signed");
    let status = auditor.get("/v1/ledger/status").await.ok();
    assert_eq!((&status["unsealed"], &status["seal_lag_ms"]), (&json!(0), &json!(0)), "{status}");
    assert!(status["sealed"].as_u64() > Some(0) && status["sealed_at"].is_string(), "{status}");
    assert_eq!(status["last_verification"], Value::Null);
    // One process is not the whole log.
    let one = json!({"instance_id": "00000000-0000-0000-0000-000000000000"});
    auditor.post("/v1/ledger/verify-log", one).await.ok();
    assert_eq!(auditor.get("/v1/ledger/status").await.ok()["last_verification"], Value::Null);
    let report = auditor.post("/v1/ledger/verify-log", json!({})).await.ok();
    let last = auditor.get("/v1/ledger/status").await.ok()["last_verification"].clone();
    assert_eq!((&last["by"], &last["result"], &last["findings"]), (&json!("auditor"), &json!("verified"), &json!(0)));
    assert_eq!((&last["records"], &last["size"]), (&report["records"], &report["size"]));
    assert_eq!(stream.topics(1).await, ["ledger"], "it was verified");
    server.actor("none", &[]).await.get("/v1/ledger/status").await.refused(403, "permission-denied");
}
