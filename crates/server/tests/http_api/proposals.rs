//! Proposals: a change takes effect with its approval, exactly as it was approved, and once. On SQLite and on a real PostgreSQL
//! (`scripts/with-postgres.sh`).

use crate::signed::Hand;
use crate::support::{Actor, Answer, Server};
use crate::webhooks::{database, on_both};
use countersign_server::outbox::Pace;
use reqwest::Method;
use serde_json::{Value, json};

on_both! {
    from_a_draft_to_the_version_that_it_publishes,
    a_draft_is_edited_by_its_proposer_and_by_nobody_else,
    a_quorum_approves_without_the_proposer,
    a_rejection_ends_a_proposal,
    a_base_that_is_not_the_newest_version_is_a_conflict,
    who_is_no_person_never_merges,
    another_kind_is_applied_elsewhere,
    what_cannot_be_proposed_is_refused,
    proposals_are_signed_on_a_regulated_server,
    two_nodes_that_merge_at_once_publish_one_version,
    a_merge_whose_answer_was_lost_is_answered_again,
}

const CONFIG: &str = "[governance.proposals]\napprovers = [\"chief\"]\n";

/// The document of a process with this many states besides its first, and with this entry for its next version.
fn document(states: usize, publish: Option<&str>) -> String {
    let names: Vec<String> = (1..=states).map(|n| format!("s{n}")).collect();
    let publish = publish.map_or_else(String::new, |entry| format!("gate_spec: {{publish: {entry}}}\n"));
    format!(
        "kind: process\nname: refund\nstates: [open, {}]\ninitial_state: open\nterminal_states: [s1]\ntransitions:\n  \
         - {{from: open, action: end, to: s1}}\n{publish}",
        names.join(", ")
    )
}

const CHIEF: &str = "{approver_ref: chief, scope: refunds}";

async fn server(store: Option<String>) -> Server {
    Server::with(Some(CONFIG.to_owned()), store, Pace::default()).await
}

fn proposal(base: u32, document: &str) -> Value {
    json!({"proposal_kind": "process", "target": "refund", "base_version": base, "document": document,
        "affected": ["ticket-7"], "reason": "a second way to end"})
}

fn changed(base: u32, document: &str) -> Value {
    json!({"base_version": base, "document": document, "affected": [], "reason": "again"})
}

async fn propose(actor: &Actor, body: Value) -> String {
    let made = actor.post("/v1/proposals", body).await.created();
    assert_eq!(made["state"], "draft");
    made["proposal_id"].as_str().expect("an id").to_owned()
}

async fn act(actor: &Actor, id: &str, what: &str, body: Value) -> Answer {
    actor.post(&format!("/v1/proposals/{id}/{what}"), body).await
}

async fn edit(actor: &Actor, id: &str, body: Value) -> Answer {
    Answer::of(actor.request(Method::PUT, &format!("/v1/proposals/{id}")).json(&body)).await
}

async fn view(actor: &Actor, id: &str) -> Value {
    actor.get(&format!("/v1/proposals/{id}")).await.ok()
}

/// Submitted and in review.
async fn asked(actor: &Actor, id: &str) {
    assert_eq!(act(actor, id, "submit", json!({})).await.ok()["state"], "submitted");
    assert_eq!(act(actor, id, "review", json!({})).await.ok()["state"], "review");
}

async fn approve(actor: &Actor, id: &str) -> Value {
    actor.decide(id, "approve", json!({"decision": "approve"})).await.ok()
}

async fn verify(server: &Server) {
    let report = server.admin().post("/v1/ledger/verify-log", json!({})).await.ok();
    assert_eq!(report["result"], "verified", "{report:#}");
}

async fn records(server: &Server, query: &str) -> Vec<Value> {
    let page = server.admin().get(&format!("/v1/ledger/records?limit=500&{query}")).await.ok();
    page["items"].as_array().expect("a list").clone()
}

const AUTHOR: &[&str] = &["proposals:write"];

