//! In-trays, worklists and lists as a page needs them: soonest due first, with what is asked, and filtered by what people look for.

use crate::support::{Actor, Server};
use crate::webhooks::{database, on_both};
use countersign_server::outbox::Pace;
use serde_json::{Value, json};

const LETTERS: &str = "
kind: process
name: letters
states: [draft, sent]
initial_state: draft
terminal_states: [sent]
transitions:
  - {from: draft, action: send, to: sent, guard: urgent}
  - {from: draft, action: file, to: sent, guard: whenever}
gate_spec:
  urgent: {approver_ref: boss, scope: 'letters:send', due: 2h}
  whenever: {approver_ref: boss, scope: 'letters:file'}
";

const FLOW: &str = "
kind: workflow
name: flow
queue: work
gate_spec:
  go: {approver_ref: boss, scope: 'flow:go', due: 1h}
steps:
  - {name: ship, gate: go, request: {item: '${input.item}'}}
";

const HUMAN: &str = "
kind: workflow
name: human
order: dag
steps:
  - {name: later, run: human, pic: '${input.pic}', deadline: 9h}
  - {name: soon, run: human, pic: '${input.pic}', deadline: 1h}
  - {name: never, run: human, pic: '${input.pic}'}
";

const PARENT: &str = "kind: workflow\nname: parent\nsteps: [{name: sub, run: workflow, workflow: flow}]\n";

on_both! {
    the_in_tray_is_sorted_by_when_it_is_due,
    the_worklist_is_sorted_by_deadline,
    runs_are_found_by_what_people_look_for,
    processes_are_listed_without_their_past,
    a_long_history_comes_in_pages,
    a_due_time_that_is_none_is_refused,
}

async fn world(store: Option<String>) -> (Server, Actor, Actor) {
    let server = Server::with(None, store, Pace::default()).await;
    let boss = server.actor("boss", &[]).await;
    let admin = server.admin();
    for document in [LETTERS, FLOW, HUMAN, PARENT] {
        admin.post_bytes("/v1/definitions", document).await.created();
    }
    (server, admin, boss)
}

async fn start(actor: &Actor, body: Value) -> String {
    actor.post("/v1/runs", body).await.created()["run_id"].as_str().expect("an id").to_owned()
}

fn texts(page: &Value, field: &str) -> Vec<String> {
    let items = page["items"].as_array().expect("items").iter();
    items.map(|item| item[field].as_str().unwrap_or_default().to_owned()).collect()
}

async fn the_in_tray_is_sorted_by_when_it_is_due(store: Option<String>) {
    let (server, admin, boss) = world(store).await;
    let clerk = server.actor("clerk", &["workflows:open-gate"]).await;
    let letter =
        admin.post("/v1/processes", json!({"definition": "letters", "subject_ref": "letter:1"})).await.created();
    let letter = letter["instance_id"].as_str().expect("an id").to_owned();
    // Opened first, and never due.
    admin.open_gate(&letter, "file").await.created();
    clerk.open_gate(&letter, "send").await.created();
    let run = start(&admin, json!({"definition": "flow", "input": {"item": 7}})).await;

    let tray = boss.get("/v1/inbox").await.ok();
    assert_eq!(texts(&tray, "action"), ["ship", "send", "file"]);
    let (ship, send, file) = (&tray["items"][0], &tray["items"][1], &tray["items"][2]);
    assert_eq!(
        (&ship["kind"], &ship["definition"], &ship["requested_by"]),
        (&json!("run"), &json!("flow@1"), &json!("admin"))
    );
    assert_eq!((&ship["instance_id"], &ship["request"]), (&json!(run), &json!({"item": 7})));
    assert_eq!(
        (&send["kind"], &send["definition"], &send["requested_by"]),
        (&json!("process"), &json!("letters@1"), &json!("clerk"))
    );
    assert!(send["due_at"].is_string() && ship["due_at"].as_str() < send["due_at"].as_str());
    assert_eq!((file.get("due_at"), file.get("request")), (None, None));
    assert_eq!(boss.get("/v1/inbox/count").await.ok(), json!({"count": 3}));
    assert_eq!(admin.get("/v1/inbox/count").await.ok(), json!({"count": 0}));

    // Page by page it is the same.
    let (mut seen, mut query) = (vec![], "limit=1".to_owned());
    loop {
        let page = boss.get(&format!("/v1/inbox?{query}")).await.ok();
        seen.extend(texts(&page, "action"));
        let Some(next) = page["next"].as_str() else { break };
        query = format!("limit=1&cursor={next}");
    }
    assert_eq!(seen, ["ship", "send", "file"]);
    boss.get("/v1/inbox?order=desc").await.refused_at(400, "invalid-query", "order");

    boss.decide(&letter, "send", json!({"decision": "approve"})).await.ok();
    assert_eq!(texts(&boss.get("/v1/inbox").await.ok(), "action"), ["ship", "file"]);
    assert_eq!(boss.get("/v1/inbox/count").await.ok(), json!({"count": 2}));
    // A process with a declaration of its own belongs to no definition.
    let declaration = json!({"states": ["a", "b"], "initial_state": "a", "terminal_states": ["b"],
        "transitions": [{"from": "a", "action": "go", "to": "b", "guard": "g"}]});
    let body = json!({"declaration": declaration, "subject_ref": "s", "gate_spec": {"g": {"approver_ref": "boss", "scope": "x"}}});
    let own = admin.post("/v1/processes", body).await.created();
    admin.open_gate(own["instance_id"].as_str().expect("an id"), "go").await.created();
    let tray = boss.get("/v1/inbox").await.ok();
    assert_eq!(tray["items"][2].get("definition"), None);
}

