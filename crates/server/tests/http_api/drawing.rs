//! What a page draws of definitions: versions, graphs and what differs between them.

use crate::support::{Answer, BATCH_RELEASE, Server};
use crate::webhooks::{database, on_both};
use countersign_server::outbox::Pace;
use reqwest::Method;
use serde_json::{Value, json};

const ORDER_1: &str = r#"
kind: workflow
name: order
queue: orders
inputSchema: {type: object, required: [id]}
gate_spec:
  go: {approver_ref: boss, scope: 'order:go'}
steps:
  - {name: check, run: human, pic: '${input.owner}'}
  - {name: pack, dependsOn: [check], when: '${input.id > 3}'}
  - {name: pay, dependsOn: [check], gate: go, retryPolicy: {maxRetries: 1}}
  - {name: tell, dependsOn: [pack, pay], optional: true, tasks: [{name: mail}, {name: call, run: human, pic: ann}]}
"#;

const ORDER_2: &str = r#"
kind: workflow
name: order
queue: orders
inputSchema: {type: object, required: [id]}
gate_spec:
  go: {approver_ref: chief, scope: 'order:go'}
steps:
  - {name: check, run: human, pic: '${input.owner}'}
  - {name: pay, dependsOn: [check], gate: go, retryPolicy: {maxRetries: 5}}
  - {name: sign, run: approval, approver_ref: ann, scope: 'order:sign', dependsOn: [check], category: approvals}
  - {name: tell, dependsOn: [pay], optional: true, tasks: [{name: mail}, {name: call, run: human, pic: ann}]}
"#;

const CHILD: &str = "kind: workflow\nname: child\nsteps: [{name: only}]\n";
const PARENT: &str = "kind: workflow\nname: parent\norder: linear\nsteps: [{name: first}, {name: sub, run: workflow, workflow: child}]\n";

async fn started(store: Option<String>) -> Server {
    Server::with(None, store, Pace::default()).await
}

async fn published(server: &Server, documents: &[&str]) {
    for document in documents {
        server.admin().post_bytes("/v1/definitions", *document).await.created();
    }
}

on_both! {
    versions_are_listed_and_drawn,
    a_graph_never_changes_and_is_asked_for_once,
    what_differs_between_versions_is_told,
    who_may_not_see_a_definition_sees_nothing_of_it,
    schedules_are_listed_with_their_next_run,
    ten_thousand_mixed_cells_fit_into_a_megabyte,
}

const NIGHTLY: &str = r#"
kind: workflow
name: nightly
schedule: [{cron: '0 2 * * *', timeZone: Asia/Ho_Chi_Minh, overlap: queue}]
steps: [{name: only}]
"#;

async fn schedules_are_listed_with_their_next_run(store: Option<String>) {
    let server = started(store).await;
    let admin = server.admin();
    assert_eq!(admin.get("/v1/schedules").await.ok()["items"], json!([]));
    published(&server, &[NIGHTLY, CHILD]).await;
    let items = admin.get("/v1/schedules").await.ok()["items"].clone();
    let next = items[0]["next_at"].as_str().expect("a time");
    assert!(next.ends_with("T19:00:00.000000Z") || next.ends_with("T19:00:00Z"), "two at night there: {next}");
    assert_eq!(
        items,
        json!([{"definition": "nightly", "version": 1, "cron": "0 2 * * *", "time_zone": "Asia/Ho_Chi_Minh",
                "overlap": "queue", "next_at": next, "index": 0, "state": "idle"}])
    );
    let (of_it, of_another, none) = (
        server.actor("ana", &["runs:read:nightly"]).await,
        server.actor("ben", &["runs:read:child"]).await,
        server.actor("cid", &["workflows:read"]).await,
    );
    assert_eq!(of_it.get("/v1/schedules").await.ok()["items"], items);
    assert_eq!(of_another.get("/v1/schedules").await.ok()["items"], json!([]));
    none.get("/v1/schedules").await.refused(403, "permission-denied");
}

