#!/usr/bin/env python3
"""Makes evidence bundles from nothing but the three pages of the specification (record.md, checkpoint.md, bundle.md).

    python3 spec/vectors/make.py OUTDIR

writes one NAME.zip, NAME.policy.txt and NAME.keys.json per scenario. Everything is deterministic: keys, ids, salts and
times come from hashes of fixed texts. The keys are test keys; their seeds stand in keys.json so that tamper.py can play an
attacker who has them.

The classes here are a small honest server: `World` is the log with its registry, `Process` one run of a state machine.
`Bundle` reads and writes bundles and can `reseal` one with given keys; tamper.py is built on it.
"""
from __future__ import annotations

import base64
import functools
import hashlib
import json
import pathlib
import random
import sys
import zipfile
from typing import Any, Callable, Optional

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

REGISTRY = "00000000-0000-0000-0000-000000000000"
ZEROS = "0" * 64
SCOPES = ["workflows:start", "workflows:open-gate", "workflows:fire", "audit:read", "audit:hold", "audit:purge",
          "actors:manage", "permissions:manage", "definitions:publish"]
FILES = ["bundle.json", "checkpoint", "log.vkey", "records.jsonl", "documents.jsonl", "state.jsonl", "grants.jsonl"]
HEADER = ["v", "event_id", "instance_id", "sequence", "prev", "action_ref", "actor_ref", "recorded_at_us", "registry_seq",
          "assurance", "retention", "payload_digest", "attestation_digest"]
T0 = 1_767_600_000_000_000  # 2026-01-05T08:00:00Z
DAY = 86_400_000_000
# Why the engine itself withdrew a step (bundle.md, section 2): its gate is moot, its quorum is out of reach, the state of its resolved chain was left.
MOOT = "Gate moot: workflow left the gate's from_state by firing a different transition"
UNREACHABLE = "Chain withdrawn: its quorum can no longer be reached"
LEFT = "Chain resolved: workflow left the gate's from_state"


