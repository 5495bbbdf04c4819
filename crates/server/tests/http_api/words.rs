//! What a new user meets: definitions that say too little, a worker without a command, ids that nobody types, and whether an
//! event found anybody.

use crate::run_commands::{as_actor, countersign, started, with};
use crate::support::Server;
use serde_json::{Value, json};

const CHAIN: &str = "kind: workflow\nname: chain\norder: linear\nqueue: q\ncorrelationKey: ${input.key}\ntimeout: 1h\n\
    steps: [{name: pick, readOnly: true}, {name: pay, idempotent: true, run: wait, event: paid, timeout: 1h}]\n";
const PEOPLE: &str = "kind: workflow\nname: people\norder: linear\npic: kim\nsteps: [{name: look, run: human}]\n";
const LOOSE: &str = "kind: workflow\nname: loose\nsteps: [{name: check}, {name: pay, run: human}]\n";
const BARE: &str = "kind: workflow\nname: bare\nsteps: [{name: pay, run: shell, command: pay}]\n";

fn codes(answer: &Value) -> Vec<&str> {
    let problems = answer["problems"].as_array().into_iter().flatten();
    problems.map(|problem| problem["code"].as_str().expect("a code")).collect()
}

/// "More than one step, no `dependsOn` anywhere and no `order` is a problem; a human step without a `pic` is refused."
#[tokio::test(flavor = "multi_thread")]
async fn a_definition_says_its_order_and_who_is_in_charge() {
    let server = Server::start().await;
    let admin = server.admin();
    let checked = admin.post_bytes("/v1/definitions/validate", LOOSE).await.ok();
    assert_eq!((&checked["valid"], codes(&checked)), (&json!(false), vec!["missing-order", "missing-pic"]));
    assert!(checked["problems"].as_array().expect("problems").iter().all(|problem| problem.get("level").is_none()));
    admin.post_bytes("/v1/definitions", LOOSE).await.refused_at(400, "invalid-definition", "order");
    let sound = LOOSE.replace("steps", "order: dag\npic: kim\nsteps");
    admin.post_bytes("/v1/definitions", sound).await.created();
}

/// "Warnings at publish and in `validate`, never refused."
#[tokio::test(flavor = "multi_thread")]
async fn warnings_are_told_and_refuse_nothing() {
    let server = Server::start().await;
    let admin = server.admin();
    let expected = vec!["no-timeout", "ungated-effect"];
    let checked = admin.post_bytes("/v1/definitions/validate", BARE).await.ok();
    assert_eq!((&checked["valid"], codes(&checked)), (&json!(true), expected.clone()));
    let published = admin.post_bytes("/v1/definitions", BARE).await.created();
    assert_eq!(codes(&published), expected);
    assert!(published["problems"].as_array().expect("problems").iter().all(|problem| problem["level"] == "warning"));
    assert!(admin.post_bytes("/v1/definitions", CHAIN).await.created().get("problems").is_none());

    let file = server.directory.path().join("bare.yaml");
    std::fs::write(&file, BARE).expect("a file");
    let file = file.to_str().expect("a path");
    countersign(&server, &["definition", "validate", file]).await.says(0, &["warning[no-timeout]", "valid"]);
    countersign(&server, &["definition", "apply", file])
        .await
        .says(0, &["warning[ungated-effect]", "unchanged bare@1"]);
}

/// "`countersign work` without `--exec` must refuse and say how."
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_a_command_touches_nothing() {
    let server = with(&[CHAIN]).await;
    let id = started(&server, &["chain", "--input", "key=k-1"]).await;
    for arguments in [&["work", "q", "--drain"][..], &["work", "q", "--drain", "--exec", " "]] {
        countersign(&server, arguments).await.says(2, &["--exec './do-it.sh'", "countersign task claim q"]);
    }
    let run = server.admin().get(&format!("/v1/runs/{id}")).await.ok();
    assert_eq!(run["steps"][0]["state_code"], "ready");
    countersign(&server, &["runs", "show", &id]).await.says(0, &["countersign work q --exec …"]);
}

/// "`events send` says whether anything matched."
#[tokio::test(flavor = "multi_thread")]
async fn an_event_says_whom_it_reached() {
    let server = with(&[CHAIN]).await;
    let id = started(&server, &["chain", "--input", "key=k-1"]).await;
    let send = async |whom: &[&str]| countersign(&server, &[&["events", "send", "paid"], whom].concat()).await;
    send(&["--key", "k-2"]).await.says(0, &["no live run that you may reach has the key k-2"]);
    send(&["--key", "k-1"]).await.says(0, &["1 live run keeps it"]);
    countersign(&server, &["runs", "cancel", &id, "--reason", "enough"]).await.says(0, &["is cancelled"]);
    send(&["--run", &id]).await.says(0, &["the run has ended: nothing keeps it"]);
    let admin = server.admin();
    let sent = admin.post("/v1/events", json!({"id": "e-9", "type": "paid", "run_id": id})).await.accepted();
    assert_eq!(sent["reached"], 0);
}

