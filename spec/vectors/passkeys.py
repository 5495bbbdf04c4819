"""Passkeys: an authenticator in software, assertions that Chromium's virtual authenticator made, and scenarios with both."""
from __future__ import annotations

import base64
import json
import pathlib
from typing import Any, Optional

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bundle import Bundle, Key, b64, det, dump, sha, unb64
from honest import REGISTRY, Actor, Process, World

RP_ID, ORIGIN = "countersign.example", "https://countersign.example"
SPKI = {"ES256": bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d030107034200"), "EdDSA": bytes.fromhex("302a300506032b6570032100")}
COSE = {"ES256": -7, "EdDSA": -8}
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
CHROMIUM = pathlib.Path(__file__).resolve().parent / "chromium.json"
HOUR = 3_600_000_000


def b64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Authenticator:
    """A passkey. Stands where an Ed25519 key can: it has a key_id and public bytes, and attests statements."""

    def __init__(self, seed: bytes, algorithm: str, label: Optional[str] = None, counts: bool = True):
        self.seed, self.algorithm, self.label, self.counts, self.counter = seed, algorithm, label, counts, 0
        self.rp_id, self.origin = RP_ID, ORIGIN
        if algorithm == "EdDSA":
            self.edwards = Key(seed)
            self.public = self.edwards.public
        else:
            self.curve = ec.derive_private_key(int.from_bytes(seed, "big") % (ORDER - 1) + 1, ec.SECP256R1())
            self.public = self.curve.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        self.key_id = sha(self.public).hex()[:16]
        self.credential_id = b64url(sha(b"credential " + seed))

    def sign(self, data: bytes) -> bytes:
        if self.algorithm == "EdDSA":
            return self.edwards.sign(data)
        return self.curve.sign(data, ec.ECDSA(hashes.SHA256(), deterministic_signing=True))

    def assertion(self, said: bytes, **changes: Any) -> dict[str, str]:
        """What the authenticator gives for this statement; `changes`: challenge, origin, rp_id, flags, counter, type."""
        counter = changes.get("counter")
        if counter is None:
            self.counter += 1 if self.counts else 0
            counter = self.counter
        client = dump({"type": changes.get("type", "webauthn.get"), "challenge": b64url(changes.get("challenge", sha(said))),
                       "origin": changes.get("origin", self.origin), "crossOrigin": False}).encode()
        data = sha(changes.get("rp_id", self.rp_id).encode()) + bytes([changes.get("flags", 5)]) + counter.to_bytes(4, "big")
        return {"authenticator_data": b64(data), "client_data_json": b64(client), "signature": b64(self.sign(data + sha(client)))}

    def attest(self, said: bytes, signed_over: str, body: Optional[bytes]) -> str:
        return attestation(self.key_id, said, self.assertion(said), signed_over, None if body is None else b64(body))

    def payload(self) -> dict[str, Any]:
        return {"algorithm": self.algorithm, "credential_id": self.credential_id, "rp_id": self.rp_id, "origin": self.origin,
                **({"label": self.label} if self.label else {})}

    def credential(self) -> dict[str, Any]:
        """PublicKeyCredential.toJSON() of a registration, as far as the server reads it."""
        client = dump({"type": "webauthn.create", "challenge": b64url(det("challenge", self.key_id)), "origin": self.origin, "crossOrigin": False})
        raw = base64.urlsafe_b64decode(self.credential_id + "=" * (-len(self.credential_id) % 4))
        data = sha(self.rp_id.encode()) + bytes([0x45]) + bytes(4) + bytes(16) + len(raw).to_bytes(2, "big") + raw
        return {"id": self.credential_id, "rawId": self.credential_id, "type": "public-key",
                "response": {"clientDataJSON": b64url(client.encode()), "authenticatorData": b64url(data),
                             "publicKey": b64url(SPKI[self.algorithm] + self.public), "publicKeyAlgorithm": COSE[self.algorithm]}}

    def keyfile(self) -> dict[str, Any]:
        return {"seed": self.seed.hex(), "algorithm": self.algorithm}


class Recorded(Authenticator):
    """A passkey of a browser: its private key is gone, and what it signed is kept by the hash of the statement."""

    def __init__(self) -> None:
        kept = json.loads(CHROMIUM.read_text(encoding="utf-8")) if CHROMIUM.exists() else {}
        self.kept, self.asked = kept, []
        registered = kept.get("credential", {"id": "", "publicKey": b64url(SPKI["ES256"] + bytes([4]) + bytes(64)), "rp_id": "localhost", "origin": "http://localhost"})
        spki = base64.urlsafe_b64decode(registered["publicKey"] + "=" * (-len(registered["publicKey"]) % 4))
        self.algorithm = next(name for name, prefix in SPKI.items() if spki.startswith(prefix))
        self.public = spki[len(SPKI[self.algorithm]):]
        self.key_id, self.credential_id, self.label = sha(self.public).hex()[:16], registered["id"], "Chromium"
        self.rp_id, self.origin = registered["rp_id"], registered["origin"]

    def assertion(self, said: bytes, **changes: Any) -> dict[str, str]:
        self.asked.append(sha(said).hex())
        return self.kept.get("assertions", {}).get(sha(said).hex(), {"authenticator_data": "", "client_data_json": "", "signature": ""})


def attestation(key_id: str, said: bytes, assertion: dict[str, str], signed_over: str, body: Optional[str]) -> str:
    return dump({"v": 1, "class": "passkey_signed", "key_id": key_id, "statement": b64(said), **assertion, "signed_over": signed_over, "body": body})


def register(w: World, by: Actor, key: Authenticator) -> Actor:
    """An actor registers a passkey: the first with a token or in a session, a further one signed with an earlier one."""
    w.passkeys.setdefault(by.ref, []).append(key)
    body = {**({"label": key.label} if key.label else {}), "credential": key.credential()}
    payload = {"actor_ref": by.ref, "key_id": key.key_id, "public_key": b64(key.public), "passkey": key.payload()}
    w.command(REGISTRY, [("key_registered", by, payload)], "register_key", path="/v1/me/passkeys", body=dump(body).encode())
    return Actor(by.ref, key)


def cast(w: World, declaration: dict[str, Any], gates: dict[str, Any]) -> dict[str, Actor]:
    """Nobody has a key at first: all of them begin with tokens."""
    a = {name: w.register(w.admin, ref, key=False, token=True) for name, ref in (("ines", "ines"), ("qp", "qp_santos"), ("audit", "auditor"))}
    w.grant(w.admin, a["ines"], "workflows:start", "workflows:open-gate", "workflows:fire")
    w.grant(w.admin, a["audit"], "audit:read")
    w.publish(w.admin, "batch-release", 1, declaration, gates)
    return a


def scenario_passkey(declaration: dict[str, Any], gates: dict[str, Any]) -> tuple[World, Bundle]:
    """Decisions with passkeys: ES256 that counts, EdDSA that does not; a second one added with the first; a session that a passkey began."""
    w = World("passkey")
    a = cast(w, declaration, gates)
    qp = register(w, a["qp"], Authenticator(det("passkey", "qp"), "ES256", "blue key"))
    ines = register(w, a["ines"], Authenticator(det("passkey", "ines"), "EdDSA", counts=False))
    w.noise(2)
    second = register(w, qp, Authenticator(det("passkey", "qp", "spare"), "ES256", "spare"))
    session = Actor("ines", session=ines.key.key_id)
    p = Process(w, session, "batch-release@1", "batch/2026-0031", "routine batch")
    p.fire(ines, "submit")
    p.open(session, "reject-batch")
    p.decide(qp, "reject-batch", "reject", "no reason to")
    w.noise()
    w.now += HOUR
    p.open(ines, "release")
    p.decide(qp, "release", "approve", "all results within specification")
    p.fire(session, "release", "released to market")
    w.revoke_key(qp, second, "lost")
    return w, w.export(a["audit"], p, 48)


def scenario_chromium(declaration: dict[str, Any], gates: dict[str, Any]) -> tuple[World, Bundle]:
    """The same decision with a passkey of Chromium's virtual authenticator (chromium.py)."""
    w = World("passkey-chromium")
    a = cast(w, declaration, gates)
    qp = register(w, a["qp"], Recorded())
    p = Process(w, a["ines"], "batch-release@1", "batch/2026-0032")
    p.fire(a["ines"], "submit")
    p.open(a["ines"], "reject-batch")
    p.decide(qp, "reject-batch", "reject", "no reason to")
    w.now += HOUR
    p.open(a["ines"], "release")
    p.decide(qp, "release", "approve", "all results within specification")
    p.fire(a["ines"], "release")
    return w, w.export(a["audit"], p, 40)


def from_keyfile(kept: dict[str, Any]) -> Authenticator:
    return Authenticator(bytes.fromhex(kept["seed"]), kept["algorithm"])


def parts(proof: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """What the statement of a passkey_signed attestation says, and the counter of its assertion."""
    return json.loads(unb64(proof["statement"])), int.from_bytes(unb64(proof["authenticator_data"])[33:37], "big")