async fn from_a_draft_to_the_version_that_it_publishes(store: Option<String>) {
    let server = server(store).await;
    let (first, second) = (document(1, Some(CHIEF)), document(2, Some(CHIEF)));
    let admin = server.admin();
    admin.post_bytes("/v1/definitions", first.as_bytes()).await.created();
    let (ann, chief) = (server.actor("ann", AUTHOR).await, server.actor("chief", &[]).await);
    let id = propose(&ann, proposal(1, &second)).await;
    // Whoever may publish still may not publish that.
    admin.post_bytes("/v1/definitions", second.as_bytes()).await.refused_at(409, "gate-not-cleared", "name");

    act(&ann, &id, "merge", json!({})).await.refused(409, "gate-not-cleared");
    act(&ann, &id, "review", json!({})).await.refused(409, "invalid-transition");
    asked(&ann, &id).await;
    // Nothing but its own commands moves it.
    admin.fire(&id, "reject").await.refused(409, "invalid-transition");
    admin.open_gate(&id, "approve").await.refused(409, "invalid-transition");
    let tray = chief.get("/v1/inbox").await.ok()["items"].clone();
    let request = tray[0]["request"].clone();
    let digest = view(&ann, &id).await["digest"].clone();
    assert_eq!((&request["digest"], &request["base_version"]), (&digest, &json!(1)), "{tray:#}");
    // Who is asked reads what about.
    assert_eq!(view(&chief, &id).await["document"], second);
    let diff = chief.get(&format!("/v1/proposals/{id}/diff")).await.ok();
    assert_eq!((&diff["base"]["added"], &diff["needs_rebase"]), (&json!(["s2"]), &json!(false)), "{diff:#}");

    ann.decide(&id, "approve", json!({"decision": "approve"})).await.refused(403, "unauthorized");
    approve(&chief, &id).await;
    assert_eq!(view(&ann, &id).await["state"], "approved");
    // An author who may not publish does not merge.
    act(&ann, &id, "merge", json!({})).await.refused(403, "permission-denied");
    let merged = act(&admin, &id, "merge", json!({})).await.ok();
    assert_eq!(merged, json!({"state": "merged", "name": "refund", "version": 2, "digest": digest}));
    assert_eq!(act(&admin, &id, "merge", json!({})).await.ok(), merged, "it happened once");
    assert_eq!(admin.get("/v1/definitions/refund").await.ok()["document"], second);
    act(&ann, &id, "withdraw", json!({})).await.refused(409, "terminal");

    let published = records(&server, "action_ref=definition_published").await;
    let gate = view(&ann, &id).await["gates"][0]["step_id"].clone();
    assert_eq!(published[1]["payload"]["proposal"], json!({"instance_id": id, "step_id": gate}));
    assert_eq!(published[1]["payload"]["publish"]["approver_ref"], "chief");
    let fired = records(&server, &format!("instance_id={id}&action_ref=transition_fired")).await;
    let said: Vec<_> = fired.iter().map(|record| record["payload"]["action"].as_str().expect("text")).collect();
    assert_eq!(said, ["submit", "review", "approve", "merge"]);
    assert_eq!(fired[3]["payload"]["merged"], json!({"name": "refund", "version": 2, "digest": digest}));
    verify(&server).await;
}

async fn a_draft_is_edited_by_its_proposer_and_by_nobody_else(store: Option<String>) {
    let mut server = server(store).await;
    let (ann, ben) = (server.actor("ann", AUTHOR).await, server.actor("ben", AUTHOR).await);
    let chief = server.actor("chief", &[]).await;
    let id = propose(&ann, proposal(0, &document(1, None))).await;
    edit(&ben, &id, changed(0, "x")).await.refused(403, "unauthorized");
    act(&ben, &id, "submit", json!({})).await.refused(403, "unauthorized");
    act(&ben, &id, "withdraw", json!({})).await.refused(403, "unauthorized");
    assert_eq!(edit(&ann, &id, changed(0, "no definition")).await.ok()["state"], "draft");
    let diff = ann.get(&format!("/v1/proposals/{id}/diff")).await.ok();
    assert!(!diff["problems"].as_array().expect("a list").is_empty(), "{diff:#}");
    act(&ann, &id, "submit", json!({})).await.refused(400, "invalid-definition");
    edit(&ann, &id, changed(0, &document(1, None).replace("refund", "other"))).await.ok();
    act(&ann, &id, "submit", json!({})).await.refused_at(400, "invalid-definition", "document");
    edit(&ann, &id, changed(0, &document(3, None))).await.ok();
    asked(&ann, &id).await;
    act(&ben, &id, "comments", json!({"text": "why three?"})).await.ok();
    act(&ben, &id, "comments", json!({"text": " "})).await.refused_at(400, "invalid-request", "text");
    approve(&chief, &id).await;
    // An approval is of what was proposed: changed, it counts no more.
    edit(&ann, &id, changed(0, &document(4, None))).await.ok();
    act(&server.admin(), &id, "merge", json!({})).await.refused(409, "gate-not-cleared");
    server.restart().await;
    let (ann, admin, chief) = (server.with_token(&ann.token()), server.admin(), server.with_token(&chief.token()));
    let seen = view(&ann, &id).await;
    assert_eq!((&seen["state"], &seen["document"]), (&json!("draft"), &json!(document(4, None))));
    assert_eq!(seen["versions"].as_array().expect("a list").len(), 5);
    assert_eq!((&seen["comments"][0]["by"], &seen["comments"][0]["text"]), (&json!("ben"), &json!("why three?")));
    asked(&ann, &id).await;
    approve(&chief, &id).await;
    assert_eq!(act(&admin, &id, "merge", json!({})).await.ok()["version"], 1);
    assert_eq!(admin.get("/v1/definitions/refund").await.ok()["document"], document(4, None));
    verify(&server).await;
}