/// As the server compresses it for a browser: ready, done, failed, held up, blocked and taken steps with their people, facets and
/// deadlines, and all that follow them.
async fn ten_thousand_mixed_cells_fit_into_a_megabyte(store: Option<String>) {
    const STEPS: usize = 10_000;
    const FIRST: usize = 500;
    let server = started(store).await;
    let admin = server.admin();
    let mut text = String::from("kind: workflow\nname: mixed\nqueue: q\nsteps:\n");
    for n in 0..STEPS {
        let depends = n.checked_sub(FIRST).map_or(String::new(), |before| format!(", dependsOn: [s{before}]"));
        let work = match n % 5 {
            0 => format!(", run: human, pic: 'person-{}', deadline: {}h", n % 97, n % 71 + 1),
            1 => ", optional: true".to_owned(),
            2 => ", onFailure: hold, retryPolicy: {maxRetries: 0}".to_owned(),
            _ => String::new(),
        };
        text.push_str(&format!("  - {{name: s{n}{depends}{work}}}\n"));
    }
    admin.post_bytes("/v1/definitions", text).await.created();
    let run = admin.post("/v1/runs", json!({"definition": "mixed"})).await.created();
    let run_id = run["run_id"].as_str().expect("an id").to_owned();
    let claim = json!({"worker_id": "w", "max": 200, "wait_ms": 10_000});
    let tasks = admin.post("/v1/queues/q/claim", claim).await.ok()["tasks"].as_array().expect("tasks").clone();
    for (n, task) in tasks.iter().enumerate() {
        let (verb, mut body) = match n % 4 {
            0 | 1 => ("complete", json!({"output": {"n": n}})),
            2 => ("retry", json!({"last_error": "no stock", "backoff_ms": 3_600_000})),
            _ => continue,
        };
        body["lease_token"] = task["lease_token"].clone();
        admin.post(&format!("/v1/tasks/{}/{verb}", task["task_id"].as_str().expect("an id")), body).await;
    }
    let person = server.actor("person-0", &["tasks:work"]).await;
    for n in [0, 97 * 5 % FIRST] {
        let step = format!("/v1/runs/{run_id}/steps/s{n}");
        let of = if n % 97 == 0 { &person } else { &admin };
        of.post(&format!("{step}/claim"), json!({})).await;
        of.post(&format!("{step}/block"), json!({"block_reason": "missing_input", "reason": "no papers"})).await;
    }

    let path = format!("/v1/runs/{run_id}/cells");
    let length =
        |answer: &Answer| answer.headers["content-length"].to_str().expect("text").parse::<usize>().expect("a number");
    let packed = Answer::of(admin.request(Method::GET, &path).header("Accept-Encoding", "gzip")).await;
    assert_eq!((packed.status, &packed.headers["content-encoding"]), (200, &"gzip".parse().expect("a value")));
    let plain = admin.get(&path).await;
    assert!(length(&packed) <= 1 << 20, "{} bytes of {}", length(&packed), length(&plain));
    let cells = plain.ok();
    assert_eq!(cells["cells"].as_array().map(Vec::len), Some(STEPS));
    let states: std::collections::BTreeSet<&str> =
        cells["cells"].as_array().expect("cells").iter().filter_map(|cell| cell["state_code"].as_str()).collect();
    for state in ["ready", "completed", "failed", "in_progress", "blocked", "not_started"] {
        assert!(states.contains(state), "{state} is not among {states:?}");
    }
}

