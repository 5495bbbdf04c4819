"""Claim 1: transitions that their approvals do not carry."""
from __future__ import annotations

import json

from bundle import Record, b64, dump, sha, unb64
from .kit import NEUTRAL, Skip, Tamper, after_id, mutation, purge


@mutation("withdrawn-in-another-name", "insider", "1", "wrong-approver")
def _(t: Tamper) -> None:
    t.edit(t.one("step_withdrawn", where=lambda r: r.head["actor_ref"] == t.app_ref), decided_by=t.app_ref)


@mutation("approved-by-a-purged-decision-of-another", "insider", "1", "gate-not-approved")
def _(t: Tamper) -> None:
    firing = next((r for r in t.all("transition_fired") if r.body["guarded"] and not r.body.get("chain_id") and not any(x.payload is None for x in t.b.chain(r.head["instance_id"]))), None)
    if firing is None:
        raise Skip("no firing on a single gate")
    r = t.decision_of(firing)
    r.head["actor_ref"] = next(x.body["actor_ref"] for x in t.all("actor_registered", registry=True) if x.body["actor_ref"] not in (r.head["actor_ref"], t.app_ref))
    purge(t, r, r.head["recorded_at_us"] + 1)


@mutation("approver-swapped-in-decision", "naive", "integrity", "inclusion-invalid", "link-broken")
def _(t: Tamper) -> None:
    r = t.one("gate_decided")
    r.head["actor_ref"] = next(x.body["actor_ref"] for x in t.all("actor_registered", registry=True) if x.body["actor_ref"] not in (r.head["actor_ref"], t.app_ref))
    r.header = dump(r.head)


@mutation("approver-swapped-in-decision", "insider", "1", "wrong-approver", "attestation-proof-invalid", "statement-mismatch")
def _(t: Tamper) -> None:
    r = t.one("gate_decided", where=lambda r: r.body["decision"] != "withdraw")
    old = r.head["actor_ref"]
    new = next(x.body["actor_ref"] for x in t.all("actor_registered", registry=True) if x.body["actor_ref"] not in (old, t.app_ref))
    for x in t.command(r):
        if x.head["actor_ref"] == old:
            x.head["actor_ref"] = new
            if "decided_by" in x.body:
                t.edit(x, decided_by=new)
    _ended_by(t, r, new)


def _ended_by(t: Tamper, r: Record, new: str) -> None:
    for s in t.state(r.head["instance_id"])["approval_steps"]:
        if s["step_id"] == r.body.get("step_id"):
            s["ended_by"] = new


@mutation("decision-by-somebody-else", "engine", "1", "wrong-approver")
def _(t: Tamper) -> None:
    r = t.one("gate_decided", signed=True, where=lambda r: r.body["decision"] != "withdraw")
    old = r.head["actor_ref"]
    revoked = {(x.body["actor_ref"], x.body["key_id"]) for x in t.all("key_revoked", registry=True)}
    known = {(x.body["actor_ref"], x.body.get("key_id")) for x in t.all("actor_registered", "key_registered", registry=True) if x.head["sequence"] <= r.head["registry_seq"]}
    new, key = next(((ref, k) for ref, ks in t.actors.items() for k in ks if ref != old and (ref, k.key_id) in known - revoked), (None, None))
    if new is None or key is None:
        raise Skip("no seed of another actor")
    proof = r.proofdata
    raw = dump({**json.loads(unb64(proof["statement"])), "actor_ref": new, "key_id": key.key_id}).encode()
    for x in t.command(r):
        if x.head["actor_ref"] == old:
            x.head["actor_ref"] = new
            x.attestation = dump({**proof, "key_id": key.key_id, "statement": b64(raw), "signature": b64(key.sign(raw))})
            if "decided_by" in x.body:
                t.edit(x, decided_by=new)
    _ended_by(t, r, new)


@mutation("approver-swapped-in-gate", "insider", "1", "wrong-approver")
def _(t: Tamper) -> None:
    r = t.one("gate_opened", where=lambda r: bool(r.body.get("approver_ref")))
    t.edit(r, approver_ref=r.head["actor_ref"] + "_deputy")
    row = t.state(r.head["instance_id"])
    for s in row["approval_steps"]:
        if s["step_id"] == r.body["step_id"]:
            s["approver_ref"] = r.body["approver_ref"]
    for a in row["assignments"]:
        if a["assignment_id"] == r.body["assignment_id"]:
            a["assignee_ref"] = r.body["approver_ref"]


@mutation("quorum-about-another-subject", "insider", "1", "wrong-approver")
def _(t: Tamper) -> None:
    t.edit(t.one("chain_initiated"), subject_ref="batch/another:pass")


@mutation("quorum-lowered", "insider", "1", "wrong-approver")
def _(t: Tamper) -> None:
    r = t.one("chain_initiated", where=lambda r: r.body.get("m", 0) > 1)
    t.edit(r, m=1)
    for g in t.state(r.head["instance_id"])["gates"]:
        if g["gate_id"] == r.body["chain_id"]:
            g["m"] = 1


@mutation("quorum-vote-deleted", "insider", "1", "gate-not-approved")
def _(t: Tamper) -> None:
    settled = t.one("chain_resolved", where=lambda r: r.body["outcome"] == "Approved")
    votes = [r for r in t.all("step_approved", "gate_decided") if r.body.get("chain_id") == settled.body["chain_id"] and r.head["recorded_at_us"] < settled.head["recorded_at_us"]
             and r.body.get("decision", "approve") == "approve"]
    if len(votes) < 2:
        raise Skip("one vote settled it")
    gone = votes[0].body["step_id"]
    for r in votes:
        if r.body["step_id"] == gone:
            t.delete(r)