async fn a_quorum_approves_without_the_proposer(store: Option<String>) {
    let server = server(store).await;
    let admin = server.admin();
    let board = "{approvers: [ann, ben, cleo], quorum: {rule: m-of-n, m: 2}, scope: refunds}";
    admin.post_bytes("/v1/definitions", document(1, Some(board))).await.created();
    let [ann, ben, cleo] =
        [server.actor("ann", AUTHOR).await, server.actor("ben", &[]).await, server.actor("cleo", &[]).await];
    let id = propose(&ann, proposal(1, &document(2, Some(board)))).await;
    assert_eq!(view(&ann, &id).await["approvers"], json!(["ben", "cleo"]));
    asked(&ann, &id).await;
    assert_eq!(ann.get("/v1/inbox").await.ok()["items"], json!([]));
    ann.decide(&id, "approve", json!({"decision": "approve"})).await.refused(403, "unauthorized");
    approve(&ben, &id).await;
    assert_eq!(view(&ann, &id).await["state"], "review");
    // The proposer withdraws the question, and it is asked again.
    ann.decide(&id, "approve", json!({"decision": "withdraw", "reason": "wait"})).await.ok();
    assert_eq!(act(&ann, &id, "review", json!({})).await.ok()["state"], "review");
    approve(&ben, &id).await;
    approve(&cleo, &id).await;
    assert_eq!(view(&ann, &id).await["state"], "approved");
    assert_eq!(act(&admin, &id, "merge", json!({})).await.ok()["version"], 2);
    // Where the rest is too few, nobody could approve.
    let both = "{approvers: [ann, ben], quorum: {rule: m-of-n, m: 2}, scope: refunds}";
    let own = "kind: process\nname: own\nstates: [a, b]\ninitial_state: a\nterminal_states: [b]\ntransitions: []\n";
    admin.post_bytes("/v1/definitions", format!("{own}gate_spec: {{publish: {both}}}\n")).await.created();
    let mut body = proposal(1, own);
    body["target"] = json!("own");
    ann.post("/v1/proposals", body).await.refused(409, "gate-not-available");
    verify(&server).await;
}

async fn a_rejection_ends_a_proposal(store: Option<String>) {
    let server = server(store).await;
    let (ann, chief) = (server.actor("ann", AUTHOR).await, server.actor("chief", &[]).await);
    let id = propose(&ann, proposal(0, &document(1, None))).await;
    asked(&ann, &id).await;
    let no = json!({"decision": "reject", "reason": "not now"});
    assert_eq!(chief.decide(&id, "approve", no).await.ok()["outcome"], "rejected_outcome");
    assert_eq!(view(&ann, &id).await["state"], "rejected");
    edit(&ann, &id, changed(0, &document(2, None))).await.refused(409, "terminal");
    let other = propose(&ann, proposal(0, &document(1, None))).await;
    asked(&ann, &other).await;
    act(&ann, &other, "withdraw", json!({"reason": "a mistake"})).await.ok();
    assert_eq!(chief.get("/v1/inbox").await.ok()["items"], json!([]), "nothing is left to decide");

    let ids = async |query: &str| -> Vec<String> {
        let page = ann.get(&format!("/v1/proposals?{query}")).await.ok();
        let items = page["items"].as_array().expect("a list").iter();
        items.map(|item| item["proposal_id"].as_str().expect("an id").to_owned()).collect()
    };
    assert_eq!(ids("state=rejected").await, std::slice::from_ref(&id));
    assert_eq!(ids("kind=process&target=refund").await, [id.clone(), other.clone()]);
    assert_eq!(ids("target=refund&order=desc").await, [other, id]);
    assert_eq!(ids("kind=workflow").await, [""; 0]);
    ann.get("/v1/proposals?state=lost").await.refused_at(400, "invalid-query", "state");
    server.actor("zoe", &[]).await.get("/v1/proposals").await.refused(403, "permission-denied");
    verify(&server).await;
}

