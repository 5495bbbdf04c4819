//! What a declaration and a gate_spec may say. One test per rule of the contract: each fault with the
//! place where its author would look for it, and each oddity that is the author's own business.

mod support;

use countersign_kernel::declaration::{Fault, FaultKind};
use countersign_kernel::process::{Command, EventBody, Process, Source, StartWorkflow};
use countersign_kernel::refusal::{Code, Refusal};
use countersign_kernel::{Declaration, GateEntry, GateSpec, QuorumRule, Time};
use std::sync::Arc;
use support::{decide, declaration, registry_with};

/// A process without any fault, for the tests to spoil.
fn sound() -> Declaration {
    declaration("draft review done", "draft", "done", &["draft submit review", "review post done sign-off"])
}

fn spoiled(spoil: impl FnOnce(&mut Declaration)) -> Declaration {
    let mut declaration = sound();
    spoil(&mut declaration);
    declaration
}

fn single(approver_ref: &str, scope: &str) -> GateEntry {
    GateEntry::Single { approver_ref: approver_ref.to_owned(), scope: scope.to_owned(), delegable: false }
}

fn quorum(approvers: &[&str], rule: QuorumRule) -> GateEntry {
    let approvers = approvers.iter().map(|name| (*name).to_owned()).collect();
    GateEntry::Quorum { approvers, rule, scope: "finance:post".to_owned(), delegable: false }
}

