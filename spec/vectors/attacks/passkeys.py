"""Somebody else's passkey, or the right one for something else."""
from __future__ import annotations

import json
from typing import Any

from bundle import REGISTRY, Record, b64, det, dump, sha, unb64
from .kit import Skip, Tamper, mutation

PROOF = "attestation-proof-invalid"


def _decision(t: Tamper, last: bool = False) -> Record:
    found = [r for r in t.all("gate_decided") if r.head["assurance"] == "passkey_signed"]
    if not found:
        raise Skip("nothing was decided with a passkey")
    return found[-1 if last else 0]


def _key(t: Tamper, r: Record) -> Any:
    found = next((k for k in t.passkeys.get(r.head["actor_ref"], []) if k.key_id == r.proofdata["key_id"]), None)
    if found is None:
        raise Skip("the passkey is one of a browser's")
    return found


def _assert_again(t: Tamper, r: Record, said: Any = None, **changes: Any) -> None:
    """The authenticator really signed this, in place of what it should have."""
    key, proof = _key(t, r), r.proofdata
    raw = unb64(proof["statement"]) if said is None else dump(said).encode()
    changes.setdefault("counter", int.from_bytes(unb64(proof["authenticator_data"])[33:37], "big"))
    for x in t.command(r):
        if x.head["actor_ref"] == r.head["actor_ref"]:
            x.attestation = dump({**proof, "statement": b64(raw), **key.assertion(raw, **changes)})


@mutation("passkey-for-another-challenge", "engine", "identity", PROOF)
def _(t: Tamper) -> None:
    _assert_again(t, _decision(t), challenge=sha(b"a challenge for signing in"))


@mutation("passkey-for-another-origin", "engine", "identity", PROOF)
def _(t: Tamper) -> None:
    _assert_again(t, _decision(t), origin="https://countersign.example.evil")


@mutation("passkey-for-another-rp-id", "engine", "identity", PROOF)
def _(t: Tamper) -> None:
    _assert_again(t, _decision(t), rp_id="example")


@mutation("passkey-user-not-verified", "engine", "identity", PROOF)
def _(t: Tamper) -> None:
    _assert_again(t, _decision(t), flags=1)


@mutation("passkey-user-not-present", "engine", "identity", PROOF)
def _(t: Tamper) -> None:
    _assert_again(t, _decision(t), flags=4)


@mutation("passkey-registration-as-assertion", "engine", "identity", PROOF)
def _(t: Tamper) -> None:
    _assert_again(t, _decision(t), type="webauthn.create")


@mutation("passkey-signature-edited", "insider", "identity", PROOF)
def _(t: Tamper) -> None:
    r = _decision(t)
    raw = bytearray(unb64(r.proofdata["signature"]))
    raw[-1] ^= 1
    for x in t.command(r):
        if x.head["actor_ref"] == r.head["actor_ref"]:
            t.edit_proof(x, signature=b64(bytes(raw)))


@mutation("passkey-statement-edited", "insider", "identity", PROOF)
def _(t: Tamper) -> None:
    r = _decision(t)
    said = {**json.loads(unb64(r.proofdata["statement"])), "meaning": "whatever suits"}
    for x in t.command(r):
        if x.head["actor_ref"] == r.head["actor_ref"]:
            t.edit_proof(x, statement=b64(dump(said).encode()))


@mutation("passkey-of-another-actor", "engine", "identity", PROOF)
def _(t: Tamper) -> None:
    r = _decision(t)
    other = next((k for ref, keys in t.passkeys.items() if ref != r.head["actor_ref"] for k in keys), None)
    if other is None:
        raise Skip("only one actor has a passkey")
    said = {**json.loads(unb64(r.proofdata["statement"])), "key_id": other.key_id}
    raw = dump(said).encode()
    for x in t.command(r):
        if x.head["actor_ref"] == r.head["actor_ref"]:
            x.attestation = dump({**r.proofdata, "key_id": other.key_id, "statement": b64(raw), **other.assertion(raw)})


@mutation("passkey-revoked-earlier", "insider", "identity", "key-revoked")
def _(t: Tamper) -> None:
    r = _decision(t)
    t.forge_in_registry(r, "key_revoked", {"actor_ref": r.head["actor_ref"], "key_id": r.proofdata["key_id"], "reason": "it never was theirs"}, known=True)


