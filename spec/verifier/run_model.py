"""What run.md declares: the tables of steps and runs, and how the fields of a run's record are read."""
from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Optional

Json = Any
AT_WORK = ["in_progress", "overdue"]
PASSED_OVER = ["not_started", "ready", "waiting", "blocked", "failed"]
OPEN = ["not_started", "ready", "in_progress", "waiting", "blocked", "overdue", "failed", "cannot_complete"]
HANDS = ["pic_human", "executor_worker"]
STEP_TABLE = {  # id: (from, to, actor classes, triggers)
    "T1": (["not_started"], "ready", ["mow_orchestrator"], ["precondition"]),
    "T2": (["ready"], "in_progress", HANDS, ["step_claim"]),
    "T2r": (AT_WORK, "ready", ["pic_human"], ["step_release"]),
    "T3": (AT_WORK, "waiting", HANDS, ["step_wait"]),
    "T3r": (["waiting"], "in_progress", ["system"], ["facet_resolved"]),
    "T4": (AT_WORK, "blocked", HANDS, ["step_block"]),
    "T4r": (["blocked"], "in_progress", ["system", "pic_human"], ["blocker_resolved"]),
    "T5": (["in_progress"], "overdue", ["system"], ["deadline_passed"]),
    "T6": (["overdue"], "in_progress", ["system", "pic_human"], ["deadline_extended", "step_reengage"]),
    "T7": (["overdue"], "completed", HANDS, ["step_complete"]),
    "T8": (["in_progress"], "completed", HANDS, ["step_complete"]),
    "T8r": (["completed"], "in_progress", ["reviewer"], ["step_reopen_for_correction"]),
    "T9": (AT_WORK + ["waiting", "blocked"], "failed", ["executor_worker"], ["executor_failure"]),
    "T10": (["failed"], "in_progress", ["executor_worker"], ["retry_attempt"]),
    "T11": (["failed"], "cannot_complete", ["escalation_handler"], ["escalate"]),
    "T12": (AT_WORK + ["blocked", "waiting"], "cannot_complete", HANDS, ["declare_cannot_complete"]),
    "T12r": (["cannot_complete"], "in_progress", ["reviewer"], ["step_reopen_for_correction"]),
    "X1": (["waiting"], "ready", ["system"], ["wake_up"]),
    "X2": (AT_WORK, "ready", ["system"], ["lease_expired"]),
    "X3": (["waiting"], "in_progress", ["executor_worker"], ["waiting_timeout"]),
    "X4": (["not_started", "ready"], "skipped", ["system"], ["upstream_skipped", "when_false"]),
    "X5": (AT_WORK, "skipped", ["system"], ["on_failure_skip"]),
    "X12": (PASSED_OVER, "skipped", ["system"], ["on_failure_skip"]),
    "X6": (OPEN, "cancelled", ["reviewer"], ["workflow_cancel"]),
    "X7": (["blocked"], "failed", ["system"], ["blocked_timeout"]),
    "X8": (["not_started"], "blocked", ["system"], ["gate_opened"]),
    "X8r": (["blocked"], "ready", ["system"], ["gate_cleared"]),
    "X9": (["ready", *AT_WORK, "waiting", "blocked", "failed"], "cancelled", ["system"], ["run_aborted"]),
    "X10": (OPEN, "failed", ["system"], ["step_timeout", "waiting_timeout", "gate_rejected", "lease_exhausted", "expression_error", "validation"]),
    "X11": (AT_WORK, "ready", ["system"], ["unclaimed"]),
    "X14": (["ready"], "overdue", ["system"], ["start_deadline_passed"]),
    "X15": (["overdue"], "in_progress", HANDS, ["step_claim"]),
    "X16": (["overdue"], "ready", ["system"], ["deadline_extended"]),
    "X17": (["ready", "overdue"], "not_started", ["system"], ["predecessor_reopened"]),
    "X13": (["ready", "overdue"], "completed", ["reviewer"], ["effect_declared"]),
    "U1": (["ready", *AT_WORK, "waiting", "failed"], "completed", ["reviewer"], ["undo_declared"]),
    "U2": (["ready", *AT_WORK, "waiting", "failed"], "cannot_complete", ["reviewer"], ["undo_declared"])}
