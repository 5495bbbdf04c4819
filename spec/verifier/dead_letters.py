"""Replays of dead letters: nothing is replayed but as its request was approved (replay.md 4)."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from .files import Bundle
from .found import Record, Report
from .texts import GOVERNANCE, Fault, Json, check_form, same

if TYPE_CHECKING:
    from .replay import Replay

DEFINITION = "countersign:replay@1"
# SHA-256 of the declaration that every request runs under (replay.md 1)
DECLARATION = "9c0904b6b61b2bf1899e3239d2c1c88189a86eb2a6aac7c8ecd0807d0cdf6913"
LETTER = "dead_letter_id:text kind:text target:text failure_class?:text payload_digest?:hex attempts:int reason:text"
BEGUN = ("workflow_started", "gate_opened", "chain_initiated")     # in the command of the request
ACTION = "request_replay"


def is_request(start: Optional[Record]) -> bool:
    return start is not None and start.payload is not None and start.payload.get("definition") == DEFINITION


def check_request(replay: "Replay", report: Report) -> None:
    """One request, after its replay as a process."""
    first = replay.chain[0]
    p, letter = first.payload or {}, (first.payload or {}).get("dead_letter")
    if p["declaration_digest"] != DECLARATION:
        report.find("document-mismatch", "a request under another declaration than that of requests", first)
    try:
        check_form(letter, LETTER, "bundle-form", "dead_letter")
        if letter["kind"] not in ("delivery", "step"):
            raise Fault("bundle-form", "dead_letter: it is neither a delivery nor a step")
    except Fault as f:
        report.find(f.code, f.detail, first)
        return
    if p["subject_ref"] != f"dead-letter/{letter['dead_letter_id']}":
        report.find("document-mismatch", "the subject is not the dead letter", first)
    report.checked["1"] += 1
    entry = replay.gate_spec.get("replay")
    if isinstance(entry, dict) and first.actor in (entry.get("approvers") or [entry.get("approver_ref")]):
        report.find("wrong-approver", f"{first.actor} requests the replay, and is an approver", first)
    for r in replay.chain[1:]:
        if r.action == "gate_opened" and r.payload is not None and not same(r.payload.get("request"), letter):
            report.find("binding-invalid", "the approvers are asked something else than was requested", r)
        if r.action == "transition_fired" and r.actor != replay.registry.application_actor(r):
            report.find("wrong-approver", f"moved by {r.actor}; the engine follows the gate", r)


class Asked:
    """What the governance chain says of a request."""

    def __init__(self, letter: str, key: str):
        self.letter, self.key = letter, key
        self.completed: Optional[tuple[str, Record]] = None


def check_replays(b: Bundle, replays: dict[str, Any], asked: dict[str, Asked], report: Report) -> None:
    """The chain, the requests and the runs against each other."""
    retried: set[str] = set()
    decided = {i: replay for i, replay in replays.items() if is_request(replay.chain[0])}
    for request, one in asked.items():
        if one.completed is None or request not in decided:
            continue
        approval, r = one.completed
        letter = (decided[request].chain[0].payload or {}).get("dead_letter")
        if not approved_before(decided[request], approval, r):
            report.find("governance-invalid", f"replayed, and its request was not approved by {approval} before", r)
        elif isinstance(letter, dict) and letter.get("dead_letter_id") != one.letter:
            report.find("governance-invalid", f"what was approved is not a replay of dead letter {one.letter}", r)
    for instance in sorted(replays):
        for r, key in getattr(replays[instance].of_run, "retried", []):
            said = (r.payload or {})["replay"]
            request, approval = said["dlq_replay_request_id"], said["approval_id"]
            if r.actor != replays[instance].registry.application_actor(r):
                report.find("governance-invalid", f"{r.actor} replays a dead letter; that is the engine's", r)
            if GOVERNANCE in b.chains and (request not in asked or asked[request].key != key):
                report.find("governance-invalid", f"request {request} is not about {key}", r)
            if request in decided and not approved_before(decided[request], approval, r):
                report.find("governance-invalid", f"replayed, and its request was not approved by {approval} before", r)
            if request in retried:
                report.find("governance-invalid", f"request {request} is replayed a second time", r)
            retried.add(request)


def approved_before(request: Any, approval: str, at: Record) -> bool:
    chain = request.chain
    fired = [r for r in chain if r.action == "transition_fired" and r.payload is not None and r.payload["action"] == "approve"]
    if not fired:
        return any(r.purged for r in chain)
    p = fired[-1].payload or {}
    return (p.get("chain_id") or p.get("step_id")) == approval and fired[-1].id < at.id


# ---- what a signed request says (record.md 5.2)
def route(r: Record, said: str) -> Optional[tuple[str, str, str]]:
    """The action, the path and the members of the body that lead to the first records of a request."""
    if r.action not in BEGUN:
        return None
    p = r.payload or {}
    letter = p.get("dead_letter") or p.get("request") or {}
    letter_id = letter.get("dead_letter_id") or said.rpartition("/v1/dead-letters/")[2].partition("/")[0]
    return ACTION, f"/v1/dead-letters/{letter_id}/replay-requests", "" if r.action == "chain_initiated" else "reason"


def compare(r: Record, said: dict[str, Json]) -> list[str]:
    p = r.payload or {}
    letter = p.get("dead_letter") or p.get("request")
    if isinstance(letter, dict) and letter.get("reason") != said.get("reason"):
        return ["reason of the body is not what was recorded"]
    return []
