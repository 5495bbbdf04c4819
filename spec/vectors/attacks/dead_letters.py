"""Claims 1 and 2: dead letters that were replayed, and nobody had approved that."""
from __future__ import annotations

from typing import Any, Callable

from bundle import GOVERNANCE, Record, dump
from .kit import Skip, Tamper, mutation


def of(t: Tamper, action: str) -> list[Record]:
    found = [r for r in t.b.chain(GOVERNANCE) if r.head["action_ref"] == action]
    if not found:
        raise Skip("nothing was replayed")
    return found


def edit(r: Record, change: Callable[[dict[str, Any]], None]) -> None:
    body = r.body
    change(body)
    r.payload = dump(body)


@mutation("replayed-without-approval", "insider", "2", "governance-invalid")
def _(t: Tamper) -> None:
    """The request that was rejected is said to have been carried out."""
    rejected = of(t, "dlq_replay_requested")[0].body["dlq_replay_request_id"]
    edit(of(t, "dlq_replay_completed")[0], lambda p: p.update(dlq_replay_request_id=rejected))


@mutation("replayed-that-nobody-requested", "insider", "2", "governance-invalid")
def _(t: Tamper) -> None:
    letter = of(t, "dlq_replay_requested")[0].body["dead_letter_id"]
    edit(of(t, "dlq_replay_completed")[0], lambda p: p.update(dlq_replay_request_id=letter))


@mutation("replayed-twice", "insider", "2", "governance-invalid")
def _(t: Tamper) -> None:
    first, second = of(t, "dlq_replay_completed")[:2]
    edit(second, lambda p: p.update(dlq_replay_request_id=first.body["dlq_replay_request_id"], approval_id=first.body["approval_id"]))


@mutation("replayed-by-the-approval-of-another-letter", "insider", "2", "governance-invalid")
def _(t: Tamper) -> None:
    completed = of(t, "dlq_replay_completed")
    other = completed[-1].body
    edit(completed[0], lambda p: p.update(approval_id=other["approval_id"]))


@mutation("replay-of-another-letter-than-requested", "insider", "2", "governance-invalid")
def _(t: Tamper) -> None:
    other = of(t, "dlq_replay_completed")[-1].body["dead_letter_id"]
    edit(of(t, "dlq_replay_completed")[0], lambda p: p.update(dead_letter_id=other))


@mutation("delivery-arrived-by-no-replay", "insider", "2", "governance-invalid")
def _(t: Tamper) -> None:
    """An arrival that failed, by its record, resolves the letter."""
    edit([r for r in of(t, "dlq_replay_completed") if r.body["outcome"] == "delivered"][0], lambda p: p.update(outcome="failed"))


@mutation("replay-approvers-asked-about-another-letter", "insider", "1", "binding-invalid")
def _(t: Tamper) -> None:
    """The approvers were asked about another letter."""
    requested = of(t, "dlq_replay_requested")
    other = requested[-1].body["dead_letter_id"]
    for r in t.b.chain(requested[0].body["dlq_replay_request_id"]):
        if r.head["action_ref"] == "gate_opened":
            return edit(r, lambda p: p["request"].update(dead_letter_id=other))
    raise Skip("no gate")
