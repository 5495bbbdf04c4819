//! `/openapi.json` describes exactly what is served.

use crate::support::{Answer, Server};
use reqwest::Method;
use serde_json::Value;
use std::collections::BTreeSet;

const SERVED: &[&str] = &[
    "GET /errors/{code}",
    "GET /healthz",
    "GET /metrics",
    "GET /openapi.json",
    "GET /readyz",
    "GET /v1/actors",
    "GET /v1/actors/names",
    "POST /v1/actors/{actor_ref}/delegations",
    "GET /v1/actors/{actor_ref}/delegations",
    "DELETE /v1/actors/{actor_ref}/delegations/{delegation_id}",
    "GET /v1/actors/{actor_ref}/keys",
    "GET /v1/approval-steps",
    "GET /v1/assignments",
    "GET /v1/definitions",
    "GET /v1/definitions/{name}",
    "GET /v1/definitions/{name}/versions",
    "GET /v1/definitions/{name}/versions/{version}",
    "GET /v1/definitions/{name}/versions/{version}/diff",
    "GET /v1/definitions/{name}/versions/{version}/graph",
    "GET /v1/grants",
    "GET /v1/inbox",
    "GET /v1/inbox/count",
    "GET /v1/ledger/checkpoint",
    "GET /v1/ledger/consistency",
    "GET /v1/ledger/export",
    "GET /v1/ledger/holds",
    "GET /v1/ledger/key",
    "GET /v1/ledger/purgeable",
    "GET /v1/ledger/records",
    "GET /v1/ledger/rotations",
    "GET /v1/whoami",
    "GET /v1/ledger/records/{event_id}",
    "GET /v1/ledger/records/{event_id}/proof",
    "GET /v1/me",
    "GET /v1/dead-letters",
    "GET /v1/dead-letters/{dead_letter_id}",
    "GET /v1/replay-requests",
    "GET /v1/governance/lag",
    "GET /v1/governance/problems",
    "GET /v1/governance/problems/{category}",
    "GET /v1/governance/workers",
    "POST /v1/governance/workers/{worker_class}/freeze",
    "POST /v1/governance/workers/{worker_class}/thaw",
    "GET /v1/outbox",
    "GET /v1/registry",
    "GET /v1/registry/{machine}",
    "GET /v1/timeline",
    "GET /v1/processes",
    "GET /v1/processes/{instance_id}",
    "POST /v1/actors",
    "POST /v1/actors/{actor_ref}/keys",
    "POST /v1/actors/{actor_ref}/keys/{key_id}/revoke",
    "POST /v1/actors/{actor_ref}/tokens",
    "POST /v1/actors/{actor_ref}/tokens/{credential_id}/revoke",
    "GET /v1/actors/{actor_ref}/sessions",
    "DELETE /v1/actors/{actor_ref}/sessions/{session_id}",
    "POST /v1/definitions",
    "POST /v1/definitions/validate",
    "POST /v1/grants",
    "POST /v1/grants/{grant_id}/revoke",
    "POST /v1/ledger/holds",
    "POST /v1/ledger/holds/{hold_id}/release",
    "POST /v1/ledger/records/{event_id}/purge",
    "POST /v1/ledger/seal",
    "POST /v1/ledger/verify",
    "POST /v1/ledger/verify-log",
    "POST /v1/dead-letters/{dead_letter_id}/replay-requests",
    "POST /v1/processes",
    "POST /v1/processes/{instance_id}/gates",
    "POST /v1/processes/{instance_id}/gates/{action}/decision",
    "POST /v1/processes/{instance_id}/transitions",
    "DELETE /v1/session",
    "POST /v1/session",
    "POST /v1/session/options",
    "POST /v1/me/passkeys",
    "POST /v1/me/passkeys/options",
    "POST /v1/runs",
    "GET /v1/runs",
    "POST /v1/runs/trigger",
    "GET /v1/schedules",
    "POST /v1/schedules/{definition}/pause",
    "POST /v1/schedules/{definition}/resume",
    "POST /v1/schedules/{definition}/trigger",
    "POST /v1/definitions/{name}/retire",
    "GET /v1/runs/{run_id}",
    "GET /v1/runs/{run_id}/actions",
    "GET /v1/runs/{run_id}/cells",
    "GET /v1/runs/{run_id}/steps/{step}",
    "GET /v1/runs/{run_id}/steps/{step}/actions",
    "GET /v1/processes/{instance_id}/actions",
    "GET /v1/runs/{run_id}/artifacts/{sha256}",
    "GET /v1/runs/{run_id}/sidecar",
    "POST /v1/runs/{run_id}/cancel",
    "POST /v1/runs/{run_id}/pause",
    "POST /v1/runs/{run_id}/resume",
    "POST /v1/runs/{run_id}/stop",
    "POST /v1/runs/{run_id}/void",
    "POST /v1/runs/{run_id}/steps/{step}/claim",
    "POST /v1/runs/{run_id}/steps/{step}/release",
    "POST /v1/runs/{run_id}/steps/{step}/wait",
    "POST /v1/runs/{run_id}/steps/{step}/block",
    "POST /v1/runs/{run_id}/steps/{step}/unblock",
    "POST /v1/runs/{run_id}/steps/{step}/re-engage",
    "POST /v1/runs/{run_id}/steps/{step}/complete",
    "POST /v1/runs/{run_id}/steps/{step}/cannot-complete",
    "POST /v1/runs/{run_id}/steps/{step}/escalate",
    "POST /v1/runs/{run_id}/steps/{step}/retry",
    "POST /v1/runs/{run_id}/steps/{step}/block-escalate",
    "POST /v1/runs/{run_id}/steps/{step}/reopen",
    "POST /v1/runs/{run_id}/steps/{step}/extend-deadline",
    "POST /v1/runs/{run_id}/steps/{step}/transition",
    "GET /v1/runs/{run_id}/steps/{step}/history",
    "GET /v1/worklist",
    "GET /v1/stream",
    "GET /v1/runs/counts",
    "GET /v1/ledger/status",
    "POST /v1/runs/{run_id}/steps/{step}/declare-effect",
    "POST /v1/runs/{run_id}/gates",
    "POST /v1/runs/{run_id}/gates/{action}/decision",
    "POST /v1/events",
    "POST /v1/queues/{queue}/claim",
    "POST /v1/queues/{queue}/leave",
    "POST /v1/tasks/{task_id}/heartbeat",
    "POST /v1/tasks/{task_id}/complete",
    "POST /v1/tasks/{task_id}/wait",
    "POST /v1/tasks/{task_id}/retry",
    "POST /v1/tasks/{task_id}/dead",
    "POST /v1/tasks/{task_id}/cannot-complete",
    "POST /v1/tasks/{task_id}/block",
    "POST /v1/proposals",
    "GET /v1/proposals",
    "GET /v1/proposals/{id}",
    "PUT /v1/proposals/{id}",
    "GET /v1/proposals/{id}/diff",
    "POST /v1/proposals/{id}/submit",
    "POST /v1/proposals/{id}/review",
    "POST /v1/proposals/{id}/comments",
    "POST /v1/proposals/{id}/merge",
    "POST /v1/proposals/{id}/withdraw",
];

