#!/usr/bin/env python3
"""Breaks a valid evidence bundle in many ways and says which finding each must lead to.

    python3 spec/vectors/tamper.py BUNDLE KEYS.json OUTDIR

Works on bundles of make.py and on bundles of a real server, given KEYS.json:

    {"vkey": the log's verifier key, "log": {"name": origin, "seed": hex}, "application": {"actor_ref": text, "seed": hex},
     "actors": {actor_ref: [seed hex, ...]}, "policy": text of a policy file, or absent}

`actors` may be empty or hold some actors only. Three forms of attack:

    naive    a file is edited, nothing is computed anew
    insider  the attacker has the database, the log's key and the application actor's: digests, links, tree, proofs, checkpoint and
             stores are made anew, and the application actor's records signed anew; the people's keys are out of reach
    engine   a faulty engine: it accepted what it must refuse, and the people really signed what they sent

OUTDIR gets one ZIP per mutation, policy.txt where there is one, and expected.json: {"vkey", "cases": [{"file", "name", "form",
"claim", "expected": [codes of which at least one must be found], "policy"?: file to verify with, "key"?: verifier key in place of
"vkey"}], "skipped": [{"name", "form", "reason"}]}.
"""
from __future__ import annotations

import json
import pathlib
import sys
from typing import Any, Callable, Optional

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import make  # noqa: E402
from make import REGISTRY, Bundle, Key, Record, b64, det, dump, sha, unb64  # noqa: E402

BIG = 9_007_199_254_740_993
STEPS = ("step_approved", "step_rejected", "step_withdrawn")
NEUTRAL = ("evidence_exported", "hold_placed", "hold_released", "record_purged", "attempt_refused")


class Skip(Exception):
    """This mutation does not apply to this bundle."""


def after_id(event_id: str) -> str:
    """The next UUID: sorts right behind."""
    h = f"{int(event_id.replace('-', ''), 16) + 1:032x}"
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


