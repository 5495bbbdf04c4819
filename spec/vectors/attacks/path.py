"""Claim 2: states that the records do not lead to."""
from __future__ import annotations

import json
from typing import Any, Callable

from bundle import Record, dump, sha, unb64
from .kit import NEUTRAL, Skip, Tamper, after_id, mutation


@mutation("declaration-swapped", "naive", "2", "document-mismatch")
def _(t: Tamper) -> None:
    doc = _document(t, "declaration_digest")
    body = json.loads(doc["body"])
    doc["body"] = dump({**body, "terminal_states": []} if body["terminal_states"] else {**body, "states": [*body["states"], "another"]})


@mutation("declaration-swapped", "insider", "2", "document-mismatch", "statement-mismatch")
def _(t: Tamper) -> None:
    start = t.one("workflow_started", where=lambda r: bool(r.body.get("definition")) or r.head["assurance"] == "actor_signed")
    _swap_document(t, start, "declaration_digest", lambda d: {**d, "transitions": [{k: v for k, v in x.items() if k != "guard"} for x in d["transitions"]]})


@mutation("gate-spec-swapped", "naive", "2", "document-mismatch")
def _(t: Tamper) -> None:
    doc = _document(t, "gate_spec_digest")
    if doc["body"] == "{}":
        raise Skip("no gates")
    doc["body"] = dump(_other_approvers(json.loads(doc["body"])))


@mutation("gate-spec-swapped", "insider", "1", "wrong-approver", "document-mismatch", "statement-mismatch")
def _(t: Tamper) -> None:
    t.one("gate_opened")
    _swap_document(t, t.one("workflow_started", where=lambda r: any(x.head["instance_id"] == r.head["instance_id"] for x in t.all("gate_opened"))), "gate_spec_digest", _other_approvers)


def _other_approvers(spec: dict[str, Any]) -> dict[str, Any]:
    return {k: {**v, **({"approvers": v["approvers"][::-1]} if "approvers" in v else {"approver_ref": "somebody_else"})} for k, v in spec.items()}


def _document(t: Tamper, name: str) -> dict[str, str]:
    digest = t.b.state[0][name]
    return next(d for d in t.b.documents if d["digest"] == digest)


def _swap_document(t: Tamper, start: Record, name: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    old = start.body[name]
    text = dump(change(json.loads(next(d["body"] for d in t.b.documents if d["digest"] == old))))
    new = sha(text.encode()).hex()
    t.edit(start, **{name: new})
    t.state(start.head["instance_id"])[name] = new
    t.b.documents.append({"digest": new, "body": text})
    if not any(old in (s["declaration_digest"], s["gate_spec_digest"]) for s in t.b.state):
        t.b.documents = [d for d in t.b.documents if d["digest"] != old]


@mutation("document-missing", "naive", "2", "document-mismatch")
def _(t: Tamper) -> None:
    t.b.documents.remove(_document(t, "gate_spec_digest"))


@mutation("undeclared-transition", "insider", "2", "undeclared-transition")
def _(t: Tamper) -> None:
    for instance in t.processes():
        row = t.state(instance)
        fired = [r for r in t.all("transition_fired") if r.head["instance_id"] == instance]
        if fired and fired[-1].body["new_state"] == row["current_state"]:
            doc = json.loads(next(d["body"] for d in t.b.documents if d["digest"] == row["declaration_digest"]))
            to = next(s for s in doc["states"] if s not in (row["current_state"], fired[-1].body["from_state"]))
            t.edit(fired[-1], new_state=to)
            row["current_state"] = row["transitions"][-1]["to_state"] = to
            return
    raise Skip("no firing")


@mutation("undeclared-action", "engine", "2", "undeclared-transition")
def _(t: Tamper) -> None:
    r = t.one("transition_fired", where=lambda r: not r.body["guarded"] and r.head["actor_ref"] != t.app_ref)
    if r.head["assurance"] == "actor_signed":
        t.sign_again(r, body={**json.loads(unb64(r.proofdata["body"])), "action": "skip-everything"})
    t.edit(r, action="skip-everything")
    for x in t.state(r.head["instance_id"])["transitions"]:
        if x["transition_id"] == r.body["transition_id"]:
            x["action"] = "skip-everything"


@mutation("transition-number-skipped", "insider", "2", "undeclared-transition")
def _(t: Tamper) -> None:
    r = t.all("transition_fired")[-1] if t.all("transition_fired") else t.one("transition_fired")
    number = r.body["sequence_number"]
    t.edit(r, sequence_number=number + 1)
    for x in t.state(r.head["instance_id"])["transitions"]:
        if x["transition_id"] == r.body["transition_id"]:
            x["sequence_number"] = number + 1


@mutation("fired-from-terminal-state", "insider", "2", "undeclared-transition")
def _(t: Tamper) -> None:
    r = t.one("transition_fired", where=lambda r: not r.body["guarded"])
    last = [x for x in t.b.chain(r.head["instance_id"]) if x.head["action_ref"] not in NEUTRAL][-1]
    row = t.state(r.head["instance_id"])
    doc = json.loads(next(d["body"] for d in t.b.documents if d["digest"] == row["declaration_digest"]))
    if row["current_state"] not in doc["terminal_states"]:
        raise Skip("not ended")
    ref, token = t.holder("workflows:fire")
    p = {**r.body, "from_state": row["current_state"], "transition_id": after_id(r.body["transition_id"]), "sequence_number": len(row["transitions"]) + 1}
    twin = t.forge(last, "transition_fired", ref, p, token)
    row["transitions"].append({**next(x for x in row["transitions"] if x["transition_id"] == r.body["transition_id"]), "transition_id": p["transition_id"], "actor_ref": ref,
                               "from_state": row["current_state"], "sequence_number": p["sequence_number"], "fired_at_us": twin.head["recorded_at_us"], "event_id": twin.head["event_id"]})
    row["current_state"] = p["new_state"]
