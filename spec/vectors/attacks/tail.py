"""The end is cut off, or the bundle says that it is about something else."""
from __future__ import annotations

import json

from bundle import REGISTRY, unb64
from .kit import NEUTRAL, Skip, Tamper, mutation


@mutation("tail-cut", "naive", "integrity", "tail-missing")
def _(t: Tamper) -> None:
    chain = t.b.chain(REGISTRY if t.window() else t.processes()[0])
    t.b.records.remove(chain[-1])
    t.counts()
    for row in t.b.state:
        row["sequence"] = t.b.chain(row["instance_id"])[-1].head["sequence"]


@mutation("tail-cut-before-export", "naive", "integrity", "sequence-gap", "link-broken", "tail-missing")
def _(t: Tamper) -> None:
    chain = t.b.chain(t.processes()[0])
    t.b.records.remove(chain[-1 if t.window() else -2])
    t.counts()


def _cut_last(t: Tamper) -> None:
    """The last command of a process vanishes from records and stores alike, and the export is made to fit."""
    for instance in t.processes():
        chain = [r for r in t.b.chain(instance) if r.head["action_ref"] not in NEUTRAL]
        last, row = chain[-1], t.state(instance)
        if last.head["action_ref"] != "transition_fired" or last.payload is None or len(t.command(last)) > 1 or t.neighbours(last)[1] not in (None, t.b.chain(instance)[-1]):
            continue
        p = last.body
        row["current_state"] = p["from_state"]
        row["transitions"] = [x for x in row["transitions"] if x["transition_id"] != p["transition_id"]]
        for g in row["gates"]:
            if g["gate_id"] in (p.get("step_id"), p.get("chain_id")):
                g["fate"] = "unspent"
        t.delete(last)
        return
    raise Skip("no process ends with a firing on its own")


@mutation("tail-cut-export-made-anew", "insider", "identity", "statement-mismatch")
def _(t: Tamper) -> None:
    export = t.one("evidence_exported", registry=t.window())
    said = json.loads(unb64(export.proofdata["statement"])) if "statement" in export.proofdata else {}
    if t.window() or said.get("expected_sequence") is None:
        raise Skip("the exporter did not sign which sequence they saw: only witnesses show this")
    _cut_last(t)


@mutation("tail-cut-seen-by-witnesses", "insider", "integrity", "witness-quorum")
def _(t: Tamper) -> None:
    t.use_policy = True
    _cut_last(t)


@mutation("tail-cut-with-export", "insider", "integrity", "tail-missing")
def _(t: Tamper) -> None:
    export = t.one("evidence_exported", registry=t.window(), where=lambda r: t.neighbours(r)[1] is None)
    t.delete(export)


@mutation("through-sequence-edited", "insider", "integrity", "tail-missing")
def _(t: Tamper) -> None:
    if t.window():
        raise Skip("a window")
    export = t.b.chain(t.processes()[0])[-1]
    t.edit(export, through_sequence=export.body["through_sequence"] - 1)
    t.reseal(renumber=False)


@mutation("instance-left-out-of-window", "naive", "integrity", "tail-missing")
def _(t: Tamper) -> None:
    if not t.window() or len(t.processes()) < 2:
        raise Skip("not a window of several instances")
    gone = t.processes()[-1]
    t.b.records = [r for r in t.b.records if r.head["instance_id"] != gone]
    t.b.state = [s for s in t.b.state if s["instance_id"] != gone]
    t.counts()


@mutation("window-widened", "naive", "integrity", "tail-missing")
def _(t: Tamper) -> None:
    if not t.window():
        raise Skip("not a window")
    t.b.manifest["scope"]["after_us"] = (t.b.manifest["scope"]["after_us"] or 10**15) - 1
