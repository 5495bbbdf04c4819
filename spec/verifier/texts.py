"""Strict JSON, forms, digests and signatures (record.md 7)."""
from __future__ import annotations

import base64
import binascii
import datetime
import hashlib
import json
import re
from typing import Any, Optional

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

REGISTRY = "00000000-0000-0000-0000-000000000000"
GOVERNANCE = "00000000-0000-0000-0000-000000000001"
MAX_INT = 2**53 - 1
Json = Any



class Unreadable(Exception):
    """The bundle or an argument cannot be read at all: exit status 2."""


class Fault(Exception):
    """A fault in one text: its code and what is wrong."""

    def __init__(self, code: str, detail: str):
        super().__init__(detail)
        self.code, self.detail = code, detail


def parse_json(text: str) -> Json:
    """RFC 8259, and no text that two readers could take for different values."""
    def pairs(items: list[tuple[str, Json]]) -> dict[str, Json]:
        out: dict[str, Json] = {}
        for name, value in items:
            if name in out:
                raise Fault("duplicate-key", f"member {name!r} appears twice")
            out[name] = value
        return out

    def integer(digits: str) -> int:
        if len(digits) > 17 or abs(int(digits)) > MAX_INT:
            raise Fault("number-out-of-range", f"integer {digits[:40]} is beyond 2^53 - 1")
        return int(digits)

    def fraction(digits: str) -> float:
        if float(digits) in (float("inf"), float("-inf")):
            raise Fault("number-out-of-range", f"number {digits[:40]} is not finite")
        return float(digits)

    def constant(name: str) -> Json:
        raise Fault("bundle-form", f"{name} is not JSON")

    try:
        value = json.loads(text, object_pairs_hook=pairs, parse_int=integer, parse_float=fraction, parse_constant=constant)
        check_texts(value)
    except (ValueError, RecursionError) as e:
        raise Fault("bundle-form", f"not JSON: {e}") from e
    return value


def check_texts(value: Json, depth: int = 0) -> None:
    if depth > 100:
        raise ValueError("nested too deeply")
    if isinstance(value, str):
        value.encode("utf-8")  # a lone surrogate raises ValueError
        if "\0" in value:
            raise ValueError("text with U+0000")
    elif isinstance(value, list):
        for v in value:
            check_texts(v, depth + 1)
    elif isinstance(value, dict):
        for k, v in value.items():
            check_texts(k)
            check_texts(v, depth + 1)


def same(a: Json, b: Json) -> bool:
    """Equal as JSON values: true is not 1, and the order of members does not matter."""
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


def member_text(text: str, name: str) -> Optional[str]:
    """The text of a member as it stands in the object `text`."""
    decoder, at = json.JSONDecoder(), text.index("{") + 1
    blank = re.compile(r"[\s,:]*")
    while True:
        at = blank.match(text, at).end()        # type: ignore[union-attr]
        if text[at] == "}":
            return None
        key, at = decoder.raw_decode(text, at)
        at = blank.match(text, at).end()        # type: ignore[union-attr]
        _, end = decoder.raw_decode(text, at)
        if key == name:
            return text[at:end]
        at = end


def without_nulls(value: Json) -> Json:
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    return [without_nulls(v) for v in value] if isinstance(value, list) else value


HEX64 = re.compile(r"[0-9a-f]{64}\Z")
TYPES = {"text": lambda v: isinstance(v, str), "int": lambda v: type(v) is int, "bool": lambda v: isinstance(v, bool),
         "hex": lambda v: isinstance(v, str) and HEX64.match(v) is not None, "list": lambda v: isinstance(v, list),
         "object": lambda v: isinstance(v, dict), "any": lambda v: v is not None, "one": lambda v: type(v) is int and v == 1,
         "state": lambda v: v in ("Pending", "Approved", "Rejected", "Withdrawn"), "fate": lambda v: v in ("unspent", "consumed", "mooted"),
         "signatures": lambda v: v in ("people", "all"),
         "status": lambda v: v in ("Active", "Recalled", "Transferred"), "rule": lambda v: v in ("all-of-n", "one-of-n", "m-of-n"),
         "texts": lambda v: isinstance(v, list) and all(isinstance(x, str) for x in v),
         "steps": lambda v: isinstance(v, list) and all(isinstance(x, dict) and all(
             isinstance(x.get(k), str) for k in ("step_id", "assignment_id", "approver_ref")) for x in v)}


def check_form(value: Json, form: str, code: str, what: str, exact: bool = True) -> None:
    """`form` lists members as name:type; a ? after the type allows null, a ? after the name allows absence as well."""
    if not isinstance(value, dict):
        raise Fault(code, f"{what} is not an object")
    known = set()
    for word in form.split():
        name, kind = word.split(":")
        optional, nullable = name.endswith("?"), kind.endswith("?") or name.endswith("?")
        name, kind = name.rstrip("?"), kind.rstrip("?")
        known.add(name)
        if name not in value:
            if not optional:
                raise Fault(code, f"{what} lacks {name}")
        elif not (value[name] is None and nullable) and not TYPES[kind](value[name]):
            number = isinstance(value[name], float) and kind in ("int", "one")
            raise Fault("number-out-of-range" if number else code, f"{what}: {name} is not {kind}")
    if exact and set(value) - known:
        raise Fault(code, f"{what} has unknown members {sorted(set(value) - known)}")


def instant(text: Json) -> Optional[int]:
    """Microseconds since 1970 of an RFC 3339 date-time; digits beyond microseconds are dropped."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)", text) if isinstance(text, str) else None
    if found is None:
        return None
    day, time, fraction, offset = found.groups()
    try:
        at = datetime.datetime.fromisoformat(f"{day}T{time}{'+00:00' if offset in 'Zz' else offset}")
    except ValueError:
        return None
    since = at - datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + int((fraction or "").ljust(6, "0")[:6])


def published_gates(text: Optional[str]) -> Optional[dict[str, Json]]:
    """The gate_spec of a definition (record.md 6), if it is one."""
    try:
        value = parse_json(text or "")
        for entry in value.values() if isinstance(value, dict) else [None]:
            check_form(entry, "approver_ref?:text approvers?:texts quorum?:object scope:text delegable?:bool replaceable?:bool selfApproval?:bool", "document-mismatch", "gate_spec")
            named = sorted(k for k in ("approver_ref", "approvers", "quorum") if entry.get(k) is not None)
            if named not in ([], ["approver_ref"], ["approvers", "quorum"]) or (not named or entry.get("selfApproval")) and entry.get("replaceable") is not True:
                return None
        return value
    except Fault:
        return None


def preset(gate: Json) -> Json:
    """Who approves where a start says nothing; None where the start has to say."""
    entry = as_entry({k: v for k, v in (gate or {}).items() if k not in ("replaceable", "selfApproval")})
    return entry if {"approver_ref", "approvers"} & set(entry) else None


def as_entry(entry: Json) -> Json:
    """Without what says nothing: a member that is null, a `delegable` that is false."""
    return {k: v for k, v in without_nulls(entry).items() if (k, v) != ("delegable", False)}


def unbase64(text: Json) -> bytes:
    """RFC 4648 section 4 with padding, in its one canonical spelling."""
    if not isinstance(text, str):
        raise ValueError("not base64 text")
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error as e:
        raise ValueError(str(e)) from e
    if base64.b64encode(data).decode() != text:
        raise ValueError("not canonical base64")
    return data


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def signature_fits(public: bytes, signature: bytes, data: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, data)
        return True
    except (InvalidSignature, ValueError):
        return False
