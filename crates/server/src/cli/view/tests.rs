//! What a person sees, as plain text.

use super::super::output::plain;
use super::*;
use serde_json::{Value, json};

const NOW: &str = "2026-11-15T19:50:30Z";

fn drawn(view: Value) -> String {
    let view: WorkflowView = serde_json::from_value(view).expect("a view");
    plain(&render(&view, NOW.parse().expect("a time")))
}

fn batch(current_state: &str, history: Value, gates: Value) -> Value {
    json!({
        "instance_id": "i-1", "subject_ref": "br-2026-0412", "initiator_ref": "qa_manager",
        "declaration_ref": "batch-release@1",
        "declaration": {
            "states": ["testing", "qp-review", "released", "rejected"],
            "transitions": [
                {"from": "testing", "action": "complete-tests", "to": "qp-review"},
                {"from": "qp-review", "action": "release", "to": "released", "guard": "QP-sign-off"},
                {"from": "qp-review", "action": "reject batch", "to": "rejected", "guard": "QP-rejection"},
                {"from": "qp-review", "action": "retest", "to": "testing"},
            ],
            "initial_state": "testing", "terminal_states": ["released", "rejected"],
        },
        "gate_spec": {}, "started_at": "2026-11-15T18:00:00.000000Z", "current_state": current_state,
        "transition_history": history, "gates": gates,
    })
}

fn fired(n: u64, from: &str, action: &str, to: &str, at: &str, step_id: Option<&str>) -> Value {
    let mut entry = json!({
        "transition_id": format!("t-{n}"), "sequence_number": n, "from_state": from, "action": action, "to_state": to,
        "fired_at": at, "actor_ref": "lab", "event_id": format!("e-{n}"),
    });
    if let Some(step_id) = step_id {
        entry["guard_satisfied"] = json!(true);
        entry["step_id"] = json!(step_id);
    }
    entry
}

fn gate(step_id: &str, approver: &str, state: &str, more: Value) -> Value {
    let mut gate = json!({
        "action": "release", "from_state": "qp-review", "guard": "QP-sign-off", "step_id": step_id, "state": state,
        "approver_ref": approver, "submitter_ref": "qa_manager", "scope": "s", "submitted_at": "2026-11-15T19:47:00.000000Z",
        "assignment": {"assignment_id": "a", "status": "Active"}, "binding": "current", "fate": "unspent",
    });
    if let (Value::Object(gate), Value::Object(more)) = (&mut gate, more) {
        gate.extend(more);
    }
    gate
}

fn decided(by: &str) -> Value {
    json!({"decided_by": by, "decided_at": "2026-11-15T19:48:00.000000Z", "decision_reason": "COA reviewed"})
}

fn in_review() -> Value {
    json!([fired(1, "testing", "complete-tests", "qp-review", "2026-11-15T19:40:00.000000Z", None)])
}

/// Only the last section.
fn next_of(view: Value) -> String {
    drawn(view).split_once("\nNext\n").expect("a last section").1.to_owned()
}

#[test]
fn a_process_that_waits() {
    let view = batch("qp-review", in_review(), json!([gate("s-1", "santos\u{1b}", "Pending", json!({}))]));
    let expected = r"
br-2026-0412 is in qp-review
  process    i-1
  definition batch-release@1
  started    1 h ago · 2026-11-15 18:00:00Z by qa_manager

Path so far
 #  action          from → to            who  when                               record and gate
─────────────────────────────────────────────────────────────────────────────────────────────────
 1  complete-tests  testing → qp-review  lab  10 min ago · 2026-11-15 19:40:00Z  record e-1

Gates
 action   guard        approver      state    when                              reason  step
─────────────────────────────────────────────────────────────────────────────────────────────
 release  QP-sign-off  santos\u{1b}  Pending  3 min ago · 2026-11-15 19:47:00Z          s-1

Next
  release → released, guarded by QP-sign-off: waiting for santos\u{1b}, opened 3 min ago
      countersign gate decide i-1 release approve
  reject batch → rejected, guarded by QP-rejection: its gate is not open
      countersign gate open i-1 'reject batch'
  retest → testing: free to fire
      countersign fire i-1 retest";
    assert_eq!(drawn(view), expected.trim_start());
}

#[test]
fn a_process_that_has_ended() {
    let history = json!([
        fired(1, "testing", "complete-tests", "qp-review", "2026-11-15T19:40:00.000000Z", None),
        fired(2, "qp-review", "release", "released", "2026-11-15T19:50:00.000000Z", Some("s-1")),
    ]);
    let mut used = gate("s-1", "santos", "Approved", decided("santos"));
    used["fate"] = json!("consumed");
    let drawn = drawn(batch("released", history, json!([used])));
    let expected = r"
br-2026-0412 is in released (ended)
  process    i-1
  definition batch-release@1
  started    1 h ago · 2026-11-15 18:00:00Z by qa_manager

Path so far
 #  action          from → to             who  when                               record and gate
──────────────────────────────────────────────────────────────────────────────────────────────────
 1  complete-tests  testing → qp-review   lab  10 min ago · 2026-11-15 19:40:00Z  record e-1
 2  release         qp-review → released  lab  30 s ago · 2026-11-15 19:50:00Z    record e-2
                                                                                  gate   s-1

Gates
 action   guard        approver  state           when                              reason        step
──────────────────────────────────────────────────────────────────────────────────────────────────────
 release  QP-sign-off  santos    Approved, used  2 min ago · 2026-11-15 19:48:00Z  COA reviewed  s-1

Next
  nothing: the process has ended";
    assert_eq!(drawn, expected.trim_start());
}

