//! The run's lifecycle. What seed 004 calls an invalid transition is simply not declared.

use super::guard::Guard;
use super::{ActorClass, SemanticClass, TriggerKind};
use std::fmt;

macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($state:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($state,)* }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$state,)*];

            pub const fn as_str(self) -> &'static str {
                match self { $($name::$state => $text,)* }
            }

            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some($name::$state),)* _ => None }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

named!(RunState {
    Idle = "idle",
    Queued = "queued",
    Executing = "executing",
    Blocked = "blocked",
    Paused = "paused",
    Stopped = "stopped",
    Compensating = "compensating",
    Completed = "completed",
    Failed = "failed",
    Cancelled = "cancelled",
    Voided = "voided",
});

named!(
    /// How a run ended, where its state does not say it all, or why it stands still.
    Outcome {
        RolledBack = "rolled_back",
        Partial = "partial",
        EffectUnknown = "effect_unknown",
        Timeout = "timeout",
        Drift = "drift",
        SoftCap = "soft_cap",
        HardCap = "hard_cap",
        LeaseExpired = "lease_expired",
        Operator = "operator",
        DryRun = "dry_run",
    }
);

impl RunState {
    pub const fn is_ended(self) -> bool {
        matches!(self, RunState::Completed | RunState::Failed | RunState::Cancelled | RunState::Voided)
    }

    /// Seed 001's word for it.
    pub const fn linear(self) -> &'static str {
        match self {
            RunState::Idle
            | RunState::Queued
            | RunState::Executing
            | RunState::Blocked
            | RunState::Paused
            | RunState::Stopped
            | RunState::Compensating => "RUNNING",
            RunState::Completed => "COMPLETED",
            RunState::Failed => "FAILED",
            RunState::Cancelled | RunState::Voided => "CANCELED",
        }
    }
}

/// How a run's state looks and counts.
pub struct RunStateDef {
    pub code: RunState,
    pub class: SemanticClass,
    pub color: &'static str,
    pub icon: &'static str,
    pub label: &'static str,
    pub label_vi: &'static str,
    /// The state of the floor that stands for it, where it is none of them.
    pub floor_equivalent: Option<&'static str>,
    pub justification: Option<&'static str>,
}

const fn state(
    code: RunState,
    class: SemanticClass,
    color: &'static str,
    icon: &'static str,
    label: &'static str,
    label_vi: &'static str,
    derived: Option<(&'static str, &'static str)>,
) -> RunStateDef {
    let (floor_equivalent, justification) = match derived {
        Some((floor, why)) => (Some(floor), Some(why)),
        None => (None, None),
    };
    RunStateDef { code, class, color, icon, label, label_vi, floor_equivalent, justification }
}

/// In the order of the enum.
#[rustfmt::skip]
pub const RUN_STATES: &[RunStateDef] = &[
    state(Idle, SemanticClass::Idle, "ui.traffic_light.gray", "○", "Idle", "Chưa chạy",
        Some(("not_started", "Seed 004 calls a run that waits for its trigger idle."))),
    state(Queued, SemanticClass::Active, "ui.traffic_light.green_pale", "▶", "Queued", "Chờ lượt",
        Some(("ready", "A run that was started waits for a slot or for its time."))),
    state(Executing, SemanticClass::Active, "ui.traffic_light.green", "►", "Executing", "Đang chạy",
        Some(("in_progress", "Seed 004's word for it."))),
    state(Blocked, SemanticClass::Wait, "ui.traffic_light.yellow_dark", "⚠", "Blocked", "Bị chặn", None),
    state(Paused, SemanticClass::Wait, "ui.traffic_light.yellow_dark", "⏸", "Paused", "Tạm dừng",
        Some(("waiting", "Long runs need a pause that governance decides, apart from blocked and waiting."))),
    state(Stopped, SemanticClass::Wait, "ui.traffic_light.yellow_dark", "⏹", "Stopped", "Đã dừng",
        Some(("blocked", "A runbook that finds anything not as it should be stands still until it is resumed by approval."))),
    state(Compensating, SemanticClass::Red, "ui.traffic_light.red", "↩", "Compensating", "Đang hoàn tác",
        Some(("failed", "A run that failed, or was called off, undoes what it has done."))),
    state(Completed, SemanticClass::Active, "ui.traffic_light.green_deep", "✓", "Completed", "Hoàn thành", None),
    state(Failed, SemanticClass::Red, "ui.traffic_light.red", "✕", "Failed", "Thất bại", None),
    state(Cancelled, SemanticClass::Red, "ui.traffic_light.red_dark", "⊘", "Cancelled", "Đã hủy",
        Some(("cannot_complete", "cannot_complete is one actor's declaration; cancelled is a decision about the whole run."))),
    state(Voided, SemanticClass::Red, "ui.traffic_light.red_dark", "⌀", "Voided", "Vô hiệu",
        Some(("cannot_complete", "A run that never should have been is told apart from one that was called off."))),
];

