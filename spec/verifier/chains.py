"""Chains (record.md 3)."""
from __future__ import annotations

from typing import Optional

from .files import Bundle
from .found import Record, Report


def check_chains(b: Bundle, report: Report) -> None:
    seen: dict[str, Record] = {}
    for r in b.records:
        report.checked["integrity"] += 1
        if r.id in seen:
            report.find("sequence-gap", "an event_id appears twice", r)
        seen[r.id] = r
    for instance, chain in b.chains.items():
        before: Optional[Record] = None
        for r in chain:
            if r.sequence != (before.sequence + 1 if before else 1):
                report.find("sequence-gap", f"sequence {r.sequence} follows {before.sequence if before else 'nothing'}", r)
            if r.head["prev"] != (before.hash.hex() if before else "0" * 64):
                report.find("link-broken", "prev is not the record_hash before", r)
            if before is not None:
                if r.at < before.at:
                    report.find("time-order", "recorded_at_us falls", r)
                if r.log_index <= before.log_index:
                    report.find("log-order", "log_index does not ascend with sequence", r)
                if r.id <= before.id and r.at >= before.at:
                    report.find("header-invalid", "event_id does not sort after the one before", r)
            before = r
