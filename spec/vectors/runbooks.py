"""Evidence bundles of runbooks (run.md 9): one that drifts and is resumed, one that is capped and voided, one that fails a check, a dry run."""
from __future__ import annotations

from typing import Any, Optional

from bundle import Bundle, dump, sha
from honest import Actor, World, Write
from runs import TICK, Run, crew, publish, put

DOCUMENT = {"kind": "workflow", "name": "db-migrate", "order": "linear", "failurePolicy": "fail-closed", "hardCap": "1h",
            "gate_spec": {"sovereign": {"approver_ref": "qp_santos", "scope": "prod:resume"}, "authz": {"approver_ref": "qp_santos", "scope": "prod:migrate"}},
            "steps": [{"name": "pin", "readOnly": True, "softCap": "2m", "state": "source_pinned", "pins": {"schema": {"run": "worker"}, "rows": {"run": "worker"}}, "checks": {"exists": "${output.rows > 0}"}},
                      {"name": "backup", "softCap": "5m", "checks": {"key": "${output.fpr == 'A1'}", "size": "${output.bytes > 0}"}},
                      {"name": "migrate", "gate": "authz", "request": {"rows": "${steps.pin.output.rows}"}, "softCap": "1m30s", "pins": {"schema": {"run": "worker"}}, "checks": {"all": "${output.applied == 7}"}}]}


def digest(value: Any) -> str:
    return sha(dump(value).encode()).hex()


class Book(Run):
    """A run with pins: what a command of a runbook writes besides what `Run` knows."""

    def __init__(self, w: World, a: dict[str, Actor], subject: str, **more: Any):
        self.crew, self.pins = a, {}        # type: ignore[var-annotated]
        by = None if "parent_run_id" in more else a["ines"]
        super().__init__(w, by, "db-migrate@1", subject, {"db": "orders"}, [(0, "T1")], **more)

    def verdicts(self, seq: int, failed: str = "") -> list[dict[str, Any]]:
        return [{"step_seq": seq, "name": name, "held": name != failed} for name in self.document["steps"][seq]["checks"]]

    def asks(self, **request: Any) -> dict[str, Any]:
        return {**request, **({"pins": dict(self.pins)} if self.pins else {})}

    def capture(self, by: Actor, seq: int, output: Any, pins: dict[str, Any], run: str = "") -> None:
        """The work is done, the pins are looked at, the step is complete."""
        path, body = f"/v1/tasks/{self.id}.{seq}/complete", dump({"output": output}).encode()
        self.command("step_yielded", by, [], "", [], [], "complete", path, body, yielded=put({"step_seq": seq}, "output", output), checks=self.verdicts(seq))
        self.pins.update(pins)
        seen = [{"pin": k, "digest": digest(v), "value": v} for k, v in pins.items()]
        before: list[Write] = [("pins_captured", by, {"instance_id": self.id, "step_seq": seq, "pins": seen})]
        self.command("step_completed", by, [(seq, "T8")], run, before, [], "complete", path, body, outputs={seq: output}, checks=self.verdicts(seq))

    def survey(self, by: Optional[Actor], seq: int, moves: list[tuple[int, str]] = [], run: str = "", before: list[Write] = [], **found: Any) -> None:
        """`found`: what is not as it was pinned."""
        live = {**self.pins, **found}
        drift = [{"pin": k, "pinned": self.pins[k], "live": v} for k, v in found.items()]
        more: dict[str, Any] = {"drift": drift, "outcome": "drift"} if drift else {}
        self.command("pins_surveyed", by, moves, run, before, [], "complete", f"/v1/tasks/{self.id}.{seq}/complete", b"{}", step_seq=seq,
                     pins=[{"pin": k, **({"digest": digest(v)} if v is not None else {})} for k, v in live.items()], **more)

    def resume(self, by: Actor, run: str, before: list[Write] = [], repinned: list[dict[str, Any]] = [], **more: Any) -> None:
        approval = self.bound["resume"]
        if repinned:
            self.pins.update({d["pin"]: d["live"] for d in repinned})
            more["repinned"] = repinned
        self.command("run_resumed", by, [], run, [*self.consume("resume"), *before], [], "resume_run", f"/v1/runs/{self.id}/resume",
                     dump({"approval_id": approval, "reason": "seen and understood"}).encode(), approval_id=approval, reason="seen and understood", budget_us=3_600_000_000, **more)


