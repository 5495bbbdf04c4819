//! What a page asks while it follows a run: cells, one step, what may be done, its timeline, and the words for all this.

use crate::support::{Actor, Server};
use crate::webhooks::{database, on_both};
use countersign_server::outbox::Pace;
use serde_json::{Value, json};

const FLOW: &str = "
kind: workflow
name: flow
queue: work
gate_spec:
  go: {approver_ref: boss, scope: 'flow:go'}
  cancel: {approver_ref: boss, scope: 'flow:cancel'}
  reopen: {approver_ref: boss, scope: 'flow:reopen'}
steps:
  - {name: pick, input: {item: '${input.item}'}, retryPolicy: {maxRetries: 3, backoff: constant, initialDelay: 1s}}
  - {name: check, run: human, pic: ann, dependsOn: [pick], deadline: 2h, tasks: [{name: look, run: human, pic: ann}]}
  - {name: sign, run: human, pic: ann, dependsOn: [check], outputSchema: {type: object, required: [ok]}}
  - {name: ship, dependsOn: [sign], gate: go, request: {item: '${input.item}'}}
  - {name: tell, dependsOn: [ship], optional: true}
";

const BOOK: &str = "
kind: workflow
name: book
order: linear
queue: book
failurePolicy: fail-closed
gate_spec: {sovereign: {approver_ref: boss, scope: 'book:sovereign'}}
steps:
  - {name: plan, state: planned, checks: {bounded: '${output.n < 5}'}}
  - {name: cut, gate: sovereign}
";

on_both! {
    a_run_is_drawn_and_followed,
    a_step_is_told_whole,
    what_may_be_done_is_what_is_accepted,
    a_process_says_what_may_be_done,
    whoever_reads_a_run_sees_its_moves,
    every_word_is_there_in_both_languages,
    who_may_not_read_a_run_sees_nothing_of_it,
}

struct World {
    server: Server,
    admin: Actor,
    ann: Actor,
    boss: Actor,
}

async fn world(store: Option<String>) -> World {
    let server = Server::with(None, store, Pace::default()).await;
    let ann = server.actor("ann", &["tasks:work", "runs:read"]).await;
    let boss = server.actor("boss", &["runs:read"]).await;
    let admin = server.admin();
    for document in [FLOW, BOOK] {
        admin.post_bytes("/v1/definitions", document).await.created();
    }
    World { admin, ann, boss, server }
}

impl World {
    async fn start(&self, definition: &str, input: Value) -> String {
        let started = self.admin.post("/v1/runs", json!({"definition": definition, "input": input})).await.created();
        started["run_id"].as_str().expect("an id").to_owned()
    }

    async fn claim(&self, queue: &str) -> Value {
        let claimed = self
            .admin
            .post(&format!("/v1/queues/{queue}/claim"), json!({"worker_id": "w", "wait_ms": 5000}))
            .await
            .ok();
        claimed["tasks"][0].clone()
    }

    async fn report(&self, task: &Value, verb: &str, body: Value) {
        let mut body = body;
        body["lease_token"] = task["lease_token"].clone();
        let path = format!("/v1/tasks/{}/{verb}", task["task_id"].as_str().expect("a task"));
        self.admin.post(&path, body).await.ok();
    }

    async fn cells(&self, id: &str, since: Option<u64>) -> Value {
        let since = since.map_or(String::new(), |since| format!("?since={since}"));
        self.admin.get(&format!("/v1/runs/{id}/cells{since}")).await.ok()
    }
}

fn seqs(cells: &Value) -> Vec<u64> {
    cells["cells"].as_array().expect("cells").iter().filter_map(|cell| cell["step_seq"].as_u64()).collect()
}

