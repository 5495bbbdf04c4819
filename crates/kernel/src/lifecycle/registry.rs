//! The state machine registry (seed 003 §2): every machine of the engine, row by row. The rows are laid out from the very
//! tables that `fire_step`, `fire_run` and `fire` ask, so what is shown and exported is what holds.

use super::{
    ActorClass, Guard, ROLLUP_POLICIES, RUN_STATES, RUN_TRANSITIONS, RollupPolicy, RunState, STEP_STATES,
    STEP_TRANSITIONS, SemanticClass, TriggerKind,
};
use crate::machine::{APPROVAL_STEP, ASSIGNMENT, CHAIN, MachineTable};
use std::sync::LazyLock;

/// What runs are started under: the machines of a version never change. A run says in its first record which it pins.
pub const MACHINE_VERSION: &str = "1.0.0";

/// `state_machine_def`, with the rows that belong to it.
pub struct MachineDef {
    pub id: &'static str,
    pub scope: &'static str,
    pub version: &'static str,
    pub active: bool,
    pub description: &'static str,
    pub initial_state: &'static str,
    pub states: Vec<StateRow>,
    pub transitions: Vec<TransitionRow>,
    pub facets: &'static [FacetRow],
    pub rollup_policies: &'static [RollupPolicy],
}

/// `state_def`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateRow {
    pub code: String,
    pub semantic_class: &'static str,
    pub is_terminal: bool,
    pub ordinal: usize,
    pub ui_color_token: &'static str,
    pub ui_icon: &'static str,
    pub ui_icon_token: String,
    pub label_en: &'static str,
    pub label_vi: &'static str,
    pub short_en: &'static str,
    pub short_vi: &'static str,
    pub is_derived: bool,
    pub floor_equivalent: Option<&'static str>,
    pub justification: Option<&'static str>,
}

/// `transition_def`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransitionRow {
    pub id: &'static str,
    pub from: String,
    pub to: String,
    pub actor_class: &'static str,
    pub trigger_kind: &'static str,
    pub trigger_ref: &'static str,
    /// All that is asked of this class, in this order.
    pub guards: Vec<Guard>,
    pub emitted_event_type: Option<String>,
    pub audit_required: bool,
    pub rollback_to: Option<String>,
    pub proposed: bool,
}

/// `state_facet_def`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FacetRow {
    pub state: &'static str,
    pub facet: &'static str,
    pub icon: &'static str,
    pub label_en: &'static str,
    pub label_vi: &'static str,
    /// Of several, the lowest is shown first.
    pub primary_ordinal: u32,
}

const fn facet(
    state: &'static str,
    facet: &'static str,
    icon: &'static str,
    label_en: &'static str,
    label_vi: &'static str,
    primary_ordinal: u32,
) -> FacetRow {
    FacetRow { state, facet, icon, label_en, label_vi, primary_ordinal }
}

/// The four waits, and the two candidates that stayed facets (§4.5).
#[rustfmt::skip]
pub const STEP_FACETS: &[FacetRow] = &[
    facet("waiting", "waiting_dependency", "⛓", "Waiting for a dependency", "Chờ bước phụ thuộc", 10),
    facet("waiting", "waiting_human", "👤", "Waiting for a person", "Chờ con người", 20),
    facet("waiting", "waiting_external", "🌐", "Waiting for somebody outside", "Chờ bên ngoài", 30),
    facet("waiting", "waiting_time_gate", "🕐", "Waiting for its time", "Chờ đến giờ", 40),
    facet("blocked", "escalated", "⇧", "Escalated", "Đã chuyển cấp", 10),
    facet("failed", "retrying", "↻", "Retrying (attempt n/N)", "Đang thử lại (lần n/N)", 10),
    facet("cannot_complete", "escalated", "⇧", "Escalated", "Đã chuyển cấp", 10),
];

/// Every machine of the engine.
pub fn machines() -> &'static [MachineDef] {
    static MACHINES: LazyLock<Vec<MachineDef>> = LazyLock::new(|| {
        vec![
            step_machine("step", "A step of a run: the 9-state floor, two derived states, T1–T12r and X1–X17."),
            task_machine(),
            run_machine(),
            of_table(&APPROVAL_STEP, "approval_step", "One person's decision on a gate."),
            of_table(&ASSIGNMENT, "assignment", "An entry in somebody's in-tray."),
            of_table(&CHAIN, "approval_chain", "A quorum of decisions on one gate."),
            super::proposal::machine(),
            super::replay::machine(),
        ]
    });
    &MACHINES
}

pub fn machine(id: &str) -> Option<&'static MachineDef> {
    machines().iter().find(|machine| machine.id == id)
}

