//! Starts by an event, and steps that this server does not carry out.

use crate::support::{Actor, Server};
use serde_json::{Value, json};
use std::time::Duration;

fn on_order(name: &str, rest: &str) -> String {
    format!("kind: workflow\nname: {name}\non: [{{event: order.created{rest}}}]\nqueue: q\nsteps:\n  - {{name: A}}\n")
}

fn run_ids(answer: &Value) -> Vec<String> {
    let ids = answer["run_ids"].as_array().expect("a list");
    ids.iter().map(|id| id.as_str().expect("an id").to_owned()).collect()
}

async fn all_runs(actor: &Actor) -> usize {
    actor.get("/v1/runs").await.ok()["items"].as_array().map_or(0, Vec::len)
}

/// What a crash between two starts leaves, or one that fails: one of them is there. The same call again starts the other one,
/// and no second one of the first.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_sent_again_starts_what_is_missing_and_nothing_twice() {
    let mut server = Server::start().await;
    let admin = server.admin();
    let event = json!({"type": "order.created", "data": {"n": 1, "big": "x".repeat(70_000)}});
    let on_order = |name: &str, member: &str| on_order(name, &format!(", input: {{it: \"${{event.{member}}}\"}}"));
    admin.post_bytes("/v1/definitions", on_order("billing", "n")).await.created();
    let keyed = on_order("shipping", "big") + "correlationKey: \"${input.it}\"\n";
    admin.post_bytes("/v1/definitions", keyed).await.created();
    // The key is longer than any may be.
    admin.post_keyed("/v1/runs/trigger", "e-1", event.clone()).await.refused_at(400, "invalid-request", "input");
    let first = admin.get("/v1/runs").await.ok()["items"][0]["run_id"].as_str().expect("a run").to_owned();
    assert_eq!(all_runs(&admin).await, 1);
    admin.post_bytes("/v1/definitions", on_order("shipping", "n")).await.created();

    server.restart().await;
    let admin = server.admin();
    let both = run_ids(&admin.post_keyed("/v1/runs/trigger", "e-1", event.clone()).await.accepted());
    assert_eq!((both.len(), both.contains(&first)), (2, true));
    // It has been answered: what is published afterwards is not meant, and another event needs another key.
    admin.post_bytes("/v1/definitions", on_order("archive", "n")).await.created();
    let again = run_ids(&admin.post_keyed("/v1/runs/trigger", "e-1", event.clone()).await.accepted());
    assert_eq!((again, all_runs(&admin).await), (both, 2));
    let other = json!({"type": "order.cancelled"});
    admin.post_keyed("/v1/runs/trigger", "e-1", other).await.refused_at(409, "conflict", "Idempotency-Key");
    assert_eq!(run_ids(&admin.post_keyed("/v1/runs/trigger", "e-2", event).await.accepted()).len(), 3);
    assert_eq!(all_runs(&admin).await, 5);
}

/// Where one of the definitions cannot be started, none is.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_starts_all_or_nothing() {
    let server = Server::start().await;
    let admin = server.admin();
    admin.post_bytes("/v1/definitions", on_order("a-first", "")).await.created();
    admin.post_bytes("/v1/definitions", on_order("b-second", ", input: {n: \"${event.deep.er}\"}")).await.created();
    let event = json!({"type": "order.created", "data": {"n": 1}});
    admin.post("/v1/runs/trigger", event.clone()).await.refused_at(400, "invalid-request", "data");
    let schema = on_order("b-second", "") + "inputSchema: {type: object, required: [missing]}\n";
    admin.post_bytes("/v1/definitions", schema).await.created();
    admin.post("/v1/runs/trigger", event.clone()).await.refused_at(400, "invalid-request", "data");
    let keyless = on_order("b-second", "") + "correlationKey: \"${input.missing.key}\"\n";
    admin.post_bytes("/v1/definitions", keyless).await.created();
    admin.post("/v1/runs/trigger", event.clone()).await.refused_at(400, "invalid-request", "data");
    let clerk = server.actor("clerk", &["runs:start:a-first"]).await;
    admin.post_bytes("/v1/definitions", on_order("b-second", "")).await.created();
    clerk.post("/v1/runs/trigger", event.clone()).await.refused(403, "permission-denied");
    // Who may start nothing is told the same, whatever an event would start.
    let guest = server.actor("guest", &["runs:read"]).await;
    let matched = guest.post("/v1/runs/trigger", event.clone()).await;
    let unmatched = guest.post("/v1/runs/trigger", json!({"type": "nobody.listens"})).await;
    unmatched.refused(403, "permission-denied");
    assert_eq!(matched.body, unmatched.body);
    assert_eq!(all_runs(&admin).await, 0);
    admin.post("/v1/runs/trigger", event).await.accepted();
    assert_eq!(all_runs(&admin).await, 2);
}

