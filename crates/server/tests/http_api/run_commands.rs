//! The commands for runs, as somebody types them: `run`, `watch`, `runs`, `events`, `task`, `work`, and `gate` on a run.

use crate::support::{Answer, Server};
use serde_json::{Value, json};
use std::process::{Command, Output, Stdio};

const ORDER: &str = include_str!("../../../../definitions/order-process.yaml");
const SAGA: &str = include_str!("../../../../definitions/order-saga.yaml");
const RELEASE: &str = r#"
kind: workflow
name: release
order: linear
queue: release
gate_spec:
  go: {approver_ref: boss, scope: "release:go"}
  cancel: {approver_ref: boss, scope: "release:cancel"}
steps:
  - {name: build}
  - {name: deploy, gate: go}
"#;

#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Said {
    fn of(output: Output) -> Said {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        Said { code: output.status.code().expect("a code"), out: text(output.stdout), err: text(output.stderr) }
    }

    #[track_caller]
    pub fn says(&self, code: i32, texts: &[&str]) {
        assert_eq!(self.code, code, "{}{}", self.out, self.err);
        for text in texts {
            assert!(self.out.contains(text) || self.err.contains(text), "{text:?} is not in\n{}{}", self.out, self.err);
        }
    }

    #[track_caller]
    fn json(&self) -> Value {
        assert_eq!(self.code, 0, "{}{}", self.out, self.err);
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }

    /// One JSON value per line.
    #[track_caller]
    fn lines(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }
}

/// `countersign` with this token, not yet begun.
pub fn command(server: &Server, token: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_countersign"));
    command.args(arguments).env_remove("COUNTERSIGN_PROFILE");
    command.env("COUNTERSIGN_SERVER", server.url()).env("COUNTERSIGN_TOKEN", token);
    command.env("COUNTERSIGN_PROFILES", server.directory.path().join("profiles.toml"));
    command
}

/// `countersign` with this token.
pub async fn as_actor(server: &Server, token: &str, arguments: &[&str]) -> Said {
    let mut command = command(server, token, arguments);
    Said::of(tokio::task::spawn_blocking(move || command.output()).await.expect("a thread").expect("it runs"))
}

/// `countersign` as the administrator.
pub async fn countersign(server: &Server, arguments: &[&str]) -> Said {
    as_actor(server, &admin_token(server), arguments).await
}

pub fn admin_token(server: &Server) -> String {
    let token = std::fs::read_to_string(server.directory.path().join("admin.token")).expect("a token");
    token.trim().to_owned()
}

