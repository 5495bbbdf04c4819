//! The lifecycles of a step and of a run, as data. Whatever changes the state of either goes through [`fire`] of the
//! table, which knows who may do what from where, and names the transition.

mod built_in;
mod event;
mod failure;
mod guard;
mod own;
mod policy;
mod proposal;
mod registry;
mod replay;
mod run;
mod step;
mod token;

pub use event::{EVENT_TYPES, EventType, Field, FieldKind, event_type};
pub use failure::{FailureCategory, FailureClass, Response};
pub use guard::{Asked, EVERY_EMITTED, Facts, Guard, STEP_ACTS, evaluate, guards_of, guards_of_act};
pub use own::{MachineScope, OWN_GUARDS, OwnMachine, OwnState, OwnTransition, can_emit, floor_allows, floor_trigger};
pub use policy::{ROLLUP_POLICIES, ROLLUP_POLICY, RollupPolicy};
pub use registry::{FacetRow, MACHINE_VERSION, MachineDef, STEP_FACETS, StateRow, TransitionRow, machine, machines};
pub use run::{
    Outcome, RUN_STATES, RUN_TRANSITIONS, RUN_TRIGGERS, RunState, RunStateDef, RunTransition, RunTrigger, fire_run,
};
pub use step::{
    STEP_STATES, STEP_TRANSITIONS, SemanticClass, StateDef, StepCode, StepTransition, fire_step, fits_overdue,
};
pub use token::{TOKENS, Token};

/// Who causes a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ActorClass {
    System,
    PicHuman,
    /// The person in charge of a task: what `pic_human` may do to a step, they may do to it.
    TaskPicHuman,
    Reviewer,
    ExecutorWorker,
    MowOrchestrator,
    EscalationHandler,
}

impl ActorClass {
    pub const ALL: &'static [ActorClass] = &[
        ActorClass::System,
        ActorClass::PicHuman,
        ActorClass::Reviewer,
        ActorClass::ExecutorWorker,
        ActorClass::MowOrchestrator,
        ActorClass::EscalationHandler,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            ActorClass::System => "system",
            ActorClass::PicHuman => "pic_human",
            ActorClass::TaskPicHuman => registry::TASK_PIC_HUMAN,
            ActorClass::Reviewer => "reviewer",
            ActorClass::ExecutorWorker => "executor_worker",
            ActorClass::MowOrchestrator => "mow_orchestrator",
            ActorClass::EscalationHandler => "escalation_handler",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TriggerKind {
    Event,
    Rpc,
    Timer,
    ConditionResolved,
}

impl SemanticClass {
    pub const ALL: &'static [SemanticClass] =
        &[SemanticClass::Idle, SemanticClass::Active, SemanticClass::Wait, SemanticClass::Red];

    pub const fn as_str(self) -> &'static str {
        match self {
            SemanticClass::Idle => "idle",
            SemanticClass::Active => "active",
            SemanticClass::Wait => "wait",
            SemanticClass::Red => "red",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|class| class.as_str() == text)
    }
}

impl TriggerKind {
    pub const ALL: &'static [TriggerKind] =
        &[TriggerKind::Event, TriggerKind::Rpc, TriggerKind::Timer, TriggerKind::ConditionResolved];

    pub const fn as_str(self) -> &'static str {
        match self {
            TriggerKind::Event => "event",
            TriggerKind::Rpc => "rpc",
            TriggerKind::Timer => "timer",
            TriggerKind::ConditionResolved => "condition_resolved",
        }
    }
}
