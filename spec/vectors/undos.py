"""Runs that are undone (run.md sections 4 to 6): one is steered meanwhile (paused, stopped, a failed undo retried and declared), one was cancelled with `compensate`."""
from __future__ import annotations

from bundle import Bundle, dump
from honest import World
from runs import Run, crew, publish

STEERED = {"kind": "workflow", "name": "steered", "order": "linear", "failurePolicy": "compensate", "steps": [{"name": n} for n in "abcd"],
           "compensation": [{"step": "a", "action": "undo", "agent": "undo"}, {"step": "b", "action": "undo", "agent": "undo", "onFailure": "hold"},
                            {"step": "c", "action": "undo", "run": "http", "url": "https://crm.example/undo", "timeout": "5m"}]}


def steered() -> tuple[World, Bundle]:
    w = World("run-steered", regulated=False)
    a = crew(w)
    publish(w, w.admin, STEERED)
    r = Run(w, a["ines"], "steered@1", "trip/10", {}, [(0, "T1")])
    for seq in range(3):
        r.claim(a["worker"], seq)
        r.complete(a["worker"], seq, seq, [(seq + 1, "T1")])
    r.claim(a["worker"], 3)
    r.fail(a["worker"], 3, "no", False, "agent_error", [(4, "T1")], "R6", compensations=[[4, 2], [5, 1], [6, 0]], last_error="no")

    def control(verb: str, action: str, moves: list[tuple[int, str]], run: str, **more: str) -> None:
        body = dump({"reason": "the vendor is down"}).encode()
        r.command(action, a["ines"], moves, run, [], [], f"{verb}_run", f"/v1/runs/{r.id}/{verb}", body, reason="the vendor is down", **more)

    def declare(step: str, seq: int, done: bool, moves: list[tuple[int, str]], run: str = "", **more: object) -> None:
        body = dump({"result": "completed" if done else "not-done", "reason": "seen"}).encode()
        r.command("effect_declared", a["ines"], moves, run, [], [], "declare_effect", f"/v1/runs/{r.id}/steps/undo%3A{step}/declare-effect", body,
                  effect={"step_seq": seq, "done": done}, reason="seen", **more)      # type: ignore[arg-type]

    control("pause", "run_paused", [], "P9")
    control("resume", "run_resumed", [], "P10")
    r.claim(a["worker"], 4)
    control("stop", "run_stopped", [(4, "X11")], "S20", outcome="operator")
    control("resume", "run_resumed", [], "S21")
    r.claim(a["worker"], 4)
    r.complete(a["worker"], 4, None, [(5, "T1")])
    r.claim(a["worker"], 5)
    r.fail(a["worker"], 5, "locked", False, "agent_error")
    r.rows[5]["started_at_us"] = None
    r.command("step_retry_ordered", a["ines"], [], "", [], [], "retry_step", f"/v1/runs/{r.id}/steps/undo%3Ab/retry", b"{}", step_seq=5)
    r.claim(a["worker"], 5, "T10")
    r.fail(a["worker"], 5, "still locked", False, "agent_error")
    declare("b", 5, False, [(5, "U2"), (6, "T1")])
    r.claim(a["worker"], 6)
    declare("a", 6, True, [(6, "U1")], "R11", outputs={6: None}, outcome="partial", last_error="NOT_UNDONE: b")
    return w, w.export(a["audit"], r, 90)       # type: ignore[arg-type]


CALLED_OFF = {"kind": "workflow", "name": "called-off", "order": "linear", "steps": [{"name": "a"}, {"name": "b"}, {"name": "c", "idempotent": True}, {"name": "d"}],
              "compensation": [{"step": n, "action": "undo", "agent": "undo"} for n in "abd"]}


def called_off() -> tuple[World, Bundle]:
    """Two steps are completed and the third is at work when the run is cancelled: both are undone, and then it is cancelled."""
    w = World("run-called-off", regulated=False)
    a = crew(w)
    publish(w, w.admin, CALLED_OFF)
    r = Run(w, a["ines"], "called-off@1", "trip/11", {}, [(0, "T1")])
    for seq in range(2):
        r.claim(a["worker"], seq)
        r.complete(a["worker"], seq, seq, [(seq + 1, "T1")])
    r.claim(a["worker"], 2)
    body = dump({"compensate": True, "reason": "wrong customer"}).encode()
    r.command("run_cancelled", a["ines"], [(2, "X9"), (4, "T1")], "C8", [], [], "cancel_run", f"/v1/runs/{r.id}/cancel", body, compensations=[[4, 1], [5, 0]], compensate=True,
              reason="wrong customer")
    r.claim(a["worker"], 4)
    r.complete(a["worker"], 4, None, [(5, "T1")])
    r.claim(a["worker"], 5)
    r.complete(a["worker"], 5, None, [], "C12", outcome="rolled_back")
    return w, w.export(a["audit"], r, 60)       # type: ignore[arg-type]


SCENARIOS = {"run-steered": steered, "run-called-off": called_off}