class Tamper:
    """A bundle under attack. `slots` is the order of the log; a change of it becomes real with `reseal`."""

    def __init__(self, bundle: Bundle, keys: dict[str, Any]):
        self.b = bundle.copy()
        self.log = Key(bytes.fromhex(keys["log"]["seed"]))
        self.app = Key(bytes.fromhex(keys["application"]["seed"]))
        self.app_ref = keys["application"]["actor_ref"]
        self.actors = {ref: [Key(bytes.fromhex(s)) for s in seeds] for ref, seeds in keys.get("actors", {}).items()}
        self.policy: Optional[str] = keys.get("policy")
        self.slots = self.b.slots()
        self.rewrite: dict[str, Callable[[str], str]] = {}
        self.files: dict[str, Optional[bytes]] = {}     # raw files in place of those of the bundle; None: left out
        self.vkey: Optional[str] = None
        self.use_policy = False

    # ---- finding
    def window(self) -> bool:
        return "instance_id" not in self.b.manifest["scope"]

    def processes(self) -> list[str]:
        return self.b.instances()

    def all(self, *actions: str, signed: Optional[bool] = None, registry: bool = False) -> list[Record]:
        out = []
        for instance in [REGISTRY] if registry else self.processes():
            for r in self.b.chain(instance):
                if (not actions or r.head["action_ref"] in actions) and r.payload is not None:
                    if signed is None or signed == (r.head["assurance"] == "actor_signed" and r.head["actor_ref"] != self.app_ref):
                        out.append(r)
        return out

    def one(self, *actions: str, where: Callable[[Record], bool] = lambda r: True, signed: Optional[bool] = None, registry: bool = False) -> Record:
        for r in self.all(*actions, signed=signed, registry=registry):
            if where(r):
                return r
        raise Skip(f"no {' or '.join(actions) or 'record'} of this kind")

    def state(self, instance: str) -> dict[str, Any]:
        return next(row for row in self.b.state if row["instance_id"] == instance)

    def neighbours(self, r: Record) -> tuple[Optional[Record], Optional[Record]]:
        chain = self.b.chain(r.head["instance_id"])
        i = chain.index(r)
        return (chain[i - 1] if i else None), (chain[i + 1] if i + 1 < len(chain) else None)

    def following(self, r: Record) -> Record:
        other = self.neighbours(r)[1]
        if other is None:
            raise Skip("nothing follows")
        return other

    def command(self, r: Record) -> list[Record]:
        return [x for x in self.b.chain(r.head["instance_id"]) if x.head["recorded_at_us"] == r.head["recorded_at_us"]]

    def config(self) -> dict[str, Any]:
        return self.all("configuration_recorded", registry=True)[-1].body

    def guarded(self) -> Record:
        return self.one("transition_fired", where=lambda r: r.body["guarded"])

    def decision_of(self, firing: Record) -> Record:
        """The (last) approval that a guarded firing rests on."""
        p = firing.body
        name = "chain_id" if p.get("chain_id") else "step_id"
        found = [r for r in self.all("gate_decided") if r.body.get(name) == p[name] and r.body["decision"] == "approve"
                 and r.head["sequence"] < firing.head["sequence"]]
        if name == "chain_id":      # the one that settled it, not one that trailed
            found = [r for r in found if any(x.head["action_ref"] == "chain_resolved" for x in self.command(r))]
        if not found:
            raise Skip("the decision was purged")
        return found[-1]

    def token_of(self, ref: str, scope: Optional[str] = None) -> str:
        """A credential that a server could claim to have seen, never revoked."""
        revoked = {r.body["credential_id"] for r in self.all("credential_revoked", registry=True)}
        for r in self.all("actor_registered", "credential_issued", registry=True):
            if r.body["actor_ref"] == ref and r.body.get("credential_id") and r.body["credential_id"] not in revoked:
                return r.body["credential_id"]
        raise Skip(f"{ref} has no credential")

    def holder(self, scope: str) -> tuple[str, str]:
        """An actor with a credential who holds the scope to the end."""
        for g in self.b.grants:
            if g["action_scope"] == scope and g["revoked_seq"] is None:
                try:
                    return g["subject_ref"], self.token_of(g["subject_ref"])
                except Skip:
                    continue
        raise Skip(f"nobody with a credential holds {scope}")

    # ---- changing
    def edit(self, r: Record, **changes: Any) -> Record:
        body = r.body
        for k, v in changes.items():
            if v is None:
                body.pop(k, None)
            else:
                body[k] = v
        r.payload = dump(body)
        return r

    def edit_proof(self, r: Record, **changes: Any) -> Record:
        r.attestation = dump({**r.proofdata, **changes})
        return r

    def delete(self, r: Record) -> None:
        self.b.records.remove(r)
        self.slots.remove(r)
        if r.head["instance_id"] == REGISTRY:
            gone = r.head["sequence"]
            for x in self.b.records:
                if x.head["registry_seq"] >= gone:
                    x.head["registry_seq"] -= 1
            self._shift_grants(gone, -1)

    def _shift_grants(self, start: int, by: int) -> None:
        for g in self.b.grants:
            for k in ("granted_seq", "revoked_seq"):
                if g[k] is not None and g[k] >= start:
                    g[k] += by

    def forge(self, like: Record, action: str, actor: str, payload: dict[str, Any], credential: Optional[str], before: bool = False, same_command: bool = False) -> Record:
        """A record of the attacker's own, next to `like` in chain and log: by bearer token, or by the application actor."""
        instance = like.head["instance_id"]
        prev, next_ = (self.neighbours(like)[0], like) if before else (like, self.neighbours(like)[1])
        if prev is None:
            raise Skip("nothing stands before")
        head = dict(prev.head)
        at = prev.head["recorded_at_us"]
        if not same_command:
            room = next_.head["recorded_at_us"] - at if next_ is not None else 2_000_000
            if room < 2:
                raise Skip("no time between two commands")
            at += room // 2
        head.update(action_ref=action, actor_ref=actor, recorded_at_us=at, event_id=after_id(prev.head["event_id"]),
                    sequence=(prev.head["sequence"] + next_.head["sequence"]) / 2 if next_ is not None else prev.head["sequence"] + 1,
                    assurance="server_attested" if credential is not None else "actor_signed",
                    registry_seq=like.head["registry_seq"], retention=dict(prev.head["retention"]))
        r = Record(head, dump(payload), make.bearer_attestation(credential), det("forged", instance, head["event_id"]).hex())
        if credential is None:
            r.attestation = "{}"    # reseal signs it with the application actor's key
        self.b.records.append(r)
        if before:
            self.slots.insert(self.slots.index(like), r)
        else:
            self.slots.insert(self.slots.index(like) + 1, r)
        return r

    def forge_in_registry(self, before: Record, action: str, payload: dict[str, Any], known: bool) -> Record:
        """A registry record that stands in the log just before the command of `before`. `known`: later records say that they knew it."""
        first = self.command(before)[0]
        at = self.slots.index(first)
        registry_seq = first.head["registry_seq"]
        ref, token = self.holder("actors:manage" if action.startswith(("key", "credential", "actor")) else "permissions:manage")
        like = self.b.chain(REGISTRY)[registry_seq - 1]
        r = self.forge(like, action, ref, payload, token)
        self.slots.remove(r)
        self.slots.insert(at, r)
        r.head["registry_seq"] = registry_seq
        for x in self.slots[at + 1:]:
            if x is not None and (known or x.head["instance_id"] == REGISTRY):
                x.head["registry_seq"] += 1
        self._shift_grants(registry_seq + 1, 1)
        return r

    def swap_commands(self, first: list[Record], second: list[Record]) -> None:
        """Two neighbouring commands of one instance change places, in the chain and in the log, times and ids made to fit."""
        both = first + second
        places = sorted(self.slots.index(r) for r in both)
        heads = [(r.head["sequence"], r.head["recorded_at_us"], r.head["event_id"], r.head["registry_seq"]) for r in both]
        times = [h[1] for h in heads]
        for place, r, h in zip(places, second + first, heads):
            self.slots[place] = r
            r.head.update(sequence=h[0], event_id=h[2], registry_seq=h[3])
        for r in second:
            r.head["recorded_at_us"] = times[0]
        for r in first:
            r.head["recorded_at_us"] = times[-1]

    def sign_again(self, r: Record, **changes: Any) -> None:
        """With the actor's own key: what they would really have signed."""
        proof = r.proofdata
        key = next((k for k in self.actors.get(r.head["actor_ref"], []) if k.key_id == proof.get("key_id")), None)
        if key is None:
            raise Skip(f"no seed of {r.head['actor_ref']}'s key")
        said = json.loads(unb64(proof["statement"]))
        body = changes.pop("body", None)
        if body is not None:
            proof["body"] = b64(dump(body).encode())
            said["body_digest"] = sha(dump(body).encode()).hex()
        said.update(changes)
        raw = dump(said).encode()
        for x in self.command(r):
            if x.head["actor_ref"] == r.head["actor_ref"]:
                x.attestation = dump({**proof, "statement": b64(raw), "signature": b64(key.sign(raw))})

    def reseal(self, log: Optional[Key] = None, renumber: bool = True) -> None:
        self.b.reseal(log or self.log, self.app, slots=self.slots, renumber=renumber, rewrite=self.rewrite)

    def counts(self) -> None:
        registry = self.b.chain(REGISTRY)
        self.b.manifest.update(records=len(self.b.records), instances=len(self.b.instances()), registry_sequence=registry[-1].head["sequence"] if registry else 0)

    def line(self, name: str, change: Callable[[str], str]) -> None:
        self.files[name] = change(self.b.files()[name].decode()).encode()


MUTATIONS: list[tuple[str, str, str, list[str], Callable[[Tamper], None]]] = []


def mutation(name: str, form: str, claim: str, *expected: str) -> Callable[[Callable[[Tamper], None]], Callable[[Tamper], None]]:
    """Registers one mutation. For the form insider (and engine) the bundle is resealed after the function."""
    def add(f: Callable[[Tamper], None]) -> Callable[[Tamper], None]:
        MUTATIONS.append((name, form, claim, list(expected), f))
        return f
    return add


# ---------------------------------------------------------------------------------------------- contents
@mutation("payload-edited", "naive", "integrity", "payload-digest-mismatch")
def _(t: Tamper) -> None:
    t.edit(t.one("gate_decided", "transition_fired"), reason="as it should have been")


