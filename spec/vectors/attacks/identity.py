"""Somebody else did it: signatures, keys, credentials."""
from __future__ import annotations

import json
from typing import Optional

from bundle import Key, Record, b64, bearer_attestation, det, dump, unb64
from .kit import NEUTRAL, STEPS, Skip, Tamper, after_id, mutation


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


def _by_bearer(t: Tamper, r: Record, credential: Optional[str]) -> None:
    """What its actor did with this command is said to have been done with a token."""
    for x in t.command(r):
        if x.head["actor_ref"] == r.head["actor_ref"]:
            x.head["assurance"], x.attestation = "server_attested", bearer_attestation(credential)


@mutation("decision-server-attested", "insider", "identity", "assurance-too-low")
def _(t: Tamper) -> None:
    if not t.config()["regulated"]:
        raise Skip("not regulated")
    r = t.one("gate_decided")
    _by_bearer(t, r, "0" * 16)


@mutation("act-server-attested", "insider", "identity", "assurance-too-low")
def _(t: Tamper) -> None:
    if t.config().get("signatures") is None:
        raise Skip("decisions alone are signed")
    engines = (t.app_ref, t.config()["server_actor_ref"])
    services = {r.body["actor_ref"] for r in t.all("actor_registered", registry=True) if r.body["kind"] == "service"}
    acts = [r for r in t.all(signed=True) if r.head["actor_ref"] not in services and r.head["actor_ref"] not in engines]
    acts = [r for r in acts if r.head["action_ref"] not in (*STEPS, *NEUTRAL, "gate_decided") and t.has_token(r.head["actor_ref"])]
    if not acts:
        raise Skip("nobody did anything that a token could have done")
    _by_bearer(t, acts[-1], t.token_of(acts[-1].head["actor_ref"]))


@mutation("registry-act-server-attested", "insider", "identity", "assurance-too-low")
def _(t: Tamper) -> None:
    if t.config().get("signatures") is None:
        raise Skip("decisions alone are signed")
    r = t.one("grant_made", registry=True, signed=True, where=lambda r: t.has_token(r.head["actor_ref"]))
    _by_bearer(t, r, t.token_of(r.head["actor_ref"]))


@mutation("second-key-with-a-token", "insider", "identity", "assurance-too-low")
def _(t: Tamper) -> None:
    if t.config().get("signatures") is None:
        raise Skip("decisions alone are signed")
    r = t.one(signed=True, where=lambda r: t.has_token(r.head["actor_ref"]))
    ref, key = r.head["actor_ref"], Key(det("a key of the attacker"))
    before = t.forge_in_registry(r, "key_registered", {"actor_ref": ref, "key_id": key.key_id, "public_key": b64(key.public)}, known=True)
    before.head["actor_ref"], before.attestation = ref, bearer_attestation(t.token_of(ref))


@mutation("service-by-token-where-none-may", "insider", "identity", "assurance-too-low")
def _(t: Tamper) -> None:
    if t.config().get("signatures") != "people":
        raise Skip("services sign anyway")
    services = {r.body["actor_ref"] for r in t.all("actor_registered", registry=True) if r.body["kind"] == "service"}
    t.one(where=lambda r: r.head["actor_ref"] in services and r.head["assurance"] == "server_attested" and r.head["action_ref"] not in NEUTRAL)
    for r in t.all("configuration_recorded", registry=True):
        t.edit(r, signatures="all")


@mutation("credential-not-the-actors", "insider", "identity", "attestation-proof-invalid")
def _(t: Tamper) -> None:
    r = t.one("transition_fired", "gate_opened")
    _by_bearer(t, r, "0" * 16)


@mutation("credential-null", "insider", "identity", "attestation-proof-invalid")
def _(t: Tamper) -> None:
    r = t.one("transition_fired", "gate_opened")
    _by_bearer(t, r, None)


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
    passkeys = {k.key_id for keys in t.passkeys.values() for k in keys}
    r = t.one(where=lambda r: r.head["assurance"] == "server_attested" and r.proofdata["credential_id"] not in passkeys)
    t.forge_in_registry(r, "credential_revoked", {"actor_ref": r.head["actor_ref"], "credential_id": r.proofdata["credential_id"]}, known=True)


@mutation("settlement-not-by-the-application", "insider", "identity", "statement-mismatch")
def _(t: Tamper) -> None:
    r = t.one("chain_resolved", "moot_gate_recalled")
    ref, token = t.holder("workflows:fire")
    r.head.update(actor_ref=ref, assurance="server_attested")
    r.attestation = bearer_attestation(token)


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
