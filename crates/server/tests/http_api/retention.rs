//! Holds and purges over HTTP: the shapes of their answers, the lists, and what a reader sees of a purged record.

use crate::support::Server;
use serde_json::{Value, json};

const YEAR: &str = "audit_trail_retention_policy = \"year\"\n\
    [retention.policies.year]\nduration = \"365d\"\nmax_purge_delay = \"0s\"\n";

async fn record_of(admin: &crate::support::Actor, process: &str, action_ref: &str) -> Value {
    let found = admin.get(&format!("/v1/ledger/records?instance_id={process}&action_ref={action_ref}")).await.ok();
    found["items"][0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_held_released_and_purged() {
    let server = Server::with_config(Some(YEAR)).await;
    let admin = server.admin();
    let process = admin.start_loop("Mrs Smith").await;
    let start = record_of(&admin, &process, "workflow_started").await;
    assert_eq!(start["retention"]["state"], "Retained");
    let event_id = start["event_id"].as_str().expect("an id");
    let purge = format!("/v1/ledger/records/{event_id}/purge");

    let body = json!({"record_ref": event_id, "reason": "Smith v. us", "case_ref": "C-17"});
    let held = admin.post("/v1/ledger/holds", body).await.created();
    let hold_id = held["hold_id"].as_str().expect("an id").to_owned();
    admin.post(&purge, json!({})).await.refused_at(409, "not-eligible", "event_id");
    server.pass_days(366);
    admin.post(&purge, json!({})).await.refused_at(409, "under-legal-hold", "event_id");

    let listed = admin.get("/v1/ledger/holds?case_ref=C-17&state=Active").await.ok();
    let hold = &listed["items"][0];
    assert_eq!((&hold["hold_id"], &hold["record_ref"]), (&json!(hold_id), &json!(event_id)));
    assert_eq!(
        (&hold["placed_by"], &hold["reason"], &hold["state"]),
        (&json!("admin"), &json!("Smith v. us"), &json!("Active"))
    );
    assert_eq!(admin.get("/v1/ledger/holds?state=Released").await.ok()["items"], json!([]));
    assert_eq!(admin.get("/v1/ledger/holds?record_ref=nobody").await.ok()["items"], json!([]));
    let purgeable = admin.get("/v1/ledger/purgeable").await.ok();
    let first = &purgeable["items"][0];
    assert_eq!((&first["event_id"], &first["holds"][0]["hold_id"]), (&json!(event_id), &json!(hold_id)));
    assert_eq!((&first["retention"]["policy_ref"], &first["overdue"]), (&json!("year"), &json!(true)));

    let release = format!("/v1/ledger/holds/{hold_id}/release");
    admin.post(&release, json!({})).await.refused_at(400, "invalid-request", "reason");
    assert_eq!(admin.post(&release, json!({"reason": "settled"})).await.ok(), json!({"state": "Released"}));
    admin.post(&release, json!({})).await.refused_at(409, "already-released", "hold_id");

    let purged = admin.post_keyed(&purge, "one-key", json!({})).await.ok();
    assert_eq!((&purged["event_id"], &purged["state"]), (&json!(event_id), &json!("Purged")));
    assert_eq!(admin.post_keyed(&purge, "one-key", json!({})).await.ok(), purged, "the same key, the same answer");
    admin.post(&purge, json!({})).await.refused_at(409, "not-eligible", "event_id");

    let record = admin.get(&format!("/v1/ledger/records/{event_id}")).await.ok();
    assert_eq!((&record["payload"], &record["retention"]["state"]), (&Value::Null, &json!("Purged")));
    assert_eq!(record["record_hash"], start["record_hash"], "its place in the chain stays");
    let destruction = record_of(&admin, &process, "record_purged").await;
    assert_eq!(destruction["event_id"], purged["purged_by"]);
    let payload = &destruction["payload"];
    for (member, value) in [
        ("event_id", json!(event_id)),
        ("instance_id", json!(process)),
        ("sequence", json!(1)),
        ("action_ref", json!("workflow_started")),
        ("actor_ref", json!("admin")),
        ("record_hash", start["record_hash"].clone()),
        ("policy_ref", json!("year")),
    ] {
        assert_eq!(payload[member], value, "{member}");
    }
    let view = admin.get(&format!("/v1/processes/{process}")).await.ok();
    assert_eq!(view["subject_ref"], format!("purged:{event_id}"));
    admin.fire(&process, "go").await.ok();
    let text = admin.get("/v1/ledger/records").await.text;
    assert!(!text.contains("Mrs Smith"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_of_what_may_be_purged_is_paged() {
    let server = Server::with_config(Some(YEAR)).await;
    let admin = server.admin();
    for n in 0..7 {
        admin.start_loop(&format!("subject {n}")).await;
    }
    server.pass_days(366);
    for order in ["asc", "desc"] {
        let mut seen: Vec<String> = vec![];
        let mut query = format!("/v1/ledger/purgeable?limit=3&order={order}");
        loop {
            let page = admin.get(&query).await.ok();
            let items = page["items"].as_array().expect("items");
            assert!(items.len() <= 3);
            seen.extend(items.iter().map(|item| item["event_id"].as_str().expect("an id").to_owned()));
            let Some(next) = page["next"].as_str() else { break };
            query = format!("/v1/ledger/purgeable?limit=3&order={order}&cursor={next}");
        }
        assert_eq!(seen.len(), 7);
        assert!(if order == "asc" { seen.is_sorted() } else { seen.iter().rev().is_sorted() }, "{seen:?}");
    }
    let other = admin.get("/v1/ledger/records?limit=1").await.ok();
    let foreign = other["next"].as_str().expect("more");
    admin.get(&format!("/v1/ledger/purgeable?cursor={foreign}")).await.refused_at(400, "invalid-query", "cursor");
    admin.get("/v1/ledger/purgeable?policy_ref=year").await.refused_at(400, "invalid-query", "policy_ref");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_scope_lets_do_one_thing() {
    let server = Server::with_config(Some(YEAR)).await;
    let (holder, purger, reader) = (
        server.actor("holder", &["audit:hold"]).await,
        server.actor("purger", &["audit:purge"]).await,
        server.actor("reader", &["audit:read"]).await,
    );
    let admin = server.admin();
    let process = admin.start_loop("s").await;
    let event_id =
        record_of(&admin, &process, "workflow_started").await["event_id"].as_str().expect("an id").to_owned();
    let hold = json!({"record_ref": event_id, "reason": "r"});
    let purge = format!("/v1/ledger/records/{event_id}/purge");
    server.pass_days(366);
    for actor in [&purger, &reader] {
        actor.post("/v1/ledger/holds", hold.clone()).await.refused(403, "permission-denied");
    }
    for actor in [&holder, &reader] {
        actor.post(&purge, json!({})).await.refused(403, "permission-denied");
    }
    for actor in [&holder, &purger] {
        actor.get("/v1/ledger/holds").await.refused(403, "permission-denied");
        actor.get("/v1/ledger/purgeable").await.refused(403, "permission-denied");
    }
    // Whoever may nothing is not told what exists.
    reader.post("/v1/ledger/records/unheard-of/purge", json!({})).await.refused(403, "permission-denied");
    purger.post("/v1/ledger/records/unheard-of/purge", json!({})).await.refused(404, "not-known");
    holder.post("/v1/ledger/holds/unheard-of/release", json!({"reason": "r"})).await.refused(404, "not-known");
    holder.post("/v1/ledger/holds", hold).await.created();
    purger.post(&purge, json!({})).await.refused(409, "under-legal-hold");
}
