"""The stores beside the records: claim 3 (bundle.md 2, 3)."""
from __future__ import annotations

from typing import Any, TYPE_CHECKING

from .files import Bundle
from .found import Report
from .registry import Registry
from .texts import Json, parse_json, same

if TYPE_CHECKING:
    from .replay import Replay


class Rows:
    """The stores' line of an instance against what replay made of its records: claim 3, the end of 2, and 4."""

    def __init__(self, replay: Replay, row: dict[str, Json]):
        self.r, self.row, self.report = replay, row, replay.report

    def find(self, code: str, detail: str) -> None:
        self.report.find(code, detail, instance_id=self.r.instance)

    def equal(self, what: str, row: dict[str, Json], **expected: Json) -> None:
        for name, value in expected.items():
            if name == "ended_reason" and (row[name] is None or row[name].startswith("purged:")) and (row[name] or "").removeprefix("purged:") in self.r.lost_reasons:
                continue        # it went with a record that gave it
            if not same(row[name], value):
                self.find("row-missing", f"{what}: {name} is {row[name]!r}; the records say {value!r}")

    def pair(self, what: str, rows: list[dict[str, Json]], key: str, known: dict[str, Any], excused: bool) -> list[tuple[dict[str, Json], Any]]:
        """Rows with what the records know of them; the rest are findings."""
        ids = [row[key] for row in rows]
        self.report.checked["3"] += len(rows)
        for i in ids:
            if i not in known and not excused:
                self.find("record-missing", f"{what} {i} has no record")
        for i in known:
            if i not in ids:
                self.find("row-missing", f"{what} {i} has no row")
        return [(row, known[row[key]]) for row in rows if row[key] in known]

    def check(self) -> None:
        r, row = self.r, self.row
        start = r.start
        assert start is not None and start.payload is not None
        self.report.checked["2"] += 1
        if r.state is not None and row["current_state"] != r.state:
            self.find("replay-mismatch", f"replay ends in {r.state!r}; the stores say {row['current_state']!r}")
        p = start.payload
        self.equal("the process", row, subject_ref=p["subject_ref"], initiator_ref=start.actor, definition=p.get("definition"),
                   declaration_digest=p["declaration_digest"], gate_spec_digest=p["gate_spec_digest"], started_at_us=start.at, sequence=r.chain[-1].sequence)
        self.check_transitions()
        self.check_gates()
        self.check_steps()
        if (r.of_run is not None) != (row.get("run") is not None):
            self.find("row-missing" if r.of_run is not None else "record-missing", "records and stores do not agree whether it is a run")
        elif r.of_run is not None:
            r.of_run.compare(row["run"], self.find, parse_json)

    def check_transitions(self) -> None:
        fired = {f.payload["transition_id"]: f for f in self.r.firings if f.payload is not None}
        if len(fired) != len(self.r.firings):
            self.find("record-missing", "a transition has more than one record")
        rows = [t for t in self.row["transitions"] if t["event_id"] not in self.r.purged]
        for t, f in self.pair("transition", rows, "transition_id", fired, False):
            p = f.payload
            self.equal(f"transition {t['sequence_number']}", t, sequence_number=p["sequence_number"], from_state=p["from_state"], action=p["action"],
                       to_state=p["new_state"], fired_at_us=f.at, actor_ref=f.actor, guard_satisfied=p["guarded"], step_id=p.get("step_id"), chain_id=p.get("chain_id"), event_id=f.id)

    def check_gates(self) -> None:
        for row, gate in self.pair("gate", self.row["gates"], "gate_id", self.r.gates, self.r.unseen_gates):
            p = gate.payload
            self.equal(f"gate {gate.id}", row, from_state=gate.from_state, action=gate.action, guard=p["guard"], scope=p["scope"], opened_at_us=gate.opened.at,
                       opened_by=gate.opened.actor, rule=gate.rule, m=gate.m)
            if gate.rule is None:
                self.equal(f"gate {gate.id}", row, chain_state=None)
            if gate.sure:
                current = row["current"] if gate.current is None else gate.current
                self.equal(f"gate {gate.id}", row, chain_state=gate.chain_state, fate=gate.fate, current=current)

    def check_steps(self) -> None:
        assert self.r.start is not None and self.r.start.payload is not None
        known = {s.id: (gate, s) for gate in self.r.gates.values() for s in gate.steps.values()}
        for row, (gate, step) in self.pair("step", self.row["approval_steps"], "step_id", known, self.r.unseen_gates):
            self.equal(f"step {step.id}", row, gate_id=gate.id, action=gate.action, subject_ref=f"{self.r.start.payload['subject_ref']}:{gate.action}", approver_ref=step.approver,
                       submitter_ref=gate.submitter, scope=gate.payload["scope"], submitted_at_us=gate.opened.at)
            if not gate.sure:
                continue
            if row["state"] != step.state:
                missing = step.state == "Pending"
                self.find("record-missing" if missing else "row-missing", f"step {step.id} is {row['state']} in the stores, {step.state} by the records")
            elif step.ended is None:
                self.equal(f"step {step.id}", row, ended_by=None, ended_at_us=None, ended_reason=None)
            else:
                self.equal(f"step {step.id}", row, ended_at_us=step.ended.at, ended_by=step.ended_by, ended_reason=step.reason)
        assignments = {s.assignment: (gate, s, s.approver, gate.opened.at, "Transferred" if s.taken else "Recalled") for gate, s in known.values()}
        assignments |= {s.taken[0]: (gate, s, s.taken[1].actor, s.taken[1].at, "Recalled") for gate, s in known.values() if s.taken}
        excused = self.r.unseen_gates or bool(self.r.lost_reasons)      # a purged decision may have been a substitute's
        for row, (gate, step, assignee, since, ended) in self.pair("assignment", self.row["assignments"], "assignment_id", assignments, excused):
            what = f"assignment {row['assignment_id']}"
            self.equal(what, row, task_ref=step.id, assignee_ref=assignee, assigned_at_us=since)
            if gate.sure:
                self.equal(what, row, ended_at_us=step.recalled_at, status="Active" if step.recalled_at is None else ended)
        for gate, step in known.values():
            self.report.checked["4"] += 1
            active = [a for a in self.row["assignments"] if a["task_ref"] == step.id and a["status"] == "Active"]
            due = step.recalled_at is None and gate.fate != "mooted"
            if gate.sure and (len(active) != due or any(a["assignee_ref"] != step.approver for a in active)):
                self.find("assignment-coverage", f"step {step.id} ({step.state}) has {len(active)} active assignments to {[a['assignee_ref'] for a in active]}")


