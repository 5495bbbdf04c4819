"""A bundle under attack, and the list of all mutations."""
from __future__ import annotations

import json
from typing import Any, Callable, Optional

from passkeys import from_keyfile
from bundle import GOVERNANCE, REGISTRY, Bundle, Key, Record, b64, bearer_attestation, det, dump, sha, unb64

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
        self.b, self.keys = bundle.copy(), keys
        self.log = Key(bytes.fromhex(keys["log"]["seed"]))
        self.app = Key(bytes.fromhex(keys["application"]["seed"]))
        self.app_ref = keys["application"]["actor_ref"]
        self.actors = {ref: [Key(bytes.fromhex(s)) for s in seeds] for ref, seeds in keys.get("actors", {}).items()}
        self.passkeys = {ref: [from_keyfile(k) for k in kept] for ref, kept in keys.get("passkeys", {}).items()}
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
        return [i for i in self.b.instances() if i != GOVERNANCE]

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

    def part(self, r: Record, action: str) -> Record:
        """The record of the same command with this action."""
        return next(x for x in self.command(r) if x.head["action_ref"] == action)

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

    def has_token(self, ref: str) -> bool:
        try:
            return bool(self.token_of(ref))
        except Skip:
            return False

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
        r = Record(head, dump(payload), bearer_attestation(credential), det("forged", instance, head["event_id"]).hex())
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


def purge(t: Tamper, r: Record, until: Optional[int]) -> Record:
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


def known_later(t: Tamper) -> None:
    """A registry record was added at the end: records after it in the log knew it."""
    last = max((r for r in t.b.records if r.head["instance_id"] == REGISTRY), key=lambda r: r.head["sequence"])
    before = len([r for r in t.b.records if r.head["instance_id"] == REGISTRY]) - 1
    for x in t.slots[t.slots.index(last) + 1:]:
        if x is not None and x.head["instance_id"] != REGISTRY:
            x.head["registry_seq"] = before + 1
    last.head["registry_seq"] = before