def world(name: str) -> tuple[World, dict[str, Actor]]:
    w = World(name)
    a = crew(w)
    publish(w, w.admin, DOCUMENT)
    return w, a


def book() -> tuple[World, Bundle]:
    """A lease is lost and its effect declared; the schema drifts under an approved gate; the sovereign approves both stops."""
    w, a = world("run-book")
    r = Book(w, a, "db/orders")
    r.claim(a["worker"], 0)
    r.capture(a["worker"], 0, {"rows": 7}, {"schema": "9f2c", "rows": 7})
    r.survey(a["worker"], 1, [(1, "T1")])
    r.claim(a["worker"], 1)
    lost = {"step_seq": 1, "attempts": 1, "last_error": "LEASE_EXPIRED", "error_category": "timeout", "effect_unknown": True}
    r.command("time_passed", None, [(1, "X2")], "S8", r.open(None, "resume", r.asks(outcome="lease_expired", step="backup")), [], errors=[lost], outcome="lease_expired")
    r.act(a["ines"], 1, "effect_declared", "declare_effect", "declare-effect", [], body={"result": "not_done", "reason": "no file was written"}, effect={"step_seq": 1, "done": False},
          reason="no file was written", outcome="lease_expired")
    r.rows[1]["effect_unknown"] = False
    r.decide_alone(a["qp"], "resume", "approve", "the host was restarted")
    r.resume(a["ines"], "S4")
    r.survey(a["worker"], 1)
    r.claim(a["worker"], 1)
    r.complete(a["worker"], 1, {"fpr": "A1", "bytes": 512}, [(2, "X8")], "R3", r.open(None, "migrate", r.asks(rows=7)), checks=r.verdicts(1))
    w.noise(2)
    r.decide_alone(a["qp"], "migrate", "approve", "the change was reviewed")
    moot = r.moot("migrate")
    drift = [{"pin": "schema", "pinned": "9f2c", "live": "41ab"}]
    r.survey(a["worker"], 2, [], "S13", [*moot, *r.open(None, "resume", r.asks(outcome="drift", step="migrate", drift=drift))], schema="41ab")
    r.decide_alone(a["qp"], "resume", "approve", "the index was added by the night shift")
    r.pins["schema"] = "41ab"
    r.resume(a["ines"], "S5", r.open(None, "migrate", r.asks(rows=7)), drift)
    r.survey(a["worker"], 2)
    r.decide_alone(a["qp"], "migrate", "approve", "reviewed again")
    r.survey(a["worker"], 2, [(2, "X8r")], "R7", r.consume("migrate"))
    r.claim(a["worker"], 2)
    r.capture(a["worker"], 2, {"applied": 7}, {"schema": "77aa"}, "R4")
    return w, w.export(a["audit"], r, 74)     # type: ignore[arg-type]


def caps() -> tuple[World, Bundle]:
    """A step is at work for longer than its cap; the run is voided with the sovereign's approval."""
    w, a = world("run-book-caps")
    r = Book(w, a, "db/stock")
    r.claim(a["worker"], 0)
    w.now += 120_000_000
    r.command("time_passed", None, [(0, "X11")], "S14", r.open(None, "resume", r.asks(outcome="soft_cap", step="pin")), [], outcome="soft_cap")
    r.open_alone(a["ines"], "void", r.asks(state="stopped", outcome="soft_cap"))
    r.decide_alone(a["qp"], "void", "approve", "started on the wrong host")
    approval = r.bound["void"]
    before = [*r.consume("void"), *r.moot("resume")]
    r.command("run_voided", a["ines"], [(seq, "X6") for seq in range(3)], "V1", before, [], "void_run", f"/v1/runs/{r.id}/void",
              dump({"approval_id": approval, "reason": "wrong host"}).encode(), approval_id=approval, reason="wrong host")
    return w, w.export(a["audit"], r, 45)     # type: ignore[arg-type]


