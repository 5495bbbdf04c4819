"""Passkeys (record.md 5.3, 5.4): their keys, what their authenticators sign, and their counters."""
from __future__ import annotations

import base64
from typing import Optional

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from .found import Record, Report
from .texts import Fault, Json, check_form, parse_json, sha256, signature_fits, unbase64

PASSKEY = "algorithm:text credential_id:text rp_id:text origin:text label?:text"
LENGTHS = {"ES256": 65, "EdDSA": 32}
SPKI = {"ES256": bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d030107034200"), "EdDSA": bytes.fromhex("302a300506032b6570032100")}
PRESENT_AND_VERIFIED = 0x05
APART_US = 20 * 60 * 1_000_000


def unbase64url(text: Json) -> bytes:
    if not isinstance(text, str) or "=" in text or "+" in text or "/" in text:
        raise ValueError("not base64url without padding")
    raw = base64.b64decode(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4), validate=True)
    if base64.urlsafe_b64encode(raw).rstrip(b"=").decode() != text:
        raise ValueError("not base64url as it is written")
    return raw


def is_key(public: bytes, passkey: Optional[dict[str, Json]]) -> bool:
    """Whether these bytes are a key of the kind that key_registered states."""
    if passkey is None:
        return len(public) == 32
    return LENGTHS.get(passkey["algorithm"]) == len(public) and (passkey["algorithm"] != "ES256" or public[0] == 4)


def fits(public: bytes, algorithm: str, signature: bytes, data: bytes) -> bool:
    if algorithm == "EdDSA":
        return signature_fits(public, signature, data)
    try:
        ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), public).verify(signature, data, ec.ECDSA(hashes.SHA256()))
        return True
    except (InvalidSignature, ValueError):
        return False


def problems(passkey: dict[str, Json], public: bytes, statement: bytes, data: bytes, client_data: bytes, signature: bytes) -> tuple[list[str], int]:
    """What is wrong with an assertion, and its counter."""
    try:
        client = parse_json(client_data.decode("utf-8"))
        check_form(client, "type:text challenge:text origin:text crossOrigin?:bool", "attestation-invalid", "client_data_json", exact=False)
    except ValueError as e:
        raise Fault("attestation-invalid", f"client_data_json: {e}") from e
    except Fault as f:
        raise Fault("attestation-invalid" if f.code == "bundle-form" else f.code, f"client_data_json: {f.detail}") from f
    if len(data) < 37:
        raise Fault("attestation-invalid", "authenticator_data is too short")
    found = []
    if client["type"] != "webauthn.get":
        found.append("client_data_json is not of webauthn.get")
    if client["challenge"] != base64.urlsafe_b64encode(sha256(statement)).rstrip(b"=").decode():
        found.append("the challenge is not the SHA-256 of the statement")
    if client["origin"] != passkey["origin"] or client.get("crossOrigin"):
        found.append(f"made for a page of {client['origin']}, and the passkey is for {passkey['origin']}")
    if data[:32] != sha256(passkey["rp_id"].encode()):
        found.append("rp_id hash is not that of the passkey's rp_id")
    if data[32] & PRESENT_AND_VERIFIED != PRESENT_AND_VERIFIED:
        found.append("the authenticator did not verify its user")
    if not fits(public, passkey["algorithm"], signature, data + sha256(client_data)):
        found.append("the signature does not fit the passkey")
    return found, int.from_bytes(data[33:37], "big")


class Counters:
    """What each passkey has counted: the record, when its statement was issued, and the counter."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, str], dict[bytes, tuple[int, int, Record]]] = {}

    def take(self, r: Record, key_id: str, statement: bytes, issued_at_us: int, counter: int) -> None:
        self.seen.setdefault((r.actor, key_id), {}).setdefault(statement, (issued_at_us, counter, r))

    def check(self, report: Report) -> None:
        for (_, key_id), statements in sorted(self.seen.items()):
            uses = sorted(statements.values(), key=lambda use: (use[0], use[1], use[2].head["event_id"]))
            counted: set[int] = set()
            highest, behind = 0, 0
            for issued, counter, r in uses:
                while uses[behind][0] + APART_US < issued:
                    highest, behind = max(highest, uses[behind][1]), behind + 1
                if counter in counted or highest > 0 and counter <= highest:
                    report.find("passkey-counter", f"the counter of the passkey {key_id} is {counter}, which it had reached or passed before", r)
                if counter > 0:
                    counted.add(counter)


def same_credential(said: Json, payload: dict[str, Json]) -> bool:
    """Whether the credential in a request to register a passkey is the one registered."""
    passkey = payload.get("passkey") or {}
    try:
        credential = said.get("credential") or {}
        spki = unbase64url(credential["response"]["publicKey"])
        return credential["id"] == passkey["credential_id"] and spki == SPKI[passkey["algorithm"]] + unbase64(payload["public_key"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return False