@mutation("payload-edited", "insider", "identity", "statement-mismatch")
def _(t: Tamper) -> None:
    t.edit(t.one("gate_decided", "transition_fired", "workflow_started", signed=True), reason="as it should have been")


@mutation("payload-edited-registry", "insider", "identity", "statement-mismatch")
def _(t: Tamper) -> None:
    r = t.one("grant_made", signed=True, registry=True)
    t.edit(r, action_scope="audit:purge")
    for g in t.b.grants:
        if g["grant_id"] == r.body["grant_id"]:
            g["action_scope"] = "audit:purge"


@mutation("key-swapped-at-registration", "insider", "identity", "statement-mismatch", "attestation-proof-invalid")
def _(t: Tamper) -> None:
    mine = Key(det("attacker"))
    r = t.one("actor_registered", "key_registered", registry=True, where=lambda r: bool(r.body.get("public_key"))
              and r.body["actor_ref"] in {x.head["actor_ref"] for x in t.all(signed=True)})
    t.edit(r, public_key=b64(mine.public), key_id=mine.key_id)


@mutation("attestation-edited", "naive", "integrity", "attestation-digest-mismatch")
def _(t: Tamper) -> None:
    r = t.one()
    r.attestation = dump({**r.proofdata, "note": "x"})


@mutation("salt-edited", "naive", "integrity", "payload-digest-mismatch", "attestation-digest-mismatch")
def _(t: Tamper) -> None:
    t.one().salt = det("other salt").hex()


@mutation("header-edited", "naive", "integrity", "inclusion-invalid", "link-broken")
def _(t: Tamper) -> None:
    r = t.one("gate_decided", "transition_fired", "workflow_started")
    r.head["recorded_at_us"] += 1
    r.header = dump(r.head)


def _header(name: str, change: Callable[[str], str], *codes: str) -> None:
    @mutation(name, "insider", "integrity", *codes)
    def _(t: Tamper) -> None:
        t.rewrite[t.one().head["event_id"]] = change


_header("header-white-space", lambda h: h.replace('"v":1,', '"v": 1,'), "header-invalid")
_header("header-unknown-member", lambda h: h[:-1] + ',"note":"x"}', "header-invalid")
_header("header-member-missing", lambda h: h.replace('"v":1,', ""), "header-invalid")
_header("header-members-in-another-order", lambda h: "{" + h[len('{"v":1,'):-1] + ',"v":1}', "header-invalid")
_header("header-member-twice", lambda h: h.replace('"v":1,', '"v":1,"v":1,'), "duplicate-key", "header-invalid")
_header("header-number-beyond-2-53", lambda h: h.replace('"recorded_at_us":', f'"recorded_at_us":{BIG},"x":'), "number-out-of-range", "header-invalid")
_header("header-number-with-exponent", lambda h: h.replace('"v":1,', '"v":1e0,'), "number-out-of-range", "header-invalid")
_header("header-unknown-action", lambda h: h.replace('"action_ref":"workflow_started"', '"action_ref":"workflow_begun"').replace(
    '"action_ref":"run_started"', '"action_ref":"run_begun"'), "header-invalid")


@mutation("number-beyond-2-53", "naive", "integrity", "number-out-of-range")
def _(t: Tamper) -> None:
    r = t.one("transition_fired")
    r.payload = dump({**r.body, "sequence_number": BIG})


@mutation("number-beyond-2-53", "insider", "integrity", "number-out-of-range")
def _(t: Tamper) -> None:
    r = t.one("transition_fired")
    r.payload = dump({**r.body, "sequence_number": BIG})


@mutation("number-with-fraction", "insider", "integrity", "number-out-of-range")
def _(t: Tamper) -> None:
    r = t.one("transition_fired")
    r.payload = dump({**r.body, "sequence_number": float(r.body["sequence_number"])})


@mutation("number-beyond-2-53-in-stores", "naive", "integrity", "number-out-of-range")
def _(t: Tamper) -> None:
    t.b.state[0]["started_at_us"] = BIG


def _twice(form: str) -> None:
    @mutation("duplicate-key-in-payload", form, "integrity", "duplicate-key")
    def _(t: Tamper) -> None:
        r = t.one("gate_decided", "transition_fired")
        assert r.payload
        r.payload = '{"reason":"first reader",' + r.payload[1:-1] + ',"reason":"second reader"}'


_twice("naive")
_twice("insider")


@mutation("duplicate-key-in-stores", "naive", "integrity", "duplicate-key")
def _(t: Tamper) -> None:
    t.line("state.jsonl", lambda s: '{"current_state":"drafting",' + s[1:])


@mutation("duplicate-key-in-attestation", "insider", "integrity", "duplicate-key", "attestation-invalid")
def _(t: Tamper) -> None:
    r = t.one(where=lambda r: r.head["actor_ref"] != t.app_ref)
    assert r.attestation
    r.attestation = '{"v":1,' + r.attestation[1:]


@mutation("duplicate-key-in-signed-body", "engine", "integrity", "duplicate-key", "statement-mismatch")
def _(t: Tamper) -> None:
    r = t.one("gate_decided", signed=True)
    raw = b'{"decision":"reject",' + unb64(r.proofdata["body"])[1:]
    t.sign_again(r, body_digest=sha(raw).hex())
    for x in t.command(r):
        if x.head["actor_ref"] == r.head["actor_ref"]:
            t.edit_proof(x, body=b64(raw))


# ---------------------------------------------------------------------------------------------- order and completeness of chain and log
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


# ---------------------------------------------------------------------------------------------- tail and scope
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


# ---------------------------------------------------------------------------------------------- checkpoint and witnesses
@mutation("log-forked", "insider", "integrity", "witness-quorum")
def _(t: Tamper) -> None:
    t.use_policy = True     # another history, right in itself: only the witnesses know better
    t.one().salt = det("another history").hex()


@mutation("checkpoint-of-another-history", "naive", "integrity", "inclusion-invalid")
def _(t: Tamper) -> None:
    t.b.checkpoint = make.signed_note(t.b.manifest["origin"], t.b.manifest["tree_size"], det("another root"), t.log, [], 1_767_600_000)


