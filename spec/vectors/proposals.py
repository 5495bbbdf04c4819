"""Evidence bundles of proposals (proposal.md): one that is edited, approved and merged, and one of another kind."""
from __future__ import annotations

from typing import Any, Optional

from bundle import REGISTRY, Bundle, Record, dump, sha
from honest import Actor, Process, World, Write

DEFINITION = "countersign:proposal@1"
STATES = ["draft", "submitted", "review", "approved", "rejected", "merged", "withdrawn"]
TERMINAL = ["rejected", "merged", "withdrawn"]
_MOVES = [("draft", "edit", "draft"), ("draft", "comment", "draft"), ("draft", "submit", "submitted"), ("draft", "withdraw", "withdrawn"),
          ("submitted", "edit", "draft"), ("submitted", "comment", "submitted"), ("submitted", "review", "review"), ("submitted", "withdraw", "withdrawn"),
          ("review", "edit", "draft"), ("review", "comment", "review"), ("review", "approve", "approved"), ("review", "reject", "rejected"), ("review", "withdraw", "withdrawn"),
          ("approved", "edit", "draft"), ("approved", "comment", "approved"), ("approved", "merge", "merged"), ("approved", "withdraw", "withdrawn")]
DECLARATION = {"states": STATES, "transitions": [{"from": a, "action": b, "to": c, **({"guard": "publish"} if b == "approve" else {})} for a, b, c in _MOVES],
               "initial_state": "draft", "terminal_states": TERMINAL}
BOARD = {"approvers": ["ann", "ben", "cleo"], "quorum": {"rule": "m-of-n", "m": 2}, "scope": "refunds:publish"}
_SEGMENT = {"comment": "comments"}


