//! `kind: machine`: a step machine stands on the nine states of the floor; what it adds names the state that stands for
//! it and why, and takes nothing of the floor away.

use crate::problems::{Case, check, replaced};
use crate::{listed, parsed, problems_of};
use countersign_definition::{Body, Cel};
use countersign_kernel::lifecycle::{ActorClass, MachineScope, OwnMachine, SemanticClass, machine};
use countersign_kernel::plan::Language;
use std::collections::BTreeSet;

const SOUND: &str = "\
kind: machine
name: reviewed
scope: step
states: [not_started, ready, in_progress, waiting, blocked, overdue, failed, cannot_complete, completed,
  {state_code: in_review, floor_equivalent: waiting, justification: Whose turn is it},
  {state_code: sent_back, floor_equivalent: waiting, justification: The author has it}]
transitions:
  - {from: in_progress, to: in_review, actor_class: pic_human, trigger_kind: rpc, trigger_ref: submit}
  - {from: in_review, to: sent_back, actor_class: reviewer, trigger_kind: rpc, trigger_ref: send_back}
";

fn own(text: &str) -> OwnMachine {
    match parsed(text).body {
        Body::Machine { machine, document } => {
            let again = Cel::new().machine(&document).expect("readable").expect("a machine");
            assert_eq!(again, machine, "what was published is read again as it was");
            machine
        }
        _ => panic!("no machine"),
    }
}

const TOP: &[Case] = &[
    (3..=3, "scope: setp", &[("bad-value", "scope", 3, 8)]),
    (3..=3, "scop: step", &[("unknown-field", "scop", 3, 1)]),
    (3..=3, "", &[("missing-field", "scope", 1, 1)]),
    (2..=2, "name: step", &[("bad-value", "name", 2, 7)]),
    (2..=2, "name: reviewed\ninitial_state: ready", &[("floor-state-changed", "initial_state", 3, 16)]),
    (
        2..=2,
        "name: reviewed\nfacets: [{state_code: waiting, facet_code: waiting_humans}]",
        &[("bad-value", "facets[0].facet_code", 3, 44)],
    ),
    (
        2..=2,
        "name: reviewed\nfacets: [{state_code: failed, facet_code: waiting_human}]",
        &[("floor-state-changed", "facets[0].state_code", 3, 23)],
    ),
    (
        2..=2,
        "name: reviewed\nrollup_policies: [{policy_code: weighted}]",
        &[("bad-value", "rollup_policies[0].policy_code", 3, 33)],
    ),
];

/// "Every step/task state machine must include these 9 codes verbatim, with these semantic classes and tokens."
const STATES: &[Case] = &[
    (
        4..=4,
        "states: [ready, in_progress, waiting, blocked, overdue, failed, cannot_complete, completed,",
        &[("missing-floor-state", "states", 4, 9)],
    ),
    (
        4..=4,
        "states: [not_started, ready, in_progress, waiting, blocked, failed, cannot_complete, completed, {state_code: overdue, semantic_class: wait},",
        &[("floor-state-changed", "states[8].semantic_class", 4, 135)],
    ),
    (
        4..=4,
        "states: [not_started, ready, in_progress, waiting, blocked, failed, cannot_complete, completed, {state_code: overdue, ui_color_token: ui.traffic_light.gray},",
        &[("floor-state-changed", "states[8].ui_color_token", 4, 135)],
    ),
    (
        4..=4,
        "states: [not_started, ready, in_progress, waiting, blocked, overdue, failed, cannot_complete, completed, ready,",
        &[("duplicate-state", "states[9]", 4, 106)],
    ),
    (
        4..=4,
        "states: [not_started, ready, in_progress, waiting, blocked, overdue, failed, cannot_complete, completed, 7,",
        &[("bad-value", "states[9]", 4, 106)],
    ),
    (
        4..=4,
        "states: [not_started, ready, in_progress, waiting, blocked, overdue, failed, cannot_complete, completed, parked,",
        &[("derived-without-floor", "states[9]", 4, 106)],
    ),
    (
        4..=4,
        "states: [not_started, ready, in_progress, waiting, blocked, overdue, failed, cannot_complete, completed, {floor_equivalent: waiting},",
        &[("missing-field", "states[9].state_code", 4, 106)],
    ),
];