@mutation("cosignature-dropped", "naive", "integrity", "witness-quorum")
def _(t: Tamper) -> None:
    t.use_policy = True
    text, _, signatures = t.b.checkpoint.partition("\n\n")
    lines = signatures.splitlines(keepends=True)
    if len(lines) < 2:
        raise Skip("no cosignature to drop")
    t.b.checkpoint = text + "\n\n" + "".join(line for line in lines if line.startswith(f"\u2014 {t.b.manifest['origin']} "))


@mutation("cosignature-moved", "insider", "integrity", "witness-quorum")
def _(t: Tamper) -> None:
    t.use_policy = True     # the cosignatures of the true checkpoint under the false one
    old = t.b.checkpoint.partition("\n\n")[2].splitlines(keepends=True)
    t.one().salt = det("another history").hex()
    t.reseal()
    t.b.checkpoint += "".join(line for line in old if not line.startswith(f"\u2014 {t.b.manifest['origin']} "))


@mutation("checkpoint-signed-by-another-key", "insider", "integrity", "checkpoint-invalid")
def _(t: Tamper) -> None:
    t.reseal(Key(det("attacker")))


@mutation("checkpoint-key-not-in-registry", "insider", "integrity", "checkpoint-key-unknown")
def _(t: Tamper) -> None:
    mine = Key(det("attacker"))
    t.reseal(mine)
    t.vkey = make.vkey(t.b.manifest["origin"], mine)


@mutation("checkpoint-key-revoked", "insider", "integrity", "checkpoint-key-unknown")
def _(t: Tamper) -> None:
    if t.window():
        raise Skip("the export ends the registry")
    ref, token = t.holder("actors:manage")
    t.forge(t.b.chain(REGISTRY)[-1], "key_revoked", ref, {"actor_ref": t.config()["server_actor_ref"], "key_id": t.log.key_id}, token).head["registry_seq"] += 1
    _known_later(t)


def _known_later(t: Tamper) -> None:
    """A registry record was added at the end: records after it in the log knew it."""
    last = max((r for r in t.b.records if r.head["instance_id"] == REGISTRY), key=lambda r: r.head["sequence"])
    before = len([r for r in t.b.records if r.head["instance_id"] == REGISTRY]) - 1
    for x in t.slots[t.slots.index(last) + 1:]:
        if x is not None and x.head["instance_id"] != REGISTRY:
            x.head["registry_seq"] = before + 1
    last.head["registry_seq"] = before


@mutation("checkpoint-size-edited", "naive", "integrity", "checkpoint-invalid")
def _(t: Tamper) -> None:
    lines = t.b.checkpoint.split("\n")
    lines[1] = str(int(lines[1]) + 1)
    t.b.checkpoint = "\n".join(lines)


@mutation("manifest-size-edited", "naive", "integrity", "checkpoint-invalid")
def _(t: Tamper) -> None:
    t.b.manifest["tree_size"] += 1


# ---------------------------------------------------------------------------------------------- files
@mutation("file-missing", "naive", "integrity", "bundle-form")
def _(t: Tamper) -> None:
    t.files["grants.jsonl"] = None


@mutation("file-added", "naive", "integrity", "bundle-form")
def _(t: Tamper) -> None:
    t.files["README.txt"] = b"trust me\n"


@mutation("line-not-json", "naive", "integrity", "bundle-form")
def _(t: Tamper) -> None:
    t.line("state.jsonl", lambda s: s.replace("{", "[", 1))


@mutation("bytes-not-utf-8", "naive", "integrity", "bundle-form")
def _(t: Tamper) -> None:
    t.files["documents.jsonl"] = t.b.files()["documents.jsonl"].replace(b"states", b"st\xe4tes", 1)


@mutation("salt-alone-removed", "naive", "integrity", "bundle-form")
def _(t: Tamper) -> None:
    t.one().salt = None


# ---------------------------------------------------------------------------------------------- identity
@mutation("signature-moved", "naive", "integrity", "attestation-digest-mismatch")
def _(t: Tamper) -> None:
    a, b = _two_of_one_signer(t)
    b.attestation = a.attestation


@mutation("signature-moved", "insider", "identity", "statement-mismatch", "nonce-reused")
def _(t: Tamper) -> None:
    a, b = _two_of_one_signer(t)
    b.attestation = a.attestation


def _two_of_one_signer(t: Tamper) -> tuple[Record, Record]:
    seen: dict[str, Record] = {}
    for r in t.all(signed=True):
        other = seen.setdefault(r.head["actor_ref"], r)
        if other is not r and other.attestation != r.attestation:
            return other, r
    raise Skip("nobody signed twice")


@mutation("signature-of-another-actor", "insider", "identity", "attestation-proof-invalid", "statement-mismatch")
def _(t: Tamper) -> None:
    records = t.all(signed=True)
    other = next((r for r in records if r.head["actor_ref"] != records[0].head["actor_ref"]), None) if records else None
    if other is None:
        raise Skip("only one signer")
    records[0].attestation = other.attestation


@mutation("signature-edited", "insider", "identity", "attestation-proof-invalid")
def _(t: Tamper) -> None:
    r = t.one("gate_decided", "transition_fired", "workflow_started", signed=True)
    raw = bytearray(unb64(r.proofdata["signature"]))
    raw[3] ^= 1
    t.edit_proof(r, signature=b64(bytes(raw)))


@mutation("statement-edited", "insider", "identity", "attestation-proof-invalid")
def _(t: Tamper) -> None:
    r = t.one(signed=True)
    said = {**json.loads(unb64(r.proofdata["statement"])), "meaning": "whatever suits"}
    t.edit_proof(r, statement=b64(dump(said).encode()))


@mutation("body-edited", "naive", "integrity", "attestation-digest-mismatch")
def _(t: Tamper) -> None:
    r = t.one("gate_decided", "transition_fired", "workflow_started", signed=True)
    t.edit_proof(r, body=b64(unb64(r.proofdata["body"])[:-1] + b',"x":1}'))


