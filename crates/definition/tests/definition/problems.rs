//! One sound document, and what each way of spoiling it is answered with: exactly these problems, and
//! no others, so that a mistake is reported once and not with everything that follows from it.

use crate::{listed, machines, parsed, problems_of, workflow_problems};
use countersign_definition::{Problem, ProblemCode, Severity};
use std::collections::BTreeSet;

const SOUND: &str = "\
kind: process
name: leave-request
states: [draft, review, granted, refused]
initial_state: draft
terminal_states: [granted, refused]
transitions:
  - {from: draft, action: submit, to: review}
  - {from: review, action: grant, to: granted, guard: manager}
  - {from: review, action: refuse, to: refused}
gate_spec:
  manager: {approver_ref: kim, scope: \"leave:grant\"}
retention: hr_2_year
";

/// The lines of the sound document to put others in place of, those others, and the problems:
/// code, path, line, column.
pub type Case = (std::ops::RangeInclusive<usize>, &'static str, &'static [(&'static str, &'static str, u32, u32)]);

fn spoilt(lines: &std::ops::RangeInclusive<usize>, replacement: &str) -> String {
    replaced(SOUND, lines, replacement)
}

pub fn replaced(sound: &str, lines: &std::ops::RangeInclusive<usize>, replacement: &str) -> String {
    let before = sound.split_inclusive('\n').take(lines.start() - 1);
    let after = sound.split_inclusive('\n').skip(*lines.end());
    let middle = if replacement.is_empty() { String::new() } else { format!("{replacement}\n") };
    before.chain([middle.as_str()]).chain(after).collect()
}

pub fn check(sound: &str, tables: &[&[Case]], problems_of: impl Fn(&str) -> Vec<Problem>) -> BTreeSet<&'static str> {
    let mut codes = BTreeSet::new();
    let mut wrong = String::new();
    for (lines, replacement, expected) in tables.concat() {
        let problems = problems_of(&replaced(sound, &lines, replacement));
        let found: Vec<_> = problems.iter().map(|p| (p.code.as_str(), p.path.as_str(), p.line, p.column)).collect();
        if found != expected {
            wrong += &format!("{replacement}\n{}expected {expected:?}\n\n", listed(&problems));
        }
        codes.extend(problems.iter().map(|problem| problem.code.as_str()));
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    codes
}

const TEXT: &[Case] = &[
    (3..=3, "states: [draft, review", &[("yaml-syntax", "", 4, 14)]),
    (3..=3, "\tstates: []", &[("yaml-syntax", "", 3, 1)]),
    (12..=12, "retention: a: b", &[("yaml-syntax", "", 12, 13)]),
    (12..=12, "retention: *nowhere", &[("yaml-syntax", "", 12, 12)]),
    (12..=12, "retention: !secret x", &[("yaml-syntax", "", 12, 20)]),
    (12..=12, "retention: x\n---\nkind: process", &[("yaml-syntax", "", 13, 1)]),
    (12..=12, "retention: x\n...\n# the end\n}{", &[("yaml-syntax", "", 15, 1)]),
];

const FIELDS: &[Case] = &[
    (12..=12, "retentoin: hr_2_year", &[("unknown-field", "retentoin", 12, 1)]),
    (12..=12, "colour: red", &[("unknown-field", "colour", 12, 1)]),
    (7..=7, "  - {form: draft, action: submit, to: review}", &[("unknown-field", "transitions[0].form", 7, 6)]),
    // The guard hides behind a slip, so that its entry is not called unused.
    (
        8..=8,
        "  - {from: review, action: grant, to: granted, gaurd: manager}",
        &[("unknown-field", "transitions[1].gaurd", 8, 48)],
    ),
    (11..=11, "  manager: {approver: kim, scope: x}", &[("unknown-field", "gate_spec.manager.approver", 11, 13)]),
    (1..=1, "knid: process", &[("unknown-field", "knid", 1, 1)]),
    (12..=12, "name: twice", &[("duplicate-key", "name", 12, 1)]),
    (
        11..=11,
        "  manager: {approver_ref: kim, scope: a}\n  manager: {}",
        &[("duplicate-key", "gate_spec.manager", 12, 3)],
    ),
    (4..=4, "", &[("missing-field", "initial_state", 1, 1)]),
    (1..=1, "", &[("missing-field", "kind", 1, 1)]),
    (9..=9, "  - {from: review, to: refused}", &[("missing-field", "transitions[2].action", 9, 5)]),
    (11..=11, "  manager: {approver_ref: kim}", &[("missing-field", "gate_spec.manager.scope", 11, 12)]),
    (11..=11, "  manager: {scope: x}", &[("missing-field", "gate_spec.manager.approver_ref", 11, 12)]),
    (
        11..=11,
        "  manager:\n    approvers: [kim]\n    scope: x",
        &[("missing-field", "gate_spec.manager.quorum", 12, 5)],
    ),
    (
        11..=11,
        "  manager: {approver_ref: kim, approvers: [lee], quorum: {rule: one-of-n}, scope: x}",
        &[("unknown-field", "gate_spec.manager.approver_ref", 11, 13)],
    ),
];

const REPLACEABLE: &[Case] = &[
    (
        11..=11,
        "  manager: {replaceable: false, scope: x}",
        &[("missing-field", "gate_spec.manager.approver_ref", 11, 12)],
    ),
    (
        11..=11,
        "  manager: {approver_ref: kim, scope: x, selfApproval: true}",
        &[("bad-value", "gate_spec.manager.selfApproval", 11, 56)],
    ),
    (
        11..=11,
        "  manager: {approver_ref: kim, scope: x, replaceable: 1}",
        &[("bad-value", "gate_spec.manager.replaceable", 11, 55)],
    ),
    (10..=11, "", &[("unknown-gate", "transitions[1].guard", 8, 55)]),
];

const VALUES: &[Case] = &[
    (1..=1, "kind: machin", &[("bad-value", "kind", 1, 7)]),
    (1..=1, "kind: 1", &[("bad-value", "kind", 1, 7)]),
    (2..=2, "name: 2fast", &[("bad-value", "name", 2, 7)]),
    (2..=2, "name: leave..request", &[("bad-value", "name", 2, 7)]),
    (2..=2, "name: \"leave request\"", &[("bad-value", "name", 2, 7)]),
    (2..=2, "name: [leave]", &[("bad-value", "name", 2, 7)]),
    (3..=3, "states: 7", &[("bad-value", "states", 3, 9)]),
    (3..=3, "states: [draft, review, granted, 7]", &[("bad-value", "states[3]", 3, 34)]),
    (4..=4, "initial_state: true", &[("bad-value", "initial_state", 4, 16)]),
    (5..=5, "terminal_states: granted", &[("bad-value", "terminal_states", 5, 18)]),
    (6..=9, "transitions: {}", &[("bad-value", "transitions", 6, 14)]),
    (9..=9, "  - refuse", &[("bad-value", "transitions[2]", 9, 5)]),
    // An empty guard is not taken for an unguarded transition.
    (
        8..=8,
        "  - {from: review, action: grant, to: granted, guard: null}",
        &[("bad-value", "transitions[1].guard", 8, 55)],
    ),
    (10..=11, "gate_spec: [manager]", &[("bad-value", "gate_spec", 10, 12)]),
    (11..=11, "  manager: kim", &[("bad-value", "gate_spec.manager", 11, 12)]),
    (11..=11, "  manager: {approver_ref: 12, scope: x}", &[("bad-value", "gate_spec.manager.approver_ref", 11, 27)]),
    // Nothing stands there, so the colon after which it is missing is pointed at.
    (12..=12, "retention:", &[("bad-value", "retention", 12, 10)]),
    (12..=12, "retention: 9007199254740992", &[("bad-value", "retention", 12, 12)]),
    (12..=12, "retention: -9007199254740992", &[("bad-value", "retention", 12, 12)]),
    (12..=12, "retention: 99999999999999999999999", &[("bad-value", "retention", 12, 12)]),
    (12..=12, "retention: .inf", &[("bad-value", "retention", 12, 12)]),
    (12..=12, "retention: .nan", &[("bad-value", "retention", 12, 12)]),
    (12..=12, "retention: 1e999", &[("bad-value", "retention", 12, 12)]),
    (12..=12, "retention: \"a\\0b\"", &[("bad-value", "retention", 12, 12)]),
    (12..=12, "description: 12", &[("bad-value", "description", 12, 14)]),
    (12..=12, "12: x", &[("bad-value", "", 12, 1)]),
    (12..=12, "<<: {retention: x}", &[("bad-value", "", 12, 1)]),
    (12..=12, "\"a\\0b\": x", &[("bad-value", "", 12, 1)]),
    (1..=12, "- kind: process", &[("bad-value", "", 1, 1)]),
    (1..=12, "", &[("bad-value", "", 1, 1)]),
];

const GATES: &[Case] = &[
    (
        11..=11,
        "  manager: {approver_ref: kim, scope: x}\n  director: {approver_ref: lee, scope: x}",
        &[("unused-gate", "gate_spec.director", 12, 3)],
    ),
    (11..=11, "  managr: {approver_ref: kim, scope: x}", &[("unused-gate", "gate_spec.managr", 11, 3)]),
    (11..=11, "  manager: {approver_ref: \" \", scope: x}", &[("blank", "gate_spec.manager.approver_ref", 11, 27)]),
    (11..=11, "  manager: {approver_ref: kim, scope: \"\"}", &[("blank", "gate_spec.manager.scope", 11, 39)]),
    (
        11..=11,
        "  manager: {approver_ref: kim, scope: x}\n  \"\": {approver_ref: lee, scope: x}",
        &[("blank", "gate_spec.", 12, 3)],
    ),
    (
        11..=11,
        "  manager: {approvers: [], quorum: {rule: one-of-n}, scope: x}",
        &[("bad-quorum", "gate_spec.manager.approvers", 11, 24)],
    ),
    (
        11..=11,
        "  manager: {approvers: [kim, lee, kim], quorum: {rule: all-of-n}, scope: x}",
        &[("bad-quorum", "gate_spec.manager.approvers[2]", 11, 35)],
    ),
    (
        11..=11,
        "  manager: {approvers: [kim, \"\"], quorum: {rule: m-of-n, m: 9}, scope: x}",
        &[("blank", "gate_spec.manager.approvers[1]", 11, 30)],
    ),
    (
        11..=11,
        "  manager: {approvers: [kim], quorum: {rule: most-of-n}, scope: x}",
        &[("bad-quorum", "gate_spec.manager.quorum.rule", 11, 46)],
    ),
    (
        11..=11,
        "  manager: {approvers: [kim], quorum: {rule: all-of-n, m: 1}, scope: x}",
        &[("bad-quorum", "gate_spec.manager.quorum.m", 11, 59)],
    ),
    (
        11..=11,
        "  manager: {approvers: [kim], quorum: {rule: m-of-n}, scope: x}",
        &[("bad-quorum", "gate_spec.manager.quorum.m", 11, 39)],
    ),
    (
        11..=11,
        "  manager: {approvers: [kim, lee], quorum: {rule: m-of-n, m: 3}, scope: x}",
        &[("bad-quorum", "gate_spec.manager.quorum.m", 11, 62)],
    ),
    (
        11..=11,
        "  manager: {approvers: [kim, lee], quorum: {rule: m-of-n, m: 0}, scope: x}",
        &[("bad-quorum", "gate_spec.manager.quorum.m", 11, 62)],
    ),
    (
        11..=11,
        "  manager: {approvers: [kim, lee], quorum: {rule: m-of-n, m: \"2\"}, scope: x}",
        &[("bad-value", "gate_spec.manager.quorum.m", 11, 62)],
    ),
];

const DECLARATION: &[Case] = &[
    (3..=3, "states: []", &[("no-states", "states", 3, 9)]),
    (3..=3, "states: [draft, review, granted, refused, draft]", &[("duplicate-state", "states[4]", 3, 43)]),
    (3..=3, "states: [draft, review, granted, refused, \"\u{200b}\"]", &[("blank", "states[4]", 3, 43)]),
    (4..=4, "initial_state: drafted", &[("unknown-state", "initial_state", 4, 16)]),
    (4..=4, "initial_state: granted", &[("initial-terminal", "initial_state", 4, 16)]),
    (5..=5, "terminal_states: [granted, gone]", &[("unknown-state", "terminal_states[1]", 5, 28)]),
    (9..=9, "  - {from: review, action: refuse, to: nowhere}", &[("unknown-state", "transitions[2].to", 9, 40)]),
    (
        9..=9,
        "  - {from: granted, action: revoke, to: refused}",
        &[("exit-from-terminal", "transitions[2].from", 9, 12)],
    ),
    (9..=9, "  - {from: review, action: grant, to: refused}", &[("duplicate-transition", "transitions[2]", 9, 5)]),
    (9..=9, "  - {from: review, action: '', to: refused}", &[("blank", "transitions[2].action", 9, 28)]),
    (9..=9, "  - {from: review, action: refuse, to: refused, guard: ' '}", &[("blank", "transitions[2].guard", 9, 56)]),
];

#[test]
fn the_sound_document_is_sound() {
    assert_eq!(parsed(SOUND).name, "leave-request");
}

#[test]
fn each_problem_is_reported_once_where_it_stands() {
    let mut codes = check(SOUND, &[TEXT, FIELDS, REPLACEABLE, VALUES, GATES, DECLARATION], |text| problems_of(text));
    codes.extend(workflow_problems::check_all());
    codes.extend(machines::check_all());
    let all: BTreeSet<&str> =
        ProblemCode::ALL.iter().filter(|code| code.severity() == Severity::Error).map(|code| code.as_str()).collect();
    assert_eq!(codes, all, "a code without a case");
}

#[test]
fn an_entry_may_leave_its_approvers_to_the_start() {
    for entry in [
        "{scope: x, replaceable: true}",
        "{scope: x, replaceable: true, selfApproval: true}",
        "{approver_ref: kim, scope: x, replaceable: true, selfApproval: false}",
    ] {
        parsed(&spoilt(&(11..=11), &format!("  manager: {entry}")));
    }
}

#[test]
fn all_problems_of_a_document_are_reported_in_one_go() {
    let text = "\
kind: process
name: 1
states: [a, a, b]
initial_state: c
terminal_states: [b]
transitions:
  - {from: b, action: go, to: a, guard: g}
  - {from: a, action: go, too: b}
gate_spec:
  h: {approver_ref: x}
retention: ''
";
    let found: Vec<_> = problems_of(text).iter().map(|p| (p.code.as_str(), p.line, p.column)).collect();
    assert_eq!(
        found,
        [
            ("bad-value", 2, 7),
            ("duplicate-state", 3, 13),
            ("unknown-state", 4, 16),
            ("exit-from-terminal", 7, 12),
            ("unknown-gate", 7, 41),
            ("unknown-field", 8, 27),
            ("unused-gate", 10, 3),
            ("missing-field", 10, 6),
            ("blank", 11, 12),
        ]
    );
}

#[test]
fn a_byte_that_is_not_utf_8_is_found_where_it_is() {
    let found = problems_of(b"kind: process\nname: \xC3\xA9\xFFx\n");
    assert_eq!((found[0].code.as_str(), found[0].line, found[0].column, found.len()), ("yaml-syntax", 2, 8, 1));
}

#[test]
fn messages_say_what_and_how_to_mend_it() {
    for (lines, replacement, expected) in [
        (
            1..=1,
            "kind: gadget",
            "this version supports kind: process, kind: workflow and kind: machine, and not `gadget`",
        ),
        (
            1..=1,
            "kind: proces",
            "this version supports kind: process, kind: workflow and kind: machine, and not `proces`; did you mean `process`?",
        ),
        (3..=3, "states: 7", "expected a list of strings such as `[a, b]`, found a number"),
        (12..=12, "retentoin: x", "unknown field `retentoin`; did you mean `retention`?"),
        (4..=4, "initial_state: drafft", "`drafft` is not one of the declared states; did you mean `draft`?"),
        (2..=2, "name: true", "expected a string, found a boolean; put it in quotes to make it a string"),
        (
            12..=12,
            "retention: x\n---\nkind: process",
            "a file holds one document, and here begins another; put it into a file of its own",
        ),
    ] {
        assert_eq!(problems_of(spoilt(&lines, replacement))[0].message, expected);
    }
}

#[test]
fn an_alias_is_reported_where_it_is_used() {
    let text = SOUND
        .replace("guard: manager", "guard: &label \"\"")
        .replace("  - {from: review, action: refuse", "  - {from: *label, action: refuse");
    let found: Vec<_> = problems_of(text).iter().map(|p| (p.path.clone(), p.line, p.column)).collect();
    assert!(found.contains(&("transitions[2].from".to_owned(), 9, 12)), "{found:?}");
}
