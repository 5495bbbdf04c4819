"""Mutations of runbooks (run.md section 9)."""
from __future__ import annotations

from typing import Any, Callable

from bundle import dump, sha
from .kit import Skip, mutation

Change = Callable[[Any], None]


def broken(name: str, *expected: str, claim: str = "2", form: str = "insider") -> Callable[[Change], Change]:
    """An attack on a runbook; most break its own rules."""
    def add(change: Change) -> Change:
        def attack(t: Any) -> None:
            t.one("run_started", where=lambda r: any(x.body.get("guard") == "sovereign" or "dry_run" in x.body or "checks" in x.body for x in t.b.chain(r.head["instance_id"]) if x.payload is not None))
            change(t)
        mutation(name, form, claim, *(expected or ("runbook-violation",)))(attack)
        return change
    return add


def survey(t: Any, moves: bool, drift: bool = False) -> Any:
    return t.one("pins_surveyed", where=lambda r: ("transitions" in r.body) == moves and ("drift" in r.body) == drift)


@broken("book-begun-without-a-survey")
def _(t: Any) -> None:
    r = t.one("pins_surveyed", where=lambda r: any(x["id"] == "T1" for x in r.body.get("transitions", [])))
    before = t.neighbours(r)[0]
    t.edit(before, transitions=[*before.body["transitions"], *r.body["transitions"]])
    t.delete(r)


@broken("book-survey-of-another-step")
def _(t: Any) -> None:
    r = survey(t, True)
    t.edit(r, step_seq=r.body["step_seq"] + 1 if r.body["step_seq"] < 2 else 0)


@broken("book-survey-after-the-resume-left-out")
def _(t: Any) -> None:
    t.one("run_resumed")
    t.delete(survey(t, False))


@broken("book-survey-without-a-pin")
def _(t: Any) -> None:
    r = survey(t, True)
    t.edit(r, pins=r.body["pins"][:-1])


@broken("book-survey-of-another-value")
def _(t: Any) -> None:
    r = survey(t, True)
    t.edit(r, pins=[{**r.body["pins"][0], "digest": sha(b"another").hex()}, *r.body["pins"][1:]])


@broken("book-drift-hidden")
def _(t: Any) -> None:
    t.edit(survey(t, False, True), drift=None)


@broken("book-drift-shown-as-something-else")
def _(t: Any) -> None:
    r = survey(t, False, True)
    t.edit(r, drift=[{**d, "live": "9f2d"} for d in r.body["drift"]])


@broken("book-drift-passed-over")
def _(t: Any) -> None:
    """The run goes on as if nothing had changed."""
    r = survey(t, False, True)
    t.edit(r, drift=None, run_transitions=None, outcome=None)
    for x in t.command(r):
        if x.head["action_ref"] in ("gate_opened", "moot_gate_recalled"):
            t.delete(x)


@broken("book-capture-left-out")
def _(t: Any) -> None:
    t.delete(t.one("pins_captured"))


@broken("book-captured-value-edited")
def _(t: Any) -> None:
    r = t.one("pins_captured")
    t.edit(r, pins=[{**r.body["pins"][0], "value": "as it should have been"}, *r.body["pins"][1:]])


@broken("book-yielded-something-else")
def _(t: Any) -> None:
    r = t.one("step_yielded")
    t.edit(r, yielded={**r.body["yielded"], "output": {"rows": 8}})


@broken("book-resumed-without-approval", "gate-not-approved", claim="1")
def _(t: Any) -> None:
    r = t.one("run_resumed", where=lambda r: "approval_id" in r.body)
    t.delete(t.part(r, "transition_fired"))
    t.edit(r, approval_id=None)


@broken("book-resumed-with-an-approval-that-was-not-spent", "gate-not-approved", claim="1")
def _(t: Any) -> None:
    t.delete(t.part(t.one("run_resumed", where=lambda r: "approval_id" in r.body), "transition_fired"))


@broken("book-resumed-by-an-earlier-stop", "gate-not-approved", "approval-reused", claim="1")
def _(t: Any) -> None:
    resumed = t.all("run_resumed")
    if len(resumed) < 2:
        raise Skip("it was resumed once at the most")
    approval = resumed[0].body["approval_id"]
    t.edit(resumed[1], approval_id=approval)
    t.edit(t.part(resumed[1], "transition_fired"), step_id=approval)


@broken("book-pinned-anew-to-something-else", "gate-not-approved", claim="1")
def _(t: Any) -> None:
    r = t.one("run_resumed", where=lambda r: "repinned" in r.body)
    t.edit(r, repinned=[{**d, "live": "ffff"} for d in r.body["repinned"]])


@broken("book-pinned-anew-in-silence", "gate-not-approved", claim="1")
def _(t: Any) -> None:
    t.edit(t.one("run_resumed", where=lambda r: "repinned" in r.body), repinned=None)


@broken("book-voided-without-approval", "gate-not-approved", claim="1")
def _(t: Any) -> None:
    r = t.one("run_voided", where=lambda r: "approval_id" in r.body)
    t.delete(t.part(r, "transition_fired"))
    t.edit(r, approval_id=None)


@broken("book-stop-without-its-gate", "binding-invalid", claim="3")
def _(t: Any) -> None:
    t.delete(t.one("gate_opened", where=lambda r: r.body["action"] == "resume"))


@broken("book-request-edited", "binding-invalid", claim="3")
def _(t: Any) -> None:
    r = t.one("gate_opened", where=lambda r: "request" in r.body)
    t.edit(r, request={**r.body["request"], "rows": 8})