/// What stands behind a trigger of the run: who pulls it, how, and what must hold.
pub struct RunTrigger {
    pub name: &'static str,
    pub actor: ActorClass,
    pub kind: TriggerKind,
    /// In the order in which they are asked.
    pub guards: &'static [Guard],
    pub audit_required: bool,
}

const fn trigger(
    name: &'static str,
    actor: ActorClass,
    kind: TriggerKind,
    guards: &'static [Guard],
    audit_required: bool,
) -> RunTrigger {
    RunTrigger { name, actor, kind, guards, audit_required }
}

#[rustfmt::skip]
pub const RUN_TRIGGERS: &[RunTrigger] = &[
    trigger("started", ActorClass::MowOrchestrator, TriggerKind::Rpc, &[Guard::InputContract], true),
    trigger("slot_available", ActorClass::MowOrchestrator, TriggerKind::ConditionResolved, &[Guard::SlotFree], true),
    trigger("input_required", ActorClass::System, TriggerKind::Event, &[], true),
    trigger("input_received", ActorClass::System, TriggerKind::Event, &[], true),
    trigger("all_steps_ended", ActorClass::System, TriggerKind::ConditionResolved, &[Guard::AllCompleted], true),
    trigger("step_failed", ActorClass::System, TriggerKind::Event, &[Guard::FailurePolicy], true),
    trigger("workflow_timeout", ActorClass::System, TriggerKind::Timer, &[Guard::TimeoutPassed], true),
    trigger("effect_declared", ActorClass::Reviewer, TriggerKind::Rpc, &[Guard::EffectUnknown], true),
    trigger("all_compensated", ActorClass::System, TriggerKind::ConditionResolved, &[], true),
    trigger("compensation_failed", ActorClass::System, TriggerKind::Event, &[Guard::FailurePolicy], true),
    trigger("effect_unknown", ActorClass::System, TriggerKind::ConditionResolved, &[], true),
    trigger("workflow_pause", ActorClass::Reviewer, TriggerKind::Rpc, &[Guard::EffectsKnown], true),
    trigger("workflow_resume", ActorClass::Reviewer, TriggerKind::Rpc, &[Guard::ApprovalPresent, Guard::EffectsKnown], true),
    trigger("workflow_cancel", ActorClass::Reviewer, TriggerKind::Rpc, &[Guard::EffectsKnown, Guard::ApprovalPresent], true),
    trigger("workflow_stop", ActorClass::Reviewer, TriggerKind::Rpc, &[Guard::EffectsKnown], true),
    trigger("lease_expired", ActorClass::System, TriggerKind::Timer, &[Guard::FailurePolicy], true),
    trigger("workflow_void", ActorClass::Reviewer, TriggerKind::Rpc, &[Guard::ApprovalPresent], true),
    trigger("drift", ActorClass::System, TriggerKind::ConditionResolved, &[Guard::PinsDiffer], true),
    trigger("soft_cap", ActorClass::System, TriggerKind::Timer, &[Guard::CapReached], true),
    trigger("hard_cap", ActorClass::System, TriggerKind::Timer, &[Guard::CapReached], true),
    trigger("dry_run", ActorClass::System, TriggerKind::ConditionResolved, &[], true),
];

