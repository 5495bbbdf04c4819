"""Mutations of what claimed steps were handed (run.md section 6, *Inputs*)."""
from __future__ import annotations

import json
from typing import Any

from bundle import dump, sha
from .kit import Skip
from .runs import add, whole


def plain(t: Any) -> tuple[Any, list[dict[str, Any]], int]:
    """A claim of a step that works on the run's own input because its definition says no other: it, its entries, and the place there."""
    documents = {d["digest"]: json.loads(d["body"]) for d in t.b.documents}
    for start in t.all("run_started"):
        steps = documents[start.body["document_digest"]]["steps"]
        for r in t.all("steps_claimed", "step_claimed", "step_completed"):
            if r.head["instance_id"] != start.head["instance_id"]:
                continue
            for i, entry in enumerate(r.body.get("inputs", [])):
                seq = entry.get("step_seq")
                if entry.get("run_input") and seq is not None and seq < len(steps) and "input" not in steps[seq]:
                    whole(t, r)
                    return r, r.body["inputs"], i
    raise Skip("no claim of a step that works on the run's own input")


@add("input-swapped", "insider", "3", "input-mismatch")
def _(t: Any) -> None:
    r, entries, i = plain(t)
    entries[i] = {"step_seq": entries[i]["step_seq"], "input": {"pay": "somebody else"}}
    t.edit(r, inputs=entries)


@add("input-by-another-digest", "insider", "3", "input-mismatch")
def _(t: Any) -> None:
    r, entries, i = plain(t)
    entries[i] = {"step_seq": entries[i]["step_seq"], "input_digest": sha(b"{}").hex(), "input_bytes": 2}
    t.edit(r, inputs=entries)


@add("input-left-out", "insider", "3", "input-mismatch")
def _(t: Any) -> None:
    r, entries, i = plain(t)
    if next(x for x in t.all("run_started") if x.head["instance_id"] == r.head["instance_id"]).body.get("rules", 1) < 3:
        raise Skip("it began when no claim said it")
    del entries[i]
    t.edit(r, inputs=entries or None)


@add("input-of-another-step", "insider", "3", "input-mismatch")
def _(t: Any) -> None:
    r, entries, i = plain(t)
    entries[i] = {**entries[i], "step_seq": entries[i]["step_seq"] + 1}
    t.edit(r, inputs=entries)


@add("input-of-a-run-without-one", "insider", "3", "input-mismatch")
def _(t: Any) -> None:
    r, _entries, _i = plain(t)
    start = next(x for x in t.all("run_started") if x.head["instance_id"] == r.head["instance_id"])
    body = {k: v for k, v in start.body.items() if k not in ("input_digest", "input_bytes")}
    start.payload = dump({**body, "input": None})
    t.state(r.head["instance_id"])["run"].update(input="null", input_digest=sha(b"null").hex())


@add("input-said-twice", "insider", "3", "bundle-form")
def _(t: Any) -> None:
    r, entries, i = plain(t)
    entries[i] = {**entries[i], "input": {"pay": "somebody else"}}
    t.edit(r, inputs=entries)


@add("undo-handed-another-output", "insider", "3", "input-mismatch")
def _(t: Any) -> None:
    for r in t.all("steps_claimed"):
        for i, entry in enumerate(r.body.get("inputs", [])):
            own = entry.get("input")
            undoes = any("step_seq" in x and x["step_seq"] == entry.get("step_seq") and t.state(r.head["instance_id"])["run"]["steps"][x["step_seq"]]["compensates"] is not None
                         for x in r.body.get("transitions", []))
            if undoes and own is not None:
                whole(t, r)
                entries = r.body["inputs"]
                entries[i] = {**entry, "input": {**own, "output": "something else"}}
                t.edit(r, inputs=entries)
                return
    raise Skip("nothing was undone with what it is handed in full")
