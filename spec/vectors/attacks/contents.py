"""What records say is changed."""
from __future__ import annotations

from typing import Callable

from bundle import Key, b64, det, dump, sha, unb64
from .kit import BIG, Tamper, mutation


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
