"""Mutations of effects and of what runs say started them (record.md section 4, *Effects*; run.md section 6, *Origin*)."""
from __future__ import annotations

from typing import Any

from bundle import dump
from .kit import Skip
from .runs import add


def firing(t: Any) -> Any:
    return t.one("transition_fired", where=lambda r: bool(r.body.get("effects")))


def start(t: Any, cause: str) -> Any:
    return t.one("run_started", where=lambda r: cause in (r.body.get("origin") or {}))


def change(t: Any, r: Any, **changes: Any) -> None:
    t.edit(r, origin={k: v for k, v in {**r.body["origin"], **changes}.items() if v is not None})


@add("effect-not-declared", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    r = firing(t)
    t.edit(r, effects=[*r.body["effects"], {"event": {"type": "money.sent", "data": None}}])


@add("effect-left-out", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    t.edit(firing(t), effects=None)


@add("effect-of-another-definition", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    r = firing(t)
    first, *others = r.body["effects"]
    t.edit(r, effects=[{"start": {**first["start"], "definition": "payout@1"}}, *others])


@add("effect-of-a-plain-transition", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    r = t.one("transition_fired", where=lambda r: not r.body.get("effects") and r.head["actor_ref"] != t.app_ref)
    t.edit(r, effects=[{"event": {"type": "money.sent", "data": None}}])


@add("origin-of-no-firing", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    r = start(t, "transition_id")
    change(t, r, transition_id=r.head["event_id"])


@add("origin-of-an-effect-that-is-none", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    change(t, start(t, "transition_id"), effect=1)


@add("origin-of-another-process", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    other = t.one("run_started", where=lambda r: "outbox_id" in (r.body.get("origin") or {}) and r.body["origin"]["depth"] > 1)
    r = start(t, "transition_id")
    change(t, other, instance_id=r.body["origin"]["instance_id"], transition_id=r.body["origin"]["transition_id"], effect=0, outbox_id=None, depth=1)


@add("origin-twice", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    """Another run, of the same definition as far as its name goes, claims the same effect."""
    r, other = start(t, "transition_id"), start(t, "outbox_id")
    t.edit(other, origin=r.body["origin"])


@add("origin-depth", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    change(t, start(t, "outbox_id"), depth=9)


@add("origin-that-sent-nothing", "insider", "2", "undeclared-transition")
def _(t: Any) -> None:
    silent = {r.head["instance_id"] for r in t.all("run_started")} - {r.head["instance_id"] for r in t.all("step_completed") if r.body.get("outbound_events")}
    r = t.one("run_started", where=lambda r: "outbox_id" in (r.body.get("origin") or {}) and r.body["origin"]["depth"] > 1)
    sender = min(silent - {r.head["instance_id"]}, default=None)
    if sender is None:
        raise Skip("every run sent something")
    change(t, r, instance_id=sender)


@add("origin-of-a-person", "insider", "identity", "statement-mismatch", "attestation-invalid", "assurance-too-low", "permission-not-held")
def _(t: Any) -> None:
    """Somebody's own start names an origin."""
    theirs = t.one("run_started", where=lambda r: r.head["actor_ref"] != t.app_ref)
    t.edit(theirs, origin={"instance_id": theirs.head["instance_id"], "outbox_id": theirs.head["event_id"], "depth": 1})


@add("origin-without-a-cause", "insider", "integrity", "bundle-form")
def _(t: Any) -> None:
    r = start(t, "outbox_id")
    r.payload = dump({**r.body, "origin": {"instance_id": r.body["origin"]["instance_id"], "depth": 1}})
