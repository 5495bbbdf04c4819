"""The governance chain (governance.md): problems open once, and resolve only by an event."""
from __future__ import annotations

import re

from .files import Bundle
from .found import Record, Report
from .registry import Registry
from .texts import GOVERNANCE, Json

CATEGORIES = ("dlq", "silent_workers", "overdue_steps", "schema_violations", "event_lag", "integrity_warnings", "failed_runs", "orphan_runs")
OBSERVED = ("silent_workers", "event_lag", "integrity_warnings")    # of these the engine's own record is the event
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


def check_governance(b: Bundle, registry: Registry, report: Report) -> None:
    problems = Problems(registry)
    for r in b.chains.get(GOVERNANCE, []):
        report.checked["2"] += 1
        for entry in (r.payload or {}).get("conditions" if r.action == "condition_observed" else "problems", []):
            for fault in problems.take(r, entry if isinstance(entry, dict) else {}):
                report.find("governance-invalid", fault, r)


class Problems:
    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.open: dict[str, tuple[str, str, str, int]] = {}    # problem_id -> category, key, opening event, since when
        self.known: set[str] = set()
        self.observed: dict[tuple[str, str, str, str], int] = {}    # event, category, key, state -> when
        self.at = -1

    def take(self, r: Record, e: dict[str, Json]) -> list[str]:
        if r.at != self.at:     # what was observed counts in the command that observed it
            self.at, self.observed = r.at, {}
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
        return faults + self.shown(category, key, event, "healed")

    def event(self, r: Record, event: Json) -> list[str]:
        if not isinstance(event, str) or not UUID.match(event):
            return ["a problem that no event has opened or resolved"]
        return [] if event < r.id else [f"event {event} came after the record that names it"]

    def shown(self, category: str, key: str, event: Json, state: str) -> list[str]:
        if category not in OBSERVED or (event, category, key, state) in self.observed:
            return []
        return [f"event {event} is no record of this chain that says so of {key}"]