async fn a_base_that_is_not_the_newest_version_is_a_conflict(store: Option<String>) {
    let server = server(store).await;
    let admin = server.admin();
    admin.post_bytes("/v1/definitions", document(1, None)).await.created();
    let (ann, chief) = (server.actor("ann", AUTHOR).await, server.actor("chief", &[]).await);
    let id = propose(&ann, proposal(1, &document(3, None))).await;
    asked(&ann, &id).await;
    approve(&chief, &id).await;
    admin.post_bytes("/v1/definitions", document(2, None)).await.created();
    act(&admin, &id, "merge", json!({})).await.refused_at(409, "conflict", "base_version");
    let diff = ann.get(&format!("/v1/proposals/{id}/diff")).await.ok();
    assert_eq!((&diff["needs_rebase"], &diff["newest_version"]), (&json!(true), &json!(2)));
    assert_eq!(diff["base"]["added"], json!(["s2", "s3"]), "{diff:#}");
    assert_eq!(diff["newest"]["added"], json!(["s3"]), "{diff:#}");
    edit(&ann, &id, changed(2, &document(3, None))).await.ok();
    act(&admin, &id, "merge", json!({})).await.refused(409, "gate-not-cleared");
    asked(&ann, &id).await;
    approve(&chief, &id).await;
    assert_eq!(act(&admin, &id, "merge", json!({})).await.ok()["version"], 3);
    verify(&server).await;
}

async fn service(server: &Server, name: &str, scopes: &[&str]) -> Actor {
    let admin = server.admin();
    let made = admin.post("/v1/actors", json!({"actor_ref": name, "kind": "service"})).await.created();
    for scope in scopes {
        admin.post("/v1/grants", json!({"subject_ref": name, "action_scope": scope})).await.created();
    }
    server.with_token(made["token"].as_str().expect("a token"))
}

async fn who_is_no_person_never_merges(store: Option<String>) {
    let server = server(store).await;
    let chief = server.actor("chief", &[]).await;
    let robot = service(&server, "robot", &["proposals:write", "definitions:publish"]).await;
    let of = |class: Option<&str>, evidence: Option<&str>| {
        let mut body = proposal(0, &document(1, None));
        body["proposer_class"] = json!(class);
        body["evidence_ref"] = json!(evidence);
        body
    };
    robot.post("/v1/proposals", of(Some("human"), None)).await.refused_at(400, "invalid-request", "proposer_class");
    robot.post("/v1/proposals", of(Some("ghost"), None)).await.refused_at(400, "invalid-request", "proposer_class");
    robot.post("/v1/proposals", of(Some("ai_agent"), None)).await.refused_at(400, "invalid-request", "evidence_ref");
    let id = propose(&robot, of(Some("ai_agent"), Some("run-9"))).await;
    assert_eq!(view(&robot, &id).await["proposer_class"], "ai_agent");
    asked(&robot, &id).await;
    approve(&chief, &id).await;
    act(&robot, &id, "merge", json!({})).await.refused(403, "unauthorized");
    let other = service(&server, "other", &["proposals:write", "definitions:publish"]).await;
    act(&other, &id, "merge", json!({})).await.refused(403, "unauthorized");
    assert_eq!(act(&server.admin(), &id, "merge", json!({})).await.ok()["version"], 1);

    // A person may speak for an agent; then a person other than that one merges.
    let ann = server.actor("ann", &["proposals:write", "definitions:publish"]).await;
    let mut body = of(Some("kg_feedback"), Some("usage-3"));
    body["base_version"] = json!(1);
    body["document"] = json!(document(2, None));
    let id = propose(&ann, body).await;
    asked(&ann, &id).await;
    approve(&chief, &id).await;
    act(&ann, &id, "merge", json!({})).await.refused(403, "unauthorized");
    assert_eq!(act(&server.admin(), &id, "merge", json!({})).await.ok()["version"], 2);
    let plain = propose(&robot, {
        let mut body = of(None, None);
        body["base_version"] = json!(2);
        body
    })
    .await;
    assert_eq!(view(&robot, &plain).await["proposer_class"], "service");
    verify(&server).await;
}