@mutation("body-edited", "insider", "identity", "statement-mismatch")
def _(t: Tamper) -> None:
    r = t.one("gate_decided", "transition_fired", "workflow_started", signed=True)
    body = {**json.loads(unb64(r.proofdata["body"])), "reason": "as it should have been"}
    t.edit(r, reason="as it should have been")
    t.edit_proof(r, body=b64(dump(body).encode()))


@mutation("class-not-the-headers", "insider", "identity", "attestation-invalid")
def _(t: Tamper) -> None:
    r = t.one(signed=True)
    r.head["assurance"] = "passkey_signed"


@mutation("attestation-member-missing", "insider", "identity", "attestation-invalid")
def _(t: Tamper) -> None:
    r = t.one(where=lambda r: r.head["actor_ref"] != t.app_ref)
    r.attestation = dump({k: v for k, v in r.proofdata.items() if k != "v"})


@mutation("decision-turned", "insider", "identity", "statement-mismatch")
def _(t: Tamper) -> None:
    r = t.one("gate_decided", signed=True, where=lambda r: r.body["decision"] == "reject" or not r.body.get("chain_id"))
    t.edit(r, decision="reject" if r.body["decision"] == "approve" else "approve")


@mutation("decision-without-meaning", "engine", "identity", "statement-mismatch")
def _(t: Tamper) -> None:
    t.sign_again(t.one("gate_decided", signed=True), meaning=" ")


@mutation("statement-for-another-sequence", "engine", "identity", "statement-mismatch")
def _(t: Tamper) -> None:
    r = t.one("gate_decided", "transition_fired", signed=True)
    t.sign_again(r, expected_sequence=t.command(r)[0].head["sequence"])


@mutation("statement-for-another-path", "engine", "identity", "statement-mismatch")
def _(t: Tamper) -> None:
    r = t.one("gate_decided", signed=True)
    t.sign_again(r, request=f"POST /v1/processes/{r.head['instance_id']}/gates/another/decision")


@mutation("statement-for-another-instance", "engine", "identity", "statement-mismatch")
def _(t: Tamper) -> None:
    t.sign_again(t.one("gate_decided", signed=True), instance_id=after_id(t.processes()[0]))


@mutation("nonce-reused", "engine", "identity", "nonce-reused")
def _(t: Tamper) -> None:
    a, b = _two_of_one_signer(t)
    t.sign_again(b, nonce=json.loads(unb64(a.proofdata["statement"]))["nonce"])


@mutation("nonce-of-application-reused", "insider", "identity", "nonce-reused")
def _(t: Tamper) -> None:
    a, b = [r for r in t.all(registry=True) if r.head["actor_ref"] == t.app_ref][:2]
    nonce = json.loads(unb64(a.proofdata["statement"]))["nonce"]
    said = {**json.loads(unb64(b.proofdata["statement"])), "nonce": nonce}
    t.edit_proof(b, statement=b64(dump(said).encode()))     # reseal keeps the nonce and signs anew


@mutation("decision-server-attested", "insider", "identity", "assurance-too-low")
def _(t: Tamper) -> None:
    if not t.config()["regulated"]:
        raise Skip("not regulated")
    r = t.one("gate_decided")
    for x in t.command(r):
        if x.head["actor_ref"] == r.head["actor_ref"]:
            x.head["assurance"], x.attestation = "server_attested", make.bearer_attestation("0" * 16)


@mutation("credential-not-the-actors", "insider", "identity", "attestation-proof-invalid")
def _(t: Tamper) -> None:
    r = t.one("transition_fired", "gate_opened")
    for x in t.command(r):
        if x.head["actor_ref"] == r.head["actor_ref"]:
            x.head["assurance"], x.attestation = "server_attested", make.bearer_attestation("0" * 16)


@mutation("credential-null", "insider", "identity", "attestation-proof-invalid")
def _(t: Tamper) -> None:
    r = t.one("transition_fired", "gate_opened")
    for x in t.command(r):
        if x.head["actor_ref"] == r.head["actor_ref"]:
            x.head["assurance"], x.attestation = "server_attested", make.bearer_attestation(None)


@mutation("actor-unknown", "insider", "identity", "attestation-actor-unknown-in-registry")
def _(t: Tamper) -> None:
    acting = {r.head["actor_ref"] for r in t.all()}
    t.delete(t.one("actor_registered", registry=True, where=lambda r: r.head["actor_ref"] != t.app_ref and r.body["actor_ref"] in acting))


@mutation("key-revoked-earlier", "insider", "identity", "key-revoked")
def _(t: Tamper) -> None:
    r = t.one("gate_decided", "transition_fired", signed=True)
    t.forge_in_registry(r, "key_revoked", {"actor_ref": r.head["actor_ref"], "key_id": r.proofdata["key_id"], "reason": "it never was theirs"}, known=True)


@mutation("key-revocation-moved-earlier", "insider", "identity", "key-revoked")
def _(t: Tamper) -> None:
    r = t.one("key_revoked", registry=True)
    used = [x for x in t.all(signed=True) + t.all(signed=True, registry=True) if x.proofdata["key_id"] == r.body["key_id"]]
    if not used:
        raise Skip("the revoked key signed nothing that is left")
    payload = r.body
    t.delete(r)
    t.forge_in_registry(used[0], "key_revoked", payload, known=True)


@mutation("credential-revoked-earlier", "insider", "identity", "attestation-proof-invalid")
def _(t: Tamper) -> None:
    r = t.one(where=lambda r: r.head["assurance"] == "server_attested")
    t.forge_in_registry(r, "credential_revoked", {"actor_ref": r.head["actor_ref"], "credential_id": r.proofdata["credential_id"]}, known=True)


@mutation("settlement-not-by-the-application", "insider", "identity", "statement-mismatch")
def _(t: Tamper) -> None:
    r = t.one("chain_resolved", "moot_gate_recalled")
    ref, token = t.holder("workflows:fire")
    r.head.update(actor_ref=ref, assurance="server_attested")
    r.attestation = make.bearer_attestation(token)


@mutation("two-statements-in-one-command", "engine", "identity", "statement-mismatch")
def _(t: Tamper) -> None:
    r = t.one("gate_opened", "gate_decided", signed=True, where=lambda r: bool(r.body.get("chain_id")))
    others = {x.head["event_id"]: x.attestation for x in t.command(r) if x is not r}
    t.sign_again(r, nonce="another-nonce-" + r.head["event_id"])
    for x in t.command(r):
        x.attestation = others.get(x.head["event_id"], x.attestation)