fn step_machine(id: &'static str, description: &'static str) -> MachineDef {
    let states = (1..).zip(STEP_STATES).map(|(ordinal, def)| StateRow {
        code: def.text.to_owned(),
        semantic_class: def.class.as_str(),
        is_terminal: def.terminal,
        ordinal,
        ui_color_token: def.color,
        ui_icon: def.icon,
        ui_icon_token: def.icon_token.to_owned(),
        label_en: def.label,
        label_vi: def.label_vi,
        short_en: def.short,
        short_vi: def.short_vi,
        is_derived: def.floor_equivalent.is_some(),
        floor_equivalent: def.floor_equivalent.map(super::StepCode::as_str),
        justification: def.justification,
    });
    let mut transitions = Vec::new();
    for t in STEP_TRANSITIONS {
        for from in t.from {
            for actor in t.actors {
                transitions.extend(t.triggers.iter().map(|trigger| TransitionRow {
                    id: t.id,
                    from: from.as_str().to_owned(),
                    to: t.to.as_str().to_owned(),
                    actor_class: actor.as_str(),
                    trigger_kind: t.trigger_kind.as_str(),
                    trigger_ref: trigger,
                    guards: t.guards_of(*actor).collect(),
                    emitted_event_type: Some(t.emits.to_owned()),
                    audit_required: t.audit_required,
                    rollback_to: t.rollback_to().map(|state| state.as_str().to_owned()),
                    proposed: t.proposed,
                }));
            }
        }
    }
    MachineDef {
        id,
        scope: id,
        version: MACHINE_VERSION,
        active: true,
        description,
        initial_state: "not_started",
        states: states.collect(),
        transitions,
        facets: STEP_FACETS,
        rollup_policies: &[],
    }
}

/// §4.3: the same machine one level down. A task's own person in charge stands beside the step's, and what it emits is a
/// task's.
fn task_machine() -> MachineDef {
    let step = step_machine("task", "A task of a step: the same machine, with the task's own person in charge.");
    let mut transitions = Vec::with_capacity(step.transitions.len());
    for row in step.transitions {
        let emitted = row.emitted_event_type.as_deref().map(|event| event.replacen("step.", "task.", 1));
        let row = TransitionRow { emitted_event_type: emitted, ..row };
        if row.actor_class == ActorClass::PicHuman.as_str() {
            transitions.push(TransitionRow { actor_class: TASK_PIC_HUMAN, ..row.clone() });
        }
        transitions.push(row);
    }
    MachineDef { transitions, ..step }
}

pub const TASK_PIC_HUMAN: &str = "task_pic_human";

fn run_machine() -> MachineDef {
    let states = (1..).zip(RUN_STATES).map(|(ordinal, def)| StateRow {
        code: def.code.as_str().to_owned(),
        semantic_class: def.class.as_str(),
        is_terminal: def.code.is_ended(),
        ordinal,
        ui_color_token: def.color,
        ui_icon: def.icon,
        ui_icon_token: format!("icon.run_{}", def.code),
        label_en: def.label,
        label_vi: def.label_vi,
        short_en: def.label,
        short_vi: def.label_vi,
        is_derived: def.floor_equivalent.is_some(),
        floor_equivalent: def.floor_equivalent,
        justification: def.justification,
    });
    let transitions = RUN_TRANSITIONS.iter().filter_map(|t| {
        let about = t.about()?;
        let back = (t.to == RunState::Paused).then(|| t.from.as_str().to_owned());
        Some(TransitionRow {
            id: t.id,
            from: t.from.as_str().to_owned(),
            to: t.to.as_str().to_owned(),
            actor_class: about.actor.as_str(),
            trigger_kind: about.kind.as_str(),
            trigger_ref: t.trigger,
            guards: about.guards.to_vec(),
            emitted_event_type: Some(t.emits().to_owned()),
            audit_required: about.audit_required,
            rollback_to: back,
            proposed: false,
        })
    });
    MachineDef {
        id: "workflow_run",
        scope: "workflow_run",
        version: MACHINE_VERSION,
        active: true,
        description: "A run: its lifecycle. Its colour is a separate, derived thing (the roll-up).",
        initial_state: RunState::Idle.as_str(),
        states: states.collect(),
        transitions: transitions.collect(),
        facets: &[],
        rollup_policies: ROLLUP_POLICIES,
    }
}

fn of_table(table: &'static MachineTable, id: &'static str, description: &'static str) -> MachineDef {
    let states = (1..).zip(table.states).map(|(ordinal, state)| {
        let terminal = table.terminal_states.contains(state);
        let (class, color, icon) = match *state {
            "Rejected" => (SemanticClass::Red, "ui.traffic_light.red", "✕"),
            "Approved" => (SemanticClass::Active, "ui.traffic_light.green_deep", "✓"),
            _ if terminal => (SemanticClass::Idle, "ui.traffic_light.gray", "○"),
            _ => (SemanticClass::Wait, "ui.traffic_light.yellow", "⏳"),
        };
        StateRow {
            code: (*state).to_owned(),
            semantic_class: class.as_str(),
            is_terminal: terminal,
            ordinal,
            ui_color_token: color,
            ui_icon: icon,
            ui_icon_token: format!("icon.{id}_{}", state.to_lowercase()),
            label_en: state,
            label_vi: state,
            short_en: state,
            short_vi: state,
            is_derived: false,
            floor_equivalent: None,
            justification: None,
        }
    });
    let transitions = table.transitions.iter().map(|(from, action, to, guards)| TransitionRow {
        id: action,
        from: (*from).to_owned(),
        to: (*to).to_owned(),
        // Only the named person decides; what follows from decisions is the engine's.
        actor_class: match *action {
            "approve" | "reject" => ActorClass::Reviewer,
            _ => ActorClass::System,
        }
        .as_str(),
        trigger_kind: TriggerKind::Rpc.as_str(),
        trigger_ref: action,
        guards: guards.to_vec(),
        emitted_event_type: None,
        audit_required: true,
        rollback_to: None,
        proposed: false,
    });
    MachineDef {
        id,
        scope: id,
        version: MACHINE_VERSION,
        active: true,
        description,
        initial_state: table.initial_state,
        states: states.collect(),
        transitions: transitions.collect(),
        facets: &[],
        rollup_policies: &[],
    }
}
