"""Evidence bundles of runs, from run.md and what make.py has: an honest engine in miniature, and one scenario for each way a run can go."""
from __future__ import annotations

import json
import pathlib
import sys
import urllib.parse
from typing import Any, Optional

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from bundle import REGISTRY, Bundle, Record, dump, sha  # noqa: E402
from honest import MOOT, Actor, World, Write  # noqa: E402
from verifier.run_model import RUN_TABLE, STEP_TABLE  # noqa: E402

ROOM = 16_384
RUN_INPUT = object()    # a step is handed the run's own input
TICK = 1_370_001        # from one command to the next


def put(holder: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    """A value, in full or by digest."""
    text = dump(value)
    if len(text.encode()) <= ROOM:
        return {**holder, name: value}
    return {**holder, name + "_digest": sha(text.encode()).hex(), name + "_bytes": len(text.encode())}


def publish(w: World, by: Actor, document: dict[str, Any]) -> str:
    """A workflow, version 1."""
    spec = document.get("gate_spec", {})
    guards = [(s["name"], s["gate"]) for s in document["steps"] if "gate" in s] + ([("cancel", "cancel")] if "cancel" in spec else [])
    closed = document.get("failurePolicy") == "fail-closed"
    guards += [(action, action if action in spec else "sovereign") for action in ("resume", "void") if closed or action in spec]
    guards += [(f"{label}:{s['name']}", label) for label in ("reopen", "escalate") if label in spec for s in document["steps"]]
    declaration = {"states": ["run"], "transitions": [{"from": "run", "action": a, "to": "run", "guard": g} for a, g in guards], "initial_state": "run", "terminal_states": []}
    gate_spec = dict(sorted(spec.items(), key=lambda kv: kv[0].encode()))
    digests = {"declaration_digest": w.store(declaration), "gate_spec_digest": w.store(gate_spec), "document_digest": w.store(document)}
    name = f"{document['name']}@1"
    w.definitions[name] = {"document": document, "declaration": declaration, "gate_spec": gate_spec, **digests}
    source = dump(document).encode()
    w.command(REGISTRY, [("definition_published", by, {"name": document["name"], "version": 1, "digest": sha(source).hex(), **digests})], "publish_definition",
              path="/v1/definitions", body=source, document=True)
    return name


def publish_machine(w: World, by: Actor, document: dict[str, Any]) -> str:
    """A machine of one's own, version 1."""
    codes = [s if isinstance(s, str) else s["state_code"] for s in document["states"]]
    declaration = {"states": codes, "transitions": [], "initial_state": "not_started", "terminal_states": ["completed"]}
    digests = {"declaration_digest": w.store(declaration), "gate_spec_digest": w.store({}), "document_digest": w.store(document)}
    name = f"{document['name']}@1"
    w.definitions[name] = {"document": document, "declaration": declaration, "gate_spec": {}, **digests}
    source = dump(document).encode()
    w.command(REGISTRY, [("definition_published", by, {"name": document["name"], "version": 1, "digest": sha(source).hex(), **digests})], "publish_definition",
              path="/v1/definitions", body=source, document=True)
    return name


def shared(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Steps that have the same entry share it."""
    out: list[tuple[list[int], dict[str, Any]]] = []
    for entry in entries:
        rest = {k: v for k, v in entry.items() if k != "step_seq"}
        like = next((seqs for seqs, known in out if dump(known) == dump(rest)), None)
        if like is None:
            out.append(([entry["step_seq"]], rest))
        else:
            like.append(entry["step_seq"])
    return [{"step_seq": seqs[0], **rest} if len(seqs) == 1 else {"step_seqs": spans(sorted(seqs)), **rest} for seqs, rest in out]


class Run:
    """Writes the records of a run and keeps its rows. `record` is given what a command does; who does what stands in the scenarios."""

    def __init__(self, w: World, by: Optional[Actor], definition: str, subject: str, value: Any, moves: list[tuple[int, str]], run: str = "R1 R2", opens: str = "",
                 **more: Any):
        entry = w.definitions[definition]
        self.w, self.definition, self.document, self.subject, self.initiator = w, definition, entry["document"], subject, (by or w.app).ref
        self.declaration, self.gate_spec = entry["declaration"], entry["gate_spec"]
        self.declaration_digest, self.gate_spec_digest, self.document_digest = entry["declaration_digest"], entry["gate_spec_digest"], entry["document_digest"]
        self.more_digests = [self.document_digest]
        self.machine = f"{self.document['machine']}@1" if "machine" in self.document else None
        machine_digest = w.definitions[self.machine]["document_digest"] if self.machine else None
        self.more_digests += [machine_digest] if machine_digest else []
        self.id = w.new_id()
        self.transitions: list[dict[str, Any]] = []
        self.gates: dict[str, dict[str, Any]] = {}
        self.approvals: dict[str, dict[str, Any]] = {}
        self.assignments: dict[str, dict[str, Any]] = {}
        self.bound: dict[str, str] = {}
        self.requests: dict[str, Optional[str]] = {}        # the digest of what each gate asks
        self.rows = [self.step_row(i, s["name"], None) for i, s in enumerate(self.document["steps"])]
        tasks = [f"{s['name']}/{t['name']}" for s in self.document["steps"] for t in s.get("tasks", [])]
        counted = {"steps": len(self.rows), **({"tasks": len(tasks)} if tasks else {})}
        self.rows += [self.step_row(len(self.rows) + i, name, None) for i, name in enumerate(tasks)]
        self.input = dump(value)
        self.run_row: dict[str, Any] = {"document_digest": self.document_digest, "state": "idle", "outcome": None, "priority": 5, "start_at_us": None, "executing_since_us": None,
                                        "completed_at_us": None, "failed_at_us": None, "last_error": None, "input": None, "input_digest": None, "output": None, "output_digest": None,
                                        "correlation_key": None, "concurrency_key": None, "corrects": None, "continues": None, "parent_run_id": None, "parent_step_seq": None}
        if machine_digest:
            self.run_row["machine_digest"] = machine_digest
        self.store_value(self.run_row, "input", self.input)
        self.started = 0
        w.processes[self.id] = self     # type: ignore[assignment]
        members = put({"definition": definition, "document_digest": self.document_digest, "declaration_digest": self.declaration_digest, "gate_spec_digest": self.gate_spec_digest,
                       **({"machines": ["step@1.0.0", "workflow_run@1.0.0", self.machine]} if self.machine else {}), "subject_ref": subject, **counted, "priority": 5,
                       **({"rules": w.rules} if w.rules > 1 else {})}, "input", value)
        body = dump({"definition": definition, "input": value, "subject_ref": subject}).encode()
        after = self.open(None, opens) if opens else []
        self.command("run_started", by, moves, run, [], after, "start_run", "/v1/runs", body, True, first=members, **more)
        self.started = self.last_at

    @staticmethod
    def step_row(seq: int, name: str, compensates: Optional[int]) -> dict[str, Any]:
        return {"step_seq": seq, "name": name, "compensates": compensates, "state": "not_started", "attempts": 0, "started_at_us": None, "completed_at_us": None, "last_error": None,
                "error_category": None, "effect_unknown": False, "child_run_id": None, "output": None, "output_digest": None}

    @staticmethod
    def store_value(row: dict[str, Any], name: str, text: str) -> None:
        row[name] = text if len(text.encode()) <= ROOM else None
        row[name + "_digest"] = sha(text.encode()).hex()

    # -- what a command does to steps and run
    def moves(self, wanted: list[tuple[int, str]], action: str) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = []
        for seq, words in wanted:
            tid, _, trigger = words.partition(" ")
            person, tid = tid.endswith("*"), tid.rstrip("*")       # T2*: by the person in charge
            sources, to, classes, triggers = STEP_TABLE[tid]
            row = self.rows[seq]
            assert row["state"] in sources, (seq, tid, row["state"])
            line = {"id": tid, "step": row["name"], "step_seq": seq, "from": row["state"], "to": to, "actor_class": classes[-1], "trigger": trigger or triggers[0]}
            if tid in ("T4r", "T6"):
                line["actor_class"] = "system"
            if tid == "T6" and person:
                line["trigger"] = "step_reengage"
            if person:
                line["actor_class"] = "task_pic_human" if "/" in row["name"] else "pic_human"
            lines.append(line)
            row.pop("derived_state", None)
            row["state"] = to
            charge = row.get("charge", {})
            if tid in ("T8r", "T12r"):
                row.update(attempts=0, last_error=None, error_category=None, started_at_us=None)
                charge["cycle"] = (charge["cycle"] or 0) + 1
            elif tid in ("T5", "X14") and charge["overdue_first_at_us"] is None:
                charge["overdue_first_at_us"] = self.w.now + TICK
            elif tid == "T7":
                charge["sla_breach_us"] = self.w.now + TICK - charge["deadline_us"]
            if to in ("in_progress", "overdue", "blocked") and row["started_at_us"] is None and tid != "X14":
                row["started_at_us"] = "now"
            if to == "completed":
                row.update(completed_at_us="now", effect_unknown=False)
        grouped: list[dict[str, Any]] = []
        for line in lines:      # several steps that made the same move stand in one line
            key = {k: v for k, v in line.items() if k not in ("step", "step_seq")}
            like = next((g for g in grouped if g["key"] == key and line["step_seq"] not in g["seqs"]), None) if len({x["step_seq"] for x in lines}) == len(lines) else None
            if like is not None:
                like["seqs"].append(line["step_seq"])
            else:
                grouped.append({"key": key, "seqs": [line["step_seq"]], "line": line})
        out = []
        for g in grouped:
            if len(g["seqs"]) == 1:
                out.append(g["line"])
            else:
                k = g["key"]
                out.append({"id": k["id"], "step_seqs": spans(sorted(g["seqs"])), **{x: k[x] for x in ("from", "to", "actor_class", "trigger")}})
        return out

    def command(self, action: str, by: Optional[Actor], moves: list[tuple[int, str]], run: str, before: list[Write], after: list[Write], asked: str = "", path: str = "",
                body: bytes = b"", null: bool = False, first: Optional[dict[str, Any]] = None, meaning: Optional[str] = None, decides: bool = False,
                outputs: Optional[dict[int, Any]] = None, errors: Optional[list[dict[str, Any]]] = None, compensations: Optional[list[list[int]]] = None,
                listed: Optional[list[list[list[int]]]] = None, **more: Any) -> Record:
        for seq, undone in (compensations or []) + [pair for pairs in listed or [] for pair in pairs]:
            self.rows.append(self.step_row(seq, self.rows[undone]["name"], undone))
        after = after + [("compensations_listed", None, {"instance_id": self.id, "compensations": pairs}) for pairs in listed or []]
        payload: dict[str, Any] = {"instance_id": self.id, **(first or {})}
        for c in more.get("charges", []):
            charge = self.rows[int(c["step_seqs"])].setdefault("charge", dict.fromkeys(("pic", "deadline_us", "overdue_first_at_us", "sla_breach_us", "cycle")))
            charge.update(pic=c.get("pic"), deadline_us=c.get("deadline_us"))
            if "start_by_us" in c or "start_by_us" in charge:
                charge["start_by_us"] = c.get("start_by_us")
        lines = self.moves(moves, action)
        late = [(seq, self.rows[seq]["charge"]) for seq, words in moves if words.startswith("T7")]
        if late:
            more["sla"] = [{"step_seq": seq, "completed_after_deadline": True, "overdue_first_at_us": c["overdue_first_at_us"], "sla_breach_us": c["sla_breach_us"]} for seq, c in late]
        if lines:
            payload["transitions"] = lines
        if run:
            payload["run_transitions"] = []
            for tid in run.split():
                source, to, trigger = RUN_TABLE[tid]
                assert self.run_row["state"] == source, (tid, self.run_row["state"])
                payload["run_transitions"].append({"id": tid, "from": source, "to": to, "trigger": trigger})
                self.run_row["state"] = to
                if to == "executing" and self.run_row["executing_since_us"] is None:
                    self.run_row["executing_since_us"] = "now"
                elif to in ("completed", "failed"):
                    self.run_row[f"{to}_at_us"] = "now"
        if compensations:
            payload["compensations"] = compensations
        for k in ("leases", "waits"):
            if k in more:
                payload[k] = more.pop(k)
        if outputs:
            payload["outputs"] = [put({"step_seq": seq}, "output", value) for seq, value in outputs.items()]
            for seq, value in outputs.items():
                self.store_value(self.rows[seq], "output", dump(value))
        for e in errors or []:
            row = self.rows[e["step_seq"]]
            row.update(attempts=e["attempts"], last_error=e.get("last_error"), error_category=e.get("error_category"), effect_unknown=e.get("effect_unknown", False))
        if errors:
            payload["errors"] = errors
        if "output" in more:
            self.store_value(self.run_row, "output", dump(more["output"]))
        if "last_error" in more:
            self.run_row["last_error"] = more["last_error"]
        self.run_row["outcome"] = more.get("outcome")
        payload.update(more)
        for k in ("leases", "waits", "outputs", "errors"):
            if k in payload:
                payload[k] = shared(payload[k])
        own: Write = (action, by, payload)
        records = self.w.command(self.id, [*before, own, *after], asked, path=path, body=body, instance_null=null, meaning=meaning)
        record = next(r for r in records if r.head["action_ref"] == action)
        self.last_at = at = record.head["recorded_at_us"]
        for row in (*self.rows, self.run_row, *self.gates.values(), *self.approvals.values(), *self.assignments.values(), *self.transitions):
            for k, v in row.items():
                if v == "now":
                    row[k] = at
        for r in records:
            if r.head["action_ref"] == "transition_fired":
                next(t for t in self.transitions if t["transition_id"] == r.body["transition_id"])["event_id"] = r.head["event_id"]
        return record

    # -- gates
    def open(self, by: Optional[Actor], action: str, request: Optional[dict[str, Any]] = None) -> list[Write]:
        guard = next(t["guard"] for t in self.declaration["transitions"] if t["action"] == action)
        spec = self.gate_spec[guard]
        step, assignment = self.w.new_id(), self.w.new_id()
        old = self.bound.get(action)
        if old is not None:
            self.gates[old]["current"] = False
        self.bound[action] = step
        self.gates[step] = {"gate_id": step, "from_state": "run", "action": action, "guard": guard, "scope": spec["scope"], "opened_at_us": "now",
                            "opened_by": by.ref if by else self.w.APP, "rule": None, "m": None, "chain_state": None, "fate": "unspent", "current": True}
        self.approvals[step] = {"step_id": step, "gate_id": step, "action": action, "subject_ref": f"{self.subject}:{action}", "approver_ref": spec["approver_ref"],
                                "submitter_ref": self.initiator, "scope": spec["scope"], "submitted_at_us": "now", "state": "Pending", "ended_by": None, "ended_at_us": None, "ended_reason": None}
        self.assignments[assignment] = {"assignment_id": assignment, "task_ref": step, "assignee_ref": spec["approver_ref"], "assigned_at_us": "now", "status": "Active", "ended_at_us": None}
        self.requests[action] = None if request is None else sha(dump(request).encode()).hex()
        asked = {} if request is None else {"request": request, "request_digest": self.requests[action]}
        return [("gate_opened", by, {"instance_id": self.id, "action": action, "from_state": "run", "guard": guard, "step_id": step, "assignment_id": assignment,
                                     "approver_ref": spec["approver_ref"], "scope": spec["scope"], "submitter_ref": self.initiator, "supersedes": old, **asked})]

    def open_alone(self, by: Actor, action: str, request: Optional[dict[str, Any]] = None) -> None:
        writes = self.open(by, action, request)
        records = self.w.command(self.id, writes, "open_gate", path=f"/v1/runs/{self.id}/gates", body=dump({"action": action}).encode())
        self.settle_times(records[0].head["recorded_at_us"])

    def settle_times(self, at: int) -> None:
        for row in (*self.gates.values(), *self.approvals.values(), *self.assignments.values()):
            for k, v in row.items():
                if v == "now":
                    row[k] = at

    def end_approval(self, action: str, state: str, by: str, reason: Optional[str]) -> None:
        step = self.bound[action]
        self.approvals[step].update(state=state, ended_by=by, ended_at_us="now", ended_reason=reason)
        next(a for a in self.assignments.values() if a["task_ref"] == step).update(status="Recalled", ended_at_us="now")

    def decided(self, by: Actor, action: str, decision: str, reason: Optional[str]) -> list[Write]:
        self.end_approval(action, {"approve": "Approved", "reject": "Rejected"}[decision], by.ref, reason)
        return [("gate_decided", by, {"instance_id": self.id, "action": action, "step_id": self.bound[action], "decision": decision, "reason": reason,
                                      **({"request_digest": self.requests[action]} if self.requests.get(action) else {})})]

    def consume(self, action: str) -> list[Write]:
        gate, number = self.bound[action], len(self.transitions) + 1
        self.gates[gate]["fate"] = "consumed"
        tid = self.w.new_id()
        self.transitions.append({"transition_id": tid, "sequence_number": number, "from_state": "run", "action": action, "to_state": "run", "fired_at_us": "now",
                                 "actor_ref": self.w.APP, "guard_satisfied": True, "step_id": gate, "chain_id": None, "event_id": ""})
        return [("transition_fired", None, {"instance_id": self.id, "action": action, "from_state": "run", "new_state": "run", "transition_id": tid, "sequence_number": number,
                                            "guarded": True, "step_id": gate})]

    def moot(self, action: str) -> list[Write]:
        gate = self.bound[action]
        self.gates[gate]["fate"] = "mooted"
        approved = self.approvals[gate]["state"] == "Approved"
        if not approved:
            self.end_approval(action, "Withdrawn", self.initiator, MOOT)
        return [("moot_gate_recalled", None, {"instance_id": self.id, "moot_action": action, "from_state": "run", "step_id": gate, "moot_kind": "approved-unconsumed" if approved else "pending-withdrawn",
                                              "reason": "the gate can no longer matter"})]

    def decide(self, by: Actor, action: str, decision: str, reason: str, moves: list[tuple[int, str]], run: str, **more: Any) -> Record:
        body = dump({"decision": decision, "reason": reason}).encode()
        before = self.decided(by, action, decision, reason) + (self.consume(action) if decision == "approve" else [])
        return self.command("gate_followed", None, moves, run, before, [], "decide_gate", f"/v1/runs/{self.id}/gates/{action}/decision", body,
                            meaning="I have looked at the change and take this decision", **more)

    def decide_alone(self, by: Actor, action: str, decision: str, reason: str) -> None:
        writes = self.decided(by, action, decision, reason)
        records = self.w.command(self.id, writes, "decide_gate", path=f"/v1/runs/{self.id}/gates/{action}/decision", body=dump({"decision": decision, "reason": reason}).encode(),
                                 meaning="I have looked at it and take this decision")
        self.settle_times(records[0].head["recorded_at_us"])

    # -- workers and operators
    def handed(self, seq: int, given: Any = RUN_INPUT) -> dict[str, Any]:
        """What a claim says from the third edition on."""
        if self.w.rules < 3:
            return {}
        return {"inputs": [{"step_seq": seq, "run_input": True} if given is RUN_INPUT else put({"step_seq": seq}, "input", given)]}

    def claim(self, by: Actor, seq: int, tid: str = "T2", run: str = "", given: Any = RUN_INPUT, **more: Any) -> Record:
        lease = {"step_seq": seq, "attempt": self.rows[seq]["attempts"] + 1, "worker_id": "w-1", "locked_until_us": self.w.now + 60_000_000}
        return self.command("steps_claimed", by, [(seq, tid)], run, [], [], "claim", "/v1/queues/default/claim", dump({"worker_id": "w-1"}).encode(), True, leases=[lease],
                            **self.handed(seq, given), **more)

    def complete(self, by: Actor, seq: int, value: Any, moves: list[tuple[int, str]] = [], run: str = "", before: list[Write] = [], outputs: dict[int, Any] = {}, **more: Any) -> Record:
        return self.command("step_completed", by, [(seq, "T8"), *moves], run, before, [], "complete", f"/v1/tasks/{self.id}.{seq}/complete",
                            dump({"output": value}).encode(), outputs={seq: value, **outputs}, **more)

    def fail(self, by: Actor, seq: int, error: str, again: bool, category: str, moves: list[tuple[int, str]] = [], run: str = "", **more: Any) -> Record:
        entry = {"step_seq": seq, "attempts": self.rows[seq]["attempts"] + 1, "last_error": error, "error_category": category}
        if again:
            entry["next_run_at_us"] = self.w.now + 5_000_000
        return self.command("step_retried" if again else "step_failed", by, [(seq, "T9"), *moves], run, [], [], "retry" if again else "dead",
                            f"/v1/tasks/{self.id}.{seq}/{'retry' if again else 'dead'}", dump({"last_error": error}).encode(), errors=[entry], **more)

    # -- people
    def act(self, by: Actor, seq: int, action: str, asked: str, verb: str, moves: list[tuple[int, str]], run: str = "", body: Optional[dict[str, Any]] = None,
            before: list[Write] = [], **more: Any) -> Record:
        if action == "step_claimed":
            more = {**self.handed(seq), **more}
        return self.command(action, by, moves, run, before, [], asked, f"/v1/runs/{self.id}/steps/{urllib.parse.quote(self.rows[seq]['name'], safe='')}/{verb}", dump(body or {}).encode(), step_seq=seq, **more)

    def transition(self, by: Actor, seq: int, trigger: str, action: str = "step_transitioned", moves: list[tuple[int, str]] = [], run: str = "", body: dict[str, Any] = {}, **more: Any) -> Record:
        """A transition of the run's own machine; where the floor moves too, in the record of its act."""
        document = self.w.definitions[self.machine or ""]["document"]
        row = next(t for t in document["transitions"] if t["trigger_ref"] == trigger)
        assert row["from"] == self.rows[seq].get("derived_state", self.rows[seq]["state"]), (trigger, self.rows[seq])
        own = {"id": row.get("id", trigger), "from": row["from"], "to": row["to"], "actor_class": row["actor_class"], "trigger": trigger}
        record = self.act(by, seq, action, "transition_step", "transition", moves, run, {"to": row["to"], **body}, own_transition=own, **more)
        self.rows[seq].pop("derived_state", None)
        if row["to"] != self.rows[seq]["state"]:
            self.rows[seq]["derived_state"] = row["to"]
        return record

    def reopen(self, by: Actor, seq: int, tid: str, reason: str, prior: Record, moves: list[tuple[int, str]] = [], **more: Any) -> Record:
        action = f"reopen:{self.rows[seq]['name']}"
        body = {"approval_id": self.bound[action], "correction_reason": reason}
        correction = {"cycle": (self.rows[seq]["charge"]["cycle"] or 0) + 1, "correction_reason": reason, "prior_event_id": prior.head["event_id"]}
        if tid == "T8r":
            correction = put(correction, "output", json.loads(self.rows[seq]["output"]))
        return self.act(by, seq, "step_reopened", "reopen_step", "reopen", [(seq, tid), *moves], "", body, self.consume(action), approval_id=self.bound[action],
                        correction=correction, **more)

    def forget(self, record: Record) -> None:
        """The texts of a purged record leave the stores too (run.md 8)."""
        body, text = record.body, dump("purged:" + record.head["event_id"])
        if record.head["action_ref"] == "run_started":
            self.subject = json.loads(text)
            self.store_value(self.run_row, "input", text)
            for a in self.approvals.values():
                a["subject_ref"] = f"{self.subject}:{a['action']}"
        for o in body.get("outputs", []):
            self.store_value(self.rows[o["step_seq"]], "output", text)
        for e in body.get("errors", []):
            self.rows[e["step_seq"]]["last_error"] = json.loads(text)
        if "last_error" in body:
            self.run_row["last_error"] = json.loads(text)
        if "output" in body:
            self.store_value(self.run_row, "output", text)

    def row(self) -> dict[str, Any]:
        return {"instance_id": self.id, "subject_ref": self.subject, "initiator_ref": self.initiator, "definition": self.definition, "declaration_digest": self.declaration_digest,
                "gate_spec_digest": self.gate_spec_digest, "started_at_us": self.started, "current_state": "run", "sequence": len(self.w.chains[self.id]), "transitions": self.transitions,
                "gates": [self.gates[k] for k in sorted(self.gates)], "approval_steps": [self.approvals[k] for k in sorted(self.approvals)],
                "assignments": [self.assignments[k] for k in sorted(self.assignments)], "run": {**self.run_row, "steps": self.rows}}


def spans(seqs: list[int]) -> str:
    out: list[list[int]] = []
    for s in seqs:
        if out and s == out[-1][1] + 1:
            out[-1][1] = s
        else:
            out.append([s, s])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in out)


# ---------------------------------------------------------------------------------------------- scenarios
def crew(w: World) -> dict[str, Actor]:
    """ines starts and steers with her key, a worker works with a bearer token, the qualified person decides with a key."""
    w.admin = w.add_key(w.admin, w.admin, "admin/1")
    a = {"ines": w.register(w.admin, "ines", name="Inês Sá"), "qp": w.register(w.admin, "qp_santos", name="Dr. Santos"), "audit": w.register(w.admin, "auditor"),
         "worker": w.register(w.admin, "worker", key=False, token=True, kind="software"), "robot": w.register(w.admin, "robot", kind="software")}
    w.grant(w.admin, a["ines"], "runs:start", "runs:control")
    w.grant(w.admin, a["worker"], "tasks:work")
    w.grant(w.admin, a["audit"], "audit:read", "audit:purge", "audit:hold")
    return a


LINEAR = {"kind": "workflow", "name": "order", "order": "linear", "steps": [
    {"name": "VALIDATE", "retryPolicy": {"maxRetries": 4}}, {"name": "PAYMENT", "run": "wait", "event": "payment.captured"}, {"name": "SHIP"}]}


def order(w: World, a: dict[str, Actor], subject: str) -> Run:
    """Tried twice, waits for a payment, puts the parcel down for a while, and ships."""
    r = Run(w, a["ines"], "order@1", subject, {"order": 7, "weight": 1.5}, [(0, "T1")])
    r.claim(a["worker"], 0)
    r.fail(a["worker"], 0, "the warehouse does not answer", True, "transient")
    r.claim(a["worker"], 0, "T10")
    r.complete(a["worker"], 0, {"valid": True, "score": 0.25}, [(1, "T1"), (1, "T2"), (1, "T3")], waits=[{"step_seq": 1, "facet": "waiting_external", "event_type": "payment.captured"}])
    w.noise()
    paid = {"amount": 12.5, "note": "x" * 20_000}
    body = {"id": "evt-1", "type": "payment.captured", "run_id": r.id, "data": paid}
    r.command("event_received", a["ines"], [(1, "T3r"), (1, "T8"), (2, "T1")], "", [], [], "receive_event", "/v1/events", dump(body).encode(), True, outputs={1: paid},
              event=put({"id": "evt-1", "type": "payment.captured"}, "data", paid), events_taken=["evt-1"])
    r.claim(a["worker"], 2)
    r.command("step_waiting", a["worker"], [(2, "T3")], "", [], [], waits=[{"step_seq": 2, "facet": "waiting_time_gate", "deadline_at_us": w.now + 1_000_000}])
    r.claim(a["worker"], 2, "X3")
    r.complete(a["worker"], 2, "shipped", run="R4", output={"done": True}, outbound_events=[{"type": "order.shipped", "data": {"order": 7}}])
    return r


def linear() -> tuple[World, Bundle]:
    w = World("run-linear")
    a = crew(w)
    publish(w, w.admin, LINEAR)
    return w, w.export(a["audit"], order(w, a, "order/7"), 53)     # type: ignore[arg-type]


def dag() -> tuple[World, Bundle]:
    """Two branches at once; one is not for this case, and what hangs on it alone is skipped with it."""
    w = World("run-dag", regulated=False)
    a = crew(w)
    publish(w, w.admin, {"kind": "workflow", "name": "screening", "steps": [
        {"name": "collect"}, {"name": "fast", "dependsOn": ["collect"]}, {"name": "slow", "dependsOn": ["collect"], "when": "input.thorough"},
        {"name": "appeal", "dependsOn": ["slow"]}, {"name": "close", "dependsOn": ["fast", "slow"]}, {"name": "left"}, {"name": "right"}]})
    r = Run(w, a["ines"], "screening@1", "case/1", {"thorough": False}, [(0, "T1"), (5, "T1"), (6, "T1")])
    for seq in (5, 6):
        r.claim(a["worker"], seq)
        r.complete(a["worker"], seq, seq)
    r.claim(a["worker"], 0)
    r.complete(a["worker"], 0, [1, 2.5, None], [(1, "T1"), (2, "X4 when_false"), (3, "X4 upstream_skipped")])
    r.claim(a["worker"], 1)
    # The worker is lost; its lease runs out, and another one takes over.
    r.command("time_passed", None, [(1, "X2")], "", [], [], errors=[{"step_seq": 1, "attempts": 1, "last_error": "LEASE_EXPIRED", "effect_unknown": True}])
    r.claim(a["worker"], 1)
    lease = {"step_seq": 4, "attempt": 1, "worker_id": "w-1", "locked_until_us": w.now + 60_000_000}
    r.complete(a["worker"], 1, "low", [(4, "T1"), (4, "T2")], leases=[lease])
    r.complete(a["worker"], 4, None, run="R4")
    return w, w.export(a["audit"], r, 61)     # type: ignore[arg-type]


def together() -> tuple[World, Bundle]:
    """Steps that are claimed, lost and finished together share their entries; one lets its failure pass before anybody held it."""
    w = World("run-together", regulated=False)
    a = crew(w)
    publish(w, w.admin, {"kind": "workflow", "name": "fan", "steps": [{"name": f"s{i}"} for i in range(4)] + [{"name": "nap", "run": "wait"}, {"name": "doze", "run": "wait"}, {"name": "odd"}]})
    r = Run(w, a["ines"], "fan@1", "fan/1", {}, [(i, "T1") for i in range(4)] + [(6, "T1")])
    r.command("time_passed", None, [(6, "X12")], "", [], [], errors=[{"step_seq": 6, "attempts": 0, "last_error": "STEP_TIMEOUT", "error_category": "timeout"}])
    for attempt in (1, 2):
        leases = [{"step_seq": i, "attempt": attempt, "worker_id": "w-1", "locked_until_us": w.now + 60_000_000} for i in range(4)]
        r.command("steps_claimed", a["worker"], [(i, "T2") for i in range(4)], "", [], [], "claim", "/v1/queues/default/claim", dump({"worker_id": "w-1"}).encode(), True, leases=leases)
        if attempt == 1:
            r.command("time_passed", None, [(i, "X2") for i in range(4)], "", [], [], errors=[{"step_seq": i, "attempts": 1, "last_error": "LEASE_EXPIRED"} for i in range(4)])
    naps = [{"step_seq": i, "facet": "waiting_time_gate", "deadline_at_us": w.now + 1_000_000} for i in (4, 5)]
    r.complete(a["worker"], 0, 0, [(i, t) for i in (4, 5) for t in ("T1", "T2", "T3")], waits=naps)
    r.command("time_passed", None, [(i, t) for i in (4, 5) for t in ("T3r", "T8")], "", [], [], outputs={4: None, 5: None})
    for i in (1, 2, 3):
        r.complete(a["worker"], i, i, run="R4" if i == 3 else "")
    return w, w.export(a["audit"], r, 65)     # type: ignore[arg-type]


SAGA = {"kind": "workflow", "name": "travel", "order": "linear", "failurePolicy": "compensate", "steps": [{"name": "hotel"}, {"name": "look"}, {"name": "flight"}, {"name": "car"}],
        "compensation": [{"step": "hotel", "action": "cancel-hotel", "agent": "undo"}, {"step": "flight", "action": "cancel-flight", "agent": "undo"}]}


def trip(w: World, a: dict[str, Actor], subject: str) -> Run:
    r = Run(w, a["ines"], "travel@1", subject, {}, [(0, "T1")])
    for seq in range(3):
        r.claim(a["worker"], seq)
        r.complete(a["worker"], seq, {"booked": seq}, [(seq + 1, "T1")])
    r.claim(a["worker"], 3)
    r.fail(a["worker"], 3, "no car is left", False, "agent_error", [(4, "T1")], "R6", compensations=[[4, 2], [5, 0]], last_error="no car is left")
    r.claim(a["worker"], 4)
    r.complete(a["worker"], 4, None, [(5, "T1")])
    r.claim(a["worker"], 5)
    r.complete(a["worker"], 5, None, run="R10", outcome="rolled_back")
    return r


def saga() -> tuple[World, Bundle]:
    """The last of four steps fails; what was done is undone, the last first."""
    w = World("run-saga")
    a = crew(w)
    publish(w, w.admin, SAGA)
    return w, w.export(a["audit"], trip(w, a, "trip/9"), 64)     # type: ignore[arg-type]


def listed() -> tuple[World, Bundle]:
    """What is to be undone takes three records to list."""
    w = World("run-listed", regulated=False)
    a = crew(w)
    names = ["a", "b", "c", "d", "e"]
    publish(w, w.admin, {"kind": "workflow", "name": "many", "failurePolicy": "compensate", "steps": [{"name": n} for n in names] + [{"name": "last", "dependsOn": names}],
                         "compensation": [{"step": n, "action": "undo", "agent": "undo"} for n in names]})
    r = Run(w, a["ines"], "many@1", "many/1", {}, [(i, "T1") for i in range(5)])
    for seq in (3, 0, 4, 1, 2):
        r.claim(a["worker"], seq)
        r.complete(a["worker"], seq, seq, [(5, "T1")] if seq == 2 else [])
    r.claim(a["worker"], 5)
    r.fail(a["worker"], 5, "no", False, "agent_error", [(6, "T1")], "R6", compensations=[[6, 2], [7, 1]], listed=[[[8, 4], [9, 0]], [[10, 3]]], last_error="no")
    for seq in range(6, 11):
        r.claim(a["worker"], seq)
        if seq < 10:
            r.complete(a["worker"], seq, None, [(seq + 1, "T1")])
        else:
            r.complete(a["worker"], seq, None, run="R10", outcome="rolled_back")
    return w, w.export(a["audit"], r, 71)     # type: ignore[arg-type]


CHANGE = {"kind": "workflow", "name": "change", "steps": [{"name": "build"}, {"name": "deploy", "dependsOn": ["build"], "gate": "cab"}],
          "gate_spec": {"cab": {"approver_ref": "qp_santos", "scope": "change:cab"}, "cancel": {"approver_ref": "qp_santos", "scope": "change:cancel"}}}


def gate() -> tuple[World, Bundle]:
    """Nothing is deployed before it was approved."""
    w = World("run-gate")
    a = crew(w)
    publish(w, w.admin, CHANGE)
    r = Run(w, a["ines"], "change@1", "change/3", {"tag": "v3"}, [(0, "T1")])
    r.claim(a["worker"], 0)
    r.complete(a["worker"], 0, {"image": "sha256:…"}, [(1, "X8")], "R3", before=r.open(None, "deploy"))
    w.noise(3)
    r.decide(a["qp"], "deploy", "approve", "tested on the copy", [(1, "X8r")], "R7")
    r.claim(a["worker"], 1)
    r.complete(a["worker"], 1, {"deployed": True}, run="R4")
    return w, w.export(a["audit"], r, 50)     # type: ignore[arg-type]


def cancelled() -> tuple[World, Bundle]:
    """Cancelled while a gate is open: that takes an approval of its own, and withdraws the other."""
    w = World("run-cancelled")
    a = crew(w)
    publish(w, w.admin, CHANGE)
    r = Run(w, a["ines"], "change@1", "change/4", {"tag": "v4"}, [(0, "T1")])
    r.claim(a["worker"], 0)
    r.complete(a["worker"], 0, {"image": "sha256:…"}, [(1, "X8")], "R3", before=r.open(None, "deploy"))
    r.open_alone(a["ines"], "cancel")
    r.decide_alone(a["qp"], "cancel", "approve", "the change is not wanted any more")
    before = r.consume("cancel") + r.moot("deploy")
    r.command("run_cancelled", a["ines"], [(1, "X6")], "C4", before, [], "cancel_run", f"/v1/runs/{r.id}/cancel", dump({"reason": "superseded", "approval_id": r.bound["cancel"]}).encode(), reason="superseded",
              approval_id=r.bound["cancel"])
    return w, w.export(a["audit"], r, 50)     # type: ignore[arg-type]


def window() -> tuple[World, Bundle]:
    """Runs of two workflows in one window; of one, records were purged when their time had come."""
    w = World("run-window", retention_days=1)
    a = crew(w)
    publish(w, w.admin, LINEAR)
    publish(w, w.admin, SAGA)
    first = order(w, a, "order/8")
    trip(w, a, "trip/10")
    w.now += 3 * 86_400_000_000
    for action in ("step_retried", "event_received"):
        w.purge(a["audit"], next(r for r in w.chains[first.id] if r.head["action_ref"] == action))
    return w, w.export_window(a["audit"], None, None, 90)


PEOPLE = {"kind": "workflow", "name": "inquiry", "order": "linear", "gate_spec": {"reopen": {"approver_ref": "qp_santos", "scope": "inquiry:reopen"}},
          "steps": [{"name": "look", "run": "human", "pic": "ines"}, {"name": "answer", "run": "human", "pic": "ines", "deadline": "5s"}, {"name": "file"}]}


def people() -> tuple[World, Bundle]:
    """What a person does: begun, given back, put down, blocked, late, declared impossible, and corrected with an approval."""
    w = World("run-people")
    a = crew(w)
    ines = a["ines"]
    w.grant(w.admin, ines, "tasks:work")
    publish(w, w.admin, PEOPLE)
    r = Run(w, ines, "inquiry@1", "inquiry/1", {"about": "line 3"}, [(0, "T1")], charges=[{"step_seqs": "0", "pic": "ines"}])
    r.act(ines, 0, "step_claimed", "claim_step", "claim", [(0, "T2*")])
    r.act(ines, 0, "step_released", "release_step", "release", [(0, "T2r")], body={"reason": "lunch"}, reason="lunch")
    r.act(ines, 0, "step_claimed", "claim_step", "claim", [(0, "T2*")])
    r.act(ines, 0, "step_waiting", "wait_step", "wait", [(0, "T3*")], waits=[{"step_seq": 0, "facet": "waiting_human", "secondary_facets": ["waiting_external"]}])
    r.act(ines, 0, "step_unblocked", "unblock_step", "unblock", [(0, "T3r")], body={"evidence_ref": "note-1"}, evidence_ref="note-1")
    r.act(ines, 0, "step_blocked", "block_step", "block", [(0, "T4*")], "R3", {"block_reason": "missing_input"}, block_reason="missing_input",
          errors=[{"step_seq": 0, "attempts": 0}])
    r.act(ines, 0, "step_unblocked", "unblock_step", "unblock", [(0, "T4r*")], "R7", {"evidence_ref": "note-2"}, evidence_ref="note-2")
    done = r.act(ines, 0, "step_completed", "complete_step", "complete", [(0, "T8*"), (1, "T1")], body={"output": {"seen": 1}}, outputs={0: {"seen": 1}},
                 charges=[{"step_seqs": "1", "pic": "ines", "deadline_us": w.now + TICK + 5_000_000}])
    r.act(ines, 1, "step_claimed", "claim_step", "claim", [(1, "T2*")])
    r.open_alone(ines, "reopen:look")
    r.decide_alone(a["qp"], "reopen:look", "approve", "the wrong line")
    r.reopen(ines, 0, "T8r", "data_error", done)
    r.command("time_passed", None, [(1, "T5")], "", [], [])
    r.act(ines, 0, "step_completed", "complete_step", "complete", [(0, "T8*")], body={"output": {"seen": 2}}, outputs={0: {"seen": 2}})
    r.act(ines, 1, "deadline_extended", "extend_deadline", "extend-deadline", [(1, "T6")], body={"reason": "the lab was closed"}, reason="the lab was closed",
          charges=[{"step_seqs": "1", "pic": "ines", "deadline_us": w.now + TICK + 2_000_000}])
    given_up = r.act(ines, 1, "step_cannot_complete", "cannot_complete_step", "cannot-complete", [(1, "T12*")], body={"evidence_ref": "note-3"}, evidence_ref="note-3")
    r.open_alone(ines, "reopen:answer")
    r.decide_alone(a["qp"], "reopen:answer", "approve", "it can be done after all")
    r.reopen(ines, 1, "T12r", "policy_change", given_up, charges=[{"step_seqs": "1", "pic": "ines", "deadline_us": w.now + 1}])
    r.act(ines, 1, "step_completed", "complete_step", "complete", [(1, "T5"), (1, "T7*"), (2, "T1")], body={"output": "late"}, outputs={1: "late"})
    r.claim(a["worker"], 2)
    r.complete(a["worker"], 2, {"filed": True}, run="R4")
    return w, w.export(a["audit"], r, 60)     # type: ignore[arg-type]


TRIAGE = {"kind": "workflow", "name": "triage", "order": "dag", "scheduleToStart": "2s",
          "steps": [{"name": "sort"}, {"name": "sign", "run": "human", "pic": "ines", "deadline": "8s"}]}


def unclaimed() -> tuple[World, Bundle]:
    """What nobody claims in time is overdue, and can be claimed as before; a deadline that is put off makes it ready again."""
    w = World("run-unclaimed")
    a = crew(w)
    ines = a["ines"]
    w.grant(w.admin, ines, "tasks:work")
    publish(w, w.admin, TRIAGE)
    began = w.now + TICK
    r = Run(w, ines, "triage@1", "triage/1", {"page": 1}, [(0, "T1"), (1, "T1")],
            charges=[{"step_seqs": "0", "start_by_us": began + 2_000_000}, {"step_seqs": "1", "pic": "ines", "deadline_us": began + 8_000_000, "start_by_us": began + 2_000_000}])
    w.now += 1_000_000
    r.command("time_passed", None, [(0, "X14"), (1, "X14")], "", [], [])
    r.claim(a["worker"], 0, "X15", charges=[{"step_seqs": "0"}])
    later = w.now + TICK + 3_000_000
    r.act(ines, 1, "deadline_extended", "extend_deadline", "extend-deadline", [(1, "X16")], body={"reason": "she is ill"}, reason="she is ill",
          charges=[{"step_seqs": "1", "pic": "ines", "deadline_us": began + 8_000_000, "start_by_us": later}])
    r.complete(a["worker"], 0, {"sorted": 3})
    w.now += 3_000_000
    r.command("time_passed", None, [(1, "X14")], "", [], [])
    r.act(ines, 1, "step_claimed", "claim_step", "claim", [(1, "X15*")], charges=[{"step_seqs": "1", "pic": "ines", "deadline_us": began + 8_000_000}])
    r.act(ines, 1, "step_completed", "complete_step", "complete", [(1, "T5"), (1, "T7*")], "R4", body={"output": "signed"}, outputs={1: "signed"})
    return w, w.export(a["audit"], r, 60)     # type: ignore[arg-type]


TASKS = {"kind": "workflow", "name": "filing", "order": "linear",
         "steps": [{"name": "file", "run": "human", "pic": "ines", "tasks": [{"name": "count", "pic": "qp_santos"}, {"name": "scan", "run": "worker"}]},
                   {"name": "check", "tasks": [{"name": "read"}]}]}


def tasks() -> tuple[World, Bundle]:
    """Parts of a step: one a person's, one a worker's; then a step that is nothing but its tasks. The last of them completes it."""
    w = World("run-tasks")
    a = crew(w)
    ines, qp = a["ines"], a["qp"]
    for person in (ines, qp):
        w.grant(w.admin, person, "tasks:work")
    publish(w, w.admin, TASKS)
    r = Run(w, ines, "filing@1", "filing/1", {"page": 3}, [(0, "T1")], charges=[{"step_seqs": "0", "pic": "ines"}])
    r.act(ines, 0, "step_claimed", "claim_step", "claim", [(0, "T2*"), (2, "T1"), (3, "T1")], charges=[{"step_seqs": "2", "pic": "qp_santos"}])
    r.act(qp, 2, "step_claimed", "claim_step", "claim", [(2, "T2*")])
    r.claim(a["worker"], 3)
    r.complete(a["worker"], 3, "page-3")
    both = {"count": {"n": 3}, "scan": "page-3"}
    r.act(qp, 2, "step_completed", "complete_step", "complete", [(2, "T8*"), (0, "T8"), (1, "T1"), (1, "T2"), (4, "T1")], body={"output": {"n": 3}},
          outputs={2: {"n": 3}, 0: both})
    r.claim(a["worker"], 4)
    r.complete(a["worker"], 4, "seen", [(1, "T8")], "R4", outputs={1: {"read": "seen"}})
    return w, w.export(a["audit"], r, 40)     # type: ignore[arg-type]


FLOOR = ["not_started", "ready", "in_progress", "waiting", "blocked", "overdue", "failed", "cannot_complete", "completed"]
REVIEWED = {"kind": "machine", "name": "reviewed", "scope": "step",
            "states": [*FLOOR, {"state_code": "in_review", "floor_equivalent": "waiting", "justification": "Whose turn it is"},
                       {"state_code": "sent_back", "floor_equivalent": "waiting", "justification": "The author has it"},
                       {"state_code": "accepted", "floor_equivalent": "completed", "justification": "Somebody looked at it"}],
            "transitions": [{"from": "in_progress", "to": "in_review", "actor_class": "pic_human", "trigger_kind": "rpc", "trigger_ref": "submit"},
                            {"from": "in_review", "to": "sent_back", "actor_class": "reviewer", "trigger_kind": "rpc", "trigger_ref": "send_back"},
                            {"from": "sent_back", "to": "in_review", "actor_class": "pic_human", "trigger_kind": "rpc", "trigger_ref": "resubmit"},
                            {"from": "in_review", "to": "waiting", "actor_class": "reviewer", "trigger_kind": "rpc", "trigger_ref": "let_lie", "proposed": True},
                            {"id": "A1", "from": "in_progress", "to": "accepted", "actor_class": "pic_human", "trigger_kind": "rpc", "trigger_ref": "accept"}]}
PAPER = {"kind": "workflow", "name": "paper", "order": "linear", "machine": "reviewed",
         "steps": [{"name": "write", "run": "human", "pic": "ines"}, {"name": "print", "run": "human", "pic": "ines"}]}


def own() -> tuple[World, Bundle]:
    """A machine of one's own: over a wait it is in review, sent back, and in review again; then it is accepted, and the next one is reviewed too."""
    w = World("run-own")
    a = crew(w)
    ines, qp = a["ines"], a["qp"]
    w.grant(w.admin, ines, "tasks:work")
    w.grant(w.admin, qp, "runs:control")
    publish_machine(w, w.admin, REVIEWED)
    publish(w, w.admin, PAPER)
    human = [{"step_seq": 0, "facet": "waiting_human"}]
    r = Run(w, ines, "paper@1", "paper/1", {"about": "line 3"}, [(0, "T1")], charges=[{"step_seqs": "0", "pic": "ines"}])
    r.act(ines, 0, "step_claimed", "claim_step", "claim", [(0, "T2*")])
    r.transition(ines, 0, "submit", "step_waiting", [(0, "T3*")], body={"waiting_facet": "waiting_human"}, waits=human)
    r.transition(qp, 0, "send_back", body={"evidence_ref": "note-1", "reason": "no sources"}, evidence_ref="note-1", reason="no sources")
    r.transition(ines, 0, "resubmit")
    r.act(ines, 0, "step_unblocked", "unblock_step", "unblock", [(0, "T3r")], body={"evidence_ref": "note-2"}, evidence_ref="note-2")
    r.transition(ines, 0, "accept", "step_completed", [(0, "T8*"), (1, "T1")], body={"output": {"pages": 3}}, outputs={0: {"pages": 3}}, charges=[{"step_seqs": "1", "pic": "ines"}])
    r.act(ines, 1, "step_claimed", "claim_step", "claim", [(1, "T2*")])
    r.transition(ines, 1, "submit", "step_waiting", [(1, "T3*")], body={"waiting_facet": "waiting_human"}, waits=[{"step_seq": 1, "facet": "waiting_human"}])
    r.act(ines, 1, "step_unblocked", "unblock_step", "unblock", [(1, "T3r")], body={"evidence_ref": "note-3"}, evidence_ref="note-3")
    r.act(ines, 1, "step_completed", "complete_step", "complete", [(1, "T8*")], "R4", body={"output": None}, outputs={1: None})
    return w, w.export(a["audit"], r, 50)     # type: ignore[arg-type]


CHILD = {"kind": "workflow", "name": "parts", "order": "linear", "steps": [{"name": "part", "run": "workflow", "workflow": "other"}, {"name": "maybe", "when": "${input.go}", "tasks": [{"name": "look"}]}]}


def child() -> tuple[World, Bundle]:
    """A step that is a run of its own waits while that does, and goes on with it; then a step that is skipped with its task."""
    w = World("run-child")
    a = crew(w)
    publish(w, w.admin, CHILD)
    r = Run(w, a["ines"], "parts@1", "parts/1", {"go": False}, [(0, "T1")])
    lease = {"step_seq": 0, "attempt": 1, "worker_id": "engine", "locked_until_us": w.now + 60_000_000}
    r.command("steps_claimed", None, [(0, "T2")], "", [], [], leases=[lease])
    other = w.new_id()
    r.rows[0]["child_run_id"] = other
    r.command("child_started", None, [], "", [], [], children=[{"step_seq": 0, "run_id": other}])
    for goes_on in (True, False):
        r.command("child_waiting", None, [(0, "T3")], "", [], [], waits=[{"step_seq": 0, "facet": "waiting_dependency"}])
        if goes_on:
            r.command("child_resumed", None, [(0, "T3r")], "", [], [])
    r.command("child_ended", None, [(0, "T3r"), (0, "T8"), (1, "X4 when_false"), (2, "X4 when_false")], "R4", [], [], outputs={0: {"n": 1}})
    return w, w.export(a["audit"], r, 44)     # type: ignore[arg-type]


def of_runbook(name: str) -> Any:
    import runbooks
    return runbooks.SCENARIOS[name]


def of_undos(name: str) -> tuple[World, Bundle]:
    import undos
    return undos.SCENARIOS[name]()


def ward() -> tuple[World, Bundle]:
    import steps
    return steps.ward()


def handed() -> tuple[World, Bundle]:
    import inputs
    return inputs.handed()


SCENARIOS = {"run-book": lambda: of_runbook("run-book")(), "run-book-caps": lambda: of_runbook("run-book-caps")(), "run-book-failed": lambda: of_runbook("run-book-failed")(),
             "run-book-dry": lambda: of_runbook("run-book-dry")(), "run-book-child": lambda: of_runbook("run-book-child")(), "run-steered": lambda: of_undos("run-steered"), "run-called-off": lambda: of_undos("run-called-off"), "run-child": child, "run-own": own, "run-tasks": tasks, "run-people": people, "run-unclaimed": unclaimed, "run-steps": ward, "run-linear": linear, "run-dag": dag, "run-together": together, "run-saga": saga, "run-inputs": handed, "run-listed": listed, "run-gate": gate, "run-cancelled": cancelled, "run-window": window}
