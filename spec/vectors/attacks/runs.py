"""Mutations of runs (run.md section 6)."""
from __future__ import annotations

import json
from typing import Any, Callable

from bundle import bearer_attestation, dump, sha, unb64
from .kit import NEUTRAL, Skip, mutation


def moved(t: Any, tid: str, *actions: str) -> tuple[Any, list[dict[str, Any]], int]:
    """The first record with this transition of a single step: it, its transitions, and the place there."""
    for r in t.all(*actions):
        lines = r.body.get("transitions", [])
        for i, line in enumerate(lines):
            if line["id"] == tid and "step_seq" in line:
                return r, lines, i
    raise Skip(f"nothing made the transition {tid}")


def run_of(t: Any) -> dict[str, Any]:
    """The line of a run that can be followed."""
    for row in t.b.state:
        if "run" in row and all(r.payload is not None for r in t.b.chain(row["instance_id"])):
            return row
    raise Skip("no run")


def whole(t: Any, r: Any) -> None:
    """Of a run whose records were purged nothing more is told."""
    if any(x.payload is None for x in t.b.chain(r.head["instance_id"])):
        raise Skip("records of it were purged")


def add(name: str, form: str, claim: str, *expected: str) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    return mutation(name, form, claim, *expected)


def edit_line(name: str, tid: str, expected: str, claim: str, actions: tuple[str, ...] = (), **changes: Any) -> None:
    @add(name, "insider", claim, expected)
    def _(t: Any) -> None:
        r, lines, i = moved(t, tid, *actions)
        whole(t, r)
        lines[i] = {**lines[i], **changes}
        t.edit(r, transitions=lines)


def drop_line(name: str, tid: str, expected: str, claim: str) -> None:
    @add(name, "insider", claim, expected)
    def _(t: Any) -> None:
        r, lines, i = moved(t, tid)
        whole(t, r)
        del lines[i]
        t.edit(r, transitions=lines or None)

drop_line("run-transition-skipped", "T2", "undeclared-transition", "2")
edit_line("run-transition-from-elsewhere", "T9", "undeclared-transition", "2", **{"from": "waiting"})
edit_line("run-transition-with-unknown-id", "T8", "undeclared-transition", "2", id="T99")
edit_line("run-transition-by-another-class", "T1", "undeclared-transition", "2", actor_class="pic_human")
edit_line("run-transition-of-another-step", "T8", "undeclared-transition", "2", ("step_completed",), step="somebody-else")
edit_line("run-failure-as-completion", "T9", "undeclared-transition", "2", id="T8", to="completed", trigger="step_complete")
drop_line("run-step-never-blocked", "X8", "binding-invalid", "3")


def of_a_task(t: Any, tid: str, action: str) -> tuple[Any, list[dict[str, Any]], int]:
    """The first record in which the person in charge of a task made this transition."""
    for r in t.all(action):
        lines = r.body.get("transitions", [])
        for i, line in enumerate(lines):
            if line["id"] == tid and line["actor_class"] == "task_pic_human":
                return r, lines, i
    raise Skip("no task of a person")


