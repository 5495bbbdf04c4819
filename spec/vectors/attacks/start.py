"""Claim 1: who approves is the definition's to say, and what a start says instead is on record. Steps that go with their chain have a record each."""
from __future__ import annotations

import json
from typing import Any

from bundle import Record, dump, sha, unb64
from .kit import Skip, Tamper, mutation


def _start(t: Tamper) -> Record:
    return t.one("workflow_started", where=lambda r: r.body.get("rules", 1) >= 2 and bool(r.body.get("definition")))


def _published(t: Tamper, start: Record) -> dict[str, Any]:
    name, _, version = start.body["definition"].rpartition("@")
    digest = next(r.body["gate_spec_digest"] for r in t.all("definition_published", registry=True) if (r.body["name"], str(r.body["version"])) == (name, version))
    return next(d for d in t.b.documents if d["digest"] == digest)


def _unopened(t: Tamper, start: Record, fits: Any) -> str:
    """A guard of which no gate was opened, so that nothing else shows who its approvers are."""
    opened = {r.body["guard"] for r in t.all("gate_opened") if r.head["instance_id"] == start.head["instance_id"]}
    for label, entry in json.loads(_published(t, start)["body"]).items():
        if label not in opened and fits(entry):
            return label
    raise Skip("every such gate was opened")


def _restart(t: Tamper, start: Record, label: str, **entry: Any) -> None:
    """What the server would have written, had it taken this start."""
    old = start.body["gate_spec_digest"]
    spec = json.loads(next(d["body"] for d in t.b.documents if d["digest"] == old))
    spec[label] = {**{k: v for k, v in spec[label].items() if k == "scope"}, **entry}
    text = dump(spec)
    digest = sha(text.encode()).hex()
    said = json.loads(unb64(start.proofdata["body"]))
    t.sign_again(start, body={**said, "gate_spec": {**said.get("gate_spec", {}), label: spec[label]}})
    t.edit(start, gate_spec_digest=digest, replaced=sorted({*start.body.get("replaced", []), label}))
    t.state(start.head["instance_id"])["gate_spec_digest"] = digest
    stay = [d for d in t.b.documents if d["digest"] != old or d is _published(t, start)]
    t.b.documents = sorted([*stay, {"digest": digest, "body": text}], key=lambda d: d["digest"])


@mutation("start-replaced-fixed", "engine", "1", "wrong-approver")
def _(t: Tamper) -> None:
    start = _start(t)
    _restart(t, start, _unopened(t, start, lambda e: "replaceable" not in e), approver_ref="somebody_else")


@mutation("start-of-the-retired", "insider", "2", "document-mismatch")
def _(t: Tamper) -> None:
    """The definition was retired before; the records say that the start knew it."""
    start = next((r for r in t.all("workflow_started", "run_started") if r.body.get("definition") and not r.body.get("parent_run_id")), None)
    if start is None:
        raise Skip("nothing was started from a definition")
    name, _, version = start.body["definition"].rpartition("@")
    known = [r for r in t.all("definition_published", registry=True) if r.body["name"] == name and r.head["sequence"] <= start.head["registry_seq"]]
    t.forge_in_registry(start, "definition_retired", {"name": name, "version": known[-1].body["version"], "reason": "it never was to start"}, known=True)


@mutation("paused-without-scope", "insider", "5", "permission-not-held")
def _(t: Tamper) -> None:
    paused = t.one("schedule_paused", registry=True)
    grant = next(r for r in t.all("grant_made", registry=True) if r.body["action_scope"].startswith("runs:control") and r.body["subject_ref"] == paused.head["actor_ref"])
    t.b.grants = [g for g in t.b.grants if g["grant_id"] != grant.body["grant_id"]]
    t.delete(grant)


@mutation("start-named-herself", "engine", "1", "wrong-approver")
def _(t: Tamper) -> None:
    start = _start(t)
    spec = json.loads(_published(t, start)["body"])
    label = next((k for k, e in spec.items() if e.get("replaceable") and not e.get("selfApproval")), None)
    if label is None:
        raise Skip("nothing is replaceable")
    _restart(t, start, label, approver_ref=start.head["actor_ref"])


@mutation("start-named-herself-among-others", "engine", "1", "wrong-approver")
def _(t: Tamper) -> None:
    start = _start(t)
    spec = json.loads(_published(t, start)["body"])
    label = next((k for k, e in spec.items() if e.get("replaceable") and not e.get("selfApproval")), None)
    if label is None:
        raise Skip("nothing is replaceable")
    _restart(t, start, label, approvers=["somebody_else", start.head["actor_ref"]], quorum={"rule": "one-of-n"})


@mutation("start-replaced-scope", "engine", "1", "wrong-approver")
def _(t: Tamper) -> None:
    start = _start(t)
    spec = json.loads(_published(t, start)["body"])
    label = next((k for k, e in spec.items() if e.get("replaceable")), None)
    if label is None:
        raise Skip("nothing is replaceable")
    _restart(t, start, label, scope="something:else", approver_ref="somebody_else")


@mutation("start-replaced-untold", "insider", "2", "document-mismatch")
def _(t: Tamper) -> None:
    start = _start(t)
    if not start.body.get("replaced"):
        raise Skip("nothing was replaced")
    t.edit(start, replaced=start.body["replaced"][:-1])


@mutation("start-replaced-told-in-vain", "insider", "2", "document-mismatch")
def _(t: Tamper) -> None:
    start = _start(t)
    t.edit(start, replaced=sorted([*start.body.get("replaced", []), _unopened(t, start, lambda e: "replaceable" not in e)]))


@mutation("definition-gates-missing", "insider", "2", "document-mismatch")
def _(t: Tamper) -> None:
    start = _start(t)
    document = _published(t, start)
    if document["digest"] == start.body["gate_spec_digest"]:
        raise Skip("the process runs under it")
    t.b.documents.remove(document)


@mutation("definition-gates-swapped", "naive", "2", "document-mismatch")
def _(t: Tamper) -> None:
    document = _published(t, _start(t))
    document["body"] = dump({k: {**v, "replaceable": True, "selfApproval": True} for k, v in json.loads(document["body"]).items()})


def _gone(t: Tamper) -> Record:
    """A step that went with its chain: a record that its command could do without."""
    ended = {(r.head["instance_id"], r.head["recorded_at_us"], s) for r in t.all("chain_resolved", "chain_withdrawn") if r.body.get("outcome", "Withdrawn") == "Withdrawn"
             for s in r.body["recalled_step_ids"]}
    return t.one("step_withdrawn", where=lambda r: (r.head["instance_id"], r.head["recorded_at_us"], r.body["step_id"]) in ended)


@mutation("withdrawn-step-untold", "insider", "3", "record-missing")
def _(t: Tamper) -> None:
    t.delete(_gone(t))


@mutation("withdrawn-step-told-twice", "insider", "3", "binding-invalid")
def _(t: Tamper) -> None:
    r = _gone(t)
    t.forge(r, "step_withdrawn", r.head["actor_ref"], r.body, t.token_of(r.head["actor_ref"]) if r.head["actor_ref"] != t.app_ref else None, same_command=True)


@mutation("withdrawn-step-in-other-words", "insider", "3", "binding-invalid", "statement-mismatch")
def _(t: Tamper) -> None:
    t.edit(_gone(t), reason="for no reason at all")


@mutation("withdrawn-step-of-nobody", "insider", "1", "wrong-approver")
def _(t: Tamper) -> None:
    t.edit(_gone(t), decided_by="somebody_else")
