//! The contract's own words, parsed and written again.

use super::*;
use serde_json::{Value, json};

fn round_trip<T: serde::de::DeserializeOwned + Serialize>(value: Value) {
    let typed: T = serde_json::from_value(value.clone()).expect("the contract's JSON");
    assert_eq!(serde_json::to_string(&typed).expect("JSON"), value.to_string());
}

#[test]
fn field_names_are_the_contracts() {
    round_trip::<RegisterActor>(json!({"actor_ref": "a", "kind": "human", "display_name": "A"}));
    round_trip::<GrantRevoked>(json!({"status": "revoked"}));
    round_trip::<GateDecided>(json!({"outcome": "rejected_outcome", "chain_state": "Pending"}));
    round_trip::<GateOpened>(json!({"step_id": "s", "assignment_id": "a"}));
    round_trip::<GateOpened>(
        json!({"chain_id": "c", "steps": [{"step_id": "s", "assignment_id": "a", "approver_ref": "p"}]}),
    );
    round_trip::<Page<ScopeGranted>>(json!({"items": [], "next": null}));
    round_trip::<Problem>(json!({"type": "t", "title": "T", "status": 409, "code": "terminal", "detail": "d"}));
}

#[test]
fn a_declaration_keeps_its_order_and_its_words() {
    round_trip::<StartProcess>(json!({
        "declaration": {
            "states": ["z", "a"],
            "transitions": [{"from": "z", "action": "go", "to": "a", "guard": "G"}, {"from": "z", "action": "by", "to": "a"}],
            "initial_state": "z",
            "terminal_states": ["a"],
        },
        "subject_ref": "s",
        "gate_spec": {"G": {"approvers": ["x", "y"], "quorum": {"rule": "m-of-n", "m": 2}, "scope": "q"}},
    }));
}

#[test]
fn requests_refuse_what_they_do_not_know() {
    let unknown = serde_json::from_value::<FireTransition>(json!({"action": "go", "force": true}));
    assert!(unknown.is_err_and(|error| error.to_string().contains("force")));
    let answer = serde_json::from_value::<ScopeGranted>(json!({"grant_id": "g", "new": 1}));
    assert_eq!(answer.ok(), Some(ScopeGranted { grant_id: "g".into() }));
}

#[test]
fn a_token_does_not_reach_debug_output() {
    let registered = ActorRegistered { actor_ref: "a".into(), token: Some("secret-token".into()) };
    assert!(!format!("{registered:?}").contains("secret-token"));
}
