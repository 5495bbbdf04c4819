"""Log and checkpoint (checkpoint.md)."""
from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from .files import Bundle
from .found import Report
from .keys import Policy, VerifierKey
from .texts import HEX64, Json, REGISTRY, same, sha256, signature_fits, unbase64


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


@dataclass
class Checkpoint:
    origin: str
    size: int
    root: bytes
    signers: list[VerifierKey]  # trusted log keys whose signature fits
    cosigners: set[str]         # nicknames of the policy's witnesses whose cosignature fits


def check_checkpoint(note: str, manifest: dict[str, Json], policy: Policy, report: Report) -> Optional[Checkpoint]:
    try:
        text, blank, signatures = note.partition("\n\n")
        text += "\n"
        lines = text.split("\n")
        if not blank or len(lines) != 4 or not lines[0] or not re.fullmatch(r"0|[1-9][0-9]{0,15}", lines[1]) or not signatures.endswith("\n"):
            raise ValueError("not three lines, an empty line and signature lines")
        c = Checkpoint(lines[0], int(lines[1]), unbase64(lines[2]), [], set())
        if len(c.root) != 32:
            raise ValueError("the root is not 32 bytes")
        for line in signatures[:-1].split("\n"):
            match = re.fullmatch("\u2014 ([^ ]+) ([^ ]+)", line)
            if not match:
                raise ValueError("a signature line has not the form")
            name, raw = match[1], unbase64(match[2])
            for key in policy.logs:
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
