//! Lists: filters, order and pages.

use crate::support::{Actor, Server};
use serde_json::{Value, json};

/// Every item, page by page.
async fn all(actor: &Actor, path: &str, limit: usize) -> Vec<Value> {
    let joint = if path.contains('?') { '&' } else { '?' };
    let (mut items, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = actor.get(&format!("{path}{joint}limit={limit}{cursor}")).await.ok();
        let found = page["items"].as_array().expect("items");
        assert!(found.len() <= limit);
        items.extend(found.iter().cloned());
        match page["next"].as_str() {
            None => return items,
            Some(next) => {
                assert_eq!(found.len(), limit, "a page that is not the last is full");
                cursor = format!("&cursor={next}");
            }
        }
    }
}

fn of<'i>(items: &'i [Value], member: &str) -> Vec<&'i str> {
    items.iter().map(|item| item[member].as_str().expect("text")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_follow_each_other_without_gap_or_repetition() {
    let server = Server::start().await;
    let admin = server.admin();
    let mut subjects = Vec::new();
    for n in 0..7 {
        subjects.push(format!("s{n}"));
        let id = admin.start_loop(&format!("s{n}")).await;
        admin.fire(&id, "go").await.ok();
        server.actor(&format!("actor-{n}"), &["workflows:read", "audit:read"]).await;
    }
    for limit in [1, 2, 3, 7, 500] {
        assert_eq!(of(&all(&admin, "/v1/processes", limit).await, "subject_ref"), subjects, "{limit}");
    }
    let descending = all(&admin, "/v1/processes?order=desc", 3).await;
    assert_eq!(of(&descending, "subject_ref"), subjects.iter().rev().collect::<Vec<_>>());

    let records = all(&admin, "/v1/ledger/records", 5).await;
    let ids = of(&records, "event_id");
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
    let newest = all(&admin, "/v1/ledger/records?order=desc", 4).await;
    assert_eq!(of(&newest, "event_id"), ids.iter().rev().copied().collect::<Vec<_>>());

    let actors = all(&admin, "/v1/actors", 2).await;
    let names = of(&actors, "actor_ref");
    assert_eq!((names.len(), names[0], names[8]), (10, "actor-0", "countersign"));
    let grants = all(&admin, "/v1/grants?action_scope=audit:read", 3).await;
    assert_eq!(of(&grants, "subject_ref").len(), 8);
    assert_eq!(of(&all(&admin, "/v1/grants", 6).await, "grant_id").len(), 18 + 15);
    assert_eq!(all(&admin, "/v1/grants?subject_ref=actor-3", 1).await.len(), 2);

    let next = admin.get("/v1/processes?limit=1").await.ok()["next"].as_str().expect("a cursor").to_owned();
    for path in ["/v1/ledger/records", "/v1/grants", "/v1/actors", "/v1/processes?order=desc"] {
        let joint = if path.contains('?') { '&' } else { '?' };
        admin.get(&format!("{path}{joint}cursor={next}")).await.refused_at(400, "invalid-query", "cursor");
    }
    admin.get(&format!("/v1/processes?cursor={next}00")).await.refused_at(400, "invalid-query", "cursor");
    assert_eq!(admin.get("/v1/processes").await.ok()["next"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_all_hold_and_what_matches_nothing_is_empty() {
    let server = Server::start().await;
    let admin = server.admin();
    let starter = server.actor("starter", &["workflows:start"]).await;
    let first = admin.start_loop("batch").await;
    let second = starter.start_loop("batch").await;
    let view = admin.get(&format!("/v1/processes/{first}")).await.ok();
    let at = view["started_at"].as_str().expect("a time");
    let later = admin.get(&format!("/v1/processes/{second}")).await.ok();
    let later = later["started_at"].as_str().expect("a time");
    let ids = async |query: &str| -> Vec<String> {
        let page = admin.get(&format!("/v1/processes?{query}")).await.ok();
        of(page["items"].as_array().expect("items"), "instance_id").into_iter().map(str::to_owned).collect()
    };
    assert_eq!(ids("subject_ref=batch").await, [first.as_str(), second.as_str()]);
    assert_eq!(ids("subject_ref=batch&initiator_ref=starter").await, [second.as_str()]);
    assert_eq!(ids(&format!("instance_id={first}")).await, [first.as_str()]);
    // Both ends of a range are in it.
    assert_eq!(ids(&format!("started_after={at}&started_before={at}")).await, [first.as_str()]);
    assert_eq!(ids(&format!("started_after={later}")).await, [second.as_str()]);
    for nothing in [
        "subject_ref=Batch",
        "instance_id=x",
        "instance_id=00000000-0000-0000-0000-000000000000",
        "started_before=1999-01-01T00:00:00Z",
    ] {
        assert_eq!(ids(nothing).await, Vec::<String>::new(), "{nothing}");
    }
    for (query, field) in [
        ("subject=x", "subject"),
        ("subject_ref=", "subject_ref"),
        ("subject_ref=a&subject_ref=b", "subject_ref"),
        ("started_after=now", "started_after"),
        ("limit=0", "limit"),
        ("order=up", "order"),
        ("cursor=x", "cursor"),
    ] {
        admin.get(&format!("/v1/processes?{query}")).await.refused_at(400, "invalid-query", field);
    }
    let reversed = format!("/v1/processes?started_after={later}&started_before={at}");
    admin.get(&reversed).await.refused_at(400, "invalid-query", "started_before");
    admin.get(&format!("/v1/processes/{first}?full=1")).await.refused_at(400, "invalid-query", "full");
    let refused = admin.get("/v1/processes?subject=x").await;
    assert!(refused.body["detail"].as_str().is_some_and(|said| said.contains("did you mean `subject_ref`?")));
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_are_listed_by_name_and_kept_in_every_version() {
    let server = Server::start().await;
    let admin = server.admin();
    let document = |name: &str, state: &str| {
        format!(
            "{{kind: process, name: {name}, states: [{state}], initial_state: {state}, terminal_states: [], transitions: []}}"
        )
    };
    for (name, state, version) in
        [("validate", "a", 1), ("b.two", "a", 1), ("a", "a", 1), ("validate", "b", 2), ("validate", "a", 3)]
    {
        let published = admin.post_bytes("/v1/definitions", document(name, state)).await.created();
        assert_eq!((&published["name"], &published["version"]), (&json!(name), &json!(version)));
    }
    let listed = all(&admin, "/v1/definitions", 2).await;
    assert_eq!(of(&listed, "name"), ["a", "b.two", "validate"]);
    assert_eq!((&listed[2]["version"], &listed[2]["kind"]), (&json!(3), &json!("process")));
    assert_eq!((&listed[2]["published_by"], listed[2].get("document")), (&json!("admin"), None));
    assert_eq!(admin.get("/v1/definitions/validate").await.ok()["version"], 3);
    let second = admin.get("/v1/definitions/validate/versions/2").await.ok();
    assert_eq!(second["document"], document("validate", "b"));
    for version in ["0", "4", "01", "+1", "x", "99999999999"] {
        admin.get(&format!("/v1/definitions/validate/versions/{version}")).await.refused(404, "not-known");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stores_behind_the_gates_can_be_searched() {
    let server = Server::start().await;
    let admin = server.admin();
    let approver = server.actor("approver", &[]).await;
    let body = json!({
        "declaration": {
            "states": ["a", "b"],
            "transitions": [
                {"from": "a", "action": "one", "to": "b", "guard": "g"},
                {"from": "a", "action": "two", "to": "b", "guard": "h"},
            ],
            "initial_state": "a", "terminal_states": ["b"],
        },
        "subject_ref": "s",
        "gate_spec": {"g": {"approver_ref": "approver", "scope": "x"}, "h": {"approver_ref": "approver", "scope": "y"}},
    });
    let id = admin.post("/v1/processes", body).await.created()["instance_id"].as_str().expect("an id").to_owned();
    let one = admin.open_gate(&id, "one").await.created();
    let two = admin.open_gate(&id, "two").await.created();
    approver.decide(&id, "one", json!({"decision": "approve", "reason": "fine"})).await.ok();

    let steps = async |query: &str| admin.get(&format!("/v1/approval-steps?{query}")).await.ok()["items"].clone();
    let found = steps("state=Approved").await;
    assert_eq!((found.as_array().map(Vec::len), &found[0]["step_id"]), (Some(1), &one["step_id"]));
    assert_eq!((&found[0]["subject_ref"], &found[0]["decision_reason"]), (&json!("s:one"), &json!("fine")));
    assert!(found[0].get("withdrawn_at").is_none() && found[0].get("chain_id").is_none());
    let decided_at = found[0]["decided_at"].as_str().expect("a time");
    for (query, step) in [
        (format!("step_id={}", two["step_id"].as_str().expect("an id")), &two),
        ("scope=y".to_owned(), &two),
        ("subject_ref=s:two".to_owned(), &two),
        (format!("decided_after={decided_at}&decided_before={decided_at}"), &one),
        (format!("approver_ref=approver&submitter_ref=admin&instance_id={id}&state=Pending"), &two),
    ] {
        let found = steps(&query).await;
        assert_eq!((found.as_array().map(Vec::len), &found[0]["step_id"]), (Some(1), &step["step_id"]), "{query}");
    }
    assert_eq!(steps("approver_ref=admin").await, json!([]));
    assert_eq!(steps("withdrawn_after=2020-01-01T00:00:00Z").await, json!([]));
    assert_eq!(steps("submitted_after=2020-01-01T00:00:00Z").await.as_array().map(Vec::len), Some(2));

    let assignments = async |query: &str| admin.get(&format!("/v1/assignments?{query}")).await.ok()["items"].clone();
    let active = assignments("status=Active&assignee_ref=approver").await;
    assert_eq!((active.as_array().map(Vec::len), &active[0]["assignment_id"]), (Some(1), &two["assignment_id"]));
    let recalled = assignments(&format!("task_ref={}", one["step_id"].as_str().expect("an id"))).await;
    assert_eq!((&recalled[0]["status"], &recalled[0]["recalled_at"]), (&json!("Recalled"), &json!(decided_at)));
    let by_id = assignments(&format!("assignment_id={}", one["assignment_id"].as_str().expect("an id"))).await;
    assert_eq!(by_id, recalled);
    admin.get("/v1/assignments?status=active").await.refused_at(400, "invalid-query", "status");
    admin.get("/v1/approval-steps?state=open").await.refused_at(400, "invalid-query", "state");
}

#[tokio::test(flavor = "multi_thread")]
async fn grants_are_listed_as_they_were_at_a_time() {
    let server = Server::start().await;
    let admin = server.admin();
    let holder = server.actor("holder", &["workflows:fire"]).await;
    let only = admin.get("/v1/grants?subject_ref=holder").await.ok()["items"][0].clone();
    let grant_id = only["grant_id"].as_str().expect("an id");
    admin.post(&format!("/v1/grants/{grant_id}/revoke"), json!({})).await.ok();
    let revoked = admin.get("/v1/grants?subject_ref=holder").await.ok()["items"][0].clone();
    let time = |name: &str| revoked[name].as_str().expect("a time").to_owned();
    let (granted_at, revoked_at) = (time("granted_at"), time("revoked_at"));
    let at =
        async |time: &str| holder.get(&format!("/v1/grants?subject_ref=holder&at={time}")).await.ok()["items"].clone();
    // From the moment it was granted, up to and without the moment it was revoked; what it is today stands beside.
    assert_eq!(at(&granted_at).await, json!([revoked]));
    assert_eq!(at(&revoked_at).await, json!([]));
    assert_eq!(at("2020-01-01T00:00:00Z").await, json!([]));
    let all = admin.get(&format!("/v1/grants?action_scope=workflows:fire&at={granted_at}")).await.ok();
    assert_eq!(of(all["items"].as_array().expect("items"), "subject_ref"), ["admin", "holder"]);
    let all = admin.get(&format!("/v1/grants?action_scope=workflows:fire&at={revoked_at}")).await.ok();
    assert_eq!(of(all["items"].as_array().expect("items"), "subject_ref"), ["admin"]);
    admin.get("/v1/grants?at=yesterday").await.refused_at(400, "invalid-query", "at");
    holder.get(&format!("/v1/grants?at={granted_at}")).await.refused(403, "permission-denied");
    let description = server.nobody().get("/openapi.json").await.ok();
    let parameters = description["paths"]["/v1/grants"]["get"]["parameters"].as_array().expect("parameters").clone();
    let described = parameters.iter().find(|parameter| parameter["name"] == "at").expect("it is described");
    assert_eq!(described["schema"]["format"], "date-time");
}