fn spec(entries: impl IntoIterator<Item = (&'static str, GateEntry)>) -> GateSpec {
    GateSpec(entries.into_iter().map(|(label, entry)| (label.to_owned(), entry)).collect())
}

fn starting(declaration: Declaration, gate_spec: GateSpec) -> Result<Process, Refusal> {
    let command = Command::StartWorkflow(StartWorkflow {
        source: Source::Inline(Arc::new(declaration)),
        subject_ref: "je-2026-0441".to_owned(),
        gate_spec,
        reason: None,
    });
    let registry = registry_with(&[("ines", "workflows:start")]);
    let events = decide(&registry, None, "ines", Time(5), &command)?;
    assert_eq!(events.len(), 1, "a start is one record");
    Ok(Process::begin(&events[0]).unwrap_or_else(|| panic!("not a start: {events:?}")))
}

/// The declaration has exactly this fault, and `start_workflow` refuses it there.
#[track_caller]
fn assert_fault(declaration: Declaration, path: &str, kind: FaultKind) {
    let found: Vec<(String, FaultKind)> =
        declaration.faults().into_iter().map(|Fault { path, kind, .. }| (path, kind)).collect();
    assert_eq!(found, [(path.to_owned(), kind)]);

    let covering = GateSpec(
        declaration.guard_labels().into_iter().map(|label| (label.to_owned(), single("morgan", "s"))).collect(),
    );
    if covering.validate_shape().is_ok() {
        let refusal = starting(declaration, covering).err();
        let said = refusal.as_ref().map(|refusal| (refusal.code, refusal.field.clone()));
        // The fault's place within the declaration is a place within the request.
        assert_eq!(said, Some((Code::InvalidDeclaration, Some(format!("declaration.{path}")))), "{refusal:?}");
    }
}

/// Legal: no fault, and a process starts on it.
#[track_caller]
fn assert_legal(declaration: Declaration) {
    assert_eq!(declaration.faults(), []);
    let covering = GateSpec(
        declaration.guard_labels().into_iter().map(|label| (label.to_owned(), single("morgan", "s"))).collect(),
    );
    let started = starting(declaration.clone(), covering);
    assert_eq!(started.map(|process| (*process.declaration).clone()), Ok(declaration), "kept verbatim");
}

#[track_caller]
fn assert_refused(declaration: Declaration, gate_spec: GateSpec, field: &str) {
    let refusal = starting(declaration, gate_spec).err();
    let said = refusal.as_ref().map(|refusal| (refusal.code, refusal.field.as_deref()));
    assert_eq!(said, Some((Code::InvalidRequest, Some(field))), "{refusal:?}");
}

// ---- invalid-declaration

#[test]
fn no_states_at_all() {
    let empty = declaration("", "draft", "", &[]);
    let found: Vec<_> = empty.faults().into_iter().map(|fault| (fault.path, fault.kind)).collect();
    // Without states nothing is known, so the initial state is not either; the cause stands first.
    let expected = [("states", FaultKind::NoStates), ("initial_state", FaultKind::UnknownState)];
    assert_eq!(found, expected.map(|(path, kind)| (path.to_owned(), kind)));
    let refusal = starting(empty, GateSpec::default()).expect_err("refused");
    assert_eq!((refusal.code, refusal.field.as_deref()), (Code::InvalidDeclaration, Some("declaration.states")));
}

#[test]
fn a_blank_state_name() {
    for blank in ["", "  ", "\t", "\u{200B}"] {
        assert_fault(spoiled(|d| d.states.push(blank.to_owned())), "states[3]", FaultKind::Blank);
    }
}

#[test]
fn a_duplicate_state_name() {
    assert_fault(spoiled(|d| d.states.push("review".to_owned())), "states[3]", FaultKind::DuplicateState);
}

#[test]
fn an_initial_state_that_is_not_declared() {
    for unknown in ["elsewhere", "Draft", "draft "] {
        let declaration = spoiled(|d| d.initial_state = unknown.to_owned());
        assert_fault(declaration, "initial_state", FaultKind::UnknownState);
    }
    for blank in ["", " "] {
        assert_fault(spoiled(|d| d.initial_state = blank.to_owned()), "initial_state", FaultKind::Blank);
    }
}

#[test]
fn an_initial_state_that_is_terminal() {
    let declaration = declaration("draft done", "done", "done", &["draft finish done"]);
    assert_fault(declaration, "initial_state", FaultKind::InitialTerminal);
}

#[test]
fn a_transition_from_a_state_that_is_not_declared() {
    let declaration = spoiled(|d| d.transitions[1].from_state = "reviewed".to_owned());
    assert_fault(declaration, "transitions[1].from", FaultKind::UnknownState);
}

#[test]
fn a_transition_to_a_state_that_is_not_declared() {
    let declaration = spoiled(|d| d.transitions[0].to_state = "reviewed".to_owned());
    assert_fault(declaration, "transitions[0].to", FaultKind::UnknownState);
}

#[test]
fn a_transition_out_of_a_terminal_state() {
    let declaration = declaration("draft done", "draft", "done", &["draft finish done", "done reopen draft"]);
    assert_fault(declaration, "transitions[1].from", FaultKind::ExitFromTerminal);
}

#[test]
fn a_self_loop_on_a_terminal_state() {
    let declaration = declaration("draft done", "draft", "done", &["draft finish done", "done note done"]);
    assert_fault(declaration, "transitions[1].from", FaultKind::ExitFromTerminal);
}

#[test]
fn two_transitions_with_the_same_state_and_action() {
    let twice = ["draft submit review", "draft submit done", "review post done"];
    let declaration = declaration("draft review done", "draft", "done", &twice);
    assert_fault(declaration, "transitions[1]", FaultKind::DuplicateTransition);
}

#[test]
fn two_transitions_that_differ_in_their_guard_alone() {
    let twice = ["draft submit done", "draft submit done sign-off"];
    let declaration = declaration("draft done", "draft", "done", &twice);
    assert_fault(declaration, "transitions[1]", FaultKind::DuplicateTransition);
}

#[test]
fn a_blank_action() {
    for blank in ["", " ", "\u{3000}"] {
        let declaration = spoiled(|d| d.transitions[0].action = blank.to_owned());
        assert_fault(declaration, "transitions[0].action", FaultKind::Blank);
    }
}

#[test]
fn a_guard_that_is_present_but_blank() {
    for blank in ["", " "] {
        let declaration = spoiled(|d| d.transitions[1].guard = Some(blank.to_owned()));
        assert_fault(declaration.clone(), "transitions[1].guard", FaultKind::Blank);
        // No gate_spec can cover a blank label; whichever check speaks first, it does not start.
        for gate_spec in [GateSpec::default(), spec([(blank, single("morgan", "s"))])] {
            let refusal = starting(declaration.clone(), gate_spec).expect_err("refused");
            assert!(matches!(refusal.code, Code::InvalidDeclaration | Code::InvalidRequest), "{refusal}");
        }
    }
}

#[test]
fn a_terminal_state_that_is_not_declared() {
    let declaration = spoiled(|d| d.terminal_states.push("archived".to_owned()));
    assert_fault(declaration, "terminal_states[1]", FaultKind::UnknownState);
}

#[test]
fn every_fault_is_listed_and_the_first_is_named() {
    let mut declaration = sound();
    declaration.states.push(String::new());
    declaration.initial_state = "elsewhere".to_owned();
    declaration.transitions[1].to_state = "nowhere".to_owned();
    let paths: Vec<String> = declaration.faults().into_iter().map(|fault| fault.path).collect();
    assert_eq!(paths, ["states[3]", "initial_state", "transitions[1].to"]);
    let refusal = declaration.validate().expect_err("refused");
    assert_eq!(refusal.field.as_deref(), Some("states[3]"));
    assert!(refusal.detail.contains("2 more faults"), "{refusal}");
}

// ---- legal, however odd

#[test]
fn a_sound_declaration_is_accepted_and_kept_in_its_order() {
    assert_legal(sound());
    assert_legal(declaration("done review draft", "draft", "done", &["review b done", "draft a review"]));
}

#[test]
fn unreachable_states_are_legal() {
    assert_legal(declaration("draft island done", "draft", "done", &["draft finish done"]));
}

#[test]
fn non_terminal_dead_ends_are_legal() {
    assert_legal(declaration("draft limbo done", "draft", "done", &["draft park limbo", "draft finish done"]));
}

#[test]
fn self_loops_are_legal() {
    let transitions = ["draft note draft", "draft countersign draft second", "draft finish done"];
    assert_legal(declaration("draft done", "draft", "done", &transitions));
}

#[test]
fn an_empty_terminal_set_is_legal() {
    assert_legal(declaration("on off", "off", "", &["off switch on", "on switch off"]));
}

#[test]
fn one_action_from_several_states_is_legal() {
    let transitions = ["draft cancel cancelled", "review cancel cancelled", "draft submit review"];
    assert_legal(declaration("draft review cancelled", "draft", "cancelled", &transitions));
}

#[test]
fn one_guard_label_on_several_transitions_is_legal() {
    let transitions = ["draft release done sign-off", "draft scrap done sign-off"];
    let declaration = declaration("draft done", "draft", "done", &transitions);
    assert_eq!(declaration.guard_labels(), ["sign-off"], "one entry of the gate_spec serves both");
    assert_legal(declaration);
}

#[test]
fn no_transitions_at_all_is_legal() {
    assert_legal(declaration("alone", "alone", "", &[]));
}

#[test]
fn names_are_compared_byte_for_byte() {
    assert_legal(declaration("draft Draft DRAFT", "draft", "DRAFT", &["draft go Draft", "draft Go DRAFT"]));
}

// ---- gate_spec

#[test]
fn a_guard_without_an_entry_names_the_guard() {
    assert_refused(sound(), GateSpec::default(), "gate_spec.sign-off");
}

#[test]
fn an_entry_for_a_guard_that_nobody_declared() {
    let extra = spec([("sign-off", single("morgan", "s")), ("signoff", single("morgan", "s"))]);
    assert_refused(sound(), extra, "gate_spec.signoff");
    let unguarded = declaration("draft done", "draft", "done", &["draft finish done"]);
    assert_refused(unguarded, spec([("sign-off", single("morgan", "s"))]), "gate_spec.sign-off");
}

#[test]
fn a_blank_label() {
    assert_refused(sound(), spec([(" ", single("morgan", "s"))]), "gate_spec");
}

#[test]
fn a_blank_approver() {
    for blank in ["", "  ", "\u{FEFF}"] {
        assert_refused(sound(), spec([("sign-off", single(blank, "s"))]), "gate_spec.sign-off.approver_ref");
    }
}

#[test]
fn a_blank_scope() {
    assert_refused(sound(), spec([("sign-off", single("morgan", " "))]), "gate_spec.sign-off.scope");
    let entry = GateEntry::Quorum {
        approvers: vec!["a".into()],
        rule: QuorumRule::AllOfN,
        scope: String::new(),
        delegable: false,
    };
    assert_refused(sound(), spec([("sign-off", entry)]), "gate_spec.sign-off.scope");
}

#[test]
fn a_quorum_of_nobody() {
    for rule in [QuorumRule::AllOfN, QuorumRule::OneOfN, QuorumRule::MOfN { m: 1 }] {
        assert_refused(sound(), spec([("sign-off", quorum(&[], rule))]), "gate_spec.sign-off.approvers");
    }
}

#[test]
fn a_blank_approver_in_a_quorum() {
    let entry = quorum(&["ann", ""], QuorumRule::AllOfN);
    assert_refused(sound(), spec([("sign-off", entry)]), "gate_spec.sign-off.approvers[1]");
}

#[test]
fn an_approver_named_twice_in_a_quorum() {
    let entry = quorum(&["ann", "ben", "ann"], QuorumRule::MOfN { m: 2 });
    assert_refused(sound(), spec([("sign-off", entry)]), "gate_spec.sign-off.approvers[2]");
}

#[test]
fn m_outside_one_to_n() {
    for m in [0, 3, u32::MAX] {
        let entry = quorum(&["ann", "ben"], QuorumRule::MOfN { m });
        assert_refused(sound(), spec([("sign-off", entry)]), "gate_spec.sign-off.quorum.m");
    }
}

#[test]
fn every_quorum_rule_is_accepted_within_its_bounds() {
    for rule in [QuorumRule::AllOfN, QuorumRule::OneOfN, QuorumRule::MOfN { m: 1 }, QuorumRule::MOfN { m: 2 }] {
        let gate_spec = spec([("sign-off", quorum(&["ann", "ben"], rule))]);
        let started = starting(sound(), gate_spec.clone()).expect("legal");
        assert_eq!(*started.gate_spec, gate_spec, "kept as given");
    }
    // The smallest quorum is one person.
    assert!(starting(sound(), spec([("sign-off", quorum(&["ann"], QuorumRule::AllOfN))])).is_ok());
}

#[test]
fn the_same_person_may_hold_several_gates_and_start_the_process() {
    let declaration = declaration("a b c", "a", "c", &["a go b one", "b go c two"]);
    let gate_spec = spec([("one", single("ines", "s")), ("two", single("ines", "s"))]);
    assert!(starting(declaration, gate_spec).is_ok());
}

#[test]
fn a_reference_that_is_a_document_or_holds_a_null() {
    let long = "x".repeat(1001);
    for text in [long.as_str(), "mor\0gan"] {
        assert_refused(sound(), spec([("sign-off", single(text, "s"))]), "gate_spec.sign-off.approver_ref");
        assert_refused(sound(), spec([("sign-off", single("morgan", text))]), "gate_spec.sign-off.scope");
        let entry = quorum(&["ann", text], QuorumRule::AllOfN);
        assert_refused(sound(), spec([("sign-off", entry)]), "gate_spec.sign-off.approvers[1]");
        let declaration = spoiled(|d| d.transitions[0].action = text.to_owned());
        let covering = spec([("sign-off", single("morgan", "s"))]);
        assert_refused(declaration, covering, "declaration.transitions[0].action");
    }
    assert!(starting(sound(), spec([("sign-off", single(&"x".repeat(1000), "s"))])).is_ok(), "exactly the limit");
}

#[test]
fn the_gate_spec_is_judged_before_the_declaration() {
    // start_workflow step 2 (gate_spec, invalid-request) comes before step 3 (invalid-declaration).
    let declaration = spoiled(|d| d.initial_state = "elsewhere".to_owned());
    assert_refused(declaration.clone(), GateSpec::default(), "gate_spec.sign-off");
    let refusal = starting(declaration, spec([("sign-off", single("morgan", "s"))])).expect_err("refused");
    assert_eq!(refusal.code, Code::InvalidDeclaration);
}

#[test]
fn the_started_process_stands_in_its_initial_state() {
    let gate_spec = spec([("sign-off", single("morgan", "finance:post"))]);
    let process = starting(sound(), gate_spec).expect("legal");
    assert_eq!(process.current_state, "draft");
    assert_eq!(process.next_sequence_number, 1);
    assert_eq!(process.initiator_ref, "ines");
    assert!(process.gates.is_empty(), "gates are opened when they are needed, not at the start");
}

#[test]
fn a_start_is_recorded_with_the_declaration_and_the_gate_spec_it_runs_under() {
    let command = Command::StartWorkflow(StartWorkflow {
        source: Source::Inline(Arc::new(sound())),
        subject_ref: "s".to_owned(),
        gate_spec: spec([("sign-off", single("morgan", "s"))]),
        reason: Some("why".to_owned()),
    });
    let registry = registry_with(&[("ines", "workflows:start")]);
    let events = decide(&registry, None, "ines", Time(5), &command).expect("legal");
    let EventBody::WorkflowStarted { declaration, gate_spec, reason, .. } = &events[0].body else {
        panic!("{events:?}")
    };
    assert_eq!(**declaration, sound());
    assert_eq!(gate_spec.0.len(), 1);
    assert_eq!(reason.as_deref(), Some("why"));
}
