"""Claim 1: decisions in an approver's place that no delegation carries."""
from __future__ import annotations

import json
from typing import Any

from bundle import Record, b64, bearer_attestation, dump, unb64
from .kit import Skip, Tamper, after_id, mutation


def _decision(t: Tamper) -> Record:
    """The (last) decision of a substitute on a single gate."""
    found = [r for r in t.all("gate_decided") if r.body.get("on_behalf_of") and not r.body.get("chain_id")]
    if not found:
        raise Skip("no substitute decided")
    return found[-1]


def _delegation(t: Tamper, r: Record) -> Record:
    return t.one("delegation_made", where=lambda d: d.body["delegation_id"] == r.body["delegation_id"], registry=True)


def _sign(t: Tamper, d: Record, body: dict[str, Any], **payload: Any) -> None:
    """The approver really signed this delegation instead."""
    t.sign_again(d, body={**json.loads(unb64(d.proofdata["body"])), **body})
    t.edit(d, **payload)


def _iso(us: int) -> str:
    from honest import iso
    return iso(us)


def _decided_by(t: Tamper, r: Record, new: str, delegation: Record) -> None:
    """A faulty engine let `new` decide for the approver, by this delegation; `new` really signed it."""
    old = r.head["actor_ref"]
    known = {x.body.get("key_id") for x in t.all("actor_registered", "key_registered", registry=True) if x.body["actor_ref"] == new}
    key = next((k for k in t.actors.get(new, []) if k.key_id in known), None)
    if key is None:
        raise Skip(f"no seed of {new}'s key")
    proof = r.proofdata
    raw = dump({**json.loads(unb64(proof["statement"])), "actor_ref": new, "key_id": key.key_id}).encode()
    own = after_id(r.body["step_id"])
    for x in t.command(r):
        if x.head["actor_ref"] != old:
            continue
        x.head["actor_ref"] = new
        x.attestation = dump({**proof, "key_id": key.key_id, "statement": b64(raw), "signature": b64(key.sign(raw))})
        t.edit(x, on_behalf_of=old, delegation_id=delegation.body["delegation_id"], assignment_id=own, **({"decided_by": new} if "decided_by" in x.body else {}))
    row = t.state(r.head["instance_id"])
    next(s for s in row["approval_steps"] if s["step_id"] == r.body["step_id"])["ended_by"] = new
    before = next(a for a in row["assignments"] if a["task_ref"] == r.body["step_id"])
    taken = {**before, "assignment_id": own, "assignee_ref": new, "assigned_at_us": r.head["recorded_at_us"]}
    before["status"] = "Transferred"
    row["assignments"].append(taken)


@mutation("delegation-missing", "insider", "1", "wrong-approver")
def _(t: Tamper) -> None:
    t.delete(_delegation(t, _decision(t)))


@mutation("delegation-revoked-before", "insider", "1", "wrong-approver")
def _(t: Tamper) -> None:
    r = _decision(t)
    d = _delegation(t, r)
    forged = t.forge_in_registry(r, "delegation_revoked", {k: d.body[k] for k in ("delegation_id", "delegator_ref", "delegate_ref", "scope")}, known=True)
    forged.head["actor_ref"] = d.head["actor_ref"]
    forged.attestation = bearer_attestation(t.token_of(d.head["actor_ref"]))


@mutation("delegation-outside-its-period", "engine", "1", "wrong-approver")
def _(t: Tamper) -> None:
    """The period was over when the substitute decided."""
    r = _decision(t)
    d = _delegation(t, r)
    until = (d.head["recorded_at_us"] + r.head["recorded_at_us"]) // 2
    _sign(t, d, {"until": _iso(until)}, until_us=until)


@mutation("delegation-before-its-period", "engine", "1", "wrong-approver")
def _(t: Tamper) -> None:
    r = _decision(t)
    d = _delegation(t, r)
    _sign(t, d, {"from": _iso(r.head["recorded_at_us"] + 1)}, from_us=r.head["recorded_at_us"] + 1)


@mutation("delegation-of-another-scope", "engine", "1", "wrong-approver")
def _(t: Tamper) -> None:
    d = _delegation(t, _decision(t))
    _sign(t, d, {"scope": "pharma:something-else"}, scope="pharma:something-else")


@mutation("delegation-to-another", "engine", "1", "wrong-approver")
def _(t: Tamper) -> None:
    d = _delegation(t, _decision(t))
    other = next(x.body["actor_ref"] for x in t.all("actor_registered", registry=True) if x.body["actor_ref"] not in (t.app_ref, d.body["delegate_ref"], d.head["actor_ref"]))
    _sign(t, d, {"delegate_ref": other}, delegate_ref=other)