async fn a_run_is_drawn_and_followed(store: Option<String>) {
    let mut world = world(store).await;
    let id = world.start("flow", json!({"item": 7})).await;
    let all = world.cells(&id, None).await;
    assert_eq!((&all["full"], &all["state"], seqs(&all)), (&json!(true), &json!("executing"), vec![0, 1, 2, 3, 4, 5]));
    assert_eq!(all["progress"], json!({"mandatory_completed": 0, "mandatory_total": 4}));
    assert_eq!(all["appearance"]["label_key"], "run.executing.label");
    assert_eq!(
        all["cells"][0],
        json!({"step_seq": 0, "state_code": "ready", "attempts": 0, "max_attempts": 4, "color_token": "ui.traffic_light.green_pale",
               "icon": "▶", "label_key": "state.ready.label", "args": {}})
    );
    let sequence = all["sequence"].as_u64().expect("a number");

    // A failed attempt is one cell.
    let task = world.claim("work").await;
    world.report(&task, "retry", json!({"last_error": "no stock", "backoff_ms": 3_600_000})).await;
    let delta = world.cells(&id, Some(sequence)).await;
    assert_eq!((&delta["full"], seqs(&delta)), (&json!(false), vec![0]));
    let cell = &delta["cells"][0];
    assert_eq!(
        (&cell["label_key"], &cell["args"]),
        (&json!("facet.retrying.label"), &json!({"attempt": 2, "max_attempts": 4}))
    );
    assert_eq!(delta["rollup"]["state_code"], "red");

    // After a restart it is followed as before.
    world.server.restart().await;
    world.admin = world.server.admin();
    assert_eq!(world.cells(&id, Some(sequence)).await["cells"], delta["cells"]);
    let now = delta["sequence"].as_u64().expect("a number");
    let nothing = world.cells(&id, Some(now)).await;
    assert_eq!((&nothing["full"], &nothing["cells"]), (&json!(false), &json!([])));
    assert_eq!(world.cells(&id, Some(now + 1000)).await["full"], true);
    for wrong in ["since=x", "since=-1", "since=01", "since="] {
        world.admin.get(&format!("/v1/runs/{id}/cells?{wrong}")).await.refused_at(400, "invalid-query", "since");
    }

    let book = world.start("book", json!({})).await;
    let before = world.cells(&book, None).await;
    assert_eq!(before["phase"], "pending");
    let task = world.claim("book").await;
    world.report(&task, "complete", json!({"output": {"n": 1}})).await;
    let after = world.cells(&book, before["sequence"].as_u64()).await;
    assert_eq!(
        (&after["phase"], &after["full"], seqs(&after)),
        (&json!("awaiting_sovereign"), &json!(false), vec![0, 1])
    );
}