@mutation("display-name-not-text", "insider", "integrity", "bundle-form")
def _(t: Tamper) -> None:
    t.edit(t.one("actor_registered", registry=True), display_name=["x"])


@mutation("retention-policy-not-text", "insider", "integrity", "bundle-form")
def _(t: Tamper) -> None:
    t.edit(t.one("configuration_recorded", registry=True), audit_trail_retention_policy=7)


# ---------------------------------------------------------------------------------------------- claim 1
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
    _purge(t, r, r.head["recorded_at_us"] + 1)


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


# ---------------------------------------------------------------------------------------------- claim 2
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
    r = t.one("transition_fired", where=lambda r: not r.body["guarded"])
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


# ---------------------------------------------------------------------------------------------- stores: claims 2, 3, 4
@mutation("store-current-state", "naive", "2", "replay-mismatch")
def _(t: Tamper) -> None:
    row = t.b.state[0]
    row["current_state"] = "released" if row["current_state"] != "released" else "rejected"


@mutation("store-transition-removed", "naive", "3", "row-missing")
def _(t: Tamper) -> None:
    row = next((s for s in t.b.state if s["transitions"]), None)
    if row is None:
        raise Skip("no transition")
    row["transitions"].pop()


@mutation("store-transition-added", "naive", "3", "record-missing")
def _(t: Tamper) -> None:
    row = next((s for s in t.b.state if s["transitions"]), None)
    if row is None:
        raise Skip("no transition")
    last = row["transitions"][-1]
    row["transitions"].append({**last, "transition_id": after_id(last["transition_id"]), "sequence_number": last["sequence_number"] + 1, "event_id": after_id(last["event_id"])})


@mutation("store-transition-actor", "naive", "3", "row-missing")
def _(t: Tamper) -> None:
    row = next((s for s in t.b.state if s["transitions"]), None)
    if row is None:
        raise Skip("no transition")
    row["transitions"][0]["actor_ref"] = "somebody_else"