async fn versions_are_listed_and_drawn(store: Option<String>) {
    let server = started(store).await;
    let admin = server.admin();
    published(&server, &[ORDER_1, ORDER_2, CHILD, PARENT]).await;
    let page = admin.get("/v1/definitions/order/versions?limit=1&order=desc").await.ok();
    let newest = &page["items"][0];
    assert_eq!((&newest["version"], &newest["published_by"]), (&json!(2), &json!("admin")));
    assert!(newest["digest"].as_str().is_some_and(|digest| digest.len() == 64) && newest["published_at"].is_string());
    let next = page["next"].as_str().expect("a cursor");
    let page = admin.get(&format!("/v1/definitions/order/versions?limit=1&order=desc&cursor={next}")).await.ok();
    assert_eq!((&page["items"][0]["version"], &page["next"]), (&json!(1), &Value::Null));
    admin.get("/v1/definitions/nothing/versions").await.refused(404, "not-known");

    let graph = admin.get("/v1/definitions/order/versions/1/graph").await.ok();
    assert_eq!(
        (&graph["kind"], &graph["order"], &graph["input_schema"]["required"]),
        (&json!("workflow"), &json!("dag"), &json!(["id"]))
    );
    let nodes = &graph["nodes"];
    assert_eq!(
        nodes[0],
        json!({"step_seq": 0, "name": "check", "run": "human", "queue": "orders", "pic": "${input.owner}",
               "optional": false, "depends_on": []})
    );
    assert_eq!((&nodes[1]["when"], &nodes[1]["depends_on"]), (&json!("input.id > 3"), &json!([0])));
    assert_eq!((&nodes[2]["gate"], &nodes[2]["approvers"]), (&json!("go"), &json!(["boss"])));
    assert_eq!((&nodes[3]["optional"], &nodes[3]["depends_on"]), (&json!(true), &json!([1, 2])));
    assert_eq!(nodes[3]["tasks"][1], json!({"step_seq": 5, "name": "tell/call", "run": "human", "pic": "ann"}));
    let edges = json!([{"from": 0, "to": 1, "label": "input.id > 3"}, {"from": 0, "to": 2}, {"from": 1, "to": 3}, {"from": 2, "to": 3}]);
    assert_eq!(graph["edges"], edges);

    let parent = admin.get("/v1/definitions/parent/versions/1/graph").await.ok();
    assert_eq!((&parent["order"], &parent["nodes"][1]["workflow"]), (&json!("linear"), &json!("child@1")));
    let approval = admin.get("/v1/definitions/order/versions/2/graph").await.ok();
    assert_eq!(
        (&approval["nodes"][2]["gate"], &approval["nodes"][2]["approvers"]),
        (&json!("approval:sign"), &json!(["ann"]))
    );

    assert_eq!((&approval["nodes"][2]["category"], approval["nodes"][1].get("category")), (&json!("approvals"), None));

    published(&server, &[BATCH_RELEASE]).await;
    let process = admin.get("/v1/definitions/batch-release/versions/1/graph").await.ok();
    assert_eq!((&process["kind"], &process["initial_state"]), (&json!("process"), &json!("sampled")));
    assert!(process.get("nodes").is_none() && process["states"].as_array().is_some_and(|states| states.len() > 3));
    let release = process["transitions"].as_array().expect("transitions").iter().find(|t| t["action"] == "release");
    assert_eq!(release.expect("release")["guard"], "QP-sign-off");

    // What is only checked looks the same.
    let checked = admin.post_bytes("/v1/definitions/validate", ORDER_1).await.ok();
    assert_eq!((&checked["valid"], &checked["graph"]), (&json!(true), &graph));
    let wrong = admin.post_bytes("/v1/definitions/validate", "kind: workflow\nname: x\n").await.ok();
    assert_eq!((&wrong["valid"], wrong.get("graph")), (&json!(false), None));
}

async fn a_graph_never_changes_and_is_asked_for_once(store: Option<String>) {
    let server = started(store).await;
    let admin = server.admin();
    published(&server, &[ORDER_1, ORDER_2]).await;
    let path = "/v1/definitions/order/versions/1/graph";
    let first = admin.get(path).await;
    let tag = first.headers["etag"].to_str().expect("a tag").to_owned();
    assert!(
        first.headers["cache-control"]
            .to_str()
            .is_ok_and(|kept| kept.contains("immutable") && kept.contains("private"))
    );
    for (given, status) in
        [(tag.clone(), 304), (format!("\"other\", W/{tag}"), 304), ("*".to_owned(), 304), ("\"other\"".to_owned(), 200)]
    {
        let again = Answer::of(admin.request(Method::GET, path).header("If-None-Match", &given)).await;
        assert_eq!((again.status, again.headers["etag"].to_str().ok()), (status, Some(tag.as_str())), "{given}");
        assert_eq!(again.text.is_empty(), status == 304, "{given}");
    }
    let other = admin.get("/v1/definitions/order/versions/2/graph").await;
    assert_ne!(other.headers["etag"].to_str().ok(), Some(tag.as_str()));
    // Who may not see it learns nothing from a tag.
    let stranger = server.actor("stranger", &[]).await;
    let denied = Answer::of(stranger.request(Method::GET, path).header("If-None-Match", &tag)).await;
    denied.refused(403, "permission-denied");
}

