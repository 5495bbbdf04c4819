//! The step's lifecycle: the 9-state floor of seed 003 §3, the two derived states, its transitions T1–T12r, and those
//! that seeds 001 and 004 need besides (X1–X17). Both other vocabularies are derived from it.

use super::guard::{Asked, Guard, all, guards_of, of};
use super::{ActorClass, TriggerKind};
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StepCode {
    NotStarted,
    Ready,
    InProgress,
    Waiting,
    Blocked,
    Overdue,
    Failed,
    CannotComplete,
    Completed,
    Skipped,
    Cancelled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SemanticClass {
    Idle,
    Active,
    Wait,
    Red,
}

/// How a state looks and counts (`state_def`). Its texts are found under the keys `state.<code>.label` and
/// `state.<code>.short`.
pub struct StateDef {
    pub code: StepCode,
    pub text: &'static str,
    pub class: SemanticClass,
    pub terminal: bool,
    /// A derived state declares the state of the floor that stands for it, and why the floor was not enough.
    pub floor_equivalent: Option<StepCode>,
    pub justification: Option<&'static str>,
    pub color: &'static str,
    pub icon: &'static str,
    pub icon_token: &'static str,
    pub label: &'static str,
    pub label_vi: &'static str,
    pub short: &'static str,
    pub short_vi: &'static str,
}

const fn state(
    code: StepCode,
    text: &'static str,
    class: SemanticClass,
    color: &'static str,
    (icon, icon_token): (&'static str, &'static str),
    (label, label_vi): (&'static str, &'static str),
    (short, short_vi): (&'static str, &'static str),
) -> StateDef {
    StateDef {
        code,
        text,
        class,
        terminal: false,
        floor_equivalent: None,
        justification: None,
        color,
        icon,
        icon_token,
        label,
        label_vi,
        short,
        short_vi,
    }
}

use StepCode::{
    Blocked, Cancelled, CannotComplete, Completed, Failed, InProgress, NotStarted, Overdue, Ready, Skipped, Waiting,
};

/// In the order of the enum; the ordinal of a state is its place, counted from 1.
#[rustfmt::skip]
pub const STEP_STATES: &[StateDef] = &[
    state(NotStarted, "not_started", SemanticClass::Idle, "ui.traffic_light.gray", ("○", "icon.circle_hollow"),
        ("Not started", "Chưa tới lượt"), ("Its turn has not come", "Chưa đến lượt thực hiện")),
    state(Ready, "ready", SemanticClass::Active, "ui.traffic_light.green_pale", ("▶", "icon.play_outline"),
        ("Ready", "Sẵn sàng"), ("Waits for somebody to take it", "Chờ người nhận việc")),
    state(InProgress, "in_progress", SemanticClass::Active, "ui.traffic_light.green", ("►", "icon.play_filled"),
        ("In progress", "Đang làm"), ("Somebody is at work on it", "Đang được thực hiện")),
    state(Waiting, "waiting", SemanticClass::Wait, "ui.traffic_light.yellow", ("⏳", "icon.hourglass"),
        ("Waiting", "Đang chờ"), ("Waits for something outside", "Đang chờ bên ngoài")),
    state(Blocked, "blocked", SemanticClass::Wait, "ui.traffic_light.yellow_dark", ("⚠", "icon.warn_filled"),
        ("Blocked", "Bị chặn"), ("Something of our own is missing", "Thiếu điều kiện nội bộ")),
    state(Overdue, "overdue", SemanticClass::Red, "ui.traffic_light.red_pale", ("⏰", "icon.clock_alert"),
        ("Overdue", "Trễ hạn"), ("Past its deadline", "Đã quá hạn")),
    state(Failed, "failed", SemanticClass::Red, "ui.traffic_light.red", ("✕", "icon.cross_filled"),
        ("Failed", "Thất bại"), ("Was tried and failed", "Đã thực hiện và thất bại")),
    state(CannotComplete, "cannot_complete", SemanticClass::Red, "ui.traffic_light.red_dark", ("⛔", "icon.stop_filled"),
        ("Cannot complete", "Không thể hoàn tất"), ("Declared impossible", "Được khai báo là không thể hoàn tất")),
    StateDef {
        terminal: true,
        ..state(Completed, "completed", SemanticClass::Active, "ui.traffic_light.green_deep", ("✓", "icon.check_filled"),
            ("Completed", "Hoàn thành"), ("Done", "Đã xong"))
    },
    StateDef {
        terminal: true,
        floor_equivalent: Some(Completed),
        justification: Some("A branch that is not taken ends without work; it must neither hold anybody up nor roll up."),
        ..state(Skipped, "skipped", SemanticClass::Idle, "ui.traffic_light.gray", ("⤼", "icon.skip"),
            ("Skipped", "Bỏ qua"), ("Not needed on this path", "Không cần trên nhánh này"))
    },
    StateDef {
        terminal: true,
        floor_equivalent: Some(CannotComplete),
        justification: Some("cannot_complete is one actor's declaration; cancelled is a decision about the whole run."),
        ..state(Cancelled, "cancelled", SemanticClass::Red, "ui.traffic_light.red_dark", ("⊘", "icon.cancel_filled"),
            ("Cancelled", "Đã hủy"), ("Called off with its run", "Bị hủy cùng quy trình"))
    },
];

impl StepCode {
    pub fn def(self) -> &'static StateDef {
        &STEP_STATES[self as usize]
    }

    pub fn as_str(self) -> &'static str {
        self.def().text
    }

    pub fn parse(text: &str) -> Option<Self> {
        STEP_STATES.iter().find(|def| def.text == text).map(|def| def.code)
    }

    /// Nothing leaves it while its run lives on as before; `failed` is not one of them.
    pub fn is_terminal(self) -> bool {
        self.def().terminal
    }

    /// Seed 001's word. `failed` depends on whether it will be tried again, `cannot_complete` on whether the run lives.
    pub const fn linear(self, retry_scheduled: bool, run_lives: bool) -> &'static str {
        match self {
            NotStarted => "PENDING",
            Ready => "READY",
            InProgress | Overdue => "RUNNING",
            Waiting | Blocked => "WAITING",
            Failed if retry_scheduled => "READY",
            CannotComplete if run_lives => "WAITING",
            Failed | CannotComplete | Cancelled => "DEAD",
            Completed | Skipped => "DONE",
        }
    }

    /// Seed 004's word.
    pub const fn dag(self, retry_scheduled: bool) -> &'static str {
        match self {
            NotStarted | Ready => "pending",
            InProgress | Waiting | Blocked | Overdue => "running",
            Failed if retry_scheduled => "running",
            Failed | CannotComplete | Cancelled => "failed",
            Completed => "completed",
            Skipped => "skipped",
        }
    }
}

