"""Keys of logs and witnesses, and whom is trusted (checkpoint.md)."""
from __future__ import annotations

import re
from dataclasses import dataclass, field

from .texts import Unreadable, sha256, unbase64


@dataclass
class VerifierKey:
    name: str
    key_id: bytes
    public: bytes


def parse_vkey(text: str, kind: int) -> VerifierKey:
    parts = text.split("+", 2)
    try:
        raw = unbase64(parts[2])
        if len(raw) != 33 or raw[0] != kind:
            raise ValueError("not an Ed25519 key of this kind")
        if not parts[0] or re.search(r"\s", parts[0]):
            raise ValueError("no name")
        key_id = sha256(parts[0].encode() + b"\n" + raw)[:4]
        if parts[1] != key_id.hex():
            raise ValueError("the key id is not that of the key")
        return VerifierKey(parts[0], key_id, raw[1:])
    except (IndexError, ValueError) as e:
        raise Unreadable(f"not a verifier key: {text!r}: {e}") from e


@dataclass
class Policy:
    logs: list[VerifierKey] = field(default_factory=list)
    witnesses: dict[str, VerifierKey] = field(default_factory=dict)
    groups: dict[str, tuple[int, list[str]]] = field(default_factory=dict)
    quorum: str = "none"


def parse_policy(text: str) -> Policy:
    p, quorums = Policy(), 0
    for number, line in enumerate(text.split("\n"), 1):
        words = line.split("#", 1)[0].split()
        try:
            if not words:
                continue
            known = set(p.witnesses) | set(p.groups)
            if words[0] == "log" and len(words) == 2:
                p.logs.append(parse_vkey(words[1], 1))
            elif words[0] == "witness" and len(words) == 3 and words[1] not in known | {"none"}:
                p.witnesses[words[1]] = parse_vkey(words[2], 4)
            elif words[0] == "group" and len(words) >= 4 and words[1] not in known | {"none"} and set(words[3:]) <= known:
                need = {"all": len(words) - 3, "any": 1}.get(words[2]) or int(words[2])
                if not 1 <= need <= len(words) - 3 or len(set(words[3:])) != len(words) - 3:
                    raise ValueError("a group that cannot be satisfied")
                p.groups[words[1]] = (need, words[3:])
            elif words[0] == "quorum" and len(words) == 2 and words[1] in known | {"none"}:
                p.quorum, quorums = words[1], quorums + 1
            else:
                raise ValueError("not understood")
        except (ValueError, Unreadable) as e:
            raise Unreadable(f"policy, line {number}: {e}") from e
    if quorums != 1:
        raise Unreadable("policy: exactly one quorum line is needed")
    return p