const DERIVED: &[Case] = &[
    (
        6..=6,
        "  {state_code: sent_back, justification: x}]",
        &[("derived-without-floor", "states[10].floor_equivalent", 6, 3)],
    ),
    (
        6..=6,
        "  {state_code: sent_back, floor_equivalent: skipped, justification: x}]",
        &[("derived-without-floor", "states[10].floor_equivalent", 6, 45)],
    ),
    (
        6..=6,
        "  {state_code: sent_back, floor_equivalent: waitng, justification: x}]",
        &[("derived-without-floor", "states[10].floor_equivalent", 6, 45)],
    ),
    (
        6..=6,
        "  {state_code: sent_back, floor_equivalent: waiting}]",
        &[("derived-without-justification", "states[10].justification", 6, 3)],
    ),
    (
        6..=6,
        "  {state_code: sent_back, floor_equivalent: waiting, justification: ' '}]",
        &[("derived-without-justification", "states[10].justification", 6, 69)],
    ),
    (
        6..=6,
        "  {state_code: sent_back, floor_equivalent: waiting, justification: x, is_derived: false}]",
        &[("bad-value", "states[10].is_derived", 6, 84)],
    ),
    (
        6..=6,
        "  {state_code: sent_back, floor_equivalent: waiting, justification: x, is_terminal: true}]",
        &[("bad-value", "states[10].is_terminal", 6, 85)],
    ),
    (
        6..=6,
        "  {state_code: sent_back, floor_equivalent: waiting, justification: x, semantic_class: red}]",
        &[("bad-value", "states[10].semantic_class", 6, 88)],
    ),
    (
        6..=6,
        "  {state_code: sent_back, floor_equivalent: waiting, justification: x, ui_color_token: ui.traffic_light.green}]",
        &[("bad-value", "states[10].ui_color_token", 6, 88)],
    ),
    (
        6..=6,
        "  {state_code: sent_back, floor_equivalent: waiting, justification: x, ui_label_i18n_key: other}]",
        &[("bad-value", "states[10].ui_label_i18n_key", 6, 91)],
    ),
    (
        6..=6,
        "  {state_code: sent_back, floor_equivalent: waiting, justification: x, texts: {en: {lable: a}}}]",
        &[("unknown-field", "states[10].texts.en.lable", 6, 85)],
    ),
    (
        6..=6,
        "  {state_code: sent_back, floor_equivalent: waiting, justification: x, ordinal: 0}]",
        &[("bad-value", "states[10].ordinal", 6, 81)],
    ),
    (
        6..=6,
        "  {state_code: sent_back, floor_equivalent: waiting, justificaton: x}]",
        &[
            ("derived-without-justification", "states[10].justification", 6, 3),
            ("unknown-field", "states[10].justificaton", 6, 54),
        ],
    ),
];