impl fmt::Display for StepCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One declared transition. Its key is (from, to, actor class, trigger).
#[derive(Debug)]
pub struct StepTransition {
    pub id: &'static str,
    pub from: &'static [StepCode],
    pub to: StepCode,
    pub actors: &'static [ActorClass],
    pub trigger_kind: TriggerKind,
    pub triggers: &'static [&'static str],
    /// What must hold besides, by name.
    pub guards: &'static [Asked],
    pub emits: &'static str,
    pub audit_required: bool,
    /// The transition that takes this one back.
    pub rollback: Option<&'static str>,
    /// Declared, and inert until it is approved.
    pub proposed: bool,
}

impl StepTransition {
    /// The state that the rollback leads to.
    pub fn rollback_to(&self) -> Option<StepCode> {
        let id = self.rollback?;
        STEP_TRANSITIONS.iter().find(|t| t.id == id).map(|t| t.to)
    }

    const fn guarded(self, guards: &'static [Asked]) -> StepTransition {
        StepTransition { guards, ..self }
    }

    /// What is asked where this class makes the transition, in this order.
    pub fn guards_of(&self, actor: ActorClass) -> impl Iterator<Item = Guard> {
        guards_of(self.guards, actor)
    }

    const fn taken_back_by(self, id: &'static str) -> StepTransition {
        StepTransition { rollback: Some(id), ..self }
    }
}

#[expect(clippy::too_many_arguments, reason = "a row of the table below, in the order of its columns")]
const fn edge(
    id: &'static str,
    from: &'static [StepCode],
    to: StepCode,
    actors: &'static [ActorClass],
    trigger_kind: TriggerKind,
    triggers: &'static [&'static str],
    emits: &'static str,
    audit_required: bool,
) -> StepTransition {
    StepTransition {
        id,
        from,
        to,
        actors,
        trigger_kind,
        triggers,
        guards: &[],
        emits,
        audit_required,
        rollback: None,
        proposed: false,
    }
}

use ActorClass::{EscalationHandler, ExecutorWorker, MowOrchestrator, PicHuman, Reviewer, System};
use TriggerKind::{ConditionResolved, Event, Rpc, Timer};