@mutation("delegation-of-a-gate-that-is-not-delegable", "engine", "1", "wrong-approver")
def _(t: Tamper) -> None:
    """The approver delegated the scope; the gate_spec does not let them."""
    for d in t.all("delegation_made", registry=True):
        for r in t.all("gate_decided", signed=True):
            opened = next((g for g in t.all("gate_opened") if g.body.get("step_id") == r.body["step_id"]), None) if not r.body.get("chain_id") else None
            if opened is not None and not r.body.get("on_behalf_of") and (opened.body["scope"], opened.body["approver_ref"]) == (d.body["scope"], d.body["delegator_ref"]):
                return _decided_by(t, r, d.body["delegate_ref"], d)
    raise Skip("nothing of this kind was delegated")


@mutation("delegation-by-another-than-the-approver", "engine", "1", "wrong-approver")
def _(t: Tamper) -> None:
    """Somebody else named the approver's substitute, and signed that."""
    d = _delegation(t, _decision(t))
    known = {(x.body["actor_ref"], x.body.get("key_id")) for x in t.all("actor_registered", "key_registered", registry=True) if x.head["sequence"] <= d.head["registry_seq"]}
    mine = (t.app_ref, d.head["actor_ref"], d.body["delegate_ref"])
    new, key = next(((ref, k) for ref, ks in t.actors.items() for k in ks if ref not in mine and (ref, k.key_id) in known), (None, None))
    if new is None or key is None:
        raise Skip("no seed of another actor")
    proof = d.proofdata
    raw = dump({**json.loads(unb64(proof["statement"])), "actor_ref": new, "key_id": key.key_id}).encode()
    d.head["actor_ref"] = new
    d.attestation = dump({**proof, "key_id": key.key_id, "statement": b64(raw), "signature": b64(key.sign(raw))})


@mutation("delegation-without-a-signature", "insider", "identity", "assurance-too-low")
def _(t: Tamper) -> None:
    d = _delegation(t, _decision(t))
    d.head["assurance"] = "server_attested"
    d.attestation = bearer_attestation(t.token_of(d.head["actor_ref"]))


@mutation("delegation-edited", "insider", "identity", "statement-mismatch")
def _(t: Tamper) -> None:
    d = _delegation(t, _decision(t))
    t.edit(d, until_us=d.body["until_us"] + 1)


@mutation("substitute-for-nobody", "insider", "1", "wrong-approver")
def _(t: Tamper) -> None:
    t.edit(_decision(t), on_behalf_of=None, delegation_id=None, assignment_id=None)


@mutation("substitute-for-another", "insider", "1", "wrong-approver")
def _(t: Tamper) -> None:
    r = _decision(t)
    t.edit(r, on_behalf_of=next(d.body["delegator_ref"] for d in t.all("delegation_made", registry=True) if d.body["delegator_ref"] != r.body["on_behalf_of"]))


@mutation("substitute-by-another-delegation", "insider", "1", "wrong-approver")
def _(t: Tamper) -> None:
    r = _decision(t)
    t.edit(r, delegation_id=next(d.body["delegation_id"] for d in t.all("delegation_made", registry=True) if d.body["delegation_id"] != r.body["delegation_id"]))


@mutation("substitute-told-by-half", "insider", "integrity", "bundle-form")
def _(t: Tamper) -> None:
    t.edit(_decision(t), assignment_id=None)


@mutation("substitute-has-a-voice-already", "engine", "1", "wrong-approver")
def _(t: Tamper) -> None:
    """Who decided in a quorum for one approver decides for another one."""
    first = t.one("gate_decided", where=lambda r: bool(r.body.get("chain_id") and r.body.get("on_behalf_of")), signed=True)
    second = t.one("gate_decided", where=lambda r: r.body.get("chain_id") == first.body["chain_id"] and not r.body.get("on_behalf_of") and r.body["decision"] == "approve", signed=True)
    _decided_by(t, second, first.head["actor_ref"], _delegation(t, first))


@mutation("substitute-not-in-the-stores", "naive", "3", "assignment-coverage", "row-missing")
def _(t: Tamper) -> None:
    r = _decision(t)
    row = t.state(r.head["instance_id"])
    row["assignments"] = [a for a in row["assignments"] if a["assignment_id"] != r.body["assignment_id"]]


@mutation("transfer-not-in-the-stores", "naive", "3", "row-missing")
def _(t: Tamper) -> None:
    r = _decision(t)
    next(a for a in t.state(r.head["instance_id"])["assignments"] if a["status"] == "Transferred" and a["task_ref"] == r.body["step_id"])["status"] = "Recalled"
