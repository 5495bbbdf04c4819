//! The three reads of an adversary, as the command line gives them: an honest story is proved from the records alone, and
//! an edit behind the server's back shows in all of them.

use crate::support::{Actor, BATCH_RELEASE, Server};
use countersign_server::outbox::Pace;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

const REASON: &str = "batch record reviewed";
const MEANING: &str = "I certify this batch";

/// What a command said, and how it ended.
struct Said {
    code: i32,
    out: String,
    err: String,
}

impl Said {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}{}", self.out, self.err))
    }

    fn lines(&self) -> Vec<Value> {
        let parsed = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.out.lines().map(parsed).collect()
    }

    #[track_caller]
    fn says(&self, code: i32, texts: &[&str]) {
        assert_eq!(self.code, code, "{}{}", self.out, self.err);
        for text in texts {
            assert!(self.out.contains(text), "{text:?} is not in\n{}{}", self.out, self.err);
        }
    }
}

/// `countersign` as this profile.
async fn countersign(server: &Server, profile: &str, arguments: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_countersign"));
    command.args(["--as", profile]).args(arguments);
    command.env("COUNTERSIGN_PROFILES", profiles(server.directory.path()));
    for name in ["COUNTERSIGN_SERVER", "COUNTERSIGN_TOKEN", "COUNTERSIGN_PROFILE"] {
        command.env_remove(name);
    }
    let output = tokio::task::spawn_blocking(move || command.output()).await.expect("a thread").expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    Said { code: output.status.code().expect("a code"), out: text(output.stdout), err: text(output.stderr) }
}

fn profiles(directory: &Path) -> PathBuf {
    directory.join("profiles.toml")
}

/// Points every profile to where the server listens now.
async fn moved(server: &Server) {
    for profile in ["admin", "auditor", "qp"] {
        let url = server.url();
        countersign(server, profile, &["profile", "set", profile, "--server", &url]).await.says(0, &[]);
    }
}

/// A batch released as it should be: the lab's grant is revoked afterwards, the decision is signed.
async fn released(server: &Server) -> String {
    let (admin, directory) = (server.admin(), server.directory.path());
    let token = directory.join("admin.token").display().to_string();
    let set = ["profile", "set", "admin", "--server", &server.url(), "--token-file", &token];
    countersign(server, "admin", &set).await.says(0, &[]);
    admin.post_bytes("/v1/definitions", BATCH_RELEASE).await.created();
    let qa = server.actor("qa", &["workflows:start", "workflows:open-gate", "workflows:fire"]).await;
    let lab = server.actor("lab", &["workflows:fire:batch-release"]).await;
    for (name, profile, more) in [("auditor", "auditor", &[][..]), ("qp_director_santos", "qp", &["--keygen"])] {
        let add = [&["actor", "add", name, "--save-profile", profile], more].concat();
        countersign(server, "admin", &add).await.says(0, &["registered"]);
    }
    for scope in ["audit:read", "workflows:read"] {
        admin.post("/v1/grants", json!({"subject_ref": "auditor", "action_scope": scope})).await.created();
    }
    let id = start(&qa).await;
    lab.fire(&id, "begin-testing").await.ok();
    qa.fire(&id, "complete-tests").await.ok();
    qa.open_gate(&id, "release").await.created();
    let decide = ["gate", "decide", &id, "release", "approve", "--reason", REASON, "--meaning", MEANING];
    countersign(server, "qp", &decide).await.says(0, &["Approved"]);
    qa.fire(&id, "release").await.ok();
    let grants = admin.get("/v1/grants?subject_ref=lab").await.ok();
    let grant_id = grants["items"][0]["grant_id"].as_str().expect("an id").to_owned();
    admin.post(&format!("/v1/grants/{grant_id}/revoke"), json!({})).await.ok();
    let _ = admin.post("/v1/ledger/seal", json!({})).await;
    id
}

async fn start(actor: &Actor) -> String {
    let started = actor.post("/v1/processes", json!({"definition": "batch-release", "subject_ref": "br-1"})).await;
    started.created()["instance_id"].as_str().expect("an id").to_owned()
}

