//! The two machines of `spec/run.md`, sections 4 and 5, as tables.

pub struct StepRow {
    pub id: &'static str,
    from: &'static [&'static str],
    to: &'static str,
    classes: &'static [&'static str],
    triggers: &'static [&'static str],
}

const fn step(
    id: &'static str,
    from: &'static [&'static str],
    to: &'static str,
    classes: &'static [&'static str],
    triggers: &'static [&'static str],
) -> StepRow {
    StepRow { id, from, to, classes, triggers }
}

const AT_WORK: &[&str] = &["in_progress", "overdue"];
const PASSED_OVER: &[&str] = &["not_started", "ready", "waiting", "blocked", "failed"];
const OPEN: &[&str] =
    &["not_started", "ready", "in_progress", "waiting", "blocked", "overdue", "failed", "cannot_complete"];
const UNDER_WAY: &[&str] = &["ready", "in_progress", "overdue", "waiting", "failed"];
const HANDS: &[&str] = &["pic_human", "executor_worker"];
const REOPEN: &[&str] = &["step_reopen_for_correction"];

#[rustfmt::skip]
const STEPS: &[StepRow] = &[
    step("T1", &["not_started"], "ready", &["mow_orchestrator"], &["precondition"]),
    step("T2", &["ready"], "in_progress", HANDS, &["step_claim"]),
    step("T2r", AT_WORK, "ready", &["pic_human"], &["step_release"]),
    step("T3", AT_WORK, "waiting", HANDS, &["step_wait"]),
    step("T3r", &["waiting"], "in_progress", &["system"], &["facet_resolved"]),
    step("T4", AT_WORK, "blocked", HANDS, &["step_block"]),
    step("T4r", &["blocked"], "in_progress", &["system", "pic_human"], &["blocker_resolved"]),
    step("T5", &["in_progress"], "overdue", &["system"], &["deadline_passed"]),
    step("T6", &["overdue"], "in_progress", &["system"], &["deadline_extended"]),
    step("T6", &["overdue"], "in_progress", &["pic_human"], &["step_reengage"]),
    step("T7", &["overdue"], "completed", HANDS, &["step_complete"]),
    step("T8", &["in_progress"], "completed", HANDS, &["step_complete"]),
    step("T8r", &["completed"], "in_progress", &["reviewer"], REOPEN),
    step("T9", &["in_progress", "overdue", "waiting", "blocked"], "failed", &["executor_worker"], &["executor_failure"]),
    step("T10", &["failed"], "in_progress", &["executor_worker"], &["retry_attempt"]),
    step("T11", &["failed"], "cannot_complete", &["escalation_handler"], &["escalate"]),
    step("T12", &["in_progress", "overdue", "blocked", "waiting"], "cannot_complete", HANDS, &["declare_cannot_complete"]),
    step("T12r", &["cannot_complete"], "in_progress", &["reviewer"], REOPEN),
    step("X1", &["waiting"], "ready", &["system"], &["wake_up"]),
    step("X2", AT_WORK, "ready", &["system"], &["lease_expired"]),
    step("X3", &["waiting"], "in_progress", &["executor_worker"], &["waiting_timeout"]),
    step("X4", &["not_started", "ready"], "skipped", &["system"], &["upstream_skipped", "when_false"]),
    step("X5", AT_WORK, "skipped", &["system"], &["on_failure_skip"]),
    step("X12", PASSED_OVER, "skipped", &["system"], &["on_failure_skip"]),
    step("X6", OPEN, "cancelled", &["reviewer"], &["workflow_cancel"]),
    step("X7", &["blocked"], "failed", &["system"], &["blocked_timeout"]),
    step("X8", &["not_started"], "blocked", &["system"], &["gate_opened"]),
    step("X8r", &["blocked"], "ready", &["system"], &["gate_cleared"]),
    step("X9", &["ready", "in_progress", "overdue", "waiting", "blocked", "failed"], "cancelled", &["system"], &["run_aborted"]),
    step("X10", OPEN, "failed", &["system"],
        &["step_timeout", "waiting_timeout", "gate_rejected", "lease_exhausted", "expression_error", "validation"]),
    step("X11", AT_WORK, "ready", &["system"], &["unclaimed"]),
    step("X14", &["ready"], "overdue", &["system"], &["start_deadline_passed"]),
    step("X15", &["overdue"], "in_progress", HANDS, &["step_claim"]),
    step("X16", &["overdue"], "ready", &["system"], &["deadline_extended"]),
    step("X17", &["ready", "overdue"], "not_started", &["system"], &["predecessor_reopened"]),
    step("X13", &["ready", "overdue"], "completed", &["reviewer"], &["effect_declared"]),
    step("U1", UNDER_WAY, "completed", &["reviewer"], &["undo_declared"]),
    step("U2", UNDER_WAY, "cannot_complete", &["reviewer"], &["undo_declared"]),
];