@add("run-task-by-the-class-of-a-step", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    r, lines, i = of_a_task(t, "T2", "step_claimed")
    lines[i] = {**lines[i], "actor_class": "pic_human"}
    t.edit(r, transitions=lines)


@add("run-step-completed-over-its-task", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    r, lines, i = of_a_task(t, "T8", "step_completed")
    if len(lines) < 2:
        raise Skip("it was not the last task")
    seq = lines.pop(i)["step_seq"]
    t.edit(r, transitions=lines, outputs=[o for o in r.body["outputs"] if o.get("step_seq") != seq])


@add("run-task-begun-before-its-step", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    claim, lines, _i = of_a_task(t, "T2", "step_claimed")
    start = t.one("run_started")
    for r in t.all("step_claimed"):
        moved = r.body["transitions"]
        early = [x for x in moved if x["id"] == "T1"]
        if early and r.head["instance_id"] == start.head["instance_id"]:
            t.edit(r, transitions=[x for x in moved if x["id"] != "T1"])
            t.edit(start, transitions=[*start.body["transitions"], *early])
            return
    raise Skip("no task began with its step")


@add("run-task-left-behind", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    for r in t.all():
        lines = r.body.get("transitions", []) if r.payload is not None else []
        for i, line in enumerate(lines):
            if line["id"] == "X4" and "/" in line.get("step", ""):
                whole(t, r)
                t.edit(r, transitions=[x for x in lines if x is not line])
                return
    raise Skip("no task was skipped with its step")


@add("run-child-waits-for-something-else", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    r = t.one("child_waiting")
    whole(t, r)
    t.edit(r, waits=[{**r.body["waits"][0], "facet": "waiting_human"}])


@add("run-child-goes-on-without-one", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    r = t.one("child_started")
    whole(t, r)
    t.edit(r, children=None)


@add("run-tasks-miscounted", "insider", "2", "document-mismatch")
def _(t: Any) -> None:
    r = t.one("run_started")
    if "tasks" not in r.body:
        raise Skip("no tasks")
    t.edit(r, tasks=r.body["tasks"] + 1)


@add("run-step-completed-again", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    r, _lines, _i = moved(t, "T8", "step_completed")
    whole(t, r)
    token = t.token_of(r.head["actor_ref"])
    t.forge(r, "step_completed", r.head["actor_ref"], r.body, token)


@add("run-record-after-the-end", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    row = run_of(t)
    last = [r for r in t.b.chain(row["instance_id"]) if r.head["action_ref"] not in NEUTRAL][-1]
    t.forge(last, "time_passed", t.app_ref, {"instance_id": row["instance_id"]}, None)


@add("run-moves-after-the-end", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    row = run_of(t)
    last = [r for r in t.b.chain(row["instance_id"]) if r.head["action_ref"] not in NEUTRAL][-1]
    move = {"id": "R7", "from": "blocked", "to": "executing", "trigger": "input_received"}
    t.forge(last, "time_passed", t.app_ref, {"instance_id": row["instance_id"], "run_transitions": [move]}, None)


@add("run-state-jumped", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    r = t.one("run_started")
    whole(t, r)
    t.edit(r, run_transitions=r.body["run_transitions"][1:])


@add("run-unblocked-without-approval", "insider", "1", "gate-not-approved")
def _(t: Any) -> None:
    r, _lines, _i = moved(t, "X8r", "gate_followed")
    for x in t.command(r):
        if x.head["action_ref"] in ("gate_decided", "transition_fired"):
            t.delete(x)


@add("run-unblocked-though-only-fired", "insider", "1", "gate-not-approved")
def _(t: Any) -> None:
    r, _lines, _i = moved(t, "X8r", "gate_followed")
    t.delete(t.part(r, "gate_decided"))


@add("run-gate-passed-without-being-consumed", "insider", "1", "gate-not-approved")
def _(t: Any) -> None:
    r, _lines, _i = moved(t, "X8r", "gate_followed")
    t.delete(t.part(r, "transition_fired"))


@add("run-ready-without-its-gate", "insider", "3", "binding-invalid")
def _(t: Any) -> None:
    r, lines, i = moved(t, "X8")
    lines[i] = {**lines[i], "id": "T1", "to": "ready", "actor_class": "mow_orchestrator", "trigger": "precondition"}
    t.edit(r, transitions=lines)


@add("run-cancelled-without-its-gate", "insider", "1", "gate-not-approved")
def _(t: Any) -> None:
    r = t.one("run_cancelled")
    t.delete(t.part(r, "transition_fired"))


@add("run-voided-without-its-gate", "insider", "1", "gate-not-approved")
def _(t: Any) -> None:
    r = t.one("run_cancelled", where=lambda x: "compensate" not in x.body)
    [move] = r.body["run_transitions"]
    row = {"stopped": "V1", "executing": "V2", "blocked": "V3", "paused": "V4"}.get(move["from"])
    if row is None:
        raise Skip("cancelled before it began")
    t.delete(t.part(r, "transition_fired"))
    r.head["action_ref"] = "run_voided"
    t.edit(r, run_transitions=[{**move, "id": row, "to": "voided", "trigger": "workflow_void"}])


@add("run-gate-left-open", "insider", "4", "assignment-coverage")
def _(t: Any) -> None:
    r = t.one("run_cancelled")
    t.delete(t.part(r, "moot_gate_recalled"))


@add("run-cancelled-by-another-approval", "insider", "1", "gate-not-approved", "statement-mismatch")
def _(t: Any) -> None:
    r = t.one("run_cancelled", where=lambda x: "approval_id" in x.body)
    t.edit(r, approval_id=r.head["event_id"])


@add("run-cancelled-by-another-approval", "engine", "1", "gate-not-approved")
def _(t: Any) -> None:
    r = t.one("run_cancelled", where=lambda x: "approval_id" in x.body, signed=True)
    other = r.head["event_id"]
    t.sign_again(r, body={**json.loads(unb64(r.proofdata["body"])), "approval_id": other})
    t.edit(r, approval_id=other)


@add("run-gate-mooted-too-early", "insider", "4", "moot-invalid")
def _(t: Any) -> None:
    r = t.one("run_cancelled")
    moot = t.part(r, "moot_gate_recalled")
    opened = t.one("gate_opened", where=lambda x: x.body["action"] == "cancel")
    body = moot.body
    t.delete(moot)
    t.forge(opened, "moot_gate_recalled", t.app_ref, body, None)


@add("run-worker-as-a-person", "insider", "identity", "statement-mismatch")
def _(t: Any) -> None:
    for r in t.all("step_completed"):
        lines = r.body.get("transitions", [])
        if lines and lines[0]["id"] == "T8" and lines[0]["actor_class"] == "executor_worker":
            whole(t, r)
            return t.edit(r, transitions=[{**lines[0], "actor_class": "pic_human"}, *lines[1:]])
    raise Skip("no worker completed anything")

drop_line("run-late-as-in-time", "T5", "undeclared-transition", "2")


@add("run-late-by-less", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    r = t.one(where=lambda r: "sla" in r.body)
    whole(t, r)
    t.edit(r, sla=[{**x, "sla_breach_us": 1} for x in r.body["sla"]])


@add("run-lateness-left-out", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    r = t.one(where=lambda r: "sla" in r.body)
    whole(t, r)
    t.edit(r, sla=None)


@add("run-overdue-before-its-time", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    r = t.one("run_started", where=lambda r: any("start_by_us" in c for c in r.body.get("charges", [])))
    whole(t, r)
    t.edit(r, charges=[{**c, "start_by_us": c["start_by_us"] + 86_400_000_000} for c in r.body["charges"]])


@add("run-unclaimed-step-recovers", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    r, lines, i = moved(t, "X15", "steps_claimed")
    whole(t, r)
    t.edit(r, transitions=[*lines[:i], {**lines[i], "id": "T6", "actor_class": "system", "trigger": "deadline_extended"}, *lines[i + 1:]])


@add("run-store-start-by", "naive", "3", "row-missing")
def _(t: Any) -> None:
    for row in t.b.state:
        for step in row.get("run", {}).get("steps", []):
            if "start_by_us" in step.get("charge", {}):
                step["charge"] = {**step["charge"], "start_by_us": 1}
                return
    raise Skip("nobody was to claim anything")


@add("run-put-in-charge-afterwards", "insider", "identity", "statement-mismatch")
def _(t: Any) -> None:
    r = t.one("run_started", where=lambda r: "charges" in r.body)
    whole(t, r)
    if any("start_by_us" in c for c in r.body["charges"]):
        raise Skip("every claim says once more who is in charge")
    t.edit(r, charges=[{**c, "pic": "qp_santos"} for c in r.body["charges"]])


@add("run-reopened-without-approval", "insider", "1", "gate-not-approved")
def _(t: Any) -> None:
    r = t.one("step_reopened")
    t.delete(t.part(r, "transition_fired"))


@add("run-reopened-beside-another-record", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    r = t.one("step_reopened")
    whole(t, r)
    t.edit(r, correction={**r.body["correction"], "prior_event_id": r.head["event_id"]})


@add("run-corrected-for-no-reason", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    r = t.one("step_reopened")
    whole(t, r)
    t.edit(r, correction={**r.body["correction"], "correction_reason": "boredom"})


@add("run-store-breach-erased", "naive", "3", "row-missing")
def _(t: Any) -> None:
    for row in t.b.state:
        for step in row.get("run", {}).get("steps", []):
            if step.get("charge", {}).get("sla_breach_us") is not None:
                step["charge"] = {**step["charge"], "sla_breach_us": None}
                return
    raise Skip("nothing was late")


@add("run-compensations-swapped", "insider", "2", "compensation-order")
def _(t: Any) -> None:
    r = t.one(where=lambda r: len(r.body.get("compensations", [])) > 1)
    (a, x), (b, y), *rest = r.body["compensations"]
    t.edit(r, compensations=[[a, y], [b, x], *rest])


@add("run-compensation-left-out", "insider", "2", "compensation-order")
def _(t: Any) -> None:
    r = t.one(where=lambda r: len(r.body.get("compensations", [])) > 1)
    t.edit(r, compensations=r.body["compensations"][:1])


@add("run-compensation-not-listed", "insider", "2", "compensation-order")
def _(t: Any) -> None:
    r = t.one("compensations_listed", where=lambda r: len(r.body["compensations"]) > 1)
    t.edit(r, compensations=r.body["compensations"][:1])


def of_an_undo(t: Any, tid: str, *actions: str) -> tuple[Any, list[dict[str, Any]], int]:
    """The last record in which a compensation made this transition: it, its transitions, and the place there."""
    row = run_of(t)
    undos = {s["step_seq"] for s in row["run"]["steps"] if s["compensates"] is not None}
    for r in reversed([r for r in t.all(*actions) if r.head["instance_id"] == row["instance_id"]]):
        lines = r.body.get("transitions", [])
        for i, line in enumerate(lines):
            if line["id"] == tid and line.get("step_seq") in undos:
                return r, lines, i
    raise Skip(f"no compensation made the transition {tid}")


@add("run-undo-behind-a-failed-one", "insider", "2", "compensation-order")
def _(t: Any) -> None:
    r, lines, i = of_an_undo(t, "T9", "step_failed")
    row = next(s for s in run_of(t)["run"]["steps"] if s["step_seq"] == lines[i]["step_seq"] + 1) if len(run_of(t)["run"]["steps"]) > lines[i]["step_seq"] + 1 else None
    if row is None:
        raise Skip("nothing is to be undone behind it")
    line = {"id": "T1", "step": row["name"], "step_seq": row["step_seq"], "from": "not_started", "to": "ready", "actor_class": "mow_orchestrator", "trigger": "precondition"}
    t.edit(r, transitions=[*lines, line])


@add("run-failed-undo-not-held", "insider", "2", "compensation-order")
def _(t: Any) -> None:
    """The definition says nothing of holding it: the failure of an undo ends the run."""
    r, lines, i = of_an_undo(t, "T8", "step_completed")
    lines[i] = {**lines[i], "id": "T9", "to": "failed", "trigger": "executor_failure"}
    if r.body.get("run_transitions"):
        raise Skip("it ends the run")
    t.edit(r, transitions=lines, outputs=None)


@add("run-undo-declared-by-a-worker", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    r, lines, i = of_an_undo(t, "T8", "step_completed")
    lines[i] = {**lines[i], "id": "U1", "actor_class": "reviewer", "trigger": "undo_declared"}
    t.edit(r, transitions=lines)


@add("run-undoing-resumed-forward", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    """compensating → executing (cannot resume after compensation starts)"""
    r = t.one("run_resumed", where=lambda r: any(x["id"] == "P10" for x in r.body.get("run_transitions", [])))
    t.edit(r, run_transitions=[{"id": "P3", "from": "paused", "to": "executing", "trigger": "workflow_resume"}])


def call_off(t: Any) -> Any:
    return t.one("run_cancelled", where=lambda r: "compensate" in r.body)


def without_undos(t: Any, r: Any) -> list[dict[str, Any]]:
    steps = {s["step_seq"] for s in run_of(t)["run"]["steps"] if s["compensates"] is None}
    return [x for x in r.body.get("transitions", []) if "step_seqs" in x or x["step_seq"] in steps]


@add("run-called-off-without-undoing", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    """Cancelled with `compensate`, and it ended at once."""
    r = call_off(t)
    t.edit(r, transitions=without_undos(t, r), compensations=None, run_transitions=[{"id": "C3", "from": "executing", "to": "cancelled", "trigger": "workflow_cancel"}])


@add("run-called-off-left-as-it-was", "insider", "2", "compensation-order")
def _(t: Any) -> None:
    """Cancelled with `compensate`, and what was to be undone is not listed."""
    r = call_off(t)
    t.edit(r, transitions=without_undos(t, r), compensations=None, outcome="rolled_back",
           run_transitions=[r.body["run_transitions"][0], {"id": "C12", "from": "compensating", "to": "cancelled", "trigger": "all_compensated"}])


@add("run-called-off-completed", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    r = t.one("step_completed", where=lambda r: any(x["id"] == "C12" for x in r.body.get("run_transitions", [])))
    t.edit(r, run_transitions=[{"id": "R10", "from": "compensating", "to": "completed", "trigger": "all_compensated"}])


@add("run-undone-by-a-plain-cancel", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    t.edit(call_off(t), compensate=None)


@add("run-output-left-out", "insider", "3", "output-missing")
def _(t: Any) -> None:
    r, _lines, _i = moved(t, "T8", "step_completed")
    whole(t, r)
    t.edit(r, outputs=None)


@add("run-output-of-another-step", "insider", "3", "output-missing")
def _(t: Any) -> None:
    r, _lines, _i = moved(t, "T8", "step_completed")
    whole(t, r)
    outputs = r.body["outputs"]
    t.edit(r, outputs=[{**outputs[0], "step_seq": outputs[0]["step_seq"] + 1}, *outputs[1:]])


@add("run-output-edited", "insider", "3", "row-missing", "output-missing")
def _(t: Any) -> None:
    r, _lines, _i = moved(t, "T8", "step_completed")
    whole(t, r)
    outputs = r.body["outputs"]
    t.edit(r, outputs=[{"step_seq": outputs[0]["step_seq"], "output": "as it should have been"}, *outputs[1:]])


@add("run-begun-before-its-turn", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    for r in t.all("run_started"):
        row = t.state(r.head["instance_id"])["run"]
        lines = r.body.get("transitions", [])
        if r.payload is not None and any("step_seq" in x and x["id"] == "T1" for x in lines) and len(row["steps"]) > 1:
            whole(t, r)
            line = next(x for x in lines if "step_seq" in x)
            t.edit(r, transitions=[*lines, {**line, "step": row["steps"][1]["name"], "step_seq": 1}])
            return
    raise Skip("no run begins with one step")


def own_of(t: Any, *actions: str) -> Any:
    for r in t.all(*actions):
        if r.body.get("own_transition") is not None:
            whole(t, r)
            return r
    raise Skip("nobody made a transition of one's own")


def edit_own(name: str, expected: str, claim: str, actions: tuple[str, ...] = (), **changes: Any) -> None:
    @add(name, "insider", claim, expected)
    def _(t: Any) -> None:
        r = own_of(t, *(actions or ("step_transitioned",)))
        t.edit(r, own_transition={**r.body["own_transition"], **changes})

edit_own("run-own-undeclared", "undeclared-transition", "2", trigger="whatever")
edit_own("run-own-from-elsewhere", "undeclared-transition", "2", **{"from": "waiting"})
edit_own("run-own-as-proposed", "undeclared-transition", "2", id="let_lie", to="waiting", trigger="let_lie")


@add("run-own-left-out", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    t.edit(own_of(t, "step_transitioned"), own_transition=None)


@add("run-own-floor-left-out", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    t.edit(own_of(t, "step_waiting"), transitions=None, waits=None)


@add("run-own-machine-unbound", "insider", "2", "document-mismatch")
def _(t: Any) -> None:
    r = t.one("run_started")
    if len(r.body.get("machines", [])) != 3:
        raise Skip("it is bound to no machine of one's own")
    t.edit(r, machines=r.body["machines"][:2])


@add("run-own-store", "naive", "2", "replay-mismatch")
def _(t: Any) -> None:
    steps = [s for s in run_of(t)["run"]["steps"] if "derived_state" in s]
    if not steps:
        raise Skip("nothing lies over a state")
    del steps[-1]["derived_state"]


@add("run-steps-miscounted", "insider", "2", "document-mismatch")
def _(t: Any) -> None:
    r = t.one("run_started")
    t.edit(r, steps=r.body["steps"] + 1)


@add("run-definition-swapped", "naive", "2", "document-mismatch")
def _(t: Any) -> None:
    r = t.one("run_started")
    line = next(d for d in t.b.documents if d["digest"] == r.body["document_digest"])
    line["body"] = dump({**json.loads(line["body"]), "order": "linear", "name": "another"})


@add("run-definition-swapped", "insider", "2", "document-mismatch")
def _(t: Any) -> None:
    r = t.one("run_started")
    line = next(d for d in t.b.documents if d["digest"] == r.body["document_digest"])
    body = dump({**json.loads(line["body"]), "name": "another"})
    digest = sha(body.encode()).hex()
    line.update(digest=digest, body=body)
    t.b.documents.sort(key=lambda d: d["digest"])
    t.edit(r, document_digest=digest)
    t.state(r.head["instance_id"])["run"]["document_digest"] = digest


@add("run-engine-record-by-a-worker", "insider", "identity", "statement-mismatch")
def _(t: Any) -> None:
    r = t.one("time_passed", "gate_followed", "compensations_listed")
    ref, token = t.holder("tasks:work")
    r.head.update(actor_ref=ref, assurance="server_attested")
    r.attestation = bearer_attestation(token)


@add("run-worker-without-a-grant", "insider", "5", "permission-not-held")
def _(t: Any) -> None:
    r = t.one("steps_claimed")
    held = {g["subject_ref"] for g in t.b.grants if g["action_scope"].startswith("tasks:work")}
    registered = [x.body["actor_ref"] for x in t.all("actor_registered", registry=True)]
    ref = next((ref for ref in ["admin", *registered] if ref not in held and t.has_token(ref)), None)
    if ref is None:
        raise Skip("everybody with a token may work")
    r.head.update(actor_ref=ref, assurance="server_attested")
    r.attestation = bearer_attestation(t.token_of(ref))


@add("run-reason-edited", "insider", "identity", "statement-mismatch")
def _(t: Any) -> None:
    t.edit(t.one("run_cancelled", signed=True), reason="for quite another reason")


@add("run-event-edited", "insider", "identity", "statement-mismatch")
def _(t: Any) -> None:
    r = t.one("event_received", signed=True)
    t.edit(r, event={**r.body["event"], "id": "evt-2"})


@add("run-form-broken", "insider", "integrity", "bundle-form")
def _(t: Any) -> None:
    r, lines, i = moved(t, "T8", "step_completed")
    whole(t, r)
    t.edit(r, transitions=[{k: v for k, v in lines[i].items() if k != "trigger"}])


for name, code, change in (
        ("run-store-state", "replay-mismatch", lambda run: run.update(state="executing")),
        ("run-store-step-state", "replay-mismatch", lambda run: run["steps"][0].update(state="skipped")),
        ("run-store-attempts", "row-missing", lambda run: run["steps"][0].update(attempts=7)),
        ("run-store-outcome", "row-missing", lambda run: run.update(outcome="operator")),
        ("run-store-completed-at", "row-missing", lambda run: run["steps"][0].update(completed_at_us=1)),
        ("run-store-output", "row-missing", lambda run: run["steps"][0].update(output='"other"', output_digest=sha(b'"other"').hex())),
        ("run-store-input-digest", "row-missing", lambda run: run.update(input_digest="0" * 64)),
        ("run-store-step-gone", "row-missing", lambda run: run["steps"].pop()),
        ("run-store-step-added", "record-missing", lambda run: run["steps"].append({**run["steps"][-1], "step_seq": len(run["steps"])}))):
    def change_store(t: Any, change: Callable[[dict[str, Any]], Any] = change) -> None:
        change(run_of(t)["run"])
    add(name, "naive", "2" if code == "replay-mismatch" else "3", code)(change_store)


@add("run-store-called-a-process", "naive", "3", "row-missing")
def _(t: Any) -> None:
    del run_of(t)["run"]
