"""Evidence bundles of replays (replay.md): dead deliveries that are replayed as their requests were approved."""
from __future__ import annotations

from typing import Any, Optional

from bundle import GOVERNANCE, Bundle, Record, det, dump, sha, uuid7
from honest import Actor, Process, World, Write

DEFINITION = "countersign:replay@1"
DECLARATION = {"states": ["requested", "approved", "rejected", "withdrawn"],
               "transitions": [{"from": "requested", "action": "approve", "to": "approved", "guard": "replay"}, {"from": "requested", "action": "reject", "to": "rejected"},
                               {"from": "requested", "action": "withdraw", "to": "withdrawn"}],
               "initial_state": "requested", "terminal_states": ["approved", "rejected", "withdrawn"]}
BOARD = {"approvers": ["ben", "cleo"], "quorum": {"rule": "one-of-n"}, "scope": "dead-letters:replay"}
ONE = {"approver_ref": "cleo", "scope": "dead-letters:replay"}


class Request(Process):
    """A request to replay a dead letter, with its gate, as the server would keep it."""

    def __init__(self, world: World, by: Actor, letter: str, target: str, entry: dict[str, Any], reason: str):
        w = self.world = world
        self.letter, self.target = letter, target
        content = {"dead_letter_id": letter, "kind": "delivery", "target": target, "payload_digest": sha(b"{}").hex(), "attempts": 12, "reason": reason}
        self.declaration, self.gate_spec = DECLARATION, {"replay": entry}
        self.declaration_digest, self.gate_spec_digest = w.store(DECLARATION), w.store(self.gate_spec)
        self.id, self.definition, self.subject, self.initiator = w.new_id(), DEFINITION, f"dead-letter/{letter}", by.ref
        self.state = "requested"
        self.transitions, self.gates, self.steps, self.assignments, self.bound, self.asked = [], {}, {}, {}, {}, {}
        approvers, quorum = entry.get("approvers") or [entry["approver_ref"]], entry.get("quorum")
        steps = [{"step_id": w.new_id(), "assignment_id": w.new_id(), "approver_ref": a} for a in approvers]
        gate_id = w.new_id() if quorum else steps[0]["step_id"]
        asked = {"request": content, "request_digest": sha(dump(content).encode()).hex()}
        opened = {"instance_id": self.id, "action": "approve", "from_state": "requested", "guard": "replay", "scope": entry["scope"], "submitter_ref": by.ref,
                  "supersedes": None, "reason": reason, **asked}
        writes: list[Write] = [("workflow_started", by, {
            "instance_id": self.id, "subject_ref": self.subject, "initial_state": "requested", "definition": DEFINITION, "declaration_digest": self.declaration_digest,
            "gate_spec_digest": self.gate_spec_digest, "gate_spec_labels": ["replay"], "rules": 3, "reason": reason, "dead_letter": content})]
        if quorum:
            writes.append(("chain_initiated", by, {"instance_id": self.id, "chain_id": gate_id, "action": "approve", "subject_ref": f"{self.subject}:approve", "scope": entry["scope"],
                                                   "initiator_ref": by.ref, "approver_set": approvers, "quorum_rule": quorum["rule"], "m": quorum.get("m"), "steps": steps}))
        writes.append(("gate_opened", by, {**opened, **({"chain_id": gate_id, "steps": steps} if quorum else steps[0])}))
        records = w.command(self.id, writes, "request_replay", path=f"/v1/dead-letters/{letter}/replay-requests", body=dump({"reason": reason}).encode(), expect=False, instance_null=True)
        at = self.started = records[0].head["recorded_at_us"]
        w.now -= 1_370_001      # one transaction
        w.command(GOVERNANCE, [("dlq_replay_requested", None, {"instance_id": GOVERNANCE, "dlq_replay_request_id": self.id, "dead_letter_id": letter, "key": target})])
        self.bound[("requested", "approve")] = gate_id
        self.asked[gate_id] = asked["request_digest"]
        self.gates[gate_id] = {"gate_id": gate_id, "from_state": "requested", "action": "approve", "guard": "replay", "scope": entry["scope"], "opened_at_us": at, "opened_by": by.ref,
                               "rule": quorum["rule"] if quorum else None, "m": quorum.get("m") if quorum else None, "chain_state": "Pending" if quorum else None,
                               "fate": "unspent", "current": True}
        for s in steps:
            self.steps[s["step_id"]] = {"step_id": s["step_id"], "gate_id": gate_id, "action": "approve", "subject_ref": f"{self.subject}:approve", "approver_ref": s["approver_ref"],
                                        "submitter_ref": by.ref, "scope": entry["scope"], "submitted_at_us": at, "state": "Pending", "ended_by": None, "ended_at_us": None,
                                        "ended_reason": None}
            self.assignments[s["assignment_id"]] = {"assignment_id": s["assignment_id"], "task_ref": s["step_id"], "assignee_ref": s["approver_ref"], "assigned_at_us": at,
                                                    "status": "Active", "ended_at_us": None}
        w.processes[self.id] = self

    def answer(self, by: Actor, decision: str = "approve", reason: Optional[str] = None) -> None:
        """A decision, and what the engine makes of it in the same command."""
        w, gate_id = self.world, self.bound[("requested", "approve")]
        gate, command = self.gates[gate_id], w.command

        def with_follow(instance: str, writes: list[Write], *args: Any, **more: Any) -> list[Record]:
            if gate["rule"] is None or any(a == "chain_resolved" for a, _, _ in writes):
                t = self.declared(decision)
                used = {"chain_id" if gate["rule"] else "step_id": gate_id} if decision == "approve" else {}
                writes = [*writes, ("transition_fired", None, {
                    "instance_id": self.id, "action": decision, "from_state": self.state, "new_state": t["to"], "transition_id": w.new_id(),
                    "sequence_number": len(self.transitions) + 1, "guarded": "guard" in t, **used})]
                if decision == "approve":
                    gate["fate"] = "consumed"
            return command(instance, writes, *args, **more)
        w.command = with_follow     # type: ignore[method-assign]
        try:
            records = self.decide(by, "approve", decision, reason)
        finally:
            w.command = command     # type: ignore[method-assign]
        last = records[-1]
        if last.head["action_ref"] == "transition_fired":
            p = last.body
            self.transitions.append({"transition_id": p["transition_id"], "sequence_number": p["sequence_number"], "from_state": p["from_state"], "action": p["action"],
                                     "to_state": p["new_state"], "fired_at_us": last.head["recorded_at_us"], "actor_ref": last.head["actor_ref"], "guard_satisfied": p["guarded"],
                                     "step_id": p.get("step_id"), "chain_id": p.get("chain_id"), "event_id": last.head["event_id"]})
            self.state = p["new_state"]

    def completed(self, outcome: str) -> None:
        """What became of the replay; an arrival resolves the letter."""
        w = self.world
        sequence = len(w.chains[GOVERNANCE]) + 1
        own = uuid7(w.now + 1_370_001, sequence, det(w.name, GOVERNANCE, sequence))
        writes: list[Write] = [("dlq_replay_completed", None, {
            "instance_id": GOVERNANCE, "dlq_replay_request_id": self.id, "approval_id": self.bound[("requested", "approve")], "dead_letter_id": self.letter, "outcome": outcome,
            "at_us": w.now, "detail": "it was tried again"})]
        if outcome == "delivered":
            writes.append(("problem_resolved", None, {"instance_id": GOVERNANCE, "problems": [{"problem_id": self.letter, "category": "dlq", "event_id": own}]}))
        w.command(GOVERNANCE, writes)