const RUNS: &[(&str, &str, &str, &str)] = &[
    ("R1", "idle", "queued", "started"),
    ("R2", "queued", "executing", "slot_available"),
    ("R3", "executing", "blocked", "input_required"),
    ("R4", "executing", "completed", "all_steps_ended"),
    ("R5", "executing", "failed", "step_failed"),
    ("R5t", "executing", "failed", "workflow_timeout"),
    ("R6", "executing", "compensating", "step_failed"),
    ("R6t", "executing", "compensating", "workflow_timeout"),
    ("R7", "blocked", "executing", "input_received"),
    ("R8", "blocked", "failed", "step_failed"),
    ("R8t", "blocked", "failed", "workflow_timeout"),
    ("R9", "blocked", "compensating", "step_failed"),
    ("R9t", "blocked", "compensating", "workflow_timeout"),
    ("R9e", "blocked", "compensating", "effect_declared"),
    ("R10", "compensating", "completed", "all_compensated"),
    ("R11", "compensating", "failed", "compensation_failed"),
    ("R12", "compensating", "blocked", "effect_unknown"),
    ("P1", "executing", "paused", "workflow_pause"),
    ("P2", "blocked", "paused", "workflow_pause"),
    ("P3", "paused", "executing", "workflow_resume"),
    ("P4", "paused", "blocked", "workflow_resume"),
    ("P5", "queued", "paused", "workflow_pause"),
    ("P6", "paused", "queued", "workflow_resume"),
    ("P7", "paused", "failed", "step_failed"),
    ("P7t", "paused", "failed", "workflow_timeout"),
    ("P8", "paused", "compensating", "step_failed"),
    ("P8t", "paused", "compensating", "workflow_timeout"),
    ("C1", "idle", "cancelled", "workflow_cancel"),
    ("C2", "queued", "cancelled", "workflow_cancel"),
    ("C3", "executing", "cancelled", "workflow_cancel"),
    ("C4", "blocked", "cancelled", "workflow_cancel"),
    ("C5", "paused", "cancelled", "workflow_cancel"),
    ("C6", "stopped", "cancelled", "workflow_cancel"),
    ("C7", "queued", "compensating", "workflow_cancel"),
    ("C8", "executing", "compensating", "workflow_cancel"),
    ("C9", "blocked", "compensating", "workflow_cancel"),
    ("C10", "paused", "compensating", "workflow_cancel"),
    ("C11", "stopped", "compensating", "workflow_cancel"),
    ("C12", "compensating", "cancelled", "all_compensated"),
    ("S1", "executing", "stopped", "workflow_stop"),
    ("S2", "blocked", "stopped", "workflow_stop"),
    ("S3", "paused", "stopped", "workflow_stop"),
    ("S4", "stopped", "executing", "workflow_resume"),
    ("S5", "stopped", "blocked", "workflow_resume"),
    ("S6", "stopped", "failed", "step_failed"),
    ("S7", "stopped", "compensating", "step_failed"),
    ("S8", "executing", "stopped", "lease_expired"),
    ("S9", "blocked", "stopped", "lease_expired"),
    ("S10", "paused", "stopped", "lease_expired"),
    ("S11", "stopped", "queued", "workflow_resume"),
    ("S12", "executing", "stopped", "drift"),
    ("S13", "blocked", "stopped", "drift"),
    ("S14", "executing", "stopped", "soft_cap"),
    ("S15", "blocked", "stopped", "soft_cap"),
    ("S16", "paused", "stopped", "soft_cap"),
    ("S17", "executing", "stopped", "hard_cap"),
    ("S18", "paused", "stopped", "drift"),
    ("S19", "queued", "stopped", "workflow_stop"),
    ("R13", "executing", "completed", "dry_run"),
    ("P9", "compensating", "paused", "workflow_pause"),
    ("P10", "paused", "compensating", "workflow_resume"),
    ("P11", "paused", "failed", "compensation_failed"),
    ("S20", "compensating", "stopped", "workflow_stop"),
    ("S21", "stopped", "compensating", "workflow_resume"),
    ("S22", "stopped", "failed", "compensation_failed"),
    ("V1", "stopped", "voided", "workflow_void"),
    ("V2", "executing", "voided", "workflow_void"),
    ("V3", "blocked", "voided", "workflow_void"),
    ("V4", "paused", "voided", "workflow_void"),
    ("V5", "queued", "voided", "workflow_void"),
    ("V6", "failed", "voided", "workflow_void"),
    ("V7", "cancelled", "voided", "workflow_void"),
];

/// The declared transition of a step, or nothing. The id and the target state are those of the table.
pub fn step_row(id: &str, from: &str, to: &str, class: &str, trigger: &str) -> Option<(&'static str, &'static str)> {
    let fits = |row: &&StepRow| {
        row.id == id
            && row.to == to
            && row.from.contains(&from)
            && row.classes.contains(&class)
            && row.triggers.contains(&trigger)
    };
    STEPS.iter().find(fits).map(|row| (row.id, row.to))
}

/// The declared transition of the run: its target state and its trigger.
pub fn run_row(id: &str, from: &str, to: &str, trigger: &str) -> Option<(&'static str, &'static str)> {
    RUNS.iter().find(|row| **row == (id, from, to, trigger)).map(|row| (row.2, row.3))
}

/// Whether an overdue step may make this transition: where nobody has claimed it yet, what a ready one may, and X16; where
/// somebody is at work on it, what a step in progress may, and T6.
pub fn fits_overdue(id: &str, to: &str, class: &str, trigger: &str, unclaimed: bool) -> bool {
    let (state, recovers) = if unclaimed { ("ready", "X16") } else { ("in_progress", "T6") };
    let fits = |row: &StepRow| {
        row.to == to && row.from.contains(&state) && row.classes.contains(&class) && row.triggers.contains(&trigger)
    };
    id == recovers || STEPS.iter().any(fits)
}

pub fn is_terminal(step: &str) -> bool {
    matches!(step, "completed" | "skipped" | "cancelled")
}

/// Ended, or failed: what depends on it may be looked at.
pub fn is_past(step: &str) -> bool {
    is_terminal(step) || step == "failed"
}

pub fn is_ended(run: &str) -> bool {
    matches!(run, "completed" | "failed" | "cancelled" | "voided")
}
