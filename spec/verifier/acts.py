"""What people and operators say with what they do to a step (run.md section 6, *Evidence* and *Escalations*), in runs of the fourth edition."""
from __future__ import annotations

from typing import Any, Optional

from .run_model import Json, Malformed, need, shared
from .runbooks import micros

SINCE = 4
RED_AFTER = 4 * 3_600_000_000


def judge(run: Any, r: Any, p: dict[str, Json], acted: Optional[int]) -> None:
    since = run.replay.rules >= SINCE
    step = run.steps[acted] if acted is not None and 0 <= acted < len(run.steps) else None
    evidence = p.get("evidence_ref")
    if evidence is not None:
        need(evidence, str, "evidence_ref")
    if since and r.action in ("step_unblocked", "step_cannot_complete") and evidence is None:
        run.find("undeclared-transition", f"a {r.action} without what shows it", r)
    after, review_after = thresholds(run.document)
    fault = escalation_fault(run, r, p, acted, step, review_after, since)
    if fault:
        run.find("undeclared-transition", f"an escalation: {fault}", r)
    if r.action == "block_escalated" and step is not None:
        step.escalated = True
    for seq, x in shared(p, "severities", len(run.steps)):
        if not since or not 0 <= seq < len(run.steps):
            continue
        s, cause = run.steps[seq], x.get("cause")
        true = {"threshold": s.blocked_since is not None and r.at - s.blocked_since > after, "deadline": s.deadline_us is not None and r.at > s.deadline_us,
                "escalated": s.escalated}.get(cause, True)
        if not true:
            run.find("undeclared-transition", f"the block of step {seq} is red by {cause}, which is not so", r)


def thresholds(document: dict[str, Json]) -> tuple[int, int]:
    """How long a block lasts that is red by the threshold; and one that is escalated without an approval."""
    said = document.get("blockedEscalation") or {}
    after = micros(said.get("after")) or RED_AFTER
    review = micros(said.get("reviewAfter"))
    if review is None:
        review = after // 2 if "escalate" in (document.get("gate_spec") or {}) else after
    return after, review


def escalation_fault(run: Any, r: Any, p: dict[str, Json], acted: Optional[int], step: Any, review_after: int, since: bool) -> Optional[str]:
    said = p.get("escalation")
    label = {"step_escalated": "reopen", "block_escalated": "escalate"}.get(r.action)
    if said is not None:
        need(said, dict, "escalation")
        need(said.get("escalation_chain_id"), str, "escalation_chain_id")
        if any(type(to) is not str for to in need(said.get("to"), list, "to")):
            raise Malformed("to is not a list of texts")
    if label is None:
        return None if said is None else "this record makes none"
    if said is None:
        return "it does not say in which chain and to whom" if since else None
    if step is None:
        return "it does not say of which step"
    if said["escalation_chain_id"] != f"{r.instance}.{acted}":
        return f"its chain is not that of step {acted}"
    entry = run.replay.gate_spec.get(label) or {}
    named = entry.get("approvers") or ([entry["approver_ref"]] if "approver_ref" in entry else [])
    if said["to"] != named:
        return f"the approvers of {label} are {named}"
    lasted = step.blocked_since is not None and r.at - step.blocked_since > review_after
    return "the block has lasted, and nobody has approved it" if label == "escalate" and lasted and p.get("approval_id") is None else None
