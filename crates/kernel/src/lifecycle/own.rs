//! Machines of one's own (seed 003 §2, OD12): the floor as it is, and beside it derived states and transitions that a
//! definition declares. A derived state lies over the state of the floor that it names; the floor's own transitions are
//! neither taken away nor weakened, because a machine has no place to say so.

use super::{
    ActorClass, Guard, MachineDef, STEP_TRANSITIONS, SemanticClass, StepCode, TransitionRow, TriggerKind, event_type,
    machine,
};
use crate::declaration::Declaration;

/// What a machine is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MachineScope {
    Step,
    Task,
    WorkflowRun,
}

impl MachineScope {
    pub const ALL: &'static [MachineScope] = &[MachineScope::Step, MachineScope::Task, MachineScope::WorkflowRun];

    pub const fn as_str(self) -> &'static str {
        match self {
            MachineScope::Step => "step",
            MachineScope::Task => "task",
            MachineScope::WorkflowRun => "workflow_run",
        }
    }

    /// The engine's machine of this scope, which every other one of it contains.
    pub fn floor(self) -> Option<&'static MachineDef> {
        machine(self.as_str())
    }

    /// The person in charge, as machines of this scope call them.
    pub const fn pic(self) -> ActorClass {
        match self {
            MachineScope::Task => ActorClass::TaskPicHuman,
            MachineScope::Step | MachineScope::WorkflowRun => ActorClass::PicHuman,
        }
    }

    /// Whose transitions somebody can ask for. What else moves a step is the engine's or a worker's, by the floor alone.
    pub fn askers(self) -> &'static [ActorClass] {
        use ActorClass::{EscalationHandler, PicHuman, Reviewer, TaskPicHuman};
        match self {
            MachineScope::Step => &[PicHuman, Reviewer, EscalationHandler],
            MachineScope::Task => &[TaskPicHuman, Reviewer, EscalationHandler],
            MachineScope::WorkflowRun => &[],
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnMachine {
    pub name: String,
    pub scope: MachineScope,
    pub description: String,
    /// Those that the floor does not have.
    pub states: Vec<OwnState>,
    /// Those that the floor does not have.
    pub transitions: Vec<OwnTransition>,
}

/// A derived state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnState {
    pub code: String,
    pub floor_equivalent: &'static str,
    pub justification: String,
    pub semantic_class: SemanticClass,
    pub is_terminal: bool,
    pub ordinal: u32,
    pub ui_color_token: &'static str,
    pub ui_icon: String,
    pub ui_icon_token: String,
    pub label_en: String,
    pub label_vi: String,
    pub short_en: String,
    pub short_vi: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnTransition {
    pub id: String,
    pub from: String,
    pub to: String,
    pub actor: ActorClass,
    pub trigger_kind: TriggerKind,
    pub trigger: String,
    pub guard: Option<Guard>,
    pub emits: Option<&'static str>,
    pub audit_required: bool,
    pub rollback_to: Option<String>,
    /// Declared, and inert until it is approved.
    pub proposed: bool,
}

impl OwnMachine {
    /// Its states, for the record of its publication; its document says the rest.
    pub fn declaration(&self) -> Declaration {
        let floor = self.scope.floor();
        let known = floor.map_or(&[][..], |floor| &floor.states);
        let of_floor = known.iter().map(|row| (row.code.clone(), row.is_terminal));
        let all = of_floor.chain(self.states.iter().map(|state| (state.code.clone(), state.is_terminal)));
        let (states, terminal): (Vec<String>, Vec<bool>) = all.unzip();
        Declaration {
            initial_state: floor.map_or_else(String::new, |floor| floor.initial_state.to_owned()),
            terminal_states: states
                .iter()
                .zip(terminal)
                .filter(|(_, ends)| *ends)
                .map(|(code, _)| code.clone())
                .collect(),
            states,
            transitions: vec![],
        }
    }

    pub fn state(&self, code: &str) -> Option<&OwnState> {
        self.states.iter().find(|state| state.code == code)
    }

    /// The state of the engine that this one is, or lies over.
    pub fn floor_of<'m>(&'m self, code: &'m str) -> Option<&'m str> {
        match self.state(code) {
            Some(state) => Some(state.floor_equivalent),
            None => self.scope.floor()?.states.iter().any(|row| row.code == code).then_some(code),
        }
    }

    /// The transitions that are declared between these two states, inert ones included.
    pub fn between<'m>(&'m self, from: &'m str, to: &'m str) -> impl Iterator<Item = &'m OwnTransition> {
        self.transitions.iter().filter(move |t| t.from == from && t.to == to)
    }
}