async fn the_worklist_is_sorted_by_deadline(store: Option<String>) {
    let (server, admin, _) = world(store).await;
    let ann = server.actor("ann", &["tasks:work"]).await;
    for _ in 0..2 {
        start(&admin, json!({"definition": "human", "input": {"pic": "ann"}})).await;
    }
    let list = ann.get("/v1/worklist").await.ok();
    assert_eq!(texts(&list, "step"), ["soon", "soon", "later", "later", "never", "never"]);
    let (mut seen, mut query) = (vec![], "limit=2".to_owned());
    loop {
        let page = ann.get(&format!("/v1/worklist?{query}")).await.ok();
        seen.extend(page["items"].as_array().expect("items").clone());
        let Some(next) = page["next"].as_str() else { break };
        query = format!("limit=2&cursor={next}");
    }
    assert_eq!(Value::from(seen), list["items"]);
}

async fn runs_are_found_by_what_people_look_for(store: Option<String>) {
    let (server, admin, _) = world(store).await;
    let ann = server.actor("ann", &["runs:start", "runs:read", "tasks:work"]).await;
    let human =
        start(&ann, json!({"definition": "human", "input": {"pic": "ann"}, "subject_ref": "order:2026-1"})).await;
    let other =
        start(&admin, json!({"definition": "human", "input": {"pic": "bob"}, "subject_ref": "order:2026-2"})).await;
    let flow = start(&admin, json!({"definition": "flow", "input": {"item": 1}, "subject_ref": "größe:1"})).await;
    let parent = start(&admin, json!({"definition": "parent", "input": {"item": 1}})).await;
    let child = loop {
        let page = admin.get(&format!("/v1/runs?parent_run_id={parent}")).await.ok();
        match page["items"].as_array().and_then(|items| items.first().cloned()) {
            Some(child) if child["state"] == "blocked" => break child,
            _ => tokio::task::yield_now().await,
        }
    };
    assert_eq!((&child["definition"], &child["parent_run_id"]), (&json!("flow@1"), &json!(parent)));
    let child = child["run_id"].as_str().expect("an id").to_owned();
    let found = async |query: &str| texts(&admin.get(&format!("/v1/runs?{query}")).await.ok(), "run_id");
    assert_eq!(found("initiator_ref=ann").await, std::slice::from_ref(&human));
    assert_eq!(found("pic=ann").await, std::slice::from_ref(&human));
    assert_eq!(found("pic=bob&definition=human").await, std::slice::from_ref(&other));
    assert_eq!(found("pic=nobody").await, [""; 0]);
    assert_eq!(found("q=order:2026").await, [human.clone(), other.clone()]);
    assert_eq!(found("q=order:2026-2").await, std::slice::from_ref(&other));
    assert_eq!(found("q=gr%C3%B6").await, std::slice::from_ref(&flow));
    assert_eq!(found(&format!("q={}", &human[..30])).await, std::slice::from_ref(&human));
    assert_eq!(found(&format!("q={other}")).await, std::slice::from_ref(&other));
    assert_eq!(found("q=ORDER").await, [""; 0]);
    // A block on the critical path is red.
    assert_eq!(found("rollup=red&state=blocked").await, [flow.clone(), child.clone()]);
    assert!(found("rollup=red").await.contains(&child));
    assert_eq!(found("rollup=green&definition=human").await, [human.clone(), other.clone()]);
    assert_eq!(found("rollup=green&initiator_ref=ann&q=order:").await, std::slice::from_ref(&human));
    assert_eq!(found("rollup=gray").await, [""; 0]);
    for (query, field) in [("rollup=blue", "rollup"), ("q=ab", "q"), ("pic=", "pic"), ("colour=red", "colour")] {
        admin.get(&format!("/v1/runs?{query}")).await.refused_at(400, "invalid-query", field);
    }
    // What is no id matches nothing, and filters widen nothing.
    assert_eq!(found("parent_run_id=nonsense").await, [""; 0]);
    let finer = server.actor("finer", &["runs:read:flow"]).await;
    assert_eq!(texts(&finer.get("/v1/runs?q=order:").await.ok(), "run_id"), [""; 0]);
    assert_eq!(texts(&finer.get("/v1/runs?rollup=red").await.ok(), "run_id"), [flow, child]);
}