def check_grant_rows(b: Bundle, registry: Registry, report: Report) -> None:
    rows = {g["grant_id"]: g for g in b.grants}
    if len(rows) != len(b.grants):
        report.find("record-missing", "grants.jsonl has a grant twice")
    for grant_id, g in rows.items():
        report.checked["3"] += 1
        records = registry.grant_records.get(grant_id, [])
        made = [r for r in records if r.action == "grant_made"]
        revoked = [r for r in records if r.action == "grant_revoked"]
        if len(made) != 1 or len(revoked) > 1:
            report.find("record-missing", f"grant {grant_id} has {len(made)} records of being made, {len(revoked)} of being revoked")
            continue
        end = revoked[0] if revoked else None
        said = (g["subject_ref"], g["action_scope"], g["granted_at_us"], g["granted_seq"], g["revoked_at_us"], g["revoked_seq"])
        p, q = made[0].payload or {}, (end.payload or {}) if end else {}
        found = (p["subject_ref"], p["action_scope"], made[0].at, made[0].sequence, end.at if end else None, end.sequence if end else None)
        if g["revoked_seq"] is not None and end is None:
            report.find("record-missing", f"grant {grant_id} is revoked in the stores, and no record says so")
        elif said != found or end is not None and (q["subject_ref"], q["action_scope"]) != found[:2]:
            report.find("row-missing", f"grant {grant_id}: the row says {said}; the records say {found}")
    for grant_id, records in registry.grant_records.items():
        if grant_id not in rows:
            report.find("row-missing", f"grant {grant_id} has no row", records[0])
