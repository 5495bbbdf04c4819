//! A corrective action from its finding to its correction, as the people in it see it over HTTP.

use crate::support::{Actor, Server};
use serde_json::{Value, json};

const CAPA: &str = include_str!("../../../../definitions/capa.yaml");

struct Case {
    server: Server,
    run_id: String,
}

impl Case {
    async fn open() -> Case {
        let server = Server::start().await;
        server.admin().post_bytes("/v1/definitions", CAPA).await.created();
        let input = json!({"finding": "mould on line 3", "investigator": "kim", "owner": "lee"});
        let started = server.admin().post("/v1/runs", json!({"definition": "capa", "input": input})).await.created();
        Case { run_id: started["run_id"].as_str().expect("an id").to_owned(), server }
    }

    fn path(&self, step: &str, act: &str) -> String {
        format!("/v1/runs/{}/steps/{step}/{act}", self.run_id)
    }

    async fn step(&self, name: &str) -> Value {
        let view = self.server.admin().get(&format!("/v1/runs/{}", self.run_id)).await.ok();
        let steps = view["steps"].as_array().expect("steps");
        steps.iter().find(|step| step["name"] == name).expect("the step").clone()
    }

    async fn records(&self) -> usize {
        let path = format!("/v1/ledger/records?instance_id={}", self.run_id);
        self.server.admin().get(&path).await.ok()["items"].as_array().expect("records").len()
    }