const TRANSITIONS: &[Case] = &[
    (
        9..=9,
        "  - {from: in_reviw, to: sent_back, actor_class: reviewer, trigger_kind: rpc, trigger_ref: x}",
        &[("unknown-state", "transitions[1].from", 9, 12)],
    ),
    (
        9..=9,
        "  - {from: in_review, to: sent_back, actor_class: boss, trigger_kind: rpc, trigger_ref: x}",
        &[("bad-value", "transitions[1].actor_class", 9, 51)],
    ),
    (
        9..=9,
        "  - {from: in_review, to: sent_back, actor_class: task_pic_human, trigger_kind: rpc, trigger_ref: x}",
        &[("bad-value", "transitions[1].actor_class", 9, 51)],
    ),
    (
        9..=9,
        "  - {from: in_review, to: sent_back, actor_class: reviewer, trigger_kind: rpc, trigger_ref: x, guard: good_mood}",
        &[("bad-value", "transitions[1].guard", 9, 103)],
    ),
    (
        9..=9,
        "  - {from: in_review, to: sent_back, actor_class: reviewer, trigger_kind: rpc, trigger_ref: x, emitted_event_type: step.reviewed}",
        &[("bad-value", "transitions[1].emitted_event_type", 9, 116)],
    ),
    (
        9..=9,
        "  - {from: in_review, to: sent_back, actor_class: reviewer, trigger_kind: rpc, trigger_ref: x, emitted_event_type: step.failed}",
        &[("bad-value", "transitions[1].emitted_event_type", 9, 116)],
    ),
    (
        9..=9,
        "  - {from: in_review, to: sent_back, actor_class: reviewer, trigger_kind: rpc, trigger_ref: x, rollback_to: nowhere}",
        &[("unknown-state", "transitions[1].rollback_to", 9, 109)],
    ),
    (
        9..=9,
        "  - {from: in_review, to: sent_back, actor_class: reviewer, trigger_kind: rpc, trigger_ref: x, id: T3}",
        &[("bad-value", "transitions[1].id", 9, 100)],
    ),
    (
        9..=9,
        "  - {from: in_review, to: in_review, actor_class: reviewer, trigger_kind: rpc, trigger_ref: x}",
        &[("bad-value", "transitions[1].to", 9, 5)],
    ),
    (
        9..=9,
        "  - {from: in_review, to: sent_back, actor_class: reviewer, trigger_ref: x}",
        &[("missing-field", "transitions[1].trigger_kind", 9, 5)],
    ),
    (
        9..=9,
        "  - {from: in_review, from_state: in_review, to: sent_back, actor_class: reviewer, trigger_kind: rpc, trigger_ref: x}",
        &[("bad-value", "transitions[1].from_state", 9, 35)],
    ),
    (
        9..=9,
        "  - {from: in_progress, to: in_review, actor_class: pic_human, trigger_kind: rpc, trigger_ref: submit}",
        &[("duplicate-transition", "transitions[1]", 9, 5)],
    ),
    (
        9..=9,
        "  - {from: completed, to: in_review, actor_class: reviewer, trigger_kind: rpc, trigger_ref: x}",
        &[("exit-from-terminal", "transitions[1].from", 9, 12)],
    ),
    // Only where the floor goes.
    (
        9..=9,
        "  - {from: in_review, to: completed, actor_class: reviewer, trigger_kind: rpc, trigger_ref: accept}",
        &[("no-floor-transition", "transitions[1]", 9, 5)],
    ),
    (
        9..=9,
        "  - {from: in_review, to: in_progress, actor_class: pic_human, trigger_kind: rpc, trigger_ref: go_on}",
        &[("no-floor-transition", "transitions[1]", 9, 5)],
    ),
    // Nothing of the floor is taken away or weakened.
    (
        9..=9,
        "  - {from: in_progress, to: completed, actor_class: pic_human, trigger_ref: step_complete, guard: null}",
        &[("floor-transition-changed", "transitions[1].guard", 9, 99)],
    ),
    (
        9..=9,
        "  - {from: in_progress, to: completed, actor_class: pic_human, trigger_ref: step_complete, audit_required: false}",
        &[("floor-transition-changed", "transitions[1].audit_required", 9, 108)],
    ),
    // What nobody could ever fire is not declared as if somebody could.
    (
        9..=9,
        "  - {from: in_review, to: sent_back, actor_class: system, trigger_kind: rpc, trigger_ref: x}",
        &[("never-fires", "transitions[1]", 9, 5)],
    ),
    (
        9..=9,
        "  - {from: in_review, to: sent_back, actor_class: reviewer, trigger_kind: timer, trigger_ref: x}",
        &[("never-fires", "transitions[1]", 9, 5)],
    ),
    (
        9..=9,
        "  - {from: in_review, to: sent_back, actor_class: reviewer, trigger_kind: rpc, trigger_ref: x, guard: retry_budget}",
        &[("never-fires", "transitions[1]", 9, 5)],
    ),
    (
        9..=9,
        "  - {from: cannot_complete, to: in_progress, actor_class: reviewer, trigger_kind: rpc, trigger_ref: x}",
        &[("never-fires", "transitions[1]", 9, 5)],
    ),
];

pub fn check_all() -> BTreeSet<&'static str> {
    check(SOUND, &[TOP, STATES, DERIVED, TRANSITIONS], |text| problems_of(text))
}