async fn a_step_is_told_whole(store: Option<String>) {
    let world = world(store).await;
    let id = world.start("flow", json!({"item": 7})).await;
    for error in ["no stock", "still none"] {
        let task = world.claim("work").await;
        world.report(&task, "retry", json!({"last_error": error, "error_category": "external", "backoff_ms": 0})).await;
    }
    let task = world.claim("work").await;
    let path = |step: &str| format!("/v1/runs/{id}/steps/{step}");
    let pick = world.admin.get(&path("pick")).await.ok();
    assert_eq!(
        (&pick["name"], &pick["state_code"], &pick["input"]),
        (&json!("pick"), &json!("in_progress"), &json!({"item": 7}))
    );
    let log = pick["attempt_log"].as_array().expect("attempts");
    let errors: Vec<&Value> = log.iter().map(|attempt| &attempt["error"]).collect();
    assert_eq!(errors, [&json!("no stock"), &json!("still none")]);
    assert_eq!((&log[1]["attempts"], &log[1]["error_category"]), (&json!(2), &json!("external")));
    assert!(log[0]["event_id"].is_string() && log[0]["at"].is_string() && log[0]["next_run_at"].is_string());
    world.report(&task, "complete", json!({"output": {"box": 3}})).await;
    assert_eq!(world.admin.get(&path("pick")).await.ok()["output"], json!({"box": 3}));
    assert_eq!(world.admin.get(&path("ship")).await.ok().get("input"), None);

    let check = world.admin.get(&path("check")).await.ok();
    assert_eq!((&check["tasks"][0]["name"], &check["pic"]), (&json!("check/look"), &json!("ann")));
    let task = world.admin.get(&path("check%2Flook")).await.ok();
    assert_eq!((&task["role"], &task["task_of"]), (&json!("task"), &json!("check")));
    for step in ["check", "check%2Flook"] {
        world.ann.post(&format!("{}/claim", path(step)), json!({})).await.ok();
    }
    // With its last task the step ends.
    world.ann.post(&format!("{}/complete", path("check%2Flook")), json!({})).await.ok();
    world.ann.post(&format!("{}/claim", path("sign")), json!({})).await.ok();
    world.ann.post(&format!("{}/complete", path("sign")), json!({"output": {"ok": true}})).await.ok();
    let ship = world.admin.get(&path("ship")).await.ok();
    let gate = &ship["gates"][0];
    assert_eq!(
        (&gate["action"], &gate["state"], &gate["request"]),
        (&json!("ship"), &json!("Pending"), &json!({"item": 7}))
    );

    // What was reopened stays told, with the gate that allowed it.
    let gates = format!("/v1/runs/{id}/gates");
    let opened = world.admin.post(&gates, json!({"action": "reopen:sign"})).await.created();
    world.boss.post(&format!("{gates}/reopen%3Asign/decision"), json!({"decision": "approve"})).await.ok();
    let body = json!({"approval_id": opened["step_id"], "correction_reason": "data_error"});
    world.admin.post(&format!("{}/reopen", path("sign")), body).await.ok();
    let sign = world.admin.get(&path("sign")).await.ok();
    assert_eq!(
        (&sign["corrections"][0]["original_output"], &sign["gates"][0]["action"]),
        (&json!({"ok": true}), &json!("reopen:sign"))
    );

    let book = world.start("book", json!({})).await;
    let task = world.claim("book").await;
    world.report(&task, "complete", json!({"output": {"n": 1}})).await;
    let plan = world.admin.get(&format!("/v1/runs/{book}/steps/plan")).await.ok();
    assert_eq!(plan["checks"], json!([{"name": "bounded", "held": true}]));
    world.admin.get(&path("nothing")).await.refused_at(404, "not-known", "step");
}

fn action<'a>(actions: &'a Value, name: &str) -> &'a Value {
    actions
        .as_array()
        .expect("a list")
        .iter()
        .find(|action| action["action"] == name)
        .unwrap_or_else(|| panic!("{name}: {actions:#}"))
}