const SHELL: &str = "kind: workflow\nname: build\nsteps:\n  - {name: MAKE, run: shell, command: \"true\"}\n";

pub async fn until_state(admin: &Actor, run_id: &str, state: &str) -> Value {
    for _ in 0..2400 {
        let run = admin.get(&format!("/v1/runs/{run_id}")).await.ok();
        if run["state"] == state {
            return run;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("{run_id} did not become {state}: {}", admin.get(&format!("/v1/runs/{run_id}")).await.ok());
}

/// A shell step on a server that carries out none: the run is blocked, and says what to do.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_nobody_carries_out_says_so() {
    let mut server = Server::start().await;
    let admin = server.admin();
    admin.post_bytes("/v1/definitions", SHELL).await.created();
    let started = admin.post("/v1/runs", json!({"definition": "build"})).await.created();
    let run_id = started["run_id"].as_str().expect("an id").to_owned();
    let run = until_state(&admin, &run_id, "blocked").await;
    let error = run["steps"][0]["last_error"].as_str().expect("an error");
    assert!(error.starts_with("SHELL_DISABLED: ") && error.contains("executors.shell.enabled = true"), "{error}");
    assert_eq!(run["steps"][0]["state_code"], "blocked");

    // It says how to go on, and so it does.
    server.configure("[executors.shell]\nenabled = true\n").await;
    let admin = server.admin();
    admin.post(&format!("/v1/runs/{run_id}/steps/MAKE/unblock"), json!({"evidence_ref": "note-1"})).await.ok();
    until_state(&admin, &run_id, "completed").await;
}

/// Where another server on the store carries them out, they are left to it.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_is_carried_out_elsewhere_waits_for_it() {
    let config = "[executors.shell]\nelsewhere = true\n[executors.http]\nenabled = false\n";
    let mut server = Server::with_config(Some(config)).await;
    let admin = server.admin();
    admin.post_bytes("/v1/definitions", SHELL).await.created();
    let http =
        "kind: workflow\nname: call\nsteps:\n  - {name: GET, run: http, method: GET, url: \"https://example.org\"}\n";
    admin.post_bytes("/v1/definitions", http).await.created();
    let start = async |definition: &str| {
        let started = admin.post("/v1/runs", json!({"definition": definition})).await.created();
        started["run_id"].as_str().expect("an id").to_owned()
    };
    let (shell, http) = (start("build").await, start("call").await);
    let blocked = until_state(&admin, &http, "blocked").await;
    assert!(blocked["steps"][0]["last_error"].as_str().is_some_and(|error| error.starts_with("HTTP_DISABLED")));
    // By then the shell step would have been blocked too.
    assert_eq!(admin.get(&format!("/v1/runs/{shell}")).await.ok()["steps"][0]["state_code"], "ready");
    server.stop().await;
}

/// Nobody knows what a request that was sent and not answered in time has done: nothing is undone around it.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_an_answer_is_not_compensated_over() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = silent.local_addr().expect("an address");
    let config = "[executors.http]\nallow_private = true\n";
    let server = Server::with_config(Some(config)).await;
    let admin = server.admin();
    let pay = |rest: &str| {
        format!(
            "kind: workflow\nname: pay\norder: linear\nfailurePolicy: compensate\nsteps:\n  \
             - {{name: BOOK, run: wait, for: 10ms}}\n  \
             - {{name: PAY, run: http, method: POST, url: \"http://{address}/\", timeout: 300ms{rest}}}\n\
             compensation:\n  - {{step: PAY, action: refund, agent: u}}\n"
        )
    };
    let start = async || {
        let started = admin.post("/v1/runs", json!({"definition": "pay"})).await.created();
        started["run_id"].as_str().expect("an id").to_owned()
    };
    admin.post_bytes("/v1/definitions", pay("")).await.created();
    let run = until_state(&admin, &start().await, "blocked").await;
    assert_eq!((&run["outcome"], &run["steps"][1]["last_error"]), (&json!("effect_unknown"), &json!("STEP_TIMEOUT")));
    // What may be made again may be undone.
    admin.post_bytes("/v1/definitions", pay(", idempotent: true")).await.created();
    let undone = until_state(&admin, &start().await, "completed").await;
    assert_eq!(undone["outcome"], "rolled_back");
}
