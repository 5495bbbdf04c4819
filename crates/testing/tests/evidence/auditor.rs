//! The auditor and the runner have teeth: evidence that was tampered with is found out, for the right
//! reason, and a scenario that is wrong fails at its line.

#![expect(clippy::expect_used, reason = "a test's helpers may fail the test")]

use countersign_kernel::process::Decision;
use countersign_kernel::{Declaration, GateEntry, GateSpec, Transition};
use countersign_testing::audit::examine;
use countersign_testing::drive::{ADMIN, Driver, KernelDriver, Level, On, Record, Source, Start, View};
use countersign_testing::scenario::{Pace, parse, run};
use std::sync::Arc;

/// A process in which everything happened once: a gate that was mooted, one that was consumed.
async fn evidence() -> (View, Vec<Record>) {
    let mut driver = KernelDriver::new().expect("a driver");
    assert_eq!(driver.level(), Level::Kernel);
    driver.register("ann").await.expect("ann");
    let guarded = |action: &str, to: &str, guard: Option<&str>| Transition {
        from_state: "open".to_owned(),
        action: action.to_owned(),
        to_state: to.to_owned(),
        guard: guard.map(str::to_owned),
        effects: vec![],
    };
    let declaration = Declaration {
        states: ["open", "closed"].map(str::to_owned).to_vec(),
        transitions: vec![
            guarded("close", "closed", Some("one")),
            guarded("note", "open", Some("two")),
            guarded("drop", "closed", None),
        ],
        initial_state: "open".to_owned(),
        terminal_states: vec!["closed".to_owned()],
    };
    let entry = || GateEntry::Single { approver_ref: "ann".to_owned(), scope: "s".to_owned(), delegable: false };
    let start = Start {
        from: Source::Declaration(Arc::new(declaration)),
        subject_ref: "x".to_owned(),
        gate_spec: GateSpec([("one".to_owned(), entry()), ("two".to_owned(), entry())].into()),
        reason: None,
    };
    let id = driver.start(ADMIN, &start).await.expect("started");
    let on = |action: &'static str| On { instance_id: &id, action, reason: None };
    driver.open_gate(ADMIN, on("close")).await.expect("opened");
    driver.open_gate(ADMIN, on("note")).await.expect("opened");
    driver.decide_gate("ann", on("close"), Decision::Approve, None).await.expect("approved");
    driver.fire(ADMIN, on("close")).await.expect("fired");
    let view = driver.read(ADMIN, &id).await.expect("a view");
    let records = driver.records(&id).await.expect("records");
    (view, records)
}

#[tokio::test]
async fn tampered_evidence_is_found_out() {
    let (view, records) = evidence().await;
    assert_eq!(examine(&view, &records), Ok(()));
    type Tamper = fn(&mut View, &mut Vec<Record>);
    let tampers: &[(&str, &str, Tamper)] = &[
        ("the approval was somebody else's", "check 1", |view, _| view.gates[0].step.ended_by = Some("mallory".into())),
        ("the approval was never given", "check 1", |view, _| view.gates[0].step.state = "Pending".into()),
        ("the guarded move names no gate", "check 1", |view, _| view.history[0].gate_id = None),
        ("the record names another step", "check 1", |_, records| {
            records.last_mut().expect("one").payload["step_id"] = "other".into();
            let fired = records.iter_mut().find(|record| record.action_ref == "transition_fired").expect("one");
            fired.payload["step_id"] = "other".into();
        }),
        ("another approver stands in the gate_spec", "check 1", |view, _| {
            let entry = GateEntry::Single { approver_ref: "bob".to_owned(), scope: "s".to_owned(), delegable: false };
            view.gate_spec.0.insert("one".to_owned(), entry);
        }),
        ("a move that is not declared", "check 2", |view, _| view.history[0].to_state = "open".into()),
        ("a state that the history does not lead to", "check 2", |view, _| view.current_state = "open".into()),
        ("the history skips a number", "check 2", |view, _| view.history[0].sequence_number = 2),
        ("a firing without its record", "gaps", |_, records| records.retain(|r| r.action_ref != "transition_fired")),
        ("a firing whose record is another's", "check 1", |view, _| view.history[0].event_id = "99".into()),
        ("a decision that was recorded twice", "check 3", |_, records| {
            let mut again = records.iter().find(|record| record.action_ref == "gate_decided").expect("one").clone();
            again.sequence = records.len() as u64 + 1;
            records.push(again);
        }),
        ("a gate that nobody opened", "check 3", |view, _| {
            let mut gate = view.gates[1].clone();
            gate.step.step_id = "smuggled in".into();
            view.gates.push(gate);
        }),
        ("a moot gate in an in-tray", "check 4", |view, _| view.gates[1].assignment_status = "Active".into()),
        ("a recall in somebody's name", "attributed", |_, records| {
            records.last_mut().expect("one").actor_ref = "ann".into();
        }),
        ("a decision in the application's name", "attributed", |_, records| {
            let decided = records.iter_mut().find(|record| record.action_ref == "gate_decided").expect("one");
            decided.actor_ref = "countersign".into();
        }),
    ];
    for (what, expected, tamper) in tampers {
        let (mut view, mut records) = (view.clone(), records.clone());
        tamper(&mut view, &mut records);
        let finding = examine(&view, &records).expect_err(what);
        assert!(finding.contains(expected), "{what}: {finding}");
    }
}

