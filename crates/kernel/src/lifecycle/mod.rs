//! The lifecycles of a step and of a run, as data. Whatever changes the state of either goes through [`fire`] of the
//! table, which knows who may do what from where, and names the transition.

mod failure;
mod policy;
mod run;
mod step;

pub use failure::{FailureCategory, FailureClass, Response};
pub use policy::{ROLLUP_POLICIES, ROLLUP_POLICY, RollupPolicy};
pub use run::{Outcome, RUN_TRANSITIONS, RunState, RunTransition, fire_run};
pub use step::{STEP_STATES, STEP_TRANSITIONS, SemanticClass, StateDef, StepCode, StepTransition, fire_step};

/// Who causes a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ActorClass {
    System,
    PicHuman,
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

impl TriggerKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            TriggerKind::Event => "event",
            TriggerKind::Rpc => "rpc",
            TriggerKind::Timer => "timer",
            TriggerKind::ConditionResolved => "condition_resolved",
        }
    }
}