async fn processes_are_listed_without_their_past(store: Option<String>) {
    let (server, admin, boss) = world(store).await;
    let mut letters = vec![];
    for n in 0..3 {
        let made = admin
            .post("/v1/processes", json!({"definition": "letters", "subject_ref": format!("letter:{n}")}))
            .await
            .created();
        letters.push(made["instance_id"].as_str().expect("an id").to_owned());
    }
    let own = admin.start_loop("mine").await;
    admin.open_gate(&letters[1], "send").await.created();
    boss.decide(&letters[1], "send", json!({"decision": "approve"})).await.ok();
    admin.fire(&letters[1], "send").await.ok();
    let listed = admin.get("/v1/processes?definition=letters").await.ok();
    assert_eq!(texts(&listed, "instance_id"), letters);
    let sent = &listed["items"][1];
    assert_eq!((sent.get("transition_history"), sent.get("gates")), (None, None));
    assert_eq!((&sent["current_state"], &sent["declaration_ref"]), (&json!("sent"), &json!("letters@1")));
    let found = async |query: &str| texts(&admin.get(&format!("/v1/processes?{query}")).await.ok(), "instance_id");
    assert_eq!(found("current_state=sent").await, std::slice::from_ref(&letters[1]));
    assert_eq!(found("current_state=draft&definition=letters@1").await, [letters[0].clone(), letters[2].clone()]);
    assert_eq!(
        found("current_state=draft&definition=letters&order=desc&limit=1").await,
        std::slice::from_ref(&letters[2])
    );
    assert_eq!(found("current_state=a").await, std::slice::from_ref(&own));
    assert_eq!(found("definition=letters@2").await, [""; 0]);
    assert_eq!(found("definition=letters&initiator_ref=boss").await, [""; 0]);
    assert_eq!(found("current_state=executing").await, [""; 0]);
    let finer = server.actor("finer", &["workflows:read:letters"]).await;
    assert_eq!(
        texts(&finer.get("/v1/processes?current_state=draft").await.ok(), "instance_id"),
        [letters[0].clone(), letters[2].clone()]
    );
    assert_eq!(texts(&finer.get("/v1/processes?definition=letters").await.ok(), "instance_id"), letters);
    finer.get("/v1/processes?definition=another").await.refused(403, "permission-denied");
}

async fn a_long_history_comes_in_pages(store: Option<String>) {
    let (_server, admin, _) = world(store).await;
    let id = admin.start_loop("long").await;
    for n in 0..502 {
        admin.fire(&id, if n % 2 == 0 { "go" } else { "back" }).await.ok();
    }
    let first = admin.get(&format!("/v1/processes/{id}")).await.ok();
    assert_eq!(
        (first["transition_history"].as_array().map(Vec::len), &first["history_next"]),
        (Some(500), &json!("501"))
    );
    let rest = admin.get(&format!("/v1/processes/{id}?history_cursor=501")).await.ok();
    let numbers: Vec<_> = rest["transition_history"]
        .as_array()
        .expect("firings")
        .iter()
        .map(|firing| firing["sequence_number"].as_u64())
        .collect();
    assert_eq!((numbers, rest.get("history_next")), (vec![Some(501), Some(502)], None));
    for wrong in ["x", "-1", "007"] {
        admin.get(&format!("/v1/processes/{id}?history_cursor={wrong}")).await.refused_at(
            400,
            "invalid-query",
            "history_cursor",
        );
    }
}

async fn a_due_time_that_is_none_is_refused(store: Option<String>) {
    let (_server, admin, _) = world(store).await;
    for (document, path) in [
        (LETTERS.replace("due: 2h", "due: soon"), "gate_spec.urgent.due"),
        (LETTERS.replace("due: 2h", "due: 0s"), "gate_spec.urgent.due"),
        (FLOW.replace("due: 1h", "due: 60"), "gate_spec.go.due"),
    ] {
        let checked = admin.post_bytes("/v1/definitions/validate", document).await.ok();
        let problem = &checked["problems"][0];
        assert_eq!(
            (&checked["valid"], &problem["path"], &problem["code"]),
            (&json!(false), &json!(path), &json!("bad-value")),
            "{checked}"
        );
    }
    // It is a definition's word, not a start's.
    let declaration = json!({"states": ["a", "b"], "initial_state": "a", "terminal_states": ["b"],
        "transitions": [{"from": "a", "action": "go", "to": "b", "guard": "g"}]});
    let gate_spec = json!({"g": {"approver_ref": "boss", "scope": "x", "due": "1h"}});
    let body = json!({"declaration": declaration, "subject_ref": "s", "gate_spec": gate_spec});
    assert_eq!(admin.post("/v1/processes", body).await.status, 400);
}
