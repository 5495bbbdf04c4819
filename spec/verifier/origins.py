"""What started what inside the engine (run.md 6, *Origin*; record.md 4, *Effects*): an origin names a firing or an event that happened."""
from __future__ import annotations

from typing import Any, Optional

from .found import Report
from .texts import Json


def effect(value: Json) -> Optional[tuple[str, str]]:
    """("start", "name@2") or ("event", type), as a declaration and a record have it."""
    if not isinstance(value, dict) or (value.get("start") is None) == (value.get("event") is None):
        return None
    kind, member = ("start", "definition") if value.get("start") is not None else ("event", "type")
    said = value[kind].get(member) if isinstance(value[kind], dict) else None
    return (kind, said) if isinstance(said, str) else None


def effects(holder: dict[str, Json]) -> Optional[list[tuple[str, str]]]:
    """Those of a transition or of a record of its firing; None: they are none."""
    listed = holder.get("effects") or []
    read = [effect(e) for e in listed] if isinstance(listed, list) else [None]
    return None if None in read else [e for e in read if e is not None]


def check_origins(replays: dict[str, Any], report: Report) -> None:
    spent: set[tuple[str, int]] = set()
    for instance in sorted(replays):
        first = replays[instance].chain[0]
        origin = (first.payload or {}).get("origin") if first.action == "run_started" else None
        if origin is None:
            continue
        if not well_formed(origin):
            report.find("bundle-form", "run_started: its origin is none", first)
            continue
        if first.actor != replays[instance].registry.application_actor(first):
            report.find("statement-mismatch", "what has an origin is started by the application actor", first)
        sender = replays.get(origin["instance_id"])
        records = sender.chain if sender is not None else []
        cause = origin.get("transition_id") or origin["outbox_id"]
        whole = sender is not None and all(r.payload is not None for r in records) and (has_ended(sender) or made_at(cause) <= records[-1].at // 1000)
        if origin.get("transition_id") is not None:
            check_effect(first, origin, records, whole, spent, report)
        elif whole:
            check_event(first, origin, records, (getattr(replays[instance].of_run, "document", None) or {}).get("on") or [], report)


def has_ended(sender: Any) -> bool:
    """Nothing of it can be missing at its end: a bundle may hold a sender up to an earlier moment than what it started."""
    if sender.of_run is not None:
        return sender.of_run.state in ("completed", "failed", "cancelled", "voided")
    return sender.state in sender.declaration.get("terminal_states", [])


def made_at(uuid: str) -> int:
    """Milliseconds, of a UUIDv7; of anything else, the beginning of time."""
    digits = uuid.replace("-", "")[:12]
    return int(digits, 16) if len(digits) == 12 and all(c in "0123456789abcdef" for c in digits) else 0


def well_formed(origin: Json) -> bool:
    if not isinstance(origin, dict) or not isinstance(origin.get("instance_id"), str) or type(origin.get("depth")) is not int or origin["depth"] < 1:
        return False
    if origin.get("transition_id") is None:
        return isinstance(origin.get("outbox_id"), str)
    return isinstance(origin["transition_id"], str) and type(origin.get("effect")) is int and origin.get("outbox_id") is None


def check_effect(first: Any, origin: dict[str, Json], records: list[Any], whole: bool, spent: set[tuple[str, int]], report: Report) -> None:
    place = (origin["transition_id"], origin["effect"])
    fired = [r.payload for r in records if r.action == "transition_fired" and r.payload is not None and r.payload["transition_id"] == place[0]]
    caused = (effects(fired[0]) or []) if fired else []
    starts = caused[place[1]] if 0 <= place[1] < len(caused) else None
    if starts is None or starts[0] != "start":
        if whole:
            report.find("undeclared-transition", f"says that effect {place[1]} of the firing {place[0]} started it; no such firing is recorded", first)
    elif starts[1] != first.payload["definition"]:
        report.find("undeclared-transition", f"is a run of {first.payload['definition']}; the firing that it names starts one of {starts[1]}", first)
    if place in spent:
        report.find("undeclared-transition", f"effect {place[1]} of the firing {place[0]} started another run before", first)
    spent.add(place)
    if origin["depth"] != 1:
        report.find("undeclared-transition", f"what a firing starts has depth 1, this has {origin['depth']}", first)


def check_event(first: Any, origin: dict[str, Json], records: list[Any], on: list[Json], report: Report) -> None:
    sent = {e.get("type") for r in records for e in r.payload.get("outbound_events") or []}
    sent |= {name for r in records if r.action == "transition_fired" for kind, name in effects(r.payload) or [] if kind == "event"}
    if not any(isinstance(t, dict) and t.get("event") in sent for t in on):
        report.find("undeclared-transition", f"says that an event of {origin['instance_id']} started it, which sent none that starts such runs", first)
    before = records[0].payload.get("origin") or {}
    depth = (before.get("depth") or 0) + 1
    if origin["depth"] != depth:
        report.find("undeclared-transition", f"its depth is {origin['depth']}, that of its sender makes it {depth}", first)