const CLAIMANTS: &[ActorClass] = &[PicHuman, ExecutorWorker];
/// Every edge that leaves in_progress also leaves overdue.
const AT_WORK: &[StepCode] = &[InProgress, Overdue];
/// Where a failure may find a step that nobody holds.
const PASSED_OVER: &[StepCode] = &[NotStarted, Ready, Waiting, Blocked, Failed];
/// Where an operator's word may find what undoes a step.
const UNDO_UNDER_WAY: &[StepCode] = &[Ready, InProgress, Overdue, Waiting, Failed];
const NOT_ENDED: &[StepCode] = &[NotStarted, Ready, InProgress, Waiting, Blocked, Overdue, Failed, CannotComplete];

/// What is asked of who begins a step.
const BEGINS: &[Asked] = &[
    of(PicHuman, Guard::PicResolves),
    all(Guard::ExecutorClass),
    of(PicHuman, Guard::RunGoesForward),
    all(Guard::RunHandsOut),
    all(Guard::PinsSurveyed),
];
/// What is asked of who completes one.
const COMPLETES: &[Asked] = &[
    of(PicHuman, Guard::PicResolves),
    all(Guard::TasksCompleted),
    of(PicHuman, Guard::CapReached),
    all(Guard::OutputContract),
    all(Guard::Postcondition),
];
/// And of who does it late.
const COMPLETES_LATE: &[Asked] = &[
    of(PicHuman, Guard::PicResolves),
    all(Guard::TasksCompleted),
    of(PicHuman, Guard::CapReached),
    all(Guard::OutputContract),
    all(Guard::Postcondition),
    all(Guard::CompletedLate),
];
/// What is asked of who reopens one.
const REOPENS: &[Asked] = &[
    all(Guard::RunGoesForward),
    all(Guard::RunHandsOut),
    all(Guard::ExecutorClass),
    all(Guard::CorrectionReason),
    all(Guard::ApprovalPresent),
    all(Guard::PriorAudit),
];