RUN_TABLE = {line.split()[0]: tuple(line.split()[1:]) for line in """
R1 idle queued started
R2 queued executing slot_available
R3 executing blocked input_required
R4 executing completed all_steps_ended
R5 executing failed step_failed
R5t executing failed workflow_timeout
R6 executing compensating step_failed
R6t executing compensating workflow_timeout
R7 blocked executing input_received
R8 blocked failed step_failed
R8t blocked failed workflow_timeout
R9 blocked compensating step_failed
R9t blocked compensating workflow_timeout
R9e blocked compensating effect_declared
R10 compensating completed all_compensated
R11 compensating failed compensation_failed
R12 compensating blocked effect_unknown
P1 executing paused workflow_pause
P2 blocked paused workflow_pause
P3 paused executing workflow_resume
P4 paused blocked workflow_resume
P5 queued paused workflow_pause
P6 paused queued workflow_resume
P7 paused failed step_failed
P7t paused failed workflow_timeout
P8 paused compensating step_failed
P8t paused compensating workflow_timeout
C1 idle cancelled workflow_cancel
C2 queued cancelled workflow_cancel
C3 executing cancelled workflow_cancel
C4 blocked cancelled workflow_cancel
C5 paused cancelled workflow_cancel
C6 stopped cancelled workflow_cancel
C7 queued compensating workflow_cancel
C8 executing compensating workflow_cancel
C9 blocked compensating workflow_cancel
C10 paused compensating workflow_cancel
C11 stopped compensating workflow_cancel
C12 compensating cancelled all_compensated
S1 executing stopped workflow_stop
S2 blocked stopped workflow_stop
S3 paused stopped workflow_stop
S4 stopped executing workflow_resume
S5 stopped blocked workflow_resume
S6 stopped failed step_failed
S7 stopped compensating step_failed
S8 executing stopped lease_expired
S9 blocked stopped lease_expired
S10 paused stopped lease_expired
S11 stopped queued workflow_resume
S12 executing stopped drift
S13 blocked stopped drift
S14 executing stopped soft_cap
S15 blocked stopped soft_cap
S16 paused stopped soft_cap
S17 executing stopped hard_cap
S18 paused stopped drift
S19 queued stopped workflow_stop
R13 executing completed dry_run
V1 stopped voided workflow_void
V2 executing voided workflow_void
V3 blocked voided workflow_void
V4 paused voided workflow_void
V5 queued voided workflow_void
V6 failed voided workflow_void
V7 cancelled voided workflow_void
P9 compensating paused workflow_pause
P10 paused compensating workflow_resume
P11 paused failed compensation_failed
S20 compensating stopped workflow_stop
S21 stopped compensating workflow_resume
S22 stopped failed compensation_failed""".strip().split("\n")}


def fits_overdue(tid: str, to: str, cls: str, trigger: str, unclaimed: bool) -> bool:
    """Whether an overdue step may make it: where nobody has claimed it yet, what a ready one may; else what one in progress may."""
    state, recovers = ("ready", "X16") if unclaimed else ("in_progress", "T6")
    return tid == recovers or any(state in f and t == to and cls in a and trigger in g for f, t, a, g in STEP_TABLE.values())


ENDED = ("completed", "failed", "cancelled", "voided")
PAST = ("completed", "skipped", "cancelled", "failed")
TASK_PAST = PAST + ("cannot_complete",)
OWN_TRIGGERS = {"workflow_cancel": "run_cancelled", "workflow_pause": "run_paused", "workflow_resume": "run_resumed", "workflow_stop": "run_stopped",
                "workflow_void": "run_voided", "effect_declared": "effect_declared", "lease_expired": "time_passed", "started": "run_started",
                "soft_cap": "time_passed", "hard_cap": "time_passed", "drift": "pins_surveyed"}
