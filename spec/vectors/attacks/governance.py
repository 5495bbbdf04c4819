"""Claim 2: problems that no event has opened or resolved."""
from __future__ import annotations

from typing import Any, Callable

from bundle import GOVERNANCE, Record, dump
from .kit import Skip, Tamper, after_id, mutation


def change(t: Tamper, action: str, category: str, edit: Callable[[dict[str, Any], Record], None]) -> None:
    """The first entry of this category in a record of this action, edited."""
    for r in t.b.chain(GOVERNANCE):
        body = r.body
        for entry in body.get("problems", body.get("conditions", [])) if r.head["action_ref"] == action else []:
            if entry["category"] == category:
                edit(entry, r)
                r.payload = dump(body)
                return
    raise Skip("no such problem")


def opening(t: Tamper, category: str) -> str:
    found = [e["event_id"] for r in t.b.chain(GOVERNANCE) if r.head["action_ref"] == "problem_opened" for e in r.body["problems"] if e["category"] == category]
    if not found:
        raise Skip("no such problem")
    return str(found[0])


@mutation("problem-resolved-without-an-event", "insider", "2", "governance-invalid")
def _(t: Tamper) -> None:
    change(t, "problem_resolved", "failed_runs", lambda e, r: e.pop("event_id"))


@mutation("problem-resolved-by-the-event-that-opened-it", "insider", "2", "governance-invalid")
def _(t: Tamper) -> None:
    event = opening(t, "failed_runs")
    change(t, "problem_resolved", "failed_runs", lambda e, r: e.update(event_id=event))


@mutation("problem-resolved-by-a-later-event", "insider", "2", "governance-invalid")
def _(t: Tamper) -> None:
    change(t, "problem_resolved", "failed_runs", lambda e, r: e.update(event_id=after_id(r.head["event_id"])))


@mutation("problem-resolved-that-was-never-opened", "insider", "2", "governance-invalid")
def _(t: Tamper) -> None:
    change(t, "problem_resolved", "dlq", lambda e, r: e.update(problem_id=after_id(e["problem_id"])))


@mutation("problem-resolved-as-another-category", "insider", "2", "governance-invalid")
def _(t: Tamper) -> None:
    change(t, "problem_resolved", "dlq", lambda e, r: e.update(category="overdue_steps"))


@mutation("problem-opened-without-an-event", "insider", "2", "governance-invalid")
def _(t: Tamper) -> None:
    change(t, "problem_opened", "dlq", lambda e, r: e.pop("event_id"))


@mutation("problem-opened-twice", "insider", "2", "governance-invalid")
def _(t: Tamper) -> None:
    change(t, "problem_opened", "dlq", lambda e, r: e.update(category="failed_runs", key=e["run_id"]))


@mutation("problem-of-no-category", "insider", "2", "governance-invalid")
def _(t: Tamper) -> None:
    change(t, "problem_opened", "dlq", lambda e, r: e.update(category="nothing_serious"))


@mutation("worker-called-healthy-that-nobody-saw", "insider", "2", "governance-invalid")
def _(t: Tamper) -> None:
    change(t, "condition_observed", "silent_workers", lambda e, r: e.update(key="another:http"))


def healing(t: Tamper, edit: Callable[[dict[str, Any]], None]) -> Record:
    """The record that says that workers were heard of again, edited."""
    for r in t.b.chain(GOVERNANCE):
        body = r.body
        for entry in body.get("conditions", []):
            if (entry["category"], entry["state"]) == ("silent_workers", "healed"):
                edit(entry)
                r.payload = dump(body)
                return r
    raise Skip("no workers were heard of again")


@mutation("workers-healed-without-a-tick", "insider", "2", "governance-invalid")
def _(t: Tamper) -> None:
    """The tick is older than the silence that it ends."""
    since = [e["since_us"] for r in t.b.chain(GOVERNANCE) for e in r.body.get("problems", []) if e["category"] == "silent_workers" and "since_us" in e]
    if not since:
        raise Skip("no silence")
    healing(t, lambda e: e.update(at_us=since[0]))


@mutation("workers-healed-without-an-observation", "insider", "2", "governance-invalid")
def _(t: Tamper) -> None:
    healing(t, lambda e: e.update(state="breached"))


@mutation("workers-healed-while-frozen", "insider", "2", "governance-invalid")
def _(t: Tamper) -> None:
    """Nobody thawed the class."""
    healing(t, lambda e: None)
    t.delete(t.one("worker_class_thawed", registry=True))


@mutation("workers-frozen-without-scope", "insider", "5", "permission-not-held")
def _(t: Tamper) -> None:
    """The grant of whoever froze them is of another scope."""
    frozen = t.one("worker_class_frozen", registry=True)
    grant = next((r for r in t.all("grant_made", registry=True) if r.body["action_scope"] == "governance:act" and r.body["subject_ref"] == frozen.head["actor_ref"]), None)
    if grant is None:
        raise Skip("nobody was granted it")
    t.edit(grant, action_scope="governance:read")


@mutation("problem-opening-deleted", "insider", "2", "governance-invalid")
def _(t: Tamper) -> None:
    ended = {e["problem_id"] for r in t.b.chain(GOVERNANCE) if r.head["action_ref"] == "problem_resolved" for e in r.body["problems"]}
    for r in t.b.chain(GOVERNANCE):
        if r.head["action_ref"] == "problem_opened" and any(e["problem_id"] in ended for e in r.body["problems"]):
            return t.delete(r)
    raise Skip("no such problem")


@mutation("governance-content-removed", "insider", "retention", "destruction-invalid")
def _(t: Tamper) -> None:
    chain = t.b.chain(GOVERNANCE)
    if not chain:
        raise Skip("no governance")
    chain[0].payload = chain[0].attestation = chain[0].salt = None
