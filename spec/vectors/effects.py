"""Transitions with effects: a firing starts a run and sends an event, and each run says what started it."""
from __future__ import annotations

from typing import Any

from bundle import Bundle
from honest import Actor, Process, World
from runs import Run, crew, publish

RELEASE = ({"states": ["made", "checked", "out"],
            "transitions": [{"from": "made", "action": "check", "to": "checked"},
                            {"from": "checked", "action": "release", "to": "out", "guard": "qp", "effects": [
                                {"start": {"definition": "shipment@1", "input": {"batch": "${event.subject_ref}"}}}, {"event": {"type": "batch.released", "data": "${event.action}"}}]}],
            "initial_state": "made", "terminal_states": ["out"]},
           {"qp": {"approver_ref": "qp_santos", "scope": "batch:release"}})
SHIPMENT = {"kind": "workflow", "name": "shipment", "steps": [{"name": "PACK"}]}
INVOICE = {"kind": "workflow", "name": "invoice", "on": [{"event": "batch.released"}, {"event": "parcel.sent"}], "steps": [{"name": "WRITE"}]}


def origin(w: World, of: Any, depth: int, **cause: Any) -> dict[str, Any]:
    return {"origin": {"instance_id": of.id, **cause, "depth": depth}}


def started(w: World, definition: str, value: Any, said: dict[str, Any]) -> Run:
    """By the engine itself: nobody asked for it by name."""
    return Run(w, None, definition, "run:" + definition, value, [(0, "T1")], **said)


def work(w: World, a: dict[str, Actor], run: Run, sent: list[dict[str, Any]]) -> None:
    run.claim(a["worker"], 0)
    run.complete(a["worker"], 0, "done", run="R4", output="done", **({"outbound_events": sent} if sent else {}))


def effects() -> tuple[World, Bundle]:
    """A release starts a shipment and is invoiced for; the shipment sends a parcel, which is invoiced for as well; a tree of 60."""
    w = World("effects", rules=3)
    a = crew(w)
    w.grant(w.admin, a["ines"], "workflows:start", "workflows:open-gate", "workflows:fire")
    publish(w, w.admin, SHIPMENT)
    publish(w, w.admin, INVOICE)
    w.publish(w.admin, "release", 1, *RELEASE)
    p = Process(w, a["ines"], "release@1", "batch/7")
    p.fire(a["ines"], "check")
    p.open(a["ines"], "release")
    p.decide(a["qp"], "release", "approve", "all results within specification")
    caused = [{"start": {"definition": "shipment@1", "input": {"batch": "batch/7"}}}, {"event": {"type": "batch.released", "data": "release"}}]
    firing = p.fire(a["ines"], "release", effects=caused)[0].body["transition_id"]
    shipment = started(w, "shipment@1", {"batch": "batch/7"}, origin(w, p, 1, transition_id=firing, effect=0))
    work(w, a, started(w, "invoice@1", "release", origin(w, p, 1, outbox_id=w.new_id())), [])
    work(w, a, shipment, [{"type": "parcel.sent", "data": 7}])
    work(w, a, started(w, "invoice@1", 7, origin(w, shipment, 2, outbox_id=w.new_id())), [])
    return w, w.export_window(a["audit"], None, None, 60)
