//! The order of refusals: shape, permission, existence, the end of the process, the transition, the
//! gate. Each test gives one command everything that could be wrong with it and then takes the faults
//! away one by one; the answer must always be the first that is left.

use crate::support::{decide, declaration, registry_with};
use countersign_kernel::process::{
    Command, DecideGate, Decision, FireTransition, OpenGate, Process, Source, StartWorkflow, StepChoice,
};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::registry::Registry;
use countersign_kernel::{GateEntry, GateSpec, Time};
use std::sync::Arc;

fn single(approver: &str, scope: &str) -> GateSpec {
    let entry = GateEntry::Single { approver_ref: approver.to_owned(), scope: scope.to_owned(), delegable: false };
    GateSpec([("sign-off".to_owned(), entry)].into())
}

fn start(subject_ref: &str, gate_spec: GateSpec, initial: &str) -> Command {
    let declaration = declaration("draft done", initial, "done", &["draft post done sign-off", "draft drop done"]);
    Command::StartWorkflow(StartWorkflow {
        source: Source::Inline(Arc::new(declaration)),
        subject_ref: subject_ref.to_owned(),
        gate_spec,
        reason: None,
    })
}

fn open(action: &str) -> Command {
    Command::OpenGate(OpenGate { action: action.to_owned(), reason: None, request: None })
}

fn fire(action: &str) -> Command {
    Command::FireTransition(FireTransition { action: action.to_owned(), reason: None })
}

fn decision(action: &str, decision: Decision, reason: Option<&str>) -> Command {
    let (action, reason) = (action.to_owned(), reason.map(str::to_owned));
    Command::DecideGate(DecideGate { action, decision, reason, step: None, request_digest: None })
}

fn everything() -> Registry {
    registry_with(&[("ines", "workflows:start"), ("ines", "workflows:open-gate"), ("ines", "workflows:fire")])
}

/// A process that has got as far as these commands take it.
fn process(commands: &[(&str, Command)]) -> Process {
    let registry = everything();
    let accepted = |result: Result<Vec<_>, Refusal>| result.unwrap_or_else(|refusal| panic!("{refusal}"));
    let started = accepted(decide(&registry, None, "ines", Time(1), &start("s", single("axel", "x"), "draft")));
    let mut process = Process::begin(&started[0]).unwrap_or_else(|| panic!("not a start: {started:?}"));
    for (now, (actor, command)) in (2..).zip(commands) {
        for event in accepted(decide(&registry, Some(&process), actor, Time(now), command)) {
            process.apply(&event);
        }
    }
    process
}

#[track_caller]
fn assert_code(
    registry: &Registry,
    process: Option<&Process>,
    actor: &str,
    command: &Command,
    expected: Result<(), Code>,
) {
    let answer = decide(registry, process, actor, Time(1000), command);
    assert_eq!(answer.as_ref().map(|_| ()).map_err(|refusal| refusal.code), expected, "{answer:?}");
}

#[test]
fn start_workflow() {
    let (nobody, all) = (Registry::default(), everything());
    let blank = GateSpec([("sign-off".to_owned(), single("axel", " ").0["sign-off"].clone())].into());
    let (uncovered, covered) = (GateSpec::default(), single("axel", "x"));
    for (registry, actor, command, expected) in [
        (&nobody, " ", start(" ", blank.clone(), "elsewhere"), Err(Code::InvalidRequest)),
        (&nobody, "ines", start(" ", blank.clone(), "elsewhere"), Err(Code::InvalidRequest)),
        (&nobody, "ines", start("s", blank, "elsewhere"), Err(Code::InvalidRequest)),
        (&nobody, "ines", start("s", uncovered.clone(), "elsewhere"), Err(Code::PermissionDenied)),
        (&all, "ines", start("s", uncovered, "elsewhere"), Err(Code::InvalidRequest)),
        (&all, "ines", start("s", covered.clone(), "elsewhere"), Err(Code::InvalidDeclaration)),
        (&all, "ines", start("s", covered, "draft"), Ok(())),
    ] {
        assert_code(registry, None, actor, &command, expected);
    }
}