class Proposal(Process):
    """A proposal, as the server would keep it."""

    def __init__(self, world: World, by: Actor, kind: str, target: str, base: int, entry: dict[str, Any], document: Optional[str] = None, **said: Any):
        w = self.world = world
        self.kind, self.target = kind, target
        self.content = self.made(by, base, document, **said)
        self.declaration, self.gate_spec = DECLARATION, {"publish": entry}
        self.declaration_digest, self.gate_spec_digest = w.store(DECLARATION), w.store(self.gate_spec)
        self.id, self.definition, self.subject, self.initiator = w.new_id(), DEFINITION, f"{kind}/{target}", by.ref
        self.state = "draft"
        self.transitions, self.gates, self.steps, self.assignments, self.bound, self.asked = [], {}, {}, {}, {}, {}
        body = {**self.asked_of(document), "proposal_kind": kind, "target": target}
        r = w.command(self.id, [("workflow_started", by, {
            "instance_id": self.id, "subject_ref": self.subject, "initial_state": "draft", "definition": DEFINITION, "declaration_digest": self.declaration_digest,
            "gate_spec_digest": self.gate_spec_digest, "gate_spec_labels": ["publish"], "rules": 3, "proposal": self.content})],
            "propose", path="/v1/proposals", body=dump(body).encode(), expect=False, instance_null=True)[0]
        self.started = r.head["recorded_at_us"]
        w.processes[self.id] = self

    def made(self, by: Actor, base: int, document: Optional[str], cls: str = "human", evidence: Optional[str] = None, action: Optional[dict[str, Any]] = None,
             affected: tuple[str, ...] = (), reason: str = "as agreed") -> dict[str, Any]:
        digest = sha(document.encode()).hex() if document is not None else None
        content = {"proposal_kind": self.kind, "target": self.target, "base_version": base, "digest": digest, "proposer_class": cls, "evidence_ref": evidence,
                   "affected": list(affected), "proposed_action": action, "reason": reason}
        return {k: v for k, v in content.items() if v is not None}

    def asked_of(self, document: Optional[str]) -> dict[str, Any]:
        """The body that asks for what is proposed now."""
        said = {k: v for k, v in self.content.items() if k in ("base_version", "evidence_ref", "affected", "proposed_action", "reason")}
        return {**said, **({"document": document} if document is not None else {})}

    def fired(self, by: Optional[Actor], action: str, **more: Any) -> Write:
        t = self.declared(action)
        return ("transition_fired", by, {"instance_id": self.id, "action": action, "from_state": self.state, "new_state": t["to"], "transition_id": self.world.new_id(),
                                         "sequence_number": len(self.transitions) + 1, "guarded": "guard" in t, **more})

    def kept(self, record: Record) -> None:
        """The row of a firing."""
        p = record.body
        self.transitions.append({"transition_id": p["transition_id"], "sequence_number": p["sequence_number"], "from_state": p["from_state"], "action": p["action"],
                                 "to_state": p["new_state"], "fired_at_us": record.head["recorded_at_us"], "actor_ref": record.head["actor_ref"], "guard_satisfied": p["guarded"],
                                 "step_id": p.get("step_id"), "chain_id": p.get("chain_id"), "event_id": record.head["event_id"]})
        self.state = p["new_state"]

    def move(self, by: Actor, action: str, reason: Optional[str] = None) -> None:
        """submit, withdraw and comment."""
        body = {"text": reason} if action == "comment" else {"reason": reason} if reason else {}
        path = f"/v1/proposals/{self.id}/{_SEGMENT.get(action, action)}"
        self.kept(self.world.command(self.id, [self.fired(by, action, reason=reason)], f"{action}_proposal", path=path, body=dump(body).encode())[0])

    def edit(self, by: Actor, base: int, document: Optional[str] = None, **said: Any) -> None:
        self.content = self.made(by, base, document, **said)
        body = dump(self.asked_of(document)).encode()
        self.kept(self.world.command(self.id, [self.fired(by, "edit", proposal=self.content)], "edit_proposal", "PUT", f"/v1/proposals/{self.id}", body)[0])

    def review(self, by: Actor, reason: Optional[str] = None) -> None:
        """Asks the approvers for what is proposed, in the command that begins the review."""
        w, spec = self.world, self.gate_spec["publish"]
        fired = self.fired(by, "review", reason=reason)
        approvers = spec.get("approvers") or [spec["approver_ref"]]
        steps = [{"step_id": w.new_id(), "assignment_id": w.new_id(), "approver_ref": a} for a in approvers]
        quorum = spec.get("quorum")
        gate_id = w.new_id() if quorum else steps[0]["step_id"]
        old = self.bound.get(("review", "approve"))
        opened = {"instance_id": self.id, "action": "approve", "from_state": "review", "guard": "publish"}
        common = {"scope": spec["scope"], "submitter_ref": self.initiator, "supersedes": old, "reason": reason}
        asked = {"request": self.content, "request_digest": sha(dump(self.content).encode()).hex()}
        writes: list[Write] = [fired]
        if quorum:
            writes.append(("chain_initiated", by, {"instance_id": self.id, "chain_id": gate_id, "action": "approve", "subject_ref": f"{self.subject}:approve", "scope": spec["scope"],
                                                   "initiator_ref": self.initiator, "approver_set": approvers, "quorum_rule": quorum["rule"], "m": quorum.get("m"), "steps": steps}))
        writes.append(("gate_opened", by, {**opened, **({"chain_id": gate_id, "steps": steps} if quorum else steps[0]), **common, **asked}))
        records = w.command(self.id, writes, "review_proposal", path=f"/v1/proposals/{self.id}/review", body=dump({"reason": reason} if reason else {}).encode())
        at = records[0].head["recorded_at_us"]
        self.kept(records[0])
        if old:
            self.gates[old]["current"] = False
        self.bound[("review", "approve")] = gate_id
        self.asked[gate_id] = asked["request_digest"]
        self.gates[gate_id] = {"gate_id": gate_id, "from_state": "review", "action": "approve", "guard": "publish", "scope": spec["scope"], "opened_at_us": at, "opened_by": by.ref,
                               "rule": quorum["rule"] if quorum else None, "m": quorum.get("m") if quorum else None, "chain_state": "Pending" if quorum else None,
                               "fate": "unspent", "current": True}
        for s in steps:
            self.steps[s["step_id"]] = {"step_id": s["step_id"], "gate_id": gate_id, "action": "approve", "subject_ref": f"{self.subject}:approve", "approver_ref": s["approver_ref"],
                                        "submitter_ref": self.initiator, "scope": spec["scope"], "submitted_at_us": at, "state": "Pending", "ended_by": None, "ended_at_us": None,
                                        "ended_reason": None}
            self.assignments[s["assignment_id"]] = {"assignment_id": s["assignment_id"], "task_ref": s["step_id"], "assignee_ref": s["approver_ref"], "assigned_at_us": at,
                                                    "status": "Active", "ended_at_us": None}

    def approve(self, by: Actor, decision: str = "approve", reason: Optional[str] = None) -> None:
        """A decision, and what the engine makes of it in the same command."""
        w, gate_id = self.world, self.bound[("review", "approve")]
        gate = self.gates[gate_id]
        command = w.command

        def with_follow(instance: str, writes: list[Write], *args: Any, **more: Any) -> list[Record]:
            settled = gate["rule"] is None or any(a == "chain_resolved" for a, _, _ in writes)
            if settled:
                action = {"approve": "approve", "reject": "reject"}[decision]
                used = {"chain_id" if gate["rule"] else "step_id": gate_id} if action == "approve" else {}
                writes = [*writes, self.fired(None, action, **used)]
                if action == "approve":
                    gate["fate"] = "consumed"
            return command(instance, writes, *args, **more)
        w.command = with_follow     # type: ignore[method-assign]
        try:
            records = self.decide(by, "approve", decision, reason)
        finally:
            w.command = command     # type: ignore[method-assign]
        if records[-1].head["action_ref"] == "transition_fired":
            self.kept(records[-1])

    def merge(self, by: Actor, document: Optional[dict[str, Any]] = None, evidence: Optional[str] = None, reason: Optional[str] = None) -> None:
        """The end of the proposal; for a definition its next version too, in the same transaction, under one statement."""
        w = self.world
        version = self.content["base_version"] + 1
        merged = {"evidence_ref": evidence} if document is None else {"name": self.target, "version": version, "digest": self.content["digest"]}
        path = f"/v1/proposals/{self.id}/merge"
        body = dump({k: v for k, v in (("reason", reason), ("evidence_ref", evidence)) if v}).encode()
        published = None
        if document is not None:
            gate_id = self.bound[("review", "approve")]
            gate = {"chain_id" if self.gates[gate_id]["rule"] else "step_id": gate_id}
            entry = stored(w, document)
            w.definitions[f"{self.target}@{version}"] = entry
            payload = {"name": self.target, "version": version, "digest": self.content["digest"], **{k: entry[k] for k in ("declaration_digest", "gate_spec_digest")},
                       **({"publish": document["publish"]} if document.get("publish") else {}), "proposal": {"instance_id": self.id, **gate}}
            published = w.command(REGISTRY, [("definition_published", by, payload)], "merge_proposal", path=path, body=body, expect=False)[0]
            w.now -= 1_370_001      # one transaction
        record = w.command(self.id, [self.fired(by, "merge", reason=reason, merged=merged)], "merge_proposal", path=path, body=body)[0]
        if published is not None:
            published.attestation = record.attestation
            published.seal()
        self.kept(record)