async fn what_differs_between_versions_is_told(store: Option<String>) {
    let server = started(store).await;
    let admin = server.admin();
    published(&server, &[ORDER_1, ORDER_2]).await;
    let diff = admin.get("/v1/definitions/order/versions/1/diff?with=2").await.ok();
    assert_eq!((&diff["added"], &diff["removed"]), (&json!(["sign"]), &json!(["pack"])));
    let changed = diff["changed"].as_array().expect("changes");
    let at = |path: &str| changed.iter().find(|change| change["path"] == path).cloned();
    let retries = json!({"path": "steps.pay.retryPolicy.maxRetries", "from": 1, "to": 5});
    assert_eq!(at("steps.pay.retryPolicy.maxRetries"), Some(retries));
    let approver = json!({"path": "gate_spec.go.approver_ref", "from": "boss", "to": "chief"});
    assert_eq!(at("gate_spec.go.approver_ref"), Some(approver));
    assert_eq!(changed.len(), 2, "{changed:#?}");
    assert_eq!(diff["edges"]["added"], json!([{"from": "check", "to": "sign"}]));
    assert_eq!(diff["edges"]["removed"], json!([{"from": "check", "to": "pack"}, {"from": "pack", "to": "tell"}]));

    let back = admin.get("/v1/definitions/order/versions/2/diff?with=1").await.ok();
    assert_eq!((&back["added"], &back["removed"]), (&diff["removed"], &diff["added"]));
    let same = admin.get("/v1/definitions/order/versions/2/diff?with=2").await.ok();
    assert_eq!(same, json!({"added": [], "removed": [], "changed": [], "edges": {"added": [], "removed": []}}));

    let longer = BATCH_RELEASE.replace("  - {from: testing, action: fail-tests, to: rejected}\n", "");
    assert_ne!(longer, BATCH_RELEASE);
    published(&server, &[BATCH_RELEASE, &longer]).await;
    let diff = admin.get("/v1/definitions/batch-release/versions/1/diff?with=2").await.ok();
    assert_eq!((&diff["added"], &diff["removed"], &diff["changed"]), (&json!([]), &json!([]), &json!([])));
    assert_eq!(diff["edges"]["removed"], json!([{"from": "testing", "to": "rejected", "label": "fail-tests"}]));

    admin.get("/v1/definitions/order/versions/1/diff?with=9").await.refused(404, "not-known");
    admin.get("/v1/definitions/order/versions/1/diff").await.refused_at(400, "invalid-query", "with");
    admin.get("/v1/definitions/order/versions/1/diff?width=2").await.refused_at(400, "invalid-query", "width");
}

async fn who_may_not_see_a_definition_sees_nothing_of_it(store: Option<String>) {
    let server = started(store).await;
    published(&server, &[ORDER_1, ORDER_2, CHILD]).await;
    let finer = server.actor("finer", &["runs:read:order"]).await;
    let stranger = server.actor("stranger", &["tasks:work"]).await;
    for path in ["versions", "versions/1/graph", "versions/1/diff?with=2"] {
        finer.get(&format!("/v1/definitions/order/{path}")).await.ok();
        finer.get(&format!("/v1/definitions/child/{path}")).await.refused(403, "permission-denied");
        stranger.get(&format!("/v1/definitions/order/{path}")).await.refused(403, "permission-denied");
        stranger.get(&format!("/v1/definitions/unheard-of/{path}")).await.refused(403, "permission-denied");
    }
}