impl RunTransition {
    pub fn about(&self) -> Option<&'static RunTrigger> {
        RUN_TRIGGERS.iter().find(|row| row.name == self.trigger)
    }

    pub const fn emits(&self) -> &'static str {
        match self.to {
            Idle => "run.idle",
            Queued => "run.queued",
            Executing => "run.executing",
            Blocked => "run.blocked",
            Paused => "run.paused",
            Stopped => "run.stopped",
            Compensating => "run.compensating",
            Completed => "run.completed",
            Failed => "run.failed",
            Cancelled => "run.cancelled",
            Voided => "run.voided",
        }
    }
}

pub struct RunTransition {
    pub id: &'static str,
    pub from: RunState,
    pub to: RunState,
    pub trigger: &'static str,
}

const fn row(id: &'static str, from: RunState, to: RunState, trigger: &'static str) -> RunTransition {
    RunTransition { id, from, to, trigger }
}

use RunState::{Blocked, Cancelled, Compensating, Completed, Executing, Failed, Idle, Paused, Queued, Stopped, Voided};

/// (id, from, to, trigger). Together with `from` and `to` the trigger is unique.
pub const RUN_TRANSITIONS: &[RunTransition] = &[
    row("R1", Idle, Queued, "started"),
    row("R2", Queued, Executing, "slot_available"),
    row("R3", Executing, Blocked, "input_required"),
    row("R4", Executing, Completed, "all_steps_ended"),
    row("R5", Executing, Failed, "step_failed"),
    row("R5t", Executing, Failed, "workflow_timeout"),
    row("R6", Executing, Compensating, "step_failed"),
    row("R6t", Executing, Compensating, "workflow_timeout"),
    row("R7", Blocked, Executing, "input_received"),
    row("R8", Blocked, Failed, "step_failed"),
    row("R8t", Blocked, Failed, "workflow_timeout"),
    row("R9", Blocked, Compensating, "step_failed"),
    row("R9t", Blocked, Compensating, "workflow_timeout"),
    row("R9e", Blocked, Compensating, "effect_declared"),
    row("R10", Compensating, Completed, "all_compensated"),
    row("R11", Compensating, Failed, "compensation_failed"),
    row("R12", Compensating, Blocked, "effect_unknown"),
    row("P1", Executing, Paused, "workflow_pause"),
    row("P2", Blocked, Paused, "workflow_pause"),
    row("P3", Paused, Executing, "workflow_resume"),
    row("P4", Paused, Blocked, "workflow_resume"),
    row("P5", Queued, Paused, "workflow_pause"),
    row("P6", Paused, Queued, "workflow_resume"),
    row("P7", Paused, Failed, "step_failed"),
    row("P7t", Paused, Failed, "workflow_timeout"),
    row("P8", Paused, Compensating, "step_failed"),
    row("P8t", Paused, Compensating, "workflow_timeout"),
    row("C1", Idle, Cancelled, "workflow_cancel"),
    row("C2", Queued, Cancelled, "workflow_cancel"),
    row("C3", Executing, Cancelled, "workflow_cancel"),
    row("C4", Blocked, Cancelled, "workflow_cancel"),
    row("C5", Paused, Cancelled, "workflow_cancel"),
    row("C6", Stopped, Cancelled, "workflow_cancel"),
    row("C7", Queued, Compensating, "workflow_cancel"),
    row("C8", Executing, Compensating, "workflow_cancel"),
    row("C9", Blocked, Compensating, "workflow_cancel"),
    row("C10", Paused, Compensating, "workflow_cancel"),
    row("C11", Stopped, Compensating, "workflow_cancel"),
    row("C12", Compensating, Cancelled, "all_compensated"),
    row("S1", Executing, Stopped, "workflow_stop"),
    row("S2", Blocked, Stopped, "workflow_stop"),
    row("S3", Paused, Stopped, "workflow_stop"),
    row("S4", Stopped, Executing, "workflow_resume"),
    row("S5", Stopped, Blocked, "workflow_resume"),
    row("S6", Stopped, Failed, "step_failed"),
    row("S7", Stopped, Compensating, "step_failed"),
    row("S8", Executing, Stopped, "lease_expired"),
    row("S9", Blocked, Stopped, "lease_expired"),
    row("S10", Paused, Stopped, "lease_expired"),
    row("S11", Stopped, Queued, "workflow_resume"),
    row("V1", Stopped, Voided, "workflow_void"),
    row("V2", Executing, Voided, "workflow_void"),
    row("V3", Blocked, Voided, "workflow_void"),
    row("V4", Paused, Voided, "workflow_void"),
    row("V5", Queued, Voided, "workflow_void"),
    row("V6", Failed, Voided, "workflow_void"),
    row("V7", Cancelled, Voided, "workflow_void"),
    row("S12", Executing, Stopped, "drift"),
    row("S13", Blocked, Stopped, "drift"),
    row("S14", Executing, Stopped, "soft_cap"),
    row("S15", Blocked, Stopped, "soft_cap"),
    row("S16", Paused, Stopped, "soft_cap"),
    row("S17", Executing, Stopped, "hard_cap"),
    row("S18", Paused, Stopped, "drift"),
    row("S19", Queued, Stopped, "workflow_stop"),
    row("R13", Executing, Completed, "dry_run"),
    row("P9", Compensating, Paused, "workflow_pause"),
    row("P10", Paused, Compensating, "workflow_resume"),
    row("P11", Paused, Failed, "compensation_failed"),
    row("S20", Compensating, Stopped, "workflow_stop"),
    row("S21", Stopped, Compensating, "workflow_resume"),
    row("S22", Stopped, Failed, "compensation_failed"),
];