def scenario_replayed() -> tuple[World, Bundle]:
    """Two dead deliveries: of one a request is rejected, another one fails, a third one has it delivered; of the other one a quorum approves."""
    w = World("replayed", rules=3, signatures="people")
    w.admin = w.add_key(w.admin, w.admin, "admin/1")
    a = {ref: w.register(w.admin, ref) for ref in ("ann", "ben", "cleo", "auditor")}
    for ref, scopes in {"ann": ["governance:act"], "auditor": ["audit:read"]}.items():
        w.grant(w.admin, a[ref], *scopes)
    dead = [w.new_id(), w.new_id()]
    letters = [{"problem_id": w.new_id(), "category": "dlq", "key": event + ".shop", "event_id": event, "since_us": w.now, "run_id": w.new_id(), "step": "PAY", "detail": "given up"} for event in dead]
    w.govern(opened=letters)
    one, other = ((str(e["problem_id"]), str(e["key"])) for e in letters)
    refused = Request(w, a["ann"], *one, ONE, "try it again")
    refused.answer(a["cleo"], "reject", "their server is still down")
    failed = Request(w, a["ann"], *one, ONE, "it is up again")
    failed.answer(a["cleo"])
    failed.completed("failed")
    w.noise(2)
    again = Request(w, a["ann"], *one, ONE, "now it is")
    board = Request(w, a["ann"], *other, BOARD, "this one too")
    again.answer(a["cleo"], reason="I called them")
    again.completed("delivered")
    board.answer(a["ben"])
    board.completed("delivered")
    return w, w.export_window(a["auditor"], None, None, 64)