RECORD_OF = {"T9": ("step_retried", "step_failed", "child_ended"), "T4r": ("step_unblocked",), "X6": ("run_cancelled", "run_voided"), "T2r": ("step_released",),
             "X14": ("time_passed",), "X16": ("deadline_extended",), "X17": ("step_reopened",), "T8r": ("step_reopened",), "T12r": ("step_reopened",), "T11": ("step_escalated",), "T12": ("step_cannot_complete",)}
FACETS = ("waiting_dependency", "waiting_human", "waiting_external", "waiting_time_gate")
CAUSES = ("threshold", "critical_path", "deadline", "escalated")
REASONS = ("data_error", "policy_change", "downstream_dependency_failed", "regulatory_recall")
ACTS = {"step_claimed": ("claim_step", "claim"), "step_released": ("release_step", "release"), "step_blocked": ("block_step", "block"),
        "step_unblocked": ("unblock_step", "unblock"), "step_cannot_complete": ("cannot_complete_step", "cannot-complete"), "step_escalated": ("escalate_step", "escalate"),
        "step_retry_ordered": ("retry_step", "retry"), "block_escalated": ("escalate_block", "block-escalate"), "step_reopened": ("reopen_step", "reopen"),
        "deadline_extended": ("extend_deadline", "extend-deadline"), "step_reengaged": ("reengage_step", "re-engage"), "step_completed": ("complete_step", "complete"), "step_waiting": ("wait_step", "wait"),
        "effect_declared": ("declare_effect", "declare-effect")}

_ANY = "instance_id:text reason?:text"
PAYLOADS = {
    "run_started": "instance_id:text definition:text document_digest:hex declaration_digest:hex gate_spec_digest:hex subject_ref:text steps:int priority:int rules?:int origin?:object run_transitions:list",
    **{a: _ANY for a in ("run_dispatched", "steps_claimed", "step_completed", "step_waiting", "step_retried", "step_failed", "child_started", "child_waiting", "child_resumed", "child_ended", "time_passed",
                         "gate_followed", "run_cancelled", "run_paused", "run_resumed", "run_stopped", "run_voided", "step_unblocked", "step_claimed", "step_released", "step_blocked", "step_cannot_complete", "step_escalated",
                         "step_retry_ordered", "block_escalated", "step_reopened", "deadline_extended", "step_reengaged", "step_transitioned", "step_yielded", "pins_captured", "pins_surveyed")},
    "compensations_listed": "instance_id:text compensations:list", "event_received": "instance_id:text event:object", "effect_declared": "instance_id:text effect:object reason:text"}
APPLICATION_ONLY = {"run_dispatched", "child_waiting", "child_resumed", "child_ended", "time_passed", "gate_followed", "compensations_listed"}
SCOPES = {"run_started": "runs:start", **{a: "tasks:work" for a in ("steps_claimed", "step_completed", "step_waiting", "step_retried", "step_failed", "child_started", "step_claimed", "step_released",
                                                                         "step_blocked", "step_cannot_complete", "step_reengaged", "step_transitioned", "step_yielded", "pins_captured", "pins_surveyed")}, "step_escalated": "governance:act",
          **{a: "runs:control" for a in ("run_cancelled", "run_paused", "run_resumed", "run_stopped", "run_voided", "step_unblocked", "effect_declared", "step_retry_ordered",
                                             "block_escalated", "step_reopened", "deadline_extended")}}