def failed() -> tuple[World, Bundle]:
    """A check does not hold: the step and the run have failed, what was refused is kept; the run is voided afterwards."""
    w, a = world("run-book-failed")
    r = Book(w, a, "db/ledger")
    r.claim(a["worker"], 0)
    error = "CHECK_FAILED:exists"
    entry = {"step_seq": 0, "attempts": 0, "last_error": error, "error_category": "validation"}
    r.command("step_failed", a["worker"], [(0, "X10 validation")], "R5", [], [], "complete", f"/v1/tasks/{r.id}.0/complete", dump({"output": {"rows": 0}}).encode(), errors=[entry], last_error=error,
              checks=r.verdicts(0, "exists"), refused=[{"step_seq": 0, "output": {"rows": 0}}])
    r.open_alone(a["ines"], "void", r.asks(state="failed"))
    r.decide_alone(a["qp"], "void", "approve", "an empty copy")
    approval = r.bound["void"]
    r.command("run_voided", a["ines"], [], "V6", r.consume("void"), [], "void_run", f"/v1/runs/{r.id}/void", dump({"approval_id": approval, "reason": "an empty copy"}).encode(),
              approval_id=approval, reason="an empty copy")
    return w, w.export(a["audit"], r, 44)     # type: ignore[arg-type]


def dry() -> tuple[World, Bundle]:
    """What only reads is carried out; the first step that does more ends it."""
    w, a = world("run-book-dry")
    r = Book(w, a, "db/orders", dry_run=True)
    r.claim(a["worker"], 0)
    r.capture(a["worker"], 0, {"rows": 7}, {"schema": "9f2c", "rows": 7})
    r.command("pins_surveyed", a["worker"], [], "R13", [], [], "complete", f"/v1/tasks/{r.id}.1/complete", b"{}", step_seq=1, outcome="dry_run",
              pins=[{"pin": k, "digest": digest(v)} for k, v in r.pins.items()])
    return w, w.export(a["audit"], r, 46)     # type: ignore[arg-type]


def child() -> tuple[World, Bundle]:
    """A step of another runbook: it stops with that, and goes on with an approval of its own."""
    w, a = world("run-book-child")
    parent = w.new_id()
    r = Book(w, a, "db/parts", parent_run_id=parent, parent_step_seq=1)
    r.run_row.update(parent_run_id=parent, parent_step_seq=1)
    r.claim(a["worker"], 0)
    reason = f"run {parent}, which it is a step of, was stopped"
    r.command("run_stopped", None, [(0, "X11")], "S1", r.open(None, "resume", r.asks(outcome="operator", step="pin", reason=reason)), [], reason=reason, outcome="operator")
    r.decide_alone(a["qp"], "resume", "approve", "the parent goes on")
    r.resume(a["ines"], "S4")
    r.claim(a["worker"], 0)
    r.capture(a["worker"], 0, {"rows": 7}, {"schema": "9f2c", "rows": 7})
    r.survey(a["worker"], 1, [(1, "T1")])
    reason = f"run {parent}, which it was a step of, went on without it"
    r.command("run_cancelled", None, [(1, "X6"), (2, "X6")], "C3", [], [], reason=reason)
    return w, w.export(a["audit"], r, 49)     # type: ignore[arg-type]


SCENARIOS = {"run-book-child": child, "run-book": book, "run-book-caps": caps, "run-book-failed": failed, "run-book-dry": dry}