pub async fn with(definitions: &[&'static str]) -> Server {
    let server = Server::start().await;
    for definition in definitions {
        let published: Answer = server.admin().post_bytes("/v1/definitions", *definition).await;
        published.created();
    }
    server
}

pub async fn started(server: &Server, arguments: &[&str]) -> String {
    let said = countersign(server, &[&["run", "--json"], arguments].concat()).await;
    said.json()["run_id"].as_str().expect("an id").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_from_the_first_claim_to_the_end() {
    let server = with(&[ORDER]).await;
    let said = countersign(&server, &["run", "order-process", "--input", "order_id=o-1", "--subject", "order 1"]).await;
    said.says(0, &["started ", "countersign watch ", "countersign work orders"]);
    let id = said.out.split_whitespace().nth(1).expect("an id").to_owned();

    let claimed = countersign(&server, &["task", "claim", "orders", "--worker", "w-1", "--json"]).await.json();
    let task = &claimed["tasks"][0];
    assert_eq!((task["step"].as_str(), &task["input"]), (Some("VALIDATE"), &json!({"order_id": "o-1"})));
    let (task, lease) = (task["task_id"].as_str().expect("a task"), task["lease_token"].as_str().expect("a token"));
    countersign(&server, &["runs", "show", &id]).await.says(0, &["order 1 is executing", "held by w-1", "1/5"]);
    countersign(&server, &["task", "heartbeat", task, "--lease-token", lease]).await.says(0, &["in_progress"]);
    let retry = ["task", "retry", task, "--lease-token", lease, "--error", "no answer", "--backoff", "0s"];
    countersign(&server, &retry).await.says(0, &["is failed, the run executing"]);

    let worked = countersign(&server, &["work", "orders", "--drain", "--exec", "cat", "--json"]).await;
    assert_eq!(worked.lines().iter().map(|line| line["reported"].as_str()).collect::<Vec<_>>(), [Some("completed")]);
    countersign(&server, &["show", &id])
        .await
        .says(0, &["✓", "2/5", "waits for the event payment.captured", "events send"]);

    let sent = ["events", "send", "payment.captured", "--key", "o-1", "--id", "e-1", "--data", "amount:=42"];
    countersign(&server, &sent).await.says(0, &["sent payment.captured e-1", "woke PAYMENT of "]);
    countersign(&server, &sent).await.says(0, &["known already"]);
    countersign(&server, &["work", "orders", "--drain", "--exec", "cat"]).await.says(0, &["SHIP", "run completed"]);

    countersign(&server, &["watch", &id]).await.says(0, &["SHIP ✓ Completed", "run is completed"]);
    let watched = countersign(&server, &["watch", &id, "--json"]).await;
    let last = watched.lines().pop().expect("a line");
    assert_eq!((last["change"].as_str(), last["state"].as_str()), (Some("run"), Some("completed")));
    assert_eq!(last["output"], json!({"shipped": {"order_id": "o-1", "paid": 42}, "paid": 42}));
    let listed = countersign(&server, &["runs", "list", "--state", "completed", "--json"]).await.json();
    assert_eq!(listed["items"][0]["run_id"], id.as_str());
    countersign(&server, &["runs", "list", "--state", "failed"]).await.says(0, &["No runs."]);
}

const PICK: &str = "kind: workflow\nname: picking\norder: linear\nqueue: picks\ncorrelationKey: ${input.key}\n\
    steps: [{name: pick, errors: {external: skip}}, {name: pack}]\n";

/// "`countersign work`: the CLI worker can wait, categorise errors and send events."
#[tokio::test(flavor = "multi_thread")]
async fn a_command_reports_as_the_worker_protocol_does() {
    let server = with(&[PICK]).await;
    let id = started(&server, &["picking", "--input", "key=k-1"]).await;
    let work = async |exec: &str| {
        let said = countersign(&server, &["work", "picks", "--drain", "--exec", exec, "--json"]).await;
        said.lines().iter().map(|line| line["reported"].as_str().unwrap_or("").to_owned()).collect::<Vec<_>>()
    };
    let state = async || {
        let run = server.admin().get(&format!("/v1/runs/{id}")).await.ok();
        run["steps"].as_array().expect("steps").iter().map(|step| step["state_code"].clone()).collect::<Vec<_>>()
    };
    let wait = r#"{"result": "waiting", "waiting_event_type": "stock", "timeout_ms": 3600000,
        "outbound_events": [{"type": "stock.wanted", "data": 3}]}"#
        .replace('\n', " ");
    // It waits, and the event that wakes it is given to the next command.
    let pick = format!("if [ -n \"$COUNTERSIGN_EVENT\" ]; then echo \"$COUNTERSIGN_EVENT\"; else echo '{wait}'; fi");
    assert_eq!(work(&pick).await, ["waiting"]);
    assert_eq!(state().await, ["waiting", "not_started"]);
    countersign(&server, &["events", "send", "stock", "--key", "k-1", "--data", "n:=4"]).await.says(0, &["woke pick"]);
    // What the server does not accept is the failure of the step.
    let bad = r#"echo '{"result": "completed", "outbound_events": [{"type": "run.mine"}]}'"#;
    let exec = format!("if [ $COUNTERSIGN_STEP = pick ]; then {pick}; else {bad}; fi");
    assert_eq!(work(&exec).await, ["completed", "dead"]);
    let run = server.admin().get(&format!("/v1/runs/{id}")).await.ok();
    assert_eq!(run["steps"][0]["output"], json!({"n": 4}), "{run}");
    assert!(run["steps"][1]["last_error"].as_str().expect("an error").contains("the server refused"), "{run}");
    let outbox = server.admin().get("/v1/outbox").await.ok();
    assert!(outbox.to_string().contains("stock.wanted"), "{outbox}");

    // The category says what follows.
    let id = started(&server, &["picking", "--input", "key=k-2"]).await;
    let dead = r#"if [ $COUNTERSIGN_STEP = pack ]; then echo 1; else
        echo '{"result": "dead", "last_error": "no stock", "error_category": "external"}'; fi"#;
    assert_eq!(work(dead).await, ["dead", "completed"]);
    let run = server.admin().get(&format!("/v1/runs/{id}")).await.ok();
    assert_eq!((&run["state"], &run["steps"][0]["last_error"]), (&json!("completed"), &json!("no stock")), "{run}");
}

/// The worker protocol by hand, verb by verb.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_by_hand_sends_events_is_blocked_and_declared_impossible() {
    let server = with(&[PICK]).await;
    let id = started(&server, &["picking", "--input", "key=k-1"]).await;
    let claim = async || {
        let task = countersign(&server, &["task", "claim", "picks", "--wait", "20s", "--json"]).await.json()["tasks"]
            [0]
        .clone();
        ["task_id", "lease_token"].map(|name| task[name].as_str().expect("a text").to_owned())
    };
    let report = async |[task, lease]: [String; 2], verb: &str, more: &[&str]| {
        countersign(&server, &[&["task", verb, &task, "--lease-token", &lease], more].concat()).await
    };
    report(claim().await, "block", &["--block-reason", "missing_input"]).await.says(0, &["is blocked"]);
    let unblock = ["step", "unblock", &id, "pick", "--evidence", "TICKET-6"];
    countersign(&server, &unblock).await.says(0, &["pick is ready"]);
    report(claim().await, "wait", &["--timeout", "0s", "--emit", "pick.asked"]).await.says(0, &["is waiting"]);
    let emit = ["--output", "n:=1", "--emit", r#"pick.done={"n": 1}"#, "--emit", "pick.over"];
    report(claim().await, "complete", &emit).await.says(0, &["is completed"]);
    let task = claim().await;
    report(task.clone(), "complete", &["--emit", "pick={"]).await.says(2, &["what follows `=` is not JSON"]);
    report(task.clone(), "block", &["--block-reason", "tired"]).await.says(1, &["block_reason"]);
    report(task, "cannot-complete", &["--evidence", "TICKET-7"]).await.says(0, &["is cannot_complete"]);
    let run = server.admin().get(&format!("/v1/runs/{id}")).await.ok();
    assert_eq!(run["steps"][1]["state_code"], "cannot_complete", "{run}");
    let outbox = server.admin().get("/v1/outbox").await.ok().to_string();
    assert!(["pick.asked", "pick.done", "pick.over"].iter().all(|event| outbox.contains(event)), "{outbox}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_step_is_undone_or_tried_again_in_a_new_run() {
    let server = with(&[SAGA, ORDER]).await;
    let id = started(&server, &["order-saga", "--input", "{}"]).await;
    let fails = "if [ $COUNTERSIGN_STEP = setup-analytics ]; then echo discontinued >&2; exit 1; fi; cat";
    countersign(&server, &["work", "default", "--drain", "--exec", fails]).await.says(0, &["dead", "discontinued"]);
    countersign(&server, &["work", "product-analyst", "--drain", "--exec", "cat"])
        .await
        .says(0, &["↩ undo provision-workspace"]);
    countersign(&server, &["work", "growth-optimizer", "--drain", "--exec", "cat"])
        .await
        .says(0, &["↩ undo create-account"]);
    let undone = countersign(&server, &["watch", &id]).await;
    undone.says(1, &["run is completed (rolled_back)"]);

    let id = started(&server, &["order-process", "--input", r#"{"order_id": "o-2"}"#]).await;
    countersign(&server, &["work", "orders", "--drain", "--exec", "cat"]).await.says(0, &["VALIDATE"]);
    let paid = ["events", "send", "payment.captured", "--run", &id, "--data", "amount:=1"];
    countersign(&server, &paid).await.says(0, &["woke PAYMENT"]);
    countersign(&server, &["work", "orders", "--drain", "--exec", "exit 3"]).await.says(0, &["exited with 3"]);
    countersign(&server, &["watch", &id]).await.says(1, &["run is failed"]);
    countersign(&server, &["runs", "show", &id]).await.says(0, &[&format!("countersign runs retry {id} --from SHIP")]);
    let again = countersign(&server, &["runs", "retry", &id, "--from", "SHIP", "--json"]).await.json();
    let again = again["run_id"].as_str().expect("an id");
    countersign(&server, &["work", "orders", "--drain", "--exec", "cat"]).await.says(0, &["SHIP", "run completed"]);
    countersign(&server, &["runs", "show", again]).await.says(0, &["is completed", "continues", &id]);
}

/// As a service manager or a container ends it.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_told_to_stop_finishes_first() {
    let server = with(&[ORDER]).await;
    let id = started(&server, &["order-process", "--input", r#"{"order_id": "o-1"}"#]).await;
    let slow = "echo counting >&2; sleep 2; echo done";
    let mut command = command(&server, &admin_token(&server), &["work", "orders", "--exec", slow]);
    let worker = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let pid = worker.id().to_string();
    while countersign(&server, &["runs", "show", &id, "--json"]).await.json()["steps"][0]["state_code"] != "in_progress"
    {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let told = Command::new("kill").args(["-TERM", &pid]).status().expect("kill");
    assert!(told.success());
    let said =
        Said::of(tokio::task::spawn_blocking(|| worker.wait_with_output()).await.expect("a thread").expect("an end"));
    said.says(
        0,
        &["finishing what is under way", "VALIDATE", "completed", "counting", "no JSON: the step's output is null"],
    );
    countersign(&server, &["runs", "show", &id]).await.says(0, &["waits for the event payment.captured"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn gates_of_a_run_are_decided_like_those_of_a_process() {
    let server = with(&[RELEASE]).await;
    let made = countersign(&server, &["actor", "add", "boss", "--json"]).await.json();
    let boss = made["token"].as_str().expect("a token").to_owned();
    let id = started(&server, &["release"]).await;
    countersign(&server, &["work", "release", "--drain", "--exec", "cat"]).await.says(0, &["build", "run blocked"]);
    as_actor(&server, &boss, &["inbox"]).await.says(0, &[&format!("countersign gate decide {id} deploy approve")]);
    countersign(&server, &["gate", "list", &id]).await.says(0, &["deploy", "Pending"]);
    // As a process it does not exist: there its gate would be approved and the run never told.
    let path = format!("/v1/processes/{id}/gates/deploy/decision");
    server.with_token(&boss).post(&path, json!({"decision": "approve"})).await.refused(404, "not-known");
    as_actor(&server, &boss, &["gate", "decide", &id, "deploy", "approve"]).await.says(0, &["deploy: Approved"]);
    countersign(&server, &["work", "release", "--drain", "--exec", "cat"]).await.says(0, &["deploy", "run completed"]);

    let id = started(&server, &["release"]).await;
    countersign(&server, &["runs", "cancel", &id, "--reason", "r"]).await.says(1, &["gate-not-cleared"]);
    countersign(&server, &["gate", "open", &id, "cancel"]).await.says(0, &["opened the gate of cancel"]);
    as_actor(&server, &boss, &["gate", "decide", &id, "cancel", "approve"]).await.says(0, &["cancel: Approved"]);
    countersign(&server, &["runs", "cancel", &id, "--reason", "r"]).await.says(0, &["is cancelled"]);
    countersign(&server, &["watch", &id]).await.says(1, &["run is cancelled"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_steered() {
    let server = with(&[ORDER]).await;
    let id = started(&server, &["order-process", "--input", "order_id=o-3"]).await;
    countersign(&server, &["runs", "pause", &id, "--reason", "stock-taking"]).await.says(0, &["is paused"]);
    countersign(&server, &["task", "claim", "orders"]).await.says(0, &["Nothing to do in orders."]);
    countersign(&server, &["runs", "show", &id]).await.says(0, &["countersign runs resume"]);
    assert_eq!(countersign(&server, &["runs", "resume", &id, "--json"]).await.json()["state"], "executing");
    countersign(&server, &["runs", "stop", &id, "--reason", "r"]).await.says(0, &["is stopped"]);
    countersign(&server, &["runs", "void", &id, "--reason", "a test"]).await.says(0, &["is voided"]);
    countersign(&server, &["runs", "retry", &id]).await.says(0, &["started "]);
    let later = started(&server, &["order-process", "--input", "order_id=o-4", "--at", "in 2h"]).await;
    countersign(&server, &["runs", "show", &later]).await.says(0, &["is queued", "not before in 2 h"]);
}

/// "`runs cancel` says what it does not undo, `--compensate` does."
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_says_what_it_leaves_or_undoes_it() {
    const TRIP: &str = "kind: workflow\nname: trip\norder: linear\nqueue: trips\nsteps: [{name: hotel}, {name: mail}, {name: flight}, {name: car}]\n\
        compensation:\n  - {step: hotel, action: cancel, agent: undos}\n  - {step: flight, action: cancel, agent: undos}\n";
    let server = with(&[ORDER, TRIP]).await;
    let admin = server.admin();
    let under_way = async || {
        let id = started(&server, &["trip"]).await;
        for _ in 0..3 {
            let task = admin.post("/v1/queues/trips/claim", json!({"worker_id": "w"})).await.ok();
            let task = &task["tasks"][0];
            let path = format!("/v1/tasks/{}/complete", task["task_id"].as_str().expect("an id"));
            admin.post(&path, json!({"lease_token": task["lease_token"], "output": 1})).await.ok();
        }
        id
    };
    let left = under_way().await;
    let cancel = format!("/v1/runs/{left}/cancel");
    let preview = format!("{cancel}?preview=true");
    let seen = admin.post(&preview, json!({"reason": "r"})).await.ok();
    assert_eq!(
        (&seen["transition_id"], &seen["leaves"]),
        (&json!("C3"), &json!(["hotel", "mail", "flight"])),
        "{seen}"
    );
    assert_eq!(seen.get("undoes"), None);
    let seen = admin.post(&preview, json!({"reason": "r", "compensate": true})).await.ok();
    assert_eq!((&seen["undoes"], &seen["leaves"]), (&json!(["flight", "hotel"]), &json!(["mail"])), "{seen}");
    countersign(&server, &["runs", "cancel", &left, "--reason", "r"]).await.says(
        0,
        &[
            "is cancelled",
            "cancelling undoes nothing; these steps stay completed: hotel, mail, flight",
            "not undone, though the definition says how (--compensate): hotel, flight",
        ],
    );

    let undone = under_way().await;
    let said = countersign(&server, &["runs", "cancel", &undone, "--reason", "no visa", "--compensate"]).await;
    said.says(0, &["is compensating", "undone, in this order: flight, hotel", "stay completed: mail"]);
    let view = admin.get(&format!("/v1/runs/{undone}")).await.ok();
    assert_eq!((&view["halted_by"], &view["reason"]), (&json!("admin"), &json!("no visa")), "{view}");
    countersign(&server, &["runs", "cancel", &undone, "--reason", "r", "--compensate"])
        .await
        .says(1, &["already-terminal"]);
    countersign(&server, &["work", "undos", "--drain", "--exec", "cat"]).await.says(0, &["run cancelled"]);
    let view = admin.get(&format!("/v1/runs/{undone}")).await.ok();
    assert_eq!((&view["state"], &view["outcome"]), (&json!("cancelled"), &json!("rolled_back")), "{view}");
    assert_eq!((&view["ended_by"], &view["reason"]), (&json!("admin"), &json!("no visa")));
    let recorded = admin.get(&format!("/v1/ledger/records?instance_id={undone}&action_ref=run_cancelled")).await.ok();
    assert_eq!(recorded["items"][0]["payload"]["compensate"], true, "{recorded}");

    let plain = started(&server, &["order-process", "--input", "order_id=o-9"]).await;
    let asked = json!({"reason": "r", "compensate": true});
    for command in ["cancel", "pause", "resume", "stop", "void"] {
        let path = format!("/v1/runs/{plain}/{command}");
        admin.post(&path, asked.clone()).await.refused_at(400, "invalid-request", "compensate");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_are_told() {
    let server = with(&[ORDER]).await;
    for (line, code, told) in [
        ("run nothing", 1, "not-known"),
        ("run order-process", 1, "inputSchema"),
        ("run order-process --input order_id", 2, "this has to be JSON"),
        ("run order-process --input-file nowhere.json", 2, "nowhere.json cannot be read"),
        ("run order-process --at yesterday", 2, "how long from now"),
        ("runs show nothing", 1, "not-known"),
        ("watch nothing", 1, "not-known"),
        ("runs pause nothing --reason r", 1, "not-known"),
        ("gate decide nothing a approve", 1, "no process with this instance_id"),
        ("events send paid", 2, "--run"),
        ("events send paid --run nothing", 1, "not-known"),
        ("task complete nothing --lease-token t", 1, "not-known"),
        ("task claim @shell", 1, "invalid-request"),
        ("work @shell --exec cat", 1, "invalid-request"),
    ] {
        let said = countersign(&server, &line.split(' ').collect::<Vec<_>>()).await;
        assert!(said.err.contains(told) && said.code == code, "{line}: {said:?}");
    }
    let refused = countersign(&server, &["run", "nothing", "--json"]).await;
    let problem: Value = serde_json::from_str(&refused.err).expect("JSON");
    assert_eq!((problem["code"].as_str(), problem["field"].as_str()), (Some("not-known"), Some("definition")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_is_drawn() {
    let server = with(&[SAGA]).await;
    let saga = countersign(&server, &["definition", "show", "order-saga"]).await;
    saga.says(0, &["undone by growth-optimizer", "send-welcome (optional)", "kind: workflow"]);
    let mermaid = countersign(&server, &["definition", "show", "order-saga", "--mermaid"]).await;
    mermaid.says(0, &["flowchart TD", "s0 --> s1"]);
}
