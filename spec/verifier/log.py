"""Log and checkpoint (checkpoint.md)."""
from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from .files import Bundle
from .found import Report
from .keys import Policy, VerifierKey, parse_vkey
from .texts import HEX64, Json, REGISTRY, Unreadable, same, sha256, signature_fits, unbase64


def inclusion_holds(leaf: bytes, index: int, size: int, proof: list[bytes], root: bytes) -> bool:
    """RFC 9162, 2.1.3.2."""
    if not 0 <= index < size:
        return False
    fn, sn, r = index, size - 1, leaf
    for p in proof:
        if sn == 0:
            return False
        if fn & 1 or fn == sn:
            r = sha256(b"\x01" + p + r)
            while not fn & 1 and fn != 0:
                fn, sn = fn >> 1, sn >> 1
        else:
            r = sha256(b"\x01" + r + p)
        fn, sn = fn >> 1, sn >> 1
    return sn == 0 and r == root


def consistency_holds(old: int, new: int, old_root: bytes, new_root: bytes, proof: list[bytes]) -> bool:
    """RFC 9162, 2.1.4.2."""
    if not 0 < old <= new:
        return False
    if old == new:
        return not proof and old_root == new_root
    path = [old_root, *proof] if old & (old - 1) == 0 else proof
    if not path:
        return False
    fn, sn = old - 1, new - 1
    while fn & 1:
        fn, sn = fn >> 1, sn >> 1
    fr = sr = path[0]
    for c in path[1:]:
        if sn == 0:
            return False
        if fn & 1 or fn == sn:
            fr, sr = sha256(b"\x01" + c + fr), sha256(b"\x01" + c + sr)
            while not fn & 1 and fn != 0:
                fn, sn = fn >> 1, sn >> 1
        else:
            sr = sha256(b"\x01" + sr + c)
        fn, sn = fn >> 1, sn >> 1
    return sn == 0 and fr == old_root and sr == new_root