async fn another_kind_is_applied_elsewhere(store: Option<String>) {
    let server = server(store).await;
    let (ann, chief) = (server.actor("ann", AUTHOR).await, server.actor("chief", &[]).await);
    let body = json!({"proposal_kind": "iu_split", "target": "iu-12", "base_version": 4, "affected": ["iu-12", "iu-13"],
        "proposed_action": {"split": ["a", "b"]}, "evidence_ref": "usage-1", "reason": "two topics"});
    let id = propose(&ann, body).await;
    act(&ann, &id, "diff", json!({})).await.refused(405, "invalid-request");
    ann.get(&format!("/v1/proposals/{id}/diff")).await.refused(400, "invalid-request");
    asked(&ann, &id).await;
    approve(&chief, &id).await;
    act(&ann, &id, "merge", json!({})).await.refused_at(400, "invalid-request", "evidence_ref");
    let merged = act(&ann, &id, "merge", json!({"evidence_ref": "job-5"})).await.ok();
    assert_eq!(merged, json!({"state": "merged"}));
    let seen = view(&ann, &id).await;
    assert_eq!((&seen["merged"]["evidence_ref"], &seen["state"]), (&json!("job-5"), &json!("merged")));
    assert_eq!(seen["proposed_action"], json!({"split": ["a", "b"]}));
    verify(&server).await;
}

async fn what_cannot_be_proposed_is_refused(store: Option<String>) {
    let server = Server::with(None, store, Pace::default()).await;
    let ann = server.actor("ann", AUTHOR).await;
    let good = proposal(0, &document(1, None));
    ann.post("/v1/proposals", good.clone()).await.refused(409, "gate-not-available");
    server.admin().post_bytes("/v1/definitions", document(1, Some(CHIEF))).await.created();
    let with = |name: &str, value: Value| {
        let mut body = proposal(1, &document(2, None));
        body[name] = value;
        body
    };
    for (body, status, code, field) in [
        (with("proposal_kind", json!("")), 400, "invalid-request", "proposal_kind"),
        (with("proposal_kind", json!("a/b")), 400, "invalid-request", "proposed_action"),
        (with("proposal_kind", json!("workflow")), 409, "conflict", "target"),
        (with("target", json!(" ")), 400, "invalid-request", "target"),
        (with("base_version", json!(7)), 404, "not-known", "base_version"),
        (with("base_version", json!(-1)), 400, "invalid-request", "base_version"),
        (with("document", Value::Null), 400, "invalid-request", "document"),
        (with("reason", json!("")), 400, "invalid-request", "reason"),
        (with("affected", json!([""])), 400, "invalid-request", "affected[0]"),
        (with("evidence_ref", json!("")), 400, "invalid-request", "evidence_ref"),
        (with("reason", json!("x".repeat(70_000))), 400, "invalid-request", "reason"),
        (with("unheard", json!(1)), 400, "invalid-request", "unheard"),
    ] {
        ann.post("/v1/proposals", body).await.refused_at(status, code, field);
    }
    let zoe = server.actor("zoe", &[]).await;
    zoe.post("/v1/proposals", with("reason", json!("x"))).await.refused(403, "permission-denied");
    let id = propose(&ann, with("reason", json!("x"))).await;
    for nothing in ["nothing", "0193c0de-0000-7000-8000-000000000000"] {
        ann.get(&format!("/v1/proposals/{nothing}")).await.refused(404, "not-known");
        act(&ann, nothing, "submit", json!({})).await.refused(404, "not-known");
        act(&ann, nothing, "merge", json!({})).await.refused(404, "not-known");
        zoe.get(&format!("/v1/proposals/{nothing}")).await.refused(403, "permission-denied");
    }
    zoe.get(&format!("/v1/proposals/{id}")).await.refused(403, "permission-denied");
    act(&zoe, &id, "submit", json!({})).await.refused(403, "permission-denied");
    // A process that looks like one is none.
    let process = server.admin().start_loop("refund").await;
    ann.get(&format!("/v1/proposals/{process}")).await.refused(404, "not-known");
    // Where the approver is the proposer, nobody else could approve.
    let chief = server.actor("chief", AUTHOR).await;
    chief.post("/v1/proposals", with("reason", json!("x"))).await.refused(409, "gate-not-available");
}

