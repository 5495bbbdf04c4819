"""Holds, purges and retention."""
from __future__ import annotations

from bundle import det
from .kit import Tamper, after_id, mutation, purge


@mutation("content-removed", "naive", "retention", "destruction-invalid")
def _(t: Tamper) -> None:
    r = t.one("gate_decided", "transition_fired")
    r.payload = r.attestation = r.salt = None


@mutation("content-removed", "insider", "retention", "destruction-invalid")
def _(t: Tamper) -> None:
    r = t.one("gate_decided", "transition_fired")
    r.payload = r.attestation = r.salt = None


@mutation("registry-content-removed", "naive", "retention", "destruction-invalid")
def _(t: Tamper) -> None:
    r = t.all(registry=True)[-1]
    r.payload = r.attestation = r.salt = None


@mutation("destroyed-before-its-time", "insider", "retention", "destruction-invalid")
def _(t: Tamper) -> None:
    purge(t, t.one("gate_decided", "transition_fired"), t.b.manifest["made_at_us"] + 86_400_000_000)


@mutation("destroyed-though-kept-without-end", "insider", "retention", "destruction-invalid")
def _(t: Tamper) -> None:
    purge(t, t.one("gate_decided", "transition_fired"), None)


@mutation("destroyed-under-hold", "insider", "retention", "destruction-invalid")
def _(t: Tamper) -> None:
    r = t.one("gate_decided", "transition_fired")
    ref, token = t.holder("audit:hold")
    chain = t.b.chain(r.head["instance_id"])
    t.forge(chain[-2], "hold_placed", ref, {"hold_id": after_id(r.head["event_id"]), "record_ref": r.head["event_id"], "instance_id": r.head["instance_id"], "reason": "inspection"}, token)
    purge(t, r, r.head["recorded_at_us"] + 1)


@mutation("hold-release-deleted", "insider", "retention", "destruction-invalid")
def _(t: Tamper) -> None:
    purge = t.one("record_purged")
    t.delete(t.one("hold_released", where=lambda r: r.body["record_ref"] == purge.body["event_id"]))


@mutation("destruction-record-deleted", "insider", "retention", "destruction-invalid")
def _(t: Tamper) -> None:
    t.delete(t.one("record_purged"))


@mutation("destruction-record-destroyed", "insider", "retention", "destruction-invalid")
def _(t: Tamper) -> None:
    r = t.one("record_purged", where=lambda r: t.neighbours(r)[1] is not None)
    purge(t, r, r.head["recorded_at_us"] + 1)


@mutation("destruction-record-of-a-record-that-is-there", "insider", "retention", "destruction-invalid")
def _(t: Tamper) -> None:
    r = t.one("gate_decided", "transition_fired")
    kept = (r.payload, r.attestation, r.salt)
    purge(t, r, r.head["recorded_at_us"] + 1)
    r.payload, r.attestation, r.salt = kept


@mutation("destruction-record-with-another-hash", "insider", "retention", "destruction-invalid")
def _(t: Tamper) -> None:
    purge = t.one("record_purged")
    t.edit(purge, attestation_digest=det("other").hex())
