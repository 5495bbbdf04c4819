"""Mutations of what people and operators say with what they do to a step (run.md section 6, *Evidence* and *Escalations*)."""
from __future__ import annotations

from typing import Any

from .kit import Skip
from .runs import add, edit_line, whole


def first(t: Any, action: str, member: str) -> Any:
    for r in t.all(action):
        start = next(x for x in t.all("run_started") if x.head["instance_id"] == r.head["instance_id"])
        if start.body.get("rules", 1) >= 4 and member in r.body:
            whole(t, r)
            return r
    raise Skip(f"no {action} of the fourth edition with {member}")


@add("run-unblocked-without-evidence", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    t.edit(first(t, "step_unblocked", "evidence_ref"), evidence_ref=None)


@add("run-escalated-to-nobody-said", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    t.edit(first(t, "step_escalated", "escalation"), escalation=None)


@add("run-escalated-to-another", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    r = first(t, "step_escalated", "escalation")
    t.edit(r, escalation={**r.body["escalation"], "to": ["somebody-else"]})


@add("run-escalated-in-another-chain", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    r = first(t, "block_escalated", "escalation")
    t.edit(r, escalation={**r.body["escalation"], "escalation_chain_id": r.head["instance_id"] + ".9"})


@add("run-block-escalated-without-review", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    t.edit(first(t, "block_escalated", "approval_id"), approval_id=None)


@add("run-block-red-before-its-time", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    r = first(t, "block_escalated", "severities")
    t.edit(r, severities=[{**x, "cause": "threshold"} for x in r.body["severities"]])


edit_line("run-reengaged-as-an-extension", "T6", "undeclared-transition", "2", ("step_reengaged",), trigger="deadline_extended")
edit_line("run-held-elsewhere", "X17", "undeclared-transition", "2", ("step_reopened",), **{"from": "overdue"})
