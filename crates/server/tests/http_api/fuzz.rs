//! Random bytes and mutated requests at every POST route, random addresses and raw bytes at the socket:
//! the answer is always one of ours, and the server lives.

use crate::support::{Actor, Answer, BATCH_RELEASE, Server, two_states};
use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence, TestRunner};
use reqwest::Method;
use serde_json::json;
use tokio::runtime::Runtime;

struct Target {
    path: String,
    valid: Vec<u8>,
}

/// Every POST route with a request that it accepts, or would.
async fn targets(admin: &Actor) -> Vec<Target> {
    let mut guarded = two_states();
    guarded["transitions"][0]["guard"] = json!("g");
    let start = json!({
        "declaration": guarded,
        "subject_ref": "subject",
        "gate_spec": {"g": {"approvers": ["admin", "b"], "quorum": {"rule": "m-of-n", "m": 1}, "scope": "s"}},
        "reason": "fuzz",
    });
    let id =
        admin.post("/v1/processes", start.clone()).await.created()["instance_id"].as_str().expect("an id").to_owned();
    let grant = json!({"subject_ref": "x", "action_scope": "y"});
    let grant_id =
        admin.post("/v1/grants", grant.clone()).await.created()["grant_id"].as_str().expect("an id").to_owned();
    let actor = json!({"actor_ref": "f", "kind": "service", "display_name": "F", "public_key": "k"});
    let json =
        |path: &str, body: serde_json::Value| Target { path: path.to_owned(), valid: body.to_string().into_bytes() };
    let yaml = |path: &str| Target { path: path.to_owned(), valid: BATCH_RELEASE.as_bytes().to_vec() };
    vec![
        json("/v1/actors", actor),
        json("/v1/grants", grant),
        json(&format!("/v1/grants/{grant_id}/revoke"), json!({})),
        yaml("/v1/definitions"),
        yaml("/v1/definitions/validate"),
        json("/v1/processes", start),
        json("/v1/processes", json!({"definition": "batch-release@1", "subject_ref": "s"})),
        json(&format!("/v1/processes/{id}/gates"), json!({"action": "go", "reason": "r"})),
        json(
            &format!("/v1/processes/{id}/gates/go/decision"),
            json!({"decision": "reject", "reason": "r", "step_id": id}),
        ),
        json(&format!("/v1/processes/{id}/transitions"), json!({"action": "go", "reason": "r"})),
    ]
}