@mutation("passkey-registered-later", "insider", "identity", PROOF)
def _(t: Tamper) -> None:
    r = _decision(t)
    made = t.one("key_registered", registry=True, where=lambda x: x.body["key_id"] == r.proofdata["key_id"])
    payload = made.body
    t.delete(made)
    last = t.b.chain(REGISTRY)[-1]
    ref, token = t.holder("actors:manage")
    t.forge(last, "key_registered", ref, payload, token).head["registry_seq"] = last.head["sequence"]


@mutation("passkey-never-registered", "insider", "identity", PROOF)
def _(t: Tamper) -> None:
    r = _decision(t)
    t.delete(t.one("key_registered", registry=True, where=lambda x: x.body["key_id"] == r.proofdata["key_id"]))


@mutation("passkey-replayed", "insider", "identity", "nonce-reused")
def _(t: Tamper) -> None:
    first, last = _decision(t), _decision(t, last=True)
    if first is last:
        raise Skip("decided once")
    for x in t.command(last):
        if x.head["actor_ref"] == last.head["actor_ref"]:
            x.attestation = first.attestation


@mutation("passkey-counter-back", "engine", "identity", "passkey-counter")
def _(t: Tamper) -> None:
    first, last = _decision(t), _decision(t, last=True)
    counter = int.from_bytes(unb64(first.proofdata["authenticator_data"])[33:37], "big")
    if first is last or counter < 2:
        raise Skip("nothing to go back behind")
    _assert_again(t, last, counter=counter - 1)


@mutation("passkey-counter-again", "engine", "identity", "passkey-counter")
def _(t: Tamper) -> None:
    first, last = _decision(t), _decision(t, last=True)
    counter = int.from_bytes(unb64(first.proofdata["authenticator_data"])[33:37], "big")
    if first is last or counter == 0:
        raise Skip("it does not count")
    _assert_again(t, last, counter=counter)


@mutation("passkey-said-to-be-a-key", "insider", "identity", PROOF, "attestation-invalid")
def _(t: Tamper) -> None:
    r = _decision(t)
    for x in t.command(r):
        if x.head["actor_ref"] == r.head["actor_ref"]:
            x.head["assurance"] = "actor_signed"
            kept = {k: v for k, v in r.proofdata.items() if k not in ("authenticator_data", "client_data_json")}
            x.attestation = dump({**kept, "class": "actor_signed", "signature": b64(det("signature", "forged") + det("signature", "too"))})


@mutation("passkey-key-swapped", "insider", "identity", PROOF)
def _(t: Tamper) -> None:
    """Whoever has the database puts a passkey of their own in the place of the person's."""
    r = _decision(t)
    key = next((k for keys in t.passkeys.values() for k in keys if k.key_id != r.proofdata["key_id"] and k.algorithm == "ES256"), None)
    if key is None:
        raise Skip("no other passkey")
    made = t.one("key_registered", registry=True, where=lambda x: x.body["key_id"] == r.proofdata["key_id"])
    t.edit(made, public_key=b64(key.public))


@mutation("passkey-member-missing", "insider", "integrity", "bundle-form")
def _(t: Tamper) -> None:
    made = t.one("key_registered", registry=True, where=lambda x: x.body.get("passkey") is not None)
    t.edit(made, passkey={k: v for k, v in made.body["passkey"].items() if k != "origin"})


@mutation("passkey-added-with-a-token", "insider", "5", "permission-not-held")
def _(t: Tamper) -> None:
    """The signature under a further passkey is taken away: a token alone adds only the first."""
    r = t.one("key_registered", registry=True, where=lambda x: x.head["assurance"] == "passkey_signed" and x.body["actor_ref"] == x.head["actor_ref"])
    r.head["assurance"], r.attestation = "server_attested", dump({"v": 1, "class": "server_attested", "credential_id": t.token_of(r.head["actor_ref"])})


@mutation("passkey-of-the-body-swapped", "insider", "identity", "statement-mismatch")
def _(t: Tamper) -> None:
    r = t.one("key_registered", registry=True, where=lambda x: x.head["assurance"] == "passkey_signed")
    t.edit(r, passkey={**r.body["passkey"], "label": "another name"})


@mutation("passkey-session-after-revocation", "insider", "identity", PROOF)
def _(t: Tamper) -> None:
    keys = {k.key_id for keys in t.passkeys.values() for k in keys}
    r = t.one(where=lambda x: x.proofdata.get("credential_id") in keys)
    t.forge_in_registry(r, "key_revoked", {"actor_ref": r.head["actor_ref"], "key_id": r.proofdata["credential_id"], "reason": "lost"}, known=True)