#[test]
fn the_standing_of_a_gate_says_what_to_do() {
    let withdrawn = json!({"withdrawn_by": "qa_manager", "withdrawn_at": NOW, "withdrawal_reason": "wrong batch"});
    let superseded = json!({"binding": "superseded"});
    for (gates, told) in [
        (json!([]), "its gate is not open\n      countersign gate open i-1 release\n"),
        (json!([gate("s", "a", "Approved", decided("a"))]), "approved by a\n      countersign fire i-1 release\n"),
        (json!([gate("s", "a", "Rejected", decided("a"))]), "rejected by a\n      countersign gate open i-1 release\n"),
        (json!([gate("s", "a", "Withdrawn", withdrawn)]), "withdrawn by qa_manager\n      countersign gate open"),
        (json!([gate("s", "a", "Rejected", superseded)]), "its gate is not open\n"),
    ] {
        let told = format!("  release → released, guarded by QP-sign-off: {told}");
        let next = next_of(batch("qp-review", in_review(), gates));
        assert!(next.starts_with(&told), "{next}");
    }
}

#[test]
fn an_approval_that_was_left_behind_is_spent() {
    let mut left = gate("s", "a", "Approved", decided("a"));
    left["fate"] = json!("mooted");
    let view = batch("qp-review", in_review(), json!([left]));
    assert!(next_of(view.clone()).contains("its approval is spent\n      countersign gate open i-1 release"));
    assert!(drawn(view).contains("Approved, moot"));
}

#[test]
fn a_quorum_shows_how_far_it_is() {
    let chain = of_two("Pending", 1);
    let mut approved = gate("s-1", "a", "Approved", decided("a"));
    approved["chain"] = chain["chain"].clone();
    let gates = json!([approved, gate("s-2", "b", "Pending", chain.clone()), gate("s-3", "c", "Pending", chain)]);
    let drawn = drawn(batch("qp-review", in_review(), gates));
    assert!(drawn.contains("1 of 3 approved, 2 needed, waiting for b, c, opened 3 min ago\n"), "{drawn}");
    let rows = " release  QP-sign-off  a         Approved                            2 min ago · 2026-11-15 19:48:00Z  COA reviewed  s-1
                                 1 of 3 approved, 2 needed: Pending
 release  QP-sign-off  b         Pending                             3 min ago · 2026-11-15 19:47:00Z                s-2\n";
    assert!(drawn.contains(rows), "{drawn}");
}

fn of_two(state: &str, approved: u32) -> Value {
    let rule = json!({"chain_id": "c", "state": state, "rule": "m-of-n", "m": 2, "approved": approved, "needed": 2, "approvers": 3});
    json!({"chain": rule})
}

/// Nothing waits for the third of three, whether it is decided later or never.
#[test]
fn a_decided_quorum_is_over() {
    let recalled = json!({"assignment_id": "a", "status": "Recalled"});
    let mut gates = Vec::new();
    for (step, by) in [("s-1", "a"), ("s-2", "b")] {
        let mut approved = gate(step, by, "Approved", decided(by));
        approved["chain"] = of_two("Approved", 2)["chain"].clone();
        gates.push(approved);
    }
    let mut third = gate("s-3", "c", "Pending", of_two("Approved", 2));
    third["assignment"] = recalled;
    gates.push(third);
    let text = drawn(batch("qp-review", in_review(), json!(gates)));
    assert!(text.contains("2 of 3 approved: Approved\n"), "{text}");
    assert!(text.contains(" release  QP-sign-off  c         Closed, not decided "), "{text}");
    assert!(text.contains("release → released, guarded by QP-sign-off: approved by a, b\n"), "{text}");
    assert!(!text.contains("Pending") && !text.contains("waiting for"), "{text}");

    gates[2]["state"] = json!("Rejected");
    gates[2]["decided_by"] = json!("c");
    gates[2]["trailing"] = json!(true);
    let text = drawn(batch("qp-review", in_review(), json!(gates)));
    assert!(text.contains(" c         Rejected, too late to count "), "{text}");
    assert!(text.contains("2 of 3 approved: Approved\n"), "{text}");
    assert!(text.contains("approved by a, b\n"), "{text}");
}

#[test]
fn a_process_that_has_not_moved() {
    let drawn = drawn(batch("testing", json!([]), json!([])));
    assert!(
        drawn.contains("Path so far\n  nothing has been fired yet\n\nNext\n  complete-tests → qp-review: free"),
        "{drawn}"
    );
}