#[rustfmt::skip]
pub const STEP_TRANSITIONS: &[StepTransition] = &[
    edge("T1", &[NotStarted], Ready, &[MowOrchestrator], ConditionResolved, &["precondition"], "step.ready", false).guarded(&[all(Guard::PreconditionConfig)]),
    edge("T2", &[Ready], InProgress, CLAIMANTS, Rpc, &["step_claim"], "step.started", true).guarded(BEGINS).taken_back_by("T2r"),
    edge("T2r", AT_WORK, Ready, &[PicHuman], Rpc, &["step_release"], "step.released", true).guarded(&[all(Guard::PicResolves), all(Guard::ActorIsPic)]),
    edge("T3", AT_WORK, Waiting, CLAIMANTS, Rpc, &["step_wait"], "step.waiting", false).guarded(&[of(PicHuman, Guard::PicResolves), all(Guard::WaitingFacet)]).taken_back_by("T3r"),
    edge("T3r", &[Waiting], InProgress, &[System], Event, &["facet_resolved"], "step.resumed", false).guarded(&[all(Guard::FacetProof)]),
    edge("T4", AT_WORK, Blocked, CLAIMANTS, Rpc, &["step_block"], "step.blocked", true).guarded(&[of(PicHuman, Guard::PicResolves), all(Guard::BlockReason), of(ExecutorWorker, Guard::RunGoesForward)]).taken_back_by("T4r"),
    edge("T4r", &[Blocked], InProgress, &[System, PicHuman], Event, &["blocker_resolved"], "step.unblocked", true).guarded(&[all(Guard::GateCleared), all(Guard::BlockerEvidence)]),
    edge("T5", &[InProgress], Overdue, &[System], Timer, &["deadline_passed"], "step.overdue", false).guarded(&[all(Guard::DeadlinePassed)]),
    edge("T6", &[Overdue], InProgress, &[System], ConditionResolved, &["deadline_extended"], "step.recovered_from_overdue", true).guarded(&[all(Guard::DeadlineUpdated)]),
    edge("T6", &[Overdue], InProgress, &[PicHuman], Rpc, &["step_reengage"], "step.recovered_from_overdue", true).guarded(&[all(Guard::PicResolves), all(Guard::DeadlineUpdated)]),
    edge("T7", &[Overdue], Completed, CLAIMANTS, Rpc, &["step_complete"], "step.completed", true).guarded(COMPLETES_LATE),
    edge("T8", &[InProgress], Completed, CLAIMANTS, Rpc, &["step_complete"], "step.completed", true).guarded(COMPLETES).taken_back_by("T8r"),
    edge("T8r", &[Completed], InProgress, &[Reviewer], Rpc, &["step_reopen_for_correction"], "step.reopened_for_correction", true).guarded(REOPENS),
    edge("T9", &[InProgress, Overdue, Waiting, Blocked], Failed, &[ExecutorWorker], Event, &["executor_failure"], "step.failed", true).guarded(&[all(Guard::FailureClass)]),
    edge("T10", &[Failed], InProgress, &[ExecutorWorker], Event, &["retry_attempt"], "step.retry", false).guarded(&[all(Guard::RetryBudget), all(Guard::RunHandsOut), all(Guard::PinsSurveyed)]),
    edge("T11", &[Failed], CannotComplete, &[EscalationHandler], Rpc, &["escalate"], "step.escalated", true).guarded(&[all(Guard::RunGoesForward), all(Guard::OnFailureHold), all(Guard::RetryBudget)]),
    edge("T12", &[InProgress, Overdue, Blocked, Waiting], CannotComplete, CLAIMANTS, Rpc, &["declare_cannot_complete"], "step.cannot_complete", true).guarded(&[of(PicHuman, Guard::PicResolves), all(Guard::DeclarationEvidence)]).taken_back_by("T12r"),
    edge("T12r", &[CannotComplete], InProgress, &[Reviewer], Rpc, &["step_reopen_for_correction"], "step.reopened_for_correction", true).guarded(REOPENS),
    edge("X1", &[Waiting], Ready, &[System], Event, &["wake_up"], "step.woken", false).guarded(&[all(Guard::EventAwaited)]),
    edge("X2", AT_WORK, Ready, &[System], Timer, &["lease_expired"], "step.lease_expired", false).guarded(&[all(Guard::LeaseOver)]),
    edge("X3", &[Waiting], InProgress, &[ExecutorWorker], Timer, &["waiting_timeout"], "step.started", true).guarded(&[all(Guard::WaitOver), all(Guard::RunHandsOut), all(Guard::PinsSurveyed)]),
    edge("X4", &[NotStarted, Ready], Skipped, &[System], ConditionResolved, &["upstream_skipped", "when_false"], "step.skipped", false).guarded(&[all(Guard::UpstreamOrWhen)]),
    edge("X5", AT_WORK, Skipped, &[System], ConditionResolved, &["on_failure_skip"], "step.skipped", false).guarded(&[all(Guard::OnFailureSkip)]),
    edge("X6", NOT_ENDED, Cancelled, &[Reviewer], Rpc, &["workflow_cancel"], "step.cancelled", true).guarded(&[all(Guard::ApprovalWhereDeclared)]),
    edge("X7", &[Blocked], Failed, &[System], Timer, &["blocked_timeout"], "step.failed", true).guarded(&[all(Guard::TimeoutPassed)]),
    edge("X8", &[NotStarted], Blocked, &[System], Event, &["gate_opened"], "step.blocked", true).guarded(&[all(Guard::GateDeclared)]),
    edge("X8r", &[Blocked], Ready, &[System], Event, &["gate_cleared"], "step.unblocked", true).guarded(&[all(Guard::GateCleared)]),
    edge("X9", &[Ready, InProgress, Waiting, Blocked, Overdue, Failed], Cancelled, &[System], ConditionResolved, &["run_aborted"], "step.cancelled", true).guarded(&[all(Guard::FailurePolicy)]),
    edge("X10", NOT_ENDED, Failed, &[System], ConditionResolved,
        &["step_timeout", "waiting_timeout", "gate_rejected", "lease_exhausted", "expression_error", "validation"], "step.failed", true).guarded(&[all(Guard::EngineVerdict)]),
    edge("X11", AT_WORK, Ready, &[System], ConditionResolved, &["unclaimed"], "step.ready", false).guarded(&[all(Guard::ExecutorClass)]),
    edge("X14", &[Ready], Overdue, &[System], Timer, &["start_deadline_passed"], "step.overdue", false).guarded(&[all(Guard::StartDeadlinePassed)]),
    edge("X15", &[Overdue], InProgress, CLAIMANTS, Rpc, &["step_claim"], "step.started", true).guarded(BEGINS).taken_back_by("T2r"),
    edge("X16", &[Overdue], Ready, &[System], ConditionResolved, &["deadline_extended"], "step.recovered_from_overdue", true).guarded(&[all(Guard::DeadlineUpdated)]),
    edge("X17", &[Ready, Overdue], NotStarted, &[System], ConditionResolved, &["predecessor_reopened"], "step.held", false).guarded(&[all(Guard::PredecessorOpen)]),
    edge("X13", &[Ready, Overdue], Completed, &[Reviewer], Rpc, &["effect_declared"], "step.completed", true).guarded(&[all(Guard::EffectUnknown), all(Guard::OutputContract), all(Guard::Postcondition)]),
    edge("U1", UNDO_UNDER_WAY, Completed, &[Reviewer], Rpc, &["undo_declared"], "step.completed", true).guarded(&[all(Guard::UndoUnderWay)]),
    edge("U2", UNDO_UNDER_WAY, CannotComplete, &[Reviewer], Rpc, &["undo_declared"], "step.cannot_complete", true).guarded(&[all(Guard::UndoUnderWay)]),
    edge("X12", PASSED_OVER, Skipped, &[System], ConditionResolved, &["on_failure_skip"], "step.skipped", false).guarded(&[all(Guard::OnFailureSkip)]),
];

