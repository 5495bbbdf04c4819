"""A run of the fourth edition (record.md section 4): evidence, escalations, re-engaging, and a step that waits again (run.md section 6)."""
from __future__ import annotations

from bundle import Bundle
from honest import World
from runs import TICK, Run, crew, publish

GATES = {label: {"approver_ref": "qp_santos", "scope": f"ward:{label}"} for label in ("reopen", "escalate")}
WARD = {"kind": "workflow", "name": "ward", "order": "linear", "blockedEscalation": {"after": "1m", "reviewAfter": "2s"}, "gate_spec": GATES,
        "steps": [{"name": "look", "run": "human", "pic": "ines"}, {"name": "call", "run": "human", "pic": "ines", "deadline": "5s"}, {"name": "file", "onFailure": "hold"}]}


def ward() -> tuple[World, Bundle]:
    """A block that is escalated at once, one that is reviewed first, a follower that is held, a late step that its person takes up again, and a failure that is escalated and reopened."""
    w = World("run-steps", rules=4)
    a = crew(w)
    ines, worker = a["ines"], a["worker"]
    w.grant(w.admin, ines, "tasks:work", "governance:act")
    publish(w, w.admin, WARD)
    r = Run(w, ines, "ward@1", "ward/3", {"bed": 4}, [(0, "T1")], charges=[{"step_seqs": "0", "pic": "ines"}])
    block = {"body": {"block_reason": "missing_input"}, "block_reason": "missing_input", "errors": [{"step_seq": 0, "attempts": 0}]}
    red = {"severities": [{"step_seq": 0, "severity": "red", "cause": "escalated"}]}

    def to(seq: int) -> dict[str, object]:
        return {"escalation": {"escalation_chain_id": f"{r.id}.{seq}", "to": ["qp_santos"]}}

    def promised() -> list[dict[str, object]]:
        return [{"step_seqs": "1", "pic": "ines", "deadline_us": w.now + TICK + 5_000_000}]

    r.act(ines, 0, "step_claimed", "claim_step", "claim", [(0, "T2*")])
    r.act(ines, 0, "step_blocked", "block_step", "block", [(0, "T4*")], "R3", **block)
    r.act(ines, 0, "block_escalated", "escalate_block", "block-escalate", [], **red, **to(0))
    r.act(ines, 0, "step_unblocked", "unblock_step", "unblock", [(0, "T4r")], "R7", {"evidence_ref": "note-1"}, evidence_ref="note-1")
    r.act(ines, 0, "step_blocked", "block_step", "block", [(0, "T4*")], "R3", **block)
    w.now += 3_000_000
    r.open_alone(ines, "escalate:look")
    r.decide_alone(a["qp"], "escalate:look", "approve", "the ward waits")
    approval = r.bound["escalate:look"]
    r.act(ines, 0, "block_escalated", "escalate_block", "block-escalate", [], body={"approval_id": approval}, before=r.consume("escalate:look"), approval_id=approval, **red, **to(0))
    r.act(ines, 0, "step_unblocked", "unblock_step", "unblock", [(0, "T4r*")], "R7", {"evidence_ref": "note-2"}, evidence_ref="note-2")
    done = r.act(ines, 0, "step_completed", "complete_step", "complete", [(0, "T8*"), (1, "T1")], body={"output": {"seen": 1}}, outputs={0: {"seen": 1}}, charges=promised())
    r.open_alone(ines, "reopen:look")
    r.decide_alone(a["qp"], "reopen:look", "approve", "the wrong bed")
    r.reopen(ines, 0, "T8r", "data_error", done, [(1, "X17")], charges=[{"step_seqs": "1"}])
    r.act(ines, 0, "step_completed", "complete_step", "complete", [(0, "T8*"), (1, "T1")], body={"output": {"seen": 2}}, outputs={0: {"seen": 2}}, charges=promised())
    r.act(ines, 1, "step_claimed", "claim_step", "claim", [(1, "T2*")])
    w.now += 6_000_000
    r.command("time_passed", None, [(1, "T5")], "", [], [])
    r.act(ines, 1, "step_reengaged", "reengage_step", "re-engage", [(1, "T6*")], body={"reason": "back on the ward"}, reason="back on the ward", charges=promised())
    r.act(ines, 1, "step_completed", "complete_step", "complete", [(1, "T8*"), (2, "T1")], body={"output": "called"}, outputs={1: "called"})
    r.claim(worker, 2)
    r.fail(worker, 2, "no paper", False, "agent_error")
    given_up = r.act(ines, 2, "step_escalated", "escalate_step", "escalate", [(2, "T11")], **to(2))
    r.rows[2]["charge"] = dict.fromkeys(("pic", "deadline_us", "overdue_first_at_us", "sla_breach_us", "cycle"))
    r.open_alone(ines, "reopen:file")
    r.decide_alone(a["qp"], "reopen:file", "approve", "there is paper again")
    r.reopen(ines, 2, "T12r", "policy_change", given_up, [(2, "X11")])
    r.claim(worker, 2)
    r.complete(worker, 2, {"filed": True}, run="R4")
    return w, w.export(a["audit"], r, 60)     # type: ignore[arg-type]