fn of<'v>(items: &'v Value, name: &str, wanted: &str) -> &'v Value {
    let items = items.as_array().expect("a list");
    items.iter().find(|item| item[name] == wanted).unwrap_or_else(|| panic!("no {wanted} in {items:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_honest_story_is_proved_from_the_records_alone() {
    let server = Server::with_config(Some("[audit]\nfailed_attempts = true\n")).await;
    let id = released(&server).await;
    let admin = server.admin();

    let proof = countersign(&server, "auditor", &["audit", "prove-path", &id]).await;
    proof.says(0, &["✓  declared path", "✓  gates cleared", "✓  sealed and verified", "Proved:", "revoked since:"]);
    proof.says(0, &["actor_signed with key", MEANING, REASON]);
    assert!(!proof.out.contains('✗') && !proof.out.contains('\u{1b}'), "{}", proof.out);
    let proof = countersign(&server, "auditor", &["audit", "prove-path", &id, "--json"]).await.json();
    assert_eq!(proof["result"], "proved", "{proof:#}");
    let names: Vec<&str> =
        proof["claims"].as_array().expect("claims").iter().filter_map(|claim| claim["claim"].as_str()).collect();
    let claims =
        ["declared-path", "gate-cleared", "assigned", "permission-held", "recorded-one-to-one", "sealed-and-verified"];
    assert_eq!(names, claims);
    let firings = &proof["firings"];
    assert_eq!(firings.as_array().map(Vec::len), Some(3));
    let begin = &of(firings, "action", "begin-testing")["permission"];
    assert_eq!((&begin["status"], &begin["scope"]), (&json!("held"), &json!("workflows:fire:batch-release")));
    assert_eq!((&begin["in_force_at_the_time"], begin["revoked_at"].is_string()), (&json!(true), true));
    let release = of(firings, "action", "release");
    let step = &release["approval"]["steps"][0];
    assert_eq!((&step["decided_by"], &step["reason"]), (&json!("qp_director_santos"), &json!(REASON)));
    assert_eq!((&step["meaning"], &step["named_in_gate_spec"]), (&json!(MEANING), &json!(true)));
    assert_eq!(step["record"]["assurance"], "actor_signed");
    assert_eq!(release["record"]["verification"], json!({"result": "verified"}));
    assert!(release["record"]["log_index"].is_u64());

    let said = countersign(&server, "auditor", &["audit", "dispute", &id, "release"]).await;
    said.says(0, &["Refuted:", "opened", "decided", "fired", "qp_director_santos approved", REASON, MEANING]);
    let dispute = countersign(&server, "auditor", &["audit", "dispute", &id, "release", "--json"]).await.json();
    assert_eq!(dispute["result"], "refuted", "{dispute:#}");
    let timeline = dispute["firings"][0]["timeline"].as_array().expect("a timeline").clone();
    let what: Vec<&str> = timeline.iter().filter_map(|moment| moment["what"].as_str()).collect();
    assert_eq!(what, ["opened", "decided", "fired"]);
    let free = countersign(&server, "auditor", &["audit", "dispute", &id, "begin-testing", "--json"]).await.json();
    assert_eq!(free["result"], "no-approval-needed");

    server.actor("intern", &[]).await.fire(&id, "release").await.refused(403, "permission-denied");
    let _ = admin.post("/v1/ledger/seal", json!({})).await;
    let said = countersign(&server, "auditor", &["audit", "investigate", "--from", "1h"]).await;
    said.says(
        0,
        &["Nothing amiss:", "transition_fired", "attempt_refused", "grant_revoked", "– revoked", "actor_registered"],
    );
    let window = countersign(&server, "auditor", &["audit", "investigate", "--from", "1h", "--json"]).await.lines();
    let records: Vec<&Value> = window.iter().filter(|line| line["type"] == "record").collect();
    let ids: Vec<&str> = records.iter().filter_map(|record| record["event_id"].as_str()).collect();
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "in order");
    assert!(records.iter().all(|record| record["permission"]["status"] != "missing"));
    let summary = &window[window.len() - 1];
    assert_eq!(
        (&summary["type"], &summary["findings"], &summary["log"]),
        (&json!("summary"), &json!(0), &json!("verified"))
    );
    assert_eq!(summary["records"], records.len());
    assert_eq!((&summary["actors"]["intern"]["refused"], &summary["actors"]["qa"]["fired"]), (&json!(1), &json!(2)));

    let only = ["audit", "investigate", "--from", "1h", "--instance", &id, "--actor", "lab", "--json"];
    let window = countersign(&server, "auditor", &only).await.lines();
    assert_eq!((window.len(), &window[0]["detail"]), (3, &json!("begin-testing: sampled → testing")));
    let none = ["audit", "investigate", "--from", "2020-01-01", "--to", "2020-01-02"];
    countersign(&server, "auditor", &none).await.says(0, &["Nothing was recorded"]);
    let reversed = ["audit", "investigate", "--from", "2020-01-02", "--to", "2020-01-01"];
    countersign(&server, "auditor", &reversed).await.says(2, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_never_fired_is_told_why() {
    let server = Server::start().await;
    let id = released(&server).await;
    let never = async |id: &str, action: &str| {
        let said = countersign(&server, "auditor", &["audit", "dispute", id, action, "--json"]).await;
        let answer = said.json();
        assert_eq!((said.code, &answer["result"]), (0, &json!("never-fired")), "{answer:#}");
        answer["conclusion"].as_str().expect("a conclusion").to_owned()
    };
    assert!(never(&id, "explode").await.contains("the declaration has no such action"));
    assert!(
        never(&id, "fail-tests").await.contains("needs no approval, and nobody fired it, and the process has left")
    );
    assert!(
        never(&id, "reject-batch").await.contains("nobody ever asked for the approval that it needs (QP-rejection)")
    );
    let admin = server.admin();
    let fresh = start(&admin).await;
    assert!(never(&fresh, "release").await.contains("where the process has never been"));
    admin.fire(&fresh, "begin-testing").await.ok();
    admin.fire(&fresh, "complete-tests").await.ok();
    admin.open_gate(&fresh, "release").await.created();
    assert!(never(&fresh, "release").await.contains("its gate (QP-sign-off) still waits"));
    let reject = ["gate", "decide", &fresh, "release", "reject", "--reason", "smudged"];
    countersign(&server, "qp", &reject).await.says(0, &["Rejected"]);
    assert!(never(&fresh, "release").await.contains("was rejected by qp_director_santos"));
    countersign(&server, "auditor", &["audit", "dispute", &fresh, "release"])
        .await
        .says(0, &["Gate not used:", "smudged"]);
    countersign(&server, "auditor", &["audit", "dispute", "nowhere", "release"]).await.says(1, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quorum_is_proved_approver_by_approver() {
    let server = Server::start().await;
    released(&server).await;
    let admin = server.admin();
    let (a, b) = (server.actor("a", &[]).await, server.actor("b", &[]).await);
    let body = json!({
        "declaration": {
            "states": ["open", "done"], "initial_state": "open", "terminal_states": ["done"],
            "transitions": [{"from": "open", "action": "close", "to": "done", "guard": "board"}],
        },
        "subject_ref": "motion",
        "gate_spec": {"board": {"approvers": ["a", "b", "c"], "quorum": {"rule": "m-of-n", "m": 2}, "scope": "board"}},
    });
    server.actor("c", &[]).await;
    let id = admin.post("/v1/processes", body).await.created()["instance_id"].as_str().expect("an id").to_owned();
    admin.open_gate(&id, "close").await.created();
    for approver in [&a, &b] {
        approver.decide(&id, "close", json!({"decision": "approve"})).await.ok();
    }
    admin.fire(&id, "close").await.ok();
    let _ = admin.post("/v1/ledger/seal", json!({})).await;
    let proof = countersign(&server, "auditor", &["audit", "prove-path", &id, "--json"]).await.json();
    assert_eq!(proof["result"], "proved", "{proof:#}");
    let approval = &proof["firings"][0]["approval"];
    assert_eq!((&approval["kind"], &approval["needed"]), (&json!("chain"), &json!(2)));
    countersign(&server, "auditor", &["audit", "prove-path", &id]).await.says(0, &["2 of 3 approvers"]);
    countersign(&server, "auditor", &["audit", "dispute", &id, "close"]).await.says(0, &["Refuted:", "resolved"]);
    let window = ["audit", "investigate", "--from", "1h", "--instance", &id];
    countersign(&server, "auditor", &window).await.says(0, &["approved by a (", " and b ("]);
}

/// Changes bytes of the database file, as somebody with access to the disk would.
fn edit(directory: &Path, from: &str, to: &str) {
    assert_eq!(from.len(), to.len());
    let path = directory.join("countersign.sqlite");
    let mut bytes = std::fs::read(&path).expect("the database");
    let at: Vec<usize> =
        bytes.windows(from.len()).enumerate().filter(|(_, w)| *w == from.as_bytes()).map(|(i, _)| i).collect();
    assert_eq!(at.len(), 1, "{from} stands there once");
    bytes[at[0]..at[0] + to.len()].copy_from_slice(to.as_bytes());
    std::fs::write(&path, bytes).expect("written");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_was_edited_in_the_database_fails_in_all_three() {
    let mut server = Server::start().await;
    let id = released(&server).await;
    server.stop().await;
    let (from, to) = (format!(r#""reason":"{REASON}""#), format!(r#""reason":"{}""#, "batch never looked at"));
    edit(server.directory.path(), &from, &to);
    let server = server.resumed().await;
    moved(&server).await;

    let proof = countersign(&server, "auditor", &["audit", "prove-path", &id, "--json"]).await;
    assert_eq!((proof.code, &proof.json()["result"]), (1, &json!("not-proved")));
    let claims = proof.json()["claims"].clone();
    for (claim, result) in [
        ("declared-path", "holds"),
        ("gate-cleared", "fails"),
        ("permission-held", "holds"),
        ("sealed-and-verified", "fails"),
    ] {
        assert_eq!(of(&claims, "claim", claim)["result"], result, "{claim}: {claims:#}");
    }
    countersign(&server, "auditor", &["audit", "prove-path", &id]).await.says(1, &["✗", "Not proved:"]);

    let dispute = countersign(&server, "auditor", &["audit", "dispute", &id, "release", "--json"]).await;
    assert_eq!((dispute.code, &dispute.json()["result"]), (1, &json!("upheld")));
    let timeline = dispute.json()["firings"][0]["timeline"].clone();
    assert_eq!(of(&timeline, "what", "decided")["record"]["verification"]["result"], "failed-verification");
    assert_eq!(of(&timeline, "what", "opened")["record"]["verification"]["result"], "verified");
    countersign(&server, "auditor", &["audit", "dispute", &id, "release"]).await.says(1, &["✗ Upheld:"]);

    let window = countersign(&server, "auditor", &["audit", "investigate", "--from", "1h", "--json"]).await;
    assert_eq!(window.code, 1);
    let lines = window.lines();
    let failing: Vec<&Value> = lines
        .iter()
        .filter(|line| line["verification"]["result"] == "failed-verification")
        .map(|line| &line["action_ref"])
        .collect();
    assert_eq!(failing, [&json!("gate_decided")]);
    let summary = &lines[lines.len() - 1];
    assert_eq!((&summary["failing"], &summary["log"]), (&json!(1), &json!("failed-verification")));
    assert_eq!(summary["actors"]["qp_director_santos"]["failing"], 1);
    let said = countersign(&server, "auditor", &["audit", "investigate", "--from", "1h"]).await;
    said.says(1, &["✗ Findings:", "✗ The log fails verification:", "payload-digest-mismatch"]);
}

/// Content that was set to NULL in the database is a hole, and no purge: the dispute is not answered as if it were one.
#[tokio::test(flavor = "multi_thread")]
async fn a_hole_in_the_database_is_no_purge_for_a_dispute() {
    let store = crate::webhooks::database().await;
    let server = Server::with(None, Some(store.clone()), Pace::default()).await;
    let id = released(&server).await;
    let (client, connection) = tokio_postgres::connect(&store, tokio_postgres::NoTls).await.expect("PostgreSQL");
    tokio::spawn(connection);
    let records = server.admin().get(&format!("/v1/ledger/records?instance_id={id}&action_ref=gate_decided")).await;
    let event_id = records.ok()["items"][0]["event_id"].as_str().expect("an id").to_owned();
    let hole =
        format!("UPDATE records SET payload = NULL, attestation = NULL, salt = NULL WHERE event_id = '{event_id}'");
    assert_eq!(client.execute(&hole, &[]).await.expect("an update"), 1);

    let dispute = countersign(&server, "auditor", &["audit", "dispute", &id, "release", "--json"]).await;
    let answer = dispute.json();
    assert_eq!((dispute.code, &answer["result"]), (1, &json!("upheld")), "{answer:#}");
    assert!(!answer["conclusion"].as_str().expect("a conclusion").contains("purged"), "{answer:#}");
    let proof = countersign(&server, "auditor", &["audit", "prove-path", &id, "--json"]).await;
    assert_eq!((proof.code, &proof.json()["result"]), (1, &json!("not-proved")), "{}", proof.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_was_edited_away_leaves_its_actions_without_one() {
    let mut server = Server::start().await;
    let id = released(&server).await;
    server.stop().await;
    let grant = |to: &str| format!(r#""subject_ref":"{to}","action_scope":"workflows:fire""#);
    edit(server.directory.path(), &grant("qa"), &grant("qb"));
    let server = server.resumed().await;
    moved(&server).await;
    let proof = countersign(&server, "auditor", &["audit", "prove-path", &id, "--json"]).await;
    assert_eq!(proof.code, 1, "{}", proof.out);
    assert_eq!(of(&proof.json()["claims"], "claim", "permission-held")["result"], "fails");
    let window = countersign(&server, "auditor", &["audit", "investigate", "--from", "1h"]).await;
    window.says(1, &["NONE: no active grant of workflows:fire", "permission-not-held"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_lawfully_destroyed_is_unverifiable_and_no_finding() {
    let config = "audit_trail_retention_policy = \"year\"\n[retention.policies.year]\nduration = \"365d\"\nmax_purge_delay = \"0s\"\n";
    let server = Server::with_config(Some(config)).await;
    released(&server).await;
    let (admin, approver) = (server.admin(), server.actor("approver", &[]).await);
    let body = json!({
        "declaration": {
            "states": ["a", "b"], "initial_state": "a", "terminal_states": ["b"],
            "transitions": [{"from": "a", "action": "go", "to": "b", "guard": "g"}],
        },
        "subject_ref": "s",
        "gate_spec": {"g": {"approver_ref": "approver", "scope": "x"}},
    });
    let id = admin.post("/v1/processes", body).await.created()["instance_id"].as_str().expect("an id").to_owned();
    admin.open_gate(&id, "go").await.created();
    approver.decide(&id, "go", json!({"decision": "approve"})).await.ok();
    admin.fire(&id, "go").await.ok();
    server.pass_days(366);
    let decided = admin.get(&format!("/v1/ledger/records?instance_id={id}&action_ref=gate_decided")).await.ok();
    let event_id = decided["items"][0]["event_id"].as_str().expect("an id").to_owned();
    admin.post(&format!("/v1/ledger/records/{event_id}/purge"), json!({})).await.ok();
    let _ = admin.post("/v1/ledger/seal", json!({})).await;

    let proof = countersign(&server, "auditor", &["audit", "prove-path", &id, "--json"]).await;
    assert_eq!((proof.code, &proof.json()["result"]), (1, &json!("not-proved")));
    let claims = proof.json()["claims"].clone();
    for (claim, result) in [
        ("declared-path", "holds"),
        ("gate-cleared", "unverifiable"),
        ("permission-held", "holds"),
        ("recorded-one-to-one", "unverifiable"),
        ("sealed-and-verified", "unverifiable"),
    ] {
        assert_eq!(of(&claims, "claim", claim)["result"], result, "{claim}: {claims:#}");
    }
    countersign(&server, "auditor", &["audit", "dispute", &id, "go"]).await.says(1, &["✗ Unverifiable:"]);
    let window = ["audit", "investigate", "--from", "1h", "--to", "2100-01-01", "--instance", &id];
    let said = countersign(&server, "auditor", &window).await;
    said.says(0, &["content destroyed", "record_purged", "1 purged", "Nothing amiss:"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_longer_than_a_page_is_told_whole() {
    let server = Server::start().await;
    released(&server).await;
    let admin = server.admin();
    let id = admin.start_loop("round and round").await;
    for n in 0..600 {
        admin.fire(&id, if n % 2 == 0 { "go" } else { "back" }).await.ok();
    }
    let _ = admin.post("/v1/ledger/seal", json!({})).await;
    let window = ["audit", "investigate", "--from", "1h", "--instance", &id, "--json"];
    let lines = countersign(&server, "auditor", &window).await.lines();
    let sequences: Vec<u64> = lines.iter().filter_map(|line| line["sequence"].as_u64()).collect();
    assert_eq!(sequences, (1..=601).collect::<Vec<_>>());
    assert_eq!(lines[lines.len() - 1]["actors"]["admin"]["fired"], 600);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_cannot_even_be_read_is_told() {
    let mut server = Server::start().await;
    let id = released(&server).await;
    server.stop().await;
    edit(server.directory.path(), &format!(r#""reason":"{REASON}""#), &format!(r#""reason"!"{REASON}""#));
    let server = server.resumed().await;
    moved(&server).await;
    for command in [&["audit", "prove-path", &id][..], &["audit", "dispute", &id, "release"]] {
        let said = countersign(&server, "auditor", command).await;
        assert!(said.code == 1 && said.err.contains("refused:"), "{}{}", said.out, said.err);
    }
    let window = countersign(&server, "auditor", &["audit", "investigate", "--from", "1h", "--instance", &id]).await;
    window.says(1, &["gate_opened", "✗ Findings:", "✗ The log fails verification:"]);
    assert!(!window.out.contains("gate_decided") && window.err.contains("cannot be read on"), "{}", window.err);
}

const CUT: &str = r#"{"kind": "workflow", "name": "cut", "order": "linear", "queue": "q", "failurePolicy": "fail-closed",
    "gate_spec": {"sovereign": {"approver_ref": "owner", "scope": "cut"}},
    "steps": [{"name": "look", "readOnly": true}, {"name": "cut", "gate": "sovereign"}]}"#;

/// A runbook that was stopped, resumed and completed, each by somebody with the scope for it and no other; its id.
async fn cut(server: &Server) -> String {
    let (admin, token) = (server.admin(), server.directory.path().join("admin.token").display().to_string());
    let set = ["profile", "set", "admin", "--server", &server.url(), "--token-file", &token];
    countersign(server, "admin", &set).await.says(0, &[]);
    admin.post_bytes("/v1/definitions", CUT.as_bytes()).await.created();
    let shop = server.actor("shop", &["runs:start:cut"]).await;
    let (ops, w) = (server.actor("ops", &["runs:control"]).await, server.actor("w", &["tasks:work"]).await);
    let owner = server.actor("owner", &[]).await;
    let started = shop.post("/v1/runs", json!({"definition": "cut"})).await.created();
    let id = started["run_id"].as_str().expect("an id").to_owned();
    ops.post(&format!("/v1/runs/{id}/stop"), json!({"reason": "look first"})).await.ok();
    let approve = json!({"decision": "approve", "reason": "seen"});
    owner.post(&format!("/v1/runs/{id}/gates/resume/decision"), approve.clone()).await.ok();
    let run = admin.get(&format!("/v1/runs/{id}")).await.ok();
    let approval = json!({"approval_id": of(&run["gates"], "action", "resume")["step_id"]});
    ops.post(&format!("/v1/runs/{id}/resume"), approval).await.ok();
    for step in ["look", "cut"] {
        let claimed = w.post("/v1/queues/q/claim", json!({"worker_id": "w", "wait_ms": 20000})).await.ok();
        let task = &claimed["tasks"][0];
        assert_eq!(task["step"], step, "{claimed:#}");
        let path = format!("/v1/tasks/{}/complete", task["task_id"].as_str().expect("a task"));
        w.post(&path, json!({"lease_token": task["lease_token"]})).await.ok();
        if step == "look" {
            owner.post(&format!("/v1/runs/{id}/gates/cut/decision"), approve.clone()).await.ok();
        }
    }
    let _ = admin.post("/v1/ledger/seal", json!({})).await;
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_judged_by_the_scopes_of_runs() {
    let server = Server::start().await;
    let id = cut(&server).await;
    let told = countersign(&server, "admin", &["audit", "investigate", "--from", "1h", "--json"]).await;
    assert_eq!(told.code, 0, "{}{}", told.out, told.err);
    let lines = told.lines();
    let of_run: Vec<&Value> = lines.iter().filter(|line| line["instance_id"] == id.as_str()).collect();
    let permission = |action_ref: &str| {
        let line = of_run.iter().find(|line| line["action_ref"] == action_ref);
        line.unwrap_or_else(|| panic!("no {action_ref} in {of_run:#?}"))["permission"].clone()
    };
    for (action_ref, scope) in [
        ("run_started", "runs:start:cut"),
        ("steps_claimed", "tasks:work"),
        ("step_completed", "tasks:work"),
        ("run_stopped", "runs:control"),
        ("run_resumed", "runs:control"),
    ] {
        let held = permission(action_ref);
        assert_eq!((&held["status"], &held["scope"]), (&json!("held"), &json!(scope)), "{action_ref}");
    }
    for action_ref in ["gate_opened", "gate_decided", "transition_fired"] {
        assert_eq!(permission(action_ref)["status"], "not-needed", "{action_ref}");
    }

    let proof = countersign(&server, "admin", &["audit", "prove-path", &id]).await;
    proof.says(0, &["✓  declared path", "✓  gates cleared", "2 gates passed", "✓  permission held", "Proved:"]);
    let claims = countersign(&server, "admin", &["audit", "prove-path", &id, "--json"]).await.json()["claims"].clone();
    assert_eq!(of(&claims, "claim", "assigned")["result"], "holds", "{claims:#}");

    for action in ["cut", "resume"] {
        let disputed = countersign(&server, "admin", &["audit", "dispute", &id, action, "--json"]).await;
        let answer = disputed.json();
        assert_eq!((disputed.code, &answer["result"]), (0, &json!("refuted")), "{answer:#}");
        let firing = &answer["firings"][0];
        let step = &firing["approval"]["steps"][0];
        assert_eq!((&step["decided_by"], &step["named_in_gate_spec"]), (&json!("owner"), &json!(true)), "{answer:#}");
        let what: Vec<&str> =
            firing["timeline"].as_array().into_iter().flatten().filter_map(|moment| moment["what"].as_str()).collect();
        assert!(what.starts_with(&["opened", "decided"]) && what.contains(&"fired"), "{answer:#}");
        assert_eq!(what.contains(&"used"), action == "resume", "{answer:#}");
    }
    countersign(&server, "admin", &["audit", "dispute", &id, "cut"])
        .await
        .says(0, &["Refuted:", "owner approved", "run  "]);
    let free = countersign(&server, "admin", &["audit", "dispute", &id, "look", "--json"]).await;
    assert_eq!((free.code, &free.json()["result"]), (0, &json!("no-approval-needed")), "{}", free.out);
    let held = free.json()["work"][0]["permission"].clone();
    assert!(held["status"] == "held" || held["status"] == "not-needed", "{held:#}");
    let never = countersign(&server, "admin", &["audit", "dispute", &id, "void", "--json"]).await;
    assert_eq!((never.code, &never.json()["result"]), (0, &json!("never-fired")), "{}", never.out);
    countersign(&server, "admin", &["audit", "dispute", &id, "explode"]).await.says(0, &["never could"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_of_a_run_that_was_edited_away_is_missed() {
    let mut server = Server::start().await;
    let id = cut(&server).await;
    server.stop().await;
    let grant = |to: &str| format!(r#""subject_ref":"{to}","action_scope":"runs:control""#);
    edit(server.directory.path(), &grant("ops"), &grant("opz"));
    let server = server.resumed().await;
    let url = server.url();
    countersign(&server, "admin", &["profile", "set", "admin", "--server", &url]).await.says(0, &[]);
    let proof = countersign(&server, "admin", &["audit", "prove-path", &id, "--json"]).await;
    assert_eq!((proof.code, &proof.json()["result"]), (1, &json!("not-proved")), "{}{}", proof.out, proof.err);
    assert_eq!(of(&proof.json()["claims"], "claim", "permission-held")["result"], "fails");
    let dispute = countersign(&server, "admin", &["audit", "dispute", &id, "resume", "--json"]).await;
    assert_eq!((dispute.code, &dispute.json()["result"]), (1, &json!("upheld")), "{}{}", dispute.out, dispute.err);
    let window = countersign(&server, "admin", &["audit", "investigate", "--from", "1h"]).await;
    window.says(1, &["NONE: no active grant of runs:control", "permission-not-held"]);
}