def stored(w: World, document: dict[str, Any]) -> dict[str, Any]:
    return {"declaration": document["declaration"], "gate_spec": {}, "declaration_digest": w.store(document["declaration"]), "gate_spec_digest": w.store({})}


def text(document: dict[str, Any]) -> str:
    """The document as its author writes it."""
    gates = {"gate_spec": {"publish": document["publish"]}} if document.get("publish") else {}
    return dump({"kind": "process", "name": "refunds", **document["declaration"], **gates})


def refunds(*states: str) -> dict[str, Any]:
    names = ["open", *states]
    moves = [{"from": a, "action": b, "to": b} for a, b in zip(names, names[1:])]
    return {"declaration": {"states": names, "transitions": moves, "initial_state": "open", "terminal_states": [names[-1]]}, "publish": BOARD}


def scenario_proposed() -> tuple[World, Bundle]:
    """Two of three approve: the proposer is the third and does not. Edited after a first approval, approved again, merged; a change of another kind by an agent, merged by a person."""
    w = World("proposed", rules=3, signatures="people")
    w.admin = w.add_key(w.admin, w.admin, "admin/1")
    a = {ref: w.register(w.admin, ref) for ref in ("ann", "ben", "cleo", "dora", "auditor")}
    a["robot"] = w.register(w.admin, "robot", key=False, token=True, kind="service")
    for ref, scopes in {"ann": ["proposals:write"], "dora": ["proposals:write", "definitions:publish"], "robot": ["proposals:write"], "auditor": ["audit:read"]}.items():
        w.grant(w.admin, a[ref], *scopes)
    first, second = refunds("paid"), refunds("checked", "paid")
    entry = stored(w, first)
    w.definitions["refunds@1"] = entry
    source = text(first).encode()
    w.command(REGISTRY, [("definition_published", w.admin, {"name": "refunds", "version": 1, "digest": sha(source).hex(), "declaration_digest": entry["declaration_digest"],
                                                           "gate_spec_digest": entry["gate_spec_digest"], "publish": BOARD})], "publish_definition", path="/v1/definitions",
              body=source, document=True)
    w.noise(2)
    rest = {**BOARD, "approvers": ["ben", "cleo"]}
    p = Proposal(w, a["ann"], "process", "refunds", 1, rest, text(refunds("seen", "paid")), affected=("ticket:7",))
    p.move(a["ann"], "submit")
    p.move(a["dora"], "comment", "seen by whom?")
    p.review(a["dora"])
    p.approve(a["ben"])
    w.noise()
    p.approve(a["cleo"], reason="fine")
    p.edit(a["ann"], 1, text(second), affected=("ticket:7",), reason="checked, not seen")
    p.move(a["ann"], "submit", "again")
    p.review(a["dora"], "one word changed")
    p.approve(a["cleo"])
    p.approve(a["ben"])
    w.noise(3)
    p.merge(a["dora"], second)
    single = {"approver_ref": "cleo", "scope": "proposals:approve"}
    q = Proposal(w, a["robot"], "iu_split", "iu-12", 4, single, cls="ai_agent", evidence="run:9", action={"into": ["iu-13", "iu-14"]}, affected=("iu-12",))
    q.move(a["robot"], "submit")
    q.review(a["robot"])
    q.approve(a["cleo"])
    q.merge(a["dora"], evidence="job:5", reason="applied")
    return w, w.export_window(a["auditor"], None, None, 80)