#[tokio::test(flavor = "multi_thread")]
async fn the_description_lists_what_is_served_and_nothing_else() {
    let server = Server::start().await;
    let nobody = server.nobody();
    let description = nobody.get("/openapi.json").await.ok();
    assert!(description["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")));
    let mut described = BTreeSet::new();
    for (path, item) in description["paths"].as_object().expect("paths") {
        for method in item.as_object().expect("operations").keys() {
            described.insert(format!("{} {path}", method.to_uppercase()));
        }
    }
    assert_eq!(described, SERVED.iter().map(|route| (*route).to_owned()).collect());

    for path in description["paths"].as_object().expect("paths").keys() {
        let address = path.replace(['{', '}'], "");
        for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let answer = Answer::of(nobody.request(method.clone(), &address)).await;
            // A definition may be named `validate` too.
            let named = path == "/v1/definitions/validate" && method == Method::GET;
            if !named && !described.contains(&format!("{method} {path}")) {
                answer.refused(405, "invalid-request");
            } else if path.starts_with("/v1/session") && method == Method::POST {
                // Its credential is in its body.
                answer.refused(400, "invalid-request");
            } else if path.starts_with("/v1/") {
                answer.refused(401, "invalid-credential");
            } else if path == "/errors/{code}" {
                answer.refused(404, "not-known");
            } else {
                assert_eq!(answer.status, 200, "{method} {path}");
            }
        }
    }
}

/// Posts that only look at something.
const READING: &[&str] =
    &["/v1/me/passkeys/options", "/v1/definitions/validate", "/v1/ledger/verify", "/v1/ledger/verify-log"];

/// What changes these, or is below them, is about that instance.
const INSTANCES: &[&str] =
    &["/v1/processes/{instance_id}/", "/v1/proposals/{id}", "/v1/runs/{run_id}/", "/v1/tasks/{task_id}/"];