#[test]
fn start_workflow_from_a_definition_that_is_not_published() {
    let command = |subject_ref: &str| {
        Command::StartWorkflow(StartWorkflow {
            source: Source::Definition { name: "batch-release".to_owned(), version: None },
            subject_ref: subject_ref.to_owned(),
            gate_spec: GateSpec::default(),
            reason: None,
        })
    };
    assert_code(&Registry::default(), None, "ines", &command(""), Err(Code::InvalidRequest));
    assert_code(&Registry::default(), None, "ines", &command("s"), Err(Code::PermissionDenied));
    assert_code(&everything(), None, "ines", &command("s"), Err(Code::NotKnown));
    // The finer scope opens this definition, and no other.
    let finer = registry_with(&[("ines", "workflows:start:batch-release")]);
    assert_code(&finer, None, "ines", &command("s"), Err(Code::NotKnown));
    let other = registry_with(&[("ines", "workflows:start:journal-entry")]);
    assert_code(&other, None, "ines", &command("s"), Err(Code::PermissionDenied));
}

#[test]
fn open_gate() {
    let (nobody, all) = (Registry::default(), everything());
    let ended = process(&[("ines", fire("drop"))]);
    let fresh = process(&[]);
    let opened = process(&[("ines", open("post"))]);
    let cleared = process(&[("ines", open("post")), ("axel", decision("post", Decision::Approve, None))]);
    let rejected = process(&[("ines", open("post")), ("axel", decision("post", Decision::Reject, Some("no")))]);
    for (registry, process, action, expected) in [
        (&nobody, None, " ", Err(Code::InvalidRequest)),
        (&nobody, None, "unheard-of", Err(Code::PermissionDenied)),
        (&all, None, "unheard-of", Err(Code::NotKnown)),
        (&all, Some(&ended), "unheard-of", Err(Code::GateNotAvailable)),
        (&all, Some(&ended), "post", Err(Code::GateNotAvailable)),
        (&all, Some(&fresh), "unheard-of", Err(Code::InvalidTransition)),
        (&all, Some(&fresh), "drop", Err(Code::NotGuarded)),
        (&all, Some(&opened), "post", Err(Code::AlreadyOpen)),
        (&all, Some(&cleared), "post", Err(Code::AlreadyOpen)),
        (&all, Some(&rejected), "post", Ok(())),
        (&all, Some(&fresh), "post", Ok(())),
    ] {
        assert_code(registry, process, "ines", &open(action), expected);
    }
}

#[test]
fn fire_transition() {
    let (nobody, all) = (Registry::default(), everything());
    let ended = process(&[("ines", fire("drop"))]);
    let fresh = process(&[]);
    let opened = process(&[("ines", open("post"))]);
    let rejected = process(&[("ines", open("post")), ("axel", decision("post", Decision::Reject, Some("no")))]);
    let withdrawn = process(&[("ines", open("post")), ("ines", decision("post", Decision::Withdraw, Some("no")))]);
    let cleared = process(&[("ines", open("post")), ("axel", decision("post", Decision::Approve, None))]);
    for (registry, process, action, expected) in [
        (&nobody, None, "\u{200B}", Err(Code::InvalidRequest)),
        (&nobody, None, "unheard-of", Err(Code::PermissionDenied)),
        (&nobody, Some(&cleared), "post", Err(Code::PermissionDenied)),
        (&all, None, "unheard-of", Err(Code::NotKnown)),
        (&all, Some(&ended), "unheard-of", Err(Code::Terminal)),
        (&all, Some(&ended), "post", Err(Code::Terminal)),
        (&all, Some(&fresh), "unheard-of", Err(Code::InvalidTransition)),
        (&all, Some(&fresh), "post", Err(Code::GateNotCleared)),
        (&all, Some(&opened), "post", Err(Code::GateNotCleared)),
        (&all, Some(&rejected), "post", Err(Code::GateNotCleared)),
        (&all, Some(&withdrawn), "post", Err(Code::GateNotCleared)),
        (&all, Some(&cleared), "post", Ok(())),
        (&all, Some(&fresh), "drop", Ok(())),
    ] {
        assert_code(registry, process, "ines", &fire(action), expected);
    }
}