/// Runs this text at the kernel and returns the complaint.
async fn complaint(text: &str) -> String {
    let scenario = parse("x.txt", text, |_| None).expect("it parses");
    let mut driver = KernelDriver::new().expect("a driver");
    run(&scenario, &mut driver, Pace::Straight).await.expect_err("it is wrong")
}

#[tokio::test]
async fn a_wrong_scenario_fails_at_its_line() {
    let head = "actor ann: workflows:start workflows:open-gate workflows:fire\n\
                declaration d:\n  states: a, b\n  initial: a\n  terminal: b\n  go: a -> b needs G\n  stay: a -> a\n\
                gates g:\n  G: ann for s\n\
                ann starts P on d for x with g -> ok\n\
                ann opens P go as gate -> ok\n";
    for (line, expected) in [
        ("ann fires P go -> b", "x.txt:12: expected the state `b`, got gate-not-cleared"),
        ("ann fires P go -> terminal", "x.txt:12: expected terminal, got gate-not-cleared"),
        ("ann fires P go -> gate-not-cleared at reason", "x.txt:12: expected gate-not-cleared at reason, got"),
        ("ann fires P stay -> b", "x.txt:12: expected the state `b`, got the state `a`"),
        ("ann approves P go -> rejected_outcome", "x.txt:12: expected rejected_outcome, got approved"),
        ("state P is b", "x.txt:12: expected \"b\", found \"a\""),
        ("records P are workflow_started", "x.txt:12: 1 more records: gate_opened"),
        ("records P are workflow_started gate_opened gate_decided", "x.txt:12: expected 3 records, found 2"),
        (
            "records P are:\n  workflow_started by bob\n  gate_opened",
            "x.txt:12: record 1: expected workflow_started by bob",
        ),
        ("inbox of ann is empty", "x.txt:12: expected []"),
        ("gate P go is Approved", "x.txt:12: expected \"Approved\", found \"Pending\""),
        ("step gate is Approved", "x.txt:12: expected \"Approved\", found \"Pending\""),
        ("assignment gate is Recalled", "x.txt:12: expected [\"Recalled\"], found [\"Active\"]"),
        ("record 2 of P says action stay", "x.txt:12: expected \"stay\", found \"go\""),
        ("record 2 of P names colour", "x.txt:12: gate_opened has no member `colour`"),
        ("history P is:\n  go: a -> b by ann", "x.txt:12: expected [\"go: a -> b"),
    ] {
        let found = complaint(&format!("{head}{line}\n")).await;
        assert!(found.starts_with(expected), "{line}: {found}");
    }
}
