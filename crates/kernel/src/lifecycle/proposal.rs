//! The machine of proposals, as the registry shows it: laid out from the very table that proposals move by.

use super::built_in::{Look, states};
use super::registry::{MACHINE_VERSION, MachineDef, TransitionRow};
use super::{ActorClass, Guard, SemanticClass, TriggerKind};
use crate::process::{PROPOSAL_STATES, PROPOSAL_TERMINAL, PROPOSAL_TRANSITIONS};

/// Who proposed it.
const PROPOSER: &str = "proposer";

fn look(state: &str) -> Look {
    match state {
        "draft" => (SemanticClass::Idle, "ui.traffic_light.gray", "✎", "Draft", "Bản nháp"),
        "submitted" => (SemanticClass::Wait, "ui.traffic_light.yellow", "⏳", "Submitted", "Đã gửi"),
        "review" => (SemanticClass::Wait, "ui.traffic_light.yellow", "👁", "In review", "Đang xem xét"),
        "approved" => (SemanticClass::Active, "ui.traffic_light.green", "✓", "Approved", "Đã phê duyệt"),
        "merged" => (SemanticClass::Active, "ui.traffic_light.green_deep", "⇥", "Merged", "Đã hợp nhất"),
        "rejected" => (SemanticClass::Red, "ui.traffic_light.red", "✕", "Rejected", "Bị từ chối"),
        _ => (SemanticClass::Idle, "ui.traffic_light.gray", "○", "Withdrawn", "Đã rút lại"),
    }
}

pub fn machine() -> MachineDef {
    let transitions = PROPOSAL_TRANSITIONS.iter().map(|(from, action, to, guard)| {
        let (actor_class, asked) = match *action {
            "edit" | "submit" | "withdraw" => (PROPOSER, Some(Guard::ActorIsProposer)),
            "approve" | "reject" => (ActorClass::System.as_str(), Some(Guard::GateDecided)),
            "merge" => (ActorClass::Reviewer.as_str(), Some(Guard::ActorIsPerson)),
            _ => (ActorClass::Reviewer.as_str(), None),
        };
        TransitionRow {
            id: action,
            from: (*from).to_owned(),
            to: (*to).to_owned(),
            actor_class,
            trigger_kind: TriggerKind::Rpc.as_str(),
            trigger_ref: action,
            guards: guard.map(|_| Guard::GateApproved).or(asked).into_iter().collect(),
            emitted_event_type: None,
            audit_required: true,
            rollback_to: None,
            proposed: false,
        }
    });
    MachineDef {
        id: "proposal",
        scope: "proposal",
        version: MACHINE_VERSION,
        active: true,
        description: "A change that takes effect with its approval: a process of this declaration.",
        initial_state: PROPOSAL_STATES[0],
        states: states(PROPOSAL_STATES, PROPOSAL_TERMINAL, "proposal", look),
        transitions: transitions.collect(),
        facets: &[],
        rollup_policies: &[],
    }
}
