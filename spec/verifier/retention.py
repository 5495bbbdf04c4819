"""Retention: what was destroyed, and when."""
from __future__ import annotations

from typing import Optional

from .files import Bundle
from .found import Record, Report
from .texts import GOVERNANCE, Json, REGISTRY, same


def check_retention(b: Bundle, report: Report) -> None:
    for instance, chain in b.chains.items():
        by_id = {r.id: r for r in chain}
        destroyed: set[str] = set()
        holds: dict[str, str] = {}          # hold_id -> event_id, while active
        for r in chain:
            if r.purged:
                report.checked["retention"] += 1
                report.note("purged", f"the content of {r.action} {r.sequence} was destroyed", r)
                if r.action in ("hold_placed", "hold_released"):
                    report.note("partially-purged-coverage", "a hold was purged: on what it was cannot be told", r, ["retention"])
                if instance in (REGISTRY, GOVERNANCE) or r.action == "record_purged":
                    report.find("destruction-invalid", "a record of the registry or of governance, or a record_purged, without content", r)
            p = r.payload
            if p is None:
                continue
            if r.action == "hold_placed":
                holds[p["hold_id"]] = p["record_ref"]
            elif r.action == "hold_released":
                if holds.get(p["hold_id"]) == p["record_ref"]:
                    del holds[p["hold_id"]]
            elif r.action == "record_purged":
                report.checked["retention"] += 1
                problem = destruction_problem(r, p, by_id.get(p["event_id"]), holds)
                if problem:
                    report.find("destruction-invalid", problem, r)
                else:
                    destroyed.add(p["event_id"])
        for r in chain:
            if r.purged and r.id not in destroyed and instance not in (REGISTRY, GOVERNANCE):
                report.find("destruction-invalid", "a record without content, and no valid record_purged names it", r)


def destruction_problem(r: Record, p: dict[str, Json], gone: Optional[Record], holds: dict[str, str]) -> Optional[str]:
    if gone is None or gone.sequence >= r.sequence:
        return "names no earlier record of its chain"
    if not gone.purged:
        return "names a record that still has its content"
    h = gone.head
    said = {k: p[k] for k in ("instance_id", "sequence", "action_ref", "actor_ref", "record_hash", "attestation_digest", "policy_ref", "retention_until_us")}
    found = {**{k: h[k] for k in ("instance_id", "sequence", "action_ref", "actor_ref", "attestation_digest")}, "record_hash": gone.hash.hex(),
             "policy_ref": h["retention"]["policy_ref"], "retention_until_us": h["retention"]["retention_until_us"]}
    if not same(said, found):
        return "does not name the destroyed record as its header does"
    if found["retention_until_us"] is None or r.at < found["retention_until_us"]:
        return "the record was to be kept longer"
    return "a hold on the record was active" if gone.id in holds.values() else None
