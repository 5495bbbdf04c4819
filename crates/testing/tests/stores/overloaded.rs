//! More calls than the queue holds: those for which there is no room are told so at once and leave
//! nothing behind; the others are carried out as if nothing had happened.

use countersign_engine::port::{Page, ProcessQuery};
use countersign_engine::{Call, Command, Config, Engine, Outcome, Proof, Target};
use countersign_kernel::process::{self, Source, StartWorkflow};
use countersign_kernel::refusal::Code;
use countersign_kernel::{Declaration, Digest, GateSpec};
use std::sync::Arc;
use tokio::task::JoinSet;

const CALLS: usize = 500;

fn start(n: usize) -> Call {
    let declaration = Declaration {
        states: vec!["alone".to_owned()],
        transitions: vec![],
        initial_state: "alone".to_owned(),
        terminal_states: vec![],
    };
    let command = process::Command::StartWorkflow(StartWorkflow {
        source: Source::Inline(Arc::new(declaration)),
        subject_ref: format!("subject {n}"),
        gate_spec: GateSpec::default(),
        reason: None,
    });
    let command = Command::Process { target: Target::New, command };
    Call { actor_ref: "admin".to_owned(), proof: Proof::InProcess, command, idempotency: None }
}

/// One thread: every call is made before the first answer can be taken.
#[tokio::test(flavor = "current_thread")]
async fn who_finds_no_room_is_told_and_leaves_nothing() {
    let store = countersign_store::open("sqlite::memory:").await.expect("a store");
    let config = Config { queue: 2, ..Config::default() };
    let engine = Arc::new(Engine::open(store, config).await.expect("an engine"));
    engine.bootstrap("admin", Digest([0; 32])).await.expect("an administrator");

    let mut calls = JoinSet::new();
    for n in 0..CALLS {
        let engine = engine.clone();
        calls.spawn(async move { engine.execute(start(n)).await });
    }
    let (mut accepted, mut refused) = (vec![], 0);
    for answer in calls.join_all().await {
        match answer {
            Ok(Outcome::Started { instance_id }) => accepted.push(instance_id),
            Err(refusal) if refusal.code == Code::Overloaded => refused += 1,
            other => panic!("neither started nor overloaded: {other:?}"),
        }
    }
    assert!(refused > 0, "{CALLS} calls found room in a queue of two");
    assert_eq!(accepted.len() + refused, CALLS);

    let page = Page { after: None, limit: CALLS, descending: false };
    let found = engine.read_workflow("admin", ProcessQuery::default(), &page).await.expect("a list");
    let mut found: Vec<String> = found.into_iter().map(|view| view.row.instance_id.to_string()).collect();
    found.sort();
    accepted.sort();
    assert_eq!(found, accepted, "what was accepted is there, and nothing else");
    assert!(matches!(engine.execute(start(CALLS)).await, Ok(Outcome::Started { .. })), "and there is room again");
}