def _sure_step(t: Tamper, *states: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A step that no purged record leaves in doubt."""
    for row in t.b.state:
        if any(r.payload is None for r in t.b.chain(row["instance_id"])):
            continue
        for s in row["approval_steps"]:
            if s["state"] in states:
                return row, s
    raise Skip(f"no step that is {' or '.join(states)} beyond doubt")


@mutation("store-step-state", "naive", "3", "row-missing", "record-missing")
def _(t: Tamper) -> None:
    _, s = _sure_step(t, "Approved", "Rejected")
    s["state"] = "Rejected" if s["state"] == "Approved" else "Approved"


@mutation("store-step-decided-without-record", "naive", "3", "record-missing")
def _(t: Tamper) -> None:
    _, s = _sure_step(t, "Pending")
    s.update(state="Approved", ended_by=s["approver_ref"], ended_at_us=s["submitted_at_us"] + 1)


@mutation("store-step-approver", "naive", "3", "row-missing")
def _(t: Tamper) -> None:
    row = next((s for s in t.b.state if s["approval_steps"]), None)
    if row is None:
        raise Skip("no step")
    row["approval_steps"][0]["approver_ref"] = "somebody_else"


@mutation("store-step-subject", "naive", "3", "row-missing")
def _(t: Tamper) -> None:
    row, s = _sure_step(t, "Pending", "Approved", "Rejected", "Withdrawn")
    s["subject_ref"] = row["subject_ref"]


@mutation("store-step-withdrawn-for-another-reason", "naive", "3", "row-missing")
def _(t: Tamper) -> None:
    _, s = next(((row, s) for row in t.b.state for s in row["approval_steps"] if s["ended_reason"] in (make.MOOT, make.UNREACHABLE)), (None, None))
    if s is None:
        raise Skip("the engine withdrew no step")
    s["ended_reason"] = "by mutual consent"


@mutation("store-step-withdrawn-by-another", "naive", "3", "row-missing")
def _(t: Tamper) -> None:
    _, s = _sure_step(t, "Withdrawn")
    s["ended_by"] = t.app_ref


def _row_kind(name: str, rows: str, **changes: Any) -> None:
    @mutation(name, "naive", "integrity", "bundle-form")
    def _(t: Tamper) -> None:
        row = next((s for s in t.b.state if s[rows]), None)
        if row is None:
            raise Skip(f"no {rows}")
        row[rows][0].update(changes)


_row_kind("store-assignee-not-text", "assignments", assignee_ref=7)
_row_kind("store-status-unknown", "assignments", status="Lost")
_row_kind("store-step-state-unknown", "approval_steps", state="Maybe")
_row_kind("store-gate-fate-unknown", "gates", fate="kept")
_row_kind("store-guard-not-boolean", "transitions", guard_satisfied="yes")


@mutation("store-step-removed", "naive", "3", "row-missing")
def _(t: Tamper) -> None:
    row = next((s for s in t.b.state if s["approval_steps"]), None)
    if row is None:
        raise Skip("no step")
    row["approval_steps"].pop()


@mutation("store-gate-fate", "naive", "3", "row-missing")
def _(t: Tamper) -> None:
    row, s = _sure_step(t, "Approved")
    gate = next(g for g in row["gates"] if g["gate_id"] == s["gate_id"])
    gate["fate"] = "unspent" if gate["fate"] == "consumed" else "consumed"


@mutation("store-gate-added", "naive", "3", "record-missing")
def _(t: Tamper) -> None:
    row = next((s for s in t.b.state if s["gates"]), None)
    if row is None:
        raise Skip("no gate")
    row["gates"].append({**row["gates"][-1], "gate_id": after_id(row["gates"][-1]["gate_id"])})


@mutation("store-assignment-active", "naive", "4", "assignment-coverage")
def _(t: Tamper) -> None:
    row, s = _sure_step(t, "Approved", "Rejected", "Withdrawn")
    next(a for a in row["assignments"] if a["task_ref"] == s["step_id"]).update(status="Active", ended_at_us=None)


@mutation("store-assignment-recalled", "naive", "4", "assignment-coverage")
def _(t: Tamper) -> None:
    row, s = _sure_step(t, "Pending")
    a = next(a for a in row["assignments"] if a["task_ref"] == s["step_id"])
    if a["status"] != "Active":
        raise Skip("no active assignment")
    a.update(status="Recalled", ended_at_us=s["submitted_at_us"] + 1)


@mutation("store-line-removed", "naive", "3", "row-missing")
def _(t: Tamper) -> None:
    t.b.state.pop()


@mutation("store-line-added", "naive", "3", "record-missing")
def _(t: Tamper) -> None:
    t.b.state.append({**t.b.state[-1], "instance_id": after_id(t.b.state[-1]["instance_id"])})


@mutation("store-initiator", "naive", "3", "row-missing")
def _(t: Tamper) -> None:
    t.b.state[0]["initiator_ref"] = "somebody_else"


@mutation("store-grant-added", "naive", "3", "record-missing")
def _(t: Tamper) -> None:
    last = t.b.grants[-1]
    t.b.grants.append({**last, "grant_id": after_id(last["grant_id"]), "granted_seq": last["granted_seq"] + 1})


@mutation("gate-opened-while-open", "insider", "3", "binding-invalid")
def _(t: Tamper) -> None:
    r = t.one("gate_opened", where=lambda r: not r.body.get("chain_id") and not any(x.payload is None for x in t.b.chain(r.head["instance_id"])))
    p = {**r.body, "step_id": after_id(r.body["step_id"]), "assignment_id": after_id(r.body["assignment_id"]), "supersedes": r.body["step_id"]}
    twin = t.forge(r, "gate_opened", r.head["actor_ref"], p, "x")
    twin.head["assurance"], twin.attestation = r.head["assurance"], r.attestation


@mutation("decided-twice", "insider", "3", "binding-invalid")
def _(t: Tamper) -> None:
    r = t.one("gate_decided", where=lambda r: not r.body.get("chain_id"))
    twin = t.forge(r, "gate_decided", r.head["actor_ref"], r.body, "x")
    twin.head["assurance"], twin.attestation = r.head["assurance"], r.attestation


@mutation("moot-forged-for-fired-gate", "insider", "4", "moot-invalid")
def _(t: Tamper) -> None:
    r = t.guarded()
    name = "chain_id" if r.body.get("chain_id") else "step_id"
    t.forge(r, "moot_gate_recalled", t.app_ref, {"instance_id": r.head["instance_id"], "moot_action": r.body["action"], "from_state": r.body["from_state"], name: r.body[name],
                                                 "moot_kind": "approved-unconsumed", "reason": "Gate moot: workflow advanced past from_state"}, None, same_command=True)


@mutation("moot-kind-swapped", "insider", "4", "moot-invalid")
def _(t: Tamper) -> None:
    r = t.one("moot_gate_recalled")
    t.edit(r, moot_kind="pending-withdrawn" if r.body["moot_kind"] == "approved-unconsumed" else "approved-unconsumed")


@mutation("moot-deleted", "insider", "4", "assignment-coverage")
def _(t: Tamper) -> None:
    t.delete(t.one("moot_gate_recalled", where=lambda r: not any(x.payload is None for x in t.b.chain(r.head["instance_id"]))))


# ---------------------------------------------------------------------------------------------- claim 5 and the registry's order
@mutation("grant-removed", "naive", "3", "row-missing")
def _(t: Tamper) -> None:
    t.b.grants.pop()


def _needed_grant(t: Tamper) -> tuple[Record, Record]:
    """A grant and the first record that rests on it alone."""
    need = {"workflow_started": "workflows:start", "gate_opened": "workflows:open-gate", "transition_fired": "workflows:fire", "evidence_exported": "audit:read"}
    for r in t.all(*need):
        scope = need[r.head["action_ref"]]
        grants = [g for g in t.all("grant_made", registry=True) if g.body["subject_ref"] == r.head["actor_ref"] and g.head["sequence"] <= r.head["registry_seq"]
                  and (g.body["action_scope"] == scope or g.body["action_scope"].startswith(scope + ":"))]
        if len(grants) == 1 and grants[0].head["registry_seq"] > 0:
            return grants[0], r
    raise Skip("no record rests on one grant")


@mutation("grant-removed", "insider", "5", "permission-not-held")
def _(t: Tamper) -> None:
    grant, _ = _needed_grant(t)
    t.b.grants = [g for g in t.b.grants if g["grant_id"] != grant.body["grant_id"]]
    t.delete(grant)


@mutation("grant-revoked-earlier", "naive", "3", "record-missing", "row-missing")
def _(t: Tamper) -> None:
    grant, _ = _needed_grant(t)
    for g in t.b.grants:
        if g["grant_id"] == grant.body["grant_id"]:
            g.update(revoked_at_us=g["granted_at_us"] + 1, revoked_seq=g["granted_seq"])


def _revoke_before(t: Tamper, known: bool) -> None:
    grant, r = _needed_grant(t)
    if any(x.body["grant_id"] == grant.body["grant_id"] for x in t.all("grant_revoked", registry=True)):
        raise Skip("revoked already")
    forged = t.forge_in_registry(r, "grant_revoked", grant.body, known)
    for g in t.b.grants:
        if g["grant_id"] == grant.body["grant_id"]:
            g.update(revoked_at_us=forged.head["recorded_at_us"], revoked_seq=forged.head["registry_seq"] + 1)


@mutation("grant-revoked-earlier", "insider", "5", "permission-not-held")
def _(t: Tamper) -> None:
    _revoke_before(t, known=True)


@mutation("action-after-its-revocation", "insider", "integrity", "registry-order")
def _(t: Tamper) -> None:
    _revoke_before(t, known=False)


@mutation("action-before-its-grant", "insider", "integrity", "registry-order")
def _(t: Tamper) -> None:
    grant, r = _needed_grant(t)
    later = t.slots.index(grant)
    for x in [x for x in t.b.chain(r.head["instance_id"]) if x.head["sequence"] <= r.head["sequence"]]:
        t.slots.remove(x)
        t.slots.insert(later - 1, x)        # the grant moves up by one: x stands right before it


@mutation("action-before-its-grant-known-so", "insider", "5", "permission-not-held")
def _(t: Tamper) -> None:
    grant, r = _needed_grant(t)
    for x in [x for x in t.b.chain(r.head["instance_id"]) if x.head["sequence"] <= r.head["sequence"]]:
        t.slots.remove(x)
        t.slots.insert(t.slots.index(grant), x)
        x.head["registry_seq"] = grant.head["sequence"] - 1


@mutation("grant-by-nobody-permitted", "insider", "5", "permission-not-held")
def _(t: Tamper) -> None:
    if t.window():
        raise Skip("the export ends the registry")
    manage = {g["subject_ref"] for g in t.b.grants if g["action_scope"] == "permissions:manage"}
    ref = next((r.body["actor_ref"] for r in t.all("actor_registered", registry=True) if r.body["actor_ref"] not in manage | {t.app_ref}), None)
    if ref is None:
        raise Skip("everybody manages permissions")
    last = t.b.chain(REGISTRY)[-1]
    grant = {"grant_id": after_id(t.b.grants[-1]["grant_id"]), "subject_ref": ref, "action_scope": "audit:purge"}
    r = t.forge(last, "grant_made", ref, grant, "0" * 16)
    _known_later(t)
    t.b.grants.append({**grant, "granted_at_us": r.head["recorded_at_us"], "granted_seq": r.head["registry_seq"] + 1, "revoked_at_us": None, "revoked_seq": None})


# ---------------------------------------------------------------------------------------------- retention
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


def _purge(t: Tamper, r: Record, until: Optional[int]) -> Record:
    """Forges the destruction of `r`, right before the last record of its chain."""
    instance = r.head["instance_id"]
    ref, token = t.holder("audit:purge")
    r.head["retention"] = {"policy_ref": "short-lived", "retention_until_us": until, "purge_deadline_us": None}
    chain = t.b.chain(instance)
    h = r.head
    forged = t.forge(chain[-1], "record_purged", ref, {"event_id": h["event_id"], "instance_id": instance, "sequence": h["sequence"], "action_ref": h["action_ref"], "actor_ref": h["actor_ref"],
                                                       "record_hash": "", "attestation_digest": h["attestation_digest"], "policy_ref": "short-lived", "retention_until_us": until},
                     token, before=not t.window())
    r.payload = r.attestation = r.salt = None
    return forged


@mutation("destroyed-before-its-time", "insider", "retention", "destruction-invalid")
def _(t: Tamper) -> None:
    _purge(t, t.one("gate_decided", "transition_fired"), t.b.manifest["made_at_us"] + 86_400_000_000)


@mutation("destroyed-though-kept-without-end", "insider", "retention", "destruction-invalid")
def _(t: Tamper) -> None:
    _purge(t, t.one("gate_decided", "transition_fired"), None)


@mutation("destroyed-under-hold", "insider", "retention", "destruction-invalid")
def _(t: Tamper) -> None:
    r = t.one("gate_decided", "transition_fired")
    ref, token = t.holder("audit:hold")
    chain = t.b.chain(r.head["instance_id"])
    t.forge(chain[-2], "hold_placed", ref, {"hold_id": after_id(r.head["event_id"]), "record_ref": r.head["event_id"], "instance_id": r.head["instance_id"], "reason": "inspection"}, token)
    _purge(t, r, r.head["recorded_at_us"] + 1)


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
    _purge(t, r, r.head["recorded_at_us"] + 1)


@mutation("destruction-record-of-a-record-that-is-there", "insider", "retention", "destruction-invalid")
def _(t: Tamper) -> None:
    r = t.one("gate_decided", "transition_fired")
    kept = (r.payload, r.attestation, r.salt)
    _purge(t, r, r.head["recorded_at_us"] + 1)
    r.payload, r.attestation, r.salt = kept


@mutation("destruction-record-with-another-hash", "insider", "retention", "destruction-invalid")
def _(t: Tamper) -> None:
    purge = t.one("record_purged")
    t.edit(purge, attestation_digest=det("other").hex())


import tamper_runs  # noqa: E402

tamper_runs.register(sys.modules[__name__])


# ---------------------------------------------------------------------------------------------- command
def tamper(bundle: Bundle, keys: dict[str, Any], out: pathlib.Path, only: Optional[set[str]] = None) -> dict[str, Any]:
    out.mkdir(parents=True, exist_ok=True)
    cases, skipped = [], []
    for name, form, claim, expected, f in MUTATIONS:
        if only is not None and f"{name}.{form}" not in only:
            continue
        t = Tamper(bundle, keys)
        try:
            f(t)
            if t.use_policy and not t.policy:
                raise Skip("no policy with witnesses")
            if form != "naive" and t.b.checkpoint == bundle.checkpoint:
                t.reseal()
        except (Skip, StopIteration, IndexError) as s:
            skipped.append({"name": name, "form": form, "reason": str(s) or "nothing of this kind in the bundle"})
            continue
        files: dict[str, Optional[bytes]] = {**t.b.files(), **t.files}
        make.write_zip(out / f"{name}.{form}.zip", {k: v for k, v in files.items() if v is not None})
        case: dict[str, Any] = {"file": f"{name}.{form}.zip", "name": name, "form": form, "claim": claim, "expected": expected}
        if t.use_policy:
            case["policy"] = "policy.txt"
        if t.vkey:
            case["key"] = t.vkey
        cases.append(case)
    answer = {"vkey": keys["vkey"], "cases": cases, "skipped": skipped}
    (out / "expected.json").write_text(json.dumps(answer, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if keys.get("policy"):
        (out / "policy.txt").write_text(keys["policy"], encoding="utf-8")
    return answer


def main(argv: list[str]) -> int:
    if len(argv) != 4:
        print("usage: tamper.py BUNDLE KEYS.json OUTDIR", file=sys.stderr)
        return 2
    keys = json.loads(pathlib.Path(argv[2]).read_text(encoding="utf-8"))
    answer = tamper(Bundle.read(argv[1]), keys, pathlib.Path(argv[3]))
    print(f"{len(answer['cases'])} broken bundles, {len(answer['skipped'])} mutations skipped")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