async fn proposals_are_signed_on_a_regulated_server(store: Option<String>) {
    let mut server = server(store).await;
    let chief = Hand::new(&server, "chief", 1, &[]).await;
    let ann = Hand::new(&server, "ann", 2, &["proposals:write", "definitions:publish"]).await;
    server.configure(&format!("{CONFIG}[regulated]\nenabled = true\n")).await;
    let (ann, chief) = (ann.at(&server), chief.at(&server));
    let body = proposal(0, &document(1, None));
    ann.actor.post("/v1/proposals", body.clone()).await.refused(401, "invalid-credential");
    let made = ann.signed("propose", "/v1/proposals", body).await.created();
    let id = made["proposal_id"].as_str().expect("an id");
    let path = |what: &str| format!("/v1/proposals/{id}/{what}");
    for (action, what, body) in [
        ("comment_proposal", "comments", json!({"text": "look"})),
        ("submit_proposal", "submit", json!({})),
        ("review_proposal", "review", json!({"reason": "please"})),
    ] {
        ann.signed(action, &path(what), body).await.ok();
    }
    let decide = format!("/v1/processes/{id}/gates/approve/decision");
    chief.signed("decide_gate", &decide, json!({"decision": "approve"})).await.ok();
    act(&ann.actor, id, "merge", json!({})).await.refused(401, "invalid-credential");
    assert_eq!(ann.signed("merge_proposal", &path("merge"), json!({})).await.ok()["version"], 1);
    let published = records(&server, "action_ref=definition_published").await;
    assert_eq!(published[0]["assurance"], "actor_signed");
    verify(&server).await;
}

async fn two_nodes_that_merge_at_once_publish_one_version(store: Option<String>) {
    let is_shared = store.is_some();
    let server = server(store).await;
    let (ann, chief) = (server.actor("ann", AUTHOR).await, server.actor("chief", &[]).await);
    let other = match is_shared {
        true => Some(server.beside().await),
        false => None,
    };
    let id = propose(&ann, proposal(0, &document(1, None))).await;
    let rival = propose(&ann, proposal(0, &document(2, None))).await;
    for id in [&id, &rival] {
        asked(&ann, id).await;
        approve(&chief, id).await;
    }
    let (here, there) = (server.admin(), other.as_ref().unwrap_or(&server).with_token(&server.admin().token()));
    let merges: Vec<_> = (0..8)
        .map(|n| {
            let (actor, id) = (if n % 2 == 0 { here.clone() } else { there.clone() }, if n < 4 { &id } else { &rival });
            let path = format!("/v1/proposals/{id}/merge");
            tokio::spawn(async move { actor.post(&path, json!({})).await })
        })
        .collect();
    let mut answers = vec![];
    for merge in merges {
        answers.push(merge.await.expect("an answer"));
    }
    let won: Vec<_> = answers.into_iter().filter(|answer| answer.status == 200).map(|answer| answer.body).collect();
    assert_eq!(won.len(), 4, "one proposal was merged, however often it was asked for: {won:?}");
    assert!(won.iter().all(|answer| *answer == won[0] && answer["version"] == 1), "{won:?}");
    assert_eq!(here.get("/v1/definitions/refund/versions").await.ok()["items"].as_array().map(Vec::len), Some(1));
    let states = [view(&ann, &id).await["state"].clone(), view(&ann, &rival).await["state"].clone()];
    assert!(states.contains(&json!("merged")) && states.contains(&json!("approved")), "{states:?}");
    verify(&server).await;
}

async fn a_merge_whose_answer_was_lost_is_answered_again(store: Option<String>) {
    let mut server = server(store).await;
    let (ann, chief) = (server.actor("ann", AUTHOR).await, server.actor("chief", &[]).await);
    let id = propose(&ann, proposal(0, &document(1, None))).await;
    asked(&ann, &id).await;
    approve(&chief, &id).await;
    let path = format!("/v1/proposals/{id}/merge");
    let first = server.admin().post_keyed(&path, "merge-1", json!({})).await.ok();
    server.restart().await;
    assert_eq!(server.admin().post_keyed(&path, "merge-1", json!({})).await.ok(), first);
    assert_eq!(server.admin().post(&path, json!({})).await.ok(), first);
    let published = records(&server, "action_ref=definition_published").await;
    assert_eq!(published.len(), 1);
    verify(&server).await;
}