/// The declared transition, or nothing.
pub fn fire_run(from: RunState, to: RunState, trigger: &str) -> Option<&'static RunTransition> {
    RUN_TRANSITIONS.iter().find(|t| t.from == from && t.to == to && t.trigger == trigger)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seed 004 §1, both tables, word by word.
    #[test]
    fn the_valid_transitions_are_declared_and_the_invalid_ones_are_not() {
        let valid = [
            (Idle, Queued),
            (Queued, Executing),
            (Executing, Blocked),
            (Executing, Completed),
            (Executing, Failed),
            (Executing, Compensating),
            (Blocked, Executing),
            (Blocked, Failed),
            (Compensating, Completed),
            (Compensating, Failed),
        ];
        for (from, to) in valid {
            assert!(RUN_TRANSITIONS.iter().any(|t| t.from == from && t.to == to), "{from} → {to}");
        }
        for t in RUN_TRANSITIONS {
            assert!(!(t.from == Idle && t.to == Executing), "must go through queued");
            // A run that never should have been is voided even where it has ended without success.
            let voids = t.to == Voided && matches!(t.from, Failed | Cancelled);
            assert!(!t.from.is_ended() || voids, "{} leaves the terminal state {}", t.id, t.from);
            assert!(!(t.from == Compensating && t.to == Executing), "cannot resume after compensation starts");
        }
    }

    #[test]
    fn every_state_and_every_trigger_is_described() {
        for (i, def) in RUN_STATES.iter().enumerate() {
            assert_eq!(def.code as usize, i);
            assert_eq!(def.floor_equivalent.is_some(), def.justification.is_some(), "{}", def.code);
        }
        assert_eq!(RUN_STATES.len(), RunState::ALL.len());
        for t in RUN_TRANSITIONS {
            assert!(t.about().is_some(), "{}", t.trigger);
        }
    }

    #[test]
    fn ids_and_keys_are_unique() {
        for (i, a) in RUN_TRANSITIONS.iter().enumerate() {
            for b in &RUN_TRANSITIONS[i + 1..] {
                assert_ne!(a.id, b.id);
                assert!((a.from, a.to, a.trigger) != (b.from, b.to, b.trigger), "{} and {}", a.id, b.id);
            }
        }
    }
}
