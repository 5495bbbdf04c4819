"""Records are left out, put in and moved."""
from __future__ import annotations

from bundle import REGISTRY, det, dump
from .kit import NEUTRAL, Skip, Tamper, mutation


@mutation("record-deleted", "naive", "integrity", "sequence-gap", "link-broken")
def _(t: Tamper) -> None:
    t.b.records.remove(t.one("gate_opened", "transition_fired"))
    t.counts()


@mutation("record-deleted", "insider", "1", "gate-not-approved", "binding-invalid")
def _(t: Tamper) -> None:
    t.delete(t.one("gate_opened", where=lambda r: not r.body.get("chain_id") and any(
        f.body.get("step_id") == r.body["step_id"] for f in t.all("transition_fired"))))


@mutation("firing-deleted", "insider", "2", "undeclared-transition", "record-missing", "statement-mismatch")
def _(t: Tamper) -> None:
    t.delete(t.one("transition_fired", where=lambda r: len(t.command(r)) == 1))


@mutation("record-missing-from-count", "naive", "integrity", "bundle-form", "sequence-gap")
def _(t: Tamper) -> None:
    t.b.records.remove(t.one("gate_opened", "transition_fired"))


@mutation("record-inserted", "naive", "integrity", "inclusion-invalid", "sequence-gap", "link-broken", "bundle-form")
def _(t: Tamper) -> None:
    r = t.one("gate_decided", "transition_fired")
    twin = r.copy()
    free = [i for i, s in enumerate(t.slots) if s is None]
    if not free:
        raise Skip("no entry of somebody else in the log")
    twin.log_index = free[-1]
    t.b.records.insert(t.b.records.index(r) + 1, twin)
    t.counts()


@mutation("record-inserted", "insider", "identity", "nonce-reused", "binding-invalid")
def _(t: Tamper) -> None:
    r = t.one("gate_decided", signed=True, where=lambda r: not r.body.get("chain_id"))
    twin = t.forge(r, "gate_decided", r.head["actor_ref"], r.body, "x")
    twin.head["assurance"], twin.attestation = "actor_signed", r.attestation


@mutation("chain-reordered", "naive", "integrity", "link-broken", "inclusion-invalid", "log-order")
def _(t: Tamper) -> None:
    r = t.one("gate_opened", "transition_fired")
    other = t.following(r)
    r.head["sequence"], other.head["sequence"] = other.head["sequence"], r.head["sequence"]
    r.header, other.header = dump(r.head), dump(other.head)


@mutation("chain-reordered", "insider", "3", "binding-invalid", "statement-mismatch", "gate-not-approved")
def _(t: Tamper) -> None:
    decided = t.decision_of(t.guarded())
    first = t.command(decided)[0]
    before = t.neighbours(first)[0]
    if before is None or before.head["action_ref"] in NEUTRAL:
        raise Skip("the record before the decision matters to nobody")
    t.swap_commands(t.command(before), t.command(decided))


@mutation("decision-after-firing", "insider", "1", "gate-not-approved")
def _(t: Tamper) -> None:
    for firing in t.all("transition_fired"):
        if firing.body["guarded"]:
            before = t.neighbours(firing)[0]
            if before is not None and t.decision_of(firing) in t.command(before) and before not in t.command(firing):
                t.swap_commands(t.command(before), t.command(firing))
                return
    raise Skip("no firing right behind its decision")


@mutation("log-reordered", "naive", "integrity", "inclusion-invalid", "log-order", "bundle-form")
def _(t: Tamper) -> None:
    r = t.one("gate_opened", "transition_fired")
    other = t.following(r)
    r.log_index, other.log_index = other.log_index, r.log_index


@mutation("lines-reordered", "naive", "integrity", "bundle-form")
def _(t: Tamper) -> None:
    i = t.b.records.index(t.one("gate_opened", "transition_fired"))
    t.b.records[i - 1], t.b.records[i] = t.b.records[i], t.b.records[i - 1]


@mutation("lines-in-the-order-of-the-log", "naive", "integrity", "bundle-form")
def _(t: Tamper) -> None:
    before = list(t.b.records)
    t.b.records.sort(key=lambda r: r.log_index)
    if t.b.records == before:
        raise Skip("one order is the other")


@mutation("registry-lines-last", "naive", "integrity", "bundle-form")
def _(t: Tamper) -> None:
    t.b.records.sort(key=lambda r: r.head["instance_id"] == REGISTRY)


@mutation("instances-in-another-order", "naive", "integrity", "bundle-form")
def _(t: Tamper) -> None:
    if len(t.processes()) < 2:
        raise Skip("one instance")
    registry = [r for r in t.b.records if r.head["instance_id"] == REGISTRY]
    t.b.records = registry + [r for i in t.processes()[::-1] for r in t.b.chain(i)]


@mutation("log-reordered", "insider", "integrity", "log-order")
def _(t: Tamper) -> None:
    r = t.one("gate_opened", "transition_fired")
    other = t.following(r)
    i, j = t.slots.index(r), t.slots.index(other)
    t.slots[i], t.slots[j] = other, r


@mutation("time-turned-back", "insider", "integrity", "time-order")
def _(t: Tamper) -> None:
    r = t.one("gate_decided", "transition_fired")
    for x in t.command(r):
        x.head["recorded_at_us"] -= 86_400_000_000


@mutation("link-edited", "naive", "integrity", "link-broken", "inclusion-invalid")
def _(t: Tamper) -> None:
    r = t.one("gate_opened", "transition_fired")
    r.head["prev"] = det("other").hex()
    r.header = dump(r.head)


@mutation("proof-edited", "naive", "integrity", "inclusion-invalid")
def _(t: Tamper) -> None:
    r = t.one()
    if not r.proof:
        raise Skip("a tree of one")
    r.proof[0] = det("other").hex()


@mutation("proof-too-long", "naive", "integrity", "inclusion-invalid")
def _(t: Tamper) -> None:
    t.one().proof.append(det("other").hex())


@mutation("registry-seq-lowered", "insider", "integrity", "registry-order")
def _(t: Tamper) -> None:
    r = t.one("transition_fired", "gate_opened", where=lambda r: r.head["registry_seq"] > 1)
    for x in t.command(r):
        x.head["registry_seq"] -= 1


@mutation("registry-seq-raised", "insider", "integrity", "registry-order")
def _(t: Tamper) -> None:
    for x in t.command(t.one("transition_fired", "gate_opened")):
        x.head["registry_seq"] = len(t.b.chain(REGISTRY)) + 1


@mutation("registry-seq-of-registry", "insider", "integrity", "registry-order")
def _(t: Tamper) -> None:
    t.all(registry=True)[-1].head["registry_seq"] -= 1