#[derive(Clone, Debug)]
enum Edit {
    Replace(usize, u8),
    Insert(usize, Vec<u8>),
    Remove(usize, usize),
    Repeat(usize, usize),
    Truncate(usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    let spice: Vec<&[u8]> = vec![
        b"null",
        b"1e400",
        b"9007199254740993",
        b"\"\\u0000\"",
        b"[",
        b"{",
        b"}",
        b"]",
        b",",
        b"\"",
        b"\\ud800",
        b"\xff",
        b"\xe2\x80\x8b",
        b"{\"a\":1,\"a\":2}",
        b"-0",
        b"true",
        b"&a *a",
        b"!!binary",
        b"\n  - ",
        b": ",
        b"\r",
        b"\x00",
    ];
    let any_place = any::<prop::sample::Index>().prop_map(|index| index.index(4096));
    prop_oneof![
        (any_place.clone(), any::<u8>()).prop_map(|(at, byte)| Edit::Replace(at, byte)),
        (any_place.clone(), prop::sample::select(spice)).prop_map(|(at, text)| Edit::Insert(at, text.to_vec())),
        (any_place.clone(), 1..40_usize).prop_map(|(at, length)| Edit::Remove(at, length)),
        (any_place.clone(), 1..80_usize).prop_map(|(at, length)| Edit::Repeat(at, length)),
        any_place.prop_map(Edit::Truncate),
    ]
}

fn edited(valid: &[u8], edits: &[Edit]) -> Vec<u8> {
    let mut bytes = valid.to_vec();
    for edit in edits {
        let length = bytes.len();
        let at = |place: usize| if length == 0 { 0 } else { place % length };
        match edit {
            Edit::Replace(place, byte) if length > 0 => bytes[at(*place)] = *byte,
            Edit::Replace(..) => {}
            Edit::Insert(place, text) => {
                let at = at(*place);
                bytes.splice(at..at, text.iter().copied());
            }
            Edit::Remove(place, count) => {
                let at = at(*place);
                bytes.drain(at..(at + count).min(length));
            }
            Edit::Repeat(place, count) => {
                let at = at(*place);
                let again = bytes[at..(at + count).min(length)].to_vec();
                bytes.splice(at..at, again);
            }
            Edit::Truncate(place) => bytes.truncate(at(*place)),
        }
    }
    bytes
}

fn check(answer: &Answer, request: &str) -> Result<(), TestCaseError> {
    prop_assert!(answer.status < 500, "{request}: {}", answer.text);
    if answer.status >= 400 {
        answer.is_problem();
    }
    Ok(())
}

/// PROPTEST_CASES asks for more than the usual 256. A failure is kept, and tried first from then on.
fn runner() -> TestRunner {
    let kept = FileFailurePersistence::Direct("tests/proptest-regressions/fuzz.txt");
    TestRunner::new(Config { source_file: Some(file!()), ..Config::with_failure_persistence(kept) })
}

#[test]
fn no_body_brings_the_server_down() {
    let runtime = Runtime::new().expect("a runtime");
    let server = runtime.block_on(Server::start());
    let admin = server.admin();
    let targets = runtime.block_on(targets(&admin));
    let bodies = (prop::collection::vec(edit(), 1..6), prop::collection::vec(any::<u8>(), 0..200), any::<bool>());
    let checked = runner().run(&bodies, |(edits, noise, keyed)| {
        runtime.block_on(async {
            for target in &targets {
                for body in [edited(&target.valid, &edits), noise.clone()] {
                    let shown = format!("{} {}", target.path, String::from_utf8_lossy(&body));
                    let request = admin.request(Method::POST, &target.path).body(body);
                    let request = if keyed { request.header("Idempotency-Key", "k") } else { request };
                    check(&Answer::of(request).await, &shown)?;
                }
            }
            Ok(())
        })
    });
    runtime.block_on(async {
        admin.get("/healthz").await.ok();
        admin.get("/readyz").await.ok();
    });
    checked.expect("every answer is one of ours");
}

#[test]
fn no_address_or_query_brings_the_server_down() {
    let runtime = Runtime::new().expect("a runtime");
    let server = runtime.block_on(Server::start());
    let admin = server.admin();
    let id = runtime.block_on(admin.start_loop("s"));
    let segment = prop_oneof![
        "[!-~&&[^/?#]]{1,12}",
        "(%[0-9a-fA-F]{2}){1,6}",
        Just(id),
        prop::sample::select(vec!["%", "%2", "..", "%2e%2e", "%00", "%ff", "validate", "@", "a@1"])
            .prop_map(str::to_owned),
    ];
    let query = prop_oneof![
        "[!-~&&[^#]]{0,40}",
        "(limit|cursor|order|state|subject_ref|started_after|after|before)=[!-~&&[^#]]{0,20}(&limit=[0-9]{1,4})?",
    ];
    let paths = prop::sample::select(vec![
        "/v1/processes",
        "/v1/processes/{}",
        "/v1/processes/{}/gates",
        "/v1/processes/{}/gates/{}/decision",
        "/v1/processes/{}/transitions",
        "/v1/definitions/{}",
        "/v1/definitions/{}/versions/{}",
        "/v1/grants",
        "/v1/grants/{}/revoke",
        "/v1/ledger/records",
        "/v1/ledger/records/{}",
        "/v1/approval-steps",
        "/v1/assignments",
        "/v1/inbox",
        "/v1/actors",
        "/{}",
    ]);
    let cases = (paths, segment.clone(), segment, query, any::<bool>());
    let checked = runner().run(&cases, |(path, first, second, query, post)| {
        let path = path.replacen("{}", &first, 1).replacen("{}", &second, 1);
        let address = format!("{path}?{query}");
        runtime.block_on(async {
            let method = if post { Method::POST } else { Method::GET };
            let request = admin.request(method, &address).body("{}");
            check(&Answer::of(request).await, &address)
        })
    });
    runtime.block_on(admin.get("/healthz")).ok();
    checked.expect("every answer is one of ours");
}

#[test]
fn no_bytes_at_the_socket_bring_the_server_down() {
    let runtime = Runtime::new().expect("a runtime");
    let server = runtime.block_on(Server::start());
    let valid = b"POST /v1/grants HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}";
    let cases = prop_oneof![
        prop::collection::vec(edit(), 1..4).prop_map(move |edits| edited(valid, &edits)),
        prop::collection::vec(any::<u8>(), 1..100),
    ];
    let checked = runner().run(&cases, |mut bytes| {
        // An end to whatever it has become, so that nobody waits for more.
        bytes.extend_from_slice(b"\r\n\r\n");
        let answer = runtime.block_on(server.raw(bytes, true));
        prop_assert!(!answer.starts_with("HTTP/1.1 5"), "{answer}");
        Ok(())
    });
    runtime.block_on(server.nobody().get("/healthz")).ok();
    checked.expect("no failure of ours");
}