/// Whether the floor lets this class go from one of its states to another. What undoes a step has no transitions of one's own.
pub fn floor_allows(scope: MachineScope, from: &str, to: &str, actor: ActorClass) -> bool {
    let rows = scope.floor().map_or(&[][..], |floor| &floor.transitions);
    let fits = |row: &&TransitionRow| row.from == from && row.to == to && row.actor_class == actor.as_str();
    rows.iter().filter(fits).any(|row| !row.proposed && row.trigger_ref != "undo_declared")
}

/// By what the floor does that at somebody's request.
pub fn floor_trigger(from: StepCode, to: StepCode, actor: ActorClass) -> Option<&'static str> {
    // A task's person in charge makes the transitions of a step's.
    let actor = if actor == ActorClass::TaskPicHuman { ActorClass::PicHuman } else { actor };
    let declared = STEP_TRANSITIONS.iter().find(|t| t.to == to && t.from.contains(&from) && t.actors.contains(&actor));
    declared?.triggers.iter().copied().find(|trigger| ASKED_FOR.contains(trigger))
}

/// What somebody can ask for in one act on one step, without spending an approval, and which leads where it says. (A claim
/// may find that the step is late, or that its input cannot be worked out.)
const ASKED_FOR: &[&str] = &[
    "step_release",
    "step_wait",
    "step_block",
    "blocker_resolved",
    "step_complete",
    "declare_cannot_complete",
    "escalate",
];

/// The guards that a transition of one's own can have: what they ask is known of any step.
pub const OWN_GUARDS: &[Guard] = &[
    Guard::ActorIsPic,
    Guard::PicResolves,
    Guard::DeclarationEvidence,
    Guard::BlockerEvidence,
    Guard::FacetProof,
    Guard::DeadlinePassed,
];

/// Whether what this event must carry is at hand when a machine of this scope enters a state over that of the floor.
pub fn can_emit(scope: MachineScope, floor_to: &str, event: &str) -> bool {
    let prefix = match scope {
        MachineScope::Step => "step.",
        MachineScope::Task => "task.",
        MachineScope::WorkflowRun => "run.",
    };
    let asks_for_more = event_type(event).is_some_and(|row| row.carries.iter().any(|field| field.required));
    let rows = scope.floor().map_or(&[][..], |floor| &floor.transitions);
    let at_hand = || rows.iter().any(|row| row.to == floor_to && row.emitted_event_type.as_deref() == Some(event));
    event.starts_with(prefix) && (!asks_for_more || at_hand())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_asked_for_and_a_reopening_is_not() {
        use StepCode::{CannotComplete, InProgress, Ready, Waiting};
        assert_eq!(floor_trigger(Ready, InProgress, ActorClass::PicHuman), None, "a claim may come to something else");
        assert_eq!(floor_trigger(InProgress, Waiting, ActorClass::PicHuman), Some("step_wait"));
        assert_eq!(floor_trigger(InProgress, Waiting, ActorClass::TaskPicHuman), Some("step_wait"));
        assert_eq!(floor_trigger(Waiting, InProgress, ActorClass::PicHuman), None, "T3r is the engine's");
        assert_eq!(floor_trigger(CannotComplete, InProgress, ActorClass::Reviewer), None, "it spends an approval");
        assert!(floor_allows(MachineScope::Task, "in_progress", "waiting", ActorClass::TaskPicHuman));
        assert!(!floor_allows(MachineScope::Step, "waiting", "in_progress", ActorClass::PicHuman));
    }

    #[test]
    fn an_event_is_emitted_only_where_what_it_carries_is_known() {
        assert!(can_emit(MachineScope::Step, "waiting", "step.waiting"));
        assert!(!can_emit(MachineScope::Step, "in_progress", "step.waiting"), "it has no facet there");
        assert!(can_emit(MachineScope::Step, "in_progress", "step.resumed"));
        assert!(!can_emit(MachineScope::Step, "in_progress", "task.resumed"));
    }
}