# ---------------------------------------------------------------------------------------------- bytes, hashes, keys
def sha(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def det(*words: Any) -> bytes:
    """32 bytes that depend on the words alone."""
    return sha(b"countersign test vectors\0" + "\0".join(str(w) for w in words).encode())


def dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def unb64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def uuid7(at_us: int, counter: int, noise: bytes) -> str:
    """Sorts by time to the microsecond, then by counter."""
    ms, us = divmod(at_us, 1000)
    low = (0b10 << 62) | ((counter & 0x3FFFFFFF) << 32) | int.from_bytes(noise[:4], "big")
    h = f"{ms:012x}7{us:03x}{low:016x}"
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


class Key:
    """An Ed25519 key pair, from its seed."""

    def __init__(self, seed: bytes):
        self.seed = seed
        self._private = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.key_id = sha(self.public).hex()[:16]

    def sign(self, data: bytes) -> bytes:
        return self._private.sign(data)


def note_key_id(name: str, kind: int, public: bytes) -> bytes:
    return sha(name.encode() + b"\n" + bytes([kind]) + public)[:4]


def vkey(name: str, key: Key, kind: int = 1) -> str:
    return f"{name}+{note_key_id(name, kind, key.public).hex()}+{b64(bytes([kind]) + key.public)}"


# ---------------------------------------------------------------------------------------------- tree and checkpoint
class Tree:
    """RFC 6962, level by level: a node without a sibling moves up as it is."""

    def __init__(self, leaves: list[bytes]):
        self.levels = [leaves]
        while len(self.levels[-1]) > 1:
            below = self.levels[-1]
            pairs = [sha(b"\x01" + below[i] + below[i + 1]) for i in range(0, len(below) - 1, 2)]
            self.levels.append(pairs + below[len(pairs) * 2:])

    @property
    def root(self) -> bytes:
        return self.levels[-1][0] if self.levels[-1] else sha(b"")

    def inclusion(self, index: int) -> list[bytes]:
        path = []
        for level in self.levels[:-1]:
            if index ^ 1 < len(level):
                path.append(level[index ^ 1])
            index >>= 1
        return path


def signed_note(origin: str, size: int, root: bytes, log: Key, witnesses: list[tuple[str, Key]], at_s: int) -> str:
    text = f"{origin}\n{size}\n{b64(root)}\n"
    lines = [f"\u2014 {origin} {b64(note_key_id(origin, 1, log.public) + log.sign(text.encode()))}\n"]
    for name, key in witnesses:
        signature = key.sign(f"cosignature/v1\ntime {at_s}\n{text}".encode())
        lines.append(f"\u2014 {name} {b64(note_key_id(name, 4, key.public) + at_s.to_bytes(8, 'big') + signature)}\n")
    return text + "\n" + "".join(lines)


# ---------------------------------------------------------------------------------------------- records
class Record:
    """One record: `head` holds the header's members in their order; the other parts are text, or None when purged."""

    def __init__(self, head: dict[str, Any], payload: Optional[str], attestation: Optional[str], salt: Optional[str]):
        self.head, self.payload, self.attestation, self.salt = head, payload, attestation, salt
        self.header: str = dump(head)  # the bytes; `seal` makes them anew
        self.log_index = -1
        self.proof: list[str] = []

    @property
    def hash(self) -> bytes:
        return sha(b"\x00" + self.header.encode())

    @property
    def body(self) -> dict[str, Any]:
        return json.loads(self.payload or "{}")

    @property
    def proofdata(self) -> dict[str, Any]:
        return json.loads(self.attestation or "{}")

    def seal(self) -> None:
        """Digests and header bytes anew, from the parts."""
        if self.payload is not None and self.attestation is not None and self.salt is not None:
            salt = bytes.fromhex(self.salt)
            self.head["payload_digest"] = sha(salt + self.payload.encode()).hex()
            self.head["attestation_digest"] = sha(salt + self.attestation.encode()).hex()
        self.header = dump(self.head)

    def copy(self) -> "Record":
        twin = Record(json.loads(self.header), self.payload, self.attestation, self.salt)
        twin.header, twin.log_index, twin.proof = self.header, self.log_index, list(self.proof)
        return twin


def statement(action: str, actor: str, key: Key, request: Optional[str], instance: Optional[str], step: Optional[str],
              signed_bytes: bytes, meaning: Optional[str], expected: Optional[int], nonce: str, at_us: int) -> bytes:
    return dump({"v": 1, "action": action, "actor_ref": actor, "key_id": key.key_id, "request": request, "instance_id": instance,
                 "step_id": step, "body_digest": sha(signed_bytes).hex(), "meaning": meaning, "expected_sequence": expected,
                 "nonce": nonce, "issued_at_us": at_us}).encode()


def signed_attestation(key: Key, said: bytes, signed_over: str, body: Optional[bytes]) -> str:
    return dump({"v": 1, "class": "actor_signed", "key_id": key.key_id, "statement": b64(said), "signature": b64(key.sign(said)),
                 "signed_over": signed_over, "body": None if body is None else b64(body)})


def bearer_attestation(credential_id: Optional[str]) -> str:
    return dump({"v": 1, "class": "server_attested", "credential_id": credential_id})


def app_attestation(key: Key, record: Record, nonce: str) -> str:
    """How the application actor signs a record of its own: over the payload."""
    assert record.payload is not None
    instance = None if record.head["instance_id"] == REGISTRY else record.head["instance_id"]
    said = statement(record.head["action_ref"], record.head["actor_ref"], key, None, instance, None, record.payload.encode(),
                     None, None, nonce, record.head["recorded_at_us"])
    return signed_attestation(key, said, "payload", None)


# ---------------------------------------------------------------------------------------------- bundle
class Bundle:
    def __init__(self) -> None:
        self.manifest: dict[str, Any] = {}
        self.records: list[Record] = []
        self.documents: list[dict[str, str]] = []
        self.state: list[dict[str, Any]] = []
        self.grants: list[dict[str, Any]] = []
        self.checkpoint = ""
        self.log_vkey = ""

    @staticmethod
    def read(path: str | pathlib.Path) -> "Bundle":
        b = Bundle()
        with zipfile.ZipFile(path) as z:
            def lines(name: str) -> list[dict[str, Any]]:
                return [json.loads(line) for line in z.read(name).decode().split("\n") if line]
            b.manifest = json.loads(z.read("bundle.json"))
            b.checkpoint = z.read("checkpoint").decode()
            b.log_vkey = z.read("log.vkey").decode()
            for row in lines("records.jsonl"):
                r = Record(json.loads(row["header"]), row["payload"], row["attestation"], row["salt"])
                r.header, r.log_index, r.proof = row["header"], row["log_index"], row["proof"]
                b.records.append(r)
            b.documents, b.state, b.grants = lines("documents.jsonl"), lines("state.jsonl"), lines("grants.jsonl")
        return b

    def files(self) -> dict[str, bytes]:
        def lines(rows: list[dict[str, Any]]) -> bytes:
            return "".join(dump(row) + "\n" for row in rows).encode()
        return {
            "bundle.json": (dump(self.manifest) + "\n").encode(),
            "checkpoint": self.checkpoint.encode(),
            "log.vkey": self.log_vkey.encode(),
            "records.jsonl": lines([{"log_index": r.log_index, "header": r.header, "payload": r.payload, "attestation": r.attestation,
                                     "salt": r.salt, "proof": r.proof} for r in self.records]),
            "documents.jsonl": lines(self.documents),
            "state.jsonl": lines(self.state),
            "grants.jsonl": lines(self.grants),
        }

    def write(self, path: str | pathlib.Path) -> None:
        write_zip(path, self.files())

    def copy(self) -> "Bundle":
        b = Bundle()
        b.manifest = json.loads(dump(self.manifest))
        b.records = [r.copy() for r in self.records]
        b.documents, b.state, b.grants = (json.loads(dump(x)) for x in (self.documents, self.state, self.grants))
        b.checkpoint, b.log_vkey = self.checkpoint, self.log_vkey
        return b

    def chain(self, instance: str) -> list[Record]:
        return sorted((r for r in self.records if r.head["instance_id"] == instance), key=lambda r: r.head["sequence"])

    def instances(self) -> list[str]:
        return sorted({r.head["instance_id"] for r in self.records} - {REGISTRY})

    def reseal(self, log: Key, app: Optional[Key] = None, witnesses: Optional[list[tuple[str, Key]]] = None,
               slots: Optional[list[Optional[Record]]] = None, renumber: bool = True,
               rewrite: Optional[dict[str, Callable[[str], str]]] = None) -> None:
        """What an insider with the log's key does after a change: digests, links, tree, proofs, checkpoint and counts are made
        anew. Entries of other instances, known by nothing but the proofs, become arbitrary hashes. `slots` is the order of the
        log where it changed (None: an entry of somebody else). Records of the application actor are signed anew. `rewrite` changes
        the bytes of a header, by event_id, after they were made."""
        if slots is None:
            slots = self.slots()
        present = [r for r in slots if r is not None]
        registry = self.chain(REGISTRY)
        app_ref = registry[0].head["actor_ref"] if registry else None
        by_event: dict[str, Record] = {}
        for instance in [REGISTRY] + self.instances():
            prev = ZEROS
            chain = [r for r in self.records if r.head["instance_id"] == instance]
            chain.sort(key=lambda r: r.head["sequence"])
            for i, r in enumerate(chain):
                if renumber:
                    r.head["sequence"] = i + 1
                r.head["prev"] = prev
                action = r.head["action_ref"]
                if r.payload is not None:
                    body = r.body
                    if action == "record_purged" and body.get("event_id") in by_event:
                        gone = by_event[body["event_id"]]
                        body.update(sequence=gone.head["sequence"], record_hash=gone.hash.hex())
                        r.payload = dump(body)
                    if action == "evidence_exported" and instance != REGISTRY and renumber:
                        body["through_sequence"] = r.head["sequence"] - 1
                        r.payload = dump(body)
                    if app is not None and r.head["actor_ref"] == app_ref and r.head["assurance"] == "actor_signed":
                        try:
                            nonce = json.loads(unb64(r.proofdata["statement"]))["nonce"]
                        except (KeyError, ValueError):
                            nonce = "again-" + r.head["event_id"]
                        r.attestation = app_attestation(app, r, nonce)
                r.seal()
                if rewrite and r.head["event_id"] in rewrite:
                    r.header = rewrite[r.head["event_id"]](r.header)
                by_event[r.head["event_id"]] = r
                prev = r.hash.hex()
        last = self.chain(REGISTRY)[-1] if registry else None
        if last is not None and last.head["action_ref"] == "evidence_exported" and last.payload is not None and renumber:
            body = last.body
            heads = self.heads()
            body.update(instances=len(heads), heads_digest=heads_digest(heads))
            last.payload = dump(body)
            last.seal()
        for row in self.state:
            chain = self.chain(row["instance_id"])
            if chain and renumber:
                row["sequence"] = chain[-1].head["sequence"]
        tree = Tree([r.hash if r is not None else det("somebody else", i) for i, r in enumerate(slots)])
        for i, entry in enumerate(slots):
            if entry is not None:
                entry.log_index = i
                entry.proof = [h.hex() for h in tree.inclusion(i)]
        self.records = sorted(present, key=file_order)
        m = self.manifest
        m.update(tree_size=len(slots), records=len(present), instances=len(self.instances()),
                 registry_sequence=len(self.chain(REGISTRY)) if renumber else m["registry_sequence"])
        self.checkpoint = signed_note(m["origin"], len(slots), tree.root, log, witnesses or [], m["made_at_us"] // 1_000_000)
        self.log_vkey = vkey(m["origin"], log) + "\n"

    def slots(self) -> list[Optional[Record]]:
        out: list[Optional[Record]] = [None] * self.manifest["tree_size"]
        for r in self.records:
            out[r.log_index] = r
        return out

    def heads(self) -> list[tuple[str, int, str]]:
        out = []
        for instance in self.instances():
            head = self.chain(instance)[-1]
            out.append((instance, head.head["sequence"], head.hash.hex()))
        return out


def file_order(r: Record) -> tuple[str, int]:
    """The order of records.jsonl: the registry, whose id is the smallest, then instance by instance, each by sequence."""
    return r.head["instance_id"], r.head["sequence"]


def heads_digest(heads: list[tuple[str, int, str]]) -> str:
    return sha("".join(f"{i} {s} {h}\n" for i, s, h in sorted(heads)).encode()).hex()


def write_zip(path: str | pathlib.Path, files: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        for name, data in files.items():
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            z.writestr(info, data)


# ---------------------------------------------------------------------------------------------- an honest server
class Actor:
    def __init__(self, ref: str, key: Optional[Key] = None, token: Optional[str] = None):
        self.ref, self.key, self.token = ref, key, token

    @property
    def credential_id(self) -> Optional[str]:
        return None if self.token is None else sha(self.token.encode()).hex()[:16]


Write = tuple[str, Optional[Actor], dict[str, Any]]  # action_ref, by (None: the application actor), payload


class World:
    APP, SERVER = "countersign", "countersign-server"

    def __init__(self, name: str, regulated: bool = True, retention_days: Optional[int] = None):
        self.name, self.regulated, self.retention_days = name, regulated, retention_days
        self.origin = "countersign/" + det(name, "origin").hex()[:16]
        self.log_key, self.app_key = Key(det(name, "log key")), Key(det(name, "application key"))
        self.witnesses = [(f"{w}.example/{name}", Key(det(name, "witness", w))) for w in ("w1", "w2")]
        self.keys: dict[str, list[Key]] = {self.APP: [self.app_key], self.SERVER: [self.log_key]}
        self.now = T0
        self.log: list[Optional[Record]] = []
        self.chains: dict[str, list[Record]] = {REGISTRY: []}
        self.documents: dict[str, str] = {}
        self.definitions: dict[str, dict[str, Any]] = {}
        self.grants: dict[str, dict[str, Any]] = {}
        self.processes: dict[str, Process] = {}
        self.ids = 0
        self.app = Actor(self.APP, self.app_key)
        self.bootstrap()

    # -- small things
    def new_id(self) -> str:
        self.ids += 1
        return uuid7(self.now, 0x20000000 + self.ids, det(self.name, "id", self.ids))

    def new_key(self, label: str) -> Key:
        return Key(det(self.name, "actor key", label))

    def noise(self, n: int = 1) -> None:
        """Records of somebody else's process: the bundle knows them as hashes in proofs only."""
        self.log.extend([None] * n)

    def retention(self, registry: bool, kept: bool) -> dict[str, Any]:
        if registry or kept or self.retention_days is None:
            return {"policy_ref": "permanent", "retention_until_us": None, "purge_deadline_us": None}
        until = self.now + self.retention_days * DAY
        return {"policy_ref": "short-lived", "retention_until_us": until, "purge_deadline_us": until + 30 * DAY}

    # -- one command: all its records share time, registry_seq and, per signer, statement
    def command(self, instance: str, writes: list[Write], action: str = "", method: str = "POST", path: str = "",
                body: Optional[bytes] = None, document: bool = False, meaning: Optional[str] = None, step: Optional[str] = None,
                expect: bool = True, instance_null: bool = False) -> list[Record]:
        self.now += 1_370_001
        chain = self.chains.setdefault(instance, [])
        registry_seq = len(self.chains[REGISTRY])
        expected = len(chain) if expect else None
        said: dict[str, str] = {}
        out = []
        for action_ref, by, payload in writes:
            sequence = len(chain) + 1
            event_id = uuid7(self.now, sequence, det(self.name, instance, sequence))
            text = dump({k: v for k, v in payload.items() if v is not None or k in ("audit_trail_retention_policy", "after_us", "before_us",
                                                                                    "retention_until_us")})
            actor = by or self.app
            head: dict[str, Any] = dict.fromkeys(HEADER, 0)
            head.update(v=1, event_id=event_id, instance_id=instance, sequence=sequence, prev=chain[-1].hash.hex() if chain else ZEROS,
                        action_ref=action_ref, actor_ref=actor.ref, recorded_at_us=self.now, registry_seq=registry_seq,
                        assurance="actor_signed" if actor.key else "server_attested",
                        retention=self.retention(instance == REGISTRY, action_ref == "record_purged"))
            record = Record(head, text, "", det(self.name, "salt", instance, sequence).hex())
            if by is None:
                record.attestation = app_attestation(self.app_key, record, "app-" + event_id)
            elif by.key is None:
                record.attestation = bearer_attestation(by.credential_id)
            else:
                if by.ref not in said:
                    over = body or b""
                    where = None if instance == REGISTRY or instance_null else instance
                    words = statement(action, by.ref, by.key, f"{method} {path}", where, step, over, meaning, expected,
                                      "n-" + det(self.name, "nonce", event_id).hex()[:24], self.now - 900_000)
                    said[by.ref] = signed_attestation(by.key, words, "document" if document else "body", None if document else over)
                record.attestation = said[by.ref]
            record.seal()
            chain.append(record)
            self.log.append(record)
            out.append(record)
        return out

    # -- registry
    def bootstrap(self) -> None:
        self.admin = Actor("admin", token="admin-token-" + self.name)
        writes: list[Write] = [
            ("actor_registered", None, {"actor_ref": self.APP, "kind": "software", "public_key": b64(self.app_key.public), "key_id": self.app_key.key_id}),
            ("actor_registered", None, {"actor_ref": self.SERVER, "kind": "software", "public_key": b64(self.log_key.public), "key_id": self.log_key.key_id}),
            ("actor_registered", None, {"actor_ref": "admin", "kind": "human", "display_name": "First administrator", "credential_id": self.admin.credential_id}),
        ]
        for scope in SCOPES:
            writes.append(("grant_made", None, {"grant_id": self.new_id(), "subject_ref": "admin", "action_scope": scope}))
        writes.append(("configuration_recorded", None, {"audit_trail_retention_policy": "permanent", "regulated": self.regulated,
                                                        "application_actor_ref": self.APP, "server_actor_ref": self.SERVER}))
        self._note_grants(self.command(REGISTRY, writes))

    def _note_grants(self, records: list[Record]) -> None:
        for r in records:
            if r.head["action_ref"] == "grant_made":
                self.grants[r.body["grant_id"]] = {**r.body, "granted_at_us": r.head["recorded_at_us"], "granted_seq": r.head["sequence"],
                                                   "revoked_at_us": None, "revoked_seq": None}

    def register(self, by: Actor, ref: str, key: bool = True, token: bool = False, kind: str = "human", name: Optional[str] = None) -> Actor:
        actor = Actor(ref, self.new_key(ref + "/1") if key else None, f"token-{ref}-{self.name}" if token else None)
        body: dict[str, Any] = {"actor_ref": ref, "kind": kind}
        if name:
            body["display_name"] = name
        if actor.key:
            body["public_key"] = b64(actor.key.public)
            self.keys.setdefault(ref, []).append(actor.key)
        payload = {**body, "key_id": actor.key.key_id if actor.key else None, "credential_id": actor.credential_id}
        self.command(REGISTRY, [("actor_registered", by, payload)], "register_actor", path="/v1/actors", body=dump(body).encode())
        return actor

    def issue(self, by: Actor, actor: Actor, label: str) -> Actor:
        twin = Actor(actor.ref, None, f"token-{label}-{self.name}")
        self.command(REGISTRY, [("credential_issued", by, {"actor_ref": actor.ref, "credential_id": twin.credential_id})],
                     "issue_credential", path=f"/v1/actors/{actor.ref}/tokens", body=b"{}")
        return twin

    def revoke_credential(self, by: Actor, actor: Actor) -> None:
        self.command(REGISTRY, [("credential_revoked", by, {"actor_ref": actor.ref, "credential_id": actor.credential_id})],
                     "revoke_credential", path=f"/v1/actors/{actor.ref}/tokens/{actor.credential_id}/revoke", body=b"{}")

    def add_key(self, by: Actor, actor: Actor, label: str) -> Actor:
        key = self.new_key(label)
        self.keys.setdefault(actor.ref, []).append(key)
        self.command(REGISTRY, [("key_registered", by, {"actor_ref": actor.ref, "key_id": key.key_id, "public_key": b64(key.public)})],
                     "register_key", path=f"/v1/actors/{actor.ref}/keys", body=dump({"public_key": b64(key.public)}).encode())
        return Actor(actor.ref, key)

    def second_node(self, label: str) -> None:
        """A further node: the application actor registers a new key of its own, signed with that key, and then one of the server actor."""
        for ref in (self.APP, self.SERVER):
            key = self.new_key(f"{ref}/{label}")
            if ref == self.APP:
                self.app_key = self.app.key = key
            self.keys[ref].append(key)
            self.command(REGISTRY, [("key_registered", None, {"actor_ref": ref, "key_id": key.key_id, "public_key": b64(key.public)})])

    def revoke_key(self, by: Actor, actor: Actor, reason: str) -> None:
        assert actor.key
        self.command(REGISTRY, [("key_revoked", by, {"actor_ref": actor.ref, "key_id": actor.key.key_id, "reason": reason})],
                     "revoke_key", path=f"/v1/actors/{actor.ref}/keys/{actor.key.key_id}/revoke", body=dump({"reason": reason}).encode())

    def grant(self, by: Actor, actor: Actor, *scopes: str) -> list[str]:
        ids = []
        for scope in scopes:
            body = {"subject_ref": actor.ref, "action_scope": scope}
            ids.append(self.new_id())
            self._note_grants(self.command(REGISTRY, [("grant_made", by, {"grant_id": ids[-1], **body})], "grant", path="/v1/grants", body=dump(body).encode()))
        return ids

    def revoke(self, by: Actor, grant_id: str) -> None:
        row = self.grants[grant_id]
        payload = {"grant_id": grant_id, "subject_ref": row["subject_ref"], "action_scope": row["action_scope"]}
        record = self.command(REGISTRY, [("grant_revoked", by, payload)], "revoke", path=f"/v1/grants/{grant_id}/revoke", body=b"{}")[0]
        row.update(revoked_at_us=record.head["recorded_at_us"], revoked_seq=record.head["sequence"])

    def store(self, document: dict[str, Any]) -> str:
        text = dump(document)
        digest = sha(text.encode()).hex()
        self.documents[digest] = text
        return digest

    def publish(self, by: Actor, name: str, version: int, declaration: dict[str, Any], gate_spec: dict[str, Any]) -> str:
        source = dump({"kind": "process", "name": name, **declaration, "gate_spec": gate_spec}).encode()
        entry: dict[str, Any] = {"declaration": declaration, "gate_spec": dict(sorted(gate_spec.items(), key=lambda kv: kv[0].encode()))}
        entry["declaration_digest"], entry["gate_spec_digest"] = self.store(entry["declaration"]), self.store(entry["gate_spec"])
        self.definitions[f"{name}@{version}"] = entry
        self.command(REGISTRY, [("definition_published", by, {"name": name, "version": version, "digest": sha(source).hex(), **{
            k: entry[k] for k in ("declaration_digest", "gate_spec_digest")}})], "publish_definition", path="/v1/definitions", body=source, document=True)
        return f"{name}@{version}"

    # -- holds, purges, exports
    def hold(self, by: Actor, record: Record, reason: str, case: Optional[str] = None) -> str:
        hold_id = self.new_id()
        body = {"record_ref": record.head["event_id"], "reason": reason, **({"case_ref": case} if case else {})}
        instance = record.head["instance_id"]
        self.command(instance, [("hold_placed", by, {"hold_id": hold_id, "record_ref": record.head["event_id"], "instance_id": instance,
                                                     "reason": reason, "case_ref": case})], "place_hold", path="/v1/ledger/holds", body=dump(body).encode())
        return hold_id

    def release_hold(self, by: Actor, record: Record, hold_id: str, reason: str) -> None:
        instance = record.head["instance_id"]
        self.command(instance, [("hold_released", by, {"hold_id": hold_id, "record_ref": record.head["event_id"], "instance_id": instance, "reason": reason})],
                     "release_hold", path=f"/v1/ledger/holds/{hold_id}/release", body=dump({"reason": reason}).encode())

    def purge(self, by: Actor, record: Record) -> None:
        h = record.head
        self.command(h["instance_id"], [("record_purged", by, {
            "event_id": h["event_id"], "instance_id": h["instance_id"], "sequence": h["sequence"], "action_ref": h["action_ref"], "actor_ref": h["actor_ref"],
            "record_hash": record.hash.hex(), "attestation_digest": h["attestation_digest"], "policy_ref": h["retention"]["policy_ref"],
            "retention_until_us": h["retention"]["retention_until_us"]})], "purge_record", path=f"/v1/ledger/records/{h['event_id']}/purge", body=b"")
        self.processes[h["instance_id"]].forget(record)
        record.payload = record.attestation = record.salt = None

    def export(self, by: Actor, process: "Process", size: int) -> Bundle:
        chain = self.chains[process.id]
        self.command(process.id, [("evidence_exported", by, {"instance_id": process.id, "through_sequence": len(chain)})],
                     "export_evidence", "GET", f"/v1/ledger/export?instance_id={process.id}", b"")
        return self._bundle({"instance_id": process.id}, [process], by, size)

    def export_window(self, by: Actor, after: Optional[int], before: Optional[int], size: int) -> Bundle:
        inside = [p for p in self.processes.values() if any(
            (after is None or r.head["recorded_at_us"] >= after) and (before is None or r.head["recorded_at_us"] <= before) for r in self.chains[p.id])]
        heads = [(p.id, len(self.chains[p.id]), self.chains[p.id][-1].hash.hex()) for p in inside]
        self.command(REGISTRY, [("evidence_exported", by, {"after_us": after, "before_us": before, "instances": len(heads), "heads_digest": heads_digest(heads)})],
                     "export_evidence", "GET", "/v1/ledger/export", b"")
        return self._bundle({"after_us": after, "before_us": before}, inside, by, size)

    def _bundle(self, scope: dict[str, Any], processes: list["Process"], by: Actor, size: int) -> Bundle:
        if len(self.log) > size:
            raise ValueError(f"{self.name}: the log has {len(self.log)} entries, more than {size}")
        self.noise(size - len(self.log))
        tree = Tree([r.hash if r is not None else det(self.name, "somebody else", i) for i, r in enumerate(self.log)])
        b = Bundle()
        wanted = {REGISTRY} | {p.id for p in processes}
        for i, r in enumerate(self.log):
            if r is not None and r.head["instance_id"] in wanted:
                twin = r.copy()
                twin.log_index, twin.proof = i, [h.hex() for h in tree.inclusion(i)]
                b.records.append(twin)
        b.records.sort(key=file_order)
        digests = sorted({d for p in processes for d in (p.declaration_digest, p.gate_spec_digest, *getattr(p, "more_digests", ()))})
        b.documents = [{"digest": d, "body": self.documents[d]} for d in digests]
        b.state = [json.loads(dump(p.row())) for p in sorted(processes, key=lambda p: p.id)]
        keys = ["grant_id", "subject_ref", "action_scope", "granted_at_us", "granted_seq", "revoked_at_us", "revoked_seq"]
        b.grants = [{k: g[k] for k in keys} for g in sorted(self.grants.values(), key=lambda g: g["granted_seq"])]
        self.now += 1_000_003
        b.manifest = {"v": 1, "kind": "countersign-evidence", "scope": scope, "origin": self.origin, "tree_size": size,
                      "registry_sequence": len(self.chains[REGISTRY]), "instances": len(processes), "records": len(b.records),
                      "made_at_us": self.now, "made_by": by.ref, "software": "spec/vectors/make.py"}
        b.checkpoint = signed_note(self.origin, size, tree.root, self.log_key, self.witnesses, self.now // 1_000_000)
        b.log_vkey = vkey(self.origin, self.log_key) + "\n"
        return b

    # -- what goes beside a bundle
    def policy(self) -> str:
        lines = ["# whom the auditor of these test vectors trusts", f"log {vkey(self.origin, self.log_key)}"]
        lines += [f"witness w{i + 1} {vkey(name, key, 4)}" for i, (name, key) in enumerate(self.witnesses)]
        return "\n".join(lines + ["group both all w1 w2", "quorum both"]) + "\n"

    def keyfile(self) -> dict[str, Any]:
        return {"vkey": vkey(self.origin, self.log_key), "log": {"name": self.origin, "seed": self.log_key.seed.hex()},
                "application": {"actor_ref": self.APP, "seed": self.keys[self.APP][0].seed.hex()},
                "actors": {ref: [k.seed.hex() for k in keys] for ref, keys in self.keys.items() if ref not in (self.APP, self.SERVER)},
                "witnesses": [{"name": name, "seed": key.seed.hex()} for name, key in self.witnesses], "policy": self.policy()}


def settle(rule: str, m: Optional[int], states: list[str]) -> str:
    n, a, r, w = len(states), states.count("Approved"), states.count("Rejected"), states.count("Withdrawn")
    if rule == "all-of-n":
        return "Approved" if a == n else "Rejected" if r else "Withdrawn" if w else "Pending"
    need = m if rule == "m-of-n" and m is not None else 1
    if a >= need:
        return "Approved"
    if n - r - w < need:
        return "Rejected" if r else "Withdrawn"
    return "Pending"


class Process:
    """One run of a declared machine: writes the records and keeps the rows of the stores, as the server would."""

    def __init__(self, world: World, by: Actor, definition: str, subject: str, reason: Optional[str] = None, gate_spec: Optional[dict[str, Any]] = None):
        w = self.world = world
        entry = w.definitions[definition]
        self.declaration, self.gate_spec = entry["declaration"], entry["gate_spec"]
        self.declaration_digest, self.gate_spec_digest = entry["declaration_digest"], entry["gate_spec_digest"]
        body: dict[str, Any] = {"subject_ref": subject, "definition": definition}
        if reason:
            body["reason"] = reason
        if gate_spec:
            self.gate_spec = dict(sorted({**self.gate_spec, **gate_spec}.items(), key=lambda kv: kv[0].encode()))
            self.gate_spec_digest, body["gate_spec"] = w.store(self.gate_spec), gate_spec
        self.id, self.definition, self.subject, self.initiator = w.new_id(), definition, subject, by.ref
        self.state = self.declaration["initial_state"]
        self.transitions: list[dict[str, Any]] = []
        self.gates: dict[str, dict[str, Any]] = {}
        self.steps: dict[str, dict[str, Any]] = {}
        self.assignments: dict[str, dict[str, Any]] = {}
        self.bound: dict[tuple[str, str], str] = {}
        r = w.command(self.id, [("workflow_started", by, {
            "instance_id": self.id, "subject_ref": subject, "initial_state": self.state, "definition": definition, "declaration_digest": self.declaration_digest,
            "gate_spec_digest": self.gate_spec_digest, "gate_spec_labels": list(self.gate_spec), "reason": reason})],
            "start_workflow", path="/v1/processes", body=dump(body).encode(), expect=False, instance_null=True)[0]
        self.started = r.head["recorded_at_us"]
        w.processes[self.id] = self

    def declared(self, action: str) -> dict[str, Any]:
        return next(t for t in self.declaration["transitions"] if t["from"] == self.state and t["action"] == action)

    def open(self, by: Actor, action: str, reason: Optional[str] = None) -> str:
        w, guard = self.world, self.declared(action)["guard"]
        spec = self.gate_spec[guard]
        approvers = spec.get("approvers") or [spec["approver_ref"]]
        steps = [{"step_id": w.new_id(), "assignment_id": w.new_id(), "approver_ref": a} for a in approvers]
        quorum = spec.get("quorum")
        gate_id = w.new_id() if quorum else steps[0]["step_id"]
        old = self.bound.get((self.state, action))
        common = {"scope": spec["scope"], "submitter_ref": self.initiator, "supersedes": old, "reason": reason}
        opened = {"instance_id": self.id, "action": action, "from_state": self.state, "guard": guard}
        writes: list[Write] = []
        if quorum:
            writes.append(("chain_initiated", by, {"instance_id": self.id, "chain_id": gate_id, "action": action, "subject_ref": f"{self.subject}:{action}",
                                                   "scope": spec["scope"], "initiator_ref": self.initiator, "approver_set": approvers,
                                                   "quorum_rule": quorum["rule"], "m": quorum.get("m"), "steps": steps}))
            writes.append(("gate_opened", by, {**opened, "chain_id": gate_id, "steps": steps, **common}))
        else:
            writes.append(("gate_opened", by, {**opened, **steps[0], **common}))
        body = {"action": action, **({"reason": reason} if reason else {})}
        r = w.command(self.id, writes, "open_gate", path=f"/v1/processes/{self.id}/gates", body=dump(body).encode())[-1]
        at = r.head["recorded_at_us"]
        if old:
            self.gates[old]["current"] = False
        self.bound[(self.state, action)] = gate_id
        self.gates[gate_id] = {"gate_id": gate_id, "from_state": self.state, "action": action, "guard": guard, "scope": spec["scope"], "opened_at_us": at,
                               "opened_by": by.ref, "rule": quorum["rule"] if quorum else None, "m": quorum.get("m") if quorum else None,
                               "chain_state": "Pending" if quorum else None, "fate": "unspent", "current": True}
        for s in steps:
            self.steps[s["step_id"]] = {"step_id": s["step_id"], "gate_id": gate_id, "action": action, "subject_ref": f"{self.subject}:{action}",
                                        "approver_ref": s["approver_ref"], "submitter_ref": self.initiator, "scope": spec["scope"], "submitted_at_us": at,
                                        "state": "Pending", "ended_by": None, "ended_at_us": None, "ended_reason": None}
            self.assignments[s["assignment_id"]] = {"assignment_id": s["assignment_id"], "task_ref": s["step_id"], "assignee_ref": s["approver_ref"],
                                                    "assigned_at_us": at, "status": "Active", "ended_at_us": None}
        return gate_id

    def _recall(self, step_id: str, at: int) -> None:
        for a in self.assignments.values():
            if a["task_ref"] == step_id and a["status"] == "Active":
                a.update(status="Recalled", ended_at_us=at)

    def _end(self, step_id: str, state: str, by: str, at: int, reason: Optional[str]) -> None:
        self.steps[step_id].update(state=state, ended_by=by, ended_at_us=at, ended_reason=reason)
        self._recall(step_id, at)

    def _steps_of(self, gate_id: str) -> list[dict[str, Any]]:
        return [s for s in self.steps.values() if s["gate_id"] == gate_id]

    def decide(self, by: Actor, action: str, decision: str, reason: Optional[str] = None, approver: Optional[str] = None, whole: bool = False,
               gate_id: Optional[str] = None, meaning: str = "I have reviewed the batch record and take this decision") -> list[Record]:
        w = self.world
        gate_id = gate_id or self.bound[(self.state, action)]
        gate = self.gates[gate_id]
        state = {"approve": "Approved", "reject": "Rejected", "withdraw": "Withdrawn"}[decision]
        decided = {"instance_id": self.id, "action": action}
        writes: list[Write] = []
        step = None
        if gate["rule"] is None:
            step = self.steps[gate_id]
            writes.append(("gate_decided", by, {**decided, "step_id": gate_id, "decision": decision, "reason": reason}))
        elif whole:
            left = [s["step_id"] for s in self._steps_of(gate_id) if s["state"] == "Pending"]
            writes.append(("chain_withdrawn", by, {"instance_id": self.id, "chain_id": gate_id, "action": action, "reason": reason, "recalled_step_ids": left}))
            writes.append(("gate_decided", by, {**decided, "chain_id": gate_id, "decision": decision, "reason": reason}))
        else:
            step = next(s for s in self._steps_of(gate_id) if s["approver_ref"] == (approver or by.ref))
            trailing = gate["chain_state"] != "Pending"
            writes.append(("step_" + state.lower(), by, {"instance_id": self.id, "chain_id": gate_id, "step_id": step["step_id"], "action": action,
                                                         "decided_by": by.ref, "reason": reason, "trailing": trailing}))
            writes.append(("gate_decided", by, {**decided, "step_id": step["step_id"], "chain_id": gate_id, "decision": decision, "reason": reason}))
            states = [state if s is step else s["state"] for s in self._steps_of(gate_id)]
            outcome = settle(gate["rule"], gate["m"], states)
            if not trailing and outcome != "Pending":
                rest = [s["step_id"] for s in self._steps_of(gate_id) if s["state"] == "Pending" and s is not step]
                writes.append(("chain_resolved", None, {"instance_id": self.id, "chain_id": gate_id, "action": action, "outcome": outcome, "recalled_step_ids": rest}))
        body = {"decision": decision, **({"step_id": step["step_id"]} if step and gate["rule"] else {}), **({"reason": reason} if reason else {})}
        records = w.command(self.id, writes, "decide_gate", path=f"/v1/processes/{self.id}/gates/{action}/decision", body=dump(body).encode(),
                            meaning=meaning, step=step["step_id"] if step else None)
        at = records[0].head["recorded_at_us"]
        if step:
            self._end(step["step_id"], state, by.ref, at, reason)
        if whole:
            gate["chain_state"] = "Withdrawn"
            for s in left:
                self._end(s, "Withdrawn", by.ref, at, reason)
        elif records[-1].head["action_ref"] == "chain_resolved":
            gate["chain_state"] = outcome
            for s in rest:
                if outcome == "Withdrawn":
                    self._end(s, "Withdrawn", self.initiator, at, UNREACHABLE)
                else:
                    self._recall(s, at)
        return records

    def fire(self, by: Actor, action: str, reason: Optional[str] = None) -> list[Record]:
        w, t = self.world, self.declared(action)
        guarded, left = "guard" in t, self.state
        gate = self.gates[self.bound[(left, action)]] if guarded else None
        used = {} if gate is None else {"chain_id" if gate["rule"] else "step_id": gate["gate_id"]}
        transition_id, number = w.new_id(), len(self.transitions) + 1
        writes: list[Write] = [("transition_fired", by, {"instance_id": self.id, "action": action, "from_state": left, "new_state": t["to"],
                                                         "transition_id": transition_id, "sequence_number": number, "guarded": guarded, **used, "reason": reason})]
        after: list[Callable[[int], None]] = []
        if gate is not None:
            gate["fate"] = "consumed"
        if t["to"] != left:
            for g in self.gates.values():
                if g["from_state"] == left and g["rule"] and g["chain_state"] in ("Approved", "Rejected"):
                    for s in self._steps_of(g["gate_id"]):
                        if s["state"] == "Pending":
                            writes.append(("step_withdrawn", None, {"instance_id": self.id, "chain_id": g["gate_id"], "step_id": s["step_id"], "action": g["action"],
                                                                    "decided_by": self.initiator, "reason": LEFT, "trailing": True}))
                            after.append(lambda at, i=s["step_id"]: self._end(i, "Withdrawn", self.initiator, at, LEFT))
            for g in self.gates.values():
                if g["from_state"] != left or g["fate"] != "unspent":
                    continue
                state = g["chain_state"] or self.steps[g["gate_id"]]["state"]
                if state not in ("Pending", "Approved"):
                    continue
                name = "chain_id" if g["rule"] else "step_id"
                if state == "Pending":
                    pending = [s["step_id"] for s in self._steps_of(g["gate_id"]) if s["state"] == "Pending"]
                    if g["rule"]:
                        writes.append(("chain_resolved", None, {"instance_id": self.id, "chain_id": g["gate_id"], "action": g["action"], "outcome": "Withdrawn",
                                                                "recalled_step_ids": pending}))
                        g["chain_state"] = "Withdrawn"
                    for s in pending:
                        after.append(lambda at, i=s: self._end(i, "Withdrawn", self.initiator, at, MOOT))
                writes.append(("moot_gate_recalled", None, {"instance_id": self.id, "moot_action": g["action"], "from_state": left, name: g["gate_id"],
                                                            "moot_kind": "pending-withdrawn" if state == "Pending" else "approved-unconsumed",
                                                            "reason": "Gate moot: workflow advanced past from_state"}))
                g["fate"] = "mooted"
        body = {"action": action, **({"reason": reason} if reason else {})}
        records = w.command(self.id, writes, "fire_transition", path=f"/v1/processes/{self.id}/transitions", body=dump(body).encode())
        at = records[0].head["recorded_at_us"]
        for f in after:
            f(at)
        self.transitions.append({"transition_id": transition_id, "sequence_number": number, "from_state": left, "action": action, "to_state": t["to"], "fired_at_us": at,
                                 "actor_ref": by.ref, "guard_satisfied": guarded, "step_id": used.get("step_id"), "chain_id": used.get("chain_id"),
                                 "event_id": records[0].head["event_id"]})
        self.state = t["to"]
        return records

    def forget(self, record: Record) -> None:
        """The texts of a purged record leave the stores too."""
        body, action, text = record.body, record.head["action_ref"], "purged:" + record.head["event_id"]
        if action == "workflow_started":
            self.subject = text
            for step in self.steps.values():
                step["subject_ref"] = f"{text}:{step['action']}"
        if action in ("gate_decided", "step_approved", "step_rejected", "step_withdrawn", "chain_withdrawn") and "reason" in body:
            for step in self.steps.values():
                whole = "step_id" not in body and step["gate_id"] == body["chain_id"] and step["ended_at_us"] == record.head["recorded_at_us"]
                if whole or step["step_id"] == body.get("step_id"):
                    step["ended_reason"] = text

    def row(self) -> dict[str, Any]:
        return {"instance_id": self.id, "subject_ref": self.subject, "initiator_ref": self.initiator, "definition": self.definition,
                "declaration_digest": self.declaration_digest, "gate_spec_digest": self.gate_spec_digest, "started_at_us": self.started,
                "current_state": self.state, "sequence": len(self.world.chains[self.id]), "transitions": self.transitions,
                "gates": [self.gates[k] for k in sorted(self.gates)], "approval_steps": [self.steps[k] for k in sorted(self.steps)],
                "assignments": [self.assignments[k] for k in sorted(self.assignments)]}


# ---------------------------------------------------------------------------------------------- scenarios
SIMPLE = ({"states": ["drafting", "qp-review", "released", "rejected"],
           "transitions": [{"from": "drafting", "action": "submit", "to": "qp-review"},
                           {"from": "qp-review", "action": "release", "to": "released", "guard": "qp-sign-off"},
                           {"from": "qp-review", "action": "reject-batch", "to": "rejected", "guard": "qp-rejection"}],
           "initial_state": "drafting", "terminal_states": ["released", "rejected"]},
          {"qp-sign-off": {"approver_ref": "qp_santos", "scope": "pharma:batch-release:qp-sign-off"},
           "qp-rejection": {"approver_ref": "qp_santos", "scope": "pharma:batch-release:qp-rejection"}})
FULL = ({"states": ["drafting", "qc-review", "qp-review", "released", "rejected"],
         "transitions": [{"from": "drafting", "action": "submit", "to": "qc-review"},
                         {"from": "qc-review", "action": "pass", "to": "qp-review", "guard": "qc-board"},
                         {"from": "qc-review", "action": "return", "to": "drafting"},
                         {"from": "qc-review", "action": "note", "to": "qc-review"},
                         {"from": "qp-review", "action": "release", "to": "released", "guard": "qp-sign-off"},
                         {"from": "qp-review", "action": "reject-batch", "to": "rejected", "guard": "qp-rejection"},
                         {"from": "qp-review", "action": "send-back", "to": "qc-review"}],
         "initial_state": "drafting", "terminal_states": ["released", "rejected"]},
        {**SIMPLE[1], "qc-board": {"approvers": ["qc_ann", "qc_ben", "qc_cid"], "quorum": {"rule": "m-of-n", "m": 2}, "scope": "pharma:batch-release:qc"}})


def staff(w: World, board: bool = True, signed: bool = True) -> dict[str, Actor]:
    """The administrator takes a key and signs from then on; ines starts and fires with her key, the lab fires with a bearer token, the qualified person and the board decide with keys."""
    if signed:
        w.admin = w.add_key(w.admin, w.admin, "admin/1")
    a = {"ines": w.register(w.admin, "ines", name="Inês Sá"), "qp": w.register(w.admin, "qp_santos", name="Dr. Santos"), "audit": w.register(w.admin, "auditor")}
    w.noise()
    w.grant(w.admin, a["ines"], "workflows:start", "workflows:open-gate", "workflows:fire")
    w.grant(w.admin, a["audit"], "audit:read")
    if board:
        a["lab"] = w.register(w.admin, "lab", key=False, token=True, kind="software")
        w.grant(w.admin, a["lab"], "workflows:fire:batch-release")
        for ref in ("qc_ann", "qc_ben", "qc_cid"):
            a[ref] = w.register(w.admin, ref)
    w.publish(w.admin, "batch-release", 1, *(FULL if board else SIMPLE))
    return a


def scenario_release() -> tuple[World, Bundle]:
    """A named person approves, once; a tree of 37."""
    w = World("release")
    a = staff(w, board=False, signed=False)
    p = Process(w, a["ines"], "batch-release@1", "batch/2026-0001", "routine batch")
    w.noise(2)
    p.fire(a["ines"], "submit")
    w.noise()
    p.open(a["ines"], "release")
    w.noise(3)
    p.decide(a["qp"], "release", "approve", "all results within specification")
    p.fire(a["ines"], "release", "released to market")
    w.noise(2)
    return w, w.export(a["audit"], p, 37)


def scenario_quorum() -> tuple[World, Bundle]:
    """Two of three, a trailing third, then the named person; a tree of 64."""
    w = World("quorum")
    a = staff(w)
    p = Process(w, a["ines"], "batch-release@1", "batch/2026-0002")
    p.fire(a["lab"], "submit")
    w.noise()
    p.open(a["ines"], "pass", "documents complete")
    p.decide(a["qc_ann"], "pass", "approve")
    w.noise(2)
    p.decide(a["qc_ben"], "pass", "approve", "retested")
    p.decide(a["qc_cid"], "pass", "reject", "for the minutes")
    p.fire(a["lab"], "pass")
    p.open(a["ines"], "release")
    p.open(a["ines"], "reject-batch")
    p.decide(a["qp"], "release", "approve")
    w.noise()
    p.fire(a["ines"], "release")
    return w, w.export(a["audit"], p, 64)


def scenario_loop() -> tuple[World, Bundle]:
    """Back and forth: gates re-opened after consumption, rejection, withdrawal and mootness, single and quorum; a tree of 96."""
    w = World("loop")
    a = staff(w)
    p = Process(w, a["ines"], "batch-release@1", "batch/2026-0003", gate_spec={"qp-rejection": {"approver_ref": "qc_ann", "scope": "pharma:deputy"}})
    p.fire(a["lab"], "submit")
    p.open(a["ines"], "pass")
    p.decide(a["qc_ann"], "pass", "approve")
    p.fire(a["lab"], "return", "wrong form")            # a pending quorum gate becomes moot
    p.fire(a["lab"], "submit")
    p.open(a["ines"], "pass")
    p.decide(a["ines"], "pass", "withdraw", "one more sample", whole=True)
    p.open(a["ines"], "pass")
    p.decide(a["qc_ann"], "pass", "reject", "not yet")
    p.decide(a["qc_ben"], "pass", "reject", "not yet")
    p.open(a["ines"], "pass")
    p.decide(a["ines"], "pass", "withdraw", "cid is away", approver="qc_cid")
    p.fire(a["lab"], "note")
    w.second_node("node 2")
    w.noise(3)
    p.decide(a["qc_ben"], "pass", "approve")
    p.decide(a["qc_ann"], "pass", "approve")
    p.fire(a["lab"], "pass")                            # what is left of the rejected chain is withdrawn
    p.open(a["ines"], "release")
    p.decide(a["qp"], "release", "approve")
    p.open(a["ines"], "reject-batch")
    p.fire(a["lab"], "send-back", "label misprint")     # an approved and a pending gate become moot
    p.open(a["ines"], "pass")
    p.decide(a["qc_cid"], "pass", "approve")
    p.decide(a["qc_ben"], "pass", "approve")
    p.fire(a["lab"], "pass")
    p.open(a["ines"], "release")
    p.decide(a["qp"], "release", "reject", "seal broken")
    p.open(a["ines"], "release")
    p.decide(a["qp"], "release", "approve", "seal replaced")
    p.fire(a["ines"], "release")
    return w, w.export(a["audit"], p, 96)


def scenario_purge() -> tuple[World, Bundle]:
    """Holds, a purge after retention, keys rotated and revoked, a grant revoked; a tree of 65."""
    w = World("purge", retention_days=30)
    a = staff(w, board=False)
    w.grant(w.admin, a["audit"], "audit:hold", "audit:purge")
    p = Process(w, a["ines"], "batch-release@1", "batch/2026-0004")
    p.fire(a["ines"], "submit")
    p.open(a["ines"], "release")
    refused = p.decide(a["qp"], "release", "reject", "patient name on the label")[0]
    hold = w.hold(a["audit"], refused, "inspection announced", "case-7")
    w.noise(2)
    second = w.add_key(a["qp"], a["qp"], "qp_santos/2")
    w.revoke_key(second, a["qp"], "card lost")
    token = w.issue(w.admin, a["ines"], "ines-tablet")
    p.open(token, "release")
    w.revoke_credential(w.admin, token)
    p.decide(second, "release", "approve")
    w.now += 31 * DAY
    w.release_hold(a["audit"], refused, hold, "inspection closed")
    w.purge(a["audit"], refused)
    temporary = w.grant(w.admin, a["qp"], "workflows:fire")[0]
    p.fire(second, "release")
    w.revoke(w.admin, temporary)
    w.noise(4)
    return w, w.export(a["audit"], p, 65)


def scenario_window() -> tuple[World, Bundle]:
    """Three processes in a window, one before it; decisions by bearer token, for nothing here is regulated; a tree of 70."""
    w = World("window", regulated=False)
    a = staff(w, board=False, signed=False)
    qp = w.issue(w.admin, a["qp"], "qp-desk")
    before = Process(w, a["ines"], "batch-release@1", "batch/2026-0010")
    before.fire(a["ines"], "submit")
    after = w.now + 1
    p = [Process(w, a["ines"], "batch-release@1", f"batch/2026-001{i}") for i in (1, 2, 3)]
    p[0].fire(a["ines"], "submit")
    p[1].fire(a["ines"], "submit")
    p[0].open(a["ines"], "release")
    p[1].open(a["ines"], "reject-batch")
    p[0].decide(qp, "release", "approve", "by token")
    p[1].decide(a["qp"], "reject-batch", "approve", "by key")
    w.noise(2)
    p[1].fire(a["ines"], "reject-batch")
    until = w.now
    p[0].fire(a["ines"], "release")
    p[2].fire(a["ines"], "submit")
    p[2].open(a["ines"], "release")
    return w, w.export_window(a["audit"], after, until, 70)


def scenario_of_run(name: str) -> tuple[World, Bundle]:
    import runs
    return runs.SCENARIOS["run-" + name]()


SCENARIOS: dict[str, Callable[[], tuple[World, Bundle]]] = {
    "release": scenario_release, "quorum": scenario_quorum, "loop": scenario_loop, "purge": scenario_purge, "window": scenario_window}
SCENARIOS |= {f"run-{name}": functools.partial(scenario_of_run, name) for name in ("linear", "dag", "together", "saga", "listed", "gate", "cancelled", "window", "people", "tasks", "own", "child")}


RANDOM = ({"states": ["a", "b", "c", "end"],
           "transitions": [{"from": "a", "action": "x", "to": "b", "guard": "board"}, {"from": "a", "action": "y", "to": "b"},
                           {"from": "a", "action": "z", "to": "a", "guard": "pair"}, {"from": "b", "action": "x", "to": "a", "guard": "person"},
                           {"from": "b", "action": "y", "to": "c", "guard": "pair"}, {"from": "b", "action": "w", "to": "b", "guard": "board"},
                           {"from": "c", "action": "back", "to": "a"}, {"from": "c", "action": "finish", "to": "end", "guard": "person"}],
           "initial_state": "a", "terminal_states": ["end"]},
          {"pair": {"approvers": ["qp_santos", "ines"], "quorum": {"rule": "all-of-n"}, "scope": "s:pair"}, "person": {"approver_ref": "qp_santos", "scope": "s:person"}})
RULES: list[dict[str, Any]] = [{"rule": "m-of-n", "m": 2}, {"rule": "all-of-n"}, {"rule": "one-of-n"}, {"rule": "m-of-n", "m": 3}, {"rule": "m-of-n", "m": 1}]


def scenario_random(seed: int) -> tuple[World, Bundle]:
    """An honest server under a random walk: gates opened, decided, trailed, withdrawn, fired, left; some records held and purged."""
    rnd = random.Random(seed)
    w = World(f"random {seed}".replace(" ", "-"), regulated=rnd.random() < 0.5, retention_days=rnd.choice([None, 1]))
    a = staff(w, signed=rnd.random() < 0.5)
    w.grant(w.admin, a["audit"], "audit:hold", "audit:purge")
    w.grant(w.admin, a["lab"], "workflows:fire")
    board = {"approvers": ["qc_ann", "qc_ben", "qc_cid"], "quorum": rnd.choice(RULES), "scope": "s:board"}
    w.publish(w.admin, "random", 1, RANDOM[0], {**RANDOM[1], "board": board})
    people = {x.ref: x for x in a.values()}
    processes = [Process(w, a["ines"], "random@1", f"subject/{i}") for i in range(rnd.choice([1, 1, 2]))]
    for i in range(rnd.randint(5, 45)):
        random_move(rnd, rnd.choice(processes), a, people)
        w.noise(rnd.choice([0] * 9 + [3]))
        if rnd.random() < 0.03:
            w.grant(w.admin, a["qp"], f"other:{i}")
    if w.retention_days and rnd.random() < 0.7:
        w.now += 3 * DAY
        for r in [r for p in processes for r in list(w.chains[p.id])]:
            if rnd.random() < 0.2:
                if rnd.random() < 0.3:
                    w.release_hold(a["audit"], r, w.hold(a["audit"], r, "inspection"), "closed")
                w.purge(a["audit"], r)
    size = len(w.log) + 1 + rnd.randint(0, 9)
    return w, w.export(a["audit"], processes[0], size) if len(processes) == 1 else w.export_window(a["audit"], None, None, size)


def random_move(rnd: random.Random, p: Process, a: dict[str, Actor], people: dict[str, Actor]) -> None:
    """One thing that may be done now, if chance finds one."""
    if p.state in p.declaration["terminal_states"]:
        return

    def status(gate_id: str) -> tuple[str, str]:
        gate = p.gates[gate_id]
        return gate["chain_state"] or p.steps[gate_id]["state"], gate["fate"]

    kind = rnd.choices(["open", "decide", "fire"], [35, 45, 20])[0]
    here = [t for t in p.declaration["transitions"] if t["from"] == p.state]
    rnd.shuffle(here)
    if kind == "open":
        for t in here:
            bound = p.bound.get((p.state, t["action"]))
            if "guard" in t and (bound is None or status(bound) not in (("Pending", "unspent"), ("Approved", "unspent"))):
                p.open(a["ines"], t["action"], rnd.choice([None, "please"]))
                return
    elif kind == "decide":
        pending = [s for s in p.steps.values() if s["state"] == "Pending"]
        if not pending:
            return
        step = rnd.choice(pending)
        decision = rnd.choices(["approve", "reject", "withdraw"], [6, 2, 1])[0]
        whole = decision == "withdraw" and p.gates[step["gate_id"]]["chain_state"] == "Pending" and rnd.random() < 0.5
        by = a["ines"] if decision == "withdraw" else people[step["approver_ref"]]
        p.decide(by, step["action"], decision, rnd.choice([None, "fine"]) if decision == "approve" else "not now", approver=step["approver_ref"], whole=whole, gate_id=step["gate_id"])
    else:
        for t in here:
            if "guard" not in t or (p.state, t["action"]) in p.bound and status(p.bound[(p.state, t["action"])]) == ("Approved", "unspent"):
                p.fire(rnd.choice([a["ines"], a["lab"]]), t["action"], rnd.choice([None, "onwards"]))
                return


def main(argv: list[str]) -> int:
    if len(argv) != 2:
        print("usage: make.py OUTDIR", file=sys.stderr)
        return 2
    out = pathlib.Path(argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name, scenario in SCENARIOS.items():
        world, bundle = scenario()
        bundle.write(out / f"{name}.zip")
        (out / f"{name}.policy.txt").write_text(world.policy(), encoding="utf-8")
        (out / f"{name}.keys.json").write_text(json.dumps(world.keyfile(), indent=1) + "\n", encoding="utf-8")
        print(f"{name}.zip: {len(bundle.records)} records, {bundle.manifest['instances']} instances, tree of {bundle.manifest['tree_size']}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