/// The declared transition, or nothing: nothing else changes the state of a step.
pub fn fire_step(from: StepCode, to: StepCode, actor: ActorClass, trigger: &str) -> Option<&'static StepTransition> {
    STEP_TRANSITIONS
        .iter()
        .find(|t| t.to == to && t.from.contains(&from) && t.actors.contains(&actor) && t.triggers.contains(&trigger))
        .filter(|t| !t.proposed)
}

/// What an overdue step does that nobody has claimed yet: what a ready one may, and be ready again (X16). One that is at work
/// does what a step in progress may, and recovers (T6).
pub fn fits_overdue(t: &StepTransition, unclaimed: bool, actor: ActorClass, trigger: &str) -> bool {
    let (as_if, recovers) = if unclaimed { (Ready, "X16") } else { (InProgress, "T6") };
    t.id == recovers || fire_step(as_if, t.to, actor, trigger).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_is_complete_and_every_derived_state_names_its_equivalent() {
        for (i, def) in STEP_STATES.iter().enumerate() {
            assert_eq!(def.code as usize, i);
            assert_eq!(StepCode::parse(def.text), Some(def.code));
            assert_eq!(def.floor_equivalent.is_some(), i >= 9, "{}", def.text);
        }
        let terminal: Vec<&str> = STEP_STATES.iter().filter(|def| def.terminal).map(|def| def.text).collect();
        assert_eq!(terminal, ["completed", "skipped", "cancelled"]);
    }

    #[test]
    fn no_two_transitions_share_a_key() {
        let keys = |t: &'static StepTransition| {
            t.from.iter().flat_map(move |from| {
                t.actors
                    .iter()
                    .flat_map(move |actor| t.triggers.iter().map(move |trigger| (*from, t.to, *actor, *trigger)))
            })
        };
        let mut seen = std::collections::HashSet::new();
        for key in STEP_TRANSITIONS.iter().flat_map(keys) {
            assert!(seen.insert(key), "{key:?} twice");
        }
    }

    #[test]
    fn whatever_leaves_in_progress_leaves_overdue() {
        for t in STEP_TRANSITIONS.iter().filter(|t| t.from.contains(&InProgress) && t.to != Overdue) {
            // T8 is T7 when it is late.
            assert!(t.from.contains(&Overdue) || t.id == "T8", "{}", t.id);
        }
    }

    /// The mapping tables of both other vocabularies.
    #[test]
    fn both_vocabularies() {
        let rows = [
            (NotStarted, "PENDING", "pending"),
            (Ready, "READY", "pending"),
            (InProgress, "RUNNING", "running"),
            (Waiting, "WAITING", "running"),
            (Blocked, "WAITING", "running"),
            (Overdue, "RUNNING", "running"),
            (Failed, "DEAD", "failed"),
            (CannotComplete, "DEAD", "failed"),
            (Completed, "DONE", "completed"),
            (Skipped, "DONE", "skipped"),
            (Cancelled, "DEAD", "failed"),
        ];
        for (code, linear, dag) in rows {
            assert_eq!((code.linear(false, false), code.dag(false)), (linear, dag), "{code}");
        }
        assert_eq!((Failed.linear(true, true), Failed.dag(true)), ("READY", "running"));
        assert_eq!(CannotComplete.linear(false, true), "WAITING");
    }
}
