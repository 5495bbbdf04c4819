"""The governance chain (governance.md): problems open once, and resolve only by an event."""
from __future__ import annotations

import re
from typing import Any

from .dead_letters import Asked, check_replays
from .files import Bundle
from .found import Record, Report
from .registry import Registry
from .texts import GOVERNANCE, Json

CATEGORIES = ("dlq", "silent_workers", "overdue_steps", "schema_violations", "event_lag", "integrity_warnings", "failed_runs", "orphan_runs")
OBSERVED = ("silent_workers", "event_lag", "integrity_warnings")    # of these the engine's own record is the event
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


def check_governance(b: Bundle, registry: Registry, replays: dict[str, Any], report: Report) -> None:
    problems = Problems(registry)
    for r in b.chains.get(GOVERNANCE, []):
        report.checked["2"] += 1
        if r.action in ("dlq_replay_requested", "dlq_replay_completed"):
            for fault in problems.replayed(r, r.payload or {}):
                report.find("governance-invalid", fault, r)
            continue
        for entry in (r.payload or {}).get("conditions" if r.action == "condition_observed" else "problems", []):
            for fault in problems.take(r, entry if isinstance(entry, dict) else {}):
                report.find("governance-invalid", fault, r)
    check_replays(b, replays, problems.asked, report)


class Problems:
    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.open: dict[str, tuple[str, str, str, int]] = {}    # problem_id -> category, key, opening event, since when
        self.known: set[str] = set()
        self.observed: dict[tuple[str, str, str, str], int] = {}    # event, category, key, state -> when
        self.asked: dict[str, Asked] = {}       # requests to replay, by id
        self.arrived: set[tuple[str, str]] = set()      # a completed replay and its letter, of this command
        self.at = -1

    def replayed(self, r: Record, p: dict[str, Json]) -> list[str]:
        self.begin(r)
        request, letter = p.get("dlq_replay_request_id"), p.get("dead_letter_id")
        if not all(isinstance(i, str) and UUID.match(i) for i in (request, letter)):
            return ["a replay without the id of its request or of its letter"]
        if r.action == "dlq_replay_requested":
            key, known = p.get("key"), request in self.asked
            self.asked[request] = Asked(letter, str(key))
            if known:
                return [f"request {request} is made a second time"]
            return [] if self.open.get(letter, ("", "", ""))[:2] == ("dlq", key) else [f"there is no open dead letter {letter} about {key}"]
        if request not in self.asked:
            return [f"request {request} was never made"]
        asked = self.asked[request]
        if not isinstance(p.get("approval_id"), str) or not UUID.match(p["approval_id"]) or p.get("outcome") not in ("delivered", "resumed", "failed"):
            return ["a replay without its approval or its outcome"]
        if asked.completed is not None:
            return [f"request {request} is completed a second time"]
        asked.completed = (p["approval_id"], r)
        if asked.letter != letter:
            return [f"request {request} is about another dead letter than {letter}"]
        if p["outcome"] == "delivered":
            self.arrived.add((r.id, letter))
        return []

    def begin(self, r: Record) -> None:
        if r.at != self.at:     # what was observed counts in the command that observed it
            self.at, self.observed, self.arrived = r.at, {}, set()

    def take(self, r: Record, e: dict[str, Json]) -> list[str]:
        self.begin(r)
        if e.get("category") not in CATEGORIES:
            return [f"{e.get('category')!r} is no category of problems"]
        if r.action == "condition_observed":
            if not isinstance(e.get("key"), str) or e.get("state") not in ("breached", "healed"):
                return ["a condition says not of what it is, or not whether it is over"]
            if type(e.get("at_us")) is not int:
                return ["a condition does not say when it was seen"]
            self.observed[r.id, e["category"], e["key"], e["state"]] = e["at_us"]
            frozen = e["category"] == "silent_workers" and self.registry.is_frozen(e["key"], r.registry_seq)
            return [f"the worker class {e['key']} was frozen at that time"] if frozen else []
        problem, event = e.get("problem_id"), e.get("event_id")
        if not isinstance(problem, str) or not UUID.match(problem):
            return ["a problem without an id"]
        return list(self.opened(r, e, problem, event) if r.action == "problem_opened" else self.resolved(r, e, problem, event))

    def opened(self, r: Record, e: dict[str, Json], problem: str, event: Json) -> list[str]:
        faults = self.event(r, event)
        key = e.get("key")
        if not isinstance(key, str) or type(e.get("since_us")) is not int or not isinstance(e.get("detail"), str):
            return [*faults, f"problem {problem} does not say of what it is, since when or why"]
        if problem in self.known:
            return [*faults, f"problem {problem} is opened a second time"]
        if any(o[:2] == (e["category"], key) for o in self.open.values()):
            return [*faults, f"a problem of {e['category']} about {key} is open already"]
        self.known.add(problem)
        self.open[problem] = (e["category"], key, str(event), e["since_us"])
        return faults + self.shown(e["category"], key, event, "breached")

    def resolved(self, r: Record, e: dict[str, Json], problem: str, event: Json) -> list[str]:
        faults = self.event(r, event)
        if problem not in self.open:
            return [*faults, f"problem {problem} is resolved, and is not open"]
        category, key, opening, since = self.open.pop(problem)
        if event == opening:
            faults.append(f"problem {problem} is resolved by the event that opened it")
        if category != e["category"]:
            faults.append(f"problem {problem} is of {category}, not of {e['category']}")
        ticked = self.observed.get((str(event), category, key, "healed"))
        if category == "silent_workers" and ticked is not None and ticked <= since:
            faults.append(f"problem {problem} is resolved, and no worker of {key} ticked since")
        # A delivery arrives by a replay, and by nothing else.
        if category == "dlq" and key.startswith(opening + ".") and (event, problem) not in self.arrived:
            faults.append(f"event {event} is no record of a replay that delivered dead letter {problem}")
        return faults + self.shown(category, key, event, "healed")

    def event(self, r: Record, event: Json) -> list[str]:
        if not isinstance(event, str) or not UUID.match(event):
            return ["a problem that no event has opened or resolved"]
        return [] if event < r.id else [f"event {event} came after the record that names it"]

    def shown(self, category: str, key: str, event: Json, state: str) -> list[str]:
        if category not in OBSERVED or (event, category, key, state) in self.observed:
            return []
        return [f"event {event} is no record of this chain that says so of {key}"]
