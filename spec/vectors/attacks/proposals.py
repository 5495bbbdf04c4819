"""Claim 1: versions that nobody approved, or others than were approved."""
from __future__ import annotations

from bundle import dump, sha
from .kit import Skip, Tamper, mutation
from bundle import Record


def _merge(t: Tamper) -> Record:
    return t.one("transition_fired", where=lambda r: r.body.get("action") == "merge" and "version" in r.body.get("merged", {}))


def _published(t: Tamper) -> Record:
    return t.one("definition_published", where=lambda r: "proposal" in r.body, registry=True)


def _start(t: Tamper, merge: Record) -> Record:
    return t.b.chain(merge.head["instance_id"])[0]


@mutation("merged-other-bytes", "engine", "1", "binding-invalid")
def _(t: Tamper) -> None:
    """Other bytes were published than the approvers saw."""
    digest = sha(b"other bytes").hex()
    r = _merge(t)
    t.edit(r, merged={**r.body["merged"], "digest": digest})
    t.edit(_published(t), digest=digest)


@mutation("published-other-bytes", "insider", "1", "binding-invalid")
def _(t: Tamper) -> None:
    t.edit(_published(t), digest=sha(b"other bytes").hex())


@mutation("published-without-a-proposal", "insider", "1", "gate-not-approved")
def _(t: Tamper) -> None:
    t.edit(_published(t), proposal=None)


@mutation("published-from-another-approval", "insider", "1", "gate-not-approved")
def _(t: Tamper) -> None:
    """The version names the gate that the edit left behind."""
    r = _published(t)
    gates = [g.body["chain_id"] for g in t.all("gate_opened") if g.body.get("chain_id") and g.head["instance_id"] == r.body["proposal"]["instance_id"]]
    if gates[0] == r.body["proposal"]["chain_id"]:
        raise Skip("there was one gate")
    t.edit(r, proposal={**r.body["proposal"], "chain_id": gates[0]})


@mutation("merge-of-another-version", "engine", "1", "binding-invalid", "record-missing")
def _(t: Tamper) -> None:
    r = _merge(t)
    t.edit(r, merged={**r.body["merged"], "version": r.body["merged"]["version"] + 1})


@mutation("merged-without-approval", "insider", "1", "gate-not-approved", "undeclared-transition")
def _(t: Tamper) -> None:
    """The engine's own firing is left out."""
    merge = _merge(t)
    approvals = [r for r in t.all("transition_fired") if r.body["action"] == "approve" and r.head["instance_id"] == merge.head["instance_id"]]
    t.delete(approvals[-1])


@mutation("self-approved", "insider", "1", "wrong-approver")
def _(t: Tamper) -> None:
    """The gate_spec, the gates and the in-trays name the proposer."""
    merge = _merge(t)
    start = _start(t, merge)
    ref, instance = start.head["actor_ref"], merge.head["instance_id"]
    old = next(d for d in t.b.documents if d["digest"] == start.body["gate_spec_digest"])
    out = "ben"
    body = old["body"].replace(f'"{out}"', f'"{ref}"')
    if body == old["body"]:
        raise Skip("nobody to replace")
    new = {"digest": sha(body.encode()).hex(), "body": body}
    t.b.documents[t.b.documents.index(old)] = new
    t.b.documents.sort(key=lambda d: d["digest"])
    t.edit(start, gate_spec_digest=new["digest"])
    for r in t.all("gate_opened", "chain_initiated"):
        if r.head["instance_id"] == instance:
            r.payload = (r.payload or "").replace(f'"approver_ref":"{out}"', f'"approver_ref":"{ref}"').replace(f'["{out}"', f'["{ref}"')
    row = t.state(instance)
    row["gate_spec_digest"] = new["digest"]
    for s in row["approval_steps"]:
        s["approver_ref"] = ref if s["approver_ref"] == out else s["approver_ref"]
    for x in row["assignments"]:
        x["assignee_ref"] = ref if x["assignee_ref"] == out else x["assignee_ref"]


@mutation("proposal-under-another-declaration", "insider", "2", "document-mismatch")
def _(t: Tamper) -> None:
    """A declaration that lets the merge be fired from the start."""
    start = _start(t, _merge(t))
    old = next(d for d in t.b.documents if d["digest"] == start.body["declaration_digest"])
    body = old["body"].replace('"to":"submitted"}', '"to":"approved"}', 1)
    new = {"digest": sha(body.encode()).hex(), "body": body}
    t.b.documents.append(new)
    t.b.documents.sort(key=lambda d: d["digest"])
    t.edit(start, declaration_digest=new["digest"])
    t.state(start.head["instance_id"])["declaration_digest"] = new["digest"]


@mutation("proposed-as-a-human", "insider", "1", "wrong-approver")
def _(t: Tamper) -> None:
    """An agent poses as a person."""
    start = t.one("workflow_started", where=lambda r: r.body.get("proposal", {}).get("proposer_class") == "ai_agent")
    t.edit(start, proposal={**start.body["proposal"], "proposer_class": "human"})


@mutation("asked-for-something-else", "insider", "1", "binding-invalid")
def _(t: Tamper) -> None:
    """The approvers saw another reason than was proposed."""
    merge = _merge(t)
    opened = [r for r in t.all("gate_opened") if r.head["instance_id"] == merge.head["instance_id"]][-1]
    request = {**opened.body["request"], "reason": "harmless"}
    digest = sha(dump(request).encode()).hex()
    gate = opened.body.get("chain_id") or opened.body["step_id"]
    t.edit(opened, request=request, request_digest=digest)
    for r in t.all("gate_decided"):
        if gate in (r.body.get("chain_id"), r.body.get("step_id")):
            t.edit(r, request_digest=digest)


@mutation("merged-by-a-service", "insider", "1", "wrong-approver")
def _(t: Tamper) -> None:
    """The agent merged what it proposed."""
    r = t.one("transition_fired", where=lambda r: r.body.get("action") == "merge" and "evidence_ref" in r.body.get("merged", {}))
    r.head["actor_ref"] = _start(t, r).head["actor_ref"]
    row = t.state(r.head["instance_id"])
    row["transitions"][-1]["actor_ref"] = r.head["actor_ref"]


@mutation("merge-apart-from-its-version", "insider", "1", "record-missing")
def _(t: Tamper) -> None:
    """Another actor published the version."""
    _published(t).head["actor_ref"] = "admin"