@broken("book-request-and-digest-edited", "binding-invalid", claim="3")
def _(t: Any) -> None:
    decided = t.one("gate_decided", where=lambda r: "request_digest" in r.body)
    r = t.one("gate_opened", where=lambda r: r.body.get("step_id") == decided.body["step_id"])
    request = {**r.body["request"], "rows": 8}
    t.edit(r, request=request, request_digest=sha(dump(request).encode()).hex())


@broken("book-decision-bound-to-nothing", "binding-invalid", claim="3")
def _(t: Any) -> None:
    t.edit(t.one("gate_decided", where=lambda r: "request_digest" in r.body), request_digest=None)


@broken("book-check-left-out")
def _(t: Any) -> None:
    r = t.one("step_completed", where=lambda r: "checks" in r.body)
    t.edit(r, checks=r.body["checks"][:-1] or None)


@broken("book-completed-though-a-check-did-not-hold")
def _(t: Any) -> None:
    r = t.one("step_completed", where=lambda r: "checks" in r.body)
    t.edit(r, checks=[*r.body["checks"][:-1], {**r.body["checks"][-1], "held": False}])


@broken("book-failed-check-turned")
def _(t: Any) -> None:
    r = t.one("step_failed", where=lambda r: "checks" in r.body)
    t.edit(r, checks=[{**c, "held": True} for c in r.body["checks"]])


@broken("book-refused-output-left-out")
def _(t: Any) -> None:
    t.edit(t.one("step_failed", where=lambda r: "refused" in r.body), refused=None)


@broken("book-effect-never-declared")
def _(t: Any) -> None:
    t.delete(t.one("effect_declared"))


@broken("book-stopped-for-a-soft-cap-that-was-not-reached")
def _(t: Any) -> None:
    r = t.one("time_passed", where=lambda r: r.body.get("outcome") == "lease_expired")
    t.edit(r, outcome="soft_cap", run_transitions=[{"id": "S14", "from": "executing", "to": "stopped", "trigger": "soft_cap"}])


@broken("book-stopped-for-a-hard-cap-that-was-not-reached")
def _(t: Any) -> None:
    r = t.one("time_passed", where=lambda r: r.body.get("outcome") == "lease_expired")
    t.edit(r, outcome="hard_cap", run_transitions=[{"id": "S17", "from": "executing", "to": "stopped", "trigger": "hard_cap"}])


@broken("book-stopped-for-another-reason")
def _(t: Any) -> None:
    t.edit(t.one("time_passed", where=lambda r: r.body.get("outcome") == "lease_expired"), outcome="operator")


@broken("book-at-work-past-its-caps")
def _(t: Any) -> None:
    """Two hours later than it was, from the last claim on."""
    claims = t.all("steps_claimed")
    instance, last = claims[-1].head["instance_id"], claims[-1].head["sequence"]
    if not any(x.head["action_ref"] == "step_yielded" and x.head["sequence"] > last for x in t.b.chain(instance)):
        raise Skip("nothing is yielded behind the last claim")
    for x in t.b.chain(instance):
        if x.head["sequence"] > last:
            x.head["recorded_at_us"] += 7_200_000_000


@broken("book-begun-past-the-hard-cap")
def _(t: Any) -> None:
    """Two hours later than it was, from the last claim on, that claim included."""
    claims = t.all("steps_claimed")
    if not any("budget_us" in x.body for x in t.all("run_resumed")):
        raise Skip("it has no hard cap")
    for x in t.b.chain(claims[-1].head["instance_id"]):
        if x.head["sequence"] >= claims[-1].head["sequence"]:
            x.head["recorded_at_us"] += 7_200_000_000


@broken("book-budget-enlarged")
def _(t: Any) -> None:
    t.edit(t.one("run_resumed", where=lambda r: "budget_us" in r.body), budget_us=360_000_000_000)


@broken("book-step-skipped")
def _(t: Any) -> None:
    start = t.one("run_started")
    name = t.state(start.head["instance_id"])["run"]["steps"][2]["name"]
    move = {"id": "X12", "step": name, "step_seq": 2, "from": "not_started", "to": "skipped", "actor_class": "system", "trigger": "on_failure_skip"}
    t.forge(start, "time_passed", t.app_ref, {"instance_id": start.head["instance_id"], "transitions": [move]}, None)


@broken("book-gated-step-taken-over")
def _(t: Any) -> None:
    t.edit(t.one("run_started"), taken_over={"completed": "2", "skipped": "", "outputs_digest": sha(b"").hex()})


@broken("book-dry-run-as-a-real-one", "undeclared-transition", "runbook-violation")
def _(t: Any) -> None:
    t.edit(t.one("run_started", where=lambda r: "dry_run" in r.body), dry_run=None)


@broken("book-dry-run-that-stops")
def _(t: Any) -> None:
    t.one("run_started", where=lambda r: "dry_run" in r.body)
    r = t.one("pins_surveyed")
    t.edit(r, outcome="drift", run_transitions=[{"id": "S12", "from": "executing", "to": "stopped", "trigger": "drift"}])


@broken("book-stopped-by-the-software", "permission-not-held", claim="5")
def _(t: Any) -> None:
    """Only the child of another run is stopped without somebody who may."""
    begun = t.one("run_started", where=lambda r: "parent_run_id" in r.body)
    t.one("run_stopped", where=lambda r: r.head["instance_id"] == begun.head["instance_id"])
    t.edit(begun, parent_run_id=None, parent_step_seq=None)
    t.state(begun.head["instance_id"])["run"].update(parent_run_id=None, parent_step_seq=None)