/// "Ids by unique prefix or subject." What names several is refused with all of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_named_by_its_subject_or_the_beginning_of_its_id() {
    let server = with(&[CHAIN]).await;
    let first = started(&server, &["chain", "--input", "key=k-1", "--subject", "order-1"]).await;
    let second = started(&server, &["chain", "--input", "key=k-2", "--subject", "order-2"]).await;
    let shared = first.bytes().zip(second.bytes()).take_while(|(a, b)| a == b).count();
    countersign(&server, &["runs", "show", "order-1"]).await.says(0, &[&first, "order-1 is executing"]);
    countersign(&server, &["runs", "show", &second[..=shared]]).await.says(0, &["order-2 is executing"]);
    countersign(&server, &["runs", "show", &first[..shared]]).await.says(2, &["give the id of one", &first, &second]);
    countersign(&server, &["show", "order-3"]).await.says(1, &["not-known"]);
    countersign(&server, &["runs", "cancel", "order-1", "--reason", "enough"]).await.says(0, &[&first, "is cancelled"]);
    countersign(&server, &["runs", "cancel", "order-1", "--reason", "enough"]).await.says(1, &["already-terminal"]);
    countersign(&server, &["timeline", "order-2"]).await.says(0, &["run_started"]);
}

/// "`runs cancel` says what it does not undo"; "claim it first".
#[tokio::test(flavor = "multi_thread")]
async fn a_user_reads_what_to_do_and_what_stays() {
    let server = with(&[CHAIN, PEOPLE]).await;
    let made = countersign(&server, &["actor", "add", "kim", "--json"]).await;
    let made: Value = serde_json::from_str(&made.out).expect("JSON");
    let kim = made["token"].as_str().expect("a token");
    countersign(&server, &["grant", "kim", "tasks:work"]).await.says(0, &[]);
    let id = started(&server, &["people"]).await;
    as_actor(&server, kim, &["step", "complete", &id, "look"])
        .await
        .says(1, &["`look` is not claimed: claim it first"]);
    as_actor(&server, kim, &["step", "claim", &id, "look"])
        .await
        .says(0, &["look is in progress; the run is executing"]);

    let id = started(&server, &["chain", "--input", "key=k-1"]).await;
    countersign(&server, &["work", "q", "--drain", "--exec", "echo '{\"n\": 1}'"]).await.says(0, &["completed"]);
    let shown = countersign(&server, &["runs", "show", &id, "--full"]).await;
    shown.says(0, &["input of the run", r#"{"key":"k-1"}"#, r#"pick output {"n":1}"#, "took "]);
    countersign(&server, &["timeline", &id, "--full"]).await.says(0, &[r#"output of pick: {"n":1}"#]);
    let cancelled = countersign(&server, &["runs", "cancel", &id, "--reason", "enough"]).await;
    cancelled.says(0, &["cancelling undoes nothing; these steps stay completed: pick"]);
}

/// What failed first is told beside what failed while it was undone, and each attempt with its error.
#[tokio::test(flavor = "multi_thread")]
async fn an_undone_run_names_its_root_cause() {
    const SAGA: &str = "kind: workflow\nname: saga\norder: linear\nqueue: q\nfailurePolicy: compensate\n\
        retryPolicy: {maxRetries: 1, backoff: constant, initialDelay: 1ms, maxDelay: 1ms}\n\
        steps: [{name: book}, {name: pay}]\ncompensation: [{step: book, action: unbook, agent: undo}]\n";
    let server = with(&[SAGA]).await;
    let id = started(&server, &["saga"]).await;
    let admin = server.admin();
    let report = async |queue: &str, verb: &str, error: &str| {
        let claim = json!({"worker_id": "w", "max": 1, "lease_ms": 60_000, "wait_ms": 20_000});
        let task = admin.post(&format!("/v1/queues/{queue}/claim"), claim).await.ok()["tasks"][0].clone();
        let path = format!("/v1/tasks/{}/{verb}", task["task_id"].as_str().expect("a task"));
        let mut body = json!({"lease_token": task["lease_token"]});
        if !error.is_empty() {
            body["last_error"] = json!(error);
        }
        admin.post(&path, body).await.ok();
    };
    report("q", "complete", "").await;
    report("q", "retry", "line busy").await;
    report("q", "dead", "card refused").await;
    report("undo", "dead", "hotel closed").await;
    let shown = countersign(&server, &["runs", "show", &id]).await;
    shown.says(0, &["hotel closed", "root cause", "pay failed: card refused", "pay attempt 1: line busy"]);
    let timeline = countersign(&server, &["timeline", &id]).await;
    timeline.says(0, &["✕ pay, attempt 1: line busy; it is tried again", "↩ undo book", "hotel closed"]);
}

/// "`./countersign.toml` is read where it is": a start in its directory uses it, unless it is told of another one.
#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_of_the_directory_is_read() {
    let place = tempfile::tempdir().expect("a directory");
    let serve = |more: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_countersign"));
        command.current_dir(place.path()).args(["serve", "--data-dir", "data", "--listen", "127.0.0.1:0"]).args(more);
        command.env_remove("COUNTERSIGN_CONFIG").output().expect("it runs")
    };
    std::fs::write(place.path().join("countersign.toml"), "no_such_key = 1\n").expect("a file");
    std::fs::write(place.path().join("other.toml"), "nor_this_one = 1\n").expect("a file");
    for (more, file, key) in
        [(&[][..], "countersign.toml", "no_such_key"), (&["--config", "other.toml"], "other.toml", "nor_this_one")]
    {
        let said = serve(more);
        let error = String::from_utf8_lossy(&said.stderr);
        assert!(!said.status.success() && error.contains(file) && error.contains(key), "{error}");
    }
}