async fn what_may_be_done_is_what_is_accepted(store: Option<String>) {
    let world = world(store).await;
    let id = world.start("flow", json!({"item": 7})).await;
    let task = world.claim("work").await;
    world.report(&task, "complete", json!({})).await;
    let step = format!("/v1/runs/{id}/steps/check");
    let hers = world.ann.get(&format!("{step}/actions")).await.ok();
    let claim = action(&hers, "claim");
    assert_eq!(
        (&claim["ok"], &claim["transition_id"], &claim["to_state"], &claim["needs"]),
        (&json!(true), &json!("T2"), &json!("in_progress"), &json!([]))
    );
    assert_eq!(action(&hers, "extend-deadline")["problems"][0]["guard"], "permission-denied");
    let his = world.boss.get(&format!("{step}/actions")).await.ok();
    assert_eq!(
        (&action(&his, "claim")["ok"], &action(&his, "claim")["problems"][0]["guard"]),
        (&json!(false), &json!("permission-denied"))
    );
    let admins = world.admin.get(&format!("{step}/actions")).await.ok();
    assert_eq!(action(&admins, "claim")["problems"][0]["guard"], "unauthorized");
    assert_eq!(action(&admins, "extend-deadline")["needs"], json!(["deadline"]));

    world.ann.post(&format!("{step}/claim"), json!({})).await.ok();
    let hers = world.ann.get(&format!("{step}/actions")).await.ok();
    assert_eq!(
        (&action(&hers, "block")["ok"], &action(&hers, "block")["needs"]),
        (&json!(true), &json!(["block_reason"]))
    );
    assert_eq!(action(&hers, "wait")["needs"], json!(["waiting_facet"]));
    // Its task is not done: what is said is what is refused.
    let complete = action(&hers, "complete");
    let refused = world.ann.post(&format!("{step}/complete"), json!({})).await;
    assert_eq!(complete["ok"], false);
    assert!(
        refused.body["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains(complete["problems"][0]["guard"].as_str().expect("a guard"))),
        "{} {complete}",
        refused.text
    );
    for verb in ["claim", "complete"] {
        world.ann.post(&format!("/v1/runs/{id}/steps/check%2Flook/{verb}"), json!({})).await.ok();
    }
    let sign = format!("/v1/runs/{id}/steps/sign");
    world.ann.post(&format!("{sign}/claim"), json!({})).await.ok();
    let complete = world.ann.get(&format!("{sign}/actions")).await.ok();
    let complete = action(&complete, "complete");
    assert_eq!((&complete["ok"], &complete["needs"]), (&json!(true), &json!(["output"])));
    world.ann.post(&format!("{sign}/complete"), json!({"output": {"ok": true}})).await.ok();

    // The step's own gate: only whom it names may decide it.
    let ship = format!("/v1/runs/{id}/steps/ship/actions");
    let his = world.boss.get(&ship).await.ok();
    assert_eq!(
        (&action(&his, "approve")["ok"], &action(&his, "approve")["gate"], &action(&his, "reject")["needs"]),
        (&json!(true), &json!("ship"), &json!(["reason"]))
    );
    let hers = world.ann.get(&ship).await.ok();
    assert_eq!(action(&hers, "approve")["problems"][0]["guard"], "unauthorized");

    // A cancellation waits for its gate, and then for nothing but a reason.
    let of_run = format!("/v1/runs/{id}/actions");
    let cancel = world.admin.get(&of_run).await.ok();
    let cancel = action(&cancel, "cancel");
    assert_eq!(
        (&cancel["ok"], &cancel["gate"], &cancel["problems"][0]["guard"]),
        (&json!(false), &json!("cancel"), &json!("gate-not-cleared"))
    );
    world.admin.post(&format!("/v1/runs/{id}/cancel"), json!({"reason": "x"})).await.refused(409, "gate-not-cleared");
    world.admin.post(&format!("/v1/runs/{id}/gates"), json!({"action": "cancel"})).await.created();
    world.boss.post(&format!("/v1/runs/{id}/gates/cancel/decision"), json!({"decision": "approve"})).await.ok();
    let cancel = world.admin.get(&of_run).await.ok();
    let cancel = action(&cancel, "cancel");
    assert_eq!(
        (&cancel["ok"], &cancel["needs"], &cancel["to_state"]),
        (&json!(true), &json!(["reason"]), &json!("cancelled"))
    );
    let records = |admin: Actor| async move {
        admin.get("/v1/ledger/records?limit=500").await.ok()["items"].as_array().map(Vec::len)
    };
    let before = records(world.admin.clone()).await;
    world.admin.get(&of_run).await.ok();
    assert_eq!(records(world.admin.clone()).await, before, "a question leaves no record");
    world.admin.post(&format!("/v1/runs/{id}/cancel"), json!({"reason": "x"})).await.ok();
    let over = world.admin.get(&of_run).await.ok();
    assert_eq!(action(&over, "pause")["problems"][0]["guard"], "already-terminal");
}

async fn a_process_says_what_may_be_done(store: Option<String>) {
    let world = world(store).await;
    let declaration = json!({
        "states": ["draft", "sent"], "initial_state": "draft", "terminal_states": ["sent"],
        "transitions": [{"from": "draft", "action": "send", "to": "sent", "guard": "ok"}, {"from": "draft", "action": "edit", "to": "draft"}],
    });
    let gate_spec = json!({"ok": {"approver_ref": "boss", "scope": "letters"}});
    let body = json!({"declaration": declaration, "subject_ref": "letter:1", "gate_spec": gate_spec});
    let id = world.admin.post("/v1/processes", body).await.created()["instance_id"].as_str().expect("an id").to_owned();
    let path = format!("/v1/processes/{id}/actions");
    let actions = world.admin.get(&path).await.ok();
    let send = action(&actions, "send");
    assert_eq!(
        (&send["ok"], &send["to_state"], &send["gate"], &send["problems"][0]["guard"]),
        (&json!(false), &json!("sent"), &json!("send"), &json!("gate-not-cleared"))
    );
    assert_eq!((&action(&actions, "edit")["ok"], &action(&actions, "open-gate")["ok"]), (&json!(true), &json!(true)));
    world.admin.open_gate(&id, "send").await.created();
    let reader = world.server.actor("reader", &["workflows:read"]).await;
    let actions = reader.get(&path).await.ok();
    assert_eq!(action(&actions, "approve")["problems"][0]["guard"], "unauthorized");
    assert_eq!(action(&actions, "send")["problems"][0]["guard"], "permission-denied");
    world.boss.decide(&id, "send", json!({"decision": "approve"})).await.ok();
    let actions = world.admin.get(&path).await.ok();
    assert_eq!(action(&actions, "send")["ok"], true);
    assert_eq!(action(&actions, "open-gate")["problems"][0]["guard"], "already-open");
    world.admin.fire(&id, "send").await.ok();
    assert_eq!(world.admin.get(&path).await.ok(), json!([]));
    // Whom a gate named may read the process.
    assert_eq!(world.boss.get(&path).await.ok(), json!([]));
    reader_of_nothing(&world, &path).await;
    world.admin.get("/v1/processes/019a0000-0000-7000-8000-000000000000/actions").await.refused(404, "not-known");
}

async fn reader_of_nothing(world: &World, path: &str) {
    world.server.actor("stranger", &[]).await.get(path).await.refused(403, "permission-denied");
}

async fn whoever_reads_a_run_sees_its_moves(store: Option<String>) {
    let world = world(store).await;
    let id = world.start("flow", json!({"item": "secret-item"})).await;
    let task = world.claim("work").await;
    world.report(&task, "complete", json!({"output": {"box": "secret-box"}})).await;
    let path = format!("/v1/timeline?run_id={id}");
    let all = world.admin.get(&path).await;
    assert!(all.text.contains("secret-item") && all.text.contains("secret-box"));
    let seen = world.ann.get(&path).await;
    assert!(!seen.text.contains("secret"), "{}", seen.text);
    let moves = seen.body["items"].as_array().expect("entries").clone();
    assert!(moves.iter().all(|entry| entry.get("payload").is_none()));
    assert!(moves.iter().any(|entry| entry["action_ref"] == "step_completed"));

    let of_pick = world.ann.get(&format!("{path}&step=pick")).await.ok();
    let actions: Vec<&Value> =
        of_pick["items"].as_array().expect("entries").iter().map(|entry| &entry["action_ref"]).collect();
    assert_eq!(actions, [&json!("run_started"), &json!("steps_claimed"), &json!("step_completed")]);
    let mut paged = vec![];
    let mut query = format!("{path}&step=pick&limit=1&order=desc");
    loop {
        let page = world.ann.get(&query).await.ok();
        paged.extend(page["items"].as_array().expect("entries").iter().map(|entry| entry["action_ref"].clone()));
        let Some(next) = page["next"].as_str() else { break };
        query = format!("{path}&step=pick&limit=1&order=desc&cursor={next}");
    }
    paged.reverse();
    assert_eq!(paged.iter().collect::<Vec<_>>(), actions);

    world.ann.get(&format!("{path}&step=nothing")).await.refused_at(404, "not-known", "step");
    world.ann.get(&format!("/v1/timeline?instance_id={id}")).await.refused(403, "permission-denied");
    world.admin.get(&format!("/v1/timeline?instance_id={id}&step=pick")).await.refused_at(400, "invalid-query", "step");
    let finer = world.server.actor("finer", &["runs:read:book"]).await;
    finer.get(&path).await.refused(403, "permission-denied");
}

async fn every_word_is_there_in_both_languages(store: Option<String>) {
    let world = world(store).await;
    let registry = world.ann.get("/v1/registry").await.ok();
    let (en, vi) = (&registry["texts"]["en"], &registry["texts"]["vi"]);
    for (key, english, vietnamese) in [
        ("state.not_started.label", "Not started", "Chưa tới lượt"),
        ("state.cannot_complete.label", "Cannot complete", "Không thể hoàn tất"),
        ("state.completed.label", "Completed", "Hoàn thành"),
        (
            "facet.retrying.label",
            "Retrying (attempt {attempt}/{max_attempts})",
            "Đang thử lại (lần {attempt}/{max_attempts})",
        ),
        ("run.paused.label", "Paused", "Tạm dừng"),
    ] {
        assert_eq!((&en[key], &vi[key]), (&json!(english), &json!(vietnamese)), "{key}");
    }
    let keys = |texts: &Value| texts.as_object().expect("texts").keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(en), keys(vi));
    assert!(vi.as_object().expect("texts").values().all(|text| text.as_str().is_some_and(|text| !text.is_empty())));
    let words = |name: &str| {
        let list =
            registry["vocabularies"].as_array().expect("vocabularies").iter().find(|list| list["vocabulary"] == name);
        let words = list.expect(name)["words"].as_array().expect("words").iter();
        words.map(|word| word["code"].as_str().expect("a code").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(words("block_reason"), ["missing_input", "missing_approval", "config_error"]);
    assert_eq!(
        words("correction_reason"),
        ["data_error", "policy_change", "downstream_dependency_failed", "regulatory_recall"]
    );
    let colours: Vec<&Value> =
        registry["rollup_colors"].as_array().expect("colours").iter().map(|color| &color["state_code"]).collect();
    assert_eq!(colours, [&json!("gray"), &json!("green"), &json!("yellow"), &json!("red")]);
    let tokens: Vec<&Value> =
        registry["tokens"].as_array().expect("tokens").iter().map(|token| &token["token"]).collect();
    assert!(
        registry["rollup_colors"]
            .as_array()
            .expect("colours")
            .iter()
            .all(|color| tokens.contains(&&color["color_token"]))
    );
    // Every key that a cell can bear has its words.
    let id = world.start("flow", json!({"item": 1})).await;
    let cells = world.cells(&id, None).await;
    assert!(
        cells["cells"]
            .as_array()
            .expect("cells")
            .iter()
            .all(|cell| en.get(cell["label_key"].as_str().expect("a key")).is_some())
    );
    assert!(en.get(cells["appearance"]["label_key"].as_str().expect("a key")).is_some());
    let facets = registry["machines"][0]["facets"].as_array().expect("facets");
    assert!(facets.iter().all(|facet| facet["texts"]["vi"].is_string()));
}

async fn who_may_not_read_a_run_sees_nothing_of_it(store: Option<String>) {
    let world = world(store).await;
    let id = world.start("flow", json!({"item": 1})).await;
    let nowhere = "019a0000-0000-7000-8000-000000000000";
    let finer = world.server.actor("finer", &["runs:read:flow"]).await;
    let other = world.server.actor("other", &["runs:read:book"]).await;
    let stranger = world.server.actor("stranger", &["tasks:work"]).await;
    for path in ["cells", "actions", "steps/pick", "steps/pick/actions"] {
        finer.get(&format!("/v1/runs/{id}/{path}")).await.ok();
        for who in [&other, &stranger] {
            let (mine, none) =
                (who.get(&format!("/v1/runs/{id}/{path}")).await, who.get(&format!("/v1/runs/{nowhere}/{path}")).await);
            mine.refused(403, "permission-denied");
            assert_eq!(mine.text, none.text, "{path}");
        }
        world.admin.get(&format!("/v1/runs/{nowhere}/{path}")).await.refused(404, "not-known");
    }
}