def signature_lines(signatures: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    if not signatures.endswith("\n"):
        raise ValueError("the note does not end with a line feed")
    for line in signatures[:-1].split("\n"):
        match = re.fullmatch("\u2014 ([^ ]+) ([^ ]+)", line)
        if not match:
            raise ValueError("a signature line has not the form")
        found.append((match[1], unbase64(match[2])))
    return found


def follow(rotations: list[dict[str, Json]], c: Checkpoint, trusted: list[VerifierKey], report: Report) -> list[VerifierKey]:
    """The trusted log keys and those they lead to (checkpoint.md 6)."""
    keys = list(trusted)
    before: Optional[tuple[int, tuple[str, bytes]]] = None
    for line in rotations:
        try:
            text, _, signatures = line["note"].partition("\n\n")
            text += "\n"
            match = re.fullmatch(r"([^\n]+)\n([1-9][0-9]{0,15})\n([^\n]+)\nrotated-from ([^\n]+)\nrotated-to ([^\n]+)\n", text)
            if not match:
                raise ValueError("not the five lines of a rotation")
            size, root, old, new = int(match[2]), unbase64(match[3]), parse_vkey(match[4], 1), parse_vkey(match[5], 1)
            if match[1] != c.origin or {old.name, new.name} != {c.origin} or size > c.size or len(root) != 32:
                raise ValueError("of another log, or beyond the checkpoint")
            signed: dict[bytes, bool] = {}
            for key in (old, new):
                lines = [raw for name, raw in signature_lines(signatures) if name == key.name and raw[:4] == key.key_id]
                signed[key.public] = any(signature_fits(key.public, raw[4:], text.encode()) for raw in lines)
                if not signed[key.public] and (lines or key is new):
                    raise ValueError("a signature is missing or does not fit")
            if before is not None and (before[0] >= size or before[1] != identity_of(old)):
                raise ValueError("does not go on from the one before it")
            if not all(HEX64.match(h) for h in line["proof"]) or not consistency_holds(size, c.size, root, c.root, [bytes.fromhex(h) for h in line["proof"]]):
                raise ValueError("the log of the checkpoint does not go on from it")
        except (ValueError, Unreadable) as e:
            report.find("rotation-invalid", f"rotations.jsonl: {e}")
            continue
        if not signed[old.public]:
            report.note("log-key-lost", f"the log's key was replaced at {size} entries without the old key's signature")
        elif any(identity_of(key) == identity_of(old) for key in keys):
            keys.append(new)
        before = (size, identity_of(new))
    return keys


def identity_of(key: VerifierKey) -> tuple[str, bytes]:
    return key.name, key.public


@dataclass
class Checkpoint:
    origin: str
    size: int
    root: bytes
    signers: list[VerifierKey]  # trusted log keys whose signature fits
    cosigners: set[str]         # nicknames of the policy's witnesses whose cosignature fits


def check_checkpoint(note: str, manifest: dict[str, Json], policy: Policy, rotations: list[dict[str, Json]], report: Report) -> Optional[Checkpoint]:
    try:
        text, blank, signatures = note.partition("\n\n")
        text += "\n"
        lines = text.split("\n")
        if not blank or len(lines) != 4 or not lines[0] or not re.fullmatch(r"0|[1-9][0-9]{0,15}", lines[1]) or not signatures.endswith("\n"):
            raise ValueError("not three lines, an empty line and signature lines")
        c = Checkpoint(lines[0], int(lines[1]), unbase64(lines[2]), [], set())
        if len(c.root) != 32:
            raise ValueError("the root is not 32 bytes")
        logs = follow(rotations, c, policy.logs, report)
        for name, raw in signature_lines(signatures):
            for key in logs:
                if name == key.name == c.origin and raw[:4] == key.key_id and signature_fits(key.public, raw[4:], text.encode()):
                    c.signers.append(key)
            for nickname, key in policy.witnesses.items():
                if name == key.name and raw[:4] == key.key_id and len(raw) == 76:
                    cosigned = f"cosignature/v1\ntime {int.from_bytes(raw[4:12], 'big')}\n{text}".encode()
                    if signature_fits(key.public, raw[12:], cosigned):
                        c.cosigners.add(nickname)
    except ValueError as e:
        report.find("checkpoint-invalid", f"checkpoint: {e}")
        return None
    report.checked["integrity"] += 1
    if not c.signers:
        report.find("checkpoint-invalid", "no signature of a trusted log key fits")
    if manifest and (c.origin != manifest["origin"] or c.size != manifest["tree_size"]):
        report.find("checkpoint-invalid", "origin or size is not that of bundle.json")

    def satisfied(name: str) -> bool:
        if name in policy.groups:
            need, members = policy.groups[name]
            return sum(satisfied(m) for m in members) >= need
        return name in c.cosigners

    if policy.quorum != "none" and not satisfied(policy.quorum):
        report.find("witness-quorum", f"cosigned by {sorted(c.cosigners) or 'no witness'}; the policy's quorum {policy.quorum} is not there")
    return c


def check_log(b: Bundle, checkpoint: Optional[Checkpoint], report: Report) -> None:
    registry = {r.sequence: r for r in b.chains.get(REGISTRY, [])}
    last_before: dict[int, int] = {}  # time of a registry command -> last sequence before it
    for r in b.chains.get(REGISTRY, []):
        last_before.setdefault(r.at, r.sequence - 1)
    for r in b.records:
        try:
            proof = [bytes.fromhex(h) if HEX64.match(h) else b"" for h in r.proof]
            if checkpoint is None or not inclusion_holds(r.hash, r.log_index, checkpoint.size, proof, checkpoint.root):
                raise ValueError
        except ValueError:
            report.find("inclusion-invalid", "the proof does not lead to the checkpoint's root", r)
        if r.instance == REGISTRY:
            if r.registry_seq != last_before[r.at]:
                report.find("registry-order", f"registry_seq {r.registry_seq}; the last record before the command is {last_before[r.at]}", r)
            continue
        known, later = registry.get(r.registry_seq), registry.get(r.registry_seq + 1)
        if r.registry_seq > 0 and (known is None or known.log_index > r.log_index):
            report.find("registry-order", f"registry record {r.registry_seq} does not stand before it in the log", r)
        if later is not None and later.log_index < r.log_index:
            report.find("registry-order", f"registry record {r.registry_seq + 1} stands before it in the log", r)


def check_tail(b: Bundle, report: Report) -> None:
    """bundle.md 1, Scope."""
    scope = b.manifest.get("scope")
    if scope is None:
        return
    window = "instance_id" not in scope
    chain = b.chains.get(REGISTRY if window else scope["instance_id"], [])
    last = chain[-1] if chain else None
    if last is None or last.action != "evidence_exported" or last.payload is None:
        report.find("tail-missing", "the chain in scope does not end with evidence_exported", last)
        return
    if not window:
        if last.payload["through_sequence"] != last.sequence - 1:
            report.find("tail-missing", f"through_sequence {last.payload['through_sequence']} is not {last.sequence - 1}", last)
        return
    heads = {i: c[-1] for i, c in b.chains.items() if i != REGISTRY}
    lines = "".join(f"{i} {heads[i].sequence} {heads[i].hash.hex()}\n" for i in sorted(heads))
    after, before = scope["after_us"], scope["before_us"]
    found = {"after_us": after, "before_us": before, "instances": len(heads), "heads_digest": sha256(lines.encode()).hex()}
    for name, value in found.items():
        if not same(last.payload[name], value):
            report.find("tail-missing", f"{name} of the export is not that of the bundle", last)
    for instance in heads:
        if not any((after is None or r.at >= after) and (before is None or r.at <= before) for r in b.chains[instance]):
            report.find("tail-missing", "an instance without a record in the window", instance_id=instance)