#[test]
fn the_sound_machine_is_sound() {
    let machine = own(SOUND);
    assert_eq!((machine.name.as_str(), machine.scope), ("reviewed", MachineScope::Step));
    let codes: Vec<&str> = machine.states.iter().map(|state| state.code.as_str()).collect();
    assert_eq!(codes, ["in_review", "sent_back"]);
    let review = &machine.states[0];
    assert_eq!((review.floor_equivalent, review.semantic_class), ("waiting", SemanticClass::Wait));
    assert_eq!((review.ui_color_token, review.label_en.as_str()), ("ui.traffic_light.yellow", "In review"));
    let submit = &machine.transitions[0];
    assert_eq!((submit.actor, submit.guard, submit.proposed), (ActorClass::PicHuman, None, false));
    assert!(submit.audit_required, "whoever acts is accountable for it");
}

#[test]
fn all_problems_of_a_machine_are_reported_in_one_go() {
    let text = "kind: machine\nname: m\nscope: step\nstates: [{state_code: odd}]\ntransitions: [{from: x, to: odd, actor_class: a, trigger_ref: t}]\n";
    let found = problems_of(text);
    let missing = found.iter().filter(|problem| problem.code.as_str() == "missing-floor-state").count();
    assert_eq!(missing, 9, "{}", listed(&found));
    for code in ["derived-without-floor", "derived-without-justification", "unknown-state", "bad-value"] {
        assert!(found.iter().any(|problem| problem.code.as_str() == code), "{code}\n{}", listed(&found));
    }
}

#[test]
fn messages_say_what_was_meant() {
    for (line, replacement, expected) in [
        (3, "scope: setp", "`setp` means nothing here; did you mean `step`?"),
        (
            6,
            "  {state_code: b, floor_equivalent: waitng, justification: x}]\ntransitions: []",
            "`waitng` is no state of the floor; did you mean `waiting`?",
        ),
    ] {
        let lines = if line == 6 { 6..=9 } else { line..=line };
        assert_eq!(problems_of(replaced(SOUND, &lines, replacement))[0].message, expected);
    }
}

/// Whoever exports the engine's own machine and gives it another name has declared the floor and nothing else.
#[test]
fn the_floor_verbatim_is_a_machine() {
    for scope in MachineScope::ALL {
        let floor = machine(scope.as_str()).expect("the engine's");
        let mut text = format!("kind: machine\nname: mine\nscope: {}\nstates:\n", scope.as_str());
        for state in &floor.states {
            text += &format!(
                "  - {{state_code: {}, semantic_class: {}, ui_color_token: {}, is_terminal: {}}}\n",
                state.code, state.semantic_class, state.ui_color_token, state.is_terminal
            );
        }
        text += "transitions:\n";
        for row in &floor.transitions {
            text += &format!(
                "  - {{id: {}, from_state: {}, to_state: {}, actor_class: {}, trigger_kind: {}, trigger_ref: {}, audit_required: {}}}\n",
                row.id, row.from, row.to, row.actor_class, row.trigger_kind, row.trigger_ref, row.audit_required
            );
        }
        let machine = own(&text);
        assert_eq!((machine.states.len(), machine.transitions.len()), (0, 0), "{}", scope.as_str());
    }
}

#[test]
fn a_task_has_its_own_person_in_charge() {
    let text = SOUND.replace("scope: step", "scope: task").replace("pic_human", "task_pic_human");
    assert_eq!(own(&text).transitions[0].actor, ActorClass::TaskPicHuman);
}

/// Of a run nothing fires a transition of one's own: it can be proposed.
#[test]
fn a_run_machine_can_be_declared() {
    let floor = machine("workflow_run").expect("the engine's");
    let states: Vec<&str> = floor.states.iter().filter(|s| !s.is_derived).map(|s| s.code.as_str()).collect();
    let document = |proposed: bool| {
        format!(
            "kind: machine\nname: m\nscope: workflow_run\nstates: [{}, {{state_code: on_hold, floor_equivalent: blocked, justification: x}}]\n\
             transitions: [{{from: blocked, to: on_hold, actor_class: reviewer, trigger_kind: rpc, trigger_ref: hold, proposed: {proposed}}}]\n",
            states.join(", ")
        )
    };
    assert_eq!(own(&document(true)).states[0].floor_equivalent, "blocked");
    assert_eq!(problems_of(document(false))[0].code.as_str(), "never-fires");
}