#[test]
fn decide_gate() {
    // No grant is asked for: being the one whom the gate names is the authority.
    let nobody = Registry::default();
    let fresh = process(&[]);
    let opened = process(&[("ines", open("post"))]);
    let decided = process(&[("ines", open("post")), ("axel", decision("post", Decision::Approve, None))]);
    let (approve, reject, withdraw) = (Decision::Approve, Decision::Reject, Decision::Withdraw);
    for (process, actor, command, expected) in [
        (None, " ", decision("post", approve, None), Err(Code::InvalidRequest)),
        (None, "stan", decision(" ", approve, None), Err(Code::InvalidRequest)),
        (None, "stan", decision("post", reject, None), Err(Code::InvalidRequest)),
        (None, "stan", decision("post", withdraw, Some(" ")), Err(Code::InvalidRequest)),
        (None, "stan", decision("post", approve, Some("")), Err(Code::InvalidRequest)),
        (None, "stan", decision("post", approve, None), Err(Code::NotKnown)),
        (Some(&fresh), "stan", decision("post", approve, None), Err(Code::GateNotOpen)),
        (Some(&fresh), "stan", decision("unheard-of", approve, None), Err(Code::GateNotOpen)),
        (Some(&decided), "stan", decision("post", approve, None), Err(Code::NotPending)),
        (Some(&decided), "axel", decision("post", reject, Some("changed my mind")), Err(Code::NotPending)),
        (Some(&opened), "stan", decision("post", approve, None), Err(Code::Unauthorized)),
        (Some(&opened), "ines", decision("post", approve, None), Err(Code::Unauthorized)),
        (Some(&opened), "axel", decision("post", withdraw, Some("no")), Err(Code::Unauthorized)),
        (Some(&opened), "axel", decision("post", approve, None), Ok(())),
        (Some(&opened), "axel", decision("post", reject, Some("no")), Ok(())),
        (Some(&opened), "ines", decision("post", withdraw, Some("no")), Ok(())),
    ] {
        assert_code(&nobody, process, actor, &command, expected);
    }
}

#[test]
fn decide_gate_by_a_step_that_is_not_one() {
    let opened = process(&[("ines", open("post"))]);
    for (step, expected) in [(StepChoice::Unknown, Code::NotKnown), (StepChoice::Ended, Code::NotPending)] {
        let command = Command::DecideGate(DecideGate {
            action: "post".to_owned(),
            decision: Decision::Approve,
            reason: None,
            step: Some(step),
            request_digest: None,
        });
        assert_code(&Registry::default(), Some(&opened), "axel", &command, Err(expected));
    }
}

/// An approver comes back to a step of an earlier state: it is known, and it has ended. What became of
/// the process since plays no part in that answer.
#[test]
fn decide_gate_by_a_step_of_an_earlier_state() {
    let transitions = ["a go b first", "b go c second", "b stay b second"];
    let (declaration, all) = (declaration("a b c", "a", "c", &transitions), everything());
    let entry = |approver: &str| GateEntry::Single {
        approver_ref: approver.to_owned(),
        scope: "s".to_owned(),
        delegable: false,
    };
    let command = Command::StartWorkflow(StartWorkflow {
        source: Source::Inline(Arc::new(declaration)),
        subject_ref: "s".to_owned(),
        gate_spec: GateSpec([("first".to_owned(), entry("axel")), ("second".to_owned(), entry("axel"))].into()),
        reason: None,
    });
    let started = decide(&all, None, "ines", Time(1), &command).expect("starts");
    let mut process = Process::begin(&started[0]).expect("a start");
    let mut give = |actor: &str, command: &Command| {
        let now = Time(2 + i64::try_from(process.gates.len()).expect("few"));
        let events = decide(&all, Some(&process), actor, now, command).expect("accepted");
        events.iter().for_each(|event| process.apply(event));
        process.clone()
    };
    let in_a = give("ines", &open("go"));
    let earlier = in_a.gates[0].steps[0].step_id;
    give("axel", &decision("go", Decision::Approve, None));
    let in_b = give("ines", &fire("go"));
    let reopened = give("ines", &open("go"));
    let named = Command::DecideGate(DecideGate {
        action: "go".to_owned(),
        decision: Decision::Approve,
        reason: None,
        step: Some(StepChoice::Id(earlier)),
        request_digest: None,
    });
    assert_code(&all, Some(&in_b), "axel", &named, Err(Code::NotPending));
    assert_code(&all, Some(&reopened), "axel", &named, Err(Code::NotPending));
}