@mutation("chain-resolved-too-early", "insider", "1", "gate-not-approved")
def _(t: Tamper) -> None:
    r = t.one("gate_decided", where=lambda r: bool(r.body.get("chain_id")) and r is t.command(r)[-1] and any(x.head["action_ref"] == "step_approved" and x.body.get("trailing") is False for x in t.command(r)))
    t.forge(r, "chain_resolved", t.app_ref, {"instance_id": r.head["instance_id"], "chain_id": r.body["chain_id"], "action": r.body["action"], "outcome": "Approved",
                                              "recalled_step_ids": []}, None, same_command=True)


@mutation("fired-without-gate", "insider", "1", "gate-not-approved")
def _(t: Tamper) -> None:
    r = t.guarded()
    t.edit(r, step_id=None, chain_id=None)
    for x in t.state(r.head["instance_id"])["transitions"]:
        if x["transition_id"] == r.body["transition_id"]:
            x["step_id"] = x["chain_id"] = None


@mutation("fired-as-unguarded", "insider", "1", "unguarded-firing")
def _(t: Tamper) -> None:
    r = t.guarded()
    t.edit(r, step_id=None, chain_id=None, guarded=False)
    for x in t.state(r.head["instance_id"])["transitions"]:
        if x["transition_id"] == r.body["transition_id"]:
            x["step_id"] = x["chain_id"] = None
            x["guard_satisfied"] = False


@mutation("fired-with-pending-gate", "insider", "1", "gate-not-approved")
def _(t: Tamper) -> None:
    decided = t.decision_of(t.guarded())
    if any(r.head["action_ref"] == "transition_fired" for r in t.command(decided)):
        raise Skip("decided and fired in one command")
    for r in t.command(decided):
        t.delete(r)
    row = t.state(decided.head["instance_id"])
    for s in row["approval_steps"]:
        if s["step_id"] == decided.body.get("step_id"):
            s.update(state="Pending", ended_by=None, ended_at_us=None, ended_reason=None)


@mutation("fired-with-rejected-gate", "engine", "1", "gate-not-approved")
def _(t: Tamper) -> None:
    r = t.decision_of(t.guarded())
    if r.body.get("chain_id"):
        raise Skip("a quorum")
    if r.head["assurance"] == "actor_signed":
        t.sign_again(r, body={**json.loads(unb64(r.proofdata["body"])), "decision": "reject"})
    t.edit(r, decision="reject")
    for s in t.state(r.head["instance_id"])["approval_steps"]:
        if s["step_id"] == r.body["step_id"]:
            s["state"] = "Rejected"


@mutation("fired-with-another-gate", "insider", "1", "gate-not-approved")
def _(t: Tamper) -> None:
    r = t.guarded()
    name = "chain_id" if r.body.get("chain_id") else "step_id"
    other = next((x for x in t.all("gate_opened") if x.body.get(name) and x.body[name] != r.body[name] and x.head["instance_id"] == r.head["instance_id"]), None)
    if other is None:
        raise Skip("no other gate")
    t.edit(r, **{name: other.body[name]})


@mutation("step-reused", "insider", "1", "approval-reused")
def _(t: Tamper) -> None:
    r = t.guarded()
    row = t.state(r.head["instance_id"])
    number = len(row["transitions"]) + 1
    last = [x for x in t.b.chain(r.head["instance_id"]) if x.head["action_ref"] not in NEUTRAL][-1]
    p = {**r.body, "transition_id": after_id(r.body["transition_id"]), "sequence_number": number}
    twin = t.forge(last, "transition_fired", r.head["actor_ref"], p, "x")
    twin.head["assurance"], twin.attestation = r.head["assurance"], r.attestation
    row["transitions"].append({**next(x for x in row["transitions"] if x["transition_id"] == r.body["transition_id"]), "transition_id": p["transition_id"],
                               "sequence_number": number, "fired_at_us": twin.head["recorded_at_us"], "event_id": twin.head["event_id"]})


def _asked(t: Tamper, action: str = "gate_opened") -> Record:
    """Of a process; `runbooks.py` does the same to runs."""
    return t.one(action, where=lambda r: "request_digest" in r.body and t.b.chain(r.head["instance_id"])[0].head["action_ref"] == "workflow_started")


@mutation("request-edited", "insider", "3", "binding-invalid")
def _(t: Tamper) -> None:
    r = _asked(t)
    t.edit(r, request={**r.body["request"], "more": 1})


@mutation("request-and-digest-edited", "insider", "3", "binding-invalid")
def _(t: Tamper) -> None:
    r = _asked(t)
    request = {**r.body["request"], "more": 1}
    t.edit(r, request=request, request_digest=sha(dump(request).encode()).hex())


@mutation("decision-bound-to-nothing", "insider", "3", "binding-invalid")
def _(t: Tamper) -> None:
    t.edit(_asked(t, "gate_decided"), request_digest=None)


@mutation("request-of-the-body-edited", "insider", "identity", "statement-mismatch")
def _(t: Tamper) -> None:
    """The approver was asked something else than what the opener signed, and the decisions are bound to that."""
    r = _asked(t)
    request = {**r.body["request"], "more": 1}
    digest = sha(dump(request).encode()).hex()
    gate = r.body.get("chain_id") or r.body["step_id"]
    t.edit(r, request=request, request_digest=digest)
    for x in t.all("gate_decided"):
        if gate in (x.body.get("chain_id"), x.body.get("step_id")):
            t.edit(x, request_digest=digest)