    async fn gate(&self, action: &str, by: &Actor) -> String {
        let gates = format!("/v1/runs/{}/gates", self.run_id);
        let opened = self.server.admin().post(&gates, json!({"action": action})).await.created();
        by.post(&format!("{gates}/{action}/decision"), json!({"decision": "approve"})).await.ok();
        opened["step_id"].as_str().expect("an approval").to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finding_is_investigated_corrected_and_investigated_again() {
    let case = Case::open().await;
    let kim = case.server.actor("kim", &["tasks:work"]).await;
    let lee = case.server.actor("lee", &["tasks:work"]).await;
    let qa = case.server.actor("qa_lead", &[]).await;
    let head = case.server.actor("head_of_quality", &[]).await;

    // What kim has to do, and nobody else.
    let mine = kim.get("/v1/worklist").await.ok();
    assert_eq!((&mine["items"][0]["step"], &mine["items"][0]["state_code"]), (&json!("investigate"), &json!("ready")));
    assert!(mine["items"][0]["deadline"].is_string());
    assert_eq!(lee.get("/v1/worklist").await.ok()["items"], json!([]));
    kim.get("/v1/worklist?order=desc").await.refused_at(400, "invalid-query", "order");

    lee.post(&case.path("investigate", "claim"), json!({})).await.refused_at(403, "unauthorized", "step");
    // The answer says what there is to do.
    let claimed = kim.post(&case.path("investigate", "claim"), json!({})).await.ok();
    let input = json!({"finding": "mould on line 3", "investigator": "kim", "owner": "lee"});
    assert_eq!(
        claimed,
        json!({"state_code": "in_progress", "state": "executing", "transition_id": "T2", "input": input})
    );

    // A preview names the guard, changes nothing and leaves no record.
    let before = case.records().await;
    let preview = case.path("investigate", "complete?preview=true");
    let seen = kim.post(&preview, json!({"output": {"root_cause": ""}})).await.ok();
    assert_eq!((&seen["ok"], &seen["transition_id"]), (&json!(false), &Value::Null));
    assert_eq!(seen["problems"][0]["guard"], "output_contract_met");
    let message = seen["problems"][0]["message"].as_str().expect("a message");
    assert!(message.starts_with("the guard `output_contract_met` refuses: "), "{message}");
    let good = json!({"output": {"root_cause": "a leak", "severity": "major"}});
    let seen = kim.post(&preview, good.clone()).await.ok();
    assert_eq!(
        seen,
        json!({"ok": true, "transition_id": "T8", "emitted_event_type": "step.completed", "problems": []})
    );
    lee.post(&preview, good.clone()).await.refused(403, "unauthorized");
    kim.post(&case.path("investigate", "complete?preview=maybe"), good.clone()).await.refused_at(
        400,
        "invalid-request",
        "preview",
    );
    kim.post(&case.path("investigate", "complete?dry=1"), good.clone()).await.refused_at(400, "invalid-request", "dry");
    assert_eq!(case.records().await, before);
    assert_eq!(case.step("investigate").await["state_code"], "in_progress");

    kim.post(&case.path("investigate", "complete"), good).await.ok();
    assert_eq!(case.step("correct").await["state_code"], "blocked");
    qa.post(&format!("/v1/runs/{}/gates/correct/decision", case.run_id), json!({"decision": "approve"})).await.ok();
    let claimed = lee.post(&case.path("correct", "claim"), json!({})).await.ok();
    assert_eq!(claimed["input"], json!({"because": "a leak"}));

    // The finding was wrong: it is reopened, and the first one stays on record.
    let approval = case.gate("reopen:investigate", &head).await;
    let reopen = json!({"approval_id": approval, "correction_reason": "data_error", "reason": "the wrong line"});
    let admin = case.server.admin();
    // The action says which approval it would spend.
    let offered = admin.get(&case.path("investigate", "actions")).await.ok();
    let offer = offered.as_array().expect("actions").iter().find(|one| one["action"] == "reopen").expect("an offer");
    assert_eq!((&offer["ok"], &offer["approval_id"]), (&json!(true), &json!(approval)), "{offer}");
    let reopened = admin.post(&case.path("investigate", "reopen"), reopen.clone()).await.ok();
    assert_eq!((&reopened["state_code"], &reopened["transition_id"]), (&json!("in_progress"), &json!("T8r")));
    admin.post(&case.path("investigate", "reopen"), reopen).await.refused(409, "invalid-transition");
    kim.post(&case.path("investigate", "complete"), json!({"output": {"root_cause": "a filter", "severity": "minor"}}))
        .await
        .ok();
    let step = case.step("investigate").await;
    assert_eq!(step["output"]["root_cause"], "a filter");
    let correction = &step["corrections"][0];
    assert_eq!((&correction["cycle"], &correction["prior_actor_ref"]), (&json!(1), &json!("kim")));
    assert_eq!(correction["original_output"]["root_cause"], "a leak");
    assert_eq!(
        (&correction["approval_id"], &correction["correction_reason"]),
        (&json!(approval), &json!("data_error"))
    );
    let prior = correction["prior_event_id"].as_str().expect("a record");
    let record = admin.get(&format!("/v1/ledger/records/{prior}")).await.ok();
    assert_eq!((&record["action_ref"], &record["actor_ref"]), (&json!("step_completed"), &json!("kim")));

    // Every state it has been in, the first completion and the reopening beside each other.
    let history = admin.get(&case.path("investigate", "history")).await.ok();
    let visits = history["visits"].as_array().expect("visits");
    let told: Vec<String> = visits.iter().map(|v| format!("{} {}", v["transition_id"], v["to_state"])).collect();
    let expected = ["T1 ready", "T2 in_progress", "T8 completed", "T8r in_progress", "T8 completed"];
    assert_eq!(told.iter().map(|line| line.replace('"', "")).collect::<Vec<_>>(), expected);
    assert_eq!((&visits[2]["event_id"], &visits[2]["actor_ref"]), (&json!(prior), &json!("kim")));
    assert_eq!((&visits[3]["reopens"], &visits[2]["reopened_by"]), (&json!(prior), &visits[3]["event_id"]));
    assert_eq!((&visits[3]["correction_reason"], &visits[3]["cycle"]), (&json!("data_error"), &json!(1)));
    assert_eq!((&visits[3]["reason"], &visits[4]["left_at"]), (&json!("the wrong line"), &Value::Null));
    assert_eq!(visits[0]["left_at"], visits[1]["at"]);
    admin.get(&case.path("nothing", "history")).await.refused_at(404, "not-known", "step");
    // Who is in charge of the step may read it; a stranger may not.
    assert_eq!(kim.get(&case.path("investigate", "history")).await.ok(), history);
    let stranger = case.server.actor("stranger", &[]).await;
    stranger.get(&case.path("investigate", "history")).await.refused(403, "permission-denied");

    // Nobody cancels it without an approval.
    let cancel = format!("/v1/runs/{}/cancel", case.run_id);
    admin.post(&cancel, json!({"reason": "no"})).await.refused(409, "gate-not-cleared");
    let verified = admin.post("/v1/ledger/verify-log", json!({})).await.ok();
    assert_eq!(verified["result"], "verified", "{verified}");
}

/// §4.3: a task has its own person in charge, who finds it in their list and acts on it by `step%2Ftask`.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_its_own_persons() {
    const FILING: &str = "
kind: workflow
name: filing
steps:
  - {name: file, run: human, pic: kim, tasks: [{name: count, pic: lee}]}
";
    let server = Server::start().await;
    let kim = server.actor("kim", &["tasks:work"]).await;
    let lee = server.actor("lee", &["tasks:work"]).await;
    let admin = server.admin();
    admin.post_bytes("/v1/definitions", FILING).await.created();
    let run = admin.post("/v1/runs", json!({"definition": "filing", "input": {}})).await.created();
    let steps = format!("/v1/runs/{}/steps", run["run_id"].as_str().expect("an id"));
    assert_eq!(lee.get("/v1/worklist").await.ok()["items"], json!([]));
    kim.post(&format!("{steps}/file/claim"), json!({})).await.ok();
    let mine = lee.get("/v1/worklist").await.ok();
    assert_eq!((&mine["items"][0]["step"], &mine["items"][0]["state_code"]), (&json!("file/count"), &json!("ready")));

    let count = format!("{steps}/file%2Fcount");
    kim.post(&format!("{count}/claim"), json!({})).await.refused_at(403, "unauthorized", "step");
    let seen = lee.post(&format!("{count}/claim?preview=true"), json!({})).await.ok();
    assert_eq!((&seen["transition_id"], &seen["emitted_event_type"]), (&json!("T2"), &json!("task.started")));
    lee.post(&format!("{count}/claim"), json!({})).await.ok();
    kim.post(&format!("{steps}/file/complete"), json!({})).await.refused_at(409, "transition_refused_by_guard", "step");
    let done = lee.post(&format!("{count}/complete"), json!({"output": 3})).await.ok();
    assert_eq!(done, json!({"state_code": "completed", "state": "completed", "transition_id": "T8"}));

    let view = admin.get(steps.trim_end_matches("/steps")).await.ok();
    let task = &view["steps"][1];
    assert_eq!(
        (&task["role"], &task["task_of"], &task["name"]),
        (&json!("task"), &json!("file"), &json!("file/count"))
    );
    assert_eq!(view["steps"][0]["output"], json!({"count": 3}));
    assert_eq!(view["rollup"]["counts"]["green"], 1, "the step counts, not its task");
    let visits = admin.get(&format!("{count}/history")).await.ok()["visits"].clone();
    let last = visits.as_array().and_then(|visits| visits.last()).expect("a visit");
    assert_eq!((&last["actor_class"], &last["to_state"]), (&json!("task_pic_human"), &json!("completed")));
    assert_eq!(admin.post("/v1/ledger/verify-log", json!({})).await.ok()["result"], "verified");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_on_a_step_is_kept_for_ever() {
    let mut case = Case::open().await;
    let token = {
        let kim = json!({"actor_ref": "kim", "kind": "human"});
        let made = case.server.admin().post("/v1/actors", kim).await.created();
        let grant = json!({"subject_ref": "kim", "action_scope": "tasks:work"});
        case.server.admin().post("/v1/grants", grant).await.created();
        made["token"].as_str().expect("a token").to_owned()
    };
    let claim = case.path("investigate", "claim");
    let first = case.server.with_token(&token).post_keyed(&claim, "k1", json!({})).await.ok();
    let records = case.records().await;
    case.server.restart().await;
    case.server.pass_days(2);
    let kim = case.server.with_token(&token);
    assert_eq!(kim.post_keyed(&claim, "k1", json!({})).await.ok(), first);
    assert_eq!(case.records().await, records, "no second record");
    kim.post_keyed(&claim, "k1", json!({"reason": "again"})).await.refused_at(409, "conflict", "Idempotency-Key");
    kim.post(&claim, json!({})).await.refused(409, "invalid-transition");

    // Three days were given: late is late, whoever looks when.
    case.server.pass_days(2);
    let done = json!({"output": {"root_cause": "a leak", "severity": "major"}});
    let completed = kim.post_keyed(&case.path("investigate", "complete"), "k2", done).await.ok();
    assert_eq!(completed["state_code"], "completed");
    let step = case.step("investigate").await;
    assert_eq!(step["completed_after_deadline"], true);
    assert!(step["overdue_first_at"].is_string(), "{step}");
    assert!(step["sla_breach_duration"].as_str().expect("a length").starts_with("1d"), "{step}");
}
