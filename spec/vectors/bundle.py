"""Bytes, keys, records and bundles, as record.md, checkpoint.md and bundle.md say. `Bundle` reads and writes bundles and can `reseal` one with
given keys."""
from __future__ import annotations

import base64
import hashlib
import json
import pathlib
import zipfile
from typing import Any, Callable, Optional

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

REGISTRY = "00000000-0000-0000-0000-000000000000"
GOVERNANCE = "00000000-0000-0000-0000-000000000001"
ZEROS = "0" * 64


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


    def consistency(self, old: int) -> list[bytes]:
        """RFC 6962, 2.1.2: that the tree of `old` leaves is the beginning of this one."""
        leaves = self.levels[0]

        def proof(m: int, start: int, end: int, whole: bool) -> list[bytes]:
            if m == end - start:
                return [] if whole else [Tree(leaves[start:end]).root]
            k = 1
            while k * 2 < end - start:
                k *= 2
            if m <= k:
                return proof(m, start, start + k, whole) + [Tree(leaves[start + k:end]).root]
            return proof(m - k, start + k, end, False) + [Tree(leaves[start:start + k]).root]

        return proof(old, 0, len(leaves), True)


def log_line(origin: str, key: Key, text: str) -> str:
    return f"\u2014 {origin} {b64(note_key_id(origin, 1, key.public) + key.sign(text.encode()))}\n"


def rotation_note(origin: str, size: int, root: bytes, old: Key, new: Key, by: Optional[list[Key]] = None) -> str:
    """checkpoint.md 6: the note with which `new` takes over from `old`, signed by both unless told."""
    text = f"{origin}\n{size}\n{b64(root)}\nrotated-from {vkey(origin, old)}\nrotated-to {vkey(origin, new)}\n"
    return text + "\n" + "".join(log_line(origin, key, text) for key in (by or [old, new]))


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
        self.rotations: list[dict[str, Any]] = []

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
            b.rotations = lines("rotations.jsonl") if "rotations.jsonl" in z.namelist() else []
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
            **({"rotations.jsonl": lines(self.rotations)} if self.rotations else {}),
        }

    def write(self, path: str | pathlib.Path) -> None:
        write_zip(path, self.files())

    def copy(self) -> "Bundle":
        b = Bundle()
        b.manifest = json.loads(dump(self.manifest))
        b.records = [r.copy() for r in self.records]
        b.documents, b.state, b.grants = (json.loads(dump(x)) for x in (self.documents, self.state, self.grants))
        b.checkpoint, b.log_vkey, b.rotations = self.checkpoint, self.log_vkey, json.loads(dump(self.rotations))
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
        for row in self.rotations:
            row["proof"] = [h.hex() for h in tree.consistency(int(row["note"].split("\n")[1]))]
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
