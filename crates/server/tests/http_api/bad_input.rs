//! What is refused at the door, and how it is told.

use crate::support::{Answer, BATCH_RELEASE, Server, two_states};
use reqwest::Method;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_not_strict_json_is_refused_at_its_place() {
    let server = Server::start().await;
    let admin = server.admin();
    let id = admin.start_loop("s").await;
    let processes = "/v1/processes";
    let transitions = format!("/v1/processes/{id}/transitions");
    let deep = format!(r#"{{"action": "go", "reason": {}{}}}"#, "[".repeat(64), "]".repeat(64));
    let deepest = format!("reason{}", "[0]".repeat(63));
    let cases: Vec<(&str, Vec<u8>, Option<&str>, &str)> = vec![
        (&transitions, b"{\"action\": \"go\"".to_vec(), None, "line 1, column 15"),
        (&transitions, b"not json".to_vec(), None, "line 1, column 2"),
        (&transitions, b"".to_vec(), None, "the body is empty"),
        (&transitions, b"[]".to_vec(), None, "the body is a list; it must be an object"),
        (&transitions, br#"["go", null]"#.to_vec(), None, "must be an object"),
        (&transitions, b"null".to_vec(), None, "the body"),
        (&transitions, br#"{"action": "go"} x"#.to_vec(), None, "trailing"),
        (&transitions, b"{\"action\": \"g\xffo\"}".to_vec(), None, "not UTF-8"),
        (&transitions, br#"{"action": "go", "action": "go"}"#.to_vec(), Some("action"), "twice"),
        (&transitions, br#"{"action": "go", "force": true}"#.to_vec(), Some("force"), "unknown field"),
        (&transitions, br#"{"action": 7}"#.to_vec(), Some("action"), "expected a string"),
        (&transitions, br#"{"action": 9007199254740993}"#.to_vec(), Some("action"), "9007199254740993"),
        (&transitions, br#"{"action": 1e400}"#.to_vec(), None, "number out of range"),
        (&transitions, br#"{"action": "go\u0000"}"#.to_vec(), Some("action"), "U+0000"),
        (&transitions, deep.into_bytes(), Some(&deepest), "deeper"),
        (&transitions, b"{}".to_vec(), Some("action"), "missing field"),
        (&transitions, br#"{"action": null}"#.to_vec(), Some("action"), "expected a string"),
        (&transitions, br#"{"action": " "}"#.to_vec(), Some("action"), "blank"),
        (&transitions, "{\"action\": \"\u{200b}\u{feff}\"}".into(), Some("action"), "blank"),
        (&transitions, br#"{"action": "go", "reason": ""}"#.to_vec(), Some("reason"), "blank"),
        ("/v1/grants", br#"{"subject_ref": "\u200b", "action_scope": "x"}"#.to_vec(), Some("subject_ref"), "blank"),
        ("/v1/grants", br#"{"subject_ref": "x", "action_scope": "\t"}"#.to_vec(), Some("action_scope"), "blank"),
        ("/v1/actors", br#"{"actor_ref": "", "kind": "human"}"#.to_vec(), Some("actor_ref"), "blank"),
        ("/v1/actors", br#"{"actor_ref": "a\u200bb", "kind": "human"}"#.to_vec(), Some("actor_ref"), "U+200B"),
        ("/v1/actors", br#"{"actor_ref": "a", "kind": "robot"}"#.to_vec(), Some("kind"), "human"),
        (processes, br#"{"subject_ref": "s"}"#.to_vec(), Some("declaration"), "missing"),
        (processes, br#"{"subject_ref": "s", "definition": " "}"#.to_vec(), Some("definition"), "blank"),
        (processes, br#"{"subject_ref": "s", "definition": "x@0"}"#.to_vec(), Some("definition"), "version"),
        (processes, br#"{"subject_ref": "s", "definition": "x@"}"#.to_vec(), Some("definition"), "version"),
    ];
    for (path, body, field, detail) in cases {
        let shown = String::from_utf8_lossy(&body).into_owned();
        let answer = Answer::of(
            admin.request(Method::POST, path).header("Content-Type", "application/json; charset=utf-8").body(body),
        )
        .await;
        answer.refused(400, "invalid-request");
        assert_eq!(answer.body["field"].as_str(), field, "{shown}: {}", answer.text);
        assert!(answer.body["detail"].as_str().is_some_and(|said| said.contains(detail)), "{shown}: {}", answer.text);
    }
    assert_eq!(admin.get(&format!("/v1/processes/{id}")).await.ok()["current_state"], "a", "nothing was changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_spec_or_declaration_that_cannot_work_is_refused() {
    let server = Server::start().await;
    let admin = server.admin();
    let mut guarded = two_states();
    guarded["transitions"][0]["guard"] = json!("g");
    let with = |entry: Value| json!({"declaration": guarded, "subject_ref": "s", "gate_spec": {"g": entry}});
    let without = |declaration: Value| json!({"declaration": declaration, "subject_ref": "s"});
    let mut unknown_state = two_states();
    unknown_state["transitions"][1]["to"] = json!("nowhere");
    let mut both = without(two_states());
    both["definition"] = json!("x");
    for (body, code, field) in [
        (with(json!({"scope": "s"})), "invalid-request", "gate_spec.g.approver_ref"),
        (with(json!({"approver_ref": "a"})), "invalid-request", "gate_spec.g.scope"),
        (with(json!({"approver_ref": " ", "scope": "s"})), "invalid-request", "gate_spec.g.approver_ref"),
        (with(json!({"approver_ref": "a", "scope": ""})), "invalid-request", "gate_spec.g.scope"),
        (with(json!({"approver_ref": "a", "approvers": ["a"], "scope": "s"})), "invalid-request", "gate_spec.g"),
        (with(json!({"approvers": ["a"], "scope": "s"})), "invalid-request", "gate_spec.g.quorum"),
        (with(json!({"quorum": {"rule": "all-of-n"}, "scope": "s"})), "invalid-request", "gate_spec.g.approvers"),
        (
            with(json!({"approvers": ["a"], "quorum": {"rule": "m-of-n"}, "scope": "s"})),
            "invalid-request",
            "gate_spec.g.quorum.m",
        ),
        (
            with(json!({"approvers": ["a"], "quorum": {"rule": "m-of-n", "m": 2}, "scope": "s"})),
            "invalid-request",
            "gate_spec.g.quorum.m",
        ),
        (
            with(json!({"approvers": ["a"], "quorum": {"rule": "one-of-n", "m": 1}, "scope": "s"})),
            "invalid-request",
            "gate_spec.g.quorum.m",
        ),
        (
            with(json!({"approvers": ["a", "a"], "quorum": {"rule": "all-of-n"}, "scope": "s"})),
            "invalid-request",
            "gate_spec.g.approvers[1]",
        ),
        (
            with(json!({"approvers": [], "quorum": {"rule": "all-of-n"}, "scope": "s"})),
            "invalid-request",
            "gate_spec.g.approvers",
        ),
        (without(guarded.clone()), "invalid-request", "gate_spec.g"),
        (without(unknown_state), "invalid-declaration", "declaration.transitions[1].to"),
        // Blank is null, absent, empty or white space.
        (
            without(json!({"states": ["a", null], "transitions": [], "initial_state": "a", "terminal_states": []})),
            "invalid-declaration",
            "declaration.states[1]",
        ),
        (
            without(json!({"states": ["a"], "transitions": [], "terminal_states": []})),
            "invalid-declaration",
            "declaration.initial_state",
        ),
        (
            without(json!({"states": ["a"], "transitions": [{"from": "a", "to": "a", "action": null}],
                "initial_state": "a", "terminal_states": []})),
            "invalid-declaration",
            "declaration.transitions[0].action",
        ),
        (
            without(json!({"states": ["a"], "transitions": [{"from": "a", "to": "a"}],
                "initial_state": "a", "terminal_states": []})),
            "invalid-declaration",
            "declaration.transitions[0].action",
        ),
        (both, "invalid-request", "definition"),
        (
            without(
                json!({"states": ["a"], "transitions": [["a", "b", "c"]], "initial_state": "a", "terminal_states": []}),
            ),
            "invalid-request",
            "declaration.transitions[0]",
        ),
    ] {
        let answer = admin.post("/v1/processes", body.clone()).await;
        answer.refused(400, code);
        assert_eq!(answer.body["field"], field, "{body}: {}", answer.text);
    }
    assert_eq!(admin.get("/v1/processes").await.ok(), json!({"items": [], "next": null}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_is_refused_with_everything_that_is_wrong() {
    let server = Server::start().await;
    let admin = server.admin();
    let broken =
        BATCH_RELEASE.replace("to: released", "to: relesed").replace("initial_state: sampled", "initial_state: x");
    let answer = admin.post_bytes("/v1/definitions", broken.clone()).await;
    answer.refused(400, "invalid-definition");
    let problems = answer.body["problems"].as_array().expect("problems").clone();
    assert_eq!(problems.len(), 2, "{}", answer.text);
    assert_eq!((&problems[0]["path"], &problems[0]["line"]), (&json!("initial_state"), &json!(7)));
    assert_eq!((&answer.body["field"], &problems[1]["code"]), (&json!("initial_state"), &json!("unknown-state")));
    let checked = admin.post_bytes("/v1/definitions/validate", broken).await.ok();
    assert_eq!(checked, json!({"valid": false, "problems": problems}));
    let checked = admin.post_bytes("/v1/definitions/validate", BATCH_RELEASE).await.ok();
    assert_eq!((&checked["valid"], &checked["problems"]), (&json!(true), &json!([])));
    assert_eq!(checked["graph"]["states"].as_array().map(Vec::len), Some(5), "{checked}");

    let unknown_policy = BATCH_RELEASE.replace("fda_part_11_predicate_rule", "eternal");
    let answer = admin.post_bytes("/v1/definitions", unknown_policy).await;
    answer.refused_at(400, "invalid-definition", "retention");
    assert_eq!(answer.body["problems"][0]["line"], 18, "{}", answer.text);
    admin.post_bytes("/v1/definitions", b"\xff\xfe".to_vec()).await.refused(400, "invalid-definition");
    admin.post_bytes("/v1/definitions", "").await.refused(400, "invalid-definition");
    admin.get("/v1/definitions/batch-release").await.refused_at(404, "not-known", "name");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_is_refused_however_it_is_sent() {
    let server = Server::with_config(Some("[limits]\nbody_bytes = 300")).await;
    let admin = server.admin();
    let of_length = |length: usize| {
        let empty = r#"{"subject_ref":"s","action_scope":"x"}"#;
        empty.replace(r#""s""#, &format!(r#""{}""#, "s".repeat(length - empty.len() + 1)))
    };
    admin.post_bytes("/v1/grants", of_length(300)).await.created();
    admin.post_bytes("/v1/grants", of_length(301)).await.refused(413, "too-large");
    admin.post_bytes("/v1/definitions", "x".repeat(301)).await.refused(413, "too-large");
    admin.post_bytes("/v1/grants", "x".repeat(10_000_000)).await.refused(413, "too-large");

    let token = std::fs::read_to_string(server.directory.path().join("admin.token")).expect("a token");
    let mut chunked = format!(
        "POST /v1/grants HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {}\r\nTransfer-Encoding: chunked\r\n\r\n",
        token.trim()
    )
    .into_bytes();
    for _ in 0..100 {
        chunked.extend_from_slice(format!("64\r\n{}\r\n", "x".repeat(100)).as_bytes());
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    let answer = server.raw(chunked, false).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(answer.contains(r#""code":"too-large""#), "{answer}");
    admin.get("/healthz").await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_megabyte_is_the_limit_where_nothing_is_configured() {
    let server = Server::start().await;
    let admin = server.admin();
    let body = format!(r#"{{"subject_ref":"{}","action_scope":"x"}}"#, "s".repeat(10_000_000));
    admin.post_bytes("/v1/grants", body).await.refused(413, "too-large");
    let reason = "r".repeat(500_000);
    let started = json!({"declaration": two_states(), "subject_ref": "s", "reason": reason});
    admin.post("/v1/processes", started).await.refused(413, "too-large");
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_and_addresses_are_checked_too() {
    let server = Server::start().await;
    let admin = server.admin();
    let id = admin.start_loop("s").await;
    let transitions = format!("/v1/processes/{id}/transitions");
    let go = || admin.request(Method::POST, &transitions).body(r#"{"action":"go"}"#);
    for (header, value) in [
        ("Content-Type", "text/plain"),
        ("Content-Type", "application/x-www-form-urlencoded"),
        ("Content-Encoding", "gzip"),
        ("Idempotency-Key", ""),
        ("Idempotency-Key", "a b"),
        ("Idempotency-Key", &"k".repeat(256)),
    ] {
        Answer::of(go().header(header, value)).await.refused_at(400, "invalid-request", header);
    }
    for (header, value, field) in [
        ("Countersign-Statement", "e30=", "Countersign-Signature"),
        ("Countersign-Statement", "?", "Countersign-Statement"),
        ("Countersign-Signature", "AAAA", "Countersign-Statement"),
    ] {
        Answer::of(go().header(header, value)).await.refused_at(401, "invalid-credential", field);
    }
    Answer::of(go().header("Idempotency-Key", "a").header("Idempotency-Key", "b")).await.refused_at(
        400,
        "invalid-request",
        "Idempotency-Key",
    );
    let preview = admin.request(Method::POST, &format!("{transitions}?preview=true")).json(&json!({"action": "go"}));
    Answer::of(preview).await.refused_at(400, "invalid-request", "preview");

    admin.get("/v1/nothing").await.refused(404, "not-known");
    admin.get("/").await.refused(404, "not-known");
    admin.get(&format!("/v1/processes/{id}/")).await.refused(404, "not-known");
    let answer = Answer::of(admin.request(Method::DELETE, &transitions)).await;
    answer.refused(405, "invalid-request");
    assert_eq!(answer.headers["allow"], "POST");

    for nowhere in ["x", &id.to_uppercase(), "00000000-0000-0000-0000-000000000000"] {
        admin.fire(nowhere, "go").await.refused_at(404, "not-known", "instance_id");
        admin.decide(nowhere, "go", json!({"decision": "approve"})).await.refused_at(404, "not-known", "instance_id");
        admin.get(&format!("/v1/processes/{nowhere}")).await.refused_at(404, "not-known", "instance_id");
    }
    for blank in ["%20", "%E2%80%8B"] {
        admin.fire(blank, "go").await.refused_at(400, "invalid-request", "instance_id");
        admin.open_gate(blank, "go").await.refused_at(400, "invalid-request", "instance_id");
        admin.get(&format!("/v1/processes/{blank}")).await.refused_at(400, "invalid-request", "instance_id");
    }
    admin.decide(&id, "%ff", json!({"decision": "approve"})).await.refused(400, "invalid-request");
    admin.decide(&id, "a%00", json!({"decision": "approve"})).await.refused_at(400, "invalid-request", "action");
    admin.decide(&id, "%20", json!({"decision": "approve"})).await.refused_at(400, "invalid-request", "action");
    admin.post("/v1/grants/x/revoke", json!({})).await.refused_at(404, "not-known", "grant_id");
    admin.post("/v1/grants/x/revoke", json!({"why": 1})).await.refused_at(400, "invalid-request", "why");
    admin.get("/v1/ledger/records/x").await.refused_at(404, "not-known", "event_id");
    admin.get("/v1/definitions/x/versions/1").await.refused_at(404, "not-known", "name");
    assert_eq!(admin.get(&format!("/v1/processes/{id}")).await.ok()["current_state"], "a", "nothing was changed");
}