/// A browser's own, and no act of an actor.
fn about_sessions(path: &str) -> bool {
    path.contains("/session")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_signs_whatever_changes_something() {
    let server = Server::start().await;
    let description = server.nobody().get("/openapi.json").await.ok();
    for (path, item) in description["paths"].as_object().expect("paths") {
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        for (method, operation) in item.as_object().expect("operations") {
            let signs = countersign_client::signed_action(&method.to_uppercase(), &segments);
            let reads = method == "get" && path != "/v1/ledger/export";
            let changes = !reads && !READING.contains(&path.as_str()) && !about_sessions(path);
            assert_eq!(signs.is_some(), changes, "{method} {path}");
            // The console composes its statements by this.
            let statement = &operation["x-countersign-statement"];
            assert_eq!(statement["action"].as_str(), signs, "{method} {path}");
            let instance = INSTANCES.iter().find(|name| signs.is_some() && path.starts_with(**name));
            let named = instance.map(|name| name.split(['{', '}']).nth(1).expect("a parameter"));
            assert_eq!(statement["instance"].as_str(), named, "{method} {path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_is_described_and_every_post_takes_a_key() {
    let server = Server::start().await;
    let description = server.nobody().get("/openapi.json").await.ok();
    for (path, item) in description["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            for (status, response) in operation["responses"].as_object().expect("responses") {
                assert!(
                    response["description"].as_str().is_some_and(|text| !text.is_empty()),
                    "{method} {path} {status}"
                );
            }
            let keyed = operation["parameters"]
                .as_array()
                .is_some_and(|all| all.iter().any(|p| p["name"] == "Idempotency-Key"));
            let changes = matches!(method.as_str(), "post" | "put");
            assert_eq!(keyed, changes && !about_sessions(path), "{method} {path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_type_of_a_problem_is_the_address_of_its_page() {
    let server = Server::start().await;
    let refused = server.admin().fire("x", "go").await;
    refused.refused(404, "not-known");
    let page = server.nobody().get(refused.body["type"].as_str().expect("a type")).await;
    assert_eq!((page.status, page.content_type.as_str()), (200, "text/markdown; charset=utf-8"));
    assert!(page.text.starts_with("# not-known\n"), "{}", page.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_reference_of_the_description_leads_somewhere() {
    let server = Server::start().await;
    let description = server.nobody().get("/openapi.json").await.ok();
    let mut references = Vec::new();
    collect(&description, &mut references);
    assert!(references.len() > 50, "{}", references.len());
    for reference in references {
        let pointer = reference.strip_prefix('#').expect("a reference within the document");
        assert!(description.pointer(pointer).is_some(), "{reference}");
    }
    let parameters = &description["paths"]["/v1/approval-steps"]["get"]["parameters"];
    let names: Vec<&str> =
        parameters.as_array().expect("parameters").iter().filter_map(|parameter| parameter["name"].as_str()).collect();
    assert!(names.contains(&"withdrawn_before") && names.contains(&"order"), "{names:?}");
    assert_eq!(
        description["paths"]["/v1/processes"]["post"]["responses"]["default"]["content"]
            .as_object()
            .map(|c| c.keys().cloned().collect()),
        Some(vec!["application/problem+json".to_owned()])
    );
}

fn collect<'d>(value: &'d Value, references: &mut Vec<&'d str>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| match (name.as_str(), value) {
            ("$ref", Value::String(reference)) => references.push(reference),
            _ => collect(value, references),
        }),
        Value::Array(items) => items.iter().for_each(|item| collect(item, references)),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_see_that_it_lives_and_what_it_does() {
    let server = Server::start().await;
    let nobody = server.nobody();
    assert_eq!(nobody.get("/healthz").await.ok()["status"], "ok");
    assert_eq!(nobody.get("/readyz").await.ok()["store"], "sqlite");
    server.admin().get("/v1/inbox").await.ok();
    let metrics = nobody.get("/metrics").await;
    assert!(metrics.content_type.starts_with("text/plain"));
    assert!(metrics.text.contains(r#"path="/v1/inbox""#), "{}", metrics.text);
    assert!(metrics.text.contains("countersign_commands_total"), "{}", metrics.text);
    assert!(metrics.text.contains("countersign_http_request_seconds_bucket"), "{}", metrics.text);
    let answer = Answer::of(nobody.request(Method::GET, "/healthz").header("X-Request-Id", "abc-1")).await;
    assert_eq!(answer.headers["x-request-id"], "abc-1");
    let answer = Answer::of(nobody.request(Method::GET, "/healthz").header("X-Request-Id", "{}<>")).await;
    assert_eq!(answer.headers["x-request-id"].len(), 16);
}

/// The console's types are made from this copy. `BLESS=1` writes it anew.
#[tokio::test]
async fn the_consoles_copy_is_what_is_served() {
    let server = Server::start().await;
    let served = server.admin().get("/openapi.json").await.ok();
    let copy = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../console/openapi.json");
    if std::env::var_os("BLESS").is_some() {
        let text = serde_json::to_string_pretty(&served).expect("JSON");
        std::fs::write(&copy, text + "\n").expect("a copy");
    }
    let kept: Value = serde_json::from_str(&std::fs::read_to_string(&copy).expect("a copy")).expect("JSON");
    assert!(kept == served, "console/openapi.json is old: run this test with BLESS=1, then `make console`");
}