CLASS_SCOPES = {"reviewer": "runs:control", "escalation_handler": "governance:act"}   # of a transition of one's own; else tasks:work
ENGINES = ("step", "task", "workflow_run")
OWN_WORK = {"run_started", "steps_claimed", "step_completed", "step_waiting", "step_retried", "step_failed", "child_started", "step_yielded", "pins_captured", "pins_surveyed"}    # the engine needs no scope for these
INSTEAD = {"step_unblocked": "tasks:work", "block_escalated": "governance:act"}
SHARED = ("dispatch_run", "claim", "receive_event", "merge_proposal")
STATE = ("document_digest:hex state:text outcome:text? priority:int start_at_us:int? executing_since_us:int? completed_at_us:int? failed_at_us:int? last_error:text? input:text? "
         "input_digest:hex output:text? output_digest:hex? correlation_key:text? concurrency_key:text? corrects:text? continues:text? parent_run_id:text? parent_step_seq:int? machine_digest?:hex steps:list")
STATE_STEP = ("step_seq:int name:text compensates:int? state:text attempts:int started_at_us:int? completed_at_us:int? last_error:text? error_category:text? effect_unknown:bool "
              "child_run_id:text? output:text? output_digest:hex? charge?:object derived_state?:text")
CHARGE = ("pic", "deadline_us", "start_by_us", "overdue_first_at_us", "sla_breach_us", "cycle")


class Malformed(Exception):
    """The payload is not that of a run's record."""


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def same(a: Json, b: Json) -> bool:
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


def need(value: Json, kind: type, what: str) -> Any:
    if type(value) is not kind:
        raise Malformed(f"{what} is not {kind.__name__}")
    return value


def ranges(text: Json, limit: int) -> list[int]:
    """`0-3,7`: ascending, apart, and below `limit`."""
    out: list[int] = []
    for part in need(text, str, "a range").split(",") if text else []:
        if not re.fullmatch(r"(0|[1-9][0-9]{0,9})(-(0|[1-9][0-9]{0,9}))?", part):
            raise Malformed(f"{text[:40]!r} are no ranges")
        first, _, last = part.partition("-")
        a, b = int(first), int(last or first)
        if a > b or out and a <= out[-1]:
            raise Malformed(f"{text[:40]!r} are not ascending")
        if b >= limit:
            raise IndexError(b)
        out.extend(range(a, b + 1))
    return out


def told(holder: dict[str, Json], name: str) -> Optional[tuple[str, Json]]:
    """("value", it) or ("digest", hex), or None."""
    inline, digest = name in holder, name + "_digest" in holder
    if inline and digest:
        raise Malformed(f"{name} stands there twice")
    if digest:
        need(holder.get(name + "_bytes"), int, name + "_bytes")
        if not re.fullmatch(r"[0-9a-f]{64}", need(holder[name + "_digest"], str, name)):
            raise Malformed(f"{name}_digest is none")
        return "digest", holder[name + "_digest"]
    return ("value", holder[name]) if inline else None


def handed(entry: dict[str, Json]) -> tuple[str, Json]:
    """What a claimed step was handed: ("run", True) for the run's own input, else as `told`."""
    own = told(entry, "input")
    if (own is None) != ("run_input" in entry) or own is None and entry["run_input"] is not True:
        raise Malformed("an input is the run's, or a value, or a digest")
    return own or ("run", True)


def items(p: dict[str, Json], name: str) -> list[Json]:
    return need(p.get(name, []), list, name)


def shared(p: dict[str, Json], name: str, limit: int) -> list[tuple[int, dict[str, Json]]]:
    """The entries of a list, one for each step of it: those that share one have `step_seqs`."""
    out: list[tuple[int, dict[str, Json]]] = []
    for entry in items(p, name):
        need(entry, dict, name)
        if "step_seqs" not in entry:
            out.append((need(entry.get("step_seq"), int, "step_seq"), entry))
            continue
        try:
            seqs = ranges(entry["step_seqs"], limit)
        except IndexError as e:
            raise Malformed(f"{name} of a step that the run does not have") from e
        if not seqs:
            raise Malformed(f"{name} of no step")
        out.extend((seq, entry) for seq in seqs)
    return out
