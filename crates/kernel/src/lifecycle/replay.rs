//! The machine of requests to replay a dead letter, as the registry shows it: laid out from the table that they move by.

use super::built_in::{Look, states};
use super::registry::{MACHINE_VERSION, MachineDef, TransitionRow};
use super::{ActorClass, Guard, SemanticClass, TriggerKind};
use crate::process::{REPLAY_STATES, REPLAY_TERMINAL, REPLAY_TRANSITIONS};

fn look(state: &str) -> Look {
    match state {
        "requested" => (SemanticClass::Wait, "ui.traffic_light.yellow", "⏳", "Requested", "Đã yêu cầu"),
        "approved" => (SemanticClass::Active, "ui.traffic_light.green", "✓", "Approved", "Đã phê duyệt"),
        "rejected" => (SemanticClass::Red, "ui.traffic_light.red", "✕", "Rejected", "Bị từ chối"),
        _ => (SemanticClass::Idle, "ui.traffic_light.gray", "○", "Withdrawn", "Đã rút lại"),
    }
}

pub fn machine() -> MachineDef {
    let transitions = REPLAY_TRANSITIONS.iter().map(|(from, action, to, guard)| TransitionRow {
        id: action,
        from: (*from).to_owned(),
        to: (*to).to_owned(),
        actor_class: ActorClass::System.as_str(),
        trigger_kind: TriggerKind::Rpc.as_str(),
        trigger_ref: action,
        guards: vec![guard.map_or(Guard::GateDecided, |_| Guard::GateApproved)],
        emitted_event_type: None,
        audit_required: true,
        rollback_to: None,
        proposed: false,
    });
    MachineDef {
        id: "replay_request",
        scope: "replay_request",
        version: MACHINE_VERSION,
        active: true,
        description: "A request to replay a dead letter, which its approval schedules: a process of this declaration.",
        initial_state: REPLAY_STATES[0],
        states: states(REPLAY_STATES, REPLAY_TERMINAL, "replay", look),
        transitions: transitions.collect(),
        facets: &[],
        rollup_policies: &[],
    }
}
